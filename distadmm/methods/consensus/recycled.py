"""R-ADMM and MR-ADMM: every even iteration recycles what the odd one released, and costs no privacy.

X. Zhang, M. M. Khalili, M. Liu: Recycled ADMM: Improving the Privacy and Accuracy of Distributed Algorithms
(arXiv:1910.04581), equations (10)-(19) and Algorithms 1-3.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.flags import flag
from distadmm.methods.consensus.penalty import Penalties


class State(NamedTuple):
    f: Array  # models f_i, one row a node of this rank
    z: Array  # sum of f_i + f_j over the neighbours j, as last exchanged
    lam: Array  # duals lambda_i
    g: Array  # perturbed gradient of the last odd step, recovered from its KKT condition
    mean: Array  # of the models after the pairs so far, with --average


@register("radmm")
@dataclass(frozen=True)
class RADMM(Penalties):
    """Recycled ADMM: every second iteration costs no solve and no privacy.

    Odd iterations (2k-1), which read the data:

        f_i(2k-1)   = argmin O_i(f) + (2 lam_i(2k-2) + noise_i).f
                             + eta sum_j |(f_i(2k-2)+f_j(2k-2))/2 - f|^2                         (18)
        lam_i(2k-1) = lam_i(2k-2) + eta/2 sum_j (f_i(2k-1) - f_j(2k-1))                          (13)

    Even iterations (2k), which do not:

        f_i(2k)     = f_i(2k-1) - [noise_i + grad O_i(f_i(2k-1)) + 2 lam_i(2k-1)
                             + eta sum_j (f_i(2k-1) - f_j(2k-1))] / (2 eta V_i + gamma)          (19)
        lam_i(2k)   = lam_i(2k-1)                                                                (11)

    The first two terms of (19) are not computed from data: the KKT condition of (18) gives their sum
    from values that have already been released.
    """

    phases: ClassVar[int] = 2

    gamma: float = flag(0.5, help="weight of the proximal term of even iterations, gamma >= 0", at_least=0)

    @property
    def proximal(self) -> float:
        return self.gamma

    def init(self, node: Node) -> State:
        f = node.start
        nothing = np.zeros_like(f)
        return State(f, node.network.meet(f)[0], nothing, nothing, nothing)

    def step(self, k: int, st: State, node: Node) -> State:
        return self.odd(k, st, node) if k % 2 else self.even(k, st, node)

    def odd(self, k: int, st: State, node: Node) -> State:
        eta, quadratic, dual = self.weights((k + 1) // 2, node)
        pull = 2 * st.lam - eta * st.z
        noise = node.release.draw(k, quadratic)
        f = node.problem.argmin(linear=pull + noise, quadratic=quadratic, start=st.f)
        f = node.release.seal(k, f, node.problem.residual)
        g = -(pull + quadratic * f)  # = grad O_i(f) + noise, from released values alone
        z, apart = node.network.meet(f)
        return State(f, z, st.lam + dual * apart, g, st.mean)

    def even(self, k: int, st: State, node: Node) -> State:
        eta, quadratic, _ = self.weights(k // 2, node)
        drift = st.g + 2 * st.lam + eta * (2 * node.degree * st.f - st.z)
        f = st.f - drift / (quadratic + self.gamma)
        node.release.recycle(k, f)
        return State(f, node.network.meet(f)[0], st.lam, st.g, self.averaged(k // 2, st.mean, f, node))


@register("mradmm")
@dataclass(frozen=True)
class MRADMM(RADMM):
    """Recycled ADMM with a penalty eta_i(2k-1) of each node's own that never decreases: (14)-(17)."""

    eta_growth: str = flag("1.04", help="growth q of eta_i q_i^k a solve: a number, 'node' or a table file")
