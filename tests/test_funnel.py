"""The privacy funnel: agreement between methods, closed forms, brute force and proofs."""

from itertools import combinations, islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from distadmm import funnel
from distadmm.methods.funnel import (
    aem,
    bound,
    curve,
    dc,
    drs,
    greedy,
    literal,
    lp,
    nlp,
    perfect,
    starts,
    submodular,
)
from distadmm.methods.funnel.model import Joint, entropy, from_joint, informations, log0
from distadmm.methods.funnel.perfect import Polytope
from distadmm.methods.funnel.solvers import METHODS, Effort

UNIF = funnel.problem("synthetic-unif")
HEART = funnel.problem("heart")


@st.composite
def joints(draw, most=5):
    """Small joint distributions, some with zeros."""
    K, M = draw(st.integers(2, 3)), draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    S = rng.dirichlet(np.full(K, draw(st.sampled_from([0.3, 1.0, 5.0]))), M).T
    if draw(st.booleans()):
        S[0, 0] = 0
        S[:, 0] = S[:, 0] / S[:, 0].sum() if S[:, 0].sum() > 0 else np.eye(K)[1]
    return Joint(S, rng.dirichlet(np.ones(M)) * 0.9 + 0.1 / M)


rates = st.floats(0.05, 0.97)
seeds = st.integers(0, 2**32 - 1)
few = settings(deadline=None, max_examples=15)


# The iteration


@few
@given(joints(), rates, seeds)
def test_aem_never_rises_and_stays_feasible(joint, share, seed):
    R = share * joint.HX
    state = aem.start(joint, starts.feasible(joint, R, joint.M + 1, seed, range(3)))
    assert (state.told >= R - 1e-12).all()
    for _ in range(25):
        new = aem.step(joint, state, R)
        assert (new.leak <= state.leak + 1e-11).all()
        assert (new.told >= R - 1e-10).all()
        assert (new.Lambda >= 0).all()
        state = new
    for v, leak, told in zip(aem.channels(joint, state), state.leak, state.told):
        assert np.abs(v.sum(axis=1) - 1).max() < 1e-12
        assert informations(joint, v) == pytest.approx((leak, told), abs=1e-10)


@few
@given(joints(), rates, seeds)
def test_aem_is_the_papers_iteration_with_its_tensor(joint, share, seed):
    """Without zeros, one pass of the printed loop and one step agree (while Lambda > 0)."""
    R, rng = share * joint.HX, np.random.default_rng(seed)
    joint = Joint(0.9 * joint.S + 0.1 / joint.K, joint.p)
    v = starts.feasible(joint, R, joint.M + 1, int(rng.integers(1000)), range(1))
    v = 0.999 * v + 0.001 / v.shape[2]
    state = aem.start(joint, v)
    u = joint.p[:, None] * v[0]
    r = u.sum(axis=0)
    new = aem.step(joint, state, R)
    if new.Lambda[0] == 0 or state.told[0] < R:
        return
    tensor_u, tensor_w, _, Lambda = literal.iteration(joint, u, u / r, r, R)
    if not np.isfinite(Lambda):  # the printed Newton iteration is not safeguarded
        return
    assert Lambda == pytest.approx(new.Lambda[0], abs=1e-7)
    np.testing.assert_allclose(np.exp(new.logu[0]), tensor_u, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.exp(new.logw[0]), tensor_w, rtol=0, atol=1e-7)


@few
@given(joints(), rates, seeds)
def test_longer_steps_up_to_the_contraction_never_rise(joint, share, seed):
    R = share * joint.HX
    omega = 1 / max(bound.dobrushin(joint), 1e-3)
    state = aem.start(joint, starts.feasible(joint, R, joint.M + 1, seed, range(2)))
    for _ in range(15):
        new = aem.step(joint, state, R, omega)
        assert (new.leak <= state.leak + 1e-10).all()
        state = new


@few
@given(joints(), rates, seeds)
def test_adaptive_steps_never_rise(joint, share, seed):
    R = share * joint.HX
    v = starts.feasible(joint, R, joint.M + 1, seed, range(2))
    for before, state in pairwise(islice(starts.iterate(joint, v, R, faster=True), 21)):
        assert (state.leak <= before.leak + 1e-11).all()
        assert (state.told >= R - 1e-10).all()


@few
@given(joints(), st.floats(0.0, 0.999), seeds)
def test_starts_are_feasible_channels(joint, share, seed):
    v = starts.feasible(joint, share * joint.HX, joint.M + 2, seed, range(4))
    assert np.abs(v.sum(axis=2) - 1).max() < 1e-12
    assert (starts.disclosure(joint, v) >= share * joint.HX - 1e-12).all()
    alone = starts.feasible(joint, share * joint.HX, joint.M + 2, seed, range(2, 3))
    np.testing.assert_allclose(v[2:3], alone, rtol=0, atol=1e-12)


# The printed form


def test_as_printed_fails_in_the_first_iteration():
    for N in (4, 3):
        outcome = literal.as_printed(UNIF, 0.5, N, 10)
        assert outcome.iteration == 1
        assert np.isnan(outcome.value)


def test_printed_start_depends_on_its_floor():
    joint = funnel.problem("synthetic-nonunif")
    values = {floor: literal.with_floor(joint, 0.5, 4, floor, 500).value for floor in (1e-12, 1e-100)}
    # the values of the reference implementation: one symmetric start, two basins
    assert values[1e-12] == pytest.approx(0.15348, abs=1e-5)
    assert values[1e-100] == pytest.approx(0.15277, abs=1e-5)


# Optimal values


def test_revealing_x_when_all_of_it_is_asked():
    one = funnel.solve(UNIF, UNIF.HX)
    assert one.leakage == one.lower == pytest.approx(UNIF.ISX)
    assert informations(UNIF, one.v)[1] == pytest.approx(UNIF.HX)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reveals_x_at_the_end_and_obeys_r(method):
    effort = Effort(restarts=3, iterations=60, repeats=1)
    found = funnel.curve(UNIF, [0.3, 0.7, UNIF.HX], method, effort=effort)
    for one in found:
        leak, told = informations(UNIF, one.v)
        assert told >= one.R - 1e-9
        assert leak == pytest.approx(one.leakage, abs=1e-12)
        assert one.lower <= leak
    assert found[-1].leakage == pytest.approx(UNIF.ISX)


@pytest.mark.parametrize("method", METHODS)
def test_degenerate_problems(method):
    """X constant; nothing asked for; a zero in every row and column."""
    effort = Effort(restarts=2, iterations=20, repeats=1)
    constant = Joint(np.array([[0.4], [0.6]]), np.ones(1))
    assert funnel.solve(constant, 0.0, method, effort=effort).leakage == 0
    holes = funnel.from_joint(np.array([[4, 0, 3], [0, 5, 2]]))
    nothing, half = funnel.curve(holes, [0.0, 0.5 * holes.HX], method, effort=effort)
    assert nothing.leakage < 1e-2
    assert half.disclosure >= half.R - 1e-9
    assert np.isfinite(half.v).all()


def test_telling_x_is_telling_s_when_they_are_one():
    """S = X: I(S;Y) = I(X;Y), so the least leakage is R itself."""
    joint = Joint(np.eye(3), np.array([0.1, 0.3, 0.6]))
    for one in funnel.curve(joint, [0.2, 0.7], effort=Effort(repeats=1)):
        assert one.leakage == pytest.approx(one.R, abs=1e-9)
        assert one.lower == pytest.approx(one.R, abs=2e-6)


def test_nothing_leaks_when_s_is_independent():
    joint = Joint(np.tile([[0.3], [0.7]], 5), np.full(5, 0.2))
    assert pytest.approx(joint.HX) == funnel.perfect_privacy(joint).R0
    assert funnel.solve(joint, 0.9 * joint.HX).leakage < 1e-12


@few
@given(st.integers(2, 3), st.integers(2, 4), seeds)
def test_perfect_privacy_of_independent_parts(a, b, seed):
    """X = (A, B) with B independent of S = A: everything of B can be told, and nothing more."""
    rng = np.random.default_rng(seed)
    pA, pB = rng.dirichlet(np.full(a, 5.0)), rng.dirichlet(np.full(b, 5.0))
    joint = from_joint(np.einsum("sa,a,b->sab", np.eye(a), pA, pB).reshape(a, a * b))
    known = perfect.solve(joint)
    assert known.exact
    assert pytest.approx(float(entropy(pB)), abs=1e-9) == known.R0
    assert informations(joint, known.v)[0] < 1e-12


def test_searched_vertices_reach_the_enumerated_optimum():
    polytope = Polytope(HEART)
    exact = perfect.solve(HEART)
    _, w = perfect._generate(HEART, polytope, np.random.default_rng(1))
    np.testing.assert_allclose(HEART.S @ w, np.repeat(HEART.pS[:, None], w.shape[1], axis=1), atol=1e-10)
    r, _ = perfect._mixture(w, entropy(w), HEART.p)
    assert HEART.HX - r @ entropy(w) == pytest.approx(exact.R0, abs=1e-4)


@settings(deadline=None, max_examples=10)
@given(joints(most=3), st.floats(0.1, 0.95))
def test_lp_is_between_its_proof_and_slsqp(joint, share):
    R = share * joint.HX
    one = funnel.solve(joint, R, effort=Effort(repeats=1))
    assert one.leakage - one.lower < 2e-6
    # SLSQP may end in a local optimum, never below the proof
    v, _, _ = nlp.run(joint, R, joint.M + 1, 0, 0, 200)
    leak, told = informations(joint, v)
    assert leak >= one.lower - 1e-9 or told < R


def test_lp_beats_a_grid_of_posteriors():
    """X with two symbols: a linear program over a fine grid of all posteriors is nearly exact."""
    joint = Joint(np.array([[0.8, 0.3], [0.2, 0.7]]), np.array([0.4, 0.6]))
    grid = np.linspace(0, 1, 4001)
    columns = lp.pool(joint, np.stack([grid, 1 - grid]))
    for one in funnel.curve(joint, [0.1, 0.3, 0.6], effort=Effort(repeats=1)):
        fine = lp.solve(joint, columns, one.R).value
        assert one.leakage <= fine + 1e-9
        assert one.leakage == pytest.approx(fine, abs=1e-5)


def labellings(M: int, used: int = 0):
    """Every deterministic mapping of M symbols, up to the names of what they become."""
    if M == 0:
        yield ()
    for k in range(used + 1) if M else ():
        for rest in labellings(M - 1, max(used, k + 1)):
            yield (k, *rest)


def told(J: np.ndarray) -> float:
    """The mutual information of a table, by its definition."""
    apart = np.outer(J.sum(axis=1), J.sum(axis=0))
    return float(np.sum(J[J > 0] * np.log(J[J > 0] / apart[J > 0])))


@settings(deadline=None, max_examples=12)
@given(
    joints(most=4),
    st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]),
    st.sampled_from(["no", "equal", "rare", "all but equal"]),
)
def test_brute_force_finds_nothing_better_and_nothing_below_the_proof(joint, share, odd):
    """Every deterministic mapping, and scipy's program over a grid of posteriors, which knows nothing of the method."""
    S, p = joint.S.copy(), joint.p.copy()
    if odd in ("equal", "all but equal"):
        S[:, 1] = S[:, 0] + (1e-7 * (np.eye(joint.K)[0] - S[:, 0]) if odd != "equal" else 0)
    if odd == "rare":
        p[0] *= 1e-5
    joint = Joint(S, p / p.sum())
    J, R = joint.S * joint.p, share * joint.HX
    found = funnel.solve(joint, R, effort=Effort(repeats=1))
    assert told(joint.p[:, None] * found.v) >= R - 1e-8
    assert told(J @ found.v) == pytest.approx(found.leakage, abs=1e-8)
    leaks = []
    for names in labellings(joint.M):
        V = np.eye(joint.M)[list(names)]
        if told(joint.p[:, None] * V) >= R - 1e-12:
            leaks.append(told(J @ V))
    fine = {2: 200, 3: 24, 4: 10}[joint.M]
    cuts = np.array(list(combinations(range(fine + joint.M - 1), joint.M - 1)))
    edges = np.hstack([np.full((len(cuts), 1), -1), cuts, np.full((len(cuts), 1), fine + joint.M - 1)])
    grid = np.column_stack([(np.diff(edges, axis=1).T - 1) / fine, joint.p])
    by_grid = linprog(
        -entropy(joint.S @ grid), [entropy(grid)], [joint.HX - R], grid, joint.p, method="highs"
    )
    leaks.append(joint.HS + by_grid.fun)
    assert found.leakage <= min(leaks) + 1e-7
    assert found.lower <= min(leaks) + 1e-9


def test_curve_is_convex_and_rises():
    R = UNIF.HX * np.arange(1, 13) / 12
    leak = np.array([one.leakage for one in funnel.curve(UNIF, R, effort=Effort(repeats=1), certify=False)])
    assert (np.diff(leak) > 0).all()
    assert (np.diff(leak, 2) > -1e-9).all()


def test_heart_is_solved_to_a_proven_optimum():
    one = funnel.solve(HEART, 0.7 * HEART.HX, effort=Effort(repeats=1))
    assert 0 < one.leakage - one.lower < 2e-6
    assert one.v.shape[1] <= HEART.M + 1


def test_binary_secret_of_many_values_is_solved_to_a_proven_optimum():
    rng = np.random.default_rng(5)
    joint = Joint(rng.dirichlet(np.ones(2), 40).T, rng.dirichlet(np.ones(40)))
    one = funnel.solve(joint, 0.9 * joint.HX, effort=Effort(repeats=1))
    assert one.leakage - one.lower < 2e-6


def test_a_poor_program_is_completed_by_its_certificate():
    """Three rounds are not enough; what the proof finds missing is added until the proof succeeds."""
    R, known = 0.8 * HEART.HX, perfect.solve(HEART)
    poor = lp.run(HEART, R, known, 0, 0, lp.Effort(rounds=3))
    assert bound.certify(HEART, poor.at.alpha, poor.at.slope, 1e-6, cells=100_000).missed.size
    done, certificate = curve.proved(HEART, known, Effort(), (R, poor))
    assert certificate.settled
    assert done.at.value < poor.at.value
    low = bound.lower(HEART, R, done.at.alpha, done.at.slope, certificate.excess)
    assert done.at.value - low < 2e-6


# Bounds


@few
@given(joints(), seeds, st.floats(0.0, 1.5))
def test_certificate_bounds_every_posterior_for_any_multipliers(joint, seed, slope):
    rng = np.random.default_rng(seed)
    alpha = rng.normal(size=joint.M)
    proof = bound.certify(joint, alpha, slope, 1e-3, cells=20_000)
    w = np.concatenate([rng.dirichlet(np.full(joint.M, c), 200).T for c in (0.05, 0.3, 1.0)], axis=1)
    at = lp.Optimum(np.zeros(0), alpha, slope, 0.0)
    climbed, _ = lp.ascend(joint, w[:, ::10], at, 30)
    highest = max(lp.reduced(lp.pool(joint, x), at).max() for x in (w, climbed, np.eye(joint.M)))
    assert highest <= proof.excess


def test_columns_that_are_all_but_equal_are_certified():
    """Of rank 1 to rounding, and a face of one symbol has no edge to cut."""
    joint = Joint(np.array([[0.0, 5.7e-11], [1.0, 1.0]]), np.array([0.269, 0.731]))
    for seed in range(5):
        alpha = np.random.default_rng(seed).normal(size=2)
        proof = bound.certify(joint, alpha, 0.0, 1e-3, cells=20_000)
        assert max(-alpha) <= proof.excess


@few
@given(joints(), seeds)
def test_bounds_hold_for_every_channel(joint, seed):
    rng = np.random.default_rng(seed)
    v = rng.dirichlet(np.full(joint.M + 1, rng.choice([0.05, 0.5])), joint.M)
    leak, told = informations(joint, v)
    assert bound.contraction_bound(joint, told) <= leak + 1e-12
    known = perfect.solve(joint)
    if not known.R0 < told < 0.999 * joint.HX:
        return
    at = lp.run(joint, told, known, 0, 0, lp.Effort(rounds=2)).at
    excess = bound.certify(joint, at.alpha, at.slope, 1e-5, cells=30_000).excess
    assert bound.lower(joint, told, at.alpha, at.slope, excess) <= leak + 1e-12


def test_ascent_of_reduced_cost_is_monotone():
    rng = np.random.default_rng(0)
    at = lp.Optimum(np.zeros(0), rng.normal(size=16) * 0.1, 0.1, 0.0)
    w = rng.dirichlet(np.ones(16), 30).T
    before = lp.reduced(lp.pool(HEART, w), at)
    for iterations in (1, 5, 20):
        after, g = lp.ascend(HEART, w, at, iterations)
        assert (g >= before - 1e-12).all()
        np.testing.assert_allclose(lp.reduced(lp.pool(HEART, after), at), g, atol=1e-9)
        before = g


# The baselines


@few
@given(joints())
def test_greedy_merges_the_best_feasible_pair_first(joint):
    """With room for one merger only, the result is the best of all channels that merge one pair."""
    pairs = []
    for a, b in combinations(range(joint.M), 2):
        v = np.eye(joint.M)
        v[b, [a, b]] = 1, 0
        pairs.append((*informations(joint, v), (a, b)))
    R = max(told for _, told, _ in pairs)
    v = greedy.cluster(joint, R)
    leak, told = informations(joint, v)
    assert told >= R - 1e-12
    if v.shape[1] == joint.M - 1:
        assert leak == pytest.approx(min(pair[0] for pair in pairs if pair[1] >= R - 1e-12), abs=1e-12)


@few
@given(joints(), st.floats(0.01, 0.99), seeds)
def test_modular_bounds_are_bounds_and_tight(joint, mu, seed):
    rng = np.random.default_rng(seed)
    T, r, M = joint.S * joint.p, joint.p, joint.M
    masks = np.array([[bool(k >> i & 1) for i in range(M)] for k in range(1, 2**M)])
    W = masks[rng.integers(len(masks))]
    lower = submodular._lower(T, W)

    def B(mask):
        return -sum(float(greedy.f(x)) for x in T[:, mask].sum(axis=1))

    def A(mask):
        return submodular.change(T, r, mask, mu) + B(mask)

    assert lower[W].sum() == pytest.approx(B(W), abs=1e-12)
    for which in (1, 2):
        upper = submodular._upper(T, r, mu, W, which)
        offset = A(W) - upper[W].sum()
        for mask in masks:
            assert lower[mask].sum() <= B(mask) + 1e-12
            assert upper[mask].sum() + offset >= A(mask) - 1e-12


@few
@given(joints(), st.floats(0.01, 0.99))
def test_submodular_merger_is_no_worse_than_the_best_pair(joint, mu):
    T, r, M = joint.S * joint.p, joint.p, joint.M
    masks = [np.array([bool(k >> i & 1) for i in range(M)]) for k in range(1, 2**M)]
    values = {tuple(mask): submodular.change(T, r, mask, mu) for mask in masks if mask.sum() >= 2}
    found = submodular.change(T, r, submodular.merge_set(T, r, mu), mu)
    assert min(0.0, *values.values()) - 1e-12 <= found
    assert found <= min(value for mask, value in values.items() if sum(mask) == 2) + 1e-12
    # the change is that of the Lagrangian
    mask = np.array(min(values, key=values.get))
    merged = np.column_stack([np.eye(M)[:, ~mask], mask.astype(float)])
    leak, told = informations(joint, merged)
    assert leak - mu * told - (joint.ISX - mu * joint.HX) == pytest.approx(min(values.values()), abs=1e-10)


def lagrangian(joint, a, q, nu, beta, penalty):
    """L of `drs`, up to a constant."""
    r, error = joint.p @ q, a - drs.inverse(joint) @ q
    entropies = (beta - 1) * entropy(r) - beta * joint.pS @ entropy(a, axis=1) + joint.p @ entropy(q, axis=1)
    return float(entropies + (nu * error).sum() + penalty / 2 * (error**2).sum())


def test_drs_follows_the_gradients_of_its_lagrangian():
    rng = np.random.default_rng(3)
    a, q = rng.dirichlet(np.ones(4), 3), rng.dirichlet(np.ones(4), 3)
    nu, beta, penalty, h = rng.normal(size=(3, 4)), 2.5, 16.0, 1e-6
    b = np.array([beta])[:, None, None]
    exact = {
        "a": drs.gradient_a(UNIF, a[None], q[None], nu[None], b, penalty)[0],
        "q": drs.gradient_q(UNIF, a[None], q[None], nu[None], b, penalty)[0],
    }
    for name, gradient in exact.items():
        for index in np.ndindex(3, 4):
            shift = np.zeros((3, 4))
            shift[index] = h
            up = lagrangian(UNIF, *((a + shift, q) if name == "a" else (a, q + shift)), nu, beta, penalty)
            down = lagrangian(UNIF, *((a - shift, q) if name == "a" else (a, q - shift)), nu, beta, penalty)
            assert gradient[index] == pytest.approx((up - down) / (2 * h), abs=1e-5)


def test_drs_keeps_probabilities():
    for variant in (0, 1):
        v, _, _ = drs.end_points(UNIF, 4, 0, variant, 50)
        assert (v >= 0).all()
        assert np.abs(v.sum(axis=2) - 1).max() < 1e-12


@pytest.mark.parametrize("beta", [0.0, 0.2, 0.9, 1.0, 3.0])
def test_a_dc_step_lowers_the_lagrangian_by_the_divergence_of_what_moved(beta: float) -> None:
    rng, b = np.random.default_rng(4), np.array([beta])
    for joint in (UNIF, Joint(rng.dirichlet(np.ones(3), 6).T, rng.dirichlet(np.ones(6)))):
        v = rng.dirichlet(np.full(joint.M + 1, 0.4), joint.M)[None]
        leak, told = informations(joint, v[0])
        assert dc.lagrangian(joint, v, b)[0] == pytest.approx(leak - beta * told, abs=1e-12)
        for _ in range(30):
            moved = np.exp(dc.step(joint, np.maximum(log0(v), -700), b))
            apart = joint.p @ (v[0] * (log0(v[0]) - log0(moved[0]))).sum(axis=1)
            assert (dc.lagrangian(joint, v, b) - dc.lagrangian(joint, moved, b))[0] >= apart - 1e-12
            v = moved


def test_runs_that_are_stuck_do_not_change_what_others_find() -> None:
    """Left out of the arithmetic or not: alone or beside others a run ends where it ends."""
    together, n, _ = drs.end_points(UNIF, 4, 0, 3, 400)
    beta = np.repeat(drs.BETAS, drs.STARTS)
    q = drs.first(UNIF, 4, drs.rng_of(0, drs.INDEX + 3), len(beta))
    for b in (0, 40, 100):
        alone, m, near = drs._iterate(UNIF, q[b : b + 1], beta[b : b + 1], *drs.VARIANTS[3], 400)
        if not near[0]:  # a run that has met a = C q goes on while others have not
            assert np.array_equal(alone[0], together[b])
        assert m <= n


def test_nlp_gradients():
    rng, h = np.random.default_rng(4), 1e-6
    v = rng.dirichlet(np.ones(4), 3)
    _, dleak, _, dtold = nlp.gradients(UNIF, v)
    for index in np.ndindex(3, 4):
        shift = np.zeros((3, 4))
        shift[index] = h
        up, down = nlp.gradients(UNIF, v + shift), nlp.gradients(UNIF, v - shift)
        assert dleak[index] == pytest.approx((up[0] - down[0]) / (2 * h), abs=1e-5)
        assert dtold[index] == pytest.approx((up[2] - down[2]) / (2 * h), abs=1e-5)


def test_local_methods_reach_the_proven_optimum_of_an_easy_point():
    R = 0.7 * UNIF.HX
    best = funnel.solve(UNIF, R, effort=Effort(repeats=1))
    for method in ("aem", "aem-adaptive", "nlp"):
        one = funnel.solve(UNIF, R, method, effort=Effort(restarts=12))
        assert best.lower - 1e-9 <= one.leakage <= best.leakage + 1e-4


# Ranks


def _bits(found):
    return [np.concatenate([one.v.ravel(), [one.leakage, one.lower]]) for one in found]


@pytest.mark.mpi(min_size=2, sizes=[2, 3])
def test_same_bits_on_any_number_of_ranks(mpi_ranks, world):
    for method in ("lp", "aem"):
        effort = Effort(restarts=20, iterations=40, repeats=3, programs=8)
        shared = funnel.curve(UNIF, [0.4, 0.8], method, effort=effort, world=world)
        if world.is_root:
            alone = funnel.curve(UNIF, [0.4, 0.8], method, effort=effort)
            for one, other in zip(_bits(shared), _bits(alone)):
                np.testing.assert_array_equal(one, other)
        else:
            assert shared is None


def test_lp_finds_the_same_with_other_seeds():
    R = 0.8 * HEART.HX
    known = perfect.solve(HEART)
    values = [lp.run(HEART, R, known, seed, 0, lp.Effort()).at.value for seed in (0, 1)]
    assert values[0] == pytest.approx(values[1], abs=1e-6)
