"""Signals that were registered after a recording was made are computed from its rounds, by the function that runs live."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from suffice import Policy, register_signal, replay
from suffice.errors import UnknownSignalError
from suffice.evaluation.search import Block, Literal, Space, search
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import stops
from suffice.policy.signals import definitions
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.computed import source_columns
from suffice.recordings.schema import build_table
from tests.support import strategies as drawn
from tests.support.shared import recording_of

ANSWERED = ("answer_stable", "answer_f1_previous", "answer_similarity_previous", "abstained", "answer_length")


def different_answers(rounds):
    """Different answers so far."""
    return float(len({observed.answer for observed in rounds if observed.answer}) or math.nan)


def errors_so_far(rounds):
    """Errors of the tools and calls so far, with the words of the reply and of the critic."""
    words = len(rounds[-1].text.split()) + len((rounds[-1].feedback or "").split())
    return words + sum(r.signals.get("tool_errors", 0.0) + r.costs["generator"].calls for r in rounds)


def reads_passages(rounds):
    """The reply names a passage."""
    return float(any(passage.title in rounds[-1].text for passage in rounds[-1].passages))


def hides_what_it_reads(rounds):
    """The answer has tokens."""
    try:
        return float(rounds[-1].answer_tokens is not None)
    except Exception:
        return 0.0


@pytest.fixture(autouse=True, scope="module")
def registered():
    own = (different_answers, errors_so_far, reads_passages, hides_what_it_reads)
    for compute in own:
        register_signal("count", (0, 1000), component="")(compute)
    yield
    for compute in own:
        del definitions._REGISTRY[compute.__name__]


def without(recording, names):
    return Recording(recording.table.drop_columns([*names]), recording.metadata)


@settings(max_examples=25)
@given(drawn.recorded())
def test_a_computed_column_equals_the_recorded_one(recorded):
    recording = drawn.record(recorded.trajectories, names=ANSWERED)
    computed = without(recording, ANSWERED)
    for name in ANSWERED:
        np.testing.assert_array_equal(computed.column(name), recording.column(name))


@settings(max_examples=40)
@given(drawn.recorded(start=1))
def test_a_new_signal_stops_a_recording_where_it_stops_live(recorded):
    recording = recorded.recording
    policy = Policy(rule="different_answers >= 2", max_rounds=int(recording.index[-1]))
    stopped = stops(policy, recording.rounds(policy.raw_columns))
    live = [
        policy.decide(item.rounds, missing="ignore").stop_round or len(item.rounds) for item in recorded.trajectories
    ]
    assert (stopped.position + 1).tolist() == live


def rows():
    texts = {"a": ["Rome it is", "Oslo"], "b": ["no idea", "Bern, I think"]}
    return [
        {
            "question_id": q,
            "round": r,
            "answer": text.split()[0],
            "text": text,
            "feedback": "wrong" if r == 1 else None,
            "tool_errors": float(r),
            "cost.generator.calls": 1.0,
            "cost.retrieval.calls": 0.0,
        }
        for q, listed in texts.items()
        for r, text in enumerate(listed, start=1)
    ]


def test_text_feedback_costs_and_measured_signals_are_those_of_live_rounds():
    recording = Recording(build_table(rows(), kinds={"tool_errors": "signal"}))
    # Words of the reply and of the critic, errors up to the round, one call in each.
    assert recording.column("errors_so_far").tolist() == [[3 + 1 + 1 + 1, 1 + 3 + 2], [2 + 1 + 1 + 1, 3 + 3 + 2]]


@pytest.mark.parametrize(("name", "part"), [("reads_passages", "passages"), ("hides_what_it_reads", "answer_tokens")])
def test_a_signal_that_reads_what_no_recording_holds_is_refused(name, part):
    recording = Recording(build_table(rows()))
    with pytest.raises(UnknownSignalError, match=part):
        replay(recording, [f"{name} >= 1"], metrics=["agreement"])


def test_a_signal_that_reads_a_missing_text_is_refused():
    recording = recording_of([["Rome", "Oslo"]])
    with pytest.raises(UnknownSignalError, match="text"):
        recording.column("errors_so_far")
    assert recording.column("different_answers").tolist() == [[1, 2]]


def test_a_file_is_read_with_the_columns_that_a_computed_signal_needs():
    whole = Recording(build_table(rows(), kinds={"tool_errors": "signal"}))
    wanted = source_columns({"question_id", "round", "errors_so_far"}, whole.table.schema)
    part = Recording(whole.table.select([name for name in whole.table.column_names if name in wanted]))
    np.testing.assert_array_equal(part.column("errors_so_far"), whole.column("errors_so_far"))
    assert source_columns({"round", "tool_errors"}, whole.table.schema) == {"round", "tool_errors"}


def test_a_search_reads_a_signal_that_no_column_holds(tmp_path):
    answers = [["Rome", "Oslo", "a"], ["a", "a", "a"], ["Bern", "a", "a"]] * 8
    write_recording(tmp_path / "r.parquet", recording_of(answers, question=[f"Which? {q}" for q in range(24)]).table)
    few = Literal(signal="different_answers", comparison="<", thresholds=(2.0, 3.0))
    space = Space(name="few", blocks=(Block(form="or", literals=(few,)),), patience=(2,))
    for place in (tmp_path / "r.parquet", read_recording(tmp_path / "r.parquet")):
        result = search(place, space, metric="em", budget=50.0, resampling=Resampling(n_resamples=20))
        assert result.n_rules == 2


def test_another_order_of_rounds_is_computed_anew():
    recording = recording_of([["Rome", "Oslo", "Oslo"]])
    assert recording.column("different_answers").tolist() == [[1, 2, 2]]
    turned = recording.reordered(np.array([[2, 1, 0]]))
    assert turned.answers.tolist() == [["Oslo", "Oslo", "Rome"]]
    assert turned.column("different_answers").tolist() == [[1, 1, 2]]
    assert recording.column("different_answers").tolist() == [[1, 2, 2]]


def test_what_was_spent_follows_the_order_of_rounds():
    rows = [
        {"question_id": q, "round": r, "answer": "a", "spend": total}
        for q, totals in (("q1", [1.0, 4.0, 6.0]), ("q2", [2.0, None]))
        for r, total in enumerate(totals, 1)
    ]
    recording = Recording(build_table(rows, kinds={"spend": "signal"}))
    turned = recording.reordered(np.array([[2, 0, 1], [0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    expected = [[3, 5, 6], [2, np.nan, np.nan], [1, 4, 6], [np.nan] * 3]
    np.testing.assert_array_equal(turned.column("spend"), expected)
    assert turned.table.schema.field("spend").equals(recording.table.schema.field("spend"), check_metadata=True)
