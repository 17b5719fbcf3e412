"""The ledger: operational costs are what the policy would have called live, the rest is evaluation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice.errors import DataError, SchemaError
from suffice.evaluation.replay import LIVE, CostTable, Price, component_prices, load_prices, replay
from suffice.evaluation.replay.baselines import closed_book, fixed_budget, oracle_best, run_policy
from suffice.evaluation.replay.outcomes import outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import random_stop
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import COST_KINDS
from suffice.policy.rules import FirstOf, Never, Rule, fixed_k, parse_rule, parse_selector, signal
from suffice.policy.session import Policy, stops
from suffice.policy.signals import SIGNALS, Signal, definitions as signal_definitions
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.support import reference
from tests.support.strategies import policies, recorded, reference_rows

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PRICE = Price(uncached=1.0, cached=0.1, output=4.0)


def table_of(rows: list[dict], metadata: dict | None = None) -> Recording:
    defaults = {"end": "max_rounds", "answer": "a", "f1": 1.0, "em": 1.0}
    return Recording(build_table([{**defaults, **row} for row in rows]), metadata)


def cost(component: str, kind: str = "calls", values: float | list = 1.0, n: int = 3) -> dict:
    return {f"cost.{component}.{kind}": values if isinstance(values, list) else [values] * n}


def question(n: int = 3, start: int = 1, **columns) -> list[dict]:
    """Rows of one question; each keyword is a column with one value for each round."""
    return [
        {"question_id": "q", "round": start + i, **{name: values[i] for name, values in columns.items()}}
        for i in range(n)
    ]


def full_costs(components: list[str], n: int = 3) -> dict:
    return {f"cost.{c}.{kind}": [1.0] * n for c in components for kind in COST_KINDS}


def charged(recording: Recording, rule: Rule, **changes) -> dict[str, list[int]]:
    """The rounds at which each component is paid for, of the first question."""
    policy = Policy(rule=rule, **{"max_rounds": int(recording.index[-1]), **changes})
    stopped = stops(policy, recording.rounds(policy.raw_columns))
    masks = LIVE.policy_masks(CostTable(recording), policy, stopped)
    return {name: recording.index[mask[0]].tolist() for name, mask in masks.items()}


# --- laws -----------------------------------------------------------------------------------------------------------


@settings(SETTINGS, max_examples=25)
@given(st.data())
def test_the_ledger_equals_plain_loops(data):
    drawn = data.draw(recorded())
    policy = data.draw(policies(drawn.recording))
    stopped = stops(policy, drawn.recording.rounds(policy.raw_columns))
    masks = LIVE.policy_masks(CostTable(drawn.recording), policy, stopped)
    for q, item in enumerate(drawn.trajectories):
        rows = reference_rows(item, policy)
        stop, _ = reference.stop(policy.rule, rows)
        visited = [int(row["round"]) for row in rows[: stop + 1]]
        index = drawn.recording.index
        assert index[masks["generator"][q]].tolist() == index[masks["retrieval"][q]].tolist() == visited
        selector = set(policy.selector.signals)
        for judge, signals in [("entailment", {"judge_entailment": (1, 0)}), ("own_judge", {"own_judge": (0, 0)})]:
            called = reference.judge_rounds(policy.rule, rows, stop, signals, selector)
            assert index[masks[f"judge:{judge}"][q]].tolist() == sorted(int(rows[t]["round"]) for t in called)


@settings(SETTINGS, max_examples=12)
@given(st.data())
def test_operational_and_evaluation_costs_add_up_to_what_was_recorded(data):
    drawn = data.draw(recorded(start=1))
    policy = data.draw(policies(drawn.recording, replayable=True))
    result = replay(drawn.recording, [policy], resampling=Resampling(n_resamples=10), prices=PRICE)
    for row in result.rows:
        for kind in ("calls", "tokens", "seconds", "money"):
            recorded_total = CostTable(drawn.recording, PRICE).recorded
            total = {"calls": recorded_total.calls, "money": recorded_total.money}.get(kind)
            total = recorded_total.total(kind) if total is None else total
            assert row.costs[kind] + row.evaluation[kind] == pytest.approx(float(total.mean()))
            assert row.evaluation[kind] >= -1e-9


# --- who pays when --------------------------------------------------------------------------------------------------


def test_a_judge_is_charged_only_where_the_rule_still_needs_it():
    recording = table_of(
        question(
            **full_costs(["generator", "judge:entailment"]), p_correct=[0.1, 0.9, 0.9], judge_entailment=[1.0, 1.0, 5.0]
        )
    )
    sure, judged = signal("p_correct") > 0.5, signal("judge_entailment") >= 4
    assert charged(recording, sure & judged)["judge:entailment"] == [2, 3]
    assert charged(recording, judged & sure)["judge:entailment"] == [1, 2, 3]
    assert charged(recording, sure | judged) == {"generator": [1, 2], "judge:entailment": [1]}
    assert charged(recording, FirstOf((sure, judged))) == {"generator": [1, 2], "judge:entailment": [1]}
    assert charged(recording, sure) == {"generator": [1, 2], "judge:entailment": []}
    assert charged(recording, parse_rule("k_of(1, (p_correct > 0.5), (judge_entailment >= 4))"))[
        "judge:entailment"
    ] == [1]


def test_a_signal_that_looks_back_also_charges_the_round_before(monkeypatch):
    gain = Signal(
        name="gain",
        compute=None,
        range=(-1.0, 1.0),
        unit="score",
        component="judge:is",
        first_round=2,
        lookback=1,
        doc=".",
    )
    monkeypatch.setitem(signal_definitions._REGISTRY, "gain", gain)
    assert SIGNALS["gain"].lookback == 1
    recording = table_of(
        question(
            4, **full_costs(["generator", "judge:is"], 4), gain=[None, 0.5, 0.5, 0.0], p_correct=[0.9, 0.1, 0.9, 0.9]
        )
    )
    late = (signal("p_correct") > 0.5) & (signal("gain") < 0.1)
    assert charged(recording, late)["judge:is"] == [2, 3, 4]  # read at 3 and 4; at 1 it is undefined and costs nothing
    assert charged(recording, signal("gain") < 0.1)["judge:is"] == [1, 2, 3, 4]
    third = (signal("round") >= 4) & (signal("gain") < 0.1)
    assert charged(recording, third)["judge:is"] == [3, 4]


def test_a_selector_that_reads_a_judge_pays_for_every_seen_round():
    recording = table_of(question(**full_costs(["generator", "judge:entailment"]), judge_entailment=[1.0, 5.0, 2.0]))
    by_judge = parse_selector("max_judge_entailment")
    assert charged(recording, fixed_k(2), selector=by_judge)["judge:entailment"] == [1, 2]


def test_a_users_judge_is_identified_by_name_or_recording():
    rows = question(**full_costs(["generator", "judge:mine"]), mine=[0.0, 0.0, 1.0], other=[0.0, 1.0, 1.0])
    assert charged(table_of(rows), signal("mine") > 0.5)["judge:mine"] == [1, 2, 3]
    assert charged(table_of(rows), signal("other") > 0.5)["judge:mine"] == []
    told = table_of(rows, {"signal_components": {"other": "judge:mine"}})
    assert charged(told, signal("other") > 0.5)["judge:mine"] == [1, 2]


def test_a_component_that_measures_no_signal_belongs_to_the_loop():
    recording = table_of(question(**full_costs(["generator", "reader", "judge:mine"]), own=[0.0, 1.0, 1.0]))
    assert charged(recording, signal("own") > 0.5) == {"generator": [1, 2], "judge:mine": [], "reader": [1, 2]}
    told = table_of(
        question(**full_costs(["generator", "reader"]), own=[0.0, 1.0, 1.0]), {"signal_components": {"x": "reader"}}
    )
    assert charged(told, signal("own") > 0.5)["reader"] == []


def test_a_calibrated_signal_charges_the_component_of_its_raw_signal():
    recording = table_of(question(**full_costs(["generator", "reranker"]), rerank_score=[0.0, 2.0, 3.0]))
    assert charged(recording, signal("rerank_score") > 1)["reranker"] == [1, 2]
    assert charged(recording, fixed_k(3))["reranker"] == []


GATED = {**full_costs(["gate", "generator"], 3), "p_known": [0.2, None, None], "answer_margin": [1.0, 2.0, 3.0]}


def test_a_gated_policy_pays_for_closed_book_only_when_stopping_there():
    recording = table_of(question(3, 0, **GATED), {"signal_components": {"p_known": "gate"}})
    gate = signal("p_known") > 0.5
    assert charged(recording, gate, start_round=0) == {"gate": [0, 1, 2], "generator": [1, 2]}
    stops_there = signal("p_known") > 0.1
    assert charged(recording, stops_there, start_round=0) == {"gate": [0], "generator": [0]}


def test_reading_the_closed_book_answers_margin_pays_for_the_answer():
    recording = table_of(question(3, 0, **GATED), {"signal_components": {"p_known": "gate"}})
    unsure = (signal("p_known") > 0.5) | (signal("answer_margin") > 2.5)
    assert charged(recording, unsure, start_round=0)["generator"] == [0, 1, 2]
    lazy = (signal("p_known") > 0.5) & (signal("answer_margin") > 2.5)
    assert charged(recording, lazy, start_round=0)["generator"] == [1, 2]
    stable = signal("answer_f1_previous") > 2  # undefined before round 2, where it reads round 1
    rows = [{**row, "answer_f1_previous": None} for row in question(3, 0, **GATED)]
    assert charged(table_of(rows), stable, start_round=0)["generator"] == [1, 2]


def test_a_selector_among_all_seen_answers_pays_for_the_closed_book_answer():
    recording = table_of(question(3, 0, **GATED), {"signal_components": {"p_known": "gate"}})
    gate = signal("p_known") > 0.5
    majority = parse_selector("majority")
    assert charged(recording, gate, start_round=0, selector=majority)["generator"] == [0, 1, 2]


def test_nothing_is_charged_before_the_start_round():
    recording = table_of(question(3, 0, **GATED))
    assert charged(recording, Never(), start_round=1) == {"gate": [1, 2], "generator": [1, 2]}


# --- oracles, chance, closed book -----------------------------------------------------------------------------------


def prepared_for(recording: Recording, *policies_: Policy, prices: Price | None = None) -> PreparedRecording:
    return PreparedRecording.of(recording, ["f1"], prices=prices)


def test_oracles_pay_the_loop_up_to_the_chosen_round_and_no_judge():
    recording = table_of(
        question(
            **full_costs(["generator", "retrieval", "judge:entailment"]), f1=[0.0, 1.0, 1.0], judge_entailment=[1.0] * 3
        )
    )
    run = oracle_best(prepared_for(recording), outcome(recording, "f1"))
    paid = {component: kinds["calls"].tolist() for component, kinds in run.ledger.costs.items()}
    assert paid == {"generator": [2.0], "judge:entailment": [0.0], "retrieval": [2.0]}
    assert run.ledger.calls.tolist() == [2.0]


def test_the_random_twin_of_a_judged_rule_calls_no_judge():
    recording = table_of(question(**full_costs(["generator", "judge:entailment"]), judge_entailment=[1.0, 5.0, 1.0]))
    policy = Policy(rule=signal("judge_entailment") > 4, max_rounds=3)
    prepared = prepared_for(recording, policy)
    run, stopped = run_policy(prepared, policy)
    twin = random_stop(prepared, policy, stopped)
    assert (run.ledger.calls.tolist(), twin.ledger.calls.tolist()) == ([4.0], [2.0])


def test_the_closed_book_pays_round_0_and_fixed_k_does_not():
    recording = table_of(question(3, 0, **GATED))
    prepared = prepared_for(recording)
    assert closed_book(prepared).ledger.costs["generator"]["output_tokens"].tolist() == [1.0]
    assert closed_book(prepared).ledger.costs["gate"]["output_tokens"].tolist() == [1.0]
    assert fixed_budget(prepared, 1).ledger.costs["generator"]["output_tokens"].tolist() == [1.0]


# --- kinds, money, what is unknown ----------------------------------------------------------------------------------


def test_kinds_that_were_not_recorded_are_nan_and_the_result_says_so():
    columns = {**cost("generator"), **cost("generator", "output_tokens", [5.0, 6.0, 7.0])}
    result = replay(table_of(question(**columns)), ["fixed_k(2)"])
    row = result.rows[0]
    assert row.costs["output_tokens"] == 11.0
    assert row.evaluation["output_tokens"] == 7.0
    assert math.isnan(row.costs["cached_tokens"])
    assert math.isnan(row.costs["tokens"])
    assert "generator: uncached_tokens, cached_tokens, seconds not recorded" in result.notes
    assert result.to_dict()["rows"][0]["costs"]["cached_tokens"] is None
    assert "tokens" not in row.deltas


def test_unknown_rounds_make_only_what_visits_them_unknown():
    columns = {**full_costs(["generator"]), **cost("generator", "cached_tokens", [1.0, 1.0, None])}
    result = replay(table_of(question(**columns)), ["fixed_k(2)"])
    assert result.rows[0].costs["cached_tokens"] == 2.0
    assert math.isnan(result.row("fixed_k(3)").costs["cached_tokens"])
    assert "generator: cached_tokens unknown in 1 of 3 rounds" in result.notes


def test_a_component_that_is_silent_where_the_loop_reports_was_not_called():
    columns = {
        **full_costs(["generator"]),
        **{f"cost.critic.{kind}": [None, 1.0, None] for kind in COST_KINDS},
        "cost.critic.seconds": [None, None, None],
    }
    result = replay(table_of(question(**columns)), ["fixed_k(3)"])
    assert (result.rows[0].calls.mean, result.rows[0].costs["tokens"]) == (4.0, 12.0)
    assert math.isnan(result.rows[0].costs["seconds"])  # the critic was called at round 2, and its time is unknown
    assert result.row("fixed_k(1)").costs["seconds"] == 1.0


def test_calls_count_one_a_round_where_the_recording_does_not_say():
    result = replay(table_of(question(own=[0.0, 1.0, 1.0])), ["own > 0.5"])
    assert result.rows[0].calls.mean == 2.0
    assert any("counted as one a round in 3 rounds" in note for note in result.notes)


def test_calls_are_those_of_language_models_and_retrieval_reports_no_tokens():
    columns = {
        **full_costs(["generator", "writer", "critic"]),
        **cost("retrieval", "calls"),
        **cost("retrieval", "seconds", 0.5),
    }
    columns |= cost("retrieval", "output_tokens", [None, None, None])
    row = replay(table_of(question(**columns)), ["fixed_k(2)"]).rows[0]
    assert row.calls.mean == 5.0  # nobody reads the last reply of the critic
    assert row.costs["tokens"] == 15.0
    assert row.costs["seconds"] == 6.0
    assert row.components["retrieval"]["calls"] == 2.0


@pytest.mark.parametrize("stop", [1, 2])
def test_a_random_twin_pays_no_critique_of_its_last_draft(stop):
    own = [float(r >= stop) for r in (1, 2, 3)]
    result = replay(table_of(question(own=own, **full_costs(["writer", "critic"]))), ["own > 0.5"])
    for label in ("own > 0.5", "random(own > 0.5)"):
        assert result.row(label).components["critic"]["calls"] == stop - 1


def test_a_recording_of_one_round_has_its_oracles():
    labels = {row.label for row in replay(table_of(question(n=1)), ["fixed_k(1)"]).rows}
    assert {"oracle_earliest", "oracle_best"} <= labels


def test_a_stop_at_the_first_round_with_all_costs_has_no_notes():
    result = replay(table_of(question(**full_costs(["generator"]))), ["fixed_k(1)"])
    assert result.row("fixed_k(1)").notes == ()
    assert [note for note in result.notes if "intervals" not in note] == []


def test_retrieval_that_was_not_recorded_is_unknown_and_noted():
    shown = {"passage_ids": [["a"], ["a", "b"], ["a", "b", "c"]]}
    unknown = replay(table_of(question(**full_costs(["generator"]), **shown)), ["fixed_k(2)"])
    assert math.isnan(unknown.rows[0].costs["retrievals"])
    assert any("retrieval: calls, seconds not recorded" in note for note in unknown.notes)
    known = replay(table_of(question(**full_costs(["generator", "retrieval"]), **shown)), ["fixed_k(2)"])
    drafts = replay(table_of(question(**full_costs(["generator"]))), ["fixed_k(2)"])
    assert not any("retrieval" in note for result in (known, drafts) for note in result.notes)


def test_cached_tokens_of_parallel_rounds_are_modelled_and_labelled():
    columns = {
        **full_costs(["generator"], 4),
        "cost.generator.uncached_tokens": [30.0, 100.0, 180.0, 250.0],
        "cost.generator.cached_tokens": [0.0, 0.0, 20.0, 0.0],
    }
    recording = table_of(question(4, 0, **columns), {"cache_state": "unknown"})
    table = CostTable(recording)
    assert table.modelled
    assert table.columns["generator"]["cached_tokens"].tolist() == [[0.0, 0.0, 100.0, 200.0]]
    assert table.columns["generator"]["uncached_tokens"].tolist() == [[30.0, 100.0, 100.0, 50.0]]
    assert any("modelled" in note for note in replay(recording, ["fixed_k(2)"]).notes)
    measured = CostTable(table_of(question(4, 0, **columns)))
    assert not measured.modelled
    assert not any("modelled" in note for note in measured.notes)


def test_money_follows_the_price_of_each_kind_and_component():
    columns = full_costs(["generator", "judge:entailment", "retrieval"])
    rows = question(**columns, judge_entailment=[1.0, 5.0, 5.0])
    judged = [Policy(rule=signal("judge_entailment") > 4, max_rounds=3, name="judged")]
    one = replay(table_of(rows), judged, prices=Price(uncached=1.0, cached=0.1, output=4.0))
    assert math.isnan(replay(table_of(rows), judged).rows[0].costs["money"])
    per_call = 5.1e-6
    assert one.rows[0].costs["money"] == pytest.approx((4 + 2) * per_call)  # one price covers all that has tokens
    apart = {"generator": PRICE, "judge:entailment": Price(uncached=0.0, cached=0.0, output=0.0), "retrieval": PRICE}
    assert replay(table_of(rows), judged, prices=apart).rows[0].costs["money"] == pytest.approx(4 * per_call)
    assert math.isnan(replay(table_of(rows), judged, prices={"generator": PRICE}).rows[0].costs["money"])
    free = replay(table_of(rows), ["fixed_k(2)"], prices={"generator": PRICE, "retrieval": PRICE})
    assert free.rows[0].costs["money"] == pytest.approx(4 * per_call)  # an unpriced judge that is never called


def test_prices_are_read_from_json_and_toml(tmp_path):
    entry = {"m": {"uncached": 0.15, "cached": 0.075, "output": 0.6}}
    (tmp_path / "p.json").write_text(json.dumps(entry))
    (tmp_path / "p.toml").write_text('["m"]\nuncached = 0.15\ncached = 0.075\noutput = 0.60\n')
    expected = {"m": Price(uncached=0.15, cached=0.075, output=0.6)}
    assert load_prices(tmp_path / "p.json") == load_prices(tmp_path / "p.toml") == expected
    assert expected["m"].of(*np.array([[2e6], [1e6], [1e6]])).tolist() == [0.975]


def test_prices_that_do_not_read_are_refused(tmp_path):
    for name, text, message in [
        ("a.json", "{", "TOML"),
        ("b.json", "[1]", "not list"),
        ("c.json", '{"m": {"uncached": 1}}', "uncached"),
        ("d.toml", "m = 3", "needs uncached"),
        ("e.json", '{"m": {"uncached": -1, "cached": 0, "output": 0}}', "USD"),
        ("f.json", '{"m": {"uncached": true, "cached": 0, "output": 0}}', "not True"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=message):
            load_prices(tmp_path / name)
    assert issubclass(SchemaError, DataError)
    with pytest.raises(DataError, match="be read"):
        load_prices(tmp_path / "none.json")


def test_each_component_is_priced_by_its_own_name_or_by_its_models(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(
        '[small]\nuncached = 1\ncached = 0\noutput = 2\n["judge:entailment"]\nuncached = 5\ncached = 5\noutput = 5\n'
    )
    prices = component_prices(path, {"generator": "small", "judge:entailment": "large"})
    assert (prices["generator"].output, prices["judge:entailment"].output) == (2, 5)
    with pytest.raises(DataError, match="'writer'"):
        component_prices(path, {"writer": ""})
