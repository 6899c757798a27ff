"""Figures 1 to 3 of "Learning Privately over Distributed Features": ADMM sharing, SGD, and noise.

    python -m distadmm reproduce sharing --figure 1a --out DIR
    python -m distadmm reproduce sharing --images digits.npz            all six, gisette as a stand-in

1a, 2a: objective and test loss a epoch, ADMM against SGD.  1b, 2b: test loss a epoch under the noise of equation
(10).  3a, 3b: test loss at the end against the noise, beside party 1 alone and all features.  a9a is encoded from
the bundled Adult; it equals LIBSVM's files in every row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from distadmm.data import gisette, table
from distadmm.data.parts import cut, sparse_or_dense
from distadmm.data.source import open_source
from distadmm.errors import require
from distadmm.flags import flag, flag_group
from distadmm.methods.sharing import admm, equation10, jacobi, sgd
from distadmm.methods.sharing.seat import Seat, iterate
from distadmm.papers.command import Made, reproduce
from distadmm.papers.panels import Row
from distadmm.papers.sharing_figures import FIGURES as DRAWN
from distadmm.problems.columns import Columns
from distadmm.problems.losses import Array, Logistic
from distadmm.ranks.star import Star
from distadmm.ranks.world import World
from distadmm.run.groups import Output
from distadmm.structs import struct

LOSS = Logistic()
FIGURES = ("1a", "1b", "2a", "2b", "3a", "3b")
WIDTHS = {"a9a": (66, 57), "gisette": (2000, 2000, 1000)}
SIGMAS = {"a9a": (0.0, 3.0, 10.0, 30.0, 100.0), "gisette": (0.0, 0.3, 1.0, 3.0, 10.0)}
RHO = {"a9a": 0.2, "gisette": 0.01}
TAU = {"a9a": 0.0, "gisette": 1.28}  # Algorithm 1 as printed (tau = 0) diverges on the wide blocks
BEST = "corrected, at the epoch best for a held-out fifth of the training rows"
CORRECTED = ("ADMM corrected", BEST)
NOISE = 0x46494733  # purpose of equation (10)'s noise here


@flag_group("reproduce sharing")
class Options(Output):
    figure: str = flag("all", help=f"all, or one of {', '.join(FIGURES)}", choices=("all", *FIGURES))
    gisette: str | None = flag(None, help="your gisette_scale (LIBSVM format), with --gisette-test")
    gisette_test: str | None = flag(None, help="your gisette_scale.t")
    images: str | None = flag(
        None, help="npz of MNIST fours and nines (img, digit) to build the stand-in from"
    )
    epochs: int | None = flag(None, help="epochs of every curve (default: 20, with --quick 8)", at_least=2)
    seeds: int | None = flag(
        None, help="seeds of noise and of SGD's order (default: 5, with --quick 1)", at_least=1
    )
    seed: int = flag(0, help="the first of them", at_least=0)
    quick: bool = flag(False, help="fewer epochs and seeds, and said on the figure")

    def __post_init__(self) -> None:
        require(
            (self.gisette is None) == (self.gisette_test is None), "--gisette and --gisette-test go together"
        )
        require(
            self.figure not in ("2a", "2b", "3b") or self.wide,
            f"figure {self.figure} needs --gisette FILE --gisette-test FILE, or --images NPZ for the stand-in, or "
            "`python -m distadmm data add gisette --from FILE` once",
        )

    @property
    def length(self) -> int:
        return self.epochs or (8 if self.quick else 20)

    @property
    def wide(self) -> bool:
        return bool(self.gisette or self.images or gisette.added())

    @property
    def figures(self) -> tuple[str, ...]:
        if self.figure != "all":
            return (self.figure,)
        return tuple(name for name in FIGURES if self.wide or name in ("1a", "1b", "3a"))


@dataclass(frozen=True)
class Item:
    """One curve, or one level of a figure; all a rank needs to know to compute it."""

    figure: str
    data: str  # a9a or gisette
    curve: str
    options: Options
    seed: int


@dataclass(frozen=True)
class Task:
    name: str
    blocks: tuple[Any, ...]
    y: Array
    test: tuple[Any, ...]
    y_test: Array

    def held_out(self, seed: int) -> "Task":
        """A fifth of the training rows in the place of the test rows."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        few, most = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
        kept, held = (tuple(block[part] for block in self.blocks) for part in (most, few))
        return Task(self.name, kept, self.y[most], held, self.y[few])


@lru_cache(maxsize=2)
def task(data: str, options: Options) -> Task:
    """Columns of each party, training and test."""
    if data == "a9a":
        source = open_source("a9a", clip=None)
        X, y = source.everything(sparse=True)  # type: ignore[attr-defined]
        held = source.test(sparse=True)
        assert held is not None
        name, X, X_test, y_test = "a9a", X.to_scipy(), held[0].to_scipy(), held[1]  # type: ignore[union-attr]
    else:
        if options.gisette and options.gisette_test:
            training, held_out = gisette.load_gisette(options.gisette, options.gisette_test)
        else:
            kept = (Path(options.images),) if options.images else gisette.added()
            training, held_out = gisette.load_gisette(*kept) if kept[1:] else gisette.build_standin(kept[0])
        name, y, y_test = training.name, training.y, held_out.y
        X, X_test = table.dense(training.X), table.dense(held_out.X)
    parts = cut(WIDTHS[data], X.shape[1], len(WIDTHS[data]))
    blocks = tuple(sparse_or_dense(X[:, part]) for part in parts)
    return Task(name, blocks, y, tuple(X_test[:, part] for part in parts), y_test)


def curve(item: Item) -> list[Row]:
    work = task(item.data, item.options)
    if item.curve == BEST:
        losses = [row["test_loss"] for row in _trained(item, work.held_out(item.seed))]
        return [_trained(item, work)[int(np.argmin(losses))]]
    rows = _trained(item, work)
    return rows if item.figure[0] != "3" else rows[-1:]


def _trained(item: Item, work: Task) -> list[Row]:
    rows: list[Row] = []

    def see(epoch: int, state: Any) -> None:
        rows.append(_row(item, work, epoch, state.x, state.b, centred=item.curve in CORRECTED))

    if item.curve in ("party 1 alone", "all features"):
        count = 1 if item.curve == "party 1 alone" else len(work.blocks)
        x = _logistic_regression(work.blocks[:count], work.y)
        rows.append(_row(item, work, item.options.length, x, 0.0, centred=False))
    else:
        _iterated(item, work, see)
    return rows


@struct
class NoisyParallel(equation10.EquationTen):
    """Equation (10)'s noise on the parallel form with a proximal weight, one vector down."""

    from_zero: ClassVar[bool] = False
    two_vectors: ClassVar[bool] = False


def _iterated(item: Item, work: Task, see: Callable[[int, Any], None]) -> None:
    corrected = item.curve in CORRECTED
    problem = admm.Problem(LOSS, 1.0, intercept=corrected)
    blocks = {m: Columns(block, centre=corrected) for m, block in enumerate(work.blocks, 1)}
    seat = Seat(Star(parties=len(blocks)), problem, blocks, work.y, work.y.size)
    sigma = float(item.curve.removeprefix("sigma ")) if item.curve.startswith("sigma") else 0.0
    rho, tau, seed = RHO[item.data], TAU[item.data], item.seed
    algorithm: Any
    if item.curve.startswith("SGD"):
        algorithm = sgd.SGD(float(item.curve.split("eta ")[1]), 100, seed)
    elif corrected:
        algorithm = jacobi.Corrected(tolerance=0.0)
    elif sigma > 0:
        noisy = NoisyParallel if tau else equation10.EquationTen
        algorithm = noisy(rho=rho, tau=tau, sigma=sigma, seed=seed, purpose=NOISE)
    else:
        algorithm = (jacobi.Corrected if tau else jacobi.Paper)(rho=rho, tau=tau, tolerance=0.0)
    iterate(algorithm, seat, item.options.length, see)


def _row(item: Item, work: Task, epoch: int, x: dict[int, Array], b: float, *, centred: bool) -> Row:
    means = {m: np.asarray(work.blocks[m - 1].mean(axis=0)).ravel() if centred else 0.0 for m in x}
    shift = b - sum(float(np.sum(means[m] * x[m])) for m in x)
    train = sum(work.blocks[m - 1] @ x[m] for m in x) + shift
    test = sum(work.test[m - 1] @ x[m] for m in x) + shift
    objective = LOSS.value(train, work.y).sum() + 0.5 * sum(float(model @ model) for model in x.values())
    of = {"figure": item.figure, "data": work.name, "curve": item.curve, "seed": item.seed, "epoch": epoch}
    held_out = float(LOSS.value(test, work.y_test).mean())
    return {**of, "objective": float(objective) / work.y.size, "test_loss": held_out}


def _logistic_regression(blocks: Sequence[Any], y: Array) -> dict[int, Array]:
    """The paper's baselines, by L-BFGS on the columns of these parties together."""
    from scipy.optimize import minimize

    edges = np.cumsum([0, *(block.shape[1] for block in blocks)])
    parts = [slice(int(low), int(high)) for low, high in pairwise(edges)]

    def value(x: Array) -> tuple[float, Array]:
        z = sum(block @ x[part] for block, part in zip(blocks, parts))
        slope = LOSS.slope(z, y)
        gradient = x + np.concatenate([block.T @ slope for block in blocks])
        return float(LOSS.value(z, y).sum() + 0.5 * x @ x), gradient

    options = {"maxiter": 3000, "maxfun": 6000, "gtol": 1e-3, "ftol": 1e-14}
    found = minimize(value, np.zeros(int(edges[-1])), jac=True, method="L-BFGS-B", options=options)
    return {m: found.x[part] for m, part in enumerate(parts, 1)}


def items(options: Options) -> list[Item]:
    """All curves of the figures asked for; those that chance enters with every seed."""
    made = []
    count = options.seeds or (1 if options.quick else 5)
    for figure in options.figures:
        data = "gisette" if figure in ("2a", "2b", "3b") else "a9a"
        if figure.endswith("a") and figure != "3a":
            eta = ("3", "0.3") if data == "a9a" else ("0.1", "0.01")
            literal = "ADMM, Algorithm 1" + (f", tau {TAU[data]}" if TAU[data] else "")
            curves = [literal, "ADMM corrected", *(f"SGD eta {value}" for value in eta)]
        else:
            curves = [f"sigma {sigma:g}" for sigma in SIGMAS[data]]
            curves += [BEST, "party 1 alone", "all features"] if figure[0] == "3" else []
        for name in curves:
            chance = name.startswith("SGD") or (name.startswith("sigma") and name != "sigma 0")
            seeds = range(options.seed, options.seed + (count if chance else 1))
            made += [Item(figure, data, name, options, seed) for seed in seeds]
    return made


def figures(options: Options, world: World) -> Iterator[Made]:
    rows = [row for part in world.share_out(curve, items(options)) or [] for row in part]
    for figure in options.figures:
        own = [row for row in rows if row["figure"] == figure]
        data = own[0]["data"] if own else ""
        yield f"figure-{figure}", f"Figure {figure}: {data}", DRAWN[figure], [own]
    if world.is_root and not options.wide and options.figure == "all":
        print("2a, 2b and 3b need `python -m distadmm data add gisette --from FILE`, or the flags of --help")


main = reproduce("sharing", __doc__, Options, figures)
