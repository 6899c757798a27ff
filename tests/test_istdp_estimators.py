"""scikit-learn's own checks, and what the estimators promise beyond them."""

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="the estimators are the extra [sklearn]")

from sklearn.base import clone  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from distadmm import istdp  # noqa: E402
from distadmm.data import rows as synthetic  # noqa: E402


@parametrize_with_checks([istdp.MCPClassifier(), istdp.ISTDPClassifier(), istdp.ISTDPRegressor()])
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
    model = istdp.ISTDPClassifier(epsilon=2.0, random_state=7).fit(problem.X, problem.y)
    again = clone(model).fit(problem.X, problem.y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert model.statement_.startswith("No guarantee: the names of the two classes were found in y")
    stated = clone(model).fit(problem.X, problem.y, classes=(-1, 1))
    np.testing.assert_array_equal(stated.coef_, model.coef_)
    assert stated.statement_.startswith("SIMULATION")
    assert model.ledger_.mode == "simulation"


def test_without_a_seed_the_noise_is_secure():
    problem = synthetic.problem("logistic", 300, 10, support=3, test=1)
    model = istdp.ISTDPClassifier(epsilon=2.0, max_iter=5)
    first, second = (clone(model).fit(problem.X, problem.y, classes=(-1, 1)) for _ in range(2))
    assert (first.coef_ != second.coef_).any()
    assert first.ledger_.mode == "secure"
    assert first.epsilon_ <= 2.0
    assert "-DP for replacing one record" in first.statement_


def test_bad_parameters_are_value_errors():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="divisor"):
        istdp.ISTDPClassifier(adjacency="add-remove").fit(X, y)
    with pytest.raises(ValueError, match="alpha > 1"):
        istdp.MCPClassifier(lam=0.1, gamma=0.5).fit(X, y)


def test_classes_found_in_the_rows_have_no_bound():
    """One record {1, 0} -> {1, 2} turns every other label, so that neither of the two neighbours has a claim."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    for alone in (0, 2):
        y = np.r_[alone, np.ones(59, dtype=int)]
        model = istdp.ISTDPClassifier(max_iter=3).fit(X, y)
        assert model.epsilon_ == np.inf
        assert "classes=(NO, YES)" in model.statement_
        assert model.ledger_.events[-1].reason in model.statement_
        assert istdp.ISTDPClassifier(max_iter=3).fit(X, y, classes=(alone, 1)).epsilon_ <= 1
    with pytest.raises(ValueError, match="the negative one first"):
        istdp.ISTDPClassifier().fit(X, y, classes=(0, 1))
