"""Theorem IV.1 and the spectrum, against brute force, dense simulations and the recorded figures."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from distadmm.commands.check import Options, check, main
from distadmm.graphs.topology import from_edges, load
from distadmm.methods.consensus import rate as consensus_rate
from distadmm.methods.consensus.rate import Setting, iterations_for, linear_rate
from distadmm.methods.consensus.theory import (
    Constants,
    best_constants,
    infeasible_for_every_gamma,
    margins,
    smallest_gamma,
    stages,
)

VECTORS = Path(__file__).with_name("vectors")
THM41 = json.loads((VECTORS / "radmm_thm41.json").read_text())
COUNTER = json.loads((VECTORS / "radmm_counterexample.json").read_text())
RATES = json.loads((VECTORS / "radmm_linear_rates.json").read_text())
# Fig. 1(b): penalties of five nodes that differ.
UNEVEN = np.array([1.0, 1.03, 1.02, 0.8, 1.01])


@pytest.fixture(scope="module")
def problems():
    content = json.loads(lzma.decompress((VECTORS / "radmm.json.xz").read_bytes()))
    return {problem["name"]: Logistic(problem) for problem in content["problems"]}


class Logistic:
    """One of the recorded small problems: O_i(f) = C/B_i sum log(1 + exp(-y f.x)) + rho/(2N) |f|^2."""

    def __init__(self, problem):
        self.network = from_edges(problem["N"], problem["edges"])
        self.n, self.d = problem["N"], problem["d"]
        self.X = [np.array(x) for x in problem["X"]]
        self.y = [np.array(y) for y in problem["y"]]
        self.C, self.ridge = problem["C"], problem["rho"] / problem["N"]
        self.optimum = np.array(problem["f_central"])

    def gradient(self, i, f):
        slope = -self.y[i] / (1 + np.exp(self.y[i] * (self.X[i] @ f)))
        return self.C / len(self.y[i]) * self.X[i].T @ slope + self.ridge * f

    def hessian(self, i, f):
        s = 1 / (1 + np.exp(-self.X[i] @ f))
        return self.C / len(self.y[i]) * (self.X[i].T * (s * (1 - s))) @ self.X[i] + self.ridge * np.eye(
            self.d
        )

    def hessians(self):
        return np.array([self.hessian(i, self.optimum) for i in range(self.n)])

    def lipschitz(self):
        return np.array([np.linalg.eigvalsh(self.hessian(i, np.zeros(self.d)))[-1] for i in range(self.n)])

    def minimise(self, i, linear, quadratic, f):
        for _ in range(50):
            gradient = self.gradient(i, f) + linear + quadratic * f
            if np.linalg.norm(gradient) < 1e-13:
                break
            f = f - np.linalg.solve(self.hessian(i, f) + quadratic * np.eye(self.d), gradient)
        return f

    def weighted_optimum(self, weight):
        f = self.optimum
        for _ in range(50):
            gradient = sum(w * self.gradient(i, f) for i, w in enumerate(weight))
            f = f - np.linalg.solve(sum(w * self.hessian(i, f) for i, w in enumerate(weight)), gradient)
        return f

    def radmm(self, eta, gamma, pairs, theta=None):
        """(14)-(17), node by node; `eta(k)` gives the penalties, `theta` a common dual step."""
        f, lam = np.zeros((self.n, self.d)), np.zeros((self.n, self.d))
        near = [self.network.neighbours(i) for i in range(self.n)]
        for k in range(1, pairs + 1):
            e = eta(k)
            old = f.copy()
            for i in range(self.n):
                V = len(near[i])
                linear = 2 * lam[i] - e[i] * (V * old[i] + old[near[i]].sum(axis=0))
                f[i] = self.minimise(i, linear, 2 * e[i] * V, old[i])
            spread = np.array([len(near[i]) * f[i] - f[near[i]].sum(axis=0) for i in range(self.n)])
            lam = lam + (e if theta is None else np.full(self.n, theta))[:, None] / 2 * spread
            drift = np.array([self.gradient(i, f[i]) for i in range(self.n)]) + 2 * lam + e[:, None] * spread
            f = f - drift / (2 * e * self.network.degrees + gamma)[:, None]
        return f


# --- the theorem -----------------------------------------------------------------------------------------


def test_margins_are_the_recorded_ones(problems):
    problem = problems["n5_d4"]
    cases = {
        "common constant eta=1 (control)": [np.ones(5)],
        "per-node constant eta_i, paper dual": [UNEVEN],
        "common eta=1.05^k": [np.full(5, 1.05**k) for k in range(1, 401)],
    }
    for name, penalties in cases.items():
        recorded = COUNTER[name]
        constants = Constants(recorded["L"], recorded["mu"])
        found = margins(problem.network, stages(penalties), recorded["gamma"], problem.lipschitz(), constants)
        assert min(found) == pytest.approx(recorded["min_eig_over_t"], rel=1e-9), name


def test_the_theorem_is_false_for_penalties_that_differ(problems):
    """(i) and (ii) hold, yet the nodes agree on the optimum of sum O_i/eta_i; a common dual step mends it."""
    problem = problems["n5_d4"]
    steps = stages([UNEVEN])
    constants = best_constants(problem.network, steps, 20.0, problem.lipschitz())
    assert margins(problem.network, steps, 20.0, problem.lipschitz(), constants).hold
    own = problem.radmm(lambda k: UNEVEN, 20.0, 800)
    assert np.abs(own - own.mean(axis=0)).max() < 1e-7
    assert np.linalg.norm(own - problem.optimum, axis=1).min() > 0.04
    assert np.abs(own - problem.weighted_optimum(1 / UNEVEN)).max() < 1e-4
    common = problem.radmm(lambda k: UNEVEN, 20.0, 800, theta=0.8)
    assert np.abs(common - problem.optimum).max() < 1e-4


def test_the_theorem_is_false_for_penalties_without_bound(problems):
    problem = problems["n5_d4"]
    steps = stages([np.full(5, 1.05**k) for k in range(1, 401)])
    constants = best_constants(problem.network, steps, 20.0, problem.lipschitz())
    assert margins(problem.network, steps, 20.0, problem.lipschitz(), constants).hold
    half, whole = (problem.radmm(lambda k: np.full(5, 1.05**k), 20.0, pairs) for pairs in (200, 400))
    assert np.linalg.norm(whole - problem.optimum, axis=1).min() > 0.3
    assert np.abs(whole - half).max() < 0.05


def test_the_smallest_gamma_with_L_2_and_mu_2_is_the_recorded_one():
    for key, name, eta in [("N5 eta0.5", "er5", 0.5), ("N5 eta1", "er5", 1.0), ("N20 eta0.5", "er20", 0.5)]:
        network, recorded = load(name), THM41[key]
        found = smallest_gamma(
            network, stages([np.full(network.n, eta)]), np.array(recorded["M"]), Constants(2, 2)
        )
        assert found == pytest.approx(recorded["L2mu2"], rel=2e-3), key


CASES = {
    "N5 eta0.5": ("er5", [np.full(5, 0.5)]),
    "N5 eta1": ("er5", [np.ones(5)]),
    "N20 eta0.5": ("er20", [np.full(20, 0.5)]),
    "MR q1.04 k=1": ("er5", [np.full(5, 1.04), np.full(5, 1.04**2)]),
    "MR q1.04 k=25": ("er5", [np.full(5, 1.04**25), np.full(5, 1.04**26)]),
    "ring7 M=1 eta=1": ("ring:7", [np.ones(7)]),
    "K4 M=1 eta=1": ("complete:4", [np.ones(4)]),
}


@pytest.mark.parametrize("key", CASES)
def test_the_smallest_gamma_is_below_the_recorded_one_of_a_grid_search(key):
    """The recorded values come from a grid over L and mu, so they are met, and no less than the exact ones."""
    name, penalties = CASES[key]
    network, steps = load(name), stages(penalties)
    M = np.array(THM41["N20 eta0.5" if name == "er20" else "N5 eta1"]["M"])[: network.n]
    M = M if name.startswith("er") else np.ones(network.n)
    recorded = THM41[key]["bestLmu"] if isinstance(THM41[key], dict) else THM41[key]
    found = smallest_gamma(network, steps, M)
    assert 0.55 * recorded < found <= recorded
    constants = best_constants(network, steps, recorded, M)
    assert margins(network, steps, recorded, M, constants).hold


@settings(deadline=None, max_examples=12)
@given(st.integers(3, 6), st.integers(0, 1000), st.booleans())
def test_no_other_constants_do_with_less_gamma(n, seed, uneven):
    rng = np.random.default_rng(seed)
    network = load(f"er:{n}:p=0.7:seed={seed}")
    lipschitz = rng.uniform(0.5, 3.0, n)
    steps = stages([rng.uniform(0.5, 2.0, n) if uneven else np.ones(n)])
    gamma = smallest_gamma(network, steps, lipschitz)
    if gamma is None:
        assert best_constants(network, steps, 1e6, lipschitz) is None
        gamma = 1e3
    else:
        constants = best_constants(network, steps, 1.0001 * gamma + 1e-6, lipschitz)
        assert margins(network, steps, 1.0001 * gamma + 1e-6, lipschitz, constants).hold
        if gamma == 0.0:
            return

    def lack(x):
        constants = Constants(np.exp(x[0]), 1 + np.exp(x[1]))
        return -min(margins(network, steps, 0.99 * gamma, lipschitz, constants))

    starts = rng.uniform([-4, -2], [3, 4], (3, 2))
    assert min(minimize(lack, x, method="Nelder-Mead", options={"maxiter": 150}).fun for x in starts) > 0


def test_constants_for_several_stages_meet_all_of_them():
    network, M = load("er5"), np.full(5, 1.5)
    steps = stages([np.minimum(UNEVEN * 1.1**k, 4.0) for k in range(1, 30)])
    gamma = smallest_gamma(network, steps, M)
    constants = best_constants(network, steps, 1.001 * gamma, M)
    assert margins(network, steps, 1.001 * gamma, M, constants).hold
    assert best_constants(network, steps, 0.999 * gamma, M) is None
    assert gamma >= max(smallest_gamma(network, [step], M) for step in steps) * (1 - 1e-5)


@pytest.mark.parametrize("spec", ["ring:8", "path:2", "path:3", "star:6", "grid:3x3", "hypercube:3"])
def test_no_gamma_does_on_a_bipartite_network(spec):
    network = load(spec)
    steps = stages([np.ones(network.n)])
    assert infeasible_for_every_gamma(network, steps)
    assert smallest_gamma(network, steps, np.ones(network.n)) is None
    assert all(best_constants(network, steps, 10.0**g, np.ones(network.n)) is None for g in range(-3, 7))


def test_radmm_converges_on_a_bipartite_ring_all_the_same(problems):
    problem = problems["n8_ring_d6"]
    assert infeasible_for_every_gamma(problem.network, stages([np.full(8, 0.5)]))
    assert np.abs(problem.radmm(lambda k: np.full(8, 0.5), 0.5, 260) - problem.optimum).max() < 1e-8


# --- the spectrum ----------------------------------------------------------------------------------------


def test_rates_of_the_recorded_problems(problems):
    for name, recorded in RATES.items():
        problem = problems[name]
        eta = np.full(problem.n, 0.5)
        for key, expected in recorded.items():
            gamma = None if key == "admm^2" else float(key)
            found = linear_rate(problem.network, problem.hessians(), Setting(eta, eta, gamma))
            assert (found**2 if gamma is None else found) == pytest.approx(expected, rel=1e-9), (name, key)


def simulated_rate(network, H, setting, rng, rounds=1200):
    """Plain loops over nodes, E3 for the even step, from the ratio of errors; b = 0, so the optimum is 0."""
    n, d = H.shape[:2]
    near = [network.neighbours(i) for i in range(n)]
    f, lam = rng.standard_normal((n, d)), np.zeros((n, d))
    eta, theta, gamma = setting
    logs = []
    for _ in range(rounds):
        old = f
        pull = [2 * lam[i] - eta[i] * sum(old[i] + old[j] for j in near[i]) for i in range(n)]
        f = np.array(
            [np.linalg.solve(H[i] + 2 * eta[i] * len(near[i]) * np.eye(d), -pull[i]) for i in range(n)]
        )
        spread = np.array([sum(f[i] - f[j] for j in near[i]) for i in range(n)])
        lam = lam + theta[:, None] / 2 * spread
        if gamma is not None:
            gain = np.array([eta[i] * sum(f[i] + f[j] - old[i] - old[j] for j in near[i]) for i in range(n)])
            f = f + (gain - theta[:, None] * spread) / (2 * eta * network.degrees + gamma)[:, None]
        # sum lam_i/theta_i is conserved; rounding must not build it up while all else shrinks.
        lam = lam - theta[:, None] * (lam / theta[:, None]).mean(axis=0)
        size = np.sqrt((f**2).sum() + (lam**2).sum())
        logs.append(np.log(size) + (logs[-1] if logs else 0.0))
        f, lam = f / size, lam / size  # the recursion is linear: rescale, or it underflows
    return np.exp((logs[-1] - logs[rounds // 2]) / (rounds - 1 - rounds // 2))


SIMULATED = [
    *[("er5", "admm"), ("er5", "radmm"), ("er5", "madmm"), ("er5", "mradmm"), ("ring:6", "radmm")],
    *[("star:5", "mradmm"), ("barbell:3:1", "admm"), ("complete:4", "madmm")],
]


@pytest.mark.parametrize(("spec", "method"), SIMULATED)
def test_the_predicted_rate_is_the_measured_one(spec, method):
    network = load(spec)
    rng = np.random.default_rng(7)
    n, d = network.n, 3
    G = rng.standard_normal((n, d, d))
    H = G @ G.transpose(0, 2, 1) + 0.3 * np.eye(d)
    eta = rng.uniform(0.5, 1.5, n) if method.startswith("m") else np.full(n, 0.7)
    theta = np.full(n, eta.min())
    setting = Setting(eta, theta, 0.5 if method.endswith("radmm") else None)
    predicted, measured = linear_rate(network, H, setting), simulated_rate(network, H, setting, rng)
    assert np.log(measured) == pytest.approx(np.log(predicted), rel=0.02)


def test_own_dual_steps_have_a_rate_too():
    network, rng = load("er5"), np.random.default_rng(3)
    H = np.array([np.diag(rng.uniform(0.5, 2.0, 2)) for _ in range(5)])
    setting = Setting(UNEVEN, UNEVEN, 0.5)
    measured = simulated_rate(network, H, setting, rng)
    assert np.log(measured) == pytest.approx(np.log(linear_rate(network, H, setting)), rel=0.02)


@pytest.mark.parametrize("n", [7, 12, 901])
@pytest.mark.parametrize("gamma", [None, 0.5])
def test_a_ring_of_equal_curvatures_falls_apart_into_modes(n, gamma):
    """For each eigenvalue nu of D^-1 A, (f, lam) obeys two by two; 901 nodes take the sparse way."""
    h, eta, V = 1.0, 0.7, 2.0
    moduli = []
    for nu in np.cos(2 * np.pi * np.arange(n) / n):
        both, apart = eta * V * (1 + nu), eta * V * (1 - nu)
        f = np.array([both, -2.0]) / (h + 2 * eta * V)
        lam = np.array([0.0, 1.0]) + apart / 2 * f
        if gamma is not None:
            f = f + (both * (f - [1.0, 0.0]) - apart * f) / (2 * eta * V + gamma)
        moduli.append(abs(f[0]) if abs(nu - 1) < 1e-12 else np.abs(np.linalg.eigvals([f, lam])).max())
    found = linear_rate(load(f"ring:{n}"), np.full(n, h), Setting(np.full(n, eta), np.full(n, eta), gamma))
    assert 1 - found == pytest.approx(1 - max(moduli), rel=1e-5)


def test_the_sparse_way_agrees_with_the_dense_one(monkeypatch):
    rng = np.random.default_rng(1)
    network, G = load("er20"), rng.standard_normal((20, 6, 4))
    H = G @ G.transpose(0, 2, 1) + 0.05 * np.eye(6)
    setting = Setting(np.full(20, 0.5), np.full(20, 0.5), 0.5)
    dense = linear_rate(network, H, setting)
    monkeypatch.setattr(consensus_rate, "DENSE_MOST", 10)
    assert linear_rate(network, H, setting) == pytest.approx(dense, rel=1e-7)


def test_what_is_not_found_is_said_to_be_not_found(monkeypatch, capsys):
    monkeypatch.setattr("distadmm.commands.check.linear_rate", lambda *_: float("nan"))
    assert main(["--topology", "er5"]) == 0
    assert "not found" in capsys.readouterr().out
    assert main(["--topology", "er5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rate_admm_iteration"] is None


def test_iterations_for_a_digit():
    assert iterations_for(0.1) == pytest.approx(1.0)
    assert iterations_for(0.99) == pytest.approx(np.log(10) / -np.log(0.99))
    assert iterations_for(1.0) == iterations_for(1.2) == float("inf")


# --- the command -----------------------------------------------------------------------------------------


def test_bounds_come_from_public_constants_unless_given(capsys):
    assert main(["--topology", "er5", "--eta", "0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lipschitz"] == pytest.approx([1750 / 4 + 0.22 / 5] * 5)
    assert "C c1 + rho/N" in found["lipschitz_from"]
    M = THM41["N5 eta0.5"]["M"]
    assert main(["--topology", "er5", "--eta", "0.5", "--lipschitz", ",".join(map(str, M)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["theorem"]["smallest_gamma_L2_mu2"] == pytest.approx(THM41["N5 eta0.5"]["L2mu2"], rel=2e-3)
    assert found["theorem"]["status"] == "claimed by the paper, not proved"


def test_data_give_the_curvatures_of_their_optimum():
    report = check(Options(topology="er5", data="tiny", eta="1"))
    assert len(report.bounds.hessians) == 1
    assert report.bounds.hessians[0].shape[0] == 5
    greatest = np.linalg.eigvalsh(report.bounds.hessians[0])[:, -1]
    assert (greatest <= report.bounds.lipschitz * (1 + 1e-9)).all()
    assert 0 < report.rates["admm"] < 1
    assert "tiny" in report.bounds.lipschitz_from


def test_adult_has_the_recorded_lipschitz_constants_and_rates():
    report = check(Options(topology="er5", data="adult", eta="1"))
    assert report.bounds.lipschitz == pytest.approx(THM41["N5 eta1"]["M"], rel=1e-9)
    assert report.rates["admm"] ** 2 == pytest.approx(0.98639, abs=1e-5)
    assert report.rates["radmm"] == pytest.approx(0.98684, abs=1e-5)


def test_the_words_tell_what_the_theorem_is_worth(capsys):
    assert main(["--topology", "ring:8", "--eta", "1"]) == 0
    text = capsys.readouterr().out
    assert "claimed by the paper, not proved" in text
    assert "bipartite" in text
    uneven = ["--topology", "er5", "--eta", ",".join(map(str, UNEVEN)), "--lipschitz", "1.6", "--gamma", "20"]
    assert main([*uneven, "--dual-step", "own"]) == 0
    text = capsys.readouterr().out
    assert "met with L" in text
    assert "FALSE here" in text
    assert "sum_i O_i/eta_i" in text
    assert main(uneven) == 0
    assert "does not apply" in capsys.readouterr().out
    assert main(["--topology", "er5", "--eta", "1", "--eta-growth", "1.05", "--eta-cap", "inf"]) == 0
    assert "without bound" in capsys.readouterr().out


def test_a_growing_penalty_is_followed_to_its_cap():
    report = check(Options(topology="er5", eta="1", eta_growth="1.04", eta_cap=2.0, curvature=(1.0,)))
    assert report.penalties.first[0] == pytest.approx(1.04)
    assert report.penalties.last[0] == 2.0
    assert np.array_equal(report.penalties.steps[-1].eta, report.penalties.steps[-1].eta_next)
    constant = check(Options(topology="er5", eta="2", curvature=(1.0,)))
    assert report.rates == constant.rates


def test_penalties_may_come_from_the_network_file():
    report = check(Options(topology="sites6", eta="node"))
    assert report.penalties.first.tolist() == [0.5, 0.5, 1.0, 1.0, 1.5, 2.0]
    assert (report.penalties.theta == 0.5).all()


def test_a_large_network_has_a_spectrum_but_no_theorem(capsys):
    assert main(["--topology", "regular:302:d=4", "--eta", "1", "--curvature", "1"]) == 0
    assert "not evaluated" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        *[
            ["--gamma", "-1"],
            ["--gamma", "nan"],
            ["--eta", "0"],
            ["--eta", "x"],
            ["--eta", "1,2"],
            ["--eta", "node"],
        ],
        *[["--eta", "1", "--eta-growth", "0.9"], ["--eta", "1", "--eta-cap", "0.5"], ["--lipschitz", "-1"]],
        *[
            ["--lipschitz", "1,2"],
            ["--lipschitz", "inf"],
            ["--curvature", "0"],
            ["--weight", "0"],
            ["--rho", "-1"],
        ],
        *[
            ["--rho", "0"],
            ["--dual-step", "theirs"],
            ["--dual-step", "-1"],
            ["--topology", "absent"],
            ["--los", "x"],
        ],
        *[["--loss", "none"], ["--data", "tiny", "--curvature", "1"], ["--data", "tiny", "--loss", "huber"]],
        *[["--data", "absent.csv"], ["--eta-growth", "node", "--eta", "1"]],
        *[["--data", "adult", "--rho", "0"], ["--eta", "1", "--eta-growth", "inf"]],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, arguments):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert len(captured.err.strip().splitlines()) == 1
    assert not captured.out
