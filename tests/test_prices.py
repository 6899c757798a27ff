"""Every kind of event priced a second time, by code that shares nothing with the accountant: the binomial law, normal
tails, sums over integers, and brute convolution of losses on a grid.

The second route splits each loss between the two grid points beside it, so that its mean is kept: it is no bound, but
right to some 1e-5.  The accountant may not be below it, nor above it by more than one part in a thousand.
"""

import math
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, special, stats

from distadmm.privacy.accounting import events
from distadmm.privacy.accounting.accountant import (
    DiscreteGaussian,
    Gaussian,
    KNorm,
    Leakage,
    ObjectivePerturbation,
    PostProcessing,
    Pure,
    Unbounded,
    epsilon,
)
from distadmm.privacy.accounting.pairwise_gaussian import PairwiseGaussian, by_size
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian

DELTA = 1e-5
COUNTS = [1, 5, 50, 200, 1000]
QUICK = [pytest.param(k, marks=[] if k in (1, 50) else pytest.mark.slow) for k in COUNTS]
PAPER = ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 8.2, logistic=True)
POINTS = 2**17  # of the grid


# -- the second route ----------------------------------------------------------------------------------


def convolved(loss, p, count, infinite=0.0):
    """epsilon at DELTA of `count` releases with these losses under P; what p lacks to 1 is not counted."""
    mean, p = float(p @ loss), np.asarray(p)
    spread = math.sqrt(float(p @ loss**2) - mean**2)
    step = 2 * (14 * spread * math.sqrt(count) + 2 * max(abs(loss.min()), abs(loss.max()))) / POINTS
    low = np.floor(loss / step)
    share = loss / step - low
    at = low.astype(np.int64) % POINTS
    law = np.bincount(at, p * (1 - share), POINTS) + np.bincount((at + 1) % POINTS, p * share, POINTS)
    total = np.fft.irfft(np.fft.rfft(law) ** count, POINTS)
    centre = round(count * mean / step)
    index = np.arange(centre - POINTS // 2, centre + POINTS // 2)
    total, loss = np.maximum(total[index % POINTS], 0), index * step
    never = -math.expm1(count * math.log1p(-infinite))

    def excess(eps):
        return float(total @ -np.expm1(np.minimum(eps - loss, 0))) + never - DELTA

    return 0.0 if excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, float(loss[-1]), xtol=1e-13))


def nodes(law, count):
    """Gauss-Legendre between far quantiles of a law: places and weights."""
    low, high = law.ppf(1e-19), law.isf(1e-19)
    x, weight = np.polynomial.legendre.leggauss(count)
    x = low + (high - low) * (x + 1) / 2
    return x, weight * (high - low) / 2 * law.pdf(x)


@lru_cache(maxsize=8)
def noise_losses(noise, d, shift):
    """Losses of noise moved by `shift` (in its own units), and their weights."""
    if noise == "gaussian":
        x, p = nodes(stats.norm(), 4000)
        return shift * x + shift**2 / 2, p / p.sum()
    if d == 1:
        x, p = np.linspace(-45, 45, 500_001), None
        p = np.exp(-np.abs(x))
        return np.abs(x + shift) - np.abs(x), p / p.sum()
    (r, p), (t, q) = nodes(stats.gamma(d), 200), nodes(stats.beta((d - 1) / 2, (d - 1) / 2, -1, 2), 2000)
    loss = np.sqrt(r[:, None] ** 2 + 2 * r[:, None] * shift * t + shift**2) - r[:, None]
    weight = p[:, None] * q
    return loss.ravel(), (weight / weight.sum()).ravel()


class Curves:
    """H_gamma of a pair for gamma = e^x on a uniform grid of x on both sides of 0, as upper bounds; hull and masses."""

    def __init__(self, x, value):
        gamma, keep = np.exp(x), []
        for i in range(len(x)):  # the lower hull
            while len(keep) > 1 and (value[keep[-1]] - value[keep[-2]]) * (gamma[i] - gamma[keep[-1]]) >= (
                value[i] - value[keep[-1]]
            ) * (gamma[keep[-1]] - gamma[keep[-2]]):
                keep.pop()
            keep.append(i)
        self.x, self.value = x, np.interp(gamma, gamma[keep], value[keep])

    def masses(self):
        """Q's mass at each loss is the bend of the hull there; P's is e^loss times as much."""
        gamma = np.exp(self.x)
        slope = np.concatenate([[-1.0], np.diff(self.value) / np.diff(gamma), [0.0]])
        q = np.maximum(np.diff(slope), 0.0)
        return self.x, q * gamma, float(self.value[-1])

    def mirrored(self):
        """H_gamma(Q|P) = 1 - gamma + gamma H_{1/gamma}(P|Q)."""
        return Curves(self.x, -np.expm1(self.x) + np.exp(self.x) * self.value[::-1])

    def power(self, level):
        """R(level) = min over gamma of gamma level + H; in pieces, for memory."""
        gamma = np.exp(self.x)
        return np.minimum(
            np.concatenate(
                [(np.outer(part, gamma) + self.value).min(axis=1) for part in np.array_split(level, 64)]
            ),
            1.0,
        )

    def after(self, first, x):
        """H of P3 against P1, self = (P3, P2), first = (P2, P1), where gamma >= 1; both directions are below it."""
        level = np.concatenate([[0.0], np.geomspace(1e-12, 1e-3, 1500), np.linspace(1e-3, 1, 5000)[1:]])
        power = self.power(first.power(level))
        gamma = np.exp(x)
        return np.concatenate(
            [(power - np.outer(part, level)).max(axis=1) for part in np.array_split(gamma, 64)]
        )


def both_sides(x, right, left):
    """Curves from H to the right of gamma = 1 and from H of the reversed pair; x >= 0."""
    below = -np.expm1(-x) + np.exp(-x) * left
    middle = min(right[0], left[0])
    return Curves(np.concatenate([-x[:0:-1], x]), np.concatenate([below[:0:-1], [middle], right[1:]]))


def profile(noise, d, shift, tau, x):
    """E[(1 - e^(x - tau - max(0, L)))_+] of the noise moved by `shift`; without a tau, of L itself."""
    loss, p = noise_losses(noise, d, shift)
    order = np.argsort(loss)
    loss, p = np.maximum(loss[order], 0.0) + tau, p[order]
    above, lower = np.cumsum(p[::-1])[::-1], np.cumsum((p * np.exp(-loss))[::-1])[::-1]
    at = np.searchsorted(loss, x, side="right")
    pad = lambda a: np.append(a, 0.0)[at]  # noqa: E731
    return pad(above) - np.exp(x) * pad(lower)


@lru_cache(maxsize=8)
def objective(event, adjacency, records=1):
    """The curves that docs/proofs state for one release."""
    noise, d, tau = event.noise, event.dimension, event.log_jacobian
    shift = event.weight * event.scale if noise == "gamma" else event.weight / event.scale
    reach = (
        2 * shift + 2 * tau
        if noise == "gamma" and d == 1
        else 22 * shift / (math.sqrt(d) if noise == "gamma" else 1)
    )
    x = np.linspace(0, (reach + 2 * tau) * max(1.0, records), 3001)
    h, r = profile(noise, d, shift, 0.0, x), profile(noise, d, shift, tau, x)
    if adjacency == "add-remove":
        if records == 1:
            return both_sides(x, h, r), both_sides(x, r, h)
        step = both_sides(x, r, r)
        chain = step.after(step, x)
        return (both_sides(x, chain, chain),)
    out = both_sides(x, h, r)  # (C, C + z')
    chain = out.mirrored().after(out, x)
    swap = np.minimum(chain, profile(noise, d, 2 * shift, tau, x))
    swap = both_sides(x, swap, swap)
    if records == 2:
        chain = swap.after(swap, x)
        swap = both_sides(x, chain, chain)
    return (swap,)


def agrees(found, second, above=1e-3):
    assert found >= second * (1 - 2e-5) - 1e-12, "the accountant is below the second route"
    assert found <= second * (1 + above), "the accountant is too far above the second route"


# -- the kinds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("multiplier", [0.8, 5.0, 40.0])
def test_gaussian(count, multiplier):
    mu = math.sqrt(count) / multiplier

    def excess(eps):
        tail = stats.norm.logcdf(-mu / 2 - eps / mu) + eps
        return stats.norm.cdf(mu / 2 - eps / mu) - math.exp(tail) - DELTA

    second = optimize.brentq(excess, 0, mu**2 + 10 * mu, xtol=1e-13) if excess(0) > 0 else 0.0
    agrees(epsilon([Gaussian(multiplier, count)], DELTA, "replace"), second, 1e-6)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("each", [0.01, 0.5])
def test_pure(count, each):
    k = np.arange(count + 1)
    loss, p = each * (2 * k - count), stats.binom.pmf(k, count, special.expit(each))

    def excess(eps):
        return float(p @ -np.expm1(np.minimum(eps - loss, 0))) - DELTA

    second = optimize.brentq(excess, 0, count * each, xtol=1e-13) if excess(0) > 0 else 0.0
    agrees(epsilon([Pure(each, count)], DELTA, "replace"), second)


@pytest.mark.parametrize("count", QUICK)
@pytest.mark.parametrize(("sigma", "moved"), [(1.0, 1), (4.0, 3), (60.0, 7)])
def test_discrete_gaussian(count, sigma, moved):
    x = np.arange(-math.ceil(40 * sigma), math.ceil(40 * sigma) + 1)
    p = np.exp(-(x**2) / (2 * sigma**2))
    loss = (2 * x * moved + moved**2) / (2 * sigma**2)
    agrees(
        epsilon([DiscreteGaussian(sigma, moved, count)], DELTA, "replace"),
        convolved(loss, p / p.sum(), count),
    )


@pytest.mark.parametrize("count", QUICK)
@pytest.mark.parametrize("parts", [2, 20])
def test_sums_of_discrete_shares(count, parts):
    """m shares of N_Z(0, s^2) added up are worth what N_Z(0, m s^2) is, and not less than their continuous Gaussian."""
    each, moved = 3.0, 2
    x = np.arange(-120, 121)
    p = np.exp(-(x**2) / (2 * each**2))
    law = np.ones(1)
    for _ in range(parts):
        law = np.convolve(law, p / p.sum())
    law = law[law > 1e-250]
    loss, law = np.log(law[moved:] / law[:-moved]), law[moved:]
    sigma = each * math.sqrt(parts)
    second = convolved(loss[law > 1e-20], law[law > 1e-20], count)
    agrees(epsilon([DiscreteGaussian(sigma, moved, count)], DELTA, "replace"), second)
    assert second <= epsilon([Gaussian(math.sqrt(sigma**2 - 4) / moved, count)], DELTA, "replace") * (
        1 + 1e-6
    )


@pytest.mark.parametrize(
    ("count", "colluding"),
    [
        pytest.param(k, q, marks=[] if (k, q) == (50, 1) else pytest.mark.slow)
        for k in COUNTS
        for q in (0, 1, 2)
    ],
)
def test_noise_on_edges(count, colluding):
    """A wheel of six: the losses of what is left when a coalition takes off the noise of its edges, edge by edge."""
    n, s, c, moved = 6, 400.0, 1200.0, 60.0
    edges = [(0, j) for j in range(1, n)] + [(j, j % (n - 1) + 1) for j in range(1, n)]
    A = np.zeros((n, n))
    for i, j in edges:
        A[i, j] = A[j, i] = 1.0
    worst = 0.0
    for members in combinations(range(n), colluding):
        secret = [(i, j) for i, j in edges if not {i, j} & set(members)]
        noise = np.zeros((n, n + len(secret)))  # what u and each secret v do to the nodes
        noise[:, :n] = s * np.eye(n)
        for k, (i, j) in enumerate(secret):
            noise[i, n + k], noise[j, n + k] = c, -c
        for i in set(range(n)) - set(members):
            # The least change of (u, v) that moves node i so far and nobody else is what the noise hides it by.
            target = np.where(np.arange(n) == i, moved, 0.0)
            worst = max(worst, float(np.linalg.norm(np.linalg.pinv(noise) @ target)))
    x, p = nodes(stats.norm(), 4000)
    shares = tuple(by_size(np.ones(n), (c / s) ** 2 * A, 3).max(axis=1))
    event = PairwiseGaussian(s, c, moved, shares, colluding, count=count)
    agrees(epsilon([event], DELTA, "replace"), convolved(worst * x + worst**2 / 2, p / p.sum(), count))


@pytest.mark.parametrize("count", QUICK)
@pytest.mark.parametrize("shift", [(2, 2, 1), (3, 0, 0)], ids=str)
def test_discrete_gaussian_on_several_integers(count, shift):
    """n = 3, integer shifts of norm 3: sums of the coordinates' losses, listed; the bound is for the worst of all."""
    sigma = 40.0
    x = np.arange(-400, 401)
    p = np.exp(-(x**2) / (2 * sigma**2))
    p /= p.sum()
    loss, law = np.zeros(1), np.ones(1)
    for moved in filter(None, shift):
        loss = np.add.outer(loss, (2 * x * moved + moved**2) / (2 * sigma**2)).ravel()
        law = np.multiply.outer(law, p).ravel()
        loss, which = np.unique(np.round(loss * 2 * sigma**2), return_inverse=True)
        loss, law = loss / (2 * sigma**2), np.bincount(which, law)
    agrees(epsilon([DiscreteGaussian(sigma, 3.0, count, 3)], DELTA, "replace"), convolved(loss, law, count))


@pytest.mark.parametrize("count", QUICK)
@pytest.mark.parametrize(("d", "shift"), [(1, 0.05), (2, 0.2), (105, 0.4375)])
def test_k_norm(count, d, shift):
    loss, p = noise_losses("gamma", d, shift)
    agrees(epsilon([KNorm(d, 1.0, shift, count)], DELTA, "replace"), convolved(loss, p, count))


OBJECTIVES = {
    "paper": PAPER,
    "gaussian": replace(PAPER, noise="gaussian", scale=10.0),
    "steep": replace(PAPER, floor=0.5, scale=2.0),
}


@pytest.mark.parametrize("count", QUICK)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize(
    "name", ["paper", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gaussian", "steep"))]
)
def test_objective_perturbation(name, adjacency, count):
    event = OBJECTIVES[name]
    second = max(convolved(*_two(pair), count, pair.masses()[2]) for pair in objective(event, adjacency))
    agrees(epsilon([replace(event, count=count)], DELTA, adjacency), second)


def _two(pair):
    return pair.masses()[:2]


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_two_records_of_one_person(adjacency, count):
    (pair,) = objective(PAPER, adjacency, 2)
    found = epsilon([replace(PAPER, count=count, records=2)], DELTA, adjacency)
    agrees(found, convolved(*_two(pair), count, pair.masses()[2]), 2e-3)


@pytest.mark.parametrize("count", QUICK)
def test_flipped_labels_and_output_noise(count):
    loss, p = noise_losses("gamma", 105, PAPER.weight)
    agrees(epsilon([replace(PAPER, count=count)], DELTA, "label"), convolved(loss, p, count))
    sure = np.array([-1e-3, 1e-3])
    with_noise = np.add.outer(sure, loss).ravel(), np.multiply.outer(special.expit(sure), p).ravel()
    found = epsilon([replace(PAPER, count=count, output_epsilon=1e-3)], DELTA, "label")
    agrees(found, convolved(*with_noise, count))


@pytest.mark.parametrize("count", QUICK)
@pytest.mark.parametrize("removed", [False, True])
def test_objective_perturbation_from_below(count, removed):
    """True losses of released minimisers on the line, a hinge bent where the noise reaches: never above the claim."""
    weight, width, tau = 0.1, 0.5, 0.3
    floor = weight * 0.5 / width / math.expm1(tau)
    f = np.unique(
        np.concatenate([np.linspace(-60, 60, 40_001) / floor, np.linspace(-width, width, 4001) + 0.2])
    )
    slope = -np.clip((0.2 + width - f) / (2 * width), 0, 1)

    def masses(b):
        below, above = stats.laplace.cdf(b), stats.laplace.sf(b)
        inside = np.where(b[1:] + b[:-1] < 0, np.diff(below), -np.diff(above))
        return np.concatenate([below[:1], inside, above[-1:]])

    worlds = masses(floor * f), masses(floor * f + weight * slope)
    p, q = worlds[::-1] if removed else worlds
    kept = (p > 1e-300) & (q > 1e-300)
    true = convolved(np.log(p[kept] / q[kept]), p[kept], count)
    found = epsilon(
        [ObjectivePerturbation("gamma", 1, 1.0, weight, 0.5 / width, floor, count)], DELTA, "add-remove"
    )
    assert true * (1 - 2e-5) <= found
    assert found < 6 * true


def test_what_costs_nothing_and_what_has_no_price():
    for event, price in ((PostProcessing(3), 0.0), (Leakage(0.2, "x"), 0.0), (Unbounded("x", 1.0), math.inf)):
        assert epsilon([event], DELTA, "replace") == price


def test_a_masked_sum_is_priced_as_its_shares_convolved():
    """Fifteen discrete shares, number by number; the price takes their sum for a function of a continuous one."""
    variance, shares, moved, reach = 2**16, 15, 700, 9000  # nine standard deviations of the sum
    share = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    size, centre = 2 * reach * shares + 1, reach * shares
    total = np.fft.irfft(np.fft.rfft(share / share.sum(), size) ** shares, size)
    law = np.maximum(total[centre - reach : centre + reach + 1], 0.0)

    def excess(eps):
        return np.maximum(law[moved:] - math.exp(eps) * law[:-moved], 0.0).sum() - DELTA

    event = SharedDiscreteGaussian(variance, shares, float(moved), "gradient", 1, 5, 20, 18, 0)
    agrees(epsilon([event], DELTA, "replace"), optimize.brentq(excess, 0.1, 20.0))


def test_every_kind_of_event_is_here():
    kinds = {cls for cls in events._KINDS.values() if cls.__module__.startswith("distadmm.")}
    priced = {
        Gaussian,
        Pure,
        DiscreteGaussian,
        KNorm,
        ObjectivePerturbation,
        PostProcessing,
        Leakage,
        Unbounded,
        SharedDiscreteGaussian,
        PairwiseGaussian,
    }
    assert kinds == priced
