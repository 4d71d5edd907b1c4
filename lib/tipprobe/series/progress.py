"""Progress of long loops: a plain bar when somebody watches, a line every 30 s when nobody does."""

from __future__ import annotations

import os
import sys
import time
from typing import IO, Any

from tqdm import tqdm

#: Begins every progress line, so that the runner finds them among a notebook's other output.
MARK = "» "
INTERVAL_S = 30.0


def is_headless() -> bool:
    """Return whether nobody watches: the runner says so, or there is no terminal and no front end."""
    if os.environ.get("TIPPROBE_HEADLESS"):
        return True
    # Jupyter's server names its session to the kernels it starts; papermill and nbconvert do not.
    front_end = {"JPY_SESSION_NAME", "VSCODE_PID", "COLAB_RELEASE_TAG"} & set(os.environ)
    return not front_end and not sys.stdout.isatty()


def duration_text(seconds: float) -> str:
    """Return a duration for people: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """Counts towards `total` and shows it.

    Usable in three ways: ``with progress: ... progress.update(1)``; as the ``progress(done, total)``
    callback that library functions take; and ``progress.note("text")`` for a line of its own.

    Args:
        total: how many items there are, None if unknown.
        what: what is counted, in the plural (``"rollouts"``).
        stream: where to write, standard output by default.
    """

    def __init__(self, total: int | None, what: str, stream: IO[str] | None = None) -> None:
        self.total, self.what, self.done = total, what, 0
        self._stream = stream or sys.stdout
        self._shown: dict[str, Any] = {}
        self._begin = self._last = time.monotonic()
        self._closed = False
        self._interval = float(os.environ.get("TIPPROBE_PROGRESS_S", INTERVAL_S))
        self._bar = None
        if not is_headless():
            # Not tqdm.auto: its widget is frozen at 0 % in a stored notebook and needs a network.
            self._bar = tqdm(total=total, desc=what, file=self._stream, dynamic_ncols=True)

    def __call__(self, done: int, total: int | None = None, **shown: Any) -> None:
        """Say that `done` items (of `total`) are finished; `shown` values stand beside the count."""
        if total is not None and total != self.total:
            self.total = total
            if self._bar is not None:
                self._bar.total = total
        self._shown.update(shown)
        step, self.done = done - self.done, done
        if self._bar is not None:
            self._bar.set_postfix(self._shown, refresh=False)
            self._bar.update(step)
        elif time.monotonic() - self._last >= self._interval:
            self._line()

    def update(self, n: int = 1, **shown: Any) -> None:
        """Say that `n` more items are finished."""
        self(self.done + n, **shown)

    def note(self, text: str) -> None:
        """Show a line of text without disturbing the bar."""
        if self._bar is not None:
            tqdm.write(text, file=self._stream)
        else:
            self._write(text)

    def close(self) -> None:
        """Show the final state; later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        if self._bar is not None:
            self._bar.close()
        else:
            self._line()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> None:
        self._last = time.monotonic()
        elapsed = self._last - self._begin
        text = f"{self.what} {self.done:,}"
        if self.total:
            text += f"/{self.total:,} ({100 * self.done / self.total:.0f} %)"
        text += f", {duration_text(elapsed)}"
        if self.total and 0 < self.done < self.total:
            text += f", about {duration_text(elapsed * (self.total - self.done) / self.done)} left"
        if self._shown:
            values = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in self._shown.items())
            text += " | " + ", ".join(values)
        self._write(text)

    def _write(self, text: str) -> None:
        self._stream.write(f"{MARK}{text}\n")
        self._stream.flush()
