"""Training in moment mode over a star whose centre is party 1.

V1, V1-T, V1-ADMM   party 1 trains alone and sends its scores z1 and the labels; every other party answers
                    with its noisy moments.  Party 1 is not protected: z1 and the labels go out as they are.
V2                  party 1 sends nothing but its slopes g = l'(D_1 x_1) under noise, so both sides are
                    protected; labels stay with it.

Sensitivity of V2's g, for the exact minimiser x_1 of sum l + lambda_1/2 |x|^2 over rows |phi_i| <= R_1:

    one label flips             Delta^2 <= 1 + R_1^2/(16 lambda_1)
    one row and label replaced  Delta^2 <= 4 + R_1^2/(4 lambda_1)

For a label this asks for R_1^2 <= 8 lambda_1.  The proof: docs/proofs/moments.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.parts import Parts
from distadmm.errors import InputError, require
from distadmm.methods.sharing import admm, moments, observe
from distadmm.privacy.noise.queries import Query, Releases, committed, noise_for
from distadmm.problems.losses import Loss
from distadmm.ranks.star import Array, Star

MECHANISMS = ("v1", "v1-t", "v1-admm", "v2")
_ROUNDS = {"v1": 1, "v1-t": 3, "v1-admm": 5, "v2": 1}
MOST_ROUNDS = 10_000  # gradients of one party
_AT_ONCE = 4096  # rows that are taken in more digits
PROTECTED = ("label", "record")


@dataclass(frozen=True)
class Agreement:
    """What all parties agree on before the first message; all of it public."""

    mechanism: str
    bounds: dict[int, moments.Bounds]  # what each party enforces; party 1's rows matter to V2 alone
    mu: float | None  # budget of each answering party; None: no noise
    rounds: int
    mu_one: float | None = None  # V2: party 1's budget
    protect: str = "label"  # V2: what of party 1's record is protected
    weight_one: float = 10.0  # V2: lambda_1
    note: str = ""  # what is to be said of the bounds

    def __post_init__(self) -> None:
        require(
            self.mechanism in MECHANISMS,
            f"--mechanism is {self.mechanism!r}; choose one of: {', '.join(MECHANISMS)}",
        )
        require(
            1 <= self.rounds <= MOST_ROUNDS,
            f"--rounds is {self.rounds}; needed: 1 to {MOST_ROUNDS}, which travel in one message",
        )
        require(
            self.protect in PROTECTED, f"--protect is {self.protect!r}; choose one of: {', '.join(PROTECTED)}"
        )
        if self.mechanism == "v2":
            slope_sensitivity(self.protect, self.bounds[1].row, self.weight_one)


def rounds_of(mechanism: str, given: int | None) -> int:
    """Gradients a party releases: what was asked for, or what the mechanism does by default."""
    if mechanism in ("v1", "v2"):
        require(given in (None, 1), f"--rounds is {given}; {mechanism} sends one reply: use --mechanism v1-t")
        return 1
    return given or _ROUNDS[mechanism]


class Trained(NamedTuple):
    """The models of the parties hosted here, in plain columns, and the intercept at the centre."""

    x: dict[int, Array]
    b: float
    replies: dict[int, Array]  # at the centre: what each party gave away


def slope_sensitivity(protect: str, row: float, weight: float) -> float:
    """Delta of V2's slopes; see the module's head."""
    if protect == "label":
        require(
            row**2 <= 8 * weight,
            f"--row-norm {row:g} of party 1 and --lambda-one {weight:g}: V2 needs R^2 <= 8 lambda_1 = {8 * weight:g}",
        )
        return math.sqrt(1.0 + row**2 / (16.0 * weight))
    return math.sqrt(4.0 + row**2 / (4.0 * weight))


def slope_query(agreed: Agreement, rows: int, mode: str) -> Query:
    """V2's release by party 1: an N-vector of slopes."""
    # The minimiser is exact to a residual of 1e-9: see `own_slopes`, which refuses otherwise.
    row = agreed.bounds[1].row
    inexact = 2.0 * 0.25 * row * math.sqrt(rows) * 1e-9 / agreed.weight_one
    sensitivity = slope_sensitivity(agreed.protect, row, agreed.weight_one) + inexact
    sigma = noise_for(sensitivity, agreed.mu_one, mode, rows) if agreed.mu_one else 0.0
    return Query(sigma, sensitivity, rows)


def plan(agreed: Agreement, m: int, width: int, mode: str, spread: float = 0.0) -> moments.Schedule:
    """The releases of answering party m; `spread` is the noise in V2's slopes."""
    bounds = agreed.bounds[m]
    slope = slope_clip(spread) if agreed.mechanism == "v2" else None
    gram = agreed.mechanism in ("v1-admm", "v2")
    return moments.schedule(width, bounds, agreed.mu, mode, rounds=agreed.rounds, gram=gram, slope=slope)


def slope_clip(spread: float) -> float:
    """Where party 2 cuts the slopes it is sent."""
    return 1.0 + 3.0 * spread


def own_model(star: Star, parts: Parts, loss: Loss, agreed: Agreement) -> tuple[Array, Array] | None:
    """At the centre of V2 party 1's model and slopes: before anything is written, as they may not be solved for."""
    if agreed.mechanism != "v2" or parts.labels is None or not star.is_centre:
        return None
    return own_slopes(moments.Rows(parts.train[1], agreed.bounds[1]), parts.labels, loss, agreed.weight_one)


def train(
    star: Star,
    parts: Parts,
    problem: admm.Problem,
    agreed: Agreement,
    releases: Mapping[int, Releases],
    own: tuple[Array, Array] | None = None,
) -> Trained:
    """Called by every rank; `releases` holds those of the parties hosted here, `own` is `own_model`'s."""
    for m, out in releases.items():
        node: Any = out.ledger.node
        require(node == m, f"the ledger of node {node} was given to party {m}; give each its own")
    x: dict[int, Array] = {}
    told, b, others = None, 0.0, {m: parts.rows for m in star.home if m > 1}
    mode = next(iter(releases.values())).mode if releases else "simulation"

    def dealt(value: Array | None, dtype: Any) -> dict[int, Array]:
        return star.deal(None if value is None else dict.fromkeys(others, value), others, dtype)

    if agreed.mechanism == "v2":
        query = slope_query(agreed, parts.rows, mode)
        clip = slope_clip(query.sigma)
        if own := own or own_model(star, parts, problem.loss, agreed):
            x[1], g = own
            releases[1].commit(committed([query], mode))
            told = releases[1].vector(g, query, 0)
        given = {}
        for m, g in dealt(told, np.float64).items():
            desk = _ready(parts, agreed, m, releases[m], query.sigma)
            given[m] = moments.mutual_reply(desk, g, query.sigma, clip)
    else:
        if star.is_centre:
            assert parts.labels is not None
            x[1], b = observe.centralised([parts.train[1]], parts.labels, problem)
            told = parts.train[1] @ x[1] + b
        scores = dealt(told, np.float64)
        signs = dealt(
            parts.labels.astype(np.int8) if star.is_centre and parts.labels is not None else None, np.int8
        )
        received = {m: (scores[m], signs[m].astype(float)) for m in scores}
        given = answers(parts, agreed, releases, received, problem)
    replies = _collect(star, agreed, given, mode)
    return Trained({**x, **{m: answer.x for m, answer in given.items()}}, b, replies)


def answers(
    parts: Parts,
    agreed: Agreement,
    releases: Mapping[int, Releases],
    received: Mapping[int, tuple[Array, Array]],
    problem: admm.Problem,
    rows: Callable[..., moments.Rows] = moments.Rows,
) -> dict[int, moments.Answer]:
    """Of the answering parties hosted here, to the scores and labels that each was sent."""
    reply = moments.admm_reply if agreed.mechanism == "v1-admm" else moments.one_reply
    return {
        m: reply(_ready(parts, agreed, m, releases[m], made=rows), z1, labels, problem.loss, problem.lam)
        for m, (z1, labels) in received.items()
    }


def _ready(
    parts: Parts,
    agreed: Agreement,
    m: int,
    out: Releases,
    spread: float = 0.0,
    made: Callable[..., moments.Rows] = moments.Rows,
) -> moments.Desk:
    """Of an answering party: its rows within their bounds, and its releases, committed."""
    rows = made(parts.train[m], agreed.bounds[m], exact=out.mode == "secure")
    work = plan(agreed, m, rows.width, out.mode, spread)
    out.commit(committed(work.queries(out.mode, rows.width), out.mode))
    return moments.Desk(rows, agreed.bounds[m], work, out)


def own_slopes(rows: moments.Rows, labels: Array, loss: Loss, weight: float) -> tuple[Array, Array]:
    """(x_1, l'(D_1 x_1)) for the exact minimiser: Newton to a gradient of norm 1e-9, or no release."""
    x = np.zeros(rows.width)

    def value(x: Array) -> float:
        return float(loss.value(rows.scores(x), labels).sum()) + 0.5 * weight * float(x @ x)

    for _ in range(100):
        z = rows.scores(x)
        gradient = rows.gradient(loss.slope(z, labels)) + weight * x
        if np.linalg.norm(gradient) <= 1e-9:  # as floats show it
            gradient = _finely(rows, labels, loss, weight, x)
            if np.linalg.norm(gradient) <= 1e-9:
                return x, loss.slope(z, labels)
        hessian = rows.curvature(loss.curvature(z, labels)) + weight * np.eye(rows.width)
        try:
            step = np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            break
        size, before = 1.0, value(x)
        while value(x - size * step) > before and size > 1e-6:
            size *= 0.5
        x = x - size * step
    raise InputError(
        "party 1's own model was not solved to a gradient of norm 1e-9, which the privacy of its slopes needs; nothing "
        "was written or sent; choose another --loss, a larger --lambda-one, or --mechanism v1"
    )


def _finely(rows: moments.Rows, labels: Array, loss: Loss, weight: float, x: Array) -> Array:
    """The gradient at x in more digits, where the machine has them."""
    more: Any = np.longdouble
    x, total = x.astype(more), weight * x.astype(more)
    for at in range(0, len(labels), _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        matrix = rows.matrix[part].astype(more)
        total += matrix.T @ loss.slope(matrix @ x, labels[part])
    return np.asarray(total, dtype=float)


def _collect(
    star: Star, agreed: Agreement, answers: Mapping[int, moments.Answer], mode: str
) -> dict[int, Array]:
    """The replies at party 1, by party; nothing on other ranks."""
    widths = star.world.allgather({m: int(answer.x.size) for m, answer in answers.items()})
    sizes = {m: plan(agreed, m, d, mode).numbers(d) for part in widths for m, d in part.items()}
    sent = {m: answer.message for m, answer in answers.items()}
    return star.up(sent, dict(sorted(sizes.items())), np.float64) or {}
