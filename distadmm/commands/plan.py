"""Plan a private run before it starts: noise, penalty and number of solves for a privacy budget.

Nothing here reads private data.  Candidates (K, eta) get the alpha that spends the budget, are ranked by the
loss that noise is expected to leave, worked out from the graph and public constants alone, and the best are run on
made-up rows of the same shape, whose errors are printed.  With --trust every private method is forecast, as
`compare --forecast` does, and it is said which to use.  plan istdp and plan sharing plan
those programmes; plan time says how long a run would take on machines far apart.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from distadmm import radmm
from distadmm.algorithm import Array, find
from distadmm.commands import plan_trust
from distadmm.commands.shape import ShapeOfNodes, shape
from distadmm.data import synthetic
from distadmm.errors import DONE, InputError, require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.consensus import forecast, sizing
from distadmm.methods.consensus import private as protect
from distadmm.methods.consensus.smoothing import Smoothing
from distadmm.methods.forecasts import Forecast, ranked
from distadmm.privacy.accounting.schedule import planned
from distadmm.privacy.accounting.statements import exactly
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.ranks.launch import told_if_long, with_flags
from distadmm.ranks.world import World
from distadmm.run import groups, observe, running
from distadmm.run.config import Config, Privacy
from distadmm.run.config import Problem as Data
from distadmm.run.setup import Prepared, node_like, prepare

PROG = "distadmm plan"
SOLVES = (4, 7, 12, 20, 35)
FINALISTS = 6  # plans that are run on the surrogate
CAVEAT = (
    "Made-up rows of the same shape: real accuracy differs with the data, the ranking of plans much less."
)
_EXACT = 6  # penalties, for each K, whose alpha is worked out to rank by


@flag_group("plan")
class Options(ShapeOfNodes):
    adjacency: str = flag(help="what one record may do: add-remove, replace or label")
    algorithm: str = flag(
        "radmm", help="radmm, mradmm, admm or madmm", choices=("radmm", "mradmm", "admm", "madmm")
    )
    weight: float = again(Data, "weight")
    rho: float = again(Data, "rho")
    noise: str = again(
        Privacy, "noise", default="gamma", help="law of the noise; gamma: of its length, in any direction"
    )
    iterations: int | None = flag(None, help="keep this number of iterations", at_least=1)
    eta: float | None = flag(None, help="keep this penalty", above=0)
    trust: str | None = again(groups.Shared, "trust", note="; forecasts every private method")
    runs: int = flag(5, help="runs on made-up rows of each plan that is tried", at_least=1)
    seed: int = flag(0, help="seed of the made-up rows", at_least=0)


class Plan(NamedTuple):
    """One choice of (K, eta, alpha) that spends at most the budget."""

    solves: int
    eta: float
    alpha: Array  # of each node
    proxy: float  # expected excess of the nodes' mean loss, by the recursion of `forecast`
    after: Smoothing  # what follows the last solve


class Outcome(NamedTuple):
    """What one surrogate run ends with."""

    excess: float  # mean training loss of the nodes' own models above the optimum's
    error: float  # mean training error of the nodes' own models
    worst: float  # that of the worst node
    best: float  # the optimum's


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] and words[0] in ("istdp", "sharing", "time"):
        return int(import_module(f"distadmm.commands.plan_{words[0]}").main(words[1:]))
    return with_flags(PROG, __doc__, Options, work)(words)


def work(options: Options, world: World) -> int:
    request = None if options.trust is None else plan_trust.asked(options, *shape(options))
    surrogates = [surrogate(options, run) for run in range(options.runs)]
    try:
        with told_if_long(PROG, "trying plans on made-up rows", world.is_root):
            own = best_of(options, surrogates, world)
    except InputError as error:  # on every rank
        if request is None:
            raise
        own = [f"plan        none: {error}"]
    if own is None:
        return DONE
    trusted = [] if request is None else plan_trust.lines(options, request, world)
    print("\n".join([*head(options, surrogates[0]), *own, *trusted, "", CAVEAT]))
    return DONE


def best_of(options: Options, surrogates: list[Prepared], world: World) -> list[str] | None:
    """The best plan in words; on rank 0."""
    found = candidates(options, surrogates[0], world)
    # The proxy ranks; the surrogate decides among the best, since only it knows the loss's shape.
    made = world.broadcast(world.share_out(lambda plan: affordable(surrogates[0], plan), found[:FINALISTS]))
    finalists = [plan for plan in made or [] if plan is not None]
    require(
        finalists,
        f"--epsilon {options.epsilon:g} is out of reach for the {FINALISTS} best plans; give a larger epsilon",
    )
    items = [(plan, at) for plan in finalists for at in range(options.runs)]
    outcomes = world.share_out(lambda item: outcome(options, surrogates[item[1]], item[0]), items)
    if outcomes is None:
        return None
    bands = [outcomes[at * options.runs : (at + 1) * options.runs] for at in range(len(finalists))]
    tried = [
        Forecast(at, np.array([o.excess for o in band]), "on synthetic rows") for at, band in enumerate(bands)
    ]
    best = ranked(tried)[0]
    return report(options, finalists[best.of], best, bands[best.of], found)


def surrogate(options: Options, run: int) -> Prepared:
    """Rows that were made up, dealt to the nodes of the graph; no private row is read."""
    rows, columns = shape(options)
    flags: dict[str, Any] = {
        "data": "tiny", "topology": options.topology, "weight": options.weight, "rho": options.rho,
        "iterations": 2, "observe": "none", "epsilon": options.epsilon, "delta": options.delta,
        "adjacency": options.adjacency, "noise": options.noise, "rng": "simulation", "progress": "none",
    }  # fmt: skip
    if options.adjacency == "add-remove":
        flags["public_rows"] = rows
    bare = {**flags, "epsilon": None, "adjacency": None, "noise": None}
    public, private = (radmm.configure(options.algorithm, **each) for each in (bare, flags))
    return on_made_up_rows(public, private, rows, columns, options.seed, run)


def on_made_up_rows(
    bare: Config, config: Config, rows: int, columns: int, seed: int, run: int = 0
) -> Prepared:
    """The nodes of `config` with so many made up rows each; `bare`, without noise, is for their graph alone."""
    small = prepare(bare, World())
    facts, like = small.node.facts, small.node.problem.objectives[0]
    n, weight = facts.n_nodes, config.problem.weight
    X, y = synthetic.table(n * rows, columns, seed, run)
    made = partial(GeneralisedLinear, loss=like.loss, weight=weight, ridge=facts.ridge)
    objectives = [made(X[i::n], y[i::n]) for i in range(n)]
    node = node_like(small.node, config, Problem(objectives))
    node.start = np.zeros((n, columns))
    return replace(small, config=config, node=node)


def candidates(options: Options, prepared: Prepared, world: World) -> list[Plan]:
    """All (K, eta) with the alpha that the budget allows, the best proxy first."""
    phases = prepared.config.algorithm.phases
    solves = SOLVES if options.iterations is None else (-(-options.iterations // phases),)
    if options.eta is not None:
        etas = [options.eta]
    else:
        longest = _draft(prepared, phases, max(solves), 1.0)
        etas = sizing.penalties(longest.config, longest.node, longest.recipe)
    drafts = [_draft(prepared, phases, K, eta) for K in solves for eta in etas]
    ranked = sorted(_ranked(prepared, drafts, world), key=lambda plan: plan.proxy)
    require(
        ranked,
        f"--epsilon {options.epsilon:g} at delta {options.delta:g} is out of reach for every K and eta tried; "
        "give a larger epsilon, more rows a node, or a smaller --weight",
    )
    return ranked


class _Draft(NamedTuple):
    """A choice of K and eta whose alpha is to be found."""

    solves: int
    eta: float
    config: Config
    node: Any
    recipe: Any
    releases: Sequence[Any]


def _draft(prepared: Prepared, phases: int, K: int, eta: float) -> _Draft:
    config = prepared.config.replace(iterations=phases * K, eta=repr(eta))
    node = node_like(prepared.node, config, prepared.node.problem)
    node.start = prepared.node.start
    releases = planned(config.algorithm, node, config.loop.iterations)
    recipe = protect.recipe_of(config, replace(prepared, config=config, node=node), releases)
    return _Draft(K, eta, config, node, recipe, releases)


def _ranked(prepared: Prepared, drafts: list[_Draft], world: World) -> list[Plan]:
    """Plans with an alpha that is good enough to rank by: exact at some penalties, in between by interpolation."""
    plans = []
    for K in dict.fromkeys(draft.solves for draft in drafts):
        those = [draft for draft in drafts if draft.solves == K]
        schedules = [(draft.recipe, draft.releases) for draft in those]
        alphas = sizing.interpolated(those[0].config, schedules, world, exact=_EXACT)
        for d, alpha in zip(those, alphas):
            if np.all(alpha > 0):
                recipe = replace(d.recipe, alpha=alpha[None])
                plans += [Plan(K, d.eta, alpha, *best_end(d, recipe))]
    return plans


def affordable(prepared: Prepared, plan: Plan) -> Plan | None:
    """The plan with the alpha of each node that spends the budget; None where no noise is enough."""
    draft = _draft(prepared, prepared.config.algorithm.phases, plan.solves, plan.eta)
    try:
        recipe = sizing.calibrate(draft.config.privacy, draft.recipe, draft.releases, World())
    except InputError:  # out of reach, or with noise that leaves the solve no digits
        return None
    return plan._replace(alpha=recipe.alpha[0])


def best_end(draft: _Draft, recipe: Any) -> tuple[float, Smoothing]:
    """The least expected excess loss of the nodes' own models, and what follows the last solve for it."""
    config, node = draft.config, draft.node
    quadratic = 2 * draft.eta * node.degree
    factor = np.ravel(np.broadcast_to(config.algorithm.noise_factor(quadratic), node.degree.shape))
    noise = factor**2 * ((recipe.dimension + 1) if recipe.noise == "gamma" else 1.0) / recipe.alpha[0] ** 2
    A = forecast.adjacency(node.network)
    assert A is not None

    def proxy(after: Smoothing) -> float:
        choice = sizing.Choice(draft.eta, after)
        return sizing.excess(config, node, recipe.dimension, A, noise, recipe.weight, choice)

    return min((proxy(after), after) for after in sizing.smoothings(config.algorithm, node, A))


def outcome(options: Options, prepared: Prepared, plan: Plan) -> Outcome:
    config = prepared.config.replace(
        iterations=prepared.config.algorithm.phases * plan.solves, eta=repr(plan.eta), epsilon=None, alpha="1",
        average=_word(plan.after), mixing=str(plan.after.rounds),
    )  # fmt: skip
    node = node_like(prepared.node, config, Problem(prepared.node.problem.objectives))
    node.start, node.table["alpha"] = prepared.node.start, plan.alpha
    here = replace(prepared, config=config, node=node)
    node = protect.armed(here, protect.plan_of(here), running.unwritten(config.run))
    state = config.algorithm.init(node)
    for k in range(1, config.loop.iterations + 1):
        state = config.algorithm.step(k, state, node)
    models = config.algorithm.finish(config.loop.iterations, state, node).f
    best = observe.optimum(node, observe.Observer(node, World(), lambda: None))[0]
    objectives = node.problem.objectives

    def loss(f: Array) -> float:
        return float(np.mean([o.data_loss(f) for o in objectives]))

    def error(f: Array) -> float:
        return float(np.mean([np.mean(o.A @ f <= 0) for o in objectives]))  # rows carry their labels

    errors, mean = [error(f) for f in models], float(np.mean([loss(f) for f in models]))
    return Outcome(mean - loss(best), float(np.mean(errors)), max(errors), error(best))


def _word(after: Smoothing) -> str:
    return "last" if after.power is None else f"{after.power:g}"


def head(options: Options, prepared: Prepared) -> list[str]:
    rows, columns = shape(options)
    return [
        f"budget      epsilon {exactly(options.epsilon)} at delta {exactly(options.delta)}, {options.adjacency}",
        f"network     {options.topology}, {prepared.node.facts.n_nodes} nodes of {rows} rows and {columns} columns",
    ]


def report(options: Options, best: Plan, made: Forecast, band: list[Outcome], found: list[Plan]) -> list[str]:
    phases = find(options.algorithm).phases
    errors = [100 * o.error for o in band]
    low, high = float(best.alpha.min()), float(best.alpha.max())
    alpha = f"{low:.4g}" if high - low < 1e-3 * low else f"{low:.4g} to {high:.4g} by node"
    ranked = ", ".join(f"{phases * p.solves} at {p.eta:.4g}: {p.proxy:.4f}" for p in found[:FINALISTS])
    return [
        f"plan        {phases * best.solves} iterations, of which {best.solves} read the rows; eta {best.eta:.4g}, "
        f"{options.noise} noise of alpha {alpha}",
        f"tried       {len(band)} runs on made-up rows: error of the nodes' own models {np.mean(errors):.1f} % "
        f"({min(errors):.1f} to {max(errors):.1f}), of the worst node {100 * np.mean([o.worst for o in band]):.1f} %, "
        f"without noise {100 * np.mean([o.best for o in band]):.1f} %; mean loss {made.excess:.4f} above its optimum",
        f"candidates  iterations at eta: loss expected above the optimum, from the graph alone: {ranked}",
        "run it      "
        f"python -m distadmm.radmm --algorithm {options.algorithm} --topology {quote(options.topology)} "
        f"--iterations {phases * best.solves} --eta {best.eta:.4g} "
        f"--average {_word(best.after)} --mixing {best.after.rounds} "
        f"--epsilon {exactly(options.epsilon)} --delta {exactly(options.delta)} "
        f"--adjacency {options.adjacency} --noise {options.noise} --weight {options.weight:g} --rho {options.rho:g}"
        + (f" --data {quote(options.data)}" if options.data else "")
        + (f" --rows-per-node {options.rows_per_node}" if options.rows_per_node else "")
        + (f" --public-rows {shape(options)[0]}" if options.adjacency == "add-remove" else ""),
    ]
