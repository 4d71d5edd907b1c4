import pytest

from tipprobe.models.types import Completion
from tipprobe.sandbox import Extraction, extract_code, program_of


@pytest.mark.parametrize(
    ("reply", "code", "reason"),
    [
        ("Sure.\n```python\nx = 1\n```\nDone.", "x = 1", "fenced"),
        ("```py\nold()\n```\nBetter:\n```Python3 \nnew()\n```", "new()", "fenced"),
        ("```python\nf()\n```\n```\n4 5\n```", "f()", "fenced"),
        ("```\nf()\n```\n```\n4 5\n```", "f()", "fenced"),
        ("```json\n{}\n```", None, "no_code"),
        ("~~~\nf()\n~~~", "f()", "fenced"),
        ("````python\na = '''\n```\n'''\n````", "a = '''\n```\n'''", "fenced"),
        ("- like so\n  ```python\n  for i in x:\n      y()\n  ```", "for i in x:\n    y()", "fenced"),
        ("```python\n    return 0\n```", "    return 0", "fenced"),
        ("```python f(1)```", "f(1)", "fenced"),
        ("```def g(): pass\n```", "def g(): pass", "fenced"),
        ('```python title="a.py"\nf()\n```', "f()", "fenced"),
        ("```python\r\nf()\r\n```", "f()", "fenced"),
        ("\x1b[1m```python\nf()\n```\x1b[0m", "f()", "fenced"),
        ("```python\ndef f():\n    return", "def f():\n    return", "unclosed_fence"),
        ("def f():\n    return 3\n```", "def f():\n    return 3", "fenced"),
        ("import sys\nprint(sys.argv)\n", "import sys\nprint(sys.argv)", "bare"),
        ("Here it is:\n\ndef f():\n    return 1\n\nThat is all of it.", "def f():\n    return 1", "bare"),
        ("<think>\n```python\ndraft()\n```\n</think>\n```python\nfinal()\n```", "final()", "fenced"),
        ("so I would\n</think>\n```python\nfinal()\n```", "final()", "fenced"),
        ("<think>\n```python\ndraft()\n```", None, "unclosed_reasoning"),
        ("I am sorry.", None, "no_code"),
        ("Sorry", None, "no_code"),
        ("42", None, "no_code"),
        (" \n ", None, "empty"),
        ("```", None, "no_code"),
    ],
)
def test_extraction(reply, code, reason):
    got = extract_code(reply)
    assert (got.code, got.reason) == (code, reason)


def test_long_replies_are_read_in_one_pass():
    # Reading the rest of the text again for every line, or for every tag, would take hours.
    assert extract_code("text here\n" * 200_000 + "```python\nx = 1\n```").code == "x = 1"
    assert extract_code("<think>" * 200_000).reason == "unclosed_reasoning"
    assert extract_code("<think>a<thinking>b</think>\n```python\nx = 1\n```").code == "x = 1"
    assert extract_code("<think>a</think><think>b</think>```python\nx = 1\n```").code == "x = 1"


def test_replies_that_were_cut_off_give_no_program():
    text = "```python\nx = 1\n```\nand then"
    assert program_of(Completion(text, 9, "stop")) == Extraction("x = 1", "fenced")
    assert program_of(Completion(text, 9, "length")) == Extraction(None, "truncated")
