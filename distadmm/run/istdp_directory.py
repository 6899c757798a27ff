"""The run directory of ISTDP and the table that closes a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.rows import Rows
from distadmm.files import write_csv, write_json, write_npz

Array = np.ndarray


@dataclass(frozen=True)
class Outcome:
    """What one repetition leaves behind."""

    theta: Array
    history: list[dict[str, float]]  # lines of history.csv, their columns by name
    facts: dict[str, Any]  # the same for all repetitions
    quality: dict[str, float]
    notes: list[str] = field(default_factory=list)  # sentences for the reader
    finished: bool = True  # converged, or never stuck


def write(folder: Path, outcomes: Sequence[Outcome], rows: Rows, intercept: bool) -> dict[str, Any]:
    """history.csv, models.npz, coefficients.csv and summary.json; the summary is returned."""
    names = (*rows.names, *(("intercept",) if intercept else ()))
    theta = np.stack([outcome.theta for outcome in outcomes])
    columns = list(outcomes[0].history[0]) if outcomes[0].history else []
    lines = (
        (repetition, *(line[column] for column in columns))
        for repetition, outcome in enumerate(outcomes)
        for line in outcome.history
    )
    write_csv(folder / "history.csv", ("repetition", *columns), lines)
    write_npz(folder / "models.npz", {"theta": theta, "names": np.array(names)})
    chosen = np.flatnonzero(theta.any(axis=0))
    heads = ("column", *(f"theta_{r}" for r in range(len(theta))))
    write_csv(folder / "coefficients.csv", heads, ((names[j], *theta[:, j].tolist()) for j in chosen))
    summary = summarise(outcomes)
    write_json(folder / "summary.json", summary)
    return summary


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Means over the repetitions, standard deviations where there are several."""
    summary: dict[str, Any] = {"repetitions": len(outcomes), **outcomes[0].facts}
    measured = {**outcomes[0].quality, "nonzeros": 0.0}
    for name in measured:
        values = np.array(
            [{**o.quality, "nonzeros": np.count_nonzero(o.theta)}[name] for o in outcomes], dtype=float
        )
        summary[name] = float(values.mean())
        if len(values) > 1:
            summary[f"{name}_sd"] = float(values.std(ddof=1))
    notes = [note for outcome in outcomes for note in outcome.notes]
    summary["notes"] = list(dict.fromkeys(notes))
    return summary


def table(summary: dict[str, Any], folder: Path) -> Iterator[str]:
    """The closing lines."""
    width = max(len(name) for name in summary) + 2
    for name, value in summary.items():
        if name == "notes" or name.endswith("_sd"):
            continue
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        spread = summary.get(f"{name}_sd")
        yield f"{name.replace('_', ' '):<{width}}{shown}" + (
            f" +- {spread:.2g}" if spread is not None else ""
        )
    yield from summary["notes"]
    yield f"{'written to':<{width}}{folder}"
