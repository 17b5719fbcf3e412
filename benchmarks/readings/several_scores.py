"""Logs with several scores of their own, with objects as the answers of rounds, and with passes that are counted."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("minutes.csv", options=("--column", "answer=summary"), metric="bertscore_f1")
def an_f1_beside_its_parts(draw: Draw) -> Log:
    """Precision falls where recall rises: neither judges, and F1 does."""
    made: list[dict[str, Any]] = []
    read = []
    for own in draw.asked(60, 3):
        scores = tuple(round(0.6 + 0.1 * r + draw.random.random() / 20, 3) for r in range(3))
        texts = tuple(f"Meeting {own.number}, draft {r}." for r in range(3))
        for r, (text, score) in enumerate(zip(texts, scores, strict=True), start=1):
            parts = {"bertscore_precision": 0.95 - 0.02 * r, "bertscore_recall": 0.4 + 0.1 * r}
            made.append({"meeting_id": f"m{own.number}", "draft": r, "summary": text} | parts | {"bertscore_f1": score})
        read.append(own.loop(answers=texts, golds=(), scores=scores))
    return Log(made, read)


@shape("drafts.csv", metric="f1")
def an_f1_alone(draw: Draw) -> Log:
    """The only score is called F1, and no answer is known to be right."""
    made, read = [], []
    for own in draw.asked(60, 3):
        scores = tuple(round(0.6 + 0.1 * r + draw.random.random() / 20, 3) for r in range(3))
        made += [{"id": own.number, "round": r, "answer": own.answers[r - 1], "f1": scores[r - 1]} for r in (1, 2, 3)]
        read.append(own.loop(golds=(), scores=scores))
    return Log(made, read)


def _labels(draw: Draw) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return records with what was read from a label in each pass, and what is right, all of them objects; and their readings."""
    made, read = [], []
    for own in draw.asked(60, 2):
        right = {"vintage": 1990 + own.number % 30, "volume_ml": 375 + own.number % 4}
        passes = [right if good else {**right, "volume_ml": 1500} for good in own.right]
        made.append({"sku": f"W{own.number}"} | {f"pass{r}_output": said for r, said in enumerate(passes, start=1)})
        made[-1]["expected"] = right
        answers = tuple(json.dumps(said, ensure_ascii=False) for said in passes)
        read.append(own.loop(answers=answers, golds=(json.dumps(right, ensure_ascii=False),)))
    return made, read


@shape("wines.csv", metric="match")
def objects_in_cells_of_a_wide_table(draw: Draw) -> Log:
    """Each cell of a pass has an object as JSON, as the gold answer's has."""
    made, read = _labels(draw)
    texts = [{name: json.dumps(own) if isinstance(own, dict) else own for name, own in row.items()} for row in made]
    return Log(texts, read)


@shape("wines.jsonl", metric="match")
def objects_by_pass_in_a_record(draw: Draw) -> Log:
    """Each record has an object for each pass, and one with what is right."""
    return Log(*_labels(draw))


@shape("moderation.csv")
def passes_newest_first(draw: Draw) -> Log:
    """A pass counts the labels of a post, whose id has a name of its own, and the last one is first in the file."""
    questions = draw.asked(60)
    made = [
        {"post_id": f"p{own.number}", "pass": r, "predicted_label": said, "true_label": own.gold}
        for own in questions
        for r, said in enumerate(own.answers, start=1)
    ]
    return Log(made[::-1], loops(questions))
