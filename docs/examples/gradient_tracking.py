"""Gradient tracking: an algorithm of your own in one file.

    mpiexec -n 20 python -m distadmm.radmm --algorithm docs/examples/gradient_tracking.py --rate 0.5

A. Nedic, A. Olshevsky, W. Shi, SIAM J. Optim. 27 (2017), with Metropolis weights.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import distadmm


class State(NamedTuple):
    f: np.ndarray  # models f_i, one row a node of this rank
    y: np.ndarray  # running estimates of the mean gradient
    g: np.ndarray  # gradients at f_i


@distadmm.register("gradient-tracking")
@dataclass(frozen=True)
class GradientTracking:
    """f(k+1) = W f(k) - rate y(k);   y(k+1) = W y(k) + grad O(f(k+1)) - grad O(f(k))"""

    rate: float = distadmm.flag(0.5, help="step length, in units of 1/(largest curvature)")

    def init(self, node):
        g = node.problem.gradients(node.start)
        node.release.expose(0, "the gradients at the start")
        return State(node.start, g, g)

    def step(self, k, st, node):
        node.release.expose(k, "gradients travel unprotected")
        d = st.f.shape[1]
        mixed = self.mix(np.hstack([st.f, st.y]), node)
        length = self.rate / (node.facts.ridge + node.facts.weight * node.facts.max_curvature)
        f = mixed[:, :d] - length * st.y
        g = node.problem.gradients(f)
        return State(f, mixed[:, d:] + g - st.g, g)

    def mix(self, F, node):
        """W F with w_ij = 1/(1 + the largest degree), which is symmetric and known to all."""
        w = 1 / (1 + node.facts.degrees.max())
        return (1 - w * node.degree) * F + w * node.network.neighbour_sum(F)
