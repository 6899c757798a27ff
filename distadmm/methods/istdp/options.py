"""The flags of ISTDP."""

from dataclasses import dataclass
from typing import Any

from distadmm.data import options as groups
from distadmm.errors import require
from distadmm.flags import again, flag, flag_group, table_of
from distadmm.methods.istdp.fit import loss_of
from distadmm.problems.concave import PENALTIES, make
from distadmm.problems.losses import foreign
from distadmm.run.config import Privacy as Filtered
from distadmm.run.config import check_assumed
from distadmm.run.groups import Budget, Run, Shared
from distadmm.structs import struct


@struct
class Data(groups.Rows):
    """Which rows, and what is made of them."""

    intercept: bool = again(Shared, "intercept", note=", which no penalty holds")
    row_norm: str = again(Shared, "row_norm", note=": 1, synthetic rows as they are")

    def __post_init__(self) -> None:
        self.norm()

    def norm(self) -> float | None:
        if self.row_norm == "auto":
            return None if self.data.startswith("synthetic") else 1.0
        bounds = groups.norms(self.row_norm) or (None,)
        require(len(bounds) == 1, f"--row-norm is {self.row_norm!r}; needed: one norm")
        return bounds[0]


@flag_group("model")
class Model:
    loss: str = again(Shared, "loss", note=": logistic, huber, smooth-hinge, squared")
    penalty: str = flag("mcp", help="which penalty makes coefficients zero", choices=PENALTIES)
    lambda_: float | None = again(
        Shared,
        "lambda_",
        note=" (default: private, sigma sqrt(2 ln d), which no record enters; otherwise a twentieth of what keeps "
        "every column out)",
    )
    reach: float | None = flag(
        None,
        help="alpha, the reach of the penalty: it is flat beyond alpha lambda (default: by rule)",
        was={"alpha": {}},
    )
    stop_tolerance: float | None = again(
        Shared,
        "stop_tolerance",
        below=1,
        note=", as a share of lambda; without privacy (default: 1e-06)",
        was={"tolerance": {}},
    )
    iterations: int | None = again(Shared, "iterations", note=" (default: 50 when private, otherwise 10000)")

    def __post_init__(self) -> None:
        loss_of(self.loss)
        make(self.penalty, 0.0 if self.lambda_ is None else self.lambda_, self.reach)


@struct
class Privacy(Budget):
    adjacency: str | None = again(Budget, "adjacency", note="; no default", choices=("replace", "add-remove"))
    public_rows: int | None = again(Shared, "public_rows")
    gradient_norm: float = flag(
        1.0,
        help="C: norm to which each record's gradient is shortened",
        at_least=1e-50,
        at_most=1e50,
        was={"clip": {}},
    )
    steps: str = flag(
        "bb",
        help="length of the steps; bb: Barzilai and Borwein's, from noisy gradients",
        choices=("bb", "fixed"),
    )
    step: float | None = flag(None, help="first step, or the fixed one (default: --shortest)")
    shortest: float | None = flag(None, help="alpha_min (default: 1/(c1 C^2), c1 the loss's curvature)")
    longest: float | None = flag(None, help="alpha_max (default: 20 times the shortest)")
    tail: float = flag(
        0.0, help="share of the iterations, the last, whose mean is the model; 0: the last alone",
        at_least=0, at_most=1,
    )  # fmt: skip
    form: str = again(Shared, "form", note="; paper: Algorithm 1, whose claim is refuted")
    budget_epsilon: float | None = again(Filtered, "budget_epsilon")
    budget_delta: float | None = again(Filtered, "budget_delta")
    assume: str | None = again(Filtered, "assume")

    def __post_init__(self) -> None:
        require(
            self.epsilon is not None or self.form == "sound",
            "--form paper is the private Algorithm 1; give its --epsilon and --adjacency",
        )
        require(
            self.epsilon is None or self.adjacency is not None,
            "a private run needs --adjacency and there is no default: replace (one record another, the number of "
            "rows public) or add-remove (one record more or less, with --public-rows)",
        )
        for name in ("adjacency", "public_rows", "step", "shortest", "longest"):
            require(
                self.epsilon is not None or getattr(self, name) is None,
                f"--{name.replace('_', '-')} is for private runs; give --epsilon too, or leave it out",
            )

    def planned(self) -> dict[str, Any]:
        """Keywords of `make_plan`, without the model's."""
        return {
            "clip": self.gradient_norm, "divisor": self.public_rows, "rule": self.steps, "first": self.step,
            "shortest": self.shortest, "longest": self.longest, "epsilon": self.epsilon, "delta": self.delta,
            "adjacency": self.adjacency, "tail": self.tail,
        }  # fmt: skip


@struct
class Running(Run):
    observe: str = again(Run, "observe", was={"observe": {"each": "1", False: "1", True: "all"}})
    repetitions: int = flag(
        1, help="simulation: so many independent runs, shared out to the ranks", at_least=1
    )


@dataclass(frozen=True)
class Options:
    data: Data
    model: Model
    privacy: Privacy
    run: Running

    def __post_init__(self) -> None:
        private, run = self.privacy, self.run
        require(
            run.repetitions == 1 or (private.epsilon is not None and private.rng == "simulation"),
            "--repetitions is for --rng simulation: every secure run would spend the whole budget, and without "
            "--epsilon all would be the same",
        )
        require(
            private.adjacency != "add-remove" or not self.data.test_fraction,
            "--test-fraction with --adjacency add-remove: one record more or less deals all rows out anew, so that "
            "many others enter the training or leave it; give a file without the rows to test on",
        )
        require(
            private.adjacency != "add-remove" or not self.data.sanitise,
            "--sanitise with --adjacency add-remove: --seed draws a symbol for each place in the file, so that one "
            "record more or less gives others another symbol; sanitise the column beforehand, or choose replace",
        )
        require(
            (private.epsilon is not None and run.repetitions == 1)
            or not (run.checkpoint_every or run.resume),
            "--checkpoint-every and --resume are for one run of istdp with noise: without --epsilon, and of several "
            "--repetitions, the same flags give the same bits again; leave them out",
        )
        require(
            private.budget_epsilon is None or (private.epsilon is not None and private.form == "sound"),
            "--budget-epsilon without noise that has a bound: every release costs infinity; give --epsilon, and "
            "--form sound",
        )
        file = foreign(loss_of(self.model.loss))
        check_assumed(private, {"--loss": file} if file else {})
        if private.form == "paper":
            require(self.model.lambda_ is not None, "--form paper has no rule for lambda; give --lambda")
            require(self.model.penalty == "mcp", "--form paper is for the penalty mcp")
            require(not self.data.intercept, "--form paper has no intercept; leave it out")
            require(not run.observe_all, "--observe all is for the sound form; leave it out")

    @property
    def observed(self) -> str:
        """What is computed of private rows because somebody asked for it."""
        if self.privacy.epsilon is None or not self.run.observe_all:
            return ""
        return "the objective" + (" and the figures of the held-out rows" if self.data.test_fraction else "")

    @property
    def mode(self) -> str:
        """form of the run, as its summary calls it."""
        return "not private" if self.privacy.epsilon is None else self.privacy.form

    def table(self) -> dict[str, Any]:
        return table_of(self.data, self.model, self.privacy, self.run)
