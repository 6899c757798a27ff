# ruff: noqa: E402 - threads are set before numpy is imported
"""What accounting costs: compositions beside dp-accounting's, the first price of a mechanism, a filter's entry.

    python benchmarks/accounting.py [--rounds 7] [--out FILE]

Both sides run alternated in one process, on process time; the median of the rounds is shown.  "again": the same
mechanism was priced before, so its profile is at hand, as it is from the second price of a run on.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.privacy.accounting import accountant, gaussian, knorm, pld, profiles, rdp
from distadmm.privacy.accounting.accountant import (
    ORDERS,
    Gaussian,
    KNorm,
    ObjectivePerturbation,
    bounds,
    epsilon,
)

DELTA = 1e-5
COUNTS = (50, 1_000, 10_000)
PAPER = ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 8.2)
GAUSSIAN = Gaussian(9.689610525210778)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of process time, and the result."""
    begin = time.process_time_ns()
    found = work()
    return (time.process_time_ns() - begin) / 1e6, found


def forget() -> None:
    """As in a new process: no profile, curve or composition is at hand."""
    for cached in (
        profiles.pairs_of,
        profiles.base,
        pld._on_grid,
        pld._spread_of,
        rdp._single,
        accountant._epsilon,
        gaussian.discrete,
    ):
        cached.cache_clear()
    knorm._gauss_legendre.cache_clear()


def several(event: Any, count: int) -> Any:
    from dataclasses import replace

    return replace(event, count=count)


def theirs_pld(count: int) -> float:
    from dp_accounting.pld import privacy_loss_distribution as law

    one = law.from_gaussian_mechanism(GAUSSIAN.noise_multiplier, value_discretization_interval=1e-4)
    return one.self_compose(count).get_epsilon_for_delta(DELTA)


def theirs_rdp(count: int) -> float:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    event = dp_accounting.GaussianDpEvent(GAUSSIAN.noise_multiplier)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, count))
    return accountant.get_epsilon(DELTA)


def arms(count: int) -> dict[str, Callable[[], float]]:
    """Everything that is priced for `count` releases; each is a name and a price."""
    paper, gaussian = several(PAPER, count), several(GAUSSIAN, count)
    return {
        "Gaussian, exact": lambda: epsilon(gaussian, DELTA, "replace"),
        "Gaussian, own PLD": lambda: bounds(gaussian, DELTA, "replace").pld,
        "Gaussian, dp-accounting PLD": lambda: theirs_pld(count),
        "Gaussian, dp-accounting RDP": lambda: theirs_rdp(count),
        "objective perturbation, add/remove": lambda: epsilon(paper, DELTA, "add-remove"),
        "objective perturbation, replace-one": lambda: epsilon(paper, DELTA, "replace"),
    }


def compositions(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for count in COUNTS:
        for work in arms(count).values():
            work()  # imports and profiles
        times: dict[str, list[float]] = {name: [] for name in arms(count)}
        values: dict[str, float] = {}
        for _ in range(rounds):
            for name, work in arms(count).items():
                accountant._epsilon.cache_clear()  # composed anew, of profiles that are at hand
                spent, values[name] = timed(work)
                times[name].append(spent)
        for name, spent in times.items():
            rows.append({"what": name, "K": count, "ms": statistics.median(spent), "epsilon": values[name]})
    return rows


def first_prices(rounds: int) -> list[dict[str, Any]]:
    """A mechanism that was never seen before."""
    cases = {
        "objective perturbation d=105, replace-one": lambda: epsilon(several(PAPER, 50), DELTA, "replace"),
        "K-norm d=32,561": lambda: epsilon(KNorm(32_561, 10.0, 1.0, 50), DELTA, "replace"),
        "50 objective perturbations of growing penalty": lambda: epsilon(
            [several(PAPER, 1)] + [_growing(k) for k in range(1, 50)], DELTA, "replace"
        ),
    }
    rows = []
    for name, work in cases.items():
        work()
        spent = []
        for _ in range(rounds):
            forget()
            spent.append(timed(work)[0])
        rows.append({"what": name, "ms": statistics.median(spent)})
    return rows


def _growing(k: int) -> ObjectivePerturbation:
    return ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 0.2 + 8 * 1.02**k)


def filter_entry() -> dict[str, float]:
    """Microseconds of one on-line check: the curve of a known event, added, compared with the budget."""
    budget = rdp.rdp_budget(2.0, DELTA)
    total, repeats = np.zeros_like(ORDERS), 2_000
    PAPER.rdp(ORDERS, "replace")

    def entries() -> bool:
        nonlocal total
        inside = True
        for _ in range(repeats):
            total = total + PAPER.rdp(ORDERS, "replace")
            inside = bool(np.all(total <= budget))
        return inside

    with_curve, _ = timed(entries)
    each = PAPER.rdp(ORDERS, "replace")

    def additions() -> Any:
        spent = np.zeros_like(ORDERS)
        for _ in range(repeats):
            spent = spent + each
            np.all(spent <= budget)
        return spent

    bare, _ = timed(additions)
    return {
        "us with its curve looked up": 1e3 * with_curve / repeats,
        "us addition alone": 1e3 * bare / repeats,
    }


def markdown(found: dict[str, Any]) -> str:
    lines = ["| priced again | K | ms | epsilon(1e-5) |", "|---|---|---|---|"]
    lines += [
        f"| {r['what']} | {r['K']} | {r['ms']:.1f} | {r['epsilon']:.4f} |" for r in found["compositions"]
    ]
    lines += ["", "| priced for the first time | ms |", "|---|---|"]
    lines += [f"| {r['what']} | {r['ms']:.0f} |" for r in found["first"]]
    lines += ["", "| one entry of a Renyi filter | us |", "|---|---|"]
    lines += [f"| {name.removeprefix('us ')} | {value:.1f} |" for name, value in found["filter"].items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    try:
        import dp_accounting  # noqa: F401
    except ImportError:
        print(
            "benchmarks/accounting.py: needs dp-accounting: pip install 'distadmm[accounting]'",
            file=sys.stderr,
        )
        return 2
    found = {
        "compositions": compositions(given.rounds),
        "first": first_prices(given.rounds),
        "filter": filter_entry(),
    }
    print(markdown(found))
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
