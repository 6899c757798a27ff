# ruff: noqa: E402 - threads are set before numpy is imported
"""The funnel's methods beside each other: CPU seconds of this process, alternated in one run.

    python benchmarks/funnel.py [--rounds 7] [--part lp|iteration|starts|nlp|adult|certificate] [--out FILE]

A ratio is the median over the rounds of the ratio of two times measured one after the other.  Two tensor forms of
an iteration stand beside the matrix form: as printed (plain floating point, which underflows to NaN), and in
logarithms (which can be run to the end, as the matrix form can).
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

from distadmm import funnel
from distadmm.methods.funnel import aem, bound, curve, literal, lp, nlp, perfect, starts
from distadmm.methods.funnel.model import Array, Joint, informations
from distadmm.methods.funnel.solvers import Effort

Row = dict[str, Any]
SHAPES = ((3, 4, 3), (16, 17, 4), (160, 161, 10), (160, 161, 40))  # M, N, K
SHARE = 0.8  # R / H(X)
CONVERGED = 20_000  # iterations an AEM run may take to its rest


def cpu(work: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    begun = time.process_time()
    for _ in range(repeat):
        result = work()
    return (time.process_time() - begun) / repeat, result


def alternated(arms: dict[str, Callable[[], Any]], rounds: int, repeat: int = 1) -> dict[str, list[float]]:
    """CPU seconds of every arm in every round."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for work in arms.values():
        work()
    for _ in range(rounds):
        for name, work in arms.items():
            times[name].append(cpu(work, repeat)[0])
    return times


def ratio(times: dict[str, list[float]], over: str, under: str) -> float:
    return float(np.median(np.array(times[over]) / np.array(times[under])))


def part_lp(rounds: int) -> list[Row]:
    """One run of lp, all of it, against one run of AEM from one start to its rest, on heart (joint + 1e-3)."""
    joint = funnel.problem("heart", perturb=1e-3)
    rows = []
    for share in (0.7, 0.8, 0.9):
        R = share * joint.HX

        def one_lp(R: float = R) -> float:
            known = perfect.solve(joint)
            found = lp.run(joint, R, known, 0, 0, lp.usual(known))
            return informations(joint, lp.assemble(joint, R, found.w))[0]

        def one_aem(R: float = R, index: int = 0) -> tuple[float, int]:
            v = starts.feasible(joint, R, joint.M + 1, 0, range(index, index + 1))
            ends = starts.run(joint, v, R, CONVERGED, 1e-11)
            return float(ends.state.leak[0]), ends.iterations

        times = alternated({"lp": one_lp, "aem": one_aem}, rounds)
        runs = [one_aem(index=k) for k in range(10)]
        costs = [cpu(lambda k=k: one_aem(index=k))[0] for k in range(10)]
        rows.append(
            {
                "R/H(X)": share,
                "lp/aem CPU": ratio(times, "lp", "aem"),
                "lp/median of 10 aem": float(np.median(times["lp"]) / np.median(costs)),
                "lp ms": 1e3 * float(np.median(times["lp"])),
                "aem iterations (median of 10)": int(np.median([n for _, n in runs])),
                "I(S;Y) lp": one_lp(),
                "I(S;Y) aem, median of 10": float(np.median([leak for leak, _ in runs])),
                "I(S;Y) aem, best of 10": min(leak for leak, _ in runs),
            }
        )
    return rows


def log_tensor(joint: Joint, logu: Array, R: float, Lambda: Array) -> tuple[Array, float]:
    """An iteration with the tensor q in logarithms: log u after it, and the objective (3) there.

    The matrix form gives I(S;Y) of every iterate too, which is this objective less a constant.
    """
    s = joint.S.T[:, None, :]
    logs = np.log(s)
    logr = np.logaddexp.reduce(logu, axis=0)
    logq = logs + logu[:, :, None]
    logq -= logq.max(axis=0)
    logq -= np.log(np.exp(logq).sum(axis=0))
    phi = (s * (logq - logs)).sum(axis=2)
    base, logw = (phi + logr)[None], (logu - logr)[None]
    room = aem.Room(base.shape)
    aem.root(base, logw, Lambda, joint, R, room)
    logu = room.rows.z[0] + (np.log(joint.p) - np.log(room.rows.total[0]))[:, None]
    u = np.exp(logu)
    logr = np.log(u.sum(axis=0))
    logq = logs + logu[:, :, None]
    logq -= logq.max(axis=0)
    logq -= np.log(np.exp(logq).sum(axis=0))
    value = (s * u[:, :, None] * (logs + (logu - logr)[:, :, None] - logq)).sum()
    return logu, float(value) + joint.HS


def printed_tensor(joint: Joint, u: Array, r: Array, R: float) -> float:
    """The loop of Algorithm 1 in plain floating point, and the objective (3) after it."""
    u, _, r, _ = literal.iteration(joint, u, u / r, r, R)
    s = joint.S.T[:, None, :]
    q = s * u[:, :, None]
    objective = q * (np.log(q) - np.log(r)[:, None] - np.log(q / q.sum(axis=0)))
    return float(objective.sum()) + joint.HS


def matrices(joint: Joint, state: aem.State, R: float, iterations: int, room: aem.Room) -> aem.State:
    for _ in range(iterations):
        state = aem.step(joint, state, R, room=room)
    return state


def part_iteration(rounds: int) -> list[Row]:
    """One iteration, with I(S;Y) of its result, by matrices against the M x N x K tensor."""
    return [_iteration(*shape, rounds) for shape in SHAPES]


def _iteration(M: int, N: int, K: int, rounds: int) -> Row:
    rng = np.random.default_rng(0)
    joint = Joint(rng.dirichlet(np.ones(K), M).T, rng.dirichlet(np.ones(M)))
    R = SHARE * joint.HX
    room = aem.Room((1, M, N))
    state = matrices(joint, aem.start(joint, starts.feasible(joint, R, N, 0, range(1))), R, 60, room)
    state = aem.State(*(np.array(part) for part in state))  # a copy: the room is used again
    logu, u = state.logu[0], np.exp(state.logu[0])
    r = u.sum(axis=0)
    after = aem.step(joint, state, R)
    tensor, value = log_tensor(joint, logu, R, aem.expected(state))
    arms = {
        "matrix": lambda: matrices(joint, state, R, 10, room),
        "printed": lambda: [printed_tensor(joint, u, r, R) for _ in range(10)],
        "logarithms": lambda: [log_tensor(joint, logu, R, aem.expected(state)) for _ in range(10)],
    }
    with np.errstate(all="ignore"):
        times = alternated(arms, rounds, repeat=5 if M < 100 else 1)
    return {
        "(M, N, K)": f"({M}, {N}, {K})",
        "tensor in logarithms / matrix": ratio(times, "logarithms", "matrix"),
        "tensor as printed / matrix": ratio(times, "printed", "matrix"),
        "matrix ms": 100 * float(np.median(times["matrix"])),
        "largest difference of u": float(np.abs(np.exp(after.logu[0]) - np.exp(tensor)).max()),
        "of I(S;Y)": abs(float(after.leak[0]) - value),
    }


def part_starts(rounds: int) -> list[Row]:
    """Blocks of starts iterated together against one start."""
    rows = []
    for name in ("synthetic-unif", "heart"):
        joint = funnel.problem(name)
        R, N = SHARE * joint.HX, joint.M + 1

        def starts_of(count: int, joint: Joint = joint, R: float = R, N: int = N) -> list[float]:
            blocks = [range(k, min(k + starts.BLOCK, count)) for k in range(0, count, starts.BLOCK)]
            ends = [starts.from_starts(joint, R, N, 0, block, 200, 0.0) for block in blocks]
            return [float(leak) for end in ends for leak in end.state.leak]

        times = alternated({"30": lambda: starts_of(30), "1": lambda: starts_of(1)}, rounds)
        rows.append({"problem": name, "CPU of 30 starts / of one": ratio(times, "30", "1")})
    return rows


def part_nlp(rounds: int) -> list[Row]:
    """SLSQP from one start against one run of lp; it is stopped at 100 iterations on heart."""
    rows = []
    for name, iterations in (("synthetic-unif", 300), ("heart", 100)):
        joint = funnel.problem(name)
        R = SHARE * joint.HX

        def one_lp(joint: Joint = joint, R: float = R) -> float:
            known = perfect.solve(joint)
            found = lp.run(joint, R, known, 0, 0, lp.usual(known))
            return informations(joint, lp.assemble(joint, R, found.w))[0]

        def slsqp(joint: Joint = joint, R: float = R, n: int = iterations) -> float:
            return informations(joint, nlp.run(joint, R, joint.M + 1, 0, 0, n)[0])[0]

        times = alternated({"slsqp": slsqp, "lp": one_lp}, min(rounds, 3))
        rows.append(
            {
                "problem": name,
                "SLSQP/lp CPU": ratio(times, "slsqp", "lp"),
                "I(S;Y) SLSQP": slsqp(),
                "I(S;Y) lp": one_lp(),
            }
        )
    return rows


def part_adult(rounds: int) -> list[Row]:
    """Adult, joint + 1e-3: one run of lp (20 rounds) against three starts of AEM, 500 iterations each."""
    joint = funnel.problem("adult", perturb=1e-3)
    seconds, known = cpu(lambda: perfect.solve(joint))
    rows = []
    for share in (0.7, 0.8, 0.9):
        R = share * joint.HX
        lp_cpu, found = cpu(lambda R=R: lp.run(joint, R, known, 0, 0, lp.usual(known, 20)))
        aem_cpu, ends = cpu(
            lambda R=R: [starts.from_starts(joint, R, 161, 0, range(k, k + 1), 500, 0.0) for k in range(3)]
        )
        rows.append(
            {
                "R/H(X)": share,
                "lp s": lp_cpu,
                "three AEM s": aem_cpu,
                "I(S;Y) lp": informations(joint, lp.assemble(joint, R, found.w))[0],
                "I(S;Y) AEM, best of 3": min(float(end.state.leak[0]) for end in ends),
                "R0 s": seconds,
                "R0": known.R0,
            }
        )
    return rows


def part_certificate(rounds: int) -> list[Row]:
    """What a proof of optimality costs on heart (joint + 1e-3), with what it takes to complete the program."""
    joint = funnel.problem("heart", perturb=1e-3)
    known = perfect.solve(joint)
    rows = []
    for share in (0.62, 0.65, 0.7, 0.8, 0.9, 0.97):
        R = share * joint.HX
        found = lp.run(joint, R, known, 0, 0, lp.usual(known))
        seconds, (done, proof) = cpu(
            lambda R=R, found=found: curve.proved(joint, known, Effort(repeats=1), (R, found))
        )
        low = bound.lower(joint, R, done.at.alpha, done.at.slope, proof.excess)
        rows.append(
            {
                "R/H(X)": share,
                "I(S;Y) before": found.at.value,
                "I(S;Y)": done.at.value,
                "proven gap": done.at.value - low,
                "cells of the last proof": proof.cells,
                "s": seconds,
            }
        )
    return rows


PARTS = {
    "lp": part_lp,
    "iteration": part_iteration,
    "starts": part_starts,
    "nlp": part_nlp,
    "adult": part_adult,
    "certificate": part_certificate,
}


def markdown(rows: list[Row]) -> str:
    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(cell(v) for v in row.values()) + " |" for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = {}
    for name in given.part or PARTS:
        found[name] = PARTS[name](given.rounds)
        print(f"\n### {PARTS[name].__doc__}\n\n{markdown(found[name])}", flush=True)
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
