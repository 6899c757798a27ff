"""Gradient tracking under noise: each node follows the mean of all nodes' gradients as well as its model.

    y_i <- y_i + h_i - h_i of before,   f_i <- sum_j W_ij (f_j - s y_j),   y_i <- sum_j W_ij y_j

h_i is the noisy gradient as it was released, drawn once and used in both differences: y is post-processing, and K steps
cost what K gradients cost.  A. Nedic, A. Olshevsky, W. Shi, SIAM J. Optim. 27 (2017).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.methods.gossip.gossip import Mix, Noisy
from distadmm.methods.gossip.rule import Constants


@register("tracking")
@dataclass(frozen=True)
class Tracking(Noisy):
    """A step along the tracked mean of noisy gradients; models and tracks travel together."""

    usual: ClassVar[float] = 0.2
    carries: ClassVar[int] = 2

    def starts(self, f: Array) -> Array:
        return np.concatenate([np.zeros_like(f)] * 2, axis=-1)  # y, and the gradient before

    def advance(self, f: Array, kept: Array, g: Array, W: Mix, use: Constants) -> tuple[Array, Array]:
        y, before = np.split(kept, 2, axis=-1)
        y = y + g - before
        f, y = np.split(W(np.concatenate([f - use.step * y, y], axis=-1)), 2, axis=-1)
        return f, np.concatenate([y, g], axis=-1)

    def claims_optimum(self, node: Node) -> bool:
        return not node.release.private
