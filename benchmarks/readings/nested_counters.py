"""Logs whose nested rounds are numbered under any name, whose scores are in lists, and whose loops are ended by an event of their own."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, rows


def _hops(questions: list[Asked], number: str) -> list[dict[str, Any]]:
    """Return a record for each question, with hops from 0, of which only the first has no passages."""
    return [
        {
            "id": f"vet-{a.number}",
            "question": a.question,
            "gold": a.gold,
            "hops": [
                {number: r, "retrieved": [f"doc_{a.number}_{i}" for i in range(2 * r)], "answer": text}
                for r, text in enumerate(a.answers)
            ],
        }
        for a in questions
    ]


@shape("hops.json")
def hops_numbered_n(draw: Draw) -> Log:
    """`n` may be a setting, or the number of the hop, of which the first is without passages."""
    questions = draw.asked(60, 3)
    return Log(_hops(questions, "n"), loops(questions))


@shape("hops.json")
def hops_numbered_idx(draw: Draw) -> Log:
    """`idx` numbers the hops from 0, of which the first is without passages."""
    questions = draw.asked(60, 4)
    return Log(_hops(questions, "idx"), loops(questions))


@shape(
    "captions.jsonl",
    options=("--column", "rounds=captions", "--metric-column", "judge_score=judge_score:0..100"),
    metric="judge_score",
)
def captions_with_a_list_of_scores(draw: Draw) -> Log:
    """A list of captions, and one of scores from 0 to 100 that is as long."""
    questions = draw.asked(60, 3)
    made, read = [], []
    for a in questions:
        texts = tuple(f"Caption {r} of piece {a.number} shows {text}." for r, text in enumerate(a.answers))
        scores = tuple(draw.random.randint(60, 99) if right else draw.random.randint(3, 55) for right in a.right)
        made.append({"object_id": f"M{a.number:03}", "captions": list(texts), "judge_score": list(scores)})
        read.append(a.loop(answers=texts, golds=(), scores=tuple(score / 100 for score in scores)))
    return Log(made, read)


@shape("events.jsonl")
def a_last_event_with_the_reason(draw: Draw) -> Log:
    """Runs start, retrieve and answer in each round, and end with an event that says why: no call, and no round."""
    questions = draw.asked(60, 3)
    made: list[dict[str, Any]] = []
    read = []
    for a in questions:
        run, n = {"run_id": f"run{a.number}"}, draw.random.randint(1, 3)
        made.append({**run, "event": "start", "question": a.question, "gold": a.gold})
        for r, text in enumerate(a.answers[:n], 1):
            made.append({**run, "event": "retrieve", "iteration": r, "n_docs": 5})
            made.append({**run, "event": "answer", "iteration": r, "answer": text, "tokens_in": draw.tokens()})
        made.append({**run, "event": "end", "reason": "converged" if n < 3 else "max_iterations", "iterations": n})
        read.append(a.loop(answers=a.answers[:n], scores=a.right[:n], calls=(1,) * n))
    return Log(made, read)


@shape("labels.jsonl", options=("--column", "rounds=captions"), metric="rouge_l")
def captions_with_two_lists_of_scores(draw: Draw) -> Log:
    """ROUGE of each caption, which judges, beside a judge's score from 0 to 100 and ratings in an object of their own."""
    questions = draw.asked(60, 3)
    made, read = [], []
    for a in questions:
        texts = tuple(f"Caption {r} of piece {a.number} shows {text}." for r, text in enumerate(a.answers))
        rouge = tuple(round(0.2 + 0.3 * right + draw.random.random() / 10, 3) for right in a.right)
        judged = [draw.random.randint(40, 99) for _ in texts]
        own = {"captions": list(texts), "rouge_l": list(rouge), "judge_score": judged, "votes": {"stars": [3, 4, 5]}}
        made.append({"object_id": f"M{a.number:03}", **own})
        read.append(a.loop(answers=texts, golds=(), scores=rouge))
    return Log(made, read)


@shape("registers.tsv")
def passes_with_a_capital_letter(draw: Draw) -> Log:
    """`Pass` numbers the passes over a record, whose rows are in no order."""
    questions = draw.asked(60, 3)
    made = rows(
        questions,
        lambda a, r: {
            "Record": f"GR-{a.number:03}",
            "Question": a.question,
            "Pass": r,
            "Answer": a.answers[r - 1],
            "Expected": a.gold,
        },
    )
    return Log(sorted(made, key=lambda row: (row["Record"], -row["Pass"])), loops(questions))
