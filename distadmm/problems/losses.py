"""Losses of one prediction z against one target y, applied to whole arrays.

Each loss is a function l(z; y) with three members to implement:

    value(z, y)       l(z; y)
    slope(z, y)       l'(z; y), the derivative in z
    curvature(z, y)   l''(z; y)

and three public constants: `max_slope` and `max_curvature` bound |l'| and l'' for |y| = 1 (infinite where
there is no bound), `one_signed` says that l' has one sign for each record, whatever z is.  Privacy theorems
need these bounds; a loss that lies about them voids its guarantee.  A loss that is not convex in z says how far
l'' falls, `min_curvature`; without that it is convex.  What a user's loss says is compared with differences
(`loss_check`).

One name means one loss in every programme (`LOSSES`); what a programme cannot do is refused by name.
"""

import os
from typing import Any, Protocol

import numpy as np

from distadmm.errors import require, require_members, told
from distadmm.problems.loss_check import Array, require_true
from distadmm.structs import struct

_DOUBLINGS, _HALVINGS = 40, 60  # to find where a loss reaches a slope


class Loss(Protocol):
    """What a loss has; a class of one's own is named `FILE.py:Name` and made without arguments."""

    max_slope: float
    max_curvature: float
    one_signed: bool
    labels: bool  # targets are exactly -1 or +1; otherwise they are numbers

    def value(self, z: Array, y: Array) -> Array: ...

    def slope(self, z: Array, y: Array) -> Array: ...

    def curvature(self, z: Array, y: Array) -> Array: ...


LINES = {  # what is missing is shown as the line to write
    "value": "def value(self, z, y): ...",
    "slope": "def slope(self, z, y): ...",
    "curvature": "def curvature(self, z, y): ...",
    "max_slope": "max_slope = 1.0",
    "max_curvature": "max_curvature = 0.25",
    "one_signed": "one_signed = False",
    "labels": "labels = True",
}


@struct
class Logistic:
    """log(1 + exp(-y z)); |l'| <= 1, l'' <= 1/4."""

    max_slope = 1.0
    max_curvature = 0.25
    one_signed = True
    labels = True

    def value(self, z: Array, y: Array) -> Array:
        short = -y * z
        # log1p(exp(-|m|)) never overflows, and max(-m, 0) puts back what |m| took away.
        loss: Array = np.log1p(np.exp(-np.abs(short)))
        loss += np.maximum(short, 0.0)
        return loss

    def slope(self, z: Array, y: Array) -> Array:
        return -y * _sigmoid(-y * z)

    def curvature(self, z: Array, y: Array) -> Array:
        sigma = _sigmoid(z)
        return sigma * (1.0 - sigma)


@struct
class HuberHinge:
    """The hinge max(0, 1 - y z) with its kink rounded over a margin of 1 -+ `width`; l'' <= 1/(2 width)."""

    width: float = 0.5
    max_slope = 1.0
    one_signed = True
    labels = True

    @property
    def max_curvature(self) -> float:
        return 0.5 / self.width

    def value(self, z: Array, y: Array) -> Array:
        short = 1.0 + self.width - y * z  # how far the margin falls short of the flat part
        return np.where(
            short <= 0.0,
            0.0,
            np.where(short >= 2 * self.width, 1.0 - y * z, short * short / (4 * self.width)),
        )

    def slope(self, z: Array, y: Array) -> Array:
        return -y * np.clip((1.0 + self.width - y * z) / (2 * self.width), 0.0, 1.0)

    def curvature(self, z: Array, y: Array) -> Array:
        return np.where(np.abs(1.0 - y * z) < self.width, 0.5 / self.width, 0.0)


@struct
class Squared:
    """(z - y)^2 / 2; the slope has no bound and no fixed sign, so no privacy theorem here covers it."""

    max_slope = float("inf")
    max_curvature = 1.0
    one_signed = False
    labels = False

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * (z - y) ** 2

    def slope(self, z: Array, y: Array) -> Array:
        return z - y

    def curvature(self, z: Array, y: Array) -> Array:
        return np.ones_like(z)


@struct
class Hinge:
    """max(0, 1 - y z), the support vector machine's loss; it has a kink, so `slope` is a subgradient."""

    max_slope = 1.0
    max_curvature = float("inf")
    one_signed = True
    labels = True
    kink = True

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(0.0, 1.0 - y * z)

    def slope(self, z: Array, y: Array) -> Array:
        return np.where(y * z < 1.0, -y, 0.0)

    def curvature(self, z: Array, y: Array) -> Array:
        return np.zeros_like(z)


@struct
class SmoothHinge(HuberHinge):
    """The hinge with its kink replaced by a parabola on the margins [1 - width, 1]; l'' <= 1/width.

    It is the parabola of `HuberHinge`, which ends at the kink instead of being centred on it.
    """

    @property
    def max_curvature(self) -> float:
        return 1.0 / self.width

    def value(self, z: Array, y: Array) -> Array:
        return self._huber.value(z + 0.5 * self.width * y, y)

    def slope(self, z: Array, y: Array) -> Array:
        return self._huber.slope(z + 0.5 * self.width * y, y)

    def curvature(self, z: Array, y: Array) -> Array:
        return self._huber.curvature(z + 0.5 * self.width * y, y)

    @property
    def _huber(self) -> HuberHinge:
        return HuberHinge(0.5 * self.width)


@struct
class Sigmoid:
    """1 / (1 + exp(y z)), the count of errors made smooth: bounded, and not convex; |l'| <= 1/4."""

    max_slope = 0.25
    max_curvature = 3.0**-1.5 / 2
    min_curvature = -max_curvature
    one_signed = True
    labels = True

    def value(self, z: Array, y: Array) -> Array:
        return _sigmoid(-y * z)

    def slope(self, z: Array, y: Array) -> Array:
        return -y * _sigmoid(z) * _sigmoid(-z)

    def curvature(self, z: Array, y: Array) -> Array:
        wrong = _sigmoid(-y * z)
        return wrong * _sigmoid(y * z) * (1.0 - 2.0 * wrong)


@struct
class CrossEntropy:
    """log sum_k exp(z_k) - z_y over one score a class; `problems.consensus.Softmax` is its objective.

    Its slope in z has norm at most sqrt(2); a record's Hessian has rank K - 1, not one.
    """

    max_slope = float(np.sqrt(2.0))
    max_curvature = 1.0
    one_signed = False
    labels = False
    several = True


@struct
class Cut:
    """Another convex loss with its slope cut to `most`: beyond, it goes on as a straight line, and stays convex."""

    loss: Any
    most: float

    @property
    def max_slope(self) -> float:
        return min(self.loss.max_slope, self.most)

    @property
    def max_curvature(self) -> float:
        return float(self.loss.max_curvature)

    @property
    def one_signed(self) -> bool:
        return bool(self.loss.one_signed)

    @property
    def labels(self) -> bool:
        return bool(self.loss.labels)

    def value(self, z: Array, y: Array) -> Array:
        z, y = np.broadcast_arrays(z, y)
        found, slope = self.loss.value(z, y), self.loss.slope(z, y)
        beyond = np.abs(slope) > self.most
        if beyond.any():
            z, y, side = z[beyond], y[beyond], np.sign(slope[beyond])
            bend = self._bend(z, y, side)
            found[beyond] = self.loss.value(bend, y) + side * self.most * (z - bend)
        return found  # type: ignore[no-any-return]

    def _bend(self, z: Array, y: Array, side: Array) -> Array:
        """Where the line begins: on the way from z against the slope's sign the slope only falls."""
        low, high = np.zeros_like(z), np.ones_like(z)  # ways from z
        for _ in range(_DOUBLINGS):
            short = side * self.loss.slope(z - side * high, y) > self.most
            low, high = np.where(short, high, low), np.where(short, 2 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            short = side * self.loss.slope(z - side * middle, y) > self.most
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return z - side * high

    def slope(self, z: Array, y: Array) -> Array:
        return np.clip(self.loss.slope(z, y), -self.most, self.most)

    def curvature(self, z: Array, y: Array) -> Array:
        return np.where(np.abs(self.loss.slope(z, y)) <= self.most, self.loss.curvature(z, y), 0.0)


LOSSES: dict[str, Any] = {
    "logistic": Logistic(),
    "huber": HuberHinge(),
    "smooth-hinge": SmoothHinge(),
    "hinge": Hinge(),
    "squared": Squared(),
    "sigmoid": Sigmoid(),
    "softmax": CrossEntropy(),
}


_FILES: dict[type, str] = {}  # where a loss of the user's comes from


def foreign(loss: Any) -> str:
    """Where a loss that is not this package's own comes from; empty for those."""
    if any(type(loss) is type(each) for each in LOSSES.values()):
        return ""
    return _FILES.get(type(loss)) or type(loss).__module__


def link_of(name: str, loss: Loss) -> str:
    """What makes a prediction of a score: a probability, a number as it stands, or a class by the sign."""
    return {"logistic": "logistic", "softmax": "softmax"}.get(name, "sign" if loss.labels else "identity")


def least_curvature(loss: Any) -> float:
    """Below which l'' never falls: 0 of a convex loss."""
    return min(0.0, float(getattr(loss, "min_curvature", 0.0)))


def smoothness(loss: Any) -> float:
    """L, the Lipschitz constant of l'."""
    return max(float(loss.max_curvature), -least_curvature(loss))


def loss_named(text: str, *, kinks: bool = False, several: bool = False, dents: bool = False) -> Loss:
    """The loss of that name, or the user's own, `FILE.py:Name`.

    `kinks`: this programme solves losses without a curvature, by a closed form; `several`: it knows models with one
    score a class; `dents`: it takes losses that are not convex.
    """
    path, _, name = text.rpartition(":")
    if text in LOSSES:
        loss = LOSSES[text]
    else:
        known = ", ".join(name for name in LOSSES if _fits(LOSSES[name], kinks, several, dents))
        require(
            path.endswith(".py"),
            f"--loss is {text!r}; choose one of: {known}, or FILE.py:Name, a class of your own",
        )
        loss = _from_file(text, path, name)
    if not kinks:
        require(
            not getattr(loss, "kink", False),
            f"--loss {text} has a kink, where Newton's method has no curvature to go by; choose smooth-hinge, "
            "which rounds it (distadmm.sharing takes hinge as it is)",
        )
    require(
        dents or least_curvature(loss) == 0,
        f"--loss {text} is not convex: l'' falls to {least_curvature(loss):.4g}, and this programme solves convex "
        "problems; use distadmm.sharing, or a convex loss",
    )
    require(
        several or task_of(loss) != "multiclass",
        f"--loss {text} has one score a class, where one a record is needed; choose logistic, or use distadmm.radmm "
        "(with privacy: --algorithm masked, or --mechanism output)",
    )
    return loss


def _fits(loss: Any, kinks: bool, several: bool, dents: bool) -> bool:
    smooth, convex = not getattr(loss, "kink", False), least_curvature(loss) == 0
    return (kinks or smooth) and (several or task_of(loss) != "multiclass") and (dents or convex)


def task_of(loss: Any) -> str:
    """How targets are read for it: as two classes, as several, or as numbers."""
    if getattr(loss, "several", False):
        return "multiclass"
    return "binary" if loss.labels else "regression"


def _from_file(text: str, path: str, name: str) -> Any:
    import runpy

    require(os.path.isfile(path), f"--loss {text}: no file {path}; give FILE.py:Name")
    found = runpy.run_path(path)
    require(name in found, f"--loss {text}: no class {name!r} in {path}; see docs/algorithms.md")
    with told(f"--loss {text} cannot be made: REASON; give all its fields defaults", TypeError):
        loss = found[name]()
    require_members(f"--loss {text}", loss, LINES)
    require(
        type(loss).__hash__ is not None, f"--loss {text} has an __eq__ and no __hash__; leave out its __eq__"
    )
    require_true(f"--loss {text}", loss)
    _FILES[type(loss)] = path
    return loss


def _sigmoid(z: Array) -> Array:
    # exp(-|z|) <= 1 for every z, so neither branch can overflow.
    decay = np.exp(-np.abs(z))
    sigma = np.where(z >= 0, 1.0, decay)
    decay += 1.0
    sigma /= decay
    return sigma
