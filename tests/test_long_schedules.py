"""Schedules of very many releases: told in stretches, forecast by doubling, and priced only as far as prices go."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import istdp, radmm
from distadmm.algorithm import Facts, Planned, find
from distadmm.methods import doubling
from distadmm.methods.consensus import forecast, sizing
from distadmm.methods.consensus.private import plan_of
from distadmm.methods.consensus.smoothing import Smoothing
from distadmm.methods.gossip import rule
from distadmm.privacy.accounting import accountant, gaussian, pld
from distadmm.privacy.accounting.events import Gaussian, KNorm
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.accounting.schedule import MOST_PRICED, Stretches, planned
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

PRIVATE = ["--epsilon", "2", "--adjacency", "replace", "--dry-run", "--progress", "none", "--data", "tiny"]


def random_graph(rng: np.random.Generator, n: int) -> np.ndarray:
    """A ring with some chords."""
    A = np.roll(np.eye(n), 1, axis=1)
    chords = rng.random((n, n)) < 0.3
    A = np.maximum.reduce([A, A.T, chords, chords.T]) * (1.0 - np.eye(n))
    return np.asarray(A)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(3, 8), st.integers(1, 60), st.sampled_from([1, 2]),
    st.sampled_from([None, 0.0, 1.0, 2.0, 3.0]),
)  # fmt: skip
def test_a_forecast_is_the_same_by_doubling_and_step_by_step(seed, n, solves, phases, power) -> None:
    rng = np.random.default_rng(seed)
    A, h, c = random_graph(rng, n), np.geomspace(0.05, 20, 5), rng.normal(size=5)
    course = forecast.Course(solves, float(np.exp(rng.normal(0, 2))), 0.5, phases, power)
    given = A, h, c, rng.random(n), rng.random((n, 5)), course, rng.normal(size=(3, n))
    one, other = forecast.follow(*given), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "_LONG", 0)
        other = forecast.follow(*given)
    np.testing.assert_allclose(other[0], one[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(other[1], one[1], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["gossip", "tracking", "accelerated", "preconditioned", "fixed-point", "extra"]
)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([None, 0.0, 1.0, 3.0]))
def test_constants_of_gossip_are_judged_the_same_by_doubling(name, seed, steps, power) -> None:
    rng = np.random.default_rng(seed)
    A, facts = random_graph(rng, 6), Facts(6, np.zeros(6), 0.5, 50.0, 0.1, 0.25)
    use = rule.Constants(
        np.exp(rng.normal(-1, 1, 5)), 0.5, Smoothing(power, 2), rng.random(5) * 0.9, 0.3,
        damping=0.05, relaxation=rng.random(5) * 0.5,
    )  # fmt: skip
    given = find(name).cls(), facts, 12, rule.mixing(A), use, steps
    one = rule.followed(*given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "_LONG", 0)
        other = rule.followed(*given)
    calm = one.stable & (one.scatter.max(axis=1) < 1e6)
    for a, b in ((one.bias, other.bias), (one.passed, other.passed), (one.scatter, other.scatter)):
        np.testing.assert_allclose(b[calm], a[calm], rtol=1e-6, atol=1e-9)
    assert np.array_equal(one.stable, other.stable)


def test_noise_of_ever_more_solves_averages_out() -> None:
    """With means over K solves variance falls as 1/K, however large K is: what stays for ever gathers no rounding."""
    A, h = random_graph(np.random.default_rng(1), 6), np.geomspace(0.1, 20, 4)
    left = []
    for solves in (10**6, 10**9, 10**12):
        course = forecast.Course(solves, 5.0, 0.5, 1, 1.0)
        _, variance = forecast.follow(A, h, np.ones(4), np.ones(6), np.zeros((6, 4)), course, np.eye(6))
        left.append(variance * solves)
    np.testing.assert_allclose(left[1], left[0], rtol=1e-3)
    np.testing.assert_allclose(left[2], left[1], rtol=1e-3)


def test_weights_by_their_recursion_are_those_of_the_mean() -> None:
    for power in (0.0, 1.0, 3.0):
        moves, at = doubling.weighing(power, 9)
        found = []
        for _ in range(9):
            found.append(at[-1])
            at = moves @ at
        np.testing.assert_allclose(found[::-1], forecast.Course(9, 1.0, power=power).weights, atol=1e-12)
    assert doubling.summable(None)
    assert not doubling.summable(1.5)


def test_stretches_are_the_list_they_stand_for() -> None:
    told = Stretches([(2, 1.0, 3.0), (3, 2.0, 1.0)], 2)
    whole = [Planned(1, 1.0, 3.0), Planned(3, 1.0, 3.0)] + [Planned(k, 2.0, 1.0) for k in (5, 7, 9)]
    assert list(told) == whole
    assert told[-1] == whole[-1]
    assert told[1:3] == whole[1:3]
    assert len(Stretches([(10**8, 1.0, 1.0)], 1)) == 10**8
    with pytest.raises(IndexError):
        told[5]


@pytest.mark.parametrize("algorithm", ["admm", "madmm", "radmm", "mradmm"])
def test_a_schedule_in_stretches_is_priced_as_the_list_of_its_releases(algorithm) -> None:
    """Growing penalties included: up to the cap each solve is apart, and from there they are alike."""
    growth = {"eta_growth": "1.3"} if algorithm.startswith("m") else {}
    config = radmm.configure(
        algorithm,
        data="tiny",
        topology="er5",
        iterations=40,
        eta="0.5",
        alpha="3",
        adjacency="replace",
        **growth,
    )
    prepared = prepare(config, World())
    plan = plan_of(prepared)
    assert plan is not None
    told, node = plan.releases, prepared.node
    assert isinstance(told, Stretches)
    assert len(told.parts) < 20
    every = [config.algorithm.penalty(solve, node) for solve in range(1, len(told) + 1)]
    for each, eta in zip(told, every):
        np.testing.assert_array_equal(each.quadratic, 2 * eta * node.degree)
    assert sizing.plans_of(plan.recipe, told) == sizing.plans_of(plan.recipe, list(told))


def test_alphas_that_grow_make_each_solve_another_one() -> None:
    config = radmm.configure(
        "admm", data="tiny", topology="er5", iterations=5, eta="0.5", alpha="3", alpha_growth="1.1",
        adjacency="replace",
    )  # fmt: skip
    plan = plan_of(prepare(config, World()))
    assert plan is not None
    assert plan.recipe.alpha.shape == (5, 5)
    assert [len(each.events) for each in plan.schedules] == [5] * 5


@pytest.mark.parametrize(
    "words",
    [
        "admm --iterations 1e19", "madmm --iterations 1e12", "radmm --iterations 1e9", "mradmm --iterations 1e19",
        "gossip --iterations 1e19", "tracking --iterations 1e9", "accelerated --iterations 1e12",
        "preconditioned --iterations 1e19", "extra --iterations 1e19",
        "admm --eta 1 --eta-growth 1.000000001 --iterations 1e8",
    ],
)  # fmt: skip
def test_more_releases_than_prices_reach_are_one_line(words, capsys) -> None:
    assert radmm.main(["--topology", "er5", *PRIVATE, "--algorithm", *words.split()]) == 2
    told = capsys.readouterr().err
    assert len(told.strip().splitlines()) == 1
    assert "priced" in told


def test_istdp_is_told_the_same(capsys) -> None:
    assert istdp.main([*PRIVATE, "--iterations", "1e19"]) == 2
    assert "priced beforehand" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["--algorithm gossip", "--algorithm radmm --eta 50 --mechanism output --noise gaussian"]
)
def test_as_many_as_prices_reach_are_planned_at_once(words, capsys) -> None:
    flags = ["--topology", "er5", *PRIVATE, "--tolerance", "1e-3", "--iterations", "1e8", *words.split()]
    assert radmm.main(flags) == 0
    assert "releases a node" in capsys.readouterr().out


@pytest.mark.parametrize(
    "event",
    [
        KNorm(5, 1e-9, 1.0),
        ObjectivePerturbation("gamma", 5, 1e-9, 1.0, 0.25, 1e30),
        ObjectivePerturbation("gaussian", 5, 1e9, 1.0, 0.25, 1e30),
    ],
)
def test_what_loses_its_digits_is_never_said_to_be_free(event) -> None:
    """1e18 releases that cost 1e-9 each: the losses of one are below the rounding of 1, their sum is not."""
    many = event.times(10**18)
    assert accountant.epsilon([many], 1e-5, "replace") > 1
    assert accountant.adaptive_epsilon([many], 1e-5, "replace") > 1
    assert accountant.delta([many], 1.0, "replace") > 1e-5
    few = event.times(MOST_PRICED)
    assert math.isfinite(accountant.epsilon([few], 1e-5, "replace"))
    assert (
        pld.epsilon(
            [pld.Term(each.pair, MOST_PRICED + 1) for each in accountant.ways([few], "replace")[0]], 0.0
        )
        == math.inf
    )


@pytest.mark.parametrize("size", [1e-6, 1e-7, 1e-9, 1e-12, 1e-17])
@pytest.mark.parametrize("dimension", [1, 5])
def test_many_tiny_losses_cost_at_least_what_their_central_limit_does(dimension, size) -> None:
    """A loss of KNorm has the variance (alpha shift)^2/d, and 1e8 of them are normal to far more digits than .9."""
    many = KNorm(dimension, size, 1.0).times(MOST_PRICED)
    mu = size * math.sqrt(MOST_PRICED / dimension)
    at = gaussian.delta(mu, 0.0) / 3
    spent = 0.9 * gaussian.epsilon(mu, at)
    assert accountant.bounds([many], at, "replace").best >= spent > 0
    assert accountant.adaptive_epsilon([many], at, "replace") >= spent
    assert accountant.delta([many], spent, "replace") >= at


@pytest.mark.parametrize(("flag", "other"), [("--alpha", "--eta"), ("--eta", "--alpha")])
def test_a_table_that_ends_before_the_run_is_refused(flag, other, tmp_path, capsys) -> None:
    table = tmp_path / "table.txt"
    table.write_text("".join(f"{node},2,2,2\n" for node in range(5)))
    words = [flag, str(table), other, "1", "--adjacency", "replace", "--iterations", "5", "--dry-run"]
    assert radmm.main(["--topology", "er5", "--data", "tiny", "--algorithm", "admm", *words]) == 2
    assert "ends after 3 solves" in capsys.readouterr().err


def test_gaussians_have_a_closed_form_however_many_they_are() -> None:
    one, many = Gaussian(2.0), Gaussian(2.0e6).times(10**12)
    assert accountant.epsilon([many], 1e-5, "replace") == pytest.approx(
        accountant.epsilon([one], 1e-5, "replace"), rel=1e-9
    )


def test_a_list_of_ones_own_is_no_longer_than_can_be_listed() -> None:
    class Own:
        repeats = False

        def releases(self, node, iterations):
            raise AssertionError("it was asked for a list")

    with pytest.raises(Exception, match="at most 100000"):
        planned(Own(), None, 10**6)
