"""Private ADMM as a noisy fixed-point iteration: each step one proximal solve under noise, and one message an edge.

    x_i = prox_{g f_i}(2 z_i - u_i)
    u_i <- u_i + 2 l (x_i - z_i) + noise
    t_i <- sum_j W_ij (t_j + u_j - u_j of before),   z_i = t_i

f_i is O_i/C with its ridge, so the paper's regulariser at the centre is 0 and its z = prox_{g r}(mean of u) that mean.
t tracks it: on a complete graph t is the mean, and this is the paper's iteration with everybody in each sum; elsewhere
the nodes agree on the way, at the same fixed point.

What is released is (2 z - u - x)/g, the gradient of f_i where the proximal step ends; x is made of it again, so noise
on u is -2 l g times what it is under.  Let one record change the gradient of f by D at most, wherever it is taken.
For both worlds' x, x' of the same v, with f convex,

    |x - x'|^2 <= <x - x', g (f' - f)'(x')> <= g D |x - x'|,

so it moves what is released by D, as it would a gradient, and by 2 tau/C more where solves leave a gradient tau of O_i.
A slope that is cut is that of a convex loss (`Cut`), so records' parts can be cut inside the solve.

E. Cyffers, A. Bellet, D. Basu, From Noisy Fixed-Point Iterations to Private ADMM for Centralized and Federated
Learning, ICML 2023.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.errors import require
from distadmm.flags import flag
from distadmm.methods.consensus.penalty import as_number
from distadmm.methods.gossip.gossip import Mix, Noisy
from distadmm.methods.gossip.rule import Constants
from distadmm.problems.consensus import Problem
from distadmm.problems.losses import Cut

_ROUNDED = 1 + 1e-9  # of a record's reach: proximal steps and their residuals as machines make them
_EPS = 4 * float(np.finfo(float).eps)
_USUAL = 0.25  # l without noise


@register("fixed-point")
@dataclass(frozen=True)
class FixedPoint(Noisy):
    """Relaxed proximal steps from mirrored points (Douglas and Rachford's), under noise."""

    relaxation: str = flag(
        "auto",
        help="l, above 0 to 1: how far u goes, 1/2 to the proximal step's end; 'auto' is the rule's, "
        f"{_USUAL:g} without noise",
    )

    usual: ClassVar[float] = 10.0
    rates: ClassVar[tuple[float, float]] = (0.1, 1000.0)
    second: ClassVar[str] = "relaxation"
    solves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relaxation != "auto":
            value = as_number(self.relaxation, "--relaxation", "'auto' or a number")
            require(0 < value <= 1, f"--relaxation is {value:g}; needed: a number above 0, at most 1")

    def check(self, node: Node, iterations: int) -> None:
        super().check(node, iterations)
        require(
            self.gradient_clip == "auto" or hasattr(node.problem.objectives[0], "loss"),
            "--gradient-clip: a loss of several classes whose gradients are cut is no loss, and there is nothing to "
            "solve; leave it out, or use --algorithm gossip",
        )

    def constants(self, node: Node) -> Constants:
        use = super().constants(node)
        if node.release.private:
            return use
        return use._replace(relaxation=_USUAL if self.relaxation == "auto" else float(self.relaxation))

    def claims_optimum(self, node: Node) -> bool:
        return not node.release.private

    def moved(self, reach: Array, node: Node) -> Array:
        return reach * _ROUNDED + 2 * node.problem.tolerance / node.facts.weight

    def starts(self, f: Array) -> Array:
        return np.concatenate([f, f], axis=-1)  # u, t

    def points(self, st: Any) -> Array:
        return cast(Array, 2 * st.f - np.split(st.kept, 2, axis=-1)[0])

    def at(self, f: Array, kept: Array, h: Array, use: Constants) -> Array:
        return (2 * f - np.split(kept, 2, axis=-1)[0]) / (1 + use.step * h)

    def raw(self, k: int, points: Array, clip: float, node: Node, use: Constants) -> Array:
        problem = (
            node.problem if clip == np.inf else node.recall("solves", 0, lambda: _cut(node.problem, clip))
        )
        q = node.facts.weight / use.step
        x = problem.argmin(linear=-q * points, quadratic=np.full((len(points), 1), q), start=points)
        node.problem.residual = problem.residual
        if node.release.private and clip < np.inf:  # a whole vector is cut wherever it ends
            # Rounded x and residuals are told apart by 1/step: what that brings beyond its allowance is left over, too.
            rounded = _EPS * q * np.sqrt(np.einsum("ij,ij->i", points, points))
            granted = (_ROUNDED - 1) / 2 * min(clip, 1.0) * problem.scales
            cast(Any, node.release).certify(k, problem.residual + np.maximum(rounded - granted, 0.0))
        return (points - x) / use.step

    def known(self, points: Array, node: Node) -> Array | float:
        return 0.0  # the ridge's part is of x, which nobody has

    def advance(self, f: Array, kept: Array, g: Array, W: Mix, use: Constants) -> tuple[Array, Array]:
        u, t = np.split(kept, 2, axis=-1)
        ahead = u + 2 * use.relaxation * (f - u - use.step * g)
        t = W(t + ahead - u)
        return t, np.concatenate([ahead, t], axis=-1)


def _cut(problem: Problem, clip: float) -> Problem:
    """The same rows under a loss whose slope is cut; nothing of one solve is kept for the next."""
    objectives = []
    for each in problem.objectives:
        made = copy.copy(each)
        if hasattr(each, "loss"):
            made.loss = Cut(each.loss, clip)
        objectives.append(made)
    return Problem(objectives, problem.tolerance, warm=False)
