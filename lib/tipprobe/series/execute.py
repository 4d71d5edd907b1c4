"""Runs one notebook in a process of its own: ``python -m tipprobe.series.execute REQUEST`` (JSON, see
`main`).

The runner starts it so that papermill's imports, its event loop and a dying kernel stay outside the runner,
and so that everything the notebook started can be ended with it.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from pathlib import Path
from typing import Any

from tipprobe.series import processes

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: Noise of every kernel start, of no use to a reader.
_NOISE = re.compile(r"running over TCP without encryption|frozen modules|Debugger warning")


class Stopped(BaseException):
    """SIGTERM arrived."""


def _stop(*_: object) -> None:
    raise Stopped


class _Plain(logging.Formatter):
    """The message alone, without colours."""

    def format(self, record: logging.LogRecord) -> str:
        return _ANSI.sub("", record.getMessage().rstrip("\n"))


def _worth_logging(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return bool(message.strip()) and not _NOISE.search(message)


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path, mode="a", encoding="utf-8")
    handler.setFormatter(_Plain())
    handler.addFilter(_worth_logging)
    logger = logging.getLogger("papermill")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logger.propagate = False


def run(request: dict[str, Any]) -> dict[str, Any] | None:
    """Execute the notebook; return None, or what went wrong as ``{kind, name, message, cell}``."""
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            request["notebook"],
            request["output"],
            parameters=request["params"],
            cwd=request["cwd"],
            kernel_name="python3",
            coalesce_streams=True,
            store_widget_state=False,
            start_timeout=120,
            iopub_timeout=60,
            autosave_cell_every=10,
            progress_bar=False,
            log_output=True,
        )
    except PapermillExecutionError as error:
        message = _ANSI.sub("", str(error.evalue))
        return {"kind": "cell", "name": error.ename, "message": message, "cell": error.cell_index + 1}
    except DeadKernelError:
        return {"kind": "kernel died", "name": "DeadKernelError", "message": "the kernel died", "cell": None}
    except NoSuchKernel:
        message = "no Jupyter kernel 'python3' is installed in this environment: pip install ipykernel"
        return {"kind": "no kernel", "name": "NoSuchKernel", "message": message, "cell": None}
    except OSError as error:
        message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        return {"kind": "os", "name": type(error).__name__, "message": message, "cell": None}
    return None


def main() -> int:
    """Read the request, run the notebook, leave nothing running.  Exit code 0, or 1 with the failure in a
    file.

    The request names notebook, output, params, cwd, log, failure (a file to write) and parent (the runner's
    pid).
    """
    request = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to handle
    processes.adopt_orphans()
    try:
        processes.die_with_parent(request["parent"])
        _log_to(Path(request["log"]))
        failure = run(request)
    except Stopped:
        failure = {"kind": "stopped", "name": "Stopped", "message": "the run was stopped", "cell": None}
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        processes.reap(processes.descendants())
    if failure is None:
        return 0
    Path(request["failure"]).write_text(json.dumps(failure), encoding="utf-8")
    return 1


if __name__ == "__main__":
    sys.exit(main())
