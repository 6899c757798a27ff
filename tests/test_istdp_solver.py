"""The solve without privacy: against brute force, another solver, and itself without accelerations."""

import importlib.util
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.data import rows as synthetic
from distadmm.data.tiny.table import table
from distadmm.methods.istdp.gist import Steps
from distadmm.methods.istdp.solver import solve
from distadmm.problems.concave import L1, MCP, PENALTIES, WithIntercept, make
from distadmm.problems.losses import HuberHinge, Logistic, Sigmoid, SmoothHinge, Squared

LOSSES = {"logistic": Logistic(), "squared": Squared()}


def objective(problem, loss, penalty, theta):
    return float(loss.value(problem.X @ theta, problem.y).mean()) + penalty.value(theta)


def subgradient_distance(problem, loss, penalty, theta):
    """How far 0 is from the subdifferential of F, coordinate by coordinate."""
    g = problem.X.T @ loss.slope(problem.X @ theta, problem.y) / len(problem.y)
    first, _ = penalty.derivatives(theta)
    return np.where(theta != 0, np.abs(g + first), np.maximum(np.abs(g) - penalty.lam, 0.0)).max()


@pytest.mark.parametrize("newton", [True, False])
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_end_is_stationary_and_descent_is_monotone(loss, name, newton):
    problem = synthetic.problem(loss, 400, 150, test=1, seed=3)
    penalty = make(name, 0.03 if loss == "logistic" else 0.15, 25.0 if loss == "logistic" else 3.0)
    found = solve(problem.X, problem.y, LOSSES[loss], penalty, tol=1e-6, newton=newton)
    assert found.converged
    assert found.residual <= 1e-6 * penalty.lam
    assert subgradient_distance(problem, LOSSES[loss], penalty, found.theta) <= 1.1e-6 * penalty.lam
    assert (np.diff(found.history) <= 1e-14).all()
    assert found.objective == pytest.approx(objective(problem, LOSSES[loss], penalty, found.theta), rel=1e-12)


def test_mcp_with_few_columns_finds_the_best_of_all_supports():
    # alpha = 1.5 and orthogonal columns of length sqrt(n): F splits into convex problems of one variable,
    # and their joint optimum is the best over all 2^d supports.
    rng = np.random.default_rng(5)
    n, d, lam, alpha = 64, 4, 0.4, 1.5
    X = np.linalg.qr(rng.standard_normal((n, d)))[0] * np.sqrt(n)
    y = X @ np.array([2.0, -0.5, 0.0, 0.1]) + 0.3 * rng.standard_normal(n)
    found = solve(X, y, Squared(), MCP(lam, alpha), tol=1e-10)
    grid = np.linspace(-3, 3, 6001)
    correlation = X.T @ y / n
    best = 0.5 * float(y @ y) / n
    for c in correlation:
        cost = 0.5 * grid**2 - c * grid + np.array([MCP(lam, alpha).value(np.array([t])) for t in grid])
        best += cost.min()
    assert found.objective == pytest.approx(best, abs=1e-6)


@given(seed=st.integers(0, 10_000), name=st.sampled_from(PENALTIES))
@settings(deadline=None, max_examples=25)
def test_no_single_coordinate_can_be_improved_in_convex_problems(seed, name):
    # n >> d and mild concavity: F is convex, so the solution must beat every restricted least-squares fit.
    rng = np.random.default_rng(seed)
    n, d = 200, 4
    X = rng.standard_normal((n, d))
    X /= np.sqrt((X**2).mean(axis=0))
    y = X @ rng.choice([0.0, 1.0, -2.0], d) + 0.5 * rng.standard_normal(n)
    penalty = make(name, 0.2, 6.0)
    found = solve(X, y, Squared(), penalty, tol=1e-9)
    assert found.converged
    for size in range(d + 1):
        for support in itertools.combinations(range(d), size):
            theta = np.zeros(d)
            if support:
                theta[list(support)] = np.linalg.lstsq(X[:, support], y, rcond=None)[0]
            rival = 0.5 * float(((y - X @ theta) ** 2).mean()) + penalty.value(theta)
            if name != "capped-l1":  # whose corner makes F nonconvex
                assert found.objective <= rival + 1e-12


@pytest.mark.parametrize("loss", LOSSES)
def test_newton_steps_change_the_path_and_not_the_end(loss):
    problem = synthetic.problem(loss, 600, 200, test=1, seed=1)
    penalty = make("l1", 0.03 if loss == "logistic" else 0.15)  # convex: one end
    fast = solve(problem.X, problem.y, LOSSES[loss], penalty, tol=1e-8)
    bare = solve(problem.X, problem.y, LOSSES[loss], penalty, tol=1e-8, newton=False)
    assert fast.objective == pytest.approx(bare.objective, abs=1e-12)
    np.testing.assert_allclose(fast.theta, bare.theta, atol=1e-6)


@pytest.mark.slow  # skglm compiles for half a minute; its optima are replayed in test_istdp_vectors
@pytest.mark.skipif(importlib.util.find_spec("skglm") is None, reason="needs skglm, which is no dependency")
@pytest.mark.parametrize(
    ("loss", "n", "lam", "alpha"),
    [("squared", 150, 0.2, 3.0), ("squared", 500, 0.15, 3.0), ("logistic", 500, 0.03, 30.0)],
)
def test_same_objective_as_skglm(loss, n, lam, alpha):
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Logistic as Datafit
    from skglm.datafits import Quadratic
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD

    for seed in range(3):
        problem = synthetic.problem(loss, n, test=1, seed=seed)
        found = solve(problem.X, problem.y, LOSSES[loss], MCP(lam, alpha), tol=1e-8)
        rival = GeneralizedLinearEstimator(
            Datafit() if loss == "logistic" else Quadratic(),
            MCPenalty(lam, alpha),
            AndersonCD(tol=1e-10, fit_intercept=False, max_iter=200),
        ).fit(problem.X, problem.y)
        theta = np.ravel(rival.coef_)
        assert found.objective <= objective(problem, LOSSES[loss], MCP(lam, alpha), theta) + 1e-12


def test_an_intercept_is_fitted_and_not_penalised():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 60))
    y = 5.0 + 2.0 * X[:, 7] + 0.1 * rng.standard_normal(300)
    found = solve(np.hstack([X, np.ones((300, 1))]), y, Squared(), WithIntercept(MCP(0.5, 3.0)), tol=1e-8)
    assert np.flatnonzero(found.theta).tolist() == [7, 60]
    # Beyond alpha lambda nothing is shrunk: the fit on the support is least squares.
    exact = np.linalg.lstsq(np.column_stack([X[:, 7], np.ones(300)]), y, rcond=None)[0]
    np.testing.assert_allclose(found.theta[[7, 60]], exact, atol=1e-8)


def test_dependent_columns_and_more_concavity_than_curvature_still_end_stationary():
    """One-hot rows: every Hessian on a full support is singular, and the penalty makes it indefinite."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 5, (400, 3))
    X = np.hstack([np.eye(5)[codes[:, j]] for j in range(3)]) / np.sqrt(3)
    z = X @ rng.normal(0, 6, 15)
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    penalty = MCP(0.002, 60.0)
    found = solve(X, y, Logistic(), penalty, iterations=2000)
    bare = solve(X, y, Logistic(), penalty, iterations=200, newton=False)
    assert found.converged
    g = X.T @ Logistic().slope(X @ found.theta, y) / 400
    first, _ = penalty.derivatives(found.theta)
    distance = np.where(found.theta != 0, np.abs(g + first), np.maximum(np.abs(g) - 0.002, 0.0)).max()
    assert distance <= 1.1e-6 * 0.002
    assert not bare.converged
    assert found.objective < bare.objective


def test_mcp_is_less_biased_than_l1():
    problem = synthetic.problem("squared", 500, seed=2)
    mcp = solve(problem.X, problem.y, Squared(), MCP(0.15, 3.0))
    l1 = solve(problem.X, problem.y, Squared(), L1(0.15))
    assert problem.support_f1(mcp.theta) == 1.0
    assert problem.excess(mcp.theta) < problem.excess(l1.theta) / 5


def test_lambda_zero_is_the_unpenalised_fit():
    problem = synthetic.problem("squared", 400, 20, test=1)
    found = solve(problem.X, problem.y, Squared(), L1(0.0), tol=1e-9)
    np.testing.assert_allclose(found.theta, np.linalg.lstsq(problem.X, problem.y, rcond=None)[0], atol=1e-7)


def test_nothing_matters_when_lambda_is_large():
    problem = synthetic.problem("squared", 400, test=1)
    found = solve(problem.X, problem.y, Squared(), MCP(1e3, 3.0))
    assert found.converged
    assert not found.theta.any()


def test_too_few_iterations_are_reported():
    problem = synthetic.problem("logistic", 300, 30, test=1)
    found = solve(problem.X, problem.y, Logistic(), MCP(0.01, 30.0), iterations=3, newton=False)
    assert not found.converged
    assert found.iterations == 3


def test_a_line_search_that_never_accepts_ends():
    class Cliff(Squared):
        """Infinite everywhere but at zero, which its slope does not say."""

        def value(self, z, y):
            return np.where(z == 0, super().value(z, y), np.inf)

    problem = synthetic.problem("squared", 100, 10, support=3, test=1)
    found = solve(problem.X, problem.y, Cliff(), MCP(0.01, 3.0))
    assert not found.converged
    assert not found.theta.any()
    assert found.iterations == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("seed", "name", "alpha"), [(776, "mcp", 3.6851), (781, "scad", 4.1001)])
def test_where_nothing_curves_the_end_is_reached_all_the_same(seed, name, alpha):
    """Rows beyond the kink of a rounded hinge under a penalty that is flat there: the Hessian is zero."""
    rng, loss = np.random.default_rng(seed), {"mcp": HuberHinge(), "scad": SmoothHinge()}[name]
    X = rng.normal(size=(int(rng.integers(5, 14)), 2))
    y = np.sign(rng.normal(size=len(X)) * 0.5 + X[:, 0])
    penalty = make(name, 0.3 * rng.random(), alpha)
    found = solve(X, y, loss, penalty)
    assert found.converged

    def F(theta):
        return float(loss.value(X @ theta, y).mean()) + penalty.value(theta)

    around = [found.theta + 1e-4 * np.array([np.cos(t), np.sin(t)]) for t in np.linspace(0, 6.3, 40)]
    assert min(map(F, around)) >= F(found.theta) - 1e-9


def test_a_loss_that_is_not_convex_does_not_end_where_it_is_flat():
    """Steps without a bound rest at a stationary point of F as well, which calls every row the more frequent class."""
    rows = table()
    X, y, penalty = np.column_stack([rows.X, np.ones(len(rows.y))]), rows.y, MCP(0.002, 300.0)
    found, unbounded = (solve(X, y, Sigmoid(), penalty, steps=steps) for steps in (None, Steps()))
    frequent = max((y > 0).mean(), (y < 0).mean())
    right = [(np.where(X @ end.theta >= 0, 1.0, -1.0) == y).mean() for end in (found, unbounded)]
    assert found.converged
    assert unbounded.converged
    assert (np.diff(found.history) <= 1e-14).all()
    assert right[0] > 0.93
    assert right[1] < frequent + 0.05
