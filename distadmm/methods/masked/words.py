"""What a masked run says of itself: before it, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distadmm.methods.consensus.words import closing as closing_of_models
from distadmm.methods.consensus.words import foretold, not_covered, on_a_wide_area_network
from distadmm.privacy.accounting import masked_statements as statements
from distadmm.privacy.accounting.statements import circumstances
from distadmm.run.setup import Prepared

if TYPE_CHECKING:
    from distadmm.methods.masked.private import Plan

__all__ = ["beyond", "closing", "not_covered", "note", "on_a_wide_area_network", "outlook", "said"]


def outlook(prepared: Prepared, plan: Plan | None) -> str:
    """What `--dry-run` prints."""
    config, node = prepared.config, prepared.node
    lines = [f"{key} = {value}" for key, value in config.table().items()]
    if plan is None:
        bare = "privacy    unbounded: no noise was asked for (--epsilon, --adjacency, --trust)"
        return "\n".join([*lines, "", bare])
    rule, messages = plan.rule, node.tree.messages
    kinds = [f"{rule.kinds.count(kind)} of {kind}" for kind in dict.fromkeys(rule.kinds)]
    size = sum(8 * rule.words(kind) for kind in rule.kinds)
    lines += [
        "",
        f"rounds     at most {rule.most_rounds}: {', '.join(kinds)}; rule {rule.name}, b = {rule.bits} bits",
        f"messages   {messages} a round, {messages * rule.most_rounds} in all, {messages * size / 1e6:.1f} MB",
        *([f"doubt      {plan.doubt}"] if plan.doubt else []),
        *foretold(prepared, plan),
        f"roster     the run ends when fewer than {plan.least} of {rule.nodes} nodes are left",
        *_sentences(plan, prepared),
    ]
    return "\n".join(lines)


def closing(s: dict[str, Any], optimum: float | None) -> list[tuple[str, str]]:
    """The lines of the small table at the end, and what an evaluation found."""
    named = closing_of_models(s, optimum)
    rows = [("rounds" if name == "iterations" else name, value) for name, value in named]
    told = s.get("evaluation")
    if told is None:
        return rows
    words = "none: the run ended before it, or its sum was lost"
    if told:
        wrong = ""
        if "error" in told:
            wrong = f"{100 * told['error']:.2f} % wrong +- {100 * told['error_spread']:.2f}, "
        words = (
            f"{wrong}mean loss {told['loss']:.4f} +- {told['loss_spread']:.4f} (cut at {told['cut']:g} a row), of the "
            f"{told['rows']} rows that the model was trained on"
        )
    at = next(place for place, (name, _) in enumerate(rows) if name == "test error")
    return [*rows[: at + 1], ("evaluation", words), *rows[at + 1 :]]


def beyond(prepared: Prepared, run: Any) -> str:
    """What is spent besides --epsilon."""
    told, asked = prepared.config.algorithm.evaluate, prepared.config.privacy.epsilon
    return f"epsilon is that of training ({asked:g}) and evaluation ({told:g}) together" if told else ""


def note(prepared: Prepared, plan: Plan | None = None) -> str:
    """What the reader must know of the model."""
    own = "the rule has a ridge (--ridge) and weights of its own; --weight and --rho are not used"
    return f"{plan.doubt}; {own}" if plan is not None and plan.doubt else own


def said(prepared: Prepared, plan: Plan | None, node: Any, outcome: Any) -> list[str]:
    """Sentences below the closing table; called by every rank."""
    sent = prepared.world.gather((prepared.node.tree.setup.messages, prepared.node.tree.setup.bytes))
    if sent is None:
        return []
    messages, size = (sum(each) for each in zip(*sent))
    before = f"Set-up sent {messages} messages of {size / 1e6:.2f} MB in all, besides those of rounds."
    if plan is None:
        return [before]
    lost = node.release.lost
    paid = [f"{lost} of {node.release.round} rounds were lost and are paid for."] if lost else []
    nodes = plan.rule.nodes
    gone = nodes - node.release.present
    if gone:
        paid.append(f"{gone} of {nodes} nodes dropped out; the model is that of the nodes left.")
    if prepared.world.gone:
        paid.append(f"Ranks {prepared.world.gone} did not answer any more; the job is ended without them.")
    return [before, *paid, *_sentences(plan, prepared)]


def _sentences(plan: Plan, prepared: Prepared) -> list[str]:
    if plan.unverified:
        return [f"No guarantee, epsilon = infinity: {plan.unverified}."]
    from distadmm.methods.consensus.private import circumstances_of

    facts = plan.facts
    shares = statements.shares_of(facts, plan.delta)
    first = statements.sentence(facts, shares, plan.epsilon, plan.delta, plan.rule.adjacency)  # type: ignore[arg-type]
    first += circumstances(plan.rule.adjacency, **circumstances_of(prepared))  # type: ignore[arg-type]
    if prepared.config.privacy.rng != "secure":
        first = statements.SEEDED + first
    return [first, statements.NOT_COVERED, *statements.shares_in_words(facts, shares)]
