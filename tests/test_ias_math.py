"""The mapping problem's building blocks against brute force, differences and other solvers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from distadmm.errors import InputError
from distadmm.methods.ias import envelope, interior, measures
from distadmm.methods.ias.admm import _row_by_bisection, solve_marginal, solve_row
from distadmm.methods.ias.ga import project_euclidean
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.measures import MEASURES, own
from distadmm.methods.ias.objective import Objective, marginals, project_entropic
from distadmm.methods.ias.polish import join, kinds, polish, posteriors

NAMES = sorted(MEASURES)
seeds = st.integers(0, 10**6)


def random_problem(rng, S: int = 3, Y: int = 5) -> Inference:
    return Inference(rng.dirichlet(np.ones(S)), rng.dirichlet(np.ones(Y), size=S))


def random_case(seed: int, name: str, S: int = 3, Y: int = 5, K: int = 4):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, S, Y)
    return (
        rng,
        Objective(problem, MEASURES[name], float(rng.uniform(0.1, 2))),
        rng.dirichlet(np.ones(K), size=Y),
    )


@pytest.mark.parametrize("name", NAMES)
def test_measures_are_what_they_say(name):
    m, t = MEASURES[name], np.logspace(-3, 3, 61)
    assert m.f(np.array(1.0)) == pytest.approx(0, abs=1e-15)
    assert m.f1(t) == pytest.approx((m.f(t * 1.00001) - m.f(t * 0.99999)) / (2e-5 * t), rel=1e-5, abs=1e-9)
    assert m.f2(t) == pytest.approx((m.f1(t * 1.00001) - m.f1(t * 0.99999)) / (2e-5 * t), rel=1e-5)
    assert m.h(t) == pytest.approx(m.f(t) - t * m.f1(t), rel=1e-9, abs=1e-11)
    assert m.star(t) == pytest.approx(t * m.f(1 / t), rel=1e-9, abs=1e-12)
    assert (t * t * m.f2(t)).max() <= m.curvature_bound * (1 + 1e-12)
    assert own(name, m.f, m.f1, m.f2).curvature_at_one == m.curvature_at_one


@pytest.mark.parametrize("name", NAMES)
def test_the_inverse_slope_is_the_conjugate(name):
    """sup_s k s - f°(s), by the closed form, by the numerical inversion, and on a fine grid of s."""
    m = MEASURES[name]
    s_max = np.array(50.0)
    k = np.linspace(float(m.h(np.array(1e3))), float(m.h(1 / s_max)), 30)
    closed, numerical = m.density(k, s_max), own(name, m.f, m.f1, m.f2).density(k, s_max)
    grid = np.concatenate([[0.0], np.logspace(-6, np.log10(50), 40_001)])
    best = (k[:, None] * grid - m.star(grid)).max(1)
    assert closed.value == pytest.approx(best, abs=1e-6)
    assert closed.s == pytest.approx(numerical.s, rel=1e-6, abs=1e-9)
    assert closed.value == pytest.approx(numerical.value, abs=1e-9)
    inside = closed.s[1:-1] > 1e-8
    assert closed.rate[1:-1][inside] == pytest.approx(numerical.rate[1:-1][inside], rel=1e-5)


@settings(deadline=None, max_examples=15)
@given(seeds, st.sampled_from(NAMES))
def test_the_objective_by_its_definition(seed, name):
    _, objective, P = random_case(seed, name)
    problem, f = objective.problem, objective.measure.f
    p_sy, p_y = problem.joint, problem.P_Y
    p_u = [sum(p_y[y] * P[y, u] for y in range(5)) for u in range(4)]
    I = sum(
        (j := sum(p_sy[s, y] * P[y, u] for y in range(5))) * np.log(j / (problem.P_S[s] * p_u[u]))
        for s in range(3)
        for u in range(4)
    )
    E = sum(p_y[y] * P[y, u] * f(p_u[u] / P[y, u]) for y in range(5) for u in range(4))
    value = objective(P)
    assert max(abs(value.I - I), abs(value.E - E)) < 1e-12
    assert abs(value.F - (I - objective.beta * E)) < 1e-12
    assert value.I <= problem.I_SY + 1e-12
    mass, q = posteriors(objective, P)
    assert mass @ envelope.psi(objective, q) == pytest.approx(float(value.F), abs=1e-12)


@settings(deadline=None, max_examples=15)
@given(seeds, st.sampled_from(NAMES))
def test_the_gradient_by_differences(seed, name):
    _, objective, P = random_case(seed, name)
    gradient = objective.problem.P_Y[:, None] * objective(P).g
    for y, u in ((0, 0), (2, 3), (4, 1)):
        step = np.zeros_like(P)
        step[y, u] = 1e-5 * P[y, u]
        seen = (objective(P + step).F - objective(P - step).F) / (2 * step[y, u])
        assert gradient[y, u] == pytest.approx(float(seen), rel=1e-5, abs=1e-6)


@settings(deadline=None, max_examples=20)
@given(seeds, st.sampled_from(NAMES))
def test_problem_10_is_jointly_concave(seed, name):
    """(P_{U|Y}, P_U) -> F at fixed P_{S|U}: never below the chord, though the paper calls it non-convex."""
    rng, objective, P = random_case(seed, name)
    p, f = objective.problem.P_Y[:, None], objective.measure.f
    D = rng.random(P.shape)

    def F3(P, a):
        return -(p * P * (D + objective.beta * f(a / P))).sum()

    ends = [(rng.dirichlet(np.ones(4), size=5), rng.dirichlet(np.ones(4))) for _ in range(2)]
    middle = F3(*(0.5 * (x + y) for x, y in zip(*ends)))
    assert middle >= 0.5 * (F3(*ends[0]) + F3(*ends[1])) - 1e-12


@settings(deadline=None, max_examples=25)
@given(seeds, st.integers(1, 7), st.floats(1e-12, 1.0))
def test_projections_are_the_nearest_points(seed, K, share):
    """Optimality conditions of both projections, with eps anywhere up to 1/K."""
    rng, eps = np.random.default_rng(seed), share / K
    P = rng.random((3, 2, K)) ** 3 + 1e-12
    entropic, euclidean = project_entropic(P, eps), project_euclidean(P, eps)
    for x in (entropic, euclidean):
        assert np.abs(x.sum(-1) - 1).max() < 1e-12
        assert x.min() >= eps * (1 - 1e-12)
    for x, slope in ((entropic, np.log(entropic / P)), (euclidean, euclidean - P)):
        free = x > eps * (1 + 1e-9)
        level = np.where(free, slope, -np.inf).max(-1, keepdims=True)
        assert (np.where(free, np.abs(slope - level), 0) < 1e-6).all()
        assert (np.where(free, 0, np.where(np.isfinite(level), level - slope, 0)) < 1e-6).all()


@settings(deadline=None, max_examples=8)
@given(seeds, st.sampled_from(NAMES), st.sampled_from([1e-12, 1e-4, 0.05]))
def test_rows_of_algorithm_1_meet_their_conditions(seed, name, eps):
    rng, m = np.random.default_rng(seed), MEASURES[name]
    K, beta, rho, w = 6, 0.6, 1.0, 0.2
    a, drift = rng.dirichlet(np.ones(K), size=4), rng.normal(size=(4, K))
    pull = np.full(1, rho * w)
    x = solve_row(m, beta, a, drift, pull, eps, np.full((4, K), 1 / K))
    assert np.abs(x.sum(-1) - 1).max() < 1e-12
    assert x.min() >= eps
    slow = _row_by_bisection(m, beta, a, drift, pull, eps, K)
    assert x == pytest.approx(slow, abs=1e-8)
    G = drift - beta * m.h(a / x) - pull * x
    level = np.where(x > eps, G, -np.inf).max(-1, keepdims=True)
    assert (np.where(x > eps, np.abs(G - level), 0) < 1e-6 * np.abs(G).max()).all()
    assert (np.where(x > eps, 0, G - level) <= 1e-9).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_by_another_solver(name):
    rng, m = np.random.default_rng(4), MEASURES[name]
    a, drift, eps = rng.dirichlet(np.ones(5)), rng.normal(size=5), 1e-3
    x = solve_row(m, 0.6, a, drift, np.array(0.2), eps, np.full(5, 0.2))

    def negative(z):
        return -(drift @ z - 0.6 * (z * m.f(a / z)).sum() - 0.1 * (z @ z))

    other = minimize(
        negative,
        np.full(5, 0.2),
        method="SLSQP",
        bounds=[(eps, 1)] * 5,
        constraints={"type": "eq", "fun": lambda z: z.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert negative(x) <= other.fun + 1e-9
    assert x == pytest.approx(other.x, abs=1e-4)


@settings(deadline=None, max_examples=20)
@given(seeds, st.sampled_from(NAMES))
def test_the_marginal_of_algorithm_1_is_the_root(seed, name):
    rng, m = np.random.default_rng(seed), MEASURES[name]
    p, P = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(5), size=4)
    lam, rho, mean = 0.3 * rng.normal(size=5), 1.0, rng.dirichlet(np.ones(5))
    a = solve_marginal(m, 0.6, p, P, lam, rho, mean, p @ P)
    slope = -0.6 * (p @ m.f1(a / P)) + lam - rho * (a - mean)
    assert (a > 0).all()
    if name == "lc":  # f'(0+) = -3/2 is finite: where even that does not pull up, p(u) ends at the bracket
        held = a < 1e-20
        assert (slope[held] <= 0).all()
        slope = slope[~held]
    assert np.abs(slope).max(initial=0) < 1e-9


def test_newton_steps_agree_with_another_solver():
    """The local optimum by SLSQP from the point that the Newton steps reached, and from their start."""
    problem = stand_in("binom")
    for name in NAMES:
        objective = Objective(problem, MEASURES[name], 0.3)
        start = np.random.default_rng(1).dirichlet(np.ones(4), size=10)
        found = interior.climb(objective, start, 1e-6)

        def negative(x, objective=objective):
            value = objective(x.reshape(10, 4))
            return -float(value.F), -(objective.problem.P_Y[:, None] * value.g).ravel()

        other = minimize(
            negative,
            found.P.ravel(),
            jac=True,
            method="SLSQP",
            bounds=[(1e-6, 1)] * 40,
            constraints={"type": "eq", "fun": lambda x: x.reshape(10, 4).sum(1) - 1},
            options={"ftol": 1e-13, "maxiter": 200},
        )
        assert -other.fun == pytest.approx(found.F, abs=1e-8)
        assert found.F > objective(start).F
        assert np.abs(found.P.sum(1) - 1).max() < 1e-12
        # the multipliers a: no used column prices above them
        value = objective(found.P)
        slack = problem.P_Y[:, None] * (found.a[:, None] - value.g)
        assert slack.min() > -1e-5
        assert np.abs(slack[found.P > 1e-3]).max() < 1e-5


@settings(deadline=None, max_examples=10)
@given(seeds, st.sampled_from(NAMES))
def test_equal_posteriors_are_worth_no_more_than_their_sum(seed, name):
    rng, objective, P = random_case(seed, name)
    split = rng.uniform(0.2, 0.8)
    doubled = np.hstack([P[:, :3], split * P[:, 3:], (1 - split) * P[:, 3:]])
    assert abs(objective(doubled).F - objective(P).F) < 1e-12
    assert kinds(objective, doubled, 1e-6).shape[1] == 4
    # joining the equal ones is open to it, so the best pair loses nothing
    assert float(objective(join(objective, doubled)).F - objective(P).F) >= -1e-12


@pytest.mark.parametrize("eps", [1e-12, 1e-4, 0.02, 0.25])
@pytest.mark.parametrize("name", NAMES)
def test_polishing_never_loses_and_stays_feasible(name, eps):
    objective = Objective(stand_in("gauss"), MEASURES[name], 0.5)
    start = project_entropic(np.random.default_rng(3).dirichlet(np.full(4, 0.2), size=10), eps)
    found = polish(objective, start, eps)
    assert found.F >= objective(start).F
    assert found.P.min() >= eps * (1 - 1e-9)
    assert np.abs(found.P.sum(1) - 1).max() < 1e-12


def test_marginals_are_those_of_bayes():
    problem = stand_in("sharp")
    P = np.random.default_rng(0).dirichlet(np.ones(3), size=10)
    a, P_SU = marginals(problem, P)
    assert a.sum() == pytest.approx(1)
    assert P_SU.sum(0) == pytest.approx(np.ones(3))
    assert P_SU @ a == pytest.approx(problem.P_S)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((lambda t: -(t**2) + 1, lambda t: -2 * t, lambda t: -2 + 0 * t), "strictly convex"),
        ((lambda t: t**2, lambda t: 2 * t, lambda t: 2 + 0 * t), "subtract that constant"),
        ((lambda t: t - 1, lambda t: 1 + 0 * t, lambda t: 0 * t), "strictly convex"),
        ((lambda t: (t - 1) ** 2, lambda t: t - 1, lambda t: 2 + 0 * t), "true derivative"),
        ((lambda t: (t - 1) ** 2, lambda t: 2 * (t - 1), lambda t: 3 + 0 * t), "true derivative"),
        ((lambda t: np.log(t - 1), lambda t: 1 / (t - 1), lambda t: 1 / t), "not finite"),
        ((lambda t: 0.0, lambda t: 0.0, lambda t: 1.0), "shape"),
        ((lambda t: {}[t], lambda t: t, lambda t: t), "cannot be computed"),
    ],
)
def test_a_measure_that_is_none_is_refused(parts, told):
    with pytest.raises(InputError, match=told) as caught:
        own("mine", *parts)
    assert "\n" not in str(caught.value)


def test_a_measure_from_a_file(tmp_path):
    path = tmp_path / "chi2.py"
    path.write_text("def f(t): return (t - 1)**2\ndef f1(t): return 2*(t - 1)\ndef f2(t): return 2 + 0*t\n")
    found = measures.measure(str(path))
    assert found.name == "chi2"
    assert found.curvature_at_one == 2
    path.write_text("f = f1 = lambda t: t\n")
    with pytest.raises(InputError, match="defines no f2"):
        measures.measure(str(path))
    path.write_text("1/0\n")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        measures.measure(str(path))
    with pytest.raises(InputError, match="cannot read"):
        measures.measure(str(tmp_path / "absent.py"))
    with pytest.raises(InputError, match="choose one of"):
        measures.measure("kl")
