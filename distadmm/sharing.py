"""ADMM sharing: one model over features that several parties hold about the same records.

    python -m distadmm.sharing --split 15,15
    mpiexec -n 4 python -m distadmm.sharing --data adult
    python -m distadmm.sharing predict runs/sharing-...  --data new.csv

Rank 0 is the centre and holds the labels; ranks 1..M are the parties and hold their columns; with fewer
ranks parties share one, and a single process hosts them all.
"""

from distadmm.flags import entering

entering(__name__)

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distadmm.algorithm import find
from distadmm.data.parties import DataOptions, load
from distadmm.data.parts import Parts, check, sparse_or_dense
from distadmm.errors import DONE, UNCONVERGED, require
from distadmm.flags import again, flag, parse
from distadmm.methods.sharing import admm
from distadmm.methods.sharing.admm import Form
from distadmm.methods.sharing.jacobi import Corrected
from distadmm.methods.sharing.messages import PrivacyOptions
from distadmm.methods.sharing.release import Release
from distadmm.methods.sharing.seat import Seat, iterate
from distadmm.methods.sharing.sgd import SGD
from distadmm.methods.sharing.solution import Solution, solution_of
from distadmm.problems.columns import Columns
from distadmm.problems.losses import Logistic, loss_named
from distadmm.problems.regularisers import region_named, regulariser_named
from distadmm.ranks.launch import launch
from distadmm.ranks.star import WIRES, Star
from distadmm.ranks.world import World
from distadmm.run.groups import Job, Run, Shared
from distadmm.structs import struct

Array = np.ndarray
FORMS = ("sound", "paper", "averaged", "gauss-seidel")


@struct
class ModelOptions:
    flags_title = "model and algorithm"
    algorithm: str = again(
        Shared,
        "algorithm",
        default="admm",
        choices=("admm", "sgd"),
        note="; sgd: synchronous FDML for comparison",
    )
    form: str = again(
        Shared,
        "form",
        choices=FORMS,
        note=": Algorithm 1; the others order the same steps differently",
        was={"form": {"corrected": "sound"}},
    )
    loss: str = again(Shared, "loss", note=": logistic, huber, smooth-hinge, hinge, squared")
    reg: str = flag("l2", help="regulariser: l2, l1 or enet:ALPHA")
    region: str = flag("whole", help="where each model is kept: whole, box:LOW:HIGH or ball:RADIUS")
    lambda_: float = again(
        Shared, "lambda_", default=1.0, at_least=0, note="; against the SUM of the losses (1 is C=1)"
    )
    mean: bool = flag(False, help="--lambda and --penalty-rho are against the mean of the losses")
    iterations: int = again(Shared, "iterations", default=100, note=" (epochs for sgd)")
    wire: str = flag("float64", help="precision of the messages", choices=tuple(WIRES))
    secure_aggregation: bool = flag(False, help="pairwise masks: the centre sees the sum of the vectors only")

    def __post_init__(self) -> None:
        regulariser_named(self.reg)
        region_named(self.region)
        loss_named(self.loss, kinks=True)
        require(
            not (self.secure_aggregation and self.algorithm == "sgd"),
            "--secure-aggregation is for --algorithm admm; sgd would need masks for every mini-batch",
        )
        require(
            not self.secure_aggregation or find(self.name, "star").cls.masks,
            f"--form {self.form} needs each party's vector by itself; --secure-aggregation shows the centre their sum",
        )

    @property
    def name(self) -> str:
        """Of the registered algorithm."""
        return "sgd" if self.algorithm == "sgd" else {"sound": "corrected"}.get(self.form, self.form)

    def problem(self, rows: int) -> admm.Problem:
        """The literal form has neither centring nor intercept."""
        scale = rows if self.mean else 1
        return admm.Problem(
            loss_named(self.loss, kinks=True),
            self.lambda_ * scale,
            regulariser_named(self.reg),
            region_named(self.region),
            intercept=self.form != "paper",
        )


@struct
class SolverOptions:
    """The flags of the algorithms, in words that mean the same in all programmes."""

    flags_title = "solver"
    penalty_rho: float | None = again(
        Shared, "penalty_rho", note="; fixed when given (default: the curvature rule)", was={"rho": {}}
    )
    rho_rule: str = again(Form, "rho_rule")
    tau: float | None = again(Form, "tau")
    theta: str = again(Form, "theta")
    stop_tolerance: float = again(
        Shared,
        "stop_tolerance",
        default=1e-4,
        above=None,
        at_least=0,
        note=": residual and movement, as a share of the predictions",
        was={"tolerance": {}},
    )
    sgd_step: float = flag(1.0, help="sgd: eta of the step size eta/sqrt(t)", above=0, was={"eta": {}})
    batch: int = again(SGD, "batch")

    def __post_init__(self) -> None:
        self.form(1)

    def form(self, scale: float) -> Form:
        rho = self.penalty_rho and self.penalty_rho * scale
        return Form(rho, self.rho_rule, self.tau, self.theta, self.stop_tolerance)

    def algorithm(self, model: ModelOptions, rows: int, seed: int) -> Any:
        if model.algorithm == "sgd":
            return SGD(self.sgd_step, self.batch, seed)
        found = find(model.name, "star").cls
        return found(**{**vars(self.form(rows if model.mean else 1)), "seed": seed})


@struct
class RunOptions(Job):
    observe: str = again(Run, "observe", note="; end: the finished model alone", choices=("1", "end", "none"))


def solve(
    blocks: Sequence[Any],
    labels: Array,
    *,
    problem: admm.Problem | None = None,
    algorithm: Any = None,
    iterations: int = 100,
    wire: str = "float64",
    observe: Callable[[int, Any], None] | None = None,
) -> Solution:
    """Train over `blocks`, one matrix a party, in this process.

    >>> solution = solve([A, B], labels)
    >>> scores = predict([A_new, B_new], solution)
    """
    problem = problem or admm.Problem(Logistic(), intercept=True)
    star = Star(parties=len(blocks), wire=wire)
    matrices = {m: sparse_or_dense(block) for m, block in enumerate(blocks, 1)}
    labels = np.asarray(labels, dtype=float)
    parts = Parts(matrices, {}, labels, {}, None, labels.size)
    check(star, parts, problem.loss)
    return train(seat_of(star, parts, problem), algorithm or Corrected(), iterations, observe)


def seat_of(
    star: Star, parts: Parts, problem: admm.Problem, release: Release | None = None, *, masked: bool = False
) -> Seat:
    """This rank's place, with the columns centred where the model has an intercept."""
    blocks = {m: Columns(matrix, centre=problem.intercept) for m, matrix in parts.train.items()}
    _refuse_degenerate(star, blocks, problem)
    return Seat(star, problem, blocks, parts.labels, parts.rows, release=release, masked=masked)


def train(
    seat: Seat, algorithm: Any, iterations: int, observe: Callable[[int, Any], None] | None = None
) -> Solution:
    """Called by every rank with what it hosts."""
    k, state = iterate(algorithm, seat, iterations, observe)
    return solution_of(algorithm, k, state, seat)


def _refuse_degenerate(star: Star, blocks: Mapping[int, Columns], problem: admm.Problem) -> None:
    """Without a strictly convex penalty dependent columns have no single best model."""
    if problem.lam * problem.reg.l2 > 0:
        return
    with star.world.together():
        for m, block in blocks.items():
            require(
                problem.lam > 0 or block.rank == block.width,
                f"party {m}: its {block.width} columns have rank {block.rank} and --lambda is 0, so no model is "
                "the best; give --lambda above 0, or drop the dependent columns",
            )


def predict(blocks: Sequence[Any], solution: Solution) -> Array:
    """The scores of new records; `blocks` are their columns, party by party."""
    scores = np.full(blocks[0].shape[0], solution.intercept)
    for m, block in enumerate(blocks, 1):
        scores += block @ solution.models[m] - solution.means[m] @ solution.models[m]
    return scores


def _read(argv: Sequence[str]) -> tuple[Any, ...]:
    return parse(
        "distadmm.sharing",
        __doc__ or "",
        [DataOptions, ModelOptions, SolverOptions, PrivacyOptions, RunOptions],
        argv,
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["predict"]:
        from distadmm.methods.sharing import predict as sharing_predict

        return sharing_predict.main(arguments[1:])
    return launch("distadmm.sharing", _read, work, arguments)


def work(options: tuple[Any, ...], world: World) -> int:
    from distadmm.methods.sharing import messages as sharing_private
    from distadmm.run import sharing_directory as sharing_run

    data, model, solver, privacy, run = options
    privacy.check_labels(loss_named(model.loss, kinks=True).one_signed)
    if privacy.moments:
        return sharing_private.work(options, world)
    if privacy.noisy_vectors:
        from distadmm.methods.sharing import noisy as sharing_noisy

        return sharing_noisy.work(options, world)
    loss = loss_named(model.loss, kinks=True)
    with world.together():
        require(
            not (model.secure_aggregation and solver.theta == "power"),
            "--theta power shows the centre single vectors; use --theta bound",
        )
        star = Star(world, data.count(world), party_one_is_centre=data.labels_at_party_one, wire=model.wire)
    parts = load(data, star, run.seed, regression=not loss.labels)
    problem = model.problem(parts.rows)
    check(star, parts, problem.loss)
    if run.dry_run:
        if world.is_root:
            print(sharing_run.outlook(star, parts, model))
        return DONE
    algorithm = solver.algorithm(model, parts.rows, run.seed)
    directory = sharing_run.Directory(star, options, run.out, force=run.force)
    recorder = sharing_run.Recorder(star, parts, problem, run.observe)
    books = sharing_private.Books.open(directory.path / "ledger", privacy, star, parts, run.seed)
    release = sharing_private.unprotected(books, star)
    seat = seat_of(star, parts, problem, release, masked=model.secure_aggregation)
    solution = train(seat, algorithm, model.iterations, recorder)
    release.close()
    text = directory.finish(parts, solution, recorder)
    if model.secure_aggregation:
        text = "\n".join([text, "", *sharing_run.said_of_masks(star.parties)])
    if world.is_root:
        print(text)
    return UNCONVERGED if run.strict and not solution.converged and model.algorithm != "sgd" else DONE


if __name__ == "__main__":
    from distadmm.sharing import main as run_main  # the real module, not its __main__ double

    raise SystemExit(run_main())
