"""Logs that misled the importer when a third person tried it: rows that are newest first, passages, chats, filters and checkpoints."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops

TOPICS = (
    "bridges",
    "comets",
    "glaciers",
    "ballads",
    "beetles",
    "harbours",
    "violins",
    "treaties",
    "pigments",
    "orchids",
)


@shape("dashboard.csv")
def newest_first_to_the_minute(draw: Draw) -> Log:
    """The newest row comes first, and all rows of a question have the same minute."""
    questions = draw.asked(60)
    made = [
        {"created": f"2026-03-{1 + a.number // 24:02} {a.number % 24:02}:30", "question": a.question, "answer": text}
        | {"expected": a.gold}
        for a in questions
        for text in a.answers
    ]
    return Log(made[::-1], loops(questions))


@shape("traces.csv")
def newest_question_first_with_its_rounds_in_order(draw: Draw) -> Log:
    """The newest question comes first, with the time of its beginning in each of its rows, which are in order."""
    questions = draw.asked(60)
    made = [
        {"started_at": f"2026-03-{1 + a.number // 24:02}T{a.number % 24:02}:30:00Z", "id": a.number, "answer": text}
        | {"gold": a.gold}
        for a in reversed(questions)
        for text in a.answers
    ]
    return Log(made, loops(questions))


@shape("passages.jsonl")
def a_row_for_each_passage(draw: Draw) -> Log:
    """One answer a question, repeated in a row for each passage, with the score of the passage."""
    made = [
        {"question": a.question, "score": draw.random.random(), "context": draw.prose(), "answer": a.answers[0]}
        | {"gold": a.gold}
        for a in draw.asked(60)
        for _ in range(5)
    ]
    return Log(made)


@shape("chats.csv")
def sessions_of_several_questions(draw: Draw) -> Log:
    """A user asks something else each time."""
    made = [
        {
            "session_id": f"s{a.number}",
            "turn": turn,
            "query": f"Tell me about {topic} {a.number + turn}",
            "response": text,
        }
        for a in draw.asked(60)
        for turn, (topic, text) in enumerate(zip(draw.random.sample(TOPICS, len(a.answers)), a.answers, strict=True), 1)
    ]
    return Log(made)


@shape("conversations.jsonl")
def sessions_with_the_question_in_other_words(draw: Draw) -> Log:
    """A loop puts the question of a conversation in other words for each search."""
    questions = draw.asked(60)
    forms = ("Where does caravan {} stop?", "stops of caravan {}", "caravan {} stop place", "caravan {} where stop")
    made = [
        {"conversation_id": a.number, "step": r, "query": form.format(a.number), "response": text}
        for a in questions
        for r, (form, text) in enumerate(zip(forms, a.answers, strict=True), 1)
    ]
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape(
    "samples_gsm8k.jsonl",
    "EleutherAI/lm-evaluation-harness: lm_eval/loggers/evaluation_tracker.py",
    options=["--samples"],
    samples=True,
)
def two_filters_of_the_same_replies(draw: Draw) -> Log:
    """A row for each question and filter; the strict one reads no answer where the mark is missing."""
    questions = draw.asked(60, 4, "whole")
    made: list[dict[str, Any]] = []
    for a in questions:
        said = [
            f"Adding gives {text}." + ("\n#### " + text if draw.random.random() < 0.7 else "") for text in a.answers
        ]
        strict = [text if "####" in reply else "[invalid]" for reply, text in zip(said, a.answers, strict=True)]
        row = {"doc_id": a.number, "doc": {"question": a.question}, "target": a.gold, "resps": [said]}
        for name, parsed in (("strict-match", strict), ("flexible-extract", [*a.answers])):
            made.append({**row, "filtered_resps": [parsed], "filter": name})
    return Log(made, loops(questions))


@shape("mixed.jsonl")
def sentences_beside_short_answers(draw: Draw) -> Log:
    """Half of the answers are sentences."""
    questions = draw.asked(80)
    forms = ("{}", "{}", "It is {}.", "That would be {}.")
    made = [
        {"id": a.number, "round": r, "output": draw.random.choice(forms).format(text), "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, 1)
    ]
    return Log(made, loops(questions))


@shape("checkpoints.jsonl")
def checkpoints_of_a_training(draw: Draw) -> Log:
    """Each question is answered by the model after 500, 1000 and 1500 steps of its training."""
    questions = draw.asked(60, 3)
    made = [
        {"example_id": a.number, "global_step": 500 * r, "pred": text, "label": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, 1)
    ]
    single = [
        a.loop(answers=(text,), scores=(right,))
        for a in questions
        for text, right in zip(a.answers, a.right, strict=True)
    ]
    return Log(made, single)


@shape("judged.jsonl")
def attempts_with_a_row_for_each_judge(draw: Draw) -> Log:
    """Each attempt has a row for each of two judges, whose marks differ."""
    questions = draw.asked(60, 3)
    made = [
        {"query": a.question, "attempt": r, "response": text, "expected_answer": a.gold, "judge": judge}
        | {"mark": draw.random.randint(1, 5)}
        for a in questions
        for r, text in enumerate(a.answers, 1)
        for judge in ("large", "small")
    ]
    return Log(made, [loop for loop in loops(questions) for _ in range(2)])


@shape(
    "events.jsonl",
    "openai/evals: evals/record.py",
    options=["--where", "type=sampling", "--column", "answer=data.sampled"],
)
def sampling_and_match_events(draw: Draw) -> Log:
    """Samples and a match of each question, with a specification before them and a report after them."""
    questions = draw.asked(60, 3)
    made: list[dict[str, Any]] = [{"spec": {"eval_name": "faq.dev.v0"}}]
    for a in questions:
        event = {"run_id": "x", "sample_id": f"faq.{a.number}"}
        for r, text in enumerate(a.answers):
            data = {"prompt": a.question, "sampled": [text], "model": "m"}
            made.append({**event, "type": "sampling", "data": data, "created_at": f"2026-03-02T08:{a.number:02}:0{r}Z"})
        match = {"correct": a.right[-1], "expected": a.gold, "picked": a.gold if a.right[-1] else None}
        made.append({**event, "type": "match", "data": match, "created_at": f"2026-03-02T08:{a.number:02}:30Z"})
    return Log([*made, {"final_report": {"accuracy": 0.5}}], [a.loop() for a in questions])
