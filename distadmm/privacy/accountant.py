"""The accountant: events -> epsilon(delta), by proved bounds only, rounded against us."""

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
from distadmm.privacy.rdp import ORDERS

__all__ = [
    "ADJACENCIES",
    "ORDERS",
    "Adjacency",
    "DiscreteGaussian",
    "Event",
    "Gaussian",
    "KNorm",
    "Leakage",
    "ObjectivePerturbation",
    "PostProcessing",
    "Pure",
    "Unbounded",
    "event_from_json",
]
