"""What the nodes of a private run will lose, from public facts alone: one value, by the rule beside each algorithm.

`forecast()` of a plan, whichever house made it, gives one; plans of other programmes rank by them.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array

FLOOR = 1e-6  # excess below which two plans cost the same


class Forecast(NamedTuple):
    of: Any  # what it is of: a choice of constants, a rule, a plan, a candidate
    excesses: (
        Array  # mean loss above that of the best model without noise, by table; NaN where nothing is known
    )
    made_of: str = ""
    unlike: bool = False  # the tables are so unlike that each counts by the share it loses

    @property
    def excess(self) -> float:
        if not self.unlike:
            return float(np.mean(self.excesses))
        # Of all plans that with the least excess as a multiple of the best one's, in the mean of logs.
        return float(np.exp(np.log(np.maximum(self.excesses, FLOOR)).mean()))

    @property
    def tells(self) -> bool:
        return math.isfinite(self.excess)

    @property
    def words(self) -> str:
        return f"mean loss {self.excess:.3g} above the best model's, {self.made_of}"
