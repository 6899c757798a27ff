"""Private runs from the command: what is written, what is said, and what is refused."""

import json

import numpy as np
import pytest

from distadmm import sharing
from distadmm.files import read_npz
from distadmm.methods.sharing.messages import one_hot_bound
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.file import Ledger

A9A = ["--data", "a9a", "--split", "66,57", "--stated", "bounds"]


def run(*arguments):
    words = [str(argument) for argument in arguments]
    named = {"predict", "--data", "--party-files"} & set(words)
    return sharing.main(words if named else [*words, "--data", "tiny"])


def _comparison(folder):
    return json.loads((folder / "summary.json").read_text())["comparison"]


def test_rows_that_nothing_public_bounds_are_cut_to_norm_one_and_that_is_said(tmp_path, capsys):
    """As radmm does: the same rows need no flag more."""
    words = ["--data", "tiny", "--epsilon", 2, "--rng", "simulation", "--observe", "all:end"]
    assert run(*words, "--out", tmp_path / "default") == 0
    assert (
        "Rows longer than 1 (party 2) are cut to that norm; --row-norm states another."
        in capsys.readouterr().out
    )
    assert run(*words, "--row-norm", 1, "--out", tmp_path / "stated") == 0
    assert "are cut to that norm" not in capsys.readouterr().out
    for party in ("party-1", "party-2"):
        one, other = (np.load(tmp_path / run / "models" / f"{party}.npz") for run in ("default", "stated"))
        np.testing.assert_array_equal(one["x"], other["x"])
    assert _comparison(tmp_path / "default") == _comparison(tmp_path / "stated")


def test_the_default_private_mode_beats_party_one_alone(tmp_path, capsys):
    assert run(*A9A, "--epsilon", 1, "--rng", "simulation", "--observe", "all", "--out", tmp_path / "r") == 0
    rows = _comparison(tmp_path / "r")
    assert rows["this run, 2 parties"]["test_loss"] < 0.33 < rows["party 1 alone"]["test_loss"]
    text = capsys.readouterr().out
    for said in (
        "1e-05)-DP for replacing one person's features at these parties",
        "Party 1 is not protected",
        "Not covered",
        "seed",
    ):
        assert said in text
    ledger = chain.read(tmp_path / "r" / "ledger" / "node-0002.jsonl")
    kinds = [entry["kind"] for entry in ledger.entries]
    assert kinds == ["open", "commit", "release", "release", "close"]
    assert not (tmp_path / "r" / "ledger" / "node-0001.jsonl").exists()
    assert read_npz(tmp_path / "r" / "replies.npz")["party-2"].shape == (57 + 57 * 58 // 2,)


def test_secure_noise_is_discrete_and_never_the_same(tmp_path):
    for name in "ab":
        assert (
            run(*A9A, "--epsilon", 1, "--rng", "secure", "--observe", "none", "--out", tmp_path / name) == 0
        )
    one, other = (read_npz(tmp_path / name / "replies.npz")["party-2"] for name in "ab")
    assert not np.array_equal(one, other)
    entries = chain.read(tmp_path / "a" / "ledger" / "node-0002.jsonl").entries
    committed = next(entry for entry in entries if entry["kind"] == "commit")
    assert {event["mech"] for event in committed["events"]} == {"discrete-gaussian"}
    assert committed["rng"]["mode"] == "secure"


def test_v2_protects_both_sides(tmp_path, capsys):
    arguments = ["--mechanism", "v2", "--epsilon", 2, "--epsilon-one", 4, "--protect", "record"]
    assert run(*A9A, *arguments, "--out", tmp_path / "r", "--observe", "all:end") == 0
    text = capsys.readouterr().out
    assert "Party 1's slopes are (3.99" in text
    assert "for replacing one record of party 1, its label included" in text
    assert "not protected" not in text
    for node in (1, 2):
        assert (tmp_path / "r" / "ledger" / f"node-000{node}.jsonl").exists()


def test_moments_without_a_budget_are_recorded_as_infinite(tmp_path, capsys):
    assert run(*A9A, "--message", "moments", "--observe", "none", "--out", tmp_path / "r") == 0
    assert "epsilon = infinity" in capsys.readouterr().out
    entries = chain.read(tmp_path / "r" / "ledger" / "node-0002.jsonl").entries
    assert any(entry.get("mech") == "unbounded" for entry in entries)


def test_a_dry_run_says_where_the_limits_are_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ["--data", "tiny", "--split", "15,15", "--row-norm", 3]
    assert run(*few, "--epsilon", 0.5, "--dry-run") == 0
    text = capsys.readouterr().out
    assert "more noise than signal" in text
    assert "are (0.49" in text
    assert run("--dry-run") == 0
    assert "nothing is private" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_more_parties_answer_in_parallel_and_a_person_pays_for_all(tmp_path, capsys):
    arguments = [
        "--data",
        "a9a",
        "--stated",
        "bounds",
        "--split",
        "66,30,27",
        "--epsilon",
        1,
        "--observe",
        "all:end",
    ]
    assert run(*arguments, "--out", tmp_path / "r") == 0
    said = capsys.readouterr().out
    assert "All replies of the answering parties together are (1.46" in said
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["epsilon"] == pytest.approx(
        1.46, abs=0.01
    )
    rows = _comparison(tmp_path / "r")
    assert rows["this run, 3 parties"]["test_loss"] < 0.33


def test_a_run_that_noise_has_spoilt_says_so(tmp_path, capsys):
    arguments = ["--data", "tiny", "--row-norm", 3, "--epsilon", 0.5, "--mechanism", "v2"]
    assert run(*arguments, "--out", tmp_path / "r", "--observe", "all:end") == 0
    assert "party 1 alone does better" in capsys.readouterr().out


def test_files_of_ones_own_in_the_private_mode(tmp_path):
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(300, 4))
    y = np.where(columns[:, 0] + columns[:, 2] > 0, 1, -1)
    for name, header, cells in (
        ("one.csv", "id,a,b,y", np.column_stack([columns[:, :2], y])),
        ("two.csv", "id,c,d", columns[:, 2:]),
    ):
        lines = [header, *(",".join([f"k{i}", *map(str, cells[i])]) for i in rng.permutation(300))]
        (tmp_path / name).write_text("\n".join(lines).replace(".0\n", "\n") + "\n")
    files = f"{tmp_path / 'one.csv'},{tmp_path / 'two.csv'}"
    arguments = [
        "--party-files",
        files,
        "--key",
        "id",
        "--epsilon",
        8,
        "--row-norm",
        3,
        "--test-fraction",
        0.3,
    ]
    assert run(*arguments, "--out", tmp_path / "r", "--observe", "all:end") == 0
    rows = _comparison(tmp_path / "r")
    assert rows["this run, 2 parties"]["test_loss"] < rows["party 1 alone"]["test_loss"]
    entries = chain.read(tmp_path / "r" / "ledger" / "node-0002.jsonl").entries
    assert len(entries[0]["dataset"]) == 64  # the keyed name of that party's own file


def test_bounds_of_one_hot_columns():
    assert one_hot_bound(["sex=Male", "sex=Female", "age<=25", "age>25"]) == pytest.approx(2**0.5)
    assert one_hot_bound(["sex=Male", "height"]) is None
    assert one_hot_bound([]) is None


BAD = {
    "no bound": (["--epsilon", "1", "--row-norm", "none"], "must be bounded"),
    "epsilon": (["--epsilon", "-1"], "--epsilon is -1"),
    "delta": (["--epsilon", "1", "--delta", "0"], "--delta is 0"),
    "bounds": (["--epsilon", "1", "--row-norm", "1,2,3"], "3 bounds for 2 parties"),
    "bound": (["--epsilon", "1", "--row-norm", "0"], "--row-norm is '0'"),
    "rounds": (["--epsilon", "1", "--rounds", "4"], "use --mechanism v1-t"),
    "too many rounds": (
        ["--epsilon", "1", "--mechanism", "v1-t", "--rounds", "1000000000"],
        "needed: 1 to 10000",
    ),
    "loss": (["--epsilon", "1", "--row-norm", "3", "--loss", "hinge"], "no bound on its slope or curvature"),
    "mechanism": (["--epsilon", "1", "--mechanism", "v9"], "choose one of"),
    "reg": (["--epsilon", "1", "--row-norm", "3", "--reg", "l1"], "moment mode has one"),
    "sgd": (["--epsilon", "1", "--row-norm", "3", "--algorithm", "sgd"], "moment mode has one"),
    "lambda one": (["--epsilon", "1", "--mechanism", "v2", "--row-norm", "30"], "needs R^2 <= 8"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_private_flags_are_one_line_and_code_two(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, expected = BAD[name]
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert expected in captured.err
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def private_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private") / "r"
    assert run(*A9A, "--epsilon", 1, "--rng", "simulation", "--observe", "none", "--out", folder) == 0
    return folder


def _scores(path):
    return np.loadtxt(path, delimiter=",", skiprows=1)[:, 2]


def test_scores_of_a_private_run_are_refused_priced_or_named_for_what_they_are(private_run, tmp_path, capsys):
    ask = ["predict", private_run, "--data", "a9a", "--scores"]
    assert run(*ask, tmp_path / "none.csv") == 2
    assert "one more release about the person scored" in capsys.readouterr().err
    assert not (tmp_path / "none.csv").exists()
    assert run("predict", private_run, "--data", tmp_path / "not-there.csv") == 2  # before a row is read
    assert "one more release about the person scored" in capsys.readouterr().err
    found = {}
    for kind in ("exact", "round:0.5", "noise:2"):
        path = tmp_path / f"{kind[:5]}.csv"
        assert run(*ask, path, "--release", kind) == 0
        found[kind] = _scores(path)
    text = capsys.readouterr().out
    assert (
        "SIMULATION: noise from a seed guarantees nothing; with secret noise of the same law:\neach score"
        in text
    )
    assert "(2, 1e-05)-DP for the person scored" in text
    assert "Party 1's share is exact" in text
    assert "epsilon = infinity" in text
    assert 0 < np.abs(found["round:0.5"] - found["exact"]).max() <= 0.25 + 1e-9
    assert np.abs(found["noise:2"] - found["exact"]).std() > 1
    entries = chain.read(private_run / "ledger" / "scores" / "node-0002.jsonl").entries
    assert [entry["mech"] for entry in entries if entry["kind"] == "charge"][-1] == "gaussian"


@pytest.mark.parametrize("kind", ["all", "round:0", "noise:", "exact:1", "noise:x"])
def test_unknown_ways_to_release_scores(kind, private_run, capsys):
    assert run("predict", private_run, "--data", "a9a", "--release", kind) == 2
    assert "choose one of" in capsys.readouterr().err


def test_a_run_without_noise_spends_no_secret_noise_and_force_takes_its_place(tmp_path, capsys):
    for more in ((), ("--force",)):
        assert run("--data", "tiny", "--iterations", 2, *more, "--out", tmp_path / "plain") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]
    for ledger in (tmp_path / "plain" / "ledger").glob("*.jsonl"):
        opened = json.loads(ledger.read_bytes().splitlines()[0])
        assert opened["rng"] == {"mode": "simulation", "source": "no noise"}
    capsys.readouterr()


def test_a_run_without_noise_whose_ledgers_say_secure_goes_on(tmp_path, monkeypatch):
    """As version 0.1.0 wrote them."""
    made = Ledger.__init__
    with monkeypatch.context() as patch:
        patch.setattr(
            Ledger, "__init__", lambda self, *at, **header: made(self, *at, **{**header, "mode": "secure"})
        )
        assert run("--iterations", 2, "--checkpoint-every", 2, "--out", tmp_path / "r") == 0
    assert run("--resume", tmp_path / "r", "--iterations", 4) == 0
    for path in (tmp_path / "r" / "ledger").glob("*.jsonl"):
        entries = chain.read(path).entries
        assert [entry["rng"]["mode"] for entry in entries if entry["kind"] in ("open", "resume")] == [
            "secure"
        ] * 2
