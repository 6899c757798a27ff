"""Run directories of every kind, by every verb; those of version 0.1.0 among them (tests/fixtures/runs)."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import funnel, ias, istdp, radmm, sharing
from distadmm.audit import runs
from distadmm.commands import apply, audit, export, ledger, predict, report, report_kinds, transcript
from distadmm.files import read_json, read_npz
from distadmm.run import kinds

OLD = Path(__file__).parent / "fixtures" / "runs"
NAMES = sorted(path.name for path in OLD.iterdir() if path.is_dir())
LEDGERS = [name for name in NAMES if (OLD / name / "ledger").is_dir()]
OF_RADMM = [name for name in NAMES if name.startswith("radmm")]
NOISY = [name for name in OF_RADMM if name != "radmm-plain"]
SECRET = {
    "radmm-secure",
    "radmm-output",
    "radmm-checkpoint",
    "sharing-v1-secure",
    "sharing-v2-secure",
    "sharing-s2",
}
SECRET |= {"istdp-secure"}
PROGRAMMES = {"radmm": radmm, "sharing": sharing, "istdp": istdp, "ias": ias, "funnel": funnel}
OF_SHARING = [name for name in NAMES if name.startswith("sharing")]


def call(capsys, command: Any, *argv: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = command.main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out, err


def worked(capsys, command: Any, *argv: Any) -> str:
    code, out, err = call(capsys, command, *argv)
    assert (code, err) == (0, "")
    return out


def test_the_fixtures_name_no_machine() -> None:
    assert len(NAMES) == 27
    for path in OLD.rglob("*"):
        if path.is_file():
            assert not set(b"/home /work /root /tmp".split()) & set(path.read_bytes().split(b'"')), path
            assert b"/tmp" not in path.read_bytes(), path


# -- what version 0.1.0 wrote ------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEDGERS)
def test_old_ledgers_are_shown_and_verified_and_added(name: str, capsys) -> None:
    out = worked(capsys, ledger, "show", OLD / name, "--json")
    (told,) = {run["statement"] for run in json.loads(out)["runs"]}
    finite = [run["together"]["epsilon"] < float("inf") for run in json.loads(out)["runs"]]
    assert (told == "certificate" and all(finite)) == (name in SECRET)
    assert "whole" in worked(capsys, ledger, "verify", OLD / name)
    if not name.startswith("sharing-v2"):  # whose parties protect different things
        assert "together" in worked(capsys, ledger, "merge", OLD / name)


def lines_of(folder: Path) -> list[dict[str, str]]:
    with open(folder, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", NAMES)
def test_old_runs_of_every_kind_are_reported(name: str, capsys, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    out = worked(capsys, report, OLD / name, "--out", page, "--gaps", "1e-1")
    folder, kind = OLD / name, name.partition("-")[0]
    table = out.partition("note:")[0]
    if kind == "radmm":
        assert f"{float(lines_of(folder / 'history.csv')[-1]['gap']):.2e}" in table
    elif kind == "sharing":
        own = list(read_json(folder / "config.json")["result"]["comparison"].values())[-1]
        assert f"{own['objective']:.6g}" in table
        assert f"{100 * (1 - own['accuracy']):.2f}" in table
    elif kind == "istdp":
        told = read_json(folder / "summary.json")
        assert f"{100 * (1 - told['test_accuracy']):.2f}" in table
        assert f"{told['nonzeros']:.4g}" in table
    elif kind == "ias":
        told = read_json(folder / "result.json")
        for point in told.get("points", [told]):
            assert re.search(rf"beta {point['beta']:g}.*{point['I_SU']:.6f}  *{point['E_d']:.6f}", table) or (
                len(told.get("points", [])) < 2 and f"{point['I_SU']:.6f}  {point['E_d']:.6f}" in table
            )
    else:
        for line in lines_of(folder / "curve.csv") if name == "funnel-curve" else []:
            assert re.search(rf"R {float(line['R']):g} .*{float(line['I_SY']):.8f}", table)
    if kind in ("radmm", "sharing", "istdp"):
        summary = kinds.opened(folder, "report").summary
        assert summary is not None
        assert summary["statement"].partition(":")[0] in table  # why stands below
        assert (" inf " in table) == (float(summary["epsilon"]) == float("inf"))
        assert ("note: simulation" in out) == (summary["statement"] == "simulation")
    heads = re.split(r" {2,}", next(line for line in table.splitlines() if line.strip()).strip())
    read = [
        text for begin, text in report_kinds.KINDS[kind].reading if any(h.startswith(begin) for h in heads)
    ]
    assert read
    assert all(escape(text) in page.read_text() for text in read)


def test_runs_of_different_kinds_have_a_table_each_and_add_up(capsys, tmp_path: Path) -> None:
    out = worked(capsys, report, OLD, "--out", tmp_path / "all.html")
    assert [line for line in out.splitlines() if line.rstrip(":") in kinds.KINDS] == [
        f"{k}:" for k in kinds.KINDS
    ]
    assert out.count("have spent more than any row says") == 1
    page = (tmp_path / "all.html").read_text()
    assert re.findall(r'<h2 id="\w+">(?:Runs of )?(.*?)</h2>', page) == [*kinds.KINDS, "Where it comes from"]
    assert "objectives differ" not in out.partition("istdp:")[2]
    alone = worked(capsys, report, OLD / "sharing-s2", OLD / "istdp-secure", "--out", "none")
    assert "these have spent more than any row says" in alone  # one table holds the records of both
    alone = worked(capsys, report, OLD / "sharing-s1", OLD / "istdp-secure", "--out", "none")
    assert "these have spent more than any row says" not in alone  # a simulation spends nothing


@pytest.mark.parametrize("name", OF_RADMM)
def test_old_runs_of_the_consensus_family_have_transcripts(name: str, capsys, tmp_path: Path) -> None:
    if name == "radmm-checkpoint":  # which keeps no bytes of what was sent before it
        code, _, err = call(capsys, transcript, OLD / name, "--out", tmp_path / "seen")
        assert (code, err.count("\n")) == (2, 1)
        assert "keeps no bytes of iteration 1" in err
        return
    worked(capsys, transcript, OLD / name, "--out", tmp_path / "seen", "--collude", "0+2")
    index = read_json(tmp_path / "seen" / "index.json")
    assert index["nodes"] == 5
    assert len(index["views"]) == 6
    assert bool(index["watermark"]) == (name in ("radmm-simulation", "radmm-paper"))


@pytest.mark.parametrize("name", ["radmm-simulation", "radmm-secure", "radmm-output"])
def test_old_runs_of_the_consensus_family_are_audited(name: str, capsys, tmp_path: Path) -> None:
    out = worked(capsys, audit, OLD / name, "--level", "0", "--out", tmp_path / "audit")
    assert "NOT REFUTED" in out


@pytest.mark.parametrize("name", [name for name in OF_SHARING if name not in SECRET])
def test_old_runs_of_sharing_have_transcripts(name: str, capsys, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    worked(capsys, transcript, OLD / name, "--out", seen, "--collude", "0+2")
    index, told = read_json(seen / "index.json"), read_json(OLD / name / "config.json")
    counted = {f"{line['kind']} {line['way']}": line["messages"] for line in index["messages"]}
    sent = told["result"]["traffic"]
    assert counted == {
        kind: line["messages"] for kind, line in sent.items() if not kind.startswith("observer")
    }
    assert bool(index["watermark"]) == (told["config"]["epsilon"] is not None)
    files = ["centre.npz", "party-0001.npz", "party-0002.npz", "coalition-0000-0002.npz"]
    assert [view["file"] for view in index["views"]] == files
    centre, first, second, both = (read_npz(seen / file) for file in files)
    assert not any(key.startswith("from-centre") for key in centre)
    assert not any("0002" in key for key in first)  # no party sees another's messages
    assert {key.partition("-")[2] for key in both} == {key.partition("-")[2] for key in {**centre, **second}}
    if "-v" in name:  # what party 1 was told is kept by the run
        reply = read_npz(OLD / name / "replies.npz")["party-2"]
        np.testing.assert_allclose(centre["from-party-0002"][0], reply, rtol=1e-6)
    elif name == "sharing-plain":
        signs = np.sign(second["from-centre-to-0002"][0])
        assert set(signs) == {-1.0, 1.0}  # the first vector down tells the labels


def test_a_run_with_secret_noise_or_other_data_is_not_made_again(capsys, tmp_path: Path) -> None:
    for name in ("sharing-v1-secure", "sharing-s2"):
        code, _, err = call(capsys, transcript, OLD / name, "--out", tmp_path / "seen")
        assert (code, err.count("\n")) == (2, 1)
        assert f"{OLD / name} is a run of sharing, whose secret noise cannot be drawn again" in err
    other = shutil.copytree(OLD / "sharing-plain", tmp_path / "other")
    told = read_json(other / "config.json")
    told["config"]["lambda_"] = 2.0
    (other / "config.json").write_text(json.dumps(told))
    code, _, err = call(capsys, transcript, other, "--out", tmp_path / "seen")
    assert (code, err.count("\n")) == (2, 1)
    assert "comes out differently when it is made again" in err
    assert not (tmp_path / "seen").exists()


ATTACKED = ["istdp-simulation", "istdp-secure", "istdp-repetitions", "sharing-s1", "sharing-s2", "sharing-s3"]
ATTACKED += ["sharing-v1-simulation", "sharing-v1-secure", "sharing-v2-simulation", "sharing-v2-secure"]


@pytest.mark.parametrize("name", ATTACKED)
def test_the_mechanism_of_an_old_run_is_held_against_its_own_ledger(
    name: str, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("distadmm.audit.report.figures.possible", lambda: False)  # a figure each is slow
    few = ["--runs", "20", "--confidence", "0.999", "--force", "--out", tmp_path / "audit"]
    out = worked(capsys, audit, OLD / name, *few)
    assert out.count("NOT REFUTED") == 3
    assert re.search(rf"claim: the ledger of .*{OLD / name}", out)
    events_of = runs.events_of

    def boasting(run: kinds.RunDirectory, node: int) -> list[Any]:
        """A ledger that claims eight times the noise that its code draws."""
        louder = {"noise_multiplier", "sigma_grid"}
        return [
            replace(e, **{f: 8 * getattr(e, f) for f in louder if hasattr(e, f)})
            for e in events_of(run, node)
        ]

    monkeypatch.setattr(runs, "events_of", boasting)
    code, out, _ = call(capsys, audit, OLD / name, *few, "--level", "0")
    assert (code, "level 0     REFUTED" in out) == (1, True)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("istdp-open", "a run of istdp without noise: its ledger claims nothing to be audited"),
        (
            "istdp-paper",
            "a run of istdp, whose mechanism claims nothing; what the paper claims: python -m distadmm audit",
        ),
        ("sharing-plain", "a run of sharing without noise: its ledger claims nothing to be audited"),
        (
            "sharing-paper",
            "a run of sharing, whose mechanism claims nothing; what the paper claims: python -m distadmm",
        ),
        ("radmm-plain", "is a run without noise: its ledger claims nothing to be audited"),
    ],
)
def test_a_run_that_claims_nothing_is_not_audited(name: str, told: str, capsys, tmp_path: Path) -> None:
    code, out, err = call(capsys, audit, OLD / name, "--out", tmp_path / "audit")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SECRET])
def test_an_old_run_is_made_again_from_its_configuration(name: str, capsys, tmp_path: Path) -> None:
    """The same models from the same seeds, whatever its flags are called by now."""
    kind = name.partition("-")[0]
    designs = kind in ("ias", "funnel")
    kept = OLD / name / ("result.json" if designs else "config.json")
    words = [*(["sweep"] if name == "ias-sweep" else []), "--config", kept, "--out", tmp_path / "new"]
    code, _, err = call(capsys, PROGRAMMES[kind], *words, *(["--no-figure"] if designs else []))
    assert (code, err) == (0, "")
    arrays = [path.relative_to(OLD / name) for path in (OLD / name).rglob("*.npz")]
    for path in arrays:
        if designs:
            same_mapping(OLD / name / path, tmp_path / "new" / path)
        elif path.parts[0] not in ("checkpoint", "replies.npz"):
            same(OLD / name / path, tmp_path / "new" / path)
    if designs:
        before, after = worth(read_json(kept)), worth(read_json(tmp_path / "new" / "summary.json"))
        assert before == {place: pytest.approx(value, rel=1e-5, abs=1e-7) for place, value in after.items()}
        assert len(before) >= 2
    assert arrays or name == "funnel-paper"


def worth(told: Any, place: str = "") -> dict[str, float]:
    """What mappings leak and tell, wherever a summary says so."""
    if isinstance(told, list):
        told = {str(number): each for number, each in enumerate(told)}
    if isinstance(told, dict):
        return {
            key: value for name, each in told.items() for key, value in worth(each, f"{place}/{name}").items()
        }
    named = place.rsplit("/", 1)[-1] in ("F", "I_SU", "E_d", "I_SY", "I_XY", "I_SX", "H_X", "R", "beta_glob")
    return {place: told} if named and told is not None else {}


def same_mapping(one: Path, other: Path) -> None:
    """Equal but for the order of symbols, which a processor's last digits decide between equally good starts."""
    before, after = read_npz(one), read_npz(other)
    assert before.keys() == after.keys()
    np.testing.assert_array_equal(after["values"], before["values"])
    np.testing.assert_allclose(after["prior"], before["prior"], rtol=1e-9)
    ordered = [found["matrix"][:, np.lexsort(found["matrix"].round(3)[::-1])] for found in (before, after)]
    np.testing.assert_allclose(ordered[1], ordered[0], atol=1e-4)
    np.testing.assert_allclose(after["matrix"].sum(axis=1), 1.0, atol=1e-9)


def same(one: Path, other: Path) -> None:
    before, after = read_npz(one), read_npz(other)
    assert before.keys() == after.keys()
    for name, values in before.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(after[name], values, rtol=1e-6, atol=1e-9)
        else:
            np.testing.assert_array_equal(after[name], values)


@pytest.mark.parametrize(("name", "made"), [("radmm-plain", 12), ("radmm-checkpoint", 6)])
def test_an_old_checkpoint_is_taken_up(name: str, made: int, capsys, tmp_path: Path) -> None:
    folder = shutil.copytree(OLD / name, tmp_path / name)
    before = read_json(folder / "summary.json")["epsilon"]
    code, _, err = call(capsys, radmm, "--resume", folder, "--iterations", made + 2, "--progress", "none")
    assert (code, err.count("\n")) == (0, 1)
    assert "nothing proves it whole" in err  # what checkpoints have had no hash for
    after = read_json(folder / "summary.json")
    assert after["iterations"] == made + 2
    assert (after["epsilon"] == before == "inf") or float(after["epsilon"]) > float(before)
    with open(folder / "history.csv", newline="") as file:
        assert [int(line["iteration"]) for line in csv.DictReader(file)] == list(range(1, made + 3))


@pytest.mark.parametrize("name", OF_SHARING)
def test_old_runs_of_sharing_give_scores(name: str, capsys, tmp_path: Path) -> None:
    folder = shutil.copytree(OLD / name, tmp_path / name)
    given = ["predict", folder, "--data", "tiny", "--scores", tmp_path / "scores.csv"]
    if read_json(folder / "config.json")["config"]["epsilon"]:
        code, _, err = call(capsys, sharing, *given)
        assert code == 0 or (code == 2 and err.count("\n") == 1 and "private run" in err)
        if "-v" not in name:  # whose models no price is known for
            return
        assert code == 2
        given += ["--release", "noise:1"]
    worked(capsys, sharing, *given)
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 1 + 114


# -- of which kind a directory is, and what has no meaning for it -------------------------------------

COMMANDS = {
    "report": (report, [], ["--out", "none"]),
    "transcript": (transcript, [], []),
    "audit": (audit, [], ["--level", "0"]),
    "ledger": (ledger, ["show"], []),
    "predict": (predict, [], ["--data", "rows.csv"]),
    "export": (export, [], []),
    "apply": (apply, [], ["--data", "rows.csv"]),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_directory_is_known(name: str) -> None:
    found = kinds.find(OLD / name)
    assert found is not None
    assert found.kind == name.partition("-")[0]
    assert found.summary is not None
    assert found.summary["ended"] in ("iterations", "converged")
    assert bool(found.data_id) == (OLD / name / "ledger").is_dir()
    if found.kind in ("radmm", "sharing", "istdp"):
        bounded = float(found.summary["epsilon"]) < float("inf")
        assert bounded == (found.summary["statement"] in ("certificate", "simulation"))


@pytest.mark.parametrize(("verb", "kind"), kinds.HOLES)
def test_a_command_without_a_meaning_names_the_kind(
    verb: str, kind: str, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, before, after = COMMANDS[verb]
    for name in (name for name in NAMES if name.startswith(kind)):
        code, out, err = call(capsys, command, *before, OLD / name, *after)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"{OLD / name} is a run of {kind}, {kinds.HOLES[verb, kind]}" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            {"schema": 1, "kind": "gossip", "config": {}},
            "a run of 'gossip', which is none of: radmm, sharing",
        ),
        ({"schema": 7, "kind": "radmm", "config": {}}, "a run directory of schema 7, this version reads 1"),
        ({"kind": "radmm", "config": {}}, "a run directory of schema None"),
    ],
)
def test_what_this_version_does_not_know_is_refused_by_name(
    verb: str, content: dict[str, Any], told: str, capsys, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(content))
    command, before, after = COMMANDS[verb]
    code, out, err = call(capsys, command, *before, tmp_path / "run", *after)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize("content", [None, "[]", "{}", '{"config": {"colour": "red"}}', "{"])
def test_what_is_no_run_is_refused_in_one_line(
    verb: str, content: str | None, capsys, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    command, before, after = COMMANDS[verb]
    code, out, err = call(capsys, command, *before, tmp_path, *after)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path) in err
