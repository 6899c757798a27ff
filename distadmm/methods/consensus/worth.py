"""What a private run of the consensus family has spent, and what that number is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from distadmm.algorithm import Node, find
from distadmm.methods.consensus import sizing
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.accounting.statements import BOUNDED, READINGS, SCHEDULED, if_assumed, of_claim, weakest
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.problems.losses import LOSSES
from distadmm.run.config import Config
from distadmm.run.setup import Prepared

if TYPE_CHECKING:
    from distadmm.privacy.accounting.kept import Kept


def foreign(config: Config) -> str:
    """Where an algorithm that is not this package's own comes from; empty for those.

    What counts is the class that runs, whatever it is called.
    """
    known, cls = find(config.name), type(config.algorithm)
    return known.file or ("" if cls is known.cls else f"{cls.__module__}.{cls.__qualname__}")


def strangers(prepared: Prepared) -> dict[str, str]:
    """By flag the file of each piece of code of this run that is not this package's own."""
    loss = prepared.config.problem.loss
    found = {
        "--algorithm": foreign(prepared.config),
        "--loss": "" if loss in LOSSES else loss.rpartition(":")[0],
        "--data": prepared.source.facts.reader.value,
    }
    return {flag: file for flag, file in found.items() if file}


def unchecked(prepared: Prepared) -> str:
    """Why nothing that such code says of releases counts; empty for this package's own."""
    files = dict.fromkeys(strangers(prepared).values())
    return f"{UNCHECKED} {', '.join(files)}" if files else ""


def spent(config: Config, node: Node) -> float:
    """epsilon of the record that costs most, over all ranks: at one node, or at all that have the same rows."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.accounting.kept import Kept
    from distadmm.privacy.noise.protected import Protected

    delta, release, world = config.privacy.delta, node.release, node.network.world
    committed = isinstance(release, Protected) and release.committed
    # Releases that were added on the way: only what holds for adaptive choices may be said.
    of = accountant.epsilon if all(world.allgather(committed)) else accountant.adaptive_epsilon

    def price(events: Any, adjacency: Any) -> float:
        return of(list(events), delta, adjacency)

    return _worst(node, price, lambda adjacency: Kept(of.__name__, delta, adjacency))


def weakest_statement(node: Node) -> str:
    """What the ledgers of all ranks together are worth."""
    return min(node.network.world.allgather(node.release.statement), key=("none", *READINGS).index)


def unbounded(node: Node) -> str:
    """Why nothing bounds what was spent; empty where something does."""
    from distadmm.privacy.noise.protected import Protected

    release = node.release
    assert isinstance(release, Protected)
    spent = [event for ledger in release.books.ledgers for event in ledger.events]
    here = release.recipe.unverified or next((e.words for e in spent if e.unbounded), "")
    return next(filter(None, node.network.world.allgather(here)), "")


def assumed(prepared: Prepared, node: Node) -> str:
    """What the schedule of the files that `--assume` names would cost, unless the run departed from it."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.noise.protected import Protected

    release, world, config = node.release, node.network.world, prepared.config
    assert isinstance(release, Protected)
    if release.recipe.unverified != unchecked(prepared):  # of all reasons, the last
        return "nor if its word is taken"
    if not all(world.allgather(release.kept_to_schedule())):
        return "nor if its word is taken: not all that it sent was drawn for as its schedule says"
    recipe, delta = replace(release.recipe, unverified=""), config.privacy.delta
    plans = sizing.plans_of(recipe, release.listed)
    prices = world.each_once(
        lambda plan: accountant.epsilon(list(plan.events), delta, recipe.adjacency), plans
    )
    worst = max(world.allgather(max(prices[plan] for plan in plans)))
    seeded, by = config.privacy.rng != "secure", strangers(prepared)
    does = " and ".join([SCHEDULED] * ("--algorithm" in by) + [BOUNDED] * (len(by) > ("--algorithm" in by)))
    files = " and ".join(dict.fromkeys(by.values()))
    return if_assumed(worst, delta, recipe.adjacency, files, seeded=seeded, does=does)


def published(node: Node) -> float:
    """The same by the bound that the paper publishes."""
    from distadmm.privacy.accounting import accountant

    return _worst(node, lambda events, adjacency: accountant.published_epsilon(list(events), adjacency))


def said_of(node: Node, delta: float) -> str:
    """What `ledger show` says of this run, of the record that costs most; on rank 0, called by every rank."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.accounting.kept import Kept
    from distadmm.privacy.ledger.tally import is_committed

    release, world = cast("Any", node.release), node.network.world
    tallies = [ledger.tally for ledger in release.books.ledgers]
    own = [(ledger.statement_kind, is_committed(ledger.tally)) for ledger in release.books.ledgers]
    every = [one for some in world.allgather(own) for one in some]
    reading, committed = weakest([kind for kind, _ in every]), all(kept for _, kept in every)
    price = accountant.epsilon if committed else accountant.adaptive_epsilon
    claim, adjacency = tallies[0].header["claim"], tallies[0].adjacency
    blocks = _blocks(node, [tally.seen for tally in tallies])
    kept = Kept(price.__name__, delta, adjacency)
    prices = world.each_once(lambda events: price(events, delta, adjacency), blocks, kept)
    here = max(blocks, key=prices.__getitem__)
    _, worst = max(world.allgather((prices[here], here)), key=lambda one: one[0])
    if not world.is_root:
        return ""
    return of_claim(reading, claim, worst, adjacency, delta, committed=committed).text  # type: ignore[arg-type]


def _worst(
    node: Node, price: Callable[[Any, Any], float], kept: Callable[[Any], Kept] | None = None
) -> float:
    from distadmm.privacy.noise.protected import Protected

    release, world = node.release, node.network.world
    if not isinstance(release, Protected):
        return float("inf")
    adjacency = release.recipe.adjacency
    books = _blocks(node, [ledger.events for ledger in release.books.ledgers])
    store = None if kept is None else kept(adjacency)
    prices = world.each_once(lambda events: price(events, adjacency), books, store)
    return max(world.allgather(max(prices[events] for events in books)))


def _blocks(node: Node, spent: Sequence[Sequence[Event]]) -> list[tuple[Event, ...]]:
    """What is spent on one record, place by place: here, or over all ranks where several nodes have the same rows."""
    ledgers, world = node.release.books.ledgers, node.network.world  # type: ignore[attr-defined]
    names = [ledger.rows for ledger in ledgers]
    everywhere = [name for some in world.allgather([n for each in names for n in each]) for name in some]
    if len(set(everywhere)) == len(everywhere):
        return [tuple(events) for events in spent]
    from distadmm.privacy.ledger.compose import Node as Held
    from distadmm.privacy.ledger.compose import blocks

    held = [Held(tuple(events), frozenset(each)) for events, each in zip(spent, names)]
    return [block.spent for block in blocks([one for some in world.allgather(held) for one in some])]


def settle(prepared: Prepared, node: Node) -> tuple[float, float, str] | None:
    """(epsilon, published epsilon, what that is worth) of a private run; closes the ledgers."""
    config = prepared.config
    found = None
    if node.release.private:
        worth = unbounded(node) or weakest_statement(node)
        if config.privacy.assume is not None:
            worth += f"; {assumed(prepared, node)}"
        found = spent(config, node), published(node), worth
    node.release.close()
    return found
