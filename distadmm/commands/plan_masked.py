"""Masked sums beside a plan of R-ADMM: forecast on the same rows that were made up, and which of the two to use."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import InputError
from distadmm.methods.masked import forecast
from distadmm.methods.masked.rule import Array, Rule, choose
from distadmm.ranks.world import World


class Beside(NamedTuple):
    """A masked run under the same budget, before it is forecast."""

    rule: Rule
    words: str  # where the rule expects little
    refused: str  # why there is no such run; empty where there is one


def rule_for(options: Any, rows: int, columns: int) -> Beside:
    """The rule of a masked run with these rows a node; no row is read."""
    from distadmm.graphs.topology import load_changing
    from distadmm.privacy.accounting.gaussian import mu_at
    from distadmm.privacy.accounting.shared_discrete_gaussian import colluding_of

    n = load_changing(options.topology).union.n
    rule = choose(
        name="centred", loss="logistic", adjacency=options.adjacency, nodes=n, rows=n * rows, columns=columns,
        colluding=colluding_of(options.trust, n), mu=mu_at(options.epsilon, options.delta),
    )  # fmt: skip
    try:
        return Beside(rule, rule.check(), "")
    except InputError as error:
        return Beside(rule, "", str(error))


def losses(beside: Beside, surrogates: Sequence[Any], world: World) -> list[tuple[float, float]] | None:
    """Mean loss of a masked run on the pooled rows of each, and of the best model; on rank 0."""

    def one(run: int) -> tuple[float, float]:
        rows = np.vstack([o.A for o in surrogates[run].node.problem.objectives])  # which carry their labels
        pooled = forecast.objective(rows, np.ones(len(rows)))
        return forecast.loss_of(beside.rule, pooled, run), forecast.least_loss(beside.rule, pooled)

    return [] if beside.refused else world.share_out(one, range(len(surrogates)))


def lines(
    options: Any, beside: Beside, found: Sequence[tuple[float, float]], other: Sequence[float]
) -> list[str]:
    """What to print; `other`: mean losses of the plan's algorithm on the same rows, none where it is out of reach."""
    rule, name = beside.rule, options.algorithm
    if beside.refused:
        return [f"masked      none: {beside.refused}", f"use         {name}, which trusts nobody"]
    loss, least = np.array(found).T
    excess, messages = loss - least, 2 * (rule.nodes - 1) * rule.most_rounds
    said = [
        f"masked      {options.trust}: at most {rule.most_rounds} rounds of {messages} messages in all; mean loss "
        f"{excess.mean():.4f} above the best ({excess.min():.4f} to {excess.max():.4f})"
        + (f"; {beside.words}" if beside.words else "")
    ]
    margin = np.array(other) - loss if len(other) else np.array([])
    assumes = (
        "no masks, nobody is trusted in either"
        if rule.colluding == rule.nodes - 1
        else f"it assumes that at most {rule.colluding} of {rule.nodes} nodes collude, {name} does not"
    )
    if not len(other):
        verdict = f"masked: {name} is out of reach of this budget"
    elif margin.min() > 0:
        verdict = f"masked: its loss is lower by {_span(margin)}; {assumes}"
    elif margin.max() < 0:
        verdict = f"{name}: its loss is lower by {_span(-margin)}, and it trusts nobody"
    else:
        verdict = (
            f"{name}, which trusts nobody: the losses cannot be told apart ({_span(margin)} between them)"
        )
    shape = f" --public-rows {rule.rows // rule.nodes}" * (options.adjacency == "add-remove")
    return [
        *said,
        f"use         {verdict}",
        f"            python -m distadmm.radmm --algorithm masked --topology {options.topology} --epsilon "
        f"{options.epsilon:g} --delta {options.delta:g} --adjacency {options.adjacency} --trust {options.trust}"
        + (f" --data {options.data}" if options.data else "")
        + shape,
    ]


def _span(values: Array) -> str:
    return f"{values.mean():.4f} ({values.min():.4f} to {values.max():.4f} in {len(values)} runs)"
