"""Faults done to real runs: the lives of each, one after the other, and what the judge finds in what they left."""

import multiprocessing
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from distadmm.errors import DONE, STALLED, USAGE
from distadmm.testing.faults import judge, lives, meet, tap
from distadmm.testing.faults.kinds import CASES, Case, Fault
from distadmm.testing.faults.lives import Fork, Life

STALL = "6"  # seconds of --stall-timeout; a machine may be busy
MEET = "distadmm.testing.faults.meet"

# How a trial came out where nothing was violated.
WENT_ON = "went on"  # to its end, with the same bits
RESUMED = "resumed"  # to its end, with the same bits
ANEW = "anew"  # no checkpoint was there yet: the command was started again
REFUSED = "refused"  # in words, and nothing was changed
OUTCOMES = (WENT_ON, RESUMED, ANEW, REFUSED)


class Verdict(NamedTuple):
    fault: Fault
    outcome: str
    wrong: dict[str, str]  # by the name of what was violated, the first that was found


class Stage:
    """Where trials take place, with what they are compared with: runs that met nothing."""

    def __init__(self, place: Path, limit: float):
        place.mkdir(parents=True, exist_ok=True)
        self.place, self.limit = place, limit
        self._known: dict[str, Path] = {}
        self._number = 0

    def fresh(self) -> Path:
        self._number += 1
        return self.place / f"run-{self._number}"

    def clear(self) -> None:
        kept = {path.name for path in self._known.values()}
        for path in self.place.iterdir():
            if path.name.removesuffix(".tap") not in kept and path.name != "state":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def reference(self, name: str, seed: int = 0) -> Path:
        """A run from beginning to end; of another seed: one that is foreign."""
        return self._made(name, QUIET, "--seed", str(seed))

    def killed(self, name: str) -> Path:
        """A run that was killed between two checkpoints, with its tap beside it."""
        return self._made(name, ("0", "SIGKILL", "iterating", str(CASES[name].iterations - 2)))

    def _made(self, name: str, spec: Sequence[str], *more: str) -> Path:
        key = " ".join([name, *spec, *more])
        if key not in self._known:
            out, case = self.fresh(), CASES[name]
            words = [*words_of(case, out), *(more if name != "sweep" else ())]
            life = self.alone(case, words, spec, out.with_suffix(".tap"))
            if life.hung or (life.code and "SIGKILL" not in spec):
                raise RuntimeError(f"{key}: exit code {life.code} after {life.seconds:.0f} s: {life.said}")
            self._known[key] = out
        return self._known[key]

    def alone(self, case: Case, words: list[str], spec: Sequence[str], log: Path) -> Life:
        return self.fork(case, words, spec, log).wait(self.limit)

    def fork(self, case: Case, words: list[str], spec: Sequence[str], log: Path) -> Fork:
        rank, fault, where, call = spec
        return Fork(lambda: meet.main(rank, fault, where, call, case.programme, *words), self._around(log))

    def together(
        self, ranks: int, case: Case, words: list[str], spec: Sequence[str], log: Path, *, cable: bool
    ) -> Life:
        command = ["-m", MEET, *spec, case.programme, *words]
        return lives.under_a_launcher(ranks, command, self.limit, self._around(log), cable=cable)

    def _around(self, log: Path) -> dict[str, str]:
        """The environment of a life, in which nothing is entered in the user's own account."""
        return {"DISTADMM_TAP": str(log), "XDG_STATE_HOME": str(self.place / "state"), "DISTADMM_ACCOUNT": ""}

    def live(self, fault: Fault, words: list[str], log: Path, *, first: bool) -> Life:
        """The first life meets the fault, later ones meet nothing."""
        case, ranks = CASES[fault.case], fault.ranks if first else fault.resume_on
        spec = _spec(fault) if first else QUIET
        if ranks > 1:
            return self.together(ranks, case, words, spec, log, cable=first and fault.fault == "cable")
        return self.alone(case, words, spec, log)


QUIET = ("-", "none", "start-up", "0")


def _spec(fault: Fault) -> tuple[str, str, str, str]:
    return fault.rank, fault.fault, fault.where, str(fault.call)


def words_of(case: Case, out: Path) -> list[str]:
    stall = [] if case.programme == "commands.sweep" else ["--stall-timeout", STALL]
    return [*case.flags.split(), *stall, "--out", str(out)]


def trial(stage: Stage, fault: Fault) -> Verdict:
    if fault.case == "sweep":
        return swept(stage, fault)
    if fault.kind.name.endswith(" file"):
        return damaged(stage, fault)
    if not fault.kind.fault:
        return two_at_once(stage, fault)
    return met(stage, fault)


def met(stage: Stage, fault: Fault) -> Verdict:
    """A rank meets it; then the run is taken up again, as its user would."""
    case, folder = CASES[fault.case], stage.fresh()
    logs = [folder.with_suffix(".tap-1")]
    first = stage.live(fault, words_of(case, folder), logs[0], first=True)
    codes = (*fault.kind.codes, DONE) if survives(fault) else fault.kind.codes
    if fault.kind.raises and fault.where == "start-up" and fault.ranks > 1:
        # No MPI is there yet to tell the others by; MPICH's launcher waits for them too.
        codes = (*codes, STALLED)
    wrong = judge.ended(first, codes, raises=fault.kind.raises)
    for path in (folder, *folder.rglob("*")):  # the disk can be written again
        if path.exists():
            path.chmod(0o755 if path.is_dir() else 0o644)
    outcome, told = WENT_ON, "dropped out" in first.said
    if first.code != DONE:
        outcome, folder, again = _taken_up(stage, fault, folder, logs)
        wrong |= again
    wrong |= judge.sent([tap.read(log) for log in logs], folder)
    if not wrong:
        alike = case.repeats and not told and (case.as_before or outcome != RESUMED)
        wrong |= compared(folder, stage.reference(fault.case) if alike else None)
    return Verdict(fault, outcome, wrong)


def survives(fault: Fault) -> bool:
    """A masked sum goes on without ranks that do not answer."""
    return fault.case == "masked" and fault.kind.name in ("SIGSTOP", "cut cable")


def _taken_up(stage: Stage, fault: Fault, folder: Path, logs: list[Path]) -> tuple[str, Path, dict[str, str]]:
    """(outcome, the directory that counts, what is wrong) of going on after a life that did not come to its end."""
    case = CASES[fault.case]
    if (folder / "checkpoint" / "latest.json").exists():
        logs.append(folder.with_suffix(".tap-2"))
        life = stage.live(fault, ["--resume", str(folder), "--progress", "none"], logs[-1], first=False)
        return RESUMED, folder, _lost(life)
    if (folder / "config.json").exists():
        before = judge.content(folder)
        logs.append(folder.with_suffix(".tap-2"))
        life = stage.alone(case, ["--resume", str(folder)], QUIET, logs[-1])
        if life.code == DONE:  # its ledgers know what was sent, and no state is needed
            return RESUMED, folder, judge.ended(life, (DONE,))
        wrong = judge.ended(life, (USAGE,))
        if life.code == USAGE and judge.content(folder) != before:
            wrong["lost"] = "a refused resume changed files"
        if wrong:
            return ANEW, folder, wrong
    other = stage.fresh()
    logs[:] = [other.with_suffix(".tap-1")]  # another run, whose ledgers are others
    life = stage.live(fault, words_of(case, other), logs[0], first=False)
    return ANEW, other, judge.ended(life, (DONE,))


def _lost(life: Life) -> dict[str, str]:
    """What is wrong with a life that was to come to its end."""
    wrong = judge.ended(life, (DONE,))
    if "code" in wrong:
        wrong["lost"] = wrong.pop("code")
    return wrong


def compared(folder: Path, reference: Path | None) -> dict[str, str]:
    """With a run that met nothing; where noise is drawn anew, that there are models at all, and of numbers."""
    here = judge.bits(folder)
    if not here or judge.NO_NUMBERS in here.values():
        return {"bits": "no models, or none of numbers"}
    there = here if reference is None else judge.bits(reference)
    other = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    return {"bits": f"other than without a fault: {', '.join(other[:3])}"} if other else {}


def two_at_once(stage: Stage, fault: Fault) -> Verdict:
    """One of them goes on, the other is refused, or comes when all is done."""
    case, killed = CASES[fault.case], stage.killed(fault.case)
    folder = shutil.copytree(killed, stage.fresh())
    logs = [folder.with_suffix(f".tap-{number}") for number in "12"]
    words = ["--resume", str(folder), "--progress", "none"]
    both = [stage.fork(case, words, QUIET, log) for log in logs]
    ends = [fork.wait(stage.limit) for fork in both]
    wrong: dict[str, str] = {}
    for life in ends:
        wrong |= judge.ended(life, (DONE, USAGE))
        if life.code == USAGE and "in use" not in life.said:
            wrong["words"] = judge.last_line(life)
    if DONE not in [life.code for life in ends]:
        wrong["lost"] = "neither of the two went on"
    wrong |= judge.sent([tap.read(log) for log in (killed.with_suffix(".tap"), *tap.in_turn(logs))], folder)
    if not wrong:
        wrong |= compared(folder, stage.reference(fault.case) if case.repeats and case.as_before else None)
    return Verdict(fault, RESUMED, wrong)


def damaged(stage: Stage, fault: Fault) -> Verdict:
    """A file of a killed run is not what was written: who goes on proves that nothing is lost, or refuses."""
    case, killed = CASES[fault.case], stage.killed(fault.case)
    folder = shutil.copytree(killed, stage.fresh())
    name = damage(folder, stage.reference(fault.case, 1), fault)
    before, log = judge.content(folder), folder.with_suffix(".tap")
    life = stage.live(fault, ["--resume", str(folder), "--progress", "none"], log, first=False)
    wrong = {what: f"{name}: {how}" for what, how in judge.ended(life, fault.kind.codes).items()}
    if life.code != DONE:
        if life.code == USAGE and judge.content(folder) != before:
            wrong["lost"] = f"{name}: a refused resume changed files"
        return Verdict(fault, REFUSED, wrong)
    wrong |= judge.sent([tap.read(path) for path in (killed.with_suffix(".tap"), log)], folder)
    if not wrong:
        reference = stage.reference(fault.case) if case.repeats and case.as_before else None
        wrong |= {what: f"{name}: {how}" for what, how in compared(folder, reference).items()}
    return Verdict(fault, RESUMED, wrong)


def swept(stage: Stage, fault: Fault) -> Verdict:
    """Done to a sweep of runs, which the same command takes up again; of a damaged one, what is whole is told."""
    case, reference, folder = CASES["sweep"], stage.reference("sweep"), stage.fresh()
    words, log = words_of(case, folder), folder.with_suffix(".tap")
    if fault.kind.name.endswith(" file"):
        name = damage(shutil.copytree(reference, folder), reference, fault)
        life = stage.alone(case, words, QUIET, log)
        wrong = {what: f"{name}: {how}" for what, how in judge.ended(life, fault.kind.codes).items()}
        return Verdict(fault, WENT_ON if life.code == DONE else REFUSED, wrong)
    specs = [_spec(fault)] if fault.kind.fault else [QUIET, QUIET]
    forks, wrong = [stage.fork(case, words, spec, log) for spec in specs], {}
    for life in [fork.wait(stage.limit) for fork in forks]:
        wrong |= judge.ended(life, fault.kind.codes)
    for _ in range(20):  # a run of a sweep that was killed goes on by itself to its end
        life = stage.alone(case, words, QUIET, log)
        if life.code == DONE or "in use" not in life.said:
            break
    wrong |= _lost(life)
    return Verdict(fault, RESUMED, wrong or compared(folder, reference))


def damage(folder: Path, foreign: Path, fault: Fault) -> str:
    """Do to a file of `folder`, chosen by chance, what the kind says; its name."""
    chance = random.Random(fault.draw)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path, how = chance.choice(files), fault.kind.name.partition(" ")[0]
    content = path.read_bytes()
    if how == "torn":
        path.write_bytes(content[: chance.randrange(len(content))])
    elif how == "flipped":
        at = chance.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :])
    elif how == "missing":
        path.unlink()
    else:
        alike = [other for other in files if other != path and other.suffix == path.suffix] or files
        theirs = sorted(p for p in foreign.rglob("*") if p.is_file() and p.suffix == path.suffix) or alike
        same = foreign / path.relative_to(folder)
        other = chance.choice(alike) if how == "swapped" else same if same.exists() else chance.choice(theirs)
        path.write_bytes(other.read_bytes())
        if how == "swapped":
            other.write_bytes(content)
    return os.path.relpath(path, folder)


_stage: list[Stage] = []  # of this process


def verdicts(faults: Sequence[Fault], limit: float, jobs: int) -> Iterator[Verdict]:
    """What became of each, in their order; `jobs` at a time."""
    with tempfile.TemporaryDirectory(prefix="distadmm-faults-") as place:
        if jobs == 1:
            _begin(place, limit)
            yield from map(_one, faults)
            return
        forks = multiprocessing.get_context("fork")
        workers = ProcessPoolExecutor(jobs, mp_context=forks, initializer=_begin, initargs=(place, limit))
        try:
            yield from workers.map(_one, faults)
        finally:
            workers.shutdown(cancel_futures=True)  # those that have begun are waited for


def _begin(place: str, limit: float) -> None:
    _stage[:] = [Stage(Path(tempfile.mkdtemp(dir=place)), limit)]


def _one(fault: Fault) -> Verdict:
    verdict = trial(_stage[0], fault)
    _stage[0].clear()
    return verdict
