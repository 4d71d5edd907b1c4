"""Probe sets from three sources: example inputs, inputs a model writes from the statement, mutated examples.

The model writes one input after another: in round j every problem is prompted once more, shown the inputs
it has so far, and asked for a valid one that differs.  All problems of a round go through one sampler
call.  Replies are appended to a log as they come, so that an interrupted generation goes on where it
stopped and dropped replies can be looked at; the finished sets are frozen by `write_probe_sets` and reused
at every training step.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from tipprobe.errors import ParameterError
from tipprobe.files import append_jsonl, complete_records
from tipprobe.models.open import sample_fitting
from tipprobe.models.types import Prompt, Sampler, Sampling
from tipprobe.probes.mutate import mutate_examples
from tipprobe.probes.rng import keyed_seed
from tipprobe.probes.types import Probe, ProbeSet, Source, problem_fingerprint
from tipprobe.probes.validity import extract_input, normalise, static_reason
from tipprobe.problems.schema import Problem, write_jsonl
from tipprobe.prompts import probe_prompt, prompt_hashes

#: Longest probe in characters (the paper's cap).
MAX_CHARS = 5000
COUNTS = (
    "requested",
    "too_long_prompt",
    "generated",
    "malformed",
    "too_long",
    "duplicate",
    "kept",
    "examples",
)
#: Finish reason, in the log of replies, of a request that was not made because its prompt does not fit.
TOO_LONG_PROMPT = "too_long_prompt"


def generate_probes(
    problems: Sequence[Problem],
    sampler: Sampler,
    *,
    n: int,
    sampling: Sampling,
    max_chars: int = MAX_CHARS,
    progress: Callable[[int, int], None] | None = None,
    path: Path | None = None,
) -> list[ProbeSet]:
    """Let a model write `n` inputs for each problem; return them joined with the example inputs.

    A reply that is cut off, malformed, too long or known already is dropped and counted, not asked for again.
    Where a prompt does not fit the model's context nothing is asked, which is counted too; example inputs
    stay.

    Args:
        problems: statements, examples' inputs and signatures are used, outputs and hidden tests are not.
        sampler: the base model.
        n: rounds, so at most `n` new probes a problem.
        sampling: how replies are drawn; round j uses a seed made from ``sampling.seed`` and j.
        max_chars: longest probe.
        progress: called with the number of rounds done and `n`.
        path: log of raw replies.  Rounds found there are not sampled again if they come from the same model,
            prompts, sampling and problems; a log of other origin is replaced.

    Returns:
        One set a problem, in order.
    """
    if n < 0:
        raise ParameterError(f"the number of probes must not be negative, got {n}")
    builders = [_Builder(problem, max_chars) for problem in problems]
    key = {**probe_header(sampler, sampling), "problems": _fingerprint(problems)}
    done = _replayed_rounds(path, key, len(problems)) if path else []
    for j in range(n):
        if j < len(done):
            replies = done[j]
        else:
            prompts = [probe_prompt(b.problem, b.written) for b in builders]
            seeded = replace(sampling, seed=keyed_seed("probe", sampling.seed, j))
            replies = _ask(sampler, prompts, seeded)
            if path:
                rows = zip(problems, replies, strict=True)
                append_jsonl(path, ({"round": j, "problem_id": p.id, **reply} for p, reply in rows))
        for builder, reply in zip(builders, replies, strict=True):
            builder.add_reply(reply["text"], reply["finish_reason"])
        if progress:
            progress(j + 1, n)
    return [builder.build() for builder in builders]


def mutation_probes(
    problems: Sequence[Problem], *, n: int, seed: int, max_chars: int = MAX_CHARS
) -> list[ProbeSet]:
    """Return example inputs joined with up to `n` mutants of them, one set a problem; no model is needed."""
    builders = [_Builder(problem, max_chars) for problem in problems]
    for builder in builders:
        builder.counts["requested"] += n
        for text in mutate_examples(builder.problem, n, seed):
            builder.counts["generated"] += 1
            builder.add(text, "mutation")
    return [builder.build() for builder in builders]


def merge_probe_sets(problems: Sequence[Problem], *sources: Sequence[ProbeSet]) -> list[ProbeSet]:
    """Return the union of several lists of sets over the same problems; later duplicates are dropped.

    Raises:
        ParameterError: the lists do not belong to the same problems in the same order.
    """
    merged = []
    for problem, *sets in zip(problems, *sources, strict=True):
        if any(s.problem_id != problem.id for s in sets):
            raise ParameterError(f"probe sets to merge do not all belong to problem {problem.id!r}")
        seen: dict[str, Probe] = {}
        counts: Counter[str] = Counter()
        for probe_set in sets:
            counts.update(probe_set.counts)
            for probe in probe_set.probes:
                known = seen.setdefault(normalise(probe.input, problem), probe)
                if known is not probe and probe.source != "example":
                    counts["duplicate"] += 1
                    counts["kept"] -= 1
        counts["examples"] = sum(probe.source == "example" for probe in seen.values())
        fingerprint = problem_fingerprint(problem)
        merged.append(ProbeSet(problem.id, tuple(seen.values()), dict(counts), fingerprint))
    return merged


def probes_from(
    source: Literal["model", "mutation", "both"],
    problems: Sequence[Problem],
    sampler: Sampler | None,
    sampling: Sampling | None,
    *,
    n: int,
    seed: int,
    max_chars: int,
    progress: Callable[[int, int], None] | None = None,
    path: Path | None = None,
) -> list[ProbeSet]:
    """Return the probes of problems from a model, from mutated examples, or from both.

    Args:
        source: who writes them.
        problems: whom they are for.
        sampler, sampling: the model; None is allowed where `source` is ``mutation``.
        n: inputs asked for, per problem and source.
        seed: of the mutations.
        max_chars: longest input.
        progress, path: as in `generate_probes`.
    """
    sets = []
    if source in ("model", "both"):
        sets.append(
            generate_probes(
                problems, sampler, n=n, sampling=sampling, max_chars=max_chars, progress=progress, path=path
            )
        )
    if source in ("mutation", "both"):
        sets.append(mutation_probes(problems, n=n, seed=seed, max_chars=max_chars))
    return merge_probe_sets(problems, *sets)


def probe_header(sampler: Sampler | None, sampling: Sampling | None) -> dict[str, Any]:
    """Return what identifies generated probes: model revision, prompt hashes, sampling with its seed."""
    hashes = {name: digest for name, digest in prompt_hashes().items() if name.startswith("probe_")}
    return {
        "model_revision": sampler.revision if sampler else None,
        "prompts": hashes,
        "sampling": asdict(sampling) if sampling else None,
    }


def prompt_fits(sampler: Sampler, prompt: Prompt) -> bool:
    """Return whether a prompt leaves room for a reply in the model's context.

    Only a model in this process tells how long its context is before it is asked; a server's prompts are
    taken to fit (`tipprobe.models.open.sample_fitting` finds out).
    """
    from tipprobe.models.transformers_sampler import TransformersSampler, context_length, encode_prompt

    if not isinstance(sampler, TransformersSampler):
        return True
    context = context_length(sampler.model)
    length = len(encode_prompt(sampler.tokenizer, prompt, sampler.chat_template_kwargs))
    return context is None or length < context


def _ask(sampler: Sampler, prompts: Sequence[Prompt], sampling: Sampling) -> list[dict[str, str]]:
    """Return the reply to each prompt as it is logged, an empty one to a prompt that does not fit."""
    return [
        {"text": "", "finish_reason": TOO_LONG_PROMPT}
        if group is None
        else {"text": group[0].text, "finish_reason": group[0].finish_reason}
        for group in sample_fitting(sampler, prompts, 1, sampling)
    ]


class _Builder:
    """Collects the probes of one problem and counts what is dropped."""

    def __init__(self, problem: Problem, max_chars: int) -> None:
        self.problem = problem
        self.max_chars = max_chars
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self.probes: dict[str, Probe] = {}
        for test in problem.examples:
            self.probes.setdefault(normalise(test.input, problem), Probe(test.input, "example"))
        self.counts["examples"] = len(self.probes)

    @property
    def written(self) -> list[str]:
        """Inputs that the model wrote so far and that were kept, oldest first."""
        return [probe.input for probe in self.probes.values() if probe.source == "model"]

    def add_reply(self, reply: str, finish_reason: str) -> None:
        self.counts["requested"] += 1
        if finish_reason == TOO_LONG_PROMPT:
            return self._drop(TOO_LONG_PROMPT)
        self.counts["generated"] += 1
        if finish_reason == "length":
            self._drop("malformed", "truncated")
        else:
            self.add(extract_input(reply, self.problem), "model")
        return None

    def add(self, text: str, source: Source) -> None:
        if len(text) > self.max_chars:
            return self._drop("too_long")
        reason = static_reason(text, self.problem)
        if reason is not None:
            return self._drop("malformed", reason)
        text = normalise(text, self.problem)
        if text in self.probes:
            return self._drop("duplicate")
        self.probes[text] = Probe(text, source)
        self.counts["kept"] += 1
        return None

    def build(self) -> ProbeSet:
        fingerprint = problem_fingerprint(self.problem)
        return ProbeSet(self.problem.id, tuple(self.probes.values()), dict(self.counts), fingerprint)

    def _drop(self, kind: str, reason: str | None = None) -> None:
        self.counts[kind] += 1
        if reason is not None:
            self.counts[f"{kind}:{reason}"] += 1


def _fingerprint(problems: Sequence[Problem]) -> str:
    shown = [[p.id, p.statement, p.starter_code, [t.input for t in p.examples]] for p in problems]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _replayed_rounds(path: Path, key: dict[str, Any], n_problems: int) -> list[list[dict[str, str]]]:
    """Return the complete rounds of a log made under `key`, and leave the file holding exactly those."""
    records = complete_records(path)
    same = bool(records) and records[0].get("key") == json.loads(json.dumps(key))
    complete = (len(records) - 1) // n_problems if same and n_problems else 0
    kept = records[1 : 1 + complete * n_problems]
    write_jsonl(path, [{"key": key}, *kept])
    return [kept[start : start + n_problems] for start in range(0, len(kept), n_problems)]
