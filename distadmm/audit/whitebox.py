"""Level 0: every release of a run against its noise-off twin, with the data in hand.

A release of objective perturbation is invertible: where f is the minimiser of O(f) + <pull + b, f> + f'Qf/2,

    b = -(grad O(f) + pull + Q f),

so the noise that really went out is recovered from the message and compared with what the ledger entry says.
Output noise is the message less the noise-off minimiser.  One message is enough to see half the noise.

Tested, all together at `LEVEL` = 1e-6 (a sound run is refuted once in a million):
  * the length of each node's noise in each round, |b|^2/sigma^2 ~ chi^2_d or alpha |b| ~ Gamma(d), both sides;
  * the lengths of all of them together;
  * the angle between any two noises of a node, (1 + cos)/2 ~ Beta((d-1)/2, (d-1)/2): noise that was used again.
Decided without a test, for these are facts:
  * a message that depends on data and has no entry, or an entry that says it costs nothing;
  * a schedule (penalties, factors) or a pull that depends on data;
  * an entry whose weight, floor or dimension is not that of the release;
  * with the noise that was paid for at hand: a solve off by more than its tolerance, or other noise than was paid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from distadmm.algorithm import Node
from distadmm.audit.play import Recording, Solve, Twin, charged, twin
from distadmm.privacy.accounting.events import Event

Array = np.ndarray
LEVEL = 1e-6  # of all tests of a run together
_PAIRS = 2000  # rounds whose noises are compared with each other are limited to this many pairs a node


class Finding(NamedTuple):
    """One contradiction between the ledgers and the messages."""

    kind: str  # scale, reuse, omitted, recycled, schedule, entry, inexact, chain
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


def inspect(algorithm: Any, node: Node, recording: Recording, slope: float, curvature: float) -> Verdict:
    """All of level 0; `slope` and `curvature` are the public bounds of the loss."""
    books = [charged(entries) for entries in recording.entries]
    output = any(e.law and e.place == "answer" for book in books for events in book.values() for e in events)
    here = twin(algorithm, node, recording, solve=output)
    there = twin(algorithm, node, recording, other_data=True)
    findings = [Finding("chain", -1, -1, fault) for fault in recording.faults]
    findings += _data_in_the_open(node, recording, books, here, there)
    noises: list[Noise] = []
    unclaimed = 0
    for k in sorted(recording.sealed):
        for i, name in enumerate(node.network.nodes.tolist()):
            events = books[i].get(k, [])
            if not events:
                findings.append(Finding("omitted", name, k, "a release that the ledger does not have"))
            elif any(event.unbounded for event in events):
                unclaimed += 1
            else:
                release = _Release(node, i, k, here.solves[k], recording, slope, curvature)
                findings += release.against(events[-1])
                noises.append(release.noise(events[-1]))
    return verdict_of(noises, findings)._replace(unclaimed=unclaimed)


def _data_in_the_open(
    node: Node, recording: Recording, books: Sequence[dict[int, list[Event]]], here: Twin, there: Twin
) -> list[Finding]:
    """Messages and schedules that other data would have changed although nothing was sealed there."""
    names, findings = node.network.nodes.tolist(), []
    for k in here.solves:
        one, two = here.solves[k], there.solves.get(k)
        for what in ("quadratic", "factor", "linear"):
            if two is None or not np.array_equal(getattr(one, what), getattr(two, what)):
                findings.append(Finding("schedule", -1, k, f"the {what} term of a solve depends on data"))
    if recording.messages is None:
        sent = here.messages
    else:
        sent = recording.messages
    for place, message in enumerate(sent):
        again = there.messages[place].rows
        for i in np.flatnonzero((message.rows != again).any(axis=1)).tolist():
            priced = books[i].get(message.iteration, [])
            if not priced:
                text = "a message depends on data, but its entry says that it costs nothing"
                findings.append(Finding("recycled", names[i], message.iteration, text))
    return findings


class _Release:
    """One node's release in one iteration."""

    def __init__(
        self, node: Node, i: int, k: int, solve: Solve, recording: Recording, slope: float, curvature: float
    ):
        self.objective = node.problem.objectives[i]
        self.node, self.k, self.i = int(node.network.nodes[i]), k, i
        self.tolerance = node.problem.tolerance
        self.weight, self.curvature = self.objective.scale * slope, curvature / slope
        self.linear, self.off = solve.linear[i], solve.f[i]
        self.Q = (
            solve.quadratic[i] if np.ndim(solve.quadratic[i]) == 2 else float(np.ravel(solve.quadratic[i])[0])
        )
        least = float(np.linalg.eigvalsh(self.Q)[0]) if isinstance(self.Q, np.ndarray) else self.Q
        self.floor = node.facts.ridge + least
        self.sent = recording.sealed[k][i]
        self.error = recording.output.get((i, k), np.zeros_like(self.sent))
        self.paid = recording.noise.get((i, k))
        self.adjacency = recording.entries[i][0]["adj"]

    def against(self, event: Event) -> list[Finding]:
        """What can be decided without a test."""
        found = []

        def note(kind: str, text: str) -> None:
            found.append(Finding(kind, self.node, self.k, text))

        slack, stated = 1 + 1e-9, asdict(event)
        for key, what, true in (
            ("shift", "reach of a record", self.moved),
            ("weight", "weight of a record", self.weight),
            ("curvature", "curvature of the loss", self.curvature),
        ):
            if key in stated and stated[key] * slack < true:
                note("entry", f"the {what} is {true:.6g}; its entry says {stated[key]:.6g}")
        if stated.get("floor", 0.0) > self.floor * slack:
            claimed = stated["floor"]
            note("entry", f"the curvature of the rest is {self.floor:.6g}; its entry says {claimed:.6g}")
        if stated.get("dimension", self.sent.size) != self.sent.size:
            note("entry", f"the dimension is {self.sent.size}; its entry says {stated['dimension']}")
        if event.place == "objective" and self.paid is not None:
            off, allowed = float(np.linalg.norm(self.recovered() - self.paid)), self.allowed()
            if off > allowed:
                note(
                    "inexact",
                    f"the gradient at what was sent is {off:.3g}, tolerance {allowed:.3g}: not the minimiser "
                    "under the noise that was paid for",
                )
        return found

    def allowed(self) -> float:
        """The tolerance, and what rounding f = (f + e) - e does to the gradient."""
        steep = (
            self.objective.scale * self.objective.rows * self.curvature
            if hasattr(self.objective, "rows")
            else 0.0
        )
        rounding = np.finfo(float).eps * (
            (steep + self.floor) * np.linalg.norm(self.sent) + np.linalg.norm(self.linear)
        )
        return self.tolerance * (1 + 1e-6) + 64 * float(rounding)

    def recovered(self) -> Array:
        """The linear noise that makes the released model the exact minimiser."""
        f = self.sent - self.error
        return -(self.objective.grad(f) + self.linear + _times(self.Q, f))

    def noise(self, event: Event) -> Noise:
        b = self.recovered() if event.place == "objective" else self.sent - self.off
        return Noise(self.node, self.k, b, event, event.rate(self.moved))

    @property
    def moved(self) -> float:
        """How far one record moves the minimiser, and the tolerance in both worlds."""
        records = 1 if self.adjacency == "add-remove" else 2
        return (records * self.weight + 2 * self.tolerance) / self.floor


def _times(Q: Array | float, f: Array) -> Array:
    return Q @ f if isinstance(Q, np.ndarray) else Q * f


class Tested(NamedTuple):
    p: float  # corrected for the number of tests
    finding: Finding


def judge(noises: Sequence[Noise]) -> tuple[list[Tested], Array]:
    """Lengths one by one, lengths together, and angles; a third of the level each."""
    if not noises:
        return [], np.ones(0)
    p = np.array([two_sided(noise) for noise in noises])
    tested = []
    for noise, single in zip(noises, p):
        ratio = mean_ratio([noise])
        text = f"its noise has {ratio:.3g} times the length that the ledger claims (p = {single:.2g})"
        tested.append(Tested(3 * len(p) * single, Finding("scale", noise.node, noise.iteration, text)))
    together = pooled(noises)
    text = f"{len(noises)} noises together have {mean_ratio(noises):.4g} times the length claimed (p = {together:.2g})"
    tested.append(Tested(3 * together, Finding("scale", -1, -1, text)))
    angles = list(_angles(noises))
    tested += [Tested(3 * len(angles) * found.p, found.finding) for found in angles]
    return [Tested(min(1.0, t.p), t.finding) for t in tested], p


def multiplier(event: Any) -> float:
    """sigma over sensitivity of Gaussian noise, in floats or on a grid."""
    on_grid = hasattr(event, "sigma_grid")
    return float(event.sigma_grid / event.sensitivity_grid if on_grid else event.noise_multiplier)


def lengths(noise: Noise) -> tuple[float, float]:
    """(shape, x): x ~ Gamma(shape, 1) when the claim is true."""
    d, r = noise.b.size, noise.rate * float(np.linalg.norm(noise.b))
    return (d, r) if noise.event.law == "gamma" else (d / 2, r * r / 2)


def mean_ratio(noises: Sequence[Noise]) -> float:
    """Length of the noise over the length claimed, on average."""
    pairs = [
        (x / shape) if n.event.law == "gamma" else math.sqrt(x / shape)
        for n in noises
        for shape, x in [lengths(n)]
    ]
    return float(np.mean(pairs))


def two_sided(noise: Noise) -> float:
    return _two_sided(*lengths(noise))


def pooled(noises: Sequence[Noise]) -> float:
    """All lengths together: sums of independent Gamma variables are Gamma."""
    shapes, xs = zip(*(lengths(noise) for noise in noises))
    return _two_sided(math.fsum(shapes), math.fsum(xs))


def _two_sided(shape: float, x: float) -> float:
    if not math.isfinite(x):
        return 0.0
    return min(1.0, 2 * min(float(special.gammainc(shape, x)), float(special.gammaincc(shape, x))))


def _angles(noises: Sequence[Noise]) -> list[Tested]:
    """The angle between any two noises of one node that have the same size."""
    by_node: dict[tuple[int, int], list[Noise]] = {}
    for noise in noises:
        by_node.setdefault((noise.node, noise.b.size), []).append(noise)
    found = []
    for rounds in by_node.values():
        last = max(2, int(math.sqrt(2 * _PAIRS)))
        rounds = rounds[:last]
        size = np.array([max(float(np.linalg.norm(n.b)), 1e-300) for n in rounds])
        U = np.stack([n.b / s for n, s in zip(rounds, size)])
        cosine = U @ U.T
        for a in range(len(rounds)):
            for b in range(a):
                p = _angle_p(float(cosine[a, b]), size[a] / size[b], U.shape[1])
                text = (
                    f"its noise repeats that of iteration {rounds[b].iteration} (cosine {cosine[a, b]:.6f})"
                )
                found.append(Tested(p, Finding("reuse", rounds[a].node, rounds[a].iteration, text)))
    return found


def _angle_p(cosine: float, ratio: float, d: int) -> float:
    """P(an angle as small or as large); in one dimension only the same length tells (p bounded by its closeness)."""
    if d == 1:
        return min(1.0, abs(math.log(ratio)))
    half = (d - 1) / 2
    away = max(0.0, (1 - abs(cosine)) / 2)
    return min(1.0, 2 * float(special.betainc(half, half, away)))


def verdict_of(noises: Sequence[Noise], findings: Sequence[Finding]) -> Verdict:
    """A verdict from recovered noises and from what was found without a test."""
    tested, p = judge(noises)
    least = min((t.p for t in tested), default=1.0)
    return Verdict(len(noises), 0, least, p, [*findings, *(t.finding for t in tested if t.p <= LEVEL)])
