"""Logs with numbers that look like something else: counters called like answers, calls that share a round, and primary keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, rows


def listed(questions: Sequence[Asked], lead: str, text: str, counter: str, first: int = 1) -> list[dict[str, Any]]:
    """Return a record for each question, with a list whose items have a counter and a text."""
    return [
        {
            "id": asked.number,
            "question": asked.question,
            "gold": asked.gold,
            lead: [{counter: r, text: answer} for r, answer in enumerate(asked.answers, start=first)],
        }
        for asked in questions
    ]


@shape("drafts.jsonl")
def drafts_numbered_by_the_word_for_an_answer(draw: Draw) -> Log:
    """Each item of `drafts` has its number as `draft`, which elsewhere is the text."""
    questions = draw.asked(80)
    return Log(listed(questions, "drafts", "text", "draft"), loops(questions))


@shape("stars.jsonl")
def responses_numbered_beside_numbers(draw: Draw) -> Log:
    """Each item of `responses` has its number as `response`, and the answers are numbers, too."""
    questions = draw.asked(80, kind="whole")
    return Log(listed(questions, "responses", "text", "response"), loops(questions))


@shape("answers.jsonl")
def answers_numbered_from_0(draw: Draw) -> Log:
    """Each item of `answers` has its number, from 0 on, as `answer`."""
    questions = draw.asked(80)
    return Log(listed(questions, "answers", "content", "answer", first=0), loops(questions))


@shape("hops.jsonl")
def nested_hops_of_which_the_first_has_no_documents(draw: Draw) -> Log:
    """The items of `hops` count from 0, and the first hop has no documents: the loop begins with it, or it is the model alone."""
    questions = draw.asked(80)
    made = listed(questions, "hops", "prediction", "hop", first=0)
    for record in made:
        for item in record["hops"]:
            item["doc_ids"] = [f"P{place}" for place in range(item["hop"])]
    return Log(made, loops(questions))


def _events(draw: Draw, questions: Sequence[Asked]) -> list[dict[str, Any]]:
    """Return a search and an answer for each round, with the same number."""
    return [
        {
            "query_id": asked.number,
            "question": asked.question,
            "event": event,
            "hop": r,
            "answer": answer if event == "answer" else None,
            "prompt_tokens": draw.tokens(),
            "gold": asked.gold,
        }
        for asked in questions
        for r, answer in enumerate(asked.answers, start=1)
        for event in ("search", "answer")
    ]


@shape("events.jsonl")
def searches_and_answers_with_the_same_hop(draw: Draw) -> Log:
    """A row for each call: a search, and the answer after it, have the number of their round."""
    questions = draw.asked(80)
    return Log(_events(draw, questions), loops(questions))


@shape("sorted_events.jsonl")
def answers_in_front_of_their_searches(draw: Draw) -> Log:
    """The rows of a round are sorted by their kind, so that the answer comes first."""
    questions = draw.asked(80)
    made = sorted(_events(draw, questions), key=lambda row: (row["query_id"], row["hop"], row["event"]))
    return Log(made, loops(questions))


@shape("steps.csv")
def a_primary_key_beside_the_number_of_a_claim(draw: Draw) -> Log:
    """Each row has an id of its own, as tables of a database have; the claim's number names the question."""
    questions = draw.asked(80, rounds=3)
    made = rows(
        questions,
        lambda own, r: {"claim_no": f"CL-{own.number}", "step_no": r, "answer": own.answers[r - 1], "gold": own.gold},
    )
    return Log([{"id": number, **row} for number, row in enumerate(made, start=1)], loops(questions))


@shape("triage")
def folder_of_records_with_a_trace_in_an_object(draw: Draw) -> Log:
    """A document for each question has its rounds in `trace`, in an object about the run, and no usual name for its answers."""
    questions = draw.asked(80)
    made = {
        f"issue-{asked.number}.json": {
            "issue": asked.number,
            "right_answer": asked.gold,
            "agent_run": {
                "trace": [{"step": r, "tool": "grep", "guess": text} for r, text in enumerate(asked.answers, start=1)]
            },
        }
        for asked in questions
    }
    return Log(made, loops(questions))
