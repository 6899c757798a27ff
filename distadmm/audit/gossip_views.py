"""What a run of noisy gradients showed: every message, and what the adversary that its trust names has besides.

Kept bytes are the noisy gradients of a run, from which its messages follow.  What the ends of an edge share is made
again from a seed; of a real run nobody keeps it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import cast

import numpy as np

from distadmm.algorithm import Array
from distadmm.audit import draws, gossip, play
from distadmm.errors import InputError, require
from distadmm.methods.consensus import forecast
from distadmm.methods.gossip import private
from distadmm.methods.gossip.release import Gradients, Paired
from distadmm.privacy.ledger import replay
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.noise.sources import Simulation
from distadmm.ranks.world import World
from distadmm.run.config import Config
from distadmm.run.setup import Prepared, prepare


@dataclass
class Shown:
    """The messages of one run, and what they were made of."""

    prepared: Prepared
    plan: private.Plan
    messages: list[play.Message]
    gradients: dict[int, Array]  # iteration -> what each node released
    release: Gradients
    repeatable: bool  # whether what edges share is known here

    @property
    def trust(self) -> str:
        return self.plan.recipe.trust

    def adversary(self) -> tuple[int, ...]:
        """The nodes that learn most, as many as the trust names; none where nobody has more than what travels."""
        recipe, n = self.plan.recipe, self.prepared.node.facts.n_nodes
        if not recipe.pairwise:
            return ()
        A = cast(Array, forecast.adjacency(self.prepared.node.network))
        queries = cast(Sequence[Paired], recipe.queries)
        S = np.diag([each.sigma**2 for each in queries]) + gossip.shared(A, queries)
        reach = np.array([each.sensitivity for each in queries])
        sets = combinations(range(n), private.colluding_of(recipe.trust, n))
        return gossip.adversary(A, S, reach, list(islice(sets, gossip.COALITIONS))).members

    def known(self, members: Sequence[int], k: int) -> Array:
        """What the edges of `members` add to every other node's release of iteration k."""
        query = self.plan.recipe.query(0, k)
        if not isinstance(query, Paired):
            return np.zeros_like(self.gradients[k])
        return gossip.of_members(self.release, members, k, query)

    def arrays(self, members: Sequence[int]) -> dict[str, Array]:
        """Every message that travels, every release, and what `members` know of each; a release a row."""
        width = self.prepared.node.problem.dimension
        steps = [k for k, rows in sorted(self.gradients.items()) if rows.shape[1] == width]
        named = {"iterations": np.array(steps), "released": np.stack([self.gradients[k] for k in steps])}
        for k in sorted(set(self.gradients) - set(steps)):
            named[f"released-{k}"] = self.gradients[k]
        if self.repeatable and self.plan.recipe.pairwise:
            named["known"] = np.stack([self.known(members, k) for k in steps])
        sent = [message for message in self.messages if message.rows.shape[1] == width]
        return named | {"sent": np.stack([message.rows for message in sent])}


def of_config(config: Config, run: Path | None) -> Shown:
    """The messages of a run, from the bytes that it kept; or of flags, run in simulation."""
    prepared = prepare(config if run else config.replace(rng="simulation"), World())
    plan = private.plan_of(prepared)
    repeatable = prepared.config.privacy.rng == "simulation"
    node = play.fresh(plan.node)
    source = Simulation(config.loop.seed)
    books = Books(draws.ledgers(node.network.nodes, plan.recipe.adjacency, source))
    release = replace(plan, node=node).release(books, source, 1)
    node.network.stamp = None
    release.commit(plan.schedules)
    kept, noisy, gradients = _kept(run, node.network.nodes.tolist()), release.noisy, {}

    def noting(k: int, values: Array) -> Array:
        if run is not None and k not in kept:
            raise InputError(
                f"{run} keeps no bytes of iteration {k}: a checkpoint forgets what was released before it; run "
                "without --checkpoint-every, or let flags run it again in simulation"
            )
        gradients[k] = kept[k] if run is not None else noisy(k, values)
        return gradients[k].copy()

    release.noisy = noting  # type: ignore[method-assign]
    if run is not None:
        release.recycle = lambda k, f=None: None  # type: ignore[method-assign]
    playing = node.having(release=release)
    _, messages = play.run_through(prepared.config.algorithm, playing, config.loop.iterations)
    return Shown(replace(prepared, node=node), plan, messages, gradients, release, repeatable)


def _kept(run: Path | None, nodes: Sequence[int]) -> dict[int, Array]:
    """What each node released, by iteration, as far as all of them kept it."""
    if run is None:
        return {}
    found = {place: np.frombuffer(sent.payload) for place, sent in replay.read_all(run / "ledger").items()}
    steps = {k for _, k in found}
    whole = [k for k in steps if all((i, k) in found for i in nodes)]
    kept = {k: np.stack([found[i, k] for i in nodes]) for k in whole}
    require(kept, f"{run} kept no bytes of what its nodes released")
    return kept
