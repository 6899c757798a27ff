"""Thresholds against brute force: every penalty, short steps and long ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import InputError
from distadmm.methods.istdp.printed import PrintedMCP
from distadmm.problems.concave import PENALTIES, WithIntercept, make

_LEAST_ALPHA = {"mcp": 1.01, "scad": 2.01, "capped-l1": 0.2, "l1": 0.2}


def phi(name, t, lam, alpha):
    """The penalty of one number, from its definition: the integral of its slope."""
    t = abs(t)
    if name == "l1":
        return lam * t
    if name == "capped-l1":
        return lam * min(t, alpha * lam)
    if name == "mcp":
        return lam * t - t * t / (2 * alpha) if t <= alpha * lam else alpha * lam * lam / 2
    if t <= lam:
        return lam * t
    if t <= alpha * lam:
        return (2 * alpha * lam * t - t * t - lam * lam) / (2 * (alpha - 1))
    return lam * lam * (alpha + 1) / 2


def best_by_brute_force(name, s, step, lam, alpha):
    """The least value of (t - s)^2 / 2 + step phi(t): a fine grid between 0 and s, then refined around its lows."""
    h = np.vectorize(lambda t: 0.5 * (t - s) ** 2 + step * phi(name, t, lam, alpha))
    grid = np.linspace(0.0, s, 801)
    values = h(grid)
    best = values.min()
    for low in np.argsort(values)[:3]:
        a, b = grid[max(low - 1, 0)], grid[min(low + 1, 800)]
        for _ in range(5):
            fine = np.linspace(a, b, 21)
            at = int(np.argmin(h(fine)))
            best = min(best, h(fine[at : at + 1])[0])
            a, b = fine[max(at - 1, 0)], fine[min(at + 1, 20)]
    return best


@st.composite
def situations(draw):
    name = draw(st.sampled_from(PENALTIES))
    lam = draw(st.floats(0.05, 3.0))
    alpha = draw(st.floats(_LEAST_ALPHA[name], 8.0))
    special = [alpha - 1, alpha, alpha + 1, 2 * alpha]  # where the formulas change
    step = draw(st.one_of(st.floats(0.02, 30.0), st.sampled_from([x for x in special if x > 0.01])))
    return name, lam, alpha, step, draw(st.floats(-8.0, 8.0)) * lam * max(1.0, step**0.5)


@given(situations())
@settings(deadline=None, max_examples=50)
def test_prox_is_a_global_minimiser(situation):
    name, lam, alpha, step, s = situation
    penalty = make(name, lam, alpha)
    t = penalty.prox(np.array([s]), step)
    h = 0.5 * (t[0] - s) ** 2 + step * phi(name, t[0], lam, alpha)
    assert h <= best_by_brute_force(name, s, step, lam, alpha) + 1e-10 * (1 + h)
    assert penalty.value(t) == pytest.approx(phi(name, t[0], lam, alpha), rel=1e-12, abs=1e-14)


@given(situations())
@settings(deadline=None, max_examples=50)
def test_prox_is_odd_and_monotone_and_shrinks(situation):
    name, lam, alpha, step, _ = situation
    penalty = make(name, lam, alpha)
    s = np.linspace(-6, 6, 401) * lam * (alpha + step)
    t = penalty.prox(s, step)
    np.testing.assert_array_equal(t, -penalty.prox(-s, step))
    assert (np.diff(t) >= -1e-12 * np.abs(s).max()).all()
    assert (np.abs(t) <= np.abs(s)).all()


@pytest.mark.parametrize("name", PENALTIES)
def test_derivatives_are_those_of_the_value(name):
    lam, alpha, step = 0.7, 4.0, 1e-5
    penalty = make(name, lam, alpha)
    # Away from 0 and from the kinks at lam and alpha lam.
    theta = np.array([-5.0, -2.1, -1.0, -0.3, 0.2, 0.9, 1.7, 2.3, 4.0])
    first, second = penalty.derivatives(theta)
    for i, t in enumerate(theta):
        low, middle, high = (phi(name, t + shift, lam, alpha) for shift in (-step, 0.0, step))
        assert first[i] == pytest.approx((high - low) / (2 * step), abs=1e-7)
        assert second[i] == pytest.approx((high - 2 * middle + low) / step**2, abs=1e-4)


@pytest.mark.parametrize("name", PENALTIES)
def test_the_intercept_is_left_free(name):
    penalty = make(name, 0.5, 3.0)
    s = np.array([0.1, -2.0, 0.01])
    free = WithIntercept(penalty)
    np.testing.assert_array_equal(free.prox(s, 0.8)[:-1], penalty.prox(s[:-1], 0.8))
    assert free.prox(s, 0.8)[-1] == s[-1]
    assert free.value(s) == penalty.value(s[:-1])


def test_printed_shrinkage_is_right_at_step_one_only():
    lam, alpha = 0.6, 3.0
    s = np.linspace(-4, 4, 161)
    np.testing.assert_allclose(
        PrintedMCP(lam, alpha).prox(s, 1.0), make("mcp", lam, alpha).prox(s, 1.0), atol=1e-12
    )
    for step in (0.3, 2.0):
        t = PrintedMCP(lam, alpha).prox(s, step)
        wrong = 0.0
        for at, value in zip(s, t):
            h = 0.5 * (value - at) ** 2 + step * phi("mcp", value, lam, alpha)
            wrong = max(wrong, h - best_by_brute_force("mcp", at, step, lam, alpha))
        assert wrong > 0.01


@pytest.mark.parametrize(
    ("name", "lam", "alpha", "says"),
    [
        ("mcp", 0.1, 1.0, "alpha > 1"),
        ("scad", 0.1, 2.0, "alpha > 2"),
        ("capped-l1", 0.1, 0.0, "alpha > 0"),
        ("mcp", -0.1, 3.0, ">= 0"),
        ("l1", float("nan"), None, ">= 0"),
        ("lasso", 0.1, None, "choose one of: mcp, scad"),
    ],
)
def test_bad_parameters_are_refused(name, lam, alpha, says):
    with pytest.raises(InputError, match=says):
        make(name, lam, alpha)
