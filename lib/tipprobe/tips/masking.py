"""Taking code, tests and literal values out of a repair conversation before tips are drawn from it.

Who sees the solution writes tips that hold it.  What is left after masking is what was said *about* the
programs; what the statement itself says is no secret and stays.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

CODE, TESTS, VALUE = "[CODE]", "[TESTS]", "[VALUE]"

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)(`+)(?!`)([^\n]+?)(?<!`)\1(?!`)")
_NAME = r"[A-Za-z_]\w*"
#: What is code wherever it stands in prose.  ``number(s)``, ``e.g.`` and ``and/or`` are not.
_CODE_LIKE = re.compile(
    rf"""
    \blambda\s+[\w, ]*:[^.\n]*                                   # a lambda
  | (?:\.|\b){_NAME}(?:\.{_NAME})*\((?!e?s\))[^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)   # a call
  | \b(?!e\.g|i\.e){_NAME}\.{_NAME}\b(?!\.)                         # an attribute
  | \b{_NAME}(?:\[[^\]\n]*\])+                                   # a subscript
  | \b[A-Za-z]\w*_\w+\b                                          # a name with an underscore
  | (?<![\w\])])[\w\])]+\s*(?:==|!=|<=|>=|\*\*|//|\+=|-=|\*=|:=|->|%)\s*[\w\[(-]+   # other operators
  | \b{_NAME}\s*[<>=]\s*-?[\w\[(]+                                 # a comparison or an assignment
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)"
_LITERALS = re.compile(rf"{_NUMBER}|\b(?:True|False|None)\b|\[\s*\]|\(\s*\)|\{{\s*\}}")
_LIST = re.compile(
    rf"[\[({{]\s*{re.escape(VALUE)}(?:\s*[,:]?\s*{re.escape(VALUE)})*\s*[\])}}]"
    rf"|{re.escape(VALUE)}(?:\s*,?\s*{re.escape(VALUE)})+"
)
_ASSERTS = re.compile(r"^[ \t]*(?:>>>|assert\b).*$", re.MULTILINE)
#: What a parser makes of words, values and lists of them: "zero or one", "order is free".
_PROSE = (
    *(ast.Module, ast.Expr, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BoolOp, ast.And, ast.Or, ast.IfExp),
    *(ast.Compare, ast.Is, ast.IsNot, ast.In, ast.NotIn),
)


def mask_text(text: str, statement: str = "") -> str:
    """Return a text of the conversation with placeholders for code, tests and literal values.

    Args:
        text: what somebody wrote about a program.
        statement: the problem's statement; quotations from it stay.
    """
    text = _FENCED.sub(CODE, text)
    text = _ASSERTS.sub(TESTS, text)
    text = "\n".join(_indent_of(line) + CODE if is_code(line) else line for line in text.split("\n"))
    text = _INLINE.sub(CODE, text)
    text = _CODE_LIKE.sub(CODE, text)
    text = _QUOTED.sub(lambda match: _quotation(match, statement), text)
    text = _LIST.sub(VALUE, _LITERALS.sub(VALUE, text))
    return _merged(text)


def code_fragments(text: str) -> list[str]:
    """Return what in a text is code: blocks, lines, inline code that is more than a name or a value.

    A name, with or without backticks, or a literal like `[]`, is no code.
    """
    found = [match[0] for match in _FENCED.finditer(text)]
    text = _FENCED.sub("\n", text)
    found += [line.strip() for line in text.split("\n") if is_code(line)]
    inline = [match[2].strip() for match in _INLINE.finditer(text)]
    found += [span for span in inline if _is_expression(span)]
    found += [match[0] for match in _CODE_LIKE.finditer(text.replace("`", ""))]
    return [fragment for fragment in dict.fromkeys(found) if not fragment.isidentifier()]


def is_code(line: str) -> bool:
    """Return whether a line alone is a Python statement that does something."""
    line = line.strip().rstrip(":")
    for source in (line, f"{line}: pass"):
        tree = parsed(source)
        if tree is not None and tree.body:
            match tree.body[0]:
                case ast.Expr():
                    return _is_expression(line)
                case ast.Pass() | ast.AnnAssign(value=None):  # "Note: zeros" is an annotation
                    return False
            return True
    return False


def _is_expression(text: str) -> bool:
    """Return whether a text parses and computes something: more than names, literals and words."""
    tree = parsed(text)
    return tree is not None and not all(isinstance(node, _PROSE) for node in ast.walk(tree))


def parsed(source: str) -> ast.Module | None:
    """Return what a text is as Python, indented as it may be; None if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _quotation(match: re.Match[str], statement: str) -> str:
    said = next(group for group in match.groups() if group is not None)
    return match[0] if said.casefold().strip(" .,") in statement.casefold() else VALUE


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _merged(text: str) -> str:
    """Return the text with neighbouring equal placeholders made one."""
    for mark in (CODE, TESTS, VALUE):
        text = re.sub(rf"{re.escape(mark)}(?:[\s,;]*{re.escape(mark)})+", mark, text)
    return text
