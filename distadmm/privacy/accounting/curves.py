"""Hockey-stick divergences as convex polygons: what is read off, carried over and composed.

H_gamma(P|Q) = sup_S [P(S) - gamma Q(S)] is convex and non-increasing in gamma, 1 at gamma = 0.  A pair (P, Q)
is kept as two polygons over gamma = e^eps >= 1, both upper bounds:

    right   H_gamma(P|Q),        left   H_gamma(Q|P), which is H_{1/gamma}(P|Q) by
            H_gamma(P|Q) = 1 - gamma + gamma H_{1/gamma}(Q|P).

A polygon through upper bounds at knots lies above the true curve, and so does the lower hull of those points
(a convex curve below the points is below their hull).  A polygon *is* a discrete pair of distributions: the
bends are its masses (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, "connect the dots").  Everything
that is done to a pair here keeps it above the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Array = np.ndarray

_CHORDS = 30.0  # knots beyond it cannot lower total variation by a chord across gamma = 1


class Curve(NamedTuple):
    """A convex polygon in gamma = e^eps."""

    eps: Array  # knots, the first one 0, rising
    value: Array  # the bound at each knot, not rising; it stays at the last value beyond the last knot


@dataclass(frozen=True, eq=False)  # told apart by identity, so that what is made of a pair can be cached
class Pair:
    """Upper bounds of H_gamma(P|Q) and of H_gamma(Q|P), gamma >= 1."""

    right: Curve
    left: Curve

    @property
    def mirrored(self) -> Pair:
        return Pair(self.left, self.right)


class Masses(NamedTuple):
    """The discrete pair of a polygon: privacy losses ln(p/q), their mass under P, and P(loss = infinity)."""

    loss: Array
    p: Array
    infinite: float


def hull(eps: Array, value: Array) -> Curve:
    """The lower convex hull, over gamma = e^eps, of upper bounds and of what monotony adds to them."""
    value = np.minimum.accumulate(np.clip(value, 0.0, 1.0))
    while len(eps) > 2:
        begin, end = _scaled_slopes(eps, value)
        below = begin[1:] >= end[:-1]  # a knot above the chord of its neighbours is not on the hull
        if below.all():
            break
        kept = np.concatenate([[True], below, [True]])
        eps, value = eps[kept], value[kept]
    return Curve(eps, value)


def _scaled_slopes(eps: Array, value: Array) -> tuple[Array, Array]:
    """The slope of each side times gamma at its beginning and at its end; no power of e overflows."""
    width, drop = np.diff(eps), np.diff(value)
    return drop * _over_expm1(width), drop / -np.expm1(-width)


def _over_expm1(width: Array) -> Array:
    """1 / (e^width - 1) for width > 0."""
    return np.exp(-width) / -np.expm1(-width)


def read(curve: Curve, eps: Array) -> Array:
    """The polygon at any eps >= 0."""
    eps = np.asarray(eps, dtype=float)
    if len(curve.eps) == 1:
        return np.full_like(eps, curve.value[0])
    i = np.clip(np.searchsorted(curve.eps, eps, side="right") - 1, 0, len(curve.eps) - 2)
    width = curve.eps[i + 1] - curve.eps[i]
    along = np.clip(eps - curve.eps[i], 0.0, width)
    share = np.exp(along - width) * np.expm1(-along) / np.expm1(-width)  # (e^along - 1) / (e^width - 1)
    # (1 - share) and share separately: a value of 0 at the far end must not swallow a tiny one.
    return curve.value[i] * (1 - share) + curve.value[i + 1] * share


def delayed(curve: Curve, eps: Array, by: float) -> Array:
    """E[(1 - e^(eps - by - Z))_+] for a loss Z >= 0 whose E[(1 - e^(eps - Z))_+] is `curve`."""
    eps = np.asarray(eps, dtype=float)
    early = -np.expm1(np.minimum(eps - by, 0.0)) + np.exp(np.minimum(eps - by, 0.0)) * curve.value[0]
    return np.where(eps >= by, read(curve, np.maximum(eps - by, 0.0)), early)


def joined(right: Curve, left: Curve) -> Pair:
    """The pair of two polygons, with the hull taken across gamma = 1 as well.

    The chord from (1/g', 1 - 1/g' + D/g') on the left to (g, H) on the right is at gamma = 1
    [(g' - 1 + D)(g - 1) + H (g' - 1)] / (g g' - 1); total variation is below the lowest of them.  Where both
    sides are one polygon, by symmetry one side of the hull crosses gamma = 1 from a knot to its own image.
    """
    right, left = _lowered(right, left, min(right.value[0], left.value[0]))
    slopes = [_scaled_slopes(*c)[0][0] if len(c.eps) > 1 else 0.0 for c in (right, left)]
    if 1.0 - right.value[0] + sum(slopes) >= 0:  # convex at gamma = 1 as it is
        return Pair(right, left)
    (g, h), (g_left, d) = (_near(c) for c in (right, left))
    if not (len(g) and len(g_left)):
        return Pair(right, left)
    if right is left:
        return Pair(*_lowered(right, left, min(float(((g + 2 * h) / (g + 2)).min()), right.value[0])))
    reach = np.multiply.outer(g_left, g) + g_left[:, None] + g
    chords = ((g_left + d)[:, None] * g + np.multiply.outer(g_left, h)) / reach
    return Pair(*_lowered(right, left, min(float(chords.min()), right.value[0])))


def _near(curve: Curve) -> tuple[Array, Array]:
    """gamma - 1 and the bound at the knots beyond the first that are close enough for a chord; there may be none."""
    close = curve.eps < _CHORDS
    close[0] = False
    return np.expm1(curve.eps[close]), curve.value[close]


def _lowered(right: Curve, left: Curve, tv: float) -> tuple[Curve, Curve]:
    """Both hulls with this value at gamma = 1."""
    first = hull(right.eps, np.append(tv, right.value[1:]))
    return first, first if left is right else hull(left.eps, np.append(tv, left.value[1:]))


def masses(pair: Pair) -> Masses:
    """The bends of both polygons, and what is left for loss 0."""
    weights, slopes = [], []
    for curve in (pair.right, pair.left):
        if len(curve.eps) == 1:
            weights.append(np.zeros(1))
            slopes.append(0.0)
            continue
        begin, end = _scaled_slopes(curve.eps, curve.value)
        weights.append(np.maximum(np.append(begin, 0.0) - np.append(0.0, end), 0.0))
        slopes.append(begin[0])
    p_right = weights[0][1:]
    p_left = weights[1][1:] * np.exp(-pair.left.eps[1:])
    at_zero = max(0.0, 1.0 - max(pair.right.value[0], pair.left.value[0]) + slopes[0] + slopes[1])
    return Masses(
        np.concatenate([-pair.left.eps[:0:-1], [0.0], pair.right.eps[1:]]),
        np.concatenate([p_left[::-1], [at_zero], p_right]),
        float(pair.right.value[-1]),
    )


def log_moment(m: Masses, theta: Array) -> Array:
    """ln sum p e^(theta loss), finite losses only, at an array of theta."""
    some = m.p > 0
    if not some.any():  # all its mass has infinite loss
        return np.full(np.shape(theta), -np.inf)
    exponent = np.multiply.outer(theta, m.loss[some]) + np.log(m.p[some])
    top = exponent.max(axis=-1)
    return top + np.log(np.exp(exponent - top[..., None]).sum(axis=-1))


def chained(first: Pair, second: Pair, most: int = 1024) -> Curve:
    """An upper bound of H_gamma(P3|P1), gamma >= 1, for first = (P2, P1) and second = (P3, P2).

    Group privacy (Dong, Roth and Su 2022): the best test between P1 and P3 has a power of at most
    R2(R1(level)), R the power of the best test of a pair; H_gamma = sup_x [R2(R1(x)) - gamma x], a polygon again.
    Of its bends at most about `most` are kept: the chords between them are above it.
    """
    if not (masses(first).p.any() and masses(second).p.any()):  # nothing is left to bound
        return Curve(np.zeros(1), np.ones(1))
    log_slope, level, power, slack = _chained_power(first, second)
    bends = np.unique(log_slope[log_slope > 0])
    every = max(-(-len(bends) // most), 1)
    eps = np.concatenate([[0.0], bends[::-1][::every][::-1]])  # the last one among them
    best = np.searchsorted(-log_slope, -eps)  # the slopes before it are above gamma
    gamma = np.exp(np.minimum(eps, 700.0))
    found = np.zeros(len(eps))
    for near in (-1, 0, 1):
        at = np.clip(best + near, 0, len(level) - 1)
        found = np.maximum(found, power[at] * (1 + slack) - gamma * level[at])
    return Curve(eps, np.minimum(found, 1.0))


def _chained_power(first: Pair, second: Pair) -> tuple[Array, Array, Array, float]:
    """R2 o R1: the logarithms of its slopes, falling, the bends (level, power) around them, and the relative
    rounding of the bends."""
    loss1, x1, y1 = _power(first)
    loss2, x2, y2 = _power(second)
    # Bends of R2 o R1: those of R1, and where R1 reaches a bend of R2.
    reached = np.interp(x2, y1, x1)
    level = np.unique(np.concatenate([x1, reached]))
    power = np.interp(np.interp(level, x1, y1), x2, y2)
    # The slope between two bends is the product of the two likelihood ratios that meet there.
    middle = (level[1:] + level[:-1]) / 2
    side1 = np.clip(np.searchsorted(x1, middle), 1, len(x1) - 1) - 1
    side2 = np.clip(np.searchsorted(x2, np.interp(middle, x1, y1)), 1, len(x2) - 1) - 1
    # Sums of n positive terms are right to n roundings, on either axis and through both powers.
    slack = 8 * (len(x1) + len(x2)) * float(np.finfo(float).eps)
    return loss1[side1] + loss2[side2], level, power, slack


def _power(pair: Pair) -> tuple[Array, Array, Array]:
    """The best test of a pair: losses in falling order, and the bends (level, power) before and after each."""
    loss, p, infinite = masses(pair)
    loss, p = loss[p > 0][::-1], p[p > 0][::-1]
    x = np.cumsum(p * np.exp(np.minimum(-loss, 700.0)))  # too small a level only adds to the power
    y = infinite + np.cumsum(p)
    y[-1] = max(y[-1], 1.0)
    # Of bends at one level the most powerful is kept; the side before it has the largest loss of them.
    last, first = np.append(np.diff(x) > 0, True), np.append(True, np.diff(x) > 0)
    x, y, loss = x[last], y[last], loss[first]
    if x[0] == 0.0:
        return loss[1:], x, y
    return loss, np.append(0.0, x), np.append(infinite, y)
