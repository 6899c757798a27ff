"""What stands between a node's data and its neighbours: nothing leaves that the ledger was not charged for.

    draw(k)     charge, durably; then the noise of the linear term (objective perturbation)
    seal(k, f)  certify the solve, add its output noise, keep the bytes for a replay
    recycle(k)  a line of no cost: what is sent depends on earlier releases alone
    expose(k)   a line of infinite cost

Invariants that guard privacy
-----------------------------
* Noise comes from `Noise.draw` alone, which charges first.
* A message that was sent in an earlier process is replayed byte for byte, without a charge; anything else
  takes fresh noise and a new charge.
* A solve that misses its tolerance is recorded as unbounded before it leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from distadmm.algorithm import Planned
from distadmm.errors import BudgetExhausted, Unsolved, require
from distadmm.privacy.accounting import accountant, kept, objective_perturbation, rdp, statements
from distadmm.privacy.accounting.events import Adjacency, Event, Gaussian, KNorm, Unbounded
from distadmm.privacy.accounting.schedule import stretches
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.schedules import Committed
from distadmm.privacy.ledger.tally import is_committed, reading
from distadmm.privacy.noise.mechanism import Noise, output_noise
from distadmm.privacy.noise.release import UNCHECKED, Array, Unprotected, leave_together
from distadmm.privacy.noise.sources import PURPOSES, Source
from distadmm.ranks.graph_network import Network


@dataclass(frozen=True)
class Recipe:
    """The mechanism of one rank's nodes; nothing in it depends on data."""

    noise: str  # gamma or gaussian
    mechanism: str  # objective or output
    dimension: int
    alpha: Array  # (K, n): rate of gamma noise, or 1/sigma, of each solve and node; (1, n): of all
    weight: Array  # (n,): w = C/B of one record
    slope: float  # |l'| <= this
    curvature: float  # l'' <= this
    ridge: float  # rho/N
    adjacency: Adjacency
    tolerance: float  # tau of the primal solves
    output_epsilon: float  # epsilon_o; 0: solves are taken to be exact, as the paper does
    one_signed: bool
    logistic: bool
    unverified: str = ""  # a hypothesis that does not hold or cannot be checked: everything is unbounded
    solves: int = 0  # of the schedule; 0: as `alpha` says

    def alpha_of(self, solve: int) -> Array:
        return self.alpha[0 if len(self.alpha) == 1 else solve - 1]  # type: ignore[no-any-return]

    def priced_alike(self, schedule: Sequence[Any]) -> list[tuple[int, int, Any, Any]]:
        """(solve, how many from it on, quadratic, factor): what repeats itself with the same noise is told once."""
        if len(self.alpha) > 1:
            return [(solve, 1, q, m) for solve, (_, q, m) in enumerate(schedule, 1)]
        parts = stretches(schedule)
        firsts = accumulate([times for times, _, _ in parts], initial=1)
        return [(first, *part) for first, part in zip(firsts, parts)]

    def event(self, solve: int, i: int, quadratic: float, factor: float) -> Event:
        """The price of node i's release at this solve, hypotheses granted."""
        weight = float(self.weight[i]) * self.slope
        floor = self.ridge + quadratic
        alpha = float(self.alpha_of(solve)[i])
        if self.mechanism == "objective":
            alpha /= factor
            if np.isinf(floor):  # nothing is solved: the noise stands in the gradient itself
                moved = self.moved(i, 1.0)
                if self.noise == "gamma":
                    return KNorm(self.dimension, alpha, moved)
                return Gaussian(1.0 / (alpha * moved))
            return objective_perturbation.ObjectivePerturbation(
                self.noise, self.dimension, alpha if self.noise == "gamma" else 1.0 / alpha, weight,
                self.curvature / self.slope, floor,
                output_epsilon=self.output_epsilon, one_signed=self.one_signed, logistic=self.logistic,
            )  # fmt: skip
        require(
            np.isfinite(floor),
            "--mechanism output perturbs minimisers, and this algorithm minimises nothing; leave it out",
        )
        if self.noise == "gamma":
            return KNorm(self.dimension, alpha, self.moved(i, floor))
        return Gaussian(1.0 / (alpha * self.moved(i, floor)))

    def moved(self, i: int, floor: float) -> float:
        """How far one record can move node i's released minimiser.

        It moves the gradient by w, or 2 w when it is replaced; an inexact solve by tau more in each world.
        """
        weight = float(self.weight[i]) * self.slope
        return (weight * (1 if self.adjacency == "add-remove" else 2) + 2 * self.tolerance) / floor

    def charged(self, event: Event) -> Event:
        """What the ledger is charged with: the price, or no bound when a hypothesis fails."""
        if not self.unverified:
            return event
        if self.unverified.startswith(UNCHECKED):  # no paper claims anything of it
            return Unbounded(self.unverified)
        claimed = event.published(self.adjacency)  # (32) of R-ADMM's paper, a solve
        return Unbounded(self.unverified, claimed if np.isfinite(claimed) else None, adds="each")


class Protected(Unprotected):
    """The releases of this rank's nodes, with their noise, through their ledgers."""

    private = True

    def __init__(self, recipe: Recipe, books: Books, source: Source, network: Network, phases: int):
        super().__init__(books)
        self.books: Books = books
        network.stamp, network.notice = self._stamp, self._notice
        self.recipe, self.phases, self.world = recipe, phases, network.world
        self.noise = Noise(books.ledgers, source)
        self._events: list[Event] = []
        self.listed: Sequence[Planned] = ()  # of unchecked code: its schedule
        self._declared: dict[int, list[Event]] | None = None  # the draws of it that are to come
        self._paid: int | None = None  # the iteration that was drawn for and not sealed yet
        self._drawn = np.zeros((len(books), recipe.dimension))
        self._sent_before: Any = None
        self._quoted: tuple[int, float, float] | None = None  # entries that cost, epsilon and delta

    def quote(self, epsilon: float, delta: float) -> None:
        """Be told what all ranks' ledgers, as they stand, say at `delta`."""
        self._quoted = self._entries, epsilon, delta

    @property
    def _entries(self) -> int:
        return sum(len(ledger.tally.events) for ledger in self.books.different)

    @property
    def epsilon(self) -> float:
        assert self._quoted is not None, "nothing was quoted yet"
        entries, epsilon, delta = self._quoted
        if entries != self._entries:  # releases beyond the schedule
            spent = {tuple(ledger.events) for ledger in self.books.different}
            epsilon = max(
                epsilon, *(accountant.adaptive_epsilon(each, delta, self.recipe.adjacency) for each in spent)
            )
            self.quote(epsilon, delta)
        return epsilon

    @property
    def statement(self) -> str:
        """The weakest of what this rank's ledgers say."""
        if self.recipe.unverified:
            return "none"
        return statements.weakest([reading(ledger.tally) for ledger in self.books.different])

    @property
    def committed(self) -> bool:
        """Whether all releases of this rank's nodes belong to schedules committed before the first one."""
        return all(is_committed(ledger.tally) for ledger in self.books.different)

    def events(self, k: int, quadratic: Array | float, factor: Array | float) -> list[Event]:
        """The price of iteration k's release, a node."""
        n, solve, most = (
            len(self.books),
            (k - 1) // self.phases + 1,
            self.recipe.solves or len(self.recipe.alpha),
        )
        require(
            solve <= most,
            f"iteration {k} draws noise, and the schedule of releases ends after {most}; list every "
            "iteration that draws in `releases`, and say `phases = 2` only where every second one recycles",
        )
        quadratic, factor = np.broadcast_to(quadratic, (n, 1)), np.broadcast_to(factor, (n, 1))
        alpha, weight = self.recipe.alpha_of(solve).tolist(), self.recipe.weight.tolist()
        cases = list(zip(alpha, weight, quadratic[:, 0].tolist(), factor[:, 0].tolist()))
        # A node of each: many nodes have few different prices.
        first = {case: i for i, case in enumerate(cases)}
        made = {case: self.recipe.event(solve, i, case[2], case[3]) for case, i in first.items()}
        return [made[case] for case in cases]

    def declare(self, releases: Sequence[Planned]) -> None:
        """Hold unchecked code to its schedule: another draw, or a second one, is exposed as such."""
        self.listed = releases
        self._declared = {k: self.events(k, quadratic, factor) for k, quadratic, factor in releases}

    def kept_to_schedule(self) -> bool:
        """Whether the ledgers here hold nothing but draws that the schedule lists, and that nobody checked it."""
        return all(
            len(events) <= len(self.listed) + 1
            and all(isinstance(e, Unbounded) and e.reason == self.recipe.unverified for e in events)
            for events in (ledger.events for ledger in self.books.different)
        )

    def price(self, schedules: Sequence[Committed]) -> None:
        """Price the schedules of all ranks, each distinct one once; no price depends on data."""
        orders, adjacency = self.books.ledgers[0].tally.orders, self.recipe.adjacency
        # Nodes that plan alike share their events.
        different = {tuple(map(id, each.events)): each.events for each in schedules if each.events}.values()
        distinct = list({tuple(dict.fromkeys(each.single() for each in plan)): None for plan in different})
        prices = self.world.each_once(
            lambda plan: [event.rdp(orders, adjacency) for event in plan],
            distinct,
            kept.Kept("rdp of each", adjacency, orders.tolist()),
        )
        curves = {
            event: np.array(curve) for plan, found in prices.items() for event, curve in zip(plan, found)
        }
        rdp.learn(curves, orders, adjacency)

    def commit(self, schedules: Sequence[Committed]) -> None:
        """Reserve the whole schedule in one synced record a node."""
        self.books.commit([each.events for each in schedules])

    def draw(self, k: int, quadratic: Array, factor: Array | float = 1.0) -> Array | float:
        self._k = k
        self._events = self.events(k, quadratic, factor)
        if self._declared is not None and self._declared.pop(k, None) != self._events:
            self.expose(k, "a draw that its schedule does not list")
        different = {id(event): event for event in self._events}
        charged = {name: self.recipe.charged(event) for name, event in different.items()}
        charges = [charged[id(event)] for event in self._events]
        self._afford(charges, k)
        self._sent_before = self.books.stored(k, self.recipe.dimension)
        due = [None if self._is_replay(i) else charge for i, charge in enumerate(charges)]
        if self.recipe.unverified:
            self.books.charge(due, iteration=k)
        else:
            self.noise.pay(due, self.books.charge, iteration=k)
        for i, event in enumerate(self._events):
            self._drawn[i] = (
                self._drawn_before(i, event, k) if self._is_replay(i) else self._draw_paid(i, event, k)
            )
        self._paid = k
        # The price is that of the linear term, `factor` included, and so is the noise drawn at that price.
        return 0.0 if self.recipe.mechanism == "output" else self._drawn

    def _stamp(self) -> Array:
        """The ledgers' heads, as four numbers a row: they travel with the message."""
        return self.books.heads.view(np.float64)

    def _notice(self, stamps: Array) -> None:
        """The heads of the neighbours that live on other ranks."""
        self.books.witness(stamps, self._k)

    def _afford(self, charges: list[Event], k: int) -> None:
        """All ranks leave together, before anything is drawn, when one node's budget does not admit its release."""
        if self.books.ledgers[0].budget is None:
            return
        poor = [
            ledger.node for ledger, event in zip(self.books.ledgers, charges) if not ledger.affords([event])
        ]
        budget = self.books.ledgers[0].budget.describe()
        said = f"the budget {budget} does not admit the release of node {{}} in iteration {k}"
        leave_together(self.world, poor, f"{said}; nothing of it was drawn or sent")

    def _is_replay(self, i: int) -> bool:
        return self._sent_before is not None and bool(self._sent_before.known[i])

    def _draw_paid(self, i: int, event: Event, k: int) -> Array:
        if self.recipe.unverified:
            return self._unpriced(i, event, k)
        return self.noise.draw(event, iteration=k, at=i, **self._query(i, event, k))

    def _drawn_before(self, i: int, event: Event, k: int) -> Array | float:
        """The noise of what is sent again: the next solve starts where this one ends, so a seed's bits need it."""
        if self.noise.source.mode != "simulation":
            return 0.0  # nothing is kept of it, and what is sent does not depend on it
        if self.recipe.unverified:
            return self._unpriced(i, event, k)
        return self.noise.repeat(event, iteration=k, at=i, **self._query(i, event, k))

    def _unpriced(self, i: int, event: Event, k: int) -> Array:
        stream = self.noise.source.at(self.books.nodes[i], PURPOSES["noise"], k)
        return event.sample(stream, **self._query(i, event, k))

    def _output_noise(self, i: int, event: Event, k: int) -> Array:
        if not self.recipe.unverified:
            return self.noise.output(self.recipe.tolerance, at=i)
        stream = self.noise.source.at(self.books.nodes[i], PURPOSES["output"], k)
        return output_noise(stream, event, self.recipe.tolerance)

    def _query(self, i: int, event: Event, k: int) -> dict[str, Any]:
        """What a Gaussian event does not state: it has sigma / moved; drawn for sensitivity 1/alpha', sigma itself."""
        if not isinstance(event, Gaussian):
            return {}
        return {"shape": self.recipe.dimension, "sensitivity": self._unit(event, k, i)}

    def _unit(self, event: Gaussian, k: int, i: int) -> float:
        if self.recipe.mechanism == "objective":  # of a gradient
            return self.recipe.moved(i, 1.0)
        sigma = 1.0 / float(self.recipe.alpha_of((k - 1) // self.phases + 1)[i])
        return sigma / event.noise_multiplier

    def seal(self, k: int, f: Array, residual: Array) -> Array:
        residual = np.asarray(residual, dtype=float)
        require(
            residual.shape == (len(self.books),),
            f"seal: the residual has shape {residual.shape}; needed: a gradient norm a node, ({len(self.books)},)",
        )
        self._certify(k, residual)
        sealed = f + self._drawn if self.recipe.mechanism == "output" else f.copy()
        for i, event in enumerate(self._events):
            if self._is_replay(i):
                sealed[i] = self._sent_before.rows[i]
                continue
            if self.recipe.output_epsilon and event.place == "objective":
                sealed[i] += self._output_noise(i, event, k)
        self.books.store(k, sealed)
        if self.guard is not None and self._paid == k:  # what nobody drew for is charged when it is sent
            self.guard.seal(k, sealed, self._events)
        self._paid = None
        return sealed

    def _certify(self, k: int, residual: Array) -> None:
        """A solve that missed its tolerance is unbounded in the ledger before it leaves; a budget keeps it in."""
        kept_in = []
        for i in np.flatnonzero(~(residual <= self.recipe.tolerance)).tolist():  # a NaN is no certificate
            if self._is_replay(i):
                continue
            node = self.books.nodes[i]
            lost = f"the solve of node {node} in iteration {k} left no finite numbers; nothing of it was sent"
            require(np.isfinite(residual[i]), lost, Unsolved)
            found = (
                f"a solve ended at gradient norm {residual[i]:.6g} with what rounding may hide, above "
                f"{self.recipe.tolerance:g}"
            )
            try:
                self.books.ledgers[i].expose(found, iteration=k)
            except BudgetExhausted:
                kept_in.append(node)
        if self.books.ledgers[0].budget is None:
            return
        said = (
            f"the solve of node {{}} in iteration {k} ended above --tolerance {self.recipe.tolerance:g}, and no budget "
            "admits what has no bound; nothing of it was sent; raise --tolerance"
        )
        leave_together(self.world, kept_in, said)
