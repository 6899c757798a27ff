"""Conventional ADMM and M-ADMM: every iteration solves, and every iteration reads the data.

X. Zhang, M. M. Khalili, M. Liu: Recycled ADMM (arXiv:1910.04581), equations (8)-(9);
M-ADMM: X. Zhang, M. M. Khalili, M. Liu, ICML 2018.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.errors import require
from distadmm.flags import flag
from distadmm.methods.consensus import penalty, smoothing, tuned_links
from distadmm.methods.consensus.tuned import RELAXATION, Tuned
from distadmm.privacy.accounting.schedule import Stretches

METRICS = tuple(RELAXATION)


class State(NamedTuple):
    f: Array  # models f_i, one row a node of this rank
    z: Array  # sum of f_i + f_j over the neighbours j, as last exchanged
    lam: Array  # duals lambda_i
    mean: Array  # of the models so far, with --average


@register("admm")
@dataclass(frozen=True)
class ADMM(penalty.Penalties):
    """Conventional decentralised ADMM; tunes itself where nothing forbids.

    f_i(t+1)   = argmin O_i(f) + 2 lam_i(t).f + eta sum_j |(f_i(t)+f_j(t))/2 - f|^2      (8)
    lam_i(t+1) = lam_i(t) + eta/2 sum_j (f_i(t+1) - f_j(t+1))                              (9)

    Private form: dual-variable perturbation, a linear noise term in every (8).
    Without noise and without a penalty of the user's, `Tuned` runs instead.
    """

    tune: bool | None = flag(None, help="choose penalties by itself (default: admm without noise and --eta)")
    metric: str = flag(
        "r1",
        help="of --tune: r1 follows the data, full with all of its curvature, public needs nothing from it",
        choices=METRICS,
    )

    def check(self, node: Node, iterations: int) -> None:
        require(
            not self.tune or node.table["eta"] is None,
            "--tune chooses the penalties; leave out --eta, or --tune",
        )
        require(
            not (self.tune and node.problem.matrix_free),
            "--tune makes its penalties of Hessians, which rows that stay sparse do not give; leave it out",
        )
        require(
            not self.tuned(node) or smoothing.asked(self.average, self.mixing) == smoothing.Smoothing(),
            "--average and --mixing take out noise, and --tune has none; leave them out",
        )
        require(
            not (self.tune and node.start.any()),
            "--tune starts its edges at what their ends agree on, whatever the models are; leave out one of them",
        )
        super().check(node, iterations)

    def releases(self, node: Node, iterations: int) -> Stretches:
        require(
            not self.tune,
            "--tune is for runs without noise: its metric is made of the data, or its penalties differ from those "
            "priced",
        )
        return super().releases(node, iterations)

    def tuned(self, node: Node) -> Tuned | tuned_links.TunedLinks | None:
        """The self-tuned recursion, where it applies."""
        chosen = node.table["eta"] is None and node.table["eta_growth"] is None
        chosen = chosen and not node.problem.matrix_free and not node.start.any()
        if self.tune or (self.tune is None and chosen and not node.release.private):
            return (Tuned if node.network.conditions is None else tuned_links.TunedLinks)(self.metric)
        return None

    def init(self, node: Node) -> Any:
        tuned = self.tuned(node)
        if tuned is not None:
            return tuned.init(node)
        f, nothing = node.start, np.broadcast_to(0.0, node.start.shape)
        return State(f, node.network.meet(f)[0], nothing, nothing)

    def step(self, k: int, st: Any, node: Node) -> Any:
        if isinstance(st, State):
            return self.plain(k, st, node)
        tuned = self.tuned(node)
        assert tuned is not None, "a state of the tuned recursion comes from it"
        return tuned.step(k, st, node)

    def plain(self, k: int, st: State, node: Node) -> State:
        eta, quadratic, dual = self.weights(k, node)
        noise = node.release.draw(k, quadratic, self.noise_factor(quadratic))
        f = node.problem.argmin(linear=2 * st.lam - eta * st.z + noise, quadratic=quadratic, start=st.f)
        f = node.release.seal(k, f, node.problem.residual)
        z, lam = node.network.meet(f)
        lam *= dual  # in its place: one vector of many nodes is much
        lam += st.lam
        return State(f, z, lam, self.averaged(k, st.mean, f, node))


@register("madmm")
@dataclass(frozen=True)
class MADMM(ADMM):
    """ADMM with a penalty of each node's own, which may grow.

    (8)-(9) with a penalty eta_i(k) of each node's own and a common dual step theta.

    Private form: penalty perturbation, the noise stands inside the penalty: a linear term 2 eta_i V_i noise.
    """

    eta_growth: str = flag("1.01", help="growth q of eta_i q_i^k a solve: a number, 'node' or a table file")
    tune: bool | None = flag(False, help="choose penalties by itself (default: admm without noise and --eta)")

    def noise_factor(self, quadratic: Array) -> Array | float:
        return quadratic
