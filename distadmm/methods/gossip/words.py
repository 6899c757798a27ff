"""What a run of noisy gossip says of itself: before it, and at its end."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distadmm.methods.consensus import words as consensus
from distadmm.methods.consensus.words import beyond, not_covered, on_a_wide_area_network
from distadmm.privacy.accounting.statements import told
from distadmm.run.setup import Prepared

if TYPE_CHECKING:
    from distadmm.methods.gossip.private import Plan
    from distadmm.privacy.accounting.network_statements import Learned

__all__ = ["beyond", "closing", "not_covered", "note", "on_a_wide_area_network", "outlook", "said"]


def outlook(prepared: Prepared, plan: Plan | None) -> str:
    """What `--dry-run` prints."""
    algorithm, d = prepared.config.algorithm, prepared.node.problem.dimension
    use = algorithm.fixed(prepared.node) if plan is None else plan.recipe.constants
    steps = algorithm.mixes * (prepared.config.loop.iterations - use.opening)
    messages = [
        (use.opening, d * (d + 1) // 2, "of second moments"),
        (steps, d * algorithm.carries, "of iterations"),
        (int(plan is not None and plan.recipe.pairwise), d, "to agree on keys"),
        (use.after.rounds, d, "to mix the models"),
    ]
    text = consensus.outlook(prepared, plan, messages)  # type: ignore[arg-type]
    text = text.replace("\npenalty    ", "\nconstants  ")
    return "\n".join([text, *(plan.learned.words if plan is not None and plan.learned is not None else [])])


def note(prepared: Prepared, plan: Plan | None = None) -> str:
    """What the reader must know of the fixed point, and of the noise where it is not what was asked for."""
    said = []
    if not prepared.config.algorithm.claims_optimum(prepared.node):
        said.append("with a constant step the nodes end beside the optimum, and not all at one place")
    asked = prepared.config.algorithm.trust
    if plan is not None and plan.recipe.trust == "any" != (asked or "any"):
        said.append(
            f"noise is each node's own and holds against all others: on this graph, at this budget, what edges could "
            f"share for --trust {asked} is forecast to gain nothing (where so many can cut a node off, it cannot)"
        )
    return "; ".join(said)


def said(prepared: Prepared, plan: Plan | None, node: Any, outcome: Any) -> list[str]:
    """Whom pairwise noise holds against, and what is left against others: of what the ledgers hold, not of the plan."""
    if plan is None:
        return []
    learned: list[str] = []
    if plan.learned is not None:
        found = _in_the_end(plan.learned, prepared, outcome)
        outcome.told["by_distance"], learned = found.to_json(), found.words
    if not plan.recipe.pairwise or not outcome.sentence:
        return learned
    seen = told(outcome.epsilons, prepared.config.privacy.delta) if math.isfinite(outcome.epsilon) else []
    return [outcome.sentence, *seen, *learned]


def _in_the_end(planned: Learned, prepared: Prepared, outcome: Any) -> Learned:
    """What stands of what was planned, once it is known what was spent."""
    more = outcome.statement if math.isinf(outcome.epsilon) else beyond(prepared, outcome)
    if not more:
        return planned
    return replace(planned, missed=planned.missed or more, lines=(), most=outcome.epsilons["coalition:1"])


def closing(summary: dict[str, Any], optimum: float | None) -> list[tuple[str, str]]:
    rows = consensus.closing(summary, optimum)
    return [("constants" if name == "penalty" else name, text) for name, text in rows]
