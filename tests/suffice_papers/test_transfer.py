"""The transfer check: contexts of three types without a language model, and what they do to two models' confidence."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice import Passage, load_questions
from suffice.errors import DataError
from suffice.loops.retrieval import BUNDLED_QUESTIONS, Question
from suffice.policy.metrics import normalize_answer
from suffice_papers.cbdr.contexts import TYPES, ContextSet, build_contexts, sentences
from suffice_papers.cbdr.transfer import read_contexts, transfer_check


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def question(number, *paragraphs, answers=("Oslo",), supporting=(0,)):
    passages = tuple(
        Passage(passage_id=f"q{number}#{i}", title=title, text=text) for i, (title, text) in enumerate(paragraphs)
    )
    marked = frozenset(passages[i].passage_id for i in supporting if i < len(passages))
    return Question(
        question_id=f"q{number}",
        question=f"Where is tower {number}?",
        answers=answers,
        passages=passages,
        supporting=marked,
    )


TOWER = ("Tower", "The tower is tall. It stands in Oslo. Many come. It is red.")
OTHER = question(2, ("Bridge", "The bridge is long. It crosses the Nile."), answers=("Nile",))


def three(*questions, **options):
    sets, left_out = build_contexts(questions, rng=np.random.default_rng(0), **options)
    return [[(c.title, c.text) for c in item.contexts] for item in sets], left_out


def test_the_three_contexts_are_the_topic_the_gold_and_something_else():
    found, left_out = three(question(1, TOWER), OTHER, characters=36)
    assert found[0] == [
        ("Tower", "The tower is tall. Many come."),
        ("Tower", "It stands in Oslo. Many come."),
        ("Bridge", "The bridge is long."),
    ]
    assert left_out == {}


@pytest.mark.parametrize("name", BUNDLED_QUESTIONS)
def test_on_real_questions_only_b_holds_the_answer_and_lengths_are_kept(name, rng):
    questions = {item.question_id: item for item in load_questions(name)}
    sets, left_out = build_contexts(list(questions.values()), rng=rng)
    assert len(sets) + sum(left_out.values()) == len(questions)
    assert len(sets) > 0.8 * len(questions)
    for item in sets:
        keys = [key for key in map(normalize_answer, questions[item.question_id].answers) if key]
        held = [
            any(f" {key} " in f" {normalize_answer(f'{context.title} | {context.text}')} " for key in keys)
            for context in item.contexts
        ]
        assert held == [False, True, False], item
        for context in item.contexts:
            assert len(context.text) <= 200 or len(sentences(context.text)) == 1
    assert len({item.contexts[2].title for item in sets}) > 0.4 * len(sets), "irrelevant passages are drawn, not one"


def test_a_title_that_gives_the_answer_away_is_left_out():
    found, _ = three(question(1, ("Oslo", TOWER[1])), OTHER)
    assert [title for title, _ in found[0]] == ["", "", "Bridge"]


def test_if_the_gold_passage_is_the_answer_another_gives_the_topic():
    found, _ = three(
        question(
            1,
            ("Tower", "It stands in Oslo."),
            ("River", "Rivers are wet."),
            ("Steeple", "A steeple is no tower. Some are in Oslo."),
        ),
        OTHER,
    )
    assert found[0][0] == ("Steeple", "A steeple is no tower.")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (question(1, TOWER, answers=()), "no answer"),
        (question(1, TOWER, answers=("The",)), "no answer"),
        (question(1, TOWER, supporting=()), "no supporting passage"),
        (question(1), "no supporting passage"),
        (question(1, TOWER, answers=("yes",)), "no supporting passage with the answer in it"),
        (question(1, TOWER, answers=("Os",)), "no supporting passage with the answer in it"),
        (question(1, ("Tower", "In Oslo."), ("River", "Wet.")), "no sentence without the answer"),
        (question(1, ("Bridge", "It is in Oslo. It is old.")), "no other question's passage"),
    ],
)
def test_a_question_that_allows_no_set_is_counted_by_reason(asked, reason):
    third = question(3, ("Bridge", "The bridge of the Nile is in Cairo. It is long."), answers=("Cairo",))
    found, left_out = three(
        asked, third, question(4, ("Hut", "It is in Rome, not in Oslo. It is old."), answers=("Rome",))
    )
    assert left_out == {reason: 1}
    assert len(found) == 2


def test_without_any_set_the_message_says_why_and_what_to_give(rng):
    with pytest.raises(DataError, match="is_supporting"):
        build_contexts([question(1, TOWER, answers=())], rng=rng)
    with pytest.raises(DataError, match="characters is 0"):
        build_contexts([question(1, TOWER), OTHER], rng=rng, characters=0)


def test_the_first_sets_are_enough_where_few_are_wanted():
    found, _ = three(question(1, TOWER), OTHER, question(3, TOWER), most=2)
    assert len(found) == 2


@given(st.text(alphabet="ab .!?\n", max_size=40))
def test_sentences_lose_no_word(text):
    assert " ".join(sentences(text)).split() == text.split()


# The check


class Fixed:
    """Confidence without context, and what each type changes, with noise that is a function of the question."""

    def __init__(self, before, changes, noise=0.05, undefined=()):
        self.before, self.changes, self.noise, self.undefined = before, changes, noise, undefined
        self.read = 0

    def fingerprint(self):
        return {}

    def of(self, questions, passages=None):
        self.read += len(questions)
        found = []
        for i, text in enumerate(questions):
            noise = np.random.default_rng(int(text)).normal(0, self.noise)
            change = 0.0 if passages is None else self.changes[passages[i][0].title] + noise
            found.append(math.nan if text in self.undefined and passages is not None else self.before + change)
        return np.array(found)


def sets(n=40):
    contexts = tuple(Passage(passage_id=kind, title=kind, text=kind) for kind in TYPES)
    return [ContextSet(question_id=str(i), question=str(i), contexts=contexts) for i in range(n)]


def checked(items, models, rng):
    return transfer_check({name: read_contexts(items, model) for name, model in models.items()}, rng=rng)


def test_two_models_with_other_preferences_are_told_apart(rng):
    llama = Fixed(0.5, {"A": 0.1, "B": 0.2, "C": -0.2})
    qwen = Fixed(0.5, {"A": 0.1, "B": -0.1, "C": -0.2})
    report = checked(sets(), {"llama": llama, "qwen": qwen}, rng)
    verdicts = {(c.model, c.type): c.verdict for c in report.changes}
    assert verdicts == {
        ("llama", "A"): "prefers",
        ("llama", "B"): "prefers",
        ("llama", "C"): "rejects",
        ("qwen", "A"): "prefers",
        ("qwen", "B"): "rejects",
        ("qwen", "C"): "rejects",
    }
    assert report.disagreements == ["B"]
    assert "differ about B" in " ".join(report.tables()[0].notes)
    contrasts = {c.what: c for c in report.contrasts}
    assert contrasts["llama: A - B"].paired.delta == pytest.approx(-0.1)
    assert contrasts["B: llama - qwen"].paired.delta == pytest.approx(0.3)
    assert contrasts["B: llama - qwen"].paired.p_holm < 0.01
    assert contrasts["A: llama - qwen"].paired.p_holm > 0.9
    assert len(contrasts) == 9
    assert llama.read == 40 * 4, "one reading without context serves all three types"


def test_the_mean_change_is_that_of_a_plain_loop(rng):
    model = Fixed(0.5, {"A": 0.01, "B": 0.02, "C": 0.0}, noise=0.2)
    report = checked(sets(30), {"m": model}, rng)
    for change in report.changes:
        differences = []
        for item in sets(30):
            context = item.contexts[TYPES.index(change.type)]
            differences.append(model.of([item.question], [[context]])[0] - model.of([item.question])[0])
        assert change.paired.delta == pytest.approx(np.mean(differences))
        assert change.raised == np.mean([d > 0 for d in differences])


def test_no_effect_is_no_verdict_and_one_model_has_no_disagreement(rng):
    report = checked(sets(), {"m": Fixed(0.5, dict.fromkeys(TYPES, 0.0), noise=0.0)}, rng)
    assert {c.verdict for c in report.changes} == {"neither"}
    assert report.disagreements == []
    assert all(c.paired.p_holm == 1.0 for c in report.contrasts)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (data["n"], data["disagreements"], data["changes"][0]["verdict"]) == (40, [], "neither")
    assert data["contrasts"][0]["paired"]["p_holm"] == 1.0


def test_questions_with_an_undefined_confidence_are_left_out_everywhere_and_counted(rng):
    one = Fixed(0.5, dict.fromkeys(TYPES, 0.1), undefined=("3", "4"))
    two = Fixed(0.5, dict.fromkeys(TYPES, 0.1))
    report = checked(sets(10), {"one": one, "two": two}, rng)
    assert (report.n, report.undefined) == (8, 2)
    assert {c.paired.n for c in report.changes} == {8}
    with pytest.raises(DataError, match="defined"):
        checked(sets(2), {"m": Fixed(0.5, dict.fromkeys(TYPES, 0.1), undefined=("0", "1"))}, rng)
    with pytest.raises(DataError, match="sets is empty"):
        read_contexts([], two)
    with pytest.raises(DataError, match="0 models"):
        transfer_check({}, rng=rng)
    with pytest.raises(DataError, match="2 models"):
        transfer_check({"one": np.zeros((4, 2)), "two": np.zeros((4, 3))}, rng=rng)
