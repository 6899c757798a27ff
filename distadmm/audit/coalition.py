"""Levels 1 and 2 of masked sums: what a coalition sees, in two worlds that differ in one record of an honest node.

Four nodes of a few quiet rows, of which the first c collude: they draw nothing, add what drives the model away, so that
the slope of the record is cut, take off the masks that they share, and are left with S = sum of the honest nodes'
vectors.  Its law is known given what was told before,

    ln p'(S)/p(S) = sum over rounds of [|S - m|^2 - |S - m'|^2]/(2 sigma^2),

with m and m' what the honest rows add up to in either world and sigma^2 that of the honest shares together.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from distadmm.algorithm import Array
from distadmm.audit import bounds, masked
from distadmm.audit.draws import Draws
from distadmm.audit.report import Audit, Level, level_zero, levels_of
from distadmm.errors import require
from distadmm.methods.masked.learner import Ask, Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.private import Plan, plan_of
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import SHRINK, Rule, choose, diagonal
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.noise.masks import Member, mask
from distadmm.ranks.world import World
from distadmm.run.config import Config
from distadmm.run.setup import prepare

_NODES, _QUIET = 4, 3
# And its mirror image: opposite, but for a part that both have.
_CANARY = 50 * np.array([0.2, math.sqrt(1 - 0.04)])
_PUSH = 1e4  # in units of 1, of the coalition on the first coordinate


def small(plan: Plan, columns: int) -> Plan:
    """The plan of four nodes under the same budget, against as many colluders as it has, or two; or all others."""
    rule = plan.rule
    c = _NODES - 1 if rule.colluding >= rule.nodes - 1 else min(rule.colluding, 2)
    of = choose(
        name=rule.name, loss=rule.loss, adjacency=rule.adjacency, nodes=_NODES, colluding=c, outputs=rule.outputs,
        rows=_NODES * (_QUIET + 1), columns=max(2, min(rule.columns, columns)), mu=rule.mu / SHRINK, ridge=rule.ridge,
    )  # fmt: skip
    return replace(plan, rule=replace(of, evaluation=rule.evaluation), least=_NODES, mask_degree=0)


def worlds(rule: Rule) -> list[Rows]:
    """The victim's rows: quiet ones, and one whose gradients are opposite in the two worlds, or that is not there."""
    X = np.zeros((_QUIET + 1, rule.columns))
    other, y = X.copy(), np.zeros(len(X)) if rule.loss == "softmax" else np.ones(len(X))
    X[-1, :2], other[-1, :2] = _CANARY, _CANARY * (-1 if rule.of_labels else [1, -1])
    if rule.of_nodes:  # all its rows
        X[:], other[:] = X[-1], other[-1]
    tables = [X[:-1], X] if rule.adjacency == "add-remove" else [X, other]
    return [Rows(rows, y[: len(rows)], rule, rule.bits) for rows in tables]


def attack(plan: Plan, runs: int, draws: Draws) -> tuple[list[Array], list[SharedDiscreteGaussian]]:
    """Scores of so many plays in each world, and what the victim's ledger says of one."""
    tables, events, scores = worlds(plan.rule), cast(Any, list(plan.schedule.candidates)), []
    for there in (0, 1):
        found = np.empty(runs)
        for run in range(runs):
            source = draws.source(draws.seed + 2 * run + there)
            found[run] = math.fsum(_play(plan, events, tables, there, source, run))
        scores.append(found)
    return scores, events


def _play(
    plan: Plan, events: list[SharedDiscreteGaussian], tables: list[Rows], there: int, source: Any, run: int
) -> Iterator[float]:
    """The score of each round of one play."""
    rule, learner = plan.rule, Learner(plan.rule)
    members = _members(plan, run)
    honest = range(rule.colluding, _NODES)
    still = Rows(np.zeros((1, rule.columns)), tables[0].targets[:1], rule, rule.bits)
    for r, event in enumerate(events):
        ask = learner.ask()
        mine, quiet = [rows_sum(rows, ask, learner) for rows in tables], rows_sum(still, ask, learner)
        seen, total = np.zeros(ask.words, dtype=np.uint64), np.zeros(ask.words, dtype=np.uint64)
        for i, member in enumerate(members):
            member.enter(ask.kind, ask.words)
            value = mine[there] if i == _NODES - 1 else quiet.copy()
            if i in honest:
                value = value + event.sample(source.at(i, 0, r))
            elif ask.kind == "gradient":
                value[0] += int(_PUSH / rule.grain(ask.kind))
            sent = member.masked(value)
            total += sent
            if i in honest:
                seen += sent - _known(member, ask, set(honest))
        told = total.view(np.int64)
        for member in members:
            member.accept(told)
        # Honest nodes without masks are seen one by one, and only the victim tells anything.
        S = seen.view(np.int64).astype(float) - quiet.astype(float) * (len(honest) - 1)
        if event.bears_no_label:  # a difference would tell the worlds apart for sure
            yield 0.0 if np.array_equal(mine[0], mine[1]) else math.inf * (1 - 2 * there)
        else:
            variance = np.full(ask.words, float(event.share_variance_grid * len(honest)))
            if ask.kind == "curvature":
                variance[~diagonal(rule.columns)] /= 2
            far = [((S - m) ** 2 / variance).sum() for m in mine]
            yield float(far[0] - far[1]) / 2
        learner.take(told * rule.grain(ask.kind), _NODES)


def _known(member: Member, ask: Ask, honest: set[int]) -> Array:
    """The masks that a node shares with the coalition."""
    words = np.zeros(ask.words, dtype=np.uint64)
    for j, key in member.keys.items():
        if j not in honest:
            each = mask(key, member.session, member.h, ask.words)
            words = words + each if j > member.id else words - each
    return words


def _members(plan: Plan, run: int) -> list[Member]:
    """Nodes that have agreed on keys already."""
    pairs = {(i, j): bytes([i, j]) + bytes(30) for i in range(_NODES) for j in range(i)}
    keys = [{j: pairs[max(i, j), min(i, j)] for j in range(_NODES) if j != i} for i in range(_NODES)]
    session, nobody = run.to_bytes(16, "big"), bytes(32)
    return [
        Member(i, session, nobody, keys[i] if plan.masks else {}, list(range(_NODES)), _NODES)
        for i in range(_NODES)
    ]


_COLUMNS = 2  # of the attacked tables, where nothing else is asked for


def masked_audit(config: Config, options: Any, folder: Path | None = None) -> Audit:
    draws = Draws(config.privacy.rng, config.loop.seed)
    verdict, scores, claim = None, None, None
    levels: list[Level] = []
    if options.wants(0):
        verdict = masked.white_box(config, draws, folder)
        levels.append(level_zero(verdict))
    if options.level != "0":
        plan = plan_of(prepare(config, World()))
        require(not plan.unverified, f"nothing is claimed of this run: {plan.unverified}")
        attacked = small(plan, options.audit_columns or _COLUMNS)
        sides, events = attack(attacked, options.runs, draws)
        rule, scores = attacked.rule, (sides[0], sides[1])
        by = f"the ledger of a node, against {rule.colluding} of {rule.nodes} nodes"
        claim = bounds.claim_of(events, rule.adjacency, by)  # type: ignore[arg-type]
        levels += levels_of(options, claim, scores, config.privacy.delta)
    words = f"{config.name}, adjacency {config.privacy.adjacency}, trust {config.algorithm.trust}"
    words = f"the run in {folder}, {words}" if folder else words
    return Audit(words, draws.words, levels, claim, scores, verdict)
