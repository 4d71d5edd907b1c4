"""Exceptions a user of the package may see.  Each message names what is wrong, where, and what to do."""


class TipprobeError(Exception):
    """Base class: everything the package raises on purpose."""


class _OneLine:
    """Shown by IPython as its message alone: where in the library it was raised helps nobody."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class ParameterError(_OneLine, TipprobeError):
    """A parameter is unknown, of the wrong type, or out of range."""


class DataError(TipprobeError):
    """A problem set, samples file or record is missing, malformed or empty."""


class SandboxError(TipprobeError):
    """The execution machinery itself failed.  Never a verdict about a program, never a reward of 0."""


class StageError(_OneLine, TipprobeError):
    """A stage cannot start (an input is missing) or did not produce what it declares."""


class EndpointError(_OneLine, TipprobeError):
    """A model server is not there, refuses, or keeps failing.  Never an empty reply in its place."""
