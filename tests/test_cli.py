"""One clear line and exit code 2 for whatever is wrong; one help page; flags win over files."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import distadmm
from distadmm import __main__, radmm, sharing
from distadmm.errors import (
    BUDGET,
    DONE,
    EXIT_CODES,
    FAILURE,
    STALLED,
    UNCONVERGED,
    USAGE,
    InputError,
)
from distadmm.files import write_text
from distadmm.ranks import launch as launch_module
from distadmm.run.loop import Progress
from distadmm.run.observe import Measurement

TINY = ["--data", "tiny", "--topology", "er5", "--iterations", "3", "--progress", "none"]

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "gradient_tracking.py"
BAD = {
    "unknown flag": (["--etta", "1"], "--eta"),
    "a flag as others call it": (["--eps", "1"], "did you mean --epsilon?"),
    "a rate as others call it": (["--lr", "1", "--algorithm", str(EXAMPLE)], "did you mean --rate?"),
    "an algorithm as papers write it": (["--algorithm", "MR-ADMM"], "did you mean mradmm"),
    "unknown algorithm": (["--algorithm", "rdmm"], "did you mean radmm"),
    "a word too many": (["extra"], "several values of one flag stand with commas between them; see: "),
    "flag of another algorithm": (
        ["--algorithm", "admm", "--gamma", "1"],
        "--algorithm admm has no --gamma; it is a flag of radmm, mradmm",
    ),
    "not a number": (["--rho", "many"], "needed: a number"),
    "negative weight": (["--weight", "-1"], "from 1e-50 to at most 1e+50"),
    "nan weight": (["--weight", "nan"], "from 1e-50 to at most 1e+50"),
    "negative gamma": (["--gamma", "-0.1"], "zero or more"),
    "zero penalty": (["--eta", "0"], "above 0"),
    "nan penalty": (["--eta", "nan"], "above 0"),
    "shrinking penalty": (["--eta", "1", "--eta-growth", "0.9"], "never decrease"),
    "no such graph": (["--topology", "rign:20"], "ring"),
    "no such data": (["--data", "adlt"], "adult"),
    "no such loss": (["--loss", "logistik"], "logistic"),
    "no such table": (["--eta", "none.csv"], "node,value"),
    "attribute not there": (["--eta", "node"], "has no number"),
    "observe": (["--observe", "sometimes"], "--observe"),
    "stop without measuring": (["--observe", "none", "--stop-tolerance", "1e-3"], "--stop-tolerance"),
    "bad choice": (["--progress", "loud"], "choose one of"),
    "negative iterations": (["--iterations", "-3"], "zero or more"),
    "nothing to resume": (["--resume", "nowhere"], "nowhere"),
    "no such config": (["--config", "nowhere.toml"], "nowhere.toml"),
    "no such file of an algorithm": (["--algorithm", "mine.py"], "mine.py"),
}


@pytest.mark.parametrize("verb", sorted(__main__.VERBS))
def test_every_command_says_its_version(verb, capsys):
    for words in ([verb, "--version"], ["--version"]):
        with contextlib.suppress(SystemExit):
            assert __main__.main(words) == DONE
        assert capsys.readouterr().out == f"distadmm {distadmm.__version__}\n"


def test_help_and_readme_say_the_same_of_exit_codes(capsys):
    assert __main__.main(["--help"]) == DONE
    readme = (EXAMPLE.parents[2] / "README.md").read_text()
    for text in (capsys.readouterr().out, readme):
        assert EXIT_CODES in " ".join(text.split())
    for code in (DONE, FAILURE, USAGE, BUDGET, UNCONVERGED, STALLED):
        assert re.search(rf"(^|, ){code} ", EXIT_CODES)


def test_a_sweep_of_nothing_is_bad_input(capsys):
    assert __main__.main(["sweep"]) == USAGE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_code_two(what: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags, hint = BAD[what]
    assert radmm.main([*TINY, *flags]) == USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert hint in shown.err
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_a_schedule_shorter_than_the_run(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("eta.csv").write_text("node,k1\n" + "".join(f"{i},0.5,0.6\n" for i in range(5)))
    assert radmm.main([*TINY, "--algorithm", "admm", "--eta", "eta.csv", "--iterations", "2"]) == DONE
    capsys.readouterr()
    assert radmm.main([*TINY, "--algorithm", "admm", "--eta", "eta.csv"]) == USAGE
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "ends after 2 solves" in shown


def test_the_papers_dual_step_says_where_it_leads(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("eta.csv").write_text("".join(f"{i},{0.5 + 0.1 * i}\n" for i in range(5)))
    words = [*TINY, "--algorithm", "mradmm", "--eta", "eta.csv", "--iterations", "2"]
    assert radmm.main([*words, "--dual-step", "own"]) == DONE
    assert "sum O_i/eta_i" in capsys.readouterr().out
    assert radmm.main(words) == DONE
    assert "sum O_i/eta_i" not in capsys.readouterr().out


def test_config_file_and_flags(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(
        'algorithm = "admm"\niterations = 2\neta = "0.7"\ndata = "tiny"\ntopology = "ring:6"\n'
    )
    config = radmm.PROGRAMME.read(["--config", "run.toml", "--iterations", "4"])
    assert (config.name, config.loop.iterations, config.algorithm.eta) == ("admm", 4, "0.7")
    Path("bad.toml").write_text("itterations = 2\n")
    assert radmm.main(["--config", "bad.toml"]) == USAGE
    shown = capsys.readouterr().err
    assert "unknown key 'itterations'" in shown
    for word, meant in (("eps", "epsilon"), ("max_iter", "iterations"), ("tol", "stop_tolerance")):
        with pytest.raises(InputError, match=f"unknown key '{word}'; did you mean {meant}\\?"):
            radmm.configure(algorithm="radmm", **{word: 1})
    assert "iterations" in shown.split("known:")[1]


def test_the_resolved_configuration_is_accepted_again(tmp_path: Path) -> None:
    out = tmp_path / "first"
    assert radmm.main([*TINY, "--eta", "0.9", "--out", str(out)]) == DONE
    config = radmm.PROGRAMME.read(["--config", str(out / "config.json")])
    assert config.algorithm.eta == "0.9"
    assert config.problem.topology == "er5"
    kept = json.loads((out / "config.json").read_text())
    assert set(kept) >= {"config", "data_id", "versions", "graph", "ranks"}


def test_help_is_one_page_and_names_every_flag(capsys) -> None:
    assert radmm.main(["--algorithm", "radmm", "--help"]) == DONE
    page = capsys.readouterr().out
    for option in (
        "--algorithm",
        "--data",
        "--topology",
        "--gamma",
        "--eta",
        "--resume",
        "--dry-run",
        "--config",
    ):
        assert f"{option} " in page


def test_a_dry_run_tells_no_number_of_rows_that_is_protected(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "--data",
        "t.csv",
        "--labels=-1,1",
        "--topology",
        "ring:3",
        "--iterations",
        "3",
        "--progress",
        "none",
    ]
    words += [
        "--algorithm",
        "gossip",
        "--epsilon",
        "1",
        "--rng",
        "simulation",
        "--public-rows",
        "20",
        "--dry-run",
    ]
    for adjacency, told in (("add-remove", False), ("node", False), ("replace", True)):
        shown = []
        for count in (60, 63):
            write_text(tmp_path / "t.csv", "a,b,y\n" + "0.5,0.1,1\n0.2,0.3,-1\n0.1,0.1,1\n" * (count // 3))
            assert radmm.main([*words, "--adjacency", adjacency]) == DONE
            shown.append(capsys.readouterr().out)
        assert "2 columns" in shown[0]
        assert "a SIMULATION: seeded noise, no guarantee" in shown[0]
        assert (shown[0] != shown[1]) == told


def test_dry_run_writes_nothing(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert radmm.main([*TINY, "--dry-run"]) == DONE
    shown = capsys.readouterr().out
    assert "5 nodes, 8 edges" in shown
    assert list(tmp_path.iterdir()) == []
    assert radmm.main(TINY) == DONE
    planned = int(shown.split("messages")[1].split(",")[0])
    assert f"in {planned} messages" in capsys.readouterr().out


def test_a_dry_run_counts_rows_that_nobody_has_all_of_by_the_node_alone(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for node in range(3):
        write_text(tmp_path / f"t-{node}.csv", "a,y\n" + "0.5,1\n0.2,-1\n" * 4)
    assert (
        radmm.main(["--data", "t-{rank}.csv", "--labels=-1,1", "--topology", "ring:3", "--dry-run"]) == DONE
    )
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("data    ")]
    assert line.split(":")[1] == " 1 columns, 8 rows a node, 0 test rows; licence"


def test_strict_tells_that_the_tolerance_was_missed(tmp_path: Path) -> None:
    arguments = [*TINY, "--out", str(tmp_path / "a"), "--stop-tolerance", "1e-12", "--strict"]
    assert radmm.main(arguments) == 4
    arguments = [
        *TINY,
        "--out",
        str(tmp_path / "b"),
        "--stop-tolerance",
        "1e-3",
        "--strict",
        "--weight",
        "20",
        "--iterations",
        "500",
    ]
    assert radmm.main(arguments) == DONE
    assert json.loads((tmp_path / "b" / "summary.json").read_text())["ended"] == "converged"


def test_a_directory_with_content_is_not_overwritten(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine").write_text("precious")
    assert radmm.main([*TINY, "--out", str(tmp_path)]) == USAGE
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize(
    "command",
    [
        ["distadmm.radmm", *TINY],
        ["distadmm.radmm", *TINY, "--out", "runs/mine"],
        ["distadmm.istdp", "--data", "tiny", "--iterations", "1"],
    ],
    ids=["radmm", "radmm-out", "istdp"],
)
def test_a_place_that_cannot_be_written_is_one_line(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder is needed")
    environment = {**os.environ, "PYTHONPATH": str(Path(distadmm.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == USAGE
    assert len(done.stderr.splitlines()) == 1
    assert "Not a directory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_what_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*page.html: it is a folder"):
        write_text(tmp_path / "page.html", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("rows", "loss"),
    [("1,0\n2,1\n3,2\n" * 2, "logistic"), ("".join(f"1,{i / 7}\n" for i in range(200)), "softmax")],
)
def test_flags_named_to_mend_a_target_exist(rows: str, loss: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.csv").write_text("a,y\n" + rows)
    assert radmm.main([*TINY, "--data", str(tmp_path / "mine.csv"), "--loss", loss]) == USAGE
    named = set(re.findall(r"--[a-z-]+", capsys.readouterr().err))
    assert "--loss" in named
    assert radmm.main(["--help"]) == DONE
    assert named <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_a_target_of_numbers_has_no_test_error_in_per_cent(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.csv").write_text("a,y\n" + "".join(f"{i % 7 / 7},{i / 100}\n" for i in range(100)))
    flags = ["--data", str(tmp_path / "mine.csv"), "--loss", "squared", "--test-fraction", "0.2"]
    assert radmm.main([*TINY, *flags, "--out", str(tmp_path / "run")]) == DONE
    assert "test error     none: the target is a number, not one of two classes" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["test_error"] is None
    assert radmm.main([*TINY, "--loss", "squared", "--out", str(tmp_path / "classes")]) == DONE
    assert json.loads((tmp_path / "classes" / "summary.json").read_text())["test_error"] < 0.5


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mine.py:Short", "lacks slope, curvature, max_slope, max_curvature, one_signed, labels"),
        ("mine.py:Other", "no class 'Other' in"),
        ("none.py:Short", "no file none.py"),
    ],
)
@pytest.mark.parametrize("main", [radmm.main, sharing.main], ids=["radmm", "sharing"])
def test_a_loss_of_your_own_that_is_not_whole(
    main, name: str, told: str, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("class Short:\n    def value(self, z, y):\n        return z\n")
    assert main(["--data", "tiny", "--loss", name]) == USAGE
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1


def test_resume_refuses_another_configuration(tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "run")
    assert radmm.main([*TINY, "--checkpoint-every", "1", "--out", out]) == DONE
    capsys.readouterr()
    assert radmm.main(["--resume", out, "--rho", "3", "--iterations", "5"]) == USAGE
    assert "--rho 0.22, not 3.0" in capsys.readouterr().err
    for flags, told in (
        (["--algorithm", "admm"], "has --algorithm radmm, not admm; leave the flag out"),
        (["--out", str(tmp_path / "other")], "goes on in that directory; leave out --out"),
        (["--resume", str(tmp_path / "nowhere")], "nowhere: no run there"),
        (["--resume", f"{out}/summary.json"], "summary.json: no run there"),
    ):
        assert radmm.main([*(flags if "--resume" in flags else ["--resume", out, *flags])]) == USAGE
        said = capsys.readouterr().err
        assert told in said
        assert len(said.splitlines()) == 1
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["out"] == out
    assert radmm.main(["--resume", out, "--out", out, "--iterations", "4"]) == DONE


def test_a_resumed_run_counts_the_time_before(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert radmm.main([*TINY, "--iterations", "40", "--checkpoint-every", "20", "--out", str(out)]) == DONE
    summary = json.loads((out / "summary.json").read_text())
    assert radmm.main(["--resume", str(out), "--iterations", "44"]) == DONE
    with open(out / "history.csv", newline="") as file:
        seconds = [float(line["seconds"]) for line in csv.DictReader(file)]
    assert len(seconds) == 44
    assert seconds == sorted(seconds)
    assert json.loads((out / "summary.json").read_text())["seconds"] >= summary["seconds"]


def test_resuming_a_finished_run_takes_nothing_from_its_summary(tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ["--checkpoint-every", "1", "--latency", "0.1", "--out", str(out)]
    assert radmm.main([*TINY, *flags]) == DONE
    before = json.loads((out / "summary.json").read_text())
    assert radmm.main(["--resume", str(out)]) == DONE
    after = json.loads((out / "summary.json").read_text())
    assert before["mean_model_gap"] is not None
    assert {**after, "predicted_wan_seconds": None} == {**before, "predicted_wan_seconds": None}


def test_an_algorithm_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from typing import NamedTuple\n"
        "import distadmm\n"
        "class State(NamedTuple):\n    f: object\n"
        "@distadmm.register('descent-of-mine')\n@dataclass(frozen=True)\n"
        "class Descent:\n"
        "    rate: float = distadmm.flag(0.1, help='step')\n"
        "    def init(self, node):\n        return State(node.start)\n"
        "    def step(self, k, st, node):\n"
        "        node.release.expose(k, 'gradient step')\n"
        "        s = node.network.neighbour_sum(st.f)\n"
        "        mixed = (st.f + s) / (1 + node.degree)\n"
        "        return State(mixed - self.rate / k * node.problem.gradients(st.f))\n"
    )
    out = tmp_path / "run"
    flags = ["--algorithm", str(tmp_path / "mine.py"), "--rate", "0.05", "--weight", "1", "--rho", "0.1"]
    assert radmm.main([*TINY, *flags, "--iterations", "50", "--out", str(out)]) == DONE
    assert json.loads((out / "config.json").read_text())["config"]["rate"] == 0.05
    assert json.loads((out / "summary.json").read_text())["mean_model_gap"] < 0.5


@pytest.mark.parametrize("folder", ["algorithms", ".", "{absolute}"])
def test_the_run_of_an_algorithm_from_a_file_lies_in_runs(folder: str, tmp_path: Path, monkeypatch) -> None:
    example = Path(distadmm.__file__).parent.parent / "docs" / "examples" / "gradient_tracking.py"
    place = Path(folder.format(absolute=tmp_path / "algorithms"))
    monkeypatch.chdir(tmp_path)
    place.mkdir(exist_ok=True)
    (place / "mine.py").write_text(example.read_text())
    assert radmm.main([*TINY, "--algorithm", str(place / "mine.py")]) == DONE
    assert [run.name.startswith("mine-") for run in (tmp_path / "runs").iterdir()] == [True]


@pytest.mark.parametrize(
    ("main", "own"), [(radmm.main, TINY), (sharing.main, ["--data", "tiny", "--split", "10,20"])]
)
def test_an_algorithm_in_any_case_is_that_algorithm(main, own, tmp_path: Path, capsys) -> None:
    out, words = str(tmp_path / "run"), [*own, "--algorithm", "Admm", "--checkpoint-every", "2"]
    assert main([*words, "--iterations", "3", "--out", out]) == DONE
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["algorithm"] == "admm"
    assert main(["--resume", out, "--algorithm", "ADMM", "--iterations", "4"]) == DONE
    assert main(["--resume", out, "--algorithm", "sgd"]) == USAGE
    assert "has --algorithm admm, not sgd" in capsys.readouterr().err


def test_ranks_of_a_launcher_at_a_terminal_know_it(mpiexec) -> None:
    code = "from distadmm.run.loop import launched_at_terminal as there; print(there())"
    ours, theirs = pty.openpty()
    for stream, found in ((theirs, "True"), (subprocess.PIPE, "False")):
        ranks = [*mpiexec, "-n", "2", sys.executable, "-c", code]
        ran = subprocess.run(ranks, stdout=subprocess.PIPE, stderr=stream, text=True, timeout=60)
        assert re.findall("True|False", ran.stdout) == [found] * 2
    os.close(theirs)
    os.close(ours)


@pytest.mark.parametrize("wide", [40, 60, 80, 120])
def test_the_bar_never_wraps_and_keeps_what_fits(wide: int, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(wide))
    stream = io.StringIO()
    bar = Progress(3000, "bar", stream)
    seen = Measurement(
        200,
        "solve",
        2931.39,
        0.3,
        float("nan"),
        1.4,
        0.1,
        0.1,
        0.0,
        0.0175,
        0.02,
        0.1,
        0.2,
        float("inf"),
        "none",
        1,
        1,
        0.1,
    )
    bar._write(200, seen, bar.started + 10.0)
    line = stream.getvalue().removeprefix("\r\033[K")
    assert "iteration 200/3000" in line
    assert line.endswith(" left")
    assert len(line) < max(wide, 60)
    assert ("test error 1.75 %" in line) == (wide >= 80)
    assert ("objective 2931.39" in line) == (wide >= 120)


def hear_ctrl_c() -> None:
    """In a child: what runs in the background of a shell has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("command", [["distadmm.radmm"], ["distadmm", "plan"], ["distadmm.istdp"]])
def test_an_interrupt_while_modules_load_shows_no_traceback(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    home = Path(distadmm.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{home}"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=environment,
        capture_output=True,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_importing_the_package_sets_nothing() -> None:
    code = "import os, sys; before = dict(os.environ); import distadmm; assert dict(os.environ) == before; "
    code += "assert 'numpy' not in sys.modules and 'mpi4py' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("saved", [True, False])
def test_a_kill_at_a_checkpoint_costs_no_line_of_history(saved: bool, tmp_path: Path, monkeypatch) -> None:
    from distadmm.run import checkpoint

    flags = [*TINY, "--iterations", "12", "--checkpoint-every", "4"]
    save, out = checkpoint.save, tmp_path / "run"

    def killed(folder: Path, k: int, *rest: Any) -> None:
        if saved or k < 8:
            save(folder, k, *rest)
        if k == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", killed)
        assert radmm.main([*flags, "--out", str(out)]) == 130
    assert checkpoint.latest(out / "checkpoint") == (8 if saved else 4)
    # What the killed part measured behind its last checkpoint is measured again, or gone.
    more = ["--iterations", "11", "--observe", "5", "--progress", "none"]
    assert radmm.main(["--resume", str(out), *more]) == 0
    with open(out / "history.csv") as file:
        found = [int(line.split(",")[0]) for line in list(file)[1:]]
    assert found == [*range(1, 9 if saved else 5), *([10, 11] if saved else [5, 10, 11])]


@pytest.mark.parametrize(
    "at", ["history.csv", "iteration-00000004", "latest.json", "models.npz", "summary.json"]
)
def test_a_full_disk_is_one_line_and_the_run_goes_on_from_before(
    at: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    from distadmm import files as results
    from distadmm.files import read_npz

    flags = [*TINY, "--iterations", "6", "--checkpoint-every", "2", "--rng", "simulation"]
    out, straight, replace = tmp_path / "run", tmp_path / "straight", results._replace
    assert radmm.main([*flags, "--out", str(straight)]) == 0

    def full(path: Path, temporary: Path, content: bytes, *how: Any) -> None:
        if at in str(path) and ((out / "checkpoint" / "latest.json").exists() or "models" in at):
            temporary.write_bytes(content[:100])
            raise OSError(28, "No space left on device")
        replace(path, temporary, content, *how)

    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr(results, "_replace", full)
        assert radmm.main([*flags, "--out", str(out)]) == USAGE
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "cannot write" in err
    assert "No space left on device; make room" in err
    assert not list(tmp_path.glob("**/*.part"))
    assert radmm.main(["--resume", str(out), "--progress", "none"]) == 0
    names = ("models.npz", "history.csv", "summary.json")
    assert all((out / name).exists() for name in names)
    assert (
        read_npz(out / "models.npz")["models"].tobytes()
        == read_npz(straight / "models.npz")["models"].tobytes()
    )


def test_force_empties_what_a_link_points_to_but_not_under_a_run(tmp_path: Path, capsys) -> None:
    from distadmm.privacy.ledger.file import Ledger

    (tmp_path / "real" / "old").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    (tmp_path / "real" / "away").symlink_to(tmp_path / "elsewhere")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with Ledger(link / "ledger", 3, adjacency="replace", mode="secure") as running:
        before = sorted(link.rglob("*"))
        assert radmm.main([*TINY, "--out", str(link), "--force"]) == USAGE
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "is in use" in err
        assert sorted(link.rglob("*")) == before
        assert running.path.exists()
    assert radmm.main([*TINY, "--out", str(link), "--force"]) == DONE
    assert link.is_symlink()
    assert (link / "models.npz").exists()
    assert not (link / "old").exists()
    assert not (link / "away").is_symlink()
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_a_name_that_is_no_text_is_a_name(tmp_path: Path) -> None:
    out = os.fsencode(tmp_path) + b"/run-\xff"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(distadmm.__file__).parent.parent),
        "LC_ALL": "C.UTF-8",
    }
    for flags in (
        [*TINY, "--checkpoint-every", "1", "--out"],
        ["--iterations", "4", "--progress", "none", "--resume"],
    ):
        command = [sys.executable, "-m", "distadmm.radmm", *flags, out]
        done = subprocess.run(command, env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (DONE, b"")
        assert b"run-" in done.stdout
    assert os.path.exists(out + b"/summary.json")


def test_a_checkpoint_that_was_cut_is_one_line(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    assert radmm.main([*TINY, "--checkpoint-every", "1", "--out", str(out)]) == DONE
    (kept,) = out.glob("checkpoint/*/rank-*.npz")
    whole = kept.read_bytes()
    capsys.readouterr()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        kept.write_bytes(whole[:size])
        assert radmm.main(["--resume", str(out), "--iterations", "5", "--progress", "none"]) == USAGE
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "the checkpoint is damaged" in err


# -- a signal during a run from Python -------------------------------------------------------------------

STRUCK = """
import signal, distadmm
from distadmm.methods.consensus.admm import ADMM
step = ADMM.step
def struck(self, k, *given):
    if k == 3:
        signal.raise_signal(signal.SIGTERM)
    return step(self, k, *given)
ADMM.step = struck
run = distadmm.solve("admm", data="tiny", topology="er5", iterations=50, out="run")
print("went on after", run.ended, run.iterations)
"""
OWN = "import signal\nsignal.signal(signal.SIGTERM, lambda *given: print('told', given[0]))\n"


@pytest.mark.parametrize("own", ["", OWN], ids=["no handler", "a handler"])
def test_a_signal_reaches_the_script_around_a_run_once_the_run_is_written(own, tmp_path):
    """It ends there, or in the script's own handler; a truncated model is named as such either way."""
    done = subprocess.run(
        [sys.executable, "-c", own + STRUCK], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "ended by signal 15 after 4 iterations: its model is that of an unfinished run" in done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["ended"] == "signal 15"
    expected = (DONE, "told 15\nwent on after signal 15 4\n") if own else (-signal.SIGTERM, "")
    assert (done.returncode, done.stdout) == expected


def test_a_long_silence_is_broken_once_and_by_one_rank(capsys, monkeypatch):
    monkeypatch.setattr(launch_module, "_LONG", 0.02)
    for speaks, long in ((True, 0.0), (False, 0.2), (True, 0.2)):
        with launch_module.told_if_long("distadmm x", "counting", speaks):
            time.sleep(long)
        assert capsys.readouterr().err == "distadmm x: counting\n" * (speaks and long > 0)
