"""Preference data: what counts as preferred, what is left out and counted, files that trainers read, and going on."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice import Passage
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question
from suffice.policy.rounds import Reply
from suffice.recordings.shards import Shard
from suffice_gates.probes.confidence import Confidence
from suffice_gates.training.preference_file import card_path, read_preferences
from suffice_gates.training.preferences import CandidateScores, build_preferences, candidates_of, score_preferences
from suffice_gates.training.shift import measure_shift
from suffice_retrieval.indexes import CorpusBM25


def pool(question_id, texts):
    return tuple(Passage(passage_id=f"{question_id}#{i}", title=f"t{i}", text=text) for i, text in enumerate(texts))


def question(number, *texts, answers=("yes",)):
    return Question(
        question_id=f"q{number}", question=f"question {number}?", answers=answers, passages=pool(f"q{number}", texts)
    )


class Stated:
    """Confidence that stands in the text of a passage ("+0.2"), 0.5 without one; keeps every prompt that it read."""

    def __init__(self, base=0.5, fails_at=None):
        self.read = []
        self.base, self.fails_at = base, fails_at

    def fingerprint(self):
        return {"model": "stated", "base": str(self.base)}

    def of(self, questions, passages=None):
        given = passages or [()] * len(questions)
        for text, found in zip(questions, given, strict=True):
            if self.fails_at is not None and len(self.read) >= self.fails_at:
                raise ModelError("out of luck")
            self.read.append((text, tuple(passage.passage_id for passage in found)))
        return np.array([self.base + (float(found[0].text) if found else 0.0) for found in given])


def built(path, questions, confidence=None, **options):
    options = {"retriever": InMemoryRetriever(), **options}
    return build_preferences(questions, confidence or Stated(), path, **options)


def card(path):
    return json.loads(card_path(path).read_text())


def test_raised_confidence_is_positive_lowered_negative_and_the_rest_neither(tmp_path):
    path = tmp_path / "p.jsonl"
    summary = built(path, [question(1, "0.1", "0.3", "0.0", "-0.1", "-0.4")])
    [line] = path.read_text().splitlines()
    assert json.loads(line) == {
        "query": "question 1?",
        "pos": ["t1\n0.3", "t0\n0.1"],
        "neg": ["t4\n-0.4", "t3\n-0.1"],
        "prompt": card(path)["config"]["prompt"],
    }
    [record] = card(path)["records"]
    assert record["question_id"] == "q1"
    assert record["confidence"] == 0.5
    assert record["pos"] == pytest.approx([0.3, 0.1])
    assert record["neg"] == pytest.approx([-0.4, -0.1])
    assert (summary.kept, summary.positives, summary.negatives) == (1, 2, 2)


@given(st.lists(st.sampled_from([-0.3, -0.1, 0.0, 0.2, 0.4, math.nan]), max_size=12), st.integers(1, 6))
def test_no_passage_is_both_and_chosen_ones_lie_furthest_out(increases, k):
    texts = tuple(map(str, range(len(increases))))
    scores = CandidateScores(question_id="q", query="?", confidence=0.5, texts=texts, increases=tuple(increases))
    up, down = scores.select(k)
    assert not set(up) & set(down)
    ordered = sorted(inc for inc in increases if inc > 0)[::-1][:k]
    assert [increases[i] for i in up] == ordered
    assert [increases[i] for i in down] == sorted(inc for inc in increases if inc < 0)[:k]


def test_each_question_is_read_once_alone_and_once_with_each_candidate(tmp_path):
    confidence = Stated()
    questions = [question(i, *(str(j / 10) for j in range(-3, 3))) for i in range(40)]
    summary = built(tmp_path / "p.jsonl", questions, confidence)
    alone = [text for text, passages in confidence.read if not passages]
    assert sorted(alone) == sorted(item.question for item in questions)
    assert len(confidence.read) == 40 + 40 * 6
    assert summary.passes == {"qa": 40, "rag": 240}


def test_dropped_questions_and_candidates_are_counted_by_reason(tmp_path):
    path = tmp_path / "p.jsonl"
    summary = built(
        path,
        [
            question(1, "0.1", "-0.1", "0.1", "nan"),
            question(2, "0.1", "0.2"),
            question(3, "-0.1"),
            question(4, "0.0", "nan"),
            question(5),
            question(6, "0.2", "-0.2"),
        ],
    )
    assert summary.dropped == {
        "neither positives nor negatives": 1,
        "no candidates": 1,
        "no negatives": 1,
        "no positives": 1,
    }
    assert summary.left_out == {"undefined increase": 2}
    assert (summary.questions, summary.kept) == (6, 2)
    assert [item.query for item in read_preferences(path)] == ["question 1?", "question 6?"]
    assert [record["question_id"] for record in card(path)["records"]] == ["q1", "q6"]


def test_a_question_without_a_defined_confidence_is_dropped_and_counted(tmp_path):
    class Undefined(Stated):
        def of(self, questions, passages=None):
            found = super().of(questions, passages)
            found[[text == "question 1?" and passages is None for text in questions]] = math.nan
            return found

    both = [question(1, "0.1", "-0.1"), question(2, "0.1", "-0.1")]
    summary = built(tmp_path / "p.jsonl", both, Undefined())
    assert summary.dropped == {"undefined confidence": 1}
    assert summary.kept == 1
    text = card_path(tmp_path / "p.jsonl").read_text()
    assert "NaN" not in text


def test_repeated_or_empty_candidates_are_replaced_by_the_next():
    texts = ["one  Thing", "one thing", " ", "two", "three"]
    passages = tuple(Passage(passage_id=str(i), title="t", text=text) for i, text in enumerate(texts))
    asked = Question(question_id="q", question="?", passages=passages)
    found, repeated, empty = candidates_of(asked, InMemoryRetriever(), 3)
    assert [passage.passage_id for passage in found] == ["0", "3", "4"]
    assert (repeated, empty) == (1, 1)


def test_candidates_come_from_a_corpus_too(tmp_path):
    corpus = CorpusBM25([Passage(passage_id=str(i), title=f"t{i}", text=f"{(i - 2) / 10}") for i in range(5)])
    questions = [Question(question_id="q", question="which number? t0 t1 t2 t3 t4")]
    summary = built(tmp_path / "p.jsonl", questions, retriever=corpus, candidates=5)
    assert (summary.candidates, summary.positives, summary.negatives) == (5, 2, 2)


# Going on


def test_after_a_failure_the_same_call_continues_to_the_same_result(tmp_path):
    questions = [question(i, "0.1", "-0.1", str(i / 100)) for i in range(50)]
    with pytest.raises(ModelError):
        built(tmp_path / "p.jsonl", questions, Stated(fails_at=100))
    assert not (tmp_path / "p.jsonl").exists()
    again = Stated()
    built(tmp_path / "p.jsonl", questions, again)
    assert len(again.read) < 50 * 4, "what was read is not read again"
    assert {text for text, _ in again.read} < {item.question for item in questions}
    built(tmp_path / "whole.jsonl", questions)
    assert (tmp_path / "p.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert card(tmp_path / "p.jsonl")["records"] == card(tmp_path / "whole.jsonl")["records"]
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith("p.")) == [
        "p.jsonl",
        "p.jsonl.card.json",
    ]


@pytest.mark.parametrize("n", [1, 3, 7])
def test_shards_score_what_one_process_scores(tmp_path, n):
    asked = [question(i, "0.2", f"-0.{i + 1}", "0.1", answers=()) for i in range(6)]
    built(tmp_path / "one.jsonl", asked)
    confidence, many = Stated(), tmp_path / "many.jsonl"
    settings = {"retriever": InMemoryRetriever()}
    for index in range(n, 0, -1):
        with pytest.raises(ModelError) if index == 2 else nullcontext():
            score_preferences(
                asked, Stated(fails_at=0) if index == 2 else confidence, many, Shard(index, n), **settings
            )
    # What a shard could not score, the call without one scores.
    built(many, asked, confidence)
    assert len(confidence.read) == len(set(confidence.read)) == 6 * 4
    assert many.read_text() == (tmp_path / "one.jsonl").read_text()
    assert card(many)["records"] == card(tmp_path / "one.jsonl")["records"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("many")) == [
        "many.jsonl",
        "many.jsonl.card.json",
    ]
    assert score_preferences(asked, confidence, many, Shard(1, n), **settings) == 0
    with pytest.raises(ConfigMismatchError):
        score_preferences(asked, confidence, many, Shard(1, n), k=2, **settings)


def test_a_kill_between_card_and_file_costs_nothing(tmp_path, monkeypatch):
    questions = [question(i, "0.1", "-0.1") for i in range(3)]
    from suffice_gates.training import preferences

    with monkeypatch.context() as patched:
        patched.setattr(preferences.Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            built(tmp_path / "p.jsonl", questions)
    again = Stated()
    assert built(tmp_path / "p.jsonl", questions, again).kept == 3
    assert again.read == []


def test_a_finished_file_is_not_made_again(tmp_path):
    first = built(tmp_path / "p.jsonl", [question(1, "0.1", "-0.1")])
    again = Stated()
    second = built(tmp_path / "p.jsonl", [question(1, "0.1", "-0.1")], again)
    assert again.read == []
    assert second.passes == {"qa": 0, "rag": 0}
    assert (second.kept, second.positives, second.dropped) == (first.kept, first.positives, first.dropped)


def test_another_configuration_does_not_mix_with_what_is_there(tmp_path):
    path, questions = tmp_path / "p.jsonl", [question(1, "0.1", "-0.1")]
    built(path, questions)
    for options in ({"k": 2}, {"confidence": Stated(base=0.4)}, {"retriever": PoolBM25()}):
        with pytest.raises(ConfigMismatchError, match="another configuration"):
            built(path, questions, **options)
    with pytest.raises(ConfigMismatchError, match="another configuration"):
        built(path, [question(2, "0.1", "-0.1")])
    path.write_text("edited\n")
    with pytest.raises(DataError, match="changed"):
        built(path, questions)
    card_path(path).unlink()
    with pytest.raises(DataError, match="no card"):
        built(path, questions)


# Wrong input


def test_wrong_parameters_are_refused_and_nothing_is_written(tmp_path):
    path, one = tmp_path / "p.jsonl", question(1, "0.1", "-0.1")
    for questions, options, message in (
        ([one], {"k": 0}, "k is 0"),
        ([one], {"candidates": 1}, "candidates is 1"),
        ([one, one], {}, "1 distinct"),
        ([], {}, "0 questions"),
        ([question(1), question(2)], {"retriever": PoolBM25()}, "has candidates"),
    ):
        with pytest.raises(DataError, match=message):
            built(path, questions, **options)
        assert list(tmp_path.iterdir()) == []


GOOD = {"query": "q", "pos": ["a"], "neg": ["b"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "found list"),
        ({**GOOD, "query": " "}, "query is"),
        ({**GOOD, "pos": []}, "pos is empty"),
        ({**GOOD, "neg": []}, "neg is empty"),
        ({**GOOD, "neg": None}, "neg is None"),
        ({**GOOD, "pos": ["a", 1]}, "pos is"),
        ({**GOOD, "pos": "a"}, "pos is 'a'"),
        ({**GOOD, "neg": ["b", "a"]}, "both pos"),
        ({**GOOD, "prompt": 1}, "prompt is 1"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, message):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join([json.dumps(GOOD), "", line if isinstance(line, str) else json.dumps(line)]))
    with pytest.raises(DataError, match=message):
        read_preferences(path)


def test_missing_unreadable_and_short_files_are_refused(tmp_path):
    path = tmp_path / "p.jsonl"
    with pytest.raises(DataError, match="be read"):
        read_preferences(path)
    path.write_bytes(b"\xff\xfa")
    with pytest.raises(DataError, match="UTF-8"):
        read_preferences(path)
    path.write_text(json.dumps(GOOD))
    with pytest.raises(DataError, match="1 questions"):
        read_preferences(path, at_least=2)


def test_separators_within_a_text_do_not_end_a_line(tmp_path):
    built(tmp_path / "p.jsonl", [question(1, "0.1", "-0.1")])
    text = json.dumps({**GOOD, "pos": ["a\u2028b\x85c"]}, ensure_ascii=False)
    (tmp_path / "u.jsonl").write_text(text, encoding="utf-8")
    assert read_preferences(tmp_path / "u.jsonl")[0].pos == ("a\u2028b\x85c",)


def test_sentence_transformers_and_flag_embedding_find_the_columns_that_they_need(tmp_path):
    from datasets import load_dataset

    path = tmp_path / "p.jsonl"
    built(path, [question(i, "0.1", "-0.1", "0.2") for i in range(3)])
    rows = load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert rows.column_names == ["query", "pos", "neg", "prompt"]
    assert rows[2] == {**json.loads(path.read_text().splitlines()[2])}


# The probe under another prompt


class Answers:
    """A model that is right alone on even questions, and with a passage where the passage says more than zero."""

    name = "answers"

    def answer(self, text, passages):
        number = int(text.split()[1].rstrip("?"))
        right = float(passages[0].text) > 0 if passages else number % 2 == 0
        return Reply(answer="yes" if right else "no")


def test_a_probe_is_measured_under_both_prompts_against_the_models_own_answers(rng):
    class ByNumber(Stated):
        """Knows what the model knows alone, and says nothing of passages."""

        def of(self, questions, passages=None):
            even = np.array([int(text.split()[1].rstrip("?")) % 2 == 0 for text in questions])
            return np.where(even, 0.9, 0.1) if passages is None else np.full(len(questions), 0.5)

    questions = [question(i, "0.1" if i % 2 == 0 else "-0.1") for i in range(40)]
    shift = measure_shift(questions, ByNumber(), Answers(), rng=rng, retriever=InMemoryRetriever())
    assert (shift.qa["auroc"].value, shift.rag["auroc"].value) == (1.0, 0.5)
    assert (shift.qa.n, shift.qa.n_known, shift.rag.n_known) == (40, 20, 20)
    assert shift.qa["ece"].value == pytest.approx(0.1)
    assert shift.table().texts()[0][:3] == ["question alone", "40", "20"]
    assert shift.to_dict()["label"] == "contains"
    json.dumps(shift.to_dict(), allow_nan=False)


def test_a_batched_model_is_asked_in_batches_with_equal_results(rng):
    class Together(Answers):
        def answers(self, texts, passages):
            asked.append(len(texts))
            return [super(Together, self).answer(text, given) for text, given in zip(texts, passages, strict=True)]

        def answer(self, text, passages):
            raise AssertionError("one at a time")

    asked = []
    questions = [question(i, "0.1" if i % 2 == 0 else "-0.1") for i in range(40)]
    found = [
        measure_shift(questions, Stated(), model, rng=np.random.default_rng(0), retriever=InMemoryRetriever())
        for model in (Answers(), Together())
    ]
    assert asked == [40, 40]
    assert found[0].to_dict() == found[1].to_dict()


def test_the_shift_travels_with_the_preferences(tmp_path, rng):
    questions = [question(i, "0.1", "-0.1") for i in range(6)]
    shift = measure_shift(questions, Stated(), Answers(), rng=rng, retriever=InMemoryRetriever())
    built(tmp_path / "p.jsonl", questions, shift=shift.to_dict())
    assert card(tmp_path / "p.jsonl")["shift"]["qa"]["auroc"]["value"] == 0.5


def test_a_shift_needs_golds_and_both_right_and_wrong_answers(rng):
    shift = measure_shift(
        [question(2, "0.1"), question(4, "0.2")], Stated(), Answers(), rng=rng, retriever=InMemoryRetriever()
    )
    assert math.isnan(shift.qa["auroc"].value)
    assert shift.to_dict()["qa"]["auroc"]["value"] is None
    with pytest.raises(DataError, match="gold answers"):
        measure_shift([question(1, "0.1", answers=("The",))], Stated(), Answers(), rng=rng)


def test_what_a_probe_says_of_a_source_is_a_confidence():
    from suffice_gates.probes import ProbeConfidence

    assert isinstance(Stated(), Confidence)
    assert issubclass(ProbeConfidence, Confidence)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
