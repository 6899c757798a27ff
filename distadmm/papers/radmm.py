"""Figures 1-5 of the R-ADMM paper on Adult: CSV, SVG, and a text that says what agrees and what does not.

Adult, N = 5 or 20, C = 1750, rho = 0.22, logistic loss.  Private arms use the mechanisms as the paper prints
them (exact solves, no output noise), with seeded noise: they reproduce figures and guarantee nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from distadmm import radmm
from distadmm.errors import require
from distadmm.flags import flag, flag_group
from distadmm.methods.consensus import private as protect
from distadmm.methods.consensus import sizing
from distadmm.papers.command import Made, reproduce
from distadmm.papers.panels import Row
from distadmm.privacy.accounting import accountant
from distadmm.problems.consensus import Problem
from distadmm.ranks.world import World
from distadmm.run.groups import Output
from distadmm.run.observe import error_rate
from distadmm.run.running import unwritten
from distadmm.run.setup import Prepared, node_like, prepare

C, RHO, DELTA = 1750.0, 0.22, 1e-5
SHOWN, FAR = 50, 300  # iterations of the paper's plots; and until it shows whether a curve arrives
STARTS_1B = (1.0, 1.03, 1.02, 0.8, 1.01)
RATES_1B = (0.01, 0.005, 0.003, 0.015, 0.01)
GROWTHS = (1.01, 1.02, 1.03, 1.04, 1.05)
PLAIN, OPTIMUM, HALF = "ADMM, not private", "optimum", "ADMM, half the iterations"
DVP, PP = "ADMM, dual-variable perturbation", "M-ADMM, penalty perturbation"


FIGURES = ("1a", "1b", "1c", "2", "3", "4", "5")


@flag_group("reproduce radmm")
class Options(Output):
    figure: str | None = flag(None, help="which: 1a, 1b, 1c, 2, 3, 4 or 5", choices=FIGURES)
    all: bool = flag(False, help="every figure")
    quick: bool = flag(False, help="two runs a private curve instead of ten, and said on the figure")
    runs: int | None = flag(None, help="runs a private curve (default: 10, with --quick 2)", at_least=1)

    def __post_init__(self) -> None:
        require(self.figure or self.all, f"give --figure NAME ({', '.join(FIGURES)}) or --all")

    @property
    def seeds(self) -> int:
        return self.runs or (2 if self.quick else 10)


@dataclass(frozen=True)
class Arm:
    """One curve: an algorithm with its flags, on N nodes."""

    tag: str  # the panel; empty: in all of them
    label: str
    algorithm: str
    nodes: int = 5
    iterations: int = SHOWN
    flags: tuple[tuple[str, Any], ...] = ()
    eta: tuple[float, ...] = ()  # per node, in place of --eta
    growth: tuple[float, ...] = ()
    alpha: tuple[float, ...] = ()  # per node, in place of --alpha

    @property
    def private(self) -> bool:
        return bool(self.alpha) or "alpha" in dict(self.flags)


@lru_cache(maxsize=4)
def _data(nodes: int, rho: float) -> Prepared:
    config = radmm.configure("admm", data="adult", topology=f"er{nodes}", weight=C, rho=rho, eta="1")
    return prepare(config, World())


def ready(arm: Arm, seed: int = 0) -> Prepared:
    """A fresh run of the arm over rows that are read once."""
    flags: dict[str, Any] = {"rho": RHO, "eta": "1", **dict(arm.flags)}
    if arm.algorithm == "newton":
        del flags["eta"]
    if arm.private:
        flags |= {"adjacency": "replace", "form": "paper", "rng": "simulation"}
        flags.setdefault("alpha", "1")  # replaced by the table below
    config = radmm.configure(
        arm.algorithm, data="adult", topology=f"er{arm.nodes}", weight=C, iterations=arm.iterations, seed=seed, **flags
    )  # fmt: skip
    loaded = _data(arm.nodes, config.problem.rho)
    node = node_like(loaded.node, config, Problem(loaded.node.problem.objectives, config.problem.tolerance))
    for name, values in (("eta", arm.eta), ("eta_growth", arm.growth), ("alpha", arm.alpha)):
        if values:
            node.table[name] = np.array(values)
    description = {**loaded.description, "phases": config.algorithm.phases}
    return replace(loaded, config=config, node=node, description=description)


def trace(item: tuple[Arm, int]) -> list[Row]:
    """Run one arm with one seed: a row an iteration.  What is spent is the same for every seed, and told of seed 0."""
    arm, seed = item
    prepared = ready(arm, seed)
    plan = protect.plan_of(prepared)
    node, algorithm = protect.armed(prepared, plan, unwritten(prepared.config.run)), prepared.config.algorithm
    state = algorithm.init(node)
    losses = [node.problem.data_losses(state.f).mean()]
    for k in range(1, arm.iterations + 1):
        state = algorithm.step(k, state, node)
        losses.append(node.problem.data_losses(state.f).mean())
    test = prepared.source.test()
    assert test is not None
    error = error_rate(state.f.mean(axis=0), *test)
    of: Row = {"tag": arm.tag, "curve": arm.label, "nodes": arm.nodes, "seed": seed}
    rows = []
    for t, loss in enumerate(losses):
        P = (float("nan"), float("nan"))
        if plan is not None and seed == 0:
            P = spent(plan, t, tight=t % max(1, arm.iterations // 5) == 0)
        row = {"t": t, "L": float(loss), "test_error_at_end": error}
        rows.append({**of, **row, "P_published": P[0], "epsilon_tight": P[1]})
    return rows


def spent(plan: Any, t: int, tight: bool) -> tuple[float, float]:
    """What the node that spends most has spent after t iterations: P(t) of the paper, and epsilon at delta = 1e-5."""
    released = [release for release in plan.releases if release[0] <= t]
    nodes = sizing.plans_of(replace(plan.recipe, unverified=""), released)
    published = max(accountant.published_epsilon(list(each.events), "replace") for each in nodes)
    if not tight:
        return published, float("nan")
    return published, max(accountant.epsilon(each.events, DELTA, "replace") for each in dict.fromkeys(nodes))


def published(arm: Arm, alpha: Sequence[float]) -> np.ndarray:
    """The paper's total P of every node with these alphas."""
    plan = protect.plan_of(ready(replace(arm, alpha=tuple(alpha))))
    assert plan is not None
    nodes = sizing.plans_of(replace(plan.recipe, unverified=""), plan.releases)
    return np.array([accountant.published_epsilon(list(each.events), "replace") for each in nodes])


def matched(arm: Arm, bound: float) -> Arm:
    """The arm with those alpha_i with which every node spends `bound`; P is affine in alpha."""
    one, two = (published(arm, (alpha,) * arm.nodes) for alpha in (1.0, 2.0))
    return replace(arm, alpha=tuple((1 + (bound - one) / (two - one)).tolist()))


def pure_penalty(growth: float) -> tuple[tuple[str, Any], ...]:
    """eta(k) = q^k, as the paper's experiments grow it: without a cap."""
    return (("eta_growth", str(growth)), ("eta_cap", 1e9))


def arms(figure: str, seeds: int, quick: bool = False) -> list[tuple[Arm, int]]:
    """What a figure consists of, with the seeds of its private arms."""
    made = ARMS[figure]()
    if quick:
        made = [replace(arm, iterations=min(arm.iterations, 3 * SHOWN)) for arm in made]
    return [(arm, seed) for arm in made for seed in range(seeds if arm.private else 1)]


def _1a() -> list[Arm]:
    found, eta = [], ("eta", "0.5")
    for n in (5, 20):
        found.append(Arm(f"N = {n}", "ADMM", "admm", n, flags=(eta,)))
        for g in (0, 0.5, 5, 50):
            found.append(Arm(f"N = {n}", f"R-ADMM, gamma = {g:g}", "radmm", n, flags=(eta, ("gamma", g))))
    return found


def _1b() -> list[Arm]:
    own = (("dual_step", "own"), ("eta_cap", 1e9))
    found = []
    for step in range(1, 6):
        growth = tuple(1 + step * rate for rate in RATES_1B)
        least, most = step * min(RATES_1B), step * max(RATES_1B)
        label = f"MR-ADMM {step}: eta_i grows by {least:.1%} to {most:.1%} a solve"
        found.append(Arm("", label, "mradmm", iterations=FAR, flags=own, eta=STARTS_1B, growth=growth))
    return [*_constant(), *found]


def _1c() -> list[Arm]:
    grown = {q: f"MR-ADMM, q = {q:g}" for q in GROWTHS}
    growing = [Arm("", label, "mradmm", iterations=FAR, flags=pure_penalty(q)) for q, label in grown.items()]
    return [*_constant(), *growing]


def _constant() -> list[Arm]:
    return [Arm("", OPTIMUM, "newton", iterations=8), Arm("", "R-ADMM, eta = 1", "radmm", iterations=FAR)]


def _2() -> list[Arm]:
    grid = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.22, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
    return [Arm("", f"{rho:g}", "admm", flags=(("rho", rho), ("eta", "0.5"))) for rho in grid]


def _3() -> list[Arm]:
    return [Arm("", PLAIN, "admm")] + [
        Arm(f"alpha = {alpha}", f"MR-ADMM, gamma = {gamma:g}", "mradmm",
            flags=(*pure_penalty(1.01), ("gamma", gamma), ("alpha", str(alpha))))
        for alpha in (1, 2) for gamma in (0.1, 0.5, 1.0, 2.0, 5.0)
    ]  # fmt: skip


def _4() -> list[Arm]:
    found = [Arm("", PLAIN, "admm")]
    for alpha in (2, 1):
        tag, noise = f"alpha = {alpha}", ("alpha", str(alpha))
        found.append(Arm(tag, "R-ADMM, q = 1", "radmm", flags=(noise,)))
        found += [Arm(tag, f"MR-ADMM, q = {q:g}", "mradmm", flags=(*pure_penalty(q), noise)) for q in GROWTHS]
    return found


def _5() -> list[Arm]:
    found = [Arm("", PLAIN, "admm")]
    for alpha in (2, 1, 0.5):
        tag, noise = f"alpha = {alpha:g}", ("alpha", str(alpha))
        recycled = Arm(tag, "R-ADMM", "radmm", flags=(noise,))
        bound = float(published(recycled, (alpha,) * 5).max())
        found += [
            matched(Arm(tag, DVP, "admm"), bound),
            matched(Arm(tag, PP, "madmm", flags=pure_penalty(1.04)), bound),
            recycled,
            Arm(tag, "MR-ADMM", "mradmm", flags=(*pure_penalty(1.04), noise)),
            Arm(tag, HALF, "admm", iterations=25, flags=(noise,)),
        ]
        for start, name, iterations in (("R-ADMM", "radmm", 20), ("ADMM", "admm", 10)):
            arm = Arm(tag, f"{start}, eta = 2, K = 10", name, iterations=iterations, flags=(("eta", "2"),))
            found.append(matched(arm, bound))
    return found


ARMS = dict(zip(FIGURES, (_1a, _1b, _1c, _2, _3, _4, _5)))


def figures(options: Options, world: World) -> Iterator[Made]:
    from distadmm.papers.radmm_figures import FIGURES as drawn

    for name in FIGURES if options.all else (str(options.figure),):
        parts = world.share_out(trace, arms(name, options.seeds, options.quick))
        yield f"figure-{name}", f"Figure {name}", drawn[name], parts


main = reproduce("radmm", __doc__, Options, figures)
