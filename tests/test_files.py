"""What is left of JSON files after a kill."""

import pytest

from tipprobe.files import append_jsonl, complete_records, read_json, write_json
from tipprobe.problems.schema import read_jsonl, write_jsonl


def test_a_growing_file_is_read_up_to_its_torn_line(tmp_path):
    path = tmp_path / "log.jsonl"
    assert complete_records(path) == []
    append_jsonl(path, [{"text": "a\u2028b"}, {"n": 2}])
    assert complete_records(path) == [{"text": "a\u2028b"}, {"n": 2}]
    whole = path.read_bytes()
    for cut in range(1, len(b'{"n": 2}\n') + 1):
        path.write_bytes(whole[:-cut])
        assert complete_records(path) == [{"text": "a\u2028b"}]
    path.write_bytes(whole[:12])  # in the middle of a character
    assert complete_records(path) == []
    path.write_bytes(b"\x00\x00\n" + whole)  # what a file system may leave after a power cut
    assert complete_records(path) == []


@pytest.mark.parametrize("torn", ["", '{"a": 1', "[1]"])
def test_an_object_is_read_whole_or_not_at_all(tmp_path, torn):
    path = tmp_path / "done.json"
    assert read_json(path) is None
    write_json(path, {"a": "é"})
    assert read_json(path) == {"a": "é"}
    path.write_text(torn, encoding="utf-8")
    assert read_json(path) is None


def test_half_a_character_is_kept_and_changes_no_other_line(tmp_path):
    whole, half = {"text": "é\U0001f600"}, {"text": "é\ud83d"}
    path = tmp_path / "log.jsonl"
    append_jsonl(path, [whole, half])
    assert complete_records(path) == [whole, half]
    assert path.read_text(encoding="utf-8").splitlines()[0] == '{"text": "é\U0001f600"}'
    write_jsonl(path, [half, whole])
    assert list(read_jsonl(path)) == [half, whole]
    write_json(tmp_path / "one.json", half)
    assert read_json(tmp_path / "one.json") == half
