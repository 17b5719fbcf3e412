"""Giving runs up: a stop loses the success that would have come, and saves the steps that are left."""

from __future__ import annotations

import numpy as np
import pytest

from suffice import decide, replay
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay.outcomes import abandoned, has_outcome, outcome
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.statistics import Resampling
from suffice.recordings import Recording, read_recording, write_recording
from suffice.recordings.bundled import bundled_recording
from suffice.verdicts.decisions import Advice
from tests.support.cli_tools import cli

DRAWS = Resampling(n_resamples=10)


def runs(n=400, seed=3, telling=True):
    """Return runs of four to eight steps, of which half succeed, with a chance that tells from step 2 on or never."""
    drawn = np.random.default_rng(seed)
    for q in range(n):
        solved, length = bool(drawn.random() < 0.5), int(drawn.integers(4, 9))
        for r in range(1, length + 1):
            middle = (0.75 if solved else 0.2) if telling and r > 1 else 0.5
            chance = round(float(np.clip(drawn.normal(middle, 0.12), 0, 1)), 3)
            costs = {f"cost.generator.{kind}": value for kind, value in {"calls": 1.0, "seconds": None}.items()}
            yield {
                "question_id": f"q{q}",
                "round": r,
                "end": "exhausted",
                "answer": None,
                "solved": float(solved),
                "chance": chance,
                **costs,
            }


def recorded(tmp_path, rows, **kinds):
    write_recording(
        tmp_path / "r.parquet", [*rows], {"source": "test"}, {"solved": "metric", "chance": "signal", **kinds}
    )
    return read_recording(tmp_path / "r.parquet")


def plain_loss(recording, limit):
    """Return the successes that are lost and the steps that are saved, run by run, in a plain loop."""
    lost = saved = 0.0
    for chances, solved, seen in zip(
        recording.column("chance"), recording.column("solved"), recording.seen, strict=True
    ):
        n = int(seen.sum())
        stop = next((r for r in range(n) if chances[r] <= limit), n - 1)
        lost += solved[0] * (stop < n - 1)
        saved += n - 1 - stop
    return lost / len(recording.question_ids), saved


def test_a_run_has_its_success_at_its_end_alone(tmp_path):
    recording = recorded(tmp_path, runs(20))
    values = outcome(recording, "abandon(solved)")
    for row, solved, seen in zip(values, recording.column("solved"), recording.seen, strict=True):
        n = int(seen.sum())
        assert row[:n].tolist() == [0.0] * (n - 1) + [solved[0]]
        assert np.isnan(row[n:]).all()
    assert (abandoned("abandon(solved)"), abandoned("solved")) == ("solved", "")
    assert has_outcome(recording, "abandon(solved)")
    assert not has_outcome(recording, "abandon(other)")


@pytest.mark.parametrize("limit", [0.1, 0.25, 0.4, 0.6])
def test_replay_of_giving_up_equals_a_plain_loop(tmp_path, limit):
    recording = recorded(tmp_path, runs())
    lost, saved = plain_loss(recording, limit)
    result = replay(recording, f"chance <= {limit}", metrics="abandon(solved)", baseline="full", resampling=DRAWS)
    row, full = result.row(f"chance <= {limit}"), result.row("fixed_k(8)")
    assert full.metrics["abandon(solved)"] == pytest.approx(recording.column("solved")[:, 0].mean())
    assert full.metrics["abandon(solved)"] - row.metrics["abandon(solved)"] == pytest.approx(lost)
    assert (full.calls.mean - row.calls.mean) * 400 == pytest.approx(saved)


def test_only_a_signal_that_tells_is_advised(tmp_path):
    advice = decide(recorded(tmp_path, runs(900)), metric="abandon(solved)", signals=["chance"], max_loss=0.05)
    assert advice.verdict == "do it"
    assert advice.sentence.startswith("Give up when ")
    assert "chance <= " in advice.sentence
    assert advice.trial.min_saving == 0.05
    blind = decide(recorded(tmp_path, runs(900, telling=False)), metric="abandon(solved)", signals=["chance"])
    assert blind.verdict == "keep what you have"


def test_a_signal_that_rises_with_failure_gives_up_above(tmp_path):
    rows = [{**row, "chance": round(1 - row["chance"], 3)} for row in runs(900)]
    advice = decide(recorded(tmp_path, rows), metric="abandon(solved)", signals=["chance"], max_loss=0.05)
    assert "chance >= " in advice.sentence


def test_runs_that_end_without_their_answer_are_refused(tmp_path):
    rows = [{**row, "answer": "a state" if row["round"] == 2 else None} for row in runs(20)]
    with pytest.raises(DataError, match="last step"):
        outcome(recorded(tmp_path, rows), "abandon(solved)")


def test_a_metric_that_is_missing_is_named(tmp_path):
    with pytest.raises(NotFoundError, match="no metric 'other'"):
        outcome(recorded(tmp_path, runs(20)), "abandon(other)")


def test_a_recording_without_answers_column_has_outcomes(tmp_path):
    recording = recorded(tmp_path, runs(20))
    bare = Recording(recording.table.drop(["answer"]), recording.metadata)
    assert np.nansum(outcome(bare, "abandon(solved)")) == recording.column("solved")[:, 0].sum()


def paid(rows, cents=3.0):
    """Return rows whose steps have tokens, such that each costs some cents at a dollar per million."""
    for row in rows:
        tokens = {"uncached_tokens": cents * 1e4, "cached_tokens": 0.0, "output_tokens": 0.0}
        yield {**row, **{f"cost.generator.{kind}": value for kind, value in tokens.items()}}


@pytest.mark.parametrize("price", [0.25, 2.0])
def test_dollars_of_giving_up_equal_a_plain_loop_on_held_out_runs(tmp_path, price):
    tune = recorded(tmp_path, paid(runs(400, seed=4)))
    fresh = recorded(tmp_path, paid({**row, "question_id": f"fresh {row['question_id']}"} for row in runs(900)))
    given = {"signals": ["chance"], "prices": Price(uncached=1.0, cached=1.0, output=1.0), "max_loss": 0.05}
    advice = decide(fresh, metric="abandon(solved)", tune=tune, success_price=price, **given)
    assert advice.verdict == "do it"
    label = advice.policy.label
    lost, saved = plain_loss(fresh, float(label.removeprefix("chance <= ")))
    rows = {row[0]: row[1:] for row in advice.tables()[1].rows}
    assert rows[label][0] == pytest.approx(1000 * 0.03 * saved / 900)
    assert rows[label][1] == pytest.approx(1000 * price * lost)
    net = 1000 * (0.03 * saved / 900 - price * lost)
    mean, low, high = rows[label][2]
    assert mean == pytest.approx(net)
    assert low <= mean <= high
    assert f"USD {net:,.2f} net" in advice.lead
    assert f"it pays while a success is worth less than USD {0.03 * saved / 900 / lost:,.2f}" in advice.lead
    assert advice.sentence == decide(fresh, metric="abandon(solved)", tune=tune, **given).lead


def test_a_price_of_a_success_is_kept_with_the_decision(tmp_path):
    runs_of_agents = bundled_recording("agents_swebench")
    runs_of_agents = runs_of_agents.select(np.arange(len(runs_of_agents.question_ids)) < 60)
    advice = decide(runs_of_agents, metric="abandon(resolved)", success_price=20.0)
    assert "At USD 20.00 a success, " in advice.lead
    advice.save(tmp_path / "d.json")
    assert Advice.load(tmp_path / "d.json").lead == advice.lead
    dearer = decide(runs_of_agents, previous=advice, success_price=40.0)
    assert "At USD 40.00 a success, " in dearer.lead
    assert decide(runs_of_agents, previous=dearer).lead == dearer.lead


@pytest.mark.parametrize(
    ("price", "metric", "words"),
    [
        ("2", "abandon(solved)", "--prices FILE"),
        ("2", "solved", "--metric 'abandon(NAME)'"),
        ("0", "abandon(solved)", "above 0"),
        ("nan", "abandon(solved)", "above 0"),
    ],
)
def test_a_price_of_a_success_that_says_nothing_is_refused(tmp_path, price, metric, words):
    recorded(tmp_path, runs(60))
    told = cli("decide", tmp_path / "r.parquet", "--metric", metric, "--set", f"success-price={price}")
    assert words in told.error


def test_a_price_in_the_file_of_settings_is_for_giving_up_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_recording("r.parquet", [*paid(runs(60))], {"source": "test"}, {"solved": "metric", "chance": "signal"})
    (tmp_path / "suffice.toml").write_text("[statistics]\nsuccess-price = 2.0\n", "utf-8")
    assert cli("decide", "r.parquet", "--metric", "solved", "-o", "a.json").code == 0
    told = cli("decide", "r.parquet", "--metric", "abandon(solved)", "-o", "b.json")
    assert "--prices FILE" in told.error


def test_the_command_shows_the_dollars_of_giving_up(tmp_path):
    write_recording(
        tmp_path / "r.parquet", [*paid(runs(300))], {"source": "test"}, {"solved": "metric", "chance": "signal"}
    )
    (tmp_path / "prices.toml").write_text("[generator]\nuncached = 1.0\ncached = 1.0\noutput = 1.0\n", "utf-8")
    words = ["--metric", "abandon(solved)", "--signal", "chance", "--set", "success-price=2", "-o", tmp_path / "d.json"]
    shown = cli("decide", tmp_path / "r.parquet", *words, "--prices", tmp_path / "prices.toml")
    assert "Giving up in dollars per 1,000 runs, at USD 2.00 a success" in shown.out, shown.error
    assert (
        cli("decide", tmp_path / "r.parquet", *words, "--json", "--prices", tmp_path / "prices.toml").json[
            "success_price"
        ]
        == 2.0
    )


def test_changes_that_cannot_be_judged_are_not_shown(tmp_path):
    rows = [{**row, "end": "rule", "end_assumed": 1.0} for row in runs(200)]
    advice = decide(recorded(tmp_path, rows), metric="abandon(solved)", signals=["chance"])
    assert "the log does not say why" in advice.trial.unjudged
    assert any(
        item.change[0] < -0.9 for item in advice.figures
    )  # half of the runs succeed, so no loss can be this large
    now, *others = advice.table().rows
    assert now[3] == pytest.approx(0.5, abs=0.1)
    assert all(np.isnan([row[3], row[4]]).all() and not row[6] for row in others)
    assert all(point["change"] is None for point in advice.plot().spec["data"]["values"][1:])
    assert advice.lead == f"{advice.sentence}."
