"""Aligned rerankers: what they learn and what not, the loss, selection, going on, and wrong input."""

from __future__ import annotations

import json
import math
import sys

import ir_measures
import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice import Passage
from suffice.errors import ConfigMismatchError, DataError, MissingExtraError, ModelError
from suffice.evaluation.statistics import Resampling
from suffice.loops.models.sentence_transformers import weights_hash
from suffice.loops.retrieval import InMemoryRetriever
from suffice.policy.seen import Seen
from suffice_gates.rerank import CrossEncoderScorer, Reranked, load_cross_encoder
from suffice_gates.training.preference_file import Preference
from suffice_gates.training.ranking import DEPTHS, NAMES, compare_rankings, rank_metrics
from suffice_gates.training.reranker import RERANKER_CARD, RerankerSettings, preferences_hash, train_reranker
from suffice_gates.training.reranker_trainer import load_base
from tests.suffice_gates.support.tiny_reranker import (
    WORDS,
    language_model_reranker,
    overlap_preferences,
    tiny_cross_encoder,
    without_a_head,
)

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("no_collecting")]

FAST = RerankerSettings(learning_rate=3e-3, epochs=12, evaluations=1, patience=12)
SHORT = RerankerSettings(learning_rate=3e-3, epochs=2, batch=16, evaluations=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_cross_encoder(tmp_path_factory.mktemp("models") / "base")


def weights(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def same(one, two):
    return all(np.array_equal(one[name], two[name]) for name in one)


def trained(base, out, data, **options):
    return train_reranker(base, data, out, **{"settings": SHORT, "device": "cpu", **options})


# What is learned


@pytest.fixture(scope="module")
def aligned(base, tmp_path_factory):
    data = overlap_preferences(205, seed=1)
    out = tmp_path_factory.mktemp("aligned") / "reranker"
    run = train_reranker(
        base,
        data[:150],
        out,
        dev=data[150:175],
        test=data[175:],
        settings=FAST,
        device="cpu",
        aligned_with={"model": "m"},
    )
    return run, data


def test_a_reranker_learns_what_the_model_prefers(aligned):
    run, _ = aligned
    before, after, difference = (part[0] for part in (run.report.before, run.report.after, run.report.differences))
    assert before[0] < 0.65
    assert after[0] > 0.8
    assert difference.low > 0.1
    assert run.reported_on == "test"


def test_a_report_on_one_question_has_no_interval_and_is_written(base, tmp_path):
    data = overlap_preferences(6, seed=1)
    run = trained(base, tmp_path / "reranker", data[:5], test=data[5:])
    card = json.loads((run.path / RERANKER_CARD).read_text("utf-8"))
    assert card["report"]["questions"] == 1
    assert card["report"]["metrics"]["MRR@1"]["difference"]["low"] is None


def test_a_reranker_learns_nothing_from_shuffled_labels(base, tmp_path):
    from dataclasses import replace

    data = overlap_preferences(120, seed=2, shuffled=True)
    settings = replace(FAST, epochs=4)
    run = train_reranker(base, data[:60], tmp_path / "r", test=data[60:], settings=settings, device="cpu")
    for name, difference in zip(run.report.names, run.report.differences, strict=True):
        assert difference.low <= 0, name
    chance = 3 / 7
    assert abs(run.report.after[0][0] - chance) < 0.2


def test_the_trained_folder_is_a_cross_encoder_that_orders_the_loops_evidence(aligned):
    run, data = aligned
    scorer = CrossEncoderScorer(run.path, device="cpu")
    first = 0
    for item in data[175:]:
        texts = [*item.neg, *item.pos]
        pool = tuple(Passage(passage_id=text, title="", text=text) for text in texts)
        best = Reranked(InMemoryRetriever(), scorer).rank(item.query, pool=pool)[0]
        first += best.passage_id in item.pos
    assert first / 30 == pytest.approx(run.report.after[0][0])
    assert scorer.fingerprint()["model"].endswith("/reranker")


def test_the_card_tells_how_the_reranker_was_made(aligned):
    run, data = aligned
    card = json.loads((run.path / RERANKER_CARD).read_text())
    assert card["aligned_with"] == {"model": "m"}
    assert card["data"]["train"] == {"questions": 150, "hash": preferences_hash(data[:150])}
    assert card["settings"]["temperature"] == 1.0
    assert card["report"]["metrics"]["P@1"]["after"]["value"] == run.report.after[0][0]
    assert not run.path.with_name("reranker.checkpoints").exists()
    assert CrossEncoderScorer(run.path).seen == Seen.of((), [item.query for item in data[:175]])


def test_the_kept_weights_are_those_of_the_best_step_on_dev(aligned):
    run, data = aligned
    best = max(value for _, value in run.history)
    assert dict(run.history)[run.best_step] == best
    scorer = CrossEncoderScorer(run.path, device="cpu")
    pairs = rank_metrics(data[150:175], lambda pairs: [scorer.scores(q, [_passage(t)])[0] for q, t in pairs])
    assert pairs[NAMES.index("MRR@5")].mean() == pytest.approx(best)


def _passage(text):
    return Passage(passage_id=text, title="", text=text)


def test_training_stops_when_dev_gets_no_better(base, tmp_path):
    from dataclasses import replace

    data = overlap_preferences(60, seed=3)
    settings = replace(FAST, learning_rate=1e-9, patience=2)
    run = trained(base, tmp_path / "r", data[:40], dev=data[40:], settings=settings)
    assert len(run.history) == 3, "one evaluation, and two without a better one"
    assert run.reported_on == "dev (selected here)"


# The loss


@pytest.mark.parametrize("in_batch", [0, 2])
def test_the_loss_is_info_nce_over_the_negatives_of_each_row(base, in_batch):
    import torch
    from sentence_transformers import CrossEncoder

    from suffice_gates.training.info_nce import contrasts, info_nce

    model = CrossEncoder(str(base), device="cpu")
    data = overlap_preferences(4, seed=4)
    queries = [item.query for item in data]
    positives = [item.pos[0] for item in data]
    negatives = [list(item.neg[: 1 + i]) for i, item in enumerate(data)]
    found = info_nce(model, temperature=0.3, in_batch=in_batch)([queries, positives, negatives])
    expected = []
    for query, row in zip(queries, contrasts(queries, positives, negatives, in_batch), strict=True):
        logits = model.predict([(query, text) for text in row], activation_fn=torch.nn.Identity())
        f = [math.exp(float(value) / 0.3) for value in logits]
        expected.append(-math.log(f[0] / sum(f)))
    assert found.item() == pytest.approx(sum(expected) / 4, rel=1e-4)
    found.backward()
    assert any(float(p.grad.abs().sum()) > 0 for p in model.parameters() if p.grad is not None)


def test_a_batch_in_parts_is_the_same_batch(base, tmp_path):
    from dataclasses import replace

    data = overlap_preferences(16, seed=5)
    for name, accumulate in (("whole", 1), ("parts", 4)):
        trained(base, tmp_path / name, data, settings=replace(SHORT, accumulate=accumulate, epochs=1))
    # Of the scores, not of the weights: Adam makes steps of full size out of gradients that are rounding alone.
    one, two, none = (
        CrossEncoderScorer(folder, device="cpu").scores(
            "bara bati", [_passage(text) for text in data[0].pos + data[0].neg]
        )
        for folder in (tmp_path / "whole", tmp_path / "parts", base)
    )
    assert one == pytest.approx(two, abs=2e-3)
    assert one != pytest.approx(none, abs=1e-2), "and something was learned"


def test_texts_are_cut_to_the_tokens_that_the_settings_allow(base):
    from sentence_transformers import CrossEncoder

    from suffice_gates.training.reranker_trainer import _training_rows

    tokenizer = CrossEncoder(str(base), device="cpu").tokenizer
    item = Preference(query="bara  bati doki", pos=("kira, kiso",), neg=("lura luti meso mera",))
    [row] = _training_rows([item], tokenizer, RerankerSettings(query_tokens=2, passage_tokens=3))
    first, second, *_ = tokenizer.tokenize(item.query)
    assert row["query"].endswith(second[-1])
    assert len(tokenizer(row["query"], add_special_tokens=False)["input_ids"]) == 2
    assert all(len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= 3 for text in row["negatives"])
    assert item.query.startswith(row["query"])
    del first


# Again


@pytest.mark.parametrize(("dropout", "seed"), [(0.0, 2), (0.2, 1)])  # another seed has other rows first
def test_one_seed_gives_one_reranker_and_another_seed_another(tmp_path, dropout, seed):
    base = tiny_cross_encoder(tmp_path / "base", dropout=dropout)
    data = overlap_preferences(30, seed=6)
    trained(base, tmp_path / "one", data, seed=1)
    trained(base, tmp_path / "other", data, seed=seed)
    assert same(weights(tmp_path / "one"), weights(tmp_path / "other")) == (seed == 1)


def test_interrupted_training_goes_on_and_ends_with_the_same_weights(tmp_path, monkeypatch):
    from suffice_gates.training import reranker

    base = tiny_cross_encoder(tmp_path / "base", dropout=0.2)
    data = overlap_preferences(40, seed=7)
    trained(base, tmp_path / "whole", data[:30], dev=data[30:])
    made = reranker.make_trainer

    def interrupted(*arguments, **options):
        trainer = made(*arguments, **options)
        step = trainer.training_step
        trainer.training_step = lambda *a, **k: _stop() if trainer.state.global_step == 8 else step(*a, **k)
        return trainer

    def _stop():
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(reranker, "make_trainer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(base, tmp_path / "again", data[:30], dev=data[30:])
    assert not (tmp_path / "again").exists()
    with pytest.raises(ConfigMismatchError, match="seed"):
        trained(base, tmp_path / "again", data[:30], dev=data[30:], seed=5)
    steps = []

    def counting(*arguments, **options):
        trainer = made(*arguments, **options)
        step = trainer.training_step
        trainer.training_step = lambda *a, **k: steps.append(1) or step(*a, **k)
        return trainer

    with monkeypatch.context() as patched:
        patched.setattr(reranker, "make_trainer", counting)
        run = trained(base, tmp_path / "again", data[:30], dev=data[30:])
    assert 0 < len(steps) < run.steps, "steps before the last checkpoint are not made again"
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "again"))


# The metrics


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_the_metrics_are_those_of_ir_measures(sizes, seed):
    rng = np.random.default_rng(seed)
    data = [
        Preference(query=f"q{i}", pos=tuple(f"p{j}" for j in range(p)), neg=tuple(f"n{j}" for j in range(n)))
        for i, (p, n) in enumerate(sizes)
    ]
    scores = {(item.query, text): value for item in data for text, value in _drawn(item, rng)}
    found = rank_metrics(data, lambda pairs: [scores[pair] for pair in pairs])
    qrels = [ir_measures.Qrel(q, text, int(text.startswith("p"))) for q, text in scores]
    run = [ir_measures.ScoredDoc(q, text, value) for (q, text), value in scores.items()]
    names = {f"{ours}@{k}": ir_measures.parse_measure(f"{theirs}@{k}") for k in DEPTHS for ours, theirs in PAIRS}
    expected = ir_measures.calc_aggregate(list(names.values()), qrels, run)
    for row, name in enumerate(NAMES):
        assert found[row].mean() == pytest.approx(expected[names[name]]), name


PAIRS = (("P", "P"), ("R", "R"), ("MRR", "RR"))


def _drawn(item, rng):
    texts = (*item.pos, *item.neg)
    return zip(texts, rng.permutation(len(texts)).astype(float).tolist(), strict=True)


def test_a_reranker_that_says_one_number_ranks_as_badly_as_it_can():
    item = Preference(query="q", pos=("a", "b"), neg=("c",))
    found = dict(zip(NAMES, rank_metrics([item], lambda pairs: [0.0] * len(pairs))[:, 0].tolist(), strict=True))
    assert (found["P@1"], found["MRR@3"], found["R@3"]) == (0.0, 0.5, 1.0)


def test_a_reranker_compared_with_itself_differs_by_nothing(rng):
    values = rng.random((len(NAMES), 12))
    report = compare_rankings(values, values, resampling=Resampling(seed=0))
    assert all((d.delta, d.low, d.high) == (0.0, 0.0, 0.0) for d in report.differences)
    assert report.table().texts()[0][3] == "+0.00 [+0.00, +0.00]"
    json.dumps(report.to_dict(), allow_nan=False)


def test_repeated_questions_are_one_unit(rng):
    values = np.repeat(rng.random((len(NAMES), 10)), 5, axis=1)
    clusters = [f"q{i}" for i in range(10) for _ in range(5)]
    zeros = np.zeros_like(values)
    wide = compare_rankings(zeros, values, resampling=Resampling(seed=0), clusters=clusters).differences[0]
    narrow = compare_rankings(zeros, values, resampling=Resampling(seed=0)).differences[0]
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_scores_that_do_not_fit_the_pairs_are_refused():
    item = Preference(query="q", pos=("a",), neg=("b",))
    for scores in ([1.0], [1.0, math.nan], [1.0, 2.0, 3.0]):
        with pytest.raises(DataError, match="2 pairs"):
            rank_metrics([item], lambda pairs, scores=scores: scores)
    with pytest.raises(DataError, match="no questions"):
        rank_metrics([], lambda pairs: [])
    with pytest.raises(DataError, match="same questions"):
        compare_rankings(np.zeros((9, 2)), np.zeros((9, 3)), resampling=Resampling(seed=0))


# Wrong input


def test_the_defaults_are_the_papers():
    found = RerankerSettings()
    assert (found.learning_rate, found.weight_decay, found.epochs, found.batch) == (6e-5, 0.01, 1, 32)
    assert (found.query_tokens, found.passage_tokens, found.negatives) == (128, 512, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("temperature", 0.0),
        ("epochs", -1.0),
        ("batch", 0),
        ("negatives", 0),
        ("patience", 0),
        ("accumulate", 5),
        ("in_batch", -1),
        ("warmup", 1.0),
        ("weight_decay", -0.1),
        ("precision", "int4"),
    ],
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(DataError):
        RerankerSettings(**{name: value})


def test_sets_that_share_questions_and_sets_that_are_too_small_are_refused(base, tmp_path):
    data = overlap_preferences(8, seed=8)
    with pytest.raises(DataError, match="1 question"):
        trained(base, tmp_path / "r", data[:1])
    for options in ({"dev": data[3:]}, {"test": data[3:]}):
        with pytest.raises(DataError, match="different questions"):
            trained(base, tmp_path / "r", data[:4], **options)
    shouted = [Preference(query=data[0].query.upper() + "?", pos=("a",), neg=("b",))]
    with pytest.raises(DataError, match="both train"):
        trained(base, tmp_path / "r", data, test=shouted)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(base, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="already exists"):
        trained(base, tmp_path / "r", overlap_preferences(4, seed=9))
    assert [file.name for file in tmp_path.rglob("*")] == ["r", "notes.txt"]


def test_a_model_with_several_labels_is_refused(tmp_path):
    three = tiny_cross_encoder(tmp_path / "three", labels=3)
    with pytest.raises(ModelError, match="3 labels"):
        trained(three, tmp_path / "r", overlap_preferences(4, seed=9))


def test_an_id_missing_offline_advises_giving_a_path(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="its folder"):
        trained("nobody/no-such-reranker", tmp_path / "r", overlap_preferences(4, seed=9))


def test_half_precision_without_a_gpu_is_refused(base, tmp_path):
    with pytest.raises(DataError, match="no GPU"):
        trained(base, tmp_path / "r", overlap_preferences(4, seed=9), settings=RerankerSettings(precision="fp16"))


def test_mixed_precision_trains(base, tmp_path):
    from dataclasses import replace

    data = overlap_preferences(20, seed=10)
    run = trained(base, tmp_path / "r", data, settings=replace(SHORT, precision="bf16"))
    assert run.steps > 0
    assert run.report is None
    assert run.table() is None
    assert weights_hash(run.path) != weights_hash(base)


def test_without_the_extra_the_message_says_what_to_install(base, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"suffice-gates\[torch\]"):
        trained(base, tmp_path / "r", overlap_preferences(4, seed=9))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_an_encoder_without_a_trained_head_ranks_nothing_and_may_be_trained(tmp_path):
    bare = without_a_head(tmp_path / "bare")
    with pytest.raises(ModelError, match="at random"):
        CrossEncoderScorer(bare, device="cpu").scores("bara", [_passage("doso")])
    assert load_base(str(bare), FAST, revision=None, device="cpu", seed=0).num_labels == 1


def test_a_language_model_that_lacks_its_answer_words_is_no_reranker(tmp_path):
    usable = language_model_reranker(tmp_path / "usable", [*WORDS, "yes", "no"])
    assert load_cross_encoder(str(usable), device="cpu").num_labels == 1
    for words in (WORDS, [*WORDS, "yes"]):
        lacking = language_model_reranker(tmp_path / f"lacking-{len(words)}", words)
        with pytest.raises(ModelError, match="would be 0"):
            CrossEncoderScorer(lacking, device="cpu").scores("bara", [_passage("doso")])
