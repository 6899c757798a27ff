"""`model.json`: written by every programme, enough to score new rows with, and no window on private ones."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import ias, istdp, radmm, sharing
from distadmm.data.mapping import Mapping
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.files import read_json, read_npz
from distadmm.run import kinds, model

OLD = Path(__file__).parent / "fixtures" / "runs"


def scores(found: model.Model, X: np.ndarray, names: list[str]) -> np.ndarray:
    """By what the descriptions say, and nothing else."""
    told, arrays = found.told, found.arrays
    if told["parts"]:
        return sum(scores(part, X, names) for part in found.parts) + arrays["intercept"]
    X = X[:, [names.index(name) for name in told["features"]]] - arrays.get("means", 0.0)
    ones = np.ones((len(X), 1))
    if told["intercept"] == "inside":
        X = np.hstack([X, ones])
    if told["row_norm"] is not None:
        X = X * np.minimum(1.0, told["row_norm"] / np.linalg.norm(X, axis=1))[:, None]
    if told["intercept"] == "outside":
        X = np.hstack([X, ones])
    return X @ arrays["coefficients"].reshape(-1)


RUNS: list[tuple[Any, list[str], Any]] = [
    (radmm, ["--intercept", "--iterations", "20"], lambda s: 1 - s["mean_model_test_error"]),
    (
        radmm,
        ["--no-clip", "--algorithm", "admm", "--eta", "0.1", "--iterations", "20"],
        lambda s: 1 - s["mean_model_test_error"],
    ),
    (sharing, ["--iterations", "30"], lambda s: s["comparison"]["this run, 2 parties"]["accuracy"]),
    (istdp, ["--intercept", "--test-fraction", "0"], lambda s: s["test_accuracy"]),
    (istdp, ["--epsilon", "8", "--adjacency", "replace"], lambda s: s["test_accuracy"]),
]


@pytest.mark.parametrize(("programme", "words", "accuracy"), RUNS)
def test_a_description_is_enough_to_score_new_rows(
    programme: Any, words: list[str], accuracy: Any, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert programme.main(["--data", "tiny", "--progress", "none", *words, "--out", str(out)]) == 0
    source = open_source("tiny", clip=None)
    X, y = source.test()  # type: ignore[misc]
    found = model.read(out)
    told = np.where(scores(found, X, list(source.feature_names)) > 0, 1.0, -1.0)
    assert np.mean(told == y) == pytest.approx(accuracy(read_json(out / "summary.json")), abs=1e-12)
    assert found.told["encoding"] is None or found.told["encoding"]["table"] == "tiny"
    assert (found.told["loss"], found.told["link"], found.told["classes"]) == (
        "logistic",
        "logistic",
        [-1, 1],
    )
    for part in [found, *found.parts]:
        assert stat.S_IMODE(part.path.stat().st_mode) == 0o600
        assert part.told["kind"] == kinds.find(out).kind  # type: ignore[union-attr]


def test_a_run_says_of_its_model_what_it_said_of_its_privacy(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [
        "--data",
        "tiny",
        "--epsilon",
        "2",
        "--adjacency",
        "replace",
        "--iterations",
        "5",
        "--progress",
        "none",
    ]
    assert istdp.main([*words, "--out", str(out)]) == 0
    told, summary = model.read(out).told, read_json(out / "summary.json")
    assert {name: told[name] for name in ("epsilon", "delta", "adjacency", "statement")} == {
        name: summary[name] for name in ("epsilon", "delta", "adjacency", "statement")
    }
    assert told["sentence"] == summary["notes"][0]
    assert told["trust"] == summary["trust"] == "any"


def test_nothing_of_private_rows_is_described(tmp_path: Path) -> None:
    """One record replaced, and the description is the same to the byte; its encoding is the public schema."""
    schema = tmp_path / "schema.toml"
    schema.write_text('target = "y"\nlabels = ["no", "yes"]\n[columns]\na = { max = 9 }\nb = ["u", "v"]\n')
    rows = [f"{i % 7},{'uv'[i % 2]},{('no', 'yes')[i % 3 == 0]}" for i in range(60)]
    found = []
    for last in ("8,u,no", "0,v,yes"):
        path, out = tmp_path / "rows.csv", tmp_path / f"run-{last[0]}"
        path.write_text("\n".join(["a,b,y", *rows, last]) + "\n")
        words = [
            "--data",
            path,
            "--schema",
            schema,
            "--topology",
            "ring:3",
            "--iterations",
            "4",
            "--epsilon",
            "4",
        ]
        words += ["--adjacency", "replace", "--rng", "simulation", "--observe", "none", "--out", out]
        assert radmm.main([str(word) for word in words]) == 0
        found.append((out / model.FILE).read_bytes())
    assert found[0] == found[1]
    told = model.read(tmp_path / "run-8").told
    assert told["features"] == ["a", "b=u", "b=v"]
    assert told["encoding"]["schema"]["columns"][0] == {"name": "a", "min": 0.0, "max": 9.0}
    assert told["encoding"]["schema"]["columns"][1] == {"name": "b", "domain": ["u", "v"]}
    assert told["classes"] == ["no", "yes"]


def test_a_mapping_is_described_too(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert ias.main(["--beta", "0.3", "--restarts", "2", "--no-figure", "--out", str(out)]) == 0
    found = model.read(out)
    np.testing.assert_array_equal(found.arrays["mapping"], Mapping.load(out / "mapping.npz").matrix)
    assert found.told["kind"] == "ias"


def test_a_party_of_an_older_run_is_known_by_its_arrays(tmp_path: Path) -> None:
    folder = next(
        path for path in sorted(OLD.glob("sharing-*")) if (path / "models" / "party-2.npz").is_file()
    )
    found = model.read(folder / "models" / "party-2.json")
    np.testing.assert_array_equal(
        found.arrays["coefficients"], read_npz(folder / "models" / "party-2.npz")["x"]
    )
    assert found.told["features"]
    with pytest.raises(InputError, match="no model in"):
        model.read(tmp_path)
    (tmp_path / model.FILE).write_text('{"schema": 99}')
    with pytest.raises(InputError, match="no description of a model"):
        model.read(tmp_path)


@pytest.mark.parametrize(
    "changed", [{"arrays": None}, {"arrays": {"mean": "x"}}, {"arrays": {"mean": ["x", 1]}}, {"parts": 3}]
)
def test_a_description_that_names_no_files_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    model.write(tmp_path, "radmm", {"arrays": {"mean": ["models.npz", "mean"]}, **changed})
    with pytest.raises(InputError, match="no description of a model"):
        model.read(tmp_path)
