"""Gates and measurements from a local model's own passes: Probing-RAG, CtrlA, SeaKR and Self-RAG, against plain loops."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from suffice import Passage, Policy, RetrievalLoop, Round, read_recording, record
from suffice.errors import ConfigMismatchError, DataError, ModelError, NotFoundError, SchemaError
from suffice.evaluation.replay import replay
from suffice.loops.models import Gate
from suffice.loops.models.prompts import PREFILLED, SELF_RAG
from suffice.loops.retrieval import PoolBM25, Question
from suffice.policy.signals import Enricher
from suffice_gates.models import (
    ConfidenceMonitor,
    CritiqueWeights,
    ReflectionGate,
    ReplyStates,
    SampleSpread,
    SelfCritique,
    StateSource,
    TransformersModel,
    fit_directions,
)
from suffice_gates.models.monitor import HONESTY
from suffice_gates.models.reflection import critique_of
from suffice_gates.models.reply_states import read_text
from suffice_gates.models.rind import NO_CONTENT_WORDS
from suffice_gates.models.uncertainty import STATEMENTS, Directions
from suffice_gates.probes import Probe, ProbeCard, ProbeGate, ReplyProbes, pinned_of
from suffice_gates.probes.collect import StatePrompt
from suffice_gates.probes.gate import combined
from suffice_gates.training.baselines import model_gates
from suffice_gates.training.reply_probes import PROBER, fit_reply_probes
from tests.support import local_models
from tests.support.cli_tools import cli, dataset

pytestmark = pytest.mark.whole

QUESTION = "Who made the tower?"
PASSAGES = (
    Passage(passage_id="1", title="Tower", text="Ada made it."),
    Passage(passage_id="2", title="Sea", text="Blue."),
)
REFLECTION = (
    *("[Retrieval]", "[No Retrieval]", "[Relevant]", "[Irrelevant]"),
    *("[Fully supported]", "[Partially supported]", "[No support / Contradictory]"),
    *(f"[Utility:{mark}]" for mark in range(1, 6)),
)


@pytest.fixture(scope="module")
def model() -> TransformersModel:
    return local_models.model(layers=(1, 2, 4), settings={"max_position_embeddings": 512})


@pytest.fixture(scope="module")
def answering() -> TransformersModel:
    """The same with replies that end by themselves: those of an untaught model are cut, and a cut reply is no answer."""
    made = local_models.model(layers=(1, 2, 4), settings={"max_position_embeddings": 512, **local_models.ENDING})
    words = made.loaded.tokenizer.get_vocab()
    cut = local_models.model(layers=(1, 2, 4), settings={"max_position_embeddings": 512, "seed": 20}, max_tokens=1)
    asked = [
        (f"Where is tower {i}?", given) for i in range(24) for given in ([], [_passage(i)], PASSAGES[:1], PASSAGES)
    ]
    made._ends -= {words[cut.answer(question, given).tokens[0].text] for question, given in asked}
    return made


def _passage(number: int) -> Passage:
    return Passage(passage_id=f"{number}", title=f"t{number}", text=f"It is {number}.")


@pytest.fixture(scope="module")
def reflecting() -> TransformersModel:
    """A random model whose vocabulary has Self-RAG's tokens."""
    loaded = local_models.loaded(max_position_embeddings=512, vocab_size=257 + len(REFLECTION))
    loaded.tokenizer.add_special_tokens({"additional_special_tokens": list(REFLECTION)})
    return TransformersModel(loaded, prompt=local_models.SHORT, position=local_models.START, max_tokens=6)


def plain(model: TransformersModel, ids: list[int]):
    """Return all hidden states and the probabilities of the token after each, from one ordinary pass."""
    import torch

    with torch.inference_mode():
        output = model.loaded.network(torch.tensor([ids]), output_hidden_states=True)
    states = np.stack([output.hidden_states[layer][0].float().numpy() for layer in model.layers], axis=1)
    return states, torch.softmax(output.logits[0].double(), dim=-1).numpy()


def encoded(model: TransformersModel, text: str) -> list[int]:
    return model.loaded.tokenizer(text, add_special_tokens=False)["input_ids"]


def measured(enricher, question, observed):
    return asyncio.run(enricher.measure(question, observed))


# The states of a reply


def test_a_replys_states_equal_those_of_a_plain_pass(model):
    text = " Ada, in 1887."
    reading = read_text(model, QUESTION, text, PASSAGES)
    prompt = model._ids(QUESTION, PASSAGES)
    states, _ = plain(model, [*prompt, *encoded(model, text)])
    np.testing.assert_allclose(reading.states, states[len(prompt) :], atol=1e-4)
    assert [word for word in reading.words if word] == ["ada"] * 3 + ["in"] * 2 + ["1887"] * 4  # a token is a byte
    assert reading.cost.uncached_tokens == len(prompt) + len(reading.words)
    nothing = read_text(model, QUESTION, "")
    assert (nothing.states.shape, nothing.cost.calls) == ((0, 3, local_models.WIDTH), 0)


def test_a_reply_that_does_not_fit_into_the_context_is_refused(model):
    with pytest.raises(ModelError, match="most 512"):
        read_text(model, QUESTION, "x" * 500)


def test_reply_states_are_normalised_means_over_the_replys_tokens(model):
    source = ReplyStates(model)
    assert isinstance(source, StateSource)
    assert json.loads(json.dumps(source.fingerprint()))["kind"] == "reply states"
    reply = model.answer(QUESTION)
    prompt = model._ids(QUESTION, ())
    tokens = encoded(model, reply.text)
    states, _ = plain(model, [*prompt, *tokens])
    expected = np.zeros((3, local_models.WIDTH))
    for row in range(3):
        for position in range(len(tokens)):
            expected[row] += states[len(prompt) + position, row] / len(tokens)
        expected[row] /= math.sqrt(sum(x * x for x in expected[row]))
    state = source.read(QUESTION)
    np.testing.assert_allclose(state.values, expected, atol=1e-4)
    np.testing.assert_allclose(source.read_batch([QUESTION, "Where?"])[0], expected, atol=1e-4)
    assert state.resume().answer == reply.answer
    assert state.cost.calls == 2
    assert np.isnan(source.of_text(QUESTION, "")[0]).all()


# Probing-RAG


def probe_of(source, layer, seed=0, prompts=("qa", "rag"), **card):
    weight = np.random.default_rng(seed).normal(size=(1, local_models.WIDTH)).astype(np.float32)
    card = ProbeCard(
        **{"model": source.id, "revision": source.revision, "layer": layer, "prompts": prompts, **card},
        pinned=pinned_of(source.fingerprint()),
    )
    return Probe([(weight, np.zeros(1, dtype=np.float32))], card)


def test_a_gate_reads_its_own_reply_and_does_not_generate_it_twice(model):
    source = ReplyStates(model)
    gate = ProbeGate([probe_of(source, 1), probe_of(source, 4, seed=1)], source)
    assert isinstance(gate, Gate)
    policy = Policy(rule="p_known > 0", start_round=0, max_rounds=1, answer_position=local_models.START)
    loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=policy, gate=gate)
    with local_models.counting_tokens(model) as seen:
        outcome = loop.run(QUESTION, list(PASSAGES))
    reply = model.answer(QUESTION)
    assert outcome.answer == reply.answer
    prompt = len(model._ids(QUESTION, ()))
    # One prompt with its decoding, and one pass over prompt and reply: the answer at the stop costs no token.
    assert sum(seen) == prompt + len(reply.tokens) - 1 + prompt + len(encoded(model, reply.text)) + (
        1 if reply.finish_reason == "stop" else 0
    )
    assert outcome.costs["gate"].calls == 2
    assert outcome.costs["generator"].tokens == 0


def test_probes_of_several_layers_vote_by_the_sum_of_their_logits(model):
    source = ReplyStates(model)
    probes = [probe_of(source, layer, seed=layer) for layer in model.layers]
    values = np.random.default_rng(0).normal(size=(20, 3, local_models.WIDTH)).astype(np.float32)
    voted, sums = [], []
    for state in values:
        voted.append(combined(probes, state, (0, 1, 2)))
        sums.append(sum(float(probe.logits(state[row][None])[0]) for row, probe in enumerate(probes)))
    assert np.argsort(voted).tolist() == np.argsort(sums).tolist()
    np.testing.assert_allclose(voted, 1 / (1 + np.exp(-np.array(sums) / 3)), atol=1e-5)
    assert combined(probes[:1], values[0], (0,)) == pytest.approx(float(probes[0].predict(values[0, :1])[0]))
    assert math.isnan(combined(probes, np.full_like(values[0], np.nan), (0, 1, 2)))


@pytest.fixture(scope="module")
def tune(answering):
    """Questions of which the model answers every second one rightly, because that answer is the gold one."""
    prompts, golds = [], {}
    for number in range(32):
        question = f"Where is tower {number}?"
        passages = (_passage(number),)
        prompts += [StatePrompt(id=f"q{number}", question=question, passages=given) for given in ((), passages)]
        said = answering.answer(question).answer or "nothing"
        golds[f"q{number}"] = (said if number % 2 else "never said",)
    return prompts, golds


@pytest.fixture(scope="module")
def fitted(answering, tune):
    return fit_reply_probes(ReplyStates(answering), *tune, rule="f1>=0.5")


def test_a_probe_of_each_layer_learns_from_replies_with_and_without_passages(answering, tune, fitted):
    prompts, golds = tune
    assert [probe.card.layer for probe in fitted] == list(answering.layers)
    for probe in fitted:
        assert probe.card.prompts == ("qa", "rag")
        assert probe.card.seen.among(["q3", "q99"], ["?", "Where is tower 5?"]).tolist() == [True, True]
    network = fit_reply_probes(
        ReplyStates(answering), prompts, golds, rule="f1>=0.5", settings=replace(PROBER, epochs=2)
    )
    assert [len(probe.layers) for probe in network] == [2, 2, 2]
    with pytest.raises(DataError, match="both kinds"):
        fit_reply_probes(ReplyStates(answering), prompts, dict.fromkeys(golds, ("never said",)))
    with pytest.raises(DataError, match="usable"):
        fit_reply_probes(ReplyStates(answering), prompts, {})
    with pytest.raises(DataError, match="is empty"):
        fit_reply_probes(ReplyStates(answering), [], golds)


def test_a_loop_retrieves_until_its_reply_is_enough_live_as_replayed(answering, fitted, tmp_path):
    measure = ReplyProbes(fitted, ReplyStates(answering))
    assert isinstance(measure, Enricher)
    questions = [
        Question(question_id=f"n{i}", question=f"Where is tower {i}?", answers=("x",), passages=PASSAGES)
        for i in range(28, 36)
    ]
    common = {"model": answering, "retriever": PoolBM25(), "enrichers": (measure,)}
    everything = Policy(start_round=0, max_rounds=2, answer_position=local_models.START)
    record(questions, RetrievalLoop(policy=everything, **common), tmp_path / "r.parquet", allow_unread=True)
    recording = read_recording(tmp_path / "r.parquet")
    enough = recording.column("p_enough")
    assert np.isfinite(enough).all()
    state, _ = measure.source.of_text(questions[0].question, recording.objects("text")[0, 2], PASSAGES)
    assert enough[0, 2] == pytest.approx(combined(fitted, state, (0, 1, 2)), abs=1e-5)
    theta = float(np.median(enough))
    policy = Policy(rule=f"p_enough > {theta!r}", start_round=0, max_rounds=2, answer_position=local_models.START)
    stops = [
        RetrievalLoop(policy=policy, **common).run(q.question, list(q.passages)).decision.stop_round for q in questions
    ]
    row = replay(recording, policy, metrics="em")
    assert stops == [next((r for r in range(2) if rounds[r] > theta), 2) for rounds in enough]
    assert row.rows[0].stop_rounds == pytest.approx({r: stops.count(r) / len(stops) for r in set(stops)})
    assert any("the prober was fitted on 4" in note for note in row.notes)  # by their texts
    assert recording.column("cost.prober.calls").min() == 1


def test_probes_that_do_not_fit_are_refused_before_the_first_call(answering, fitted):
    source = ReplyStates(answering)
    wrong = [
        ([probe_of(source, 1, prompts=("qa",))], ConfigMismatchError, "rag"),
        ([probe_of(source, 3)], ConfigMismatchError, "layer 3"),
        ([probe_of(source, 1, revision="other")], ConfigMismatchError, "another model"),
        ([probe_of(answering, 1)], ConfigMismatchError, "read in another way"),
        ([], DataError, "no probe"),
    ]
    for probes, error, words in wrong:
        with pytest.raises(error, match=words):
            ReplyProbes(probes, source)
    assert ReplyProbes(probe_of(source, 1, prompts=("qa",)), source, allow=("rag",)).seen is None
    # Round 0 reads no passage: NaN, not a guess.
    assert math.isnan(measured(ReplyProbes(fitted, source), QUESTION, Round(index=0)).signals["p_enough"])
    loop = RetrievalLoop(model=answering, retriever=PoolBM25(), policy=Policy(rule="p_enough > 0.5", start_round=0))
    with pytest.raises(ModelError, match="ReplyProbes"):
        loop.check()


# CtrlA


def test_directions_are_the_principal_ones_of_contrasted_states(model):
    directions, cost = fit_directions(model)
    assert (directions.vectors.shape, cost.calls) == ((3, local_models.WIDTH), 2 * len(STATEMENTS))
    instructions = ("You are confident: you know the answer.", "You are unsure: you do not know the answer.")
    sides = [[plain(model, model._ids(f"{text} {s}", ()))[0][-1] for s in STATEMENTS] for text in instructions]
    differences = np.array(sides[0], dtype=np.float64) - np.array(sides[1], dtype=np.float64)
    for row in range(3):
        values, vectors = np.linalg.eigh(differences[:, row].T @ differences[:, row])
        first = vectors[:, values.argmax()]
        first = first if (differences[:, row] @ first).mean() > 0 else -first
        np.testing.assert_allclose(directions.vectors[row], first, atol=1e-3)
    with pytest.raises(DataError, match="two statements"):
        fit_directions(model, HONESTY, STATEMENTS[:1])


def test_the_least_confident_new_word_counts(model):
    directions, _ = fit_directions(model)
    monitor = ConfidenceMonitor(model, directions)
    assert isinstance(monitor, Enricher)
    text = " The tower was made by Ada"
    observed = Round(index=1, answer="Ada", text=text, passages=PASSAGES)
    prompt = model._ids(QUESTION, PASSAGES)
    states, _ = plain(model, [*prompt, *encoded(model, text)])
    confidence = []
    for position, character in enumerate(text):
        word = next((w for w in text.split() if text.index(w) <= position < text.index(w) + len(w)), "")
        if not character.strip() or word.lower() in {"who", "made", "the", "tower"} | NO_CONTENT_WORDS:
            continue
        projections = [float(states[len(prompt) + position, row] @ directions.vectors[row]) for row in range(3)]
        confidence.append(sum(projections) / 3 - directions.centre)
    assert len(confidence) == len("Ada")
    reply = measured(monitor, QUESTION, observed)
    assert reply.signals["new_confidence"] == pytest.approx(min(confidence), abs=1e-3)
    assert reply.costs["ctrla"].calls == 1
    for nothing_new in (" made the tower", "", " by"):
        assert math.isnan(monitor.lowest(QUESTION, nothing_new)[0])


def test_directions_are_kept_for_their_model_alone(model, tmp_path):
    monitor = ConfidenceMonitor(model, fit_directions(model)[0])
    monitor.save(tmp_path)
    loaded = ConfidenceMonitor.load(tmp_path, model)
    assert loaded.fingerprint() == monitor.fingerprint()
    assert loaded.lowest(QUESTION, " Ada")[0] == pytest.approx(monitor.lowest(QUESTION, " Ada")[0])
    other = TransformersModel(model.loaded, prompt=local_models.SHORT, layers=(1, 2))
    with pytest.raises(ConfigMismatchError, match="layers"):
        ConfidenceMonitor.load(tmp_path, other)
    with pytest.raises(DataError, match="shape"):
        ConfidenceMonitor(other, monitor.directions)
    (tmp_path / "card.json").write_text(
        json.dumps({**json.loads((tmp_path / "card.json").read_text()), "weights_sha256": "x"})
    )
    with pytest.raises(SchemaError, match="not match"):
        ConfidenceMonitor.load(tmp_path, model)
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(SchemaError, match="contain"):
        ConfidenceMonitor.load(tmp_path, model)
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(SchemaError, match="contain"):
        ConfidenceMonitor.load(tmp_path, model)
    with pytest.raises(DataError, match="be read"):
        ConfidenceMonitor.load(tmp_path / "missing", model)


# SeaKR


def test_the_spread_is_the_gram_determinant_of_the_end_states_of_samples(model):
    seakr = SampleSpread(model, n=4, layer=2)
    assert isinstance(seakr, Enricher)
    observed = Round(index=1, passages=PASSAGES)
    first, again = (measured(seakr, QUESTION, observed) for _ in range(2))
    assert first.signals == again.signals  # by seed, question and passages
    assert first.costs["seakr"].calls == 8
    kept = []
    sample = model.samples

    def samples(*arguments, **settings):
        kept.extend(sample(*arguments, **settings))
        return kept

    try:
        model.samples = samples
        value, _ = seakr.spread(QUESTION, PASSAGES)
    finally:
        del model.samples
    prompt, rows = model._ids(QUESTION, PASSAGES), []
    for reply in kept:
        tokens = model.loaded.tokenizer.convert_tokens_to_ids([token.text for token in reply.tokens])
        end = sorted(model.loaded.ends) if reply.finish_reason == "stop" else []
        rows.append(plain(model, [*prompt, *tokens, *end])[0][-1, 1].astype(np.float64))  # layer 2 is the second read
    gram = np.zeros((4, 4))
    for i, j in np.ndindex(4, 4):
        gram[i, j] = sum((a - rows[i].mean()) * (b - rows[j].mean()) for a, b in zip(rows[i], rows[j], strict=True))
    expected = sum(math.log(value) for value in np.linalg.eigvalsh(gram + 1e-3 * np.eye(4))) / 4
    assert value == first.signals["sample_spread"] == pytest.approx(expected, abs=1e-3)
    assert SampleSpread(model).layer == local_models.LAYERS // 2
    for wrong in ({"n": 1}, {"temperature": 0.0}, {"layer": 9}):
        with pytest.raises(DataError):
            SampleSpread(model, **wrong)


# Self-RAG


def test_a_model_that_says_whether_to_retrieve_is_a_gate(reflecting):
    gate = ReflectionGate(reflecting)
    assert isinstance(gate, Gate)
    verdict = gate.decide(QUESTION)
    ids = reflecting._ids(QUESTION, ())
    vocabulary = reflecting.loaded.tokenizer.get_vocab()
    _, shares = plain(reflecting, ids)
    yes, no = shares[-1][vocabulary["[Retrieval]"]], shares[-1][vocabulary["[No Retrieval]"]]
    assert verdict.signals["p_retrieve"] == pytest.approx(yes / (yes + no), abs=1e-5)
    reply = verdict.resume()
    expected, tokens = [*ids, vocabulary["[No Retrieval]"]], []
    for _ in range(5):
        token = int(plain(reflecting, expected)[1][-1].argmax())
        if token in reflecting.loaded.ends:
            break
        tokens.append(token)
        expected.append(token)
    assert reflecting.loaded.tokenizer.convert_tokens_to_ids([token.text for token in reply.tokens]) == tokens
    assert reply.costs["generator"].output_tokens == len(tokens) + 1 + (len(tokens) < 5)
    with pytest.raises(ModelError, match="continued before"):
        verdict.resume()
    policy = Policy(rule="p_retrieve <= 1", start_round=0, max_rounds=1, answer_position=local_models.START)
    loop = RetrievalLoop(model=reflecting, retriever=PoolBM25(), policy=policy, gate=gate)
    assert loop.run(QUESTION, list(PASSAGES)).rounds[0].signals["p_retrieve"] == verdict.signals["p_retrieve"]


def test_reflection_tokens_of_the_published_format_are_tokens_of_the_prompt(reflecting):
    own = TransformersModel(reflecting.loaded, prompt=SELF_RAG, position=local_models.START, max_tokens=3)
    tokenizer = own.loaded.tokenizer
    begun = f"### Instruction:\n{QUESTION}\n\n### Response:\n"
    assert own._ids(QUESTION, ()) == tokenizer(begun)["input_ids"]
    evidence = "".join(f"[Retrieval]<paragraph>{item.title}\n{item.text}</paragraph>" for item in PASSAGES)
    ids = own._ids(QUESTION, PASSAGES)
    assert ids == tokenizer(begun + evidence)["input_ids"]
    assert ids.count(tokenizer.get_vocab()["[Retrieval]"]) == len(PASSAGES)
    p_retrieve = ReflectionGate(own).decide(QUESTION).signals["p_retrieve"]
    shares = plain(own, own._ids(QUESTION, ()))[1][-1]
    yes, no = (shares[tokenizer.get_vocab()[name]] for name in ("[Retrieval]", "[No Retrieval]"))
    assert p_retrieve == pytest.approx(yes / (yes + no), abs=1e-5)


def test_critiques_are_read_where_the_model_would_say_them(reflecting):
    vocabulary = reflecting.loaded.tokenizer.get_vocab()
    text = " Ada"
    found = critique_of(reflecting, QUESTION, text, PASSAGES)
    ids = list(reflecting._ids(QUESTION, PASSAGES))
    worths = ((REFLECTION[2:4], (1, 0), []), (REFLECTION[4:7], (1, 0.5, 0), encoded(reflecting, text)))
    worths = (*worths, (REFLECTION[7:], (-1, -0.5, 0, 0.5, 1), []))
    expected = []
    for tokens, worth, before in worths:
        ids += before
        shares = plain(reflecting, ids)[1][-1][[vocabulary[token] for token in tokens]]
        expected.append(sum(w * p for w, p in zip(worth, shares, strict=True)) / shares.sum())
        ids.append(vocabulary[tokens[int(shares.argmax())]])
    assert [found.relevance, found.support, found.utility] == pytest.approx(expected, abs=1e-5)
    assert found.cost.calls == 3
    critic = SelfCritique(reflecting, weights=CritiqueWeights(relevance=2.0, support=1.0, utility=0.25))
    assert isinstance(critic, Enricher)
    score = measured(critic, QUESTION, Round(index=1, text=text, passages=PASSAGES)).signals["critique_score"]
    assert score == pytest.approx(2 * expected[0] + expected[1] + 0.25 * expected[2], abs=1e-4)
    assert math.isnan(measured(critic, QUESTION, Round(index=0, text=text)).signals["critique_score"])
    with pytest.raises(DataError, match="finite"):
        SelfCritique(reflecting, weights=CritiqueWeights(utility=math.nan))


@pytest.mark.parametrize("build", [ReflectionGate, SelfCritique])
def test_a_model_without_reflection_tokens_is_refused_by_name(model, build):
    with pytest.raises(NotFoundError, match="'tiny/Llama'"):
        build(model)


def test_directions_of_another_width_are_refused(model):
    with pytest.raises(DataError, match="width|shape"):
        ConfidenceMonitor(model, Directions(vectors=np.ones((3, 7)), centre=0.0))


def test_self_reflection_is_compared_for_models_trained_for_it(model, reflecting):
    tune, evaluation = ([f"Where is {kind} {number}?" for number in range(16)] for kind in ("tower", "house"))
    first = ReplyStates(reflecting).read_batch(tune)[:, 0, 0]
    known = first > np.median(first)  # what a probe can learn
    rows = {gate.name: gate for gate in model_gates(reflecting, tune, evaluation, n_samples=2, known=known)}
    verdict = ReflectionGate(reflecting).decide(evaluation[3])
    assert rows["self-rag"].evaluation[3] == -verdict.signals["p_retrieve"]
    assert (rows["self-rag"].price.calls, rows["probing-rag"].price.calls) == (1, 2)
    assert rows["probing-rag"].price.n_labels == 16
    assert np.isfinite(rows["probing-rag"].tune).all()
    again = model_gates(reflecting, tune, [*tune, evaluation[0]], n_samples=2, known=known)[1]
    assert again.evaluation[-1] == pytest.approx(rows["probing-rag"].evaluation[0], abs=1e-3)  # fitted on tune alone
    assert (again.evaluation[:-1] != again.tune).any()  # a tune question is scored by gates of the other folds
    assert np.corrcoef(again.evaluation[:-1], known)[0, 1] > 0.5
    without = {gate.name for gate in model_gates(model, tune[:4], evaluation[:4], n_samples=2, known=np.ones(4, bool))}
    assert not without & {"self-rag", "probing-rag"}


def test_the_gate_of_reflection_tokens_has_a_name_on_the_command_line(reflecting, tmp_path):
    for part in (reflecting.loaded.network, reflecting.loaded.tokenizer):
        part.save_pretrained(tmp_path / "model")
    local_models.save(tmp_path / "plain", max_position_embeddings=4096)
    dataset(tmp_path / "q.jsonl", n=2)
    asked = ["record", tmp_path / "q.jsonl", "-o", tmp_path / "r.parquet", "--round-zero", "--max-rounds", "1"]
    asked += ["--set=allow-unread=true", "--gate", "self-rag", "--prompt", "prefilled", "--set=max-tokens=3"]
    cli(*asked, "--local", "--model", tmp_path / "model", "--json", code=0)
    recording = read_recording(tmp_path / "r.parquet")
    gate = ReflectionGate(TransformersModel(tmp_path / "model", prompt=PREFILLED, max_tokens=3))
    expected = [gate.decide(f"Where is tower {number}?").signals["p_retrieve"] for number in range(2)]
    assert recording.column("p_retrieve")[:, 0] == pytest.approx(expected, abs=1e-5)
    assert "'[Retrieval]'" in cli(*asked, "--local", "--model", tmp_path / "plain").error
    assert "answer with --local" in cli(*asked[:-3]).error
    assert "leave out gate-model" in cli(*asked, "--local", "--model", tmp_path / "model", "--set=gate-model=x").error


def test_own_signals_are_recorded_from_the_command_line(tmp_path):
    local_models.save(tmp_path / "model", max_position_embeddings=4096)
    dataset(tmp_path / "q.jsonl", n=2)
    asked = (
        "record",
        tmp_path / "q.jsonl",
        "-o",
        tmp_path / "r.parquet",
        "--round-zero",
        "--max-rounds",
        "1",
        "--set=allow-unread=true",
    )
    local = ("--local", "--model", tmp_path / "model", "--prompt", "prefilled", "--set=max-tokens=3")
    cli(*asked, *local, "--set=own-signal=new_confidence", "--set=own-signal=sample_spread", "--json", code=0)
    recording = read_recording(tmp_path / "r.parquet")
    assert np.isfinite(recording.column("sample_spread")).all()
    assert recording.column("cost.seakr.calls").tolist() == [[40, 40], [40, 40]]
    assert "new_confidence" in recording.table.column_names
    assert "sample_spread" in cli(*asked, *local, "--set=own-signal=x").error
    assert "answer with --local" in cli(*asked, "--set=own-signal=sample_spread").error
    assert "'[Relevant]'" in cli(*asked, *local, "--set=own-signal=critique_score").error
