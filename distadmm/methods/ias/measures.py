"""The privacy measures: strictly convex f with f(1) = 0, and what the methods need of each.

The leakage of a mapping is E[d] = sum_{y,u} p(y) p(u|y) f(t) with t = p(u)/p(u|y).  Seen from the
posterior q = P_{Y|u} it is sum_y p(y) f°(s), with s = q/p = 1/t and f°(s) = s f(1/s).
"""

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distadmm.errors import InputError, require, told

Array = np.ndarray
Function = Callable[[Array], Array]


TINY = 1e-300  # stands for 0 inside a logarithm


class Density(NamedTuple):
    """Where the slope of f° equals k: the maximiser of k s - f°(s) over s >= 0."""

    s: Array  # the maximiser
    rate: Array  # ds/dk
    value: Array  # the maximum, the convex conjugate of f° at k


@dataclass(frozen=True)
class Measure:
    """A privacy measure: f, its derivatives, and the inverse slope of f°."""

    name: str
    title: str
    f: Function
    f1: Function  # f'
    f2: Function  # f''
    h: Function  # f - t f', the slope of f° at 1/t
    star: Function  # f°(s) = s f(1/s), down to s = 0
    density: Callable[[Array, Array], Density]  # (k, largest s) -> where the slope of f° is k
    curvature_bound: float  # sup t^2 f'': a mirror step up to 1/(beta * this) never descends

    @property
    def curvature_at_one(self) -> float:
        return float(self.f2(np.array(1.0)))


def _density_mi(k: Array, s_max: Array) -> Density:
    s = np.exp(np.minimum(k - 1, np.log(s_max)))
    return Density(s, s, s)


def _density_js(k: Array, s_max: Array) -> Density:
    e = np.exp(np.minimum(k, np.log(2 * s_max / (1 + s_max))))
    return Density(e / (2 - e), 2 * e / (2 - e) ** 2, -np.log(2 - e))


def _density_lc(k: Array, s_max: Array) -> Density:
    # f°'(s) = 1/2 - 2/(1+s)^2 starts at -3/2: below that s = 0 and f°(0) = 1/2.
    k = np.clip(k, -1.5, 0.5 - 2 / (1 + s_max) ** 2)
    s = 2 / np.sqrt(1 - 2 * k) - 1
    return Density(s, np.where(s > 0, (1 + s) ** 3 / 4, 0.0), k * s - (1 - s) ** 2 / (2 * (1 + s)))


def _density_hellinger(k: Array, s_max: Array) -> Density:
    root = 1 / (1 - np.minimum(k, 1 - 1 / np.sqrt(s_max)))
    return Density(root**2, 2 * root**3, k * root**2 - (1 - root) ** 2)


def _numerical_density(f: Function, h: Function, f2: Function) -> Callable[[Array, Array], Density]:
    """Invert the increasing slope k = h(1/s) by bisection on log s, for a measure without a closed form."""

    def density(k: Array, s_max: Array) -> Density:
        high = np.broadcast_to(np.log(s_max), k.shape).copy()
        low = np.full(k.shape, -60.0)
        for _ in range(55):
            middle = 0.5 * (low + high)
            above = h(np.exp(-middle)) > k
            high = np.where(above, middle, high)
            low = np.where(above, low, middle)
        s = np.exp(0.5 * (low + high))
        rate = np.where(low == -60.0, 0.0, s**3 / f2(1 / s))
        return Density(s, rate, k * s - s * f(1 / s))

    return density


MI = Measure(
    name="mi",
    title="mutual information",
    f=lambda t: -np.log(t),
    f1=lambda t: -1 / t,
    f2=lambda t: t**-2.0,
    h=lambda t: 1 - np.log(t),
    star=lambda s: s * np.log(np.maximum(s, TINY)),
    density=_density_mi,
    curvature_bound=1.0,
)
JS = Measure(
    name="js",
    title="Jensen-Shannon divergence (twice the usual one)",
    f=lambda t: t * np.log(2 * t / (t + 1)) + np.log(2 / (t + 1)),
    f1=lambda t: np.log(2 * t / (t + 1)),
    f2=lambda t: 1 / (t * (t + 1)),
    h=lambda t: np.log(2 / (t + 1)),
    star=lambda s: s * np.log(2 * np.maximum(s, TINY) / (s + 1)) + np.log(2 / (s + 1)),
    density=_density_js,
    curvature_bound=1.0,
)
LC = Measure(
    name="lc",
    title="Le Cam divergence",
    f=lambda t: (1 - t) ** 2 / (2 * (1 + t)),
    f1=lambda t: 0.5 - 2 / (1 + t) ** 2,
    f2=lambda t: 4 / (1 + t) ** 3,
    h=lambda t: (4 * t + 2) / (1 + t) ** 2 - 1.5,
    star=lambda s: (1 - s) ** 2 / (2 * (1 + s)),
    density=_density_lc,
    curvature_bound=16 / 27,
)
HELLINGER = Measure(
    name="hellinger",
    title="squared Hellinger distance",
    f=lambda t: (1 - np.sqrt(t)) ** 2,
    f1=lambda t: 1 - 1 / np.sqrt(t),
    f2=lambda t: 0.5 * t**-1.5,
    h=lambda t: 1 - np.sqrt(t),
    star=lambda s: (1 - np.sqrt(s)) ** 2,
    density=_density_hellinger,
    curvature_bound=np.inf,
)
MEASURES = {measure.name: measure for measure in (MI, JS, LC, HELLINGER)}


def own(name: str, f: Function, f1: Function, f2: Function) -> Measure:
    """A user's measure from f, f' and f''; refused unless it is strictly convex with f(1) = 0.

    The check is numerical: 801 points of [1e-6, 1e6], the derivatives against central differences.
    """
    t = np.logspace(-6, 6, 801)
    uncomputed = f"the measure {name!r} cannot be computed on an array (REASON); use numpy"
    with told(uncomputed, Exception), np.errstate(all="ignore"):
        value, slope, curvature = (np.asarray(g(t), dtype=float) for g in (f, f1, f2))
        step = 1e-4 * t
        slope_seen = (f(t + step) - f(t - step)) / (2 * step)
        curvature_seen = (f1(t + step) - f1(t - step)) / (2 * step)
        at_one = float(f(np.array(1.0)))
    for text, array in (("f", value), ("f'", slope), ("f''", curvature)):
        require(
            array.shape == t.shape, f"{text} of {name!r} gives shape {array.shape} for {t.shape}; use numpy"
        )
        bad = ~np.isfinite(array)
        require(not bad.any(), f"{text} of {name!r} is not finite at t = {t[bad][:1]}; needed on (0, inf)")
    require(abs(at_one) <= 1e-12, f"f(1) of {name!r} is {at_one:.6g}; needed 0: subtract that constant")
    flat = curvature <= 0
    require(
        not flat.any(),
        f"f'' of {name!r} is {curvature[flat][:1]} at t = {t[flat][:1]}; needed > 0: f must be strictly convex",
    )
    # Central differences err by step^2 f'''/6, and lose digits where a function is large beside its change.
    for text, stated, seen, scale, size in (
        ("f'", slope, slope_seen, np.abs(slope) + t * curvature, value / t),
        ("f''", curvature, curvature_seen, curvature, slope / t),
    ):
        wrong = np.abs(stated - seen) > 1e-5 * scale + 1e-9 * np.abs(size)
        require(
            not wrong.any(),
            f"{text} of {name!r} is {stated[wrong][:1]} at t = {t[wrong][:1]} but differences give "
            f"{seen[wrong][:1]}; give the true derivative",
        )

    def h(t: Array) -> Array:
        return f(t) - t * f1(t)

    return Measure(
        name=name,
        title="a measure of the user's own",
        f=f,
        f1=f1,
        f2=f2,
        h=h,
        star=lambda s: np.maximum(s, 1e-30) * f(1 / np.maximum(s, 1e-30)),
        density=_numerical_density(f, h, f2),
        curvature_bound=np.inf,
    )


def measure(name: str | Measure) -> Measure:
    """A measure by name, or from a Python file that defines f, f1 (f') and f2 (f'') on numpy arrays."""
    if isinstance(name, Measure):
        return name
    if name in MEASURES:
        return MEASURES[name]
    require(
        name.endswith(".py"),
        f"f is {name!r}; choose one of: {', '.join(MEASURES)}, or give a Python file with f, f1 and f2",
    )
    needed = "give a Python file with f, f1 and f2"
    try:
        found = runpy.run_path(name)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}; {needed}") from None
    except Exception as error:
        raise InputError(f"{name} fails: {type(error).__name__}: {error}; mend it") from None
    missing = [part for part in ("f", "f1", "f2") if not callable(found.get(part))]
    require(not missing, f"{name} defines no {', '.join(missing)}; needed f, f1 (= f') and f2 (= f'')")
    return own(Path(name).stem, found["f"], found["f1"], found["f2"])
