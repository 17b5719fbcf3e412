"""Logs that misled the importer when a seventh person tried it: choices among rounds, votes so far, clocks, tickets and retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("braintrust.jsonl", "braintrustdata/braintrust-sdk: py/src/braintrust/logger.py")
def an_evaluation_span_around_calls(draw: Draw) -> Log:
    """A span of the evaluation has the gold answer and the sums of the tokens of the calls in it."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        root, tokens = f"{a.number:06x}", [draw.tokens() for _ in a.answers]
        calls = [
            {
                "id": f"{root}-{r}",
                "root_span_id": root,
                "is_root": False,
                "created": f"2026-03-02T{8 + a.number // 60:02}:{a.number % 60:02}:{7 * r:02}.000Z",
                "output": [{"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": text}}],
                "expected": None,
                "metrics": {"prompt_tokens": n, "completion_tokens": 7 + r},
                "span_attributes": {"name": "Chat Completion", "type": "llm"},
            }
            for r, (text, n) in enumerate(zip(a.answers, tokens, strict=True), start=1)
        ]
        sums = {name: sum(call["metrics"][name] for call in calls) for name in ("prompt_tokens", "completion_tokens")}
        around = {**calls[0], "id": root, "is_root": True, "output": a.answers[-1], "expected": a.gold, "metrics": sums}
        around |= {
            "span_attributes": {"name": "eval", "type": "eval"},
            "created": calls[0]["created"].replace("07.", "00."),
        }
        made += [*calls[::-1], around]
    return Log(made[::-1], [a.loop(question=f"{a.number:06x}") for a in questions])


@shape(
    "spans.csv", "Arize-ai/phoenix: packages/phoenix-client/src/phoenix/client/resources/spans", metric="correctness"
)
def annotations_beside_spans(draw: Draw) -> Log:
    """The table of spans has the annotated scores of each."""
    questions = draw.asked(60)
    made = [
        {
            "context.trace_id": f"{a.number:032x}",
            "context.span_id": f"{a.number:012x}{r:04x}",
            "span_kind": "LLM",
            "start_time": f"2026-03-02T{8 + a.number // 60:02}:{a.number % 60:02}:{7 * r:02}Z",
            "attributes.input.value": a.question,
            "attributes.output.value": text,
            "annotation.Correctness.score": float(right),
            "annotation.Hallucination.score": float(not right),
        }
        for a in questions
        for r, (text, right) in enumerate(zip(a.answers, a.right, strict=True))
    ]
    return Log(made, [a.loop(golds=(), question=f"{a.number:032x}") for a in questions])


@shape("votes.jsonl", options=("--samples",), samples=True)
def the_vote_so_far_beside_samples(draw: Draw) -> Log:
    """`answer` is the most frequent answer so far, and another column has what each sample said."""
    questions = draw.asked(100, 6, right=(0.6, 0.6))
    made = []
    for a in questions:
        for k in range(1, 7):
            drawn = a.answers[:k]
            vote = max(dict.fromkeys(drawn), key=drawn.count)
            made.append(
                {
                    "id": a.number,
                    "question": a.question,
                    "sample": k,
                    "sampled_answer": drawn[-1],
                    "answer": vote,
                    "gold": a.gold,
                }
            )
    return Log(made, loops(questions))


@shape("clocks.csv")
def clocks_of_two_machines(draw: Draw) -> Log:
    """The rows of a question are together in order, and the clock of the machine with the later ones is slow in some questions."""
    questions = draw.asked(60)
    made = [
        {
            "ts": f"2026-03-02 {8 + a.number // 60:02}:{a.number % 60:02}:{10 * r + 25 - (22 if r > 1 and a.number % 5 == 0 else 0):02}",
            "qid": f"q{a.number}",
            "question": a.question,
            "answer": text,
            "gold": a.gold,
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("tickets.csv")
def one_text_in_several_tickets(draw: Draw) -> Log:
    """The same question is asked in several tickets, whose ids have an unusual name."""
    questions = draw.asked(60)
    golds = {a.number % 12: a.gold for a in questions}
    made = [
        {
            "ticket_no": f"T-{1000 + a.number}",
            "question": f"Where does caravan {a.number % 12} stop?",
            "attempt": r,
            "answer": text,
            "expected_answer": golds[a.number % 12],
        }
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    right = lambda a: tuple(text == golds[a.number % 12] for text in a.answers)  # noqa: E731
    return Log(
        made, [a.loop(question=a.number % 12, golds=(golds[a.number % 12],), scores=right(a)) for a in questions]
    )


@shape("stops.jsonl")
def reasons_for_stops_in_words(draw: Draw) -> Log:
    """Each record says why its loop ended, in words."""
    questions = draw.asked(60)
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "gold": a.gold,
            "stop_reason": "converged" if a.number % 3 else "max_iterations",
            "rounds": [{"answer": text} for text in a.answers[: 2 if a.number % 3 else 4]],
        }
        for a in questions
    ]
    short = [a.answers[: 2 if a.number % 3 else 4] for a in questions]
    return Log(made, [a.loop(answers=own, scores=a.right[: len(own)]) for a, own in zip(questions, short, strict=True)])


@shape("judges.jsonl", metric="correct")
def models_of_judges(draw: Draw) -> Log:
    """An object about the judgement names the judge's model, which differs between questions."""
    questions = draw.asked(60)
    made = [
        {
            "id": f"q{a.number}",
            "question": a.question,
            "round": r,
            "answer": text,
            "judge": {"model": f"judge-{a.number % 2}", "correct": right},
        }
        for a in questions
        for r, (text, right) in enumerate(zip(a.answers, a.right, strict=True), start=1)
    ]
    return Log(made, [a.loop(golds=()) for a in questions])


@shape("retries.jsonl")
def rounds_that_were_repeated(draw: Draw) -> Log:
    """A call that failed is there without an answer, and some that were repeated have two; the last one counts."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        for r, text in enumerate(a.answers, start=1):
            row = {
                "task": f"q{a.number}",
                "question": a.question,
                "round": r,
                "reply": text,
                "expected": a.gold,
                "http_status": 200,
            }
            before = {0: [{**row, "reply": "", "http_status": 429}], 1: [{**row, "reply": "(lost)"}]}
            made += [*before.get(draw.random.randrange(10), []), row]
    return Log(made, loops(questions))


@shape("drafts.jsonl")
def a_final_answer_beside_drafts(draw: Draw) -> Log:
    """Each record has the draft that was returned, which is not always the last one."""
    questions = draw.asked(60)
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "gold": a.gold,
            "final_answer": a.answers[a.right.index(True)] if any(a.right) else a.answers[-1],
            "drafts": [{"answer": text} for text in a.answers],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("chosen.jsonl")
def a_flag_of_the_chosen_round(draw: Draw) -> Log:
    """A flag is true in the round that the loop returned."""
    questions = draw.asked(60, right=(0.4, 0.6))
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "round": r + 1,
            "answer": text,
            "selected": r == (a.right.index(True) if any(a.right) else 3),
            "gold": a.gold,
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("chosen.csv")
def a_last_row_that_copies_the_choice(draw: Draw) -> Log:
    """The last row of each question has the chosen answer once more, and a flag of its own."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        own = [
            {
                "qid": f"q{a.number}",
                "question": a.question,
                "round": r,
                "answer": text,
                "is_final": "false",
                "gold": a.gold,
            }
            for r, text in enumerate(a.answers, start=1)
        ]
        made += [*own, {**own[draw.random.randrange(4)], "round": 5, "is_final": "true"}]
    answers = [(*a.answers, row["answer"]) for a, row in zip(questions, made[4::5], strict=True)]
    return Log(
        made,
        [
            a.loop(answers=own, scores=[text == a.gold for text in own])
            for a, own in zip(questions, answers, strict=True)
        ],
    )


@shape("last.jsonl")
def a_final_answer_that_is_the_last_draft(draw: Draw) -> Log:
    """Each record repeats its last draft as the final answer."""
    questions = draw.asked(60)
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "gold": a.gold,
            "final_answer": a.answers[-1],
            "drafts": [{"answer": text} for text in a.answers],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


def flagged(draw: Draw, name: str, flag: Callable[[int, int], Any]) -> Log:
    """Return a log with a column that a function of the question's number and the round makes."""
    questions = draw.asked(60)
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "round": r,
            "answer": text,
            name: flag(a.number, r),
            "gold": a.gold,
        }
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("last.csv")
def a_flag_of_the_last_round(draw: Draw) -> Log:
    """A flag is true in the last round of each question."""
    return flagged(draw, "is_final", lambda _, r: r == 4)


@shape("cached.csv")
def a_flag_of_some_rounds(draw: Draw) -> Log:
    """A flag says which answers came from a cache."""
    return flagged(draw, "cached", lambda *_: draw.random.random() < 0.25)


@shape("tenants.csv")
def tenants_of_one_loop(draw: Draw) -> Log:
    """A column names the customer of each question, for all of whom the loop is the same."""
    return flagged(draw, "tenant", lambda number, _: "xyz"[number * 7 % 3])


@shape("shards.csv")
def workers_of_one_loop(draw: Draw) -> Log:
    """A column numbers the process that asked each question."""
    return flagged(draw, "worker", lambda number, _: number * 5 % 4)


@shape("clocked.csv")
def a_clock_that_rises(draw: Draw) -> Log:
    """A column has times that rise through the file, beside the number of the round."""
    return flagged(draw, "ts", lambda number, r: f"2026-03-02 08:{number:02}:{10 * r:02}")


@shape("graded.jsonl", metric="grade")
def percentages_of_a_grade(draw: Draw) -> Log:
    """A judge gave each answer a grade in percent."""
    questions = draw.asked(60)
    made = [
        {
            "qid": f"q{a.number}",
            "question": a.question,
            "round": r,
            "answer": text,
            "grade": "100 %" if right else "0 %",
        }
        for a in questions
        for r, (text, right) in enumerate(zip(a.answers, a.right, strict=True), start=1)
    ]
    return Log(made, [a.loop(golds=()) for a in questions])
