"""Taking the program out of a model's reply.

The rules follow CommonMark's fences (backticks or tildes, closed only by a line of at least as many of the
same, indented content loses the fence's indentation), plus what models do beyond it: reasoning before the
answer, code on the fence line, a language tag glued to code, a fence that the prompt opened or that the
token limit left open. The last block tagged as Python is taken, else the last untagged one that is Python.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from typing import Protocol

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*(.*)$")
_REASONING = re.compile(r"<(think|thinking|reasoning)>")
_REASONING_OPEN = re.compile(r"^[ \t]*<(?:think|thinking|reasoning)>", re.MULTILINE)
_REASONING_CLOSE = re.compile(r"</(?:think|thinking|reasoning)>")
_PYTHON_TAGS = frozenset({"python", "python3", "python2", "py", "py3", "pypy", "pypy3", "cpython", "ipython"})
_TAG = re.compile(r"\{?\.?([A-Za-z][\w+#.-]*)\}?")
_CODE_START = re.compile(r"^(?:from\s+\w|import\s+\w|def\s+\w|class\s+\w|async\s+def\s|@\w|if\s+__name__)")


class Reply(Protocol):
    """What a model said, and whether it came to an end (`tipprobe.models.types.Completion`)."""

    @property
    def text(self) -> str: ...

    @property
    def finish_reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Extraction:
    """A program, or why there is none.

    Attributes:
        code: the program's text without a final newline, None if there is none.
        reason: ``fenced`` (a closed block), ``unclosed_fence`` (a block that the reply's end cut off),
            ``bare`` (no fence, the reply itself is code), ``no_code``, ``empty`` (nothing but white space),
            ``unclosed_reasoning`` (the reply ended before the answer began), or ``truncated`` (`program_of`:
            the reply was cut off).
    """

    code: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str  # lower-cased language tag, "" if there is none
    code: str
    closed: bool
    before: str  # of the first block: the reply's text before the fence


def program_of(reply: Reply) -> Extraction:
    """Return the program that a model's reply gives.

    A reply that was cut off at the token limit gives none, even if code is found in it: what would have
    followed is not known, and every part of the package counts it the same way.
    """
    if reply.finish_reason == "length":
        return Extraction(None, "truncated")
    return extract_code(reply.text)


def extract_code(reply: str) -> Extraction:
    """Return the program in a reply; never raises, whatever the text."""
    text = answer_of(_ANSI.sub("", reply).replace("\r\n", "\n"))
    if text is None:
        return Extraction(None, "unclosed_reasoning")
    if not text.strip():
        return Extraction(None, "empty")
    blocks = _blocks(text)
    if not blocks:
        code = _bare_code(text)
        return Extraction(code, "bare" if code is not None else "no_code")
    chosen = _choose(blocks)
    if chosen is not None:
        return Extraction(chosen.code.rstrip("\n"), "fenced" if chosen.closed else "unclosed_fence")
    # A fence with nothing after it, and code before: the prompt opened the fence and this one closes it.
    if not blocks[0].code.strip() and not blocks[0].closed:
        code = _bare_code(blocks[0].before)
        if code is not None:
            return Extraction(code, "fenced")
    return Extraction(None, "no_code")


def answer_of(reply: str) -> str | None:
    """Return a reply without the reasoning before its answer; None if it ended before the answer began.

    Reasoning stands between tags such as ``<think>``, of which the prompt may have opened the first.
    """
    text = _without_reasoning(reply)
    if _REASONING_OPEN.search(text):
        return None
    return _REASONING_CLOSE.split(text)[-1]  # the prompt had opened the reasoning


def _without_reasoning(text: str) -> str:
    """Return a reply without its closed stretches of reasoning."""
    kept, place, unclosed = [], 0, set()
    for opening in _REASONING.finditer(text):
        tag = opening[1]
        if opening.start() < place or tag in unclosed:
            continue
        end = text.find(f"</{tag}>", opening.end())
        if end < 0:
            unclosed.add(tag)  # nor will a later one be closed: one search a tag, not one an opening
            continue
        kept.append(text[place : opening.start()])
        place = end + len(f"</{tag}>")
    return "".join([*kept, text[place:]])


def _blocks(text: str) -> list[_Block]:
    """Split a reply into its fenced blocks."""
    lines = text.split("\n")
    blocks: list[_Block] = []
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        before = "" if blocks else "\n".join(lines[: number - 1])
        indent, fence, info = opening[1], opening[2], opening[3].strip()
        if info.endswith(fence):  # a whole block on one line
            blocks.append(_Block(*_split_info(info[: -len(fence)].rstrip()), True, before))
            continue
        tag, first = _split_info(info)
        body, closed = [first] if first else [], False
        while number < len(lines):
            line = lines[number]
            number += 1
            closing = _FENCE.match(line)
            if (
                closing
                and closing[2][0] == fence[0]
                and len(closing[2]) >= len(fence)
                and not closing[3].strip()
            ):
                closed = True
                break
            body.append(_dedent(line, len(indent)))
        blocks.append(_Block(tag, "\n".join(body), closed, before))
    return blocks


def _split_info(info: str) -> tuple[str, str]:
    """Split the text after a fence into a language tag and code on the same line."""
    match = _TAG.match(info)
    if match and (match.end() == len(info) or info[match.end()].isspace()):
        rest = info[match.end() :].strip()
        if match[1].lower() in _PYTHON_TAGS:
            # After a Python tag there may be code, or an attribute such as title="a.py", which is not taken.
            return match[1].lower(), rest if _is_code(rest) and not re.match(r"\w+=", rest) else ""
        if not (rest and _is_code(info)):
            return match[1].lower(), ""
    return "", info if _is_code(info) or info.startswith(("def ", "class ", "for ", "if ")) else ""


def _dedent(line: str, width: int) -> str:
    """Remove up to `width` leading blanks."""
    return line[min(width, len(line) - len(line.lstrip(" \t"))) :]


def _choose(blocks: list[_Block]) -> _Block | None:
    """Pick the last block tagged as Python, else the last untagged one that parses, else the last untagged
    one."""
    filled = [block for block in blocks if block.code.strip()]
    tagged = [block for block in filled if block.tag in _PYTHON_TAGS]
    if tagged:
        return tagged[-1]
    untagged = [block for block in filled if not block.tag]
    parsed = [block for block in untagged if _is_code(block.code)]
    if parsed:
        return parsed[-1]
    return untagged[-1] if untagged else None


def _bare_code(text: str) -> str | None:
    """Return the code of a reply without fences: all of it, or what follows the first line that begins like
    code."""
    text = text.strip("\n").rstrip()
    if _is_code(text):
        return text
    lines = text.split("\n")
    for start, line in enumerate(lines):
        if _CODE_START.match(line):
            # Prose may follow: drop whole paragraphs from the end until the rest is Python.
            ends = [n for n in range(start + 1, len(lines)) if not lines[n].strip()] + [len(lines)]
            for end in reversed(ends[-20:]):
                code = "\n".join(lines[start:end]).rstrip()
                if _is_code(code):
                    return code
            return None
    return None


def _is_code(text: str) -> bool:
    """Whether `text` is Python that does something: not just a word, a number or a string."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    inert = (ast.Constant, ast.Name, ast.Tuple, ast.UnaryOp, ast.BinOp)
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, inert)) for node in body)
