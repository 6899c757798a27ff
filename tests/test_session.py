"""Runs on objects of a Python session: graphs, arrays, DataFrames; and what a finished run shows of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as tree
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import distadmm
from distadmm.data.session import table
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.files import held, holding
from distadmm.graphs.topology import load, of_networkx

pandas = pytest.importorskip("pandas", reason="the extra [pandas] is not installed")

SCHEMA = {
    "target": "income",
    "labels": ["low", "high"],
    "missing": ["?"],
    "columns": {
        "age": {"max": 90, "missing": 40, "missing_indicator": True},
        "job": {"values": ["clerk", "cook"], "missing_indicator": True},
        "hours": {"max": 100},
    },
}
TOML = """
target = "income"
labels = ["low", "high"]
missing = ["?"]
[columns]
age = { max = 90, missing = 40, missing_indicator = true }
job = { values = ["clerk", "cook"], missing_indicator = true }
hours = { max = 100 }
"""
FEW = {"iterations": 6, "rng": "simulation"}
QUICK = {"algorithm": "admm", **FEW}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    age, hours = rng.integers(18, 90, 120).astype(float), rng.integers(0, 60, 120)
    found = pandas.DataFrame({"age": age, "job": rng.choice(["clerk", "cook"], 120), "hours": hours})
    found["income"] = np.where(age / 90 + hours / 60 > 1.1, "high", "low")
    found.loc[::9, "age"], found.loc[::7, "job"], found.loc[::13, "job"] = np.nan, None, "?"
    return found


@pytest.fixture(scope="module")
def run(frame):
    graph = nx.relabel_nodes(nx.cycle_graph(4), dict(enumerate(["a", "b", "<script>", "$\\x$"])))
    return distadmm.solve(graph, frame, schema=SCHEMA, intercept=True, test_fraction=0.25, **QUICK)


def test_a_frame_is_the_csv_that_it_would_be_written_as(frame, run, tmp_path, monkeypatch):
    """The same bits, the same names of columns, and for an account the same rows."""
    monkeypatch.chdir(tmp_path)
    frame.to_csv("t.csv", index=False)
    Path("s.toml").write_text(TOML)
    same = distadmm.solve(
        "admm", data="t.csv", topology="ring:4", schema="s.toml", intercept=True, test_fraction=0.25,
        iterations=6, rng="simulation",
    )  # fmt: skip
    np.testing.assert_array_equal(run.models, same.models)
    assert run.summary["test_error"] == same.summary["test_error"]
    with holding({"data": frame}, ["data"]) as flags:
        here = open_source(flags["data"], schema="s.toml")
        assert here.content(0, 1, b"key" * 8) == open_source("t.csv", schema="s.toml").content(
            0, 1, b"key" * 8
        )
        name = here.data_id(b"key" * 8)
    other = frame.copy()
    other.loc[3, "hours"] += 1
    with holding({"data": other}, ["data"]) as flags:
        assert open_source(flags["data"], schema="s.toml").data_id(b"key" * 8) != name


def test_truth_values_are_categories_or_numbers(frame):
    """What pandas calls True is 1, and the category True where the schema says so."""
    with_truth = frame.drop(columns="job").assign(smokes=np.arange(120) % 3 == 0)
    found = []
    for form in ({"max": 1}, [False, True], {"values": ["False", "True"]}):
        columns = {name: SCHEMA["columns"][name] for name in ("age", "hours")} | {"smokes": form}
        with holding(
            {"data": with_truth, "schema": {**SCHEMA, "columns": columns}}, ["data", "schema"]
        ) as flags:
            found.append(open_source(flags["data"], schema=flags["schema"], clip=None).node(0, 1)[0])
    one, *words = found
    for X in words:
        np.testing.assert_array_equal(X[:, -2:], np.column_stack([1 - one[:, -1], one[:, -1]]))


def test_new_rows_are_scored_by_frame_file_and_array(frame, run, tmp_path):
    new = frame.drop(columns="income").iloc[::-1]
    new.to_csv(tmp_path / "new.csv", index=False)
    predicted = run.predict(new)
    assert set(predicted) <= {"low", "high"}
    assert (predicted == run.predict(tmp_path / "new.csv")).all()
    assert (predicted == run.predict(frame)[::-1]).all()  # a target that is there is not looked at
    proba = run.predict_proba(new)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert ((proba[:, 1] > 0.5) == (predicted == "high")).all()
    every = [run.predict_proba(new, node) for node in (0, 1, 2, 3, "mean")]
    np.testing.assert_array_equal(proba, every[0])  # what a node holds, not the mean that no node holds
    assert len({each.tobytes() for each in every}) == 5
    with pytest.raises(InputError, match="needed: 0 to 3, or mean"):
        run.predict(new, 4)


def test_arrays_are_columns_without_names(frame):
    X, y = frame[["hours"]].to_numpy(), (frame.income == "high").to_numpy()
    of_pair = distadmm.solve("ring:3", (X, y), **QUICK)
    joined = pandas.DataFrame({"x1": X[:, 0], "y": y.astype(int)})
    of_frame = distadmm.solve("ring:3", joined, **QUICK)
    np.testing.assert_array_equal(of_pair.models, of_frame.models)
    assert (of_pair.predict(X) == of_frame.predict(joined[["x1"]])).all()
    named = distadmm.solve("ring:3", (frame[["hours"]], frame.income), labels=("low", "high"), **QUICK)
    np.testing.assert_array_equal(named.models, of_pair.models)
    assert (named.predict(frame) == np.where(of_pair.predict(X) == 1, "high", "low")).all()


def test_one_table_a_node_is_one_file_a_node(frame, tmp_path, monkeypatch):
    parts = [frame.iloc[i::3] for i in range(3)]
    here = distadmm.solve("ring:3", parts, schema=SCHEMA, **QUICK)
    monkeypatch.chdir(tmp_path)
    for i, part in enumerate(parts):
        part.to_csv(f"p{i}.csv", index=False)
    Path("s.toml").write_text(TOML)
    files = distadmm.solve("ring:3", "p{rank}.csv", schema="s.toml", **QUICK)
    np.testing.assert_array_equal(here.models, files.models)
    assert not here.summary["pooled_allowed"]
    assert (here.predict(frame) == files.predict(frame)).all()
    with pytest.raises(InputError, match="3 tables for the 4 nodes"):
        distadmm.solve("ring:4", parts, schema=SCHEMA, **QUICK)


def test_a_text_beside_an_algorithm_is_a_network_and_nothing_is_taken_twice():
    runs = [
        distadmm.solve("ring:3", data="tiny", **QUICK),
        distadmm.solve("admm", data="tiny", topology="ring:3", **FEW),
    ]
    np.testing.assert_array_equal(runs[0].models, runs[1].models)
    for name, given in (
        ("topology", {"topology": "ring:3"}),
        ("data", {"data": "tiny", "topology": "ring:3"}),
    ):
        with pytest.raises(InputError, match=f"{name} is given twice"):
            distadmm.solve(None if name == "data" else "ring:4", "tiny", **given, **QUICK)


def test_a_graph_is_the_network_and_keeps_its_names():
    for text in ("ring:5", "star:4"):
        graph, wanted = nx.Graph(), load(text)
        graph.add_nodes_from(range(wanted.n))
        graph.add_edges_from(wanted.edges.tolist())
        assert of_networkx(graph).fingerprint == wanted.fingerprint
    assert of_networkx(nx.Graph([("b", "a"), ("a", "c")])).names == ("b", "a", "c")


def test_nothing_is_read_off_private_rows(frame):
    """A private run takes no bound and no class from a frame: no largest value, and names must be stated."""
    asked = {**QUICK, "epsilon": 1, "adjacency": "replace", "algorithm": "radmm"}
    with pytest.raises(InputError, match="give --labels NEGATIVE,POSITIVE"):
        distadmm.solve("ring:3", frame[["hours", "income"]], **asked)
    smaller, larger = frame[["hours"]].clip(upper=5), frame[["hours"]].clip(upper=5)
    larger.iloc[0] = 1e6
    y = (frame.income == "high").astype(int)
    with_one_row_more = []
    for X in (smaller, larger):
        with holding({"data": (X, y)}, ["data"]) as flags:
            source = open_source(flags["data"], private=True, intercept=True, seed=0)
            with_one_row_more.append(source.everything()[0])
            assert source.facts.doubt == ""
    differing = (with_one_row_more[0] != with_one_row_more[1]).any(axis=1)
    assert differing.sum() == 1


def test_truth_values_are_classes_and_come_back_as_such(frame, tmp_path):
    rows = frame[["hours"]].assign(hours=frame.hours - 30, rich=frame.hours > 30)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for given in (rows, str(tmp_path / "rows.csv")):
        run = distadmm.solve("ring:3", given, target="rich", labels=(False, True), **QUICK)
        told = run.predict(rows)
        assert told.dtype == bool
        assert (told == rows.rich).mean() > 0.8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda f: f, "data row 0, column 'age': the cell is empty; fill it in, leave out the row, or write age = {"),
        (lambda f: [f.drop(columns="age")] * 3, "data of node 0 row 0, column 'job': '?' stands for no number"),
        (lambda f: (f[["hours"]], f.income[:5]), "X has 120 rows and y has shape (5,)"),
        (lambda f: (f[["hours", "income"]], f.income), "X has a column 'income' too"),
        (lambda f: f[["hours", "hours"]], "two columns have the name 'hours'"),
        (lambda f: f[["hours"]].to_numpy(), "data: found a ndarray; give (X, y), a DataFrame, or a list"),
        (lambda f: [f[["hours"]].to_numpy(), f.income], "data of node 0: found a ndarray; give (X, y)"),
        (lambda f: (f.hours.to_numpy(), f.income), "X has shape (120,)"),
        (lambda f: {"a": 1}, "data: found a dict"),
        (lambda f: [], "empty list"),
        (lambda f: (np.full((6, 2), np.nan), [0, 1] * 3), "data row 0, column 'x1': the cell is empty"),
        (lambda f: (np.full((6, 2), np.inf), [0, 1] * 3), "data row 0, column 'x1': the value is inf"),
    ],
)  # fmt: skip
def test_bad_rows_are_one_line(frame, given, said):
    with pytest.raises(InputError) as error:
        distadmm.solve("ring:3", given(frame), **QUICK)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_networks_are_one_line(frame):
    for graph, said in (
        (nx.DiGraph([(0, 1)]), "directed"),
        (3.5, "give a networkx graph"),
        (nx.Graph([(0, 0), (0, 1)]), "self-loops"),
    ):
        with pytest.raises(InputError, match=said):
            distadmm.solve(graph, (np.eye(6), [0, 1] * 3), **QUICK)


def test_names_of_objects_end_with_the_call(run):
    with pytest.raises(InputError, match="a Python session that is over"):
        open_source(run.config.problem.data)
    with holding({"data": 1, "schema": "s.toml"}, ["data", "schema"]) as outer:
        assert outer["schema"] == "s.toml"
        with holding({"data": 2}, ["data"]) as inner:
            assert held(inner["data"]) == 2
        assert held(outer["data"]) == 1


def test_columns_of_every_kind_are_cells(frame):
    found = table(
        pandas.DataFrame(
            {
                "n": pandas.array([1, None, 3], dtype="Int64"),
                "c": pandas.Categorical(["u", None, "v"]),
                "b": [True, False, True],
                "o": ["p", np.nan, None],
                7: [1.5, np.nan, 2.0],
            }
        ),
        targetless=True,
    )
    assert list(found.columns) == ["n", "c", "b", "o", "x5"]
    cells = [list(map(str, column)) for column in found.columns.values()]
    assert cells == [["1", "", "3"], ["u", "", "v"], ["1", "0", "1"], ["p", "", ""], ["1.5", "", "2.0"]]


def test_a_run_shows_itself(run):
    page = run._repr_html_()
    root = tree.fromstring(page)  # well-formed: everything is escaped
    rows = {row.find("th").text: row.find("td").text for row in root.iter("tr")}
    assert rows == dict(run.closing)
    assert [each.tag for each in root.iter()].count("script") == 0
    assert root.find("figure").get(
        "aria-label"
    ) == "convergence; loss on test rows; 4 nodes, 4 edges".replace(
        "loss on test rows; ", "loss on test rows; " if np.isfinite(run.history[-1].test_loss) else ""
    )
    drawn = "".join(root.find("figure").itertext())
    assert "<script>" in drawn  # a node's name
    assert "$\\x$" in drawn  # and one that is no formula
    assert len(page) < 100_000
    assert repr(run).splitlines()[0] == "algorithm      admm, 4 nodes on 1 rank(s)"


def test_a_table_and_figures_of_a_run(run):
    found = run.to_pandas()
    np.testing.assert_array_equal(found.objective, run.column("objective"))
    assert len(found) == 6
    figure = run.plot("objective", "kkt_residual")
    assert [ax.get_title() for ax in figure.axes] == ["objective", "kkt_residual"]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), found.objective)
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="no column 'goal' in the history; it has: iteration, phase"):
        run.plot("goal")


def test_a_finished_run_is_loaded_with_all_it_showed(frame, tmp_path):
    asked = {
        "schema": SCHEMA,
        "epsilon": 5,
        "adjacency": "replace",
        **QUICK,
        "algorithm": "radmm",
        "out": tmp_path / "r",
    }
    run = distadmm.solve("ring:3", frame, **asked)
    again = distadmm.Run.load(tmp_path / "r")
    assert again.history == run.history or repr(again.history) == repr(run.history)
    assert dict(run.closing).items() >= dict(again.closing).items()
    assert again.sentence == run.sentence
    assert "SIMULATION" in again._repr_html_()
    np.testing.assert_array_equal(again.predict_proba(frame), run.predict_proba(frame))
    with pytest.raises(InputError, match="no run directory"):
        distadmm.Run.load(tmp_path)


def test_a_run_shows_the_same_bytes_in_every_process(tmp_path):
    distadmm.solve(**QUICK, data="tiny", topology="ring:3", out=tmp_path / "r")
    show = f"import distadmm; print(distadmm.Run.load({str(tmp_path / 'r')!r})._repr_html_())"
    pages = {
        subprocess.run(
            [sys.executable, "-c", show], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(pages) == 1
    assert b"<svg" in pages.pop()
