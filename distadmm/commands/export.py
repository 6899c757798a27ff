"""`python -m distadmm export`: the model of a finished run in one file, for those who do not have distadmm.

json: all numbers, and what they mean.  sklearn: a module that rebuilds a scikit-learn estimator;
it holds numbers and text alone: no pickle, and nothing is run but scikit-learn's own classes.
"""

import pprint
from pathlib import Path

from distadmm.commands.predict import Predict
from distadmm.data.schema import Schema
from distadmm.errors import require, sense_of
from distadmm.files import write_json, write_text
from distadmm.flags import again, flag, flag_group, positional
from distadmm.ranks.launch import say
from distadmm.run import kinds, model, scoring

PROG = "distadmm export"


@flag_group("export")
class Export:
    run: str = positional("RUN", help="directory of a finished run of radmm or istdp")
    format: str = flag("json", help="json, or sklearn: a Python file", choices=("json", "sklearn"))
    node: str | None = again(Predict, "node")
    out: str | None = flag(None, help="file to write (default: exported.json or exported.py)")


MODULE = '''"""A linear model, trained by distadmm.

    from {stem} import estimator
    estimator().predict(X)        # X: the columns of FEATURES, in that order{usage}
"""

import numpy as np
from sklearn.linear_model import {family}
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

WHOSE = {whose}
LOSS = {loss}
PRIVACY = {sentence}
SCHEMA = {schema}  # how raw columns become FEATURES; None: they are the columns
FEATURES = {features}
CLASSES = np.array({classes})
COEFFICIENTS = np.array({theta})
UNIT = {unit}  # by which columns are divided first, as the training's were
ROW_NORM = {norm}  # longer rows are shortened to it, as the training's were; None: they are not
INTERCEPT = {intercept}  # "inside": a last column of ones that counts into the norm; "outside": beyond it


{encode}def columns(X):
    X = np.asarray(X, dtype=float) / UNIT
    if INTERCEPT == "inside":
        X = np.hstack([X, np.ones((len(X), 1))])
    if ROW_NORM is not None:
        X = X / np.maximum(1.0, np.sqrt((X**2).sum(axis=1, keepdims=True)) / ROW_NORM)
    return X


def estimator():
    model = {family}(fit_intercept=INTERCEPT == "outside")
    weights = COEFFICIENTS[:, :-1] if INTERCEPT == "outside" else COEFFICIENTS
    shift = COEFFICIENTS[:, -1] if INTERCEPT == "outside" else np.zeros(len(COEFFICIENTS))
    model.n_features_in_ = weights.shape[1]
    if len(CLASSES):
        model.coef_, model.intercept_, model.classes_ = weights, shift, CLASSES
    else:
        model.coef_, model.intercept_ = weights[0], shift[0]
    return make_pipeline(FunctionTransformer(columns), model)
'''

USAGE = """

    import csv
    from {stem} import encode, estimator
    rows = csv.DictReader(open("new.csv", newline="", encoding="utf-8-sig"))
    estimator().predict(encode(rows))"""
ENCODE = '''def encode(rows):
    """Raw rows (dictionaries of cells, such as frame.to_dict("records")) as the columns of FEATURES, by SCHEMA."""
    columns = SCHEMA["columns"]
    return np.array([[x for one in columns for x in _encoded(one, row, at)] for at, row in enumerate(rows, 1)])


def _encoded(column, row, at):
    name, value, cell = column["name"], column.get("missing"), row[column["name"]]
    text = "" if cell is None or cell != cell else str(cell).strip()
    gone = not text or text in SCHEMA["missing"]
    if "domain" in column:
        if text in column["domain"]:
            value = text
        elif not gone or (not text and value is None):
            raise ValueError(f"row {at}, {name}: {text!r} is not among {column['domain']}")
        return [float(value == each) for each in column["domain"]]
    if not gone or value is None:
        value = float(text)
    low, high = column["min"], column["max"]
    if not low <= value <= high:
        raise ValueError(f"row {at}, {name}: {value} is outside the bounds {low} to {high}")
    return [(value - low) / (high - low)] + [float(gone)] * column.get("missing_indicator", False)


'''


def module(scorer: scoring.Scorer, stem: str) -> str:
    told = scorer.told
    values = {
        "whose": scorer.whose, "loss": told["loss"], "sentence": told["sentence"] or "It was trained on public rows.",
        "schema": (told["encoding"] or {}).get("schema"), "features": list(told["features"]),
        "classes": list(told["classes"]), "theta": scorer.theta.tolist(), "norm": told["row_norm"],
        "intercept": told["intercept"], "unit": scorer.unit,
    }  # fmt: skip
    # The linear model of scikit-learn whose predictions are this one's.
    family = {"identity": "LinearRegression", "sign": "SGDClassifier"}.get(told["link"], "LogisticRegression")
    # Names come from files: they are written as literals, never as code.
    literals = {name: pprint.pformat(value, width=100, compact=True) for name, value in values.items()}
    raw = values["schema"] and list(Schema.of_json(values["schema"]).feature_names) == values["features"]
    more = {"usage": USAGE.format(stem=stem), "encode": ENCODE} if raw else {"usage": "", "encode": ""}
    return MODULE.format(stem=stem, family=family, **more, **literals)


def exported(asked: Export) -> str:
    described = model.read(kinds.opened(asked.run, "export").path)
    with sense_of(described.path):
        scorer = scoring.Scorer.of(described, asked.node)
        out = Path(asked.out or f"exported.{'json' if asked.format == 'json' else 'py'}")
        if asked.format == "json":
            told = {key: value for key, value in scorer.told.items() if key not in ("arrays", "parts")}
            write_json(out, {**told, "whose": scorer.whose, "coefficients": scorer.theta.tolist()})
        else:
            right = out.stem.isidentifier()
            require(right, f"--out {out}: a module's name is letters and digits; as in model.py")
            write_text(out, module(scorer, out.stem))
    return f"{scorer.whose}, as {asked.format}: {out}"


main = say(PROG, __doc__, Export, exported)
