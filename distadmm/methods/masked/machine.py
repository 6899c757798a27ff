"""Hypotheses about rows that depend on the machine's arithmetic: looked at on it, with rows that were made up."""

import numpy as np

from distadmm.methods.masked import rows as by_row
from distadmm.methods.masked.learner import Learner, asks
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rule import MOST_COLUMNS, Array, Rule, diagonal


def keeps_rows_apart(d: int) -> bool:
    """Whether, on this machine, what is made of rows keeps its bits when another row goes."""
    stream = np.random.Generator(np.random.PCG64(d))
    count = 23 + 3 * np.getbufsize() // d  # more than is worked on at a time
    rows, w, wide = stream.normal(size=(count, d)), stream.normal(size=d), d > MOST_COLUMNS

    def made(some: Array) -> Array:
        z = by_row._margins(by_row._sparse(some) if wide else np.ascontiguousarray(some), w)
        short = by_row._shortened(some, 0.5)[:, 0]
        return np.stack([z, np.exp(-z), np.log1p(np.exp(-np.abs(z))), short], axis=1)

    whole = made(rows)
    return all(
        np.array_equal(made(np.delete(rows, i, axis=0)), np.delete(whole, i, axis=0))
        for i in (0, 7, count // 2, count - 1)
    )


def forgets_labels(rule: Rule) -> bool:
    """Whether, on this machine, sums that bear no noise keep their bits when labels change."""
    stream, d = np.random.Generator(np.random.PCG64(rule.columns)), rule.columns
    rows, w, scale = stream.normal(size=(41, d)), stream.normal(size=(d, 1)), stream.uniform(0.1, 2, d)
    made = []
    for labels in (np.ones(41), stream.choice([-1.0, 1.0], 41)):
        some = by_row.Rows(rows * labels[:, None], np.ones(41), rule, rule.bits)
        sums = (some.squares(), some.curvature(scale, 0.5), some.later(scale, 0.5, 9 * w))
        made.append(np.concatenate(sums))
    return np.array_equal(made[0], made[1])


def cuts_nodes(rule: Rule) -> bool:
    """Whether, on this machine, none of some far tables, whatever a node is told, is further than its cut."""
    stream, d, learner = np.random.Generator(np.random.PCG64(rule.columns)), rule.columns, Learner(rule)
    learner.scale, learner.rho, learner.w = stream.uniform(0.1, 2, d), 1e-3, stream.normal(size=(d, 1))
    many = min(9999, 4 * rule.rows // rule.nodes + 9)
    for rows in (np.tile(9 * np.eye(d)[0], (many, 1)), 9 * stream.normal(size=(many, d)), np.zeros((0, d))):
        node = by_row.Rows(rows, np.ones(len(rows)), rule, rule.bits)
        for ask in asks(rule)[:4]:
            part = rows_sum(node, ask, learner) * 4.0**-rule.bits
            weight = np.where(diagonal(d), 1.0, 2.0) if ask.kind == "curvature" else 1.0
            if (weight * part * part).sum() > 1.0:
                return False
    return True
