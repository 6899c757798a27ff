"""Softmax against differences, against the logistic loss for two classes, and through a run."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from distadmm import radmm
from distadmm.problems.consensus import GeneralisedLinear, Softmax, classes_of
from distadmm.problems.losses import CrossEntropy, Logistic

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3))
X /= np.linalg.norm(X, axis=1, keepdims=True)


def test_derivatives_are_those_of_the_value() -> None:
    O = Softmax(X, RNG.integers(0, 4, 50), 4, weight=7.0, ridge=0.2)
    for _ in range(5):
        f, step = RNG.normal(size=12), 1e-6 * RNG.normal(size=12)
        assert check_grad(O.value, O.grad, f) < 1e-5
        np.testing.assert_allclose((O.grad(f + step) - O.grad(f - step)) / 2, O.hess(f) @ step, atol=1e-12)


def test_two_classes_are_the_logistic_loss() -> None:
    """Scores +f/2 and -f/2 give the logistic loss of f."""
    y = RNG.integers(0, 2, 50)
    two = Softmax(X, y, 2, weight=3.0)
    one = GeneralisedLinear(X, np.where(y == 1, 1.0, -1.0), Logistic(), weight=3.0)
    f = RNG.normal(size=3)
    assert two.value(np.concatenate([-f / 2, f / 2])) == pytest.approx(one.value(f), rel=1e-13)


def test_one_record_moves_the_gradient_by_no_more_than_the_stated_slope() -> None:
    """The bound is tight: reached in the limit of a confident wrong answer."""
    worst = 0.0
    for size in (0.1, 1.0, 10.0, 100.0):
        for _ in range(200):
            O = Softmax(X[:1], RNG.integers(0, 4, 1), 4)
            worst = max(worst, float(np.linalg.norm(O.grad(size * RNG.normal(size=12)))))
    assert 0.99 * CrossEntropy.max_slope < worst <= CrossEntropy.max_slope + 1e-12


def test_huge_scores_do_not_overflow() -> None:
    O = Softmax(X, RNG.integers(0, 4, 50), 4)
    f = 1e4 * RNG.normal(size=12)
    assert np.isfinite(O.value(f))
    assert np.all(np.isfinite(O.grad(f)))


def test_a_run_learns_three_classes(tmp_path) -> None:
    rng = np.random.default_rng(1)
    centres = np.array([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    y = rng.integers(0, 3, 300)
    rows = centres[y] + 0.2 * rng.normal(size=(300, 2))
    np.savez(tmp_path / "three.npz", X=rows, y=y)
    run = radmm.solve(
        "radmm", data=str(tmp_path / "three.npz"), loss="softmax", topology="ring:4", weight=100.0, rho=1.0,
        test_fraction=0.2, iterations=300,
    )  # fmt: skip
    assert abs(run.history[-1].mean_model_gap) < 1e-6
    assert run.summary["test_error"] < 0.05
    assert set(classes_of(run.model, centres)) == {0, 1, 2}
