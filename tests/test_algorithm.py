"""What `register` and the first step refuse: one line that names the class and its lack, and the lines to write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from distadmm import algorithm, radmm, sharing
from distadmm.algorithm import Defaults, find, names, register
from distadmm.errors import InputError
from distadmm.methods.consensus.recycled import RADMM
from distadmm.structs import struct

SMALL = ["--data", "tiny", "--topology", "er5", "--iterations", "2", "--progress", "none"]


class Two:
    """The two members that every algorithm needs."""

    def init(self, node: Any) -> Any: ...

    def step(self, k: int, st: Any, node: Any) -> Any: ...


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' algorithms are not there, and those of this one are forgotten."""
    for family in algorithm.FAMILIES:  # a module registers what it holds once in a process
        for name in algorithm._MODULES[family]:
            find(name, family)
    built_in = {
        family: {name: entry for name, entry in known.items() if not entry.file}
        for family, known in algorithm._REGISTERED.items()
    }
    monkeypatch.setattr(algorithm, "_REGISTERED", built_in)


def refusal(cls: Any, **said: Any) -> tuple[str, str]:
    """The line that refuses `cls`, and the lines to write."""
    with pytest.raises(InputError) as caught:
        register("mine", **said)(cls)
    line, _, to_write = str(caught.value).partition("\n\n")
    assert "mine" in line or cls.__name__ in line
    assert "\n" not in line
    return line, to_write


def test_a_class_that_is_no_dataclass_is_refused_with_the_lines_to_write() -> None:
    line, to_write = refusal(type("Plain", (Two,), {}))
    assert "Plain" in line
    assert "no dataclass" in line
    assert to_write.splitlines() == [
        "    @distadmm.register('mine', family='graph')",
        "    @dataclass(frozen=True)",
        "    class Plain:",
    ]


def test_a_dataclass_that_is_not_frozen_is_refused_and_a_struct_is_not() -> None:
    line, to_write = refusal(dataclass(type("Loose", (Two,), {})))
    assert "can change" in line
    assert "frozen=True" in to_write
    register("mine")(struct(type("Firm", (Two,), {})))
    assert find("mine").name == "mine"


def test_missing_members_are_named_each_with_its_line() -> None:
    line, to_write = refusal(dataclass(frozen=True)(type("Empty", (), {})))
    assert "no init and no step" in line
    assert "def init(self, node)" in to_write
    assert "def step(self, k, st, node)" in to_write
    _, for_a_star = refusal(dataclass(frozen=True)(type("Empty", (), {})), family="star")
    assert "def init(self, seat)" in for_a_star


def test_a_field_that_nobody_can_set_is_refused() -> None:
    line, to_write = refusal(
        dataclass(frozen=True)(type("Bare", (Two,), {"__annotations__": {"rate": float}}))
    )
    assert "rate" in line
    assert "distadmm.flag" in to_write


def test_an_unknown_family_is_refused() -> None:
    line, _ = refusal(Two, family="tree")
    assert "'graph', 'star'" in line


def test_phases_said_twice_differently_are_refused_and_a_subclass_takes_those_of_its_base() -> None:
    recycling = dataclass(frozen=True)(type("Recycling", (RADMM,), {}))
    line, to_write = refusal(recycling, phases=1)
    assert "phases = 2" in line
    assert "phases=1" in line
    assert "phases: ClassVar[int]" in to_write
    register("mine")(recycling)
    assert find("mine").phases == 2
    refusal(dataclass(frozen=True)(type("Three", (Two,), {"phases": 3})))


def test_private_follows_from_the_schedule_of_releases() -> None:
    frozen = dataclass(frozen=True)
    line, to_write = refusal(frozen(type("Silent", (Two,), {})), private=True)
    assert "no schedule" in line
    assert "def releases(self, node, iterations)" in to_write
    register("silent")(frozen(type("Silent", (Two,), {})))
    register("speaking")(frozen(type("Speaking", (Two,), {"releases": lambda self, node, iterations: []})))
    assert [find(name).private for name in ("silent", "speaking")] == [False, True]


def test_what_an_algorithm_leaves_out_stands_in_the_defaults() -> None:
    register("mine")(dataclass(frozen=True)(type("Mine", (Two,), {})))
    for member in ("phases", "tables", "spectrum", "releases"):
        assert getattr(find("mine").cls, member) == getattr(Defaults, member)
    assert find("mine").cls().claims_optimum(None)


def test_an_algorithm_is_asked_for_by_its_name() -> None:
    with pytest.raises(InputError, match="the algorithm is a type; needed: its name, or a file of yours"):
        find(RADMM)  # type: ignore[arg-type]


def test_the_families_do_not_see_each_other() -> None:
    register("mine", family="star")(dataclass(frozen=True)(type("Mine", (Two,), {})))
    assert "mine" in names("star")
    assert "mine" not in names()
    with pytest.raises(InputError, match="no algorithm 'mine'"):
        find("mine")


def test_only_the_package_s_own_module_is_the_package_s_own_code() -> None:
    assert find("radmm").file == ""
    register("radmm")(dataclass(frozen=True)(type("Impostor", (RADMM,), {"__module__": __name__})))
    assert find("radmm").file == __file__


FILE = """
from dataclasses import dataclass
from typing import NamedTuple
import distadmm

class State(NamedTuple):
    {field}: object

@distadmm.register("mine")
@dataclass(frozen=True)
class Mine:
    {flag}: float = distadmm.flag(0.1, help="a number")

    def init(self, node):
        return {state}

    def step(self, k, st, node):
        return {next}

    def releases(self, node, iterations):
        return {schedule}
"""


def run(path: Path, capsys: Any, *more: str, **words: str) -> str:
    usual = {"field": "f", "flag": "rate", "state": "State(node.start)", "next": "st", "schedule": "[]"}
    code = FILE.format(**usual | words)
    path.write_text(code.replace("    def releases", "    def unlisted") if "schedule" not in words else code)
    assert radmm.main([*SMALL, "--algorithm", str(path), *more]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def test_a_flag_that_all_runs_have_is_refused_by_name(tmp_path: Path, capsys: Any) -> None:
    assert "rho" in (said := run(tmp_path / "clashing.py", capsys, flag="rho"))
    assert "Mine" in said
    assert "Problem" in said
    with pytest.raises(InputError, match="Problem"):
        radmm.solve(str(tmp_path / "clashing.py"), data="tiny")


def test_a_state_without_models_is_refused_at_the_first_step(tmp_path: Path, capsys: Any) -> None:
    said = run(tmp_path / "without_f.py", capsys, field="x")
    assert "Mine.init returned a State without a field f" in said
    assert "class State(NamedTuple):" in said
    assert "Mine.init returned a ndarray" in run(tmp_path / "no_tuple.py", capsys, state="node.start")
    assert "Mine.init returned nothing" in run(tmp_path / "nothing.py", capsys, state="None")


def test_models_of_another_shape_are_refused_at_the_first_step(tmp_path: Path, capsys: Any) -> None:
    said = run(tmp_path / "one_row.py", capsys, state="State(node.start[0])")
    assert "whose f is of shape (30,); needed: an array of shape (5, 30)" in said
    assert "whose f is a list of int" in run(tmp_path / "rows.py", capsys, state="State([1, 2])")


def test_models_of_parties_are_refused_unless_there_is_one_for_each(tmp_path: Path, capsys: Any) -> None:
    words = {"field": "x", "flag": "rate", "next": "st", "schedule": "None"}
    for name, state in (("none", "State(0.0)"), ("some", "State({1: 0.0})")):
        path = tmp_path / f"{name}.py"
        path.write_text(FILE.format(**words, state=state).replace('"mine"', '"mine", family="star"'))
        assert sharing.main(["--data", "tiny", "--split", "15,15", "--algorithm", str(path)]) == 2
        said = capsys.readouterr().err
        assert "needed: a dict with an array for each party of this rank, 1, 2" in said
        assert "Traceback" not in said


def test_a_step_that_gives_no_state_is_refused_in_one_line(tmp_path: Path, capsys: Any) -> None:
    said = run(tmp_path / "silent.py", capsys, next="None")
    assert "Mine.step returned nothing at iteration 1; needed: the next State" in said
    assert "        return State(f)" in said
    assert "Mine.step returned a ndarray" in run(tmp_path / "bare.py", capsys, next="st.f")


@pytest.mark.parametrize(
    ("schedule", "found"),
    [
        ("None", "returned nothing"),
        ("[1, 2]", "returned a list of int"),
        ("[distadmm.Planned(0, 1.0)]", "lists the iterations 0; needed: whole numbers from 1 to 3"),
        ("[distadmm.Planned(k, 1.0) for k in (2, 1)]", "lists the iterations 2, 1"),
        ("[distadmm.Planned(k, 1.0) for k in (1, 1)]", "lists the iterations 1, 1"),
    ],
)
def test_a_schedule_that_is_none_is_refused_in_one_line(
    schedule: str, found: str, tmp_path: Path, capsys: Any
) -> None:
    flags = ("--epsilon", "1", "--adjacency", "replace", "--iterations", "3")
    said = run(tmp_path / "planless.py", capsys, *flags, schedule=schedule)
    assert f"Mine.releases {found}" in said


def test_files_of_one_name_are_different_algorithms(tmp_path: Path) -> None:
    for folder, rate in (("one", 0.1), ("two", 0.7)):
        path = tmp_path / folder / "mine.py"
        path.parent.mkdir()
        words = {"field": "f", "flag": "rate", "state": "State(node.start)", "next": "st", "schedule": "[]"}
        path.write_text(FILE.format(**words).replace("0.1", str(rate)))
        assert find(str(path)).cls().rate == rate


def test_a_file_that_is_no_python_is_refused_with_its_line(tmp_path: Path, capsys: Any) -> None:
    said = run(tmp_path / "broken.py", capsys, next="(")
    assert "broken.py, line" in said
    assert len(said.splitlines()) == 1


def test_noise_for_an_algorithm_without_a_schedule_is_refused_with_the_lines_to_write(
    tmp_path: Path, capsys: Any
) -> None:
    said = run(tmp_path / "no_schedule.py", capsys, "--epsilon", "1", "--adjacency", "replace")
    assert "no schedule of its releases" in said
    assert "    def releases(self, node, iterations):" in said.splitlines()[2]


def test_a_file_keeps_its_algorithm_when_another_takes_the_name(tmp_path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "examples" / "gradient_tracking.py").read_text()
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    for path in files:
        path.write_text(text)
    first, second = (find(str(path)).cls for path in files)
    assert first is not second
    assert find(str(files[0])).cls is first
    assert find("gradient-tracking").cls is second
