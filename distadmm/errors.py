"""What can go wrong, and the exit code that says so.

An `InputError` is the user's to mend: its message is one line that says what was found, what was
needed and what to do.  Anything else that is raised is ours, and shows its traceback.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

DONE = 0
FAILURE = 1
USAGE = 2
BUDGET = 3
UNCONVERGED = 4
STALLED = 75
EXIT_CODES = (
    "0 done, 1 failure (a run that diverges, too), 2 usage or input, 3 a privacy budget or an account's limit refuses "
    "the run or ends it, 4 not converged under `--strict`, 75 stalled, 128 + n stopped by signal n"
)


class InputError(Exception):
    """A bad flag, file or value; what follows an empty line are lines to write, shown as they are.

    `shared` says that every rank raises it, so all can leave together.
    """

    code = USAGE

    def __init__(self, message: str, *, shared: bool = False):
        line, gap, to_write = str(message).partition("\n\n")
        super().__init__(" ".join(line.split()) + gap + to_write)
        self.shared = shared


class BudgetExhausted(InputError):
    """The next release would overspend the privacy budget; nothing of it was drawn or sent."""

    code = BUDGET


class Unsolved(InputError):
    """A step on the way left no numbers, or not as exact as its release needs; what was to follow was not sent."""

    code = FAILURE


def require(condition: object, message: str, kind: type[InputError] = InputError) -> None:
    """Raise `kind(message)` unless `condition` holds."""
    if not condition:
        raise kind(message)


@contextmanager
def told(message: str, *kinds: type[Exception]) -> Iterator[None]:
    """End an error of these kinds (none: what the system refuses) in one line, where REASON stands for what it says."""
    expected = kinds or (OSError,)
    try:
        yield
    except expected as error:
        why = getattr(error, "strerror", None) or error
        if isinstance(error, RecursionError):
            why = "it is nested too deeply"
        raise InputError(message.replace("REASON", str(why))) from None


@contextmanager
def sense_of(path: object) -> Iterator[None]:
    """For what takes files of `path` to be as distadmm wrote them: where they are not, one line says so."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{path} holds something else than distadmm wrote there ({type(error).__name__}: {error}); restore it, or "
            "leave it out"
        ) from error


def number(text: str | None) -> float:
    """The number that a word of the command line is; NaN, which no range holds, where it is none."""
    try:
        return float(text or "")
    except ValueError:
        return math.nan


def require_members(what: str, thing: object, lines: Mapping[str, str]) -> None:
    """Refuse a class of the user's that lacks a member of its contract, and show the lines to write."""
    missing = [member for member in lines if not hasattr(thing, member)]
    told = "; ".join(lines[member] for member in missing)
    require(not missing, f"{what} lacks {', '.join(missing)}; write: {told}")
