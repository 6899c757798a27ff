"""Lives of a run: started under a launcher or in a process of its own, waited for, and cleared away."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from distadmm.errors import require

MARK = "DISTADMM_FAULT"  # in the environment of every process of a life
_OURS = (b"python", b"mpiexec", b"mpirun", b"hydra", b"prte", b"orte")
_GRACE = 10.0  # seconds that processes of a job have to go when its launcher has


class Life(NamedTuple):
    code: int  # exit code; -n: the process that was waited for was killed by signal n
    said: str
    hung: bool = False
    orphans: int = 0  # processes that were left
    seconds: float = 0.0


@cache
def launcher() -> tuple[str, ...]:
    """The launcher that belongs to this Python's MPI; none: ranks cannot be started here."""
    beside = Path(sys.executable).with_name("mpiexec")
    usual = str(beside) if beside.exists() else shutil.which("mpiexec")
    found = os.environ.get("DISTADMM_MPIEXEC") or usual
    if not found:
        return ()
    open_mpi = any(name in _version(found) for name in ("open mpi", "openrte"))
    return (found, *(["--oversubscribe"] if open_mpi else []))


@cache
def why_no_cable() -> str:
    """Why no cable can be cut on this machine; empty where it can."""
    words = [*_IN_A_NETWORK_OF_ITS_OWN, "true"]
    for needed in ("unshare", "ip", "mount", "sh"):
        if shutil.which(needed) is None:
            return f"there is no command {needed}"
    version = _version(launcher()[0]) if launcher() else ""
    if "hydra" not in version or "intel" in version:
        return "ranks that pass over a network on one host are MPICH's alone"
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else f"no network namespace is to be had ({done.stderr.strip()[:80]})"


def _version(found: str) -> str:
    return subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60).stdout.lower()


# Ranks that speak TCP over an address of this host pass through its loopback: with it down, no packet arrives.
_IN_A_NETWORK_OF_ITS_OWN = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c"),
    "mount -t sysfs none /sys && ip link set lo up && ip link add v0 type veth peer name v1 && "
    'ip addr add 10.9.9.1/24 dev v0 && ip link set v0 up && ip link set v1 up && exec "$@"',
    "sh",
)
OVER_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "v0", "MPIR_CVAR_NOLOCAL": "1"}


def under_a_launcher(
    ranks: int, words: Sequence[str], limit: float, environment: Mapping[str, str], *, cable: bool = False
) -> Life:
    """`python words` on so many ranks."""
    missing = "no mpiexec beside this Python or on PATH; install one with: pip install 'distadmm[mpich]'"
    require(launcher(), missing)
    before = [*_IN_A_NETWORK_OF_ITS_OWN] * cable
    command = [*before, *launcher(), "-n", str(ranks), sys.executable, *words]
    return started(command, limit, {**environment, **(OVER_TCP if cable else {})})


def started(command: Sequence[str], limit: float, environment: Mapping[str, str]) -> Life:
    mark, said = os.urandom(8).hex(), _Pipe()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=said.end, stderr=said.end, start_new_session=True,
        env={**os.environ, **environment, MARK: mark}, preexec_fn=_heed_ctrl_c,
    )  # fmt: skip
    began, hung = time.monotonic(), False
    while process.poll() is None and not hung:
        said.listen()
        time.sleep(0.01)
        hung = time.monotonic() - began > limit
    orphans = _cleared(mark, 0.0 if hung else _GRACE)
    if hung:
        process.kill()
        process.wait()
    return Life(process.returncode, said.close(), hung, 0 if hung else orphans, time.monotonic() - began)


def _heed_ctrl_c() -> None:
    """A shell's background has it ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Pipe:
    """What a life says; not a file, which a full disk would cut."""

    def __init__(self) -> None:
        self._mine, self.end = os.pipe()
        os.set_blocking(self._mine, False)
        self._heard = b""

    def listen(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._mine, 1 << 16):
                self._heard += more

    def close(self) -> str:
        self.listen()
        os.close(self._mine)
        os.close(self.end)
        return self._heard.decode(errors="replace")


def _alive(mark: str) -> list[int]:
    """Processes of ours with that mark."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted not in folder.joinpath("environ").read_bytes():
                continue
            state = folder.joinpath("stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and folder.joinpath("comm").read_bytes().startswith(_OURS):
                found.append(int(folder.name))
        except OSError:  # it has ended meanwhile, or is another user's
            continue
    return found


def _cleared(mark: str, grace: float) -> int:
    """How many processes were left when their time was over; none is left now."""
    end = time.monotonic() + grace
    while (left := _alive(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


class Fork:
    """A life of one rank in a fork of this process, which has everything loaded already."""

    def __init__(self, work: Callable[[], int], environment: Mapping[str, str]):
        self._said, self._began = _Pipe(), time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(work, environment)

    def _live(self, work: Callable[[], int], environment: Mapping[str, str]) -> None:
        code = 1
        try:
            _heed_ctrl_c()
            os.environ.update(environment)
            for number in (1, 2):
                os.dup2(self._said.end, number)
            sys.stdout = os.fdopen(os.dup(1), "w")
            sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
            code = work()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def wait(self, limit: float) -> Life:
        hung = False
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._said.listen()
            if done:
                break
            if time.monotonic() - self._began > limit and not hung:
                hung = True
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)
        code = os.waitstatus_to_exitcode(status)
        return Life(code, self._said.close(), hung, 0, time.monotonic() - self._began)
