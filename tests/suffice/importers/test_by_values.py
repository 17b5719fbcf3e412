"""Columns that are known by their values: scores on the scale of another, exit codes, and ids of records."""

from __future__ import annotations

import shlex

import pytest

from suffice.importers.rounds.preview import rounds_table
from suffice.recordings import merge_recordings, read_recording
from tests.support.cli_tools import cli
from tests.support.logs import answer, asked, by_command, imported, paired, recorded, written

N = 30


def drafts(**columns):
    """Return rows of three drafts of 30 texts; each further column is a function of the question and the draft."""
    return [
        {"id": q, "draft": r, "summary": f"Text {q}: {'word ' * r}{(7 * q + r) % 11}"}
        | {name: value(q, r) for name, value in columns.items()}
        for q in range(N)
        for r in (1, 2, 3)
    ]


GRADES = {"fluency": lambda q, r: 1 + (q + 2 * r) % 5, "coverage": lambda q, r: min(5, 1 + q % 3 + r)}
SUMMARY = {"columns": {"answer": "summary"}}


def said_of(folder, options=None, **columns):
    summary, _ = recorded(folder, drafts(**columns), **SUMMARY, **(options or {}))
    return " ".join(summary.notes)


@pytest.mark.parametrize("name", ["coverage", "completeness", "relevance", "content"])
def test_grades_on_the_scale_of_a_score_are_offered_beside_it(tmp_path, name):
    notes = said_of(tmp_path, fluency=GRADES["fluency"], **{name: GRADES["coverage"]})
    assert f"fluency=fluency:1..5 or --metric-column {name}={name}:1..5 judges" in notes
    assert "not read" not in notes


def test_a_score_that_judges_alone_is_named_with_those_on_its_scale(tmp_path):
    named = {"metrics": {"fluency": "fluency:1..5"}}
    assert "'fluency' judges, and not its 'coverage', from 1 to 5" in said_of(tmp_path, named, **GRADES)
    decided = cli("decide", tmp_path / "log.parquet", "-o", tmp_path / "d.json", "--details", code=0)
    assert "not its 'coverage'" in " ".join(decided.out.split())
    both = {"metrics": {name: f"{name}:1..5" for name in GRADES}}
    assert "any of the log's own 'fluency', 'coverage' may judge" in said_of(tmp_path, both, **GRADES)


@pytest.mark.parametrize(
    "other",
    [
        lambda _, r: r,  # it counts
        lambda q, _: 1 + q % 5,  # it is the same in all drafts
        lambda q, r: 10 * ((q + r) % 5),  # another scale
        lambda q, r: 4.2 + (q + r) % 5 / 10,  # no grades
    ],
)
def test_other_numbers_are_not_offered_as_scores(tmp_path, other):
    assert "coverage=coverage" not in said_of(tmp_path, fluency=GRADES["fluency"], coverage=other)


@pytest.mark.parametrize("name", ["n_docs", "confidence", "retry_count"])
def test_grades_under_the_name_of_a_count_or_confidence_are_not_offered(tmp_path, name):
    assert f"{name}={name}" not in said_of(tmp_path, fluency=GRADES["fluency"], **{name: GRADES["coverage"]})


@pytest.mark.parametrize(
    ("codes", "scale"), [((101, 0), "101,0"), ((101, 1, 0), "1|101,0"), ((0, 1), "1..0"), ((3, 4), None)]
)
def test_exit_codes_are_offered_with_0_as_best(tmp_path, codes, scale):
    log = [
        {"id": q, "round": r, "answer": f"patch {q} {r}", "exit_code": codes[(q + r * r) % len(codes)]}
        for q in range(N)
        for r in (1, 2, 3)
    ]
    notes = " ".join(recorded(tmp_path, log)[0].notes)
    if scale is None:
        assert "exit_code=" not in notes
        return
    option = f"exit_code=exit_code:{scale}"
    assert shlex.quote(option) in notes
    _, recording = recorded(tmp_path, log, metrics={"exit_code": option.partition("=")[2]})
    assert recording.column("exit_code").ravel().tolist() == [float(row["exit_code"] == 0) for row in log]


def test_counts_of_errors_are_no_exit_codes(tmp_path):
    log = [
        {"id": q, "round": r, "answer": f"patch {q} {r}", "n_errors": (0, 2, 7)[(q + r) % 3]}
        for q in range(N)
        for r in (1, 2, 3)
    ]
    assert "n_errors=" not in " ".join(recorded(tmp_path, log)[0].notes)


def wide(values, name="ticket", **more):
    return [
        {**more, name: value, "draft_1": f"first {q}", "score_1": q % 2, "draft_2": f"second {q}", "score_2": 1}
        for q, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "name"),
    paired(
        [
            [f"HD-{1000 + q}" for q in range(N)],
            [f"LA-2026-{q:04}" for q in range(N)],
            [f"{q:04x}-b{q * 77:x}" for q in range(N)],
            [str(4000 + 3 * q) for q in range(N)],
        ],
        ["ticket", "Case", "ticket_no"],
    ),
)
def test_the_first_column_of_a_wide_table_is_its_id(tmp_path, values, name):
    summary, recording = recorded(tmp_path / "log.csv", wide(values, name))
    assert [*recording.question_ids] == values
    assert (name, "question_id") in {(item.theirs, item.ours) for item in summary.readings}


def test_a_later_column_is_the_id_where_only_its_numbers_differ(tmp_path):
    values = [f"HD-{q}" for q in range(N)]
    assert [*recorded(tmp_path, wide(values, team="blue"))[1].question_ids] == values
    values = [f"{'ab'[q % 2]}{q}" for q in range(N)]
    assert [*recorded(tmp_path, wide(values, team="blue"))[1].question_ids][:2] == ["1", "2"]


@pytest.mark.parametrize(
    "values",
    [
        [f"2026-09-{q:02}T08:00" for q in range(1, N)],
        [f"How is printer {q}?" for q in range(N)],
        [f"{(7 * q) % N}" for q in range(N)],
        [f"{q}.5" for q in range(N)],
        [f"HD-{q // 2}" for q in range(N)],
        ["north", "south", "east"],
    ],
)
def test_times_texts_and_amounts_name_no_record(tmp_path, values):
    assert recorded(tmp_path, wide(values))[1].question_ids[0] != values[0]


def test_two_months_are_merged_in_spite_of_other_cautions(tmp_path):
    paths = []
    for month, n in enumerate((20, N)):
        rows = [
            {"id": f"m{month}-{q}", "round": r, "model": f"size {r}", "answer": answer(q, r)}
            for q in range(n)
            for r in (1, 2)
        ]
        paths.append(imported(written(tmp_path / f"{month}.jsonl", rows)).path)
    cautions = [read_recording(path).metadata["reading"]["cautions"]["other-systems"] for path in paths]
    assert "20 of 20" in cautions[0]
    assert "30 of 30" in cautions[1]
    merge_recordings(tmp_path / "m.parquet", paths)
    assert read_recording(tmp_path / "m.parquet").metadata["reading"]["cautions"]["other-systems"] == "; ".join(
        cautions
    )


def test_who_names_the_rounds_is_not_told_that_models_change(tmp_path):
    rows = [{"id": q, "round": r, "model": f"m{r}", "answer": answer(q, r)} for q in range(N) for r in (1, 2)]
    path = written(tmp_path, rows)
    assert "other-systems" in {alarm.name for alarm in imported(path).alarms}
    assert "other-systems" not in {alarm.name for alarm in imported(path, columns={"round": "round"}).alarms}


def agent(*, steps=4):
    """Return a log of an agent whose last step alone has a reply, with the outcome of the task in each row."""
    return [
        {
            "task_id": f"t{q}",
            "step": r,
            "thought": f"Look at {(q + r) % 7} again.",
            "reply": f"Booked {q}." if r == steps - q % 2 else None,
            "task_success": q % 3 > 0,
        }
        for q in range(2 * N)
        for r in range(1, steps + 1 - q % 2)
    ]


def test_a_reply_in_one_row_of_each_run_is_named_so(tmp_path):
    said = str(asked(written(tmp_path, agent())))
    assert "'reply' is filled in one row of a question alone" in said
    assert "repeats" not in said


def test_an_agent_is_told_to_judge_what_giving_up_loses(tmp_path):
    shown = by_command(tmp_path, agent(), "--column", "answer=reply", "--ended", "rule", code=0)
    assert "--metric 'abandon(task_success)'" in shown.out.partition("next: suffice decide")[2]
    decided = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json")
    assert "--metric 'abandon(task_success)'" in " ".join(decided.out.split())
    assert "Score every round" not in decided.out


def test_the_number_of_scores_is_shown_where_rounds_have_fewer(tmp_path):
    summary = imported(written(tmp_path, agent()), columns={"answer": "reply"}, ended="rule")
    assert [item.known["task_success"] for item in summary.by_round] == [0, 0, N, N]
    assert "n with task_success" in {column.name for column in rounds_table(summary.preview, summary.by_round).columns}
