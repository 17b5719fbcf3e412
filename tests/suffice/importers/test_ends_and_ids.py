"""Ends of loops and ids of questions in columns of unusual names, known by their values."""

from __future__ import annotations

import pytest

from suffice.errors import DataError, UnsettledError
from suffice.importers.rows.stop_words import is_stop_name
from suffice.recordings import read_recording
from tests.support.logs import imported, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo")


def rows_of(name="id", ends=("converged", "max_iterations"), column="exit", n=30):
    """Return rows of one to three rounds, of which the longest are those of the cap."""
    return [
        {name: f"T{q}", "round": r, "answer": CITIES[(q + r) % 4], "gold": CITIES[q % 4], column: ends[length == 3]}
        for q in range(n)
        for length in [1 + q % 3]
        for r in range(1, length + 1)
    ]


def ends_of(summary):
    return read_recording(summary.path).table.column("end").to_pylist()


@pytest.mark.parametrize("column", ["exit", "finish", "status", "stop_reason", "loop_status", "outcome"])
def test_words_for_the_end_of_a_loop_are_read(tmp_path, column):
    summary = imported(written(tmp_path / "log.jsonl", rows_of(column=column)))
    assert {*ends_of(summary)} == {"rule", "max_rounds"}
    assert not any("--ended rule" in note for note in summary.notes)


@pytest.mark.parametrize(("column", "ends"), [("status", ("ok", "ok")), ("status", ("failed", "timeout")), ("exit", ("red", "blue"))])  # fmt: skip
def test_other_words_are_no_ends_of_loops(tmp_path, column, ends):
    summary = imported(written(tmp_path / "log.jsonl", rows_of(column=column, ends=ends)))
    notes = [note for note in summary.notes if "--ended rule" in note]
    assert len(notes) == 1
    assert ("'exit' may say why" in notes[0]) is (column == "exit")


def test_a_named_column_of_ends_has_usual_words(tmp_path):
    source = written(tmp_path / "log.jsonl", rows_of(column="why", ends=("converged", "max_iterations")))
    assert {*ends_of(imported(source, columns={"end": "why"}))} == {"rule", "max_rounds"}


def test_unknown_words_for_the_end_print_commands(tmp_path):
    source = written(tmp_path / "log.jsonl", rows_of(column="outcome", ends=("submitted", "budget_exhausted")))
    (note,) = [note for note in imported(source).notes if "--ended rule" in note]
    assert "'outcome' may say why, but is not read (--column end=outcome)" in note
    with pytest.raises(UnsettledError) as error:
        imported(source, columns={"end": "outcome"})
    columns = error.value.choices["--column end=outcome:submitted=rule"][0]
    assert {*ends_of(imported(source, columns=columns))} == {"rule", "max_rounds"}


def test_words_that_no_option_can_name_are_refused(tmp_path):
    source = written(tmp_path / "log.jsonl", rows_of(column="why", ends=("a=b", "limit")))
    with pytest.raises(DataError, match="allowed are max_rounds") as error:
        imported(source, columns={"end": "why"})
    assert not isinstance(error.value, UnsettledError)


def test_a_wrong_end_for_a_word_is_refused(tmp_path):
    source = written(tmp_path / "log.jsonl", rows_of(column="why", ends=("done", "limit")))
    with pytest.raises(DataError, match="end is 'stop'") as error:
        imported(source, columns={"end": "why:done=stop"})
    assert not isinstance(error.value, UnsettledError)


def test_a_reason_for_closing_is_read(tmp_path):
    source = written(tmp_path / "log.jsonl", rows_of(column="closed_because", ends=("agreement", "step limit")))
    assert {*ends_of(imported(source))} == {"rule", "max_rounds"}


def test_codes_and_flags_are_not_called_ends():
    assert not any(map(is_stop_name, ("exit_code", "finished_at", "status", "stops")))


@pytest.mark.parametrize("name", ["ticket", "ref", "case", "order", "film"])
def test_a_column_whose_values_are_ids_is_one(tmp_path, name):
    summary = imported(written(tmp_path / "log.jsonl", rows_of(name)))
    assert summary.clusters == 30
    assert any(f"--column question_id={name}" in note for note in summary.notes)


def test_two_columns_that_divide_rows_otherwise_are_asked_about(tmp_path):
    rows = [{**row, "desk": f"D{int(row['ticket'][1:]) // 2}-{row['round']}"} for row in rows_of("ticket", n=40)]
    rows = [{**row, "round": 2 * (int(row["ticket"][1:]) % 2) + row["round"]} for row in rows]
    with pytest.raises(UnsettledError):
        imported(written(tmp_path / "log.jsonl", rows))


def test_a_normalizer_that_golds_confirm_is_no_option(tmp_path):
    rows = [
        {**row, "answer": f"1.{300 + n + (row['round'] < 2)},5 kg", "gold": f"1.{300 + n},5 kg"}
        for row in rows_of()
        for n in [int(row["id"][1:])]
    ]
    notes = imported(written(tmp_path / "log.jsonl", rows)).notes
    assert any("'decimal_comma', as chosen for this log" in note for note in notes)
