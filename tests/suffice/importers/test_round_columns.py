"""Rounds as columns: what every importer's rounds become before they are written."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice import Round, import_recording, read_recording
from suffice.importers import ImportedRun, ImportedTrajectory, read_tabular
from suffice.importers.rounds.round_columns import columns_of, trajectories_of
from suffice.importers.tables import table_parts
from suffice.policy.rounds import Cost
from suffice.policy.signals import compute_signals, definitions, register_signal
from tests.suffice.policy.test_signal_definitions import loops
from tests.support.logs import written


def trajectory(name, rounds, **fields):
    return ImportedTrajectory(question_id=name, cluster=name, rounds=tuple(rounds), end="max_rounds", **fields)


@pytest.fixture
def number_of_answers():
    register_signal("count", (0, 9), name="number_of_answers")(lambda rounds: len({item.answer for item in rounds}))
    yield "number_of_answers"
    del definitions._REGISTRY["number_of_answers"]


@pytest.mark.usefixtures("number_of_answers")
@settings(deadline=None, max_examples=12)
@given(st.lists(loops(), min_size=1, max_size=4))
def test_signals_of_columns_are_those_of_the_rounds_so_far(questions):
    # A column of a recording is called `round`: no measurement can have that name.
    questions = [
        [replace(r, signals={k: v for k, v in r.signals.items() if k != "round"}) for r in own] for own in questions
    ]
    run = ImportedRun(source="mine", trajectories=[trajectory(str(q), own) for q, own in enumerate(questions)])
    rows = iter(run.rows())
    for own in questions:
        for i in range(len(own)):
            row = next(rows)
            for name, value in compute_signals(own[: i + 1], state={}).items():
                assert row[name] == (None if math.isnan(value) else value), name


@settings(deadline=None, max_examples=25)
@given(st.lists(loops(), min_size=1, max_size=4))
def test_trajectories_survive_the_way_through_columns(questions):
    before = [
        trajectory(str(q), [Round(index=r.index, answer=r.answer, text=r.text, passages=r.passages) for r in own])
        for q, own in enumerate(questions)
    ]
    after = trajectories_of(columns_of(before))
    assert [item.rounds for item in after] == [item.rounds for item in before]
    np.testing.assert_equal([item.metrics for item in after], [item.metrics for item in before])


def test_a_component_that_was_not_called_costs_nothing():
    rounds = [
        Round(index=1, costs={"writer": Cost(calls=1)}),
        Round(index=2, costs={"critic": Cost(calls=2)}),
        Round(index=3),
    ]
    rows = ImportedRun(source="mine", trajectories=[trajectory("q", rounds)]).rows()
    assert [row["cost.writer.calls"] for row in rows] == [1.0, 0.0, None]
    assert [row["cost.critic.calls"] for row in rows] == [0.0, 2.0, None]


def test_a_signal_is_undefined_before_its_first_round_wherever_a_question_begins():
    rounds = {"a": [1, 2], "b": [0, 1]}
    run = ImportedRun(
        source="mine",
        trajectories=[
            trajectory(q, [Round(index=r, signals={"rerank_score": 2.0}) for r in own]) for q, own in rounds.items()
        ],
    )
    assert [row["rerank_score"] for row in run.rows()] == [2.0, 2.0, None, 2.0]


def test_a_column_named_like_a_label_is_kept_beside_it(tmp_path):
    rows = [{"id": "q", "round": r, "answer": "x", "llm": "small", "model": r} for r in (1, 2)]
    path = written(tmp_path, rows)
    import_recording(path, labels={"model": "llm"}, out=tmp_path / "r.parquet")
    table = read_recording(tmp_path / "r.parquet").table
    assert table.column("model").to_pylist() == ["small", "small"]
    assert table.column("imported_model").to_pylist() == [1.0, 2.0]


def test_gold_answers_without_a_column_of_answers_score_nothing(tmp_path):
    rows = [{"question_id": "q", "round": r, "p_correct": 0.5} for r in (1, 2)]
    golds = written(tmp_path / "golds.jsonl", [{"id": "q", "golds": ["Oslo"]}])
    import_recording(written(tmp_path, rows), golds=golds, out=tmp_path / "r.parquet")
    assert np.isnan(read_recording(tmp_path / "r.parquet").column("em")).all()


@pytest.mark.parametrize("large", [False, True])
def test_questions_that_share_a_text_through_another_run_are_one_cluster(large, tmp_path, monkeypatch):
    asked = {("b", "1"): "Who sang it?", ("b", "2"): "Who wrote it?", ("a", "1"): "Who wrote it?"}
    rows = [
        {"question_id": q, "seed": seed, "question": text, "round": r, "answer": "x"}
        for (q, seed), text in asked.items()
        for r in (1, 2)
    ]
    monkeypatch.setattr(table_parts, "LARGE", 0 if large else math.inf)
    import_recording(written(tmp_path, rows), out=tmp_path / "r.parquet")
    assert {*read_recording(tmp_path / "r.parquet").clusters.tolist()} == {"a"}


def test_texts_with_lone_surrogates_are_imported(tmp_path):
    rows = [{"question_id": "q\ud800", "round": r, "question": "Z\ud800?", "answer": "\ud800"} for r in (1, 2)]
    summary = import_recording(written(tmp_path, rows), out=tmp_path / "r.parquet")
    assert (summary.trajectories, summary.rounds) == (1, 2)


def test_a_round_number_beyond_any_loop_is_refused(tmp_path):
    path = written(tmp_path, [{"question_id": "q", "round": 1e300, "answer": "x"}])
    with pytest.raises(ValueError, match="round"):
        read_tabular(path)
