"""The flags of the command, checked as they are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distadmm.data.joint_parts import adult, from_rows, read_problem
from distadmm.errors import require
from distadmm.flags import flag
from distadmm.methods.ias import admm, ga
from distadmm.methods.ias.design import EPS, STARTS
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.measures import MEASURES
from distadmm.methods.ias.multistart import METHODS, Method


@dataclass(frozen=True)
class Data:
    """Which S and Y."""

    flags_title = "problem"
    problem: str = flag(
        "gauss", choices=("gauss", "sharp", "binom"), help="a stand-in for the paper's Fig. 1"
    )
    input: str | None = flag(
        None, help="P_S and P_YgS, or a joint table: .json, .npz or .csv (S down, Y across)"
    )
    rows: str | None = flag(None, help="CSV file of data rows; with --infer and --column")
    data: str | None = flag(None, choices=("adult",), help="bundled rows; with --infer and --column")
    infer: str | None = flag(None, help="column of the parameter S that the server is to infer")
    column: str | None = flag(None, help="column of the data Y that the mapping replaces")
    smooth: float = flag(0.0, help="pseudo-count added to every cell of counted rows")

    def __post_init__(self) -> None:
        sources = [name for name in ("input", "rows", "data") if getattr(self, name) is not None]
        require(len(sources) <= 1, f"--{' and --'.join(sources)} both give the problem; keep one")
        named = self.infer is not None and self.column is not None
        if self.rows or self.data:
            require(named, f"--{sources[0]} needs --infer COLUMN and --column COLUMN")
        else:
            require(
                self.infer is None and self.column is None,
                "--infer and --column name columns of --rows FILE or --data adult; give one of these",
            )
        require(
            np.isfinite(self.smooth) and self.smooth >= 0, f"--smooth is {self.smooth:g}; needed 0 or more"
        )
        require(
            self.smooth == 0 or self.rows or self.data, "--smooth adds to counted rows; give --rows or --data"
        )

    def load(self) -> Inference:
        if self.input:
            return read_problem(self.input)
        if not (self.infer and self.column):
            return stand_in(self.problem)
        if self.rows:
            return from_rows(self.rows, self.infer, self.column, self.smooth)
        return adult(self.infer, self.column, self.smooth)


@dataclass(frozen=True)
class Goal:
    """What is maximised, over which mappings."""

    flags_title = "goal"
    f: str = flag(
        "mi", help=f"privacy measure: {', '.join(MEASURES)}, or a Python file that defines f, f1 and f2"
    )
    u_size: int | None = flag(None, help="|U|, the number of symbols (default: |Y|, which is always enough)")
    eps: float = flag(EPS, help="least p(u|y) allowed")
    certify: bool | None = flag(
        None, help="bound the global optimum, close what was missed, show beta's range"
    )
    restarts: int | None = flag(None, help="number of starts (default: 20; 1 for admm, bregman, cccp)")
    seed: int = flag(0, help="seed of all random choices")

    def __post_init__(self) -> None:
        require(self.u_size is None or self.u_size >= 1, f"--u-size is {self.u_size}; needed at least 1")
        require(
            self.restarts is None or self.restarts >= 1, f"--restarts is {self.restarts}; needed at least 1"
        )
        require(
            np.isfinite(self.eps) and self.eps > 0, f"--eps is {self.eps:g}; needed above 0, at most 1/|U|"
        )
        require(self.seed >= 0, f"--seed is {self.seed}; needed 0 or more")


@dataclass(frozen=True)
class Output:
    flags_title = "output"
    out: str | None = flag(None, help="run directory (default: runs/ias-DATE-TIME)")
    force: bool = flag(False, help="replace a non-empty --out")
    figure: bool = flag(True, help="draw an SVG (needs matplotlib)")
    strict: bool = flag(
        False, help="exit with 4 when no start settled, or a certificate stays open above 1e-6"
    )


@dataclass(frozen=True)
class Solver:
    """Which method, and its knobs."""

    flags_title = "method"
    beta: float = flag(0.4, help="weight of the privacy leakage")
    method: str | None = flag(None, choices=METHODS, help="default: gba, or admm with --form paper")
    form: str = flag(
        "right",
        choices=("right", "paper"),
        help="paper: Algorithm 1 with the sign of (19) as printed (refuted)",
    )
    starts: str = flag(
        "sparse", choices=STARTS, help="random starts: near-deterministic rows, or as in the paper"
    )
    iterations: int | None = flag(None, help="most iterations of the (outer) loop")
    tolerance: float | None = flag(None, help="where the (outer) loop stops")
    adaptive: bool = flag(True, help="gba: try longer steps than the proved one")
    polish: bool | None = flag(None, help="climb the best starts by Newton steps (default: for gba)")
    rho: float = flag(1.0, help="admm, bregman: weight of the quadratic penalty")
    tau: float = flag(10.0, help="bregman: weight of the kernels")
    inner: int | None = flag(None, help="admm, bregman: most inner steps in an outer one")
    order: str = flag(
        "gauss-seidel", choices=("gauss-seidel", "jacobi"), help="admm: rows in turn or at once"
    )
    alpha: float = flag(0.05, help="ga: step size")
    projection: str = flag("euclidean", choices=ga.PROJECTIONS, help="ga: how rows are made feasible again")

    def __post_init__(self) -> None:
        for name in ("beta", "rho", "tau", "alpha"):
            value = getattr(self, name)
            require(
                np.isfinite(value) and value > 0, f"--{name} is {value:g}; needed a finite number above 0"
            )
        require(
            self.iterations is None or self.iterations >= 1,
            f"--iterations is {self.iterations}; needed 1 or more",
        )
        require(self.inner is None or self.inner >= 1, f"--inner is {self.inner}; needed 1 or more")
        require(
            self.tolerance is None or self.tolerance >= 0,
            f"--tolerance is {self.tolerance}; needed 0 or more",
        )
        require(
            self.form == "right" or self.method in (None, "admm"),
            f"--form paper is Algorithm 1; it goes with --method admm, not {self.method}",
        )

    def make(self) -> Method:
        return Method(
            name=self.method or ("admm" if self.form == "paper" else "gba"),
            iterations=self.iterations,
            tolerance=self.tolerance,
            adaptive=self.adaptive,
            rho=self.rho,
            tau=self.tau,
            alpha=self.alpha,
            projection=self.projection,
            sign=admm.PRINTED if self.form == "paper" else admm.CORRECTED,
            jacobi=self.order == "jacobi",
            inner=self.inner,
        )


@dataclass(frozen=True)
class Range:
    """Which betas."""

    flags_title = "sweep"
    betas: tuple[float, ...] = flag(
        (), help="the betas, with commas (default: --points of them up to beta_glob)"
    )
    points: int = flag(18, help="number of betas, evenly spaced from 1/18 of beta_glob to just above it")

    def __post_init__(self) -> None:
        bad = [beta for beta in self.betas if not (np.isfinite(beta) and beta > 0)]
        require(not bad, f"--betas has {bad[:1]}; needed finite numbers above 0")
        require(self.points >= 2, f"--points is {self.points}; needed at least 2")
