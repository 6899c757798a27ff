"""Plan private thresholding before it starts: iterations T and gradient norm C for a budget.

Reads how many rows there are and what the columns are called, and no row.  Every (T, C) is run with its exact noise on
synthetic rows of these columns, or on those of --public-data; the excess over the best linear model without noise
ranks them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm.commands import compare, plan_public
from distadmm.data import synthetic
from distadmm.data.source import open_source
from distadmm.errors import DONE, require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.istdp.plan import Plan, make_plan
from distadmm.methods.istdp.private import ADJACENCIES, ClippedGradient, iterate
from distadmm.problems.concave import make
from distadmm.problems.losses import Array, Logistic
from distadmm.ranks.launch import with_flags
from distadmm.ranks.world import World
from distadmm.run.groups import Budget, Shared

PROG = "distadmm plan istdp"
ITERATIONS, NORMS = (5, 10, 20, 50, 100, 200, 400, 800), (1.0, 0.5)
# Of surrogates, in turn: the spread of the true scores, from columns that tell little to some that tell much, and how
# far numbers rise together.
KINDS = tuple((spread, alike) for alike in (0.0, 0.8) for spread in (1.0, 2.0, 4.0))
ROWS = 3_000  # of a surrogate at most; noise is that of all rows
CAVEAT = (
    "Synthetic rows: the loss is no forecast of yours, and with few rows not even the plan is sure.  At epsilon 1 it\n"
    "cost .0135 on a9a where .0177 stands here, and .0334 on Adult where .0109 does; --public-data knows better\n"
    "(docs/istdp.md)."
)


@flag_group("plan istdp")
class Options:
    epsilon: float = flag(help="privacy budget of the whole run", above=0)
    adjacency: str = flag(help="what one record may do: replace or add-remove", choices=ADJACENCIES)
    delta: float = again(Budget, "delta")
    data: str | None = flag(None, help="take rows and the names of columns from this data set")
    rows: int | None = flag(
        None, help="rows, where --data is not given, or their number is protected", at_least=2
    )
    columns: int | None = flag(None, help="columns, where --data is not given", at_least=1)
    lambda_: float = again(
        Shared, "lambda_", default=0.0, at_least=0, note="; above 0 it costs loss and leaves columns out"
    )
    public_data: str | None = flag(None, help=plan_public.HELP)
    runs: int = flag(6, help="surrogate runs", at_least=1)
    seed: int = flag(0, help="seed of the surrogate", at_least=0)

    def __post_init__(self) -> None:
        compare.require_shape(self)
        compare.require_public_count(self)


class Forecast(NamedTuple):
    of: Any  # a plan; in `plan sharing` a candidate, None for party 1 alone
    excesses: Array  # mean loss above that of the best model without noise, by run

    @property
    def excess(self) -> float:
        return float(self.excesses.mean())


def _work(options: Options, world: World) -> int:
    found = forecasts(options, world)
    if found is not None:
        print("\n".join(lines(options, *named_shape(options), found)))
    return DONE


def forecasts(options: Options, world: World) -> list[Forecast] | None:
    """Of every (T, C), shared out to the ranks; on rank 0."""
    rows, names = named_shape(options)
    made: list[_Table | PublicRows]
    if options.public_data is not None:
        made = [PublicRows(*plan_public.read(options.public_data, names, 1.0), options.seed)]
    else:
        made = [_Table(names, rows, options.seed, run) for run in range(options.runs)]
    plans = [plan_of(options, rows, len(names), T, C) for T in ITERATIONS for C in NORMS]
    return world.share_out(lambda plan: Forecast(plan, np.hstack([t.excess(plan) for t in made])), plans)


def named_shape(options: Any) -> tuple[int, tuple[str, ...]]:
    """How many rows, and what the columns are called; public."""
    rows, names = options.rows, tuple(f"x{j}" for j in range(options.columns or 0))
    if rows is None or not names:
        source = open_source(str(options.data))
        names = names or source.feature_names[: compare.width_of(source)]
        rows = rows or source.n_rows
    require(rows, f"--data {options.data} does not say how many rows it has; give --rows and --columns")
    return int(rows or 0), names


def plan_of(options: Options, rows: int, columns: int, T: int, C: float) -> Plan:
    return make_plan(
        epsilon=options.epsilon, delta=options.delta, adjacency=options.adjacency, dimension=columns, rows=rows,  # type: ignore[arg-type]
        divisor=rows, loss=Logistic(), clip=C, iterations=T, lam=options.lambda_,
    )  # fmt: skip


class _Table:
    """One surrogate and its best model without noise."""

    def __init__(self, names: tuple[str, ...], rows: int, seed: int, run: int):
        spread, alike = KINDS[run % len(KINDS)]
        self.X, self.y = synthetic.coded(names, min(rows, ROWS), seed, run, spread=spread, alike=alike)
        self.noise, self.least = (seed, run), mean_loss(self.X, self.y, best_model(self.X, self.y))

    def excess(self, plan: Plan) -> float:
        models = (simulate(self.X, self.y, plan, (*self.noise, n)) for n in plan_public.draws(len(self.y)))
        return float(np.mean([mean_loss(self.X, self.y, theta) for theta in models])) - self.least


class PublicRows:
    """Rows that need no protection, of the kind of the private ones; the plan's noise is that of all private rows."""

    def __init__(self, X: Array, y: Array, seed: int):
        self.X, self.y, self.seed = X, y, seed
        floors = [self._of(partial(self._fitted, ridge)) for ridge in plan_public.RIDGES]
        self.least = min(floors, key=np.mean)

    def _fitted(self, ridge: float, rows: Array, _: int) -> Array:
        return best_model(self.X[rows], self.y[rows], ridge)

    def excess(self, plan: Plan) -> Array:
        def drawn(n: int) -> Array:
            return self._of(lambda i, at: simulate(self.X[i], self.y[i], plan, (self.seed, at, n)))

        return np.mean([drawn(n) for n in plan_public.draws(len(self.y))], axis=0) - self.least

    def _of(self, train: Callable[[Array, int], Array]) -> Array:
        """The losses, half-way between rows trained on and rows left out, of models that `train` makes of some rows."""
        X, y = self.X, self.y

        def loss(at: int, inside: Array, outside: Array) -> tuple[float, float]:
            f = train(inside, at)
            return mean_loss(X[inside], y[inside], f), mean_loss(X[outside], y[outside], f)

        return plan_public.halfway(loss, len(y), self.seed)


def mean_loss(X: Array, y: Array, f: Array, b: float = 0.0) -> float:
    return float(Logistic().value(X @ f + b, y).mean())


def simulate(X: Array, y: Array, plan: Plan, seed: Sequence[int]) -> Array:
    """The last theta of a run with this plan's noise: the rows stand for all n' of the plan."""
    rng, gradient = np.random.default_rng(seed), ClippedGradient(X, y, Logistic(), plan.clip, len(y))
    states = iterate(
        lambda k, theta: gradient(theta) + plan.sigma * rng.standard_normal(theta.size),
        np.zeros(X.shape[1]), make("mcp", plan.lam, plan.alpha), plan.steps,
    )  # fmt: skip
    for _ in range(plan.iterations):
        state = next(states)
    return state.theta


def best_model(X: Array, y: Array, ridge: float = 1e-6) -> Array:
    """The logistic model of least mean loss, by Newton's method; `ridge` keeps what the rows leave open at 0."""
    loss, f = Logistic(), np.zeros(X.shape[1])
    for _ in range(50):
        z = X @ f
        g = loss.slope(z, y) @ X / len(y) + ridge * f
        H = (X * loss.curvature(z, y)[:, None]).T @ X / len(y)
        step = np.linalg.solve(H + ridge * np.eye(f.size), g)
        f = f - step
        if np.abs(step).max() < 1e-8:
            break
    return f


def told(options: Any, excesses: Array) -> tuple[str, str]:
    """What a plan's excess is called, and how far it may be off."""
    if options.public_data is not None:
        error = plan_public.error(excesses)
        return "forecast ", f"standard error {error:.4f}, from the rows of {options.public_data}"
    return "surrogate", f"{excesses.min():.4f} to {excesses.max():.4f} in {options.runs} runs"


def lines(options: Options, rows: int, names: tuple[str, ...], found: Sequence[Forecast]) -> list[str]:
    best = min(found, key=lambda one: one.excess)
    plan, (word, how) = best.of, told(options, best.excesses)
    table = [f"              T {''.join(f'{T:>9}' for T in ITERATIONS)}"]
    for C in NORMS:
        cells = [one.excess for one in found if one.of.clip == C]
        table.append(f"  C = {C:<9g}   {''.join(f'{cell:9.4f}' for cell in cells)}")
    where = f" --data {options.data}" if options.data else ""
    public = f" --public-rows {rows}" if options.adjacency == "add-remove" else ""
    return [
        f"budget      epsilon {options.epsilon:g} at delta {options.delta:g}, {options.adjacency}",
        f"shape       {rows} rows, {len(names)} columns",
        f"plan        T = {plan.iterations}, C = {plan.clip:g}, sigma = {plan.sigma:.4g}, steps "
        f"{plan.steps.shortest:.4g} to {plan.steps.longest:.4g}, lambda = {plan.lam:g}",
        f"{word}   mean loss {best.excess:.4f} above the best linear model's ({how})",
        "others      the same for every T and C",
        *table,
        f"run it      python -m distadmm.istdp{where} --epsilon {options.epsilon:g} --delta {options.delta:g} "
        f"--adjacency {options.adjacency}{public} --iterations {plan.iterations} --gradient-norm {plan.clip:g} "
        f"--shortest {plan.steps.shortest:.6g} --longest {plan.steps.longest:.6g} --lambda {plan.lam:g} "
        f"--reach {plan.alpha:.6g}",
        *(["", CAVEAT] if options.public_data is None else []),
    ]


main = with_flags(PROG, __doc__, Options, _work)
