"""Logs in which it is doubtful what an answer's score is: values with words in common, scores of the log's own, rulings, and fields of an object."""

from __future__ import annotations

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops, rows

PARTS = ("rotor", "stator", "coil", "bearing", "valve", "seal")
TOWNS = ("Ashby", "Kirk", "Lowick", "Thorpe", "Wick")


def _redrawn(draw: Draw, questions: list[Asked], pool: tuple[str, ...]) -> list[Asked]:
    """Return the questions with answers of another pool."""
    made = []
    for own in questions:
        gold = draw.random.choice(pool)
        wrong = [value for value in pool if value != gold]
        answers = tuple(gold if right else draw.random.choice(wrong) for right in own.right)
        made.append(Asked(own.number, own.question, gold, answers, own.right))
    return made


@shape("transit.jsonl")
def lines_times_and_fares(draw: Draw) -> Log:
    """What is asked is a line, a time, a fare or a stop: another line is no half of the right one."""
    lines, others = (
        tuple(f"line {i}" for i in (2, 4, 7, 11, 18, 42)),
        ("14:40", "17:05", "£2.70", "£3.20", "2026-05-04"),
    )
    asked = draw.asked(90, 3)
    questions = _redrawn(draw, asked[:40], lines) + _redrawn(draw, asked[40:], others)
    made = [
        {
            "id": f"t{own.number}",
            "question": own.question,
            "expected_answer": own.gold,
            "rounds": [{"answer": text} for text in own.answers],
        }
        for own in questions
    ]
    return Log(made, loops(questions))


@shape("conversions.csv", options=("--column", "golds="), metric="correct")
def rounded_numbers_graded_by_the_team(draw: Draw) -> Log:
    """Gold answers have two decimals, many answers fewer, and the log's own column says that these are right."""
    made, read = [], []
    for a in draw.asked(60):
        gold = 1.25 + a.number * 3.17
        values = [gold if right else gold * 1.1 for right in a.right]
        said = tuple(draw.random.choice((f"{value:.2f} km", f"{value:.1f} km")) for value in values)
        made += [
            {"qid": a.number, "expected": f"{gold:.2f} km", "step": r, "answer": text, "correct": str(right).upper()}
            for r, (text, right) in enumerate(zip(said, a.right, strict=True), 1)
        ]
        read.append(a.loop(answers=said, golds=()))
    return Log(made, read)


@shape("news.parquet", options=("--column", "rounds=summaries"), metric="rouge_l")
def summaries_with_a_rouge_of_their_own(draw: Draw) -> Log:
    """Each record has lists of summaries and of their ROUGE, and a reference summary: the log's own score may judge."""
    questions = draw.asked(60, 3)
    made, read = [], []
    for own in questions:
        town = draw.random.choice(TOWNS)
        texts = tuple(f"The council of {town} met on item {own.number}." + " It agreed." * r for r in range(3))
        scores = tuple(round(0.3 + 0.2 * right + draw.random.random() / 10, 3) for right in own.right)
        made.append(
            {
                "article_id": f"n{own.number:05}",
                "summaries": list(texts),
                "rouge_l": list(scores),
                "reference_summary": f"{town} council decided item {own.number} at last.",
            }
        )
        read.append(own.loop(answers=texts, golds=(), scores=scores))
    return Log(made, read)


@shape("customs.jsonl", options=("--column", "answer=hs_code"))
def rulings_after_the_loop(draw: Draw) -> Log:
    """Events of an office: lookups, classifications, and the ruling that says which code was right."""
    questions = _redrawn(draw, draw.asked(80, 3), ("040610", "180390", "190111", "220421", "300490", "640399"))
    made = []
    for own in questions:
        name = f"CD-2026-{own.number:06}"
        for r, code in enumerate(own.answers, start=1):
            made.append({"declaration_id": name, "event": "lookup", "round": r, "source": "tariff_db", "hits": r + 1})
            made.append({"declaration_id": name, "event": "classified", "round": r, "hs_code": code})
        made.append({"declaration_id": name, "event": "customs_ruling", "correct_hs_code": own.gold})
    return Log(made, loops(questions))


@shape("tickets.jsonl")
def answers_in_a_field_of_an_object(draw: Draw) -> Log:
    """A prediction has the part and how bad it is; the gold answer is a part."""
    questions = _redrawn(draw, draw.asked(60, 3), PARTS)
    made = rows(
        questions,
        lambda own, r: {
            "id": own.number,
            "round": r,
            "description": f"pump {own.number} is loud",
            "prediction": {"component": own.answers[r - 1], "severity": draw.random.choice(("low", "mid", "high"))},
            "expected": own.gold,
        },
    )
    return Log(made, loops(questions))
