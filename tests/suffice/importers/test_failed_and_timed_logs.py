"""Logs with failed calls, times that may be read in two ways, examples before the question, and units after decimal commas."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from shutil import which

import pytest

from suffice import import_recording
from suffice.errors import DataError, SufficeError, UnsettledError
from suffice.policy.comparisons import chosen_normalizer
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, by_round, first_choice, imported, offered, paired, written


def squares(q, r):
    return f"{q % 9 + 1}.{100 + q + (r < 2)},5 m²"


def test_decimal_commas_are_asked_about_unless_thousands_or_units_show_them(tmp_path):
    rows = [{"id": q, "round": r, "answer": squares(q, r), "gold": squares(q, 2)} for q in range(30) for r in (1, 2)]
    path = written(tmp_path, rows)
    assert by_round(path) == [0.0, 1.0]
    path.with_suffix(".import.json").unlink()
    rows = [{**row, "gold": "3,5" if row["id"] else "1,234 m²"} for row in rows]  # English thousands among them
    assert offered(written(tmp_path, rows))[0] == "--set normalizer=decimal_comma"


def test_decimal_commas_beside_words_are_asked_about(tmp_path):
    rows = []
    for q in range(30):
        gold = ("Ja", f"02.{q % 9 + 1:02}.2019", f"1.{100 + q},5 kg")[q % 3]
        said = ("Nein", "05.12.2018", f"1{100 + q},5 kg")[q % 3], gold.replace("1.", "1") if q % 3 == 2 else gold
        rows += [{"id": q, "round": r, "answer": own, "gold": gold} for r, own in enumerate(said, start=1)]
    assert offered(written(tmp_path, rows))[0] == "--set normalizer=decimal_comma"
    assert by_round(written(tmp_path, rows), normalizer="decimal_comma") == [pytest.approx(1 / 3), 1.0]


def test_gold_answers_that_are_not_read_are_noted(tmp_path):
    rows = [{"id": q, "round": r, "answer": ("Nein", "Ja")[r - 1], "gold": "Ja"} for q in range(30) for r in (1, 2)]
    path = written(tmp_path, rows)
    assert any("caution: 100% of the questions" in note for note in imported(path, normalizer="number").notes)
    assert not any("cannot be read" in note for note in imported(path, normalizer="decimal_comma").notes)


def test_unread_gold_answers_are_counted_by_question(tmp_path):
    golds = [["no"], ["1", "one"], ["no"], ["3"], ["4"], ["no"]] * 10
    rows = [{"id": q, "round": r, "answer": str(r), "golds": own} for q, own in enumerate(golds) for r in (1, 2)]
    notes = imported(written(tmp_path / "log.jsonl", rows), normalizer="number").notes
    assert any(note.startswith("50% of the questions have a gold answer, such as 'no',") for note in notes)


def test_points_between_thousands_are_asked_about(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": f"{q + 1}.{100 + r} kg", "gold": f"{q + 1}102 kg"}
        for q in range(30)
        for r in (1, 2)
    ]
    assert offered(written(tmp_path, rows)) == ["--set normalizer=decimal_comma", "--set normalizer=number"]


def test_a_query_with_a_number_is_no_number():
    assert chosen_normalizer(["SELECT a FROM b WHERE c = 7"], pairs=[("7", "8")]).normalizer == "literal"


@pytest.mark.whole
@pytest.mark.skipif(
    not (which("iconv") and which("gzip")), reason="the programs that the message names are not installed"
)
@pytest.mark.parametrize("name", ["log of May.csv", "log.csv.gz"])
def test_files_of_windows_name_their_conversion(tmp_path, name):
    path = tmp_path / name
    text = "".join(["id,round,answer\n", *(f"{q},{r},Köln {q % 3}\n" for q in range(9) for r in (1, 2))]).encode(
        "cp1252"
    )
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(DataError, match="'ö'") as error:
        imported(path)
    subprocess.run(str(error.value).partition(":  ")[2], shell=True, check=True, cwd=tmp_path)
    (converted,) = tmp_path.glob("*.utf8.csv")
    assert imported(converted).preview.rounds[0].answer == "Köln 0"


def test_gold_answers_are_no_rounds_of_their_own(tmp_path):
    rows = [
        {"Vraag-Nr": f"F{q}", "Beurt": r, "Antwoord": answer(q, r), "Oplossing": CITIES[q % 4]}
        for q in range(40)
        for r in (1, 2)
    ]
    assert offered(written(tmp_path, rows)) == ["--column question_id=Vraag-Nr"]


def timed(tmp_path, times, name="Time", order=(2, 0, 1)):
    rows = [
        {"id": q, name: times[r].replace("MM", f"{q + 10}"), "answer": answer(q, r), "gold": CITIES[q % 4]}
        for q in range(30)
        for r in order
    ]
    return written(tmp_path / "log.csv", rows)


@pytest.mark.parametrize(
    ("times", "name"),
    paired(
        [
            ["1/2/2025 9:MM:00 AM", "1/2/2025 10:MM:00 AM", "2/1/2025 1:MM:00 AM"],
            ["13/01/2025 22:MM", "13/01/2025 23:MM", "01/02/2025 03:MM"],
            ["01/13/2025 22:MM", "01/13/2025 23:MM", "02/01/2025 03:MM"],
            ["1/9/25 9:MM a.m.", "1/9/25 10:MM a.m.", "1/9/25 1:MM p.m."],
            ["01.02.2025 22:MM:00", "01.02.2025 23:MM:00", "01.03.2025 01:MM:00"],
        ],
        ["Time", "Logged"],
    ),
)
def test_times_with_slashes_order_rounds(tmp_path, times, name):
    assert by_round(timed(tmp_path, times, name))[-1] == 1.0


def test_day_and_month_are_asked_about(tmp_path):
    path = timed(tmp_path, ["01/02/2025 22:MM", "01/02/2025 23:MM", "02/01/2025 03:MM"])
    options = ["--column round=Time:day-first", "--column round=Time:month-first"]
    assert offered(path) == options
    assert by_round(path, columns={"round": "Time:month-first"})[-1] == 1.0
    assert by_round(path, columns={"round": "Time:day-first"}, expected=["falling-scores"])[0] == 1.0
    with pytest.raises(DataError, match="month-first"):
        imported(timed(tmp_path, ["13/02/2025 22:09", "x", "y"]), columns={"round": "Time:month-first"})


def test_seconds_that_rows_took_are_no_times(tmp_path):
    took = [1.5, 0.25, 0.75]
    rows = [
        {"id": q, "time": took[r] + q / 100, "answer": answer(q, r), "gold": CITIES[q % 4]}
        for q in range(30)
        for r in range(3)
    ]
    path = written(tmp_path, rows)
    assert offered(path) == ["--column round=", "--column round=time:ascending"]
    assert by_round(path, columns={"round": ""})[-1] == 1.0
    assert by_round(path, columns={"round": "time:ascending"})[1] == 1.0
    assert by_round(written(tmp_path, [{**row, "time": n} for n, row in enumerate(rows)]))[-1] == 1.0


def test_times_in_no_known_form_are_asked_about(tmp_path):
    path = timed(tmp_path, ["Jan 2, 2025 22:MM", "Jan 2, 2025 23:MM", "Jan 3, 2025 03:MM"], order=(0, 1, 2))
    assert offered(path) == ["--column round="]
    assert by_round(path, columns={"round": ""})[-1] == 1.0


def chat(q, question):
    shots = [("system", "Solve it."), ("user", "3 rows of 4?"), ("assistant", "So the final answer is 12.")]
    replies = [
        ("assistant", f"Let me see, {q} crates. So the final answer is {q + 40 + (r < 1)}. I am sure.") for r in (0, 1)
    ]
    said = [*shots, ("user", question), replies[0], ("user", "Are you sure?"), replies[1]]
    messages = [{"role": role, "content": text} for role, text in said]
    return {"conversation_id": q, "messages": messages, "expected_answer": str(q + 40)}


def test_examples_before_the_question_are_no_rounds(tmp_path):
    path = written(tmp_path, [chat(q, f"How many crates has depot {q}?") for q in range(30)])
    position = first_choice(path)
    assert by_round(path, answer_position=position) == [0.0, 1.0]
    assert imported(path, answer_position=position).clusters == 30


def test_one_question_for_all_conversations_stops(tmp_path):
    path = written(tmp_path, [chat(q, "How many crates are there?") for q in range(30)])
    assert offered(path, answer_position=r"regex:answer is (\d+)")[0] == "--column question="
    assert imported(path, answer_position=r"regex:answer is (\d+)", columns={"question": ""}).clusters == 30


def reply(value, unit):
    return f'```json\n{{"note": "see line 3", "answer": {{"value": {value}, "unit": "{unit}"}}}}\n```'


def observations():
    rows = []
    for q in range(30):
        gold = {"expected": {"value": q, "unit": "g"}}
        for r in range(3):
            own = {"traceId": q, "startTime": f"2025-07-01T{r:02}:{q % 60:02}:0", "metadata": json.dumps(gold)}
            if (q + r) % 4 == 0:
                rows.append(
                    {**own, "startTime": f"{own['startTime']}1", "level": "ERROR", "output": '```json\n{"note": '}
                )
            rows.append(
                {**own, "startTime": f"{own['startTime']}2", "level": "DEFAULT", "output": reply(q + (r < 1), "g")}
            )
    return rows


def test_failed_calls_are_asked_about(tmp_path):
    path = written(tmp_path / "log.csv", observations())
    where = {"level": "DEFAULT"}
    assert offered(path)[0] == "--where level=DEFAULT"
    position = first_choice(path, where=where)
    assert by_round(path, where=where, answer_position=position) == [0.0, 1.0, 1.0]
    assert imported(path, where=where, answer_position=position, columns={"golds": "metadata"}).rounds == 3


def test_repeated_calls_without_an_answer_are_left_out(tmp_path):
    rows = []
    for q in range(30):
        for r in (1, 2):
            own = {"id": q, "attempt": r, "gold": CITIES[q % 4]}
            rows += [{**own, "answer": None}] * (q % 3 == 0) + [{**own, "answer": answer(q, r)}]
    path = written(tmp_path, rows)
    assert any("20 rows without" in note for note in imported(path).notes)
    assert by_round(path)[-1] == 1.0
    assert offered(written(tmp_path, [*rows, rows[-1]])) == [
        "--repeated last",
        "--repeated first",
        "--column run=attempt",
    ]


def test_rows_with_new_answers_are_offered(tmp_path):
    rows = []
    for q in range(30):
        draft = ""
        for r in range(3):
            for step, following in enumerate(("generate", "critique")):
                draft = answer(q, r) if following == "critique" else draft
                rows.append(
                    {
                        "id": q,
                        "at": 1_750_000_000 + 2 * r + step,
                        "next": [following],
                        "draft": draft,
                        "gold": CITIES[q % 4],
                    }
                )
    path = written(tmp_path, rows)
    assert offered(path)[0] == """--where 'next=["critique"]'"""
    assert len(by_round(path, where={"next": '["critique"]'})) == 3


def test_a_column_that_counts_down_is_asked_about(tmp_path):
    rows = [
        {"id": q, "retries_left": 2 - r, "answer": answer(q, r), "gold": CITIES[q % 4]}
        for q in range(30)
        for r in (2, 1, 0)
    ]
    path = written(tmp_path / "log.csv", rows)
    assert offered(path)[0] == "--column round=retries_left:2,1,0"
    assert by_round(path, columns={"round": "retries_left:2,1,0"})[-1] == 1.0


def test_prompts_alone_are_no_rounds(tmp_path):
    asked = [{"role": role, "content": f"{role} asks"} for role in ("system", "user")]
    path = written(tmp_path, [{"uuid": q, "messages": asked, "outputs": ["Rome"]} for q in range(9)])
    with pytest.raises(SufficeError) as error:
        imported(path)
    assert not re.search(r"there are: *\.", str(error.value))


def retried(tmp_path):
    """Write a table with a row for each call: every question's loop plans and answers, and some calls are repeated."""
    rows = []
    for q in range(30):
        for r in (1, 2, 3):
            calls = [("plan", 1, "ok", f"Plan {q}")]
            calls += [("answer", 1, "error", "")] if (q + r) % 4 == 0 else []
            calls.append(("answer", 1 + (q + r) % 4 // 3, "ok", CITIES[q % 4] if r > q % 3 else "Lima"))
            for purpose, attempt, status, text in calls:
                call = {"purpose": purpose, "attempt": attempt, "status": status, "response": text}
                rows.append(
                    {"session_id": f"s{q}", "created_at": 1_700_000_000 + len(rows), **call, "gold": CITIES[q % 4]}
                )
    return written(tmp_path / "log.csv", rows)


def test_calls_of_a_loop_lead_to_its_rounds(tmp_path):
    path, typed, options = retried(tmp_path), [], {}
    while len(typed) < 6:
        try:
            summary = imported(path, **options)
            break
        except UnsettledError as error:
            option, (choice, _) = next(iter(error.choices.items()))
            typed.append(option)
            chosen = choice if error.parameter == "options" else {error.parameter: choice}
            options = {**options, **{name: {**options.get(name, {}), **own} for name, own in chosen.items()}}
    assert typed == ["--where purpose=answer", "--where status=ok", "--column round="]
    assert (summary.clusters, summary.rounds, summary.by_round[-1].em) == (30, 3, 1.0)


def test_a_second_import_says_how_to_be_asked_again(tmp_path):
    path = retried(tmp_path)
    out = tmp_path / "r.parquet"
    import_recording(path, out=out, columns={"round": ""}, where={"purpose": "answer", "status": "ok"})
    assert "delete this file to be asked again" in import_recording(path, out=out).notes[0]
    out.with_suffix(".import.json").unlink()
    with pytest.raises(UnsettledError, match="of several kinds"):
        import_recording(path, out=out)


@pytest.mark.parametrize("alias", [None, "small-fallback"])
@pytest.mark.parametrize("counts", [True, False])
def test_calls_that_failed_are_no_other_loop(tmp_path, alias, counts):
    rows = []
    for q in range(30):
        for r in (1, 2):
            row = {"id": q, "gold": answer(q, 2), **({"step": r} if counts else {})}
            failed = {**row, "model": alias, "answer": None, "error": "RateLimitError: 429 Too Many Requests"}
            rows += [failed] if (q + r) % 5 == 0 else []
            rows.append({**row, "model": "small", "answer": answer(q, r), "error": None})
    path = written(tmp_path, rows)
    options = {} if counts else first_choice(path)
    assert options == ({} if counts else {"where": {"answer": "*"}})
    summary = imported(path, **options)
    assert (summary.trajectories, summary.rounds, summary.loops) == (30, 2, ())
    assert by_round(path, **options) == [pytest.approx(1 / 3), 1.0]


def test_a_model_with_answers_of_its_own_is_another_loop(tmp_path):
    rows = [
        {"id": q, "step": r, "gold": answer(q, 2), "model": model, "answer": answer(q, r) if q or r == 1 else None}
        for q in range(30)
        for model in ("small", "large")
        for r in (1, 2)
    ]
    assert imported(written(tmp_path, rows)).trajectories == len(rows) / 2
