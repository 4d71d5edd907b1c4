"""Everything that one policy optimisation run depends on, as numbers in one place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.types import Sampling
from tipprobe.sandbox import Limits
from tipprobe.training.methods import get_method
from tipprobe.training.objectives import Denominator


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """What every policy optimisation run has.  A rollout step samples, scores and updates once.

    Attributes:
        seed: of prompt order, sampling, tie breaks, mini-batches.
        model: checkpoint folder, hub id, GGUF file or name of an embedded coder.
        problems: JSONL file of the problem schema.
        out: folder in which the run folder is made.
        steps: rollout steps.
        prompts_per_step: problems a rollout step.
        group_size: G, replies a problem.
        minibatches_per_step: optimiser updates a rollout step, each on whole groups.
        learning_rate: of AdamW, constant after the warm-up.
        warmup_steps: rollout steps of linear warm-up.
        weight_decay: of AdamW.
        max_grad_norm: gradients are clipped to it.
        clip_ratio: of the policy ratio, both sides.
        dual_clip: largest ratio that counts where the advantage is negative.
        kl_coef: weight of the k3 divergence to the model the run starts from; 0 runs no reference passes.
        temperature, top_p, top_k, max_tokens: sampling of replies.  Log-probabilities in the loss are of
            the full distribution at this temperature, whatever top_p and top_k cut off.
        sampler_batch_size: replies generated together.
        train_micro_batch: replies a forward and backward pass; changes memory, not the gradient.
        time_limit_s: CPU seconds of one execution.
        memory_mb: address space of one execution, MiB.
        save_every: rollout steps between restart points.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: of forward passes; weights are float32 always.  ``auto`` is bfloat16 on a GPU.
        denominator: tokens that the policy term is averaged over, see `policy_denominator`.
        masked_rows: ``regularise``: rows without policy term still count in divergence and entropy, which are
            means over all response tokens.  ``drop``: they leave the batch before any forward pass, so
            both are means over the retained tokens; cheaper, another estimator, equal only where neither
            term acts.
    """

    seed: int
    model: str
    problems: str
    out: str
    steps: int
    prompts_per_step: int
    group_size: int
    minibatches_per_step: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    max_grad_norm: float
    clip_ratio: float
    dual_clip: float
    kl_coef: float
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    sampler_batch_size: int
    train_micro_batch: int
    time_limit_s: float
    memory_mb: int
    save_every: int
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    denominator: Denominator = "retained"
    masked_rows: Literal["regularise", "drop"] = "regularise"

    #: Fields that say where or how fast a run happens, not what it computes.
    NOT_IDENTITY: ClassVar[tuple[str, ...]] = ("problems", "out", "device", "model", "save_every")
    #: Fields that name files; their contents are part of the identity.
    FILES: ClassVar[tuple[str, ...]] = ("problems",)

    def __post_init__(self) -> None:
        """Check what would otherwise fail late.

        Raises:
            ParameterError: a count is below 1, or sizes do not divide.
        """
        counts = ("steps", "prompts_per_step", "minibatches_per_step", "max_tokens", "train_micro_batch")
        for name in (*counts, "save_every"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.group_size < 2:
            raise ParameterError(f"group_size must be at least 2 to compare replies, got {self.group_size}")
        if self.prompts_per_step % self.minibatches_per_step:
            raise ParameterError(
                f"prompts_per_step ({self.prompts_per_step}) must be a multiple of minibatches_per_step "
                f"({self.minibatches_per_step}): a mini-batch holds whole groups"
            )
        if self.temperature <= 0:
            raise ParameterError(f"temperature must be above 0 for rollouts, got {self.temperature}")

    @property
    def name(self) -> str:
        """Name of the run and of its folder."""
        raise NotImplementedError

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out) / self.name

    @property
    def checkpoint(self) -> Path:
        """Where the final weights are."""
        return self.folder / "checkpoint"

    @property
    def limits(self) -> Limits:
        """Limits of one execution."""
        return Limits(cpu_s=self.time_limit_s, memory_mb=self.memory_mb)

    @property
    def sampling(self) -> Sampling:
        """How replies are drawn; the seed is set for each step by the trainer."""
        return Sampling(self.temperature, self.top_p, self.top_k, self.max_tokens)

    @property
    def rows_per_minibatch(self) -> int:
        """Replies behind one optimiser update."""
        return self.prompts_per_step // self.minibatches_per_step * self.group_size

    @property
    def micro_batches(self) -> int:
        """Passes an update: the fewest that split it evenly and fit `train_micro_batch`."""
        rows = self.rows_per_minibatch
        return next(k for k in range(1, rows + 1) if rows % k == 0 and rows // k <= self.train_micro_batch)

    def identity(self) -> dict[str, Any]:
        """Return what decides the run's result: parameters, and hashes of the model and of input files.

        Raises:
            DataError: the model or a file is missing.
        """
        from tipprobe.models.load import model_revision

        record = {k: v for k, v in asdict(self).items() if k not in self.NOT_IDENTITY}
        return {
            **record,
            "model_revision": model_revision(self.model),
            **{f"{name}_sha256": file_hash(getattr(self, name)) for name in self.FILES},
        }


@dataclass(frozen=True, kw_only=True)
class AdaptConfig(PolicyConfig):
    """Adaptation with one method and one seed; see `PolicyConfig` for the fields that it shares.

    Attributes:
        method: key of `tipprobe.training.methods.METHODS`, not ``base``.
        probes: frozen probe file.
        entropy_coef: lambda_H, weight of the ceiling penalty (methods with a ceiling).
        entropy_ceiling: H_ceil, in nats or as a multiple of the initial entropy.
        entropy_ceiling_mode: which of the two.
        mask_ratio: share of each group that the rank mask masks.
        negative_only: also mask kept rows with a positive advantage (ablation).
    """

    method: str
    probes: str
    entropy_coef: float
    entropy_ceiling: float
    entropy_ceiling_mode: Literal["absolute", "relative"]
    mask_ratio: float
    negative_only: bool

    NOT_IDENTITY: ClassVar[tuple[str, ...]] = (*PolicyConfig.NOT_IDENTITY, "probes")
    FILES: ClassVar[tuple[str, ...]] = ("problems", "probes")

    def __post_init__(self) -> None:
        """Check what would otherwise fail late.

        Raises:
            ParameterError: a count is below 1, sizes do not divide, or the method is unknown or not trained.
        """
        if not get_method(self.method).trained:
            raise ParameterError(
                f"method {self.method!r} trains nothing; use `plan_runs`, which leaves it out"
            )
        super().__post_init__()

    @property
    def name(self) -> str:
        """Name of the run, ``<method>-seed<k>``, and of its folder."""
        return f"{self.method}-seed{self.seed}"


def plan_runs(methods: Sequence[str], seeds: Sequence[int], **shared: Any) -> list[AdaptConfig]:
    """Return one config for each trained method and seed, methods in order; ``base`` needs no run.

    Args:
        methods: keys of `METHODS`.
        seeds: seeds of each method.
        shared: the other fields of `AdaptConfig`.

    Raises:
        ParameterError: a method is unknown, or a field is unknown or out of range.
    """
    unknown = sorted(set(shared) - {f.name for f in fields(AdaptConfig)})
    if unknown:
        raise ParameterError(f"unknown field of AdaptConfig: {unknown[0]!r}")
    return [
        AdaptConfig(method=method, seed=seed, **shared)
        for method in methods
        if get_method(method).trained
        for seed in seeds
    ]


def identity_hash(identity: dict[str, Any]) -> str:
    """Return 16 hex digits that stand for `PolicyConfig.identity`."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def file_hash(path: str) -> str:
    """Return 16 hex digits of a file's SHA-256.

    Raises:
        DataError: there is no such file.
    """
    if not Path(path).is_file():
        raise DataError(f"no such file: {path}")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
