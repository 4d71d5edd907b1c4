"""Train and measure the embedded reward model: programs of the coder, graded, in pairs of right and wrong.

    python -m tipprobe.problems.minicode.reward_model --out DIR

Problems are drawn from the sequences of operations that the coder was pretrained on, never from those of
the splits.  The coder writes programs for them, without a tip, with a right one and with a misleading one,
so that what either branch of a selection may hold occurs.  Hidden tests tell right from wrong, and TRL's
``RewardTrainer`` fits a Bradley-Terry model to pairs of one problem.  What is scored never holds the tip.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tipprobe.errors import ParameterError
from tipprobe.evaluation.agreement import agreement, pair_counts
from tipprobe.evaluation.grade import grade
from tipprobe.evaluation.intervals import mean_interval, ratio_interval
from tipprobe.files import write_json
from tipprobe.models.load import load_model, model_revision, pick_device, resolve_model
from tipprobe.models.reward import RewardModel, encode_conversations, load_reward_model
from tipprobe.models.types import Completion, Prompt, Sampler
from tipprobe.probes.rng import keyed_rng
from tipprobe.problems.minicode.calibrate import CODE, passes, recorded_world, records
from tipprobe.problems.minicode.card import cell, markdown_table, read_record
from tipprobe.problems.minicode.corpus import fenced
from tipprobe.problems.minicode.train import say
from tipprobe.problems.minicode.world import WorldConfig, make_problem, specs, split_with_specs
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import code_prompt, prompt_hashes
from tipprobe.sandbox import Sandbox, program_of
from tipprobe.selection.rules import best_or_base

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TEMPLATE = Path(__file__).with_name("reward_card_template.md")
#: Prompts that programs are sampled from: without a tip, with the meta data's right and misleading one.
KINDS = ("none", "tip", "wrong_tip")
#: Problems that one process draws at a time; part of what the seed decides.
SHARD = 250
#: Problems whose programs are sampled and graded together; bounds memory, and progress is told after each.
CHUNK = 1000
#: Splits the model is measured on.  It was trained on neither.
MEASURED = ("heldout", "sft")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what comes out, machine and library versions apart.

    Attributes:
        base: the coder that writes the programs and whose weights the reward model starts from.
        problems: drawn problems; those of one sequence of operations in `validation` are only tested on.
        samples: programs a problem and kind of prompt (`KINDS`).
        underspecified: share of problems that leave a rule open.  It is raised above the world's, so that
            each open rule is seen often.
        validation: share of sequences of operations kept from training.
        pairs: most (right, wrong) pairs taken of one problem.
        steps: optimiser steps.
        batch: pairs a step.
        learning_rate: peak, after a warm-up over the first `warmup` share of steps; a cosine down to 0.
        center: weight of the squared sum of both scores, which keeps scores around 0.
        seed: of problems, programs, pairs, initial head and batch order.
    """

    base: str = "minicode-1m"
    problems: int = 10_000
    samples: int = 4
    underspecified: float = 0.4
    validation: float = 0.05
    pairs: int = 12
    steps: int = 3000
    batch: int = 256
    learning_rate: float = 2e-3
    warmup: float = 0.05
    weight_decay: float = 0.05
    center: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class Graded:
    """The programs of one problem.

    Attributes:
        problem_id: the problem.
        prompt: what asks for a program, without a tip.
        underspecified: whether the statement leaves a rule open.
        validation: whether it is kept from training.
        programs: distinct programs with the verdict of the hidden tests, in the order they were drawn.
    """

    problem_id: str
    prompt: Prompt
    underspecified: bool
    validation: bool
    programs: dict[str, bool]

    def of(self, passed: bool) -> list[str]:
        """Return the programs with that verdict."""
        return [program for program, verdict in self.programs.items() if verdict == passed]


def draw_problems(
    config: WorldConfig, n: int, underspecified: float, seed: int, workers: int = 1
) -> list[Problem]:
    """Return `n` problems from the sequences of the coder's pretraining; the same for any `workers`.

    Their meta data has the sequence in ``ops``.  Statements may repeat a sequence in other words, layouts and
    parameters.
    """
    jobs = [(config, min(SHARD, n - first), underspecified, seed, first) for first in range(0, n, SHARD)]
    if workers <= 1:
        return [problem for job in jobs for problem in _draw_shard(job)]
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs) or 1)) as pool:
        return [problem for shard in pool.map(_draw_shard, jobs, chunksize=1) for problem in shard]


def _draw_shard(job: tuple[WorldConfig, int, float, int, int]) -> list[Problem]:
    config, n, underspecified, seed, first = job
    rng = random.Random(f"minicode/reward/{seed}/{first}")
    found: list[Problem] = []
    for spec in specs(config, rng, "pretraining", underspecified):
        if len(found) == n:
            break
        name = f"minicode/reward/{first + len(found):05d}"
        problem = make_problem(spec, name, "pretraining", config, rng)
        if problem is not None:
            found.append(problem)
    return found


def sample_kinds(
    problems: Sequence[Problem], sampler: Sampler, n: int, seed: int
) -> dict[str, list[list[str | None]]]:
    """Return, by kind of prompt, `n` programs of each problem (None: a reply without one).

    A problem that has no tip in its meta data gets an empty group for the kinds with a tip.
    """
    jobs = [(kind, i) for kind in KINDS for i, p in enumerate(problems) if kind == "none" or kind in p.meta]
    prompts = [code_prompt(problems[i], problems[i].meta.get(kind)) for kind, i in jobs]
    replies = sampler.sample(prompts, n, replace(CODE, seed=seed))
    programs: dict[str, list[list[str | None]]] = {kind: [[] for _ in problems] for kind in KINDS}
    for (kind, i), group in zip(jobs, replies, strict=True):
        programs[kind][i] = [program_of(reply).code for reply in group]
    return programs


def graded_programs(
    problems: Sequence[Problem], sampler: Sampler, sandbox: Sandbox, recipe: Recipe
) -> list[Graded]:
    """Sample programs of every kind for each problem and grade them by hidden tests."""
    graded = []
    begin = time.perf_counter()
    for first in range(0, len(problems), CHUNK):
        chunk = problems[first : first + CHUNK]
        groups = sample_kinds(chunk, sampler, recipe.samples, recipe.seed + first)
        distinct = [
            list(dict.fromkeys(p for kind in KINDS for p in groups[kind][i] if p is not None))
            for i in range(len(chunk))
        ]
        sampled_s = time.perf_counter() - begin
        items = [(problem, program) for problem, row in zip(chunk, distinct, strict=True) for program in row]
        verdicts = iter(grade(items, sandbox, time_limit_s=2.0, memory_mb=1024))
        for problem, row in zip(chunk, distinct, strict=True):
            key = "|".join(problem.meta["ops"])
            graded.append(
                Graded(
                    problem.id,
                    code_prompt(problem),
                    problem.meta["underspecified"],
                    keyed_rng("reward validation", recipe.seed, key).random() < recipe.validation,
                    {program: next(verdicts).passed for program in row},
                )
            )
        say(
            f"programs of {len(graded):,}/{len(problems):,} problems; this part: {len(items):,} distinct, "
            f"sampled after {sampled_s:.0f} s, graded after {time.perf_counter() - begin:.0f} s"
        )
    return graded


def make_pairs(graded: Sequence[Graded], most: int, seed: int) -> list[tuple[Prompt, str, str]]:
    """Return (prompt, right program, wrong program) triples, at most `most` of each problem, at random."""
    pairs = []
    for row in graded:
        both = list(product(row.of(True), row.of(False)))
        order = keyed_rng("reward pairs", seed, row.problem_id).permutation(len(both))[:most]
        pairs += [(row.prompt, *both[i]) for i in order]
    return pairs


def fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[Prompt, str, str]],
    recipe: Recipe,
    device: str,
) -> list[dict[str, float]]:
    """Train `model` in place on pairs; return the curve of loss and accuracy, and print it as it comes."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import RewardConfig, RewardTrainer

    class Tell(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
            if "loss" in logs:
                say(
                    f"step {state.global_step}/{args.max_steps} loss {float(logs['loss']):.4f} "
                    f"accuracy {float(logs['accuracy']):.3f}"
                )

    chosen = encode_conversations(tokenizer, [(prompt, fenced(right)) for prompt, right, _ in pairs])
    rejected = encode_conversations(tokenizer, [(prompt, fenced(wrong)) for prompt, _, wrong in pairs])
    with tempfile.TemporaryDirectory() as scratch:
        arguments = RewardConfig(
            output_dir=scratch,
            max_steps=recipe.steps,
            per_device_train_batch_size=recipe.batch,
            learning_rate=recipe.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=max(1, round(recipe.warmup * recipe.steps)),
            weight_decay=recipe.weight_decay,
            center_rewards_coefficient=recipe.center,
            max_length=None,
            gradient_checkpointing=False,
            bf16=False,  # the difference of two scores wants more digits, and the model is small
            tf32=device != "cpu",
            use_cpu=device == "cpu",
            dataloader_pin_memory=device != "cpu",
            dataloader_num_workers=0 if device == "cpu" else 4,
            logging_steps=max(1, recipe.steps // 20),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=recipe.seed,
        )
        trainer = RewardTrainer(
            model=model,
            args=arguments,
            processing_class=tokenizer,
            train_dataset=Dataset.from_dict({"chosen_ids": chosen, "rejected_ids": rejected}),
            callbacks=[Tell()],
        )
        trainer.remove_callback(PrinterCallback)
        precision = torch.backends.fp32_precision
        trainer.train()
        torch.backends.fp32_precision = precision  # the trainer switches TF32 on for the whole process
    return [
        {"step": row["step"]} | {name: round(float(row[name]), 4) for name in ("loss", "accuracy")}
        for row in trainer.state.log_history
        if "loss" in row
    ]


def pair_accuracy(graded: Sequence[Graded], model: RewardModel, draws: int = 1000) -> dict[str, Any]:
    """Return the share of (right, wrong) pairs that `model` orders rightly, by kind of problem."""
    items = [(row.prompt, program) for row in graded for program in row.programs]
    scores = iter(model.score(items).tolist())
    counts = np.array(
        [pair_counts([next(scores) for _ in row.programs], list(row.programs.values())) for row in graded]
    ).reshape(-1, 2)
    opened = np.array([row.underspecified for row in graded], dtype=bool)
    report = {}
    for name, rows in _groups(opened):
        found = ratio_interval(counts[rows, 0], counts[rows, 1], draws, 0)
        report[name] = records({"auc": found})["auc"] | {"pairs": int(counts[rows, 1].sum())}
    return report


def _groups(opened: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the (name, rows) of problems to report on: all, and by whether the statement is complete."""
    named = [("all", opened | True), ("specified", ~opened), ("underspecified", opened)]
    return [(name, rows) for name, rows in named if rows.any()]


def measure(
    split: str,
    config: WorldConfig,
    model: RewardModel,
    sampler: Sampler,
    sandbox: Sandbox,
    *,
    problems: int,
    samples: int,
    seed: int = 0,
    draws: int = 1000,
) -> dict[str, Any]:
    """Return how well `model` tells right programs from wrong ones on a split, JSON-ready.

    ``auc``: within problem and pooled, over the programs of all kinds of prompt (``every_kind``) and over
    those of prompts without a tip.  ``selection``: one program without a tip against one with a tip, in
    percent correct: either alone, the one that the model picks, and the better of the two.
    """
    chosen = [p for p, _ in split_with_specs(split, problems, config=config) if "tip" in p.meta]
    programs = sample_kinds(chosen, sampler, samples, seed)
    replies = {
        kind: [[Completion(fenced(p) if p else "", 0, "stop") for p in row] for row in programs[kind]]
        for kind in KINDS
    }
    passed = {kind: passes(chosen, replies[kind], sandbox) for kind in KINDS}
    pairs = list(
        dict.fromkeys(
            (i, p) for kind in KINDS for i, row in enumerate(programs[kind]) for p in row if p is not None
        )
    )
    values = model.score([(code_prompt(chosen[i]), p) for i, p in pairs]).tolist()
    known = dict(zip(pairs, values, strict=True))
    scores = {
        kind: [[known.get((i, p), np.nan) for p in row] for i, row in enumerate(programs[kind])]
        for kind in KINDS
    }
    opened = np.array([p.meta["underspecified"] for p in chosen])
    report: dict[str, Any] = {
        "split": split,
        "problems": len(chosen),
        "samples": samples,
        "model_revision": model.revision,
        "coder_revision": sampler.revision,
        "no_program": sum(p is None for kind in KINDS for row in programs[kind] for p in row),
        "pass_rate": {kind: round(100 * float(np.mean(passed[kind])), 1) for kind in KINDS},
        "auc": {},
        "selection": {},
    }
    for name, rows in _groups(opened):
        places = np.flatnonzero(rows)
        for label, kinds in (("every_kind", KINDS), ("none", ("none",))):
            found = agreement(
                [[s for kind in kinds for s in scores[kind][i] if not np.isnan(s)] for i in places],
                [
                    [
                        v
                        for kind in kinds
                        for v, s in zip(passed[kind][i], scores[kind][i], strict=True)
                        if not np.isnan(s)
                    ]
                    for i in places
                ],
                draws,
                seed,
            )
            report["auc"].setdefault(label, {})[name] = records(
                {"auc_within": found.auc_within, "auc_pooled": found.auc_pooled}
            ) | {"programs": found.samples}
        for tip in KINDS[1:]:
            report["selection"].setdefault(tip, {})[name] = records(
                _selection(places, programs, scores, passed, tip, draws, seed)
            )
    return report


def _selection(
    places: np.ndarray, programs: dict, scores: dict, passed: dict, tip: str, draws: int, seed: int
) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"base": [], "adopted": [], "selected": [], "upper_bound": []}
    for i in places:
        rows = {name: [] for name in rates}
        for j in range(len(programs["none"][i])):
            branches = [(programs[k][i][j], scores[k][i][j], passed[k][i][j]) for k in ("none", tip)]
            index, _ = best_or_base([p is not None for p, _, _ in branches], [s for _, s, _ in branches])
            verdicts = [v for _, _, v in branches]
            picks = (verdicts[0], verdicts[1], verdicts[index], any(verdicts))
            for name, verdict in zip(rates, picks, strict=True):
                rows[name].append(verdict)
        for name, row in rows.items():
            rates[name].append(100 * float(np.mean(row)))
    return {name: mean_interval(np.array(values), draws, seed) for name, values in rates.items()}


class _Laps:
    """Seconds that each part of a run took, told as they come."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self.last = round(now - self.last, 1), now
        say(f"{name}: {self.seconds[name]:.0f} s")


def load_sampler(name: str, device: str) -> Sampler:
    """Return a sampler of the coder `name`."""
    from tipprobe.models.transformers_sampler import TransformersSampler

    model, tokenizer = load_model(name, device)
    rows = 256 if device == "cpu" else 4096
    return TransformersSampler(model, tokenizer, revision=model_revision(name), batch_size=rows)


def make_programs(recipe: Recipe, path: Path, device: str, workers: int) -> float:
    """Draw the recipe's problems and write their graded programs to a JSONL file; return the seconds."""
    laps = _Laps()
    config = recorded_world(Path(resolve_model(recipe.base)))
    problems = draw_problems(config, recipe.problems, recipe.underspecified, recipe.seed, workers)
    laps.end("problems")
    with Sandbox(workers) as sandbox:
        graded = graded_programs(problems, load_sampler(recipe.base, device), sandbox, recipe)
    write_jsonl(path, map(asdict, graded))
    laps.end("programs")
    return sum(laps.seconds.values())


def train_reward_model(
    recipe: Recipe, graded: Sequence[Graded], out: Path, device: str = "cpu", programs_s: float | None = None
) -> None:
    """Train on graded programs and write the checkpoint and ``recipe.json`` into the folder `out`.

    `programs_s` is recorded: seconds that making the programs took, None if they were there already.

    Raises:
        ParameterError: no problem has both right and wrong programs.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

    folder = Path(resolve_model(recipe.base))
    trained = [row for row in graded if not row.validation]
    pairs = make_pairs(trained, recipe.pairs, recipe.seed)
    if not pairs:
        raise ParameterError("no problem has both a right and a wrong program; raise problems or samples")
    say(f"{len(pairs):,} pairs of {len(trained):,} problems")
    laps = _Laps()
    set_seed(recipe.seed)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right")
    curve = fit(model, tokenizer, pairs, recipe, device)
    laps.end("training")
    out.mkdir(parents=True, exist_ok=True)
    model.to("cpu").bfloat16().save_pretrained(out)
    tokenizer.save_pretrained(out)
    record = asdict(recipe) | {
        "base_revision": model_revision(str(folder)),
        "world": asdict(recorded_world(folder)),
        "parameters": sum(p.numel() for p in model.parameters()),
        "counts": {
            "drawn_problems": len(graded),
            "distinct_programs": sum(len(row.programs) for row in graded),
            "right_programs": sum(sum(row.programs.values()) for row in graded),
            "validation_problems": len(graded) - len(trained),
            "training_pairs": len(pairs),
        },
        "curve": curve,
        "prompts": prompt_hashes(),
        "command": command_line(recipe),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers", "trl", "numpy")},
        "device": _device_name(device),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "programs_s": programs_s,
        "training_s": laps.seconds["training"],
    }
    (out / "recipe.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure_all(
    folder: Path,
    graded: Sequence[Graded],
    *,
    device: str = "cpu",
    workers: int = 1,
    problems: int = 256,
    samples: int = 8,
) -> None:
    """Measure the saved checkpoint in `folder`: one JSON file a subject in ``measured``, then the card.

    The files lie in a folder of their own, so that they are no part of what `model_revision` hashes.

    Args:
        folder: checkpoint with its ``recipe.json``.
        graded: problems whose validation part gives the accuracy on pairs.
        device: ``cpu`` or ``cuda``.
        workers: processes that run programs.
        problems: of each of `MEASURED`.
        samples: programs a problem and kind of prompt.
    """
    base = read_record(folder / "recipe.json")["base"]
    sampler = load_sampler(base, device)
    model = load_reward_model(str(folder), device, batch_size=256)
    config = recorded_world(folder)
    where = {"device": _device_name(device), "model_revision": model.revision}
    (folder / "measured").mkdir(exist_ok=True)

    def write(name: str, report: dict[str, Any]) -> None:
        write_json(folder / "measured" / f"{name}.json", where | report)

    write("pairs", pair_accuracy([row for row in graded if row.validation], model))
    laps = _Laps()
    with Sandbox(workers) as sandbox:
        for split in MEASURED:
            report = measure(split, config, model, sampler, sandbox, problems=problems, samples=samples)
            laps.end(f"measure {split}")
            write(split, report | {"seconds": laps.seconds[f"measure {split}"]})
    write_card(folder)


def _device_name(device: str) -> str:
    import torch

    return "cpu" if device == "cpu" else torch.cuda.get_device_name()


def card(folder: Path) -> str:
    """Return the text of a reward model's card, from the files in its folder.

    Raises:
        DataError: ``recipe.json`` or a file in ``measured`` is missing or unreadable.
    """
    recipe = read_record(folder / "recipe.json")
    pairs = read_record(folder / "measured" / "pairs.json")
    reports = {split: read_record(folder / "measured" / f"{split}.json") for split in MEASURED}
    accuracy = [
        {
            "problems of unseen sequences": name,
            "problems with pairs": f"{pairs[name]['problems']:,}",
            "pairs": f"{pairs[name]['pairs']:,}",
            "in the right order": cell(pairs[name]),
        }
        for name in ("all", "specified", "underspecified")
        if name in pairs
    ]
    areas = [
        {
            "split": split,
            "programs": "with and without tips" if label == "every_kind" else "without a tip",
            "problems": name,
            "n programs": f"{found['programs']:,}",
            "AUC within problem": f"{cell(found['auc_within'])}, {found['auc_within']['problems']} problems",
            "AUC pooled": cell(found["auc_pooled"]),
        }
        for split, report in reports.items()
        for label, groups in report["auc"].items()
        for name, found in groups.items()
    ]
    selections = [
        {"split": split, "tip": "right" if tip == "tip" else "misleading", "problems": f"{name}"}
        | {title: cell(found[key]) for key, title in SELECTION_TITLES.items()}
        | {"n problems": str(found["base"]["problems"])}
        for split, report in reports.items()
        for tip, groups in report["selection"].items()
        for name, found in groups.items()
    ]
    fewer = folder / "measured" / "less_data.json"
    less_data = [
        {
            "problems drawn": f"{row['problems']:,}",
            "steps": str(row["steps"]),
            "pairs": f"{row['training_pairs']:,}",
            "AUC within problem": cell(row["auc_within"]),
            "picked with a right tip, %": f"{cell(row['selected'])} of {row['upper_bound']['mean']:g}",
            "with a misleading tip, %": (
                f"{cell(row['selected_wrong_tip'])} of {row['upper_bound_wrong_tip']['mean']:g}"
            ),
        }
        for row in (read_record(fewer)["rows"] if fewer.is_file() else ())
    ]
    return TEMPLATE.read_text(encoding="utf-8").format(
        less_data=markdown_table(less_data) if less_data else "Not tried.",
        **recipe,
        **recipe["counts"],
        programs_text=f"{recipe['programs_s']:.0f} s" if recipe["programs_s"] else "not recorded",
        loss=recipe["curve"][-1]["loss"],
        libraries=", ".join(f"{name} {number}" for name, number in recipe["versions"].items()),
        accuracy=markdown_table(accuracy) if accuracy else "None.",
        areas=markdown_table(areas),
        selections=markdown_table(selections),
        samples_measured=reports[MEASURED[0]]["samples"],
    )


SELECTION_TITLES = {
    "base": "without tip, %",
    "adopted": "with tip, %",
    "selected": "picked, %",
    "upper_bound": "better of both, %",
}


def write_card(folder: Path) -> Path:
    """Write ``README.md`` into a checkpoint folder and return its path."""
    path = folder / "README.md"
    path.write_text(card(folder), encoding="utf-8")
    return path


def command_line(recipe: Recipe) -> str:
    """Return the command that runs `recipe`; options at their defaults are left out."""
    usual = Recipe()
    changed = [
        f"--{f.name.replace('_', '-')} {getattr(recipe, f.name)}"
        for f in fields(Recipe)
        if getattr(recipe, f.name) != getattr(usual, f.name)
    ]
    return " ".join(["python -m tipprobe.problems.minicode.reward_model", *changed, "--out DIR"])


def parse_recipe(arguments: list[str] | None = None) -> tuple[Recipe, argparse.Namespace]:
    """Return the recipe and the remaining options of a command line."""
    parser = argparse.ArgumentParser(description="Train the embedded reward model.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--programs",
        type=Path,
        help="JSONL of graded programs, used if it is there; default OUT.programs.jsonl",
    )
    parser.add_argument("--measure-only", action="store_true", help="of the checkpoint that lies in OUT")
    parser.add_argument("--measured-problems", type=int, default=256, help="of each measured split")
    parser.add_argument("--measured-samples", type=int, default=8, help="programs a problem and prompt")
    for f in fields(Recipe):
        value = getattr(Recipe(), f.name)
        parser.add_argument(f"--{f.name.replace('_', '-')}", type=type(value), default=value, help=f"{value}")
    options = parser.parse_args(arguments)
    return Recipe(**{f.name: getattr(options, f.name) for f in fields(Recipe)}), options


def main() -> None:
    """Make programs, train and measure, as the command line says."""
    recipe, options = parse_recipe()
    out, device, workers = options.out, pick_device(options.device), options.workers
    programs = options.programs or out.with_name(out.name + ".programs.jsonl")
    programs_s = None
    if not programs.is_file():
        programs_s = make_programs(recipe, programs, device, workers)
    graded = [Graded(**record) for record in read_jsonl(programs)]
    if not options.measure_only:
        train_reward_model(recipe, graded, out, device, programs_s)
    measure_all(
        out,
        graded,
        device=device,
        workers=workers,
        problems=options.measured_problems,
        samples=options.measured_samples,
    )


if __name__ == "__main__":
    main()
