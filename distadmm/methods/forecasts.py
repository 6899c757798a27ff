"""What the nodes of a private run will lose, from public facts alone: one value, whoever asks for it.

Inside one method the rule beside its algorithm makes it: `forecast()` of a plan, whichever house made it, by which
constants are chosen too.  Among methods whole runs on made-up tables do (`foretold` of `commands/compare.py`).
"""

import math
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.algorithm import Array

FLOOR = 1e-6  # excess below which two plans cost the same


class Forecast(NamedTuple):
    of: Any  # what it is of: a choice of constants, a rule, a plan, a candidate, a method
    excesses: (
        Array  # mean loss above `above`, by table; NaN where nothing is known, infinite where it diverged
    )
    made_of: str = ""
    unlike: bool = False  # the tables are so unlike that each counts by the share it loses
    above: str = "the best model's"  # empty: nothing, as where methods are ranked on the same tables

    @property
    def excess(self) -> float:
        known = self.excesses[~np.isnan(self.excesses)]
        if not known.size:
            return math.nan
        if not self.unlike:
            return float(np.mean(known))
        # Of all plans that with the least excess as a multiple of the best one's, in the mean of logs.
        return float(np.exp(np.log(np.maximum(known, FLOOR)).mean()))

    @property
    def tells(self) -> bool:
        return math.isfinite(self.excess)

    @property
    def words(self) -> str:
        return f"mean loss {self.excess:.3g} above {self.above}, {self.made_of}"

    @property
    def cell(self) -> str:
        """Its mean over the tables that came to an end, how far off that may be, and how many they are of how many."""
        return cell(self.excesses)

    def lead(self, other: Self) -> Array:
        """By how much less it loses than another one, table by table: what tables share sets no two apart."""
        apart = other.excesses - self.excesses
        return apart[np.isfinite(apart)]


def interval(values: Array) -> tuple[float, float]:
    """Mean of those that are known, and half the width of its 95 % interval; NaN of one."""
    known = values[np.isfinite(values)]
    if known.size < 2:
        return (float(known[0]) if known.size else math.nan), math.nan
    from scipy.stats import t

    half = t.ppf(0.975, known.size - 1) * np.std(known, ddof=1) / math.sqrt(known.size)
    return float(np.mean(known)), float(half)


def cell(values: Array, show: str = "{:.4f}", unit: float = 1.0) -> str:
    told, known = (
        [unit * one for one in interval(values) if not math.isnan(one)],
        int(np.isfinite(values).sum()),
    )
    some = f" ({known} of {values.size})" * (0 < known < values.size)
    return (" ±".join(show.format(one) for one in told) or "-") + some


def ranked(found: list[Forecast]) -> list[Forecast]:
    """Those of which anything is known, the least first; last one of which a table diverged."""
    return sorted((one for one in found if not math.isnan(one.excess)), key=lambda one: one.excess)


def margin(order: list[Forecast]) -> str:
    """By how much the first is better than the second, table by table; empty where none tells."""
    lead = order[0].lead(order[1]) if len(order) > 1 else np.empty(0)
    if not lead.size:
        return ""
    mean, half = interval(lead)
    told = f"its loss is lower by {cell(lead)} than {order[1].of}'s"
    return told if mean > half else f"{told}, which does not tell them apart"
