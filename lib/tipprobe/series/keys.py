"""What a stage's result depends on, as hashes: equal keys mean that nothing needs to be computed again.

Two keys are kept.  The *stage key* covers everything: notebook, parameters, input files, the library
modules that the notebook reaches through its imports, and the keys of the stages before it.  The *resume
key* covers only what would make partial results wrong; it leaves out the notebook's narration, modules that
draw and lay out, and list parameters that only add runs beside the existing ones.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tipprobe import paths
from tipprobe.errors import ParameterError
from tipprobe.series import notebooks
from tipprobe.series.params import NOT_IN_KEY
from tipprobe.series.stages import StageSpec

#: Raised by hand when the meaning of stored files changes without a change in the modules that a notebook
#: imports.
SCHEMA = 1

#: The machinery that runs notebooks; it cannot change what they compute.
MACHINERY = ("tipprobe.series", "tipprobe.cli")
#: Modules that lay out results which are computed elsewhere, by the last part of their names.
PRESENTATION = frozenset({"figures", "tables", "show", "show_proposer", "style", "plotting", "reported"})

#: Files up to this size are identified by their content, larger ones by size and time of change.
CONTENT_HASH_LIMIT = 64 * 2**20


def sha256(data: bytes | str) -> str:
    """Return the SHA-256 of `data` in hex."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def json_hash(value: Any) -> str:
    """Return the SHA-256 of `value` as canonical JSON."""
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False))


def file_hash(path: Path) -> str:
    """Return what identifies the content of a file; see `CONTENT_HASH_LIMIT`."""
    stat = path.stat()
    if stat.st_size > CONTENT_HASH_LIMIT:
        return f"size-{stat.st_size}-mtime-{stat.st_mtime_ns}"
    return sha256(path.read_bytes())


def path_hash(path: Path) -> str:
    """Return what identifies a file, or all files below a folder."""
    if path.is_file():
        return file_hash(path)
    return json_hash({str(p.relative_to(path)): file_hash(p) for p in sorted(path.rglob("*")) if p.is_file()})


def module_file(name: str) -> Path | None:
    """Return the source file of the package's module `name`, None if there is no such module."""
    if name != "tipprobe" and not name.startswith("tipprobe."):
        return None
    base = paths.PACKAGE.joinpath(*name.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def imported_modules(source: str, module: str = "", is_package: bool = False) -> set[str]:
    """Return the package's modules that Python code refers to.

    Found are import statements anywhere in the code, and text constants that name a module
    (``"tipprobe.x.y"``) or a file of the same package (``"worker.py"``), since that is how worker processes
    are started.  A name imported from a package counts as imported from the module that defines it, so that
    a package may offer its parts at one place without tying them to each other.

    Args:
        source: the code; IPython's magic lines are ignored.
        module: name of the module it stands in, for relative imports; ``""`` for a notebook.
        is_package: whether that module is a package's ``__init__``.
    """
    code = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
    package = module if is_package else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(names=aliases):
                target = _import_target(node, package)
                names.update(_origin(target, alias.name) for alias in aliases)
            case ast.Constant(value=str(text)) if re.fullmatch(r"tipprobe(\.\w+)+", text):
                names.add(text)
            case ast.Constant(value=str(text)) if package and re.fullmatch(r"\w+\.py", text):
                names.update(_modules_in_files(package, text))
    return {name for name in names if module_file(name)}


def _modules_in_files(package: str, file_name: str) -> set[str]:
    """Return the modules in files called `file_name` in the folder of `package` and below."""
    folder = paths.PACKAGE.joinpath(*package.split(".")[1:])
    files = (path.relative_to(paths.PACKAGE).with_suffix("") for path in folder.rglob(file_name))
    return {".".join(("tipprobe", *file.parts)) for file in files}


def _import_target(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module that a ``from`` statement in `package` imports from."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    stem = ".".join(parts[: len(parts) - node.level + 1])
    return f"{stem}.{node.module}" if node.module else stem


def _origin(target: str, name: str) -> str:
    """Return the module that ``from target import name`` gets `name` from."""
    if module_file(f"{target}.{name}"):
        return f"{target}.{name}"
    path = module_file(target)
    if path is None or path.name != "__init__.py":
        return target
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _origin(_import_target(node, target), alias.name)
    return target


def module_closure(sources: Iterable[str], presentation: bool = True) -> dict[str, Path]:
    """Return ``{module: file}`` of everything that `sources` reach inside the package, parents included.

    The machinery is neither returned nor followed; without `presentation` that goes for its modules too.
    """
    found: dict[str, Path] = {}
    parents: dict[str, Path] = {}
    queue = sorted(set().union(*(imported_modules(source) for source in sources)))
    while queue:
        name = queue.pop()
        path = module_file(name)
        if path is None or name in found or _is_machinery(name):
            continue
        if not presentation and name.rpartition(".")[2] in PRESENTATION:
            continue
        found[name] = path
        is_package = path.name == "__init__.py"
        queue.extend(imported_modules(path.read_text(encoding="utf-8"), name, is_package))
        # A parent's code runs, but what it offers for others to import does not matter here.
        while name := name.rpartition(".")[0]:
            parents[name] = paths.PACKAGE.joinpath(*name.split(".")[1:], "__init__.py")
    return dict(sorted((parents | found).items()))


def _is_machinery(name: str) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in MACHINERY)


def library_hashes(modules: Mapping[str, Path]) -> dict[str, str]:
    """Return ``{file relative to the package: hash}`` of `modules` and their packages' data files."""
    files = set(modules.values())
    for path in modules.values():
        # The top package's data lies in its sub-packages, which count when they are imported themselves.
        if path.name == "__init__.py" and path.parent != paths.PACKAGE:
            files.update(_data_files(path.parent))
    return {str(path.relative_to(paths.PACKAGE)): file_hash(path) for path in sorted(files)}


def _data_files(folder: Path) -> list[Path]:
    """Return what a package holds besides modules: prompts, tables, weights, programs that are run as files.

    Modules are followed by their imports, and sub-packages own their files.
    """
    found = []
    is_package = (folder / "__init__.py").exists()
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")):
            continue
        if path.is_dir() and not (path / "__init__.py").exists():
            found.extend(_data_files(path))
        elif path.is_file() and not (is_package and path.suffix == ".py"):
            found.append(path)
    return found


def own_params(spec: StageSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `values` that the stage's notebook names in its parameters cell.

    Raises:
        ParameterError: the notebook names a parameter that `tipprobe.series.params` does not know.
    """
    own = notebooks.parameters(spec.notebook)
    unknown = [name for name in own if name not in values]
    if unknown:
        raise ParameterError(f"{spec.notebook.name} has a parameter {unknown[0]!r} that no profile can hold")
    return {name: values[name] for name in own}


def key_parts(spec: StageSpec, params: Mapping[str, Any], upstream: Mapping[str, Mapping[str, str]]) -> dict:
    """Return everything that a stage's result depends on, by part, as JSON values.

    Args:
        spec: the stage.
        params: its own parameters, see `own_params`.
        upstream: for each stage it reads from, the `key` and `resume_key` recorded there.
    """
    body = notebooks.code_cells(spec.notebook)
    relevant = {name: value for name, value in params.items() if name not in NOT_IN_KEY}
    files = {
        name: path_hash(paths.resolve(value))
        for name, value in relevant.items()
        if isinstance(value, str) and _is_path(value)
    }
    modules = module_closure(body)
    results = module_closure(body, presentation=False)
    return {
        "schema": SCHEMA,
        "notebook": json_hash(body),
        "params": relevant,
        "input files": files,
        "library": library_hashes(modules),
        "computing library": json_hash(library_hashes(results)),
        "upstream": {name: keys["key"] for name, keys in upstream.items()},
        "upstream resume": {name: keys["resume_key"] for name, keys in upstream.items()},
    }


def _is_path(value: str) -> bool:
    """Whether a parameter's value names something on disk (and not, say, a hub id)."""
    return ("/" in value or "." in value) and len(value) < 1000 and paths.resolve(value).exists()


def stage_key(parts: Mapping[str, Any]) -> str:
    """Return the key of a stage's finished result."""
    left_out = ("computing library", "upstream resume")
    return json_hash({name: part for name, part in parts.items() if name not in left_out})


def resume_key(spec: StageSpec, parts: Mapping[str, Any]) -> str:
    """Return the key under which partial results may be continued."""
    return json_hash(_resume_parts(spec, parts))


def _resume_parts(spec: StageSpec, parts: Mapping[str, Any]) -> dict[str, Any]:
    names = ("schema", "input files", "computing library", "upstream resume")
    params = {name: value for name, value in parts["params"].items() if name not in spec.extendable}
    return {name: parts[name] for name in names} | {"params": params}


def explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Say in a few words what makes two `key_parts` differ, ``""`` if nothing does."""
    reasons = []
    for part in ("params", "input files", "library", "upstream"):
        before, now = old.get(part, {}), new[part]
        for name in sorted(set(before) | set(now)):
            if before.get(name) == now.get(name):
                continue
            match part:
                case "params":
                    change = f"{_short(before.get(name))} -> {_short(now.get(name))}"
                    reasons.append(f"parameter {name}: {change}")
                case "input files":
                    reasons.append(f"the file given as {name} changed")
                case "library":
                    reasons.append(f"library file {name} changed")
                case "upstream":
                    reasons.append(f"stage {name} changed")
    if old.get("notebook") != new["notebook"]:
        reasons.append("the notebook's code changed")
    if old.get("schema") != new["schema"]:
        reasons.append("the format of stored results changed")
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ", ".join(reasons[:3]) + more


def _short(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
