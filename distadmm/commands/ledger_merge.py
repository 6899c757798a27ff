"""What several ledgers cost together: everything adds up, unless it is established, or stated, that it need not.

The same run twice, whole or in pieces, counts once; of one that went on in two ways, what both could draw on counts
twice.  Within a run nodes compose by its scope, but those with the same rows add up.  Over runs everything adds up,
where the same rows are known by their keyed names node by node, else in the worst of all ways.  Only --disjoint makes
runs compose by maximum, and not those that share the name of some rows.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from distadmm.commands.ledger_report import Book, cell, float_exact
from distadmm.privacy.accounting.events import Adjacency, Event, event_from_json
from distadmm.privacy.accounting.scopes import changed
from distadmm.privacy.accounting.statements import EXACT, NOT_COVERED, exactly, weakest, worth
from distadmm.privacy.accounting.trust import common, composed, restated
from distadmm.privacy.ledger import compose
from distadmm.privacy.ledger.chain import Entry
from distadmm.privacy.ledger.tally import Tally, doubted, is_committed, reading

Run = list[Book]
STATED = "of different blocks no person is in two, as --disjoint states: the block that costs most"
ADDED = "all adds up: nobody has said that these runs are about different people (--disjoint)"


def merged(books: Sequence[Book], delta: float, *, disjoint: bool = False) -> dict[str, Any]:
    """One block for all runs, or with `disjoint` one for those that share rows; the dearest counts."""
    of: dict[str, Run] = {}
    for book in books:  # of one run's name, wherever they lie
        of.setdefault(book.header["run"], []).append(book)
    runs = list(of.values())
    groups = compose.same_rows([_names(run) for run in runs]) if disjoint else [list(range(len(runs)))]
    blocks = [_together([runs[at] for at in group], delta) for group in groups]
    return {
        "delta": delta,
        "blocks": blocks,
        "disjoint": disjoint,
        "rule": STATED if disjoint else ADDED if len(runs) > 1 else "",
        "epsilon": max(block["epsilon"] for block in blocks),
        "not_covered": EXACT if float_exact(books) else NOT_COVERED,
    }


def _names(run: Run) -> set[str]:
    """All by which its rows are known."""
    found = {name for book in run for name in book.rows}
    return found | {str(book.header["dataset"]).partition(",")[0] for book in run}


def _together(runs: Sequence[Run], delta: float) -> dict[str, Any]:
    books = [book for run in runs for book in run]
    adjacency = common(book.tally.adjacency for book in books)
    trust = composed(book.tally.trust for book in books)
    scopes = {book.header["scope"] for book in books}
    # Where runs disagree on who holds what, everything adds up.
    scope = scopes.pop() if len(scopes) == 1 else "unknown"
    nodes, parted = map(list, zip(*(_nodes(run, adjacency) for run in runs)))
    several = sum(any(node.spent for node in each) for each in nodes) > 1
    committed = not (several or any(parted)) and _committed(books)
    kinds = {reading(book.tally) for book in books}
    if several or any(parted):  # a later schedule may have been chosen for what an earlier run showed
        kinds.add("odometer")
    same = compose.same_rows([node.names for each in nodes for node in each])
    told = []
    for run, each, twice in zip(runs, nodes, parted):
        spent = compose.over_runs([each], scope, delta, adjacency, not twice and _committed(run))
        told.append({"run": run[0].header["run"], "nodes": len(each), "epsilon": spent})
    return {
        "adjacency": adjacency,
        "adjacency_words": changed(adjacency, [(book.header["claim"] or {}).get("scope") for book in books]),
        "trust": str(trust),
        "trust_words": trust.words,
        "nodes_compose": compose.NODES[scope][1],
        "same_rows": sum(len(group) > 1 for group in same),
        "runs": told,
        "published_epsilon": compose.published(nodes, scope, adjacency),
        "epsilon": compose.over_runs(nodes, scope, delta, adjacency, committed),
        "statement": weakest([*kinds]),
        "more": sorted({book.tally.adjacency for book in books} - {adjacency}),
        "several": several,
        "parted": any(parted),
        "unbounded": sorted({e.words for each in nodes for node in each for e in node.spent if e.unbounded}),
    }


def _committed(books: Run) -> bool:
    return all(is_committed(book.tally) for book in books)


def _nodes(run: Run, adjacency: Adjacency) -> tuple[list[compose.Node], bool]:
    """What each node of a run spent, copies of one ledger being one node; and whether one went on in two ways."""
    of: dict[int, list[Book]] = {}
    for book in run:
        of.setdefault(book.header["node"], []).append(book)
    found, parted = [], False
    for books in of.values():
        seen, followed, events = set[str](), set[str](), list[Event]()
        for book in books:
            entries = book.found.entries
            known = next((at for at, entry in enumerate(entries) if entry["h"] not in seen), len(entries))
            events += _priced(book, _spent(entries[known:]), adjacency)
            if 0 < known < len(entries) and entries[known - 1]["h"] in followed:
                # What was reserved where they part is there for each of them.
                places, parted = Tally.of(entries[:known]).places.values(), True
                left = [
                    s.event if math.isinf(s.left) else s.event.times(int(s.left))
                    for s in places
                    if s.left > 0
                ]
                events += _priced(book, left, adjacency)
            seen.update(entry["h"] for entry in entries[known:])
            followed.update(entry["prev"] for entry in entries)
        rows: frozenset[str] = frozenset().union(*(book.rows for book in books))
        found.append(compose.Node(compose.spending(events), rows))
    return found, parted


def _spent(entries: Sequence[Entry]) -> list[Event]:
    """What these entries reserved or charged."""
    found = []
    for entry in entries:
        if entry["kind"] == "commit":
            found += [event_from_json(line) for line in entry["events"]]
        elif entry["kind"] == "charge":
            found.append(event_from_json({"mech": entry["mech"], **entry["params"]}))
    return found


def _priced(book: Book, events: list[Event], adjacency: Adjacency) -> list[Event]:
    """Of a ledger, as they are priced for `adjacency`."""
    tally = book.tally
    held = [event.against(tally.trust) for event in doubted(tally, events)]
    return [restated(event, tally.adjacency, adjacency) for event in held]


def merged_text(report: dict[str, Any]) -> str:
    lines = [line for block in report["blocks"] for line in _block(block, report["delta"])]
    whole = f"together: epsilon {cell(report['epsilon'])} at delta {exactly(report['delta'])}; "
    if report["rule"]:
        lines.append(whole * (len(report["blocks"]) > 1) + report["rule"])
    return "\n".join([*lines, report["not_covered"]])


def _block(block: dict[str, Any], delta: float) -> Iterable[str]:
    yield f"neighbouring data: {block['adjacency_words']} ({block['adjacency']})"
    if block["trust"] != "any":
        yield f"  held against: {block['trust_words']} ({block['trust']})"
    for run in block["runs"]:
        yield f"  run {run['run']}: {run['nodes']} node{'s' * (run['nodes'] != 1)}, epsilon {cell(run['epsilon'])}"
    rules = block["nodes_compose"]
    if met := block["same_rows"]:
        rules += f"; {met} sets of rows were met at several nodes, by their keyed names, and add up"
    if block["several"]:
        rules += "; runs add up, by bounds that hold for runs chosen after one another"
    if block["parted"]:
        rules += "; a ledger went on in two ways: what it had reserved where they part counts for each"
    bounds = f"published {cell(block['published_epsilon'])}, epsilon {cell(block['epsilon'])}"
    yield f"  together ({rules}): {bounds} at delta {exactly(delta)}"
    for change in block["more"]:
        yield f"  for {change} nothing bounds all of them: some claim nothing for it; merge those apart that do"
    for reason in block["unbounded"]:
        yield f"  epsilon is infinite: {reason}"
    yield f"  {worth(block['statement'], block['epsilon'])}"
