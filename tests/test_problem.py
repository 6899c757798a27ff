"""Primal solves against scipy's optimisers, gradients against differences, stated residuals against fresh ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad, minimize

from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import HuberHinge, Logistic, Squared
from distadmm.problems.newton import LaggedNewton, NewtonCG

LOSSES = [Logistic(), HuberHinge(), HuberHinge(width=0.05), Squared()]


def objective(loss, seed: int = 0, rows: int = 40, d: int = 4, **options) -> GeneralisedLinear:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d)) / np.sqrt(d)
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0) if loss.labels else rng.normal(size=rows)
    return GeneralisedLinear(X, y, loss, **{"weight": 30.0, "ridge": 0.1, **options})


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_derivatives_are_those_of_the_value(loss) -> None:
    O = objective(loss)
    rng = np.random.default_rng(1)
    for _ in range(5):
        f = rng.normal(size=4)
        assert check_grad(O.value, O.grad, f) < 2e-5 * (1 + np.linalg.norm(O.grad(f)))
        # A Hessian with kinks is compared where differences do not straddle one.
        step = 1e-6 * rng.normal(size=4)
        slope = (O.grad(f + step) - O.grad(f - step)) / 2
        if not isinstance(loss, HuberHinge) or np.all(np.abs(np.abs(1 - O.A @ f) - loss.width) > 1e-5):
            np.testing.assert_allclose(slope, O.hess(f) @ step, atol=1e-7 * np.abs(O.hess(f)).max())


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_bounds_that_privacy_theorems_use(loss) -> None:
    z = np.linspace(-30, 30, 20001)
    for y in (-1.0, 1.0):
        slope, curvature = loss.slope(z, y), loss.curvature(z, y)
        assert np.all(np.abs(slope) <= loss.max_slope + 1e-15)
        assert np.all(curvature >= 0)
        assert np.all(curvature <= loss.max_curvature + 1e-15)
        signs = np.unique(np.sign(slope[np.abs(slope) > 1e-300]))
        assert (len(signs) == 1) == loss.one_signed


def test_logistic_neither_overflows_nor_loses_its_tail() -> None:
    z = np.array([-1000.0, -40.0, 0.0, 40.0, 1000.0])
    np.testing.assert_allclose(Logistic().value(z, 1.0), [1000.0, 40.0, np.log(2), np.exp(-40.0), 0.0])
    assert np.all(np.isfinite(Logistic().slope(z, 1.0)))


@given(seed=st.integers(0, 10_000), quadratic=st.floats(0.0, 50.0), which=st.integers(0, len(LOSSES) - 1))
@settings(deadline=None, max_examples=50)
def test_argmin_agrees_with_a_general_optimiser(seed: int, quadratic: float, which: int) -> None:
    O = objective(LOSSES[which], seed)
    rng = np.random.default_rng(seed)
    linear, start = 5 * rng.normal(size=4), rng.normal(size=4)
    f, residual = LaggedNewton(O).minimise(linear, quadratic, start, 1e-10)

    def phi(f: np.ndarray) -> float:
        return O.value(f) + linear @ f + 0.5 * quadratic * f @ f

    other = minimize(
        phi, start, jac=lambda f: O.grad(f) + linear + quadratic * f, method="BFGS", options={"gtol": 1e-9}
    )
    assert residual <= 1e-10
    assert residual == pytest.approx(np.linalg.norm(O.grad(f) + linear + quadratic * f), abs=1e-12)
    assert phi(f) <= other.fun + 1e-9 * (1 + abs(other.fun))
    np.testing.assert_allclose(f, other.x, atol=2e-4)


def test_lagging_changes_the_work_and_not_the_answer() -> None:
    O = objective(Logistic(), rows=200)
    lagged = LaggedNewton(O)
    taken = []
    hess = O.hess
    O.hess = lambda f: (taken.append(1), hess(f))[1]
    rng = np.random.default_rng(2)
    f = np.zeros(4)
    for _ in range(30):
        linear = 0.05 * rng.normal(size=4)
        f, residual = lagged.minimise(linear, 2.0, f, 1e-10)
        fresh = LaggedNewton(O)
        np.testing.assert_allclose(f, fresh.minimise(linear, 2.0, np.zeros(4), 1e-10).f, atol=1e-9)
        assert residual <= 1e-10
        lagged_only, taken[:] = len(taken), []
    assert lagged_only > 0
    taken.clear()
    for _ in range(30):
        f, _ = lagged.minimise(0.05 * rng.normal(size=4), 2.0, f, 1e-10)
    assert len(taken) <= 10  # thirty warm solves, few Hessians (cheap ones: d is 4)


def test_hessian_vector_products_are_enough() -> None:
    O = objective(Logistic())

    class Products:
        dimension, value, grad = O.dimension, O.value, O.grad

        def hessp(self, f: np.ndarray, v: np.ndarray) -> np.ndarray:
            return O.hess(f) @ v

    linear = np.ones(4)
    problem = Problem([Products()])
    assert isinstance(problem.solvers[0], NewtonCG)
    f = problem.argmin(linear[None], np.array([[1.5]]), np.zeros((1, 4)))
    np.testing.assert_allclose(f[0], LaggedNewton(O).minimise(linear, 1.5, np.zeros(4), 1e-10).f, atol=1e-9)
    assert problem.residual[0] <= 1e-10


def test_a_matrix_in_place_of_the_quadratic_number() -> None:
    O = objective(Squared(), ridge=0.0)
    Q = np.diag([1.0, 2.0, 3.0, 4.0]) + 0.5
    linear = np.arange(4.0)
    f, _ = LaggedNewton(O).minimise(linear, Q, np.zeros(4), 1e-11)
    H = O.A.T @ O.A * O.scale
    np.testing.assert_allclose(f, np.linalg.solve(H + Q, O.A.T @ O.y * O.scale - linear), atol=1e-10)


def test_sparse_rows_give_the_dense_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 20)) * (rng.random((300, 20)) < 0.1)
    y = np.where(rng.random(300) < 0.5, 1.0, -1.0)
    dense = GeneralisedLinear(X, y, Logistic())
    monkeypatch.setattr("distadmm.problems.consensus._SPARSE_ENTRIES", 0)
    sparse = GeneralisedLinear(X, y, Logistic())
    assert type(sparse._forward).__name__ == "csr_array"
    f = rng.normal(size=20)
    np.testing.assert_allclose(sparse.grad(f), dense.grad(f), atol=1e-14)
    np.testing.assert_allclose(sparse.hess(f), dense.hess(f), atol=1e-14)
    assert sparse.value(f) == pytest.approx(dense.value(f), rel=1e-14)


@pytest.mark.parametrize("loss", ["huber", "logistic", "squared"])
@pytest.mark.parametrize("rho", [0.0, 0.22])
def test_the_pooled_optimum_is_the_least_that_another_solver_finds(loss: str, rho: float) -> None:
    """Also where the loss is level at the start: the curvature of a hinge at 0 is 0."""
    from distadmm import radmm
    from distadmm.ranks.world import World
    from distadmm.run.observe import Observer, optimum
    from distadmm.run.setup import prepare

    flags = {"data": "tiny", "topology": "ring:4", "loss": loss, "rho": rho, "progress": "none"}
    node = prepare(radmm.configure("admm", **flags), World()).node
    found = optimum(node, Observer(node, World(), lambda: None))[1]

    def value(f: np.ndarray) -> float:
        return sum(o.value(f) for o in node.problem.objectives)

    def slope(f: np.ndarray) -> np.ndarray:
        return sum(o.grad(f) for o in node.problem.objectives)

    starts = np.random.default_rng(0).normal(size=(3, node.problem.dimension))
    best = min(
        minimize(value, f, jac=slope, method="L-BFGS-B", options={"maxiter": 5000}).fun for f in starts
    )
    assert found <= best * (1 + 1e-9) + 1e-6
    assert found >= best * (1 - 1e-4) - 1e-3  # separable rows without a ridge: zero


def test_a_solve_that_asks_for_more_than_doubles_hold_ends(monkeypatch) -> None:
    """The objective is level in floating point long before the gradient is 0: steps that change nothing are counted."""
    rng = np.random.default_rng(0)
    objective = GeneralisedLinear(
        rng.normal(size=(400, 12)), np.sign(rng.normal(size=400)), Logistic(), weight=1750.0
    )
    solver, asked = LaggedNewton(objective), []
    monkeypatch.setattr(objective, "hess", lambda f, hess=objective.hess: asked.append(0) or hess(f))
    solution = solver.minimise(np.zeros(12), 1.0, np.zeros(12), 1e-30)
    assert solution.residual < 1e-10
    assert len(asked) <= 60
