"""The paper's figures: what is drawn, what is said of them, and what the stand-in is."""

import csv
import hashlib

import numpy as np
import pytest

from distadmm import __main__ as verbs
from distadmm.data.table import Table
from distadmm.papers import sharing


def run(*arguments):
    return sharing.main([str(argument) for argument in arguments])


def test_figure_three_agrees_and_leaves_its_numbers(tmp_path, capsys):
    assert run("--figure", "3a", "--seeds", 1, "--epochs", 12, "--out", tmp_path / "r") == 0
    text = capsys.readouterr().out
    assert "more features help party 1.  Here: agrees" in text
    with open(tmp_path / "r" / "figure-3a.csv") as file:
        loss = {row["curve"]: float(row["test_loss"]) for row in csv.DictReader(file)}
    assert loss["all features"] < loss["sigma 0"] < loss["sigma 10"] < loss["sigma 100"]
    assert (tmp_path / "r" / "figure-3a.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "r" / "figure-3a.md").read_text() in text


def test_figure_one_compares_with_sgd(tmp_path, capsys):
    assert run("--figure", "1a", "--epochs", 12, "--seeds", 1, "--out", tmp_path / "r") == 0
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
    assert "stopped early" in text
    assert "held-out fifth of the training rows" in text  # test rows choose no epoch


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


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share" / "distadmm" / "gisette"


def test_what_was_added_is_used_and_must_not_change(images, shelf, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / images).write_bytes(b"images")
    words = ["data", "add", "gisette", "--from", images, "--licence", "CC BY"]
    assert verbs.main(words) == 0
    shown = capsys.readouterr().out
    assert hashlib.sha256(b"images").hexdigest() in shown
    assert "licence: CC BY" in shown
    (tmp_path / images).unlink()  # a copy is kept
    assert run("--figure", "3b", "--quick", "--epochs", 3, "--out", tmp_path / "r") == 0
    assert "gisette stand-in" in capsys.readouterr().out
    (shelf / images).write_bytes(b"other")
    assert run("--figure", "3b", "--out", tmp_path / "s") == 2
    assert "is not what was added" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["add"], "Write: data add gisette --from FILE"),
        (["add", "gisette"], "Write: data add gisette --from FILE"),
        (["add", "mnist", "--from", "x"], "Write: data add gisette --from FILE"),
        (["add", "gisette", "--from", "train"], "give them by --test FILE"),
        (
            ["add", "gisette", "--from", "few", "--test", "more"],
            "(1, 2) rows; needed: those of gisette_scale",
        ),
        (["add", "gisette", "--from", "none.npz"], "none.npz"),
    ],
)
def test_nothing_is_kept_of_what_cannot_be_read(words, expected, shelf, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few").write_text("+1 1:0.5 5000:1\n")
    (tmp_path / "more").write_text("+1 1:0.5 5000:1\n-1 2:0.5\n")
    assert verbs.main(["data", *words]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert expected in error
    assert not shelf.exists()
