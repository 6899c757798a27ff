"""Missing cells: what a schema says of them, in every programme that reads a table, and a schema that is proposed."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import __main__ as verbs
from distadmm import radmm
from distadmm.commands.data import propose
from distadmm.data.csvfile import CsvFile
from distadmm.data.joint import from_rows
from distadmm.data.reading import Reading
from distadmm.data.schema import Schema, read_schema
from distadmm.data.source import open_source
from distadmm.errors import InputError

TABLE = "age,job,weight,y\n50,pilot,80,1\n,cook,,0\n20,?,60,1\nNA,,70,0\n"
SCHEMA = """
target = "y"
missing = ["?", "NA"]
[columns]
age = { max = 100, missing = 40, missing_indicator = true }
job = { values = ["cook", "pilot"], missing_indicator = true }
weight = { min = 50, max = 100, missing = 75 }
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "s.toml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_missing_cells_are_public_constants_and_their_own_columns(files):
    X = CsvFile(files / "t.csv", schema=read_schema("s.toml"))
    assert X.feature_names == ("age", "age=missing", "job=cook", "job=pilot", "job=missing", "weight")
    expected = [
        [0.5, 0, 0, 1, 0, 0.6],
        [0.4, 1, 1, 0, 0, 0.5],
        [0.2, 0, 0, 0, 1, 0.2],
        [0.4, 1, 0, 0, 1, 0.4],
    ]
    np.testing.assert_allclose(X.read()[0], expected)


def test_a_value_of_the_domain_may_stand_for_missing_cells(files):
    (files / "s.toml").write_text(SCHEMA.replace("missing_indicator = true }\nw", 'missing = "cook" }\nw'))
    X = CsvFile(files / "t.csv", schema=read_schema("s.toml")).read()[0]
    np.testing.assert_allclose(X[:, 2:4], [[0, 1], [1, 0], [1, 0], [1, 0]])


def test_a_schema_survives_model_json_and_names_old_data_as_before(files):
    schema = read_schema("s.toml")
    assert Schema.of_json(schema.as_json()) == schema
    (files / "old.toml").write_text('[columns]\nage = { max = 9 }\njob = ["a", "b"]\n')
    told = Reading(schema=read_schema("old.toml")).as_text()
    assert "Number(name='age', low=0.0, high=9.0)" in told
    assert "Category(name='job', domain=('a', 'b'))" in told
    assert "missing=40.0, indicator=True" in Reading(schema=schema).as_text()


def test_a_mark_is_a_number_where_nothing_says_what_it_stands_for(files):
    """`missing = ["0"]` speaks of texts; a number 0 is missing only in a column that says what it stands for."""
    (files / "t.csv").write_text("a,b,y\n0,0,1\n5,5,0\n")
    (files / "s.toml").write_text(
        'missing = ["0"]\n[columns]\na = { max = 9 }\nb = { max = 10, missing = 4 }\n'
    )
    X = CsvFile(files / "t.csv", schema=read_schema("s.toml")).read()[0]
    np.testing.assert_allclose(X, [[0, 0.4], [5 / 9, 0.5]])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (", missing = 40, missing_indicator = true", "", ("line 3, column 'age': the cell is empty", "age = { min")),
        ('["?", "NA"]', '["?"]', ("line 5, column 'age': 'NA' stands for no", 'missing = ["NA"] and age = { min')),
        (", missing_indicator = true }\nw", " }\nw", ("line 5, column 'job': the cell is empty", "job = { values")),
        ("missing = 75", "missing = 175", ("column 'weight': missing is 175", "from 50 to 100")),
        ("missing = 75", 'missing = "75"', ("missing is '75'", "needed: a number")),
        ("missing = 40, ", "", ("column 'age' has missing_indicator", "add missing = NUMBER")),
        ("missing_indicator = true }\nw", 'missing = "king" }\nw', ("missing is 'king'", "one of its values")),
        ('"pilot"]', '"missing"]', ("makes a category 'missing'", "no value")),
    ],
)  # fmt: skip
def test_what_is_not_said_is_one_line_that_says_what_to_write(files, old, new, expected):
    assert old in SCHEMA
    (files / "s.toml").write_text(SCHEMA.replace(old, new))
    with pytest.raises(InputError) as error:
        open_source("t.csv", schema="s.toml")
    assert "\n" not in str(error.value)
    for words in expected:
        assert words in str(error.value)


def test_ias_and_funnel_take_missing_cells_by_the_same_schema(files, capsys):
    with pytest.raises(InputError, match=r"row 2, column 'age': the cell is empty.*--schema"):
        from_rows("t.csv", ["y"], ["age"])
    assert from_rows("t.csv", ["y"], ["age"], schema="s.toml").public == ("20", "40", "50")
    assert from_rows("t.csv", ["y"], ["job"], schema="s.toml").public == ("cook", "missing", "pilot")
    words = ["--data", "t.csv", "--schema", "s.toml", "--out", "m", "--no-figure"]
    assert verbs.main(["ias", *words, "--infer", "y", "--column", "job"]) == 0
    assert verbs.main(["ias", "--schema", "s.toml"]) == 2
    assert "--schema describes the columns of a file" in capsys.readouterr().err
    # The mapping fits the column as radmm reads it, the category of missing cells included.
    run = dict(data="t.csv", schema="s.toml", topology="ring:3", rows_per_node=1, iterations=2)
    assert radmm.solve("admm", **run, sanitise=("job=m/mapping.npz",)).models.shape[0] == 3


def test_a_model_scores_new_rows_with_missing_cells(files, capsys):
    run = [
        "--topology",
        "ring:3",
        "--iterations",
        "3",
        "--schema",
        "s.toml",
        "--out",
        "r",
        "--progress",
        "none",
    ]
    assert verbs.main(["radmm", "--algorithm", "admm", "--data", "t.csv", *run]) == 0
    (files / "new.csv").write_text("age,job,weight\n,,\n40,,75\n")
    assert verbs.main(["predict", "r", "--data", "new.csv"]) == 0
    _, first, second = (files / "scores.csv").read_text().splitlines()
    coefficients = np.load("r/models.npz")["models"][0]
    assert float(first.split(",")[2]) != pytest.approx(float(second.split(",")[2]))  # by the indicator alone
    assert coefficients[1] != 0


def test_parties_score_new_rows_by_the_schema_of_the_training(files, capsys):
    """As the columns were made for the training: scaled, one a category, missing cells by their constants."""
    table = TABLE + "".join(
        f"{20 + 3 * i},{'cook' if i % 2 else 'pilot'},{60 + i},{i % 2}\n" for i in range(20)
    )
    (files / "t.csv").write_text(table)
    run = ["--data", "t.csv", "--schema", "s.toml", "--split", "3,3", "--iterations", "5", "--out", "r"]
    assert verbs.main(["sharing", *run, "--progress", "none", "--observe", "none"]) == 0
    (files / "new.csv").write_text("weight,job,age,who\n,pilot,50,a\n80,NA,,b\n")
    assert verbs.main(["predict", "r", "--data", "new.csv"]) == 0
    columns = np.array([[0.5, 0, 0, 1, 0, 0.5], [0.4, 1, 0, 0, 1, 0.6]])
    parts = [np.load(f"r/models/party-{m}.npz") for m in (1, 2)]
    scores = sum((X - part["mean"]) @ part["x"] for X, part in zip(np.split(columns, 2, axis=1), parts))
    scores += np.load("r/models/centre.npz")["intercept"]
    found = [float(line.split(",")[2]) for line in (files / "scores.csv").read_text().splitlines()[1:]]
    np.testing.assert_allclose(found, scores, rtol=1e-8)


def test_what_names_rows_or_dates_them_is_no_column_to_learn_from(files):
    lines = [f"{5000 + i},2024-01-{i % 28 + 1:02d},{i * 37 % 1000},{i % 2}" for i in range(30)]
    (files / "ids.csv").write_text("\n".join(["row,day,pay,y", *lines]) + "\n")
    proposed = propose("ids.csv")
    assert 'ignore = ["row", "day"]' in proposed
    assert "\npay = " in proposed  # whole numbers that differ, but far apart


def test_numbers_and_texts_that_cannot_be_read_say_how_they_could_be(files, capsys):
    (files / "comma.csv").write_text("a;y\n" + "1,5;0\n2,5;1\n" * 3)
    assert verbs.main(["radmm", "--data", "comma.csv", "--topology", "ring:3"]) == 2
    assert (
        "'1,5' is not a number; mend it (a point before decimals, no other mark), or"
        in capsys.readouterr().err
    )
    (files / "s.toml").write_text('[columns]\n"a b" = ["u", "v"]\n')
    (files / "odd.csv").write_text("a b,y\nu,0\nw,1\nu,1\n")
    assert verbs.main(["radmm", "--data", "odd.csv", "--topology", "ring:3", "--schema", "s.toml"]) == 2
    assert "'w' is not in the domain that the --schema gives ('u', 'v'); mend" in capsys.readouterr().err


def test_what_to_write_for_a_missing_cell_is_toml(files, capsys):
    (files / "odd.csv").write_text("Gr\u00f6\u00dfe (cm),y\n" + "1,0\n2,1\n" * 20 + ",1\n")
    assert verbs.main(["radmm", "--data", "odd.csv", "--topology", "ring:3"]) == 2
    written = re.search(r"or write (.* = \{ max = )MAX(, missing = )VALUE \}", capsys.readouterr().err)
    found = tomllib.loads(f"{written[1]}9{written[2]}4 }}")
    assert found == {"Gr\u00f6\u00dfe (cm)": {"max": 9, "missing": 4}}


def test_decimal_commas_are_no_categories(tmp_path):
    rows = "".join(f"{age},5;{'mf'[age % 2]};{age % 3 % 2}\n" for age in range(20, 60))
    (tmp_path / "t.csv").write_text(f"age;sex;ill\n30;f;0\n{rows}")
    with pytest.raises(
        InputError, match="'age' holds numbers with a decimal comma, such as '20,5'; write a point"
    ):
        propose(tmp_path / "t.csv")


def test_a_schema_is_proposed_from_public_rows_alone(files, capsys):
    assert verbs.main(["data", "describe", "t.csv"]) == 2
    said = capsys.readouterr().err
    assert "read off private rows change with one record" in said
    assert said.count("\n") == 1
    assert verbs.main(["data", "describe", "t.csv", "--public", "--out", "found.toml"]) == 0
    found = tomllib.loads((files / "found.toml").read_text())
    assert found["columns"]["job"] == {"values": ["cook", "pilot"], "missing_indicator": True}
    assert found["columns"]["age"] == {"max": 50.0, "missing": 50.0, "missing_indicator": True}
    assert found["columns"]["weight"]["min"] == 60.0
    assert open_source("t.csv", schema="found.toml").n_features == 7
    for words in (["describe"], [], ["show", "t.csv"]):
        assert verbs.main(["data", *words, "--public"]) == 2
        assert "Write: data describe FILE --public" in capsys.readouterr().err


numbers = st.floats(allow_nan=False).map(repr) | st.integers(-(10**6), 10**6).map(str)
texts = st.text("abc\"'\\ #=é\x7f", max_size=6).map(str.strip)
column = st.lists(numbers, min_size=6, max_size=6) | st.lists(texts | st.just("NA"), min_size=6, max_size=6)


def _beyond(cells):
    """Numbers that are all the same, or too large or small for bounds."""
    try:
        values = [float(cell) for cell in cells if cell not in ("", "NA")]
    except ValueError:
        return False
    return len(set(values)) < 2 or not 1e-300 < max(map(abs, values)) < 1e300


@settings(max_examples=60, deadline=None)
@given(st.lists(column, min_size=2, max_size=4))
def test_what_is_proposed_reads_back_and_fits_the_rows(tmp_path_factory, columns):
    import csv

    folder = tmp_path_factory.mktemp("table")
    names = [f'näme {i}"' for i in range(len(columns))]
    with open(folder / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *zip(*columns)])
    try:
        text = propose(folder / "t.csv", names[0])
    except InputError:  # nothing varies
        assert all(len(set(cells) - {"", "NA"}) < 2 or _beyond(cells) for cells in columns[1:])
        return
    (folder / "s.toml").write_text(text, encoding="utf-8")
    schema = read_schema(folder / "s.toml")
    X = CsvFile(folder / "t.csv", schema=schema).read()[0]
    assert np.isfinite(X).all()
    assert (X >= 0).all()
    assert (X <= 1).all()


def test_marks_and_values_outside_the_domain_count_alike_in_ias_and_radmm(files):
    """Without a schema a mark is no value of its own; with one, a value that it does not list is refused by both."""
    text = (files / "t.csv").read_text()
    (files / "marks.csv").write_text(text.replace("pilot", "?"))
    with pytest.raises(InputError, match=r"column 'job': the cell is \?.*--schema"):
        from_rows("marks.csv", ["y"], ["job"])
    (files / "other.csv").write_text(text.replace("pilot", "king"))
    for read in (
        lambda: from_rows("other.csv", ["y"], ["job"], schema="s.toml"),
        lambda: open_source("other.csv", schema="s.toml").everything(),
    ):
        with pytest.raises(InputError, match=r"column 'job': 'king' is not in the domain that the --schema"):
            read()


def test_a_continuous_column_is_refused_in_one_line(tmp_path, capsys):
    lines = [f"{i * 0.37:.3f},{i % 3},{i % 60}" for i in range(900)]
    (tmp_path / "r.csv").write_text("\n".join(["height,ill,day", *lines]) + "\n")
    for sides in (["--infer", "ill", "--column", "height"], ["--infer", "height", "--column", "ill"]):
        assert (
            verbs.main(["ias", "--rows", str(tmp_path / "r.csv"), *sides, "--out", str(tmp_path / "o")]) == 2
        )
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert "'height' holds 900 different numbers in 900 rows" in error
        assert not (tmp_path / "o").exists()
    assert len(from_rows(tmp_path / "r.csv", ["ill"], ["day"]).public) == 60  # sixty days, fifteen rows each


def test_one_number_written_in_several_ways_has_its_symbols_in_one_order(tmp_path):
    cells = ["7", *("7." + "0" * zeros for zeros in range(1, 7)), "3"]
    (tmp_path / "r.csv").write_text(
        "ill,day\n" + "".join(f"{at % 2},{cell}\n" for at, cell in enumerate(cells))
    )
    assert from_rows(tmp_path / "r.csv", ["ill"], ["day"]).public == ("3", *sorted(cells[:-1]))
