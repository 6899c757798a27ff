"""Plan private sharing before it starts: which mechanism, and how many rounds, for a budget.

Reads how many rows there are and what the columns are called, and no row.  Every candidate is run with its exact noise
on synthetic rows of these columns, or on those of --public-data; the mean loss above that of the model of all
features in one place ranks them, and party 1 alone, which costs no privacy, is one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import NamedTuple

import numpy as np

from distadmm.commands import plan_public
from distadmm.commands.plan_istdp import KINDS, doubt, mean_loss, named_shape, told
from distadmm.commands.shape import Shape
from distadmm.data import synthetic
from distadmm.data.parties import DataOptions
from distadmm.data.parts import cut, split
from distadmm.errors import DONE, require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.forecasts import Forecast
from distadmm.methods.sharing import admm, moments, observe, private, release, vectors
from distadmm.methods.sharing.messages import PrivacyOptions, agreement, row_bounds
from distadmm.methods.sharing.seat import Seat, iterate
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.mechanism import source_of
from distadmm.privacy.noise.queries import Releases
from distadmm.problems.losses import Array, Logistic
from distadmm.ranks.launch import told_if_long, with_flags
from distadmm.ranks.star import Star
from distadmm.ranks.world import World

PROG = "distadmm plan sharing"
ROWS = 40_000  # of a surrogate at most; with more rows noise hurts less than is forecast
# Of what party 1 alone is short of; a plan must bring more, or luck among candidates looks like one.
GAIN = 0.1
RIDGES = (1.0, 3.0, 10.0)  # the regulariser of few rows in one place: what suits best stands for that of many
ALONE = "party 1 alone"


class Candidate(NamedTuple):
    mechanism: str
    rounds: int
    lam: float = 1.0  # --lambda; 30 and no proximal weight are what noisy vectors were found to like

    @property
    def covered(self) -> bool:
        """Whether the model is made of what was released, and so protected like it; S3's is not."""
        return self.mechanism != "s3"


CANDIDATES = (
    Candidate("v1", 1),
    *(Candidate("v1-t", T) for T in (2, 3, 5, 10)),
    *(Candidate("v1-admm", T) for T in (3, 5, 10)),
    *(Candidate("s3", T, 30.0) for T in (5, 10, 20)),
)
NOT_COMPARED = (
    "In brackets what is never the plan: its models, and scores by them, are not protected.\n"
    "V2, which protects party 1 as well, S1 and S2 protect more and are not compared; see docs/sharing.md."
)
CAVEAT = (
    "Synthetic rows: candidates rank on large tables much as they do here, but the loss is no forecast of yours.\n"
    + NOT_COMPARED
)


@flag_group("plan sharing")
class Options(Shape):
    epsilon: float = flag(help="privacy budget of each answering party", above=0)
    adjacency: str = again(PrivacyOptions, "adjacency", default="replace")
    rows: int | None = again(Shape, "rows", at_least=2)
    columns: int | None = again(Shape, "columns", at_least=2)
    split: tuple[int, ...] = again(DataOptions, "split")
    parties: int | None = again(DataOptions, "parties")
    row_norm: str = again(PrivacyOptions, "row_norm", default="auto")
    nonnegative: bool = again(PrivacyOptions, "nonnegative", default=False)
    public_data: str | None = flag(None, help=plan_public.HELP)
    runs: int = flag(3, help="runs on made-up rows", at_least=1)
    seed: int = flag(0, help="seed of the made-up rows", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        M = self.parties or len(self.split)
        require(
            not (self.split and self.parties), "--split and --parties both say how many parties; give one"
        )
        require(M != 1, "--split and --parties speak of 1 party; sharing needs at least 2")

    @property
    def members(self) -> int:
        return self.parties or len(self.split) or 2

    def privacy(self, candidate: Candidate) -> PrivacyOptions:
        return PrivacyOptions(
            epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency, row_norm=self.row_norm,
            nonnegative=self.nonnegative, mechanism=candidate.mechanism, rng="simulation",
            rounds=None if candidate.mechanism == "v1" else candidate.rounds,
        )  # fmt: skip


class Counted(moments.Rows):
    """Rows of which each stands for so many."""

    def __init__(self, matrix: Array, bounds: moments.Bounds, *, times: float, exact: bool = False):
        super().__init__(matrix, bounds, exact=exact)
        self.times = times

    def gradient(self, g: Array) -> Array:
        return self.times * super().gradient(g)

    def curvature(self, h: Array | None = None) -> Array:
        return self.times * super().curvature(h)


class Table:
    """Rows dealt to parties, and what candidates are compared with: all features in one place, and party 1 alone.

    They stand for `of` rows: sums over them have the noise, and the regulariser the weight, in proportion.
    """

    def __init__(
        self,
        options: Options,
        X: Array,
        y: Array,
        names: tuple[str, ...],
        seed: Sequence[int],
        of: int = 0,
    ):
        self.options, self.y, self.seed, self.share = options, y, tuple(seed), len(y) / (of or len(y))
        self.columns = X.shape[1]
        self.parts = split(self.star(), options.split, (X, y), None, names)
        self.X, self.whole = X, self._fitted(X)
        self.x1, self.b1 = self._fitted(self.parts.train[1])

    def together(self, ridge: float) -> tuple[Array, float]:
        """The model of all features in one place, with so many times the regulariser."""
        return self._fitted(self.X, ridge)

    def _fitted(self, X: Array, ridge: float = 1.0) -> tuple[Array, float]:
        return observe.centralised([X], self.y, admm.Problem(Logistic(), ridge * self.share, intercept=True))

    def star(self) -> Star:
        return Star(World(), self.options.members, party_one_is_centre=True)

    def model(self, candidate: Candidate | None, draw: int = 0) -> tuple[Array, float]:
        """The model that a candidate ends with, with the n-th noise; party 1's own where there is none."""
        if candidate is None:
            return np.pad(self.x1, (0, self.columns - self.x1.size)), self.b1
        end = self._vectors if candidate.mechanism == "s3" else self._moments
        return end(candidate, draw)

    def _moments(self, candidate: Candidate, draw: int = 0) -> tuple[Array, float]:
        star, problem = self.star(), admm.Problem(Logistic(), candidate.lam, intercept=True)
        agreed = agreement(self.options.privacy(candidate), star, self.parts, problem.loss)
        z1 = self.parts.train[1] @ self.x1 + self.b1
        out = self._releases(candidate, range(2, self.options.members + 1), draw)
        asked, counted = dict.fromkeys(out, (z1, self.y)), partial(Counted, times=1 / self.share)
        answers = private.answers(self.parts, agreed, out, asked, problem, counted)
        return np.concatenate([self.x1, *(answers[m].x for m in out)]), self.b1

    def _vectors(self, candidate: Candidate, draw: int = 0) -> tuple[Array, float]:
        star, algorithm = self.star(), vectors.S3()
        problem = admm.Problem(Logistic(), candidate.lam, intercept=True)
        problem = replace(problem, region=algorithm.region(problem.region))
        row, _ = row_bounds(self.options.privacy(candidate), star, self.parts, list(star.home))
        mu, N = mu_at(self.options.epsilon, self.options.delta), self.parts.rows
        out = self._releases(candidate, range(2, self.options.members + 1), draw)
        queries = {m: algorithm.query(problem, row[m], N, "simulation", mu, candidate.rounds) for m in out}
        problem = replace(problem, lam=self.share * problem.lam)
        blocks = {m: algorithm.columns(matrix, row[m]) for m, matrix in self.parts.train.items()}
        seat = Seat(star, problem, blocks, self.y, N, release=release.Release(out, queries))
        _, state = iterate(algorithm, seat, candidate.rounds)
        return np.concatenate([state.x[m] for m in sorted(state.x)]), state.b

    def _releases(self, candidate: Candidate, parties: Sequence[int], draw: int) -> dict[int, Releases]:
        seed = np.random.SeedSequence((*self.seed, draw, CANDIDATES.index(candidate))).generate_state(1)[0]
        source = source_of("simulation", int(seed))
        ledgers = {m: MemoryLedger(m, adjacency="replace", mode="simulation") for m in parties}
        return {m: Releases(ledger, source) for m, ledger in ledgers.items()}


def _work(options: Options, world: World) -> int:
    with told_if_long(PROG, "trying plans on made-up or public rows", world.is_root):
        found = forecasts(options, world)
    if found is not None:
        print("\n".join(lines(options, found)))
    return DONE


def forecasts(options: Options, world: World) -> list[Forecast] | None:
    """Of party 1 alone and of every candidate, shared out to the ranks; on rank 0."""
    rows, names = named_shape(options)
    made: list[Callable[[Candidate | None], float | Array]]
    if options.public_data is not None:
        made = [by_public_rows(options, *plan_public.read(options.public_data, names, None), names, rows)]
    else:
        made = [by_synthetic_rows(options, names, min(rows, ROWS), run) for run in range(options.runs)]
    asked, kind = [None, *CANDIDATES], options.public_data or "surrogates"
    return world.share_out(
        lambda one: Forecast(one, np.hstack([excess(one) for excess in made]), kind), asked
    )


def by_synthetic_rows(
    options: Options, names: tuple[str, ...], rows: int, run: int
) -> Callable[[Candidate | None], float]:
    """Mean loss above that of the model of all features in one place, of the rows that were trained on."""
    X, y = synthetic.coded(names, rows, options.seed, run, norm=None, **KINDS[run % len(KINDS)])
    table = Table(options, X, y, names, (options.seed, run))
    least = mean_loss(X, y, *table.whole)

    def excess(candidate: Candidate | None) -> float:
        models = (table.model(candidate, n) for n in plan_public.draws(len(y)))
        return float(np.mean([mean_loss(X, y, *model) for model in models])) - least

    return excess


def by_public_rows(
    options: Options, X: Array, y: Array, names: tuple[str, ...], rows: int
) -> Callable[[Candidate | None], Array]:
    """The same for `rows` private rows, half-way between the public rows that were trained on and those left out."""
    each = [(X[inside], y[inside]) for inside, _ in plan_public.folds(len(y), options.seed)]
    tables = [Table(options, *some, names, (options.seed, at), of=rows) for at, some in enumerate(each)]

    def of(model: Callable[[Table], tuple[Array, float]]) -> Array:
        def loss(at: int, inside: Array, outside: Array) -> tuple[float, float]:
            found = model(tables[at])
            return mean_loss(X[inside], y[inside], *found), mean_loss(X[outside], y[outside], *found)

        return plan_public.halfway(loss, len(y), options.seed)

    least = min((of(partial(Table.together, ridge=ridge)) for ridge in RIDGES), key=np.mean)

    def excess(candidate: Candidate | None) -> Array:
        made = [partial(Table.model, candidate=candidate, draw=n) for n in plan_public.draws(len(y))]
        return np.asarray(np.mean([of(model) for model in made], axis=0) - least)

    return excess


def chosen(found: Sequence[Forecast]) -> Forecast:
    """The least excess of what protects models too, or party 1 alone, the first, where that is not better by GAIN."""
    best = min((one for one in found if one.of is None or one.of.covered), key=lambda one: one.excess)
    return best if best.excess < (1 - GAIN) * found[0].excess else found[0]


def lines(options: Options, found: Sequence[Forecast]) -> list[str]:
    rows, names = named_shape(options)
    alone, best = found[0], chosen(found)
    parties = [str(part.stop - part.start) for part in cut(options.split, len(names), options.members)]
    word, how = told(options, best)
    candidates = [_words(one.of) for one in found]
    return [
        f"budget      epsilon {exactly(options.epsilon)} at delta {exactly(options.delta)} of each answering party, "
        f"{options.adjacency}",
        f"shape       {rows} rows; parties of {', '.join(parties)} columns",
        f"plan        {_words(best.of) if best.of else 'none: what others add is not worth a budget'}",
        f"{word}   mean loss {best.excess:.4f} above the model of all features in one place ({how}); "
        f"{ALONE} {alone.excess:.4f}",
        *doubt(options, best),
        "others      the same for every candidate",
        *(f"  {words:<22}{one.excess:9.4f}" for words, one in zip(candidates, found)),
        *([f"run it      {command(options, best.of)}"] if best.of else []),
        "",
        CAVEAT if options.public_data is None else NOT_COMPARED,
    ]


def _words(candidate: Candidate | None) -> str:
    if candidate is None:
        return ALONE
    words = f"{candidate.mechanism}, {candidate.rounds} round{'s' * (candidate.rounds > 1)}"
    return words if candidate.covered else f"({words})"


def command(options: Options, candidate: Candidate) -> str:
    given = {
        "data": options.data, "split": ",".join(map(str, options.split)), "parties": options.parties,
        "epsilon": exactly(options.epsilon), "delta": exactly(options.delta), "adjacency": options.adjacency,
        "row-norm": None if options.row_norm == "auto" else options.row_norm,
        "mechanism": candidate.mechanism, "rounds": None if candidate.mechanism == "v1" else candidate.rounds,
    }  # fmt: skip
    words = [f"--{name} {quote(str(value))}" for name, value in given.items() if value]
    return " ".join(["python -m distadmm.sharing", *words, *["--nonnegative"] * options.nonnegative])


main = with_flags(PROG, __doc__, Options, _work)
