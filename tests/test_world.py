"""What is read from the launcher's environment before MPI is there."""

import os

import pytest

from distadmm.ranks import launcher

LAUNCHERS = (
    *launcher.LAUNCHED,
    *launcher._LAUNCHED_HERE,
    *launcher._ONE_HOST,
    "SLURM_STEP_NUM_NODES",
)
ROOM = 1 << 30


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    kept = dict(os.environ)
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    yield
    os.environ.clear()
    os.environ.update(kept)


def shared_memory(monkeypatch, free):
    class Room:
        f_bavail, f_frsize = free, 1

    monkeypatch.setattr(os, "statvfs", lambda path: Room)


@pytest.mark.parametrize(
    ("variables", "alone"),
    [
        ({"PMI_SIZE": "20", "MPI_LOCALNRANKS": "20"}, True),
        ({"PMI_SIZE": "20", "MPI_LOCALNRANKS": "7"}, False),
        ({"PMI_SIZE": "20"}, False),  # a launcher that does not say
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, False),
        ({"PMI_SIZE": "6", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "1"}, True),
        ({"PMI_SIZE": "6", "SLURM_STEP_NUM_TASKS": "6", "SLURM_STEP_NUM_NODES": "3"}, False),
        # mpiexec inside a one-node step that starts ranks elsewhere: its own count is the newer word
        ({"PMI_SIZE": "6", "SLURM_STEP_NUM_NODES": "1", "MPI_LOCALNRANKS": "2"}, False),
    ],
)
def test_shared_memory_alone_is_for_jobs_on_one_host(variables, alone, monkeypatch):
    os.environ.update(variables)
    shared_memory(monkeypatch, ROOM)
    assert launcher.on_one_host() == alone
    launcher.choose_transports()
    assert {name: os.environ.get(name) for name in launcher._ONE_HOST} == (
        launcher._ONE_HOST if alone else dict.fromkeys(launcher._ONE_HOST)
    )


def test_the_users_transports_win(monkeypatch):
    os.environ.update(PMI_SIZE="4", MPI_LOCALNRANKS="4", UCX_TLS="tcp,self")
    shared_memory(monkeypatch, ROOM)
    launcher.choose_transports()
    assert os.environ["UCX_TLS"] == "tcp,self"


def test_small_shared_memory_is_not_filled(monkeypatch):
    os.environ.update(PMI_SIZE="20", MPI_LOCALNRANKS="20")
    shared_memory(monkeypatch, 64 << 20)
    launcher.choose_transports()
    assert os.environ["UCX_TLS"] == "^posix"
