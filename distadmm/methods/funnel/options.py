"""The flags of the command, checked as they are read."""

from __future__ import annotations

from distadmm.data import joint as tables
from distadmm.errors import require
from distadmm.flags import flag
from distadmm.methods.funnel.model import Joint, of_table
from distadmm.methods.funnel.solvers import METHODS
from distadmm.structs import struct


@struct
class Data:
    """Which S and X."""

    flags_title = "problem"
    problem: str = flag(
        "synthetic-unif", choices=tables.PROBLEMS, help="an experiment of the paper, data as they are"
    )
    input: str | None = flag(None, help="joint table of S (down) and X (across): .csv or .npz")
    rows: str | None = flag(None, help="CSV file of data rows; with --private and --public")
    data: str | None = flag(
        None, choices=("adult", "heart"), help="bundled rows; with --private and --public"
    )
    private: tuple[str, ...] = flag((), help="columns that make S, comma separated")
    public: tuple[str, ...] = flag((), help="columns that make X, comma separated")
    smooth: float = flag(0.0, help="pseudo-count added to every cell of a table of counts", at_least=0)
    perturb: float = flag(
        0.0,
        help="added to every cell of the normalised table (the paper: 1e-3); told as pseudo-counts",
        at_least=0,
    )

    def __post_init__(self) -> None:
        sources = [name for name in ("input", "rows", "data") if getattr(self, name) is not None]
        require(len(sources) <= 1, f"--{' and --'.join(sources)} both give the problem; keep one")
        if self.rows or self.data:
            require(
                self.private and self.public,
                f"--{sources[0]} needs --private COLUMN,... and --public COLUMN,...",
            )
        else:
            require(
                not (self.private or self.public),
                "--private and --public name columns of --rows FILE or --data NAME; give one of these",
            )

    def table(self) -> tables.Table:
        if self.input:
            return tables.read_joint(self.input)
        if self.rows:
            found = tables.from_rows(self.rows, self.private, self.public)
        elif self.data == "adult":
            found = tables.adult(self.private, self.public)
        elif self.data == "heart":
            found = tables.heart(self.private, self.public)
        else:
            found = tables.problem(self.problem)
        return found if self.smooth or self.perturb else found.observed()

    def load(self) -> tuple[Joint, str]:
        """The joint distribution, and the name of what X is made of."""
        table = self.table()
        return of_table(table, self.smooth, self.perturb), table.column


@struct
class Goal:
    """How much Y must tell of X, and by which method."""

    flags_title = "goal"
    rates: tuple[float, ...] = flag((), help="R in nats, comma separated: I(X;Y) >= R")
    fractions: tuple[float, ...] = flag(
        (0.8,), help="R as fractions of H(X), when no --rates", at_least=0, at_most=1
    )
    points: int | None = flag(None, help="a curve instead: this many R, evenly up to H(X)", at_least=2)
    method: str = flag(
        "lp", choices=METHODS, help="lp proves or prices its result; the others are for comparison"
    )
    form: str = flag(
        "right",
        choices=("right", "paper"),
        help="paper: Algorithm 1 as printed, with what becomes of it (refuted)",
    )
    certify: bool = flag(True, help="lp: prove a lower bound where the problem is small enough")

    def __post_init__(self) -> None:
        require(self.points is None or not self.rates, "--points and --rates both choose R; keep one")
        require(self.rates or self.fractions or self.points, "no R is asked for; give --fractions 0.8")
        require(
            self.form == "right" or self.method in ("lp", "aem"),
            f"--form paper is Algorithm 1, which is aem; it does not go with --method {self.method}",
        )

    def demands(self, joint: Joint) -> list[float]:
        """Every R, each checked."""
        if self.points:
            wanted = [joint.HX * k / self.points for k in range(1, self.points + 1)]
        else:
            wanted = list(self.rates) or [joint.HX * f for f in self.fractions]
        return [joint.demand(R) for R in wanted]


@struct
class Output:
    flags_title = "output"
    out: str | None = flag(None, help="run directory (default: runs/funnel-DATE-TIME)")
    force: bool = flag(False, help="replace a non-empty --out")
    figure: bool = flag(True, help="draw curve.svg for two or more R (needs matplotlib)")
    strict: bool = flag(False, help="exit with 4 unless every R is settled (converged, or proven optimal)")
