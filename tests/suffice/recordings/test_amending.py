"""Outcomes that come after a run was recorded: the amended copy counts, in a file and in a folder, whatever was moved before."""

import math

import pytest

from suffice import Recorder
from suffice.errors import DataError
from suffice.recordings import read_recording
from suffice.recordings.amending import stored_runs
from suffice.recordings.parts_compaction import compact_recording


def record(recorder, question, answers, end="exhausted"):
    with recorder.question(question, labels={"ticket": f"T-{question}"}) as run:
        for answer in answers:
            run.observe(answer, metrics={"solved": math.nan})
        run.end(end)


def solved(path):
    """Return what a recording says of each round."""
    return [
        (row["question"], row["answer"], row["solved"], row["end"]) for row in read_recording(path).table.to_pylist()
    ]


@pytest.mark.parametrize("saves", ["never", "before", "between", "closes"])
def test_the_amended_copy_of_a_run_counts(tmp_path, saves):
    folder = tmp_path / "log"
    recorder = Recorder(folder)
    record(recorder, "One?", ["a", "b"])
    record(recorder, "Two?", ["c"], "failed")
    record(recorder, "Two?", ["d"])
    if saves == "closes":
        recorder.close()
        recorder = Recorder(folder)
    elif saves != "never":
        recorder.save()
    (one,), (failed, _) = stored_runs(folder, "ticket", "T-One?"), stored_runs(folder, "ticket", "T-Two?")
    recorder.amend(one, [{"solved": 0.0}, {"solved": 1.0}])
    if saves == "between":
        recorder.save()
    recorder.amend(failed, [{"solved": 0.5}], end="exhausted")
    expected = [
        ("One?", "a", 0.0, "exhausted"),
        ("One?", "b", 1.0, "exhausted"),
        ("Two?", "c", 0.5, "exhausted"),
        ("Two?", "d", None, "exhausted"),
    ]
    names = read_recording(folder).question_ids
    assert solved(folder) == expected
    assert not read_recording(folder).metadata["failed"]
    recorder.close()
    assert (solved(folder), read_recording(folder).question_ids) == (expected, names)
    compact_recording(folder)
    assert (solved(folder), read_recording(folder).question_ids) == (expected, names)
    assert stored_runs(folder, "ticket", "T-One?")[0].rows[1]["solved"] == 1.0


def test_a_run_is_amended_again_and_the_last_copy_counts(tmp_path):
    for value in (0.25, 0.75, 0.5):
        with Recorder(tmp_path) as recorder:
            if not stored_runs(tmp_path, "ticket", "T-One?"):
                record(recorder, "One?", ["a"])
            (run,) = stored_runs(tmp_path, "ticket", "T-One?")
            recorder.amend(run, [{"solved": value}])
    assert solved(tmp_path) == [("One?", "a", 0.5, "exhausted")]


def test_what_is_no_metric_amends_nothing(tmp_path):
    recorder = Recorder(tmp_path)
    record(recorder, "One?", ["a"])
    (run,) = stored_runs(tmp_path, "ticket", "T-One?")
    with pytest.raises(DataError, match="solved"):
        recorder.amend(run, [{"solved": 2.0}])
    with pytest.raises(ValueError, match="shorter"):
        recorder.amend(run, [])
    assert solved(tmp_path) == [("One?", "a", None, "exhausted")]
    assert not stored_runs(tmp_path / "none", "ticket", "x")
    assert not stored_runs(tmp_path, "no_column", "x")
