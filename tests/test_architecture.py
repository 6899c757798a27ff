"""Imports point one way, start-up stays light, and every name the command line offers exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distadmm
from distadmm.__main__ import VERBS
from distadmm.errors import InputError

HOME = Path(distadmm.__file__).parent
MODULES = {
    "distadmm." + ".".join(path.relative_to(HOME).with_suffix("").parts): path
    for path in sorted(HOME.rglob("*.py"))
    if "topologies" not in path.parts
}


def imports_of(path: Path, *, anywhere: bool) -> set[str]:
    """Modules that a file imports, at its top or anywhere in it."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if anywhere else ast.iter_child_nodes(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def uses(path: Path, package: str, *, anywhere: bool = True) -> bool:
    return any(
        name == package or name.startswith(package + ".") for name in imports_of(path, anywhere=anywhere)
    )


ONLY = {  # who may import it, wherever in the file
    "networkx": ("distadmm.graphs",),
    "mpi4py": ("distadmm.ranks",),
    "matplotlib": ("distadmm.graphs.figures", "distadmm.graphs.draw"),
}

# The rooms from the top of the house down: nobody imports from above, not even inside a function.
ORDER = (
    *("papers", "commands", "audit", "entries", "methods", "run", "privacy.noise", "privacy.ledger"),
    *("privacy.accounting", "data", "problems", "graphs", "ranks", "tools"),
)
ENTRIES = {"radmm", "sharing", "ias", "funnel", "istdp", "estimators", "testing"}
TOOLS = {"errors", "structs", "files", "flags", "algorithm", "node"}
TOP_MODULES, TOP_FOLDERS = 14, 11
# Edges that still point upwards, each to go; none may be added.
UPWARDS: set[tuple[str, str]] = set()


def room(name: str) -> int:
    """How far down the house a module stands."""
    parts = name.split(".")
    if parts[0] == "privacy" and len(parts) > 2:
        return ORDER.index(f"privacy.{parts[1]}")
    if len(parts) > 1:
        return ORDER.index(parts[0]) if parts[0] in ORDER else ORDER.index("entries")
    return ORDER.index("tools" if name in TOOLS else "entries")


def edges(name: str) -> set[str]:
    """The modules of ours that a module imports when it runs, at its top or inside a function."""
    tree = ast.parse(MODULES[name].read_text())
    typing = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in typing:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
    return {module for module in found if module in MODULES and module != name}


def test_imports_point_one_way() -> None:
    upwards = set()
    for name in MODULES:
        short = name.removeprefix("distadmm.")
        if short in ("__main__", "__init__") or short.endswith(".__init__"):
            continue
        for target in edges(name):
            there = target.removeprefix("distadmm.")
            if room(there) < room(short):
                upwards.add((short, there))
    assert upwards == UPWARDS


def test_the_top_has_few_doors() -> None:
    modules = {path.stem for path in HOME.glob("*.py")}
    folders = {path.name for path in HOME.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert len(modules) <= TOP_MODULES, modules
    assert len(folders) <= TOP_FOLDERS, folders
    assert modules - {"__init__", "__main__"} <= ENTRIES | TOOLS


def test_folders_say_what_they_hold_and_do_nothing() -> None:
    """`__init__` files hold a docstring only, so that a rank loads what it uses and nothing else."""
    for path in HOME.rglob("__init__.py"):
        if path.parent != HOME:
            (only,) = ast.parse(path.read_text()).body
            assert isinstance(only, ast.Expr), path


# The values that rooms hand to each other: where each is made, and what it says.
VALUES = {
    "distadmm.privacy.noise.seal:Seal": "node round purpose event digest dtype shape uses",
    "distadmm.privacy.accounting.trust:Trust": "colluding",
    "distadmm.privacy.accounting.scopes:Hypothesis": "name by",
    "distadmm.privacy.accounting.statements:Statement": (
        "kind reading text epsilon delta adjacency published assumptions unverified declared listed would_be "
        "not_covered"
    ),
    "distadmm.algorithm:Planned": "k quadratic factor",
    "distadmm.privacy.ledger.schedules:Committed": "events beside",
    "distadmm.privacy.ledger.schedules:Filtered": "candidates budget rest beside",
    "distadmm.ranks.graph_network:Roster": "indptr indices owner hosts",
    "distadmm.methods.forecasts:Forecast": "of excesses made_of unlike above",
    "distadmm.data.public:Fact": "value source why",
    "distadmm.data.public:PublicFacts": "classes columns bounds norm mappings deal reader",
    "distadmm.run.model:Model": "path told held",
}


@pytest.mark.parametrize("name", VALUES)
def test_what_rooms_hand_to_each_other_is_a_value_that_nobody_changes(name: str) -> None:
    module, _, kind = name.partition(":")
    made = getattr(importlib.import_module(module), kind)
    names = getattr(made, "_fields", None) or tuple(each.name for each in dataclasses.fields(made))
    assert names == tuple(VALUES[name].split())
    one = made(*range(len(names)))
    with pytest.raises(AttributeError):
        setattr(one, names[0], None)


_MADE = {  # one run of every kind of private release, in secure noise, whose rows stand in an account
    "radmm": ("radmm", "--iterations 4 --topology er5"),
    "gossip": ("radmm", "--algorithm gossip --iterations 4 --topology er5 --trust any"),
    "masked": ("radmm", "--algorithm masked --topology er5 --trust coalition:2 --anyway"),
    "v1": ("sharing", "--parties 2 --mechanism v1"),
    "s2": ("sharing", "--parties 2 --mechanism s2 --rounds 2"),
    "istdp": ("istdp", "--iterations 4"),
}


@pytest.mark.parametrize("name", _MADE)
def test_a_schedule_is_a_value_and_the_one_by_which_ledgers_are_charged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the account is told is what is reserved, or admitted by a filter, and nothing made anew."""
    from distadmm.privacy.ledger.schedules import Committed, Filtered
    from distadmm.privacy.ledger.tally import schedule_hash
    from distadmm.run import spending

    monkeypatch.setenv("DISTADMM_ACCOUNT", str(tmp_path / "account"))
    told: list[Committed | Filtered] = []
    enter = spending.enter

    def noting(
        run: object,
        account: object,
        ledgers: object,
        schedules: list[Committed | Filtered],
        *more: object,
        **how: object,
    ) -> None:
        told.extend(schedules)
        enter(run, account, ledgers, schedules, *more, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(spending, "enter", noting)
    programme, flags = _MADE[name]
    words = f"--data tiny --epsilon 8 --delta 1e-5 --out {tmp_path / 'run'} {flags}"
    words += " --neighbours replace" if programme == "sharing" else " --adjacency replace"
    assert importlib.import_module(f"distadmm.{programme}").main(words.split()) == 0
    assert told
    hashes = {schedule_hash(each.events) for each in told if isinstance(each, Committed) and each.events}
    for path in sorted((tmp_path / "run" / "ledger").glob("*.jsonl")):
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        reserved = [entry["schedule"] for entry in entries if entry["kind"] == "commit"]
        if isinstance(told[0], Committed):
            assert len(reserved) == 1
            assert set(reserved) <= hashes
        else:
            assert not reserved
            assert told[0].budget is not None
            assert entries[0]["budget"] == told[0].budget.to_json()
            charged = [entry["mech"] for entry in entries if entry["kind"] == "charge"]
            assert len(charged) == len(told[0].candidates)
            assert set(charged) == {event.mech for event in told[0].candidates}


@pytest.mark.parametrize(
    ("name", "flags", "tells"),
    [
        ("radmm", {}, True), ("radmm", {"eta": "3"}, False), ("gossip", {"trust": "any"}, True),
        ("masked", {"trust": "coalition:2", "anyway": True}, True),
    ],
)  # fmt: skip
def test_every_house_forecasts_by_one_value_and_shows_it(
    name: str, flags: dict[str, Any], tells: bool
) -> None:
    """What `--dry-run` shows; where nobody can tell, nothing is said."""
    from distadmm import radmm
    from distadmm.ranks.world import World
    from distadmm.run.setup import prepare

    shared = {"data": "tiny", "topology": "er5", "epsilon": 8.0, "adjacency": "replace", "progress": "none"}
    prepared = prepare(radmm.configure(name, **shared, **flags), World())
    plan = radmm.PROGRAMME.price(prepared)
    assert plan is not None
    found = plan.forecast()
    assert found.tells == tells
    assert (0 < found.excess < 10) == tells
    lines = [
        line for line in radmm.PROGRAMME.outlook(prepared, plan).splitlines() if line.startswith("forecast ")
    ]
    assert lines == [f"forecast   {found.words}"] * tells


def _fabrics() -> dict[str, Any]:
    from distadmm.methods.istdp.release import Desk
    from distadmm.ranks.graph_network import Network, Roster
    from distadmm.ranks.star import Star
    from distadmm.ranks.tree import Tree

    network = Network(Roster.alone(np.array([0, 1, 2]), np.array([1, 0])))
    return {"graph": network, "tree": Tree(network), "star": Star(parties=2), "nobody": Desk.fabric}


@pytest.mark.parametrize("name", ["graph", "tree", "star", "nobody"])
def test_every_fabric_is_the_one_that_the_loop_knows(name: str) -> None:
    """What all share is written once: who may leave, and what a loss does, no fabric says in words of its own."""
    from distadmm.ranks.fabric import Fabric, Lost

    fabric = _fabrics()[name]
    assert isinstance(fabric, Fabric)
    assert fabric.guard is None  # it is given one; ranks know no ledger
    assert not {"send", "on_loss"} & {word for kind in type(fabric).__mro__[:-2] for word in vars(kind)}
    fabric.restore(fabric.memory())
    fabric.begin(1)
    assert fabric.absent is None
    seen = []
    fabric.guard = lambda kind, rows, seal, member: seen.append((kind, rows.dtype.str, seal, member))
    words = np.array([1.0, 2.0])
    assert fabric.send("row", words, np.float32, "seal", member=1, size=2).tolist() == [1.0, 2.0]
    assert seen == [("row", "<f4", "seal", 1)]
    with pytest.raises(
        InputError, match="has 2 numbers, and its receiver waits for 3; nothing of it was sent"
    ):
        fabric.send("row", words, size=3)
    assert len(seen) == 1
    with pytest.raises(Lost, match=r"(node|party) 1.* is lost, and every one is needed"):
        fabric.on_loss(1)
    fabric.survives = True
    fabric.on_loss(1)
    assert fabric.lost == {1}
    fabric.close()


@pytest.mark.parametrize("name", ["graph", "tree", "root", "star", "centre"])
def test_what_a_guard_forbids_does_not_leave(name: str) -> None:
    made = _fabrics()
    fabric = made[{"root": "tree", "centre": "star"}.get(name, name)]

    def no(kind: str, rows: np.ndarray, seal: object, member: int | None) -> None:
        raise InputError("it may not leave")

    getattr(fabric, "network", fabric).guard = no
    rows, before = np.ones((2, 3)), repr(fabric.traffic)
    leave = {
        "graph": lambda: fabric.neighbour_sum(rows), "tree": lambda: fabric.sum(rows),
        "root": lambda: fabric.down(rows[0], 3, float), "star": lambda: fabric.up({1: rows[0], 2: rows[1]}, 3),
        "centre": lambda: fabric.down(rows[0], 3),
    }  # fmt: skip
    with pytest.raises(InputError, match="it may not leave"):
        leave[name]()
    assert repr(fabric.traffic) == before


def test_of_whom_nothing_comes_is_named_by_who_waits_and_then_out() -> None:
    """The watchdog hears of the silent at half its time; where it is not there to end the job, they are out."""
    from distadmm.ranks.fabric import Awaited, Lost

    class Message:
        def __init__(self, there: bool):
            self.Test = lambda: there

    for name, who in (("graph", "node 1 (rank 0)"), ("star", "party 1 (rank 0 on host ")):
        fabric, told = _fabrics()[name], list[str]()
        dog = fabric.world.dog
        dog.misses = told.append
        late = Awaited(fabric, [(Message(True), [0]), (Message(False), [1])])
        late(1e9)  # nobody is watched
        dog.timeout = 2.0
        dog.enter("iterating")
        late(0.9)
        assert not told
        late(2.9)
        assert len(told) == 1
        assert told[0].startswith(who)
        dog.enter("reading rows")  # where others may work for long
        late(1e9)
        dog.enter("iterating")
        with pytest.raises(
            Lost, match=r"1 \(rank 0.*has been silent for 3 s to rank 0 .*, and every one is needed"
        ):
            late(3.1)


def test_a_fabric_that_lacks_something_is_refused_with_the_line_to_write() -> None:
    from types import SimpleNamespace

    from distadmm.ranks.fabric import require_fabric

    class Pigeons:
        def begin(self, k: int) -> None: ...

    with pytest.raises(InputError) as refused:
        require_fabric(SimpleNamespace(fabric=Pigeons()))
    assert (
        "a Pigeons without guard, traffic, survives, lost, absent, send, memory, restore, named, on_loss, close"
        in str(refused.value)
    )
    assert "class Pigeons(distadmm.ranks.fabric.Fabric):" in str(refused.value)


def test_an_algorithm_survives_a_loss_only_where_messages_do() -> None:
    from distadmm.algorithm import register

    with pytest.raises(InputError, match="says that it survives a loss") as refused:

        @register("never")
        @dataclasses.dataclass(frozen=True)
        class Never:
            survives: typing.ClassVar[bool] = True

            def init(self, node: object) -> object: ...

            def step(self, k: int, st: object, node: object) -> object: ...

    assert "tree: ClassVar[bool] = True" in str(refused.value)


def test_a_roster_names_nodes_by_rank_and_host() -> None:
    from distadmm.ranks.graph_network import Roster

    nodes = np.arange(4), np.arange(3)
    roster = Roster(*nodes, np.array([0, 1, 1]), ("alpha", "beta"))
    assert roster.named([2, 0, 1]) == "node 0 (rank 0 on host alpha); nodes 1, 2 (rank 1 on host beta)"
    assert roster.named([9]) == ""


def test_statements_are_of_four_kinds_and_ends_have_one_code_each() -> None:
    from distadmm.privacy.accounting.statements import Kind
    from distadmm.run.ends import End, end_of, exit_code

    assert typing.get_args(Kind) == ("certificate", "conditional", "claimed", "unbounded")
    words = [end.word for end in End]
    assert len({*words}) == len(words)
    for end in End:
        ended = f"{end.word} 15" if end is End.SIGNAL else end.word
        assert end_of(ended) is end
        assert exit_code(ended) == end.value[1] + 15 * (end is End.SIGNAL)
        assert isinstance(end.value[2], bool)


def test_draws_belong_to_a_purpose_a_node_and_a_round() -> None:
    from distadmm.privacy.noise.sources import Simulation

    source = Simulation(7)
    drawn = {
        at: source.at(*at).words(3).tobytes()
        for at in ((0, 1, 1), (1, 1, 1), (0, 2, 1), (0, 1, 2))  # node, purpose, round
    }
    assert len({*drawn.values()}) == 4
    for at in reversed(drawn):  # whatever was drawn before
        assert source.at(*at).words(3).tobytes() == drawn[at]


MODULE_LINES, FUNCTION_LINES = 400, 70


@pytest.mark.parametrize("name", MODULES)
def test_modules_and_functions_stay_small(name: str) -> None:
    text = MODULES[name].read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    sizes = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert not {function: size for function, size in sizes.items() if size > FUNCTION_LINES}


@pytest.mark.parametrize("package", ONLY)
def test_only_the_modules_named_import_it(package: str) -> None:
    found = {name for name, path in MODULES.items() if uses(path, package)}
    strangers = {
        name for name in found if not any(name == a or name.startswith(a + ".") for a in ONLY[package])
    }
    assert not strangers


@pytest.mark.parametrize(
    "package", ["matplotlib", "networkx", "sklearn", "dp_accounting", "randomgen", "argparse"]
)
def test_nothing_imports_it_on_import(package: str) -> None:
    exempt = {"distadmm.estimators"}  # whose business is scikit-learn
    assert not {
        name for name, path in MODULES.items() if name not in exempt and uses(path, package, anywhere=False)
    }


MATHEMATICS = [
    name for name in MODULES if name.startswith(("distadmm.methods.consensus", "distadmm.problems"))
]
BEYOND = {"pathlib", "csv", "logging", "argparse", "distadmm.files"}
STILL = {  # what the run asks of them
    "distadmm.methods.consensus.private",
    "distadmm.methods.consensus.sizing",
    "distadmm.methods.consensus.words",
    "distadmm.methods.consensus.worth",
}


@pytest.mark.parametrize("name", [*MATHEMATICS, "distadmm.ranks.graph_network", "distadmm.ranks.conditions"])
def test_algorithms_know_nothing_of_files_clocks_flags_or_plots(name: str) -> None:
    """`distadmm.flags.flag` makes a dataclass field a flag, and is all that they may know of the command line."""
    found = imports_of(MODULES[name], anywhere=True)
    if name not in STILL:
        assert not found & BEYOND
        assert not any(i.startswith("distadmm.run") for i in found)
    assert not any(i.startswith("distadmm.flags.") and i != "distadmm.flags.flag" for i in found)


def test_reports_know_run_directories_alone() -> None:
    allowed = ("distadmm.flags", "distadmm.errors", "distadmm.files", "distadmm.structs", "distadmm.ranks")
    allowed += ("distadmm.run.kinds", "distadmm.run.config", "distadmm.privacy.accounting.statements")
    allowed += ("distadmm.commands.report", "distadmm.graphs.figures", "distadmm.run.history")
    for name in ("report", "report_runs", "report_page"):
        found = {i for i in edges(f"distadmm.commands.{name}")}
        assert {i for i in found if not i.startswith(allowed)} == set(), name


def test_no_pickle_anywhere() -> None:
    for name, path in MODULES.items():
        assert not imports_of(path, anywhere=True) & {"pickle", "dill", "cloudpickle", "shelve"}, name
        assert "allow_pickle=True" not in path.read_text(), name


def test_every_module_says_what_it_is() -> None:
    silent = [
        name
        for name, path in MODULES.items()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_module_and_help(verb: str, capsys) -> None:
    module = importlib.import_module(VERBS[verb][0])
    assert module.main(["--help"]) == 0
    assert len(capsys.readouterr().out) > 200


def test_noise_is_drawn_without_heavy_imports() -> None:
    """Every rank draws; only those that price need scipy."""
    code = (
        "import sys\n"
        "from distadmm.privacy.noise.mechanism import k_norm\n"
        "from distadmm.privacy.noise.protected import Protected\n"
        "from distadmm.privacy.noise.sources import Secure, Simulation\n"
        "for source in (Secure('urandom'), Simulation(1)):\n"
        "    stream = source.at(0, 1, 1)\n"
        "    k_norm(stream, 105, 1.0), stream.standard_normal(105)\n"
        "sys.exit('scipy was imported' if 'scipy' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_rank_starts_without_heavy_imports(mpiexec, tmp_path) -> None:
    """What a rank other than 0 has imported when its first iteration begins, and that it has started no process."""
    heavy = {
        "networkx",
        "matplotlib",
        "scipy",
        "argparse",
        "pandas",
        "sklearn",
        "numpy.random",
        "subprocess",
        "shutil",
    }
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from mpi4py import MPI\n"
        "import distadmm.run.loop\n"
        "from distadmm import radmm\n"
        "def go(loop, *given):\n"
        f"    found = {heavy!r} & set(sys.modules)\n"
        f"    Path({str(tmp_path)!r}, str(MPI.COMM_WORLD.rank)).write_text(' '.join(sorted(found)))\n"
        "    sys.stdout.flush()\n"
        "    MPI.COMM_WORLD.Barrier()\n"
        "    import os\n"
        "    os._exit(0)\n"
        "distadmm.run.loop.Loop.go = go\n"
        f"radmm.main(['--progress', 'none', '--iterations', '2', '--out', {str(tmp_path / 'run')!r}])\n"
    )
    command = [*mpiexec, "-n", "3", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert set(found) == {"0", "1", "2"}, done.stderr
    assert found["1"] == found["2"] == ""
