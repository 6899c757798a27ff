"""One name, one meaning: the flags of all programmes side by side, and the words of the last release."""

from __future__ import annotations

import json
import typing
from pathlib import Path

import pytest

from distadmm import funnel, ias, istdp, radmm, sharing
from distadmm.algorithm import find, names
from distadmm.data.parties import DataOptions
from distadmm.errors import InputError
from distadmm.flags import build, fields_of, flag, parse, positional
from distadmm.methods.funnel import options as funnel_options
from distadmm.methods.ias import options as ias_options
from distadmm.methods.sharing import predict
from distadmm.methods.sharing.messages import PrivacyOptions
from distadmm.run import config
from distadmm.structs import struct

GROUPS = {
    "radmm": [
        *(config.Choice, config.Problem, config.Loop, config.Links, config.Privacy),
        *(find(name).cls for name in names()),
    ],
    "sharing": [DataOptions, sharing.ModelOptions, sharing.SolverOptions, PrivacyOptions, sharing.RunOptions],
    "sharing predict": [DataOptions, predict.PredictOptions],
    "istdp": [istdp.Data, istdp.Model, istdp.Privacy, istdp.Running],
    "ias": [ias_options.Data, ias_options.Goal, ias_options.Solver, ias_options.Running],
    "ias sweep": [ias_options.Data, ias_options.Goal, ias_options.Range, ias_options.Running],
    "funnel": [funnel_options.Data, funnel_options.Goal, funnel.Effort, funnel_options.Running],
}

# A default of the programme's own, and why.
DEFAULTS = {
    "adjacency": "what sharing protects by default has always been one record replaced",
    "algorithm": "the families differ",
    "certify": "a funnel's bound is cheap, that of a mapping is not",
    "data": "a design starts from a --problem; rows have to be asked for",
    "eta_growth": "an algorithm's own",
    "iterations": "the algorithms that stop by themselves have no limit to speak of",
    "lambda_": "istdp has a rule",
    "mechanism": "what there is differs",
    "method": "what there is differs",
    "penalty_rho": "sharing has a rule",
    "points": "a sweep is a curve, a funnel only when asked",
    "problem": "what there is differs",
    "restarts": "the methods differ",
    "rng": "the paper's mechanism is only simulated",
    "stop_tolerance": "residuals differ, and radmm runs all its iterations",
    "tune": "an algorithm's own",
}


def _occurrences() -> dict[str, list[tuple[str, typing.Any, typing.Any, str]]]:
    """Flag -> (programme, type, default, what it means), one for each group that has it."""
    found: dict[str, list] = {}
    for programme, groups in GROUPS.items():
        for group in dict.fromkeys(groups):
            for name, (field, annotation) in fields_of(group).items():
                kinds = {
                    kind for kind in typing.get_args(annotation) or (annotation,) if kind is not type(None)
                }
                found.setdefault(name, []).append(
                    (programme, kinds, field.default, field.metadata["said"]["help"])
                )
    return found


@pytest.mark.parametrize(("name", "found"), _occurrences().items())
def test_a_flag_means_one_thing_in_all_programmes(name, found) -> None:
    assert len({help for _, _, _, help in found}) == 1, found
    assert all(kinds == found[0][1] for _, kinds, _, _ in found), found
    if name not in DEFAULTS:
        assert all(default == found[0][2] for _, _, default, _ in found), found


def test_the_reasons_for_defaults_are_of_flags_that_need_one() -> None:
    different = {name for name, found in _occurrences().items() if len({repr(one[2]) for one in found}) > 1}
    assert set(DEFAULTS) <= different


def test_no_word_of_the_last_release_means_something_else_now() -> None:
    for programme, groups in GROUPS.items():
        now = {name for group in groups for name in fields_of(group)}
        for group in groups:
            for name, (field, _) in fields_of(group).items():
                old = set(field.metadata["was"]) - {name}
                assert not old & now, (programme, name)


@struct
class Words:
    width: float = flag(1.0, help="", was={"size": {}})
    how: str = flag(
        "slow", help="", choices=("slow", "fast"), was={"how": {"quick": "fast"}, "speed": {"quick": "fast"}}
    )
    bounds: str = flag("auto", help="", was={"bound": {}})
    all: str = flag("yes", help="", was={"every": {True: "yes", False: "no"}})


@pytest.mark.parametrize(
    ("words", "now", "said"),
    [
        (["--size", "2"], {"width": 2.0}, "--size 2 is now --width 2"),
        (["--how", "quick"], {"how": "fast"}, "--how quick is now --how fast"),
        (["--speed=quick"], {"how": "fast"}, "--speed quick is now --how fast"),
        (["--no-every"], {"all": "no"}, "--every False is now --all no"),
        (["--how", "fast"], {"how": "fast"}, ""),
    ],
)
def test_old_words_work_and_are_said(words, now, said, capsys) -> None:
    (found,) = parse(
        f"prog {words}", "", [Words], words
    )  # what was said once of a programme is not said again
    assert {name: getattr(found, name) for name in now} == now
    told = capsys.readouterr().err
    assert told == (f"prog {words}: {said}; the old word goes with the next release\n" if said else "")


def test_an_old_and_a_new_word_together_are_refused() -> None:
    with pytest.raises(InputError, match="--size is now --width; give this one alone"):
        parse("prog", "", [Words], ["--size", "2", "--width", "3"])


def test_the_configuration_of_an_old_run_is_read_without_a_word(tmp_path: Path, capsys) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"config": {"size": 2.0, "bound": [1.0, 2.5], "every": True, "speed": "quick"}})
    )
    (found,) = parse("prog", "", [Words], ["--config", str(path), "--width", "3"])
    assert (found.width, found.bounds, found.all, found.how) == (3.0, "1.0,2.5", "yes", "fast")
    path.write_text(json.dumps({"config": {"bound": []}}))
    assert parse("prog", "", [Words], ["--config", str(path)])[0].bounds == "auto"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "folder", sorted((Path(__file__).parent / "fixtures" / "runs").iterdir()), ids=lambda folder: folder.name
)
def test_runs_of_the_last_release_give_their_flags(folder: Path, capsys) -> None:
    kind = folder.name.partition("-")[0]
    if not (folder / "config.json").is_file():
        pytest.skip("it keeps its flags in its result")
    words = ["--config", str(folder / "config.json")]
    if kind == "radmm":
        radmm.Consensus().read(words)
    else:
        parse(kind, "", GROUPS[kind], words)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("programme", "words"),
    [
        (radmm, ["--data", "tiny", "--topology", "er5"]),
        (sharing, ["--data", "tiny"]),
        (sharing, ["--data", "tiny", "--epsilon", "2"]),
        (istdp, ["--data", "tiny"]),
        (istdp, ["--data", "tiny", "--epsilon", "1", "--adjacency", "replace"]),
        (ias, ["--problem", "gauss"]),
        (ias, ["sweep", "--problem", "gauss"]),
        (funnel, ["--problem", "synthetic-unif"]),
    ],
)
def test_a_dry_run_of_any_programme_says_what_it_would_do_and_writes_nothing(
    programme, words, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert programme.main([*words, "--dry-run", "--out", "out"]) == 0
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_words_without_a_flag_are_fields() -> None:

    @struct
    class Several:
        paths: tuple[str, ...] = positional("RUN", help="give some")
        gap: float = flag(1.0, help="")

    assert build([Several], {"paths": ["a", "b"]})[0].paths == ("a", "b")
    for words in (["a", "b", "--gap", "2"], ["--gap", "2", "a", "b"]):
        (found,) = parse("prog", "", [Several], words)
        assert (found.paths, found.gap) == (("a", "b"), 2.0)
    with pytest.raises(InputError, match="no run is named: give some"):
        parse("prog", "", [Several], ["--gap", "2"])


def test_a_slip_is_answered_with_a_word_of_this_release(capsys) -> None:
    """`--tolerance` is one of the last, and nearer."""
    for slip in ("--toleranze", "--stop-tol"):
        assert sharing.main([slip, "1", "--dry-run"]) == 2
        assert "did you mean --stop-tolerance?" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["null", "[]", '{"config": null}', '{"config": [1]}'])
def test_a_config_that_is_no_table_is_refused(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError, match="is not readable"):
        parse("prog", "", [Words], ["--config", str(path)])
