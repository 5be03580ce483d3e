"""Predictions and simulations as a user meets them: repr, print, notebooks, sentences."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

from initscope import parse, predict, simulate, simulate_gradients
from initscope.finite import GradientSimulation, Simulation
from initscope.networks import Prediction

X = torch.eye(8)[:3]
Y = torch.eye(8)[3:6]
NET = parse("2x(dense(32) relu)")


class Cells(HTMLParser):
    """The text of all cells of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


@pytest.fixture(params=["prediction", "simulation", "gradients"])
def result(request: pytest.FixtureRequest) -> Prediction | Simulation | GradientSimulation:
    if request.param == "prediction":
        return predict(NET, X, Y)
    return simulate(NET, X, Y, draws=5) if request.param == "simulation" else simulate_gradients(NET, X, draws=5)


def test_shown_in_every_way(result: Prediction | Simulation | GradientSimulation) -> None:
    assert repr(result).startswith(type(result).__name__ + "(")
    assert len(repr(result)) < 120
    assert "\n" not in repr(result)
    text = str(result)
    assert "\x1b" not in text
    assert all(line == line.rstrip() and len(line) <= 100 for line in text.splitlines())
    assert [row[0] for row in Cells(result._repr_html_()).rows] == ["layer", *(layer.name for layer in result.layers)]
    for layer in result.layers:
        assert f" {layer.name} " in text
    assert 1 <= result.summary().count(". ") <= 2
    assert result.summary().endswith(".")


def test_numbers_of_the_prediction() -> None:
    found = predict(parse("dense(100) relu"), X, Y)
    assert repr(found) == "Prediction(3 pairs, 2 layers, cosine 0.0000 -> 0.3183, exact)"
    assert Cells(found._repr_html_()).rows[-1] == ["2 relu", "1", "0.3183", "0.3183 .. 0.3183", "71.44°", "exact"]
    assert found.summary() == (
        "3 pairs through 2 layers: the mean angle goes from 90° to 71.4° (cosine 0.0000 -> 0.3183); it changes most at "
        "2 relu, 90° -> 71.4°. At the output the root mean square of a unit is 1 times the input's. All numbers are exact."
    )


def test_simulated_layers_are_said() -> None:
    images = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    found = predict(parse("conv3 relu maxpool2 gap"), images, images.flip(0))
    assert "exact before 3 maxpool2 and simulated from there on, the output's cosine to ± " in found.summary()


def test_wanted_precision_is_said() -> None:
    assert "not yet the 1e-06 asked for." in simulate(NET, X, Y, draws=5, until=1e-6).summary()
    assert ", as 1.9 asked for." in simulate(NET, X, Y, draws=50, until=1.9).summary()


def test_long_networks_keep_their_ends() -> None:
    found = predict(parse("100x(dense relu)"), X, Y)
    rows = Cells(found._repr_html_()).rows
    assert len(rows) == 41
    assert rows[21][0] == "… 162 more"
    assert (rows[20][0], rows[22][0]) == ("19 dense(64)", "182 relu")
    assert rows[-1][0] == "200 relu"
    assert len(str(found).splitlines()) == 44


def test_long_names_never_cut_numbers() -> None:
    found = predict(parse("dense sum(dense relu dense relu dense relu | dense tanh dense tanh dense tanh) relu"), X, Y)
    line = next(line for line in str(found).splitlines() if " 2 sum" in line)
    assert "…" in line[:40]
    assert str(found).count("…") == 1


def test_names_are_escaped() -> None:
    found = predict(NET, X, Y)
    layers = tuple(replace(layer, name="<script>&") for layer in found.layers)
    page = replace(found, layers=layers)._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;&amp;" in page


def test_undefined_angles_are_said() -> None:
    with pytest.warns(UserWarning, match="zero"):
        found = predict(NET, torch.zeros(1, 8), torch.ones(1, 8))
    assert "undefined" in str(found)
    assert "from undefined to undefined" in found.summary()
    assert repr(found) == "Prediction(1 pair, 4 layers, cosine nan -> nan, exact)"
