"""Token counts that add up over the rounds of a question are read as what each round adds; others stay as they are."""

from __future__ import annotations

import pytest

from suffice import read_recording
from tests.support.logs import imported, written

OUTPUT = "cost.generator.output_tokens"
INPUT = "cost.generator.uncached_tokens"


def costs(tmp_path, n=20, columns=None, **tokens):
    rows = [
        {"id": q, "round": r, "answer": "Oslo", **{name: make(q, r) for name, make in tokens.items()}}
        for q in range(n)
        for r in (1, 2, 3)
    ]
    path = written(tmp_path, rows)
    summary = imported(path, columns=columns)
    rounds = {name: values[0].tolist() for name in (OUTPUT, INPUT) if (values := column(tmp_path, name)) is not None}
    return rounds, [note for note in summary.notes if "running totals" in note]


def column(tmp_path, name):
    recording = read_recording(tmp_path / "log.parquet")
    return recording.column(name) if name in recording.table.column_names else None


def test_running_totals_are_subtracted(tmp_path):
    rounds, notes = costs(tmp_path, prompt_tokens=lambda q, r: 200 * r, completion_tokens=lambda q, r: 20 * r + q % 3)
    assert rounds == {INPUT: [200, 200, 200], OUTPUT: [20, 20, 20]}
    assert notes == [
        "never falling within a question, so read as running totals, of which a round costs what it adds: prompt_tokens, completion_tokens"
    ]


def test_a_total_that_the_user_counts_is_subtracted(tmp_path):
    rounds, notes = costs(tmp_path, columns={OUTPUT: "total_tokens"}, total_tokens=lambda q, r: 100 * r)
    assert rounds[OUTPUT] == [100, 100, 100]
    assert notes


@pytest.mark.parametrize(
    "tokens",
    [
        {"prompt_tokens": lambda q, r: 200 * r, "completion_tokens": lambda q, r: 60 - 20 * r + q % 3},
        {"prompt_tokens": lambda q, r: 200 * r},
        {"completion_tokens": lambda q, r: 20 * r if q else 80 - 20 * r},
        {"completion_tokens": lambda q, r: 500 + 20 * r},
    ],
    ids=["prompts that grow", "prompts alone", "one falls", "drafts that grow a little"],
)
def test_other_counts_stay(tmp_path, tokens):
    rounds, notes = costs(tmp_path, **tokens)
    own = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT}
    assert rounds.items() >= {own[name]: [make(0, r) for r in (1, 2, 3)] for name, make in tokens.items()}.items()
    assert not notes


def test_few_questions_show_no_running_total(tmp_path):
    rounds, notes = costs(tmp_path, n=5, completion_tokens=lambda q, r: 20 * r)
    assert (rounds[OUTPUT], notes) == ([20, 40, 60], [])


def test_a_growing_prompt_beside_running_totals_stays(tmp_path):
    tokens = {"prompt_tokens": lambda q, r: 200 + 90 * r, "completion_tokens": lambda q, r: 20 * r}
    assert costs(tmp_path, **tokens)[0] == {INPUT: [290, 380, 470], OUTPUT: [20, 20, 20]}
