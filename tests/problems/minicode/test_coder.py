"""Corpus, tokenizer and recipe at toy scale; the estimate that guides the knobs."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tipprobe.problems.minicode import WorldConfig, split
from tipprobe.problems.minicode.corpus import (
    Mixture,
    draw_document,
    fast_tokenizer,
    make_tokens,
    render,
    train_tokenizer,
)
from tipprobe.problems.minicode.estimate import LEAST_GAIN, TARGETS, behaviour, estimate
from tipprobe.problems.minicode.train import Recipe, batches, parse_recipe, reply_loss, train
from tipprobe.problems.minicode.world import draw_deeds, draw_tip, sharpen, split_with_specs
from tipprobe.prompts import code_prompt

CONFIG, MIXTURE = WorldConfig(), Mixture()


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(CONFIG, MIXTURE, seed=0, n_documents=1500)


def test_chat_template_gives_the_documents_the_coder_is_trained_on(tokenizer):
    fast = fast_tokenizer(tokenizer)
    rng = random.Random(1)
    for _ in range(20):
        prompt, reply = draw_document(CONFIG, MIXTURE, rng)
        head, tail = render(prompt, reply)
        assert fast.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False) == head
        ids = fast(head)["input_ids"] + fast(tail)["input_ids"]
        assert fast.decode(ids) == head + tail
        assert fast.decode(ids, skip_special_tokens=True) == prompt[0]["content"] + reply


def test_tokens_do_not_depend_on_the_number_of_workers(tokenizer):
    alone = make_tokens(CONFIG, MIXTURE, tokenizer, 300, seed=2, workers=1)
    assert len(alone.ids) == 300
    again = make_tokens(CONFIG, MIXTURE, tokenizer, 300, seed=2, workers=2)
    assert np.array_equal(alone.ids, again.ids) and np.array_equal(alone.starts, again.starts)
    end = tokenizer.token_to_id("<|end|>")
    assert all(row[n - 1] == end for row, n in zip(alone.ids, alone.lengths, strict=True))


def test_batches_have_the_asked_for_number_and_no_repeats_in_an_epoch(tokenizer):
    tokens = make_tokens(CONFIG, MIXTURE, tokenizer, 256, seed=3, workers=1)
    found = list(batches(tokens, 32, 12, np.random.default_rng(0)))
    assert len(found) == 12
    assert len(np.unique(np.concatenate(found[:8]))) == 256


def test_tips_steer_the_corpus():
    rng = random.Random(4)
    problem, spec = next(ps for ps in split_with_specs("adaptation", 40) if ps[0].meta["underspecified"])
    place = problem.meta["ops"].index(problem.meta["tip_about"])
    for right in (True, False):
        tip = draw_tip(spec.steps[place], right, rng)
        deeds = [draw_deeds(spec, CONFIG, rng, tip)[place] for _ in range(300)]
        as_told = sum(op is spec.steps[place].op and wrong != right for op, _, wrong in deeds)
        assert as_told > 260


def test_reply_loss_counts_reply_tokens_only():
    """Changing a prompt token's label must not matter: uniform logits give log V whatever the prompt is."""
    from tipprobe.problems.minicode.train import new_model

    model = new_model("1m", 64, 0, 1)
    with torch.no_grad():
        model.model.embed_tokens.weight.zero_()  # tied: all logits are 0
    ids = torch.randint(2, 64, (2, 9))
    loss = reply_loss(model, ids, torch.tensor([3, 8]), torch.tensor([9, 9]))
    assert loss.item() == pytest.approx(np.log(64), abs=1e-6)


def test_recipe_trains_and_saves_a_loadable_checkpoint(tmp_path: Path, capsys):
    recipe, options = parse_recipe(
        ["--out", str(tmp_path / "coder"), "--steps", "6", "--batch", "8", "--documents", "200"]
        + ["--tokenizer-documents", "500", "--slip-hard", "0.5", "--world-seed", "9", "--device", "cpu"]
    )
    assert recipe.world.slip_hard == 0.5 and recipe.world.seed == 9 and recipe.size == "1m"
    folder = train(recipe, options.out, options.device, workers=1)
    model = AutoModelForCausalLM.from_pretrained(folder)
    fast = AutoTokenizer.from_pretrained(folder)
    assert model.config.hidden_size // model.config.num_attention_heads == 64
    record = json.loads((folder / "recipe.json").read_text())
    assert record["world"]["slip_hard"] == 0.5
    again, _ = parse_recipe(record["command"].split()[3:])
    assert again == recipe
    assert record["curve"][-1]["loss"] < record["curve"][0]["loss"]
    prompt = code_prompt(split("adaptation", 1)[0])
    inputs = fast.apply_chat_template(
        prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**inputs, max_new_tokens=4)
    assert out.shape[1] <= inputs["input_ids"].shape[1] + 4
    assert "Not done yet" in (folder / "README.md").read_text()
    assert "step 6/6" in capsys.readouterr().out


def test_default_recipe_is_what_the_command_line_gives(tmp_path: Path):
    recipe, _ = parse_recipe(["--out", str(tmp_path)])
    assert recipe == Recipe()


def test_sharpen_by_hand():
    assert sharpen(0.1, 1, 0.8) == 0.0  # the intended choice alone fills the nucleus
    assert sharpen(0.9, 1, 0.8) == 1.0
    assert sharpen(0.4, 1, 0.8) == pytest.approx(0.4)
    assert sharpen(0.5, 10, 0.8) == pytest.approx(0.3 / 0.8)  # 0.5, then six of ten times 0.05


def test_behaviour_by_hand():
    passed, pcr = np.array([[True, False], [False, False]]), np.array([[1.0, 1.0], [0.5, 0.2]])
    found = behaviour(passed, pcr)
    assert found["auc"].mean == pytest.approx(2.5 / 3)  # 2 pairs won, 1 tied, of 3
    assert (found["pass@1"].mean, found["pass@2"].mean) == (25.0, 50.0)
    assert (found["fail_at_pcr<=0.5"].mean, found["fail_at_pcr=1"].mean) == (100.0, 50.0)


def test_default_knobs_are_estimated_to_be_in_the_calibrated_region():
    for split_name in ("adaptation", "transfer"):
        found, tips = estimate(CONFIG, split=split_name)
        for name, (low, high) in TARGETS.items():
            assert low <= found[name].mean <= high, (split_name, name)
        assert tips["gain_tip"].mean >= LEAST_GAIN + 8
        assert tips["gain_wrong_tip"].mean < 0
