"""Masked sums: what one record can move, what masks are bound to, what is claimed, and whole runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.commands import account as account_command
from distadmm.commands import keys as keys_command
from distadmm.commands import ledger as ledger_command
from distadmm.errors import BudgetExhausted, InputError
from distadmm.files import read_npz
from distadmm.methods.masked import private, rows
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule, choose, diagonal
from distadmm.privacy.accounting import accountant, gaussian, masked_statements, scopes
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian, factor, table
from distadmm.privacy.accounting.trust import CENTRE, Trust
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.account import Account, standing
from distadmm.privacy.ledger.filter import GaussianFilter
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise import masks, signing
from distadmm.privacy.noise.sources import Simulation
from distadmm.ranks.world import World
from distadmm.run import model, shell
from distadmm.run.setup import prepare
from distadmm.testing import contracts
from tests.common import whole_and_parted

LOSSES = [("logistic", "centred", 1), ("logistic", "first", 1), ("squared", "centred", 1), ("huber", "centred", 1),
          ("softmax", "centred", 3)]  # fmt: skip
RUN: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "epsilon": 8.0, "adjacency": "replace", "trust": "coalition:2",
    "rng": "simulation", "anyway": True,
}  # fmt: skip


def rule(loss: str = "logistic", name: str = "centred", outputs: int = 1, **change: Any) -> Rule:
    known: dict[str, Any] = {
        "adjacency": "replace", "nodes": 20, "colluding": 5, "rows": 40000, "columns": 4, "mu": 0.3, **change
    }  # fmt: skip
    return choose(name=name, loss=loss, outputs=outputs, **known)


# -- sensitivities ------------------------------------------------------------------------------------


def target(loss: str, stream: np.random.Generator) -> float:
    return {"softmax": float(stream.integers(3)), "squared": stream.uniform(-1, 1)}.get(loss, 1.0)


@settings(max_examples=150, deadline=None)
@given(
    case=st.sampled_from(LOSSES), seed=st.integers(0, 10**6), hostile=st.sampled_from([1e-9, 1.0, 50.0, 1e12])
)
def test_no_record_moves_a_sum_by_more_than_is_charged(
    case: tuple[str, str, int], seed: int, hostile: float
) -> None:
    """Whatever totals said before: any scale, rho and w, and rows of any length; opposite ones most of all."""
    loss, name, outputs = case
    of, stream = rule(loss, name, outputs), np.random.default_rng(seed)
    x = stream.normal(size=4) * 10.0 ** stream.uniform(-3, 3)
    other = [-x, stream.normal(size=4), x + 1e-3, np.zeros(4)][stream.integers(4)]
    y = target(loss, stream)
    y_other = y if stream.integers(2) else target(loss, stream)
    learner = Learner(of)
    learner.scale = np.exp(stream.normal(size=4)) * hostile
    learner.rho = float(np.exp(stream.normal())) * hostile ** stream.integers(-1, 2)
    learner.w = stream.normal(size=(4, outputs)) * hostile
    one, two = (Rows(row[None], np.array([t]), of, of.bits) for row, t in ((x, y), (other, y_other)))
    weight = np.where(diagonal(4), 1.0, 2.0)  # off the diagonal the noise has half the variance
    for kind in ("squares", "curvature", "first", "later", "plain"):
        kept = kind in ("squares", "curvature")
        ask = learner.ask()._replace(
            kind=kind if kept else "gradient", first=kind == "first", plain=kind == "plain"
        )
        a, b = (rows_sum(each, ask, learner).astype(float) * 4.0**-of.bits for each in (one, two))
        norm = weight if kind == "curvature" else np.ones(len(a))
        assert math.sqrt((norm * (a - b) ** 2).sum()) <= of.moved(ask.kind, ask.first, ask.plain)
        alone = rule(loss, name, outputs, adjacency="add-remove")
        assert math.sqrt((norm * a**2).sum()) <= alone.moved(ask.kind, ask.first, ask.plain)


def test_the_bounds_are_tight_where_they_can_be() -> None:
    """Rows of length one: what is charged is what two of them reach, to within the grid."""
    of = rule()
    learner = Learner(of)
    e = np.eye(4)
    for kind, first, pair in (
        ("squares", False, e[:2]),
        ("curvature", False, e[:2]),
        ("gradient", True, [e[0], -e[0]]),
    ):
        ask = learner.ask()._replace(kind=kind, first=first)
        a, b = (rows_sum(Rows(x[None], np.ones(1), of, of.bits), ask, learner) * 4.0**-of.bits for x in pair)
        assert np.linalg.norm(a - b) > of.moved(kind, first) * 0.99
    learner.w = np.array([[40.0], [0], [0], [0]])
    ask = learner.ask()._replace(kind="gradient", first=False)
    a, b = (
        rows_sum(Rows(x[None], np.ones(1), of, of.bits), ask, learner) * 4.0**-of.bits for x in (e[0], -e[0])
    )
    assert np.linalg.norm(a - b) <= of.moved("gradient")
    assert np.linalg.norm(a) > 0.99 * of.slope


def test_a_sum_is_the_same_for_any_deal_of_the_rows() -> None:
    of, stream = rule(), np.random.default_rng(0)
    X, learner = stream.normal(size=(60, 4)), Learner(of)
    learner.scale, learner.rho, learner.w = np.full(4, 0.3), 0.7, stream.normal(size=(4, 1))
    learner._squares = learner._curvature = True
    for ask in (learner.ask(), learner.ask()._replace(first=False)):
        deals = [np.split(X, [20, 40]), np.split(X[::-1], [1]), [X], [X[::2], X[1::2]]]
        sums = [
            sum(rows_sum(Rows(p, np.ones(len(p)), of, of.bits), ask, learner) for p in deal) for deal in deals
        ]
        assert all(np.array_equal(sums[0], other) for other in sums)


def test_rows_are_kept_apart_and_a_dense_product_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert private.keeps_rows_apart(105)
    assert private.keeps_rows_apart(401)
    monkeypatch.setattr(rows, "_margins", lambda phi, w: phi @ w)
    assert not all(private.keeps_rows_apart(d) for d in (105, 120, 200))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    of = rule()
    with pytest.raises(InputError, match="not finite"):
        Rows(np.array([[0.1, bad, 0, 0]]), np.ones(1), of, of.bits)
    with pytest.raises(InputError, match="not all exactly"):
        Rows(np.full((1, 4), 0.1), np.array([1 + 1e-9]), of, of.bits)
    good = Rows(np.full((1, 4), 0.1), np.ones(1), of, of.bits)
    with pytest.raises(InputError, match="not finite"):
        good.later(np.ones(4), 1.0, np.full((4, 1), bad))
    with pytest.raises(InputError, match="not finite"):
        good.curvature(np.full(4, bad), 1.0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), reach=st.sampled_from([2**62, 2**40, 1]))
def test_hostile_totals_leave_a_model_and_rows_within_bounds(seed: int, reach: int) -> None:
    of, stream = rule(), np.random.default_rng(seed)
    learner, row = Learner(of), Rows(stream.normal(size=(3, 4)), np.ones(3), of, of.bits)
    while not learner.done:
        ask = learner.ask()
        rows_sum(row, ask, learner)
        learner.take(stream.integers(-reach, reach, size=ask.words) * 4.0**-of.bits, 20)
        phi = row._phi(learner.scale, learner.rho)
        assert np.einsum("ij,ij->i", phi, phi).max() <= 1.0
        assert np.isfinite(learner.w).all()


# -- masks --------------------------------------------------------------------------------------------


def agreed(n: int = 4, terms: bytes = b"terms", least: int = 2, degree: int = 0) -> dict[int, masks.Member]:
    keys = {i: masks.Group14(3**97 + i) for i in range(n)}
    publics, nonces = {i: key.public for i, key in keys.items()}, {i: bytes([i]) * 16 for i in range(n)}
    return masks.members_of(keys, publics, nonces, terms, degree, least)


def seen(members: dict[int, masks.Member], k: int) -> np.ndarray:
    """The sum of all vectors, of which only masks are left that did not cancel."""
    return np.sum(
        [m.masked(np.zeros(m.k, dtype=np.int64))[:k] for m in members.values()], axis=0, dtype=np.uint64
    )


def uniform(words: np.ndarray) -> bool:
    """Chi-square of the leading four bits; one in 10^5 uniform samples fails."""
    counts = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    return float(((counts - len(words) / 16) ** 2).sum() / (len(words) / 16)) < 47.0


def test_masks_cancel_in_the_whole_sum_and_in_no_part() -> None:
    members = agreed()
    for member in members.values():
        member.enter("gradient", 3000)
    vectors = [member.masked(np.arange(3000)) for member in members.values()]
    assert np.array_equal(sum(vectors[1:], vectors[0]).view(np.int64), 4 * np.arange(3000))
    assert all(uniform(vector) for vector in vectors)
    assert uniform(vectors[0] + vectors[1] + vectors[2])


OTHER = {
    "kind": lambda m: m.enter("squares", 3000),
    "length": lambda m: m.enter("gradient", 3001),
    "round": lambda m: m.enter("gradient", 3000, 4),
    "roster": lambda m: (m.accept_roster([0, 1, 2]), m.enter("gradient", 3000)),
    "total": lambda m: (setattr(m, "outcome", masks.outcome_of(np.ones(3))), m.enter("gradient", 3000)),
    "lost": lambda m: (setattr(m, "outcome", masks.LOST), m.enter("gradient", 3000)),
    "terms": None,
}


@pytest.mark.parametrize("what", OTHER)
def test_nodes_of_another_history_never_unmask_each_other(what: str) -> None:
    members = agreed()
    if what == "terms":
        members[1] = agreed(terms=b"other")[1]
    for i, member in members.items():
        change = OTHER[what] if i == 1 else None
        change(member) if change else member.enter("gradient", 3000)
    assert uniform(seen(members, 3000))


@pytest.mark.parametrize("lied", [False, True])
def test_a_node_that_alone_is_told_of_a_smaller_roster_is_not_unmasked(lied: bool) -> None:
    """Node 3 tells node 1 that it is gone, and takes off the words that it shares with the others."""
    members = agreed()
    liar = members.pop(3)
    if lied:
        members[1].accept_roster([0, 1, 2])
    for member in members.values():
        member.enter("gradient", 3000)
    left = seen(members, 3000)
    for member in members.values():
        if 3 in member.roster:
            left = left - masks.mask(liar.keys[member.id], liar.session, member.h, 3000)
    assert uniform(left) == lied
    assert lied or not left.any()


def test_a_member_does_nothing_twice_and_believes_no_roster() -> None:
    member = agreed(5, least=3)[2]
    with pytest.raises(InputError, match="no part of the one before"):
        member.accept_roster([0, 1, 2, 9])
    with pytest.raises(InputError, match="leaves it out"):
        member.accept_roster([0, 1, 3])
    with pytest.raises(InputError, match="names a node twice"):
        member.accept_roster([0, 1, 2, 2])
    member.accept_roster([0, 1, 2, 3])
    with pytest.raises(InputError, match="no part of the one before"):
        member.accept_roster([0, 1, 2, 3, 4])  # it never grows again
    with pytest.raises(InputError, match="at least 3"):
        member.accept_roster([1, 2])
    member.enter("squares", 3)
    with pytest.raises(InputError, match="no outcome"):
        member.enter("squares", 3)
    with pytest.raises(InputError, match="2 words for a round of 3"):
        member.masked(np.zeros(2))
    member.masked(np.zeros(3))
    with pytest.raises(RuntimeError, match="second vector"):
        member.masked(np.zeros(3))
    member.accept(np.array([1, 2, 3]))
    first = member.outcome
    member.accept(np.array([4, 5, 6]))
    assert member.outcome == first  # the first one counts
    with pytest.raises(InputError, match="never entered twice"):
        member.enter("squares", 3, 0)


@pytest.mark.parametrize(("n", "colluding", "least"), [(201, 5, 190), (300, 0, 300), (1000, 50, 900)])
def test_masks_of_large_graphs_outlast_those_who_collude_and_those_who_go(
    n: int, colluding: int, least: int
) -> None:
    near = masks.mask_neighbours(range(n), masks.mask_degree(n, colluding, least))
    assert min(map(len, near.values())) > colluding + n - least


@pytest.mark.parametrize("suite", ["group", "curve"])
def test_keys_that_are_none_are_refused(suite: str) -> None:
    key = masks.Group14(2**200 + 5) if suite == "group" else masks.X25519()
    size = len(key.public)
    one = bytes(size - 1) + b"\1" if suite == "group" else b"\1" + bytes(size - 1)  # of small order
    for public in (bytes(size), one, b"\xff" * size if suite == "group" else bytes(3)):
        with pytest.raises(InputError, match="key"):
            key.shared(public)
    keys = {i: key for i in range(2)}
    with pytest.raises(InputError, match="one and the same public key"):
        masks.members_of(keys, {0: key.public, 1: key.public}, {0: b"a", 1: b"b"}, b"", 0, 1)


def test_both_ends_of_a_curve_find_one_key() -> None:
    a, b = masks.X25519(), masks.X25519()
    assert a.shared(b.public) == b.shared(a.public)


@given(n=st.integers(3, 16), degree=st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_harary_graphs_stay_connected(n: int, degree: int) -> None:
    import networkx as nx

    near = masks.mask_neighbours(range(n), degree)
    graph = nx.Graph([(i, j) for i, those in near.items() for j in those])
    assert nx.node_connectivity(graph) >= min(degree, n - 1)
    assert all(i in near[j] for i, those in near.items() for j in those)


# -- what is claimed ----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(data=st.data(), n=st.integers(2, 30))
def test_the_table_bounds_every_way_of_dropping_nodes(data: Any, n: int) -> None:
    c, least = data.draw(st.integers(0, n - 2)), data.draw(st.integers(1, n))
    others = data.draw(st.integers(0, n - 1))
    bound = factor(others, n, c, least)
    rosters = [n]
    for _ in range(8):  # adversaries drop whom they like, and one honest node holds the record
        rosters.append(data.draw(st.integers(max(least, 1), rosters[-1])))
        honest = max(1, rosters[-1] - others)
        assert max(1, rosters[-1] - c) / honest <= bound * (1 + 1e-12) or rosters[-1] <= others
    assert factor(n - 1, n, c, least) == pytest.approx(n - c)
    assert factor(c, n, c, least) >= 1
    assert table(0.3, 1e-5, n, n - 1, least) == {n - 1: gaussian.epsilon(0.3, 1e-5)}  # one row without masks


@pytest.mark.parametrize("name", ["first", "centred"])
@pytest.mark.parametrize("colluding", [0, 5, 18, 19])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_a_run_meets_its_budget_and_nothing_more_is_admitted(
    name: str, colluding: int, adjacency: Any
) -> None:
    mu = gaussian.mu_at(1.0, 1e-5)
    of = rule(name=name, colluding=colluding, mu=mu, columns=105, adjacency=adjacency)
    ledger = MemoryLedger(
        adjacency=adjacency, mode="secure", trust=f"coalition:{colluding}",
        budget=GaussianFilter(1.0, 1e-5, mu, exact=True),
    )  # fmt: skip
    learner = Learner(of)
    while not learner.done:
        ask = learner.ask()
        event = SharedDiscreteGaussian(
            int(of.share_variances(ask.kind, ask.t, 20)[0]), of.honest(20),
            of.moved(ask.kind, ask.first) * 4.0**of.bits, ask.kind, ask.words, colluding, 20, 18, 0,
            round=learner.tried,
        )  # fmt: skip
        ledger.charge(event, iteration=learner.tried)
        learner.take(np.zeros(ask.words), 20)
    spent = ledger.tally.spent.mu2
    assert mu**2 * (1 - 1e-6) < spent <= mu**2
    with pytest.raises(BudgetExhausted):
        ledger.charge(event, iteration=99)


def test_equal_sums_are_counted() -> None:
    event = SharedDiscreteGaussian(2**40, 15, 2.0**18, "gradient", 3, 5, 20, 18, 0)
    one, three = (accountant.epsilon([event] * n, 1e-5, "replace") for n in (1, 3))
    assert three == pytest.approx(gaussian.epsilon(event.gdp_mu("replace") * math.sqrt(3), 1e-5))
    assert one < three
    assert np.allclose(3 * event.rdp(adjacency="replace"), event.times(3).rdp(adjacency="replace"))


def test_the_schedule_that_the_account_is_told_is_the_budget() -> None:
    prepared = prepare(radmm.configure("masked", progress="none", **RUN), World())
    plan = private.plan_of(prepared)
    assert plan is not None
    assert 8 * (1 - 1e-6) < accountant.epsilon(list(plan.schedule.candidates), 1e-5, "replace") <= 8


def test_the_account_shows_the_table(capsys: Any) -> None:
    words = ["--mechanism", "masked", "--nodes", "20", "--adjacency", "replace", "--epsilon", "1"]
    assert account_command.main([*words, "--trust", "coalition:5", "--min-roster", "15"]) == 0
    table, _, said = capsys.readouterr().out.partition("\n\n")
    assert "(replace); held against any coalition of at most 5 others (coalition:5)" in said
    shown = dict(line.split() for line in table.splitlines()[1:])
    known = {0: 0.854, 5: 1.0, 6: 1.060, 8: 1.217, 10: 1.465, 15: 3.822, 18: 4.392, 19: 4.571}
    assert all(abs(float(shown[str(size)]) - epsilon) < 2e-3 for size, epsilon in known.items())
    assert account_command.main([*words, "--trust", "any"]) == 0
    assert len(capsys.readouterr().out.partition("\n\n")[0].splitlines()) == 2  # without masks one row
    assert account_command.main(words) == 2
    assert "needs --epsilon, --adjacency and --trust" in capsys.readouterr().err


def test_an_event_prices_each_coalition_as_the_table_does() -> None:
    event = SharedDiscreteGaussian(2**40, 15, 2.0**18, "gradient", 3, 5, 20, 18, 0)
    for others, share in ((5, 1.0), (0, factor(0, 20, 5, 18)), (10, factor(10, 20, 5, 18)), (19, 15.0)):
        found = event.against(Trust(others)).gdp_mu("replace")
        assert found == pytest.approx(event.gdp_mu("replace") * math.sqrt(share), rel=1e-12)
    assert event.against(CENTRE) == event.against(Trust(0))
    assert event.against(Trust(math.inf)) == event.against(Trust(19))
    bare = SharedDiscreteGaussian(2**40, 1, 2.0**18, "gradient", 3, 19, 20, 18, 0)  # without masks
    for trust in (CENTRE, Trust(0), Trust(10), Trust(19)):
        assert bare.against(trust).gdp_mu("replace") == pytest.approx(bare.gdp_mu("replace"), rel=1e-12)
    with pytest.raises(InputError, match="at least 2"):
        SharedDiscreteGaussian(2**15, 15, 2.0**18, "gradient", 3, 5, 20, 18, 0)


def test_shares_add_up_to_the_noise_that_is_priced() -> None:
    event = SharedDiscreteGaussian(2**20, 4, 1.0, "curvature", 820, 1, 5, 5, 0)
    drawn = np.array([event.sample(Simulation(0).at(0, 1, k)) for k in range(200)], dtype=float)
    for where, variance in ((diagonal(40), 1.0), (~diagonal(40), 0.5)):
        assert abs(drawn[:, where].var() / 2**20 / variance - 1) < 0.05


SUMS = {
    "nodes": 20, "coalition": 5, "least": 18, "mask_degree": 0, "mu": gaussian.mu_at(1.0, 1e-5), "rounds": 15,
    "hosted": 1, "pinned": False, "epsilon": 1.0, "delta": 1e-5,
}  # fmt: skip


@pytest.mark.parametrize("missing", ["", *scopes.SCOPES["masked"].hypotheses])
def test_a_hypothesis_that_nobody_established_is_named(missing: str) -> None:
    known = [name for name in scopes.SCOPES["masked"].hypotheses if name != missing]
    claim = scopes.claim("masked", known, sums=SUMS)
    said = masked_statements.of_masked("certificate", claim, [], "replace", 1e-5)
    if missing:
        assert (said.kind, said.epsilon, said.unverified) == ("unbounded", math.inf, (missing,))
        assert missing in said.text
    else:
        assert (said.kind, said.text) == ("certificate", SENTENCE)


SENTENCE = (
    "Everything that any 5 of the 20 nodes together see (the reader's own node counts as one), with all messages of "
    "the network and the model, is (1.000, 1e-05)-DP for replacing one record held by another node, for at most 15 "
    "masked sums within mu^2 = 0.07186; rounds lost on the way, whoever caused it, are paid for. Computational: key "
    "agreement, masks and hashes are assumed unbroken. The figure for 5 colluders assumes that nobody changed keys on "
    "the way. If somebody did: (4.572, 1e-05). Against all 19 other nodes: (4.572, 1e-05)-DP. Derivation not "
    "peer-reviewed. The owner of a rank sees all its nodes: any set of owners that together hold at most 5 nodes. "
    "Not covered: losses and diagnostics on private data, preprocessing, hyper-parameter choice, "
    "timing, aborts, nodes corrupted during the run."
)


def test_other_coalitions_have_other_sentences() -> None:
    def said(**change: Any) -> str:
        claim = scopes.claim("masked", scopes.SCOPES["masked"].hypotheses, sums={**SUMS, **change})
        return masked_statements.of_masked("certificate", claim, [], "replace", 1e-5).text

    assert "without masks: no assumption on any other node." in said(coalition=19)
    assert "Computational" not in said(coalition=19)
    assert "Against any one other node: (" in said(coalition=0)
    assert "one rank held up to 4 when the run began" in said(hosted=4)
    assert "Keys are pinned." in said(pinned=True)
    assert "is (1.0000, 1e-05)-DP for" in said(epsilon=0.01)  # what mu costs, whatever stands beside it
    spent = [SharedDiscreteGaussian(2**20, 1, 2.0**10, "gradient", 3, 5, 20, 18, 0)]
    claim = scopes.claim("masked", scopes.SCOPES["masked"].hypotheses, sums=SUMS)
    over = masked_statements.of_masked("certificate", claim, spent, "replace", 1e-5)
    assert over.epsilon == math.inf
    assert "more was charged than the budget" in over.text


def test_a_session_is_that_of_one_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    nonces = {i: bytes([i]) * 16 for i in range(3)}
    said = b"".join(i.to_bytes(4, "big") + nonces[i] for i in range(3))
    for suite in (b"", masks.X25519.suite, masks.Group14.suite):
        hashed = hashlib.sha256(b"distadmm secure-sum v2 session" + said + suite).digest()
        assert masks.session_of(nonces, suite) == hashed[:16]
    suites, named = [], masks.session_of
    monkeypatch.setattr(masks, "session_of", lambda n, suite: suites.append(suite) or named(n, suite))
    for change in ({}, {"rng": "secure"}, {"trust": "any"}):
        solved(**change, iterations=1)
    assert suites == [b"MODP-2048 HKDF-SHA256 SHAKE-256", b"X25519 HKDF-SHA256 SHAKE-256", b""]


def test_a_resume_in_the_same_session_is_refused_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine would that was copied, or put back with its source of randomness."""
    run = solved(out=tmp_path / "run", iterations=7, checkpoint_every=5)
    paid = [path.read_text().count('"kind":"charge"') for path in sorted(run.path.glob("ledger/node-*"))]
    monkeypatch.setattr(
        private, "drawn", lambda i, source, masked, resumes: masks.drawn(i, source, masked, 0)
    )
    monkeypatch.setattr(masks.Member, "masked", lambda self, values: pytest.fail("a vector was made"))
    options = radmm.PROGRAMME.read(["--resume", str(run.path), "--iterations", "100", "--progress", "none"])
    with pytest.raises(InputError, match="this session was there before") as error:
        shell.work(radmm.PROGRAMME, options, World())
    assert "\n" not in str(error.value)
    assert paid == [
        path.read_text().count('"kind":"charge"') for path in sorted(run.path.glob("ledger/node-*"))
    ]


# -- runs ---------------------------------------------------------------------------------------------


def solved(**change: Any) -> Any:
    return radmm.solve("masked", **{**RUN, **change})


def test_masks_change_no_bit_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    masked, others = solved().models, [solved(topology=spec).models for spec in ("ring:5", "star:5")]
    monkeypatch.setattr(masks, "mask", lambda key, session, h, k: np.zeros(k, dtype=np.uint64))
    assert all(np.array_equal(masked, other) for other in (*others, solved().models))


@pytest.mark.parametrize("rule", ["first", "centred"])
@pytest.mark.parametrize("trust", ["any", "coalition:0"])
def test_every_trust_has_its_run(rule: str, trust: str) -> None:
    run = solved(rule=rule, trust=trust, iterations=4)
    assert run.epsilon == 8.0
    assert run.statement == "simulation"
    assert np.isfinite(run.models).all()


def test_without_noise_the_same_sums_travel_in_the_clear_and_are_said_to() -> None:
    run = solved(epsilon=None, adjacency=None, iterations=40)
    assert run.epsilon == math.inf
    assert run.history[-1].test_error != run.history[0].test_error or run.iterations == 15
    assert run.ended == "iterations"


def test_a_real_run_is_certified_and_its_ledgers_say_the_table(tmp_path: Path, capsys: Any) -> None:
    run = solved(rng="secure", out=tmp_path / "run")
    assert (run.epsilon, run.statement) == (8.0, "certificate")
    assert run.messages == 15 * 2 * 4 or run.messages == 14 * 2 * 4
    assert ledger_command.main(["show", str(run.path)]) == 0
    assert run.summary["trust"] == model.read(run.path).told["trust"] == "coalition:2"
    shown = capsys.readouterr().out
    assert "Everything that any 2 of the 5 nodes together see" in shown
    assert "epsilon by size of coalition: 0: " in shown
    assert "float_exact: false" not in shown


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_the_same_bits_on_ranks_and_after_a_resume(world: World, shared_path: Path) -> None:
    flags = {key: value for key, value in RUN.items() if key not in ("data", "topology")}
    contracts.same_bits("masked", world, **flags)
    whole, parted = whole_and_parted(world, shared_path, 6, **RUN)
    if world.is_root:
        one, two = (read_npz(folder / "models.npz")["models"] for folder in (whole, parted))
        assert np.array_equal(one, two)
        charged = [
            e for e in chain.read(parted / "ledger" / "node-0000.jsonl").entries if e["kind"] == "charge"
        ]
        assert [e["params"]["round"] for e in charged] == list(range(len(charged)))
        assert len({e["params"]["session"] for e in charged}) == 2  # a new one since the resume
        assert len({e["params"]["transcript"] for e in charged}) == len(charged)


def test_rounds_after_the_last_checkpoint_are_lost_and_paid_for(tmp_path: Path, capsys: Any) -> None:
    run = solved(out=tmp_path / "run", iterations=7, checkpoint_every=5)
    options = radmm.PROGRAMME.read(["--resume", str(run.path), "--iterations", "100", "--progress", "none"])
    shell.work(radmm.PROGRAMME, options, World())
    assert "2 of 15 rounds were lost and are paid for." in capsys.readouterr().out
    charged = [
        e for e in chain.read(run.path / "ledger" / "node-0003.jsonl").entries if e["kind"] == "charge"
    ]
    assert [e["params"]["round"] for e in charged] == list(
        range(15)
    )  # no round twice, none beyond the schedule
    assert len({(e["params"]["session"], e["params"]["round"]) for e in charged}) == 15
    assert sum(e["mu2"] for e in charged) <= gaussian.mu_at(8.0, 1e-5) ** 2


@pytest.mark.parametrize("after", [3, 8])
def test_a_killed_run_goes_on_in_a_new_session_on_other_ranks(
    after: int, tmp_path: Path, mpiexec: list[str]
) -> None:
    """A real run on two ranks is killed at a round of no checkpoint's choice, and goes on in one process."""
    out = tmp_path / "run"
    flags = [
        f"--{name.replace('_', '-')}={value}" for name, value in RUN.items() if name not in ("rng", "anyway")
    ]
    command = [
        *mpiexec,
        "-n",
        "2",
        sys.executable,
        "-m",
        "distadmm.radmm",
        "--algorithm",
        "masked",
        "--anyway",
        *flags,
    ]
    command += ["--checkpoint-every", "3", "--out", str(out), "--account", str(tmp_path / "account")]
    job = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ledger, end = out / "ledger" / "node-0000.jsonl", time.monotonic() + 60
    saved = out / "checkpoint" / "latest.json"
    while time.monotonic() < end and not (
        saved.exists() and ledger.read_bytes().count(b'"kind":"charge"') > after
    ):
        time.sleep(0.01)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    spent = lambda: standing([*Account(tmp_path / "account").read().runs.values()], 1e-5).epsilon  # noqa: E731
    before = spent()
    options = radmm.PROGRAMME.read(["--resume", str(out), "--progress", "none"])
    assert shell.work(radmm.PROGRAMME, options, World()) == 0
    budget = gaussian.mu_at(8.0, 1e-5) ** 2
    for path in sorted((out / "ledger").glob("node-*.jsonl")):
        charged = [e for e in chain.read(path).entries if e["kind"] == "charge"]
        rounds = [e["params"]["round"] for e in charged]
        assert rounds == sorted(set(rounds))  # none is entered twice
        assert sum(e["mu2"] for e in charged) <= budget
        assert len({e["params"]["transcript"] for e in charged}) == len(charged)  # no masks are used again
    assert read_npz(out / "models.npz")["models"].shape == (5, 30)
    assert spent() == before  # the budget, and not what was charged besides


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Signing keys of five nodes, made by two owners who joined them."""
    one, two = (tmp_path_factory.mktemp("keys") / name for name in ("one", "two"))
    assert keys_command.main([str(one), "--make", "0-2"]) == 0
    assert keys_command.main([str(two), "--make", "3,4"]) == 0
    assert keys_command.main([str(one), "--join", str(two / "peers.json")]) == 0
    known = (one / "peers.json").read_bytes()
    assert keys_command.main([str(one), "--make", "5,3"]) == 2  # another owner's node
    assert (one / "peers.json").read_bytes() == known
    assert not list(one.glob("node-000[35].key"))
    for own in two.glob("*.key"):  # here one rank hosts all nodes
        (one / own.name).write_text(own.read_text())
    return one


def test_pinned_keys_are_checked_and_said(keys: Path, tmp_path: Path, capsys: Any) -> None:
    run = solved(peer_keys=str(keys / "peers.json"), iterations=1)
    assert any("Keys are pinned." in line for line in run.said)
    assert (keys / "node-0001.key").stat().st_mode & 0o077 == 0
    assert keys_command.main([str(keys), "--make", "1"]) == 2  # a node keeps its key
    assert keys_command.main([str(keys), "--make", "5-3"]) == 2
    assert keys_command.main([str(keys), "--make", "0-99999999999"]) == 2
    assert "has a key of node 1 already" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["another's key", "no key", "no key of its own", "not a file of keys"])
def test_keys_that_do_not_match_are_refused(how: str, keys: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(keys, mine)
    known = json.loads((mine / "peers.json").read_text())
    told = {
        "another's key": "does not belong to the key of node 2",
        "no key": r"has no key of node \[4\]",
        "no key of its own": "no private key",
        "not a file of keys": "is no file of signing keys",
    }[how]
    if how == "another's key":
        known["2"] = known["1"]
    if how == "no key":
        del known["4"]
    if how == "no key of its own":
        (mine / "node-0003.key").unlink()
    if how == "not a file of keys":
        known["0"] = "12"
    (mine / "peers.json").write_text(json.dumps(known))
    with pytest.raises(InputError, match=told):
        solved(peer_keys=str(mine / "peers.json"), iterations=1)


def test_a_forged_start_is_refused(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = signing.signature
    monkeypatch.setattr(
        signing,
        "signature",
        lambda path, i, public, session, h: sign(path, i, public, session, h if i else h[::-1]),
    )
    with pytest.raises(InputError, match=r"the start of nodes \[0\] is not signed"):
        solved(peer_keys=str(keys / "peers.json"), iterations=1)


def test_a_node_with_other_terms_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = masks.commitment
    monkeypatch.setattr(masks, "commitment", lambda terms, publics: committed(terms + b"!", publics))
    started = private._started

    def one_differs(members: Any, plan: Any, node: Any) -> dict[int, bytes]:
        return {**started(members, plan, node), 3: committed(plan.committed(), {})}

    monkeypatch.setattr(private, "_started", one_differs)
    with pytest.raises(InputError, match=r"nodes \[3\] start with other terms or keys"):
        solved(iterations=1)


@pytest.mark.parametrize("level", ["auto", "3.0"])
def test_sparse_models_are_what_they_minimise(level: str) -> None:
    of, stream = rule(columns=12), np.random.default_rng(1)
    learner = Learner(of)
    while not learner.done:
        ask = learner.ask()
        scale = {"squares": 9e3, "curvature": 50.0}.get(ask.kind, 300.0)
        learner.take(np.abs(stream.normal(size=ask.words)) * scale, 20)
    weight = learner.noise_level * np.ones(12) if level == "auto" else 3.0 * learner.scale / learner.rho
    w = (learner.model(level) * learner.rho / learner.scale[:, None])[:, 0]
    slope = learner.P @ (w - learner.mean[:, 0])
    moving = np.abs(w) > 1e-9
    np.testing.assert_allclose(slope[moving], -(weight * np.sign(w))[moving], rtol=1e-4, atol=1e-6)
    assert np.all(np.abs(slope[~moving]) <= weight[~moving] * (1 + 1e-6))
    assert solved(l1=level, iterations=5).models.shape == (5, 30)


BAD = {
    "--l1 is 'much'; needed: auto, or a number above 0": {"l1": "much"},
    "needed: JSON of node: 64 hexadecimal digits|no file": {"peer_keys": "nowhere.json"},
    "--trust is not given": {"trust": None},
    "--trust centre: masked sums have no centre": {"trust": "centre"},
    "needed: coalition:0 to coalition:4": {"trust": "coalition:5"},
    "choose any, coalition:C": {"trust": "coalition:-1"},
    "--min-roster is 6; needed: 1 to the 5 nodes": {"min_roster": 6},
    "nothing beats the base rate": {"anyway": False, "epsilon": 0.1},
    "has no --alpha": {"epsilon": None, "alpha": "1"},
    "has no --noise": {"noise": "gamma"},
    "has no --budget-epsilon": {"budget_epsilon": 1.0},
    "leave out --message-loss": {"message_loss": 0.1},
    "stay out: --drop-out LEAVE:0": {"drop_out": "0.1:0.5"},
    "--drop-out: sums in the clear need every node": {
        "epsilon": None,
        "adjacency": None,
        "drop_out": "0.1:0",
    },
    "has no rule of masked sums": {"loss": "smooth-hinge"},
    "--rule first is for the logistic loss": {"rule": "first", "loss": "huber"},
    "--adjacency add-remove needs --public-rows": {"adjacency": "add-remove"},
}


@pytest.mark.parametrize("told", BAD)
def test_bad_input_is_told_in_one_line(told: str) -> None:
    with pytest.raises(InputError, match=told.replace("(", r"\(")) as error:
        solved(**BAD[told])
    assert "\n" not in str(error.value)


def test_a_real_run_without_its_key_agreement_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "cryptography" else there(n, *a)
    )
    with pytest.raises(InputError, match=r"distadmm\[secure\]"):
        solved(rng="secure")
    assert solved(rng="secure", trust="any", iterations=1).statement == "certificate"
