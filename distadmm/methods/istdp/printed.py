"""Algorithm 1 of Yuan and Peng (2023) as printed: for study, never for protection.

    g^k      = grad L(theta^k),   xi^k = g^k + b^k,   b^k ~ N(0, sigma^2 I)                    (1.1)
    alpha_k  = <d_theta, d_theta> / <d_g, d_g>  from the exact gradients, clipped              (1.2)
    theta^   = argmin <xi^k, theta> + 1/(2 alpha_k) |theta - theta^k|^2 + R(theta)            (1.3.1)
    accepted when F(theta^k) - F(theta^) >= beta alpha_k / 2 |theta^ - theta^k|^2,
    else alpha_k <- eta alpha_k and again                                                      (1.3.2)

Theorem 3.3 claims (epsilon, delta) for its sigma.  The claim is refuted: the scale of the noise that
reaches theta^k+1 is alpha_k, which is computed from the records without noise, and the set of accepted
points has an edge that moves with a single record.  The inner loop need not end either: about half of
the time xi points uphill and no step is accepted.  Here it ends after `inner` refusals, theta stays, and
the iteration is reported.

How much is given away: for any event E, P(E | D) - e^epsilon P(E | D') is a lower bound on the true delta of
neighbouring tables D and D'; both events below (`step_delta`, `search_delta`) depend on theta^2 alone, the first
point that the algorithm releases.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Defaults
from distadmm.methods.istdp.private import states
from distadmm.problems.concave import MCP, Penalty
from distadmm.problems.losses import Logistic, Loss

REFUTED = (
    "the Barzilai-Borwein step and the line search of Algorithm 1 read the records without noise; "
    "Theorem 3.3's bound is refuted"
)


@dataclass(frozen=True)
class PrintedMCP(MCP):
    """MCP with the shrinkage printed in section 2, which minimises what it should at step 1 only."""

    def prox(self, s: Array, step: float) -> Array:
        gamma, lam, alpha = step, self.lam, self.alpha
        size, cap = np.abs(s), alpha * lam
        inner = np.minimum(cap, np.maximum(0.0, alpha * (size - gamma * lam) / (alpha - 1)))
        C = np.stack([np.zeros_like(size), np.full_like(size, cap), inner])
        h1 = 0.5 * (C - size) ** 2 + lam * gamma * C - C**2 / (2 * alpha)
        t1 = np.take_along_axis(C, h1.argmin(axis=0)[None], 0)[0]
        t2 = np.maximum(cap, size)
        h2 = 0.5 * (t2 - size) ** 2 + alpha * (lam * gamma) ** 2 / 2
        return np.sign(s) * np.where(h1.min(axis=0) <= h2, t1, t2)


class State(NamedTuple):
    theta: Array  # theta^k+1
    before: Array  # theta^k
    g: Array  # grad L(theta^k)
    step: float  # the alpha_k that was accepted, or the last one tried
    accepted: bool  # False: the printed loop would not have ended (theta stays)
    stuck: Array  # the iterations k in which it would not have

    @property
    def model(self) -> Array:
        return self.theta


def noise_scale(epsilon: float, delta: float, T: int, U: float) -> float:
    """sigma of Theorem 3.3, for gradients bounded by U and T iterations."""
    epsilon_k = min(epsilon / (2 * math.sqrt(2 * T * math.log(2 / delta))), 0.5 * math.sqrt(epsilon / T))
    delta_k = delta / (2 * T)
    return 2 * U / epsilon_k * math.sqrt(2 * math.log(1.25 / delta_k))


def step_length(d_theta: Array, d_g: Array, shortest: float, longest: float) -> float:
    """(1.2); |d_g|^2 = 0 gives the longest step."""
    bend = float(d_g @ d_g)
    moved = float(d_theta @ d_theta)
    return min(max(moved / bend, shortest), longest) if bend * longest > moved else longest


@dataclass(frozen=True)
class AsPrinted(Defaults):
    """Algorithm 1 as a loop runs it; `place.rows` are X, y and the loss, `place.release(k, theta)` is b^k."""

    penalty: Penalty
    before: Array  # theta^0
    start: Array  # theta^1
    shortest: float
    longest: float
    beta: float = 1e-4
    eta: float = 0.5
    inner: int = 40

    def init(self, place: Any) -> State:
        before, start = np.array(self.before, dtype=float), np.array(self.start, dtype=float)
        return State(start, before, gradient(place.rows, before), 0.0, True, np.empty(0, dtype=int))

    def step(self, k: int, st: State, place: Any) -> State:
        X, y, loss = place.rows

        def F(theta: Array) -> float:
            return float(loss.value(X @ theta, y).mean()) + self.penalty.value(theta)

        theta, g = st.theta, gradient(place.rows, st.theta)
        xi = g + place.release(k, theta)
        step = step_length(theta - st.before, g - st.g, self.shortest, self.longest)
        F_theta = F(theta)
        for _ in range(self.inner):
            trial = self.penalty.prox(theta - step * xi, step)
            if F_theta - F(trial) >= self.beta * step / 2 * float((trial - theta) @ (trial - theta)):
                return State(trial, theta, g, step, True, st.stuck)
            step *= self.eta
        return State(theta, theta, g, step, False, np.append(st.stuck, k))


def gradient(rows: tuple[Array, Array, Loss], theta: Array) -> Array:
    X, y, loss = rows
    return loss.slope(X @ theta, y) @ X / len(y)


def iterate(
    X: Array, y: Array, loss: Loss, penalty: Penalty, draw: Callable[[int], Array], **rule: Any
) -> Iterator[State]:
    """theta^2, theta^3, ... for noise of one's own; `rule` are the other fields of `AsPrinted`."""
    method = AsPrinted(penalty, **rule)
    place = SimpleNamespace(rows=(X, y, loss), release=lambda k, theta: draw(k))
    return states(method, method.init(place), place)


def step_delta(n: int, longest: float, epsilon: float, delta: float) -> float:
    """D: n rows x = 0.  D': one row more, x = 1, y = 1.  Penalty and line search off, T = 2.

    Under D the gradient does not change, so the step is the longest; under D' it is about 4 (n + 1).  The
    step multiplies the noise, so theta^2 is far from theta^1 under D alone, however large sigma is.
    """
    from scipy.special import ndtr

    sigma = noise_scale(epsilon, delta, 2, 1.0)
    gradient = Logistic().slope(np.array([0.01, 0.0]), np.ones(2)) / (n + 1)  # at theta^0 and theta^1
    here, there = longest, min(0.01 / float(gradient[0] - gradient[1]), longest)
    drift = -there * float(gradient[1])
    cuts = np.geomspace(there * sigma * 1e-3, max(here, there) * sigma * 5, 4000)
    beyond = 2 * ndtr(-cuts / (here * sigma))
    beyond_more = ndtr((drift - cuts) / (there * sigma)) + ndtr((-cuts - drift) / (there * sigma))
    return max(0.0, float((beyond - math.exp(epsilon) * beyond_more).max()))


def search_edge(positive: int, negative: int, start: float) -> float:
    """The lowest theta that the line search can accept from `start`: n rows x = 1, so many labelled 1 and 0.

    A short enough step accepts all that is no higher than the start, so the edge is where F comes back to
    F(start).
    """
    from scipy.optimize import brentq

    def F(theta: float) -> float:
        n = positive + negative
        return float(positive * np.logaddexp(0, -theta) + negative * np.logaddexp(0, theta)) / n

    bottom = math.log(positive / negative)
    return float(brentq(lambda theta: F(theta) - F(start), bottom - 2 * (start - bottom) - 1, bottom))


def search_delta(n: int, start: float = 1.0) -> float:
    """D: n rows x = 1, half of them labelled 1.  D': one more labelled 1.  Penalty off, first step fixed.

    P(theta^2 < edge(D')) is zero under D'.  Under D, xi is nearly all noise, of either sign; halving lands
    between the two edges with the probability of an interval in log2 distance.
    """
    edge, edge_more = search_edge(n // 2, n // 2, start), search_edge(n // 2 + 1, n // 2, start)
    return 0.5 * math.log2((start - edge) / (start - edge_more))
