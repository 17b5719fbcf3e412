"""Cautions about copies of the last round and about sentences, and alarms that name one cause once."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from suffice.importers.checks.reading import Reading
from suffice.recordings.schema import table_of_columns
from tests.support.logs import imported, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")
WORDS = ("amber", "basin", "cedar", "delta")


def cautions(source, **options):
    return {alarm.name: alarm.sentence for alarm in imported(source, **options).alarms}


def drafts(name, values, *, copied=True, n=12):
    """Return records of three drafts and a final step, a copy of the last draft or another answer, told apart by a field."""
    draft, final = values
    records = []
    for q in range(n):
        steps = [{name: draft, "answer": CITIES[(q + (r < 1 + q % 2)) % 5]} for r in range(3)]
        steps.append({name: final, "answer": CITIES[(q + 2 * (not copied)) % 5]})
        records.append({"id": q, "question": f"Where is {q}?", "gold": CITIES[(q + q % 2) % 5], "steps": steps})
    return records


@pytest.mark.parametrize(
    ("name", "values", "option"),
    [
        ("step", ("draft", "final"), {"step": "draft"}),
        ("stage", ("attempt", "result"), {"stage": "attempt"}),
        ("is_final", (False, True), {"is_final": "0"}),
        ("is_final", (0, 1), {"is_final": "0"}),
    ],
    ids=str,
)
def test_a_copied_last_row_is_noted_in_small_logs(name, values, option, tmp_path):
    source = written(tmp_path, drafts(name, values))
    found = cautions(source)["copied-rounds"]
    (shown,) = [f"--where {theirs}={value}" for theirs, value in option.items()]
    assert shown in found
    assert len(imported(source, where=option).by_round) == 3


@pytest.mark.parametrize("value", ["False", "false", "0"])
def test_false_is_chosen_by_each_of_its_names(value, tmp_path):
    source = written(tmp_path, drafts("is_final", (False, True)))
    assert len(imported(source, where={"is_final": value}).by_round) == 3


def test_a_last_row_of_its_own_kind_may_be_another_answer(tmp_path):
    assert "copied-rounds" not in cautions(written(tmp_path, drafts("stage", ("draft", "final"), copied=False)))
    assert "copied-rounds" not in cautions(written(tmp_path / "same.jsonl", drafts("stage", ("draft", "draft"))))


def sentences(n=20, rounds=2):
    return [
        {
            "id": q,
            "question": f"Where is {q}?",
            "log": [f"I think {WORDS[(q + r) % 4]} hides it in {CITIES[(q + r) % 5]}." for r in range(rounds)],
        }
        for q in range(n)
    ]


def test_sentences_in_a_named_list_are_noted_as_drafts(tmp_path):
    source = written(tmp_path, sentences())
    assert "are sentences" in cautions(source, columns={"rounds": "log"})["drafts"]


def test_sentences_that_stay_the_same_are_answers(tmp_path):
    records = [{**record, "log": record["log"][:1] * 2} for record in sentences()]
    records[0]["log"][1] = "In Bern, or so it was once written."
    assert "drafts" not in cautions(written(tmp_path, records), columns={"rounds": "log"})


def test_options_are_not_called_drafts_as_well(tmp_path):
    options = [
        {"id": q, "gold": CITIES[q % 5], **{f"answer_{i}": CITIES[(2 * q + i) % 5] for i in range(5)}}
        for q in range(20)
    ]
    found = cautions(written(tmp_path, options), expected=["options", "sample-list"])
    assert "drafts" not in found
    assert "options" in found


def test_a_loop_that_stops_when_right_is_noted_once(tmp_path):
    records = [
        {
            "id": q,
            "gold": CITIES[q % 5],
            "steps": [{"answer": CITIES[(q + place) % 5]} for place in range(q % 3, -1, -1)],
        }
        for q in range(45)
    ]
    assert set(cautions(written(tmp_path, records), log_golds="keep")) >= {"stopped-when-right"}
    assert "last-is-gold" not in cautions(written(tmp_path / "again.jsonl", records))


def test_equal_columns_are_counted_as_by_plain_loops():
    draw = random.Random(4)
    starts, rows = [0], []
    for q in range(60):
        n, own = draw.randint(1, 4), draw.choice([None, "Oslo", "lima", "['Rome', 'Oslo']", "x"])
        for r in range(n):
            label = own if draw.random() < 0.9 else "other"
            answer = draw.choice([None, "Oslo", "Lima", "Rome"])
            rows.append(
                {
                    "question_id": str(q),
                    "round": r + 1,
                    "answer": answer,
                    "golds": [],
                    "em": draw.choice([0.0, 1.0, None]),
                    "label": label,
                }
            )
        starts.append(len(rows))
    reading = Reading("qa")
    reading.add(
        table_of_columns({name: [row[name] for row in rows] for name in rows[0]}, {"em": "metric", "label": "label"})
    )
    counts = [0, 0, 0]
    for start, end in pairwise(starts):
        own = rows[start:end]
        if own[0]["label"] is None or len({row["label"] for row in own}) > 1:
            continue
        golds = {"['Rome', 'Oslo']": {"rome", "oslo"}}.get(own[0]["label"], {own[0]["label"].lower()})
        equal = [(row["answer"] or "").lower() in golds for row in own]
        agreed = sum((row["em"] == 1) == same for row, same in zip(own, equal, strict=True))
        counts = [old + new for old, new in zip(counts, (any(equal), equal[-1], agreed), strict=True)]
    facts = reading.facts
    assert counts == [facts.equalling["label"], facts.equalling_last["label"], facts.agreeing["label", "em"]]
    assert min(counts) > 0


@pytest.mark.parametrize(
    ("name", "scale", "mixed"), [("confidence", 100, True), ("confidence", 1, False), ("seconds", 100, False)]
)
def test_shares_beside_percentages_are_noted(name, scale, mixed, tmp_path):
    drawn = random.Random(1)
    rows = [
        {"id": q, "answer": "Oslo", "gold": "Oslo", name: round(drawn.uniform(0.2, 0.99) * (scale if q % 2 else 1), 3)}
        for q in range(45)
        for _ in range(2)
    ]
    assert ("mixed-scales" in cautions(written(tmp_path, rows), log_golds="keep")) is mixed
