"""What the paper of a programme claims of its algorithm, what of that holds here, and what a short run measures.

    python -m distadmm check sharing --data tiny --loss sigmoid
    python -m distadmm check istdp --data tiny
    python -m distadmm check funnel --problem heart
    python -m distadmm check ias --problem binom

The flags are the programme's own.  Rows are read: the figures are an onlooker's, not for publishing.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from distadmm import istdp
from distadmm.data.parties import DataOptions
from distadmm.errors import require
from distadmm.flags import again, flag, flag_group
from distadmm.methods.funnel import aem, starts
from distadmm.methods.funnel import options as funnel_options
from distadmm.methods.ias import admm as ias_admm
from distadmm.methods.ias import certificate, gba
from distadmm.methods.ias import options as ias_options
from distadmm.methods.ias.measures import Array
from distadmm.methods.ias.measures import measure as measure_named
from distadmm.methods.ias.objective import Objective, random_starts
from distadmm.methods.istdp import fit, printed
from distadmm.methods.istdp.options import Data, Model, Options, Privacy, Running
from distadmm.methods.sharing import messages, setup, stability, stationary
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.concave import make
from distadmm.problems.loss_check import SCORES
from distadmm.problems.losses import least_curvature, smoothness
from distadmm.ranks.world import World


@flag_group("check")
class Asked:
    measured: int = flag(60, help="iterations that are measured", at_least=2)
    bound_for: float = flag(
        1e-3, help="V (sharing) or F - F* (istdp) that the bound on iterations is for", above=0
    )


def of_sharing(parts: tuple[Any, ...]) -> list[str]:
    """Assumption 1, stability, rate and iteration bound of ADMM sharing."""
    asked, data, model, solver = parts
    run = setup.RunOptions(out=None, observe="none")
    prepared = setup.prepare(setup.Options(data, model, solver, messages.PrivacyOptions(), run), World())
    problem, star, blocks, rows = prepared.problem, prepared.star, prepared.blocks, prepared.parts.rows
    algorithm = prepared.algorithm
    require(
        hasattr(algorithm, "weight"), "check sharing is about --algorithm admm; sgd has no penalty to check"
    )
    seat = Seat(star, problem, blocks, prepared.parts.labels, rows)
    state = algorithm.init(seat)
    theta = stability.overlap(star, blocks, rows, np.random.SeedSequence(0), rounds=40)
    squares = {m: float(block.spectrum[0][-1]) for m, block in blocks.items()}
    least = {m: float(b.spectrum[0][0]) if b.rank == b.width else 0.0 for m, b in blocks.items()}
    # The proof takes a bound of theta; power iteration comes to it from below.
    found = stationary.rate(problem, state.rho, state.tau, float(star.parties), squares, rows)
    L, w = smoothness(problem.loss), -least_curvature(problem.loss)
    moduli = {m: problem.lam * (problem.reg.l2 - problem.reg.dent) + state.rho * least[m] for m in blocks}
    short = {m: 2.0 * squares[m] - moduli[m] for m in blocks}
    ranks = ", ".join(f"{b.rank} of {b.width}" for b in blocks.values())
    enough, rho, weight = stationary.least_descending(problem.loss), state.rho, 1.0 + state.tau
    smooth = math.isfinite(L)
    lowest = min(problem.loss.value(SCORES, np.full(SCORES.size, y)).min() for y in (-1.0, 1.0))
    assumed = [
        ("1", "smooth loss, full column rank", smooth and all(least.values()),
         f"ranks {ranks}" + "; the loss has a kink" * (not smooth)),
        ("2a", "subproblems strongly convex", min(moduli.values()) > 0 and rho > w,
         f"moduli {min(moduli.values()):.3g} (x), {rho - w:.3g} (z)"),
        ("2b", "x-modulus >= 2 sigma_max", max(short.values()) <= 0,
         f"by {-max(short.values()):.3g}; Lemma 4 drops rho/2: rho sigma_max is what it needs, whatever rho"),
        ("2c", "rho gamma > 2 L^2 and rho >= L", rho * (rho - w) > 2 * L * L and rho >= L,
         f"from rho = {enough:.4g} on" if smooth else "whatever rho: at the kink l' jumps"),
        ("3", "bounded below", lowest >= 0, "by 0, on a grid of scores"),
        ("4", "regulariser smooth or convex", not problem.reg.folded,
         "folded: weakly convex" if problem.reg.folded else "convex"),
    ]  # fmt: skip
    stable = weight >= 0.75 * theta - 1e-9
    alone = "" if stable else f"; alone above rho = {stability.least_stable_rho(theta, state.tau, L):.4g}"
    start = math.nan
    if seat.labels is not None:
        start = stationary.lagrangian(problem, seat.labels, state, state.x)
    if found.proved:
        asks = found.K * start / asked.bound_for
        bound = f"K = {found.K:.3g}, Lag_0 = {start:.4g}: V <= {asked.bound_for:g} after at most {asks:.3g} iterations"
    elif not smooth:
        bound = "none: it needs a smooth loss, whatever rho and tau are (smooth-hinge and huber are smooth)"
    else:
        bound = f"none: it needs 1 + tau above theta/2 (theta <= {star.parties}) and rho above {enough:.4g}"
    return [
        f"problem     {rows} records, {star.parties} parties, "
        + (f"l'' from {-w:.4g}, L = {L:.4g}" if smooth else "a loss with a kink: no bound L of l''"),
        f"penalty     rho = {rho:.4g} at the start, tau = {state.tau:.4g}",
        "",
        "Assumption 1, as printed",
        *[f"  {n:3} {what:32}{'holds' if met else 'FAILS'}  {why}" for n, what, met, why in assumed],
        "",
        "Stability (exact for quadratic losses)",
        f"  theta = {theta:.4g} of at most {star.parties}: 1 + tau = {weight:.4g} >= 3/4 theta = {0.75 * theta:.4g} "
        f"{'holds' if stable else 'FAILS'}{alone}",
        "",
        "Iterations: min V over T of them <= K (Lag_0 - f)/T (derived here; the paper's own theorem is missing)",
        f"  {bound}",
        "",
        *_sharing_measured(seat, algorithm, state, found, start, asked.measured),
    ]


def _sharing_measured(
    seat: Seat, algorithm: Any, state: Any, found: Any, start: float, steps: int
) -> list[str]:
    slopes = {m: block.adjoint for m, block in seat.blocks.items()}
    worth, falls, spent, V, seen = start, 0, 0.0, math.nan, []
    for k in range(1, steps + 1):
        state = algorithm.step(k, state, seat)
        lower = stationary.lagrangian(seat.problem, seat.labels, state, state.x)  # type: ignore[arg-type]
        V = stationary.measure(seat.problem, seat.labels, state, state.x, slopes)  # type: ignore[arg-type]
        falls += lower <= worth + 1e-12 * abs(worth)
        if found.proved and worth > lower:
            spent = max(spent, V / (found.K * (worth - lower)))
        seen.append(V)
        worth = lower
        if algorithm.ended(state):
            break
    used = f"; V took at most {100 * spent:.2g} % of K times the fall" if found.proved else ""
    return [
        f"Measured in {len(seen)} iterations (penalty rule as the run has it)",
        f"  the Lagrangian fell in {falls} of {len(seen)}{used}",
        f"  V {seen[0]:.3g} after the first, {min(seen):.3g} at best, {V:.3g} at the end",
    ]


ETA, BETA = 0.5, 1e-4  # the halving and the acceptance of the printed line search


def of_istdp(parts: tuple[Any, ...]) -> list[str]:
    """Lemma 3.2's m_k and Theorem 3.4's T of Algorithm 1."""
    asked, data, model, budget = parts
    rows = istdp.rows_of(Options(data, model, Privacy(), Running()))
    X, y, loss = rows.X, rows.y, fit.loss_of(model.loss)
    n, d = X.shape
    L = loss.max_curvature * float(np.linalg.eigvalsh(X.T @ X)[-1]) / n
    low = budget.shortest or 1.0 / loss.max_curvature
    high = budget.longest or 20.0 * low
    lam, alpha = fit.rules(X, y, loss, model.lambda_, model.reach)
    penalty = make(model.penalty, lam, alpha)
    bound = math.ceil(math.log(BETA * high**2 + high * L) / -math.log(ETA) + 1)
    found = fit.solve(X, y, loss=model.loss, penalty=model.penalty, lam=lam, alpha=alpha)
    far = float(found.theta @ found.theta)
    T = far / (2 * low * asked.bound_for)
    lines = [
        f"problem     {n} rows, {d} columns, {model.penalty} with lambda = {lam:.3g}",
        f"            L = {L:.4g}, of X'X/n and the curvature of the loss; steps {low:.4g} to {high:.4g}",
        "",
        f"Lemma 3.2   m_k <= {bound} halvings (eta = {ETA}, beta = {BETA})",
        "            holds without noise; with it the proof drops E<b, theta^ - theta> = -alpha d sigma^2: no bound",
        f"Theorem 3.4 F - F* <= |theta^1 - theta*|^2/(2 T alpha_min): {asked.bound_for:g} asks for T > {math.ceil(T)}",
        "            takes a convex F (the penalty is folded), steps below 1/L (the search accepts longer ones),",
        "            alpha_min for the steps it leaves, and no noise: its own term d sigma^2 is set to 0, so \"any",
        "            accuracy\" is false with it",
        "",
        f"Measured in {asked.measured} iterations of Algorithm 1 as printed, by sigma",
        f"  {'sigma':>9}  {'most m_k':>8}  {'never accepted':>14}  {'alpha L up to':>13}  {'F - F*':>9}  "
        f"{'bound at T':>10}",
    ]  # fmt: skip
    for sigma in (0.0, 0.01, 1.0):
        ran = _printed_run((X, y, loss), penalty, sigma, (low, high), asked.measured)
        most, longest, stuck, excess = *ran[:3], ran[3] - found.objective
        claimed = far / (2 * asked.measured * low)
        broken = "  broken" if excess > claimed else ""
        told = f"{most:8d}  {stuck:7d} of {asked.measured:<4d}  {longest * L:13.3g}  {excess:9.3g}  {claimed:10.3g}"
        lines.append(f"  {sigma:9.3g}  {told}{broken}")
    unsettled = "" if found.converged else " (not converged)"
    return [*lines, f"  F* = {found.objective:.6g} is GIST's stationary point{unsettled}"]


def _printed_run(
    rows: tuple[Array, Array, Any], penalty: Any, sigma: float, ends: tuple[float, float], steps: int
) -> tuple[int, float, int, float]:
    """(most halvings of an accepted step, the longest of these, iterations without one, F at the end)."""
    rng, most, longest, (X, y, loss) = np.random.default_rng(0), 0, 0.0, rows
    start = np.zeros(X.shape[1])
    states = printed.iterate(
        *rows, penalty, lambda k: sigma * rng.standard_normal(start.size),
        before=start + 0.01, start=start, shortest=ends[0], longest=ends[1], beta=BETA, eta=ETA,
    )  # fmt: skip
    theta, before = start, start + 0.01
    slope = printed.gradient(rows, before)
    for _ in range(steps):
        g = printed.gradient(rows, theta)
        tried = printed.step_length(theta - before, g - slope, *ends)
        state = next(states)
        if state.accepted:
            most = max(most, round(math.log(state.step / tried) / math.log(ETA)))
            longest = max(longest, state.step)
        theta, before, slope = state.theta, state.before, state.g
    return most, longest, len(state.stuck), float(loss.value(X @ theta, y).mean()) + penalty.value(theta)


def of_funnel(parts: tuple[Any, ...]) -> list[str]:
    """The descent identity (10) of AEM."""
    asked, data, goal = parts
    joint = data.load()[0]
    lines = [
        f"problem     |S| = {joint.K}, |X| = {joint.M}, H(X) = {joint.HX:.6g}, I(S;X) = {joint.ISX:.6g}",
        "",
        "(10)        the fall of the relaxed objective in an iteration is the sum of divergences of q, r, u and w;",
        "            that of w, Lambda sum_j r_j D(w_j || w_j before), takes I(X;Y) >= R to bind twice running;",
        "            in general it is Lambda (sum u log w - R) (derived here)",
        "Theorem 2   claims a stationary point, not the least I(S;Y), which --certify of distadmm.funnel bounds",
        "",
        f"Measured in {asked.measured} iterations from a random channel",
        "   R/H(X)  (10) is off by  in general  slack at  I(S;Y) fell   rose by",
    ]  # fmt: skip
    for R in goal.demands(joint):
        printed_off, general_off, slack, states = _descent(joint, R, asked.measured)
        leaks = [float(state.leak[0]) for state in states]
        rose = max(0.0, *(b - a for a, b in pairwise(leaks)))
        told = f"{R / joint.HX:7.3f}  {printed_off:14.2g}  {general_off:10.2g}  {slack:8d}"
        lines.append(f"  {told}  {leaks[0] - leaks[-1]:11.4g}  {rose:8.1g}")
    return lines


def _descent(joint: Any, R: float, steps: int) -> tuple[float, float, int, list[aem.State]]:
    """How far (10) is off, as printed and with its last term in general, over all iterations with three states."""
    walk = starts.iterate(joint, starts.feasible(joint, R, joint.M + 1, 0, range(1)), R)
    states = [aem.State(*(np.array(x) for x in next(walk))) for _ in range(steps + 1)]
    u = [np.exp(state.logu[0]) for state in states]
    q = [_posterior(joint, each) for each in u]
    as_printed, general, slack = 0.0, 0.0, 0
    for n in range(1, steps):
        r = [each.sum(axis=0) for each in (u[n - 1], u[n], u[n + 1])]
        w = [each / np.maximum(total, 1e-300) for each, total in zip(u[n - 1 : n + 2], r)]
        # q of iteration n is made of u of n - 1: paper's q^(n) and q^(n+1).
        fall = _relaxed(joint, u[n], r[1], q[n - 1]) - _relaxed(joint, u[n + 1], r[2], q[n])
        mass = joint.S @ u[n]
        by_q = float(np.sum(mass * _divergence(q[n], q[n - 1], axis=1)))
        first = by_q + float(_divergence(r[2], r[1])) + float(_divergence(u[n], u[n + 1], axis=None))
        Lambda = float(states[n + 1].Lambda[0])
        last = Lambda * float(r[1] @ _divergence(w[1], w[0], axis=0))
        told = float(np.sum(np.where(u[n] > 0, u[n] * np.log(np.maximum(w[1], 1e-300)), 0.0))) + joint.HX
        as_printed = max(as_printed, abs(fall - first - last))
        general = max(general, abs(fall - first - Lambda * (told - R)))
        slack += float(states[n].Lambda[0]) == 0.0
    return as_printed, general, slack, states


def _posterior(joint: Any, u: Array) -> Array:
    """q_kij = s_ki u_ij / sum_i s_ki u_ij."""
    whole = joint.S[:, :, None] * u[None]
    return whole / np.maximum(whole.sum(axis=1, keepdims=True), 1e-300)


def _relaxed(joint: Any, u: Array, r: Array, q: Array) -> float:
    whole = joint.S[:, :, None] * u[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(whole) - np.log(r) - np.log(q)
    return float(np.sum(np.where(whole > 1e-290, whole * logs, 0.0)))


def _divergence(a: Array, b: Array, axis: int | None = 0) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sum(np.where(a > 1e-290, a * np.log(a / b), 0.0), axis=axis)


def of_ias(parts: tuple[Any, ...]) -> list[str]:
    """Algorithm 1's multiplier (19), the ascent that is proved here, and beta's range."""
    asked, data, goal, solver = parts
    problem, f = data.load()[0], measure_named(goal.f)
    objective = Objective(problem, f, solver.beta)
    P = random_starts(problem, goal.u_size or len(problem.P_Y), goal.eps, 0, [0], solver.starts)
    proved = math.isfinite(f.curvature_bound)
    climbed, here, losses = P.copy(), float(objective(P).F[0]), 0
    first, eta = here, np.full(1, gba.first_step(objective))
    for _ in range(asked.measured):
        climbed = gba.step(climbed, objective(climbed).g, eta, goal.eps)
        now = float(objective(climbed).F[0])
        losses, here = losses + (now < here - 1e-14), now
    kind = "proved never to descend" if proved else "a guess: sup t^2 f'' is infinite"
    found = certificate.thresholds(objective)
    return [
        f"problem     {problem.name}: |S| {len(problem.P_S)}, |Y| {len(problem.P_Y)}, I(S;Y) {problem.I_SY:.6f}",
        f"measure     {f.name}, beta {solver.beta:g}",
        "",
        *ias_admm.told(objective, P[0], goal.eps, solver.penalty_rho),
        "",
        f"mirror ascent with eta = 1/(beta sup t^2 f'') = {float(eta[0]):.4g}: {kind}",
        f"measured: F fell in {losses} of {asked.measured} steps, {first:.6f} to {here:.6f}",
        certificate.range_of_beta(found, solver.beta) + " (beta_glob is not proved)" * (not found.proved),
    ]


@flag_group("steps of Algorithm 1")
class Steps:
    shortest: float | None = again(Privacy, "shortest")
    longest: float | None = again(Privacy, "longest")


GROUPS: dict[str, tuple[list[type], Callable[[tuple[Any, ...]], list[str]]]] = {
    "sharing": ([Asked, DataOptions, setup.ModelOptions, setup.SolverOptions], of_sharing),
    "istdp": ([Asked, Data, Model, Steps], of_istdp),
    "funnel": ([Asked, funnel_options.Data, funnel_options.Goal], of_funnel),
    "ias": ([Asked, ias_options.Data, ias_options.Goal, ias_options.Solver], of_ias),
}
