"""The page for a data-protection officer says what the ledgers say, and nothing where they are not whole."""

import html
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from distadmm import istdp, radmm, sharing
from distadmm.commands import ledger

SMALL = [
    "--data",
    "tiny",
    "--topology",
    "ring:4",
    "--iterations",
    "4",
    "--observe",
    "none",
    "--progress",
    "none",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A private run and a bare one, entered in an account of their own."""
    place = tmp_path_factory.mktemp("certificate")
    account = ["--account", str(place / "account.jsonl")]
    for name, words in (("private", ["--epsilon", "3", "--adjacency", "replace"]), ("bare", [])):
        assert radmm.main([*SMALL, *words, *account, "--out", str(place / name)]) == 0
    return place


def page_of(runs, capsys, *names, **more):
    out = runs / "page.html"
    words = [str(runs / name) for name in names]
    account = more.pop("account", runs / "account.jsonl")
    options = [text for key, value in more.items() for text in (f"--{key}", value)]
    assert ledger.main(["certificate", *words, "--account", str(account), "--out", str(out), *options]) == 0
    capsys.readouterr()
    return html.unescape(out.read_text())


def test_it_says_the_sentence_and_the_number_of_the_ledgers(runs, capsys):
    page = page_of(runs, capsys, "private", owner="The <office>")
    assert ledger.main(["show", str(runs / "private")]) == 0
    shown = capsys.readouterr().out
    sentence = re.search(r"<blockquote>(.*?)</blockquote>", page, re.S)[1]
    assert " ".join(sentence.split()) in " ".join(shown.split())
    assert "A bound for the whole run" in page
    assert "The <office>" in page
    assert "timing, aborts, floating point.</p>" in page
    epsilon = re.search(r">epsilon</th><td[^>]*>([0-9.]+) at delta 1e-05", page)[1]
    assert 2.9 < float(epsilon) <= 3
    assert page.count("<p>Each of these is checked by the code of the run") == 1
    assert page.count("<p>This is stated by the table that comes with distadmm") == 1
    assert re.search(r">messages</th><td[^>]*>56, 0.02 MB<", page)
    assert "no published bound" not in page
    factor = float(re.search(r"at most ([0-9.]+) times what it would be", page)[1])
    assert np.exp(float(epsilon)) <= factor < np.exp(float(epsilon)) + 0.02
    assert 'plus <span class="number">1e-05</span>. The closer' in page
    assert re.search(r">programme</th><td[^>]*>radmm<", page)  # the algorithm of that name
    assert "ledger verify" in page
    assert page.count("<section>") == page.count("</section>") == 4


def test_what_has_no_bound_is_said_to_have_none(runs, capsys):
    page = page_of(runs, capsys, "private", "bare")
    assert "No bound" in page
    assert "no noise was asked for" in page
    assert "Privacy certificate of 2 runs" in page
    assert page.count("In plain words") == 1
    names = re.findall(r'role="region" aria-label="([^"]*)"', page)
    assert len(names) > 4
    assert len(set(names)) == len(names)


def test_what_runs_rest_on_is_listed_once_after_what_they_spent_together(runs, capsys):
    assert (
        radmm.main(
            [
                *SMALL,
                "--epsilon",
                "2",
                "--adjacency",
                "replace",
                "--account",
                str(runs / "account.jsonl"),
                "--out",
                str(runs / "again"),
            ]
        )
        == 0
    )
    page = page_of(runs, capsys, "private", "again")
    assert (
        page.count('aria-label="hypotheses of') == 2
    )  # what code checked, and what the bundled table states
    assert f"On the same as {runs / 'private'}" in page
    assert page.index("All that was spent on these rows") < page.index("A bound for the whole run")


def test_what_was_stated_is_not_said_to_be_checked(tmp_path, capsys):
    """No code sees in rows that the bounds of a schema are public, nor that a divisor is."""
    rows = "".join(f"{k % 7},{k % 2}\n" for k in range(40))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}")
    (tmp_path / "s.toml").write_text('target = "y"\nlabels = ["0", "1"]\n[columns]\na = { max = 9 }\n')
    asked = ["--data", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "s.toml"), "--topology", "ring:4"]
    asked += ["--epsilon", "2", "--adjacency", "add-remove", "--public-rows", "9", "--iterations", "2"]
    asked += ["--account", str(tmp_path / "account.jsonl")]
    assert radmm.main([*asked, "--out", str(tmp_path / "run")]) == 0
    page = page_of(tmp_path, capsys, "run")
    _, *tables = re.split(r"<p>(?:Each of these|This) is ", page)
    of = {
        name: who
        for who in tables
        for name in ("public-rows", "public-weight", "certified-solve")
        if name in who
    }
    assert of["public-rows"].startswith("stated in the schema of the data")
    assert of["public-weight"].startswith("stated by who started the run")
    assert of["certified-solve"].startswith("checked by the code")


def test_what_parties_sent_is_said_and_of_one_place_nothing(tmp_path, capsys):
    """Parties count what they send by its kind, and a run at one place sends nothing."""
    account = ["--account", str(tmp_path / "account.jsonl")]
    private = ["--data", "tiny", "--epsilon", "4", "--adjacency", "replace", "--observe", "none", *account]
    assert sharing.main([*private, "--out", str(tmp_path / "parties")]) == 0
    assert istdp.main([*private, "--out", str(tmp_path / "one")]) == 0
    page = page_of(tmp_path, capsys, "parties")
    assert re.search(r">messages</th><td[^>]*>3, 0.[0-9]+ MB<", page)
    assert "no published bound" in page
    assert ">messages<" not in page_of(tmp_path, capsys, "one")
    bare = [
        "--data",
        "tiny",
        "--message",
        "moments",
        *account,
    ]  # a bundled table without noise enters nothing
    assert sharing.main([*bare, "--out", str(tmp_path / "bare")]) == 0
    page = page_of(tmp_path, capsys, "parties")
    assert "sent without noise" not in page
    assert str(tmp_path / "bare") not in page


def test_parties_with_claims_of_their_own_are_one_run_and_each_is_told_apart(tmp_path, capsys):
    """V2: party 1's ledger is about labels, the other's about records; one person may be in both."""
    v2 = ["--data", "tiny", "--mechanism", "v2", "--epsilon", "2", "--epsilon-one", "4", "--row-norm", "3"]
    place = ["--account", str(tmp_path / "account.jsonl"), "--out", str(tmp_path / "v2")]
    assert sharing.main([*v2, "--observe", "none", *place]) == 0
    heads = re.search(r"heads +([0-9a-f]{8,})", capsys.readouterr().out)
    page = page_of(tmp_path, capsys, "v2")
    assert f"Privacy certificate of {tmp_path / 'v2'}" in page
    assert re.findall(r">nodes</th><td[^>]*>(\d+);", page) == ["1", "1"]
    assert re.findall(r">what was released</th><td[^>]*>[^<]*: (\d+) in all nodes", page) == ["1", "2"]
    assert page.count("are shown apart: whom both touch pays both") == 2
    assert page.count("python -m distadmm ledger verify") == 1
    told = re.findall(r">epsilon</th><td[^>]*>([0-9.]+) at", page)
    assert 3.9 < float(told[0]) <= 4
    assert 1.9 < float(told[1]) <= 2
    assert len(set(re.findall(r">ledger heads</th><td[^>]*>([0-9a-f]+)<", page))) == 1
    assert heads is None or heads[1] in page
    names = re.findall(r'role="region" aria-label="([^"]*)"', page)
    assert len(set(names)) == len(names)


def test_what_no_ledger_claims_has_no_bound(tmp_path, capsys):
    """Ledgers of version 0.1 name no hypotheses: a number without them is not put into plain words."""
    kept = Path(__file__).parent / "fixtures" / "runs" / "sharing-v2-secure"
    shutil.copytree(kept, tmp_path / "old")
    page = page_of(tmp_path, capsys, "old")
    assert "its ledgers claim nothing" in page
    assert "A bound for the whole run" not in page
    assert "In plain words" not in page
    assert "timing, aborts.</p>" in page  # its noise was drawn as whole numbers: floating point hides nothing


def test_another_account_knows_nothing_of_the_rest(runs, capsys):
    page = page_of(runs, capsys, "private", account=runs / "other.jsonl")
    assert "what else was spent on these rows, it cannot say" in page


def test_a_ledger_that_is_not_whole_certifies_nothing(runs, tmp_path, capsys):
    shutil.copytree(runs / "private", tmp_path / "run")
    path = tmp_path / "run" / "ledger" / "node-0001.jsonl"
    path.write_text(path.read_text().replace("replace", "label", 1))
    words = [
        str(tmp_path / "run"),
        "--account",
        str(runs / "account.jsonl"),
        "--out",
        str(tmp_path / "p.html"),
    ]
    assert ledger.main(["certificate", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "certifies nothing" in error
    assert not (tmp_path / "p.html").exists()
