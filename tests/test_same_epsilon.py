"""One run has one epsilon, wherever it is told: run, files, ledgers, their table and page, account."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm, sharing
from distadmm.commands import ledger as ledger_command
from distadmm.errors import InputError
from distadmm.files import read_json
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.privacy.accounting.trust import TOLD, Trust
from distadmm.run.history import earlier

TRUSTED = ("gossip", "tracking", "accelerated", "preconditioned", "fixed-point", "extra")
QUICK = {
    ("radmm", "label", ""), ("gossip", "replace", "any"), ("fixed-point", "add-remove", "coalition:1"),
    ("preconditioned", "node", "centre"), ("masked", "replace", "coalition:1"), ("masked", "label", "coalition:2"),
}  # fmt: skip
CHANGES = ("replace", "add-remove", "label")
CASES = [
    *product(("admm", "madmm", "radmm", "mradmm"), CHANGES, ("",)),
    *product(TRUSTED, (*CHANGES, "node"), ("any", "centre", "coalition:1", "coalition:2")),
    *product(("masked",), CHANGES, ("coalition:1", "coalition:2")),
]
FLAGS: dict[str, Any] = {"epsilon": 1.0, "iterations": 4, "progress": "none", "rng": "secure"}


def commanded(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    capsys.readouterr()
    assert ledger_command.main([str(word) for word in argv]) == 0
    return capsys.readouterr().out


def told(
    folder: Path, account: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[float, dict[str, float], str]:
    """Epsilon of the run in `folder`, which all that tells it agree about; by trust; and what it is worth."""
    summary, model = read_json(folder / "summary.json"), read_json(folder / "model.json")
    epsilon, by_trust = float(summary["epsilon"]), {k: float(v) for k, v in summary["epsilons"].items()}
    (run,) = json.loads(commanded(capsys, "show", folder, "--json"))["runs"]
    (table,) = json.loads(commanded(capsys, "account", "--json", "--account", account))["tables"]
    everywhere = {
        "model.json": model["epsilon"], "history.csv": earlier(folder, "epsilon", summary["iterations"]),
        "ledger show": run["together"]["epsilon"], "account": table["epsilon"],
        "account, of the run": table["runs"][-1]["epsilon"],
    }  # fmt: skip
    assert {k: v for k, v in everywhere.items() if v != pytest.approx(epsilon, rel=1e-9)} == {}
    assert {summary["statement"], model["statement"], run["statement"]} == {summary["statement"]}
    page = folder / "page.html"
    commanded(capsys, "certificate", folder, "--out", page, "--account", account)
    commanded(capsys, "verify", folder, "--account", account)
    shown, certifies = commanded(capsys, "show", folder), summary["statement"] == "certificate"
    for text in (model["sentence"], shown, page.read_text()):
        assert rounded_up(epsilon) in text
        assert ("Spent so far" in text) != certifies
    assert ("certificate: bounds the whole run" in shown) == certifies
    assert ("A bound for the whole run" in page.read_text()) == certifies
    assert [by_trust[name] for name in TOLD] == sorted((by_trust[name] for name in TOLD), reverse=True)
    assert by_trust.get(summary["trust"], epsilon) == pytest.approx(epsilon, rel=1e-9)
    for line in shown.splitlines():
        if "by who may collude" in line:
            assert line.endswith(", ".join(f"{name} {rounded_up(by_trust[name])}" for name in reversed(TOLD)))
        if line.startswith("epsilon by size of coalition"):
            said = dict(map(float, pair.split(": ")) for pair in line.partition(": ")[2].split(", "))
            for trust in map(Trust.parse, (*TOLD, summary["trust"])):
                size = min(max(trust.colluding, 0), max(said))
                assert said[size] == pytest.approx(by_trust.get(str(trust), epsilon), rel=1e-3)
    return epsilon, by_trust, summary["statement"]


@pytest.mark.parametrize(
    ("name", "adjacency", "trust"),
    [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in CASES],
)
def test_every_place_tells_the_same_epsilon(
    name: str, adjacency: str, trust: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {**FLAGS, "public_rows": 91} if adjacency == "add-remove" else FLAGS
    given = {"trust": trust} if trust else {}
    account = tmp_path / "account"
    out, data = {"out": tmp_path / "run", "account": str(account)}, {"data": "tiny", "topology": "complete:5"}
    radmm.solve(name, adjacency=adjacency, **data, **out, **flags, **given)
    epsilon, _, worth = told(tmp_path / "run", account, capsys)
    assert 0.99 < epsilon <= 1.0
    assert worth == "certificate"


def test_all_that_may_be_asked_for_is_a_case(tmp_path: Path) -> None:
    """What is refused is refused for a reason; an algorithm that comes later has its cases here."""
    private = {name for name, _, _ in CASES}
    assert private == {*radmm.names()} - {"newton"}
    with pytest.raises(InputError, match="no private form"):
        radmm.solve("newton", data="tiny", topology="complete:5", adjacency="replace", **FLAGS)
    for name in private - {*TRUSTED, "masked"}:
        with pytest.raises(InputError, match="unknown key 'trust'"):
            radmm.solve(name, data="tiny", adjacency="replace", trust="any", **FLAGS)


@pytest.mark.parametrize("trust", ["any", "coalition:1"])
def test_a_run_that_goes_on_within_its_budget_is_a_reading(
    trust: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a bound known before its first release; and no trust costs less than the weakest that is claimed."""
    account = tmp_path / "account"
    radmm.solve("gossip", data="tiny", topology="complete:5", adjacency="replace", trust=trust, budget_epsilon=3.0,
        checkpoint_every=1, out=tmp_path / "run", account=str(account), **FLAGS)  # fmt: skip
    assert radmm.main(["--resume", str(tmp_path / "run"), "--iterations", "6", "--progress", "none"]) == 0
    epsilon, _, worth = told(tmp_path / "run", account, capsys)
    assert worth == "odometer"
    assert 1.1 < epsilon < 1.5


def test_rows_at_two_nodes_cost_the_same_in_every_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 40, 3)) / 10
    rows[3] = rows[0]
    files = [(X, np.sign(X[:, 0])) for X in rows]
    account = tmp_path / "account"
    out = {"out": tmp_path / "run", "account": str(account)}
    radmm.solve("ring:5", files, algorithm="gossip", adjacency="replace", **out, **FLAGS)
    epsilon, by_trust, _ = told(tmp_path / "run", account, capsys)
    assert epsilon > 1.4
    assert math.isclose(by_trust["centre"], epsilon)


@pytest.mark.parametrize("mechanism", ["v1", "v2", "s2"])
def test_parties_tell_what_a_person_pays_whom_all_of_them_are_about(
    mechanism: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """V2 has a sentence of the label and one of the columns: a person has both."""
    noise = ["--mechanism", mechanism, "--epsilon", "1", "--adjacency", "replace", "--row-norm", "1"]
    where = ["--data", "tiny", "--parties", "3", "--account", str(tmp_path / "account.jsonl")]
    assert sharing.main([*where, *noise, "--out", str(tmp_path / "run"), "--progress", "none"]) == 0
    summary, model = (read_json(tmp_path / "run" / name) for name in ("summary.json", "model.json"))
    merged = json.loads(commanded(capsys, "merge", tmp_path / "run", "--json"))["epsilon"]
    assert summary["epsilon"] == model["epsilon"] == pytest.approx(merged, rel=1e-3)
    assert summary["epsilon"] >= merged > 1.4
    if mechanism != "s2":  # whose parties have no more than columns of the person
        assert "one person's features at the answering parties replaced" in commanded(
            capsys, "show", tmp_path / "run"
        )
