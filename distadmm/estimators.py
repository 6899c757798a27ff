"""scikit-learn estimators: `MCPClassifier`; private `ISTDPClassifier` and `ISTDPRegressor`; and, private where they are
given a budget, `ConsensusClassifier` (rows at the nodes of a graph) and `SharingClassifier` (columns at parties).

Features are taken as they come: scale them by public numbers, never by the statistics of the private rows.
"""

import contextlib
import math
from dataclasses import KW_ONLY, dataclass
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np

from distadmm.errors import InputError
from distadmm.files import holding
from distadmm.flags import build
from distadmm.methods.istdp import fit
from distadmm.ranks.world import World, connect

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


def _seed(random_state: Any) -> int | None:
    """Of noise that can be repeated; None, of secret noise, stays None."""
    return None if random_state is None else int(check_random_state(random_state).randint(2**31 - 1))


def _proved(simulated: bool, epsilon: float) -> float:
    """What secret noise would cost bounds nothing of noise that a seed repeats."""
    return math.inf if simulated else epsilon


class _Linear(BaseEstimator):
    """What the linear models share: coefficients, an intercept, and validated rows."""

    def _keep(self, theta: Array, iterations: int) -> None:
        self.coef_ = theta[: self.n_features_in_]
        self.intercept_ = float(theta[-1]) if self.fit_intercept else 0.0
        self.n_iter_ = iterations

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=float) @ self.coef_ + self.intercept_  # type: ignore[no-any-return]


class _Binary(ClassifierMixin, _Linear):
    """Two classes, by the sign of a linear score."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = getattr(self, "epsilon", None) is not None  # a hundred rows are few
        return tags

    def _rows(self, X: Any, y: Any, classes: Any = None) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=float)
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
        return self.classes_[positive.astype(int)]  # type: ignore[no-any-return]

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

    def fit(self, X: Any, y: Any) -> Self:
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
        try:
            found = fit.solve_private(
                X, y, epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency,  # type: ignore[arg-type]
                loss=self._loss, penalty=self.penalty, intercept=self.fit_intercept, seed=_seed(self.random_state),
                divisor=self.divisor, clip=self.clip, lam=self.lam, alpha=self.gamma, rule=self.steps,
                shortest=self.shortest, longest=self.longest, iterations=self.max_iter, account=self.account,
                unsaid=unsaid,
            )  # fmt: skip
        except InputError as error:
            raise ValueError(str(error)) from None
        self.statement_, self.ledger_ = found.statement, found.ledger
        self.epsilon_ = _proved(found.ledger.mode == "simulation", found.epsilon)
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
    statement_ : what may be said of the result.  ledger_ : what was charged.  epsilon_ : the bound proved;
        infinite where there is none, as under a `random_state`.

    `fit(X, y, classes=("no", "yes"))` states the two classes, the negative one first.  Without them they are found in
    `y`, where one record decides what they are called: then there is no bound, and the statement says so.
    """

    _loss = "logistic"

    def fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        self._train(*self._rows(X, y, classes), "" if classes is not None else FOUND)
        if classes is None:
            self.ledger_.expose(FOUND, iteration=0)
            self.statement_, self.epsilon_ = f"No guarantee: {FOUND}.", math.inf
        return self


class ISTDPRegressor(RegressorMixin, _Private):
    """Sparse least squares by noisy clipped gradients; the parameters are those of `ISTDPClassifier`."""

    _loss = "squared"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, y_numeric=True, dtype=float)
        return self._train(X, np.asarray(y, dtype=float))  # type: ignore[no-any-return]

    def predict(self, X: Any) -> Array:
        return self._scores(X)


UNSTATED = {
    "adjacency": "what one record may do, replace or add-remove",
    "row_norm": "the public norm to which longer rows are cut, known without looking at the rows",
    "mechanism": "v1, v1-t, v1-admm or v2, which protect different parties",
    "classes": "fit(X, y, classes=(NO, YES)): what classes are called is not learnt from private rows",
}


@dataclass(eq=False, repr=False)
class _Trained(_Binary):
    """What estimators share that are a run of a programme: its budget, refused until all of a claim is stated."""

    _: KW_ONLY
    epsilon: float | None = None
    delta: float = 1e-5
    adjacency: str | None = None
    row_norm: float | None = None
    max_iter: int = 100
    random_state: Any = None
    account: str | None = None
    out: str | None = None
    flags: dict[str, Any] | None = None
    mpi: bool = False

    _stated: ClassVar[tuple[str, ...]] = ("adjacency", "row_norm", "classes")

    def _asked(self, classes: Any) -> dict[str, Any]:
        """The flags of the run, once nothing that its claim rests on is left open."""
        asked: dict[str, Any] = {"iterations": self.max_iter, "observe": "none", "progress": "none"}
        for name in self.flags or {}:
            if name in ("epsilon", "delta", "adjacency", "alpha"):
                raise ValueError(
                    f"flags has {name}; give epsilon, delta and adjacency by their own names, with all that is stated"
                )
        if self.epsilon is not None:
            for name in self._stated:
                if (classes if name == "classes" else getattr(self, name)) is None:
                    raise ValueError(
                        f"epsilon is given and {name} is None, with no default; give {UNSTATED[name]}"
                    )
            asked |= {"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency}
        elif self.adjacency is not None:
            raise ValueError("adjacency is given and epsilon is None; give epsilon: the budget of this fit")
        if (seed := _seed(self.random_state)) is not None:
            asked |= {"seed": seed, "rng": "simulation"}
        given = {"account": self.account, "out": self.out, **(self.flags or {})}
        return asked | {name: value for name, value in given.items() if value is not None}

    def fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Train on these rows; with a budget `classes` are to be stated, as (NO, YES)."""
        asked = self._asked(classes)
        X, coded = self._rows(X, y, classes)
        try:
            theta, iterations, told = self._solve(X, 2.0 * coded - 1.0, asked)
        except InputError as error:
            raise ValueError(f"{error} (n_samples = {len(X)}, n_features = {X.shape[1]})") from None
        self.statement_ = told["sentence"] or told["statement"]
        self.epsilon_ = _proved(told["statement"] == "simulation", float(told["epsilon"]))
        self._keep(theta, max(iterations, 1))
        return self

    def _solve(self, X: Array, y: Array, asked: dict[str, Any]) -> tuple[Array, int, dict[str, Any]]:
        """Coefficients with the intercept last, iterations, and what model.json says of privacy; on every rank."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class ConsensusClassifier(_Trained):
    """Logistic regression by the nodes of a graph, each of which holds some of the rows (`distadmm.solve`).

    Parameters
    ----------
    topology : a networkx graph, or a text such as "ring:4"; fit deals the rows to its nodes.
    algorithm : by name, as "radmm", "admm", "masked", "gossip".
    weight, rho : C, the weight of each node's mean loss, and the weight of the ridge.
    epsilon : None for no privacy; else the budget of one call of `fit`, and then all of these are to be stated:
        adjacency ("replace", "add-remove"), row_norm (rows are divided by it, and longer ones cut), the classes, as
        `fit(X, y, classes=(NO, YES))`, and trust where the algorithm asks for it ("coalition:1").
    random_state : None for secure noise.  A seed makes the noise repeatable, and then it protects nobody.
    account : file in which all fits on these rows are added up; None: this user's own (see docs/ledger.md).
    out : run directory, with its ledgers and its model; None: no file is left.
    flags : further flags of `python -m distadmm.radmm`, by name.
    mpi : all ranks of an mpiexec call `fit` together and share the nodes; each ends with the model.

    Attributes
    ----------
    coef_, intercept_ : node 0's own model.  statement_ : what may be said of it.  epsilon_ : the bound proved;
        infinite where there is none, as under a `random_state`.
    """

    topology: Any = "ring:4"
    algorithm: str = "radmm"
    weight: float = 1750.0
    rho: float = 0.22
    trust: str | None = None
    fit_intercept: bool = True

    def _solve(self, X: Array, y: Array, asked: dict[str, Any]) -> tuple[Array, int, dict[str, Any]]:
        from distadmm.data.session import table
        from distadmm.radmm import solve

        asked |= {"weight": self.weight, "rho": self.rho, "intercept": self.fit_intercept}
        asked |= {} if self.trust is None else {"trust": self.trust}
        scale, clip = self.row_norm or 1.0, self.row_norm is not None
        rows = table((X, y))._replace(unit=scale)  # the account knows them whatever the norm is
        run = solve(self.topology, rows, algorithm=self.algorithm, clip=clip, mpi=self.mpi, **asked)
        found = None
        if run.models is not None:
            scorer = run.scorer()
            theta = np.append(scorer.theta[0][: X.shape[1]] / scale, scorer.theta[0][X.shape[1] :])
            found = theta, run.iterations, scorer.told
        return connect().broadcast(found) if self.mpi else found  # type: ignore[return-value]

    def _scores(self, X: Any) -> Array:
        """Of rows cut as those of the training were."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=float)
        length = np.sqrt((X**2).sum(axis=1) / (self.row_norm or 1.0) ** 2 + self.fit_intercept)
        cut = np.maximum(1.0, length) if self.row_norm is not None else 1.0
        return (X @ self.coef_ + self.intercept_) / cut  # type: ignore[no-any-return]


@dataclass(eq=False, repr=False)
class SharingClassifier(_Trained):
    """Logistic regression by parties that hold different columns of the same rows (`python -m distadmm.sharing`).

    Parameters
    ----------
    parties : how many, or the number of columns of each in order, as (3, 5).
    lam : weight of the ridge, against the sum of the losses.
    mechanism : with a budget to be stated, for each protects other parties (see docs/sharing.md): "v1", "v2", ...
    epsilon, adjacency, row_norm, random_state, account, out, flags, mpi : as in `ConsensusClassifier`; row_norm bounds
        each party's part of a row, and may be one number a party.
    """

    parties: Any = 2
    lam: float = 1.0
    mechanism: str | None = None

    _stated: ClassVar[tuple[str, ...]] = ("adjacency", "row_norm", "mechanism", "classes")
    fit_intercept: ClassVar[bool] = True

    def _solve(self, X: Array, y: Array, asked: dict[str, Any]) -> tuple[Array, int, dict[str, Any]]:
        from distadmm import sharing
        from distadmm.run import model, shell

        if self.epsilon is None:
            asked.pop("rng", None)
        bounds = ",".join(str(float(bound)) for bound in np.atleast_1d(self.row_norm or []))
        asked |= {"mechanism": self.mechanism, "row_norm": bounds or "auto", "lambda_": self.lam}
        asked |= {"parties" if np.ndim(self.parties) == 0 else "split": self.parties}
        world, programme = connect() if self.mpi else World(), sharing.PROGRAMME
        with contextlib.ExitStack() as kept:
            # Its ledgers are files, and rest in the account.
            if self.epsilon is not None and "out" not in asked:
                place = kept.enter_context(TemporaryDirectory()) if world.is_root else ""
                asked["out"] = world.broadcast(place) + "/run"
            texts = kept.enter_context(holding({**asked, "data": (X, y)}, ["data"]))
            options = programme.form(*build(programme.groups(texts), texts, source="fit"))
            found = shell.in_process(programme, options, world, keep="out" in texts)
        models = {name: file for part in world.allgather(found.arrays) for name, file in part.items()}
        shift = float(models.pop("models/centre.npz")["intercept"])
        count = sum("party-" in name for name in models)
        parts = [models[f"models/party-{m}.npz"] for m in range(1, 1 + count)]
        theta = np.concatenate([part["x"] for part in parts])
        shift -= float(np.concatenate([part["mean"] for part in parts]) @ theta)
        told: dict[str, Any] = world.broadcast(found.descriptions.get(model.FILE, {}))
        return np.append(theta, shift), found.iterations, told
