"""Private runs of ADMM sharing from the command line: what is agreed, kept in ledgers, and said at the end."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.data.options import norms
from distadmm.data.parts import Parts, check
from distadmm.errors import DONE, require
from distadmm.flags import again, flag
from distadmm.methods.sharing import admm, private
from distadmm.methods.sharing.moments import Bounds
from distadmm.methods.sharing.release import Release
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.privacy.noise.queries import Query, Releases, counted
from distadmm.ranks.star import Star
from distadmm.ranks.world import World
from distadmm.run.groups import Budget, Shared
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.privacy.accounting.events import Adjacency
    from distadmm.privacy.ledger.file import Ledger
    from distadmm.privacy.noise.sources import Source

VECTORS = ("s1", "s2", "s3")


@struct
class PrivacyOptions(Budget):
    message: str = flag(
        "auto", help="vectors, or moments (the private default)", choices=("auto", "vectors", "moments")
    )
    mechanism: str | None = again(
        Shared,
        "mechanism",
        note=f"; moments: {', '.join(private.MECHANISMS)} (default: v1); vectors: s1, s2, s3, or paper (refuted)",
        choices=(*private.MECHANISMS, *VECTORS, "paper"),
    )
    rng: str | None = again(Budget, "rng", default=None)  # type: ignore[assignment]
    row_norm: str = again(
        Shared,
        "row_norm",
        note=", one or one a party; auto: of one-hot columns, else 1",
        was={"row_bound": {}},
    )
    nonnegative: bool = flag(False, help="features are public to be >= 0; lower ones are cut to 0")
    adjacency: str | None = again(
        Budget,
        "adjacency",
        default="replace",
        choices=("replace", "add-remove"),
        note="; add-remove: its features may become 0, and the number of records is public",
        was={"neighbours": {"zero": "add-remove"}},
    )
    rounds: int | None = flag(
        None, help="gradients or vectors a party releases (default: the mechanism's)", at_least=1
    )
    epsilon_one: float | None = flag(None, help="v2: budget of party 1 (default: --epsilon)", above=0)
    protect: str = flag("label", help="v2: what of party 1's record is protected", choices=private.PROTECTED)
    lambda_one: float = flag(10.0, help="v2: weight of party 1's regulariser", above=0)
    radius: float = flag(2.0, help="s2, s3: each model is kept in a ball of this radius", above=0)
    pull: float = flag(7.0, help="s2, s3: what a party is pulled to is cut to this", above=0)
    message_norm: float = flag(2.0, help="s2, s3: messages are cut to this", above=0, was={"clip": {}})
    sigma: float | None = flag(
        None, help="paper: noise level (default: Theorem 1's for --epsilon an iteration)", at_least=0
    )
    hide_labels: bool = flag(
        False, help="refuse to run where the centre's messages tell the parties the labels"
    )

    @property
    def neighbours(self) -> str:
        """A record that comes or goes has its features at 0: the parties' rows belong together by their order."""
        return "zero" if self.adjacency == "add-remove" else "replace"

    @property
    def noise(self) -> str:
        """Secure unless asked otherwise; the paper's mechanism, which guarantees nothing, is only simulated."""
        return self.rng or ("simulation" if self.mechanism == "paper" else "secure")

    def __post_init__(self) -> None:
        if self.moments:
            private.rounds_of(self.mechanism or "v1", self.rounds)
        require(
            self.message != "vectors" or self.mechanism not in private.MECHANISMS,
            f"--mechanism {self.mechanism} sends moments; for --message vectors choose s1, s2, s3 or paper",
        )
        require(
            self.message != "moments" or self.mechanism in (None, *private.MECHANISMS),
            f"--mechanism {self.mechanism} sends vectors; for --message moments choose one of: "
            f"{', '.join(private.MECHANISMS)}",
        )
        require(
            self.message != "vectors" or self.epsilon is None or self.mechanism,
            "--epsilon with --message vectors needs --mechanism s1, s2, s3 or paper",
        )
        require(
            self.mechanism not in VECTORS or self.epsilon,
            f"--mechanism {self.mechanism} needs --epsilon, the budget of each releasing party",
        )
        if self.mechanism == "paper":
            require(
                self.noise == "simulation" and (self.sigma is not None) != (self.epsilon is not None),
                "--mechanism paper takes --sigma or --epsilon, and simulation noise: there is nothing to keep secure",
            )
        require(self.sigma is None or self.mechanism == "paper", "--sigma goes with --mechanism paper")

    @property
    def moments(self) -> bool:
        if self.mechanism is not None:
            return self.mechanism in private.MECHANISMS
        return self.message == "moments" or (self.message == "auto" and self.epsilon is not None)

    @property
    def noisy_vectors(self) -> bool:
        return self.mechanism in (*VECTORS, "paper")

    def check_labels(self, one_signed: bool) -> None:
        """y = -b sigma(-b z) has the sign of -b: whoever is sent y, or q, has the labels."""
        require(
            not self.hide_labels or self.mechanism == "v2",
            "--hide-labels: every party is sent the slopes of the loss"
            + (", whose signs are the labels" if one_signed else ", from which labels can be estimated")
            + "; only --mechanism v2 protects labels",
        )


def one_hot_bound(names: Sequence[str]) -> float | None:
    """sqrt(number of attributes) when the names say that every column is a case of one, as in `sex=Male`."""
    attributes = [re.match(r"(.+?)(=|<=|>)", name) for name in names]
    if not names or not all(attributes):
        return None
    return math.sqrt(len({found[1] for found in attributes if found}))


NO_CHOICE = "moment mode has one --algorithm, --form, --reg (l2) and --region (whole); leave these flags out"
DEFAULT_BOUND = 1.0  # to which longer rows are cut where nothing public bounds them


def known_bounds(star: Star, parts: Parts) -> dict[int, float | None]:
    """What the names of the columns say about the norm of a row, by party."""
    gathered = star.world.allgather({m: one_hot_bound(names) for m, names in parts.names.items()})
    return {m: bound for part in gathered for m, bound in part.items()}


def given_bounds(options: PrivacyOptions, star: Star) -> tuple[float, ...]:
    given = norms(options.row_norm) or ()
    require(
        options.row_norm != "none" or options.epsilon is None,
        "--row-norm none: what a record adds to a private message must be bounded; give a number, or auto",
    )
    require(
        len(given) in (0, 1, star.parties),
        f"--row-norm gives {len(given)} bounds for {star.parties} parties; give one, or one each",
    )
    return given


def row_bounds(
    options: PrivacyOptions, star: Star, parts: Parts, releasing: Sequence[int]
) -> tuple[dict[int, float], str]:
    """The public norms to which these parties cut their rows, and what is to be said of those nobody stated."""
    given, known = given_bounds(options, star), known_bounds(star, parts)
    if given:
        return {m: given[(m - 1) % len(given)] for m in releasing}, ""
    silent = ", ".join(str(m) for m in releasing if known[m] is None)
    said = f"Rows longer than {DEFAULT_BOUND:g} (party {silent}) are cut to that norm; --row-norm states another."
    return {m: known[m] or DEFAULT_BOUND for m in releasing}, said if silent else ""


def agreement(options: PrivacyOptions, star: Star, parts: Parts, loss: Any) -> private.Agreement:
    """What all parties agree on; called by every rank."""
    from distadmm.privacy.accounting.gaussian import mu_at

    mechanism = options.mechanism or "v1"
    known, given = known_bounds(star, parts), given_bounds(options, star)
    # Party 1's rows are in no release but V2's.
    stated = [m for m in star.home if m > 1 or mechanism == "v2" or given or known[m] is not None]
    rows, note = row_bounds(options, star, parts, stated)
    bounds = {
        m: Bounds(
            row, loss.max_slope, loss.max_curvature, options.neighbours,
            options.nonnegative or (known[m] is not None and not given), loss.one_signed,
        )
        for m, row in rows.items()
    }  # fmt: skip
    mu = mu_at(options.epsilon, options.delta) if options.epsilon else None
    one = options.epsilon_one or options.epsilon
    return private.Agreement(
        mechanism, bounds, mu, private.rounds_of(mechanism, options.rounds),
        mu_at(one, options.delta) if one else None, options.protect, options.lambda_one, note,
    )  # fmt: skip


class Books(NamedTuple):
    """What the ledgers of a run have in common."""

    folder: Path
    options: PrivacyOptions
    dataset: dict[int, str]
    run: str  # one name for all ranks
    claim: dict[str, Any] | None  # the theorem and the hypotheses that code has checked
    scope: str
    source: Source
    leakage: dict[int, tuple[Any, ...]]

    @classmethod
    def open(
        cls,
        folder: Path,
        options: PrivacyOptions,
        star: Star,
        parts: Parts,
        seed: int,
        claim: dict[str, Any] | None = None,
        scope: str = "person",
    ) -> Books:
        """Called by every rank."""
        from distadmm.privacy.accounting.events import Leakage
        from distadmm.privacy.noise.mechanism import source_of

        name = star.world.broadcast(secrets.token_hex(8))
        with star.world.together():
            source = source_of(options.noise, seed if options.noise == "simulation" else None)
        told = {m: tuple(Leakage(*one) for one in found) for m, found in (parts.leakage or {}).items()}
        return cls(folder, options, parts.dataset or {}, name, claim, scope, source, told)

    def ledger(
        self, node: int, queries: Sequence[Query], adjacency: Adjacency, epsilon: float | None
    ) -> Ledger:
        """The ledger of one party, with the budget its schedule is checked against."""
        from distadmm.privacy.ledger.file import Ledger
        from distadmm.privacy.ledger.filter import budget

        mode = self.options.noise
        events = counted([query.event(mode) for query in queries if query.sigma > 0])
        limit = budget(epsilon, self.options.delta, events, adjacency=adjacency) if epsilon else None
        return Ledger(
            self.folder, node, adjacency=adjacency, mode=mode, scope=self.scope, dataset=self.dataset.get(node),
            budget=limit, claim=self.claim, run=self.run, source=self.source.name,
        )  # fmt: skip


def unprotected(books: Books, star: Star) -> Release:
    """A run without noise: the ledger of every party will say infinity before the first message."""
    with star.world.together():
        out = {
            m: Releases(books.ledger(m, [], "replace", None), books.source, books.leakage.get(m, ()))
            for m in star.hosted
        }
        for each in out.values():
            each.commit([])
    return Release(out)


def open_releases(books: Books, star: Star, parts: Parts, agreed: private.Agreement) -> dict[int, Releases]:
    """Ledgers and noise of the parties hosted here that release anything."""
    options, source = books.options, books.source
    adjacency: Adjacency = "replace" if options.neighbours == "replace" else "add-remove"
    opened = {}
    slopes = private.slope_query(agreed, parts.rows, options.noise) if agreed.mechanism == "v2" else None
    for m in star.hosted:
        if m == 1:
            if slopes is not None:
                own: Adjacency = "label" if options.protect == "label" else "replace"
                one = options.epsilon_one or options.epsilon
                opened[1] = Releases(books.ledger(1, [slopes], own, one), source, books.leakage.get(1, ()))
            continue
        width = parts.train[m].shape[1]
        spread = slopes.sigma if slopes is not None else 0.0
        queries = private.plan(agreed, m, width, options.noise, spread).queries(options.noise, width)
        opened[m] = Releases(
            books.ledger(m, queries, adjacency, options.epsilon), source, books.leakage.get(m, ())
        )
    return opened


def work(options: tuple[Any, ...], world: World) -> int:
    """A run in moment mode; the counterpart of `sharing.work`."""
    from distadmm.data.parties import load
    from distadmm.methods.sharing.solution import Solution
    from distadmm.problems.losses import loss_named
    from distadmm.run import sharing_directory as sharing_run

    data, model, _, privacy, run = options
    loss = loss_named(model.loss, kinks=True)
    with world.together():
        parties = data.count(world, party_one_is_centre=True)
        star = Star(world, parties, party_one_is_centre=True)
        require(
            not data.label_file, "--label-file: in moment mode party 1 holds the labels; put them in its file"
        )
    guarded = privacy.epsilon is not None
    parts = load(data, star, run.seed, regression=not loss.labels, private=guarded)
    check(star, parts, loss, private=guarded)
    problem = admm.Problem(loss, model.lambda_ * (parts.rows if model.mean else 1), intercept=True)
    with world.together():
        plain = model.reg == "l2" and model.region == "whole" and model.algorithm == "admm"
        require(plain and model.form == "sound", NO_CHOICE)
        agreed = agreement(privacy, star, parts, loss)
        require(
            not model.secure_aggregation,
            "--secure-aggregation is for vectors; moments go to party 1, which needs each by itself",
        )
    text = statement(agreed, privacy, star.parties)
    if run.dry_run:
        plan = outlook(star, parts, agreed, privacy)
        if world.is_root:
            print("\n".join([*plan, "", *text]))
        return DONE
    directory = sharing_run.Directory(star, options, run.out, force=run.force)
    recorder = sharing_run.Recorder(star, parts, problem, run.observe)
    books = Books.open(directory.path / "ledger", privacy, star, parts, run.seed)
    with world.together():
        releases = open_releases(books, star, parts, agreed)
        trained = private.train(star, parts, problem, agreed, releases)
    for out in releases.values():
        out.ledger.close()
    means = {m: np.zeros(x.size) for m, x in trained.x.items()}
    solution = Solution(trained.x, means, trained.b, 1, True, None, None, 0.0, float("nan"), private=True)
    shown = directory.finish(
        parts, solution, recorder, trained.replies, privacy=private_facts(agreed, privacy, text)
    )
    if world.is_root:
        print("\n".join([shown, "", *text]))
    return DONE


def statement(agreed: private.Agreement, options: PrivacyOptions, parties: int) -> list[str]:
    """What may be said of the run, no more."""
    from distadmm.privacy.accounting.gaussian import epsilon

    if agreed.mu is None:
        return ["no noise: the replies reveal what they reveal, and the ledgers say epsilon = infinity"]
    change = "replacing" if options.neighbours == "replace" else "blanking"
    lines = [
        f"{agreed.mechanism}: the reply of each party but the first is ({options.epsilon:g}, {options.delta:g})-DP for "
        f"{change} one record's features at that party, with the number of records, the labels and party 1's columns "
        "known.  Derivation not peer-reviewed; exact arithmetic."
    ]
    if parties > 2:
        together = epsilon(agreed.mu * math.sqrt(parties - 1), options.delta)
        lines.append(
            f"One person at all {parties - 1} answering parties together: epsilon = {rounded_up(together)}."
        )
    if agreed.mechanism == "v2":
        what = "one label" if agreed.protect == "label" else "one record of party 1, its label included,"
        one = options.epsilon_one or options.epsilon
        lines.append(f"Party 1's slopes are ({one:g}, {options.delta:g})-DP for replacing {what}.")
    else:
        lines.append("Party 1 is not protected: the others receive all labels and its scores.")
    if agreed.note:
        lines.append(agreed.note)
    if options.noise == "simulation":
        lines.append("Simulation noise: whoever has the seed takes it off, so this run guarantees nothing.")
    lines.append(
        "Not covered: scores of records, the curves and comparisons of an observer, preprocessing, the choice of "
        "settings, timing, aborts, floating point."
    )
    return lines


def private_facts(agreed: private.Agreement, options: PrivacyOptions, text: Sequence[str]) -> dict[str, Any]:
    """What later releases of this run's models need to know."""
    return {
        "statement": " ".join(text),
        "mu": agreed.mu,
        "delta": options.delta,
        "noise": options.noise,
        "neighbours": options.neighbours,
        "bounds": {str(m): {"row": b.row, "nonnegative": b.nonnegative} for m, b in agreed.bounds.items()},
    }


def outlook(star: Star, parts: Parts, agreed: private.Agreement, options: PrivacyOptions) -> list[str]:
    """Before the run: noise against the sampling error that is there anyway."""
    gathered = star.world.gather({m: matrix.shape[1] for m, matrix in parts.train.items()})
    widths = {m: width for part in gathered or [] for m, width in part.items()}
    lines = [
        f"{parts.rows} records, {star.parties} parties, columns {', '.join(str(widths[m]) for m in sorted(widths))}"
    ]
    slopes = private.slope_query(agreed, parts.rows, options.noise) if agreed.mechanism == "v2" else None
    if slopes is not None:
        lines.append(f"party 1 sends {parts.rows} slopes with noise of sd {slopes.sigma:.3g} on each")
    for m in sorted(widths):
        if m == 1:
            continue
        plan = private.plan(agreed, m, widths[m], options.noise, slopes.sigma if slopes else 0.0)
        bounds = agreed.bounds[m]
        sampling = bounds.slope * bounds.row * math.sqrt(parts.rows / widths[m]) / 2
        ratio = plan.gradient.sigma / math.sqrt(plan.rounds) / sampling
        lines.append(
            f"party {m}: rows cut to norm {bounds.row:.4g}; noise sd {plan.gradient.sigma:.4g} a gradient entry, "
            f"{plan.matrix.sigma:.4g} a matrix diagonal; {ratio:.2g} times the sampling error of the gradient"
        )
        if ratio > 1:
            lines.append(
                f"  more noise than signal can be expected at party {m}: few records or many columns for this epsilon; "
                "party 1 alone may do better"
            )
    lines.append(
        "measured on a9a (57 columns) at epsilon 1: 32,561 records .325 against .349 alone; 10,000 .328 (.351); "
        "3,000 .343 (.356); 1,000 no gain; with 3,000 columns and 6,000 records no gain at epsilon 8"
    )
    return lines
