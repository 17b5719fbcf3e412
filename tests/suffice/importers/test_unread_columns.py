"""Columns that no usual name tells: the import offers them, finds them where they are, or leaves them alone."""

from __future__ import annotations

import json

import pytest

from suffice import import_recording, read_recording
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import imported, offered, written


def rounds(n=30):
    """Yield question, round, answer and gold answer."""
    return [(q, r, CITIES[(q + r) % 4], CITIES[q % 4]) for q in range(n) for r in (1, 2)]


def test_lists_of_objects_are_no_gold_answers(tmp_path):
    rows = [{"id": q, "round": r, "answer": said, "labels": [{"key": "env"}]} for q, r, said, _ in rounds()]
    summary = imported(written(tmp_path, rows))
    assert summary.judged_by == ()


def test_the_same_question_everywhere_names_no_question(tmp_path):
    rows = [
        {"question": "Is it so?", "claim": f"Claim {q}", "iteration": r, "answer": said, "gold": gold}
        for q, r, said, gold in rounds()
    ]
    path = written(tmp_path, rows)
    assert offered(path, match="same question")[0] == "--column question="
    said = imported(path, columns={"question": ""})
    assert any("--column question_id=claim" in note for note in said.notes)
    assert (said.clusters, said.rounds) == (30, 2)


def test_versions_are_rounds_and_their_ratings_signals(tmp_path):
    rows = [{"Question": f"Where is {q}?", **{f"Draft v{r}": CITIES[(q + r) % 4] for r in (1, 2)}} for q in range(30)]
    rows = [{**row, "Rating v1": q % 5, "Rating v2": 3} for q, row in enumerate(rows)]
    summary = imported(written(tmp_path, rows))
    assert summary.rounds == 2
    assert read_recording(summary.path).column("rating").tolist()[1] == [1.0, 3.0]


@pytest.mark.parametrize("form", ["2026-03-02 08:{:02d}:00.000000 UTC", "Mar 2, 2026 @ 08:{:02d}:00.000"])
def test_times_of_other_programs_order_rows(tmp_path, form):
    rows = [{"id": q, "ts": form.format(q + 3 - r), "answer": said, "gold": gold} for q, r, said, gold in rounds()]
    recording = read_recording(imported(written(tmp_path / "a.jsonl", rows)).path)
    assert recording.table.column("answer").to_pylist()[:2] == [rows[1]["answer"], rows[0]["answer"]]


def test_texts_with_weak_names_are_offered(tmp_path):
    rows = [{"id": q, "round": r, "content": [{"tool": "search"}] if r == 1 else said} for q, r, said, _ in rounds()]
    assert offered(written(tmp_path, rows), match="'content' differs") == [
        "--column answer=content",
        "--column answer=",
    ]


def test_what_a_filter_leaves_out_may_have_the_gold_answer(tmp_path):
    rows = [{"id": q, "node": "answer", "output": said} for q, _, said, _ in rounds()]
    rows += [{"id": q, "node": "root", "facts": {"right": CITIES[q % 4]}} for q in range(30)]
    path, where = written(tmp_path, rows), {"node": "answer"}
    summary = imported(path, where=where, columns={"golds": "facts.right"})
    assert [mean.scored for mean in summary.by_round] == [30, 30]


def test_metadata_of_a_trace_may_have_the_gold_answer(tmp_path):
    spans = []
    for q, r, said, gold in rounds():
        own = {"traceId": f"t{q}", "parentObservationId": f"root{q}", "endTime": f"2026-01-01T00:0{r}:01Z"}
        spans.append(
            {**own, "id": f"{q}-{r}", "type": "GENERATION", "startTime": f"2026-01-01T00:0{r}:00Z", "output": said}
        )
        if r == 1:
            root = {**own, "parentObservationId": None, "metadata": {"expected_output": gold}, "type": "SPAN"}
            spans.append({**root, "id": f"root{q}", "startTime": "2026-01-01T00:00:00Z"})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(spans), "utf-8")
    assert imported(path).judged_by == ("em",)


@pytest.mark.parametrize(("path", "names"), [("tokens", ("prompt", "completion")), ("meta.usage", ("in", "out"))])
def test_tokens_in_an_object_are_read(tmp_path, path, names):
    def nested(values):
        for part in reversed(path.split(".")):
            values = {part: values}
        return values

    rows = [
        {"id": q, "round": r, "answer": said, "gold": gold, **nested(dict(zip(names, (9 * r, q + 1), strict=True)))}
        for q, r, said, gold in rounds()
    ]
    summary = import_recording(written(tmp_path / "log.jsonl", rows), out=tmp_path / "log.parquet")
    recording = read_recording(summary.path)
    assert recording.column("cost.generator.uncached_tokens")[3].tolist() == [9, 18]
    assert recording.column("cost.generator.output_tokens")[3].tolist() == [4, 4]


def test_tokens_under_other_words_of_an_object_are_offered(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": said, "gold": gold, "usage": {"eingabe": 9 * r, "cost": 0.1 * r}}
        for q, r, said, gold in rounds()
    ]
    (note,) = [
        note
        for note in import_recording(written(tmp_path / "log.jsonl", rows), out=tmp_path / "log.parquet").notes
        if note.startswith("'usage.eingabe' is not read")
    ]
    assert "--column cost.generator.uncached_tokens=usage.eingabe" in note
    assert "usage.cost" not in note
    assert "no column has" not in note


def test_a_score_inside_an_object_is_offered_beside_golds_and_without(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": said, "gold": gold, "review": {"stars": 1 + (q * r) % 5}}
        for q, r, said, gold in rounds()
    ]
    for own in (rows, [{name: value for name, value in row.items() if name != "gold"} for row in rows]):
        shown = cli("import", written(tmp_path / "log.jsonl", own), "--yes", "-o", tmp_path / "log.parquet").words
        assert "--metric-column review_stars=review.stars:1..5" in shown
        assert "not read" not in shown


def test_a_score_of_a_ticket_is_said_to_judge_no_earlier_stop(tmp_path):
    rows = [
        {"ticket": {"id": f"T{q}", "stars": 1 + q % 5}, "drafts": [{"answer": CITIES[(q + r) % 4]} for r in (1, 2)]}
        for q in range(30)
    ]
    shown = cli("import", written(tmp_path / "log.jsonl", rows), "--yes", "-o", tmp_path / "log.parquet").words
    assert (
        "'ticket.stars' is known once of a question, not of each round: as a score it cannot judge an earlier stop"
        in shown
    )


@pytest.mark.parametrize("name", ["subject", "case.text", "claim", "source"])
def test_a_text_of_its_own_for_each_question_asks_it(tmp_path, name):
    above, _, last = name.rpartition(".")

    def log(text_of):
        rows = [
            {"id": q, "drafts": [{"answer": CITIES[(q + r) % 4]} for r in (1, 2)]}
            | ({above: {last: text_of(q)}} if above else {last: text_of(q)})
            for q in range(30)
        ]
        return import_recording(written(tmp_path / "log.jsonl", rows), out=tmp_path / "log.parquet")

    assert log(lambda q: f"Where is tower {q}?").preview.question == "Where is tower 0?"
    assert log(lambda q: ("Geography", "History")[q % 2]).preview.question is None


def test_an_address_of_its_own_for_each_question_asks_nothing(tmp_path):
    rows = [{"id": q, "round": r, "answer": said, "source": f"docs/{q}.pdf"} for q, r, said, _ in rounds()]
    assert (
        import_recording(written(tmp_path / "log.jsonl", rows), out=tmp_path / "log.parquet").preview.question is None
    )


def test_golds_in_an_object_with_other_fields_are_read(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": said, "gold": {"answer": gold, "source": f"page {q}"}}
        for q, r, said, gold in rounds()
    ]
    summary = import_recording(written(tmp_path / "log.jsonl", rows), out=tmp_path / "log.parquet")
    assert summary.preview.golds == (CITIES[0],)
