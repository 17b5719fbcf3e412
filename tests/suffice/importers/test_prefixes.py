"""Tables of prefixes of chains of thought: what thinking and trials cost, and which of them cannot be deployed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from suffice import Policy, import_recording, read_recording
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import fixed_budget, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from tests.support.cli_tools import cli
from tests.support.logs import written

N = 30


def rows(change=lambda row: row) -> list[dict]:
    """Return three prefixes of each chain, four of each third one; the answer is right from the second on."""
    result = []
    for q in range(N):
        gold = "ABCD"[q % 4]
        for r in range(1, 4 + (q % 3 == 0)):
            answer = gold if r > 1 or q % 2 else "E"
            own = {"id": f"q{q}", "question": f"Which {q}?", "gold": gold, "thinking_tokens": 100 * r + q}
            result.append(change({**own, "prediction": answer, "correct": int(answer == gold)}))
    return result


def imported(tmp_path, table: list[dict], **more):
    return import_recording(written(tmp_path / "prefixes.jsonl", table), out=tmp_path / "p.parquet", **more)


def paid(recording, rule: str, component: str, kind: str = "output_tokens") -> list[float]:
    run, _ = run_policy(PreparedRecording.of(recording, metrics=("correct",)), Policy(rule=rule, max_rounds=4))
    return run.ledger.costs[component][kind].tolist()


def test_thinking_costs_what_each_prefix_adds(tmp_path):
    summary = imported(tmp_path, rows(), trial_cost=12)
    recording = read_recording(summary.path)
    assert recording.column("cost.generator.output_tokens")[3].tolist() == [103, 100, 100, 100]
    assert recording.column("cost.trial.output_tokens")[3].tolist() == [12, 12, 12, 0]
    assert recording.column("cost.trial.calls")[4, :3].tolist() == [1, 1, 0]
    assert set(recording.ends.tolist()) == {"exhausted", "max_rounds"}
    assert any("as --trial-cost says" in note for note in summary.notes)
    assert not any("calls alone" in note or "own stops" in note for note in summary.notes)


def test_a_budget_pays_one_trial_and_the_whole_chain_none(tmp_path):
    recording = read_recording(imported(tmp_path, rows(), trial_cost=12).path)
    assert set(paid(recording, "token_budget(200)", "trial")) == {12}
    whole = fixed_budget(PreparedRecording.of(recording, metrics=("correct",)), 4)
    assert set(whole.ledger.costs["trial"]["output_tokens"].tolist()) == {0}


def test_a_trial_without_a_price_is_unknown_and_never_free(tmp_path):
    summary = imported(tmp_path, rows())
    recording = read_recording(summary.path)
    assert all(map(math.isnan, paid(recording, "token_budget(200)", "trial")))
    assert any(note.startswith("caution: ") and "--trial-cost N" in note for note in summary.notes)
    refused = cli("decide", summary.path, "-o", tmp_path / "d.json", "--cost", "tokens")
    assert (refused.code, "tokens are unknown" in refused.err) == (1, True)
    assert "--trial-cost N" in refused.err
    decided = json.loads(cli("decide", summary.path, "-o", tmp_path / "d.json", "--json").out)
    assert any("so that calls are compared" in note for note in decided["notes"])


def test_a_signal_of_the_answer_is_charged_like_the_answer(tmp_path):
    table = rows(lambda row: {**row, "max_prob": 0.5 + 0.001 * row["thinking_tokens"]})
    summary = imported(tmp_path, table, trial_cost=12, columns={"max_prob": "max_prob"})
    recording = read_recording(summary.path)
    assert paid(recording, "max_prob > 0.7", "trial")[1:3] == [24, 24]
    assert paid(recording, "token_budget(200)", "trial")[1:3] == [12, 12]


def test_option_probabilities_give_the_log_probability_of_the_answer(tmp_path):
    table = rows(lambda row: {**row, **{f"prob_{x}": 0.9 if x == row["prediction"] else 0.02 for x in "ABCDE"}})
    recording = read_recording(imported(tmp_path, table).path)
    known = recording.column("answer_logprob_mean")
    assert np.allclose(known[recording.seen], math.log(0.9))
    other = rows(lambda row: {**row, "prob_A": 0.5, "prob_B": 0.5})
    recording = read_recording(imported(tmp_path, other).path)
    assert not np.isfinite(recording.column("answer_logprob_mean")).any()


def test_costs_of_their_own_are_left_alone(tmp_path):
    table = rows(lambda row: {**row, "prompt_tokens": 50, "completion_tokens": 7})
    recording = read_recording(imported(tmp_path, table).path)
    assert set(recording.column("cost.generator.output_tokens")[recording.seen]) == {7}
    assert not [name for name in recording.names("cost") if ".trial." in name]


def test_tokens_that_do_not_rise_are_no_prefixes(tmp_path):
    table = rows(lambda row: {**row, "thinking_tokens": 40})
    assert not read_recording(imported(tmp_path, table).path).names("cost")
    with pytest.raises(DataError, match="--trial-cost"):
        imported(tmp_path, table, trial_cost=12)
    with pytest.raises(DataError, match="trial_cost is"):
        imported(tmp_path, rows(), trial_cost=-1)


def deciles(name: str, whole: float) -> list[dict]:
    """Return ten prefixes of each chain; its answer never changes, and is right in one half."""
    return [
        {
            "id": f"q{q}",
            name: whole * d / 10,
            "thinking_tokens": (50 + q) * d,
            "prediction": "AB"[q % 2],
            "gold": "AC"[q % 2],
        }
        for q in range(250)
        for d in range(1, 11)
    ]


@pytest.mark.parametrize(("name", "whole"), [("decile", 10), ("fraction", 1), ("percent", 100)])
def test_shares_of_finished_chains_are_not_deployable(tmp_path, name, whole):
    summary = imported(tmp_path, deciles(name, whole), trial_cost=1)
    assert summary.notes[0].startswith(f"caution: not deployable: '{name}'")
    if name != "decile":
        return
    asked = ("decide", summary.path, "-o", tmp_path / "d.json", "--cost", "tokens", "--max-loss", "0.05")
    decided = cli(*asked, "--json")
    verdict = json.loads(decided.out)
    assert verdict["verdict"] == "do it"
    assert any("cannot be deployed" in note for note in verdict["notes"])
    refused = cli("deploy", tmp_path / "d.json", "-o", tmp_path / "policy.json", code=1)
    assert "only when the chain has ended" in refused.err
    assert not (tmp_path / "policy.json").exists()


def test_a_share_that_is_not_of_the_whole_is_a_plain_column(tmp_path):
    summary = imported(tmp_path, deciles("fraction", 0.5))
    assert "checkpoints" not in read_recording(summary.path).metadata["depends"]
    assert not any("deployable" in note for note in summary.notes)
