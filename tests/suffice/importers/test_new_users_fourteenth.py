"""What a fourteenth tester met: outcomes of runs in a file, critics' comments, codes, and commands that were cut off or led nowhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.readings.cases import lines
from benchmarks.readings.misled_thirteenth import votes_in_rows

from suffice.importers.answers.outcomes import read_outcomes
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import Brief

N = 24


def imported(folder: Path, rows: Sequence[Any], *options: str) -> Any:
    path = folder / "log.jsonl"
    path.write_text(lines(rows), "utf-8")
    return cli("import", path, "-o", folder / "r.parquet", "--yes", *options)


def typed(words: Sequence[str], place: int = 0) -> Any:
    """Run a command that a question prints, as it is printed."""
    refused = cli(*words)
    assert refused.code == 2, refused.err
    printed = re.findall(r"^ +suffice (.*)$", refused.err, re.MULTILINE)
    return cli(*shlex.split(printed[place]))


def column(folder: Path, name: str) -> Any:
    return read_recording(folder / "r.parquet").column(name)


def call(q: int, step: int, said: str | None) -> dict[str, Any]:
    """Return a logged call of an agent, which says something after its tools."""
    asked = {"role": "user", "content": f"Rebook me from flight AF{400 + q}."}
    used = {
        "id": f"c{q}-{step}",
        "type": "function",
        "function": {"name": "rebook", "arguments": f'{{"step": {step}}}'},
    }
    done = {"message": {"role": "assistant", "content": said, **({} if said else {"tool_calls": [used]})}}
    return {
        "timestamp": f"2026-03-02T08:{q:02}:{step:02}Z",
        "conversation_id": f"conv-{q}",
        "request": {"model": "gpt-4o", "messages": [asked, *([{"role": "tool", "content": f"{step}"}] * step)]},
        "response": {"object": "chat.completion", "choices": [{"index": 0, **done}]},
    }


def calls() -> list[dict[str, Any]]:
    return [
        call(q, step, f"You are on flight {q}." if step == 2 + q % 3 else None)
        for q in range(N)
        for step in range(3 + q % 3)
    ]


def outcomes(folder: Path, grades: Sequence[object], name: str = "resolved") -> Path:
    path = folder / "outcomes.csv"
    path.write_text("".join([f"conversation_id,{name}\n", *(f"conv-{q},{own}\n" for q, own in enumerate(grades))]))
    return path


STEPS = ("--expected", "empty-rounds")


def test_outcomes_of_a_log_of_calls_are_those_of_last_rounds(tmp_path):
    grades = [q % 3 != 1 for q in range(N)]
    assert imported(tmp_path, calls(), "--outcomes", str(outcomes(tmp_path, grades)), *STEPS).code == 0
    resolved = column(tmp_path, "resolved")
    for q in range(N):
        own = resolved[q][: 3 + q % 3]
        assert np.isnan(own[:-1]).all()
        assert own[-1] == grades[q]


def test_outcomes_of_no_run_are_refused(tmp_path):
    path = tmp_path / "o.csv"
    path.write_text("id,resolved\nother,1\n")
    refused = imported(tmp_path, calls(), "--outcomes", str(path), *STEPS)
    assert refused.code == 1
    assert "'conv-0'" in refused.err
    assert "'other'" in refused.err


def test_missing_outcomes_are_unknown_and_counted(tmp_path):
    done = imported(tmp_path, calls(), "--outcomes", str(outcomes(tmp_path, [1] * (N - 2))), *STEPS)
    assert "22 of 24 runs have an outcome" in " ".join(done.out.split())
    assert np.isnan(column(tmp_path, "resolved")[-1]).all()


def test_samples_have_no_outcome_of_a_run(tmp_path):
    rows = [{"qid": f"q{q}", "sample": s, "answer": f"{q + s}"} for q in range(N) for s in range(3)]
    refused = imported(tmp_path, rows, "--samples", "--outcomes", str(outcomes(tmp_path, [1] * N)))
    assert refused.code == 1
    assert "--samples" in refused.err


@pytest.mark.parametrize(("name", "grades"), [("resolved", ["0", "1"]), ("ok", ["true", "false"])])
def test_a_file_of_outcomes_is_no_file_of_gold_answers(tmp_path, name, grades):
    imported(tmp_path, calls())
    path = outcomes(tmp_path, [grades[q % 2] for q in range(N)], name)
    done = typed(
        ["import", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "r.parquet"), "--golds", str(path), *STEPS]
    )
    assert done.code == 0, done.err
    known = column(tmp_path, "resolved")
    assert np.unique(known[~np.isnan(known)]).tolist() == [0, 1]
    stored = json.loads((tmp_path / "r.import.json").read_text())["options"]
    assert stored["outcomes"] == str(path)
    assert "golds" not in stored


def test_true_and_false_are_gold_answers_where_the_user_says_so(tmp_path):
    rows = [
        {"qid": f"conv-{q}", "round": r, "answer": ["true", "false"][(q + r) % 2]} for q in range(N) for r in (1, 2, 3)
    ]
    imported(tmp_path, rows)
    path = outcomes(tmp_path, [["true", "false"][q % 2] for q in range(N)])
    command = ["import", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "r.parquet"), "--golds", str(path)]
    assert typed(command, 1).code == 0
    assert column(tmp_path, "em")[0].tolist() == [0, 1, 0]


def test_two_columns_of_outcomes_may_have_any_name(tmp_path):
    path = tmp_path / "o.csv"
    for text in ("booking,resolved\nA1,1\nA2,0\n", "id,went well\nA1,true\nA2,false\n"):
        path.write_text(text)
        assert read_outcomes(path) == {"A1": 1, "A2": 0}


def test_a_log_with_one_answer_a_question_offers_no_filter_of_answers(tmp_path):
    refused = imported(tmp_path, calls())
    assert refused.code == 2
    assert "--where" not in refused.err
    assert "--outcomes FILE" in refused.err


@pytest.mark.parametrize(
    ("kind", "option", "taken"),
    [
        ("tabular", "--key", "traces do"),
        ("openai", "--trial-cost", "tabular files do"),
        ("codex", "--key", "traces do"),
    ],
)
def test_a_refused_option_names_files_that_take_it(tmp_path, kind, option, taken):
    refused = imported(tmp_path, calls(), "--kind", kind, option, "3")
    assert refused.code == 2
    assert taken in " ".join(refused.err.split())


def commits(name: str = "message") -> list[dict[str, Any]]:
    return [
        {
            "commit": f"{q:07x}",
            "drafts": [
                {"n": r, name: f"Fix part {q} once {r * q % 3}", "critic": {"comment": ["Why?", "Vague."][(q + r) % 2]}}
                for r in (1, 2, 3)
            ],
        }
        for q in range(1, N)
    ]


@pytest.mark.parametrize("name", ["message", "commit_message"])
def test_what_is_drafted_is_offered_and_not_what_a_critic_said(tmp_path, name):
    refused = imported(tmp_path, commits(name))
    assert refused.code == 2
    assert f"--column answer={name}" in refused.err
    assert "answer=critic" not in refused.err
    done = cli(*refused.commands[0], "--column", "rounds=drafts")
    assert done.code == 0
    assert f"{name} as answer" in done.words


def test_the_scale_of_a_score_is_printed_whole_and_works(tmp_path):
    rows = [
        {"qid": f"q{q}", "round": r, "answer": f"city {q * r % 5}", "critic": {"score": 1 + (q + r) % 10}}
        for q in range(N)
        for r in (1, 2, 3)
    ]
    said = imported(tmp_path, rows).words
    assert "critic.score' is not a metric" in said
    options = re.findall(r"--metric-column (critic_score=\S+)", said)
    assert len(options) > 1
    for option in options:
        assert imported(tmp_path, rows, "--metric-column", option.rstrip(",")).code == 0
        assert np.nanmax(column(tmp_path, "critic_score")) == 1


def by_round() -> list[dict[str, Any]]:
    return [
        {
            "qid": f"q{q}",
            "gold": CITIES[q % 4],
            "answers_by_round": [CITIES[(q + r * q) % 4] for r in (2, 1, 0)],
            "tokens_by_round": [50 + q, 60 + q, 70 + q],
        }
        for q in range(N)
    ]


def test_a_list_by_round_has_the_answers_of_rounds(tmp_path):
    done = imported(tmp_path, by_round(), "--column", "cost.generator.output_tokens=tokens")
    assert done.code == 0
    assert read_recording(tmp_path / "r.parquet").table.column("answer").to_pylist()[3:6] == [
        CITIES[3],
        CITIES[2],
        CITIES[1],
    ]
    assert column(tmp_path, "cost.generator.output_tokens")[1].tolist() == [51, 61, 71]


def votes() -> list[dict[str, Any]]:
    return [dict(row) for row in votes_in_rows(Brief("x")).content]


def test_a_vote_that_counts_rows_is_a_counter_of_samples(tmp_path):
    assert imported(tmp_path, votes()).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.metadata["exchangeable"] is True
    assert recording.shape == (24, 5)
    assert "vote" not in recording.table.column_names


def test_a_vote_that_repeats_within_a_question_counts_nothing(tmp_path):
    rows = [{**row, "vote": 1 + row["vote"] * row["qid"] % 4} for row in votes()]
    imported(tmp_path, rows)
    recording = read_recording(tmp_path / "r.parquet")
    assert "exchangeable" not in recording.metadata
    assert "vote" in recording.table.column_names
