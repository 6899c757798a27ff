"""What the Python of a page presumes: names it does not make itself, and files that a reader would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.pages import HOME, blocks

NEW = """age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,capital-gain,capital-loss,hours-per-week,native-country
39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,Male,2174,0,40,United-States
50,Self-emp-not-inc,83311,Bachelors,13,Married-civ-spouse,Exec-managerial,Husband,White,Male,0,0,13,United-States
38,Private,215646,HS-grad,9,Divorced,Handlers-cleaners,Not-in-family,White,Male,0,0,40,United-States
"""  # noqa: E501


def files(folder: Path) -> None:
    (folder / "new.csv").write_text(NEW)
    parties = {"centre": "id,a,late\n1,0.1,no\n2,0.2,yes\n3,0.3,no\n", "bank": "id,b\n3,3\n1,1\n2,2\n"}
    for name, text in parties.items():
        (folder / f"{name}.csv").write_text(text)
    people = "id,age,job,temperature,income\n7,50,pilot,36.9,high\n8,25,cook,37.2,low\n"
    (folder / "people.csv").write_text(people + "9,61,?,36.5,low\n10,33,clerk,38.1,high\n")
    square = {"f": "(t - 1) ** 2", "f1": "2 * (t - 1)", "f2": "2 + 0 * t"}
    (folder / "chi2.py").write_text(
        "".join(f"def {name}(t):\n    return {is_}\n" for name, is_ in square.items())
    )
    schema = next(block.text for block in blocks(HOME / "docs" / "data.md") if block.tongue == "toml")
    (folder / "schema.toml").write_text(schema)


def with_a_run(text: str) -> str:
    """The same with a run directory, made here, for `runs/...`."""
    if "runs/..." in text:
        from distadmm import radmm

        assert (
            radmm.main(["--data", "tiny", "--iterations", "2", "--progress", "none", "--out", "runs/made"])
            == 0
        )
    return text.replace("runs/...", "runs/made")


def names(page: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6)) / 4
    y = np.where(X[:, 0] + X[:, 1] > 0, 1.0, -1.0)
    if page == "sharing.md":
        from distadmm.problems.losses import loss_named

        made = {"A": X[:, :3], "B": X[:, 3:], "labels": y, "A_new": X[:9, :3], "B_new": X[:9, 3:]}
        return {**made, "MyLoss": type(loss_named("logistic"))}
    if page == "istdp.md":
        return {"X": rng.standard_normal((5000, 6)), "y": np.where(rng.random(5000) > 0.5, 1, -1)}
    if page == "data.md":
        return {"np": np}
    if page == "funnel.md":
        from distadmm import Mapping

        Path("a").mkdir()
        Mapping(np.array([[0.8, 0.2], [0.3, 0.7]]), values=("no", "yes")).save("a/mapping-04.npz")
        return {"column": ["no", "yes", "yes"], "rng": rng}
    return {"X": X, "y": y, "np": np, "rng": rng}
