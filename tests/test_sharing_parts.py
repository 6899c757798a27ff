"""The x-update, the z-update, the forms of ADMM sharing and the stability rule, each by a second route."""

from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from distadmm.algorithm import find
from distadmm.errors import InputError
from distadmm.methods.sharing import admm, stability
from distadmm.methods.sharing.averaged import Averaged
from distadmm.methods.sharing.jacobi import Corrected, Paper
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Hinge, HuberHinge, Logistic, SmoothHinge, Squared
from distadmm.problems.prox import prox
from distadmm.problems.regularisers import Ball, Box, Regulariser, Whole, region_named, regulariser_named
from distadmm.ranks.star import Star
from distadmm.structs import struct

seeds = st.integers(0, 10_000)


def _block(rng, rows, width, kind):
    if kind == "sparse":
        return sp.random(rows, width, density=0.3, random_state=rng, format="csr")
    matrix = rng.normal(size=(rows, width))
    if kind == "deficient" and width > 1:
        matrix[:, -1] = matrix[:, 0]
    return matrix


def _kkt(block, x, w, c, lam, reg, region):
    """How far x is from a fixed point of a projected proximal step: 0 exactly at the minimiser."""
    gradient = c * block.adjoint(block.apply(x) - w) + lam * reg.l2 * x
    step = 1.0 / (c * np.linalg.norm(block.gram, 2) + lam * reg.l2 + 1e-30)
    target = x - step * gradient
    target = np.sign(target) * np.maximum(np.abs(target) - step * lam * reg.l1, 0)
    if isinstance(region, Box):
        target = np.clip(target, region.low, region.high)
    return np.abs(x - target).max() / (1 + np.abs(x).max())


@settings(deadline=None, max_examples=40)
@given(
    seeds,
    st.sampled_from(["dense", "sparse", "deficient"]),
    st.sampled_from([(30, 4), (30, 12), (8, 20)]),
    st.sampled_from([Regulariser(0, 1), Regulariser(1, 0), Regulariser(0.6, 0.4)]),
    st.sampled_from([Whole(), Box(-0.2, 0.3)]),
    st.booleans(),
)
def test_x_update_meets_its_optimality_conditions(seed, kind, shape, reg, region, centre):
    rng = np.random.default_rng(seed)
    block = Columns(_block(rng, *shape, kind), centre=centre)
    w, c, lam = rng.normal(size=shape[0]), 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-2, 1)
    x = minimise(block, w, c, lam, reg, region, np.zeros(shape[1]))
    if isinstance(region, Box):
        assert ((x >= region.low - 1e-9) & (x <= region.high + 1e-9)).all()
    assert _kkt(block, x, w, c, lam, reg, region) < 1e-9


@settings(deadline=None, max_examples=20)
@given(seeds, st.sampled_from([Regulariser(0, 1), Regulariser(0.5, 0.5)]), st.booleans())
def test_x_update_in_a_ball_is_the_best_point_of_the_ball(seed, reg, wide):
    rng = np.random.default_rng(seed)
    shape = (6, 9) if wide else (25, 4)
    block, w = Columns(rng.normal(size=shape)), 3 * rng.normal(size=shape[0])
    radius, lam, c = 0.3, 0.1, 2.0
    x = minimise(block, w, c, lam, reg, Ball(radius), np.zeros(shape[1]))
    assert np.linalg.norm(x) <= radius * (1 + 1e-9)

    def value(x):
        return lam * reg.value(x) + 0.5 * c * ((block.apply(x) - w) ** 2).sum()

    for _ in range(200):  # no point of the ball is better
        other = x + 0.1 * rng.normal(size=x.size)
        other *= min(1.0, radius / np.linalg.norm(other))
        assert value(other) >= value(x) - 1e-9 * abs(value(x))
    line = [value(s * x / np.linalg.norm(x) * radius) for s in np.linspace(0, 1, 50)]
    assert min(line) >= value(x) - 1e-9 * abs(value(x))


def test_centred_sparse_columns_equal_dense_centred_columns():
    rng = np.random.default_rng(1)
    sparse = sp.random(40, 7, density=0.3, random_state=rng, format="csr")
    dense = sparse.toarray() - sparse.toarray().mean(axis=0)
    ours, plain = Columns(sparse, centre=True), Columns(dense)
    x, v = rng.normal(size=7), rng.normal(size=40)
    np.testing.assert_allclose(ours.apply(x), plain.apply(x), atol=1e-12)
    np.testing.assert_allclose(ours.adjoint(v), plain.adjoint(v), atol=1e-12)
    np.testing.assert_allclose(ours.gram, plain.gram, atol=1e-12)
    np.testing.assert_allclose(ours.project(v), dense @ np.linalg.pinv(dense) @ v, atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(-6, 3), st.sampled_from([Logistic(), SmoothHinge(), HuberHinge(0.3)]))
def test_z_update_finds_the_root(seed, exponent, loss):
    rng = np.random.default_rng(seed)
    rho = 10.0**exponent
    n = rng.normal(size=50) * 10 ** rng.uniform(-1, 4, 50)
    y = rng.choice([-1.0, 1.0], 50)
    z = prox(loss, y, rho, n, 100 * rng.normal(size=50))
    for i in range(0, 50, 10):
        low, high = n[i] - 1.0 / rho - 1, n[i] + 1.0 / rho + 1
        root = brentq(
            lambda s, i=i: float(loss.slope(np.array([s]), y[i : i + 1])[0] + rho * (s - n[i])),
            low, high, xtol=1e-13, rtol=1e-15,
        )  # fmt: skip
        curvature = float(loss.curvature(np.array([root]), y[i : i + 1])[0]) + rho
        # Both routes see g only up to its rounding, which is the accuracy their roots can have.
        assert abs(z[i] - root) <= 1e-12 * (1 + abs(root)) + 1e-15 * (1 + rho * abs(n[i])) / curvature


@pytest.mark.parametrize("loss", [Squared(), Hinge()])
def test_closed_forms_of_the_z_update(loss):
    rng = np.random.default_rng(3)
    y, n = rng.choice([-1.0, 1.0], 200), 3 * rng.normal(size=200)
    for rho in (0.1, 1.0, 7.0):
        z = prox(loss, y, rho, n)
        best = loss.value(z, y) + rho / 2 * (z - n) ** 2
        for shift in (-1e-3, 1e-3, -0.1, 0.1):
            assert (loss.value(z + shift, y) + rho / 2 * (z + shift - n) ** 2 >= best).all()


@pytest.mark.parametrize("loss", [Logistic(), SmoothHinge(), SmoothHinge(0.2)])
def test_slopes_and_curvatures_are_derivatives(loss):
    z, step = np.linspace(-3, 3, 101) + 1e-3, 1e-6
    for y in (np.ones(101), -np.ones(101)):
        slope = (loss.value(z + step, y) - loss.value(z - step, y)) / (2 * step)
        np.testing.assert_allclose(slope, loss.slope(z, y), atol=1e-8)
        curvature = (loss.slope(z + step, y) - loss.slope(z - step, y)) / (2 * step)
        kinks = np.abs(curvature - loss.curvature(z, y)) > 1e-5
        assert kinks.sum() <= 2
        assert np.abs(loss.slope(z, y)).max() <= loss.max_slope
        assert loss.curvature(z, y).max() <= loss.max_curvature


def _data(seed, widths=(3, 4, 2), rows=40):
    rng = np.random.default_rng(seed)
    D = [rng.normal(size=(rows, d)) for d in widths]
    y = np.sign(sum(block @ rng.normal(size=block.shape[1]) for block in D) + rng.normal(size=rows) + 0.5)
    return D, y


def _iterate(form, D, y, problem, count, *, star=None):
    """`count` steps, whatever the centre's verdict."""
    blocks = {m: Columns(block) for m, block in enumerate(D, 1)}
    seat = Seat(star or Star(parties=len(D)), problem, blocks, y, y.size)
    state = form.init(seat)
    for k in range(1, count + 1):
        state = form.step(k, state, seat)
    return state


@struct
class OneVector(Paper):
    """From zeros, with one vector down."""

    two_vectors: ClassVar[bool] = False


def _optimum(D, y, problem):
    A = np.hstack(D)
    if problem.intercept:
        A = np.hstack([A, np.ones((y.size, 1))])
    penalised = np.ones(A.shape[1])
    if problem.intercept:
        penalised[-1] = 0

    def value(x):
        return problem.loss.value(A @ x, y).sum() + problem.lam / 2 * (penalised * x * x).sum()

    def gradient(x):
        return A.T @ problem.loss.slope(A @ x, y) + problem.lam * penalised * x

    found = minimize(
        value, np.zeros(A.shape[1]), jac=gradient, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 1e-16}
    )
    return found.x


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", ["corrected", "paper", "averaged", "gauss-seidel"])
def test_every_form_reaches_the_centralised_optimum(name, intercept):
    D, y = _data(5)
    problem = admm.Problem(Logistic(), 0.7, intercept=intercept)
    D = [block - block.mean(axis=0) for block in D]
    form = find(name, "star").cls(rho=0.3, tau=0.0 if name == "gauss-seidel" else 1.3)
    state = _iterate(form, D, y, problem, 1500)
    expected = _optimum(D, y, problem)
    found = np.concatenate([*state.x.values(), [state.b] if intercept else []])
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_the_averaged_form_is_the_proximal_weight_m_minus_one():
    D, y = _data(6)
    problem = admm.Problem(Logistic(), 0.7)
    one = _iterate(Corrected(rho=0.2, tau=2.0), D, y, problem, 30)
    other = _iterate(Averaged(rho=0.2), D, y, problem, 30)
    for m in one.x:
        np.testing.assert_allclose(one.x[m], other.x[m], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(one.y, other.y, rtol=1e-10, atol=1e-12)


def test_one_vector_down_says_as_much_as_two_and_costs_half():
    D, y = _data(7)
    problem = admm.Problem(Logistic(), 0.7)
    stars = [Star(parties=3), Star(parties=3)]
    one = _iterate(OneVector(rho=0.2, tau=1.0), D, y, problem, 10, star=stars[0])
    two = _iterate(Paper(rho=0.2, tau=1.0), D, y, problem, 10, star=stars[1])
    np.testing.assert_allclose(one.z, two.z, rtol=1e-12)
    up, words = {"messages": 30, "bytes": 30 * 8 * 40}, {"messages": 33, "bytes": 33 * 16}
    assert stars[0].sent() == {"control down": words, "vector down": up, "vector up": up}
    assert stars[1].sent()["vector down"] == {"messages": 60, "bytes": 60 * 8 * 40}


def test_single_precision_on_the_wire_halves_the_bytes_and_keeps_the_answer():
    D, y = _data(8)
    problem = admm.Problem(Logistic(), 0.7)
    narrow = Star(parties=3, wire="float32")
    single = _iterate(OneVector(rho=0.3, tau=1.3), D, y, problem, 300, star=narrow)
    double = _iterate(OneVector(rho=0.3, tau=1.3), D, y, problem, 300)
    np.testing.assert_allclose(single.total, double.total, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(single.total, double.total)
    assert narrow.sent()["vector up"]["bytes"] == 300 * 3 * 4 * 40


@pytest.mark.parametrize("copies", [2, 3, 4, 10])
@pytest.mark.parametrize(("side", "grows"), [(0.97, True), (1.03, False)])
def test_the_stability_rule_is_sharp_for_identical_blocks(copies, side, grows):
    rng = np.random.default_rng(2)
    D, y = [rng.normal(size=(20, 3))] * copies, rng.normal(size=20)
    problem = admm.Problem(Squared(), 1e-9)
    tau = 0.0
    least = stability.least_stable_rho(copies, tau, 1.0)
    assert least == (3 * copies - 4) / 2
    far = _iterate(OneVector(rho=side * least, tau=tau), D, y, problem, 400)
    near = _iterate(OneVector(rho=side * least, tau=tau), D, y, problem, 200)
    late, early = (float(np.linalg.norm(s.total - s.z)) for s in (far, near))
    assert (late > 1.5 * early) == grows


def test_the_proximal_weight_is_stable_at_every_penalty():
    rng = np.random.default_rng(4)
    D, y = [rng.normal(size=(20, 3))] * 6, rng.normal(size=20)
    problem = admm.Problem(Squared(), 1e-6)
    for rho in (0.01, 0.3, 10.0):
        state = _iterate(OneVector(rho=rho, tau=stability.proximal_weight(6.0)), D, y, problem, 800)
        assert np.linalg.norm(state.total - state.z) < 1e-2


@settings(deadline=None, max_examples=20)
@given(seeds, st.integers(2, 5))
def test_overlap_is_the_top_eigenvalue_of_the_summed_projections(seed, parties):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(30, 1))
    D = [
        np.hstack([shared + 0.3 * rng.normal(size=(30, 1)), rng.normal(size=(30, 2))]) for _ in range(parties)
    ]
    blocks = {m: Columns(block) for m, block in enumerate(D, 1)}
    exact = np.linalg.eigvalsh(sum(block @ np.linalg.pinv(block) for block in D))[-1]
    found = stability.overlap(Star(parties=parties), blocks, 30, np.random.SeedSequence(seed), rounds=60)
    assert exact / stability.MARGIN <= found <= exact * (1 + 1e-9)


def _troubled(residuals):
    return any(stability.trouble(np.array(residuals[:t])) for t in range(1, len(residuals) + 1))


def test_limit_cycles_and_overflow_are_named_but_not_slow_progress():
    assert _troubled([0.5 + 0.1 * np.sin(t) for t in range(120)])
    assert not _troubled([1.0 / (1 + 0.05 * t) for t in range(400)])
    assert _troubled([0.1 * 2.0**t for t in range(60)])
    assert _troubled([float("nan")])


@pytest.mark.parametrize("text", ["l3", "enet", "enet:2", "l2:1"])
def test_unknown_regulariser(text):
    with pytest.raises(InputError, match="choose one of"):
        regulariser_named(text)


@pytest.mark.parametrize("text", ["cube", "ball", "ball:-1", "box:1:2", "box:1"])
def test_unknown_set(text):
    with pytest.raises(InputError):
        region_named(text)
