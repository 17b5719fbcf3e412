"""Streams of events: what happens to a case before and after its loop, pieces of answers, and rows about the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops

_Row = Mapping[str, Any]


def _stream(
    draw: Draw,
    asked: Sequence[Asked],
    answer: str,
    *,
    key: str = "id",
    before: Sequence[_Row] = (),
    around: Sequence[_Row] = (),
    after: Sequence[_Row] = (),
    kind: _Row | None = None,
    paid: bool = False,
    numbered: bool = True,
) -> list[dict[str, Any]]:
    """Return the rows of events of each question; None in a row stands for the right answer."""
    made = []
    for a in asked:
        lead = {key: f"C-{1000 + a.number}"}
        made += [{**lead, **row} for row in before]
        for r, text in enumerate(a.answers, start=1):
            number = {"round": r} if numbered else {}
            costs = {"prompt_tokens": draw.tokens(), "completion_tokens": draw.random.randint(3, 30)} if paid else {}
            made += [{**lead, **number, **row} for row in around]
            made.append({**lead, **number, **(kind or {}), answer: text, **costs})
        made += [{**lead, **{name: a.gold if value is None else value for name, value in row.items()}} for row in after]
    return made


def _calls(asked: Sequence[Asked], *calls: int) -> list[Any]:
    return [a.loop(calls=calls) for a in asked]


@shape("customs.jsonl", options=("--column", "answer=hs_code"))
def rulings_and_payments_after_the_loop(draw: Draw) -> Log:
    """A lookup and a code in each round; what people rule and pay afterwards is no call, and only the ruling has the right code."""
    asked = draw.asked(80, 3, "whole")
    after: list[_Row] = [
        {"event": "customs_ruling", "correct_hs_code": None},
        {"event": "duty_paid"},
        {"event": "released"},
    ]
    made = _stream(
        draw,
        asked,
        "hs_code",
        key="declaration_id",
        before=[{"event": "submitted", "origin": "TR"}],
        around=[{"event": "lookup", "hits": 3}],
        after=after,
        kind={"event": "classified"},
    )
    return Log(made, _calls(asked, 2, 2, 2))


@shape("tickets.jsonl", options=("--column", "golds=category_final"))
def tickets_that_people_review_and_close(draw: Draw) -> Log:
    """Answers have tokens; the events before and after have none."""
    asked = draw.asked(80, 3)
    made = _stream(
        draw,
        asked,
        "prediction",
        key="ticket_id",
        before=[{"event": "opened"}, {"event": "queued"}],
        after=[{"event": "human_review", "category_final": None, "minutes": 12}, {"event": "ticket_closed"}],
        kind={"event": "suggested"},
        paid=True,
        numbered=False,
    )
    return Log(made, _calls(asked, 1, 1, 1))


@shape("agent.jsonl")
def a_report_that_is_paid_after_the_loop(draw: Draw) -> Log:
    """Tools are called in each round; a report is written after the loop, wherever it stops."""
    asked = draw.asked(80, 3)
    made = _stream(
        draw,
        asked,
        "answer",
        key="task_id",
        around=[{"type": "tool_call", "tool": "search"}, {"type": "tool_result", "tool": "search"}],
        after=[
            {"type": "report", "prompt_tokens": 900, "completion_tokens": 300},
            {"type": "task_finished", "gold": None},
        ],
        kind={"type": "llm"},
        paid=True,
        numbered=False,
    )
    return Log(made, _calls(asked, 1, 1, 1))


@shape("chunks.jsonl")
def pieces_of_streamed_answers(draw: Draw) -> Log:
    """Each answer comes in pieces before it is whole."""
    asked = draw.asked(60, 3)
    pieces = [{"event": "chunk", "delta": "O"}, {"event": "chunk", "delta": "s"}]
    made = _stream(
        draw,
        asked,
        "answer",
        around=pieces,
        after=[{"event": "closed", "gold": None}],
        kind={"event": "done"},
        paid=True,
    )
    return Log(made, _calls(asked, 1, 1, 1))


@shape("states.csv")
def states_of_a_case_beside_its_rounds(draw: Draw) -> Log:
    """The state of a case in a row of its own before and after the loop; only rounds have numbers."""
    asked = draw.asked(60, 3)
    rows = _stream(
        draw,
        asked,
        "answer",
        key="case_id",
        before=[{"status": "queued"}],
        after=[{"status": "billed"}, {"status": "archived"}],
        kind={"status": "answered"},
    )
    gold = {f"C-{1000 + a.number}": a.gold for a in asked}
    names = ("case_id", "status", "round", "answer")
    made = [{**{name: row.get(name, "") for name in names}, "gold": gold[row["case_id"]]} for row in rows]
    return Log(made, _calls(asked, 1, 1, 1))


@shape("events.jsonl", options=("--column", "rounds=events"))
def events_in_a_list_of_each_case(draw: Draw) -> Log:
    """The events of a case are the items of a list."""
    asked = draw.asked(60, 3)
    made = [
        {
            "id": a.number,
            "gold": a.gold,
            "events": [
                {"type": "received"},
                *({"type": "draft", "answer": text, "tokens_in": draw.tokens(), "tokens_out": 9} for text in a.answers),
                {"type": "human_review"},
                {"type": "email_sent"},
            ],
        }
        for a in asked
    ]
    return Log(made, _calls(asked, 1, 1, 1))


@shape("pipeline.jsonl")
def a_plan_before_the_answers_of_a_loop(draw: Draw) -> Log:
    """A plan is paid once, before the first answer: it is a call of the first round, and no loop of its own."""
    asked = draw.asked(60, 3)
    plan = {"step": "plan", "prompt_tokens": 300, "completion_tokens": 40}
    made = _stream(draw, asked, "answer", before=[plan], kind={"step": "answer"}, paid=True, numbered=False)
    gold = {f"C-{1000 + a.number}": a.gold for a in asked}
    made = [{**row, "gold": gold[row["id"]]} for row in made]
    return Log(made, _calls(asked, 2, 1, 1))


@shape("run.jsonl")
def totals_and_warm_ups_of_a_run(draw: Draw) -> Log:
    """Warm-up calls before the first question, and a row with sums at the end of the file."""
    asked = draw.asked(60, 3)
    made = [
        {"id": f"warmup-{n}", "round": 1, "answer": "ok", "prompt_tokens": 5, "completion_tokens": 1} for n in range(3)
    ]
    gold = {f"C-{1000 + a.number}": a.gold for a in asked}
    rows = _stream(draw, asked, "answer", paid=True)
    made += [{**row, "gold": gold[row["id"]]} for row in rows]
    sums = {name: sum(row[name] for row in rows) for name in ("prompt_tokens", "completion_tokens")}
    return Log([*made, {"id": "TOTAL", "round": None, "answer": None, **sums}], _calls(asked, 1, 1, 1))


@shape("checked.jsonl")
def a_check_that_ends_each_case(draw: Draw) -> Log:
    """Loops of several lengths; the check in their last row never answers, and costs a call as nothing says otherwise."""
    asked = draw.asked(60, 3)
    made = []
    for a in asked:
        length = 1 + a.number % 3
        for kind, text in [*(("answered", text) for text in a.answers[:length]), ("verify", None)]:
            made.append({"id": a.number, "event": kind, "answer": text, "gold": a.gold})
    read = [
        a.loop(answers=a.answers[:length], scores=a.right[:length], calls=(*[1] * (length - 1), 2))
        for a in asked
        for length in [1 + a.number % 3]
    ]
    return Log(made, read)


@shape("ends.jsonl", options=("--column", "end=outcome:released=rule,quit=failed,limit_hit=max_rounds"))
def words_of_its_own_for_the_ends_of_loops(draw: Draw) -> Log:
    """The last row of each question says in words of its own why its loop ended."""
    asked = draw.asked(60, 3)
    words = ("released", "quit", "limit_hit")
    made = [
        {
            "id": a.number,
            "round": r,
            "answer": text,
            "gold": a.gold,
            "outcome": words[length - 1] if r == length else None,
        }
        for a in asked
        for length in [1 + a.number % 3]
        for r, text in enumerate(a.answers[:length], start=1)
    ]
    lengths = [1 + a.number % 3 for a in asked]
    return Log(made, [a.loop(answers=a.answers[:n], scores=a.right[:n]) for a, n in zip(asked, lengths, strict=True)])


@shape("hops.jsonl", options=("--first-round", "1"))
def an_answer_without_retrieval_that_the_loop_pays(draw: Draw) -> Log:
    """Round 0 answers without retrieval, and is a call of the loop like the others."""
    asked = draw.asked(60, 4)
    rows = _stream(draw, asked, "answer", paid=True)
    gold = {f"C-{1000 + a.number}": a.gold for a in asked}
    made = [{**row, "round": row["round"] - 1, "gold": gold[row["id"]]} for row in rows]
    return Log(made, loops(asked))


@shape("skipped.jsonl")
def rounds_that_were_not_run(draw: Draw) -> Log:
    """Each question has three rows, of which those after the stop were skipped."""
    asked = draw.asked(60, 3)
    lengths = [1 + a.number % 3 for a in asked]
    made = [
        {
            "id": a.number,
            "round": r,
            "status": "ok" if r <= n else "skipped",
            "answer": text if r <= n else None,
            "gold": a.gold,
        }
        for a, n in zip(asked, lengths, strict=True)
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, [a.loop(answers=a.answers[:n], scores=a.right[:n]) for a, n in zip(asked, lengths, strict=True)])


@shape("escalated.jsonl")
def answers_of_people_after_the_loop(draw: Draw) -> Log:
    """A person answers every third ticket after the loop, in the column of the loop's answers."""
    asked = draw.asked(60, 3)
    made: list[dict[str, Any]] = []
    for a in asked:
        lead = {"ticket_id": f"T{a.number}", "gold": a.gold}
        made += [{**lead, "event": "bot_answer", "answer": text, "prompt_tokens": draw.tokens()} for text in a.answers]
        made += [{**lead, "event": "human_answer", "answer": a.gold}] * (a.number % 3 == 0)
        made.append({**lead, "event": "resolved"})
    return Log(made, loops(asked))
