"""The flags of the command, checked as they are read."""

from distadmm.data import joint as tables
from distadmm.data.options import Rows, one_table, rows_of
from distadmm.errors import require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.confidence import Ball, ball_of
from distadmm.methods.funnel.model import Joint, of_table
from distadmm.methods.funnel.solvers import METHODS
from distadmm.run.groups import Job, Shared
from distadmm.structs import struct

BUNDLED = ("adult", "heart")


@flag_group("problem")
class Data:
    problem: str = again(
        Shared, "problem", default="synthetic-unif", choices=tables.PROBLEMS, note=", data as they are"
    )
    input: str | None = again(Shared, "input")
    rows: str | None = again(Shared, "rows", note=": --private and --public")
    data: str | None = again(
        Rows, "data", default=None, note=": adult, heart, CSV; with --private and --public"
    )
    private: tuple[str, ...] = flag((), help="columns that make S, comma separated")
    public: tuple[str, ...] = flag((), help="columns that make X, comma separated")
    schema: str | None = again(Rows, "schema", note=" (--rows: what their missing cells stand for)")
    smooth: float = again(Shared, "smooth")
    perturb: float = flag(
        0.0,
        help="added to every cell of the normalised table (the paper: 1e-3); told as pseudo-counts",
        at_least=0,
    )

    confidence: float | None = again(
        Shared, "confidence", note="; R is asked for by so much more that I(X;Y) >= R holds of it"
    )
    alphabets: tuple[int, ...] = again(Shared, "alphabets")

    def __post_init__(self) -> None:
        needed = "--private COLUMN,... and --public COLUMN,..."
        instead = "--private and --public name columns of --data, a file or a bundled table; give it"
        one_table(self, (self.private, self.public), needed, instead, BUNDLED)

    def table(self) -> tables.Table:
        if self.input:
            return tables.read_joint(self.input)
        file = rows_of(self, BUNDLED)
        if file:
            found = tables.from_rows(file, self.private, self.public, schema=self.schema)
        elif self.data == "adult":
            found = tables.adult(self.private, self.public)
        elif self.data == "heart":
            found = tables.heart(self.private, self.public)
        else:
            found = tables.problem(self.problem)
        return found if self.smooth or self.perturb else found.observed()

    def load(self) -> tuple[Joint, str, Ball | None]:
        """The joint distribution, the name of what X is made of, and where the law is that the rows were drawn from."""
        table = self.table()
        ball = ball_of(table, self.confidence, self.alphabets)
        return of_table(table, self.smooth, self.perturb), table.column, ball


@flag_group("goal")
class Goal:
    """How much Y must tell of X, and by which method."""

    rates: tuple[float, ...] = flag((), help="R in nats, comma separated: I(X;Y) >= R")
    fractions: tuple[float, ...] = flag(
        (0.8,), help="R as fractions of H(X), when no --rates", at_least=0, at_most=1
    )
    points: int | None = again(Shared, "points", note=": this many R up to H(X), in place of --fractions")
    method: str = again(
        Shared, "method", default="lp", choices=METHODS, note="; lp proves or prices its result"
    )
    form: str = again(Shared, "form", note="; paper: Algorithm 1, refuted")
    certify: bool | None = again(
        Shared, "certify", default=True, note="; lp, where the problem is small enough"
    )

    def __post_init__(self) -> None:
        require(self.points is None or not self.rates, "--points and --rates both choose R; keep one")
        require(self.rates or self.fractions or self.points, "no R is asked for; give --fractions 0.8")
        require(
            self.form == "sound" or self.method in ("lp", "aem"),
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
class Running(Job):
    figure: bool = again(Shared, "figure", note=" of two or more R")
