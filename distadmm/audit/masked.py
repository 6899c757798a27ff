"""Level 0 of masked sums: what every node really added, drew and sent, against what its ledger charged.

The run is made in this process with a tap between rows, noise, masks and tree.  Tested, as in `noises`: the shares of
noise.  Decided without a test, from the command line and not from the rule that is audited:
  * an entry whose number of shares, coalition, dimension or round is not that of the sum, or whose sensitivity is less
    than records made to reach far do move it, under the totals that were told and under hostile ones;
  * entries that together cost more than the budget; a round that is entered twice, or by nodes of unlike histories;
  * masks that do not cancel in the whole sum, or that do among nodes in rounds of other kinds.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, begin, stepped
from distadmm.audit.draws import Draws
from distadmm.audit.noises import Finding, Noise, Verdict, verdict_of
from distadmm.data.content import NO_CONTENTS
from distadmm.errors import require
from distadmm.methods.consensus import private as consensus
from distadmm.methods.masked import masked, private
from distadmm.methods.masked.learner import Ask, Learner
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule, diagonal
from distadmm.methods.masked.sums import Sums
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian, colluding_of
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.shelves import of_nodes
from distadmm.privacy.ledger.tally import Tally
from distadmm.ranks.world import World
from distadmm.run.config import Config
from distadmm.run.running import unwritten
from distadmm.run.setup import Prepared, prepare

_FAR = 50.0  # length of rows that are not what the data's reader lets through
_HOSTILE = 1e3  # of scales and models
_LATTICE = {"curvature": 8}  # what discreteness costs; 4 for others


class Tapped(NamedTuple):
    """One round, as the process that hosts all nodes saw it."""

    ask: Ask
    events: list[SharedDiscreteGaussian]  # of the nodes that sent
    nodes: list[int]
    values: Array  # a row for each of them
    shares: Array
    sent: Array  # words
    total: Array | None  # None: lost
    learner: Learner  # before it
    parents: dict[int, int | None]  # of each node of the tree


class Recording(NamedTuple):
    prepared: Prepared
    plan: private.Plan
    rounds: list[Tapped]
    state: Any
    members: list[Any]  # before the first round
    faults: list[Finding]


def record(config: Config, draws: Draws) -> Recording:
    """The run of these flags with a tap; its ledgers are kept in memory and enter no account."""
    prepared = prepare(config.replace(rng=draws.mode), World())
    silent = "there is no claim to audit without noise; give --epsilon, --adjacency and --trust"
    require(config.privacy.wanted, silent)
    plan = private.plan_of(prepared)
    require(not plan.unverified, f"nothing is claimed of this run: {plan.unverified}")
    source, node = draws.source(), prepared.node
    books = consensus.books_of(prepared, plan, unwritten(prepared.config.run), source, NO_CONTENTS)
    members = private.set_up(node, plan, source, books)
    release = Sums(plan.rule, node.tree, books, source, members, plan)
    playing = node.having(release=release)
    release.watch(node.network, node.start, "")
    before = [copy.deepcopy(member) for member in release.members]
    rounds: list[Tapped] = []
    state, k = begin(config.algorithm, playing), 0
    _tap(release, rounds, lambda: config.algorithm._learner(k - 1, state, playing))
    while k < config.loop.iterations and not config.algorithm.ended(state):
        k += 1
        playing.fabric.begin(k)
        state = stepped(config.algorithm, k, state, playing)
    release.close()
    faults = [
        Finding("chain", ledger.node, -1, str(found.fault))
        for ledger in books.ledgers
        if (found := chain.parse(ledger.content, f"ledger of node {ledger.node}")).fault
    ]
    return Recording(prepared, plan, rounds, state, before, faults)


def _tap(release: Any, rounds: list[Tapped], learner_now: Any) -> None:
    """Keep what passes between a node's rows and the tree."""
    asked, draw, send = release.sum, release.noise.draw, release.tree.sum
    drawn: dict[int, tuple[Event, Array]] = {}
    kept: dict[str, Array] = {}

    def drawing(event: Event, *, iteration: int, at: int = 0, **more: Any) -> Array:
        share = draw(event, iteration=iteration, at=at, **more)
        drawn[at] = event, np.array(share)
        return share

    def sending(rows: Array, *given: Any, **more: Any) -> Array:
        kept["sent"] = np.array(rows)
        return send(rows, *given, **more)

    def summing(ask: Ask, values: Array, away: Any = ()) -> Array | None:
        drawn.clear()
        before, parents = copy.deepcopy(learner_now()), dict(release.tree.shape.parent)
        total = asked(ask, values, away)
        at = sorted(drawn)
        found: Any = [drawn[i][0] for i in at]
        shares = np.stack([drawn[i][1] for i in at]) if at else np.zeros((0, ask.words), dtype=np.int64)
        names = [release.members[i].id for i in at]
        rounds.append(Tapped(ask, found, names, values[at], shares, kept["sent"][at], total, before, parents))
        return total

    release.sum, release.noise.draw, release.tree.sum = summing, drawing, sending


# -- findings ---------------------------------------------------------------------------------------------


def white_box(config: Config, draws: Draws, folder: Path | None = None) -> Verdict:
    """Level 0 of the run of these flags; of a finished one, of the ledgers in `folder` too."""
    made = record(config, draws)
    noises, findings = [], [*made.faults, *draws.findings(), *_masks(made)]
    books: dict[int, list[tuple[Ask, SharedDiscreteGaussian]]] = {}
    for k, tapped in enumerate(made.rounds, 1):
        whole = (tapped.values + tapped.shares).view(np.uint64).sum(axis=0)
        if tapped.total is not None and not np.array_equal(whole, tapped.sent.sum(axis=0)):
            findings.append(Finding("masks", -1, k, "masks do not cancel in the sum of all nodes"))
        for node, event, share in zip(tapped.nodes, tapped.events, tapped.shares):
            b = share.astype(float)
            if tapped.ask.kind == "curvature":
                b[~diagonal(made.plan.rule.columns)] *= math.sqrt(2)
            if not event.bears_no_label:
                noises.append(Noise(node, k, b, event, event.share_variance_grid**-0.5))
            books.setdefault(node, []).append((tapped.ask, event))
        findings += _moved(made, k, tapped)
    for node, charged in books.items():
        findings += _entries(config, made.plan, node, charged)
    if folder is not None:
        findings += _of_ledgers(config, made, folder)
    return verdict_of(noises, findings)


def _masks(made: Recording) -> list[Finding]:
    """Nodes in rounds of two kinds, of one length, never unmask each other."""
    if not made.plan.masks:
        return []
    halves = [copy.deepcopy(member) for member in made.members]
    for at, member in enumerate(halves):
        member.enter("squares" if at % 2 else "gradient", 4)
    seen = np.sum([member.masked(np.zeros(4, dtype=np.int64)) for member in halves], axis=0, dtype=np.uint64)
    text = "masks cancel between nodes in rounds of two kinds: the kind is not bound"
    return [] if seen.any() else [Finding("masks", -1, -1, text)]


def _moved(made: Recording, k: int, tapped: Tapped) -> list[Finding]:
    """What records that were made to reach far do to a sum, and what its entry says of them."""
    rule = made.plan.rule
    true = 4.0**rule.bits * max(reach(rule, tapped.ask, learner) for learner in _told(tapped.learner))
    stated = min((event.sensitivity_grid for event in tapped.events), default=math.inf)
    if true <= stated * (1 + 1e-9):
        return []
    text = f"one record moves this sum of {tapped.ask.kind} by {true:.6g} grid units; its entry says {stated:.6g}"
    return [Finding("entry", tapped.nodes[0], k, text)]


def _told(learner: Learner) -> Iterable[Learner]:
    """What a node believes: as it was, and after totals that somebody made up."""
    yield learner
    told = copy.deepcopy(learner)
    told.scale, told.rho = np.full_like(told.scale, _HOSTILE), 1.0
    told.w = np.where(np.arange(told.w.size).reshape(told.w.shape) % 2, -1.0, 1.0) * _HOSTILE
    told.iterates = [told.w]
    yield told


def reach(rule: Rule, ask: Ask, learner: Learner) -> float:
    """How far the worst of some records, or tables of a node, moves a sum, in its units."""
    d = rule.columns
    e = np.eye(d)[:2] if d > 1 else np.eye(1)
    ahead = np.full((1, d), 1 / math.sqrt(d))
    halves = np.concatenate([e, _FAR * e, ahead, _FAR * ahead])
    rows = np.concatenate([halves, -halves])
    targets = {"softmax": range(rule.outputs), "squared": (-1.0, 1.0)}.get(rule.loss, (1.0,))
    many = 4 * rule.rows // rule.nodes if rule.of_nodes else 1
    weight = np.ones(ask.words)
    if ask.kind == "curvature":
        weight = np.where(diagonal(d), 1.0, 2.0)
    cases = [(np.tile(x, (many, 1)), np.full(many, float(y))) for x in rows for y in targets]
    sums = [masked.rows_sum(Rows(*case, rule, rule.bits), ask, learner) for case in cases]
    found = np.stack(sums).astype(float) * np.sqrt(weight) * 4.0**-rule.bits
    if rule.adjacency == "add-remove":
        return float(np.linalg.norm(found, axis=1).max())
    if rule.of_labels:  # only its label: e and -e, as rows times their labels
        return float(np.linalg.norm(found[: len(halves)] - found[len(halves) :], axis=1).max())
    square = np.einsum("ij,ij->i", found, found)
    apart = square[:, None] + square[None] - 2 * found @ found.T
    return math.sqrt(max(float(apart.max()), 0.0))


def _entries(
    config: Config,
    plan: private.Plan,
    node: int,
    charged: Sequence[tuple[Ask | None, SharedDiscreteGaussian]],
) -> list[Finding]:
    """What one node's ledger charged, priced again from what `--trust` and `--epsilon` say."""
    privacy, n = config.privacy, plan.rule.nodes
    c = colluding_of(config.algorithm.trust, n)
    findings, seen, spent = [], set(), 0.0

    def note(event: SharedDiscreteGaussian, text: str, kind: str = "entry") -> None:
        findings.append(Finding(kind, node, event.round + 1, text))

    for ask, event in charged:
        honest = max(1, event.roster - c)
        if event.coalition != c or event.nodes != n:
            note(event, f"its entry is for {event.coalition} of {event.nodes} nodes; --trust says {c} of {n}")
        if event.shares > honest:
            note(event, f"{honest} of the shares are honest ones; its entry says {event.shares}")
        if ask is not None and (event.kind, event.dimension) != (ask.kind, ask.words):
            said = f"its entry says {event.dimension} ({event.kind})"
            note(event, f"a sum of {ask.words} numbers ({ask.kind}); {said}")
        if (event.session, event.round) in seen and event.session:
            note(event, "a round is entered twice in one session", "reuse")
        seen.add((event.session, event.round))
        if event.bears_no_label:
            spent += 0.0 if plan.rule.of_labels else math.inf
            continue
        noise = honest * event.share_variance_grid - _LATTICE.get(event.kind, 4)
        spent += event.sensitivity_grid**2 / noise
    told = [epsilon for epsilon in (privacy.epsilon, config.algorithm.evaluate) if epsilon]
    budget = sum(gaussian.mu_at(epsilon, privacy.delta) ** 2 for epsilon in told)
    if spent > budget * (1 + 1e-9):
        text = f"its entries cost mu^2 = {spent:.6g} against {c} colluders; the budget is {budget:.6g}"
        findings.append(Finding("price", node, -1, text))
    return findings


def _of_ledgers(config: Config, made: Recording, folder: Path) -> list[Finding]:
    """The ledgers of a finished run: their entries, and whether all nodes had one history."""
    findings: list[Finding] = []
    histories: dict[tuple[str, int], set[str]] = {}
    least = {tapped.ask: tapped.events[0].sensitivity_grid for tapped in made.rounds if tapped.events}
    of_kind = {ask.kind: min(s for other, s in least.items() if other.kind == ask.kind) for ask in least}
    for node, found in of_nodes(folder / "ledger", range(made.plan.rule.nodes)).items():
        if found.fault:
            findings.append(Finding("chain", node, -1, str(found.fault)))
        events: Any = [e for e in Tally.of(found.entries).events if isinstance(e, SharedDiscreteGaussian)]
        singles = [replace(event, count=1) for event in events for _ in range(event.count)]
        findings += _entries(config, made.plan, node, [(None, event) for event in singles])
        for event in events:
            if event.session:
                histories.setdefault((event.session, event.round), set()).add(event.transcript)
            if event.sensitivity_grid < of_kind.get(event.kind, 0.0) * (1 - 1e-9):
                text = f"one record moves a sum of {event.kind} by {of_kind[event.kind]:.6g}; its entry says less"
                findings.append(Finding("entry", node, event.round + 1, text))
    split = sorted(r for (_, r), told in histories.items() if len(told) > 1)
    return [*findings, *(Finding("history", -1, r + 1, "nodes were in unlike histories") for r in split)]
