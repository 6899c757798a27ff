"""The runs behind the figures of the R-ADMM paper: what each arm is, and how one is traced.

Adult, N = 5 or 20, C = 1750, rho = 0.22, logistic loss.  Private arms use the mechanisms as the paper prints
them (exact solves, no output noise), with seeded noise: they reproduce figures and guarantee nothing.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distadmm import radmm
from distadmm.methods.consensus import private as protect
from distadmm.problems.consensus import Problem
from distadmm.ranks.world import World
from distadmm.run.observe import error_rate
from distadmm.run.running import unwritten
from distadmm.run.setup import Prepared, prepare

C, RHO, CURVATURE = 1750.0, 0.22, 0.25
STARTS_1B = (1.0, 1.03, 1.02, 0.8, 1.01)
RATES_1B = (0.01, 0.005, 0.003, 0.015, 0.01)


@dataclass(frozen=True)
class Arm:
    """One curve: an algorithm with its flags, on N nodes."""

    figure: str
    label: str
    algorithm: str
    nodes: int = 5
    iterations: int = 50
    flags: tuple[tuple[str, Any], ...] = ()
    eta: tuple[float, ...] = ()  # per node, in place of --eta
    growth: tuple[float, ...] = ()
    alpha: tuple[float, ...] = field(default=())  # per node, in place of --alpha


class Trace(NamedTuple):
    loss: list[float]  # L(t), t = 0..T
    error: float  # test error of the mean model at the end
    bound: float  # total privacy loss P by the paper's bound; infinite without noise


@lru_cache(maxsize=4)
def _data(nodes: int, rho: float) -> Prepared:
    config = radmm.configure("admm", data="adult", topology=f"er{nodes}", weight=C, rho=rho, eta="1")
    return prepare(config, World())


def trace(item: tuple[Arm, int]) -> Trace:
    """Run one arm with one seed."""
    arm, seed = item
    flags = dict(arm.flags)
    if arm.alpha:
        flags["alpha"] = "1"  # replaced by the table below
    if "alpha" in flags:
        flags |= {"adjacency": "replace", "form": "paper", "rng": "simulation"}
    config = radmm.configure(
        arm.algorithm, data="adult", topology=f"er{arm.nodes}", weight=C, iterations=arm.iterations, seed=seed,
        **{"rho": RHO, "eta": "1", **flags},
    )  # fmt: skip
    loaded = _data(arm.nodes, config.problem.rho)
    # The rows are read once; solvers, ledgers and network state are this run's own.
    prepared = prepare_like(loaded, config)
    for name, values in (("eta", arm.eta), ("eta_growth", arm.growth), ("alpha", arm.alpha)):
        if values:
            prepared.node.table[name] = np.array(values)
    plan = protect.plan_of(prepared)
    node, algorithm = protect.armed(prepared, plan, unwritten(config.run)), config.algorithm
    state = algorithm.init(node)
    losses = [node.problem.data_losses(state.f).mean()]
    for k in range(1, arm.iterations + 1):
        state = algorithm.step(k, state, node)
        losses.append(node.problem.data_losses(state.f).mean())
    test = loaded.source.test()
    assert test is not None
    bound = total_loss(plan) if plan is not None else float("inf")
    return Trace([float(value) for value in losses], error_rate(state.f.mean(axis=0), *test), bound)


def prepare_like(loaded: Prepared, config: Any) -> Prepared:
    """A fresh run of `config` over the rows that `loaded` has read."""
    from dataclasses import replace

    from distadmm.run.setup import node_like

    node = node_like(loaded.node, config, Problem(loaded.node.problem.objectives, config.problem.tolerance))
    description = {**loaded.description, "phases": config.algorithm.phases}
    return replace(loaded, config=config, node=node, description=description)


def total_loss(plan: Any) -> float:
    """P = max_i sum_k 2C/B_i (1.4 c1/(rho/N + 2 eta_i V_i) + alpha_i), the bound of the paper's Theorem V.1."""
    recipe, ridge = plan.recipe, plan.node.facts.ridge
    total = np.zeros(plan.node.network.n_local)
    for solve, (_, quadratic, factor) in enumerate(plan.releases):
        rate = recipe.alpha[solve] / np.broadcast_to(factor, (len(total), 1))[:, 0]
        total += 2 * recipe.weight * (1.4 * CURVATURE / (ridge + quadratic[:, 0]) + rate)
    return float(total.max())


def matched_alpha(arm: Arm, bound: float) -> tuple[float, ...]:
    """alpha_i with which every node of `arm` spends `bound` by the paper's bound, over all its releases."""
    loaded = _data(arm.nodes, RHO)
    flags = {"eta": "1", **dict(arm.flags)}
    config = radmm.configure(
        arm.algorithm, data="adult", topology=f"er{arm.nodes}", weight=C, rho=RHO, **flags
    )
    prepared = prepare_like(loaded, config)
    node = prepared.node
    weight = np.array([objective.scale for objective in node.problem.objectives])
    fixed, per_alpha = np.zeros(len(weight)), np.zeros(len(weight))
    for _, quadratic, factor in config.algorithm.releases(node, arm.iterations):
        fixed += 2 * weight * 1.4 * CURVATURE / (node.facts.ridge + quadratic[:, 0])
        per_alpha += 2 * weight / np.broadcast_to(factor, (len(weight), 1))[:, 0]
    return tuple(((bound - fixed) / per_alpha).tolist())


def pure_penalty(growth: float) -> tuple[tuple[str, Any], ...]:
    """eta(k) = q^k, as the paper's experiments grow it (no cap within their fifty iterations)."""
    return (("eta_growth", str(growth)), ("eta_cap", 1e9))


def arms(figure: str, seeds: int) -> list[tuple[Arm, int]]:
    """What a figure consists of, with the seeds of its private arms."""
    made = {"1a": _1a, "1b": _1b, "1c": _1c, "2": _2, "3": _3, "4": _4, "5": _5}[figure]()
    return [
        (arm, seed) for arm in made for seed in range(seeds if arm.alpha or "alpha" in dict(arm.flags) else 1)
    ]


def _1a() -> list[Arm]:
    found = []
    for n in (5, 20):
        found.append(Arm("1a", f"ADMM, N={n}", "admm", n, flags=(("eta", "0.5"),)))
        for gamma in (0.0, 0.5, 5.0, 50.0):
            flags = (("eta", "0.5"), ("gamma", gamma))
            found.append(Arm("1a", f"R-ADMM gamma={gamma:g}, N={n}", "radmm", n, flags=flags))
    return found


def _1b() -> list[Arm]:
    found = [Arm("1b", "R-ADMM eta=1", "radmm")]
    for step in range(1, 6):
        growth = tuple(1 + step * rate for rate in RATES_1B)
        flags = (("dual_step", "own"), ("eta_cap", 1e9))
        found.append(Arm("1b", f"MR-ADMM {step}", "mradmm", flags=flags, eta=STARTS_1B, growth=growth))
    return found


def _1c() -> list[Arm]:
    growths = [1.01, 1.02, 1.03, 1.04, 1.05]
    return [Arm("1c", "R-ADMM eta=1", "radmm")] + [
        Arm("1c", f"MR-ADMM q={q:g}", "mradmm", flags=pure_penalty(q)) for q in growths
    ]


def _2() -> list[Arm]:
    grid = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.22, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
    return [Arm("2", f"{rho:g}", "admm", flags=(("rho", rho), ("eta", "0.5"))) for rho in grid]


def _3() -> list[Arm]:
    return [
        Arm("3", f"alpha={alpha:g} gamma={gamma:g}", "mradmm",
            flags=(*pure_penalty(1.01), ("gamma", gamma), ("alpha", str(alpha))))
        for alpha in (1.0, 2.0) for gamma in (0.1, 0.5, 1.0, 2.0, 5.0)
    ]  # fmt: skip


def _4() -> list[Arm]:
    found = []
    for alpha in (1.0, 2.0):
        found.append(Arm("4", f"alpha={alpha:g} q=1", "radmm", flags=(("alpha", str(alpha)),)))
        for q in (1.01, 1.02, 1.03, 1.04, 1.05):
            flags = (*pure_penalty(q), ("alpha", str(alpha)))
            found.append(Arm("4", f"alpha={alpha:g} q={q:g}", "mradmm", flags=flags))
    return found


def _5() -> list[Arm]:
    found = []
    for alpha in (2.0, 1.0, 0.5):
        tag, noise = f"alpha={alpha:g}", ("alpha", str(alpha))
        radmm_arm = Arm("5", f"{tag} R-ADMM", "radmm", flags=(noise,))
        bound = matched_bound(alpha)
        dvp = Arm("5", f"{tag} ADMM, dual-variable perturbation", "admm")
        pp = Arm("5", f"{tag} M-ADMM, penalty perturbation", "madmm", flags=pure_penalty(1.04))
        found += [
            Arm(**{**vars(dvp), "alpha": matched_alpha(dvp, bound)}),
            Arm(**{**vars(pp), "alpha": matched_alpha(pp, bound)}),
            radmm_arm,
            Arm("5", f"{tag} MR-ADMM", "mradmm", flags=(*pure_penalty(1.04), noise)),
            Arm("5", f"{tag} ADMM, half the iterations", "admm", iterations=25, flags=(noise,)),
        ]
        for label, name, iterations in (("R-ADMM eta=2 K=10", "radmm", 20), ("ADMM eta=2 K=10", "admm", 10)):
            short = Arm("5", f"{tag} {label}", name, iterations=iterations, flags=(("eta", "2"),))
            found.append(Arm(**{**vars(short), "alpha": matched_alpha(short, bound)}))
    return found


def matched_bound(alpha: float) -> float:
    """P of R-ADMM with eta = 1, K = 25 and this alpha, which the other arms of Fig. 5 are given too."""
    loaded = _data(5, RHO)
    weight = np.array([objective.scale for objective in loaded.node.problem.objectives])
    floor = RHO / 5 + 2 * loaded.node.degree[:, 0]
    return float(np.max(25 * 2 * weight * (1.4 * CURVATURE / floor + alpha)))
