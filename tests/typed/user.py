"""Use the public interface as a user does: `make lint` checks this file with mypy and pyright in their strict modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt

import suffice
from suffice import (
    Advice,
    Audit,
    Claim,
    Cost,
    Decision,
    Family,
    Passage,
    Policy,
    Recording,
    Round,
    Rounds,
    Rule,
    SamplingLoop,
    Selector,
    Session,
    calibrate,
    certify,
    decide,
    import_recording,
    parse_rule,
    read_recording,
    record,
    register_metric,
    register_rule,
    register_selector,
    register_signal,
    replay,
    search,
    watch,
)
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import ReplayResult
from suffice.loops import RetrievalLoop
from suffice.loops.models import ChatModel, ScriptedModel
from suffice.loops.retrieval import PoolBM25, Question, load_questions
from suffice.policy.rules import AllOf, fixed_k, signal
from suffice.verdicts.watches import WatchResult
from suffice_gates.probes import Probe
from suffice_reader import MiniLM, SpanReaderModel
from suffice_retrieval.indexes import open_corpus


@register_signal("ratio", (0.0, 1.0), component="")
def shared_words(rounds: Sequence[Round]) -> float:
    """Share of the answer's words in the newest passage."""
    last = rounds[-1]
    words = set((last.answer or "").lower().split())
    if not words or not last.passages:
        return float("nan")
    return len(words & set(last.passages[-1].text.lower().split())) / len(words)


@register_metric("first_letter")
def first_letter(answer: str | None, golds: Sequence[str]) -> float:
    """Whether the first letter is right."""
    return float(any((answer or " ")[0] == gold[0] for gold in golds))


@register_rule("rising")
@dataclass(frozen=True)
class Rising(Rule):
    """Fires where a signal has risen since the round before."""

    name: str

    def fires(self, rounds: Rounds) -> npt.NDArray[np.bool_]:
        column = rounds[self.name]
        before = np.concatenate([np.full((*column.shape[:-1], 1), np.nan), column[..., :-1]], axis=-1)
        return column > before

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({self.name})


@register_rule("typed_at")
def at(k: int = 2) -> Rule:
    """Return a rule that fires from a round on."""
    return parse_rule(f"fixed_k({k})")


def rules() -> Rule:
    """Combine rules by operators."""
    assert_type(Rising("p_correct").name, str)
    assert_type(at(3), Rule)
    assert_type(parse_rule("tasr"), Rule)
    rule = (signal("answer_stable") >= 1) & (signal("p_correct") > 0.25) | fixed_k(4)
    return rule & Rising("answer_margin")


def live(policy: Policy, drafts: Sequence[str]) -> str | None:
    """Decide on drafts, one after another."""
    session = Session(policy, audit=Audit(rate=0.05, seed="a secret text"), question_id="1")
    for draft in drafts:
        decision = session.observe(
            draft=draft, costs={"writer": Cost(calls=1, output_tokens=12)}, signals={"spend": 0.1}
        )
        assert_type(decision, Decision)
        assert_type(decision.stop, bool)
        assert_type(decision.answer_round, int | None)
        if decision.stop:
            return decision.answer
    assert_type(session.decision, Decision | None)
    return session.end("exhausted").answer


def rounds(text: str) -> Decision:
    """Decide on all rounds at once."""
    passage = Passage(passage_id="1", title="There", text=text)
    made = [Round(index=1, answer="Oslo", passages=(passage,)), Round(index=2, answer="Oslo")]
    return Policy(rule="answer_stable", selector="last", max_rounds=4).decide(made)


def proved(path: Path) -> Advice:
    """Read a recording and ask for verdicts."""
    recording = read_recording(path)
    assert_type(recording, Recording)
    policy, fit = calibrate(recording, rule="tasr")
    assert_type(policy, Policy)
    assert_type(fit.n, int)
    result = replay(recording, [policy, "answer_stable", fixed_k(2)])
    assert_type(result, ReplayResult)
    for row in result.rows:
        assert_type(row.label, str)
        assert_type(row.metrics["f1"], float)
    assert_type(watch(recording, policy), WatchResult)
    found = search(recording, budget=3.0)
    print(result.headline("tasr"), found)
    print(certify(recording, ["fixed_k(2)", policy], Claim(metric="em", epsilon=0.02)), Family)
    advice = decide(recording, max_loss=0.02)
    assert_type(advice, Advice)
    print(advice.sentence, advice.verdict)
    return advice


def recorded(folder: Path) -> None:
    """Record a loop with a model that is embedded, scripted, or behind an endpoint."""
    questions = load_questions("hotpotqa_tune", limit=2)
    assert_type(questions, list[Question])
    for model in (
        SpanReaderModel(),
        ScriptedModel({"Where?": ["Oslo"]}),
        ChatModel("m", base_url="http://localhost:8000/v1"),
    ):
        loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=Policy(rule=rules()))
        summary = record(questions, loop, folder / "tune.parquet")
        print(summary)
        outcome = loop.run(questions[0].question, questions[0].passages)
        assert_type(outcome.answer, str | None)
        print(outcome.decision.reason)
    print(SamplingLoop(model=ChatModel("m", base_url="http://localhost:8000/v1")).run("Where?"))


def imported(log: Path) -> str:
    """Import a log, or say what is wrong with it."""
    try:
        summary = import_recording(log, "tabular", columns={"question_id": "id"}, out=log.with_suffix(".parquet"))
    except DataError as error:
        return str(error)
    except SufficeError:
        raise
    return f"{summary.trajectories} of {summary.path}"


def others(folder: Path) -> None:
    """Use the packages beside the main one."""
    vectors = MiniLM().embed(["a draft", "another"])
    print(vectors.shape, open_corpus(folder), Probe, suffice.tasr(), AllOf, register_selector, Selector)
