"""From a privacy budget to noise and penalty: the largest alpha that spends no more, and the eta that makes most of it.

Nothing here reads private data: weights, bounds, the graph and the schedule are public.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.algorithm import Node
from distadmm.errors import InputError, require
from distadmm.methods.consensus import smoothing
from distadmm.methods.consensus.smoothing import Array, Smoothing
from distadmm.privacy.accounting.schedule import Stretches, stretches
from distadmm.privacy.ledger.schedules import Committed
from distadmm.ranks.world import World

# Every rank of every run loads this module; what only a private run needs is imported where it is used.
if TYPE_CHECKING:
    from distadmm.privacy.accounting.events import Event
    from distadmm.privacy.accounting.kept import Kept
    from distadmm.privacy.noise.protected import Recipe
    from distadmm.run.config import Config, Privacy

_SEARCHED_BY = 12  # different releases of a long schedule that a search for alpha begins with
# Multiples of the automatic penalty that are tried, their doubles up to _MOST while the Hessians would take more than
# half of the budget, and _BEYOND further ones.
FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_MOST, _BEYOND = 2.0**20, 4
_LEAST = 0.1  # of the budget's mu that has to be left to the noise


def leave_digits(recipe: Recipe) -> None:
    """Refuse noise so large that the solve cannot be certified in double precision."""
    norm = (recipe.dimension + 5 * np.sqrt(recipe.dimension)) / float(recipe.alpha.min())
    rounding = 4 * np.finfo(float).eps * norm
    require(
        rounding <= recipe.tolerance,
        f"alpha {recipe.alpha.min():.3g} means noise of norm {norm:.2g}, whose rounding alone exceeds --tolerance "
        f"{recipe.tolerance:g}; raise --alpha or --epsilon, or give --tolerance {rounding:.1g}",
    )


def events_of(recipe: Recipe, releases: Sequence[Any], i: int) -> list[Event]:
    """The prices of all releases of node i, equal ones counted."""
    counted: dict[Event, int] = {}
    n = len(recipe.weight)
    for solve, times, quadratic, factor in recipe.priced_alike(releases):
        q, m = np.broadcast_to(quadratic, (n, 1))[i, 0], np.broadcast_to(factor, (n, 1))[i, 0]
        event = recipe.event(solve, i, float(q), float(m))
        counted[event] = counted.get(event, 0) + times
    return [event.times(count) for event, count in counted.items()]


def plans_of(recipe: Recipe, releases: Sequence[Any]) -> list[Committed]:
    """The same of each node of this rank; equal schedules are one object."""
    if not releases:
        return [Committed()] * len(recipe.weight)
    made: dict[Any, Committed] = {}
    keys = list(zip(_cases(recipe, releases), map(tuple, recipe.alpha.T.tolist())))
    for i, key in enumerate(keys):
        if key not in made:
            made[key] = Committed(tuple(events_of(recipe, releases, i)))
    return [made[key] for key in keys]


def calibrate(privacy: Privacy, recipe: Recipe, releases: Sequence[Any], world: World) -> Recipe:
    """The largest alpha of each node, the same in all its solves, that spends at most --epsilon."""
    # Nodes of equal weight and equal penalties need the same alpha: each case is worked out once, by one rank.
    cases, kept = _cases(recipe, releases), _kept("alpha", privacy, recipe)
    chosen = world.each_once(lambda case: _alpha(privacy, recipe, case), cases, kept)
    recipe = replace(recipe, alpha=np.array([[chosen[case] for case in cases]]))
    with world.together():
        require(
            bool(np.all(recipe.alpha > 0)),
            f"--epsilon {privacy.epsilon:g} is out of reach: {len(releases)} solves cost more whatever the "
            "noise, through their Hessian and --output-epsilon; run fewer iterations, raise the penalty or --epsilon",
        )
        leave_digits(recipe)
    return recipe


def interpolated(
    config: Config, schedules: Sequence[tuple[Recipe, Sequence[Any]]], world: World, *, exact: int
) -> list[Array]:
    """About the alpha of each node under several schedules that differ in their penalties alone, and 0 out of reach.

    The schedules of all nodes are then one family, told apart by the weight of the first penalty.  For `exact` of them
    alpha is worked out, and how it differs from the rule of thumb; that is smooth, and read off for the others.
    """
    privacy, recipe = config.privacy, schedules[0][0]
    assert privacy.epsilon is not None
    cases = [_cases(recipe, releases) for recipe, releases in schedules]
    of = {case.quadratic[0]: case for some in cases for case in some}
    rough = {weight: _rough(config, recipe, case) for weight, case in of.items()}
    thumb = {weight: of[weight].mean(of[weight].factor) * rough[weight][0] ** -0.5 for weight in of}
    within = np.array(sorted(weight for weight, (variance, _) in rough.items() if np.isfinite(variance)))
    alphas = dict.fromkeys(of, 0.0)
    if len(within):
        at = within[np.unique(np.round(np.linspace(0, len(within) - 1, exact)).astype(int))]
        asked, kept = [of[weight] for weight in at.tolist()], _kept("alpha", privacy, recipe)
        found = world.each_once(lambda case: _alpha(privacy, recipe, case), asked, kept)
        rule = np.array([thumb[weight] for weight in within.tolist()])
        share = np.array([found[of[weight]] / thumb[weight] for weight in at.tolist()])
        reached = share > 0
        if reached.any():
            shares = np.interp(np.log(within), np.log(at[reached]), share[reached])
            alphas |= zip(within.tolist(), rule * shares)
    return [np.array([alphas[case.quadratic[0]] for case in some]) for some in cases]


class Choice(NamedTuple):
    """What was chosen for the budget where the user left it open."""

    eta: float
    smoothing: Smoothing
    excess: float = float("nan")  # what it is forecast to lose; of a network too large to follow nobody knows

    @property
    def words(self) -> str:
        return ", ".join([f"eta {self.eta:.4g}", *self.smoothing.words, "chosen for the budget"])


def with_penalty(config: Config, node: Node, recipe: Recipe) -> tuple[Recipe, Choice, Node, Sequence[Any]]:
    """Where nobody gave a penalty: the multiple of the automatic one with the least forecast loss, and what follows.

    A larger penalty leaves less of the budget to the Hessian and damps the noise, but converges more slowly; a mean
    over the solves takes out noise, but remembers the start.
    """
    from distadmm.methods.consensus import forecast

    world, network = node.network.world, node.network
    solves = -(-config.loop.iterations // config.algorithm.phases)
    followed = forecast.follows(node.facts.n_nodes, solves, config.algorithm.smoothing(node).power)
    A = forecast.adjacency(network) if followed else None
    order = world.rows_order(network.nodes)
    tried, most = penalties(config, node, recipe), config.loop.iterations
    choices, forecasts = [], []
    cases = [_cases(recipe, config.algorithm.releases(at_penalty(node, eta), most)) for eta in tried]
    rough = {case: _rough(config, recipe, case) for case in {case for some in cases for case in some}}
    open_to = smoothings(config.algorithm, node, A)
    told = [[number for case in of for number in (*rough[case], case.weight)] for of in zip(*cases)]
    rows = world.gather_rows(np.array(told), network.n_local)
    if rows is not None:
        for eta, of_eta in zip(tried, np.split(rows[order], len(tried), axis=1)):
            mine = [Choice(eta, each) for each in open_to]
            choices += mine
            forecasts += [_forecast(config, node, recipe, A, of_eta, choice) for choice in mine]
    best: dict[float, Choice] = {}  # of each penalty, the least forecast first
    for at in np.argsort(forecasts, kind="stable"):
        known = float(forecasts[at]) if A is not None else float("nan")
        best.setdefault(choices[at].eta, choices[at]._replace(excess=known))
    refusal = None
    for choice in world.broadcast(list(best.values())):
        chosen = at_penalty(node, choice.eta, choice.smoothing)
        releases = config.algorithm.releases(chosen, most)
        try:
            return calibrate(config.privacy, recipe, releases, world), choice, chosen, releases
        except InputError as error:  # on every rank
            refusal = error
    assert refusal is not None
    raise refusal


def smoothings(algorithm: Any, node: Node, A: Array | None) -> list[Smoothing]:
    """What may follow the last solve: as the user says, or what is worth trying; A is None where nothing is tried."""
    asked, still = algorithm.smoothing(node), node.network.conditions is None
    if A is None:
        return [asked]
    return smoothing.tried(asked, algorithm, A if algorithm.mixing == "auto" and still else None)


def penalties(config: Config, node: Node, recipe: Recipe) -> list[float]:
    """Multiples of the automatic penalty that are worth trying; the same on every rank."""
    from distadmm.methods.consensus.penalty import default_penalty

    assert config.privacy.epsilon is not None
    factors, base = list(FACTORS), default_penalty(node.facts)
    while factors[-1] < _MOST:
        here = at_penalty(node, base * factors[-1])
        cases = set(_cases(recipe, config.algorithm.releases(here, config.loop.iterations)))
        cost = max(_unavoidable(recipe, case) for case in cases)
        if max(node.network.world.allgather(cost)) <= config.privacy.epsilon / 2:
            break
        factors.append(2 * factors[-1])
    factors += [factors[-1] * 2.0**k for k in range(1, _BEYOND + 1)]
    return [base * factor for factor in factors]


def at_penalty(node: Node, eta: float, after: Smoothing | None = None) -> Node:
    table = {**node.table, "eta": np.full(node.facts.n_nodes, eta)}
    if after is not None:
        table["smoothing"] = np.array([np.nan if after.power is None else after.power, after.rounds])
    return node.having(table=table)


def _kept(question: str, privacy: Privacy, recipe: Recipe) -> Kept:
    """What was worked out before for cases under this budget and mechanism, whatever its nodes' alpha and weight."""
    from distadmm.privacy.accounting.kept import Kept

    same = replace(recipe, alpha=None, weight=None, unverified="", solves=0)  # type: ignore[arg-type]
    return Kept(question, privacy.epsilon, privacy.delta, same)


def _rough(config: Config, recipe: Recipe, case: _Case) -> tuple[float, float]:
    """Of one node, by rule of thumb: the noise's variance, infinite out of reach, and what the solves cost at most
    whatever it is.

    What a Hessian adds to the loss of privacy is of either sign, so over many solves it adds up as noise does, and not
    one by one: half of it in mu comes close to what the accountant says.
    """
    from distadmm.privacy.accounting.gaussian import at_least_mu_at, mu_at

    budget, delta = config.privacy.epsilon, config.privacy.delta
    assert budget is not None
    mu, cost = mu_at(budget, delta), _unavoidable(recipe, case)
    output = case.solves * recipe.output_epsilon**2
    hessians = np.sqrt(_hessians(recipe, case) ** 2 @ case.times)
    left = np.sqrt(max(mu**2 - output, 0.0)) - hessians / 2
    left = at_least_mu_at(float(left), max(budget - cost, 1e-9), delta)  # of few solves
    alone = replace(recipe, weight=np.array([case.weight]))
    alpha = _gaussian_guess(left, alone, case) / case.mean(case.factor)
    variance = (recipe.dimension + 1 if recipe.noise == "gamma" else 1.0) / alpha**2
    if recipe.mechanism == "output":  # on the minimiser: as much as this in the linear term
        variance *= (recipe.ridge + case.mean(case.quadratic)) ** 2
    return variance if left > _LEAST * mu else float("inf"), cost


def _unavoidable(recipe: Recipe, case: _Case) -> float:
    """The log-determinant and the output noise of each solve."""
    return case.solves * recipe.output_epsilon + float(_hessians(recipe, case) @ case.times)


def _hessians(recipe: Recipe, case: _Case) -> Array:
    """The log-determinant of each solve, at most."""
    floors = recipe.ridge + np.array(case.quadratic)
    if recipe.mechanism == "output" or (recipe.adjacency == "label" and recipe.logistic):
        return np.zeros_like(floors)
    return np.log1p(case.weight * recipe.curvature / floors)


def _forecast(
    config: Config, node: Node, recipe: Recipe, A: Array | None, rough: Array, choice: Choice
) -> float:
    """Expected excess loss; for a large network only by how much the Hessian takes more than half of the budget."""
    assert config.privacy.epsilon is not None
    noise, cost, record = rough.T
    if A is None:
        return max(float(cost.max()) - config.privacy.epsilon / 2, 0.0)
    if not np.isfinite(noise).all():
        return float("inf")
    return excess(config, node, recipe.dimension, A, noise, record, choice)


def excess(
    config: Config, node: Node, dimension: int, A: Array, noise: Array, record: Array, choice: Choice
) -> float:
    """What the nodes' own models lose, expected."""
    from distadmm.methods.consensus import forecast
    from distadmm.privacy.accounting.kept import Kept

    phases, gamma, facts = config.algorithm.phases, config.algorithm.proximal, node.facts
    solves, (power, rounds) = -(-config.loop.iterations // phases), choice.smoothing
    course = forecast.Course(solves, choice.eta, gamma, phases, power)
    plain = [value for value in facts if not isinstance(value, np.ndarray)]
    known = Kept("excess", plain, dimension, *map(_digest, (A, facts.degrees, noise, record)))
    given = A, facts, dimension, noise, record, course, rounds
    return known.one((course, rounds), lambda _: forecast.expected_excess(*given))  # type: ignore[no-any-return]


def _digest(numbers: Array) -> str:
    from hashlib import sha256

    return sha256(np.ascontiguousarray(numbers).tobytes()).hexdigest()


class _Case(NamedTuple):
    """All that the price of one node's releases depends on besides alpha."""

    weight: float
    quadratic: tuple[float, ...]
    factor: tuple[float, ...]

    times: tuple[int, ...]  # so many solves in a row with each

    @property
    def releases(self) -> Stretches:
        """As an algorithm lists them, of a network of this node alone."""
        each = zip(self.times, self.quadratic, self.factor)
        return Stretches([(times, np.array([[q]]), np.array([[m]])) for times, q, m in each], 1)

    @property
    def solves(self) -> int:
        return sum(self.times)

    def mean(self, values: Sequence[float]) -> float:
        """Over the solves."""
        return float(np.dot(values, np.array(self.times) / self.solves))


def _cases(recipe: Recipe, releases: Sequence[Any]) -> list[_Case]:
    """That of each node of this rank."""
    n, parts = len(recipe.weight), stretches(releases)
    columns = zip(*((_column(q, n), _column(m, n)) for _, q, m in parts))
    quadratic, factor = (zip(*column) for column in columns)
    times = tuple(each for each, _, _ in parts)
    return [_Case(*case, times) for case in zip(recipe.weight.tolist(), quadratic, factor)]


def _column(value: Any, n: int) -> list[float]:
    found = np.asarray(value).ravel().tolist()
    return found if len(found) == n else found * n


def _alpha(privacy: Privacy, recipe: Recipe, case: _Case) -> float:
    """Close to --epsilon from below: to one part in a thousand, or 0 if no noise is enough."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.accounting.gaussian import mu_at

    assert privacy.epsilon is not None
    target, delta = privacy.epsilon, privacy.delta
    alone = replace(recipe, weight=np.array([case.weight]), unverified="")
    releases = case.releases

    def events(alpha: float) -> list[Event]:
        return events_of(replace(alone, alpha=np.array([[alpha]])), releases, 0)

    def loss(alpha: float) -> float:
        return accountant.epsilon(events(alpha), delta, recipe.adjacency)

    def rough_loss(alpha: float) -> float:
        return accountant.epsilon(_some(events(alpha)), delta, recipe.adjacency)

    guess = _gaussian_guess(mu_at(target, delta), alone, case)
    if len(events(guess)) > _SEARCHED_BY:
        guess = _largest(rough_loss, target * (1 - 5e-4), guess) or guess
    return _largest(loss, target, guess)


def _some(events: Sequence[Event]) -> list[Event]:
    """The middle one of each few neighbours in a long schedule, in their place: to search by, not to claim."""
    every = -(-len(events) // _SEARCHED_BY)
    groups = [events[i : i + every] for i in range(0, len(events), every)]
    return [group[len(group) // 2].times(int(sum(e.releases for e in group))) for group in groups]


def _largest(loss: Callable[[float], float], target: float, start: float) -> float:
    """The alpha whose loss is closest to `target` from below: to one part in a thousand, or 0 if none is found."""
    # The loss grows like a power of alpha, near 1: follow it from where Gaussian noise of equal variance would stand.
    alpha, low, previous = start, 0.0, (0.0, 0.0)
    for _ in range(60):
        found = loss(alpha)
        if target * (1 - 1e-3) <= found <= target:
            return alpha
        low = max(low, alpha) if found <= target else low
        if alpha < 1e-7 * start:
            break
        here = (np.log(alpha), np.log(max(found, 1e-12)))
        slope = (here[1] - previous[1]) / (here[0] - previous[0]) if previous[0] else 1.0
        # Aim a little below the target, and far down at once where the loss does not follow alpha any more.
        step = (np.log(target * (1 - 5e-4)) - here[1]) / slope if slope > 0.2 else np.log(1e-2)
        previous, alpha = here, float(alpha * np.exp(np.clip(step, np.log(1e-2), np.log(1e2))))
    return low


def _gaussian_guess(mu: float, recipe: Recipe, case: _Case) -> float:
    """alpha by exact Gaussian accounting, as if the noise were Gaussian of the same variance and tau were 0."""
    moved = float(recipe.weight[0]) * recipe.slope * (2 if recipe.adjacency == "replace" else 1)
    if recipe.mechanism == "output":
        moved /= recipe.ridge + min(case.quadratic)
    factor = 1.0 if recipe.mechanism == "output" else case.mean(case.factor)
    spread = np.sqrt(recipe.dimension + 1) if recipe.noise == "gamma" else 1.0
    return float(mu * spread * factor / (np.sqrt(case.solves) * moved))
