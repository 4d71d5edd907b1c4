"""A coder and a teacher that say what somebody wrote down, to try things out where every answer is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle, islice

from tipprobe.models.types import Completion, Prompt, Sampling
from tipprobe.problems.minicode.corpus import fenced
from tipprobe.tips.search import Failed, Scored
from tipprobe.tips.teachers import TeacherReply, TeacherRequest, Why


class ScriptedCoder:
    """`tipprobe.models.types.Sampler` that writes the programs it is told to, one after another.

    Args:
        writes: returns the programs for a request's text and a temperature; if more are sampled, they begin
            again.

    Example:
        >>> coder = ScriptedCoder(lambda request, _: ["print(2)" if "two" in request else "print(1)"])
    """

    revision = "scripted"

    def __init__(self, writes: Callable[[str, float], Sequence[str]]) -> None:
        self.writes = writes

    def sample(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[list[Completion]]:
        """Return `n` replies to each prompt."""
        groups = [self.writes(prompt[-1]["content"], sampling.temperature) for prompt in prompts]
        return [
            [Completion(fenced(program), len(program.split()), "stop") for program in islice(cycle(group), n)]
            for group in groups
        ]


class ScriptedTeacher:
    """`tipprobe.tips.teachers.Teacher` that says the same to everybody: one reply a turn, then nothing.

    Args:
        said: the replies, in the order of the turns.
    """

    revision = "scripted"

    def __init__(self, *said: str) -> None:
        self.said = said
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def reply(
        self,
        requests: Sequence[TeacherRequest],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[TeacherReply]:
        """See `Teacher.reply`."""
        replies = []
        for request in requests:
            text = self.said[request.turn - 1] if request.turn <= len(self.said) else None
            why: Why = "not recorded" if text is None else "ok"
            replies.append(TeacherReply(text, why))
            self.outcomes[request.purpose, why] += 1
        return replies


class ScriptedWriter:
    """`tipprobe.tips.search.Writer` that proposes what it is told to, one instruction a call.

    Args:
        says: the instructions, in order; after the last one there are none.
    """

    def __init__(self, *says: str) -> None:
        self.says = iter(says)
        self.tokens = 0

    def write(self, history: Sequence[Scored], failed: Sequence[Failed], n: int, seed: int) -> list[str]:
        """See `Writer.write`."""
        return list(islice(self.says, min(n, 1)))
