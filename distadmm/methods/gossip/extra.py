"""EXTRA, a baseline: exact first-order consensus with a constant step.

    f_i <- f_i + sum_j W_ij f_j - sum_j (I + W)_ij/2 f_j of before - s (g_i - g_i of before)

W. Shi, Q. Ling, G. Wu, W. Yin, SIAM J. Optim. 25 (2015).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.methods.gossip.gossip import Mix, Noisy
from distadmm.methods.gossip.rule import Constants


@register("extra")
@dataclass(frozen=True)
class Extra(Noisy):
    """Corrects the place beside the optimum at which constant steps end."""

    usual: ClassVar[float] = 0.5
    endures: ClassVar[bool] = False

    def starts(self, f: Array) -> Array:
        # Models before, W of them (all start alike), gradient.
        return np.concatenate([f, f, np.zeros_like(f)], axis=-1)

    def advance(self, f: Array, kept: Array, g: Array, W: Mix, use: Constants) -> tuple[Array, Array]:
        before, mixed_before, g_before = np.split(kept, 3, axis=-1)
        mixed = W(f)
        ahead = f + mixed - (before + mixed_before) / 2 - use.step * (g - g_before)
        return ahead, np.concatenate([f, mixed, g], axis=-1)

    def claims_optimum(self, node: Node) -> bool:
        return not node.release.private
