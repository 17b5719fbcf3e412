"""An autorater's verdict whether passages suffice (Joren et al., 2025): in recordings, in rules, and live."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from suffice import Passage, Policy, PoolBM25, Round, ScriptedModel, read_recording, replay
from suffice.errors import DataError
from suffice.loops import RetrievalLoop
from suffice.loops.judges import MARKS, VERDICTS, JudgeModel, Panel
from suffice.loops.models import ChatModel
from suffice.policy.rules import parse_rule
from suffice.recordings import write_recording
from tests.support.cli_tools import cli, dataset
from tests.support.endpoint import Endpoint, prompt_of

TEXTS = ("Ann wrote the book.", "Ann was born in Oslo.", "Bergen is wet.")


def verdict(body):
    """Reply as a judge that needs the passage on Ann's birth."""
    sufficient = "Ann was born in Oslo" in prompt_of(body).rpartition("Example.")[2].partition("}")[2]
    return json.dumps({"needed": "Ann's birthplace", "found": "...", "sufficient": sufficient})


def asker(endpoint, cache=None):
    return JudgeModel(ChatModel("j", base_url=endpoint.url, max_retries=0, timeout_s=600), cache=cache)


@pytest.fixture
def path(tmp_path):
    rows = [
        {
            "question_id": "q",
            "round": r,
            "question": "Where was the book's author born?",
            "golds": ["Oslo"],
            "answer": ["Rome", "Oslo", "Oslo"][r - 1],
            "em": float(r > 1),
            "f1": float(r > 1),
            "passage_ids": [f"q#{i}" for i in range(r)],
            "end": "max_rounds",
            "p_correct": [0.9, 0.3, 0.6][r - 1],
            "cost.generator.calls": 1.0,
        }
        for r in (1, 2, 3)
    ]
    write_recording(tmp_path / "r.parquet", rows)
    paragraphs = [{"title": f"T{i}", "text": text} for i, text in enumerate(TEXTS)]
    dataset(
        tmp_path / "q.jsonl",
        {"id": "q", "question": rows[0]["question"], "answers": ["Oslo"], "paragraphs": paragraphs},
    )
    return tmp_path / "r.parquet"


def judge(path, endpoint, out, *more):
    where = ("--dataset", path.with_name("q.jsonl"), "--base-url", endpoint.url, "--model", "j", "-o", out)
    return cli("judge", "drafts", path, *where, *more)


def test_a_verdict_is_recorded_as_a_signal_and_rules_pay_for_it(path, tmp_path):
    out = tmp_path / "judged.parquet"
    with Endpoint(verdict) as endpoint:
        done = judge(path, endpoint, out, "--set=marks=context_sufficient")
        assert done.code == 0, done
        prompts = [request.prompt for request in endpoint.requests]
    assert len(prompts) == 3
    assert all("Draft" not in prompt and "Rome" not in prompt for prompt in prompts)
    recording = read_recording(out)
    assert recording.column("context_sufficient").tolist() == [[0.0, 1.0, 1.0]]
    assert "context_sufficient" in recording.names("signal")
    rules = ["sufficient_context", "(context_sufficient >= 1) & (p_correct > 0.5)", "fixed_k(3)"]
    alone, both, fixed = replay(recording, rules, metrics="em").rows[:3]
    assert [row.stop_rounds for row in (alone, both, fixed)] == [{2: 1.0}, {3: 1.0}, {3: 1.0}]
    assert alone.components["judge:context_sufficient"]["calls"] == 2
    assert fixed.components["judge:context_sufficient"]["calls"] == 0


def test_equal_passages_are_judged_once_whatever_the_draft(path, tmp_path):
    rows = read_recording(path).table.to_pylist()
    for row in rows:
        row["passage_ids"] = ["q#0", "q#1"]
    write_recording(path, rows)
    with Endpoint(verdict) as endpoint:
        assert judge(path, endpoint, tmp_path / "o.parquet", "--set=marks=context_sufficient").code == 0
        assert len(endpoint.requests) == 1


def test_a_verdict_has_no_part_in_the_score_of_drafts(path, tmp_path):
    with Endpoint(verdict) as endpoint:
        with pytest.raises(DataError, match="judge it alone"):
            Panel(asker(endpoint), ["faithfulness", "context_sufficient"])
        done = judge(path, endpoint, tmp_path / "o.parquet", "--set=marks=faithfulness,context_sufficient")
        assert done.code != 0
        assert endpoint.requests == []
    assert not set(VERDICTS) & set(MARKS)


@pytest.mark.parametrize("reply", ["Yes, it is.", '{"sufficient": "yes"}', '{"sufficient": 1}', '{"needed": "x"}'])
def test_a_reply_without_a_verdict_is_undefined(reply, path, tmp_path):
    out = tmp_path / "o.parquet"
    with Endpoint(reply) as endpoint:
        assert judge(path, endpoint, out, "--set=marks=context_sufficient").code == 0
    assert np.isnan(read_recording(out).column("context_sufficient")).all()


def test_a_live_loop_asks_for_the_verdict_and_stops_by_it():
    pool = [Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(TEXTS)]
    question = "Where was Ann, who wrote the book, born?"
    with Endpoint(verdict) as endpoint:
        loop = RetrievalLoop(
            model=ScriptedModel(lambda text, passages: "Oslo" if len(passages) > 1 else "Rome"),
            retriever=PoolBM25(),
            policy=Policy(rule="sufficient_context", max_rounds=3),
            enrichers=(Panel(asker(endpoint), ["context_sufficient"]),),
        )
        outcome = loop.run(question, pool)
        asked = len(endpoint.requests)
    shown = [any("Oslo" in passage.text for passage in observed.passages) for observed in outcome.rounds]
    assert shown.index(True) + 1 == outcome.decision.stop_round == asked
    assert outcome.costs["judge:context_sufficient"].calls == asked


def test_a_rule_on_the_verdict_needs_a_judge_of_it(tmp_path, path):
    arguments = (
        "record",
        path.with_name("q.jsonl"),
        "-o",
        tmp_path / "live.parquet",
        "--max-rounds",
        "2",
        "--model",
        "m",
    )
    with Endpoint("Answer: Oslo") as endpoint, Endpoint(verdict) as judging:
        where = ("--base-url", endpoint.url, "--judge-model", "j", f"--set=judge-base-url={judging.url}")
        wrong = cli(*arguments, *where, "--set=judge-signal=sufficient")
        assert "context_sufficient" in wrong.error
        assert cli(*arguments, *where, "--set=judge-signal=context_sufficient").code == 0
        assert len(judging.requests) == 2
    recording = read_recording(tmp_path / "live.parquet")
    assert set(recording.column("context_sufficient").ravel().tolist()) <= {0.0, 1.0}
    assert recording.column("cost.judge:context_sufficient.calls").sum() == 2


def test_confidence_and_verdict_combine_in_one_rule():
    rule = parse_rule("sufficient_context(0.5)")
    assert str(rule) == "(context_sufficient >= 1) & (p_correct > 0.5)"
    policy = Policy(rule=rule, max_rounds=3)
    rounds = [
        Round(index=r, answer="a", signals={"context_sufficient": sufficient, "p_correct": p})
        for r, (sufficient, p) in enumerate([(0.0, 0.9), (1.0, 0.4), (1.0, 0.7)], 1)
    ]
    assert policy.decide(rounds).stop_round == 3
    unknown = [Round(index=1, answer="a", signals={"context_sufficient": math.nan, "p_correct": 0.9})]
    assert not policy.decide(unknown).stop
