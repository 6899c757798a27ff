"""What a run of ADMM sharing says before it starts and when it is over."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from distadmm.data.parts import Parts
from distadmm.methods.sharing import private, stationary
from distadmm.methods.sharing.admm import Problem
from distadmm.methods.sharing.observe import Metrics, Observer
from distadmm.methods.sharing.seat import Solution
from distadmm.ranks.star import Star


def size_of(star: Star, parts: Parts) -> str:
    ranks = f"{star.world.size} rank" + ("s" if star.world.size > 1 else "")
    return f"{parts.rows} records, {star.parties} parties on {ranks}"


def headline(star: Star, parts: Parts, solution: Solution, traffic: Any, ended: str) -> list[str]:
    k, why = solution.iterations, "" if ended in ("iterations", "divergence") else f" ({ended})"
    if solution.private:
        lines = [f"{k} round" + "s" * (k > 1) + ("" if ended == "iterations" else f" ({ended})")]
    else:
        end = f"stopped after {k} iterations{why}; more may help: --iterations"
        if solution.failure or solution.converged:
            done = f"converged after {k} iterations"
            end = f"NOT CONVERGED: {solution.failure}" if solution.failure else done
        binary = parts.labels is not None and set(np.unique(parts.labels)) == {-1.0, 1.0}
        known = "tell every party all labels" if binary else "let parties estimate the targets"
        lines = [end, f"not private: the slopes the centre sends {known}"]
    up, down = (traffic.get(f"vector {way}", {"bytes": 0, "messages": 0}) for way in ("up", "down"))
    sent = (
        "{messages} vectors up ({bytes} bytes)".format(**up),
        "{messages} down ({bytes} bytes)".format(**down),
    )
    return [size_of(star, parts), *lines, f"protocol: {', '.join(sent)}"]


def comparison(
    star: Star, observer: Observer | None, solution: Solution, *, plain: bool
) -> dict[str, Metrics | None]:
    """Rank 0: party 1 alone, all features in one place, and this run."""
    names = ("party 1 alone", "all features, one place", f"this run, {star.parties} parties")
    if observer is None:
        return dict.fromkeys(names)
    own = observer.metrics(solution.models, solution.intercept, plain=plain)
    if not star.is_centre:
        return {}
    if not observer.exact:  # a model of private rows in one place would be one more release
        return dict(zip(names, (None, None, own)))
    return dict(zip(names, (observer.reference((1,)), observer.reference(tuple(star.home)), own)))


def nearness(
    problem: Problem, solution: Solution, V: float, first: float, found: stationary.Rate | None, least: float
) -> list[str]:
    """Of a problem that is not convex: how near a stationary point, and what the proof says of that.

    `first`: V as it was first seen; `least`: the objective at the start, above what no loss falls below; `found` is
    None where nothing is proved.
    """
    if V != V:
        return []
    lines = [
        "",
        "The problem is not convex: what was found is a stationary point as far as V says; no gap to the best model is",
        "known, and the two models that it is compared with are local results as well.",
        f"V = {V:.3g} after {solution.iterations} iterations ({first:.3g} when first seen): the squared slopes of all "
        "parties and of z, and of S - z",
    ]
    weight, half = 1.0 + solution.tau, (solution.theta or math.nan) / 2
    if found is not None and found.proved:
        return [
            *lines,
            f"proved: rho = {solution.rho:.4g} lowers the Lagrangian in every iteration, and V is below that after at "
            f"most {found.K * least / max(V, 1e-300):.2g} (loose)",
        ]
    if stationary.doubt(problem):
        return lines
    need = stationary.least_descending(problem.loss)
    return [
        *lines,
        f"no bound: proved is descent for rho above {need:.4g} (now {solution.rho:.4g}) and 1 + tau above theta/2 "
        f"(now {weight:.4g}, {half:.3g}), from y = l'(z), with parties in parallel",
    ]


def table(rows: Mapping[str, Metrics | None], *, guarded: bool = False) -> str:
    """The closing table: one model a line; `guarded`: what is left out is a figure of private rows."""
    if guarded and all(metrics is None or np.isnan(metrics).all() for metrics in rows.values()):
        return (
            "no figures: they would tell of private rows (--observe all prints them, and that is a release)"
        )
    width = max(map(len, rows))
    lines = [f"{'':{width}}  objective/N  test loss  accuracy"]
    for name, metrics in rows.items():
        if metrics is None:
            hidden = f"{'-':>11}  {'-':>9}  {'-':>8}"
            lines.append(f"{name:{width}}  {hidden if guarded else 'not measured (--observe none)'}")
            continue
        lines.append(f"{name:{width}}  " + "  ".join(map(_cell, metrics, (11, 9, 8), (6, 5, 4))))
    return "\n".join(lines)


def _cell(value: float, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if np.isnan(value) else f"{value:{width}.{digits}f}"


def verdict(rows: Mapping[str, Metrics | None]) -> list[str]:
    """Said when the other parties' features did not help."""
    alone, _, run = rows.values()
    if alone is None or run is None or not run.test_loss >= alone.test_loss:
        return []
    return [
        "party 1 alone does better than this run: its own columns, without any message, are the better model"
    ]


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


def outlook(star: Star, parts: Parts, form: str, iterations: int) -> str:
    vectors = 2 if form == "paper" else 1
    size = parts.rows * star.wire.itemsize
    return (
        f"{size_of(star, parts)}, {form} form\n"
        f"a party and iteration: 1 vector up ({size} bytes), {vectors} down ({vectors * size} bytes), "
        f"at most {iterations} iterations\n"
        "nothing is private: the first vector down tells every party all labels, and later ones the predictions\n"
        "of the others; give --epsilon for the private mode"
    )


def moments_outlook(star: Star, parts: Parts, agreed: private.Agreement, noise: str) -> list[str]:
    """Before the run: noise against the sampling error that is there anyway."""
    gathered = star.world.gather({m: matrix.shape[1] for m, matrix in parts.train.items()})
    widths = {m: width for part in gathered or [] for m, width in part.items()}
    columns = ", ".join(str(widths[m]) for m in sorted(widths))
    lines = [f"{parts.rows} records, {star.parties} parties, columns {columns}"]
    slopes = private.slope_query(agreed, parts.rows, noise) if agreed.mechanism == "v2" else None
    if slopes is not None:
        lines.append(f"party 1 sends {parts.rows} slopes with noise of sd {slopes.sigma:.3g} on each")
    for m in sorted(widths.keys() - {1}):
        plan = private.plan(agreed, m, widths[m], noise, slopes.sigma if slopes else 0.0)
        bounds = agreed.bounds[m]
        sampling = bounds.slope * bounds.row * math.sqrt(parts.rows / widths[m]) / 2
        ratio = plan.gradient.sigma / math.sqrt(plan.rounds) / sampling
        lines.append(
            f"party {m}: rows cut to norm {bounds.row:.4g}; noise sd {plan.gradient.sigma:.4g} a gradient entry, "
            f"{plan.matrix.sigma:.4g} a matrix diagonal; {ratio:.2g} times the sampling error of the gradient"
        )
        if ratio > 1:
            lines.append(
                f"  more noise than signal can be expected at party {m}: few records or many columns for this epsilon; "
                "party 1 alone may do better"
            )
    lines.append(
        "measured on a9a (57 columns) at epsilon 1: 32,561 records .325 against .349 alone; 10,000 .328 (.351); "
        "3,000 .343 (.356); 1,000 no gain; with 3,000 columns and 6,000 records no gain at epsilon 8"
    )
    return lines
