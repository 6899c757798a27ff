"""A run planned again over a neighbouring table: what is priced, drawn and scheduled may not depend on one record."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from distadmm.audit.noises import Finding
from distadmm.data.table import dense, take
from distadmm.methods.consensus import private as protect
from distadmm.problems.consensus import Problem
from distadmm.run.setup import Array, Prepared, objectives_of


class _OneRecord:
    """The rows of a source, the last one of its first node gone, another or of the other label."""

    def __init__(self, source: Any, node: int, adjacency: str):
        self._source, self._node, self._adjacency = source, node, adjacency

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

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
    """What of `plan` one record more, less or other changes."""
    config, node = prepared.config, prepared.node
    first = int(node.network.nodes[0])
    source: Any = _OneRecord(prepared.source, first, plan.recipe.adjacency)
    objectives = objectives_of(config, source, node.network.nodes, node.facts)
    problem = Problem(objectives, tolerance=config.problem.tolerance)
    other = protect.plan_of(replace(prepared, node=node.having(problem=problem)))
    assert other is not None
    changed = [
        field.name
        for field in fields(plan.recipe)
        if not np.array_equal(getattr(plan.recipe, field.name), getattr(other.recipe, field.name))
    ]
    schedules = [[part for release in one.releases for part in release] for one in (plan, other)]
    if not _same(*schedules):
        changed.append("releases")
    text = "another record there, and the plan is another one: its "
    return [Finding("schedule", first, -1, text + ", ".join(changed))] if changed else []


def _same(one: Any, two: Any) -> bool:
    return len(one) == len(two) and all(map(np.array_equal, one, two))
