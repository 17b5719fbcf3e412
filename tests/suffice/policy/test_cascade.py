"""The published cascade equals a plain loop on 5,000 random trajectories: stops, reasons, members, judge calls."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.evaluation.replay import LIVE, CostTable
from suffice.policy.rounds import Round, Rounds
from suffice.policy.rules import parse_rule
from suffice.policy.session import Policy, Session, stops
from tests.support.cascade import EPSILONS, ROUNDS, TOGGLES, Drafts, cascade, drafts, rule_of

CHUNKS, CHUNK = 10, 500
SAMPLE = 12
MEMBERS = ("critic_approved", "converged", "no_gain")


def setting(number: int) -> tuple[int, float, int]:
    """The budget, the threshold and the patience of a chunk; the first is the published one."""
    if number == 0:
        return ROUNDS, 0.06, 2
    rng = np.random.default_rng(number)
    return int(rng.integers(1, ROUNDS + 1)), float(rng.choice(EPSILONS)), int(rng.integers(1, 4))


def expected_reason(reason: str, drawn: Drafts, q: int, stop: int) -> str:
    """What a decision calls it: by which rule is told apart by `fired`."""
    if reason == "ended" and drawn.ends[q] == "rule":
        return "unrun"  # the log was cut there: what came then, nobody knows
    if not drawn.answered[q, :stop].any():
        return "failed"
    if reason in MEMBERS:
        return "rule"
    return "exhausted" if reason == "ended" else "max_rounds"


def member_text(reason: str, eps: float, patience: int) -> str:
    """The text of the member that a reason stands for."""
    converged = f"patience((semantic_distance < {eps!r}), {patience})"
    texts = {"critic_approved": "critic_approved >= 1", "converged": converged, "no_gain": "information_gain <= 0"}
    return str(parse_rule(texts[reason]))


def fired_member(policy: Policy, view: Rounds, q: int, position: int) -> str:
    """The member that the rule names for one question."""
    span = slice(0, position + 1)
    columns = {name: column[q, span] for name, column in view.columns.items()}
    return policy.rule.held(Rounds(columns, view.index[span], view.seen[q, span], None))


def live(policy: Policy, drawn: Drafts, q: int):
    """Feed one trajectory to a session; return its decision."""
    session = Session(policy, missing="ignore")  # odd values are drawn, too
    for t in range(min(int(drawn.length[q]), policy.max_rounds)):
        said = {
            "critic_approved": drawn.approved[q, t],
            "semantic_distance": drawn.distance[q, t],
            "information_gain": drawn.gain[q, t],
        }
        answer = "a draft" if drawn.answered[q, t] else None
        decision = session.observe(Round(index=t + 1, answer=answer, signals=said))
        if decision.stop:
            return decision
    return session.end("exhausted")


@pytest.mark.parametrize("number", range(CHUNKS))
def test_the_cascade_and_its_ablations_equal_a_plain_loop(number):
    drawn = drafts(CHUNK, np.random.default_rng([7, number]))
    max_rounds, eps, patience = setting(number)
    recording = drawn.recording()
    table = CostTable(recording)
    bits = 1 << recording.index
    columns = [array.tolist() for array in (drawn.approved, drawn.distance, drawn.score)]
    length = drawn.length.tolist()
    reasons_seen: set[str] = set()
    for name, toggles in TOGGLES.items():
        policy = Policy(rule=rule_of(toggles, eps, patience), max_rounds=max_rounds)
        stopped = stops(policy, recording.rounds(policy.raw_columns))
        masks = LIVE.policy_masks(table, policy, stopped)
        options = {"max_rounds": max_rounds, "eps": eps, "patience": patience, "toggles": toggles}
        told = [cascade(a, d, s, n, **options) for a, d, s, n in zip(*columns, length, strict=True)]
        assert stopped.rounds.tolist() == [stop for stop, _, _, _ in told], name
        assert (masks["judge:information_score"] @ bits).tolist() == [judged for _, _, judged, _ in told], name
        assert (masks["embedder"] @ bits).tolist() == [embedded for _, _, _, embedded in told], name
        critiques = [
            stop - (reason != "ended" and (stop < 2 or not toggles[0])) for stop, reason, _, _ in told
        ]  # of the last draft only where the rule comes to it, or where the drafts ran out
        assert masks["critic"].sum(axis=1).tolist() == critiques, name
        assert masks["writer"].sum(axis=1).tolist() == [stop for stop, _, _, _ in told], name
        reasons = [expected_reason(reason, drawn, q, stop) for q, (stop, reason, _, _) in enumerate(told)]
        assert stopped.reasons(recording.ends, max_rounds) == reasons, name
        assert stopped.fired.tolist() == [reason in MEMBERS for _, reason, _, _ in told], name
        held = {r: member_text(r, eps, patience) for r in MEMBERS}
        among = range(CHUNK) if name == "full" else range(SAMPLE)
        for q in among:
            stop, reason, _, _ = told[q]
            if reason in MEMBERS:
                assert fired_member(policy, stopped.view, q, stop - 1) == held[reason], (name, q)
        for q in range(SAMPLE):
            decision, (stop, reason, _, _) = live(policy, drawn, q), told[q]
            if not drawn.answered[q, :stop].any():  # without an answer there is no round to return
                assert (decision.reason, decision.answer) == ("failed", None)
                continue
            assert decision.stop_round == stop, (name, q)
            # a session of ours goes on where a recording was cut by a rule; here it ran out of drafts
            assert decision.reason == ("exhausted" if reason == "ended" else reasons[q]), (name, q)
            assert decision.fired == (held[reason] if reason in MEMBERS else None), (name, q)
        reasons_seen |= {reason for _, reason, _, _ in told}
    if number == 0:
        assert reasons_seen == {*MEMBERS, "max_rounds", "ended"}


def test_the_named_rules_are_the_cascade_and_its_cells():
    cells = {
        "semantic_full(0.06, 2)": "full",
        "semantic_full_bge": "full",
        "semantic(0.06, 2)": "entropy_only",
        "semantic_bge": "entropy_only",
        "critic_only": "critic_only",
        "information_gain <= 0": "isgain_only",
        "never()": "none",
    }
    recording = drafts(2000, np.random.default_rng(3)).recording()
    table = CostTable(recording)
    for text, cell in cells.items():
        named = Policy(rule=parse_rule(text), max_rounds=ROUNDS)
        ours = Policy(rule=rule_of(TOGGLES[cell], 0.06, 2), max_rounds=ROUNDS)
        found = [stops(policy, recording.rounds(policy.raw_columns)) for policy in (named, ours)]
        assert found[0].position.tolist() == found[1].position.tolist(), text
        for component, mask in LIVE.policy_masks(table, named, found[0]).items():
            assert np.array_equal(mask, LIVE.policy_masks(table, ours, found[1])[component]), (text, component)


def test_the_published_walk_through_of_the_cascade():
    """t = 1 never stops by a member; convergence needs k distances, so k + 1 drafts; T = 1 stops at once."""
    options = {"eps": 0.06, "patience": 2, "toggles": (True, True, True)}
    near, up = [0.0] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert cascade([1.0] + [0.0] * 5, near, up, 6, max_rounds=6, **options)[:2] == (3, "converged")
    assert cascade([0.0, 1.0] + [0.0] * 4, near, up, 6, max_rounds=6, **options)[:2] == (2, "critic_approved")
    assert cascade([0.0] * 6, [1.0] * 6, up[:3] + [0.3] * 3, 6, max_rounds=6, **options)[:2] == (4, "no_gain")
    assert cascade([1.0] * 6, near, up, 6, max_rounds=1, **options)[:2] == (1, "max_rounds")
