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
      +Delta and -Delta, which covers s in [-w, w], and tau is paid both ways.  A loss that is no function of x'f is
      not covered at all.
* H3  each row depends on its own record and public constants only, and is clipped to |x| <= 1.
* H4  the noise is fresh given all of the past; start, alpha, C, rho and stopping do not depend on data.
* H5  the linear term may be any function of released values, if the node itself holds Phi, w and alpha.
* H6  f ranges over R^d, or a public convex constraint or regulariser stands inside the argmin.
* H7  Phi = rho/N + 2 eta V bounds the curvature of the rest from below at that release.
* noise: density log-concave, rotation invariant, falling with the radius.
* minimiser exact; or certified to a gradient norm of t and released with noise of density
  exp(-a |.|), a = output_epsilon Phi / (2 t), then used in its released form only: `output_epsilon` more a release,
  the same for every adjacency, because given the exact minimiser both errors lie in a ball of radius t / Phi.

R(level), the power that the best test of D against D+z or of D+z against D can have, is that of H <= h(eps - tau)
both ways.  Power functions chain (Dong, Roth and Su 2022), so that
* replace-one (both x and y may change), D -> D - z -> D - z + z', is R o R; and no loss exceeds
  alpha 2 w + tau for gamma noise, because one determinant gains while the other loses;
* k records of one person at one node are R o ... o R, k times; replaced, 2 k times.

Replace-one also has a loss that is at most z = tau + max(0, L), L at Delta = 2 w, wherever it is looked at, so that the
releases of a schedule have at most sum z together (`pointwise`): looser where tau is small, better where the Hessian
costs most, because R o R pays tau twice.  *Proof.*  For -ln nu, the segments [0, 2 w v] and [0, -2 w v'] average to the
set of shifts, and by Brunn-Minkowski every hockey-stick of z is largest for opposite records; one factor of a product
is exchanged at a time.

A flipped label of a logistic loss adds w y x'f and leaves the Hessian: additive noise, Delta = w, no tau.

The one-way chain
-----------------
`one_way` is a smaller bound of replace-one that was derived for this project and not refereed: no claim, filter or
calibration uses it.  It assumes the same hypotheses and takes each step of the chain in its own direction, so that
tau is paid once, R_add o R_remove; and it takes the profile of z, E[(1 - e^(eps - z))_+], for that of a release
both ways wherever it is the smaller one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from distadmm.privacy.accounting import curves, gaussian, knorm, lattice
from distadmm.privacy.accounting.curves import Curve, Pair
from distadmm.privacy.accounting.events import (
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
    shift, tau = unit_shift(event), event.log_jacobian
    if adjacency == "label" and event.logistic:
        return _symmetric(base(event.noise, event.dimension, event.records * shift, True))
    one = base(event.noise, event.dimension, shift, event.one_signed)
    cost = _after(one, tau)
    steps = chain_length(event, adjacency)
    if steps == 1 and event.one_signed:
        pair = curves.joined(one, cost)
        return pair, pair.mirrored
    bounded = event.single().pure_epsilon(adjacency) - event.output_epsilon
    return (_powered(curves.joined(cost, cost), steps, bounded if cost.value[-1] == 0 else math.inf),)


def unit_shift(event: ObjectivePerturbation) -> float:
    """w in units of the noise."""
    return event.weight * event.scale if event.noise == "gamma" else event.weight / event.scale


def chain_length(event: ObjectivePerturbation, adjacency: Adjacency) -> int:
    """How many records are added or removed, one after the other."""
    return event.records * (1 if adjacency == "add-remove" else 2)


def _powered(one: Pair, steps: int, bounded: float = math.inf) -> Pair:
    """R o ... o R by squaring, R the power function of `one`; no loss is above `bounded`."""
    if steps == 1:
        return one
    half = _powered(one, steps // 2)
    curve = curves.chained(half, half)
    if steps % 2:
        curve = curves.chained(one, curves.joined(curve, curve))
    if math.isfinite(bounded):
        inside = curve.eps < bounded
        curve = Curve(np.append(curve.eps[inside], bounded), np.append(curve.value[inside], 0.0))
    return curves.joined(curve, curve)


def is_swap(event: Event, adjacency: Adjacency) -> bool:
    """Whether one record is replaced in the objective."""
    return (
        isinstance(event, ObjectivePerturbation)
        and event.records == 1
        and (adjacency == "replace" or (adjacency == "label" and not event.logistic))
    )


@lru_cache(maxsize=4096)
def pointwise(event: Event, adjacency: Adjacency) -> tuple[Pair, ...]:
    """The law of z, as a pair without negative losses, where a record is replaced; else `directed`."""
    if not is_swap(event, adjacency):
        return directed(event, adjacency)
    assert isinstance(event, ObjectivePerturbation)
    return (Pair(_swapped(event), Curve(np.zeros(1), np.zeros(1))),)


@lru_cache(maxsize=1024)
def one_way(event: Event, adjacency: Adjacency) -> tuple[Pair, ...]:
    """The pairs of the one-way chain, or those of `directed`.  For display only."""
    if not is_swap(event, adjacency):
        return directed(event, adjacency)
    assert isinstance(event, ObjectivePerturbation)
    one = base(event.noise, event.dimension, unit_shift(event), event.one_signed)
    pair = curves.joined(one, _after(one, event.log_jacobian))
    direct, chain = _swapped(event), curves.chained(pair, pair.mirrored)
    eps = np.unique(np.concatenate([direct.eps, chain.eps]))
    swap = Curve(eps, np.minimum(curves.read(direct, eps), curves.read(chain, eps)))
    return (curves.joined(swap, swap),)


def _swapped(event: ObjectivePerturbation) -> Curve:
    """E[(1 - e^(eps - z))_+]."""
    two = base(event.noise, event.dimension, 2 * unit_shift(event), event.one_signed)
    return _after(two, event.log_jacobian)


def _after(loss: Curve, tau: float) -> Curve:
    """E[(1 - e^(eps - tau - Z))_+] at the knots of Z and of tau + Z."""
    eps = np.unique(np.concatenate([loss.eps, loss.eps + tau]))
    value = curves.delayed(loss, eps, tau)
    if loss.value[-1] == 0:  # a loss that is bounded, for sure: not all but a rounding of it
        eps[-1] *= 1 + 1e-15
        value[-1] = 0.0
    return Curve(eps, value)
