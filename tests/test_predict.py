"""New rows scored by finished runs: against the run's own figures, scikit-learn, and rows written by hand."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from distadmm import __main__ as verbs
from distadmm import ias, istdp, radmm, sharing
from distadmm.data.adult import raw
from distadmm.data.adult.domains import ATTRIBUTES, DOMAINS
from distadmm.data.adult.table import dealt
from distadmm.run import model
from distadmm.run.scoring import Scorer

SCHEMA = """
target = "y"
labels = ["no", "yes"]
missing = ["?"]
[columns]
a = { min = -5, max = 5 }
b = { min = -5, max = 5 }
c = ["x", "y", "z"]
"""


def rows(n: int = 120, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        a, b = np.clip(rng.normal(size=2), -4, 4)
        found.append([f"{a:.3f}", f"{b:.3f}", "xyz?"[i % 4], "yes" if a + b > 0 else "no"])
    return found


def write(path: Path, header: list[str], lines: list[list[str]]) -> Path:
    path.write_text("\n".join(map(",".join, [header, *lines])) + "\n")
    return path


def call(capsys, *words) -> tuple[int, str, str]:
    capsys.readouterr()
    return verbs.main([str(word) for word in words]), *capsys.readouterr()


def scores(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A table with a missing category, and a finished run of each kind on it."""
    place = tmp_path_factory.mktemp("runs")
    table = write(place / "t.csv", ["a", "b", "c", "y"], rows())
    (place / "s.toml").write_text(SCHEMA)
    own = ["--data", str(table), "--schema", str(place / "s.toml"), "--iterations", "8"]
    quick = ["--observe", "none"]
    assert (
        radmm.main([*own, *quick, "--topology", "ring:4", "--intercept", "--out", str(place / "radmm")]) == 0
    )
    assert istdp.main([*own, *quick, "--intercept", "--out", str(place / "istdp")]) in (0, 4)
    return place


def by_hand(lines: list[list[str]]) -> np.ndarray:
    numbers = np.array([[(float(cell) + 5) / 10 for cell in line[:2]] for line in lines])
    return np.hstack([numbers, [[float(line[2] == value) for value in "xyz"] for line in lines]])


def norm_one(X: np.ndarray) -> np.ndarray:
    return X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))


@pytest.mark.parametrize("node", [None, 2, "mean"])
def test_a_score_is_the_model_times_the_row_as_the_schema_makes_it(folder, capsys, node):
    """Columns may stand in any order, more may be there, and no target."""
    new = rows(40, seed=1)
    lines = [[line[2], "k1", line[1], line[0]] for line in new]
    table = write(folder / "new.csv", ["c", "id", "b", "a"], lines)
    out = folder / "scores.csv"
    which = [] if node is None else ["--node", node]
    code, said, _ = call(capsys, "predict", folder / "radmm", "--data", table, "--out", out, *which)
    assert code == 0
    assert ("the mean of 4 nodes" if node == "mean" else f"node {node or 0}'s own") in said
    arrays = np.load(folder / "radmm" / "models.npz")
    theta = arrays["mean"] if node == "mean" else arrays["models"][node or 0]
    z = norm_one(np.hstack([by_hand(new), np.ones((40, 1))])) @ theta
    found = scores(out)
    assert [float(line["score"]) for line in found] == pytest.approx(z.tolist(), rel=1e-9)
    assert [line["class"] for line in found] == ["yes" if each > 0 else "no" for each in z]
    assert [float(line["p(yes)"]) for line in found] == pytest.approx((1 / (1 + np.exp(-z))).tolist())


def test_a_model_of_files_a_node_scores_new_rows_by_their_schema(folder, tmp_path, capsys):
    for node in range(2):
        write(tmp_path / f"t-{node}.csv", ["a", "b", "c", "y"], rows())
    own = ["--data", str(tmp_path / "t-{rank}.csv"), "--schema", str(folder / "s.toml"), "--iterations", "2"]
    assert radmm.main([*own, "--topology", "path:2", "--out", str(tmp_path / "run")]) == 0
    new = rows(9, seed=4)
    table = write(tmp_path / "new.csv", ["a", "b", "c"], [line[:3] for line in new])
    assert call(capsys, "predict", tmp_path / "run", "--data", table, "--out", tmp_path / "s.csv")[0] == 0
    z = norm_one(by_hand(new)) @ np.load(tmp_path / "run" / "models.npz")["mean"]
    assert [float(line["score"]) for line in scores(tmp_path / "s.csv")] == pytest.approx(
        z.tolist(), rel=1e-9
    )


def test_an_intercept_beyond_the_norm_is_added_after_it(folder, capsys):
    new = rows(30, seed=2)
    table = write(folder / "new2.csv", ["a", "b", "c", "y"], new)
    assert call(capsys, "predict", folder / "istdp", "--data", table, "--out", folder / "s2.csv")[0] == 0
    theta = np.load(folder / "istdp" / "models.npz")["theta"][0]
    z = norm_one(by_hand(new)) @ theta[:-1] + theta[-1]
    assert [float(line["score"]) for line in scores(folder / "s2.csv")] == pytest.approx(z.tolist(), rel=1e-9)


def test_the_run_s_own_test_error_comes_back(tmp_path, capsys):
    """Adult's test rows: by the table's name, as the published columns, and as the columns of the model."""
    run = tmp_path / "run"
    assert (
        radmm.main(["--topology", "ring:4", "--iterations", "2", "--observe", "none", "--out", str(run)]) == 0
    )
    summary = json.loads((run / "summary.json").read_text())
    records = raw.rows(dealt()[1])
    cell = lambda record, name: DOMAINS[name][record[name]] if name in DOMAINS else str(record[name])  # noqa: E731
    published = write(
        tmp_path / "new.csv",
        list(ATTRIBUTES),
        [[cell(r, name) for name in ATTRIBUTES] for r in records[:200]],
    )
    for data, count in (("adult", len(records)), (published, 200)):
        asked = ["--data", data, "--node", "mean", "--out", tmp_path / "s.csv"]
        assert call(capsys, "predict", run, *asked)[0] == 0
        found = scores(tmp_path / "s.csv")
        wrong = [
            (line["class"] == "1") != (r["income"] == 1) for line, r in zip(found, records, strict=False)
        ]
        assert len(found) == count
        if data == "adult":
            assert np.mean(wrong) == pytest.approx(summary["mean_model_test_error"], abs=1e-12)
            by_name = [line["score"] for line in found]
    assert [line["score"] for line in found] == by_name[:200]


def test_classes_that_are_whole_numbers_are_written_so(tmp_path, capsys):
    table = write(
        tmp_path / "t.csv", ["a", "b", "y"], [[*line[:2], str(int(float(line[0]) > 0))] for line in rows()]
    )
    (tmp_path / "s.toml").write_text(
        'target = "y"\nlabels = ["0", "1"]\n[columns]\na = { min = -9, max = 9 }\nb = { min = -9, max = 9 }\n'
    )
    few = [
        "--schema",
        str(tmp_path / "s.toml"),
        "--topology",
        "ring:3",
        "--iterations",
        "3",
        "--observe",
        "none",
    ]
    assert radmm.main(["--data", str(table), *few, "--out", str(tmp_path / "run")]) == 0
    assert call(capsys, "predict", tmp_path / "run", "--data", table, "--out", tmp_path / "s.csv")[0] == 0
    assert list(scores(tmp_path / "s.csv")[0]) == ["row", "class", "score", "p(0)", "p(1)"]
    assert {line["class"] for line in scores(tmp_path / "s.csv")} <= {"0", "1"}


def test_classes_of_a_softmax_and_numbers_of_a_regression(tmp_path, capsys):
    lines = [
        [*line[:2], "red" if float(line[0]) > 0.5 else "green" if float(line[1]) > 0 else "blue"]
        for line in rows()
    ]
    table = write(tmp_path / "t.csv", ["a", "b", "y"], lines)
    plain = ["--topology", "ring:3", "--iterations", "5", "--observe", "none", "--data"]
    several = ["--loss", "softmax", "--labels", "blue,green,red"]
    assert radmm.main([*plain, str(table), *several, "--out", str(tmp_path / "soft")]) == 0
    assert call(capsys, "predict", tmp_path / "soft", "--data", table, "--out", tmp_path / "s.csv")[0] == 0
    X = norm_one(np.array([list(map(float, line[:2])) for line in lines]))
    z = X @ np.load(tmp_path / "soft" / "models.npz")["models"][0].reshape(3, 2).T
    found = scores(tmp_path / "s.csv")
    assert [line["class"] for line in found] == [["blue", "green", "red"][k] for k in z.argmax(axis=1)]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert [float(line["p(green)"]) for line in found] == pytest.approx(p[:, 1].tolist())
    numbers = write(tmp_path / "n.csv", ["a", "b", "y"], [[*line[:2], line[0]] for line in lines])
    assert radmm.main([*plain, str(numbers), "--loss", "squared", "--out", str(tmp_path / "reg")]) == 0
    assert call(capsys, "predict", tmp_path / "reg", "--data", numbers, "--out", tmp_path / "r.csv")[0] == 0
    theta = np.load(tmp_path / "reg" / "models.npz")["models"][0]
    assert [float(line["prediction"]) for line in scores(tmp_path / "r.csv")] == pytest.approx(
        (X @ theta).tolist()
    )


def test_sharing_is_scored_by_its_parties(tmp_path, capsys):
    run = tmp_path / "run"
    small = ["--data", "tiny", "--split", "10,20", "--iterations", "5", "--out"]
    assert sharing.main([*small, str(run)]) == 0
    assert call(capsys, "predict", run, "--data", "tiny", "--out", tmp_path / "s.csv")[0] == 0
    assert sharing.main(["predict", str(run), "--data", "tiny", "--scores", str(tmp_path / "other.csv")]) == 0
    assert (tmp_path / "s.csv").read_text() == (tmp_path / "other.csv").read_text()
    code, _, error = call(capsys, "predict", run, "--data", "tiny", "--node", "1")
    assert (code, error.count("\n")) == (2, 1)
    assert "leave out --node" in error


@pytest.fixture(scope="module")
def companies(tmp_path_factory) -> Path:
    """Two companies' files and a run on them; their new customers stand in other orders, one table has all columns."""
    place, rng = tmp_path_factory.mktemp("companies"), np.random.default_rng(3)
    X = rng.normal(size=(60, 4)).round(3)
    y = np.where(X @ [1, -1, 2, 0.5] > 0, "bad", "good")

    def cells(which, *columns):
        return [[f"C{i}", *map(str, (part[i] for part in columns))] for i in which]

    def part(name, header, which, *columns):
        return write(place / name, ["id", *header], cells(which, *columns))

    part("bank.csv", ["a", "b", "y"], range(40), X[:, 0], X[:, 1], y)
    part("shop.csv", ["c", "d"], rng.permutation(40), X[:, 2], X[:, 3])
    part("new-bank.csv", ["note", "b", "a"], range(40, 60), y, X[:, 1], X[:, 0])
    part("new-shop.csv", ["c", "d"], rng.permutation(np.arange(40, 60)), X[:, 2], X[:, 3])
    part("new.csv", ["a", "b", "c", "d"], range(40, 60), *X.T)
    files = ["--party-files", f"{place / 'bank.csv'},{place / 'shop.csv'}", "--key", "id", "--target", "y"]
    assert sharing.main([*files, "--labels", "good,bad", "--out", str(place / "run")]) == 0
    return place


def test_parties_whose_rows_stand_in_other_orders_score_the_same_people(companies, capsys):
    """A row of one file that met the row of somebody else's at the other was scored without a word."""
    files = f"{companies / 'new-bank.csv'},{companies / 'new-shop.csv'}"
    for out, asked in {"joined": ["--party-files", files], "one": ["--data", companies / "new.csv"]}.items():
        assert call(capsys, "predict", companies / "run", *asked, "--out", companies / out)[0] == 0
    joined, one = scores(companies / "joined"), scores(companies / "one")
    assert [line.pop("id") for line in joined] == [f"C{i}" for i in range(40, 60)]
    assert [line.pop("row") for line in one] == [str(i) for i in range(1, 21)]
    assert joined == one
    notes = [line["note"] for line in scores(companies / "new-bank.csv")]
    assert sum(line["class"] == note for line, note in zip(joined, notes)) >= 18
    for line in joined:
        assert float(line["p(bad)"]) == pytest.approx(1 / (1 + np.exp(-float(line["score"]))))


def test_people_whom_one_party_lacks_are_refused_or_left_out(companies, capsys):
    lines = (companies / "new-shop.csv").read_text().splitlines()
    (companies / "few.csv").write_text("\n".join(lines[:6]) + "\n")
    files = [
        "--party-files",
        f"{companies / 'new-bank.csv'},{companies / 'few.csv'}",
        "--out",
        companies / "some",
    ]
    code, _, error = call(capsys, "predict", companies / "run", *files)
    assert (code, error.count("\n")) == (2, 1)
    assert "5 of 20 keys are common to all" in error
    assert "new-bank.csv lacks" not in error
    assert call(capsys, "predict", companies / "run", *files, "--join", "inner")[0] == 0
    assert {line["id"] for line in scores(companies / "some")} == {line.split(",")[0] for line in lines[1:6]}


def test_an_exported_module_encodes_raw_rows_as_predict_does(folder, capsys):
    pytest.importorskip("sklearn")
    out = folder / "whole_model.py"
    assert call(capsys, "export", folder / "radmm", "--format", "sklearn", "--out", out)[0] == 0
    place = importlib.util.spec_from_file_location("whole_model", out)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    scorer = Scorer.of(model.read(folder / "radmm"))
    table = write(folder / "raw.csv", ["c", "a", "b"], [[line[2], *line[:2]] for line in rows(12, seed=9)])
    X = module.encode(scores(table))  # read as dictionaries of cells
    np.testing.assert_array_equal(X, scorer.read(table))
    assert (module.estimator().predict(X) == scorer.predictions(X)).all()
    for cell, said in (("9", "outside the bounds"), ("", "could not convert")):
        with pytest.raises(ValueError, match=said):
            module.encode([{"a": cell, "b": "1", "c": "x"}])
    with pytest.raises(ValueError, match="row 2, c: 'w' is not among"):
        module.encode([{"a": "1", "b": "1", "c": "?"}, {"a": "1", "b": "1", "c": "w"}])


def test_a_column_names_the_rows_of_a_table_of_scores(folder, capsys):
    lines = [[f"P{i}", *line[:3]] for i, line in enumerate(rows(3, seed=5))]
    table = write(folder / "named.csv", ["who", "a", "b", "c"], lines)
    out = folder / "named-scores.csv"
    assert call(capsys, "predict", folder / "radmm", "--data", table, "--out", out, "--key", "who")[0] == 0
    assert [line["who"] for line in scores(out)] == ["P0", "P1", "P2"]
    code, _, error = call(capsys, "predict", folder / "radmm", "--data", table, "--key", "whom")
    assert (code, "did you mean 'who'" in error) == (2, True)


def test_the_exported_module_is_the_model(folder, capsys):
    pytest.importorskip("sklearn")
    for run in ("radmm", "istdp"):
        out = folder / f"{run}_model.py"
        assert call(capsys, "export", folder / run, "--format", "sklearn", "--out", out)[0] == 0
        spec = importlib.util.spec_from_file_location(out.stem, out)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        scorer, X = Scorer.of(model.read(folder / run)), by_hand(rows(50, seed=3))
        np.testing.assert_allclose(module.estimator().predict_proba(X), scorer.probabilities(X), atol=1e-12)
        assert (module.estimator().predict(X) == scorer.predictions(X)).all()
    code, _, error = call(capsys, "export", folder / "radmm", "--format", "sklearn", "--out", "a-b.py")
    assert (code, error.count("\n")) == (2, 1)


@pytest.mark.parametrize("loss", ["huber", "smooth-hinge"])
def test_the_exported_module_of_a_loss_without_probabilities(folder, capsys, loss):
    pytest.importorskip("sklearn")
    run, out = folder / loss, folder / "sign_model.py"
    own = ["--data", str(folder / "t.csv"), "--schema", str(folder / "s.toml"), "--topology", "ring:3"]
    assert radmm.main([*own, "--iterations", "4", "--loss", loss, "--intercept", "--out", str(run)]) == 0
    assert call(capsys, "export", run, "--format", "sklearn", "--out", out)[0] == 0
    spec = importlib.util.spec_from_file_location(out.stem, out)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scorer, X = Scorer.of(model.read(run)), by_hand(rows(50, seed=3))
    np.testing.assert_allclose(module.estimator().decision_function(X), scorer.scores(X)[:, 0], atol=1e-12)
    found = module.estimator().predict(X)
    assert (found == scorer.predictions(X)).all()
    assert set(found) == {"no", "yes"}


def test_names_that_are_code_are_written_as_text(folder, tmp_path):
    from distadmm.commands.export import module

    scorer = Scorer.of(model.read(folder / "radmm"))
    evil = '"""\nraise SystemExit(3)\n"""'
    told = {**scorer.told, "features": [evil] * 5, "classes": [evil, "'"], "loss": evil, "sentence": evil}
    space: dict = {}
    exec(compile(module(scorer._replace(told=told), "model"), "model.py", "exec"), space)
    assert space["FEATURES"] == [evil] * 5
    assert space["PRIVACY"] == space["LOSS"] == evil


def test_the_exported_numbers_are_those_of_the_run(folder, capsys):
    out = folder / "m.json"
    assert call(capsys, "export", folder / "radmm", "--node", "1", "--out", out)[0] == 0
    told = json.loads(out.read_text())
    assert told["coefficients"] == [np.load(folder / "radmm" / "models.npz")["models"][1].tolist()]
    assert told["features"] == ["a", "b", "c=x", "c=y", "c=z"]


def test_a_column_is_sanitised_and_then_scored(tmp_path, capsys):
    """Design, train on sanitised rows, sanitise new rows, score them; the symbols follow the mapping's law."""
    lines = [[*line[:2], line[2].replace("?", "x"), line[3]] for line in rows(400)]
    table = write(tmp_path / "t.csv", ["a", "b", "c", "y"], lines)
    schema = tmp_path / "s.toml"
    schema.write_text(SCHEMA)
    design = ["--infer", "y", "--column", "c", "--f", "mi", "--beta", "0.5", "--restarts", "2", "--no-figure"]
    assert ias.main(["--rows", str(table), *design, "--out", str(tmp_path / "map")]) == 0
    mapping = tmp_path / "map" / "mapping.npz"
    matrix = np.load(mapping)["matrix"]
    train = ["--schema", str(schema), "--topology", "ring:3", "--iterations", "3", "--observe", "none"]
    words = ["--data", str(table), *train, "--sanitise", f"c={mapping}", "--out", str(tmp_path / "run")]
    assert radmm.main(words) == 0
    raw_code, _, error = call(capsys, "predict", tmp_path / "run", "--data", table)
    assert (raw_code, error.count("\n")) == (2, 1)
    assert "distadmm apply MAPPING --column c" in error
    out = tmp_path / "sanitised.csv"
    for seed in ([], ["--seed", "4"], ["--seed", "4"]):
        before = out.read_text() if out.exists() else ""
        assert (
            call(capsys, "apply", tmp_path / "map", "--data", table, "--column", "c", "--out", out, *seed)[0]
            == 0
        )
        with open(out, newline="") as file:
            drawn = list(csv.DictReader(file))
        assert [line["a"] for line in drawn] == [line[0] for line in lines]
        for value, row in zip("xyz", matrix):
            symbols = [line["c"] for line, whole in zip(drawn, lines) if whole[2] == value]
            share = np.array([np.mean([s == f"c~{u}" for s in symbols]) for u in range(len(row))])
            assert np.abs(share - row).max() < 5 * np.sqrt(0.25 / len(symbols))
    assert out.read_text() == before
    assert call(capsys, "predict", tmp_path / "run", "--data", out, "--out", tmp_path / "s.csv")[0] == 0
    assert len(scores(tmp_path / "s.csv")) == 400


@pytest.mark.parametrize(
    ("header", "lines", "said"),
    [
        (["a", "b"], [["1", "2"]], "no column 'c'; the model was trained on it"),
        (["a"], [["1"]], "no column 'b', 'c'; the model was trained on them"),
        (["a", "b", "c"], [["1", "2", "w"]], "'w' is not in its domain; the model knows 'x', 'y', 'z'"),
        (["a", "b", "c"], [["1", "7", "x"]], "outside the bounds -5 to 5 that the model was trained with"),
        (
            ["a", "b", "c"],
            [["1", "", "x"]],
            "the model has no value for such a cell; mend it or leave",
        ),
        (["a", "b", "c"], [], "no rows"),
    ],
)
def test_rows_that_the_model_cannot_score_are_named(folder, capsys, header, lines, said):
    table, out = write(folder / "bad.csv", header, lines), folder / "never.csv"
    code, _, error = call(capsys, "predict", folder / "radmm", "--data", table, "--out", out)
    assert (code, error.count("\n"), out.exists()) == (2, 1, False)
    assert said in error


BAD = {
    2: "cell is empty",
    3: "'x,y' is not",
    5: "has 5 cells, the header has 4",
    6: "7 is outside",
    8: "'w' is not",
}


@pytest.fixture
def messy(folder) -> tuple[Path, list[list[str]]]:
    """Nine new rows, of which five have something bad; and all of them before that was done."""
    lines = [[*line[:2], line[2].replace("?", "x"), f"P{i}"] for i, line in enumerate(rows(9, seed=6), 1)]
    bad = [line[:] for line in lines]
    bad[1][0], bad[2][0], bad[4], bad[5][1], bad[7][2] = "", '"x,y"', [*bad[4], "more"], "7", "w"
    return write(folder / "messy.csv", ["a", "b", "c", "who"], bad), lines


def test_bad_rows_are_counted_before_anything_is_written(folder, messy, capsys):
    out = folder / "none.csv"
    code, _, error = call(capsys, "predict", folder / "radmm", "--data", messy[0], "--out", out)
    assert (code, error.count("\n"), out.exists()) == (2, 1, False)
    assert "messy.csv line 3, column 'a': the cell is empty" in error
    assert "5 of 9 rows cannot be scored (lines 3, 4, 6, 7, 9)" in error
    assert error.endswith("or score the others by --bad-rows empty\n")


@pytest.mark.parametrize("key", [None, "who"])
def test_bad_rows_get_a_reason_and_the_others_their_scores(folder, messy, capsys, key):
    table, lines = messy
    whole, words = write(folder / "whole.csv", ["a", "b", "c", "who"], lines), ["--key", key] if key else []
    bearing = ["--bad-rows", "empty", "--out", folder / "some.csv"]
    code, said, _ = call(capsys, "predict", folder / "radmm", "--data", table, *words, *bearing)
    assert code == 0
    assert said.startswith("4 rows scored")
    assert "5 of 9 rows not scored" in said
    call(capsys, "predict", folder / "radmm", "--data", whole, *words, "--out", folder / "all.csv")
    found, every = scores(folder / "some.csv"), scores(folder / "all.csv")
    for number, (line, right) in enumerate(zip(found, every, strict=True), 1):
        reason = line.pop("reason")
        if number in BAD:
            assert BAD[number] in reason
            assert line == {**dict.fromkeys(right, ""), (key or "row"): right[key or "row"]}
        else:
            assert (reason, line) == ("", right)


@pytest.mark.parametrize(
    ("data", "said"),
    [("hopeless.csv", "2 of 2 rows cannot be scored"), ("some.npz", "is for tables of cells (.csv")],
)
def test_a_job_of_no_score_is_refused_however_it_is_asked(folder, capsys, data, said):
    write(folder / "hopeless.csv", ["a", "b", "c"], [["", "1", "x"], ["1", "", "y"]])
    asked = ["--data", folder / data, "--bad-rows", "empty", "--out", folder / "never.csv"]
    code, _, error = call(capsys, "predict", folder / "radmm", *asked)
    assert (code, error.count("\n"), (folder / "never.csv").exists()) == (2, 1, False)
    assert said in error
    assert "--bad-rows empty\n" not in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "RUN"], "give them by --data"),
        (["predict", "RUN", "--data", "adult"], "the model was trained on t.csv"),
        (["predict", "RUN", "--data", "t.csv", "--node", "9"], "needed: 0 to 3, or mean"),
        (["predict", "RUN", "--data", "t.csv", "--release", "noise:1"], "--release is for runs of sharing"),
        (["predict", "RUN", "--data", "t.csv", "--out", "./t.csv"], "--out ./t.csv is the file that is read"),
        (["apply", "RUN", "--data", "t.csv", "--out", "t.csv"], "--out t.csv is the file that is read"),
        (["predict", "RUN", "--data", "t.csv", "--out", "."], "cannot write .: it is a folder"),
        (["predict", "."], "give them by --data"),
        (["predict", ".", "--data", "t.csv"], "no run directory"),
        (["apply", "RUN", "--data", "t.csv"], "python -m distadmm predict"),
        (["apply", "no.npz", "--data", "t.csv"], "no run directory"),
        (["export", "RUN", "--format", "pickle"], "json"),
    ],
)
def test_what_cannot_be_done_is_one_line(folder, capsys, monkeypatch, words, said):
    monkeypatch.chdir(folder)
    code, _, error = call(capsys, *(str(folder / "radmm") if word == "RUN" else word for word in words))
    assert (code, error.count("\n")) == (2, 1)
    assert said in error
