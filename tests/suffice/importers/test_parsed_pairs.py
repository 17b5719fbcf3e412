"""Parsed answers and right ones in columns of any name, beside whole replies."""

from __future__ import annotations

import pytest

from suffice.recordings import read_recording
from tests.support.logs import asked, imported, written

N, ROUNDS = 30, 3


def rows(**more):
    """Return rounds of tickets whose replies name an article, which has a column of its own beside the one that solved them."""
    return [
        {
            "ticket_id": f"T{q}",
            "draft": r,
            "reply": f"Hello! Please see article KB-{_said(q, r)} about your trouble number {q}. Good luck.",
            "kb_article": f"KB-{_said(q, r)}",
            "solved_by_article": f"KB-{10 + q % 7}",
            **{name: own(q, r) for name, own in more.items()},
        }
        for q in range(N)
        for r in range(1, ROUNDS + 1)
    ]


def _said(q, r):
    return 10 + (q + (r + q) % 3 // 2) % 7


BOTH = {"answer": "kb_article", "golds": "solved_by_article"}


def test_a_parsed_answer_and_what_is_right_are_asked_about(tmp_path):
    source = written(tmp_path, rows())
    choices = asked(source, "whole replies").choices
    assert [own for own, _ in choices.values()] == [BOTH, {"answer": "kb_article"}, {"answer": "reply"}]
    summary, recording = imported(source, columns=BOTH), read_recording(source.with_suffix(".parquet"))
    right = [sum(_said(q, r) == 10 + q % 7 for q in range(N)) / N for r in range(1, ROUNDS + 1)]
    assert recording.column("em").mean(axis=0) == pytest.approx(right)
    assert summary.judged_by == ("em",)


def test_samples_with_a_parsed_number_are_asked_about(tmp_path):
    records = [
        {
            "case_no": q,
            "outputs": [
                {
                    "completion": f"We multiply the {9 * q + r} days of the stay. The total is {_said(q, r)} in all.",
                    "total": _said(q, r),
                }
                for r in range(ROUNDS)
            ],
            "invoiced": 10 + q % 7,
        }
        for q in range(N)
    ]
    error = asked(written(tmp_path, records), "whole replies", samples=True)
    assert next(iter(error.choices.values()))[0] == {"answer": "total", "golds": "invoiced"}


@pytest.mark.parametrize(
    "changed",
    [
        {"solved_by_article": lambda q, r: f"KB-{10 + (q + r) % 7}"},
        {"solved_by_article": lambda q, r: f"KB-{40 + q % 7}"},
        {"kb_article": lambda q, r: f"KB-{50 + _said(q, r)}", "solved_by_article": lambda q, r: f"KB-{60 + q % 7}"},
    ],
    ids=["changes", "never the same", "not in replies"],
)
def test_other_columns_beside_replies_are_not_asked_about(changed, tmp_path):
    made = [{name: own for name, own in row.items() if name in changed or name != "label"} for row in rows(**changed)]
    imported(written(tmp_path, made), expected=["drafts", "unread-golds"])
