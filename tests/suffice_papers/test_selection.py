"""Fitting a ranker on tune questions, and comparing selectors with the oracle."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from suffice.cli.main import run
from suffice.errors import DataError, NotFittedError, UnknownSignalError
from suffice.evaluation.replay import calibrate, policy_for, replay
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Resampling, keys_of, poisson_weights
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.rules.ranker import Ranked
from suffice.policy.session import Policy
from suffice.recordings import bundled_recording
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.diagnostics.selection import compare_selectors
from suffice_papers.choosing.ranking import _Study, fit_ranker

ROUNDS = 4


def rows(n: int, seed: int, *, told: float = 1.0, prefix: str = "q") -> list[dict]:
    """Rows whose margin tells, as well as `told` says, which rounds are right; each round has its own answer."""
    rng = np.random.default_rng(seed)
    made = []
    for q in range(n):
        right = rng.random(ROUNDS) < 0.4
        ease = rng.normal(0, 3)  # of the question: useless for choosing among its rounds
        for r in range(ROUNDS):
            made.append(  # noqa: PERF401
                {
                    "question_id": f"{prefix}{q}",
                    "round": r + 1,
                    "end": "max_rounds",
                    "answer": f"answer {r}",
                    "answer_margin": max(0.0, 5 + ease + told * (2 * right[r] - 1) + rng.normal(0, 0.5)),
                    "cost.generator.calls": 1.0,
                    "em": float(right[r]),
                    "f1": float(right[r]),
                }
            )
    return made


def recording(n: int = 120, seed: int = 0, **options) -> Recording:
    return Recording(build_table(rows(n, seed, **options)))


def calibrated(tune: Recording, **changes) -> Policy:
    return calibrate(tune, rule="never()", signals=["p_correct"], **changes)[0]


FULL = [Policy(max_rounds=ROUNDS, name="full")]


def test_a_ranker_learns_a_planted_signal_and_helps_on_other_questions():
    fit = fit_ranker(recording(), Policy(max_rounds=ROUNDS), features=("answer_margin",))
    assert isinstance(fit.policy.selector, Ranked)
    assert fit.policy.selector.terms[0].weight > 0
    assert max(v for k, v in fit.cross_fitted.items() if "ranked" in k) > fit.cross_fitted["last"] + 0.1
    result = compare_selectors(recording(seed=1, prefix="e"), FULL, ["last", fit.policy.selector])
    row = result.row("full", str(fit.policy.selector))
    assert row.gap_seen[0] > 0.8
    assert row.gap_seen[1] > 0.6
    assert row.n_selected == 0


def test_a_signal_that_points_the_wrong_way_gets_a_negative_weight():
    fit = fit_ranker(recording(told=-1.0), Policy(max_rounds=ROUNDS), features=("answer_margin",))
    assert fit.policy.selector.terms[0].weight < 0


def test_noise_is_not_taken_for_a_signal_on_held_out_questions():
    fit = fit_ranker(recording(told=0.0), calibrated(recording(told=0.0)))
    held = [value for name, value in fit.cross_fitted.items() if "ranked" in name]
    assert max(held) < fit.cross_fitted["last"] + 0.06


def test_no_question_is_calibrated_by_its_own_outcome():
    """Whether it is held out or learnt from: turn one question's outcomes round, and its own p_correct stays."""
    made = rows(30, 4, told=0.0)
    turned = [{**row, "em": 1 - row["em"]} if row["question_id"] == "q7" else row for row in made]
    part = np.arange(30) % 3
    for train in (np.ones(30, bool), part != part[7], part != (part[7] + 1) % 3):
        views = []
        for data in map(Recording, map(build_table, (made, turned))):
            policy = replace(calibrated(data), selector=parse_selector("max_p_correct"))
            views.append(_Study(PreparedRecording.of(data, ["f1"]), policy, part, (1.0,))._view(train)["p_correct"])
        assert np.array_equal(views[0][7], views[1][7])
        if train[7]:
            assert not np.array_equal(views[0], views[1])  # while others did learn from it


def test_a_seed_fits_the_same_ranker_in_any_question_order():
    table = build_table(rows(60, 3))
    policy = Policy(max_rounds=ROUNDS)
    one, same, other = (
        fit_ranker(Recording(table), policy, features=("answer_margin", "is_last"), seed=seed) for seed in (1, 1, 2)
    )
    assert one.to_dict() == same.to_dict()
    assert one.policy == same.policy
    assert one.cross_fitted != other.cross_fitted


def test_repeated_rows_of_one_question_stay_in_one_part():
    doubled = rows(30, 5) + [{**row, "question_id": row["question_id"] + "b"} for row in rows(30, 5)]
    for row in doubled:
        row["cluster"] = row["question_id"].removesuffix("b")
    fit = fit_ranker(Recording(build_table(doubled)), Policy(max_rounds=ROUNDS), features=("answer_margin",))
    single = fit_ranker(Recording(build_table(rows(30, 5))), Policy(max_rounds=ROUNDS), features=("answer_margin",))
    assert fit.n == 2 * single.n
    assert fit.cross_fitted["last"] == pytest.approx(single.cross_fitted["last"])
    with pytest.raises(DataError, match="31 parts"):
        fit_ranker(Recording(build_table(doubled)), Policy(max_rounds=ROUNDS), features=("answer_margin",), folds=31)


def test_shares_and_intervals_equal_plain_loops():
    data = recording(50, 7)
    policy = policy_for(data, "fixed_k(3)")
    row = compare_selectors(data, [policy], ["max_answer_margin"], resampling=Resampling(n_resamples=200, seed=3)).row(
        "fixed_k(3)", "max_answer_margin"
    )
    f1, margin = data.column("f1"), data.column("answer_margin")
    last, chosen = f1[:, 2], f1[np.arange(50), np.argmax(margin[:, :3], axis=1)]
    seen, full = f1[:, :3].max(axis=1), f1.max(axis=1)
    counts = poisson_weights(keys_of(data.question_ids), 200, seed=3).astype(int)
    draws = [np.repeat(np.arange(50), count) for count in counts]
    for found, oracle in ((row.gap_seen, seen), (row.gap_full, full)):
        ratios = [(chosen[d] - last[d]).sum() / (oracle[d] - last[d]).sum() for d in draws]
        expected = ((chosen - last).sum() / (oracle - last).sum(), *np.quantile(ratios, [0.025, 0.975]))
        assert found == pytest.approx(expected)
    assert row.delta[0] == pytest.approx((chosen - last).mean())
    assert (row.oracle_seen, row.oracle_full) == (pytest.approx(seen.mean()), pytest.approx(full.mean()))
    replayed = replay(data, [replace(policy, selector=parse_selector("max_answer_margin"), name="m")]).row("m")
    assert (row.quality, row.oracle_seen) == (replayed.metrics["f1"], replayed.oracle_seen["f1"])


def test_without_a_gap_the_share_is_undefined_and_no_warning_leaks():
    for right in (0.0, 1.0):
        flat = [{**row, "em": right, "f1": right} for row in rows(8, 0)]
        result = compare_selectors(Recording(build_table(flat)), FULL, ["first", "majority"])
        row = result.row("full", "first")
        assert row.delta == (0, 0, 0)
        assert all(map(math.isnan, (*row.gap_seen, *row.gap_full)))
        assert result.to_dict()["rows"][0]["gap_seen"] == [None, None, None]
        fit = fit_ranker(Recording(build_table(flat)), Policy(max_rounds=ROUNDS), features=("answer_margin",))
        assert str(fit.policy.selector) == "last"
        assert "nothing to learn" in fit.notes[0]
        assert math.isnan(fit.penalty)


def test_rankers_accept_missing_answers_and_constant_signals_but_not_empty_ones():
    poor = rows(9, 0)
    for row in poor:
        row.update(answer_margin=None, overlap=1.0, answer=None if row["question_id"] == "q3" else row["answer"])
    data = Recording(build_table(poor, kinds={"answer_margin": "signal"}))
    fit = fit_ranker(data, Policy(max_rounds=ROUNDS), features=("overlap", "best_overlap"))
    assert str(fit.policy.selector) == "last"
    assert compare_selectors(data, FULL, ["max_overlap"]).row("full", "max_overlap").delta == (0, 0, 0)
    with pytest.raises(UnknownSignalError, match="'answer_margin'"):
        fit_ranker(data, Policy(max_rounds=ROUNDS), features=("answer_margin", "overlap"))
    with pytest.raises(UnknownSignalError, match="'answer_margin'"):
        compare_selectors(data, FULL, ["max_answer_margin"])
    silent = Recording(build_table([{**row, "answer": None, "f1": 0.0, "em": 0.0} for row in poor]))
    assert compare_selectors(silent, FULL, ["first"]).row("full", "first").quality == 0
    assert str(fit_ranker(silent, Policy(max_rounds=ROUNDS), features=("votes",)).policy.selector) == "last"


def test_one_question_is_compared_and_not_fitted():
    one = recording(1)
    assert compare_selectors(one, FULL, ["first"]).n == 1
    with pytest.raises(DataError, match="5 parts"):
        fit_ranker(one, Policy(max_rounds=ROUNDS), features=("answer_margin",))


def test_what_is_missing_is_named():
    data = recording(9)
    with pytest.raises(NotFittedError, match="p_correct"):
        fit_ranker(data, Policy(max_rounds=ROUNDS))
    with pytest.raises(UnknownSignalError, match="overlap"):
        fit_ranker(data, Policy(max_rounds=ROUNDS), features=("overlap",))
    with pytest.raises(DataError, match="one feature"):
        fit_ranker(data, Policy(max_rounds=ROUNDS), features=())
    with pytest.raises(DataError, match="'truth'"):
        compare_selectors(data, FULL, ["last"], metric="truth")
    with pytest.raises(DataError, match="to compare"):
        compare_selectors(data, [], ["last"])
    with pytest.raises(DataError, match="level"):
        compare_selectors(data, FULL, ["last"], resampling=Resampling(level=1.0))


def test_questions_that_a_policy_was_tuned_on_are_marked_selected_here():
    tune = recording(30)
    fit = fit_ranker(tune, calibrated(tune))
    result = compare_selectors(tune, [replace(fit.policy, name="full")], [fit.policy.selector])
    assert all(row.n_selected == 30 for row in result.rows)
    assert any("selected here" in note for note in result.table().notes)
    assert result.table().rows[0][0] == "full*"


def test_a_fitted_ranker_replays_from_its_policy_file(tmp_path):
    tune, other = recording(40), recording(20, 9, prefix="e")
    policy = replace(fit_ranker(tune, calibrated(tune)).policy, rule=parse_rule("never()"), name="ranked")
    policy.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert loaded.selector == policy.selector
    assert replay(other, [loaded]).row("ranked").metrics == replay(other, [policy]).row("ranked").metrics


def test_the_select_command_fits_on_tune_and_writes_the_policy(tmp_path, capsys):
    for name, seed in (("tune", 0), ("eval", 1)):
        write_recording(tmp_path / f"{name}.parquet", rows(40, seed, prefix=name))
    command = ["data", "selectors", str(tmp_path / "eval.parquet"), "--tune", str(tmp_path / "tune.parquet")]
    with pytest.raises(SystemExit) as left:
        run([*command, "--json", "--out", str(tmp_path / "policy.json"), "--set=resamples=50"])
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["rule"] for row in told["rows"]} == {"fixed_k(3)", "full"}  # answer_stable is not here
    assert str(Policy.load(tmp_path / "policy.json").selector) == told["fit"]["selector"]
    with pytest.raises(SystemExit) as left:
        run([*command, "--rule", "full", "--selector", "max_answer_margin", "--set=resamples=50"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    headings, row = (line.split() for line in shown.splitlines()[1:3])
    assert headings == [
        "rule",
        "selector",
        "F1",
        "F1",
        "vs",
        "last",
        "gap",
        "closed,",
        "seen",
        "%",
        "oracle",
        "seen",
        "calls",
    ]
    assert row[:4] == ["full", "max_answer_margin", "87.5", "+35.0"]


def test_the_select_command_offers_draft_selectors_and_counts_judge_calls(tmp_path, capsys):
    table = bundled_recording("self_refine_gpt4")
    quarter = np.arange(table.shape[0]) % 4
    for name, part in (("tune", quarter == 0), ("eval", quarter == 1)):
        chosen = table.select(part)
        write_recording(tmp_path / f"{name}.parquet", chosen.table.replace_schema_metadata(None), chosen.metadata)
    command = [
        "data",
        "selectors",
        str(tmp_path / "eval.parquet"),
        "--tune",
        str(tmp_path / "tune.parquet"),
        "--rule",
        "full",
    ]
    command += ["--metric", "target_sentiment", "--set=resamples=50"]
    with pytest.raises(SystemExit) as left:
        run([*command, "--judge", "target_sentiment", "--json"])
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert {"centroid", "max_critic_praise", "median_answer_length"} <= {row["selector"] for row in told["rows"]}
    judged = {row["name"]: row for row in told["judged"][0]["rows"]}
    assert judged["judge_until(last)"]["calls"] < judged["judge_all"]["calls"]
    assert all(len(row["variants"]) == 1 for row in judged.values())  # selected on the tune questions
    with pytest.raises(SystemExit) as left:
        run([*command, "--judge", "target_sentiment", "--details"])
    assert left.value.code == 0
    assert "judge calls" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        run([*command, "--judge", "nothing"])
    assert left.value.code == 2
    assert "no metric 'nothing'" in capsys.readouterr().err
