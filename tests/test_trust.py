"""Against whom a guarantee holds, and for what change: the order, and what differs composed."""

import math

import pytest

from distadmm.commands import ledger as ledger_command
from distadmm.errors import DONE, InputError
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.accounting.pairwise_gaussian import PairwiseGaussian
from distadmm.privacy.accounting.trust import ANY, CENTRE, Trust, common, composed, restated
from distadmm.privacy.ledger.file import Ledger
from distadmm.privacy.ledger.tally import Tally

ORDER = [ANY, Trust(7), Trust(1), Trust(0), CENTRE]


@pytest.mark.parametrize("text", ["any", "coalition:0", "coalition:12", "centre"])
def test_a_trust_is_read_as_it_was_written(text):
    assert str(Trust.parse(text)) == text


@pytest.mark.parametrize("text", ["", "coalition", "coalition:-1", "none", "coalition:1.5"])
def test_other_words_are_refused(text):
    with pytest.raises(InputError, match="choose any, coalition:C"):
        Trust.parse(text)


def test_a_guarantee_covers_weaker_adversaries_and_several_hold_against_the_weakest():
    for at, trust in enumerate(ORDER):
        assert [trust.covers(other) for other in ORDER] == [other >= at for other in range(len(ORDER))]
        for other in ORDER[at:]:
            assert composed([trust, other]) == other
    assert composed([]) == ANY


def test_a_ledger_that_does_not_say_holds_against_all_others():
    header = {"orders": [2.0], "adj": "replace"}
    assert Tally.start(header).trust == ANY
    assert Tally.start({**header, "trust": "coalition:2"}).trust == Trust(2)


@pytest.mark.parametrize(
    ("found", "together"),
    [
        (["replace"], "replace"), (["add-remove", "add-remove"], "add-remove"), (["label", "replace"], "label"),
        (["replace", "add-remove"], "replace"), (["label", "add-remove"], "label"),
    ],
)  # fmt: skip
def test_adjacencies_that_differ_have_one_in_common(found, together):
    assert common(found) == together


def test_what_was_priced_for_one_record_more_or_less_costs_a_replaced_one_twice():
    steps = Gaussian(8.0)
    assert restated(steps, "add-remove", "replace") == Gaussian(4.0)
    assert restated(steps, "replace", "label") == steps
    assert restated(steps, "add-remove", "add-remove") == steps
    solve = ObjectivePerturbation("gamma", 5, 1.0, 0.2, 0.25, 8.2)  # it prices each adjacency itself
    assert restated(solve, "add-remove", "replace") == solve


def test_ledgers_for_different_changes_and_trusts_are_merged(tmp_path, capsys):
    shared = PairwiseGaussian(
        1000.0, 4000.0, 100.0, (0.2, 0.4, 0.9), coalition=1
    )  # all others learn more of it
    for name, adjacency, trust, event in (
        ("a", "add-remove", "coalition:1", Gaussian(8.0)), ("b", "replace", "any", shared),
    ):  # fmt: skip
        how = {"adjacency": adjacency, "mode": "secure", "scope": "record", "dataset": "d", "trust": trust}
        with Ledger(tmp_path / name / "ledger", 0, **how) as ledger:
            ledger.commit([event])
            ledger.charge(event, iteration=1)
    assert ledger_command.main(["merge", str(tmp_path / "a"), str(tmp_path / "b")]) == DONE
    shown = capsys.readouterr().out
    together = accountant.epsilon([Gaussian(4.0), shared.against(ANY)], 1e-5, "replace")
    assert "one record replaced by another (replace)" in shown
    assert "any coalition of at most 1 others (coalition:1)" in shown
    assert f"{math.ceil(together * 1e4) / 1e4:.4f}" in shown
