"""Multiple choice: answers of one letter have no words for F1 to count, so exact match is the quality."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.evaluation.replay import calibrate, policy_for, replay
from suffice.evaluation.replay.outcomes import choice_note, default_metrics
from suffice.evaluation.search import search
from suffice.evaluation.statistics import Resampling
from suffice.policy.metrics import contains, exact_match, f1
from suffice.policy.rules import parse_rule, parse_selector
from suffice.recordings import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Claim, listed, measure_losses
from suffice.verdicts.diagnostics import diagnose
from suffice.verdicts.diagnostics.selection import compare_selectors
from suffice_papers.choosing.judged import compare_judged
from suffice_papers.choosing.judging import Unjudged
from tests.support.cli_tools import cli

N = 80


def rows(letters: str = "abcd", *, golds: bool = True, words: bool = False) -> list[dict]:
    """Questions whose answer is a letter, right in four of five; with `words` the answers are words instead."""
    rng = np.random.default_rng(0)
    found = []
    for q in range(N):
        gold = letters[q % len(letters)]
        gold = f"answer {gold} of all" if words else gold
        for r in (1, 2, 3):
            answer = gold if rng.random() < 0.8 else "none"
            found.append(
                {
                    "question_id": f"q{q}",
                    "round": r,
                    "end": "max_rounds",
                    "answer": answer,
                    **({"golds": [gold]} if golds else {}),
                    "em": exact_match(answer, [gold]),
                    "f1": f1(answer, [gold]),
                    "contains": contains(answer, [gold]),
                    "answer_margin": float(answer == gold) + rng.random(),
                    "answer_stable": float(r > 1),
                    "cost.generator.calls": 1.0,
                }
            )
    return found


def recording(letters: str = "abcd", **options) -> Recording:
    return Recording(build_table(rows(letters, **options)))


@pytest.mark.parametrize(("letters", "golds"), [("abcd", True), ("abcd", False), ("bcd", True)])
def test_multiple_choice_is_judged_by_exact_match_everywhere(letters, golds):
    kept = recording(letters, golds=golds)
    assert default_metrics(kept) == ("em",)
    said = choice_note(kept)
    result = replay(kept, ["answer_stable"], resampling=Resampling(n_resamples=2))
    assert (result.metrics, said in result.notes) == (("em",), True)
    told = search(kept, resampling=Resampling(n_resamples=0)).notes
    assert any(note.endswith(said[-30:]) for note in told)  # its counts are those of the searched half
    assert search(kept, resampling=Resampling(n_resamples=0)).metric == "em"
    _, summary = calibrate(kept, rule="p_correct > 0.5")
    assert (summary.quality_metric, said in summary.notes) == ("em", True)
    assert said in diagnose(kept, policy="answer_stable", resampling=Resampling(n_resamples=2)).notes


def test_f1_that_is_asked_for_is_printed_with_a_word_about_it():
    kept = recording()
    result = replay(kept, ["answer_stable"], metrics=("f1",), resampling=Resampling(n_resamples=2))
    assert result.row("fixed_k(1)").metrics["f1"] < np.mean(kept.column("em")[:, 0]) - 0.1
    assert choice_note(kept) in result.notes
    assert choice_note(kept) in measure_losses(kept, listed(["fixed_k(1)"], kept).policies, Claim(epsilon=0.5)).notes


def test_a_threshold_on_a_metric_and_selectors_get_the_same_word():
    kept = recording()
    said, rule = choice_note(kept), parse_rule("answer_stable")
    assert said in replay(kept, [rule], metrics=("f1 > 0.5",), resampling=Resampling(n_resamples=2)).notes
    assert said in diagnose(kept, policy=rule, metric="f1 > 0.5", resampling=Resampling(n_resamples=2)).notes
    claim = Claim(metric="f1>0.5", epsilon=0.5)
    assert said in measure_losses(kept, listed(["fixed_k(1)"], kept).policies, claim).notes
    policy = policy_for(kept, rule)
    assert said in compare_selectors(kept, [policy], ["last"], metric="f1", resampling=Resampling(n_resamples=2)).notes
    assert (
        said
        in compare_judged(
            kept,
            policy,
            {"last": [Unjudged(parse_selector("last"))]},
            metric="f1",
            resampling=Resampling(n_resamples=2),
        ).notes
    )
    assert (
        said
        not in compare_selectors(
            kept, [policy], ["last"], metric="contains", resampling=Resampling(n_resamples=2)
        ).notes
    )


def test_words_are_scored_by_f1_as_ever():
    kept = recording(words=True)
    assert (default_metrics(kept), choice_note(kept)) == (("f1", "em"), None)
    assert replay(kept, ["answer_stable"], resampling=Resampling(n_resamples=2)).metrics == ("f1", "em")
    bare = Recording(kept.table.drop_columns(["em"]))
    assert default_metrics(bare) == ("f1", "em")
    assert default_metrics(Recording(kept.table.drop_columns(["f1"]))) == ("f1", "em")


def test_the_command_line_judges_multiple_choice_by_exact_match(tmp_path):
    path = tmp_path / "r.parquet"
    write_recording(path, rows())
    accuracy = 100 * np.mean(recording().column("em")[:, 1])
    quick = ("--rule", "fixed_k(2)", "--set=resamples=2")
    told = cli("replay", path, *quick)
    assert f"em {accuracy:.1f}" in told.out
    assert "judge multiple choice by em" in told.out or "single letters" in told.out
    assert cli("replay", path, *quick, "--json").json["metrics"] == ["em"]
    (tmp_path / "rules.txt").write_text("fixed_k(2)\n")
    certified = cli("certify", path, "--rules", tmp_path / "rules.txt", "--max-loss", "0.5", "--json").json
    assert certified["claim"]["metric"] == "em"
    assert cli("report", path, *quick, "--json", "-o", tmp_path / "r.html").json["cells"][0]["replay"]["metrics"] == [
        "em"
    ]
    assert cli("search", path, "--set=resamples=0", "--json").json["metric"] == "em"
