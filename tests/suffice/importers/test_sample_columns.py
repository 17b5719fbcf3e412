"""Wide tables whose columns are independent samples, or may be."""

from __future__ import annotations

import random

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import imported, offered, texts, written

SAMPLES = 5


def wide(name, n=40, more=lambda q, r: {}):
    chance = random.Random(5)
    rows = []
    for q in range(n):
        said = [chance.choice([CITIES[q % 4], CITIES[q % 4], *CITIES]) for _ in range(SAMPLES)]
        cells = {name.format(r): text for r, text in enumerate(said, 1)}
        beside = {key: value for r in range(1, SAMPLES + 1) for key, value in more(q, r).items()}
        rows.append({"id": q, "question": f"Where is tower {q}?", "gold": CITIES[q % 4], **cells, **beside})
    return rows


def long(rows, name):
    return [
        {**{key: row[key] for key in ("id", "question", "gold")}, "sample": r, "answer": row[name.format(r)]}
        for row in rows
        for r in range(1, SAMPLES + 1)
    ]


@pytest.mark.parametrize(
    "name", ["sample_{}", "Sample {}", "generation_{}", "sample_{}_answer", "samples.{}", "vote_{}", "rollout{}"]
)
def test_columns_called_like_samples_are_samples(tmp_path, name):
    summary = imported(written(tmp_path / "wide.csv", wide(name)))
    assert summary.samples
    assert any("decided by the values of the log" in note and "independent samples" in note for note in summary.notes)
    if name != "sample_{}":
        return
    other = imported(written(tmp_path / "long.csv", long(wide(name), name)))
    assert other.samples
    assert texts(summary.path) == texts(other.path)


@pytest.mark.parametrize("name", ["answer_{}", "response{}", "pred_{}", "trial_{}_answer"])
def test_columns_of_answers_in_no_order_are_asked_about(tmp_path, name):
    path = written(tmp_path / "wide.csv", wide(name))
    assert offered(path) == ["--samples", "--expected sample-list"]
    if name != "answer_{}":
        return
    assert imported(path, samples=True).samples
    assert not imported(path, expected=["sample-list"]).samples


@pytest.mark.parametrize("name", ["attempt_{}", "round_{}_answer", "draft_{}", "turn_{}", "answer_v{}", "answer_r{}"])
def test_columns_called_like_rounds_are_rounds(tmp_path, name):
    assert not imported(written(tmp_path / "wide.csv", wide(name))).samples


@pytest.mark.parametrize(
    "more",
    [
        lambda q, r: {f"prompt_tokens_{r}": 100 * r + q},
        lambda q, r: {f"feedback_{r}": f"Think of {q} and {r}."},
        lambda q, r: {f"n_docs_{r}": r + q % 2},
    ],
)
def test_columns_that_only_loops_have_tell_rounds(tmp_path, more):
    assert not imported(written(tmp_path / "wide.csv", wide("answer_{}", more=more))).samples
    path = written(tmp_path / "samples.csv", wide("sample_{}", more=more))
    assert offered(path) == ["--samples", "--expected sample-list"]


def test_stops_of_the_loop_tell_rounds(tmp_path):
    rows = wide("answer_{}")
    for row in rows[::2]:
        row["answer_5"] = ""
    path = written(tmp_path / "wide.csv", rows)
    assert offered(path) == ["--samples", "--expected sample-list"]
    assert imported(path, ended="rule").censored == 20
    assert imported(written(tmp_path / "end.csv", [{**row, "stop_reason": "converged"} for row in rows])).censored == 40


def test_lengths_of_answers_show_no_loop(tmp_path):
    more = lambda q, r: {f"prompt_tokens_{r}": 100 + q, f"completion_tokens_{r}": 5 * r}  # noqa: E731
    assert imported(written(tmp_path / "wide.csv", wide("sample_{}", more=more))).samples


def test_samples_of_few_questions_are_asked_about(tmp_path):
    path = written(tmp_path / "wide.csv", wide("vote_{}", n=8))
    assert offered(path) == ["--samples", "--expected sample-list"]
    assert not imported(path, expected=["sample-list"]).samples
    listed = ",".join(f"vote_{r}" for r in range(1, SAMPLES + 1))
    assert offered(path, columns={"rounds": listed}) == ["--samples", "--expected sample-list"]


def test_numbered_runs_are_offered_as_rounds_and_samples(tmp_path):
    path = written(tmp_path / "wide.csv", wide("run_{}"))
    named = "--column rounds=run_1,run_2,run_3,run_4,run_5"
    assert offered(path) == [named, f"{named} --samples"]


@pytest.mark.parametrize("places", [(3, 5), (5,)])
def test_empty_samples_at_the_end_count_like_others(tmp_path, places):
    rows = wide("sample_{}")
    for q, row in enumerate(rows[:12]):
        row[f"sample_{places[q % len(places)]}"] = ""
    summary = imported(written(tmp_path / "wide.csv", rows))
    n_rounds = len(read_recording(summary.path).table)
    assert n_rounds == 40 * SAMPLES - (12 if places == (5,) else 0)
    if 3 in places:
        assert texts(summary.path) == texts(imported(written(tmp_path / "long.csv", long(rows, "sample_{}"))).path)
    assert len(read_recording(imported(tmp_path / "wide.csv", expected=["sample-list"]).path).table) < 40 * SAMPLES
