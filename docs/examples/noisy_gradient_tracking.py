"""Noisy gradient tracking: a private algorithm of your own in one file.

    mpiexec -n 20 python -m distadmm.radmm --algorithm docs/examples/noisy_gradient_tracking.py \\
        --iterations 30 --rate 0.2 --epsilon 2 --adjacency replace --noise gaussian

Every iteration releases one gradient under noise; all that nodes send is made of such gradients and of what
they heard.  Nobody has checked that this file does so: the run says that nothing bounds what it gave away,
and with `--assume docs/examples/noisy_gradient_tracking.py` what its schedule would cost if it is right.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import distadmm


class State(NamedTuple):
    f: np.ndarray  # models f_i, one row a node of this rank
    y: np.ndarray  # running estimates of the mean gradient
    g: np.ndarray  # gradients under noise, as last released


@distadmm.register("noisy-gradient-tracking")
@dataclass(frozen=True)
class NoisyGradientTracking:
    """g(k) = grad O(f(k-1)) + noise;   (f, y)(k) = W (f(k-1) - rate y, y)   with y = y(k-1) + g(k) - g(k-1)"""

    rate: float = distadmm.flag(0.5, help="step length, in units of 1/(largest curvature)")

    def releases(self, node, iterations):
        """One gradient an iteration; no solve, so nothing adds curvature: the floor is infinite."""
        return [distadmm.Planned(k, np.inf) for k in range(1, iterations + 1)]

    def init(self, node):
        return State(node.start, np.zeros_like(node.start), np.zeros_like(node.start))

    def step(self, k, st, node):
        g = node.release.draw(k, np.inf) + node.problem.gradients(st.f)
        y = st.y + g - st.g
        length = self.rate / (node.facts.ridge + node.facts.weight * node.facts.max_curvature)
        message = np.hstack([st.f - length * y, y])
        message = node.release.seal(k, message, residual=np.zeros(len(g)))  # nothing was solved inexactly
        f, y = np.hsplit(self.mix(message, node), 2)
        return State(f, y, g)

    def mix(self, F, node):
        """W F with w_ij = 1/(1 + the largest degree), which is symmetric and known to all."""
        w = 1 / (1 + node.facts.degrees.max())
        return (1 - w * node.degree) * F + w * node.network.neighbour_sum(F)
