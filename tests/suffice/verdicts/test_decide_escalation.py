"""Decisions about escalations: models alone and their mixtures as baselines, and what is refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from suffice import Policy, Session, decide, import_recording, read_recording, replay
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import run_policy, single_policies
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.statistics import Resampling
from suffice.hosts.lines import own_lines
from suffice.recordings import write_recording
from suffice.recordings.runs import attempts_of
from suffice.verdicts.decisions.candidates import change_text
from tests.support.cli_tools import cli

PRICES = {"cheap": Price(uncached=0.1, cached=0.1, output=0.4), "dear": Price(uncached=5, cached=5, output=15)}
DRAWS = Resampling(n_resamples=10)


def rows(n=300, telling=True, seed=1):
    """Return the answers of two models to each question, and a confidence that tells right ones or nothing."""
    drawn = random.Random(seed)
    for q in range(n):
        first = "Oslo" if drawn.random() < 0.7 else "Bern"
        second = "Oslo" if drawn.random() < 0.9 else "Rome"
        sure = round(min(1, max(0, (0.8 if first == "Oslo" and telling else 0.4) + drawn.gauss(0, 0.15))), 3)
        about = {"id": q, "question": f"Which is city {q}?", "gold": "Oslo", "input_tokens": 200}
        yield {**about, "model": "cheap", "answer": first, "confidence": sure, "output_tokens": 50}
        yield {**about, "model": "dear", "answer": second, "confidence": 0.9, "output_tokens": 60}


def log(path, items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def imported(tmp_path, items, **options):
    out = tmp_path / "log.parquet"
    import_recording(log(tmp_path / "log.jsonl", items), out=out, columns={"round": "model:cheap,dear"}, **options)
    return read_recording(out)


def test_a_declared_order_of_models_is_an_escalation_without_caution(tmp_path):
    recording = imported(tmp_path, rows())
    assert attempts_of(recording) == ("cheap", "dear")
    assert not recording.reading_notes
    assert not recording.independent


def test_one_model_alone_pays_its_own_attempt_by_its_price(tmp_path):
    prepared = PreparedRecording.of(imported(tmp_path, rows()), ["em"], prices=PRICES)
    cheap, dear = (run_policy(prepared, policy)[0] for policy in single_policies(("cheap", "dear"), Policy()))
    assert cheap.ledger.money.tolist() == pytest.approx([(200 * 0.1 + 50 * 0.4) / 1e6] * 300)
    assert dear.ledger.money.tolist() == pytest.approx([(200 * 5 + 60 * 15) / 1e6] * 300)
    assert dear.ledger.calls.tolist() == [1] * 300
    assert dear.values["em"].mean() > 0.85 > cheap.values["em"].mean()
    both, _ = run_policy(prepared, Policy(rule="fixed_k(2)", max_rounds=2))
    assert both.ledger.money.tolist() == pytest.approx((cheap.ledger.money + dear.ledger.money).tolist())


def test_a_confidence_that_tells_is_advised_against_the_dear_model(tmp_path):
    advice = decide(imported(tmp_path, rows()), metric="em", prices=PRICES, signals=["confidence"])
    assert (advice.verdict, advice.trial.baseline, advice.trial.cost) == ("do it", "dear alone", "money")
    assert advice.sentence.startswith("Accept an answer when confidence >= ")
    assert "against dear alone" in advice.sentence
    assert "coin" not in advice.sentence
    assert {"cheap alone"} < {policy.label for policy in advice.trial.candidates} - {"dear alone"}
    lines = own_lines(advice.policy, "policy.json")
    assert 'MODELS = ["cheap", "dear"]' in lines
    assert 'signals={"confidence": confidence(question, reply)}' in lines


def test_a_confidence_that_tells_nothing_changes_nothing(tmp_path):
    advice = decide(imported(tmp_path, rows(telling=False)), metric="em", prices=PRICES, signals=["confidence"])
    assert advice.verdict != "do it"
    result = replay(
        imported(tmp_path, rows(telling=False)),
        ["confidence >= 0.5"],
        metrics="em",
        prices=PRICES,
        cost="money",
        resampling=DRAWS,
    )
    row = result.row("confidence >= 0.5")
    assert row.mixture is not None
    assert row.mixture.quality == pytest.approx(row.metrics["em"], abs=0.06)


def test_a_cheap_model_that_is_as_good_is_advised_alone(tmp_path):
    items = [{**row, "answer": "Oslo" if row["id"] % 9 else "Rome"} for row in rows()]
    advice = decide(imported(tmp_path, items), metric="em", prices=PRICES)
    assert advice.sentence.startswith("Ask cheap alone: it saves 98 % of the money")
    assert 'MODELS = ["cheap"]' in own_lines(advice.policy, "policy.json")


def test_the_lines_of_a_later_model_alone_ask_it_alone(tmp_path):
    recording = imported(tmp_path, rows())
    advice = decide(recording, metric="em", prices=PRICES, baseline="fixed_k(2)", cost="calls")
    alone = next(policy for policy in advice.trial.candidates if policy.label == "dear alone")
    assert change_text(alone, None) == "ask dear alone"
    asked = []

    def call(model, question):
        asked.append(model)
        return f"Answer: {model}"

    alone.save(tmp_path / "policy.json")
    space = {"call": call}
    exec(own_lines(alone, tmp_path / "policy.json"), space)
    answer, decision = space["ask"]("Which?")
    assert (answer, asked, decision.stop_round, decision.reason) == ("dear", ["dear"], 2, "rule")
    assert Session(alone).next_round == 2


def test_models_that_answered_other_questions_are_refused(tmp_path):
    items = [row for row in rows() if row["model"] == "cheap" or row["id"] % 3]
    recording = imported(tmp_path, items, ended="rule")
    with pytest.raises(DataError, match="was not asked"):
        decide(recording, metric="em", prices=PRICES)


def test_an_order_that_prices_contradict_is_refused_with_the_order_of_cost(tmp_path):
    recording = imported(tmp_path, rows())
    swapped = {"cheap": PRICES["dear"], "dear": PRICES["cheap"]}
    with pytest.raises(DataError, match="not the dearest") as refused:
        decide(recording, metric="em", prices=swapped, signals=["confidence"])
    assert "--column round=model:dear,cheap" in str(refused.value)
    assert "cheap 1.75, dear 0.044 USD" in str(refused.value)
    advice = decide(recording, metric="em", prices=swapped, signals=["confidence"], baseline="cheap alone")
    assert advice.sentence.startswith("Ask dear alone")
    failed = recording.table.set_column(3, "end", [["failed"] * 2 + ["max_rounds"] * 598])
    write_recording(tmp_path / "failed.parquet", failed, recording.metadata)
    with pytest.raises(DataError, match="not the dearest"):
        decide(read_recording(tmp_path / "failed.parquet"), metric="em", prices=swapped)


def test_money_without_prices_is_refused_with_the_way(tmp_path):
    recording = imported(tmp_path, rows())
    with pytest.raises(DataError, match="give prices"):
        decide(recording, metric="em")


def test_the_command_line_decides_by_prices_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "log.jsonl", rows())
    listed = {name: {"uncached": p.uncached, "cached": p.cached, "output": p.output} for name, p in PRICES.items()}
    (tmp_path / "prices.json").write_text(json.dumps(listed))
    cli("import", "log.jsonl", "--column", "round=model:cheap,dear", "--yes")
    shown = cli("decide", "log.parquet", "--metric", "em", "--prices", "prices.json", "--signal", "confidence")
    assert "Accept an answer when confidence" in shown.words
    assert "MODELS" in cli("deploy", "decision.json").out
    assert "keeps its model" in cli("deploy", "decision.json", "--to", "crewai").error
    assert "cheap alone" in cli("replay", "log.parquet", "--rule", "confidence > 0.6", "--prices", "prices.json").out


def test_three_attempts_keep_the_budgets_between_them(tmp_path):
    items = []
    for row in rows(200):
        items.append(row)
        if row["model"] == "cheap":
            items.append({**row, "model": "middle", "answer": row["answer"] if row["id"] % 2 else "Oslo"})
    out = tmp_path / "log.parquet"
    import_recording(log(tmp_path / "log.jsonl", items), out=out, columns={"round": "model:cheap,middle,dear"})
    prices = {**PRICES, "middle": Price(uncached=1, cached=1, output=4)}
    advice = decide(read_recording(out), metric="em", prices=prices, signals=["confidence"])
    labels = [policy.label for policy in advice.trial.candidates]
    assert {"fixed_k(2)", "cheap alone", "middle alone"} < set(labels)
    costs = dict(zip(labels, (advice.trial.totals.costs["money"][:-1] / advice.n).tolist(), strict=True))
    assert costs["fixed_k(2)"] == pytest.approx(costs["cheap alone"] + costs["middle alone"])
    assert np.isfinite([*costs.values()]).all()


def test_logged_dollars_of_each_attempt_are_the_money(tmp_path):
    cost = {"cheap": 0.00004, "dear": 0.00175}
    items = [{**row, "cost_usd": cost[row["model"]]} for row in rows()]
    recording = imported(tmp_path, items)
    assert recording.column("spend")[0].tolist() == pytest.approx([0.00004, 0.00179])
    prepared = PreparedRecording.of(recording, ["em"])
    cheap, dear = (run_policy(prepared, policy)[0] for policy in single_policies(("cheap", "dear"), Policy()))
    assert cheap.ledger.money.tolist() == pytest.approx([0.00004] * 300)
    assert dear.ledger.money.tolist() == pytest.approx([0.00175] * 300)
    assert decide(recording, signals=["confidence"]).trial.cost == "money"
    (note,) = [note for note in recording.metadata["notes"] if "dollars" in note]
    assert "--column spend=" in note


def test_a_cost_that_is_no_dollars_can_be_left_out(tmp_path):
    out = tmp_path / "log.parquet"
    items = [{**row, "cost": 3.0} for row in rows()]
    import_recording(log(tmp_path / "log.jsonl", items), out=out, columns={"round": "model:cheap,dear", "spend": ""})
    assert np.isnan(read_recording(out).column("cost")).sum() == 0
    assert "spend" not in read_recording(out).names("signal")


def retried(tmp_path, cost):
    """Import retries of 60 questions, each by a dearer model, that stop at the first valid answer."""
    items = []
    for q in range(60):
        for r, model in enumerate(cost[: 1 + q % len(cost)], start=1):
            name, dollars = model
            about = {"id": q, "question": f"Which is city {q}?", "gold": "Oslo", "attempt": r, "model": name}
            items.append({**about, "answer": "Oslo" if r > q % len(cost) else f"Bern {r}", "cost_usd": dollars})
    return import_recording(
        log(tmp_path / "log.jsonl", items),
        out=tmp_path / "log.parquet",
        columns={"spend": "cost_usd:each"},
        ended="rule",
    ).path


def test_a_decision_about_calls_says_that_dearer_models_follow(tmp_path):
    recording = read_recording(retried(tmp_path, [("mini", 0.0004), ("medium", 0.003), ("large", 0.018)]))
    advice = decide(recording)
    (note,) = [note for note in advice.notes if "different models" in note]
    assert advice.trial.cost == "calls"
    assert "fixed_k(2) saves 15 % of calls, but 69 % of money" in note
    assert "--cost money" in note
    assert not any("different models" in note for note in decide(recording, cost="money").notes)


@pytest.mark.parametrize("names", [("north", "south", "west"), ("mini", "mini", "mini")])
def test_models_that_cost_the_same_are_no_dearer_ones(tmp_path, names):
    advice = decide(read_recording(retried(tmp_path, [(name, 0.001) for name in names])))
    assert not any("different models" in note for note in advice.notes)
