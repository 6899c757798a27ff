"""What protects, and what the printed algorithm printed."""

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import istdp
from distadmm.data import rows as synthetic
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.methods.istdp import printed, private, release
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.problems.concave import L1, MCP
from distadmm.problems.losses import Logistic, Squared


@given(seed=st.integers(0, 9999), clip=st.floats(0.01, 5.0), logistic=st.booleans())
@settings(deadline=None, max_examples=40)
def test_clipped_gradient_is_the_mean_of_clipped_gradients(seed, clip, logistic):
    rng = np.random.default_rng(seed)
    n, d = 12, 5
    X, theta = rng.standard_normal((n, d)) * 3, rng.standard_normal(d)
    X[0] = 0.0
    y = rng.choice([-1.0, 1.0], n) if logistic else rng.standard_normal(n)
    loss = Logistic() if logistic else Squared()
    expected = np.zeros(d)
    for x, target in zip(X, y):
        g = loss.slope(np.array([x @ theta]), np.array([target]))[0] * x
        expected += g / max(1.0, np.linalg.norm(g) / clip)
    found = private.ClippedGradient(X, y, loss, clip, n)(theta)
    np.testing.assert_allclose(found, expected / n, atol=1e-12)


@given(seed=st.integers(0, 9999), clip=st.floats(0.1, 3.0))
@settings(deadline=None, max_examples=40)
def test_no_record_moves_the_gradient_by_more_than_the_sensitivity(seed, clip):
    rng = np.random.default_rng(seed)
    n, d = 8, 4
    X, y = rng.standard_normal((n, d)) * 10, rng.choice([-1.0, 1.0], n)
    theta = rng.standard_normal(d) * 5
    here = private.ClippedGradient(X, y, Logistic(), clip, n)(theta)
    # The worst replacement: the same row, mirrored and long.
    X_other, y_other = X.copy(), y.copy()
    X_other[3] *= -100 * rng.choice([-1.0, 1.0])
    y_other[3] *= rng.choice([-1.0, 1.0])
    replaced = private.ClippedGradient(X_other, y_other, Logistic(), clip, n)(theta)
    slack = 1 + 1e-9
    assert np.linalg.norm(here - replaced) <= slack * private.sensitivity(clip, n, "replace")
    fewer = private.ClippedGradient(X[1:], y[1:], Logistic(), clip, n)(theta)
    assert np.linalg.norm(here - fewer) <= slack * private.sensitivity(clip, n, "add-remove")


def test_a_share_held_out_moves_many_records_when_one_goes(tmp_path):
    """Why --test-fraction is refused under add-remove: the order that is cut depends on the number of rows."""
    gradients, trained = [], []
    for n in (1000, 999):
        np.savez(tmp_path / "rows.npz", X=np.arange(n)[:, None] + 1.0, y=np.resize([-1.0, 1.0], n))
        source = open_source(str(tmp_path / "rows.npz"), test_fraction=0.2, clip=None)
        trained.append(set(source.everything()[0][:, 0].astype(int)))
    late = np.array([i not in trained[1] for i in range(1, 1001)])  # who trains only beside the last record
    for n in (1000, 999):
        np.savez(tmp_path / "rows.npz", X=np.ones((n, 1)), y=np.where(late[:n], 1.0, -1.0))
        X, y = open_source(str(tmp_path / "rows.npz"), test_fraction=0.2).everything()
        gradients.append(private.ClippedGradient(X, y, Logistic(), 1.0, 1000.0)(np.zeros(1)))
    moved = np.linalg.norm(gradients[0] - gradients[1])
    assert moved > 10 * private.sensitivity(1.0, 1000.0, "add-remove")


def test_the_sensitivity_is_reached():
    X, y = np.array([[3.0, 0.0], [3.0, 0.0]]), np.array([-1.0, 1.0])
    gradients = [private.ClippedGradient(X[[i]], y[[i]], Logistic(), 1.0, 1.0)(np.zeros(2)) for i in (0, 1)]
    assert np.linalg.norm(gradients[0] - gradients[1]) == pytest.approx(
        private.sensitivity(1.0, 1.0, "replace")
    )


def test_adjacency_has_no_default():
    with pytest.raises(InputError, match="no default"):
        private.sensitivity(1.0, 10, "both")


def test_the_iteration_asks_for_one_noisy_gradient_an_iterate():
    asked = []

    def xi(k, theta):
        asked.append(k)
        return theta - 1.0

    steps = private.NoisySteps("bb", 0.5, 0.1, 2.0)
    assert len(list(islice(private.iterate(xi, np.zeros(3), L1(0.01), steps), 7))) == 7
    assert asked == list(range(7))


@given(seed=st.integers(0, 9999), rule=st.sampled_from(["bb", "fixed"]))
@settings(deadline=None, max_examples=25)
def test_steps_stay_within_their_data_free_bounds(seed, rule):
    rng = np.random.default_rng(seed)
    steps = private.NoisySteps(rule, 1.0, 0.5, 3.0)
    iterates = private.iterate(lambda k, theta: rng.standard_normal(4), np.zeros(4), MCP(0.1, 5.0), steps)
    taken = [iterate.step for iterate in islice(iterates, 30)]
    assert all(0.5 <= step <= 3.0 for step in taken)
    assert rule == "bb" or set(taken) == {1.0}


def test_lambda_rule_is_the_size_of_pure_noise():
    rng = np.random.default_rng(1)
    sigma, d = 0.3, 400
    largest = np.abs(sigma * rng.standard_normal((500, d))).max(axis=1)
    assert np.median(largest) == pytest.approx(private.noise_level_lambda(sigma, d), rel=0.1)


# -- Algorithm 1 as printed: two pairs of neighbouring tables that it tells apart ---------------------------


@pytest.mark.parametrize(
    ("n", "longest", "at_least"), [(100, 1e4, 0.85), (100, 1e6, 0.99), (10_000, 1e6, 0.85)]
)
def test_exact_steps_give_one_record_away(n, longest, at_least):
    """D: n rows of zeros.  D' has one row more, x = 1, y = 1.  The step is the scale of the noise."""
    assert printed.step_delta(n, longest, 1.0, 1e-5) >= at_least  # claimed: 1e-5


def test_the_step_bound_is_what_a_simulation_shows():
    """theta^2 of the printed update under D and D', line search off, against the closed form."""
    n, longest, epsilon = 100, 1e4, 1.0
    sigma = printed.noise_scale(epsilon, 1e-5, 2, 1.0)
    b = sigma * np.random.default_rng(0).standard_normal(20_000)
    before, start = np.array([0.01]), np.zeros(1)
    moved = []
    for X in (np.zeros((n, 1)), np.vstack([np.zeros((n, 1)), [[1.0]]])):
        y = np.ones(len(X))
        g_before, g = (Logistic().slope(X @ theta, y) @ X / len(X) for theta in (before, start))
        bend = float((start - before) @ (g - g_before))
        step = min(float((start - before) @ (start - before)) / bend, longest) if bend > 0 else longest
        moved.append(np.abs(step * (g + b)))
    cuts = np.quantile(moved[1], np.linspace(0.5, 1, 200))
    seen = max((moved[0] > cut).mean() - math.exp(epsilon) * (moved[1] > cut).mean() for cut in cuts)
    assert printed.step_delta(n, longest, epsilon, 1e-5) == pytest.approx(seen, abs=0.02)


def test_a_bound_that_both_steps_meet_hides_the_record():
    assert printed.step_delta(100, 10.0, 1.0, 1e-5) == 0.0


@pytest.mark.parametrize(("n", "least", "tolerance"), [(20, 0.05, 0.02), (100, 0.01, 0.01)])
def test_the_line_search_gives_one_record_away(n, least, tolerance):
    """n rows x = 1 with balanced labels against one positive more, first step fixed."""
    start, step, beta = 1.0, 1.0, 1e-4
    sigma = printed.noise_scale(1.0, 1e-5, 2, 1.0)
    X = np.ones((n, 1))
    y = np.repeat([1.0, -1.0], n // 2)
    X_more, y_more = np.ones((n + 1, 1)), np.append(y, 1.0)
    edge = printed.search_edge(n // 2 + 1, n // 2, start)
    expected = printed.search_delta(n, start)
    assert expected > least  # a lower bound of the true delta; claimed: 1e-5
    rng = np.random.default_rng(0)
    below = [0, 0]
    stuck = trials = 0
    for b in sigma * rng.standard_normal(1500):
        trials += 1
        for table, (rows, labels) in enumerate(((X, y), (X_more, y_more))):
            state = next(
                printed.iterate(
                    rows, labels, Logistic(), L1(0.0), lambda k, b=b: np.array([b]),
                    before=np.array([start]), start=np.array([start]), shortest=step, longest=step, beta=beta,
                )
            )  # fmt: skip
            below[table] += state.theta[0] < edge
            stuck += table == 0 and not state.accepted
    share = below[0] / trials
    assert below[1] == 0
    assert share == pytest.approx(expected, abs=tolerance)
    assert stuck / trials == pytest.approx(0.5, abs=0.05)  # the printed loop would not have ended


def test_the_model_is_the_mean_of_the_tail_and_costs_what_the_last_iterate_costs():
    problem = synthetic.problem("logistic", 300, 12, seed=1)
    how = {"epsilon": 1.0, "adjacency": "replace", "iterations": 9, "lam": 0.0, "seed": 4}
    thetas = []
    last = istdp.solve_private(problem.X, problem.y, watch=lambda k, theta: thetas.append(theta), **how)
    mean = istdp.solve_private(problem.X, problem.y, tail=0.5, **how)
    assert (thetas[-1] == last.theta).all()
    np.testing.assert_allclose(mean.theta, np.mean(thetas[-4:], axis=0), rtol=1e-12)  # round(.5 x 9) = 4
    assert (mean.epsilon, mean.sigma) == (last.epsilon, last.sigma)
    assert mean.ledger.events == last.ledger.events


def test_an_older_checkpoint_s_model_is_its_theta():
    state = private.State(*(np.array([float(at)] * 2) for at in range(3)), 4.0, np.zeros(2))
    desk = release.Desk(release.Paid(MemoryLedger(adjacency="replace", mode="simulation"), None))
    kept = desk.keep(state)
    assert (desk.take_up([kept], state).model == 0).all()
    del kept["model"]
    assert (desk.take_up([kept], state).model == state.theta).all()
