"""What floats may hide of a gradient: how far the one that a solver sees may be from the one of its problem.

    O'(f) + l + Qf,    O(f) = w sum_n loss_n(f) + r/2 |f|^2 over B rows no longer than 1

Sums of vectors, l itself among them: its noise stands beside what is released, and a penalty of 1e16 leaves nothing of
it.  The rows' part is a sum of B numbers, which goes astray as a random walk does: sqrt(B) u/4 of w B |loss'|, half
again the worst that was measured; and slopes are taken at scores, which are known to u |f|.  (u = 2^-53)
"""

from functools import cached_property
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.problems.consensus import Problem
from distadmm.problems.losses import LOSSES, Array

_EPS = float(np.finfo(float).eps)  # 2 u


class Certain(Problem):
    """Whose `residual` bounds the gradient that is left, and not only the one that floats show.

    Half of the tolerance is for what they hide; where that is more, no solve is certain.
    """

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self.goal = self.tolerance / 2
        nothing = np.zeros((len(self.objectives), self.dimension))
        least = float(self.hidden(nothing, np.zeros(1), nothing).max())
        require(
            least <= self.goal,
            f"rounding of sums over the rows may hide a gradient of {least:.2g}, and half of --tolerance "
            f"{self.tolerance:g} is for that; lower --weight, or give --tolerance {4 * least:.1g}",
        )

    def argmin(self, linear: Array, quadratic: Array, start: Array) -> Array:
        f = super().argmin(linear, quadratic, start)
        self.residual += self.hidden(linear, quadratic, f)
        return f

    def hidden(self, linear: Array, quadratic: Array, f: Array) -> Array:
        """What floats may hide of each node's gradient at f: its 2-norm, at most."""
        slopes, bends, ridge = self._sizes
        long = np.linalg.norm(f, axis=1)
        pull = np.abs(quadratic).sum(axis=tuple(range(1, np.ndim(quadratic))))
        return _EPS * (np.linalg.norm(linear, axis=1) + (pull + ridge) * long + slopes + bends * (1 + long))

    @cached_property
    def _sizes(self) -> Array:
        return np.array([_sizes(each) for each in self.objectives]).T


def _sizes(objective: Any) -> tuple[float, float, float]:
    """What `_EPS` is multiplied with for slopes and for the scores they are taken at; and the ridge."""
    rows, scale = getattr(objective, "rows", 0), getattr(objective, "scale", 0.0)
    loss = getattr(objective, "loss", LOSSES["softmax"])
    slope, bend = (getattr(loss, name, np.inf) for name in ("max_slope", "max_curvature"))
    slope, bend = (bound if np.isfinite(bound) else 0.0 for bound in (slope, bend))  # else nothing is claimed
    return scale * rows * slope * (2 + rows**0.5 / 8), scale * rows * bend, getattr(objective, "ridge", 0.0)
