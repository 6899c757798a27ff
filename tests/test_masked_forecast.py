"""The forecast of masked runs against runs, its order, and what `plan --trust` says of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from distadmm import radmm
from distadmm.commands import check, ledger, plan, plan_masked
from distadmm.data import synthetic
from distadmm.methods.masked import forecast
from distadmm.methods.masked.rule import Rule, choose
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.ranks.world import World


def rule(epsilon: float = 2.0, colluding: int = 3, rows: int = 4000, columns: int = 6, **more) -> Rule:
    shared = {"name": "centred", "loss": "logistic", "adjacency": "replace", "nodes": 20}
    return choose(**shared, **{"rows": rows, "columns": columns, "colluding": colluding,
                               "mu": mu_at(epsilon, 1e-5), **more})  # fmt: skip


def test_more_budget_rows_and_trust_lose_less_and_no_noise_next_to_nothing() -> None:
    found = [forecast.expected_excess(rule(epsilon=e)) for e in (0.2, 1.0, 8.0)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 3
    assert forecast.expected_excess(rule(rows=40_000)) < found[1]
    trusts = [forecast.expected_excess(rule(0.5, colluding=c)) for c in (0, 15, 19)]
    assert trusts == sorted(trusts)
    assert forecast.expected_excess(rule(mu=math.inf)) < 0.01
    assert math.isnan(forecast.expected_excess(rule(columns=forecast.LARGEST + 1)))


def test_what_is_forecast_of_rows_is_what_runs_on_them_lose(tmp_path) -> None:
    """Real masked runs in simulation on a synthetic file, against the forecast on the same rows."""
    X, y = synthetic.table(2000, 4, seed=1)
    np.savetxt(
        tmp_path / "rows.csv", np.column_stack([X, y]), delimiter=",", header="a,b,c,d,target", comments=""
    )
    (tmp_path / "rows.json").write_text(
        '{"target": "target", "labels": ["-1.0", "1.0"], "columns": {"a": {"bounds": [-1, 1]}, '
        '"b": {"bounds": [-1, 1]}, "c": {"bounds": [-1, 1]}, "d": {"bounds": [-1, 1]}}}'
    )
    flags = {"data": str(tmp_path / "rows.csv"), "topology": "ring:4", "observe": "none", "epsilon": 2.0,
             "adjacency": "replace", "trust": "coalition:1", "rng": "simulation"}  # fmt: skip
    pooled = forecast.objective(X, y)
    runs = []
    for seed in range(4):
        run = radmm.solve("masked", seed=seed, **flags)
        runs.append(pooled.data_loss(run.model))
    like = replace(rule(columns=4, rows=2000, colluding=1), nodes=4)
    told = [forecast.loss_of(like, pooled, run) for run in range(12)]
    spread = np.std(told) * math.sqrt(1 / len(told) + 1 / len(runs))
    assert abs(np.mean(told) - np.mean(runs)) < 4 * spread + 1e-3


WORDS = "--epsilon 8 --adjacency replace --topology ring:4 --data tiny --weight 20 --eta 1 --iterations 8 --runs 2"


def test_plan_says_which_to_use_and_a_command_that_runs(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan.main([*WORDS.split(), "--trust", "coalition:1"]) == 0
    shown = capsys.readouterr().out
    verdict = next(line for line in shown.splitlines() if line.startswith("use "))
    assert "masked: its loss is lower by" in verdict
    assert "at most 1 of 4 nodes collude" in verdict
    command = shown.splitlines()[shown.splitlines().index(verdict) + 1].split("distadmm.radmm")[1].split()
    assert radmm.main([*command, "--dry-run"]) == 0
    assert "forecast   mean log loss" in capsys.readouterr().out
    assert plan.main(WORDS.split()) == 0
    assert "masked" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("margin", "said"),
    [(0.1, "masked: its loss is lower"), (-0.1, "radmm: its loss is lower"), (0.0, "cannot be told apart")],
)
def test_the_verdict_follows_the_margin(margin: float, said: str) -> None:
    options = plan.Options(epsilon=1.0, adjacency="replace", rows=200, columns=6, trust="any")
    beside = plan_masked.Beside(rule(colluding=19), "", "")
    found = [(0.5, 0.4), (0.6, 0.45)]
    other = [0.5 + margin + 0.01, 0.6 + margin - 0.01]
    assert said in "\n".join(plan_masked.lines(options, beside, found, other))
    assert "out of reach" in "\n".join(plan_masked.lines(options, beside, found, []))


def test_a_table_too_small_is_told_before_anything_is_planned(capsys) -> None:
    small = plan.Options(
        epsilon=0.1, adjacency="replace", rows=20, columns=30, trust="coalition:1", topology="ring:4"
    )
    beside = plan_masked.rule_for(small, 20, 30)
    assert "nothing beats the base rate" in beside.refused
    assert plan_masked.losses(beside, [None, None], World()) == []
    assert "use         radmm" in "\n".join(plan_masked.lines(small, beside, [], [0.5]))
    assert plan.main([*WORDS.split(), "--trust", "coalition:4"]) == 2
    assert "coalition:0 to coalition:3" in capsys.readouterr().err


def test_two_files_of_one_shape_have_one_plan(tmp_path) -> None:
    """No row is read: only how many there are, and of how many columns."""
    found = []
    for fill in (0.0, 0.5):
        path = tmp_path / f"{fill}.csv"
        rows = np.column_stack([np.full((120, 3), fill), np.tile([0, 1], 60)])
        np.savetxt(path, rows, delimiter=",", header="a,b,c,target", comments="")
        options = plan.Options(
            epsilon=4.0, adjacency="replace", data=str(path), trust="any", topology="ring:4"
        )
        beside = plan_masked.rule_for(options, *plan.shape(options))
        found.append(plan_masked.losses(beside, [plan.surrogate(options, 0)], World()))
    assert found[0] == found[1]


def test_check_tells_what_a_run_will_send_and_cost(capsys, tmp_path) -> None:
    shared = "--epsilon 8 --adjacency replace --trust coalition:2 --topology er5 --data tiny --evaluate 2"
    assert check.main(["--algorithm", "masked", *shared.split()]) == 0
    shown = capsys.readouterr().out
    flags = {"data": "tiny", "topology": "er5", "epsilon": 8.0, "adjacency": "replace", "trust": "coalition:2",
             "evaluate": 2.0, "rng": "simulation", "anyway": True}  # fmt: skip
    run = radmm.solve("masked", out=tmp_path / "run", **flags)
    assert f"{run.messages} in all" in shown
    assert f"{run.bytes / 1e6:.2f} MB" in shown
    assert f"at most {run.iterations}: 1 of squares, 1 of curvature, 13 of gradient, 1 of evaluation" in shown
    assert ledger.main(["show", str(tmp_path / "run")]) == 0
    table = next(line for line in shown.splitlines() if line.startswith("epsilon by size"))
    assert table.strip() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [("--trust coalition:5", "coalition:0 to coalition:4"), ("", "--trust is not given"),
     ("--trust any --adjacency rows", "choose one of")],
)  # fmt: skip
def test_check_refuses_in_one_line(words: str, told: str, capsys) -> None:
    shared = [
        "--algorithm",
        "masked",
        "--epsilon",
        "1",
        "--topology",
        "er5",
        "--rows",
        "100",
        "--columns",
        "5",
    ]
    given = words.split() if "--adjacency" in words else [*words.split(), "--adjacency", "replace"]
    assert check.main([*shared, *given]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown
