# ruff: noqa: E402 - threads are set before numpy is imported
"""Loss against epsilon: masked sums by how many may collude, R-ADMM, a trusted centre twice, and no privacy.

    python benchmarks/masked.py [--quick] [--data adult a9a tiny] [--out docs/figures]
    python benchmarks/masked.py --draw docs/figures/masked.csv

Tables dealt to 20 nodes on er20, adjacency replace, delta 1e-5, all nodes in one process, seeds of simulated noise.
`digits` is the table of scikit-learn: is a digit 5 or more, its last 500 rows for testing; FILE.npz of 28 x 28 images
(`img`) of two digits (`digit`): their pixels, four in one, the last 1000 for testing.
What the CSV in --out has already is not measured again, so a run can go on where another one was stopped.
Every arm spends the same epsilon with the flags' defaults; `masked` insists (--anyway) where it would refuse.
Scored is what a node has: the test log loss of its own model, mean and worst over nodes; and that of the nodes' mean
model, which costs no privacy where nodes average what was released.  Base rate: the share of a class, for every row.

centre        one party with all rows runs the same rule under Gaussian noise: nobody else is trusted or masked
perturbed     the same party releases one minimiser under Gaussian objective perturbation, by this package's price; its
              ridge is the best of seven in hindsight, which favours it: nobody can choose so without looking
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
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from compare import digits, images
from masked_cases import learnt
from scipy.stats import t as student

from distadmm import radmm
from distadmm.data.source import open_source
from distadmm.data.table import dense
from distadmm.errors import InputError
from distadmm.graphs.figures import grouped, pyplot, save
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule, choose
from distadmm.privacy.accounting.calibration import objective_scale
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.privacy.accounting.shared_discrete_gaussian import colluding_of
from distadmm.privacy.noise import masks
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import Logistic

Array = np.ndarray
DELTA = 1e-5
RIDGES = tuple(
    0.1 * 4.0**k for k in range(7)
)  # of objective perturbation, beside the sum of the rows' losses
N = 20
TRUSTS = {f"coalition:{c}": f"masked, any {c} may collude" for c in (0, N // 4, N - 2)}
TRUSTS |= {"any": f"masked, any {N - 1} may collude (no masks)"}
BUDGETS, QUICK = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), (0.25, 1.0, 4.0)
COLUMNS = ("table", "arm", "epsilon", "seed", "mean", "worst", "mean_model", "error", "refused", "ridge")
SHADES, MARKS = ("#08306b", "#2171b5", "#6baed6", "#9ecae1"), "o<>x"  # told apart in black and white, too


class Table(NamedTuple):
    name: str
    flags: dict[str, str]  # by which runs find it
    X: Array  # all training rows
    y: Array
    held: tuple[Array, Array]  # rows for testing


def opened(name: str, folder: Path) -> Table:
    """A bundled table, or a file made of one that is not."""
    flags = digits(folder) if name == "digits" else {"data": name}
    flags = images(name, folder) if name.endswith(".npz") else flags
    source = open_source(flags["data"], **{k: v for k, v in flags.items() if k == "test_data"}, clip=1.0)
    parts = [source.node(i, N) for i in range(N)]
    X, y = (np.concatenate([dense(part[at]) for part in parts]) for at in (0, 1))
    held = source.test()
    assert held is not None
    if name == "a9a":
        flags["stated"] = "bounds"
    return Table(Path(name).stem, flags, X, y, (dense(held[0]), held[1]))


def scores(table: Table, models: Array) -> dict[str, float]:
    """Test log loss of the nodes' own models, mean and worst, and of their mean; mean test error of the nodes."""
    X, y = table.held
    lost = np.logaddexp(0, -y[:, None] * (X @ np.column_stack([*models, models.mean(axis=0)]))).mean(axis=0)
    error = float(np.mean((X @ models.T) * y[:, None] <= 0))
    return {"mean": lost[:-1].mean(), "worst": lost[:-1].max(), "mean_model": lost[-1], "error": error}


def run(table: Table, algorithm: str, **flags: Any) -> Array:
    models = radmm.solve(algorithm, observe="none", **table.flags, **flags).models
    assert models is not None
    return models


def rule_of(table: Table, epsilon: float, nodes: int, colluding: int) -> Rule:
    n, d = table.X.shape
    return choose(
        name="centred", loss="logistic", adjacency="replace", nodes=nodes, rows=n, colluding=colluding, columns=d,
        mu=mu_at(epsilon, DELTA),
    )  # fmt: skip


def perturbed(table: Table, epsilon: float, seeds: int) -> tuple[float, list[Array]]:
    """The ridge of least mean test loss, and its models: minimisers of sum l + ridge |f|^2/2 + b.f, b Gaussian."""
    n, d = table.X.shape
    objective = GeneralisedLinear(table.X, table.y, Logistic(), weight=float(n))
    problem, start, found = Problem([objective]), np.zeros((1, d)), {}
    for ridge in RIDGES:
        try:
            sigma = objective_scale(
                epsilon, DELTA, "replace", dimension=d, weight=1.0, curvature=0.25, floor=ridge, count=1,
                noise="gaussian", logistic=True,
            )  # fmt: skip
        except InputError:  # what so small a ridge costs is more than the budget
            continue
        draws = [np.random.default_rng((seed, 1)).normal(size=(1, d)) * sigma for seed in range(seeds)]
        found[ridge] = [problem.argmin(b, np.full((1, 1), ridge), start) for b in draws]
    best = min(found, key=lambda ridge: np.mean([scores(table, f)["mean"] for f in found[ridge]]))
    return best, found[best]


class Sheet:
    """The CSV, which grows; what it has is not measured again."""

    def __init__(self, path: Path):
        self.path, self.began = path, time.perf_counter()
        self.has: set[tuple[str, ...]] = set()
        if path.exists():
            with open(path, newline="") as file:
                self.has = {tuple(row[name] for name in COLUMNS[:4]) for row in csv.DictReader(file)}
        else:
            path.write_text(",".join(COLUMNS) + "\n")

    def lacks(self, *cell: Any) -> bool:
        """Of (table, arm, epsilon, seed), the last two where there are any."""
        return (*map(str, cell), "", "")[:4] not in self.has

    def write(self, **row: Any) -> None:
        told = {k: f"{v:.5f}" if isinstance(v, float) and k != "epsilon" else v for k, v in row.items()}
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(told)
        print(
            f"{time.perf_counter() - self.began:5.0f} s ", *(f"{k}={v}" for k, v in row.items()), flush=True
        )


def measure(table: Table, budgets: tuple[float, ...], seeds: int, sheet: Sheet) -> None:
    name, write, lacks, held = table.name, sheet.write, sheet.lacks, table.held[1]
    if lacks(name, "base rate"):
        share = float(np.mean(table.y > 0))
        base = float(-np.mean(np.where(held > 0, np.log(share), np.log(1 - share))))
        wrong = float(np.mean(held > 0) if share < 0.5 else np.mean(held < 0))
        write(table=name, arm="base rate", mean=base, worst=base, error=wrong)
    if lacks(name, "no privacy"):
        write(table=name, arm="no privacy", **scores(table, run(table, "newton", iterations=30)))
    for epsilon in budgets:
        at: dict[str, Any] = {"table": name, "epsilon": epsilon}
        if any(lacks(name, "perturbed", epsilon, seed) for seed in range(seeds)):
            ridge, models = perturbed(table, epsilon, seeds)
            for seed, model in enumerate(models):
                if lacks(name, "perturbed", epsilon, seed):
                    write(**at, arm="perturbed", seed=seed, ridge=ridge, **scores(table, model))
        rule = rule_of(table, epsilon, 1, 0)
        rows = Rows(table.X * table.y[:, None], np.ones(len(table.y)), rule, rule.bits)
        for seed in range(seeds):
            if lacks(name, "centre", epsilon, seed):
                model = learnt(rows, rule, np.random.default_rng((seed, 2)))[None]
                write(**at, arm="centre", seed=seed, refused=int(rule.hope < 10), **scores(table, model))
    for seed in range(seeds):
        for epsilon in budgets:
            at = {"table": name, "epsilon": epsilon, "seed": seed}
            shared: dict[str, Any] = {
                "epsilon": epsilon,
                "adjacency": "replace",
                "rng": "simulation",
                "seed": seed,
            }
            if not {"test_data", "stated"} & table.flags.keys():
                shared["deal"] = "published"
            for trust in TRUSTS:
                if not lacks(name, f"masked {trust}", epsilon, seed):
                    continue
                found = scores(table, run(table, "masked", trust=trust, anyway=True, **shared))
                refused = rule_of(table, epsilon, N, colluding_of(trust, N)).hope < 10
                write(**at, arm=f"masked {trust}", refused=int(refused), **found)
            try:
                if lacks(name, "radmm", epsilon, seed):
                    write(**at, arm="radmm", **scores(table, run(table, "radmm", **shared)))
            except InputError as why:  # its noise would drown its arithmetic
                print(f"radmm, {at}: {why}", flush=True)


def half(values: Array) -> float:
    """Half the 95 % interval of a mean; of two values it would say nothing."""
    n = len(values)
    return float(student.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 2 else 0.0


def curve(axes: Any, rows: list[dict[str, str]], score: str, label: str, **style: Any) -> None:
    """Mean over seeds against epsilon, with its 95 % interval."""
    by = grouped(sorted(rows, key=lambda row: float(row["epsilon"])), "epsilon")
    at = np.array([float(epsilon) for (epsilon,) in by])
    values = [np.array([float(row[score]) for row in some]) for some in by.values()]
    mean = np.array([some.mean() for some in values])
    axes.errorbar(
        at, mean, yerr=[half(some) for some in values], label=label, capsize=2, lw=1.2, ms=4, **style
    )


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
        for (trust, words), shade, mark in zip(TRUSTS.items(), SHADES, MARKS):
            curve(axes, here[f"masked {trust}",], "mean", words, fmt=f"{mark}-", color=shade)
        curve(axes, here["radmm",], "mean", "R-ADMM, mean of the nodes", fmt="s-", color="tab:red")
        curve(axes, here["radmm",], "worst", "R-ADMM, worst node", fmt="s:", color="tab:red", mfc="white")
        curve(axes, here["radmm",], "mean_model", "R-ADMM, nodes' mean model", fmt="^-.", color="tab:orange")
        curve(
            axes, here["centre",], "mean", "trusted centre, same rule", fmt="d--", color="0.35", mfc="white"
        )
        curve(
            axes,
            here["perturbed",],
            "mean",
            "trusted centre, objective perturbation",
            fmt="v--",
            color="tab:green",
        )
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
    figure.suptitle(
        f"20 nodes, replace, delta 1e-5; mean and 95 % interval of {many} of simulated noise{quick}"
    )
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
    sheet = Sheet(options.out / "masked.csv")
    budgets = tuple(options.epsilon or (QUICK if options.quick else BUDGETS))
    with TemporaryDirectory() as folder:
        for name in options.data:
            seeds = options.seeds or (3 if options.quick else 5)
            measure(opened(name, Path(folder)), budgets, seeds, sheet)
    draw(sheet.path)


if __name__ == "__main__":
    main()
