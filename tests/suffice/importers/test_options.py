"""Gold answers of multiple choice in another form than the answers, histories of calls, and names in other languages."""

from __future__ import annotations

import pytest

from suffice.errors import DataError
from suffice.importers.files.records import Record
from suffice.importers.guesses.options import golds_as_answers
from suffice.importers.shapes.calls import history_fields
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.names import plain_name
from tests.support.cli_tools import CITIES
from tests.support.logs import asked, by_round, imported, offered, written

LETTERS = "ABCD"


def chosen(gold, said, options=lambda texts: {"choices": texts}, n=40):
    """Return rows of two rounds: the first answer is right where the question's number is even, the second always."""
    rows = []
    for q in range(n):
        texts = [*CITIES[q % 4 :], *CITIES[: q % 4]]
        right = q * 7 % 4
        for r in (1, 2):
            own = right if r == 2 or q % 2 == 0 else (right + 1) % 4
            row = {"id": q, "round": r, **options(texts), "gold": gold(right, texts), "pred": said(own, texts)}
            rows.append(row)
    return rows


def number(place, _texts):
    return place


def letter(place, _texts):
    return LETTERS[place]


def text(place, texts):
    return texts[place]


@pytest.mark.parametrize(("gold", "said"), [(number, letter), (number, text), (letter, text), (text, letter)])
def test_golds_are_read_in_the_form_of_answers(tmp_path, gold, said):
    path = written(tmp_path, chosen(gold, said))
    summary = imported(path)
    assert by_round(path) == [0.5, 1.0]
    assert any("of options" in note for note in summary.notes)


def test_numbers_of_options_may_count_from_one(tmp_path):
    assert by_round(written(tmp_path, chosen(lambda place, _: place + 1, letter))) == [0.5, 1.0]
    few = [{**row, "gold": row["gold"]} for row in chosen(lambda place, _: place + 1, letter) if row["gold"] in (2, 3)]
    assert "--column golds=" in offered(written(tmp_path, few))


@pytest.mark.parametrize(
    "options",
    [
        lambda texts: dict(zip(LETTERS, texts, strict=True)),
        lambda texts: {"options": str(texts)},
        lambda texts: {f"option_{name}": own for name, own in zip("abcd", texts, strict=True)},
    ],
)
def test_options_may_be_columns_or_a_text(tmp_path, options):
    assert by_round(written(tmp_path / "log.csv", chosen(number, text, options))) == [0.5, 1.0]


def test_answers_with_the_form_of_golds_stay(tmp_path):
    for form in (number, letter, text):
        summary = imported(written(tmp_path, chosen(form, form)))
        assert not any("of options" in note for note in summary.notes)


def test_golds_beyond_the_options_are_doubted(tmp_path):
    rows = chosen(number, letter)
    rows[-2:] = [{**row, "gold": 9} for row in rows[-2:]]
    assert "--column golds=" in offered(written(tmp_path, rows))


def test_a_later_number_without_an_option_is_an_error():
    records = [Record(f"row {n}", "", n, row) for n, row in enumerate(chosen(number, letter), start=1)]
    shape = Shape(rows=records, columns={}, read=lambda further: ([*further], 0))
    changed, name, form, wanted = golds_as_answers(shape, "gold", "pred")
    assert (name, form, wanted) == ("gold (as letters)", "numbers from 0", "letters")
    with pytest.raises(DataError, match="row 81"):
        changed.read([Record("row 81", "", 81, {**records[0].values, "gold": 4})])
    assert changed.read([Record("row 82", "", 82, {**records[0].values, "gold": None})])[0][0].values[name] is None


@pytest.mark.parametrize("true", [1, 0])
def test_truths_of_0_and_1_agree_with_most_answers(tmp_path, true):
    rows = []
    for q in range(12):
        for r in (1, 2, 3):
            said = bool(q % 3) != ((q + r) % 5 == 0)
            rows.append({"id": q, "round": r, "answer": str(said).lower(), "label": true if q % 3 else 1 - true})
    source = written(tmp_path, rows)
    if true:
        assert by_round(source)[-1] == pytest.approx(10 / 12)
        return
    error = asked(source)
    assert [*error.choices] == ["--column golds=label", "--column golds="]
    assert "6 of 36 are right" in error.question
    assert by_round(source, columns={"golds": "label"})[-1] == pytest.approx(2 / 12)


def test_letters_without_options_are_doubted(tmp_path):
    rows = [{name: own for name, own in row.items() if name != "choices"} for row in chosen(letter, text)]
    assert "--column golds=" in offered(written(tmp_path, rows))


def test_a_list_of_choices_is_no_list_of_rounds(tmp_path):
    records = [
        {"id": q, "choices": [*CITIES], "gold": q % 4, "attempts": [LETTERS[(q + 1) % 4], LETTERS[q % 4], "A", "B"]}
        for q in range(40)
    ]
    assert by_round(written(tmp_path, records))[1] == 1.0


def call(q, r, outputs):
    said = f"[[ ## question ## ]]\nWhere is {q}?\n\nRespond with the corresponding output fields."
    shown = [{"role": "user", "content": "An example"}, {"role": "assistant", "content": "Lima"}]
    return {
        "messages": [*shown, {"role": "user", "content": said}],
        "kwargs": {},
        "outputs": outputs,
        "timestamp": f"2025-01-01T10:{q:02d}:0{r}",
        "uuid": f"{q}-{r}",
    }


@pytest.mark.parametrize("form", [lambda said: [said], lambda said: [{"text": said, "logprobs": None}]])
def test_calls_of_a_history_are_rounds(tmp_path, form):
    calls = [call(q, r, form(CITIES[(q + r) % 4])) for q in range(30) for r in (2, 0, 1)]
    summary = imported(written(tmp_path, calls))
    assert (summary.clusters, summary.rounds) == (30, 3)
    assert [item.answer for item in summary.preview.rounds] == [*CITIES[:3]]


def test_other_calls_stay_as_they_are():
    for values in ({"outputs": ["a"], "kwargs": {}, "messages": [], "x": 1}, call(1, 1, ["a", "b"]), {"outputs": "a"}):
        assert history_fields(values).get("output", "a") == "a"
    assert history_fields(call(1, 1, ["a", "b"])) == call(1, 1, ["a", "b"])


@pytest.mark.parametrize(
    "names",
    [
        ("Frage-ID", "Frage", "Runde", "Antwort", "Referenz"),
        ("id", "question", "tour", "re\u0301ponse", "référence"),
        ("id", "pregunta", "ronda", "respuesta", "respuesta correcta"),
        ("编号", "问题", "轮次", "答案", "标准答案"),
    ],
)
def test_usual_names_of_other_languages_are_read(tmp_path, names):
    rows = [
        dict(zip(names, (q, f"Where is {q}?", r, CITIES[(q + 2 - r) % 4], CITIES[q % 4]), strict=True))
        for q in range(30)
        for r in (1, 2)
    ]
    assert by_round(written(tmp_path, rows)) == [0.0, 1.0]
    assert plain_name("Kapitel") == "kapitel"


@pytest.mark.parametrize("names", [("Modell", "Durchgang"), ("modèle", "tour"), ("模型", "轮次"), ("modelo", "ronda")])
def test_models_under_foreign_names_are_judged_one_by_one(tmp_path, names):
    rows = [
        {"id": q, names[1]: r, names[0]: model, "answer": CITIES[(q + r) % 4], "gold": CITIES[q % 4]}
        for model in ("a", "b")
        for q in range(30)
        for r in (1, 2)
    ]
    summary = imported(written(tmp_path, rows))
    assert (summary.clusters, summary.trajectories, summary.rounds) == (30, 60, 2)
    assert summary.loops == (f"{names[0]}=a", f"{names[0]}=b")


@pytest.mark.parametrize(("gold", "said"), [(number, letter), (letter, lambda place, texts: texts[place])])
def test_the_number_of_the_right_option_has_a_column_of_its_own(tmp_path, gold, said):
    rows = [{("correct_idx" if n == "gold" else n): v for n, v in row.items()} for row in chosen(gold, said)]
    assert by_round(written(tmp_path, rows)) == [0.5, 1.0]


def test_a_number_without_options_is_no_gold_answer(tmp_path):
    rows = [
        {("correct_idx" if n == "gold" else n): v for n, v in row.items()}
        for row in chosen(number, letter, lambda _: {})
    ]
    assert not any(item.ours == "golds" for item in imported(written(tmp_path, rows)).readings)
