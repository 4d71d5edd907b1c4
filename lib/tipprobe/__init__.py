"""tipprobe: reproducible test-time methods for code generation.

Two methods live here: *probes* (test-time reinforcement learning from the behavioural consensus of sampled
programs) and *tips* (instructions written at test time for one problem).  The numbered notebooks narrate;
this package computes.  Importing it is cheap: torch and transformers are imported by the modules that need
them.
"""

__version__ = "0.1.0"
