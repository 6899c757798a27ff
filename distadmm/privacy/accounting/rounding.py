"""Bounds are shown rounded to the safe side: a printed epsilon is never below the one that was proved."""

import math


def rounded_up(value: float, digits: int = 4) -> str:
    """`value` in so many digits, never below it."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{max(places, 0)}f}" if -3 < places < 12 else f"{value:.{digits - 1}e}"
    if float(text) < value:
        step = 10.0**-places
        raised = (math.floor(value / step) + 1) * step
        text = f"{raised:.{max(places, 0)}f}" if -3 < places < 12 else f"{raised:.{digits - 1}e}"
    return text


def rounded_down(value: float, digits: int = 4) -> str:
    """`value`, a bound from below and not negative, in so many digits, never above it."""
    return rounded_up(-value, digits).lstrip("-")
