"""Numbers that are called after a score and are none, gold answers beside columns of rounds, dates in two forms, and dearer models."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import UnsettledError
from suffice.importers.words.gold_names import golds_among
from suffice.importers.words.score_names import is_judgement, is_score_name
from suffice.recordings import read_recording
from tests.support.logs import imported, recorded, written

OTHERS = (
    "pass_conf",
    "passConfidence",
    "correct_confidence",
    "accuracy_estimate",
    "resolved_conf",
    "pass_prob",
    "pass_latency",
    "correct_latency_s",
    "pass_cost_usd",
    "pass_entropy",
    "correct_logprob",
    "pass_margin",
    "accuracy_threshold",
    "pass_id",
    "conf_pass",
    "latency_pass",
    "match_similarity",
    "solved_cost",
    "pass_novelty",
    "overlap_pass",
)
CLASSES = ("A61K", "G06F", "H04L")


def passes(*names: str, more: bool = True) -> list[dict[str, Any]]:
    """Return three rounds of 30 questions, with numbers below 1 of some names, and what a reviewer said."""
    rows = []
    for q in range(30):
        for r in (1, 2, 3):
            ok = int(r > q % 4)
            row = {"id": q, "question": f"Which class has patent {q}?", "round": r, "answer": CLASSES[(q + ok) % 3]}
            number = round(0.4 + (q * r % 50) / 100, 2)
            rows.append({**row, **dict.fromkeys(names, number), **({"reviewer_ok": ok} if more else {})})
    return rows


def test_numbers_that_are_called_after_a_score_judge_nothing(tmp_path: Path) -> None:
    summary, recording = recorded(tmp_path, passes(*OTHERS))
    assert {*OTHERS}.isdisjoint(recording.names("metric"))
    assert not summary.judged_by
    assert any("'reviewer_ok' does" in note for note in summary.notes)


@pytest.mark.parametrize("name", ["pass_rate", "exec_acc", "id_match", "tests_passed", "pass_at_1"])
def test_a_score_is_still_read_by_a_word_in_its_name(tmp_path: Path, name: str) -> None:
    summary, _ = recorded(tmp_path, passes(name, more=False))
    assert summary.judged_by == (name,)


def test_marks_of_passes_judge_where_they_are_yes_and_no(tmp_path: Path) -> None:
    rows = [{**row, "pass_easy": row["reviewer_ok"]} for row in passes("other")]
    summary, _ = recorded(tmp_path, [{k: v for k, v in row.items() if k != "reviewer_ok"} for row in rows])
    assert summary.judged_by == ("pass_easy",)


def test_a_judgement_beside_a_guessed_score_is_named(tmp_path: Path) -> None:
    summary, _ = recorded(tmp_path, passes("exec_acc"))
    (note,) = [note for note in summary.notes if "by a word in its name" in note]
    assert "--metric-column reviewer_ok=reviewer_ok" in note
    rows = [{**row, "exec_acc": row["reviewer_ok"]} for row in passes("exec_acc")]
    summary, _ = recorded(tmp_path, rows)  # both say the same
    assert not any("by a word in its name" in note for note in summary.notes)


def test_a_confidence_called_after_passes_is_a_signal(tmp_path: Path) -> None:
    _, recording = recorded(tmp_path, passes("pass_conf"))
    assert "pass_conf" in recording.names("signal")


def test_the_score_of_an_object_called_confidence_is_no_metric(tmp_path: Path) -> None:
    rows = [{**row, "confidence": {"score": row["n"]}, "n": 1} for row in passes("n", more=False)]
    summary, recording = recorded(tmp_path, rows)
    assert not summary.judged_by
    assert "confidence_score" in recording.names("signal")


def test_the_time_of_a_judge_is_not_offered_as_a_score(tmp_path: Path) -> None:
    summary, _ = recorded(tmp_path, passes("judge_latency_s", more=False))
    assert not any("--metric-column" in note for note in summary.notes)
    summary, _ = recorded(tmp_path, passes("judge_rating", more=False))
    assert any("--metric-column judge_rating=judge_rating" in note for note in summary.notes)


def test_names_of_judgements_say_that_they_approve() -> None:
    assert [is_judgement(name) for name in ("reviewer_ok", "approved", "ok_latency_ms", "reviewer")] == [1, 1, 0, 0]
    assert not is_score_name("predicted_pass")


def wide(gold: str, *passes: str) -> list[dict[str, Any]]:
    """Return a row for each of 30 questions, with a right class and columns of answers that agree with it ever more often."""
    rows = []
    for q in range(30):
        right = CLASSES[q % 3]
        answers = [right if q % 5 <= 2 * r else CLASSES[(q + 1) % 3] for r in range(len(passes))]
        rows.append(
            {
                "patent": f"EP{q}",
                "title": f"Device {q} for pumps",
                gold: right,
                **dict(zip(passes, answers, strict=True)),
            }
        )
    return rows


@pytest.mark.parametrize("gold", ["ipc_gold", "true_ipc", "human_label"])
def test_a_gold_column_is_no_round_of_the_printed_command(tmp_path: Path, gold: str) -> None:
    source = written(tmp_path / "log.csv", wide(gold, "pass1_ipc", "pass2_ipc"))
    with pytest.raises(UnsettledError) as asked:
        imported(source)
    (option,) = asked.value.choices
    assert option == f"--column rounds=pass1_ipc,pass2_ipc --column golds={gold}"
    recording = read_recording(imported(source, **asked.value.choices[option][0]).path)
    assert recording.column("round").max() == 2
    assert recording.objects("golds")[:2, 0].tolist() == [["A61K"], ["G06F"]]


def test_solutions_that_follow_one_another_are_no_golds() -> None:
    assert golds_among(["draft_solution", "checked", "final"]) == []
    assert golds_among(["gold_draft", "final"]) == []
    assert golds_among(["truth", "draft", "final"]) == ["truth"]


def german(q: int, wrong: int = 0) -> str:
    return f"{q % 27 + 1 + wrong:02}.{q % 12 + 1:02}.19{30 + q}"


def iso(q: int) -> str:
    return f"19{30 + q}-{q % 12 + 1:02}-{q % 27 + 1:02}"


def dated(name: str, golds: Callable[[int], str], said: Callable[[int], str] = german) -> list[dict[str, Any]]:
    """Return two rounds of 40 questions about dates, of which some are never right, a verdict in words, and a column of dates."""
    rows = []
    for q in range(40):
        for r in (1, 2):
            ok = r > q % 2 and q % 5 > 0
            row = {"id": q, "question": f"When was {q} born?", "round": r, "answer": said(q) if ok else german(q, 1)}
            rows.append({**row, name: golds(q), "human_verdict": "right" if ok else "wrong"})
    return rows


@pytest.mark.parametrize("name", ["expected_date", "register_entry"])
def test_dates_in_another_form_are_asked_about_as_gold_answers(tmp_path: Path, name: str) -> None:
    source = written(tmp_path / "log.csv", dated(name, iso))
    with pytest.raises(UnsettledError) as asked:
        imported(source)
    option, other = asked.value.choices
    assert (option, other) == (f"--column golds={name}", "--expected unread-golds")
    recording = read_recording(imported(source, **asked.value.choices[option][0]).path)
    assert recording.column("match").mean(axis=0).tolist() == [0.4, 0.8]


def test_answers_in_words_equal_dates_of_a_day_first(tmp_path: Path) -> None:
    rows = dated("ruling", german, lambda q: date.fromisoformat(iso(q)).strftime("%d %B %Y"))
    with pytest.raises(UnsettledError, match="'ruling' equals"):
        imported(written(tmp_path, rows))


def test_other_dates_beside_dates_are_no_gold_answers(tmp_path: Path) -> None:
    summary, _ = recorded(tmp_path, dated("opened", lambda q: f"2026-{q % 12 + 1:02}-{q % 27 + 1:02}"))
    assert not summary.judged_by


def test_no_column_of_words_is_compared_with_dates(tmp_path: Path) -> None:
    summary, _ = recorded(tmp_path, dated("register", lambda q: f"volume {q}"))
    assert not summary.judged_by


def priced(costs: dict[str, float]) -> list[dict[str, Any]]:
    """Return three attempts of 20 questions, each by another model, with what each cost."""
    return [
        {
            "id": q,
            "round": r,
            "answer": CLASSES[min(r, q % 3)],
            "gold": CLASSES[q % 3],
            "model": model,
            "cost_usd": cost,
        }
        for q in range(20)
        for r, (model, cost) in enumerate(costs.items(), start=1)
    ]


def test_an_import_says_that_calls_of_models_are_not_equal(tmp_path: Path) -> None:
    dear, _ = recorded(tmp_path, priced({"mini": 0.001, "medium": 0.004, "large": 0.02}))
    (note,) = [note for note in dear.notes if "'cost_usd' is not counted" in note]
    assert "one call of 'large' costs 20 times one of 'mini'" in note
    equal, _ = recorded(tmp_path, priced({"north": 0.001, "south": 0.0011}))
    assert not any("one call of" in note for note in equal.notes)
