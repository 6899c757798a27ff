"""What `distadmm check` found, as lines for people and as a table for programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from distadmm.files import finite
from distadmm.graphs.facts import Array
from distadmm.methods.consensus.rate import iterations_for
from distadmm.methods.consensus.theory import NODES_MOST

if TYPE_CHECKING:
    from distadmm.commands.check import Options, Penalties, Report, Verdict

THEOREM = "Theorem IV.1 of Recycled ADMM (claimed by the paper, not proved; sufficient, not necessary, loose)"


def table(report: Report) -> dict[str, Any]:
    options, topology, penalties, bounds, theorem, speed = report
    found: dict[str, Any] = {
        "topology": options.topology,
        "nodes": topology.n,
        "eta_first": penalties.first.tolist(),
        "eta_last": penalties.last.tolist(),
        "theta": penalties.theta.tolist(),
        "gamma": options.gamma,
        "lipschitz": bounds.lipschitz.tolist(),
        "lipschitz_from": bounds.lipschitz_from,
        "curvatures_from": bounds.hessians_from,
        "rate_admm_iteration": finite(speed["admm"]),
        "rate_radmm_pair": finite(speed["radmm"]),
        "theorem": None,
    }
    if theorem is not None:
        constants, margins = theorem.constants, theorem.margins
        found["theorem"] = {
            "status": "claimed by the paper, not proved",
            "met": constants is not None,
            "constants": constants and constants._asdict(),
            "margins": margins and margins._asdict(),
            "smallest_gamma": theorem.smallest,
            "smallest_gamma_L2_mu2": theorem.smallest_reduced,
            "impossible_for_every_gamma": theorem.impossible,
        }
    return found


def lines(report: Report) -> list[str]:
    options, topology, penalties, bounds, theorem, speed = report
    changing = not np.array_equal(penalties.first, penalties.last)
    grows = f", growing to {_span(penalties.last)} in {len(penalties.steps)} solves" if changing else ""
    step = "each node's own" if penalties.own else f"theta = {_span(penalties.theta)} for all nodes"
    rows = [
        ("network", f"{options.topology}: {topology.n} nodes, {len(topology.edges)} edges"),
        ("penalties", f"eta = {_span(penalties.first)}{grows}; dual step {step}; gamma = {options.gamma:g}"),
        ("M_i", f"{_span(bounds.lipschitz)}: {bounds.lipschitz_from}"),
        ("curvatures", bounds.hessians_from),
    ]
    said = [f"  not evaluated: it needs dense matrices, and {topology.n} nodes are more than {NODES_MOST}"]
    if theorem is not None:
        said = _theorem_lines(theorem, penalties, options.gamma)
    text = [
        *(f"{label:12}{value}" for label, value in rows),
        *("", THEOREM, *said, ""),
        "Spectrum (exact for quadratic losses, local for others)" + ", at the last penalties" * changing,
        f"  {'':20}{'error shrinks by':>18}{'for one digit':>16}",
    ]
    for name, what in (("admm", "ADMM, an iteration"), ("radmm", "R-ADMM, a pair")):
        needed = iterations_for(speed[name])
        digits = "diverges" if speed[name] > 1 else f"{needed:.1f}" if needed < 1e5 else f"{needed:.1e}"
        if math.isnan(speed[name]):
            text.append(f"  {what:20}{'not found':>18}: too many unknowns of nearly the same rate")
        else:
            text.append(f"  {what:20}{speed[name]:18.8f}{digits:>16}")
    text.append("  a pair is a solve, which reads data, and a recycled step, which does not: two messages")
    if penalties.own and np.ptp(penalties.last) > 0:
        text.append("  dual steps differ: the limit is the optimum of sum_i O_i/eta_i, not of sum_i O_i")
    return text + samples(options, topology.n)


def samples(options: Options, nodes: int) -> list[str]:
    """Theorems VI.1 and VI.2: rows a node for tau and delta, in units of their constant w and with Delta = 0."""
    if options.excess is None:
        return []
    tau, length, fail = options.excess, options.reference_norm, math.log(1 / options.failure)
    text = [
        "",
        "Theorems VI.1 and VI.2 of Recycled ADMM (claimed; the constant w is given nowhere: rows are w times these)",
        f"  within {tau:g} of a reference of length {length:g}, with probability {1 - options.failure:g}",
        f"  VI.1, without noise   {length**2 * fail / tau**2:.4g} rows a node",
    ]
    if options.alpha is not None and options.columns is not None:
        d, C = options.columns, options.weight
        noise = nodes * d**2 / (C * options.alpha**2) * math.log(d / options.failure) ** 2
        room = nodes * C * tau**2 / (2 * length**2) - noise  # a > 0 is as small as can be
        least = math.sqrt(2 * noise / (nodes * C)) * length
        found = f"none: no number of rows; tau above {least:.4g}"
        if room > 0:
            found = f"{C * nodes * fail / room:.4g} rows a node"
        text.append(f"  VI.2, alpha = {options.alpha:g}     {found}")
    return [
        *text,
        "  measured: what noise costs on rows like yours is what python -m distadmm plan forecasts",
    ]


def _theorem_lines(theorem: Verdict, penalties: Penalties, gamma: float) -> list[str]:
    if theorem.constants is not None and theorem.margins is not None:
        L, mu = theorem.constants
        met = f"met with L = {L:.4g}, mu = {mu:.4g} (margins {theorem.margins.first:.3g}, {theorem.margins.second:.3g})"
    else:
        met = "not met, whatever L and mu are; that does not mean it diverges"
    text = [f"  {f'at gamma = {gamma:g}':22}{met}"]
    if theorem.impossible:
        text += [
            "  smallest gamma        none: the network is bipartite, so D + A is singular and (ii) cannot hold;",
            "                        R-ADMM may converge all the same, see the spectrum",
        ]
    else:
        smallest = ("smallest gamma", theorem.smallest), ("  with L = mu = 2", theorem.smallest_reduced)
        text += [f"  {label:22}{'none found' if of is None else f'{of:.6g}'}" for label, of in smallest]
    if np.ptp(penalties.last) > 0 and penalties.own:
        text += [
            "  FALSE here: with dual steps of the nodes' own it can be met and the optimum still be missed;",
            "  use a common dual step",
        ]
    elif not np.array_equal(penalties.theta, penalties.last):
        text += [
            "  does not apply: it is about dual steps eta_i of each node's own, and false where they differ;",
            "  a dual step theta, common to all nodes, is not covered by it",
        ]
    if not np.array_equal(penalties.steps[-1].eta, penalties.steps[-1].eta_next):
        text += [
            f"  checked for {len(penalties.steps)} solves; penalties that grow without bound freeze short of",
            "  the optimum although the conditions hold: give a cap",
        ]
    return text


def _span(values: Array) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
