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
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.parties import DataOptions, load
from distadmm.data.parts import Parts, check, sparse_or_dense
from distadmm.errors import DONE, UNCONVERGED, require
from distadmm.flags import again, flag, parse
from distadmm.methods.sharing import admm, loop, sgd
from distadmm.methods.sharing.loop import FORMS, Plan
from distadmm.methods.sharing.messages import PrivacyOptions
from distadmm.problems.columns import Columns
from distadmm.problems.losses import Logistic, loss_named
from distadmm.problems.regularisers import region_named, regulariser_named
from distadmm.ranks.launch import launch
from distadmm.ranks.star import WIRES, Star
from distadmm.ranks.world import World
from distadmm.run.groups import Job, Run
from distadmm.structs import struct

Array = np.ndarray


@struct
class ModelOptions:
    flags_title = "model and algorithm"
    algorithm: str = flag(
        "admm", help="admm, or sgd: synchronous FDML for comparison", choices=("admm", "sgd")
    )
    form: str = flag("corrected", help="corrected, or paper: Algorithm 1 to the letter", choices=FORMS)
    loss: str = flag(
        "logistic", help="logistic, huber, smooth-hinge, hinge, squared, or FILE.py:Name of your own"
    )
    reg: str = flag("l2", help="regulariser: l2, l1 or enet:ALPHA")
    region: str = flag("whole", help="where each model is kept: whole, box:LOW:HIGH or ball:RADIUS")
    lambda_: float = flag(
        1.0, help="weight of the regulariser against the SUM of the losses (1 is C=1)", at_least=0
    )
    mean: bool = flag(False, help="--lambda and --rho are against the mean of the losses")
    rho: float | None = flag(None, help="penalty; fixed when given (default: the curvature rule)", above=0)
    rho_rule: str = flag("auto", help="auto, fixed or curvature", choices=("auto", "fixed", "curvature"))
    tau: float | None = flag(None, help="proximal weight (default: 3/4 * 1.02 theta - 1)", at_least=0)
    theta: str = flag("auto", help="overlap of the parties: auto, power, bound or a number in [1, M]")
    iterations: int = flag(100, help="most iterations (epochs for sgd)", at_least=1)
    tolerance: float = flag(
        1e-4, help="stop when residual and movement are below this share of the predictions", at_least=0
    )
    wire: str = flag("float64", help="precision of the messages", choices=tuple(WIRES))
    secure_aggregation: bool = flag(False, help="pairwise masks: the centre sees the sum of the vectors only")
    eta: float = flag(1.0, help="sgd: step size eta/sqrt(t)", above=0)
    batch: int = flag(100, help="sgd: records a mini-batch", at_least=1)

    def __post_init__(self) -> None:
        regulariser_named(self.reg)
        region_named(self.region)
        loss_named(self.loss, kinks=True)
        self.plan(0)
        require(
            not (self.secure_aggregation and self.algorithm == "sgd"),
            "--secure-aggregation is for --algorithm admm; sgd would need masks for every mini-batch",
        )

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

    def plan(self, seed: int, rows: int = 1) -> Plan:
        rule = self.rho_rule == "curvature" or (self.rho_rule == "auto" and self.rho is None)
        try:
            theta: float | str = float(self.theta)
        except ValueError:
            theta = self.theta
        rho = self.rho * rows if self.rho and self.mean else self.rho
        return Plan(
            self.form,
            rho,
            rule,
            self.tau,
            theta,
            self.iterations,
            self.tolerance,
            seed,
            self.secure_aggregation,
        )


@struct
class RunOptions(Job):
    observe: str = again(Run, "observe", note="; end: the finished model alone", choices=("1", "end", "none"))


class Solution(NamedTuple):
    """A trained model and how it came about."""

    models: dict[int, Array]  # of the parties hosted by this rank
    means: dict[int, Array]  # column means of these parties, taken off before the model is applied
    intercept: float
    iterations: int
    converged: bool
    failure: str | None
    theta: float | None
    tau: float
    rho: float
    private: bool = False  # moments: models are for plain columns


def solve(
    blocks: Sequence[Any],
    labels: Array,
    *,
    problem: admm.Problem | None = None,
    plan: Plan | None = None,
    wire: str = "float64",
    observe: loop.Observer | None = None,
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
    return train(star, parts, problem, plan or Plan(), observe)


def train(
    star: Star,
    parts: Parts,
    problem: admm.Problem,
    plan: Plan,
    observe: loop.Observer | None = None,
) -> Solution:
    """Train what the ranks of `star` hold by ADMM sharing; called by every rank."""
    blocks = {m: Columns(matrix, centre=problem.intercept) for m, matrix in parts.train.items()}
    _refuse_degenerate(star, blocks, problem)
    found = loop.run(star, blocks, parts.labels, problem, plan, parts.rows, observe=observe)
    state = found.state
    return Solution(
        state.x, {m: block.mean for m, block in blocks.items()}, state.b, found.iterations,
        found.converged, found.failure, found.theta, found.tau, state.rho,
    )  # fmt: skip


def train_sgd(
    star: Star,
    parts: Parts,
    problem: admm.Problem,
    steps: sgd.Steps,
    epochs: int,
    observe: Callable[[int, sgd.Model], None] | None = None,
) -> Solution:
    """Train by synchronous stochastic gradients for a fixed number of epochs."""
    blocks = {m: Columns(matrix, centre=problem.intercept) for m, matrix in parts.train.items()}
    model = sgd.start(blocks, steps)
    for number in range(1, epochs + 1):
        model = sgd.epoch(star, blocks, parts.labels, problem, steps, model, number, parts.rows)
        if observe is not None:
            observe(number, model)
    means = {m: block.mean for m, block in blocks.items()}
    return Solution(model.x, means, model.b, epochs, True, None, None, 0.0, float("nan"))


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
        "distadmm.sharing", __doc__ or "", [DataOptions, ModelOptions, PrivacyOptions, RunOptions], argv
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["predict"]:
        from distadmm.methods.sharing import predict as sharing_predict

        return sharing_predict.main(arguments[1:])
    return launch("distadmm.sharing", _read, work, arguments)


def work(options: tuple[DataOptions, ModelOptions, PrivacyOptions, RunOptions], world: World) -> int:
    from distadmm.methods.sharing import messages as sharing_private
    from distadmm.run import sharing_directory as sharing_run

    data, model, privacy, run = options
    privacy.check_labels(loss_named(model.loss, kinks=True).one_signed)
    if privacy.moments:
        return sharing_private.work(options, world)
    if privacy.noisy_vectors:
        from distadmm.methods.sharing import noisy as sharing_noisy

        return sharing_noisy.work(options, world)
    loss = loss_named(model.loss, kinks=True)
    with world.together():
        star = Star(world, data.count(world), party_one_is_centre=data.labels_at_party_one, wire=model.wire)
    parts = load(data, star, run.seed, regression=not loss.labels)
    problem = model.problem(parts.rows)
    check(star, parts, problem.loss)
    if run.dry_run:
        if world.is_root:
            print(sharing_run.outlook(star, parts, model))
        return DONE
    directory = sharing_run.Directory(star, options, run.out, force=run.force)
    recorder = sharing_run.Recorder(star, parts, problem, run.observe)
    books = sharing_private.Books.open(directory.path / "ledger", privacy, star, parts, run.seed)
    sharing_private.expose(books, star)
    if model.algorithm == "sgd":
        steps = sgd.Steps(model.eta, model.batch, run.seed)
        solution = train_sgd(star, parts, problem, steps, model.iterations, recorder)
    else:
        solution = train(star, parts, problem, model.plan(run.seed, parts.rows), recorder)
    text = directory.finish(parts, solution, recorder)
    if model.secure_aggregation:
        text = "\n".join([text, "", *sharing_run.said_of_masks(star.parties)])
    if world.is_root:
        print(text)
    return UNCONVERGED if run.strict and not solution.converged else DONE


if __name__ == "__main__":
    from distadmm.sharing import main as run_main  # the real module, not its __main__ double

    raise SystemExit(run_main())
