"""Tables in which something is missing, or is not what its name says: nothing of it passes in silence."""

from __future__ import annotations

import json
import shlex
import zipfile
from pathlib import Path

import pytest

from suffice import Round, decide
from suffice.errors import DataError
from suffice.importers import read_tabular
from suffice.recordings import read_recording, write_recording
from tests.support.cli_tools import cli
from tests.support.logs import imported, written

ANSWERS = ("Bern", "Oslo", "Oslo")


def rows_with(**columns):
    """Return rows of two questions; a column is one value, or a list with one for each round."""
    return [
        {"id": q, "step": r, "response": ANSWERS[r]}
        | {name: value[r] if isinstance(value, list) else value for name, value in columns.items()}
        for q in ("a", "b")
        for r in range(3)
    ]


def notes_of(tmp_path, rows, **options):
    return "\n".join(read_tabular(written(tmp_path, rows), **options).notes)


@pytest.mark.parametrize(
    ("column", "note"),
    [
        ({"score": ["0.3?", "0.8", "1"]}, "'score' is not read, because it has '0.3?'"),
        ({"correct": "maybe"}, "'correct' is not read, because it has 'maybe'"),
        ({"score": [3, 8, 10]}, "'score' is not a metric, because it lies in [3, 10]: --metric-column score=score:"),
        ({"score": [None, None, 1]}, "'score' is known in 2 of 6 rounds"),
        ({"input_tokens": "1.2k"}, "'input_tokens' is not read as a cost: it has '1.2k'"),
        ({"tokens": 300}, "--column cost.generator.output_tokens=tokens counts all as output, or what each round adds"),
        ({"prompt_tokens": [3, None, 4]}, "cost.generator.uncached_tokens is known in 4 of 6 rounds"),
        ({"completion_tokens": 4}, "no column has input tokens: what is saved is counted in calls alone"),
        ({}, "no column has input or output tokens"),
        ({"cost_usd": 0.002}, "--column spend=cost_usd:each; else prices of tokens say what is paid"),
        ({"response": ["Bern", None, "Oslo"]}, "2 of 6 rounds have no answer"),
        ({"response": ["Bern", "None", "Oslo"]}, "'None' is read as the text of 2 answers"),
        ({"gold": "NaN"}, "'NaN' is read as the text of 2 gold answers"),
        ({"step": ["step 1", "step 2", "step 3"]}, "'step' does not count rounds: it has 'step 1'"),
        ({"step": 1}, "'step' does not count rounds: it is the same everywhere"),
    ],
)
def test_what_a_name_promises_and_its_values_do_not_hold_is_said(column, note, tmp_path):
    assert note in notes_of(tmp_path, rows_with(**column))
    clean = notes_of(
        tmp_path, rows_with(score=0.5, prompt_tokens=3, completion_tokens=4, gold="Oslo"), log_golds="keep"
    )
    assert not any(
        word in clean for word in ("not read", "not a metric", "no answer", "known in", "as the text", "count")
    )


def test_a_score_of_the_whole_question_is_said_to_judge_no_round(tmp_path):
    record = {"id": "a", "score": 1.0, "steps": [{"answer": text} for text in ANSWERS]}
    assert "'score' is known once of a question" in notes_of(tmp_path, [record])


def test_a_first_draft_outside_the_list_is_reported_missing(tmp_path):
    """Its round would be the cheapest candidate."""
    record = {"question": "?", "initial_answer": "Bern", "refinements": [{"answer": text} for text in ANSWERS]}
    assert "'initial_answer' is not read as a round" in notes_of(tmp_path, [record, record])


def test_questions_without_gold_answers_are_counted(tmp_path):
    rows = rows_with(gold="Oslo")
    rows = [row | {"gold": None} if row["id"] == "b" else row for row in rows]
    assert "1 of 2 trajectories have no gold answer" in notes_of(tmp_path, rows)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["no", "yes", "yes"], [0, 1, 1]),
        (["fail", "PASS", "n/a"], [0, 1, None]),
        (["30%", "80 %", "100%"], [0.3, 0.8, 1]),
    ],
)
def test_words_and_percentages_are_numbers_of_a_metric(values, expected, tmp_path):
    run = read_tabular(written(tmp_path, rows_with(correct=values)))
    assert [item["correct"] for item in run.trajectories[0].metrics] == pytest.approx(
        [float("nan") if value is None else value for value in expected], nan_ok=True
    )


@pytest.mark.parametrize(
    ("tokens", "options", "expected"),
    [
        ({"prompt_tokens": 30, "completion_tokens": 4}, {}, (30, 0, 4)),
        ({"prompt_tokens": 30, "completion_tokens": 4, "cached_tokens": 10}, {}, (20, 10, 4)),
        ({"tokens": 34}, {"columns": {"cost.generator.output_tokens": "tokens"}}, (0, 0, 34)),
        ({"prompt_tokens": 30}, {"columns": {"cost.generator.uncached_tokens": "prompt_tokens"}}, (30, 0, None)),
        ({"completion_tokens": 4}, {}, (None, None, 4)),
    ],
)
def test_tokens_that_another_count_contains_are_zero_and_others_unknown(tokens, options, expected, tmp_path):
    """Without cached tokens, which few logs have, neither tokens nor money could be said of any decision."""
    run = read_tabular(written(tmp_path, rows_with(**tokens)), **options)
    cost = run.trajectories[0].rounds[0].costs["generator"]
    read = (cost.uncached_tokens, cost.cached_tokens, cost.output_tokens)
    assert read == pytest.approx([float("nan") if value is None else value for value in expected], nan_ok=True)
    shown = {item.ours: item.theirs for item in run.readings}
    contained = "0: prompt_tokens contains them"
    assert (shown.get("cost.generator.cached_tokens") == contained) == (expected[:2] == (30, 0))


def test_a_log_with_token_counts_reports_saved_tokens_and_money(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"q{q}", "step": r, "answer": "x", "score": q % 2, "prompt_tokens": 100, "completion_tokens": 20}
        for q in range(300)
        for r in range(3)
    ]
    written(tmp_path, rows)
    assert cli("import", "log.jsonl").code == 0
    decided = cli("decide", "log.parquet", "--model", "gpt-4o-mini")
    assert "67 % of the tokens" in decided.words
    assert "USD" in decided.words


def test_rounds_that_were_written_as_fractions_count(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("id,step,answer\n" + "".join(f"a,{r}.0,{text}\n" for r, text in enumerate(ANSWERS)))
    assert [item.theirs for item in read_tabular(path).readings if item.ours == "round"] == ["step"]


def test_rows_without_numbers_are_ordered_by_time_where_the_file_has_times(tmp_path):
    rows = [
        {"id": q, "timestamp": f"2026-01-0{r + 1}T00:00:00", "answer": f"{q}{r}"} for r in (2, 0, 1) for q in ("a", "b")
    ]
    run = read_tabular(written(tmp_path, rows))
    assert [[item.answer for item in one.rounds] for one in run.trajectories] == [
        ["a0", "a1", "a2"],
        ["b0", "b1", "b2"],
    ]
    assert any("by 'timestamp'" in note for note in run.notes)
    same = [row | {"timestamp": "2026-01-01"} for row in rows]
    run = read_tabular(written(tmp_path, same))
    assert [item.answer for item in run.trajectories[0].rounds] == ["a2", "a0", "a1"]


def test_numbers_with_gaps_can_be_replaced_by_the_order_of_the_rows(tmp_path):
    path = written(tmp_path, rows_with(step=[10, 20, 30]))
    with pytest.raises(DataError, match="--column round="):
        read_tabular(path)
    run = read_tabular(path, {"round": ""})
    assert [item.index for item in run.trajectories[0].rounds] == [1, 2, 3]


def test_names_with_signs_in_them_are_usual_names(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("Query ID,Turn #,Model Output,Latency (ms)\na,1,Bern,120\na,2,Oslo,80\n")
    readings = {item.ours: item.theirs for item in read_tabular(path).readings}
    assert readings["round"] == "Turn #"
    assert readings["cost.generator.seconds"] == "Latency (ms) / 1000"


def test_a_question_without_an_id_is_named_by_its_text(tmp_path):
    rows = [{"question": q, "step": r, "answer": ANSWERS[r]} for q in ("Where?", "Who?") for r in range(3)]
    assert [one.question_id for one in read_tabular(written(tmp_path, rows)).trajectories] == [
        "Where?",
        "Who?",
    ]


def test_documents_by_column_are_tables_as_data_frames_write_them(tmp_path):
    rows = rows_with()
    names = list(rows[0])
    documents = {
        "columns": {name: {str(place): row[name] for place, row in enumerate(rows)} for name in names},
        "lists": {name: [row[name] for row in rows] for name in names},
        "split": {"columns": names, "index": [*range(6)], "data": [list(row.values()) for row in rows]},
        "nested": [[row for row in rows if row["id"] == q] for q in ("a", "b")],
    }
    for form, document in documents.items():
        path = tmp_path / f"{form}.json"
        path.write_text(json.dumps(document))
        run = read_tabular(path)
        assert [[item.answer for item in one.rounds] for one in run.trajectories] == [list(ANSWERS)] * 2, form


def test_one_round_per_question_decides_nothing_and_suggests_no_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(
        tmp_path / "log.jsonl",
        [
            {"id": f"q{q}", "messages": [{"role": role, "content": "x"} for role in ("user", "assistant")]}
            for q in range(30)
        ],
    )
    shown = cli("import", path, code=0)
    assert "every question has one round, so there is nothing to stop earlier" in shown.words
    assert "next:" not in shown.out
    bare = written(tmp_path / "bare.jsonl", [{"id": f"q{q}", "answer": "x"} for q in range(30)])
    assert "one row" in cli("import", bare).error
    assert "every round" in cli("import", bare).error
    few = cli("import", written(tmp_path / "few.jsonl", rows_with()))
    assert "2 questions: a decision needs at least 20" in few.words
    assert "next: suffice replay few.parquet" in few.out


def test_a_project_folder_is_imported_without_what_lies_beside_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"q{q}", "step": r, "answer": ANSWERS[r], "score": 0.5} for q in range(60) for r in range(3)]
    written(tmp_path, rows)
    (tmp_path / "LICENSE.txt").write_text("Permission is granted\n")
    for arguments in (("import", "log.jsonl"), ("decide", "log.parquet")):
        assert cli(*arguments).code == 0
    again = cli("import", ".", "-o", "again.parquet", code=0)
    assert "files left out of the folder: LICENSE.txt, decision.json, log.parquet" in again.words
    assert read_recording("again.parquet").shape == (60, 3)
    (tmp_path / "log.jsonl").unlink()
    assert "LICENSE.txt" in cli("import", ".").error


def test_a_folder_of_which_a_file_has_other_rounds_is_refused(tmp_path):
    """The first file's list would be looked for in the others, and all of their questions left out."""
    (tmp_path / "logs").mkdir()
    written(tmp_path / "logs" / "a.jsonl", [{"id": "a", "answers": ["x", "y"]}])
    written(tmp_path / "logs" / "b.jsonl", [{"id": "b", "drafts": ["x", "y"]}])
    with pytest.raises(DataError, match="file 'b'"):
        read_tabular(tmp_path / "logs")


def test_archives_and_workbooks_say_what_to_do(tmp_path):
    for name, member, message in (
        ("a.xlsx", "[Content_Types].xml", "workbook of Excel: save the sheet as CSV"),
        ("a.zip", "log.bin", "unpack it"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(member, "x")
        assert message in cli("import", tmp_path / name).error


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("id,step,answer,answer\na,1,Bern,Oslo\n")
    with pytest.raises(DataError, match="two columns"):
        read_tabular(path)


def test_a_log_without_any_answer_is_not_judged_by_its_gold_answers(tmp_path):
    """F1 would be 0 at every round, so that any cap would seem to lose nothing."""
    rows = [
        {"id": f"q{q}", "step": r, "answer": None, "gold": "Oslo", "note": "x"} for q in range(60) for r in range(3)
    ]
    summary = imported(written(tmp_path, rows), expected=["empty-answers"])
    assert any("180 of 180 rounds have no answer" in note for note in summary.notes)
    with pytest.raises(DataError, match="no round"):
        decide(read_recording(summary.path))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A log, its recording and a decision on it, in the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    written(
        tmp_path / "log.jsonl",
        [{"id": f"q{q}", "step": r, "answer": ANSWERS[r], "score": 0.5} for q in range(30) for r in range(3)],
    )
    assert cli("import", "log.jsonl").code == 0
    assert cli("decide", "log.parquet").code == 0
    return tmp_path


@pytest.mark.parametrize("out", ["log.jsonl", "other.csv", "mine.parquet", "decision.json"])
def test_an_import_never_writes_over_a_log_or_another_file(folder, out):
    (folder / "mine.parquet").write_bytes(b"PAR1 mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = cli("import", "log.jsonl", "-o", out, code=1)
    assert "the ending" in refused.error or "is no recording" in refused.error
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    if out == "log.jsonl":
        assert cli("import", "log.jsonl", "-o", "log.parquet").code == 0


def test_a_recording_that_was_not_imported_is_not_written_over_either(folder):
    recording = read_recording("log.parquet")
    write_recording("paid.parquet", recording.table, {})
    assert "is no recording" in cli("import", "log.jsonl", "-o", "paid.parquet").error


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["decide", "log.jsonl"], 1, "is not a recording; a log becomes one by: suffice import log.jsonl"),
        (["decide"], 2, "Missing argument 'RECORDING'. `suffice import LOG` writes one."),
        (["decide", "decision.json"], 1, "is not a recording"),
        (["import", "decision.json"], 1, "is a file that Suffice wrote (suffice-decision)"),
        (["import", "log.parquet"], 1, "is a recording already: suffice decide log.parquet"),
        (["import", "log.jsonl", "--key", "x"], 2, "--key: tabular files do not take it; traces do"),
        (["import", "log.jsonl", "--column", "answr=answer"], 1, "a signal of your own. Did you mean 'answer'?"),
    ],
)
def test_what_a_newcomer_mixes_up_is_put_right(folder, arguments, code, message):
    refused = cli(*arguments)
    assert (refused.code, message in refused.error) == (code, True), refused.error


def test_the_next_command_can_be_pasted_where_names_have_spaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"q{q}", "step": r, "answer": "x", "score": q % 2} for q in range(300) for r in range(3)]
    written(tmp_path / "my log.jsonl", rows)
    decided = shlex.split(next_command(cli("import", "my log.jsonl")))
    assert decided == ["suffice", "decide", "my log.parquet"]
    deployed = shlex.split(next_command(cli(*decided[1:], "-o", "my decision.json")))
    assert deployed == ["suffice", "deploy", "my decision.json"]
    assert cli(*deployed[1:]).code == 0
    assert shlex.split(cli("decide", "my log.jsonl").error.split("by: ")[1]) == ["suffice", "import", "my log.jsonl"]


def next_command(done):
    assert done.code == 0, done.err
    return next(line.removeprefix("next: ") for line in done.out.splitlines() if line.startswith("next: "))


REPLIES = Path(__file__).resolve().parents[2] / "data" / "replies"


@pytest.mark.parametrize("name", ["openai_chat", "openai_response", "anthropic", "openai_chat_refusal"])
@pytest.mark.parametrize("shape", ["long", "spread", "steps", "calls"])
def test_replies_that_a_loop_logged_whole_are_its_answers(name, shape, tmp_path):
    body = json.loads((REPLIES / f"{name}.json").read_text())
    live = Round.from_response(body)
    records = {
        "long": [{"id": "q", "step": r, "response": body} for r in (1, 2)],
        "spread": [{**body, "qid": "q", "step": r} for r in (1, 2)],
        "steps": [{"id": q, "steps": [{"response": body}] * 2} for q in "ab"],
        "calls": [{"id": q, "calls": [body] * 2} for q in "ab"],
    }[shape]
    one, *_ = read_tabular(written(tmp_path, records)).trajectories
    assert [item.answer for item in one.rounds] == [live.answer] * 2
    cost, expected = one.rounds[0].costs["generator"], live.costs["generator"]
    assert (cost.uncached_tokens, cost.output_tokens) == (expected.uncached_tokens, expected.output_tokens)
    assert one.rounds[0].finish_reason == live.finish_reason


def test_a_reply_with_several_choices_is_not_cut_to_its_first(tmp_path):
    body = json.loads((REPLIES / "openai_chat_two.json").read_text())
    notes = notes_of(tmp_path, [{"id": "q", "step": r, "response": body} for r in (1, 2)])
    assert "no column is read as the answer" in notes


def test_a_count_of_tokens_is_never_the_answer(tmp_path):
    rows = [{"id": "q", "step": r, "payload": {"text": f"a{r}", "tokens": {"output": 5}}} for r in (1, 2)]
    (one,) = read_tabular(written(tmp_path, rows)).trajectories
    assert [item.answer for item in one.rounds] == ["a1", "a2"]


def test_rows_of_several_speakers_are_not_all_answers(tmp_path):
    messages = [{"id": "q", "turn": r, "role": ("user", "assistant")[r % 2], "content": f"m{r}"} for r in range(4)]
    with pytest.raises(DataError, match="'role'"):
        read_tabular(written(tmp_path, messages))
    nodes = [{"id": "q", "step": r, "node": ("write", "critic")[r % 2], "output": f"m{r}"} for r in range(4)]
    assert "differ in 'node' (write, critic)" in notes_of(tmp_path, nodes)
    agents = [{"id": "q", "step": r, "node": "write", "output": f"m{r}"} for r in range(4)]
    assert "differ in" not in notes_of(tmp_path, agents)
