"""Audits of masked sums: of a run's flags, or of a finished run, whose ledgers are priced again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from distadmm.audit import bounds, coalition, masked
from distadmm.audit.draws import Draws
from distadmm.audit.report import Audit, Level, level_zero
from distadmm.errors import require
from distadmm.methods.masked import private
from distadmm.ranks.world import World
from distadmm.run.config import Config
from distadmm.run.setup import prepare

_COLUMNS = 2  # of the attacked tables, where nothing else is asked for


def masked_audit(
    config: Config, options: Any, levels_of: Callable[..., list[Level]], folder: Path | None = None
) -> Audit:
    """All levels that are asked for; `levels_of` makes levels 1 and 2 of scores."""
    draws = Draws(config.privacy.rng, config.loop.seed)
    verdict, scores, claim = None, None, None
    levels: list[Level] = []
    if options.wants(0):
        verdict = masked.white_box(config, draws, folder)
        levels.append(level_zero(verdict))
    if options.wants(1) or options.wants(2):
        plan = private.plan_of(prepare(config, World()))
        require(not plan.unverified, f"nothing is claimed of this run: {plan.unverified}")
        attacked = coalition.small(plan, options.audit_columns or _COLUMNS)
        sides, events = coalition.attack(attacked, options.runs, draws)
        rule, scores = attacked.rule, (sides[0], sides[1])
        by = f"the ledger of a node, against {rule.colluding} of {rule.nodes} nodes"
        claim = bounds.claim_of(events, rule.adjacency, by)  # type: ignore[arg-type]
        delta = config.privacy.delta if options.audit_delta is None else options.audit_delta
        levels += levels_of(options, claim, scores, delta)
    words = f"{config.name}, adjacency {config.privacy.adjacency}, trust {config.algorithm.trust}"
    words = f"the run in {folder}, {words}" if folder else words
    return Audit(words, draws.words, levels, claim, scores, verdict)
