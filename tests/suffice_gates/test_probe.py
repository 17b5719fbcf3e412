"""Probes: numpy equals torch, figures equal scikit-learn's, other models, layers and prompts are refused, nothing runs."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from suffice import Cost, Passage, Policy, Reply, RetrievalLoop, parse_rule
from suffice.errors import ConfigMismatchError, DataError, ModelError, SchemaError
from suffice.evaluation.statistics import Resampling
from suffice.loops.models import Gate
from suffice.loops.retrieval import InMemoryRetriever
from suffice.policy.calibration.calibrator import Sigmoid
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice_gates.models.states import State, StateSource
from suffice_gates.probes import (
    Calibration,
    LabelRule,
    Probe,
    ProbeCard,
    ProbeConfidence,
    ProbeGate,
    closed_book_labels,
    is_right,
    measure_probe,
)
from tests.support import local_models

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

CARD = ProbeCard(
    model="tiny", revision="1", layer=2, pinned={"kind": "fake", "prompt_sha256": "qa", "rag_prompt_sha256": "rag"}
)


def made(widths=(6, 5, 3, 1), card=CARD, seed=0, standard=False):
    rng = np.random.default_rng(seed)
    layers = [
        (rng.normal(size=(out, given)).astype(np.float32), rng.normal(size=out).astype(np.float32))
        for given, out in pairwise(widths)
    ]
    scaled = {"mean": rng.normal(size=widths[0]), "scale": rng.uniform(0.5, 2, widths[0])} if standard else {}
    return Probe(layers, card, **scaled)


class Source:
    """Vectors by question; counts."""

    def __init__(self, width=6, **changes):
        self.id, self.revision, self.layers, self.prompts = "tiny", "1", (1, 2), ("qa", "rag")
        self.told = dict(CARD.pinned)
        self.width, self.asked, self.fails = width, [], False
        vars(self).update(changes)

    def fingerprint(self):
        return {"model": self.id, "revision": self.revision, "layers": list(self.layers), "max_tokens": 8, **self.told}

    def vector(self, question, layer, passages=()):
        seed = sum(map(ord, question)) + 1000 * layer + 77 * len(passages)
        return np.random.default_rng(seed).normal(size=self.width).astype(np.float32)

    def read(self, question, passages=()):
        self.asked.append(question)
        if self.fails:
            raise ModelError("down")
        values = np.stack([self.vector(question, layer, passages) for layer in self.layers or (2,)])
        if question == "nan":
            values[:, 3] = np.nan
        return State(values=values, cost=Cost(calls=1, uncached_tokens=5.0), resume=lambda: Reply(answer="resumed"))

    def read_batch(self, questions, passages=None):
        given = passages or [()] * len(questions)
        return np.stack([self.read(q, p).values for q, p in zip(questions, given, strict=True)])


def test_the_double_is_a_source_and_the_gate_is_a_gate():
    assert isinstance(Source(), StateSource)
    assert isinstance(ProbeGate(made(), Source()), Gate)


# --- the network


@pytest.mark.whole
@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("widths", [(6, 1), (64, 16, 1), (512, 448, 224, 112, 56, 1)])
def test_numpy_equals_torch_to_five_digits(widths, standard):
    import torch

    probe = made(widths, standard=standard)
    parts = []
    for weight, bias in probe.layers:
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight * np.sqrt(2 / weight.shape[1])))
            linear.bias.copy_(torch.from_numpy(bias))
        parts += [linear, torch.nn.ReLU()]
    scaled = Probe(
        [(w * np.sqrt(2 / w.shape[1]), b) for w, b in probe.layers], CARD, mean=probe.mean, scale=probe.scale
    )
    states = np.random.default_rng(1).normal(size=(200, widths[0])).astype(np.float32)
    x = torch.from_numpy(states)
    if standard:
        x = (x - torch.from_numpy(probe.mean)) / torch.from_numpy(probe.scale)
    with torch.no_grad():
        expected = torch.sigmoid(torch.nn.Sequential(*parts[:-1])(x))[:, 0].numpy()
    np.testing.assert_allclose(scaled.predict(states), expected, atol=1e-5)
    assert expected.std() > 0.05


ANY = arrays.arrays(
    np.float32,
    st.tuples(st.integers(0, 6), st.just(6)),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)


@settings(max_examples=150, deadline=None)
@given(ANY, st.booleans(), st.sampled_from([Sigmoid(1.0, 0.0), Sigmoid(0.1, -2.0)]))
def test_any_state_gives_a_probability_or_is_undefined(states, standard, curve):
    probe = made(standard=standard).calibrated(Calibration(method="platt", map=curve))
    found = probe.predict(states)
    assert found.shape == (len(states),)
    assert ((found >= 0) & (found <= 1) | np.isnan(found)).all()
    assert np.isnan(found[~np.isfinite(states).all(axis=1)]).all()


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 7))
def test_a_question_alone_gets_what_it_gets_among_others(order, undefined):
    states = np.random.default_rng(3).normal(size=(8, 6)).astype(np.float32)
    states[undefined, 2] = np.nan
    probe = made(standard=True)
    whole = probe.predict(states)
    np.testing.assert_allclose(probe.predict(states[list(order)]), whole[list(order)], atol=1e-6)
    alone = np.concatenate([probe.predict(states[i : i + 1]) for i in range(8)])
    np.testing.assert_allclose(alone, whole, atol=1e-6)
    assert np.flatnonzero(np.isnan(whole)).tolist() == [undefined]


@pytest.mark.parametrize("shape", [(6,), (3, 5), (3, 7), (2, 6, 1), (0,)])
def test_states_of_another_shape_are_refused(shape):
    with pytest.raises(DataError, match=r"\(n, 6\)"):
        made().predict(np.zeros(shape))


def test_states_that_are_no_numbers_are_refused():
    with pytest.raises(DataError, match="shape"):
        made().predict(np.full((2, 6), "x"))


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ([], "width"),
        ([(np.ones((2, 6)), np.zeros(2))], "one number"),
        ([(np.ones((3, 6)), np.zeros(3)), (np.ones((1, 2)), np.zeros(1))], "width"),
        ([(np.ones((1, 6)), np.zeros(2))], "bias"),
        ([(np.full((1, 6), np.nan), np.zeros(1))], "diverged"),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, told):
    with pytest.raises(DataError, match=told):
        Probe(layers, CARD)
    with pytest.raises(DataError, match="scale"):
        Probe([(np.ones((1, 2)), np.zeros(1))], CARD, scale=np.array([1.0, 0.0]))


# --- the files


def test_a_probe_reads_back_as_it_was_written(tmp_path):
    probe = made(standard=True).described(provenance={"seed": 3}, prompts=("qa", "rag"))
    probe = probe.calibrated(Calibration(method="temperature", map=Sigmoid(0.4, 0.0)))
    probe.save(tmp_path / "p")
    back = Probe.load(tmp_path / "p")
    states = np.random.default_rng(0).normal(size=(9, 6))
    np.testing.assert_array_equal(back.predict(states), probe.predict(states))
    assert back.card == probe.card
    assert back.pin() == json.loads(json.dumps(probe.pin())) == probe.pin()
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["card.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda card: card.pop("layer"), "missing fields"),
        (lambda card: card.update(extra=1), "unknown fields"),
        (lambda card: card.update(format="suffice.policy"), "of a probe"),
        (lambda card: card.update(version=2), "version 2"),
        (lambda card: card.update(layer="2"), "wrong kind"),
        (lambda card: card.update(layer=True), "wrong kind"),
        (lambda card: card.update(prompts=[]), "wrong kind"),
        (lambda card: card.update(prompts="qa"), "wrong kind"),
        (lambda card: card.update(model=None), "wrong kind"),
        (lambda card: card.update(weights_sha256="0" * 64), "match the card"),
        (lambda card: card.update(calibration={"method": "x", "map": "python", "code": "1"}), "calibration map"),
        (lambda card: card.update(calibration={"map": "sigmoid", "slope": 1, "intercept": 0}), "method"),
        (
            lambda card: card.update(
                calibration={"method": "temperature", "map": "sigmoid", "slope": -1, "intercept": 0}
            ),
            "slope",
        ),
    ],
)
def test_a_card_that_was_tampered_with_is_refused(tmp_path, change, told):
    made().save(tmp_path)
    card = json.loads((tmp_path / "card.json").read_text())
    change(card)
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(SchemaError, match=told):
        Probe.load(tmp_path)


def test_damaged_and_missing_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="be read"):
        Probe.load(tmp_path / "nothing")
    made().save(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SchemaError, match="match the card"):
        Probe.load(tmp_path)
    (tmp_path / "card.json").write_text('{"format": NaN}')
    with pytest.raises(SchemaError, match="NaN is"):
        Probe.load(tmp_path)
    (tmp_path / "card.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="not text"):
        Probe.load(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        ({"layers.0.weight": np.ones((1, 6)), "layers.0.bias": np.zeros(1)}, "float32"),
        ({"layers.0.weight": np.ones((1, 6), np.float32)}, "layers.N.weight"),
        ({"w": np.ones((1, 6), np.float32)}, "layers.N.weight"),
    ],
)
def test_weights_of_another_layout_are_refused(tmp_path, tensors, told):
    from safetensors.numpy import save

    made().save(tmp_path)
    stored = save(tensors)
    import hashlib

    card = json.loads((tmp_path / "card.json").read_text()) | {"weights_sha256": hashlib.sha256(stored).hexdigest()}
    (tmp_path / "card.json").write_text(json.dumps(card))
    (tmp_path / "model.safetensors").write_bytes(stored)
    with pytest.raises(SchemaError, match=told):
        Probe.load(tmp_path)


def test_a_pickle_is_not_opened(tmp_path):
    import hashlib
    import pickle

    made().save(tmp_path)
    stored = pickle.dumps({"layers.0.weight": 1})
    card = json.loads((tmp_path / "card.json").read_text()) | {"weights_sha256": hashlib.sha256(stored).hexdigest()}
    (tmp_path / "card.json").write_text(json.dumps(card))
    (tmp_path / "model.safetensors").write_bytes(stored)
    with pytest.raises(SchemaError, match="safetensors"):
        Probe.load(tmp_path)


@pytest.mark.whole
def test_serving_a_probe_needs_neither_torch_nor_scipy(tmp_path):
    made(standard=True).save(tmp_path)
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sklearn', 'scipy', 'sentence_transformers'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from suffice_gates.probes.probe import Probe\n"
        f"print(Probe.load({str(tmp_path)!r}).predict(np.zeros((1, 6))).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=1800)
    assert (done.stdout.strip(), done.stderr) == ("(1,)", "")


# --- what it belongs to


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": "other"}, "another model"),
        ({"revision": "2"}, "another model"),
        ({"layers": (1, 3)}, r"layers=\(2,\)"),
        ({"layers": ()}, "layer 2"),
        ({"told": {**CARD.pinned, "prompt_sha256": "changed"}}, "prompt_sha256"),
        ({"told": {**CARD.pinned, "kind": "endpoint"}}, "kind"),
        ({"told": {"kind": "fake"}}, "prompt_sha256"),
    ],
)
def test_another_model_layer_or_prompt_is_refused(changes, told):
    with pytest.raises(ConfigMismatchError, match=told):
        ProbeGate(made(), Source(**changes))


def test_what_states_do_not_depend_on_may_differ():
    more = {**CARD.pinned, "rag_prompt_sha256": "changed"}
    assert ProbeGate(made(), Source(told=more, layers=(0, 2))).decide("Who?").signals["p_known"] > 0


def test_the_rag_prompt_needs_a_probe_of_both_or_leave():
    passages = [[Passage(passage_id="1", title="t", text="x")]]
    with pytest.raises(ConfigMismatchError, match="--set allow-prompt=rag"):
        ProbeConfidence(made(), Source()).of(["Who?"], passages)
    allowed = ProbeConfidence(made(), Source(), allow=("rag",))
    both = ProbeConfidence(made(card=replace(CARD, prompts=("qa", "rag"))), Source())
    np.testing.assert_array_equal(allowed.of(["Who?"], passages), both.of(["Who?"], passages))
    assert allowed.of(["Who?"])[0] == ProbeConfidence(made(), Source()).of(["Who?"])[0]
    assert allowed.fingerprint()["allowed"] == ["rag"]
    with pytest.raises(ConfigMismatchError, match="rag_prompt_sha256"):
        ProbeConfidence(made(), Source(told={**CARD.pinned, "rag_prompt_sha256": "changed"}), allow=("rag",))
    with pytest.raises(ConfigMismatchError, match="qa"):
        ProbeGate(made(card=replace(CARD, prompts=("rag",))), Source())


def test_a_probe_on_a_source_without_layers():
    gate = ProbeGate(made(card=replace(CARD, layer=None)), Source(layers=()))
    assert 0 < gate.decide("Who?").signals["p_known"] < 1


def test_the_gate_reads_its_layer_and_books_the_pass_and_the_probe():
    source, probe = Source(), made()
    gate = ProbeGate(probe, source)
    verdict = gate.decide("Who?")
    assert verdict.signals == {"p_known": float(probe.predict(source.vector("Who?", 2)[None])[0])}
    assert (verdict.cost.calls, verdict.cost.uncached_tokens, verdict.cost.seconds > 0) == (1, 5, True)
    assert verdict.resume().answer == "resumed"
    assert asyncio.run(gate.decide_async("Who?")).signals == verdict.signals
    assert math.isnan(gate.decide("nan").signals["p_known"])
    source.fails = True
    with pytest.raises(ModelError, match="down"):
        gate.decide("Who?")


def test_the_pin_tells_weights_calibration_layer_and_prompts_apart():
    probe = made()
    others = [
        made(seed=1),
        probe.calibrated(Calibration(method="temperature", map=Sigmoid(0.5, 0.0))),
        probe.described(layer=1),
        probe.described(prompts=("qa", "rag")),
        probe.described(pinned={}),
    ]
    assert all(other.pin() != probe.pin() for other in others)
    assert probe.described(provenance={"n": 1}).pin() == probe.pin()


def test_a_policy_file_serves_one_probe_and_refuses_another(tmp_path):
    class Answers(Source):
        name, capabilities = "fake", frozenset()

        def verify(self, needs):
            pass

        def answer(self, question, passages=()):
            return Reply(answer=f"from {len(passages)}", costs={"generator": Cost(calls=1)})

    model = Answers()

    def loop(probe, policy):
        gate = ProbeGate(probe, model)
        return RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy, gate=gate)

    probe = made(standard=True).calibrated(Calibration(method="platt", map=Sigmoid(1.0, 20.0)))
    probe.save(tmp_path / "probe")
    rule = parse_rule("(p_known > 0.9) | (answer_stable >= 1)")
    bare = Policy(rule=rule, start_round=0, max_rounds=2)
    replace(bare, depends=loop(probe, bare).pinned).save(tmp_path / "policy.json")
    policy = Policy.load(tmp_path / "policy.json")
    given = [Passage(passage_id=str(i), title=str(i), text="x") for i in range(2)]
    assert loop(Probe.load(tmp_path / "probe"), policy).run("Who?", given).answer == "resumed"
    with pytest.raises(ConfigMismatchError, match="gate"):
        loop(made(seed=9), policy).run("Who?", given)


@pytest.mark.whole
def test_no_prompt_token_is_read_twice_when_the_gate_answers_directly():
    """The pass that decides goes on into the answer, tokens counted at the model's own input embedding."""
    model = local_models.model(layers=("middle",), settings=local_models.ENDING)
    card = ProbeCard(model=model.id, revision=model.revision, layer=2)
    sure = made((local_models.WIDTH, 1), card).calibrated(Calibration(method="platt", map=Sigmoid(1e-3, 5.0)))
    unsure = sure.calibrated(Calibration(method="platt", map=Sigmoid(1e-3, -5.0)))
    rule = parse_rule("p_known > 0.5")
    policy = Policy(rule=rule, start_round=0, max_rounds=1, answer_position=local_models.START)
    given = [Passage(passage_id="1", title="t", text="x")]
    prompt = len(local_models.tokenizer()(model.prompt_text("Who?"))["input_ids"])
    spent = {}
    for name, probe in (("sure", sure), ("unsure", unsure)):
        loop = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy, gate=ProbeGate(probe, model))
        with local_models.counting_tokens(model) as seen:
            outcome = loop.run("Who?", given)
        spent[name] = (outcome, sum(seen))
    outcome, processed = spent["sure"]
    plain = model.answer("Who?")
    assert (outcome.answer, outcome.decision.stop_round) == (plain.answer, 0)
    assert (outcome.costs["gate"].uncached_tokens, outcome.costs["generator"].uncached_tokens) == (prompt, 0)
    assert processed == prompt + outcome.costs["generator"].output_tokens - 1  # the last token is not read
    outcome, processed = spent["unsure"]
    assert (outcome.decision.stop_round, set(outcome.rounds[0].costs)) == (1, {"gate"})
    assert (
        processed == prompt + outcome.costs["generator"].uncached_tokens + outcome.costs["generator"].output_tokens - 1
    )


# --- figures


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_figures_equal_scikit_learns_also_under_weights(data):
    from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, roc_auc_score

    from suffice_gates.probes.measures import _figures_by_draw

    n = data.draw(st.integers(4, 40))
    p = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]), min_size=n, max_size=n)))
    y = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n)))
    y[:2] = 0.0, 1.0
    weights = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=float)
    weights[:2] = 1.0
    found = {name: values[0] for name, values in _figures_by_draw(p, y, weights[None]).items()}
    assert found["auroc"] == pytest.approx(roc_auc_score(y, p, sample_weight=weights))
    assert found["auprc"] == pytest.approx(average_precision_score(y, p, sample_weight=weights))
    assert found["brier"] == pytest.approx(brier_score_loss(y, p, sample_weight=weights, pos_label=1))
    assert found["accuracy"] == pytest.approx(accuracy_score(y, p >= 0.5, sample_weight=weights))
    rows = np.repeat(np.arange(n), weights.astype(int))
    plain = 0.0
    for b in range(10):
        inside = [i for i in rows if b / 10 <= p[i] < (b + 1) / 10 or (b == 9 and p[i] == 1.0)]
        if inside:
            plain += len(inside) / len(rows) * abs(np.mean(p[inside]) - np.mean(y[inside]))
    assert found["ece"] == pytest.approx(plain)


def test_intervals_hold_the_figure_and_shrink_with_more_questions():
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.4).astype(float)
    p = np.clip(rng.normal(0.3 + 0.4 * y, 0.25), 0, 1)
    few, many = measure_probe(p[:100], y[:100]), measure_probe(p, y)
    for name in few.figures:
        for measured in (few, many):
            assert measured[name].low <= measured[name].value <= measured[name].high or name == "ece"
        assert many[name].high - many[name].low < few[name].high - few[name].low
    assert measure_probe(p, y).to_dict() == measure_probe(p, y, resampling=Resampling(seed=0)).to_dict()


def test_one_kind_of_question_has_no_area_and_undefined_ones_are_counted():
    measured = measure_probe([0.2, 0.9, math.nan], [1, 1, 0])
    assert (measured.n, measured.n_known, measured.n_undefined) == (2, 2, 1)
    assert math.isnan(measured["auroc"].value)
    assert measured["accuracy"].value == 0.5
    assert measured.to_dict()["auroc"] == {"value": None, "low": None, "high": None}


@pytest.mark.parametrize(
    ("p", "y", "told"),
    [
        ([0.5], [1, 0], "shapes"),
        ([0.5], [0.5], "0 or 1"),
        ([math.nan], [1], "probability"),
        ([1.5], [1], r"\[0, 1\]"),
        ([], [], "no question"),
    ],
)
def test_what_cannot_be_measured_is_refused(p, y, told):
    with pytest.raises(DataError, match=told):
        measure_probe(p, y)


# --- labels


@pytest.mark.parametrize(
    "text", ["", "em>=0.5", "contains >= 1", "f1", "judge", "f1>0.5", "f1>=x", "__import__('os')>=1", "f1>=nan"]
)
def test_a_label_rule_that_says_nothing_is_refused(text):
    with pytest.raises(DataError, match=r"allowed|label rule"):
        LabelRule.parse(text)


@pytest.mark.parametrize("text", ["em", "contains", "f1>=0.5", "judge_entailment>=4"])
def test_a_label_rule_reads_back(text):
    assert str(LabelRule.parse(text)) == text


def test_empty_golds_never_match():
    for rule in ("em", "contains", "f1>=0"):
        parsed = LabelRule.parse(rule)
        assert math.isnan(is_right("The", ["The", "a"], parsed))
        assert math.isnan(is_right("anything", [], parsed))
    assert is_right("The", ["The", "Oslo"], LabelRule.parse("em")) == 0.0
    assert is_right(None, ["Oslo"], LabelRule.parse("contains")) == 0.0


def recorded(rows):
    table = [
        {"question_id": q, "cluster": c, "round": r, "end": end, "answer": a, "golds": golds, "judge_entailment": j}
        for q, c, r, end, a, golds, j in rows
    ]
    return Recording(build_table(table))


ROWS = [
    ("a1", "a", 0, "max_rounds", "Oslo", ["Oslo"], 5.0),
    ("a1", "a", 1, "max_rounds", "Rome", ["Oslo"], 1.0),
    ("a2", "a", 0, "max_rounds", "in Oslo", ["Oslo"], 4.0),
    ("a2", "a", 1, "max_rounds", "Oslo", ["Oslo"], 4.0),
    ("b", "b", 0, "max_rounds", "Lima", ["Rome"], None),
    ("b", "b", 1, "max_rounds", "Rome", ["Rome"], 2.0),
    ("c", "c", 0, "failed", "Rome", ["Rome"], 5.0),
    ("d", "d", 0, "max_rounds", "The", ["The"], 3.0),
    ("d", "d", 1, "max_rounds", "The", ["The"], 3.0),
]


def test_labels_of_a_recording_are_shares_over_a_questions_samples():
    recording = recorded(ROWS)
    found = closed_book_labels(recording)
    assert found.shares == {"a": 0.5, "b": 0.0}
    assert (found.n_failed, found.n_unlabelled, found.answers) == (1, 1, 3)
    assert found.known == {"a": 1.0, "b": 0.0}
    assert closed_book_labels(recording, "em", least=0.6).known == {"a": 0.0, "b": 0.0}
    assert closed_book_labels(recording, "contains").shares == {"a": 1.0, "b": 0.0}
    assert closed_book_labels(recording, "f1>=0.6").shares == {"a": 1.0, "b": 0.0}
    assert closed_book_labels(recording, "judge_entailment>=4").shares == {"a": 1.0, "d": 0.0}
    assert closed_book_labels(recording, at=1).shares == {"a": 0.5, "b": 1.0}


def test_labels_that_cannot_be_had_are_refused():
    rows = [(q, c, r + 1, e, a, g, j) for q, c, r, e, a, g, j in ROWS]
    with pytest.raises(DataError, match="--round-zero"):
        closed_book_labels(recorded(rows))
    with pytest.raises(DataError, match="label"):
        closed_book_labels(recorded([("d", "d", 0, "max_rounds", "The", ["The"], 1.0)]))
    with pytest.raises(LookupError, match="no_such"):
        closed_book_labels(recorded(ROWS), "no_such>=1")
    with pytest.raises(DataError, match="least is"):
        closed_book_labels(recorded(ROWS), least=0)
