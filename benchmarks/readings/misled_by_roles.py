"""Logs that misled the importer in the hands of a tenth person: agents in turn, tickets, numbered summaries, and parsed replies."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, Loop, shape
from benchmarks.readings.plain import loops


def _notes(draw: Draw, key: str, own: str) -> Log:
    """Return a log in which two agents take turns in each turn of a thread, and only one is judged."""
    records: list[dict[str, Any]] = []
    made = []
    for n in range(60):
        marks = [draw.random.randint(0, 4) / 4 for _ in range(draw.random.randint(2, 5))]
        drafts = tuple(draw.prose() for _ in marks)
        made.append(Loop(n, drafts, (), tuple(marks)))
        for turn, (mark, text) in enumerate(zip(marks, drafts, strict=True), start=1):
            base = {"thread_id": f"th_{n}", "task": f"Write note {n}", "turn": turn}
            usage = {"prompt_tokens": draw.tokens(), "completion_tokens": draw.tokens()}
            records.append({**base, key: own, "text": text, "usage": usage, "score": mark})
            records.append({**base, key: "critic", "text": draw.prose(5), "usage": usage, "score": None})
    return Log(records, made)


@shape("notes.jsonl", options=("--where", "agent=writer"), metric="score")
def a_writer_and_a_critic_as_agents(draw: Draw) -> Log:
    """The rows of a thread alternate between two agents: they are calls of one loop, and not two loops."""
    return _notes(draw, "agent", "writer")


@shape("notes.jsonl", options=("--where", "who=editor"), metric="score")
def an_editor_and_a_critic_by_another_key(draw: Draw) -> Log:
    """The same under a key of another name."""
    return _notes(draw, "who", "editor")


@shape("systems.jsonl")
def agents_with_threads_of_their_own(draw: Draw) -> Log:
    """Two agents answer the same questions, each in a thread of its own: they are runs."""
    made: list[Loop] = []
    records = []
    for agent in ("planner", "react"):
        for a in draw.asked(50):
            made.append(Loop(a.number, a.answers, (a.gold,), a.right))
            records += [
                {"qid": a.number, "question": a.question, "agent": agent, "round": r, "answer": own, "gold": a.gold}
                for r, own in enumerate(a.answers, start=1)
            ]
    golds = {record["qid"]: record["gold"] for record in records[: 50 * 4]}
    kept = [a for a in made[50:] if a.golds == (golds[a.question],)]
    numbers = {a.question for a in kept}
    records = [row for row in records if row["qid"] in numbers]
    return Log(records, [a for a in made if a.question in numbers])


def _tickets(draw: Draw, speaker: str, text: str) -> Log:
    """Return tickets in which a customer, a bot and at last a person speak."""
    tickets, made = [], []
    for n in range(60):
        replies = tuple(draw.prose() for _ in range(draw.random.randint(1, 4)))
        said = [("customer", f"Hi, export {n} fails. {draw.prose(4)}")]
        for reply in replies:
            said += [("bot", reply), ("customer", f"Still the same. {draw.prose(3)}")]
        said += [("agent", draw.prose(5))] * (n % 3 == 0)
        made.append(Loop(n, replies))
        tickets.append(
            {
                "ticket_id": f"T-{n}",
                "customer": {"id": f"cu_{n % 20}", "plan": "pro"},
                "subject": f"Workspace {n}: export fails",
                "messages": [{speaker: who, text: own, "feedback": None} for who, own in said],
            }
        )
    return Log({"exported_at": "2026-05-01", "tickets": tickets}, made)


@shape("support.json")
def tickets_of_customers_and_a_bot(draw: Draw) -> Log:
    """Messages have an author and a body, and the only usual id is that of the customer."""
    return _tickets(draw, "author", "body")


@shape("support.json")
def tickets_with_senders_and_texts(draw: Draw) -> Log:
    """The same with other keys."""
    return _tickets(draw, "sender", "text")


@shape("messages.csv", options=("--where", "sender=bot"))
def rows_of_customers_and_a_bot(draw: Draw) -> Log:
    """A row for each message of a ticket, those of customers among them."""
    log = _tickets(draw, "author", "body")
    rows = [
        {"id": ticket["ticket_id"], "sender": own["author"], "message": own["body"], "response": own["body"]}
        for ticket in log.content["tickets"]
        for own in ticket["messages"]
    ]
    return Log(rows, log.loops)


def _summaries(draw: Draw, form: str) -> Log:
    records, made = [], []
    for n in range(60):
        texts, scores = [draw.prose() for _ in range(4)], [draw.random.randint(1, 9999) / 10_000 for _ in range(4)]
        made.append(Loop(n, tuple(texts), (), tuple(scores)))
        record = {"article_id": f"art-{n}", "source": "wire", "editor_note": "short" if n % 30 == 0 else ""}
        for r, (text, score) in enumerate(zip(texts, scores, strict=True), start=1):
            record |= {form.format("summary", r): text, form.format("rougeL", r): score}
            record |= {form.format("rouge1", r): round(score / 2, 4), form.format("out_tokens", r): draw.tokens()}
        records.append(record)
    return Log(records, made)


@shape("summaries.csv", options=("--column", "rounds=summary_v1,summary_v2,summary_v3,summary_v4"), metric="rougeL")
def versions_of_a_summary_in_columns(draw: Draw) -> Log:
    """Each version of a summary has columns of its own for its text, its scores and its tokens."""
    return _summaries(draw, "{}_v{}")


@shape("summaries.csv", options=("--column", "rounds=summary (1),summary (2),summary (3),summary (4)"), metric="rougeL")
def numbers_of_summaries_in_brackets(draw: Draw) -> Log:
    """The same with numbers in brackets."""
    return _summaries(draw, "{} ({})")


@shape("samples.csv", options=("--samples",), samples=True)
def letters_parsed_from_replies(draw: Draw) -> Log:
    """`parsed` has the letter in each raw reply, which is a sentence or the letter alone."""
    questions: list[Asked] = draw.asked(60, 6, "letter")
    forms = ("The answer is ({}).", "{}", "{}. That is it", "I choose {}, since it fits")
    rows = [
        {
            "qid": a.number,
            "question": a.question,
            "correct_option": a.gold,
            "sample_no": r,
            "raw_response": draw.random.choice(forms).format(own),
            "parsed": own,
        }
        for a in questions
        for r, own in enumerate(a.answers)
    ]
    return Log(rows, loops(questions))
