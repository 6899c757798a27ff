"""The paper's figures: what is drawn, what is said of them, and what the stand-in is."""

import csv

import numpy as np
import pytest

from distadmm.errors import InputError
from distadmm.reproduce import gisette, sharing, sharing_figures


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
def images(tmp_path, monkeypatch):
    """Blobs in the place of digits; a small set of the same recipe."""
    monkeypatch.setattr(gisette, "REAL", 240)
    monkeypatch.setattr(gisette, "TRAINING", 80)
    monkeypatch.setattr(gisette, "TESTING", 40)
    monkeypatch.setitem(sharing.WIDTHS, "gisette", (200, 200, 80))
    rng = np.random.default_rng(0)
    digit = np.repeat([4, 9], 70)
    img = rng.integers(0, 60, (140, 28, 28))
    img[digit == 4, 6:10, 8:14] += 150
    path = tmp_path / "digits.npz"
    np.savez(path, img=img.astype(np.uint8), digit=digit)
    sharing.task.cache_clear()
    return path


def test_the_stand_in_follows_its_recipe(images):
    found = gisette.stand_in(images)
    assert found.name == "gisette stand-in"
    assert found.X.shape == (80, 480)
    assert found.X_test.shape == (40, 480)
    assert found.y.sum() == found.y_test.sum() == 0
    assert found.X.min() == -1
    assert found.X.max() == 1
    other = gisette.stand_in(images)
    assert np.array_equal(found.X, other.X)


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
        (["--epochs", "1"], "at least 2"),
        (["--figure", "2b", "--images", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_input_is_one_line(arguments, expected, tmp_path, capsys):
    assert run(*arguments, "--out", tmp_path / "r") == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert expected in error


def test_images_of_other_digits_are_refused(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, img=np.zeros((4, 784), np.uint8), digit=np.array([1, 4, 9, 9]))
    with pytest.raises(InputError, match="fours and nines alone"):
        gisette.stand_in(path)


def test_a_verdict_can_be_that_it_does_not_agree():
    rows = [
        {"figure": "3a", "data": "a9a", "curve": name, "epoch": 1, "objective": 1.0, "test_loss": loss}
        for name, loss in (("sigma 0", 0.5), ("party 1 alone", 0.3), ("all features", 0.4))
    ]
    assert "does not agree" in sharing_figures.verdicts(rows, ("3a",))
