"""From privacy flags to what every node's releases pass through: hypotheses, noise parameters, ledgers.

A hypothesis of the theorems that the code cannot check, or that fails, makes every release unbounded in the
ledger, under the hypothesis' name.  None is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.config import Config, Privacy
from distadmm.errors import InputError, require
from distadmm.methods.consensus.schedule import schedule
from distadmm.privacy import accountant
from distadmm.privacy.books import Books
from distadmm.privacy.events import Event
from distadmm.privacy.filter import Filter, budget
from distadmm.privacy.memory import MemoryLedger
from distadmm.privacy.randomness import Source, source_of
from distadmm.privacy.release import Protected, Recipe, Unprotected
from distadmm.run import Run
from distadmm.setup import LOSSES, Prepared
from distadmm.softmax import MAX_SLOPE

Array = np.ndarray
_NORM_SLACK = 1e-12  # rows are divided by their norm in floating point
INEXACT = "solves are not certified: the published bound holds for exact minimisers only"


def unverified(config: Config, objectives: Sequence[Any]) -> str:
    """The first hypothesis that does not hold here or that no code can check; empty when all are verified."""
    if config.problem.loss == "softmax":
        require(
            config.privacy.mechanism == "output",
            "--loss softmax under objective perturbation: its Hessian has rank K - 1 a record, which no theorem here "
            "covers; use --mechanism output",
        )
        for objective in objectives:
            _require_short(objective.A)
        return ""
    if config.problem.loss not in LOSSES:
        return f"the bounds on the slope and curvature of the loss {config.problem.loss} are not verified by code"
    for objective in objectives:
        loss = objective.loss
        if not loss.labels or not np.isfinite(loss.max_slope) or not np.isfinite(loss.max_curvature):
            return f"the slope of the loss {config.problem.loss} has no bound"
        if objective.labels is None or not np.all(np.abs(objective.labels) == 1.0):
            return "labels are not all exactly -1 or +1"
        _require_short(objective.A)
    if config.privacy.form == "paper" and config.privacy.mechanism == "objective":
        return INEXACT
    return ""


def _require_short(rows: Array) -> None:
    longest = float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max()))
    require(
        longest <= 1 + _NORM_SLACK,
        f"a row has norm {longest:.4g} and privacy needs norms of at most 1; leave out --no-clip",
    )


def noise_table(config: Config, prepared: Prepared, releases: Sequence[Any]) -> Array:
    """alpha of each solve and node of this rank, (K, n)."""
    node, privacy = prepared.node, config.privacy
    solves = max(len(releases), 1)
    if privacy.alpha is not None:
        values, growth = node.table["alpha"], node.table["alpha_growth"]
        assert values is not None
        plan = schedule(values, 1.0 if growth is None else growth, cap=np.inf, name="--alpha")
        return np.stack([plan(k)[node.network.nodes, 0] for k in range(1, solves + 1)])
    return np.zeros((solves, node.network.n_local))  # chosen by `calibrate`


def recipe_of(config: Config, prepared: Prepared, releases: Sequence[Any]) -> Recipe:
    """The mechanism of this rank's nodes."""
    node, privacy = prepared.node, config.privacy
    problem, loss = node.problem, LOSSES.get(config.problem.loss)
    reasons = [r for r in node.network.world.allgather(unverified(config, problem.objectives)) if r]
    bounds = loss() if loss is not None else None
    slope = MAX_SLOPE if config.problem.loss == "softmax" else 1.0
    return Recipe(
        noise=privacy.kind,
        mechanism=privacy.mechanism,
        dimension=problem.dimension,
        alpha=noise_table(config, prepared, releases),
        weight=np.array([objective.scale for objective in problem.objectives]),
        slope=bounds.max_slope if bounds is not None else slope,
        curvature=bounds.max_curvature if bounds is not None else 1.0,
        ridge=node.facts.ridge,
        adjacency=str(privacy.adjacency),
        tolerance=problem.tolerance,
        output_epsilon=privacy.output_epsilon
        if privacy.form == "sound" and privacy.mechanism == "objective"
        else 0.0,
        one_signed=bounds is not None and bounds.one_signed,
        logistic=config.problem.loss == "logistic",
        unverified=reasons[0] if reasons else "",
    )


def plan_of(prepared: Prepared) -> Recipe | None:
    """The recipe of a private run, refused or completed before any file is written; None without noise."""
    config, node = prepared.config, prepared.node
    if not config.privacy.wanted:
        return None
    require(
        hasattr(config.algorithm, "releases"),
        f"--algorithm {config.name} has no private form; choose admm, madmm, radmm or mradmm",
    )
    with node.network.world.together():
        releases = config.algorithm.releases(node, config.loop.iterations)
    with node.network.world.together():
        recipe = recipe_of(config, prepared, releases)
        if config.privacy.epsilon is not None and releases:
            recipe = calibrate(config.privacy, recipe, releases)
    return recipe


def events_of(recipe: Recipe, releases: Sequence[Any], i: int) -> list[Event]:
    """The prices of all releases of node i, equal ones counted."""
    counted: dict[Event, int] = {}
    n = len(recipe.weight)
    for solve, (_, quadratic, factor) in enumerate(releases, 1):
        q, m = np.broadcast_to(quadratic, (n, 1))[i, 0], np.broadcast_to(factor, (n, 1))[i, 0]
        event = recipe.event(solve, i, float(q), float(m))
        counted[event] = counted.get(event, 0) + 1
    return [_times(event, count) for event, count in counted.items()]


def _times(event: Event, count: int) -> Event:
    from dataclasses import replace

    return replace(event, count=count)  # type: ignore[call-arg]


def calibrate(privacy: Privacy, recipe: Recipe, releases: Sequence[Any]) -> Recipe:
    """The largest alpha of each node, the same in all its solves, that spends at most --epsilon."""
    from dataclasses import replace

    chosen: dict[Any, float] = {}
    alpha = recipe.alpha.copy()
    for i in range(alpha.shape[1]):
        # Nodes of equal weight and equal penalties need the same alpha; find it once.
        key = (
            float(recipe.weight[i]),
            *(float(np.broadcast_to(q, (alpha.shape[1], 1))[i, 0]) for _, q, _ in releases),
        )
        if key not in chosen:
            chosen[key] = _alpha(privacy, recipe, releases, i)
        alpha[:, i] = chosen[key]
    return replace(recipe, alpha=alpha)


def _alpha(privacy: Privacy, recipe: Recipe, releases: Sequence[Any], i: int) -> float:
    from dataclasses import replace

    assert privacy.epsilon is not None

    def spent(alpha: float) -> float:
        at = replace(recipe, alpha=np.full_like(recipe.alpha, alpha), unverified="")
        return accountant.epsilon(events_of(at, releases, i), privacy.delta, recipe.adjacency)

    least = spent(1e-9)
    require(
        least < privacy.epsilon,
        f"--epsilon {privacy.epsilon:g} is out of reach: {len(releases)} solves of node {i} cost {least:.3g} whatever "
        "the noise, through their Hessian and --output-epsilon; run fewer iterations, raise the penalty or --epsilon",
    )
    low, high = 1e-9, 1.0
    while spent(high) <= privacy.epsilon and high < 1e12:
        low, high = high, 4 * high
    while high / low > 1 + 1e-4:
        middle = np.sqrt(low * high)
        low, high = (middle, high) if spent(middle) <= privacy.epsilon else (low, middle)
    return float(low)


def arm(prepared: Prepared, recipe: Recipe | None, folder: Path | None) -> None:
    """Open (or take up again) the ledgers, and put them between the data and the network."""
    config, node, world = prepared.config, prepared.node, prepared.node.network.world
    if recipe is None and folder is None:
        return
    source = noise_source(config)
    with world.together():
        books = _books(prepared, recipe, folder, source)
    if recipe is None:
        node.release = Unprotected(books)
        return
    release = Protected(recipe, books, source, node.network, prepared.description["phases"])
    node.release = release
    releases = config.algorithm.releases(node, config.loop.iterations)
    with world.together():
        if config.loop.resume is None:
            release.commit(releases)
    release.epsilon = spent(prepared)


def noise_source(config: Config) -> Source:
    if config.privacy.wanted and config.privacy.rng == "secure":
        return source_of("secure")
    return source_of("simulation", config.loop.seed)


def _books(prepared: Prepared, recipe: Recipe | None, folder: Path | None, source: Source) -> Books:
    config, node = prepared.config, prepared.node
    nodes, ghosts = node.network.nodes, node.network.ghosts.tolist()
    adjacency = recipe.adjacency if recipe is not None else "replace"
    name = config.problem.data if prepared.source.pooled_allowed else f"{config.problem.data} (own file)"
    header: dict[str, Any] = {"adjacency": adjacency, "mode": source.mode, "dataset": name}
    if folder is not None and config.loop.resume is not None:
        return Books.resume(folder / "ledger", nodes, ghosts, source=source.name, **header)
    header |= {"scope": "record", "source": source.name, "budget": _budget(config, recipe, prepared)}
    if folder is None:
        return Books([MemoryLedger(int(i), **header) for i in nodes])
    return Books.open(folder / "ledger", nodes, ghosts, **header)


def _budget(config: Config, recipe: Recipe | None, prepared: Prepared) -> Filter | None:
    privacy = config.privacy
    if privacy.budget_epsilon is None:
        return None
    delta = privacy.delta if privacy.budget_delta is None else privacy.budget_delta
    if recipe is None:
        raise InputError(
            "--budget-epsilon without noise: every release costs infinity; give --epsilon or --alpha"
        )
    releases = config.algorithm.releases(prepared.node, config.loop.iterations)
    planned = [] if recipe.unverified else events_of(recipe, releases, 0)
    return budget(privacy.budget_epsilon, delta, planned, adjacency=recipe.adjacency)  # type: ignore[arg-type]


def spent(prepared: Prepared) -> float:
    """epsilon of the node that has spent most, over all ranks: a record lives at one node, so nodes compose by max."""
    release, privacy = prepared.node.release, prepared.config.privacy
    if not isinstance(release, Protected):
        return float("inf")
    seen: dict[Any, float] = {}
    for ledger in release.books.ledgers:
        events = tuple(ledger.events)
        if events not in seen:
            seen[events] = accountant.epsilon(list(events), privacy.delta, release.recipe.adjacency)
    return max(prepared.world.allgather(max(seen.values(), default=0.0)))


def published(prepared: Prepared) -> float:
    """The same by the bound that the paper publishes."""
    release = prepared.node.release
    if not isinstance(release, Protected):
        return float("inf")
    mine = [
        accountant.published_epsilon(list(ledger.events), release.recipe.adjacency)
        for ledger in release.books.ledgers
    ]
    return max(prepared.world.allgather(max(mine, default=0.0)))


def settle(prepared: Prepared, run: Run) -> None:
    """What the run has spent, and what that number is worth; closes the ledgers."""
    release = prepared.node.release
    if isinstance(release, Protected):
        run.epsilon, run.published_epsilon = spent(prepared), published(prepared)
        kinds = {ledger.statement_kind for ledger in release.books.ledgers}
        kinds = {kind for some in prepared.world.allgather(kinds) for kind in some}
        # The weakest kind speaks for all nodes.
        run.statement = next(kind for kind in ("simulation", "odometer", "certificate") if kind in kinds)
        if release.recipe.unverified:
            run.statement = release.recipe.unverified
    release.close()
