"""Traces of loops that also grade or rewrite: which calls are the answers is asked, and a printed option chooses them."""

from __future__ import annotations

import json

import pytest

from suffice import import_recording, read_recording
from suffice.errors import DataError
from suffice.importers.traces import explain_trace
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import imported, offered, written

N, ROUNDS = 20, 3
ANSWER, GRADE = "Answer in few words.", "Is the answer grounded?"


def question(q):
    return f"Where does caravan {q} stop?"


def calls(q, first="answer"):
    """Return the system prompt, the prompt and the reply of each call: answers and grades in turn, or rewritings and answers."""
    for r in range(ROUNDS):
        city = CITIES[(q + (r == 0)) % 4]
        answer = (ANSWER, f"Context: {r}\n\n{question(q)}", city)
        if first == "answer":
            yield from (answer, (GRADE, f"Reply {city}", "yes" if r else "no"))
        else:
            yield from (("", f"Rewrite as a query: {question(q)}", f"caravan {q} {r}"), answer)


def messages(system, prompt):
    said = [{"role": "system", "content": system}] if system else []
    return [*said, {"role": "user", "content": prompt}]


def langfuse(path, of_call=lambda i: {}, systems=True, first="answer"):
    lines = [
        {
            "id": f"{q}-{i}",
            "traceId": f"t{q}",
            "type": "GENERATION",
            "parentObservationId": None,
            "name": "call",
            "startTime": f"2026-01-01T10:{q:02d}:{i:02d}Z",
            "endTime": f"2026-01-01T10:{q:02d}:{i:02d}.5Z",
            "input": messages(system if systems else "", prompt),
            "output": reply,
            **of_call(i),
        }
        for q in range(N)
        for i, (system, prompt, reply) in enumerate(calls(q, first))
    ]
    return written(path, lines)


def phoenix(path):
    spans = []
    for q in range(N):
        common = {"context.trace_id": f"t{q}", "status_code": "OK"}
        root = {"name": "rag", "parent_id": None, "span_kind": "CHAIN", "attributes.input.value": question(q)}
        spans.append({**common, "context.span_id": f"{q}", "start_time": f"2026-01-01T10:{q:02d}:00Z", **root})
        for i, (system, prompt, reply) in enumerate(calls(q, "rewrite"), start=1):
            said = [{f"message.{name}": text for name, text in own.items()} for own in messages(system, prompt)]
            spans.append(
                {
                    **common,
                    "context.span_id": f"{q}-{i}",
                    "parent_id": f"{q}",
                    "name": "Chat",
                    "span_kind": "LLM",
                    "start_time": f"2026-01-01T10:{q:02d}:{i:02d}Z",
                    "attributes.llm.input_messages": said,
                    "attributes.output.value": reply,
                }
            )
    return written(path, spans)


def read_as_printed(refused, value):
    command = refused.command(f"--where {value}")
    cli(*command, code=0)
    return read_recording(command[command.index("-o") + 1])


@pytest.mark.parametrize(
    ("of_call", "systems", "value"),
    [
        (lambda i: {"metadata": {"langgraph_node": ("generate", "grade")[i % 2]}}, True, "langgraph_node=generate"),
        (lambda i: {"name": ("generate", "grade")[i % 2]}, True, "span_name=generate"),
        (lambda i: {}, True, f"'system={ANSWER}'"),
        (lambda i: {}, False, "prompt=Context"),
        (lambda i: {"input": "Go on."}, False, "reply="),
    ],
)
def test_which_of_the_calls_in_turn_are_answers_is_asked(of_call, systems, value, tmp_path):
    path = langfuse(tmp_path / "log.jsonl", of_call, systems)
    refused = cli("import", path, "-o", tmp_path / "log.parquet", "--yes", code=2)
    recording = read_as_printed(refused, value)
    said = [CITIES[(q + (r == 0)) % 4] for q in range(N) for r in range(ROUNDS)]
    assert recording.table.column("answer").to_pylist() == said
    assert recording.column("cost.generator.calls").tolist() == [[2.0] * ROUNDS] * N


def test_rewritten_queries_are_no_rounds_but_cost(tmp_path):
    path = phoenix(tmp_path / "spans.jsonl")
    golds = tmp_path / "dataset.csv"
    golds.write_text("input,expected_output\n" + "".join(f"{question(q)},{CITIES[q % 4]}\n" for q in range(N)))
    done = cli("import", path, "--golds", golds, "-o", tmp_path / "log.parquet", "--yes")
    assert f"(--where 'system={ANSWER}')" in done.words
    recording = read_recording(tmp_path / "log.parquet")
    assert recording.column("em").tolist() == [[0, 1, 1]] * N
    assert recording.column("cost.generator.calls").tolist() == [[2.0] * ROUNDS] * N


def test_calls_of_several_kinds_may_all_be_answers(tmp_path):
    path = langfuse(tmp_path / "log.jsonl")
    assert offered(path, match="in turn")[-1] == "--expected other-calls"
    assert imported(path, expected=["other-calls"]).rounds == 2 * ROUNDS


def test_a_kind_that_no_call_has_is_refused_with_those_there_are(tmp_path):
    path = langfuse(tmp_path / "log.jsonl")
    with pytest.raises(DataError, match="Is the answer"):
        imported(path, where={"system": "Plan."})
    with pytest.raises(DataError, match="calls differ in"):
        imported(path, where={"stage": "grade"})


def test_calls_that_are_not_chosen_are_explained(tmp_path):
    path = langfuse(tmp_path / "log.jsonl")
    table = explain_trace(path, "langfuse", where={"system": ANSWER})
    assert [row[2] for row in table.rows] == [
        f"round {i // 2 + 1}" if i % 2 == 0 else "cost of an answer" for i in range(6)
    ]


@pytest.mark.parametrize("systems", [[ANSWER, GRADE, GRADE, GRADE], [ANSWER, ANSWER, GRADE, GRADE]])
def test_kinds_that_do_not_come_again_are_rounds(systems, tmp_path):
    path = langfuse(
        tmp_path / "log.jsonl", lambda i: {"input": messages((*systems, GRADE, GRADE)[i], "Where?"), "output": f"{i}"}
    )
    assert imported(path).rounds == 2 * ROUNDS


def test_a_node_in_the_metadata_of_phoenix_tells_calls_apart(tmp_path):
    path = phoenix(tmp_path / "spans.jsonl")
    spans = [json.loads(line) for line in path.read_text().splitlines()]
    for place, span in enumerate(span for span in spans if span["span_kind"] == "LLM"):
        span["attributes.metadata"] = json.dumps({"langgraph_node": ("rewrite", "generate")[place % 2]})
    written(path, spans)
    assert "--where langgraph_node=generate" in offered(path, match="in turn")


def test_gold_answers_that_do_not_join_show_both_questions(tmp_path):
    golds = tmp_path / "golds.csv"
    golds.write_text("input,expected_output\nWho wrote it?,Oslo\n")
    with pytest.raises(DataError, match="the file asks") as error:
        import_recording(
            phoenix(tmp_path / "spans.jsonl"), out=tmp_path / "x.parquet", golds=golds, where={"system": ANSWER}
        )
    assert repr(question(0)) in str(error.value)


def outermost(kind):
    asked, prompt = question(0), f"Context: snow\n{question(0)}"
    if kind == "langsmith":
        usual = {"trace_id": "t", "start_time": "2026-01-01T10:00:00", "end_time": "2026-01-01T10:00:01"}
        yield {**usual, "id": "a", "run_type": "chain", "inputs": {"question": asked}}
        call = {"inputs": {"messages": messages("", prompt)}, "outputs": {"output": "Oslo"}}
        yield {**usual, "id": "b", "parent_run_id": "a", "run_type": "llm", **call}
    else:
        usual = {"traceId": "t", "startTime": "2026-01-01T10:00:00Z", "endTime": "2026-01-01T10:00:01Z"}
        yield {**usual, "id": "a", "type": "SPAN", "input": {"question": asked}, "parentObservationId": None}
        call = {"input": messages("", prompt), "output": "Oslo"}
        yield {**usual, "id": "b", "parentObservationId": "a", "type": "GENERATION", **call}


@pytest.mark.parametrize("kind", ["langsmith", "langfuse"])
def test_the_question_is_what_the_outermost_span_was_asked(kind, tmp_path):
    path = written(tmp_path, outermost(kind))
    import_recording(path, kind, out=tmp_path / "log.parquet")
    assert read_recording(tmp_path / "log.parquet").table.column("question").to_pylist() == [question(0)]
