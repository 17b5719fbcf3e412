"""The lines that `suffice deploy` prints read answers where the policy has them, for every target."""

from __future__ import annotations

import gzip
import json
import logging
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from suffice import AnswerPosition, Cost, Policy, Recorder, import_recording, read_recording
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.hosts import QuestionRun, frameworks, reply_round, snippet
from suffice.hosts.lines import own_lines
from suffice.policy.session import Session
from tests.suffice.verdicts.test_abandon import recorded, runs
from tests.support.cli_tools import cli

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = ("Bergen", "Oslo", "Oslo", "Oslo")
POSITIONS = {
    "marker": AnswerPosition("marker", "Final answer:"),
    "default marker": AnswerPosition(),
    "json": AnswerPosition("json", "city"),
    "whole": AnswerPosition("whole"),
}


def raw(kind, number, answer):
    """Return a reply that differs in every round and has the answer at its position."""
    if kind == "json":
        return json.dumps({"why": f"thought {number}", "city": answer})
    marker = {"marker": "Final answer:", "default marker": "Answer:"}.get(kind)
    return f"<think>thought {number}</think>\n" + (f"Thought {number}.\n{marker} {answer}" if marker else answer)


@pytest.fixture(params=list(POSITIONS))
def kind(request):
    return request.param


@pytest.fixture
def policy(kind):
    return Policy(rule="answer_stable", max_rounds=4, answer_position=POSITIONS[kind])


def replayed(policy):
    """Return what the policy decides on the extracted answers."""
    session = Session(policy)
    for answer in ANSWERS:
        if session.observe(draft=answer).stop:
            break
    return session.decision


@pytest.mark.parametrize("rule", ["answer_stable", "lead(2)"])
def test_own_loop_lines_stop_and_answer_as_extracted_answers_do(kind, rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    is_vote = rule == "lead(2)"
    policy = Policy(
        rule=rule,
        max_rounds=4,
        answer_position=POSITIONS[kind],
        **({"selector": "majority_of_samples", "normalizer": "qa"} if is_vote else {}),
    )
    policy.save("policy.json")
    replies = iter([raw(kind, number, answer) for number, answer in enumerate(ANSWERS)])
    lines = own_lines(policy, "policy.json")
    assert ("sample(question)" in lines) == is_vote
    names = {"write": lambda question, reply: next(replies), "sample": lambda question: next(replies)}
    exec(compile(lines, "lines.py", "exec"), names)
    answer, decision = names["ask"]("Where?")
    expected = replayed(policy)
    assert expected.reason == "rule"
    assert (answer, decision.stop_round, decision.reason) == ("Oslo", expected.stop_round, "rule")


@pytest.mark.parametrize(
    ("confidence", "expected"), [(0.9, ("Bergen", 0)), (0.1, ("Oslo", 1)), (float("nan"), ("Oslo", 1))]
)
def test_lines_of_a_gate_retrieve_only_without_confidence(kind, confidence, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Policy(rule="sure >= 0.5", start_round=0, max_rounds=1, answer_position=POSITIONS[kind]).save("policy.json")
    replies = iter([raw(kind, number, answer) for number, answer in enumerate(ANSWERS)])
    retrieved = []
    names = {
        "answer": lambda question, evidence=None: next(replies),
        "retrieve": lambda question: retrieved.append(question) or "evidence",
        "sure": lambda question, reply: confidence,
    }
    exec(compile(own_lines(Policy.load("policy.json"), "policy.json"), "lines.py", "exec"), names)
    answer, decision = names["ask"]("Where?")
    assert (answer, decision.stop_round) == expected
    assert len(retrieved) == expected[1]


@pytest.mark.parametrize("rule", ["p_known > 0.5", "round >= 0", "answer_margin >= 0.7"])
def test_lines_of_gates_name_only_signals_that_replies_lack(rule):
    lines = own_lines(Policy(rule=rule, start_round=0, max_rounds=1), "policy.json")
    assert ("p_known(question, reply)" in lines) == ("p_known" in rule)
    assert "margin" not in lines


@pytest.mark.parametrize("wanted", ["whole response", "text"])
def test_a_framework_run_stops_and_answers_as_extracted_answers_do(kind, policy, wanted):
    run = QuestionRun(policy)
    for number, answer in enumerate(ANSWERS):
        text = raw(kind, number, answer)
        reply = text if wanted == "text" else {"choices": [{"message": {"content": text}}]}
        if run.observe(reply).stop:
            break
    expected = replayed(policy)
    assert (run.decision.stop_round, run.metadata()["answer"]) == (expected.stop_round, expected.answer)


@pytest.mark.parametrize("name", list(frameworks()))
def test_the_lines_of_every_framework_give_the_policy_to_that_run(name):
    lines = snippet(name)
    adapters = re.findall(r"from suffice\.hosts(?:\.\w+)? import (\w+)", lines)
    assert adapters
    assert not re.search(r"session\.observe|draft=", lines)


@pytest.mark.parametrize("position", [AnswerPosition("json", "city"), AnswerPosition("marker", "Final answer:")])
def test_a_reply_without_answer_at_the_position_is_an_unanswered_round(position, caplog):
    run = QuestionRun(Policy(rule="answer_stable", max_rounds=3, answer_position=position))
    with caplog.at_level(logging.WARNING):
        assert [run.observe("I do not know yet.").stop for _ in range(3)] == [False, False, True]
    assert (run.decision.reason, run.decision.answer, run.text) == ("failed", None, "")
    assert "the reply of round 1 has no answer at" in caplog.text


def test_once_a_reply_had_the_marker_others_need_it_too():
    run = QuestionRun("answer_stable | (round >= 5)")
    assert not run.observe("Answer: Oslo").stop
    assert not run.observe("I am not sure.").stop
    assert not run.observe("I am not sure.").stop
    assert [round_.answer for round_ in run.session.rounds] == ["Oslo", None, None]


def test_a_loop_that_nobody_gave_a_position_answers_with_whole_replies():
    session = Session("answer_stable")
    for reply in ("The Tempest", "the Tempest."):
        session.observe(reply_round(session, reply))
    assert (session.decision.stop_round, session.decision.answer) == (2, "the Tempest.")


def test_other_fields_of_a_round_are_given_with_its_reply():
    session = Session("answer_stable")
    observed = reply_round(session, "Answer: Oslo", feedback="Say why.", signals={"quality": 0.5})
    assert (observed.answer, observed.feedback, observed.signals) == ("Oslo", "Say why.", {"quality": 0.5})


def test_deploy_says_where_the_lines_read_the_answer_and_sets_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Policy(rule="answer_stable").save("rule.json")
    shown = cli("deploy", "rule.json", "--json").json
    assert any("'Answer:'" in note and "give --answer-position" in note for note in shown["needs"])
    refused = cli("deploy", "rule.json", "--answer-position", "json:city")
    assert (refused.code, "-o NEW.json" in refused.error) == (1, True)
    done = cli("deploy", "rule.json", "--answer-position", "json:city", "-o", "city.json", code=0)
    assert "field 'city' of a JSON reply; a reply without it is a round without an answer" in " ".join(done.out.split())
    assert Policy.load("city.json").answer_position == AnswerPosition("json", "city")
    assert Policy.load("rule.json").answer_position == AnswerPosition()
    assert cli("deploy", "rule.json", "--answer-position", "xml:city").code == 2


def test_a_recorder_records_no_answer_where_a_stated_position_has_none(tmp_path):
    policy = Policy(rule="answer_stable", max_rounds=2, answer_position=AnswerPosition("json", "city"))
    with Recorder(tmp_path / "log.parquet", policy=policy) as log, log.question("Where?") as run:
        for _ in range(2):
            with pytest.warns(UserWarning, match="no answer"):
                run.observe("I do not know yet.")
    assert (run.decision.reason, run.decision.answer) == ("failed", None)


def test_a_recorder_reads_responses_as_the_lines_do(tmp_path):
    policy = Policy(rule="answer_stable", max_rounds=4)
    with Recorder(tmp_path / "log.parquet", policy=policy) as log, log.question("Where?") as run:
        run.observe("Bergen")
        run.observe("Answer: Oslo")
        for _ in range(2):
            with pytest.warns(UserWarning, match="no answer"):
                run.observe("I do not know yet.")
    assert [item.answer for item in run.rounds] == ["Bergen", "Oslo", None, None]
    assert run.decision.reason == "max_rounds"


@pytest.mark.parametrize("rule", ["since_change >= 3", "(command_repeated >= 1) & (since_change >= 2)", "spend > 0.05"])
def test_the_lines_of_an_agent_stop_where_its_transcript_was_judged(rule, tmp_path):
    transcript = ROOT / "tests" / "data" / "transcripts" / "mini_swe_agent_django__django-11163.traj.json.gz"
    import_recording(transcript, out=tmp_path / "run.parquet")
    recording = read_recording(tmp_path / "run.parquet")
    policy = Policy(rule=rule, max_rounds=100)
    policy.save(tmp_path / "policy.json")
    (stop,) = PreparedRecording.of(recording).stops(policy).rounds
    recorded = json.loads(gzip.decompress(transcript.read_bytes()))["messages"]
    ran = iter(
        [
            SimpleNamespace(
                command=re.search(r"```bash\n(.*?)\n```", said["content"], re.DOTALL)[1],
                failed=(code := re.search(r"<returncode>(\d+)", heard["content"])) and code[1] != "0",
                dollars=said["extra"]["response"]["usage"]["cost"],
                cost=Cost(calls=1),
            )
            for said, heard in pairwise(recorded)
            if said["role"] == "assistant"
        ]
    )
    space = {"step": lambda task: next(ran)}
    exec(own_lines(policy, tmp_path / "policy.json"), space)
    assert space["work"]("mend it").stop_round == stop


def test_a_framework_that_shows_no_files_is_refused_for_them(tmp_path):
    Policy(rule="since_change >= 20", max_rounds=100).save(tmp_path / "policy.json")
    refused = cli("deploy", tmp_path / "policy.json", "--to", "langgraph")
    assert "leave out --to" in refused.error
    assert "StepSignals" in cli("deploy", tmp_path / "policy.json").out


ESCALATED = {"q1": ("Bern", "Oslo", "Oslo"), "q2": ("Oslo", "Oslo", "Rome"), "q3": ("Bern", "Rome", "Oslo")}


@pytest.fixture
def escalated(tmp_path, monkeypatch):
    """A policy on the answers of three models, and the stop and answer of each question, as its recording was judged."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": q, "question": f"Which is {q}?", "gold": "Oslo", "model": f"m{n}", "answer": answer, "usd": n + 1}
        for q, answers in ESCALATED.items()
        for n, answer in enumerate(answers)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    import_recording("log.jsonl", out="log.parquet", columns={"round": "model:m0,m1,m2"})
    recording = read_recording("log.parquet")
    policy = policy_for(recording, "answer_stable")
    policy.save("policy.json")
    stopped = PreparedRecording.of(recording).stops(policy)
    answers = recording.objects("answer")[range(3), stopped.answer_rounds - 1]
    return dict(zip(recording.question_ids, zip(stopped.rounds.tolist(), answers.tolist(), strict=True), strict=True))


def said(model, question):
    return ESCALATED[question.split()[-1][:-1]][int(model[1:])]


class Framework:
    """Stands for a framework whose run with a model gives that model's answer."""

    def __init__(self, name):
        self.modules = {
            "agents": SimpleNamespace(
                Agent=lambda name, model, tools: model,
                Runner=SimpleNamespace(run_sync=lambda m, q: SimpleNamespace(final_output=said(m, q))),
            ),
            "pydantic_ai": SimpleNamespace(
                Agent=lambda tools: SimpleNamespace(run_sync=lambda q, model: SimpleNamespace(output=said(model, q)))
            ),
            "langchain.agents": SimpleNamespace(
                create_agent=lambda model, tools: SimpleNamespace(
                    invoke=lambda state: {"messages": [SimpleNamespace(text=said(model, state["messages"][0][1]))]}
                )
            ),
        }
        self.names = {"tools": [], "call": said} if name == "python" else {"tools": []}


@pytest.mark.parametrize("to", ["python", "openai_agents", "pydantic_ai", "langchain"])
def test_the_lines_of_an_escalation_stop_where_its_log_was_judged(to, escalated, monkeypatch):
    framework = Framework(to)
    for name, module in framework.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    lines = cli("deploy", "policy.json", "--to", to, "--json").json["lines"]
    space = dict(framework.names)
    exec(lines, space)
    for q, expected in escalated.items():
        answer, decision = space["ask"](f"Which is {q}?")
        assert (decision.stop_round, answer) == expected


def test_a_framework_whose_agents_keep_their_model_is_refused_for_escalations(escalated):
    refused = cli("deploy", "policy.json", "--to", "crewai")
    assert (refused.code, "give --to python, langchain, langgraph" in refused.error) == (1, True)
    assert "configurable" in cli("deploy", "policy.json", "--to", "langgraph").out


def of_giving_up(rule, folder):
    """Write the policy file of a decision to give runs up by a rule."""
    policy = Policy(rule=rule, max_rounds=100, provenance={"decision": {"metric": "abandon(solved)"}})
    policy.save(folder / "policy.json")
    return policy


@pytest.mark.parametrize("rule", ["chance <= 0.3", "patience((chance <= 0.4), 2)", "round >= 5"])
def test_lines_that_give_up_return_what_a_replay_counts(rule, tmp_path):
    recording = recorded(tmp_path, runs(60))
    policy = of_giving_up(rule, tmp_path)
    prepared = PreparedRecording.of(recording, ["abandon(solved)"])
    found = run_policy(prepared, policy)[0]
    lengths, chances = recording.seen.sum(axis=1).tolist(), recording.column("chance").tolist()
    taken, returned = [], []
    for length, own, solved in zip(lengths, chances, recording.column("solved")[:, 0].tolist(), strict=True):
        steps = iter(
            SimpleNamespace(reply="Ran a tool.", has_ended=r == length, result=solved, chance=own[r - 1])
            for r in range(1, length + 1)
        )
        space = {"step": lambda task, steps=steps: next(steps), "chance": lambda task, done: done.chance}
        exec(own_lines(policy, tmp_path / "policy.json"), space)
        result, decision = space["work"]("mend it")
        taken.append(decision.stop_round)
        returned.append(result)
    assert taken == found.ledger.calls.tolist()
    assert [result or 0.0 for result in returned] == found.values["abandon(solved)"].tolist()
    assert None in returned
    assert 1.0 in returned


@pytest.mark.parametrize(("commands", "expected"), [(5, (None, 3)), (3, ("a patch", 3)), (2, ("a patch", 2))])
def test_lines_of_steps_that_give_up_return_nothing_at_a_stop(commands, expected, tmp_path):
    policy = of_giving_up("since_change >= 2", tmp_path)
    ran = iter(
        SimpleNamespace(
            command="sed -i s/a/b/ a.py" if r == 1 else "ls",
            failed=False,
            dollars=0.1,
            cost=Cost(calls=1),
            has_ended=r == commands,
            result="a patch",
        )
        for r in range(1, commands + 1)
    )
    space = {"step": lambda task: next(ran)}
    exec(own_lines(policy, tmp_path / "policy.json"), space)
    result, decision = space["work"]("mend it")
    assert (result, decision.stop_round) == expected


def test_giving_up_is_deployed_to_a_loop_of_its_own_alone(tmp_path):
    of_giving_up("chance <= 0.3", tmp_path)
    shown = cli("deploy", tmp_path / "policy.json")
    assert "the lines return None for a run that is given up" in " ".join(shown.out.split())
    assert '"chance": chance(task, done)' in shown.out
    assert "leave out --to" in cli("deploy", tmp_path / "policy.json", "--to", "langgraph").error
