"""The flags of the command, checked as they are read."""

from distadmm.data import joint as tables
from distadmm.data.options import Rows, one_table, rows_of
from distadmm.errors import require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.confidence import Ball, ball_of
from distadmm.methods.ias import admm, design, ga, measures, multistart
from distadmm.methods.ias.inference import Inference, counts_of, from_counts, from_file, stand_in
from distadmm.run.groups import Job, Shared
from distadmm.structs import struct

BUNDLED = ("adult",)


@flag_group("problem")
class Data:
    problem: str = again(
        Shared, "problem", default="gauss", choices=("gauss", "sharp", "binom"), note=": of Fig. 1"
    )
    input: str | None = again(Shared, "input", note=", or with P_S and P_YgS as .json")
    rows: str | None = again(Shared, "rows", note=": --infer and --column")
    data: str | None = again(Rows, "data", default=None, note=": adult, CSV; with --infer and --column")
    infer: str | None = flag(None, help="column of the parameter S that the server is to infer")
    column: str | None = flag(None, help="column of the data Y that the mapping replaces")
    schema: str | None = again(Rows, "schema", note=" (--rows: what their missing cells stand for)")
    smooth: float = again(Shared, "smooth")
    confidence: float | None = again(Shared, "confidence")
    alphabets: tuple[int, ...] = again(Shared, "alphabets")

    def __post_init__(self) -> None:
        instead = "--infer and --column name columns of --data, a file or a bundled table; give it"
        one_table(self, (self.infer, self.column), "--infer COLUMN and --column COLUMN", instead, BUNDLED)
        require(
            self.smooth == 0 or self.rows or self.data, "--smooth adds to counted rows; give --rows or --data"
        )

    def load(self) -> tuple[Inference, Ball | None]:
        """The problem, and where the law is that its rows were drawn from, if that is asked for."""
        table = self.table()
        if table is None:
            problem = from_file(self.input) if self.input else stand_in(self.problem)
        else:
            problem = from_counts(table, self.smooth)
        if self.input and self.confidence is not None:
            table = counts_of(self.input)
        return problem, ball_of(table, self.confidence, self.alphabets)

    def table(self) -> tables.Table | None:
        if not (self.infer and self.column):
            return None
        require(self.infer != self.column, f"--infer and --column are both {self.infer!r}; name two columns")
        sides = (self.infer,), (self.column,)
        file = rows_of(self, BUNDLED)
        if file is None:
            return tables.adult(*sides)
        return tables.from_rows(file, *sides, alphabetical=True, schema=self.schema)


@flag_group("goal")
class Goal:
    f: str = flag(
        "mi",
        help=f"privacy measure: {', '.join(measures.MEASURES)}, or a Python file that defines f, f1 and f2",
    )
    u_size: int | None = flag(
        None, help="|U|, the number of symbols (default: |Y|, which is always enough)", at_least=1
    )
    eps: float = flag(design.EPS, help="least p(u|y) allowed", above=0)
    certify: bool | None = again(
        Shared, "certify", note=", close what was missed, show beta's range (default: for a sweep)"
    )
    restarts: int | None = again(Shared, "restarts", note=" (default: 20; 1 for admm, bregman, cccp)")


@struct
class Running(Job):
    figure: bool = again(Shared, "figure")


@flag_group("method")
class Solver:
    beta: float = flag(0.4, help="weight of the privacy leakage", above=0)
    method: str | None = again(
        Shared, "method", choices=multistart.METHODS, note=" (default: gba, or admm with --form paper)"
    )
    form: str = again(Shared, "form", note="; paper: Algorithm 1 with the sign of (19), refuted")
    starts: str = flag(
        "sparse", choices=design.STARTS, help="random starts: near-deterministic rows, or as in the paper"
    )
    iterations: int | None = again(Shared, "iterations", note=" of the (outer) loop")
    stop_tolerance: float | None = again(
        Shared, "stop_tolerance", above=None, at_least=0, note=", in the (outer) loop", was={"tolerance": {}}
    )
    adaptive: bool = flag(True, help="gba: try longer steps than the proved one")
    polish: bool | None = flag(None, help="climb the best starts by Newton steps (default: for gba)")
    penalty_rho: float = again(Shared, "penalty_rho", default=1.0, note="; admm, bregman", was={"rho": {}})
    kernel_weight: float = flag(
        10.0, help="bregman: tau, the weight of the kernels", above=0, was={"tau": {}}
    )
    inner: int | None = flag(None, help="admm, bregman: most inner steps in an outer one", at_least=1)
    order: str = flag(
        "gauss-seidel", choices=("gauss-seidel", "jacobi"), help="admm: rows in turn or at once"
    )
    ga_step: float = flag(0.05, help="ga: step size", above=0, was={"alpha": {}})
    projection: str = flag("euclidean", choices=ga.PROJECTIONS, help="ga: how rows are made feasible again")

    def __post_init__(self) -> None:
        require(
            self.form == "sound" or self.method in (None, "admm"),
            f"--form paper is Algorithm 1; it goes with --method admm, not {self.method}",
        )

    def make(self) -> multistart.Method:
        return multistart.Method(
            name=self.method or ("admm" if self.form == "paper" else "gba"),
            iterations=self.iterations,
            tolerance=self.stop_tolerance,
            adaptive=self.adaptive,
            rho=self.penalty_rho,
            tau=self.kernel_weight,
            alpha=self.ga_step,
            projection=self.projection,
            sign=admm.PRINTED if self.form == "paper" else admm.CORRECTED,
            jacobi=self.order == "jacobi",
            inner=self.inner,
        )


@flag_group("sweep")
class Range:
    betas: tuple[float, ...] = flag(
        (), help="the betas, with commas (default: --points of them up to beta_glob)", above=0
    )
    points: int = again(Shared, "points", default=18, note=": betas from 1/18 of beta_glob to just above it")
