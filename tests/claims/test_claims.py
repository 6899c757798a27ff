"""Errata of published code, each as a number that anybody can compute; docs/claims.md is held to them."""

import math
from pathlib import Path

import numpy as np
import pytest

from distadmm.audit import bounds
from distadmm.methods.consensus.smoothing import Smoothing
from distadmm.methods.gossip.fixed_point import FixedPoint
from distadmm.methods.gossip.rule import Constants
from distadmm.privacy.accounting import gaussian
from tests.claims import recomputed as claims

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"


def test_the_page_shows_what_is_computed() -> None:
    assert "\n".join(claims.lines()) in PAGE.read_text()


@pytest.mark.parametrize(("claimed", "own"), [(3, 3.140), (10, 10.512), (20, 21.108)])
def test_decors_search_stops_where_its_own_formula_is_above_the_target(claimed: float, own: float) -> None:
    A, T, C = claims.ring(), 5000, 0.1
    found = claims.decor_search(A, claimed, T, C)
    assert claims.converted(T * 2 * C**2 * claims.exposed(A, *found)) == pytest.approx(own, abs=1e-3)
    mended = claims.decor_search(A, claimed, T, C, stop=0.0)
    assert claims.converted(T * 2 * C**2 * claims.exposed(A, *mended)) <= claimed * 1.001
    assert claims.rho_for(claimed) / T < 1e-3  # what the absolute 1e-4 is compared with


def test_decors_theorem_is_sound_and_claims_more_than_is_true() -> None:
    for claimed, true in ((3, 2.39), (10, 8.56), (20, 17.70)):
        assert gaussian.epsilon(math.sqrt(2 * claims.rho_for(claimed)), 1e-5) == pytest.approx(true, abs=0.01)


@pytest.mark.parametrize("T", [2, 4, 6])
def test_frozen_pairwise_noise_cancels_in_differences(T: int) -> None:
    """Gradients that change with alternating signs are protected by sigma alone; a constant change is not bare."""
    A, sigma, c = claims.ring(), 0.7, 8.0
    alternating, constant = np.where(np.arange(T) % 2, -1.0, 1.0), np.ones(T)
    assert claims.frozen_exposed(A, sigma, c, alternating) == pytest.approx(T / sigma**2)
    assert claims.frozen_exposed(A, sigma, c, constant) < T / sigma**2 / 2
    assert claims.frozen_exposed(A, sigma, 0.0, constant) == pytest.approx(T / sigma**2)
    fresh = claims.exposed(A, sigma, c)
    assert T * fresh < claims.frozen_exposed(A, sigma, c, alternating) / 2


@pytest.mark.parametrize("frozen", [True, False])
def test_an_attack_on_frozen_noise_refutes_the_claim_and_on_fresh_noise_does_not(frozen: bool) -> None:
    A, T, C, claimed, trials = claims.ring(), 20, 1.0, 3.0, 20_000
    sigma, c = claims.decor_search(A, claimed, T, C, stop=0.0)
    rng, signs = np.random.default_rng(0), np.where(np.arange(T) % 2, -1.0, 1.0)

    def scores(moved: float) -> np.ndarray:
        """sum_t signs_t x_0^t, where node 0's gradient at t is moved signs_t."""
        own = rng.normal(size=(trials, T)) * sigma
        times = 1 if frozen else T
        pairwise = rng.normal(size=(trials, times, 2)).sum(axis=2) * c  # of the two edges of node 0
        return (own + pairwise + moved * signs) @ signs

    claim = bounds.gaussian_claim(gaussian.mu_at(claimed, 1e-5), "DECOR")
    found = bounds.lower_bound(claim, scores(C), scores(-C), delta=1e-5)
    assert found.refuted is frozen
    assert (found.epsilon > claimed) is frozen


def test_pn_f_dp_hands_deviations_to_a_theorem_about_variances() -> None:
    """A bound of (S^-1)_ii is one where it gets variances; where it gets deviations above 1 it is above the truth for
    the target it is matched to, and so the noise comes out too small."""
    A, T, C = claims.ring(), 1000, 1.5
    s, c = claims.decor_search(A, 3.0, T, C)
    assert claims.exposed(A, s, c) <= claims.bound(A, s**2, c**2)
    found = claims.pn_f_dp(3.0, A, C)
    assert found["own target"] == pytest.approx(96.2, abs=0.1)  # what its own function says of target 3
    assert found["sigma beside DECOR's"] < 0.2
    assert found["exact"] > 20
    mended = claims.pn_f_dp(3.0, A, C, power=2)
    assert 3.0 < mended["exact"] < 6.0


def test_the_two_lines_of_pn_f_dp_differ_by_a_factor_of_two_in_the_square() -> None:
    """Gaussian noise has rho = mu^2/2; its rho is 2 C^2 b and its mu C sqrt(2 b), whose square is half of that."""
    C, b = 1.5, 0.01
    rho, mu = 2 * C**2 * b, C * math.sqrt(2 * b)
    assert mu**2 / 2 == pytest.approx(rho / 2)
    assert (2 * C) ** 2 * b / 2 == pytest.approx(rho)  # Delta = 2C


def test_muffliatos_sum_over_messages_misses_what_they_say_together() -> None:
    """Ring of 6: x_1^1 - (x_1^0 + x_0^0)/3 = x_2^0/3, and node 0 has all of it."""
    W, v, u = claims.uniform(claims.ring(6)), 0, 2
    assert claims.summed(W, 2, v)[u] == pytest.approx(1 / 3)
    assert claims.jointly(W, 2, v)[u] == pytest.approx(1.0)
    x = np.random.default_rng(0).normal(size=6)  # the noisy values that nodes begin with
    assert 3 * (W[1] @ x) - x[1] - x[0] == pytest.approx(x[u])
    far = claims.jointly(W, 2, v)[3]
    assert far == pytest.approx(0.0)  # what has not arrived is not learnt


def test_after_15_rounds_on_a_ring_every_node_knows_every_value() -> None:
    W = claims.uniform(claims.ring())
    assert claims.jointly(W, 15, 0) == pytest.approx(1.0)
    assert claims.worth(claims.summed(W, 15, 0)[1:], 3.0).mean() == pytest.approx(1.80, abs=0.01)


def test_private_admm_uses_a_variance_as_a_deviation() -> None:
    found = claims.private_admm(5.0)
    assert found["deviation used"] == pytest.approx(found["deviation meant"] ** 2)
    assert found["mu"] == pytest.approx(48.2, abs=0.1)
    assert found["epsilon"] > 1000
    little = claims.private_admm(0.01)
    assert little["epsilon"] < 0.01  # there it adds too much
    assert little["deviation used"] > 50 * little["deviation meant"]


def test_private_admm_at_one_half_is_gossip_whose_gradients_are_taken_where_proximal_steps_end() -> None:
    """Losses x'H_i x/2 - b_i'x, everybody in each sum, the same noise; `fixed-point` makes the same steps."""
    stream, users, d, gamma = np.random.default_rng(0), 5, 3, 0.7
    use, mean = Constants(gamma, np.inf, Smoothing(), relaxation=0.5), np.full((users, users), 1 / users)
    H = [B @ B.T for B in stream.normal(size=(users, d, d))]
    b, u, z = stream.normal(size=(users, d)), np.zeros((users, d)), np.zeros(d)
    f, ours, kept = np.zeros(d), np.zeros((users, d)), np.zeros((users, 2 * d))
    for noise in 0.1 * stream.normal(size=(9, users, d)):
        v = 2 * z - u
        x = np.array(
            [np.linalg.solve(np.eye(d) + gamma * h, v_i + gamma * b_i) for h, v_i, b_i in zip(H, v, b)]
        )
        slopes = np.array([h @ x_i - b_i for h, x_i, b_i in zip(H, x, b)])
        u = u + 2 * 0.5 * (x - z) + gamma * noise
        z = u.mean(axis=0)
        f = f - gamma * np.mean(slopes - noise, axis=0)
        assert z == pytest.approx(f, abs=1e-12)
        ours, kept = FixedPoint().advance(ours, kept, slopes - noise, lambda rows: mean @ rows, use)
        assert ours == pytest.approx(np.tile(z, (users, 1)), abs=1e-12)


def test_whisper_counts_no_amplification() -> None:
    for claimed in (3.0, 10.0, 40.0):
        assert claims.whisper(claimed) < 0.06 * claimed
        assert claims.whisper_without_sampling(claimed) <= claimed
    # All rows in each batch: what is claimed, but for the conversion.
    whole = claims.whisper(3.0, rows=128, batch=128, T=400)
    assert whole == pytest.approx(claims.whisper_without_sampling(3.0, T=400), rel=0.02)


def test_whispers_covariance_cannot_be_made_of_the_seeds_of_edges() -> None:
    """On a graph that looks alike from every node the least tr(W S W') with (S^-1)_ii = 1 has S ~ 1/|W|."""
    A = claims.ring()
    W = claims.uniform(A)
    values, vectors = np.linalg.eigh(W)
    best = vectors @ np.diag(np.abs(values).mean() / np.abs(values)) @ vectors.T
    assert np.diag(np.linalg.inv(best)) == pytest.approx(1.0)
    pairs = [
        np.eye(16) * s**2 + c**2 * claims.laplacian(A) for s in (0.3, 0.6, 1.0) for c in (0.1, 1.0, 10.0)
    ]
    scaled = [S * np.diag(np.linalg.inv(S)).max() for S in pairs]
    assert all(np.trace(W @ best @ W) <= np.trace(W @ S @ W) for S in scaled)
    assert claims.dealt(A, best)
    assert not any(claims.dealt(A, S) for S in scaled)
