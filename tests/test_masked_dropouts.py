"""Nodes that drop out of a masked run: what is paid, what is sent, and who goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.sums import Sums
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.ledger import chain
from distadmm.privacy.noise.masks import Member
from distadmm.ranks.tree import Tree
from distadmm.ranks.world import World
from tests.common import whole_and_parted
from tests.test_masked import RUN, rule

FLAGS: dict[str, Any] = {**RUN, "topology": "er20", "drop_out": "0.02:0", "min_roster": 12, "seed": 3}
BUDGET = gaussian.mu_at(8.0, 1e-5) ** 2


def charged(run: Path, node: int) -> list[dict[str, Any]]:
    entries = chain.read(run / "ledger" / f"node-{node:04d}.jsonl").entries
    return [e for e in entries if e["kind"] == "charge"]


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes, int, int]]:
    """(node, session, round, size of the roster) of every vector that is made."""
    sent, masked = [], Member.masked

    def kept(self: Member, values: Any) -> Any:
        sent.append((self.id, self.session, self.r, len(self.roster)))
        return masked(self, values)

    monkeypatch.setattr(Member, "masked", kept)
    return sent


def test_what_is_sent_is_paid_and_nothing_is_sent_twice(
    tmp_path: Path, capsys: Any, vectors: list[tuple[int, bytes, int, int]]
) -> None:
    run = radmm.solve("masked", **FLAGS, out=tmp_path / "run")
    assert np.isfinite(run.models).all()
    assert run.history[-1].test_error < 0.15
    assert len(set(vectors)) == len(vectors)
    assert len({v[:3] for v in vectors}) == len(vectors)
    sizes = [size for *_, size in vectors]
    assert sizes == sorted(sizes, reverse=True)  # rosters only shrink
    assert (sizes[0], sizes[-1]) == (20, 18)
    for node in range(20):
        paid = charged(run.path, node)
        assert {r for i, _, r, _ in vectors if i == node} <= {e["params"]["round"] for e in paid}
        assert [e["params"]["round"] for e in paid] == list(range(15))
        assert sum(e["mu2"] for e in paid) <= BUDGET
        for e in paid:  # shares of the roster that was there
            assert e["params"]["shares"] == e["params"]["roster"] - 2
    assert capsys.readouterr().out == ""


def test_too_few_nodes_end_the_run_with_the_model_so_far(
    tmp_path: Path, vectors: list[tuple[int, bytes, int, int]]
) -> None:
    run = radmm.solve("masked", **{**FLAGS, "min_roster": 19}, out=tmp_path / "run")
    assert run.ended == "too few nodes"
    assert min(size for *_, size in vectors) >= 19
    last = max(r for _, _, r, _ in vectors)
    assert run.iterations == last + 1 < 15
    assert max(e["params"]["round"] for e in charged(run.path, 0)) == last
    assert np.any(run.models != 0)


def test_a_graph_that_falls_apart_ends_the_run_and_nothing_more_is_sent(
    tmp_path: Path, vectors: list[tuple[int, bytes, int, int]]
) -> None:
    """A star whose hub leaves in the fourth round: five nodes that no edge joins are no roster of two."""
    star = {**FLAGS, "topology": "star:6", "drop_out": "0.04:0", "min_roster": 2, "seed": 1}
    run = radmm.solve("masked", **star, out=tmp_path / "run")
    assert (run.ended, run.iterations) == ("too few nodes", 4)
    assert 0 not in {i for i, _, r, _ in vectors if r == 3}
    assert {size for *_, size in vectors} == {6}
    for node in range(6):
        assert [e["params"]["round"] for e in charged(run.path, node)] == list(range(4))


def test_gradients_that_lost_their_centre_are_whole_ones_at_the_same_price() -> None:
    of = rule()
    learner = Learner(of)
    learner._squares = learner._curvature = True
    learner.take(np.ones(4), 20)
    centred = learner.ask()
    learner.take(None, 0)
    assert learner.ask() == centred
    learner.take(None, 0, True)
    whole = learner.ask()
    assert (whole.first, whole.plain, whole.t) == (False, True, centred.t)
    assert of.moved("gradient", plain=True) == 2 * 0.7
    prices = [
        of.moved("gradient", plain=ask.plain) ** 2
        / (of.variance("gradient", ask.t, ask.plain) - of.lattice("gradient"))
        for ask in (centred, whole)
    ]
    np.testing.assert_allclose(*prices, rtol=1e-12)
    before = Learner(of)
    before.take(None, 0, True)  # nothing was centred yet
    assert not before.plain
    never = Learner(of)
    never._squares = never._curvature = True
    never.take(None, 0)  # half of the gradients' budget is gone, and no node
    assert never.ask() == whole


@pytest.mark.mpi(min_size=2, sizes=[3])
def test_the_same_bits_on_ranks_and_after_a_resume_without_those_who_left(
    world: World, shared_path: Path
) -> None:
    whole, parted = whole_and_parted(world, shared_path, 12, **FLAGS)
    if world.is_root:
        one, two = (read_npz(folder / "models.npz")["models"] for folder in (whole, parted))
        assert np.array_equal(one, two)
        paid = charged(parted, 0)
        rosters = [e["params"]["roster"] for e in paid]
        assert rosters[0] > rosters[11] >= rosters[12]  # a new session does not bring them back
        assert len({e["params"]["session"] for e in paid}) == 2


@pytest.mark.mpi(min_size=2, sizes=[3])
def test_what_the_library_refuses_is_an_exception_and_not_the_end(world: World) -> None:
    """Where the library survives a rank that died, the others hear of it in this way alone."""
    with pytest.raises(Exception, match="rank"):
        world.comm.send(b"", dest=world.size)


def test_lies_about_rosters_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roster with an invented node, or one that grows again, ends the run; nothing is sent under it."""
    without = Tree.without
    for lie in (lambda left: [*left, 77], lambda left: list(range(20)) if len(left) < 19 else left):

        def told(self: Tree, nodes: Any, lie: Any = lie) -> list[int]:
            return lie(without(self, nodes))

        monkeypatch.setattr(Tree, "without", told)
        monkeypatch.setattr(Sums, "present", property(lambda self: 10**6))  # also where sizes say nothing
        with pytest.raises(InputError, match="no part of the one before"):
            radmm.solve("masked", **FLAGS)
