"""Local models: states as transformers has them, answers as it generates them, one pass for both, bad input."""

import asyncio
import gc
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import DataError, LogprobsUnavailableError, ModelError
from suffice.loops import RetrievalLoop, record
from suffice.loops.models import Answerer
from suffice.loops.models.prompts import ANSWER_FIRST, Prompt
from suffice.loops.retrieval import PoolBM25, Question, load_questions
from suffice.policy.rounds import Cost, Passage, Round
from suffice.policy.session import Policy
from suffice.policy.signals.margins import answer_margin, token_margin
from suffice.recordings import read_recording
from suffice_gates.models import LoadedModel, StateSource, TransformersModel
from suffice_gates.models._transformers_loading import folder_revision, off_the_device
from suffice_gates.models._transformers_passes import GeneratedToken, generate, last_states, prefill
from tests.support.local_models import (
    LAYERS,
    NO_SYSTEM,
    SHORT,
    START,
    TEMPLATE,
    WIDTH,
    counting_tokens,
    loaded,
    model,
    network,
    save,
    tokenizer,
)

pytestmark = [
    pytest.mark.whole,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:transformers"),
]
ARCHITECTURES = ["Llama", "GPT2", "Qwen2", "GPTNeoX", "OPT", "Gemma2", "Mistral", "Falcon"]
QUESTIONS = ["Who wrote It?", "Where?", "In which year was the tower of the old town built, and by whom?", "Why so?"]
PASSAGES = [Passage(passage_id=str(i), title=f"T{i}", text=f"Text of {i}.") for i in range(3)]


@pytest.fixture
def _no_garbage(monkeypatch):
    """To collect the garbage of all tests so far takes longer than what is tested; one test here waits for a collection."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


@pytest.fixture(scope="module")
def llama():
    return model()


def hidden_states(made, ids):
    """Return transformers' own states of the last token, every layer."""
    import torch

    with torch.no_grad():
        found = made.network(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return np.stack([layer[0, -1].numpy() for layer in found])


def ids_of(made, question, passages=()):
    return made._ids(question, passages)


# States


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_states_are_those_of_transformers_in_every_layer_and_architecture(kind):
    made = loaded(kind)
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 256, size=n).tolist() for n in (3, 14, 9)]
    layers = list(range(LAYERS + 1))
    expected = np.stack([hidden_states(made, row) for row in ids])
    assert np.abs(last_states(made, ids, layers) - expected).max() < 1e-4
    assert np.abs(prefill(made, ids, layers).states - expected).max() < 1e-4
    assert np.abs(np.diff(expected, axis=1)).max() > 0.1  # the layers differ, or this would show nothing


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_answers_are_those_that_transformers_generates(kind):
    import torch

    made = model(kind)
    for passages in ([], PASSAGES[:2]):
        ids = ids_of(made, QUESTIONS[2], passages)
        told = made.loaded.network.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
            max_new_tokens=8,
            do_sample=False,
            pad_token_id=256,
            output_logits=True,
            return_dict_in_generate=True,
        )
        expected = told.sequences[0, len(ids) :].tolist()
        (steps,) = generate(made.loaded, prefill(made.loaded, [ids], ()), max_tokens=8, ends=made.loaded.ends, n_top=5)
        assert [step.token for step in steps] == expected
        for step, logits in zip(steps, told.logits, strict=True):
            best = torch.log_softmax(logits[0].float(), -1).topk(5)
            assert [token for token, _ in step.top] == best.indices.tolist()
            assert [value for _, value in step.top] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert made.answer(QUESTIONS[2], passages).text == made.loaded.tokenizer.decode(
            expected, skip_special_tokens=True
        )


@settings(max_examples=12, deadline=None)
@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9), batch=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_batch_of_any_prompts_equals_each_alone(llama, lengths, batch, seed):
    rng = np.random.default_rng(seed)
    questions = ["".join(rng.choice(list("abcdef "), size=n)) + "?" for n in lengths]
    passages = [PASSAGES[: rng.integers(0, 4)] for _ in lengths]
    many = TransformersModel(llama.loaded, prompt=SHORT, layers=(0, 1, "middle", -1), batch_size=batch)
    together = many.read_batch(questions, passages)
    alone = np.stack([many.read(q, p).values for q, p in zip(questions, passages, strict=True)])
    assert together.shape == (len(lengths), 4, WIDTH)
    assert np.abs(together - alone).max() < 1e-4


def test_layers_above_the_highest_wanted_do_not_run(llama):
    ran = []
    stack = llama.loaded.network.model.layers
    hooks = [layer.register_forward_hook(lambda *_a, i=i: ran.append(i)) for i, layer in enumerate(stack)]
    try:
        TransformersModel(llama.loaded, prompt=SHORT, layers=("middle",)).read_batch(QUESTIONS)
        assert ran == [0, 1]
        ran.clear()
        TransformersModel(llama.loaded, prompt=SHORT, layers=("last", 0)).read_batch(QUESTIONS)
        assert ran == [0, 1, 2, 3]
    finally:
        for hook in hooks:
            hook.remove()


def test_reading_leaves_no_hook_behind_also_after_a_failure(llama):
    def hooks():
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in llama.loaded.network.modules())

    before = hooks()
    llama.read_batch(QUESTIONS)
    llama.read(QUESTIONS[0])
    with pytest.raises(IndexError):
        last_states(llama.loaded, [[10**6]], [1])
    assert hooks() == before


def test_logits_are_computed_only_for_the_last_token_of_a_pass(llama):
    seen = []
    hook = llama.loaded.network.lm_head.register_forward_hook(lambda _m, args, _o: seen.append(tuple(args[0].shape)))
    try:
        llama.read_batch(QUESTIONS)
        assert seen == []
        llama.read(QUESTIONS[2])
        assert seen == [(1, 1, WIDTH)]
    finally:
        hook.remove()


def test_both_prompts_can_be_read_each_with_its_own_text(llama):
    other = Prompt(name="rag", version=1, system="Use the passages.", question="Q: {question}")
    both = TransformersModel(llama.loaded, prompt=SHORT, rag_prompt=other, layers=("last",))
    assert both.prompts == ("qa", "rag")
    assert both.prompt_text("Who?") == llama.prompt_text("Who?")
    assert both.prompt_text("Who?", PASSAGES[:1]).startswith("Use the passages.\n\nQ: Who?")
    assert not np.allclose(both.read("Who?").values, both.read("Who?", PASSAGES[:1]).values)
    assert both.fingerprint() != TransformersModel(llama.loaded, prompt=SHORT, layers=("last",)).fingerprint()


def test_layers_have_names_and_unknown_ones_are_refused(llama):
    assert TransformersModel(llama.loaded, layers=("middle", "last", -1, 0, "3")).layers == (2, 4, 4, 0, 3)
    for layer in (5, -6, "upper"):
        with pytest.raises(DataError, match="layer|exist"):
            TransformersModel(llama.loaded, layers=(layer,))


# One pass for both


def test_going_on_from_a_pass_processes_no_prompt_token_twice(llama):
    question, n_prompt = QUESTIONS[2], len(ids_of(llama, QUESTIONS[2]))
    with counting_tokens(llama) as seen:
        state = llama.read(question)
        assert seen == [n_prompt]
        reply = state.resume()
    generated = int(reply.costs["generator"].output_tokens)
    assert generated > 1
    assert seen == [n_prompt] + [1] * (generated - 1)  # the first token comes from the pass, the last is not read
    assert (state.cost.calls, state.cost.uncached_tokens, state.cost.output_tokens) == (1, n_prompt, 0)
    assert reply.costs["generator"].uncached_tokens == reply.costs["generator"].cached_tokens == 0
    with counting_tokens(llama) as anew:
        llama.read(question)
        llama.answer(question)
    assert sum(anew) == sum(seen) + n_prompt  # what reuse saves


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_text_after_a_pass_equals_a_plain_answer(kind):
    made = model(kind)
    for question, passages in zip(QUESTIONS, ([], PASSAGES, [], PASSAGES[:1]), strict=True):
        state, plain = made.read(question, passages), made.answer(question, passages)
        resumed = state.resume()
        assert (resumed.text, resumed.answer) == (plain.text, plain.answer)
        assert [t.logprob for t in resumed.tokens] == pytest.approx([t.logprob for t in plain.tokens], abs=1e-5)
        assert plain.costs["generator"].uncached_tokens == state.cost.uncached_tokens
        assert plain.costs["generator"].output_tokens == resumed.costs["generator"].output_tokens


def test_going_on_twice_gives_the_same_reply_and_generates_once(llama):
    state = llama.read(QUESTIONS[0])
    first = state.resume()
    with counting_tokens(llama) as seen:
        assert state.resume() is first
    assert seen == []


def test_a_pass_that_goes_on_from_nowhere_gives_its_memory_back(llama):
    state = llama.read(QUESTIONS[0])
    cache = weakref.ref(state.resume._start.cache)
    del state
    gc.collect()
    assert cache() is None


# Answers


def test_it_is_an_answerer_and_a_state_source(llama):
    assert isinstance(llama, Answerer)
    assert isinstance(llama, StateSource)
    assert llama.capabilities == {"logprobs", "token_logprobs"}
    llama.verify(frozenset({"logprobs"}))
    one = TransformersModel(llama.loaded, top_logprobs=1)
    assert one.capabilities == {"verbal_confidence"}
    with pytest.raises(LogprobsUnavailableError, match="top_logprobs is 1"):
        one.verify(frozenset({"token_logprobs"}))


def test_the_margin_of_an_answer_is_read_from_its_first_token(llama):
    import torch

    asked = [f"Who wrote book {i}?" for i in range(60)]  # an untaught model says bytes that are no text
    replies = ((question, llama.answer(question)) for question in asked)  # and never ends: its answers are cut
    located = ((q, reply, START.locate(reply.text, reply.tokens)) for q, reply in replies)
    question, reply, answer = next(item for item in located if item[2].answer_tokens)
    position = next(i for i, token in enumerate(reply.tokens) if token is answer.answer_tokens[0])
    ids = ids_of(llama, question)
    for token in reply.tokens[:position]:
        ids.append(llama.loaded.tokenizer.convert_tokens_to_ids(token.text))
    with torch.no_grad():
        first, second = llama.loaded.network(torch.tensor([ids])).logits[0, -1].topk(2).values.tolist()
    observed = Round(index=0, answer=answer.answer, answer_tokens=answer.answer_tokens)
    assert answer_margin([observed]) == pytest.approx(first - second, abs=1e-4)


def test_tokens_of_an_answer_are_found_where_characters_are_split_over_them(llama):
    ids = llama.loaded.tokenizer("A: Čapek\nmore", add_special_tokens=False)["input_ids"]
    steps = [GeneratedToken(i, -0.5, ((i, -0.5), (5, -1.5))) for i in ids]
    reply = llama._reply(llama._completion(steps, Cost()))
    assert reply.answer == "Čapek"
    assert len(reply.answer_tokens) == len("Čapek".encode())
    assert answer_margin([Round(index=0, answer_tokens=reply.answer_tokens)]) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_answers_in_batches_equal_single_ones(kind):
    made = model(kind, batch_size=3)
    passages = [PASSAGES[:n] for n in (0, 3, 1, 2)]
    together = made.answers(QUESTIONS, passages)
    for question, shown, reply in zip(QUESTIONS, passages, together, strict=True):
        alone = made.answer(question, shown)
        assert reply.text == alone.text
        assert [token_margin(t) for t in reply.tokens] == pytest.approx(
            [token_margin(t) for t in alone.tokens], abs=1e-3
        )
        assert reply.costs["generator"].uncached_tokens == alone.costs["generator"].uncached_tokens
        assert reply.costs["generator"].output_tokens == alone.costs["generator"].output_tokens


def test_a_reply_ends_at_the_end_token_or_the_limit(llama):
    import torch

    first = llama.answer(QUESTIONS[0]).tokens[2]
    ends = TransformersModel(llama.loaded, prompt=SHORT, position=START)
    ends._ends = frozenset([llama.loaded.tokenizer.convert_tokens_to_ids(first.text)])
    reply = ends.answer(QUESTIONS[0])
    assert (reply.finish_reason, len(reply.tokens), reply.costs["generator"].output_tokens) == ("stop", 2, 3)
    assert llama.answer(QUESTIONS[0]).finish_reason == "length"

    short = model(settings={"max_position_embeddings": len(ids_of(llama, QUESTIONS[0])) + 2}, max_tokens=50)
    full = short.answer(QUESTIONS[0])
    assert (full.finish_reason, len(full.tokens)) == ("length", 3)  # the last one is generated and not read
    assert torch.is_inference_mode_enabled() is False


def test_samples_follow_the_models_probabilities(llama):
    import torch

    one = TransformersModel(llama.loaded, prompt=SHORT, position=START, max_tokens=1, batch_size=500)
    with torch.no_grad():
        logits = llama.loaded.network(torch.tensor([ids_of(one, QUESTIONS[0])])).logits[0, -1]
    for temperature in (0.5, 1.0):
        expected = torch.softmax(logits / temperature, -1).numpy()
        drawn = one.samples(QUESTIONS[0], n=2000, temperature=temperature, rng=np.random.default_rng(0))
        ids = [llama.loaded.tokenizer.convert_tokens_to_ids(reply.tokens[0].text) for reply in drawn if reply.tokens]
        best = int(expected.argmax())
        share = np.mean([i == best for i in ids])
        assert share == pytest.approx(expected[best], abs=4 * np.sqrt(0.25 / 2000))
    assert len({reply.text for reply in llama.samples(QUESTIONS[0], n=20, rng=np.random.default_rng(1))}) > 1
    cold = llama.samples(QUESTIONS[0], n=3, temperature=1e-6, rng=np.random.default_rng(2))
    assert {reply.text for reply in cold} == {llama.answer(QUESTIONS[0]).text}
    for wrong in ({"n": 0}, {"n": 2, "temperature": 0.0}):
        with pytest.raises(DataError, match="n must be"):
            llama.samples(QUESTIONS[0], rng=np.random.default_rng(0), **wrong)


def test_a_loop_records_its_answers_and_their_margins(llama, tmp_path):
    asked = [
        Question(question_id=str(i), question=f"Who wrote book {i}?", answers=("King",), passages=tuple(PASSAGES))
        for i in range(5)
    ]
    policy = Policy(start_round=0, max_rounds=2, answer_position=START)
    words = llama.loaded.tokenizer.get_vocab()
    llama = TransformersModel(llama.loaded, prompt=SHORT, position=START, max_tokens=8)
    llama._ends = frozenset(i for text, i in words.items() if not text.isascii())  # an untaught model never ends
    loop = RetrievalLoop(model=llama, retriever=PoolBM25(), policy=policy)
    summary = record(asked, loop, tmp_path / "r.parquet", concurrency=3)
    assert not summary.failed
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.shape == (5, 3)
    for q, question in enumerate(asked):
        for r in range(3):
            reply = llama.answer(question.question, loop_passages(question, r) if r else ())
            assert recording.objects("text")[q, r] == reply.text
            margin = answer_margin([Round(index=r, answer_tokens=reply.answer_tokens)])
            assert recording.column("answer_margin")[q, r] == pytest.approx(margin, abs=1e-4, nan_ok=True)
    assert np.isfinite(recording.column("answer_margin")).any()
    assert (recording.column("cost.generator.uncached_tokens") > 0).all()


def loop_passages(question, r):
    return PoolBM25().rank(question.question, pool=question.passages, k=r)


def test_async_answers_equal_sync_ones_whatever_reads_beside_them(llama):
    async def all_at_once():
        reads = [asyncio.to_thread(llama.read, q) for q in QUESTIONS]
        answers = [llama.answer_async(q, PASSAGES[:1]) for q in QUESTIONS]
        return await asyncio.gather(*answers), await asyncio.gather(*reads)

    replies, states = asyncio.run(all_at_once())
    assert [reply.text for reply in replies] == [llama.answer(q, PASSAGES[:1]).text for q in QUESTIONS]
    assert np.allclose(np.stack([s.values for s in states]), llama.read_batch(QUESTIONS), atol=1e-5)


def test_cancelling_a_task_ends_its_generation():
    made = model(max_tokens=1_000, settings={"max_position_embeddings": 50_000})
    made._ends = frozenset()  # else it may end by itself
    stepped, cancelled = threading.Event(), threading.Event()
    steps = []

    def step(*_):
        steps.append(1)
        stepped.set()
        cancelled.wait()

    hook = made.loaded.network.register_forward_hook(step)

    async def cancel():
        task = asyncio.create_task(made.answer_async(QUESTIONS[0]))
        await asyncio.to_thread(stepped.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()

    asyncio.run(cancel())  # waits for the worker thread
    hook.remove()
    assert len(steps) <= 2  # it ended at its next token


def passes_of(made, together=0):
    """The number of prompts in each pass over prompts; the first goes on when so many are in its batch or wait for the next."""
    sizes = []

    def noted(_module, args):
        while not sizes and made._queue._expected + len(made._queue._waiting) < together:
            time.sleep(0.001)
        if args[0].shape[1] > 1:
            sizes.append(len(args[0]))

    made.loaded.network.get_input_embeddings().register_forward_pre_hook(noted)
    return sizes


def test_batched_and_single_passes_record_the_same_rows(tmp_path):
    asked = load_questions("hotpotqa_tune", limit=5)
    rows, sizes = {}, {}
    for batch in (1, 4):
        made = model(batch_size=batch, settings={"max_position_embeddings": 8192})
        sizes[batch] = passes_of(made, together=batch)
        loop = RetrievalLoop(
            model=made, retriever=PoolBM25(), policy=Policy(start_round=0, max_rounds=2, answer_position=START)
        )
        assert not record(asked, loop, tmp_path / f"{batch}.parquet", concurrency=4).failed
        rows[batch] = read_recording(tmp_path / f"{batch}.parquet")
    assert set(sizes[1]) == {1}
    assert max(sizes[4]) > 1
    assert sum(sizes[4]) == sum(sizes[1]) == 15
    assert len(sizes[4]) < len(sizes[1])
    for name in (
        "question_id",
        "round",
        "answer",
        "text",
        "cost.generator.uncached_tokens",
        "cost.generator.output_tokens",
    ):
        assert rows[4].table.column(name).equals(rows[1].table.column(name)), name
    np.testing.assert_allclose(rows[4].column("answer_margin"), rows[1].column("answer_margin"), atol=1e-4)


@pytest.mark.usefixtures("_no_garbage")
def test_prompts_that_wait_together_share_a_pass_also_where_one_fails(monkeypatch):
    made = model(batch_size=8)
    sizes, long = passes_of(made), "Who wrote all of these books? " * 4
    Scarce(made, len(ids_of(made, long)) - 1, MemoryError("none left"))

    async def together(questions):
        return await asyncio.gather(*map(made.answer_async, questions), return_exceptions=True)

    replies = asyncio.run(together([*QUESTIONS, long, *QUESTIONS]))
    assert isinstance(replies[len(QUESTIONS)], ModelError)
    texts = [reply.text for reply in replies if not isinstance(reply, ModelError)]
    assert texts == [model().answer(question).text for question in QUESTIONS] * 2
    assert made.batch_size < 8
    del sizes


def test_a_long_prompt_does_not_cut_the_replies_that_share_its_batch():
    short, long = "Who?", "Who wrote it and when was it and where?"
    context = len(ids_of(model(), long)) + 9
    made = model(max_tokens=20, settings={"max_position_embeddings": context})
    made._ends = frozenset()
    alone = [made.answer(question) for question in (short, long)]
    assert len({reply.costs["generator"].output_tokens for reply in alone}) == 2
    for reply, single in zip(made.answers([short, long]), alone, strict=True):
        assert (reply.text, reply.costs["generator"].output_tokens) == (
            single.text,
            single.costs["generator"].output_tokens,
        )


def test_the_fingerprint_tells_what_changes_replies(llama):
    import json

    told = llama.fingerprint()
    assert json.loads(json.dumps(told)) == told
    others = [
        TransformersModel(llama.loaded, prompt=ANSWER_FIRST, position=START, max_tokens=8, layers=("middle", "last")),
        TransformersModel(llama.loaded, prompt=SHORT, position=START, max_tokens=9, layers=("middle", "last")),
        TransformersModel(llama.loaded, prompt=SHORT, position=START, max_tokens=8, layers=("middle",)),
        model(template=TEMPLATE),
        model("GPT2"),
    ]
    assert all(other.fingerprint() != told for other in others)
    assert model(batch_size=3).fingerprint() == told


# From messages to tokens


def test_a_chat_template_is_used_where_there_is_one():
    made = model(template=TEMPLATE)
    text = made.prompt_text("Who?", PASSAGES[:1])
    assert text == "<|system|>Answer.<end><|user|>Q: Who?\nA:\nT0: Text of 0.<end><|assistant|>"
    assert ids_of(made, "Who?").count(256) == 2  # `<end>` is one token, and nothing is added


def test_thinking_is_switched_off_through_the_chat_templates_own_variable():
    thinks = TEMPLATE + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    made, quiet = (
        model(template=thinks, chat_template_kwargs=options) for options in (None, {"enable_thinking": False})
    )
    assert quiet.prompt_text("Who?") == made.prompt_text("Who?") + "<think></think>"
    assert quiet.fingerprint()["template_sha256"] != made.fingerprint()["template_sha256"]
    assert made.fingerprint() == model(template=thinks, chat_template_kwargs={}).fingerprint()
    with pytest.raises(DataError, match="'enable_thinkin'"):
        model(template=TEMPLATE, chat_template_kwargs={"enable_thinkin": False})
    with pytest.raises(DataError, match="'enable_thinking'"):
        model(chat_template_kwargs={"enable_thinking": False})


def test_a_template_without_system_role_puts_instructions_in_the_user_message():
    made = model(template=NO_SYSTEM)
    assert made.prompt_text("Who?") == "<|user|>Answer.\n\nQ: Who?\nA:<end><|assistant|>"
    assert made.answer("Who?").text


def test_without_a_template_the_raw_text_is_read(llama):
    assert llama.prompt_text("Who?") == "Answer.\n\nQ: Who?\nA:\n\n"
    bare = TransformersModel(llama.loaded, prompt=Prompt(name="bare", version=1, system="", question="{question}"))
    assert bare.prompt_text("Who?") == "Who?\n\n"
    first = tokenizer(bos_token="<s>")
    first._tokenizer.post_processor = _adds(first.bos_token_id)
    begins = TransformersModel(
        type(llama.loaded)(network=network(vocab_size=260), tokenizer=first, id="b", revision="0")
    )
    assert ids_of(begins, "Who?")[0] == first.bos_token_id
    first.chat_template = TEMPLATE
    assert ids_of(TransformersModel(begins.loaded), "Who?")[0] != first.bos_token_id  # a template writes it itself


def _adds(bos):
    from tokenizers import processors

    return processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_prefilled_start_of_the_reply_is_the_end_of_the_prompt(template):
    prompt = Prompt(name="p", version=1, system="Answer.", question="Q: {question}", prefill="A:")
    made = TransformersModel(loaded(template=template), prompt=prompt)
    assert made.prompt_text("Who?").endswith("A:")
    assert made.position.kind == "start"


def test_lone_surrogates_and_all_of_unicode_can_be_read(llama):
    for question in ("\ud800?", "Qui a écrit « Ça » ?", "谁写的?", "\x00", "🙂" * 3):
        assert np.isfinite(llama.read(question).values).all()


# Bad input


def test_a_prompt_longer_than_the_context_is_refused_by_length_and_limit():
    made = model(settings={"max_position_embeddings": 60}, max_tokens=4)
    long = "word " * 30
    n = len(ids_of(model(), long))
    for call in (made.answer, made.read, lambda q: made.read_batch(["Who?", q]), lambda q: made.answers([q])):
        with pytest.raises(ModelError, match=f"{n} tokens"):
            call(long)
    whole = model(settings={"max_position_embeddings": n}, max_tokens=4)
    assert len(whole.answer(long).tokens) <= 1  # it just fits, and leaves room for one token
    unbounded = loaded()
    unbounded.tokenizer.model_max_length = 70  # the model's own word goes first
    assert unbounded.context == 2048
    assert loaded("Mamba").context is None
    shorter = model(max_prompt_tokens=30)
    with pytest.raises(ModelError, match="most 30"):
        shorter.answer("Who was it, after all?")


@pytest.mark.parametrize("question", ["", "  \n", None])
def test_an_empty_question_has_no_state(llama, question):
    with pytest.raises(DataError, match="not blank"):
        llama.read(question)
    with pytest.raises(DataError, match="question 1"):
        llama.read_batch(["Who?", question])


def test_one_text_is_no_list_of_questions_and_passages_go_with_questions(llama):
    with pytest.raises(DataError, match="of questions"):
        llama.read_batch("Who?")
    with pytest.raises(DataError, match="got 1 list"):
        llama.read_batch(["Who?", "Where?"], [PASSAGES])
    assert llama.read_batch([]).shape == (0, 2, WIDTH)


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"top_logprobs": 0}, {"batch_size": 0}])
def test_parameters_out_of_range_are_refused(llama, wrong):
    with pytest.raises(DataError, match="least 1"):
        TransformersModel(llama.loaded, **wrong)


def test_undefined_states_stay_undefined():
    import torch

    made = model(layers=(0, "last"))
    with torch.no_grad():
        made.loaded.network.model.layers[3].mlp.down_proj.weight.fill_(float("nan"))
    states = made.read_batch(QUESTIONS)
    assert np.isfinite(states[:, 0]).all()
    assert np.isnan(states[:, 1]).all()
    assert np.isnan(answer_margin([Round(index=0, answer_tokens=made.answer("Who?").tokens)]))


def test_tied_weights_are_like_any_others():
    made = model(settings={"tie_word_embeddings": True})
    assert made.loaded.network.lm_head.weight is made.loaded.network.model.embed_tokens.weight
    ids = ids_of(made, QUESTIONS[0])
    assert np.abs(made.read(QUESTIONS[0]).values - hidden_states(made.loaded, ids)[[2, 4]]).max() < 1e-4


def test_quantised_weights_are_named(llama):
    made = model()
    made.loaded.network.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    assert made.loaded.precision == "float32, quantised by gptq"
    assert made.fingerprint() != llama.fingerprint()


def test_half_precision_is_read_as_float32_and_named():
    made = model()
    full = made.read_batch(QUESTIONS)
    cast_weights(made.loaded.network)
    half = made.read_batch(QUESTIONS)
    assert half.dtype == np.float32
    assert made.fingerprint()["precision"] == "bfloat16"
    assert 0 < np.abs(half - full).max() < 0.2 * np.abs(full).max()


def cast_weights(network):
    """Round the weights to bfloat16, but not the frequencies of positions, as loading in this precision does."""
    import torch

    for weights in network.parameters():
        weights.data = weights.data.to(torch.bfloat16)


def test_a_cast_that_rounds_frequencies_is_another_precision():
    import torch

    made, cast = model(), model()
    cast_weights(made.loaded.network)
    cast.loaded.network.to(torch.bfloat16)
    assert cast.loaded.precision == "bfloat16, cast after loading"
    assert cast.fingerprint() != made.fingerprint()


def test_a_model_whose_layers_cannot_be_found_says_so():
    made = model(layers=("last",))
    made.loaded.network.config.num_hidden_layers = 3
    with pytest.raises(ModelError, match="hidden states"):
        TransformersModel(made.loaded, prompt=SHORT, layers=(1,)).read("Who?")
    made.loaded.network.config.num_hidden_layers = 0
    with pytest.raises(ModelError, match="num_hidden_layers"):
        TransformersModel(made.loaded)


def test_a_pass_that_would_forget_its_prompt_is_refused(monkeypatch):
    made = model()
    forward = made.loaded.network.forward
    monkeypatch.setattr(
        made.loaded.network, "forward", lambda input_ids, attention_mask=None: forward(input_ids, use_cache=True)
    )
    with pytest.raises(ModelError, match="keys and values"):
        made.answer("Who?")


def test_a_model_without_key_value_cache_shows_states_but_cannot_continue():
    made = model("Mamba", layers=("last",))
    states = made.read_batch(QUESTIONS[:2])
    expected = [hidden_states(made.loaded, ids_of(made, q))[-1] for q in QUESTIONS[:2]]
    assert np.abs(states[:, 0] - np.stack(expected)).max() < 1e-3
    with pytest.raises(ModelError, match="keys and values"):
        made.answer("Who?")


class Scarce:
    """Memory for so many tokens of one pass and no more."""

    def __init__(self, made, limit, error):
        self.sizes = []
        self.limit, self.error = limit, error
        made.loaded.network.get_input_embeddings().register_forward_pre_hook(self)

    def __call__(self, _module, args):
        self.sizes.append(len(args[0]))
        if args[0].numel() > self.limit:
            raise self.error


def out_of_memory():
    import torch

    return [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory: you tried to ..."),
        MemoryError(),
    ]


@pytest.mark.usefixtures("_no_garbage")
@pytest.mark.parametrize("number", range(3))
def test_out_of_memory_halves_the_batch_and_continues(number):
    questions = [f"Who wrote book {i}?" for i in range(16)]
    expected = model().read_batch(questions)
    made = model(batch_size=8)
    scarce = Scarce(made, 3 * len(ids_of(made, questions[-1])), out_of_memory()[number])
    assert np.abs(made.read_batch(questions) - expected).max() < 1e-5
    assert scarce.sizes == [8, 4] + [2] * 8
    assert made.batch_size == 2
    scarce.sizes.clear()
    made.read_batch(questions[:4])
    assert scarce.sizes == [2, 2]  # it stays so
    assert [r.text for r in made.answers(questions[:3])] == [r.text for r in model().answers(questions[:3])]


@pytest.mark.usefixtures("_no_garbage")
def test_too_little_memory_for_one_prompt_is_an_error_with_length():
    made = model(batch_size=4)
    n = len(ids_of(made, "Who?"))
    Scarce(made, 3, MemoryError("none left"))
    for call in (made.read, made.answer, lambda q: made.read_batch([q, "Why?"])):
        with pytest.raises(ModelError, match=f"{n} tokens"):
            call("Who?")


def test_other_failures_are_not_taken_for_a_lack_of_memory():
    made = model()
    Scarce(made, 0, RuntimeError("device-side assert triggered"))
    with pytest.raises(RuntimeError, match="^device-side assert") as failed:
        made.read_batch(["Who?", "Why?"])
    assert type(failed.value) is RuntimeError
    assert made.batch_size == 16


# Loading


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "llama")


def test_a_folder_is_loaded_and_its_weights_are_pinned(folder, tmp_path):
    made = TransformersModel(folder, prompt=SHORT, position=START, max_tokens=8, layers=("middle", "last"))
    assert made.id == made.name == f"{folder.parent.name}/llama"
    assert np.abs(made.read_batch(QUESTIONS) - model().read_batch(QUESTIONS)).max() < 1e-5
    assert made.answer("Who?").text == model().answer("Who?").text
    other = save(tmp_path / "llama", seed=1)
    assert folder_revision(other) != made.revision == folder_revision(folder)
    (folder / "probe").mkdir()
    (folder / "probe" / "card.json").write_text("{}")
    assert folder_revision(folder) == made.revision


@pytest.mark.usefixtures("_no_garbage")
def test_a_model_leaves_its_device_for_a_while_and_comes_back():
    import torch

    moves = []

    class Network:
        device = torch.device("cuda")
        config = SimpleNamespace()

        def to(self, place):
            moves.append(str(place))

    made = LoadedModel(network=Network(), tokenizer=None, id="m", revision="1")
    with off_the_device(made):
        moves.append("training")
    assert moves == ["cpu", "training", "cuda"]
    with pytest.raises(KeyError), off_the_device(made):
        raise KeyError
    assert moves[3:] == ["cpu", "cuda"]


@pytest.mark.usefixtures("_no_garbage")
@pytest.mark.parametrize("held", [{"device": "cpu"}, {"quantised": True}, {"places": {"a": 0, "b": 1}}])
def test_a_model_that_cannot_move_or_need_not_stays(held, caplog):
    import torch

    network = SimpleNamespace(
        device=torch.device(held.get("device", "cuda")),
        config=SimpleNamespace(quantization_config={} if held.get("quantised") else None),
        hf_device_map=held.get("places", {}),
    )
    with off_the_device(LoadedModel(network=network, tokenizer=None, id="m", revision="1")):
        pass
    assert ("stays on its device" in caplog.text) == ("device" not in held)


def test_the_precision_can_be_chosen(folder):
    assert TransformersModel(folder, dtype="bfloat16").loaded.precision == "bfloat16"
    assert TransformersModel(folder, dtype="float32", device="cpu").loaded.precision == "float32"


@pytest.mark.parametrize(
    ("name", "words"), [("./missing", "'./missing'"), ("{tmp}/missing", "exist"), ("{tmp}", "save_pretrained")]
)
def test_a_path_without_a_model_says_what_belongs_there(tmp_path, name, words):
    with pytest.raises(ModelError, match=words):
        TransformersModel(name.format(tmp=tmp_path))


def test_damaged_weights_are_an_error_that_names_the_folder(folder, tmp_path):
    broken = save(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="loaded"):
        TransformersModel(broken)


def test_a_hub_id_without_a_network_says_how_to_pass_a_path(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as raised:
        TransformersModel("someone/some-model")
    assert "'someone/some-model' cannot be loaded (" in str(raised.value)
    assert "it is not a local folder" in str(raised.value)
    assert "give the path of a folder" in str(raised.value)
