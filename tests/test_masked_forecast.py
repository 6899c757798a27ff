"""The forecast of masked runs against runs, its order, and what `plan --trust` says of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from distadmm import radmm
from distadmm.commands import check, compare, ledger, plan
from distadmm.data import synthetic
from distadmm.methods.masked import forecast
from distadmm.methods.masked.rule import Rule, choose
from distadmm.privacy.accounting.gaussian import mu_at


def rule(epsilon: float = 2.0, colluding: int = 3, rows: int = 4000, columns: int = 6, **more) -> Rule:
    shared = {"name": "centred", "loss": "logistic", "adjacency": "replace", "nodes": 20}
    return choose(**shared, **{"rows": rows, "columns": columns, "colluding": colluding,
                               "mu": mu_at(epsilon, 1e-5), **more})  # fmt: skip


def test_more_budget_rows_and_trust_lose_less_and_no_noise_next_to_nothing() -> None:
    found = [forecast.forecast_of(rule(epsilon=e)).excess for e in (0.2, 1.0, 8.0)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 3
    assert forecast.forecast_of(rule(rows=40_000)).excess < found[1]
    trusts = [forecast.forecast_of(rule(0.5, colluding=c)).excess for c in (0, 15, 19)]
    assert trusts == sorted(trusts)
    assert forecast.forecast_of(rule(mu=math.inf)).excess < 0.01
    assert math.isnan(forecast.forecast_of(rule(columns=forecast.LARGEST + 1)).excess)


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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "FORECASTS", 1)
    monkeypatch.setattr(compare, "_TEST_ROWS", 200)
    monkeypatch.setattr(compare.Options, "methods", property(lambda self: ["gossip", "masked"]))


@pytest.mark.usefixtures("quick")
def test_plan_names_the_winner_of_the_one_forecast_and_a_command_that_runs(
    capsys, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan.main([*WORDS.split(), "--trust", "coalition:1"]) == 0
    told = capsys.readouterr().out.splitlines()
    verdict = next(line for line in told if line.startswith("use ")).split(maxsplit=1)[1]
    command = told[-3].split("distadmm.radmm")[1].split()
    assert radmm.main([*command, "--dry-run"]) == 0
    capsys.readouterr()
    shape = "--topology ring:4 --data tiny --weight 20 --iterations 8"
    asked = f"--epsilon 8 --adjacency replace --trust coalition:1 {shape} --forecast"
    assert compare.main([*asked.split(), "--out", str(tmp_path / "runs")]) == 0
    listed = {line.split("  ")[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    said = next(line for line in told if line.startswith("methods "))
    for name in ("gossip", "masked"):
        assert f"{name} {listed[name][5]}" in said
    best = min(("gossip", "masked"), key=lambda name: float(listed[name][5]))
    assert verdict.startswith(f"{best}: its loss is lower by")
    assert verdict.endswith("it is forecast for --trust coalition:1, and assumes that")
    assert plan.main(WORDS.split()) == 0
    assert "methods " not in capsys.readouterr().out
    assert plan.main([*WORDS.split(), "--trust", "coalition:4"]) == 2
    assert "coalition:0 to coalition:3" in capsys.readouterr().err


def test_forecasts_are_of_as_many_rows_as_a_run_uses() -> None:
    options = {"epsilon": 1.0, "adjacency": "replace", "data": "adult", "topology": "ring:4"}
    assert plan.shape(plan.Options(**options)) == (10_000, 105)
    assert plan.shape(plan.Options(**options, rows_per_node=300)) == (300, 105)
    words = [f"--{name}={value}" for name, value in options.items()]
    request = compare.read([*words, "--trust=any", "--rows-per-node=300", "--algorithm=gossip"])
    assert request.size == (1200, 105)
    assert request.runs is not None
    assert all("--rows-per-node=300" in point.words for point in request.runs.points)
    assert not any("--rows-per-node" in word for point in request.forecasts.points for word in point.words)


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


def test_check_tells_the_least_roster_and_the_least_nodes_of_the_adjacency(capsys) -> None:
    words = "--algorithm masked --epsilon 8 --trust coalition:2 --topology er20 --rows 400 --columns 5"
    shared = words.split()
    assert check.main([*shared, "--adjacency", "label"]) == 0
    assert "fewer than 20 of 20 nodes" in capsys.readouterr().out
    assert check.main([*shared, "--adjacency", "node"]) == 0
    assert "below 15 refused" in capsys.readouterr().out


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
