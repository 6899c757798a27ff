"""The funnel by column generation over posteriors: the default method.

    max_r  sum_c r_c H(S w_c)   s.t.  sum_c r_c w_c = p,   sum_c r_c H(w_c) <= H(X) - R,   r >= 0

With multipliers alpha of the first and lambda of the second constraint, a posterior w improves the program iff its
reduced cost is positive:

    g(w) = H(S w) - lambda H(w) - alpha . w

g is raised by the mirror step  log w <- log w + omega (lambda log w - S^T log S w - alpha), which is monotone for
omega = 1; longer steps are tried and kept while they help.  H(X) - sum r H(w) = I(X;Y), so the optimal value is
I(S;Y) = H(S) - sum_c r_c H(S w_c), and a maximum of g that is proven to be zero proves the optimum.

A pool of posteriors is seeded (single symbols, p, the vertices of perfect privacy, greedy clusters, what a few AEM
starts found), the program is solved over it, and posteriors with positive reduced cost are searched for from many
starts and added, until none is found.  That none is found is no proof that there is none, so runs are repeated
with other random starts, and a last program is solved over what all of them found.
"""

from typing import Any, NamedTuple

import numpy as np

from distadmm.methods.funnel import aem, greedy, model, perfect, starts
from distadmm.methods.funnel.model import Array, Joint

GROW, SHRINK = 1.5, 0.3  # of the mirror step
SIMPLEX = "highs-ds"
ATTEMPTS = ((SIMPLEX, False, 1e-9), (SIMPLEX, True, 1e-9), (SIMPLEX, True, 1e-7), ("highs-ipm", True, 1e-7))


class Pool(NamedTuple):
    w: Array  # M x C: the posteriors to choose from
    hx: Array  # C: H(w)
    hs: Array  # C: H(S w)


class Optimum(NamedTuple):
    r: Array  # C: weights of the pool's posteriors
    alpha: Array  # M: multipliers of sum r w = p
    slope: float  # lambda >= 0: of I(X;Y) >= R
    value: float  # I(S;Y)


def pool(joint: Joint, w: Array) -> Pool:
    return Pool(w, model.entropy(w), model.entropy(joint.S @ w))


def distinct(w: Array) -> Array:
    """The columns of w, repeated ones once."""
    _, first = np.unique(np.round(w, 10), axis=1, return_index=True)
    return w[:, np.sort(first)]


def joined(a: Pool, b: Pool, kept: Array) -> Pool:
    """The `kept` columns of a, and b."""
    return Pool(*(np.concatenate([x[..., kept], y], axis=-1) for x, y in zip(a, b)))


def solve(joint: Joint, columns: Pool, R: float) -> Optimum:
    """The optimum over the pool, by HiGHS."""
    from scipy.optimize import linprog

    constraints = {"A_ub": columns.hx[None], "b_ub": [joint.HX - R], "A_eq": columns.w, "b_eq": joint.p}
    for method, presolve, tol in ATTEMPTS:
        options: dict[str, Any] = {f"{side}_feasibility_tolerance": tol for side in ("primal", "dual")}
        options["presolve"] = presolve
        found = linprog(-columns.hs, **constraints, method=method, options=options)
        if found.status == 0:
            slope = max(0.0, -float(found.ineqlin.marginals[0]))
            return Optimum(found.x, -found.eqlin.marginals, slope, joint.HS + found.fun)
    raise RuntimeError(f"the linear program over {columns.w.shape[1]} posteriors failed: {found.message}")


def reduced(columns: Pool, at: Optimum) -> Array:
    """g of each column."""
    return columns.hs - at.slope * columns.hx - at.alpha @ columns.w


def ascend(joint: Joint, w: Array, at: Optimum, iterations: int) -> tuple[Array, Array]:
    """Raise g from each of the posteriors w; where they came to, and g there."""
    alpha, slope, S = at.alpha[:, None], at.slope, joint.S

    def evaluate(w: Array, logw: Array) -> tuple[Array, Array]:
        t = S @ w
        logt = np.maximum(model.log0(t), model.FLOOR)
        return logt, slope * np.einsum("mc,mc->c", w, logw) - np.einsum("kc,kc->c", t, logt) - at.alpha @ w

    logw, omega = np.maximum(model.log0(w), model.FLOOR), np.ones(w.shape[1])
    logt, g = evaluate(w, logw)
    for _ in range(iterations):
        x = logw + omega * (slope * logw - S.T @ logt - alpha)
        x -= x.max(axis=0)
        np.maximum(x, model.FLOOR, out=x)
        e = np.exp(x)
        total = e.sum(axis=0)
        e /= total
        x -= np.log(total)
        logt_new, g_new = evaluate(e, x)
        up = g_new >= g
        logw, w = np.where(up, x, logw), np.where(up, e, w)
        logt, g = np.where(up, logt_new, logt), np.where(up, g_new, g)
        omega = np.where(up, GROW * omega, np.maximum(SHRINK * omega, 1.0))
    w[w < 1e-12] = 0
    return w / w.sum(axis=0), g


GAP = 1e-9  # nats: the reduced cost that ends the search
INDEX = 1 << 21  # of these generators among the seed's children
SEARCHED = 40  # vertices searched for in a round, where they cannot be enumerated
ENTRIES, LEAST = 12, 400  # the pool holds at most 12 posteriors a symbol, or 400, besides those in use
VERTICES = 5  # enumerated vertices a symbol that are climbed from in a round, the best ones
DRAWN = 12  # random starts a symbol in a round, at most 600
MERGES = 6000  # pairs of posteriors looked at in a round
GREEDY = 300  # symbols up to which greedy clusters are worth their cost, which grows with the cube


class Effort(NamedTuple):
    rounds: int = 60  # linear programs at most
    climbs: int = 15  # mirror steps from each start
    seeding: int = 4  # AEM starts whose posteriors seed the pool
    seeding_iterations: int = 60


def usual(known: perfect.Perfect, rounds: int = 60) -> Effort:
    """The effort of the command: enumerated vertices spare half of the seeding and of the climbing."""
    return Effort(rounds, climbs=10, seeding_iterations=20) if known.exact else Effort(rounds)


class Found(NamedTuple):
    w: Array  # M x C: posteriors in use, and those worth offering to the last program
    at: Optimum  # of the run's own pool
    gap: float  # best reduced cost the last search found
    rounds: int


def run(
    joint: Joint,
    R: float,
    known: perfect.Perfect,
    seed: int,
    repeat: int,
    effort: Effort,
    first: Array | None = None,
) -> Found:
    """One run of the column generation for I(X;Y) >= R, 0 < R < H(X), from the posteriors `first` if given."""
    rng = starts.rng_of(seed, INDEX + repeat)
    polytope, bases = perfect.Polytope(joint), known.bases
    vertices = pool(joint, known.vertices)
    first = seeds(joint, R, known, seed, repeat, effort) if first is None else first
    columns = pool(joint, distinct(first))
    patience, rounds = 1, 0
    while rounds < effort.rounds:
        rounds += 1
        at = solve(joint, columns, R)
        w = columns.w[:, at.r > GAP]
        tried = [
            w,
            random(joint, rng, min(DRAWN * joint.M, 600)),
            merged(joint, w, at.r[at.r > GAP], at, rng),
        ]
        if known.exact:
            dear = reduced(vertices, at)
            tried.append(vertices.w[:, np.argsort(-dear, kind="stable")[: VERTICES * joint.M]])
        else:
            chosen = bases[rng.permutation(len(bases))[:SEARCHED]]
            fresh, _ = polytope.search(polytope.shake(chosen, rng), at.slope, at.alpha)
            bases = np.concatenate([bases, fresh])
            tried.append(polytope.points(fresh))
        w, g = ascend(joint, np.concatenate(tried, axis=1), at, effort.climbs)
        if not patience:  # a search that found nothing is repeated once, climbing on, before it is believed
            w, g = ascend(joint, w[:, np.argsort(-g)[: 6 * joint.M]], at, 3 * effort.climbs)
        gap = float(g.max())
        if gap <= GAP and not patience:
            break
        patience = int(gap > GAP)
        columns = _renewed(joint, columns, at, w[:, g > GAP / 10], g[g > GAP / 10])
    else:
        at = solve(joint, columns, R)
    # the multipliers belong to the whole pool: a smaller one has others that prove nothing
    return Found(columns.w[:, reduced(columns, at) > -1e-6], at, gap, rounds)


def seeds(joint: Joint, R: float, known: perfect.Perfect, seed: int, repeat: int, effort: Effort) -> Array:
    """The posteriors a pool starts from (M x C)."""
    block = range(repeat * effort.seeding, (repeat + 1) * effort.seeding)
    first = starts.feasible(joint, R, joint.M + 1, seed, block)
    ends = starts.run(joint, first, R, effort.seeding_iterations, tol=0.0, faster=True)
    found = [np.eye(joint.M), joint.p[:, None], known.vertices]
    if joint.M <= GREEDY:
        found.append(model.posteriors(joint, greedy.cluster(joint, R))[1])
    found += [model.posteriors(joint, v)[1] for v in aem.channels(joint, ends.state)]
    return np.concatenate(found, axis=1)


def random(joint: Joint, rng: np.random.Generator, n: int) -> Array:
    """Posteriors to climb from: half anywhere in the simplex, half with few symbols, as optimal ones have."""
    anywhere = rng.dirichlet(np.ones(joint.M), n - n // 2).T
    few = rng.exponential(size=(joint.M, n // 2))
    size = rng.integers(2, max(3, min(joint.K, joint.M) + 1), n // 2)
    few *= np.argsort(np.argsort(rng.random(few.shape), axis=0), axis=0) < size
    return np.concatenate([anywhere, few / few.sum(axis=0)], axis=1)


def merged(joint: Joint, w: Array, r: Array, at: Optimum, rng: np.random.Generator) -> Array:
    """Mergers of two posteriors in use, or of one and a symbol: the best of those looked at."""
    u = np.concatenate([w * r, np.diag(joint.p)], axis=1)
    if u.shape[1] ** 2 > 2 * MERGES:
        a, b = rng.integers(u.shape[1], size=(2, MERGES))
        a, b = a[a != b], b[a != b]
    else:
        a, b = np.triu_indices(u.shape[1], 1)
    pairs = pool(joint, (u[:, a] + u[:, b]) / (u[:, a] + u[:, b]).sum(axis=0))
    return pairs.w[:, np.argsort(-reduced(pairs, at), kind="stable")[: 2 * joint.M]]


def _renewed(joint: Joint, columns: Pool, at: Optimum, w: Array, g: Array) -> Pool:
    """The pool with the best of the posteriors w added and the worst unused ones dropped."""
    better = w[:, np.argsort(-g, kind="stable")[: 3 * joint.M]]
    cost = reduced(columns, at)
    enough = np.sort(cost)[max(0, len(cost) - max(ENTRIES * joint.M, LEAST))]
    return joined(columns, pool(joint, distinct(better)), (at.r > 0) | (cost >= enough))


def assemble(joint: Joint, R: float, w: Array) -> Array:
    """The best channel over the posteriors w, with I(X;Y) >= R whatever the program's tolerance."""
    columns = pool(joint, distinct(w))
    for margin in (0.0, 1e-9, 1e-8, 1e-7, 1e-6):
        at = solve(joint, columns, min(R + margin, joint.HX))
        used = at.r > 1e-12
        for r in (_exact(joint, columns, at, used, R), at.r[used]):
            v = model.channel(joint, r, columns.w[:, used])
            if model.informations(joint, v)[1] >= R:
                return v
    raise RuntimeError("no mixture of the posteriors found keeps I(X;Y) >= R")


def _exact(joint: Joint, columns: Pool, at: Optimum, used: Array, R: float) -> Array:
    """The weights of the posteriors in use, from the equations they satisfy rather than to a tolerance."""
    rows, right = columns.w[:, used], joint.p
    if at.slope > 0:
        rows = np.concatenate([rows, columns.hx[None, used]])
        right = np.append(right, joint.HX - R - 1e-13)
    return np.maximum(np.linalg.lstsq(rows, right)[0], 0)
