"""`plan istdp`: no row is read, the plan spends its budget, runs as it is printed, and costs less with more of it."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from distadmm import istdp
from distadmm.commands import compare, plan, plan_istdp, plan_public, shape
from distadmm.data import synthetic
from distadmm.errors import DONE, USAGE
from distadmm.methods.istdp import private
from distadmm.privacy.accounting import gaussian
from distadmm.problems.concave import make
from distadmm.problems.losses import Logistic
from distadmm.ranks.world import World

SMALL = ["--epsilon", "2", "--adjacency", "replace", "--rows", "600", "--columns", "3", "--runs", "1"]


def _table(path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [f"{a:.4f},{b:.4f},{rng.choice([-1, 1])}" for a, b in rng.random((60, 2))]
    path.write_text("a,b,label\n" + "\n".join(rows) + "\n")


def test_two_tables_of_one_shape_and_header_have_one_plan(tmp_path, capsys) -> None:
    said = []
    for seed in (1, 2):
        _table(tmp_path / "t.csv", seed)
        words = [
            "istdp",
            "--epsilon",
            "1",
            "--adjacency",
            "replace",
            "--runs",
            "1",
            "--data",
            str(tmp_path / "t.csv"),
        ]
        assert plan.main(words) == DONE
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "60 rows, 2 columns" in said[0]


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_every_plan_spends_the_budget_and_no_more(adjacency: str) -> None:
    options = plan_istdp.Options(epsilon=1.5, adjacency=adjacency, rows=400, columns=3, runs=1)
    found = plan_istdp.forecasts(options, World())
    assert len(found) == len(plan_istdp.ITERATIONS) * len(plan_istdp.NORMS)
    for one in found:
        mu = np.sqrt(one.of.iterations) / one.of.noise_multiplier
        assert 1.49 < gaussian.epsilon(mu, options.delta) <= 1.5 + 1e-9
        moves = (2 if adjacency == "replace" else 1) * one.of.clip / 400
        assert one.of.sigma == pytest.approx(one.of.noise_multiplier * moves)


def test_the_line_that_is_printed_runs_with_the_noise_that_was_forecast(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _table(tmp_path / "t.csv", 1)
    budget = ["--epsilon", "2.99999999", "--delta", "1.23456789e-05"]
    asked = ["istdp", *budget, "--adjacency", "replace", "--runs", "1", "--data", "t.csv"]
    assert plan.main(asked) == DONE
    said = capsys.readouterr().out
    assert " ".join(budget) in said, "of fewer digits the run would spend more than was asked for"
    sigma = float(re.search(r"sigma = ([\d.e-]+)", said)[1])
    words = shlex.split(re.search(r"python -m distadmm\.istdp (.*)", said)[1])
    words += ["--dry-run", "--target", "label", "--labels=-1,1"]
    assert istdp.main(words) == DONE
    assert float(re.search(r"noise of sigma ([\d.e-]+)", capsys.readouterr().out)[1]) == pytest.approx(
        sigma, rel=1e-3
    )


def test_a_larger_budget_is_forecast_to_cost_less() -> None:
    least = []
    for epsilon in (0.3, 3.0):
        options = plan_istdp.Options(epsilon=epsilon, adjacency="replace", rows=800, columns=4, runs=1)
        least.append(min(one.excess for one in plan_istdp.forecasts(options, World())))
    assert least[0] > least[1] > 0


def test_the_best_model_is_where_the_slope_is_zero() -> None:
    X, y = synthetic.coded(["s=a", "s=b", "s=c", "age", "t<=1", "t>1"], 500, 0)
    f = plan_istdp.best_model(X, y)
    slope = -(y / (1 + np.exp(y * (X @ f)))) @ X / len(y)
    assert np.abs(slope).max() < 1e-4
    assert set(np.unique((X[:, :3] > 0).sum(axis=1))) == {1}  # one case of an attribute
    assert set(np.unique((X[:, 4:] > 0).sum(axis=1))) == {1}
    assert np.linalg.norm(X, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epsilon", "1", "--adjacency", "replace"], "give --data NAME, or --rows and --columns"),
        (["--epsilon", "1", "--adjacency", "label", "--rows", "9", "--columns", "2"], "choose"),
        ([*SMALL, "--topology", "er5"], "unknown argument"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str, capsys) -> None:
    assert plan.main(["istdp", *words]) == USAGE
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "istdp"],
        ["plan", "--topology", "ring:3"],
        ["compare", "--topology", "ring:3", "--trust", "any", "--forecast"],
    ],
)
def test_where_their_number_is_protected_rows_are_not_counted_for_a_plan(
    words: list[str], tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _table(tmp_path / "t.csv", 1)
    command, rest = {"plan": plan, "compare": compare}[words[0]], words[1:]
    asked = [*rest, "--epsilon", "1", "--adjacency", "add-remove", "--data", str(tmp_path / "t.csv")]
    assert command.main(asked) == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "protects how many rows there are" in said.err


def test_a_stated_number_of_rows_takes_the_place_of_theirs(tmp_path, capsys) -> None:
    said = []
    for more in (0, 1):
        _table(tmp_path / "t.csv", 1)
        with open(tmp_path / "t.csv", "a") as file:
            file.write("0.5,0.5,1\n" * more)
        words = ["istdp", "--epsilon", "1", "--adjacency", "add-remove", "--runs", "1", "--rows", "50"]
        assert plan.main([*words, "--data", str(tmp_path / "t.csv")]) == DONE
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "--public-rows 50" in said[0]
    assert shape.shape(plan.Options(epsilon=1.0, adjacency="add-remove", data="adult", rows=7))[0] == 7


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "istdp"],
        ["plan", "--topology", "ring:3"],
        ["compare", "--topology", "ring:3", "--trust", "any", "--forecast"],
    ],
)
def test_a_width_that_one_row_can_change_is_not_planned_by(words: list[str], tmp_path, capsys) -> None:
    (tmp_path / "t.svm").write_text("1 1:0.5 7:0.5\n-1 2:0.5\n" * 9)
    command, rest = {"plan": plan, "compare": compare}[words[0]], words[1:]
    asked = [*rest, "--epsilon", "1", "--adjacency", "replace", "--data", str(tmp_path / "t.svm")]
    assert command.main(asked) == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "give --columns" in said.err


def test_a_stated_width_takes_the_place_of_theirs(tmp_path, capsys) -> None:
    (tmp_path / "t.svm").write_text("1 1:0.5 3:0.5\n-1 2:0.5\n" * 9)
    words = ["istdp", "--epsilon", "1", "--adjacency", "replace", "--runs", "1", "--columns", "4"]
    assert plan.main([*words, "--data", str(tmp_path / "t.svm")]) == DONE
    assert "18 rows, 4 columns" in capsys.readouterr().out


def test_runs_in_step_are_the_runs_one_by_one() -> None:
    X, y = synthetic.coded(["s=a", "s=b", "age", "t<=1", "t>1"], 300, 0)
    options = plan_istdp.Options(epsilon=1.0, adjacency="replace", rows=300, columns=5, lambda_=0.01)
    plans = [plan_istdp.plan_of(options, 300, 5, T, C) for T, C in ((7, 1.0), (3, 0.5), (12, 1.0))]
    together = plan_istdp.simulate(X, y, plans, (4,), 2)
    for at, plan_ in enumerate(plans * 2):
        rng, thetas = np.random.default_rng((4, at)), []
        exact = private.ClippedGradient(X, y, Logistic(), plan_.clip, 300)
        steps = private.iterate(
            lambda k, theta, p=plan_, rng=rng, exact=exact: exact(theta) + p.sigma * rng.standard_normal(5),
            np.zeros(5), make("mcp", plan_.lam, plan_.alpha), plan_.steps,
        )  # fmt: skip
        thetas = [next(steps).theta for _ in range(plan_.iterations)]
        last = max(1, round(plan_.iterations * plan_istdp.TAIL))
        assert together[at] == pytest.approx(np.mean(thetas[-last:], axis=0), abs=1e-9)


def test_the_plan_loses_least_as_a_share_of_what_the_best_loses() -> None:
    """A table on which all plans cost much has no more to say than one on which they cost little."""
    made = [np.array([0.5, 0.51, 0.6]), np.array([0.04, 0.01, 0.02])]  # tables x plans
    found = [plan_istdp.Forecast(at, np.array(own), unlike=True) for at, own in enumerate(zip(*made))]
    assert min(found, key=lambda one: one.excess).of == 1
    assert found[0].excess == pytest.approx(np.sqrt(0.5 * 0.04))
    assert plan_istdp.Forecast(0, np.array([0.5, 0.04])).excess == pytest.approx(0.27)


def test_columns_tell_apiece_as_much_or_by_how_far_they_vary() -> None:
    names = ["s=a", "s=b", *"abcdef"]
    tells = {}
    for apiece in (False, True):
        X, y = synthetic.coded(names, 20_000, 3, spread=4.0, steep=60.0, apiece=apiece)
        f = plan_istdp.best_model(X, y)
        tells[apiece] = (
            np.abs(f[2:] * X[:, 2:].std(axis=0)).mean() / np.abs(f[:2] * X[:, :2].std(axis=0)).mean()
        )
    assert tells[True] > 3 * tells[False]


def test_where_noise_costs_much_synthetic_rows_say_that_they_cannot_tell(capsys) -> None:
    asked = ["istdp", "--epsilon", "2", "--adjacency", "replace", "--columns", "3", "--runs", "2"]
    for rows, doubted in ((150, True), (60_000, False)):
        assert plan.main([*asked, "--rows", str(rows)]) == DONE
        said = capsys.readouterr().out
        assert float(re.search(r"mean loss ([\d.]+) above", said)[1]) > plan_istdp.SURE or not doubted
        assert ("doubt       cannot tell the best T and C" in said) == doubted


def test_a_forecast_by_few_public_rows_says_that_it_cannot_tell() -> None:
    options = plan_istdp.Options(epsilon=1.0, adjacency="replace", rows=10, columns=2, public_data="rows.csv")
    near, far = (
        plan_istdp.Forecast(None, 0.04 + spread * np.array([1.0, -1.0] * 4)) for spread in (0.005, 0.02)
    )
    assert plan_public.error(near.excesses) == pytest.approx(0.01 / np.sqrt(7))
    assert plan_istdp.doubt(options, near) == []
    (said,) = plan_istdp.doubt(options, far)
    assert "cannot tell the excess within a quarter by so few public rows; 3.6 times as many might" in said
    none = plan_istdp.Forecast(None, np.array([0.01, -0.02] * 4))
    assert "far more might" in plan_istdp.doubt(options, none)[0]
