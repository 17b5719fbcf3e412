"""Records in one text: their fields, their comparison, and which gold answers are records."""

from __future__ import annotations

import pytest

from suffice.policy.comparisons import chosen_normalizer
from suffice.policy.fields import fields_of
from suffice.policy.normalizers import NORMALIZERS

ROOMS = ("Single", "Standard Twin", "Double")


def bookings(n=40):
    return [f"{ROOMS[i % 3]}, 2026-05-{10 + i % 20}, {1 + i % 7} nights, {1 + i % 4} guests" for i in range(n)]


def tickets(n=40, right=("billing", "delivery"), level=("urgent", "normal"), place=("north", "south")):
    return [f"{right[i % 2]}; {level[i // 2 % 2]}; {place[i // 4 % 2]}" for i in range(n)]


def shifted(texts, field=-1):
    """Return pairs of texts, of which the first has another value in a field."""
    fields = [fields_of(text) for text in texts]
    wrong = [[*own] for own in fields]
    for place, own in enumerate(wrong):
        own[field] = next(other[field] for other in fields[place:] + fields if other[field] != own[field])
    return [(", ".join(own), text) for own, text in zip(wrong, texts, strict=True)]


@pytest.mark.parametrize("golds", [bookings(), tickets(), [f"Smith, Berlin, {i}" for i in range(40)]])
def test_records_are_right_as_a_whole(golds):
    chosen = chosen_normalizer(golds, pairs=shifted(golds))
    assert chosen.normalizer == "mixed"
    assert f"records of {len(fields_of(golds[0]))} fields" in chosen.why


def prose(n=40):
    return [
        f"In May, the council of {'ABCDE'[i % 5]}ville approved the plan, after a long debate, as the mayor had asked for"
        for i in range(n)
    ]


COLOURS = ("red", "green", "blue", "grey")


@pytest.mark.parametrize(
    ("golds", "pairs"),
    [
        (prose(), [(text.replace("mayor", "board"), text) for text in prose()]),
        ([", ".join(COLOURS[(i + k) % 4] for k in range(3)) for i in range(40)], None),  # a list
        (
            [f"Town {chr(65 + i % 26)}{chr(65 + i // 26)}, {('Ohio', 'Iowa')[i % 2]}, USA" for i in range(40)],
            None,
        ),  # places
        ([*bookings(30), *["fully booked"] * 10], None),  # not always a record
        (bookings(), [("It is a Single room", text) for text in bookings()]),  # no record is answered
        (["red, blue"] * 40, [("red", "red, blue")] * 40),
        (["x, 1, 2" * 100] * 40, [("x", "x, 1, 2" * 100)] * 40),
    ],
)
def test_prose_and_lists_are_judged_by_their_words(golds, pairs):
    pairs = shifted([gold for gold in golds if fields_of(gold)], field=1) if pairs is None else pairs
    assert chosen_normalizer(golds, pairs=pairs).normalizer == "qa"


def test_records_are_compared_field_by_field():
    key_of = NORMALIZERS["mixed"]
    same = [
        "Single, 2026-05-23, 6 nights, EUR 450",
        "single, 23 May 2026, 6.0 nights, €450.00",
        "Single; May 23, 2026; 6 nights; 450 EUR",
        "Single, May 23, 2026, 6 nights, 450 euros",
    ]
    assert len({*map(key_of, same)}) == 1
    other = [
        "Single, 2026-05-24, 6 nights, EUR 450",
        "Single, 2026-05-23, -6 nights, EUR 450",
        "Single, 2026-05-23, n/a, EUR 450",
    ]
    assert len({*map(key_of, [same[0], *other])}) == 4
    assert key_of("5 May 2021, 10:30") == key_of("5 May 2021 10:30")
