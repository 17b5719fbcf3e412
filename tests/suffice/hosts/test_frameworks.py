"""The core of the adapters, and the lines that documentation and deployments paste.

The adapters themselves run with their frameworks in tests/frameworks, which `.ci/full` collects.
"""

import ast
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffice import AnswerPosition, Cost, Decision, Policy, Recorder, Session, read_recording, register_signal, replay
from suffice.errors import ConfigMismatchError, DataError, NotFittedError, SchemaError, UnknownSignalError
from suffice.evaluation.replay import Price
from suffice.hosts import QuestionRun, call_cost, frameworks, opener, reply_round, snippet, trace_decision
from suffice.policy.rules import parse_rule
from suffice.policy.session.sources import capped_policy
from tests.frameworks.acceptance import QUESTION, RULE, SCRIPT, measured

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs" / "how-to" / "frameworks"
STABLE = "answer_stable | (round >= 5)"
BROKE = "((spend > 0.2) & (since_change >= 5)) | (round >= 50)"
PRICE = Price(uncached=2.0, cached=0.2, output=12.0)
POLICY = Policy(rule=RULE, selector="max_quality", max_rounds=6)


def quality(question, text):
    return {"quality": measured(text)}


def observed(run, *replies):
    return [run.observe(reply).stop for reply in replies]


def test_a_run_ends_with_the_best_reply_and_the_reason():
    run = QuestionRun(POLICY, QUESTION, measure=quality)
    assert observed(run, *SCRIPT[:4]) == [False, False, False, True]
    assert run.text == "The Tempest"
    assert not run.is_last
    assert run.metadata() == {
        "stop": True,
        "stop_round": 4,
        "answer_round": 2,
        "answer": "The Tempest",
        "reason": "rule",
        "fired": RULE,
        "signals": {"quality": 0.2},
        "rounds": 4,
        "policy": RULE,
    }


def test_before_the_end_there_is_no_text():
    run = QuestionRun(POLICY, measure=quality)
    assert (run.text, run.decision, run.is_last) == ("", None, False)
    run.observe("The Tempest")
    assert (run.text, run.metadata()["stop"], run.metadata()["rounds"]) == ("", False, 1)


def test_a_limit_from_outside_ends_with_the_best_reply_once():
    run = QuestionRun(POLICY, measure=quality)
    observed(run, "The Tempest", "Titus Andronicus")
    decision = run.end("cancelled")
    assert (run.text, decision.reason, decision.answer_round) == ("The Tempest", "cancelled", 1)
    assert run.end("failed") is decision
    with pytest.raises(DataError, match="after the stop"):
        run.observe("Macbeth")


def test_a_run_without_an_answer_failed_and_has_no_text():
    run = QuestionRun(STABLE)
    observed(run, "", "  ")
    assert run.end("exhausted").reason == "failed"
    assert run.text == ""
    assert not run.is_last


def test_rules_read_the_answer_and_the_whole_reply_is_handed_back():
    run = QuestionRun(STABLE)
    assert observed(run, "Hm.\nAnswer: Oslo", "", "So I think.\nAnswer: Oslo", "I am sure.\nAnswer: Oslo") == [
        False
    ] * 3 + [True]
    assert run.metadata()["answer"] == "Oslo"
    assert run.text == "I am sure.\nAnswer: Oslo"
    assert run.is_last


def test_nothing_is_measured_of_a_reply_without_text():
    asked = []

    def measure(question, text):
        asked.append((question, text))
        return {"quality": 0.1}

    run = QuestionRun(POLICY, QUESTION, measure=measure)
    observed(run, "", "Macbeth", "")
    assert asked == [(QUESTION, "Macbeth")]
    assert run.decision is None


def test_a_signal_that_is_not_measured_after_all_is_an_error():
    with pytest.raises(UnknownSignalError, match="reads 'quality'"):
        QuestionRun(POLICY, measure=lambda question, reply: {}).observe("The Tempest")


def test_a_registered_signal_needs_no_measure():
    @register_signal("score", (0, 1), component="", name="quality")
    def marks(rounds):
        """Marks of the answer."""
        return measured(rounds[-1].text)

    run = QuestionRun(POLICY)
    observed(run, *SCRIPT[:4])
    assert run.text == "The Tempest"


@pytest.mark.parametrize("cut", range(5))
def test_a_run_continues_from_json_as_without_interruption(cut):
    whole, part = QuestionRun(POLICY, QUESTION, measure=quality), QuestionRun(POLICY, QUESTION, measure=quality)
    observed(whole, *SCRIPT[:4])
    observed(part, *SCRIPT[:cut])
    rest = QuestionRun(POLICY, measure=quality, state=json.loads(json.dumps(part.to_state())))
    assert rest.question == QUESTION
    observed(rest, *SCRIPT[cut:4])
    assert rest.metadata() == whole.metadata()
    assert rest.to_state() == whole.to_state()


def test_a_state_of_something_else_is_refused():
    state = QuestionRun(STABLE).to_state()
    with pytest.raises(ConfigMismatchError):
        QuestionRun("fixed_k(2)", state=state)
    for other in ({}, 3, json.dumps(state)):
        with pytest.raises(SchemaError):
            QuestionRun(STABLE, state=other)
    with pytest.raises(DataError, match="state"):
        QuestionRun()


def test_a_state_contains_its_policy():
    part = QuestionRun(STABLE)
    part.observe("Oslo")
    assert QuestionRun(state=part.to_state()).observe("Oslo").stop


def test_costs_are_what_rules_on_tokens_read():
    run = QuestionRun(Policy(rule="tokens >= 30"))
    assert not run.observe("Oslo", cost=call_cost(10, 4, 2)).stop
    assert run.observe("Oslo", cost=call_cost(12, 2)).stop
    assert run.metadata()["signals"] == {"tokens": 30}


def test_an_unknown_count_is_undefined_and_unreported_cache_reads_are_none():
    assert call_cost(10, 2).cached_tokens == 0
    unknown = call_cost(None, None)
    assert all(
        math.isnan(getattr(unknown, kind)) for kind in ("uncached_tokens", "cached_tokens", "output_tokens", "seconds")
    )
    assert unknown.calls == 1
    assert call_cost(1, 2, 3).tokens == Cost(calls=1, uncached_tokens=1, cached_tokens=3, output_tokens=2).tokens


def test_a_client_response_is_a_reply_with_costs_and_tokens():
    token = {
        "token": "Oslo",
        "logprob": -0.1,
        "top_logprobs": [{"token": t, "logprob": p} for t, p in (("Oslo", -0.1), ("Rome", -2.6))],
    }
    choice = {"message": {"content": "Oslo"}, "logprobs": {"content": [token]}}
    run = QuestionRun(Policy(rule="(answer_margin > 2) & (tokens > 5)"))
    assert run.observe({"choices": [choice], "usage": {"prompt_tokens": 8, "completion_tokens": 1}}).stop
    assert run.metadata()["signals"] == {"answer_margin": 2.5, "tokens": 9}


@pytest.mark.parametrize("signals", [None, 0.5, ["quality"], {"quality": "0.5"}])
def test_a_measure_must_return_numbers_by_name(signals):
    with pytest.raises(DataError, match="numbers"):
        QuestionRun(Policy(rule="quality < 0.5"), measure=lambda question, reply: signals).observe("Oslo")


@pytest.mark.parametrize("policy", [3, [], b"answer_stable", QuestionRun])
def test_something_else_than_a_policy_is_an_error(policy):
    with pytest.raises(DataError, match="a Policy"):
        QuestionRun(policy)


def test_a_thinking_block_is_not_part_of_the_answer():
    run = QuestionRun(STABLE)
    assert observed(run, "<think>Rome?</think>Oslo", "<think>Surely not Rome.</think>Oslo") == [False, True]


def test_something_that_is_not_a_reply_is_an_error():
    with pytest.raises(DataError, match="a reply"):
        QuestionRun(STABLE).observe(None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.parquet"


@pytest.mark.parametrize("policy", [None, POLICY])
@pytest.mark.parametrize(
    ("replies", "end", "ending"),
    [(4, None, "rule"), (6, None, "max_rounds"), (2, "cancelled", "max_rounds"), (2, "exhausted", "exhausted")],
)
def test_a_recorder_gets_the_rounds_and_why_they_ended(path, replies, end, ending, policy):
    answers = SCRIPT[:4] if ending == "rule" else (SCRIPT[:2] * 3)[:replies]
    with Recorder(path, policy=policy, golds={QUESTION: "The Tempest"}) as recorder:
        decides = POLICY if policy else replace(POLICY, answer_position=AnswerPosition("whole"))
        run = QuestionRun(decides, QUESTION, measure=quality, recorder=recorder)
        observed(run, *answers)
        if end:
            run.end(end)
            run.end(end)
        QuestionRun(
            decides, measure=quality, recorder=recorder, state=run.to_state()
        ).end()  # it has ended: once is enough
    recording = read_recording(path)
    assert recording.answers.tolist() == [list(answers)]
    assert recording.column("quality").tolist() == [[measured(answer) for answer in answers]]
    assert recording.column("em").tolist() == [[float(answer == "The Tempest") for answer in answers]]
    assert recording.ends.tolist() == [ending]
    assert replay(recording, [replace(decides, max_rounds=len(answers))], metrics=["em"]).rows


def test_rounds_are_on_disk_at_once_and_an_unfinished_question_failed(path):
    recorder = Recorder(path)
    for question in (QUESTION, QUESTION, "Which play has Ariel?"):
        run = QuestionRun(STABLE, question, recorder=recorder)
        for number in (1, 2):
            run.observe(f"Play {number}")
            assert recorder.journal.n_rounds(run.to_state()["run"]) == number
    recording = read_recording(path)
    assert recording.answers.tolist() == [["Play 1", "Play 2"]] * 3
    assert recording.ends.tolist() == ["failed"] * 3
    assert len(set(recording.clusters.tolist())) == 2
    recorder.close()


def test_a_loop_without_any_answer_counts_with_the_end_that_it_had(path):
    with Recorder(path, policy="fixed_k(2)") as recorder:
        capped, ended = (QuestionRun("fixed_k(2)", name, recorder=recorder) for name in "ab")
        observed(capped, "", "")
        ended.observe("")
        ended.end("exhausted")
        assert capped.decision.reason == ended.decision.reason == "failed"
    assert read_recording(path).ends.tolist() == ["rule", "exhausted"]


def test_a_run_that_goes_on_from_json_is_recorded_once(path):
    with Recorder(path) as recorder:
        state = QuestionRun(STABLE, QUESTION, recorder=recorder).to_state()
        for answer in ("Macbeth", "The Tempest", "The Tempest"):
            run = QuestionRun(STABLE, recorder=recorder, state=json.loads(json.dumps(state)))
            run.observe(answer)
            state = run.to_state()
    assert read_recording(path).answers.tolist() == [["Macbeth", "The Tempest", "The Tempest"]]
    assert read_recording(path).ends.tolist() == ["rule"]


def test_a_rewound_run_is_recorded_beside_the_earlier_one(path):
    with Recorder(path) as recorder:
        run = QuestionRun(STABLE, QUESTION, recorder=recorder)
        run.observe("Macbeth")
        state = run.to_state()
        for answers in (["Othello"], ["Macbeth"], ["Hamlet", "Hamlet"]):
            observed(QuestionRun(STABLE, recorder=recorder, state=state), *answers)
            recorder.save()
    recording = read_recording(path)
    runs = [[answer for answer in answers if answer] for answers in recording.answers.tolist()]
    assert sorted(runs) == [["Macbeth", "Hamlet", "Hamlet"], ["Macbeth", "Macbeth"], ["Macbeth", "Othello"]]
    assert sorted(recording.ends.tolist()) == ["failed", "rule", "rule"]
    assert len(set(recording.clusters.tolist())) == 1


def test_two_runs_cannot_both_continue_one_state(path):
    recorder = Recorder(path)
    state = QuestionRun(STABLE, QUESTION, recorder=recorder).to_state()
    first, second = (QuestionRun(STABLE, recorder=recorder, state=state) for _ in range(2))
    first.observe("Macbeth")
    with pytest.raises(DataError, match="recorded already"):
        second.observe("Othello")
    recorder.close()
    assert read_recording(path).answers.tolist() == [["Macbeth"]]


def test_a_recorder_needs_the_question(path):
    recorder = Recorder(path)
    with pytest.raises(DataError, match="the text"):
        QuestionRun(STABLE, recorder=recorder)
    recorder.close()


@pytest.mark.parametrize(
    "settings", [{}, {"max_rounds": 3}, {"policy": "round >= 2"}, {"answer_position": AnswerPosition("json", "title")}]
)
def test_a_recorder_with_other_policy_or_position_is_refused_before_calls(path, settings):
    recorder = Recorder(path, **settings)
    for policy in (Policy(rule="answer_stable"), *([STABLE] if "max_rounds" in settings else [])):
        with pytest.raises(DataError, match="same policy"):
            QuestionRun(policy, QUESTION, recorder=recorder)
    recorder.close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"recorder": "runs.parquet"}, "a Recorder"), ({"measure": {"quality": 0.5}}, "a function")],
)
def test_something_else_than_a_recorder_or_a_measure_is_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        QuestionRun(STABLE, QUESTION, **arguments)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        ("qualty > 0.5", UnknownSignalError, "measure="),
        ("top_score > 0.5", UnknownSignalError, "reads 'top_score'"),
        ("answer_stable & (critic_approved > 0.5)", UnknownSignalError, "reads 'critic_approved'"),
        ("judge_entailment > 0.5", UnknownSignalError, "reads 'judge_entailment'"),
        ("p_correct > 0.5", NotFittedError, "suffice calibrate"),
    ],
)
def test_a_policy_that_can_never_decide_is_refused_before_the_first_call(rule, error, message):
    with pytest.raises(error, match=message):
        QuestionRun(Policy(rule=rule))
    assert not QuestionRun(
        Policy(rule=rule), measure=lambda question, reply: {}
    ).session.rounds  # who measures may measure anything


def test_a_decision_is_traced_only_where_a_program_traces(monkeypatch):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)  # an earlier test may have traced
    trace_decision(Decision(stop=True, reason="rule"))
    assert "opentelemetry.trace" not in sys.modules


# The lines to paste

NAMES = list(frameworks())


def test_every_framework_has_lines_a_page_a_test_and_a_row():
    index = (PAGES / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| \[[\w. -]+\]\(([\w-]+)\.md\)", index, re.MULTILINE)
    assert sorted(name.replace("-", "_") for name in rows) == NAMES
    assert {path.stem for path in PAGES.glob("*.md")} - {"index"} == set(rows)
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "frameworks").glob("test_*.py")}
    assert tested == {
        *NAMES,
        "escalation",
        "final_call",
        "raw_replies",
        "recorder",
        "retrievers",
        "side_by_side",
        "start_scripts",
        "tracing",
        "typed_limits",
        "watch_metrics",
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_lines_that_its_test_runs(name):
    page = (PAGES / f"{name.replace('_', '-')}.md").read_text("utf-8")
    assert f"<!-- run by tests/frameworks/test_{name}.py -->\n```python\n{frameworks()[name]}```\n" in page
    test = (ROOT / "tests" / "frameworks" / f"test_{name}.py").read_text("utf-8")
    assert f'loaded("{name}", folder' in test
    for check in ("check", "check_cap"):
        assert re.search(rf"^ +{check}\(\s*script, ", test, re.MULTILINE), check


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_load_the_policy_that_is_asked_for(name):
    assert frameworks()[name].count('"policy.json"') == 1
    lines = snippet(name, Path('my "own"') / "rule.json")
    assert '"policy.json"' not in lines
    texts = [node.value for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Constant)]
    assert str(Path('my "own"') / "rule.json") in texts


@pytest.mark.whole
def test_the_core_loads_numpy_only():
    code = (
        "import sys, suffice.hosts as f; f.QuestionRun('fixed_k(2)').observe('Oslo'); print('pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", [name for name in NAMES if "suffice.hosts." not in frameworks()[name]])
def test_without_an_adapter_25_lines_are_enough(name):
    assert re.search("^from suffice.hosts import (QuestionRun|opener)$", frameworks()[name], re.MULTILINE)
    assert sum(bool(line.strip()) for line in frameworks()[name].splitlines()) <= 25


def test_an_unknown_framework_is_an_error_that_names_the_known_ones():
    with pytest.raises(DataError, match="'langgraph'"):
        snippet("langraph")


def test_the_versions_in_the_documentation_are_those_of_the_test_environments():
    index = (PAGES / "index.md").read_text("utf-8")
    shown = re.findall(r"^\| \[[^|]*\| ([\w.-]+) ([\d.]+) \|", index, re.MULTILINE)
    pins = {}
    for path in (ROOT / "tests" / "frameworks" / "requirements").glob("*.txt"):
        pins |= dict(line.split("==") for line in path.read_text("utf-8").splitlines() if "==" in line)
    assert len(shown) == len(NAMES)
    assert {name: pins[name] for name, _ in shown} == dict(shown)


def test_no_test_environment_holds_torch():
    for path in (ROOT / "tests" / "frameworks" / "requirements").glob("*.txt"):
        assert not re.search(r"^(torch|nvidia|triton)", path.read_text("utf-8"), re.MULTILINE), path.name


def test_no_framework_is_imported_before_it_is_used():
    ours = {"suffice", *sys.stdlib_module_names}
    for path in (ROOT / "src" / "suffice" / "frameworks").glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= ours, path.name


def test_a_run_with_a_price_stops_at_what_it_has_spent():
    run = QuestionRun("(spend > 0.03) | (round >= 5)", price=PRICE)
    seen = []
    while not run.decision:
        seen.append(run.observe(f"reply {len(seen)}", cost=call_cost(5000, 100)).signals["spend"])
    np.testing.assert_allclose(seen, [0.0112, 0.0224, 0.0336])
    assert run.metadata()["reason"] == "rule"


def test_prices_do_not_decide_by_amounts_in_another_currency():
    policy = Policy(rule="(spend > 0.03) | (round >= 5)", max_rounds=5, depends={"currency": "EUR"})
    session = Session(policy)
    refused = (
        lambda: QuestionRun(policy, price=PRICE),
        lambda: QuestionRun(state=QuestionRun(policy, measure=lambda question, text: {}).to_state(), price=PRICE),
        lambda: opener(policy, price=PRICE),
        lambda: reply_round(session, "Oslo", price=PRICE),
    )
    for call in refused:
        with pytest.raises(ConfigMismatchError, match="in EUR"):
            call()
    given = QuestionRun(policy, measure=lambda question, text: {"spend": 0.05})
    assert given.observe("Oslo").reason == "rule"
    for other in (replace(policy, rule="answer_stable"), replace(policy, depends={})):
        assert QuestionRun(other, price=PRICE).observe("Oslo", cost=call_cost(10, 1)).stop is False


def test_a_stored_run_goes_on_spending_also_cached_tokens():
    run = QuestionRun("(spend > 0.02) | (round >= 5)", price=PRICE)
    run.observe("one", cost=call_cost(1000, 0, 20000))
    again = QuestionRun(state=json.loads(json.dumps(run.to_state())), price=PRICE)
    decision = again.observe("two", cost=call_cost(7000, 10))
    assert decision.stop
    assert decision.signals["spend"] == pytest.approx((8000 * 2 + 20000 * 0.2 + 10 * 12) / 1e6)


def test_a_reply_without_usage_makes_spending_unknown_and_says_so(caplog):
    run = QuestionRun("(spend > 0.01) | (round >= 5)", price=PRICE)
    assert not run.observe("a reply without usage").stop
    assert "reports no usage" in caplog.text
    assert not run.observe("another", cost=call_cost(10**9, 0)).stop


def test_a_rule_on_spending_is_refused_without_a_price():
    with pytest.raises(UnknownSignalError, match="spend"):
        QuestionRun(BROKE)
    assert QuestionRun(BROKE, price=PRICE).decision is None


def test_a_rule_without_a_cap_is_refused_with_what_to_write():
    for rule in ("answer_stable", parse_rule("spend > 5"), "(round >= 2) & (spend > 5)"):
        with pytest.raises(DataError, match="may never fire") as refused:
            QuestionRun(rule, price=PRICE)
        written = re.search(r"rule, '(.* \| \(round >= 20\))'", str(refused.value))[1]
        assert QuestionRun(written, price=PRICE).session.policy.max_rounds == 20


def test_a_rule_that_contains_its_cap_goes_on_to_it():
    run = QuestionRun(BROKE, price=PRICE)
    stops = [run.observe("the same", cost=call_cost(10_000, 0)).stop for _ in range(11)]
    assert stops == [False] * 10 + [True]
    assert (run.metadata()["reason"], run.session.policy.max_rounds) == ("rule", 50)


def test_a_cap_is_found_however_a_rule_contains_it():
    caps = {
        "patience((round >= 20), 3)": 22,
        "fixed_k(9) & (round >= 12)": 12,
        "k_of(1, (quality > 1), (round >= 7))": 7,
    }
    assert {rule: capped_policy(rule).max_rounds for rule in caps} == caps
    assert capped_policy(Policy(rule="quality > 1")).max_rounds == 5
