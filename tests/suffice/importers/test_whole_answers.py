"""Answers that are right as a whole or not at all: labels, codes, and where the log itself counts so."""

from __future__ import annotations

import pytest

from suffice.evaluation.replay.outcomes import choice_note, default_metrics
from suffice.recordings import read_recording
from tests.support.logs import imported, written

INTENTS = ("cancel order", "change order", "track order")
PLACES = ("Lake Placid", "Lake Bled", "Green Lake", "Sea of Azov", "Black Sea")


def rows_of(gold_of, wrong_of, n=60, **more):
    """Return rows of two rounds, of which the first is wrong for every second question."""
    return [
        {"id": q, "round": r, "answer": wrong_of(q) if q % 2 and r == 1 else gold_of(q), "gold": gold_of(q), **more}
        for q in range(n)
        for r in (1, 2)
    ]


def labels(n=60):
    return rows_of(lambda q: INTENTS[q % 3], lambda q: INTENTS[(q + 1) % 3], n)


def codes(n=60):
    return rows_of(lambda q: f"P/N 65-{1000 + 37 * q}", lambda q: f"P/N 65-{5000 + 41 * q}", n)


def cases(n=60):
    return rows_of(lambda q: f"{_word(q)} v. {_word(q + 500)}", lambda q: f"{_word(q + 100)} v. {_word(q + 300)}", n)


def articles(n=60):
    return rows_of(
        lambda q: f"{('Art.', 'Article')[q % 2]} {q}({q % 4})(f) GDPR", lambda q: f"Art. {q + 1}({q % 4}) GDPR", n
    )


def citations(n=60):
    """Return names of cases with their places, of which only the latter differ."""
    name = lambda q: f"{_word(q)} v. {_word(q + 500)}"  # noqa: E731
    return rows_of(lambda q: f"{name(q)}, {300 + q} U.S. {q} (1999)", lambda q: f"{name(q)}, {400 + q} U.S. {q + 7}", n)


def parties(n=60):
    """Return names of cases that have one party in common."""
    return rows_of(lambda q: f"{_word(q)} v. {_word(q + 500)}", lambda q: f"{_word(q)} vs. {_word(q + 300)}", n)


def directives(n=60):
    """Return titles with numbers, of which one differs."""
    title = "Directive {} of the Council on {}, Article {}"
    return rows_of(lambda q: title.format(q, _word(q), q % 9), lambda q: title.format(q, _word(q), q % 9 + 1), n)


def names(n=60):
    """Return answers of several words, all of them different."""
    return rows_of(lambda q: f"{PLACES[q % 5]} {_word(q)}", lambda q: f"{PLACES[q % 5]} {_word(q + 1)}", n)


def _word(q):
    return "".join(chr(97 + int(digit)) for digit in str(1000 + q))


def read(tmp_path, rows, **options):
    summary = imported(written(tmp_path / "log.jsonl", rows), **options)
    return read_recording(summary.path), summary


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (labels, "3 labels"),
        (codes, "'pn'"),
        (cases, "'v'"),
        (articles, "'gdpr'"),
        (citations, "names of cases"),
        (parties, "names of cases"),
        (directives, "other values"),
    ],
)
def test_labels_codes_and_names_of_cases_are_judged_by_exact_match(tmp_path, make, why):
    recording, summary = read(tmp_path, make())
    assert default_metrics(recording) == ("em",)
    assert why in choice_note(recording)
    assert any(why in note and "--metric f1" in note for note in summary.notes)
    assert summary.preview.judge == "em"
    assert recording.column("f1")[:, 0].mean() - recording.column("em")[:, 0].mean() > 0


def test_names_of_several_words_are_judged_by_f1(tmp_path):
    recording, summary = read(tmp_path, names())
    assert default_metrics(recording) == ("f1", "em")
    assert summary.preview.judge == "f1"


def test_parts_of_a_citation_are_judged_by_f1(tmp_path):
    rows = [
        {**row, "answer": row["answer"].partition(",")[0] if row["round"] == 1 else row["gold"]} for row in citations()
    ]
    assert default_metrics(read(tmp_path, rows)[0]) == ("f1", "em")


def test_sentences_with_numbers_are_judged_by_f1(tmp_path):
    said = "{} sold {} of {} to {}."
    rows = rows_of(
        lambda q: said.format(_word(q), q, 2 * q, _word(3 * q)), lambda q: said.format(_word(q), q + 1, 3 * q, _word(q))
    )
    assert default_metrics(read(tmp_path, rows, columns={"answer": "answer"})[0]) == ("f1", "em")


def test_labels_beside_other_answers_are_judged_by_f1(tmp_path):
    rows = rows_of(lambda q: INTENTS[q % 3], lambda q: f"order {_word(q)}")
    assert default_metrics(read(tmp_path, rows)[0]) == ("f1", "em")


@pytest.mark.parametrize("options", [{"normalizer": "qa"}, {"columns": {"golds": ""}}])
def test_who_says_how_answers_are_compared_keeps_f1(tmp_path, options):
    assert default_metrics(read(tmp_path, labels(), **options)[0]) == ("f1", "em")


@pytest.mark.parametrize(("half", "expected"), [(0, ("em",)), (1, ("f1", "em"))])
def test_the_own_score_of_a_log_says_whether_halves_count(tmp_path, half, expected):
    rows = [{**row, "correct": 1 if row["answer"] == row["gold"] else half} for row in names()]
    recording, _ = read(tmp_path, rows)
    assert default_metrics(recording) == expected


def test_an_own_f1_below_em_is_not_called_multiple_choice(tmp_path):
    rows = [{**row, "em": int(row["answer"] == row["gold"]), "f1": 0.5} for row in names()]
    recording, _ = read(tmp_path, rows)
    assert default_metrics(recording) == ("em",)
    assert "multiple choice" not in choice_note(recording)
    assert "no overlap of words" in choice_note(recording)
