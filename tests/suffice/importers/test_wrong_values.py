"""Answers whose values would be read wrong: lists in another order, other units, errors, retries, and merged cells."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import import_recording, read_recording
from suffice.errors import UnsettledError
from tests.support.cli_tools import CITIES
from tests.support.logs import imported, offered, written


def log(path, answer_of, gold_of, n=30, **more):
    """Write a log of two rounds; answers, gold answers and further columns are functions of question and round."""
    rows = [
        {"id": q, "answer": answer_of(q, r), "gold": gold_of(q), **{name: make(q, r) for name, make in more.items()}}
        for q in range(n)
        for r in (1, 2)
    ]
    return written(path, rows)


def read(tmp_path, *made, **options):
    return import_recording(log(tmp_path / "log.jsonl", *made), out=tmp_path / "log.parquet", **options)


def test_lists_in_words_are_asked_about(tmp_path):
    def answer(q, r):
        return "Oslo; Rome; Lima" if r == 2 else f"{CITIES[q % 4]}, Bern"

    with pytest.raises(UnsettledError, match="another order") as error:
        read(tmp_path, answer, lambda q: "Lima, Oslo, Rome")
    assert [*error.value.choices] == ["--set normalizer=unordered", "--set normalizer=qa"]
    means = read(tmp_path, answer, lambda q: "Lima, Oslo, Rome", normalizer="unordered").by_round
    assert [mean.match for mean in means] == [0, 1]


def test_places_with_commas_are_no_lists(tmp_path):
    assert (
        read(tmp_path, lambda q, r: f"{CITIES[q % 4]}, Europe", lambda q: f"{CITIES[(q + 1) % 4]}, Europe").rounds == 2
    )


def test_quantities_in_another_unit_are_equal(tmp_path):
    summary = read(tmp_path, lambda q, r: f"{q + 1} m" if r == 1 else f"{q + 1},000 m", lambda q: f"{q + 1} km")
    assert [mean.match for mean in summary.by_round] == [0, 1]
    assert any("for another reading, --set normalizer=number" in note for note in summary.notes)


def test_units_that_some_answers_leave_out_are_asked_about(tmp_path):
    with pytest.raises(UnsettledError, match="or as 'mixed'"):
        read(tmp_path, lambda q, r: (f"{q + 1}", f"{q + 1},000 m")[(q + r) % 2], lambda q: f"{q + 1} km")


def test_a_shared_unit_is_not_half_an_answer(tmp_path):
    def gold(q):
        return f"{q + 1} km" if q % 2 else CITIES[q % 4]

    summary = read(tmp_path, lambda q, r: gold(q) if r == 2 else f"{q} km" if q % 2 else "Bern", gold)
    assert [mean.match for mean in summary.by_round] == [0, 1]


def test_messages_of_errors_have_a_caution(tmp_path):
    def answer(q, r):
        return "[ERROR] Request timed out." if (q + r) % 5 == 0 else CITIES[(q + r) % 4]

    names = [alarm.name for alarm in read(tmp_path, answer, lambda q: CITIES[q % 4]).alarms]
    assert "error-answers" in names
    names = [alarm.name for alarm in read(tmp_path, lambda q, r: CITIES[(q + r) % 4], lambda q: CITIES[q % 4]).alarms]
    assert "error-answers" not in names


@pytest.mark.parametrize(("marks", "option"), [((0, 1), "retry=0"), ((False, True), "retry=False")])
def test_rows_that_repeat_a_call_are_no_rounds(tmp_path, marks, option):
    rows = [
        {"id": q, "answer": CITIES[(q + r) % 4], "gold": CITIES[q % 4], "retry": marks[retry]}
        for q in range(30)
        for r in (1, 2)
        for retry in range(1 + ((q + r) % 3 == 0))
    ]
    path = written(tmp_path, rows)
    assert offered(path, match="repeat a call") == [f"--where {option}", "--column round="]
    name, _, value = option.partition("=")
    summary = imported(path, where={name: value})
    assert (summary.rounds, {*summary.ends}) == (2, {"max_rounds"})


def test_merged_cells_may_be_apart(tmp_path):
    lines = ["Frage;Lauf;Antwort;Musterlösung"]
    for q in range(30):
        question, gold = f"Where is tower {q}?", CITIES[q % 4]
        lines += [f"{question};1;{CITIES[(q + 1) % 4]};{gold}", f";2;{CITIES[q % 3]};"]
    path = tmp_path / "sheet.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    summary = imported(path, columns={"round": "Lauf"})
    assert (summary.clusters, summary.rounds) == (30, 2)
    assert any("'Frage', 'Musterlösung'" in note for note in summary.notes)


def test_tokens_below_zero_are_unknown_with_a_note(tmp_path):
    tokens = {"input_tokens": lambda q, r: 200, "output_tokens": lambda q, r: -50 if r == 2 and q < 10 else 20}
    path = log(tmp_path / "log.jsonl", lambda q, r: "Oslo", lambda q: "Oslo", **tokens)
    summary = imported(path, log_golds="keep")
    assert any("output_tokens is below 0 in 10 of 60 rounds" in note for note in summary.notes)
    written = read_recording(summary.path).column("cost.generator.output_tokens")
    assert np.isnan(written).sum() == 10
    assert np.nanmin(written) == 20
