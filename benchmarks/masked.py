# ruff: noqa: E402 - threads are set before numpy is imported
"""Loss against epsilon: masked sums by how many may collude, R-ADMM, and no privacy.

    python benchmarks/masked.py [--quick] [--data adult a9a tiny] [--out docs/figures]
    python benchmarks/masked.py --draw docs/figures/masked.csv

Bundled tables dealt to 20 nodes on er20, adjacency replace, delta 1e-5, all nodes in one process, seeds of simulated
noise.  Every arm spends the same epsilon with the flags' defaults; `masked` insists (--anyway) where it would refuse.
Scored is what a node has: the test log loss of its own model, mean and worst over nodes; and that of the nodes' mean
model, which costs no privacy where nodes average what was released.  Base rate: the share of a class, for every row.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import csv
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from distadmm import radmm
from distadmm.data.source import open_source
from distadmm.graphs.figures import grouped, pyplot, save
from distadmm.privacy.noise import masks

Array = np.ndarray
N = 20
TRUSTS = {f"coalition:{c}": f"masked, any {c} may collude" for c in (0, N // 4, N - 2)}
TRUSTS |= {"any": f"masked, any {N - 1} may collude (no masks)"}
BUDGETS, QUICK = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), (0.25, 1.0, 4.0)
COLUMNS = ("table", "arm", "epsilon", "seed", "mean", "worst", "mean_model", "error", "refused")
SHADES = ("#08306b", "#2171b5", "#6baed6", "#9ecae1")


def scores(table: str, models: Array) -> dict[str, float]:
    """Test log loss of the nodes' own models, mean and worst, and of their mean; mean test error of the nodes."""
    X, y = open_source(table).test() or (np.empty(0), np.empty(0))
    lost = np.logaddexp(0, -y[:, None] * (X @ np.column_stack([*models, models.mean(axis=0)]))).mean(axis=0)
    error = float(np.mean((X @ models.T) * y[:, None] <= 0))
    return {"mean": lost[:-1].mean(), "worst": lost[:-1].max(), "mean_model": lost[-1], "error": error}


def run(table: str, algorithm: str, **flags: Any) -> Array:
    if table == "a9a":
        flags["stated"] = "bounds"
    models = radmm.solve(algorithm, data=table, observe="none", **flags).models
    assert models is not None
    return models


def refused(table: str, **flags: Any) -> bool:
    """Whether `masked` says beforehand that nothing is to be learnt."""
    from distadmm.methods.masked.rule import choose
    from distadmm.privacy.accounting.gaussian import mu_at
    from distadmm.privacy.accounting.shared_discrete_gaussian import colluding_of

    source = open_source(table)
    rule = choose(
        name="centred", loss="logistic", adjacency="replace", nodes=N, rows=int(source.n_rows or 0),
        colluding=colluding_of(flags["trust"], N), columns=source.n_features, mu=mu_at(flags["epsilon"], 1e-5),
    )  # fmt: skip
    return rule.hope < 10


def measure(table: str, budgets: tuple[float, ...], seeds: int, write: Any) -> None:
    source = open_source(table)
    share = float(np.mean(np.concatenate([source.node(i, N)[1] for i in range(N)]) > 0))
    _, held = source.test() or (0, np.empty(0))
    base = float(-np.mean(np.where(held > 0, np.log(share), np.log(1 - share))))
    write(
        table=table,
        arm="base rate",
        mean=base,
        worst=base,
        error=float(np.mean(held > 0) if share < 0.5 else np.mean(held < 0)),
    )
    write(table=table, arm="no privacy", **scores(table, run(table, "newton", iterations=30)))
    for seed in range(seeds):
        for epsilon in budgets:
            shared: dict[str, Any] = {"epsilon": epsilon, "adjacency": "replace", "rng": "simulation"}
            shared["deal"] = "published"
            for trust in TRUSTS:
                models = run(table, "masked", trust=trust, anyway=True, seed=seed, **shared)
                write(
                    table=table, arm=f"masked {trust}", epsilon=epsilon, seed=seed, **scores(table, models),
                    refused=int(refused(table, trust=trust, epsilon=epsilon)),
                )  # fmt: skip
            models = run(table, "radmm", seed=seed, **shared)
            write(table=table, arm="radmm", epsilon=epsilon, seed=seed, **scores(table, models))


def curve(axes: Any, rows: list[dict[str, str]], score: str, label: str, **style: Any) -> None:
    """Mean over seeds against epsilon, with the range of the seeds."""
    by = grouped(rows, "epsilon")
    at = np.array([float(epsilon) for (epsilon,) in by])
    values = [np.array([float(row[score]) for row in some]) for some in by.values()]
    mean = np.array([some.mean() for some in values])
    reach = np.array([[m - some.min(), some.max() - m] for m, some in zip(mean, values)]).T
    axes.errorbar(at, mean, yerr=np.maximum(reach, 0), label=label, capsize=2, lw=1.2, ms=4, **style)


def draw(path: Path) -> None:
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    tables = list(dict.fromkeys(row["table"] for row in rows))
    figure, panels = pyplot().subplots(1, len(tables), figsize=(3.6 * len(tables), 3.7), squeeze=False)
    for axes, table in zip(panels[0], tables):
        here = grouped((row for row in rows if row["table"] == table), "arm")
        base = float(here["base rate",][0]["mean"])
        axes.axhline(float(here["no privacy",][0]["mean"]), color="0.4", ls="--", lw=1, label="no privacy")
        if max(float(row["mean"]) for row in rows if row["table"] == table and row["epsilon"]) > 0.9 * base:
            axes.axhline(base, color="0.4", ls=":", lw=1)  # elsewhere far above everything
        for (trust, words), shade in zip(TRUSTS.items(), SHADES):
            curve(axes, here[f"masked {trust}",], "mean", words, fmt="o-", color=shade)
        curve(axes, here["radmm",], "mean", "R-ADMM, mean of the nodes", fmt="s-", color="tab:red")
        curve(axes, here["radmm",], "worst", "R-ADMM, worst node", fmt="s:", color="tab:red", mfc="white")
        curve(axes, here["radmm",], "mean_model", "R-ADMM, nodes' mean model", fmt="^-.", color="tab:orange")
        axes.set(xscale="log", xlabel="epsilon", title=f"{table} (base rate {base:.3f})")
        ticks = sorted({float(row["epsilon"]) for row in rows if row["epsilon"]})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    panels[0][0].set_ylabel("test log loss")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, bbox_to_anchor=(0.5, 0.02))
    seeds = sorted(
        {len(some) for (_, _, epsilon), some in grouped(rows, "table", "arm", "epsilon").items() if epsilon}
    )
    many = (
        f"{seeds[0]} to {seeds[-1]} seeds"
        if seeds[0] < seeds[-1]
        else f"{seeds[0]} seed{'s' * (seeds[0] > 1)}"
    )
    quick = "; --quick: few budgets and seeds" * (len(ticks) < len(BUDGETS))
    figure.suptitle(f"20 nodes, replace, delta 1e-5; mean and range of {many} of simulated noise{quick}")
    figure.tight_layout()
    save(figure, path.with_suffix(".svg"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["adult", "a9a", "tiny"])
    parser.add_argument("--quick", action="store_true", help="three budgets, three seeds instead of five")
    parser.add_argument("--epsilon", nargs="+", type=float, help="these budgets instead")
    parser.add_argument("--seeds", type=int, help="this many seeds instead")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--draw", type=Path, help="draw the CSV of an earlier run again")
    options = parser.parse_args()
    if options.draw:
        return draw(options.draw)
    masks.pow = cache(pow)  # type: ignore[attr-defined]  # keys are those of the seed, in every arm
    options.out.mkdir(parents=True, exist_ok=True)
    path, began = options.out / "masked.csv", time.perf_counter()
    with open(path, "w", newline="") as file:
        lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        lines.writeheader()

        def write(**row: Any) -> None:
            lines.writerow(
                {
                    key: f"{v:.5f}" if isinstance(v, float) and key != "epsilon" else v
                    for key, v in row.items()
                }
            )
            file.flush()
            print(f"{time.perf_counter() - began:5.0f} s ", *(f"{k}={v}" for k, v in row.items()), flush=True)

        for table in options.data:
            budgets = tuple(options.epsilon or (QUICK if options.quick else BUDGETS))
            measure(table, budgets, options.seeds or (3 if options.quick else 5), write)
    draw(path)


if __name__ == "__main__":
    main()
