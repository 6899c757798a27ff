"""The directory of a run: `config.json` before anything runs, results when it is over, the same for every programme."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distadmm.errors import require, sense_of, told
from distadmm.files import read_bytes, read_json, write_json, write_npz
from distadmm.ranks.world import World
from distadmm.run import checkpoint, history, model, vouch
from distadmm.run.claim import LOCK, Lock, claim_directory, lock
from distadmm.run.running import Running

if TYPE_CHECKING:
    from distadmm.run.shell import Outcome, Programme

SCHEMA = 1  # of config.json and summary.json
_OF_ONE_START = ("resume", "force", "dry_run", "run_code")  # flags that say nothing of what a run is


def start(
    programme: Programme, options: Any, prepared: Any, price: Any, world: World, commit: Commit | None
) -> Running:
    """Make the run directory, or check the one that is resumed; write `config.json` before anything runs.

    That of a run that is resumed waits until its ledgers and its state are taken up (`Running.goes_on`).
    """
    flags, resume = options.run, getattr(options.run, "resume", None)
    described = programme.describe(prepared, price)

    held: list[Lock] = []  # on rank 0, until the run is over
    waits: list[Callable[[], None]] = []  # there, until a resumed run goes on

    def make() -> tuple[str, str, bool | None]:
        made = None if resume is not None else flags.out is None or not Path(flags.out).exists()
        if resume is not None:
            folder = Path(resume)
            held.append(lock(folder))
            # Refused before a file is touched.
            name = _whole(folder, described, needed=not programme.restarts)
        else:
            folder = claim_directory(flags.out, programme.title(options), force=flags.force, held=held)
            name = ""
        name = name or os.urandom(8).hex()
        table = {key: value for key, value in options.table().items() if key not in _OF_ONE_START}
        content = {
            "schema": SCHEMA,
            "kind": programme.kind,
            "run": name,
            "config": table,
            **described,
            "ranks": world.size,
            **vouch.signature(table),
            "versions": versions(world, commit),
        }
        if resume is None:
            write_json(folder / "config.json", content, sync=True)
        else:
            waits.append(lambda: write_json(folder / "config.json", content, sync=True))
        return str(folder), name, made

    folder, name, made = world.on_root(make)
    ids = described.get("data_id", "")
    known = ids if isinstance(ids, str) else together(ids)
    run = Running(
        world, flags, name, Path(folder), known, prog=programme.prog, made=made, held=held, waits=waits
    )
    again = programme.restarts or run.resumed
    world.dog.remedy = (
        run.going_on if again else "no state was kept (--checkpoint-every K does); start it again"
    )
    return run


def _whole(folder: Path, described: dict[str, Any], *, needed: bool) -> str:
    """The name of the run that is taken up, if all that is left of it belongs together."""
    from distadmm.privacy.ledger.chain import tell_long

    before, place = read_json(folder / "config.json"), folder / "checkpoint"
    history.written(folder)  # refused here if it is none
    with sense_of(folder / "config.json"):
        _same_inputs(before, described, f"--resume {folder}")
    tell_long((folder / "ledger").glob("*.jsonl"))
    names = {"its ledgers": earlier_name(folder), "config.json": str(before.get("run", ""))}
    if needed or checkpoint.is_there(place):
        _require_heads(folder / "ledger", checkpoint.heads(checkpoint.load(place)))
        names["its checkpoint"] = checkpoint.run_of(place)
        if not names["its checkpoint"]:
            print(
                f"{place}: written by an earlier release, without hashes; nothing proves it whole",
                file=sys.stderr,
            )
        require(
            not names["its checkpoint"] or names["config.json"],
            f"--resume {folder}: config.json is not of the run that its checkpoint is of; restore it",
        )
    known = {what: name for what, name in names.items() if name}
    require(
        len({*known.values()}) < 2,
        f"--resume {folder}: {' and '.join(known)} are of different runs; restore what belongs to this one",
    )
    return next(iter(known.values()), "")


def _require_heads(ledgers: Path, heads: dict[int, str]) -> None:
    """Ledgers hold what they held at the checkpoint; who takes them up looks again, and has written by then."""
    import re

    there: set[str] = set()
    for path in ledgers.glob("*.jsonl") if heads else ():
        there.update(h.decode() for h in re.findall(rb'"h":"([0-9a-f]{64})"', read_bytes(path)))
    missing = {member for member, head in heads.items() if head not in there}
    if missing:  # behind a line that is of many nodes, what stands in no line
        from distadmm.privacy.ledger import shelves

        found = shelves.of_nodes(ledgers, missing)
        missing -= {i for i in missing if heads[i] in {entry["h"] for entry in found[i].entries}}
    short = min(missing, default=None)
    require(
        short is None,
        f"the ledger of member {short} in {ledgers} is shorter than it was at the checkpoint, or another one: restore "
        "it from a backup, or start a new run",
    )


def forget(run: Running) -> None:
    """A run that is refused leaves nothing behind, unless it was resumed or anything was released or kept."""
    from distadmm.privacy.ledger.shelves import read_all

    folder = run.folder
    if folder is None or run.made is None or run.account is not None:
        return
    files = [path for path in folder.rglob("*") if not path.is_dir() and path.name != LOCK]
    ledgers = [path for path in files if path.suffix == ".jsonl"]
    others = {path.relative_to(folder).parts[0] for path in files if path not in ledgers}
    chains = read_all(ledgers)
    noted = {entry["kind"] for chain in chains for entry in chain.entries}
    whole = all(chain.fault is None for chain in chains)
    if whole and others <= {"config.json", "ledger"} and noted <= {"open", "refused", "close"}:
        with contextlib.suppress(OSError):  # not ours to change, or not empty: others have theirs there
            import shutil

            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            if run.made:
                folder.rmdir()
            if run.flags.out is None:
                folder.parent.rmdir()


def earlier_name(folder: Path) -> str:
    """The name by which the ledgers of a run know it; empty where they do not tell."""
    from distadmm.privacy.ledger import chain, shelves

    for path in sorted(folder.glob("ledger/*.jsonl")):
        opening = [shelves.first_of(path)] if shelves.is_shelf(path) else chain.read(path).entries[:1]
        if opening and opening[0]:
            return str(opening[0]["run"])
    return ""


def together(ids: dict[str, str]) -> str:
    """One name for the files of all members; theirs are keyed already."""
    from hashlib import sha256

    return sha256("".join(f"{member}:{name}\n" for member, name in sorted(ids.items())).encode()).hexdigest()


def _same_inputs(before: dict[str, Any], now: dict[str, Any], what: str) -> None:
    require(
        before.get("data_id") == now.get("data_id"),
        f"{what}: the data are not those of the run; restore them",
    )
    old, new = (found.get("graph", {}) for found in (before, now))
    require(
        old.get("fingerprint") == new.get("fingerprint"),
        f"{what}: the network {new.get('topology')} is not that of the run",
    )


def finish(programme: Programme, outcome: Outcome, run: Running) -> None:
    """Write history, models (each where it lives) and summary."""
    assert run.folder is not None
    run.goes_on()
    for name, arrays in outcome.arrays.items():
        with told(
            f"cannot make {(run.folder / name).parent}: REASON; make room or make it writable, then --resume"
        ):
            (run.folder / name).parent.mkdir(exist_ok=True)
        write_npz(run.folder / name, arrays, secret=True)
    for name, described in outcome.descriptions.items():
        model.write(run.folder, programme.kind, described, name)
    run.world.barrier()  # all models are there before a summary says so
    if run.world.is_root:
        for name, write in outcome.files.items():
            write(run.folder / name)
        history.write(run.folder, outcome.columns, outcome.history, outcome.began)
        summary = {"schema": SCHEMA, "kind": programme.kind, "trust": "any", **outcome.summary}
        write_json(run.folder / "summary.json", {key: _plain(value) for key, value in summary.items()})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def versions(world: Any, commit: Commit | None) -> dict[str, str]:
    found = {name: _version(name) for name in ("distadmm", "numpy", "scipy", "networkx", "mpi4py")}
    import platform

    found["python"] = platform.python_version()
    if world.comm is not None:
        found["mpi"] = world.library
    found["commit"] = str(commit or "")
    return found


def _version(name: str) -> str:
    """Read off the name of the package's metadata folder: importlib.metadata takes 10 ms, and all ranks wait."""
    for place in filter(os.path.isdir, sys.path):
        for entry in os.listdir(place):
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return entry.removeprefix(f"{name}-").removesuffix(".dist-info")
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


class Commit:
    """The commit of the checkout that is running; asked for early, so that git works while the ranks start."""

    def __init__(self) -> None:
        home = Path(__file__).resolve().parents[2]
        self._git: Any = None
        if (home / ".git").exists():
            import subprocess

            command = ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=12"]
            with contextlib.suppress(OSError):
                self._git = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )

    def __str__(self) -> str:
        """Empty for an installed package."""
        if self._git is None:
            return ""
        import subprocess

        try:
            said, _ = self._git.communicate(timeout=5)
            return said.strip() if self._git.returncode == 0 else ""
        except subprocess.TimeoutExpired:
            self._git.kill()
            return ""
