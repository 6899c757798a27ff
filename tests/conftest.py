"""One serial pytest runs everything: a test marked `mpi` is launched under a real mpiexec from here.

    @pytest.mark.mpi(min_size=2)              on 2, 4 and 5 ranks
    @pytest.mark.mpi(min_size=2, sizes=[20])  on 20

The body runs on every rank.  pytest-mpi, whose marker this is, would skip such tests silently when pytest
itself is not under mpiexec; here each launch must report from every rank that exactly this test ran and
passed, a rank that fails ends the launch and shows its own assertion, and a deadlock ends at a time limit.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# As the commands do, and before anything loads numpy: threads of BLAS cost time and change last bits.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

SIZES = (2, 4, 5)
TIMEOUT = 120.0
INNER = "DISTADMM_TEST_RANK_REPORTS"  # set inside a launch: the folder for the ranks' reports


if INNER not in os.environ:  # nothing is entered in the accounts of who runs the tests
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="distadmm-tests-")
    os.environ.pop("DISTADMM_ACCOUNT", None)
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_account(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test spends is entered in an account of its own."""
    if INNER not in os.environ:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


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
def shared_path(tmp_path: Path) -> Path:
    """One folder for all ranks of a launch."""
    return Path(os.environ[INNER]) if INNER in os.environ else tmp_path


@pytest.fixture
def mpiexec() -> list[str]:
    return mpiexec_command()


def mpiexec_command() -> list[str]:
    """The launcher that belongs to this Python's MPI."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = os.environ.get("DISTADMM_MPIEXEC") or (
        str(beside) if beside.exists() else shutil.which("mpiexec")
    )
    if not found:
        pytest.fail(
            "no mpiexec beside this Python or on PATH; install one with: pip install 'distadmm[mpich]'"
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout
    return [found, "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else [found]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("mpi") is None or INNER in os.environ:
        return None
    _launch(pyfuncitem)
    return True


def _launch(item: pytest.Function) -> None:
    size = item.callspec.params["mpi_ranks"]
    limit = item.get_closest_marker("mpi").kwargs.get("timeout", TIMEOUT)
    reports = item.funcargs["tmp_path_factory"].mktemp("mpi") if "tmp_path_factory" in item.funcargs else None
    reports = reports or item._request.getfixturevalue("tmp_path_factory").mktemp("mpi")
    command = [*mpiexec_command(), "-n", str(size), sys.executable, "-m", "pytest", "-q", "-x"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(item.config.rootpath), item.nodeid]
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
        late = ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        late = f"no end within {limit:g} s (a deadlock?)\n"
    found = {int(p.stem.split("-")[1]): json.loads(p.read_text()) for p in reports.glob("rank-*.json")}
    for rank, report in sorted(found.items()):
        if report["outcome"] != "passed":
            pytest.fail(f"rank {rank} of {size} {report['outcome']}:\n{report['text']}", pytrace=False)
    silent = [rank for rank in range(size) if rank not in found]
    if late or silent or process.returncode:
        what = f"{late}ranks without a report: {silent}; exit code {process.returncode}\n{output[-4000:]}"
        pytest.fail(what, pytrace=False)
    wrong = {report["nodeid"] for report in found.values()} - {item.nodeid}
    if wrong or any(report["count"] != 1 for report in found.values()):
        pytest.fail(
            f"the launch ran something else: {wrong or 'several tests'}\n{output[-4000:]}", pytrace=False
        )


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
    path = Path(os.environ[INNER]) / f"rank-{rank}.json"
    count = json.loads(path.read_text())["count"] + 1 if path.exists() else 1
    content = {
        "outcome": report.outcome,
        "text": str(report.longrepr or ""),
        "nodeid": item.nodeid,
        "count": count,
    }
    # Renamed when it is whole: another rank's Abort may end this one at any moment.
    path.with_suffix(".part").write_text(json.dumps(content))
    path.with_suffix(".part").replace(path)
    if not report.passed:
        MPI.COMM_WORLD.Abort(1)
