"""Flags that programmes share: a name means one thing in all of them.

`distadmm.data.options` has those of the rows that are read.
"""

from typing import ClassVar

from distadmm.errors import require
from distadmm.flags import flag, flag_group
from distadmm.structs import struct

ADJACENCIES = ("add-remove", "replace", "label")
RNGS = ("secure", "simulation")
STALL_TIMEOUT = 600.0


@flag_group("output")
class Output:
    out: str | None = flag(None, help="directory for the results (default: runs/<kind>-<date>-<time>)")
    force: bool = flag(
        False, help="replace a directory that is not empty; one that has spent privacy is kept beside it"
    )


@flag_group("run")
class Job(Output):
    """One start of a programme."""

    seed: int = flag(0, help="seed of all random choices that are not secret", at_least=0)
    strict: bool = flag(False, help="exit with code 4 when the result is not as good as was asked for")
    dry_run: bool = flag(False, help="print what would be run and stop")
    stall_timeout: float = flag(
        STALL_TIMEOUT,
        help="end the job when a rank is stopped, or none gets on, for so many seconds (ten times as long, and at "
        "least 10, in start-up and while results are written); 0: never",
        at_least=0,
    )
    run_code: bool = flag(
        False,
        help="run Python files that a run directory names, though this user did not start that run here",
    )


@struct
class Run(Job):
    """A job of many iterations, which can be watched, stopped and taken up again."""

    NAMED: ClassVar[tuple[str, ...]] = ("none",)  # ways to observe that are no number

    time_limit: float | None = flag(
        None, help="stop after so many seconds; the state is saved, and --resume goes on", above=0
    )
    observe: str = flag(
        "1",
        help="measure every so many iterations, or none; of a run with noise what is public alone, with all or all:K "
        "the losses of private rows too; changes no bit of the result",
        was={"observe": {"each": "1"}},
    )
    checkpoint_every: int | None = flag(None, help="save the state every so many iterations", at_least=1)
    resume: str | None = flag(None, help="go on from the last checkpoint of this run directory")
    progress: str = flag(
        "auto",
        help="how a run shows how far it is; auto: by a bar on a terminal, else by lines",
        choices=("auto", "bar", "lines", "none"),
    )
    yield_: str = flag(
        "auto",
        help="how ranks wait: spin, yield, or auto (yield where there are more ranks than cores)",
        choices=("auto", "spin", "yield"),
    )

    def __post_init__(self) -> None:
        often = "1" if self.observe == "all" else self.observe.removeprefix("all:")
        require(
            self.observe in self.NAMED or (often.isdigit() and int(often) > 0),
            f"--observe is {self.observe!r}; needed: {', '.join(self.NAMED)}, a number of iterations, all or all:K",
        )

    @property
    def observe_every(self) -> int:
        """Iterations between measurements; 0 for none."""
        often = self.observe.removeprefix("all:")
        return 1 if often == "all" else int(often) if often.isdigit() else 0

    @property
    def observe_all(self) -> bool:
        """Exact figures of private rows are asked for, noise or not; then the sentence of the run says so."""
        return self.observe.startswith("all")


@flag_group("privacy")
class Budget:
    epsilon: float | None = flag(
        None,
        help="choose the noise so that each ledger of the run spends at most this",
        above=0,
        at_most=1e15,
    )
    delta: float = flag(1e-5, help="delta of all (epsilon, delta) statements", at_least=1e-300, below=1)
    adjacency: str | None = flag(
        None,
        help="what one record may do: be added or removed, be replaced, or change its label",
        choices=ADJACENCIES,
    )
    rng: str = flag(
        "secure",
        help="secure noise, or a simulation that --seed repeats and that guarantees nothing",
        choices=RNGS,
    )
    account: str | None = flag(
        None,
        help="file in which all runs on these rows are added up, shared by its hosts (default: this user's own)",
    )


@struct
class Shared:
    """Flags that several programmes have, each in a group of its own: they take them from here by `again`."""

    algorithm: str = flag(
        "radmm", help="a name (see: python -m distadmm list) or a file of yours ending in .py"
    )
    form: str = flag(
        "sound",
        help="sound, or paper: as printed, with what becomes of it",
        choices=("sound", "paper"),
        was={"form": {"right": "sound"}},
    )
    method: str | None = flag(None, help="how the mapping is found")
    loss: str = flag("logistic", help="loss of a record: a name, or FILE.py:Name with a loss of yours")
    lambda_: float | None = flag(None, help="lambda: weight of the regulariser, or slope of the penalty at 0")
    intercept: bool = flag(False, help="fit an intercept")
    iterations: int | None = flag(None, help="most iterations", at_least=1)
    stop_tolerance: float | None = flag(None, help="stop when the method's residual is below this", above=0)
    penalty_rho: float | None = flag(None, help="rho: weight of the quadratic penalty", above=0)
    mechanism: str | None = flag(None, help="what makes the releases private")
    row_norm: str = flag("auto", help="public norm to which longer rows are cut, none, or auto")
    public_rows: int | None = flag(
        None, help="public divisor of the loss in place of the number of rows (add-remove)", at_least=1
    )
    problem: str = flag("", help="an experiment of the paper, or a stand-in for one")
    input: str | None = flag(
        None, help="joint table of the private S (down) and the public Y or X: .csv or .npz"
    )
    rows: str | None = flag(None, help="CSV file of data rows, with the flags that name its columns")
    smooth: float = flag(0.0, help="pseudo-count added to every cell of a table of counts", at_least=0)
    confidence: float | None = flag(
        None,
        help="bound also what holds, with this probability, of the law that the counted rows were drawn from",
        above=0,
        below=1,
    )
    alphabets: tuple[int, ...] = flag(
        (),
        help="numbers of values that S and Y can have, known without the rows, for --confidence (default: by --schema "
        "or the documentation of bundled data)",
    )
    points: int | None = flag(None, help="points of a curve, evenly spaced", at_least=2)
    trust: str | None = flag(
        None,
        help="who may collude: any (all others), coalition:C (C of the nodes), or centre (nobody who computes)",
    )
    certify: bool | None = flag(None, help="prove how far from the best the result can be")
    figure: bool = flag(True, help="draw an SVG (needs matplotlib)")
    restarts: int | None = flag(None, help="number of starts", at_least=1)
