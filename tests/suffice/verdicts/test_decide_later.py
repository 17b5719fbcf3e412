"""Coming back to a decision: which questions are evidence about the same loop, and what is said of them."""

from __future__ import annotations

import pytest

from suffice.errors import ConfigMismatchError, SchemaError
from suffice.evaluation.replay.prices import Price
from suffice.policy.rounds import COST_KINDS
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.decisions import Advice, decide
from suffice.verdicts.decisions.same_loop import fingerprints
from tests.suffice.verdicts.test_decide import converged_at_2, log_of, losing_three_points


def unscored(recording: Recording) -> Recording:
    """Return a log without its metric."""
    return Recording(recording.table.drop_columns(["quality"]), recording.metadata)


def test_another_loops_answers_to_the_same_questions_are_refused():
    first = decide(log_of(400, converged_at_2), metric="quality")
    with pytest.raises(ConfigMismatchError, match="400 of 400"):
        decide(log_of(400, losing_three_points), previous=first)
    by_agreement = decide(unscored(log_of(400, converged_at_2)))
    with pytest.raises(ConfigMismatchError, match="other answers"):
        decide(unscored(log_of(400, losing_three_points)), previous=by_agreement)


def test_one_changed_score_is_seen_also_among_tune_questions():
    log = log_of(100, converged_at_2)
    first = decide(log, metric="quality")
    for q in range(0, 100, 9):
        rows = log.table.to_pylist()
        rows[5 * q + 2]["quality"] = 0.5
        changed = Recording(build_table(rows, kinds={"quality": "metric"}))
        with pytest.raises(ConfigMismatchError, match=f"'q{q}'"):
            decide(changed, previous=first)


def test_rounding_and_row_order_change_no_fingerprint():
    log = log_of(20, lambda q, r: (q * r % 7) / 7)
    rows = [{**row, "quality": row["quality"] + 1e-13} for row in reversed(log.table.to_pylist())]
    rows.sort(key=lambda row: row["round"])
    again = Recording(build_table(rows, kinds={"quality": "metric"}))
    assert fingerprints(log, "quality") == fingerprints(again, "quality")
    assert fingerprints(log, "quality") != fingerprints(log, "agreement")  # what is computed is not hashed again


def test_a_lowered_cap_is_not_evidence_about_the_old_one():
    first = decide(log_of(400, converged_at_2), metric="quality")
    for cap in (4, 2, 1):
        with pytest.raises(ConfigMismatchError, match=f"one of {cap}"):
            decide(log_of(100, converged_at_2, first=400, rounds=cap), previous=first)


def test_a_loop_that_now_follows_a_rule_is_no_new_evidence():
    first = decide(log_of(400, converged_at_2), metric="quality")
    stopped = log_of(100, converged_at_2, first=400, rounds=lambda q: 2 + q % 4, end="rule")
    with pytest.raises(ConfigMismatchError, match="a rule ended"):
        decide(stopped, previous=first)


def test_few_short_questions_of_a_loop_that_stops_by_itself_count():
    def end(q: int, r: int) -> str:
        return "rule" if q % 4 < 3 else "max_rounds"

    first = decide(log_of(400, converged_at_2, rounds=lambda q: 2 + q % 4, end=end), metric="quality")
    short = log_of(3, converged_at_2, first=400, rounds=3, end="max_rounds")  # as a table of them is imported
    assert decide(short, previous=first).n == first.n + 3


def test_what_was_noted_stays_noted():
    log = unscored(log_of(100, converged_at_2))
    first = decide(log)
    same, more = decide(log, previous=first), decide(unscored(log_of(5, converged_at_2, first=100)), previous=first)
    for note in first.notes:
        assert note in same.notes
        assert note in more.notes
    assert any("not truth" in note for note in more.notes)
    assert len(decide(log, previous=same).notes) == len(same.notes)


def test_what_is_unknown_is_noted_of_all_questions():
    first = decide(log_of(200, lambda q, r: None if r == 2 and q % 2 else 1.0 - q % 2 / 2), metric="quality")
    later = decide(log_of(100, converged_at_2, first=200), previous=first)
    share = 100 * later.trial.totals.unknown / later.n
    assert 20 < share < 45
    assert any(note.startswith(f"in {share:.1f} % of the questions an outcome is unknown") for note in later.notes)


def test_a_few_new_questions_hardly_change_how_many_are_needed():
    def values(q: int, r: int) -> float:
        return 1.0 if r == 5 else float(q % 50 > 0)

    first = decide(log_of(600, values), metric="quality", max_loss=0.04, alpha=0.001)
    later = decide(log_of(3, lambda q, r: 1.0, first=601), previous=first)
    numbers = [advice.figures[advice.chosen].needed[1] for advice in (first, later) if advice.chosen is not None]
    assert len(numbers) == 2
    assert 0.7 < numbers[0] / numbers[1] < 1.4


def test_leaving_failed_questions_out_is_declared_once():
    def end(q: int, r: int) -> str:
        return "failed" if q % 10 == 0 else "max_rounds"

    log, more = log_of(300, converged_at_2, end=end), log_of(100, converged_at_2, first=300, end=end)
    counted, left_out = (decide(log, metric="quality", leave_out_failed=out) for out in (False, True))
    with pytest.raises(ConfigMismatchError, match="leave_out_failed"):
        decide(more, previous=counted, leave_out_failed=True)
    later = decide(more, previous=left_out)
    assert later.n == left_out.n + 90
    assert later.trial.totals.failed == 0
    assert Advice.from_dict(later.to_dict()).trial.leave_out_failed


def test_what_lost_early_and_not_since_is_not_said_to_lose():
    first = decide(log_of(200, lambda q, r: float(r == 5)), metric="quality", max_loss=0.2)
    assert first.verdict == "keep what you have"
    later = decide(log_of(1500, lambda q, r: 1.0, first=200), previous=first)
    assert later.trial.above.shown(0.05).all()
    assert not later.trial.hopeless.any()
    assert later.verdict == "do it"
    assert any(", shown earlier to lose more than 20 points, which lost less on all" in note for note in later.notes)


def test_sums_of_two_price_lists_are_not_money():
    tokens = {f"cost.generator.{kind}": 10.0 for kind in COST_KINDS if kind != "calls"} | {"cost.generator.calls": 1.0}
    log, more = log_of(400, converged_at_2, **tokens), log_of(100, converged_at_2, first=400, **tokens)
    price, dearer = (Price(uncached=usd, cached=1.0, output=1.0) for usd in (1.0, 9.0))
    first = decide(log, metric="quality", prices=price)
    assert "USD" in decide(more, previous=first, prices=price).sentence
    later = decide(more, previous=first, prices=dearer)
    assert "USD" not in later.sentence
    assert any("not those of the earlier decision" in note for note in later.notes)
    about_money = decide(log, metric="quality", cost="money", prices={"generator": price})
    assert decide(more, previous=about_money, prices={"generator": price}).n == about_money.n + 100
    with pytest.raises(ConfigMismatchError, match="other prices"):
        decide(more, previous=about_money, prices={"generator": dearer})


def test_a_question_also_asked_of_another_loop_shares_no_decision():
    first = decide(log_of(60, converged_at_2), metric="quality")
    rows = [
        {**row, "question_id": f"other {row['question_id']}"}
        for row in log_of(60, losing_three_points).table.to_pylist()
    ]
    assert not first.knows(Recording(build_table(rows, kinds={"quality": "metric"})))
    assert first.knows(log_of(100, converged_at_2, first=59))


def test_undefined_capital_in_a_file_is_refused():
    data = decide(log_of(60, converged_at_2), metric="quality").to_dict()
    data["trial"]["below"]["log_capital"][0][0] = None
    with pytest.raises(SchemaError, match="undefined"):
        Advice.from_dict(data)
