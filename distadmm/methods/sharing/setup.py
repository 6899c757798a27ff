"""From flags to what a run of ADMM sharing works on: rows, problem, algorithm; refused here is what cannot be run."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from distadmm.algorithm import find, spelled
from distadmm.data.parties import DataOptions, load
from distadmm.data.parts import Parts, check
from distadmm.errors import require, sense_of
from distadmm.files import read_json
from distadmm.flags import again, flag, flag_group, table_of
from distadmm.methods.sharing import equation10, messages, sgd, stability
from distadmm.methods.sharing.admm import Form, Problem
from distadmm.problems.columns import Columns
from distadmm.problems.losses import loss_named
from distadmm.problems.regularisers import Ball, region_named, regulariser_named
from distadmm.ranks.star import WIRES, Star
from distadmm.ranks.world import World
from distadmm.run.groups import Run, Shared
from distadmm.structs import struct

FORMS = ("sound", "paper", "averaged", "gauss-seidel")


@flag_group("model and algorithm")
class ModelOptions:
    algorithm: str = again(Shared, "algorithm", default="admm", note="; sgd: synchronous FDML for comparison")
    form: str = again(
        Shared,
        "form",
        choices=FORMS,
        note=": Algorithm 1; the others order the same steps differently",
        was={"form": {"corrected": "sound"}},
    )
    loss: str = again(Shared, "loss", note=": logistic, huber, smooth-hinge, hinge, squared, sigmoid")
    reg: str = flag("l2", help="regulariser: l2, l1, enet:ALPHA, mcp[:REACH] or scad[:REACH]")
    region: str = flag("whole", help="where each model is kept: whole, box:LOW:HIGH or ball:RADIUS")
    lambda_: float = again(
        Shared, "lambda_", default=1.0, at_least=0, note="; against the SUM of the losses (1 is C=1)"
    )
    mean: bool = flag(False, help="--lambda and --penalty-rho are against the mean of the losses")
    iterations: int = again(Shared, "iterations", default=100, note=" (epochs for sgd)")
    wire: str = flag("float64", help="precision of the messages", choices=tuple(WIRES))
    secure_aggregation: bool = flag(False, help="pairwise masks: the centre sees the sum of the vectors only")

    def __post_init__(self) -> None:
        self.__dict__["algorithm"] = spelled(self.algorithm, ("admm", "sgd"))
        regulariser_named(self.reg)
        region_named(self.region)
        loss_named(self.loss, kinks=True, dents=True)
        require(
            self.algorithm in ("admm", "sgd") or self.algorithm.endswith(".py"),
            f"--algorithm is {self.algorithm!r}; choose one of: admm, sgd, or a star algorithm of yours in FILE.py",
        )

    @property
    def name(self) -> str:
        """Of the registered algorithm."""
        form = "corrected" if self.form == "sound" else self.form
        return form if self.algorithm == "admm" else self.algorithm

    def refuse_choices(self, data: DataOptions) -> None:
        """Moments are one way to train."""
        require(
            not data.label_file, "--label-file: in moment mode party 1 holds the labels; put them in its file"
        )
        require(self.reg == "l2" and self.region == "whole" and self.name == "corrected", messages.NO_CHOICE)
        require(
            not self.secure_aggregation,
            "--secure-aggregation is for vectors; moments go to party 1, which needs each by itself",
        )

    def refuse_single_vectors(self, theta: str) -> None:
        """What masks cannot hide."""
        require(
            self.algorithm == "admm",
            "--secure-aggregation is for --algorithm admm; sgd would need masks for every mini-batch",
        )
        require(
            find(self.name, "star").cls.masks,
            f"--form {self.form} needs each party's vector by itself; --secure-aggregation shows the centre their sum",
        )
        require(theta != "power", "--theta power shows the centre single vectors; use --theta bound")

    def problem(self, rows: int, *, intercept: bool) -> Problem:
        """The literal form has neither centring nor intercept."""
        loss, lam = loss_named(self.loss, kinks=True, dents=True), self.lambda_ * (rows if self.mean else 1)
        return Problem(loss, lam, regulariser_named(self.reg), region_named(self.region), intercept=intercept)


@flag_group("solver")
class SolverOptions:
    """The flags of the algorithms, in words that mean the same in all programmes."""

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
    batch: int = again(sgd.SGD, "batch")

    def __post_init__(self) -> None:
        self.form(1)

    def form(self, scale: float) -> Form:
        rho = self.penalty_rho and self.penalty_rho * scale
        return Form(rho, self.rho_rule, self.tau, self.theta, self.stop_tolerance)

    def algorithm(self, model: ModelOptions, rows: int, seed: int) -> Any:
        if model.name == "sgd":
            return sgd.SGD(self.sgd_step, self.batch, seed)
        return find(model.name, "star").cls(**{**vars(self.form(rows if model.mean else 1)), "seed": seed})


@struct
class RunOptions(Run):
    NAMED: ClassVar[tuple[str, ...]] = ("none", "end", "all:end")

    observe: str = again(Run, "observe", note="; end, all:end: the finished model alone")


@struct
class Options:
    """Everything that a run depends on; each part's fields are flags."""

    data: DataOptions
    model: ModelOptions
    solver: SolverOptions
    privacy: messages.PrivacyOptions
    run: RunOptions
    own: Any = None  # an algorithm of the user's

    def table(self) -> dict[str, Any]:
        own = () if self.own is None else (self.own,)
        return table_of(self.data, self.model, self.solver, self.privacy, self.run, *own)


class Prepared(NamedTuple):
    options: Options
    star: Star
    parts: Parts
    problem: Problem
    algorithm: Any  # None: moments, which are no iteration
    iterations: int
    blocks: dict[int, Columns]
    row: dict[int, float]  # the public bound on the norm of a record's features, a party
    note: str  # what is to be said of it

    @property
    def exact(self) -> bool:
        """Whether losses of the rows, and models to compare with, are computed: without noise, or where asked for."""
        return self.options.run.observe_all or not self.options.privacy.guarded

    @property
    def public(self) -> bool:
        """Whether the models are made of released values and of what is not protected, and the test rows are public."""
        private, cut = self.options.privacy, self.options.data.test_fraction
        return private.moments and private.mechanism != "v2" and not cut

    @property
    def foreign(self) -> str:
        """Where an algorithm that is not this package's own comes from."""
        return find(self.options.model.name, "star").file if self.options.own is not None else ""

    @property
    def plain(self) -> bool:
        """Models are for columns as they are, not centred."""
        return self.algorithm is None or self.options.privacy.vectors


def centred(star: Star, parts: Parts, problem: Problem) -> dict[int, Columns]:
    """The columns of the parties hosted here, centred where the model has an intercept.

    Without a penalty dependent columns have no single best model.
    """
    blocks = {m: Columns(matrix, centre=problem.intercept) for m, matrix in parts.train.items()}
    if problem.lam == 0:
        with star.world.together():
            for m, block in blocks.items():
                require(
                    block.rank == block.width,
                    f"party {m}: its {block.width} columns have rank {block.rank} and --lambda is 0, so no model is "
                    "the best; give --lambda above 0, or drop the dependent columns",
                )
    return blocks


def prepare(options: Options, world: World) -> Prepared:
    """Refuses, on every rank with one line, what cannot be run."""
    data, model, privacy = options.data, options.model, options.privacy
    loss = loss_named(model.loss, kinks=True, dents=True)
    with world.together():
        privacy.check_labels(loss.one_signed)
        if privacy.moments:
            model.refuse_choices(data)
        if model.secure_aggregation and not privacy.vectors:
            model.refuse_single_vectors(options.solver.theta)
        by_party_one = privacy.moments or privacy.mechanism == "s3" or data.labels_at_party_one
        parties = _parties(options, world, by_party_one)
        wire = "float64" if privacy.moments else model.wire
        star = Star(world, parties, party_one_is_centre=by_party_one, wire=wire)
    parts = load(data, star, options.run.seed, regression=not loss.labels, private=privacy.guarded)
    check(star, parts, loss, private=privacy.guarded)
    problem = model.problem(parts.rows, intercept=model.form != "paper" and privacy.mechanism != "paper")
    with world.together():
        _refuse_unproved(options, problem, parts.rows)
    if privacy.moments:
        return Prepared(options, star, parts, problem, None, 1, {}, {}, "")
    if privacy.vectors:
        with world.together():
            return _vectors(options, star, parts, problem)
    if privacy.mechanism == "paper":
        form = options.solver.form(parts.rows if model.mean else 1)
        algorithm: Any = equation10.EquationTen(
            rho=form.rho or 0.2, tau=form.tau, sigma=privacy.sigma, epsilon=privacy.epsilon, delta=privacy.delta,
            bound=privacy.norm_bound or 1.0, seed=options.run.seed,
        )  # fmt: skip
        blocks = {m: Columns(matrix) for m, matrix in parts.train.items()}
        return Prepared(options, star, parts, problem, algorithm, privacy.rounds or 20, blocks, {}, "")
    algorithm = options.own or options.solver.algorithm(model, parts.rows, options.run.seed)
    blocks = centred(star, parts, problem)
    return Prepared(options, star, parts, problem, algorithm, model.iterations, blocks, {}, "")


def _refuse_unproved(options: Options, problem: Problem, rows: int) -> None:
    """What no proof here or in the paper speaks of, of a loss or a regulariser that is not convex."""
    model, privacy = options.model, options.privacy
    if not problem.loss_convex:
        require(
            not privacy.moments or (privacy.mechanism or "v1") in ("v1", "v1-t"),
            f"--mechanism {privacy.mechanism}: its proof or its steps take a convex loss, and --loss {model.loss} is "
            "not; choose v1, v1-t, s1, s2 or s3, which bound every record's share by themselves",
        )
        scale = rows if model.mean and not privacy.vectors else 1.0
        if not (model.name == "sgd" or privacy.moments or options.own):
            form = options.solver.form(scale)
            # S1 to S3 and the paper's have one.
            rho = 0.2 if form.rho is None and privacy.mechanism else form.rho
            replace(form, rho=rho).penalty(problem, scale)
    if problem.reg.folded:
        require(
            privacy.mechanism is None,
            f"--mechanism {privacy.mechanism} is proved for a convex --reg, and {model.reg} is not; choose l2",
        )
        require(
            not isinstance(problem.region, Ball), f"--reg {model.reg} has no --region ball; use whole or box"
        )


def _parties(options: Options, world: World, by_party_one: bool) -> int:
    """How many; a run that goes on has as many as it began with, whatever the number of ranks."""
    if options.run.resume is None:
        return options.data.count(world, party_one_is_centre=by_party_one)
    place = Path(options.run.resume) / "config.json"

    def told() -> int:
        with sense_of(place):
            return len(read_json(place)["layout"]["parties"])

    return world.on_root(told)


def _vectors(options: Options, star: Star, parts: Parts, problem: Problem) -> Prepared:
    """S1, S2 and S3 take the form's flags as their public constants."""
    model, form, privacy = options.model, options.solver.form(1), options.privacy
    assert privacy.mechanism is not None
    cls = find(privacy.mechanism, "star").cls
    require(
        privacy.neighbours == "replace",
        f"--adjacency {privacy.adjacency}: S1, S2 and S3 are proved for replace alone; give --adjacency replace",
    )
    require(model.name == "corrected", "S1, S2 and S3 know --form sound and --algorithm admm")
    row, note = dict.fromkeys(star.home, 1.0), ""
    if cls.by_row:  # S1 bounds nothing row by row
        row, note = messages.row_bounds(privacy, star, parts, list(star.home))
    cuts = {name: getattr(privacy, name) for name in ("radius", "pull", "message_norm") if cls.by_row}
    tau = form.tau if form.tau is not None else stability.proximal_weight(star.parties)
    algorithm = cls(rho=form.rho or 0.2, tau=tau, **cuts)
    blocks = {m: algorithm.columns(matrix, row[m]) for m, matrix in parts.train.items()}
    return Prepared(options, star, parts, problem, algorithm, privacy.rounds or 10, blocks, row, note)
