"""Run directories as they lie on disk, side by side: what differs between them, and what each of them reached."""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from distadmm.commands.report_kinds import KINDS
from distadmm.errors import number, require, sense_of, told
from distadmm.flags import fields_of
from distadmm.run import kinds
from distadmm.run.config import Privacy
from distadmm.run.history import FORMER
from distadmm.structs import struct

Array = np.ndarray

# What a run is called and how it is carried out; none of it changes what a run computes.
_MANNER = {
    *("out", "force", "resume", "checkpoint_every", "dry_run", "progress", "yield", "stall_timeout"),
    *("observe", "strict", "figure"),
}
SEEDS = ("seed", "data_seed")  # runs that differ in these alone are repetitions of one
_TELLING = ("algorithm", "topology", "command")  # whose values need no name before them
_BUDGETS = "epsilon", "alpha"  # either makes a run private
_UNSET = "none"
LONGEST = 60  # characters of a statement in a table
# Values that go without saying, where what is said still tells the settings apart; iterations are a column.
_USUAL = {
    "rng": "secure",
    "repetitions": "1",
    "mechanism": "objective",
    "noise": "gamma",
    "message_loss": "0",
}
_ASIDE = re.compile(r"\.spent-\d+$")


@struct
class Trace:
    """One run: its settings, how it ended (None: it has not), its history by column, and its last numbers."""

    folder: Path
    kind: str
    config: dict[str, Any]
    data_id: str
    nodes: int
    summary: dict[str, Any] | None
    history: dict[str, Array]
    final: dict[str, float]

    def last(self, column: str) -> float:
        """The latest value that was measured; NaN when none was."""
        values = self.history.get(column, np.empty(0))
        known = values[~np.isnan(values)]
        return float(known[-1]) if len(known) else self.final.get(column, math.nan)

    def first_below(self, gap: float) -> int | None:
        """The line of the history in which the mean model's gap is first at most `gap`."""
        reached = np.flatnonzero(self.history["mean_model_gap"] <= gap)
        return int(reached[0]) if len(reached) else None

    @property
    def iterations(self) -> float:
        return self.final.get("iterations", self.last("iteration"))

    @property
    def ended(self) -> str:
        return str(self.summary["ended"]) if self.summary else "unfinished"

    @property
    def epsilon(self) -> float:
        """What was spent; NaN while a run is unfinished, whose ledgers say more, and where nothing counts it."""
        return float(self.summary.get("epsilon", math.nan)) if self.summary else math.nan

    @property
    def epsilons(self) -> dict[str, float]:
        """The same by trust, that of the run among them; empty where they are not told apart."""
        summary = self.summary or {}
        known = {str(trust): float(epsilon) for trust, epsilon in (summary.get("epsilons") or {}).items()}
        return {str(summary["trust"]): self.epsilon, **known} if known and "trust" in summary else known

    @property
    def statement(self) -> str:
        return str(self.summary.get("statement", "")) if self.summary else ""

    @property
    def looked_at(self) -> bool:
        """Whether secret noise protects its rows and figures of them without noise stand beside (--observe all)."""
        asked = str(self.config.get("observe", "")).startswith("all")
        return asked and math.isfinite(self.epsilon) and self.statement != "simulation"

    @property
    def in_short(self) -> str:
        """The statement as a cell of a table says it; what is longer is a note."""
        return self.statement if len(self.statement) <= LONGEST else self.statement.partition(": ")[0]

    def points(self) -> list[Self]:
        """A run that holds several results as one trace each; any other is one itself."""
        apart = KINDS[self.kind].point
        if not apart or self.summary is None:
            return [self]
        found = []
        for at, line in enumerate(_points(self.summary)):
            config = {**self.config, **{name: line[name] for name in apart if name in line}}
            history = {name: values[at : at + 1] for name, values in self.history.items()}
            found.append(replace(self, config=config, history=history))
        return found


@struct
class Group:
    """Runs of one setting, which differ in their seeds alone; `settings` is what sets them apart from other groups."""

    settings: tuple[tuple[str, str], ...]
    traces: tuple[Trace, ...]
    unsaid: frozenset[str] = frozenset()  # settings whose usual values the label leaves out

    @property
    def steps(self) -> str:
        """What its iterations are."""
        return "rounds" if all(t.config.get("algorithm") == "masked" for t in self.traces) else "iterations"

    @property
    def label(self) -> str:
        if not self.settings:
            kind, config = self.traces[0].kind, self.traces[0].config
            algorithm, topology = (str(config.get(name, "?")) for name in ("algorithm", "topology"))
            return f"{file_name(algorithm)} on {topology}" if kind == "radmm" else kind
        told = [(n, v) for n, v in self.settings if v != _UNSET and not (n in self.unsaid and _usual(n, v))]
        named = ", ".join(v if name in _TELLING else f"{name} {v}" for name, v in told)
        return named or f"without {', '.join(name for name, _ in self.settings)}"


def find(paths: Iterable[Path]) -> list[Path]:
    """The run directories among `paths` and right below them."""
    found: list[Path] = []
    for path in paths:
        require(path.is_dir(), f"{path} is no directory; give run directories, or a folder that holds some")
        # A run that --force has moved aside is not compared with the one in its place; see `_of_privacy`.
        inside = [one for one in sorted(path.iterdir()) if one.is_dir() and not _ASIDE.search(one.name)]
        below = [path] if kinds.find(path) else [one for one in inside if kinds.find(one)]
        require(below, f"{path} holds no run; give what --out named, or the folder above")
        found += [folder for folder in below if folder not in found]
    return found


def read(folder: Path) -> Trace:
    """The run in `folder`; one that was killed has what its last checkpoint wrote."""
    found = kinds.opened(folder, "report")
    with sense_of(folder):
        trace = _trace(folder, found)
        _ = trace.epsilon, trace.epsilons  # are numbers, or refused here
        return trace


def _trace(folder: Path, found: kinds.RunDirectory) -> Trace:
    config, told = found.config, found.told
    if found.kind == "radmm" and config.get("epsilon") is None and config.get("alpha") is None:
        # Without noise: how it would be drawn says nothing, but that there is none does.
        config = {name: value for name, value in config.items() if name not in fields_of(Privacy)}
        config |= dict.fromkeys(_BUDGETS)
    if config.get("data") and "problem" in config:  # the built-in one, which these rows replace
        config = {**config, "problem": None}
    if found.kind == "ias":
        config = {**config, "command": "sweep" if "points" in config else "design"}
    tuned = (found.summary or {}).get("tuned")
    if tuned is not None and all(config.get(name) is None for name in _BUDGETS):
        config = {**config, "tune": tuned}  # what was done, where it was left open
    nodes = int(told["graph"]["nodes"]) if "graph" in told else 0
    measured = _history(found), _final(found.summary)
    return Trace(folder, found.kind, config, found.data_id, nodes, found.summary, *measured)


def _points(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return summary.get("points") or summary.get(kinds.REFUTED) or [summary]


def _history(found: kinds.RunDirectory) -> dict[str, Array]:
    path, names = found.path / "history.csv", KINDS[found.kind].history
    lines: list[dict[str, Any]] = []
    if KINDS[found.kind].point:
        lines = _points(found.summary or {})
    foreign = f"{path} is not a history written by distadmm (REASON); leave this run out"
    with told(foreign, TypeError, ValueError, csv.Error):
        if not KINDS[found.kind].point and path.is_file():  # not with --observe none
            with open(path, newline="") as file:
                lines = list(csv.DictReader(file))
        history = {
            name: np.array([_number(line.get(name), line.get(FORMER.get(name, ""))) for line in lines])
            for name in names
        }
    if lines and "repetition" in lines[0]:  # means, as in the summary
        repetitions = len({line["repetition"] for line in lines})
        history = {name: values.reshape(repetitions, -1).mean(axis=0) for name, values in history.items()}
    if "accuracy" in history:
        history["test_error"] = 1 - history["accuracy"]
    return history


def _number(*values: Any) -> float:
    """The first of them that is there."""
    return float(next((value for value in values if value not in (None, "")), math.nan))


def _final(summary: dict[str, Any] | None) -> dict[str, float]:
    """The numbers of a summary, under the names of the columns."""
    if summary is None:
        return {}
    told = {**{new: summary.get(old) for new, old in FORMER.items()}, **summary}
    told |= {f"own_rows_{name}": value for name, value in (told.get("evaluation") or {}).items()}
    compared = [line or {} for line in told.get("comparison", {}).values()]
    if compared:
        told |= compared[-1]
        shares = {name: line.get("accuracy") for name, line in zip(("alone", "pooled"), compared)}
        told |= {name: 1 - share for name, share in shares.items() if share is not None}
    for name in ("accuracy", "test_accuracy"):
        if told.get(name) is not None:
            told["test_error"] = 1 - told[name]
    if isinstance(told.get("traffic"), dict):
        told["bytes"] = sum(kind["bytes"] for kind in told["traffic"].values())
    numbers = {name: v for name, v in told.items() if isinstance(v, (int, float))}
    return {name: float(v) for name, v in numbers.items() if not isinstance(v, bool)}


def groups(traces: Sequence[Trace]) -> list[Group]:
    """Runs of one setting together, the settings in order."""
    told: dict[str, set[str]] = {}
    for name, value in (item for trace in traces for item in trace.config.items()):
        told.setdefault(name, set()).add(_shown(value))
    differing = [name for name, of in told.items() if len(of) > 1 and name not in {*_MANNER, *SEEDS}]
    if len({t.data_id for t in traces} - {""}) > 1 and "data" not in differing:
        differing.append("data_id")
    algorithms = {str(t.config.get("algorithm")) for t in traces}
    short = {name: file_name(name) for name in algorithms}
    short = short if len(set(short.values())) == len(short) else {}
    found: dict[tuple[tuple[str, str], ...], list[Trace]] = {}
    for trace in traces:
        known = {**trace.config, "data_id": trace.data_id[:8]}
        known["algorithm"] = short.get(str(known.get("algorithm")), known.get("algorithm"))
        found.setdefault(tuple((name, _shown(known.get(name))) for name in differing), []).append(trace)
    unsaid: frozenset[str] = frozenset()
    for name in differing:
        labels = [Group(settings, tuple(some), unsaid | {name}).label for settings, some in found.items()]
        if len(set(labels)) == len(labels) > 1 and not any(label.startswith("without ") for label in labels):
            unsaid |= {name}

    def in_order(group: Group) -> list[tuple[float, str]]:
        """Numbers by size, before words by name."""
        return [(math.inf, v) if math.isnan(number(v)) else (number(v), "") for _, v in group.settings]

    return sorted((Group(settings, tuple(some), unsaid) for settings, some in found.items()), key=in_order)


def file_name(algorithm: Any) -> str:
    """Of an algorithm of one's own, without its folders."""
    return Path(str(algorithm)).name


def _usual(name: str, value: str) -> bool:
    return value == "auto" or name == "iterations" or _USUAL.get(name) == value


def shared(
    header: list[str], rows: list[list[str]]
) -> tuple[list[str], list[list[str]], list[tuple[str, str]]]:
    """The table without what it would say in every row, and that."""
    alike = [at > 0 and len(rows) > 1 and len({row[at] for row in rows}) == 1 for at in range(len(header))]
    kept = [at for at in range(len(header)) if not alike[at]]
    same = [(header[at], rows[0][at]) for at in range(len(header)) if alike[at]]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows], same


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
