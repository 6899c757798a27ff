"""What is certified by residuals holds of the problem itself, not only of what floats show of it."""

import numpy as np
import pytest

from distadmm import radmm
from distadmm.errors import InputError
from distadmm.problems.consensus import GeneralisedLinear, Problem, Softmax
from distadmm.problems.losses import LOSSES, HuberHinge, Loss
from distadmm.problems.rounding import Certain

TAU, LD = 1e-10, np.longdouble


def rows(stream: np.random.Generator, B: int, d: int, alike: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm 1; alike, what rounding does to their sum adds up."""
    X, y = stream.normal(size=(B, d)), stream.choice([-1.0, 1.0], B)
    if alike:
        X[:], y[:] = X[0], 1.0
    return X / np.linalg.norm(X, axis=1)[:, None], y


def left(o: GeneralisedLinear, loss: Loss, parts: list[np.ndarray], Q: float, f: np.ndarray) -> float:
    """The gradient's norm at f, in more digits; of `parts` the linear term is the sum."""
    A, f = o.A.astype(LD), f.astype(LD)
    slope = loss.slope(A @ f, np.ones(1, LD))
    g = A.T @ (LD(o.scale) * slope) + LD(o.ridge) * f + LD(Q) * f + sum(part.astype(LD) for part in parts)
    return float(np.sqrt(g @ g))


@pytest.mark.skipif(np.finfo(LD).eps > 1e-18, reason="long doubles have no more digits here")
@pytest.mark.parametrize("loss", [LOSSES["logistic"], LOSSES["smooth-hinge"], HuberHinge(1e-4)])
@pytest.mark.parametrize("weight", [1e-3, 1750.0, 1e5])
@pytest.mark.parametrize("Q", [1e-6, 1.0, 1e3, 1e5, 1e6, 1e7, 1e10, 1e16])
def test_no_residual_is_below_what_is_left(loss: Loss, weight: float, Q: float) -> None:
    stream, certain = np.random.default_rng(round(weight + Q)), 0
    tolerance = TAU * max(1.0, weight * loss.max_curvature / 1e3)
    for B, d in ((1, 1), (50, 5), (2400, 14), (20_000, 3)):
        for alike in (False, True):
            o = GeneralisedLinear(*rows(stream, B, d, alike), loss, weight=weight, ridge=1e-4)
            pull = -Q * stream.normal(size=(1, d)) * 10.0 ** stream.uniform(-3, 1)
            noise = stream.normal(size=(1, d)) * weight / B
            problem = Certain([o], tolerance)
            f = problem.argmin(pull + noise, np.full((1, 1), Q), np.zeros((1, d)))
            true = left(o, loss, [pull[0], noise[0]], Q, f[0])
            assert true <= problem.residual[0]
            certain += problem.residual[0] <= tolerance
    assert certain or Q > 1


def test_floats_alone_certify_what_is_a_billion_times_off() -> None:
    """Why residuals count what is hidden: of noise beside a pull of 1e16 nothing is left."""
    stream = np.random.default_rng(1)
    certified, off = 0, 0.0
    for _ in range(20):
        o = GeneralisedLinear(*rows(stream, 50, 5, False), LOSSES["logistic"], weight=50.0)
        pull, noise, Q = -1e16 * stream.normal(size=(1, 5)), stream.normal(size=(1, 5)), np.full((1, 1), 1e16)
        alone, certain = Problem([o], TAU), Certain([o], TAU)
        f = alone.argmin(pull + noise, Q, np.zeros((1, 5)))
        if alone.residual[0] <= TAU:
            certified += 1
            off = max(off, left(o, LOSSES["logistic"], [pull[0], noise[0]], 1e16, f[0]))
        certain.argmin(pull + noise, Q, np.zeros((1, 5)))
        assert certain.residual[0] > 1.0
    assert certified
    assert off > 1e9 * TAU


def test_several_classes_and_blocks_are_counted_alike() -> None:
    stream = np.random.default_rng(2)
    X, _ = rows(stream, 30, 4, False)
    several = Certain([Softmax(X, stream.integers(0, 3, 30), 3, weight=1.0)], TAU)
    one = Certain([GeneralisedLinear(X.copy(), np.ones(30), LOSSES["logistic"]) for _ in range(3)], TAU)
    for problem in (several, one):
        shape = len(problem.objectives), problem.dimension
        problem.argmin(np.zeros(shape), np.ones((shape[0], 1)), np.zeros(shape))
        assert np.all(problem.residual <= TAU)
        problem.argmin(np.full(shape, 1e16), np.full((shape[0], 1), 1e16), np.ones(shape))
        assert np.all(problem.residual > 1.0)
        assert type(problem.anew()) is Certain


PRIVATE = {"data": "tiny", "adjacency": "replace", "rng": "simulation", "alpha": "1", "start": 1.0}


@pytest.mark.parametrize("algorithm", ["admm", "madmm", "radmm", "mradmm"])
@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_releases_under_a_penalty_that_hides_their_noise_have_no_bound(
    algorithm: str, mechanism: str
) -> None:
    flags = {
        **PRIVATE,
        "mechanism": mechanism,
        "topology": "complete:2",
        "iterations": 1,
        "rows_per_node": 40,
    }
    for seed in range(6):
        run = radmm.solve(algorithm, **flags, eta="1e16", seed=seed)
        assert run.epsilon == np.inf
        assert "what rounding may hide" in run.statement
    assert radmm.solve(algorithm, **flags, eta="10").epsilon < np.inf


def test_a_weight_whose_sums_hide_more_than_the_tolerance_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(
        InputError, match=r"hide a gradient of 0.0003.* lower --weight, or give --tolerance 0.001"
    ):
        radmm.solve("admm", **PRIVATE, topology="er5", iterations=2, weight=1e11)
    flags = {**PRIVATE, "topology": "er5", "iterations": 2, "weight": 1e11, "tolerance": 1e-2}
    assert radmm.solve("admm", **flags, eta="1").epsilon < np.inf


@pytest.mark.skipif(np.finfo(LD).eps > 1e-18, reason="long doubles have no more digits here")
@pytest.mark.parametrize(
    ("algorithm", "mechanism", "iterations"), [("madmm", "output", 10), ("mradmm", "objective", 100)]
)
def test_models_that_much_noise_makes_long_keep_their_bound(
    algorithm: str, mechanism: str, iterations: int
) -> None:
    flags = {**PRIVATE, "topology": "er5", "mechanism": mechanism, "iterations": iterations, "start": 0.0}
    del flags["alpha"]
    assert radmm.solve(algorithm, **flags, epsilon=0.5).epsilon <= 0.5
