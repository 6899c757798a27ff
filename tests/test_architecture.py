"""Imports point one way, start-up stays light, and every name the command line offers exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

import distadmm
from distadmm.__main__ import VERBS

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
    "distadmm.ranks.graph_network:Roster": "indptr indices owner",
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


def test_a_schedule_is_worked_out_once_and_not_looked_up_again() -> None:
    """What a private run reserves is a field of its plan: a property would price it anew at every look."""
    from distadmm.methods.consensus.private import Plan
    from distadmm.methods.gossip.private import Plan as Gossip

    for plan in (Plan, Gossip):
        assert {"recipe", "node", "releases", "events"} <= {each.name for each in dataclasses.fields(plan)}


def test_both_families_have_the_fabric_that_the_loop_knows() -> None:
    from distadmm.ranks.graph_network import Network, Roster
    from distadmm.ranks.star import Star
    from distadmm.run.loop import Fabric

    line = Roster.alone(np.array([0, 1, 2]), np.array([1, 0]))
    for fabric in (Network(line), Star(parties=2)):
        known = {name for name in vars(Fabric) if not name.startswith("_")}
        assert known == {"absent", "begin", "close"}
        for name in known | {"memory", "restore"}:
            assert hasattr(fabric, name), (fabric, name)
        assert fabric.absent is None
        assert fabric.guard is None  # type: ignore[attr-defined]  # it is given one; ranks know no ledger
        fabric.begin(1)
        fabric.close()


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
