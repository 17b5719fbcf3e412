"""Loops that ask for their own evidence: each method as its paper says, and the loop around it as any other."""

from __future__ import annotations

import asyncio
import math
import string
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from suffice import (
    ChatModel,
    Policy,
    PoolBM25,
    RetrievalLoop,
    ScriptedModel,
    load_questions,
    read_recording,
    record,
    replay,
)
from suffice.errors import DataError, LogprobsUnavailableError, ModelError, NotFoundError
from suffice.loops.retrieval import Question
from suffice.policy.rounds import Passage, Reply, Token
from suffice_gates.models.attention import dragin_query
from suffice_gates.models.rind import NO_CONTENT_WORDS
from suffice_reader.model import SpanReaderModel
from suffice_retrieval.methods import (
    CHAIN_METHODS,
    CHAIN_OF_THOUGHT,
    Dragin,
    Flare,
    IRCoT,
    QueryLoop,
    SelfAsk,
    parse_method,
)
from suffice_retrieval.methods.chains import answer_of_chain
from suffice_retrieval.methods.flare import masked_text
from tests.support.cli_tools import cli, corpus, dataset
from tests.support.endpoint import Endpoint, prompt_of

Q = "Name the home of the guide of Zorbek."
FACTS = (
    "The guide of Zorbek is Bolgat.",
    "The home of Bolgat is Kemham.",
    "The home of Rufus is Dulham.",
    "The pet of Bolgat is Rovox.",
)
POOL = tuple(Passage(passage_id=f"p{i}", title=f"t{i}", text=text) for i, text in enumerate(FACTS))
CHAIN = (*FACTS[:2], "So the answer is: Kemham.")


class Logged(PoolBM25):
    """A retriever that keeps its queries."""

    def __init__(self):
        super().__init__()
        self.queries = []

    def rank(self, question, *, pool=None, k=None):
        self.queries.append((question, k))
        return super().rank(question, pool=pool, k=k)


def reasoner(text, passages):
    """Write the next sentence of `CHAIN`, if the passages state it, and a sentence too many; read answers from passages."""
    if "Reasoning so far:" not in text:
        return "Kemham" if any("Kemham" in item.text for item in passages) else "nowhere"
    seen, _, chain = text.partition("Reasoning so far:")
    following = next((sentence for sentence in CHAIN if sentence not in chain), "")
    if following in FACTS and following not in seen:
        following = "The guide of Zorbek is Nobody."
    return f"{following} And so on."


def loop(method, script=reasoner, *, policy=None, retriever=None, **options):
    model = ScriptedModel(script, capabilities=options.pop("capabilities", ()))
    return QueryLoop(
        method=method, model=model, retriever=retriever or Logged(), policy=policy or Policy(max_rounds=5), **options
    )


def calls(outcome, component):
    return [r.costs[component].calls if component in r.costs else 0.0 for r in outcome.rounds]


def asked(made):
    """Return what the model was asked to continue, without the reader's questions."""
    return [text for text, _ in made.model.requests if "\n\n" in text]


# IRCoT.


@pytest.mark.parametrize("how", ["sync", "async"])
def test_ircot_asks_with_the_question_and_then_with_its_last_sentence(how):
    made = loop(IRCoT(k=2))
    outcome = made.run(Q, POOL) if how == "sync" else asyncio.run(made.run_async(Q, POOL))
    assert made.retriever.queries == [(Q, 2), (CHAIN[0], 2), (CHAIN[1], 2)]
    assert [r.text for r in outcome.rounds] == [CHAIN[0], " ".join(CHAIN[:2]), " ".join(CHAIN)]
    assert [r.signals["chain_ended"] for r in outcome.rounds] == [0.0, 0.0, 1.0]
    assert outcome.answer == "Kemham"
    assert outcome.decision.reason == "exhausted"
    assert (calls(outcome, "generator"), calls(outcome, "retrieval")) == ([2, 2, 2], [1, 1, 1])


@pytest.mark.parametrize(("k", "most"), [(1, 2), (2, 3), (3, 15)])
def test_ircot_collects_paragraphs_up_to_its_cap_without_repeats(k, most):
    outcome = loop(
        IRCoT(k=k, most=most), lambda text, passages: "The home of Bolgat is far." if "\n\n" in text else "x"
    ).run(Q, POOL)
    collected = []
    for r in outcome.rounds:
        query = Q if r.index == 1 else "The home of Bolgat is far."
        for passage in PoolBM25().rank(query, pool=POOL, k=k):
            if passage.passage_id not in collected and len(collected) < most:
                collected.append(passage.passage_id)
        assert [passage.passage_id for passage in r.passages] == collected


def test_ircots_reader_sees_the_passages_but_not_the_chain():
    made = loop(IRCoT(k=2))
    outcome = made.run(Q, POOL)
    read = [passages for text, passages in made.model.requests if text == Q]
    assert [[item.passage_id for item in passages] for passages in read] == [
        [item.passage_id for item in r.passages] for r in outcome.rounds
    ]


# Self-Ask.


def follow_ups(text, passages):
    """Ask for the guide, then for the home, and answer from the passages in the prompt."""
    del passages
    if "needed here:" not in text:
        return "forced"
    seen, _, chain = text.partition("needed here:")
    if not chain.strip():
        return "Yes.\nFollow up: Who is the guide of Zorbek?\nIntermediate answer: invented\nFollow up: no"
    if chain.count("Follow up:") == 1:
        known = "Bolgat" if FACTS[0] in seen else "unknown"
        return f"Intermediate answer: {known}\nFollow up: What is the home of {known}?\nIntermediate answer: invented"
    return f"{'Kemham' if FACTS[1] in seen else 'unknown'}\nSo the final answer is: Kemham."


def test_self_ask_retrieves_per_follow_up_and_drops_unsupported_text():
    made = loop(SelfAsk(k=1), follow_ups)
    outcome = made.run(Q, POOL)
    assert made.retriever.queries == [("Who is the guide of Zorbek?", 1), ("What is the home of Bolgat?", 1)]
    assert outcome.rounds[-1].text.splitlines() == [
        "Yes.",
        "Follow up: Who is the guide of Zorbek?",
        "Intermediate answer: Bolgat",
        "Follow up: What is the home of Bolgat?",
        "Intermediate answer: Kemham",
        "So the final answer is: Kemham.",
    ]
    assert [r.answer for r in outcome.rounds] == ["forced", "Kemham"]
    assert calls(outcome, "generator") == [
        3,
        1,
    ]  # the first follow-up, its answer, the forced answer; then the chain's own
    assert [item.passage_id for item in outcome.rounds[-1].passages] == ["p1"]


@pytest.mark.parametrize("label", ["", "Intermediate answer: ", "intermediate answer:"])
def test_self_ask_reads_one_intermediate_answer_with_or_without_label(label):
    def script(text, passages):
        if "Intermediate answer:" in text.partition("needed here:")[2]:
            return f"{label}Bolgat\nFollow up: What is the home of Bolgat?\nIntermediate answer: invented"
        return "Follow up: Who is the guide of Zorbek?\nIntermediate answer: invented"

    (first,) = loop(SelfAsk(k=1), script, policy=Policy(max_rounds=1), every_round=False).run(Q, POOL).rounds
    assert first.text.splitlines() == [
        "Follow up: Who is the guide of Zorbek?",
        "Intermediate answer: Bolgat",
        "Follow up: What is the home of Bolgat?",
    ]


def test_self_ask_reads_a_forced_answer_from_chain_and_passages():
    made = loop(SelfAsk(k=1), follow_ups)
    made.run(Q, POOL)
    (passages,) = (passages for text, passages in made.model.requests if text == Q)
    assert passages[-1].text.endswith("Follow up: What is the home of Bolgat?")
    assert [item.passage_id for item in passages] == ["p0", "chain"]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("No.\nSo the final answer is: Kemham.", "Kemham"),
        ("I cannot say.", "forced"),
        ("", "forced"),
        ("Yes.\nFollow up:", "forced"),
    ],
)
def test_self_ask_without_a_follow_up_question_retrieves_nothing_and_ends(reply, answer):
    made = loop(SelfAsk(), lambda text, passages: reply if "needed here:" in text else "forced")
    outcome = made.run(Q, POOL)
    assert (len(outcome.rounds), outcome.answer, made.retriever.queries) == (1, answer, [])
    assert dict(outcome.rounds[0].signals) == {"chain_ended": 1.0, "queries": 0.0}


# FLARE.


def said(*pieces):
    """Return a reply of tokens with probabilities."""
    tokens = tuple(Token(text, math.log(p)) for text, p in pieces)
    return Reply(text="".join(token.text for token in tokens), tokens=tokens)


BOLD = (("The", 0.9), (" home", 0.9), (" of", 0.9), (" Bolgat", 0.7), (" is", 0.9), (" Nowhere", 0.1), (".", 0.9))


def flare_script(pieces, question="Where does Bolgat live?"):
    """Write the first sentence, then the pieces without passages, then from passages, then the answer."""

    def script(text, passages):
        if "Ask one question" in text:
            return question
        if "Reasoning so far:" not in text:
            return "forced"
        seen, _, chain = text.partition("Reasoning so far:")
        if not chain.strip():
            return said((FACTS[0], 0.9))
        if "Passage 1" in seen:
            return said((FACTS[1], 0.9), (" More.", 0.9))
        return said(*pieces) if FACTS[1] not in chain else said((CHAIN[2], 0.95))

    return script


def flare_loop(method, pieces=BOLD, **options):
    return loop(method, flare_script(pieces), capabilities={"logprobs", "token_logprobs"}, **options)


@pytest.mark.parametrize("theta", [0.0, 0.05, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("beta", [0.0, 0.4, 0.8])
def test_flare_retrieves_below_theta_with_the_tokens_that_are_not_below_beta(theta, beta):
    made = flare_loop(Flare(theta=theta, beta=beta, k=2), policy=Policy(max_rounds=2))
    second = made.run(Q, POOL).rounds[1]
    lowest = min(p for _, p in BOLD)
    expected = [(Q, 2)]
    if lowest < theta:
        expected.append(("".join(text for text, p in BOLD if p >= beta).strip(), 2))
    assert made.retriever.queries == expected
    assert second.text == f"{FACTS[0]} {FACTS[1] if lowest < theta else 'The home of Bolgat is Nowhere.'}"
    assert second.signals["lowest_probability"] == pytest.approx(lowest)
    assert second.signals["queries"] == (lowest < theta)


def test_flares_first_sentence_is_written_from_passages_for_the_question():
    made = flare_loop(Flare(k=1), policy=Policy(max_rounds=1))
    (first,) = made.run(Q, POOL).rounds
    assert made.retriever.queries == [(Q, 1)]
    assert "Passage 1: t0" in asked(made)[0]
    assert math.isnan(first.signals["lowest_probability"])


def test_flare_writes_the_sentence_again_from_the_new_passages_alone():
    made = flare_loop(Flare(k=1), policy=Policy(max_rounds=2))
    outcome = made.run(Q, POOL)
    look_ahead, again = asked(made)[1:]
    assert "Passage" not in look_ahead
    assert again.count("Passage") == 1
    assert [item.passage_id for item in outcome.rounds[1].passages] == ["p1"]


def test_flare_asks_a_question_for_each_uncertain_span_and_interleaves_their_passages():
    made = flare_loop(Flare(theta=0.8, beta=0.8, ask=True, k=2), policy=Policy(max_rounds=2))
    second = made.run(Q, POOL).rounds[1]
    requests = [text for text, _ in made.model.requests if "Ask one question" in text]
    assert [text.rpartition("answer is ")[2].partition(".")[0] for text in requests] == ['"Bolgat"', '"Nowhere"']
    assert made.retriever.queries[1:] == [("Where does Bolgat live?", 2)] * 2
    assert (second.costs["query"].calls, second.costs["retrieval"].calls, second.signals["queries"]) == (2, 2, 2)


def test_flare_whose_sentence_is_all_masked_retrieves_nothing_new():
    made = flare_loop(Flare(theta=0.99, beta=0.95), policy=Policy(max_rounds=2))
    first, second = made.run(Q, POOL).rounds
    assert made.retriever.queries == [(Q, 2)]
    assert (second.signals["queries"], second.passages) == (0.0, first.passages)
    without = flare_loop(Flare(theta=0.99, beta=0.05, ask=True), policy=Policy(max_rounds=2))
    without.run(Q, POOL)
    assert without.retriever.queries[1] == ("The home of Bolgat is Nowhere.", 2)


def test_a_masked_query_has_at_most_the_last_64_tokens():
    tokens = [Token(f" w{place}", -0.01 if place % 2 else -5.0) for place in range(200)]
    assert masked_text(tokens, 0.4).split() == [f"w{place}" for place in range(73, 200, 2)]


def test_flare_refuses_a_model_without_log_probabilities_before_the_first_call():
    made = loop(Flare())
    with pytest.raises(LogprobsUnavailableError):
        made.run(Q, POOL)
    assert made.model.calls == 0


def test_flare_says_that_tokens_do_not_spell_the_reply():
    wrong = Reply(text="Another sentence.", tokens=(Token("Oslo", -0.1),))
    made = loop(Flare(), lambda text, passages: wrong, capabilities={"logprobs", "token_logprobs"}, every_round=False)
    outcome = made.run(Q, POOL)
    assert isinstance(outcome.error, ModelError)
    assert "log-probabilities" in str(outcome.error)


# The loop around them.


def test_a_policy_can_stop_a_chain_early_with_the_recorded_rounds(tmp_path):
    for rule in ("round >= 1", "(answer_stable >= 1)", "(chain_ended >= 1)", "(queries < 1)", "(tokens > 60)"):
        made = loop(IRCoT(k=2), policy=Policy(rule=rule, max_rounds=5))
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        question = Question(question_id="q", question=Q, answers=("Kemham",), passages=POOL)
        record([question], made, path)
        row = next(item for item in replay(read_recording(path), [made.policy]).rows if item.kind == "rule")
        live = replace(made, model=ScriptedModel(reasoner)).run(Q, POOL)
        assert dict(row.stop_rounds)[live.decision.stop_round] == 1.0
        assert row.metrics["em"] == float(live.answer == "Kemham")
        assert row.calls.mean == sum(calls(live, "generator"))
        assert row.costs["tokens"] == pytest.approx(live.cost.tokens)


def test_an_interrupted_recording_asks_nothing_twice_and_ends_as_an_uninterrupted_one(tmp_path):
    questions = [
        Question(question_id=f"q{i}", question=Q, answers=("Kemham",), passages=POOL[i:] + POOL[:i]) for i in range(3)
    ]
    whole = loop(SelfAsk(k=1), follow_ups)
    record(questions, whole, tmp_path / "whole.parquet", concurrency=1)
    broken = loop(SelfAsk(k=1), follow_ups)
    broken = replace(broken, model=ScriptedModel(follow_ups, failures={6: ModelError("gone")}))
    summary = record(questions, broken, tmp_path / "run.parquet", concurrency=1)
    assert set(summary.failed) == {"q1"}
    again = loop(SelfAsk(k=1), follow_ups)
    record(questions, again, tmp_path / "run.parquet", concurrency=1)
    assert again.model.calls + broken.model.calls == whole.model.calls + 1  # the call that failed
    first, second = (read_recording(tmp_path / f"{name}.parquet") for name in ("whole", "run"))
    for name in ("answer", "text", "finish_reason"):
        assert first.objects(name).tolist() == second.objects(name).tolist()
    assert np.array_equal(first.column("chain_ended"), second.column("chain_ended"), equal_nan=True)
    assert first.ends.tolist() == second.ends.tolist() == ["exhausted"] * 3


def test_answers_only_at_the_end_cost_less_and_decide_nothing():
    every, last = (loop(IRCoT(k=2), every_round=value).run(Q, POOL) for value in (True, False))
    assert every.answer == last.answer == "Kemham"
    assert [r.answer for r in last.rounds] == [None, None, "Kemham"]
    assert calls(last, "generator") == [1, 1, 2]
    short = loop(IRCoT(k=2), every_round=False, policy=Policy(max_rounds=2)).run(Q, POOL)
    assert [r.answer is None for r in short.rounds] == [True, False]
    with pytest.raises(DataError, match="every_round"):
        loop(IRCoT(), every_round=False, policy=Policy(rule="answer_stable")).run(Q, POOL)


def test_round_zero_is_the_reader_alone():
    outcome = loop(IRCoT(k=2), policy=Policy(start_round=0, max_rounds=3)).run(Q, POOL)
    assert [r.answer for r in outcome.rounds] == ["nowhere", "Kemham", "Kemham", "Kemham"]
    assert outcome.rounds[0].costs.keys() == {"generator"}
    assert [r.text for r in outcome.rounds[1:]] == [" ".join(CHAIN[:n]) for n in (1, 2, 3)]


def test_a_model_that_never_finishes_runs_to_the_cap():
    outcome = loop(IRCoT(), lambda text, passages: "Perhaps.").run(Q, POOL)
    assert (len(outcome.rounds), outcome.decision.reason) == (5, "max_rounds")


def test_a_model_that_writes_nothing_ends_the_chain():
    outcome = loop(IRCoT(), lambda text, passages: "" if "\n\n" in text else "guess").run(Q, POOL)
    assert (len(outcome.rounds), outcome.answer) == (1, "guess")


def test_a_retriever_that_has_nothing_leaves_the_chain_to_the_model():
    class Empty(Logged):
        has_corpus = True

        def rank(self, question, *, pool=None, k=None):
            self.queries.append(question)
            return []

    outcome = loop(IRCoT(), retriever=Empty()).run(Q)
    assert outcome.rounds[0].passages == ()
    assert outcome.rounds[0].text == "The guide of Zorbek is Nobody."


def test_a_question_without_passages_fails_alone(tmp_path):
    with pytest.raises(DataError, match="own passages"):
        loop(IRCoT()).run(Q)
    questions = [
        Question(question_id=str(i), question=Q, answers=("Kemham",), passages=POOL if i else ()) for i in range(2)
    ]
    summary = record(questions, loop(IRCoT(k=2)), tmp_path / "r.parquet")
    assert set(summary.failed) == {"0"}
    assert summary.questions == 1


def test_a_reply_that_was_cut_is_seen_in_its_round():
    def cut(text, passages):
        return Reply(text="The guide of", finish_reason="length") if "\n\n" in text else Reply(answer="x", text="x")

    outcome = loop(IRCoT(), cut, policy=Policy(max_rounds=1)).run(Q, POOL)
    assert (outcome.rounds[0].text, outcome.rounds[0].finish_reason) == ("The guide of", "length")


@pytest.mark.parametrize(
    ("text", "reason", "answer"),
    [
        ("No.\nSo the final answer is: Kem", "length", "read"),
        ("No.\nSo the final answer is: Kemham.", "length", "Kemham"),
        ("No.\nSo the final answer is: Kemham", "stop", "Kemham"),
    ],
)
def test_a_chain_cut_within_its_answer_leaves_it_to_the_reader(text, reason, answer):
    def say(prompt, passages):
        if "needed here:" in prompt:
            return Reply(text=text, finish_reason=reason)
        return Reply(answer="read", text="read")

    outcome = loop(SelfAsk(), say).run(Q, POOL)
    assert (outcome.answer, outcome.rounds[0].finish_reason) == (answer, reason)


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_what_was_paid_before_a_failure_is_counted(failing):
    made = loop(IRCoT(k=2))
    model = ScriptedModel(reasoner, failures={failing: ModelError("gone")})
    outcome = replace(made, model=model).run(Q, POOL)
    assert outcome.error is not None
    assert sum(calls(outcome, "generator")) == failing - 1
    assert outcome.answer == ("Kemham" if failing > 2 else None)


def test_an_asynchronous_retriever_is_awaited():
    class Awaited:
        name = "awaited"

        def fingerprint(self):
            return {"name": self.name}

        async def rank(self, question, *, pool=None, k=None):
            await asyncio.sleep(0)
            return PoolBM25().rank(question, pool=pool, k=k)

    outcome = loop(IRCoT(k=2), retriever=Awaited()).run(Q, POOL)
    assert outcome.answer == "Kemham"


def test_a_model_that_cannot_write_chains_is_refused_before_calls():
    reader = SpanReaderModel()
    with pytest.raises(ModelError, match="chain"):
        QueryLoop(method=IRCoT(), model=reader, retriever=PoolBM25()).check()
    with pytest.raises(ModelError, match="attentions"):
        loop(Dragin(theta=0.4)).check()


def test_a_policy_on_another_methods_signals_is_refused_before_calls():
    made = loop(IRCoT(), policy=Policy(rule="(rind > 0.5)"))
    with pytest.raises(ModelError, match="ircot"):
        made.run(Q, POOL)
    assert made.model.calls == 0


def test_another_reader_may_answer():
    outcome = loop(IRCoT(k=2), reader=SpanReaderModel(), policy=Policy(max_rounds=2)).run(Q, POOL)
    assert outcome.rounds[0].answer is not None
    assert "answer_margin" in outcome.rounds[0].signals


def test_a_policy_of_chains_is_refused_by_a_loop_without_one():
    plain = RetrievalLoop(
        model=ScriptedModel({Q: ["x"]}), retriever=PoolBM25(), policy=Policy(rule="(chain_ended >= 1)")
    )
    with pytest.raises(ModelError, match="--loop"):
        plain.run(Q, POOL)


@pytest.mark.parametrize("name", CHAIN_METHODS)
def test_a_method_is_its_text(name):
    method = parse_method(name)
    assert parse_method(str(method)) == method
    assert method.name == name


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("iterative", NotFoundError, "self_ask"),
        ("ircot(k=0)", DataError, "least 1"),
        ("ircot(k=4, most=3)", DataError, "most"),
        ("flare(theta=2)", DataError, "probability"),
        ("flare(theta='x')", DataError, "type float"),
        ("flare(tau=0.5)", DataError, "'tau'"),
        ("flare(0.5)", DataError, "a method"),
        ("flare(theta=", DataError, "a method"),
        ("flare(theta=__import__('os'))", DataError, "a method"),
        ("dragin(theta=0.4, n=0)", DataError, "n must be"),
        ("dragin(theta=-1.0)", DataError, "n must be"),
    ],
)
def test_a_method_that_does_not_exist_is_refused(text, error, message):
    with pytest.raises(error, match=message):
        parse_method(text)


def test_the_answer_of_a_chain_is_its_last():
    assert answer_of_chain("The answer is: Oslo.\nSo the final answer is: **Bergen**.") == "Bergen"
    assert answer_of_chain("So the answer is") is None
    assert answer_of_chain("It is in Oslo.") is None


def test_an_endpoint_writes_the_chain_and_gives_flare_its_probabilities():
    def reply(body):
        prompt = prompt_of(body)
        if "Reasoning so far:" not in prompt:
            return "Answer: forced\nConfidence: 3"
        chain = prompt.partition("Reasoning so far:")[2]
        return next((sentence for sentence in CHAIN if sentence not in chain), "")

    with Endpoint(reply) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, api_key="key", max_retries=0)
        made = QueryLoop(method=Flare(theta=0.99), model=model, retriever=Logged(), policy=Policy(max_rounds=5))
        outcome = made.run(Q, POOL)
    assert [r.answer for r in outcome.rounds] == ["forced", "forced", "Kemham"]
    assert [r.signals["lowest_probability"] for r in outcome.rounds[1:]] == [pytest.approx(math.exp(-0.05))] * 2
    assert [query for query, _ in made.retriever.queries] == [Q, *CHAIN[1:]]
    assert "answer_margin" not in outcome.rounds[0].signals
    assert outcome.rounds[0].answer_tokens is not None
    assert "".join(token.text for token in outcome.rounds[2].answer_tokens).strip() == "Kemham"

    with Endpoint(reply, logprobs="none") as endpoint:
        model = ChatModel("m", base_url=endpoint.url, api_key="key", max_retries=0)
        with pytest.raises(LogprobsUnavailableError, match="no log-probabilities"):
            QueryLoop(method=Flare(), model=model, retriever=Logged()).run(Q, POOL)
        assert len(endpoint.requests) == 1  # the probe


# DRAGIN, on the tiny model.


@pytest.fixture(scope="module")
def local(tiny_model):
    from suffice.loops.models import PROMPTS
    from suffice_gates.models import TransformersModel

    return TransformersModel(tiny_model, prompt=PROMPTS["prefilled"], max_tokens=6)


def plain_pass(model, ids):
    """Return the probabilities of the next token and the last layer's attentions of one pass."""
    import torch

    model.loaded.network.set_attn_implementation("eager")
    with torch.inference_mode():
        output = model.loaded.network(torch.tensor([ids]), output_attentions=True)
    model.loaded.network.set_attn_implementation("sdpa")
    p = torch.softmax(output.logits[0].double(), dim=-1).numpy()
    return p, output.attentions[-1][0].double().numpy()


def plain_words(model, ids):
    """Return words as lists of positions of tokens, and the text of each token."""
    texts = [
        token.replace("\u0120", " ").replace("\u010a", "\n")
        for token in model.loaded.tokenizer.convert_ids_to_tokens(ids)
    ]
    words = []
    for place, text in enumerate(texts):
        if place == 0 or text[0].isspace():
            words.append([])
        words[-1].append(place)
    return words, texts


def plain_carries(word):
    text = word.strip().lower()
    return (
        any(map(str.isalnum, text))
        and text.strip(string.punctuation) not in NO_CONTENT_WORDS
        and not text.startswith("'")
    )


def plain_dragin(model, messages, reply, texts, n):
    """Return RIND of each word, its sentence, the text before it, and the query of each sentence for any hits, by loops."""
    prompt = model.prompt_ids(messages)
    content = [int(i) for i in model.loaded.tokenizer.convert_tokens_to_ids([token.text for token in reply.tokens])]
    p, _ = plain_pass(model, [*prompt, *content])
    _, attention = plain_pass(model, content)
    words, pieces = plain_words(model, content)
    sentence, of_word, text = 0, [], ""
    for word in words:
        of_word.append(sentence)
        text += "".join(pieces[i] for i in word)
        sentence += text.rstrip().endswith((".", "?", "!"))
    paid = [
        sum(max(head[j][i] for j in range(len(content))) for head in attention) / len(attention)
        for i in range(len(content))
    ]
    scores = []
    for number, word in enumerate(words):
        mates = [i for i, one in enumerate(of_word) if one == of_word[number]]
        total = sum(paid[i] for mate in mates for i in words[mate])
        entropy = sum(-sum(x * math.log(x) for x in p[len(prompt) + i - 1] if x > 0) for i in word) / len(word)
        carries = plain_carries("".join(pieces[i] for i in word))
        scores.append(sum(paid[i] for i in word) / total * entropy * len(mates) * carries)
    spelled = ["".join(pieces[i] for i in word).strip() for word in words]

    def query(theta):
        first = next(i for i, score in enumerate(scores) if score > theta)
        mates = [i for i, one in enumerate(of_word) if one == of_word[first]]
        kept = "".join(pieces[: words[mates[0]][0]])
        whole = " ".join([*(text for text in (*texts, kept.strip()) if text), *(spelled[i] for i in mates)])
        ids = model.loaded.tokenizer(whole)["input_ids"]
        _, heads = plain_pass(model, ids)
        again, shown = plain_words(model, ids)
        mean = [[sum(head[i][j] for head in heads) / len(heads) for j in range(len(ids))] for i in range(len(ids))]
        offset, pull = len(again) - len(mates), [0.0] * len(again)
        hits = [offset + k for k, i in enumerate(mates) if scores[i] > theta]
        for hit in hits:
            start = again[hit][0]
            for token in again[hit]:
                if token == 0:
                    continue
                total = sum(mean[token - 1][:start])
                for k, word in enumerate(again[:hit]):
                    pull[k] += sum(mean[token - 1][j] for j in word) / total / len(again[hit])
        said = ["".join(shown[j] for j in word).strip() for word in again]
        allowed = [k for k in range(len(again)) if plain_carries(said[k]) and k not in hits]
        best = sorted(allowed, key=lambda k: (-pull[k], k))[:n]
        return " ".join(said[k] for k in sorted(best)), kept

    return scores, query


@pytest.mark.parametrize("n", [2, 5, 25])
def test_dragin_asks_for_what_its_needy_words_attend_to(tiny_model, local, n):
    for question in load_questions(tiny_model / "eval.jsonl", limit=3):
        messages = CHAIN_OF_THOUGHT.continuing(question.question, (), "It is old.")
        completion = local.complete(messages)
        reply = Reply(text=completion.text, tokens=completion.tokens, finish_reason=completion.finish_reason)
        texts = (question.question, "It is old.")
        scores, query = plain_dragin(local, messages, reply, texts, n)
        distinct = [value for value in sorted({0.0, *scores}) if value > 1e-6]
        between = [(low + high) / 2 for low, high in pairwise([0.0, *distinct])]
        for theta in (*between, max(scores) + 1):
            reading = dragin_query(local, messages, reply, texts, theta=theta, n=n)
            assert reading.signals["rind"] == pytest.approx(max(scores), abs=1e-6)
            if max(scores) <= theta:
                assert (reading.answer, reading.text) == (None, reply.text)
                assert reading.costs["query"].calls == 2
                continue
            assert (reading.answer, reading.text) == query(theta)
            assert reading.costs["query"].calls == 3


@pytest.mark.parametrize("said", ["Zorbek lives here. Who made it old", "It is old. Zorbek lives here. Name the home"])
def test_the_first_sentence_with_a_needy_word_is_dropped(local, said):
    tokens = tuple(Token(text) for text in local.loaded.tokenizer.tokenize(said))
    reply, messages = Reply(text=said, tokens=tokens), CHAIN_OF_THOUGHT.continuing("Where is it ?", (), "")
    scores, query = plain_dragin(local, messages, reply, ("Where is it ?",), 4)
    for theta in (0.0, *sorted(scores)[:-1]):
        reading = dragin_query(local, messages, reply, ("Where is it ?",), theta=theta + 1e-9, n=4)
        assert (reading.answer, reading.text) == query(theta + 1e-9)


@pytest.mark.parametrize("theta", [0.0, 99.0])
def test_dragin_retrieves_where_rind_is_above_theta(tiny_model, local, theta, tmp_path):
    (question,) = load_questions(tiny_model / "eval.jsonl", limit=1)
    made = QueryLoop(
        method=Dragin(theta=theta, k=1), model=local, retriever=Logged(), policy=local_policy(local, max_rounds=2)
    )
    outcome = made.run(question.question, question.passages)
    assert outcome.error is None
    retrieved = [r.signals["queries"] for r in outcome.rounds]
    assert retrieved == [float(r.signals["rind"] > theta) for r in outcome.rounds]
    assert len(made.retriever.queries) == sum(retrieved)
    assert all(r.costs["query"].calls == 2 + retrieval for r, retrieval in zip(outcome.rounds, retrieved, strict=True))
    record([question], made, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    live = [r.signals["rind"] for r in outcome.rounds]
    assert recording.column("rind")[0, : len(live)] == pytest.approx(live)


def local_policy(model, **settings):
    return Policy(answer_position=model.position, **settings)


# The command line.


def chain_reply(body):
    """Write a chain about the towers of `tests.support.cli_tools`, and their questions if asked."""
    prompt = prompt_of(body)
    if "Ask one question" in prompt:
        return "Where is the tower?"
    if "Reasoning so far:" not in prompt:
        return "Answer: Lima\nConfidence: 3"
    return (
        "So the answer is: Lima."
        if "tower" in prompt.rpartition("Reasoning so far:")[2]
        else "The tower stands in Lima."
    )


def at(endpoint, *more):
    return ["--base-url", endpoint.url, "--model", "m", "--api-key-env", "CHAIN_KEY", *more]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("CHAIN_KEY", "key")


@pytest.mark.parametrize("method", ["self-ask", "ircot(k=1)", "flare(theta=0.99, beta=0.99, ask=True)"])
def test_the_command_records_and_replays_a_method(tmp_path, method):
    data = dataset(tmp_path / "q.jsonl", n=3)
    prices = tmp_path / "prices.toml"
    prices.write_text("[m]\nuncached = 1.0\ncached = 0.1\noutput = 2.0\n")
    with Endpoint(chain_reply) as endpoint:
        more = ["-o", tmp_path / "r.parquet", "--loop", method, "--prices", prices, "--json"]
        summary = cli("record", data, *at(endpoint, *more)).json
    assert summary["questions"] == 3
    assert summary["usd"] > 0
    told = cli("replay", tmp_path / "r.parquet", "--rule", "(chain_ended >= 1)", "--prices", prices, "--json")
    row = next(row for row in told.json["rows"] if row["kind"] == "rule")
    assert row["costs"]["money"] > 0
    assert "method" in read_recording(tmp_path / "r.parquet").table.column_names


def test_the_command_answers_by_a_method(tmp_path):
    with Endpoint(chain_reply) as endpoint:
        more = ["--corpus", corpus(tmp_path / "docs"), "--loop", "ircot", "--rule", "(chain_ended >= 1)", "--json"]
        told = cli("answer", "Where is the tower?", *at(endpoint, *more)).json
    assert (told["answer"], told["reason"], len(told["rounds"])) == ("Lima", "rule", 2)


def test_the_command_refuses_a_method_without_its_means(tmp_path):
    data = dataset(tmp_path / "q.jsonl", n=1)
    out = ["-o", tmp_path / "r.parquet"]
    assert "self_ask" in cli("record", data, *out, "--loop", "rewrite").error
    assert "writes a chain" in cli("record", data, *out, "--loop", "ircot").error
    with Endpoint(chain_reply) as endpoint:
        assert "attentions" in cli("record", data, *out, *at(endpoint, "--loop", "dragin(theta=0.4)")).error
        assert (
            "depend" in cli("record", data, *out, *at(endpoint, "--loop", "ircot", "--set=parallel-rounds=true")).error
        )
