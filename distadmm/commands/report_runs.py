"""Run directories as they lie on disk, side by side: what differs between them, and what each of them reached."""

from __future__ import annotations

import csv
import glob
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError, require
from distadmm.files import read_json
from distadmm.flags import fields_of
from distadmm.run import kinds
from distadmm.run.config import Privacy
from distadmm.structs import struct

Array = np.ndarray

# What a run is called and how it is carried out; none of it changes what a run computes.
_MANNER = {
    "out",
    "force",
    "resume",
    "checkpoint_every",
    "dry_run",
    "progress",
    "yield",
    "stall_timeout",
    "observe",
}
# What changes the function that is minimised, and so what a gap is relative to.
_PROBLEM = {
    *("data", "target", "loss", "weight", "rho", "clip", "intercept", "labels", "schema", "features"),
    *("test_fraction", "test_data", "sanitise", "rows_per_node", "data_id"),
}
_UNSET = "none"
_ASIDE = re.compile(r"\.spent-\d+$")
_NUMBERS = ("iteration", "gap", "test_error", "bytes", "seconds")


@struct
class Trace:
    """One run: its settings, how it ended (None: it has not), and its history by column."""

    folder: Path
    config: dict[str, Any]
    data_id: str
    nodes: int
    summary: dict[str, Any] | None
    history: dict[str, Array]

    def last(self, column: str) -> float:
        """The latest value that was measured; NaN when none was."""
        values = self.history[column]
        known = values[~np.isnan(values)]
        return float(known[-1]) if len(known) else math.nan

    def first_below(self, gap: float) -> int | None:
        """The line of the history in which the objective gap is first at most `gap`."""
        reached = np.flatnonzero(self.history["gap"] <= gap)
        return int(reached[0]) if len(reached) else None

    @property
    def ended(self) -> str:
        return str(self.summary["ended"]) if self.summary else "unfinished"

    @property
    def epsilon(self) -> float:
        """What was spent; NaN while a run is unfinished, whose ledgers say more."""
        return float(self.summary["epsilon"]) if self.summary else math.nan

    @property
    def statement(self) -> str:
        return str(self.summary["statement"]) if self.summary else ""


@struct
class Group:
    """Runs of one setting, which differ in their seeds alone; `settings` is what sets them apart from other groups."""

    settings: tuple[tuple[str, str], ...]
    traces: tuple[Trace, ...]

    @property
    def label(self) -> str:
        if not self.settings:
            return "{algorithm} on {topology}".format(**self.traces[0].config)
        told = [(name, value) for name, value in self.settings if value != _UNSET]
        return ", ".join(v if name in ("algorithm", "topology") else f"{name} {v}" for name, v in told)


def find(paths: Iterable[Path]) -> list[Path]:
    """The run directories among `paths` and right below them."""
    found: list[Path] = []
    for path in paths:
        require(path.is_dir(), f"{path} is no directory; give run directories, or a folder that holds some")
        below = [path] if _is_run(path) else sorted(filter(_is_shown, path.iterdir()))
        require(
            below,
            f"{path} holds no run of the consensus family (no config.json with a graph); "
            "give what --out named in python -m distadmm.radmm, or the folder above",
        )
        found += [folder for folder in below if folder not in found]
    return found


def _is_shown(folder: Path) -> bool:
    """A run that --force has moved aside is not compared with the one in its place; see `_of_privacy`."""
    return _is_run(folder) and not _ASIDE.search(folder.name)


def _is_run(folder: Path) -> bool:
    found = kinds.find(folder)
    return found is not None and found.kind == "radmm"


def read(folder: Path) -> Trace:
    """The run in `folder`; one that was killed has what its last checkpoint wrote."""
    content, summary = read_json(folder / "config.json"), folder / "summary.json"
    config = content["config"]
    if (
        config.get("epsilon") is None and config.get("alpha") is None
    ):  # no noise: how it would be drawn says nothing
        config = {name: value for name, value in config.items() if name not in fields_of(Privacy)}
    return Trace(
        folder,
        config,
        str(content["data_id"]),
        int(content["graph"]["nodes"]),
        read_json(summary) if summary.is_file() else None,
        _history(folder / "history.csv"),
    )


def _history(path: Path) -> dict[str, Array]:
    if not path.is_file():  # --observe none
        return {name: np.empty(0) for name in _NUMBERS}
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    try:
        return {name: np.array([float(line[name] or "nan") for line in lines]) for name in _NUMBERS}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a history written by distadmm ({error}); leave this run out"
        ) from None


def groups(traces: Sequence[Trace]) -> list[Group]:
    """Runs of one setting together, the settings in order."""
    names = [
        name for name in dict.fromkeys(n for t in traces for n in t.config) if name not in _MANNER | {"seed"}
    ]
    differing = [
        name for name in names if len({_shown(t.config[name]) for t in traces if name in t.config}) > 1
    ]
    if len({t.data_id for t in traces}) > 1 and "data" not in differing:
        differing.append("data_id")
    found: dict[tuple[tuple[str, str], ...], list[Trace]] = {}
    for trace in traces:
        known = {**trace.config, "data_id": trace.data_id[:8]}
        found.setdefault(tuple((name, _shown(known.get(name))) for name in differing), []).append(trace)
    return sorted((Group(settings, tuple(some)) for settings, some in found.items()), key=_in_order)


def common(found: Sequence[Group]) -> list[tuple[str, str]]:
    """The settings that all runs share, apart from those left unset."""
    traces = [trace for group in found for trace in group.traces]
    shared = {name: {_shown(trace.config.get(name)) for trace in traces} for name in traces[0].config}
    return [
        (name, *values)  # type: ignore[misc]
        for name, values in shared.items()
        if name not in _MANNER and len(values) == 1 and values != {_UNSET}
    ]


def _shown(value: Any) -> str:
    if value is None or value == []:
        return _UNSET
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_order(group: Group) -> list[tuple[float, str]]:
    """Numbers by size, before words by name."""
    keys = []
    for _, value in group.settings:
        try:
            keys.append((float(value), ""))
        except ValueError:
            keys.append((math.inf, value))
    return keys


def warnings(found: Sequence[Group]) -> list[str]:
    """What a reader of the comparison must know before believing it."""
    traces = [trace for group in found for trace in group.traces]
    said = []
    apart = [name for name, _ in found[0].settings if name in _PROBLEM]
    if len({trace.nodes for trace in traces}) > 1:
        apart.append("number of nodes")
    if apart:
        said.append(
            f"the objectives differ ({', '.join(apart)}): a gap is relative to the optimum of its own run"
        )
    unfinished = [trace.folder.name for trace in traces if trace.summary is None]
    if unfinished:
        said.append(
            f"unfinished, shown up to the last checkpoint: {', '.join(unfinished)}; what they spent: "
            "python -m distadmm ledger show RUN"
        )
    return said + _of_privacy(traces) + _of_seeds(found)


def _of_privacy(traces: Sequence[Trace]) -> list[str]:
    """Whose bounds the epsilons are, what they leave out, and that runs on the same data add up."""
    said = []
    private = [trace for trace in traces if math.isfinite(trace.epsilon)]
    for delta, adjacency, published in dict.fromkeys(map(_terms, private)):
        whose = (
            "published bound for Gaussian noise"
            if published
            else "derived for this project, not peer-reviewed"
        )
        said.append(
            f"epsilon at delta {delta:g} for {adjacency}, of the node that has spent most: {whose}; "
            "what it assumes: python -m distadmm ledger show RUN"
        )
    if any(trace.statement == "simulation" for trace in traces):
        said.append(
            "simulation: noise that a seed repeats protects nobody; its epsilon is what real noise would spend"
        )
    real = Counter(trace.data_id for trace in traces if trace.statement not in ("", "simulation"))
    if private and max(real.values(), default=0) > 1:
        said.append(
            "runs on the same data add up: together these have spent more than any row says; "
            "python -m distadmm ledger merge RUN RUN ..."
        )
    aside = [
        path.name for t in traces for path in t.folder.parent.glob(glob.escape(t.folder.name) + ".spent-*")
    ]
    if aside:
        said.append(
            f"runs that were replaced have spent as well, and are not shown: {', '.join(sorted(aside))}"
        )
    return said


def _terms(trace: Trace) -> tuple[float, str, bool]:
    """delta, adjacency, and whether the bound is a published one."""
    config = trace.config
    published = config.get("mechanism") == "output" and config.get("noise") == "gaussian"
    return float(config["delta"]), str(config["adjacency"]), published


def _of_seeds(found: Sequence[Group]) -> list[str]:
    copied = any(_copies(group) for group in found)
    return ["runs of one setting and one seed are counted as different runs"] if copied else []


def _copies(group: Group) -> bool:
    """Whether a seed occurs twice; secret noise differs all the same."""
    if group.traces[0].config.get("rng") == "secure":
        return False
    seeds = [trace.config.get("seed") for trace in group.traces]
    return len(set(seeds)) < len(seeds)
