# ruff: noqa: E402 - threads are set before numpy is imported
"""What `plan istdp` forecasts, beside what the same plans cost on the rows themselves.

    python benchmarks/plan_istdp.py [--epsilon 1] [a9a adult ...]

The rows are read here, and only here: the plan is made before.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse

import numpy as np

from distadmm.commands.plan_istdp import Options, best_model, forecasts, mean_loss, simulate
from distadmm.data.rows import load
from distadmm.problems.losses import Logistic
from distadmm.ranks.world import World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["a9a", "adult"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    asked = parser.parse_args()
    for name in asked.tables:
        found = forecasts(Options(epsilon=asked.epsilon, adjacency="replace", data=name), World()) or []
        chosen = min(found, key=lambda one: one.excess)
        rows = load(name, loss=Logistic(), row_norm=1.0, seed=0)
        X, y = rows.X, np.where(rows.y > 0, 1.0, -1.0)
        least = mean_loss(X, y, best_model(X, y))
        print(f"{name}: {len(y)} rows, best loss {least:.4f}")
        for one in found:
            if one.plan.clip == chosen.plan.clip or one.plan.iterations == chosen.plan.iterations:
                loss = mean_loss(X, y, simulate(X, y, one.plan, (0, 1)))
                mark = "  chosen" if one is chosen else ""
                print(f"  T {one.plan.iterations:4d}  C {one.plan.clip:g}  forecast {one.excess:.4f}  "
                      f"measured {loss - least:.4f}  loss {loss:.4f}{mark}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
