"""Random trajectories, rules and selectors for laws.

Strategies are built once: hypothesis takes longer to validate a new one than to draw from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from hypothesis import strategies as st

from suffice.policy.calibration import Calibrator
from suffice.policy.metrics import answer_key, exact_match, f1
from suffice.policy.rounds import COST_KINDS, Cost, End, Round
from suffice.policy.rules import (
    SELECTORS,
    AllOf,
    AnyOf,
    FirstOf,
    KOf,
    Never,
    Patience,
    Threshold,
    WeightedSum,
    parse_selector,
)
from suffice.policy.session import Policy
from suffice.policy.signals import compute_signals
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table

NAN, INF = math.nan, math.inf

GOLDS = ["the Tempest"]
ANSWERS = [None, "", "  ", "The The", "the a", "Tempest", "the tempest!", "Storm", "tempest storm", "not mentioned"]
MEASURED = {
    "answer_margin": [NAN, INF, -INF, 0.0, 0.1, 0.5, 1.0, 2.5, 9999.0],
    "verbal_confidence": [NAN, 1.0, 3.0, 5.0],
    "overlap": [NAN, 0.0, 0.15, 0.4, 1.0, INF],
    "score_gap": [NAN, 0.0, 2.0],
    "judge_entailment": [NAN, 1.0, 4.0, 5.0],
    "own_judge": [NAN, 0.0, 0.5, 1.0],
}
"""Signals that a host or a model measures, with the values that tests draw; the last is a user's own."""

COMPUTED = ("answer_stable", "abstained", "answer_f1_previous")
RECORDED = (*MEASURED, *COMPUTED)
CALIBRATOR = Calibrator(unseen_round="nearest").fit(
    np.array([[0.0, 0.4, 1.2], [2.0, 1.0, 3.0], [0.5, 2.0, 2.5]]), [[0, 0, 1], [1, 0, 1], [0, 1, 1]], index=[1, 2, 3]
)
VOTED = ("vote_lead", "vote_share", "posterior_majority", "window_agreement_2", "weighted_vote_share")
RULE_SIGNALS = (*RECORDED, *VOTED, "p_correct", "round", "calls", "tokens")
THRESHOLDS = (-1.0, 0.0, 0.15, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 150.0)


@cache
def rules(
    names: tuple[str, ...] = RULE_SIGNALS, numbers: tuple[float, ...] = THRESHOLDS, *, max_leaves: int = 5
) -> st.SearchStrategy:
    """Rules of every kind over these signals, their thresholds and weights from these numbers."""
    name, comparison, number = st.sampled_from(names), st.sampled_from([">", ">=", "<", "<="]), st.sampled_from(numbers)
    terms = st.lists(st.tuples(number, name), min_size=2, max_size=3).map(tuple)
    threshold = st.builds(Threshold, name, comparison, number)
    leaves = st.one_of(threshold, threshold, st.builds(WeightedSum, terms, comparison, number), st.just(Never()))
    return st.recursive(leaves, _combined, max_leaves=max_leaves)


def _combined(inner: st.SearchStrategy) -> st.SearchStrategy:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(AllOf, several),
        st.builds(AnyOf, several),
        st.builds(FirstOf, several),
        st.tuples(st.integers(1, 3), several).map(lambda drawn: KOf(min(drawn[0], len(drawn[1])), drawn[1])),
        st.builds(Patience, inner, st.integers(1, 4)),
    )


@cache
def selectors() -> st.SearchStrategy:
    return st.sampled_from([*SELECTORS.values(), parse_selector("max_answer_margin")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """All rounds of one question, and why there is no further one."""

    question_id: str
    rounds: tuple[Round, ...]
    end: End


@dataclass(frozen=True)
class Recorded:
    """The same questions as a live loop sees them and as a recorder stores them."""

    trajectories: list[Trajectory]
    recording: Recording


@st.composite
def recorded(
    draw,
    *,
    max_questions: int = 4,
    max_rounds: int = 5,
    start: int | None = None,
    ends: tuple[str, ...] = ("max_rounds", "exhausted"),
    complete: bool = False,
) -> Recorded:
    """Questions with ragged ends; `complete` gives every round an answer and every question all rounds."""
    first = draw(st.integers(0, 1)) if start is None else start
    highest = draw(st.integers(1, max_rounds))
    trajectories = []
    for q in range(draw(st.integers(1, max_questions))):
        end = draw(st.sampled_from(ends))
        if complete or end == "max_rounds":
            last, end = highest, "max_rounds"
        else:
            last = draw(st.integers(first, highest))
        rounds = tuple(draw(_rounds(r, complete)) for r in range(first, last + 1))
        trajectories.append(Trajectory(question_id=f"q{q}", rounds=rounds, end=end))
    return Recorded(trajectories, record(trajectories))


@cache
def _rounds(r: int, complete: bool) -> st.SearchStrategy[Round]:
    answers = [answer for answer in ANSWERS if answer] if complete else ANSWERS
    signals = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in MEASURED.items()})
    tokens = st.sampled_from([0.0, 10.0, 100.0])
    judge = Cost(calls=1.0, uncached_tokens=50.0, output_tokens=1.0)

    def built(drawn: tuple) -> Round:
        answer, values, read, written = drawn
        generator = Cost(calls=1.0, uncached_tokens=read, output_tokens=written, seconds=0.5)
        costs = {"generator": generator, "judge:entailment": judge, "judge:own_judge": judge, "retrieval": Cost()}
        return Round(index=r, answer=answer, signals=values, costs=costs)

    return st.tuples(st.sampled_from(answers), signals, tokens, tokens).map(built)


def record(
    trajectories: list[Trajectory], metadata: dict | None = None, names: tuple[str, ...] = RECORDED
) -> Recording:
    """What a recorder stores: measured and computed signals, costs and metrics of every round."""
    rows = []
    for trajectory in trajectories:
        for position, item in enumerate(trajectory.rounds):
            values = compute_signals(trajectory.rounds[: position + 1], names, state={})
            costs = {
                f"cost.{component}.{kind}": getattr(cost, kind)
                for component, cost in item.costs.items()
                for kind in COST_KINDS
            }
            rows.append(
                {
                    "question_id": trajectory.question_id,
                    "round": item.index,
                    "end": trajectory.end,
                    "answer": item.answer,
                    "em": exact_match(item.answer, GOLDS),
                    "f1": f1(item.answer, GOLDS),
                    **values,
                    **costs,
                }
            )
    table = build_table(rows, kinds={"own_judge": "signal"})
    return Recording(table, metadata)


@st.composite
def policies(draw, recording: Recording, names: tuple[str, ...] = RULE_SIGNALS, *, replayable: bool = False) -> Policy:
    """A policy for a recording; a `replayable` one reads nothing that is undefined in all of its rounds."""
    lowest, highest = int(recording.index[0]), int(recording.index[-1])
    policy = Policy(
        start_round=draw(st.integers(lowest, min(1, highest))),
        max_rounds=max(1, draw(st.integers(1, highest)) if highest >= 1 else 1),
        calibrators=(CALIBRATOR,),
    )
    chosen = selectors()
    if replayable:
        reading = replace(policy, rule=AnyOf(tuple(Threshold(name, ">", 0.0) for name in names)))
        view = reading.view(recording.rounds(reading.raw_columns))
        names = tuple(name for name in names if (view.seen & ~np.isnan(view[name])).any())
        chosen = chosen.filter(lambda selector: {*selector.signals} <= {*names})
    return replace(policy, rule=draw(rules(names)), selector=draw(chosen))


def reference_rows(item: Trajectory, policy: Policy) -> list[dict]:
    """The rows that `tests/support/reference.py` reads, signals derived one number at a time."""
    rows: list[dict] = []
    spent = {"calls": 0.0, "tokens": 0.0}
    votes: list[tuple[str, float]] = []
    for position, observed in enumerate(item.rounds):
        if not policy.start_round <= observed.index <= policy.max_rounds:
            continue
        values = compute_signals(item.rounds[: position + 1], RECORDED, state={})
        margin = np.array([values["answer_margin"]])
        spent["calls"] += observed.costs["generator"].calls
        spent["tokens"] += observed.costs["generator"].tokens
        p_correct = float(CALIBRATOR.predict(margin, index=[observed.index])[0])
        votes.append((answer_key(observed.answer) if observed.answer else "", p_correct))
        rows.append(
            {
                **values,
                **spent,
                **_voted(votes),
                "round": float(observed.index),
                "p_correct": p_correct,
                "answer": observed.answer,
                "em": exact_match(observed.answer, GOLDS),
                "f1": f1(observed.answer, GOLDS),
            }
        )
    return rows


def _voted(votes: list[tuple[str, float]]) -> dict[str, float]:
    """The signals of a vote, counted one answer at a time; "" is no answer."""
    keys = [key for key, _ in votes]
    cast = [key for key in keys if key]
    values = {"window_agreement_2": float(len(keys) % 2 == 0 and keys[-1] != "" and keys[-1] == keys[-2])}
    weights = {key: sum(w for k, w in votes if k == key and not math.isnan(w)) for key in cast}
    weighed = any(key and not math.isnan(w) for key, w in votes) and sum(weights.values()) > 0
    values["weighted_vote_share"] = max(weights.values()) / sum(weights.values()) if weighed else NAN
    if not cast:
        return {**values, **dict.fromkeys(("vote_lead", "vote_share", "posterior_majority"), NAN)}
    first, second = [*sorted((cast.count(key) for key in set(cast)), reverse=True), 0][:2]
    n = first + second + 1
    return {
        **values,
        "vote_lead": float(first - second),
        "vote_share": first / len(cast),
        "posterior_majority": sum(math.comb(n, heads) for heads in range(first + 1)) / 2**n,
    }


def shortened(item: Trajectory, n: int) -> Trajectory:
    """The trajectory with its first n rounds only."""
    return replace(item, rounds=item.rounds[:n])
