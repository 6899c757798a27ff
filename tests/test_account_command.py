"""python -m distadmm account: answers without running anything."""

import json
import math

import pytest

from distadmm.commands import account
from distadmm.privacy.accounting.accountant import (
    DiscreteGaussian,
    Gaussian,
    KNorm,
    ObjectivePerturbation,
    Pure,
    epsilon,
    event_from_json,
    r_o_r,
)

PAPER = ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 8.2, 50, logistic=True)


def answer(capsys, *argv):
    assert account.main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_setting_of_the_paper_is_the_default(capsys):
    assert account.main([]) == 0
    out = capsys.readouterr().out
    rows = {line[:32].strip(): line.split()[-3:] for line in out.splitlines() if line[:1].isalpha()}
    published = [float(v) for v in rows["published (delta = 0)"]]
    tight = [float(v) for v in rows["PLD"]]
    assert published == [22.81, 22.81, 22.81]
    for shown, adjacency in zip(tight, ("add-remove", "replace", "label")):
        assert epsilon(PAPER, 1e-5, adjacency) <= shown <= epsilon(PAPER, 1e-5, adjacency) * 1.001
    assert tight[0] < 0.61
    assert tight[1] < 1.24
    assert rows["best proved"] == rows["PLD"]
    assert rows["PLD, R o R (as in 0.1)"] == ["none", "1.457", "none"]
    assert "the pair is no filter" in " ".join(out.split())
    assert "Theorem V.1" in out
    assert "not peer-reviewed" in out
    assert "Not covered:" in out


@pytest.mark.parametrize(
    ("argv", "event"),
    [
        (["--mechanism", "gamma"], PAPER),
        (
            ["--mechanism", "gaussian", "--sigma", "9", "--loss", "any", "--output-epsilon", "0.01"],
            ObjectivePerturbation("gaussian", 105, 9.0, 0.21875, 0.25, 8.2, 50, 0.01, False),
        ),
        (["--floor", "4.2", "--alpha", "2", "--count", "3"], ObjectivePerturbation(
            "gamma", 105, 2.0, 0.21875, 0.25, 4.2, 3, logistic=True)),
        (["--mechanism", "k-norm", "--sensitivity", "0.1"], KNorm(105, 1.0, 0.1, 50)),
        (["--mechanism", "gaussian-query", "--noise-multiplier", "26.4"], Gaussian(26.4, 50)),
        (["--mechanism", "discrete-gaussian", "--sigma", "20", "--sensitivity", "3"], DiscreteGaussian(20.0, 3.0, 50)),
        (["--mechanism", "pure", "--each", "0.1"], Pure(0.1, 50)),
        (["--mechanism", "output-gamma", "--C", "100", "--B", "50"], KNorm(105, 1.0, 4.0 / 8.2, 50)),
        (["--mechanism", "output-gaussian", "--sigma", "2", "--count", "4"], Gaussian(2.0 * 8.2 / 0.4375, 4)),
    ],
)  # fmt: skip
def test_the_event_and_its_price(capsys, argv, event):
    found = answer(capsys, *argv, "--adjacency", "replace")
    assert event_from_json(found["events"]["replace"]) == event
    assert found["epsilon"]["replace"]["best"] == epsilon(event, 1e-5, "replace")


def test_a_group_of_records(capsys):
    found = answer(capsys, "--records", "3", "--adjacency", "add-remove")
    assert found["epsilon"]["add-remove"]["best"] == epsilon(PAPER.group(3), 1e-5, "add-remove")
    assert found["epsilon"]["add-remove"]["published"] is None


@pytest.mark.parametrize(
    "argv",
    [
        ["--count", "25"],
        ["--mechanism", "gaussian"],
        ["--mechanism", "gaussian-query", "--delta", "1e-7"],
        ["--mechanism", "discrete-gaussian", "--sensitivity", "5", "--dimension", "9"],
    ],
)
def test_noise_for_a_budget(capsys, argv):
    found = answer(capsys, *argv, "--epsilon", "2", "--adjacency", "replace")
    assert 1.999 < found["epsilon"]["replace"]["best"] <= 2.0 + 1e-9


def test_what_0_1_claimed_of_a_replaced_record_stands_beside(capsys):
    found = answer(capsys)
    assert found["epsilon"]["replace"]["r_o_r"] == r_o_r(PAPER, 1e-5, "replace")
    assert found["epsilon"]["replace"]["r_o_r"] > found["epsilon"]["replace"]["best"]
    assert found["epsilon"]["add-remove"]["r_o_r"] is None
    alone = answer(capsys, "--adjacency", "add-remove")
    assert not any("R o R" in line for line in alone["assumptions"])
    assert {row["r_o_r"] for row in alone["epsilon"].values()} == {None}


def test_what_roundings_took_is_infinite_by_name(capsys):
    """1e18 losses of 1e-9 are 1e9 nats together, and each is below the rounding of 1."""
    many = "--mechanism", "k-norm", "--sensitivity", "1e-9", "--dimension", "5"
    for count in ("10000000000000000", "1e18"):
        (row,) = (found := answer(capsys, *many, "--count", count))["epsilon"].values()
        assert row["renyi"] is row["pld"] is None
        assert row["best"] == row["pure"] == pytest.approx(float(count) * 1e-9)
        assert any("infinite above 1e+08" in line for line in found["assumptions"])
    (row,) = (found := answer(capsys, *many, "--count", "1e8"))["epsilon"].values()
    assert not any("infinite" in line for line in found["assumptions"])
    assert row["pld"] > 1e-9
    exact = answer(capsys, "--mechanism", "gaussian-query", "--noise-multiplier", "1e9", "--count", "1e18")
    assert not any("infinite" in line for line in exact["assumptions"])


def test_a_delta_of_zero_is_pure(capsys):
    found = answer(capsys, "--delta", "0", "--adjacency", "replace")
    assert found["epsilon"]["replace"]["best"] == pytest.approx(PAPER.pure_epsilon("replace"))


@pytest.mark.parametrize(
    "argv",
    [
        ["--mechanism", "magic"],
        ["--mechanism", "gaussian"],
        ["--mechanism", "pure"],
        ["--mechanism", "k-norm", "--sensitivity", "0"],
        ["--sigma", "3"],
        ["--alpha", "nan"],
        ["--alpha", "-1"],
        ["--count", "0"],
        ["--records", "0"],
        ["--delta", "1"],
        ["--adjacency", "both"],
        ["--loss", "huber"],
        ["--epsilon", "2"],
        ["--epsilon", "2", "--adjacency", "replace", "--records", "2"],
        ["--epsilon", "inf", "--adjacency", "replace"],
        ["--epsilon", "2", "--adjacency", "replace", "--mechanism", "pure", "--each", "1"],
        ["--epsilon", "1e-9", "--delta", "0", "--adjacency", "replace"],
        ["--output-epsilon", "-1"],
        ["--dimension", "1.5"],
        ["--whatever"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, argv):
    assert account.main(argv) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.count("\n") == 1
    assert caught.err.startswith("distadmm account: ")


def test_nothing_infinite_reaches_json(capsys):
    assert account.main(["--mechanism", "gaussian", "--sigma", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["epsilon"]["replace"]["pure"] is None
    assert math.isfinite(found["epsilon"]["replace"]["pld"])
