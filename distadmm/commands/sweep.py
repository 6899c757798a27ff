"""A grid of runs in one command: every combination of the values given, each in a directory of its own.

python -m distadmm sweep --topology ring:20 er20 star:20 --seed 0 1 2 --algorithm admm
python -m distadmm sweep launch/sweep.toml              the same from a file, where a list is taken value by value

A flag of the programme with several values takes each of them in turn; in a file, lines under [[run]] are for runs of
their own: algorithms with flags that others have not.  The same command goes on where it stopped:
finished runs are skipped, runs with a checkpoint resumed, others made anew.
"""

import fcntl
import glob
import importlib
import math
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.commands import grid, report, report_kinds, report_runs
from distadmm.errors import DONE, FAILURE, USAGE, require, told
from distadmm.files import write_text
from distadmm.flags import fields_of, flag, flag_group, option, parse, read_config
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.ranks.launch import command
from distadmm.ranks.launcher import launched_size
from distadmm.ranks.world import World
from distadmm.run import kinds

PROG = "distadmm sweep"
STOPPING = (signal.SIGTERM, signal.SIGUSR1)  # upon which a run saves its state and ends with 128 + n
OWN_BUSINESS = {  # flags of a run that a sweep sets itself
    "resume": "runs with a checkpoint are resumed by themselves",
    "force": "runs that were killed are made anew by themselves",
    "dry-run": "--list shows what would be run",
    "progress": "a sweep prints a line a run",
}


@flag_group("runs")
class Jobs:
    """How runs are made."""

    ranks: int = flag(1, help="MPI ranks of each run; decides nothing but speed", at_least=1)
    jobs: int = flag(1, help="runs at a time; with more than one their seconds say little", at_least=1)
    launcher: str | None = flag(
        None,
        help="what starts a run's ranks, such as 'srun --mpi=pmi2' (default: mpiexec -n RANKS, or nothing)",
    )


@flag_group("sweep")
class Options(Jobs):
    programme: str = flag("radmm", help="what is run; its name may come first", choices=kinds.KINDS)
    out: str = flag("runs/sweep", help="folder that gets a run directory for each combination")
    list_: bool = flag(False, help="print the commands of the runs that are still to be made, and stop")
    point: int | None = flag(None, help="make this one of the runs alone, counted from 1: for job arrays")

    def __post_init__(self) -> None:
        require(self.out, "--out is empty; give a folder")


class Request(NamedTuple):
    options: Options
    points: list[grid.Point]
    secret: int  # how many of them draw noise that protects, and so spend


def read(argv: Sequence[str]) -> Request:
    """The sweep's own flags, and the grid; every combination is checked as the run itself would."""
    kind, argv = (argv[0], argv[1:]) if argv and argv[0] in kinds.KINDS else ("radmm", argv)
    require(argv, f"no flags to take values of; see: python -m {PROG} --help")
    if asked := {"-h", "--help", "--version"} & set(argv):
        about = f"{__doc__}\nflags of the runs: python -m distadmm.{kind} --help"
        parse(PROG, about, [Options], sorted(asked)[:1])
    require(
        launched_size() is None,
        "start a sweep without mpiexec or srun; --ranks says how many ranks each run has",
    )
    if argv[0].endswith(".toml"):
        argv = ["--config", *argv]
    flags = grid.from_words(argv, f"distadmm.{kind}")
    shared: dict[str, list[str]] = {}
    tables: list[dict[str, list[str]]] = [{}]
    if "config" in flags:
        (word,) = _single("config", flags.pop("config"))
        shared, tables = grid.from_file(read_config(word.partition("=")[2]))
    shared = {"programme": [f"--programme={kind}"], **shared, **flags}
    own = [option(name)[2:] for name in fields_of(Options)]
    words = [word for name in own for word in _single(name, shared.pop(name, []))]
    (options,) = parse(PROG, "", [Options], words)
    for at, table in enumerate(tables, 1):
        for name in own:
            require(name not in table, f"[[run]] {at}: {name} is the sweep's own; put it above the tables")
    grids = [{**shared, **table, **{n: v for n, v in flags.items() if n in shared}} for table in tables]
    for name, why in OWN_BUSINESS.items():
        require(not any(name in one for one in grids), f"--{name} is not for a sweep: {why}; leave it out")
    points = grid.points(*grids)
    secret = sum(spends(options.programme, checked(options.programme, point.words)) for point in points)
    return request(options, points, secret)


def request(options: Options, points: list[grid.Point], secret: int) -> Request:
    require(
        options.point is None or 1 <= options.point <= len(points),
        f"--point is {options.point}; there are {len(points)} combinations: needed: 1 to {len(points)}",
    )
    return Request(options, points, secret)


def checked(kind: str, words: Sequence[str]) -> dict[str, Any]:
    """The flags of one run, read as the programme itself would read them."""
    options: Any = importlib.import_module(f"distadmm.{kind}").PROGRAMME.read(list(words))
    return options.table()  # type: ignore[no-any-return]


def spends(kind: str, flags: dict[str, Any]) -> bool:
    noisy = flags.get("epsilon") is not None or (kind == "radmm" and flags.get("alpha") is not None)
    return noisy and flags.get("rng") in (None, "secure") and flags.get("mechanism") != "paper"


def _single(name: str, words: list[str]) -> list[str]:
    require(len(words) < 2, f"--{name} has {len(words)} values; it is the sweep's own and takes one")
    return words


# -- one run ------------------------------------------------------------------------------------------


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` came to its end; one that a signal stopped has a summary, but goes on."""
    run = kinds.find(folder)
    return run is not None and run.summary is not None and not str(run.summary["ended"]).startswith("signal")


def command_of(point: grid.Point, options: Options) -> list[str]:
    """What starts the run, or takes it up again where it has a checkpoint."""
    folder = point.folder(Path(options.out))
    if (folder / "checkpoint" / "latest.json").is_file():
        words = [f"--resume={folder}"]
    else:
        words = [*point.words, f"--out={folder}", *(["--force"] if folder.exists() else [])]
    words += ["--progress=none"] if options.programme == "radmm" else []
    return [*_launcher(options), sys.executable, "-m", f"distadmm.{options.programme}", *words]


def _launcher(options: Options) -> list[str]:
    if options.launcher is not None:
        with told(f"--launcher is {options.launcher!r} (REASON); give a command", ValueError):
            return shlex.split(options.launcher)
    if options.ranks == 1:
        return []
    beside = Path(sys.executable).parent / "mpiexec"
    return [str(beside) if beside.exists() else "mpiexec", "-n", str(options.ranks)]


def outcome(folder: Path) -> str:
    """A finished run in a few words."""
    run = report_runs.read(folder)
    words = [f"{run.iterations:.0f} iterations"] if math.isfinite(run.iterations) else []
    if run.ended != "iterations":
        words.append(f"ended by: {run.ended}")
    columns = report_kinds.KINDS[run.kind].columns
    for column in [one for one in columns if math.isfinite(run.last(one.name))][:1]:
        words.append(f"{column.head} {column.show.format(column.unit * run.last(column.name))}")
    if math.isfinite(run.epsilon):
        words.append(
            f"epsilon {rounded_up(run.epsilon)}" + " of a simulation" * (run.statement == "simulation")
        )
    if math.isfinite(run.last("seconds")):
        words.append(f"{run.last('seconds'):.2f} s")
    killed = sorted(path.name for path in folder.parent.glob(glob.escape(folder.name) + ".spent-*"))
    return ", ".join([*words, *(f"besides what {name} spent" for name in killed)])


# -- all of them --------------------------------------------------------------------------------------


@dataclass
class Runs:
    """The runs under way; a signal is passed on to them, and no more are begun."""

    options: Options
    stopped_by: int = 0
    _alive: set[subprocess.Popen] = field(default_factory=set)

    def make(self, point: grid.Point) -> tuple[int, str]:
        """Run it to its end; exit code, and what to say."""
        if self.stopped_by:
            return 128 + self.stopped_by, "not begun"
        words, nowhere = command_of(point, self.options), subprocess.DEVNULL
        how: dict[str, Any] = {"stdin": nowhere, "stdout": nowhere, "stderr": subprocess.PIPE}
        with subprocess.Popen(words, **how, text=True, errors="replace") as run:
            self._alive.add(run)
            if self.stopped_by:  # while it was started
                self.pass_on(self.stopped_by, None)
            try:
                _, said = run.communicate()
            finally:
                self._alive.discard(run)
        folder, code = point.folder(Path(self.options.out)), run.returncode
        if is_finished(folder):  # by divergence, maybe: an outcome to compare, like others
            return DONE, outcome(folder)
        # A scheduler told the ranks, and not us; one on which Python was only being loaded dies of it.
        told_by = code - 128 if code > 0 else -code
        if told_by in STOPPING:
            self.stopped_by = self.stopped_by or told_by
        if self.stopped_by:
            return code, f"stopped by signal {self.stopped_by}"
        lines, text = said.strip().splitlines(), f"FAILED with exit code {code}"
        if len(lines) > 1:
            log = folder.with_name(folder.name + ".log")
            write_text(log, said)
            text += f" (all it said: {log})"
        return code, ": ".join([text, *lines[-1:]])

    def pass_on(self, number: int, frame: Any) -> None:
        """SIGUSR1 lets runs save their state, and launchers of ranks hand it through; SIGTERM they do not."""
        self.stopped_by = number
        for run in list(self._alive):
            with suppress(ProcessLookupError):
                run.send_signal(signal.SIGUSR1)

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {s: signal.signal(s, self.pass_on) for s in STOPPING}
        try:
            yield
        except BaseException:  # Ctrl-C, or whoever read our output has left
            self.pass_on(signal.SIGINT, None)
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Locks:
    """Which runs this process has in hand: a lock on one byte of a file for each, and byte 0 for the record."""

    def __init__(self, out: Path):
        # Opened once: a process that closes a file gives up all its locks on it.
        self._file = open(out / ".lock", "ab")  # noqa: SIM115

    def take(self, byte: int, *, wait: bool = False) -> bool:
        """False when another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # a file system without locks
            pass
        return True

    def give(self, byte: int) -> None:
        with suppress(OSError):
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def _side_by_side(out: Path, folders: Sequence[Path]) -> list[str]:
    told = report.sections([report_runs.read(folder) for folder in folders])
    return ["", *report.in_words(told), "", f"figures  python -m distadmm report {shlex.quote(str(out))}"]


def work(
    request: Request, world: World, tell: Callable[[Path, Sequence[Path]], list[str]] = _side_by_side
) -> int:
    """Make the runs that are not made yet; `tell` says what is to be said of those that are finished."""
    options, points, secret = request
    out = Path(options.out)
    chosen = points if options.point is None else [points[options.point - 1]]
    if options.list_:
        for point in chosen:
            if not is_finished(point.folder(out)):
                print(shlex.join(command_of(point, options)))
        return DONE
    launcher = _launcher(options)
    require(
        not launcher or shutil.which(launcher[0]),
        f"cannot start {' '.join(launcher)}: there is no such command; install distadmm[mpich], or say --ranks 1",
    )
    with told(f"cannot write into --out {out}: REASON; give another folder"):
        out.mkdir(parents=True, exist_ok=True)
        locks = Locks(out)
    locks.take(0, wait=True)
    byte = {name: at for at, name in enumerate(grid.keep_record(out, points), 1)}
    locks.give(0)
    runs = Runs(options)
    if secret > 1 and options.point is None:
        adds = "what they spend on the same data adds up (--rng simulation explores for free)"
        print(f"note: {secret} runs with secret noise; {adds}")

    def make(point: grid.Point) -> tuple[int, str]:
        if not locks.take(byte[point.name]):
            return DONE, "another process has it in hand"
        try:
            folder = point.folder(out)
            return (DONE, f"finished before: {outcome(folder)}") if is_finished(folder) else runs.make(point)
        finally:
            locks.give(byte[point.name])

    codes: list[int] = []
    width, total = max(len(point.name) for point in chosen), len(chosen)
    with ThreadPoolExecutor(options.jobs) as pool, runs.listening():
        under_way = {pool.submit(make, point): point.name for point in chosen}
        for future in as_completed(under_way):
            code, said = future.result()
            codes.append(code)
            at = f"{len(codes):>{len(str(total))}}/{total}"
            print(f"{at}  {under_way[future]:<{width}}  {said}", flush=True)
    folders = [point.folder(out) for point in chosen if is_finished(point.folder(out))]
    if len(chosen) > 1 and folders and (lines := tell(out, folders)):
        print("\n".join(lines))
    if runs.stopped_by:
        print(f"stopped by signal {runs.stopped_by}; the same command goes on")
        return 128 + runs.stopped_by
    failed = [code for code in codes if code != DONE]
    if failed:
        print(f"{len(failed)} of {len(codes)} runs failed; the same command tries them again")
        return USAGE if len(failed) == len(codes) and set(failed) == {USAGE} else FAILURE
    return DONE


main = command(PROG, read, work)
