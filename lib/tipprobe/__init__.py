"""tipprobe: reproducible test-time methods for code generation.

Two methods live here: *probes* (test-time reinforcement learning from the behavioural consensus of sampled
programs) and *tips* (instructions written at test time for one problem).  The numbered notebooks narrate;
this package computes.  Importing it is cheap: torch and transformers are imported by the modules that need
them.
"""

import os

# Threads of a numerical library that wait by spinning stall everybody else when several processes share the
# cores, as they do here (on a busy machine sampling took 24 s instead of 2.8 s).  Read at torch's import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
