"""The two ways data reach the private iteration, what they are charged, and what the plan commits to."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import istdp
from distadmm.data import rows as synthetic
from distadmm.errors import InputError
from distadmm.methods.istdp import private, release
from distadmm.methods.istdp.plan import make_plan
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.events import Gaussian, Unbounded
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.mechanism import Noise, source_of
from distadmm.problems.losses import Logistic, Squared


def plan_of(n=50, d=6, adjacency="replace", **changes):
    options = {"epsilon": 1.0, "delta": 1e-5, "iterations": 4, "loss": Logistic(), **changes}
    return make_plan(adjacency=adjacency, dimension=d, rows=n, **options)


def grid_gradient(X, y, loss, plan):
    ledger = MemoryLedger(adjacency=plan.adjacency, mode="secure")
    return release.GridGradient(X, y, loss, plan, Noise(ledger, source_of("secure")))


@given(seed=st.integers(0, 9999), clip=st.floats(0.05, 8.0), scale=st.sampled_from([1e-3, 1.0, 1e4]))
@settings(deadline=None, max_examples=30)
def test_the_grid_sum_is_close_exact_and_bounded(seed, clip, scale):
    rng = np.random.default_rng(seed)
    n, d = 30, 5
    X, theta = rng.standard_normal((n, d)) * scale, rng.standard_normal(d) / scale
    X[0] = 0.0
    loss, y = (Logistic(), rng.choice([-1.0, 1.0], n)) if seed % 2 else (Squared(), rng.standard_normal(n))
    plan = plan_of(n, d, clip=clip)
    whole = grid_gradient(X, y, loss, plan).sum(theta)
    exact = private.ClippedGradient(X, y, loss, clip, 1.0)(theta) / clip
    # 2^-16 a coordinate of every unit row, one unit of every slope, and theta to 2^-20 a coordinate.
    slack = n * (2.0**-14 + np.linalg.norm(X, axis=1).max() ** 2 / clip * d * 2.0**-20)
    np.testing.assert_allclose(whole, exact, atol=slack)
    # Integers: the order of the rows is nothing to the sum, and it is a multiple of 2^-32.
    order = rng.permutation(n)
    np.testing.assert_array_equal(grid_gradient(X[order], y[order], loss, plan).sum(theta), whole)
    assert (whole * 2.0**32 == np.rint(whole * 2.0**32)).all()
    # No record adds more than one unit of C, exactly: the squared norm in whole numbers.
    for i in range(5):
        part = grid_gradient(X[i : i + 1], y[i : i + 1], loss, plan).sum(theta)
        assert sum(int(v) ** 2 for v in part * 2.0**32) <= 2**64


def test_the_grid_charges_its_rounding_and_meets_the_budget():
    for adjacency, moved in (("replace", 2.0), ("add-remove", 1.0)):
        plan = plan_of(1000, 105, adjacency, divisor=1000.0, iterations=50)
        query = release.query_of(plan).grid
        assert query.event.sensitivity_grid >= moved / query.spacing + math.sqrt(105)
        spent = accountant.epsilon(
            [DiscreteGaussian(query.event.sigma_grid, query.event.sensitivity_grid, 50, 105)], 1e-5, adjacency
        )
        assert spent <= 1.0
        assert query.sigma == pytest.approx(plan.noise_multiplier * moved, rel=0.01)


def test_a_private_run_commits_before_it_releases_and_charges_each_gradient():
    problem = synthetic.problem("logistic", 200, 8, support=3, test=1)
    for seed, kind in ((3, Gaussian), (None, DiscreteGaussian)):
        found = istdp.solve_private(
            problem.X, problem.y, epsilon=1.0, adjacency="replace", seed=seed, iterations=6
        )
        (event,) = found.ledger.events
        assert isinstance(event, kind)
        assert event.count == 6
        assert found.ledger.tally.releases == 6
        assert found.ledger.tally.committed_first
        assert accountant.epsilon(found.ledger.events, 1e-5, "replace") == found.epsilon <= 1.0
        assert found.ledger.statement_kind == ("certificate" if seed is None else "simulation")


def test_noise_has_the_size_that_is_charged():
    problem = synthetic.problem("logistic", 400, 50, test=1)
    plan = plan_of(400, 50, clip=2.0, iterations=100)
    exact = private.ClippedGradient(problem.X, problem.y, Logistic(), 2.0, 400)
    theta = np.full(50, 0.1)
    for mode, seed, kind in (
        ("simulation", 1, release.NoisyGradient),
        ("secure", None, release.GridGradient),
    ):
        ledger = MemoryLedger(adjacency="replace", mode=mode)
        xi = kind(problem.X, problem.y, Logistic(), plan, Noise(ledger, source_of(mode, seed)))
        noise = np.array([xi(k, theta) - exact(theta) for k in range(100)])
        # 5000 variates: the estimate of sigma has a standard error of one per cent.
        assert noise.std() == pytest.approx(plan.sigma, rel=0.06)
        assert xi.sigma == pytest.approx(plan.sigma, rel=0.01)
        assert abs(noise.mean()) < 5 * plan.sigma / math.sqrt(noise.size)
        assert len(ledger.events) == 100


def test_the_plan_knows_no_private_number():
    """Under add-remove nothing that is committed or published changes with the number of rows."""
    plans = {plan_of(n, 20, "add-remove", divisor=500.0) for n in (100, 101, 5000)}
    assert len(plans) == 1
    assert plan_of(100, 20).sigma != plan_of(101, 20).sigma  # replace: n is public
    with pytest.raises(InputError, match="give a public number"):
        plan_of(100, 20, "add-remove")


def test_replacing_costs_twice_what_removing_does():
    replaced, removed = plan_of(100, 5), plan_of(100, 5, "add-remove", divisor=100.0)
    assert replaced.sigma == pytest.approx(2 * removed.sigma)
    assert replaced.noise_multiplier == removed.noise_multiplier


def test_the_default_steps_are_the_inverse_curvature():
    plan = plan_of(clip=1.0)
    assert (plan.steps.shortest, plan.steps.longest) == (4.0, 80.0)
    assert plan.alpha == 200.0
    assert plan.lam == private.noise_level_lambda(plan.sigma, plan.dimension)


def test_the_same_seed_gives_the_same_bits_and_another_ledger_node_other_noise():
    problem = synthetic.problem("logistic", 100, 8, support=3, test=1)

    def theta(seed, node):
        ledger = MemoryLedger(node, adjacency="replace", mode="simulation")
        return istdp.solve_private(
            problem.X, problem.y, epsilon=50.0, adjacency="replace", seed=seed, ledger=ledger
        ).theta

    np.testing.assert_array_equal(theta(1, 0), theta(1, 0))
    assert (theta(1, 0) != theta(2, 0)).any()
    assert (theta(1, 0) != theta(1, 1)).any()


def test_the_printed_form_is_never_a_guarantee():
    problem = synthetic.problem("logistic", 60, 5, support=2, test=1)
    found = istdp.solve_printed(
        problem.X, problem.y, epsilon=1.0, adjacency="add-remove", lam=0.01, iterations=12, seed=0
    )
    assert math.isinf(found.epsilon)
    assert math.isinf(accountant.epsilon(found.ledger.events, 1e-5, "add-remove"))
    (unbounded,) = {event for event in found.ledger.events if isinstance(event, Unbounded)}
    assert "refuted" in unbounded.reason
    assert accountant.published_epsilon(found.ledger.events, "add-remove") == unbounded.claimed == 1.0
    assert found.statement.startswith("No guarantee")
    assert found.stuck, "with the paper's noise some line searches never accept"
    assert len(found.history) == 11


def test_a_light_version_of_the_headline_numbers():
    """n = 20000, epsilon = 1, lambda by rule: the support is found and accuracy is near the best possible."""
    problem = synthetic.problem("logistic", 20_000, seed=0)
    found = istdp.solve_private(
        problem.X, problem.y, epsilon=1.0, adjacency="replace", clip=4.0, shortest=1.0, longest=12.0, seed=0
    )
    assert problem.support_f1(found.theta) >= 0.9
    assert problem.accuracy(found.theta) >= problem.bayes_accuracy - 0.01


def test_adult_at_epsilon_one():
    from distadmm.data.source import open_source

    source = open_source("adult")
    X, y = source.everything()
    X_test, y_test = source.test()
    found = istdp.solve_private(X, y, epsilon=1.0, adjacency="replace", lam=2e-4, alpha=2000.0, seed=0)
    accuracy = (np.where(X_test @ found.theta > 0, 1.0, -1.0) == y_test).mean()
    assert accuracy == pytest.approx(0.834, abs=0.0104)  # two standard errors of 5,222 rows


def test_what_the_iterates_watch_changes_nothing():
    problem = synthetic.problem("logistic", 100, 8, support=3, test=1)
    seen = []
    options = {"epsilon": 1.0, "adjacency": "replace", "seed": 5, "iterations": 9}
    watched = istdp.solve_private(problem.X, problem.y, watch=lambda k, theta: seen.append(k), **options)
    np.testing.assert_array_equal(watched.theta, istdp.solve_private(problem.X, problem.y, **options).theta)
    assert seen == list(range(9))
