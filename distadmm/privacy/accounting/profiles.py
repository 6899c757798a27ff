"""Privacy profiles of noise, as polygons, and the Renyi moments of what they bound.

What every mechanism's pairs are made of: the loss of noise that was shifted (`base`), of randomised response, losses
that come later (`after`), power functions that are chained (`powered`), and what lies beyond the last knot (`Tail`).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distadmm.privacy.accounting import curves, gaussian, knorm
from distadmm.privacy.accounting.curves import Curve, Pair
from distadmm.privacy.accounting.events import Adjacency, Array, Event, check_adjacency

PER_SPREAD = 64  # knots to one standard deviation of the loss
_DENSE = 13.0  # standard deviations beyond the mean with knots at that distance; then each is 1 % further out
_FAR = 20.0  # standard deviations beyond the mean where a loss is cut; what is left counts as infinite loss


@lru_cache(maxsize=4096)
def pairs_of(event: Event, adjacency: Adjacency, route: str = "profile") -> tuple[Pair, ...]:
    """`event.pairs`, made once: what is composed of a pair is kept by the pair's identity."""
    check_adjacency(adjacency)
    return event.pairs(adjacency, route)


def symmetric(curve: Curve) -> tuple[Pair, ...]:
    """One pair for both ways."""
    return (Pair(curve, curve),)


def randomised_response(epsilon: float) -> Curve:
    """The curve that dominates every epsilon-DP mechanism."""
    return Curve(np.array([0.0, epsilon]), np.array([math.tanh(epsilon / 2) * (1 + 1e-15), 0.0]))


def knots(spread: float, top: float) -> Array:
    """0 and up to `top`: close together up to 13 spreads beyond the mean (about spread^2/2), then 1 % apart."""
    reach = min(_DENSE + spread / 2, 3 * _DENSE)
    dense = np.arange(0, int(reach * PER_SPREAD) + 1) * (spread / PER_SPREAD)
    if dense[-1] >= top:
        return np.append(dense[dense < top], top)
    steps = math.ceil(math.log(top / dense[-1]) / math.log(1.01))
    return np.concatenate([dense, np.geomspace(dense[-1], top, steps + 1)[1:]])


@lru_cache(maxsize=1024)
def base(noise: str, dimension: int, shift: float, one_signed: bool) -> Curve:
    """E[(1 - e^(eps - Z))_+] of the noise shifted by `shift` (in units of 1/alpha, or of sigma): Z = max(0, L), or the
    larger loss of both signs."""
    hockey_stick: Callable[[Array], Array]
    if noise == "gamma":
        spread, top = shift / math.sqrt(dimension), shift
        family = knorm.hockey_stick if one_signed else knorm.hockey_stick_sign_free
        hockey_stick = lambda eps: family(dimension, shift, eps)  # noqa: E731
    else:
        spread, top = shift, math.inf
        law = gaussian.hockey_stick if one_signed else gaussian.hockey_stick_sign_free
        hockey_stick = lambda eps: law(shift, eps)  # noqa: E731
    top = min(top, spread**2 / 2 + _FAR * spread)
    eps = knots(spread, top)
    return curves.hull(eps, hockey_stick(eps))


def after(loss: Curve, tau: float) -> Curve:
    """E[(1 - e^(eps - tau - Z))_+] at the knots of Z and of tau + Z."""
    eps = np.unique(np.concatenate([loss.eps, loss.eps + tau]))
    value = curves.delayed(loss, eps, tau)
    if loss.value[-1] == 0:  # a loss that is bounded, for sure: not all but a rounding of it
        eps[-1] *= 1 + 1e-15
        value[-1] = 0.0
    return Curve(eps, value)


def powered(one: Pair, steps: int, bounded: float = math.inf) -> Pair:
    """R o ... o R by squaring, R the power function of `one`; no loss is above `bounded`."""
    if steps == 1:
        return one
    half = powered(one, steps // 2)
    curve = curves.chained(half, half)
    if steps % 2:
        curve = curves.chained(one, curves.joined(curve, curve))
    if math.isfinite(bounded):
        inside = curve.eps < bounded
        curve = Curve(np.append(curve.eps[inside], bounded), np.append(curve.value[inside], 0.0))
    return curves.joined(curve, curve)


class Tail(NamedTuple):
    """Bounds a profile beyond its last knot: that of a chain of `steps` profiles h(eps - tau), h the hockey-stick of
    the noise shifted by `shift` (`sides` is 2: at most that of either sign).

    However gamma is split into gamma_1 ... gamma_n,

        H_gamma(P_n|P_0)  <=  sum_i gamma_1 ... gamma_(i-1) H_(gamma_i)(P_(n+1-i)|P_(n-i)),

    and with eps_i = eps/n + c_i each term of a (a-1) int gamma^(a-2) H_gamma dgamma is a moment of tau + L.
    """

    noise: str
    dimension: int
    shift: float
    tau: float = 0.0
    sides: int = 1
    steps: int = 1

    def log_moment(self, orders: Array, above: float) -> Array:
        """ln of a (a-1) int_(eps > above) e^((a-1) eps) H deps, an upper bound."""
        n, a = self.steps, orders
        # For normal noise c_i rising by mu^2 a step is the best split; it stays where losses are positive.
        variance = self.shift**2 / (self.dimension if self.noise == "gamma" else 1)
        apart = min(variance, max(0.0, above / n - self.tau) * 2 / n)
        c = apart * (np.arange(n) - (n - 1) / 2)
        total = np.full_like(a, -np.inf)
        for i in range(n):
            p = (a - 1) * n + i
            outside = np.log(a * (a - 1) * n / (p * (p + 1))) + p * (self.tau - c[i]) + c[:i].sum()
            total = np.logaddexp(total, outside + self._bare(p + 1, above / n + c[i] - self.tau))
        return math.log(self.sides) + total

    def _bare(self, order: Array, above: float) -> Array:
        """ln E[e^(p max(0, L)); max(0, L) > above] at p = order - 1."""
        tail = (
            gaussian.log_tail_moment(self.shift, order, max(above, 0.0))
            if self.noise == "gaussian"
            else knorm.log_tail_moment(self.dimension, self.shift, order, max(above, 0.0))
        )
        return tail if above >= 0 else np.logaddexp(0.0, tail)


def moments(pairs: Sequence[Pair], tails: Sequence[Tail], orders: Array) -> Array:
    """(a - 1) times a Renyi curve: from the discrete pairs of a profile, whose divergences are above the mechanism's at
    every order, each with the tail beyond its last knot."""
    return np.max([log_power_moment(*ends, orders) for ends in zip(pairs, tails)], axis=0)


def log_power_moment(pair: Pair, tail: Tail, orders: Array) -> Array:
    """ln E_Q[(P/Q)^a] of the discrete pair with its tail, an upper bound.

    E_Q[(P/Q)^a] = 1 + a (a-1) int gamma^(a-2) [H_gamma - (1 - gamma)_+]: the constant that a polygon keeps up to its
    last knot m adds a H(m) e^((a-1) m), and what is beyond is the tail's.
    """
    found = curves.masses(pair)
    # Of tiny losses the sum is nothing but its rounding, less than half of this; many releases make something of it.
    total = curves.log_moment(found, orders - 1) + 2 * float(np.finfo(float).eps) * len(found.p)
    if found.infinite == 0:
        return total
    last = float(pair.right.eps[-1])
    kept = np.log(orders * found.infinite) + (orders - 1) * last
    return np.logaddexp(np.logaddexp(total, kept), tail.log_moment(orders, last))
