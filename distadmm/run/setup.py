"""From a configuration to the nodes of this rank: graph, rows, objectives, penalties."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from distadmm.algorithm import Array, Defaults, Facts, Node
from distadmm.data.deal import Deal
from distadmm.data.mapping import named_mappings
from distadmm.data.source import BUNDLED, Source, open_source
from distadmm.data.table import Sparse, local_key, take
from distadmm.errors import InputError, require
from distadmm.privacy.noise.release import Unprotected
from distadmm.problems.consensus import Problem, objective
from distadmm.problems.losses import Loss, loss_named, task_of
from distadmm.problems.newton_batched import Stack
from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.links import Links
from distadmm.ranks.world import World
from distadmm.run.config import Config
from distadmm.run.running import MANY
from distadmm.structs import struct

STARTS = 0x53544152  # of the random numbers of --start

if TYPE_CHECKING:
    from distadmm.ranks.conditions import Conditions


MOST_COLUMNS = 10_000  # of sparse rows that are written out where an algorithm needs it


@struct
class Prepared:
    """What a run needs, on every rank; nothing later changes it."""

    config: Config
    world: World
    node: Node
    source: Source
    description: dict[str, Any]  # graph and data in words and numbers, for config.json and the dry run
    links: Links | None = None

    def test(self) -> Any:
        """X and y of the test rows, as far as they are public: those cut off a private file are not."""
        hidden = self.config.problem.test_fraction and not self.config.exact
        found = None if hidden else self.source.test(sparse=stays_sparse(self.config, self.source))
        return (found[0].to_scipy(), found[1]) if found and isinstance(found[0], Sparse) else found


@struct
class _Plan:
    """What rank 0 works out once and tells the others."""

    roster: Roster
    facts: Facts
    table: dict[str, Array | None]
    graph: dict[str, Any]
    conditions: Conditions | None  # None: a perfect network
    links: Links | None


def _plan(config: Config, hosts: tuple[str, ...]) -> _Plan:
    from distadmm.graphs import topology as topologies
    from distadmm.graphs.facts import mu as graph_mu
    from distadmm.graphs.facts import placed, theta_pinned
    from distadmm.ranks.conditions import Conditions, parse_drop_out

    size = len(hosts)
    changing = topologies.load_changing(config.problem.topology)
    topology = changing.union
    require(
        size <= topology.n,
        f"{size} ranks for the {topology.n} nodes of {config.problem.topology}; "
        f"start at most {topology.n}: mpiexec -n {topology.n} python -m distadmm.radmm",
    )
    degrees = np.diff(topology.indptr)
    # Wanted for automatic penalties alone, and not cheap for large graphs.
    automatic = config.algorithm.spectrum
    facts = Facts(
        n_nodes=topology.n,
        degrees=degrees,
        mu=graph_mu(topology) if automatic else float("nan"),
        weight=config.problem.weight,
        ridge=config.problem.rho / topology.n,
        max_curvature=loss_of(config).max_curvature,
        theta_pinned=theta_pinned(topology) if automatic else float("nan"),
    )
    table = {
        name: _per_node(getattr(part, name), name, attribute, topology)
        for part in (config.algorithm, config.privacy)
        for name, attribute in part.tables.items()
    }
    graph = {
        "topology": config.problem.topology,
        "source": topology.source,
        "nodes": topology.n,
        "edges": len(topology.indices) // 2,
        "degrees": [int(degrees.min()), float(degrees.mean()), int(degrees.max())],
        "random_walk_mu": facts.mu,
        "fingerprint": topology.fingerprint,
    }
    roster = Roster(topology.indptr, topology.indices, placed(topology, size), hosts)
    leave, back = (0.0, 1.0) if config.links.drop_out is None else parse_drop_out(config.links.drop_out)
    conditions = Conditions(
        seed=config.loop.seed,
        sender=topology.indices,
        receiver=np.repeat(np.arange(topology.n), degrees),
        edge_of=topology.edge_index,
        loss=config.links.message_loss,
        leave=leave,
        back=back,
        graphs=None if changing.constant else changing.graphs,
        link=changing.p,
        link_seed=changing.seed,
    )
    return _Plan(
        roster, facts, table, graph, None if conditions.perfect else conditions, _links(config, topology)
    )


def _links(config: Config, topology: Any) -> Links | None:
    """How slow the links are, by the flags or the graph's file; None: nobody asked."""
    asked, edges, of = config.links, topology.edge_attributes, topology.edge_index
    told = asked.latency, asked.bandwidth, asked.packet_loss or None
    if set(told) == {None} and not {"latency", "bandwidth"} & set(edges):
        return None
    latency = asked.latency
    if latency is None:
        latency = np.nan_to_num(edges.get("latency", np.zeros(len(of))))[of]
    per_byte = 1 / edges["bandwidth"] if "bandwidth" in edges else np.zeros(len(topology.edges))
    rate = np.inf if asked.bandwidth is None else asked.bandwidth
    return Links(
        topology.indptr, topology.indices, latency, np.nan_to_num(per_byte)[of], rate, asked.packet_loss
    )


def _per_node(text: str | None, name: str, attribute: str, topology: Any) -> Array | None:
    """A flag that is a number, 'auto' (None), 'node' (an attribute of the graph's nodes) or a CSV table."""
    option = "--" + name.replace("_", "-")
    if text in (None, "auto"):
        return None
    if text == "node":
        values = topology.node_attributes.get(attribute, np.full(topology.n, np.nan))
        silent = next((topology.names[i] for i in np.flatnonzero(~np.isfinite(values))), None)
        require(
            silent is None,
            f"{option} node: node {silent} of {topology.source} has no number {attribute!r}; give every node one, or "
            "give a number",
        )
        return values
    try:
        return np.full(topology.n, float(text))
    except ValueError:
        return _from_table(text, option, topology)


def _from_table(path: str, option: str, topology: Any) -> Array:
    """Lines `node,value` in any order, one a node; or `node,value1,value2,...` with a value for each solve."""
    from distadmm.data.formats import read_cells

    require(
        os.path.isfile(path), f"{option} is {path!r}; needed: a number, 'auto', 'node' or a CSV of node,value"
    )
    rows = read_cells(path, ragged=True)
    found: dict[str, list[float]] = {}
    for line, row in enumerate(rows, 1):
        try:
            found[row[0]] = [float(cell) for cell in (row[1], *row[2:])]
        except (IndexError, ValueError):
            if line > 1:  # the first line may be a heading
                raise InputError(
                    f"{option} {path}, line {line}: {','.join(row)!r}; needed: node,value"
                ) from None
    missing = [name for name in topology.names if str(name) not in found]
    require(not missing, f"{option} {path}: no line for node {missing[:1]}; needed: one line a node")
    values = [found[str(name)] for name in topology.names]
    require(
        len({len(row) for row in values}) == 1, f"{option} {path}: nodes have different numbers of values"
    )
    return np.array(values)[:, 0] if len(values[0]) == 1 else np.array(values).T


def loss_of(config: Config) -> Loss:
    return loss_named(config.problem.loss, several=True)


def objectives_of(config: Config, source: Source, nodes: Array, facts: Facts) -> Iterator[Any]:
    """The local objectives of these nodes, in order, each made from its own rows only; or those of some as a stack."""
    loss, sparse, most = loss_of(config), stays_sparse(config, source), config.problem.rows_per_node
    shared: dict[str, Any] = {"weight": facts.weight, "ridge": facts.ridge}
    shared["divisor"] = config.privacy.public_rows
    several = task_of(loss) == "multiclass"
    for X, y in source.nodes(nodes.tolist(), facts.n_nodes, sparse=sparse, stacked=not several):
        if y.ndim == 2:
            yield Stack(np.asarray(X)[:, :most], y[:, :most], loss, **shared)
            continue
        if most is not None:
            first = np.arange(min(most, len(y)))
            X, y = take(X, first), y[first]
        made = X.to_scipy() if isinstance(X, Sparse) else X
        yield objective(made, y, loss, len(source.classes), own=True, **shared)


def stays_sparse(config: Config, source: Source) -> bool:
    """Whether rows are never written out: by the file and the algorithm alone, so it is the same at every node."""
    if not source.wide:
        return False
    able = config.algorithm.matrix_free and task_of(loss_of(config)) != "multiclass"
    why = f"--loss {config.problem.loss}" if config.algorithm.matrix_free else f"--algorithm {config.name}"
    require(
        able or source.n_features <= MOST_COLUMNS,
        f"{why} does not take sparse rows: written out, {source.n_features} columns are too many for it (at most "
        f"{MOST_COLUMNS}); use --algorithm admm, madmm, radmm or mradmm with a loss of one score a record, which keep "
        "them sparse, or fewer columns",
    )
    return able


def prepare(config: Config, world: World) -> Prepared:
    """Rank 0 reads the graph and tells each rank its neighbours; every rank reads the rows of its own nodes."""
    hosts = world.hosts()
    plan = world.on_root(lambda: _plan(config, hosts))
    network = Network(plan.roster, world)
    with world.together():  # ranks agree once on all that can be wrong with their own part
        source = open_source(config.problem.data, world=world, **source_options(config))
        source.hold(network.nodes.tolist(), plan.facts.n_nodes, world)
        objectives = objectives_of(config, source, network.nodes, plan.facts)
        problem = _problem(config, objectives)
        if config.problem.test_data and world.is_root:
            source.test(sparse=source.wide)  # a bad file is told before anything is written
        if plan.conditions is not None and not config.algorithm.tree:
            network.endure(plan.conditions)
        start = starts(config, network, problem.dimension)
        node = Node(network, problem, Unprotected(), plan.facts, start, plan.table)
        if config.algorithm.tree:
            from distadmm.ranks.tree import Tree

            node = node.having(sums=Tree(network, config.loop.stall_timeout))
            node.tree.conditions = plan.conditions
        config.algorithm.check(node, config.loop.iterations)
    if not source.pooled_allowed:  # each node has a file of its own
        from distadmm.data.files import PatternSource, agree

        assert isinstance(source, PatternSource)
        with world.together():
            agree(world.allgather(source.signature()))
    description = {"graph": plan.graph, "data": source.describe(), "phases": config.algorithm.phases}
    return Prepared(config, world, node, source, description, plan.links)


def _problem(config: Config, objectives: Iterator[Any]) -> Problem:
    privacy, tolerance = config.privacy, config.problem.tolerance
    output = privacy.wanted and privacy.mechanism == "output"
    if output or (privacy.wanted and privacy.form == "sound" and config.algorithm.house == Defaults.house):
        from distadmm.problems.rounding import Certain

        return Certain(objectives, tolerance, warm=not output)
    return Problem(objectives, tolerance)


def starts(config: Config, network: Network, dimension: int) -> Array:
    """f_i(0) of the nodes here.  Nothing of it is data, so it is priced as a start at zero is."""
    if not config.loop.start:
        return _zeros(network.n_local, dimension)
    require(
        not config.algorithm.tree,
        f"--start gives each node a start of its own, and those of --algorithm {config.name} have one together; leave "
        "it out",
    )
    require(
        network.conditions is None,
        "--start on a network with imperfections: what is not heard is taken to be the common start, zero; leave it "
        "out, or the imperfections",
    )
    draws = [
        np.random.default_rng(np.random.SeedSequence(config.loop.seed, spawn_key=(STARTS, node)))
        for node in network.nodes.tolist()
    ]
    return config.loop.start * np.stack([draw.standard_normal(dimension) for draw in draws])


def _zeros(rows: int, columns: int) -> Array:
    """Many take no memory before they are written, which zeros of the C library's do where it had used memory left."""
    if rows <= MANY:
        return np.zeros((rows, columns))
    pages = mmap.mmap(-1, 8 * rows * columns, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages).reshape(rows, columns)


def node_like(node: Node, config: Config, problem: Problem) -> Node:
    """A fresh node for another run of `config` over the same graph and rows, in one process."""
    from distadmm.ranks.tree import Tree

    table: dict[str, Array | None] = {}
    for source in (config.algorithm, config.privacy):
        for name in source.tables:
            text = getattr(source, name)
            table[name] = None if text in (None, "auto") else np.full(node.facts.n_nodes, float(text))
    network = Network(node.network.roster)
    sums = Tree(network, config.loop.stall_timeout) if config.algorithm.tree else None
    return Node(network, problem, Unprotected(), node.facts, node.start, table, sums)


def source_options(config: Config) -> dict[str, Any]:
    """What `open_source` is told: every flag that says how rows are read."""
    problem = config.problem
    options: dict[str, Any] = {
        "clip": 1.0 if problem.clip else None,
        "intercept": problem.intercept,
        "task": task_of(loss_of(config)),
        "seed": config.loop.seed,
        "private": config.privacy.wanted,
        "deal": Deal.of(problem.deal, config.loop.seed if problem.data_seed is None else problem.data_seed),
    }
    options |= problem.reading()
    if problem.sanitise:
        options["sanitise"] = named_mappings(problem.sanitise)
    return options


def data_ids(prepared: Prepared) -> str | dict[str, str]:
    """The keyed name of the data, on rank 0; of each node's own file where nodes have their own, on every rank."""
    source, world = prepared.source, prepared.world
    if source.pooled_allowed:
        bundled = prepared.config.problem.data in BUNDLED
        return world.on_root(lambda: source.data_id(None if bundled else local_key()))
    from distadmm.data.files import PatternSource

    assert isinstance(source, PatternSource)
    with world.together():
        mine = source.node_ids(local_key())
    return {str(node): name for part in world.allgather(mine) for node, name in sorted(part.items())}
