"""How rounds get their evidence: without blocking each other, none twice, and by the retriever's own identity."""

from __future__ import annotations

import asyncio
import threading

import pytest

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, parse_rule, read_recording, record
from suffice.errors import ConfigMismatchError, DataError
from suffice.loops import Evidence
from suffice.loops.retrieval import AsyncRetriever, InMemoryRetriever, PoolBM25, Question, Retriever
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_retrieval.indexes import CorpusBM25, DenseRetriever

N = 4
CHUNKS = [Passage(passage_id=f"c{i}", title="Manual", text=f"step {i} of tower {i % 7}") for i in range(5000)]
QUESTIONS = [Question(question_id=f"q{i}", question=f"Where is tower {i}?", answers=("Oslo",)) for i in range(N)]


class Meeting(InMemoryRetriever):
    """Lets no question go before `N` of them are being ranked at the same time."""

    def __init__(self):
        super().__init__(CHUNKS[:3])
        self.identity = "passage_id"
        self.barrier = threading.Barrier(N, timeout=600)

    def rank(self, question, *, pool=None, k=None):
        self.barrier.wait()
        return super().rank(question, pool=pool, k=k)


class AwaitedMeeting:
    """The same for a retriever that is awaited: each waits until all `N` have begun."""

    name = "awaited"

    def __init__(self):
        self.begun, self.all = 0, asyncio.Event()
        self.asked = []

    def fingerprint(self):
        return {"name": self.name}

    async def rank(self, question, *, pool=None, k=None):
        self.asked.append(question)
        self.begun += 1
        if self.begun == N:
            self.all.set()
        async with asyncio.timeout(60):
            await self.all.wait()
        return [Passage(passage_id=str(i), title=str(i), text="text", score=float(-i)) for i in range(3)]


class Awaited:
    """Ranks a pool, or a few passages of its own, when awaited."""

    name = "awaited"

    def fingerprint(self):
        return {"name": self.name}

    async def rank(self, question, *, pool=None, k=None):
        await asyncio.sleep(0)
        return list(pool or CHUNKS[:2])[:k]


def loop(retriever, **policy) -> RetrievalLoop:
    policy.setdefault("max_rounds", 3)
    replies = {question.question: ["Oslo"] * 6 for question in QUESTIONS}
    return RetrievalLoop(model=ScriptedModel(replies), retriever=retriever, policy=Policy(**policy))


@pytest.mark.parametrize("kind", [Meeting, AwaitedMeeting])
def test_questions_are_in_retrieval_at_the_same_time_while_they_are_recorded(kind, tmp_path):
    summary = record(QUESTIONS, loop(kind()), tmp_path / "r.parquet", concurrency=N)
    assert (summary.failed, summary.rounds) == ({}, 3 * N)


@pytest.mark.parametrize("kind", [Meeting, AwaitedMeeting])
def test_questions_are_in_retrieval_at_the_same_time_while_they_are_answered(kind):
    made = loop(kind())

    async def all_of_them():
        return await asyncio.gather(*(made.run_async(question.question) for question in QUESTIONS))

    outcomes = asyncio.run(all_of_them())
    assert [(outcome.answer, len(outcome.rounds)) for outcome in outcomes] == [("Oslo", 3)] * N
    assert all(outcome.costs["retrieval"].calls == 1 for outcome in outcomes)


@pytest.mark.parametrize("how", ["run", "run_async"])
def test_an_asynchronous_retriever_is_awaited(how):
    pool = [Passage(passage_id=name, title=name, text="") for name in "abc"]
    made = loop(Awaited())
    question = QUESTIONS[0].question
    outcome = made.run(question, pool) if how == "run" else asyncio.run(made.run_async(question, pool))
    assert [passage.passage_id for passage in outcome.rounds[-1].passages] == ["a", "b", "c"]
    assert isinstance(Awaited(), AsyncRetriever)
    assert isinstance(PoolBM25(), Retriever)


def test_a_retriever_that_raises_fails_its_question_as_before(tmp_path):
    class Broken(InMemoryRetriever):
        def rank(self, question, *, pool=None, k=None):
            if "0" in question:
                raise OSError("the index is gone")
            return super().rank(question, pool=pool, k=k)

    passages = [Passage(passage_id=str(i), title=str(i), text="text") for i in range(3)]
    summary = record(QUESTIONS, loop(Broken(passages)), tmp_path / "r.parquet")
    assert summary.failed == {"q0": "OSError: the index is gone"}
    assert summary.questions == N - 1


def test_a_question_that_stops_at_round_0_costs_no_retrieval():
    retriever = AwaitedMeeting()
    made = loop(retriever, rule=parse_rule("round >= 0"), start_round=0)
    assert asyncio.run(made.run_async(QUESTIONS[0].question)).decision.stop_round == 0
    assert retriever.asked == []


@pytest.mark.parametrize("how", ["run", "run_async"])
def test_a_reranker_awaits_an_asynchronous_retriever(how):
    pool = [Passage(passage_id=name, title=name, text=name * n) for n, name in enumerate("abc", start=1)]
    inner = Reranked(Awaited(), CrossEncoderScorer("model", encoder=Letters()), candidates=2)
    made = loop(Reranked(inner, CrossEncoderScorer("model", encoder=Letters())))
    question = QUESTIONS[0].question
    outcome = made.run(question, pool) if how == "run" else asyncio.run(made.run_async(question, pool))
    assert [passage.passage_id for passage in outcome.rounds[-1].passages] == ["b", "a"]
    with pytest.raises(DataError, match="k is 0"):
        asyncio.run(inner.rank(question, pool=pool, k=0))


# --- what makes two passages the same -------------------------------------------------------------------------------


class Letters:
    """Embeds a text by its letters, and scores a pair by its length."""

    def encode(self, texts):
        return [[text.count(letter) + 1 for letter in "abcxyz"] for text in texts]

    def predict(self, pairs):
        return [len(text) for _, text in pairs]


CORPORA = {
    "BM25": lambda: CorpusBM25(CHUNKS),
    "dense": lambda: DenseRetriever("letters", CHUNKS, encoder=Letters()),
    "reranked": lambda: Reranked(CorpusBM25(CHUNKS), CrossEncoderScorer("length", encoder=Letters())),
}


@pytest.mark.parametrize("kind", CORPORA)
def test_chunks_of_one_document_are_different_passages(kind):
    outcome = loop(CORPORA[kind]()).run(QUESTIONS[0].question)
    assert [len(observed.passages) for observed in outcome.rounds] == [1, 2, 3]
    assert len({passage.passage_id for passage in outcome.rounds[-1].passages}) == 3


def test_a_pool_goes_by_title_unless_its_retriever_says_otherwise():
    twice = [Passage(passage_id=str(i), title=title, text="") for i, title in enumerate(["A", "a ", "B", "B"])]
    by_title, by_id = PoolBM25(), PoolBM25()
    by_id.identity = "passage_id"
    question = QUESTIONS[0].question
    with pytest.warns(UserWarning, match="'passage_id'"):
        outcome = loop(by_title).run(question, twice)
    assert (len(outcome.rounds), outcome.decision.reason) == (2, "exhausted")
    assert len(loop(by_id).run(question, twice).rounds) == 3
    assert loop(by_title, max_rounds=2).run(question, twice).decision.reason == "max_rounds"


def test_the_same_id_twice_is_one_passage():
    same = InMemoryRetriever([CHUNKS[0], CHUNKS[0], CHUNKS[1]])
    same.identity = "passage_id"
    with pytest.warns(UserWarning, match="as one"):
        assert len(loop(same).run(QUESTIONS[0].question).rounds) == 2


def test_an_unknown_identity_is_refused():
    odd = InMemoryRetriever(CHUNKS[:3])
    odd.identity = "text"
    with pytest.raises(DataError, match="'text'"):
        Evidence(odd, "Where?", (), 3)


def test_a_corpus_is_not_asked_for_more_and_more_without_end():
    asked = []

    class Endless(InMemoryRetriever):
        def rank(self, question, *, pool=None, k=None):
            asked.append(k)
            return [CHUNKS[0]] * k

    with pytest.warns(UserWarning, match="as one"):
        evidence = Evidence(Endless(), "Where?", (), 3).ranked
    assert asked == [12, 48, 192]
    assert len(evidence.passages) == 1
    assert evidence.costs["retrieval"].calls == 3, "each request counts"


def test_a_recording_goes_on_with_the_same_identity_only(tmp_path):
    retriever = InMemoryRetriever([Passage(passage_id=str(i), title=str(i), text="") for i in range(3)])
    record(QUESTIONS[:1], loop(retriever), tmp_path / "r.parquet")
    assert "identity" not in read_recording(tmp_path / "r.parquet").metadata["config"]["retriever"]
    retriever.identity = "passage_id"
    with pytest.raises(ConfigMismatchError, match="identity"):
        record(QUESTIONS, loop(retriever), tmp_path / "r.parquet")
