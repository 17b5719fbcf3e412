"""A recording run as a process of its own, so that a test can kill it."""

from __future__ import annotations

from multiprocessing.process import BaseProcess

from suffice import ChatModel, Passage, Policy, RetrievalLoop, ScriptedModel, record
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question
from suffice.policy.signals import Idf
from suffice.recordings.shards import Shard
from tests.support import children

CONCURRENCY = 4
QUESTIONS = 100
ROUNDS = 3


def questions(n: int = QUESTIONS) -> list[Question]:
    """Return questions whose passages differ in length and words."""
    made = []
    for number in range(n):
        passages = tuple(
            Passage(
                passage_id=f"q{number}#{p}",
                title=f"Title {number} {p}",
                text=f"fact{number} " * (p % 3 + 1) + f"word{p} lies here. Answer: a trap",
            )
            for p in range(2 if number % 10 == 0 else 5)
        )
        made.append(
            Question(
                question_id=f"q{number}",
                question=f"Where is fact{number}?",
                answers=(f"place{number}",),
                passages=passages,
            )
        )
    return made


def loop(url: str, **options) -> RetrievalLoop:
    """Return the loop that records."""
    texts = [passage.text for question in questions() for passage in question.passages]
    policy = Policy(max_rounds=ROUNDS, state={"overlap": Idf.fit(texts)})
    model = ChatModel("tiny", base_url=url, api_key="key", max_retries=0, **options)
    return RetrievalLoop(model=model, retriever=PoolBM25(), policy=policy)


def reply(body: dict) -> tuple[str, float]:
    """Answer by a pure function of the prompt, so that every run gets the same replies."""
    prompt = "\n".join(message["content"] for message in body["messages"])
    n = sum(map(ord, prompt)) % 7
    return f"Answer: place{n}\nConfidence: {n % 5 + 1}", 0.5 + n


def run(url: str, path: str, shard: Shard | None = None, n: int = QUESTIONS) -> None:
    """Record as the process does."""
    record(questions(n), loop(url), path, shard=shard, concurrency=CONCURRENCY)


def started(url: str, path: str, shard: Shard | None = None, n: int = QUESTIONS) -> BaseProcess:
    """Start a process that records."""
    return children.started(run, url, path, shard, n)


def scripted(n: int = 6, rounds: int = 3, **options) -> tuple[list[Question], RetrievalLoop]:
    """Return questions, and a loop over a scripted model that is right from the third round on."""
    questions = [
        Question(
            question_id=f"q{i}",
            question=f"What is {i}?",
            answers=(f"a{i}",),
            passages=tuple(Passage(passage_id=f"{i}#{p}", title=f"t{p}", text=f"text {p}") for p in range(rounds)),
        )
        for i in range(n)
    ]
    script = {q.question: [None, "x", f"a{i}", f"a{i}"] for i, q in enumerate(questions)}
    model = ScriptedModel(script, **options)
    return questions, RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=Policy(max_rounds=rounds))
