"""What transcripts repeat is charged once, what they lack is said, and grades come from reports."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path

import pytest
from benchmarks.readings import transcripts as made

from suffice.errors import DataError, SchemaError, SufficeError
from suffice.importers import importer, kind_of
from suffice.importers.answers.outcomes import read_outcomes
from tests.support.cli_tools import cli

DATA = Path(__file__).resolve().parents[2] / "data" / "transcripts"
TURNS = made.TURNS
FEW = (made.Turn("bash", {"command": "echo 1 > a.py"}, tokens=(30, 20, 5)), made.Turn(tokens=(10, 50, 2)))


def read(kind, path, text=None, **options):
    if text is not None:
        path.write_text(text)
    return importer(kind)(path, **options)


def only(run):
    (trajectory,) = run.trajectories
    return trajectory


def calls(trajectory):
    return [step.costs["generator"].calls for step in trajectory.rounds]


def output(trajectory):
    return [step.costs["generator"].output_tokens for step in trajectory.rounds]


def note(run, *words):
    return any(all(word in line for word in words) for line in run.notes)


# Claude Code


def claude(turns=TURNS, session="s1", **common):
    return made.claude_code(turns, session, **common)


def test_a_subagent_is_charged_to_the_step_that_started_it(tmp_path):
    own, side = claude(), claude(FEW, "sub", isSidechain=True)
    for record in side:
        record["sessionId"] = "s1"
        if "timestamp" in record:
            record["timestamp"] = "2026-02-01T10:03:30.000Z"  # during the fourth step
    run = read("claude_code", tmp_path / "s.jsonl", made.lines([*own, *side]))
    assert calls(only(run)) == [1, 1, 1, 3, 1, 1, 1]
    assert output(only(run)) == [11, 12, 13, 14 + 5 + 2, 15, 16, 17]
    assert only(run).question == made.TASK
    assert made.states([step.answer for step in only(run).rounds]) == [None, *"AABBCC"]


def test_a_subagent_in_its_own_file_belongs_to_the_session(tmp_path):
    (tmp_path / "s1" / "subagents").mkdir(parents=True)
    side = [{**record, "sessionId": "s1"} for record in claude(FEW, "sub", isSidechain=True, agentId="a1")]
    (tmp_path / "s1" / "subagents" / "agent-a1.jsonl").write_text(made.lines(side))
    (tmp_path / "s1.jsonl").write_text(made.lines(claude()))
    trajectory = only(read("claude_code", tmp_path))
    assert sum(calls(trajectory)) == len(TURNS) + len(FEW)
    assert len(trajectory.rounds) == len(TURNS)


def test_a_session_that_goes_on_in_another_file_is_charged_once(tmp_path):
    (tmp_path / "a.jsonl").write_text(made.lines(claude(TURNS[:4])))
    again = [{**record, "sessionId": "s2"} for record in claude()]
    (tmp_path / "b.jsonl").write_text(made.lines(again))
    trajectory = only(read("claude_code", tmp_path))
    assert output(trajectory) == [turn.tokens[2] for turn in TURNS]


def test_lines_of_a_reply_are_one_step_by_their_id_alone(tmp_path):
    records = [{name: value for name, value in record.items() if name != "requestId"} for record in claude()]
    trajectory = only(read("claude_code", tmp_path / "s.jsonl", made.lines(records)))
    assert output(trajectory) == [turn.tokens[2] for turn in TURNS]


def test_summaries_and_errors_of_the_service_are_no_steps(tmp_path):
    records = claude()
    error = {
        "type": "assistant",
        "isApiErrorMessage": True,
        "sessionId": "s1",
        "message": {"model": "<synthetic>", "id": "e", "content": []},
    }
    summary = {
        "type": "user",
        "isCompactSummary": True,
        "sessionId": "s1",
        "message": {"role": "user", "content": "So far: ..."},
    }
    bound = {"type": "system", "subtype": "compact_boundary", "sessionId": "s1"}
    new = {"type": "hologram", "sessionId": "s1"}
    records[6:6] = [error, bound, summary, new, new]
    run = read(
        "claude_code",
        tmp_path / "s.jsonl",
        made.lines([{"type": "summary", "summary": "x", "leafUuid": "u"}, *records]),
    )
    assert output(only(run)) == [turn.tokens[2] for turn in TURNS]
    assert only(run).end == "exhausted"
    assert note(run, "unknown kinds", "hologram (2)")


def test_a_failed_edit_changes_nothing_and_a_notebook_does(tmp_path):
    turns = (
        made.Turn(
            "MultiEdit", {"path": "/testbed/a.py", "edits": [{"old_string": "x", "new_string": "y"}]}, failed=True
        ),
        made.Turn("NotebookEdit", {"notebook_path": "/testbed/a.ipynb", "new_source": "y"}),
        made.Turn("mcp__files__write_file", {"path": "/testbed/b.py", "content": "x"}),
        made.Turn("Read", {"path": "/testbed/a.py"}),
    )
    trajectory = only(read("claude_code", tmp_path / "s.jsonl", made.lines(claude(turns))))
    assert made.states([step.answer for step in trajectory.rounds]) == [None, "A", "B", "B"]


@pytest.mark.parametrize(("broken", "end"), [(lambda text: text[:-40], "failed"), (lambda text: text, "exhausted")])
def test_a_session_that_is_cut_gives_what_is_there(broken, end, tmp_path):
    run = read("claude_code", tmp_path / "s.jsonl", broken(made.lines(claude())))
    assert only(run).end == end
    assert note(run, "lack their end") == (end == "failed")
    assert made.states([step.answer for step in only(run).rounds])[:6] == list(made.STATES[:6])


def test_a_session_that_waits_for_a_tool_is_cut(tmp_path):
    records = claude(TURNS[:3])
    run = read("claude_code", tmp_path / "s.jsonl", made.lines(records[:-1]))
    assert only(run).end == "failed"
    assert math.isnan(only(run).rounds[-1].signals["tool_failed"])


# Codex


def test_codex_says_its_exit_codes_in_several_forms(tmp_path):
    records = made.codex(tuple(made.Turn("bash", {"command": "pytest"}, tokens=(9, 0, 1)) for _ in range(4)))
    outputs = [record["payload"] for record in records if record["payload"].get("type") == "function_call_output"]
    outputs[0]["output"] = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\n"
    outputs[1]["output"] = "Exit code: 0\nWall time: 1.2 seconds\nOutput:\nProcess exited with code 9"
    outputs[2]["output"] = {"content": "x", "success": False}
    outputs[3]["output"] = "no code"
    trajectory = only(read("codex", tmp_path / "r.jsonl", made.lines(records)))
    assert [step.signals["check_passed"] for step in trajectory.rounds] == pytest.approx(
        [0, 1, 0, math.nan], nan_ok=True
    )


def test_codex_charges_a_summary_once_to_the_step_before(tmp_path):
    records = made.codex()
    place = max(i for i, record in enumerate(records) if record["payload"].get("type") == "token_count")
    info = json.loads(json.dumps(records[place]["payload"]["info"]))
    info["total_token_usage"]["total_tokens"] += 100
    info["last_token_usage"] = {"input_tokens": 70, "cached_input_tokens": 0, "output_tokens": 30}
    extra = {
        "timestamp": records[place]["timestamp"],
        "type": "event_msg",
        "payload": {"type": "token_count", "info": info},
    }
    compacted = {"timestamp": extra["timestamp"], "type": "compacted", "payload": {"message": "So far."}}
    trajectory = only(read("codex", tmp_path / "r.jsonl", made.lines([*records, extra, compacted])))
    assert calls(trajectory) == [1] * 6 + [2]
    assert output(trajectory)[-1] == 17 + 30


def test_codex_reads_cumulative_counts_where_there_are_no_others(tmp_path):
    records = made.codex()
    for record in records:
        if record["payload"].get("info"):
            record["payload"]["info"].pop("last_token_usage", None)
    assert output(only(read("codex", tmp_path / "r.jsonl", made.lines(records)))) == [turn.tokens[2] for turn in TURNS]


def test_codex_without_counts_divides_steps_at_results(tmp_path):
    records = [record for record in made.codex() if record["payload"].get("type") != "token_count"]
    trajectory = only(read("codex", tmp_path / "r.jsonl", made.lines(records)))
    assert made.states([step.answer for step in trajectory.rounds]) == list(made.STATES)
    assert all(map(math.isnan, output(trajectory)))


def test_a_subagent_of_codex_is_charged_to_its_parent(tmp_path):
    child = made.codex(FEW, "child")
    child[0]["payload"]["source"] = {"subagent": {"thread_spawn": {"parent_thread_id": "c1", "depth": 1}}}
    (tmp_path / "rollout-a.jsonl").write_text(made.lines(child))
    (tmp_path / "rollout-b.jsonl").write_text(made.lines(made.codex()))
    trajectory = only(read("codex", tmp_path))
    assert (trajectory.question_id, sum(calls(trajectory))) == ("c1", len(TURNS) + len(FEW))


def test_an_interrupted_turn_of_codex_failed(tmp_path):
    stop = {
        "timestamp": "2026-02-01T10:00:59.000Z",
        "type": "event_msg",
        "payload": {"type": "turn_aborted", "reason": "interrupted"},
    }
    new = {"timestamp": "2026-02-01T10:00:59.000Z", "type": "response_item", "payload": {"type": "hologram"}}
    run = read("codex", tmp_path / "r.jsonl", made.lines([*made.codex(), stop, new]))
    assert only(run).end == "failed"
    assert note(run, "hologram (1)")


# OpenHands


def test_openhands_charges_a_summary_to_the_next_step(tmp_path):
    record = made.openhands()
    usages, costs = record["metrics"]["token_usages"], record["metrics"]["costs"]
    usages.insert(
        2,
        {
            "prompt_tokens": 500,
            "completion_tokens": 50,
            "cache_read_tokens": 0,
            "response_id": "condenser",
            "model": "m-x",
        },
    )
    costs.insert(2, {"model": "m-x", "cost": 1.0, "timestamp": 2.0})
    record["history"].insert(4, {"id": 90, "source": "agent", "action": "condensation", "args": {}})
    record["history"].insert(
        4, {"id": 91, "source": "environment", "observation": "hologram", "content": "", "extras": {}}
    )
    trajectory = only(read("openhands", tmp_path / "output.jsonl", made.lines([record])))
    assert calls(trajectory) == [1, 1, 2, 1, 1, 1, 1]
    assert output(trajectory)[2] == 13 + 50
    assert trajectory.rounds[-1].signals["spend"] == pytest.approx(1.28)


def test_openhands_reads_pairs_grades_and_limits(tmp_path):
    whole, limited = made.openhands(), made.openhands(TURNS[:4], "repo__repo-2")
    events = whole["history"][1:]
    whole["history"] = [list(pair) for pair in zip(events[::2], [*events[1::2], {}], strict=False)]
    whole["report"] = {"resolved": True}
    limited["error"] = "RuntimeError: Agent reached maximum iteration in headless mode"
    limited["test_result"]["report"] = {"resolved": False}
    run = read("openhands", tmp_path / "output.jsonl", made.lines([whole, limited]))
    ends = {item.question_id: (item.end, item.metrics[-1]["resolved"]) for item in run.trajectories}
    assert ends == {"repo__repo-1": ("exhausted", 1), "repo__repo-2": ("max_rounds", 0)}
    (first, _) = run.trajectories
    assert [own["resolved"] for own in first.metrics[1:]] == [0, 0, 0, 0, 1, 1]  # the final files alone were graded


def test_openhands_takes_dollars_from_events_where_the_metrics_have_none(tmp_path):
    record = made.openhands()
    del record["metrics"]["costs"]
    own = [event for event in record["history"] if event["source"] == "agent" and "action" in event]
    for i, event in enumerate(own, start=1):
        event["llm_metrics"] = {"accumulated_cost": 0.5 * i}
    trajectory = only(read("openhands", tmp_path / "output.jsonl", made.lines([record])))
    assert [step.signals["spend"] for step in trajectory.rounds] == pytest.approx([0.5 * i for i in range(1, 8)])


def test_a_folder_with_a_file_for_each_event_is_one_run(tmp_path):
    folder = tmp_path / "conversation-7" / "events"
    folder.mkdir(parents=True)
    for i, event in enumerate(made.openhands_events()):
        (folder / f"event-{i:05}-x.json").write_text(json.dumps(event))
    (tmp_path / "conversation-7" / "base_state.json").write_text(
        json.dumps({"id": "c", "execution_status": "finished"})
    )
    assert kind_of(tmp_path) == "openhands"
    run = read("openhands", tmp_path)
    assert only(run).question_id == "conversation-7"
    assert made.states([step.answer for step in only(run).rounds]) == list(made.STATES)
    assert note(run, "not of this format", "base_state.json")


# SWE-agent


def test_edits_of_the_window_name_the_file_that_is_open(tmp_path):
    def step(action, observation="[File: a.py]", file="/testbed/a.py"):
        state = json.dumps({"open_file": file, "working_dir": "/testbed"})
        return {
            "action": action,
            "observation": observation,
            "response": "",
            "thought": "",
            "state": state,
            "execution_time": 0,
        }

    steps = [
        step("open a.py"),
        step("edit 3:3\nx = '>'\nend_of_edit\n"),
        step("edit 4:4\ny = (\nend_of_edit\n", "Your proposed edit has introduced new syntax error(s)."),
        step("create try.py", file="/testbed/try.py"),
        step("rm try.py"),
        step("submit"),
    ]
    text = json.dumps({"trajectory": steps, "info": {"exit_status": "submitted (exit_cost)"}})
    trajectory = only(read("swe_agent", tmp_path / "task-1.traj", text))
    assert made.states([item.answer for item in trajectory.rounds]) == [None, "A", "A", "B", "A", "A"]
    assert (trajectory.question_id, trajectory.end) == ("task-1", "max_rounds")


def test_attempts_of_a_task_are_runs_of_one_question(tmp_path):
    run = made.swe_agent()
    run["attempts"] = [
        {"trajectory": run["trajectory"][:2], "info": {"exit_status": "exit_error"}},
        {**made.swe_agent()},
    ]
    trajectories = read("swe_agent", tmp_path / "t.traj", json.dumps(run)).trajectories
    assert [(item.question_id, item.cluster, len(item.rounds), item.end) for item in trajectories] == [
        ("t#1", "t", 2, "failed"),
        ("t#2", "t", 7, "exhausted"),
    ]


def test_a_folder_of_swe_agent_brings_its_own_results(tmp_path):
    for name, text in (("one", made.swe_agent()), ("two", made.swe_agent(status="exit_error"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.traj").write_text(json.dumps(text))
        (tmp_path / name / f"{name}.debug.log").write_text("" if name == "one" else "INFO started\n")
    (tmp_path / "preds.json").write_text(json.dumps({"one": {"instance_id": "one", "model_patch": "x"}}))
    (tmp_path / "results.json").write_text(
        json.dumps({"resolved_ids": ["one"], "unresolved_ids": ["two"], "total_instances": 2})
    )
    assert kind_of(tmp_path) == "swe_agent"
    run = read("swe_agent", tmp_path)
    assert {item.question_id: item.metrics[-1]["resolved"] for item in run.trajectories} == {"one": 1, "two": 0}
    assert note(run, "whether runs succeeded", "results.json")


@pytest.mark.parametrize("cut", [0.5, 0.7])
def test_a_document_that_is_cut_is_recognised_and_read(cut, tmp_path):
    text = json.dumps(made.swe_agent())
    path = tmp_path / "task.traj"
    path.write_text(text[: int(cut * text.index('"history"'))])
    assert kind_of(path) == "swe_agent"
    run = read("swe_agent", path)
    assert 1 <= len(only(run).rounds) < len(TURNS)
    assert only(run).end == "failed"
    assert note(run, "lack their end")


# Inspect


def test_inspect_epochs_are_runs_of_one_question_with_their_grades(tmp_path):
    log = made.inspect_log(score="I", epochs=2)
    log["samples"][1]["scores"]["tests"]["value"] = "C"
    run = read("inspect", tmp_path / "log.json", json.dumps(log))
    assert [(item.question_id, item.cluster) for item in run.trajectories] == [("p1#1", "p1"), ("p1#2", "p1")]
    assert [item.metrics[-1]["resolved"] for item in run.trajectories] == [0, 1]
    assert note(run, "every call of the model is a step")


def test_the_note_on_inspect_names_an_option_that_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.json").write_text(json.dumps(made.inspect_log(text="I think it is the slice.")))
    assert "--expected other-calls" in cli("import", "log.json", "-o", "a.parquet", "--details").words
    other = cli("import", "log.json", "-o", "b.parquet", "--expected", "other-calls", code=0)
    assert "slice" in other.words


def test_inspect_samples_with_several_answers_keep_their_reading(tmp_path):
    log = made.inspect_log()
    calls_of_the_model = [event for event in log["samples"][0]["events"] if event["event"] == "model"]
    for event in calls_of_the_model[-3:]:
        event["output"]["choices"][0]["message"] = {"role": "assistant", "content": "Oslo", "source": "generate"}
    run = read("inspect", tmp_path / "log.json", json.dumps(log))
    assert {step.answer for step in only(run).rounds} == {"Oslo"}


# What is wrong with files, and grades


@pytest.mark.parametrize("kind", ["claude_code", "codex", "openhands", "swe_agent", "mini_swe_agent"])
@pytest.mark.parametrize(
    "text", ["[]", "{}", "{", "null", '"x"', "[1, 2]", "x,y\n1,2\n", '{"type": "assistant"}\n{"type"', "[[{}]]"]
)
def test_what_is_no_transcript_is_refused_in_one_sentence(kind, text, tmp_path):
    with pytest.raises(SufficeError, match="JSON|steps"):
        read(kind, tmp_path / "x.json", text)


@pytest.mark.parametrize("kind", ["claude_code", "codex", "openhands", "swe_agent", "inspect"])
def test_values_of_wrong_types_are_unknown_and_never_a_crash(kind, tmp_path):
    text = {
        "claude_code": lambda: made.lines(claude()),
        "codex": lambda: made.lines(made.codex()),
        "openhands": lambda: made.lines([made.openhands()]),
        "swe_agent": lambda: json.dumps(made.swe_agent()),
        "inspect": lambda: json.dumps(made.inspect_log()),
    }[kind]()
    for wrong in ("null", "7", '"x"', "[]", "{}", '"\\ud83d é 漢"'):
        for place in range(0, 40, 5):
            _spoilt(kind, text, wrong, place, tmp_path / "x.json")


def _spoilt(kind, text, wrong, place, path):
    """Read the text with the value of a field replaced; errors of the library are answers, too."""
    names = [
        "usage",
        "message",
        "content",
        "input",
        "payload",
        "info",
        "arguments",
        "history",
        "metrics",
        "args",
        "state",
        "action",
    ]
    name = names[place % len(names)]
    lines = [_replaced(json.loads(line), name, json.loads(wrong)) for line in text.splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with contextlib.suppress(SufficeError):
        importer(kind)(path)


def _replaced(value, name, wrong):
    if isinstance(value, dict):
        return {own: wrong if own == name else _replaced(item, name, wrong) for own, item in value.items()}
    return [_replaced(item, name, wrong) for item in value] if isinstance(value, list) else value


def test_a_line_that_is_no_json_is_counted(tmp_path):
    text = made.lines(claude())
    lines = text.splitlines(keepends=True)
    run = read("claude_code", tmp_path / "s.jsonl", "".join([*lines[:5], "!!\n", "7\n", *lines[5:]]))
    assert note(run, "lines that are not JSON (1)", "int (1)")
    assert len(only(run).rounds) == len(TURNS)


def test_a_large_session_is_read_in_seconds(tmp_path):
    turns = [
        made.Turn("bash", {"command": f"echo {i} > f{i % 7}.py; cat é_{i}"}, tokens=(9, 1, 2)) for i in range(1500)
    ]
    trajectory = only(read("claude_code", tmp_path / "s.jsonl", made.lines(claude(turns))))
    assert len(trajectory.rounds) == 1500
    assert {step.signals["since_change"] for step in trajectory.rounds} == {0}


REPORTS = {
    "swe_bench": json.dumps(
        {"resolved_ids": ["s1"], "unresolved_ids": ["s2"], "empty_patch_ids": ["s3"], "total_instances": 3}
    ),
    "by_id": json.dumps({"s1": {"resolved": True}, "s2": {"resolved": False}, "s3": {"resolved": False}}),
    "csv": "instance_id,resolved\ns1,True\ns2,false\ns3,0\n",
    "jsonl": '{"task_id": "s1", "reward": 1.0}\n{"task_id": "s2", "reward": 0}\n{"task_id": "s3", "reward": 0.0}\n',
}


@pytest.mark.parametrize("form", REPORTS)
def test_outcomes_are_read_in_each_form(form, tmp_path):
    path = tmp_path / f"report.{form if form in ('csv', 'jsonl') else 'json'}"
    path.write_text(REPORTS[form])
    assert read_outcomes(path) == {"s1": 1, "s2": 0, "s3": 0}


def test_outcomes_replace_the_grades_of_the_log(tmp_path):
    report = tmp_path / "report.json"
    report.write_text(REPORTS["swe_bench"])
    for session in ("s1", "s2"):
        (tmp_path / f"{session}.jsonl").write_text(made.lines(claude(session=session)))
    run = read("claude_code", tmp_path, outcomes=report)
    assert [own.metrics[-1]["resolved"] for own in run.trajectories] == [1, 0]
    assert [own["resolved"] for own in run.trajectories[0].metrics[1:]] == [0, 0, 0, 0, 1, 1]
    assert {own["resolved"] for own in run.trajectories[1].metrics[1:]} == {0}


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("instance_id,resolved\nother,1\n", DataError, "no outcome"),
        ("instance_id,resolved\ns1,maybe\n", DataError, "the grade 'maybe'"),
        ("instance_id,resolved\ns1,7\n", DataError, "the grade '7'"),
        ("instance_id,resolved\ns1,1\ns1,0\n", DataError, "several runs"),
        ("name,colour\ns1,red\n", SchemaError, "no grades"),
    ],
)
def test_wrong_outcomes_are_refused(text, error, words, tmp_path):
    (tmp_path / "o.csv").write_text(text)
    (tmp_path / "s.jsonl").write_text(made.lines(claude()))
    with pytest.raises(error, match=words):
        read("claude_code", tmp_path / "s.jsonl", outcomes=tmp_path / "o.csv")


@pytest.mark.parametrize(
    ("outcomes", "grades"),
    [({"t#1": False, "t#2": True}, [0, 1]), ({"t": False, "t#2": True}, [0, 1]), ({"t": True}, [1, 1])],
)
def test_several_runs_of_a_task_are_graded_apart_by_number(outcomes, grades, tmp_path):
    (tmp_path / "o.json").write_text(json.dumps({name: {"resolved": value} for name, value in outcomes.items()}))
    attempts = [{"trajectory": made.swe_agent()["trajectory"], "info": {"exit_status": "submitted"}}] * 2
    (tmp_path / "t.traj").write_text(json.dumps({**made.swe_agent(), "attempts": attempts}))
    run = read("swe_agent", tmp_path / "t.traj", outcomes=tmp_path / "o.json")
    assert [item.metrics[-1]["resolved"] for item in run.trajectories] == grades
    assert any("one outcome grades all runs" in text for text in run.notes) == ("t#1" not in outcomes)


def test_nobody_is_asked_to_label_the_states_of_files(tmp_path):
    shutil.copy(DATA / "mini_swe_agent_django__django-11163.traj.json.gz", tmp_path)
    shown = cli("import", tmp_path, "-o", tmp_path / "out.parquet", "--yes", code=0)
    assert "came to their end" in shown.words
    assert "--ask" not in shown.out
