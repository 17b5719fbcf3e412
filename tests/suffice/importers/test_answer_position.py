"""The answer inside a reply: imports read it as live loops do, ask for its position, and hand it on to policies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from suffice import AnswerPosition, Policy
from suffice.errors import ConfigMismatchError, DataError, UnsettledError
from suffice.evaluation.replay import policy_for, replay
from suffice.importers import import_recording, readers
from suffice.importers.tables import table_parts
from suffice.recordings import read_recording
from tests.suffice.importers.test_traces import TRACES
from tests.support.cli_tools import cli
from tests.support.raw_replies import (
    CITIES,
    FORMS,
    POSITIONS,
    QUESTIONS,
    ROUNDS,
    answers_of,
    in_form,
    judged,
    position_of,
    records,
    reply,
    written,
)


@pytest.fixture(params=list(POSITIONS))
def kind(request):
    return request.param


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(rows, name="log.jsonl"):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return name


def renamed(rows, **names):
    return [{names.get(name, name): value for name, value in row.items() if names.get(name, name)} for row in rows]


def read(position=None, log="log.jsonl", **options):
    summary = import_recording(log, out="log.parquet", answer_position=position, **options)
    return read_recording(summary.path), summary


# -- what is read -----------------------------------------------------------------------------------------------------


def test_replies_become_texts_and_what_they_answer_answers(kind):
    write(records(kind))
    recording, summary = read(POSITIONS[kind])
    assert recording.objects("text")[3].tolist() == [reply(kind, a, 3, r) for r, a in enumerate(answers_of(3), 1)]
    assert [[answer.rstrip(".") for answer in own] for own in recording.answers.tolist()] == [
        answers_of(q) for q in range(QUESTIONS)
    ]
    assert recording.metadata["config"] == {"answer_position": POSITIONS[kind].to_dict()}
    assert any(f"in all {QUESTIONS * ROUNDS:,} replies" in note for note in summary.notes)
    assert policy_for(recording, "answer_stable").answer_position == POSITIONS[kind]
    if kind != "json":
        return
    again = import_recording("log.jsonl", out="log.parquet")
    assert again.notes[0].startswith("read as last time")
    assert read_recording(again.path).metadata["config"] == recording.metadata["config"]


def test_a_reply_beside_a_parsed_answer_is_what_is_read():
    rows = [{**row, "answer": "unparsed"} for row in records("regex")]
    write(rows)
    recording, _ = read("regex:<<(.+?)>>", columns={"answer": "answer", "text": "response"})
    assert recording.answers[1].tolist() == answers_of(1)


def test_texts_without_a_column_of_answers_are_read():
    write(renamed(records("boxed"), id="question_id", attempt="round", expected="golds", response="text"))
    recording, _ = read("boxed")
    assert recording.answers[2].tolist() == answers_of(2)
    assert recording.column("em")[2].tolist() == [1.0] * ROUNDS


def test_replies_without_an_answer_there_are_counted():
    rows = records("regex")
    rows[1]["response"], rows[2]["response"] = "I do not know.", None
    write(rows)
    recording, summary = read(POSITIONS["regex"])
    assert recording.answers[0].tolist()[:3] == [answers_of(0)[0], None, None]
    n = QUESTIONS * ROUNDS - 1
    assert any(f"1 of {n:,} replies ({1 / n:.1%})" in note for note in summary.notes)
    with pytest.raises(DataError, match="no reply"):
        read("json:nothing")


def test_a_reply_that_was_cut_is_not_an_answer():
    rows = [{**row, "finish_reason": "length" if row["attempt"] == 2 else "stop"} for row in records("boxed")]
    write(rows)
    assert read("boxed", expected=["empty-rounds"])[0].answers[0].tolist() == [
        None if r == 1 else a for r, a in enumerate(answers_of(0))
    ]


@pytest.mark.parametrize("kind", ["marker", "json"])  # the one at which live loops read by default, and any other
def test_tables_in_parts_filters_and_samples_read_the_same(kind, monkeypatch):
    write([{**row, "model": "small" if row["id"] == "q0" else "large"} for row in records(kind)])
    whole, summary = read(POSITIONS[kind])
    filtered, _ = read(POSITIONS[kind], where={"model": "large"})
    samples, _ = read(POSITIONS[kind], samples=True)
    assert filtered.answers.tolist() == samples.answers[1:].tolist() == whole.answers[1:].tolist()
    assert samples.independent
    monkeypatch.setattr(table_parts, "LARGE", 0)
    monkeypatch.setattr(table_parts, "PART", 50)
    parts, of_parts = read(POSITIONS[kind])
    assert parts.table.equals(whole.table)
    assert [note for note in of_parts.notes if "answers are read" in note] == [
        note for note in summary.notes if "answers are read" in note
    ]


@pytest.mark.parametrize("name", ["otlp_genai.jsonl.gz", "inspect_rounds.eval"])
def test_traces_read_the_answer_and_its_tokens(name):
    whole, _ = read(log=TRACES / name)
    digit, summary = read("regex:[0-9]$", log=TRACES / name)
    assert digit.answers.tolist() == [[answer and answer[-1] for answer in own] for own in whole.answers.tolist()]
    assert digit.objects("text").tolist() == whole.objects("text").tolist()
    assert any("answers are read at 'regex:[0-9]$'" in note for note in summary.notes)
    scored = [[item for item in own.column("em").ravel() if not math.isnan(item)] for own in (digit, whole)]
    assert sum(scored[0]) < sum(scored[1]) or scored == [[], []]
    with pytest.raises(DataError, match="no reply"):
        read("boxed", log=TRACES / name)


def test_answers_that_a_tool_submits_have_no_position():
    with pytest.raises(DataError, match="tool call submits"):
        read("boxed", log=TRACES / "docent_log.eval", key=None)


def test_a_format_without_texts_and_a_function_are_refused():
    with pytest.raises(DataError, match="cannot be saved"):
        read(AnswerPosition("callable", span=lambda text: (0, len(text))))
    write(records("boxed"))
    with pytest.raises(DataError, match="answer position"):
        read("xpath://answer")
    assert cli("import", "log.jsonl", "--answer-position", "xpath://a").code == 2
    Path("run.tasr").write_text("x")
    refused = cli("import", "run.tasr", "--kind", "ircot", "--answer-position", "boxed")
    assert (refused.code, "--answer-position" in refused.error) == (2, True)


# -- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "has_golds", "column"),
    [
        *((kind, has_golds, ()) for kind in POSITIONS for has_golds in (True, False)),
        ("marker", True, ("--column", "answer=response")),
    ],
)
def test_whole_replies_are_asked_about_and_the_printed_command_works(kind, has_golds, column):
    rows = renamed(records(kind), **({} if has_golds else {"expected": ""}))
    write(rows)
    asked = cli("import", "log.jsonl", "-o", "log.parquet", "--yes", *column)
    if has_golds and kind in ("json", "boxed"):  # gold answers confirm the mark
        assert (asked.code, "for another reading, --answer-position whole" in " ".join(asked.out.split())) == (0, True)
        assert [a.rstrip(".") for a in read_recording("log.parquet").answers[4].tolist()] == answers_of(4)
        return
    if kind == "regex" and not has_golds:  # nothing in these replies looks like an answer without a gold one
        assert (asked.code, "inside replies" in asked.err) == (0, False)
        return
    assert asked.code == 2
    assert "the answers may be inside replies: read whole, 0%" in asked.error
    assert "100% of the replies to the others have an answer" in asked.error
    assert all(len(line) < 600 for line in asked.err.splitlines())
    command, *_, whole = asked.commands
    assert cli(*command).code == 0
    assert [a.rstrip(".") for a in read_recording("log.parquet").answers[4].tolist()] == answers_of(4)
    if kind == "marker":  # the same line is printed for every kind
        assert cli(*whole).code == 0
        assert len(read_recording("log.parquet").answers[4, 0]) > 20


@pytest.mark.parametrize("kind", ["regex", "boxed"])
def test_a_gold_answer_under_another_name_is_asked_about_with_the_position(kind):
    write(renamed(records(kind), expected="answer"))
    asked = cli("import", "log.jsonl", "-o", "log.parquet", "--yes")
    assert "may be the gold answer" in asked.error
    first, last = asked.commands
    assert "--answer-position" not in last
    assert cli(*first).code == 0
    assert [a.rstrip(".") for a in read_recording("log.parquet").answers[4].tolist()] == answers_of(4)
    given = cli("import", "log.jsonl", "-o", "log.parquet", "--yes", "--answer-position", "boxed")
    assert all("--column" in command and command.count("--answer-position") == 1 for command in given.commands)


def test_a_mark_beside_another_that_agrees_as_well_is_asked_about():
    reversed_ = [answer for q in range(QUESTIONS) for answer in answers_of(q)[::-1]]
    pairs = zip(records("boxed"), reversed_, strict=True)
    write([{**row, "response": f"{row['response']}\nIn short: {answer}"} for row, answer in pairs])
    with pytest.raises(UnsettledError, match="inside replies"):
        read()
    write([row if int(row["id"][1:]) % 9 else {**row, "response": "I do not know this."} for row in records("boxed")])
    with pytest.raises(UnsettledError, match="inside replies"):
        read()


def test_the_chosen_position_is_imported_and_kept_if_asked_interactively():
    write(renamed(records("json"), expected=""))
    asked = []

    def settle(error):
        asked.append(error.parameter)
        return next(value for value, _ in error.choices.values())

    recording, summary = read(settle=settle)
    assert asked == ["answer_position"]
    assert any("100% of the replies to the others have an answer" in note for note in summary.notes)
    assert recording.metadata["config"]["answer_position"]["kind"] == "json"
    assert json.loads(summary.mapping.read_text("utf-8"))["options"]["answer_position"].startswith("json:")


def test_usual_names_come_first_without_golds():
    rows = [
        {
            "id": f"q{q}",
            "round": r,
            "response": json.dumps({"sure": q % 5, "why": f"{q} {r}" * 4, "answer": CITIES[q % 7]}),
        }
        for q in range(60)
        for r in (1, 2, 3)
    ]
    write(rows)
    with pytest.raises(UnsettledError) as error:
        read()
    assert [*error.value.choices] == [
        "--answer-position json:answer",
        "--answer-position json:sure",
        "--answer-position whole",
    ]


@pytest.mark.parametrize(
    ("mark", "end", "share"),
    [("<answer>", "</answer> as I said", 1), ("\nFinal answer: ", "", 1), ("<answer>", "</answer>", 0.8)],
)
def test_a_mark_in_nearly_all_replies_is_offered_without_golds(mark, end, share):
    said = [f"{q} {r} I think. {mark}{CITIES[(q + r) % 7]}{end}" for q in range(10) for r in (1, 2, 3)]
    said = [text if i < share * len(said) else f"{i} Nothing is known." for i, text in enumerate(said)]
    write([{"id": i // 3, "round": i % 3 + 1, "response": text} for i, text in enumerate(said)])
    if share < 1:
        assert "config" not in read()[0].metadata
        return
    with pytest.raises(UnsettledError) as error:
        read()
    position, whole = (value for value, _ in error.value.choices.values())
    assert (read(position)[0].answers[0].tolist(), whole) == ([*CITIES[1:4]], "whole")


def test_the_last_of_several_tags_is_read():
    said = [
        f"Not <answer>{CITIES[r]}</answer>, but <answer>{CITIES[(q + (r == 1)) % 7]}</answer>."
        for q in range(60)
        for r in (1, 2)
    ]
    write(
        [
            {"id": i // 2, "round": i % 2 + 1, "response": text, "gold": CITIES[i // 2 % 7]}
            for i, text in enumerate(said)
        ]
    )
    assert [item.em for item in read()[1].by_round] == [0, 1]


def test_the_half_that_did_not_choose_can_reject_a_position():
    rows = records("boxed")
    from suffice.evaluation.statistics.units import hash_places

    for row in rows:
        if hash_places([row["id"]], salt="answer position:")[0] >= 0.5:
            row["response"] = f"{row['id']}: nothing to see in step {row['attempt']}, sorry"
    write(rows)
    assert "config" not in read(expected=["never-right"])[0].metadata


@pytest.mark.parametrize(
    "change",
    [
        {"response": "answer", "more": {"text": "A long text that says why, which nobody has to read here."}},
        {"response": "response"},
    ],
    ids=["parsed", "short"],
)
def test_parsed_and_short_answers_are_not_asked_about(change):
    more = change.pop("more", {})
    rows = [{**row, "response": answers_of(int(row["id"][1:]))[row["attempt"] - 1], **more} for row in records("boxed")]
    write(renamed(rows, **change))
    recording, _ = read()
    assert recording.answers[4].tolist() == answers_of(4)
    assert "config" not in recording.metadata


@pytest.mark.parametrize("n", [19, 12])
def test_few_questions_or_rounds_are_not_asked_about(n):
    write([row for row in records("boxed") if int(row["id"][1:]) < n])
    assert "config" not in read(expected=["never-right"])[0].metadata
    write(renamed([row for row in records("boxed") if row["attempt"] < 2 + (row["id"] == "q1")], expected=""))
    assert "config" not in read()[0].metadata


def test_drafts_that_repeat_and_other_prose_are_not_asked_about():
    prose = [f"The tower is in {city}, says the guide, and it is tall.\nResult: it is good." for city in CITIES]
    write([{"id": q, "attempt": r, "response": prose[q % 7]} for q in range(60) for r in (1, 2, 3)])
    assert "config" not in read()[0].metadata
    write([{"id": q, "attempt": r, "response": f"{prose[q % 7]} {q} {r}"} for q in range(60) for r in (1, 2, 3)])
    assert "config" not in read()[0].metadata
    write([{"id": q, "attempt": r, "response": f"In {q * r} words: {q}-{r}"} for q in range(60) for r in (1, 2, 3)])
    assert "config" not in read()[0].metadata


def test_only_the_first_questions_of_a_large_log_are_looked_at(monkeypatch):
    write(records("boxed"))
    monkeypatch.setattr(readers, "refuse_whole_replies", lambda parts, *_: seen.extend(parts))
    seen: list = []
    monkeypatch.setattr(table_parts, "LARGE", 0)
    monkeypatch.setattr(table_parts, "PART", 20)
    read(expected=["never-right"])
    assert len(seen) > 5
    from suffice.importers.answers import reply_answers

    monkeypatch.setattr(reply_answers, "SAMPLE", 22)
    with pytest.raises(UnsettledError, match="boxed"):
        reply_answers.refuse_whole_replies(iter(seen), {})


def test_numbers_in_replies_are_compared_as_numbers():
    rows = [
        {"id": f"q{q}", "attempt": r, "expected": str(q * 100), "response": f"Step {r}: so we get ${q * 100:,}.00"}
        for q in range(1, 60)
        for r in (1, 2, 3)
    ]
    write(rows)
    with pytest.raises(UnsettledError, match="last-number"):
        read()


@pytest.mark.parametrize("wording", ["{why}.\nFinal answer: {n}", "{why} $\\boxed{{{n}}}$."])
def test_sentences_with_one_number_are_replies_though_they_read_as_numbers(wording):
    why = "We add what is given, and nothing else is needed here"
    rows = [
        {
            "id": f"q{q}",
            "attempt": r,
            "expected": str(q * 10),
            "response": wording.format(why=why, n=q * 10 + (q % 3 == r)),
        }
        for q in range(1, 60)
        for r in (1, 2, 3)
    ]
    write([{**row, "response": f"{row['expected']} kilometres per hour"} for row in rows])
    assert "config" not in read()[0].metadata
    write(rows)
    recording, summary = read()
    assert any("for another reading, --answer-position whole" in note for note in summary.notes)
    assert recording.answers[3].tolist() == ["41", "40", "40"]


@pytest.mark.parametrize("score", [0.35, 1.0])
def test_a_graded_score_is_offered_to_judge_whole_replies(score):
    frames = ("{}, as the context says here.", "It seems from all that is given here that it is {}.")
    rows = [
        {
            "id": f"q{q}",
            "round": r,
            "response": frames[(q + r) % 2].format(CITIES[(q + (r == 1)) % 7]),
            "reference": CITIES[q % 7],
            "answer_correctness": score if r == 1 else 1,
        }
        for q in range(60)
        for r in (1, 2)
    ]
    write(rows)
    with pytest.raises(UnsettledError) as error:
        read()
    offered = "--answer-position whole --column golds="
    assert (offered in error.value.choices) == (score < 1)
    assert read(next(iter(error.value.choices))[len("--answer-position ") :].strip("'"))[1].by_round[1].em == 1
    Path("log.import.json").unlink()
    assert read("whole", columns={"golds": ""})[1].judged_by == ("answer_correctness",)


# -- what follows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*POSITIONS, *FORMS, "decimal-comma json"])
def test_printed_lines_stop_and_answer_on_raw_replies_as_decided(kind, tmp_path):
    log = judged(kind, tmp_path)
    log.advice.save("decision.json")
    done = cli("deploy", "decision.json")
    assert Policy.load("policy.json").answer_position == position_of(kind)
    names: dict = {}
    exec(compile(done.out[done.out.index("from suffice import") :], "lines.py", "exec"), names)
    for replies, stop, answered, answer in log.questions[:41]:  # with every number of wrong answers, and both slips
        left = iter(replies)
        names["write"] = lambda question, reply, left=left: next(left)
        said, decision = names["ask"]("Where?")
        assert (said, decision.stop_round, decision.answer_round) == (answer, stop, answered)
        assert len([*left]) == ROUNDS - stop


def test_a_policy_that_reads_elsewhere_is_refused(kind):
    write(records(kind))
    recording, _ = read(POSITIONS[kind])
    with pytest.raises(ConfigMismatchError, match="reads answers"):
        replay(recording, [Policy(rule="answer_stable", max_rounds=ROUNDS)])
    Policy(rule="answer_stable", max_rounds=ROUNDS).save("policy.json")
    for command in (("replay", "log.parquet"), ("certify", "log.parquet", "--max-loss", "0.05")):
        assert "reads answers at" in cli(*command, "--policy", "policy.json").error
    own = policy_for(recording, "answer_stable")
    assert replay(recording, [own]).n == QUESTIONS


@pytest.mark.parametrize("form", FORMS)
def test_answers_in_a_form_are_read_alone_in_replies_and_in_parts(form, monkeypatch):
    gold = [written(form, 0, city) for city in answers_of(3)]
    write(in_form(form, QUESTIONS))
    alone, _ = read(columns={"answer": f"response:{form}"})
    assert alone.answers[3].tolist() == gold
    assert alone.metadata["config"] == {"answer_position": {"form": form}}
    write(in_form(f"{form} json", QUESTIONS))
    by_column, summary = read("json:result.city", columns={"answer": f"response:{form}"})
    by_position, _ = read(f"{form}:json:result.city", columns={"answer": "response"})
    assert by_column.answers.tolist() == by_position.answers.tolist() == alone.answers.tolist()
    assert by_column.metadata["config"] == by_position.metadata["config"]
    if form not in ("decimal-comma", "day-first"):  # parts read numbers, and dates, as the whole does
        return
    assert by_column.objects("text")[3].tolist() == [row["response"] for row in in_form(f"{form} json", 4)[-ROUNDS:]]
    assert any(f"read at '{form}:json:result.city' in all" in note for note in summary.notes)
    monkeypatch.setattr(table_parts, "LARGE", 0)
    monkeypatch.setattr(table_parts, "PART", 50)
    parts, _ = read("json:result.city", columns={"answer": f"response:{form}"})
    assert parts.table.equals(by_column.table)
    assert parts.metadata["config"] == by_column.metadata["config"]


def test_answers_of_two_forms_and_other_forms_are_refused():
    write(in_form("decimal-comma json", QUESTIONS))
    with pytest.raises(DataError, match="one form"):
        read("thousands:json:result.city", columns={"answer": "response:decimal-comma"})
    with pytest.raises(DataError, match="cents"):
        read(columns={"answer": "response:cents"})


def test_a_policy_without_the_form_of_its_log_is_refused():
    write(in_form("decimal-comma", QUESTIONS))
    recording, _ = read(columns={"answer": "response:decimal-comma"})
    own = policy_for(recording, "answer_stable")
    elsewhere = replace(own, answer_position=AnswerPosition("json", "city", form="decimal-comma"))
    assert replay(recording, [own, replace(elsewhere, name="json")]).n == QUESTIONS
    with pytest.raises(ConfigMismatchError, match="reads answers"):
        replay(recording, [Policy(rule="answer_stable", max_rounds=ROUNDS)])
    write(records("json"))
    recording, _ = read(POSITIONS["json"])
    formed = replace(
        policy_for(recording, "answer_stable"), answer_position=replace(POSITIONS["json"], form="thousands")
    )
    with pytest.raises(ConfigMismatchError, match="reads answers"):
        replay(recording, [formed])
