"""The global bound: above everything, touched by the optimum, and true where the answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import ias
from distadmm.methods.ias import envelope
from distadmm.methods.ias.certificate import Certificate, certify, range_of_beta, thresholds
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.measures import MEASURES, own
from distadmm.methods.ias.objective import Objective, project_entropic

NAMES = sorted(MEASURES)
seeds = st.integers(0, 10**6)


def random_objective(seed: int, name: str, S: int, Y: int) -> Objective:
    rng = np.random.default_rng(seed)
    problem = Inference(rng.dirichlet(np.ones(S)), rng.dirichlet(np.full(Y, 0.7), size=S))
    return Objective(problem, MEASURES[name], float(rng.uniform(0.1, 1.5)))


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(NAMES), st.integers(2, 4), st.integers(2, 6))
def test_the_peak_is_never_below_any_posterior_and_is_attained(seed, name, S, Y):
    objective, rng = random_objective(seed, name, S, Y), np.random.default_rng(seed)
    k = rng.normal(size=(4, Y))
    top = envelope.peak(objective, k)
    _, leakage = envelope.terms(objective.problem, objective.measure, top.q)
    assert (top.q * k).sum(-1) - objective.beta * leakage == pytest.approx(top.bound, abs=1e-9)
    q = np.vstack([rng.dirichlet(np.full(Y, weight), size=200) for weight in (0.1, 1.0, 5.0)] + [np.eye(Y)])
    _, leakage = envelope.terms(objective.problem, objective.measure, q)
    assert (q @ k.T - objective.beta * leakage[:, None] <= top.bound + 1e-10).all()


@settings(deadline=None, max_examples=12)
@given(seeds, st.sampled_from(NAMES), st.integers(2, 3), st.integers(2, 6))
def test_the_price_bounds_every_posterior_and_closes(seed, name, S, Y):
    objective, rng = random_objective(seed, name, S, Y), np.random.default_rng(seed)
    a = 0.3 * rng.normal(size=Y)
    found = envelope.price(objective, a, tolerance=1e-8)
    assert found.proved
    assert found.lower <= found.upper <= found.lower + 1e-7
    q = np.vstack([rng.dirichlet(np.full(Y, weight), size=2000) for weight in (0.1, 1.0)] + [np.eye(Y)])
    assert (envelope.psi(objective, q) - q @ a).max() <= found.upper
    assert envelope.psi(objective, found.q[:1]) - found.q[:1] @ a == pytest.approx(found.lower, abs=1e-12)


def test_out_of_simplices_the_bound_is_loose_but_still_a_bound():
    objective, a = Objective(stand_in("gauss"), MEASURES["js"], 0.6), np.zeros(10)
    coarse, fine = (envelope.price(objective, a, simplices=n) for n in (60, 100_000))
    assert coarse.upper > fine.upper + 1e-3
    assert coarse.upper >= fine.lower


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("S", "Y"), [(2, 6), (3, 5), (4, 3)])
def test_the_certificate_closes_and_bounds_random_mappings(name, S, Y):
    objective = random_objective(S * Y, name, S, Y)
    rng = np.random.default_rng(0)
    start = project_entropic(rng.dirichlet(np.ones(Y), size=Y), 1e-12)
    P, found = certify(objective, start, 1e-12)
    assert found.proved
    assert objective(P).F >= objective(start).F
    assert found.upper - objective(P).F <= 1e-6
    others = project_entropic(rng.dirichlet(np.full(Y + 2, 0.3), size=(300, Y)), 1e-12)
    assert objective(others).F.max() <= found.upper


def test_misses_are_closed_from_a_trivial_start():
    """From the worst start, U independent of Y, column generation alone finds the optimum."""
    for problem, name, beta, known in (("gauss", "lc", 1.7, 0.0015037), ("sharp", "lc", 2.0, 0.037386)):
        objective = Objective(stand_in(problem), MEASURES[name], beta)
        P, found = certify(objective, np.full((10, 10), 0.1), 1e-12)
        assert abs(objective(P).F - known) < 1e-6
        assert found.gained == pytest.approx(known, abs=1e-6)
        assert found.gap <= 1e-6


@pytest.mark.parametrize("beta", [0.3, 0.8, 1.2])
def test_when_y_is_s_the_answer_is_known(beta):
    """F = (1 - beta) I(Y;U): keep everything below beta 1, nothing above."""
    P_S = np.array([0.7, 0.3])
    found = ias.solve(Inference(P_S, np.eye(2)), "mi", beta, certify=True)
    known = max(0.0, (1 - beta) * -(P_S * np.log(P_S)).sum())
    assert abs(found.F - known) < 1e-9
    assert found.certificate.upper == pytest.approx(known, abs=1e-6)
    limits = found.certificate.thresholds
    assert (limits.beta_loc, limits.beta_glob) == pytest.approx((1, 1), abs=1e-6)


def test_the_range_of_beta_of_the_stand_ins():
    """Le Cam on gauss and three of four on sharp have beta_glob above beta_loc."""
    for problem, name, expected in (
        ("gauss", "mi", (0.8415, 0.8415)), ("gauss", "lc", (1.6830, 1.7593)), ("sharp", "js", (1.9703, 2.0120)),
        ("sharp", "lc", (1.9703, 2.1474)), ("binom", "lc", (1.5141, 1.5560)),
    ):  # fmt: skip
        objective = Objective(stand_in(problem), MEASURES[name], 1.0)
        limits = thresholds(objective)
        assert (limits.beta_loc, limits.beta_glob) == pytest.approx(expected, abs=1e-4)
        assert limits.proved
        # just below, the posterior found is worth it; just above, nothing is
        below = Objective(objective.problem, objective.measure, limits.beta_glob * (1 - 1e-3))
        if limits.beta_glob > limits.beta_loc * (1 + 1e-6):
            assert envelope.psi(below, limits.q[None])[0] > 0
        above = Objective(objective.problem, objective.measure, limits.beta_glob * (1 + 1e-3))
        assert envelope.price(above, np.zeros(10)).upper <= 1e-8


def test_beta_8_of_the_paper_is_trivial_whatever_y_says_of_s():
    """With three equally likely s, Y = S is the most any Y can say; even there beta_glob stays below 2.2."""
    everything = Inference(np.full(3, 1 / 3), np.eye(3))
    for name, expected in (("js", 2.053), ("lc", 2.197), ("hellinger", 2.045)):
        assert thresholds(Objective(everything, MEASURES[name], 1.0)).beta_glob == pytest.approx(
            expected, abs=2e-3
        )


def test_the_sentence_says_where_beta_lies():
    limits = thresholds(Objective(stand_in("sharp"), MEASURES["lc"], 1.0))
    assert "says nothing at all" in range_of_beta(limits, 8.0)
    assert "far from the trivial" in range_of_beta(limits, 2.0)
    assert "something is best" in range_of_beta(limits, 1.0)


@pytest.mark.slow
def test_a_binding_eps_only_costs():
    problem = stand_in("binom")
    free, held = (ias.solve(problem, "js", 0.6, eps=eps, certify=True) for eps in (1e-12, 1e-3))
    assert held.F < free.F
    assert held.P.min() >= 1e-3 * (1 - 1e-9)
    assert held.certificate.upper >= free.F - 1e-9
    assert held.certificate.attained == pytest.approx(free.F, abs=1e-8)


@pytest.mark.slow
def test_beyond_four_symbols_of_s_nothing_is_claimed():
    objective = random_objective(3, "mi", 5, 6)
    P, found = certify(objective, np.full((6, 6), 1 / 6), 1e-12)
    assert not found.proved
    assert "heuristic" in found.sentence(0.5)
    assert found.upper - objective(P).F >= -1e-9


def test_one_symbol_of_u_is_trivial_and_the_bound_says_what_more_would_bring():
    found = ias.solve(stand_in("gauss"), "mi", 0.4, 1, certify=True)
    assert abs(found.F) < 1e-12
    assert found.certificate.upper == pytest.approx(ias.solve(stand_in("gauss"), "mi", 0.4).F, abs=1e-6)


def test_a_users_measure_gets_the_same_answer_as_the_built_in_one():
    js, problem = (
        MEASURES["js"],
        Inference(np.array([0.4, 0.6]), np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])),
    )
    mine = own("mine", js.f, js.f1, js.f2)
    ours, theirs = ias.solve(problem, js, 0.2, certify=True), ias.solve(problem, mine, 0.2, certify=True)
    assert abs(theirs.F - ours.F) < 1e-9
    assert theirs.certificate.upper == pytest.approx(ours.certificate.upper, abs=1e-8)
    assert theirs.certificate.thresholds.beta_glob == pytest.approx(
        ours.certificate.thresholds.beta_glob, abs=1e-5
    )


def test_a_measure_that_no_built_in_one_resembles():
    """Pearson's chi-square; f grows like t^2, so a mapping may exclude nothing."""
    chi2 = own("chi2", lambda t: (t - 1) ** 2, lambda t: 2 * (t - 1), lambda t: 2 + 0 * t)
    problem = Inference(np.array([0.4, 0.6]), np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    found = ias.solve(problem, chi2, 0.05, certify=True)
    assert found.certificate.gap <= 1e-6
    assert found.F > 0.01
    assert found.P[:, found.problem.P_Y @ found.P > 1e-3].min() > 1e-4


def skewed(seed: int, concentration: float) -> Inference:
    joint = np.random.default_rng(seed).dirichlet(np.full(24, concentration)).reshape(4, 6)
    return Inference(joint.sum(1), joint / joint.sum(1, keepdims=True))


def certified(problem: Inference, fraction: float) -> tuple[Objective, Certificate]:
    found = thresholds(Objective(problem, MEASURES["mi"], 1.0))
    beta = fraction * found.beta_glob
    objective = Objective(problem, MEASURES["mi"], beta)
    start = ias.solve(problem, "mi", beta)
    return objective, certify(objective, start.P, 1e-12, found=found)[1]


@pytest.mark.parametrize(
    ("seed", "concentration", "fraction"), [(0, 0.3, 0.5), (0, 1.0, 0.1), (13, 1.0, 0.5)]
)
def test_four_symbols_of_s_close_with_a_fraction_of_the_simplices(seed, concentration, fraction):
    """The first two stay open by 0.05 and 0.12 where the edge to cut is the longest one, whatever KL does along it."""
    _, found = certified(skewed(seed, concentration), fraction)
    assert found.proved
    assert found.open <= 1e-6
    assert found.simplices < envelope.LIMIT / 10


@pytest.mark.slow
def test_dirichlet_joints_close():
    """|S| = 4, |Y| = 6, half of beta_glob: nineteen of twenty, at least."""
    gaps = [certified(skewed(seed, 1.0), 0.5)[1].gap for seed in range(20)]
    assert sum(gap <= 1e-6 for gap in gaps) >= 19


def test_an_open_gap_is_said_to_be_open(monkeypatch, tmp_path, capsys):
    from distadmm.files import read_json

    words = ["--problem", "gauss", "--f", "js", "--beta", "0.6", "--certify", "--no-figure", "--strict"]
    monkeypatch.setattr(envelope.price, "__kwdefaults__", {**envelope.price.__kwdefaults__, "simplices": 60})
    assert ias.main([*words, "--out", str(tmp_path / "o")]) == 4
    shown = capsys.readouterr().out
    assert "OPEN: a bound, no proof of optimality" in shown
    assert "simplices" in shown
    told = read_json(tmp_path / "o" / "summary.json")["certificate"]
    assert told["standing"].startswith("OPEN")
    assert told["open"] > 1e-6
    monkeypatch.undo()
    assert ias.main([*words, "--out", str(tmp_path / "c")]) == 0
    assert "OPEN" not in capsys.readouterr().out
    assert (
        read_json(tmp_path / "c" / "summary.json")["certificate"]["standing"]
        == "optimal, by branch and bound"
    )
