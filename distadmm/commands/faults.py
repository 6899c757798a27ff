"""`python -m distadmm faults`: real runs meet faults, and what must hold is looked for in what they leave.

python -m distadmm faults                              a thousand, of all kinds and programmes
python -m distadmm faults --count 1 --seed 4711        the one of that seed again
python -m distadmm faults --count 50 --programme masked --out found

Each fault follows from its seed: what is done, to which programme, rank, phase and moment.  A violation is told with
the command that does it again.  Exit code 1: there was one.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distadmm.errors import DONE, FAILURE, require
from distadmm.files import write_csv, write_json
from distadmm.flags import flag, flag_group
from distadmm.ranks.launch import with_flags
from distadmm.ranks.launcher import launched_size
from distadmm.ranks.world import World

PROG = "distadmm faults"


@flag_group("faults")
class Options:
    count: int = flag(1000, help="how many; seeds SEED, SEED + 1, ...", at_least=1)
    seed: int = flag(0, help="of the first one", at_least=0)
    kind: str | None = flag(None, help="this kind alone, by its name in the table")
    programme: str | None = flag(None, help="this programme alone, by its name in the table")
    jobs: int = flag(1, help="faults at a time", at_least=1)
    time_limit: float | None = flag(None, help="begin no more after so many seconds", above=0)
    limit: float = flag(120.0, help="seconds after which a life of a run hangs", above=0)
    out: str | None = flag(None, help="folder for faults.csv, a line each, and faults.json, the table")


def work(asked: Options, world: World) -> int:
    from distadmm.testing.faults import kinds, lives, trial

    require(launched_size() is None, "start it without mpiexec or srun; it starts ranks itself")
    require(sys.platform == "linux", "faults are looked for in /proc, which this system has not; use Linux")
    ranks, no_cable = bool(lives.launcher()), lives.why_no_cable()
    among = kinds.pairs(not no_cable, ranks, asked.kind, asked.programme)
    names = sorted({kind.name for kind in (*kinds.KINDS, *kinds.OF_A_SWEEP)})
    require(
        among,
        f"no fault of --kind {asked.kind} and --programme {asked.programme} here; kinds: {', '.join(names)}; "
        f"programmes: {', '.join(kinds.CASES)}",
    )
    if not ranks:
        print("no mpiexec was found: runs of one rank alone", file=sys.stderr)
    faults = [kinds.fault_of(asked.seed + number, among, ranks=ranks) for number in range(asked.count)]
    narrowed = {"kind": asked.kind, "programme": asked.programme}
    among_these = "".join(f" --{name} '{value}'" for name, value in narrowed.items() if value)
    began = time.monotonic()
    verdicts: list[Any] = []
    for verdict in trial.verdicts(faults, asked.limit, asked.jobs):
        verdicts.append(verdict)
        for what, how in verdict.wrong.items():
            again = f"python -m distadmm faults --count 1 --seed {verdict.fault.seed}{among_these}"
            print(f"{what}: {verdict.fault.words}: {how}; again: {again}", flush=True)
        if len(verdicts) % 20 == 0:
            print(f"{len(verdicts)}/{asked.count}", file=sys.stderr, flush=True)
        if asked.time_limit is not None and time.monotonic() - began > asked.time_limit:
            break
    rows = table(verdicts)
    print("\n".join(laid_out(rows)))
    took, last = time.monotonic() - began, asked.seed + len(verdicts) - 1
    print(f"\n{len(verdicts)} of {asked.count} faults in {took:.0f} s, seeds {asked.seed} to {last}")
    if no_cable:
        print(f"no cable was cut: {no_cable}")
    if asked.out:
        write(Path(asked.out), verdicts, rows)
    return FAILURE if any(verdict.wrong for verdict in verdicts) else DONE


def table(verdicts: Sequence[Any]) -> dict[str, dict[str, Counter[str]]]:
    """By kind and by programme how many faults there were, how they came out, and what was violated."""
    found: dict[str, dict[str, Counter[str]]] = {"kind": {}, "programme": {}}
    for verdict in verdicts:
        fault = verdict.fault
        told = ["faults", *(verdict.wrong or [verdict.outcome])]
        for which, name in (("kind", fault.kind.name), ("programme", fault.case)):
            found[which].setdefault(name, Counter()).update(told)
    return found


def laid_out(rows: dict[str, dict[str, Counter[str]]]) -> list[str]:
    from distadmm.testing.faults.judge import VIOLATIONS
    from distadmm.testing.faults.trial import OUTCOMES

    columns = ("faults", *OUTCOMES, *VIOLATIONS)
    width = max(len(name) for some in rows.values() for name in (*some, "programme"))
    lines = []
    for which, some in rows.items():
        lines += ["", "  ".join([f"{which:<{width}}", *columns])]
        for name, told in (*sorted(some.items()), ("all", sum(some.values(), Counter()))):
            lines.append("  ".join([f"{name:<{width}}", *(f"{told[c]:>{len(c)}}" for c in columns)]))
    return lines[1:]


def write(folder: Path, verdicts: Sequence[Any], rows: dict[str, dict[str, Counter[str]]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for fault, outcome, wrong in verdicts:
        violated = "; ".join(f"{what}: {how}" for what, how in wrong.items())
        lines.append((fault.seed, fault.kind.name, fault.case, fault.words, outcome, violated))
    write_csv(folder / "faults.csv", ("seed", "kind", "programme", "fault", "outcome", "violated"), lines)
    write_json(folder / "faults.json", rows)


main = with_flags(PROG, __doc__, Options, work)
