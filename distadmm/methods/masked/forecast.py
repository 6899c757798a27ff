"""What a masked run will lose, from (n, d, mu, N, c) alone: its own learner, on rows that were made up.

The totals of few rows stand for those of n, each with the noise that the sum of all nodes will carry.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distadmm.data import synthetic
from distadmm.methods.forecasts import Forecast
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Array, Rule, diagonal
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import Logistic

LARGEST = 1000  # columns of a table that is made up
_ROWS, _RUNS = 3000, 5
_NOISE = 0x464F5245


def forecast_of(rule: Rule) -> Forecast:
    """Of the mean log loss; NaN where nothing is known of such a run."""
    if rule.loss != "logistic" or rule.columns > LARGEST or rule.of_nodes:
        return Forecast(rule, np.array([np.nan]))
    rows = min(rule.rows, max(_ROWS, 6 * rule.columns))
    tables = (synthetic.table(rows, rule.columns, 0, run) for run in range(_RUNS))
    each = excesses(rule, [objective(X, y) for X, y in tables])
    return Forecast(rule, each, "on synthetic rows of this shape")


def objective(X: Array, y: Array) -> GeneralisedLinear:
    """The mean log loss of these rows."""
    return GeneralisedLinear(X, y, Logistic())


def excesses(rule: Rule, tables: Sequence[GeneralisedLinear]) -> Array:
    """The same on each of these tables, whose rows stand for all n."""
    return np.array([loss_of(rule, table, run) - least_loss(rule, table) for run, table in enumerate(tables)])


def loss_of(rule: Rule, table: GeneralisedLinear, run: int = 0) -> float:
    """Mean loss of the model of one run on this table; `run` numbers its noise."""
    rng = np.random.default_rng((_NOISE, run))
    rows, learner = Rows(*table.records(), rule, None), Learner(rule)
    while not learner.done:
        ask = learner.ask()
        noise = rng.normal(size=ask.words) * rule.sd(ask.kind, ask.t) * rule.excess(rule.nodes)
        if ask.kind == "curvature":
            noise[~diagonal(rule.columns)] /= np.sqrt(2)
        learner.take(rows_sum(rows, ask, learner) * (rule.rows / table.rows) + noise, rule.nodes)
    return table.data_loss(learner.model()[:, 0])


def least_loss(rule: Rule, table: Any) -> float:
    """The loss that the rule would reach without noise."""
    start = np.zeros((1, rule.columns))
    f = Problem([table]).argmin(start, np.full((1, 1), rule.ridge / rule.rows), start)
    return float(table.data_loss(f[0]))
