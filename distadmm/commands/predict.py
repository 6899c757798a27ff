"""`python -m distadmm predict`: scores of new rows by the model of a finished run."""

from pathlib import Path

import numpy as np

from distadmm.data.formats import kind
from distadmm.data.parties import DataOptions
from distadmm.data.reading import CELLS
from distadmm.data.session import cell_file
from distadmm.data.source import BUNDLED, open_source
from distadmm.data.table import Matrix, dense
from distadmm.errors import DONE, require, sense_of, told
from distadmm.files import require_another, write_csv
from distadmm.flags import again, flag, flag_group, positional
from distadmm.methods.sharing import predict
from distadmm.ranks.launch import with_flags
from distadmm.ranks.world import World
from distadmm.run import kinds, model, scoring

PROG = "distadmm predict"


@flag_group("predict")
class Predict:
    run: str = positional("RUN", help="directory of a finished run of radmm, istdp or sharing")
    data: str = flag(
        "", help="the new rows: a file with the columns of the training's, or the bundled table's name"
    )
    node: str | None = flag(None, help="whose model: a node's number, or mean (default: node 0's own)")
    out: str = flag("scores.csv", help="file to write")
    key: str | None = flag(
        None, help="column of the new rows that names each in the scores (default: its number)"
    )
    bad_rows: str = flag(
        "refuse",
        choices=("refuse", "empty"),
        help="new rows with a cell that cannot be read: refuse writes nothing and names them, empty scores the others "
        "and adds a column reason",
    )
    party_files: tuple[str, ...] = again(DataOptions, "party_files", note=" (sharing)")
    join: str = again(DataOptions, "join", note=" (sharing)")
    release: str = again(predict.PredictOptions, "release", note=" (sharing)")

    def __post_init__(self) -> None:
        require(self.data or self.party_files, "no rows to score; give them by --data FILE")
        for read in (self.data, *self.party_files):
            require_another(self.out, read)


def scored(asked: Predict, found: kinds.RunDirectory) -> list[str]:
    """Write the scores; what is to be said of them."""
    described, bearing = model.read(found.path), asked.bad_rows == "empty"
    require(
        not bearing or asked.data in BUNDLED or kind(Path(asked.data)) in CELLS,
        f"--bad-rows empty is for tables of cells ({', '.join(CELLS)}); {asked.data} is read as a whole: leave it out",
    )
    with sense_of(described.path):
        scorer = scoring.Scorer.of(described, asked.node)
        refused: dict[int, str] = {}
        if asked.data in BUNDLED:
            X: Matrix = _bundled(asked.data, described)
        else:
            with told("REASON, or score the others by --bad-rows empty", scoring.BadRows):
                X = scorer.read(asked.data, refused if bearing else None)
        table = scoring.table_of(described.told, scorer.scores(X), _names(asked) if asked.key else None)
    write_csv(Path(asked.out), *(scoring.without(table, refused) if bearing else table))
    scored = X.shape[0] - len(refused)
    lines = [f"{scored} rows scored by {scorer.whose}: {asked.out}"]
    if refused:
        lines.append(f"{len(refused)} of {X.shape[0]} rows not scored: the column reason says why")
    if sentence := described.told.get("sentence"):
        lines.append(f"of the training's rows a score tells no more than the model does: {sentence}")
    return lines


def _names(asked: Predict) -> tuple[str, list[str]]:
    """The head and the cells of the column that names rows."""
    file = cell_file(Path(asked.data), targetless=True)
    if asked.bad_rows == "empty":
        file.refused = {}
    return str(asked.key), file.column(str(asked.key))


def _bundled(name: str, described: model.Model) -> np.ndarray:
    """The test rows of the table that the run was trained on."""
    trained = (described.told["encoding"] or {}).get("table")
    require(trained == name, f"--data {name}: the model was trained on {trained}; give rows with its columns")
    test = open_source(name, clip=None).test()
    assert test is not None
    return dense(test[0])


def _of_parties(asked: Predict, found: kinds.RunDirectory) -> list[str]:
    """What `distadmm.sharing predict` is asked by."""
    words = ["--scores", asked.out, "--release", asked.release, "--join", asked.join]
    if not asked.party_files:
        require(not asked.key, "--key goes with --party-files here; rows of one table are numbered")
        return [*words, "--data", asked.data]
    kept = [(part.told["encoding"] or {}).get("key") for part in model.read(found.path).parts]
    key = asked.key or next(iter(kept), None)
    return [*words, "--party-files", ",".join(asked.party_files), *(["--key", key] if key else [])]


def work(asked: Predict, world: World) -> int:
    found = world.on_root(lambda: kinds.opened(asked.run, "predict"))
    if found.kind == "sharing":
        require(asked.node is None, "a run of sharing has parties, no nodes; leave out --node")
        require(
            asked.bad_rows == "refuse",
            "--bad-rows empty is for models that one reader scores by; parties of sharing each read their own columns "
            "of a row: leave it out of all their files",
        )
        return predict.work(predict.options([asked.run, *_of_parties(asked, found)]), world)
    require(
        not asked.party_files,
        f"--party-files is for runs of sharing; this is one of {found.kind}: give --data",
    )
    require(
        asked.release == "refuse",
        f"--release is for runs of sharing, whose parties send scores; this is one of {found.kind}; leave it out",
    )
    lines = world.on_root(lambda: scored(asked, found))
    if world.is_root:
        print("\n".join(lines))
    return DONE


main = with_flags(PROG, __doc__, Predict, work)
