"""`suffice deploy`: the policy and the lines, which run."""

from __future__ import annotations

import pytest

from suffice.hosts import frameworks, snippet
from suffice.hosts.lines import own_lines
from suffice.policy.session import Policy
from suffice.verdicts.decisions import decide
from tests.suffice.verdicts.test_decide import converged_at_2, log_of
from tests.support.cli_tools import cli


def losing_forty_points(q: int, r: int) -> float:
    """Score a loop that gains so much in its last round that a short log shows it."""
    return float(q % 5 >= 2 or r == 5)


@pytest.fixture(scope="module")
def decisions():
    return {
        "do.json": decide(log_of(400, converged_at_2), metric="quality"),
        "keep.json": decide(log_of(400, losing_forty_points), metric="quality"),
    }


@pytest.fixture
def folder(decisions, tmp_path, monkeypatch):
    """A decision to change, one not to, and a policy that reads log-probabilities."""
    for name, decision in decisions.items():
        decision.save(tmp_path / name)
    Policy(rule="(answer_stable >= 1) & (answer_margin > 2)").save(tmp_path / "margin.json")
    Policy(rule="tasr").save(tmp_path / "unfitted.json")
    Policy(rule="our_own > 2").save(tmp_path / "own.json")
    (tmp_path / "broken.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_printed_lines_for_an_own_loop_stop_as_decided(folder):
    done = cli("deploy", "do.json", code=0)
    assert done.out.startswith("Allow at most 2 rounds instead of 5")
    assert "policy written to policy.json" in done.out
    assert own_lines(Policy.load(folder / "policy.json"), "policy.json") in done.out
    drafts = []

    def write(question: str, reply: str | None) -> str:
        drafts.append(f"draft {len(drafts) + 1} of {question}")
        return drafts[-1]

    names = {"write": write}
    exec(compile(done.out[done.out.index("from suffice import") :], "lines.py", "exec"), names)
    answer, decision = names["ask"]("a question")
    assert (answer, decision.stop_round, len(drafts)) == ("draft 2 of a question", 2, 2)


@pytest.mark.parametrize("name", list(frameworks()))
def test_the_lines_of_a_framework_load_the_policy_that_was_written(folder, name):
    done = cli("deploy", "do.json", "--to", name, "-o", "here.json", "--json").json
    assert done["lines"] == snippet(name, "here.json")
    assert Policy.load(folder / "here.json").max_rounds == 2


def test_a_policy_file_is_deployed_where_it_is(folder):
    done = cli("deploy", "margin.json", code=0)
    assert "written to" not in done.out
    assert 'Session("margin.json")' in done.out
    assert "the policy reads answer_margin, which needs logprobs" in done.out
    assert "our_own, which is a signal of your own" in cli("deploy", "own.json").out


def test_another_policy_is_not_replaced_unasked(folder):
    Policy(rule="answer_stable").save(folder / "policy.json")
    before = (folder / "policy.json").read_bytes()
    refused = cli("deploy", "do.json")
    assert (refused.code, "give -o policy.json" in refused.error) == (1, True)
    assert (folder / "policy.json").read_bytes() == before
    assert cli("deploy", "do.json", "-o", "policy.json").code == 0
    assert cli("deploy", "do.json").code == 0  # the same policy again


def test_a_file_that_is_not_a_policy_is_never_replaced(folder):
    before = (folder / "keep.json").read_bytes()
    assert cli("deploy", "do.json", "-o", "keep.json").code == 1
    assert (folder / "keep.json").read_bytes() == before


def test_a_name_with_quotes_is_still_a_name_in_the_lines(folder):
    lines = cli("deploy", "do.json", "-o", 'my "own".json', "--json").json["lines"]
    compile(lines, "lines.py", "exec")
    assert r'Session("my \"own\".json")' in lines


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["keep.json"], 1, "there is nothing to deploy. Keep what you have"),
        (["unfitted.json"], 1, "needs a calibrator"),
        (["broken.json"], 1, "JSON"),
        (["nothing.json"], 2, "nothing.json"),
        (["do.json", "--to", "langgraf"], 2, "langgraph"),
        (["do.json", "-o", "policy"], 1, "must end in .json"),
    ],
)
def test_what_cannot_be_deployed_is_refused_and_nothing_is_written(folder, arguments, code, message):
    done = cli("deploy", *arguments)
    assert (done.code, message in done.error) == (code, True), done
    assert not (folder / "policy.json").exists()


def test_what_to_give_a_rule_on_spending_in_another_currency_is_said(folder):
    for currency in ("EUR", "USD"):
        depends = {} if currency == "USD" else {"currency": currency}
        Policy(rule="(spend > 0.05) | (round >= 9)", max_rounds=9, depends=depends).save(folder / f"{currency}.json")
    (note,) = [note for note in cli("deploy", "EUR.json", "--json").json["needs"] if "EUR" in note]
    assert "give what was spent in EUR" in note
    assert "refuses this policy" in note
    assert "dollars=done.dollars)  # in EUR" in cli("deploy", "EUR.json").out
    assert "dollars=done.dollars)\n" in cli("deploy", "USD.json").out
    assert note in cli("deploy", "EUR.json", "--to", "langgraph", "--json").json["needs"]
    assert not [note for note in cli("deploy", "USD.json", "--json").json["needs"] if "USD" in note]
    Policy(rule="answer_stable", depends={"currency": "EUR"}).save(folder / "stable.json")
    assert not [note for note in cli("deploy", "stable.json", "--json").json["needs"] if "EUR" in note]
