"""What papers claim of runs in their printed form, by their own formulas; and input that used to end in a traceback."""

import json
import math

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.commands import account
from distadmm.commands import ledger as ledger_command
from distadmm.errors import DONE, FAILURE, USAGE, InputError, Unsolved
from distadmm.methods.sharing.equation10 import claimed_sensitivity, claimed_sigma
from distadmm.methods.sharing.vectors import S2
from distadmm.privacy.accounting.accountant import published_epsilon
from distadmm.privacy.accounting.events import Unbounded, event_from_json
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.tally import Tally
from tests.common import PRINTED, own_algorithm

GRAPH = ["--data", "tiny", "--topology", "er5", "--weight", "20", "--rho", "1", "--eta", "0.5"]
PAPER = [
    "--algorithm",
    "admm",
    "--form",
    "paper",
    "--alpha",
    "1",
    "--adjacency",
    "replace",
    "--rng",
    "simulation",
]


def spent(folder, node):
    return Tally.of(chain.read(folder / "ledger" / f"node-{node:04d}.jsonl").entries).events


@pytest.mark.parametrize("solves", [1, 5, 50])
def test_32_adds_up_over_the_solves(solves, tmp_path, capsys):
    out = tmp_path / "r"
    assert radmm.main([*GRAPH, *PAPER, "--iterations", str(solves), "--out", str(out)]) == DONE
    description = json.loads((out / "config.json").read_text())
    claimed = []
    for node in range(5):
        (line,) = [
            e for e in chain.read(out / "ledger" / f"node-{node:04d}.jsonl").entries if e["kind"] == "charge"
        ]
        claimed.append(line["params"]["claimed"])
        assert published_epsilon(spent(out, node), "replace") == pytest.approx(
            solves * claimed[-1], rel=1e-12
        )
    assert description["config"]["iterations"] == solves
    capsys.readouterr()
    assert ledger_command.main(["show", str(out), "--json"]) == DONE
    (shown,) = json.loads(capsys.readouterr().out)["runs"]
    assert shown["together"]["published_epsilon"] == pytest.approx(solves * max(claimed), rel=1e-12)
    # (32), a solve: (2 C/B) (1.4 c1/(rho/N + 2 eta V) + alpha), of a node with V neighbours and B rows
    rows, degrees = (455 // 5, 455 // 5 + 1), range(1, 5)
    stated = [2 * 20 / b * (1.4 * 0.25 / (1 / 5 + v) + 1) for b in rows for v in degrees]
    assert all(min(abs(c - s) for s in stated) < 1e-9 for c in claimed)


@pytest.mark.parametrize(
    ("solves", "published"),
    [(1, "1.92"), (5, "9.61"), pytest.param(50, "96.1", marks=pytest.mark.slow)],
)
def test_32_at_twenty_nodes_of_two_thousand_rows(solves, published, tmp_path, capsys):
    """(32) by hand: 50 (2 1750/2000) (1.4/4/(0.1/20 + 2 0.5) + 0.75) = 96.1; 0.1 said 1.51 for any number of solves."""
    flags = ["--algorithm", "admm", "--alpha", "0.75", "--eta", "0.5", "--rho", "0.1", "--observe", "none"]
    out = tmp_path / "r"
    assert radmm.main([*PAPER, *flags, "--iterations", str(solves), "--out", str(out)]) == DONE
    capsys.readouterr()
    assert ledger_command.main(["show", str(out), "--json"]) == DONE
    (shown,) = json.loads(capsys.readouterr().out)["runs"]
    assert f"{shown['together']['published_epsilon']:.3g}" == published


def test_corollary_1_composes_all_messages_of_a_party(tmp_path, capsys):
    out = tmp_path / "r"
    flags = ["--data", "tiny", "--split", "15,15", "--mechanism", "paper", "--epsilon", "1", "--rounds", "10"]
    assert sharing.main([*flags, "--observe", "none", "--out", str(out)]) == DONE
    expected = math.sqrt(2 * 10 * math.log(1e5)) + 10 * (math.e - 1)
    assert expected == pytest.approx(32.357, abs=1e-3)
    for party in (1, 2):
        assert published_epsilon(spent(out, party), "replace") == pytest.approx(expected, rel=1e-12)
    said = " ".join(capsys.readouterr().out.split())
    assert "Corollary 1 says epsilon = 32.36 at delta = 0.00011 of the 10 messages" in said
    assert "exceeds b1 = 1, on which its noise rests" in said
    assert json.loads((out / "summary.json").read_text())["published_epsilon"] == pytest.approx(expected)


def test_b1_scales_the_noise_and_is_looked_at(tmp_path, capsys):
    """Lemma 1 with b1 = 525, which |z| reaches on a9a, asks for 810 where b1 = 1 gave 2.6."""
    from distadmm.methods.sharing.admm import Problem
    from distadmm.problems.losses import Logistic

    problem = Problem(Logistic(), 1.0)
    small, needed = (
        claimed_sigma(claimed_sensitivity(66, 2, problem, 0.2, b1), 1.0, 1e-5) for b1 in (1.0, 525.0)
    )
    assert (small, needed) == (pytest.approx(2.64, abs=0.01), pytest.approx(810, abs=1))
    flags = ["--data", "tiny", "--split", "15,15", "--mechanism", "paper", "--epsilon", "1", "--rounds", "1"]
    assert (
        sharing.main([*flags, "--norm-bound", "1e6", "--observe", "none", "--out", str(tmp_path / "r")])
        == DONE
    )
    assert "assumption fails" not in capsys.readouterr().out  # nothing came before the first message
    assert (
        sharing.main([*flags[:-4], "--epsilon", "2", "--rounds", "1", "--out", str(tmp_path / "s")]) == DONE
    )
    assert "says nothing of this run: Theorem 1 is for an epsilon of at most 1" in " ".join(
        capsys.readouterr().out.split()
    )
    assert sharing.main(["--data", "tiny", "--norm-bound", "3", "--out", str(tmp_path / "t")]) == USAGE
    assert "--norm-bound goes with --mechanism paper" in capsys.readouterr().err


def test_thresholding_in_print_claims_its_epsilon_of_all_iterations(tmp_path, capsys):
    out = tmp_path / "r"
    assert istdp.main([*PRINTED, "--rng", "simulation", "--iterations", "12", "--out", str(out)]) == DONE
    events = spent(out, 0)
    assert all(event.unbounded for event in events)
    assert published_epsilon(events, "replace") == 1.0


def test_claims_keep_their_form():
    for event in (
        Unbounded("why", 1.5),
        Unbounded("why", 1.5, "each", count=3),
        Unbounded("why", 0.5, "advanced", 1e-6, 4),
    ):
        assert event_from_json(json.loads(json.dumps(event.to_json()))) == event
    assert Unbounded("why", 1.5).to_json() == {"mech": "unbounded", "reason": "why", "claimed": 1.5}
    assert Unbounded("why", 1.5).group(2).published("replace") == math.inf  # no paper speaks of groups
    for bad in ({"adds": "somehow"}, {"adds": "advanced"}, {"count": 0}):
        with pytest.raises(InputError):
            Unbounded("why", 1.0, **bad)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--floor", "0.1"], "its condition fails: 2 c1 C/B = 0.1094 is not below Phi = 0.1"),
        (["--mechanism", "gaussian", "--sigma", "10"], "none for Gaussian noise"),
        (["--records", "2"], "none for several records"),
    ],
)
def test_account_says_why_there_is_no_published_row(flags, why, capsys):
    assert account.main([*flags, "--count", "3"]) == DONE
    out = capsys.readouterr().out
    assert not any(line.startswith("published (delta = 0)") for line in out.splitlines())
    assert why in " ".join(out.split())


# -- no traceback --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
@pytest.mark.parametrize("verb", ["verify", "show", "merge", "export"])
def test_a_ledger_nested_without_end_is_told_in_one_line(text, verb, tmp_path, capsys):
    folder = tmp_path / "ledger"
    folder.mkdir()
    (folder / "node-0000.jsonl").write_text(text + "\n")
    assert ledger_command.main([verb, str(tmp_path)]) != DONE
    out, err = capsys.readouterr()
    assert "nested deeper than any entry" in out + err


def test_a_nan_is_no_certificate():
    class Loose:
        rows = 3
        spectrum = (np.array([1.0]), np.eye(1))

        def apply(self, x):
            return np.full(3, np.nan)

        def adjoint(self, v):
            return np.full(1, np.nan)

    from distadmm.methods.sharing.admm import Problem
    from distadmm.problems.losses import Logistic
    from distadmm.problems.regularisers import Ball

    problem = Problem(Logistic(), 1.0, region=Ball(1.0))
    with pytest.raises(Unsolved, match="not solved"):
        S2().certify(1, Loose(), problem, np.zeros(1), np.zeros(3), 1.0)


FORGED = own_algorithm(
    '''
@distadmm.register("NAME")
@dataclass(frozen=True)
class Forged:
    """A model that is no minimiser, with a residual that says it is one."""

    def releases(self, node, iterations):
        return [distadmm.Planned(k, np.ones((len(node.start), 1))) for k in range(1, iterations + 1)]

    def init(self, node):
        return State(node.start)

    def step(self, k, st, node):
        one = np.ones((len(st.f), 1))
        f = node.problem.argmin(node.release.draw(k, one), one, st.f) * 1.5
        sent = node.release.seal(k, f, RESIDUAL)
        node.network.exchange(sent)
        return State(sent)
''',
    "f: np.ndarray",
)


@pytest.mark.parametrize(
    ("name", "residual", "said"),
    [
        ("forged-zero", "np.zeros(len(f))", "unbounded: unchecked code"),
        ("forged-nan", "np.full(len(f), np.nan)", "left no finite numbers; nothing of it was sent"),
        ("forged-number", "0.0", "a gradient norm a node, (5,)"),
        ("forged-nothing", "None", "a gradient norm a node, (5,)"),
    ],
)
def test_a_forged_residual(name, residual, said, tmp_path, capsys):
    file, out = tmp_path / f"{name}.py", tmp_path / "r"
    file.write_text(FORGED.replace("RESIDUAL", residual).replace("NAME", name))
    flags = [
        *GRAPH[:4],
        "--algorithm",
        str(file),
        "--alpha",
        "1",
        "--adjacency",
        "replace",
        "--iterations",
        "3",
    ]
    code = radmm.main([*flags, "--rng", "simulation", "--out", str(out)])
    told, err = capsys.readouterr()
    assert said in told + err
    assert code == {"forged-zero": DONE, "forged-nan": FAILURE}.get(name, USAGE)
    if code == DONE:
        assert json.loads((out / "summary.json").read_text())["epsilon"] == "inf"


def test_output_noise_without_a_bounded_slope(tmp_path, capsys):
    flags = [
        *GRAPH[:4],
        "--algorithm",
        "admm",
        "--mechanism",
        "output",
        "--noise",
        "gaussian",
        "--loss",
        "squared",
    ]
    flags += ["--alpha", "1", "--adjacency", "replace", "--iterations", "2", "--rng", "simulation"]
    assert radmm.main([*flags, "--out", str(tmp_path / "r")]) == DONE
    assert "unbounded: the slope of the loss squared has no bound" in capsys.readouterr().out
    (event, *_) = spent(tmp_path / "r", 0)
    assert event.published("replace") == math.inf


def test_noise_next_to_none_has_a_price(tmp_path, capsys):
    """All of its mass has infinite loss: of what is finite there is none."""
    flags = [*GRAPH[:4], "--adjacency", "replace", "--alpha", "2", "--noise", "gaussian", "--eta", "20"]
    assert radmm.main([*flags, "--iterations", "2", "--out", str(tmp_path / "r")]) == DONE
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["epsilon"] > 1000
