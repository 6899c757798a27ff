"""The noise that went out, recovered, against what its ledger entries claim: statistics of level 0.

Tested, all together at `LEVEL` = 1e-6 (a sound run is refuted once in a million), a quarter of it each:
  * the length of each noise, |b|^2/sigma^2 ~ chi^2_d or alpha |b| ~ Gamma(d), both sides;
  * the lengths of all of them together;
  * their shape: are these lengths, and the coordinates of Gaussian noise, distributed as claimed;
  * the angle between any two noises, of a node or of two, (1 + cos)/2 ~ Beta((d-1)/2, (d-1)/2): noise used again.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from distadmm.privacy.accounting.events import Array, Event

LEVEL = 1e-6  # of all tests of a run together
TESTS = 4  # each at this share of it
_COMPARED = 500  # noises of one size that are compared with each other


class Finding(NamedTuple):
    """One contradiction between the ledgers and the messages."""

    kind: str  # scale, shape, reuse, lattice, key, omitted, recycled, schedule, entry, inexact, chain
    node: int
    iteration: int
    text: str


class Noise(NamedTuple):
    """The noise recovered from one release, and what its entry says of it."""

    node: int
    iteration: int
    b: Array
    event: Event
    rate: float  # alpha of gamma noise, 1/sigma of Gaussian noise, as claimed


class Verdict(NamedTuple):
    releases: int  # messages compared
    unclaimed: int  # messages whose entry claims nothing (infinite cost)
    least: float  # smallest p-value, corrected for the number of tests
    p_values: Array  # of the lengths, one a release
    findings: list[Finding]

    @property
    def refuted(self) -> bool:
        return bool(self.findings)


class Tested(NamedTuple):
    p: float  # corrected for the number of tests
    finding: Finding


def verdict_of(noises: Sequence[Noise], findings: Sequence[Finding]) -> Verdict:
    """A verdict from recovered noises and from what was found without a test."""
    tested, p = judge(noises)
    least = min((t.p for t in tested), default=1.0)
    return Verdict(len(noises), 0, least, p, [*findings, *(t.finding for t in tested if t.p <= LEVEL)])


def judge(noises: Sequence[Noise]) -> tuple[list[Tested], Array]:
    """Lengths one by one, lengths together, shapes, and angles; a part of the level each."""
    if not noises:
        return [], np.ones(0)
    shape, x = np.array([lengths(noise) for noise in noises]).T
    p = two_sided(shape, x)
    tested = []
    for noise, single in zip(noises, p.tolist()):
        ratio = mean_ratio([noise]) if len(p) * single < 1 else math.nan
        text = f"its noise has {ratio:.3g} times the length that the ledger claims (p = {single:.2g})"
        tested.append(Tested(len(p) * single, Finding("scale", noise.node, noise.iteration, text)))
    # Sums of independent Gamma variables are Gamma.
    together = float(two_sided(np.array([shape.sum()]), np.array([x.sum()]))[0])
    text = f"{len(noises)} noises together have {mean_ratio(noises):.4g} times the length claimed (p = {together:.2g})"
    tested.append(Tested(together, Finding("scale", -1, -1, text)))
    tested += [*_shapes(noises, shape, x), *_angles(noises)]
    return [Tested(min(1.0, TESTS * t.p), t.finding) for t in tested], p


def multiplier(event: Event) -> float:
    """sigma over sensitivity of Gaussian noise, in floats or on a grid."""
    on_grid = hasattr(event, "sigma_grid")
    return float(event.sigma_grid / event.sensitivity_grid if on_grid else event.noise_multiplier)  # type: ignore[attr-defined]


def rate_on(event: Event, sensitivity: float, unit: float = 0.0) -> float:
    """1/sigma that `event` claims for a query of this sensitivity, on a grid of this unit (0: in floats)."""
    rounding = unit * math.sqrt(event.dimension) if unit else 0.0  # type: ignore[attr-defined]
    return 1.0 / (multiplier(event) * (sensitivity + rounding))


def off_grid(play: int, released: Sequence[Array], unit: float) -> list[Finding]:
    """Whether what was released lies on its grid; noise in floats does not."""
    steps = np.concatenate(released) / unit if unit and released else np.zeros(1)
    if np.abs(steps - np.rint(steps)).max() < 1e-3:
        return []
    return [Finding("lattice", play, -1, "what was released does not lie on the grid of its noise")]


def lengths(noise: Noise) -> tuple[float, float]:
    """(shape, x): x ~ Gamma(shape, 1) when the claim is true."""
    d, r = noise.b.size, noise.rate * float(np.linalg.norm(noise.b))
    return (d, r) if noise.event.law == "gamma" else (d / 2, r * r / 2)


def mean_ratio(noises: Sequence[Noise]) -> float:
    """Length of the noise over the length claimed, on average."""
    ratios = ((noise, x / shape) for noise in noises for shape, x in [lengths(noise)])
    return float(np.mean([r if noise.event.law == "gamma" else math.sqrt(r) for noise, r in ratios]))


def two_sided(shape: Array, x: Array) -> Array:
    """P(a length as far out as this), twice the smaller side."""
    known = np.where(np.isfinite(x), x, 0.0)
    p = 2 * np.minimum(special.gammainc(shape, known), special.gammaincc(shape, known))
    return np.where(np.isfinite(x), np.minimum(p, 1.0), 0.0)


def _shapes(noises: Sequence[Noise], shape: Array, x: Array) -> list[Tested]:
    """Both distances from the claimed distribution, by Massart's bound 2 exp(-2 n D^2), which holds for every n."""
    places = {"lengths": special.gammainc(shape, np.nan_to_num(x, nan=0.0, posinf=1e300))}
    flat = [noise.rate * noise.b for noise in noises if noise.event.law != "gamma"]
    if flat:
        places["coordinates"] = special.ndtr(np.concatenate(flat))
    found = []
    for what, u in places.items():
        u, n = np.sort(u), len(u)
        away = float(np.maximum(np.arange(1, n + 1) / n - u, u - np.arange(n) / n).max())
        p = 2 * math.exp(-2 * n * away**2)
        text = f"the {what} of {len(noises)} noises are not distributed as claimed (off by {away:.3g}, p = {p:.2g})"
        found.append(Tested(len(places) * p, Finding("shape", -1, -1, text)))
    return found


def _angles(noises: Sequence[Noise]) -> list[Tested]:
    """The angle between any two noises of the same size; the pairs that stand out, and the closest of the others."""
    by_size: dict[int, list[Noise]] = {}
    for noise in noises:
        by_size.setdefault(noise.b.size, []).append(noise)
    pairs = sum(n * (n - 1) // 2 for n in (min(len(some), _COMPARED) for some in by_size.values()))
    found = []
    for d, some in by_size.items():
        some = some[:_COMPARED]
        size = np.array([max(float(np.linalg.norm(n.b)), 1e-300) for n in some])
        U = np.stack([n.b / s for n, s in zip(some, size)])
        one, two = np.tril_indices(len(some), -1)
        cosine = (U @ U.T)[one, two]
        p = _angle_p(cosine, size[one] / size[two], d)
        for at in np.flatnonzero(p <= max(float(p.min(initial=1.0)), LEVEL / (TESTS * pairs))).tolist():
            late, early = some[one[at]], some[two[at]]
            whose = "" if late.node == early.node else f" of node {early.node}"
            text = f"its noise repeats that{whose} of iteration {early.iteration} (cosine {cosine[at]:.6f})"
            found.append(Tested(pairs * float(p[at]), Finding("reuse", late.node, late.iteration, text)))
    return found


def _angle_p(cosine: Array, ratio: Array, d: int) -> Array:
    """P(an angle as small or as large); in one dimension only the same length tells (p bounded by its closeness)."""
    if d == 1:
        return np.minimum(1.0, np.abs(np.log(ratio)))
    half = (d - 1) / 2
    away = np.maximum(0.0, (1 - np.abs(cosine)) / 2)
    return np.minimum(1.0, 2 * special.betainc(half, half, away))
