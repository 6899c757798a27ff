"""What a loss of the user's says of itself, compared with differences: its derivatives, bounds, convexity and sign."""

from typing import Any

import numpy as np

from distadmm.errors import InputError, require

Array = np.ndarray

# Dense where losses bend, sparse beyond; off round numbers, where their kinks are.
SCORES = np.concatenate([np.linspace(-8, 8, 401), [-50, -30, -20, -12, 12, 20, 30, 50]]) + 0.0037
_STEP, _SLACK = 1e-4, 1e-5


def require_true(name: str, loss: Any) -> None:
    """Refuse, with the number, a loss whose slope, curvature, bounds, convexity or sign are not what it says."""
    said = {what: float(getattr(loss, what, 0.0)) for what in ("max_slope", "max_curvature", "min_curvature")}
    require(
        said["max_slope"] > 0 and said["max_curvature"] >= 0 >= said["min_curvature"] > -np.inf,
        f"{name} says {', '.join(f'{what} = {x:g}' for what, x in said.items())}; needed: bounds above 0, and a "
        "min_curvature that is finite and, of a loss that is not convex, below 0",
    )
    # All targets in one call: a loss of one record must not look at the others.
    targets = (-1.0, 1.0) if loss.labels else (-1.0, 1.0, 0.3)
    z, y = np.tile(SCORES, len(targets)), np.repeat(targets, SCORES.size)
    step = _STEP * np.maximum(1.0, np.abs(z))

    def at(i: int) -> str:
        return f"at z = {z[i]:.4g}, y = {y[i]:g}"

    value, slope, curvature = (
        [_numbers(name, loss, what, z + shift, y) for shift in (0.0, -step, step)]
        for what in ("value", "slope", "curvature")
    )
    pairs = [("slope", slope, "value", value), ("curvature", curvature, "slope", slope)]
    for what, told, of, below in pairs[: 1 if getattr(loss, "kink", False) else 2]:
        seen = (below[2] - below[1]) / (2 * step)
        # Between the values beside it wherever it is monotone; differences lose digits of what is large.
        size = np.abs(told[0]) + 1e-2 * np.abs(told[0][np.abs(z) <= 9]).max()
        slack = _SLACK * size + 1e-12 * np.abs(below[0]) / step + 1e-10
        apart = np.maximum(np.min(told, axis=0) - seen, seen - np.max(told, axis=0)) - slack
        i = int(np.argmax(apart))
        require(
            apart[i] <= 0,
            f"{name}: its {what} {at(i)} is {told[0][i]:.6g} and differences of its {of} give {seen[i]:.6g}; mend it",
        )
    unit = np.abs(y) == 1.0
    for what, which, sizes in (
        ("max_slope", "slope", np.abs(slope[0])),
        ("max_curvature", "curvature", curvature[0]),
    ):
        i = int(np.argmax(np.where(unit, sizes, -np.inf)))
        require(
            sizes[i] <= said[what] * (1 + 1e-9),
            f"{name}: its {which} {at(i)} has size {sizes[i]:.6g}, beyond its {what} = {said[what]:g}; "
            "state the true bound",
        )
    i, least = int(np.argmin(np.where(unit, curvature[0], np.inf))), said["min_curvature"]
    doubt = f", below its min_curvature = {least:g}; state the true bound" if least else (
        ", so it is not convex; say so by its least curvature, min_curvature = ... (distadmm.sharing takes such a loss)"
    )  # fmt: skip
    require(
        curvature[0][i] >= least * (1 + 1e-9) - 1e-12,
        f"{name}: its curvature {at(i)} is {curvature[0][i]:.6g}{doubt}",
    )
    for target in targets if loss.one_signed else ():
        own = np.where(y == target, slope[0], 0.0)
        low, high = int(np.argmin(own)), int(np.argmax(own))
        require(
            not own[low] < 0 < own[high],
            f"{name} says one_signed and its slope is {own[low]:.4g} {at(low)} but {own[high]:.4g} {at(high)}; "
            "say one_signed = False",
        )


def _numbers(name: str, loss: Any, what: str, z: Array, y: Array) -> Array:
    """Of some scores a loss gives as many numbers."""
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(getattr(loss, what)(z, y), dtype=float)
    except Exception as error:  # whatever a user's code raises
        raise InputError(f"{name}: its {what} fails: {type(error).__name__}: {error}; mend it") from None
    right = found.shape == z.shape and bool(np.isfinite(found).all())
    bad = int(np.argmin(np.isfinite(found))) if found.shape == z.shape else 0
    shown = f"{found[bad]} at z = {z[bad]:.4g}" if found.shape == z.shape else f"of shape {found.shape}"
    require(right, f"{name}: the {what} of {z.size} scores is {shown}; needed: {z.size} finite numbers")
    return found
