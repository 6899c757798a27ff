"""The penalty that a budget chooses: feasible, the best by forecast, the same on any number of ranks, and told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.methods.consensus import private as protect
from distadmm.methods.consensus import sizing
from distadmm.methods.consensus.penalty import default_penalty
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

BUDGET = {
    "data": "tiny",
    "topology": "ring:4",
    "weight": 20.0,
    "iterations": 8,
    "epsilon": 4.0,
    "adjacency": "replace",
    "rng": "simulation",
    "observe": "none",
    "progress": "none",
}


def planned(world: World | None = None, algorithm: str = "radmm", **flags: Any) -> tuple[Any, Any]:
    prepared = prepare(radmm.configure(algorithm, **{**BUDGET, **flags}), world or World())
    plan = protect.plan_of(prepared)
    return replace(prepared, node=plan.node), plan


def test_the_choice_has_the_least_forecast_loss_and_spends_the_budget() -> None:
    from distadmm.methods.consensus import forecast
    from distadmm.privacy.accounting import accountant

    prepared, plan = planned()
    node, chosen, recipe = prepared.node, plan.penalty, plan.recipe
    assert chosen / default_penalty(node.facts) in sizing.FACTORS
    np.testing.assert_array_equal(node.table["eta"], np.full(4, chosen))
    releases = prepared.config.algorithm.releases(node, 8)
    for i in range(4):
        spent = accountant.epsilon(sizing.events_of(recipe, releases, i), 1e-5, "replace")
        assert 0.997 * 4.0 <= spent <= 4.0

    def exact(factor: float) -> float:
        """The forecast with the alpha that the accountant allows, instead of a rule of thumb's."""
        eta = factor * default_penalty(node.facts)
        fixed = planned(eta=repr(eta))[1].recipe
        noise = (fixed.dimension + 1) / fixed.alpha[0] ** 2
        A = forecast.adjacency(node.network)
        return min(
            sizing.excess(
                prepared.config, node, fixed.dimension, A, noise, fixed.weight, sizing.Choice(eta, after)
            )
            for after in sizing.smoothings(prepared.config.algorithm, node, A)
        )

    best = min(exact(factor) for factor in sizing.FACTORS[:5])
    assert exact(chosen / default_penalty(node.facts)) <= 1.1 * best


def test_a_long_schedule_of_different_prices_spends_the_budget_and_no_more(monkeypatch) -> None:
    from distadmm.privacy.accounting import accountant

    asked = []
    epsilon = accountant.epsilon
    monkeypatch.setattr(
        accountant, "epsilon", lambda events, *rest: asked.append(len(events)) or epsilon(events, *rest)
    )
    _, plan = planned(algorithm="mradmm", eta="2", iterations=60)
    events = sizing.events_of(plan.recipe, plan.releases, 0)
    assert len(events) == 30 > sizing._SEARCHED_BY
    assert 0.998 * 4.0 <= epsilon(events, 1e-5, "replace") <= 4.0
    assert asked[-1] == 30  # what is claimed is claimed of all
    assert asked.count(30) < len(asked) / 2  # most of the search looks at few


def test_a_penalty_of_the_users_stays() -> None:
    prepared, plan = planned(eta="2")
    assert plan.penalty is None
    np.testing.assert_array_equal(prepared.node.table["eta"], np.full(4, 2.0))


def test_a_heavy_record_gets_a_larger_penalty() -> None:
    """The heavier the record, the more of the budget the Hessian would take."""
    light, heavy = (planned(weight=w, topology="star:4")[1].penalty for w in (2.0, 100.0))
    facts = [
        prepare(radmm.configure("radmm", data="tiny", topology="star:4", weight=w), World()).node.facts
        for w in (2.0, 100.0)
    ]
    assert heavy / default_penalty(facts[1]) > light / default_penalty(facts[0])


@pytest.mark.parametrize(("epsilon", "iterations", "eta"), [(0.2, 100, 60.0), (1, 100, 10.0), (4, 16, 0.5)])
def test_the_rule_of_thumb_is_close_to_the_accountant(epsilon: float, iterations: int, eta: float) -> None:
    """By it penalties are compared: also where the log-determinants together are most of the budget."""
    prepared, plan = planned(epsilon=epsilon, iterations=iterations, eta=repr(eta), weight=200.0)
    (case, *_) = sizing._cases(plan.recipe, plan.releases)
    variance, cost = sizing._rough(prepared.config, plan.recipe, case)
    assert 0.35 * epsilon < cost < epsilon
    exact = plan.recipe.alpha[0, 0]
    assert np.sqrt((plan.recipe.dimension + 1) / variance) == pytest.approx(exact, rel=0.12)


def test_no_penalty_is_passed_over_for_a_mean_that_is_not_taken(monkeypatch) -> None:
    """The least forecast of all stands first, however bad the same penalty is with another mean over the solves."""
    told = [(5.0, 1.0, 9.0), (2.0, 2.0, 2.0)]  # of the two smallest penalties: with each mean

    def forecast(config: Any, node: Any, recipe: Any, A: Any, rough: Any, choice: sizing.Choice) -> float:
        factor = choice.eta / default_penalty(node.facts)
        means = told[int(factor) - 1] if factor < 3 else (9.0, 9.0, 9.0)
        return means[(None, 3.0, 1.0).index(choice.smoothing.power)]

    monkeypatch.setattr(sizing, "_forecast", forecast)
    prepared, plan = planned()
    assert plan.penalty == default_penalty(prepared.node.facts)
    assert prepared.node.table["smoothing"][0] == 3.0


@pytest.mark.mpi(min_size=2)
def test_all_ranks_choose_what_one_rank_chooses(world: World) -> None:
    together, shared = planned(world, topology="star:5")
    _, whole = planned(topology="star:5")
    assert shared.penalty == whole.penalty
    np.testing.assert_array_equal(shared.recipe.alpha, whole.recipe.alpha[:, together.node.network.nodes])


def test_a_large_network_takes_the_smallest_that_leaves_half_of_the_budget(monkeypatch) -> None:
    from distadmm.methods.consensus import forecast

    monkeypatch.setattr(forecast, "LARGEST", 3)
    prepared, plan = planned(weight=100.0)
    chosen, recipe = plan.penalty, plan.recipe
    base, cost = default_penalty(prepared.node.facts), {}
    for factor in sizing.FACTORS:
        floor = prepared.node.facts.ridge + 2 * base * factor * 2
        cost[factor] = 4 * (np.log1p(float(recipe.weight.max()) * 0.25 / floor) + 1e-3)
    assert chosen == base * min(factor for factor in cost if cost[factor] <= 2.0)


@pytest.mark.slow
def test_out_of_reach_for_every_penalty_is_one_line(capsys, tmp_path) -> None:
    words = "--data tiny --topology ring:4 --weight 1e9 --epsilon 0.01 --adjacency replace --iterations 100"
    assert radmm.main([*words.split(), "--out", str(tmp_path / "o")]) == 2
    err = capsys.readouterr().err.strip()
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "o").exists()


def test_the_run_says_what_was_chosen(capsys, tmp_path) -> None:
    words = [f"--{k.replace('_', '-')}={v}" for k, v in BUDGET.items()]
    assert radmm.main([*words, "--out", str(tmp_path / "o")]) == 0
    assert "chosen for the budget" in capsys.readouterr().out
    kept = json.loads((tmp_path / "o" / "config.json").read_text())
    assert kept["config"]["eta"] == "auto"
    assert json.loads((tmp_path / "o" / "summary.json").read_text())["penalty"] == kept["penalty"]
    assert radmm.main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"eta {kept['penalty']:.4g}, 2 mixing rounds, chosen for the budget" in said


def test_a_penalty_is_found_where_the_hessians_alone_would_cost_more_than_the_budget() -> None:
    """Few rows a node and a heavy loss: 64 times the automatic penalty is not enough."""
    flags = {**BUDGET, "topology": "ring:20", "weight": 1750.0, "iterations": 20, "rng": "secure"}
    run = radmm.solve("radmm", **{**flags, "epsilon": 1.0})
    assert run.statement == "certificate"
    assert 0.99 < run.epsilon <= 1.0
    prepared = prepare(radmm.configure("radmm", **{**flags, "epsilon": 1.0}), World())
    assert run.summary["penalty"] > 64 * default_penalty(prepared.node.facts)
