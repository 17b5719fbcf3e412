"""The operating characteristics of the alarm and of confidence sequences: the fast version of docs/results/watch.md."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import watch_alarms, watched
from benchmarks.watched import EPSILON, Change, cusum, delays, looked_at, population

from suffice.evaluation.statistics import Alarm

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "watch.md"


@pytest.mark.parametrize("place", range(len(watched.RECORDED)))
@pytest.mark.parametrize("mean", [0.0, EPSILON, 0.07])
def test_losses_have_the_mean_that_they_are_moved_to(place, mean):
    source = population(place)
    losses = source.draw(np.random.default_rng(1), 200_000, mean)
    assert abs(losses.mean() - mean) < 5 * losses.std() / len(losses) ** 0.5
    assert set(losses) <= {*source.gains, 0.0, *source.losses}
    assert np.mean(losses < 0) == pytest.approx(source.gained, rel=0.1)


def test_recorded_losses_are_sparse():
    shares = [population(place).gained for place in range(len(watched.RECORDED))]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 0.05


def test_false_alarms_are_bounded_and_daily_intervals_are_not():
    ours, total, recent, theirs = watch_alarms.rings(2, 0.01, 100_000, 300)
    assert ours <= watch_alarms.limit(300)
    assert total > 0.1
    assert recent > 0.5
    assert theirs > 0.08  # its threshold is right for other losses


def test_a_drop_is_noticed_the_sooner_the_larger_it_is():
    halves = []
    for drop in watch_alarms.DROPS[1:]:
        questions, before = delays(Change(EPSILON, EPSILON + drop, 20_000, 0.2), 60, 100_000)
        assert before <= 0.12
        assert np.isfinite(questions).mean() > 0.95
        halves.append(float(np.median(questions)))
    assert 8_000 < halves[0] < 22_000
    assert 2_000 < halves[1] < 6_000


def test_one_audit_in_a_hundred_hardly_notices_a_one_point_drop():
    questions, _ = delays(Change(EPSILON, EPSILON + 0.01, 20_000, 0.01), 100, 100_000)
    assert np.isfinite(questions).mean() < 0.15


def test_detection_slows_by_no_more_than_the_logarithm_of_the_age():
    early, late = (float(np.median(delays(Change(0.0, 0.12, age, 0.05), 20, 100_000)[0])) for age in (0, 500_000))
    assert early < late < 4 * early


def test_delays_are_counted_in_questions():
    rng = np.random.default_rng(0)
    questions = watched.as_questions(np.full(2000, 50.0), 0.05, 10_000, rng)
    assert questions.mean() == pytest.approx(1000, rel=0.02)
    assert questions.min() >= 50
    assert np.isinf(watched.as_questions(np.array([np.inf, 5000.0]), 0.05, 10_000, rng)).all()


def test_only_weights_are_right_where_rates_depend_on_the_question():
    rows = watch_alarms.weighted_alarms(6, 40_000).rows
    false = {row[:2]: row[2] for row in rows}
    assert false["by question", "audited"] > 0.8
    assert false["by question", "all, weighted"] <= 0.25
    assert max(false["constant", "audited"], false["constant", "all, weighted"]) <= 0.25


def test_no_interval_of_a_run_misses_while_the_mean_drifts():
    rows = watch_alarms.coverage(12, 12_000).rows
    assert len(rows) == 6
    assert all(share <= 0.17 for row in rows for share in row[2:4])  # at most 2 of 12
    assert max(row[4] for row in rows) > 0.15  # what ordinary intervals do
    assert all(row[5] < 3 * row[6] for row in rows)  # and they are not wide for nothing


def test_the_baselines_are_what_they_say():
    losses = np.zeros((2, 2000))
    losses[1, 500:600] = 1.0
    assert looked_at(losses, 50, None).tolist() == [False, True]
    assert cusum(np.array([[0.0, 1.0, 0.0, -1.0]])).round(2).tolist() == [[0.0, 0.97, 0.94, 0.0]]


# The committed page


def test_the_committed_page_is_that_of_the_command():
    text = PAGE.read_text("utf-8")
    assert watch_alarms.COMMAND in text
    assert f"{watched.RUNS:,} runs" in text
    row = re.search(
        r"^\| panel_gsm8k, lead\(2\) \| 0.01 \| 100,000 \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE
    )
    ours = watch_alarms.rings(0, 0.01, watched.QUESTIONS, watched.RUNS)[:3]
    assert row is not None
    assert row.groups() == tuple(f"{100 * share:.1f}" for share in ours)
    shares = re.findall(r"^\| (?:panel|samples)[^|]*\| 0.\d\d \| [\d,]+ \| ([\d.]+) \|", text, re.MULTILINE)
    assert len(shares) == len(watched.RECORDED) * len(watch_alarms.RATES) + 1
    assert all(float(share) <= 100 * watch_alarms.limit(watched.RUNS) for share in shares)


def test_the_explanation_shows_delays_of_the_page():
    row = re.compile(r"^\| (0\.\d\d) \| (\d) \| [\d.]+ \| \d+ \| [^|]+ \| ([\d,]+) \|", re.MULTILINE)
    halves = {(rate, drop): half for rate, drop, half in row.findall(PAGE.read_text("utf-8"))}
    explained = (PAGE.parent.parent / "explanation" / "deployed-rule.md").read_text("utf-8")
    for drop in ("1", "2", "5"):
        cells = " | ".join(halves[rate, drop] for rate in ("0.01", "0.05", "0.20"))
        assert re.search(rf"^\| {drop} points? \| {cells} \|$", explained, re.MULTILINE)


def test_the_command_writes_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "cusum_threshold", lambda _: 10.0)
    monkeypatch.setattr(watch_alarms, "cusum_threshold", lambda _: 10.0)
    monkeypatch.setattr(watch_alarms, "AGES", (0, 1_000))
    tables = {
        "false_alarms": watch_alarms.false_alarms(4, 2000),
        "planted_drops": watch_alarms.planted_drops(2, 2000),
        "other_losses": watch_alarms.other_losses(2, 2000),
        "ages": watch_alarms.ages(2, 2000),
        "weighted_alarms": watch_alarms.weighted_alarms(2, 10_000),
        "coverage": watch_alarms.coverage(1, 12_000),
    }
    for name, table in tables.items():
        monkeypatch.setattr(watch_alarms, name, lambda table=table: table)
    monkeypatch.setattr(watch_alarms, "limit", lambda _: 0.0)
    broken = any(watch_alarms.promised(tables["false_alarms"], tables["coverage"]))
    assert watch_alarms.main(["--out", str(tmp_path / "page.md")]) == int(broken)
    text = (tmp_path / "page.md").read_text("utf-8")
    assert watch_alarms.COMMAND in text
    assert all(f"**{table.title}**" in text for table in tables.values())


def test_false_alarms_stay_bounded_when_the_audit_rate_falls():
    rng, runs, n, bound = np.random.default_rng(5), 300, 3000, 0.1
    alarm = Alarm.start(bound, 0.05, low=0.0, shape=(runs,))
    for rate, least_rate in ((0.5, None), (0.1, 0.1), (0.3, 0.1), (0.02, 0.02)):
        losses = (rng.random((runs, n)) < bound).astype(float)
        alarm = replace(alarm, least_rate=least_rate)
        alarm = alarm.observe(losses, audited=rng.random((runs, n)) < rate, rates=rate)
    assert alarm.rings.mean() <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
    later = (rng.random((runs, n)) < 0.4).astype(float)
    assert alarm.observe(later, audited=rng.random((runs, n)) < 0.2, rates=0.2).rings.mean() > 0.9
