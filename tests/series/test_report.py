import base64
import io
import json
import re

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from PIL import Image

from tipprobe.evaluation.style import save_figure
from tipprobe.series import report
from tipprobe.series.params import load_params
from tipprobe.series.stages import STAGES


def test_the_report_is_whole_and_asks_no_host_for_anything(finished):
    folder = finished.out / "report"
    pages = sorted(path.name for path in folder.glob("*.html"))
    assert pages == [*(f"{stage.name}.html" for stage in STAGES), "index.html"]
    for page in folder.glob("*.html"):
        text = page.read_text()
        assert len(text.encode()) < report.MAX_PAGE_BYTES
        assert "<script" not in text
        for target in re.findall(r"""(?:src|href)=["']?([^"'\s>]+)""", text):
            if not target.startswith(("data:", "#")):
                assert (folder / target).is_file(), f"{page.name} refers to {target}"
        assert "://" not in re.sub(r'xmlns="[^"]*"', "", text)
        assert "url(" not in text and "@import" not in text


def test_the_first_page_says_what_matters(finished):
    text = (finished.out / "report" / "index.html").read_text()
    for expected in (
        "profile minicode",
        "Stand-in model",
        "minicode-1m",
        "ERPO beats the base model",
        "reproduced",
        "answer <b>42</b>",
        f"learning_rate: {load_params('minicode').learning_rate}",
        "not a git checkout",
        'src="figures/07_evaluation/x.png"',
        'href="figures/07_evaluation/x.csv"',
        "Of 1 claim of ERPO, this run finds 1 reproduced, 0 partly, 0 contradicted",
    ):
        assert expected in text, expected


def test_the_first_page_has_the_tables_of_both_halves(done_project):
    for name in ("main_table", "tips_main_table"):
        (done_project.out / "07_evaluation" / f"{name}.md").write_text(
            f"| {name} of this run |\n|---|\n| 1 |\n"
        )
    assert done_project.run("report", str(done_project.out)).returncode == 0
    text = (done_project.out / "report" / "index.html").read_text()
    assert text.index("main_table of this run") < text.index("tips_main_table of this run")


def test_a_notebooks_page_has_its_code_folded_and_its_formulas_drawn(finished):
    text = (finished.out / "report" / "07_evaluation.html").read_text()
    assert '<details class="input"><summary>code: Does the work</summary>' in text
    assert "<math" in text and "<mfrac>" in text and "MATHxx" not in text
    assert "parameters of this run" in text


def test_an_unfinished_series_is_reported_as_such(done_project):
    (done_project.out / "07_evaluation" / "done.json").unlink()
    (done_project.out / "run.json").unlink()
    result = done_project.run("report", str(done_project.out))
    assert result.returncode == 0, result.stderr
    text = (done_project.out / "report" / "index.html").read_text()
    assert "not finished" in text and "07_evaluation.html" in text


def test_a_notebook_that_a_kill_tore_has_no_page_and_stops_no_report(done_project):
    notebook = done_project.out / "notebooks" / "07_evaluation.ipynb"
    notebook.write_text(notebook.read_text()[:1000])
    result = done_project.run("report", str(done_project.out))
    assert result.returncode == 0, result.stderr
    assert "07_evaluation.html" not in (done_project.out / "report" / "index.html").read_text()


def test_formulas_are_told_from_money_and_code():
    formulas: list[str] = []
    text = report._hide_formulas(
        "costs $5 and $6, but $x_1$ and $$\\sum_i s_i$$ and `$not$`\n```\n$nor_this$\n```\n", formulas
    )
    assert len(formulas) == 2
    assert "costs $5 and $6" in text and "`$not$`" in text and "$nor_this$" in text
    assert 'display="block"' in formulas[1]


def test_a_formula_that_cannot_be_converted_stays_readable():
    assert report.formula_html("a^b^c < d", display=False) == "<code>a^b^c &lt; d</code>"


def executed(path, cells):
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, path)
    return path


def output_cell(**data):
    return nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("display_data", data=data)])


def test_a_page_of_large_figures_is_brought_below_the_limit(tmp_path):
    buffer = io.BytesIO()
    rng = np.random.default_rng(0)
    shades = rng.integers(0, 4, (900, 900, 3)) * 60 + np.arange(900)[:, None, None] // 16
    Image.fromarray(shades.astype("uint8")).save(buffer, "PNG")
    image = base64.b64encode(buffer.getvalue()).decode()
    cells = [output_cell(**{"image/png": image}) for _ in range(3_500_000 // len(image) + 1)]
    body, _ = report.notebook_body(executed(tmp_path / "n.ipynb", cells))
    assert len(image) * len(cells) > report.MAX_PAGE_BYTES > len(body)
    assert body.count("<img") == len(cells)


def test_endless_text_is_cut_and_says_so(tmp_path):
    stream = nbformat.v4.new_output("stream", name="stdout", text="a line\n" * 100_000)
    cell = nbformat.v4.new_code_cell("1", outputs=[stream])
    body, _ = report.notebook_body(executed(tmp_path / "n.ipynb", [cell]))
    assert len(body) < 40_000 and "680,000 more characters in the executed notebook" in body


def test_scripts_and_tokens_in_outputs_do_not_reach_the_page(tmp_path):
    cells = [
        output_cell(**{"application/javascript": "alert(1)"}),
        output_cell(**{"text/plain": "token hf_abcdefghijklmnopqrstuvwxyz"}),
    ]
    body, _ = report.notebook_body(executed(tmp_path / "n.ipynb", cells))
    assert "alert" not in body and "hf_abc" not in body and "redacted" in body


@pytest.mark.parametrize(
    ("model", "noticed"),
    [("minicode-1m", True), ("/models/mine", True), ("Qwen/Qwen3-4B", False), ("", False)],
)
def test_a_stand_in_is_named(model, noticed):
    assert bool(report.standin_notice(model)) == noticed


def test_two_coders_are_both_named():
    params = {"model": "/models/mine", "environment": "minicode-1m", "tip_methods": ["base"]}
    assert "comes from mine and minicode-1m." in report.standin_notice(*report._models(params))
    assert report._models(params | {"tip_methods": []}) == ["/models/mine"]


def test_claims_keep_their_columns_and_verdicts_get_a_colour():
    table = report.claim_table(
        [
            {"claim": "a", "ours": 1.5, "interval": [0.5, 2.5], "verdict": "reproduced"},
            {"claim": "b", "ours": None, "n": 64, "verdict": "not reproduced"},
        ]
    )
    assert table["columns"] == ["claim", "ours", "interval", "verdict", "n"]
    (group,) = table["groups"]
    assert [cell["text"] for cell in group["rows"][0]] == ["a", "1.5", "[0.5, 2.5]", "reproduced", "–"]
    assert [cell["verdict"] for cell in group["rows"][1]] == ["", "", "", "bad", ""]
    assert report.claim_table(json.loads("[]")) is None


CLAIMS = [
    {"claim": "tips help", "where": "TipCoder, Table 1", "verdict": "partly"},
    {"claim": "ERPO raises pass@1", "where": "Table 1", "verdict": "contradicted"},
    {"claim": "it scales", "where": "Section 4", "verdict": "not attempted"},
]


def test_claims_of_two_papers_are_apart_and_counted():
    first, second = report.claim_table(CLAIMS)["groups"]
    assert first["title"].startswith("ERPO: ") and second["title"].startswith("TipCoder: ")
    assert "1 contradicted, 0 not reproduced, 1 not attempted" in first["title"]
    assert [row[0]["text"] for row in first["rows"]] == ["ERPO raises pass@1", "it scales"]
    assert [cell["text"] for cell in second["rows"][0]] == ["tips help", "Table 1", "partly"]


def test_what_was_found_is_one_sentence_with_the_size_of_the_run():
    judged = {"problems": {"in_domain": 8, "transfer": 4}, "samples": {"in_domain": 2, "transfer": 2}}
    judged |= {"seeds": 1, "claims": CLAIMS}
    assert report.finding(judged, {"n_tip_problems": 6, "tip_runs": 3}) == (
        "Of 3 claims of ERPO and TipCoder, this run (in domain 8 problems × 2 samples; "
        "transfer 4 problems × 2 samples; 1 training seed; tips on 6 problems × 3 runs) finds "
        "0 reproduced, 1 partly, 1 contradicted, 0 not reproduced, 1 not attempted."
    )
    assert report.finding({}, {}) == ""


def test_the_smoke_profile_says_that_its_numbers_mean_nothing():
    text = report.smoke_notice(load_params("smoke").model_dump())
    assert "8 problems, 4 samples of each, 3 rollout steps" in text and "numbers mean nothing" in text
    assert report.smoke_notice(load_params("minicode").model_dump()) == ""


def test_images_are_described_by_their_title_or_by_their_section(tmp_path):
    folder = tmp_path / "07_x" / "figures"
    for name, title in (("pass_a", "pass@k <in domain>"), ("pass_b", "transfer")):
        figure, axis = plt.subplots(figsize=(1, 1))
        axis.set_title(title)
        save_figure(figure, folder / name, [{"x": 1}])
    image = {"image/png": base64.b64encode((folder / "pass_a.png").read_bytes()).decode()}
    loop = output_cell(**image)
    loop.outputs.append(loop.outputs[0].copy())
    loop.source = 'save_figure(figure, stage.dir / "figures" / f"pass_{split}", data)'
    cells = [nbformat.v4.new_markdown_cell("# 07 X\n\ntext\n\n## 07.1 More `samples`\n\ntext")]
    cells += [loop, output_cell(**image)]
    (tmp_path / "notebooks").mkdir()
    body, title = report.notebook_body(executed(tmp_path / "notebooks" / "07_x.ipynb", cells))
    assert title == "07 X"
    alts = ["pass@k &lt;in domain&gt;", "transfer", "Figure: 07.1 More samples"]
    assert re.findall(r'alt="([^"]*)"', body) == alts
