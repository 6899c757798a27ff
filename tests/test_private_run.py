"""Private runs end to end: what is charged, what is printed, what is refused, what a resume sends again."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.commands import ledger_report
from distadmm.errors import BUDGET, DONE, USAGE, InputError
from distadmm.files import read_npz
from distadmm.methods.consensus import private as protect
from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting import statements as said_of
from distadmm.problems.consensus import Problem
from distadmm.ranks.world import World
from distadmm.run import shell
from distadmm.run.running import unwritten
from distadmm.run.setup import prepare
from distadmm.run.shell import in_process

SMALL: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "weight": 20.0, "rho": 1.0, "eta": "2", "iterations": 8, "progress": "none",
}  # fmt: skip
PRIVATE = {**SMALL, "alpha": "3", "adjacency": "replace", "rng": "simulation"}


def words(values: dict[str, Any]) -> list[str]:
    return [text for key, value in values.items() for text in ("--" + key.replace("_", "-"), str(value))]


def entries(folder: Path, node: int) -> list[dict[str, Any]]:
    text = (folder / "ledger" / f"node-{node:04d}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", ["radmm", "mradmm", "admm", "madmm"])
def test_every_solve_is_paid_for_once_and_recycling_costs_nothing(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert radmm.main([*words({**PRIVATE, "algorithm": name}), "--out", str(out)]) == DONE
    phases = 2 if name in ("radmm", "mradmm") else 1
    for node in range(5):
        lines = entries(out, node)
        paid = [line["k"] for line in lines if line["kind"] == "release"]
        free = [line["k"] for line in lines if line["kind"] == "post"]
        assert paid == list(range(1, 9, phases))
        assert free == ([2, 4, 6, 8] if phases == 2 else [])
        (commit,) = [line for line in lines if line["kind"] == "commit"]
        assert sum(event["count"] for event in commit["events"]) == len(paid)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["statement"] == "simulation"  # seeded noise never earns a certificate
    assert 0 < summary["epsilon"] < summary["published_epsilon"]


def test_epsilon_is_what_the_accountant_says_of_the_ledger(tmp_path: Path) -> None:
    run = radmm.solve("radmm", **{**PRIVATE, "out": tmp_path / "run"})
    dearest = 0.0
    for node in range(5):
        (commit,) = [line for line in entries(tmp_path / "run", node) if line["kind"] == "commit"]
        events = [accountant.event_from_json(line) for line in commit["events"]]
        dearest = max(dearest, accountant.epsilon(events, 1e-5, "replace"))
    assert run.epsilon == dearest


@pytest.mark.parametrize("adjacency", ["replace", "label", "add-remove"])
@pytest.mark.parametrize("mechanism", ["objective", "output"])
@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
def test_a_target_is_met_from_below(adjacency: str, mechanism: str, noise: str) -> None:
    flags = {
        **SMALL,
        "epsilon": 3.0,
        "adjacency": adjacency,
        "mechanism": mechanism,
        "noise": noise,
        "rng": "secure",
    }
    if adjacency == "add-remove":
        flags["public_rows"] = 90
    run = radmm.solve("radmm", **flags)
    assert 0.98 * 3.0 < run.epsilon <= 3.0
    assert run.statement == "certificate"


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_output_perturbation_is_quoted_in_words_of_its_own(loss: str, tmp_path: Path, capsys) -> None:
    from distadmm.commands import ledger as ledger_command

    flags = {**PRIVATE, "rng": "secure", "mechanism": "output", "loss": loss}
    assert radmm.main([*words(flags), "--out", str(tmp_path / "run")]) == DONE
    capsys.readouterr()
    assert ledger_command.main(["show", str(tmp_path / "run")]) == DONE
    shown = capsys.readouterr().out
    assert "each the minimiser under noise, weight C/B fixed, solves certified to 1e-10. Exact" in shown
    assert "output noise" not in shown
    assert "No guarantee" not in shown
    assert "certificate" in shown


@pytest.mark.parametrize("name", ["admm", "radmm", "madmm"])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_no_minimiser_without_its_noise_is_kept_under_output_perturbation(
    name: str, loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in a checkpoint lies nearer to what a solve found than what was sent does."""
    out, found, began = tmp_path / "run", [], []
    argmin = Problem.argmin

    def noting(self: Any, linear: Any, quadratic: Any, start: Any) -> Any:
        began.append(start.copy())
        found.append(argmin(self, linear, quadratic, start))
        return found[-1].copy()

    monkeypatch.setattr(Problem, "argmin", noting)
    case = {**PRIVATE, "algorithm": name, "rng": "secure", "mechanism": "output", "checkpoint_every": 4}
    run = radmm.solve(**{**case, "loss": loss, "iterations": 8}, out=out)
    (kept,) = (out / "checkpoint").glob("iteration-*/*.npz")
    arrays = read_npz(kept)
    sent = np.linalg.norm(run.models - found[-1], axis=1).min()
    assert sent > 1e-3
    width = run.models.shape[1]
    rows = [a.reshape(-1, width) for a in arrays.values() if a.size and a.shape[-1:] == (width,)]
    assert len(rows) >= 3
    for minimiser in np.concatenate(found):
        assert min(np.linalg.norm(each - minimiser, axis=1).min() for each in rows) > 1e-3 * sent
    assert not arrays["solver.taken"].any()
    assert not arrays["solver.begun"].any()
    assert name != "admm" or not any(np.array_equal(a, b) for a in began[1:] for b in found)


@pytest.mark.parametrize("kind", ["radmm", "sharing", "istdp"])
def test_checkpoints_models_and_ledgers_are_for_their_owner_alone(kind: str, tmp_path: Path) -> None:
    out, before = tmp_path / "run", os.umask(0)
    try:
        if kind == "radmm":
            radmm.solve(**{**PRIVATE, "rng": "secure", "checkpoint_every": 4}, out=out)
        elif kind == "sharing":
            flags = ["--epsilon", "8", "--mechanism", "s2", "--row-norm", "1", "--rounds", "3"]
            more = [*flags, "--checkpoint-every", "2"]
            assert sharing.main(["--data", "tiny", "--split", "15,15", *more, "--out", str(out)]) == DONE
        else:
            flags = ["--epsilon", "1", "--adjacency", "replace", "--iterations", "3"]
            more = [*flags, "--checkpoint-every", "2"]
            assert istdp.main(["--data", "tiny", *more, "--out", str(out)]) == DONE
    finally:
        os.umask(before)
    secret = [p for p in out.rglob("*") if p.is_file() and (p.suffix == ".npz" or p.parent.name == "ledger")]
    assert len(secret) > 3
    assert {oct(p.stat().st_mode & 0o777) for p in secret} == {"0o600"}
    assert (out / "checkpoint").stat().st_mode & 0o077 == 0


def test_the_number_of_rows_is_written_only_where_it_is_public(tmp_path: Path) -> None:
    for adjacency, public in (("add-remove", False), ("replace", True)):
        out = tmp_path / adjacency
        radmm.solve("radmm", **{**PRIVATE, "adjacency": adjacency, "public_rows": 91, "out": out})
        assert ("rows" in json.loads((out / "config.json").read_text())["data"]) is public


def test_a_run_is_not_begun_anew_where_it_should_go_on(tmp_path: Path) -> None:
    """In this process alone nothing would be taken up, and the budget be spent a second time."""
    radmm.solve("radmm", **PRIVATE, out=tmp_path / "run")
    for more in ({}, {"out": tmp_path / "run"}):
        with pytest.raises(InputError, match=r"python -m distadmm.radmm --resume DIR"):
            radmm.solve("radmm", **PRIVATE, resume=str(tmp_path / "run"), **more)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["radmm", "madmm"])
def test_simulated_noise_is_the_same_on_any_number_of_ranks(name: str, world: World) -> None:
    def models(where: World) -> Any:
        return in_process(radmm.PROGRAMME, radmm.configure(name, **PRIVATE), where).models

    together = models(world)
    if world.is_root:
        np.testing.assert_array_equal(together, models(World()))


def test_secure_noise_is_never_the_same_twice() -> None:
    flags = {**PRIVATE, "rng": "secure"}
    one, two = (radmm.solve("radmm", **flags).models for _ in range(2))
    assert one is not None
    assert not np.any(one == two)


@pytest.mark.parametrize("name", ["admm", "madmm", "radmm"])
def test_noise_in_the_model_has_the_scale_that_the_ledger_states(name: str) -> None:
    """The optimality condition of the first release gives its noise back, up to the output noise."""
    prepared = prepare(radmm.configure(name, **{**PRIVATE, "iterations": 1, "eta_growth": "1"}), World())
    node = protect.armed(prepared, protect.plan_of(prepared), unwritten(prepared.config.run))
    algorithm = prepared.config.algorithm
    before = algorithm.init(node)
    after = algorithm.step(1, before, node)
    V, eta = node.degree, 2.0
    pull = 2 * before.lam - eta * before.z
    left = node.problem.gradients(after.f) + pull + 2 * eta * V * after.f
    for i, ledger in enumerate(node.release.books.ledgers):
        (event,) = ledger.events
        # |b| ~ Gamma(d, 1/scale): the mean is d/scale, and five deviations are 5 sqrt(d)/scale.
        d, length = event.dimension, float(np.linalg.norm(left[i]))
        assert abs(length - d / event.scale) < 5 * np.sqrt(d) / event.scale
        factor = 2 * eta * V[i, 0] if name == "madmm" else 1.0
        assert event.scale == pytest.approx(3.0 / factor)


@pytest.mark.parametrize("spent", [1.99904, 1.99951, 0.99961, 12.3449, 2.0])
def test_no_printed_epsilon_is_below_what_was_spent(spent: float) -> None:
    summary = {"epsilon": spent, "published_epsilon": 10 * spent, "delta": 1e-5}
    said = said_of.loss_in_words({**summary, "adjacency": "replace", "statement": "certificate"})
    found = re.match(r"epsilon (\S+) at delta 1e-05 \(replace\); published bound (\S+); certificate", said)
    assert found
    assert spent <= float(found[1]) < 1.001 * spent
    assert 10 * spent <= float(found[2]) < 10.01 * spent


def test_a_budget_ends_all_ranks_with_code_three(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    # The plan is not committed beyond the budget: the whole of it does not fit, so nothing starts.
    flags = words({**PRIVATE, "iterations": 40, "budget_epsilon": 3.0})
    assert radmm.main([*flags, "--out", str(out)]) == BUDGET
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "overspend the budget" in shown
    assert "node 0, the committed schedule: " in shown
    assert "-1" not in shown


@pytest.mark.parametrize(
    "how", [{"message_loss": 0.3}, {"drop_out": "0.2:0.5"}, {"topology": "links:p=0.7:seed=2:er5"}], ids=str
)
def test_a_changing_network_is_priced_ahead(how: dict[str, Any]) -> None:
    """Degrees change with the seed alone: the plan knows them, so the certificate and the target hold."""
    flags = {**SMALL, "epsilon": 4.0, "adjacency": "replace", "rng": "secure", **how}
    for name in ("admm", "radmm"):
        run = radmm.solve(name, **flags)
        assert run.statement == "certificate"
        assert 0.98 * 4.0 < run.epsilon <= 4.0


def test_a_budget_that_runs_out_on_the_way(tmp_path: Path, capsys) -> None:
    """What was committed fits; the extra iterations of a continuation do not: models saved, code 3, nothing spent."""
    out = tmp_path / "run"
    flags = {**PRIVATE, "rng": "secure", "budget_epsilon": 4.0, "checkpoint_every": 2}
    assert radmm.main([*words(flags), "--out", str(out)]) == DONE
    capsys.readouterr()
    assert radmm.main(["--resume", str(out), "--iterations", "60"]) == BUDGET
    shown = capsys.readouterr().out
    assert "privacy budget" in shown
    assert "nothing of it was drawn or sent" in shown
    summary = json.loads((out / "summary.json").read_text())
    assert 8 < summary["iterations"] < 60
    assert summary["epsilon"] <= 4.0
    paid = [line["k"] for line in entries(out, 0) if line["kind"] in ("release", "charge")]
    assert max(paid) <= summary["iterations"]
    assert read_npz(out / "models.npz")["models"].shape == (5, 30)


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_all_ranks_stop_together_when_one_budget_runs_out(world: World, shared_path: Path) -> None:
    out = str(shared_path / "run")
    flags = {**PRIVATE, "budget_epsilon": 4.0, "checkpoint_every": 2}
    config = world.on_root(lambda: radmm.PROGRAMME.read([*words(flags), "--out", out]))
    assert shell.work(radmm.PROGRAMME, config, world) == DONE
    config = world.on_root(lambda: radmm.PROGRAMME.read(["--resume", out, "--iterations", "60"]))
    assert shell.work(radmm.PROGRAMME, config, world) == BUDGET


# Beside such a penalty doubles keep nothing of the noise.
UNSOLVED = {**PRIVATE, "rng": "secure", "alpha": "1", "eta": "1e16", "start": 1.0}


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_a_solve_that_misses_its_tolerance_ends_all_ranks_of_a_run_with_a_budget(
    world: World, shared_path: Path
) -> None:
    out = str(shared_path / "run")
    flags = words({**UNSOLVED, "budget_epsilon": 1e9, "stall_timeout": 30})
    config = world.on_root(lambda: radmm.PROGRAMME.read([*flags, "--out", out]))
    assert shell.work(radmm.PROGRAMME, config, world) == BUDGET
    if world.is_root:
        summary = json.loads((shared_path / "run" / "summary.json").read_text())
        assert summary["iterations"] == 0
        assert "above --tolerance" in summary["reason"]


def test_a_solve_that_misses_its_tolerance_is_named_as_what_leaves_no_bound() -> None:
    run = radmm.solve("radmm", **UNSOLVED)
    assert run.epsilon == float("inf")
    assert "a solve ended at gradient norm" in said_of.loss_in_words(run.summary)


def test_the_history_says_what_its_epsilon_is_worth(tmp_path: Path) -> None:
    for rng, word in (("simulation", "simulation"), ("secure", "certificate")):
        radmm.solve("radmm", **{**PRIVATE, "rng": rng, "out": tmp_path / rng})
        lines = (tmp_path / rng / "history.csv").read_text().splitlines()
        at = lines[0].split(",").index("statement")
        assert {line.split(",")[at] for line in lines[1:]} == {word}


def test_a_budget_of_what_the_schedule_costs_admits_it_at_every_node(tmp_path: Path) -> None:
    """It fits by its tight price alone, and that of each node: their degrees, and so their schedules, differ."""
    tight = {**SMALL, "epsilon": 4.0, "adjacency": "replace", "budget_epsilon": 4.0, "out": tmp_path / "run"}
    run = radmm.solve("radmm", **tight)
    assert run.statement == "certificate"
    assert run.epsilon <= 4.0
    plans = {entries(tmp_path / "run", node)[0]["budget"]["schedule"] for node in range(5)}
    assert len(plans) > 1


def test_a_run_within_its_budget_certifies_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = words({**PRIVATE, "rng": "secure", "budget_epsilon": 50.0})
    assert radmm.main([*flags, "--out", str(out)]) == DONE
    assert json.loads((out / "summary.json").read_text())["statement"] == "certificate"


@pytest.mark.parametrize("budget", [None, 50.0])
def test_iterations_added_to_a_schedule_are_priced_as_chosen_on_the_way(
    budget: float | None, tmp_path: Path
) -> None:
    """Also within a budget, and in every line of the history: never below what the ledger says."""
    out = tmp_path / "run"
    flags = {**PRIVATE, "rng": "secure", "checkpoint_every": 4} | (
        {"budget_epsilon": budget} if budget else {}
    )
    assert radmm.main([*words(flags), "--out", str(out)]) == DONE
    assert radmm.main(["--resume", str(out), "--iterations", "24"]) == DONE
    ledgers = ledger_report.shown(
        ledger_report.books_of([out / "ledger" / f"node-{node:04d}.jsonl" for node in range(5)]), 1e-5
    )
    summary = json.loads((out / "summary.json").read_text())
    assert summary["statement"] == "odometer"  # a budget certifies itself, not this sum
    assert summary["epsilon"] == ledgers["runs"][0]["together"]["epsilon"]
    head, *lines = (line.split(",") for line in (out / "history.csv").read_text().splitlines())
    history = [float(line[head.index("epsilon")]) for line in lines]
    assert len(history) == 24
    assert history[:8] == [history[0]] * 8
    assert history[-1] == summary["epsilon"] > history[15] > history[0]


@pytest.mark.parametrize("spent", [1.23441, 0.0100001, 12.3412, 2.0])
def test_a_loss_is_never_printed_below_what_was_spent(spent: float) -> None:
    said = said_of.loss_in_words(
        {
            "epsilon": spent,
            "published_epsilon": spent,
            "delta": 1e-5,
            "adjacency": "replace",
            "statement": "odometer",
        }
    )
    epsilon, published = float(said.split()[1]), float(said.split("bound ")[1].split(";")[0])
    assert spent <= epsilon == published <= 1.001 * spent


UNBOUNDED = {
    "squared loss": ({"loss": "squared"}, "has no bound"),
    "the paper's form": ({"form": "paper"}, "exact minimisers only"),
}


@pytest.mark.parametrize("what", UNBOUNDED)
def test_an_unverified_hypothesis_makes_epsilon_infinite_under_its_name(
    what: str, tmp_path: Path, capsys
) -> None:
    changes, name = UNBOUNDED[what]
    out = tmp_path / "run"
    assert radmm.main([*words({**PRIVATE, **changes}), "--out", str(out)]) == DONE
    assert name in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    assert summary["epsilon"] == "inf"
    charged = [line for line in entries(out, 0) if line["kind"] == "charge"]
    assert charged[0]["mech"] == "unbounded"
    assert name in charged[0]["params"]["reason"]
    if what == "the paper's form":
        assert charged[0]["params"]["claimed"] > 0


@pytest.mark.parametrize(
    ("form", "flags", "stated"),
    [
        ("classes", {"loss": "softmax", "mechanism": "output"}, {"labels": "0,1,2,3"}),
        ("columns", {}, {"features": 9}),
    ],
)
def test_a_model_whose_size_one_record_can_change_has_no_bound(
    form: str, flags: dict[str, Any], stated: dict[str, Any], tmp_path: Path
) -> None:
    """A class or a column that one record alone has: with it the model is larger, for sure."""
    sizes = set()
    for other in (False, True):
        y = np.arange(90) % 3
        y[0] = 3 * other
        np.savez(tmp_path / "classes.npz", X=np.eye(3)[y % 3], y=y)
        lines = [f"{(-1) ** i} 1:1 {2 + 7 * (other and i == 0)}:1" for i in range(90)]
        (tmp_path / "columns.svm").write_text("\n".join(lines) + "\n")
        (data,) = tmp_path.glob(f"{form}.*")
        case = {**PRIVATE, **flags, "rng": "secure", "data": str(data)}
        run = radmm.solve("radmm", **case)
        assert run.models is not None
        sizes.add(run.models.shape)
        assert run.epsilon == float("inf")
        assert f"give --{next(iter(stated))}" in run.statement
        run = radmm.solve("radmm", **case, **stated)
        assert run.statement == "certificate"
        assert np.isfinite(run.epsilon)
    assert len(sizes) == 2


def test_a_loss_of_the_users_own_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from distadmm.problems.losses import Logistic\nclass Mine(Logistic):\n    pass\n"
    )
    run = radmm.solve("radmm", **{**PRIVATE, "loss": f"{tmp_path / 'mine.py'}:Mine"})
    assert run.epsilon == float("inf")
    assert "unchecked code" in run.statement


REFUSED = {
    "no adjacency": ({"adjacency": None}, "no default"),
    "unknown adjacency": ({"adjacency": "person"}, "choose one of"),
    "add-remove and the first rows": (
        {"adjacency": "add-remove", "public_rows": 50, "rows_per_node": 50},
        "the next row takes its place",
    ),
    "add-remove and a share held out": (
        {"adjacency": "add-remove", "public_rows": 50, "data": "rows.npz", "test_fraction": 0.2},
        "deals all rows out anew",
    ),
    "add-remove without a divisor": ({"adjacency": "add-remove"}, "--public-rows"),
    "long rows": ({"clip": None}, "norm"),
    "both": ({"epsilon": 1.0}, "give one of"),
    "noise without strength": ({"alpha": None, "noise": "gamma", "adjacency": None}, "needs its strength"),
    "unknown noise": ({"noise": "laplace"}, "choose one of: gamma"),
    "alpha that drowns the solve": ({"alpha": "1e-9"}, "--tolerance"),
    "bad alpha": ({"alpha": "-1"}, "above 0"),
    "bad delta": ({"delta": 0}, "--delta"),
    "tuning and a penalty": ({"algorithm": "admm", "tune": True}, "leave out --eta"),
    "tuning by data": ({"algorithm": "admm", "tune": True, "eta": None}, "runs without noise"),
    "softmax": ({"loss": "softmax"}, "--mechanism output"),
    "out of reach": ({"alpha": None, "epsilon": 1e-3}, "out of reach"),
    "an algorithm without a private form": (
        {"algorithm": "docs/examples/gradient_tracking.py"},
        "no private form; write",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_are_one_line_and_write_nothing(what: str, tmp_path: Path, capsys, monkeypatch) -> None:
    home = Path(__file__).parent.parent
    monkeypatch.chdir(tmp_path)
    changes, told = REFUSED[what]
    if changes.get("algorithm", "").endswith(".py"):
        changes = {"algorithm": str(home / changes["algorithm"])}
    flags = {**PRIVATE, **changes}
    command = words({k: v for k, v in flags.items() if v is not None and v is not True})
    command += ["--no-clip"] if "clip" in changes else []
    command += ["--tune"] if changes.get("tune") else []
    if str(flags.get("algorithm", "")).endswith(".py"):
        command = [w for w in command if w not in ("--eta", "2")]
    rows = np.random.default_rng(0).normal(size=(60, 3))
    np.savez("rows.npz", X=rows, y=np.sign(rows[:, 0]))
    if "clip" in changes:
        command = [*command, "--data", "rows.npz"]
    assert radmm.main(command) == USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.partition("\n\n")[0].rstrip("\n").count("\n") == 0, (
        shown.err
    )  # then lines to write, if any
    assert told in shown.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("rng", ["simulation", "secure"])
def test_a_resume_sends_again_what_was_sent_and_pays_once(rng: str, tmp_path: Path) -> None:
    """Checkpoint after 4, ended after 7: iterations 5 to 7 are replayed byte for byte, 8 and on are new."""
    out = tmp_path / "run"
    flags = {**PRIVATE, "algorithm": "admm", "rng": rng, "iterations": 7, "checkpoint_every": 4}
    assert radmm.main([*words(flags), "--out", str(out)]) == DONE
    at_seven = read_npz(out / "models.npz")["models"]
    assert radmm.main(["--resume", str(out), "--iterations", "7"]) == DONE
    np.testing.assert_array_equal(read_npz(out / "models.npz")["models"], at_seven)
    paid = [line["k"] for line in entries(out, 0) if line["kind"] in ("release", "charge")]
    assert paid == list(range(1, 8))
    assert radmm.main(["--resume", str(out), "--iterations", "9"]) == DONE
    paid = [line["k"] for line in entries(out, 0) if line["kind"] in ("release", "charge")]
    assert paid == list(range(1, 10))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["statement"] != "certificate"  # more than was committed
    if rng == "secure":
        assert summary["statement"] == "odometer"
        (commit,) = [line for line in entries(out, 0) if line["kind"] == "commit"]
        events = [accountant.event_from_json(line) for line in commit["events"]]
        assert (
            summary["epsilon"] > accountant.bounds(events, 1e-5, "replace").renyi
        )  # priced as chosen on the way


@pytest.mark.parametrize("rng", ["simulation", "secure"])
def test_what_was_spent_stays_on_record_under_force(rng: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    command = [*words({**PRIVATE, "rng": rng, "iterations": 2}), "--out", str(out)]
    assert radmm.main(command) == DONE
    first = (out / "ledger" / "node-0000.jsonl").read_bytes()
    capsys.readouterr()
    for k in (1, 2):
        assert radmm.main([*command, "--force"]) == DONE
        aside = tmp_path / f"run.spent-{k}"
        assert aside.exists() == (rng == "secure")
        assert ("is kept in" in capsys.readouterr().err) == (rng == "secure")
    assert (out / "ledger" / "node-0000.jsonl").read_bytes() != first
    if rng == "secure":
        assert (tmp_path / "run.spent-1" / "ledger" / "node-0000.jsonl").read_bytes() == first


@pytest.mark.parametrize("content", ["", '{"kind":"open","rng":{"mode":"sec', '{"x": 1}\n'])
def test_what_is_no_ledger_of_secret_noise_is_not_kept(content: str, tmp_path: Path, capsys) -> None:
    """A line that was cut before the first release, or rows of somebody's own."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "rows.jsonl").write_text(content)
    assert radmm.main([*words({**PRIVATE, "iterations": 1}), "--out", str(out), "--force"]) == DONE
    assert capsys.readouterr().err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert not (out / "rows.jsonl").exists()


@pytest.mark.parametrize("noise", ["gamma", "gaussian"])
@pytest.mark.parametrize(
    ("name", "mechanism"), [("admm", "objective"), ("radmm", "objective"), ("admm", "output")]
)
def test_a_killed_simulation_goes_on_to_the_same_bits(
    name: str, mechanism: str, noise: str, tmp_path: Path, monkeypatch
) -> None:
    """Checkpoint after 6, killed in 11 with the releases of 7 to 10 kept: they are replayed, the rest is new."""
    flags = {**PRIVATE, "algorithm": name, "mechanism": mechanism, "noise": noise, "iterations": 15}
    whole = radmm.solve(name, **{k: v for k, v in flags.items() if k != "algorithm"})
    out = tmp_path / "run"

    def killed(self: Any, k: int) -> None:
        if k == 11:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("distadmm.ranks.graph_network.Network.begin", killed)
        gc.disable()  # ledgers are let go without it
        try:
            assert radmm.main([*words({**flags, "checkpoint_every": 6}), "--out", str(out)]) == 130
        finally:
            gc.enable()
    assert radmm.main(["--resume", str(out), "--progress", "none"]) == DONE
    assert read_npz(out / "models.npz")["models"].tobytes() == whole.models.tobytes()
    paid = [line["k"] for line in entries(out, 0) if line["kind"] in ("release", "charge")]
    assert paid == list(range(1, 16, 2 if name == "radmm" else 1))


def test_a_resume_that_spends_more_than_was_asked_for_says_so(tmp_path: Path, capsys) -> None:
    flags = {**SMALL, "epsilon": 2, "adjacency": "replace", "rng": "secure", "checkpoint_every": 2}
    assert radmm.main([*words(flags), "--out", str(tmp_path / "run")]) == DONE
    assert "note" not in capsys.readouterr().out
    assert radmm.main(["--resume", str(tmp_path / "run"), "--iterations", "16"]) == DONE
    assert "note           more than --epsilon 2 is spent" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["epsilon"] > 2


@pytest.mark.parametrize("noise", [{}, {"alpha": "3", "adjacency": "replace", "rng": "simulation"}])
def test_many_nodes_go_on_from_a_checkpoint(
    noise: dict[str, str], tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("distadmm.privacy.ledger.books._FILES", 2)
    flags, out = {**SMALL, **noise, "algorithm": "admm", "topology": "regular:6:d=4:seed=1"}, tmp_path / "run"
    assert radmm.main([*words({**flags, "iterations": 12}), "--out", str(tmp_path / "whole")]) == DONE
    assert radmm.main([*words({**flags, "checkpoint_every": 4}), "--out", str(out)]) == DONE
    assert radmm.main(["--resume", str(out), "--iterations", "12"]) == DONE
    for name, found in np.load(out / "models.npz").items():
        np.testing.assert_array_equal(found, np.load(tmp_path / "whole" / "models.npz")[name])
    path = next((out / "ledger").glob("nodes-0000-1.jsonl"))
    path.unlink()
    capsys.readouterr()
    assert radmm.main(["--resume", str(out), "--iterations", "14"]) == USAGE
    assert "is shorter than it was at the checkpoint" in capsys.readouterr().err


def test_an_old_copy_of_many_nodes_is_refused_before_anything_is_written_of_it(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("distadmm.privacy.ledger.books._FILES", 2)
    monkeypatch.setenv("DISTADMM_ACCOUNT", str(tmp_path / "account.jsonl"))
    flags, out = {**PRIVATE, "rng": "secure", "checkpoint_every": 4}, tmp_path / "run"
    assert radmm.main([*words(flags), "--out", str(out)]) == DONE
    copy = shutil.copytree(out, tmp_path / "copy")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert radmm.main(["--resume", str(out), "--iterations", "12"]) == DONE
    capsys.readouterr()
    assert radmm.main(["--resume", str(copy), "--iterations", "12"]) == USAGE
    assert "is an old copy" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert list((copy / "ledger").glob("nodes-*.jsonl"))


def test_a_shortened_ledger_is_not_taken_up(tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    flags = {**PRIVATE, "algorithm": "admm", "checkpoint_every": 4}
    assert radmm.main([*words(flags), "--out", str(out)]) == DONE
    path = out / "ledger" / "node-0002.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    capsys.readouterr()
    assert radmm.main(["--resume", str(out), "--iterations", "10"]) == USAGE
    said = capsys.readouterr().err
    assert "the ledger of member 2 in" in said
    assert "is shorter than it was at the checkpoint" in said


@pytest.mark.parametrize(
    ("growth", "progress", "told"), [("1.01", "lines", True), ("1", "lines", False), ("1.01", "none", False)]
)
def test_a_long_silence_is_announced(growth, progress, told, tmp_path, capsys) -> None:
    flags = [
        "--data",
        "tiny",
        "--topology",
        "ring:5",
        "--alpha",
        "1",
        "--adjacency",
        "replace",
        "--noise",
        "gaussian",
    ]
    flags += ["--algorithm", "mradmm", "--iterations", "122", "--eta", "3", "--eta-growth", growth]
    assert radmm.main([*flags, "--progress", progress, "--out", str(tmp_path / "o")]) == 0
    assert ("pricing 61 different releases a node" in capsys.readouterr().err) == told
