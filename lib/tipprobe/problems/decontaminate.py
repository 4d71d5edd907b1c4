"""Problems to learn from that resemble one that is tested on: n-grams of words, and plain duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from tipprobe.errors import DataError, ParameterError
from tipprobe.files import read_json, write_json
from tipprobe.problems.benchmarks import short_id
from tipprobe.problems.schema import Problem

#: An evaluation statement of at least this many words that stands whole inside another one is a duplicate,
#: however long that other one is.  Fewer words than these, or than an n-gram, may stand anywhere by chance:
#: they are looked for only in statements that are as short.
SHORTEST_QUOTED = 8

_WORD = re.compile(r"\w+")
Gram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of one problem is found in an evaluation problem.

    Attributes:
        problem_id: the problem to learn from.
        share: largest share of either statement's distinct n-grams found in the other, over all evaluation
            problems, in [0, 1].
        evaluation_set: where that evaluation problem comes from, ``""`` if nothing is shared.
        evaluation_id: its id.
        duplicate: whether an evaluation statement has the same words, or stands whole inside this one.
        dropped: whether the problem must not be learnt from.
    """

    problem_id: str
    share: float
    evaluation_set: str
    evaluation_id: str
    duplicate: bool
    dropped: bool


def words_of(text: str) -> list[str]:
    """Return the words and numbers of a text: compatible characters unified, no case, no punctuation."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def ngrams(words: Sequence[str], n: int) -> set[Gram]:
    """Return the distinct runs of `n` words; of fewer words than `n`, all of them as one run."""
    if not words:
        return set()
    n = min(n, len(words))
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def find_overlaps(
    problems: Sequence[Problem],
    evaluation: Mapping[str, Sequence[Problem]],
    *,
    n: int,
    share: float,
) -> list[Overlap]:
    """Compare every problem with every evaluation problem.

    Both ways: a test problem hidden in a long text is a small share of that text, and a problem that was cut
    out of a long test statement a small share of that.  Of two statements the shorter one caps the n-gram.

    Args:
        problems: what somebody wants to learn from.
        evaluation: what will be tested on, by the name of the set.
        n: words in an n-gram.
        share: share of one statement's n-grams in the other from which a problem is dropped; a duplicate is
            always dropped.  With a half, one changed word does not hide a statement of 3n - 1 words or more.

    Returns:
        One overlap a problem, in order.  Of equal shares the first evaluation problem is named.

    Raises:
        ParameterError: `n` is below 1.
    """
    if n < 1:
        raise ParameterError(f"an n-gram has at least one word, got n = {n}")
    tested = [
        (name, problem.id, words_of(problem.statement))
        for name, group in evaluation.items()
        for problem in group
    ]
    whole = [f" {' '.join(words)} " if len(words) >= SHORTEST_QUOTED else None for _, _, words in tested]
    exact = {tuple(words) for _, _, words in tested}
    index_of = cache(lambda length: _index(tested, length, min(n, SHORTEST_QUOTED)))
    overlaps = []
    for problem in problems:
        words = words_of(problem.statement)
        shared = _shares(words, *index_of(min(n, len(words))))
        text = f" {' '.join(words)} "
        quoted = [place for place, other in enumerate(whole) if other is not None and other in text]
        duplicate = bool(quoted) or tuple(words) in exact
        found = max(shared.values(), default=0.0)
        nearest = quoted or sorted(shared, key=lambda place: (-shared[place], place))
        named = tested[nearest[0]][:2] if nearest else ("", "")
        overlaps.append(Overlap(problem.id, found, *named, duplicate, duplicate or found >= share))
    return overlaps


def _index(
    tested: Sequence[tuple[str, str, list[str]]], n: int, shortest: int
) -> tuple[dict[Gram, list[int]], dict[int, tuple[int, int]]]:
    """Return the places of every gram, and (words a gram, number of grams) of the statement at each place.

    A statement shorter than `n` words is one gram; one shorter than both `n` and `shortest` is left out.
    """
    index: dict[Gram, list[int]] = defaultdict(list)
    sizes = {}
    for place, (_, _, words) in enumerate(tested):
        if len(words) >= min(n, shortest):
            grams = ngrams(words, n)
            sizes[place] = min(n, len(words)), len(grams)
            for gram in grams:
                index[gram].append(place)
    return dict(index), sizes


def _shares(
    words: Sequence[str], index: Mapping[Gram, Sequence[int]], sizes: Mapping[int, tuple[int, int]]
) -> dict[int, float]:
    """Return the larger of both shares with every statement of an index that shares a gram with `words`."""
    grams = {length: ngrams(words, length) for length in {length for length, _ in sizes.values()} if length}
    found = Counter(place for own in grams.values() for gram in own for place in index.get(gram, ()))
    shares = {}
    for place, count in found.items():
        length, theirs = sizes[place]
        shares[place] = count / min(len(grams[length]), theirs)
    return shares


def overlap_table(overlaps: Sequence[Overlap]) -> pd.DataFrame:
    """Return one row a problem, the largest overlap first."""
    table = pd.DataFrame([asdict(overlap) for overlap in overlaps], columns=list(Overlap.__slots__))
    return table.sort_values(["share", "problem_id"], ascending=[False, True], ignore_index=True)


def read_dropped(path: Path) -> set[str]:
    """Return the ids of the problems that a saved `overlap_table` says must not be learnt from.

    Raises:
        DataError: the file is missing or is no such table.
    """
    try:
        table = pd.read_csv(path, dtype={"problem_id": str})
        return set(table.loc[table["dropped"].astype(bool), "problem_id"])
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: no table of overlaps with evaluation problems ({error})") from error


def write_evaluation_sets(
    path: Path, evaluation: Mapping[str, Sequence[Problem]], learnt_from: Iterable[str], coder: str
) -> None:
    """Write what was compared, for those who test later on what was learnt (`check_tested`).

    Args:
        path: JSON file: ``coder``, ``learnt_from`` (ids) and ``sets``, each with a ``digest`` and, by problem
            id, a hash of the words of its statement.
        evaluation: as in `find_overlaps`.
        learnt_from: ids of the problems that something may be learnt from.
        coder: revision of the coder that it is learnt with.
    """
    sets = {}
    for name, problems in evaluation.items():
        statements = {problem.id: _statement_hash(problem) for problem in problems}
        digest = short_id("\n".join(f"{key} {value}" for key, value in sorted(statements.items())))
        sets[name] = {"digest": digest, "statements": statements}
    write_json(path, {"coder": coder, "learnt_from": sorted(learnt_from), "sets": sets})


def read_evaluation_sets(path: Path) -> dict[str, Any]:
    """Return what `write_evaluation_sets` wrote.

    Raises:
        DataError: the file is missing or of another shape.
    """
    record = read_json(path)
    if record is None or not {"coder", "learnt_from", "sets"} <= set(record):
        raise DataError(f"{path}: no record of evaluation sets; run 01_data_mining again")
    return record


def check_tested(path: Path, problems: Sequence[Problem], what: str = "tip_problems") -> None:
    """Refuse to test on problems that were learnt from, or that nothing learnt from was compared with.

    Args:
        path: from `write_evaluation_sets`.
        problems: what shall be tested on; a part of the compared sets will do.
        what: the parameter that names them.

    Raises:
        DataError: there is such a problem; the message names it and what to run.
    """
    record = read_evaluation_sets(path)
    again = f"; choose other {what}, or run the series again from 01_data_mining with these"
    learnt = set(record["learnt_from"]).intersection(problem.id for problem in problems)
    if learnt:
        raise DataError(
            f"{len(learnt)} of the {len(problems)} {what} are problems that tips were learnt from, "
            f"such as {min(learnt)!r}{again}"
        )
    compared = {pair for entry in record["sets"].values() for pair in entry["statements"].items()}
    unknown = [problem.id for problem in problems if (problem.id, _statement_hash(problem)) not in compared]
    if unknown:
        raise DataError(
            f"{len(unknown)} of the {len(problems)} {what}, such as {unknown[0]!r}, are in no set that "
            f"01_data_mining compared its problems with: something like them may have been learnt from{again}"
        )


def coder_note(path: Path, revision: str) -> str:
    """Return a line to print where something is used with another coder than it was learnt with, else ``""``.

    Args:
        path: from `write_evaluation_sets`.
        revision: of the coder that it is used with.
    """
    learnt_with = read_evaluation_sets(path)["coder"]
    if learnt_with == revision:
        return ""
    return (
        f"note: tips were learnt with another coder ({learnt_with}) than they are tried on here ({revision})"
    )


def _statement_hash(problem: Problem) -> str:
    """Return a hash of what `find_overlaps` compares."""
    return short_id(" ".join(words_of(problem.statement)))


def shared_run(problem: Problem, other: Problem) -> list[str]:
    """Return the longest run of words that two statements share: what a reader wants to see of an overlap."""
    ours, theirs = words_of(problem.statement), words_of(other.statement)
    match = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match()
    return ours[match.a : match.a + match.size]
