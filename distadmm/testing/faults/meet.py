"""A programme in which a rank meets a fault, at a place and a moment of its own.

    python -m distadmm.testing.faults.meet RANK FAULT WHERE CALL PROGRAMME FLAGS...

RANK    which rank meets it; several with commas
FAULT   SIGKILL or another signal; after `launcher:`, `proxy:`, `all:` or `child:` it is sent there instead
        doze:S, busy:S  sleeps, or burns a core, for so many seconds;  slow:S  sleeps at every call
        full:BYTES      no file grows beyond so many bytes;  read-only  the run directory cannot be written
        clock:S         the clock on the wall is set by so many seconds;  nan  a state loses its numbers
        cable           no packet reaches anybody (in a network namespace of the run's own)
        soon:S:FAULT    goes on, and meets it so many seconds later
        or an exception by name
WHERE   a phase of the shell, or module:name; the fault is met where that is called for the CALL-th time

With DISTADMM_TAP=FILE each rank writes down what leaves it (`tap.py`).
"""

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distadmm.flags import entering, value_of

entering("__main__")

PLACES = {
    "start-up": "distadmm.ranks.world:connect",
    "reading": "{}.prepare",
    "pricing": "{}.price",
    "set-up": "distadmm.run.directory:start",
    "solving": "{}.solve",
    "iterating": "distadmm.run.loop:stepped",
    "writing": "distadmm.run.directory:finish",
    "leaving": "distadmm.ranks.world:World.leave",
}


def folder_of(flags: list[str]) -> Path:
    return Path(value_of(flags, "--resume") or value_of(flags, "--out") or ".")


def meet(fault: str, folder: Path) -> None:
    kind, _, value = fault.partition(":")
    if kind == "soon":
        seconds, _, later = value.partition(":")
        threading.Timer(float(seconds), meet, (later, folder)).start()
    elif kind == "child":
        for pid in _children(os.getpid()):
            os.kill(pid, getattr(signal, value))
    elif kind in ("launcher", "proxy", "all"):
        _send(kind, getattr(signal, value))
    elif kind.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, kind))
    elif kind in SUFFERED:
        SUFFERED[kind](folder, float(value or 0))
    else:
        raise getattr(__import__("builtins"), kind)(f"{kind} by request")


def _send(whom: str, number: int) -> None:
    from distadmm.ranks import watch

    proxies = tuple(name for name in watch.STARTERS if name not in watch.LAUNCHERS)
    # A launcher may start its ranks itself.
    found = watch.ancestor(watch.LAUNCHERS if whom == "launcher" else proxies) or watch.ancestor(
        watch.LAUNCHERS
    )
    assert found is not None, "no launcher"
    if whom != "all":
        os.kill(found[0], number)
        return
    for pid in [*(pid for pid in _children(found[0]) if pid != os.getpid()), os.getpid()]:
        os.kill(pid, number)


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


def _busy(folder: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def _full(folder: Path, size: float) -> None:
    """As a full disk does, a write is cut where there is no more room, and the next one fails."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _read_only(folder: Path, _: float) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    _heed_permissions()


def _heed_permissions() -> None:
    """For root, who is above them: give up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(head, data)
    data[0] &= ~0b110
    libc.capset(head, data)


def _clock(folder: Path, seconds: float) -> None:
    plain = time.time
    time.time = lambda: plain() + seconds


def loopback(*, up: bool) -> None:
    """Of the network namespace this process is in."""
    import fcntl
    import socket
    import struct

    with socket.socket() as some:
        fcntl.ioctl(some, 0x8914, struct.pack("16sh14x", b"lo", int(up)))  # SIOCSIFFLAGS, IFF_UP


SUFFERED: dict[str, Callable[[Path, float], object]] = {
    **dict.fromkeys(("doze", "slow"), lambda folder, seconds: time.sleep(seconds)),
    **{"busy": _busy, "full": _full, "read-only": _read_only, "clock": _clock},
    "cable": lambda folder, _: loopback(up=False),
}


def spoilt(state: Any) -> Any:
    """A state of which one field has lost its numbers."""
    import numpy as np

    for name, value in state._asdict().items():
        if isinstance(value, dict) and value:
            member = next(iter(value))
            return state._replace(**{name: {**value, member: np.full_like(value[member], np.nan)}})
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim and len(value):
            spoiled = value.copy()
            spoiled[0] = np.nan
            return state._replace(**{name: spoiled})
    return state


def main(rank: str, fault: str, where: str, call: str, programme: str, *words: str) -> int:
    flags = list(words)
    module = importlib.import_module(f"distadmm.{programme}")
    kind = type(getattr(module, "PROGRAMME", None))
    place = PLACES.get(where, where).format(f"{kind.__module__}:{kind.__name__}")
    owner = importlib.import_module(place.partition(":")[0])
    *path, name = place.partition(":")[2].split(".")
    for part in path:
        owner = getattr(owner, part)
    plain, calls = getattr(owner, name), []
    from distadmm.ranks.launcher import place as place_of_rank

    here = str(place_of_rank()[0])
    if tap := os.environ.get("DISTADMM_TAP"):
        from distadmm.testing.faults import tap as taps

        taps.listen(Path(tap), folder_of(flags), alone=programme == "istdp")

    def faulty(*given: Any, **named: Any) -> Any:
        calls.append(1)
        mine = here in rank.split(",") and (fault.startswith("slow:") or len(calls) == int(call))
        if mine and fault != "nan":
            meet(fault, folder_of(flags))
        found = plain(*given, **named)
        return spoilt(found) if mine and fault == "nan" else found

    setattr(owner, name, faulty)
    return int(module.main(flags))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
