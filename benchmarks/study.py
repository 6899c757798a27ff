"""`study topology --quick` beside one run of each of its families, in seconds of whole commands.

    python benchmarks/study.py [--epsilon 1 --adjacency replace] [--data adult]

A single run has the flags, nodes and iterations that the study would give it without --quick.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from distadmm.commands.study import FAMILIES, _random, network

GOAL = 3.0


def seconds(*words: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "distadmm", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main(flags: list[str]) -> int:
    noise = ["--rng", "simulation"] if "--epsilon" in flags else []
    with tempfile.TemporaryDirectory() as place:
        alone = []
        for at, family in enumerate(FAMILIES):
            topology = network(family, 16, 0 if _random(family) else None)
            own = [
                "--topology",
                topology,
                "--iterations",
                "100",
                "--progress",
                "none",
                "--out",
                f"{place}/{at}",
            ]
            alone.append(seconds("radmm", *flags, *noise, *own))
        quick = seconds("study", "topology", "--quick", *flags, "--out", f"{place}/study")
    one = sum(alone)
    print(f"one run each: {one:.1f} s in all; study --quick: {quick:.1f} s; ratio {quick / one:.2f}")
    return int(quick > GOAL * one)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
