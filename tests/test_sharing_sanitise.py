"""A sanitised column in vertical training: listed in the ledger of the party that holds it, nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distadmm import sharing
from distadmm.commands import ledger
from distadmm.data.adult.domains import DOMAINS
from distadmm.data.mapping import Mapping


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    domain = tuple(DOMAINS["relationship"])
    matrix = np.full((len(domain), 2), 0.2)
    matrix[:3, 0] = matrix[3:, 1] = 0.8
    Mapping(matrix, values=domain, column="relationship").save(tmp_path / "relationship.npz")
    return tmp_path / "relationship.npz"


def entries(folder: Path, party: int) -> list[dict]:
    return [
        json.loads(line) for line in (folder / "ledger" / f"node-{party:04d}.jsonl").read_text().splitlines()
    ]


def test_the_party_that_holds_the_column_lists_what_it_leaks(mapping: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--data", "adult", "--parties", "2", "--iterations", "2", "--observe", "none"]
    assert sharing.main([*words, "--sanitise", f"relationship={mapping}", "--out", str(out)]) == 0
    leaks = {m: [e for e in entries(out, m) if e.get("mech") == "leakage"] for m in (1, 2)}
    assert sorted(len(found) for found in leaks.values()) == [0, 1]
    (leak,) = leaks[1] + leaks[2]
    assert leak["params"]["nats"] == pytest.approx(Mapping.load(mapping).leakage().nats)


def test_symbols_at_several_parties_are_bounded_together(mapping: Path, tmp_path: Path, capsys) -> None:
    domain = tuple(DOMAINS["sex"])
    matrix = np.array([[0.7, 0.3], [0.3, 0.7]])
    other, out = Mapping(matrix, values=domain, column="sex"), tmp_path / "run"
    other.save(tmp_path / "sex.npz")
    words = ["--data", "adult", "--parties", "2", "--iterations", "2", "--observe", "none", "--out", str(out)]
    washed = f"sex={tmp_path / 'sex.npz'},relationship={mapping}"
    assert sharing.main([*words, "--sanitise", washed]) == 0
    leaks = {m: [e["params"] for e in entries(out, m) if e.get("mech") == "leakage"] for m in (1, 2)}
    assert [len(found) for found in leaks.values()] == [2, 2]  # its own, and those of both
    (second, both), (first, again) = leaks.values()
    assert both == again
    assert both["nats"] == pytest.approx(first["nats"] + second["nats"])
    assert first["nats"] == pytest.approx(other.leakage().nats)
    capsys.readouterr()
    assert ledger.main(["show", str(out)]) == 0
    assert capsys.readouterr().out.count("sex, relationship by all their symbols together, at most") == 1


def test_a_private_reply_keeps_its_certificate(mapping: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    words = [
        "--data",
        "adult",
        "--stated",
        "mappings",
        "--split",
        "40,61",
        "--epsilon",
        "2",
        "--row-norm",
        "3",
        "--observe",
        "none",
    ]
    assert sharing.main([*words, "--sanitise", f"relationship={mapping}", "--out", str(out)]) == 0
    kinds = [e["kind"] for e in entries(out, 2)]
    assert kinds[:2] == ["open", "commit"]
    assert "All replies of the answering parties together are (1.99" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "adult", "--sanitise", "relationship"], "COLUMN=mapping"),
        (["--data", "tiny", "--sanitise", "x={mapping}"], "no raw categorical columns"),
        (["--party-files", "a.csv,b.csv", "--key", "id", "--sanitise", "x={mapping}"], "goes with --data"),
    ],
)
def test_bad_input(words: list[str], told: str, mapping: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sharing.main([word.replace("{mapping}", str(mapping)) for word in words]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert told in shown
