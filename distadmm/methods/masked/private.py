"""From privacy flags to masked sums: the rule, what may be said of it, keys, ledgers.

A hypothesis that nobody established makes epsilon infinite, under its name; none is assumed.
"""

import math
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.algorithm import Node
from distadmm.errors import require
from distadmm.methods.consensus import private as consensus
from distadmm.methods.consensus.worth import weakest_statement
from distadmm.methods.forecasts import Forecast
from distadmm.methods.masked import learner, masked, sums
from distadmm.methods.masked.machine import cuts_nodes, forgets_labels, keeps_rows_apart
from distadmm.methods.masked.rule import ADJACENCIES, LEAST_SD, SHRINK, Rule
from distadmm.privacy.accounting import gaussian, scopes
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.accounting.kept import Kept
from distadmm.privacy.accounting.shared_discrete_gaussian import (
    SharedDiscreteGaussian,
    colluding_of,
    least_roster,
)
from distadmm.privacy.ledger.filter import GaussianFilter
from distadmm.privacy.ledger.schedules import Filtered
from distadmm.privacy.noise import signing
from distadmm.privacy.noise.masks import Key, Member, be8, drawn, f8, members_of
from distadmm.privacy.noise.sources import Source
from distadmm.run.running import Running
from distadmm.run.setup import Prepared
from distadmm.run.spending import require_rows_of_their_own
from distadmm.structs import struct


@struct
class Plan:
    """What all nodes agree on before anything is sent: the terms that the commitment covers."""

    rule: Rule
    epsilon: float  # of the whole run, an evaluation included
    delta: float
    mu: float
    least: int  # R_min
    mask_degree: int
    hosted: int  # most nodes of one rank
    doubt: str  # where the rule expects little
    verified: tuple[str, ...]
    unverified: str  # the first hypothesis that nobody established, in words
    peers: str = ""  # FILE of signing keys; empty: keys are believed as they come
    penalty: None = None
    choice: None = None  # of a penalty

    @property
    def masks(self) -> bool:
        return self.rule.colluding < self.rule.nodes - 1

    @property
    def facts(self) -> dict[str, Any]:
        """What the ledgers' headers keep."""
        rule = self.rule
        return {
            "nodes": rule.nodes, "coalition": rule.colluding, "least": self.least, "mask_degree": self.mask_degree,
            "mu": self.mu, "epsilon": self.epsilon, "delta": self.delta, "rounds": rule.most_rounds,
            "hosted": self.hosted, "pinned": bool(self.peers), "evaluated": bool(rule.evaluation),
        }  # fmt: skip

    @property
    def header(self) -> dict[str, Any]:
        """What its ledgers are told: whom the claim holds against, and what it is."""
        claim = scopes.claim("masked", self.verified, sums=self.facts)
        return {"claim": claim, "trust": f"coalition:{self.rule.colluding}"}

    @cached_property
    def schedule(self) -> Filtered:
        """The sums of a run in which no round is lost, and one more that takes what these leave of the budget."""
        asked = tuple(self.event(ask, self.rule.nodes, r) for r, ask in enumerate(learner.asks(self.rule)))
        if self.unverified:
            return Filtered(asked, None).doubted(self.unverified)
        mus = [float(event.gdp_mu(self.rule.adjacency) or 0.0) for event in asked]  # type: ignore[arg-type]
        left = SHRINK * self.mu**2 - math.fsum(mu * mu for mu in mus)
        one, rest = max(zip(mus, range(len(mus)))), tuple[Event, ...]()
        if left > 0:
            event = asked[one[1]]
            rest = (replace(event, sensitivity_grid=math.sqrt(left) / one[0] * event.sensitivity_grid),)
        return Filtered(asked, GaussianFilter(self.epsilon, self.delta, self.mu, exact=True), rest)

    @property
    def schedules(self) -> list[Filtered]:
        """Of each node of a rank, of as many as a rank has at most."""
        return [self.schedule] * self.hosted

    def forecast(self) -> Forecast:
        from distadmm.methods.masked.forecast import forecast_of

        return forecast_of(self.rule)

    def event(self, ask: learner.Ask, roster: int, r: int = 0) -> SharedDiscreteGaussian:
        """The price of a sum over so many nodes, of which every one pays the same."""
        rule = self.rule
        share = int(rule.share_variances(ask.kind, ask.t, roster, ask.plain)[0])
        moved = rule.moved(ask.kind, ask.first, ask.plain) * 4.0**rule.bits
        return SharedDiscreteGaussian(
            share_variance_grid=share, shares=rule.honest(roster), sensitivity_grid=moved, kind=ask.kind,
            dimension=ask.words, coalition=rule.colluding, nodes=rule.nodes, least=self.least,
            mask_degree=self.mask_degree, round=r, roster=roster,
        )  # fmt: skip

    def committed(self) -> bytes:
        """The terms, as they are hashed."""
        rule = self.rule
        loss = rule.loss.encode()
        numbers = (rule.nodes, rule.colluding, self.least, self.mask_degree, rule.rows, rule.columns)
        said = bytes([ADJACENCIES.index(rule.adjacency), len(loss)]) + loss
        said += b"".join(map(be8, (*numbers, rule.rounds, rule.bits)))
        terms = self.epsilon, self.delta, rule.q0, rule.q1, rule.slope, rule.floor0, rule.leverage
        said += b"".join(map(f8, (*terms, rule.kappa, rule.floor1, rule.ridge)))
        if rule.evaluation:
            said += b"evaluation" + f8(rule.evaluation) + f8(rule.most_loss)
        if rule.name != "first":
            said += bytes([len(rule.name)]) + rule.name.encode() + b"".join(map(f8, rule.constants))
        return said


def plan_of(prepared: Prepared) -> Plan:
    """The plan of a private run, or its refusal. Called by every rank."""
    config, node = prepared.config, prepared.node
    privacy, algorithm = config.privacy, config.algorithm
    from distadmm.privacy.noise.masks import mask_degree, require_suite

    n = node.network.n_nodes
    with node.network.world.together():
        _require_known(prepared)
        colluding = colluding_of(algorithm.trust, n)
        least = least_roster(n, algorithm.min_roster, privacy.adjacency)
        if colluding < n - 1 and privacy.rng == "secure":
            require_suite()
        peers = algorithm.peer_keys or ""
        if peers:
            signing.require_cryptography()
            signing.require_all(Path(peers), signing.public_keys(Path(peers)), n)
    counted = privacy.adjacency not in ("add-remove", "node")
    rows = masked.counted_rows(node) if counted else n * (privacy.public_rows or 0)
    epsilon, mu, told = _budget(prepared)
    with node.network.world.together():
        rule = algorithm.rule_of(node, adjacency=privacy.adjacency, colluding=colluding, rows=rows, mu=mu)
        if told:
            rule, mu = replace(rule, evaluation=told * SHRINK), math.hypot(mu, told)
            most, rounds = config.loop.iterations, rule.most_rounds
            require(
                most >= rounds,
                f"--iterations {most} ends before --evaluate; give at least {rounds}, or leave one out",
            )
        doubt = rule.check(algorithm.anyway)
        degree = mask_degree(n, colluding, least)
        found = {name: True for name in _STRUCTURAL} | _checked(prepared, rule, degree, least)
        missed = [name for name, holds in found.items() if not holds]
        missed = [name for some in node.network.world.allgather(missed) for name in some]
    hosted = max(node.network.world.allgather(node.network.n_local))
    verified = tuple(name for name in found if name not in missed)
    missing = f"not verified: {scopes.HYPOTHESES[missed[0]]} ({missed[0]})" if missed else ""
    unverified = consensus.unchecked(prepared) or missing
    return Plan(rule, epsilon, privacy.delta, mu, least, degree, hosted, doubt, verified, unverified, peers)


def _budget(prepared: Prepared) -> tuple[float, float, float]:
    """(epsilon of the whole run, mu of the model, mu of its evaluation); ranks of one host work them out once."""
    world, delta = prepared.world, prepared.config.privacy.delta

    def mu_of(epsilon: float) -> float:
        return gaussian.mu_at(epsilon, delta)

    def epsilon_of(mu: float) -> float:
        return gaussian.epsilon(mu, delta)

    epsilon, evaluate = float(prepared.config.privacy.epsilon or 0.0), prepared.config.algorithm.evaluate
    known = Kept("mu", delta)
    if not evaluate:
        return epsilon, world.each_once(mu_of, [epsilon], known)[epsilon], 0.0
    mus = world.each_once(mu_of, [epsilon, evaluate], known)
    mu, told = mus[epsilon], mus[evaluate]
    both = math.hypot(mu, told)
    return world.each_once(epsilon_of, [both], Kept("epsilon of mu", delta))[both], mu, told


def _require_known(prepared: Prepared) -> None:
    """What masked sums have no words for is refused, not ignored."""
    config, privacy = prepared.config, prepared.config.privacy
    more = {"noise": privacy.noise, "budget-epsilon": privacy.budget_epsilon}
    consensus.require_known(prepared, more, "its noise is discrete Gaussian, its budget --epsilon")
    if privacy.adjacency == "node":
        require(
            privacy.public_rows is not None,
            "--adjacency node with masked sums needs --public-rows B, rows that a node may be thought to have: by "
            "this its sums are cut, and how many it has is not told",
        )
        for name in ("evaluate", "l1"):
            require(
                getattr(config.algorithm, name) in (None, False),
                f"--{name} has no form for all rows of a node; leave it out, or choose replace",
            )


# Held up by the classes that every run goes through, whatever its flags: `masks.Member`, `sums.Sums`, `learner`.
_STRUCTURAL = (
    "same-history", "fresh-masks", "nested-rosters", "authentic-keys", "fresh-noise", "zero-start", "filter",
    "data-free-schedule", "centre-same-roster",
)  # fmt: skip


def _checked(prepared: Prepared, rule: Rule, degree: int, least: int) -> dict[str, bool]:
    """The hypotheses that depend on the data, the flags or this machine."""
    facts, privacy = prepared.source.facts, prepared.config.privacy
    facts.require_short_rows()
    large = degree == 0 or degree >= rule.colluding + 1 + rule.nodes - least
    labels = [getattr(objective, "labels", None) for objective in prepared.node.problem.objectives]
    return {
        "public-rows": not facts.doubt,
        "capped-slopes": all(y is None or bool(np.all(np.abs(y) == 1.0)) for y in labels),
        "public-count": privacy.adjacency not in ("add-remove", "node") or privacy.public_rows is not None,
        "rows-one-by-one": keeps_rows_apart(rule.columns),
        "all-pairs-masked": large,
        "share-scale": rule.least_share >= LEAST_SD**2,
        "canonical-link": not rule.of_labels or forgets_labels(rule),
        "clipped-node-sums": not rule.of_nodes or cuts_nodes(rule),
        "public-targets-range": True,  # rows beyond [-1, 1] are refused by `Rows`
    }


def armed(prepared: Prepared, plan: Plan, run: Running) -> Node:
    """The nodes with keys, masks and ledgers between their rows and the tree."""
    config, world = prepared.config, prepared.world
    if plan.doubt and world.is_root:  # before anything is spent
        sys.stderr.write(f"warning: {plan.doubt}\n")
    source = consensus.noise_source(config)
    with world.together():
        contents = consensus.contents_of(prepared)
    require_rows_of_their_own(world, contents)
    with world.together():
        books = consensus.books_of(prepared, plan, run, source, contents)
    node = prepared.node
    consensus.enter(prepared, run, books, plan.schedules, contents)
    for ledger in books.ledgers:
        ledger.account = None  # the whole budget is entered, and the ledger's own filter admits no more
    consensus.note_sanitised(prepared, books)
    file = consensus.foreign(config)
    if file and not run.resumed:  # before a line of foreign code runs
        books.expose(plan.unverified, iteration=0)
    members = set_up(node, plan, source, books)
    release = sums.Sums(plan.rule, node.tree, books, source, members, plan)
    armed = node.having(release=release)
    release.watch(node.network, node.start, file)
    if config.algorithm.survives:
        node.tree.survive()
    return armed


def set_up(node: Node, plan: Plan, source: Source, books: Any) -> dict[int, Member]:
    """Keys and nonces over the graph, then what everybody commits to; refused where one commits to something else."""
    keys: dict[int, Key] = {}
    said: dict[int, bytes] = {}
    for ledger in books.ledgers:
        i = ledger.node
        keys[i], nonce = drawn(i, source, plan.masks, ledger.tally.resumes)
        said[i] = nonce + keys[i].public
    heard = node.tree.flood(said)
    nonces = {i: words[:16] for i, words in heard.items()}
    publics = {i: words[16:] for i, words in heard.items()}
    terms, suite = (plan.committed(), plan.mask_degree, plan.least), next(iter(keys.values())).suite
    members = members_of(keys, publics, nonces, *terms, masks=plan.masks, suite=suite)
    first = next(iter(members.values()))
    with node.network.world.together():
        before = {getattr(event, "session", "") for ledger in books.ledgers for event in ledger.events}
        require(
            first.session.hex() not in before,
            "this session was there before: a machine that was copied or put back draws its nonces again; restart it "
            "and start a new run",
        )
    started = node.tree.flood(_started(members, plan, node))
    others = sorted(i for i, words in started.items() if words[:32] != first.h)
    require(
        not others,
        f"nodes {others} start with other terms or keys than node {min(members)}; compare their command lines",
    )
    if plan.peers:
        known, said_of = signing.public_keys(Path(plan.peers)), (first.session, first.h)
        forged = sorted(
            i for i, words in started.items() if not signing.checks(known[i], words[32:], *said_of)
        )
        require(
            not forged,
            f"the start of nodes {forged} is not signed by their keys in {plan.peers}; ask their owners",
        )
    return members


def _started(members: dict[int, Member], plan: Plan, node: Node) -> dict[int, bytes]:
    """What each node here starts with: h_0, and where keys are pinned its signature."""
    if not plan.peers:
        return {i: member.h for i, member in members.items()}
    path = Path(plan.peers)
    known = signing.public_keys(path)
    with node.network.world.together():
        return {i: m.h + signing.signature(path, i, known[i], m.session, m.h) for i, m in members.items()}


def settle(prepared: Prepared, node: Node) -> tuple[float, float, str]:
    """(epsilon, published epsilon, what that is worth) of a private run; closes the ledgers."""
    release: sums.Sums = node.release  # type: ignore[assignment]
    worth = release.terms.unverified or weakest_statement(node)
    release.close()
    return release.epsilon, math.inf, worth
