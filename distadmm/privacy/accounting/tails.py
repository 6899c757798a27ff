"""Renyi moments of privacy profiles: their polygons, and what lies beyond the last knot of each."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distadmm.privacy.accounting import curves, gaussian, knorm, profiles
from distadmm.privacy.accounting.curves import Pair
from distadmm.privacy.accounting.events import Adjacency, KNorm, ObjectivePerturbation

Array = np.ndarray


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


def tails(event: KNorm | ObjectivePerturbation, adjacency: Adjacency) -> list[Tail]:
    """The tail of each pair of `profiles.directed`."""
    if isinstance(event, KNorm):
        return [Tail("gamma", event.dimension, event.alpha * event.shift)]
    noise, dimension, tau = event.noise, event.dimension, event.log_jacobian
    shift = profiles.unit_shift(event)
    if adjacency == "label" and event.logistic:
        return [Tail(noise, dimension, event.records * shift)]
    steps = profiles.chain_length(event, adjacency)
    if steps == 1 and event.one_signed:
        return [Tail(noise, dimension, shift), Tail(noise, dimension, shift, tau)]
    return [Tail(noise, dimension, shift, tau, 1 if event.one_signed else 2, steps)]


def swapped(event: KNorm | ObjectivePerturbation) -> Tail:
    """The tail of `profiles.pointwise`: one loss tau + L at twice the shift."""
    assert isinstance(event, ObjectivePerturbation)
    sides = 1 if event.one_signed else 2
    return Tail(event.noise, event.dimension, 2 * profiles.unit_shift(event), event.log_jacobian, sides)


def log_power_moment(pair: Pair, orders: Array, tail: Tail) -> Array:
    """ln E_Q[(P/Q)^a] of the discrete pair with its tail, an upper bound.

    E_Q[(P/Q)^a] = 1 + a (a-1) int gamma^(a-2) [H_gamma - (1 - gamma)_+]: the constant that a polygon keeps up to its
    last knot m adds a H(m) e^((a-1) m), and what is beyond is the tail's.
    """
    found = curves.masses(pair)
    total = curves.log_moment(found, orders - 1)
    if found.infinite == 0:
        return total
    last = float(pair.right.eps[-1])
    kept = np.log(orders * found.infinite) + (orders - 1) * last
    return np.logaddexp(np.logaddexp(total, kept), tail.log_moment(orders, last))
