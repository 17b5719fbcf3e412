"""Traces of Langfuse whose observations name no parents."""

from __future__ import annotations

import json

import pytest

from suffice.evaluation.replay.outcomes import measured_quality
from suffice.importers import kind_of
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import imported

GOLDS = ("4.2 million", "Lima")
WRONG = (("3 million", "5.2 million", "7 million"), ("Oslo", "Rome", "Bern"))


def trace(q, n_rounds, *, upper=True):
    """Return a trace with a search before each answer; the last answer is right."""
    name = f"{q:032x}"

    def observation(kind, second, **fields):
        own = {"id": f"{name[-8:]}{second}{kind}", "traceId": name, "type": kind, "name": kind.lower()}
        return {
            **own,
            "startTime": f"2025-09-01T10:00:{second:02}Z",
            "endTime": f"2025-09-01T10:00:{second:02}Z",
            **fields,
        }

    made = []
    for r in range(n_rounds):
        said = GOLDS[q % 2] if r == n_rounds - 1 else WRONG[q % 2][(q + r) % 3]
        made.append(observation("SPAN", 2 * r, input={"query": "sales"}, output={"hits": 3}))
        usage = {"input": 200 + r, "output": 4, "unit": "TOKENS"}
        asked = [{"role": "user", "content": f"How many were sold in year {q}?"}]
        reply = {"role": "assistant", "content": said}
        made.append(observation("GENERATION", 2 * r + 1, input=asked, output=reply, usage=usage))
    return {
        "id": name,
        "timestamp": "2025-09-01T10:00:00Z",
        "metadata": {"expected_answer": GOLDS[q % 2]},
        "scores": [{"name": "liked", "value": 1, "dataType": "NUMERIC"}],
        "observations": made,
    }


def rows_of(traces):
    """Return the same answers as rows of a table."""
    return [
        {"id": item["id"], "round": r, "answer": own["output"]["content"], "gold": item["metadata"]["expected_answer"]}
        for item in traces
        for r, own in enumerate((o for o in item["observations"] if o["type"] == "GENERATION"), start=1)
    ]


@pytest.mark.parametrize("make", [lambda one: one, lambda one: [one], lambda one: one["observations"]])
def test_observations_without_parents_are_recognised(tmp_path, make):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(make(trace(7, 3))))
    assert kind_of(path) == "langfuse"
    assert imported(path).rounds == 3


def test_traces_choose_the_metric_as_tables_do(tmp_path):
    traces = [trace(q, 3) for q in range(30)]
    path, table = tmp_path / "traces.json", tmp_path / "table.json"
    path.write_text(json.dumps(traces))
    table.write_text(json.dumps(rows_of(traces)))
    read = [read_recording(imported(own).path) for own in (path, table)]
    assert [measured_quality(own) for own in read] == ["em", "em"]
    assert len({own.metadata["whole_answers"] for own in read}) == 1


def test_import_of_traces_does_not_say_why_they_end(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps([trace(q, 2 + q % 2) for q in range(30)]))
    said = cli("import", tmp_path / "traces.json", "-o", tmp_path / "r.parquet", code=0).words
    assert "15 ended earlier, 15 have all of them" in said
    assert "for a reason that the log does not give" in said
    said = cli("import", tmp_path / "traces.json", "-o", tmp_path / "r.parquet", "--ended", "rule", code=0).words
    assert "15 stopped by themselves" in said
