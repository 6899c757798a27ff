"""The run directory of ADMM sharing, the curves in it, and the table printed at the end."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distadmm.data.parts import Parts
from distadmm.files import write_csv, write_json, write_npz
from distadmm.methods.sharing import admm
from distadmm.methods.sharing.observe import Metrics, Observer, table
from distadmm.ranks.star import Star
from distadmm.run.claim import claim_directory

if TYPE_CHECKING:
    from distadmm.methods.sharing.solution import Solution

Array = np.ndarray

HISTORY = ("iteration", "rho", "residual", "objective", "test_loss", "accuracy")


class Recorder:
    """Called after every iteration on every rank; rank 0 keeps the rows of `history.csv`.

    `each` measures the model every iteration, `end` only when asked by `last`, `none` never: then the
    rows hold what the centre knows by itself.
    """

    def __init__(self, star: Star, parts: Parts, problem: admm.Problem, observe: str):
        self.star, self.each, self.centred = star, observe == "1", True
        self.observer = Observer(star, parts, problem) if observe != "none" else None
        self.rows: list[Sequence[Any]] = []

    def __call__(self, t: int, state: Any) -> None:
        metrics = None
        if self.observer and self.each:
            metrics = self.observer.metrics(state.x, state.b, plain=not self.centred)
        if not self.star.is_centre:
            return
        rho, residual = float("nan"), float("nan")
        if isinstance(state, admm.State):
            scale = max(float(np.linalg.norm(state.z)), 1e-300)
            rho, residual = state.rho, float(np.linalg.norm(state.total - state.z)) / scale
        cells = [rho, residual, *(metrics or ())]
        self.rows.append([t, *(f"{value:.10g}" if np.isfinite(value) else "" for value in cells)])

    def plain(self) -> Recorder:
        """For models of columns that are not centred."""
        self.centred = False
        return self

    def comparison(self, name: str, solution: Solution, *, plain: bool = False) -> dict[str, Metrics | None]:
        """Rank 0: party 1 alone, all features in one place, and this run."""
        names = ("party 1 alone", "all features, one place", name)
        if self.observer is None:
            return dict.fromkeys(names)
        own = self.observer.metrics(solution.models, solution.intercept, plain=plain)
        if not self.star.is_centre:
            return {}
        everyone = tuple(self.star.home)
        measured = (self.observer.reference((1,)), self.observer.reference(everyone), own)
        return dict(zip(names, measured))


class Directory:
    """Claimed before the run so that nothing is overwritten; written when it is over."""

    def __init__(self, star: Star, options: Sequence[Any], out: str | None, *, force: bool):
        self.star, self.started = star, time.perf_counter()
        self.config = {key: value for part in options for key, value in asdict(part).items()}
        self.path = Path(star.world.on_root(lambda: str(claim_directory(out, "sharing", force=force))))
        if star.is_centre:
            write_json(self.path / "config.json", self._config())

    def _config(self, **more: Any) -> dict[str, Any]:
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        layout = {f"party {m}": rank for m, rank in self.star.home.items()}
        return {
            "verb": "sharing",
            "config": self.config,
            "versions": versions,
            "ranks": {"centre": 0, **layout},
            **more,
        }

    def finish(
        self,
        parts: Parts,
        solution: Solution,
        recorder: Recorder,
        replies: Mapping[int, Array] | None = None,
        **more: Any,
    ) -> str:
        """Models by their owners, curves and the closing table; the text on rank 0."""
        seconds = time.perf_counter() - self.started
        traffic = self.star.traffic()
        rows = recorder.comparison(f"this run, {self.star.parties} parties", solution, plain=solution.private)
        gathered = self.star.world.gather({m: int(x.size) for m, x in solution.models.items()})
        widths = {m: width for part in gathered or [] for m, width in part.items()}
        self._write_models(parts, solution)
        if not self.star.is_centre:
            return ""
        if recorder.rows:
            write_csv(self.path / "history.csv", HISTORY, recorder.rows)
        if replies:  # what party 1 was told
            write_npz(self.path / "replies.npz", {f"party-{m}": reply for m, reply in replies.items()})
        result = {
            "iterations": solution.iterations,
            "columns": [widths[m] for m in sorted(widths)],
            "converged": solution.converged,
            "failure": solution.failure,
            "theta": solution.theta,
            "tau": solution.tau,
            "rho": None if np.isnan(solution.rho) else solution.rho,
            "traffic": traffic,
            "seconds": round(seconds, 3),
            "comparison": {
                name: _finite(metrics._asdict()) if metrics else None for name, metrics in rows.items()
            },
            **more,
        }
        write_json(self.path / "config.json", self._config(result=result))
        lines = [
            _headline(self.star, parts, solution, traffic),
            "",
            table(rows),
            *_verdict(rows),
            "",
            str(self.path),
        ]
        return "\n".join(lines)

    def _write_models(self, parts: Parts, solution: Solution) -> None:
        """Each party's model is written by the rank that hosts it, and by no other."""
        folder = self.path / "models"
        if self.star.is_centre:
            folder.mkdir()
            write_npz(folder / "centre.npz", {"intercept": np.array(solution.intercept)})
        self.star.world.barrier()  # the folder is there
        for m, x in solution.models.items():
            names = np.array(parts.names.get(m, ()), dtype=str)
            write_npz(folder / f"party-{m}.npz", {"x": x, "mean": solution.means[m], "names": names})
        self.star.world.barrier()  # and so are all models


def said_of_masks(parties: int, *, noisy: bool = False) -> list[str]:
    """What secure aggregation does and does not do here."""
    lines = ["Secure aggregation: the centre saw the sum of the parties' vectors and no single one."]
    if parties == 2:
        lines.append(
            "With two parties each can subtract its own vector from the sum: no protection from the other."
        )
    if noisy:
        lines.append("Masks save no noise here: every vector carries what it needs by itself.")
    return lines


def outlook(star: Star, parts: Parts, model: Any) -> str:
    """What a dry run says of a run without privacy."""
    ranks = f"{star.world.size} rank" + ("s" if star.world.size > 1 else "")
    vectors = 2 if model.form == "paper" else 1
    size = parts.rows * star.wire.itemsize
    return (
        f"{parts.rows} records, {star.parties} parties on {ranks}, {model.form} form\n"
        f"a party and iteration: 1 vector up ({size} bytes), {vectors} down ({vectors * size} bytes), "
        f"at most {model.iterations} iterations\n"
        "nothing is private: the first vector down tells every party all labels, and later ones the predictions\n"
        "of the others; give --epsilon for the private mode"
    )


def _verdict(rows: Mapping[str, Metrics | None]) -> list[str]:
    """Said when the other parties' features did not help."""
    alone, _, run = rows.values()
    if alone is None or run is None or not run.test_loss >= alone.test_loss:
        return []
    return [
        "party 1 alone does better than this run: its own columns, without any message, are the better model"
    ]


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {key: value if np.isfinite(value) else None for key, value in values.items()}


def _headline(star: Star, parts: Parts, solution: Solution, traffic: Any) -> str:
    ranks = f"{star.world.size} rank" + ("s" if star.world.size > 1 else "")
    lines = [f"{parts.rows} records, {star.parties} parties on {ranks}"]
    if solution.private:
        lines.append(f"{solution.iterations} round" + ("s" if solution.iterations > 1 else ""))
    elif solution.failure:
        lines.append(f"NOT CONVERGED: {solution.failure}")
    elif solution.converged:
        lines.append(f"converged after {solution.iterations} iterations")
    else:
        lines.append(f"stopped after {solution.iterations} iterations; more may help: --iterations")
    if not solution.private:
        known = (
            "tell every party all labels"
            if parts.labels is not None and set(np.unique(parts.labels)) == {-1.0, 1.0}
            else "let parties estimate the targets"
        )
        lines.append(f"not private: the slopes the centre sends {known}")
    up, down = (traffic.get(f"vector {way}", {"bytes": 0, "messages": 0}) for way in ("up", "down"))
    lines.append(
        f"protocol: {up['messages']} vectors up ({up['bytes']} bytes), "
        f"{down['messages']} down ({down['bytes']} bytes)"
    )
    return "\n".join(lines)
