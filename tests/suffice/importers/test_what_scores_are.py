"""What says how good an answer is: parts of a point, other values, scores of the log's own, words, rulings and fields of objects."""

from __future__ import annotations

import pytest

from suffice.errors import DataError, UnsettledError
from suffice.evaluation.replay.outcomes import choice_notes, default_metrics
from suffice.policy.rules.selectors import Last
from suffice.recordings import read_recording
from suffice.verdicts.decisions.notes import metric_notes
from tests.support.logs import imported, written

LINES = ("line 2", "line 7", "line 11", "line 18")
NOUNS = ("mill", "bridge", "tower", "harbour", "well")
PARTS = ("rotor", "stator", "coil", "valve")
MADE_UP = {"mqm_x": lambda right: 0.2 + 0.6 * right}
SENTENCE = "The council of Ashby backs plan {} for the school."


def rows_of(gold_of, wrong_of, n=44, **more):
    """Return rows of two rounds, of which the first is wrong for every second question; `more` has functions of a row's rightness."""
    return [
        {"id": q, "round": r, "answer": gold_of(q) if right else wrong_of(q), "gold": gold_of(q)}
        | {name: make(right) for name, make in more.items()}
        for q in range(n)
        for r in (1, 2)
        for right in [not (q % 2 and r == 1)]
    ]


def read(tmp_path, rows, **options):
    summary = imported(written(tmp_path / "log.jsonl", rows), **options)
    return read_recording(summary.path), summary


def word(q):
    return "".join(chr(97 + int(digit)) for digit in str(1000 + q))


def several(q):
    return " ".join(word(k * q) for k in (1, 3, 5, 7))


def transit(n=44):
    """Return answers of which every second one is a line, and the others are fares and roads."""
    gold_of = lambda q: LINES[q // 2 % 4] if q % 2 else f"£{q}.50" if q % 4 else f"{word(q)} Road"  # noqa: E731
    return rows_of(gold_of, lambda q: LINES[(q // 2 + 1) % 4], n)


def phrases(n=44):
    return rows_of(lambda q: f"{NOUNS[q % 5]} {word(q)}", lambda q: f"{NOUNS[q % 5]} {word(q + 1)}", n)


def test_another_line_is_not_half_of_the_right_one(tmp_path):
    recording, summary = read(tmp_path, transit())
    assert default_metrics(recording) == ("em",)
    assert any("'line " in note and "other values" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("gold_of", "wrong_of", "expected"),
    [
        (lambda q: f"Henry {['IV', 'V', 'VI'][q % 3]}", lambda q: f"Henry {['V', 'VI', 'IV'][q % 3]}", ("em",)),
        (lambda q: f"stand {'AB'[q % 4 // 2]} of {q}x", lambda q: f"stand {'BA'[q % 4 // 2]} of {q}x", ("em",)),
        (lambda q: f"{word(q)} {q}" if q % 2 else word(q), word, ("f1", "em")),
        (lambda q: f"{several(q)} {q}" if q % 2 else several(q), lambda q: f"{several(q)} {q + 1}", ("f1", "em")),
    ],
)
def test_words_that_tell_values_apart_are_codes_of_both(tmp_path, gold_of, wrong_of, expected):
    rows = [{**row, "gold": row["gold"]} for row in rows_of(gold_of, wrong_of)]
    assert default_metrics(read(tmp_path, rows, columns={"answer": "answer"})[0]) == expected


def test_parts_of_a_point_are_said_with_an_example(tmp_path):
    recording, summary = read(tmp_path, phrases())
    (note,) = [note for note in summary.notes if "part of a point" in note]
    assert "25% of the answers" in note
    assert "0.50 to 'bridge baac' beside 'bridge baab'" in note
    assert "--metric em" in note
    assert note in choice_notes(recording, ["f1"])
    assert note not in choice_notes(recording, ["em"])


def test_the_commonest_kind_is_the_example(tmp_path):
    rows = [
        {**row, "answer": f"room {q} of Oslo", "gold": f"the room {q + 9} of Rome"}
        if (q := row["id"]) % 4 == 1
        else row
        for row in phrases()
    ]
    notes = read(tmp_path, rows)[1].notes
    assert any("part of a point" in note and "'room 1 of Oslo'" in note for note in notes)


def test_few_parts_of_a_point_need_no_word(tmp_path):
    rows = [{**row, "answer": row["gold"] if row["id"] > 1 else row["answer"]} for row in phrases()]
    assert not any("part of a point" in note for note in read(tmp_path, rows, log_golds="keep")[1].notes)


def test_scores_of_the_log_beside_golds_are_named(tmp_path):
    rows = rows_of(lambda q: PARTS[q % 4], lambda q: PARTS[(q + 1) % 4], judge_score=lambda right: 0.2 + 0.6 * right)
    (note,) = [note for note in read(tmp_path, rows)[1].notes if "'judge_score'" in note]
    assert "--metric-column judge_score=judge_score" in note
    assert "suffice decide --metric judge_score" in note
    recording, summary = read(tmp_path, rows, metrics={"judge_score": "judge_score"})
    assert any("'judge_score' is kept" in note for note in summary.notes)
    assert any("--metric judge_score" in note for note in metric_notes(recording, "f1", Last(), stated=False))
    assert metric_notes(recording, "f1", Last(), stated=True) == []


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("rouge_l", "--column golds="),
        ("comet", "--column golds="),
        ("bert_score_f1", "--column golds="),
        ("judge_score", "--metric-column judge_score=judge_score --column golds="),
        ("fluency", "--metric-column fluency=fluency --column golds="),
    ],
)
def test_sentences_beside_an_own_score_are_asked_about(tmp_path, name, option):
    rows = rows_of(SENTENCE.format, lambda q: f"Plan {q} passed.", **{name: lambda right: 0.2 + 0.6 * right})
    with pytest.raises(UnsettledError, match="answers are sentences") as error:
        read(tmp_path, rows)
    assert [*error.value.choices] == [option, "--set normalizer=qa"]
    _, summary = read(tmp_path, rows, **error.value.choices[option][0])
    assert summary.judged_by == (name,)
    if name == "rouge_l":
        _, summary = read(tmp_path, rows, normalizer="qa")
        assert summary.preview.judge == "f1"


@pytest.mark.parametrize(
    ("name", "value_of", "scale"),
    [
        ("bleu", lambda right: 20 + 60 * right, ":0..100"),
        ("chrf", lambda right: 20 + 10 * right, ":0..100"),
        ("ter", lambda right: 130 - 60 * right, ":130..0"),
        ("bleurt", lambda right: 0.5 * right - 0.2, ":-1..1"),
        ("quality", lambda right: 2 + 2 * right, ":1..5"),
        ("adequacy", lambda right: 12.5 + 4 * right, ":0..17"),
    ],
)
def test_own_scores_beside_sentences_are_asked_on_their_scale(tmp_path, name, value_of, scale):
    rows = rows_of(SENTENCE.format, lambda q: f"Plan {q} passed.", **{name: value_of})
    with pytest.raises(UnsettledError, match="answers are sentences") as error:
        read(tmp_path, rows)
    option, _ = error.value.choices
    assert option == f"--metric-column {name}={name}{scale} --column golds="
    recording, summary = read(tmp_path, rows, **error.value.choices[option][0])
    assert summary.judged_by == (name,)
    first, second = recording.column(name).mean(axis=0)
    assert first < second


def test_each_own_score_beside_sentences_is_offered(tmp_path):
    scores = {"comet": lambda right: 0.2 + 0.6 * right, "bleu": lambda right: 20 + 60 * right}
    rows = rows_of(SENTENCE.format, lambda q: f"Plan {q} passed.", **scores)
    with pytest.raises(UnsettledError, match="'comet', 'bleu'") as error:
        read(tmp_path, rows)
    choices = [*error.value.choices]
    assert choices == ["--column golds=", "--metric-column bleu=bleu:0..100 --column golds=", "--set normalizer=qa"]
    _, summary = read(tmp_path, rows, **error.value.choices[choices[1]][0])
    assert summary.judged_by[0] == "bleu"


def test_other_numbers_beside_sentences_are_not_asked_about(tmp_path):
    names = ("latency_s", "retrieval_fit", "verbal_conf", "self_quality")
    others = {"is_final": float, "n_words": lambda right: 4 + 6 * right, "beta": lambda _: 0.5}
    rows = drafts(**dict.fromkeys(names, lambda right: 0.2 + 0.6 * right), **others)
    assert read(tmp_path, rows)[1].preview.judge == "f1"


def drafts(of=several, end="west", **scores):
    """Return rows with gold answers of several words, which no answer equals if its `end` is another one."""
    rows = rows_of(lambda q: f"{of(q)} {of(q + 1)} east", lambda q: f"{of(q)} {of(q + 2)} east", **scores)
    return [{**row, "answer": row["answer"].replace("east", end)} for row in rows]


def test_a_number_of_any_name_may_judge_drafts(tmp_path):
    with pytest.raises(UnsettledError, match="'mqm_x'") as error:
        read(tmp_path, drafts(**MADE_UP))
    option = next(iter(error.value.choices))
    assert option == "--metric-column mqm_x=mqm_x --column golds="
    assert read(tmp_path, drafts(**MADE_UP), **error.value.choices[option][0])[1].judged_by == ("mqm_x",)


@pytest.mark.parametrize("given", [{"end": "east"}, {"of": word}])
def test_short_or_often_met_golds_ask_about_no_unnamed_number(tmp_path, given):
    assert read(tmp_path, drafts(**MADE_UP, **given), expected=["never-right"])[1].preview.judge == "f1"


def test_a_translation_without_spaces_is_a_sentence(tmp_path):
    rows = rows_of(
        "市议会今天决定支持第{}号学校建设计划".format, "议会没有决定{}".format, comet=lambda right: 0.2 + 0.6 * right
    )
    with pytest.raises(UnsettledError, match="answers are sentences"):
        read(tmp_path, rows)


def test_a_decision_names_the_score_that_golds_outvoted(tmp_path):
    rows = rows_of(SENTENCE.format, lambda q: f"Plan {q} passed.", quality_mark=lambda right: 0.2 + 0.6 * right)
    recording, summary = read(tmp_path, rows, normalizer="qa")
    notes = metric_notes(recording, "f1", Last(), stated=False)
    assert any("--metric-column quality_mark=quality_mark" in note for note in notes)
    assert {*notes} <= {*summary.notes}
    assert metric_notes(recording, "f1", Last(), stated=True) == []
    _, summary = read(tmp_path, rows, normalizer="qa", metrics={"quality_mark": "quality_mark"})
    assert any("--metric quality_mark" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("worst", "best"), [("N", "Y"), ("no", "yes"), ("fail", "pass"), ("KO", "OK"), ("✗", "✓"), ("wrong", "right")]
)
def test_words_of_a_metric_column_are_read(tmp_path, worst, best):
    rows = rows_of(word, lambda q: word(q + 1), editor_says=lambda right: best if right else worst)
    rows = [{name: value for name, value in row.items() if name != "gold"} for row in rows]
    recording, _ = read(tmp_path, rows, metrics={"m": "editor_says"})
    assert recording.column("m").mean(axis=0).tolist() == [0.5, 1.0]
    if best == "yes":
        assert any("--metric-column" in note and "editor_says" in note for note in read(tmp_path, rows)[1].notes)


def test_words_of_no_known_order_are_asked_about(tmp_path):
    rows = rows_of(word, lambda q: word(q + 1), mark=lambda right: "FA"[right])
    rows = [{name: value for name, value in row.items() if name != "gold"} for row in rows]
    with pytest.raises(UnsettledError, match="which of them") as error:
        read(tmp_path, rows, metrics={"m": "mark"})
    values, meaning = error.value.choices["--metric-column m=mark:F,A"]
    assert meaning == "'A' is better than 'F'"
    assert read(tmp_path, rows, **values)[0].column("m").mean(axis=0).tolist() == [0.5, 1.0]
    rows[0]["mark"] = "C"
    with pytest.raises(DataError, match="WORST"):
        read(tmp_path, rows, metrics={"m": "mark"})


@pytest.mark.parametrize("name", ["correct_code", "ruling"])
def test_a_ruling_in_other_rows_is_offered_as_gold_answers(tmp_path, name):
    codes = ("040610", "180390", "190111", "220421")
    rows = []
    for q in range(40):
        said = [codes[(q + (q % 4 == 0)) % 4], codes[q % 4] if q % 8 else codes[(q + 2) % 4]]
        rows += [{"id": q, "round": r, "event": "classified", "code": code} for r, code in enumerate(said, start=1)]
        rows.append({"id": q, "event": "ruling", name: codes[q % 4]})
    options = {"columns": {"answer": "code"}, "where": {"event": "classified"}}
    with pytest.raises(UnsettledError, match="gold answer") as error:
        read(tmp_path, rows, **options)
    option = f"--column golds={name}"
    assert option in error.value.choices
    options["columns"]["golds"] = name
    recording, _ = read(tmp_path, rows, **options)
    assert recording.column("match").mean(axis=0).tolist() == [0.75, 0.875]


@pytest.mark.parametrize("own", ["prediction.component", "result.part", "diagnosis.faulty"])
def test_the_field_that_agrees_with_golds_is_the_answer(tmp_path, own):
    above, _, name = own.partition(".")
    rows = [
        {
            "id": q,
            "round": r,
            "expected": PARTS[q % 4],
            above: {name: PARTS[(q + (q % 2 and r == 1)) % 4], "severity": ("low", "high")[(q + r) % 3 // 2]},
        }
        for q in range(40)
        for r in (1, 2)
    ]
    recording, summary = read(tmp_path, rows)
    assert {item.ours: item.theirs for item in summary.readings}["answer"] == own
    assert recording.column("em").mean(axis=0).tolist() == [0.5, 1.0]


def test_answers_of_systems_by_name_stay_a_panel(tmp_path):
    rows = [
        {"id": q, "gold": PARTS[q % 4], "answers": {"small": PARTS[(q + q % 2) % 4], "large": PARTS[q % 4]}}
        for q in range(40)
    ]
    assert read(tmp_path, rows)[1].trajectories == 80


def test_columns_of_lists_keep_their_names(tmp_path):
    rows = [
        {
            "id": q,
            "gold": PARTS[q % 4],
            "answers": [PARTS[q % 3], PARTS[q % 4]],
            "cost_cents": [1.5, 2.25],
            "latency_ms": [500, 700],
        }
        for q in range(30)
    ]
    notes = read(tmp_path, rows)[1].notes
    assert any("'cost_cents'" in note and "spend=cost_cents:cents" in note for note in notes)
    recording, _ = read(tmp_path, rows, columns={"spend": "cost_cents:cents"})
    assert recording.column("spend")[0].tolist() == pytest.approx([0.015, 0.0375])


def test_few_other_numbers_that_count_as_the_same_are_said(tmp_path):
    rows = rows_of(
        lambda q: f"{PARTS[q % 4]} 1.5 l/ha" if q < 2 else PARTS[q % 4],
        lambda q: f"{PARTS[q % 4]} 15 l/ha" if q < 2 else PARTS[(q + 1) % 4],
        n=120,
    )
    notes = read(tmp_path, rows)[1].notes
    assert any("'stator 15 l/ha'" in note and "--set normalizer=mixed" in note for note in notes)
