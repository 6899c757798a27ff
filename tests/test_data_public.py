"""What rows teach never reaches a claim: two tables that differ in one record, through every programme."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.data.source import open_source
from distadmm.errors import DONE, USAGE, InputError

ROWS = 60
RADMM = [
    "--topology",
    "ring:3",
    "--iterations",
    "4",
    "--epsilon",
    "2",
    "--adjacency",
    "replace",
    "--progress",
    "none",
]
COMMANDS: dict[str, tuple[Any, list[str]]] = {
    "radmm": (radmm.main, RADMM),
    "istdp": (istdp.main, ["--epsilon", "1", "--adjacency", "replace", "--iterations", "3"]),
    "moments": (sharing.main, ["--parties", "2", "--epsilon", "1", "--row-norm", "2", "--mechanism", "v2"]),
    "vectors": (
        sharing.main,
        ["--parties", "2", "--epsilon", "8", "--mechanism", "s2", "--row-norm", "1", "--rounds", "2"],
    ),
}
PAIRS = {  # two names of classes, and the name that one record alone has
    "text": ("b", "a", "c"),
    "numbers": ("1", "0", "2"),
    "signs": ("1", "-1", "2"),
}


def write(path: Path, common: str, alone: str) -> Path:
    """Rows of the class `common`, but for the first, which alone is of the other one."""
    X = np.random.default_rng(3).normal(size=(ROWS, 4)).round(3)
    names = [alone, *[common] * (ROWS - 1)]
    lines = [",".join([*map(str, row), name]) for row, name in zip(X.tolist(), names)]
    path.write_text("p,q,r,s,target\n" + "\n".join(lines) + "\n")
    return path


def epsilon_of(folder: Path) -> Any:
    """What the ledgers of a run say; infinite where any of them does."""
    events = [
        json.loads(line)
        for path in sorted((folder / "ledger").glob("*"))
        if path.suffix == ".jsonl"
        for line in path.read_text().splitlines()
    ]
    return any(event.get("mech") == "unbounded" for event in events)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("programme", COMMANDS)
def test_no_certificate_where_one_record_names_a_class(programme: str, pair: str, tmp_path, capsys) -> None:
    """At least one of two neighbours is refused by name, and with its classes stated each keeps its claim."""
    main, flags = COMMANDS[programme]
    common, alone, other = PAIRS[pair]
    codes = []
    for number, name in enumerate((alone, other)):
        data = ["--data", str(write(tmp_path / f"{number}.csv", common, name))]
        out = ["--out", str(tmp_path / f"{programme}-{number}")]
        codes.append(main([*data, *flags, *out]))
        said = capsys.readouterr().err
        if codes[-1] != DONE:
            assert codes[-1] == USAGE
            assert "give --labels NEGATIVE,POSITIVE" in said
            assert len(said.splitlines()) == 1
            assert not Path(out[1]).exists()
        stated = [f"--labels={name},{common}", "--out", str(tmp_path / f"{programme}-{number}-stated")]
        assert main([*data, *flags, *stated]) == DONE
        assert not epsilon_of(Path(stated[-1])), "the classes are stated, so that the claim stays"
        capsys.readouterr()
    assert codes[1] == USAGE
    assert codes[0] == (USAGE if pair == "text" else DONE)


def test_zero_and_one_mean_the_same_whichever_of_them_occur(tmp_path) -> None:
    """A private run takes 1 for positive and 0 or -1 for negative: a record that goes turns no other label."""
    seen = []
    for alone in ("0", "1", "-1"):
        source = open_source(str(write(tmp_path / "t.csv", "1", alone)), private=True)
        X, y = source.everything()
        first = np.argsort(X @ np.arange(1, 5))
        seen.append(y[first])
        assert source.facts.classes.source == "convention"
    assert [int((y < 0).sum()) for y in seen] == [1, 0, 1]


@pytest.mark.parametrize(
    ("options", "sources"),
    [
        ({}, ("rows", "header", "header", "flag", "flag")),
        ({"labels": ("a", "b")}, ("flag", "header", "header", "flag", "flag")),
        ({"schema": "schema.toml"}, ("schema", "schema", "schema", "flag", "flag")),
    ],
)
def test_every_fact_says_where_it_comes_from(options, sources, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = "".join(f"{name} = {{ min = -9, max = 9 }}\n" for name in "pqrs")
    Path("schema.toml").write_text(f'target = "target"\nlabels = ["a", "b"]\n[columns]\n{columns}')
    source = open_source(str(write(Path("t.csv"), "b", "a")), **options)
    assert tuple(source.facts.sources().values()) == sources
    assert source.describe()["known_by"] == source.facts.sources()
    assert bool(source.facts.doubt) == ("rows" in sources)
    if source.facts.doubt:
        with pytest.raises(InputError, match="--labels NEGATIVE,POSITIVE"):
            source.facts.require_public("t.csv")


def test_bundled_tables_are_public_but_for_the_quantiles_of_a9a() -> None:
    for name in ("adult", "tiny"):
        assert not open_source(name).facts.doubt
    assert "quantiles" in open_source("a9a").facts.doubt


QUICK = {  # a private run of each programme, but for its data
    "radmm": (radmm.main, [*RADMM, "--eta", "4"]),
    "istdp": (istdp.main, ["--epsilon", "1", "--adjacency", "replace", "--iterations", "3"]),
    "moments": (sharing.main, ["--parties", "2", "--epsilon", "4"]),
    "vectors": (sharing.main, ["--parties", "2", "--epsilon", "8", "--mechanism", "s2", "--rounds", "2"]),
}


def kept(programme: str, data: list[str], out: Path) -> bool:
    """Whether a private run on these rows claims anything; refused it may be, in one line."""
    main, flags = QUICK[programme]
    code = main([*data, *flags, "--out", str(out)])
    assert code in (DONE, USAGE)
    return code == DONE and not epsilon_of(out)


@pytest.mark.parametrize("programme", QUICK)
def test_quantiles_of_the_rows_bound_nothing_until_somebody_calls_them_public(
    programme: str, tmp_path, capsys
) -> None:
    small = ["--rows-per-node", "200", "--weight", "20"] if programme == "radmm" else []
    assert not kept(programme, ["--data", "a9a", *small], tmp_path / "found")
    said = capsys.readouterr()
    assert "--stated bounds" in said.out + said.err
    assert kept(programme, ["--data", "a9a", "--stated", "bounds", *small], tmp_path / "stated")


STANDARDISED = """
import numpy as np
from distadmm.data.reading import register_format

@register_format(".mean")
class Standardised:
    def __init__(self, path, reading):
        rows = np.loadtxt(path, ndmin=2)
        self.path, self.n_rows, self.feature_names = path, len(rows), ("a", "b", "c", "d")
        self.X, self.y = rows[:, :4] - rows[:, :4].mean(axis=0), rows[:, 4]
    def place(self, row):
        return f"line {row + 1}"
    def read(self, rows=None):
        chosen = slice(None) if rows is None else rows
        return self.X[chosen], self.y[chosen]
"""


@pytest.mark.parametrize("programme", QUICK)
def test_what_a_reader_of_ones_own_makes_of_rows_bounds_nothing_whatever_is_stated(
    programme: str, tmp_path, monkeypatch, capsys
) -> None:
    """One record moves the mean, and with it every row."""
    from distadmm.data import reading

    monkeypatch.setattr(reading, "FORMATS", {})
    exec(STANDARDISED, {})
    rows = np.random.default_rng(2).normal(size=(30, 5))
    rows[:, 4] = np.where(rows[:, 4] > 0, 1, -1)
    np.savetxt(tmp_path / "rows.mean", rows)
    data = ["--data", str(tmp_path / "rows.mean"), "--features", "4"]
    data += ["--weight", "1"] if programme == "radmm" else []
    assert not kept(programme, data, tmp_path / "found")
    said = capsys.readouterr()
    assert "unchecked code" in said.out + said.err
    assert not kept(programme, [*data, "--stated", "bounds"], tmp_path / "stated")  # no flag certifies code


@pytest.mark.parametrize("programme", ["radmm", "moments", "vectors"])
def test_a_mapping_that_may_have_been_designed_on_the_rows_bounds_nothing(
    programme: str, tmp_path, capsys
) -> None:
    from distadmm.data.adult.domains import DOMAINS
    from distadmm.data.mapping import Mapping

    size = len(DOMAINS["relationship"])
    Mapping(np.full((size, 2), 0.5), tuple(DOMAINS["relationship"])).save(tmp_path / "m.npz")
    data = ["--data", "adult", "--sanitise", f"relationship={tmp_path / 'm.npz'}"]
    data += ["--rows-per-node", "200", "--weight", "20"] if programme == "radmm" else []
    assert not kept(programme, data, tmp_path / "found")
    said = capsys.readouterr()
    assert "--stated mappings" in said.out + said.err
    assert kept(programme, [*data, "--stated", "mappings"], tmp_path / "stated")


def test_no_other_fact_can_be_stated_away(tmp_path, capsys) -> None:
    assert istdp.main(["--data", "a9a", "--stated", "classes", *QUICK["istdp"][1]]) == USAGE
    assert "it states some of: bounds, mappings" in capsys.readouterr().err
