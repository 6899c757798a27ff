"""What may be said of masked sums: the budget, known before the run, and its table by size of coalition."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from distadmm.privacy.accounting import gaussian, scopes
from distadmm.privacy.accounting.events import Adjacency, Event
from distadmm.privacy.accounting.shared_discrete_gaussian import table
from distadmm.privacy.accounting.statements import Kind, Reading, Statement, bound, circumstances, rounded_up

SEEDED = "SIMULATION: noise from a seed guarantees nothing; epsilon = infinity. With secret noise of the same law: "
_WIDE = 21  # nodes up to which every size of coalition has its row
NOT_COVERED = (
    "Not covered: losses and diagnostics on private data, preprocessing, hyper-parameter choice, timing, aborts, nodes "
    "corrupted during the run."
)


def of_masked(
    reading: Reading, claim: Mapping[str, Any], events: Iterable[Event], adjacency: Adjacency, delta: float
) -> Statement:
    """What may be said of masked sums: their budget, known before the run, never the sum of what was spent.

    `claim["sums"]` holds the public facts: N, c, R_min, degree of the masks, mu, most rounds, most nodes of a rank.
    """
    listed, sums = list(events), claim["sums"]
    known = scopes.hypotheses(scopes.established(claim))
    needed = scopes.SCOPES["masked"].hypotheses
    missed = tuple(name for name in needed if name not in known or not known[name].verified)
    reasons = [f"not verified: {scopes.HYPOTHESES[name]} ({name})" for name in missed]
    reasons += [f"no bound is proved for: {e.words}" for e in listed if e.unbounded]
    spent = [event.gdp_mu(adjacency) for event in listed if not (event.unbounded or event.free)]
    if any(mu is None for mu in spent) or math.fsum((mu or 0.0) ** 2 for mu in spent) > sums["mu"] ** 2:
        reasons.append("more was charged than the budget of masked sums")
    epsilon = gaussian.epsilon(sums["mu"], delta)  # of what may be charged, whatever else the header says
    epsilon = max(epsilon, sums["epsilon"]) if delta == sums["delta"] else epsilon
    text = sentence(sums, shares_of(sums, delta), epsilon, delta, adjacency)
    text += circumstances(adjacency, bool(claim.get("dealt")), str(claim.get("observed", "")))
    kind: Kind = "certificate"
    would_be = math.inf
    if reasons:
        kind, epsilon = "unbounded", math.inf
        text = f"No guarantee, epsilon = infinity: {'; '.join(reasons)}."
    if reading == "simulation":
        would_be, kind, epsilon = epsilon, "unbounded", math.inf
        text = SEEDED + text
    relied = tuple(known[name].words for name in needed if name in known and known[name].verified)
    return Statement(
        kind, reading, f"{text} {NOT_COVERED}", epsilon, delta, adjacency, math.inf, relied, missed,
        would_be=would_be, not_covered=NOT_COVERED,
    )  # fmt: skip


def sentence(
    sums: Mapping[str, Any], shares: Mapping[int, float], epsilon: float, delta: float, adjacency: Adjacency
) -> str:
    """Of a run whose facts are `sums`, with epsilon by size of coalition."""
    c, n = sums["coalition"], sums["nodes"]
    last = " (the last one evaluates the model)" if sums.get("evaluated") else ""
    change, masks = scopes.SCOPES["masked"].adjacencies[adjacency], c < n - 1
    said = (
        f"Everything that any {c} of the {n} nodes together see (the reader's own node counts as one), with all "
        f"messages of the network and the model, is {bound(epsilon, delta)} for {change} held by another "
        f"node, for at most {sums['rounds']} {'masked ' * masks}sums{last} within "
        f"mu^2 = {rounded_up(sums['mu'] ** 2)}; rounds lost on the way, whoever caused it, are paid for"
    )
    if adjacency == "label":
        said += ". Features, and who is in the data, are not protected at all"
    if not masks:
        return f"{said}; without masks: no assumption on any other node. Derivation not peer-reviewed."
    alone = bound(shares[n - 1], delta)
    keys = f"The figure for {c} colluders assumes that nobody changed keys on the way. If somebody did: "
    keys = "Keys are pinned." if sums["pinned"] else f"{keys}{alone.removesuffix('-DP')}."
    said = (
        f"{said}. Computational: key agreement, masks and hashes are assumed unbroken. {keys} Against all {n - 1} "
        f"other nodes: {alone}. Derivation not peer-reviewed."
    )
    if c == 0:
        said += f" Against any one other node: {bound(shares[1], delta)}."
    # A run may be taken up again on other ranks, and its ledgers keep what was said at first.
    at_first = f"; one rank held up to {sums['hosted']} when the run began" if sums["hosted"] > 1 else ""
    owners = f"any set of owners that together hold at most {c} nodes{at_first}"
    return f"{said} The owner of a rank sees all its nodes: {owners}."


def shares_of(sums: Mapping[str, Any], delta: float) -> dict[int, float]:
    """epsilon by size of coalition, as a ledger's header allows it to be worked out again."""
    return table(sums["mu"], delta, sums["nodes"], sums["coalition"], sums["least"], sums["mask_degree"])


def shares_in_words(facts: Mapping[str, Any], shares: Mapping[int, float]) -> list[str]:
    """epsilon by size of coalition, and by owners where one of them has several nodes."""
    sizes = list(shares)
    if len(sizes) > _WIDE:
        c, last = facts["coalition"], sizes[-1]
        tenths = {last * part // 10 for part in range(1, 11)}
        sizes = sorted({0, 1, 2, c, c + 1, *tenths, last - 1} & set(sizes))
    lines = ["epsilon by size of coalition: " + _row({size: shares[size] for size in sizes})]
    hosted, last = facts["hosted"], max(shares)
    if hosted > 1 and len(shares) > 1:
        owners = {o: shares[min(o * hosted, last)] for o in range(-(-last // hosted) + 1)}
        lines.append(
            "epsilon by number of owners who collude, as ranks were when the run began: " + _row(owners)
        )
    return lines


def _row(shares: Mapping[int, float]) -> str:
    return ", ".join(f"{size}: {rounded_up(share)}" for size, share in shares.items())
