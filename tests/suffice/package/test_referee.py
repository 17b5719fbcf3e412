"""The referee attacks every part that claims something, and its quick mode finds no attack that succeeds unexplained."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.referee.__main__ import ATTACKS, KNOWN, page, results
from benchmarks.referee.attack import FAILS, HOLDS, REFUSED, WARNS, Attack, Shot, bounds, withstood

TOLD = "if it is so"


def attack(rate: float, *, warned: float = 0.0, refused: bool = False) -> Attack:
    def run(rng: np.random.Generator) -> Shot:
        if refused:
            return Shot(false=False, refused=True)
        return Shot(bool(rng.random() < rate), said=TOLD if rng.random() < warned else "")

    return Attack(name="own", item="", claim="", nominal=0.05, repetitions=300, run=run, warning=TOLD)


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (attack(0.05), HOLDS),
        (attack(0.5), FAILS),
        (attack(0.5, warned=1.0), WARNS),
        (attack(0.5, warned=0.5), FAILS),
        (attack(0.0, refused=True), REFUSED),
    ],
)
def test_an_attack_is_withstood_by_its_rate_or_a_warning(made, verdict):
    assert withstood(made, 1).verdict == verdict


def test_a_share_lies_within_its_bounds():
    for n_false, n in ((0, 50), (5, 50), (50, 50)):
        low, high = bounds(n_false, n, 0.05)
        assert low <= n_false / n <= high
        wide = bounds(n_false, n, 0.001)
        assert wide[0] <= low <= high <= wide[1]


def test_the_same_seed_gives_the_same_runs():
    assert withstood(attack(0.3), 7).n_false == withstood(attack(0.3), 7).n_false


@pytest.mark.whole
def test_no_quick_attack_succeeds_unexplained():
    names = [one.name for one in ATTACKS]
    assert len(set(names)) == len(names) > 40
    assert {one.item for one in ATTACKS} >= {"decide", "certify", "watch", "replay", "calibrate"}
    assert set(KNOWN) <= set(names)
    ended = results(share=0.03)
    assert [one.attack.name for one in ended] == names
    succeeded = {one.attack.name for one in ended if one.verdict == FAILS} - set(KNOWN)
    assert not succeeded
    assert page(ended).count("\n| ") >= len(names)


def test_the_rates_in_the_explanation_are_those_of_the_page():
    docs = Path(__file__).resolve().parents[3] / "docs"
    rows = [line.split("|") for line in (docs / "results" / "referee.md").read_text("utf-8").splitlines()]
    known = {row[4].strip() for row in rows if len(row) > 8}
    table = (
        (docs / "explanation" / "statistics.md").read_text("utf-8").partition("| measured |")[2].partition("\n\n")[0]
    )
    cells = " ".join(line.split("|")[-2] for line in table.splitlines()[2:])
    rates = re.findall(r"\d+\.\d", cells)
    assert len(rates) >= 15
    assert set(rates) <= known
