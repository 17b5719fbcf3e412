"""`suffice certify` and `suffice data show`: the whole path from recordings to a certified policy, and every wrong input."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from suffice import Policy, parse_rule
from suffice.verdicts.certificates import Certificate
from tests.support.certify_tools import rows, write
from tests.support.cli_tools import cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tune and certification questions, and a policy calibrated on the former."""
    folder = tmp_path_factory.mktemp("certify")
    write(folder / "tune.parquet", rows(80, seed=1, prefix="tune"))
    write(folder / "fresh.parquet", rows(300, seed=2, prefix="cert", traps=0.01))
    write(folder / "few.parquet", rows(30, seed=3, prefix="few"))
    cli("calibrate", folder / "tune.parquet", "--rule", "tasr", "-o", folder / "policy.json", code=0)
    return folder


def certify(folder, *arguments, recording="fresh.parquet", policy="policy.json"):
    named = () if policy is None else ("--policy", folder / policy)
    return cli("certify", folder / recording, *named, *arguments)


def test_from_recordings_to_a_certified_policy(folder):
    path = ("--path", "p_correct", "--tune", folder / "tune.parquet")
    told = certify(folder, "--max-loss", 0.05, *path, "-o", folder / "certified.json", "--json")
    assert told.code == 0, told
    assert told.err == ""
    assert told.json["certified"] is True
    policy = Policy.load(folder / "certified.json")
    certificate = Certificate.of(policy)
    assert policy.certified
    assert certificate.to_dict() == told.json["certificate"]
    assert (certificate.epsilon, certificate.confidence, certificate.loss) == (0.05, 0.95, "net")

    shown = certify(folder, "--max-loss", 0.05, *path)
    assert "selected here" in shown.out
    assert "chosen" in shown.out
    assert told.json["headline"] in shown.words
    replayed = cli("replay", folder / "fresh.parquet", "--policy", folder / "certified.json")
    assert "selected here" in replayed.out


def test_show_prints_the_certificate_what_it_assumes_and_what_breaks_it(folder):
    arguments = ("--max-loss", 0.05, "--path", "p_correct=0.2:0.8:4", "-o", folder / "shown.json")
    assert certify(folder, *arguments).code == 0
    told = cli("data", "show", folder / "shown.json", "--details", code=0)
    for words in (
        "at most 0.05",
        "It assumes",
        "exchangeable",
        "It breaks with",
        "same model",
        "selected here",
        "betting",
    ):
        assert words in told.out, words
    assert "VOID" not in told.out
    data = cli("data", "show", folder / "shown.json", "--json").json
    assert data["certificate"] == "valid"
    assert data["digest"] == data["policy"]["certificate"]["policy_digest"]
    assert data["assumes"]
    assert data["breaks"]


@pytest.mark.filterwarnings("default")  # a note on standard error: the file was edited
def test_show_says_void_after_a_change_of_the_policy(folder, tmp_path):
    assert certify(folder, "--max-loss", 0.05, "-o", tmp_path / "c.json").code == 0
    data = json.loads((tmp_path / "c.json").read_text())
    data["rule"] = data["rule"].replace("0.25", "0.1")
    (tmp_path / "c.json").write_text(json.dumps(data))
    told = cli("data", "show", tmp_path / "c.json", code=0)
    assert "VOID: the policy was changed" in told.out
    assert cli("data", "show", tmp_path / "c.json", "--json").json["certificate"] == "void"


@pytest.mark.filterwarnings("default")  # a note on standard error
def test_show_says_suspended_where_the_loss_rose_since(folder, tmp_path):
    assert certify(folder, "--max-loss", 0.05, "-o", tmp_path / "c.json").code == 0
    Policy.load(tmp_path / "c.json").suspended_because("the loss rose at request r7").save(tmp_path / "c.json")
    told = cli("data", "show", tmp_path / "c.json", code=0)
    assert "SUSPENDED: the loss rose at request r7" in told.out
    assert "is suspended: the loss rose" in told.err
    shown = cli("data", "show", tmp_path / "c.json", "--json").json
    assert shown["certificate"] == "suspended"
    assert Certificate.from_dict(shown["policy"]["certificate"]).suspended == "the loss rose at request r7"


def test_show_prints_a_policy_that_has_no_certificate(folder, tmp_path):
    told = cli("data", "show", folder / "policy.json", code=0)
    assert "no certificate" in told.out
    assert "p_correct from answer_margin" in told.out
    assert cli("data", "show", folder / "policy.json", "--json").json["certificate"] == "none"
    absent = cli("data", "show", tmp_path / "absent.json")
    assert "suffice calibrate" in absent.error
    assert (absent.code, "Policy(" in absent.err) == (2, False)
    assert "does not exist" not in cli("data", "show", folder / "tune.parquet").error


def test_nothing_certified_ends_with_exit_code_1_and_writes_nothing(folder, tmp_path):
    told = certify(folder, "--max-loss", 0.02, "-o", tmp_path / "c.json", recording="few.parquet")
    assert told.code == 1
    assert "not certifiable with n = 30 at eps = 0.02" in told.words
    assert "questions needed" in told.words
    assert "no policy is written" in told.words
    assert not (tmp_path / "c.json").exists()
    data = certify(folder, "--max-loss", 0.02, "-o", tmp_path / "c.json", "--json", recording="few.parquet").json
    assert data["certified"] is False
    assert data["need"]["questions"] > 30
    assert data["policy"] is None


def test_a_list_of_rules_and_policies_from_a_file(folder):
    (folder / "rules.txt").write_text("# a comment\n\ntasr\nfixed_k(3)\npolicy2.json\n")
    replace(Policy.load(folder / "policy.json"), rule=parse_rule("p_correct > 0.3")).save(folder / "policy2.json")
    options = ("--max-loss", 0.1, "--rules", folder / "rules.txt", "--json")
    told = certify(folder, *options, "--set=procedure=bonferroni", "--set=loss=harm", "--set=cheapest=tokens")
    assert told.code == 0, told
    assert len(told.json["sequence"]) == 3
    assert told.json["certificate"]["loss"] == "harm"
    (folder / "plain.txt").write_text("fixed_k(3)\nfixed_k(4)\n")
    plain = certify(folder, "--max-loss", 0.1, "--rules", folder / "plain.txt", "--json", policy=None)
    assert plain.json["certificate"]["procedure"] == "fixed-sequence"
    ordered = certify(
        folder, "--max-loss", 0.1, "--rules", folder / "plain.txt", "--tune", folder / "tune.parquet", "--json"
    )
    assert "p-values on tune questions" in ordered.json["family"]


def test_a_policy_file_is_a_baseline(folder):
    told = certify(folder, "--max-loss", 0.1, "--baseline", folder / "policy.json", "--metric", "em", "--json")
    assert told.json["claim"]["baseline"] == "tasr"
    assert told.json["certificate"]["figures"]["loss"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--max-loss"),
        (("--max-loss", "0"), 1, "largest loss"),
        (("--max-loss", "1"), 1, "largest loss"),
        (("--max-loss", "nan"), 1, "largest loss"),
        (("--max-loss", "0.1", "--set=confidence=1"), 1, "confidence"),
        (("--max-loss", "0.1", "--set=confidence=95"), 1, "confidence"),
        (("--max-loss", "0.1", "--set=loss=gross"), 2, "net, harm"),
        (("--max-loss", "0.1", "--set=procedure=holm"), 2, "bonferroni"),
        (("--max-loss", "0.1", "--set=cheapest=money"), 2, "calls, tokens"),
        (("--max-loss", "0.1", "--metric", "bleu"), 2, "no metric"),
        (("--max-loss", "0.1", "--path", "overlap=0:1:3"), 2, "0 thresholds on 'overlap'"),
        (("--max-loss", "0.1", "--path", "p_correct"), 2, "--tune"),
        (("--max-loss", "0.1", "--path", "p_correct=0.1"), 2, "LOW:HIGH:N"),
        (("--max-loss", "0.1", "--path", "p_correct=a:b:c"), 2, "LOW:HIGH:N"),
        (("--max-loss", "0.1", "--path", "p_correct=0:1:0"), 1, "no values"),
        (("--max-loss", "0.1", "--baseline", "nonsense"), 2, "nonsense"),
        (("--max-loss", "0.1", "--baseline", "closed_book"), 1, "round 0"),
        (("--max-loss", "0.1", "--rules", "absent.txt"), 2, "cannot be read"),
        (("--max-loss", "0.1", "--rules", "absent.txt", "--path", "p_correct=0:1:3"), 2, "not both"),
    ],
)
def test_wrong_usage_is_told(folder, arguments, code, said):
    told = certify(folder, *arguments)
    assert told.code == code, told
    assert said in told.error


def test_the_policy_is_needed_unless_rules_are_listed(folder):
    assert "--policy" in certify(folder, "--max-loss", 0.1, policy=None).error


def test_used_questions_and_cut_recordings_are_refused(folder):
    assert "of the 80" in certify(folder, "--max-loss", 0.1, recording="tune.parquet").error
    again = certify(folder, "--max-loss", 0.1, "--path", "p_correct", "--tune", folder / "fresh.parquet")
    assert "of the 300" in again.error
    cut = [row | {"end": "rule"} for row in rows(40, seed=5, prefix="cut") if row["round"] < 3]
    cut += rows(1, seed=6, prefix="whole")
    write(folder / "cut.parquet", cut)
    assert "full width" in certify(folder, "--max-loss", 0.1, recording="cut.parquet").error


def test_an_empty_list_of_rules_is_refused(folder):
    (folder / "none.txt").write_text("# nothing\n")
    assert "no policies" in certify(folder, "--max-loss", 0.1, "--rules", folder / "none.txt").error


def test_a_broken_certificate_is_told(folder, tmp_path):
    replace(Policy.load(folder / "policy.json"), certificate={"epsilon": 0.1}).save(tmp_path / "p.json")
    assert "certify the policy" in cli("data", "show", tmp_path / "p.json").error
