"""Why a run ended: the word that its summary keeps, the exit code, and whether the run can go on."""

from enum import Enum

from distadmm import errors
from distadmm.errors import require


class End(Enum):
    """`word, code, resumable`; a signal's number follows its word, and adds to its code."""

    ITERATIONS = "iterations", errors.DONE, True
    CONVERGED = "converged", errors.DONE, True
    TIME_LIMIT = "time limit", errors.DONE, True
    SIGNAL = "signal", 128, True
    ROSTER = "too few nodes", errors.DONE, False
    BUDGET = "privacy budget", errors.BUDGET, True
    DIVERGED = "divergence", errors.FAILURE, False
    UNCONVERGED = "not converged", errors.UNCONVERGED, True

    @property
    def word(self) -> str:
        return self.value[0]


def end_of(ended: str) -> End:
    """The cause that a summary's word names."""
    found = [end for end in End if ended == end.word or ended.startswith(f"{end.word} ")]
    words = ", ".join(end.word for end in End)
    require(found, f"a summary says that its run ended by {ended!r:.60}; needed: {words}; restore the file")
    return found[0]


def exit_code(ended: str, *, strict: bool = False) -> int:
    """`strict`: a tolerance was asked for, and an end short of it is to be told."""
    end = end_of(ended)
    if strict and end in (End.ITERATIONS, End.TIME_LIMIT):
        end = End.UNCONVERGED
    return end.value[1] + (int(ended.split()[1]) if end is End.SIGNAL else 0)
