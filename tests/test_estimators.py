"""ConsensusClassifier and SharingClassifier: scikit-learn's checks, and agreement with programmes and other solvers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="the estimators are the extra [sklearn]")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402
from sklearn.utils.multiclass import type_of_target  # noqa: E402

import distadmm  # noqa: E402
from distadmm.estimators import ConsensusClassifier, SharingClassifier  # noqa: E402

CLAIM = {"epsilon": 1e4, "adjacency": "replace", "row_norm": 20.0}


class ToldConsensus(ConsensusClassifier):
    """The checks cannot state what the classes are called, as a private fit demands."""

    def fit(self, X, y):
        return super().fit(X, y, classes=_named(y))


class ToldSharing(SharingClassifier):
    def fit(self, X, y):
        return super().fit(X, y, classes=_named(y))


def _named(y):
    try:
        y = np.asarray(y).ravel()
        return np.unique(y) if type_of_target(y) == "binary" and len(np.unique(y)) == 2 else (0, 1)
    except (ValueError, TypeError, RuntimeWarning):
        return (0, 1)


OPEN = [ConsensusClassifier("ring:3", max_iter=6), SharingClassifier(max_iter=20)]
PRIVATE = [
    ToldConsensus(**CLAIM, max_iter=8, random_state=0),
    ToldSharing(**CLAIM, mechanism="v1", random_state=0),
]


@parametrize_with_checks(OPEN)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(PRIVATE)
def test_scikit_learn_checks_with_noise(estimator, check):
    """No check is left out: with a seed the noise repeats, and the tags say that scores may be poor."""
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(120, 5, random_state=3)
    return X / 4, y


def test_both_are_logistic_regression(rows):
    """The same minimiser as scikit-learn's: C = weight N / (n rho) with equal shares, and C = 1 / lam."""
    X, y = rows
    model = ConsensusClassifier(
        "ring:4", "newton", weight=30.0, rho=1.0, fit_intercept=False, max_iter=30
    ).fit(X, y)
    other = LogisticRegression(C=30.0 * 4 / 120, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_[0], rtol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-7)
    model = SharingClassifier((2, 3), lam=0.5, max_iter=2000, flags={"stop_tolerance": 1e-9}).fit(X, y)
    other = LogisticRegression(C=2.0, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, other.intercept_[0], atol=1e-5)


def test_the_consensus_estimator_is_the_run(rows):
    X, y = rows
    named = np.where(y == 1, "yes", "no")
    model = ConsensusClassifier(max_iter=9, row_norm=0.5, epsilon=20.0, adjacency="replace", random_state=4)
    model.fit(X, named, classes=("no", "yes"))
    seed = int(np.random.RandomState(4).randint(2**31 - 1))
    run = distadmm.solve(
        "ring:4", (X / 0.5, named), labels=("no", "yes"), iterations=9, epsilon=20.0, adjacency="replace",
        rng="simulation", seed=seed, intercept=True, observe="none",
    )  # fmt: skip
    np.testing.assert_allclose(model.predict_proba(X), run.predict_proba(X / 0.5), atol=1e-12)
    assert (model.predict(X) == run.predict(X / 0.5)).all()
    assert (model.statement_, model.epsilon_) == (run.sentence, np.inf)
    assert model.statement_.startswith("SIMULATION")


CLAIMS = {ConsensusClassifier: {}, SharingClassifier: {"mechanism": "v1"}}


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_budget_is_refused_until_all_of_its_claim_is_stated(kind, rows):
    whole = {
        "epsilon": 1.0,
        "adjacency": "replace",
        "row_norm": 1.0,
        "max_iter": 2,
        "random_state": 0,
        **CLAIMS[kind],
    }
    seeded = kind(**whole).fit(*rows, classes=(0, 1))
    assert "With secret noise of the same law" in seeded.statement_
    assert seeded.epsilon_ == np.inf, "noise that a seed repeats bounds nothing"
    for name in whole.keys() - {"epsilon", "max_iter", "random_state"}:
        with pytest.raises(ValueError, match=f"epsilon is given and {name} is None"):
            kind(**{**whole, name: None}).fit(*rows, classes=(0, 1))
    with pytest.raises(ValueError, match="epsilon is given and classes is None"):
        kind(**whole).fit(*rows)
    with pytest.raises(ValueError, match="adjacency is given and epsilon is None"):
        kind(adjacency="replace").fit(*rows)
    for name in ("epsilon", "alpha"):  # noise that is asked for otherwise rests on as much
        with pytest.raises(ValueError, match=f"flags has {name}; give epsilon, delta and adjacency"):
            kind(row_norm=1.0, flags={name: 1.0, "adjacency": "replace"}).fit(*rows)
    with pytest.raises(ValueError, match="epsilon is 0"):
        kind(**{**whole, "epsilon": 0.0}).fit(*rows, classes=(0, 1))


def test_trust_is_asked_for_where_the_method_needs_it(rows):
    pytest.importorskip("cryptography", reason="masked runs need the extra [secure]")
    model = ConsensusClassifier(algorithm="masked", epsilon=1.0, adjacency="replace", row_norm=1.0)
    with pytest.raises(ValueError, match="--trust is not given, and it is part of what is claimed"):
        model.fit(*rows, classes=(0, 1))
    with pytest.raises(ValueError, match="--public-rows"):
        clone(model).set_params(adjacency="add-remove", algorithm="radmm").fit(*rows, classes=(0, 1))


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_row_counts_by_its_direction_beyond_the_norm(kind, rows):
    """No bound comes from the rows: a row a thousand times as long is cut to the same, and all others stay."""
    X, y = rows[0].copy(), rows[1]
    own = slice(
        2 if kind is SharingClassifier else 0, None
    )  # of V1 party 1, which has two columns, is not protected
    X[7, own] *= 10 / np.linalg.norm(X[7, own])
    longer = X.copy()
    longer[7, own] *= 2.0**10
    asked = {"epsilon": 10.0, "adjacency": "replace", "row_norm": 0.25, "random_state": 1, "max_iter": 3}
    model = kind(**asked, **CLAIMS[kind], **({"fit_intercept": False} if kind is ConsensusClassifier else {}))
    first, second = (clone(model).fit(rows, y, classes=(0, 1)).coef_ for rows in (X, longer))
    np.testing.assert_allclose(first, second, rtol=1e-9)


@pytest.mark.parametrize("kind", CLAIMS)
def test_secure_fits_are_entered_in_the_account(kind, rows, tmp_path):
    from distadmm.privacy.ledger.account import Account

    path = str(tmp_path / "account.jsonl")
    asked = {
        "epsilon": 1.0,
        "adjacency": "replace",
        "row_norm": 1.0,
        "max_iter": 2,
        "account": path,
        **CLAIMS[kind],
    }
    first, second = (kind(**asked, out=str(tmp_path / name)).fit(*rows, classes=(0, 1)) for name in "ab")
    assert (first.coef_ != second.coef_).any()
    assert first.epsilon_ <= 1 + 1e-9
    assert len(Account(path).read().runs) == 2
    assert list((tmp_path / "a" / "ledger").glob("*.jsonl"))


def test_the_account_knows_rows_whatever_norm_they_are_cut_to(rows, tmp_path, monkeypatch):
    from distadmm.privacy.ledger.account import Account

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # this user's own account, which looks at rows
    monkeypatch.delenv("DISTADMM_ACCOUNT", raising=False)
    asked = {"epsilon": 1.0, "adjacency": "replace", "max_iter": 2}
    for norm in (1.0, 2.0):
        ConsensusClassifier(**asked, row_norm=norm).fit(*rows, classes=(0, 1))
    SharingClassifier(**asked, row_norm=3.0, mechanism="v1").fit(*rows, classes=(0, 1))
    (together,) = Account().read().tables()
    assert len(together) == 3


def test_a_model_of_rows_that_were_divided_scores_rows_as_they_come(rows, tmp_path):
    from distadmm.commands import export
    from distadmm.run import model, scoring

    X, y = rows
    asked = {"epsilon": 5.0, "adjacency": "replace", "row_norm": 4.0, "random_state": 1, "max_iter": 4}
    fitted = ConsensusClassifier(**asked, out=str(tmp_path / "run")).fit(X, y, classes=(0, 1))
    scorer = scoring.Scorer.of(model.read(tmp_path / "run" / "model.json"))
    np.testing.assert_allclose(scorer.scores(X)[:, 0], fitted.decision_function(X), rtol=1e-12)
    assert export.main([str(tmp_path / "run"), "--format", "sklearn", "--out", str(tmp_path / "m.py")]) == 0
    place: dict = {}
    exec((tmp_path / "m.py").read_text(), place)
    np.testing.assert_allclose(place["estimator"]().decision_function(X), scorer.scores(X)[:, 0], rtol=1e-12)


SCRIPT = """
import os
import sys
import numpy as np
from distadmm.estimators import ConsensusClassifier, SharingClassifier
X, y = np.load(sys.argv[1]).values()
claim = dict(epsilon=5.0, adjacency="replace", row_norm=1.0, random_state=2, max_iter=3, mpi=sys.argv[2] == "mpi")
models = [ConsensusClassifier(**claim), SharingClassifier(**claim, mechanism="v1")]
models = [model.fit(X, y, classes=(0, 1)) for model in models]
found = [np.append(model.coef_, model.intercept_).tobytes().hex() + model.statement_ for model in models]
open(f"{sys.argv[1]}.{sys.argv[2]}.{os.getpid()}", "w").write("\\n".join(found))  # two ranks may share a line of output
"""


@pytest.mark.slow
def test_under_mpi_every_rank_has_the_model_of_one_process(rows, tmp_path):
    np.savez(tmp_path / "rows.npz", X=rows[0], y=rows[1])
    (tmp_path / "fit.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "fit.py"), str(tmp_path / "rows.npz")]
    subprocess.run([*words, "alone"], capture_output=True, timeout=120, check=True)
    mpiexec = Path(sys.executable).parent / "mpiexec"
    start = [str(mpiexec), "-n", "2", *words, "mpi"]
    done = subprocess.run(start, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (alone,), ranks = ([path.read_text() for path in tmp_path.glob(f"*.{how}.*")] for how in ("alone", "mpi"))
    assert ranks == [alone, alone]


def test_columns_of_words_are_refused_as_scikit_learn_refuses_them():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1.0, 2, 3, 4], "sex": pandas.Categorical(["f", "m", "f", "m"])})
    for estimator in (ConsensusClassifier("ring:3"), SharingClassifier()):
        with pytest.raises(ValueError, match="could not convert string to float"):
            estimator.fit(frame, [0, 1, 0, 1])
