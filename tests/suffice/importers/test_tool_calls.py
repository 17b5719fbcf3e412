"""Messages of an assistant that call tools: they cost calls and tokens, and what they say is an answer only if the user says so."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from suffice.importers import import_recording
from suffice.recordings import read_recording
from tests.support.cli_tools import cli

N = 30


def called(text=None, usage=None, form="openai"):
    """Return a message that calls a tool, and the tool's result."""
    if form == "openai":
        call = {"id": "c", "type": "function", "function": {"name": "sql", "arguments": "{}"}}
        said, result = {"content": text, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "[4]"}
    else:
        parts = [{"type": "text", "text": text}] * bool(text)
        said = {"content": [*parts, {"type": "tool_use", "id": "c", "name": "sql", "input": {}}]}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "[4]"}]}
    return [{"role": "assistant", **said, **({"usage": usage} if usage else {})}, result]


def said(text, usage=None):
    return {"role": "assistant", "content": text, **({"usage": usage} if usage else {})}


def conversations(make, n=N):
    return [
        {
            "id": f"q{q}",
            "messages": [{"role": "user", "content": f"How many goals in {q}?"}, *make(q)],
            "expected_answer": str(q % 7),
        }
        for q in range(n)
    ]


def log(folder, records):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def costs(folder, name):
    table = read_recording(folder / "log.parquet").table
    return table.column(f"cost.generator.{name}").to_pylist()


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_messages_that_only_call_tools_are_charged_to_the_next_answer(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    usage = {"prompt_tokens": 100, "completion_tokens": 7}

    def make(q):
        calls = [message for _ in range(1 + q % 3) for message in called(None, usage, form)]
        return [*calls, said("5", usage), said(str(q % 7), usage)]

    done = cli("import", log(tmp_path, conversations(make)))
    assert "60 messages of the assistant call tools" in re.sub(r"\s+", " ", done.out)
    calls = [n for q in range(N) for n in (2 + q % 3, 1)]
    assert costs(tmp_path, "calls") == calls
    assert costs(tmp_path, "uncached_tokens") == [100 * n for n in calls]
    assert costs(tmp_path, "output_tokens") == [7 * n for n in calls]


@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("text", ["Current answer: {}", "{}"])
def test_answers_beside_tool_calls_are_asked_about(tmp_path, monkeypatch, form, text):
    monkeypatch.chdir(tmp_path)
    path = log(tmp_path, conversations(lambda q: [*called(text.format(q % 5), form=form), said(text.format(q % 7))]))
    refused = cli("import", path)
    assert refused.code == 2
    commands = re.findall(r"suffice (import .*)", refused.err)
    rounds = []
    for command in commands:
        summary = json.loads(cli(*shlex.split(command), "--log-golds", "keep", "--json").out)
        rounds.append((summary["trajectories"], summary["rounds"]))
    assert rounds == [(N, 2), (N, 1)]
    assert costs(tmp_path, "calls") == [2] * N


def test_remarks_beside_tool_calls_are_no_rounds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = import_recording(
        log(tmp_path, conversations(lambda q: [*called("Let me look."), said("5"), said(str(q % 7))]))
    )
    assert summary.rounds == 2
    assert any("reply_type=*" in note for note in summary.notes)


def test_a_conversation_without_an_answer_is_left_out_with_a_count(tmp_path):
    records = conversations(lambda q: [*called(), *([said("5"), said(str(q % 7))] if q else [])])
    summary = import_recording(log(tmp_path, records), out=tmp_path / "log.parquet")
    assert summary.trajectories == N - 1
    assert any("1 record" in note for note in summary.notes)


def test_tool_calls_late_in_a_large_log_are_charged(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.importers.tables.table_parts.LARGE", 1)
    monkeypatch.setattr("suffice.importers.tables.table_parts.PART", 20)
    records = conversations(lambda q: [*(called() if q == N - 1 else []), said("5"), said(str(q % 7))])
    import_recording(log(tmp_path, records), out=tmp_path / "log.parquet")
    assert sum(costs(tmp_path, "calls")) == 2 * N + 1
