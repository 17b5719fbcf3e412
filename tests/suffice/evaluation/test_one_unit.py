"""One question, or one cluster of them, shows no spread: no figure may look as if it had an interval."""

from __future__ import annotations

import math

import pytest

from suffice.common.tables import render
from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.replay.replay_tables import replay_notes, replay_tables
from suffice.evaluation.statistics import ONE_UNIT, Resampling
from suffice.presentation import make_report, render_html
from suffice.recordings import Recording
from suffice.verdicts.diagnostics import diagnose
from suffice.verdicts.diagnostics.selection import compare_selectors
from suffice_gates.gates import GateEvaluation, column_gate, compare_gates, comparison_table
from suffice_papers.semantic.protocol import semantic_protocol
from suffice_papers.semantic.tuning import given
from tests.support.protocol_tools import drafts
from tests.support.shared import recording_of

RULE = "answer_stable >= 1"


def recording(n: int = 1, name: str = "", cluster: str = "the same") -> Recording:
    ids = [f"{name}{q}" for q in range(n)]
    return recording_of(
        [["no", "no", "gold", "gold"]] * n,
        start=0,
        gold="gold",
        kinds={"own_score": "signal"},
        question_id=ids,
        cluster=cluster or ids,
        answer_stable=[[None, None, 0.0, 1.0]] * n,
        own_score=[[0.1, None, None, None]] * n,
    )


@pytest.mark.parametrize("n", [1, 3])
def test_replay_and_its_page_give_no_interval_and_say_why(n):
    kept = recording(n)
    result = replay(kept, [RULE], resampling=Resampling(n_resamples=20))
    difference = result.row("fixed_k(1)").deltas["f1"]
    assert (difference.delta, difference.warning) == (-1.0, ONE_UNIT)
    assert math.isnan(difference.low)
    assert math.isnan(difference.high)
    assert ONE_UNIT in replay_notes(result)
    assert "-100.0 [n/a]" in render(replay_tables(result), "md")
    page = render_html(make_report({"one": kept}, [policy_for(kept, RULE)]))
    assert ONE_UNIT in page
    assert "(no interval" in page


def test_diagnose_gates_selectors_and_the_protocol_say_so_too():
    kept = recording()
    assert ONE_UNIT in diagnose(kept, policy=RULE, resampling=Resampling(n_resamples=20)).notes
    compared = compare_selectors(
        kept, [policy_for(kept, RULE)], ["first"], metric="f1", resampling=Resampling(n_resamples=20)
    )
    assert ONE_UNIT in compared.notes
    assert all(math.isnan(low) for row in compared.rows for _, low, _ in (row.delta, row.gap_seen, row.gap_full))
    prepared, tune = (
        GateEvaluation(part, metrics=("em",), resampling=Resampling(n_resamples=20))
        for part in (kept, recording(9, "tune", ""))
    )
    gates = compare_gates(prepared, [column_gate("own_score", prepared, tune)], tune=tune)
    assert ONE_UNIT in gates.notes
    assert "[n/a]" in render([comparison_table(gates)], "md")
    assert ONE_UNIT in semantic_protocol(drafts(1), given(0.06), resampling=Resampling(n_resamples=20)).notes
