"""Will these penalties converge, and how fast?  Theorem IV.1 of Recycled ADMM, and the spectrum.

Prints the smallest gamma that meets conditions (i) and (ii) of the theorem for the best L and mu, and the
factor by which each iteration shrinks the error near the optimum, from the spectrum of the iteration matrix.
Without --data nothing is read: Lipschitz constants and curvatures come from public bounds.
With --algorithm masked: what masked sums will assume, send and cost (its flags: add --help).
Of another programme, check sharing, istdp, funnel or ias: what its paper claims, what holds, what was measured.
"""

import json as json_format
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm import radmm
from distadmm.algorithm import Facts
from distadmm.commands import check_masked
from distadmm.commands.check_report import lines, table
from distadmm.errors import DONE, InputError, require
from distadmm.flags import again, flag, flag_group, parse, value_of
from distadmm.graphs.facts import mu
from distadmm.graphs.topology import Topology, load
from distadmm.methods.consensus import recycled, theory
from distadmm.methods.consensus.penalty import Array, as_number, default_penalty, schedule
from distadmm.methods.consensus.rate import Setting, linear_rate
from distadmm.problems.losses import loss_named
from distadmm.ranks.launch import command
from distadmm.ranks.world import World
from distadmm.run.config import Problem
from distadmm.run.groups import Shared
from distadmm.run.setup import prepare

PROG = "distadmm check"
STAGES_MOST = 400
LEVELS = 9  # curvatures tried between the public bounds


@flag_group("check")
class Options:
    """Flags of the command; those of the run itself have the same names there."""

    topology: str = again(Problem, "topology")
    eta: str = flag(
        "auto", help="penalty: a number, one a node (0.5,1,...), 'node' (of the graph file), or 'auto'"
    )
    eta_growth: str = flag("1", help="growth q of eta_i q_i^k a solve: a number, one a node, or 'node'")
    eta_cap: float | None = again(recycled.RADMM, "eta_cap", above=None)
    dual_step: str = again(recycled.RADMM, "dual_step")
    gamma: float = again(recycled.RADMM, "gamma")
    lipschitz: tuple[float, ...] = flag(
        (), help="M_i, one number or one a node (default: from --data, else C c1 + rho/N)", above=0
    )
    curvature: tuple[float, ...] = flag(
        (), help="curvatures common to all nodes, for the rate (default: rho/N to M)", above=0
    )
    data: str | None = flag(None, help="take M_i and the curvatures from these data: adult, tiny or a file")
    loss: str = again(Shared, "loss", note=": logistic, huber, smooth-hinge, squared")
    weight: float = again(Problem, "weight")
    rho: float = again(Problem, "rho")
    excess: float | None = flag(
        None, help="tau of Theorems VI.1 and VI.2: how much worse than a reference each node may be", above=0
    )
    failure: float = flag(
        0.05, help="delta of VI.1 and VI.2, the probability of being worse", above=0, below=1
    )
    reference_norm: float = flag(10.0, help="length of the reference classifier", above=0)
    alpha: float | None = flag(None, help="inverse noise of VI.2; with --columns", above=0)
    columns: int | None = flag(None, help="d of VI.2", at_least=1)
    json: bool = flag(False, help="print one JSON object instead of a table")

    def __post_init__(self) -> None:
        require(
            self.data is None or not self.curvature,
            "--curvature and --data both give curvatures; leave one of them out",
        )
        require(
            self.alpha is None or (self.excess is not None and self.columns is not None),
            "--alpha is the noise of Theorem VI.2; give --excess and --columns too",
        )


class Penalties(NamedTuple):
    """Penalties of all nodes over the solves, as arrays of one entry a node."""

    first: Array
    last: Array
    steps: list[theory.Stage]
    theta: Array  # dual steps at the last penalties
    own: bool  # each node's own dual step


class Bounds(NamedTuple):
    lipschitz: Array  # M_i
    lipschitz_from: str
    hessians: list[Array]  # (N, d, d) once, or (N,) for each curvature tried
    hessians_from: str


class Verdict(NamedTuple):
    """Theorem IV.1 for one setting; its conditions are sufficient by the paper's claim only."""

    constants: theory.Constants | None  # L and mu at the gamma asked for; None: no L and mu meet (i), (ii)
    margins: theory.Margins | None
    smallest: float | None  # the smallest gamma that meets them; None: none does
    smallest_reduced: float | None  # the same with L = mu = 2: conditions (iii), (iv)
    impossible: bool  # bipartite with equal penalties: no gamma can


class Report(NamedTuple):
    options: Options
    topology: Topology
    penalties: Penalties
    bounds: Bounds
    theorem: Verdict | None  # None: too many nodes for it
    rates: dict[str, float]  # of an iteration of ADMM ("admm"), of a pair of R-ADMM ("radmm")


def _read(words: Sequence[str]) -> Any:
    if words and not words[0].startswith("-"):
        from distadmm.commands import check_papers

        name, known = words[0], check_papers.GROUPS
        require(
            name in known,
            f"check {name}: no such programme; choose one of: {', '.join(known)}, or none for radmm",
        )
        return name, parse(f"{PROG} {name}", check_papers.__doc__ or "", known[name][0], words[1:])
    if value_of(words, "--algorithm") == "masked":
        return parse(PROG, check_masked.__doc__ or "", [check_masked.Options], words)[0]
    return parse(PROG, __doc__ or "", [Options], words)[0]


def _work(options: Any, world: Any) -> int:
    if isinstance(options, tuple):
        from distadmm.commands.check_papers import GROUPS

        name, parts = options
        said = partial(GROUPS[name][1], parts)
    else:
        said = partial(_said if isinstance(options, Options) else check_masked.lines, options)
    world.on_root(lambda: print("\n".join(said())))
    return DONE


def _said(options: Options) -> list[str]:
    report = check(options)
    return [json_format.dumps(table(report), indent=2)] if options.json else lines(report)


def check(options: Options) -> Report:
    """The theorem and the spectrum for one choice of network, penalties and bounds."""
    topology = load(options.topology)
    penalties = penalties_of(options, topology)
    bounds = bounds_of(options, topology)
    few = topology.n <= theory.NODES_MOST
    theorem = verdict(topology, penalties, options.gamma, bounds.lipschitz) if few else None
    speed = rates(topology, penalties, options.gamma, bounds.hessians)
    return Report(options, topology, penalties, bounds, theorem, speed)


def verdict(topology: Topology, penalties: Penalties, gamma: float, lipschitz: Array) -> Verdict:
    steps = penalties.steps
    constants = theory.best_constants(topology, steps, gamma, lipschitz)
    return Verdict(
        constants=constants,
        margins=None if constants is None else theory.margins(topology, steps, gamma, lipschitz, constants),
        smallest=theory.smallest_gamma(topology, steps, lipschitz),
        smallest_reduced=theory.smallest_gamma(topology, steps, lipschitz, theory.Constants(2.0, 2.0)),
        impossible=theory.infeasible_for_every_gamma(topology, steps),
    )


def rates(
    topology: Topology, penalties: Penalties, gamma: float, hessians: Sequence[Array]
) -> dict[str, float]:
    """The worst rate over the given curvatures: of one iteration of ADMM, of one pair of R-ADMM."""
    ends = penalties.last, penalties.theta
    settings = {"admm": Setting(*ends), "radmm": Setting(*ends, gamma)}
    return {
        name: float(np.max([linear_rate(topology, H, setting) for H in hessians]))
        for name, setting in settings.items()
    }


def penalties_of(options: Options, topology: Topology) -> Penalties:
    if options.eta == "auto":
        curvature = loss_named(options.loss).max_curvature
        ridge = options.rho / topology.n
        facts = Facts(topology.n, topology.degrees, mu(topology), options.weight, ridge, curvature)
        eta = np.full(topology.n, default_penalty(facts))
    else:
        eta = _one_a_node(options.eta, "--eta", "eta", topology)
    plan = schedule(eta, _one_a_node(options.eta_growth, "--eta-growth", "q", topology), options.eta_cap)
    rows = [plan(1).ravel()]
    while len(rows) <= STAGES_MOST:
        rows.append(plan(len(rows) + 1).ravel())
        if np.array_equal(rows[-1], rows[-2]):
            break
    last = rows[-1]
    if options.dual_step == "own":
        theta = last
    elif options.dual_step == "common":
        theta = np.full(topology.n, last.min())
    else:
        theta = np.full(topology.n, _number(options.dual_step, "--dual-step"))
    return Penalties(rows[0], last, theory.stages(rows), theta, options.dual_step == "own")


def bounds_of(options: Options, topology: Topology) -> Bounds:
    """M_i and curvatures: given, from data, or from public bounds, and which of the three."""
    n = topology.n
    low = options.rho / n
    c1 = loss_named(options.loss).max_curvature
    lipschitz = np.full(n, options.weight * c1 + low)
    hessians: list[Array] = []
    lipschitz_from = f"C c1 + rho/N, from the loss alone (rows no longer than 1, c1 = {c1:g})"
    if options.data is not None:
        require(
            options.loss in ("logistic", "squared"),  # which are nowhere more curved than at f = 0
            f"--data takes curvatures of the logistic and the squared loss, not of {options.loss}; give --lipschitz "
            "and --curvature",
        )
        flags = {name: getattr(options, name) for name in ("topology", "data", "loss", "weight", "rho")}
        run = prepare(radmm.configure("admm", eta="1", progress="none", **flags), World())
        hessians, lipschitz = at_optimum(run.node.problem.objectives, f"the rows of {options.data}")
        rows = f"the rows of {options.data}: for an observer who may see all of them"
        lipschitz_from, hessians_from = f"{rows}, at f = 0", f"{rows}, at their optimum"
    if options.lipschitz:
        lipschitz, lipschitz_from = _spread(options.lipschitz, "--lipschitz", n), "--lipschitz"
    require(
        bool(np.all(np.isfinite(lipschitz) & (lipschitz > 0))),
        f"the curvature of --loss {options.loss} has no public bound; give --lipschitz",
    )
    if options.curvature:
        hessians = [np.full(n, h) for h in options.curvature]
        hessians_from = "--curvature, common to all nodes"
    elif options.data is None:
        require(low > 0, "--rho is 0, so no curvature is known from below; give --curvature or --data")
        high = float(np.max(lipschitz))
        hessians = [np.full(n, h) for h in np.geomspace(min(low, high), high, LEVELS)]
        ends = f"rho/N = {low:.4g} to the greatest M_i = {high:.4g}"
        hessians_from = f"{LEVELS} values from {ends}, common to all nodes"
    return Bounds(lipschitz, lipschitz_from, hessians, hessians_from)


def at_optimum(objectives: Sequence[Any], whose: str) -> tuple[list[Array], Array]:
    """The Hessians of all nodes at the pooled optimum, and the greatest curvature of each objective at 0."""
    f = np.zeros(objectives[0].dimension)
    hessians = np.array([objective.hess(f) for objective in objectives])
    lipschitz = np.array([np.linalg.eigvalsh(H)[-1] for H in hessians])
    gradient = sum(objective.grad(f) for objective in objectives)
    for _ in range(100):
        try:
            step = np.linalg.solve(hessians.sum(axis=0), gradient)
        except np.linalg.LinAlgError:
            raise InputError(
                f"{whose} leave a direction without curvature, and --rho adds none; "
                "give --rho above 0, or --curvature and --lipschitz instead of --data"
            ) from None
        f = f - step
        hessians = np.array([objective.hess(f) for objective in objectives])
        gradient = sum(objective.grad(f) for objective in objectives)
        if np.linalg.norm(step) <= 1e-9 * (1 + np.linalg.norm(f)):
            return [hessians], lipschitz
    raise InputError(f"Newton's method did not find the optimum of {whose}; give --curvature instead")


def _one_a_node(text: str, option: str, attribute: str, topology: Topology) -> Array:
    if text == "node":
        values = topology.node_attributes.get(attribute)
        if values is None:
            raise InputError(
                f"{option} node: the nodes of {topology.source} have no {attribute}; give a number"
            )
        return values
    return _spread([_number(part, option) for part in text.split(",")], option, topology.n)


def _spread(values: Sequence[float], option: str, n: int) -> Array:
    right = len(values) in (1, n)
    require(right, f"{option} has {len(values)} numbers; needed: one, or one for each of {n} nodes")
    return np.broadcast_to(np.array(values), n).copy()


def _number(text: str, option: str) -> float:
    value = as_number(text, option, "a number (see --help for words)")
    require(0 < value < math.inf, f"{option} is {text}; needed: a finite number above zero")
    return value


main = command(PROG, _read, _work)
