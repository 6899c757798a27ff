"""Sums over a tree against plain addition, on any layout; who is missing is named, and nobody hangs."""

from __future__ import annotations

import os
import time
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.errors import STALLED, InputError
from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.post import Name
from distadmm.ranks.tree import Lost, Tree, spanning
from distadmm.ranks.world import World
from tests.test_network import placed, random_graph


def tree_of(n: int, p: float, seed: int, world: World, within: float = 60.0) -> Tree:
    return Tree(Network(placed(n, p, seed, world.size)[0], world), within)


def rows_of(n: int, k: int, dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=(n, k)) * 10.0 ** rng.integers(-8, 8, size=(n, k))
    return rng.integers(0, 2**64, size=(n, k), dtype=np.uint64).view(dtype)


@given(n=st.integers(1, 14), p=st.floats(0, 1), seed=st.integers(0, 1000), gone=st.integers(0, 3))
@settings(deadline=None, max_examples=100)
def test_the_tree_is_breadth_first_from_the_node_of_largest_degree(
    n: int, p: float, seed: int, gone: int
) -> None:
    indptr, indices, A = random_graph(n, p, seed)
    left = np.random.default_rng(seed).permutation(n)[: max(1, n - gone)]
    graph = nx.Graph([(i, j) for i, j in zip(*np.nonzero(A)) if i in left and j in left])
    graph.add_nodes_from(left.tolist())
    if not nx.is_connected(graph):
        with pytest.raises(InputError, match="not connected"):
            spanning(indptr, indices, left)
        return
    shape = spanning(indptr, indices, left)
    assert shape.root == min(graph, key=lambda i: (-graph.degree[i], i))
    ordered = nx.Graph()
    ordered.add_nodes_from(sorted(graph))
    ordered.add_edges_from(sorted(graph.edges))
    found = {child: above for above, child in nx.bfs_edges(ordered, shape.root, sort_neighbors=sorted)}
    assert shape.parent == {shape.root: None, **found}
    assert shape.depth == nx.shortest_path_length(graph, shape.root)
    assert shape.height[shape.root] == max(shape.depth.values())


@given(n=st.integers(1, 12), p=st.floats(0, 1), seed=st.integers(0, 1000), k=st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_integers_add_up_modulo_two_to_the_64(n: int, p: float, seed: int, k: int) -> None:
    tree = tree_of(n, p, seed, World())
    for dtype in (np.uint64, np.int64):
        rows = rows_of(n, k, dtype, seed)
        total = tree.sum(rows)
        assert total.dtype == dtype
        exact = [sum(int(x) for x in column) % 2**64 for column in rows.T]
        assert [int(x) % 2**64 for x in total] == exact
    assert tree.network.traffic.messages == 2 * tree.messages == 4 * (n - 1)
    assert tree.network.traffic.bytes == 4 * (n - 1) * 8 * k


@given(n=st.integers(1, 12), p=st.floats(0, 1), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_arrays_of_several_types_travel_in_one_message(n: int, p: float, seed: int) -> None:
    tree = tree_of(n, p, seed, World())
    rows = rows_of(n, 3, np.float64, seed)[tree.network.nodes]
    more = np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)
    found, short = tree.up((rows, more))
    tree.down(np.zeros(1), 1, np.float64)
    np.testing.assert_array_equal(found, tree.sum(rows))
    assert short.dtype == np.float32
    np.testing.assert_allclose(short, more.sum(axis=0), atol=1e-5)
    assert tree.network.traffic.messages == 4 * (n - 1)
    assert tree.network.traffic.bytes == (n - 1) * (3 * 8 + 2 * 4 + 8 + 2 * 3 * 8)


class Watched:
    """A communicator that notes what is called."""

    def __init__(self, comm: Any):
        self.comm, self.called = comm, set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self.comm, name)


@pytest.mark.mpi(min_size=1, sizes=[1, 2, 4, 5])
def test_the_same_bits_on_any_number_of_ranks(world: World) -> None:
    n, k = 11, 3
    tree, alone = tree_of(n, 0.3, 7, world), tree_of(n, 0.3, 7, World())
    watched = Watched(world.comm)
    tree.post._comm = watched
    tree.network.world = World(watched if world.size > 1 else None)
    seen = []
    for number, dtype in enumerate((np.float64, np.uint64, np.int64)):
        rows = rows_of(n, k, dtype, number)
        tree.network.guard = lambda kind, rows, seal, member: seen.append((kind, len(rows)))
        here = tree.sum(rows[tree.network.nodes])
        np.testing.assert_array_equal(here, alone.sum(rows[alone.network.nodes]))
    assert seen == [("row", len(tree.network.nodes))] * 3  # each asked for before it left
    assert watched.called <= {"Isend", "Improbe", "Get_rank", "Get_size"}  # nothing collective
    said = {int(i): f"node {i}".encode() * (int(i) + 1) for i in tree.network.nodes}
    told = tree.flood(said)
    assert told == {i: f"node {i}".encode() * (i + 1) for i in range(n)}
    tree.close()
    traffic = world.allgather((tree.network.traffic.messages, tree.network.traffic.bytes))
    assert np.sum(traffic, axis=0).tolist() == [3 * tree.messages, 3 * tree.messages * 8 * k]
    host = tree.post.hosts
    crossing = sum(host[i] != host[j] for i, j in tree.shape.parent.items() if j is not None)
    assert sum(world.allgather(tree.network.traffic.wire_messages)) == 3 * 2 * crossing


@pytest.mark.mpi(min_size=2, sizes=[4])
def test_only_the_root_adds_up_and_decides(world: World) -> None:
    tree = tree_of(9, 0.3, 3, world)
    rows = rows_of(9, 4, np.float64)
    total = tree.up(rows[tree.network.nodes])
    assert (total is None) == (tree.shape.root not in tree.network.nodes)
    answer = tree.down(None if total is None else total[:2] / 2, 2, np.float64)
    np.testing.assert_array_equal(answer, tree_of(9, 0.3, 3, World()).sum(rows)[:2] / 2)
    tree.close()


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_who_sends_nothing_is_named_and_nobody_hangs(world: World) -> None:
    tree = tree_of(9, 0.3, 3, world, within=2.0)
    rows = rows_of(9, 4, np.uint64)[tree.network.nodes]
    tree.sum(rows)
    last = world.size - 1
    missing = np.flatnonzero(tree.post.hosts == last)
    if world.rank != last:
        with pytest.raises(Lost) as lost:
            tree.sum(rows)
        assert set(lost.value.nodes) & set(missing.tolist())
        assert lost.value.code == STALLED
    world.barrier()
    tree.close()


@pytest.mark.mpi(min_size=2, sizes=[2])
def test_what_does_not_fit_ends_the_sum_with_its_nodes_name(world: World) -> None:
    """A path 0 - 1 - 2 on two ranks; node 0, a leaf, sends something else than it should."""
    indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])
    roster = Roster(indptr, indices, np.array([0, 1, 1]), ("alpha", "beta"))
    for how in ("short", "long", "mark", "twice"):
        tree = Tree(Network(roster, world), within=20.0)
        rows, marks = np.full((len(tree.network.nodes), 3), 5, dtype=np.uint64), [b"same one"] * 2
        if world.rank == 0:
            bad = {"short": rows[:, :2], "long": np.repeat(rows, 2, axis=1)}.get(how, rows)
            if how == "twice":
                tree.post.send(Name(b"up  ", 0, 1, 1), rows[0].tobytes(), marks[0])
            tree.up(bad, [b"other  !"] if how == "mark" else marks)
            world.barrier()
            with pytest.raises(Lost, match=r"node 0 \(rank 0 on host alpha\) sent"):
                tree.down(None, 3, np.uint64, marks)
        else:
            world.barrier()
            for _ in range(20 * (how == "twice")):  # both are there when it looks
                time.sleep(0.02)
                tree.post._take_in()
            with pytest.raises(Lost, match=r"node 0 \(rank 0 on host alpha\) sent"):
                tree.sum(rows, marks)
        world.barrier()
        tree.close()


@given(n=st.integers(3, 12), seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=60, deadline=None)
def test_who_is_away_is_known_everywhere_and_the_others_go_on(n: int, seed: int, data: Any) -> None:
    """Any nodes, the root and inner ones among them: the rest of the largest part adds up what it has."""
    tree = tree_of(n, 0.3, seed, World())
    rows = rows_of(n, 2, np.int64, seed)[tree.network.nodes]
    away = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1))
    with pytest.raises(Lost) as lost:
        tree.sum(rows, away=away)
    assert lost.value.told
    assert set(lost.value.nodes) == away
    left = tree.without([*lost.value.nodes, 10**6])  # an invented number changes nothing
    assert left
    assert not away & set(left)
    tree.of(left)
    before = tree.network.traffic.messages
    np.testing.assert_array_equal(tree.sum(rows), rows[np.isin(tree.network.nodes, left)].sum(axis=0))
    assert tree.network.traffic.messages - before == 2 * (len(left) - 1) + n - len(left)


@pytest.mark.mpi(min_size=2, sizes=[5])
def test_a_rank_that_sleeps_too_long_finds_itself_out(world: World) -> None:
    """A star of five; what is late changes nothing, and sums go on without its node, which still hears them."""
    star = Roster(np.array([0, 4, 5, 6, 7, 8]), np.array([1, 2, 3, 4, 0, 0, 0, 0]), np.arange(5))
    if world.size != 5:
        return
    tree = Tree(Network(star, world), within=9.0)
    row = np.array([[10**world.rank]])
    assert tree.sum(row)[0] == 11111
    if world.rank == 3:
        time.sleep(4.0)  # a leaf is waited for 9/6 s
    with pytest.raises(Lost) as lost:
        tree.sum(row)
    assert (lost.value.nodes, lost.value.told) == ([3], True)
    tree.of(tree.without(lost.value.nodes))
    for _ in range(3):
        assert tree.sum(row)[0] == 10111
    world.barrier()
    tree.close()


RING = Roster.alone(np.arange(0, 9, 2), np.array([1, 3, 0, 2, 1, 3, 0, 2]))


def lying(monkeypatch: pytest.MonkeyPatch, change: Any) -> Tree:
    """A ring of four in which what node 0 tells node 1 is changed."""
    tree = Tree(Network(RING))
    send = tree._send

    def lie(kind: bytes, sender: int, receiver: int, payload: bytes, *mark: bytes) -> None:
        send(kind, sender, receiver, change(payload) if (sender, receiver) == (0, 1) else payload, *mark)

    monkeypatch.setattr(tree, "_send", lie)
    return tree


def test_two_words_in_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a ring of four, node 1 hears of node 3 from either side."""
    tree = lying(monkeypatch, lambda payload: payload.replace(b"a3", b"b3"))
    with pytest.raises(InputError, match="two different things are told in the name of node 3"):
        tree.flood({i: f"a{i}".encode() for i in range(4)})


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ([77, 0], "node 0 tells of a node 77 that nobody configured"),
        ([3, 9], "node 0 sent what cannot be read"),
    ],
)
def test_what_is_no_ones_word_is_refused(
    monkeypatch: pytest.MonkeyPatch, payload: list[int], told: str
) -> None:
    tree = lying(monkeypatch, lambda _: np.array(payload, dtype=">u4").tobytes())
    with pytest.raises(InputError, match=told):
        tree.flood({i: b"a" for i in range(4)})


def test_a_lost_sum_names_the_iteration_and_where_its_nodes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    up = Tree.up

    def losing(self: Tree, *given: Any, **more: Any) -> Any:
        if self._number >= 3:
            raise self._blame([2, 1])
        return up(self, *given, **more)

    monkeypatch.setattr(Tree, "up", losing)
    where = rf"nodes 1, 2 \(rank 0 on host {os.uname().nodename}\) sent nothing in time"
    with pytest.raises(Lost, match=rf"^iteration \d+: a sum over the tree is lost: {where}") as lost:
        radmm.solve("newton", data="tiny", topology="er5", progress="none")
    assert lost.value.code == STALLED
