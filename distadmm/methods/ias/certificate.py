"""Is it the global optimum?  An upper bound on F, the mappings it shows to be missed, and beta's range.

The bound of `envelope` is priced with the multipliers a of the rows' sums.  A posterior q that prices above
zero is one the mapping should use: a linear programme over the posteriors in use and the new ones mixes
them, Newton steps settle the outcome, and the bound is taken again.
"""

from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.ias import envelope
from distadmm.methods.ias.objective import Array, Objective, project_entropic
from distadmm.methods.ias.polish import fill, join, polish, posteriors, used_columns

CLOSED = 1e-7  # a gap this small needs no more rounds
OPEN = 1e-6  # one above this is no proof of optimality
ROUNDS = 30  # of column generation, at most
VANISHING = 1e-12  # the eps at which the bound is priced


class Thresholds(NamedTuple):
    """From which beta on no mapping is better than a trivial one (U independent of Y)."""

    beta_loc: float  # rho_m^2/f''(1): below it a small step away from the trivial mapping already gains
    beta_glob: float  # sup_q KL(Aq||P_S)/Phi(q): from here on nothing gains; never below beta_loc
    proved: bool  # whether that nothing gains at beta_glob (1 + 1e-6) was shown by branch and bound
    q: Array  # a posterior near the supremum


class Certificate(NamedTuple):
    """What is known of the best possible F."""

    upper: float  # F of every mapping, for this eps and any smaller one, is at most this
    gap: float  # upper - F of the mapping returned
    proved: bool  # by branch and bound; otherwise `upper` is a heuristic
    attained: float  # the best F at vanishing eps and |U| >= |Y|: upper - attained is what was left open
    rounds: int  # of column generation
    gained: float  # F of the mapping returned less that of the mapping given
    simplices: int  # looked at by branch and bound
    thresholds: Thresholds

    @property
    def open(self) -> float:
        """What is left open for mappings of any |U| and vanishing eps; at most OPEN where the optimum is proved."""
        return self.upper - self.attained

    @property
    def standing(self) -> str:
        if not self.proved:
            return "heuristic search: not a bound"
        if self.open <= OPEN:
            return "optimal, by branch and bound"
        how = f"{self.simplices} simplices, of at most {envelope.LIMIT} a round"
        return f"OPEN: a bound, no proof of optimality; {self.open:.2g} is open after {how}"

    def sentence(self, beta: float) -> str:
        kind = "" if self.proved else " (heuristic: |S| is too large for branch and bound)"
        left = f" ({self.standing})" if self.proved and self.open > OPEN else ""
        known = range_of_beta(self.thresholds, beta)
        return f"F <= {self.upper:.9g}{kind}, gap {self.gap:.2g}{left}; {known}"


def range_of_beta(thresholds: Thresholds, beta: float) -> str:
    """Whether a mapping that says anything can be worth it at `beta`."""
    low, high = thresholds.beta_loc, thresholds.beta_glob
    best = "a mapping that says something is best" + ", but far from the trivial one" * (beta >= low)
    if beta >= high:
        best = "the best mapping says nothing at all (U independent of Y)"
    return f"beta_loc {low:.6g}, beta_glob {high:.6g}: at beta {beta:g} {best}"


def thresholds(objective: Objective, seed: int = 0) -> Thresholds:
    """beta_loc in closed form; beta_glob by Dinkelbach's iteration on the ratio KL/Phi."""
    problem, measure = objective.problem, objective.measure
    beta_loc = problem.rho_m2 / measure.curvature_at_one
    beta, q = beta_loc, problem.P_Y
    zero = np.zeros_like(problem.P_Y)
    for _ in range(30):
        priced = _price(Objective(problem, measure, beta * (1 + 1e-6)), zero, seed, 1e-10)
        information, leakage = envelope.terms(problem, measure, priced.q)
        ratio = np.where(leakage > 1e-12, information / np.maximum(leakage, 1e-12), 0.0)
        best = int(ratio.argmax())
        if priced.lower <= 1e-10 or ratio[best] <= beta * (1 + 1e-6):
            break
        beta, q = float(ratio[best]), priced.q[best]
    return Thresholds(beta_loc, beta, priced.proved and priced.upper <= 1e-8, q)


def certify(
    objective: Objective,
    P: Array,
    eps: float,
    *,
    seed: int = 0,
    found: Thresholds | None = None,
) -> tuple[Array, Certificate]:
    """A mapping at least as good as P, and the bound on every mapping's F."""
    require(0 < eps <= 1 / P.shape[1], f"eps is {eps:g}; needed 0 < eps <= 1/|U| = {1 / P.shape[1]:.6g}")
    given, simplices, done = float(objective(P).F), 0, 0
    tiny = min(eps, VANISHING)
    # The bound knows no |U|: it is closed with as many symbols as the optimum can need.
    current = polish(objective, fill(P, max(P.shape), tiny), tiny)
    upper = np.inf
    while done < ROUNDS:
        done += 1
        priced = _price(objective, current.a, seed, 1e-9)
        simplices += priced.simplices
        upper = min(upper, float(current.a @ objective.problem.P_Y) + priced.upper)
        if upper - current.F <= CLOSED:
            break
        missed = priced.q[priced.value > 1e-12]
        if not len(missed):
            break
        starts = [_mix(objective, current.P, missed, tiny), *_insert(objective, current.P, missed, tiny)]
        improved = max((polish(objective, start, tiny) for start in starts), key=lambda found: found.F)
        if improved.F <= current.F + 1e-12:
            break
        current = improved
    best, F = P, given
    for candidate in (
        polish(objective, _narrow(objective, current.P, P.shape[1], eps), eps, patience=3),
        polish(objective, P, eps),
    ):
        if candidate.F > F:
            best, F = candidate.P, candidate.F
    found = found or thresholds(objective, seed)
    upper = max(upper, F)  # the bound is exact to rounding: never print one below what is reached
    reached, work = max(current.F, F), (done, F - given, simplices)
    return best, Certificate(upper, upper - F, priced.proved, reached, *work, found)


def _price(objective: Objective, a: Array, seed: int, tolerance: float) -> envelope.Price:
    if len(objective.problem.P_S) <= envelope.MAX_S:
        return envelope.price(objective, a, tolerance=tolerance)
    return envelope.price_by_search(objective, a, seed)


def _narrow(objective: Objective, P: Array, K: int, eps: float) -> Array:
    """P with at most K columns: used ones joined, the cheapest pair first, until they fit."""
    X = P[:, used_columns(objective, P, VANISHING)]
    while X.shape[1] > K:
        X = join(objective, X)
    return project_entropic(fill(X, K, min(eps, VANISHING)), eps)


def _insert(objective: Objective, P: Array, new: Array, eps: float) -> list[Array]:
    """P with columns for the best new posteriors, their mass taken row by row from all others alike.

    Its first-order gain is what the posteriors price at, also where no mixture with the posteriors in use,
    as they are, does better.
    """
    p, K = objective.problem.P_Y, P.shape[1]
    X, starts = P[:, used_columns(objective, P, eps)], []
    while X.shape[1] >= K:
        X = join(objective, X)
    columns = (new[: K - X.shape[1]] / p).T
    for share in (0.3, 0.03):
        taken = columns * (share / columns.sum(1).max())
        starts.append(fill(np.hstack([X * (1 - taken.sum(1, keepdims=True)), taken]), K, eps))
    return starts


def _mix(objective: Objective, P: Array, new: Array, eps: float) -> Array:
    """The best mixture of the posteriors in use and the new ones whose mean is P_Y, as |U| columns."""
    from scipy.optimize import linprog

    p, K = objective.problem.P_Y, P.shape[1]
    mass, q = posteriors(objective, P[:, used_columns(objective, P, eps)])
    q = np.vstack([q, new])
    worth = envelope.psi(objective, q)
    # P itself is feasible but for the mass of its unused columns: let the rows sum to what the used ones do
    solved = linprog(-worth, A_eq=q.T, b_eq=mass @ q[: len(mass)], bounds=(0, None), method="highs")
    weights = solved.x if solved.status == 0 else np.concatenate([mass, np.zeros(len(new))])
    keep = weights > 1e-9
    X = (weights[keep, None] * q[keep] / p).T
    while X.shape[1] > K:
        X = join(objective, X)
    return fill(X, K, eps)
