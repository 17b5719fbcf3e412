"""The retrieval loop: what it asks, when it stops, what it returns, and that a replay says the same."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest

from suffice import (
    Cost,
    Passage,
    Policy,
    Reply,
    RetrievalLoop,
    ScriptedModel,
    Session,
    fixed_k,
    parse_rule,
    parse_selector,
    tasr,
)
from suffice.common.blocking import finished
from suffice.errors import (
    AuthenticationFailedError,
    ConfigMismatchError,
    DataError,
    LogprobsUnavailableError,
    ModelError,
    NotFittedError,
)
from suffice.loops import Outcome
from suffice.loops.models import ChatModel
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_retrieval.indexes import CorpusBM25, DenseRetriever
from tests.support.endpoint import Endpoint

Q = "Where is it?"
POOL = tuple(Passage(passage_id=str(i), title=f"t{i}", text=f"text {i}") for i in range(1, 6))
ANSWERS = [None, "Oslo", "Lima", "Lima", "Rome", "Rome"]


class Counting(InMemoryRetriever):
    """Counts how often it ranks."""

    ranked = 0

    def rank(self, question, *, pool=None, k=None):
        self.ranked += 1
        return super().rank(question, pool=pool, k=k)


def loop(answers=ANSWERS, *, rule="never()", enrichers=(), retriever=None, options=None, **policy):
    policy.setdefault("max_rounds", 5)
    return RetrievalLoop(
        model=ScriptedModel({Q: list(answers)}, **(options or {})),
        retriever=retriever or InMemoryRetriever(),
        policy=Policy(rule=parse_rule(rule), **policy),
        enrichers=enrichers,
    )


def run(made, pool=POOL, *, how="sync") -> Outcome:
    return made.run(Q, pool) if how == "sync" else asyncio.run(made.run_async(Q, pool))


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
def test_it_ranks_once_and_reveals_one_passage_a_round(how):
    made = loop(retriever=Counting())
    outcome = run(made, how=how)
    assert made.retriever.ranked == 1
    assert [passages for _, passages in made.model.requests] == [
        tuple(p for p in made.retriever.rank(Q, pool=POOL)[:r]) for r in range(1, 6)
    ]
    assert [observed.index for observed in outcome.rounds] == [1, 2, 3, 4, 5]
    assert (outcome.decision.reason, outcome.decision.stop_round, outcome.answer) == ("max_rounds", 5, "Rome")
    assert outcome.costs["retrieval"].calls == 1
    assert outcome.costs["generator"].calls == 5


@pytest.mark.filterwarnings("ignore:some questions have fewer rounds than passages")
@both
def test_a_passage_with_a_title_that_was_seen_is_skipped(how):
    twin = Passage(passage_id="twin", title=" T1 ", text="again")
    nameless = [Passage(passage_id=f"n{i}", title="", text="x") for i in range(2)]
    made = loop()
    outcome = run(made, (POOL[0], twin, *nameless), how=how)
    assert [p.passage_id for p in outcome.rounds[-1].passages] == ["1", "n0", "n1"]
    assert (outcome.decision.reason, outcome.decision.stop_round) == ("exhausted", 3)


@both
def test_a_corpus_that_repeats_titles_is_asked_again(how):
    corpus = [Passage(passage_id=f"a{i}", title="same", text="x") for i in range(30)] + list(POOL)
    made = loop(retriever=Counting(corpus))
    outcome = run(made, (), how=how)
    assert [p.passage_id for p in outcome.rounds[-1].passages] == ["a0", "1", "2", "3", "4"]
    assert outcome.decision.reason == "max_rounds"


class Letters:
    """Embeds a text by its letters, and scores a pair by its length."""

    def encode(self, texts):
        return [[text.count(letter) + 1 for letter in "abcxyz"] for text in texts]

    def predict(self, pairs):
        return [len(text) for _, text in pairs]


CORPUS = [Passage(passage_id=f"c{i}", title=f"c{i}", text=f"where is x{i % 7}") for i in range(300)]
CORPORA = {
    "BM25": lambda: CorpusBM25(CORPUS),
    "dense": lambda: DenseRetriever("letters", CORPUS, encoder=Letters()),
    "reranked": lambda: Reranked(CorpusBM25(CORPUS), CrossEncoderScorer("length", encoder=Letters()), candidates=100),
}


@both
@pytest.mark.parametrize("kind", CORPORA)
def test_a_corpus_is_asked_for_as_much_whatever_paragraphs_the_question_carries(kind, how):
    alone, carrying = (run(loop(retriever=CORPORA[kind]()), pool, how=how).rounds for pool in ((), POOL * 10))
    assert len(alone[-1].pool_scores) == 20
    assert [(r.passages, r.pool_scores) for r in carrying] == [(r.passages, r.pool_scores) for r in alone]


@both
def test_every_passage_of_a_pool_is_scored_however_few_the_rounds(how):
    pool = [Passage(passage_id=f"p{i}", title=f"p{i}", text=f"where x{i}") for i in range(30)]
    for retriever in (PoolBM25(), DenseRetriever("letters", encoder=Letters()), Counting()):
        made = loop(retriever=retriever, max_rounds=2)
        assert len(run(made, pool, how=how).rounds[-1].pool_scores) == 30
    assert retriever.ranked == 1


@both
def test_a_retriever_is_never_asked_for_everything(how):
    asked = []

    class Index:
        name = "index"

        def fingerprint(self):
            return {"name": self.name}

        def rank(self, question, *, pool=None, k=None):
            asked.append(k)
            return CORPUS[:k]

    run(loop(retriever=Index()), how=how)
    assert len(asked) == 1
    assert asked[0] is not None
    assert asked[0] <= 20


@both
def test_it_stops_by_the_rule_and_asks_no_further(how):
    made = loop(rule="answer_stable")
    outcome = run(made, how=how)
    assert made.model.calls == 3
    assert (outcome.answer, outcome.decision.reason, outcome.decision.stop_round) == ("Lima", "rule", 3)
    assert outcome.decision.fired == "answer_stable >= 1"
    assert outcome.error is None


@both
def test_a_failing_model_ends_with_the_best_answer_so_far(how):
    made = loop(options={"failures": {3: ModelError("it broke")}})
    outcome = run(made, how=how)
    assert (outcome.answer, outcome.decision.reason, outcome.decision.stop_round) == ("Lima", "failed", 2)
    assert str(outcome.error) == "it broke"
    assert made.model.calls == 3


@both
def test_a_model_that_never_answers_ends_failed_without_an_answer(how):
    outcome = run(loop(options={"failures": lambda call: ModelError("down")}), how=how)
    assert (outcome.answer, outcome.decision.reason, outcome.rounds) == (None, "failed", ())
    assert outcome.decision.stop_round is None
    empty = run(loop([None]), how=how)
    assert (empty.answer, empty.decision.reason, len(empty.rounds)) == (None, "failed", 5)


@both
def test_refused_credentials_are_raised_before_an_answer_and_kept_after_one(how):
    with pytest.raises(AuthenticationFailedError):
        run(loop(options={"failures": {1: AuthenticationFailedError("401")}}), how=how)
    outcome = run(loop(options={"failures": {2: AuthenticationFailedError("401")}}), how=how)
    assert (outcome.answer, outcome.decision.reason) == ("Oslo", "failed")


@both
def test_round_0_asks_without_evidence_and_ranks_nothing(how):
    made = loop(["Oslo"], rule="round >= 0", start_round=0, retriever=Counting())
    outcome = run(made, how=how)
    assert made.model.requests == [(Q, ())]
    assert made.retriever.ranked == 0
    assert (outcome.decision.stop_round, outcome.answer) == (0, "Oslo")
    assert "retrieval" not in outcome.costs


@both
def test_starting_at_0_makes_up_to_one_call_beyond_max_rounds(how):
    made = loop(start_round=0, max_rounds=3)
    outcome = run(made, how=how)
    assert made.model.calls == 4
    assert [observed.index for observed in outcome.rounds] == [0, 1, 2, 3]
    assert outcome.costs["retrieval"].calls == 1


@both
def test_without_a_pool_or_a_corpus_the_error_says_so(how):
    with pytest.raises(DataError, match="pool"):
        run(loop(), (), how=how)


def test_the_stream_yields_each_round_before_the_next_call():
    made = loop(rule="answer_stable")
    calls = [(made.model.calls, r and r.index, result) for r, result in made.stream(Q, POOL)]
    assert [(n, r) for n, r, _ in calls] == [(1, 1), (2, 2), (3, 3), (3, None)]
    assert [result.stop for *_, result in calls[:-1]] == [False, False, True]
    assert isinstance(calls[-1][2], Outcome)


def test_the_asynchronous_stream_yields_the_same():
    async def collect(made):
        return [(made.model.calls, r and r.index) async for r, _ in made.stream_async(Q, POOL)]

    assert asyncio.run(collect(loop(rule="answer_stable"))) == [(1, 1), (2, 2), (3, 3), (3, None)]


def test_a_consumer_may_leave_a_stream_and_nothing_more_is_asked():
    for enrichers in ((), (Judge(),)):
        made = loop(enrichers=enrichers)
        for observed, _ in made.stream(Q, POOL):
            if observed is not None and observed.index == 2:
                break
        assert made.model.calls == 2


def test_a_loop_with_a_judge_runs_inside_an_event_loop():
    async def notebook():
        return loop(enrichers=(Judge(),)).run(Q, POOL)

    assert asyncio.run(notebook()).answer == loop().run(Q, POOL).answer


def test_what_would_wait_is_not_run_without_an_event_loop():
    with pytest.raises(RuntimeError, match="event loop"):
        finished(asyncio.sleep(0))


def test_a_cancelled_task_ends_the_session_and_drops_the_request(monkeypatch):
    sessions = []

    class Seen(Session):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            sessions.append(self)

    monkeypatch.setattr("suffice.loops.live.Session", Seen)
    replies = []

    def reply(body):
        replies.append(body)
        return "Answer: Oslo"

    async def interrupted(made):
        task = asyncio.create_task(made.run_async(Q, POOL))
        while len(endpoint.requests) < 3:  # noqa: ASYNC110 - the server runs in another thread
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(6000):
            if endpoint.abandoned:
                break
            await asyncio.sleep(0.01)

    with Endpoint(reply, allow=2) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, max_retries=0)
        asyncio.run(interrupted(RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=Policy())))
        assert (endpoint.abandoned, len(replies)) == (1, 2)
    decision = sessions[0].decision
    assert (decision.reason, decision.stop_round, decision.answer) == ("cancelled", 2, "Oslo")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"rule": "answer_margin > 2.5"}, LogprobsUnavailableError, "answer_margin"),
        ({"rule": "answer_margin_min > 1"}, LogprobsUnavailableError, "token_logprobs"),
        ({"rule": "verbal_confidence >= 4"}, ModelError, "verbal_confidence"),
        ({"rule": "judge_entailment >= 4"}, ModelError, "judge"),
        ({"selector": parse_selector("max_answer_margin")}, LogprobsUnavailableError, "logprobs"),
        ({"rule": "tasr"}, NotFittedError, "calibrat"),
        ({"rule": "overlap > 0.2"}, NotFittedError, "overlap"),
        ({"depends": {"model": "gpt-x"}}, ConfigMismatchError, "gpt-x"),
    ],
)
@both
def test_what_cannot_decide_is_refused_before_the_first_call(changes, error, says, how):
    made = loop(retriever=Counting(), **changes)
    with pytest.raises(error, match=says):
        run(made, how=how)
    assert (made.model.calls, made.retriever.ranked) == (0, 0)


def test_a_policy_must_have_the_same_prompt_but_not_address():
    with Endpoint() as one, Endpoint() as two:
        models = [ChatModel("m", base_url=endpoint.url) for endpoint in (one, two)]
        policy = Policy(depends={"model": "m", "prompt_id": "answer_first@1"})
        for model in models:
            RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy).check()
        other = Policy(depends={"model": "m", "prompt_id": "no_confidence@1"})
        with pytest.raises(ConfigMismatchError, match=r"no_confidence@1.*answer_first@1"):
            RetrievalLoop(model=models[0], retriever=InMemoryRetriever(), policy=other).check()
        assert one.requests == two.requests == []


def test_the_endpoint_is_asked_once_whether_logprobs_come():
    with Endpoint("Answer: Oslo") as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        policy = Policy(rule=parse_rule("answer_margin > 20"), max_rounds=2)
        made = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy)
        for _ in range(3):
            made.run(Q, POOL)
        assert len(endpoint.requests) == 1 + 3 * 2
    with Endpoint("Answer: Oslo", logprobs="none") as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        made = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy)
        for _ in range(2):
            with pytest.raises(LogprobsUnavailableError):
                made.run(Q, POOL)
        assert all("Passage 1" not in request.prompt for request in endpoint.requests)


@pytest.mark.whole
def test_the_check_does_not_hang_on_assertions():
    code = (
        "from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, signal\n"
        "from suffice.errors import SufficeError\n"
        "from suffice.loops.retrieval import InMemoryRetriever\n"
        "loop = RetrievalLoop(model=ScriptedModel({'q': ['a']}), retriever=InMemoryRetriever(),\n"
        "                     policy=Policy(rule=signal('answer_margin') > 1))\n"
        "try:\n    loop.run('q', [Passage(passage_id='1', title='', text='')])\n"
        "except SufficeError as error:\n    print(type(error).__name__)"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "LogprobsUnavailableError\n"


# Enrichers


class Judge:
    """Marks every round; counts."""

    def __init__(self, mark=4.0, name="judge:entailment", signal="judge_entailment", failures=()):
        self.mark, self.name, self.signal, self.failures = mark, name, signal, failures
        self.capabilities = frozenset({"judge", "reranker"})
        self.asked = []

    def fingerprint(self):
        return {"name": self.name, "mark": str(self.mark)}

    async def measure(self, question, observed):
        self.asked.append(len(observed.passages))
        if len(observed.passages) in self.failures:
            raise ModelError("the judge is down")
        mark = self.mark(question, observed.passages) if callable(self.mark) else self.mark
        return Reply(signals={self.signal: mark}, costs={self.name: Cost(calls=1, seconds=0.5)})


def reranker(mark=1.0):
    return Judge(mark, "reranker", "rerank_score")


@pytest.mark.parametrize(
    ("rule", "judged", "reranked", "stop"),
    [
        ("judge_entailment >= 4", [1], [], 1),
        ("answer_stable & (judge_entailment >= 4)", [3], [], 3),
        ("(judge_entailment >= 4) & answer_stable", [1, 2, 3], [], 3),
        ("answer_stable | (judge_entailment >= 5)", [1, 2], [], 3),
        ("(rerank_score > 2) & (judge_entailment >= 4)", [], [1, 2, 3, 4, 5], 5),
        ("(rerank_score > 0) | (judge_entailment >= 4)", [], [1], 1),
        ("(answer_stable & (judge_entailment >= 4)) | (rerank_score > 0) | (judge_entailment >= 4)", [], [1], 1),
        ("k_of(1, answer_stable, judge_entailment > 4, rerank_score > 0)", [1], [1], 1),
        ("(round >= 3) & patience((judge_entailment >= 4), 3)", [1, 2, 3], [], 3),
        ("(round >= 3) & patience((judge_entailment >= 4), 1)", [3], [], 3),
        ("never()", [], [], 5),
    ],
)
@both
def test_an_enricher_is_asked_only_where_the_rule_reads_it(rule, judged, reranked, stop, how):
    rule = rule.replace("answer_stable ", "(answer_stable >= 1) ").replace("answer_stable,", "(answer_stable >= 1),")
    rule = rule.replace("& answer_stable", "& (answer_stable >= 1)")
    judge, scorer = Judge(), reranker()
    outcome = run(loop(rule=rule, enrichers=(judge, scorer)), how=how)
    assert (judge.asked, scorer.asked, outcome.decision.stop_round) == (judged, reranked, stop)
    assert outcome.costs.get("judge:entailment", Cost()).calls == len(judged)


def test_a_selector_on_a_judge_has_every_round_judged():
    judge = Judge(lambda question, passages: 5.0 if len(passages) == 2 else 1.0)
    outcome = run(loop(enrichers=(judge,), selector=parse_selector("max_judge_entailment"), max_rounds=3))
    assert judge.asked == [1, 2, 3]
    assert (outcome.decision.answer_round, outcome.answer) == (2, "Lima")


def test_a_judge_of_a_users_own_signal_is_asked_whatever_its_name():
    for name in ("judge:own", "mine"):
        judge = Judge(1.0, name, "own")
        outcome = run(loop(rule="(round >= 2) & (own > 0)", enrichers=(judge,)))
        assert outcome.decision.stop_round == 2
        assert judge.asked == ([2] if name == "judge:own" else [1, 2])
        broken = Judge(1.0, name, "own", failures=(1, 2))
        outcome = run(loop(rule="(round >= 2) & (own > 0)", enrichers=(broken,)))
        assert outcome.decision.reason == "failed"
        assert outcome.answer == ("Lima" if name == "judge:own" else "Oslo")


@both
def test_the_round_whose_judge_failed_keeps_its_answer(how):
    judge = Judge(failures=(3,))
    outcome = run(loop(rule="judge_entailment >= 5", enrichers=(judge,)), how=how)
    assert (outcome.answer, outcome.decision.reason, outcome.decision.stop_round) == ("Lima", "failed", 3)
    assert str(outcome.error) == "the judge is down"


def test_a_loop_with_a_judge_streams_rounds_as_they_end():
    made = loop(rule="judge_entailment >= 5", enrichers=(Judge(),), max_rounds=3)
    assert [made.model.calls for observed, _ in made.stream(Q, POOL) if observed] == [1, 2, 3]


def test_signals_of_the_model_win_over_computed_ones_and_reach_the_decision():
    replies = [Reply(answer="x", signals={"answer_margin": margin}) for margin in (0.0, 0.5, 3.0)]
    made = loop(replies, rule="answer_margin > 2.5", options={"capabilities": {"logprobs"}})
    outcome = run(made)
    assert (outcome.decision.stop_round, outcome.decision.signals["answer_margin"]) == (2, 3.0)


def test_fixed_k_and_tasr_are_what_they_are_called():
    assert run(loop(rule=str(fixed_k(2)))).decision.stop_round == 2
    assert np.isin("p_correct", sorted(tasr().signals)).all()


def test_a_policy_with_another_answer_position_is_refused_before_calls(tmp_path):
    from suffice import AnswerPosition, ChatModel, record
    from suffice.loops.retrieval import Question
    from tests.support.endpoint import Endpoint

    passage = Passage(passage_id="p", title="t", text="x")
    with Endpoint('{"answer": "yes"}') as endpoint:
        model = ChatModel("m", base_url=endpoint.url, position=AnswerPosition("json"))
        marker = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=Policy(max_rounds=1))
        with pytest.raises(ConfigMismatchError, match="'marker'.*'json'"):
            marker.run("Q?", [passage])
        with pytest.raises(ConfigMismatchError, match="position"):
            record([Question(question_id="q", question="Q?", passages=(passage,))], marker, tmp_path / "r.parquet")
        assert endpoint.requests == []
        same = Policy(max_rounds=1, answer_position=AnswerPosition("json"))
        loop = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=same)
        assert loop.run("Q?", [passage]).answer == "yes"

        def span(text):
            return 0, len(text)

        called = AnswerPosition("callable", span=span)
        model = ChatModel("m", base_url=endpoint.url, position=called)
        policy = Policy(max_rounds=1, answer_position=called)
        assert RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy).run("Q?", [passage]).answer
        model.close()
