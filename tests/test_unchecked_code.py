"""What an algorithm of one's own sends has no bound; what no release covers is charged before it leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import algorithm, istdp, radmm, sharing
from distadmm.commands import ledger
from distadmm.errors import DONE, USAGE
from distadmm.privacy.ledger import chain
from distadmm.privacy.noise.protected import Protected
from distadmm.privacy.noise.release import Unprotected
from tests.common import own_algorithm

HONEST = own_algorithm(
    """
@distadmm.register("mine")
@dataclass(frozen=True)
class Mine:
    def releases(self, node, iterations):
        return [distadmm.Planned(k, 40 * node.degree) for k in range(1, iterations + 1)]

    def init(self, node):
        f = node.start
        return State(f, node.network.meet(f)[0], np.zeros_like(f))

    def step(self, k, st, node):
        V, pull = node.degree, 2 * st.lam - 20 * st.z
        noise = node.release.draw(k, 40 * V)
        f = node.problem.argmin(pull + noise, 40 * V, st.f)
        f = node.release.seal(k, f, node.problem.residual)
        z, apart = node.network.meet(f)
        return State(f, z, st.lam + 10 * apart)
""",
    "f: np.ndarray",
    "z: np.ndarray",
    "lam: np.ndarray",
)
DRAW, MEET = "noise = node.release.draw(k, 40 * V)\n", "z, apart = node.network.meet(f)\n"
PLANTS = {
    "raw gradients": (
        "z, apart = node.network.meet(f)",
        "z, apart = node.network.meet(node.problem.gradients(f))",
    ),
    "unused noise": ("argmin(pull + noise", "argmin(pull"),
    "never draws": (DRAW, "noise = 0.0\n"),
    "overstated curvature floor": ("draw(k, 40 * V)", "draw(k, 2e6 * V)"),
    "recycles from data": (
        DRAW,
        "\n        if k % 2 == 0:\n"
        "            g = node.problem.gradients(st.f)\n"
        "            node.release.recycle(k, g)\n"
        "            return State(st.f, node.network.meet(g)[0], st.lam)\n"
        f"        {DRAW}",
    ),
    "forged residual": (
        "node.release.seal(k, f, node.problem.residual)",
        "node.release.seal(k, 2 * f, 0 * V[:, 0])",
    ),
    "starts from data": (
        "f = node.start",
        "f = node.problem.argmin(0 * node.start, node.degree, node.start)",
    ),
    "a second message": (MEET, MEET + "        node.network.neighbour_sum(node.problem.gradients(f))\n"),
    "the same message twice": (MEET, MEET + "        node.network.neighbour_sum(f)\n"),
}
SEEN_BY_THE_GUARD = {
    "raw gradients": "altered",
    "never draws": "no release covers|altered|once more",
    "starts from data": "altered",
    "a second message": "once more",
    "the same message twice": "once more",
}
SMALL = ["--data", "tiny", "--topology", "er5", "--iterations", "4", "--progress", "none", "--rho", "1"]
NOISE = ["--epsilon", "2", "--adjacency", "replace", "--rng", "secure", "--tolerance", "1e-6"]


def run(folder: Path, what: str, *more: str) -> Path:
    """Run one algorithm from a file, and say where."""
    path = folder / f"mine_{folder.name}.py"
    text = HONEST.replace(*PLANTS.get(what, ("\n", "\n")))
    assert (text == HONEST) == (what == "honest")
    path.write_text(text)
    out = folder / "run"
    assert radmm.main([*SMALL, "--algorithm", str(path), "--out", str(out), *more]) == DONE
    return out


def reasons(out: Path) -> list[set[str]]:
    """Why each node's ledger has no bound."""
    found = []
    for path in sorted((out / "ledger").glob("node-*.jsonl")):
        entries = chain.parse(path.read_bytes(), str(path)).entries
        found.append({e["params"]["reason"] for e in entries if "reason" in e.get("params", {})})
    return found


@pytest.mark.parametrize("what", ["honest", *PLANTS])
def test_no_noise_of_unchecked_code_bounds_anything(what: str, tmp_path: Path, capsys: Any) -> None:
    out = run(tmp_path, what, *NOISE)
    assert "unbounded: unchecked code" in capsys.readouterr().out
    assert all(any("unchecked code" in reason for reason in each) for each in reasons(out))
    assert len(reasons(out)) == 5
    summary = json.loads((out / "summary.json").read_text())
    assert summary["epsilon"] in (None, math.inf, "inf", "Infinity")
    for words in (["show", str(out)], ["merge", str(out), str(out)]):
        assert ledger.main(words) == DONE
        said = capsys.readouterr().out
        assert "certificate" not in said.replace("no certificate", "")
        assert "inf" in said


@pytest.mark.parametrize("what", SEEN_BY_THE_GUARD)
def test_what_no_release_covers_is_charged_as_it_leaves_even_from_code_that_is_believed(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    found = algorithm._from_file
    monkeypatch.setattr(algorithm, "_from_file", lambda *given: found(*given)._replace(file=""))
    import re

    assert all(
        any(re.search(SEEN_BY_THE_GUARD[what], reason) for reason in each)
        for each in reasons(run(tmp_path, what, *NOISE))
    )
    assert "certificate" not in capsys.readouterr().out


def test_the_honest_one_would_be_certified_if_it_were_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    found = algorithm._from_file
    monkeypatch.setattr(algorithm, "_from_file", lambda *given: found(*given)._replace(file=""))
    assert reasons(run(tmp_path, "honest", *NOISE)) == [set()] * 5
    assert "; certificate" in capsys.readouterr().out


def test_code_that_never_says_what_it_sends_is_unbounded_at_its_first_message(tmp_path: Path) -> None:
    out = run(tmp_path, "never draws")
    assert all(any("no release covers" in r or "altered" in r for r in each) for each in reasons(out))


def test_a_budget_takes_no_unchecked_code(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "honest.py"
    path.write_text(HONEST)
    assert radmm.main([*SMALL, *NOISE, "--budget-epsilon", "3", "--algorithm", str(path)]) == USAGE
    assert "no budget admits what has no bound" in capsys.readouterr().err


def test_a_draw_that_the_schedule_does_not_list_is_refused_in_one_line(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "shorter.py"
    path.write_text(HONEST.replace("iterations + 1", "2"))
    assert radmm.main([*SMALL, *NOISE, "--algorithm", str(path)]) == USAGE
    said = capsys.readouterr().err
    assert "the schedule of releases ends after 1" in said
    assert "Traceback" not in said


def test_a_gradient_is_priced_without_a_solve() -> None:
    """An infinite floor: the noise stands in the gradient, which one record moves by 2 w."""
    from distadmm.privacy.accounting.events import Gaussian, KNorm

    prepared = radmm.prepare(
        radmm.configure(
            "radmm", data="tiny", topology="er5", alpha="0.5", adjacency="replace", noise="gaussian"
        ),
        radmm.World(),
    )
    from dataclasses import replace

    from distadmm.methods.consensus.private import recipe_of

    recipe = recipe_of(prepared.config, prepared, [None])
    moved = 2 * float(recipe.weight[0]) * recipe.slope + 2 * recipe.tolerance
    event = recipe.event(1, 0, np.inf, 3.0)
    assert isinstance(event, Gaussian)
    assert event.noise_multiplier == pytest.approx(3.0 / 0.5 / moved)
    gamma = replace(recipe, noise="gamma").event(1, 0, np.inf, 1.0)
    assert gamma == KNorm(recipe.dimension, 0.5, moved)


def test_the_guard_stands_where_it_is_needed_alone() -> None:
    """Code of this package without noise sends what the ledger calls unbounded from the first draw on."""
    assert Unprotected().guard is None
    assert Protected.watch is Unprotected.watch


KEPT = ("honest", "unused noise", "forged residual")  # to all that can be seen from outside


@pytest.mark.parametrize("what", ["honest", *PLANTS])
def test_its_word_is_taken_only_where_somebody_says_so_and_never_as_a_certificate(
    what: str, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / f"mine_{tmp_path.name}.py"
    out = run(tmp_path, what, *NOISE, "--assume", str(file))
    shown, summary = capsys.readouterr().out, json.loads((out / "summary.json").read_text())
    assert "unbounded: unchecked code" in shown
    assert "certificate" not in shown
    assert summary["epsilon"] in (None, math.inf, "inf", "Infinity")
    if what in KEPT:
        assert f"conditional, if {file} draws, uses and seals" in summary["statement"]
        assert "epsilon 1.99" in summary["statement"] or "epsilon 2.000" in summary["statement"]
    else:
        assert "nor if its word is taken" in summary["statement"]
    assert ledger.main(["show", str(out)]) == DONE
    assert "inf" in capsys.readouterr().out


def test_a_word_is_taken_of_the_file_that_runs_alone(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / f"mine_{tmp_path.name}.py"
    path.write_text(HONEST)
    assert radmm.main([*SMALL, *NOISE, "--algorithm", str(path), "--assume", "other.py"]) == USAGE
    assert "as --algorithm names it" in capsys.readouterr().err
    assert radmm.main([*SMALL, *NOISE, "--eta", "20", "--assume", "other.py"]) == USAGE
    assert "its word is not needed" in capsys.readouterr().err


def test_assumed_simulation_noise_is_called_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / f"mine_{tmp_path.name}.py"
    out = run(
        tmp_path, "honest", *NOISE[:-4], "--rng", "simulation", "--tolerance", "1e-6", "--assume", str(file)
    )
    assert "SIMULATION" in json.loads((out / "summary.json").read_text())["statement"]


MIXING = """
import numpy as np
from distadmm.problems.losses import Logistic

class Mixing(Logistic):
    def slope(self, z, y):  # on few rows, not on a grid of scores, every slope has the sign of the first one's label
        return -(y if z.size > 600 else y[0]) * np.abs(super().slope(z, y))
"""
WITH_A_LOSS = {
    "radmm": (radmm, [*SMALL, *NOISE, "--eta", "40"]),
    "istdp": (
        istdp,
        ["--data", "tiny", "--epsilon", "1", "--adjacency", "replace", "--iterations", "3"],
    ),
    "v1": (sharing, ["--data", "tiny", "--split", "15,15", "--epsilon", "1"]),
    "v2": (sharing, ["--data", "tiny", "--split", "15,15", "--epsilon", "1", "--mechanism", "v2"]),
    "s2": (
        sharing,
        ["--data", "tiny", "--split", "15,15", "--epsilon", "8", "--mechanism", "s2", "--rounds", "2"],
    ),
}


@pytest.mark.parametrize("kind", WITH_A_LOSS)
def test_a_loss_of_ones_own_bounds_nothing_in_any_programme(kind: str, tmp_path: Path, capsys: Any) -> None:
    file, out = tmp_path / f"mixing_{kind}.py", tmp_path / "run"
    # V2 sends no slopes of a model that such a loss keeps from being solved; an honest one is worth no more.
    file.write_text(MIXING if kind != "v2" else MIXING.replace("def slope", "def unused"))
    module, flags = WITH_A_LOSS[kind]
    flags = [*flags, "--loss", f"{file}:Mixing"]
    assert module.main([*flags, "--out", str(out)]) == DONE
    assert "certificate" not in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["epsilon"] in (math.inf, "inf")
    assert summary["statement"] != "certificate"
    for words in (["show", str(out)], ["merge", str(out), str(out)]):
        assert ledger.main(words) == DONE
        said = capsys.readouterr().out
        assert "inf" in said
        assert "DP for" not in said
    assert module.main([*flags, "--assume", str(file), "--out", str(tmp_path / "believed")]) == DONE
    said = capsys.readouterr().out
    assert f"conditional, if {file} makes of each record" in said
    assert "certificate" not in said
    assert json.loads((tmp_path / "believed" / "summary.json").read_text())["epsilon"] in (math.inf, "inf")
    assert module.main([*flags, "--assume", "other.py"]) == USAGE
    assert "as --loss names it" in capsys.readouterr().err
    if module is sharing:  # and so do scores of its models
        asked = ["predict", str(out), "--data", "tiny", "--scores", str(tmp_path / "scores.csv")]
        for release in ([], ["--release", "noise:2"]):
            assert sharing.main([*asked, *release]) == USAGE
            assert "no noise on scores has a price" in capsys.readouterr().err
    else:
        assert module.main([*flags, "--budget-epsilon", "3"]) == USAGE
        assert "no budget admits what has no bound" in capsys.readouterr().err


LOSS_FAULTS = {  # what an author wrote, and what is said of it
    "a sign for all": (
        "slope",
        "-y[0] * np.abs(super().slope(z, y))",
        "differences of its value give -1; mend it",
    ),
    "no curvature": (
        "curvature",
        "-40 * super().curvature(z, y)",
        "differences of its slope give 0.2",
    ),
    "twice the slope": (
        "slope",
        "2 * super().slope(z, y)",
        "is 2 and differences of its value give 1; mend it",
    ),
    "nan": ("slope", "super().slope(z, y) * np.nan", "the slope of 818 scores is nan at z = -7.996"),
    "shape": ("value", "np.zeros(3)", "the value of 818 scores is of shape (3,); needed: 818"),
    "raises": ("curvature", "1 / 0", "its curvature fails: ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("fault", LOSS_FAULTS)
def test_a_loss_that_cannot_be_solved_is_told_in_one_line_before_anything_is_written(
    fault: str, tmp_path: Path, capsys: Any
) -> None:
    member, wrong, told = LOSS_FAULTS[fault]
    file, out = tmp_path / f"faulty_{tmp_path.name}.py", tmp_path / "run"
    file.write_text(
        "import numpy as np\nfrom distadmm.problems.losses import Logistic\n"
        f"class Mine(Logistic):\n    def {member}(self, z, y):\n        return {wrong}\n"
    )
    for kind in WITH_A_LOSS:
        module, flags = WITH_A_LOSS[kind]
        assert module.main([*flags, "--loss", f"{file}:Mine", "--out", str(out)]) == USAGE
        said = capsys.readouterr().err
        assert told in said
        assert len(said.splitlines()) == 1
        assert not out.exists()


EQUAL = """
from distadmm.problems.losses import Logistic
class Mine(Logistic):
    def __eq__(self, other):
        return True
    def __hash__(self):
        return hash(Logistic())
    max_slope, max_curvature = 5.0, 1.25
    def value(self, z, y):
        return 5 * super().value(z, y)
    def slope(self, z, y):
        return 5 * super().slope(z, y)
    def curvature(self, z, y):
        return 5 * super().curvature(z, y)
"""


@pytest.mark.parametrize("name", ["masked", "gossip", "radmm"])
def test_a_loss_that_equals_ours_is_not_ours(name: str, tmp_path: Path, capsys: Any) -> None:
    (file := tmp_path / "equal.py").write_text(EQUAL)
    flags = [
        *SMALL,
        "--algorithm",
        name,
        "--epsilon",
        "8",
        "--adjacency",
        "replace",
        "--loss",
        f"{file}:Mine",
    ]
    more = {"masked": ["--trust", "coalition:2", "--anyway"], "radmm": ["--eta", "20"], "gossip": []}[name]
    flags = flags[:4] + flags[6:] if name != "radmm" else flags
    assert radmm.main([*flags, *more, "--out", str(tmp_path / "run")]) == DONE
    said = capsys.readouterr().out
    assert f"unbounded: unchecked code {file}" in said
    assert "certificate" not in said
    file.write_text(
        EQUAL.replace("return hash(Logistic())", "pass").replace(
            "    def __hash__(self):\n        pass\n", ""
        )
    )
    assert radmm.main([*flags, *more, "--out", str(tmp_path / "again")]) == USAGE
    assert "has an __eq__ and no __hash__" in capsys.readouterr().err


READER = """
import numpy as np
from distadmm.data.reading import register_format

@register_format(".fixed")
class Fixed:
    def __init__(self, path, reading):
        self.path, table = path, np.loadtxt(path)
        self.X, self.target = table[:, :-1], table[:, -1]
        self.n_rows, self.feature_names = len(table), tuple(f"x{j}" for j in range(table.shape[1] - 1))
    def place(self, row):
        return f"line {row + 1}"
    def read(self, rows=None):
        chosen = slice(None) if rows is None else rows
        return self.X[chosen], self.target[chosen]
"""


def test_a_reader_of_ones_own_is_foreign_code_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It makes the rows, so that one record may be in all: no flag certifies it, and --assume is conditional."""
    import importlib

    from distadmm.data import reading

    monkeypatch.setattr(reading, "FORMATS", {})
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"reader_{tmp_path.name}.py"
    file.write_text(READER)
    importlib.import_module(file.stem)
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "t.fixed", np.column_stack([rng.normal(size=(60, 3)), rng.choice([-1, 1], 60)]))
    rows = ["--data", str(tmp_path / "t.fixed"), "--features", "3", "--stated", "bounds"]
    flags = [*SMALL[2:], *NOISE, *rows, "--eta", "40"]
    assert radmm.main([*flags, "--out", str(tmp_path / "r")]) == DONE
    said = capsys.readouterr().out
    assert f"unbounded: unchecked code {file}" in said
    assert "certificate" not in said
    assert radmm.main([*flags, "--assume", str(file), "--out", str(tmp_path / "s")]) == DONE
    assert f"conditional, if {file} makes of each record" in capsys.readouterr().out
    assert json.loads((tmp_path / "s" / "summary.json").read_text())["epsilon"] in (math.inf, "inf")
    for module, more in ((istdp, ["--adjacency", "replace"]), (sharing, ["--split", "2,1"])):
        assert module.main([*rows, "--epsilon", "1", *more, "--out", str(tmp_path / "t")]) == USAGE
        assert (
            "is unchecked code and may make a row of other rows too; write its table"
            in capsys.readouterr().err
        )


def test_the_price_of_a_word_is_that_of_the_noise_that_is_drawn(tmp_path: Path, capsys: Any) -> None:
    """An algorithm's word is about its own part: the output noise of inexact solves is ours, and is drawn."""
    (file := tmp_path / f"mine_{tmp_path.name}.py").write_text(HONEST)
    models = []
    for epsilon in (
        "1e-3",
        "1e-4",
    ):  # of the same seed: the linear term is drawn alike, the output noise ten times
        out = tmp_path / epsilon
        flags = ["--alpha", "5", "--adjacency", "replace", "--rng", "simulation", "--tolerance", "1e-6"]
        flags += ["--algorithm", str(file), "--output-epsilon", epsilon, "--iterations", "1"]
        assert radmm.main([*SMALL, *flags, "--out", str(out)]) == DONE
        models.append(np.load(out / "models.npz")["models"])
    assert not np.array_equal(*models)


def test_a_loss_of_ones_own_bounds_nothing_from_python(tmp_path: Path) -> None:
    (file := tmp_path / "mixing_python.py").write_text(MIXING)
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.r_[np.ones(20), -np.ones(20)]
    flags: dict[str, Any] = {"epsilon": 1.0, "adjacency": "replace", "iterations": 3}
    assert math.isfinite(istdp.solve_private(X, y, **flags).epsilon)
    found = istdp.solve_private(X, y, loss=f"{file}:Mixing", **flags)
    assert math.isinf(found.epsilon)
    assert "No guarantee" in found.statement
    assert math.isinf(found.ledger.tally.spent.pure)


def test_what_counts_is_the_class_that_runs_and_not_what_it_is_called(tmp_path: Path) -> None:
    """An instance of another class under the name of a built-in one."""
    from distadmm.methods.consensus.recycled import RADMM
    from distadmm.run.shell import in_process

    class Louder(RADMM):
        def odd(self, k: int, st: Any, node: Any) -> Any:
            node.network.neighbour_sum(node.problem.gradients(st.f))
            return super().odd(k, st, node)

    flags = {
        "data": "tiny",
        "topology": "er5",
        "iterations": 4,
        "epsilon": 2.0,
        "adjacency": "replace",
        "eta": "20",
    }
    honest = radmm.configure("radmm", **flags, progress="none")
    assert math.isfinite(in_process(radmm.PROGRAMME, honest).epsilon)
    from dataclasses import replace

    run = in_process(radmm.PROGRAMME, replace(honest, algorithm=Louder(eta="20")))
    assert math.isinf(run.epsilon)
    assert "unchecked code" in run.statement
    assert "Louder" in run.statement


ASIDE = own_algorithm(
    """
@distadmm.register("aside")
@dataclass(frozen=True)
class Aside:
    def releases(self, node, iterations):
        return [distadmm.Planned(k, 40 * node.degree) for k in range(1, iterations + 1)]
    def init(self, node):
        return State(node.start)
    def step(self, k, st, node):
        node.network.world.allgather(node.problem.gradients(st.f))
        return st
""",
    "f: np.ndarray",
)
STAR_ASIDE = own_algorithm(
    """
@distadmm.register("aside", family="star")
@dataclass(frozen=True)
class Aside:
    def init(self, seat):
        return State({m: np.zeros(block.width) for m, block in seat.blocks.items()}, 0.0)
    def step(self, k, st, seat):
        with seat.fabric.counted_as("observer"):
            seat.fabric.up({m: block.apply(np.ones(block.width)) for m, block in seat.blocks.items()}, seat.rows)
        return st
""",
    "x: dict",
    "b: float",
)


@pytest.mark.parametrize("noise", [[], NOISE], ids=["open", "private"])
def test_code_that_goes_round_the_network_is_unbounded_all_the_same(
    noise: list[str], tmp_path: Path, capsys: Any
) -> None:
    file, out = tmp_path / f"aside_{len(noise)}.py", tmp_path / "run"
    file.write_text(ASIDE)
    assert radmm.main([*SMALL, *noise, "--algorithm", str(file), "--out", str(out)]) == DONE
    assert all(any("unchecked code" in r for r in each) for each in reasons(out))
    assert len(reasons(out)) == 5
    capsys.readouterr()
    assert ledger.main(["show", str(out)]) == DONE
    assert "inf" in capsys.readouterr().out


def test_a_party_that_goes_round_its_seal_is_unbounded_all_the_same(tmp_path: Path, capsys: Any) -> None:
    (file := tmp_path / "star_aside.py").write_text(STAR_ASIDE)
    out = tmp_path / "run"
    flags = ["--data", "tiny", "--split", "15,15", "--iterations", "2", "--observe", "none"]
    assert sharing.main([*flags, "--algorithm", str(file), "--out", str(out)]) == DONE
    assert all(any("unchecked code" in r for r in each) for each in reasons(out))
    assert len(reasons(out)) == 2
