"""`study topology --quick` beside one run of each of its families, as whole commands.

    python benchmarks/study.py [--epsilon 1 --adjacency replace] [--data adult]

CPU seconds, which a busy machine disturbs less,
decide.  A single run has the flags, nodes and iterations that the study would give it without --quick.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from distadmm.commands.study import FAMILIES, _random, network

GOAL = 3.0


def cost(*words: str) -> np.ndarray:
    """Seconds and CPU seconds of a command."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "distadmm", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return np.array([time.perf_counter() - began, cpu])


def main(flags: list[str]) -> int:
    noise = ["--rng", "simulation"] if "--epsilon" in flags else []
    shared = [*flags, *noise, "--iterations", "100", "--progress", "none"]
    with tempfile.TemporaryDirectory() as place:
        alone = np.zeros(2)
        for at, family in enumerate(FAMILIES):
            topology = network(family, 16, 0 if _random(family) else None)
            alone += cost("radmm", *shared, "--topology", topology, "--out", f"{place}/{at}")
        quick = cost("study", "topology", "--quick", *flags, "--out", f"{place}/study")
    for name, one, all_ in zip(("seconds", "CPU seconds"), alone, quick):
        print(f"{name}: one run each {one:.1f}, study --quick {all_:.1f}, ratio {all_ / one:.2f}")
    return int(quick[1] > GOAL * alone[1])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
