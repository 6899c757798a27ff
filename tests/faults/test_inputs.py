"""Files that are damaged, endless or somebody else's: one line that says what was found, exit code 2, no traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distadmm import radmm, sharing
from distadmm.commands import predict, report, status, sweep, topology
from distadmm.data.mapping import Mapping
from distadmm.errors import InputError
from distadmm.files import read_npz

TINY = ["--data", "tiny", "--topology", "er5", "--progress", "none"]
PRIVATE = ["--epsilon", "4", "--adjacency", "replace", "--rng", "simulation"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    flags = [*TINY, "--iterations", "4", "--checkpoint-every", "2", *PRIVATE]
    assert radmm.main([*flags, "--out", str(out)]) == 0
    return out


def refused(code: int, capsys: pytest.CaptureFixture[str], told: str) -> None:
    said = capsys.readouterr()
    assert code == 2, said
    assert said.err.count("\n") == 1, said.err
    assert told in said.err


GARBAGE = {
    "history.csv": (b"garbage\x00\xff,,,\n1,2\nx", "is not a history"),
    "summary.json": (
        b'{"schema": 1, "kind": "radmm", "endex": "iterations"}',
        "does not say how the run ended",
    ),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_report_of_damaged_files(name: str, run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / name).write_bytes(GARBAGE[name][0])
    refused(report.main([str(copy), "--out", str(tmp_path / "o.html")]), capsys, GARBAGE[name][1])


def test_a_report_of_edges_that_carried_infinitely_much(tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    assert radmm.main([*TINY, "--iterations", "2", "--out", str(run)]) == 0
    kept = read_npz(run / "traffic.npz")
    np.savez(run / "traffic.npz", **{**kept, "bytes": np.where(kept["sender"] == 0, np.inf, 1.0)})
    capsys.readouterr()
    code = report.main([str(run), "--out", str(tmp_path / "o.html")])
    refused(code, capsys, "holds something else than distadmm wrote there")


def test_a_resume_of_parties_that_nobody_counts(tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    words = ["--data", "tiny", "--split", "8,12,10", "--iterations", "3", "--checkpoint-every", "2"]
    assert sharing.main([*words, "--progress", "none", "--out", str(run)]) == 0
    told = json.loads((run / "config.json").read_text())
    del told["layout"]
    (run / "config.json").write_text(json.dumps(told))
    capsys.readouterr()
    refused(sharing.main(["--resume", str(run)]), capsys, "config.json holds something else")


def test_a_resume_of_a_run_whose_network_is_not_described(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    told = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**told, "graph": None}))
    capsys.readouterr()
    refused(radmm.main(["--resume", str(copy)]), capsys, "config.json holds something else")


def test_a_sweep_over_a_damaged_record(tmp_path: Path, capsys) -> None:
    (tmp_path / "sweep.json").write_text('{"runs": {"a": 3}}')
    words = ["--data", "tiny", "--iterations", "2", "--seed", "0", "--out", str(tmp_path)]
    refused(sweep.main(words), capsys, "sweep.json holds something else")


def test_a_resume_over_a_damaged_history(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "history.csv").write_bytes(GARBAGE["history.csv"][0])
    refused(radmm.main(["--resume", str(copy), "--iterations", "6"]), capsys, "is not a history")


def test_a_report_of_a_summary_whose_epsilon_is_no_number(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    told = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**told, "epsilon": None}))
    refused(report.main([str(copy), "--out", str(tmp_path / "o.html")]), capsys, "holds something else")


def test_a_mapping_of_complex_numbers() -> None:
    with pytest.raises(InputError, match="not a table of numbers"):
        Mapping(np.array([[0.5 + 1j, 0.5]]))


@pytest.mark.parametrize("posterior", [np.array(["", "x"]), np.array([0.5, 0.5])])
def test_a_mapping_whose_posterior_is_no_table(posterior: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"P_\{S\|Y\}"):
        Mapping(np.array([[0.5, 0.5]]), posterior=posterior)


def test_a_report_without_the_adjacency(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    for name in ("config.json", "summary.json"):
        content = json.loads((copy / name).read_text())
        for part in (content, content.get("config", {})):
            part.pop("adjacency", None)
        (copy / name).write_text(json.dumps(content))
    refused(report.main([str(copy), "--out", str(tmp_path / "o.html")]), capsys, "lacks ['adjacency']")


@pytest.mark.parametrize("dimensions", [3, 32])
def test_an_array_of_many_dimensions(dimensions: int, tmp_path: Path, capsys) -> None:
    np.savez(tmp_path / "x.npz", X=np.zeros((2,) + (1,) * (dimensions - 1)), y=np.array([1, -1]))
    words = ["--data", str(tmp_path / "x.npz"), "--topology", "ring:3", "--out", str(tmp_path / "o")]
    refused(radmm.main(words), capsys, "rows by columns")


def test_a_configuration_that_is_nested_deeply(tmp_path: Path, capsys) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 3000 + "]" * 3000)
    refused(radmm.main(["--config", str(path)]), capsys, "is not readable")
    refused(sweep.main([str(path)]), capsys, "is not readable")
    (tmp_path / "x.csv").write_text("a,b\n1,0\n2,1\n3,0\n")
    words = ["--data", str(tmp_path / "x.csv"), "--topology", "ring:3"]
    refused(radmm.main([*words, "--schema", str(path)]), capsys, "it is nested too deeply")


@pytest.mark.parametrize(
    ("flag", "suffix"),
    [
        ("--data", "csv"),
        ("--data", "npz"),
        ("--config", "toml"),
        ("--config", "json"),
        ("--topology", "json"),
    ],
)
def test_a_device_is_no_file(flag: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"zero.{suffix}"
    path.symlink_to("/dev/zero")
    command = [sys.executable, "-m", "distadmm.radmm", flag, str(path), "--out", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "is a device" in done.stderr
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_more_iterations_than_can_be_planned(dry: list[str], tmp_path: Path, capsys) -> None:
    flags = [*TINY, *PRIVATE, "--iterations", "1" + 19 * "0", "--out", str(tmp_path / "o"), *dry]
    refused(radmm.main(flags), capsys, "--iterations is 1e+19 with noise")
    assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def vertical(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vertical") / "run"
    words = ["--data", "tiny", "--split", "8,12,10", "--iterations", "3", "--progress", "none"]
    assert sharing.main([*words, "--out", str(out)]) == 0
    return out


def _again(path: Path, **arrays: np.ndarray) -> None:
    np.savez(path, **{**read_npz(path), **arrays})


def _scored(folder: Path, tmp_path: Path) -> int:
    return predict.main([str(folder), "--data", "tiny", "--out", str(tmp_path / "scores.csv")])


def test_a_network_that_is_a_torn_archive(tmp_path: Path, capsys) -> None:
    (tmp_path / "graph.npy").write_bytes(b"PK\x03\x04\x93NUMPY torn")
    refused(topology.main([str(tmp_path / "graph.npy")]), capsys, "is no array of numbers")


def test_a_summary_that_ended_by_no_cause(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    told = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**told, "ended": "lunch"}))
    refused(status.main([str(copy)]), capsys, "ended by 'lunch'")


@pytest.mark.parametrize("value", [np.inf, 1.7e308])
def test_scores_that_overflow(value: float, run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    _again(copy / "models.npz", models=np.full((5, 30), value), mean_model=np.full(30, value))
    refused(_scored(copy, tmp_path), capsys, "no finite numbers")
    assert not (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize("value", [np.inf, 1.7e308])
def test_scores_of_a_party_that_overflow(value: float, vertical: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(vertical, tmp_path / "copy")
    _again(copy / "models" / "party-2.npz", x=np.full(12, value))
    refused(_scored(copy, tmp_path), capsys, "no finite numbers")
    assert not (tmp_path / "scores.csv").exists()


def test_a_party_that_names_an_array_its_file_lacks(vertical: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(vertical, tmp_path / "copy")
    described = copy / "models" / "party-2.json"
    told = json.loads(described.read_text())
    told["arrays"]["coefficients"][1] = "y"
    described.write_text(json.dumps(told))
    refused(_scored(copy, tmp_path), capsys, "party-2.json holds something else")


def test_a_party_without_what_it_found(vertical: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(vertical, tmp_path / "copy")
    described = copy / "models" / "party-2.json"
    told = json.loads(described.read_text())
    del told["arrays"]["coefficients"]
    described.write_text(json.dumps(told))
    refused(_scored(copy, tmp_path), capsys, "holds something else")


def test_a_centre_without_an_intercept(vertical: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(vertical, tmp_path / "copy")
    np.savez(copy / "models" / "centre.npz", other=np.zeros(1))
    refused(_scored(copy, tmp_path), capsys, "centre.json holds something else")


def test_traffic_in_complex_numbers(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    _again(copy / "traffic.npz", bytes=read_npz(copy / "traffic.npz")["bytes"] * 1j)
    code = report.main([str(copy), "--out", str(tmp_path / "o.html")])
    refused(code, capsys, "bytes holds complex numbers")


def test_half_a_character_in_a_configuration(run: Path, tmp_path: Path, capsys) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    told = json.loads((copy / "config.json").read_text())
    told["config"]["\ud800"] = 0
    (copy / "config.json").write_text(json.dumps(told))
    refused(report.main([str(copy), "--out", str(tmp_path / "o.html")]), capsys, "is not valid JSON")


def test_a_network_whose_name_is_no_text_is_drawn(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    content = (copy / "config.json").read_bytes()
    (copy / "config.json").write_bytes(content.replace(b'"er5"', b'"\xff\xfeer5"'))
    assert report.main([str(copy), "--out", str(tmp_path / "o.html")]) == 0
    assert "radmm on ??er5" in (tmp_path / "o.html").read_text(errors="surrogateescape")


def test_a_line_of_a_blank_that_bytes_do_not_know(tmp_path: Path, capsys) -> None:
    (tmp_path / "x.libsvm").write_bytes(b"\x1c")
    words = ["--data", str(tmp_path / "x.libsvm"), "--topology", "ring:3", "--out", str(tmp_path / "o")]
    refused(radmm.main(words), capsys, "the label '' is not a number")


@pytest.mark.parametrize(
    ("command", "name", "field", "code"),
    [
        ("status", "config.json", "algorithm", 2),
        ("status", "summary.json", "delta", 0),  # it does not look at every figure
        ("report", "config.json", "algorithm", 0),  # shown as it stands
        ("report", "summary.json", "delta", 2),
    ],
)
def test_a_list_where_a_word_or_number_was(
    command: str, name: str, field: str, code: int, run: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    told = json.loads((copy / name).read_text())
    told.get("config", told)[field] = [None]
    (copy / name).write_text(json.dumps(told))
    words = [str(copy), *(["--out", str(tmp_path / "o.html")] if command == "report" else [])]
    read = [sys.executable, "-m", "distadmm", command, *words]
    done = subprocess.run(read, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == (code == 2), done.stderr
