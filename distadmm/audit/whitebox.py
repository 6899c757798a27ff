"""Level 0: every release of a run against its noise-off twin, with the data in hand.

A release of objective perturbation is invertible: where f is the minimiser of O(f) + <pull + b, f> + f'Qf/2,

    b = -(grad O(f) + pull + Q f),

so the noise that really went out is recovered from the message and compared with what the ledger entry says.
Output noise is the message less the noise-off minimiser.  One message is enough to see half the noise.

`noises` tests it.  Decided without a test, for these are facts:
  * a message that depends on data and is not what was sealed;
  * a schedule (penalties, factors) or a pull that depends on data, a plan that a neighbouring table changes;
  * an entry whose weight, floor or dimension is not that of the release, and rows longer than its price allows;
  * with the noise that was paid for at hand: a solve off by more than its tolerance, or other noise than was paid;
    output noise that is part of the price and was not drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from distadmm.algorithm import Array, Node
from distadmm.audit.noises import Finding, Noise, Verdict, verdict_of
from distadmm.audit.play import Recording, Solve, Twin, charged, twin
from distadmm.audit.views import times
from distadmm.data.table import dense, take
from distadmm.methods.consensus import private as protect
from distadmm.privacy.accounting.events import Event
from distadmm.problems.consensus import Problem
from distadmm.run.setup import Prepared, objectives_of


def inspect(algorithm: Any, node: Node, recording: Recording, slope: float, curvature: float) -> Verdict:
    """All of level 0; `slope` and `curvature` are the public bounds of the loss."""
    books = [charged(entries) for entries in recording.entries]
    output = any(e.law and e.place == "answer" for book in books for events in book.values() for e in events)
    here = twin(algorithm, node, recording, solve=output)
    there = twin(algorithm, node, recording, other_data=True)
    findings = [Finding("chain", -1, -1, fault) for fault in recording.faults]
    findings += _data_in_the_open(node, recording, books, here, there) + _long_rows(node)
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
    sent = here.messages if recording.messages is None else recording.messages
    if len(sent) != len(there.messages):
        text = f"{len(sent)} messages where other data would have sent {len(there.messages)}"
        findings.append(Finding("schedule", -1, -1, text))
    for place, message in enumerate(sent[: len(there.messages)]):
        again, k = there.messages[place].rows, message.iteration
        for i in np.flatnonzero((message.rows != again).any(axis=1)).tolist():
            priced = books[i].get(k, [])
            if any(event.unbounded for event in priced):
                continue
            text = "a message depends on data, but its entry says that it costs nothing"
            if priced:  # what was sealed is the same in both twins
                text = "a message depends on data and is not what was sealed: its entry pays for another"
            findings.append(Finding("recycled", names[i], k, text))
    return findings


def _long_rows(node: Node) -> list[Finding]:
    """Rows that reach further than any price allows for."""
    found = []
    for name, objective in zip(node.network.nodes.tolist(), node.problem.objectives):
        longest = float(np.linalg.norm(getattr(objective, "A", np.zeros((0, 1))), axis=1).max(initial=0.0))
        if longest > 1 + 1e-9:
            text = f"a row has norm {longest:.6g}; every entry is priced for norms of at most 1"
            found.append(Finding("entry", name, -1, text))
    return found


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
        Q = solve.quadratic[i]
        self.Q = Q if np.ndim(Q) == 2 else float(np.ravel(Q)[0])
        least = float(np.linalg.eigvalsh(Q)[0]) if np.ndim(Q) == 2 else self.Q
        self.floor = node.facts.ridge + least
        self.sent = recording.sealed[k][i]
        error = recording.output.get((i, k))
        self.undrawn, self.error = error is None, np.zeros_like(self.sent) if error is None else error
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
        if event.also is not None and self.paid is not None and self.undrawn:
            note("omitted", "its output noise, which is part of the price, was not drawn")
        if event.place == "objective" and self.paid is not None:
            off, allowed = float(np.linalg.norm(self.recovered() - self.paid)), self.allowed()
            if not off <= allowed:  # nor a NaN
                short = f"the gradient at what was sent is {off:.3g}, tolerance {allowed:.3g}"
                note("inexact", f"{short}: not the minimiser under the noise that was paid for")
        return found

    def allowed(self) -> float:
        """The tolerance, and what rounding f = (f + e) - e does to the gradient."""
        steep = self.objective.scale * getattr(self.objective, "rows", 0) * self.curvature
        long = (steep + self.floor) * np.linalg.norm(self.sent) + np.linalg.norm(self.linear)
        return self.tolerance * (1 + 1e-6) + 64 * float(np.finfo(float).eps * long)

    def recovered(self) -> Array:
        """The linear noise that makes the released model the exact minimiser."""
        f = self.sent - self.error
        return -(self.objective.grad(f) + self.linear + times(self.Q, f))

    def noise(self, event: Event) -> Noise:
        b = self.recovered() if event.place == "objective" else self.sent - self.off
        return Noise(self.node, self.k, b, event, event.rate(self.moved))

    @property
    def moved(self) -> float:
        """How far one record moves the minimiser, and the tolerance in both worlds."""
        records = 1 if self.adjacency == "add-remove" else 2
        return (records * self.weight + 2 * self.tolerance) / self.floor


class _OneRecord:
    """The rows of a source, the last one of its first node gone, another or of the other label."""

    def __init__(self, source: Any, node: int, adjacency: str):
        self._source, self._node, self._adjacency = source, node, adjacency

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def nodes(
        self, nodes: Sequence[int], n: int, *, stacked: bool, **how: bool
    ) -> Iterator[tuple[Any, Array]]:
        return (self.node(i, n, **how) for i in nodes)

    def node(self, i: int, n: int, **how: bool) -> tuple[Any, Array]:
        X, y = self._source.node(i, n, **how)
        if i != self._node or len(y) < 2:
            return X, y
        if self._adjacency == "add-remove":
            return take(X, np.arange(len(y) - 1)), y[:-1]
        X, y = np.array(dense(X)), np.array(y)
        if self._adjacency == "replace":
            X[-1] = -X[-1]
        elif set(np.unique(y)) <= {-1.0, 1.0}:
            y[-1] = -y[-1]
        return X, y


def of_plan(prepared: Prepared, plan: protect.Plan) -> list[Finding]:
    """What of `plan` one record more, less or other changes: nothing of what is priced, drawn and scheduled may."""
    config, node = prepared.config, prepared.node
    first = int(node.network.nodes[0])
    source: Any = _OneRecord(prepared.source, first, plan.recipe.adjacency)
    objectives = objectives_of(config, source, node.network.nodes, node.facts)
    problem = Problem(objectives, tolerance=config.problem.tolerance)
    other = protect.plan_of(replace(prepared, node=node.having(problem=problem)))
    assert other is not None
    parts = [
        (f.name, getattr(plan.recipe, f.name), getattr(other.recipe, f.name)) for f in fields(plan.recipe)
    ]
    changed = [name for name, here, there in parts if not np.array_equal(here, there)]
    one, two = ([part for release in each.releases for part in release] for each in (plan, other))
    if len(one) != len(two) or not all(map(np.array_equal, one, two)):
        changed.append("releases")
    text = "another record there, and the plan is another one: its "
    return [Finding("schedule", first, -1, text + ", ".join(changed))] if changed else []
