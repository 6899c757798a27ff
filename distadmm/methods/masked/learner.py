"""From totals to a model: linearised consensus ADMM with a matrix penalty, whose state is what was summed.

    squares    s;  d_j = max(s_j, floor0 S0 nf), scale = d^-1/2, rho = sqrt(leverage max(1, sum clip(s/d, 0, 1))/n)
    curvature  H = h total;  nu = h S1 nf sqrt(2 d);  B = kappa (H_+ + floor1 nu I)
    gradient   L = ridge scale^2/rho^2;  w <- w - (B + L)^-1 (g + L w), and f = scale mean(later w)/rho

With penalty Q = B/N: x_i = argmin of O_i linearised at z + |x - z + u_i|_Q^2/2, z <- (B + L)^-1 sum Q (x_i + u_i),
u_i <- u_i + x_i - z.  Where columns are many there is no curvature: B = base I, and steps have momentum.

Everything here is a function of released totals: it may be changed without touching any proof.
"""

import math
from typing import NamedTuple

import numpy as np

from distadmm.methods.masked.rule import Array, Rule


class Ask(NamedTuple):
    """The next sum; every node works it out from what it was told."""

    kind: str
    words: int
    t: int = 0  # of a gradient, where it stands in the schedule of noise
    first: bool = False  # sum phi r(0)'
    plain: bool = False  # a whole gradient, not centred on the first


def asks(rule: Rule) -> list[Ask]:
    """The sums of a run in which no round is lost."""
    found = [Ask(kind, rule.words(kind)) for kind in rule.kinds if kind in ("squares", "curvature")]
    words = rule.words("gradient")
    found += [Ask("gradient", words, t, t == 0) for t in range(rule.rounds + 1)]
    return [*found, Ask("evaluation", rule.words("evaluation"))] if rule.evaluation else found


class Learner:
    """What a node knows after some rounds."""

    def __init__(self, rule: Rule):
        d, m = rule.columns, rule.outputs
        self.rule = rule
        self.scale, self.rho = np.ones(d), 1.0
        self.w, self.moving = np.zeros((d, m)), np.zeros((d, m))
        self.iterates: list[Array] = []
        self.centre: Array | None = None  # g_0, of the roster that is there
        self.plain = False  # g_0 is lost, and there is no budget for another one
        self.tried, self.gradients = 0, 0
        self.trained = False  # no further round of training
        self.evaluation: tuple[Array, int] | None = None  # its total, and of how many nodes
        self.evaluated = not rule.evaluation  # whether that was tried, or is not wanted: it is asked once
        self._squares, self._curvature = not rule.squares, not rule.curvature
        self._set_step(None)

    @property
    def done(self) -> bool:
        """As many gradients as were planned, or as many rounds tried; and the model evaluated, where it is to be."""
        return self.trained and self.evaluated

    def ask(self) -> Ask:
        rule = self.rule
        if self.trained:
            return Ask("evaluation", rule.words("evaluation"))
        if not self._squares:
            return Ask("squares", rule.words("squares"))
        if not self._curvature:
            return Ask("curvature", rule.words("curvature"))
        first = not (self.plain or self.iterates)
        t = 0 if first else max(1, self.gradients)
        return Ask("gradient", rule.words("gradient"), t, first, self.plain)

    def take(self, total: Array | None, roster: int, fewer: bool = False) -> None:
        """A total, in units of 1, over so many nodes, or nothing; `fewer`: some of them are gone since.

        The centre of the gradients belongs to the roster that it came from, and half of their budget went into it:
        what is left does not pay for another one, also where it never came.
        """
        ask = self.ask()
        if total is None:
            pass
        elif ask.kind == "squares":
            self._take_squares(total, roster)
        elif ask.kind == "curvature":
            self._take_curvature(total, roster)
        elif ask.kind == "gradient":
            self._take_gradient(ask, total.reshape(self.w.shape))
        else:
            self.evaluation = total, roster
        lost = fewer or (ask.first and total is None and not self.rule.of_labels)
        if lost and self.rule.centre and ask.kind == "gradient":
            self.centre, self.plain = None, True
        self._count()

    def _count(self) -> None:
        """A round was tried; the evaluation is tried once."""
        self.evaluated = self.evaluated or self.trained
        self.tried += 1
        training = self.rule.most_rounds - bool(self.rule.evaluation)
        self.trained = self.trained or self.gradients > self.rule.rounds or self.tried >= training

    def _take_squares(self, s: Array, roster: int) -> None:
        rule = self.rule
        floor = rule.floor0 * rule.unit("squares") * rule.sd("squares") * rule.excess(roster)
        d = np.maximum(s, floor or (1.0 if rule.of_labels else 1e-9))
        self.scale = 1 / np.sqrt(d)
        share = float(np.clip(s / d, 0, 1).sum())
        self.rho = math.sqrt(rule.leverage * max(1.0, share) / rule.rows)
        self._squares = True
        self._set_step(None)

    def _take_curvature(self, total: Array, roster: int) -> None:
        rule, d = self.rule, self.rule.columns
        H = np.zeros((d, d))
        H[np.triu_indices(d)] = rule.height * total
        self.H = H + np.triu(H, 1).T
        level = rule.unit("curvature") * rule.sd("curvature") * rule.excess(roster)
        self.nu = rule.height * level * math.sqrt(2 * d)
        values, vectors = np.linalg.eigh(self.H)
        raised = np.maximum(values, 0.0) + rule.floor1 * self.nu
        self._curvature = True
        self._set_step(rule.kappa * (vectors * raised) @ vectors.T)

    def _set_step(self, B: Array | None) -> None:
        """P = B + L; a vector where it is diagonal."""
        self.L = self.rule.ridge * self.scale**2 / self.rho**2 + self.rule.extra_ridge
        self.P = self.rule.base + self.L if B is None else B + np.diag(self.L)

    def _take_gradient(self, ask: Ask, total: Array) -> None:
        rule = self.rule
        if rule.outputs > 1:  # slopes of several classes add up to nothing, and so should their noise
            total = total - total.mean(axis=1, keepdims=True)
        if ask.first:
            self.centre = total
        g = total if ask.first or self.centre is None else total + rule.centre * self.centre
        slope = g + self.L[:, None] * self.w
        step = slope / self.P[:, None] if self.P.ndim == 1 else np.linalg.solve(self.P, slope)
        self.moving = rule.momentum * self.moving - step
        self.w = self.w + self.moving
        self.iterates.append(self.w)
        self.gradients += 1

    @property
    def mean(self) -> Array:
        """Of the later half of the iterates."""
        t = len(self.iterates)
        return np.mean(self.iterates[t - max(1, t // 2) :], axis=0) if t else self.w

    @property
    def told(self) -> dict[str, float]:
        """What the evaluation says: shares of wrong rows and mean loss, each with the spread of its noise."""
        if self.evaluation is None:
            return {}
        rule, (total, roster) = self.rule, self.evaluation
        rows, most = rule.rows * roster / rule.nodes, rule.most_loss
        spread = rule.sd("evaluation") * rule.excess(roster) / rows
        found = {"rows": round(rows), "cut": most, "loss": float(np.clip(most * total[-1] / rows, 0, most))}
        found["loss_spread"] = most * spread
        if len(total) > 1:
            found |= {"error": float(np.clip(total[0] / rows, 0, 1)), "error_spread": spread}
        return found

    def model(self, sparsity: str | None = None) -> Array:
        """f, one column an output; `sparsity`: weight of |f|_1, or auto, where it is wanted."""
        mean = self.mean
        if sparsity is not None and self.iterates:
            own = self.noise_level if sparsity == "auto" else float(sparsity) * self.scale / self.rho
            mean = self._sparse(mean, np.broadcast_to(own, self.scale.shape))
        return self.scale[:, None] * mean / self.rho

    @property
    def noise_level(self) -> float:
        """Of |w|_1, in scaled coordinates: twice the largest noise of an averaged gradient."""
        rule = self.rule
        spread = 0.854 * 1.4 * math.sqrt(2 * math.log(max(2, rule.columns))) / rule.mu
        return 2 * spread * rule.excess(rule.nodes)

    def _sparse(self, mean: Array, weight: Array) -> Array:
        """argmin |w - mean|_P^2/2 + sum_j weight_j |w_j|, by 200 accelerated steps."""
        P = np.diag(self.P) if self.P.ndim == 1 else self.P
        length = 1.0 / float(np.linalg.eigvalsh(P)[-1])
        level = (length * weight)[:, None]
        w = y = mean
        t = 1.0
        for _ in range(200):
            moved = y - length * (P @ (y - mean))
            new = np.sign(moved) * np.maximum(np.abs(moved) - level, 0.0)
            t, before = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
            y = new + (before - 1) / t * (new - w)
            w = new
        return w
