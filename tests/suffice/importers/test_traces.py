"""Traces of model calls: files that real emitters wrote become rounds."""

from __future__ import annotations

import csv
import gzip
import json
import math
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.common.json_text import values_in
from suffice.errors import DataError
from suffice.importers import import_recording, importer, kind_of
from suffice.importers.calls.objects import dotted_fields
from suffice.recordings import read_recording
from tests.support.cli_tools import cli

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"
N, ROUNDS = 24, 4
MADE = {
    "otlp_genai.jsonl.gz": "otlp",
    "otlp_genai_events": "otlp",
    "otlp_genai_old_events": "otlp",
    "otlp_openllmetry.jsonl.gz": "otlp",
    "otlp_openinference.jsonl.gz": "otlp",
    "openinference_console.jsonl.gz": "openinference",
    "mlflow_traces.jsonl.gz": "mlflow",
    "inspect_rounds.eval": "inspect",
    "openai_batch": "openai",
}
PUBLISHED = {
    "docent_log.eval": "inspect",
    "inspect_pop.eval": "inspect",
    "inspect_pop.json.gz": "inspect",
    "langfuse_agno-2025-06-11.trace.json.gz": "langfuse",
    "langfuse_langgraph-python-2025-08-22.trace.json.gz": "langfuse",
    "langfuse_llamaindex-2025-06-05.trace.json.gz": "langfuse",
    "langfuse_openai-agents-2025-09-30.trace.json.gz": "langfuse",
    "ls_plain.json": "langsmith",
    "langsmith_batch.json.gz": "langsmith",
    "langsmith_langchain.json.gz": "langsmith",
    "otlp_pydantic_ai.jsonl.gz": "otlp",
}


@cache  # no test changes what it reads
def read(name, **options):
    return importer((MADE | PUBLISHED)[name])(TRACES / name, **options)


def answers(run):
    return [[item.answer for item in trajectory.rounds] for trajectory in run.trajectories]


def expected(place):
    gold = 12 + 5 * place
    wrong = str(gold + 1)
    return [wrong if place % 3 == 0 else str(gold), str(gold), str(gold), wrong if place == 1 else str(gold)]


@pytest.mark.parametrize("name", [*MADE, *PUBLISHED])
def test_the_format_of_a_trace_is_recognised(name):
    assert kind_of(TRACES / name) == (MADE | PUBLISHED)[name]


@pytest.mark.parametrize("name", MADE)
def test_the_same_loop_is_the_same_rounds_in_every_format(name):
    run = read(name)
    assert answers(run) == [expected(place) for place in range(N)]
    assert [item.question for item in run.trajectories] == [f"What is {7 + 3 * i} plus {5 + 2 * i}?" for i in range(N)]
    assert {item.end for item in run.trajectories} == {"max_rounds"}
    assert {item.labels["model"] for item in run.trajectories} == {"fake-1"}
    assert run.depends == {"model": "fake-1"}
    assert any("the loop's cap" in note for note in run.notes)


@pytest.mark.parametrize("name", MADE)
def test_usage_is_counted_once_and_cache_reads_apart(name):
    costs = [item.costs["generator"] for item in read(name).trajectories[5].rounds]
    assert [cost.calls for cost in costs] == [1] * ROUNDS
    assert [cost.output_tokens for cost in costs] == [2] * ROUNDS
    assert [cost.uncached_tokens + cost.cached_tokens for cost in costs] == [50, 70, 90, 110]
    if "genai" not in name:  # this instrumentation reports no cache reads
        assert [cost.cached_tokens for cost in costs] == [0, 20, 40, 60]


@pytest.mark.parametrize(
    "name",
    [
        "otlp_openinference.jsonl.gz",
        "openinference_console.jsonl.gz",
        "mlflow_traces.jsonl.gz",
        "inspect_rounds.eval",
        "openai_batch",
    ],
)
def test_log_probabilities_are_read_where_a_format_has_them(name):
    first, second, *_ = read(name).trajectories[0].rounds
    assert [token.logprob for token in first.answer_tokens] == [-0.9]
    assert second.answer_tokens[0].text == "12"
    assert second.answer_tokens[0].alternatives == (("12", -0.05), ("7", -2.95))


def test_runs_of_several_lengths_are_read_as_the_loops_own_stops():
    run = read("langsmith_batch.json.gz")
    assert answers(run)[0] == ["13", "12", "12"]
    assert [item.end for item in run.trajectories[:3]] == ["max_rounds", "rule", "rule"]
    assert [item.end_assumed for item in run.trajectories[:3]] == [False, True, True]
    assert not any(item.end_assumed for item in read("langsmith_batch.json.gz", ended="rule").trajectories)
    assert any("the loop's own stops, with what comes later unknown" in note for note in run.notes)
    assert {item.end for item in read("langsmith_batch.json.gz", ended="exhausted").trajectories} == {
        "max_rounds",
        "exhausted",
    }


def test_runs_of_langchain_are_read_with_its_messages_and_threads():
    run = read("langsmith_langchain.json.gz")
    assert answers(run) == [["13", "12"], ["17", "17"], ["22", "22"]]
    assert (run.trajectories[0].question_id, run.trajectories[0].question) == ("q0", "What is 7 plus 5?")
    first, second = run.trajectories[0].rounds
    assert (second.costs["generator"].uncached_tokens, second.costs["generator"].cached_tokens) == (50, 20)
    assert first.answer_tokens[0].logprob == -0.9


def test_spans_of_agents_do_not_count_again_and_tool_calls_cost():
    run = read("otlp_pydantic_ai.jsonl.gz")
    assert answers(run) == [["13", "12"], ["17", "17"], ["22", "22"]]
    first, second = run.trajectories[0].rounds
    assert (first.costs["generator"].calls, second.costs["generator"].calls) == (2, 1)
    assert "model calls without an answer (tool calls), whose cost counts to the next round: 3" in run.notes
    assert run.trajectories[0].question == "What is 7 plus 5?"


def test_submitted_answers_of_an_agent_are_its_rounds():
    run = read("docent_log.eval")
    by_id = {item.question_id: item for item in run.trajectories}
    item = by_id["15#1"]
    assert [r.answer for r in item.rounds] == [
        r"picoCTF{1|\/|_4_p34|\|ut_f3bc410e}",
        "picoCTF{I_am_a_peanut_extraction}",
        r"picoCTF{1|\/|_4_p34|\|ut_f3bc410e}",
    ]
    assert [r.costs["generator"].calls for r in item.rounds] == [5, 3, 2]
    assert item.golds == (r"picoCTF{1|/|_4_p34|\|ut_f3bc410e}",)
    assert [math.isnan(metrics["includes"]) for metrics in item.metrics] == [True, True, False]
    assert item.metrics[-1]["includes"] == 0.0
    assert by_id["19#1"].metrics[-1]["includes"] == 1.0
    assert by_id["15#1"].cluster == "15"


def test_an_inspect_log_brings_golds_scores_and_its_status():
    run = read("inspect_pop.json.gz")
    assert [item.golds for item in run.trajectories] == [("Yes",), ("No",), ("Yes",)]
    assert [item.metrics[0]["match"] for item in run.trajectories] == [1.0, 1.0, 0.0]
    assert any("status is 'cancelled'" in note for note in run.notes)
    assert any("nothing to decide" in note for note in run.notes)


def test_langfuse_generations_logged_inside_each_other_are_one_call():
    run = read("langfuse_agno-2025-06-11.trace.json.gz")
    [item] = run.trajectories
    assert item.question == "What is currently trending on Twitter?"
    assert item.question_id == "35cc6c90-b657-4819-b66c-c931c03ad569"
    [only] = item.rounds
    assert only.answer.startswith("To find out what's currently trending")
    assert only.costs["generator"].calls == 2
    assert only.costs["generator"].output_tokens == 245
    assert "model calls that were logged twice, one inside the other, read once: 2" in run.notes
    assert "generations whose output is the text 'None' or 'null', read as without an answer: 1" in run.notes


def test_unit_interval_scores_are_metrics_noted_with_when_they_are_known():
    run = read("langfuse_langgraph-python-2025-08-22.trace.json.gz")
    [item] = run.trajectories
    assert item.question == "Search the web for 'example' and summarize."
    assert (item.metrics[0]["hallucination"], item.metrics[0]["toxicity"]) == (0.1, 0.0)
    assert any("'hallucination'" in note and "last round only" in note for note in run.notes)


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("langfuse_llamaindex-2025-06-05.trace.json.gz", "What is Langfuse?", "Langfuse is a tool"),
        ("langfuse_openai-agents-2025-09-30.trace.json.gz", "What's the weather in Tokyo?", "The weather in Tokyo"),
        ("ls_plain.json", "howdy", "Howdy! How can I assist you today?"),
    ],
)
def test_published_traces_have_one_round_and_say_so(name, question, answer):
    run = read(name)
    [item] = run.trajectories
    assert item.question == question
    assert item.rounds[0].answer.startswith(answer)
    assert any("every trace has one round" in note for note in run.notes)


def test_expected_responses_of_mlflow_are_gold_answers():
    run = read("mlflow_traces.jsonl.gz")
    assert [item.golds for item in run.trajectories[:2]] == [("12",), ("17",)]
    assert [metrics["em"] for metrics in run.trajectories[0].metrics] == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", [*MADE, *PUBLISHED])
def test_every_trace_becomes_a_recording_without_secrets(name, tmp_path):
    out = tmp_path / "out.parquet"
    summary = import_recording(TRACES / name, out=out)
    assert summary.trajectories == read_recording(out).shape[0]
    text = str(pq.read_table(out).to_pylist()) + str(pq.read_schema(out).metadata)
    assert "of-the-fixture" not in text
    assert "Bearer" not in text


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("otlp_genai.jsonl.gz", "question_id", "session.id"),
        ("openai_batch", "question_id", "id of the trace, sample or request"),
        ("otlp_genai.jsonl.gz", "answer", "text of the reply"),
        ("docent_log.eval", "answer", "what a tool call hands in"),
        ("docent_log.eval", "golds", "the file's targets, in 5 of 5 questions"),
        ("inspect_rounds.eval", "question", "the file's own input"),
        ("mlflow_traces.jsonl.gz", "question", "last message of the user in the first call"),
        ("mlflow_traces.jsonl.gz", "cost.generator.*", "usage of 96 of 96 calls: uncached, cached, output tokens"),
        ("docent_log.eval", "includes (metric)", "score 'includes'"),
    ],
)
def test_what_traces_were_read_as_is_said(name, ours, theirs):
    assert {item.ours: item.theirs for item in read(name).readings}[ours] == theirs


def test_what_was_read_of_traces_is_shown_and_confirmed_as_of_tables(tmp_path):
    source, out = TRACES / "otlp_genai.jsonl.gz", tmp_path / "a.parquet"
    asked = []
    with pytest.raises(DataError, match="imported"):
        import_recording(source, out=out, confirm=lambda run: bool(asked.append([item.ours for item in run.readings])))
    assert asked == [["question_id", "round", "answer", "question", "cost.generator.*"]]
    assert not out.exists()
    assert "id of the question session.id usual name" in cli("import", source, "-o", out, "--details").words
    keyed = importer("otlp")(source, key="session.id").readings[0]
    assert (keyed.theirs, keyed.how) == ("session.id", "option")


def test_spans_of_phoenix_in_a_data_frame_are_read(tmp_path):
    """`get_spans_dataframe` has a column for each attribute, with dots in its name."""
    lines = gzip.decompress((TRACES / "openinference_console.jsonl.gz").read_bytes()).decode()
    rows = [dotted_fields(item) for item in values_in(lines)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = [
        {name: value if isinstance(value, str | None) else json.dumps(value) for name, value in row.items()}
        for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(texts), tmp_path / "b.parquet")
    for name in ("a.jsonl", "b.parquet"):
        assert kind_of(tmp_path / name) == "openinference"
        run = importer("openinference")(tmp_path / name)
        assert answers(run) == [expected(place) for place in range(N)]


def test_three_commands_lead_from_traces_to_a_decision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = cli("import", TRACES / "inspect_rounds.eval").words
    assert "inspect_rounds.parquet: 24 questions, 4 rounds each" in shown
    assert "suffice decide inspect_rounds.parquet" in shown
    assert "keep 4 rounds" in cli("decide", "inspect_rounds.parquet").words


def test_a_trace_is_explained_span_by_span(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = cli("import", TRACES / "otlp_pydantic_ai.jsonl.gz", "--explain").words
    for part in ("invoke_agent adder", "no model call: invoke_agent", "it calls look_up", "round 2"):
        assert part in shown
    assert not [*tmp_path.iterdir()]
    assert cli("import", TRACES / "docent_log.eval", "--explain", "--json").json["spans"][4]["read as"] == "round 1"


def test_a_trace_is_explained_at_the_position_of_its_answers():
    trace = TRACES / "otlp_genai.jsonl.gz"
    whole = cli("import", trace, "--explain", "--json").json["spans"]
    digit = cli("import", trace, "--explain", "--answer-position", "regex:[0-9]$", "--json").json["spans"]
    rounds = [n for n, span in enumerate(whole) if span["read as"].startswith("round")]
    assert rounds
    assert all(
        digit[n]["answer, or why not"] in (whole[n]["answer, or why not"][-1], "no answer at regex:[0-9]$")
        for n in rounds
    )
    assert [span["span"] for span in digit] == [span["span"] for span in whole]
    assert "tool call" in cli("import", TRACES / "docent_log.eval", "--explain", "--answer-position", "boxed").error


def test_only_traces_are_explained(tmp_path):
    (tmp_path / "a.csv").write_text("question_id,round,answer\nq1,1,Oslo\n", encoding="utf-8")
    assert "explained" in cli("import", tmp_path / "a.csv", "--explain").error


@pytest.mark.parametrize("written", [str, json.dumps, lambda messages: str(messages).replace("}, {", "}\n {")])
def test_spans_in_a_table_have_their_messages(tmp_path, written):
    path = tmp_path / "spans.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        heads = ["context.trace_id", "context.span_id", "span_kind", "start_time", "end_time"]
        table.writerow([*heads, "attributes.llm.input_messages", "attributes.llm.output_messages"])
        for q in range(5):
            for r in range(2):
                asked = [{"message.role": role, "message.content": f"{role} {q}"} for role in ("system", "user")]
                said = [{"message.role": "assistant", "message.content": f"No, {r}"}]
                times = [f"2026-01-01T00:0{q}:{second:02d}" for second in (2 * r, 2 * r + 1)]
                table.writerow([f"t{q}", f"s{r}", "LLM", *times, written(asked), written(said)])
    summary = import_recording(path, out=tmp_path / "spans.parquet")
    recording = read_recording(summary.path)
    assert (summary.clusters, recording.table.column("question")[0].as_py()) == (5, "user 0")
    assert recording.table.column("answer").to_pylist() == ["No, 0", "No, 1"] * 5
