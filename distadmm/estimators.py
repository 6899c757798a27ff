"""scikit-learn estimators: `MCPClassifier` without privacy, `ISTDPClassifier` and `ISTDPRegressor` with it.

The private ones clip every record's gradient, so features need no bound; but they are taken as they come:
scale them by public numbers, never by the statistics of the private rows.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from distadmm.errors import InputError
from distadmm.methods.istdp import fit

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"the estimators need scikit-learn ({error}); install it with: pip install 'distadmm[sklearn]'"
    ) from None

Array = np.ndarray
FOUND = "the names of the two classes were found in y, which one record can change; give fit(X, y, classes=(NO, YES))"


class _Linear(BaseEstimator):
    """What the linear models share: coefficients, an intercept, and validated rows."""

    def _keep(self, theta: Array, iterations: int) -> None:
        self.coef_ = theta[: self.n_features_in_]
        self.intercept_ = float(theta[-1]) if self.fit_intercept else 0.0
        self.n_iter_ = iterations

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, reset=False) @ self.coef_ + self.intercept_


class _Binary(ClassifierMixin, _Linear):
    """Two classes, by the sign of a linear score."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _rows(self, X: Any, y: Any, classes: Any = None) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        if classes is not None:
            self.classes_ = np.asarray(classes)
            if self.classes_.shape != (2,) or not np.isin(y, self.classes_).all():
                raise ValueError(
                    f"classes is {classes!r}; needed: two, the negative one first, and no other in y"
                )
            return X, (y == self.classes_[1]).astype(float)
        self.classes_, coded = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y holds one class only; needed: two classes")
        return X, coded.astype(float)

    def decision_function(self, X: Any) -> Array:
        """<x, coef_> + intercept_; positive for the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> Array:
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """The logistic model's probabilities, a column a class."""
        z = self.decision_function(X)
        second = np.where(z >= 0, 1.0, np.exp(-np.abs(z))) / (1.0 + np.exp(-np.abs(z)))
        return np.column_stack([1.0 - second, second])


@dataclass(eq=False, repr=False)
class MCPClassifier(_Binary):
    """Sparse logistic regression with the minimax concave penalty (or scad, capped-l1, l1); not private.

    Parameters
    ----------
    lam, gamma : slope of the penalty at zero and its reach (the alpha of elsewhere, a name that scikit-learn's
        checks give another meaning); None takes them from the data.
    penalty : "mcp", "scad", "capped-l1" or "l1".
    fit_intercept : whether to fit an intercept, which no penalty holds.
    tol : stop at a residual of this share of lam.  max_iter : most iterations.
    """

    lam: float | None = None
    gamma: float | None = None
    _: KW_ONLY
    penalty: str = "mcp"
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 10_000

    def fit(self, X: Any, y: Any) -> MCPClassifier:
        X, y = self._rows(X, y)
        try:
            found = fit.solve(
                X, y, penalty=self.penalty, lam=self.lam, alpha=self.gamma, intercept=self.fit_intercept,
                tol=self.tol, iterations=self.max_iter,
            )  # fmt: skip
        except InputError as error:
            raise ValueError(str(error)) from None
        self.objective_, self.converged_ = found.objective, found.converged
        self._keep(found.theta, max(found.iterations, 1))
        return self


@dataclass(eq=False, repr=False)
class _Private(_Linear):
    """ISTDP under a budget; see `ISTDPClassifier` for the parameters."""

    _loss: ClassVar[str]

    epsilon: float | None = None
    delta: float = 1e-5
    _: KW_ONLY
    adjacency: str | None = None
    divisor: float | None = None
    clip: float = 1.0
    lam: float | None = None
    gamma: float | None = None
    penalty: str = "mcp"
    steps: str = "bb"
    shortest: float | None = None
    longest: float | None = None
    fit_intercept: bool = True
    max_iter: int = 50
    random_state: Any = None
    account: str | None = None

    def _train(self, X: Array, y: Array, unsaid: str = "") -> Any:
        for name, choices in (("epsilon", "the budget of this fit"), ("adjacency", "replace or add-remove")):
            if getattr(self, name) is None:
                raise ValueError(f"{name} is None and has no default; give {name}: {choices}")
        seed = None
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        try:
            found = fit.solve_private(
                X, y, epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency,  # type: ignore[arg-type]
                loss=self._loss, penalty=self.penalty, intercept=self.fit_intercept, seed=seed,
                divisor=self.divisor, clip=self.clip, lam=self.lam, alpha=self.gamma, rule=self.steps,
                shortest=self.shortest, longest=self.longest, iterations=self.max_iter, account=self.account,
                unsaid=unsaid,
            )  # fmt: skip
        except InputError as error:
            raise ValueError(str(error)) from None
        self.statement_, self.ledger_, self.epsilon_ = found.statement, found.ledger, found.epsilon
        self.noise_scale_ = found.sigma
        self._keep(found.theta, self.max_iter)
        return self


class ISTDPClassifier(_Private, _Binary):
    """Sparse logistic regression by noisy clipped gradients; binary, differentially private.

    Parameters
    ----------
    epsilon, delta : the budget of one call of `fit`; ten fits of a grid search spend ten of them, and each says so.
    adjacency : "replace" (one record another; the number of rows is public) or "add-remove" (one record
        more or less), which needs a public `divisor` in place of the number of rows.
    clip : norm to which each record's gradient is shortened.
    lam, gamma, penalty : as in `MCPClassifier`; None takes them from the size of the noise and of the steps.
    steps, shortest, longest : "bb" or "fixed", and the bounds of the steps.
    max_iter : noisy gradients taken; all of them are, whatever the data say.
    random_state : None for secure noise.  A seed makes the noise repeatable, and then it protects nobody.
    account : file in which all fits and runs on these rows are added up; None: this user's own (see docs/ledger.md).
        A fit that an account's limit does not allow is refused.

    Attributes
    ----------
    statement_ : what may be said of the result.  ledger_ : what was charged.  epsilon_ : the bound proved.

    `fit(X, y, classes=("no", "yes"))` states the two classes, the negative one first.  Without them they are found in
    `y`, where one record decides what they are called: then there is no bound, and the statement says so.
    """

    _loss = "logistic"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a hundred rows are few for a budget of one
        return tags

    def fit(self, X: Any, y: Any, classes: Any = None) -> ISTDPClassifier:
        self._train(*self._rows(X, y, classes), "" if classes is not None else FOUND)
        if classes is None:
            self.ledger_.expose(FOUND, iteration=0)
            self.statement_, self.epsilon_ = f"No guarantee: {FOUND}.", float("inf")
        return self


class ISTDPRegressor(RegressorMixin, _Private):
    """Sparse least squares by noisy clipped gradients; the parameters are those of `ISTDPClassifier`."""

    _loss = "squared"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> ISTDPRegressor:
        X, y = validate_data(self, X, y, y_numeric=True)
        return self._train(X, np.asarray(y, dtype=float))

    def predict(self, X: Any) -> Array:
        return self._scores(X)
