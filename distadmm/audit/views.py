"""What each node, and each set of nodes that pool what they have, saw of a run.

A node sees the rows of its neighbours, exchange by exchange, as far as they arrived.  A coalition sees what its
members see.  Where it holds all neighbours of a node outside it, it also knows the pull of that node's solves,
and so the node's perturbed gradient

    grad O(f) + b = -(pull + Q f),

which is all that its data leave behind in the messages.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distadmm.audit.play import Message, Solve
from distadmm.errors import require
from distadmm.ranks.graph_network import Array, Network


class View(NamedTuple):
    members: list[int]
    rows: dict[int, Array]  # sender -> (exchanges of models, width); NaN where none arrived at any member
    others: dict[tuple[int, int], Array]  # (sender, exchange) -> a message of another width
    own: dict[int, Array]  # member -> what it sent itself
    gradients: dict[int, Array]  # surrounded node -> (solves, width)


def coalition(text: str, n: int) -> list[int]:
    """`3+5+7` as node numbers."""
    try:
        members = sorted({int(part) for part in text.split("+")})
    except ValueError:
        members = []
    require(
        members and members[0] >= 0 and members[-1] < n,
        f"--collude is {text!r}; needed: sets of node numbers from 0 to {n - 1}, such as 1+2,3+4+5",
    )
    return members


def view(
    members: Sequence[int], network: Network, messages: Sequence[Message], solves: dict[int, Solve]
) -> View:
    """What `members` have; `network` hosts all nodes."""
    inside = set(members)
    rows: dict[int, Array] = {}
    others: dict[tuple[int, int], Array] = {}
    width = messages[-1].rows.shape[1]
    models = [message for message in messages if message.rows.shape[1] == width]
    for m in members:
        for slot in range(network.indptr[m], network.indptr[m + 1]):
            sender = int(network.indices[slot])
            if sender in inside:
                continue
            seen = np.stack([_arrived(network, slot, message, sender) for message in models])
            rows[sender] = np.where(np.isnan(rows[sender]), seen, rows[sender]) if sender in rows else seen
            for number, message in enumerate(messages):
                if message.rows.shape[1] != width:
                    others[sender, number] = message.rows[sender]
    own = {m: np.stack([message.rows[m] for message in models]) for m in members}
    rows = dict(sorted(rows.items()))
    return View(sorted(inside), rows, others, own, _gradients(inside, network, models, solves))


def _arrived(network: Network, slot: int, message: Message, sender: int) -> Array:
    row = message.rows[sender]
    if network.conditions is None or message.iteration == 0:
        return row
    arrived = network.conditions.at(message.iteration).received[network.slots[slot]]
    return row if arrived else np.full_like(row, np.nan)


def _gradients(
    inside: set[int], network: Network, messages: Sequence[Message], solves: dict[int, Solve]
) -> dict[int, Array]:
    found = {}
    sent = {message.iteration: message.rows for message in messages}
    for i in range(network.n_local):
        around = {int(j) for j in network.indices[network.indptr[i] : network.indptr[i + 1]]}
        if i in inside or not around or not around <= inside or not solves:
            continue
        each = sorted(solves.items())
        found[i] = np.stack([-(at.linear[i] + times(at.quadratic[i], sent[k][i])) for k, at in each])
    return found


def times(Q: Array | float, f: Array) -> Array:
    """Q f of a matrix, or of a number for a multiple of the identity."""
    return Q @ f if np.ndim(Q) == 2 else Q * f


def arrays(seen: View) -> dict[str, Any]:
    """As named arrays for a file."""
    named: dict[str, Any] = {f"from-{j:04d}": rows for j, rows in seen.rows.items()}
    named |= {f"from-{j:04d}-exchange-{number}": row for (j, number), row in seen.others.items()}
    named |= {f"own-{j:04d}": rows for j, rows in seen.own.items()}
    return named | {f"gradient-{j:04d}": rows for j, rows in seen.gradients.items()}
