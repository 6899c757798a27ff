"""What noise that is correlated over time could gain in gossip, at most and as far as a search finds it.

    python benchmarks/temporal.py --data adult a9a --graphs ring:16 er20 complete:16 --epsilons 0.1 1 4

A record takes part in each of K gradients, so it moves sum_t a_t g_t by D sum|a_t|, and no noise of this mu has a
deviation below D sum|a_t|/mu there; noise of its own in every step has D sqrt(K) |a|_2/mu.  For the plan that the rule
chooses without such noise, a follows from step, momentum and mean, one for each eigenvalue of W and curvature:

    limit   root of the quotient of both, squared, added up over all a as the forecast adds up what noise costs
    found   the same for one covariance X^-1 over the steps, its price sum |X_st|, by a search that knows a
    worth   by how much the forecast of the loss would be lower for it
"""

import argparse
import sys
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from distadmm import radmm
from distadmm.methods.consensus import forecast
from distadmm.methods.gossip import private, rule
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

Array = np.ndarray


def plan(data: str, graph: str, epsilon: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What the rule was given, and what it chose."""
    kept: list[Any] = []
    choose = rule.choose

    def noting(*given: Any) -> Any:
        kept.extend((given, choose(*given)))
        return kept[1]

    flags = {"data": data, "topology": graph, "epsilon": epsilon, "adjacency": "replace", "rng": "simulation"}
    stated = {"stated": "bounds"} if data not in ("adult", "tiny") else {}
    rule.choose = noting
    try:
        private.plan_of(prepare(radmm.configure("gossip", **flags, **stated), World()))
    finally:
        rule.choose = choose
    return kept[0], kept[1]


def reached(given: tuple[Any, ...], chosen: tuple[Any, ...]) -> Array:
    """a of each eigenvalue and curvature, a column each, as long as what its noise costs."""
    algorithm, facts, d, values, _, steps, *_ = given
    use, noise, _ = chosen
    h, lam = forecast.modes(facts, d)[0] / facts.weight, values[:, None]
    p, x = forecast.Course(steps, 0.0, power=use.after.power).weights, np.zeros((len(lam), len(h)))
    kept, seen = algorithm.starts(x), []
    for t in range(steps):
        x, kept = algorithm.advance(
            x, kept, algorithm.bent(h * x + (t == 0), h, use), lambda rows: lam * rows, use
        )
        seen.append(x)
    later = np.array([np.append(p[s:], np.zeros(s)) for s in range(steps)])
    a = np.tensordot(later, np.stack(seen), axes=1) * lam**use.after.rounds
    return (a * np.sqrt(0.5 * d / len(h) * h * noise.shares[:, None])).reshape(steps, -1)


def found(a: Array) -> float:
    """The least trace(a'X^-1 a) sum |X_st| that a search ends at, beside that of X = I."""
    steps, lower = len(a), np.tril_indices(len(a))
    u, s, _ = np.linalg.svd(a, full_matrices=False)
    a = u * s

    def cost(entries: Array, round_off: float) -> tuple[float, Array]:
        L = np.zeros((steps, steps))
        L[lower] = entries
        X = L @ L.T
        y = cho_solve(cho_factor(X, lower=True), a)
        noise, sizes = float((a * y).sum()), np.sqrt(X**2 + round_off**2)
        slope = X / sizes / sizes.sum() - y @ y.T / noise
        return float(np.log(noise) + np.log(sizes.sum())), (2 * slope @ L)[lower]

    values, vectors = np.linalg.eigh(a @ a.T)
    root = (vectors * np.sqrt(np.maximum(values, 0) + 1e-3 * values.mean())) @ vectors.T
    best = np.log((a**2).sum() * steps)
    for start in (np.eye(steps), np.linalg.cholesky(root / root.diagonal().mean())):
        entries = start[lower]
        for round_off in (1e-3, 1e-4, 1e-5):
            entries = minimize(cost, entries, (round_off,), "L-BFGS-B", jac=True, options={"maxiter": 400}).x
        best = min(best, cost(entries, 0.0)[0])
    return float(np.exp(best) / (a**2).sum() / steps)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["adult", "a9a"])
    parser.add_argument("--graphs", nargs="+", default=["ring:16", "er20", "complete:16"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0, 4.0])
    options = parser.parse_args()
    print("data,graph,epsilon,limit,found,worth,forecast")
    for data in options.data:
        for graph in options.graphs:
            for epsilon in options.epsilons:
                given, chosen = plan(data, graph, epsilon)
                a, sd = reached(given, chosen), given[4](chosen[0].clip)
                limit = (np.abs(a).sum(axis=0) ** 2).sum() / len(a) / (a**2).sum()
                one = found(a)
                worth = (1 - one) * sd**2 * (a**2).sum()
                words = f"{limit**0.5:.3f},{one**0.5:.3f},{worth:.5f},{chosen[2]:.5f}"
                print(f"{data},{graph},{epsilon:g},{words}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
