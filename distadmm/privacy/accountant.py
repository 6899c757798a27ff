"""The accountant: events -> epsilon(delta), by proved bounds only, rounded against us.

What stands where: `events` (what was released), `profiles` (Theorem C and its hypotheses), `knorm` (Theorem A),
`gaussian`, `lattice` (discrete Gaussian), `curves` and `pld` (composition by FFT), `rdp` (Renyi curves, filters),
`pricing` (all of it together).
"""

from distadmm.privacy.events import (
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
from distadmm.privacy.pricing import Bounds, bounds, delta, epsilon, published_epsilon
from distadmm.privacy.rdp import ORDERS, rdp_budget, rdp_to_epsilon


def gaussian_noise_multiplier(epsilon: float, delta: float, count: int = 1) -> float:
    """The least sigma / sensitivity with which `count` adaptive Gaussian releases are (epsilon, delta)-DP; exact."""
    from distadmm.privacy import gaussian  # scipy, only when it is needed

    return gaussian.gaussian_noise_multiplier(epsilon, delta, count)


__all__ = [
    "ADJACENCIES",
    "ORDERS",
    "Adjacency",
    "Bounds",
    "DiscreteGaussian",
    "Event",
    "Gaussian",
    "KNorm",
    "Leakage",
    "ObjectivePerturbation",
    "PostProcessing",
    "Pure",
    "Unbounded",
    "bounds",
    "delta",
    "epsilon",
    "event_from_json",
    "gaussian_noise_multiplier",
    "published_epsilon",
    "rdp_budget",
    "rdp_to_epsilon",
]
