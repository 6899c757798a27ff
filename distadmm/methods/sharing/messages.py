"""The privacy flags of ADMM sharing, and what the parties agree on in public before the first message."""

import math
import re
from collections.abc import Sequence
from typing import Any

from distadmm.data.options import norms
from distadmm.data.parts import Parts
from distadmm.errors import require
from distadmm.flags import again, flag
from distadmm.methods.sharing import private
from distadmm.methods.sharing.moments import Bounds
from distadmm.ranks.star import Star
from distadmm.run.config import Privacy as Filtered
from distadmm.run.groups import Budget, Shared
from distadmm.structs import struct

VECTORS = ("s1", "s2", "s3")


@struct
class PrivacyOptions(Budget):
    message: str = flag(
        "auto",
        help="what parties send; auto: moments where they are private, else vectors",
        choices=("auto", "vectors", "moments"),
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
    assume: str | None = again(Filtered, "assume")
    norm_bound: float | None = flag(
        None,
        help="paper: b1, a bound of |x_m|, |y| and |z| that its noise rests on and the run looks at (1)",
        above=0,
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
        require(
            self.epsilon_one is None or self.mechanism == "v2",
            "--epsilon-one is the budget of party 1, which only --mechanism v2 gives one of its own; add it, or take "
            "--epsilon-one away",
        )
        require(self.sigma is None or self.mechanism == "paper", "--sigma goes with --mechanism paper")
        require(
            self.norm_bound is None or (self.mechanism == "paper" and self.epsilon is not None),
            "--norm-bound goes with --mechanism paper and --epsilon",
        )

    @property
    def moments(self) -> bool:
        if self.mechanism is not None:
            return self.mechanism in private.MECHANISMS
        return self.message == "moments" or (self.message == "auto" and self.epsilon is not None)

    @property
    def vectors(self) -> bool:
        """S1, S2 or S3."""
        return self.mechanism in VECTORS

    @property
    def guarded(self) -> bool:
        """Something is promised, so nothing may be read off private rows that its flags do not say."""
        return self.epsilon is not None and self.mechanism != "paper"

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
