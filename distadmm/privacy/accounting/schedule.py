"""The schedule of a private algorithm's releases, and how many of them can be priced."""

from collections.abc import Sequence
from typing import Any

from distadmm.algorithm import Planned, called
from distadmm.errors import require

MOST_PRICED = 10**8  # releases together: the price of one has no digits left where more of them cost little
MOST_DIFFERENT = 10**5  # releases that a schedule lists one by one


class Stretches(Sequence[Planned]):
    """A schedule in stretches of (how many, quadratic, factor): a list that takes no room, however long it is."""

    def __init__(self, parts: Sequence[tuple[int, Any, Any]], apart: int):
        """From one iteration that draws to the next there are `apart`."""
        self.parts, self.apart = tuple(parts), apart

    def __len__(self) -> int:
        return sum(times for times, _, _ in self.parts)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        left = at = range(len(self))[at]
        for times, quadratic, factor in self.parts:
            if left < times:
                return Planned(at * self.apart + 1, quadratic, factor)
            left -= times
        raise IndexError(at)


def stretches(schedule: Sequence[Planned]) -> Sequence[tuple[int, Any, Any]]:
    """How many releases in a row are priced alike, and by what."""
    return schedule.parts if isinstance(schedule, Stretches) else [(1, q, m) for _, q, m in schedule]


def require_few(iterations: int, most: int = MOST_PRICED) -> None:
    require(
        iterations <= most,
        f"--iterations is {iterations:g} with noise; all releases are priced beforehand, here at most {most:g}",
    )


def planned(algorithm: Any, node: Any, iterations: int) -> Sequence[Planned]:
    """The schedule of a private algorithm, refused in one line when it is none."""
    require_few(iterations, MOST_PRICED if algorithm.repeats else MOST_DIFFERENT)
    listed, what = algorithm.releases(node, iterations), type(algorithm).__name__
    if isinstance(listed, Stretches):
        return listed
    require(
        isinstance(listed, (list, tuple)) and all(isinstance(each, Planned) for each in listed),
        f"{what}.releases returned {called(listed)}; needed: a list of Planned, one for each iteration that draws:\n\n"
        "        return [distadmm.Planned(k, quadratic) for k in range(1, iterations + 1)]",
    )
    steps = [each.k for each in listed]
    require(
        steps == sorted({k for k in steps if isinstance(k, int) and 1 <= k <= iterations}),
        f"{what}.releases lists the iterations {', '.join(map(str, steps[:8]))}; needed: whole numbers from 1 to "
        f"{iterations}, ascending, each once",
    )
    return list(listed)
