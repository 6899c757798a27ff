"""Figures 1-8 and Table I of Jin and Lai's paper: CSV, SVG, and a text that says what agrees and what does not.

python -m distadmm reproduce ias --figure 8

The conditional distribution of Fig. 1 is drawn and not printed; `gauss` stands in for it.  Every figure is made
at the paper's beta and at one where a mapping that says something can be best at all.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from distadmm import ias
from distadmm.flags import flag, flag_group
from distadmm.methods.ias import admm, certificate, ga, gba
from distadmm.methods.ias.inference import bells, stand_in
from distadmm.methods.ias.objective import Objective, random_starts
from distadmm.papers.command import PAPERS, Made, reproduce
from distadmm.papers.panels import Row
from distadmm.ranks.world import World
from distadmm.run.groups import Output

Item = tuple[Any, ...]

K, EPS, RHO = 11, 1e-4, 1.0  # |U| of the paper; its eps and rho are not stated
BETAS = {"2": (2.0, 0.6), "3": (2.0, 0.6), "4": (2.0, 0.6), "5": (2.0, 0.6), "7": (8.0, 0.6)}
GA_STEPS = {"4": (1e-4,), "5": (5e-5, 1e-2, 0.05, 0.5)}
ROUNDING, DRAWN = 1e-12, 75  # a fall of F is more; how many of them a curve shows beside its even steps
TABLE_STEPS = (0.05, 0.07, 0.1, 0.15, 0.2)  # of Table I
SIX = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
SIGNS = {"corrected": admm.CORRECTED, "as printed": admm.PRINTED}


def objective_of(measure: str, beta: float) -> Objective:
    return Objective(stand_in("gauss"), ias.measure(measure), beta)


def start_of(objective: Objective, seed: int = 0) -> np.ndarray:
    return random_starts(objective.problem, K, EPS, seed, [0], "uniform")[0]


@lru_cache(maxsize=64)
def optimum(measure: str, beta: float) -> float:
    """The best F known: certified at vanishing eps, the best found where eps binds."""
    found = ias.solve(stand_in("gauss"), measure, beta, K, eps=EPS, certify=True)
    assert found is not None  # one rank alone always has a result
    return found.F


@lru_cache(maxsize=8)
def beta_glob(measure: str) -> float:
    """From which beta on the best mapping of the stand-in says nothing."""
    return certificate.thresholds(objective_of(measure, 1.0)).beta_glob


def distribution() -> list[Row]:
    """Fig. 1: the stand-in for what the paper draws and does not print."""
    bells = enumerate(stand_in("gauss").P_YgS.tolist())
    return [{"s": s, "y": y, "p": p} for s, row in bells for y, p in enumerate(row)]


def inner(beta: float, sign: str, steps: int) -> list[Row]:
    """Fig. 2: the first inner loop of Algorithm 1."""
    objective = objective_of("js", beta)
    state, rows = admm.init(objective, start_of(objective)[None]), []
    for t in range(1, steps + 1):
        state = admm.inner_step(objective, state, RHO, EPS, sign=SIGNS[sign])
        seen = admm.look(objective, state, RHO)
        names = ("F_admm", "F", "lagrangian", "delta_l1", "lambda_l1")
        values = {name: float(value[0]) for name, value in zip(names, seen)}
        rows.append({"beta": beta, "sign": sign, "step": t, **values, "sum_P_U": float(state.P_U.sum())})
    return rows


def outer(measure: str, beta: float, steps: int, inner_steps: int) -> list[Row]:
    """Figs. 3 and 7: Algorithm 1's mapping after each outer step, and what gba makes of the same start."""
    objective = objective_of(measure, beta)
    P = start_of(objective)
    state = admm.init(objective, P[None])
    reached = [float(objective(P).F)]
    for _ in range(steps):
        for _ in range(inner_steps):
            state = admm.inner_step(objective, state, RHO, EPS)
        state = admm.outer_step(objective, state)
        reached.append(float(objective(state.P).F[0]))
    by_gba = float(gba.ascend(objective, P[None], EPS, iterations=5000).F[0])
    run, known = {"measure": measure, "beta": beta}, {"gba": by_gba, "optimum": optimum(measure, beta)}
    return [{**run, "step": step, "F": F, **known} for step, F in enumerate(reached)]


def gradient(beta: float, alpha: float, projection: str, iterations: int) -> list[Row]:
    """Figs. 4 and 5: gradient ascent from the same start, F at every 20th iteration and where it falls."""
    objective = objective_of("js", beta)
    how: dict[str, Any] = {"alpha": alpha, "projection": projection}
    length: dict[str, Any] = {"iterations": iterations, "tolerance": 0.0, "trace": True}
    run = ga.ascend(objective, start_of(objective)[None], EPS, **length, **how)
    F = np.array(run.history)[:, 0]
    best, fell = optimum("js", beta), np.flatnonzero(np.diff(F) < -ROUNDING)[:DRAWN].tolist()
    shown = sorted({*range(0, len(F), max(1, len(F) // 150)), *fell, *(k + 1 for k in fell)})
    return [{"beta": beta, **how, "iteration": k, "F": float(F[k]), "optimum": best} for k in shown]


def leakage(beta: float, method: str, repeats: int) -> list[Row]:
    """Fig. 6: E[d] of where each start ends; the paper counts a run that does not settle as 1."""
    objective = objective_of("js", beta)
    if method == "Algorithm 1":
        how: dict[str, Any] = {"inner": 40, "outer": 15, "eta": 1e-3, "eta_p": 1e-5}
        runs = [admm.run(objective, start_of(objective, seed), EPS, **how) for seed in range(repeats)]
        E = np.array([float(objective(run.state.P).E[0]) for run in runs])
        settled = np.array([run.converged for run in runs])
    else:
        P = random_starts(objective.problem, K, EPS, 0, range(repeats), "uniform")
        if method == "gba":
            run = gba.ascend(objective, P, EPS, iterations=3000)
        else:
            run = ga.ascend(objective, P, EPS, alpha=0.05, iterations=3000, projection=method.split()[1])
        E, settled = objective(run.P).E, run.converged
    counted = np.where(settled, E, 1.0)
    row: Row = {"beta": beta, "method": method, "runs": repeats, "settled": int(np.sum(settled))}
    seen = {"E_mean": np.mean(E), "E_least": np.min(E), "E_most": np.max(E)}
    seen["E_as_counted_in_the_paper"] = np.mean(counted)
    return [row | {name: float(value) for name, value in seen.items()}]


def alphabet(beta: float, n_y: int, size: int, restarts: int) -> list[Row]:
    """Fig. 8: the best F with |U| = size, from random starts and polished; |Y| by stretching the bells."""
    found = ias.solve(
        bells(n_y, 1.2, f"gauss {n_y}"), "js", beta, size, restarts=restarts, certify=size == n_y
    )
    assert found is not None
    upper = float("nan") if found.certificate is None else found.certificate.upper
    row = {"beta": beta, "Y": n_y, "U": size, "F": found.F, "E_d": found.E, "in_use": found.used}
    return [{**row, "upper_bound": upper}]


def table(beta: float, method: str, alpha: float, iterations: int) -> list[Row]:
    """Table I: Le Cam; where each method ends from one and the same start."""
    objective = objective_of("lc", beta)
    P = start_of(objective)
    if method == "Algorithm 1":
        run = admm.run(objective, P, EPS, inner=60, outer=15, eta=1e-4, eta_p=1e-6)
        F, settled, history = objective(run.state.P).F, np.array([run.converged]), []
    else:
        if method == "gba":
            climbed = gba.ascend(objective, P[None], EPS, iterations=5000)
        else:
            how: dict[str, Any] = {"alpha": alpha, "iterations": iterations, "projection": method.split()[1]}
            climbed = ga.ascend(objective, P[None], EPS, trace=True, **how)
        F, settled, history = climbed.F, climbed.converged, climbed.history
    drops = int((np.diff(history, axis=0) < -ROUNDING).sum()) if history else 0
    row = {"beta": beta, "method": method, "alpha": alpha, "F": float(F[0])}
    row |= {"settled": bool(settled[0]), "drops": drops}
    return [{**row, "optimum": optimum("lc", beta)}]


RUNS: dict[str, Callable[..., list[Row]]] = {
    "1": distribution, "2": inner, "3": outer, "4": gradient, "5": gradient, "6": leakage, "7": outer,
    "8": alphabet, "table1": table,
}  # fmt: skip
FIGURES = tuple(RUNS)


def items(figure: str, quick: bool) -> list[Item]:
    if figure == "1":
        return [()]
    if figure == "2":
        return [(beta, sign, 40 if quick else 120) for beta in BETAS["2"] for sign in SIGNS]
    if figure in ("3", "7"):
        measures = ("js",) if figure == "3" else ("js", "lc")
        length = (6, 20) if quick else (20, 60)
        return [(measure, beta, *length) for measure in measures for beta in BETAS[figure]]
    if figure in ("4", "5"):
        return list(product(BETAS[figure], GA_STEPS[figure], ga.PROJECTIONS, [500 if quick else 6000]))
    if figure == "6":
        betas = SIX[2::4] if quick else SIX
        many, few = (10, 1) if quick else (100, 3)
        batched = [(beta, m, many) for m in ("gba", *(f"GA {p}" for p in ga.PROJECTIONS)) for beta in betas]
        return batched + [(beta, "Algorithm 1", few) for beta in betas]
    if figure == "8":
        sizes = (1, 2, 3, 5, 8, 10) if quick else range(1, 16)
        shorter = () if quick else (6, 14)
        ten = [(beta, 10, size, 10 if quick else 60) for beta in (0.2, 0.6, 2.0) for size in sizes]
        return ten + [(0.2, n_y, size, 30) for n_y in shorter for size in range(1, n_y + 2)]
    methods = [("Algorithm 1", 0.0), ("gba", 0.0)]
    methods += [(f"GA {projection}", alpha) for projection in ga.PROJECTIONS for alpha in TABLE_STEPS]
    return [(beta, *method, 300 if quick else 3000) for beta in (2.0, 0.6) for method in methods]


@flag_group("reproduce ias")
class Options(Output):
    figure: str = flag("all", choices=("all", *FIGURES), help="which figure, or table1")
    quick: bool = flag(False, help="fewer starts, steps and betas: to see that it works")


def _rows(figure: str, item: Item) -> list[Row]:
    return RUNS[figure](*item)


def figures(options: Options, world: World) -> Iterator[Made]:
    from distadmm.papers.ias_figures import FIGURES as drawn

    for name in FIGURES if options.figure == "all" else (options.figure,):
        parts = world.share_out(partial(_rows, name), items(name, options.quick))
        title = "Table I" if name == "table1" else f"Figure {name}"
        yield title.lower().replace(" ", "-"), f"{title} of {PAPERS['ias']}", drawn[name], parts


main = reproduce("ias", __doc__, Options, figures)
