"""Scores of new records by the parties of a finished run, one message a party."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.formats import kind
from distadmm.data.parties import BUNDLED, DataOptions, keys_of, load, one_order
from distadmm.data.reading import CELLS, Reading
from distadmm.data.session import cell_file
from distadmm.errors import DONE, InputError, number, require, sense_of
from distadmm.files import write_csv
from distadmm.flags import again, flag, flag_group, parse, positional
from distadmm.methods.sharing.moments import Bounds, Rows
from distadmm.privacy.accounting import events, gaussian, scopes
from distadmm.privacy.accounting.statements import READINGS, beside_scores, exactly, rounded_up
from distadmm.privacy.ledger.account import Account
from distadmm.privacy.ledger.books import open_ledger
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.mechanism import source_of
from distadmm.privacy.noise.queries import Query, Releases, noise_for
from distadmm.ranks.launch import command
from distadmm.ranks.star import Array, Star
from distadmm.ranks.world import World
from distadmm.run import directory, groups, kinds, scoring, spending
from distadmm.run.model import BLANK, FILE, read


@flag_group("predict")
class PredictOptions:
    run: str = positional("RUN", help="the directory of a finished run comes first: predict RUN --data FILE")
    scores: str = flag("scores.csv", help="file the centre writes the scores to")
    release: str = flag("refuse", help="of a private run: refuse, exact, round:STEP or noise:EPSILON")
    seed: int = again(groups.Job, "seed", note=", when the run used simulation noise")

    def __post_init__(self) -> None:
        how, _, size = self.release.partition(":")
        wanted = {"refuse": False, "exact": False, "round": True, "noise": True}
        right = how in wanted and (number(size) > 0 if wanted[how] else not size)
        require(
            right, f"--release is {self.release!r}; choose one of: refuse, exact, round:STEP, noise:EPSILON"
        )


PROG = "distadmm.sharing predict"
_ESTABLISHED = ["cut-rows", "public-bound", "fresh-noise", "released-models"]  # models of V1 to V2


def options(words: list[str]) -> tuple[DataOptions, PredictOptions]:
    return parse(PROG, __doc__ or "", [DataOptions, PredictOptions], words)  # type: ignore[return-value]


def work(options: tuple[DataOptions, PredictOptions], world: World) -> int:
    data, wanted = options
    run = Path(wanted.run)
    config, widths, privacy = world.on_root(lambda: _finished(run, wanted))
    with world.together():
        star = Star(world, len(widths), party_one_is_centre=data.labels_at_party_one, wire=config["wire"])
        told = {m: read(run / "models" / f"party-{m}.json") for m in star.hosted}
        models = {m: model.arrays for m, model in told.items()}
        own = _new_records(data, star, widths, {m: told[m].told for m in told})
    named, own = _one_order(data, star, own)
    with world.together():
        matrices = {m: X for m, (X, _) in own.items()}
        with sense_of(run / "models"):
            sent = {m: _apply(models[m], matrices[m], f"party {m}") for m in models}
        said = release_scores(run, privacy, wanted, sent, matrices, models, len(widths) - 1)
    rows = _agreed(star, next((int(matrix.shape[0]) for matrix in matrices.values()), 0))
    arrived = star.up(sent, rows)
    if arrived is not None:
        # Version 0.1 told nothing of its targets.
        centre = read(run).told if (run / FILE).is_file() else BLANK
        with sense_of(run / "models" / "centre.json"):
            b = float(read(run / "models" / "centre.json").arrays["intercept"])
        with np.errstate(all="ignore"):
            scores = scoring.finite(sum(arrived.values(), np.full(rows, b)))
        write_csv(Path(wanted.scores), *scoring.table_of(centre, scores[:, None], named))
        print(f"{rows} scores by {len(widths)} parties, one message each: {wanted.scores}")
        for line in said:
            print(line)
    return DONE


# Of each party here: its columns of the new records, and their keys.
Records = dict[int, tuple[Any, list[str]]]


def _new_records(
    data: DataOptions, star: Star, widths: Sequence[int], trained: dict[int, dict[str, Any]]
) -> Records:
    """The columns each party here was trained on, of the new records; labels are neither needed nor read."""
    if data.party_files:
        require(
            len(data.party_files) == len(widths),
            f"--party-files names {len(data.party_files)} files; the model has {len(widths)} parties",
        )
    elif data.data in BUNDLED:
        parts = load(data.of_widths(widths), star, 0)
        return {m: (X, []) for m, X in (parts.test or parts.train).items()}
    edges = np.concatenate([[0], np.cumsum(widths)]).tolist()
    found = {}
    for m, told in trained.items():
        path = Path(data.party_files[m - 1] if data.party_files else data.data)
        encoded = kind(path) in CELLS and told["encoding"] is not None  # version 0.1 kept no encoding
        file: Any
        if encoded:
            file = cell_file(path, targetless=True)
        else:
            drop = [name for name in (data.key, data.target) if name]
            file = Reading(features=data.features or edges[-1]).open(path, drop=drop, targetless=True)
        keys = keys_of(file, data.key) if data.party_files and data.key else []
        if encoded:
            X = scoring.Scorer(told, np.zeros((1, widths[m - 1])), f"party {m}").read(path)
        else:
            X = _by_place(file, told["features"], range(*edges[m - 1 : m + 1]), edges[-1])
        found[m] = (X, keys)
    return found


def _by_place(file: Any, wanted: Sequence[str], block: range, columns: int) -> Any:
    """A party's columns of a file, by their names or, of a whole table, by where they stand."""
    X, names = file.read()[0], list(file.feature_names)
    if set(wanted) <= set(names):
        chosen = [names.index(name) for name in wanted]
    else:
        lacking = next(name for name in wanted if name not in names)
        require(
            len(names) == columns,
            f"{file.path} has no column {lacking!r}, which the model was trained on; give new records with the columns "
            "of the training file",
        )
        chosen = list(block)
    return (X.to_scipy().tocsc() if hasattr(X, "to_scipy") else X)[:, chosen]


def _one_order(data: DataOptions, star: Star, own: Records) -> tuple[tuple[str, list[str]] | None, Records]:
    """The records of files with a key, one behind the other as in the first; of one table they stand in order."""
    if not data.party_files:
        return None, own
    files = dict(enumerate(data.party_files, 1))
    order, _, places = one_order(star, {m: keys for m, (_, keys) in own.items()}, files, data.join)
    return (str(data.key), order), {m: (X[places[m]], keys) for m, (X, keys) in own.items()}


def _agreed(star: Star, rows: int) -> int:
    """The number of new records, which all parties must agree on."""
    found = {count for count in star.world.allgather(rows if star.hosted else None) if count is not None}
    numbers = " and ".join(map(str, sorted(found)))
    with star.world.together():
        require(len(found) == 1, f"the parties bring {numbers} records; needed: the same ones, in order")
    return found.pop()


def _apply(model: dict[str, Array], matrix: Any, who: str) -> Array:
    require(
        matrix.shape[1] == model["coefficients"].size,
        f"{who} brings {matrix.shape[1]} columns, its model has {model['coefficients'].size}; "
        "needed: the columns it was trained on",
    )
    with np.errstate(all="ignore"):
        return scoring.finite(matrix @ model["coefficients"] - model["means"] @ model["coefficients"])


PRIVATE = (
    "the model of a private run was asked for scores: each is one more release about the person scored, and exact "
    "scores can identify records; give --release noise:EPSILON (priced), round:STEP (leaks some bits, no guarantee) "
    "or exact (no guarantee)"
)
BARE = (
    "this was a private run by {0}: its messages carry noise, its models none; scores tell of the training rows, and "
    "no noise on scores has a price for that; give --release exact or round:STEP (no guarantee: the ledgers will say "
    "infinity)"
)


def release_scores(
    run: Path,
    privacy: dict[str, Any] | None,
    wanted: PredictOptions,
    sent: dict[int, Array],
    matrices: dict[int, Any],
    models: dict[int, dict[str, Array]],
    answering: int,
) -> list[str]:
    """Turn the scores of the protected parties hosted here into what may be sent; what is to be said of it."""
    if privacy is None:
        return []
    how, _, size = wanted.release.partition(":")
    protected = ("s1", "s2", "v2")  # whose party 1 is
    for m in [m for m in sent if m > 1 or privacy["mechanism"] in protected]:
        with _ledger(run, m, privacy) as ledger:
            if m == 1 and privacy["mechanism"] == "v2":
                ledger.expose("exact scores of party 1's own model", iteration=0)
            elif how == "exact":
                ledger.expose("exact scores", iteration=0)
            elif how == "round":
                sent[m] = float(size) * np.rint(sent[m] / float(size))
                share = np.unique(sent[m], return_counts=True)[1] / sent[m].size
                nats = float(-(share * np.log(share)).sum())
                ledger.charge(events.Leakage(nats, "rounded score of a person, on average"), iteration=0)
                ledger.expose("rounded scores", iteration=0)
            else:
                own = matrices[m], models[m]["coefficients"]
                sent[m] = _noisy(ledger, privacy, m, *own, float(size), wanted.seed)
    return _said(how, float(size or 0), privacy, run, answering)


def _ledger(run: Path, m: int, privacy: dict[str, Any]) -> MemoryLedger:
    """Scores have ledgers of their own: the training's budget is closed."""
    adjacency: events.Adjacency = "replace" if privacy["neighbours"] == "replace" else "add-remove"
    header: dict[str, Any] = {"mode": privacy["noise"], "adjacency": adjacency, "scope": "person"}
    established = _ESTABLISHED[: None if privacy["mu"] is not None else -1]
    header["claim"] = scopes.claim("scores", established, beside=beside_scores(privacy["mechanism"]))
    place, training = run / "ledger" / "scores", directory.earlier_name(run)
    ledger = open_ledger(place, m, resume=None, run=f"{training} scores", **header)
    if ledger.mode == "secure":  # who is scored may be among the rows of the training
        book, where = Account(privacy["account"]), str(place.resolve())
        ledger.account = spending.Purse(book, ledger.run, where, privacy["delta"], rows_of=training)
    return ledger


def _noisy(
    ledger: MemoryLedger, privacy: dict[str, Any], m: int, matrix: Any, x: Array, epsilon: float, seed: int
) -> Array:
    """Scores of rows cut to their bound, with Gaussian noise: a person moves one score by at most Delta.

    For rows of norm R the scores of two people differ by 2 R |x| at most, and by R (|x+| + |x-|) when no
    feature is negative; against a blank row by R |x|.
    """
    known = privacy["bounds"][str(m)]
    bounds = Bounds(known["row"], 1.0, 0.25, privacy["neighbours"], known["nonnegative"])
    scores = Rows(matrix, bounds).scores(x)
    reach = float(np.linalg.norm(x))
    if privacy["neighbours"] == "replace":
        parts = float(np.linalg.norm(np.maximum(x, 0)) + np.linalg.norm(np.minimum(x, 0)))
        reach = parts if known["nonnegative"] else 2 * reach
    sensitivity = max(bounds.row * reach, 1e-12)
    sigma = noise_for(sensitivity, gaussian.mu_at(epsilon, privacy["delta"]), privacy["noise"], scores.size)
    source = source_of(privacy["noise"], seed if privacy["noise"] == "simulation" else None)
    # One query for all: another person in a row moves that row's score alone.
    query = Query(sigma, sensitivity, scores.size)
    return Releases(ledger, source).vector(scores, query, len(ledger.events))


def _said(how: str, size: float, privacy: dict[str, Any], run: Path, answering: int) -> list[str]:
    if how != "noise":
        form = "as they are" if how == "exact" else f"rounded to {size:g}"
        said = f"scores released {form}: no guarantee for the people scored"
        return [f"{said}; the ledgers say epsilon = infinity"]
    mu, delta = gaussian.mu_at(size, privacy["delta"]), privacy["delta"]
    own = exactly(size) if answering == 1 else rounded_up(gaussian.epsilon(mu * math.sqrt(answering), delta))
    together = gaussian.epsilon(math.hypot(privacy["mu"], mu) * math.sqrt(answering), delta)
    simulated = privacy["noise"] == "simulation"
    return [
        *([f"{READINGS['simulation']}; with secret noise of the same law:"] if simulated else []),
        f"each score is ({own}, {exactly(delta)})-DP for the person scored, whose columns all answering parties hold; "
        f"one of the training records who is scored once has epsilon = {rounded_up(together)} in all for these columns",
        beside_scores(privacy["mechanism"]),
        f"to be scored again costs again; what all scores and the training cost: python -m distadmm ledger merge {run}",
    ]


def _finished(run: Path, wanted: PredictOptions) -> tuple[dict[str, Any], list[int], dict[str, Any] | None]:
    """The flags of a run, the columns of each party, and what its release of scores has to know; None: no noise.

    Refuses what may not be released before a row is read.
    """
    found = kinds.find(run)
    if found is None or found.kind != "sharing" or found.summary is None:
        raise InputError(
            f"{run} is not a finished run of distadmm.sharing; give the directory that one wrote"
        )
    config, privacy = found.config, found.summary.get("privacy")
    if config["epsilon"] is None or config["mechanism"] == "paper":
        return config, found.summary["columns"], None
    if config["mechanism"] in ("s1", "s2", "s3") or privacy is None or privacy["mu"] is None:
        noise = config["rng"] or "secure"  # none on scores has a price
        privacy = {"mu": None, "delta": config["delta"], "neighbours": "replace", "noise": noise}
    known = {"mechanism": config["mechanism"] or "v1", "account": config.get("account"), **privacy}
    how = wanted.release.partition(":")[0]
    require(known["mu"] is not None or how not in ("refuse", "noise"), BARE.format(known["mechanism"]))
    require(how != "refuse", PRIVATE)
    return config, found.summary["columns"], known


main = command(PROG, options, work)
