"""A grid of runs: which runs, in which directories, and what becomes of those that were stopped."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm, sharing
from distadmm.commands import grid, report, sweep
from distadmm.files import read_json, read_npz
from distadmm.privacy.ledger.chain import has_secret_noise

ROOT = Path(__file__).parent.parent
TINY = ["--data", "tiny", "--weight", "20", "--algorithm", "admm", "--iterations", "12"]
NETS = ["--topology", "ring:5", "star:5"]


def models(folder: Path) -> np.ndarray:
    return read_npz(folder / "models.npz")["models"]


def alone(out: Path, *words: str) -> Path:
    """The same run, made by its own command."""
    assert radmm.main([*words, "--progress", "none", "--out", str(out)]) == 0
    return out


def unfinished(folder: Path, **changes: Any) -> None:
    """Make the run in `folder` one that was killed, of which no summary was written."""
    for name in ("summary.json", "models.npz"):
        (folder / name).unlink()
    content = read_json(folder / "config.json")
    content["config"].update(changes)
    (folder / "config.json").write_text(json.dumps(content))


# -- which runs ---------------------------------------------------------------------------------------

value = st.text("ab:/= .0-", min_size=1, max_size=4).filter(lambda text: not text.startswith("--"))
values = st.lists(value, min_size=1, max_size=3, unique=True)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from(["topology", "seed", "eta", "data"]), values, min_size=1))
def test_every_combination_once_in_a_directory_of_its_own(flags: dict[str, list[str]]) -> None:
    words = [word for name, some in flags.items() for word in (f"--{name}", *some)]
    found = grid.points(grid.from_words(words))
    wanted = {tuple(f"--{n}={v}" for n, v in zip(flags, some)) for some in product(*flags.values())}
    assert {point.words for point in found} == wanted
    assert len({point.name for point in found}) == len(found) == len(wanted)
    for point in found:
        assert point.name.strip(".")
        assert not set(point.name) & set("/: =")


def test_a_file_and_the_command_line_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        'topology = ["ring:5", "star:5"]\nseed = [0, 1]\nclip = [true, false]\nlabels = [["no", "yes"]]\n'
    )
    said = [
        "--topology",
        "ring:5",
        "star:5",
        "--seed",
        "0",
        "1",
        "--clip",
        "true",
        "false",
        "--labels",
        "no,yes",
    ]
    from_file = sweep.read(["--config", str(path)])
    assert from_file == sweep.read(said) == sweep.read([str(path)])
    assert len(from_file.points) == 8
    assert from_file.points[-1].words == ("--topology=star:5", "--seed=1", "--no-clip", "--labels=no,yes")
    assert [p.words[0] for p in sweep.read(["--config", str(path), "--topology", "er5"]).points] == [
        "--topology=er5"
    ] * 4


MIXED = """
data = "tiny"
topology = "ring:5"
weight = 20
seed = [0, 1]
[[run]]
algorithm = "{mine}"
iterations = 8
rate = [0.2, 0.5]
[[run]]
algorithm = "radmm"
iterations = 8
gamma = 1.0
"""


def test_tables_of_a_file_mix_algorithms_with_flags_of_their_own(tmp_path: Path, capsys) -> None:
    mine = ROOT / "docs" / "examples" / "gradient_tracking.py"
    (tmp_path / "mixed.toml").write_text(MIXED.format(mine=mine))
    words = [str(tmp_path / "mixed.toml"), "--out", str(tmp_path / "runs")]
    found = sweep.read(words).points
    assert [len([p for p in found if f"--algorithm={name}" in p.words]) for name in (mine, "radmm")] == [4, 2]
    assert all(("--gamma=1.0" in p.words) != any("--rate" in w for w in p.words) for p in found)
    assert len({p.name for p in found}) == 6
    told = sweep.read(
        [*words, "--seed", "7", "--iterations", "3"]
    ).points  # the command line wins over the tables
    assert [("--iterations=3" in p.words, "--seed=7" in p.words) for p in told] == [(True, True)] * 3
    assert sweep.main([*words, "--seed", "1", "--rate", "0.5"]) == 2  # a flag of all, which radmm has not
    assert "--algorithm radmm has no --rate" in capsys.readouterr().err
    assert sweep.main([*words, "--seed", "1"]) == 0
    radmm_alone = alone(
        tmp_path / "alone",
        *TINY[:4],
        "--topology",
        "ring:5",
        "--seed",
        "1",
        "--gamma",
        "1",
        "--iterations",
        "8",
    )
    (made,) = (p for p in sweep.read([*words, "--seed", "1"]).points if "--gamma=1.0" in p.words)
    np.testing.assert_array_equal(models(made.folder(tmp_path / "runs")), models(radmm_alone))
    said = capsys.readouterr().out
    assert said.count("rate 0.2") == 1


def test_the_file_that_comes_with_the_package_is_a_grid() -> None:
    found = sweep.read([str(ROOT / "launch" / "sweep.toml"), "--seed", "0"])
    assert len(found.points) == 10
    assert (found.options.out, found.options.jobs) == ("runs/networks", 2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ring:5"], "unknown argument 'ring:5'; give flags of distadmm.radmm"),
        (["--seed", "0", "1", "--iteratoins", "3"], "did you mean --iterations?"),
        (["--seed", "0", "one"], "--seed is 'one'; needed: a whole number"),
        (["--ranks", "2", "4"], "--ranks has 2 values"),
        (["--jobs", "0"], "--jobs is 0; needed: 1 or more"),
        (["--seed", "0", "1", "--point", "3"], "--point is 3; there are 2 combinations"),
        (["--seed", "1", "--resume", "x"], "--resume is not for a sweep"),
        (["--seed", "1", "--force"], "--force is not for a sweep"),
        (["--config", "nowhere.toml"], "cannot read --config nowhere.toml"),
        (["--config", "section.toml"], "[seed] is a section"),
        (["--config", "empty.toml"], "seed has no value"),
        (["--config", "own.toml"], "[[run]] 1: jobs is the sweep's own"),
        (["--config", "single.toml"], "under [[run]], in double brackets"),
        (["--alpha", "1", "--algorithm", "radmm"], "--adjacency is needed"),
        (["--seed", "1", "--launcher", "nowhere-at-all -n 3"], "cannot start nowhere-at-all -n 3"),
        (["--seed", "1", "--launcher", "'srun"], "No closing quotation"),
    ],
)
def test_bad_grids_are_refused_before_anything_runs(words, told, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("section.toml").write_text("[seed]\nfirst = 1\n")
    Path("empty.toml").write_text("seed = []\n")
    Path("own.toml").write_text("[[run]]\njobs = 2\n")
    Path("single.toml").write_text("[run]\nseed = 2\n")
    assert sweep.main(words) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1), shown
    assert told in shown.err
    assert not Path("runs").exists()


# -- running them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [[], ["--jobs", "2"], ["--ranks", "2"]])
def test_runs_are_those_of_the_command_itself(how: list[str], tmp_path: Path, capsys) -> None:
    out = tmp_path / "sweep"
    assert sweep.main([*TINY, *NETS, "--seed", "0", "7", *how, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for net, seed in (("ring:5", "0"), ("star:5", "7")):
        mine = alone(tmp_path / f"{net}{seed}", *TINY, "--topology", net, "--seed", seed)
        folder = out / f"{net.replace(':', '-')}_seed-{seed}"
        np.testing.assert_array_equal(models(folder), models(mine))
        assert read_json(folder / "summary.json")["ranks"] == (2 if "--ranks" in how else 1)
    assert "4/4" in said
    assert [line.split()[0] for line in said.splitlines()[6:8]] == ["ring:5", "star:5"]  # the report
    assert f"python -m distadmm report {out}" in said


def test_what_is_finished_is_left_alone_and_the_grid_may_grow(tmp_path: Path, capsys) -> None:
    out = tmp_path / "sweep"
    command = [*TINY, *NETS, "--out", str(out)]
    assert sweep.main([*command, "--seed", "0", "1"]) == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("models.npz")}
    assert len(before) == 4
    capsys.readouterr()
    assert sweep.main([*command, "--seed", "0", "1", "2"]) == 0
    assert capsys.readouterr().out.count("finished before") == 4
    after = {path: path.stat().st_mtime_ns for path in out.rglob("models.npz")}
    assert before.items() <= after.items()
    assert len(after) == 6
    assert sweep.main([*command, "--seed", "0", "1", "--rho", "0.5"]) == 2
    assert "ring-5_seed-0 was another run there (they differ in --rho=0.5)" in capsys.readouterr().err
    (out / "er5_seed-0").mkdir()
    assert sweep.main([*TINY, "--topology", "er5", "ring:5", "--seed", "0", "1", "--out", str(out)]) == 2
    assert "er5_seed-0 that is no run of this sweep" in capsys.readouterr().err


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    words = [*TINY, "--checkpoint-every", "5", *NETS]
    (ring, star) = sweep.read(words).points
    out.mkdir()
    grid.keep_record(out, [ring, star])
    alone(out / ring.name, *ring.words, "--iterations", "10")
    unfinished(out / ring.name, iterations=12)
    assert sweep.main([*words, "--out", str(out)]) == 0
    whole = alone(tmp_path / "whole", *TINY, "--topology", "ring:5")
    np.testing.assert_array_equal(models(out / ring.name), models(whole))
    assert read_json(out / ring.name / "summary.json")["iterations"] == 12


@pytest.mark.parametrize("rng", ["secure", "simulation"])
def test_a_killed_run_without_a_checkpoint_is_made_anew_and_what_it_spent_stays(
    rng: str, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "sweep"
    words = [*TINY, *NETS, "--alpha", "5", "--adjacency", "replace", "--rng", rng]
    assert sweep.main([*words, "--out", str(out)]) == 0
    assert ("note: 2 runs with secret noise" in capsys.readouterr().out) == (rng == "secure")
    first = (out / "ring-5" / "ledger" / "node-0000.jsonl").read_bytes()
    unfinished(out / "ring-5")
    assert sweep.main([*words, "--out", str(out)]) == 0
    assert ("besides what ring-5.spent-1 spent" in capsys.readouterr().out) == (rng == "secure")
    assert sweep.is_finished(out / "ring-5")
    aside = out / "ring-5.spent-1"
    assert aside.exists() == (rng == "secure")
    if rng == "secure":
        assert (aside / "ledger" / "node-0000.jsonl").read_bytes() == first
        assert has_secret_noise(aside / "ledger" / "node-0000.jsonl")


def test_what_was_spent_is_told_rounded_up(tmp_path: Path) -> None:
    summary = {"iterations": 5, "ended": "iterations", "gap": None, "epsilon": 1.23441, "seconds": 1.0}
    (tmp_path / "config.json").write_text(json.dumps({"schema": 1, "kind": "radmm", "config": {}}))
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert "epsilon 1.235, " in sweep.outcome(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "statement": "simulation"}))
    assert "epsilon 1.235 of a simulation, " in sweep.outcome(tmp_path)


def test_one_failure_stops_no_other_run(tmp_path: Path, capsys) -> None:
    out = tmp_path / "sweep"
    words = [*TINY, "--topology", "nowhere.json", "ring:5", "--out", str(out)]
    assert sweep.main(words) == 1
    said = capsys.readouterr().out
    assert "FAILED with exit code 2: distadmm.radmm: cannot read nowhere.json" in said
    assert "1 of 2 runs failed" in said
    assert sweep.is_finished(out / "ring-5")
    assert sweep.main([*TINY, "--topology", "nowhere.json", "--out", str(out)]) == 2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_ends_early_is_an_outcome(tmp_path: Path, capsys) -> None:
    """A run that diverges fails alone, but not in a comparison."""
    out = tmp_path / "sweep"
    words = ["--data", "tiny", "--topology", "ring:4", "--iterations", "20"]
    assert sweep.main([*words, "--dual-step", "1e300", "common", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "dual-step-1e300" in said
    assert "ended by: divergence" in said
    assert "failed" not in said


def test_a_traceback_is_kept_whole(tmp_path: Path, capsys) -> None:
    broken = tmp_path / "broken.py"
    example = (ROOT / "docs" / "examples" / "gradient_tracking.py").read_text()
    broken.write_text(
        example.replace("def step(self, k, st, node):", "def step(self, k, st, node):\n        1 / 0")
    )
    words = [
        "--data",
        "tiny",
        "--topology",
        "ring:5",
        "--algorithm",
        str(broken),
        "--out",
        str(tmp_path / "sweep"),
    ]
    assert sweep.main(words) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert "Traceback" in (tmp_path / "sweep" / "run.log").read_text()


def test_listed_commands_are_those_that_are_left(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*TINY, *NETS, "--out", "a sweep"]
    assert sweep.main([*words, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 2
    assert not Path("a sweep").exists()
    assert sweep.main([*words, "--point", "2"]) == 0
    assert [path.name for path in Path("a sweep").iterdir() if path.is_dir()] == ["star-5"]
    capsys.readouterr()
    assert sweep.main([*words, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == listed[:1]
    subprocess.run(shlex.split(listed[0]), check=True, timeout=120)
    assert sweep.main([*words, "--list"]) == 0
    assert capsys.readouterr().out == ""
    assert sweep.main([*words]) == 0  # what the commands made is the sweep's


def test_two_sweeps_do_not_make_the_same_run(tmp_path: Path, capsys) -> None:
    out = tmp_path / "sweep"
    out.mkdir()
    with open(out / ".lock", "ab") as file:
        other = os.fork()
        if other == 0:
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2)  # the second run
            (out / "held").touch()
            time.sleep(120)
            os._exit(0)
    try:
        while not (out / "held").exists():
            time.sleep(0.01)
        assert sweep.main([*TINY, *NETS, "--out", str(out)]) == 0
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    said = capsys.readouterr().out
    assert "star-5  another process has it in hand" in said
    assert sweep.is_finished(out / "ring-5")
    assert not (out / "star-5").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_sweep_leaves_nothing_behind_and_goes_on(number: int, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    words = ["--data", "tiny", "--algorithm", "admm", *NETS, "--checkpoint-every", "10", "--out", str(out)]
    command = [
        sys.executable,
        "-m",
        "distadmm",
        "sweep",
        *words,
        "--iterations",
        "10000000",
        "--observe",
        "none",
    ]
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # ignored in the background of a shell
    )
    try:
        until = time.monotonic() + 120
        while not (out / "ring-5" / "checkpoint" / "latest.json").exists():
            assert run.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(run.pid, number)  # as a terminal does
        else:
            run.send_signal(number)
        said, complaint = run.communicate(timeout=120)
    finally:
        with pytest.raises(ProcessLookupError):  # nobody of its group is left
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 128 + number, (said, complaint)
    assert not (out / "star-5").exists()
    assert not sweep.is_finished(out / "ring-5")
    (first,) = [
        p
        for p in sweep.read([*words, "--iterations", "10000000", "--observe", "none"]).points
        if p.name == "ring-5"
    ]
    again = sweep.command_of(first, sweep.Options(out=str(out)))
    assert f"--resume={out / 'ring-5'}" in again


def test_a_run_that_a_signal_ends_while_python_is_loaded_was_told_to_stop(
    tmp_path, monkeypatch, capsys
) -> None:
    """As where a scheduler tells all processes of a job: no run failed, and no other is begun."""
    dies = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]
    monkeypatch.setattr(sweep, "command_of", lambda point, options: dies)
    words = ["--data", "tiny", *NETS, "--iterations", "2", "--out", str(tmp_path / "s")]
    assert sweep.main(words) == 128 + signal.SIGTERM
    said = capsys.readouterr().out
    assert "not begun" in said
    assert "failed" not in said.lower()


def test_a_run_that_is_started_while_a_signal_comes_hears_of_it(tmp_path, monkeypatch) -> None:
    runs = sweep.Runs(sweep.Options(out=str(tmp_path)))

    def told_meanwhile(point: Any, options: Any) -> list[str]:
        runs.pass_on(signal.SIGTERM, None)
        return [sys.executable, "-c", "import time; time.sleep(60)"]

    monkeypatch.setattr(sweep, "command_of", told_meanwhile)
    code, said = runs.make(grid.Point("a", ()))
    assert (code, said) == (-signal.SIGUSR1, f"stopped by signal {int(signal.SIGTERM)}")


def test_the_batch_script_deals_out_the_grid(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    environment = {
        **os.environ,
        "DISTADMM_VENV": str(tmp_path),
        "DISTADMM_HOME": str(ROOT),
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_ARRAY_JOB_ID": "9",
    }

    def asked(*words: str) -> sweep.Request:
        script = ["bash", str(ROOT / "launch" / "slurm" / "sweep.sbatch"), *words]
        shown = subprocess.run(script, env=environment, capture_output=True, text=True, check=True).stdout
        assert shown.splitlines()[:3] == ["-m", "distadmm", "sweep"]
        return sweep.read(shown.splitlines()[3:])

    usual = asked("--algorithm", "admm")
    assert len(usual.points) == 6
    assert (usual.options.point, usual.options.out) == (2, "runs/sweep-9")
    assert sweep.command_of(usual.points[1], usual.options)[0] == "srun"
    assert [p.name for p in asked("--topology", "ring:20", "er20", "--seed", "0", "1").points][:2] == [
        "ring-20_seed-0",
        "ring-20_seed-1",
    ]


# -- other programmes ---------------------------------------------------------------------------------


def test_a_sweep_over_sharing_and_its_report(tmp_path: Path, capsys) -> None:
    out = tmp_path / "sweep"
    run = ["--data", "tiny", "--split", "15,15", "--iterations", "6"]
    words = ["sharing", *run, "--lambda", "0.1", "10", "--seed", "0", "1"]
    assert sweep.main([*words, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "4/4" in said
    assert [line.split("  ")[0] for line in said.splitlines()[6:8]] == ["lambda 0.1", "lambda 10"]
    mine = tmp_path / "mine"
    assert sharing.main([*run, "--lambda", "10", "--out", str(mine)]) == 0
    for name in ("centre", "party-1", "party-2"):
        found, wanted = (read_npz(f / "models" / f"{name}.npz") for f in (out / "lambda-10_seed-0", mine))
        for key in wanted:
            np.testing.assert_array_equal(found[key], wanted[key])
    capsys.readouterr()
    assert report.main([str(out), "--out", str(tmp_path / "report.html")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split()[:2] == ["setting", "objective/N"]
    assert "test error %" in shown[1]
    assert "note: the objectives differ (lambda): compare errors, not objectives" in shown
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3  # objective, residual, test error
    assert "lambda 0.1" in page
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
    assert sweep.main([*words, "--out", str(out)]) == 0  # nothing is left to do
    assert capsys.readouterr().out.count("finished before") == 4
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["istdp", "--data", "tiny", "--iterations", "5", "--lambda", "0.01", "0.05"], "lambda 0.01"),
        (["ias", "--problem", "binom", "--restarts", "2", "--no-figure", "--beta", "0.3", "0.6"], "beta 0.3"),
        (["funnel", "--no-figure", "--repeats", "1", "--fractions", "0.5", "0.9"], "fractions 0.5"),
    ],
)
def test_every_programme_can_be_swept(words: list[str], told: str, tmp_path: Path, capsys) -> None:
    assert sweep.main([*words, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2/2" in said
    assert told in said.partition("setting")[2]
    assert sweep.main([*words, "--out", str(tmp_path), "--list"]) == 0
    assert capsys.readouterr().out == ""


def test_a_sweep_file_may_name_the_programme(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        'programme = "sharing"\nparties = 2\nepsilon = [1.0, 2.0]\nrow-norm = 3\n'
    )
    found = sweep.read([str(tmp_path / "grid.toml")])
    assert (found.options.programme, len(found.points), found.secret) == ("sharing", 2, 2)
    assert sweep.read(["sharing", str(tmp_path / "grid.toml"), "--rng", "simulation"]).secret == 0
    assert "distadmm.sharing" in sweep.command_of(found.points[0], found.options)
