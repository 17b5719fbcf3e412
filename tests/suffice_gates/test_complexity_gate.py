"""Adaptive-RAG's classifier of questions: its labels, its routes in a loop, its file, and bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, parse_rule, record
from suffice.errors import CensoredError, ConfigMismatchError, DataError, ModelError, SchemaError, SufficeError
from suffice.evaluation.replay import policy_for, replay
from suffice.loops.models import Gate
from suffice.loops.retrieval import InMemoryRetriever, Question
from suffice.policy.embedding import Embedder
from suffice.policy.rounds import Cost
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.schema import build_table
from suffice_gates.gates import ComplexityGate, adaptive_labels, fit_complexity
from suffice_gates.gates.complexity import CARD, WEIGHTS
from tests.support.cli_tools import cli

HIGHEST = 3
WORDS = ("known", "single", "several", "red", "blue", "green", "old", "new")


class WordEmbedder:
    """Counts words: an embedder whose vectors a test can predict."""

    def __init__(self, revision: str = "1") -> None:
        self.id, self.revision, self.pooling = "words", revision, "sum"

    def embed(self, texts):
        return np.array([[float(word in text.split()) for word in WORDS] for text in texts], dtype=np.float32)

    def embed_costed(self, texts):
        return self.embed(texts), Cost(calls=1.0, uncached_tokens=4.0 * len(texts))


def text_of(number: int) -> tuple[str, int]:
    """Return a question and the way that is enough for it: the word says so, others say nothing."""
    rng = np.random.default_rng(number)
    way = number % 3
    return f"What is {WORDS[way]} {WORDS[3 + rng.integers(3)]} {WORDS[6 + rng.integers(2)]} thing {number}", way


def tune(n: int = 90, prefix: str = "q", **changes) -> Recording:
    """Questions recorded over rounds 0 to 3, right from the round on that is enough: 0, 1 or 3."""
    rows = []
    for number in range(n):
        text, way = text_of(number)
        first = (0, 1, HIGHEST)[way]
        for r in range(HIGHEST + 1):
            row = {"question_id": f"{prefix}{number}", "round": r, "end": "max_rounds", "question": text}
            row |= {"answer": "a" if r >= first else "b", "em": float(r >= first), "cost.generator.calls": 1.0}
            rows.append(row | {key: value(number, r) for key, value in changes.items()})
    return Recording(build_table(rows))


@pytest.fixture(scope="module")
def fitted() -> ComplexityGate:
    return fit_complexity(tune(), WordEmbedder())


def test_the_label_is_the_cheapest_right_way_or_the_sets_default():
    rng = np.random.default_rng(0)
    ways = rng.random((200, 3)) < 0.4
    hops = rng.random(200) < 0.5
    expected = []
    for (direct, single, multi), multi_hop in zip(ways, hops, strict=True):
        if direct:
            expected.append(0)
        elif single:
            expected.append(1)
        elif multi or multi_hop:
            expected.append(2)
        else:
            expected.append(1)
    assert adaptive_labels(*ways.T, multi_hop=hops).tolist() == expected
    assert adaptive_labels(ways[:, 0], ways[:, 1]).tolist() == [0 if a else 1 if b else 2 for a, b, _ in ways]


def test_the_classes_are_those_of_a_multinomial_regression(fitted):
    texts, ways = zip(*map(text_of, range(90)), strict=True)
    values = WordEmbedder().embed(texts).astype(np.float64)
    classifier = fitted.classifier
    spread = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    reference = LogisticRegression(C=classifier.strength, max_iter=2000).fit(scaled, ways)
    assert classifier.likeliest(values).tolist() == reference.predict(scaled).tolist() == list(ways)
    odds = reference.decision_function(scaled)
    expected = odds[:, 0] - np.log(np.exp(odds[:, 1:]).sum(axis=1))
    np.testing.assert_allclose(classifier.raw(values), expected, atol=0.02)
    assert np.isnan(classifier.likeliest(np.full((1, len(WORDS)), np.nan))).all()


def test_two_classes_need_one_set_of_weights():
    gate = fit_complexity(tune(em=lambda number, r: float(r >= (0, 2)[number % 2])), WordEmbedder())
    assert gate.classifier.classes == (0, 2)
    assert gate.classifier.weights.shape == (1, len(WORDS))
    assert set(gate.classifier.likeliest(WordEmbedder().embed([text_of(i)[0] for i in range(9)]).astype(float))) <= {
        0,
        2,
    }


@pytest.mark.parametrize(("way", "stop", "calls"), [(0, 0, 1), (1, 1, 1), (2, 3, 3)])
def test_a_loop_takes_the_route_of_the_class(fitted, way, stop, calls):
    assert isinstance(fitted, Gate)
    question = next(text for text, its in map(text_of, range(300, 303)) if its == way)
    model = ScriptedModel({question: ["a0", "a1", "a2", "a3"]})
    policy = Policy(rule="adaptive_rag", start_round=0, max_rounds=HIGHEST)
    loop = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy, gate=fitted)
    outcome = loop.run(question, [Passage(passage_id=str(i), title=f"t{i}", text=f"text {i}") for i in range(5)])
    assert (outcome.decision.stop_round, outcome.answer, len(model.requests)) == (stop, f"a{stop}", calls)
    assert outcome.costs["gate"].calls == 1
    assert 0 < outcome.rounds[0].signals["p_known"] < 1


def test_a_recording_replays_the_routes_and_says_what_the_gate_has_seen(fitted, tmp_path):
    questions = []
    for number in range(60, 120):  # the first thirty are tune questions
        text, _ = text_of(number)
        passages = tuple(Passage(passage_id=f"{number}.{i}", title=f"t{i}", text=f"text {i}") for i in range(4))
        questions.append(Question(question_id=f"n{number}", question=text, answers=("a1",), passages=passages))
    model = ScriptedModel({item.question: ["a0", "a1", "a2", "a3"] for item in questions})
    policy = Policy(rule="never()", start_round=0, max_rounds=HIGHEST)
    loop = RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy, gate=fitted)
    record(questions, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    result = replay(recording, "adaptive_rag")
    row = result.row("adaptive_rag")
    assert row.stop_rounds == pytest.approx({0: 1 / 3, 1: 1 / 3, 3: 1 / 3})
    assert any("the gate was fitted on 30" in note for note in result.notes)
    pinned = policy_for(recording, "adaptive_rag")
    assert pinned.start_round == 0
    assert pinned.depends["gate"]["weights_sha256"] == fitted.fingerprint()["weights_sha256"]


def test_without_the_gate_the_rule_is_refused_before_the_first_call():
    model = ScriptedModel({"q": ["a"]})
    policy = Policy(rule="adaptive_rag", start_round=0, max_rounds=HIGHEST)
    with pytest.raises(ModelError, match="classifier"):
        RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy).run("q", [])
    assert not model.requests


def test_a_saved_gate_decides_alike_and_refuses_another_encoder(fitted, tmp_path):
    fitted.save(tmp_path)
    loaded = ComplexityGate.load(tmp_path, WordEmbedder())
    assert isinstance(loaded.source, Embedder)
    for number in range(12):
        text, _ = text_of(number)
        assert loaded.decide(text).signals == fitted.decide(text).signals
    assert loaded.fingerprint() == fitted.fingerprint()
    assert loaded.seen == fitted.seen
    assert loaded.seen.among(["q3", "other"]).tolist() == [True, False]
    with pytest.raises(ConfigMismatchError, match="encoder|vectors"):
        ComplexityGate.load(tmp_path, WordEmbedder("2"))


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda f: (f / CARD).unlink(), DataError, "be read"),
        (lambda f: (f / WEIGHTS).unlink(), DataError, "be read"),
        (lambda f: (f / CARD).write_text("{"), SchemaError, "not JSON"),
        (lambda f: (f / CARD).write_text('{"format": "x"}'), SchemaError, "format"),
        (lambda f: (f / WEIGHTS).write_bytes(b"x"), SchemaError, "match the card"),
        (lambda f: changed(f, more=1), SchemaError, "other fields"),
        (lambda f: changed(f, classes=[0, 1]), SchemaError, "shapes"),
        (lambda f: changed(f, wanted="x"), SchemaError, "wrong kind"),
    ],
)
def test_a_damaged_gate_is_refused(fitted, tmp_path, damage, error, words):
    fitted.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=words):
        ComplexityGate.load(tmp_path, WordEmbedder())


def changed(folder, **values):
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps({**card, **values}))


def test_what_no_classifier_can_learn_from_is_refused():
    wrong: list[tuple[type[SufficeError], str, Recording, str]] = [
        (DataError, "both outcomes", tune(em=lambda number, r: 1.0), "em"),
        (DataError, "round 0", _from_round_1(), "em"),
        (
            DataError,
            "unknown without",
            tune(em=lambda number, r: None if number == 4 and r == 1 else float(r > number % 2)),
            "em",
        ),
        (DataError, "no metric", tune(), "nosuch"),
        (CensoredError, "a rule ended", _cut(), "em"),
        (DataError, "no text", tune(question=lambda number, r: ""), "em"),
    ]
    for error, words, recording, metric in wrong:
        with pytest.raises(error, match=words):
            fit_complexity(recording, WordEmbedder(), metric=metric)


def _from_round_1() -> Recording:
    return Recording(build_table([row for row in tune().table.to_pylist() if row["round"]]))


def _cut() -> Recording:
    rows = [row for row in tune().table.to_pylist() if row["round"] < HIGHEST or row["question_id"] != "q5"]
    return Recording(build_table([{**row, "end": "rule"} if row["question_id"] == "q5" else row for row in rows]))


def test_the_commands_fit_a_gate_and_record_through_it(tmp_path):
    write_recording(tmp_path / "tune.parquet", tune().table)
    done = cli("gate", "classify", tmp_path / "tune.parquet", "-o", tmp_path / "gate", "--json")
    assert done.json["labels"] == {"none": 30, "single": 30, "multi": 30}
    lines = []
    for number in range(100, 106):
        paragraphs = [{"title": f"t{i}", "text": f"text {i}"} for i in range(3)]
        lines.append({"id": f"n{number}", "question": text_of(number)[0], "answers": ["a"], "paragraphs": paragraphs})
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = ("record", tmp_path / "q.jsonl", "-o", tmp_path / "r.parquet", "--round-zero", "--max-rounds", "2")
    done = cli(*asked, "--gate", tmp_path / "gate", "--json", code=0)
    recording = read_recording(tmp_path / "r.parquet")
    classes = recording.column("complexity")
    assert np.isin(classes[:, 0], [0, 1, 2]).all()
    assert np.isnan(classes[:, 1:]).all()
    assert parse_rule("adaptive_rag").signals == {"complexity", "round"}
    assert cli("replay", tmp_path / "r.parquet", "--rule", "adaptive_rag", "--json").code == 0
    at_endpoint = cli(*asked, "--gate", tmp_path / "gate", "--set=gate-base-url=http://localhost:1/v1")
    assert "leave out gate-base-url" in at_endpoint.error
