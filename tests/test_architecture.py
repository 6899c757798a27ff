"""Imports point one way, start-up stays light, and every name the command line offers exists."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

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


ONLY = {
    "networkx": {"distadmm.graphs.topology", "distadmm.graphs"},
    "mpi4py": {
        "distadmm.ranks.world",
        "distadmm.ranks.graph_network",
        "distadmm.ranks.star",
        "distadmm.run.directory",
        "distadmm.ranks.waiting",
    },
}


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


LOWER = [
    name
    for name in MODULES
    if name.startswith(("distadmm.methods.consensus", "distadmm.problems.losses", "distadmm.problems.newton"))
]
UPPER = (
    "cli_only",
    "run",
    "rundir",
    "results",
    "checkpoint",
    "progress",
    "radmm",
    "setup",
    "observe",
    "protect",
    "reproduce",
)


@pytest.mark.parametrize(
    "name",
    [
        *LOWER,
        "distadmm.problems.consensus",
        "distadmm.ranks.graph_network",
        "distadmm.algorithm",
        "distadmm.ranks.conditions",
    ],
)
def test_algorithms_know_nothing_of_files_clocks_flags_or_plots(name: str) -> None:
    """`distadmm.flags.flag` makes a dataclass field a flag, and is all that they may know of the command line."""
    found = imports_of(MODULES[name], anywhere=True)
    assert not {
        top for top in UPPER if any(f"distadmm.{top}" == i or i.startswith(f"distadmm.{top}.") for i in found)
    }
    assert not found & {"pathlib.Path", "csv", "logging"} - (
        {"pathlib.Path"} if name == "distadmm.algorithm" else set()
    )
    assert not any(i.startswith("distadmm.flags.") and i != "distadmm.flags.flag" for i in found)


def test_reports_know_run_directories_alone() -> None:
    allowed = {
        "cli",
        "config",
        "errors",
        "results",
        "rounding",
        "structs",
        "world",
        "report_runs",
        "report_page",
    }
    for name in (
        "distadmm.commands.report",
        "distadmm.commands.report_runs",
        "distadmm.commands.report_page",
    ):
        found = {
            i.split(".")[1] for i in imports_of(MODULES[name], anywhere=True) if i.startswith("distadmm.")
        }
        assert found <= allowed, name


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


def test_a_rank_starts_without_heavy_imports() -> None:
    """What a rank other than 0 imports before its first iteration."""
    code = (
        "import sys, distadmm.radmm, distadmm.methods.consensus.recycled\n"
        "heavy = {'networkx', 'matplotlib', 'scipy', 'argparse', 'pandas', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
