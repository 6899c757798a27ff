"""What the ledger and the noise cost.

    export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    python benchmarks/ledger.py                          one process: charges, files, samplers
    mpiexec -n 20 python benchmarks/ledger.py --ranks    their share of an iteration of private R-ADMM

With --out FILE the numbers are written as JSON.  All ratios compare things measured in turn in one run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from distadmm import radmm
from distadmm.files import write_json
from distadmm.methods.consensus import private as protect
from distadmm.privacy.accounting.events import Pure
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.file import Ledger, path_of
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.ledger.shelf import Shelf
from distadmm.privacy.noise.discrete import discrete_gaussian
from distadmm.privacy.noise.mechanism import Noise, Secure, Simulation, k_norm
from distadmm.privacy.noise.protected import Protected
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import Logistic
from distadmm.ranks.world import World, connect
from distadmm.run import directory as rundir
from distadmm.run.loop import Course, Loop
from distadmm.run.observe import Observer
from distadmm.run.setup import prepare

EVENT = ObjectivePerturbation("gamma", 105, 1.0, 0.2, 0.25, 8.2)
ROUNDS = 9


def in_turn(cases: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Microseconds a call: the best of the rounds, in each of which every case has its turn."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, call in cases.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            times[name].append((time.perf_counter() - start) / repeats * 1e6)
    return {name: min(found) for name, found in times.items()}


def ledger_costs(folder: Path) -> dict[str, float]:
    """Microseconds of each operation of a ledger on disk."""
    book = Ledger(folder, 0, adjacency="replace", mode="secure")
    shelf = Shelf(folder / "shelf", range(1000))
    shelf.each(lambda ledger, _: ledger.begin(run="run", adjacency="replace", mode="secure"))
    many = shelf[1]
    memory = MemoryLedger(2, adjacency="replace", mode="secure")
    for each in (book, many, memory):
        each.commit([replace(EVENT, count=10**6)])
    payload = bytes(840)
    plain = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    raw = b"x" * 250
    found = in_turn(
        {
            "charge under a schedule": lambda: book.charge(EVENT, iteration=1),
            "the same, one of 1,000 nodes in one file": lambda: many.charge(EVENT, iteration=1),
            "the same, in memory": lambda: memory.charge(EVENT, iteration=1),
            "post line": lambda: book.post(iteration=2),
            "keep 840 sent bytes": lambda: book.store_release(1, payload),
            "(write of 250 bytes alone)": lambda: os.write(plain, raw),
        },
        300,
    )
    synced = in_turn(
        {
            "charge of its own, synced": lambda: book.charge(Pure(0.1), iteration=1),
            "(write and fdatasync alone)": lambda: (os.write(plain, raw), os.fdatasync(plain)),
        },
        20,
    )
    os.close(plain)
    book.close()
    start = time.perf_counter()
    entries = len(chain.read(path_of(folder, 0)).entries)
    found |= synced | {"read and verify an entry": (time.perf_counter() - start) / entries * 1e6}
    return found


def sampler_ratios(n: int = 32_561) -> dict[str, float]:
    """Time for n samples over that of numpy's normal from PCG64; the latter in ns a sample as well."""
    plain = np.random.default_rng(1)
    simulation, aes, system = Simulation(1), Secure("aes"), Secure("urandom")
    cases: dict[str, Callable[[], object]] = {"numpy normal (PCG64)": lambda: plain.standard_normal(n)}
    for name, source in (("simulation", simulation), ("secure, AES", aes), ("secure, urandom", system)):
        cases[f"normal, {name}"] = lambda s=source: s.at(0, 1, 1).standard_normal(n)
        cases[f"K-norm vector, {name}"] = lambda s=source: k_norm(s.at(0, 1, 1), n, 1.0)
        for bits in (3, 20):
            cases[f"discrete Gaussian, sigma 2^{bits}, {name}"] = lambda s=source, b=bits: discrete_gaussian(
                2.0**b, n, s.at(0, 1, 1).words
            )
    found = in_turn(cases, 10)
    base = found["numpy normal (PCG64)"]
    return {"ns a sample, numpy normal (PCG64)": base * 1e3 / n} | {
        name: found[name] / base for name in list(cases)[1:]
    }


def many_nodes(dimension: int, count: int = 10_000) -> dict[str, float]:
    """Microseconds a node to charge and draw for many nodes of one rank."""
    event = replace(EVENT, dimension=dimension)
    ledgers = [MemoryLedger(i, adjacency="replace", mode="simulation") for i in range(count)]
    for ledger in ledgers:
        ledger.commit([replace(event, count=100)])
    noise, k = Noise(ledgers, Simulation(1)), iter(range(100))

    def draw_all() -> None:
        at_k = next(k)
        for at in range(count):
            noise.draw(event, iteration=at_k, at=at)

    draw_all()
    cases: dict[str, Callable[[], object]] = {
        f"charge and draw, d = {dimension}": draw_all,
        f"charge alone, d = {dimension}": lambda: [ledger.charge(event, iteration=0) for ledger in ledgers],
    }
    return {name: value / count for name, value in in_turn(cases, 1).items()}


def one_process_share(folder: Path, nodes: int = 20, rounds: int = 5) -> dict[str, float]:
    """CPU of two R-ADMM-like iterations (one solves, one does not) of 20 nodes in one process, in microseconds a node.

    There is no exchange in it, so the share of the ledger is larger here than between 20 ranks.
    """
    rng, rows = np.random.default_rng(0), 40_000 // nodes
    data = [rng.normal(size=(rows, 105)) for _ in range(nodes)]
    data = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in data]
    weight = 1750.0 * rows / 8000
    problem = Problem([GeneralisedLinear(X, np.sign(X[:, 0]), Logistic(), weight=weight) for X in data])
    books = Books.open(folder, range(nodes), range(nodes, 2 * nodes), adjacency="replace", mode="simulation")
    books.commit([[replace(EVENT, count=10**6)]] * nodes)
    source, quadratic = Simulation(2), np.full((nodes, 1), 4.0)
    f = np.zeros((nodes, 105))
    solve, ledger = [], []
    for k in range(1, 2 * rounds + 2, 2):
        start = time.process_time()
        b = np.stack([k_norm(source.at(i, 1, k), 105, 1.0) for i in range(nodes)])
        f = problem.argmin(b - 4.0 * f.mean(axis=0), quadratic, f)
        solved = time.process_time()
        for i in (k, k + 1):
            for book in books.ledgers:
                book.charge(EVENT, iteration=i) if i == k else book.post(iteration=i)
            books.store(i, f)
            books.witness(books.heads.view(np.float64), i)
        solve.append(solved - start)
        ledger.append(time.process_time() - solved)
    books.close()
    found = {"solve and noise": min(solve), "ledger, kept bytes, heads": min(ledger)}
    return {name: value / nodes * 1e6 for name, value in found.items()} | {
        "share of the ledger, %": 100 * min(ledger) / (min(ledger) + min(solve))
    }


PARTS = {Books: ("post", "store", "witness"), MemoryLedger: ("charge",), Protected: ("_stamp",)}


class LedgerParts:
    """The methods of the ledger that an iteration calls: timed, or silenced for comparison."""

    def __init__(self) -> None:
        self.whole = {(cls, name): getattr(cls, name) for cls, names in PARTS.items() for name in names}
        self.spent, self._inside = 0.0, False

    def time(self) -> None:
        for (cls, name), method in self.whole.items():
            setattr(cls, name, self._timed(method))

    def silence(self) -> None:
        """No charges, no files, and heads of zeros; the messages keep their length."""
        for cls, name in self.whole:
            setattr(cls, name, (lambda book: np.zeros((1, 4))) if name == "_stamp" else _nothing)

    def restore(self) -> None:
        for (cls, name), method in self.whole.items():
            setattr(cls, name, method)

    def _timed(self, method: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **keywords: object) -> object:
            if self._inside:
                return method(*args, **keywords)
            self._inside, start = True, time.thread_time()
            try:
                return method(*args, **keywords)
            finally:
                self.spent += time.thread_time() - start
                self._inside = False

        return wrapped


def _nothing(*_: object, **__: object) -> None:
    pass


def private_run(world: World, iterations: int, prepare_parts: Callable[[], None]) -> tuple[float, float]:
    """Mean over the ranks of the CPU and wall microseconds an iteration of private R-ADMM on Adult, one node a rank."""
    folder = world.broadcast(tempfile.mkdtemp() if world.is_root else "")
    flags = {"topology": f"er{world.size}", "alpha": "1", "adjacency": "replace", "eta": "0.5"}
    more = {"observe": "none", "progress": "none", "out": folder, "force": True, "stall_timeout": 60.0}
    config = radmm.configure("radmm", **flags, iterations=iterations, **more)
    prepared = prepare(config, world)
    plan = protect.plan_of(prepared)
    run = rundir.start(radmm.PROGRAMME, config, prepared, plan, world, rundir.Commit())
    node = protect.armed(prepared, plan, run)
    course = Course(iterations, 0, None, 2)
    loop = Loop(config.algorithm, node, Observer(node, world, prepared.source.test), run, course)
    prepare_parts()
    world.barrier()
    wall, cpu = time.perf_counter(), time.thread_time()
    loop.go()
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    node.network.close()
    cpu, wall = np.mean(world.allgather(np.array([cpu, wall])), axis=0) / iterations * 1e6
    world.on_root(lambda: shutil.rmtree(folder))
    return float(cpu), float(wall)


def iteration_share(iterations: int = 100, rounds: int = 20) -> dict[str, float]:
    """What the ledger adds to an iteration: runs with it and with its methods empty take turns."""
    world, parts = connect(), LedgerParts()
    with_, without = [], []
    for _ in range(rounds):
        with_.append(private_run(world, iterations, parts.restore))
        try:
            without.append(private_run(world, iterations, parts.silence))
        finally:
            parts.restore()
    try:
        cpu, _ = private_run(world, iterations, parts.time)
    finally:
        parts.restore()
    spent = float(np.mean(world.allgather(parts.spent))) / iterations * 1e6
    cpu_ratio, wall_ratio = np.median(np.array(with_) / np.array(without), axis=0)
    low, high = np.percentile(np.array(with_)[:, 0] / np.array(without)[:, 0], [25, 75])
    return {
        "ranks": world.size,
        "CPU a rank, an iteration": float(np.median([run[0] for run in with_])),
        "wall, an iteration": float(np.median([run[1] for run in with_])),
        "CPU with the ledger / without": float(cpu_ratio),
        "quartiles: lower": float(low),
        "quartiles: upper": float(high),
        "wall with the ledger / without": float(wall_ratio),
        "CPU in the ledger's methods, by a clock around each": spent,
        "share of the ledger by that clock (which costs 2 us a call), %": 100 * spent / cpu,
    }


def table(title: str, found: dict[str, float]) -> str:
    return "\n".join(
        [f"| {title} | |", "|---|---|", *(f"| {name} | {value:.2f} |" for name, value in found.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", action="store_true", help="share of an iteration, under mpiexec")
    parser.add_argument("--out", help="JSON file")
    options = parser.parse_args()
    if options.ranks:
        found = {"us an iteration of private R-ADMM, Adult": iteration_share()}
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = {"us a call": ledger_costs(Path(folder))}
            found["CPU us a node, two iterations, 20 nodes"] = one_process_share(Path(folder) / "share")
        found["time over numpy's normal, 32,561 samples"] = sampler_ratios()
        found["us a node, 10,000 nodes on one rank"] = many_nodes(105) | many_nodes(10)
    if connect().is_root:
        print("\n\n".join(table(title, values) for title, values in found.items()))
        if options.out:
            write_json(Path(options.out), found)


if __name__ == "__main__":
    main()
