"""`plan sharing`: no row is read, the plan spends its budget and runs as it is printed, or it says that none helps."""

from __future__ import annotations

import math
import re
import shlex

import numpy as np
import pytest

from distadmm import sharing
from distadmm.commands import plan, plan_sharing
from distadmm.commands.plan_istdp import mean_loss
from distadmm.data import synthetic
from distadmm.errors import DONE, USAGE
from distadmm.files import read_json
from distadmm.privacy.accounting import gaussian
from distadmm.ranks.world import World

NAMES = ("s=a", "s=b", "s=c", "t=a", "t=b", "u=a", "u=b", "v=a", "v=b", "v=c")


def _table(path, rows: int, seed: int) -> None:
    X, y = synthetic.coded(NAMES, rows, seed, norm=None)
    lines = [",".join([*(f"{int(v)}" for v in x), f"{int(label)}"]) for x, label in zip(X, y)]
    path.with_suffix(".csv").write_text("\n".join([",".join([*NAMES, "label"]), *lines]) + "\n")


def test_two_tables_of_one_shape_and_header_have_one_plan(tmp_path, capsys) -> None:
    said = []
    for seed in (1, 2):
        _table(tmp_path / "t", 80, seed)
        words = ["sharing", "--epsilon", "1", "--runs", "1", "--data", str(tmp_path / "t.csv")]
        assert plan.main(words) == DONE
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "80 rows; parties of 5, 5 columns" in said[0]


def test_the_line_that_is_printed_runs_with_that_schedule(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _table(tmp_path / "t", 3000, 1)
    assert (
        plan.main(["sharing", "--epsilon", "4", "--split", "3,7", "--runs", "1", "--data", "t.csv"]) == DONE
    )
    said = capsys.readouterr().out
    mechanism, rounds = re.search(r"plan +(\S+), (\d+) round", said).groups()
    words = shlex.split(re.search(r"python -m distadmm\.sharing (.*)", said)[1])
    more = ["--target", "label", "--labels=-1,1", "--rng", "simulation", "--out", "r"]
    assert sharing.main([*words, *more]) == DONE
    told = read_json(tmp_path / "r" / "summary.json")
    assert told["algorithm"] == mechanism
    assert told["epsilon"] == pytest.approx(4, rel=1e-3)
    assert str(rounds) in words or mechanism == "v1"


def _tables(**given) -> list[plan_sharing.Table]:
    options = plan_sharing.Options(**{"rows": 2000, "columns": 10, **given})
    tables = []
    for run in range(2):
        X, y = synthetic.coded(NAMES, options.rows, 0, run, norm=None)
        tables.append(plan_sharing.Table(options, X, y, NAMES, (0, run)))
    return tables


def _excess(table: plan_sharing.Table, candidate) -> float:
    X = np.hstack([table.parts.train[1], table.parts.train[2]])
    return mean_loss(X, table.y, *table.model(candidate)) - mean_loss(X, table.y, *table.whole)


def test_rows_that_stand_for_more_have_the_noise_and_the_weight_of_these() -> None:
    """Every row four times, or a quarter of the rows that stands for all: one model, whatever the noise."""
    options = plan_sharing.Options(epsilon=2.0, rows=1200, columns=10)
    X, y = synthetic.coded(NAMES, 300, 0, norm=None)
    few = plan_sharing.Table(options, X, y, NAMES, (0, 0), of=1200)
    many = plan_sharing.Table(options, np.vstack([X] * 4), np.tile(y, 4), NAMES, (0, 0))
    assert np.allclose(few.whole[0], many.whole[0], atol=1e-5)
    assert np.allclose(few.model(None)[0], many.model(None)[0], atol=1e-5)
    for candidate in (one for one in plan_sharing.CANDIDATES if one.covered):
        for draw in range(3):  # the same noise on the same sums
            assert np.allclose(few.model(candidate, draw)[0], many.model(candidate, draw)[0], rtol=1e-6), (
                candidate
            )
    assert not np.allclose(few.model(candidate, 0)[0], few.model(candidate, 1)[0], rtol=1e-3)


@pytest.mark.parametrize("at", range(len(plan_sharing.CANDIDATES)))
def test_every_candidate_spends_the_budget_and_no_more(at: int, monkeypatch) -> None:
    ledgers = []

    def kept(self, candidate, parties, draw, make=plan_sharing.Table._releases):
        out = make(self, candidate, parties, draw)
        ledgers.extend(each.ledger for each in out.values())
        return out

    monkeypatch.setattr(plan_sharing.Table, "_releases", kept)
    table = _tables(epsilon=1.5, rows=300)[0]
    assert _excess(table, plan_sharing.CANDIDATES[at]) > 0
    (ledger,) = ledgers
    mu = math.sqrt(sum(event.gdp_mu("replace") ** 2 for event in ledger.events))
    assert 1.49 < gaussian.epsilon(mu, 1e-5) <= 1.5 + 1e-6


def test_a_larger_budget_is_forecast_to_cost_less() -> None:
    for candidate in plan_sharing.CANDIDATES:
        few, many = (
            np.mean([_excess(t, candidate) for t in _tables(epsilon=epsilon)]) for epsilon in (0.3, 30.0)
        )
        assert many < few, candidate


def test_where_noise_is_all_there_is_the_plan_is_not_to_ask(capsys) -> None:
    words = ["sharing", "--epsilon", "0.05", "--rows", "200", "--columns", "12", "--runs", "2"]
    assert plan.main(words) == DONE
    said = capsys.readouterr().out
    assert "none: what others add is not worth a budget" in said
    assert "run it" not in said


def test_what_leaves_its_models_unprotected_is_compared_and_never_the_plan() -> None:
    least = plan_sharing.Forecast(plan_sharing.CANDIDATES[-1], np.array([0.01]))
    second = plan_sharing.Forecast(plan_sharing.CANDIDATES[0], np.array([0.02]))
    alone = plan_sharing.Forecast(None, np.array([0.1]))
    assert least.of.mechanism == "s3"
    assert plan_sharing.chosen([alone, second, least]) is second
    assert plan_sharing.chosen([alone, least]) is alone


def test_ranks_share_the_candidates_and_find_the_same() -> None:
    options = plan_sharing.Options(epsilon=2.0, rows=200, columns=6, runs=1)
    found = plan_sharing.forecasts(options, World())
    assert [one.of for one in found] == [None, *plan_sharing.CANDIDATES]
    assert all(np.isfinite(one.excess) for one in found)
    again = plan_sharing.forecasts(options, World())
    assert [one.excess for one in found] == [one.excess for one in again]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epsilon", "1"], "give --data NAME, or --rows and --columns"),
        (["--epsilon", "1", "--rows", "9", "--columns", "4", "--parties", "1"], "at least 2"),
        (["--epsilon", "1", "--rows", "9", "--columns", "4", "--split", "2,2", "--parties", "2"], "give one"),
        (["--epsilon", "1", "--rows", "9", "--columns", "4", "--split", "2,3"], "adds up to 5"),
        (["--epsilon", "1", "--rows", "9", "--columns", "4", "--adjacency", "label"], "choose"),
        (["--epsilon", "1", "--rows", "9", "--columns", "4", "--row-norm", "none"], "must be bounded"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str, capsys) -> None:
    assert plan.main(["sharing", *words]) == USAGE
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
