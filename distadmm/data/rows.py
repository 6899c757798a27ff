"""The rows of a run: a bundled table, the user's file, or made up with the answer known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from distadmm.data import synthetic
from distadmm.data.public import PublicFacts
from distadmm.errors import InputError
from distadmm.problems.losses import Loss, task_of

Array = np.ndarray


@dataclass(frozen=True)
class Rows:
    X: Array
    y: Array
    test: tuple[Array, Array] | None  # held-out rows
    names: tuple[str, ...]  # of the columns
    description: dict[str, Any]
    dataset: str  # keyed name of the data, for the ledger
    truth: synthetic.Problem | None = None
    labels: bool = True  # targets are -1/+1, not numbers
    facts: PublicFacts | None = None  # what is known of the table, and by what; None: made up

    def quality(self, theta: Array, intercept: bool) -> dict[str, float]:
        """How good coefficients are on the held-out rows, and against the truth where it is known."""
        found: dict[str, float] = {}
        weights, shift = (theta[:-1], theta[-1]) if intercept else (theta, 0.0)
        if self.truth is not None:
            found["support_f1"] = self.truth.support_f1(weights)
            if self.labels:
                found |= {
                    "accuracy": self.truth.accuracy(weights),
                    "bayes_accuracy": self.truth.bayes_accuracy,
                }
            else:
                found["excess_error"] = self.truth.excess(weights)
        elif self.test is not None:
            z = self.test[0] @ weights + shift
            if self.labels:
                found["test_accuracy"] = float((np.where(z > 0, 1.0, -1.0) == self.test[1]).mean())
            else:
                found["test_mean_squared_error"] = float(((z - self.test[1]) ** 2).mean())
        return found


def load(text: str, *, loss: Loss, row_norm: float | None, seed: int, **reading: Any) -> Rows:
    """The rows that `--data TEXT` names; `reading` says how a user's file is to be read."""
    if text.startswith("synthetic"):
        return _made_up(text, loss, seed)
    from distadmm.data.source import BUNDLED, open_source
    from distadmm.data.table import local_key

    if text not in BUNDLED:
        reading["task"] = task_of(loss)
    source = open_source(text, clip=row_norm, seed=seed, **reading)
    if not source.pooled_allowed:
        raise InputError(f"--data {text} is one file a node; ISTDP trains on one table: give a single file")
    X, y = source.everything()  # type: ignore[attr-defined]
    description = source.describe()
    return Rows(
        X=X,
        y=y,
        test=source.test(),  # type: ignore[arg-type]
        names=source.feature_names,
        description={
            key: description[key] for key in ("name", "rows", "test_rows", "features", "clip", "licence")
        },
        dataset=source.data_id(None if text in BUNDLED else local_key()),
        labels=loss.labels,
        facts=source.facts,
    )


def _made_up(text: str, loss: Loss, seed: int) -> Rows:
    matched = re.fullmatch(r"synthetic:(\d+)(?:x(\d+))?", text)
    if not matched:
        raise InputError(
            f"--data is {text!r}; needed: synthetic:ROWS or synthetic:ROWSxCOLUMNS, as synthetic:4000x200"
        )
    n, d = int(matched[1]), int(matched[2] or 200)
    kind = "logistic" if loss.labels else "squared"
    truth = synthetic.problem(kind, n, d, support=min(10, d), seed=seed)
    return Rows(
        X=truth.X,
        y=truth.y,
        test=None,
        names=tuple(f"x{j}" for j in range(d)),
        description={"name": text, "rows": n, "features": d, "licence": "made up", "seed": seed},
        dataset=f"{text}:{kind}:{seed}",
        truth=truth,
        labels=loss.labels,
    )
