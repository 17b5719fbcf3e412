"""Shapes of our own: lists and rows whose items are not all answers to one question, or not in an order."""

from __future__ import annotations

from benchmarks.readings.cases import CITIES, Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("log.jsonl")
def vote_after_attempts(draw: Draw) -> Log:
    """The last item of each list is a vote among those before, for which no model was called."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        steps = [{"type": "attempt", "answer": answer} for answer in asked.answers]
        steps.append({"type": "final", "answer": max(asked.answers, key=asked.answers.count)})
        records.append({"id": asked.number, "question": asked.question, "gold": asked.gold, "steps": steps})
    return Log(records, loops(questions))


@shape("log.jsonl")
def critiques_between_drafts(draw: Draw) -> Log:
    """A row for each node of a graph that ran; half of them are of a critic."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        for answer in asked.answers:
            said = {"generate": answer, "critique": draw.prose(3)}
            records += [
                {"id": asked.number, "gold": asked.gold, "node": node, "output": text} for node, text in said.items()
            ]
    return Log(records, loops(questions))


@shape("log.jsonl")
def first_draft_and_revisions(draw: Draw) -> Log:
    """Only the first item is of another kind: all are answers."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        steps = [{"type": "revision" if r else "draft", "answer": answer} for r, answer in enumerate(asked.answers)]
        records.append({"id": asked.number, "gold": asked.gold, "steps": steps})
    return Log(records, loops(questions))


@shape("chats.jsonl")
def several_questions_in_a_chat(draw: Draw) -> Log:
    """A user asks something else each time, so that each question has one answer."""
    records = []
    for number in range(40):
        messages = []
        for asked in draw.asked(4, 1):
            messages.append({"role": "user", "content": asked.question.replace("caravan", f"caravan {number}/")})
            messages.append({"role": "assistant", "content": asked.answers[0]})
        records.append({"conversation_id": f"chat-{number}", "messages": messages})
    return Log(records)


@shape("chats.jsonl")
def one_question_with_hints(draw: Draw) -> Log:
    """A user comments on each reply in words of its own, and asks for another."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        messages = [{"role": "user", "content": asked.question}]
        for answer in asked.answers:
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": f"{draw.prose(4)}: is {answer} right?"})
        records.append({"id": asked.number, "expected": asked.gold, "messages": messages})
    return Log(records, loops(questions))


@shape("samples.jsonl", samples=True)
def candidates_of_a_vote(draw: Draw) -> Log:
    """A list of candidates, drawn independently."""
    questions = draw.asked(60, 8)
    records = [
        {"id": asked.number, "gold": asked.gold, "candidates": [{"answer": answer} for answer in asked.answers]}
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("log.jsonl", metric="em")
def similarity_beside_an_unread_gold(draw: Draw) -> Log:
    """A score says nothing about what is right; the gold answer has a name of its own."""
    questions = draw.asked(60)
    records = [
        {
            "id": asked.number,
            "round": r,
            "question": asked.question,
            "true_city": asked.gold,
            "output": answer,
            "score": 0.8 + draw.random.random() / 10,
        }
        for asked in questions
        for r, answer in enumerate(asked.answers, start=1)
    ]
    return Log(records, loops(questions))


@shape("runs.jsonl", "langchain-ai/langchain: libs/langchain/langchain/agents/agent.py")
def intermediate_steps(draw: Draw) -> Log:
    """Actions with what they found, and one answer in the end."""
    return Log(
        [
            {
                "input": asked.question,
                "output": asked.answers[0],
                "expected_output": asked.gold,
                "intermediate_steps": [[{"tool": "search", "log": draw.prose(3)}, draw.prose(4)] for _ in range(3)],
            }
            for asked in draw.asked(60, 1)
        ]
    )


@shape("events.jsonl", "openai/evals: evals/record.py")
def events_of_evals(draw: Draw) -> Log:
    """A line about the run without an id, then two events for each answer."""
    questions = draw.asked(60, 4, "letter")
    records: list[dict[str, object]] = [{"spec": {"eval_name": "places"}}]
    for asked in questions:
        for answer, good in zip(asked.answers, asked.right, strict=True):
            own = {"sample_id": f"places.{asked.number}"}
            records.append({**own, "type": "sampling", "data": {"sampled": [answer]}})
            match = {"correct": good, "expected": asked.gold, "picked": answer}
            records.append({**own, "type": "match", "data": match})
    return Log(records, loops(questions))


@shape("log.jsonl")
def rows_that_repeat_a_call(draw: Draw) -> Log:
    """A mark says which rows repeat the call before, with the same answer."""
    questions = draw.asked(60, 3)
    records = []
    for asked in questions:
        for answer in asked.answers:
            row = {"id": asked.number, "gold": asked.gold, "answer": answer}
            records += [{**row, "retry": retry} for retry in range(1 + (draw.random.random() < 0.3))]
    return Log(records, loops(questions))


@shape("log.jsonl", metric="match")
def lists_in_any_order(draw: Draw) -> Log:
    """Answers are lists in words, in any order and with commas or semicolons."""
    questions = []
    records = []
    for asked in draw.asked(60, 3):
        gold = draw.random.sample(CITIES, 3)
        wrong = draw.random.sample(CITIES, 2)
        said = tuple("; ".join(draw.random.sample(gold, 3) if right else wrong) for right in asked.right)
        own = Asked(asked.number, f"Which cities hosted fair {asked.number}?", ", ".join(gold), said, asked.right)
        questions.append(own)
        for r, answer in enumerate(said, start=1):
            records.append({"id": own.number, "round": r, "question": own.question, "answer": answer, "gold": own.gold})
    return Log(records, loops(questions))
