"""Reference vectors of masked sums, replayed: hashes, masks, sums, drop-outs and the learning rule.

`python -m pytest tests/test_masked_vectors.py --vectors PLACE` replays the files of these schemas in a folder, or one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm.errors import InputError
from distadmm.methods.masked import private
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import SHRINK, Rule, choose
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.noise import masks, signing
from distadmm.ranks.tree import spanning
from tests.vector_files import BUNDLED, folder, load_all

NEAR = {"rtol": 1e-9, "atol": 1e-9}


def files(place: Any) -> tuple[list[Any], list[Any]]:
    """What a folder holds of either schema: whole protocols, and rules alone."""
    found = [content for content in load_all(place).values() if isinstance(content, dict)]
    return (
        [each for each in found if isinstance(each.get("cases"), list) and "tables" in each],
        [
            each
            for each in found
            if isinstance(each.get("cases"), dict) and "draws" in str(each["cases"])[:9999]
        ],
    )


@pytest.fixture(scope="module")
def protocols(request: pytest.FixtureRequest) -> list[Any]:
    found = files(folder(request.config))[0]
    if not found:
        pytest.skip(f"no vectors of masked sums in {folder(request.config)}")
    return found


def test_the_bundled_vectors_are_there() -> None:
    protocols, rules = files(BUNDLED)
    assert [len(each["cases"]) for each in (*protocols, *rules)] == [6, 3, 5]


class Replay:
    """One case: every node's member, rows and history, under the keys that the case gives."""

    def __init__(self, case: dict[str, Any]):
        self.case, n, d = case, case["nodes"], len(case["scales"])
        self.rule = choose(
            name="first", loss=case["loss"], adjacency=case["adjacency"], nodes=n, colluding=case["coalition"],
            rows=case["public_rows"], columns=d, mu=case["mu"], ridge=case["rule"]["ridge"],
        )  # fmt: skip
        plan = private.Plan(
            self.rule,
            case["epsilon"],
            case["delta"],
            case["mu"],
            case["min_roster"],
            case["mask_degree"],
            1,
            "",
            (),
            "",
        )
        self.publics = {int(i): bytes.fromhex(key) for i, key in case["public_keys"].items()}
        nonces = {int(i): bytes.fromhex(nonce) for i, nonce in case["nonces"].items()}
        assert masks.committed(plan.committed(), self.publics).hex() == case["commit_bytes"]
        secrets = case.get("secret_keys", {})
        keys = {
            i: masks.X25519(bytes.fromhex(secrets[str(i)])) if secrets else Given(i, case, self.publics)
            for i in range(n)
        }
        assert all(keys[i].public == self.publics[i] for i in range(n) if secrets)
        self.members = masks.members_of(
            keys, self.publics, nonces, plan.committed(), case["mask_degree"], case["min_roster"],
            masks=case["coalition"] < n - 1,
        )  # fmt: skip
        self.rows = []
        for x, y in zip(case["rows"], case["labels"]):
            x, y = np.array(x, dtype=float).reshape(-1, d), np.array(y)
            self.rows.append(Rows(x * y[:, None], np.ones(len(y)), self.rule, case["bits"]))
        self.learner = Learner(self.rule)


class Given:
    """Stands for a key agreement whose outcome the case states."""

    def __init__(self, i: int, case: dict[str, Any], publics: dict[int, bytes]):
        self.i, self.case, self.publics = i, case, publics

    def shared(self, public: bytes) -> bytes:
        (j,) = [j for j, key in self.publics.items() if key == public]
        return bytes.fromhex(self.case["shared_secrets"][f"{min(self.i, j)}-{max(self.i, j)}"])


def test_every_round_of_every_case(protocols: list[Any]) -> None:
    for case in (case for each in protocols for case in each["cases"]):
        play = Replay(case)
        members, learner, scale = play.members, play.learner, 4.0 ** -case["bits"]
        first = members[0]
        assert first.session.hex() == case["session"]
        keys = {f"{i}-{j}": key.hex() for i, m in members.items() for j, key in m.keys.items() if i < j}
        assert keys == case["keys"]
        history = [first.h.hex()]
        spent = 0.0
        for number, round_ in enumerate(case["rounds"]):
            ask, roster = learner.ask(), round_["roster"]
            assert (round_["r"], round_["kind"]) == (number, ask.kind)
            event = SharedDiscreteGaussian(
                max(int(play.rule.share_variances(ask.kind, ask.t, len(roster))[0]), 2**16),
                play.rule.honest(len(roster)), play.rule.moved(ask.kind, ask.first) * 4.0 ** case["bits"], ask.kind,
                ask.words, case["coalition"], case["nodes"], case["min_roster"], case["mask_degree"],
            )  # fmt: skip
            spent += event.gdp_mu(case["adjacency"]) ** 2
            for i in roster:
                members[i].enter(ask.kind, ask.words)
            history.append(members[roster[0]].h.hex())
            if round_.get("lost"):
                gone = case["drop"][str(number)]
                for i in roster:
                    members[i].accept(None)
                    left = [j for j in roster if j not in gone]
                    if i in left and len(left) < case["min_roster"]:
                        with pytest.raises(InputError, match="nodes are left; needed: at least"):
                            members[i].accept_roster(left)
                    elif i in left:
                        members[i].accept_roster(left)
                learner.take(None, 0, True)
                continue
            total = np.zeros(ask.words, dtype=np.uint64)
            for i in roster:
                values = rows_sum(play.rows[i], ask, learner)
                assert [str(v) for v in values] == round_["values"][str(i)]
                noise = np.array([int(v) for v in round_["noise"][str(i)]], dtype=np.int64)
                u = members[i].masked(values + noise)
                assert [str(v) for v in u] == round_["masked"][str(i)]
                total = total + u
            whole = total.view(np.int64)
            assert [str(v) for v in whole] == round_["total"]
            for i in roster:
                members[i].accept(whole)
            learner.take(whole * scale, len(roster))
        assert history == case["transcript"]
        assert learner.done == ("ended" not in case)  # else by its minimum roster
        np.testing.assert_allclose(spent, case["spent_mu_squared"], rtol=1e-9)
        np.testing.assert_allclose(learner.scale, case["scales"], **NEAR)
        np.testing.assert_allclose(learner.rho, case["radius"], **NEAR)
        np.testing.assert_allclose(learner.H, case["curvature"], **NEAR)
        np.testing.assert_allclose(learner.nu, case["nu"], **NEAR)
        np.testing.assert_allclose(learner.P, case["preconditioner"], **NEAR)
        np.testing.assert_allclose(np.array(learner.iterates)[:, :, 0], case["iterates"], **NEAR)
        np.testing.assert_allclose(learner.model()[:, 0], case["model"], **NEAR)


def _one_more(words: list[str]) -> None:
    words[-1] = str(int(words[-1]) + 1)


ALTERED: dict[str, Callable[[Any], None]] = {
    "a nonce": lambda case: case["nonces"].update({"0": "00" * 16}),
    "a share of noise": lambda case: _one_more(case["rounds"][0]["noise"]["0"]),
    "a row's value": lambda case: _one_more(case["rounds"][1]["values"]["0"]),
    "a masked word": lambda case: _one_more(case["rounds"][0]["masked"]["0"]),
    "a total": lambda case: _one_more(case["rounds"][0]["total"]),
    "epsilon": lambda case: case.update(epsilon=case["epsilon"] * 2),
    "the least roster": lambda case: case.update(min_roster=case["min_roster"] - 1),
    "a hash": lambda case: case["transcript"].__setitem__(-1, "00" * 32),
    "what was spent": lambda case: case.update(spent_mu_squared=case["spent_mu_squared"] * (1 + 1e-8)),
    "a coordinate": lambda case: case["model"].__setitem__(0, case["model"][0] + 1e-7),
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_case_is_noticed(what: str) -> None:
    case = files(BUNDLED)[0][0]["cases"][0]
    ALTERED[what](case)
    with pytest.raises(AssertionError):
        test_every_round_of_every_case([{"cases": [case]}])


def test_starts_are_signed_as_a_second_implementation_signs_them(
    protocols: list[Any], tmp_path: Path
) -> None:
    for case in (case for each in protocols for case in each["cases"] if "signing" in case):
        session, h_0 = bytes.fromhex(case["session"]), bytes.fromhex(case["transcript"][0])
        for node, known in case["signing"].items():
            public, signed = bytes.fromhex(known["public"]), bytes.fromhex(known["signature"])
            signing.own_key_path(tmp_path / signing.PEERS, int(node)).write_text(known["secret"])
            assert signing.signature(tmp_path / signing.PEERS, int(node), public, session, h_0) == signed
            assert signing.checks(public, signed, session, h_0)
            assert not signing.checks(public, signed, session, bytes(32))


def test_published_vectors_of_key_agreement_and_derivation() -> None:
    """RFC 7748, section 6.1, and RFC 5869, appendix A.1 (the first 32 of its 42 bytes)."""
    alice, bob = (
        masks.X25519(bytes.fromhex(secret))
        for secret in (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        )
    )
    assert alice.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    agreed = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert alice.shared(bob.public).hex() == bob.shared(alice.public).hex() == agreed
    derived = masks.hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert derived.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"


def test_trees_and_what_they_send(protocols: list[Any]) -> None:
    for case in (case for each in protocols for case in each["cases"]):
        near = [
            sorted({j for e in case["edges"] for j in e if i in e and j != i}) for i in range(case["nodes"])
        ]
        indptr = np.concatenate(([0], np.cumsum([len(row) for row in near])))
        indices = np.array([j for row in near for j in row])
        last = case["rounds"][-1]["roster"]
        assert {str(i): j for i, j in spanning(indptr, indices, last).parent.items()} == case["tree"]
        kept = [each for each in case["rounds"] if not each.get("lost")]
        assert case["messages"] == sum(2 * (len(each["roster"]) - 1) for each in kept)
        assert case["bytes"] == sum(2 * (len(each["roster"]) - 1) * 8 * len(each["total"]) for each in kept)


def test_tables_of_levels_and_a_resumed_history(protocols: list[Any]) -> None:
    for each in protocols:
        for line in each["tables"]["sigmas"]:
            mu = gaussian.mu_at(line["epsilon"], line["delta"])
            np.testing.assert_allclose(mu, line["mu"], rtol=1e-9)
            rule = choose(
                name="first", loss="logistic", adjacency=line["adjacency"], nodes=20, colluding=5, rows=40000,
                columns=105, mu=mu,
            )  # fmt: skip
            found = [rule.sd(kind) for kind in ("squares", "curvature", "gradient")]
            np.testing.assert_allclose(found, line["sigmas"], rtol=1e-9)
            assert rule.bits == line["bits"]
        if "resume" not in each["tables"]:
            continue
        case, again = each["cases"][0], each["tables"]["resume"]
        total = np.array([int(v) for v in case["rounds"][3]["total"]])
        outcome = masks.outcome_of(total)
        assert masks.state_of(bytes.fromhex(case["transcript"][4]), outcome).hex() == again["state"]
        member = masks.Member(0, b"", bytes.fromhex(again["new_h0"]), {}, again["roster"])
        member.outcome = b"\x03" + bytes.fromhex(again["state"])
        member.enter(again["kind"], again["words"], again["r"])
        assert member.h.hex() == again["h"]


def rule_of(name: str) -> Rule:
    """The rule of a case, whose branch is stated and not chosen by its forty rows."""
    loss = {"squared": "squared", "softmax3": "softmax"}.get(name, "logistic")
    rule = choose(
        name="centred", loss=loss, adjacency="replace", nodes=1, colluding=0, rows=40, columns=4,
        outputs=3 if loss == "softmax" else 1, mu=1 / SHRINK,
    )  # fmt: skip
    if name == "gram-scaled":
        return replace(rule, q0=0.03, q1=0.12)
    if name == "heavy-ball":
        base = 1.02 * 40 / (8 * 1.9)
        return replace(rule, q0=0.05, q1=0.0, rounds=16, kappa=0.0, floor1=0.0, momentum=0.9, base=base)
    return rule


def test_every_rule(request: pytest.FixtureRequest) -> None:
    found = files(folder(request.config))[1]
    if not found:
        pytest.skip("no vectors of rules")
    for X, name, case in ((each["X"], *named) for each in found for named in each["cases"].items()):
        X, y = np.array(X), np.array(case["y"], dtype=float)
        rule = rule_of(name)
        labels = rule.loss == "logistic"
        rows = Rows(X * y[:, None] if labels else X, np.ones(len(y)) if labels else y, rule, None)
        learner, draws = Learner(rule), iter(case["draws"])
        for draw in draws:
            ask = learner.ask()
            noise = np.array(draw).ravel()
            if ask.kind == "curvature":
                square = np.triu(np.array(draw), 1) / np.sqrt(2) + np.diag(next(draws))
                noise = square[np.triu_indices(4)]
            learner.take(rows_sum(rows, ask, learner) + rule.sd(ask.kind, ask.t) * noise, 1)
        assert learner.done
        np.testing.assert_allclose(learner.model(), np.reshape(case["model"], (4, -1)), **NEAR)
