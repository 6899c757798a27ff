"""One shell for every programme: it does everything that a user sees of a run, and a programme only what it computes.

read      flags and files -> frozen options                           rank 0
prepare   options -> frozen rows, objectives, fabric                  every rank; refuses before a file is written
price     prepared -> the schedule of releases and what it costs      every rank; likewise
          dry run ends here; the directory is claimed, config.json written
solve     prepared, price -> outcome                                  every rank
          history.csv, models, summary.json, closing table, exit code
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.algorithm import spelled
from distadmm.errors import DONE, InputError, require
from distadmm.files import read_json
from distadmm.flags import build, of_a_run, parse, read_config, value_of
from distadmm.ranks.launch import launch, told_if_long
from distadmm.ranks.world import World
from distadmm.run.ends import End, end_of, exit_code
from distadmm.run.groups import STALL_TIMEOUT
from distadmm.run.running import Running, unwritten
from distadmm.run.vouch import WORD, require_vouched
from distadmm.structs import mutable_struct

Array = np.ndarray


@mutable_struct
class Outcome:
    """What a programme's `solve` leaves; on ranks other than 0 only `ended`, `iterations` and their own arrays."""

    ended: str = End.ITERATIONS.word
    iterations: int = 0
    began: int = 0  # the iteration after which this part of the run began; 0 unless it is resumed
    columns: tuple[str, ...] = ()  # of history.csv
    history: list[Any] = field(default_factory=list)
    arrays: dict[str, dict[str, Array]] = field(default_factory=dict)  # file: arrays, written by this rank
    descriptions: dict[str, dict[str, Any]] = field(default_factory=dict)  # file: of a model, by this rank
    files: dict[str, Callable[[Path], Any]] = field(default_factory=dict)  # file: what writes it, on rank 0
    summary: dict[str, Any] = field(default_factory=dict)
    closing: list[tuple[str, str]] = field(default_factory=list)  # of the closing table: name and value
    said: list[str] = field(default_factory=list)  # sentences below the table
    path: Path | None = None
    strict: bool = False  # an end short of the tolerance is to be told by the exit code


class Programme:
    """What a programme says of itself.  Every method but those on rank 0's words is called by every rank."""

    kind: str  # in config.json and summary.json
    prog: str  # as it is started: python -m PROG
    about: str | None  # above the flags on its help page
    flags: tuple[type, ...]  # the option groups
    form: Callable[..., Any]  # makes of them the frozen options, with the shared group `run` and `table()`
    restarts = False  # without a checkpoint it is solved again: its ledgers know what was sent
    listens = False  # its solve looks at signals; where it does not, they end the process at once
    beats = True  # its solve tells the watchdog of every stretch of work that is done
    bound: frozenset[str] = frozenset()  # flags that a continuation cannot change, though those of others can

    def read(self, argv: Sequence[str]) -> Any:
        """The frozen options that `argv` asks for; on rank 0."""
        return read(self, argv)

    def description(self) -> str:
        return self.about or ""

    def groups(self, asked: dict[str, Any]) -> list[type]:
        """The option groups; `asked` holds what decides which there are."""
        return list(self.flags)

    def pack(self, options: Any) -> Any:
        """What travels to the other ranks: plain values where an algorithm is a class that they have yet to load."""
        table = options.table()
        return table if str(table.get("algorithm")).endswith(".py") else options

    def unpack(self, packed: Any) -> Any:
        return self.form(*build(self.groups(packed), packed)) if isinstance(packed, dict) else packed

    def title(self, options: Any) -> str:
        """What run directories are called."""
        return self.kind

    def prepare(self, options: Any, world: World) -> Any:
        """Frozen: rows, objectives, fabric.  Refuses what cannot be run."""
        raise NotImplementedError

    def price(self, prepared: Any) -> Any:
        """Frozen: the schedule of releases and what it will cost; None without noise."""
        return None

    def outlook(self, prepared: Any, price: Any) -> str:
        """What --dry-run prints, on rank 0."""
        raise NotImplementedError

    def describe(self, prepared: Any, price: Any) -> dict[str, Any]:
        """What config.json holds besides the configuration; nothing of it gives private rows away."""
        raise NotImplementedError

    def solve(self, prepared: Any, price: Any, run: Running) -> Outcome:
        raise NotImplementedError


def main(programme: Programme, argv: Sequence[str] | None = None) -> int:
    """The command: parse once, run on every rank, leave with one code."""
    return launch(
        programme.prog,
        lambda words: programme.pack(programme.read(words)),
        lambda packed, world: work(programme, programme.unpack(packed), world),
        argv,
        guard=STALL_TIMEOUT,
    )


def read(programme: Programme, argv: Sequence[str]) -> Any:
    """The options that `argv` and the files it names ask for; a resumed run brings its own."""
    base, out = value_of(argv, "--config"), value_of(argv, "--out")
    run_code = WORD in argv
    resume = value_of(argv, "--resume")
    if resume is not None:
        require(base is None, "--resume takes its configuration from the run; leave out --config")
        base = _configuration_of(Path(resume), out)
    if base is not None and base.endswith(".json"):
        content = read_json(Path(base))
        require_vouched(Path(base), content if isinstance(content, dict) else {}, run_code=run_code)
    asked = read_config(base) if base else {}
    algorithm, ran = value_of(argv, "--algorithm"), str(asked.get("algorithm"))
    if resume is not None and algorithm is not None and spelled(algorithm, [ran]) != ran:
        raise InputError(
            f"--resume: the run in {resume} has --algorithm {ran}, not {algorithm}; "
            "leave the flag out, or start a new run"
        )
    classes = programme.groups({**asked, **({} if algorithm is None else {"algorithm": algorithm})})
    arguments = list(argv) if resume is None else [*argv, "--config", str(base)]
    options = programme.form(*parse(programme.prog, programme.description(), classes, arguments))
    if resume is not None:
        before = programme.form(*build(classes, of_a_run(asked, classes)))  # in the words of this release
        require(
            before.run.observe_all or not options.run.observe_all,
            f"--resume: the run in {resume} did not begin with --observe all, and its ledgers say so; start a new run",
        )
        _require_continuation(options, before.table(), resume, FREE_ON_RESUME - programme.bound)
    return options


def _configuration_of(folder: Path, out: str | None) -> str:
    """The configuration of the run in `folder`, which also decides where files go."""
    path = folder / "config.json"
    require(
        path.is_file(),
        f"--resume {folder}: no run there (no config.json); give the directory that --out named",
    )
    require(
        out is None or Path(out).resolve() == folder.resolve(),
        f"--resume {folder} goes on in that directory; leave out --out {out}",
    )
    return str(path)


def _require_continuation(options: Any, before: dict[str, Any], folder: str, free: frozenset[str]) -> None:
    """A continuation equals the run it goes on from in all that an iteration computes."""
    for key, value in options.table().items():
        old = before[key]
        require(
            key in free or old == value,
            f"--resume: the run in {folder} has --{key.replace('_', '-')} {old}, not {value}; "
            "leave the flag out, or start a new run",
        )


# These may differ between a run and its continuation: none of them changes what an iteration computes.
FREE_ON_RESUME = frozenset(
    {
        *("iterations", "stop_tolerance", "time_limit", "strict", "stall_timeout", "observe", "progress"),
        *("yield", "out", "force", "checkpoint_every", "resume", "dry_run", "run_code", "account"),
    }
)


def work(programme: Programme, options: Any, world: World) -> int:
    """The command on every rank; its exit code."""
    from distadmm.run import directory

    commit = directory.Commit() if world.is_root else None
    dog = world.dog
    dog.timeout = options.run.stall_timeout
    dog.enter("reading rows")
    speaks = world.is_root and getattr(options.run, "progress", "auto") != "none"
    with told_if_long(programme.prog, "reading rows", speaks):
        prepared = programme.prepare(options, world)
    dog.enter("pricing")
    with told_if_long(programme.prog, "working out the noise and what it costs", speaks):
        price = programme.price(prepared)
    dog.enter("set-up")
    if options.run.dry_run:
        words = programme.outlook(prepared, price)  # all ranks price their own members
        if world.is_root:
            print(words)
        return DONE
    with world.signals if programme.listens else contextlib.nullcontext():
        run = directory.start(programme, options, prepared, price, world, commit)
        outcome = carry_out(programme, prepared, price, run)
        end = end_of(outcome.ended)
        stopped = end is End.SIGNAL
        if world.is_root:
            cut = [f"\n{outcome.ended}; {run.going_on}"] * (stopped or end is End.TIME_LIMIT)
            print(closing_words(outcome), *cut, sep="\n")
        world.leave(exit_code(outcome.ended, strict=outcome.strict))
        if stopped or world.size > 1:  # the others are waited for, and all is written
            world.signals.ignore_from_now_on()
    return exit_code(outcome.ended, strict=outcome.strict)


def carry_out(programme: Programme, prepared: Any, price: Any, run: Running) -> Outcome:
    """Solve, and write down what came of it where the run has a directory."""
    from distadmm.run import directory

    run.world.dog.enter("set-up" if programme.beats else "solving")
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what diverges is told once, in words
            outcome = programme.solve(prepared, price, run)
    except InputError as refusal:
        if run.world.is_root or not refusal.shared:
            directory.forget(run)
        run.held = ()
        raise
    run.world.dog.enter("writing")
    outcome.path = run.folder
    if run.folder is not None:
        directory.finish(programme, outcome, run)
    run.held = ()  # nobody waits for a collector of garbage to take up the run
    return outcome


def in_process(
    programme: Programme, options: Any, world: World | None = None, *, keep: bool = False
) -> Outcome:
    """A run for a notebook, in this process alone where no world is given; without `keep` nothing is written.

    A signal that it was told of reaches the script around it once all is written, and ends it where it has no handler.
    BLAS uses one thread meanwhile, so that the bits are those of the command.
    """
    from threadpoolctl import threadpool_limits

    require(
        getattr(options.run, "resume", None) is None,
        f"resume takes its flags from the run, which only the command does: python -m {programme.prog} --resume DIR",
    )
    world = world or World()
    with threadpool_limits(1, user_api="blas"):
        prepared = programme.prepare(options, world)
        price = programme.price(prepared)
        if keep:
            from distadmm.run import directory

            commit = directory.Commit() if world.is_root else None
            run = directory.start(programme, options, prepared, price, world, commit)
        else:
            run = unwritten(options.run, world)
        with run.world.signals if programme.listens else contextlib.nullcontext():
            outcome = carry_out(programme, prepared, price, run)
    if end_of(outcome.ended) is End.SIGNAL:
        warnings.warn(
            f"the run was ended by {outcome.ended} after {outcome.iterations} iterations: its model is that of an "
            "unfinished run",
            stacklevel=3,
        )
    run.world.signals.hand_on()
    return outcome


def closing_words(outcome: Outcome) -> str:
    """The small table at the end of a run, and the sentences below it."""
    rows = list(outcome.closing)
    if outcome.path is not None:
        rows.append(("run directory", str(outcome.path)))
    width = max([14, *(len(name) for name, _ in rows)])
    lines = [f"{name:<{width}} {value}" for name, value in rows]
    return "\n".join([*lines, *(["", *outcome.said] if outcome.said else [])])
