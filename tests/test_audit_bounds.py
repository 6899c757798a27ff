"""Levels 1 and 2: bounds against brute force, the exact likelihood ratio, false alarms, and what must be caught."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from distadmm import radmm
from distadmm.audit import bounds, canary, istdp, sharing
from distadmm.audit.draws import Draws, Played
from distadmm.audit.ratio import Neighbours, Released, inverse_form, log_ratio
from distadmm.commands import audit
from distadmm.errors import InputError
from distadmm.methods.istdp.plan import make_plan
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.noise.protected import Protected
from distadmm.problems.losses import HuberHinge, Logistic
from tests.common import SMALL

seeds = st.integers(0, 10_000)
DELTA = 1e-5


# -- Clopper and Pearson -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(0, 1000), st.sampled_from([0.025, 0.1]))
def test_each_bound_is_wrong_no_more_often_than_it_says(trials: int, mille: int, error: float) -> None:
    """Summed over all outcomes of the binomial."""
    p = mille / 1000
    hits = np.arange(trials + 1)
    mass = stats.binom.pmf(hits, trials, p)
    above = np.array([bounds.at_least(int(h), trials, error) for h in hits])
    below = np.array([bounds.at_most(int(h), trials, error) for h in hits])
    assert mass[above > p + 1e-12].sum() <= error + 1e-9
    assert mass[below < p - 1e-12].sum() <= error + 1e-9
    assert np.all(np.diff(above) >= 0)
    assert np.all(np.diff(below) >= 0)


def test_the_gaussian_claim_is_its_trade_off() -> None:
    claim = bounds.gaussian_claim(0.8, "claimed")
    assert claim.epsilon(DELTA) == pytest.approx(gaussian.epsilon(0.8, DELTA))
    priced = bounds.claim_of([Gaussian(1 / 0.8)], "replace", "claimed")
    assert priced.mu == pytest.approx(0.8)
    point = bounds.point_claim(2.0, 0.1, "claimed")
    assert (point.epsilon(0.1), point.epsilon(0.2), point.epsilon(0.05)) == (2.0, 2.0, np.inf)


def shifted(rng: np.random.Generator, mu: float, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact log-likelihood ratios of a mu-Gaussian mechanism."""
    return mu * rng.standard_normal(runs) - mu**2 / 2, mu * rng.standard_normal(runs) + mu**2 / 2


def test_sound_mechanisms_at_the_limit_are_refuted_no_more_often_than_stated() -> None:
    """The worst mechanism that a true claim allows, 300 audits at 95 %, both levels."""
    rng = np.random.default_rng(5)
    claim = bounds.gaussian_claim(1.0, "true")
    alarms = [0, 0]
    for _ in range(300):
        scores = shifted(rng, 1.0, 200)
        alarms[0] += bounds.trade_off(claim, *scores, delta=DELTA).refuted
        alarms[1] += bounds.lower_bound(claim, *scores, delta=DELTA).refuted
    assert max(alarms) <= stats.binom.ppf(1 - 1e-4, 300, 0.05)


def test_twice_the_privacy_loss_is_seen_and_more_confidence_asks_for_more() -> None:
    rng = np.random.default_rng(6)
    claim = bounds.gaussian_claim(1.0, "half the truth")
    scores = shifted(rng, 2.0, 1000)
    found = bounds.trade_off(claim, *scores, delta=DELTA)
    assert found.refuted
    assert found.mu is not None
    assert 1.0 < found.mu <= 2.0
    surer = bounds.trade_off(claim, *scores, delta=DELTA, confidence=0.9999)
    assert surer.excess < found.excess
    low = bounds.lower_bound(claim, *scores, delta=DELTA).epsilon
    assert 0 < low <= gaussian.epsilon(2.0, DELTA)


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_swapping_the_worlds_changes_nothing(seed: int) -> None:
    here, there = shifted(np.random.default_rng(seed), 1.5, 60)
    claim = bounds.gaussian_claim(0.5, "claimed")
    a = bounds.trade_off(claim, here, there, delta=DELTA)
    b = bounds.trade_off(claim, there, here, delta=DELTA)
    assert a.excess == pytest.approx(
        b.excess, abs=0.2
    )  # ties between equally good tests may fall differently
    assert bounds.trade_off(claim, -here, -there, delta=DELTA).rates.trials == a.rates.trials


# -- the exact ratio ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from(["gamma", "gaussian"]), st.sampled_from(["add", "replace"]), st.integers(0, 7))
def test_the_ratio_is_that_of_the_densities(seed: int, noise: str, change: str, crowd: int) -> None:
    """Against b(f) and its whole Jacobian by differences, with no rank-one formula."""
    rng = np.random.default_rng(seed)
    d, w, ridge, Q = 3, float(10 ** rng.uniform(-1, 1)), 0.3, 1.7
    rows = rng.normal(size=(crowd, d))
    one, two = rng.normal(size=(1, d)), rng.normal(size=(1, d))
    found = Neighbours(rows, np.zeros((0, d)) if change == "add" else one, two)
    event = ObjectivePerturbation(noise, d, 1.3, w, 0.25, 1.0)
    f, pull = rng.normal(size=d), rng.normal(size=d)

    def b(f: np.ndarray, table: np.ndarray) -> np.ndarray:
        slopes = Logistic().slope(table @ f, np.ones(1))
        return -(w * slopes @ table + pull + (ridge + Q) * f)

    def log_density(table: np.ndarray) -> float:
        h = 1e-6
        J = np.stack([(b(f + h * e, table) - b(f - h * e, table)) / (2 * h) for e in np.eye(d)])
        length = np.linalg.norm(b(f, table))
        nu = -1.3 * length if noise == "gamma" else -(length**2) / (2 * 1.3**2)
        return nu + np.linalg.slogdet(J)[1]

    tables = [np.concatenate([found.common, only]) for only in (found.only_here, found.only_there)]
    released = Released(f[None], pull[None], np.array([Q]))
    ratio = log_ratio(released, found, event, Logistic(), w, ridge)[0]
    assert ratio == pytest.approx(
        log_density(tables[1]) - log_density(tables[0]), abs=2e-6 * (1 + w * (1 + crowd))
    )


@settings(deadline=None, max_examples=20)
@given(seeds, st.integers(0, 6))
def test_both_ways_to_the_inverse_agree(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    rows, a = rng.normal(size=(m, 4)), rng.normal(size=4)
    bend, stiff = rng.uniform(0, 2, (5, m)), rng.uniform(0.1, 2, 5)
    whole = [a @ np.linalg.solve(rows.T @ np.diag(c) @ rows + s * np.eye(4), a) for c, s in zip(bend, stiff)]
    np.testing.assert_allclose(inverse_form(rows, bend, stiff, a), whole, rtol=1e-10)


# -- R-ADMM's transcripts ----------------------------------------------------------------------------------

FLAGS = {**SMALL, "public_rows": 20, "delta": DELTA}


def attacked(
    runs: int = 250, columns: int = 3, which: str = "worst", name: str = "radmm", **flags: Any
) -> Any:
    config = radmm.configure(name, **{**FLAGS, **flags}, rng="simulation")
    options = audit.Options(runs=runs, audit_columns=columns, canary=which)
    found = audit.attack(config, options)
    return found, bounds.claim_of(found.events, config.privacy.adjacency, "ledger")


@pytest.mark.parametrize(
    ("name", "adjacency", "which", "noise"),
    [
        ("radmm", "add-remove", "worst", "gamma"),
        ("mradmm", "replace", "worst", "gamma"),
        ("admm", "add-remove", "duplicate", "gaussian"),
        ("madmm", "label", "label", "gamma"),
    ],
)
def test_sound_runs_stand_and_their_ratios_are_likelihood_ratios(
    name: str, adjacency: str, which: str, noise: str
) -> None:
    found, claim = attacked(name=name, adjacency=adjacency, which=which, noise=noise, alpha="0.6")
    for level in (bounds.trade_off, bounds.lower_bound):
        assert not level(claim, found.here, found.there, delta=DELTA, confidence=0.999).refuted
    # E_D[p'/p] = E_D'[p/p'] = 1 for the density ratio of the product's own runs, and for nothing else.
    for ratio in (np.exp(found.here), np.exp(-found.there)):
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))
    assert found.here.mean() < 0 < found.there.mean()


@pytest.mark.slow
def test_half_of_sigma_is_caught_with_a_thousand_transcripts(monkeypatch: Any) -> None:
    sound, claim = attacked(runs=1000, adjacency="label", noise="gaussian", alpha="0.4")
    assert not bounds.trade_off(claim, sound.here, sound.there, delta=DELTA).refuted
    draw = Protected.draw
    monkeypatch.setattr(Protected, "draw", lambda self, *given: 0.5 * draw(self, *given))
    halved, same = attacked(runs=1000, adjacency="label", noise="gaussian", alpha="0.4")
    assert same.epsilon(DELTA) == claim.epsilon(DELTA)  # the ledger says what it said
    assert bounds.trade_off(claim, halved.here, halved.there, delta=DELTA).refuted


def test_a_canary_must_fit_the_adjacency() -> None:
    with pytest.raises(InputError, match="adding or removing"):
        canary.tables("label", "add-remove", 3)
    for which in canary.CANARIES:
        for adjacency in ("replace", "label", "add-remove"):
            if (which, adjacency) == ("label", "add-remove"):
                continue
            for d in (1, 2, 5):
                found = canary.tables(which, adjacency, d)
                rows = np.concatenate(found)
                np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
                assert len(found.only_there) == 1
                assert len(found.only_here) == (adjacency != "add-remove")


def test_the_worst_record_is_worse_than_a_duplicate() -> None:
    worst, _ = attacked(adjacency="add-remove", alpha="2")
    copy, _ = attacked(adjacency="add-remove", alpha="2", which="duplicate")
    assert worst.there.mean() - worst.here.mean() > 2 * (copy.there.mean() - copy.here.mean())


# -- the papers' mechanisms as printed, and the sound ones in their place ----------------------------------


def refuted(found: Any, **given: Any) -> list[bool]:
    here, there, claim = found
    return [
        level(claim, here, there, delta=DELTA, **given).refuted
        for level in (bounds.trade_off, bounds.lower_bound)
    ]


def test_noise_in_the_column_space_is_caught_with_thirty_transcripts() -> None:
    """Hu, Liu, Kong and Niu 2019, Theorem 1: every message names its world, whatever sigma is."""
    found = sharing.as_printed(30, 0)
    assert refuted(found) == [True, True]
    assert found[0].max() < -10 < 10 < found[1].min()
    assert refuted(sharing.as_printed(30, 1, epsilon=1e-3)) == [True, True]


def test_exact_step_and_line_search_are_caught_with_thirty_transcripts() -> None:
    """Yuan and Peng 2023, Theorem 3.3: whether, or how far, the model moves names the world."""
    assert refuted(istdp.as_printed(30, 0)) == [True, True]
    assert refuted(istdp.as_printed(30, 0, search=False)) == [True, True]


SEEDED = Draws("simulation", 3)


def of_play(found: Played, adjacency: Any = "replace") -> Any:
    return found.here, found.there, bounds.claim_of(found.events, adjacency, "ledger")


@pytest.mark.parametrize("mechanism", ["s1", "s2"])
def test_sound_vectors_stand(mechanism: str) -> None:
    played = sharing.played(sharing.toy(mechanism, "simulation"), 150, SEEDED)
    found = of_play(played)
    assert refuted(found, confidence=0.999) == [False, False]
    assert found[2].mu == pytest.approx(1.0)
    verdict = audit.verdict_of(played.noises, played.findings)
    assert not verdict.refuted
    assert verdict.releases == 2 * 150 * 4


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_sound_thresholding_stands_and_half_its_noise_does_not(adjacency: Any, monkeypatch: Any) -> None:
    plan = make_plan(
        epsilon=4,
        delta=DELTA,
        adjacency=adjacency,
        dimension=6,
        rows=40,
        divisor=40,
        loss=Logistic(),
        iterations=5,
    )
    played = istdp.played(plan, 40, 150, SEEDED)
    found = of_play(played, adjacency)
    assert refuted(found, confidence=0.999) == [False, False]
    assert found[2].epsilon(DELTA) <= 4 + 1e-9
    assert not audit.verdict_of(played.noises, played.findings).refuted
    wide = dataclasses.replace(plan, dimension=120)
    release = istdp.NoisyGradient.__call__

    def halved(self: Any, k: int, theta: Any) -> Any:
        whole = release(self, k, theta)
        return (whole + self.exact(theta)) / 2

    one = istdp.played(wide, 40, 1, SEEDED)
    assert not audit.verdict_of(one.noises, one.findings).refuted
    monkeypatch.setattr(istdp.NoisyGradient, "__call__", halved)
    one = istdp.played(wide, 40, 1, SEEDED)
    assert audit.verdict_of(one.noises, one.findings).refuted


@pytest.mark.slow
def test_losses_other_than_the_logistic_have_their_ratio() -> None:
    found, claim = attacked(loss="huber", adjacency="add-remove", alpha="0.6")
    assert isinstance(audit.loss_named("huber"), HuberHinge)
    assert not bounds.trade_off(claim, found.here, found.there, delta=DELTA, confidence=0.999).refuted
    ratio = np.exp(found.here)
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))
