"""Columns that are kept as they are: which round was returned, groups of questions, samples that depend on their order, scales."""

from __future__ import annotations

import random

import numpy as np
import pytest

from suffice.errors import DataError, UnsettledError
from suffice.importers.checks.own_alarms import uneven_groups
from suffice.importers.rounds.own_columns import OwnColumns
from suffice.verdicts.decisions import decide
from suffice.verdicts.decisions.candidates import usual_selector
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import imported, offered, recorded, written

N, ROUNDS = 44, 4


def said(q, r):
    """Return an answer that is right in round 3, and in others of every second question."""
    return CITIES[q % 4] if r == 3 or q % 2 else CITIES[(q + r % 3 + 1) % 4]


def rows(n=N, **columns):
    usual = {
        "qid": lambda q, r: f"q{q}",
        "question": lambda q, r: f"Where is tower {q}?",
        "round": lambda q, r: r,
        "answer": said,
        "gold": lambda q, r: CITIES[q % 4],
    }
    made = {name: make for name, make in (usual | columns).items() if make is not None}
    return [{name: make(q, r) for name, make in made.items()} for q in range(n) for r in range(1, ROUNDS + 1)]


def chosen(q, r):
    return r == (3 if q % 3 else 2)


@pytest.mark.parametrize("mark", [lambda is_it: is_it, lambda is_it: "yes" if is_it else "", int])
def test_a_flag_of_one_round_says_what_was_returned(tmp_path, mark):
    records = rows(kept=lambda q, r: mark(chosen(q, r)))
    if mark is int:
        assert offered(written(tmp_path, records), match="exactly one round") == [
            "--column returned=kept",
            "--expected returned",
        ]
    summary, recording = recorded(tmp_path, records, columns={"returned": "kept"})
    assert summary.alarms == ()
    assert recording.column("returned").tolist() == [[float(chosen(q, r)) for r in range(1, 5)] for q in range(N)]


def test_decide_judges_what_the_loop_returned(tmp_path):
    _, recording = recorded(tmp_path, rows(kept=chosen), columns={"returned": "kept"})
    trial = decide(recording, metric="em", tune_share=0.5).trial
    assert {str(policy.selector) for policy in trial.candidates} == {"max_returned"}


@pytest.mark.parametrize(("sign", "selector"), [(1, "max_reward_model"), (-1, "min_reward_model"), (0, "max_returned")])
def test_decide_judges_the_sample_that_the_loop_returned(tmp_path, sign, selector):
    records = rows(kept=chosen, reward_model=lambda q, r: sign * (10 * chosen(q, r) + (q + r) % 4))
    _, recording = recorded(tmp_path, records, columns={"returned": "kept"}, samples=True)
    assert usual_selector(recording) == selector
    if sign < 1:
        return
    trial = decide(recording, metric="em", tune_share=0.5).trial
    assert {str(policy.selector) for policy in trial.candidates} == {selector}


def test_a_choice_by_a_cost_is_named_by_its_mark(tmp_path):
    records = rows(kept=chosen, seconds=lambda q, r: 9.0 - 5 * chosen(q, r) + (q + r) % 4)
    _, recording = recorded(tmp_path, records, columns={"returned": "kept"}, samples=True)
    assert "cost.generator.seconds" in recording.table.column_names
    assert usual_selector(recording) == "max_returned"  # a selector cannot read a cost


@pytest.mark.parametrize(
    "mark",
    [
        lambda q, r: r == ROUNDS,  # always the last
        lambda q, r: r == 2,  # always the second: a stage
        lambda q, r: (q + r) % 2 == 0,  # two of four
        lambda q, r: q % 2 == 0 and r == 2,  # of half of the questions
    ],
)
def test_a_flag_of_other_rounds_is_no_choice(tmp_path, mark):
    summary, _ = recorded(tmp_path, rows(flag=mark))
    assert "returned" not in [alarm.name for alarm in summary.alarms]
    assert "not read: flag" in summary.notes


def drafts(final):
    return [
        {
            "qid": f"q{q}",
            "question": f"Where is tower {q}?",
            "gold": CITIES[q % 4],
            "final_answer": final(q),
            "drafts": [{"answer": said(q, r)} for r in range(1, ROUNDS + 1)],
        }
        for q in range(N)
    ]


def test_a_text_that_is_not_the_last_draft_may_be_returned(tmp_path):
    records = drafts(lambda q: said(q, 3))
    assert offered(written(tmp_path, records), match="not the last")[0] == "--column returned=final_answer"
    _, recording = recorded(tmp_path, records, columns={"returned": "final_answer"})
    assert (recording.column("returned")[:, 2] == 1).all()
    assert recorded(tmp_path, drafts(lambda q: said(q, 4)))[0].rounds == ROUNDS


def test_a_last_row_that_copies_the_choice_is_no_round(tmp_path):
    records = []
    for q in range(N):
        own = rows(q + 1)[-ROUNDS:]
        copy = {**own[2 if q % 3 else 1], "round": ROUNDS + 1}
        records += [*({**row, "final": "no"} for row in own), {**copy, "final": "yes"}]
    summary, _ = recorded(tmp_path, records)
    (alarm,) = [alarm for alarm in summary.alarms if alarm.name == "copied-rounds"]
    assert "--column returned=final" in alarm.sentence
    summary, recording = recorded(tmp_path, records, columns={"returned": "final"})
    assert summary.rounds == ROUNDS
    assert recording.column("returned").sum(axis=1).min() == 1


@pytest.mark.parametrize("name", ["experiment_arm", "ab_bucket", "agent_version", "git_sha", "provider", "cohort"])
def test_arms_of_a_trial_are_judged_one_at_a_time(tmp_path, name):
    summary, recording = recorded(tmp_path, rows(**{name: lambda q, r: "AB"[q % 3 == 0]}))
    assert summary.loops == (f"{name}=A", f"{name}=B")
    with pytest.raises(UnsettledError, match="at a time"):
        decide(recording, metric="em")


def test_the_model_of_a_judge_is_not_that_of_the_loop(tmp_path):
    summary, _ = recorded(tmp_path, rows(**{"judge.model": lambda q, r: f"judge-{q % 2}"}))
    assert summary.loops == ()
    assert "not read: judge.model" in summary.notes
    assert not any(item.ours == "model (label)" for item in summary.readings)


def test_a_cost_of_whole_questions_is_named_where_it_is_not_read(tmp_path):
    wide = [
        {"id": q, "attempt_1": "Rome", "attempt_2": "Oslo", "expected": "Oslo", "Cost EUR": f"0,01{q}"}
        for q in range(30)
    ]
    summary, _ = recorded(tmp_path, wide)
    assert "not read: Cost EUR" in summary.notes


def test_unread_columns_are_on_the_first_screen(tmp_path):
    records = rows(tier=lambda q, r: "ab"[q % 2], row=lambda q, r: 9 * q + r, app=lambda q, r: "x")
    path = written(tmp_path, records)
    shown = cli("import", path, "-o", tmp_path / "log.parquet").out
    assert "note: not read: tier\n" in shown
    many = rows(**{f"own_{i}": lambda q, r: "ab"[r % 2] for i in range(10)})
    summary, _ = recorded(tmp_path, many)
    assert any(note.startswith("not read: own_0") and note.endswith("and 2 more") for note in summary.notes)


def gains(n, late, *, seed=0, share=0.3):
    """Return the columns of a log in which a group gains `late` points more than others in the last round."""
    draw = random.Random(seed)
    own = OwnColumns()
    own.members["tenant"] = ["b" if draw.random() < share else "a" for _ in range(n)]
    for member in own.members["tenant"]:
        place = draw.random()
        last = 0.7 + (late if member == "b" else 0)
        marks = [place < bound for bound in (0.5, 0.65, 0.7, last)]
        own.changes.append(tuple(float(marks[-1]) - float(mark) for mark in marks))
    return own


def test_groups_whose_rounds_gain_otherwise_are_found():
    name, _, means = uneven_groups(gains(400, 0.2), ["tenant"])
    assert name == "tenant"
    assert means["b"][1] > means["a"][1] + 0.1


def test_equal_groups_are_seldom_found():
    # with 1 % of false alarms each, five of forty are found in one of 10,000 tests
    assert sum(uneven_groups(gains(80, 0.0, seed=seed), ["tenant"]) is not None for seed in range(40)) < 5


def test_groups_that_differ_are_a_caution_with_a_filter(tmp_path):
    records = rows(120, tenant=lambda q, r: "ab"[q % 2])
    summary, _ = recorded(tmp_path, records)
    (alarm,) = [alarm for alarm in summary.alarms if alarm.name == "mixed-groups"]
    assert alarm.level == "caution"
    assert "--where tenant=a" in alarm.sentence
    alone, _ = recorded(tmp_path, records, where={"tenant": "a"})
    assert alone.clusters == 60


def test_what_is_known_afterwards_is_no_group(tmp_path):
    names = ("status", "final_state", "n_best", "closed_by", "ticket_resolution", "csat")
    summary, _ = recorded(tmp_path, rows(120, **dict.fromkeys(names, lambda q, r: "ab"[q % 2])))
    assert "mixed-groups" not in [alarm.name for alarm in summary.alarms]


def votes(seed=0):
    draw = random.Random(seed)
    records = []
    for q in range(N):
        drawn = []
        for k in range(1, 7):
            drawn.append(CITIES[q % 4] if draw.random() < 0.5 else draw.choice(CITIES))
            vote = max(dict.fromkeys(drawn), key=drawn.count)
            own = {"id": f"q{q}", "sample": k, "sampled_answer": drawn[-1], "answer": vote, "gold": CITIES[q % 4]}
            records.append(own)
    return records


def test_votes_so_far_are_no_samples(tmp_path):
    assert offered(written(tmp_path, votes()), match="depend on their", samples=True) == [
        "--column answer=sampled_answer",
        "--expected dependent-samples",
    ]
    summary, _ = recorded(tmp_path, votes(), samples=True, columns={"answer": "sampled_answer"})
    assert summary.alarms == ()


@pytest.mark.parametrize("first", ["file", "time"])
def test_times_that_go_back_are_asked_about(tmp_path, first):
    def time(q, r):
        return f"2026-01-02 03:{q:02}:{10 * r - (25 if q % 5 == 0 and r > 2 else 0) + 15:02}"

    records = rows(59, round=None, ts=time)
    with pytest.raises(UnsettledError, match="goes back") as error:
        recorded(tmp_path, records)
    option = {"file": "--column round=", "time": "--column round=ts:by-time"}[first]
    given, _ = error.value.choices[option]
    _, recording = recorded(tmp_path, records, columns=given)
    in_file = [said(0, r) for r in range(1, 5)]
    assert recording.answers.tolist()[0] == (in_file if first == "file" else [in_file[i] for i in (2, 0, 3, 1)])


def test_a_question_asked_in_several_tickets_is_found_by_their_id(tmp_path):
    records = rows(
        qid=None,
        ticket_no=lambda q, r: f"T{q}",
        question=lambda q, r: f"Where is tower {q % 8}?",
        gold=lambda q, r: "Oslo",
    )
    summary, _ = recorded(tmp_path, records)
    assert (summary.trajectories, summary.clusters) == (N, 8)


def stopped(word):
    return [
        {**own, "drafts": own["drafts"][: 2 + q % 3], "stop_reason": word(q)}
        for q, own in enumerate(drafts(lambda q: None))
    ]


def test_usual_words_say_why_loops_ended(tmp_path):
    summary, _ = recorded(tmp_path, stopped(lambda q: "converged" if q % 3 < 2 else "max-iterations"))
    assert summary.ends == {"rule": 30, "max_rounds": 14}
    assert not any("does not say so" in note for note in summary.notes)
    other, _ = recorded(tmp_path, stopped(lambda q: "tired" if q % 3 < 2 else "max-iterations"))
    assert any("'stop_reason' may say why, but is not read" in note for note in other.notes)


@pytest.mark.parametrize(
    ("grade", "scale", "expected"),
    [
        (lambda r: 20 * r, "grade:0..100", [0.2, 0.4, 0.6, 0.8]),
        (lambda r: f"{20 * r} %", "grade", [0.2, 0.4, 0.6, 0.8]),
        (lambda r: 6 - r, "grade:6..1", [0.2, 0.4, 0.6, 0.8]),
        (lambda r: "ABCD"[r - 1], "grade:D,B,A", [1.0, 0.5, None, 0.0]),
        (lambda r: "👎👍"[r % 2], "grade:👎,👍", [1.0, 0.0, 1.0, 0.0]),
    ],
)
def test_a_grade_is_scaled_as_the_user_says(tmp_path, grade, scale, expected):
    records = rows(gold=None, grade=lambda q, r: grade(r))
    summary, _ = recorded(tmp_path, records)
    assert summary.judged_by or any("'grade' may" in note for note in summary.notes)
    _, recording = recorded(tmp_path, records, metrics={"grade": scale}, expected=["falling-scores"])
    assert np.allclose(
        recording.column("grade")[0], [np.nan if own is None else own for own in expected], equal_nan=True
    )


def test_an_unread_column_that_may_be_the_gold_answer_is_named(tmp_path):
    records = rows(gold=None, richtig=lambda q, r: ["Ja", "Nein"][q % 2])
    summary, _ = recorded(tmp_path, records)
    assert any("--column golds=richtig" in note for note in summary.notes)


@pytest.mark.parametrize("scale", ["grade:1..3", "grade:5..5", "grade:good"])
def test_a_scale_that_does_not_fit_is_refused(tmp_path, scale):
    with pytest.raises(DataError, match="scale"):
        recorded(tmp_path, rows(gold=None, grade=lambda q, r: r), metrics={"grade": scale})


def test_the_span_around_calls_adds_no_cost_and_lends_its_gold(tmp_path):
    records = []
    for q in range(N):
        calls = [
            {"root": f"s{q}", "kind": "call", "output": said(q, r), "output_tokens": 10 + r, "expected": None}
            for r in range(1, ROUNDS + 1)
        ]
        total = sum(call["output_tokens"] for call in calls)
        records += [
            {"root": f"s{q}", "kind": "eval", "output": said(q, 4), "output_tokens": total, "expected": CITIES[q % 4]},
            *calls,
        ]
    summary, recording = recorded(tmp_path, records, columns={"question_id": "root"}, where={"kind": "call"})
    assert recording.column("cost.generator.output_tokens")[0].tolist() == [11, 12, 13, 14]
    assert summary.judged_by == ("em",)


def test_annotations_of_spans_are_scores(tmp_path):
    path = tmp_path / "spans.csv"
    head = "context.trace_id,context.span_id,span_kind,start_time,attributes.input.value,attributes.output.value,annotation.Right.score,annotation.Hallucination.score"
    lines = [
        f"t{q},s{q}{r},LLM,2026-01-02T03:{q:02}:{r:02}Z,Where is tower {q}?,{said(q, r)},{float(said(q, r) == CITIES[q % 4])},0.5"
        for q in range(59)
        for r in range(1, 4)
    ]
    path.write_text("\n".join([head, *lines]), "utf-8")
    summary = imported(path)
    assert summary.judged_by == ("right",)


def test_the_encoding_that_is_named_reads_the_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes("id,round,回答\nq1,1,東京\n".encode("cp932"))
    refused = cli("import", path, "-o", tmp_path / "log.parquet")
    assert "iconv -f CP932" in refused.err


def test_an_empty_value_chooses_the_rows_without_one(tmp_path):
    records = rows(mark=lambda q, r: "x" if r == ROUNDS else "")
    assert recorded(tmp_path, records, where={"mark": ""})[0].rounds == ROUNDS - 1


def test_a_printed_option_replaces_the_one_before(tmp_path):
    path = written(tmp_path, rows(round=None, number=lambda q, r: r + 5))
    refused = cli("import", path, "-o", tmp_path / "log.parquet", "--column", "round=number")
    command = refused.commands[0]
    assert command.count("--column") == 1
    cli(*command, code=0)


@pytest.mark.parametrize("which", ["first", "last"])
def test_the_user_says_which_repeated_call_counts(tmp_path, which):
    records = []
    for row in rows():
        failed = {**row, "answer": "", "http_status": 429}
        lost = [{**row, "answer": "Rome", "http_status": 200}] * (row["round"] == 2 and row["qid"].endswith("0"))
        records += [failed, *lost, {**row, "http_status": 200}] if lost else [{**row, "http_status": 200}]
    with pytest.raises(UnsettledError) as error:
        recorded(tmp_path, records)
    given, _ = error.value.choices[f"--repeated {which}"]
    _, recording = recorded(tmp_path, records, **given)
    assert recording.answers[0, 1] == ("Rome" if which == "first" else said(0, 2))
    with pytest.raises(DataError, match="allowed"):
        recorded(tmp_path, records, repeated="middle")
