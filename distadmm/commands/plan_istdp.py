"""Plan private thresholding before it starts: iterations T and gradient norm C for a budget.

Reads how many rows there are and what the columns are called, and no row.  Every (T, C) is run with its exact noise on
synthetic rows of these columns, or on those of --public-data; the excess over the best linear model without noise
ranks them.
"""

from collections.abc import Sequence
from functools import partial
from shlex import quote
from typing import Any

import numpy as np

from distadmm.commands import plan_public
from distadmm.commands.shape import Shape, require_public_count, width_of
from distadmm.data import synthetic
from distadmm.data.source import open_source
from distadmm.errors import DONE, require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.forecasts import Forecast
from distadmm.methods.istdp.gist import barzilai_borwein
from distadmm.methods.istdp.plan import Plan, make_plan
from distadmm.methods.istdp.private import ADJACENCIES, ClippedGradient
from distadmm.privacy.accounting.statements import exactly
from distadmm.problems.concave import make
from distadmm.problems.losses import Array, Logistic
from distadmm.ranks.launch import told_if_long, with_flags
from distadmm.ranks.world import World
from distadmm.run.groups import Shared

PROG = "distadmm plan istdp"
ITERATIONS, NORMS = (5, 10, 20, 50, 100, 200, 400, 800, 1600), (1.0, 0.5)
TAIL = 0.5  # of the iterations make the model: what is too large a T then costs little
# Of surrogates, in turn: the spread of the true scores, from columns that tell little to some that tell much; whether
# most numbers are small; whether columns tell apiece as much.
KINDS: tuple[dict[str, Any], ...] = tuple(
    {"spread": spread, "steep": steep, "apiece": apiece}
    for apiece in (False, True)
    for steep in (4.0, 40.0)
    for spread in (1.0, 2.0, 4.0)
)
ROWS = 3_000  # of a surrogate at most; noise is that of all rows
# Synthetic rows choose no plan surely above this excess.  On a kind of table left out of the choice its plan lost in
# three cases of ten above .3 of the least excess more than the best one, which of the .4 that such tables lose is 2 %.
SURE = 0.028
CAVEAT = (
    "Synthetic rows: the loss is no forecast of yours, and the plan is the one that costs least over tables of many\n"
    "kinds; --public-data knows better (docs/istdp.md)."
)


@flag_group("plan istdp")
class Options(Shape):
    adjacency: str = flag(help="what one record may do: replace or add-remove", choices=ADJACENCIES)
    rows: int | None = again(Shape, "rows", at_least=2)
    lambda_: float = again(
        Shared, "lambda_", default=0.0, at_least=0, note="; above 0 it costs loss and leaves columns out"
    )
    public_data: str | None = flag(None, help=plan_public.HELP)
    runs: int = flag(len(KINDS), help="runs on made-up rows", at_least=1)
    seed: int = flag(0, help="seed of the made-up rows", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_public_count(self)


def _work(options: Options, world: World) -> int:
    with told_if_long(PROG, "trying plans on made-up or public rows", world.is_root):
        found = forecasts(options, world)
    if found is not None:
        print("\n".join(lines(options, *named_shape(options), found)))
    return DONE


def forecasts(options: Options, world: World) -> list[Forecast] | None:
    """Of every (T, C); tables, or ways to leave public rows out, are shared out to the ranks; on rank 0."""
    rows, names = named_shape(options)
    plans = [plan_of(options, rows, len(names), T, C) for T in ITERATIONS for C in NORMS]
    if options.public_data is not None:
        X, y = plan_public.read(options.public_data, names, 1.0)
        excesses = by_public_rows(plans, X, y, options.seed, world)
    else:
        of = partial(_by_synthetic_rows, plans, names, min(rows, ROWS), options.seed)
        parts = world.share_out(of, range(options.runs))
        excesses = None if parts is None else np.array(parts)
    if excesses is None:
        return None
    made_of, unlike = options.public_data or "surrogates", options.public_data is None
    return [Forecast(plan, own, made_of, unlike) for plan, own in zip(plans, excesses.T)]


def named_shape(options: Any) -> tuple[int, tuple[str, ...]]:
    """How many rows, and what the columns are called; public."""
    rows, names = options.rows, tuple(f"x{j}" for j in range(options.columns or 0))
    if rows is None or not names:
        source = open_source(str(options.data))
        names = names or source.feature_names[: width_of(source)]
        rows = rows or source.n_rows
    require(rows, f"--data {options.data} does not say how many rows it has; give --rows and --columns")
    return int(rows or 0), names


def plan_of(options: Options, rows: int, columns: int, T: int, C: float) -> Plan:
    return make_plan(
        epsilon=options.epsilon, delta=options.delta, adjacency=options.adjacency, dimension=columns, rows=rows,  # type: ignore[arg-type]
        divisor=rows, loss=Logistic(), clip=C, iterations=T, lam=options.lambda_, tail=TAIL,
    )  # fmt: skip


def _by_synthetic_rows(
    plans: Sequence[Plan], names: tuple[str, ...], rows: int, seed: int, run: int
) -> Array:
    """What each plan costs on one table above the best model without noise."""
    X, y = synthetic.coded(names, rows, seed, run, **KINDS[run % len(KINDS)])
    cost = [mean_loss(X, y, f) for f in simulate(X, y, plans, (seed, run), len(plan_public.draws(rows)))]
    return np.mean(np.reshape(cost, (-1, len(plans))), axis=0) - mean_loss(X, y, best_model(X, y))  # type: ignore[no-any-return]


def by_public_rows(plans: Sequence[Plan], X: Array, y: Array, seed: int, world: World) -> Array | None:
    """The same of rows that need no protection, of the kind of the private ones: ways to leave some out x plans."""
    draws, parts = len(plan_public.draws(len(y))), list(plan_public.folds(len(y), seed))

    def of(at: int) -> Array:
        """The losses, half-way between rows trained on and rows left out, without noise and of every plan."""
        inside, outside = parts[at]
        models = [best_model(X[inside], y[inside], ridge) for ridge in plan_public.RIDGES]
        models += list(simulate(X[inside], y[inside], plans, (seed, at), draws))
        halves = [[mean_loss(X[rows], y[rows], f) for f in models] for rows in (inside, outside)]
        return np.mean(halves, axis=0)  # type: ignore[no-any-return]

    found = world.share_out(of, range(len(parts)))
    if found is None:
        return None
    free, noisy = np.split(np.array(found), [len(plan_public.RIDGES)], axis=1)
    least = free[:, [int(free.mean(axis=0).argmin())]]
    return noisy.reshape(len(parts), draws, len(plans)).mean(axis=1) - least  # type: ignore[no-any-return]


def mean_loss(X: Array, y: Array, f: Array, b: float = 0.0) -> float:
    return float(Logistic().value(X @ f + b, y).mean())


def simulate(X: Array, y: Array, plans: Sequence[Plan], seed: Sequence[int], draws: int = 1) -> Array:
    """The models of runs with these plans' noise, one after the other and that `draws` times.

    The rows stand for all n' of a plan.
    """
    every = list(plans) * draws
    models = np.empty((len(every), X.shape[1]))
    for C in {plan.clip for plan in every}:
        own = [at for at, plan in enumerate(every) if plan.clip == C]
        rngs = [np.random.default_rng((*seed, at)) for at in own]
        models[own] = _in_step(X, y, [every[at] for at in own], rngs).T
    return models


def _in_step(X: Array, y: Array, plans: Sequence[Plan], rngs: Sequence[np.random.Generator]) -> Array:
    """Of runs that differ in T and sigma alone, a column each: one pass through the rows serves them all.

    The steps of `private.Thresholding`.
    """
    of = plans[0]
    gradient, penalty = ClippedGradient(X, y, Logistic(), of.clip, len(y)), make("mcp", of.lam, of.alpha)
    T, sigma, alone = np.array([[plan.iterations, plan.sigma, plan.alone] for plan in plans]).T
    theta, step = np.zeros((X.shape[1], len(plans))), np.full(len(plans), of.steps.first)
    model, before, xi_before = theta.copy(), theta, theta
    for k in range(1, int(T.max()) + 1):
        on = np.flatnonzero(k <= T)
        noise = np.stack([rngs[int(at)].standard_normal(X.shape[1]) for at in on], axis=1)
        xi, moved = theta.copy(), theta.copy()
        xi[:, on] = gradient(theta[:, on]) + sigma[on] * noise
        if k > 1:
            d_theta = (theta - before)[:, on]
            bend = np.sum(d_theta * (xi - xi_before)[:, on], axis=0)
            pairs = zip(np.sum(d_theta * d_theta, axis=0), bend)
            step[on] = [barzilai_borwein(*pair, of.steps.shortest, of.steps.longest) for pair in pairs]
        moved[:, on] -= step[on] * xi[:, on]
        if of.lam:
            for at in on:
                moved[:, at] = penalty.prox(moved[:, at], step[at])
        theta, before, xi_before = moved, theta, xi
        counted = np.maximum(1.0, k - alone[on])
        model[:, on] += np.where(counted == 1, theta[:, on] - model[:, on], (theta - model)[:, on] / counted)
    return model


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


def told(options: Any, found: Forecast) -> tuple[str, str]:
    """What a plan's excess is called, and how far it may be off."""
    if options.public_data is not None:
        error = plan_public.error(found.excesses)
        return "forecast ", f"standard error {error:.4f}, from the rows of {options.public_data}"
    means, (least, most) = ", geometric mean" * found.unlike, (found.excesses.min(), found.excesses.max())
    return "made up  ", f"{least:.4f} to {most:.4f} in {options.runs} runs{means}"


def doubt(options: Any, found: Forecast) -> list[str]:
    """A line that says so where the rows that were tried cannot tell."""
    if options.public_data is not None:
        return plan_public.doubt(found.excesses)
    if not found.unlike or found.excess <= SURE:
        return []
    return [
        "doubt       cannot tell the best T and C: where noise costs so much it hangs on what your columns tell, and\n"
        "            this plan may lose far above 2 % more than the best one (--public-data, more rows or budget)"
    ]


def lines(options: Options, rows: int, names: tuple[str, ...], found: Sequence[Forecast]) -> list[str]:
    best = min(found, key=lambda one: one.excess)
    plan, (word, how) = best.of, told(options, best)
    table = [f"              T {''.join(f'{T:>9}' for T in ITERATIONS)}"]
    for C in NORMS:
        cells = [one.excess for one in found if one.of.clip == C]
        table.append(f"  C = {C:<9g}   {''.join(f'{cell:9.4f}' for cell in cells)}")
    where = f" --data {quote(options.data)}" if options.data else ""
    public = f" --public-rows {rows}" if options.adjacency == "add-remove" else ""
    return [
        f"budget      epsilon {exactly(options.epsilon)} at delta {exactly(options.delta)}, {options.adjacency}",
        f"shape       {rows} rows, {len(names)} columns",
        f"plan        T = {plan.iterations}, C = {plan.clip:g}, sigma = {plan.sigma:.4g}, steps "
        f"{plan.steps.shortest:.4g} to {plan.steps.longest:.4g}, lambda = {plan.lam:g}",
        f"model       the mean of the last {plan.iterations - plan.alone:g} iterates",
        f"{word}   mean loss {best.excess:.4f} above the best linear model's ({how})",
        *doubt(options, best),
        "others      the same for every T and C",
        *table,
        f"run it      python -m distadmm.istdp{where} --epsilon {exactly(options.epsilon)} --delta "
        f"{exactly(options.delta)} --adjacency {options.adjacency}{public} --iterations {plan.iterations} "
        f"--gradient-norm {plan.clip:g} --shortest {plan.steps.shortest:.6g} --longest {plan.steps.longest:.6g} "
        f"--lambda {plan.lam:g} --reach {plan.alpha:.6g} --tail {plan.tail:g}",
        *(["", CAVEAT] if options.public_data is None else []),
    ]


main = with_flags(PROG, __doc__, Options, _work)
