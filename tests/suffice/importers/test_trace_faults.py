"""What trace importers refuse, leave out, or ask about."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import zipfile
from pathlib import Path

import pytest

from suffice.common.json_text import values_in
from suffice.errors import DataError, NotFoundError, SchemaError, SufficeError, UnsettledError
from suffice.importers import import_recording, importer
from suffice.importers.traces import read_inspect, read_langfuse, read_langsmith, read_mlflow, read_openai, read_otlp
from suffice.importers.traces.mlflow import mlflow_log
from tests.suffice.importers.test_traces import MADE, PUBLISHED, TRACES, answers, read

START = 1_700_000_000_000_000_000


def pairs(attributes):
    def value(item):
        kind = {bool: "boolValue", int: "intValue", float: "doubleValue"}.get(type(item), "stringValue")
        return {kind: str(item) if kind == "intValue" else item}

    return [{"key": key, "value": value(item)} for key, item in attributes.items()]


def span(text, *, trace="t1", number=1, at=None, question="Where?", parent="", code=0, **attributes):
    own = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": question,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        **attributes,
    }
    if text is not None:
        own["gen_ai.completion.0.content"] = text
    start = START + (number if at is None else at) * 1_000_000_000
    return {
        "traceId": trace,
        "spanId": f"{trace}-{number}",
        "parentSpanId": parent,
        "name": "chat",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 500_000_000),
        "attributes": pairs({name: item for name, item in own.items() if item is not None}),
        "status": {"code": code} if code else {},
    }


def otlp(path, *spans):
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}), encoding="utf-8")
    return path


READERS = {
    "otlp": ".json",
    "openinference": ".json",
    "langfuse": ".json",
    "langsmith": ".jsonl",
    "mlflow": ".json",
    "openai": ".jsonl",
}


REFUSED = {" \n": (DataError, "empty"), '{"rows": [1, 2]}\n': (SchemaError, "expected|resourceSpans")}


@pytest.mark.parametrize(("kind", "suffix"), READERS.items())
@pytest.mark.parametrize("text", REFUSED, ids=["empty", "another export"])
def test_an_empty_file_and_another_export_are_refused(kind, suffix, text, tmp_path):
    error, word = REFUSED[text]
    (tmp_path / f"given{suffix}").write_text(text, encoding="utf-8")
    with pytest.raises(error, match=word):
        importer(kind)(tmp_path / f"given{suffix}")


@pytest.mark.parametrize("name", [*MADE, *PUBLISHED])
def test_a_file_that_was_cut_off_is_refused(name, tmp_path):
    source = TRACES / name
    source = source if source.is_file() else max(source.iterdir())
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    cut = tmp_path / source.name.removesuffix(".gz")
    cut.write_bytes(raw[: len(raw) * 2 // 3])
    with pytest.raises(SufficeError, match="JSON|zip|unpacked"):
        importer((MADE | PUBLISHED)[name])(cut)
    with pytest.raises(SufficeError):
        import_recording(cut, out=tmp_path / "out.parquet")


def test_a_zip_that_is_no_inspect_log_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "some.eval", "w") as archive:
        archive.writestr("letter.txt", "hello")
    with pytest.raises(SchemaError, match=r"header\.json"):
        read_inspect(tmp_path / "some.eval")


def test_a_damaged_member_of_an_inspect_log_is_refused(tmp_path):
    raw = bytearray((TRACES / "inspect_rounds.eval").read_bytes())
    with zipfile.ZipFile(TRACES / "inspect_rounds.eval") as archive:
        place = archive.getinfo("samples/q3_epoch_1.json").header_offset
    raw[place + 200 : place + 220] = bytes(20)
    (tmp_path / "bad.eval").write_bytes(raw)
    with pytest.raises(DataError, match="unpacked"):
        read_inspect(tmp_path / "bad.eval")


def test_a_trace_without_model_calls_says_what_it_has(tmp_path):
    lone = span("Oslo", **{"gen_ai.operation.name": "invoke_agent"})
    with pytest.raises(DataError, match="invoke_agent"):
        read_otlp(otlp(tmp_path / "a.json", lone))


def test_calls_without_text_say_that_content_was_not_captured(tmp_path):
    with pytest.raises(DataError, match="captures"):
        read_otlp(otlp(tmp_path / "a.json", span(None)))


def test_there_is_no_such_file():
    with pytest.raises(NotFoundError):
        read_otlp("nowhere.json")


def test_two_conversations_of_one_id_are_asked_about(tmp_path):
    own = {"gen_ai.conversation.id": "c"}
    path = otlp(
        tmp_path / "a.json",
        span("Oslo", trace="t1", question="Capital of Norway?", **own),
        span("Lima", trace="t2", number=2, question="Capital of Peru?", **own),
    )
    with pytest.raises(UnsettledError, match="--key trace_id"):
        read_otlp(path)
    assert [item.question_id for item in read_otlp(path, key="trace_id").trajectories] == ["t1", "t2"]
    chosen = import_recording(
        path, out=tmp_path / "out.parquet", settle=lambda error: error.choices["--key trace_id"][0]
    )
    assert chosen.trajectories == 2


def test_traces_of_one_conversation_are_one_trajectory(tmp_path):
    own = {"gen_ai.conversation.id": "c"}
    run = read_otlp(
        otlp(tmp_path / "a.json", span("Lima", trace="t2", number=2, **own), span("Oslo", trace="t1", **own))
    )
    assert answers(run) == [["Oslo", "Lima"]]


def test_an_attribute_can_name_the_question(tmp_path):
    one = span("Oslo", trace="t1", **{"app.question": "q7"})
    two = span("Lima", trace="t2", number=2, **{"app.question": "q7"})
    run = read_otlp(otlp(tmp_path / "a.json", one, two), key="app.question")
    assert [item.question_id for item in run.trajectories] == ["q7"]
    with pytest.raises(DataError, match="'qid'"):
        read_otlp(tmp_path / "a.json", key="qid")
    with pytest.raises(DataError, match="secret"):
        read_otlp(tmp_path / "a.json", key="http.request.header.authorization")


def test_every_trace_needs_the_attribute_that_names_the_question(tmp_path):
    path = otlp(tmp_path / "a.json", span("Oslo", **{"app.question": "q7"}), span("Lima", trace="t2"))
    with pytest.raises(DataError, match="'t2'"):
        read_otlp(path, key="app.question")


def test_clock_ties_are_settled_by_the_messages_or_refused(tmp_path):
    longer = {"gen_ai.prompt.1.role": "assistant", "gen_ai.prompt.1.content": "Oslo"}
    run = read_otlp(otlp(tmp_path / "a.json", span("Lima", number=2, at=1, **longer), span("Oslo", at=1)))
    assert answers(run) == [["Oslo", "Lima"]]
    with pytest.raises(DataError, match="same times"):
        read_otlp(otlp(tmp_path / "b.json", span("Oslo", at=1), span("Lima", number=2, at=1)))


def test_failed_calls_are_left_out_and_a_failed_end_is_said(tmp_path):
    path = otlp(
        tmp_path / "a.json", span("half", code=2), span("Oslo", number=2), span(None, number=3, trace="t2", code=2)
    )
    run = read_otlp(path)
    first, second = run.trajectories
    assert [item.answer for item in first.rounds] == ["Oslo"]
    assert first.rounds[0].costs["generator"].calls == 2
    assert (second.end, second.rounds[0].answer) == ("failed", None)
    assert "failed model calls, left out, whose cost counts to the next round: 2" in run.notes


def test_a_call_that_failed_does_not_name_the_model(tmp_path):
    alias, model = {"gen_ai.request.model": "small"}, {"gen_ai.request.model": "small-2024"}
    path = otlp(tmp_path / "a.json", span(None, code=2, **alias), span("Oslo", number=2, **model))
    assert read_otlp(path).trajectories[0].labels["model"] == "small-2024"


def test_calls_after_the_last_answer_are_a_round_without_one(tmp_path):
    tool = {"gen_ai.completion.0.tool_calls.0.name": "search", "gen_ai.completion.0.tool_calls.0.arguments": "{}"}
    run = read_otlp(otlp(tmp_path / "a.json", span("Oslo"), span(None, number=2, **tool)))
    assert answers(run) == [["Oslo", None]]
    assert [item.costs["generator"].calls for item in run.trajectories[0].rounds] == [1, 1]


def test_an_answer_submitted_by_a_tool_is_its_field_or_json(tmp_path):
    def final(arguments, number):
        tool = {"gen_ai.completion.0.tool_calls.0.name": "final_result"}
        return span("so", number=number, **tool, **{"gen_ai.completion.0.tool_calls.0.arguments": arguments})

    path = otlp(
        tmp_path / "a.json", span("thinking"), final('{"city": "Oslo"}', 2), final('{"city": "Oslo", "n": 1}', 3)
    )
    assert answers(read_otlp(path)) == [["Oslo", '{"city": "Oslo", "n": 1}']]


def test_spans_exported_twice_are_read_once(tmp_path):
    run = read_otlp(otlp(tmp_path / "a.json", span("Oslo"), span("Oslo")))
    assert answers(run) == [["Oslo"]]
    assert "spans that were exported more than once, read once: 1" in run.notes


def test_a_folder_of_traces_is_one_run(tmp_path):
    otlp(tmp_path / "a.json", span("Oslo"))
    otlp(tmp_path / "b.json", span("Lima", trace="t2", question="And Peru?"))
    assert import_recording(tmp_path, out=tmp_path / "out" / "run.parquet").trajectories == 2


@pytest.mark.parametrize(
    ("given", "cached", "total", "uncached"),
    [(100, 80, 110, 20), (100, 80, 190, 100), (100, None, None, 100), (10, 80, None, 10)],
)
def test_cache_reads_are_taken_off_where_the_input_contains_them(given, cached, total, uncached, tmp_path):
    usage = {
        "gen_ai.usage.input_tokens": given,
        "gen_ai.usage.cache_read.input_tokens": cached,
        "gen_ai.usage.total_tokens": total,
        "gen_ai.usage.output_tokens": 10,
    }
    cost = read_otlp(otlp(tmp_path / "a.json", span("Oslo", **usage))).trajectories[0].rounds[0].costs["generator"]
    assert (cost.uncached_tokens, cost.cached_tokens, cost.output_tokens) == (uncached, cached or 0, 10)


def test_that_tokens_are_unknown_is_said(tmp_path):
    silent = {"gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}
    notes = read_otlp(otlp(tmp_path / "a.json", span("a"), span("b", number=2, **silent))).notes
    assert "tokens are unknown in 1 of 2 rounds: what is saved is counted in calls alone" in notes
    assert not any("tokens" in note for note in read_otlp(otlp(tmp_path / "b.json", span("a"))).notes)


def test_usage_that_is_missing_is_unknown(tmp_path):
    usage = dict.fromkeys(("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"))
    cost = read_otlp(otlp(tmp_path / "a.json", span("Oslo", **usage))).trajectories[0].rounds[0].costs["generator"]
    assert math.isnan(cost.uncached_tokens)
    assert math.isnan(cost.output_tokens)


def test_scores_that_are_no_metric_are_a_note(tmp_path):
    trace = json.loads(gzip.decompress((TRACES / "langfuse_langgraph-python-2025-08-22.trace.json.gz").read_bytes()))
    trace["trace"]["scores"][0]["value"] = 4
    trace["trace"]["scores"][1] |= {"dataType": "CATEGORICAL", "stringValue": "fine"}
    (tmp_path / "a.json").write_text(json.dumps(trace), encoding="utf-8")
    run = read_langfuse(tmp_path / "a.json")
    assert "the score 'hallucination' is left out: '4' is not a number in [0, 1]" in run.notes
    assert "the score 'toxicity' is left out: 'fine' is not a number in [0, 1]" in run.notes
    assert {*run.trajectories[0].metrics[0]} == {"em", "f1", "contains"}


def test_exported_observations_of_langfuse_are_read_without_their_trace(tmp_path):
    trace = json.loads(gzip.decompress((TRACES / "langfuse_agno-2025-06-11.trace.json.gz").read_bytes()))
    lines = [json.dumps(item) + "\n" for item in trace["observations"]]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    [item] = read_langfuse(tmp_path / "a.jsonl").trajectories
    assert item.question_id == trace["trace"]["id"]
    summary = import_recording(tmp_path / "a.jsonl", out=tmp_path / "a.parquet")
    assert summary.trajectories == 1


def test_runs_of_langsmith_are_read_as_lines_too(tmp_path):
    batch = json.loads(gzip.decompress((TRACES / "langsmith_batch.json.gz").read_bytes()))
    ended = {run["id"]: run for run in batch["patch"]}
    lines = [json.dumps({**run, **{k: v for k, v in ended[run["id"]].items() if v}}) + "\n" for run in batch["post"]]
    (tmp_path / "runs.jsonl").write_text("".join(lines), encoding="utf-8")
    assert answers(read_langsmith(tmp_path / "runs.jsonl")) == answers(read("langsmith_batch.json.gz"))


def test_spans_that_were_printed_one_after_the_other_are_read(tmp_path):
    lines = gzip.decompress((TRACES / "openinference_console.jsonl.gz").read_bytes()).splitlines()
    (tmp_path / "console.json").write_text("\n".join(json.dumps(json.loads(line), indent=4) for line in lines))
    assert import_recording(tmp_path / "console.json", out=tmp_path / "out.parquet").trajectories == 24


def inspect_of(path, **changes):
    """Write the published Inspect log with its first sample, or that sample's call of the model, changed."""
    log = json.loads(gzip.decompress((TRACES / "inspect_pop.json.gz").read_bytes()))
    usage = changes.pop("usage", None)
    log["samples"][0] |= changes
    if usage is not None:
        next(e for e in log["samples"][0]["events"] if e["event"] == "model")["output"]["usage"] = usage
    path.write_text(json.dumps(log), encoding="utf-8")
    return read_inspect(path)


@pytest.mark.parametrize(
    ("total", "uncached"),
    [
        (None, 64),
        (66, 24),
        (106, 64),
    ],  # by Inspect's definition; by a total that contains the reads; by one that does not
)
def test_inspects_input_has_no_cache_reads_unless_the_total_says_so(total, uncached, tmp_path):
    usage = {"input_tokens": 64, "output_tokens": 2, "input_tokens_cache_read": 40, "total_tokens": total}
    cost = inspect_of(tmp_path / "a.json", usage=usage).trajectories[0].rounds[0].costs["generator"]
    assert (cost.uncached_tokens, cost.cached_tokens) == (uncached, 40)


def test_an_inspect_log_says_how_samples_ended(tmp_path):
    def end(**changes):
        return inspect_of(tmp_path / "a.json", **changes).trajectories[0].end

    assert end(error={"message": "boom"}) == "failed"
    assert end(limit={"type": "message", "limit": 50}) == "max_rounds"


def test_the_messages_of_inspects_pool_are_resolved():
    run = read("inspect_rounds.eval")
    assert any(note.startswith("conversations whose calls have other last messages of a user") for note in run.notes)


def test_a_question_of_several_messages_is_the_users(tmp_path):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who?"}]},
    ]
    assert inspect_of(tmp_path / "a.json", input=messages).trajectories[0].question == "Who?"


def test_the_input_of_a_batch_alone_is_refused(tmp_path):
    source = TRACES / "openai_batch" / "round1_input.jsonl.gz"
    with pytest.raises(SchemaError, match="the input"):
        read_openai(source)


def test_chained_responses_are_one_conversation(tmp_path):
    def response(name, text, at, before=None):
        part = {"type": "output_text", "text": text, "logprobs": []}
        output = [{"type": "message", "role": "assistant", "content": [part]}]
        return {"id": name, "object": "response", "created_at": at, "previous_response_id": before, "output": output}

    lines = [response("r2", "Lima", 1_700_000_010, "r1"), response("r1", "Oslo", 1_700_000_000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert answers(read_openai(tmp_path / "a.jsonl")) == [["Oslo", "Lima"]]


def test_a_trace_of_mlflow_without_its_spans_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"info": {"trace_id": "tr-1"}}', encoding="utf-8")
    with pytest.raises(SchemaError, match=r"trace\.to_json\(\)"):
        read_mlflow(tmp_path / "a.json")


@pytest.mark.parametrize("status", [{"code": "ERROR"}, {"code": "STATUS_CODE_ERROR"}, {"code": 2}])
def test_a_failed_span_of_mlflow_is_known_by_any_code_of_opentelemetry(status, tmp_path):
    spans = [{"span_id": name, "status": own} for name, own in (("a", {"code": "OK"}), ("b", status), ("c", {}))]
    document = {"info": {"trace_id": "tr-1"}, "data": {"spans": spans}}
    (tmp_path / "a.json").write_text(json.dumps(document), encoding="utf-8")
    assert [item.failed for item in mlflow_log(tmp_path / "a.json").spans] == [False, True, False]


def test_a_published_response_with_log_probabilities_is_read():
    path = Path(__file__).resolve().parents[2] / "data" / "logprobs"
    [item] = read_openai(min(path.glob("*.json"))).trajectories
    assert item.rounds[0].answer_tokens


@pytest.mark.parametrize("value", ["²", "--1", "9" * 5000, 10**400], ids=["power", "signs", "digits", "huge"])
def test_digits_that_are_no_number_are_an_unknown_count_and_no_time(value, tmp_path):
    usage = {"gen_ai.usage.input_tokens": value, "gen_ai.usage.output_tokens": value}
    (item,) = read_otlp(otlp(tmp_path / "a.json", span("Oslo", **usage))).trajectories
    cost = item.rounds[0].costs["generator"]
    assert math.isnan(cost.uncached_tokens)
    assert math.isnan(cost.output_tokens)
    untimed = {**span("Oslo"), "startTimeUnixNano": value}
    with pytest.raises(DataError, match="a time"):
        read_otlp(otlp(tmp_path / "b.json", untimed))


ODD = (None, 0, True, "", "{", [], {}, [None], [[]], {"a": 1}, float("inf"), "2025-13-01")


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(min(len(value), 2)):
            yield from places(value[key], (*path, key))


@pytest.mark.parametrize(
    "name", ["otlp_openllmetry.jsonl.gz", "langsmith_langchain.json.gz", "langfuse_llamaindex-2025-06-05.trace.json.gz"]
)
def test_odd_values_never_end_in_an_internal_error(name, tmp_path):
    raw = gzip.decompress((TRACES / name).read_bytes())
    document = next(values_in(raw.decode()))
    for number, path in enumerate([place for place in places(document) if place][::13]):
        changed = json.loads(json.dumps(document))
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = ODD[number % len(ODD)]
        (tmp_path / "a.json").write_text(json.dumps(changed), encoding="utf-8")
        with contextlib.suppress(SufficeError):
            importer(PUBLISHED.get(name, "otlp"))(tmp_path / "a.json").rows()
