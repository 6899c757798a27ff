"""Rows in, coefficients out: the three ways to run ISTDP on arrays.

solve           no privacy: GIST to a stationary point
solve_private   T noisy clipped gradients, charged to a ledger
solve_printed   Algorithm 1 as printed, charged as what it is: unbounded
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.errors import InputError, require
from distadmm.methods.istdp import printed, private, solver
from distadmm.methods.istdp.plan import Plan, make_plan
from distadmm.methods.istdp.solver import Solution
from distadmm.privacy.accounting.scopes import Hypothesis, claim
from distadmm.privacy.accounting.statements import of_iterates, refuted
from distadmm.problems.concave import Penalty, WithIntercept, make
from distadmm.problems.losses import Loss, loss_named

if TYPE_CHECKING:
    from distadmm.methods.istdp.release import Release
    from distadmm.privacy.accounting.events import Adjacency
    from distadmm.privacy.ledger.rules import MemoryLedger
    from distadmm.privacy.noise.mechanism import Noise

Array = np.ndarray


class Step(NamedTuple):
    """One line of a private history; everything in it is computed from released values."""

    iteration: int
    step: float  # alpha_k
    nonzeros: int
    length: float  # |theta|


@dataclass(frozen=True)
class PrivateSolution:
    theta: Array
    history: list[Step]
    plan: Plan
    sigma: float  # of the noise on each coordinate of the mean gradient, as it was drawn
    epsilon: float  # of the schedule as it was drawn, at the plan's delta; infinite for the printed form
    statement: str  # what may be said of it, and what not
    ledger: MemoryLedger = field(repr=False)
    stuck: tuple[int, ...] = ()  # printed form: iterations whose inner loop would not have ended


def solve(
    X: Array,
    y: Array,
    *,
    loss: str = "logistic",
    penalty: str = "mcp",
    lam: float | None = None,
    alpha: float | None = None,
    intercept: bool = False,
    **options: Any,
) -> Solution:
    """A stationary point of mean loss + penalty, without privacy; an intercept is the last coefficient.

    What is not given of lambda and alpha comes from `rules`; `options` go to `solver.solve`.
    """
    X, y, smooth = checked(X, y, loss)
    chosen: Penalty = make(penalty, *rules(X, y, smooth, lam, alpha))
    if intercept:
        X, chosen = np.hstack([X, np.ones((len(y), 1))]), WithIntercept(chosen)
    return solver.solve(X, y, smooth, chosen, **options)


def rules(
    X: Array, y: Array, loss: Loss, lam: float | None = None, alpha: float | None = None
) -> tuple[float, float]:
    """lambda and alpha without privacy: both look at the records.

    lambda: a twentieth of the least value at which no column enters.  alpha: 3, in units where the steepest
    column has curvature 1.
    """
    if lam is None:
        lam = 0.05 * float(np.abs(loss.slope(np.zeros(len(y)), y) @ X).max(initial=0.0)) / len(y)
    if alpha is None:
        steepest = loss.max_curvature * float(np.einsum("ij,ij->j", X, X).max(initial=0.0)) / len(y)
        alpha = max(3.0, 3.0 / steepest) if steepest > 0 else 3.0
    return lam, alpha


def solve_private(
    X: Array,
    y: Array,
    *,
    epsilon: float,
    adjacency: Adjacency,
    delta: float = 1e-5,
    loss: str = "logistic",
    penalty: str = "mcp",
    intercept: bool = False,
    seed: int | None = None,
    ledger: MemoryLedger | None = None,
    watch: Callable[[int, Array], None] | None = None,
    **planned: Any,
) -> PrivateSolution:
    """theta^T of T noisy clipped gradients; (epsilon, delta)-DP when the noise is secure.

    Without a `seed` the noise is secure; with one it is a simulation, which protects nothing.  `ledger`
    must be of that mode.  `planned` are the keywords of `plan.make_plan`: clip, divisor, iterations, lam,
    alpha, rule, first, shortest, longest.  `watch(k, theta)` sees every iterate; what it makes of private
    rows is not covered.
    """
    from distadmm.privacy.noise.mechanism import Noise, source_of

    X, y, smooth = checked(X, y, loss)
    if intercept:
        X = np.hstack([X, np.ones((len(y), 1))])
    n, d = X.shape
    plan = make_plan(
        epsilon=epsilon, delta=delta, adjacency=adjacency, dimension=d, rows=n, loss=smooth, **planned
    )
    mode = "secure" if seed is None else "simulation"
    ledger = _ledger(ledger, plan.adjacency, mode, "sound")
    chosen: Penalty = make(penalty, plan.lam, plan.alpha)
    if intercept:
        chosen = WithIntercept(chosen)
    noise = Noise(ledger, source_of(mode, seed))
    xi, spent = _release(X, y, smooth, plan, noise)
    iterates = private.iterate(xi, np.zeros(d), chosen, plan.steps)
    theta, history = np.zeros(d), []
    for k, iterate in enumerate(islice(iterates, plan.iterations)):
        theta = iterate.theta
        history.append(_line(k, iterate.step, theta))
        if watch is not None:
            watch(k, theta)
    said = of_iterates(spent, delta, plan.adjacency, plan.iterations, plan.divisor, seeded=seed is not None)
    return PrivateSolution(theta + 0.0, history, plan, xi.sigma, spent, said, ledger)


def _release(X: Array, y: Array, loss: Loss, plan: Plan, noise: Noise) -> tuple[Release, float]:
    """The noisy gradient of the noise's mode, its schedule committed, and the epsilon of that schedule."""
    from distadmm.methods.istdp import release
    from distadmm.privacy.accounting import accountant

    secure = noise.source.mode == "secure"
    xi: Release = (release.GridGradient if secure else release.NoisyGradient)(X, y, loss, plan, noise)
    committed = [xi.event.times(plan.iterations)]
    noise.ledgers[0].commit(committed, plan.adjacency)
    return xi, accountant.epsilon(committed, plan.delta, plan.adjacency)


def solve_printed(
    X: Array,
    y: Array,
    *,
    epsilon: float,
    adjacency: Adjacency,
    lam: float,
    alpha: float | None = None,
    delta: float = 1e-5,
    loss: str = "logistic",
    bound: float = 1.0,
    iterations: int = 50,
    seed: int | None = None,
    ledger: MemoryLedger | None = None,
    shortest: float = 1e-8,
    longest: float = 1e8,
    inner: int = 40,
) -> PrivateSolution:
    """Algorithm 1 as printed, with the sigma of Theorem 3.3 for gradients bounded by U = `bound`.

    Its claim is refuted; the ledger says so and epsilon is infinite.
    """
    from distadmm.privacy.accounting.events import Gaussian
    from distadmm.privacy.noise.mechanism import Noise, source_of

    X, y, smooth = checked(X, y, loss)
    require(iterations >= 2, f"iterations is {iterations}; Algorithm 1 starts at k = 1: needed: at least 2")
    sigma = printed.noise_scale(epsilon, delta, iterations, bound)
    d = X.shape[1]
    moved = private.sensitivity(bound, 1.0, adjacency)  # U bounds the mean gradient, so n does not help
    event = Gaussian(sigma / moved)
    steps = private.NoisySteps("bb", shortest, shortest, longest)
    plan = Plan(
        epsilon=epsilon, delta=delta, adjacency=adjacency, clip=bound, divisor=1.0, iterations=iterations,
        dimension=d, noise_multiplier=event.noise_multiplier, steps=steps, lam=lam, alpha=alpha or 30.0,
    )  # fmt: skip
    mode = "secure" if seed is None else "simulation"
    ledger = _ledger(ledger, adjacency, mode, "paper")
    noise = Noise(ledger, source_of(mode, seed))

    def draw(k: int) -> Array:
        ledger.expose(printed.REFUTED, iteration=k, claimed=epsilon)
        return noise.draw(event, iteration=k, shape=d, sensitivity=moved)

    before, start = np.full(d, 0.01), np.zeros(d)  # theta^0 != theta^1, both data-free
    states = printed.iterate(
        X, y, smooth, printed.PrintedMCP(lam, plan.alpha), draw,
        before=before, start=start, shortest=shortest, longest=longest, inner=inner,
    )  # fmt: skip
    theta, history, stuck = start, [], []
    for k, state in enumerate(islice(states, iterations - 1), start=1):
        theta = state.theta
        history.append(_line(k, state.step, theta))
        if not state.accepted:
            stuck.append(k)
    said = refuted(epsilon, delta, printed.REFUTED)
    return PrivateSolution(theta + 0.0, history, plan, sigma, math.inf, said, ledger, tuple(stuck))


def loss_of(name: str) -> Loss:
    """A loss that GIST can take steps on: its curvature is what the first of them is chosen by."""
    loss = loss_named(name)
    require(
        math.isfinite(loss.max_curvature),
        f"--loss {name}: its max_curvature is infinite and steps are chosen by it; give the loss a finite one",
    )
    return loss


def checked(X: Any, y: Any, loss: str) -> tuple[Array, Array, Loss]:
    """X and y as floats, labels as -1/+1; one line says what is wrong with them."""
    chosen = loss_of(loss)
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    require(
        X.ndim == 2 and X.shape[0] >= 1 and X.shape[1] >= 1,
        f"X has shape {X.shape}; needed: rows and columns",
    )
    require(y.shape == X.shape[:1], f"y has shape {y.shape} for {len(X)} rows; needed: one target a row")
    for name, values in (("X", X), ("y", y)):
        finite = np.isfinite(values)
        if not finite.all():
            first = np.argwhere(~finite)[0].tolist()
            raise InputError(f"{name} holds a NaN or an infinity, first at {first}; remove or fill it in")
    if not chosen.labels:
        return X, y, chosen
    found = set(np.unique(y).tolist())
    for low in (0.0, -1.0):
        if found <= {low, 1.0}:
            return X, np.where(y == 1.0, 1.0, -1.0), chosen
    shown = ", ".join(f"{value:g}" for value in sorted(found)[:5])
    raise InputError(f"y holds {shown}; the {loss} loss needs labels 0 and 1 (or -1 and 1)")


def _line(k: int, step: float, theta: Array) -> Step:
    return Step(k, step, int(np.count_nonzero(theta)), float(np.sqrt(theta @ theta)))


def claim_of(adjacency: str | None, form: str = "sound") -> dict[str, Any]:
    """What this module and `private` establish: of the printed form, that its noise is fresh."""
    if form == "paper":
        return claim("istdp", ["fresh-noise"])
    divisor = Hypothesis("public-divisor", "code" if adjacency == "replace" else "flag")
    return claim(
        "istdp", ["clipped-examples", divisor, "data-free-steps", "fresh-noise", "data-free-schedule"]
    )


def _ledger(ledger: MemoryLedger | None, adjacency: Adjacency, mode: str, form: str) -> MemoryLedger:
    if ledger is None:
        from distadmm.privacy.ledger.books import open_ledger

        said = claim_of(adjacency, form)
        return open_ledger(None, 0, adjacency=adjacency, mode=mode, scope="record", claim=said)
    require(
        ledger.mode == mode,
        f"the ledger is for {ledger.mode} noise; a seed makes it a simulation, no seed secure: give both or neither",
    )
    return ledger


__all__ = ["PrivateSolution", "Solution", "rules", "solve", "solve_printed", "solve_private"]
