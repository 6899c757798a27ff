"""How much Algorithm 1 as printed gives away: lower bounds on its delta for two pairs of neighbouring tables.

Theorem 3.3 claims (epsilon, delta).  For any event E, P(E | D) - e^epsilon P(E | D') is a lower bound on the
true delta; both events below depend on theta^2 alone, the first point that the algorithm releases.
"""

from __future__ import annotations

import math

import numpy as np

from distadmm.methods.istdp import printed
from distadmm.problems.losses import Logistic

Array = np.ndarray


def step_delta(n: int, longest: float, epsilon: float, delta: float) -> float:
    """D: n rows x = 0.  D': one row more, x = 1, y = 1.  Penalty and line search off, T = 2.

    Under D the gradient does not change, so the step is the longest; under D' it is about 4 (n + 1).  The
    step multiplies the noise, so theta^2 is far from theta^1 under D alone, however large sigma is.
    """
    from scipy.special import ndtr

    sigma = printed.noise_scale(epsilon, delta, 2, 1.0)
    rows, labels = np.zeros((n + 1, 1)), np.ones(n + 1)
    rows[-1] = 1.0
    gradient = [
        Logistic().slope(rows @ theta, labels) @ rows / (n + 1) for theta in (np.array([0.01]), np.zeros(1))
    ]
    here, there = longest, min(0.01 / float(gradient[0][0] - gradient[1][0]), longest)
    drift = -there * float(gradient[1][0])
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
