"""How long a run would take on so many machines with these links, a machine for each node: nothing is run on them.

Messages and compute are those of a trial here, of four nodes with rows that were made up; time is worked out by
distadmm/ranks/links.py.  With N in --topology it is worked out from degrees and depth alone, and no graph is made.
"""

import json as json_format
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from distadmm import radmm
from distadmm.commands.plan import on_made_up_rows
from distadmm.errors import DONE, require
from distadmm.flags import again, flag, flag_group
from distadmm.graphs.topology import blocks, load
from distadmm.ranks import links as model
from distadmm.ranks.launch import with_flags
from distadmm.ranks.tree import spanning
from distadmm.ranks.world import World
from distadmm.run.config import Links as Network
from distadmm.run.config import Problem as Data

PROG = "distadmm plan time"
_TRIAL = 4  # nodes of it
_STEPS = 12  # of an algorithm that has no end of its own


@flag_group("plan time")
class Options:
    latency: model.Seconds = again(
        Network, "latency", default=model.Seconds(0), help="one way, in seconds or with a unit: 0.04 or 40ms"
    )
    bandwidth: model.Rate | None = again(
        Network, "bandwidth", help="of each machine's interface, each way: bytes a second, or 10Mbit/s"
    )
    packet_loss: float = again(
        Network, "packet_loss", help="probability that a packet is lost and sent again"
    )
    topology: str = flag(
        "regular:N:d=4",
        help="a family with N where the number stands (ring:N, star:N, complete:N, torus:N, tree:N:b=2, regular:N:d=4, "
        "er:N:p=0.01 or er:N:degree=20), or one graph, as everywhere",
    )
    nodes: tuple[int, ...] = flag((1000, 10_000, 100_000, 1_000_000), help="values of N", at_least=5)
    machines: int | None = flag(
        None, help="of one graph: so many machines, nodes in blocks (default: one each)", at_least=1
    )
    algorithm: tuple[str, ...] = flag(
        ("admm", "radmm", "masked", "newton"), help="algorithms of distadmm.radmm"
    )
    iterations: int = flag(100, help="of algorithms that have no end of their own", at_least=1)
    rows: int = flag(100, help="rows a node", at_least=1)
    columns: int = flag(105, help="columns", at_least=1)
    compute: model.Seconds | None = flag(
        None, help="of one node, an iteration, on a machine of yours (default: measured here)", at_least=0
    )
    weight: float = again(Data, "weight")
    rho: float = again(Data, "rho")
    json: bool = flag(False, help="print one JSON object instead of a table")

    def __post_init__(self) -> None:
        require(
            self.machines is None or not _is_family(self.topology),
            "--machines shares the nodes of one graph; give --topology without N",
        )


class Trial(NamedTuple):
    """What one iteration of an algorithm is."""

    name: str
    tree: bool
    roll: bool  # each sum ends with a call of all ranks
    iterations: int
    exchanges: int  # along each edge, one after the other, an iteration
    messages: tuple[float, ...]  # bytes of one, in each iteration of the trial
    compute: float  # seconds of a node

    @property
    def message(self) -> float:
        return float(np.mean(self.messages))


class Size(NamedTuple):
    """A graph of a family as far as time depends on it."""

    nodes: int
    degree: int  # the largest
    height: int  # of the tree that sums go over


class Line(NamedTuple):
    nodes: int
    degree: int
    height: int
    seconds: dict[str, float]  # by algorithm


def work(options: Options, world: World) -> int:
    def told() -> int:
        trials = [trial(name, options) for name in options.algorithm]
        lines = lines_of(options, trials)
        print(as_json(options, trials, lines) if options.json else "\n".join(as_text(options, trials, lines)))
        return DONE

    return world.on_root(told)  # type: ignore[no-any-return]


def trial(name: str, options: Options) -> Trial:
    """Run it on four nodes of one process, and count."""
    config = radmm.configure(
        name, topology=f"complete:{_TRIAL}", data="tiny", iterations=_STEPS, weight=options.weight, rho=options.rho,
        progress="none", observe="none",
    )  # fmt: skip
    node = on_made_up_rows(config, config, options.rows, options.columns, 0).node
    algorithm, made = config.algorithm, 0
    state, began = algorithm.init(node), time.perf_counter()
    traffic, sizes = node.network.traffic, []
    while not algorithm.ended(state) and (made < _STEPS or algorithm.tree):
        made, before = made + 1, (traffic.bytes, traffic.messages)
        state = algorithm.step(made, state, node)
        sizes.append((traffic.bytes - before[0]) / (traffic.messages - before[1]))
    took = (time.perf_counter() - began) / (_TRIAL * made)
    iterations = made if algorithm.tree else options.iterations
    compute = took if options.compute is None else float(options.compute)
    sort = config.name, algorithm.tree, algorithm.survives
    return Trial(*sort, iterations, algorithm.mixes, tuple(sizes), compute)


def lines_of(options: Options, trials: Sequence[Trial]) -> list[Line]:
    links = model.Links(
        np.zeros(1, int), np.zeros(0, int), float(options.latency), 0.0,
        math.inf if options.bandwidth is None else float(options.bandwidth), options.packet_loss,
    )  # fmt: skip
    if not _is_family(options.topology):
        return [_of_graph(options, links, trials)]
    lines = []
    for size in (size_of(options.topology, n) for n in options.nodes):
        seconds = {}
        for one in trials:
            if one.tree:
                tree = size.nodes, size.height, size.degree, one.compute
                took = sum(model.of_sum(links, *tree, message, one.roll) for message in one.messages)
            else:
                near = size.nodes, size.degree, one.compute / one.exchanges, one.message
                took = one.iterations * one.exchanges * model.of_exchange(links, *near)
            seconds[one.name] = took
        lines.append(Line(*size, seconds))
    return lines


def _of_graph(options: Options, links: model.Links, trials: Sequence[Trial]) -> Line:
    """By the recursion, link by link."""
    topology = load(options.topology)
    n = topology.n
    require(
        options.machines is None or options.machines <= n,
        f"--machines {options.machines} for the {n} nodes of {options.topology}; give at most {n}",
    )
    where = np.arange(n)
    for machine, block in enumerate(blocks(topology, options.machines or n)):
        where[block] = machine
    links = links._replace(indptr=topology.indptr, indices=topology.indices, machine=where)
    tree = spanning(topology.indptr, topology.indices, range(n))
    seconds = {}
    for one in trials:
        if one.tree:
            made = model.wall_clock_of_sums(links, tree.parent, one.compute, one.messages, one.roll)
        else:
            made = model.wall_clock(links, one.compute, one.message, one.iterations, one.exchanges)
        seconds[one.name] = made
    return Line(n, int(topology.degrees.max()), tree.height[tree.root], seconds)


def _is_family(topology: str) -> bool:
    return "N" in topology.split(":")[1:]


def size_of(topology: str, n: int) -> Size:
    """Largest degree and height of the tree of a graph of n nodes, which is not made."""
    name, _, *rest = topology.split(":")
    said = dict(part.partition("=")[::2] for part in rest)
    require(
        name in FAMILIES and topology.split(":")[1] == "N",
        f"--topology {topology}: without a graph, time is worked out for {', '.join(sorted(FAMILIES))} with :N; "
        "give one of them, or a graph with a number in place of N",
    )
    taken, family = FAMILIES[name]
    for word, value in said.items():
        require(
            word in taken and value.replace(".", "", 1).replace("e-", "", 1).isdigit() and float(value) > 0,
            f"--topology {topology}: {word}={value}; needed: {', '.join(taken) or 'nothing'} after N, above zero",
        )
    return Size(n, *family(n, **{word: float(value) for word, value in said.items()}))


def _regular(n: int, d: float = 4) -> tuple[int, int]:
    require(2 <= d < n, f"regular:{n}:d={d:g}; give d between 2 and {n - 1}")
    if d == 2:
        return 2, n // 2
    # A node is i steps off with none of its d edges reached where (1 - 1/n)^(d (d-1)^(i-1)) is left: the last of n.
    return int(d), math.ceil(1 + math.log(n * math.log(n) / d) / math.log(d - 1))


def _er(n: int, p: float | None = None, degree: float | None = None) -> tuple[int, int]:
    require((p is None) != (degree is None), "er:N needs one of p=0.01 and degree=20")
    mean = float(degree) if degree is not None else float(p or 0) * (n - 1)
    require(
        math.log(n) < mean < n,
        f"er:{n} has mean degree {mean:.3g}; needed, to be connected: above log N = {math.log(n):.3g}, and below N",
    )
    most, left = 0, 1.0  # the largest degree: so many have more that less than one of n nodes does
    log_of = -mean
    while n * left >= 1 and most < n - 1:
        left -= math.exp(log_of)
        most += 1
        log_of += math.log(mean / most)
    height, apart = 1, 1 - (1 + most) / n  # the share of nodes not reached yet
    while n * apart >= 0.5:
        before, apart = apart, math.exp(-mean * (1 - apart))
        height += 1
        if 0.1 > apart > 0.5 * before:  # who is left has few edges, and hangs on those just reached
            break
    return most, height


# Largest degree and height of the tree, by the options after N.
FAMILIES: dict[str, tuple[tuple[str, ...], Callable[..., tuple[int, int]]]] = {
    "ring": ((), lambda n: (2, n // 2)),
    "star": ((), lambda n: (n - 1, 1)),
    "complete": ((), lambda n: (n - 1, 1)),
    "torus": ((), lambda n: (4, 2 * (math.ceil(math.sqrt(n)) // 2))),  # its sides as equal as may be
    "tree": (("b",), lambda n, b=2: (int(b) + 1, _of_tree(n, int(b)))),
    "regular": (("d",), _regular),
    "er": (("p", "degree"), _er),
}


def _of_tree(n: int, b: int) -> int:
    """From node 1, which has the most neighbours: up to node 0, and down again where the last level is that wide."""
    if b == 1:
        return n - 2
    depth, level = 0, 1  # of the last level that begins below n, and how many nodes it has room for
    while (level * b - 1) // (b - 1) < n:
        depth, level = depth + 1, level * b
    filled = n - (level - 1) // (b - 1)
    return depth + (filled > level // b)


def as_text(options: Options, trials: Sequence[Trial], lines: Sequence[Line]) -> list[str]:
    rate, width = "no limit", options.bandwidth
    if width is not None:
        rate = f"{8e-6 * width:g} Mbit/s of each interface, each way"
    loss = f", {100 * options.packet_loss:g} % of packets lost" if options.packet_loss else ""
    machines = f"{options.machines} machines" if options.machines else "a machine for each node"
    where = "stated" if options.compute is not None else "measured here"
    text = [
        f"links       {1e3 * options.latency:g} ms one way, {rate}{loss}",
        f"network     {options.topology}, {machines}",
        f"nodes       {options.rows} rows of {options.columns} columns; compute {where}, on rows that were made up",
    ]
    for one in trials:
        what = f"iterations of {one.exchanges} message(s) an edge"
        if one.tree:
            what = "sums over a tree, up and down" + ", and a call of all" * one.roll
        took = f"{1e3 * one.compute:.3g} ms of a node"
        text.append(f"{one.name:12}{one.iterations} {what}, {one.message:,.0f} bytes; {took}")
    heads = ["nodes", "degree", "tree", *(one.name for one in trials)]
    times = [[_spoken(line.seconds[one.name]) for one in trials] for line in lines]
    rows = [[*(f"{n:,}" for n in line[:3]), *own] for line, own in zip(lines, times)]
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    aligned = ["  ".join(map(str.rjust, row, widths)) for row in (heads, *rows)]
    estimate = "; with loss an estimate" * bool(options.packet_loss and _is_family(options.topology))
    return [
        *(*text, "", *aligned, ""),
        f"degree: the largest; tree: its height.  The slowest way through the network decides{estimate}.",
        "How many iterations a goal takes depends on the network: python -m distadmm check, or study.  Start-up, keys,",
        "masks and congestion control are not in it (docs/cluster.md).",
    ]


def _spoken(seconds: float) -> str:
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:,.3g} h" if seconds < 4 * 86400 else f"{seconds / 86400:,.0f} days"


def as_json(options: Options, trials: Sequence[Trial], lines: Sequence[Line]) -> str:
    asked = {name: getattr(options, name) for name in ("latency", "bandwidth", "packet_loss", "topology")}
    told = {"algorithms": [one._asdict() for one in trials], "lines": [line._asdict() for line in lines]}
    return json_format.dumps({**asked, **told}, indent=2)


main = with_flags(PROG, __doc__, Options, work)
