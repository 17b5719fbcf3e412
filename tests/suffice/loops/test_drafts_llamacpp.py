"""Judges and embedders of drafts against llama.cpp's own server: wire, grammar, cache, failures; never quality.

The model has random weights.  Its replies are JSON all the same, because the server turns the schema that the judge
asks for into a grammar; a bias on a few tokens keeps strings short, so that a reply ends before the budget does.
"""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
import pytest

from suffice import ChatModel, Passage
from suffice.errors import ModelError
from suffice.loops.judges import MARKS, Draft, JudgeModel, MarkJudge, PairwiseJudge, Panel, judge_recording, with_marks
from suffice.loops.models import EndpointEmbedder
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.rounds import Round
from suffice.policy.signals.semantic import semantic_distance
from suffice.recordings import ResponseCache, read_recording, write_recording
from tests.support.cli_tools import cli
from tests.support.llamacpp import HIDDEN, build_model, start_server

pytestmark = pytest.mark.whole

PASSAGES = (
    Passage(passage_id="1", title="Tower", text="The tower is in Oslo."),
    Passage(passage_id="2", title="Bridge", text="The bridge is in Lima."),
)
DRAFT = Draft(question="Where is the tower?", text="It is in Oslo.", contexts=PASSAGES, reference="Oslo")
PUSHED = {'"': 12, "{": 6, "]": 2, "Ċ": -20, "Ġ": -20, "ĉ": -20}  # the last three are white space


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return build_model(tmp_path_factory.mktemp("untaught"), taught=False)


@pytest.fixture(scope="module")
def chat(tiny):
    with start_server(tiny) as running:
        yield running


@pytest.fixture(scope="module")
def embeddings(tiny):
    with start_server(tiny, states=True) as running:
        yield running


@pytest.fixture
def brief(tiny):
    tokenizer = tiny.tokenizer()
    return {"logit_bias": [[tokenizer.token_to_id(token), bias] for token, bias in PUSHED.items()]}


def asker(server, body=None, cache=None, max_tokens=200):
    model = ChatModel("tiny", base_url=server.url, max_retries=0, extra_body=body or {})
    return JudgeModel(model, cache=cache, max_tokens=max_tokens)


# --- the judge -----------------------------------------------------------------------------------------------------


def test_a_random_model_replies_in_a_marks_schema(chat, brief, tmp_path):
    with ResponseCache(tmp_path / "judged.sqlite") as cache:
        judge = asker(chat, brief, cache)
        marks = {}
        for name in ("faithfulness", "answer_relevancy", "context_recall"):
            found = asyncio.run(MarkJudge(judge, MARKS[name]).judge(DRAFT))
            assert found.note == "", name
            assert 0 <= found.mark <= 1
            assert found.cost.calls == 1
            assert 0 < found.cost.output_tokens < 200
            marks[name] = found
        assert judge.structured  # the server took the schema
        for name, found in marks.items():
            again = asyncio.run(MarkJudge(asker(chat, brief, cache), MARKS[name]).judge(DRAFT))
            assert (again.mark, again.cost, again.from_cache) == (found.mark, found.cost, True)


def test_a_reply_in_the_schema_that_makes_no_sense_gives_no_mark(chat, brief):
    found = asyncio.run(MarkJudge(asker(chat, brief), MARKS["context_precision"]).judge(DRAFT))
    assert math.isnan(found.mark)
    assert found.note.startswith(("the judge repeats a passage", "the judge leaves", "the judge's list"))
    assert found.cost.calls == found.attempts == 3


def test_a_reply_that_the_budget_cuts_off_says_so_and_is_paid(chat):
    found = asyncio.run(MarkJudge(asker(chat, max_tokens=4), MARKS["answer_relevancy"]).judge(DRAFT))
    assert math.isnan(found.mark)
    assert "cut off at max_tokens" in found.note
    assert (found.cost.calls, found.cost.output_tokens) == (3, 12)


def test_without_a_schema_the_same_model_replies_prose_and_nothing_is_guessed(chat):
    judge = asker(chat, max_tokens=16)
    judge.structured = False
    found = asyncio.run(MarkJudge(judge, MARKS["answer_relevancy"]).judge(DRAFT))
    assert math.isnan(found.mark)
    assert found.note


def test_a_judge_that_sees_only_positions_prefers_neither_draft(chat, brief):
    judge = PairwiseJudge(asker(chat, brief))
    for first, second in (("Oslo.", "Lima."), ("Lima.", "Oslo."), ("It is in Rome.", "Oslo.")):
        found = asyncio.run(judge.compare("Where is the tower?", first, second, PASSAGES))
        assert found.verdict in ("order_dependent", "tie"), found
        assert found.cost.calls == 2
        assert found.cost.cached_tokens > 0  # the passages stand before the drafts


def test_a_lost_server_is_an_error_that_keeps_earlier_replies(tiny, brief, tmp_path):
    with ResponseCache(tmp_path / "judged.sqlite") as cache:
        with start_server(tiny) as server:
            judge = asker(server, brief, cache)
            before = asyncio.run(MarkJudge(judge, MARKS["faithfulness"]).judge(DRAFT))
        again = asyncio.run(MarkJudge(judge, MARKS["faithfulness"]).judge(DRAFT))
        assert (again.mark, again.from_cache) == (before.mark, True)
        with pytest.raises(ModelError):
            asyncio.run(MarkJudge(judge, MARKS["answer_relevancy"]).judge(DRAFT))


def test_a_prompt_longer_than_the_context_is_refused_in_words(chat, brief):
    long = Draft(question="Where?", text="tower " * 5000, contexts=PASSAGES)
    with pytest.raises(ModelError):
        asyncio.run(MarkJudge(asker(chat, brief), MARKS["faithfulness"]).judge(long))


def drafts_file(path, drafts=("It is in Oslo.", "It is in Lima.", "It is in Oslo.")):
    rows = [
        {
            "question_id": "q",
            "round": t,
            "end": "max_rounds",
            "question": DRAFT.question,
            "answer": draft,
            "golds": ["Oslo"],
            "passage_ids": ["1", "2"],
        }
        for t, draft in enumerate(drafts, 1)
    ]
    write_recording(path, rows)
    return read_recording(path)


def test_a_recording_is_judged_by_a_panel_each_distinct_draft_once(chat, brief, tmp_path):
    recording = drafts_file(tmp_path / "r.parquet")
    passages = {passage.passage_id: passage for passage in PASSAGES}
    with ResponseCache(tmp_path / "judged.sqlite") as cache:
        panel = Panel(asker(chat, brief, cache), ["faithfulness", "answer_relevancy"])
        options = {"passages": passages, "repeats": 2, "sample": 2}
        judged = asyncio.run(judge_recording(recording, panel, rng=np.random.default_rng(0), **options))
        again = asyncio.run(judge_recording(recording, panel, rng=np.random.default_rng(0), **options))
    assert (judged.drafts, judged.requests_sent, again.requests_sent) == (4, 8, 0)
    assert all(part.rounds == 3 for part in judged.parts)
    assert judged.parts[0].noise.equal == 1.0  # temperature 0 on one slot
    table, metadata = with_marks(recording, judged, panel)
    assert table.column("information_score").null_count == 0
    assert table.column("cost.judge:information_score.calls").to_pylist() == [2.0, 2.0, 0.0]
    assert "information_score" in metadata["signal_components"]


def test_the_command_judges_over_the_same_server(chat, brief, tmp_path):
    drafts_file(tmp_path / "r.parquet")
    arguments = (
        "judge",
        "drafts",
        tmp_path / "r.parquet",
        "-o",
        tmp_path / "j.parquet",
        "--base-url",
        chat.url,
        "--model",
        "tiny",
    )
    told = cli(*arguments, "--set=marks=answer_relevancy", f"--set=extra-body={json.dumps(brief)}", "--json").json
    assert (told["requests"], told["asked"], told["failed"]) == (2, 2, [])
    assert np.isfinite(read_recording(tmp_path / "j.parquet").column("answer_relevancy")).all()


# --- the embedder --------------------------------------------------------------------------------------------------


@pytest.fixture
def embedder(embeddings):
    made = EndpointEmbedder("tiny", base_url=embeddings.url, max_retries=0, max_chars=400)
    yield made
    made.close()


def test_embeddings_of_a_real_endpoint_are_ordered_unit_vectors(embedder):
    texts = ["The tower is in Oslo.", "The bridge is in Lima.", "", "The tower is in Oslo."]
    vectors, cost = embedder.embed_costed(texts)
    assert vectors.shape == (4, HIDDEN)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0, 1], abs=1e-5)
    assert np.array_equal(vectors[0], vectors[3])
    for row, text in enumerate(texts):
        assert embedder.embed([text])[0] == pytest.approx(vectors[row], abs=1e-4)
    assert cost.calls == 1
    assert cost.uncached_tokens > 10  # what the server counted
    assert semantic_distance(vectors[0], vectors[1]) > 1e-3
    assert semantic_distance(vectors[0], vectors[3]) == pytest.approx(0, abs=1e-6)


def test_an_edit_of_the_last_words_of_a_long_draft_moves_it(embedder):
    draft = "The tower stands beside the harbour. " * 200
    one, other = embedder.embed([draft + "It is in Oslo.", draft + "It is in Lima."])
    assert semantic_distance(one, other) > 0
    assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)


def test_a_piece_beyond_the_servers_context_is_an_error(embeddings):
    careless = EndpointEmbedder("tiny", base_url=embeddings.url, max_retries=0, max_chars=100_000)
    with pytest.raises(ModelError):
        careless.embed(["tower " * 15_000])
    careless.close()


def test_drafts_are_measured_by_the_endpoint_as_a_loop_would(embedder):
    enricher = DraftEmbedder(embedder)
    measured = asyncio.run(enricher.measure("Where?", Round(index=1, answer="It is in Oslo.")))
    assert measured.embedding.shape == (HIDDEN,)
    assert measured.costs["embedder"].calls == 1


def test_a_server_without_embeddings_says_so(chat):
    wrong = EndpointEmbedder("tiny", base_url=chat.url, max_retries=0)
    with pytest.raises(ModelError):
        wrong.embed(["The tower."])
    wrong.close()
