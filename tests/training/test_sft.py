"""Fine-tuning a proposer: what is learnt, what is dropped, and that a rerun is identical."""

import json

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.load import load_model
from tipprobe.models.transformers_sampler import encode_prompt
from tipprobe.problems.schema import read_jsonl
from tipprobe.prompts import tip_request_prompt
from tipprobe.training import runs as runs_module
from tipprobe.training.sft import IGNORED, WARMUP, TipTuning, fine_tune, rate_share, tip_rows, tip_trainer

TIPS = ["Ties go to the first.", "Empty input gives 0.", "Count from one.", "The last one stays."]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def pairs(problems):
    return list(zip(problems, TIPS, strict=True))


@pytest.fixture
def config(tmp_path, tiny_model_folder):
    return TipTuning(
        model=str(tiny_model_folder),
        out=str(tmp_path / "out"),
        tip_style="short",
        epochs=2,
        learning_rate=1e-3,
        batch_size=2,
        micro_batch=8,
        max_tokens=256,
        max_grad_norm=1.0,
        seed=0,
        device="cpu",
    )


def changed(config, **fields):
    return TipTuning(**(vars(config) | fields))


def weights(folder):
    return {k: v.tolist() for k, v in load_file(folder / "checkpoint" / "model.safetensors").items()}


def test_only_the_tip_and_its_end_are_learnt(config, pairs, tiny_model_folder):
    """Looked at in the very batches that the training loop gets."""
    model, tokenizer = load_model(str(tiny_model_folder), "cpu")
    rows, dropped = tip_rows(pairs, tokenizer, config.max_tokens)
    assert not dropped
    trainer = tip_trainer(config, model, tokenizer, rows)
    seen = []
    for batch in trainer.get_train_dataloader():
        for ids, labels, mask in zip(
            batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True
        ):
            learnt = labels != IGNORED
            start = int(learnt.int().argmax())
            length = int(mask.sum())
            assert learnt[start:length].all() and not learnt[length:].any() and not learnt[:start].any()
            assert torch.equal(ids[start:length], labels[start:length])
            assert ids[length - 1] == tokenizer.eos_token_id
            seen.append((ids[:start].tolist(), tokenizer.decode(ids[start : length - 1])))
    expected = [(list(encode_prompt(tokenizer, tip_request_prompt(p))), tip) for p, tip in pairs]
    assert sorted(seen) == sorted(expected)


def test_the_end_token_pulls_on_the_weights(config, pairs, tiny_model_folder):
    """The loss of the training loop is the mean over tip and end tokens, computed here from full logits."""
    model, tokenizer = load_model(str(tiny_model_folder), "cpu")
    rows, _ = tip_rows(pairs, tokenizer, config.max_tokens)
    trainer = tip_trainer(config, model, tokenizer, rows)
    batch = next(iter(trainer.get_train_dataloader()))
    n = (batch["labels"] != IGNORED).sum()
    found = trainer.compute_loss(model, dict(batch), num_items_in_batch=n).item()
    total = 0.0
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        logp = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)
        chosen = labels[1:] != IGNORED
        total -= logp[chosen].gather(1, labels[1:][chosen][:, None]).sum().item()
    assert found == pytest.approx(total / n.item(), rel=1e-4)


def test_rows_that_are_too_long_are_dropped_and_counted(config, pairs, tiny_model_folder):
    _, tokenizer = load_model(str(tiny_model_folder), "cpu")
    whole, _ = tip_rows(pairs, tokenizer, 1000)
    longest = max(len(row["input_ids"]) for row in whole)
    rows, dropped = tip_rows(pairs, tokenizer, longest - 1)
    assert [row["problem_id"] for row in rows] == [p.id for p, _ in pairs if p.id not in dropped]
    assert dropped and all(f"> {longest - 1}" in reason for reason in dropped.values())
    assert {len(r["input_ids"]) for r in rows} == {len(r["input_ids"]) for r in whole} - {longest}
    folder = fine_tune(changed(config, max_tokens=longest - 1), pairs)
    assert json.loads((folder / "dropped.json").read_text()) == dropped
    with pytest.raises(DataError, match="every one of the 4 tips"):
        fine_tune(changed(config, max_tokens=20), pairs)


def test_a_run_is_complete_repeats_itself_and_learns(config, pairs, tmp_path):
    calls = []
    folder = fine_tune(
        changed(config, epochs=30, learning_rate=5e-3), pairs, lambda *args: calls.append(args[:2])
    )
    assert calls[-1] == (60, 60)
    log = pd.read_csv(folder / "log.csv")
    assert log["update"].tolist() == list(range(1, 61))
    assert log["loss"].iloc[-1] < 0.7 * log["loss"].iloc[0]
    assert not (folder / "state").exists()
    assert [row["learnt"] for row in read_jsonl(folder / "rows.jsonl")] == [f"{tip}<|end|>" for tip in TIPS]
    again = fine_tune(changed(config, epochs=30, learning_rate=5e-3, out=str(tmp_path / "again")), pairs)
    assert weights(again) == weights(folder)
    for name in ("log.csv", "rows.jsonl", "dropped.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    other = fine_tune(
        changed(config, epochs=30, learning_rate=5e-3, out=str(tmp_path / "other"), seed=1), pairs
    )
    assert weights(other) != weights(folder)


@pytest.mark.parametrize("updates", [1, 2, 33, 34, 200])
def test_no_update_has_a_learning_rate_of_zero(updates):
    shares = [rate_share(update, updates) for update in range(updates)]
    assert min(shares) > 0 and max(shares) == 1
    peak = shares.index(1)
    assert peak == int(WARMUP * updates)
    assert shares[:peak] == sorted(shares[:peak]) and shares[peak:] == sorted(shares[peak:], reverse=True)


def test_a_run_of_one_update_moves_the_weights(config, pairs, tiny_model_folder):
    folder = fine_tune(changed(config, epochs=1), pairs[:2])
    log = pd.read_csv(folder / "log.csv")
    assert log["learning_rate"].tolist() == [config.learning_rate]
    before = load_file(tiny_model_folder / "model.safetensors")
    assert any(before[name].tolist() != value for name, value in weights(folder).items())


def test_the_training_loop_follows_the_schedule(config, pairs):
    log = pd.read_csv(fine_tune(changed(config, epochs=20), pairs) / "log.csv")
    expected = [config.learning_rate * rate_share(update, 40) for update in range(40)]
    assert log["learning_rate"].tolist() == pytest.approx(expected)


def test_a_finished_run_is_kept_and_other_tips_replace_it(config, pairs):
    folder = fine_tune(config, pairs)
    before, stamp = weights(folder), (folder / "done.json").stat().st_mtime_ns
    assert fine_tune(config, pairs) == folder
    assert (folder / "done.json").stat().st_mtime_ns == stamp
    fine_tune(config, pairs[:2])
    assert weights(folder) != before


def test_a_killed_run_starts_again_and_ends_the_same(config, pairs, tmp_path, monkeypatch):
    whole = fine_tune(changed(config, out=str(tmp_path / "whole")), pairs)
    original = runs_module.write_json

    def dying(path, record):
        if path.name == "done.json":
            raise KeyboardInterrupt
        original(path, record)

    with monkeypatch.context() as patch:
        patch.setattr(runs_module, "write_json", dying)
        with pytest.raises(KeyboardInterrupt):
            fine_tune(config, pairs)
    calls = []
    folder = fine_tune(config, pairs, lambda *args: calls.append(args[0]))
    assert calls == [1, 2, 3, 4]
    assert weights(folder) == weights(whole)


def test_passes_do_not_change_the_result_much(config, pairs, tmp_path):
    folder = fine_tune(config, pairs)
    split = fine_tune(changed(config, out=str(tmp_path / "split"), micro_batch=1), pairs)
    for name, value in weights(folder).items():
        assert torch.allclose(torch.tensor(value), torch.tensor(weights(split)[name]), atol=1e-4)


def test_nothing_to_learn_and_numbered_gpus_are_refused(config, pairs, tiny_model):
    with pytest.raises(DataError, match="no tip to learn from"):
        fine_tune(config, [])
    with pytest.raises(ParameterError, match="CUDA_VISIBLE_DEVICES"):
        tip_trainer(changed(config, device="cuda:1"), *tiny_model, [])
