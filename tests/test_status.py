"""A run seen from another shell: while it goes on, when it was stopped, and when it has ended."""

import signal
import subprocess
import sys
import time

import pytest

from distadmm.commands import status

FLAGS = [
    "--data",
    "tiny",
    "--topology",
    "ring:4",
    "--observe",
    "none",
    "--progress",
    "none",
    "--checkpoint-every",
    "2",
]


def said(capsys, *runs) -> str:
    capsys.readouterr()
    assert status.main([str(run) for run in runs]) == 0
    return capsys.readouterr().out


def test_a_run_is_followed_from_its_start_to_its_end(tmp_path, capsys):
    run = tmp_path / "run"
    words = [*FLAGS, "--iterations", "100000", "--alpha", "1", "--adjacency", "label", "--eta", "5"]
    command = [
        sys.executable,
        "-m",
        "distadmm.radmm",
        "--account",
        str(tmp_path / "account"),
        "--rng",
        "simulation",
    ]
    process = subprocess.Popen(
        [*command, *words, "--out", str(run)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 100
        while not (run / "checkpoint" / "latest.json").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.1)
        going = said(capsys, run)
        assert "running: its directory is in use" in going
        assert "of 100000, saved" in going
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        killed = said(capsys, run)
        assert f"stopped before its end; to go on: python -m distadmm.radmm --resume {run}" in killed
        assert "ledger show" in killed
    finally:
        process.kill()
        process.wait(60)


def test_a_finished_run_has_ended(tmp_path, capsys):
    from distadmm import radmm

    assert radmm.main([*FLAGS, "--iterations", "4", "--out", str(tmp_path / "run")]) == 0
    told = said(capsys, tmp_path / "run")
    assert "ended: iterations; to go on:" in told
    assert "iterations      4, saved" in told


def test_a_time_limit_keeps_what_a_resume_needs_and_says_so(tmp_path, capsys):
    from distadmm import radmm

    run = tmp_path / "run"
    words = [*FLAGS[:-2], "--algorithm", "admm", "--iterations", "60"]
    assert radmm.main([*words, "--time-limit", "1e-9", "--out", str(run)]) == 0
    assert f"time limit; to go on: python -m distadmm.radmm --resume {run}" in capsys.readouterr().out
    assert f"ended: time limit; to go on: python -m distadmm.radmm --resume {run}" in said(capsys, run)
    assert radmm.main(["--resume", str(run), "--time-limit", "100"]) == 0
    assert radmm.main([*words, "--out", str(tmp_path / "whole")]) == 0
    found = [(place / "models.npz").read_bytes() for place in (run, tmp_path / "whole")]
    assert found[0] == found[1]


@pytest.mark.parametrize("words", [[], ["nowhere"]])
def test_what_is_no_run_is_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert status.main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
