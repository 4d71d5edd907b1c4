"""Problems to learn from that resemble one that is tested on: n-grams of words, and plain duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

import pandas as pd

from tipprobe.errors import DataError, ParameterError
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


def shared_run(problem: Problem, other: Problem) -> list[str]:
    """Return the longest run of words that two statements share: what a reader wants to see of an overlap."""
    ours, theirs = words_of(problem.statement), words_of(other.statement)
    match = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match()
    return ours[match.a : match.a + match.size]
