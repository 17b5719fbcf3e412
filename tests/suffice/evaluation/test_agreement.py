"""One rule stops every question at the same round, whichever way in: replay, stream, certify, search or a live session."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice.errors import UnknownSignalError
from suffice.evaluation.replay import policy_for, reads_round_0, replay
from suffice.evaluation.search import FORMS, Block, Explorer, Literal, Space
from suffice.evaluation.search.data import Questions
from suffice.evaluation.search.passes import Checks
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import AnyOf, Rule, Threshold, parse_rule
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy, Session, stops
from suffice.policy.signals import Idf
from suffice.recordings.recording import Recording, write_recording
from suffice.verdicts.certificates import Claim, listed, measure_losses
from tests.support.replayed import replay_in_blocks
from tests.support.strategies import CALIBRATOR, NAN, RECORDED, RULE_SIGNALS, Trajectory, record, recorded, rules

TEXTS = (
    "full",
    "fixed_k(1)",
    "fixed_k(3)",
    "answer_stable",
    "tasr",
    "semantic_bge",
    "p_known > 0.5",
    "first_of(p_known > 0.5, tasr)",
    "(p_known > 0.4) | (answer_stable >= 1)",
    "(p_known > 0.4) & (score_gap > 1)",
    "patience((p_known > 0) | (overlap > 0.1), 2)",
    "k_of(2, p_known > 0.4, overlap > 0.1, answer_stable >= 1)",
    "first_of(p_known > 0.8, k_of(2, overlap > 0.1, score_gap > 1, answer_stable >= 1), calls >= 3)",
    "patience((semantic_distance < 0.06), 2) | (p_known > 0.8)",
    "(1.0 * p_known + 0.5 * overlap) > 0.6",
)
FITTED = {"calibrators": (CALIBRATOR,), "state": {"overlap": Idf.fit(["any text"])}}
MORE = {"p_known": [NAN, 0.1, 0.5, 0.9], "semantic_distance": [NAN, 0.0, 0.05, 0.3]}
SEARCHED = (
    "p_known",
    "p_correct",
    "verbal_confidence",
    "answer_stable",
    "overlap",
    "score_gap",
    "abstained",
    "round",
    "calls",
    "tokens",
)
PLACE = "place"
"""A metric that shows the round of the returned answer: a tenth of it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agreement")


@st.composite
def questions(draw, rule: Rule) -> tuple[list[Trajectory], Recording]:
    """Answered questions of unequal length, with and without round 0, which a gate needs."""
    start = 0 if reads_round_0(rule) else None
    made = draw(recorded(complete=True, max_rounds=4, max_questions=3, start=start))
    first = made.trajectories[0].rounds[0].index
    trajectories = []
    for item in made.trajectories:
        n = draw(st.integers(min(2 - first, len(item.rounds)), len(item.rounds)))
        end = "max_rounds" if n == len(item.rounds) else "exhausted"
        rounds = tuple(
            replace(
                r,
                answer=r.answer if r.answer.strip() else "blank",
                signals={**r.signals, **{name: draw(st.sampled_from(values)) for name, values in MORE.items()}},
            )
            for r in item.rounds[:n]
        )
        trajectories.append(replace(item, rounds=rounds, end=end))
    recording = record(trajectories, names=(*RECORDED, *MORE))
    table = recording.table
    places = np.asarray(table.column("round").to_pylist()) / 10.0
    return trajectories, Recording(table.append_column(PLACE, [places]), recording.metadata)


def live(policy: Policy, item: Trajectory) -> int:
    session = Session(policy)
    decision = session.observe_all(r for r in item.rounds if r.index >= policy.start_round)
    decision = decision if decision is not None and decision.stop else session.end("exhausted")
    assert decision.stop_round is not None
    return decision.stop_round


def shares(rounds: list[int]) -> dict[int, float]:
    return {r: rounds.count(r) / len(rounds) for r in sorted(set(rounds))}


def check(folder, trajectories: list[Trajectory], recording: Recording, text: str) -> None:
    policy = policy_for(recording, text, **FITTED)
    expected = [live(policy, item) for item in trajectories]
    assert stops(policy, recording.rounds(policy.raw_columns)).rounds.tolist() == expected
    path = folder / "r.parquet"
    write_recording(path, recording.table)
    try:
        row = replay(recording, [policy], metrics=("f1",), baseline="full", resampling=Resampling(n_resamples=2)).rows[
            0
        ]
    except UnknownSignalError:  # what the rule reads is undefined in every round: refused whichever way in
        with pytest.raises(UnknownSignalError):
            replay_in_blocks(path, policy, metrics=("f1",), baseline="fixed_k(1)")
        with pytest.raises(UnknownSignalError):
            measure_losses(recording, [policy], Claim(epsilon=0.5, metric=PLACE))
        return
    assert row.stop_rounds == pytest.approx(shares(expected))
    streamed = replay_in_blocks(path, policy, metrics=("f1",), baseline="fixed_k(1)", block_rows=3)
    assert streamed.rows[0].stop_rounds == pytest.approx(shares(expected))
    if text == "full":
        return
    families = [listed([text], policy_for(recording, "full", **FITTED))]
    families += (
        [listed([text], recording)] if not {"p_correct", "overlap", "weighted_vote_share"} & set(policy.signals) else []
    )
    for family in families:
        measured = measure_losses(recording, family.policies, Claim(epsilon=0.5, metric=PLACE))
        places = dict(zip(measured.question_ids, measured.values[0].tolist(), strict=True))
        assert [round(10 * places[id_hash(item.question_id)]) for item in trajectories] == expected


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_named_or_gated_rule_stops_alike_whichever_way_in(folder, text, data):
    rule = parse_rule("never()" if text == "full" else text)
    check(folder, *data.draw(questions(rule)), text)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_rule_text_stops_alike_whichever_way_in(folder, data):
    rule = data.draw(rules((*RULE_SIGNALS, *MORE)))
    check(folder, *data.draw(questions(rule)), str(rule))


@st.composite
def spaces(draw) -> Space:
    """A block of any form over one to four literals, on signals that no judge measures."""
    names = draw(st.lists(st.sampled_from(SEARCHED), min_size=1, max_size=3, unique=True))
    names = draw(st.sampled_from([names, ["p_known", *(name for name in names if name != "p_known")]]))
    literals = []
    for name in names:
        values = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.15, 0.5, 1.0, 2.0]), min_size=1, max_size=2, unique=True))
        comparison = draw(st.sampled_from([">", ">=", "<", "<="]))
        literals.append(Literal(signal=name, comparison=comparison, thresholds=tuple(values)))
    patience = draw(st.sampled_from([(1,), (2,), (1, 2)]))
    return Space(
        name="any", blocks=(Block(form=draw(st.sampled_from(FORMS)), literals=tuple(literals)),), patience=patience
    )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_searched_rule_stops_and_costs_as_live(data):
    space = data.draw(spaces())
    names = [literal.signal for literal in space.blocks[0].literals]
    reading = AnyOf(tuple(Threshold(name, ">", 0.0) for name in (*names, names[0])))
    trajectories, recording = data.draw(questions(reading))
    policy = policy_for(recording, reading, **FITTED)
    try:
        asked = Questions.of({"": recording}, {"": policy}, metric=PLACE, baseline="fixed_k(1)")
        explorer = Explorer(space, asked)
        checks = Checks()
        checks.add_questions(asked, PLACE)
        _ = checks.sentences  # refuses a signal without a value
    except UnknownSignalError:  # a signal is undefined wherever its rules look: replay refuses one of the rules, too
        with pytest.raises(UnknownSignalError):
            replay(
                recording,
                [policy_for(recording, Threshold(name, ">", 0.0), **FITTED) for name in names],
                metrics=(PLACE,),
                resampling=Resampling(n_resamples=1),
                baseline="fixed_k(1)",
            )
        return
    drawn = data.draw(st.lists(st.integers(0, space.count - 1), min_size=1, max_size=12, unique=True))
    numbers = np.array(sorted(drawn))
    rules = explorer.rules(numbers)
    policies = [policy_for(recording, rule, name=str(rule), **FITTED) for rule in rules]
    expected = [[live(policy, item) for item in trajectories] for policy in policies]
    for part, side, position in explorer.positions(numbers):
        assert side.view.index[np.minimum(position, side.last)].tolist() == expected[part]
    rows = replay(
        recording, policies, metrics=(PLACE,), baseline="fixed_k(1)", resampling=Resampling(n_resamples=1)
    ).rows
    means = explorer.means(numbers)
    for place, row in enumerate(rows[: len(rules)]):
        found = (means["quality"][place], means["calls"][place], means["tokens"][place])
        assert found == pytest.approx((row.metrics[PLACE], row.calls.mean, row.costs["tokens"])), row.label
