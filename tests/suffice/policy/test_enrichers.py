"""Measurements with calls of their own: a language model as a judge, and a cross-encoder."""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from suffice import Passage, Round, ScriptedModel, parse_rule, read_recording, record
from suffice.errors import DataError, ModelError
from suffice.loops import RetrievalLoop
from suffice.loops.models import ENTAILMENT, ChatModel, EntailmentJudge
from suffice.loops.models.judge import parse_mark
from suffice.loops.retrieval import InMemoryRetriever, Question
from suffice.policy.session import Policy
from suffice.policy.signals.given import Enricher
from suffice_gates.rerank import CrossEncoderScorer
from tests.support.endpoint import Endpoint

PASSAGES = (
    Passage(passage_id="1", title="Norway", text="Oslo is its capital."),
    Passage(passage_id="2", title="{text}", text="{answer} {scale}"),
)


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Mark: 4", 4),
        ("mark = 2.", 2),
        ("**Mark:** **5**", 5),
        ('{"mark": 3}', 3),
        ("4", 4),
        ("4/5", 4),
        ("Score: 4 out of 5", 4),
        ("I would rate this a 4.", 4),
        ("3.5", 3.5),
        ("<think>Mark: 1, or rather 2</think>Mark: 5", 5),
        ("The passages of 1994 do not say so.\nMark: 2", 2),
        ("Mark: 5\nMark: 1", 5),
        ("4 of 5, so 4", 4),
        ("", None),
        ("Mark: <1-5>", None),
        ("Mark: 7", None),
        ("Mark: 0", None),
        ("85%", None),
        ("Mark: 4%", None),
        ("8/10", None),
        ("4/10", None),
        ("either 2 or 4", None),
        ("-3", None),
        ("four", None),
        ("<think>Mark: 4", None),
        ("9" * 100_000, None),
    ],
)
def test_a_mark_is_read_from_what_judges_say_and_nothing_else_is(text, mark):
    found = parse_mark(text)
    assert math.isnan(found) if mark is None else found == mark


def test_a_long_text_of_anything_is_read_at_once():
    # A search that tried again at each place would take minutes.
    for piece in ("1 ", "Mark: ", "mark*", "4 out  of "):
        assert math.isnan(parse_mark(piece * (200_000 // len(piece)) + "!")) or piece == "1 " or piece.startswith("4")


def measured(enricher, answer="Oslo", passages=PASSAGES):
    return asyncio.run(
        enricher.measure("What is the capital?", Round(index=1, answer=answer, passages=tuple(passages)))
    )


def judge(endpoint, **options):
    return EntailmentJudge(ChatModel("j", base_url=endpoint.url, api_key="sk-12345", max_retries=0), **options)


def test_a_judge_sees_question_passages_and_answer_and_its_call_is_booked():
    with Endpoint("Mark: 4") as endpoint:
        found = measured(judge(endpoint))
        (request,) = endpoint.requests
    assert found.signals == {"judge_entailment": 4.0}
    assert found.costs["judge:entailment"].calls == 1
    assert found.costs["judge:entailment"].tokens > 50
    system, user = (message["content"] for message in request.body["messages"])
    assert user.startswith("Question: What is the capital?\n\nPassage 1: Norway\nOslo is its capital.")
    assert user.endswith("Passage 2: {text}\n{answer} {scale}\n\nProposed answer: Oslo")  # nothing in it is a template
    assert system.index("1 = ") < system.index("5 = ")
    assert (request.body["max_tokens"], "logprobs" in request.body) == (16, False)


def test_a_rounds_evidence_starts_the_evidence_of_the_next():
    one, two = (ENTAILMENT.messages("Q?", PASSAGES[:k], "A")[1]["content"] for k in (1, 2))
    assert two.startswith(one.removesuffix("\n\nProposed answer: A"))


def test_two_passes_ask_with_the_scale_in_both_orders_and_average():
    replies = iter(["Mark: 4", "Mark: 5"])
    with Endpoint(lambda body: next(replies)) as endpoint:
        found = measured(judge(endpoint, passes=2))
        orders = [r.prompt.index("1 = ") < r.prompt.index("5 = ") for r in endpoint.requests]
    assert found.signals == {"judge_entailment": 4.5}
    assert found.costs["judge:entailment"].calls == 2
    assert orders == [True, False]


def test_a_reply_without_a_mark_is_repeated_with_a_reminder_and_paid():
    replies = iter(["Mark: 4", "I cannot tell.", "2"])
    with Endpoint(lambda body: next(replies)) as endpoint:
        found = measured(judge(endpoint, passes=2))
        _, before, again = [r.body["messages"][-1]["content"] for r in endpoint.requests]
    assert found.signals == {"judge_entailment": 3.0}
    assert found.costs["judge:entailment"].calls == 3
    assert again.startswith(before)
    assert again.endswith("one number from 1 to 5.")


def test_a_judge_that_never_states_a_mark_is_undefined_and_paid_for():
    with Endpoint("I cannot tell.") as endpoint:
        found = measured(judge(endpoint, attempts=2))
    assert math.isnan(found.signals["judge_entailment"])
    assert found.costs["judge:entailment"].calls == 2
    with Endpoint("Mark: 4") as endpoint, pytest.raises(DataError, match="least once"):
        judge(endpoint, attempts=0)


@pytest.mark.parametrize(("answer", "passages"), [(None, PASSAGES), ("  ", PASSAGES), ("Oslo", ())])
def test_without_an_answer_or_evidence_nothing_is_asked(answer, passages):
    with Endpoint("Mark: 4") as endpoint:
        found = measured(judge(endpoint), answer, passages)
    assert math.isnan(found.signals["judge_entailment"])
    assert found.costs["judge:entailment"].calls == 0
    assert endpoint.requests == []


def test_a_failing_judge_raises_and_odd_numbers_of_passes_are_refused():
    with Endpoint(fault="500") as endpoint:
        with pytest.raises(ModelError, match="500"):
            measured(judge(endpoint))
        with pytest.raises(DataError, match="passes is 3"):
            judge(endpoint, passes=3)


def test_a_judges_fingerprint_shows_what_changes_marks_and_no_secret():
    with Endpoint("Mark: 4") as endpoint:
        one, two = judge(endpoint), judge(endpoint, passes=2)
        assert isinstance(one, Enricher)
        assert one.capabilities == {"judge"}
        assert one.fingerprint() != two.fingerprint()
        text = json.dumps(one.fingerprint())
    assert "entailment@1" in text
    assert "sk-12345" not in text + repr(one)


class Words:
    """Scores by shared words."""

    def __init__(self):
        self.pairs = []

    def predict(self, pairs):
        self.pairs += pairs
        return np.array([float(len(set(a.split()) & set(b.split()))) for a, b in pairs])


def test_a_cross_encoder_scores_the_newest_passage_only():
    words = Words()
    scorer = CrossEncoderScorer("words", encoder=words)
    found = measured(scorer, answer=None)
    assert words.pairs == [("What is the capital?", "{text}\n{answer} {scale}")]
    assert found.signals == {"rerank_score": 0.0}
    assert found.costs["reranker"].calls == 1
    assert isinstance(scorer, Enricher)
    assert scorer.capabilities == {"reranker"}
    assert math.isnan(measured(scorer, passages=()).signals["rerank_score"])
    assert len(words.pairs) == 1


def test_a_cross_encoder_with_several_labels_is_refused():
    class Three:
        def predict(self, pairs):
            return np.zeros((len(pairs), 3))

    with pytest.raises(ModelError, match="3 numbers"):
        measured(CrossEncoderScorer("nli", encoder=Three()))


@pytest.fixture(scope="module")
def tiny_cross_encoder(tmp_path_factory):
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "tiny-cross-encoder"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "oslo", "is", "its", "capital", "what", "the", "norway", "."]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        num_labels=1,
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


@pytest.mark.whole
def test_a_real_cross_encoder_loads_once_and_is_named_by_hash(tiny_cross_encoder):
    from sentence_transformers import CrossEncoder

    scorer = CrossEncoderScorer(tiny_cross_encoder, device="cpu")
    before = scorer.fingerprint()
    found = measured(scorer, passages=PASSAGES[:1])
    expected = CrossEncoder(str(tiny_cross_encoder), device="cpu").predict(
        [("What is the capital?", "Norway\nOslo is its capital.")]
    )
    assert found.signals["rerank_score"] == pytest.approx(float(expected[0]), abs=1e-6)
    assert before == scorer.fingerprint()
    assert before["model"].endswith("/tiny-cross-encoder")
    assert len(before["revision"]) == 16


@pytest.mark.whole
def test_a_folder_without_a_cross_encoder_is_a_clear_error(tmp_path):
    with pytest.raises(ModelError, match="loaded"):
        measured(CrossEncoderScorer(tmp_path, device="cpu"))


def test_both_are_recorded_beside_the_answers_and_rules_on_them_run(tmp_path):
    question = Question(question_id="q", question="What is the capital?", answers=("Oslo",), passages=PASSAGES)
    with Endpoint("Mark: 5") as endpoint:
        loop = RetrievalLoop(
            model=ScriptedModel({question.question: ["Oslo"]}),
            retriever=InMemoryRetriever(),
            policy=Policy(rule=parse_rule("(judge_entailment >= 4) & (rerank_score > -1)"), max_rounds=2),
            enrichers=(CrossEncoderScorer("words", encoder=Words()), judge(endpoint)),
        )
        record([question], loop, tmp_path / "r.parquet")
        outcome = loop.run(question.question, question.passages)
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.column("judge_entailment").tolist() == [[5, 5]]
    assert recording.column("rerank_score").tolist() == [[1, 0]]
    assert recording.column("cost.judge:entailment.calls").tolist() == [[1, 1]]
    assert set(recording.metadata["config"]["enrichers"]) == {"judge:entailment", "reranker"}
    assert (outcome.decision.stop_round, outcome.decision.reason) == (1, "rule")
