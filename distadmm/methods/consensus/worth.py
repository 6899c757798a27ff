"""What a private run of the consensus family has spent, and what that number is worth."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from distadmm.algorithm import Node, find, planned
from distadmm.methods.consensus import sizing
from distadmm.privacy.accounting.statements import READINGS, if_assumed
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.run.config import Config


def foreign(config: Config) -> str:
    """Where an algorithm that is not this package's own comes from; empty for those.

    What counts is the class that runs, whatever it is called.
    """
    known, cls = find(config.name), type(config.algorithm)
    return known.file or ("" if cls is known.cls else f"{cls.__module__}.{cls.__qualname__}")


def unchecked(config: Config) -> str:
    """Why nothing that the algorithm says of its releases counts; empty for this package's own."""
    file = foreign(config)
    return f"{UNCHECKED} {file}" if file else ""


def spent(config: Config, node: Node) -> float:
    """epsilon of the record that costs most, over all ranks: at one node, or at all that have the same rows."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.noise.protected import Protected

    delta, release, world = config.privacy.delta, node.release, node.network.world
    committed = isinstance(release, Protected) and release.committed
    # Releases that were added on the way: only what holds for adaptive choices may be said.
    of = accountant.epsilon if all(world.allgather(committed)) else accountant.adaptive_epsilon

    def price(events: Any, adjacency: Any) -> float:
        return of(list(events), delta, adjacency)

    return _worst(node, price)


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


def assumed(config: Config, node: Node) -> str:
    """What the schedule of the file that `--assume` names would cost, unless the run departed from it."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.noise.protected import Protected

    release, world = node.release, node.network.world
    assert isinstance(release, Protected)
    releases = planned(config.algorithm, node, config.loop.iterations)
    if release.recipe.unverified != unchecked(config):  # of all reasons, the last
        return "nor if its word is taken"
    if not all(world.allgather(release.kept_to_schedule(len(releases) + 1))):
        return "nor if its word is taken: not all that it sent was drawn for as its schedule says"
    recipe = replace(release.recipe, unverified="")
    plans = sizing.plans_of(recipe, releases)
    prices = world.each_once(
        lambda plan: accountant.epsilon(list(plan), config.privacy.delta, recipe.adjacency), plans
    )
    worst = max(world.allgather(max(prices[plan] for plan in plans)))
    seeded = config.privacy.rng != "secure"
    return if_assumed(
        worst, config.privacy.delta, recipe.adjacency, str(config.privacy.assume), seeded=seeded
    )


def published(node: Node) -> float:
    """The same by the bound that the paper publishes."""
    from distadmm.privacy.accounting import accountant

    return _worst(node, lambda events, adjacency: accountant.published_epsilon(list(events), adjacency))


def _worst(node: Node, price: Callable[[Any, Any], float]) -> float:
    from distadmm.privacy.noise.protected import Protected

    release, world = node.release, node.network.world
    if not isinstance(release, Protected):
        return float("inf")
    adjacency = release.recipe.adjacency
    ledgers = release.books.ledgers
    books = [tuple(ledger.events) for ledger in ledgers]
    names = [ledger.tally.header.get("rows", ()) for ledger in ledgers]
    everywhere = [name for some in world.allgather([n for each in names for n in each]) for name in some]
    if len(set(everywhere)) < len(everywhere):  # the same rows at several nodes
        from distadmm.privacy.ledger.compose import Node as Held
        from distadmm.privacy.ledger.compose import blocks

        held = [Held(events, frozenset(each)) for events, each in zip(books, names)]
        books = [block.spent for block in blocks([one for some in world.allgather(held) for one in some])]
    prices = world.each_once(lambda events: price(events, adjacency), books)
    return max(world.allgather(max(prices[events] for events in books)))


def settle(config: Config, node: Node) -> tuple[float, float, str] | None:
    """(epsilon, published epsilon, what that is worth) of a private run; closes the ledgers."""
    found = None
    if node.release.private:
        worth = unbounded(node) or weakest_statement(node)
        if config.privacy.assume is not None:
            worth += f"; {assumed(config, node)}"
        found = spent(config, node), published(node), worth
    node.release.close()
    return found
