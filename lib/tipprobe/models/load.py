"""Finding, loading and naming models: the embedded coders, checkpoint folders, GGUF files, hub ids."""

from __future__ import annotations

import difflib
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tipprobe.errors import DataError, ParameterError
from tipprobe.paths import PACKAGE, resolve

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: The coders that come with the package, and where their checkpoints lie.
EMBEDDED = {
    "minicode-1m": PACKAGE / "problems" / "minicode" / "weights" / "1m",
    "minicode-5m": PACKAGE / "problems" / "minicode" / "weights" / "5m",
}
#: Files that decide what a checkpoint computes; cards and training leftovers do not.
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".json", ".jinja", ".model", ".txt", ".gguf")


def resolve_model(name: str) -> str:
    """Return what `load_model` loads for `name`: an embedded coder's folder, an existing path, or a hub id.

    Raises:
        DataError: `name` is spelled like a path (it starts with ``.``, ``/`` or ``~``, ends in ``.gguf``, or
            has folders in folders) but nothing is there, or an embedded coder's checkpoint is missing from
            the installation.
    """
    if name in EMBEDDED:
        if not (EMBEDDED[name] / "config.json").is_file():
            raise DataError(
                f"the checkpoint of the embedded coder {name!r} is missing at {EMBEDDED[name]}; "
                "install the package again"
            )
        return str(EMBEDDED[name])
    path = resolve(name)
    if path.exists():
        return str(path)
    close = difflib.get_close_matches(name.lower(), EMBEDDED, n=1, cutoff=0.8)
    if close:
        raise DataError(f"no model {name!r}; did you mean {close[0]}?")
    if name.startswith((".", "/", "~")) or name.endswith(".gguf") or name.count("/") > 1:
        raise DataError(f"no model at {path}; give a checkpoint folder, a .gguf file or a hub id")
    return name


def model_label(name: str) -> str:
    """Return a short name for titles and file names: letters, digits, ``.``, ``_`` and ``-`` only.

    A training run's ``<run>/checkpoint`` is called by its run, a hub id by its last part.
    """
    parts = [part for part in Path(name.rpartition("@")[0] or name).parts if part != "/"]
    if len(parts) > 1 and parts[-1] == "checkpoint":
        parts.pop()
    label = parts[-1].removesuffix(".gguf") if parts else "model"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.") or "model"


def pick_device(device: str = "auto") -> str:
    """Return the torch device for `device`; ``auto`` is the first GPU if there is one, else the CPU.

    Raises:
        ParameterError: a GPU is asked for and there is none, or the device has no such name.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        return device
    if re.fullmatch(r"cuda(:\d+)?", device):
        index = int(device.partition(":")[2] or 0)
        if index < torch.cuda.device_count():
            return device
        raise ParameterError(
            f"device {device!r}: this machine shows {torch.cuda.device_count()} GPUs to PyTorch; "
            "set device to auto or cpu, or take a profile made for CPUs"
        )
    raise ParameterError(f"device {device!r} is not auto, cpu, cuda or cuda:N")


def load_model(
    name: str, device: str = "auto", dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer, ready to sample from (eval mode).

    Args:
        name: an embedded coder, a checkpoint folder, a ``.gguf`` file or a hub id (``owner/name``, optionally
            with ``@revision``).
        device: see `pick_device`.
        dtype: a floating type of torch by name; training wants ``float32``.

    Raises:
        DataError: nothing can be loaded under that name; the message says what was tried.
        ParameterError: the device or the type does not exist.
    """
    import torch

    target = pick_device(device)
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}.get(dtype)
    if kind is None:
        raise ParameterError(f"dtype {dtype!r} is not float32, bfloat16 or float16")
    where = resolve_model(name)
    if where.endswith(".gguf"):
        model, tokenizer = _load_gguf(Path(where), kind)
    else:
        model, tokenizer = _load_pretrained(where, kind)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    return model.to(target).eval(), tokenizer


def _load_pretrained(where: str, dtype: object) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path, revision = split_revision(where)
    if not Path(path).exists():
        hub_config(path, revision)  # one request that fails soon, before the many of the loaders
    try:
        model = AutoModelForCausalLM.from_pretrained(path, revision=revision, dtype=dtype)
    # Torn weights raise SafetensorError, weights of another shape RuntimeError.
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{where} is not a checkpoint that transformers can load: {first_line(error)}"
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{where} has no tokenizer that transformers can load (tokenizer.json and tokenizer_config.json "
            f"belong beside the weights): {first_line(error).rstrip(': ')}"
        ) from error
    return model, tokenizer


def hub_config(hub_id: str, revision: str | None) -> str:
    """Return the local path of a hub model's ``config.json``, downloading it if need be."""
    from transformers.utils.hub import cached_file

    try:
        return cached_file(hub_id, "config.json", revision=revision)
    except (OSError, ValueError) as error:
        raise DataError(
            f"model {hub_id!r} is neither a local path nor to be had from the hub: {first_line(error)} "
            "(check the spelling, the network and HF_TOKEN, or download it and give the folder)"
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, its type's name if there is none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _load_gguf(path: Path, dtype: object) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Read a GGUF file and copy its weights into a plain model, which can be trained and saved.

    The model that transformers builds from such a file counts as quantised and refuses ``save_pretrained``.
    """
    try:
        import gguf  # noqa: F401  (transformers reads the file through it)
    except ImportError as error:
        raise DataError("reading .gguf files needs the package 'gguf': pip install gguf") from error
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        packed = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a GGUF model that transformers can read: {error}") from error
    config = packed.config
    del config.quantization_config
    plain = type(packed)(config)
    plain.load_state_dict(packed.state_dict())
    plain.generation_config = packed.generation_config
    # Such files name the end token by id; the tokenizer built from them may call another one its end token.
    if isinstance(config.eos_token_id, int):
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(config.eos_token_id)
    return plain.to(dtype), tokenizer


def model_revision(name: str) -> str:
    """Return what identifies a model's weights: ``owner/name@commit``, or ``sha256:...`` over local files.

    Raises:
        DataError: the model is not found.
    """
    where = resolve_model(name)
    path = Path(where)
    if path.is_file():
        return f"sha256:{_hash([path])}"
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(WEIGHT_SUFFIXES))
        if not files:
            raise DataError(f"no checkpoint files in {path}")
        return f"sha256:{_hash(files)}"
    from transformers.utils.hub import extract_commit_hash

    hub_id, revision = split_revision(where)
    return f"{hub_id}@{extract_commit_hash(hub_config(hub_id, revision), None)}"


def split_revision(where: str) -> tuple[str, str | None]:
    """Split ``owner/name@revision``; a local path stays whole."""
    if "@" not in where or Path(where).exists():
        return where, None
    hub_id, _, revision = where.rpartition("@")
    return hub_id, revision


def _hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
