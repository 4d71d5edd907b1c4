"""The trainer's gradient against plain autograd, and the schedule around it."""

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tipprobe.errors import DataError
from tipprobe.probes import mutation_probes, read_probe_sets
from tipprobe.problems.schema import read_jsonl
from tipprobe.training.config import AdaptConfig
from tipprobe.training.trainer import EpochSampler, ProbePolicyTrainer, unusable_problems

TEXTS = ["print(1)", "print(2) # longer", "x", "print(input())", "no", "print(x)\n", "input(", "1 or 2"]
ADVANTAGES = [np.array([1.2, -0.4, 0.3, -1.1]), np.array([0.7, 0.7, -1.5, 0.1])]
KEEP = [np.array([False, True, False, True]), np.array([False, True, True, False])]


@dataclass
class Rows:
    """A hand-made rollout of two groups of four."""

    prompts: list
    replies: list
    weights: list


@pytest.fixture
def make(toy, toy_coder, tmp_path, sandbox, problems):
    """Return a function that builds a trainer; fields of the toy config can be changed."""

    def build(**changes) -> ProbePolicyTrainer:
        config = AdaptConfig(**({"method": "erpo"} | toy | changes))
        config.folder.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        model, tokenizer = copy.deepcopy(toy_coder[0]), toy_coder[1]
        sets = read_probe_sets(tmp_path / "probes.jsonl")
        trainer = ProbePolicyTrainer(config, model, tokenizer, problems, sets, sandbox, config.folder)
        trainer.current_gradient_accumulation_steps = config.micro_batches  # the training loop sets both
        trainer.model.train()
        return trainer

    return build


def rows(trainer, texts=TEXTS, keep=KEEP) -> Rows:
    tokenizer = trainer.processing_class
    replies = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]
    prompts = [trainer.prompt_ids[i] for i in (0, 3) for _ in range(4)]
    return Rows(prompts, replies, list(zip(ADVANTAGES, keep, strict=True)))


def gradients(trainer, batch: Rows) -> list[torch.Tensor]:
    """Return the trainer's flat gradient for each update; weights move a little after the rollout."""
    windows = trainer._make_windows(batch.prompts, batch.replies, batch.weights)
    nudge(trainer.model)
    found = []
    for window in windows:
        trainer.model.zero_grad()
        trainer._open_window(window)
        for inputs in window.passes:
            trainer._compute_loss(trainer.model, inputs).backward()
        found.append(flat_gradient(trainer.model))
    return found


def nudge(model) -> None:
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)


def flat_gradient(model) -> torch.Tensor:
    return torch.cat(
        [torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )


def token_statistics(model, prompt, reply, temperature=1.0):
    """Log-probabilities and entropies of one reply, from full logits."""
    ids = torch.tensor([prompt + reply])
    logp = (model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
    return logp.gather(1, torch.tensor(reply)[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def expected_gradient(trainer, initial, batch: Rows, chosen: list[int], old: bool) -> torch.Tensor:
    """Return the gradient of the objective as it is written down, for the rows of one update."""
    config, model = trainer.adapt, trainer.model
    advantages, keep = np.concatenate(ADVANTAGES), np.concatenate([k for _, k in batch.weights])
    if config.masked_rows == "drop":
        chosen = [r for r in chosen if keep[r]]
    policy, divergence, entropy, n_policy, n_all = 0.0, 0.0, 0.0, 0, 0
    for r in chosen:
        logp, h = token_statistics(model, batch.prompts[r], batch.replies[r], config.temperature)
        with torch.no_grad():
            start, _ = token_statistics(initial, batch.prompts[r], batch.replies[r], config.temperature)
        n_all += len(logp)
        entropy = entropy + h.sum()
        gap = start - logp
        divergence = divergence + (gap.exp() - gap - 1).sum()
        if not keep[r]:
            continue
        n_policy += len(logp)
        a = advantages[r]
        ratio = (logp - (start if old else logp.detach())).exp()
        surrogate = torch.min(ratio * a, ratio.clamp(1 - config.clip_ratio, 1 + config.clip_ratio) * a)
        if a < 0:
            surrogate = surrogate.clamp(min=config.dual_clip * a)
        policy = policy - surrogate.sum()
    n = n_policy if config.denominator == "retained" else n_all
    loss = policy / max(n, 1) + config.kl_coef * divergence / n_all
    if trainer.method.ceiling:
        loss = loss + config.entropy_coef * torch.relu(entropy / n_all - config.entropy_ceiling) ** 2
    model.zero_grad()
    loss.backward()
    return flat_gradient(model)


def window_rows(trainer, batch: Rows) -> list[list[int]]:
    """Return which rows each update is made of, found by their replies."""
    windows = trainer._make_windows(batch.prompts, batch.replies, batch.weights)
    result = []
    for window in windows:
        found = []
        for inputs in window.passes:
            for ids, mask in zip(inputs["completion_ids"], inputs["completion_mask"], strict=True):
                found.append(batch.replies.index(ids[mask.bool()].tolist()))
        result.append(sorted(found))
    return result


@pytest.mark.parametrize("denominator", ["retained", "all"])
@pytest.mark.parametrize("masked_rows", ["regularise", "drop"])
@pytest.mark.parametrize("method", ["erpo", "grpo_pcr"])
def test_gradient_is_that_of_the_written_objective(make, toy_coder, method, masked_rows, denominator):
    trainer = make(
        method=method,
        masked_rows=masked_rows,
        denominator=denominator,
        kl_coef=0.3,
        temperature=0.8,
        train_micro_batch=2,
    )
    batch = rows(trainer)
    for i, found in enumerate(gradients(trainer, batch)):
        groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
        options = [expected_gradient(trainer, toy_coder[0], batch, g, old=i > 0) for g in groups]
        gaps = [((found - e).norm() / e.norm()).item() for e in options]
        assert min(gaps) < 2e-4, gaps
        assert found.norm() > 0.01


def test_gradient_does_not_depend_on_the_split_into_passes(make):
    settings = {"minibatches_per_step": 1, "kl_coef": 0.1}
    found = [
        gradients(trainer, rows(trainer))[0]
        for trainer in (make(train_micro_batch=size, **settings) for size in (8, 4, 1))
    ]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-6)


def test_retained_rows_alone_give_the_masked_gradient(make):
    """Without the regularisers, masked rows may be left out, changed, or not even run."""
    settings = {"kl_coef": 0.0, "entropy_coef": 0.0, "minibatches_per_step": 1}
    trainer = make(**settings)
    masked = gradients(trainer, rows(trainer))[0]
    other = [t if k else "completely different" for t, k in zip(TEXTS, np.concatenate(KEEP), strict=True)]
    trainer = make(**settings)
    changed = gradients(trainer, rows(trainer, texts=other))[0]
    trainer = make(masked_rows="drop", **settings)
    dropped = gradients(trainer, rows(trainer))[0]
    torch.testing.assert_close(changed, masked, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(dropped, masked, rtol=1e-4, atol=1e-6)


def test_masked_rows_count_in_divergence_and_entropy(make):
    settings = {"kl_coef": 0.3, "minibatches_per_step": 1}
    found = []
    for masked_rows in ("regularise", "drop"):
        trainer = make(masked_rows=masked_rows, **settings)
        found.append(gradients(trainer, rows(trainer))[0])
    assert (found[0] - found[1]).norm() > 0.01 * found[0].norm()


def test_an_update_without_retained_rows_moves_only_by_the_regularisers(make):
    nothing = [np.zeros(4, dtype=bool)] * 2
    trainer = make(kl_coef=0.0, entropy_coef=0.0, minibatches_per_step=1)
    assert not gradients(trainer, rows(trainer, keep=nothing))[0].any()
    trainer = make(masked_rows="drop", kl_coef=0.5, minibatches_per_step=1)
    assert not gradients(trainer, rows(trainer, keep=nothing))[0].any()
    trainer = make(kl_coef=0.5, minibatches_per_step=1)
    assert gradients(trainer, rows(trainer, keep=nothing))[0].norm() > 0


def test_mini_batches_hold_whole_groups_in_changing_order(make):
    trainer = make()
    batch = rows(trainer)
    orders = set()
    for step in range(12):
        trainer.state.global_step = 2 * step
        parts = window_rows(trainer, batch)
        assert sorted(parts) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        orders.add(str(parts))
        assert window_rows(trainer, batch) == parts
    assert len(orders) == 2


def test_only_needed_log_probabilities_are_computed(make):
    trainer = make(kl_coef=0.0, minibatches_per_step=2)
    batch = rows(trainer)
    first, second = trainer._make_windows(batch.prompts, batch.replies, batch.weights)
    assert "old_per_token_logps" not in first.passes[0] and "old_per_token_logps" in second.passes[0]
    assert "ref_per_token_logps" not in first.passes[0] and trainer.ref_model is None
    trainer = make(kl_coef=0.1, minibatches_per_step=1)
    (window,) = trainer._make_windows(batch.prompts, batch.replies, batch.weights)
    assert "old_per_token_logps" not in window.passes[0] and "ref_per_token_logps" in window.passes[0]


def test_log_probabilities_are_those_of_the_full_distribution(make):
    trainer = make(temperature=0.7, top_p=0.5, top_k=3)
    batch = rows(trainer)
    tensors = trainer._tensors(batch.prompts, batch.replies)
    with torch.no_grad():
        logps, entropies = trainer._forward(trainer.model, tensors)
        for r, reply in enumerate(batch.replies):
            logp, h = token_statistics(trainer.model, batch.prompts[r], reply, 0.7)
            torch.testing.assert_close(logps[r, : len(reply)], logp, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(entropies[r, : len(reply)], h, rtol=1e-4, atol=1e-5)
            assert not logps[r, len(reply) :].any()


def test_warm_up_is_counted_in_rollout_steps(make):
    trainer = make(steps=3, warmup_steps=2, learning_rate=1e-4)
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "grad_norm" in entry]
    # Two rollout steps are four updates; the ramp starts at 0, so the first update only warms the optimiser.
    assert rates == pytest.approx([0, 2.5e-5, 5e-5, 7.5e-5, 1e-4, 1e-4], abs=1e-9)


def test_metrics_of_a_rollout_step(make):
    trainer = make(steps=2)
    trainer.train()
    first, second = read_jsonl(trainer.folder / "metrics.jsonl")
    assert (first["step"], second["step"]) == (1, 2)
    assert first["entropy_ceiling"] == 0.1 and first["entropy"] > 0.1 and first["entropy_penalty"] > 0
    assert first["kl"] > 0 and second["kl"] > 0  # a step's second update already differs from the base
    assert first["kept_share"] == 0.5
    assert {k for k in first if k.endswith("_s")} == {
        "step_s",
        "generation_s",
        "execution_s",
        "log_probs_s",
        "update_s",
    }
    records = list(read_jsonl(trainer.folder / "rollouts.jsonl"))
    assert [r["step"] for r in records] == [1] * 8 + [2] * 8
    assert math.isclose(first["reward"], np.mean([r["reward"] for r in records[:8]]))
    assert {r["prompt"] for r in records} <= {r["prompt"] for r in trainer.prompt_records()}


def test_relative_ceiling_is_fixed_by_the_first_rollout(make):
    trainer = make(steps=2, entropy_ceiling=0.9, entropy_ceiling_mode="relative")
    trainer.train()
    first, second = read_jsonl(trainer.folder / "metrics.jsonl")
    assert first["entropy_ceiling"] == second["entropy_ceiling"]
    assert first["entropy_ceiling"] == pytest.approx(0.9 * first["entropy"], rel=0.05)
    assert first["entropy_penalty"] > 0


def test_prompt_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        sampler = EpochSampler(range(8), mini_repeat_count=1, batch_size=4, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(0, 2) == order(0, 2)
    assert len({tuple(order(0, e)) for e in range(4)}) == 4
    assert order(0, 1) != order(1, 1)


def test_problems_that_cannot_be_trained_on(toy, toy_coder, problems):
    model, tokenizer = toy_coder
    sets = {s.problem_id: s for s in mutation_probes(problems, n=3, seed=0)}
    config = AdaptConfig(**({"method": "erpo"} | toy | {"max_tokens": 440}))
    reasons = unusable_problems(problems, sets, tokenizer, model, config)
    assert list(reasons) == [p.id for p in problems]
    assert "max_tokens 440 > context 512" in reasons["p0"]
    config = AdaptConfig(**({"method": "erpo"} | toy))
    empty = {**sets, "p1": replace(sets["p1"], probes=())}
    assert unusable_problems(problems, empty, tokenizer, model, config) == {"p1": "no probes"}
    other = {**sets, "p2": replace(sets["p2"], fingerprint="of another statement")}
    for wrong in (other, {key: value for key, value in sets.items() if key != "p2"}):
        with pytest.raises(DataError, match=r"'p2'.*run notebook 05 again"):
            unusable_problems(problems, wrong, tokenizer, model, config)
