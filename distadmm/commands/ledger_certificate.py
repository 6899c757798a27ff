"""The page of `ledger certificate`: what was spent on whose rows, for a data-protection officer.

Everything on it is read again from the ledgers, the account and the run directories when the page is made; a ledger
that is not whole gives no page.  It prints to paper, and needs no network and no script.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from distadmm.commands import ledger_report
from distadmm.commands.ledger_report import Book, cell
from distadmm.commands.report_page import STYLE, prose, table
from distadmm.errors import require
from distadmm.privacy.accounting.scopes import established
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.ledger.account import Account, standing
from distadmm.privacy.ledger.check import heads_digest, verified
from distadmm.run import kinds

ESTABLISHED = {  # who stands behind a hypothesis
    "code": "checked by the code of the run, before its first release",
    "flag": "stated by who started the run",
    "schema": "stated in the schema of the data",
    "bundled": "stated by the table that comes with distadmm",
    "declared": "declared by who wrote code of their own; nobody checked it",
    "nobody": "nobody",
}
BOUND = "A bound for the whole run, known before its first release"
UNBOUND = {  # what a ledger's number is otherwise, by the kind of it
    "simulation": "A simulation: a seed repeats its noise, so nothing is protected",
    "odometer": "A reading of what was spent so far, which is no guarantee",
}
_FACTS = ["what", "is"]
_PRINT = """
@media print { body { margin: 0; max-width: none } section { break-inside: avoid } }
blockquote { border-left: 4px solid #444; margin-left: 0; padding-left: 0.75rem }
td { white-space: normal; text-align: left; vertical-align: top } th { text-align: left }
code { overflow-wrap: anywhere }
"""


def page(files: Sequence[Path], account: Account, delta: float, owner: str, today: str) -> str:
    """The whole file, for the ledgers of one or several runs."""
    checked = verified(files, account)
    require(
        not checked.faults, f"{(checked.faults or [''])[0]}; a ledger that is not whole certifies nothing"
    )
    books = ledger_report.books_of(files)
    heads: dict[tuple[Path, str], dict[int, str]] = {}
    for book in books:
        heads.setdefault(_whose(book), {})[int(book.header["node"])] = book.found.head
    places = [str(folder) for folder, _ in heads]
    told_of = ledger_report.shown(books, delta)
    runs = zip(ledger_report.by_claim(books).values(), told_of["runs"])
    title = f"Privacy certificate of {f'{len(heads)} runs' if len(heads) > 1 else places[0]}"
    made = [["made", today], ["responsible", owner], ["account of the rows", str(account.path)]]
    parts = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title>\n<style>{STYLE}{_PRINT}</style>\n<main><h1>{escape(title)}</h1>",
        table(_FACTS, made, "this page", "words"),
        "<section><h2>All that was spent on these rows</h2>",
        *_history(books, account, delta),
        "</section>",
    ]
    rests: dict[str, str] = {}  # what runs rest on, by the first run that does
    for its, told in runs:
        place = str(_folder(its[0]))
        name = f"{place}, run {told['run']}" if places.count(place) > 1 else place
        name += f", {told['adjacency']}" if told["apart"] else ""
        digest = heads_digest(heads[_whose(its[0])])
        parts += ["<section>", *_run(name, its, told, delta, digest), *_rests(name, its, rests), "</section>"]
    places = [*dict.fromkeys(places)]
    commands = [f"python -m distadmm ledger verify {place}" for place in places]
    commands += [f"python -m distadmm ledger show {place} --delta {exactly(delta)}" for place in places]
    how = "\n".join([*commands, f"python -m distadmm ledger account {' '.join(places)}"])
    parts += [
        "<section><h2>What no number here covers</h2>",
        f"<p>{escape(told_of['not_covered'])}</p>",
        "<p>A number bounds what can be learnt about one record from what was released, whatever else is known. It "
        "does not say that the data were collected lawfully, nor that a prediction is right.</p></section>",
        "<section><h2>How to check this page</h2>",
        f"<pre><code>{escape(how)}</code></pre></section></main>",
    ]
    return "\n".join(parts) + "\n</html>\n"


def _folder(book: Book) -> Path:
    place = book.path.parent
    return place.parent if place.name == "ledger" else place


def _whose(book: Book) -> tuple[Path, str]:
    return _folder(book), book.header["run"]


def _run(name: str, books: Sequence[Book], told: dict[str, Any], delta: float, heads: str) -> Iterable[str]:
    """What the ledgers of one claim say; `heads` are those of the whole run."""
    folder, together = _folder(books[0]), told["together"]
    found = kinds.find(folder)
    programme = [found.kind, *filter(None, [found.config.get("algorithm")])] if found else []
    published = together["published_epsilon"]
    # A number whose hypotheses no ledger names is none that anybody claimed.
    claimed = told["statement"] == "certificate" and told["sentence"]
    bound = together["epsilon"] if claimed else math.inf
    yield f"<h2>Run {escape(str(told['run']))}</h2>"
    yield from (f"<p>{escape(text)}.</p>" for text in [ledger_report.apart(told)] if text)
    kind = BOUND if math.isfinite(bound) else UNBOUND.get(told["statement"], "No bound")
    yield f"<p>{escape('No bound' if told['unbounded'] else kind)}:</p>"
    why = "; ".join(told["unbounded"]) or "its ledgers claim nothing"
    sentence = told["sentence"] or f"Nothing is claimed of this run: {why}."
    yield f"<blockquote>{escape(sentence)}</blockquote>"
    if math.isfinite(bound):  # for who meets the two numbers for the first time; rounded up
        times = f"exp({bound:.4g})" if bound >= 20 else f"{math.ceil(100 * math.exp(bound)) / 100:.2f}"
        plainly = (
            "In plain words, if all it rests on holds: whatever those whom the bound is against conclude from what "
            f"they see, the chance of that conclusion is at most {times} times what it would be with neighbouring "
            f"data, plus {exactly(delta)}. The closer to 1.00 times, the less can be learnt about one record."
        )
        yield f"<p>{prose(plainly)}</p>"
    began = min(str(book.header["t"]) for book in books)
    source = told["rng"]["source"]
    yield table(
        _FACTS,
        [
            ["began", began],
            ["where", str(folder)],
            ["data, by their keyed name", ", ".join(told["dataset"])],
            ["table", str((found and found.config.get("data")) or "-")],
            ["programme", " ".join(dict.fromkeys(programme)) or "-"],
            ["epsilon", f"{cell(bound)} at delta {exactly(delta)}"],
            ["epsilon as published", cell(published) if math.isfinite(published) else "no published bound"],
            ["neighbouring data", f"{told['adjacency_words']} ({told['adjacency']})"],
            ["against", f"{told['trust_words']} ({told['trust']})"],
            ["nodes", f"{len(books)}; {told['nodes_compose']}"],
            ["releases of a node", ", ".join(sorted({str(node["releases"]) for node in told["nodes"]}))],
            ["what was released", ", ".join(_released(books))],
            *_sent((found and found.summary) or {}),
            ["noise", source if source == "no noise" else f"{told['rng']['mode']}, {source}"],
            ["ledger heads", heads],
        ],
        f"what {name} released",
        "words",
    )
    for line in told["by_coalition"]:
        yield f"<p>{escape(line)}</p>"


def _rests(name: str, books: Sequence[Book], known: dict[str, str]) -> Iterable[str]:
    """The hypotheses and who established them, once for all runs that rest on the same."""
    holding = established(books[0].header["claim"] or {"verified": []})
    if not holding:
        return
    yield "<h3>What it rests on</h3>"
    first = known.setdefault(str(holding), name)
    if first != name:
        yield f"<p>On the same as {escape(first)}, established by the same.</p>"
    else:
        for by in dict.fromkeys(each.by for each in holding):
            lines = [[each.words, each.name] for each in holding if each.by == by]
            what, who = "Each of these is" if len(lines) > 1 else "This is", ESTABLISHED.get(by, by)
            yield f"<p>{what} {escape(who)}.</p>"
            yield table(["hypothesis", "name"], lines, f"hypotheses of {name}, {who}")


def _sent(summary: dict[str, Any]) -> list[list[str]]:
    """Nothing of a run at one place, which sends nothing."""
    traffic = summary.get("traffic")
    parts = list(traffic.values()) if isinstance(traffic, dict) else [summary]
    if not all("bytes" in part and "messages" in part for part in parts):
        return []
    messages, size = (sum(part[name] for part in parts) for name in ("messages", "bytes"))
    return [["messages", f"{messages}, {size / 1e6:.2f} MB"]]


def _released(books: Sequence[Book]) -> list[str]:
    """Which mechanisms let something out, and why nothing bounds it where nothing does."""
    counts: dict[str, int] = {}
    for event in (event for book in books for event in book.tally.seen if not event.free):
        what = f"{event.mech} ({event.words})" if event.words else event.mech
        counts[what] = counts.get(what, 0) + event.releases
    return [f"{what}: {count} in all nodes" for what, count in counts.items()]


def _history(books: Sequence[Book], account: Account, delta: float) -> Iterable[str]:
    state = account.read()
    names = {book.header["run"] for book in books}
    tables = [runs for runs in state.tables() if names & {run.run for run in runs}]
    if not tables:
        yield "<p>The account knows none of these runs: what else was spent on these rows, it cannot say.</p>"
    for at, runs in enumerate(tables, 1):
        yield f"<p>{escape(standing(runs, delta, exact=True).words)}</p>"
        lines = []
        for run in runs:
            spent = f"no bound: {run.unbounded}" if run.unbounded else cell(run.tight(run.adjacency, delta))
            lines.append([run.run, run.where, run.adjacency, str(run.trust), spent])
        heads = ["run", "where", "neighbouring data", "against", "epsilon"]
        yield table(heads, lines, f"runs on these rows{f', account {at}' * (len(tables) > 1)}")
        for limit in state.limits_of(runs):
            most = f"epsilon {exactly(limit.epsilon)} at delta {exactly(limit.delta)}"
            yield f"<p>No more than {most} ({limit.adjacency}; {limit.trust}) may be spent on them.</p>"
