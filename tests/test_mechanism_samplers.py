"""Every sampler against its law.

All tests of this file together raise a false alarm with probability below 1e-3 (Bonferroni: each is
run at level LEVEL), and the seeds are fixed, so a green file stays green; secure noise, which has no
seed, is what the level is for.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from distadmm.errors import InputError
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.events import (
    Gaussian,
    KNorm,
)
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger.file import MemoryLedger
from distadmm.privacy.noise import discrete
from distadmm.privacy.noise.discrete import discrete_gaussian, exp_bounds
from distadmm.privacy.noise.mechanism import Noise, Secure, Simulation, k_norm

LEVEL = 1e-3 / 200  # there are fewer than two hundred tests below


def streams():
    yield "simulation", lambda: Simulation(11)
    yield "urandom", lambda: Secure("urandom")
    yield "aes", lambda: Secure("aes")


SOURCES = [pytest.param(make, id=name) for name, make in streams()]


@pytest.fixture(params=SOURCES)
def source(request):
    try:
        return request.param()
    except InputError:
        pytest.skip("randomgen is not installed")


def rows(source, event, count: int) -> np.ndarray:
    """`count` draws of one node, through the ledger."""
    book = MemoryLedger(0, adjacency="replace", mode=source.mode)
    noise = Noise(book, source)
    more = {"shape": 6, "sensitivity": 0.5} if isinstance(event, Gaussian) else {}
    return np.stack([noise.draw(event, iteration=k, **more) for k in range(count)])


def ks(sample, cdf) -> float:
    return stats.kstest(np.ravel(sample), cdf).pvalue


def anderson_darling(sample, law) -> float:
    """p-value of A^2 for a law that is fully known, right where it is small: sqrt(3) P(chi2_1 > 2 A^2)."""
    z = np.sort(np.ravel(sample))
    n, weight = len(z), 2 * np.arange(len(z)) + 1
    a2 = -n - np.mean(weight * (law.logcdf(z) + law.logsf(z[::-1])))
    return math.sqrt(3) * stats.chi2(1).sf(2 * a2)


# -- vectors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 6, 40])
def test_k_norm_law(source, d):
    alpha = 0.7
    b = rows(source, KNorm(d, alpha, 1.0), 1500)
    length = np.linalg.norm(b, axis=1)
    assert ks(length, stats.gamma(d, scale=1 / alpha).cdf) > LEVEL
    assert anderson_darling(length, stats.gamma(d, scale=1 / alpha)) > LEVEL
    # A direction is uniform when its cosine with any fixed vector has the right law.
    axis = np.arange(1.0, d + 1) / np.linalg.norm(np.arange(1.0, d + 1))
    cosine = b @ axis / length
    if d == 1:
        assert stats.binomtest(int((cosine > 0).sum()), len(b)).pvalue > LEVEL
    else:
        beta = stats.beta((d - 1) / 2, (d - 1) / 2)
        assert ks((1 + cosine) / 2, beta.cdf) > LEVEL
        assert ks((1 + b[:, -1] / length) / 2, beta.cdf) > LEVEL
        # Length and direction are independent.
        assert stats.spearmanr(length, cosine).pvalue > LEVEL


@pytest.mark.parametrize(
    ("event", "scale"),
    [(Gaussian(4.0), 2.0), (ObjectivePerturbation("gaussian", 6, 2.0, 0.2, 0.25, 8.2), 2.0)],
)
def test_gaussian_law(source, event, scale):
    b = rows(source, event, 1500)
    assert ks(b, stats.norm(scale=scale).cdf) > LEVEL
    assert anderson_darling(b / scale, stats.norm) > LEVEL
    assert ks((b**2).sum(axis=1) / scale**2, stats.chi2(6).cdf) > LEVEL
    correlation = np.corrcoef(b.T)[np.triu_indices(6, 1)]
    assert np.max(np.abs(correlation)) < stats.norm.isf(LEVEL / 30) / math.sqrt(len(b))


def test_objective_perturbation_draws_the_papers_noise():
    event = ObjectivePerturbation("gamma", 6, 1.3, 0.2, 0.25, 8.2)
    b = rows(Simulation(3), event, 1500)
    assert ks(np.linalg.norm(b, axis=1), stats.gamma(6, scale=1 / 1.3).cdf) > LEVEL


def test_output_noise_has_the_scale_of_its_theorem():
    event = ObjectivePerturbation("gamma", 5, 1.0, 0.2, 0.25, 8.2, output_epsilon=1e-3)
    noise = Noise(MemoryLedger(0, adjacency="replace", mode="simulation"), Simulation(4))
    tolerance, lengths = 1e-6, []
    for k in range(1500):
        noise.draw(event, iteration=k)
        lengths.append(np.linalg.norm(noise.output(tolerance)))
    a = 1e-3 * 8.2 / (2 * tolerance)
    assert ks(lengths, stats.gamma(5, scale=1 / a).cdf) > LEVEL


def test_tails_of_system_noise_are_not_cut():
    z = Secure("urandom").at(0, 1, 1).standard_normal(400_000)
    assert 3.9 < np.max(z) < 7
    assert -7 < np.min(z) < -3.9
    assert ks(z, stats.norm.cdf) > LEVEL
    assert isinstance(Secure("urandom").at(0, 1, 1).standard_normal(), float)


@pytest.mark.parametrize("shape", [1, 2, 105, 32_561])
def test_gamma_from_system_bits(shape):
    g = Secure("urandom").at(0, 1, 1).standard_gamma(shape, (100, 50))
    assert g.shape == (100, 50)
    assert ks(g, stats.gamma(shape).cdf) > LEVEL
    assert anderson_darling(g, stats.gamma(shape)) > LEVEL


# -- the discrete Gaussian ----------------------------------------------------------------------------


def masses(sigma: float, reach: int) -> np.ndarray:
    n = np.arange(-reach, reach + 1)
    weight = np.exp(-(n**2) / (2 * sigma**2))
    return weight / weight.sum()


def chi_square(sample: np.ndarray, sigma: float) -> float:
    """p-value of the sample against the masses, rare values pooled."""
    reach = max(3, math.ceil(8 * sigma))
    expected = masses(sigma, reach) * len(sample)
    seen = np.bincount(np.clip(sample, -reach, reach) + reach, minlength=2 * reach + 1)
    often = expected >= 10
    seen = np.append(seen[often], seen[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    if expected[-1] < 5:
        seen[-2:], expected[-2:] = seen[-2:].sum(), expected[-2:].sum()
        seen, expected = seen[:-1], expected[:-1]
    return stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue


def philox(seed: int):
    return np.random.Philox(seed).random_raw


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5, 15.9, 16.0, 40.0, 100.3])
def test_discrete_gaussian_masses(sigma):
    sample = discrete_gaussian(sigma, 200_000, philox(int(10 * sigma)))
    assert chi_square(sample, sigma) > LEVEL


@pytest.mark.parametrize("sigma", [2.0**14, 2.0**20 + 0.5, 2.0**27])
def test_wide_discrete_gaussians_look_continuous(sigma):
    sample = discrete_gaussian(sigma, 50_000, philox(9))
    assert ks(sample / sigma, stats.norm.cdf) > LEVEL
    for bits in (1, 2, 3, 6):  # the lowest bits are uniform
        assert stats.chisquare(np.bincount(sample & ((1 << bits) - 1), minlength=1 << bits)).pvalue > LEVEL


def test_discrete_gaussian_through_the_ledger(source):
    sample = rows(source, DiscreteGaussian(3.0, 1.0, dimension=500), 100).ravel()
    assert sample.dtype == np.int64
    assert chi_square(sample, 3.0) > LEVEL
    assert abs(stats.pearsonr(sample[:-1], sample[1:]).statistic) < 6 / math.sqrt(len(sample))


def reference(sigma: Fraction, uniform) -> int:
    """Canonne, Kamath and Steinke (2020), Algorithms 1 to 3, as printed."""

    def bernoulli(p: Fraction) -> bool:
        return uniform(p.denominator) < p.numerator

    def bernoulli_exp(x: Fraction) -> bool:
        while x > 1:
            if not bernoulli_exp(Fraction(1)):
                return False
            x -= 1
        k = 1
        while bernoulli(x / k):
            k += 1
        return k % 2 == 1

    def laplace(t: int) -> int:
        while True:
            u = uniform(t)
            if not bernoulli_exp(Fraction(u, t)):
                continue
            v = 0
            while bernoulli_exp(Fraction(1)):
                v += 1
            x = u + t * v
            if uniform(2):
                if x:
                    return -x
            else:
                return x

    t = math.floor(sigma) + 1
    while True:
        y = laplace(t)
        if bernoulli_exp((abs(y) - sigma**2 / t) ** 2 / (2 * sigma**2)):
            return y


@pytest.mark.parametrize("sigma", [Fraction(5, 2), Fraction(20)])
def test_two_exact_samplers_agree(sigma):
    rng = np.random.default_rng(1)
    theirs = np.array([reference(sigma, lambda n: int(rng.integers(n))) for _ in range(4000)])
    ours = discrete_gaussian(float(sigma), 40_000, philox(2))
    edges = np.quantile(ours, np.linspace(0, 1, 12)[1:-1])
    table = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (theirs, ours)]
    table = np.array(table)[:, np.sum(table, axis=0) > 0]
    assert stats.chi2_contingency(table).pvalue > LEVEL


# -- what makes it exact ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x", [Fraction(0), Fraction(1, 3), Fraction(1, 10**12), Fraction(7, 2), Fraction(41)]
)
def test_exponentials_are_bracketed(x):
    from decimal import Decimal, getcontext

    getcontext().prec = 80
    true = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**150
    low, high = exp_bounds(x, 150)
    assert low <= true <= high
    assert high - low <= 2


class Scripted:
    """Uniform words from a list, then from a generator; how many were asked for one at a time."""

    def __init__(self, words, then):
        self.words, self.then, self.single = list(words), then, 0

    def __call__(self, count: int) -> np.ndarray:
        self.single += count == 1
        head, self.words = self.words[:count], self.words[count:]
        return np.concatenate([np.array(head, dtype=np.uint64), self.then(count - len(head))])


@pytest.mark.parametrize("sigma", [3.0, 40.0])
def test_an_open_block_is_settled_by_more_bits(sigma):
    """A word that equals the leading bits of a boundary decides nothing: the next word does."""
    blocks = discrete._Blocks(sigma)
    boundary = int(blocks.low[1])
    lows, highs = discrete._cdf_bounds(sigma, blocks.width, 128)
    assert highs[1] - lows[1] <= 1
    assert lows[1] >> 64 == boundary
    rest = lows[1] & ((1 << 64) - 1)
    for second, expected in [(rest - 5, 1), (rest + 5, 2)]:
        words = Scripted([boundary, second], philox(1))
        assert blocks.draw(words, 1).tolist() == [expected]
        assert words.single == 2
    # Equal once more: a third word is drawn, and either side is still possible.
    words = Scripted([boundary, rest, 0], philox(1))
    assert blocks.draw(words, 1)[0] in (1, 2)
    assert words.single == 3


def test_the_last_word_of_all_reaches_beyond_the_table():
    blocks = discrete._Blocks(3.0)
    top = (1 << 64) - 1
    found = blocks.draw(Scripted([top, top, 12345], philox(1)), 1)[0]
    assert found > np.searchsorted(blocks.high, np.uint64(top - 1))


def test_an_open_acceptance_is_settled_by_more_bits():
    x = Fraction(1, 7)
    low, _ = exp_bounds(x, 53 + 64)
    u = low >> 64
    rest = low & ((1 << 64) - 1)
    assert discrete._accepts_exactly(u, x, Scripted([rest - 5], philox(1)))
    assert not discrete._accepts_exactly(u, x, Scripted([rest + 5], philox(1)))


def test_doubtful_proposals_are_rare_but_are_met(monkeypatch):
    """With a wide margin everything is decided in integers: the same samples come out."""
    sample = discrete_gaussian(50.0, 300, philox(6))
    asked = Counter()
    exactly = discrete._accepts_exactly
    monkeypatch.setattr(discrete, "_MARGIN", 2.0)

    def decide(u, x, words):
        asked["exact"] += 1
        return exactly(u, x, lambda n: np.full(n, 1 << 63, dtype=np.uint64))

    monkeypatch.setattr(discrete, "_accepts_exactly", decide)
    np.testing.assert_array_equal(discrete_gaussian(50.0, 300, philox(6)), sample)
    assert asked["exact"] >= 300


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan, 2.0**28])
def test_impossible_widths_are_refused(sigma):
    from distadmm.errors import InputError

    with pytest.raises(InputError, match="coarser grid"):
        discrete_gaussian(sigma, 3, philox(1))


def test_no_samples_are_no_samples():
    assert discrete_gaussian(2.0, 0, philox(1)).tolist() == []


def test_k_norm_of_one_stream_is_the_same_twice():
    a, b = (k_norm(Simulation(1).at(0, 1, 2), 5, 0.4) for _ in range(2))
    np.testing.assert_array_equal(a, b)
