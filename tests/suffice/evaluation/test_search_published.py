"""TASR's published spaces against plain loops over a file in the authors' columns (METHODS section 1, "Search").

The loops below share nothing with the library: they read the parquet file by the authors' names and follow the paper's
words one step at a time.
"""

import itertools
import re
import runpy
import string
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq
import pytest

from suffice.evaluation.replay import policy_for
from suffice.evaluation.search import PRESETS, search
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import AllOf, AnyOf
from suffice.policy.session import stops
from suffice.recordings import read_recording, write_recording
from suffice_papers.tasr import read_tasr
from suffice_papers.tasr.importer import TASR_COLUMNS

ROOT = Path(__file__).resolve().parents[3]
FILES = {split: ROOT / "tests" / "data" / "imports" / f"tasr_{split}.parquet" for split in ("tune", "eval")}
LAST_SIX = ("calibrated_logit_margin", "answer_stable", "calibrated_conf", "overlap_signal", "top_score_z_intra", "gap")
"""The signals of the sweep of 876, by the names in the authors' result files, `subset_ablation_lp_dnf.json`."""
FIRST_EIGHT = ("answer_stable", *LAST_SIX[2:], "answer_in_evidence", "ce_top_score", "judge_entailment")
BUDGET = 3.0


def ours(theirs):
    """Our name for one of the authors' columns."""
    if theirs == "answer_stable":
        return theirs
    return next(name for name, columns in TASR_COLUMNS.items() if theirs in columns)


def test_the_published_spaces_search_the_signals_that_the_authors_name():
    assert [block.literals for block in PRESETS["tasr-dnf-876"].blocks] == [PRESETS["tasr-381"].blocks[2].literals]
    listed = [[literal.signal for literal in block.literals] for block in PRESETS["tasr-381"].blocks]
    assert set(listed[0]) == {ours(name) for name in FIRST_EIGHT}
    assert set(listed[1]) == {ours(name) for name in FIRST_EIGHT[:6]}
    assert listed[2] == [ours(name) for name in LAST_SIX]


def test_the_committed_files_are_what_their_script_draws():
    made = runpy.run_path(str(ROOT / "scripts" / "make_tasr_rounds.py"))
    for split, path in FILES.items():
        for found, drawn in zip(pq.read_table(path).to_pylist(), made["rows"](split), strict=True):
            assert found == pytest.approx(drawn, abs=1.1e-4)  # rounded to four digits


# The plain loops --------------------------------------------------------------------------------------------------------


def normalized(answer):
    kept = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


@cache
def questions(split):
    """A list of rounds by question, each with its row and whether its answer repeats that of the round before."""
    found = {}
    for row in pq.read_table(FILES[split]).to_pylist():
        rounds = found.setdefault(row["qid"], [])
        repeats = bool(rounds) and normalized(rounds[-1]["current_answer"]) == normalized(row["current_answer"])
        rounds.append({**row, "answer_stable": float(repeats)})
    return list(found.values())


def holds(name, threshold, row):
    return row[name] == 1 if name == "answer_stable" else row[name] > threshold


def outcome(split, fires):
    """Mean F1 and mean calls of a rule, and its stops: the first round at which it fires, else the last."""
    stops = [next((r for r, row in enumerate(rounds) if fires(row)), len(rounds) - 1) for rounds in questions(split)]
    f1 = fmean(rounds[stop]["current_f1"] for rounds, stop in zip(questions(split), stops, strict=True))
    return f1, fmean(stop + 1 for stop in stops), tuple(stops)


@cache
def locked():
    """Each signal's threshold: of 40 values on tune, the first with the best F1 within the budget."""
    found = {"answer_stable": 1.0}
    for name in LAST_SIX:
        if name == "answer_stable":
            continue
        values = [row[name] for rounds in questions("tune") for row in rounds]
        best = -1.0
        for threshold in np.linspace(min(values), max(values), 40).tolist():
            f1, calls, _ = outcome("tune", lambda row, t=threshold, name=name: holds(name, t, row))
            if calls <= BUDGET and f1 > best:
                best, found[name] = f1, threshold
    return found


def partitions(items):
    if not items:
        yield []
        return
    first, *rest = items
    for parts in partitions(rest):
        yield [[first], *parts]
        for i in range(len(parts)):
            yield [*parts[:i], [first, *parts[i]], *parts[i + 1 :]]


@cache
def expected():
    """F1, calls and stops on eval of every normal form in which each signal appears at most once."""
    found = {}
    for size in range(1, len(LAST_SIX) + 1):
        for subset in itertools.combinations(LAST_SIX, size):
            for groups in partitions(list(subset)):
                key = frozenset(frozenset(ours(name) for name in group) for group in groups)
                found[key] = outcome(
                    "eval",
                    lambda row, groups=groups: any(all(holds(name, locked()[name], row) for name in g) for g in groups),
                )
    return found


# What the library finds on the same file --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasr")
    for split, path in FILES.items():
        write_recording(folder / f"{split}.parquet", read_tasr(path).rows())
    return {split: read_recording(folder / f"{split}.parquet") for split in FILES}


@pytest.fixture(scope="module")
def result(recordings):
    return search(
        recordings["eval"], "tasr-dnf-876", tune=recordings["tune"], budget=BUDGET, resampling=Resampling(n_resamples=0)
    )


def stable(row):
    return row["answer_stable"] == 1


PUBLISHED_RULES = {
    "answer_stable": stable,
    "tasr": lambda row: stable(row) and row["calibrated_logit_margin"] > 0.25,
    "tasr_m20": lambda row: stable(row) and row["calibrated_logit_margin"] > 0.20,
    "stable_and_overlap": lambda row: stable(row) and row["overlap_signal"] >= 0.15,
    "stable_and_entailed": lambda row: stable(row) and row["judge_entailment"] >= 4,
    "AS_ov_or_en": lambda row: stable(row) and (row["overlap_signal"] >= 0.15 or row["judge_entailment"] >= 4),
    "margin_or_overlap": lambda row: row["calibrated_logit_margin"] > 0.725 or row["overlap_signal"] > 0.15,
    "famA_m20": lambda row: (
        row["calibrated_logit_margin"] > 0.725
        or (row["overlap_signal"] > 0.15 and row["calibrated_logit_margin"] > 0.2)
    ),
    "famB": lambda row: (
        row["calibrated_conf"] > 0.6 or row["calibrated_logit_margin"] > 0.675 or row["overlap_signal"] > 0.15
    ),
    "two_of_four": lambda row: (
        stable(row)
        + (row["calibrated_logit_margin"] > 0.6)
        + (row["overlap_signal"] > 0.15)
        + (row["calibrated_conf"] > 0.7)
        >= 2
    ),
    "soft_sum": lambda row: stable(row) + row["calibrated_logit_margin"] + row["overlap_signal"] > 1.5,
}


@pytest.mark.parametrize("name", PUBLISHED_RULES)
def test_a_published_rule_stops_where_a_plain_loop_stops(recordings, name):
    policy = policy_for(recordings["eval"], name)
    position = stops(policy, recordings["eval"].rounds(policy.raw_columns)).position
    assert tuple(position.tolist()) == outcome("eval", PUBLISHED_RULES[name])[2]
    assert len(set(position.tolist())) > 1


def key_of(rule):
    groups = rule.rules if isinstance(rule, AnyOf) else (rule,)
    members = (group.rules if isinstance(group, AllOf) else (group,) for group in groups)
    return frozenset(frozenset(member.name for member in group) for group in members)


def test_every_locked_threshold_is_the_plain_loops(result):
    found = {item.literal.signal: item.literal.thresholds[0] for item in result.locked}
    told = {ours(name): value for name, value in locked().items() if name != "answer_stable"}
    assert found == pytest.approx(told, abs=1e-12)
    assert all(item.within_budget for item in result.locked)


def test_all_876_rules_match_the_plain_loop_in_f1_and_calls(result):
    numbers = np.arange(876)
    means = result.explorer.means(numbers)
    found = {
        key_of(rule): pair
        for rule, *pair in zip(result.explorer.rules(numbers), means["quality"], means["calls"], strict=True)
    }
    assert len(found) == len(expected()) == 876
    different = [
        key for key, (f1, calls, _) in expected().items() if found[key] != pytest.approx([f1, calls], abs=1e-12)
    ]
    assert different == []


def test_rules_count_as_different_where_their_stops_differ(result):
    assert len(result.distinct) == len({stops for _, _, stops in expected().values()})
    assert 700 < len(result.distinct) < 876
