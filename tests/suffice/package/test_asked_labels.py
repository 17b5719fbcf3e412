"""The benchmark of labels hides what it says it hides, and counts what was asked."""

from __future__ import annotations

import numpy as np
from benchmarks.asked_labels import CASES, PAGE, asked, right_answers, table, without_golds

from suffice.recordings import bundled_recording


def small():
    recording = bundled_recording("samples_date")
    return recording.select(np.arange(len(recording.question_ids)) < 120)


def test_nothing_that_scores_is_left_without_golds():
    bare = without_golds(small())
    assert "golds" not in bare.table.column_names
    assert not bare.names("metric")


def test_the_figures_of_a_row_are_those_of_its_runs():
    recording = small()
    row = asked(recording, 0.2, orders=3)
    assert row["questions"] == 120
    assert row["first"]["labels"] <= row["all"] <= 120
    assert row["last"].trial.labels <= row["all"]
    assert not row["last"].to_label
    truth = right_answers(recording)
    assert set(truth) == set(recording.question_ids)
    assert sum(map(bool, truth.values())) > 60


def test_the_page_has_a_row_for_each_case():
    text = PAGE.read_text("utf-8")
    assert all(f"| {name} | {100 * most:g} |" in text for name, most in CASES)
    assert len(table([]).columns) == text.split("| ---")[0].rsplit("\n", 2)[-2].count(" | ") + 1
