"""Decentralised consensus ADMM on a graph: ADMM, M-ADMM, R-ADMM, MR-ADMM, and algorithms of your own."""

from __future__ import annotations

from distadmm.flags import entering

entering(__name__)  # as a command: one BLAS thread a rank, before numpy is loaded

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distadmm.algorithm import find, names
from distadmm.errors import BUDGET, DONE, FAILURE, UNCONVERGED, InputError, require
from distadmm.flags import fields_of, parse, read_config
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.config import FREE_ON_RESUME, Choice, Config, Links, Loop, Privacy, Problem
from distadmm.run.loop import DIVERGED, Run, Signals, execute
from distadmm.run.setup import prepare

PROG = "distadmm.radmm"


def main(argv: Sequence[str] | None = None) -> int:
    return launch(
        PROG,
        lambda words: _parcel(read(words)),
        lambda parcel, world: work(parcel if isinstance(parcel, Config) else configure(**parcel), world),
        argv,
    )


def _parcel(config: Config) -> Config | dict[str, Any]:
    """What travels to the other ranks: plain values where the algorithm is a class that they have yet to load."""
    return config.table() if config.name.endswith(".py") else config


def read(argv: Sequence[str]) -> Config:
    """The configuration that `argv` and the files it names ask for."""

    asked = {option: value_of(argv, option) for option in ("--algorithm", "--config", "--resume")}
    base = asked["--config"]
    if asked["--resume"] is not None:
        require(base is None, "--resume takes its configuration from the run; leave out --config")
        base = _resumed(Path(asked["--resume"]), asked["--algorithm"], value_of(argv, "--out"))
    name = (
        asked["--algorithm"] or (read_config(base).get("algorithm") if base else None) or Choice().algorithm
    )
    classes = [Choice, Problem, Loop, Links, Privacy, find(name).cls]
    arguments = list(argv) if asked["--resume"] is None else [*argv, "--config", str(base)]
    try:
        config = Config(*parse(PROG, description(), classes, arguments))
    except InputError as error:
        raise InputError(_of_another(str(error), name)) from None
    return config if asked["--resume"] is None else _continued(config, str(base))


def _resumed(folder: Path, algorithm: str | None, out: str | None) -> str:
    """The configuration of the run in `folder`, which decides both the algorithm and where files go."""
    path = folder / "config.json"
    require(
        path.is_file(),
        f"--resume {folder}: no run there (no config.json); give the directory that --out named",
    )
    before = read_config(path).get("algorithm")
    require(
        algorithm in (None, before),
        f"--resume: the run in {folder} has --algorithm {before}, not {algorithm}; "
        "leave the flag out, or start a new run",
    )
    require(
        out is None or Path(out).resolve() == folder.resolve(),
        f"--resume {folder} goes on in that directory; leave out --out {out}",
    )
    return str(path)


def _of_another(message: str, name: str) -> str:
    """`message`, or for a flag that other algorithms have and this one has not: which ones do."""
    found = re.match(r"unknown argument '--([^'=]+)", message)
    field = found[1].replace("-", "_") if found else ""
    having = [other for other in names() if field in fields_of(find(other).cls)]
    if not found or not having:
        return message
    return f"--algorithm {name} has no --{found[1]}; it is a flag of {', '.join(having)}"


def value_of(argv: Sequence[str], option: str) -> str | None:
    """What follows `option`, needed before it is known which flags there are."""
    for at, word in enumerate(argv):
        if word.startswith(option + "="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(argv):
            return argv[at + 1]
    return None


def description() -> str:
    return (
        f"{__doc__}\n\nalgorithms: {', '.join(names())}; their flags differ: --algorithm NAME --help\n"
        "start on 20 ranks:   mpiexec -n 20 python -m distadmm.radmm\n"
        "start on one:        python -m distadmm.radmm"
    )


def _continued(config: Config, path: str) -> Config:
    """`config` as a continuation: equal to the run it goes on from in all that an iteration computes."""
    before = read_config(path)
    for key, value in config.table().items():
        old = before.get(key)
        old = tuple(old) if isinstance(old, list) else old
        if key not in FREE_ON_RESUME and old != value:
            raise InputError(
                f"--resume: the run in {config.loop.resume} has --{key.replace('_', '-')} {old}, not {value}; "
                "leave the flag out, or start a new run"
            )
    return config


def work(config: Config, world: World) -> int:
    from distadmm.methods.consensus import private as protect
    from distadmm.run import directory as rundir

    commit = rundir.Commit() if world.is_root else None
    prepared = prepare(config, world)
    recipe = protect.plan_of(prepared)
    if config.loop.dry_run:
        words = rundir.plan(prepared, recipe)  # all ranks price their own nodes
        if world.is_root:
            print(words)
        return DONE
    folder = rundir.start(prepared, commit)
    protect.arm(prepared, recipe, folder)
    with Signals() as signals:
        run = execute(prepared, folder, signals)
        protect.settle(prepared, run)
        rundir.finish(prepared, run, folder)
        if world.is_root:
            print(rundir.table(run))
        if run.ended.startswith("signal") and world.size > 1:
            signals.ignore_from_now_on()
    if run.ended.startswith("signal"):
        return 128 + int(run.ended.split()[1])
    if run.ended == "privacy budget":
        return BUDGET
    if run.ended == DIVERGED:
        return FAILURE
    if config.loop.strict and config.loop.stop_tolerance is not None and run.ended != "converged":
        return UNCONVERGED
    return DONE


def configure(algorithm: str = "radmm", **flags: Any) -> Config:
    """A configuration from keyword arguments named as the flags are."""
    from distadmm.flags import build

    classes = [Choice, Problem, Loop, Links, Privacy, find(algorithm).cls]
    known = {name for cls in classes for name in fields_of(cls)}
    flags = {key if key in known else key.rstrip("_"): value for key, value in flags.items()}
    values = {k: str(v) if isinstance(v, Path) else v for k, v in {"algorithm": algorithm, **flags}.items()}
    return Config(*build(classes, values, source="solve"))


def solve(algorithm: str = "radmm", *, out: str | Path | None = None, **flags: Any) -> Run:
    """Run in this process, which hosts all nodes; keyword arguments are the command's flags.

    Nothing is written unless `out` names a run directory.  BLAS uses one thread meanwhile, so that the bits
    are those of the command.
    """
    from threadpoolctl import threadpool_limits

    from distadmm.methods.consensus import private as protect
    from distadmm.run import directory as rundir

    flags.setdefault("progress", "none")
    config = configure(algorithm, **flags, **({} if out is None else {"out": str(out)}))
    with threadpool_limits(1, user_api="blas"):
        prepared = prepare(config, World())
        recipe = protect.plan_of(prepared)
        folder = rundir.start(prepared) if out is not None else None
        protect.arm(prepared, recipe, folder)
        with Signals() as signals:
            run = execute(prepared, folder, signals)
            protect.settle(prepared, run)
            return rundir.finish(prepared, run, folder)


if __name__ == "__main__":
    from distadmm.radmm import main as run_command  # the module itself, not its __main__ double

    raise SystemExit(run_command())
