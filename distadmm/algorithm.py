"""What an algorithm is, what it may see, and the table of those there are.

An algorithm is a frozen dataclass: its fields are flags, `init(node)` makes the first state and
`step(k, state, node)` the k-th, k = 1, 2, ...  It never prints, times, stops or touches a file.  Its state
is a NamedTuple of arrays whose leading axis is "the nodes of this rank", with the models in field `f`.

Registering is what makes an algorithm a choice of `--algorithm`, and what gets it tested:

    @register("name", phases=2)      # phases: 2 when every second iteration reads no data
    @dataclass(frozen=True)
    class Mine: ...
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from distadmm.errors import InputError
from distadmm.structs import mutable_struct

if TYPE_CHECKING:
    from distadmm.problems.consensus import Problem
    from distadmm.ranks.graph_network import Network

Array = np.ndarray
C = TypeVar("C", bound=type)


class Release(Protocol):
    """What stands between a node's data and its neighbours; every method writes the ledger first."""

    private: bool

    @property
    def epsilon(self) -> float:
        """Spent so far by the node here that has spent most; what is reserved counts as spent."""
        ...

    @property
    def statement(self) -> str:
        """What that number is worth: certificate, odometer, simulation, or none."""
        ...

    def draw(self, k: int, quadratic: Array, factor: Array | float = 1.0) -> Array | float:
        """Charge the release of iteration k of every node here, then return its linear noise (n, d).

        The primal step adds at least quadratic_i |f|^2/2 to O_i, and `factor` times the noise to its linear
        term: the noise returned is multiplied by it already.
        """
        ...

    def seal(self, k: int, f: Array, residual: Array) -> Array:
        """The value that may leave: f certified as solved to tolerance, plus output noise."""
        ...

    def recycle(self, k: int) -> None:
        """Note that iteration k sends what depends on earlier releases alone; it costs nothing."""
        ...

    def expose(self, k: int, what: str) -> None:
        """Note a data-dependent message that carries no noise: its cost is infinite."""
        ...

    def checkpoint(self, k: int) -> None:
        """A durable checkpoint holds everything up to iteration k."""
        ...

    def memory(self) -> dict[str, Array]:
        """What a checkpoint keeps of it, one row a node."""
        ...

    def recall(self, memory: dict[str, Array]) -> None:
        """Compare what a checkpoint kept with what is there; refuse if less is."""
        ...

    def close(self) -> None: ...


class Facts(NamedTuple):
    """What every rank knows of the whole graph; none of it depends on data."""

    n_nodes: int
    degrees: Array
    mu: float  # largest |eigenvalue| below 1 of the random walk D^-1 A
    weight: float = 1.0  # C, the weight of a node's mean loss
    ridge: float = 0.0  # rho/N
    max_curvature: float = float("inf")  # c1, the bound on l''
    theta_pinned: float = float("inf")  # how slowly the network follows one of its nodes


@mutable_struct
class Node:
    """What the nodes of this rank can see: an algorithm's whole world."""

    network: Network
    problem: Problem
    release: Release
    facts: Facts
    start: Array  # f_i(0)
    table: dict[str, Array | None]  # per-node parameters of the whole network; None where the default holds
    _recalled: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def recall(self, name: str, k: int, make: Callable[[], Any]) -> Any:
        """What `make()` gave last time for the same k: the odd and the even step share a penalty."""
        if name not in self._recalled or self._recalled[name][0] != k:
            self._recalled[name] = (k, make())
        return self._recalled[name][1]

    def forget(self) -> None:
        """What was made of `table` so far is void."""
        self._recalled.clear()

    @property
    def degree(self) -> Array:
        """V_i, as a column."""
        return self.network.degree


class Algorithm(Protocol):
    """An optional `check(node, iterations)` refuses, before anything runs, what cannot be run."""

    def init(self, node: Node) -> Any: ...

    def step(self, k: int, st: Any, node: Node) -> Any: ...


class Entry(NamedTuple):
    name: str
    cls: Any
    phases: int  # 2: every second iteration sends what costs no privacy
    private: bool  # has a private form


_MODULES = {  # found by name without importing the others
    "admm": "distadmm.methods.consensus.admm",
    "madmm": "distadmm.methods.consensus.admm",
    "radmm": "distadmm.methods.consensus.recycled",
    "mradmm": "distadmm.methods.consensus.recycled",
}
_REGISTERED: dict[str, Entry] = {}


def register(name: str, *, phases: int = 1, private: bool = False) -> Callable[[C], C]:
    def note(cls: C) -> C:
        _REGISTERED[name] = Entry(name, cls, phases, private)
        return cls

    return note


def names() -> list[str]:
    """Every registered algorithm, the built-in ones first."""
    return [*_MODULES, *(name for name in _REGISTERED if name not in _MODULES)]


def find(name: str) -> Entry:
    """The algorithm registered as `name`, or the one that the file `name` (ending in .py) registers."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name not in _REGISTERED and name in _MODULES:
        importlib.import_module(_MODULES[name])
    if name not in _REGISTERED:
        import difflib

        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"no algorithm {name!r}; {hint}known: {', '.join(names())}, or a file of yours ending in .py"
        )
    return _REGISTERED[name]


def _from_file(path: Path) -> Entry:
    if not path.is_file():
        raise InputError(f"no file {path}; --algorithm takes a name ({', '.join(names())}) or a Python file")
    import importlib.util

    module = f"distadmm_user_{path.stem}"
    before = set(_REGISTERED)
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[module])
        except BaseException:
            del sys.modules[module]
            raise
    found = [e for e in _REGISTERED.values() if e.cls.__module__ == module]
    if not found:
        _REGISTERED.update({k: v for k, v in _REGISTERED.items() if k in before})
        raise InputError(f"{path} registers no algorithm; put @distadmm.register('name') above its dataclass")
    return found[-1]
