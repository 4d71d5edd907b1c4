"""Overlap between problems to learn from and problems to test on."""

import pytest

from tipprobe.errors import DataError, ParameterError
from tipprobe.problems.decontaminate import (
    check_tested,
    coder_note,
    find_overlaps,
    ngrams,
    overlap_table,
    read_dropped,
    read_evaluation_sets,
    shared_run,
    words_of,
    write_evaluation_sets,
)
from tipprobe.problems.load import load_problems
from tipprobe.problems.schema import Problem


def problem(name, statement):
    return Problem(name, statement)


def only(text, others, n=3, share=0.5):
    tested = {"test": [problem(f"e{i}", other) for i, other in enumerate(others)]}
    (overlap,) = find_overlaps([problem("p", text)], tested, n=n, share=share)
    return overlap


def test_words_forget_case_punctuation_and_compatible_characters():
    assert words_of("Read N integers;  ﬁnd the MAX (≥ 2²)!") == [
        "read",
        "n",
        "integers",
        "find",
        "the",
        "max",
        "22",
    ]
    assert words_of("") == []


def test_ngrams():
    assert ngrams(list("abcab"), 2) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert ngrams(["a", "b"], 5) == {("a", "b")}
    assert ngrams([], 5) == set()


def test_the_share_is_of_one_evaluation_problem_not_of_all_together():
    # Six words, four 3-grams: three stand in e0, one in e1.
    overlap = only("a b c d e f", ["x a b c d e", "c d e q"])
    assert (overlap.share, overlap.evaluation_set, overlap.evaluation_id) == (0.75, "test", "e0")
    assert overlap.dropped and not overlap.duplicate
    assert not only("a b c d e f", ["x a b c y", "q c d e r"], share=0.5).dropped


def test_the_share_at_the_threshold_is_dropped():
    assert only("a b c d", ["a b c x"], share=0.5).dropped
    assert not only("a b c d", ["a b c x"], share=0.51).dropped


def test_nothing_in_common():
    overlap = only("a b c d", ["d c b a"])
    assert (overlap.share, overlap.evaluation_id, overlap.dropped) == (0.0, "", False)
    assert only("a b c", []).share == 0.0


def test_a_duplicate_in_another_dress():
    overlap = only("Add the TWO numbers!", ["add the two   numbers"], share=1.0)
    assert overlap.duplicate and overlap.dropped and overlap.share == 1.0


def test_a_statement_quoted_whole_is_a_duplicate_however_long_the_rest():
    short = "read eight words and print them in reverse order"
    story = " ".join(f"w{i}" for i in range(200))
    overlap = only(f"{story} {short} {story}", ["something else", short], n=13)
    assert overlap.duplicate and overlap.evaluation_id == "e1" and overlap.share == 1.0
    assert not only(f"{story} add two numbers {story}", ["add two numbers"], n=13).duplicate
    assert not only("unwind the ribbon now", ["wind the ribbon"], n=13).duplicate


def test_short_statements_are_compared_by_their_own_length():
    assert only("add two numbers", ["please add two numbers now"], n=13).share == 1.0
    assert only("add two numbers", ["two"], n=13).share == 0.0
    assert only("", ["", "a"], n=13).share == 0.0


def test_a_few_words_inside_a_long_text_prove_nothing():
    story = " ".join(f"w{i}" for i in range(200))
    assert only(f"{story} add two numbers {story}", ["add two numbers"], n=13).share == 0.0


@pytest.mark.parametrize("place", [0, 11, 22])
def test_one_changed_word_does_not_hide_a_test_problem(place):
    tested = [f"t{i}" for i in range(23)]
    changed = [*tested[:place], "other", *tested[place + 1 :]]
    story = " ".join(f"w{i}" for i in range(200))
    for ours, theirs in (
        (f"{story} {' '.join(changed)} {story}", tested),
        (" ".join(changed), [story, *tested]),
    ):
        overlap = only(ours, [" ".join(theirs)], n=8)
        assert overlap.dropped and not overlap.duplicate
        # Sixteen runs of eight words, of which a change in the middle spoils eight.
        assert overlap.share == pytest.approx({0: 15, 11: 8, 22: 15}[place] / 16)


def test_a_short_test_statement_is_looked_for_in_longer_ones():
    short = "read ten words and print them in reverse order"  # nine words, fewer than an n-gram
    overlap = only(f"please {short} and stop after that with a line of your own", [short], n=13)
    assert overlap.share == 1.0 and overlap.dropped


def test_an_ngram_has_a_word():
    with pytest.raises(ParameterError, match="n = 0"):
        find_overlaps([], {}, n=0, share=0.5)


def test_the_table_begins_with_the_worst():
    tested = {"test": [problem("e", "a b c d e")]}
    overlaps = find_overlaps(
        [problem("low", "x y z a b c"), problem("high", "a b c d")], tested, n=3, share=0.5
    )
    table = overlap_table(overlaps)
    assert list(table["problem_id"]) == ["high", "low"] and list(table["dropped"]) == [True, False]
    assert list(overlap_table([]).columns) == list(table.columns)


def test_the_longest_shared_run():
    assert shared_run(problem("a", "one two three four"), problem("b", "zero two three five")) == [
        "two",
        "three",
    ]
    assert shared_run(problem("a", "x"), problem("b", "y")) == []


def test_the_embedded_worlds_sentences_overlap_but_its_sequences_of_operations_do_not():
    learnt = load_problems("minicode:sft", limit=64)
    tested = {
        name: load_problems(f"minicode:{name}", limit=32) for name in ("adaptation", "heldout", "transfer")
    }
    overlaps = find_overlaps(learnt, tested, n=8, share=1.0)
    assert any(overlap.share > 0.2 for overlap in overlaps)
    assert not any(overlap.duplicate for overlap in overlaps)
    sequences = {tuple(p.meta["ops"]) for group in tested.values() for p in group}
    assert not sequences & {tuple(p.meta["ops"]) for p in learnt}


def test_what_was_dropped_is_read_back(tmp_path):
    tested = {"test": [problem("e", "a b c d e")]}
    learnt = [problem("007", "x y z u v w"), problem("high", "a b c d")]
    path = tmp_path / "contamination.csv"
    for chosen, dropped in ((learnt, {"high"}), (learnt[:1], set()), ([], set())):
        overlap_table(find_overlaps(chosen, tested, n=3, share=0.5)).to_csv(path, index=False)
        assert read_dropped(path) == dropped
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no table of overlaps"):
        read_dropped(path)
    with pytest.raises(DataError, match="no table of overlaps"):
        read_dropped(tmp_path / "nowhere.csv")


def test_only_what_was_compared_and_not_learnt_from_may_be_tested_on(tmp_path):
    path = tmp_path / "evaluation_sets.json"
    tested = [problem("t0", "Add two numbers."), problem("t1", "Print a word.")]
    write_evaluation_sets(path, {"problems": tested[:1], "tip_problems": tested}, ["m1", "m0"], "sha256:c")
    check_tested(path, tested)
    check_tested(path, tested[1:])
    check_tested(path, [problem("t0", "Add two   NUMBERS")])  # the words are what was compared
    refused = {
        "1 of the 2 tip_problems are problems that tips were learnt from, such as 'm0'": problem("m0", "x"),
        "1 of the 2 tip_problems, such as 'new', are in no set that 01_data_mining": problem("new", "x"),
        "1 of the 2 tip_problems, such as 't1', are in no set": problem("t1", "Print another word."),
    }
    for message, other in refused.items():
        with pytest.raises(DataError, match=f"{message}.*run the series again from 01_data_mining"):
            check_tested(path, [tested[0], other])


def test_a_digest_of_every_set_and_the_coder_are_kept(tmp_path):
    path = tmp_path / "evaluation_sets.json"
    tested = [problem("t0", "Add two numbers."), problem("t1", "Print a word.")]
    digests = []
    for group in (tested, tested[::-1], tested[:1], [tested[0], problem("t1", "Print no word.")]):
        write_evaluation_sets(path, {"tip_problems": group}, [], "sha256:c")
        digests.append(read_evaluation_sets(path)["sets"]["tip_problems"]["digest"])
    assert digests[0] == digests[1] and len(set(digests)) == 3
    assert coder_note(path, "sha256:c") == ""
    assert "learnt with another coder (sha256:c)" in coder_note(path, "sha256:d")
    path.write_text("{}")
    with pytest.raises(DataError, match="no record of evaluation sets; run 01_data_mining"):
        check_tested(path, tested)


def test_what_the_embedded_world_is_learnt_from_is_refused_as_a_test(tmp_path):
    learnt = load_problems("minicode:sft", limit=16)
    path = tmp_path / "evaluation_sets.json"
    tested = load_problems("minicode:heldout", limit=8)
    write_evaluation_sets(path, {"tip_problems": tested}, [p.id for p in learnt], "sha256:c")
    check_tested(path, tested)
    with pytest.raises(DataError, match="16 of the 16 tip_problems are problems that tips were learnt from"):
        check_tested(path, learnt)
