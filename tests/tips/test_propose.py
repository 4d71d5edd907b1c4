"""Reading tips out of replies."""

import pytest

from tipprobe.errors import ParameterError
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.prompts import tip_request_prompt
from tipprobe.tips.propose import Proposal, proposal_counts, propose_tips, read_tip


@pytest.mark.parametrize(
    ("reply", "tip", "reason"),
    [
        ("Zero counts.", "Zero counts.", "ok"),
        ("  Tip: zero counts.\n", "zero counts.", "ok"),
        ("**Tips:** zero counts.", "zero counts.", "ok"),
        ("Tipping points matter.", "Tipping points matter.", "ok"),
        ("", None, "empty"),
        (" Tip: ", None, "empty"),
        ("...", None, "empty"),
        ("<think>\nWhat of zero?\n</think>\n\nTip: zero counts.", "zero counts.", "ok"),
        ("What of zero?\n</think>\nZero counts.", "Zero counts.", "ok"),  # the prompt had opened it
        ("<think>What of zero?</think>\n", None, "empty"),
        ("<think>\nWhat of zero? It counts", None, "cut"),
    ],
)
def test_reading(reply, tip, reason):
    proposal = read_tip(Completion(reply, 3, "stop"))
    assert (proposal.tip, proposal.reason, proposal.reply) == (tip, reason, reply)


def test_every_reason_is_counted():
    proposals = [Proposal(None, reason, 0, "") for reason in ("no_code", "none found", "no_code", "cut")]
    counts = proposal_counts([proposals, [read_tip(Completion("Zero counts.", 3, "stop"))]])
    assert counts == {"ok": 1, "empty": 0, "cut": 1, "no_code": 2, "none found": 1}


def test_half_a_sentence_is_no_tip():
    assert read_tip(Completion("Zero is not", 3, "length")).reason == "cut"


def test_the_proposer_sees_the_statement_alone():
    seen = []

    class Writer:
        revision = "scripted"

        def sample(self, prompts, n, sampling, *, progress=None):
            seen.extend(prompt[0]["content"] for prompt in prompts)
            return [[Completion("Mind zero.", 3, "stop"), Completion("", 1, "stop")] for _ in prompts]

    problem = Problem("p", "Add {two} numbers.", reference="SECRET", meta={"tip": "SECRET"})
    proposals = propose_tips(Writer(), [problem], Sampling(), 2)
    assert proposal_counts(proposals) == {"ok": 1, "empty": 1, "cut": 0}
    propose_tips(Writer(), [problem], Sampling(), 2, style="mentor")
    assert all("Add {two} numbers." in text and "SECRET" not in text for text in seen) and seen[0] != seen[1]


def test_an_unknown_style_is_named():
    with pytest.raises(ParameterError, match=r"no style 'long'.*short, mentor"):
        tip_request_prompt(Problem("p", "Add."), "long")
