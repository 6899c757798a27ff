"""Discrete Gaussian noise: the continuous formula is false for it, and the bounds here are not."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.privacy.accounting import gaussian
from distadmm.privacy.accounting.accountant import DiscreteGaussian, Gaussian, bounds, epsilon
from distadmm.privacy.accounting.curves import read


def law(sigma, reach):
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    return x, p / p.sum()


def divergence(sigma, shift, eps):
    """sum_x (p(x) - e^eps p(x - shift))_+ over a box of Z^n, for a vector of whole shifts."""
    reach = math.ceil(12 * sigma) + max(map(abs, shift))
    p, q = np.ones(1), np.ones(1)
    for s in shift:
        x, one = law(sigma, reach)
        moved = np.exp(-((x - s).astype(float) ** 2) / (2 * sigma**2))
        p, q = np.multiply.outer(p, one).ravel(), np.multiply.outer(q, moved / moved.sum()).ravel()
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


def test_the_continuous_formula_is_false_on_a_grid():
    """At sigma = 1 grid unit the true delta is up to 1.8 times the continuous one; at 64 hardly more."""
    worst = {}
    for sigma, shift in ((1.0, 1), (4.0, 4), (64.0, 64)):
        eps = np.linspace(0, 4, 200)
        true = np.array([divergence(sigma, (shift,), e) for e in eps])
        said = gaussian.hockey_stick(shift / sigma, eps)
        assert np.all(read(gaussian.discrete(sigma, shift, 1), eps) >= true * (1 - 1e-12))
        worst[sigma] = float((true / said).max())
    assert worst[1.0] > 1.15
    assert worst[1.0] > worst[4.0] > worst[64.0] >= 0.999


@given(
    sigma=st.sampled_from([0.7, 1.0, 1.8, 3.0, 6.0]),
    shift=st.integers(1, 6),
    eps=st.floats(0.0, 5.0),
)
@settings(deadline=None, max_examples=50)
def test_one_dimension_is_summed_exactly(sigma, shift, eps):
    found = gaussian.summed(sigma, shift, np.array([eps]))[0]
    true = divergence(sigma, (shift,), eps)
    assert true * (1 - 1e-10) <= found <= true * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.5, 4.0])
def test_no_shift_of_the_plane_is_above_the_bound(sigma):
    """Every whole shift of length at most 5, in two dimensions."""
    bound = gaussian.discrete(sigma, 5.0, 2)
    for shift in product(range(6), repeat=2):
        if 0 < math.hypot(*shift) <= 5:
            for eps in (0.0, 0.5, 2.0):
                assert divergence(sigma, shift, eps) <= read(bound, np.array([eps]))[0] * (1 + 1e-12)


@pytest.mark.parametrize(("sigma", "excess"), [(4.0, 0.08), (16.0, 0.01), (64.0, 1e-3), (2.0**16, 2e-4)])
def test_many_dimensions_approach_the_continuous_price_from_above(sigma, excess):
    continuous = epsilon(Gaussian(3.0, 20), 1e-5, "replace")
    discrete = epsilon(DiscreteGaussian(sigma, sigma / 3, 20, 32_561), 1e-5, "replace")
    assert continuous < discrete < continuous * (1 + excess)


def test_a_grid_as_wide_as_the_noise_is_priced_by_concentrated_privacy():
    found = bounds(DiscreteGaussian(1.0, 1.0, 20, 1000), 1e-5, "replace")
    assert found.best == found.renyi < found.pld
    rough = Gaussian(1.0, 20).rdp(adjacency="replace")
    np.testing.assert_array_equal(DiscreteGaussian(1.0, 1.0, 20, 1000).rdp(adjacency="replace"), rough)


def test_it_is_never_exactly_gaussian():
    assert DiscreteGaussian(50.0, 5.0).gdp_mu("replace") is None
