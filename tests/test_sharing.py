"""The command and the functions of ADMM sharing, through files, flags and bad input."""

import csv
import gzip
import json

import numpy as np
import pytest
import scipy.sparse as sp

from distadmm import sharing
from distadmm.errors import InputError
from distadmm.files import read_npz
from distadmm.methods.sharing import admm
from distadmm.methods.sharing.jacobi import Corrected, Paper
from distadmm.privacy.ledger import chain
from distadmm.problems.losses import Logistic
from tests.common import own_algorithm


def run(*arguments):
    words = [str(argument) for argument in arguments]
    named = {"predict", "--data", "--party-files"} & set(words)
    return sharing.main(words if named else [*words, "--data", "tiny"])


def _blocks(seed=0, rows=60, widths=(3, 2)):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(rows, d)) + 1 for d in widths]
    labels = np.sign(sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.normal(size=rows))
    return blocks, labels


def _history(folder):
    with open(folder / "history.csv") as file:
        return list(csv.DictReader(file))


def test_solve_agrees_with_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    blocks, labels = _blocks()
    solution = sharing.solve(blocks, labels, algorithm=Corrected(tolerance=1e-9), iterations=2000)
    assert solution.converged
    joined = np.hstack(blocks)
    other = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(joined, labels)
    np.testing.assert_allclose(sharing.predict(blocks, solution), other.decision_function(joined), atol=1e-5)


def test_sparse_and_dense_blocks_give_the_same_model():
    rng = np.random.default_rng(3)
    dense = [(rng.random((80, d)) < 0.15).astype(float) for d in (6, 5, 4)]
    labels = rng.choice([-1.0, 1.0], 80)
    how = {"algorithm": Corrected(tolerance=1e-10), "iterations": 3000}
    one = sharing.solve([sp.csr_matrix(block) for block in dense], labels, **how)
    other = sharing.solve([block + 0.0 for block in dense], labels, **how)
    joined = np.hstack(dense)
    problem = admm.Problem(Logistic(), 1.0, intercept=True)
    from distadmm.methods.sharing.observe import centralised

    x, b = centralised(dense, labels, problem)
    for solution in (one, other):
        np.testing.assert_allclose(sharing.predict(dense, solution), joined @ x + b, atol=1e-5)


def test_fifty_parties_converge():
    rng = np.random.default_rng(9)
    blocks = [rng.normal(size=(300, 2)) for _ in range(50)]
    labels = np.sign(sum(block[:, 0] for block in blocks) + rng.normal(size=300))
    solution = sharing.solve(blocks, labels, iterations=400)
    assert solution.converged
    assert solution.theta is not None
    assert 1 < solution.theta < 50


def test_divergence_is_named_with_its_remedy():
    rng = np.random.default_rng(1)
    base = rng.normal(size=(200, 5))
    blocks = [base + 0.1 * rng.normal(size=base.shape) for _ in range(6)]
    labels = np.sign(base[:, 0] + 0.5 * rng.normal(size=200))
    problem = admm.Problem(Logistic(), 1e-3)
    diverging = sharing.solve(blocks, labels, problem=problem, algorithm=Paper(rho=0.01), iterations=300)
    assert not diverging.converged
    assert "diverged" in diverging.failure
    assert "--tau 3.59" in diverging.failure  # 3/4 * 1.02 * 6 - 1
    mended = sharing.solve(
        blocks, labels, problem=problem, algorithm=Corrected(rho=0.01, tau=3.59), iterations=2000
    )
    assert mended.converged


def test_a_run_writes_its_directory_and_predict_reads_it(tmp_path, capsys):
    out = tmp_path / "run"
    assert run("--out", out, "--split", "10,20", "--iterations", 30) == 0
    text = capsys.readouterr().out
    for line in ("party 1 alone", "all features, one place", "this run, 2 parties"):
        assert line in text
    config, summary = (json.loads((out / name).read_text()) for name in ("config.json", "summary.json"))
    assert (config["kind"], summary["kind"]) == ("sharing", "sharing")
    rows = summary["comparison"]
    assert rows["this run, 2 parties"]["test_loss"] < rows["party 1 alone"]["test_loss"]
    assert len(_history(out)) == summary["iterations"]
    assert read_npz(out / "models" / "party-1.npz")["x"].shape == (10,)
    assert run("predict", out, "--data", "tiny", "--scores", tmp_path / "scores.csv") == 0
    with open(tmp_path / "scores.csv") as file:
        scores = np.array([float(row["score"]) for row in csv.DictReader(file)])
    from distadmm.data.source import open_source
    from distadmm.methods.sharing.observe import test_metrics

    _, y = open_source("tiny", clip=None).test()
    loss, accuracy = test_metrics(Logistic(), scores, y)
    assert loss == pytest.approx(rows["this run, 2 parties"]["test_loss"], rel=1e-6)
    assert accuracy == pytest.approx(rows["this run, 2 parties"]["accuracy"])


def test_the_observer_changes_no_bit(tmp_path):
    for observe in ("each", "end", "none"):
        assert run("--out", tmp_path / observe, "--observe", observe, "--iterations", 8) == 0
    models = [
        read_npz(tmp_path / observe / "models" / "party-2.npz")["x"] for observe in ("each", "end", "none")
    ]
    assert models[0].tobytes() == models[1].tobytes() == models[2].tobytes()


def test_a_saved_configuration_repeats_the_run(tmp_path):
    assert run("--out", tmp_path / "a", "--penalty-rho", 0.1, "--reg", "enet:0.3", "--iterations", 12) == 0
    assert run("--config", tmp_path / "a" / "config.json", "--out", tmp_path / "b") == 0
    one, other = ((tmp_path / name / "history.csv").read_bytes() for name in "ab")
    assert one == other


@pytest.mark.parametrize("form", ["sound", "paper", "averaged", "gauss-seidel"])
def test_every_form_runs_from_the_command(form, tmp_path):
    assert run("--out", tmp_path / "r", "--form", form, "--penalty-rho", 0.3, "--iterations", 5) == 0
    rows = _history(tmp_path / "r")
    assert float(rows[-1]["objective"]) < np.log(2)


def test_the_paper_form_costs_two_vectors_down(tmp_path):
    assert (
        run(
            "--out",
            tmp_path / "r",
            "--form",
            "paper",
            "--penalty-rho",
            0.3,
            "--iterations",
            4,
            "--wire",
            "float32",
        )
        == 0
    )
    traffic = json.loads((tmp_path / "r" / "summary.json").read_text())["traffic"]
    assert traffic["vector up"]["bytes"] == 4 * 2 * 455 * 4
    assert traffic["vector down"]["bytes"] == 2 * traffic["vector up"]["bytes"]


def test_sgd_approaches_the_same_optimum_with_as_many_bytes_an_epoch(tmp_path):
    assert (
        run("--out", tmp_path / "r", "--algorithm", "sgd", "--sgd-step", 3, "--batch", 20, "--iterations", 60)
        == 0
    )
    result = json.loads((tmp_path / "r" / "summary.json").read_text())
    best = result["comparison"]["all features, one place"]["objective"]
    assert best <= result["comparison"]["this run, 2 parties"]["objective"] < 1.05 * best
    assert result["traffic"]["vector up"]["bytes"] == 60 * 2 * 455 * 8


def _write(path, header, rows):
    path.write_text("\n".join([",".join(header), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def party_files(tmp_path):
    """Three files about the same forty people, each in an order of its own."""
    blocks, labels = _blocks(4, 40)
    names = [f"p{i}" for i in range(40)]
    rng = np.random.default_rng(0)

    def write(name, header, columns):
        order = rng.permutation(40)
        return _write(tmp_path / name, ["id", *header], [[names[i], *columns[i]] for i in order])

    return {
        "labels": write("labels.csv", ["y"], labels[:, None].astype(int)),
        "one": write("one.csv", ["a", "b", "c"], blocks[0]),
        "two": write("two.csv", ["d", "e"], blocks[1]),
        "blocks": blocks,
        "y": labels,
        "names": names,
    }


def _aligned(files):
    return ["--party-files", f"{files['one']},{files['two']}", "--label-file", files["labels"], "--key", "id"]


def test_party_files_are_aligned_by_their_key(party_files, tmp_path):
    assert (
        run(*_aligned(party_files), "--out", tmp_path / "r", "--stop-tolerance", 1e-9, "--iterations", 3000)
        == 0
    )
    expected = sharing.solve(
        party_files["blocks"], party_files["y"], algorithm=Corrected(tolerance=1e-9), iterations=3000
    )
    for m in (1, 2):
        found = read_npz(tmp_path / "r" / "models" / f"party-{m}.npz")["x"]
        np.testing.assert_allclose(found, expected.models[m], atol=1e-6)
    files = f"{party_files['one']},{party_files['two']}"
    scores = tmp_path / "s.csv"
    assert run("predict", tmp_path / "r", "--party-files", files, "--key", "id", "--scores", scores) == 0
    assert len(scores.read_text().splitlines()) == 41


def test_labels_may_lie_in_the_file_of_party_one(party_files, tmp_path):
    lines = party_files["one"].read_text().splitlines()
    label = dict(zip(party_files["names"], party_files["y"].astype(int)))
    mixed = [lines[0] + ",y", *(f"{line},{label[line.split(',')[0]]}" for line in lines[1:])]
    path = tmp_path / "mixed.csv"
    path.write_text("\n".join(mixed) + "\n")
    arguments = ["--party-files", f"{path},{party_files['two']}", "--key", "id"]
    assert run(*arguments, "--out", tmp_path / "a", "--iterations", 9) == 0
    assert run(*_aligned(party_files), "--out", tmp_path / "b", "--iterations", 9) == 0
    one, other = (read_npz(tmp_path / name / "models" / "party-2.npz")["x"] for name in "ab")
    np.testing.assert_allclose(one, other, rtol=1e-9)  # the order of the records differs, and so do roundings


def test_records_that_differ_are_refused_or_joined(party_files, tmp_path, capsys):
    short = tmp_path / "short.csv"
    short.write_text("\n".join(party_files["two"].read_text().splitlines()[:31]) + "\n")
    party_files["two"] = short
    assert run(*_aligned(party_files), "--out", tmp_path / "r") == 2
    assert "30 of 40 keys" in capsys.readouterr().err
    assert run(*_aligned(party_files), "--out", tmp_path / "r", "--join", "inner", "--iterations", 3) == 0
    assert "30 records" in capsys.readouterr().out


def test_a_loss_of_ones_own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n"
        "class Mine:\n"
        "    max_slope, max_curvature, one_signed, labels = 1.0, 0.25, True, True\n"
        "    def value(self, z, y): return np.logaddexp(0, -y * z)\n"
        "    def slope(self, z, y): return -y / (1 + np.exp(np.clip(y * z, -500, 500)))\n"
        "    def curvature(self, z, y): s = 1 / (1 + np.exp(-np.clip(z, -500, 500))); return s * (1 - s)\n"
    )
    assert run("--out", tmp_path / "a", "--loss", f"{path}:Mine", "--iterations", 9) == 0
    assert run("--out", tmp_path / "b", "--iterations", 9) == 0
    one, other = (read_npz(tmp_path / name / "models" / "party-1.npz")["x"] for name in "ab")
    np.testing.assert_allclose(one, other, rtol=1e-8)


def test_strict_runs_say_by_their_exit_code_that_they_did_not_converge(tmp_path):
    assert run("--out", tmp_path / "r", "--iterations", 2, "--strict") == 4


BAD = {
    "one party": (["--split", "30"], "sharing needs at least 2"),
    "widths": (["--split", "10,30"], "adds up to 40"),
    "empty party": (["--split", "30,0"], "--split is 0"),
    "rho": (["--penalty-rho", "0"], "--penalty-rho is 0"),
    "tau": (["--tau", "-0.5"], "--tau is -0.5"),
    "theta": (["--theta", "7"], "the overlap of 2 parties is in [1, 2]"),
    "theta word": (["--theta", "big"], "--theta is 'big'"),
    "form": (["--form", "serial"], "choose one of"),
    "loss": (["--loss", "cubic"], "--loss is 'cubic'"),
    "region": (["--region", "cone"], "--region is 'cone'"),
    "no table": (["--data", "nowhere.csv"], "nowhere.csv"),
    "no key": (["--party-files", "a.csv,b.csv"], "needs --key"),
    "two counts": (["--split", "15,15", "--parties", "3"], "give one of them"),
    "rank": (["--data", "a9a", "--lambda", "0"], "have rank"),
    "fraction": (["--test-fraction", "1.5"], "--test-fraction"),
    "unknown flag": (["--rho-ruel", "1"], "did you mean --rho-rule"),
    "batch": (["--algorithm", "sgd", "--batch", "0"], "--batch is 0"),
    "width of private rows": (["--data", "rows.svm.gz", "--epsilon", "1"], "give --features N"),
    "width of noisy vectors": (
        ["--data", "rows.svm", "--mechanism", "s2", "--epsilon", "1"],
        "give --features N",
    ),
    "predict without run": (["predict"], "directory of a finished run"),
    "predict nothing": (["predict", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_flags_are_one_line_and_code_two(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = b"1 1:1 3:1\n-1 2:1 4:1\n"
    (tmp_path / "rows.svm").write_bytes(lines)
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(lines))
    arguments, expected = BAD[name]
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert expected in captured.err


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (
            lambda header, rows: (header, [[*row[:2], "nan", *row[3:]] for row in rows]),
            'missing = ["nan"]',
        ),
        (
            lambda header, rows: (header, [[*row[:2], "inf", *row[3:]] for row in rows]),
            "needed: a finite number",
        ),
        (lambda header, rows: (header, [[*row[:-1], 7] for row in rows]), "7"),
        (lambda header, rows: (header, [[1, 1, *row[2:]] for row in rows]), "party 1"),
    ],
)
def test_bad_tables_are_one_line_and_code_two(damage, expected, tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [[*rng.normal(size=4).round(3), rng.choice([-1, 1])] for _ in range(20)]
    header, rows = damage(["a", "b", "c", "d", "y"], rows)
    path = _write(tmp_path / "t.csv", header, rows)
    assert run("--data", path, "--split", "2,2", "--out", tmp_path / "r") == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert expected in captured.err


def test_a_party_file_without_the_key(party_files, tmp_path, capsys):
    party_files["two"].write_text(party_files["two"].read_text().replace("id,", "person,", 1))
    assert run(*_aligned(party_files), "--out", tmp_path / "r") == 2
    error = capsys.readouterr().err
    assert "two.csv" in error
    assert "'id'" in error
    assert not (tmp_path / "r").exists()


def test_blocks_of_different_length_are_refused():
    blocks, labels = _blocks()
    with pytest.raises(InputError, match="party 2 holds 50 rows"):
        sharing.solve([blocks[0], blocks[1][:50]], labels)
    with pytest.raises(InputError, match="exactly -1 and"):
        sharing.solve(blocks, labels * 2)


OWN = own_algorithm(
    """
@distadmm.register("ridge", family="star")
@dataclass(frozen=True)
class Ridge:
    weight: float = distadmm.flag(1.0, help="of the pull towards the labels")

    def init(self, seat):
        return State({m: np.zeros(block.width) for m, block in seat.blocks.items()}, 0.0)

    def step(self, k, st, seat):
        v = {m: block.apply(st.x[m]) for m, block in seat.blocks.items()}
        SEAL
        total, _ = seat.collect(k, v)
        pull = seat.down(seat.labels - total if total is not None else np.zeros(0))
        x = {m: st.x[m] + self.weight * block.adjoint(pull) / seat.rows for m, block in seat.blocks.items()}
        return State(x, st.b)
""",
    "x: dict",
    "b: float",
)


@pytest.mark.parametrize("seal", ["v = {m: seat.release.seal(k, m, sent) for m, sent in v.items()}", "pass"])
def test_an_algorithm_of_ones_own_runs_and_cannot_send_unnoticed(seal, tmp_path):
    path = tmp_path / f"ridge{len(seal)}.py"  # a module is loaded once a process
    path.write_text(OWN.replace("SEAL", seal))
    out = tmp_path / "r"
    assert (
        run("--algorithm", path, "--weight", 0.01, "--iterations", 8, "--checkpoint-every", 4, "--out", out)
        == 0
    )
    rows = _history(out)
    assert float(rows[-1]["objective"]) < float(rows[0]["objective"])
    entries = chain.read(out / "ledger" / "node-0001.jsonl").entries
    first, then = [entry["params"]["reason"] for entry in entries if entry["kind"] == "charge"]
    assert first == f"unchecked code {path}"  # before its first line runs
    assert ("without noise" if "seal" in seal else "no release covers") in then
    assert run("--resume", out, "--iterations", 12) == 0
    assert len(_history(out)) == 12
    if "seal" in seal:  # infinity is said once, and not again by the run that goes on
        entries = chain.read(out / "ledger" / "node-0001.jsonl").entries
        assert [each["k"] for each in entries if each["kind"] in ("charge", "release")] == [0, 1]
