"""What an algorithm is, what it may see, and the table of those there are.

An algorithm is a frozen dataclass: its fields are flags, `init(place)` makes the first state and
`step(k, state, place)` the k-th, k = 1, 2, ...  It never prints, times, stops or touches a file.  Its state
is a NamedTuple of arrays whose leading axis is "the members of this rank".  What else it may say, `Defaults`
lists.  There are two families: "graph" (nodes send rows to their neighbours; `place` is a `Node` and the
models are the state's field `f`) and "star" (a centre and parties).

Registering makes an algorithm a choice of `--algorithm`, checks that it is what is said here, and gets it tested:

    @register("name", family="graph")
    @dataclass(frozen=True)
    class Mine: ...
"""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from distadmm.errors import InputError, require
from distadmm.node import Array, Facts, Node, Release

__all__ = [
    "Algorithm", "Array", "Defaults", "Entry", "Facts", "Node", "Planned", "Release", "find", "register",
]  # fmt: skip

C = TypeVar("C", bound=type)


class Planned(NamedTuple):
    """One release of a private algorithm, as its schedule lists it; nothing in it may depend on data."""

    k: int  # the iteration that draws
    quadratic: Array | float  # the primal step adds at least quadratic_i |f|^2/2 to O_i
    factor: Array | float = 1.0  # what the linear term multiplies the noise by


def called(value: Any) -> str:
    """A value of the wrong kind, in a message."""
    if isinstance(value, (list, tuple)) and value and not hasattr(value, "_fields"):
        return f"a {type(value).__name__} of {type(value[0]).__name__}"
    return "nothing" if value is None else f"a {type(value).__name__}"


class Defaults:
    """What an algorithm may say besides `init` and `step`; left out, it says what stands here."""

    phases: ClassVar[int] = 1
    """Iterations a solve: 2 when every second iteration sends what was made of releases and costs nothing."""

    tables: ClassVar[Mapping[str, str]] = {}
    """Flags that also take a value a node ('node', or a CSV file): flag -> attribute of the graph file's nodes."""

    spectrum: ClassVar[bool] = True
    """Whether it reads `facts.mu` and `facts.theta_pinned`, which are not cheap for large graphs."""

    mixes: int = 1
    """Messages along each edge, one after the other, in a step."""

    opens: ClassVar[bool] = False
    """Whether its first iterations, a public number, release and send something of another size."""

    tree: ClassVar[bool] = False
    """Whether it sums over a spanning tree of the graph: then there is `node.tree` (`ranks/tree.py`)."""

    matrix_free: ClassVar[bool] = True
    """Whether it does without Hessians: then rows of many columns that are mostly zero stay sparse."""

    survives: ClassVar[bool] = False
    """Whether a private run goes on without a node that is lost: each sum then ends with a call of all ranks
    (`ranks/roll.py`), and `tree.on_loss` is told of who did not answer."""

    house: ClassVar[str] = "distadmm.methods.consensus"
    """The package whose `private` prices and arms its runs, and whose `words` tell of them."""

    repeats: ClassVar[bool] = False
    """Whether `releases` tells what repeats itself in `Stretches`, so that it may be as long as it likes."""

    releases: ClassVar[Callable[..., Sequence[Planned]] | None] = None
    """`releases(self, node, iterations)`: the schedule of what reads data, as a value.  Without it there is no
    private form, and `--epsilon` and `--alpha` are refused."""

    def check(self, node: Any, iterations: int) -> None:
        """Refuse, before anything runs, what cannot be run."""

    def ended(self, state: Any) -> str:
        """Why there is no further iteration, in a word that all ranks know; empty while there is one."""
        return ""

    def finish(self, k: int, st: Any, node: Any) -> Any:
        """The state to report after iteration k, the last; a checkpoint keeps the one before.  It reads no data."""
        return st

    def told(self, k: int, st: Any, node: Any) -> dict[str, Any]:
        """Figures of its own for the summary, at the end of the run; called by every rank."""
        return {}

    def claims_optimum(self, node: Any) -> bool:
        """Whether the fixed point is the optimum of the whole network's problem."""
        return True


class Algorithm(Protocol):
    """The two members that there is no default for."""

    def init(self, node: Any) -> Any: ...

    def step(self, k: int, st: Any, node: Any) -> Any: ...


class Entry(NamedTuple):
    name: str
    cls: Any
    family: str = "graph"
    file: str = ""  # where code that is not this package's comes from

    @property
    def phases(self) -> int:
        return int(self.cls.phases)

    @property
    def private(self) -> bool:
        """Has a private form."""
        return self.cls.releases is not None or self.cls.house != Defaults.house


# Each family's field of the state that holds the models of this rank's members.
FAMILIES = {"graph": "f", "star": "x"}
_MODULES = {  # of the built-in ones, found by name without importing the others
    "graph": {
        "admm": "distadmm.methods.consensus.admm",
        "madmm": "distadmm.methods.consensus.admm",
        "radmm": "distadmm.methods.consensus.recycled",
        "mradmm": "distadmm.methods.consensus.recycled",
        "newton": "distadmm.methods.consensus.newton",
        "masked": "distadmm.methods.masked.masked",
        "gossip": "distadmm.methods.gossip.gossip",
        "tracking": "distadmm.methods.gossip.tracking",
        "accelerated": "distadmm.methods.gossip.accelerated",
        "preconditioned": "distadmm.methods.gossip.preconditioned",
        "fixed-point": "distadmm.methods.gossip.fixed_point",
        "extra": "distadmm.methods.gossip.extra",
    },
    "star": {
        "corrected": "distadmm.methods.sharing.jacobi",
        "paper": "distadmm.methods.sharing.jacobi",
        "averaged": "distadmm.methods.sharing.averaged",
        "gauss-seidel": "distadmm.methods.sharing.gauss_seidel",
        "sgd": "distadmm.methods.sharing.sgd",
        "s1": "distadmm.methods.sharing.vectors",
        "s2": "distadmm.methods.sharing.vectors",
        "s3": "distadmm.methods.sharing.vectors",
        "equation-10": "distadmm.methods.sharing.equation10",
    },
}
_REGISTERED: dict[str, dict[str, Entry]] = {family: {} for family in FAMILIES}


def register(
    name: str, *, family: str = "graph", phases: int | None = None, private: bool | None = None
) -> Callable[[C], C]:
    """Make the frozen dataclass below a choice of `--algorithm`.

    `phases` and `private` are said by the class; given here as well, they have to agree with it.
    """

    def note(cls: C) -> C:
        _refuse_incomplete(name, cls, family)
        said = getattr(cls, "phases", None)
        require(
            phases in (None, 1, 2) and said in (None, 1, 2) and (None in (phases, said) or phases == said),
            f"{cls.__name__} has phases = {said} and is registered with phases={phases}; needed: 1, or 2 when every "
            "second iteration recycles, said once, in the class:\n\n"
            f"    phases: ClassVar[int] = {phases if phases in (1, 2) else 1}",
        )
        if phases is not None:
            cls.phases = phases  # type: ignore[attr-defined]
        for member, default in vars(Defaults).items():
            if not member.startswith("_") and getattr(cls, member, None) is None:
                setattr(cls, member, default)
        require(
            not cls.survives or (cls.tree and cls.house != Defaults.house),  # type: ignore[attr-defined]
            f"{cls.__name__} says that it survives a loss, and only masked sums do; leave it out, or write\n\n"
            '    tree: ClassVar[bool] = True\n    house: ClassVar[str] = "distadmm.methods.masked"',
        )
        entry = Entry(name, cls, family, _file_of(name, cls, family))
        require(
            not private or entry.private, f"{cls.__name__} is registered with private=True and {NO_SCHEDULE}"
        )
        _REGISTERED[family][name] = entry
        return cls

    return note


NO_SCHEDULE = """has no schedule of its releases, without which it has no private form; write

    def releases(self, node, iterations):  # what reads data; it may not depend on data itself
        return [distadmm.Planned(k, quadratic) for k in range(1, iterations + 1)]

and draw its noise in `step`, solve with it, and seal what leaves (docs/algorithms.md):

    noise = node.release.draw(k, quadratic)
    f = node.problem.argmin(linear=... + noise, quadratic=quadratic, start=st.f)
    f = node.release.seal(k, f, node.problem.residual)"""


def _refuse_incomplete(name: str, cls: Any, family: str) -> None:
    """An `InputError` that names the class, what it lacks and the lines to write."""
    known = ", ".join(repr(each) for each in FAMILIES)
    require(
        family in FAMILIES, f"register({name!r}, family={family!r}): no such family; choose one of {known}"
    )
    what = cls.__name__ if isinstance(cls, type) else repr(cls)
    place = "node" if family == "graph" else "seat"
    lines = f"\n\n    @distadmm.register({name!r}, family={family!r})\n    @dataclass(frozen=True)\n    class {what}:"
    require(
        isinstance(cls, type) and dataclasses.is_dataclass(cls) and "__dataclass_fields__" in vars(cls),
        f"{what}, registered as {name!r}, is no dataclass; its fields become flags, so write{lines}",
    )
    require(
        cls.__dataclass_params__.frozen or cls.__setattr__ is not object.__setattr__,  # as a `struct`
        f"{what}, registered as {name!r}, is a dataclass that can change on the way; write{lines}",
    )
    missing = {
        "init": f"    def init(self, {place}): ...  # the first state: a NamedTuple of arrays",
        "step": f"    def step(self, k, st, {place}): ...  # the k-th state, k = 1, 2, ...",
    }
    missing = {member: line for member, line in missing.items() if not callable(getattr(cls, member, None))}
    require(
        not missing,
        f"{what}, registered as {name!r}, has no {' and no '.join(missing)}; write\n\n"
        + "\n".join(missing.values()),
    )
    for each in dataclasses.fields(cls):
        needless = each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        require(
            not each.init or needless or "help" in each.metadata,
            f"{what}, registered as {name!r}: nobody can give a value to its field {each.name}, which is no flag; "
            f"write\n\n    {each.name}: float = distadmm.flag(1.0, help='...')",
        )


def _file_of(name: str, cls: Any, family: str) -> str:
    """Where a class comes from that is not this package's own of that name; empty for those."""
    if cls.__module__ == _MODULES[family].get(name):
        return ""
    module = sys.modules.get(cls.__module__)
    return str(getattr(module, "__file__", None) or cls.__module__)


def begin(algorithm: Any, place: Any) -> Any:
    """The first state, refused in one line when it is none."""
    state, what = algorithm.init(place), type(algorithm).__name__
    known = (entry for table in _REGISTERED.values() for entry in table.values())
    field = next((FAMILIES[entry.family] for entry in known if entry.cls is type(algorithm)), "")
    made = f"{what}.init returned {called(state)}"
    rows = (
        "np.ndarray  # one row a node of this rank" if field == "f" else "dict[int, np.ndarray]  # by party"
    )
    lines = f"\n\n    class State(NamedTuple):\n        {field or 'x'}: {rows}"
    fields: tuple[str, ...] = getattr(state, "_fields", ())
    require(isinstance(state, tuple) and fields, f"{made}; needed: a NamedTuple of arrays:{lines}")
    require(
        not field or field in fields,
        f"{made} without a field {field}, which holds the models; it has {', '.join(fields)}; write{lines}",
    )
    if field == "f":
        held, shape = getattr(state.f, "shape", None), np.shape(place.start)
        require(
            held == shape,
            f"{made} whose f is {called(state.f) if held is None else f'of shape {held}'}; needed: an array of shape "
            f"{shape}, a model for each node of this rank, as `node.start` is",
        )
    elif field == "x":
        held, here = getattr(state.x, "keys", list)(), list(place.fabric.hosted)
        require(
            sorted(held) == here,
            f"{made} whose x is {called(state.x)} for {', '.join(map(str, held)) or 'no party'}; needed: a dict with "
            f"an array for each party of this rank, {', '.join(map(str, here))}, as `seat.fabric.hosted` lists them",
        )
    return state


def stepped(algorithm: Any, k: int, before: Any, place: Any) -> Any:
    """The k-th state, refused in one line when it is none."""
    after = algorithm.step(k, before, place)
    if type(after) is not type(before):
        what, kind = type(algorithm).__name__, type(before).__name__
        raise InputError(
            f"{what}.step returned {called(after)} at iteration {k}; needed: the next {kind}, like the first; write"
            f"\n\n        return {kind}({', '.join(before._fields)})"
        )
    return after


def names(family: str = "graph") -> list[str]:
    """Every registered algorithm of a family, the built-in ones first."""
    own = _MODULES[family]
    return [*own, *(name for name in _REGISTERED[family] if name not in own)]


def spelled(name: str, known: Iterable[str]) -> str:
    """`name` as it is `known`, whatever the case it was typed in."""
    known = [*known]
    return name if name in known else next((each for each in known if each.lower() == name.lower()), name)


def find(name: str, family: str = "graph") -> Entry:
    """The algorithm registered as `name`, or the one that the file `name` (ending in .py) registers."""
    require(
        isinstance(name, str),
        f"the algorithm is {called(name)}; needed: its name, or a file of yours ending in .py",
    )
    if name.endswith(".py"):
        return _from_file(Path(name), family)
    name, known = spelled(name, names(family)), _REGISTERED[family]
    if name not in known and name in _MODULES[family]:
        importlib.import_module(_MODULES[family][name])
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name.lower().replace("-", ""), names(family), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"no algorithm {name!r}; {hint}known: {', '.join(names(family))}, or a file of yours ending in .py"
        )
    return known[name]


_OF_FILES: dict[tuple[str, str], list[Entry]] = {}  # what each file registered when it was read


def _from_file(path: Path, family: str) -> Entry:
    if not path.is_file():
        raise InputError(
            f"no file {path}; --algorithm takes a name ({', '.join(names(family))}) or a Python file"
        )
    import importlib.util
    import zlib

    module = f"distadmm_user_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[module])
        except BaseException as error:
            del sys.modules[module]
            if isinstance(error, SyntaxError):
                raise InputError(f"{error.filename}, line {error.lineno}: {error.msg}; mend it") from None
            raise
    found = [e for e in _REGISTERED[family].values() if e.cls.__module__ == module]
    found = _OF_FILES.setdefault((module, family), found)  # another file may have taken its name since
    require(
        found,
        f"{path} registers no algorithm of the family {family!r}; write above its dataclass\n\n"
        f"    @distadmm.register('name', family={family!r})",
    )
    return found[-1]._replace(file=str(path))
