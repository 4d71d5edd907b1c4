"""Every parameter of the series: type, range and meaning, and one clear line when a value does not fit.

Values live in two places only: flat YAML files in ``params/`` (one a profile) and the notebooks' parameter
cells, which hold the ``minicode`` values of the keys a notebook uses (a test compares the two).  This
module holds no value.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tipprobe import paths
from tipprobe.errors import ParameterError

BASE_PROFILE = "minicode"

#: Parameters that name the run or say how fast it goes.  They stay out of the stage keys, so that changing
#: one repeats no work.  `device` is among them although a GPU draws other random numbers than a CPU: a
#: finished stage is as valid on either, and `provenance.json` records which it was.
NOT_IN_KEY = frozenset(
    {"profile", "out", "device", "workers", "endpoint_concurrency", "endpoint_requests_per_minute"}
)

Count = Annotated[int, Field(ge=1)]
CountOrAll = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]
MethodName = Literal["base", "grpo_pub", "grpo_pcr", "nsr_pcr", "erpo", "grpo_random", "grpo_oracle"]
TipMethodName = Literal[
    "base", "best_of_2", "self_hint", "opro", "gepa", "ctrl", "tipcoder_sft", "tipcoder_rl"
]
SelectorName = Literal["reward_model", "pcr", "random"]


class Params(BaseModel):
    """All parameters of a profile.  Strict: text is no number, no unknown key, no infinity."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    # The run
    profile: Text = Field(description="name of the profile, shown in the report")
    out: Text = Field(description="folder of the results; a relative one is taken from the project's root")
    seed: Seed = Field(description="seed of everything that has no seed of its own")
    device: str = Field(
        pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto (a GPU if there is one), cpu, cuda or cuda:N"
    )
    workers: CountOrAll = Field(description="processes side by side; 0 = one per core")
    endpoint_concurrency: Count = Field(description="requests on their way to one server at a time")
    endpoint_requests_per_minute: NonNegative = Field(
        description="most requests sent to one server a minute, retries included; 0 = no limit"
    )

    # Model and problems
    model: Text = Field(description="minicode-1m, minicode-5m, a checkpoint folder, a .gguf file or a hub id")
    problems: Text = Field(description="problems to adapt on: minicode:SPLIT, a file, or a hub id")
    n_problems: CountOrAll = Field(description="problems taken from `problems`, a seeded subset; 0 = all")
    transfer_problems: Text = Field(description="problems never adapted on, named like `problems`")
    n_transfer_problems: CountOrAll = Field(description="problems taken from `transfer_problems`; 0 = all")

    # The embedded world (notebook 00)
    world_problems: Count = Field(description="problems on which notebook 00 looks at the coder")
    world_samples: Count = Field(description="programs sampled for each of them")

    # Probes (notebook 05)
    probe_source: Literal["model", "mutation", "both"] = Field(description="who writes the probe inputs")
    n_probes: Count = Field(description="probe inputs asked for, per problem")
    probe_max_chars: Count = Field(description="longest probe input, characters")
    probe_temperature: NonNegative = Field(description="sampling temperature of the probe writer")
    probe_max_tokens: Count = Field(description="longest reply of the probe writer, tokens")

    # Adaptation: what is compared (notebook 06)
    methods: Annotated[list[MethodName], Field(min_length=1)] = Field(
        description="methods, in table order; [base] leaves adaptation out"
    )
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(description="one run per method and seed")

    # Adaptation: schedule
    steps: Count = Field(description="rollout steps of a run")
    prompts_per_step: Count = Field(description="problems per rollout step")
    group_size: Annotated[int, Field(ge=2)] = Field(description="G, programs sampled per problem and step")
    minibatches_per_step: Count = Field(description="optimiser updates per rollout step")
    learning_rate: Positive = Field(description="AdamW learning rate, constant after the warm-up")
    warmup_steps: CountOrAll = Field(description="linear warm-up, rollout steps")
    weight_decay: NonNegative = Field(description="AdamW weight decay")
    max_grad_norm: Positive = Field(description="gradient norm above which gradients are scaled down")
    save_every: Count = Field(description="rollout steps between two restart points")
    train_micro_batch: Count = Field(description="completions per forward and backward pass")

    # Adaptation: objective
    clip_ratio: Annotated[float, Field(gt=0, lt=1)] = Field(description="clip range of the policy ratio")
    dual_clip: Annotated[float, Field(gt=1)] = Field(description="upper bound of the ratio where A < 0")
    kl_coef: NonNegative = Field(description="weight of the k3 estimate of KL to the base model")
    entropy_coef: NonNegative = Field(description="lambda_H, weight of the entropy ceiling's penalty")
    entropy_ceiling: Positive = Field(description="H_ceil, nats (absolute) or multiples of the first H")
    entropy_ceiling_mode: Literal["absolute", "relative"] = Field(description="unit of entropy_ceiling")
    mask_ratio: Annotated[float, Field(ge=0, lt=1)] = Field(description="q, top share of a group masked")
    negative_only: bool = Field(description="also mask positive advantages that survive the rank mask")
    denominator: Literal["retained", "all"] = Field(description="tokens the policy loss is averaged over")

    # Sampling of programs, the same for rollouts and evaluation
    temperature: Positive = Field(description="softmax temperature")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(description="nucleus mass; 1.0 = off")
    top_k: CountOrAll = Field(description="most likely tokens kept; 0 = off")
    max_tokens: Count = Field(description="longest reply, tokens")
    sampler_batch_size: Count = Field(description="replies generated at once")

    # Execution of programs
    time_limit_s: Annotated[float, Field(gt=0, le=86_400)] = Field(description="CPU seconds per execution")
    memory_mb: Annotated[int, Field(ge=64, le=2**24)] = Field(description="address space per execution, MiB")

    # Evaluation (notebook 07)
    eval_samples: Count = Field(description="programs sampled per problem and model")
    ks: Annotated[list[Count], Field(min_length=1)] = Field(description="the k of pass@k")
    bootstrap_draws: Annotated[int, Field(ge=100)] = Field(description="bootstrap resamples of the problems")
    eval_seed: Seed = Field(description="seed of the evaluation samples and the bootstrap")

    # Tips: mining and distillation (notebooks 01 and 02)
    tip_methods: list[TipMethodName] = Field(
        description="what is compared at test time, in table order; [] leaves the tip half out"
    )
    teacher: Text = Field(description="recorded, recorded:FILE, a model, or openai:MODEL@URL")
    teacher_max_tokens: Count = Field(description="longest reply of the teacher, tokens")
    teacher_temperature: NonNegative = Field(
        description="temperature of the teacher; some models of servers take 1 only"
    )
    teacher_input_price: NonNegative = Field(description="price of a million tokens sent to the teacher")
    teacher_output_price: NonNegative = Field(description="price of a million tokens that it writes")
    mining_problems: Text = Field(description="problems that tips are learnt from, named like `problems`")
    n_mining_problems: CountOrAll = Field(description="problems taken from `mining_problems`; 0 = all")
    base_samples: Count = Field(description="programs that measure a problem's base pass rate")
    base_threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        description="problems with a base pass rate below this are mined"
    )
    repair_turns: Count = Field(description="attempts of the teacher at a failed program")
    contamination_ngram: Count = Field(description="words in an n-gram of the contamination check")
    contamination_share: Annotated[float, Field(gt=0, le=1)] = Field(
        description="share of n-grams common with one evaluation problem from which a problem is dropped"
    )
    tip_variant: Literal["two_step", "contrast"] = Field(
        description="tips from a masked conversation in two steps, or from wrong and right program"
    )
    tip_refinements: CountOrAll = Field(description="rewordings of a tip that did not help")
    verify_samples: Count = Field(description="fresh programs on which a verified tip is tried again")

    # Tips: the proposer (notebooks 03 and 04)
    proposer: Text = Field(description="model that becomes the proposer, named like `model`")
    proposer_seed: Seed = Field(
        description="seed of the proposer's fine-tuning and reinforcement; `seed` picks the problems"
    )
    tip_style: Literal["short", "mentor"] = Field(description="wording of the request for a tip")
    tip_max_tokens: Count = Field(description="longest tip, tokens")
    sft_epochs: Count = Field(description="passes over the verified tips")
    sft_learning_rate: Positive = Field(description="peak learning rate of the fine-tuning")
    sft_batch_size: Count = Field(description="tips per optimiser update")
    sft_max_tokens: Count = Field(description="longest prompt with tip, tokens; longer rows are dropped")
    n_proposer_validation: Count = Field(
        description="mined problems without a tip that are kept for looking at the proposer"
    )
    environment: Text = Field(description="frozen coder that tips are tried on: model or openai:MODEL@URL")
    rl_steps: CountOrAll = Field(description="rollout steps of the proposer; 0 = no reinforcement")
    rl_prompts_per_step: Count = Field(description="problems per rollout step of the proposer")
    rl_minibatches_per_step: Count = Field(description="optimiser updates per rollout step of the proposer")
    tip_group_size: Annotated[int, Field(ge=2)] = Field(description="tips sampled per problem and step")
    rl_learning_rate: Positive = Field(description="learning rate of the proposer's reinforcement")
    rl_kl_coef: NonNegative = Field(description="weight of the divergence from the fine-tuned proposer")
    tip_temperature: Positive = Field(description="sampling temperature of tips in rollouts")
    tip_length_threshold: CountOrAll = Field(description="L_th, tokens of a tip that cost nothing")
    tip_length_penalty: NonNegative = Field(description="lambda, reward lost per token above that")

    # Tips at test time (notebook 07)
    tip_problems: Text = Field(description="problems on which tips are tested, named like `problems`")
    n_tip_problems: CountOrAll = Field(description="problems taken from `tip_problems`; 0 = all")
    tip_runs: Count = Field(description="independent runs of every method")
    tip_selectors: Annotated[list[SelectorName], Field(min_length=1)] = Field(
        description="who picks between base and guided program; the first fills the tables' gains"
    )
    reward_model: Text = Field(description="minicode-rm-1m, a checkpoint folder or a hub id")
    reward_dtype: Literal["float32", "bfloat16", "float16"] = Field(
        description="type of the reward model's weights; its head works in float32 in any case"
    )
    best_of: Annotated[list[Count], Field(min_length=1)] = Field(description="the N of the best-of-N curve")
    n_validation_problems: Count = Field(description="mined problems on which OPRO and GEPA choose")
    search_budget: Count = Field(description="guided programs that OPRO and GEPA may each spend")


KEYS = tuple(Params.model_fields)

#: Conditions between parameters: the keys involved, the condition, what to say when it fails.
_RELATIONS: tuple[tuple[tuple[str, ...], Callable[..., bool], str], ...] = (
    (
        ("ks", "eval_samples"),
        lambda ks, n: max(ks) <= n,
        "ks asks for pass@{max_ks} of only eval_samples = {eval_samples} programs",
    ),
    (
        ("prompts_per_step", "minibatches_per_step"),
        lambda prompts, updates: prompts % updates == 0,
        "prompts_per_step = {prompts_per_step} is no multiple of minibatches_per_step {minibatches_per_step}",
    ),
    (
        ("n_problems", "prompts_per_step"),
        lambda n, prompts: n == 0 or n >= prompts,
        "n_problems = {n_problems} is fewer than prompts_per_step = {prompts_per_step}",
    ),
    (
        ("seeds",),
        lambda seeds: len(set(seeds)) == len(seeds),
        "seeds holds a value twice: {seeds}",
    ),
    (
        ("methods",),
        lambda methods: len(set(methods)) == len(methods),
        "methods holds a name twice: {methods}",
    ),
    (
        ("methods", "tip_methods"),
        lambda methods, tip_methods: methods != ["base"] or tip_methods,
        "methods holds only base, which is evaluated in any case: add a method to compare it with",
    ),
    (
        ("tip_methods",),
        lambda methods: len(set(methods)) == len(methods),
        "tip_methods holds a name twice: {tip_methods}",
    ),
    (
        ("tip_methods",),
        lambda methods: methods != ["base"],
        "tip_methods holds only base, which is there in any case: add a method to compare it with, or leave "
        "the list empty",
    ),
    (
        ("tip_selectors",),
        lambda selectors: len(set(selectors)) == len(selectors),
        "tip_selectors holds a name twice: {tip_selectors}",
    ),
    (
        ("tip_methods", "rl_steps"),
        lambda methods, steps: steps or "tipcoder_rl" not in methods,
        "tip_methods asks for tipcoder_rl, but rl_steps is 0",
    ),
    (
        ("rl_prompts_per_step", "rl_minibatches_per_step"),
        lambda prompts, updates: prompts % updates == 0,
        "rl_prompts_per_step = {rl_prompts_per_step} is no multiple of rl_minibatches_per_step "
        "{rl_minibatches_per_step}",
    ),
)

_TOKEN_LIKE = re.compile(r"\b(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,})")


def profiles() -> list[str]:
    """Return the names of the profiles in ``params/``."""
    return sorted(path.stem for path in paths.PARAMS.glob("*.yaml"))


def profile_path(source: str) -> Path:
    """Return the file of profile `source`, which is a profile's name or a path to a YAML file.

    Raises:
        ParameterError: there is no such profile or file.
    """
    if source.endswith((".yaml", ".yml")) or "/" in source:
        path = Path(source).expanduser()
        if not path.is_file():
            raise ParameterError(f"no such params file: {source}")
        return path
    path = paths.PARAMS / f"{source}.yaml"
    if not path.is_file():
        hint = _nearest(source, profiles())
        raise ParameterError(f"no profile {source!r}{hint}; profiles: {', '.join(profiles()) or 'none'}")
    return path


def read_profile(path: Path) -> dict[str, Any]:
    """Return the keys and values of a params file, unchecked but for its shape.

    Raises:
        ParameterError: the file is not YAML, not a flat mapping, or holds a key twice.
    """
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path.name}: not valid YAML: {' '.join(str(error).split())}") from error
    if values is None:
        return {}
    if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
        raise ParameterError(f"{path.name}: expected lines of the form 'key: value'")
    names = [key.value for key, _ in node.value]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ParameterError(f"{path.name}: {twice[0]} is set twice")
    return {str(key): value for key, value in values.items()}


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Turn ``["steps=5", "methods=[base, erpo]"]`` into a dict; values are read as YAML, like in a params
    file.

    Raises:
        ParameterError: an item has no ``=`` or its value is not YAML.
    """
    values = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise ParameterError(f"-p {item}: expected key=value")
        try:
            values[key.strip()] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ParameterError(f"-p {item}: the value is not valid YAML") from error
    return values


def load_params(source: str | Path = BASE_PROFILE, overrides: Mapping[str, Any] | None = None) -> Params:
    """Return the checked parameters of a profile.

    A file need not hold every key: what it leaves out has the value of the ``minicode`` profile.

    Args:
        source: a profile's name (``smoke``) or a path to a YAML file.
        overrides: values that replace the file's.

    Raises:
        ParameterError: one line that names the file, the key, the value and what would be right.
    """
    path = profile_path(str(source))
    values = read_profile(path)
    check_values(values, path.name)
    base = read_profile(profile_path(BASE_PROFILE))
    overrides = dict(overrides or {})
    check_values(overrides, "-p")
    merged = base | values | overrides
    return Params.model_validate(check_values(merged, path.name))


def check_values(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return `values` (some or all parameters) with whole numbers turned into floats where floats belong.

    Args:
        values: parameters by name.
        where: what to begin a message with: a file's or a notebook's name.

    Raises:
        ParameterError: one line about the first value that is unknown, of the wrong type or out of range.
    """
    for key, value in values.items():
        if key not in Params.model_fields:
            raise ParameterError(f"{where}: unknown parameter {key!r}{_nearest(key, KEYS)}")
        if isinstance(value, str) and _TOKEN_LIKE.search(value):
            raise ParameterError(
                f"{where}: {key} looks like an access token; parameters are written into every result, "
                "set an environment variable instead (HF_TOKEN, ...)"
            )
    checked = {key: _check_one(key, value, where) for key, value in values.items()}
    for keys, holds, message in _RELATIONS:
        if all(key in checked for key in keys) and not holds(*(checked[key] for key in keys)):
            raise ParameterError(f"{where}: " + message.format(**checked, max_ks=max(checked.get("ks", [0]))))
    return checked


@cache
def _adapter(key: str) -> TypeAdapter[Any]:
    field = Params.model_fields[key]
    config = ConfigDict(strict=True, allow_inf_nan=False)
    return TypeAdapter(Annotated[field.annotation, field], config=config)


def _check_one(key: str, value: Any, where: str) -> Any:
    """Check one value against its field.  A partial set of parameters cannot go through the whole model."""
    try:
        return _adapter(key).validate_python(value)
    except ValidationError as error:
        raise ParameterError(f"{where}: {_explain(key, error.errors()[0])}") from error


def _explain(key: str, error: Any) -> str:
    name = key + "".join(f"[{part}]" for part in error["loc"] if isinstance(part, int))
    bad, kind, context = error["input"], error["type"], error.get("ctx", {})
    shown = f"the text {json.dumps(bad)}" if isinstance(bad, str) else json.dumps(bad, default=str)
    match kind:
        case "float_type" | "int_type" | "float_parsing" | "int_parsing" | "int_from_float":
            wanted = "number" if kind.startswith("float") else "whole number"
            return f"{name} is {shown}, but a {wanted} belongs there{_number_hint(bad, wanted)}"
        case "bool_type":
            return f"{name} is {shown}, but true or false belongs there"
        case "string_type":
            return f"{name} is {shown}, but text belongs there: put it in quotes"
        case "list_type":
            return f"{name} is {shown}, but a list belongs there, like [{bad}]"
        case "finite_number":
            return f"{name} is {bad}, but a finite number belongs there"
        case "greater_than_equal":
            return f"{name} is {shown}, but must be at least {context['ge']}"
        case "greater_than":
            return f"{name} is {shown}, but must be above {context['gt']}"
        case "less_than_equal":
            return f"{name} is {shown}, but must be at most {context['le']}"
        case "less_than":
            return f"{name} is {shown}, but must be below {context['lt']}"
        case "literal_error":
            options = [word.strip("'") for word in re.findall(r"'[^']*'", context["expected"])]
            return f"{name} is {shown}, but must be one of {', '.join(options)}{_nearest(str(bad), options)}"
        case "string_pattern_mismatch":
            return f"{name} is {shown}, but must be {Params.model_fields[key].description}"
        case "too_short" | "string_too_short":
            return f"{name} is empty"
    return f"{name} is {shown}: {error['msg']}"


def _number_hint(bad: Any, wanted: str) -> str:
    """Say how to write a number that YAML read as something else."""
    if not isinstance(bad, str):
        return ""
    try:
        number = float(bad.replace("_", ""))
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    if wanted == "whole number":
        return f": write {int(number)}" if number == int(number) else ""
    if re.fullmatch(r"[+-]?[\d._]*", bad):
        return f": write {bad} without quotes"
    # YAML 1.1 takes a float with an exponent only if it has a dot and a signed exponent.
    mantissa, exponent = re.split("[eE]", bad.replace("_", ""))
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    sign = "" if exponent[0] in "+-" else "+"
    return f" (YAML takes {bad} for text): write {mantissa}e{sign}{exponent}"


def _nearest(word: str, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def range_text(key: str) -> str:
    """Return the type and range of parameter `key` in words, for help texts and documentation."""
    schema = Params.model_json_schema()["properties"][key]
    return _schema_text(schema)


def _schema_text(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(schema["enum"])
    if "pattern" in schema:
        return "text"
    if schema["type"] == "array":
        return f"list of {_schema_text(schema['items'])}"
    text = {"integer": "int", "number": "float", "boolean": "true | false", "string": "text"}[schema["type"]]
    signs = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
    limits = [f"{sign} {schema[name]:g}" for name, sign in signs if name in schema and schema[name] < 2**32]
    return " ".join([text, *limits])
