"""Rankings: their metrics against ir_measures, and passages in the order of a cross-encoder."""

from __future__ import annotations

import math

import ir_measures
import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice import Passage, Policy, ScriptedModel, parse_rule, read_recording, record
from suffice.errors import DataError, ModelError
from suffice.evaluation.replay import replay
from suffice.evaluation.replay.costs_by_round import round_costs
from suffice.evaluation.statistics import Resampling
from suffice.loops import RetrievalLoop
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question, Retriever
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_gates.training.ranking import precision_at, recall_at, reciprocal_rank_at
from tests.support.cli_tools import cli, corpus, dataset

POOL = tuple(Passage(passage_id=str(i), title=f"t{i}", text="x" * n) for i, n in enumerate([1, 5, 3, 5, 9]))


class Longest:
    """Scores a pair by the length of its passage, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def predict(self, pairs):
        self.asked.append(pairs)
        return np.array([float(len(text)) for _, text in pairs])


def reranked(encoder=None, candidates=20, retriever=None):
    return Reranked(
        retriever or InMemoryRetriever(),
        CrossEncoderScorer("longest", encoder=encoder or Longest()),
        candidates=candidates,
    )


@given(relevant=st.lists(st.booleans(), min_size=1, max_size=9), k=st.sampled_from([1, 3, 5]))
def test_the_metrics_of_a_ranking_are_those_of_ir_measures(relevant, k):
    qrels = [ir_measures.Qrel("q", f"d{i}", int(hit)) for i, hit in enumerate(relevant)]
    run = [ir_measures.ScoredDoc("q", f"d{i}", -float(i)) for i in range(len(relevant))]
    measures = {"P": precision_at, "R": recall_at, "RR": reciprocal_rank_at}
    if not any(relevant):  # ir_measures leaves such a question out; its recall is undefined here
        assert (precision_at(relevant, k), reciprocal_rank_at(relevant, k)) == (0.0, 0.0)
        assert math.isnan(recall_at(relevant, k))
        return
    for name, measure in measures.items():
        asked = ir_measures.parse_measure(f"{name}@{k}")
        assert measure(relevant, k) == pytest.approx(ir_measures.calc_aggregate([asked], qrels, run)[asked])


def test_a_depth_below_one_is_refused():
    for measure in (precision_at, recall_at, reciprocal_rank_at):
        with pytest.raises(DataError, match="k is 0"):
            measure([True], 0)


def test_the_rerankers_order_wins_and_ties_keep_the_retrievers():
    encoder = Longest()
    found = reranked(encoder).rank("q", pool=POOL)
    assert [passage.passage_id for passage in found] == ["4", "1", "3", "2", "0"]
    assert [passage.score for passage in found] == [12, 8, 8, 6, 4]  # the title and a line break count, too
    assert len(encoder.asked) == 1, "all candidates of a question are scored at once"


def test_what_the_retriever_ranks_below_the_candidates_is_neither_scored_nor_returned():
    encoder = Longest()
    found = reranked(encoder, candidates=3).rank("q", pool=POOL, k=2)
    assert [passage.passage_id for passage in found] == ["1", "2"]
    assert [text.partition("\n")[0] for _, text in encoder.asked[0]] == ["t0", "t1", "t2"]


def test_a_reranked_retriever_is_a_retriever_that_names_its_parts():
    one, two = reranked(), reranked(candidates=7)
    assert isinstance(one, Retriever)
    assert one.name == "in-memory+reranked"
    assert one.fingerprint() != two.fingerprint()
    assert one.fingerprint()["reranker"]["model"] == "longest"
    assert one.fingerprint()["retriever"] == InMemoryRetriever().fingerprint()


def test_an_empty_pool_gives_nothing_and_asks_nothing():
    encoder = Longest()
    assert reranked(encoder).rank("q", pool=()) == []
    assert encoder.asked == []


def test_wrong_numbers_are_refused_before_anything_is_computed():
    encoder = Longest()
    with pytest.raises(DataError, match="candidates is 0"):
        reranked(candidates=0)
    with pytest.raises(DataError, match="k is 0"):
        reranked(encoder).rank("q", pool=POOL, k=0)
    with pytest.raises(DataError, match="pool"):
        reranked(encoder, retriever=PoolBM25()).rank("q")
    assert encoder.asked == []


def test_scores_that_are_no_numbers_are_refused():
    class Overflowing:
        def predict(self, pairs):
            return np.array([math.nan] * len(pairs))

    with pytest.raises(ModelError, match="not finite"):
        reranked(Overflowing()).rank("q", pool=POOL)


def test_the_loop_reveals_evidence_in_the_rerankers_order():
    seen = []
    model = ScriptedModel(lambda question, passages: seen.append([p.passage_id for p in passages]) or "yes")
    RetrievalLoop(model=model, retriever=reranked(), policy=Policy(max_rounds=3)).run("q", POOL)
    assert seen == [["4"], ["4", "1"], ["4", "1", "3"]]


def test_finding_and_ordering_are_charged_apart_to_who_reaches_round_1(tmp_path):
    loop = RetrievalLoop(
        model=ScriptedModel(lambda question, passages: "yes"),
        retriever=reranked(),
        policy=Policy(start_round=0, max_rounds=3),
    )
    questions = [Question(question_id=str(i), question=f"q{i}", answers=("yes",), passages=POOL) for i in range(3)]
    record(questions, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    for component in ("retrieval", "reranking"):
        assert recording.column(f"cost.{component}.calls").tolist() == [[0, 1, 0, 0]] * 3
    early = [Policy(rule=parse_rule(f"round >= {r}"), start_round=0, max_rounds=3, name=f"to {r}") for r in (0, 2)]
    result = replay(recording, early, resampling=Resampling(n_resamples=20))
    assert [result.row(policy.name).costs["retrievals"] for policy in early] == [0, 1]
    components = [result.row(policy.name).components["reranking"] for policy in early]
    assert [kinds["calls"] for kinds in components] == [0, 1]
    assert [result.row(policy.name).calls.mean for policy in early] == [1, 3], "a cross-encoder is not a language model"
    seconds = recording.column("cost.retrieval.seconds") + recording.column("cost.reranking.seconds")
    by_round = {row.round_index: row for row in round_costs(recording).rows if row.billing == "as recorded"}
    assert (by_round[1].retrievals, by_round[2].retrievals) == (1, 0)
    assert by_round[1].retrieval_seconds == pytest.approx(seconds[:, 1].mean())
    assert "s of retrieval" in str(round_costs(recording).table())


@pytest.fixture
def cross_encoder(monkeypatch):
    """Stands for any cross-encoder that the command line loads."""
    encoder = Longest()
    monkeypatch.setattr("suffice_gates.rerank.load_cross_encoder", lambda *_: encoder)
    return encoder


def test_record_and_answer_take_a_reranker(cross_encoder, tmp_path):
    dataset(tmp_path / "q.jsonl", n=2)
    arguments = ("--max-rounds", 2, "--reranker", "longest", "--set=candidates=3", "--set=logprobs=false")
    done = cli("record", tmp_path / "q.jsonl", "-o", tmp_path / "r.parquet", *arguments, code=0)
    assert [len(pairs) for pairs in cross_encoder.asked] == [3, 3]
    done = cli(
        "answer", "Where is tower 1?", "--corpus", corpus(tmp_path / "docs"), "--rule", "round >= 1", *arguments[2:]
    )
    assert done.code == 0, done
    assert len(cross_encoder.asked[2]) == 3
