"""Privacy profiles of single releases: for each event and adjacency, pairs that dominate it.

Objective perturbation: Theorem C
---------------------------------
Derived for this project; not peer-reviewed.  A node releases the exact minimiser f of

    G_D(f) + b' f,      G_D(f) = w sum_n l(y_n x_n' f) + (linear) + (rest),

and D + z has one more record z = (x, y).  With h the hockey-stick (Theorem A, see `knorm`; or the Gaussian one) of
the noise shifted by Delta = w, L its loss under the unshifted noise and tau = ln(1 + w c1 / Phi), for all eps >= 0

    H(D | D+z)  <=  h(eps),
    H(D+z | D)  <=  E[(1 - e^(eps - tau - max(0, L)))_+]  =  h(eps - tau)  once eps >= tau,

and below gamma = 1 by H_gamma(P|Q) = 1 - gamma + gamma H_{1/gamma}(Q|P).  H is convex and the total variation
(gamma = 1) is the same both ways, so the lower hull of these bounds holds.

*Proof.*  f <-> b = -grad G_D(f) is one to one and smooth, so the densities of f under D and D+z are
nu(b) |det H| and nu(b + s u) |det(H + w l'' x x')|, with u = -+x/|x| fixed (l' has one sign for z), s in [0, w].
The determinants' ratio 1 + w l'' x'H^-1 x lies in [1, e^tau].  -ln nu(b + s u) is convex in s, so the loss of the
noise is at most max(0, its value at s = w) = max(0, L), a law that does not depend on u.  From D to D+z the
determinant helps; back it costs tau.  The bounds hold whatever the linear term is, so adaptive steps compose.

Hypotheses, each of which must be checked by code before a number is printed
* H1  w = C/B is a public constant (not divided by the actual number of records under add/remove).
* H2  l(y x'f) with |l'| <= 1, 0 <= l'' <= c1, and l' of one sign for each record: logistic, smoothed hinge; labels
      exactly -1 or +1.  Without the sign (`one_signed=False`): L is replaced by the larger loss of the shifts
      +Delta and -Delta, which covers s in [-w, w].  A loss that is no function of x'f is not covered at all.
* H3  each row depends on its own record and public constants only, and is clipped to |x| <= 1.
* H4  the noise is fresh given all of the past; start, alpha, C, rho and stopping do not depend on data.
* H5  the linear term may be any function of released values, if the node itself holds Phi, w and alpha.
* H6  f ranges over R^d, or a public convex constraint or regulariser stands inside the argmin.
* H7  Phi = rho/N + 2 eta V bounds the curvature of the rest from below at that release.
* noise: density log-concave, rotation invariant, falling with the radius.
* minimiser exact; or certified to a gradient norm of t and released with noise of density
  exp(-a |.|), a = output_epsilon Phi / (2 t), then used in its released form only: `output_epsilon` more a release,
  the same for every adjacency, because given the exact minimiser both errors lie in a ball of radius t / Phi.

Replace-one (both x and y may change) is D -> D - z -> D - z + z': power functions chain.  It is also bounded by
tau + max(0, L) at Delta = 2w (for -ln nu, the segments [0, 2 w v] and [0, -2 w v'] average to the set of shifts, and
Brunn-Minkowski makes opposite records the worst); the smaller bound is taken at each eps.

k records of one person at one node: the shifts of k records average k segments of length k w, and the
determinant gains at most e^(k tau): the same theorem with k w and k tau (`nodes.grouped`).

A flipped label of a logistic loss adds w y x'f and leaves the Hessian: additive noise, Delta = w, no tau.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distadmm.privacy import curves, gaussian, knorm, lattice
from distadmm.privacy.curves import Curve, Pair
from distadmm.privacy.events import (
    Adjacency,
    DiscreteGaussian,
    Event,
    Gaussian,
    KNorm,
    ObjectivePerturbation,
    Pure,
    check_adjacency,
)

Array = np.ndarray

PER_SPREAD = 64  # knots to one standard deviation of the loss
_DENSE = 13.0  # standard deviations beyond the mean with knots at that distance; then each is 1 % further out
_FAR = 20.0  # standard deviations beyond the mean where a loss is cut; what is left counts as infinite loss


@lru_cache(maxsize=4096)
def directed(event: Event, adjacency: Adjacency) -> tuple[Pair, ...]:
    """The pairs that dominate one release of `event`: (D against D+z, D+z against D), or one for both ways.

    The first pair has the record in Q, the second in P.  None is empty; events of infinite price have no pair.
    """
    check_adjacency(adjacency)
    if isinstance(event, ObjectivePerturbation):
        return _objective(event, adjacency)
    if isinstance(event, KNorm):
        return _symmetric(base("gamma", event.dimension, event.alpha * event.shift, True))
    if isinstance(event, Gaussian):
        return _symmetric(base("gaussian", 1, 1 / event.noise_multiplier, True))
    if isinstance(event, DiscreteGaussian):
        return _symmetric(lattice.curve(event.sigma_grid, event.sensitivity_grid, event.dimension))
    if isinstance(event, Pure):
        return _symmetric(randomised_response(event.epsilon))
    raise TypeError(f"{event.mech} has no privacy profile")


def _symmetric(curve: Curve) -> tuple[Pair, ...]:
    return (Pair(curve, curve),)


def randomised_response(epsilon: float) -> Curve:
    """The curve that dominates every epsilon-DP mechanism."""
    return Curve(np.array([0.0, epsilon]), np.array([math.tanh(epsilon / 2) * (1 + 1e-15), 0.0]))


def knots(spread: float, top: float) -> Array:
    """0 and up to `top`: close together up to 13 spreads beyond the mean (about spread^2/2), then 1 % apart."""
    reach = min(_DENSE + spread / 2, 3 * _DENSE)
    dense = np.arange(0, int(reach * PER_SPREAD) + 1) * (spread / PER_SPREAD)
    if dense[-1] >= top:
        return np.append(dense[dense < top], top)
    steps = math.ceil(math.log(top / dense[-1]) / math.log(1.01))
    return np.concatenate([dense, np.geomspace(dense[-1], top, steps + 1)[1:]])


@lru_cache(maxsize=1024)
def base(noise: str, dimension: int, shift: float, one_signed: bool) -> Curve:
    """E[(1 - e^(eps - Z))_+] of the noise shifted by `shift` (in units of 1/alpha, or of sigma): Z = max(0, L), or the
    larger loss of both signs."""
    hockey_stick: Callable[[Array], Array]
    if noise == "gamma":
        spread, top = shift / math.sqrt(dimension), shift
        family = knorm.hockey_stick if one_signed else knorm.hockey_stick_sign_free
        hockey_stick = lambda eps: family(dimension, shift, eps)  # noqa: E731
    else:
        spread, top = shift, math.inf
        law = gaussian.hockey_stick if one_signed else gaussian.hockey_stick_sign_free
        hockey_stick = lambda eps: law(shift, eps)  # noqa: E731
    top = min(top, spread**2 / 2 + _FAR * spread)
    eps = knots(spread, top)
    return curves.hull(eps, hockey_stick(eps))


def _objective(event: ObjectivePerturbation, adjacency: Adjacency) -> tuple[Pair, ...]:
    scale = event.scale if event.noise == "gamma" else 1 / event.scale
    shift, tau = scale * event.weight, event.log_jacobian
    one = base(event.noise, event.dimension, shift, event.one_signed)
    if adjacency == "label" and event.logistic:
        return _symmetric(base(event.noise, event.dimension, shift, True))
    cost = _after(one, tau)
    pair = curves.joined(one, cost)
    if adjacency == "add-remove":
        return pair, pair.mirrored
    # P1 = rest + z, P2 = rest, P3 = rest + z'.
    two = base(event.noise, event.dimension, 2 * shift, event.one_signed)
    direct = _after(two, tau)
    swap = Curve(direct.eps, np.minimum(direct.value, curves.chain(pair, pair.mirrored, direct.eps)))
    return (curves.joined(swap, swap),)


def _after(loss: Curve, tau: float) -> Curve:
    """E[(1 - e^(eps - tau - Z))_+] at the knots of Z and of tau + Z."""
    eps = np.unique(np.concatenate([loss.eps, loss.eps + tau]))
    value = curves.delayed(loss, eps, tau)
    if loss.value[-1] == 0:  # a loss that is bounded, for sure: not all but a rounding of it
        eps[-1] *= 1 + 1e-15
        value[-1] = 0.0
    return Curve(eps, value)


class Tail(NamedTuple):
    """Beyond its last knot a profile is below that of a loss tau + L, L the loss of the noise shifted by `shift`
    (`sides` is 2: the larger loss of both signs)."""

    noise: str
    dimension: int
    shift: float
    tau: float = 0.0
    sides: int = 1

    def log_moment(self, orders: Array, above: float) -> Array:
        """ln E[e^((a-1)(tau + L)); tau + L > above], an upper bound."""
        if self.noise == "gaussian":
            bare = gaussian.log_tail_moment(self.shift, orders, above - self.tau)
        else:
            bare = knorm.log_tail_moment(self.dimension, self.shift, orders, above - self.tau)
        return math.log(self.sides) + (orders - 1) * self.tau + bare


def tails(event: KNorm | ObjectivePerturbation, adjacency: Adjacency) -> list[Tail]:
    """The tail of each pair of `directed`."""
    if isinstance(event, KNorm):
        return [Tail("gamma", event.dimension, event.alpha * event.shift)]
    noise, dimension, tau = event.noise, event.dimension, event.log_jacobian
    shift = event.shift(adjacency) * (event.scale if noise == "gamma" else 1 / event.scale)
    if adjacency == "label" and event.logistic:
        return [Tail(noise, dimension, shift)]
    sides = 1 if event.one_signed else 2
    if adjacency == "add-remove":
        return [Tail(noise, dimension, shift, 0.0, sides), Tail(noise, dimension, shift, tau, sides)]
    return [Tail(noise, dimension, shift, tau, sides)]


def log_power_moment(pair: Pair, orders: Array, tail: Tail) -> Array:
    """ln E_Q[(P/Q)^a] of the discrete pair with its tail, an upper bound.

    E_Q[(P/Q)^a] = 1 + a (a-1) int gamma^(a-2) [H_gamma - (1 - gamma)_+]: the constant that a polygon keeps up to its
    last knot m adds a H(m) e^((a-1) m), and what is beyond at most E[e^((a-1) loss); loss > m].
    """
    found = curves.masses(pair)
    total = curves.log_moment(found, orders - 1)
    if found.infinite == 0:
        return total
    last = float(pair.right.eps[-1])
    kept = np.log(orders * found.infinite) + (orders - 1) * last
    return np.logaddexp(np.logaddexp(total, kept), tail.log_moment(orders, last))
