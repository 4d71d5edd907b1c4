"""Probes: inputs without outputs that make candidate programs comparable, and the consensus they show."""

from tipprobe.probes.consensus import Consensus, probe_consensus
from tipprobe.probes.generate import (
    generate_probes,
    merge_probe_sets,
    mutation_probes,
    probe_header,
    probes_from,
)
from tipprobe.probes.mutate import mutate_examples
from tipprobe.probes.types import (
    Probe,
    ProbeSet,
    check_probe_sets,
    problem_fingerprint,
    read_probe_header,
    read_probe_sets,
    write_probe_sets,
)
from tipprobe.probes.validity import extract_input, normalise, static_reason

__all__ = [
    "Consensus",
    "Probe",
    "ProbeSet",
    "check_probe_sets",
    "extract_input",
    "generate_probes",
    "merge_probe_sets",
    "mutate_examples",
    "mutation_probes",
    "normalise",
    "probe_consensus",
    "probe_header",
    "probes_from",
    "problem_fingerprint",
    "read_probe_header",
    "read_probe_sets",
    "static_reason",
    "write_probe_sets",
]
