"""The numbers of a study: a line a run, pooled over seeds with intervals, and ranked.

Of one network the mean over its runs is told.  Its variance is that of the means of the graphs over their number, plus
that of the means of the deals over theirs: what both factors share is counted twice, so intervals err to the wide side.
Two networks are compared on the same deals of the rows: deal by deal, so that what a deal does to both cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from distadmm.commands import report_runs

if TYPE_CHECKING:
    from distadmm.commands.study import Case, Options
    from distadmm.graphs.facts import Facts

T = TypeVar("T")
PROPERTIES = {"connectivity": "algebraic connectivity", "mu": "mu", "degree": "mean degree"}


class Line(NamedTuple):
    """One run, as study.csv has it."""

    family: str
    nodes: int
    topology: str
    graph_seed: int | None
    data_seed: int
    algorithm: str
    asked_epsilon: float | None
    edges: int
    degree: float
    connectivity: float
    mu: float
    diameter: int
    iterations: int
    iterations_to_gap: float  # infinite where the run ended before; of private runs not known
    megabytes_to_gap: float
    # Factor an iteration by which the models' movement shrinks, over the second half of the run.
    measured_rate: float
    predicted_rate: float | None
    gap: float
    test_error: float
    worst_test_error: float
    test_loss: float
    worst_test_loss: float
    epsilon: float  # spent
    statement: str
    megabytes: float
    seconds: float
    ended: str
    directory: str


class Measure(NamedTuple):
    """What networks are ranked by, the less the better."""

    column: str
    label: str
    show: str
    epsilon: float | None = None


class Pooled(NamedTuple):
    """One network under one measure, over its seeds."""

    family: str
    nodes: int
    values: dict[tuple[int | None, int], float]  # by graph seed and data seed
    lines: list[Line]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    def of_graph(self, name: str) -> float:
        return float(np.mean([getattr(line, name) for line in self.lines]))

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval; NaN of one seed, or where a run did not get there."""
        return _half(_parts(self.values)) if math.isfinite(self.mean) else math.nan


class Ranked(NamedTuple):
    pooled: Pooled
    rank: int
    lowest: int  # ranks that the runs do not tell apart from it
    highest: int


def line(case: Case, facts: Facts, options: Options, rates: Mapping[str, float | None]) -> Line:
    """`rates`: those that were predicted, by algorithm and network."""
    folder = case.point.folder(Path(options.out))
    trace = report_runs.read(folder)
    at = trace.first_below(options.gap)
    to_gap = [math.inf if at is None else float(trace.history[c][at]) for c in ("iteration", "bytes")]
    to_gap = to_gap if case.epsilon is None else [math.nan, math.nan]
    last = ("mean_model_gap", "test_error", "worst_test_error", "test_loss", "worst_test_loss")
    family, _, *told, _ = case
    graph = facts.edges, facts.degree_mean, facts.algebraic_connectivity, facts.mu, facts.diameter
    predicted = None if case.epsilon else rates.get(f"{case.algorithm} {case.topology}")
    course = int(trace.iterations), to_gap[0], 1e-6 * to_gap[1], _rate(trace), predicted
    end = 1e-6 * trace.last("bytes"), trace.last("seconds"), trace.ended, folder.name
    ends = (*map(trace.last, last), trace.epsilon, trace.statement, *end)
    return Line._make((family, facts.nodes, *told, *graph, *course, *ends))


def _rate(trace: report_runs.Trace) -> float:
    """From the slope of the logarithm of how far the models still move; NaN where that was not seen."""
    k, moved = trace.history["iteration"], trace.history["dual_residual"]
    late = (k > k[-1] / 2) & (moved > 1e-12 * np.nanmax(moved, initial=0)) if len(k) else np.zeros(0, bool)
    if late.sum() < 4:
        return math.nan
    return float(np.exp(np.polyfit(k[late], np.log(moved[late]), 1)[0]))


def measures(lines: Sequence[Line], options: Options) -> list[Measure]:
    """The loss under each budget; without noise, how soon the gap is reached."""
    budgets = sorted({one.asked_epsilon for one in lines if one.asked_epsilon is not None})
    return [
        Measure("iterations_to_gap", f"iterations to {options.gap:g}", "{:.1f}"),
        Measure("megabytes_to_gap", f"MB to {options.gap:g}", "{:.3g}"),
        *(Measure("test_loss", f"test loss at epsilon {e:g}", "{:.4f}", e) for e in budgets),
    ]


def by(items: Sequence[T], *names: str) -> dict[tuple[Any, ...], list[T]]:
    """`items` by these attributes, in order of appearance."""
    found: dict[tuple[Any, ...], list[T]] = {}
    for item in items:
        found.setdefault(tuple(getattr(item, name) for name in names), []).append(item)
    return found


def pooled(lines: Sequence[Line], measure: Measure) -> list[Pooled]:
    """The networks of these runs, over their seeds."""
    runs = [one for one in lines if one.asked_epsilon == measure.epsilon]
    return [
        Pooled(*which, {(o.graph_seed, o.data_seed): getattr(o, measure.column) for o in some}, some)  # type: ignore[call-arg]
        for which, some in by(runs, "family", "nodes").items()
    ]


def _means(values: Mapping[Any, float], factor: int) -> dict[int | None, float]:
    """By the seed of the graph (0) or of the deal (1)."""
    found: dict[int | None, list[float]] = {}
    for seeds, value in values.items():
        found.setdefault(seeds[factor], []).append(value)
    return {seed: float(np.mean(some)) for seed, some in found.items()}


def _parts(values: Mapping[Any, float]) -> list[tuple[float, int]]:
    """What each factor adds to the variance of the mean, and its degrees of freedom."""
    by = [means for factor in (0, 1) if len(means := _means(values, factor)) > 1]
    if len(by) == 2 and len(values) == len(by[0]):
        by = by[:1]  # each graph had a deal of its own: one factor
    return [(float(np.var(list(means.values()), ddof=1)) / len(means), len(means) - 1) for means in by]


def _half(parts: Sequence[tuple[float, int]]) -> float:
    """Half the width of a 95 % interval, its freedom by Welch and Satterthwaite; NaN where nothing varied."""
    from scipy.stats import t

    variance = sum(part for part, _ in parts)
    if not variance:
        return 0.0 if parts else math.nan
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return float(t.ppf(0.975, freedom) * math.sqrt(variance))


def _less(one: Pooled, other: Pooled) -> bool:
    """Whether `one` is told to lie below `other`, at 95 %, from the deals that both have had."""
    if not math.isfinite(one.mean) or not math.isfinite(other.mean):
        return math.isfinite(one.mean) and all(math.isinf(v) for v in other.values.values())
    a, b = _means(one.values, 1), _means(other.values, 1)
    difference = {(None, s): b[s] - a[s] for s in a.keys() & b.keys()}
    parts = _parts(difference)
    for each in (one, other):
        parts += _parts({(seed, None): mean for seed, mean in _means(each.values, 0).items()})
    return other.mean - one.mean > _half(parts)  # of one run each: NaN, and nothing is told


def ranking(networks: Sequence[Pooled]) -> list[Ranked]:
    """The least first, each with the ranks that it may as well have."""
    networks = [one for one in networks if not math.isnan(one.mean)]
    order = sorted(networks, key=lambda one: (one.mean, -reached(one)))
    below = [sum(_less(other, one) for other in order) for one in order]
    above = [sum(_less(one, other) for other in order) for one in order]
    return [
        Ranked(one, at, 1 + less, len(order) - more)
        for at, (one, less, more) in enumerate(zip(order, below, above), 1)
    ]


def reached(one: Pooled) -> int:
    """How many of its runs came to the gap."""
    return sum(math.isfinite(value) for value in one.values.values())


def rank(place: Ranked) -> str:
    return f"{place.rank}" + f" ({place.lowest}-{place.highest})" * (place.lowest != place.highest)
