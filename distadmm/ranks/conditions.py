"""Networks as they are: edges that come and go, messages that get lost, nodes that drop out and return.

What happens in iteration k follows from the seed and k alone, so every rank knows it without asking, and it
is the same on any number of ranks and after a resume.  None of it depends on data.
"""

from __future__ import annotations  # numpy.random is loaded where something is drawn

from dataclasses import field
from typing import NamedTuple

import numpy as np

from distadmm.errors import require, told
from distadmm.structs import mutable_struct

Array = np.ndarray
_LOST, _ABSENT = 0x4C4F5354, 0x41425354  # purposes of the random streams


class Moment(NamedTuple):
    """The network in one iteration."""

    edges: Array  # is the directed edge there, in the order of the graph's neighbour lists
    received: Array  # did its message arrive; False only where the edge is there
    present: Array  # is the node there


@mutable_struct
class Conditions:
    """`edge_of` names for each directed edge (a slot of the neighbour lists) its undirected edge."""

    seed: int
    sender: Array  # of each slot
    receiver: Array
    edge_of: Array
    loss: float = 0.0  # probability that a message is lost
    leave: float = 0.0  # probability that a present node drops out
    back: float = 1.0  # probability that an absent one returns
    graphs: Array | None = None  # (T, m) booleans of a changing network, used in turn
    link: float = 1.0  # probability that an edge is there
    link_seed: int = 0
    _presence: list[Array] = field(default_factory=list)
    _heard: list[Array] = field(default_factory=list)
    _reverse: Array | None = None

    @property
    def perfect(self) -> bool:
        return self.loss == 0 and self.leave == 0 and not self.changing

    @property
    def changing(self) -> bool:
        """Whether a node's neighbours differ from one iteration to the next."""
        return self.leave > 0 or self.link < 1 or (self.graphs is not None and not self.graphs.all())

    @property
    def of_nodes_alone(self) -> bool:
        """Whether nodes drop out and return, and nothing else happens."""
        return self.loss == 0 and self.link == 1 and (self.graphs is None or bool(self.graphs.all()))

    def at(self, k: int) -> Moment:
        edges = np.ones(len(self.sender), bool)
        if self.graphs is not None:
            here = self.graphs[k % len(self.graphs)]
            if self.link < 1:
                # The same draws as topology.Changing makes: both ends of an edge agree.
                here = here & (self._stream(3, k, self.link_seed).random(here.size) < self.link)
            edges &= here[self.edge_of]
        present = self.present(k)
        edges &= present[self.sender] & present[self.receiver]
        received = edges.copy()
        if self.loss:
            received &= self._stream(_LOST, k).random(len(edges)) >= self.loss
        return Moment(edges, received, present)

    def present(self, k: int) -> Array:
        """Which nodes are there: a two-state chain that starts with all of them."""
        n = int(max(self.sender.max(), self.receiver.max())) + 1
        if not self.leave:
            return np.ones(n, bool)
        if not self._presence:
            self._presence.append(np.ones(n, bool))
        while len(self._presence) <= k:
            draw = self._stream(_ABSENT, len(self._presence)).random(n)
            self._presence.append(np.where(self._presence[-1], draw >= self.leave, draw < self.back))
        return self._presence[k]

    def heard(self, k: int) -> Array:
        """Over which slots a message has arrived in one of the iterations 1 to k."""
        if not self._heard:
            self._heard.append(np.zeros(len(self.sender), bool))
        while len(self._heard) <= k:
            last = self._heard[-1]
            self._heard.append(last if last.all() else last | self.at(len(self._heard)).received)
        return self._heard[k]

    @property
    def reverse(self) -> Array:
        """Of each slot, the one of the other direction."""
        if self._reverse is None:
            self._reverse = np.lexsort((self.receiver, self.sender))
        return self._reverse

    def _stream(self, purpose: int, k: int, seed: int | None = None) -> np.random.Generator:
        entropy = self.seed if seed is None else seed
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(purpose, k))))


def parse_drop_out(text: str) -> tuple[float, float]:
    """`0.05:0.5`: a node leaves with probability 0.05 an iteration and returns with probability 0.5."""
    with told(
        f"--drop-out is {text!r}; needed: LEAVE:RETURN, two probabilities such as 0.05:0.5", ValueError
    ):
        leave, back = (float(part) for part in text.split(":"))
    require(
        0 <= leave < 1 and 0 <= back <= 1,
        f"--drop-out is {text}; needed: 0 <= LEAVE < 1 and 0 <= RETURN <= 1",
    )
    return leave, back
