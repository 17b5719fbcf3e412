"""Logs with several scores of their own, and logs whose score has an unusual name or is beside objects as answers."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, shape


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
