"""The planner's recursion against simulation, its budget against the accountant, its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from distadmm.algorithm import Facts
from distadmm.commands import plan
from distadmm.graphs.topology import load
from distadmm.methods.consensus import forecast, smoothing
from distadmm.ranks.world import World


@pytest.mark.parametrize("power", [None, 1.0])
@pytest.mark.parametrize(("topology", "phases"), [("ring:5", 1), ("star:5", 2)])
def test_mean_and_variance_are_those_of_simulated_runs(
    phases: int, topology: str, power: float | None
) -> None:
    """Ten thousand noisy runs on one-dimensional quadratics, against the recursion, for each node and their mean."""
    A = load(topology).adjacency().toarray()
    h, c, eta, gamma, K, runs = 3.0, 1.5, 0.7, 0.5, 4, 10_000
    noise, own = np.array([0.5, 1.0, 0.2, 0.8, 1.5]), np.array([0.3, 0.0, 0.6, 0.1, 0.2])
    rng = np.random.default_rng(0)
    degree = A.sum(axis=1)
    f, lam = np.zeros((runs, 5)), np.zeros((runs, 5))
    theirs = c + rng.normal(size=(runs, 5)) * np.sqrt(own)
    ends = np.zeros((runs, 5))
    for t in range(1, K + 1):
        e = rng.normal(size=(runs, 5)) * np.sqrt(noise)
        f = (h * theirs + eta * (degree * f + f @ A) - 2 * lam - e) / (h + 2 * eta * degree)
        apart = degree * f - f @ A
        lam = lam + eta / 2 * apart
        if phases == 2:
            f = f - (h * (f - theirs) + e + 2 * lam + eta * apart) / (2 * eta * degree + gamma)
        ends = f if power is None else smoothing.averaged(power, t, ends, f)
    ends = ends - theirs.mean(axis=1, keepdims=True)
    curvatures = np.array([0.7, h, 20.0])  # side by side, the one that was simulated among them
    course = forecast.Course(K, eta, gamma, phases, power)
    weights = np.stack([*np.eye(5), np.full(5, 0.2), rng.normal(size=5)])
    spreads = np.repeat(own[:, None], 3, axis=1)
    mean, variance = forecast.follow(A, curvatures, np.full(3, c), noise, spreads, course, weights)
    found = ends @ weights.T
    spread = found.std(axis=0)
    assert np.all(np.abs(found.mean(axis=0) - mean[:, 1]) < 5 * spread / np.sqrt(runs))
    np.testing.assert_allclose(variance[:, 1], spread**2, rtol=0.1)


def test_some_nodes_stand_for_those_of_a_large_network(monkeypatch) -> None:
    A, facts = load("er20").adjacency().toarray(), Facts(20, np.zeros(20), 0.5, 50.0, 0.1, 0.25)
    course = forecast.Course(10, 3.0, 0.5, 2, 3.0)
    told = (A, facts, 12, np.linspace(1, 2, 20), np.full(20, 0.1), course, 4)
    each = forecast.expected_excess(*told)
    monkeypatch.setattr(forecast, "_EACH", 14)
    assert forecast.expected_excess(*told) == pytest.approx(each, rel=0.25)


OPTIONS = plan.Options(
    epsilon=3.0, adjacency="replace", topology="ring:4", rows=400, columns=5, weight=50.0, runs=1
)


def test_every_candidate_spends_at_most_the_budget_and_nearly_all_of_it() -> None:
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation

    prepared = plan.surrogate(OPTIONS, 0)
    for K, eta in ((3, 0.5), (12, 2.0)):
        found = plan.affordable(prepared, plan.Plan(K, eta, np.zeros(4), 0.0, smoothing.Smoothing()))
        assert found is not None
        for alpha in found.alpha:
            event = ObjectivePerturbation(
                "gamma", 5, float(alpha), 50.0 / 400, 0.25, 0.22 / 4 + 2 * eta * 2, K, 1e-3, True, True
            )
            assert 0.997 * 3.0 <= accountant.epsilon([event], 1e-5, "replace") <= 3.0


@pytest.mark.parametrize("algorithm", ["radmm", "mradmm", "madmm"])
def test_what_plans_are_ranked_by_is_close_to_what_they_are_run_with(algorithm: str) -> None:
    from dataclasses import replace

    options = replace(OPTIONS, algorithm=algorithm, topology="star:4")
    prepared = plan.surrogate(options, 0)
    found = plan.candidates(replace(options, iterations=8), prepared, World())
    assert len(found) >= 3
    for ranked in found[:4]:
        exact = plan.affordable(prepared, ranked)
        assert exact is not None
        np.testing.assert_allclose(ranked.alpha, exact.alpha, rtol=0.05)


def test_the_command_prints_a_command_that_runs(capsys, tmp_path, monkeypatch) -> None:
    import shlex

    from distadmm import radmm

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my net.txt").write_text("0 1\n1 2\n2 3\n3 0\n")
    words = "--epsilon 8 --adjacency replace --data tiny --weight 20 --eta 1 --iterations 8 --runs 2"
    assert plan.main([*words.split(), "--topology", "my net.txt"]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith("run it"))
    command = shlex.split(line.split("distadmm.radmm")[1])
    assert command[command.index("--weight") + 1] == "20"  # the plan is for this weight, and for no other
    assert command[command.index("--rho") + 1] == "0.22"
    assert radmm.main([*command, "--progress", "none"]) == 0
    assert "certificate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--epsilon 2 --adjacency replace", "--rows and --columns"),
        ("--epsilon 0 --adjacency replace --data tiny", "above zero"),
        ("--epsilon 2 --adjacency someone --data tiny", "choose one of"),
        ("--epsilon 2 --data tiny", "--adjacency is needed"),
        ("--epsilon 1e-6 --adjacency replace --data tiny --topology ring:4 --iterations 80", "out of reach"),
        ("--epsilon 2 --adjacency replace --data adlt", "adult"),
    ],
)
def test_bad_input(words: str, told: str, capsys) -> None:
    assert plan.main(words.split()) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown
