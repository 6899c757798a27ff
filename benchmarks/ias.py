# ruff: noqa: E402 - threads are set before numpy is imported
"""The mapping's methods beside each other: CPU seconds of this process, alternated in one run.

    python benchmarks/ias.py [--rounds 5] [--part rivals|admm|restarts|scaling|certificate|sweep] [--out FILE]

A ratio is the median over the rounds of the ratio of two times measured one after the other.  The problem is the
stand-in `gauss` (|S| 3, |Y| 10, |U| 11); "gap" is to the certified optimum at that eps.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from distadmm import ias
from distadmm.methods.ias import admm, cccp, gba
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.objective import Objective, random_starts

Row = dict[str, Any]
Array = np.ndarray
GAUSS, K, EPS = stand_in("gauss"), 11, 1e-6
BETAS = {"mi": 0.4, "js": 0.6, "lc": 0.6, "hellinger": 0.6}


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def objective_of(measure: str) -> Objective:
    return Objective(GAUSS, ias.measure(measure), BETAS[measure])


def by_slsqp(objective: Objective, P: Array, tolerance: float) -> float:
    n, p = P.shape[0], GAUSS.P_Y[:, None]

    def negative(x: Array) -> tuple[float, Array]:
        value = objective(x.reshape(n, K))
        return -float(value.F), -(p * value.g).ravel()

    rows = np.kron(np.eye(n), np.ones(K))
    found = minimize(
        negative,
        P.ravel(),
        jac=True,
        method="SLSQP",
        bounds=[(EPS, 1)] * P.size,
        constraints={"type": "eq", "fun": lambda x: rows @ x - 1, "jac": lambda x: rows},
        options={"ftol": tolerance, "maxiter": 1000},
    )
    return -float(found.fun)


def by_softmax(objective: Objective, P: Array, tolerance: float) -> float:
    """L-BFGS on logits: p(u|y) = eps + (1 - |U| eps) softmax(z)."""
    n, p, room = P.shape[0], GAUSS.P_Y[:, None], 1 - K * EPS

    def negative(z: Array) -> tuple[float, Array]:
        x = softmax(z.reshape(n, K), axis=1)
        value = objective(EPS + room * x)
        pull = p * value.g * room
        return -float(value.F), -(x * (pull - (x * pull).sum(1, keepdims=True))).ravel()

    options = {"ftol": tolerance, "gtol": 1e-12, "maxiter": 20_000, "maxfun": 40_000}
    found = minimize(negative, np.log(P).ravel(), jac=True, method="L-BFGS-B", options=options)
    return -float(found.fun)


def by_gba(objective: Objective, P: Array, tolerance: float) -> float:
    return float(gba.ascend(objective, P[None], EPS, tolerance=tolerance, iterations=20_000).F[0])


def by_cccp(objective: Objective, P: Array, tolerance: float) -> float:
    return float(cccp.ascend(objective, P[None], EPS, tolerance=tolerance).F[0])


RIVALS: dict[str, tuple[Callable[[Objective, Array, float], float], float]] = {
    "gba": (by_gba, 1e-9),
    "SLSQP": (by_slsqp, 1e-9),
    "L-BFGS on softmax": (by_softmax, 1e-12),
    "cccp": (by_cccp, 1e-9),
}


def part_rivals(rounds: int) -> list[Row]:
    """One start, each method to its own end; as many starts as rounds, the paper's uniform ones."""
    rows = []
    for measure in BETAS:
        objective = objective_of(measure)
        best = ias.solve(GAUSS, measure, BETAS[measure], K, eps=EPS, certify=True).F
        times: dict[str, list[float]] = {name: [] for name in RIVALS}
        gaps: dict[str, list[float]] = {name: [] for name in RIVALS}
        for seed in range(rounds):
            P = random_starts(GAUSS, K, EPS, seed, [0], "uniform")[0]
            for name, (method, tolerance) in RIVALS.items():
                seconds, F = cpu(lambda m=method, t=tolerance, P=P, o=objective: m(o, P, t))
                times[name].append(seconds)
                gaps[name].append(best - F)
        for name in RIVALS:
            over_gba = np.array(times[name]) / np.array(times["gba"])
            rows.append(
                {
                    "measure": measure,
                    "method": name,
                    "CPU ms": 1e3 * float(np.median(times[name])),
                    "ratio to gba": float(np.median(over_gba)),
                    "median gap": float(np.median(gaps[name])),
                    "worst gap": float(np.max(gaps[name])),
                }
            )
    return rows


def _until(objective: Objective, target: float, P: Array, rho: float, limit: float) -> tuple[float, float]:
    """CPU seconds of Algorithm 1 (40 inner steps an outer one) until F of its mapping reaches the target."""
    begun = time.process_time()
    state, F = admm.init(objective, P[None]), -np.inf
    while target > F and time.process_time() - begun < limit:
        for _ in range(40):
            state = admm.inner_step(objective, state, rho, EPS)
        state = admm.outer_step(objective, state)
        F = float(objective(state.P).F[0])
    return time.process_time() - begun, F


def _gba_until(objective: Objective, target: float, P: Array) -> tuple[float, float]:
    """CPU seconds of as many gba steps (in tens) as reach the target; their number is found beforehand."""
    F, steps = -np.inf, 0
    while target > F and steps < 2000:
        steps += 10
        F = float(gba.ascend(objective, P[None], EPS, iterations=steps, tolerance=0).F[0])
    return cpu(lambda: gba.ascend(objective, P[None], EPS, iterations=steps, tolerance=0))[0], F


def part_admm(rounds: int) -> list[Row]:
    """To 1e-4 of the optimum from the same start: gba, and Algorithm 1 with the corrected sign at three rho."""
    rows = []
    for measure in ("mi", "js"):
        objective = objective_of(measure)
        target = ias.solve(GAUSS, measure, BETAS[measure], K, eps=EPS, certify=True).F - 1e-4
        for rho in (0.1, 0.3, 1.0):
            ratios, seconds, reached = [], [], 0
            for seed in range(rounds):
                P = random_starts(GAUSS, K, EPS, seed, [0], "uniform")[0]
                ours, F = _gba_until(objective, target, P)
                if target > F:
                    continue  # this start leads gba to another optimum
                theirs, F_theirs = _until(objective, target, P, rho, limit=20.0)
                ratios.append(theirs / ours)
                seconds.append(theirs)
                reached += target <= F_theirs
            rows.append(
                {
                    "measure": measure,
                    "rho": rho,
                    "starts": len(ratios),
                    "reached by ADMM": reached,
                    "CPU s of ADMM": float(np.median(seconds)),
                    "ratio ADMM / gba": float(np.median(ratios)),
                }
            )
    return rows


def part_restarts(rounds: int) -> list[Row]:
    """100 starts in one batch against one start; the mean over 20 single starts, default settings."""
    rows = []
    for measure, beta in BETAS.items():
        for polish in (False, True):

            def solve(
                restarts: int, seed: int, polish: bool = polish, beta: float = beta, f: str = measure
            ) -> Any:
                return ias.solve(GAUSS, f, beta, K, restarts=restarts, seed=seed, polish=polish)

            solve(1, 0)
            ratios = []
            for _ in range(rounds):
                one = np.mean([cpu(lambda s=s: solve(1, s))[0] for s in range(20)])
                hundred, _ = cpu(lambda: solve(100, 0))
                ratios.append(hundred / one)
            rows.append(
                {
                    "measure": measure,
                    "polished": polish,
                    "one, CPU ms": 1e3 * float(one),
                    "hundred / one": float(np.median(ratios)),
                }
            )
    return rows


def part_scaling(rounds: int) -> list[Row]:
    """One gba step at |Y| = |U| = N; the exponent against the size before."""
    rows: list[Row] = []
    for N in (10, 30, 100, 300, 1000):
        rng = np.random.default_rng(N)
        problem = Inference(np.full(3, 1 / 3), rng.dirichlet(np.ones(N), size=3))
        objective = Objective(problem, ias.measure("js"), 0.6)
        P = random_starts(problem, N, EPS, 0, [0], "uniform")
        steps = max(3, 20_000 // N)

        def run(steps: int = steps, objective: Objective = objective, P: Array = P) -> Any:
            return gba.ascend(objective, P, EPS, iterations=steps, tolerance=-1.0)

        run(3)
        per_step = float(np.median([cpu(run)[0] for _ in range(rounds)])) / steps
        row = {"N": N, "CPU ms a step": 1e3 * per_step, "exponent": float("nan")}
        if rows:
            row["exponent"] = float(
                np.log(1e3 * per_step / rows[-1]["CPU ms a step"]) / np.log(N / rows[-1]["N"])
            )
        rows.append(row)
    first, last = rows[0], rows[-1]
    rise = np.log(last["CPU ms a step"] / first["CPU ms a step"]) / np.log(last["N"] / first["N"])
    rows.append({"N": "10 to 1000", "CPU ms a step": float("nan"), "exponent": float(rise)})
    return rows


def part_certificate(rounds: int) -> list[Row]:
    """Designing with and without a certificate, and what it proves."""
    rows = []
    for measure, beta in BETAS.items():
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for certify in (False, True):
                seconds, found = cpu(
                    lambda c=certify, f=measure, b=beta: ias.solve(GAUSS, f, b, K, certify=c)
                )
                times[certify].append(seconds)
        rows.append(
            {
                "measure": measure,
                "plain, CPU s": float(np.median(times[False])),
                "certified, CPU s": float(np.median(times[True])),
                "proved gap": found.certificate.gap,
                "simplices": found.certificate.simplices,
            }
        )
    return rows


def part_sweep(rounds: int) -> list[Row]:
    """18 betas: warm starts in both directions (before any certificate) against 30 starts at every beta."""
    rows = []
    for measure in BETAS:
        curve = ias.sweep(GAUSS, measure, points=18, certify=False)
        sure = ias.sweep(GAUSS, measure, points=18, certify=True)
        cold = [ias.solve(GAUSS, measure, point.beta, K, restarts=30, polish=False) for point in curve.points]
        rows.append(
            {
                "measure": measure,
                "iterations, 30 starts / warm": sum(int(d.iterations.sum()) for d in cold) / curve.iterations,
                "largest deficit, warm": max(s.F - w.F for s, w in zip(sure.points, curve.points)),
                "largest deficit, 30 starts": max(s.F - d.F for s, d in zip(sure.points, cold)),
                "certified points": sum(point.certified for point in sure.points),
            }
        )
    return rows


PARTS = {
    "rivals": part_rivals,
    "admm": part_admm,
    "restarts": part_restarts,
    "scaling": part_scaling,
    "certificate": part_certificate,
    "sweep": part_sweep,
}


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(rows: list[Row]) -> str:
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(row[name]) for name in head) + " |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the rows as JSON")
    given = parser.parse_args()
    found = {}
    for name in [given.part] if given.part else PARTS:
        rows = PARTS[name](given.rounds)
        found[name] = rows
        print(f"\n**{name}**: {PARTS[name].__doc__}\n\n{table(rows)}", flush=True)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
