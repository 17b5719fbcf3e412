"""`suffice demo agents`, and the page of loops with a check."""

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import checked_loops

from suffice.recordings import bundled_recording
from tests.support.cli_tools import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def listed():
    return cli("demo", "agents", "--json").json


def test_the_demo_says_keep_and_where_the_money_went(listed):
    assert listed["decision"]["verdict"] == "keep what you have"
    kept = listed["kept"]["since_change >= 25"]
    assert kept["resolved"] == pytest.approx(0.987, abs=0.002)
    assert kept["money"] == pytest.approx(0.971, abs=0.002)


def test_no_rule_chosen_on_one_half_saves_much_on_the_other(listed):
    for row in listed["halves"]:
        assert row["saving"] < 0.04 + 1.5 * row["most"]
        assert row["low"] <= row["loss"] <= row["high"]


def test_the_page_is_that_of_the_demo(listed):
    page = (ROOT / "docs" / "results" / "agents.md").read_text("utf-8")
    for rule in ("since_change >= 25", "fixed_k(90)"):
        kept = listed["kept"][rule]
        row = next(line for line in page.splitlines() if rule in line)
        assert [f"{100 * kept[name]:.1f}" for name in ("resolved", "money")] == re.findall(r"\d+\.\d", row)[:2]
    assert [line.split("|")[-2].strip() for line in page.splitlines() if "since_change >= 25" in line] == [
        "98.2"
    ]  # by plain loops


def test_a_page_in_no_folder_is_refused(tmp_path):
    refused = cli("demo", "agents", "--set", f"markdown={tmp_path / 'no' / 'a.md'}")
    assert "does not exist" in refused.error


def test_checked_loops_beat_loopgain_on_natural_tasks(monkeypatch):
    monkeypatch.setattr(checked_loops, "RULES", ("checked(3)",))
    loops = bundled_recording("checked_loops")
    natural = [checked_loops.MADE not in str(cell) for cell in loops.objects("cell")[:, 0]]
    table = checked_loops.table(loops, bundled_recording("checked_loops_loopgain"), np.array(natural), "Natural tasks")
    rows = {row[0]: row for row in table.rows}
    mean, low, high = rows["checked(3)"][2]
    assert (round(100 * mean, 2), round(100 * (high - low) / 2, 2)) == (1.57, 0.86)
    assert (round(rows["checked(3)"][3], 2), round(rows["LoopGain's own runs"][3], 2)) == (1.24, 1.18)
    page = (ROOT / "docs" / "results" / "checked-loops.md").read_text("utf-8")
    assert "+1.6 [+0.7, +2.4]" in page
