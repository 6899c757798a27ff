"""What a consensus run says of itself: before it, in its summary, and at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distadmm.privacy.accounting.statements import loss_in_words, planned_loss
from distadmm.privacy.noise.release import HEAD_BYTES
from distadmm.ranks.links import wall_clock, wall_clock_of_sums
from distadmm.run.config import Config
from distadmm.run.ends import End
from distadmm.run.setup import Prepared

if TYPE_CHECKING:
    from distadmm.methods.consensus.private import Plan

DIVERGED = End.DIVERGED.word

NO_TEST = "no test rows (--test-data FILE, or --test-fraction 0.2 of one table)"


def outlook(prepared: Prepared, plan: Plan | None, messages: Sequence[tuple[int, int, str]] = ()) -> str:
    """What `--dry-run` prints; `messages` of an edge, each way: how many, of how many numbers, what for."""
    config, node, world = prepared.config, prepared.node, prepared.world
    graph, data = prepared.description["graph"], prepared.description["data"]
    n, d = graph["nodes"], node.problem.dimension
    counted = config.privacy.adjacency not in ("add-remove", "node")  # else how many there are is private
    rows = [o.rows for o in node.problem.objectives if counted and hasattr(o, "rows")]
    rows = [count for some in world.allgather(rows) for count in some]
    few, most = min(rows, default=0), max(rows, default=0)
    shards = f"{few}{f' to {most}' * (most > few)} rows a node" if rows else "rows a node unknown"
    told = f"{data['features']} columns; how many rows there are is not told"
    if counted:
        whole = f"{data['rows']} rows, " * (data["rows"] is not None)  # nobody counts those of a file a node
        told = f"{whole}{data['features']} columns, {shards}, {data['test_rows']} test rows"
    head = 0 if plan is None else HEAD_BYTES
    rounds = 0 if plan is None or plan.choice is None else plan.choice.smoothing.rounds
    if not messages:
        each = config.algorithm.mixes * config.loop.iterations
        messages = (each, d, "of iterations"), (1, d, "to begin with"), (rounds, d, "to mix the models")
    number = 2 * graph["edges"] * sum(count for count, _, _ in messages)
    size = 2 * graph["edges"] * sum(count * (8 * width + head) for count, width, _ in messages)
    parts = [f"{count} {why} ({8 * width + head} bytes)" for count, width, why in messages if count]
    lines = [f"{key} = {value}" for key, value in config.table().items()]
    lines += [
        "",
        f"network    {graph['topology']}: {n} nodes, {graph['edges']} edges, degrees "
        f"{graph['degrees'][0]} to {graph['degrees'][2]} (mean {graph['degrees'][1]:.2f}), on {world.size} rank(s)",
        f"data       {data['name']}: {told}; licence: {data['licence']}",
        f"messages   {number}, {1e-6 * size:.3g} MB in all; on each edge, each way: {', '.join(parts)}",
        f"privacy    {_planned_loss(prepared, plan)}",
    ]
    if plan is not None and plan.choice is not None:
        lines.append(f"penalty    {plan.choice.words}")
    return "\n".join([*lines, *foretold(prepared, plan)])


def foretold(prepared: Prepared, plan: Any) -> list[str]:
    """What the rule beside the algorithm expects of its plan; called by every rank."""
    found = None if plan is None else prepared.world.on_root(plan.forecast)
    return [f"forecast   {found.words}"] if found is not None and found.tells else []


def _planned_loss(prepared: Prepared, plan: Plan | None) -> str:
    """What the whole schedule would cost, before anything is drawn."""
    delta = prepared.config.privacy.delta
    if plan is None or plan.recipe.unverified:
        why = "no noise was asked for (--epsilon, --adjacency)" if plan is None else plan.recipe.unverified
        return f"unbounded: {why}"

    from distadmm.privacy.accounting import accountant

    adjacency, worst, published = plan.recipe.adjacency, 0.0, 0.0
    for events in {each.events for each in plan.schedules}:
        worst = max(worst, accountant.epsilon(list(events), delta, adjacency))
        published = max(published, accountant.published_epsilon(list(events), adjacency))
    worst, published = max(prepared.world.allgather((worst, published)))
    count = sum(event.releases for event in plan.schedules[0].events)
    seeded = prepared.config.privacy.rng != "secure"
    return planned_loss(worst, delta, adjacency, published, count, seeded=seeded)


def said(prepared: Prepared, plan: Plan | None, node: Any, outcome: Any) -> list[str]:
    """Sentences below the closing table: none."""
    return []


def note(prepared: Prepared, plan: Plan | None = None) -> str:
    """What the reader must know of the fixed point."""
    if prepared.config.algorithm.claims_optimum(prepared.node):
        return ""
    return (
        "penalties differ between nodes and each dual takes its own step (--dual-step own): the nodes agree on the "
        "optimum of sum O_i/eta_i, not of sum O_i"
    )


def tuned(prepared: Prepared) -> bool | None:
    """Whether the run chose its penalties by itself; None of an algorithm that never does."""
    asked = getattr(prepared.config.algorithm, "tuned", None)
    return None if asked is None else asked(prepared.node) is not None


def not_covered(prepared: Prepared, run: Any) -> str:
    """What of the results is computed from private rows without noise; empty where nothing else is claimed."""
    return observed(prepared.config) if math.isfinite(run.epsilon) else ""


def observed(config: Config) -> str:
    """What an onlooker computes of private rows because somebody asked for it; empty where they have no bound."""
    if not (config.privacy.wanted and config.exact):
        return ""
    return "objectives, losses and gap" + (", and the test error" if config.problem.test_fraction else "")


def beyond(prepared: Prepared, run: Any) -> str:
    """Why more than --epsilon is spent; empty where it is not."""
    asked = prepared.config.privacy.epsilon
    if asked is None or not math.isfinite(run.epsilon) or run.epsilon <= asked:
        return ""
    said = f"more than --epsilon {asked:g} is spent: it was for"
    if prepared.config.loop.resume is None:
        return f"{said} a record at one node, and several nodes hold the same rows, so that what they spend adds up"
    return (
        f"{said} the iterations first asked for, and the resumed run made more, or drew noise anew that was charged "
        "and not kept when it was killed; --budget-epsilon stops a run, resumed or not"
    )


def on_a_wide_area_network(prepared: Prepared, run: Any) -> float | None:
    """Predicted time with a machine for each node on the links that were asked for; compute as measured here."""
    made, links = run.iterations - run.began, prepared.links
    if links is None or not made or not run.messages:
        return None
    problem, tree = prepared.node.problem, prepared.node.sums
    compute = problem.seconds / (len(problem.objectives) * made)
    if tree is not None:
        messages = run.iterations * [run.bytes / run.iterations / tree.messages]  # on average
        roll = prepared.config.algorithm.survives and prepared.config.privacy.wanted
        return wall_clock_of_sums(links, tree.shape.parent, compute, messages, roll)
    exchanges = prepared.config.algorithm.mixes
    return wall_clock(links, compute, run.bytes / run.messages, run.iterations, exchanges)


def closing(s: dict[str, Any], optimum: float | None) -> list[tuple[str, str]]:
    """The lines of the small table at the end of a run with summary `s`."""
    if s["ended"] == DIVERGED:
        gap = "none: the run diverged"
    elif s["mean_model_gap"] is not None:
        gap = f"{s['mean_model_gap']:.3e} of the mean of the nodes' models"
    elif s["observed"] == "public":
        gap = "- (of private rows: --observe all computes it, outside the bound)"
    elif optimum == 0:
        gap = "none: the optimum is zero, or as good as zero, and a gap is relative to it"
    elif s["pooled_allowed"]:
        gap = "not measured (--observe none, or the run ended before its first measurement)"
    else:
        gap = "unknown: each node holds its own rows, and the centralised optimum needs all of them"
    if s["test_error"] is not None:
        error = _of_own(s, "test_error", "{:.2f} %", 100)
    elif s["ended"] == DIVERGED:
        error = "none"
    elif s["hidden_test"]:
        error = (
            "- (of rows cut off the private file: --observe all computes it; --test-data names public ones)"
        )
    else:
        error = "none: the target is a number, not one of two classes" if s["test_rows"] else NO_TEST
    rows = [
        ("algorithm", f"{s['algorithm']}, {s['nodes']} nodes on {s['ranks']} rank(s)"),
        ("iterations", f"{s['iterations']} (ended by: {s['ended']})"),
        ("objective gap", gap),
        ("test error", error),
        ("privacy loss", loss_in_words(s)),
        ("sent", f"{s['bytes'] / 1e6:.2f} MB in {s['messages']} messages"),
        ("time", f"{s['seconds']:.2f} s of iterations"),
    ]
    if s["test_loss"] is not None:
        rows.insert(4, ("test loss", _of_own(s, "test_loss", "{:.4f}")))
    if s["choice"]:
        rows.insert(-3, ("penalty", s["choice"]))
    if s["not_covered"]:
        rows.append(("not covered", f"exact figures of private rows: {s['not_covered']}"))
    if s["note"]:
        rows.append(("note", s["note"]))
    if s["lost"]:
        rows.insert(-1, ("lost", f"{s['lost']} messages"))
    if s["predicted_wan_seconds"] is not None:
        rows.append(("on a WAN", f"{s['predicted_wan_seconds']:.2f} s predicted, a machine for each node"))
    if s["reason"]:
        rows.insert(2, ("", s["reason"]))
    return rows


def _of_own(s: dict[str, Any], name: str, show: str, unit: float = 1.0) -> str:
    """A figure of the nodes' own models, mean and worst, and of the mean of these models under that name."""
    own, worst, mean = (show.format(unit * s[f"{of}{name}"]) for of in ("", "worst_", "mean_model_"))
    return f"{own} by the nodes' own models (worst {worst}), {mean} by their mean"
