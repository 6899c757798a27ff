"""Rows in, coefficients out: the three ways to run ISTDP on arrays.

solve           no privacy: GIST to a stationary point
solve_private   T noisy clipped gradients, charged to a ledger
solve_printed   Algorithm 1 as printed, charged as what it is: unbounded
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.mapping import named_mappings
from distadmm.data.together import releases
from distadmm.errors import InputError, require
from distadmm.methods.istdp import printed, private, solver
from distadmm.methods.istdp.plan import Plan, make_plan
from distadmm.methods.istdp.release import Desk, GridGradient, NoisyGradient, Paid, Price, price_of
from distadmm.methods.istdp.solver import Solution
from distadmm.privacy.accounting.events import Adjacency, Gaussian, Leakage, Unbounded
from distadmm.privacy.accounting.scopes import Hypothesis, claim
from distadmm.privacy.accounting.statements import Statement, of_claim, refuted
from distadmm.privacy.ledger.books import open_ledger
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.ledger.schedules import Committed
from distadmm.privacy.ledger.tally import is_committed
from distadmm.privacy.noise.mechanism import Noise, source_of
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.privacy.noise.sources import Source
from distadmm.problems.concave import Penalty, WithIntercept, make
from distadmm.problems.losses import Array, Loss, foreign, loss_named


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


class Course(NamedTuple):
    """A private run, ready to be looped over: by `_run` in memory, by the command with all that a run has."""

    method: Any
    place: Desk
    iterations: int


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
    X, chosen = _free(X, make(penalty, *rules(X, y, smooth, lam, alpha)), intercept)
    return solver.solve(X, y, smooth, chosen, **options)


def _free(X: Array, penalty: Penalty, intercept: bool) -> tuple[Array, Penalty]:
    """With a last column of ones that no penalty holds, where there is an `intercept`."""
    return (np.hstack([X, np.ones((len(X), 1))]), WithIntercept(penalty)) if intercept else (X, penalty)


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
    account: str | None = None,
    unsaid: str = "",
    **planned: Any,
) -> PrivateSolution:
    """theta^T of T noisy clipped gradients; (epsilon, delta)-DP when the noise is secure.

    Without a `seed` the noise is secure; with one it is a simulation, which protects nothing.  `ledger`
    must be of that mode.  `planned` are the keywords of `plan.make_plan`: clip, divisor, iterations, lam,
    alpha, rule, first, shortest, longest, tail.  `watch(k, theta)` sees every model; what it makes of private
    rows is not covered.  What secure noise spends is entered in the account of the rows (`account`: a file that is
    shared), and a warning says what was spent on them before; `unsaid`: why the caller will say that it has no bound.
    """
    X, y, smooth = checked(X, y, loss)
    plan = make_plan(
        epsilon=epsilon, delta=delta, adjacency=adjacency, dimension=X.shape[1] + intercept, rows=len(y),
        loss=smooth, **planned,
    )  # fmt: skip
    mode = "secure" if seed is None else "simulation"
    ledger = _ledger(ledger, plan.adjacency, mode, "sound")
    price = price_of(plan, mode)
    course = sound_course(X, y, smooth, price, ledger, source_of(mode, seed), penalty, intercept)
    if mode == "secure":
        _enter(X, y, ledger, price.schedule.doubted(unsaid or unchecked(smooth)), delta, account)
    ledger.commit(price.schedule.events, plan.adjacency)
    file = note_unchecked(ledger, smooth)
    state, history = _run(course, watch)
    said = said_of(ledger, delta)
    words, spent = f"{said.text} {said.not_covered}", math.inf if file else price.epsilon
    return PrivateSolution(state.model + 0.0, history, plan, price.sigma, spent, words, ledger)


def _enter(
    X: Array, y: Array, ledger: MemoryLedger, schedule: Committed, delta: float, account: str | None
) -> None:
    from distadmm.data.content import of_matrix
    from distadmm.privacy.ledger.account import Account
    from distadmm.run.running import unwritten
    from distadmm.run.spending import enter

    def say(line: str) -> None:
        warnings.warn(
            f"{line}. Every private fit spends, those of a grid search and its folds too.", stacklevel=5
        )

    rows = of_matrix(X, y, Account(account).key())
    enter(unwritten(None), account, [ledger], [schedule], rows.marks, delta, say=say)


def sound_course(
    X: Array,
    y: Array,
    loss: Loss,
    price: Price,
    ledger: MemoryLedger,
    source: Source,
    penalty: str,
    intercept: bool,
    **kept: bool,
) -> Course:
    """T noisy clipped gradients, which are to be committed before the first of them."""
    plan = price.plan
    X, chosen = _free(X, make(penalty, plan.lam, plan.alpha), intercept)
    xi = (GridGradient if source.mode == "secure" else NoisyGradient)(X, y, loss, plan, Noise(ledger, source))
    method = private.Thresholding(chosen, plan.steps, plan.dimension, plan.alone)
    return Course(method, Desk(Paid(ledger, xi, **kept)), plan.iterations)


def unchecked(loss: Loss) -> str:
    """A slope that is not this package's own may make a record's gradient of other records: nothing bounds it."""
    file = foreign(loss)
    return f"{UNCHECKED} {file}" if file else ""


def note_unchecked(ledger: MemoryLedger, loss: Loss) -> str:
    why = unchecked(loss)
    if why and not any(event.unbounded for event in ledger.events):
        ledger.expose(why, iteration=0)
    return foreign(loss)


def note_sanitised(ledger: MemoryLedger, pairs: Sequence[str]) -> None:
    """What columns leak that mappings replaced before: listed once, never added to an epsilon."""
    for told in releases(named_mappings(pairs), seeded=True) if pairs else ():
        if (leak := Leakage(*told)) not in ledger.events:
            ledger.charge(leak, iteration=0)


def _run(course: Course, watch: Callable[[int, Array], None] | None = None) -> tuple[Any, list[Step]]:
    state, history = course.method.init(course.place), []
    for k in range(1, course.iterations + 1):
        state = course.method.step(k, state, course.place)
        history.append(line(k, state))
        if watch is not None:
            watch(k - 1, state.model)
    return state, history


def solve_printed(
    X: Array,
    y: Array,
    *,
    epsilon: float,
    adjacency: Adjacency,
    delta: float = 1e-5,
    loss: str = "logistic",
    bound: float = 1.0,
    iterations: int = 50,
    seed: int | None = None,
    ledger: MemoryLedger | None = None,
    inner: int = 40,
    **steps: Any,
) -> PrivateSolution:
    """Algorithm 1 as printed, with the sigma of Theorem 3.3 for gradients bounded by U = `bound`.

    Its claim is refuted; the ledger says so and epsilon is infinite.  `steps` are lam, and if wanted alpha, shortest
    and longest.
    """
    X, y, smooth = checked(X, y, loss)
    price = printed_price(epsilon, delta, adjacency, X.shape[1], iterations, bound, **steps)
    mode = "secure" if seed is None else "simulation"
    ledger = _ledger(ledger, adjacency, mode, "paper")
    state, history = _run(printed_course(X, y, smooth, price, ledger, source_of(mode, seed), inner))
    said, stuck = refuted(epsilon, delta, printed.REFUTED), tuple(state.stuck.tolist())
    return PrivateSolution(state.model + 0.0, history, price.plan, price.sigma, math.inf, said, ledger, stuck)


def printed_price(
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    dimension: int,
    iterations: int,
    bound: float,
    *,
    lam: float,
    alpha: float | None = None,
    shortest: float = 1e-8,
    longest: float = 1e8,
) -> Price:
    """Theorem 3.3's sigma, and what it bounds: nothing."""
    require(iterations >= 2, f"iterations is {iterations}; Algorithm 1 starts at k = 1: needed: at least 2")
    sigma = printed.noise_scale(epsilon, delta, iterations, bound)
    # U bounds the mean gradient, so n does not help.
    event = Gaussian(sigma / private.sensitivity(bound, 1.0, adjacency))
    steps = private.NoisySteps("bb", shortest, shortest, longest)
    plan = Plan(
        epsilon=epsilon, delta=delta, adjacency=adjacency, clip=bound, divisor=1.0, iterations=iterations,
        dimension=dimension, noise_multiplier=event.noise_multiplier, steps=steps, lam=lam, alpha=alpha or 30.0,
    )  # fmt: skip
    refused = Unbounded(printed.REFUTED, epsilon)
    return Price(plan, event, sigma, math.inf, Committed(beside=(refused,)))


def printed_course(
    X: Array, y: Array, loss: Loss, price: Price, ledger: MemoryLedger, source: Source, inner: int = 40
) -> Course:
    """Algorithm 1; each of its releases is entered as what it is: unbounded."""
    plan, noise = price.plan, Noise(ledger, source)

    def draw(k: int, theta: Array) -> Array:
        return noise.draw(
            price.event, iteration=k, shape=plan.dimension, sensitivity=plan.sensitivity,
            unproved=Unbounded(printed.REFUTED, claimed=plan.epsilon),  # of all iterations together
        )  # fmt: skip

    method = printed.AsPrinted(
        printed.PrintedMCP(plan.lam, plan.alpha),
        before=np.full(plan.dimension, 0.01), start=np.zeros(plan.dimension),  # theta^0 != theta^1, both data-free
        shortest=plan.steps.shortest, longest=plan.steps.longest, inner=inner,
    )  # fmt: skip
    return Course(method, Desk(Paid(ledger, draw), (X, y, loss)), plan.iterations - 1)


def loss_of(name: str) -> Loss:
    """A loss that GIST can take steps on: its curvature is what the first of them is chosen by."""
    loss = loss_named(name, dents=True)  # steps are accepted by descent, and noise is for clipped gradients
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


def line(k: int, state: Any) -> Step:
    theta = state.model
    return Step(k, state.step, int(np.count_nonzero(theta)), float(np.sqrt(theta @ theta)))


def said_of(ledger: MemoryLedger, delta: float) -> Statement:
    """What may be said of a run of noisy clipped gradients, by its ledger."""
    kind = ledger.statement_kind
    known = ledger.tally.header["claim"] or claim_of(ledger.adjacency, ledger.mode)
    committed = is_committed(ledger.tally)
    return of_claim(kind, known, ledger.events, ledger.adjacency, delta, committed=committed)  # type: ignore[arg-type]


def claim_of(adjacency: str | None, mode: str, form: str = "sound", observed: str = "") -> dict[str, Any]:
    """What this module and `private` establish: of the printed form, that its noise is fresh; of secure noise, that
    it is added to sums of whole numbers.

    `observed` is what was computed of the rows without noise.
    """
    if form == "paper":
        return claim("istdp", ["fresh-noise"])
    divisor = Hypothesis("public-divisor", "code" if adjacency == "replace" else "flag")
    return claim(
        "istdp", ["clipped-examples", divisor, "data-free-steps", "fresh-noise", "data-free-schedule"],
        **({"observed": observed} if observed else {}), **({"exact": True} if mode == "secure" else {}),
    )  # fmt: skip


def _ledger(ledger: MemoryLedger | None, adjacency: Adjacency, mode: str, form: str) -> MemoryLedger:
    if ledger is None:
        said = claim_of(adjacency, mode, form)
        return open_ledger(None, 0, adjacency=adjacency, mode=mode, scope="record", claim=said)
    require(
        ledger.mode == mode,
        f"the ledger is for {ledger.mode} noise; a seed makes it a simulation, no seed secure: give both or neither",
    )
    return ledger


__all__ = ["PrivateSolution", "Solution", "rules", "solve", "solve_printed", "solve_private"]
