"""What every algorithm has to keep, each a function that raises `AssertionError`.

    from distadmm.testing import contracts

    @pytest.mark.parametrize("contract", contracts.ALONE)
    def test_mine(contract):
        contract("mine.py", rate=0.2)        # flags of the run, as `distadmm.solve` takes them

Those of `ALONE` run in one process and are for the graph family.  Those of `TOGETHER` take the ranks as well, of either
family, and are worth the more, the more ranks there are: `same_bits("mine.py", world, family="star", ...)`.
"""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm import radmm, sharing
from distadmm.algorithm import Array, Node, begin
from distadmm.files import read_npz
from distadmm.privacy.noise.release import Unprotected
from distadmm.ranks.world import World
from distadmm.run import setup, shell

PROGRAMMES: dict[str, Any] = {"graph": radmm.PROGRAMME, "star": sharing.PROGRAMME}
SMALL: dict[str, dict[str, Any]] = {
    "graph": {"topology": "er5", "weight": 20.0, "rho": 1.0},
    "star": {"split": "10,10,10", "stop_tolerance": 0.0},
}
LOOK = 6  # iterations that are looked at one by one


def keeps(holds: bool, name: str, text: str) -> None:
    if not holds:
        raise AssertionError(f"{name}: {text}")


def equal(one: Any, other: Any) -> bool:
    """To the bit; a number stands for every row."""
    return all(np.array_equal(a, b) for a, b in [np.broadcast_arrays(one, other)])


def options(name: str, family: str = "graph", **flags: Any) -> Any:
    usual = {"data": "tiny", "iterations": 12, "progress": "none", **SMALL[family]}
    return PROGRAMMES[family].unpack({**usual, "algorithm": name, **flags})


def models(name: str, world: World, family: str = "graph", **flags: Any) -> dict[str, Array]:
    """All arrays that a run leaves, whichever rank has them, by file and name."""
    found = shell.in_process(PROGRAMMES[family], options(name, family, **flags), world).arrays
    every = [item for part in world.allgather(found) for item in part.items()]
    return {f"{file}:{of}": array for file, arrays in every for of, array in arrays.items()}


def alike(one: dict[str, Array], other: dict[str, Array]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


def same_bits(name: str, world: World, **flags: Any) -> None:
    """The ranks together find what one process finds, to the bit."""
    together = models(name, world, **flags)
    if world.is_root:
        text = f"{world.size} ranks and one differ; keep a row a member, and add in the order of the members"
        keeps(alike(together, models(name, World(), **flags)), name, text)


def exact_resume(name: str, world: World, folder: Path, family: str = "graph", **flags: Any) -> None:
    """Interrupted on one process and resumed on these ranks, a run ends as one in one piece."""
    programme, parted, whole = PROGRAMMES[family], folder / "parted", folder / "whole"
    if world.is_root:
        short = {"iterations": 7, "checkpoint_every": 5, "out": str(parted)}
        shell.work(programme, options(name, family, **{**flags, **short}), World())
        shell.work(programme, options(name, family, **{**flags, "out": str(whole)}), World())
    world.barrier()
    words = ["--resume", str(parted), "--iterations", str(flags.get("iterations", 12))]
    packed = world.on_root(lambda: programme.pack(programme.read(words)))
    shell.work(programme, programme.unpack(packed), world)
    world.barrier()
    if world.is_root:
        text = "a resumed run differs; all that a step depends on belongs into the state"
        keeps(alike(_written(parted), _written(whole)), name, text)
        keeps(_measured(parted) == _measured(whole), name, "the history of a resumed run differs")


def _written(folder: Path) -> dict[str, Array]:
    files = [*folder.glob("models.npz"), *folder.glob("models/*.npz")]
    return {f"{path.name}:{of}": a for path in files for of, a in read_npz(path).items()}


def _measured(folder: Path) -> list[dict[str, str]]:
    """The history without what depends on the clock or on the number of ranks."""
    with open(folder / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


class Spy(Unprotected):
    """Notes what an algorithm asks of the release it must pass through."""

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
        return f

    def recycle(self, k: int, f: Array | None = None) -> None:
        self.calls.append(("recycle", k))

    def expose(self, k: int, what: str) -> None:
        self.calls.append(("expose", k))


class Step(NamedTuple):
    """What was seen of one step; step 0 is `init`."""

    k: int
    calls: list[tuple[str, int]]
    reads: int  # looks at the data
    messages: int
    bytes: int


def spied(name: str, spy: Spy, **flags: Any) -> tuple[Any, Node, Iterator[Step]]:
    """An algorithm, its nodes behind `spy`, and its first steps."""
    prepared = setup.prepare(options(name, **flags), World())
    algorithm, node = prepared.config.algorithm, prepared.node.having(release=spy)
    reads: list[int] = []

    def noting(watched: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *f: (reads.append(1), watched(*f))[1]  # type: ignore[func-returns-value]

    looks = ("value", "grad", "hess", "records")
    readers = [(o, tuple(look for look in looks if hasattr(o, look))) for o in node.problem.objectives]
    readers += [(block, ("values", "gradients", "hessians")) for _, block in node.problem.blocks]
    for reader, methods in readers:
        for method in methods:
            setattr(reader, method, noting(getattr(reader, method)))

    def steps() -> Iterator[Step]:
        traffic, state = node.network.traffic, None
        for k in range(LOOK + 1):
            spy.calls, before = [], (traffic.messages, traffic.bytes)
            reads.clear()
            state = algorithm.step(k, state, node) if k else begin(algorithm, node)
            yield Step(k, spy.calls, len(reads), traffic.messages - before[0], traffic.bytes - before[1])

    return algorithm, node, steps()


def one_release_a_read(name: str, **flags: Any) -> None:
    """A step that reads data passes through the release once, and another costs nothing and says so."""
    algorithm, _, steps = spied(name, Spy(), **flags)
    for k, calls, reads, *_ in steps:
        did = f"step {k} reads {'data' if reads else 'no data'} and asks {calls} of node.release; needed: "
        allowed = [[("draw", k), ("seal", k)], [("expose", k)]] if reads else [[("recycle", k)]]
        if k:
            keeps(calls in allowed, name, did + " or ".join(map(str, allowed)))
            recycled = algorithm.phases == 2 and k % 2 == 0
            mixes = algorithm.opens and not reads  # what was released first
            keeps(mixes or bool(reads) != recycled, name, f"{did}a read unless phases = 2 and k is even")
        else:
            exposed = any(call == "expose" for call, _ in calls)
            keeps(bool(reads) == exposed, name, f"{did}expose(0, what) where init reads data, and only there")


def draws_as_scheduled(name: str, **flags: Any) -> None:
    """`releases` lists the draws of a private run, each with what it is priced by."""
    spy = Spy(private=True)
    algorithm, node, steps = spied(name, spy, **flags)
    if algorithm.releases is None:
        return
    planned = [tuple(each) for each in algorithm.releases(node, LOOK)]
    list(steps)
    drawn, listed = ([k for k, *_ in each] for each in (spy.drawn, planned))
    keeps(drawn == listed, name, f"draws in {drawn}, and `releases` lists {listed}")
    for (k, *asked), (_, *priced) in zip(spy.drawn, planned):
        same = all(map(equal, asked, priced))
        keeps(same, name, f"the draw of iteration {k} has another quadratic or factor than `releases` lists")


def messages_of_one_size(name: str, **flags: Any) -> None:
    """A step sends one row (or `mixes`) along each edge, as wide in every iteration; or one sum over the tree."""
    algorithm, node, steps = spied(name, Spy(), **flags)
    seen, edges = [step for step in steps if step.k], len(node.network.columns)
    due, where = algorithm.mixes * edges, f"over {edges} directed edges"
    if algorithm.tree:
        due, where = node.tree.messages, f"where a sum over the tree is {node.tree.messages}"
    for step in seen:
        keeps(step.messages == due, name, f"step {step.k} sends {step.messages} messages {where}")
    if algorithm.tree:
        return
    sizes = sorted({step.bytes // due for step in seen})
    keeps(len(sizes) <= 1 + algorithm.opens, name, f"messages of {sizes} bytes; needed: one size")


def watching_changes_no_bit(name: str, **flags: Any) -> None:
    """A run that is measured and one that is not end alike."""
    watched, unseen = (models(name, World(), **{**flags, "observe": observe}) for observe in ("1", "none"))
    keeps(alike(watched, unseen), name, "measuring changes the result")


ALONE = (one_release_a_read, draws_as_scheduled, messages_of_one_size, watching_changes_no_bit)
TOGETHER = (same_bits, exact_resume)
