"""Objective perturbation: a release that is the exact minimiser under a noisy linear term.

Derived for this project; not peer-reviewed.  Proofs, and the hypotheses H1 to H8 that code must have established before
a number is printed: docs/proofs/objective-perturbation.md (Theorem C), docs/proofs/replace-one.md.

A node releases the exact minimiser f of  G_D(f) + b'f,  G_D(f) = w sum_n l(y_n x_n' f) + (linear) + (rest), and D + z
has one more record z = (x, y).  With h the hockey-stick of the noise shifted by Delta = w (`knorm`, `gaussian`), L its
loss under the unshifted noise and tau = ln(1 + w c1 / Phi), for all eps >= 0

    H(D | D+z)  <=  h(eps),
    H(D+z | D)  <=  E[(1 - e^(eps - tau - max(0, L)))_+]  =  h(eps - tau)  once eps >= tau,

and below gamma = 1 by H_gamma(P|Q) = 1 - gamma + gamma H_{1/gamma}(Q|P).  H is convex and the total variation
(gamma = 1) is the same both ways, so the lower hull of these bounds holds, whatever the linear term is.

Without one sign of l' for each record (`one_signed=False`), L is replaced by the larger loss of the shifts +Delta and
-Delta; added or removed, tau is paid both ways (more than needed).  A flipped label of a logistic loss adds w y x'f and
leaves the Hessian: additive noise, Delta = w, no tau.

Replaced: D = C + z, D' = C + z'; x and y may both change.
* chain    H(D | D')  <=  sup_x R2(R1(x)) - gamma x,  R1 the power function of C against C + z', R2 that of C + z
           against C: one of the two steps pays tau, not both.
* direct   H(D | D')  <=  E[(1 - e^(eps - tau - max(0, L)))_+] for every gamma > 0, L at Delta = 2 w.
The smaller one at each gamma >= 1 bounds both directions, and so does its hull across gamma = 1 ("profile").  k records
of one person at one node are R o ... o R: added or removed, of one record's R; replaced, of the swap's own.

For committed schedules only: the pair is no filter (f-DP filters of such curves are invalid).  Renyi curves, which
filters add up, rest on R o R, R that of H <= h(eps - tau) both ways ("r-o-r", which is shown beside the above for one
release, as 0.1 claimed it), and on tau + max(0, L) as a loss that is bounded wherever it is looked at ("pointwise").

An inexact minimiser is certified to a gradient norm of t and released with noise of density exp(-a |.|), a =
output_epsilon Phi / (2 t), then used in its released form only: `output_epsilon` more a release.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting import events
from distadmm.privacy.accounting.events import Adjacency, Event, Pure
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.privacy.accounting.curves import Curve, Pair
    from distadmm.privacy.accounting.profiles import Tail

Array = np.ndarray


@struct
class ObjectivePerturbation(Event):
    """The exact minimiser of  w sum_n l(y_n x_n' f) + (rest of curvature >= floor) + b' f,  released.

    `noise` "gamma": b has density proportional to exp(-scale |b|_2) (scale is the paper's alpha);
    "gaussian": b ~ N(0, scale^2 I).  `weight` w = C/B, public and fixed; `curvature` c1 >= l'';
    `floor` Phi = rho/N + 2 eta V.  `output_epsilon` > 0: the minimiser is approximate and the noise added
    to it costs that much more a release.  `one_signed`: l' has one sign for each record, whatever f is.
    `logistic`: l is the logistic loss, so that flipping a label adds a linear function to it; without it
    the label adjacency is priced as a replacement.  `records`: how many records of one person change at
    once.  See the module's head for the theorem.
    """

    noise: str
    dimension: int
    scale: float
    weight: float
    curvature: float
    floor: float
    count: int = 1
    output_epsilon: float = 0.0
    one_signed: bool = True
    logistic: bool = False
    records: int = 1
    mech: ClassVar[str] = "objective-perturbation"
    place: ClassVar[str] = "objective"
    knows_adjacency: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(
            self.noise in ("gamma", "gaussian"),
            f"{self.mech}: noise is {self.noise!r}; choose gamma or gaussian",
        )
        events.positive(self, "scale", "weight", "curvature", "floor")
        events.whole(self, "dimension", "count", "records")
        require(
            math.isfinite(self.output_epsilon) and self.output_epsilon >= 0,
            f"{self.mech}: output_epsilon is {self.output_epsilon!r}; needed: a finite number, 0 or more",
        )

    def to_json(self) -> dict[str, Any]:
        line = super().to_json()
        if self.records == 1:  # as every release is; more of them is a question about it
            del line["records"]
        return line

    @property
    def law(self) -> str:  # type: ignore[override]
        return self.noise

    @cached_property
    def also(self) -> Pure | None:  # type: ignore[override]
        return Pure(self.output_epsilon) if self.output_epsilon else None

    @property
    def hypotheses(self) -> tuple[str, ...]:  # type: ignore[override]
        slope = "one-signed-slope" if self.one_signed else "bounded-slope"
        return slope, "certified-solve" if self.output_epsilon else "exact-solve"

    @property
    def log_jacobian(self) -> float:
        """tau = ln(1 + w c1 / Phi): what one record can change the log-determinant of the Hessian by."""
        return math.log1p(self.weight * self.curvature / self.floor)

    def shift(self, adjacency: Adjacency) -> float:
        """How far one record can move the noise."""
        events.check_adjacency(adjacency)
        require(adjacency != "node", f"{self.mech}: nothing is proved for all rows of a node")
        both = adjacency == "replace" or (adjacency == "label" and not self.logistic)
        return 2 * self.weight if both else self.weight

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        """count (records (alpha shift + tau) + output_epsilon); a flipped logistic label leaves the Hessian alone.

        The output noise hides the error of the solve, whatever the tables are.
        """
        moved = self.shift(adjacency)
        if self.noise == "gaussian":
            return math.inf
        jacobian = 0.0 if adjacency == "label" and self.logistic else self.log_jacobian
        return self.count * (self.records * (self.scale * moved + jacobian) + self.output_epsilon)

    def gdp_mu(self, adjacency: Adjacency) -> float | None:
        moved = self.shift(adjacency)
        exact = (
            self.noise == "gaussian" and adjacency == "label" and self.logistic and not self.output_epsilon
        )
        return math.sqrt(self.count) * self.records * moved / self.scale if exact else None

    def published(self, adjacency: Adjacency) -> float:
        """Private (M)R-ADMM, Theorem V.1 of Zhang, Khalili and Liu:  sum_k 2 w (1.4 c1 / Phi + alpha), stated for
        replacing a record and for 2 w c1 < Phi (their condition on eta(1)).  It also bounds the other two adjacencies,
        and k records cost k times as much."""
        events.check_adjacency(adjacency)
        if self.noise == "gaussian" or 2 * self.weight * self.curvature >= self.floor:
            return math.inf
        each = 2 * self.weight * (1.4 * self.curvature / self.floor + self.scale)
        return self.count * (self.records * each + self.output_epsilon)

    def group(self, records: int) -> Event:
        """A chain of single records."""
        return replace(self, records=self.records * records)

    def sample(self, stream: Any, shape: Any = None, sensitivity: float | None = None) -> Array:
        if self.noise == "gaussian":
            return self.scale * stream.standard_normal(self.dimension)
        return events.k_norm(stream, self.dimension, self.scale)

    def rate(self, moved: float) -> float:
        return self.scale if self.noise == "gamma" else 1 / self.scale

    @property
    def unit_shift(self) -> float:
        """w in units of the noise."""
        return self.weight * self.scale if self.noise == "gamma" else self.weight / self.scale

    def replaces(self, adjacency: Adjacency) -> bool:
        """Whether records are replaced in the objective."""
        return adjacency == "replace" or (adjacency == "label" and not self.logistic)

    def pairs(self, adjacency: Adjacency, route: str = "profile") -> tuple[Pair, ...]:
        from distadmm.privacy.accounting import curves, profiles

        shift, tau = self.unit_shift, self.log_jacobian
        if adjacency == "label" and self.logistic:
            return profiles.symmetric(profiles.base(self.noise, self.dimension, self.records * shift, True))
        if route == "pointwise":
            return (curves.Pair(self._direct(), curves.Curve(np.zeros(1), np.zeros(1))),)
        one = profiles.base(self.noise, self.dimension, shift, self.one_signed)
        cost = profiles.after(one, tau)
        if self.replaces(adjacency) and route == "profile":
            step, steps = self._swap(curves.joined(one, cost)), self.records
        else:
            steps = self._steps(adjacency)
            if steps == 1 and self.one_signed:
                pair = curves.joined(one, cost)
                return pair, pair.mirrored
            step = curves.joined(cost, cost)
        bounded = self.single().pure_epsilon(adjacency) - self.output_epsilon
        return (profiles.powered(step, steps, bounded if cost.value[-1] == 0 else math.inf),)

    def _steps(self, adjacency: Adjacency) -> int:
        """How many records are added or removed, one after the other."""
        return self.records * (2 if self.replaces(adjacency) else 1)

    def _direct(self) -> Curve:
        """E[(1 - e^(eps - tau - max(0, L)))_+], L at twice the shift."""
        from distadmm.privacy.accounting import profiles

        two = profiles.base(self.noise, self.dimension, 2 * self.unit_shift, self.one_signed)
        return profiles.after(two, self.log_jacobian)

    def _swap(self, pair: Pair) -> Pair:
        """One record replaced, of `pair` = (C, C + z): the chain C + z', C, C + z, or the direct bound."""
        from distadmm.privacy.accounting import curves

        direct, chain = self._direct(), curves.chained(pair, pair.mirrored)
        eps = np.unique(np.concatenate([direct.eps, chain.eps]))
        swap = curves.Curve(eps, np.minimum(curves.read(direct, eps), curves.read(chain, eps)))
        return curves.joined(swap, swap)

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        """Filters add these up, so what holds for committed schedules alone has no part in them."""
        from distadmm.privacy.accounting import profiles
        from distadmm.privacy.accounting.rdp import of_pure

        replaced = self.replaces(adjacency)
        chain = profiles.pairs_of(self, adjacency, "r-o-r" if replaced else "profile")
        moments = profiles.moments(chain, self._tails(adjacency), orders)
        if replaced and self.records == 1:
            sides = 1 if self.one_signed else 2
            tail = profiles.Tail(self.noise, self.dimension, 2 * self.unit_shift, self.log_jacobian, sides)
            pair = profiles.pairs_of(self, adjacency, "pointwise")
            moments = np.minimum(moments, profiles.moments(pair, [tail], orders))
        found = np.maximum(moments / (orders - 1), 0.0)
        if self.output_epsilon:
            found = found + of_pure(self.output_epsilon, orders)
        return np.minimum(found, of_pure(self.pure_epsilon(adjacency), orders))

    def _tails(self, adjacency: Adjacency) -> list[Tail]:
        """The tail of each pair of the profile."""
        from distadmm.privacy.accounting.profiles import Tail

        noise, dimension, tau, shift = self.noise, self.dimension, self.log_jacobian, self.unit_shift
        if adjacency == "label" and self.logistic:
            return [Tail(noise, dimension, self.records * shift)]
        steps = self._steps(adjacency)
        if steps == 1 and self.one_signed:
            return [Tail(noise, dimension, shift), Tail(noise, dimension, shift, tau)]
        return [Tail(noise, dimension, shift, tau, 1 if self.one_signed else 2, steps)]
