"""Moment messages: sensitivities by search, reference replies, exactness on the grid, and the promise kept."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.data.parts import Parts, split
from distadmm.errors import BudgetExhausted, InputError
from distadmm.methods.sharing import admm, price, private
from distadmm.methods.sharing.messages import PrivacyOptions
from distadmm.methods.sharing.moments import (
    Bounds,
    Desk,
    Reply,
    Rows,
    admm_reply,
    mutual_reply,
    one_reply,
    prior_precision,
    schedule,
    shrunk,
    slopes,
)
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.accounting.gaussian import epsilon, mu_at
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.queries import Query, Releases, committed
from distadmm.privacy.noise.sources import Secure, Simulation
from distadmm.problems.losses import HuberHinge, Logistic
from distadmm.ranks.star import Star
from distadmm.ranks.world import World

VECTORS = json.loads((Path(__file__).parent / "vectors" / "vertical.json").read_text())
KINDS = {
    "zero": {"neighbours": "zero"},
    "replace": {"neighbours": "replace", "nonnegative": True},
    "replace_any": {"neighbours": "replace"},
}
seeds = st.integers(0, 10_000)


def _bounds(row=1.5, kind="replace_any"):
    return Bounds(row, 1.0, 0.25, **KINDS[kind])


def _releases(node=2, seed=0, mode="simulation"):
    ledger = MemoryLedger(node, adjacency="replace", mode=mode)
    return Releases(ledger, Simulation(seed) if mode == "simulation" else Secure())


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["adj"])
def test_reference_replies(case):
    bounds = _bounds(case["R"], case["adj"])
    mu = mu_at(case["eps"], case["delta"])
    plan = schedule(case["d"], bounds, mu, "simulation")
    assert mu == pytest.approx(case["mu"], rel=1e-9)
    assert plan.gradient.sigma == pytest.approx(case["sigma_g"], rel=1e-9)
    assert plan.matrix.sigma == pytest.approx(case["sigma_H"], rel=1e-9)
    rows = Rows(np.array(case["D2"]), Bounds(case["R"], 1.0, 0.25, bounds.neighbours))
    g, h = slopes(Logistic(), np.array(case["z1"]), np.array(case["b"]), bounds)
    p = rows.gradient(g) + plan.gradient.sigma * np.array(case["unit_noise_p"])
    off = np.triu(np.array(case["unit_noise_H_full"]), 1) / math.sqrt(2)
    H = rows.curvature(h) + plan.matrix.sigma * (off + off.T + np.diag(case["unit_noise_H_diag"]))
    np.testing.assert_allclose(p, case["p"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(H, case["H"], rtol=1e-9, atol=1e-9)
    x = shrunk(Reply(-p, H, plan.gradient.sigma, plan.matrix.sigma), case["lam"])
    np.testing.assert_allclose(x, case["x2"], atol=1e-6)  # the reference ends its inner iteration earlier


def _sharpest(kind, rng, row):
    """Two rows as far apart as the kind of neighbour allows, often on the boundary."""
    d = rng.integers(1, 4)
    one, other = rng.normal(size=d), rng.normal(size=d)
    if rng.random() < 0.5:  # towards the worst: opposite, or orthogonal when no feature is negative
        other = -one if kind == "replace_any" else np.roll(np.eye(d)[0], 1) if d > 1 else other
        one = one if kind == "replace_any" else np.eye(d)[0]
    scale = [row * 10 ** rng.uniform(0, 2) / np.linalg.norm(v) for v in (one, other)]
    one, other = one * scale[0], other * scale[1]
    return one, (np.zeros(d) if kind == "zero" else other)


@settings(deadline=None, max_examples=50)
@given(seeds, st.sampled_from(sorted(KINDS)), st.booleans())
def test_no_pair_of_neighbours_exceeds_the_sensitivities(seed, kind, several):
    """V1 (one slope in both worlds) and V1-T (slopes at a released model, so they differ)."""
    rng = np.random.default_rng(seed)
    bounds, loss, worst = _bounds(1.5, kind), Logistic(), [0.0, 0.0]
    for _ in range(60):
        one, other = _sharpest(kind, rng, bounds.row)
        z, y = rng.normal(size=1) * 10 ** rng.uniform(-1, 2), rng.choice([-1.0, 1.0], 1)
        x = rng.normal(size=one.size) * 10 ** rng.uniform(-1, 2) if several else np.zeros(one.size)
        seen = []
        for features in (one, other):
            rows = Rows(features[None, :], bounds)
            g, _ = slopes(loss, z + rows.scores(x), y, bounds)
            _, h = slopes(loss, z, y, bounds)
            seen.append((rows.gradient(g), rows.curvature(h)))
        (p, H), (p_other, H_other) = seen
        worst[0] = max(worst[0], np.linalg.norm(p - p_other) / bounds.gradient(same_slope=not several))
        worst[1] = max(worst[1], np.linalg.norm(H - H_other) / bounds.gram(0.25))
    assert max(worst) <= 1 + 1e-9


@pytest.mark.parametrize(("kind", "factor"), [("zero", 1.0), ("replace", math.sqrt(2)), ("replace_any", 2.0)])
def test_the_sensitivities_are_reached(kind, factor):
    """They could not be smaller: a pair that attains each."""
    bounds = _bounds(2.0, kind)
    one = np.array([[2.0, 0.0]])
    other = {"zero": np.zeros((1, 2)), "replace": np.array([[0.0, 2.0]]), "replace_any": -one}[kind]
    g = np.ones(1)
    moved = Rows(one, bounds).gradient(g) - Rows(other, bounds).gradient(g)
    assert np.linalg.norm(moved) == pytest.approx(bounds.gradient(same_slope=True)) == 2 * factor
    if kind != "replace_any":  # for matrices opposite rows are the same row
        turned = Rows(one, bounds).curvature() - Rows(other, bounds).curvature()
        assert np.linalg.norm(turned) == pytest.approx(bounds.gram(1.0))


def test_slopes_of_both_signs_cost_the_full_two():
    loose = Bounds(1.0, 1.0, 0.25, nonnegative=True, one_signed=False)
    assert loose.gradient(same_slope=False) == 2.0
    assert loose.gradient(same_slope=True) == pytest.approx(math.sqrt(2))


@settings(deadline=None, max_examples=25)
@given(seeds)
def test_rows_never_exceed_their_bound(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(20, 3)) * 10 ** rng.uniform(-3, 6)
    for exact in (False, True):
        for given_matrix in (matrix, sp.csr_matrix(matrix)):
            rows = Rows(given_matrix, Bounds(0.7, 1.0, 0.25, nonnegative=True), exact=exact)
            kept = rows.matrix.toarray() if rows.sparse else rows.matrix
            assert np.linalg.norm(kept, axis=1).max() <= 0.7
            assert kept.min() >= 0


def test_a_party_bounds_what_a_malicious_centre_sends():
    """A NaN or an infinite score for one record must not show in the reply which features that record has."""
    bounds, loss = _bounds(), Logistic()
    z, y = np.array([np.nan, np.inf, -np.inf, 0.0]), np.array([1.0, 1.0, 1.0, 99.0])
    g, h = slopes(loss, z, y, bounds)
    assert np.isfinite(g).all()
    assert np.abs(g).max() <= 1
    assert h.min() >= 0
    assert h.max() <= 0.25
    rows, out = Rows(np.eye(4), bounds), _releases()
    plan = schedule(4, bounds, None, "simulation", gram=True, slope=1.0)
    answer = mutual_reply(Desk(rows, bounds, plan, out), np.array([np.nan, np.inf, 1.0, 0.0]), 0.0, 1.0)
    assert np.isfinite(answer.message).all()
    for reply in (one_reply, admm_reply):
        for rounds in (1, 3):
            several = schedule(4, bounds, None, "simulation", rounds=rounds, gram=reply is admm_reply)
            assert np.isfinite(reply(Desk(rows, bounds, several, out), z, y, loss, 1.0).message).all()


def test_without_noise_the_reply_is_the_first_x_update():
    """y = l'(z1) and one penalty h_i a record: argmin lambda/2 |x|^2 + sum h_i/2 (phi_i x + g_i/h_i)^2."""
    rng = np.random.default_rng(2)
    matrix, z1, y = rng.normal(size=(50, 4)), rng.normal(size=50), rng.choice([-1.0, 1.0], 50)
    bounds = Bounds(100.0, 1.0, 0.25)
    out = _releases()
    desk = Desk(Rows(matrix, bounds), bounds, schedule(4, bounds, None, "simulation"), out)
    answer = one_reply(desk, z1, y, Logistic(), 0.7)
    g, h = slopes(Logistic(), z1, y, bounds)
    stacked = np.vstack([np.sqrt(h)[:, None] * matrix, np.sqrt(0.7) * np.eye(4)])
    expected = np.linalg.lstsq(stacked, np.concatenate([-g / np.sqrt(h), np.zeros(4)]), rcond=None)[0]
    np.testing.assert_allclose(answer.x, expected, atol=1e-9)
    assert any("without noise" in line for line in out.ledger.content.decode().splitlines())


def test_several_rounds_approach_the_fitted_model():
    rng = np.random.default_rng(3)
    matrix, z1 = rng.normal(size=(400, 3)), rng.normal(size=400)
    y = np.sign(z1 + matrix @ [2.0, -1.0, 0.5] + rng.logistic(size=400))
    bounds = Bounds(100.0, 1.0, 0.25)
    out = _releases()
    rows = Rows(matrix, bounds)
    one, many, whole = (
        Desk(rows, bounds, schedule(3, bounds, None, "simulation", rounds=rounds, gram=rounds == 400), out)
        for rounds in (1, 60, 400)
    )
    fitted = admm_reply(whole, z1, y, Logistic(), 1.0)
    x = np.zeros(3)
    for _ in range(50):
        slope, h = Logistic().slope(z1 + matrix @ x, y), Logistic().curvature(z1 + matrix @ x, y)
        x -= np.linalg.solve(matrix.T @ (h[:, None] * matrix) + np.eye(3), matrix.T @ slope + x)
    short, long = (one_reply(desk, z1, y, Logistic(), 1.0) for desk in (one, many))
    assert np.linalg.norm(long.x - x) < 0.5 * np.linalg.norm(short.x - x)
    assert np.linalg.norm(fitted.x - x) < 0.1 * np.linalg.norm(x)


def test_the_charges_add_up_to_the_budget():
    for rounds, gram in ((1, False), (3, False), (5, True)):
        bounds, mu = _bounds(), mu_at(1.0, 1e-5)
        plan = schedule(4, bounds, mu, "simulation", rounds=rounds, gram=gram)
        spent = sum((q.sensitivity / q.sigma) ** 2 for q in plan.queries("simulation", 4))
        assert math.sqrt(spent) == pytest.approx(mu)
        out = _releases()
        out.commit(committed(plan.queries("simulation", 4), "simulation"))
        mus = [event.gdp_mu("replace") for event in out.ledger.events if isinstance(event, Gaussian)]
        assert epsilon(math.sqrt(sum(value**2 for value in mus)), 1e-5) == pytest.approx(1.0, rel=1e-6)


def test_the_noise_has_the_stated_size():
    query = Query(2.0, 1.0, 3)
    draws = np.array([_releases(seed=s).symmetric(np.zeros((3, 3)), query, 0) for s in range(600)])
    np.testing.assert_allclose(draws[:, 0, 0].std(), 2.0, rtol=0.15)
    np.testing.assert_allclose(draws[:, 0, 1].std(), math.sqrt(2.0), rtol=0.15)
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))


def test_on_the_grid_sums_are_exact_integers():
    rng = np.random.default_rng(5)
    matrix = sp.csr_matrix((rng.random((3000, 6)) < 0.3) * rng.uniform(0, 1, (3000, 6)))
    bounds = Bounds(1.0, 1.0, 0.25, nonnegative=True)
    rows = Rows(matrix, bounds, exact=True)
    g = rows.fine(rng.uniform(-1, 1, 3000))
    dense = rows.matrix.toarray()
    integers = [[int(v * 2**8) for v in row] for row in dense]
    weights = [int(v * 2**12) for v in g]
    exact = [sum(w * row[j] for w, row in zip(weights, integers)) for j in range(6)]
    assert [float(v) * 2.0**20 for v in rows.gradient(g)] == [float(v) for v in exact]
    corner = sum(w * row[0] * row[1] for w, row in zip(weights, integers))
    assert rows.curvature(g)[0, 1] * 2.0**28 == float(corner)


def test_secure_matrices_are_symmetric_multiples_of_the_grid():
    out = _releases(mode="secure")
    noisy = out.symmetric(np.eye(4), Query(3.0, 1.0, 4), 0)
    np.testing.assert_array_equal(noisy, noisy.T)
    spacing = Query(15.0, 5.0, 10).grid.spacing
    assert ((5 * np.diag(noisy)) / spacing == np.rint((5 * np.diag(noisy)) / spacing)).all()


@settings(deadline=None, max_examples=15)
@given(seeds, st.sampled_from(["label", "record"]))
def test_v2_slopes_move_no_further_than_claimed(seed, protect):
    rng = np.random.default_rng(seed)
    n, weight, row = int(rng.integers(2, 30)), 10 ** rng.uniform(-0.3, 1), 2.0
    bounds, problem = Bounds(row, 1.0, 0.25), admm.Problem(Logistic(), 1.0)
    matrix = rng.normal(size=(n, 2)) * 10
    if rng.random() < 0.5:
        matrix = np.outer(rng.choice([-1.0, 1.0], n), [10.0, 0.0])
    labels = rng.choice([-1.0, 1.0], n)
    other, flipped = matrix.copy(), labels.copy()
    flipped[0] = -labels[0]
    if protect == "record":
        other[0] = -matrix[0] if rng.random() < 0.5 else rng.normal(size=2) * 10
    if protect == "label" and row**2 > 8 * weight:
        weight = row**2 / 8
    _, g = private.own_slopes(Rows(matrix, bounds), labels, problem.loss, weight)
    _, g_other = private.own_slopes(Rows(other, bounds), flipped, problem.loss, weight)
    assert np.linalg.norm(g - g_other) <= private.slope_sensitivity(protect, row, weight) * (1 + 1e-9)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long doubles have no more digits here")
@pytest.mark.parametrize("long", [1.0, 1e3, 1e7])
@pytest.mark.parametrize("alike", [False, True])
def test_v2_solves_to_what_it_says_of_its_rows_and_not_of_rounded_sums(long, alike):
    rng, bounds, solved = np.random.default_rng(3), Bounds(long, 1.0, 0.25), 0
    for count, width in ((200, 1), (200, 3), (5_000, 2)):
        matrix = rng.normal(size=(1 if alike else count, width)) * np.ones((count, 1))
        matrix *= long / np.linalg.norm(matrix, axis=1)[:, None]
        labels, rows = rng.choice([-1.0, 1.0], count), Rows(matrix, bounds)
        for weight in (1e-3, 10.0):
            try:
                x, _ = private.own_slopes(rows, labels, Logistic(), weight)
            except InputError:  # which is as good
                continue
            solved, A = solved + 1, rows.matrix.astype(np.longdouble)
            left = A.T @ Logistic().slope(A @ x.astype(np.longdouble), labels) + weight * x
            assert np.sqrt(left @ left) <= 1e-9 * (1 + 1e-9)
    assert solved or long > 1e3


def test_v2_refuses_bounds_for_which_its_proof_does_not_hold():
    with pytest.raises(InputError, match="needs R"):
        private.slope_sensitivity("label", 10.0, 1.0)


def _agreement(mechanism, parties, mu=None, **more):
    bounds = dict.fromkeys(range(1, parties + 1), Bounds(2.0, 1.0, 0.25))
    return private.Agreement(mechanism, bounds, mu, private.rounds_of(mechanism, None), **more)


def _problem_and_parts(parties=3, rows=300):
    rng = np.random.default_rng(1)
    train = {m: rng.normal(size=(rows, 2)) for m in range(1, parties + 1)}
    labels = np.sign(sum(train[m][:, 0] for m in train) + rng.logistic(size=rows))
    return admm.Problem(Logistic(), 1.0, intercept=True), Parts(train, {}, labels, {}, None, rows)


@pytest.mark.parametrize("mechanism", private.MECHANISMS)
def test_only_replies_of_d_numbers_come_back(mechanism):
    problem, parts = _problem_and_parts()
    star = Star(parties=3, party_one_is_centre=True)
    agreed = _agreement(mechanism, 3, mu_at(4.0, 1e-5), mu_one=mu_at(4.0, 1e-5))
    releases = {m: _releases(m) for m in (1, 2, 3)}
    trained = private.train(star, parts, problem, agreed, releases)
    traffic = star.sent()
    assert traffic["vector up"]["messages"] == 2
    assert traffic["vector up"]["bytes"] == 2 * 8 * (agreed.rounds * 2 + 3)
    assert sorted(trained.x) == [1, 2, 3]
    assert len(releases[1].ledger.events) == (1 if mechanism == "v2" else 0)
    for m in (2, 3):
        spent = math.sqrt(sum(event.gdp_mu("replace") ** 2 for event in releases[m].ledger.events))
        assert epsilon(spent, 1e-5) == pytest.approx(4.0, rel=1e-6)


def test_a_budget_that_is_spent_stops_the_reply_before_anything_is_drawn():
    from distadmm.privacy.ledger.filter import budget

    bounds, mu = _bounds(), mu_at(1.0, 1e-5)
    ledger = MemoryLedger(
        2, adjacency="replace", mode="simulation", budget=budget(0.5, 1e-5, adjacency="replace")
    )
    out = Releases(ledger, Simulation(0))
    with pytest.raises(BudgetExhausted):
        out.commit(committed(schedule(4, bounds, mu, "simulation").queries("simulation", 4), "simulation"))


def test_the_prior_is_strong_where_there_is_nothing_to_learn():
    rng = np.random.default_rng(0)
    H = 50.0 * np.eye(5)
    nothing = prior_precision(Reply(rng.normal(size=5) * 7, H, 1.0, 0.0))
    something = prior_precision(Reply(rng.normal(size=5) * 200, H, 1.0, 0.0))
    assert nothing > something


def test_at_epsilon_one_the_others_columns_help_on_adult():
    """Bundled Adult in a9a's 123 columns, parties of 66 and 57: five seeds, each below .327 on average."""
    from distadmm.data.source import open_source
    from distadmm.methods.sharing.observe import test_metrics

    source = open_source("a9a", clip=None)
    X, y = source.everything(sparse=True)
    X = X.to_scipy()
    X_test, y_test = source.test(sparse=True)
    X_test = X_test.to_scipy()
    parts = Parts({1: X[:, :66], 2: X[:, 66:]}, {}, y, {}, None, y.size)
    problem = admm.Problem(Logistic(), 1.0, intercept=True)
    bounds = dict.fromkeys((1, 2), Bounds(math.sqrt(6), 1.0, 0.25, nonnegative=True))
    agreed = private.Agreement("v1", bounds, mu_at(1.0, 1e-5), 1)
    found = []
    for seed in range(5):
        star = Star(parties=2, party_one_is_centre=True)
        trained = private.train(star, parts, problem, agreed, {2: _releases(2, seed)})
        score = X_test[:, :66] @ trained.x[1] + X_test[:, 66:] @ trained.x[2] + trained.b
        found.append(test_metrics(Logistic(), score, y_test)[0])
    alone = test_metrics(Logistic(), X_test[:, :66] @ trained.x[1] + trained.b, y_test)[0]
    assert np.mean(found) <= 0.327
    assert max(found) < alone - 0.02


def test_labels_are_claimed_to_be_protected_under_the_logistic_loss_alone() -> None:
    """Slope at most 1 and curvature at most 1/4 are not enough: the two labels' slopes may be further than 1 apart."""
    wide, flat = HuberHinge(2.0), np.full((3, 1), 1e-3)
    assert (wide.max_slope, wide.max_curvature) == (1.0, 0.25)
    labels = np.array([[1.0, 1.0, -1.0], [-1.0, 1.0, -1.0]])
    moved = [private.own_slopes(Rows(flat, Bounds(1.0, 1.0, 0.25)), y, wide, 10.0)[1] for y in labels]
    assert np.linalg.norm(moved[0] - moved[1]) > 1.4 > private.slope_sensitivity("label", 1.0, 10.0)
    star = Star(World(), 2, party_one_is_centre=True)
    parts = split(star, (), (np.hstack([flat, flat]), labels[0]), None, ("a", "b"))
    for loss, protect, bounded in (
        (Logistic(), "label", True),
        (wide, "label", False),
        (wide, "record", True),
    ):
        options = PrivacyOptions(epsilon=2.0, mechanism="v2", protect=protect, rng="simulation")
        claim = price.moments_price(star, options, parts, loss).accounts[1].claim
        assert ("bounded-curvature" in claim["verified"]) is bounded
