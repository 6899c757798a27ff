"""An observer that sees everything, apart from the protocol: curves, and the two models to compare with.

Nothing here reaches the centre or a party; a run with and without it has the same bits.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.parts import Parts, pooled, sparse_or_dense
from distadmm.methods.sharing import admm, jacobi, seat, stationary
from distadmm.problems.columns import Columns
from distadmm.problems.losses import Array, Loss
from distadmm.ranks.star import Star
from distadmm.ranks.uplink import Uplink


class Metrics(NamedTuple):
    """Of one model: the objective of the training records over N, and losses per test record."""

    objective: float
    test_loss: float
    accuracy: float


class Line(NamedTuple):
    iteration: int
    rho: float
    residual: float  # |S - z| as a share of the predictions: what the centre knows by itself
    objective: float  # from here on the onlooker's, as in `Metrics`
    test_loss: float
    accuracy: float
    stationarity: float = float("nan")  # V of `stationary`, where loss or regulariser is not convex

    @property
    def diverged(self) -> bool:
        """The centre sees to that."""
        return False

    def details(self) -> list[str]:
        shown = {"residual": self.residual, "objective": self.objective, "test loss": self.test_loss}
        shown["V"] = self.stationarity
        return [f"{name} {value:.4g}" for name, value in shown.items() if value == value]


class Observer:
    """Holds all columns on rank 0; other ranks only lend theirs.  Without `exact`, those of the test rows alone."""

    def __init__(self, star: Star, parts: Parts, problem: admm.Problem, *, exact: bool = True):
        self.star, self.problem, self.exact = star, problem, exact
        self.labels, self.test_labels = parts.labels, parts.test_labels
        self.train = pooled(star, parts.train if exact else {}) or {}
        self.test = pooled(star, parts.test) or {}
        self.means = {
            m: np.asarray(matrix.mean(axis=0)).ravel() if problem.intercept else np.zeros(matrix.shape[1])
            for m, matrix in self.train.items()
        }

    def metrics(self, x: Mapping[int, Array], b: float, *, plain: bool = False) -> Metrics | None:
        """Of the model whose parts the ranks hold; on rank 0, else None.

        A model is for centred columns where the problem has an intercept, unless it is `plain`.
        """
        models = self._gathered(x)
        if models is None:
            return None
        shift = 0.0 if plain else sum(float(models[m] @ self.means[m]) for m in models)
        return self.measure(models, b - shift)

    def _gathered(self, x: Mapping[int, Array]) -> dict[int, Array] | None:
        """All parties' models in their order on rank 0, else None."""
        parts = self.star.world.gather(dict(x))
        return parts if parts is None else dict(sorted(item for part in parts for item in part.items()))

    def stationarity(self, state: Any) -> float:
        """V on rank 0, and NaN elsewhere; called by every rank, of a problem that is not convex."""
        models = self._gathered(state.x)
        if models is None or self.labels is None or not self.exact:
            return float("nan")
        slopes = {m: partial(self._slope, m) for m in models}
        return stationary.measure(self.problem, self.labels, state, models, slopes)

    def _slope(self, m: int, u: Array) -> Array:
        """D_m'u, of centred columns where the problem has an intercept."""
        return np.asarray(self.train[m].T @ u).ravel() - float(u.sum()) * self.means[m]

    def measure(self, x: Mapping[int, Array], b: float) -> Metrics:
        """Rank 0: the metrics of a model in plain columns, of all parties or of some."""
        problem, labels, objective = self.problem, self.labels, float("nan")
        assert labels is not None
        if self.exact:
            loss = problem.loss.value(_scores(self.train, x, b), labels).sum()
            whole = loss + problem.lam * sum(problem.reg.value(part) for part in x.values())
            objective = float(whole) / labels.size
        if self.test_labels is None or not self.test:
            return Metrics(objective, float("nan"), float("nan"))
        return Metrics(objective, *test_metrics(problem.loss, _scores(self.test, x, b), self.test_labels))

    def reference(self, parties: tuple[int, ...]) -> Metrics:
        """Rank 0: the model trained in one place on the columns of these parties."""
        assert self.labels is not None
        x, b = centralised([self.train[m] for m in parties], self.labels, self.problem)
        edges = np.cumsum([0, *(self.train[m].shape[1] for m in parties)])
        return self.measure({m: x[edges[i] : edges[i + 1]] for i, m in enumerate(parties)}, b)


class Watcher:
    """The loop's onlooker; without an `observer` a line holds what the centre knows by itself."""

    columns = Line._fields

    def __init__(self, star: Star, observer: Observer | None, *, plain: bool):
        self.star, self.observer, self.plain = star, observer, plain
        self.uplink = Uplink(star.world, 0, 1)

    def lines(self) -> list[Line]:
        """Nothing is held back."""
        return []

    def measure(self, k: int, phase: str, state: Any, before: Any, seconds: float, later: bool) -> list[Line]:
        metrics, V, rho, residual = None, *[float("nan")] * 3
        if self.observer is not None:
            metrics = self.observer.metrics(state.x, state.b, plain=self.plain)
            if isinstance(state, admm.State) and not self.observer.problem.convex:
                V = self.observer.stationarity(state)
        if not self.star.is_centre:
            return []
        if isinstance(state, admm.State):
            scale = max(float(np.linalg.norm(state.z)), 1e-300)
            rho, residual = state.rho, float(np.linalg.norm(state.total - state.z)) / scale
        return [Line(k, rho, residual, *(metrics or Metrics(*[float("nan")] * 3)), V)]


def centralised(blocks: list[Any], labels: Array, problem: admm.Problem) -> tuple[Array, float]:
    """(x, b) of the problem solved in one place: the same iteration with a single party."""
    from scipy.sparse import hstack, issparse

    joined = hstack(blocks).tocsr() if any(map(issparse, blocks)) else np.hstack(blocks)
    columns = Columns(sparse_or_dense(joined), centre=problem.intercept)
    alone = seat.Seat(Star(parties=1), problem, {1: columns}, labels, labels.size)
    _, found = seat.iterate(jacobi.Corrected(tolerance=1e-7, tau=0.0), alone, 500)
    return found.x[1], found.b - float(columns.mean @ found.x[1])


def test_metrics(loss: Loss, score: Array, labels: Array) -> tuple[float, float]:
    """(mean loss, share of right signs); the share is NaN where targets are not labels."""
    accuracy = float((np.where(score >= 0, 1.0, -1.0) == labels).mean()) if loss.labels else float("nan")
    return float(loss.value(score, labels).mean()), accuracy


def _scores(matrices: Mapping[int, Any], x: Mapping[int, Array], b: float) -> Array:
    return sum(matrices[m] @ part for m, part in x.items()) + b
