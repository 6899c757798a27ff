"""S1, S2, S3 by adversarial search; why the paper's mechanism is refuted; what the command says of both."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm import sharing
from distadmm.algorithm import find
from distadmm.errors import InputError
from distadmm.methods.sharing import admm, vectors
from distadmm.methods.sharing.equation10 import claimed_sensitivity, degenerate_noise
from distadmm.methods.sharing.release import Release
from distadmm.methods.sharing.seat import Seat, iterate
from distadmm.privacy.accounting.gaussian import epsilon, mu_at
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.queries import Releases, committed
from distadmm.privacy.noise.sources import Simulation
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Logistic
from distadmm.problems.regularisers import Ball, Box, Regulariser, Whole
from distadmm.ranks.star import Star

seeds = st.integers(0, 10_000)
TINY = ["--data", "tiny", "--split", "15,15", "--row-norm", 3]


def run(*arguments):
    words = [str(argument) for argument in arguments]
    named = {"predict", "--data", "--party-files"} & set(words)
    return sharing.main(words if named else [*words, "--data", "tiny"])


@settings(deadline=None, max_examples=40)
@given(
    seeds,
    st.sampled_from([Regulariser(0, 1), Regulariser(1, 0), Regulariser(0.5, 0.5)]),
    st.sampled_from([Whole(), Box(-0.3, 0.4), Ball(0.7)]),
)
def test_s1_predictions_lie_in_the_half_ball_of_any_party(seed, reg, region):
    """Two parties with nothing in common but w: their answers differ by |w| at most."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=12) * 10 ** rng.uniform(-1, 1)
    answers = []
    for width in rng.integers(1, 15, 2):
        block = Columns(rng.normal(size=(12, width)) * 10 ** rng.uniform(-2, 2))
        lam, c = 10 ** rng.uniform(-4, 1), 10 ** rng.uniform(-1, 1)
        v = block.apply(minimise(block, w, c, lam, reg, region, np.zeros(width)))
        assert np.linalg.norm(v - 0.5 * w) <= 0.5 * np.linalg.norm(w) * (1 + 1e-6) + 1e-9
        answers.append(vectors.into_half_ball(v, w))
    assert np.linalg.norm(answers[0] - answers[1]) <= np.linalg.norm(w) * (1 + 1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-160])
def test_s1_moves_no_further_than_its_noise_is_for_however_long_its_pull_is(scale):
    """Squares of 1.4e-162 vanish, and a norm that does not see them is too small."""
    w, sent = np.full(10_000, 0.014 * scale), []
    w[0] = scale
    problem = admm.Problem(Logistic(), 1e-9, Regulariser(0, 1), Whole())
    release = SimpleNamespace(
        free=lambda k, m: sent.append(np.zeros(len(w))), noisy=lambda k, m, v: (sent.append(v) or v, 0.0)
    )
    for column in (
        w / scale,
        np.eye(len(w))[1] - np.eye(len(w))[2],
    ):  # one goes all the way, one does not move
        vectors.S1().answer(1, 1, Columns(column[:, None]), problem, np.zeros(1), w, release)
    assert math.hypot(*(sent[0] - sent[1])) <= 1 + 1e-9


def test_s1_is_tight_and_projection_covers_any_solver():
    w = np.array([3.0, 4.0])
    fits = Columns(np.eye(2))
    near = vectors.into_half_ball(
        fits.apply(minimise(fits, w, 1.0, 1e-9, Regulariser(), Whole(), np.zeros(2))), w
    )
    far = vectors.into_half_ball(np.zeros(2), w)
    assert np.linalg.norm(near - far) == pytest.approx(5.0, rel=1e-6)
    rng = np.random.default_rng(0)
    broken = [vectors.into_half_ball(100 * rng.normal(size=2), w) for _ in range(300)]
    assert max(np.linalg.norm(a - b) for a in broken for b in broken) <= 5.0 * (1 + 1e-12)


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_s2_answers_move_no_further_than_delta(seed):
    """One record's features become any other row, in the worst places; everything else is the same."""
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(2, 40)), int(rng.integers(1, 5))
    rho, row = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-0.5, 0.5)
    s2 = vectors.S2(
        rho,
        radius=10 ** rng.uniform(-1, 1),
        pull=10 ** rng.uniform(-1, 1),
        message_norm=10 ** rng.uniform(-1, 1),
    )
    problem = admm.Problem(Logistic(), 10 ** rng.uniform(-2, 1), region=s2.region(Whole()))
    matrix = rng.normal(size=(rows, width)) * 10
    if rng.random() < 0.5:  # all records alike, the changed one against them
        matrix[:] = matrix[0]
    other = matrix.copy()
    other[0] = -matrix[0] if rng.random() < 0.5 else 10 * rng.normal(size=width)
    w = rng.choice([-1.0, 1.0]) * np.full(rows, 3 * s2.pull) if rng.random() < 0.5 else rng.normal(size=rows)
    release = Release({}, {1: s2.query(problem, row, rows, "simulation", None, 1)})
    answers = [
        s2.answer(1, 1, s2.columns(data, row), problem, np.zeros(width), w, release)[1]
        for data in (matrix, other)
    ]
    assert np.linalg.norm(answers[0] - answers[1]) <= s2.sensitivity(problem, row)


def test_projecting_after_solving_would_break_the_bound():
    """Why the constraint belongs inside the minimisation: else the other records move by more than Delta."""
    rows, kappa = 10_000, 0.1
    delta = vectors.S2(1.0, radius=1.0, pull=2.0, message_norm=2.0).sensitivity(
        admm.Problem(Logistic(), kappa), 1.0
    )
    w = np.full(rows, 2.0)
    moved = {}
    for name, region in (("inside", Ball(1.0)), ("after", Whole())):
        answers = []
        for last in ([0.0, 1.0], [1.0, 0.0]):
            matrix = np.zeros((rows, 2))
            matrix[:, 0] = 1.0
            matrix[-1] = last
            block = Columns(matrix)
            x = minimise(block, w, 1.0, kappa, Regulariser(), region, np.zeros(2))
            answers.append(block.apply(x / max(1.0, np.linalg.norm(x))))
        moved[name] = np.linalg.norm(answers[0] - answers[1])
    assert moved["inside"] <= delta < 0.5 * moved["after"]


@pytest.mark.parametrize("mechanism", ["s1", "s2", "s3"])
def test_the_rounds_of_each_party_cost_the_budget(mechanism):
    rng = np.random.default_rng(0)
    train = {1: rng.normal(size=(80, 3)), 2: rng.normal(size=(80, 2))}
    labels, row = rng.choice([-1.0, 1.0], 80), {1: 2.0, 2: 1.0}
    algorithm = find(mechanism, "star").cls()
    problem = admm.Problem(Logistic(), 5.0, region=algorithm.region(Whole()), intercept=True)
    own = [m for m in (1, 2) if m >= algorithm.first]
    queries = {m: algorithm.query(problem, row[m], 80, "simulation", mu_at(3.0, 1e-5), 6) for m in own}
    out = {m: Releases(MemoryLedger(m, adjacency="replace", mode="simulation"), Simulation(1)) for m in own}
    for m in own:
        out[m].commit(committed([queries[m]] * 6, out[m].mode))
    star = Star(parties=2, party_one_is_centre=mechanism == "s3")
    blocks = {m: algorithm.columns(matrix, row[m]) for m, matrix in train.items()}
    iterate(algorithm, Seat(star, problem, blocks, labels, 80, release=Release(out, queries)), 6)
    for each in out.values():
        spent = math.sqrt(sum(event.gdp_mu("replace") ** 2 for event in each.ledger.events))
        assert epsilon(spent, 1e-5) == pytest.approx(3.0, rel=1e-6)
    assert star.sent()["vector up"]["messages"] == 12


def test_the_papers_noise_gives_the_columns_away():
    """One message of (10) lies in the column space of its own D: the true world is told from a neighbour."""
    rng = np.random.default_rng(4)
    D = rng.normal(size=(40, 4))
    neighbour = D.copy()
    neighbour[:, -1] *= -1
    neighbour[0, -1] *= -1  # one column differs, within the paper's own assumptions
    true, false = Columns(D), Columns(neighbour)
    for sigma in (1e-2, 1.0, 1e6):
        message = true.apply(rng.normal(size=4) + degenerate_noise(true, sigma, rng))
        residual = [
            np.linalg.norm(message - world.project(message)) / np.linalg.norm(message)
            for world in (true, false)
        ]
        assert residual[0] < 1e-10 < 1e-4 < residual[1]


def test_the_papers_noise_has_the_covariance_it_states():
    rng = np.random.default_rng(1)
    D = rng.normal(size=(30, 3))
    draws = np.array([degenerate_noise(Columns(D), 2.0, rng) for _ in range(20_000)])
    np.testing.assert_allclose(np.cov(draws.T), 4.0 * np.linalg.inv(D.T @ D), atol=0.01)


def test_lemma_one_does_not_bound_the_sensitivity():
    """Scaled Hadamard columns of which the last is negated: all assumptions met, actual above claimed."""
    from scipy.linalg import hadamard

    for d in (32, 256):
        rows = hadamard(d)[:, :d] / math.sqrt(d)  # rows and columns of norm 1
        other = rows.copy()
        other[:, -1] *= 1 - 0.99  # ||D - D'|| = .99
        lam, rho, parties = 1e-3, 1.0, 2
        problem = admm.Problem(Logistic(), lam)
        claimed = claimed_sensitivity(d, parties, problem, rho)
        w = rows[:, -1]  # |w| = 1, along the column that changes
        answers = [
            block.apply(minimise(block, w, rho, lam, Regulariser(), Whole(), np.zeros(d)))
            for block in (Columns(rows), Columns(other))
        ]
        moved = np.linalg.norm(answers[0] - answers[1])
        assert moved > (0.08 if d == 32 else 1.0) * claimed


@pytest.mark.parametrize(
    ("mechanism", "said"), [("s1", "at party level"), ("s2", "of all parties"), ("s3", "outside party 1")]
)
def test_the_command_says_what_is_protected(mechanism, said, tmp_path, capsys):
    arguments = ["--mechanism", mechanism, "--epsilon", 4, "--lambda", 30, "--rounds", 3]
    assert run(*TINY, *arguments, "--out", tmp_path / "r") == 0
    text = capsys.readouterr().out
    for line in (
        said,
        "1e-05)-DP",
        "not peer-reviewed",
        "Scores and predictions of the parties' models",
        "all labels",
    ):
        assert line in text
    assert "this run, 2 parties" not in text  # nothing is measured, and no table of dashes says so
    nodes = sorted(path.name for path in (tmp_path / "r" / "ledger").glob("*.jsonl"))
    assert nodes == ["node-0001.jsonl", "node-0002.jsonl"][mechanism == "s3" :]


@pytest.mark.parametrize("mechanism", ["s1", "s2", "s3"])
def test_secure_vectors_stay_within_the_budget_and_carry_their_claim(mechanism, tmp_path):
    arguments = [
        "--mechanism",
        mechanism,
        "--epsilon",
        1,
        "--lambda",
        30,
        "--rng",
        "secure",
        "--observe",
        "none",
    ]
    assert run(*TINY, *arguments, "--out", tmp_path / "r") == 0
    opened, committed = chain.read(tmp_path / "r" / "ledger" / "node-0002.jsonl").entries[:2]
    assert opened["claim"]["scope"].startswith("sharing-")
    assert committed["kind"] == "commit"
    assert [event["count"] for event in committed["events"]] == [10]


def test_the_papers_mechanism_is_never_a_guarantee(tmp_path, capsys):
    arguments = ["--mechanism", "paper", "--epsilon", 0.5, "--rounds", 4, "--observe", "end"]
    assert run(*TINY, *arguments, "--out", tmp_path / "r") == 0
    assert "claimed by the paper, refuted" in " ".join(capsys.readouterr().out.split())
    entries = chain.read(tmp_path / "r" / "ledger" / "node-0001.jsonl").entries
    charges = [entry for entry in entries if entry.get("mech") == "unbounded"]
    assert charges
    assert charges[0]["params"]["claimed"] == 0.5
    assert "refuted" in charges[0]["params"]["reason"]
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["epsilon"] == "inf"


@pytest.mark.parametrize("mechanism", ["s1", "s2", "s3"])
def test_scores_of_models_that_carry_no_noise_are_refused_or_unbounded(mechanism, tmp_path, capsys):
    arguments = ["--mechanism", mechanism, "--epsilon", 4, "--lambda", 30, "--rounds", 2, "--observe", "none"]
    assert run(*TINY, *arguments, "--out", tmp_path / "r") == 0
    capsys.readouterr()
    ask = ["predict", tmp_path / "r", "--data", "tiny", "--scores", tmp_path / "s.csv", "--release"]
    for release in ("refuse", "noise:2"):
        assert run(*ask, release) == 2
        assert (
            f"a private run by {mechanism}: its messages carry noise, its models none"
            in capsys.readouterr().err
        )
        assert not (tmp_path / "s.csv").exists()
        assert not (tmp_path / "r" / "ledger" / "scores").exists()
    assert run(*ask, "exact") == 0
    assert "epsilon = infinity" in capsys.readouterr().out
    for m in (1, 2)[mechanism == "s3" :]:
        entries = chain.read(tmp_path / "r" / "ledger" / "scores" / f"node-{m:04d}.jsonl").entries
        assert [entry["mech"] for entry in entries if entry["kind"] == "charge"] == ["unbounded"]


BAD = {
    "no budget": (["--mechanism", "s2"], "needs --epsilon"),
    "no mechanism": (["--message", "vectors", "--epsilon", "1"], "needs --mechanism"),
    "moments": (["--message", "vectors", "--mechanism", "v1", "--epsilon", "1"], "sends moments"),
    "vectors": (["--message", "moments", "--mechanism", "s1", "--epsilon", "1"], "sends vectors"),
    "weight": (["--mechanism", "s2", "--epsilon", "1", "--lambda", "0"], "--lambda above 0"),
    "reg": (["--mechanism", "s2", "--epsilon", "1", "--reg", "l1"], "l2 part"),
    "both": (["--mechanism", "paper", "--epsilon", "1", "--sigma", "1"], "--sigma or --epsilon"),
    "sigma": (["--sigma", "1"], "--sigma goes with"),
    "epsilon one": (["--epsilon", "1", "--epsilon-one", "2"], "only --mechanism v2 gives one of its own"),
    "secure": (["--mechanism", "paper", "--sigma", "1", "--rng", "secure"], "nothing to keep secure"),
    "radius": (["--mechanism", "s3", "--epsilon", "1", "--radius", "-1"], "--radius is -1"),
    "form": (["--mechanism", "s1", "--epsilon", "1", "--form", "averaged"], "--form sound"),
    "adjacency": (["--mechanism", "s1", "--epsilon", "1", "--adjacency", "add-remove"], "for replace alone"),
    "hide": (["--hide-labels"], "only --mechanism v2 protects labels"),
    "hide v1": (["--hide-labels", "--epsilon", "1"], "only --mechanism v2 protects labels"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_noise_flags_are_one_line_and_code_two(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, expected = BAD[name]
    assert run(*TINY, *arguments) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert expected in captured.err
    assert not list(tmp_path.iterdir())


def test_an_update_that_is_not_solved_is_not_sent(monkeypatch):
    s2 = vectors.S2()
    problem = admm.Problem(Logistic(), 1.0, region=s2.region(Whole()))
    out = Releases(MemoryLedger(1, adjacency="replace", mode="simulation"), Simulation(0))
    release = Release({1: out}, {1: s2.query(problem, 1.0, 20, "simulation", mu_at(1.0, 1e-5), 1)})
    block = Columns(np.random.default_rng(0).normal(size=(20, 3)))
    monkeypatch.setattr(vectors, "minimise", lambda *arguments: np.full(3, 0.5))
    with pytest.raises(InputError, match=r"party 1 was not solved .* not sent"):
        s2.answer(1, 1, block, problem, np.zeros(3), np.ones(20), release)
    assert out.ledger.events == []


def test_l1_models_are_refused_by_s2():
    with pytest.raises(InputError, match="l2 part"):
        vectors.S2().sensitivity(admm.Problem(Logistic(), 1.0, Regulariser(1, 0)), 1.0)
