"""Saved figures: three files, the same bytes each time."""

import matplotlib.pyplot as plt
import pandas as pd
from PIL import Image

from tipprobe.evaluation.style import MARKERS, PALETTE, figure_style, save_figure
from tipprobe.tips.trials import TITLES
from tipprobe.training.methods import METHODS


def drawn():
    with figure_style():
        figure, axis = plt.subplots()
        axis.plot([1, 2], [3, 4], label="a line")
        axis.legend()
        axis.set_title("text")
    return figure


def test_figures_are_saved_with_their_numbers_byte_for_byte(tmp_path):
    data = pd.DataFrame({"x": [1, 2], "y": [3.5, 1 / 3]})
    before = plt.get_fignums()  # other tests may have left some open
    first = save_figure(drawn(), tmp_path / "one" / "v1.2", data)
    second = save_figure(drawn(), tmp_path / "two" / "v1.2", data.to_dict("records"))
    assert [path.name for path in first] == ["v1.2.png", "v1.2.svg", "v1.2.csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"a line" in first[1].read_bytes()
    assert pd.read_csv(first[2])["y"].iloc[1] == 1 / 3
    assert plt.get_fignums() == before


def test_every_method_has_its_own_colour_and_marker():
    assert set(METHODS) <= set(PALETTE)
    assert set(PALETTE) == set(MARKERS)
    assert len({PALETTE[method] for method in METHODS}) == len(METHODS)
    assert len({MARKERS[method] for method in METHODS}) == len(METHODS)
    # The two families of methods are never in one figure, but for the model itself.
    assert len({(PALETTE[method], MARKERS[method]) for method in TITLES}) == len(TITLES)


def test_images_carry_their_title(tmp_path):
    figure = drawn()
    figure.axes[0].set_title("gain, €\nn = 3 < 4")
    png, svg, _ = save_figure(figure, tmp_path / "a", [{"x": 1}])
    assert Image.open(png).text["Title"] == "gain, € n = 3 < 4"
    assert "<dc:title>gain, € n = 3 &lt; 4</dc:title>" in svg.read_text(encoding="utf-8")
