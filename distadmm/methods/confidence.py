"""What a mapping leaks and keeps, with confidence, where the joint law of S and Y is known from n rows alone.

The rows are independent draws of the true law P over k cells; P^ are their frequencies.  With probability 1 - delta
(Agrawal 2020, Theorem I.2: P(n KL(P^||P) >= x) <= e^-x (e x/(k-1))^(k-1) for x > k-1)

    P lies in the ball  B = {P : KL(P^||P) <= eps}                                                              (1)

at once for P_SY, P_S and P_Y, each with its own k and a share of delta.  The bounds below hold for every P of the ball
and for every mapping p(u|y), so also for one that was designed on the same rows, and for as many as one likes.  Where
values of S or Y are left out because no row has them, the law of the others is in the ball too, with the k of all:
KL(P^||P(.|A)) = KL(P^||P) + log P(A).  For any law Q without zeros, i = log Q(s,u)/(Q(s) Q(u)), d_y = KL(p(.|y)||Q_U):

    I_P(S;U) = E_P[i] + KL(P_SU||Q_SU) - KL(P_S||Q_S) - KL(P_U||Q_U)                                            (2)
    I_P(Y;U) = E_P[d] - KL(P_U||Q_U)                                                                           (3)

Data processing bounds KL(P_SU||Q_SU) by KL(P_SY||Q_SY), and the last two terms of (2) together by the first from below.
So all that is needed are suprema over B of sum P a, in closed form, and of sum P (a + log P/Q), by weak duality:
any multipliers give a bound, a search only makes it small.  Floating point, without interval rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import lambertw, xlogy

from distadmm.data.joint import Array, Table
from distadmm.errors import require
from distadmm.methods.ias.measures import Measure

SMALL = 1e-12  # stands for p(u|y) = 0 inside a measure
BISECTIONS = 60


class Interval(NamedTuple):
    low: float
    high: float

    def text(self) -> str:
        """Rounded outwards."""
        low, high = (
            Context(prec=6, rounding=how).create_decimal_from_float(float(end))
            for end, how in zip(self, (ROUND_FLOOR, ROUND_CEILING))
        )
        return f"[{float(low):g}, {float(high):g}]"


class Bounds(NamedTuple):
    """What holds of the true law, all at once."""

    I_SU: Interval
    I_YU: Interval
    E: Interval | None  # of a measure of leakage, where one was given
    ball: Ball
    # Rows of these frequencies that would bound I(S;U), where these bound it no more than none do.
    enough: int | None

    def text(self) -> str:
        more = "" if self.E is None else f", E[d] in {self.E.text()}"
        nothing = "" if self.enough is None else " (so of every law)"
        return f"I(S;U) in {self.I_SU.text()}{nothing}, I(Y;U) in {self.I_YU.text()}{more}"

    def lines(self) -> list[str]:
        more = f"{self.ball.n} rows say nothing of I(S;U); about {self.enough} with these frequencies would"
        return [self.text(), *([more] if self.enough is not None else []), *self.ball.lines()]

    def summary(self) -> dict[str, object]:
        found: dict[str, object] = {"I_SU": list(self.I_SU), "I_YU": list(self.I_YU)}
        found |= {} if self.E is None else {"E_d": list(self.E)}
        found |= {} if self.enough is None else {"rows_that_would_bound_I_SU": self.enough}
        of = {"confidence": self.ball.confidence, "rows": self.ball.n, "cells": list(self.ball.cells)}
        return {**of, "radius": self.ball.eps, **found}


def radius(cells: int, n: int, delta: float) -> float:
    """eps of (1) for a law on so many cells."""
    if cells < 2:
        return 0.0
    k = cells - 1

    def excess(x: float) -> float:
        return x - k * (1 + np.log(x / k)) + np.log(delta)

    above = 2.0 * k + 4 * np.log(1 / delta) + 4
    while excess(above) < 0:
        above *= 2
    return float(brentq(excess, k, above, xtol=1e-12)) * (1 + 1e-9) / n


@dataclass(frozen=True, eq=False)
class Ball:
    """Where the true law is, after so many counted rows."""

    counts: Array  # a row per s, a column per y
    confidence: float
    cells: tuple[int, int]  # values that S and Y could have had, as known without the rows

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts, dtype=float)
        whole = np.array_equal(counts, np.round(counts)) and (counts >= 0).all()
        require(
            whole and counts.sum() > 1,
            "a confidence bound needs counts of rows; the table holds probabilities",
        )
        require(0 < self.confidence < 1, f"--confidence is {self.confidence:g}; needed: between 0 and 1")
        require(
            all(told >= seen for told, seen in zip(self.cells, counts.shape)),
            f"--alphabets is {self.cells[0]},{self.cells[1]}; the rows have {counts.shape[0]} values of S and "
            f"{counts.shape[1]} of Y already: give the numbers that are possible",
        )
        object.__setattr__(self, "counts", counts)

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def law(self) -> Array:
        return self.counts / self.counts.sum()

    @cached_property
    def eps(self) -> float:
        return radius(self.cells[0] * self.cells[1], self.n, (1 - self.confidence) / 2)

    # Where values of Y are left out, the law of S among those whose Y is not is no part of P_S: only (1) of all holds.

    def eps_of(self, axis: int) -> float:
        """For P_S (axis 0) or P_Y (axis 1)."""
        if self.counts.shape[1 - axis] < self.cells[1 - axis]:
            return self.eps
        return min(self.eps, radius(self.cells[axis], self.n, (1 - self.confidence) / 4))

    def lines(self) -> list[str]:
        return [
            f"with probability {self.confidence:g} all of this holds of the law that the {self.n} rows are independent "
            f"draws of, for this and every other mapping (a ball of {self.eps:.3g} nats over {self.cells[0]} x "
            f"{self.cells[1]} cells)"
        ]

    def bounds(self, P: Array, measure: Measure | None = None) -> Bounds:
        """Of the mapping P = p(u|y), a row per y."""
        P = np.asarray(P, dtype=float)
        require(
            len(P) == self.law.shape[1], f"the mapping has {len(P)} rows; needed {self.law.shape[1]}, one a y"
        )
        about_Y = self._of_Y(P)
        about_S, leaked = self._of_S(P, about_Y.high), None if measure is None else self._leakage(P, measure)
        return Bounds(about_S, about_Y, leaked, self, self._enough(P) if self._vacuous(about_S, P) else None)

    def _vacuous(self, about_S: Interval, P: Array) -> bool:
        """Whether I(S;U) is bounded by the entropy of S and by what U says of Y at most, and by no row."""
        every = min(np.log(len(self.law)), np.log(P.max(0).sum()))
        return about_S.low <= 0 and about_S.high >= every * (1 - 1e-9) > 0

    def _enough(self, P: Array) -> int:
        """How many rows of these frequencies would bound I(S;U): the first found, doubling."""
        more = self
        while more._vacuous(more._of_S(P, more._of_Y(P).high), P):
            more = replace(more, counts=2 * more.counts)
        return more.n

    # -- (3) ------------------------------------------------------------------------------------------------------

    def _of_Y(self, P: Array) -> Interval:
        p, eps = self.law.sum(0), self.eps_of(1)
        low, high = 0.0, min(np.log(len(P)), np.log(P.max(0).sum()))  # no more than H(Y), and maximal leakage
        for q in _references(p, eps):
            d = xlogy(P, np.divide(P, q @ P, out=np.ones_like(P), where=P > 0)).sum(1)
            high = min(high, linear(p, d, eps))
            low = max(low, -curved(p, -d, q, eps))
        return Interval(low, max(low, high))

    # -- (2) ------------------------------------------------------------------------------------------------------

    def _of_S(self, P: Array, most: float) -> Interval:
        p, pS = self.law, self.law.sum(1)
        P = P[:, P.max(0) > 0]
        low, high = 0.0, min(most, np.log(len(p)))
        for q in _references(p.ravel(), self.eps):
            Q = q.reshape(p.shape)
            pushed = Q @ P
            i = np.log(pushed / (pushed.sum(1, keepdims=True) * pushed.sum(0)))
            a, flat = (i @ P.T).ravel(), p.ravel()
            # P_SU is in such a ball, too.
            merged = curved((p @ P).ravel(), i.ravel(), pushed.ravel(), self.eps)
            high = min(high, curved(flat, a, q, self.eps), merged)
            least = -linear(flat, -a, self.eps) - curved(pS, np.zeros(len(pS)), Q.sum(1), self.eps_of(0))
            low = max(low, least, -curved(flat, -a, q, self.eps))
        return Interval(low, max(low, high))

    # -- any convex f: its tangent near the estimated P_U, and what f may stand above it ------------------------------

    def _leakage(self, P: Array, measure: Measure) -> Interval:
        """sum_y p(y) sum_u v f(a/v) of v = p(u|y), a = P_U, which is linear in p(y) but for a."""
        p, eps, v = self.law.sum(0), self.eps_of(1), np.maximum(P[:, P.max(0) > 0], SMALL)
        at = _references(p, eps)[0] @ v  # any point will do
        value, slope = measure.f(at / v), measure.f1(at / v)
        mean = p @ slope
        bilinear, above = np.zeros(2), np.zeros_like(v)
        for u, column in enumerate(v.T):
            ends = np.array([-linear(p, -column, eps), linear(p, column, eps)])
            slopes = np.array([-linear(p, -slope[:, u], eps), linear(p, slope[:, u], eps)])
            corners = np.outer(slopes - mean[u], ends - at[u])
            bilinear += corners.min(), corners.max()
            for end in ends:  # a convex function is furthest above its tangent at an end
                rise = slope[:, u] * (end - at[u]) / column
                above[:, u] = np.maximum(above[:, u], column * (measure.f(end / column) - value[:, u] - rise))
        tangent = (v * value).sum(1) + v @ mean
        low = -linear(p, -tangent, eps) - at @ mean + bilinear[0]
        high = linear(p, tangent + above.sum(1), eps) - at @ mean + bilinear[1]
        return Interval(max(0.0, low), high)


def ball_of(table: Table | None, confidence: float | None, alphabets: tuple[int, ...] = ()) -> Ball | None:
    """The ball of a table of counts, where a confidence is asked for."""
    if confidence is None:
        require(not alphabets, "--alphabets is for --confidence; give it too, or leave it out")
        return None
    require(
        table is not None and table.records,
        "--confidence needs counted rows, and this is a table of probabilities; give counts, --rows or --data",
    )
    assert table is not None
    require(len(alphabets) in (0, 2), "--alphabets has two numbers: how many values S can have, and Y or X")
    known = alphabets or table.alphabets
    require(
        known,
        "--confidence needs to know which values S and Y or X can have, also those that no row has; give the columns "
        "their domains in a --schema file, or two numbers by --alphabets",
    )
    assert known
    return Ball(table.cells, confidence, (known[0], known[1]))


def _references(p: Array, eps: float) -> list[Array]:
    """Laws without zeros around the estimate; each gives valid bounds, and the best of them count."""
    return [(1 - w) * p + w / len(p) for w in np.clip([0.03 * eps, 0.3 * eps, eps], 1e-12, 0.5)]


def linear(p: Array, a: Array, eps: float) -> float:
    """sup of sum P a over KL(p||P) <= eps.

    sum P (nu - a) >= exp(sum p log(P (nu - a)/p)) >= e^-eps exp(sum p log(nu - a)) for every nu > max a (Jensen).
    """
    top, spread = float(a.max()), float(np.ptp(a))
    if spread <= 1e-300 or eps == 0:
        return float(p @ a) if eps == 0 else top
    below, weight = top - a[p > 0], p[p > 0]

    def bound(log_gap: float) -> float:
        gap = np.exp(log_gap)
        return float(top + gap - np.exp(weight @ np.log(below + gap) - eps))

    found = minimize_scalar(bound, bounds=np.log(spread) + np.array([-25.0, 15.0]), method="bounded")
    return float(min(top, found.fun))


def curved(p: Array, a: Array, q: Array, eps: float) -> float:
    """At least sup of sum P (a + log P/q) over KL(p||P) <= eps: the Lagrangian's maximum, cell by cell.

    g(P) = P (a - log q - nu) + P log P + lam p log P is concave below lam p and convex beyond, so on the interval that
    (1) leaves to a cell its maximum is at an end, or where g' = 0 on the concave side.
    """
    if eps == 0:
        return float(p @ a + xlogy(p, p / q).sum())
    low, high = limits(p, eps)
    b, entropy = a - np.log(q), float(xlogy(p, p).sum())
    seen = p > 0

    def lagrangian(lam: float, nu: float) -> float:
        slope = b - nu

        def g(P: Array) -> Array:
            return P * slope + xlogy(P, P) + lam * xlogy(p, np.where(seen, P, 1.0))

        ends = np.maximum(g(low), g(high))
        with np.errstate(all="ignore"):
            scale = lam * p[seen]
            # log P + scale/P = -(slope + 1): r - log r = c with r = scale/P >= 1
            c = np.maximum(-(slope[seen] + 1) - np.log(scale), 1.0)
            r = np.where(c < 700, -lambertw(-np.exp(-np.minimum(c, 700)), -1).real, c + np.log(c))
            r = np.nan_to_num(r, nan=1.0)  # at c = 1, its branch point, where scipy knows none
        inner = p.copy()
        inner[seen] = np.clip(scale / np.maximum(r, 1.0), low[seen], high[seen])
        return float(np.maximum(ends, np.where(seen, g(inner), ends)).sum() + nu + lam * (eps - entropy))

    def over_nu(log_lam: float) -> float:
        lam = float(np.exp(log_lam))
        # nu makes the cells' masses one; near the estimate it is b + log p + 1 + lam
        around = b[seen] + np.log(p[seen]) + 1 + lam
        ends = float(around.min()) - 2 - lam, float(around.max()) + 2 + lam
        return float(minimize_scalar(lambda nu: lagrangian(lam, nu), bounds=ends, method="bounded").fun)

    found = minimize_scalar(
        over_nu, bounds=(-2.0, 9.0 - 0.5 * np.log(eps)), method="bounded", options={"xatol": 1e-2}
    )
    return float(found.fun)


def limits(p: Array, eps: float) -> tuple[Array, Array]:
    """Least and most of each cell in the ball: kl(p, P) <= eps of cell against rest, rounded outwards."""

    def kl(P: Array) -> Array:
        with np.errstate(all="ignore"):
            return xlogy(p, p / P) + xlogy(1 - p, (1 - p) / (1 - P))

    inside_low, outside_low, inside_high, outside_high = p.copy(), np.zeros_like(p), p.copy(), np.ones_like(p)
    for _ in range(BISECTIONS):
        middle = (inside_low + outside_low) / 2
        fits = kl(middle) <= eps
        inside_low, outside_low = np.where(fits, middle, inside_low), np.where(fits, outside_low, middle)
        middle = (inside_high + outside_high) / 2
        fits = kl(middle) <= eps
        inside_high, outside_high = np.where(fits, middle, inside_high), np.where(fits, outside_high, middle)
    return np.where(p > 0, outside_low, 0.0), outside_high
