"""The HTML report: one folder that opens offline, an index and a page per notebook, no script, no request."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import markdown2html
from PIL import Image
from pygments.formatters import HtmlFormatter

from tipprobe import __version__
from tipprobe.errors import StageError
from tipprobe.evaluation.claims import CONTRADICTED, NOT, OPEN, PARTLY, REPRODUCED
from tipprobe.evaluation.reported import is_stand_in
from tipprobe.evaluation.tables import SPLIT_TITLES, seeds_text
from tipprobe.files import read_json
from tipprobe.models.load import model_label
from tipprobe.series import keys
from tipprobe.series.progress import duration_text
from tipprobe.series.provenance import redact
from tipprobe.series.stage import PROVENANCE, STARTED, read_done
from tipprobe.series.stages import STAGES, StageSpec

TEMPLATES = Path(__file__).parent / "templates"
MAX_PAGE_BYTES = 3_000_000
MAX_TEXT_CHARS = 20_000
_MAIN_PACKAGES = ("torch", "transformers", "trl", "datasets", "numpy", "papermill")
SMOKE_PROFILE = "smoke"
_SMOKE_COUNTS = {
    "n_problems": "problems",
    "eval_samples": "samples of each",
    "steps": "rollout steps",
    "n_tip_problems": "problems for tips",
}
#: Papers whose claims are judged, in the order of the claims table.  The `where` of a claim begins with the
#: name of its paper, unless that is the first one.
PAPERS = {"ERPO": "ERPO: adaptation without labels", "TipCoder": "TipCoder: tips at test time"}
VERDICTS = (REPRODUCED, PARTLY, CONTRADICTED, NOT, OPEN)
_URL_TRAITS = (
    "mathjax_url",
    "require_js_url",
    "jquery_url",
    "mermaid_js_url",
    "mermaid_layout_elk_js_url",
    "jupyter_widgets_base_url",
    "widget_renderer_url",
)


def build_report(out: Path) -> Path:
    """Write ``<out>/report/`` from what the stages left in `out`, finished or not.

    Returns:
        the path of its ``index.html``.

    Raises:
        StageError: `out` holds no results of a series.
    """
    run = read_json(out / "run.json") or {}
    present = [stage for stage in STAGES if (out / stage.name).is_dir()]
    if not present:
        raise StageError(f"{out} holds no results of the series (no folder named like a stage)")
    folder = out / "report"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    stages = [_stage_facts(stage, out, run) for stage in STAGES]
    pages = [s for s in stages if s["href"]]
    params = _params(run, stages)
    shared = {
        "css": Markup(_css()),
        "pages": pages,
        "notices": [text for text in (smoke_notice(params), standin_notice(*_models(params))) if text],
        "footer": f"Made by tipprobe {__version__} with profile {params.get('profile', 'unknown')}.",
    }
    template = _templates().get_template("page.html.j2")
    for stage in pages:
        body, title = notebook_body(out / "notebooks" / f"{stage['name']}.ipynb")
        page = template.render(shared, title=title or stage["title"], here=stage["href"], body=Markup(body))
        (folder / stage["href"]).write_text(page, encoding="utf-8")
    index = _templates().get_template("index.html.j2").render(_index_values(out, folder, params, stages))
    heading = f"Profile {params.get('profile', 'unknown')}"
    page = template.render(shared, title=heading, here="index.html", body=Markup(index))
    (folder / "index.html").write_text(redact(page), encoding="utf-8")
    return folder / "index.html"


def _models(params: Mapping[str, Any]) -> list[str]:
    """Return the models that programs come from: tips are learnt with `environment`, tested with `model`."""
    names = ["model", "environment"] if params.get("tip_methods") else ["model"]
    return [str(params[name]) for name in names if params.get(name)]


def standin_notice(*models: str) -> str:
    """Return the sentence that sets stand-ins' numbers apart from the papers', ``""`` if none is needed."""
    labels = list(dict.fromkeys(model_label(model) for model in models if model))
    if not any(map(is_stand_in, labels)):
        return ""
    return (
        f"Stand-in model: every number measured here comes from {' and '.join(labels)}. Reported values "
        "beside them are the papers', for their own models and benchmarks: compare directions, not sizes."
    )


def smoke_notice(params: Mapping[str, Any]) -> str:
    """Return the sentence that says how little the smoke profile's numbers are, ``""`` for other profiles."""
    if params.get("profile") != SMOKE_PROFILE:
        return ""
    counts = ", ".join(
        f"{params[name]} {what}" for name, what in _SMOKE_COUNTS.items() if params.get(name) is not None
    )
    return (
        f"Smoke test: the counts are tiny{f' ({counts})' if counts else ''}, so that the whole series runs "
        "in minutes. It shows that everything works; its numbers mean nothing."
    )


def _stage_facts(stage: StageSpec, out: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    folder = out / stage.name
    done = read_done(folder)
    last = next((entry for entry in run.get("stages", ()) if entry["name"] == stage.name), {})
    # A notebook that was being written when its run was killed is not there for the reader.
    has_page = read_json(out / "notebooks" / f"{stage.name}.ipynb") is not None
    if done is not None:
        state, css, note = "done", "good", ""
    elif last.get("state") in ("failed", "stopped"):
        state, css, note = last["state"], "bad", "the same command goes on from there"
    elif (folder / STARTED).exists():
        state, css, note = "not finished", "warn", "the same command goes on from there"
    else:
        state, css, note = last.get("state", "not run"), "", last.get("reason", "")
    seconds = done["duration_s"] if done else last.get("duration_s", 0.0)
    return {
        "name": stage.name,
        "number": stage.number,
        "title": stage.title,
        "href": f"{stage.name}.html" if has_page else "",
        "state": state,
        "css": css,
        "note": note,
        "seconds": seconds,
        "time": duration_text(seconds) if seconds else "",
        "numbers": [(name, _value_text(value)) for name, value in (done or {}).get("summary", {}).items()],
        "params": (done or {}).get("params", {}),
        "provenance": read_json(folder / PROVENANCE) if done else None,
    }


def _params(run: Mapping[str, Any], stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run's parameters; without the runner's file, what the finished stages recorded."""
    merged: dict[str, Any] = {}
    for stage in stages:
        merged |= stage["params"]
    return merged | run.get("params", {})


def _index_values(
    out: Path, folder: Path, params: Mapping[str, Any], stages: list[dict[str, Any]]
) -> dict[str, Any]:
    records = [stage["provenance"] for stage in stages if stage["provenance"]]
    latest = max(records, key=lambda record: record["times"]["finished"], default={})
    total = sum(stage["seconds"] for stage in stages)
    claims = _claims(out)
    facts = [
        ("model", model_label(str(params.get("model", "-")))),
        ("problems adapted on", f"{params.get('n_problems', '-')} of {params.get('problems', '-')}"),
        ("methods", ", ".join(params.get("methods", ())) or "-"),
        ("seeds", ", ".join(str(seed) for seed in params.get("seeds", ())) or "-"),
        ("finished", _when(latest.get("times", {}).get("finished"))),
        ("run time", duration_text(total)),
    ]
    return {
        "heading": f"Test-time methods for a code model: profile {params.get('profile', 'unknown')}",
        "lead": (
            "Two ways to better programs at test time. Probes: the coder adapts to problems without labels; "
            "it writes inputs, its own programs vote on them, and the vote becomes the reward. Tips: the "
            "coder stays as it is, and a second model, which has learnt from other problems with tests, "
            "writes a tip before it programs. Hidden tests of what is evaluated are read once, at the end. "
            "Each page is one notebook of the series, executed."
        ),
        "finding": finding(claims, params),
        "facts": facts,
        "main_tables": _main_tables(out),
        "claims": claim_table(claims.get("claims", [])),
        "stages": stages,
        "total": duration_text(total),
        "figures": _figures(out, folder),
        "provenance": _provenance_rows(latest, params),
        "parameters": "\n".join(f"{name}: {json.dumps(value)}" for name, value in params.items()),
        "versions": "\n".join(f"{name}=={version}" for name, version in latest.get("versions", {}).items()),
    }


def _when(moment: str | None) -> str:
    """Return an ISO moment for people."""
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M} UTC" if moment else "-"


def _provenance_rows(record: Mapping[str, Any], params: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not record:
        return []
    code, machine = record["code"], record["machine"]
    commit = code["commit"] or code.get("note", "unknown")
    gpus = ", ".join(gpu["name"] for gpu in machine["gpus"]) or "none"
    versions = record["versions"]
    return [
        ("commit", commit + (" with uncommitted changes" if code.get("dirty") else "")),
        ("parameters (SHA-256)", keys.json_hash(dict(params))),
        ("library (SHA-256)", record["library_sha256"]),
        ("model revision", ", ".join(f"{k}: {v}" for k, v in record["models"].items()) or "-"),
        ("machine", f"{machine['cpu_cores']} cores, {machine['memory_gib']} GiB, {machine['platform']}"),
        ("GPU", gpus),
        ("Python", machine["python"]),
        ("packages", ", ".join(f"{name} {versions[name]}" for name in _MAIN_PACKAGES if name in versions)),
        ("peak memory", f"{record['peak_memory']['process_mib']:.0f} MiB in the last stage"),
    ]


def _main_tables(out: Path) -> list[Markup]:
    """Return the tables of both halves, of those that were run."""
    paths = [out / "07_evaluation" / f"{name}.md" for name in ("main_table", "tips_main_table")]
    return [Markup(markdown2html(path.read_text(encoding="utf-8"))) for path in paths if path.is_file()]


def _claims(out: Path) -> dict[str, Any]:
    """Return the evaluation's claims file, a list of claims or an object that holds one, as an object."""
    path = out / "07_evaluation" / "claims.json"
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {"claims": content}


def paper_of(claim: Mapping[str, Any]) -> str:
    """Return the key of `PAPERS` that a claim belongs to."""
    return next((name for name in PAPERS if str(claim.get("where", "")).startswith(name)), next(iter(PAPERS)))


def verdict_counts(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return how many claims have each verdict, those that none has included."""
    counts = Counter(str(claim.get("verdict")) for claim in claims)
    return ", ".join(f"{counts[name]} {name}" for name in dict.fromkeys((*VERDICTS, *counts)))


def finding(judged: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return in one sentence what became of the papers' claims and how large the run was; ``""`` without any.

    Args:
        judged: the evaluation's claims file.
        params: of the run.
    """
    claims = judged.get("claims", [])
    if not claims:
        return ""
    papers = {paper_of(claim) for claim in claims}
    sizes = []
    for split, problems in judged.get("problems", {}).items():
        sizes.append(f"{SPLIT_TITLES[split]} {problems} problems × {judged['samples'][split]} samples")
    if "seeds" in judged:
        sizes.append(seeds_text(judged["seeds"]))
    if "TipCoder" in papers and params.get("n_tip_problems"):
        sizes.append(f"tips on {params['n_tip_problems']} problems × {params['tip_runs']} runs")
    size = f" ({'; '.join(sizes)})" if sizes else ""
    names = " and ".join(name for name in PAPERS if name in papers)
    number = f"{len(claims)} claim{'s' * (len(claims) != 1)}"
    return f"Of {number} of {names}, this run{size} finds {verdict_counts(claims)}."


def claim_table(claims: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the claims table, None without claims.

    Returns:
        ``columns`` (all but ids) and ``groups``, one a paper in the order of `PAPERS`, each with its
        ``title`` and the cells of its ``rows`` in the records' order.
    """
    if not claims:
        return None
    columns = [name for name in dict.fromkeys(key for claim in claims for key in claim) if name != "id"]
    groups = []
    for paper, title in PAPERS.items():
        part = [claim for claim in claims if paper_of(claim) == paper]
        rows = [
            [
                {"text": _claim_text(name, claim, paper), "verdict": _verdict_css(name, claim)}
                for name in columns
            ]
            for claim in part
        ]
        if rows:
            groups.append({"title": f"{title} ({verdict_counts(part)})", "rows": rows})
    return {"columns": [name.replace("_", " ") for name in columns], "groups": groups}


def _claim_text(name: str, claim: Mapping[str, Any], paper: str) -> str:
    text = _value_text(claim.get(name))
    return text.removeprefix(f"{paper}, ") if name == "where" else text  # the group is headed by the paper


def _verdict_css(name: str, claim: Mapping[str, Any]) -> str:
    if name != "verdict":
        return ""
    text = str(claim.get(name)).lower()
    for css, starts in (
        ("none", ("not attempted", "n/a", "no ")),
        ("bad", ("not", "contradict", "opposite")),
        ("warn", ("part", "within", "inconclusive", "undecided")),
        ("good", ("reproduced", "yes", "holds")),
    ):
        if text.startswith(starts):
            return css
    return ""


def _value_text(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
        case int():
            return f"{value:,}"
        case [float() | int() as low, float() | int() as high]:
            return f"[{_value_text(low)}, {_value_text(high)}]"
        case list():
            return ", ".join(_value_text(item) for item in value)
        case dict():
            return ", ".join(f"{key} {_value_text(item)}" for key, item in value.items())
    return str(value)


def _figures(out: Path, folder: Path) -> list[dict[str, Any]]:
    """Copy the stages' figures, with the numbers they show, into the report and return them in order."""
    figures = []
    for stage in STAGES:
        for png in sorted((out / stage.name / "figures").glob("*.png")):
            target = folder / "figures" / stage.name
            target.mkdir(parents=True, exist_ok=True)
            links = []
            for path in (png, png.with_suffix(".svg"), png.with_suffix(".csv")):
                if path.is_file():
                    shutil.copy2(path, target / path.name)
                    links.append((path.suffix[1:], f"figures/{stage.name}/{path.name}"))
            name = png.stem.replace("_", " ")
            figures.append(
                {
                    "stage": stage.number,
                    "name": name,
                    "alt": _image_title(png) or name,
                    "src": links[0][1],
                    "links": links[1:],
                }
            )
    return figures


def _image_title(png: Path) -> str:
    """Return the title that `tipprobe.evaluation.style.save_figure` left in an image, ``""`` without one."""
    with Image.open(png) as image:
        return image.info.get("Title", "")


def notebook_body(path: Path) -> tuple[str, str]:
    """Return an executed notebook as an HTML fragment of limited size, and the text of its first heading."""
    notebook = nbformat.read(path, as_version=4)
    formulas: list[str] = []
    title = section = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = re.search(r"^#\s+(.+)$", cell.source, re.MULTILINE)
            title = title or (heading.group(1).strip() if heading else "")
            section = next(iter(re.findall(r"^#+\s+(.+)$", cell.source, re.MULTILINE)[::-1]), section)
            cell.source = _hide_formulas(cell.source, formulas)
        elif cell.cell_type == "code":
            cell.metadata["tipprobe_summary"] = _summary(cell)
            for output in cell.outputs:
                _shorten(output, formulas)
            _describe_images(cell, path.parent.parent / path.stem, section)
    body = _render(notebook, formulas, path)
    if len(body.encode()) > MAX_PAGE_BYTES - 50_000:
        for cell in notebook.cells:
            for output in cell.get("outputs", ()):
                _reduce_colours(output)
        body = _render(notebook, formulas, path)
    return redact(body), re.sub(r"[`*$]", "", title)


def _describe_images(cell: nbformat.NotebookNode, folder: Path, section: str) -> None:
    """Give the images of a cell a text for those who cannot see them.

    Args:
        cell: an executed code cell.
        folder: of the stage's results.  An image that the cell saved there too is described by the title of
            the saved one, any other by `section`.
        section: the heading that the cell stands under.
    """
    images = [output for output in cell.outputs if "image/png" in output.get("data", {})]
    saved: list[Path] = []
    for name in re.findall(r'"figures" / f?"([^"]+)"', cell.source):
        pattern = re.sub(r"\{[^}]*\}", "*", name)  # a name with a value in it stands for one figure a value
        saved += sorted((folder / "figures").glob(f"{pattern}.png"))
    titles = [_image_title(png) for png in saved] if len(saved) == len(images) else []
    for number, output in enumerate(images):
        title = titles[number] if titles else ""
        output.metadata["alt"] = title or re.sub(r"[`*$]", "", f"Figure: {section}" if section else "Figure")


def _render(notebook: nbformat.NotebookNode, formulas: list[str], path: Path) -> str:
    body, _ = _exporter().from_notebook_node(notebook, {"metadata": {"path": str(path.parent)}})
    return re.sub(r"MATHxx(\d+)xx", lambda match: formulas[int(match.group(1))], body)


@cache
def _exporter() -> HTMLExporter:
    exporter = HTMLExporter(
        template_name="notebook",
        extra_template_basedirs=[str(TEMPLATES)],
        embed_images=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    for trait in _URL_TRAITS:
        if exporter.has_trait(trait):
            setattr(exporter, trait, "")
    return exporter


def _summary(cell: nbformat.NotebookNode) -> str:
    """Return what a folded code cell is called: its first comment, else its id, and how long it is."""
    tags = cell.metadata.get("tags", ())
    if "injected-parameters" in tags:
        return "parameters of this run"
    if "parameters" in tags:
        return "parameters (defaults)"
    lines = cell.source.strip().splitlines()
    first = lines[0] if lines else ""
    if first.startswith("# "):
        return f"code: {first[2:]}"
    length = f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
    return f"code ({cell.get('id', '')}, {length})".replace("(, ", "(")


def _shorten(output: nbformat.NotebookNode, formulas: list[str]) -> None:
    """Cut text outputs that nobody reads to the end, and hide formulas in Markdown ones."""
    note = "\n... {:,} more characters in the executed notebook"
    if output.output_type == "stream" and len(output.text) > MAX_TEXT_CHARS:
        output.text = output.text[:MAX_TEXT_CHARS] + note.format(len(output.text) - MAX_TEXT_CHARS)
    data = output.get("data", {})
    for kind, text in list(data.items()):
        if kind == "text/markdown":
            data[kind] = _hide_formulas(text, formulas)
        elif kind == "text/plain" and len(text) > MAX_TEXT_CHARS:
            data[kind] = text[:MAX_TEXT_CHARS] + note.format(len(text) - MAX_TEXT_CHARS)


def _reduce_colours(output: nbformat.NotebookNode) -> None:
    """Store an embedded PNG with a palette of 256 colours, about a third of its size."""
    data = output.get("data", {})
    if "image/png" in data:
        image = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        buffer = io.BytesIO()
        image.quantize(256).save(buffer, "PNG", optimize=True)
        data["image/png"] = base64.b64encode(buffer.getvalue()).decode()


def _hide_formulas(text: str, formulas: list[str]) -> str:
    """Replace ``$...$`` outside code by marks, so that Markdown leaves formulas alone; see `_render`."""

    def replace(match: re.Match[str]) -> str:
        if match.group("code"):
            return match.group("code")
        source = match.group("block") or match.group("inline")
        formulas.append(formula_html(source, display=bool(match.group("block"))))
        return f"MATHxx{len(formulas) - 1}xx"

    return re.sub(
        r"(?P<code>```.*?```|`[^`\n]+`)"
        r"|\$\$(?P<block>.+?)\$\$"
        r"|(?<![\\$\w])\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$(?![\d$])",
        replace,
        text,
        flags=re.DOTALL,
    )


def formula_html(source: str, display: bool) -> str:
    """Return a LaTeX formula as MathML, which browsers draw by themselves; as code if that fails."""
    from latex2mathml.converter import convert

    try:
        return convert(source.strip(), display="block" if display else "inline")
    except Exception:  # the converter raises whatever its parser stumbles on
        return f"<code>{html.escape(source.strip())}</code>"


def _css() -> str:
    pygments = HtmlFormatter(style="default").get_style_defs(".highlight")
    return (TEMPLATES / "style.css").read_text(encoding="utf-8") + pygments


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
