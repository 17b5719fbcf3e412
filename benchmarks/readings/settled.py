"""Logs that misled the importer when a fourth person tried it: nodes of a graph, failed calls, quantities, tags, and graded scores."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import CITIES, Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("calls.csv", "langchain-ai/langgraph: libs/langgraph/langgraph/pregel/debug.py")
def nodes_of_a_graph(draw: Draw) -> Log:
    """A row for each node, with the step in all of them; what a node returns is JSON, and only one of them answers."""
    questions = draw.asked(60, 3)
    made = []
    for a in questions:
        for step, text in enumerate(a.answers):
            row = {"request_id": f"q{a.number}", "user_query": a.question, "step": step, "expected_answer": a.gold}
            said = {
                "retrieve": f'{{"doc_ids": [{draw.tokens()}]}}',
                "generate": f'{{"answer": "{text}", "why": "{draw.prose(4)}"}}',
            }
            said["grade"] = f'{{"verdict": "{draw.random.choice(("sufficient", "insufficient"))}"}}'
            made += [{**row, "node": node, "response": reply} for node, reply in said.items()]
    return Log(made, loops(questions))


@shape("calls.jsonl")
def failed_calls_of_a_fallback_model(draw: Draw) -> Log:
    """A call that failed names another model, and is made again."""
    questions = draw.asked(60, 3)
    made: list[dict[str, Any]] = []
    for a in questions:
        for step, text in enumerate(a.answers, 1):
            row = {"qid": a.number, "iteration": step, "gold": a.gold}
            if draw.random.random() < 0.2:
                made.append({**row, "model": "small-fallback", "output": None, "error": "429 Too Many Requests"})
            made.append({**row, "model": "small", "output": text, "error": None})
    return Log(made, loops(questions))


@shape("lengths.jsonl")
def quantities_in_two_units(draw: Draw) -> Log:
    """Lengths in metres or kilometres, wrong by the unit or the number."""
    questions = draw.asked(60, 3, "whole")
    made, read = [], []
    for a in questions:
        gold = abs(int(a.gold))
        wrong = (f"{gold} m", f"{gold + 1} km", f"{gold + 2},000 m")
        right = (f"{gold} km", f"{gold},000 m")
        said = tuple(draw.random.choice(right if good else wrong) for good in a.right)
        made += [{"id": a.number, "round": r, "answer": text, "gold": f"{gold} km"} for r, text in enumerate(said, 1)]
        read.append(a.loop(answers=said, golds=(f"{gold} km",)))
    return Log(made, read)


@shape("mixed.csv")
def lengths_beside_names(draw: Draw) -> Log:
    """Every second question asks for a length: another number with the same unit is no half of an answer."""
    questions = draw.asked(60, 3)
    made, read = [], []
    for a in questions:
        form = "{}" if a.number % 2 else "{} km"
        name = {city: city if a.number % 2 else 10 + place for place, city in enumerate(CITIES)}
        gold, *said = [form.format(name[text]) for text in (a.gold, *a.answers)]
        made += [{"id": a.number, "round": r, "answer": text, "gold": gold} for r, text in enumerate(said, 1)]
        read.append(a.loop(answers=tuple(said), golds=(gold,)))
    return Log(made, read)


@shape("tagged.jsonl")
def tags_without_gold_answers(draw: Draw) -> Log:
    """Each reply has its answer in tags."""
    questions = draw.asked(60, 3)
    made = [
        {"id": a.number, "turn": r, "response": f"{draw.prose()}\n<answer>{text}</answer> {draw.prose(3)}"}
        for a in questions
        for r, text in enumerate(a.answers, 1)
    ]
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape("graded.csv", "explodinggradients/ragas: src/ragas/dataset_schema.py", metric="answer_correctness")
def sentences_with_a_graded_score(draw: Draw) -> Log:
    """Sentences that a judge has graded from 0 to 1."""
    frames = (
        "{}, as the notes say.",
        "According to the provided notes, the stop of this caravan is likely {}.",
        "So: {} ({}?)",
    )
    made, read = [], []
    for a in draw.asked(60, 3):
        said = tuple(draw.random.choice(frames).format(text, draw.prose(2)) for text in a.answers)
        scores = tuple(round((0.8 if good else 0.1) + draw.random.random() / 5, 3) for good in a.right)
        made += [
            {
                "user_input": a.question,
                "iteration": r,
                "response": text,
                "reference": a.gold,
                "answer_correctness": score,
            }
            for r, (text, score) in enumerate(zip(said, scores, strict=True), 1)
        ]
        read.append(a.loop(answers=said, golds=(), scores=scores))
    return Log(made, read)


@shape("samples_gsm8k.jsonl", "EleutherAI/lm-evaluation-harness: lm_eval/api/task.py", samples=True)
def replies_under_two_filters(draw: Draw) -> Log:
    """A row for each question and filter, of which one reads a vote alone; the answers are read from the replies."""
    questions = draw.asked(60, 4, "whole", (0.6, 0.6))
    made: list[dict[str, Any]] = []
    for a in questions:
        said = [f"{draw.prose()}\n#### {text}" for text in a.answers]
        row = {"doc_id": a.number, "doc": {"question": a.question}, "target": a.gold, "resps": [said]}
        made += [{**row, "filtered_resps": [a.answers[0]], "filter": name} for name in ("score-first", "maj@4")]
    return Log(made, loops(questions))
