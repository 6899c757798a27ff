"""The two commands' shell, with stand-ins for python, uv and mpiexec on PATH: nothing is installed here."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = [
    path
    for path in sorted([*ROOT.glob("launch/**/*"), ROOT / ".ci" / "run"])
    if path.is_file() and path.suffix in ("", ".sbatch")
]
ONE_PACKAGE = "install one package (Debian: apt install python3-venv), or uv"

# A python3 that is new enough and whose every other use is a case of `handles`, the last word on failure.
PYTHON = """#!/bin/bash
echo "python $*" >>"$CALLS"
case $* in
  -c*version_info*) exit 0 ;;
  "-m venv"*) {venv} ;;
  "-m pip --version") exit {pip} ;;
  "-m ensurepip --default-pip") exit 1 ;;
  *fetch_pip.py) exit {fetch} ;;
  "-m pip"*install*) exit {pip} ;;
  "-m pytest"*) echo "3 passed in 0.01s"; exit {tests} ;;
esac
"""
MAKE_VENV = 'for last; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"'
UV = """#!/bin/bash
echo "uv $* index=${{UV_DEFAULT_INDEX:-}} certificates=${{SSL_CERT_FILE:-}}" >>"$CALLS"
for last; do :; done
[ "$1" != venv ] || {{ mkdir -p "$last/bin"; cp "$(command -v python3)" "$last/bin/python"; }}
exit {code}
"""
MPIEXEC = """#!/bin/bash
[ "$1" != --version ] || {{ echo "{version}"; exit; }}
printf '<%s>' "$@"
exit {code}
"""


class Machine:
    """A copy of the launch folder in an otherwise empty checkout, and a PATH that begins with stand-ins."""

    def __init__(self, folder: Path):
        self.root = folder / "a checkout"
        for name in ("launch", ".ci"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "pyproject.toml").write_text("")
        os.utime(self.root / "pyproject.toml", (1e9, 1e9))
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        self.environment = {
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "CALLS": str(self.calls),
        }

    def put(self, name: str, text: str, **values: object) -> Path:
        path = self.bin / name if "/" not in name else self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**values) if values else text)
        path.chmod(0o755)
        return path

    def python(self, venv: str = MAKE_VENV, pip: int = 0, fetch: int = 0, tests: int = 0) -> None:
        self.put("python3", PYTHON, venv=venv, pip=pip, fetch=fetch, tests=tests)

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", *command],
            cwd=self.root,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def sourced(self, words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run("-c", f"set -euo pipefail; . launch/environment; {words}", **more)

    def said(self) -> str:
        """What was called since the last look."""
        text = self.calls.read_text() if self.calls.exists() else ""
        self.calls.unlink(missing_ok=True)
        return text


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_every_script_is_checked() -> None:
    assert {
        "environment",
        "quickstart",
        "test",
        "run",
        "job.sbatch",
        "sweep.sbatch",
        "common",
        "local-cluster",
    } <= {s.name for s in SCRIPTS}


def batch(home: Path, *flags: str, restarts: int = 0, script: str = "job") -> list[str]:
    """What a script of launch/slurm hands to srun as job 7."""
    (home / "bin").mkdir(exist_ok=True)
    (home / "bin" / "srun").write_text('#!/bin/bash\nprintf "%s\\n" "$@" >srun.words\n')
    (home / "bin" / "srun").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(home),
        "DISTADMM_HOME": str(ROOT),
        "SLURM_JOB_ID": "7",
        "SLURM_RESTART_COUNT": str(restarts),
    }
    path = ROOT / "launch" / "slurm" / f"{script}.sbatch"
    subprocess.run(["bash", path, *flags], cwd=home, env=environment, check=True, capture_output=True)
    words = (home / "srun.words").read_text().split()
    return words[words.index("-m") + 2 :]


def test_a_requeued_job_takes_up_its_checkpoint(tmp_path: Path) -> None:
    flags = ["--epsilon", "2"]
    # --force keeps what was released: test_private_run.py::test_what_was_spent_stays_on_record_under_force
    assert batch(tmp_path, *flags) == ["--checkpoint-every", "100", *flags, "--out", "runs/job-7", "--force"]
    checkpoint = tmp_path / "runs" / "job-7" / "checkpoint" / "latest.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("{}")
    assert batch(tmp_path, *flags, restarts=1) == ["--resume", "runs/job-7"]


def test_a_batch_job_goes_on_from_another(tmp_path: Path) -> None:
    assert batch(tmp_path, "--resume", "runs/job-3") == ["--resume", "runs/job-3"]


@pytest.mark.parametrize(
    ("code", "summary", "requeued"), [(1, "signal 15", True), (1, "divergence", False), (75, "", True)]
)
def test_a_job_that_was_told_to_stop_goes_back_whatever_its_launcher_makes_of_it(
    code: int, summary: str, requeued: bool, tmp_path: Path
) -> None:
    folder, home = tmp_path / "runs" / "job-7", tmp_path / "bin"
    folder.mkdir(parents=True)
    home.mkdir()
    told = f"""echo '{{"ended": "{summary}"}}' >{folder}/summary.json; """ if summary else ""
    for name, words in {
        "srun": f"{told}exit {code}",
        "squeue": "echo RUNNING",
        "sleep": ":",
        "scontrol": "echo $@",
    }.items():
        (home / name).write_text(f"#!/bin/bash\n{words}\n")
        (home / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{home}:{os.environ['PATH']}"}
    environment |= {"DISTADMM_HOME": str(ROOT), "SLURM_JOB_ID": "7"}
    script = ["bash", ROOT / "launch" / "slurm" / "job.sbatch"]
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ("requeue 7" in done.stdout) == requeued
    assert done.returncode == (143 if "signal" in summary else code)


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--mpi", "lam"], "needed: mpich, openmpi, impi or system"),
        (["--mpi=lam"], "'lam'"),
        (["--mpi"], "--mpi is ''"),
        (["-n", "0"], "-n is '0'"),
        (["-n", "many"], "-n is 'many'"),
        (["-n"], "-n is ''"),
    ],
)
def test_bad_flags_of_the_quickstart(machine: Machine, flags: list[str], hint: str) -> None:
    done = machine.run("launch/quickstart", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert hint in done.stderr
    assert not list(machine.root.glob(".venv*"))


def test_help_makes_no_environment(machine: Machine) -> None:
    done = machine.run("launch/quickstart", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--mpi system" in done.stdout
    assert "set -e" not in done.stdout
    assert not list(machine.root.glob(".venv*"))


def test_no_python_that_is_new_enough(machine: Machine) -> None:
    for name in ("python", "python3", *(f"python3.{minor}" for minor in range(11, 15))):
        machine.put(name, "#!/bin/bash\nexit 1\n")
    done = machine.run("launch/quickstart")
    assert done.returncode == 2
    assert "no Python >= 3.11" in done.stderr


@pytest.mark.parametrize("venv", ["exit 1", MAKE_VENV])
def test_neither_venv_nor_pip_names_the_one_package(machine: Machine, venv: str) -> None:
    machine.python(venv=venv, pip=1, fetch=1)
    done = machine.run("launch/quickstart")
    assert done.returncode == 2
    assert ONE_PACKAGE in done.stderr.splitlines()[-1]
    assert not (machine.root / ".venv" / ".distadmm").exists()


def test_pip_comes_from_the_registry_where_there_is_none(machine: Machine) -> None:
    machine.python(pip=1)
    assert machine.sourced("make_environment mpich").returncode == 2
    said = machine.said()
    assert said.index("fetch_pip.py") < said.index(
        "-m pip install --quiet --disable-pip-version-check --editable"
    )


def test_a_registry_that_fails_leaves_no_finished_environment(machine: Machine) -> None:
    machine.python(pip=1, fetch=0)
    done = machine.sourced("make_environment mpich")
    assert (done.returncode, "is a package registry reachable?" in done.stderr) == (2, True)
    assert not (machine.root / ".venv" / ".distadmm").exists()


def test_an_environment_is_made_once(machine: Machine) -> None:
    machine.python()
    first = machine.sourced("make_environment mpich,test")
    assert (first.returncode, "preparing .venv" in first.stderr) == (0, True)
    assert f"--editable {machine.root}[mpich,test]" in machine.said()

    for extras in ("mpich,test", "mpich", "test"):
        again = machine.sourced(f"make_environment {extras}")
        assert (again.returncode, again.stderr, machine.said()) == (0, "", "")

    machine.sourced("make_environment lint")
    assert "[lint]" in machine.said()
    machine.sourced("make_environment mpich,lint")
    assert machine.said() == ""

    os.utime(machine.root / "pyproject.toml", (4e9, 4e9))  # other requirements
    machine.sourced("make_environment mpich")
    assert "[mpich]" in machine.said()


def test_a_moved_checkout_is_installed_again(machine: Machine) -> None:
    machine.python()
    machine.sourced("make_environment mpich")
    machine.said()
    machine.root = machine.root.rename(machine.root.with_name("elsewhere"))
    machine.sourced("make_environment mpich")
    assert f"--editable {machine.root}[mpich]" in machine.said()


def test_an_environment_whose_python_is_gone_is_made_again(machine: Machine) -> None:
    machine.python()
    machine.sourced("make_environment mpich")
    machine.said()
    (machine.root / ".venv/bin/python").unlink()
    assert machine.sourced("make_environment mpich").returncode == 0
    assert "-m venv" in machine.said()


def test_uv_is_used_and_told_what_pip_knows(machine: Machine) -> None:
    machine.python()
    machine.put("uv", UV, code=0)
    known = {"PIP_INDEX_URL": "https://registry.example/simple", "PIP_CERT": "/here.pem"}
    assert machine.sourced("make_environment mpich", **known).returncode == 0
    said = machine.said()
    assert "index=https://registry.example/simple certificates=/here.pem" in said
    assert "-m pip install" not in said

    shutil.rmtree(machine.root / ".venv")
    machine.sourced(
        "make_environment mpich", **known, UV_DEFAULT_INDEX="https://mine.example", SSL_CERT_FILE="/mine"
    )
    assert "index=https://mine.example certificates=/mine" in machine.said()


def test_pip_goes_on_where_uv_cannot(machine: Machine) -> None:
    machine.python()
    machine.put("uv", UV, code=1)
    done = machine.sourced("make_environment mpich")
    assert (done.returncode, "uv could not; trying pip" in done.stderr) == (0, True)
    assert "-m pip install" in machine.said()


@pytest.mark.parametrize(
    ("version", "oversubscribe"), [("HYDRA build details:", ""), ("Open MPI 5", "<--oversubscribe>")]
)
def test_flags_and_exit_code_pass_through(machine: Machine, version: str, oversubscribe: str) -> None:
    machine.python()
    machine.put(".venv/bin/mpiexec", MPIEXEC, version=version, code=2)
    done = machine.run("launch/quickstart", "--data", "my file.csv", "-n", "7", "--etta=1")
    python = machine.root / ".venv" / "bin" / "python"
    tail = "<-m><distadmm.radmm><--data><my file.csv><--etta=1>"
    assert (done.returncode, done.stdout) == (2, f"<-n><7>{oversubscribe}<{python}>{tail}")


def test_each_mpi_has_an_environment_of_its_own(machine: Machine) -> None:
    machine.python()
    for mpi in ("openmpi", "impi"):
        machine.put(f".venv-{mpi}/bin/mpiexec", MPIEXEC, version="", code=0)
        assert machine.run("launch/quickstart", "--mpi", mpi).returncode == 0
        assert (machine.root / f".venv-{mpi}" / ".distadmm").exists()
    assert not (machine.root / ".venv").exists()


def test_system_mpi_is_loaded_from_where_its_launcher_is(machine: Machine) -> None:
    machine.python()
    lib = machine.bin.parent / "lib"
    lib.mkdir()
    show = 'use_system_mpi; echo "$mpiexec $MPI4PY_LIBMPI ${LD_LIBRARY_PATH:-}"'

    launcher = machine.put("mpiexec", MPIEXEC, version="mpiexec (OpenRTE) 4.1.4", code=0)
    (lib / "libmpi.so.40").touch()
    (lib / "libmpich.so.12").touch()
    assert machine.sourced(show).stdout.split() == [str(launcher), str(lib / "libmpi.so.40")]

    named = machine.put("mpiexec.mpich", MPIEXEC, version="HYDRA build details:", code=0)
    done = machine.sourced("make_environment ''; venv='.'; " + show, MPIEXEC=named.name)
    assert done.stdout.split() == [str(named), "./mpi/libmpi.so.12", "./mpi"]  # Debian's, by its ABI name
    assert (machine.root / "mpi" / "libmpi.so.12").resolve() == lib / "libmpich.so.12"


def test_no_system_mpi(machine: Machine) -> None:
    machine.python()
    done = machine.run("launch/quickstart", "--mpi", "system", MPIEXEC="mpiexec-of-nobody")
    assert (done.returncode, "no mpiexec-of-nobody on PATH" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("free", "mine", "wanted"), [(65536, "", "^posix"), (9e6, "", ""), (65536, "tcp,self", "tcp,self")]
)
def test_small_shared_memory_is_spared(machine: Machine, free: float, mine: str, wanted: str) -> None:
    machine.put("df", f"#!/bin/bash\necho Filesystem\necho shm {free:.0f} 0 {free:.0f} 0% /dev/shm\n")
    more = {"UCX_TLS": mine} if mine else {}
    assert machine.sourced('spare_shared_memory 20; echo "${UCX_TLS:-}"', **more).stdout.strip() == wanted


@pytest.mark.parametrize(("linter", "tests", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_the_summary_is_the_last_line_and_any_failure_the_exit_code(
    machine: Machine, linter: int, tests: int, code: int
) -> None:
    machine.python(tests=tests)
    machine.put(".venv/bin/ruff", f"#!/bin/bash\necho ruff $*\nexit {linter}\n")
    machine.put(".venv/bin/mypy", "#!/bin/bash\necho mypy\n")
    done = machine.run(".ci/run")
    assert done.returncode == code
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(("ruff", "mypy"))] == [
        "ruff check .",
        "ruff format --check .",
        "mypy",
    ]
    assert lines[-1] == "3 passed in 0.01s"
    assert machine.said().count("install") == 1  # one environment for linters and tests


def test_the_newest_pip_that_runs_here_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://registry.example/simple/")
    newest = runpy.run_path(str(ROOT / "launch" / "fetch_pip.py"))["newest"]
    link = '<a href="{at}#sha256={digest}" data-requires-python="&gt;=3.{least}">x</a>\n'
    names = [("9.0.3", 6), ("26.1", 9), ("25.3", 9), ("99.0", 99), ("27.0b1", 9)]
    page = "".join(
        link.format(at=f"../../files/pip-{version}-py3-none-any.whl", digest=f"{i:064x}", least=least)
        for i, (version, least) in enumerate(names)
    )
    assert newest(page) == ("https://registry.example/files/pip-26.1-py3-none-any.whl", f"{1:064x}")
    with pytest.raises(OSError, match="no wheel"):
        newest("<html></html>")


@pytest.mark.parametrize(
    ("script", "words", "runs"),
    [
        ("sweep", ["launch/sweep.toml"], 30),
        ("sweep", ["--topology", "ring:5", "star:5", "--seed", "0", "1", "2", "--data", "tiny"], 6),
        ("study", ["topology", "--families", "ring", "--sizes", "5", "8", "--data-seeds", "0"], 2),
    ],
)  # fmt: skip
def test_an_array_is_as_large_as_there_are_runs(
    script: str, words: list[str], runs: int, tmp_path: Path
) -> None:
    (tmp_path / "sbatch").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    (tmp_path / "sbatch").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "DISTADMM_VENV": sys.prefix}
    name = f"launch/slurm/{script}.sbatch"
    done = subprocess.run(
        ["bash", name, *words, "--", "--time=1"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, f"{runs} runs, a job each\n")
    assert done.stdout.split() == [f"--array=1-{runs}", "--time=1", name, *words]


def test_sharing_on_a_cluster_resumes_as_radmm_does(tmp_path: Path) -> None:
    assert batch(tmp_path, "--split", "2,2", script="sharing") == [
        "--checkpoint-every", "100", "--split", "2,2", "--out", "runs/job-7", "--force",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_local_cluster_comes_up_runs_a_job_and_goes(tmp_path: Path) -> None:
    script = str(ROOT / "launch" / "slurm" / "local-cluster")
    folder = tmp_path / "cluster"
    tmp_path.chmod(0o755)
    environment = {**os.environ, "DISTADMM_CLUSTER": str(folder), "DISTADMM_CLUSTER_PORT": "27817"}
    up = subprocess.run([script, "up"], env=environment, capture_output=True, text=True)
    if up.returncode:
        pytest.skip(up.stderr.strip().splitlines()[-1])
    try:
        slurm = {**environment, "SLURM_CONF": str(folder / "slurm.conf"), "DISTADMM_VENV": sys.prefix}
        job = ["sbatch", "--wait", "-n3", str(ROOT / "launch/slurm/job.sbatch"), "--topology", "ring:4"]
        job += ["--data", "tiny", "--iterations", "5", "--progress", "none"]
        slurm["DISTADMM_HOME"] = str(ROOT)
        done = subprocess.run(job, env=slurm, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        logs = "".join(log.read_text() for log in tmp_path.glob("distadmm-*.log"))
        assert done.returncode == 0, done.stderr + logs
        assert "4 nodes on 3 rank(s)" in logs
    finally:
        subprocess.run([script, "down"], env=environment, check=True, timeout=120)
    assert not folder.exists()


def test_no_cluster_is_no_fault(tmp_path: Path) -> None:
    environment = {**os.environ, "DISTADMM_CLUSTER": str(tmp_path / "none")}
    script = str(ROOT / "launch" / "slurm" / "local-cluster")
    done = subprocess.run([script, "down"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    asked = subprocess.run([script, "start"], env=environment, capture_output=True, text=True)
    assert (asked.returncode, "up [--install]" in asked.stdout) == (2, True)
