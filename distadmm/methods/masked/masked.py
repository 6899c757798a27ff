"""Masked consensus: in each iteration one sum over all nodes, noised once and masked, and the model made of it.

    squares, curvature, gradient, gradient, ...      `rule` says which, under which noise; `learner` what becomes of it
    evaluation                                       at last, with --evaluate: how good the model is on the same rows

Without --epsilon the same sums travel in the clear.
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.errors import number, require
from distadmm.flags import again, flag
from distadmm.methods.masked.learner import Ask, Learner, asks
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import NAMES, Rule, choose
from distadmm.problems.losses import LOSSES
from distadmm.run.ends import End
from distadmm.run.groups import Shared
from distadmm.structs import struct

_FEWER, _TOO_FEW = 1, 2  # after a round: nodes are gone; and too many are


class State(NamedTuple):
    """What every node was told; the same in every row."""

    f: Array  # models
    told: Array  # of each round tried: how many nodes its total came from; 0: it is lost
    fewer: Array  # of each round tried: whether nodes are gone after it
    tried: Array  # rounds
    totals: Array  # one after the other, in grid units
    filled: Array  # words of them
    left: Array  # whether there is another round


@register("masked")
@struct
class Masked:
    """Sums over a tree that travel masked: noise is added once, against any coalition of C nodes."""

    trust: str | None = again(Shared, "trust", note="; no default")
    min_roster: int | None = flag(
        None, help="the run ends when fewer nodes are left (default: N - N/10, rounded up)", at_least=1
    )
    peer_keys: str | None = flag(
        None, help="FILE of every node's signing key (python -m distadmm keys); own keys lie beside it"
    )
    rule: str = flag(
        "centred", help="learning rule: centred, or first, which needs more noise", choices=NAMES
    )
    ridge: float = flag(1 / 9, help="weight of |f|^2/2 beside the sum of all rows' losses", above=0)
    l1: str | None = flag(
        None,
        help="weight of |f|_1 beside the sum of all rows' losses, or auto: twice the noise of a coordinate",
    )
    evaluate: float | None = flag(
        None,
        help="epsilon for one more sum besides --epsilon: errors and losses of the model on the nodes' rows",
        above=0,
    )
    anyway: bool = flag(False, help="spend the budget even where nothing can be learnt from so few rows")

    tree: ClassVar[bool] = True
    matrix_free: ClassVar[bool] = False
    survives: ClassVar[bool] = True
    spectrum: ClassVar[bool] = False
    house: ClassVar[str] = "distadmm.methods.masked"

    def __post_init__(self) -> None:
        right = self.l1 in (None, "auto") or 0 < number(self.l1) < np.inf
        require(right, f"--l1 is {self.l1!r}; needed: auto, or a number above 0")

    def check(self, node: Node, iterations: int) -> None:
        conditions = node.tree.conditions
        require(
            conditions is None or (conditions.back == 0 and replace(conditions, leave=0.0).perfect),
            "--algorithm masked sums over a tree of the graph as it is: leave out --message-loss and graphs that "
            "change; nodes that drop out stay out: --drop-out LEAVE:0",
        )

    def claims_optimum(self, node: Node) -> bool:
        return False  # it has a ridge and weights of its own

    def ended(self, state: State) -> str:
        if state.left.any():
            return ""
        few = state.fewer[0, max(0, int(state.tried[0]) - 1)] == _TOO_FEW
        return End.ROSTER.word if few else End.ITERATIONS.word

    def rule_of(self, node: Node, **facts: Any) -> Rule:
        """The rule for this graph and these rows; `facts` holds what the budget says, if there is one."""
        objective = node.problem.objectives[0]
        loss = next((name for name, known in LOSSES.items() if known == getattr(objective, "loss", None)), "")
        outputs = getattr(objective, "classes", 1)
        known = {"adjacency": "replace", "colluding": node.network.n_nodes - 1, **facts}
        return choose(
            name=self.rule, loss=loss if outputs == 1 else "softmax", nodes=node.network.n_nodes, ridge=self.ridge,
            columns=node.problem.dimension // outputs, outputs=outputs, **known,
        )  # fmt: skip

    def init(self, node: Node) -> State:
        rule, here = self._rule(node), len(node.start)
        words = sum(map(rule.words, rule.kinds)) + rule.words("gradient")
        told = np.zeros((here, rule.most_rounds), dtype=np.int64)
        totals = np.zeros((here, words), dtype=np.int64)
        none = np.zeros(here, dtype=np.int64)
        return State(node.start, told, told, none, totals, none, np.ones(here, dtype=bool))

    def _rule(self, node: Node) -> Rule:
        if node.release.private:
            return node.release.rule  # type: ignore[attr-defined]
        require(node.tree.conditions is None, "--drop-out: sums in the clear need every node; add --epsilon")
        return node.recall("rule", 0, lambda: self.rule_of(node, rows=counted_rows(node)))

    def _learner(self, k: int, st: State, node: Node) -> Learner:
        """What the nodes of this rank know, who know the same."""

        def replayed() -> Learner:
            rule = self._rule(node)
            learner, at = Learner(rule), 0
            for roster, fewer in zip(*(row[0, : int(st.tried[0])].tolist() for row in (st.told, st.fewer))):
                if roster > rule.nodes:  # of an evaluation
                    learner.trained, roster = True, roster - rule.nodes
                ask = learner.ask()
                count = ask.words
                total = st.totals[0, at : at + count] * rule.grain(ask.kind) if roster else None
                learner.take(total, roster, fewer > 0)
                at += count if roster else 0
            return learner

        return node.recall("learner", k, replayed)

    def step(self, k: int, st: State, node: Node) -> State:
        learner, private = self._learner(k - 1, st, node), node.release.private
        rule, release = learner.rule, cast(Any, node.release)
        while private and learner.tried < release.round:  # begun before a resume, and never finished
            learner.take(None, 0)
            release.lost += 1
        if private and release.evaluated:
            learner.evaluated = True
        if private and not learner.trained:  # an evaluation keeps its part of the budget
            last = asks(rule)[-1:] * (not learner.evaluated)
            learner.trained = not release.affords(learner.ask(), *last)
        ask, roster = learner.ask(), release.present if private else rule.nodes
        if learner.done or (private and not release.affords(ask)):
            return st._replace(left=np.zeros_like(st.left))
        values = np.stack([rows_sum(rows, ask, learner, self.l1) for rows in self._rows(node, rule)])
        if private:
            total = release.sum(ask, values, gone_at(k, node))
        else:
            release.expose(k, f"a sum in the clear ({ask.kind})")
            total = node.tree.sum(values)
        told, totals, filled, fewer = st.told.copy(), st.totals.copy(), int(st.filled[0]), st.fewer.copy()
        if private and release.present < roster:
            fewer[:, learner.tried] = _FEWER if release.enough else _TOO_FEW
        gone = int(fewer[0, learner.tried])
        if total is not None:
            told[:, learner.tried] = roster + rule.nodes * (ask.kind == "evaluation")
            totals[:, filled : filled + ask.words] = total
            filled += ask.words
        learner.take(None if total is None else total * rule.grain(ask.kind), roster, gone > 0)
        node.recall("learner", k, lambda: learner)
        f = np.broadcast_to(learner.model(self.l1).T.ravel(), st.f.shape).copy()
        left = np.full_like(st.left, not (learner.done or gone == _TOO_FEW))
        tried, filled_now = np.full_like(st.tried, learner.tried), np.full_like(st.filled, filled)
        return State(f, told, fewer, tried, totals, filled_now, left)

    def told(self, k: int, st: State, node: Node) -> dict[str, Any]:
        return {"evaluation": self._learner(k, st, node).told} if self.evaluate else {}

    def _rows(self, node: Node, rule: Rule) -> list[Rows]:
        """Those of the nodes here; each step that sums over them looks at them."""
        looks = [objective.records() for objective in node.problem.objectives]
        return node.recall("rows", 0, lambda: [Rows(X, y, rule, rule.bits) for X, y in looks])


def rows_sum(rows: Rows, ask: Ask, learner: Learner, sparsity: str | None = None) -> Array:
    """What one node adds to the sum that is asked; `sparsity` of a model that is evaluated."""
    if ask.kind == "squares":
        found = rows.squares()
    elif ask.kind == "curvature":
        found = rows.curvature(learner.scale, learner.rho)
    elif ask.kind == "evaluation":
        return rows.evaluation(learner.model(sparsity))
    elif ask.first:
        found = rows.first(learner.scale, learner.rho)
    else:
        found = rows.later(learner.scale, learner.rho, learner.w, ask.plain)
    return rows.cut_whole(ask.kind, found) if rows.rule.of_nodes else found


def gone_at(k: int, node: Node) -> list[int]:
    """The nodes here that have dropped out by iteration k, where drop-outs are tried out."""
    conditions = node.tree.conditions
    if conditions is None:
        return []
    return [i for i in node.network.nodes.tolist() if not conditions.present(k)[i]]


def counted_rows(node: Node) -> int:
    """How many rows all nodes have together; public where records are only ever replaced."""
    said = {
        int(i): int(objective.rows).to_bytes(8, "big")
        for i, objective in zip(node.network.nodes, node.problem.objectives)
    }
    return sum(int.from_bytes(count, "big") for count in node.tree.flood(said).values())
