"""Running the notebooks as a series: parameters, stages, provenance, runner, report."""

from tipprobe.series.stage import Stage, open_stage

__all__ = ["Stage", "open_stage"]
