"""Hosts in network namespaces of this machine, joined by links of a given delay, rate and loss.  Needs root.

    with Hosts(3, latency=0.04, rate=1.25e6, loss=0.01) as hosts:
        hosts.mpiexec(20, "python", "-m", "distadmm.radmm")

Each host has a TUN device.  A relay, a process of its own, takes what leaves one host and hands it to another after
`latency`, no faster than `rate` into each host; what leaves a host is held to the same rate by `tc tbf`; packets are
lost by an nft rule of the host that they reach.  (netem would do the delay, but many kernels are built without it.)
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENTER = ROOT / "launch" / "hosts" / "enter"
DEVICE = "link0"
_PR_SET_PDEATHSIG = 1
_TUNSETIFF, _TUN, _NO_HEADER, _CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def missing(loss: bool = False) -> str:
    """Why there can be no hosts here; empty: there can."""
    if os.geteuid() != 0:
        return "network namespaces are root's"
    tools = [
        name for name in ("ip", "tc", "unshare", *(["nft"] if loss else [])) if shutil.which(name) is None
    ]
    if tools:
        return f"{tools[0]} is not installed"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    name = f"try{os.getpid()}"
    try:
        for command in (("ip", "netns", "add", name), ("tc", "-n", name, "qdisc", "add", "dev", "lo", "root",
                        "tbf", "rate", "1mbit", "burst", "2kb", "limit", "9kb")):  # fmt: skip
            tried = subprocess.run(command, capture_output=True, text=True)
            if tried.returncode:
                return f"{' '.join(command[:3])}: {tried.stderr.strip().splitlines()[0]}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


class Hosts:
    """So many hosts; `latency` one way in seconds, `rate` of each host's interface in bytes a second, each way."""

    def __init__(self, count: int, latency: float = 0.0, rate: float | None = None, loss: float = 0.0):
        self.latency, self.rate, self.loss = latency, rate, loss
        self.names = [f"l{os.getpid()}-{i}" for i in range(1, count + 1)]
        self._relay = 0

    def __enter__(self) -> "Hosts":
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # namespaces would stay
        try:
            for i, name in enumerate(self.names, 1):
                _do("ip", "netns", "add", name)
                folder = Path("/etc/netns") / name
                folder.mkdir(parents=True)
                known = [f"10.79.0.{j} {other}" for j, other in enumerate(self.names, 1)]
                (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known]) + "\n")
                inside = ("ip", "-n", name)
                _do(*inside, "tuntap", "add", "dev", DEVICE, "mode", "tun")
                _do(*inside, "addr", "add", f"10.79.0.{i}/24", "dev", DEVICE)
                _do(*inside, "link", "set", "lo", "up")
                # Reno: the kernel's default may be BBR, which spreads a message of several packets over time.
                _do("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
                if self.loss:
                    self._lose(name)
            self._relay = self._fork()
            for name in self.names:
                _do("ip", "-n", name, "link", "set", DEVICE, "txqueuelen", "2000", "up")
                if self.rate:
                    held = f"tbf rate {self.rate * 8:.0f}bit burst 3028 limit 4mb".split()
                    _do("tc", "-n", name, "qdisc", "replace", "dev", DEVICE, "root", *held)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._relay:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._relay, signal.SIGKILL)
                os.waitpid(self._relay, 0)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)

    def inside(self, host: int, *command: str) -> list[str]:
        """The words that run a command on a host."""
        return [str(ENTER), self.names[host], *command]

    def mpiexec(self, ranks: int, *command: str, **options: object) -> "subprocess.CompletedProcess[str]":
        """Ranks in blocks on the hosts, as the nodes of a graph are dealt to them."""
        each = [
            len(range(h * ranks // len(self.names), (h + 1) * ranks // len(self.names)))
            for h in range(len(self.names))
        ]
        hosts = ",".join(f"{name}:{many}" for name, many in zip(self.names, each))
        launcher = Path(sys.executable).with_name("mpiexec")
        words = ["env", f"UCX_NET_DEVICES={DEVICE}", "UCX_TLS=tcp,self", str(launcher), "-launcher", "ssh"]
        words += ["-launcher-exec", str(ENTER), "-hosts", hosts, "-n", str(ranks), *command]
        return subprocess.run(self.inside(0, *words), text=True, capture_output=True, **options)  # type: ignore[call-overload,no-any-return]

    def _lose(self, name: str) -> None:
        rule = f"numgen random mod 100000 < {round(self.loss * 1e5)} drop"
        table = f"table inet links {{ chain in {{ type filter hook input priority 0; iifname {DEVICE} {rule}; }}; }}"
        _do("ip", "netns", "exec", name, "nft", table)

    def _fork(self) -> int:
        ready, said = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                self._carry(said)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(said)
        if os.read(ready, 1) != b"1":
            raise RuntimeError("the relay between the namespaces did not start")
        os.close(ready)
        return child

    def _carry(self, said: int) -> None:
        """Take packets from each host and give them to the one they are for, when they are due."""
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # a packet is due when it is due
        with contextlib.suppress(PermissionError):  # some groups of processes may not
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        devices = {bytes((10, 79, 0, i)): _device(name) for i, name in enumerate(self.names, 1)}
        os.write(said, b"1")
        free = dict.fromkeys(devices, 0.0)
        waiting: list[tuple[float, int, bytes, bytes]] = []
        poll = select.poll()
        for device in devices.values():
            poll.register(device, select.POLLIN)
        number = 0
        while True:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, there, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):
                    os.write(devices[there], packet)
            pause = max(0.0, waiting[0][0] - time.monotonic()) * 1e3 if waiting else None
            for device, _ in poll.poll(pause):
                for _ in range(64):
                    try:
                        packet = os.read(device, 65536)
                    except BlockingIOError:
                        break
                    there = packet[16:20]
                    if packet[0] >> 4 == 4 and there in devices:
                        due = time.monotonic() + self.latency
                        if self.rate:
                            due = free[there] = max(due, free[there]) + len(packet) / self.rate
                        number += 1
                        heapq.heappush(waiting, (due, number, there, packet))


def _device(name: str) -> int:
    """The TUN device of a namespace, opened from outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{name}") as space:
        if libc.setns(space.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _TUN | _NO_HEADER))
    return device


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
