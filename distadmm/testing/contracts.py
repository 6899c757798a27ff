"""What every algorithm of the graph family has to keep, each a function that raises `AssertionError`.

    from distadmm.testing import contracts

    @pytest.mark.parametrize("contract", contracts.ALONE)
    def test_mine(contract):
        contract("mine.py", rate=0.2)        # flags of the run, as `distadmm.solve` takes them

Those of `ALONE` run in one process; those of `TOGETHER` take the ranks as well, and are worth the more, the more there
are: `same_bits(name, world, **flags)`, `exact_resume(name, world, folder, **flags)`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from distadmm import radmm
from distadmm.algorithm import Node, begin
from distadmm.files import read_npz
from distadmm.privacy.noise.release import Unprotected
from distadmm.ranks.world import World
from distadmm.run import shell
from distadmm.run.setup import prepare

Array = np.ndarray
SMALL: dict[str, Any] = {
    "data": "tiny",
    "topology": "er5",
    "weight": 20.0,
    "rho": 1.0,
    "iterations": 12,
    "progress": "none",
}
LOOK = 6  # iterations that are looked at one by one


def keeps(holds: bool, name: str, text: str) -> None:
    if not holds:
        raise AssertionError(f"{name}: {text}")


def equal(one: Any, other: Any) -> bool:
    """To the bit; a number stands for every row."""
    return all(np.array_equal(a, b) for a, b in [np.broadcast_arrays(one, other)])


def models(name: str, world: World, **flags: Any) -> Array | None:
    """The models of all nodes, on rank 0."""
    config = radmm.configure(name, **{**SMALL, **flags})
    return cast(radmm.Run, shell.in_process(radmm.PROGRAMME, config, world)).models


def same_bits(name: str, world: World, **flags: Any) -> None:
    """The ranks together find what one process finds, to the bit."""
    together = models(name, world, **flags)
    if together is not None:
        keeps(
            equal(together, models(name, World(), **flags)),
            name,
            f"{world.size} ranks and one differ; keep a row a node, and add neighbours by the network's sums",
        )


def exact_resume(name: str, world: World, folder: Path, **flags: Any) -> None:
    """Interrupted on one process and resumed on these ranks, a run ends as one in one piece."""
    out = str(folder / "run")
    asked = {**SMALL, **flags, "algorithm": name, "checkpoint_every": 5, "iterations": 7, "out": out}
    if world.is_root:
        shell.work(radmm.PROGRAMME, radmm.configure(**asked), World())
        in_one_piece = radmm.solve(name, **{**SMALL, **flags})
    world.barrier()
    words = ["--resume", out, "--iterations", str(SMALL["iterations"])]
    packed = world.on_root(lambda: radmm.PROGRAMME.pack(radmm.PROGRAMME.read(words)))
    shell.work(radmm.PROGRAMME, radmm.PROGRAMME.unpack(packed), world)
    if world.is_root:
        found = read_npz(Path(out) / "models.npz")["models"]
        keeps(
            equal(found, in_one_piece.models),
            name,
            "a resumed run differs; all that a step depends on belongs into the state",
        )
        lines = (Path(out) / "history.csv").read_text().splitlines()[1:]
        measured = [(int(line.split(",")[0]), float(line.split(",")[2])) for line in lines]
        expected = list(enumerate(in_one_piece.column("objective").tolist(), 1))
        keeps(measured == expected, name, "the history of a resumed run differs")


class Spy(Unprotected):
    """Counts what an algorithm asks of the release it must pass through."""

    def __init__(self, private: bool = False) -> None:
        super().__init__()
        self.private = private
        self.calls: list[tuple[str, int]] = []
        self.drawn: list[tuple[int, Any, Any]] = []

    def draw(self, k: int, quadratic: Array | float, factor: Array | float = 1.0) -> Array | float:
        self.calls.append(("draw", k))
        self.drawn.append((k, quadratic, factor))
        return 0.0

    def seal(self, k: int, f: Array, residual: Array) -> Array:
        self.calls.append(("seal", k))
        return super().seal(k, f, residual)

    def recycle(self, k: int, f: Array | None = None) -> None:
        self.calls.append(("recycle", k))

    def expose(self, k: int, what: str) -> None:
        self.calls.append(("expose", k))


def spied(name: str, spy: Spy, **flags: Any) -> tuple[Any, Node, list[int]]:
    """An algorithm, its nodes behind `spy`, and a list that grows with every look at the data."""
    prepared = prepare(radmm.configure(name, **{**SMALL, **flags}), World())
    node, reads = prepared.node.having(release=spy), list[int]()
    readers = [(objective, ("value", "grad", "hess")) for objective in node.problem.objectives]
    readers += [(block, ("values", "gradients", "hessians")) for _, block in node.problem.blocks]

    def noting(watched: Callable[..., Any]) -> Callable[..., Any]:
        def note(*f: Any) -> Any:
            reads.append(1)
            return watched(*f)

        return note

    for reader, methods in readers:
        for method in methods:
            setattr(reader, method, noting(getattr(reader, method)))
    return prepared.config.algorithm, node, reads


def one_release_a_read(name: str, **flags: Any) -> None:
    """A step that reads data passes through the release once, and another costs nothing and says so."""
    spy = Spy()
    algorithm, node, reads = spied(name, spy, **flags)
    state = begin(algorithm, node)
    exposed = any(call == "expose" for call, _ in spy.calls)
    keeps(
        bool(reads) == exposed,
        name,
        "init reads data, or says so, and not both; call node.release.expose(0, what)",
    )
    for k in range(1, LOOK + 1):
        spy.calls.clear()
        reads.clear()
        state = algorithm.step(k, state, node)
        allowed = [[("draw", k), ("seal", k)], [("expose", k)]] if reads else [[("recycle", k)]]
        keeps(
            spy.calls in allowed,
            name,
            f"step {k} {'reads data' if reads else 'reads no data'} and asks {spy.calls} of node.release; "
            f"needed: {' or '.join(map(str, allowed))}",
        )


def draws_as_scheduled(name: str, **flags: Any) -> None:
    """`releases` lists the draws of a private run, each with what it is priced by."""
    spy = Spy(private=True)
    algorithm, node, _ = spied(name, spy, **flags)
    if algorithm.releases is None:
        return
    planned = [tuple(each) for each in algorithm.releases(node, LOOK)]
    state = begin(algorithm, node)
    for k in range(1, LOOK + 1):
        state = algorithm.step(k, state, node)
    as_found = [k for k, *_ in spy.drawn]
    keeps(
        as_found == [k for k, *_ in planned],
        name,
        f"draws in {as_found}, scheduled in {[k for k, *_ in planned]}",
    )
    for (k, *asked), (_, *listed) in zip(spy.drawn, planned):
        same = all(map(equal, asked, listed))
        keeps(same, name, f"the draw of iteration {k} has another quadratic or factor than `releases` lists")


def messages_of_one_size(name: str, **flags: Any) -> None:
    """A step sends one row along each edge, as wide in every iteration."""
    algorithm, node, _ = spied(name, Spy(), **flags)
    state, edges, sizes = begin(algorithm, node), len(node.network.columns), set()
    for k in range(1, LOOK + 1):
        before = (node.network.traffic.messages, node.network.traffic.bytes)
        state = algorithm.step(k, state, node)
        sent = node.network.traffic.messages - before[0]
        keeps(
            sent == edges,
            name,
            f"step {k} sends {sent} messages over {edges} directed edges; needed: one each",
        )
        sizes.add((node.network.traffic.bytes - before[1]) // sent)
    keeps(len(sizes) == 1, name, f"messages of {sorted(sizes)} bytes; needed: one size")


def watching_changes_no_bit(name: str, **flags: Any) -> None:
    """A run that is measured and one that is not end alike."""
    watched, alone = (models(name, World(), **{**flags, "observe": observe}) for observe in ("1", "none"))
    keeps(equal(watched, alone), name, "measuring changes the result")


def phases_as_said(name: str, **flags: Any) -> None:
    """Where `phases` is 2, every second iteration recycles."""
    spy = Spy()
    algorithm, node, _ = spied(name, spy, **flags)
    state = begin(algorithm, node)
    for k in range(1, LOOK + 1):
        spy.calls.clear()
        state = algorithm.step(k, state, node)
        recycles = ("recycle", k) in spy.calls
        keeps(
            recycles == (algorithm.phases == 2 and k % 2 == 0),
            name,
            f"iteration {k} {'recycles' if recycles else 'solves'}; phases = {algorithm.phases} says otherwise",
        )


ALONE = (
    one_release_a_read,
    draws_as_scheduled,
    messages_of_one_size,
    watching_changes_no_bit,
    phases_as_said,
)
TOGETHER = (same_bits, exact_resume)
