"""Closed-book columns, prefixes, outcomes of tasks, models in turn, folders of tables, and calls beside the rounds."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import by_command, paired, texts, written

TOWNS = ("Graz", "Bern", "Lyon", "Oslo")


def wide(first: str, second: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "qid": f"q{q}",
            "question": f"Where is tower {q}?",
            first: TOWNS[q % 3],
            second: TOWNS[q % 4],
            "gold": TOWNS[q % 4],
        }
        | {name: values[q % len(values)] for name, values in more.items()}
        for q in range(40)
    ]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    paired(
        [
            ("parametric_answer", "rag_answer"),
            ("closed_book_answer", "open_book_answer"),
            ("answer_no_rag", "answer_rag"),
            ("response_without_context", "response_with_context"),
            ("no_retrieval_pred", "retrieval_pred"),
        ],
        ["log.jsonl", "log.csv"],
    ),
)
def test_closed_book_columns_are_round_0(tmp_path, first, second, name):
    rows = [{"id": row.pop("qid"), second: row.pop(second), **row} for row in wide(first, second)]  # in either order
    assert by_command(tmp_path, rows, name=name).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.index.tolist() == [0, 1]
    assert texts(tmp_path / "r.parquet")["q5"] == [TOWNS[2], TOWNS[1]]


@pytest.mark.parametrize("weak", ["direct_answer", "baseline_answer"])
def test_weak_words_are_round_0_only_as_asked(tmp_path, weak):
    rows = wide(weak, "rag_answer")
    refused = by_command(tmp_path, rows, code=2)
    option = f"rounds={weak},rag_answer"
    assert option in refused.err
    assert by_command(tmp_path, rows, "--column", option).code == 0
    assert read_recording(tmp_path / "r.parquet").index.tolist() == [0, 1]


def test_two_drafts_stay_rounds_from_1(tmp_path):
    assert by_command(tmp_path, wide("first", "second"), "--column", "rounds=first,second").code == 0
    assert read_recording(tmp_path / "r.parquet").index.tolist() == [1, 2]


def test_a_failed_retrieval_is_no_stop(tmp_path):
    rows = wide("closed_book_answer", "rag_answer", rag_status=["ok"])
    rows[3] |= {"rag_answer": None, "rag_status": "timeout"}
    rows[4] |= {"rag_answer": None, "rag_status": "skipped"}
    assert by_command(tmp_path, rows).code == 0
    assert texts(tmp_path / "r.parquet")["q3"] == [TOWNS[0], None]
    assert texts(tmp_path / "r.parquet")["q4"] == [TOWNS[1]]


def test_a_confidence_beside_round_0_is_a_signal(tmp_path):
    rows = wide("parametric_answer", "rag_answer", verbal_conf=[40, 90], rag_conf=[0.1, 0.2], age=[1, 2])
    assert by_command(tmp_path, rows, name="log.csv").code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert "verbal_conf" in recording.names("signal")
    assert not {"rag_conf", "age"} & {*recording.names("signal")}
    assert recording.column("verbal_conf")[:4, 0].tolist() == [40, 90, 40, 90]
    decided = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json", "--details")
    assert "--signal verbal_conf" not in decided.out
    assert re.search(r"verbal_conf [<>]= \d", decided.out), "tried without being named"
    missing = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "e.json", "--signal", "age")
    assert missing.code
    assert "--column age=age" in missing.err


def prefixes(order: int = 1) -> list[dict[str, Any]]:
    rows = [
        {"problem_id": f"p{q}", "checkpoint": r, "prefix_tokens": 100 * (r + 1) + q, "total_thinking_tokens": 400 + q}
        | {"forced_answer": f"{q + (r == 0) * (-1) ** q}", "gold": f"{q}", "trial_tokens": 9 + q % 2}
        for q in range(40)
        for r in range(3 + q % 2)
    ]
    return rows[::order]


def test_tokens_of_prefixes_are_found_by_name(tmp_path):
    shown = by_command(tmp_path, prefixes(), code=0)
    assert "no column has" not in shown.out
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.column("thinking_tokens")[1].tolist() == [101, 201, 301, 401]
    assert recording.column("cost.trial.output_tokens")[1].tolist() == [10, 10, 10, 0]
    decided = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json", "--json")
    assert json.loads(decided.out)["trial"]["cost"] == "tokens"


def test_tokens_that_do_not_rise_are_no_prefixes(tmp_path):
    rows = [{**row, "prefix_tokens": 300 + row["prefix_tokens"] // 100 % 2} for row in prefixes()]
    shown = by_command(tmp_path, rows, "--details", code=0)
    assert "thinking_tokens" not in read_recording(tmp_path / "r.parquet").names("signal")
    assert "thinking_tokens=prefix_tokens" in " ".join(shown.out.split())


def steps(**more: Any) -> list[dict[str, Any]]:
    return [
        {
            "task_id": f"t{q}",
            "step": r,
            "tool": "edit",
            "tool_args": json.dumps({"cmd": f"sed {q} {r}"}),
            "exit_code": r % 2,
        }
        | {"tokens_in": 10 * r, "tokens_out": 3 + r % 2, "task_success": q % 3 > 0, **more}
        for q in range(60)
        for r in range(1, 3 + q % 3)
    ]


@pytest.mark.parametrize(
    ("options", "verdict"),
    [((), "This cannot be judged yet"), (("--metric-column", "ok=task_success", "--ended", "rule"), "abandon(ok)")],
)
def test_an_outcome_of_a_task_is_of_its_last_round(tmp_path, options, verdict):
    shown = by_command(tmp_path, steps(), *options, code=0)
    assert "exit_code=" not in shown.out
    recording = read_recording(tmp_path / "r.parquet")
    (name,) = (name for name in recording.names("metric") if name in ("ok", "task_success"))
    assert np.isfinite(recording.column(name)).sum() == 60
    command = next(line for line in shown.out.splitlines() if line.startswith("next: "))
    decided = cli(*shlex.split(command)[2:], "-o", tmp_path / "d.json", code=0)
    assert decided.out.startswith(("This cannot be judged yet", "caution", "Keep what you have"))
    assert verdict in decided.out


def test_steps_without_an_outcome_name_no_next_command(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "task_success"} for row in steps()]
    refused = by_command(tmp_path, rows, "--column", "answer=", code=2)
    shown = by_command(tmp_path, rows, "--column", "answer=", "--expected", "no-answers", code=0)
    assert "next:" not in shown.out
    assert "exit_code=" not in shown.out + refused.err


def cascade(**more: Any) -> list[dict[str, Any]]:
    return [
        {"trace": f"t{q}", "tier": tier, "model": model, "question": f"Where is tower {q}?", "expected": TOWNS[q % 4]}
        | {"answer": TOWNS[(q + (tier == 1 and q % 3 == 0)) % 4], "token_prob": q / 40, **more}
        for q in range(40)
        for tier, model in ((1, "mini"), (2, "large"))
    ]


def test_models_with_a_number_each_are_asked_about(tmp_path):
    rows = cascade(error=None)
    rows[6] |= {"answer": None, "error": "timeout"}
    refused = by_command(tmp_path, rows, code=2)
    assert "--column round=model:mini,large" in refused.err
    assert "--column run=model" in refused.err
    assert by_command(tmp_path, rows, "--column", "round=model:mini,large").code == 0
    read = texts(tmp_path / "r.parquet")
    assert read["t3"] == [None, TOWNS[3]]
    assert read["t6"] == [TOWNS[3], TOWNS[2]]
    assert "token_prob" in read_recording(tmp_path / "r.parquet").names("signal")


def test_models_without_numbers_are_named_in_the_note(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "tier"} for row in cascade()]
    shown = by_command(tmp_path, rows, "--details")
    assert "--column round=model:mini,large" in shown.out
    assert "question_id=COLUMN" not in shown.out


def experiment(folder: Path) -> Path:
    (folder / "exp" / "preds").mkdir(parents=True)
    (folder / "exp" / "metrics.json").write_text(json.dumps({"iter_1": {"em": 0.6}}))
    (folder / "exp" / "run.log").write_text("2026-11-03 INFO start\n2026-11-03 INFO done\n")
    for r in (1, 2, 3):
        rows = [
            {"idx": q, "prediction": None if (q, r) == (5, 2) else TOWNS[(q + (r == 1)) % 4], "reference": TOWNS[q % 4]}
            | {"error": "overloaded" if (q, r) == (5, 2) else None}
            for q in range(40)
        ]
        written(folder / "exp" / "preds" / f"iter_{r}.jsonl", rows)
    return folder / "exp"


def test_a_folder_names_the_subfolder_of_its_tables(tmp_path):
    folder = experiment(tmp_path)
    refused = cli("import", folder, "-o", tmp_path / "r.parquet", "--yes")
    assert refused.code
    assert "--pattern" not in refused.err
    command = refused.err.rpartition("suffice import ")[2].strip()
    assert cli("import", command, "-o", tmp_path / "r.parquet", "--yes").code == 0
    assert texts(tmp_path / "r.parquet")["5"] == [TOWNS[2], None, TOWNS[1]]


def test_a_text_beside_tables_is_offered_no_pattern(tmp_path):
    folder = experiment(tmp_path)
    (folder / "run.log").rename(folder / "preds" / "run.log")
    refused = cli("import", folder / "preds", "-o", tmp_path / "r.parquet", "--yes")
    assert refused.code
    assert "--pattern" not in refused.err


def test_a_filter_over_files_of_rounds_makes_no_runs(tmp_path):
    refused = cli(
        "import", experiment(tmp_path) / "preds", "-o", tmp_path / "r.parquet", "--yes", "--where", "prediction=*"
    )
    assert refused.code
    assert "--column round=" not in refused.err


def calls() -> list[dict[str, Any]]:
    rows = []
    for q in range(40):
        for r in (1, 2, 3):
            row = {"qid": f"q{q}", "attempt": r, "gold": TOWNS[q % 4], "in_tok": 100, "out_tok": 7}
            label = TOWNS[(q + (r == 1)) % 4]
            rows.append({**row, "step": "classify", "response": json.dumps({"label": label}), "parsed": label})
            if r < 3:
                rows.append({**row, "step": "critique", "response": f"Is it near river {q} or {r}?", "parsed": None})
    return rows


def test_what_the_calls_left_out_cost_is_said(tmp_path):
    shown = by_command(tmp_path, calls())
    assert "80 rows without an answer" in " ".join(shown.out.split())
    assert "what they cost is not counted" in " ".join(shown.out.split())


def test_the_word_of_a_step_is_offered(tmp_path):
    rows = [{"label_id" if name == "parsed" else name: value for name, value in row.items()} for row in calls()]
    refused = by_command(tmp_path, rows, code=2)
    assert "--where step=classify" in refused.err
    assert "run=in_tok" not in refused.err
    assert by_command(tmp_path, rows, "--where", "step=classify").code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.column("cost.generator.uncached_tokens")[0].tolist() == [100, 200, 200]


def test_seconds_of_a_tool_and_its_faults_are_not_read(tmp_path):
    rows = [
        {"id": q, "gold": TOWNS[q % 4], "finished_reason": "accepted" if n < 3 else "max_attempts"}
        | {
            "attempts": [
                {"answer": TOWNS[(q + (r == 0 and q % 2)) % 4], "execution": {"elapsed_ms": 5}} for r in range(n)
            ]
        }
        for q in range(40)
        for n in (1 + q % 3,)
    ]
    assert by_command(tmp_path, rows).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert "cost.generator.seconds" not in recording.names("cost")
    assert {*recording.table.column("end").to_pylist()} == {"rule", "max_rounds"}


def test_amounts_and_tokens_of_a_sheet_are_named(tmp_path):
    rows = [
        {
            "Frage": f"Wo ist Turm {q}?",
            "Durchlauf": r,
            "Antwort": TOWNS[(q + (r == 1)) % 4],
            "Musterlösung": TOWNS[q % 4],
        }
        | {
            "Kosten (EUR)": f"0,00{r}",
            "Tokens Eingabe": 40 + r,
            "Tokens Ausgabe": 9,
            "Bewertung": "0,5" if r == 1 else "1",
        }
        for q in range(40)
        for r in (1, 2)
    ]
    shown = by_command(tmp_path, rows, "--details")
    said = " ".join(shown.out.split())
    assert "its own amounts (EUR); " in said
    assert "'cost.generator.uncached_tokens=Tokens Eingabe'" in said
    assert "'cost.generator.output_tokens=Tokens Ausgabe'" in said
    assert "Bewertung=Bewertung" in said
