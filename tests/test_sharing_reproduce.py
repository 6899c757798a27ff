"""The paper's figures: what is drawn, what is said of them, and what the stand-in is."""

import csv

import numpy as np
import pytest

from distadmm.data.table import Table
from distadmm.papers import sharing, sharing_figures


def run(*arguments):
    return sharing.main([str(argument) for argument in arguments])


def test_figure_three_agrees_and_leaves_its_numbers(tmp_path, capsys):
    assert run("--figure", "3a", "--out", tmp_path / "r") == 0
    text = capsys.readouterr().out
    assert "more features help party 1.  Here: agrees" in text
    with open(tmp_path / "r" / "figure-3a.csv") as file:
        loss = {row["curve"]: float(row["test_loss"]) for row in csv.DictReader(file)}
    assert loss["all features"] < loss["sigma 0"] < loss["sigma 10"] < loss["sigma 100"]
    assert (tmp_path / "r" / "figure-3a.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "r" / "agreement.md").read_text() in text + "\n"


def test_figure_one_compares_with_sgd(tmp_path, capsys):
    assert run("--figure", "1a", "--epochs", 12, "--out", tmp_path / "r") == 0
    assert "Here: agrees" in capsys.readouterr().out


@pytest.fixture
def images(monkeypatch):
    """A small table in the place of the one made from images."""
    rng = np.random.default_rng(0)

    def small(path):
        y = np.tile([-1.0, 1.0], 60)
        X = rng.normal(size=(120, 48)) + 0.3 * y[:, None] * (np.arange(48) < 12)
        names = tuple(f"x{j}" for j in range(48))
        parts = (slice(0, 80), slice(80, 120))
        return tuple(Table(X[part], y[part], names, "gisette stand-in", "none", "none") for part in parts)

    monkeypatch.setattr("distadmm.data.gisette.build_standin", small)
    monkeypatch.setitem(sharing.WIDTHS, "gisette", (20, 20, 8))
    sharing.task.cache_clear()
    yield "digits.npz"
    sharing.task.cache_clear()


def test_the_wide_figures_are_called_a_stand_in(images, tmp_path, capsys):
    assert run("--figure", "3b", "--images", images, "--epochs", 4, "--out", tmp_path / "r") == 0
    text = capsys.readouterr().out
    assert "gisette stand-in" in text
    assert "early stopping" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--figure", "2a"], "needs --gisette FILE"),
        (["--gisette", "x"], "go together"),
        (["--figure", "4a"], "choose one of"),
        (["--epochs", "1"], "needed: 2 or more"),
        (["--figure", "2b", "--images", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_input_is_one_line(arguments, expected, tmp_path, capsys):
    assert run(*arguments, "--out", tmp_path / "r") == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert expected in error


def test_a_verdict_can_be_that_it_does_not_agree():
    rows = [
        {"figure": "3a", "data": "a9a", "curve": name, "epoch": 1, "objective": 1.0, "test_loss": loss}
        for name, loss in (("sigma 0", 0.5), ("party 1 alone", 0.3), ("all features", 0.4))
    ]
    assert "does not agree" in sharing_figures.verdicts(rows, ("3a",))
