"""The methods against each other, against a textbook, and where the paper's claims hold or fail."""

import numpy as np
import pytest

from distadmm import ias
from distadmm.methods.ias import admm, bregman, cccp, ga, gba, interior
from distadmm.methods.ias.admm import inner_loop, told
from distadmm.methods.ias.inference import stand_in
from distadmm.methods.ias.measures import MEASURES
from distadmm.methods.ias.multistart import BATCHED, METHODS, Method, search
from distadmm.methods.ias.objective import Objective, marginals, random_starts
from distadmm.ranks.world import World

GAUSS = stand_in("gauss")
BETAS = {"mi": 0.4, "js": 0.6, "lc": 0.6, "hellinger": 0.6}


@pytest.mark.parametrize("name", ["mi", "js", "lc"])  # no step is proved for Hellinger
def test_gba_never_descends_at_the_proved_step(name):
    objective = Objective(GAUSS, MEASURES[name], BETAS[name])
    P = random_starts(GAUSS, 6, 1e-12, 1, range(4), "uniform")
    history = gba.ascend(objective, P, 1e-12, iterations=60, adaptive=False, tolerance=0, trace=True).history
    assert (np.diff(np.array(history), axis=0) >= -1e-14).all()


@pytest.mark.parametrize("name", sorted(BETAS))
def test_adaptive_gba_never_descends_and_keeps_up_with_the_fixed_step(name):
    objective = Objective(GAUSS, MEASURES[name], BETAS[name])
    P = random_starts(GAUSS, 6, 1e-12, 1, range(4))
    long = gba.ascend(objective, P, 1e-12, iterations=150, tolerance=0, trace=True)
    assert (np.diff(np.array(long.history), axis=0) >= 0).all()
    short = gba.ascend(objective, P, 1e-12, iterations=150, tolerance=0, adaptive=False)
    assert (long.F > objective(P).F).all()
    assert long.F.max() > short.F.max() - 1e-3


def test_mutual_information_is_the_information_bottleneck():
    """A textbook Blahut-Arimoto: p(u|y) ~ p(u) exp(-KL[p(s|y)||p(s|u)]/beta), from the same start."""
    beta, p, A = 0.4, GAUSS.P_Y, GAUSS.A
    P = random_starts(GAUSS, 5, 1e-12, 3, [0])[0]
    fixed = gba.ascend(Objective(GAUSS, MEASURES["mi"], beta), P[None], 1e-12, adaptive=False, iterations=300)
    for _ in range(2000):
        a = p @ P
        P_SU = (A * p) @ P / a
        KL = (A[:, :, None] * np.log(A[:, :, None] / P_SU[:, None, :])).sum(0)
        P = a * np.exp(-KL / beta)
        P /= P.sum(1, keepdims=True)
    own = Objective(GAUSS, MEASURES["mi"], beta)(P).F
    assert fixed.F[0] == pytest.approx(float(own), abs=1e-8)


@pytest.mark.parametrize("name", sorted(BETAS))
def test_gba_cccp_and_admm_end_alike(name):
    objective = Objective(GAUSS, MEASURES[name], BETAS[name])
    P, eps = random_starts(GAUSS, 5, 1e-6, 2, [0], "uniform"), 1e-6
    by_gba = gba.ascend(objective, P, eps, iterations=5000, tolerance=1e-12)
    by_cccp = cccp.ascend(objective, P, eps, trace=True)
    assert (np.diff(np.array(by_cccp.history)[:, 0]) >= 0).all()
    by_admm = admm.run(objective, P[0], eps, inner=20, outer=12)
    assert by_cccp.F[0] == pytest.approx(by_gba.F[0], abs=2e-4)
    assert objective(by_admm.state.P).F[0] == pytest.approx(by_cccp.F[0], abs=2e-3)


def test_euclidean_ascent_ends_where_gba_does_with_a_good_step():
    objective = Objective(GAUSS, MEASURES["lc"], 0.6)
    P = random_starts(GAUSS, 11, 1e-6, 0, [0], "uniform")
    by_ga = ga.ascend(objective, P, 1e-6, alpha=0.5, iterations=3000, tolerance=0)
    assert by_ga.F[0] == pytest.approx(ias.solve(GAUSS, "lc", 0.6, 11, eps=1e-6).F, abs=3e-4)
    wrong = ga.ascend(objective, P, 1e-6, alpha=0.5, iterations=300, projection="renormalise", trace=True)
    assert (np.diff(np.array(wrong.history)[:, 0]) < 0).any()


@pytest.mark.parametrize("name", ["mi", "js", "lc"])
def test_the_printed_sign_fails_and_the_corrected_one_does_not(name):
    objective = Objective(GAUSS, MEASURES[name], BETAS[name])
    start = random_starts(GAUSS, 11, 1e-4, 0, [0], "uniform")[0]
    printed = inner_loop(objective, start, 1e-4, 1.0, admm.PRINTED)
    right = inner_loop(objective, start, 1e-4, 1.0, admm.CORRECTED)
    assert right.delta < 1e-4
    if name == "mi":
        assert printed.total > 1e4  # P_U blows up
    else:
        assert printed.total < 1e-3  # P_U vanishes,
        assert printed.delta == pytest.approx(1, abs=1e-3)
        assert printed.lam > 20
        assert printed.passed is not None  # and line 6 stops it all the same,
        assert printed.delta_then > 0.9  # with the constraint violated outright
    assert "efuted" in told(objective, start, 1e-4, 1.0)[-1]


def test_the_corrected_multiplier_is_the_gradient_and_lowers_the_lagrangian():
    """Lemma 8 holds with the corrected sign (grad g + lam = 0), and with it Lemma 6 does not."""
    objective, rho = Objective(GAUSS, MEASURES["mi"], 0.4), 1.0
    state = admm.init(objective, random_starts(GAUSS, 11, 1e-4, 0, [0], "uniform"))
    before, fell = None, 0
    for _ in range(40):
        state = admm.inner_step(objective, state, rho, 1e-4)
        slope = -objective.beta * (GAUSS.P_Y @ objective.measure.f1(state.P_U[0] / state.P[0]))
        assert np.abs(slope + state.lam[0]).max() < 1e-9
        L = float(admm.look(objective, state, rho).L[0])
        fell += before is not None and before - L > 1e-9
        before = L
    assert fell > 0


@pytest.mark.parametrize("jacobi", [False, True])
def test_the_inner_loop_solves_problem_10(jacobi):
    """Either order of the rows ends at the optimum of (10), which the interior-point steps give exactly."""
    objective, eps = Objective(GAUSS, MEASURES["js"], 0.6), 1e-4
    P = random_starts(GAUSS, 5, eps, 0, [0], "uniform")
    state = admm.init(objective, P)
    for _ in range(80):
        state = admm.inner_step(objective, state, 1.0, eps, jacobi=jacobi)
    seen = admm.look(objective, state, 1.0)
    _, P_SU = marginals(GAUSS, P[0])
    tangent = GAUSS.A.T @ np.log(P_SU / GAUSS.P_S[:, None])
    exact = interior.climb(objective, P[0], eps, tangent=tangent)
    assert seen.delta[0] < 1e-4
    assert seen.F3[0] == pytest.approx(exact.F, abs=5e-4)
    assert float(objective(P[0]).F) < exact.F - 0.01


def test_bregman_climbs_with_heavy_kernels():
    objective = Objective(GAUSS, MEASURES["js"], 0.6)
    P = random_starts(GAUSS, 11, 1e-3, 0, [0], "uniform")
    found = bregman.ascend(objective, P, 1e-3, tau=10.0, inner=10, iterations=10, trace=True)
    F = np.array(found.history)[:, 0]
    assert F[-1] > F[0]
    assert (np.diff(F) > -1e-9).all()
    assert np.abs(found.P.sum(-1) - 1).max() < 1e-12


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("measure", ["mi", "lc"])
def test_a_start_ends_in_the_same_bits_in_any_company(name, measure):
    objective, method = Objective(GAUSS, MEASURES[measure], 0.3), Method(name, iterations=120)
    for eps in (1e-12, 1e-4):
        together = method.ascend(objective, random_starts(GAUSS, 7, eps, 5, range(12)), eps)
        for company in (range(1), range(0, 12, 5), range(3, 9)):
            apart = method.ascend(objective, random_starts(GAUSS, 7, eps, 5, company), eps)
            assert (together.P[list(company)] == apart.P).all()
            assert (together.F[list(company)] == apart.F).all()
            assert (together.iterations[list(company)] == apart.iterations).all()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_a_mapping_and_repeats_itself(name):
    method = Method(name, iterations=6, inner=5)
    first, second = (
        ias.solve(GAUSS, "js", 0.6, 5, eps=1e-6, method=method, restarts=2, seed=4) for _ in range(2)
    )
    assert (first.P == second.P).all()
    assert np.abs(first.P.sum(1) - 1).max() <= 1e-12
    assert first.P.min() >= 1e-6 * (1 - 1e-9)
    assert abs(first.F - (first.I - 0.6 * first.E)) < 1e-12
    other = ias.solve(GAUSS, "js", 0.6, 5, eps=1e-6, method=method, restarts=2, seed=5)
    assert (first.P != other.P).any()


def test_sparse_starts_find_what_uniform_ones_miss():
    """Between beta_loc and beta_glob every uniform start falls to the trivial mapping."""
    objective = Objective(GAUSS, MEASURES["lc"], 1.7)
    uniform, sparse = (
        search(objective, 11, 1e-12, method=Method(), restarts=12, starts=kind).F
        for kind in ("uniform", "sparse")
    )
    assert uniform < 1e-8
    assert sparse > 1.5e-3


def test_the_curve_falls_and_stays_below_its_tangents():
    curve = ias.sweep(stand_in("binom"), "js", (0.5, 1.0, 1.6), 10, restarts=6)
    beta, F, I, E = (
        np.array([getattr(point, name) for point in curve.points]) for name in ("beta", "F", "I", "E")
    )
    assert (np.diff(I) <= 1e-12).all()
    assert (np.diff(E) <= 1e-12).all()
    for b, value in zip(beta, F):
        assert (I - b * E <= value + 1e-12).all()
    assert all(point.certified for point in curve.points)
    assert all(point.upper - point.F >= 0 for point in curve.points)
    assert (F[0], E[-1]) == pytest.approx((F.max(), 0), abs=1e-9)  # 1.6 is above beta_glob


def test_the_curve_without_certificates_claims_none():
    curve = ias.sweep(stand_in("sharp"), "mi", (0.5, 0.2), 5, restarts=3, certify=False)
    assert [point.beta for point in curve.points] == [0.2, 0.5]
    assert not any(point.certified for point in curve.points)


@pytest.mark.mpi(min_size=2, sizes=[3])
def test_the_same_bits_on_any_number_of_ranks(world):
    problem = stand_in("sharp")
    shared = ias.solve(problem, "lc", 2.0, 6, restarts=7, seed=1, world=world)
    curve = ias.sweep(problem, "js", (0.5, 1.0, 1.9), 4, restarts=3, certify=False, world=world)
    if not world.is_root:
        assert shared is None
        assert curve is None
        return
    alone = ias.solve(problem, "lc", 2.0, 6, restarts=7, seed=1, world=World())
    assert (shared.P == alone.P).all()
    assert (shared.F_starts == alone.F_starts).all()
    assert (shared.iterations == alone.iterations).all()
    again = ias.sweep(problem, "js", (0.5, 1.0, 1.9), 4, restarts=3, certify=False, world=World())
    for point, other in zip(curve.points, again.points):
        assert (point.P == other.P).all()
        assert point.origin == other.origin
