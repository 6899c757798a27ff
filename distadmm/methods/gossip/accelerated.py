"""Noisy gossip with accelerated mixing between steps (Muffliato): several rounds of a Chebyshev recursion, not one.

    x(0) = f - s (g + z),   x(1) = W x(0),   x(r+1) = w W x(r) + (1 - w) x(r-1),   f <- x(R)

w = 2/(1 + sqrt(l (2 - l))) for a W without eigenvalues below 0 and gap l: W is the mean of I and of Metropolis weights.
Every round is a message, made of what was released; what is charged is the gradient.
E. Cyffers, M. Even, A. Bellet, L. Massoulie, NeurIPS 2022.
"""

from dataclasses import dataclass

import numpy as np

from distadmm.algorithm import Array, register
from distadmm.flags import flag
from distadmm.methods.gossip.gossip import Gossip, Mix
from distadmm.methods.gossip.rule import Constants


@register("accelerated")
@dataclass(frozen=True)
class Accelerated(Gossip):
    """Steps along noisy gradients, with rounds of accelerated gossip between them."""

    mixes: int = flag(4, help="messages an edge and step: rounds of accelerated mixing", at_least=1)

    def advance(self, f: Array, kept: Array, g: Array, W: Mix, use: Constants) -> tuple[Array, Array]:
        gap = use.gap / 2
        weight = 2 / (1 + np.sqrt(gap * (2 - gap)))
        x, ahead = None, f - use.step * g + use.momentum * (f - kept)
        for _ in range(self.mixes):
            mixed = (ahead + W(ahead)) / 2
            x, ahead = ahead, mixed if x is None else weight * mixed + (1 - weight) * x
        return ahead, f
