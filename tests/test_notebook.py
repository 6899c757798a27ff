"""The notebook of docs/examples: executed as it stands, by a kernel of its own, in an empty home."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

REASON = "the notebook needs nbclient, ipykernel, pandas and matplotlib"
for needed in ("ipykernel", "pandas", "matplotlib"):
    pytest.importorskip(needed, reason=REASON)
nbclient = pytest.importorskip("nbclient", reason=REASON)
nbformat = pytest.importorskip("nbformat", reason=REASON)

HOME = Path(__file__).parent.parent
NOTEBOOK = HOME / "docs" / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Source of each cell that ran: what it gave, by kind."""
    place = tmp_path_factory.mktemp("home")
    book = nbformat.read(NOTEBOOK, 4)
    assert not any(
        cell.get("outputs") for cell in book.cells
    )  # kept without: nothing in it can be out of date
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            patch.setenv(name, str(place))
        patch.setenv("PYTHONPATH", str(HOME))
        nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(place)}}).execute()
    found = {}
    for cell in book.cells:
        given = [out.get("data", {"stream": out.get("text", "")}) for out in cell.get("outputs", ())]
        found[cell.source] = {kind: content for each in given for kind, content in each.items()}
    return place, found


def of(cells, part):
    (found,) = [given for source, given in cells[1].items() if part in source and given]
    return found


def test_the_notebook_says_what_to_write_of_missing_cells(cells):
    said = of(cells, "except distadmm.errors.InputError")["stream"]
    assert "column 'age': the cell is empty" in said
    assert "missing = VALUE" in said


def test_the_notebook_shows_two_runs_and_their_curves(cells):
    open_run, private = of(cells, 'algorithm="admm"'), of(cells, 'out="runs/notebook"')
    assert "no noise was asked for" in open_run["text/html"]
    for shown in (open_run, private):
        assert "<svg" in shown["text/html"]
        assert "6 nodes, 6 edges" in shown["text/html"]
    assert "epsilon 1.99" in private["text/plain"]
    assert base64.b64decode(of(cells, "run.plot")["image/png"]).startswith(b"\x89PNG")


def test_the_notebook_ends_with_predictions_and_the_sentence_of_its_ledgers(cells):
    assert "probability" in of(cells, "new.assign")["text/html"]
    sentence = of(cells, "print(run.sentence)")["stream"].strip()
    assert "1e-05)-DP for replacing one record" in sentence
    assert sentence in of(cells, "ledger.main")["stream"]
    assert of(cells, "Run.load")["text/plain"].startswith("(np.True_")
    assert len(list((cells[0] / "runs" / "notebook" / "ledger").glob("*.jsonl"))) == 6
