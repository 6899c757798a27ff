"""scikit-learn's own checks, and what the estimators promise beyond them."""

import pickle

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="the estimators are the extra [sklearn]")

from sklearn.base import clone  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from distadmm import istdp  # noqa: E402
from distadmm.data import rows as synthetic  # noqa: E402

PRIVATE = {"epsilon": 1.0, "adjacency": "replace"}  # neither has a default


@parametrize_with_checks(
    [istdp.MCPClassifier(), istdp.ISTDPClassifier(**PRIVATE), istdp.ISTDPRegressor(**PRIVATE)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_estimator_is_the_function():
    problem = synthetic.problem("logistic", 300, 40, test=1, seed=4)
    labels = np.where(problem.y > 0, "yes", "no")
    model = istdp.MCPClassifier(lam=0.05, gamma=20.0).fit(problem.X, labels)
    found = istdp.solve(problem.X, problem.y, lam=0.05, alpha=20.0, intercept=True)
    np.testing.assert_array_equal(np.append(model.coef_, model.intercept_), found.theta)
    assert set(model.predict(problem.X)) == {"no", "yes"}
    assert (model.predict(problem.X) == labels).mean() > 0.8


def test_a_seed_repeats_the_noise_and_says_so():
    problem = synthetic.problem("logistic", 300, 10, support=3, test=1)
    model = istdp.ISTDPClassifier(epsilon=2.0, adjacency="replace", random_state=7).fit(problem.X, problem.y)
    again = clone(model).fit(problem.X, problem.y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert model.statement_.startswith("No guarantee: the names of the two classes were found in y")
    stated = clone(model).fit(problem.X, problem.y, classes=(-1, 1))
    np.testing.assert_array_equal(stated.coef_, model.coef_)
    assert stated.statement_.startswith("SIMULATION")
    assert stated.epsilon_ == np.inf
    assert model.ledger_.mode == "simulation"


def test_without_a_seed_the_noise_is_secure():
    problem = synthetic.problem("logistic", 300, 10, support=3, test=1)
    model = istdp.ISTDPClassifier(epsilon=2.0, adjacency="replace", max_iter=5)
    first, second = (clone(model).fit(problem.X, problem.y, classes=(-1, 1)) for _ in range(2))
    assert (first.coef_ != second.coef_).any()
    assert first.ledger_.mode == "secure"
    assert first.epsilon_ <= 2.0
    assert "-DP for replacing one record" in first.statement_
    kept = pickle.loads(pickle.dumps(first))
    assert (kept.statement_, kept.epsilon_) == (first.statement_, first.epsilon_)
    np.testing.assert_array_equal(kept.predict(problem.X), first.predict(problem.X))


def test_bad_parameters_are_value_errors():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="divisor"):
        istdp.ISTDPClassifier(epsilon=1.0, adjacency="add-remove").fit(X, y)
    with pytest.raises(ValueError, match="alpha > 1"):
        istdp.MCPClassifier(lam=0.1, gamma=0.5).fit(X, y)


def test_classes_found_in_the_rows_have_no_bound():
    """One record {1, 0} -> {1, 2} turns every other label, so that neither of the two neighbours has a claim."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    for alone in (0, 2):
        y = np.r_[alone, np.ones(59, dtype=int)]
        model = istdp.ISTDPClassifier(**PRIVATE, max_iter=3).fit(X, y)
        assert model.epsilon_ == np.inf
        assert "classes=(NO, YES)" in model.statement_
        assert model.ledger_.events[-1].reason in model.statement_
        assert istdp.ISTDPClassifier(**PRIVATE, max_iter=3).fit(X, y, classes=(alone, 1)).epsilon_ <= 1
    with pytest.raises(ValueError, match="the negative one first"):
        istdp.ISTDPClassifier(**PRIVATE).fit(X, y, classes=(0, 1))


@pytest.mark.parametrize("given", [{}, {"epsilon": 1.0}, {"adjacency": "replace"}])
def test_what_changes_the_claim_has_no_default(given):
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    for kind in (istdp.ISTDPClassifier, istdp.ISTDPRegressor):
        with pytest.raises(ValueError, match="has no default"):
            kind(**given).fit(X, y)


def test_a_grid_search_spends_every_fit_and_says_so(tmp_path):
    """Folds overlap, so what is spent on one is spent on rows of the others; a limit ends it."""
    from sklearn.model_selection import GridSearchCV

    from distadmm.privacy.accounting.trust import ANY
    from distadmm.privacy.ledger.account import Account, Limit

    problem = synthetic.problem("logistic", 120, 4, support=2, test=1)
    y, path = (problem.y > 0).astype(int), str(tmp_path / "shared.jsonl")
    model = istdp.ISTDPRegressor(**PRIVATE, max_iter=3, account=path)
    search = GridSearchCV(model, {"clip": [1.0, 2.0]}, cv=3, refit=False, error_score="raise")
    with pytest.warns(UserWarning, match="Every private fit spends") as said:
        search.fit(problem.X, y)
    assert len(said) == 5  # all but the first of six
    (table,) = Account(path).read().tables()
    assert len(table) == 6
    Account(path).limit(Limit(3.0, 1e-5, "replace", ANY, None))
    with pytest.raises(ValueError, match="allows epsilon 3"):
        clone(model).fit(problem.X, y)
    assert len(Account(path).read().runs) == 6


def test_folds_are_known_without_a_shared_file():
    problem = synthetic.problem("logistic", 300, 4, support=2, test=1)
    model = istdp.ISTDPRegressor(**PRIVATE, max_iter=3)
    clone(model).fit(problem.X[:200], problem.y[:200])
    with pytest.warns(UserWarning, match="by 1 run;"):
        clone(model).fit(problem.X[100:], problem.y[100:])
