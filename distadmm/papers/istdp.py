"""ISTDP in numbers: the experiments that Yuan and Peng (2023) announce and do not report.

    python -m distadmm reproduce istdp --out DIR                        everything; a few minutes
    python -m distadmm reproduce istdp --figure budget --seeds 3

The paper proves and does not measure, so there is no figure of it to match: problems, clipping norms and steps here
are this project's.  Every bound holds for the schedule that was drawn; all noise is a simulation, a seed repeats it.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from distadmm import istdp
from distadmm.data import rows as synthetic
from distadmm.data.source import open_source
from distadmm.errors import require
from distadmm.flags import flag, flag_group
from distadmm.methods.istdp import printed, private
from distadmm.papers.command import Made, reproduce
from distadmm.papers.istdp_figures import FIGURES as DRAWN
from distadmm.papers.panels import Row
from distadmm.privacy.accounting import gaussian
from distadmm.problems.concave import MCP
from distadmm.problems.losses import Logistic
from distadmm.ranks.world import World
from distadmm.run.groups import Output

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA, T = 1e-5, 50
FIGURES = ("accounting", "attack", "nonprivate", "budget", "adult")


@flag_group("reproduce istdp")
class Options(Output):
    figure: str = flag("all", help=f"all, or one of {', '.join(FIGURES)}", choices=("all", *FIGURES))
    seeds: int | None = flag(None, help="problems and noises (default: 5, with --quick 1)", at_least=1)
    quick: bool = flag(False, help="one seed, and said on the figure")


# -- the parts: items, and one row from each ----------------------------------------------------------------


def accounting(epsilon: float) -> Row:
    """sigma / Delta that T releases need, by Theorem 3.3 and exactly; and what the theorem's noise is worth."""
    paper = printed.noise_scale(epsilon, DELTA, T, 0.5)
    exact = gaussian.gaussian_noise_multiplier(epsilon, DELTA, T)
    worth = gaussian.epsilon(math.sqrt(T) / paper, DELTA)
    noise = {"epsilon": epsilon, "paper": paper, "exact": exact}
    return {**noise, "ratio": paper / exact, "true_epsilon_of_paper": worth}


def attack(item: tuple[str, int, float]) -> Row:
    """A lower bound on the true delta of Algorithm 1 as printed, T = 2, epsilon = 1; claimed: 1e-5."""
    kind, n, longest = item
    step = kind == "step"
    bound = printed.step_delta(n, longest, 1.0, DELTA) if step else printed.search_delta(n, start=1.0)
    return {"leak": kind, "rows": n, "alpha_max": longest, "delta_at_least": bound}


_PROBLEMS = (
    *(("squared", 150, 0.2, 3.0), ("squared", 500, 0.15, 3.0)),
    *(("logistic", 500, 0.03, 30.0), ("logistic", 2000, 0.02, 30.0)),
)


def nonprivate(item: tuple[tuple[str, int, float, float], int]) -> Row:
    """Every penalty at the same lambda, on one problem."""
    (loss, n, lam, alpha), seed = item
    problem = synthetic.problem(loss, n, seed=seed)
    row: Row = {"loss": loss, "rows": n, "lambda": lam, "alpha": alpha, "seed": seed}
    error = problem.excess if loss == "squared" else problem.disagreement
    for name in ("mcp", "scad", "capped-l1", "l1"):
        found = istdp.solve(problem.X, problem.y, loss=loss, penalty=name, lam=lam, alpha=alpha)
        require(found.converged, f"{name} on {loss}, {n} rows, seed {seed} did not converge")
        row |= {f"{name} f1": problem.support_f1(found.theta), f"{name} error": error(found.theta)}
        if name == "mcp":
            bare = istdp.solve(problem.X, problem.y, loss=loss, lam=lam, alpha=alpha, newton=False)
            row |= {"iterations": found.iterations, "iterations without Newton": bare.iterations}
            row |= {"objective": found.objective, "objective without Newton": bare.objective}
    return row


_BUDGET: dict[str, dict[str, Any]] = {
    "lambda by rule": {},
    "lambda 0.02": {"lam": 0.02},
    "composition of Theorem 3.3": {"paper": True, "lam": 0.02},
}


def budget(item: tuple[int, str, float, int]) -> Row:
    """Support and accuracy of one private run on made-up rows: C = 4, noisy steps in [1, 12]."""
    n, variant, epsilon, seed = item
    problem = synthetic.problem("logistic", n, seed=seed)
    row: Row = {"rows": n, "variant": variant, "epsilon": epsilon, "seed": seed}
    if variant == "as printed":
        found = istdp.solve_printed(
            problem.X, problem.y, epsilon=epsilon, delta=DELTA, adjacency="add-remove", bound=4.0,
            lam=0.02, iterations=T, seed=seed,
        )  # fmt: skip
    else:
        settings = dict(_BUDGET[variant])
        worth = accounting(epsilon)["true_epsilon_of_paper"] if settings.pop("paper", False) else epsilon
        found = istdp.solve_private(
            problem.X, problem.y, epsilon=worth, delta=DELTA, adjacency="replace", clip=4.0, shortest=1.0,
            longest=12.0, iterations=T, seed=seed, **settings,
        )  # fmt: skip
    row |= {"f1": problem.support_f1(found.theta), "accuracy": problem.accuracy(found.theta)}
    return row | {"bayes": problem.bayes_accuracy, "lambda": found.plan.lam, "stuck": len(found.stuck)}


_ADULT: dict[str, dict[str, Any]] = {
    "noisy steps in [4, 80]": {"shortest": 4.0, "longest": 80.0},
    "fixed step 16": {"rule": "fixed", "first": 16.0},
    "fixed step 4": {"rule": "fixed", "first": 4.0},
    "lambda by rule": {"lam": None, "alpha": None},
    "composition of Theorem 3.3": {"paper": True},
}


@lru_cache(maxsize=1)
def _adult() -> tuple[Any, Any, Any, Any]:
    source = open_source("adult")
    return (*source.everything(), *source.test())  # type: ignore[attr-defined,misc]


def adult(item: tuple[str, float, int]) -> Row:
    """Test accuracy of one private run on Adult, C = 1; lambda = 2e-4 and alpha = 2000 unless by rule."""
    variant, epsilon, seed = item
    X, y, X_test, y_test = _adult()
    how: dict[str, Any] = {"delta": DELTA, "adjacency": "replace", "iterations": T, "seed": seed}
    if variant == "not private":
        theta = istdp.solve(X, y, lam=2e-4, alpha=2000.0, iterations=1500).theta
    elif variant == "as printed":
        theta = istdp.solve_printed(X, y, epsilon=epsilon, lam=2e-4, alpha=2000.0, **how).theta
    elif variant == f"no noise, T = {T}":
        exact, start = private.ClippedGradient(X, y, Logistic(), 1.0, len(y)), np.zeros(X.shape[1])
        iterates = private.iterate(lambda k, at: exact(at), start, MCP(2e-4, 2000.0), private.NoisySteps())
        theta = list(islice(iterates, T))[-1].theta
    else:
        settings: dict[str, Any] = {"lam": 2e-4, "alpha": 2000.0, **_ADULT[variant]}
        worth = accounting(epsilon)["true_epsilon_of_paper"] if settings.pop("paper", False) else epsilon
        theta = istdp.solve_private(X, y, epsilon=worth, **how, **settings).theta
    accuracy = float((np.where(X_test @ theta > 0, 1.0, -1.0) == y_test).mean())
    of = {"variant": variant, "epsilon": epsilon, "seed": seed}
    return {**of, "accuracy": accuracy, "nonzeros": int(np.count_nonzero(theta))}


def items(figure: str, seeds: int) -> list[Any]:
    """What a part consists of; each item gives one row, whoever works on it."""
    each = range(seeds)
    if figure == "accounting":
        return list(EPSILONS)
    if figure == "attack":
        steps = [("step", n, longest) for n in (100, 1000, 10_000) for longest in (1e4, 1e6)]
        return steps + [("search", n, 1.0) for n in (20, 100, 1000, 10_000)]
    if figure == "nonprivate":
        return [(problem, seed) for problem in _PROBLEMS for seed in each]
    if figure == "budget":
        sound = [(n, v, e, s) for n in (4000, 20_000) for v in _BUDGET for e in EPSILONS for s in each]
        return sound + [(20_000, "as printed", 1.0, s) for s in each]
    runs = [(v, e, s) for v in _ADULT for e in EPSILONS for s in each]
    extra = [("not private", math.inf, 0), (f"no noise, T = {T}", math.inf, 0)]
    return [*runs, *extra, ("as printed", 1.0, 0)]


PARTS: dict[str, Callable[[Any], Row]] = dict(zip(FIGURES, (accounting, attack, nonprivate, budget, adult)))


def figures(options: Options, world: World) -> Iterator[Made]:
    for figure in FIGURES if options.figure == "all" else (options.figure,):
        rows = world.share_out(PARTS[figure], items(figure, options.seeds or (1 if options.quick else 5)))
        yield figure, f"ISTDP: {figure}", DRAWN[figure], [rows or []]


main = reproduce("istdp", __doc__, Options, figures)
