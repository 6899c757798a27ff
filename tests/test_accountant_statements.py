"""What may be printed: word for word, with everything verified; otherwise infinity, with the reason's name."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import istdp, radmm, sharing
from distadmm.commands import ledger
from distadmm.errors import InputError
from distadmm.methods.sharing.moments import Bounds, Rows
from distadmm.privacy.accounting.accountant import (
    DiscreteGaussian,
    Gaussian,
    Leakage,
    ObjectivePerturbation,
    PostProcessing,
    Unbounded,
    bounds,
    epsilon,
    published_epsilon,
    statement,
)
from distadmm.privacy.accounting.scopes import HYPOTHESES, SCOPES, Hypothesis, claim, established
from distadmm.privacy.accounting.statements import (
    EXACT,
    NOT_COVERED,
    bound,
    of_claim,
    rounded_down,
    rounded_up,
    weakest,
)

DELTA = 1e-5
RUNS = Path(__file__).parent / "fixtures" / "runs"
SOLVED = ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 8.2, 50, output_epsilon=1e-3)
STEPS = Gaussian(26.4, 50)


def said(kind, events, adjacency, scope, verified=tuple(HYPOTHESES), **others):
    return statement(kind, events, adjacency, DELTA, scope=scope, verified=verified, **others)


def test_the_sentence_of_radmm():
    found = said("certificate", [SOLVED, PostProcessing(1)], "replace", "radmm", tolerance=1e-10)
    spent = epsilon([SOLVED], DELTA, "replace")
    assert found.kind == "certificate"
    assert found.epsilon == spent
    assert found.published == published_epsilon([SOLVED], "replace") > 20
    assert found.text == (
        f"All messages of all nodes together are ({rounded_up(spent)}, 1e-05)-DP for replacing one record held by one "
        "node, against any coalition of other nodes, for the committed 50 releases, weight C/B fixed, solves certified "
        "to 1e-10 with output noise 0.001. Derivation not peer-reviewed; exact arithmetic."
    )
    assert found.not_covered == NOT_COVERED
    assert len(found.assumptions) == len(SCOPES["radmm"].hypotheses) + 3  # of the events, and of the schedule
    assert "adding or removing one record" in said("certificate", [SOLVED], "add-remove", "radmm").text


@pytest.mark.parametrize(
    ("scope", "adjacency", "words"),
    [
        ("sharing-party", "replace", "party level"),
        ("sharing-record", "replace", "replacing one sample's features; labels and N public"),
        ("sharing-outside", "replace", "only those outside party 1; labels and N public"),
        ("istdp", "replace", "replacing one record, n public"),
        ("istdp", "add-remove", "add/remove, fixed divisor n-hat"),
    ],
)
def test_the_other_sentences(scope, adjacency, words):
    found = said("certificate", STEPS, adjacency, scope)
    assert words in found.text
    assert f"({rounded_up(found.epsilon)}, 1e-05)-DP" in found.text
    assert found.unverified == ()


@pytest.mark.parametrize("scope", SCOPES)
def test_one_unverified_hypothesis_is_infinity_with_its_name(scope):
    adjacency = next(iter(SCOPES[scope].adjacencies))
    events = [SOLVED] if scope == "radmm" else [STEPS]
    for name in (*SCOPES[scope].hypotheses, "committed-schedule"):
        found = said("certificate", events, adjacency, scope, verified=[h for h in HYPOTHESES if h != name])
        assert math.isinf(found.epsilon)
        assert found.unverified == (name,)
        assert name in found.text
        assert "-DP" not in found.text  # no number beside it


def test_arithmetic_is_assumed_exact_unless_whole_numbers_are_summed_and_released():
    grid = DiscreteGaussian(40.0, 1.0, 50)
    for events, whole in (([grid], False), ([STEPS], True), ([grid, STEPS], True), ([grid], True)):
        found = said("certificate", events, "replace", "istdp", exact=whole)
        assert ("exact arithmetic" in found.text.lower()) == (not whole or STEPS in events)
        assert found.not_covered == (NOT_COVERED if not whole or STEPS in events else EXACT)
    whole = claim("moments", [h for h in HYPOTHESES if h != "committed-schedule"], exact=True)
    floats = {key: value for key, value in whole.items() if key != "exact"}  # as older ledgers have it
    texts = [
        of_claim("certificate", c, [grid], "replace", DELTA, committed=True).text for c in (whole, floats)
    ]
    assert texts[0].endswith("not peer-reviewed.")
    assert texts[1] == f"{texts[0][:-1]}; exact arithmetic."


def test_no_delta_is_told_smaller_than_it_is():
    assert bound(1.0, 1e-5) == "(1.000, 1e-05)-DP"
    assert bound(1.0, 1.2345649e-6) == "(1.000, 1.2345649e-06)-DP"


@pytest.mark.parametrize(("row", "exactly"), [(3.0, True), (1e7, False)])
def test_sums_are_called_exact_where_their_order_does_not_matter(row, exactly):
    rng = np.random.default_rng(0)
    bounds, matrix, weights = Bounds(row, 1.0, 1.0), row * rng.standard_normal((300, 4)), rng.random(300)
    assert bounds.sums_exactly(len(matrix), 1.0) == exactly
    sums = []
    for order in (np.arange(300), rng.permutation(300)):
        rows = Rows(matrix[order], bounds, exact=True)
        sums.append(rows.curvature(rows.fine(weights[order])))
    assert np.array_equal(*sums) == exactly


def test_hypotheses_follow_the_events():
    loose = ObjectivePerturbation("gamma", 5, 1.0, 0.2, 0.25, 8.2, one_signed=False, output_epsilon=1e-3)
    exact = ObjectivePerturbation("gamma", 5, 1.0, 0.2, 0.25, 8.2)
    without = [h for h in HYPOTHESES if h != "one-signed-slope"]
    assert math.isfinite(said("certificate", loose, "replace", "radmm", without).epsilon)
    assert said("certificate", exact, "replace", "radmm", without).unverified == ("one-signed-slope",)
    certified = [h for h in HYPOTHESES if h != "exact-solve"]
    assert said("certificate", exact, "replace", "radmm", certified).unverified == ("exact-solve",)


def test_an_unbounded_release_names_its_reason():
    found = said("certificate", [STEPS, Unbounded("exact line search")], "replace", "istdp")
    assert math.isinf(found.epsilon)
    assert "exact line search" in found.text


def test_an_odometer_reads_what_holds_for_adaptive_releases():
    found = said(
        "odometer", [SOLVED], "replace", "radmm", [h for h in HYPOTHESES if h != "committed-schedule"]
    )
    assert (found.kind, found.reading) == ("conditional", "odometer")
    assert found.epsilon == bounds([SOLVED], DELTA, "replace").renyi > epsilon([SOLVED], DELTA, "replace")
    assert "no guarantee" in found.text
    exact = said("odometer", STEPS, "replace", "istdp")
    assert exact.epsilon == epsilon(STEPS, DELTA, "replace")


def test_a_simulation_guarantees_nothing():
    found = said("simulation", [SOLVED], "replace", "radmm")
    assert (found.kind, found.reading) == ("unbounded", "simulation")
    assert math.isinf(found.epsilon)
    assert found.would_be == epsilon([SOLVED], DELTA, "replace")
    assert found.text.startswith("SIMULATION: noise from a seed guarantees nothing; epsilon = infinity.")
    nothing = said("simulation", [SOLVED], "replace", "radmm", [])
    assert math.isinf(nothing.would_be)
    assert "-DP" not in nothing.text


def test_several_ledgers_are_worth_what_the_weakest_of_them_is():
    assert weakest(["certificate", "odometer"]) == "odometer"
    assert weakest(["certificate", "simulation", "odometer"]) == "simulation"


def test_what_was_only_declared_makes_a_statement_conditional_and_no_certificate():
    declared = [Hypothesis(h, "declared" if h == "clipped-examples" else "flag") for h in HYPOTHESES]
    found = said("certificate", STEPS, "replace", "istdp", declared)
    assert (found.kind, found.declared) == ("conditional", ("clipped-examples",))
    assert found.epsilon == epsilon(STEPS, DELTA, "replace")
    assert found.text.startswith("If what was only declared holds: the gradient of each example is clipped")
    nobody = [Hypothesis(h, "nobody" if h == "clipped-examples" else "code") for h in HYPOTHESES]
    found = said("certificate", STEPS, "replace", "istdp", nobody)
    assert (found.kind, found.unverified, found.epsilon) == ("unbounded", ("clipped-examples",), math.inf)


def test_what_somebody_claims_is_no_bound():
    found = said("certificate", Unbounded("refuted", claimed=1.0), "replace", "istdp")
    assert (found.kind, found.epsilon, found.published) == ("claimed", math.inf, 1.0)
    assert said("certificate", Unbounded("no noise"), "replace", "istdp").kind == "unbounded"


def test_a_claim_in_a_ledger_keeps_who_established_what():
    flag = Hypothesis("public-divisor", "flag")
    kept = claim("istdp", ["clipped-examples", flag, Hypothesis("fresh-noise", "declared")], tolerance=0.1)
    assert kept["verified"] == ["clipped-examples", "public-divisor"]
    assert kept["tolerance"] == 0.1
    assert established(kept) == [
        Hypothesis("clipped-examples"), flag, Hypothesis("fresh-noise", "declared")
    ]  # fmt: skip
    assert established({"verified": ["public-rows"]}) == [
        Hypothesis("public-rows")
    ]  # as version 0.1.0 wrote it
    found = of_claim("certificate", kept, [STEPS], "replace", DELTA, committed=False)
    assert found.reading == "odometer"
    assert found.unverified == ("data-free-steps", "data-free-schedule")
    with pytest.raises(InputError, match="established by"):
        claim("istdp", [Hypothesis("fresh-noise", "hearsay")])


def test_leakage_is_listed_and_not_added():
    found = said("certificate", [STEPS, Leakage(0.3, "the label")], "replace", "istdp")
    assert found.epsilon == epsilon([STEPS], DELTA, "replace")
    assert found.listed == ("0.3 nats about the label",)


@given(st.floats(1e-9, 1e9), st.integers(2, 6))
@settings(deadline=None, max_examples=50)
def test_bounds_are_printed_to_the_safe_side(value, digits):
    slack = 1.01 * 10.0 ** (1 - digits)
    assert value <= float(rounded_up(value, digits)) <= value * (1 + slack)
    assert value * (1 - slack) <= float(rounded_down(value, digits)) <= value
    assert rounded_down(0.0, digits) == "0"


@pytest.mark.parametrize(
    "bad",
    [
        lambda: said("promise", STEPS, "replace", "istdp"),
        lambda: said("certificate", STEPS, "replace", "funnel"),
        lambda: said("certificate", STEPS, "label", "istdp"),
        lambda: said("certificate", STEPS, "replace", "istdp", ["good-will"]),
        lambda: said("certificate", STEPS, "replace", "istdp", [Hypothesis("fresh-noise", "me")]),
    ],
)
def test_bad_requests(bad):
    with pytest.raises(InputError):
        bad()


SHARED = ["--data", "tiny", "--split", "15,15", "--epsilon", "4", "--row-norm", "3", "--observe", "none"]
OUTPUT = [
    "--data",
    "tiny",
    "--topology",
    "er5",
    "--algorithm",
    "admm",
    "--mechanism",
    "output",
    "--iterations",
    "2",
]


VECTORS = ["--data", "tiny", "--split", "10,10,10", "--epsilon", "8", "--rounds", "2", "--observe", "none"]
GRAPH = [*OUTPUT[:4], "--iterations", "4", "--eta", "20", "--observe", "none"]
MASKED = ["--data", "tiny", "--topology", "er5", "--algorithm", "masked", "--epsilon", "8", "--anyway"]
FORMS = {  # programme, flags, words of its sentences, hypotheses that its ledgers name
    "v1": (sharing, [*SHARED, "--mechanism", "v1"], ["All replies of the answering parties"], {"cut-rows"}),
    "v1-t": (sharing, [*SHARED, "--mechanism", "v1-t"], ["moments of several rounds"], {"own-term"}),
    "v1-admm": (sharing, [*SHARED, "--mechanism", "v1-admm"], ["moments of several rounds"], {"cut-rows"}),
    "v2": (
        sharing,
        [*SHARED, "--mechanism", "v2"],
        ["All replies", "Party 1's slopes"],
        {"bounded-curvature"},
    ),
    "s1": (sharing, [*VECTORS, "--mechanism", "s1"], ["at party level"], {"centred-regulariser"}),
    "s2": (sharing, [*VECTORS, "--mechanism", "s2"], ["All messages of all parties"], {"strong-convexity"}),
    "s3": (sharing, [*VECTORS, "--mechanism", "s3"], ["outside party 1"], {"strong-convexity"}),
    "output": (radmm, [*OUTPUT, "--alpha", "9"], ["each the minimiser under noise"], {"bounded-gradient"}),
    "gamma": (radmm, [*GRAPH, "--epsilon", "2"], ["All messages of all nodes"], {"one-signed-slope"}),
    "gaussian": (
        radmm,
        [*GRAPH, "--alpha", "0.05", "--noise", "gaussian"],
        ["All messages"],
        {"public-rows"},
    ),
    "mradmm": (radmm, [*GRAPH, "--algorithm", "mradmm", "--alpha", "2"], ["All messages"], {"free-domain"}),
    "masked": (radmm, [*MASKED, "--trust", "coalition:2"], ["any 2 of the 5 nodes"], {"fresh-masks"}),
    "gossip": (
        radmm,
        [*MASKED[:4], "--algorithm", "gossip", "--epsilon", "4"],
        ["All messages"],
        {"fresh-noise"},
    ),
    "istdp": (istdp, ["--data", "tiny", "--epsilon", "1"], ["The released iterates"], {"clipped-examples"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_private_form_is_spoken_of_alike_everywhere(form, tmp_path, capsys):
    """What a run's own code established is kept in each ledger; the end of the run, its model, `ledger show` and
    `ledger merge` say the one sentence and the one number that follow."""
    programme, flags, words, needed = FORMS[form]
    out = tmp_path / "r"
    assert programme.main([*flags, "--adjacency", "replace", "--rng", "secure", "--out", str(out)]) == 0
    ended = capsys.readouterr().out
    assert ledger.main(["show", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    runs = report["runs"]
    told = [run["sentence"] for run in runs]
    assert all("-DP" in each and "infinity" not in each for each in told)
    assert all(any(word in each for each in told) for word in words)
    headers = [json.loads(f.open().readline())["claim"] for f in sorted((out / "ledger").glob("*.jsonl"))]
    for header in headers:
        assert set(SCOPES[header["scope"]].hypotheses) <= set(header["verified"])
    assert needed <= {
        name for header in headers for name in (*SCOPES[header["scope"]].hypotheses, *header["verified"])
    }
    kept = json.loads((out / "model.json").read_text())["sentence"]
    assert all(each in kept for each in told)
    assert all(each in ended for each in told) or programme is radmm  # whose table has the number alone
    assert ("floating point" in report["not_covered"]) == (not all(run["float_exact"] for run in runs))
    # one run costs what it costs: shown, merged, and in its summary
    shown = [run["together"]["epsilon"] for run in runs]
    shutil.copytree(out, tmp_path / "copy")  # the same run once more
    assert ledger.main(["merge", str(out), str(tmp_path / "copy"), "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)["epsilon"]
    if form == "v2":  # a person who is at party 1 as well pays both
        assert max(shown) < merged < sum(shown)
    else:
        assert merged == pytest.approx(shown[0], rel=1e-9)
    spent = float(json.loads((out / "summary.json").read_text())["epsilon"])
    assert max(shown) <= spent * (1 + 1e-9)
    whole = merged if form == "v2" else max(shown)
    assert spent <= whole * 1.01 or form == "masked"  # a budget, known before the run


def test_no_number_stands_beside_what_nobody_established(tmp_path, capsys):
    """V2 needs a loss of curvature 1/4 at most, and Huber's is 1: no column, no sum and no summary says less."""
    out = tmp_path / "r"
    flags = [*SHARED, "--mechanism", "v2", "--loss", "huber", "--adjacency", "replace"]
    assert sharing.main([*flags, "--out", str(out)]) == 0
    assert "not verified: party 1's loss has curvature at most 1/4" in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["epsilon"] == "inf"
    assert "certificate" not in summary["statement"]
    assert ledger.main(["show", str(out / "ledger" / "node-0001.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "epsilon is infinite: not verified: party 1" in said
    (row,) = [line.split() for line in said.splitlines() if line.split()[:2] == ["1", "1"]]
    assert row[5:] == ["infinite", "0%", "unbounded"]
    assert "published infinite, epsilon infinite" in said
    for verb in ("show", "merge"):
        assert ledger.main([verb, str(out / "ledger" / "node-0001.jsonl")]) == 0
        assert "certificate" not in capsys.readouterr().out
    assert sharing.main(["predict", str(out), "--data", "tiny", "--release", "noise:2"]) == 2
    assert "no noise on scores has a price" in capsys.readouterr().err


@pytest.mark.parametrize("mechanism", ["v1", "v2"])
def test_scores_are_released_under_a_sentence_of_their_own(mechanism, tmp_path, capsys):
    """Two answering parties know a person, and party 1's share is exact, of which V2 has something to lose."""
    out = tmp_path / "r"
    flags = [*VECTORS[:6], "--mechanism", mechanism, "--observe", "none", "--adjacency", "replace"]
    assert sharing.main([*flags, "--epsilon", "4", "--out", str(out)]) == 0
    ask = ["predict", str(out), "--data", "tiny", "--scores", str(tmp_path / "s.csv"), "--release", "noise:2"]
    assert sharing.main(ask) == 0
    said = capsys.readouterr().out
    assert "each score is (2.954, 1e-05)-DP for the person scored, whose columns all answering" in said
    assert "Party 1's share is exact: nothing bounds what scores tell of its columns" in said
    assert ledger.main(["show", str(out / "ledger" / "scores"), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    if mechanism == "v1":
        assert "The shares of scores that the answering parties sent are (" in run["sentence"]
        assert "Party 1's share is exact" in run["sentence"]
    else:
        assert "exact scores of party 1's own model" in run["sentence"]
        assert math.isinf(float(run["together"]["epsilon"]))
    assert ledger.main(["merge", str(out)]) == 0
    assert (
        "infinite"
        in capsys.readouterr().out.partition("together")[2].partition("\n")[0].partition("epsilon")[2]
    ) == (mechanism == "v2")
