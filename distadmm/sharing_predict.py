"""Scores of new records by the parties of a finished run, one message a party.

python -m distadmm.sharing predict RUN --data new.csv --scores scores.csv
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.cli import flag, launch, parse
from distadmm.errors import DONE, require
from distadmm.results import read_json, read_npz, write_csv
from distadmm.sharing_data import BUNDLED, DataOptions, load
from distadmm.star import Star
from distadmm.world import World

Array = np.ndarray


@dataclass(frozen=True)
class PredictOptions:
    flags_title = "predict"
    scores: str = flag("scores.csv", help="file the centre writes the scores to")


def main(argv: Sequence[str]) -> int:
    arguments = list(argv)

    def read(arguments: list[str]) -> tuple[Any, ...]:
        if arguments[:1] in (["-h"], ["--help"]):
            parse("distadmm.sharing predict RUN", __doc__ or "", [DataOptions, PredictOptions], ["--help"])
        require(
            arguments and not arguments[0].startswith("-"),
            "predict needs the directory of a finished run first: predict RUN --data FILE",
        )
        options = parse(
            "distadmm.sharing predict", __doc__ or "", [DataOptions, PredictOptions], arguments[1:]
        )
        return Path(arguments[0]), *options

    return launch("distadmm.sharing predict", read, work, arguments)


def work(options: tuple[Path, DataOptions, PredictOptions], world: World) -> int:
    run, data, wanted = options
    config = world.on_root(lambda: _finished(run))
    widths = config["result"]["columns"]
    sent, rows = {}, 0
    with world.together():
        star = Star(
            world, len(widths), party_one_is_centre=data.labels_at_party_one, wire=config["config"]["wire"]
        )
        models = {m: read_npz(run / "models" / f"party-{m}.npz") for m in star.hosted}
        matrices, rows = _new_records(data, star, widths, models)
        sent = {m: _apply(models[m], matrices[m], f"party {m}") for m in models}
    rows = _agreed(star, rows)
    arrived = star.up(sent, rows)
    if arrived is not None:
        b = float(read_npz(run / "models" / "centre.npz")["intercept"])
        scores = sum(arrived.values(), np.full(rows, b))
        write_csv(Path(wanted.scores), ["row", "score"], [[i + 1, f"{s:.10g}"] for i, s in enumerate(scores)])
        print(f"{rows} scores by {len(widths)} parties, one message each: {wanted.scores}")
    return DONE


def _new_records(
    data: DataOptions, star: Star, widths: Sequence[int], models: dict[int, dict[str, Array]]
) -> tuple[dict[int, Any], int]:
    """The columns each party here was trained on, of the new records; labels are neither needed nor read."""
    from distadmm.data.filesource import Reading

    if data.party_files:
        require(
            len(data.party_files) == len(widths),
            f"--party-files names {len(data.party_files)} files; the model has {len(widths)} parties",
        )
        files = {m: Path(path) for m, path in enumerate(data.party_files, 1)}
    elif data.data in BUNDLED:
        parts = load(data.of_widths(widths), star, 0)
        return parts.test or parts.train, parts.rows if not parts.test else _rows(parts.test)
    else:
        files = dict.fromkeys(star.home, Path(data.data))
    edges = np.concatenate([[0], np.cumsum(widths)])
    matrices = {}
    for m, model in models.items():
        drop = [name for name in (data.key, data.target) if name]
        reading = Reading(features=data.features or int(edges[-1]))
        file = reading.open(files[m], drop=drop, targetless=True)
        X, names = file.read()[0], list(file.feature_names)
        wanted = [str(name) for name in model["names"]]
        if set(wanted) <= set(names):
            chosen = [names.index(name) for name in wanted]
        else:
            require(
                len(names) == edges[-1],
                f"{files[m]} has no column {next(n for n in wanted if n not in names)!r}, which party {m} was "
                "trained on; give new records with the columns of the training file",
            )
            chosen = list(range(edges[m - 1], edges[m]))
        matrices[m] = (X.to_scipy().tocsc() if hasattr(X, "to_scipy") else X)[:, chosen]
    return matrices, _rows(matrices)


def _rows(matrices: dict[int, Any]) -> int:
    return next((int(matrix.shape[0]) for matrix in matrices.values()), 0)


def _agreed(star: Star, rows: int) -> int:
    """The number of new records, which all parties must agree on."""
    counts = star.world.gather(rows if star.hosted else None)

    def compare() -> int:
        found = {count for count in counts or [] if count is not None}
        require(
            len(found) == 1,
            f"the parties bring {' and '.join(map(str, sorted(found)))} records; needed: the same ones, in order",
        )
        return found.pop()

    return star.world.on_root(compare)


def _apply(model: dict[str, Array], matrix: Any, who: str) -> Array:
    """One party's share of the scores."""
    require(
        matrix.shape[1] == model["x"].size,
        f"{who} brings {matrix.shape[1]} columns, its model has {model['x'].size}; "
        "needed: the columns it was trained on",
    )
    return matrix @ model["x"] - model["mean"] @ model["x"]


def _finished(run: Path) -> dict[str, Any]:
    config = read_json(run / "config.json")
    require(
        isinstance(config, dict) and config.get("verb") == "sharing" and "result" in config,
        f"{run} is not a finished run of distadmm.sharing; give the directory that one wrote",
    )
    return config
