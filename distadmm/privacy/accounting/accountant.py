"""The accountant: events -> epsilon(delta), by proved bounds only, rounded against us.

What stands where: `events` (what was released), `profiles` (Theorem C and its hypotheses), `knorm` (Theorem A),
`gaussian`, `lattice` (discrete Gaussian), `curves` and `pld` (composition by FFT), `rdp` and `tails` (Renyi curves,
filters), `pricing` (all of it together), `nodes` (who holds what), `calibration` (noise for a budget), `statements`
(what may be printed), `export` (dp-accounting).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distadmm.errors import InputError
from distadmm.privacy.accounting.calibration import (
    gaussian_discrete_sigma,
    gaussian_noise_multiplier,
    objective_scale,
    output_perturbation,
)
from distadmm.privacy.accounting.events import (
    ADJACENCIES,
    Adjacency,
    DiscreteGaussian,
    Event,
    Gaussian,
    KNorm,
    Leakage,
    ObjectivePerturbation,
    PostProcessing,
    Pure,
    Unbounded,
    event_from_json,
)
from distadmm.privacy.accounting.nodes import Combined, combine, grouped
from distadmm.privacy.accounting.pricing import (
    Bounds,
    bounds,
    delta,
    epsilon,
    one_way_chain,
    published_epsilon,
)
from distadmm.privacy.accounting.rdp import ORDERS, rdp_budget, rdp_to_epsilon
from distadmm.privacy.accounting.statements import Statement, statement


def to_dp_event(events: Event | Iterable[Event]) -> Any:
    """All events as one of dp-accounting's: its own where it knows the mechanism, `UnsupportedDpEvent` otherwise."""
    from distadmm.privacy.accounting import export

    try:
        return export.rebuilt(export.dp_event([events] if isinstance(events, Event) else events))
    except ImportError:
        raise InputError(
            "dp-accounting is not installed; needed: pip install 'distadmm[accounting]'"
        ) from None


__all__ = [
    "ADJACENCIES",
    "ORDERS",
    "Adjacency",
    "Bounds",
    "Combined",
    "DiscreteGaussian",
    "Event",
    "Gaussian",
    "KNorm",
    "Leakage",
    "ObjectivePerturbation",
    "PostProcessing",
    "Pure",
    "Statement",
    "Unbounded",
    "bounds",
    "combine",
    "delta",
    "epsilon",
    "event_from_json",
    "gaussian_discrete_sigma",
    "gaussian_noise_multiplier",
    "grouped",
    "objective_scale",
    "one_way_chain",
    "output_perturbation",
    "published_epsilon",
    "rdp_budget",
    "rdp_to_epsilon",
    "statement",
    "to_dp_event",
]
