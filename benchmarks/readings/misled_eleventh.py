"""Logs that misled the importer when an eleventh person tried it: ids of rows, solutions, folders of records, and ids of several parts."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("escalation.csv")
def attempts_with_ids_of_rows(draw: Draw) -> Log:
    """Each row has an id of its own, called after attempts, and `attempt` counts those of a question, the last by another model."""
    questions = draw.asked(80, 3)
    rows = [
        {"question_id": f"T{a.number}", "attempt": r, "model": "mini" if r < 3 else "large", "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]  # fmt: skip
    return Log([{"attempt_id": n, **row} for n, row in enumerate(rows, start=1)], loops(questions))


@shape("tickets.csv")
def attempts_at_tickets_until_one_is_accepted(draw: Draw) -> Log:
    """Most tickets have one attempt; ids of rows and of tickets are numbers, and the attempts of a ticket are apart in the file."""
    made: list[dict[str, object]] = []
    questions = draw.asked(120, 3)
    lengths = [draw.random.choice([1, 1, 1, 2, 3]) for _ in questions]
    for r in range(3):
        for a, n in zip(questions, lengths, strict=True):
            if r < n:
                row = {"ticket_id": 70000 + a.number, "attempt": r + 1, "model": ("mini", "mini", "large")[r]}
                made.append({"attempt_id": len(made) + 1, **row, "answer": a.answers[r], "expected": a.gold})
    return Log(
        made, [a.loop(answers=a.answers[:n], scores=a.right[:n]) for a, n in zip(questions, lengths, strict=True)]
    )


def solved(draw: Draw, name: str, solution: str, reply: str = "{words}. The answer is {text}.") -> Log:
    """Return samples of whole replies beside a solution, which ends in the gold answer."""
    questions = draw.asked(80, 6, kind="whole", right=(0.6, 0.6))
    made = [
        {
            "problem_id": a.number,
            "grade": 3 + a.number % 4,
            "problem": a.question,
            name: solution.format(words=draw.prose(4), n=2 + a.number % 7, gold=a.gold),
            "samples": [{"text": reply.format(words=draw.prose(9), text=text)} for text in a.answers],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("solution.jsonl", samples=True)
def solutions_with_a_mark(draw: Draw) -> Log:
    """The gold answer is behind the mark of GSM8K in a column called `solution`."""
    return solved(draw, "solution", "There are {n} {words}, {n}*2=<<{n}*2=8>>8.\n#### {gold}")


@shape("reference.jsonl", samples=True)
def reference_solutions_with_a_mark(draw: Draw) -> Log:
    """The same in a column whose name says that it is a reference."""
    return solved(draw, "reference_solution", "There are {n} {words}.\n#### {gold}")


@shape("boxed.jsonl", samples=True)
def solutions_with_a_box(draw: Draw) -> Log:
    """The gold answer is in a box of LaTeX within `solution`."""
    return solved(
        draw,
        "solution",
        "There are {n} {words}, so that we have $\\boxed{{{gold}}}$ of them.",
        "{words}.\nAnswer: {text}",
    )


@shape("demandes")
def folder_of_records_in_french(draw: Draw) -> Log:
    """A file for each question, with its rounds in a list of no usual name."""
    questions = draw.asked(40)
    files = {
        f"demande_{a.number:04}.json": {
            "id_demande": f"D-{a.number:04}",
            "texte": a.question,
            "service_attendu": a.gold,
            "tours": [
                {"tour": r, "service": text, "justification": draw.prose(5), "jetons_entree": draw.tokens(), "jetons_sortie": draw.tokens()}
                for r, text in enumerate(a.answers, start=1)
            ],
        }
        for a in questions
    }  # fmt: skip
    return Log(files, loops(questions))


@shape("cases")
def folder_of_records_without_known_names(draw: Draw) -> Log:
    """A file for each question; nothing in it has a usual name, and the list of rounds does not count them."""
    questions = draw.asked(40)
    files = {
        f"{a.number:03}.json": {
            "bezeichnung": f"K{a.number}",
            "abteilung_soll": a.gold,
            "anlaeufe": [{"abteilung": text, "notiz": draw.prose(4)} for text in a.answers],
        }
        for a in questions
    }
    return Log(files, loops(questions))


def batch(draw: Draw, form: str) -> list[dict[str, object]]:
    """Return the rows of six calls to each question, in any order; `form` makes an id of question and number."""
    questions = draw.asked(60, 6, kind="whole", right=(0.6, 0.6))
    made: list[dict[str, object]] = [
        {
            "id": form.format(a.number, s),
            "output": f"The later reading less the earlier one is {a.number + 4000}. Answer: {text}",
            "expected": a.gold,
        }
        for a in questions
        for s, text in enumerate(a.answers)
    ]
    draw.random.shuffle(made)
    return made


def sampled(draw: Draw, form: str) -> Log:
    made = batch(draw, form)
    answers: dict[str, list[str]] = {}
    golds = {}
    numbers = {form.format(q, s): q for q in range(60) for s in range(6)}
    for row in sorted(made, key=lambda row: str(row["id"])):
        own = str(numbers[str(row["id"])])
        answers.setdefault(own, []).append(str(row["output"]).rpartition(" ")[2])
        golds[own] = str(row["expected"])
    read = [
        Asked(int(own), "", golds[own], (*said,), tuple(text == golds[own] for text in said)).loop()
        for own, said in answers.items()
    ]
    return Log(made, read)


@shape("meters.jsonl", samples=True)
def ids_with_a_letter_and_the_number_of_a_sample(draw: Draw) -> Log:
    """Ids end in `-s3`, and nothing says that this is a sample."""
    return sampled(draw, "meter-{:04}-s{}")


@shape("bare.jsonl", samples=True)
def ids_with_the_bare_number_of_a_sample(draw: Draw) -> Log:
    """Ids end in `_3`."""
    return sampled(draw, "meter-{:04}_{}")


@shape("chapters.jsonl")
def numbers_of_exercises_in_chapters(draw: Draw) -> Log:
    """Ids end in a number, as those of exercises do, of which each has one answer: there is nothing to stop."""
    questions = draw.asked(120, 1)
    made = [
        {
            "id": f"chapter{a.number // 6}_{a.number % 6}",
            "output": f"{a.answers[0]} {draw.prose(6)}",
            "expected": a.gold,
        }
        for a in questions
    ]
    return Log(made)


@shape("ratings.tsv")
def questions_of_several_columns(draw: Draw) -> Log:
    """A document, a segment and a language together name what is translated, and `pass` counts its rounds."""
    questions = draw.asked(120, 3)
    made = [
        {
            "doc_id": f"manual-{a.number // 12}",
            "seg": a.number // 2 % 6 + 1,
            "src_lang": "en",
            "tgt_lang": ("de", "fr")[a.number % 2],
            "pass": r,
            "translation": text,
            "gold": a.gold,
        }
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("verdicts.jsonl")
def verdicts_in_a_list(draw: Draw) -> Log:
    """What the model said is in a list called `verdicts`, beside the right decision."""
    questions = draw.asked(80)
    made = [
        {"candidate": 5000 + a.number, "summary": draw.prose(8), "verdicts": list(a.answers), "manager": a.gold}
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("runs", metric="tests_passed")
def steps_with_counts_of_tests(draw: Draw) -> Log:
    """The steps of an agent have no answers, but how many of the tests pass after each."""
    questions = draw.asked(60)
    files, read = {}, []
    for a in questions:
        passed = sorted(draw.random.randint(0, 10) for _ in a.answers)
        steps = [
            {
                "step": r,
                "thought": draw.prose(5),
                "action": f"run {draw.prose(1)}",
                "tests_passed": n,
                "tests_total": 10,
            }
            for r, n in enumerate(passed, start=1)
        ]
        files[f"shop-{a.number}/trajectory.json"] = {"instance_id": f"shop-{a.number}", "steps": steps}
        read.append(a.loop(answers=tuple(None for _ in passed), golds=(), scores=tuple(n / 10 for n in passed)))
    return Log(files, read)


@shape("faelle.csv")
def cases_numbered_in_german(draw: Draw) -> Log:
    """Nothing is called like an id, an answer or a gold answer but in German."""
    questions = draw.asked(80, 3)
    made = [
        {"Schaden-Nr": f"S-{a.number:05}", "Versuch": r, "Meldung": a.question, "Entscheidung": text, "Soll-Entscheidung": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]  # fmt: skip
    return Log(made, loops(questions))


@shape("flights.jsonl")
def names_with_numbers(draw: Draw) -> Log:
    """Flights of several airlines: the number alone does not name one."""
    lines = ("LX", "BA", "AF", "KL")
    questions = []
    for a in draw.asked(60, 3):
        number = draw.random.randint(100, 999)
        own, *others = draw.random.sample(lines, len(lines))
        said = tuple(f"{own if right else draw.random.choice(others)} {number}" for right in a.right)
        questions.append(replace(a, gold=f"{own} {number}", answers=said))
    rows = [
        {"question_id": a.number, "round": r, "question": a.question, "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(rows, loops(questions))
