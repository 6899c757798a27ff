"""What an onlooker measures of a run.  Nothing here is protocol traffic, and no iterate depends on it.

A measurement gathers every node's model on rank 0 and, where rows are not private or it was asked for all the same,
every node's local objective: that sees private data through the losses, and is outside every privacy guarantee.
"""

from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node
from distadmm.ranks.uplink import Uplink
from distadmm.ranks.world import World

_AT_ONCE = 256  # measurements
_HELD, _HELD_BYTES = 16, 1 << 20  # measurements that are posted together, and what they take of all nodes
_SCORES = 1 << 18  # of test rows, made at once
_NOTHING = 1e-9  # of the objective at 0: rows that can be told apart without error, and no ridge


class Measurement(NamedTuple):
    """One line of `history.csv`."""

    iteration: int
    phase: str  # solve: reads the data; recycle: does not
    objective: float  # sum_i O_i(f_i)
    average_loss: float  # mean over the nodes of their mean loss at f_i
    mean_model_gap: float  # sum_i O_i(mean f) / optimum - 1; filled in when the optimum is known
    consensus_error: float  # sqrt(sum_i |f_i - mean f|^2)
    primal_residual: float  # the same / sqrt(N)
    dual_residual: float  # |f(t) - f(t-1)| / sqrt(N): how far the models still move
    kkt_residual: float  # worst gradient norm left by a primal solve of this iteration
    test_error: float  # share of test rows that the nodes' own models get wrong, mean over the nodes
    worst_test_error: float  # that of the node whose model does worst
    test_loss: float  # mean loss of the test rows at the nodes' own models, mean over the nodes
    worst_test_loss: float
    epsilon: float  # spent so far by the node that has spent most; what is reserved counts as spent
    statement: str  # what that number is worth: certificate, odometer, simulation, or none
    messages: int  # protocol messages so far, one a directed edge
    bytes: int
    seconds: float  # of protocol time, measurements excluded

    @property
    def diverged(self) -> bool:
        return not np.isfinite(self.consensus_error)

    @property
    def residual(self) -> float:
        return max(self.primal_residual, self.dual_residual)

    def details(self) -> list[str]:
        found = [f"disagreement {self.consensus_error:.2g}"]
        if self.objective == self.objective:
            found.insert(0, f"objective {self.objective:.6g}")
        if self.test_error == self.test_error:
            found.append(f"test error {100 * self.test_error:.2f} %")
        return found


class _Note(NamedTuple):
    """Of a measurement, what rank 0 knows by itself."""

    k: int
    phase: str
    statement: str
    seconds: float


class Observer:
    """Gathers and reduces; rank 0 holds the result, the others None."""

    columns = Measurement._fields

    def __init__(
        self,
        node: Node,
        world: World,
        test: Callable[[], tuple[Any, Array] | None],
        *,
        loss: Any = None,
        exact: bool = True,
    ):
        """`test` reads the test rows, when rank 0 first wants them, and `loss` is theirs; without `exact` no loss of
        private rows is computed."""
        self.node, self.world, self.loss, self.exact = node, world, loss, exact
        self._read_test = test
        self._size, self._order, self._order_held = 0, None, None
        rows, width = node.network.n_local, 7 + node.problem.dimension
        self._most = min(max(_HELD_BYTES // (8 * node.network.n_nodes * width), 1), _HELD)
        self._notes: list[_Note] = []  # of each that is held
        self._scores: list[Any] = []  # of the rows there, from which their losses follow
        self.uplink = Uplink(world, self._most * rows, width)
        self.spoilt: tuple[int, list[int]] | None = None  # when first, and which nodes had no finite numbers
        self._means: list[Array] = []  # the nodes' mean model at each measurement, on rank 0

    @cached_property
    def _held(self) -> Array:
        """What is posted; of a run that is not observed there is none."""
        return np.full((self._most, self.node.network.n_local, 7 + self.node.problem.dimension), np.nan)

    def _sort(self) -> None:
        """See how gathered rows are sorted by their nodes; ranks may have gone since they were last gathered."""
        if self._size != self.world.size:
            nodes, most = self.node.network.nodes, self._most
            held = np.arange(most)[:, None] * self.node.network.n_nodes
            self._size, order = self.world.size, self.world.rows_order(nodes)
            together = order if most == 1 else self.world.rows_order((held + nodes).ravel())
            self._order, self._order_held = order, None if together is None else together.reshape(most, -1)

    @cached_property
    def test(self) -> tuple[Any, Array] | None:
        return self._read_test()

    def gather(self, rows: Array) -> Array | None:
        """Rows of all nodes in the order of the nodes, on rank 0."""
        self._sort()
        gathered = self.world.gather_rows(rows, self.node.network.n_local)
        return None if gathered is None else gathered[self._order]

    def traffic(self) -> tuple[int, int, int]:
        """Protocol messages, bytes and lost messages of all nodes so far; on rank 0."""
        count = self.node.network.traffic
        found = self.world.gather((count.messages, count.bytes, count.lost)) or [(0, 0, 0)]
        return sum(m for m, _, _ in found), sum(b for _, b, _ in found), sum(lost for _, _, lost in found)

    def on_edges(self) -> dict[str, Array] | None:
        """Bytes that each directed edge carried, on rank 0."""
        network = self.node.network
        senders = np.repeat(network.nodes, np.diff(network.indptr))
        parts = self.world.gather((senders, network.indices, network.carried[:, 0]))
        if parts is None:
            return None
        sender, receiver, carried = (np.concatenate([part[at] for part in parts]) for at in range(3))
        order = np.lexsort((receiver, sender))
        return {"sender": sender[order], "receiver": receiver[order], "bytes": carried[order]}

    def measure(
        self, k: int, phase: str, state: Any, before: Any, seconds: float, later: bool = False
    ) -> list[Measurement]:
        problem, network, f = self.node.problem, self.node.network, state.f
        local, moved = self._held[len(self._notes)], f - before.f
        if self.exact:
            local[:, 2] = problem.residual if phase == "solve" else np.nan
            self._scores.append(problem.scores(f))
        local[:, 3] = np.einsum("ij,ij->i", moved, moved)
        local[:, 4] = self.node.release.epsilon
        local[:, 5] = network.traffic.messages / max(network.n_local, 1)
        local[:, 6] = network.traffic.bytes / max(network.n_local, 1)
        local[:, 7:] = f
        statement = self.node.release.statement if self.world.is_root else ""
        self._notes.append(_Note(k, phase, statement, seconds))
        return [] if later and len(self._notes) < self._most else self.lines()

    def lines(self) -> list[Measurement]:
        notes, self._notes = self._notes, []
        if not notes:
            return []
        # One after the other, so that all but the first find in the cache what a solve drives out of it.
        problem, scores, self._scores = self.node.problem, self._scores, []
        for local, known in zip(self._held, scores):
            problem.recall_scores(known)
            local[:, 0], local[:, 1] = problem.values(local[:, 7:]), problem.data_losses(local[:, 7:])
        self._sort()
        gathered, order = self.uplink.post(self._held.reshape(-1, self._held.shape[2])), self._order_held
        if gathered is None or order is None:
            return []
        return [self._line(note, gathered[at]) for note, at in zip(notes, order)]

    def _line(self, note: _Note, whole: Array) -> Measurement:
        k, phase, statement, seconds = note
        if not self.spoilt and not np.isfinite(whole[:, 7:]).all():
            self.spoilt = k, np.flatnonzero(~np.isfinite(whole[:, 7:]).all(axis=1)).tolist()
        mean = whole[:, 7:].mean(axis=0)
        self._means.append(mean)
        n = len(whole)
        own = OwnFigures() if self.test is None else own_figures(whole[:, 7:], self.test, self.loss)
        apart = float(np.sqrt(((whole[:, 7:] - mean) ** 2).sum()))
        return Measurement(
            iteration=k,
            phase=phase,
            objective=float(whole[:, 0].sum()),
            average_loss=float(whole[:, 1].mean()),
            mean_model_gap=float("nan"),  # the optimum is not known yet
            consensus_error=apart,
            primal_residual=apart / float(np.sqrt(n)),
            dual_residual=float(np.sqrt(whole[:, 3].sum() / n)),
            kkt_residual=float(whole[:, 2].max()),
            **own._asdict(),
            epsilon=float(whole[:, 4].max()),
            statement=statement,
            messages=round(whole[:, 5].sum()),
            bytes=round(whole[:, 6].sum()),
            seconds=seconds,
        )

    def at_means(self) -> Array:
        """sum_i O_i(mean f) of every measurement, on rank 0: all at once, when the loop is over."""
        count = self.world.broadcast(len(self._means))
        values = np.zeros(count)
        for first in range(0, count, _AT_ONCE):
            means = np.zeros((min(_AT_ONCE, count - first), self.node.problem.dimension))
            if self.world.is_root:
                means[:] = self._means[first : first + _AT_ONCE]
            rows = self.gather(self.node.problem.values_at(self.world.broadcast_array(means)))
            values[first : first + len(means)] = 0.0 if rows is None else rows.sum(axis=0)
        return values


def error_rate(f: Array, X: Any, y: Array) -> float:
    """Share of rows that the model gets wrong: by the sign of its score, or by the highest of several.

    NaN where the targets are numbers: there a row is not right or wrong.
    """
    return _wrong(_scores(f[None], X)[0], y)


class OwnFigures(NamedTuple):
    """Test rows under the nodes' own models: mean over the nodes, and the worst node."""

    test_error: float = float("nan")
    worst_test_error: float = float("nan")
    test_loss: float = float("nan")
    worst_test_loss: float = float("nan")


def own_figures(models: Array, test: tuple[Any, Array], loss: Any) -> OwnFigures:
    """Of each node's own model; a loss of NaN without `loss`.

    Models that are equal are looked at once, others some at a time, for the rows are read but once for them.
    """
    X, y = test
    names = [f.tobytes() for f in models]
    distinct = list({name: f for name, f in zip(names, models)}.values())
    step, found = max(_SCORES // max(len(y), 1), 1), []
    for first in range(0, len(distinct), step):
        for scores in _scores(np.array(distinct[first : first + step]), X):
            found.append((_wrong(scores, y), _mean_loss(scores, y, loss)))
    known = dict(zip(dict.fromkeys(names), found))
    errors, losses = map(np.array, zip(*(known[name] for name in names)))
    return OwnFigures(*(float(figure) for each in (errors, losses) for figure in (each.mean(), each.max())))


def _scores(models: Array, X: Any) -> Array:
    """For each model a score a row, or a row of them where there are several classes."""
    n, columns = len(models), X.shape[1]
    if models.shape[1] == columns:
        return models @ X.T  # type: ignore[no-any-return]
    return (models.reshape(-1, columns) @ X.T).reshape(n, -1, X.shape[0]).transpose(0, 2, 1)  # type: ignore[no-any-return]


def _wrong(scores: Array, y: Array) -> float:
    if scores.ndim > 1:
        return float(np.mean(np.argmax(scores, axis=1) != y))
    if not np.all(np.abs(y) == 1):
        return float("nan")
    return float(np.mean((scores > 0) != (y > 0)))


def _mean_loss(scores: Array, y: Array, loss: Any) -> float:
    if loss is None:
        return float("nan")
    if scores.ndim == 1:
        return float(np.mean(loss.value(scores, y)))
    top = scores.max(axis=1)
    own = np.take_along_axis(scores, np.asarray(y, dtype=np.int64)[:, None], axis=1)[:, 0]
    return float(np.mean(top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - own))


def optimum(node: Node, observer: Observer) -> tuple[Array, float]:
    """argmin_f sum_i O_i(f) and its value, by Newton's method on the pooled objective; 0 where it is next to nothing.

    It needs every node's data in one sum, so it is an onlooker's figure: a deployment cannot have it.
    """
    objectives = node.problem.objectives
    world = observer.world
    f = np.zeros(node.problem.dimension)

    def total(values: Array) -> Array:
        rows = observer.gather(values.reshape(len(objectives), -1))
        summed = np.zeros(values[0].size) if rows is None else rows.sum(axis=0)
        return world.broadcast_array(summed).reshape(values.shape[1:])

    def value(f: Array) -> float:
        return float(total(np.array([[o.value(f)] for o in objectives]))[0])

    def slope(f: Array) -> Array:
        return total(np.stack([o.grad(f) for o in objectives]))

    start, steepest = value(f), float(np.linalg.norm(slope(f)))
    here = start
    if node.problem.matrix_free:
        from distadmm.problems.newton import NewtonCG

        product = lambda f, v: total(np.stack([o.hessp(f, v) for o in objectives]))  # noqa: E731
        pooled = SimpleNamespace(grad=slope, hessp=product)  # every rank takes the same steps
        f = NewtonCG(pooled).minimise(np.zeros_like(f), 0.0, f, 1e-9 * steepest).f
        here = value(f)
        return f, here if here > _NOTHING * start else 0.0
    for _ in range(100):
        g = slope(f)
        H = total(np.stack([o.hess(f) for o in objectives]))
        step = -np.linalg.lstsq(H, g, rcond=None)[0]
        decrement = -float(g @ step)
        if decrement <= 1e-15 * abs(here):
            break
        length = 1.0
        while (there := value(f + length * step)) > here - 1e-4 * length * decrement and length > 1e-10:
            length *= 0.5
        if there >= here:
            break
        f, here = f + length * step, there
    # A hinge is not curved everywhere, and Newton's method lost.
    if np.linalg.norm(slope(f)) > 1e-6 * steepest:
        from scipy.optimize import minimize

        # Every rank takes the same steps, for it is told the same sums.
        found = minimize(value, f, jac=slope, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 20000})
        if found.fun < here:
            f, here = found.x, float(found.fun)
    return f, here if here > _NOTHING * start else 0.0
