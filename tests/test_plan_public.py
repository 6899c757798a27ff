"""`plan istdp` and `plan sharing` with --public-data: no private row is read, and the loss is what it costs."""

from __future__ import annotations

import numpy as np
import pytest

from distadmm.commands import plan, plan_istdp, plan_public, plan_sharing
from distadmm.data import synthetic
from distadmm.errors import DONE, USAGE
from distadmm.ranks.world import World

NAMES = ("s=a", "s=b", "s=c", "t=a", "t=b", "u=a", "u=b", "v", "w")


def _table(path, rows: int, seed: int, names=NAMES) -> str:
    X, y = synthetic.coded(names, rows, seed)
    lines = [",".join([*(f"{value:.5f}" for value in x), f"{int(label)}"]) for x, label in zip(X, y)]
    path.write_text("\n".join([",".join([*names, "label"]), *lines]) + "\n")
    return str(path)


def test_every_row_is_left_out_once_and_never_trained_on_then() -> None:
    seen = []
    for inside, outside in plan_public.folds(101, 3):
        assert sorted([*inside, *outside]) == list(range(101))
        seen += list(outside)
    assert sorted(seen) == list(range(101))


def test_half_way_is_where_neither_side_is_favoured() -> None:
    """Least squares of a mean: the rows trained on show 1/n too little, others 1/n too much."""
    rng, losses = np.random.default_rng(0), []
    for trial in range(300):
        x = rng.normal(size=24)

        def loss(at: int, inside: np.ndarray, outside: np.ndarray, x: np.ndarray = x) -> tuple[float, float]:
            return tuple(float(np.mean((x[i] - x[inside].mean()) ** 2)) for i in (inside, outside))

        losses.append(plan_public.halfway(loss, 24, trial).mean())
    assert np.mean(losses) == pytest.approx(1.0, abs=0.05)
    assert abs(np.mean(losses) - 1) < 0.7 / 21  # the inside alone says 1 - 1/21


@pytest.mark.parametrize("T", [10, 50])
def test_the_loss_is_forecast_from_public_rows_of_the_same_kind(T: int) -> None:
    X, y = synthetic.coded(NAMES, 9000, 1, spread=6.0)
    private, public = (X[:6000], y[:6000]), (X[6000:], y[6000:])
    options = plan_istdp.Options(epsilon=2.0, adjacency="replace", rows=6000, columns=len(NAMES))
    least = plan_istdp.mean_loss(*private, plan_istdp.best_model(*private))
    chosen = plan_istdp.plan_of(options, 6000, len(NAMES), T, 1.0)
    cost = [plan_istdp.mean_loss(*private, f) for f in plan_istdp.simulate(*private, [chosen], (7,), 6)]
    found = plan_istdp.by_public_rows([chosen], *public, 0, World())[:, 0]
    assert found.mean() == pytest.approx(np.mean(cost) - least, rel=0.25 if T == 10 else 0.5)
    assert abs(found.mean() - np.mean(cost) + least) < 3 * plan_public.error(found)


def test_sharing_is_forecast_from_public_rows_of_the_same_kind() -> None:
    names = tuple(name for name in NAMES if "=" in name)
    X, y = synthetic.coded(names, 9000, 1, norm=None, spread=6.0)
    options = plan_sharing.Options(epsilon=1.0, rows=6000, columns=len(names), split=(3, 4))
    excess = plan_sharing.by_public_rows(options, X[6000:], y[6000:], names, 6000)
    tables = [plan_sharing.Table(options, X[:6000], y[:6000], names, (seed, 7)) for seed in range(4)]
    least = plan_istdp.mean_loss(X[:6000], y[:6000], *tables[0].whole)
    for candidate in (None, *plan_sharing.CANDIDATES[:4]):
        cost = [plan_istdp.mean_loss(X[:6000], y[:6000], *table.model(candidate)) for table in tables]
        found = excess(candidate)
        assert abs(found.mean() - np.mean(cost) + least) < 3 * plan_public.error(found), candidate


@pytest.mark.parametrize("programme", ["istdp", "sharing"])
def test_no_private_row_is_read(programme: str, tmp_path, capsys) -> None:
    public, said = _table(tmp_path / "public.csv", 60, 9), []
    for seed in (1, 2):
        words = [programme, "--epsilon", "1", "--public-data", public, "--adjacency", "replace"]
        assert plan.main([*words, "--data", _table(tmp_path / "t.csv", 80, seed)]) == DONE
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "forecast    mean loss" in said[0]
    assert "public.csv" in said[0]
    assert "Synthetic rows" not in said[0]


def test_ranks_share_the_plans() -> None:
    options = plan_istdp.Options(epsilon=1.0, adjacency="replace", data="tiny", public_data="tiny")
    found = plan_istdp.forecasts(options, World())
    assert found is not None
    assert {one.excesses.size for one in found} == {plan_public.FOLDS}


@pytest.mark.parametrize(
    ("rows", "names", "told"),
    [(60, (*NAMES[:-1], "z"), "has other columns"), (40, NAMES, "needed: at least 50")],
)
def test_public_rows_of_another_kind_or_too_few_are_refused(rows, names, told, tmp_path, capsys) -> None:
    public = _table(tmp_path / "public.csv", rows, 9, names)
    data = _table(tmp_path / "t.csv", 80, 1)
    for programme in ("istdp", "sharing"):
        words = [programme, "--epsilon", "1", "--adjacency", "replace", "--data", data]
        assert plan.main([*words, "--public-data", public]) == USAGE
        said = capsys.readouterr().err
        assert told in said
        assert said.count("\n") == 1


def test_among_few_rows_noise_is_drawn_anew_for_every_forecast(monkeypatch) -> None:
    assert [len(plan_public.draws(n)) for n in (50, 125, 500, 1000, 1001, 40_000)] == [16, 16, 4, 2, 1, 1]
    rng, asked = np.random.default_rng(0), []
    simulate = plan_istdp.simulate
    monkeypatch.setattr(plan_istdp, "simulate", lambda *given: asked.append(given) or simulate(*given))
    X, y = rng.normal(size=(500, 2)) / 3, rng.choice([-1.0, 1.0], 500)
    options = plan_istdp.Options(epsilon=1.0, adjacency="replace", rows=500, columns=2)
    plans = [plan_istdp.plan_of(options, 500, 2, T, 1.0) for T in (5, 10)]
    found = plan_istdp.by_public_rows(plans, X, y, 0, World())
    assert found.shape == (plan_public.FOLDS, 2)
    assert [given[4] for given in asked] == [4] * plan_public.FOLDS
    assert len({given[3] for given in asked}) == plan_public.FOLDS
    models = simulate(X, y, plans, (0, 0), 4)
    assert len(np.unique(models, axis=0)) == 8  # each plan's noise is its own, each time
