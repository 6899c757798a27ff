"""One serial pytest runs everything: a test marked `mpi` is launched under a real mpiexec from here.

    @pytest.mark.mpi(min_size=2)              on 2, 4 and 5 ranks
    @pytest.mark.mpi(min_size=2, sizes=[20])  on 20

The body runs on every rank.  pytest-mpi, whose marker this is, would skip such tests silently when pytest
itself is not under mpiexec; here each launch must report from every rank that exactly this test ran and
passed, a rank that fails ends the launch and shows its own assertion, and a deadlock ends at a time limit.

Starting the ranks takes longer than most tests: those of one file and size share a launch.  What did not pass there on
every rank is launched again, alone, and that is its verdict.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# As the commands do, and before anything loads numpy: threads of BLAS cost time and change last bits.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

SIZES = (2, 4, 5)
TIMEOUT = 120.0
INNER = "DISTADMM_TEST_RANK_REPORTS"  # set inside a launch: the folder for the ranks' reports
_TOGETHER = pytest.StashKey[dict[str, list[str]]]()  # a test, and those that can share its launch
_PASSED, _ALONE = pytest.StashKey[set[str]](), pytest.StashKey[set[str]]()


if INNER not in os.environ:  # nothing is entered in the accounts of who runs the tests
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="distadmm-tests-")
    os.environ["DISTADMM_PRICES"] = os.path.join(os.environ["XDG_STATE_HOME"], "prices")
    os.environ.pop("DISTADMM_ACCOUNT", None)
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_account(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """What a test spends is entered in an account of its own."""
    state = tmp_path_factory.mktemp("state") if INNER not in os.environ else _place(request) / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))


@pytest.fixture(autouse=True)
def _own_algorithms() -> Iterator[None]:
    """What a test registers, from a file or by itself, is no choice of the tests after it."""

    def registered() -> dict[str, dict[str, Any]]:
        algorithm = sys.modules.get("distadmm.algorithm")
        return algorithm._REGISTERED if algorithm else {}

    before = {family: dict(table) for family, table in registered().items()}
    yield
    for family, table in registered().items():
        known = before.get(family, {})
        for name in [name for name, entry in table.items() if entry.file and known.get(name) is not entry]:
            del table[name]
        table.update(known)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        default=None,
        metavar="PLACE",
        help="replay every reference vector file in this folder, or this file",
    )
    parser.addoption("--long", action="store_true", help="the slow tests as well")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "mpi(min_size, sizes=(2, 4, 5), timeout=120): run the body on every rank of a real mpiexec"
    )
    config.addinivalue_line(
        "markers", "slow: minutes; left out unless asked for with --long, or alone with -m slow"
    )
    if config.getoption("--long"):
        config.option.markexpr = ""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("mpi")
    if marker is None:
        return
    least = marker.kwargs.get("min_size", 1)
    sizes = [size for size in marker.kwargs.get("sizes", SIZES) if size >= least]
    assert sizes, f"{metafunc.definition.name}: no launch size is as large as min_size={least}"
    metafunc.fixturenames.append("mpi_ranks")
    metafunc.parametrize("mpi_ranks", sizes, ids=[f"ranks{size}" for size in sizes])


@pytest.fixture
def mpi_ranks(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def world():
    """The ranks of this launch."""
    from distadmm.ranks.world import connect

    return connect()


@pytest.fixture
def shared_path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """One folder for all ranks of a test."""
    return _place(request) if INNER in os.environ else tmp_path


def _place(request: pytest.FixtureRequest) -> Path:
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    folder = Path(os.environ[INNER]) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def mpiexec() -> list[str]:
    return mpiexec_command()


def mpiexec_command() -> list[str]:
    """The launcher that belongs to this Python's MPI."""
    from distadmm.testing.faults.lives import launcher

    if not launcher():
        pytest.fail(
            "no mpiexec beside this Python or on PATH; install one with: pip install 'distadmm[mpich]'"
        )
    return list(launcher())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("mpi") is None or INNER in os.environ:
        return None
    _launch(pyfuncitem)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    groups: dict[tuple[Path, int], list[str]] = {}
    for item in items:
        if item.get_closest_marker("mpi") is not None:
            groups.setdefault((item.path, item.callspec.params["mpi_ranks"]), []).append(item.nodeid)  # type: ignore[attr-defined]
    config.stash[_TOGETHER] = {nodeid: group for group in groups.values() for nodeid in group}
    config.stash[_PASSED], config.stash[_ALONE] = set(), set()


def _launch(item: pytest.Function) -> None:
    stash, nodeid = item.config.stash, item.nodeid
    group = stash[_TOGETHER][nodeid]
    rest = group[group.index(nodeid) :]
    if nodeid not in stash[_PASSED] and nodeid not in stash[_ALONE] and len(rest) > 1:
        _launch_together(item, rest)
    if nodeid not in stash[_PASSED]:
        _launch_alone(item)


def _launch_together(item: pytest.Function, nodeids: list[str]) -> None:
    """Note which of these passed on every rank; the first that did not is to be launched alone."""
    size = item.callspec.params["mpi_ranks"]
    found, _, failed = _run(item, nodeids, TIMEOUT + 10 * len(nodeids))
    for nodeid in nodeids:
        outcomes = [report["outcome"] for report in found if report["nodeid"] == nodeid]
        if outcomes != ["passed"] * size or (failed and nodeid == nodeids[-1]):
            item.config.stash[_ALONE].add(nodeid)
            return
        item.config.stash[_PASSED].add(nodeid)


def _launch_alone(item: pytest.Function) -> None:
    size = item.callspec.params["mpi_ranks"]
    limit = item.get_closest_marker("mpi").kwargs.get("timeout", TIMEOUT)
    found, output, failed = _run(item, [item.nodeid], limit)
    for report in found:
        if report["outcome"] != "passed":
            pytest.fail(
                f"rank {report['rank']} of {size} {report['outcome']}:\n{report['text']}", pytrace=False
            )
    silent = sorted(set(range(size)) - {report["rank"] for report in found})
    if silent or failed:
        pytest.fail(f"{failed}; ranks without a report: {silent}\n{output[-4000:]}", pytrace=False)
    wrong = {report["nodeid"] for report in found} - {item.nodeid}
    if wrong or len(found) != size:
        pytest.fail(
            f"the launch ran something else: {wrong or 'several tests'}\n{output[-4000:]}", pytrace=False
        )


def _run(item: pytest.Function, nodeids: list[str], limit: float) -> tuple[list[dict[str, Any]], str, str]:
    """The ranks' reports in the order of ranks, what the launch printed, and how it failed."""
    size = item.callspec.params["mpi_ranks"]
    reports = item._request.getfixturevalue("tmp_path_factory").mktemp("mpi")
    command = [*mpiexec_command(), "-n", str(size), sys.executable, "-m", "pytest", "-q", "-x", "-m", ""]
    command += ["-p", "no:cacheprovider", "--rootdir", str(item.config.rootpath), *nodeids]
    vectors = item.config.getoption("--vectors")
    command += ["--vectors", vectors] if vectors else []
    environment = {**os.environ, INNER: str(reports), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=item.config.rootpath,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
        failed = f"exit code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        failed = f"no end within {limit:g} s (a deadlock?)"
    found = [json.loads(path.read_text()) for path in reports.glob("rank-*.json")]
    return sorted(found, key=lambda report: report["rank"]), output, failed


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    outcome = yield
    if INNER not in os.environ or item.get_closest_marker("mpi") is None:
        return
    report = outcome.get_result()
    if report.when == "call" or not report.passed:
        _report_rank(item, report)


def _report_rank(item: pytest.Item, report: pytest.TestReport) -> None:
    """Leave this rank's result for the launching pytest; a failing rank ends the others too."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    folder = Path(os.environ[INNER])
    number = len(list(folder.glob(f"rank-{rank}-*.json")))
    path = folder / f"rank-{rank}-{number}.json"
    content = {
        "rank": rank,
        "outcome": report.outcome,
        "text": str(report.longrepr or ""),
        "nodeid": item.nodeid,
    }
    # Renamed when it is whole: another rank's Abort may end this one at any moment.
    path.with_suffix(".part").write_text(json.dumps(content))
    path.with_suffix(".part").replace(path)
    if not report.passed:
        MPI.COMM_WORLD.Abort(1)
