"""Replays of reference values: thresholds, iterations with and without noise, noise multipliers.

`--vectors DIR` replays every file of DIR with an "istdp" table; the default is tests/vectors.
"""

from itertools import islice

import numpy as np
import pytest

from distadmm.data import rows as synthetic
from distadmm.methods.istdp import gist, printed, private, solver
from distadmm.privacy.accounting.accountant import gaussian_noise_multiplier
from distadmm.problems.concave import MCP
from distadmm.problems.losses import Logistic, Squared
from tests.vector_files import folder, load_all

KINDS = ("logistic", "ls")


def pytest_generate_tests(metafunc):
    for fixture, key in (("table", "istdp"), ("skglm", "skglm")):
        if fixture in metafunc.fixturenames:
            found = {
                name: content[key]
                for name, content in load_all(folder(metafunc.config)).items()
                if isinstance(content, dict) and key in content
            }
            assert found or metafunc.config.getoption("--vectors"), f"no bundled vectors of {key}"
            metafunc.parametrize(fixture, found.values(), ids=list(found))


def _data(case):
    X, y = np.array(case["X"]), np.array(case["y"])
    return (X, y, Squared()) if case["kind"] == "ls" else (X, 2 * y - 1, Logistic())


def test_prox(table):
    for row in table["prox"]:
        t = MCP(row["lam"], row["alpha"]).prox(np.array([row["s"]]), row["gamma"])[0]
        assert t == pytest.approx(row["t"], abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_iteration_without_privacy(table, kind):
    case = table[kind]["nonprivate"]
    X, y, loss = _data(case)
    rule = gist.Steps(case["first"], case["a_min"], case["a_max"], case["beta"], case["eta"])
    start = np.array(case["theta0"])
    penalty = MCP(case["lam"], case["alpha"])
    states = list(islice(gist.iterate(X, y, loss, penalty, rule, start), case["T"] + 1))
    F = np.array([state.F for state in states])
    np.testing.assert_allclose(F[:11], case["F"][:11], rtol=0, atol=1e-8)
    assert abs(F[-1] - case["F"][-1]) < case["tol_F"]
    np.testing.assert_allclose(states[-1].theta, case["theta"], rtol=0, atol=1e-6)
    # With Newton steps the solve ends at the same point.
    best = solver.solve(X, y, loss, penalty, start=start, tol=1e-9)
    assert best.converged
    assert best.objective <= case["F"][-1] + case["tol_F"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["fixed", "bb"])
def test_iteration_with_given_noise(table, kind, rule):
    cases = table[kind]["with_noise"]
    (case,) = [case for case in cases if case["rule"] == rule]
    inputs = cases[0]  # the second entry says: same data as the one before
    X, y, loss = _data(inputs)
    noise = np.array(case["noise"])
    clipped = private.ClippedGradient(X, y, loss, case["C"], len(y))
    steps = private.NoisySteps(rule, case["step"], case["a_min"], case["a_max"])
    penalty = MCP(inputs["lam"], inputs["alpha"])
    start = np.array(case["thetas"][0])
    iterates = islice(
        private.iterate(lambda k, theta: clipped(theta) + noise[k], start, penalty, steps), case["T"]
    )
    for iterate, theta, step in zip(iterates, case["thetas"][1:], case["steps"], strict=True):
        np.testing.assert_allclose(iterate.theta, theta, rtol=0, atol=case["tol"])
        assert iterate.step == pytest.approx(step, abs=case["tol"])


def test_noise_multipliers(table):
    for row in table["accounting"]:
        exact = gaussian_noise_multiplier(row["eps"], row["delta"], row["T"])
        assert exact == pytest.approx(row["sigma_over_Delta_gdp"], rel=1e-6)
        claimed = printed.noise_scale(row["eps"], row["delta"], row["T"], 0.5)  # Delta = 2U = 1
        assert claimed == pytest.approx(row["sigma_over_Delta_paper"], rel=1e-9)


def test_optima_of_skglm(skglm):
    """Coordinate descent's stationary points, on problems that a seed makes again."""
    for row in skglm["problems"]:
        problem = synthetic.problem(row["loss"], row["rows"], row["columns"], test=1, seed=row["seed"])
        assert problem.X.sum() == pytest.approx(row["checksum"], abs=1e-6), (
            "the generator's stream has changed"
        )
        assert problem.y.sum() == pytest.approx(row["target_checksum"], abs=1e-6)
        loss = Logistic() if row["loss"] == "logistic" else Squared()
        found = solver.solve(problem.X, problem.y, loss, MCP(row["lam"], row["alpha"]), tol=1e-8)
        assert found.objective == pytest.approx(row["objective"], abs=1e-11)
        assert np.flatnonzero(found.theta).tolist() == row["support"]
