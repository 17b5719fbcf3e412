"""Logs with numbers called after a score, scores beside gold sentences, gold answers beside columns of rounds, and dates in two forms."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops, rows


@shape("passes.csv", options=("--metric-column", "reviewer_ok=reviewer_ok"), metric="reviewer_ok")
def confidences_called_after_passes(draw: Draw) -> Log:
    """Each pass has a confidence, called `pass_conf`, and a reviewer has said which labels are right."""
    questions = draw.asked(90, 3)
    made = rows(
        questions,
        lambda own, r: {
            "doc_id": f"D{own.number}",
            "question": own.question,
            "round": r,
            "answer": own.answers[r - 1],
            "pass_conf": round(0.7 + 0.2 * draw.random.random(), 2),
            "reviewer_ok": int(own.right[r - 1]),
        },
    )
    return Log(made, [own.loop(golds=()) for own in questions])


@shape("costs.jsonl")
def seconds_and_dollars_called_after_scores(draw: Draw) -> Log:
    """Numbers below 1 that are called after scores are seconds and dollars: gold answers judge, and nothing else."""
    questions = draw.asked(60, 3)
    made = rows(
        questions,
        lambda own, r: {
            "id": own.number,
            "question": own.question,
            "round": r,
            "gold": own.gold,
            "answer": own.answers[r - 1],
            "correct_latency_s": round(draw.random.random(), 3),
            "judge_cost_usd": round(draw.random.random() / 100, 5),
            "accuracy_estimate": round(draw.random.random(), 2),
        },
    )
    return Log(made, loops(questions))


@shape("patents.csv")
def a_gold_column_before_columns_of_passes(draw: Draw) -> Log:
    """Columns of passes come after the gold answer, which is called after what is asked as they are."""
    questions = draw.asked(80, 2)
    made = [
        {
            "patent_no": f"EP31{own.number:05}B1",
            "title": own.question,
            "city_gold": own.gold,
            **{f"pass{r}_city": text for r, text in enumerate(own.answers, start=1)},
        }
        for own in questions
    ]
    return Log(made, loops(questions))


@shape("register.csv", metric="match")
def dates_of_an_office_in_another_form(draw: Draw) -> Log:
    """Answers are dates as 12.10.1931, and the register has them as 1931-10-12, under a name that says little."""
    questions = draw.asked(80, 3, kind="day")
    german = lambda day: ".".join(reversed(day.split("-")))  # noqa: E731
    made = rows(
        questions,
        lambda own, r: {
            "record": f"GR-{own.number:03}",
            "question": own.question,
            "attempt": r,
            "answer": german(own.answers[r - 1]),
            "register_entry": own.gold,
            "human_verdict": "correct" if own.right[r - 1] else "wrong",
        },
    )
    read = [own.loop(answers=tuple(map(german, own.answers))) for own in questions]
    return Log(made, read)


def _drafts(draw: Draw, score: str, most: float, **beside: float) -> Log:
    """Return drafts of sentences beside a reference that none equals, with a score of their own from 0 to `most`."""
    made, read = [], []
    for own in draw.asked(60, 3):
        reference = f"{own.gold} is where caravan {own.number} halts at night, {draw.prose(4)}."
        texts = tuple(f"{text} is where the caravan stays at night, {draw.prose(4)}." for text in own.answers)
        scores = tuple(round(0.3 + 0.4 * right + draw.random.random() / 5, 3) for right in own.right)
        made += [
            {
                "seg_id": f"S{own.number:03}",
                "draft_no": r,
                "source": own.question,
                "answer": text,
                "reference": reference,
                **beside,
                score: round(most * value, 2) if most > 1 else value,
            }
            for r, (text, value) in enumerate(zip(texts, scores, strict=True), start=1)
        ]
        shown = [round(most * value, 2) / most if most > 1 else value for value in scores]
        read.append(own.loop(answers=texts, golds=(), scores=tuple(shown)))
    return Log(made, read)


@shape("recipes.jsonl", metric="comet")
def translations_with_a_comet(draw: Draw) -> Log:
    """A learned metric scores drafts of a translation: words in common with the reference say little."""
    return _drafts(draw, "comet", 1)


@shape("subtitles.csv", metric="chrf")
def translations_with_a_percentage(draw: Draw) -> Log:
    """The score is a percentage, and a temperature stands beside it."""
    return _drafts(draw, "chrf", 100, temperature=0.3)


@shape("minutes.parquet", metric="panel_x")
def summaries_with_a_score_of_an_unknown_name(draw: Draw) -> Log:
    """No word says that the number judges summaries, but nothing else does."""
    return _drafts(draw, "panel_x", 1)
