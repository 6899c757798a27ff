"""What ledgers say, for people: the tables and the export.

Three kinds of statement are never mixed: a certificate bounds a whole run, an odometer reads what was spent
so far, and a simulation guarantees nothing whatever its numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from distadmm.errors import require
from distadmm.privacy.accounting import accountant, masked_statements
from distadmm.privacy.accounting.events import Adjacency, Event, Leakage
from distadmm.privacy.accounting.scopes import changed
from distadmm.privacy.accounting.statements import (
    EXACT,
    NOT_COVERED,
    Statement,
    by_trust,
    exactly,
    of_claim,
    weakest,
    worth,
)
from distadmm.privacy.accounting.trust import composed
from distadmm.privacy.ledger import chain, compose, filter
from distadmm.privacy.ledger.shelves import read_all
from distadmm.privacy.ledger.tally import Tally, doubted, is_committed, reading, statement_kind


@dataclass(frozen=True)
class Book:
    """One ledger that is whole."""

    path: Path
    found: chain.Chain
    tally: Tally

    @property
    def header(self) -> chain.Entry:
        return self.tally.header

    @property
    def spent(self) -> list[Event]:
        """What was reserved or charged; without a bound where its claim rests on what nobody established."""
        return doubted(self.tally, self.tally.seen)

    @property
    def rows(self) -> frozenset[str]:
        """The keyed names of its rows; none where it was written before they were kept."""
        return frozenset(self.header.get("rows", ()))

    @property
    def whose(self) -> frozenset[str]:
        """The same, and its node: two ledgers of one node are about one table."""
        return self.rows | {f"node {self.header['node']}"}


def books_of(files: Sequence[Path]) -> list[Book]:
    """The ledgers, none of them faulty."""
    books = []
    for found in read_all(files):
        require(found.fault is None, f"{found.fault}; see: python -m distadmm ledger verify")
        require(found.entries, f"{found.path} holds no whole entry; nothing was released under it")
        books.append(Book(Path(found.path), found, Tally.of(found.entries)))
    return books


# -- show ---------------------------------------------------------------------------------------------


def shown(books: Sequence[Book], delta: float, records: int = 1) -> dict[str, Any]:
    """What `show` prints, as data: one block a run and claim: parties may differ in it."""
    runs = by_claim(books)
    found = [_run(those, delta, records) for those in runs.values()]
    for place, run in zip(runs, found):
        run["apart"] = sorted(other[2] for other in runs if other[:2] == place[:2] and other != place)
    exact = all(run["float_exact"] for run in found)
    return {"delta": delta, "records": records, "runs": found, "not_covered": EXACT if exact else NOT_COVERED}


def by_claim(books: Sequence[Book]) -> dict[tuple[Path, str, Any, Any], list[Book]]:
    """Those of one folder, one run and one claim, in the order in which they are shown.

    Files of several runs may have been put into one folder: what these spend adds up, and no node of one stands for
    that of another.
    """
    runs: dict[tuple[Path, str, Any, Any], list[Book]] = {}
    for book in books:
        claimed = (book.header["claim"] or {}).get("scope")
        runs.setdefault((book.path.parent, book.header["run"], book.header["adj"], claimed), []).append(book)
    return runs


def apart(run: dict[str, Any]) -> str:
    """Of a run whose ledgers differ in what they are about; empty of others."""
    others = " and ".join(run["apart"])
    return f"ledgers of this run for {others} are shown apart: whom both touch pays both" if others else ""


def _one(books: Sequence[Book], key: str) -> Any:
    values = {str(book.header[key]): book.header[key] for book in books}
    require(
        len(values) == 1, f"ledgers of one run differ in {key}: {', '.join(sorted(values))}; show them apart"
    )
    return next(iter(values.values()))


def _run(books: Sequence[Book], delta: float, records: int) -> dict[str, Any]:
    adjacency, scope = _one(books, "adj"), _one(books, "scope")
    held = [compose.Node(compose.spending(book.spent, records), book.whose) for book in books]
    trust = composed(book.tally.trust for book in books)
    committed = all(is_committed(book.tally) for book in books)
    kind: str = weakest([reading(book.tally) for book in books])
    nodes = [_node(book, each.spent, delta, adjacency) for book, each in zip(books, held)]
    said = _statement(books, kind, committed, delta) if records == 1 else None
    bound = min(said.epsilon, said.would_be) if said else math.inf  # with secret noise, if this is none
    epsilon = compose.over_runs([held], scope, delta, adjacency, committed)
    if said and said.kind == "certificate" and not committed:  # of what may be taken, not of what was
        kind, epsilon = said.kind, said.epsilon
    leaks = [event for book in books for event in book.tally.events if isinstance(event, Leakage)]
    blocks = compose.blocks(held, compose.NODES[scope][0]) if committed else []
    # What 0.1 composed of replaced records, beside what is claimed now.
    earlier = [accountant.r_o_r(list(spent), delta, adjacency) for spent in {block.spent for block in blocks}]
    return {
        "run": books[0].header["run"],
        "adjacency": adjacency,
        "adjacency_words": changed(adjacency, [(book.header["claim"] or {}).get("scope") for book in books]),
        "trust": str(trust),
        "trust_words": trust.words,
        "scope": scope,
        "nodes_compose": compose.NODES[scope][1],
        "same_rows": [group for group in compose.same_rows([book.rows for book in books]) if len(group) > 1],
        "dataset": sorted({str(book.header["dataset"]) for book in books}),
        "rng": _one(books, "rng"),
        "float_exact": float_exact(books),
        "unbounded": sorted({e.words for b in books for e in b.spent if e.unbounded}),
        "leakage": [{"nats": leak.nats, "what": leak.what} for leak in leaks],
        "nodes": nodes,
        "together": {
            "published_epsilon": compose.published([held], scope, adjacency),
            "epsilon": epsilon,
            "r_o_r": max(earlier, default=math.inf),
        },
        "statement": kind,
        "sentence": said.text if said else None,
        "by_coalition": _by_coalition(books, committed, delta) if said and math.isfinite(bound) else [],
    }


@lru_cache(maxsize=1024)  # the nodes of a graph spend alike
def _prices(
    spent: compose.Spending, delta: float, adjacency: Adjacency, committed: bool
) -> tuple[float, float]:
    published = accountant.published_epsilon(list(spent), adjacency)
    return published, compose.epsilon(spent, delta, adjacency, committed)


def _node(book: Book, spent: compose.Spending, delta: float, adjacency: Adjacency) -> dict[str, Any]:
    tally = book.tally
    published, epsilon = _prices(spent, delta, adjacency, is_committed(tally))
    budget = filter.filter_from_json(tally.header["budget"])
    return {
        "node": tally.header["node"],
        "releases": tally.releases,
        "to_come": int(tally.reserved),
        "posts": tally.posts,
        "torn": tally.torn,
        "given_up": tally.forfeited,
        "refused": tally.refused,
        "published_epsilon": published,
        "epsilon": epsilon,
        "budget": budget.describe() if budget else None,
        "budget_left": max(0.0, 1.0 - budget.used(tally.spent)) if budget else None,
        "statement": reading(tally),
    }


def _statement(books: Sequence[Book], kind: str, committed: bool, delta: float) -> Statement | None:
    """What may be said of the run, in the words of `statements`; None when its ledgers claim nothing."""
    claim, adjacency, scope = (_one(books, key) for key in ("claim", "adj", "scope"))
    if claim is None:
        return None
    held = [compose.Node(tuple(book.tally.seen), book.whose) for book in books]
    blocks = compose.blocks(held, compose.NODES[scope][0])
    events = max((b.spent for b in blocks), key=lambda spent: _prices(spent, delta, adjacency, committed)[1])
    return of_claim(kind, claim, events, adjacency, delta, committed=committed)  # type: ignore[arg-type]


def _by_coalition(books: Sequence[Book], committed: bool, delta: float) -> list[str]:
    """epsilon by how many collude: of masked sums, what was known before the run."""
    claim = _one(books, "claim")
    if claim["scope"] in ("gossip", "gossip-pairwise"):
        held = [compose.Node(tuple(book.tally.events), book.whose) for book in books]
        spent = [block.spent for block in compose.blocks(held, compose.NODES[_one(books, "scope")][0])]
        return by_trust(spent, _one(books, "adj"), delta, committed=committed)
    if claim["scope"] != "masked":
        return []
    return masked_statements.shares_in_words(claim["sums"], masked_statements.shares_of(claim["sums"], delta))


def float_exact(books: Sequence[Book]) -> bool:
    """Whether whole numbers were added to whole numbers; an entry knows its noise alone, and its claim the rest."""
    claims = [book.header["claim"] for book in books]
    whole = all(claim is None or claim["scope"] == "masked" or claim.get("exact") for claim in claims)
    paid = [entry for book in books for entry in book.found.entries if entry["kind"] in ("commit", "charge")]
    return whole and bool(paid) and all(entry["float_exact"] for entry in paid)


def tables(report: dict[str, Any], rows: int = 30) -> str:
    blocks = ["\n".join(_block(run, report["delta"], report["records"], rows)) for run in report["runs"]]
    return "\n\n".join([*blocks, report["not_covered"]])


def _block(run: dict[str, Any], delta: float, records: int, rows: int) -> Iterable[str]:
    source = f" ({run['rng']['source']})" if run["rng"]["source"] else ""
    yield f"run {run['run']}   noise: {run['rng']['mode']}{source}"
    group = f"; {records} records of one person a node" if records > 1 else ""
    yield f"neighbouring data: {run['adjacency_words']} ({run['adjacency']}){group}"
    if run["trust"] != "any":
        yield f"held against: {run['trust_words']} ({run['trust']})"
    head = ["node", "releases", "to come", "free", "published", f"eps({exactly(delta)})", "left", "says"]
    nodes = run["nodes"] if not rows else run["nodes"][:rows]
    yield from _columns([head, *([cell(value) for value in _row(node)] for node in nodes)])
    if len(nodes) < len(run["nodes"]):
        yield f"... and {len(run['nodes']) - len(nodes)} more nodes; --rows 0 lists all"
    for node in nodes:
        odd = [f"{node[key]} {what}" for key, what in _ODD.items() if node[key]]
        if odd:
            yield f"node {node['node']}: {', '.join(odd)}"
    if run["statement"] == "certificate" and "odometer" in {node["statement"] for node in nodes}:
        yield "odometer: what a node has taken so far of its budget, which is what is certified"
    for budget in sorted({node["budget"] for node in run["nodes"]} - {None}):
        yield f"budget of a node, kept by a proved filter: {budget}"
    total = run["together"]
    bounds = f"published {cell(total['published_epsilon'])}, epsilon {cell(total['epsilon'])}"
    yield f"{run['nodes_compose']}: {bounds} at delta {exactly(delta)}"
    if math.isfinite(total["r_o_r"]):
        yield f"by R o R, as 0.1 had it, for comparison: {cell(total['r_o_r'])}"
    for same in run["same_rows"]:
        here = ", ".join(str(run["nodes"][at]["node"]) for at in same)
        yield f"nodes {here} hold the same rows, by their keyed names: what they spend adds up"
    if run["apart"]:
        yield apart(run)
    for reason in run["unbounded"]:
        yield f"epsilon is infinite: {reason}"
    # Every node applies the same mapping to its own rows: say it once.
    leaks = [f"{leak['nats']:g} nats about {leak['what']}" for leak in run["leakage"]]
    yield from (f"average leakage, not added: {leak}" for leak in dict.fromkeys(leaks))
    yield worth(run["statement"], total["epsilon"])
    if run["sentence"]:
        yield run["sentence"]
    yield from run["by_coalition"]
    if not run["float_exact"]:
        yield "float_exact: false (exact arithmetic is assumed)"


_ODD = {
    "torn": "torn lines, counted as releases",
    "given_up": "reserved releases given up after a crash of the machine",
    "refused": "releases refused by the budget",
}


def _row(node: dict[str, Any]) -> list[Any]:
    left = "-" if node["budget"] is None else f"{node['budget_left']:.0%}"
    names = ("node", "releases", "to_come", "posts", "published_epsilon", "epsilon")
    says = worth(node["statement"], node["epsilon"]).partition(":")[0]
    return [*(node[name] for name in names), left, says]


def cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "infinite"
    # Bounds are shown rounded up, what adding them up rounded up aside; and what is spent is never shown as 0.
    return f"{max(math.ceil(value * 1e4 - 1e-9), value > 0) / 1e4:.4f}"


def _columns(table: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    for *row, last in table:
        yield "  ".join([*map(str.rjust, row, widths), last])


# -- export -------------------------------------------------------------------------------------------


def exported(books: Sequence[Book]) -> dict[str, Any]:
    """Each node's events, raw and in dp-accounting's words."""
    nodes = []
    for book in books:
        events = doubted(book.tally, book.tally.events)
        bare = any(event.unbounded for event in events)
        nodes.append(
            {
                **{name: book.header[name] for name in ("run", "node", "scope", "dataset")},
                "adjacency": book.header["adj"],
                "trust": str(book.tally.trust),
                "statement": "unbounded" if bare else statement_kind(book.tally),
                "head": book.found.head,
                "events": [event.to_json() for event in events],
                "dp_event": accountant.dp_event(events),
            }
        )
    return {"format": "distadmm ledger export 1", "nodes": nodes}
