"""Bugs planted in the running product, and who catches them; sound code, and how often it is accused.

The table in docs/audit.md is this one: a plant, the audit that runs, the findings that must come.  The default suite
plants each once; `-m slow` plants each `AGAIN` times, and audits the sound code as often as it takes.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import stats

from distadmm import radmm, sharing
from distadmm.commands import audit
from distadmm.data import source
from distadmm.files import read_npz
from distadmm.methods.consensus import private
from distadmm.methods.consensus.recycled import RADMM, State
from distadmm.methods.gossip import fixed_point, gossip
from distadmm.methods.istdp import plan as istdp_plan
from distadmm.methods.istdp import private as istdp_private
from distadmm.methods.istdp import release as istdp_release
from distadmm.methods.sharing import private as moments
from distadmm.methods.sharing.moments import Bounds
from distadmm.methods.sharing.vectors import S2
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.noise import sources
from distadmm.privacy.noise.protected import Protected, Recipe
from distadmm.privacy.noise.queries import within
from distadmm.problems.consensus import Problem
from distadmm.ranks.world import World
from distadmm.run import setup

ROOT = Path(__file__).resolve().parent.parent
AGAIN = 20

GRAPH = "--topology ring:4 --weight 20 --rho 1 --eta 0.5 --progress none --level 0 --data {three}"
LABEL = GRAPH + " --adjacency label --alpha 1"
ONE = LABEL + " --iterations 4"
MANY = LABEL + " --iterations 50"  # 100 releases of three numbers
OUTPUT = GRAPH + " --adjacency replace --alpha 1 --mechanism output --iterations 4"
COUNTED = GRAPH + " --adjacency add-remove --public-rows 40 --alpha 1 --iterations 4"
STEPS = "istdp --level 0 --runs 10"
FLOATS = STEPS + " --rng simulation"
NOISY = (
    GRAPH.replace("{three}", "{{three}}").replace("--eta 0.5 ", "")
    + " --adjacency replace --epsilon 4 --runs 10 --algorithm {}"
)
VECTORS = "sharing --level 0 --runs {runs}"


def sampled(kind: type, share: float) -> Callable[[Any], None]:
    """The sampler itself draws too little."""
    sample = kind.sample  # type: ignore[attr-defined]
    return lambda patch: patch.setattr(kind, "sample", lambda self, *given: share * sample(self, *given))


def on_the_grid(share: float) -> Callable[[Any], None]:
    def draw(self: DiscreteGaussian, stream: Any, *_: Any) -> Any:
        return stream.discrete_normal(share * self.sigma_grid, self.dimension)

    return lambda patch: patch.setattr(DiscreteGaussian, "sample", draw)


def even_from_data(patch: Any) -> None:
    even = RADMM.even

    def fresh(self: RADMM, k: int, st: State, node: Any) -> State:
        noise = st.g - node.problem.gradients(st.f)
        return even(self, k, st._replace(g=noise + node.problem.gradients(st.f + 1e-6)), node)

    patch.setattr(RADMM, "even", fresh)


def raw_minimiser(patch: Any) -> None:
    """What is recycled is the minimiser before its output noise."""
    odd = RADMM.odd

    def leaking(self: RADMM, k: int, st: State, node: Any) -> State:
        solve, raw = node.problem.argmin, []

        def kept(**given: Any) -> Any:
            raw.append(np.array(solve(**given)))
            return raw[0].copy()

        node.problem.argmin = kept
        after = odd(self, k, st, node)
        node.problem.argmin = solve
        return after._replace(f=raw[0])

    patch.setattr(RADMM, "odd", leaking)


def half_weight(patch: Any) -> None:
    made = private.recipe_of

    def flattering(*given: Any) -> Recipe:
        recipe = made(*given)
        return dataclasses.replace(recipe, weight=recipe.weight / 2)

    patch.setattr(private, "recipe_of", flattering)


def counted_rows(patch: Any) -> None:
    def counted(made: Any) -> Any:
        return lambda *given, divisor, **shared: made(*given, divisor=None, **shared)

    for name in ("objective", "Stack"):  # of one node, of many at once
        patch.setattr(setup, name, counted(getattr(setup, name)))


def unused_noise(patch: Any) -> None:
    draw = Protected.draw
    patch.setattr(Protected, "draw", lambda self, *given: 0.0 * draw(self, *given))


def overstated_floor(patch: Any) -> None:
    event = Recipe.event

    def flattering(self: Recipe, *given: Any) -> Any:
        found = event(self, *given)
        return dataclasses.replace(found, floor=1e6 * found.floor)

    patch.setattr(Recipe, "event", flattering)


def one_seed_for_all(patch: Any) -> None:
    at = sources.Simulation.at
    patch.setattr(sources.Simulation, "at", lambda self, node, *given: at(self, 0, *given))


def one_key_on_all_ranks(patch: Any) -> None:
    """Each node draws as if it lived on a rank of its own, all of them with the same key."""
    streams: dict[int, Any] = {}

    def at(self: Any, node: int, *_: int) -> Any:
        return streams.setdefault(node, sources.generated(np.random.Philox(key=7)))

    patch.setattr(sources.Secure, "at", at)


def constant_key(patch: Any) -> None:
    fixed = lambda: sources.generated(np.random.Philox(key=7))  # noqa: E731
    for generator in ("_aes", "_Urandom"):
        patch.setattr(sources, generator, fixed)


def second_message(what: Callable[[Any], Any]) -> Callable[[Any], None]:
    """After what was paid for, another one, said to be made of releases."""

    def plant(patch: Any) -> None:
        odd = RADMM.odd

        def talkative(self: RADMM, k: int, st: State, node: Any) -> State:
            after = odd(self, k, st, node)
            more = what(node.problem)
            node.release.recycle(k, more)
            node.network.exchange(more)
            return after

        patch.setattr(RADMM, "odd", talkative)

    return plant


def gradients(problem: Any) -> Any:
    return problem.gradients(np.zeros((len(problem.objectives), problem.dimension)))


def labels(problem: Any) -> Any:
    told = np.zeros((len(problem.objectives), problem.dimension))
    told[:, 0] = [objective.labels[0] for objective in problem.objectives]
    return told


def no_output_noise(patch: Any) -> None:
    seal = Protected.seal

    def bare(self: Protected, *given: Any) -> Any:
        recipe = self.recipe
        self.recipe = dataclasses.replace(recipe, output_epsilon=0.0)
        try:
            return seal(self, *given)
        finally:
            self.recipe = recipe

    patch.setattr(Protected, "seal", bare)


def no_certificate(patch: Any) -> None:
    """One Newton step, and nobody asks whether that was enough."""

    def hasty(self: Problem, linear: Any, quadratic: Any, start: Any) -> Any:
        f = np.array(start)
        for i, objective in enumerate(self.objectives):
            Q = float(np.ravel(quadratic[i])[0])
            slope = objective.grad(f[i]) + linear[i] + Q * f[i]
            f[i] -= np.linalg.solve(objective.hess(f[i]) + Q * np.eye(len(slope)), slope)
            self.residual[i] = np.linalg.norm(objective.grad(f[i]) + linear[i] + Q * f[i])
        return f

    patch.setattr(Problem, "argmin", hasty)
    patch.setattr(Protected, "_certify", lambda *given: None)


def half_sensitivity(patch: Any) -> None:
    whole = istdp_plan.sensitivity
    patch.setattr(istdp_plan, "sensitivity", lambda *given: whole(*given) / 2)


def half_grid_query(patch: Any) -> None:
    def query_of(plan: Any) -> Any:
        return within(plan.noise_multiplier, 1.0, plan.dimension, "secure", lambda event: True)

    patch.setattr(istdp_release, "query_of", query_of)


def half_moment(patch: Any) -> None:
    gradient = Bounds.gradient
    patch.setattr(Bounds, "gradient", lambda self, **given: gradient(self, **given) / 2)


def half_slopes(patch: Any) -> None:
    whole = moments.slope_sensitivity
    patch.setattr(moments, "slope_sensitivity", lambda *given: whole(*given) / 2)


def half_s2(patch: Any) -> None:
    whole = S2.sensitivity
    patch.setattr(S2, "sensitivity", lambda self, *given: whole(self, *given) / 2)


def unclipped_gradients(patch: Any) -> None:
    made, coarse = istdp_private.ClippedGradient.__init__, istdp_release.GridGradient.__init__

    def free(self: Any, *given: Any) -> None:
        made(self, *given)
        self.blocks = [(X, y, np.full(len(y), np.inf)) for X, y, _ in self.blocks]

    def free_too(self: Any, *given: Any) -> None:
        coarse(self, *given)
        self.blocks = [(unit, norms, np.full(len(y), np.inf), y) for unit, norms, _, y in self.blocks]

    patch.setattr(istdp_private.ClippedGradient, "__init__", free)
    patch.setattr(istdp_release.GridGradient, "__init__", free_too)


def uncut_rows(patch: Any) -> None:
    cut = source.clip_rows
    patch.setattr(source, "clip_rows", lambda X, bound, **how: (X, cut(X, bound)[1]))


def twice_the_clip(patch: Any) -> None:
    raw = gossip.Noisy.raw
    patch.setattr(gossip.Noisy, "raw", lambda self, k, at, clip, *given: raw(self, k, at, 2 * clip, *given))


def twice_the_cut(patch: Any) -> None:
    cut = fixed_point._cut
    patch.setattr(fixed_point, "_cut", lambda problem, clip: cut(problem, 2 * clip))


class Plant(NamedTuple):
    name: str  # as docs/audit.md has it
    into: Callable[[Any], None]
    audited: str  # the words of the audit
    finds: str  # kinds of finding, one of which must come


GAUSSIAN = " --noise gaussian"
PLANTS = [
    Plant("gamma noise of three columns, halved", sampled(ObjectivePerturbation, 0.5), MANY, "scale"),
    Plant("Gaussian noise, halved", sampled(ObjectivePerturbation, 0.5), MANY + GAUSSIAN, "scale"),
    Plant("discrete noise, halved", on_the_grid(0.5), STEPS, "scale"),
    Plant("discrete noise, times .97", on_the_grid(0.97), VECTORS.format(runs=60), "scale"),
    Plant("noise in floats where the grid is claimed", sampled(DiscreteGaussian, 1 + 1e-7), STEPS, "lattice"),
    Plant("recycled step made of data", even_from_data, ONE, "recycled"),
    Plant("recycled minimiser before its output noise", raw_minimiser, OUTPUT, "recycled"),
    Plant("weight halved in the ledger", half_weight, ONE, "entry"),
    Plant("weight from the actual number of rows", counted_rows, COUNTED, "schedule"),
    Plant("noise drawn and not used", unused_noise, ONE, "scale"),
    Plant("curvature floor overstated", overstated_floor, ONE, "entry"),
    Plant("one seed for all nodes", one_seed_for_all, ONE + " --rng simulation", "reuse"),
    Plant("one key on all ranks", one_key_on_all_ranks, "{finished}", "reuse"),
    Plant("constant key", constant_key, ONE, "key"),
    Plant("gradient in a second message", second_message(gradients), ONE, "recycled"),
    Plant("label in a second message", second_message(labels), ONE, "recycled"),
    Plant("output noise not drawn", no_output_noise, ONE, "omitted"),
    Plant("solves not certified", no_certificate, ONE, "inexact"),
    Plant("istdp's sensitivity halved", half_sensitivity, FLOATS, "entry"),
    Plant("grid query of C in place of 2 C", half_grid_query, STEPS, "entry"),
    Plant("moment bound of R in place of 2 R", half_moment, "{moments} --level 0 --runs 10", "entry"),
    Plant("sensitivity of V2's slopes halved", half_slopes, "{mutual} --level 0 --runs 10", "entry"),
    Plant("S2's sensitivity halved", half_s2, VECTORS.format(runs=10) + " --mechanism s2", "entry"),
    Plant("gradients not clipped", unclipped_gradients, STEPS, "entry"),
    Plant("gradients not clipped, in floats", unclipped_gradients, FLOATS, "entry"),
    Plant("rows not cut", uncut_rows, ONE, "entry"),
    Plant("gradients cut at twice the clip", twice_the_clip, NOISY.format("gossip"), "entry"),
    Plant("slopes of proximal steps cut at twice the clip", twice_the_cut, NOISY.format("fixed-point"), "entry"),
]  # fmt: skip
MOMENTS = "--data tiny --split 15,15 --epsilon 4 --row-norm 3 --mechanism v1 --observe none --progress none"


@pytest.fixture(scope="module")
def three(tmp_path_factory: Any) -> Path:
    """Three columns, forty records a node, rows up to norm 50."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("plants") / "three.npz"
    X = rng.normal(size=(160, 3))
    np.savez(path, X=X * np.geomspace(0.1, 20, 160)[:, None], y=np.where(rng.random(160) < 0.5, 1, -1))
    return path


def audited(words: str, three: Path, tmp_path: Path) -> Any:
    mutual = MOMENTS.replace("--mechanism v1", "--mechanism v2")
    made = {
        "moments": (sharing, MOMENTS),
        "mutual": (sharing, mutual),
        "finished": (radmm, ONE.format(three=three)),
    }
    for name, (programme, flags) in made.items():
        if "{" + name + "}" in words and not (tmp_path / name).exists():
            assert (
                programme.main([*flags.replace("--level 0", "").split(), "--out", str(tmp_path / name)]) == 0
            )
    places = {name: tmp_path / name for name in made}
    found = audit.audited(audit.read(words.format(three=three, **places).split()), World())
    assert found is not None
    return found


def kinds(found: Any) -> set[str]:
    return {finding["kind"] for level in found.levels for finding in level.more.get("findings", [])}


def caught(plant: Plant, three: Path, tmp_path: Path) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        plant.into(patch)
        found = audited(plant.audited, three, tmp_path)
    assert found.levels[0].verdict != "nothing is claimed"
    return plant.finds in kinds(found)


BY_NAME = {plant.name: plant for plant in PLANTS}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_planted_bug_is_caught(name: str, three: Path, tmp_path: Path, capsys: Any) -> None:
    assert caught(BY_NAME[name], three, tmp_path)


@pytest.mark.parametrize("words", sorted({plant.audited for plant in PLANTS}))
def test_the_sound_code_is_not_accused(words: str, three: Path, tmp_path: Path, capsys: Any) -> None:
    """One in a million at level 0; the plants' own audits, without their plants."""
    found = audited(words, three, tmp_path)
    assert not found.refuted
    assert found.levels[0].verdict == "not refuted"


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_planted_again_and_again_a_bug_is_caught_each_time(
    name: str, three: Path, tmp_path: Path, capsys: Any
) -> None:
    hits = 0
    for number in range(AGAIN):
        (tmp_path / str(number)).mkdir()
        hits += caught(BY_NAME[name], three, tmp_path / str(number))
    assert hits == AGAIN


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["istdp --epsilon 4", "sharing --epsilon 4", "sharing --epsilon 4 --mechanism s2"]
)
def test_all_levels_accuse_sound_code_no_more_often_than_stated(
    words: str, three: Path, tmp_path: Path
) -> None:
    """Levels 1 and 2 at 95 % each, level 0 at one in a million."""
    again = 60
    alarms = np.zeros(3)
    for _ in range(again):
        found = audited(words + " --runs 40 --iterations 2 --rows 12", three, tmp_path)
        alarms += [level.verdict == "refuted" for level in found.levels]
    assert alarms[0] == 0
    assert alarms[1:].max() <= stats.binom.ppf(1 - 1e-4, again, 0.05)


def test_the_page_has_every_plant() -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    rows = re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE)
    assert [row for row in rows if row in BY_NAME] == [plant.name for plant in PLANTS]
    for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page):
        assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), test


# -- what an audit cannot see, by nature -------------------------------------------------------------------


def continued_alike(folder: Path, patch: pytest.MonkeyPatch) -> bool:
    """Whether two copies of one run, each with a copy of its account, send anything alike when taken up again."""
    first, copy = folder / "first", folder / "copy"
    words = "--data tiny --topology er5 --weight 20 --eta 0.5 --alpha 1 --adjacency label --algorithm admm"
    words += " --iterations 4 --checkpoint-every 4 --progress none --observe none"
    assert radmm.main([*words.split(), "--out", str(first)]) == 0
    shutil.copytree(first, copy)
    state = Path(os.environ["XDG_STATE_HOME"])
    shutil.copytree(state, folder / "state")

    def after(run: Path, account: Path) -> np.ndarray:
        patch.setenv("XDG_STATE_HOME", str(account))
        assert radmm.main(["--resume", str(run), "--iterations", "5"]) == 0
        return read_npz(run / "models.npz")["models"]

    found = after(first, state), after(copy, folder / "state")
    patch.setenv("XDG_STATE_HOME", str(state))
    return bool(np.any(np.isclose(*found, rtol=1e-6)))


def test_noise_is_not_used_again_on_resume(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint forgets the bytes that an audit needs; a generator that comes back with it is seen here."""
    (tmp_path / "sound").mkdir()
    (tmp_path / "planted").mkdir()
    assert not continued_alike(tmp_path / "sound", monkeypatch)
    with pytest.MonkeyPatch.context() as patch:
        constant_key(patch)
        assert continued_alike(tmp_path / "planted", monkeypatch)
