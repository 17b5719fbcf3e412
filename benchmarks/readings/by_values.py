"""Logs whose columns are known by their values alone: grades of several judges, exit codes, and ids of tickets."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, Loop, shape
from benchmarks.readings.plain import loops


@shape(
    "lectures.csv",
    options=("--column", "answer=summary", "--metric-column", "coverage=coverage:1..5"),
    metric="coverage",
)
def grades_of_two_judges(draw: Draw) -> Log:
    """Each revision of a summary is graded from 1 to 5 for its coverage, which rises, and for its fluency, which does not."""
    made: list[dict[str, Any]] = []
    read: list[Loop] = []
    for number in range(60):
        first = draw.random.randint(1, 2)
        grades = [min(5, first + r + draw.random.randint(0, 1)) for r in range(4)]
        texts = tuple(f"The lecture {number} has {r + 2} points: {draw.prose(8 + 3 * r)}." for r in range(4))
        for r, (text, grade) in enumerate(zip(texts, grades, strict=True), start=1):
            row = {"lecture_id": f"L{number:03}", "revision": r, "summary": text}
            made.append(row | {"coverage": grade, "fluency": draw.random.randint(3, 5)})
        read.append(Loop(number, texts, (), tuple((grade - 1) / 4 for grade in grades)))
    return Log(made, read)


@shape(
    "patches.jsonl",
    options=("--column", "answer=patch", "--metric-column", "exit_code=cargo_test.exit_code:101,0"),
    metric="exit_code",
)
def exit_codes_of_a_test_run(draw: Draw) -> Log:
    """Each attempt at a bug has a patch, and the tests end with 0 or 101; nearly all of them pass in any case."""
    made: list[dict[str, Any]] = []
    read: list[Loop] = []
    for number in range(60):
        right = [draw.random.random() < share for share in (0.3, 0.5, 0.7)]
        patches = tuple(f"-let x = v[{number}];\n+let x = v.get({draw.random.randint(0, 99)})?;" for _ in right)
        attempts = [
            {
                "attempt": r,
                "patch": patch,
                "cargo_test": {"passed": 242 - (not good), "total": 242, "exit_code": 0 if good else 101},
            }
            for r, (patch, good) in enumerate(zip(patches, right, strict=True), start=1)
        ]
        made.append({"bug_id": f"rust-{number:03}", "attempts": attempts})
        read.append(Loop(number, patches, (), tuple(right)))
    return Log(made, read)


@shape("helpdesk.csv")
def tickets_of_a_wide_table(draw: Draw) -> Log:
    """Each row is a ticket, named by a column called so, with its drafts beside one another."""
    questions = draw.asked(60, 3)
    made = [
        {"ticket": f"HD-{1000 + own.number}", "gold": own.gold}
        | {f"draft_{r}": text for r, text in enumerate(own.answers, start=1)}
        for own in questions
    ]
    return Log(made, loops(questions))


@shape("cases.csv")
def cases_with_rising_numbers(draw: Draw) -> Log:
    """The first column of a wide table has numbers that rise with gaps, as those of cases do."""
    questions = draw.asked(60, 3)
    number = 4000
    made = []
    for own in questions:
        number += draw.random.randint(1, 9)
        answers = {f"answer_{r}": text for r, text in enumerate(own.answers, start=1)}
        made.append({"case": number, "question": own.question, "gold": own.gold} | answers)
    return Log(made, loops(questions))


@shape("tickets.json")
def tickets_whose_rounds_have_ids(draw: Draw) -> Log:
    """Each record is named by its ticket, and each of its rounds has an id of its own."""
    questions = draw.asked(60, 3)
    made = [
        {
            "ticket": f"HD-{1000 + own.number}",
            "question": own.question,
            "gold": own.gold,
            "rounds": [
                {"id": f"{draw.random.getrandbits(48):012x}", "round": r, "answer": text}
                for r, text in enumerate(own.answers, start=1)
            ],
        }
        for own in questions
    ]
    return Log(made, loops(questions))
