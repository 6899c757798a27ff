"""Noisy gossip gradient (decentralised DP-SGD): each iteration one gradient under noise, and one message an edge.

    f_i <- sum_j W_ij (f_j - s (g_j + z_j) + b (f_j - f_j of before)),    g_j = grad O_j(f_j)/C, each record clipped

W has Metropolis weights.  A node's own term holds its own noise: nothing that leaves or stays is made of a clean g.
Constants come from public facts (`rule`), never from rows.  Other methods of this kind have a file each beside this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from distadmm.algorithm import Node, register
from distadmm.errors import require
from distadmm.flags import again, flag
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.consensus.penalty import Penalties, as_number
from distadmm.run.groups import Shared

if TYPE_CHECKING:
    from distadmm.methods.gossip.rule import Constants

_UNIT = 1 - 1e-12  # to which long gradients are cut: within the clip after every rounding
FASTEST = 1.9  # of 1/(largest curvature), beyond which no step goes: 2 diverges
NOISE_MODELS = ("auto", "local", "pairwise", "optimised")
Array = np.ndarray
Mix = Callable[[Array], Array]  # W, over the network or as a number


class State(NamedTuple):
    f: Array  # models f_i, one row a node of this rank
    mean: Array  # of the models so far, with --average
    kept: Array  # what else the method remembers, made of released values


@dataclass(frozen=True)
class Noisy:
    """What all methods on noisy gradients share; each is told from the others by `advance` and where it `starts`."""

    flags_title = "algorithm"

    rate: str = flag(
        "auto",
        help="step length, in units of 1/(largest curvature): a number, or 'auto' (1; under a budget by a rule that "
        "reads public facts alone)",
    )
    gradient_clip: str = flag(
        "auto",
        help="norm to which the gradient of each record (adjacency node: of the whole node) is cut; a number, or "
        "'auto' (by the rule; not at all without noise)",
    )
    trust: str | None = again(Shared, "trust", note="; default: any")
    noise_model: str = flag(
        "auto",
        help="local: each node's own noise; pairwise: shared by the ends of an edge as well, which cancels in sums; "
        "optimised: the same with weights of each node and edge, found for this graph; auto: where --trust is not any, "
        "what is forecast to be best",
        choices=NOISE_MODELS,
    )
    spare: int = flag(
        0,
        help="pairwise noise: nodes that may be away (--drop-out) in a round without what others shared with them "
        "staying in the sums; priced as if so many more colluded",
        at_least=0,
    )
    by_distance: bool = flag(
        False,
        help="also say what a node learns of each other node from its own messages alone, by how many edges they are "
        "apart: with --iterations 1 (one gradient, then mixing), elsewhere it is unbounded by name",
    )
    average: str = again(Penalties, "average")
    mixing: str = again(Penalties, "mixing")

    house: ClassVar[str] = "distadmm.methods.gossip"
    spectrum: ClassVar[bool] = False
    usual: ClassVar[float] = 1.0  # rate without noise
    carries: ClassVar[int] = 1  # vectors in one message
    rates: ClassVar[tuple[float, float]] = (1e-2, FASTEST)  # between which the rule looks for one
    second: ClassVar[str] = "momentum"  # what it looks for besides
    endures: ClassVar[bool] = True  # nodes that drop out and return
    solves: ClassVar[bool] = False  # gradients are those where solves end

    def __post_init__(self) -> None:
        smoothing.asked(self.average, self.mixing)
        require(
            self.noise_model in ("auto", "local") or self.trust not in (None, "any"),
            f"--noise-model {self.noise_model} hides nothing from all others, who know every edge; give --trust "
            "coalition:C, at most C nodes collude",
        )
        require(
            not self.spare or self.trust not in (None, "any"),
            "--spare is about noise that edges share; give --trust coalition:C, or leave it out",
        )
        for name in ("rate", "gradient_clip"):
            if getattr(self, name) != "auto":
                option = "--" + name.replace("_", "-")
                value = as_number(getattr(self, name), option, "'auto' or a number")
                require(1e-50 <= value <= 1e50, f"{option} is {value:g}; needed: a number from 1e-50 to 1e50")

    def check(self, node: Node, iterations: int) -> None:
        faults = node.network.conditions
        require(
            faults is None or (self.endures and faults.of_nodes_alone),
            "this method averages over the graph as it is: leave out --message-loss and graphs that change"
            + ("" if self.endures else ", and --drop-out"),
        )

    def claims_optimum(self, node: Node) -> bool:
        return False  # with a constant step it ends beside it

    def constants(self, node: Node) -> Constants:
        """Step, clip and what follows the last step; they depend on no data."""
        if node.release.private:
            return cast(Any, node.release).recipe.constants
        from distadmm.methods.gossip.rule import Constants

        rate = self.usual if self.rate == "auto" else float(self.rate)
        clip = np.inf if self.gradient_clip == "auto" else float(self.gradient_clip)
        after, asked = smoothing.asked(self.average, self.mixing), getattr(self, "momentum", "auto")
        momentum = 0.0 if asked == "auto" else float(asked)
        return Constants(rate * self.unit(node), clip, after, momentum, self.gap(node), self.opening(node))

    def fixed(self, node: Node) -> Constants:
        return cast(Any, node.recall("constants", 0, lambda: self.constants(node)))

    def unit(self, node: Node) -> float:
        """What --rate is a multiple of."""
        return longest(node)

    def opening(self, node: Node) -> int:
        """Iterations at the beginning that make no step; called by every rank."""
        return 0

    def gap(self, node: Node) -> float:
        """1 - the second largest eigenvalue of W, on every rank."""
        if self.mixes == 1:  # type: ignore[attr-defined]
            return 1.0
        A, world = forecast.adjacency(node.network), node.network.world
        return cast(float, world.broadcast(None if A is None else smoothing.gap(A)))

    def init(self, node: Node) -> Any:
        f = node.start
        return State(f, f, self.starts(f))

    def starts(self, f: Array) -> Array:
        """`kept` before the first step."""
        raise NotImplementedError

    def step(self, k: int, st: Any, node: Node) -> Any:
        use = self.fixed(node)
        g = self.turned(self.gradients(k, self.points(st), node, use), st, node, use)
        f, kept = self.advance(st.f, st.kept, g, lambda rows: self.mixed(k, rows, node), use)
        mean = smoothing.averaged(use.after.power, k - use.opening, st.mean, f)
        return st._replace(f=f, mean=mean, kept=kept)

    def points(self, st: Any) -> Array:
        """What gradients are asked for at."""
        return cast(Array, st.f)

    def at(self, f: Array, kept: Array, h: Array, use: Constants) -> Array:
        """Where they are taken, in a forecast, along curvatures h."""
        return f

    def turned(self, g: Array, st: Any, node: Node, use: Constants) -> Array:
        """The direction that is gone for noisy gradients g."""
        return g

    def bent(self, g: Array, h: Array, use: Constants) -> Array:
        """The same in a forecast, along curvatures h."""
        return g

    def advance(self, f: Array, kept: Array, g: Array, W: Mix, use: Constants) -> tuple[Array, Array]:
        """The recursion, for rows of a network as for numbers of a forecast: the models, and what is `kept`."""
        raise NotImplementedError

    def gradients(self, k: int, points: Array, node: Node, use: Constants) -> Array:
        """Those of the nodes here as they may be used: clipped, under noise that was paid for."""
        release = cast(Any, node.release)
        whole = release.private and release.recipe.adjacency == "node"
        data = self.raw(k, points, np.inf if whole else use.clip, node, use)
        if not release.private:
            release.expose(k, "gradients without noise")
            return data
        if whole:
            length = np.sqrt(np.einsum("ij,ij->i", data, data))[:, None]
            data = data * np.minimum(1.0, use.clip * _UNIT / np.maximum(length, use.clip))
        return cast(Array, release.noisy(k, data) + self.known(points, node))

    def raw(self, k: int, points: Array, clip: float, node: Node, use: Constants) -> Array:
        """The gradients of O_i/C, each record's part cut to `clip`; under noise without what is `known`, beside which
        they might have no digits left."""
        cut = (clip,) if clip < np.inf else ()  # an objective of one's own need not know of it
        part = "rows_grad" if node.release.private else "grad"
        rows = [getattr(each, part)(row, *cut) for each, row in zip(node.problem.objectives, points)]
        return np.stack(rows) / node.facts.weight

    def known(self, points: Array, node: Node) -> Array | float:
        """What of them is made of released values alone, and needs neither clip nor noise: the ridge's part."""
        return node.facts.ridge / node.facts.weight * points

    def moved(self, reach: Array, node: Node) -> Array:
        """How far one record moves what each node here releases, where it moves gradients by `reach`."""
        return reach

    def mixed(self, k: int, rows: Array, node: Node) -> Array:
        """W rows, in one message an edge."""
        if node.release.private:
            cast(Any, node.release).passed(k, rows)
        return smoothing.once(rows, node)

    def finish(self, k: int, st: State, node: Node) -> State:
        """The models that the nodes keep after iteration k, the last."""
        after: smoothing.Smoothing = self.constants(node).after
        f = st.f if after.power is None else st.mean
        return st._replace(f=smoothing.mixed(after.rounds, k, f, node)) if k else st


@register("gossip")
@dataclass(frozen=True)
class Gossip(Noisy):
    """A step along noisy gradients, then a mean over neighbours."""

    momentum: str = flag(
        "auto",
        help="b, 0 to below 1: how much of the last move is made again; 'auto' is the rule's, 0 without noise",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum != "auto":
            value = as_number(self.momentum, "--momentum", "'auto' or a number")
            require(0 <= value < 1, f"--momentum is {value:g}; needed: a number from 0 to below 1")

    def starts(self, f: Array) -> Array:
        """`kept` before the first step: the models before."""
        return f

    def advance(self, f: Array, kept: Array, g: Array, W: Mix, use: Constants) -> tuple[Array, Array]:
        return W(f - use.step * g + use.momentum * (f - kept)), f


def longest(node: Node) -> float:
    """1/(largest curvature) of a node's O_i/C, from public constants."""
    steep = node.facts.ridge / node.facts.weight + node.facts.max_curvature
    return 1.0 / steep if np.isfinite(steep) else 1.0
