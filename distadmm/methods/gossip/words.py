"""What a run of noisy gossip says of itself: before it, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distadmm.methods.consensus import words as consensus
from distadmm.methods.consensus.words import beyond, not_covered, on_a_wide_area_network, said
from distadmm.run.setup import Prepared

if TYPE_CHECKING:
    from distadmm.methods.gossip.private import Plan

__all__ = ["beyond", "closing", "not_covered", "note", "on_a_wide_area_network", "outlook", "said"]


def outlook(prepared: Prepared, plan: Plan | None) -> str:
    """What `--dry-run` prints."""
    text = consensus.outlook(prepared, plan)  # type: ignore[arg-type]
    return text.replace("\npenalty    ", "\nconstants  ")


def note(prepared: Prepared, plan: Plan | None = None) -> str:
    """What the reader must know of the fixed point."""
    return (
        ""
        if prepared.config.algorithm.claims_optimum(prepared.node)
        else ("with a constant step the nodes end beside the optimum, and not all at one place")
    )


def closing(summary: dict[str, Any], optimum: float | None) -> list[tuple[str, str]]:
    rows = consensus.closing(summary, optimum)
    return [("constants" if name == "penalty" else name, text) for name, text in rows]
