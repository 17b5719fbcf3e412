"""Logs whose answer is a record, a call of a tool, or what a writer wrote before a judge spoke of it."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, shape

ROOMS = ("Single", "Standard Twin", "Double")


@shape("bookings.jsonl")
def bookings_in_one_text(draw: Draw) -> Log:
    """An answer is four fields in one text, and is wrong if one of them is."""
    questions = draw.asked(80, kind="whole", rounds=3)
    form = "{}, 2026-05-{}, {} nights, {} guests"
    written = [form.format(ROOMS[own.number % 3], 10 + own.number % 20, "{}", 1 + own.number % 4) for own in questions]
    made = [
        {
            "id": f"HB-{own.number}",
            "gold": text.format(own.gold),
            "attempts": [{"answer": text.format(said)} for said in own.answers],
        }
        for own, text in zip(questions, written, strict=True)
    ]
    read = [
        own.loop(answers=tuple(text.format(said) for said in own.answers), golds=(text.format(own.gold),))
        for own, text in zip(questions, written, strict=True)
    ]
    return Log(made, read)


@shape("trips.csv")
def trips_with_dates_in_other_words(draw: Draw) -> Log:
    """Fields have semicolons between them, and a later answer writes the date and the price in another way."""
    questions = draw.asked(80, kind="name", rounds=2)
    forms = ("{}; 2026-03-{:02}; 450 EUR", "{}; {} March 2026; €450.00")
    made = [
        {
            "trip": own.number,
            "round": r,
            "answer": forms[r - 1].format(said, 1 + own.number % 28),
            "gold": forms[0].format(own.gold, 1 + own.number % 28),
        }
        for own in questions
        for r, said in enumerate(own.answers, start=1)
    ]
    read = [
        own.loop(
            answers=tuple(
                form.format(said, 1 + own.number % 28) for form, said in zip(forms, own.answers, strict=True)
            ),
            golds=(forms[0].format(own.gold, 1 + own.number % 28),),
        )
        for own in questions
    ]
    return Log(made, read)


@shape("towns.jsonl")
def prose_with_commas(draw: Draw) -> Log:
    """Answers are prose with as many commas each, of which any part counts."""
    questions = draw.asked(80)
    form = "In May, the council of {} approved the new plan, after a long debate about it, as the mayor had asked."
    short = "In May, the council of {} approved it, in the end, they say."
    made = [
        {"id": own.number, "round": r, "answer": (form if good else short).format(said), "gold": form.format(own.gold)}
        for own in questions
        for r, (said, good) in enumerate(zip(own.answers, own.right, strict=True), start=1)
    ]
    texts = [row["answer"] for row in made]
    read = [
        own.loop(answers=tuple(texts[4 * i : 4 * i + 4]), golds=(form.format(own.gold),))
        for i, own in enumerate(questions)
    ]
    return Log(made, read)
