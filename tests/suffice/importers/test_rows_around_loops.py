"""Rows of what happens before a loop and after it are no rounds and no calls, and rows without an id or a number are asked about."""

from __future__ import annotations

import math
import random

import pytest

from suffice.errors import NotFoundError
from suffice.importers.tables import table_parts
from suffice.recordings import read_recording
from tests.support.logs import asked, by_command, imported, offered, recorded, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo")
N, ROUNDS = 30, 3
RULED = ("customs_ruling", "duty_paid", "released")
TOKENS = {"prompt_tokens": 300, "completion_tokens": 9}


def said(q, r):
    return CITIES[(q + (r < ROUNDS and (q + r) % 3 == 0)) % 4]


def stream(*, before=(), after=(), around=(), numbered=True, paid=None, key="id", name="event", n=N):
    """Return rows of events: those before the rounds of each question, an event and an answer in each round, and those after."""
    log = []
    for q in range(n):
        row = {key: f"C{q}"}
        log += [{**row, name: kind} for kind in before]
        for r in range(1, ROUNDS + 1):
            number = {"round": r} if numbered else {}
            log += [{**row, name: kind, **number} for kind in around]
            log.append(
                {**row, name: "classified", **number, "answer": said(q, r), "gold": CITIES[q % 4], **(paid or {})}
            )
        log += [{**row, name: kind} for kind in after]
    return log


def calls_of(recording):
    names = [name for name in recording.table.column_names if name == "cost.generator.calls"]
    counts = recording.column(names[0]).tolist()[0] if names else []
    return [1 if math.isnan(n) else n for n in counts] or [1] * recording.shape[1]


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"after": RULED}, 1),
        ({"after": RULED, "numbered": False}, 1),
        ({"before": ("submitted", "documents_checked"), "after": RULED, "around": ("lookup",)}, 2),
        ({"before": ("queued",), "after": ("human_review", "ticket_closed"), "paid": TOKENS}, 1),
        ({"before": ("received",), "after": ("email_sent",), "around": ("tool_call",), "paid": TOKENS}, 1),
        ({"after": ("billed", "archived"), "name": "status"}, 1),
    ],
)
def test_events_around_a_loop_are_no_calls(tmp_path, options, calls):
    summary, recording = recorded(tmp_path, stream(**options))
    assert recording.shape == (N, ROUNDS)
    assert calls_of(recording) == [calls] * ROUNDS
    (note,) = [note for note in summary.notes if "are around the loop" in note]
    assert all(repr(kind) in note for kind in [*options.get("before", ()), *options["after"]])


def test_a_filter_of_answers_charges_no_event_after_the_loop(tmp_path):
    _, recording = recorded(tmp_path, stream(after=RULED), where={"event": "classified"})
    assert calls_of(recording) == [1] * ROUNDS


@pytest.mark.parametrize("kind", ["verify", "rewrite", "abstained", "timeout", "error"])
def test_work_and_failed_calls_stay_calls_where_nothing_has_costs(tmp_path, kind):
    _, recording = recorded(tmp_path, stream(after=(kind,)), where={"event": "classified"})
    assert calls_of(recording) == [1, 1, 2]


def test_an_event_between_answers_is_a_call(tmp_path):
    log = [
        row
        for own in stream(around=("lookup",), numbered=False)
        for row in ([own, {"id": own["id"], "event": "released"}] if own["event"] == "classified" else [own])
    ]
    _, recording = recorded(tmp_path, log, where={"event": "classified"})
    assert calls_of(recording) == [2, 3, 4]


def test_costs_after_the_last_answer_are_asked_about(tmp_path):
    log = [
        {**row, **(TOKENS if row["event"] == "report" else {})}
        for row in stream(after=("report",), numbered=False, paid=TOKENS)
    ]
    source = written(tmp_path, log)
    error = asked(source, match="'report'")
    left_out, charged = (own[0] for own in error.choices.values())
    assert [*error.choices] == ["--where 'event!=report'", "--where 'event!='"]
    recording = read_recording(imported(source, **left_out).path)
    assert recording.column("cost.generator.output_tokens").tolist()[0] == [9, 9, 9]
    where = {**charged["where"], "event": "classified"}
    recording = read_recording(imported(source, where=where).path)
    assert recording.column("cost.generator.output_tokens").tolist()[0] == [9, 9, 18]
    assert calls_of(recording) == [1, 1, 2]


def test_a_printed_filter_that_leaves_rows_out_works(tmp_path):
    log = [
        {**row, **(TOKENS if row["event"] == "report" else {})}
        for row in stream(after=("report",), numbered=False, paid=TOKENS)
    ]
    assert by_command(tmp_path, log, "--where", "event!=report").code == 0


def test_a_sum_of_tokens_after_the_loop_is_left_out(tmp_path):
    paid, total = {"total_tokens": 40}, {"total_tokens": 40 * ROUNDS}
    log = [
        {**row, **(total if row["event"] == "summary" else {})}
        for row in stream(after=("summary",), numbered=False, paid=paid)
    ]
    summary, recording = recorded(tmp_path, log)
    assert recording.shape == (N, ROUNDS)
    assert any("'summary' are around the loop" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("paid", "total"), [(TOKENS, {"total_tokens": 309 * ROUNDS}), ({"cost_usd": 0.01}, {"cost_usd": 0.03})]
)
def test_sums_of_other_kinds_are_no_calls(tmp_path, paid, total):
    log = [
        {**row, **(total if row["event"] == "metrics" else {})}
        for row in stream(after=("metrics",), numbered=False, paid=paid)
    ]
    _, recording = recorded(tmp_path, log)
    assert recording.shape == (N, ROUNDS)


def test_runs_of_a_question_each_have_events_around_them(tmp_path):
    log = [
        {**row, "model": model}
        for model in ("big", "small")
        for row in stream(before=("received",), after=("archived",))
    ]
    summary = imported(written(tmp_path, log))
    assert (summary.trajectories, summary.rounds) == (2 * N, ROUNDS)


def test_answers_of_people_are_asked_about(tmp_path):
    log = [
        own
        for row in stream(after=("human_answer",), numbered=False)
        for own in [{**row, "answer": row.get("answer", "Oslo")}]
    ]
    source = written(tmp_path, log)
    assert offered(source, match="person's") == ["--where 'event!=human_answer'", "--where 'event!='"]
    assert imported(source, where={"event!": "human_answer"}).rounds == ROUNDS
    assert imported(source, where={"event!": ""}, expected=["other-speakers"]).rounds == ROUNDS + 1


@pytest.mark.parametrize("name", ["status", "event"])
def test_rounds_that_were_not_run_are_left_out(tmp_path, name):
    log = [
        {
            "id": q,
            "round": r,
            name: "ok" if r <= 1 + q % 3 else "skipped",
            "answer": said(q, r) if r <= 1 + q % 3 else None,
            "gold": CITIES[q % 4],
        }
        for q in range(N)
        for r in (1, 2, 3)
    ]
    summary = imported(written(tmp_path, log))
    assert [means.n for means in summary.by_round] == [N, 2 * N // 3, N // 3]
    assert any("30 rows left out whose" in note for note in summary.notes)


def test_a_skipped_round_between_answers_stays(tmp_path):
    log = [
        {
            "id": q,
            "round": r,
            "status": "skipped" if (q % 2, r) == (1, 2) else "ok",
            "answer": None if (q % 2, r) == (1, 2) else said(q, r),
            "gold": CITIES[q % 4],
        }
        for q in range(N)
        for r in (1, 2, 3)
    ]
    assert [means.n for means in imported(written(tmp_path, log)).by_round] == [N, N, N]


def test_rounds_without_an_answer_are_no_steps(tmp_path):
    log = [
        {
            "id": q,
            "round": r,
            "event": "abstained" if (q % 2, r) == (1, 3) else "answered",
            "answer": None if (q % 2, r) == (1, 3) else said(q, r),
            "gold": CITIES[q % 4],
        }
        for q in range(N)
        for r in (1, 2, 3)
    ]
    assert [means.n for means in imported(written(tmp_path, log)).by_round] == [N, N, N]


def test_large_logs_lose_the_events_around_their_loops(tmp_path, monkeypatch):
    monkeypatch.setattr(table_parts, "LARGE", 0)
    summary, recording = recorded(tmp_path, stream(before=("submitted",), after=RULED))
    assert recording.shape == (N, ROUNDS)
    assert any("some rows are around the loop" in note for note in summary.notes)


def test_an_unknown_event_cannot_be_left_out(tmp_path):
    with pytest.raises(NotFoundError, match="event 'paid'"):
        imported(written(tmp_path, stream(after=RULED)), where={"event!": "paid,released"})


def test_a_ruling_after_the_loop_may_be_the_gold_answer(tmp_path):
    log = [
        {**row, "correct_code": CITIES[int(row["id"][1:]) % 4]} if row["event"] == "customs_ruling" else row
        for row in stream(after=RULED)
    ]
    log = [{name: value for name, value in row.items() if name != "gold"} for row in log]
    source = written(tmp_path, log)
    assert any("--column golds=correct_code" in note for note in imported(source).notes)
    assert imported(source, columns={"golds": "correct_code"}).by_round[-1].em == 1


def test_events_are_ordered_by_their_times(tmp_path):
    log = stream(before=("received",), after=("invoice_sent",), numbered=False)
    log = [{"ts": f"2026-01-{1 + place // 24:02d}T{place % 24:02d}:00:00Z", **row} for place, row in enumerate(log)]
    random.Random(4).shuffle(log)
    _, recording = recorded(tmp_path, log)
    read = [(row["question_id"], row["answer"]) for row in recording.table.to_pylist()]
    assert sorted(read) == sorted((f"C{q}", said(q, r)) for q in range(N) for r in (1, 2, 3))
    assert all(row["answer"] == row["golds"][0] for row in recording.table.to_pylist() if row["round"] == ROUNDS)


def test_a_file_that_is_sorted_by_events_tells_no_order(tmp_path):
    log = sorted(stream(around=("lookup",)), key=lambda row: row["event"])
    summary, recording = recorded(tmp_path, log)
    assert calls_of(recording) == [2] * ROUNDS
    assert not any("around the loop" in note for note in summary.notes)


def test_events_in_lists_are_left_out(tmp_path):
    log = [
        {
            "id": q,
            "gold": CITIES[q % 4],
            "steps": [
                {"type": "received"},
                *({"type": "draft", "output": said(q, r)} for r in (1, 2, 3)),
                {"type": "email_sent"},
            ],
        }
        for q in range(N)
    ]
    _, recording = recorded(tmp_path, log)
    assert recording.shape == (N, ROUNDS)


def test_steps_by_number_without_answers_stay_rounds(tmp_path):
    log = [
        {
            "id": q,
            "round": r,
            "step": f"{r}",
            "answer": said(q, r) if r < 3 or q % 5 == 0 else None,
            "gold": CITIES[q % 4],
        }
        for q in range(N)
        for r in (1, 2, 3)
    ]
    assert imported(written(tmp_path, log)).rounds == 3


@pytest.mark.parametrize("most", [1, 2])
def test_rows_of_a_kind_that_never_answers_are_asked_about(tmp_path, most):
    kinds = {q: ["answered"] * (1 + q % most) + ["verify"] for q in range(N)}
    log = [
        {"id": q, "event": kind, "answer": CITIES[(q + place) % 4] if kind == "answered" else None}
        for q in range(N)
        for place, kind in enumerate(kinds[q])
    ]
    assert offered(written(tmp_path, log), match="no answer in") == [
        "--where event=answered",
        "--expected empty-rounds",
    ]


@pytest.mark.parametrize("event", ["chunk", "delta", "tool_result"])
def test_pieces_of_an_answer_are_no_calls(tmp_path, event):
    _, recording = recorded(tmp_path, stream(around=(event, event), paid=TOKENS))
    assert calls_of(recording) == [1] * ROUNDS


def test_a_warm_up_is_no_question(tmp_path):
    log = [{"id": f"warmup-{q}", "round": 1, "answer": "ok", "phase": "run"} for q in range(3)]
    log += [{"id": "C99", "round": 1, "answer": "ok", "phase": "health_check"}]
    log += [{**row, "phase": "run"} for row in stream(name="kind")]
    summary, recording = recorded(tmp_path, log)
    assert recording.shape == (N, ROUNDS)
    assert any("4 rows left out that 'id', 'phase'" in note for note in summary.notes)


def test_totals_at_the_end_of_a_file_are_asked_about(tmp_path):
    log = [*stream(), {"id": "TOTAL", "round": None, "answer": None}]
    source = written(tmp_path, [{name: value for name, value in row.items() if name != "event"} for row in log])
    assert offered(source, match="Which rows") == ["--where 'round=*'", "--column round="]
    assert imported(source, where={"round": "*"}).clusters == N


def test_a_last_row_about_the_whole_run_has_no_id(tmp_path):
    log = [{**row, "id": int(row["id"][1:])} for row in stream()]
    log = [*log, {"event": "run_end", "n_questions": N}]
    source = written(tmp_path, log)
    assert offered(source, match="id is empty") == ["--where event=classified"]
    log = [{name: value for name, value in row.items() if name != "event"} for row in log]
    assert imported(written(tmp_path, log)).clusters == N  # nothing that is read is lost with it
    log[-1]["gold"] = "Lima"
    source = written(tmp_path, log)
    assert offered(source, match="id is empty") == ["--where 'id=*'"]
    assert imported(source, where={"id": "*"}).clusters == N


def test_rows_without_a_number_are_told_by_their_kind(tmp_path):
    log = stream(after=("verify",), around=("verify",))
    log = [{**row, "round": None} if row["event"] == "verify" else row for row in log]
    source = written(tmp_path, log)
    assert offered(source, match="round is None")[0] == "--where event=classified"
    _, recording = recorded(tmp_path, log, where={"event": "classified"})
    assert recording.shape == (N, ROUNDS)


def test_a_kind_names_the_rows_that_have_ids_of_questions(tmp_path):
    log = [{**row, "round": row.get("round", 0)} for row in stream(after=("verify", "rerun"), key="declaration")]
    source = written(tmp_path, log)
    assert offered(source)[0] == "--where event=classified"
    assert imported(source, where={"event": "classified"}, columns={"question_id": "declaration"}).clusters == N


def test_last_rows_without_an_answer_are_asked_about(tmp_path):
    answered = {q: 1 + q % 3 for q in range(1, 2 * N)} | {0: 4}
    log = [
        {"id": q, "answer": said(q, r) if r <= answered[q] else None, "gold": CITIES[q % 4]}
        for q in answered
        for r in range(1, answered[q] + 1 + (q > 0))
    ]
    assert offered(written(tmp_path, log), match="round of 59") == [
        "--where 'answer=*'",
        "--expected empty-rounds",
    ]


@pytest.mark.parametrize("kind", ["tool", "user"])
def test_messages_of_several_speakers_are_asked_about(tmp_path, kind):
    log = [{**row, "event": kind} if row["event"] == "lookup" else row for row in stream(around=("lookup",))]
    assert offered(written(tmp_path, log)) == ["--where event=classified"]


def test_steps_that_never_answer_are_no_loops_of_their_own(tmp_path):
    log = [
        row
        for q in range(N)
        for row in [{"id": q, "step": "plan"}, *({"id": q, "step": "answer", "answer": said(q, r)} for r in (1, 2, 3))]
    ]
    source = written(tmp_path, log)
    assert offered(source) == ["--where step=answer", "--column round="]
