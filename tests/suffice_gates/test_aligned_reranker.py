"""From the tiny model with known knowledge to a reranker in its loop; and answers compared in two orders."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, record
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.statistics import Resampling
from suffice.loops.models.prompts import PREFILLED
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question, load_questions
from suffice.recordings import read_recording
from suffice_gates.models import TransformersModel
from suffice_gates.probes import ProbeConfidence
from suffice_gates.rerank import CrossEncoderScorer
from suffice_gates.training.answers import answers_in_order, compare_answers
from suffice_gates.training.preference_file import read_preferences
from suffice_gates.training.preferences import build_preferences
from suffice_gates.training.reranker import RerankerSettings, train_reranker
from suffice_papers.cbdr.contexts import build_contexts
from suffice_papers.cbdr.transfer import read_contexts, transfer_check
from tests.suffice_gates.support.tiny_reranker import linear_probe, tiny_cross_encoder, words_of

pytestmark = pytest.mark.usefixtures("no_collecting")


@pytest.fixture(scope="module")
def world(tiny_model):
    model = TransformersModel(tiny_model, layers=("last",), prompt=PREFILLED, max_tokens=4, batch_size=64)
    tune, held_out = (load_questions(tiny_model / f"{split}.jsonl") for split in ("tune", "eval"))
    half = np.random.default_rng(0).permutation(len(tune))[::2]
    return model, [tune[i] for i in sorted(half)], held_out[::2]


@pytest.fixture(scope="module")
def confidence(world):
    model, tune, _ = world
    return ProbeConfidence(linear_probe(model, tune[::2], ("qa", "rag")), model)


def test_a_passage_with_the_fact_raises_confidence_more_than_another(world, confidence):
    sets, _ = build_contexts(world[2], rng=np.random.default_rng(0), most=100)
    report = transfer_check({"tiny": read_contexts(sets, confidence)}, rng=np.random.default_rng(0))
    changes = {change.type: change.paired for change in report.changes}
    assert changes["B"].delta > max(changes["A"].delta, changes["C"].delta)
    assert {c.what: c.paired.low > 0 and c.paired.p_holm < 0.01 for c in report.contrasts}["tiny: B - C"]


def test_a_probe_of_questions_alone_is_refused_with_passages_unless_allowed(world):
    model, tune, _ = world
    probe = linear_probe(model, tune[:80], ("qa",))
    with pytest.raises(ConfigMismatchError, match="allow-prompt=rag"):
        ProbeConfidence(probe, model).of(["Name the home of X."], [[Passage(passage_id="1", title="", text="x")]])
    allowed = ProbeConfidence(probe, model, allow=("rag",))
    assert 0 <= allowed.of(["Name the home of X."], [[Passage(passage_id="1", title="", text="x")]])[0] <= 1


def test_the_reranker_learns_preferences_about_unseen_names(world, confidence, tmp_path):
    model, tune, held_out = world
    made = {}
    for name, questions in (("tune", tune[:336]), ("eval", held_out)):
        build_preferences(questions, confidence, tmp_path / f"{name}.jsonl")
        made[name] = read_preferences(tmp_path / f"{name}.jsonl")
    facts = {q.question: {f"{p.title}\n{p.text}" for p in q.passages if p.passage_id in q.supporting} for q in held_out}
    preferred = [bool(facts[item.query] & set(item.pos)) for item in made["eval"]]
    rejected = [bool(facts[item.query] & set(item.neg)) for item in made["eval"]]
    assert np.mean(preferred) > np.mean(rejected) + 0.1
    base = tiny_cross_encoder(tmp_path / "base", words=words_of([*tune, *held_out]))
    run = train_reranker(
        base,
        made["tune"],
        tmp_path / "aligned",
        test=made["eval"],
        settings=RerankerSettings(learning_rate=4e-3, epochs=4, evaluations=1),
        device="cpu",
    )
    learned = run.report.differences[run.report.names.index("P@3")]
    assert learned.low > 0, "names of eval are new to the reranker: it learned to compare, not names"
    some = held_out[:8]
    before, after = (
        answers_in_order(
            some,
            model,
            PoolBM25(),
            CrossEncoderScorer(folder, device="cpu"),
            tmp_path / f"{folder.name}.parquet",
            max_rounds=1,
        )
        for folder in (base, run.path)
    )
    found = compare_answers(before, after, resampling=Resampling(seed=0), rounds=(1,))
    # What it learned is the probe's preference; whether answers gain by it is measured, and need not be so.
    assert found.names == ("em, top 1", "f1, top 1", "contains, top 1")
    assert found.n == 8


# Two orders of evidence


class ByTitle:
    """Scores a pair by a number in the passage's title."""

    def __init__(self, sign=1):
        self.sign = sign

    def predict(self, pairs):
        return np.array([self.sign * float(text.partition("\n")[0]) for _, text in pairs])


def questions(n=12, passages=6):
    """Return questions whose answer stands in their passage number 3, some with fewer passages."""
    found = []
    for i in range(n):
        size = passages if i % 3 else 2
        pool = tuple(
            Passage(passage_id=f"q{i}#{j}", title=str(j), text="Oslo" if j == i % size else "no") for j in range(size)
        )
        found.append(Question(question_id=f"q{i}", question=f"q{i}?", answers=("Oslo",), passages=pool))
    return found


def in_order(sign, path, asked):
    model = ScriptedModel(lambda question, passages: "Oslo" if any(p.text == "Oslo" for p in passages) else "no")
    scorer = CrossEncoderScorer("by-title", encoder=ByTitle(sign), revision=str(sign))
    return answers_in_order(asked, model, InMemoryRetriever(), scorer, path)


def test_answers_at_k_passages_are_those_of_a_plain_loop(tmp_path):
    asked = questions()
    before, after = in_order(-1, tmp_path / "up", asked), in_order(1, tmp_path / "down", list(reversed(asked)))
    report = compare_answers(before, after, resampling=Resampling(seed=0))
    for k in (1, 3, 5):
        at = report.names.index(f"em, top {k}")
        up = [any(p.text == "Oslo" for p in q.passages[:k]) for q in asked]
        down = [any(p.text == "Oslo" for p in q.passages[::-1][:k]) for q in asked]
        assert report.before[at][0] == np.mean(up)
        assert report.after[at][0] == np.mean(down)
        assert report.differences[at].delta == pytest.approx(np.mean(down) - np.mean(up))
        assert report.differences[at].n_nonzero == sum(a != b for a, b in zip(up, down, strict=True))


def test_other_questions_and_questions_without_golds_are_refused(tmp_path):
    asked = questions()
    before = in_order(1, tmp_path / "a", asked)
    with pytest.raises(DataError, match="11 are"):
        compare_answers(before, in_order(1, tmp_path / "b", asked[1:]), resampling=Resampling(seed=0))
    from dataclasses import replace

    bare = [replace(item, answers=()) for item in asked]
    unknown = in_order(1, tmp_path / "c", bare)
    with pytest.raises(DataError, match="gold answers"):
        compare_answers(unknown, unknown, resampling=Resampling(seed=0))


def test_a_failing_model_is_told_with_what_is_kept(tmp_path):
    from suffice.errors import ModelError

    def fails(question, passages):
        if question == "q3?":
            raise ModelError("no luck")
        return "no"

    scorer = CrossEncoderScorer("by-title", encoder=ByTitle())
    with pytest.raises(DataError, match="'q3'"):
        answers_in_order(questions(), ScriptedModel(fails), InMemoryRetriever(), scorer, tmp_path / "r")


def test_recordings_of_two_rerankers_do_not_mix(tmp_path):
    asked = questions()
    in_order(1, tmp_path / "r", asked)
    with pytest.raises(ConfigMismatchError):
        in_order(-1, tmp_path / "r", asked)
    plain = RetrievalLoop(model=ScriptedModel(lambda *_: "no"), retriever=InMemoryRetriever(), policy=Policy())
    record(asked, plain, tmp_path / "plain")
    assert read_recording(tmp_path / "plain").metadata["config"] != read_recording(tmp_path / "r").metadata["config"]
