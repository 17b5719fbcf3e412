"""A rule that reads what was not recorded never fires, which looks like a result: it is refused, or said."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest

from suffice.errors import SufficeError, UnknownSignalError
from suffice.evaluation.replay import calibrate, policy_for, replay
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import COST_KINDS
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy
from suffice.presentation import make_report
from suffice.recordings import Recording, read_recording, write_recording
from suffice.verdicts.certificates import Claim, certify, listed
from suffice.verdicts.diagnostics import compare_selectors, diagnose
from suffice_gates.gates import GateEvaluation, column_gate, compare_gates
from suffice_gates.gates.compare import ScoredGate
from tests.support.cli_tools import cli
from tests.support.replayed import replay_in_blocks
from tests.support.shared import recording_of

ANSWERS = [["b", "a", "a"], ["a", "a", "b"], ["b", "b", "a"], ["a", "b", "b"]]
NOTHING = [[None] * 3] * 4


def recording(*, depends=None, start: int = 1, answers=ANSWERS, **columns) -> Recording:
    """Four questions of three rounds; `columns` have the shape of `answers`."""
    stable = [[None] * (2 - start) + [float(a == b) for a, b in pairwise(given)][1 - start :] for given in answers]
    return recording_of(
        answers,
        start=start,
        kinds=dict.fromkeys(columns, "signal"),
        metadata=None if depends is None else {"depends": depends},
        **{f"cost.generator.{kind}": float(kind == "calls") for kind in COST_KINDS}
        | {"answer_stable": stable}
        | columns,
    )


def replayed(of: Recording, item):
    return replay(of, [item], resampling=Resampling(n_resamples=20))


def streamed(of: Recording, item, folder):
    write_recording(folder / "r.parquet", of.table, of.metadata)
    return replay_in_blocks(folder / "r.parquet", item, resampling=Resampling(n_resamples=20))


def test_only_signals_with_a_value_are_named_as_those_that_there_are():
    table = recording(answer_margin=NOTHING).table
    free = table.select([name for name in table.column_names if not name.startswith("cost.")])
    with pytest.raises(UnknownSignalError, match=r"answer_stable, round\."):
        replayed(Recording(free), "overlap >= 0.5")
    with pytest.raises(UnknownSignalError, match=r"seconds, tokens\."):
        replayed(Recording(table), "overlap >= 0.5")


EVERY = {
    "replay": lambda of, rule, folder: replayed(of, rule),
    "stream": streamed,
    "report": lambda of, rule, folder: make_report({"r": of}, [policy_for(of, rule)]),
    "certify": lambda of, rule, folder: certify(
        of, listed([policy_for(of, rule)], policy_for(of, "full")), Claim(epsilon=0.5)
    ),
    "calibrate": lambda of, rule, folder: calibrate(of, rule=rule),
    "diagnose": lambda of, rule, folder: diagnose(of, policy=rule),
    "selectors": lambda of, rule, folder: compare_selectors(of, [policy_for(of, rule)], ["majority"]),
    "baseline": lambda of, rule, folder: replay(
        of, ["fixed_k(1)"], baseline=rule, resampling=Resampling(n_resamples=20)
    ),
}


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize(
    ("rule", "advice"),
    [("semantic(0.05)", "embedder=minilm"), ("answer_stabel >= 1", "'answer_stable'")],
    ids=["undefined in every round", "misspelt"],
)
def test_an_undefined_or_misspelt_signal_is_an_error_with_advice(way, rule, advice, tmp_path):
    with pytest.raises(UnknownSignalError, match=advice):
        EVERY[way](recording(semantic_distance=NOTHING), rule, tmp_path)


@pytest.mark.parametrize(
    ("signal", "rule", "selector"),
    [
        ("critic_approved", "(critic_approved >= 1) | (answer_stable >= 1)", "last"),
        ("overlap", "fixed_k(2)", "max_overlap"),
    ],
)
def test_a_term_or_selector_undefined_in_every_round_is_an_error(signal, rule, selector):
    of = recording(**{signal: NOTHING})
    with pytest.raises(UnknownSignalError, match=signal):
        replayed(of, policy_for(of, rule, selector=parse_selector(selector)))


def test_a_selector_may_list_distances_beyond_the_last_round():
    columns = {f"semantic_distance{back}": [[None, 0.5, 0.1]] * 4 for back in ("", "_2")}
    far = {f"semantic_distance_{back}": NOTHING for back in (3, 4, 5)}
    of = recording(**columns, **far)
    assert replayed(of, policy_for(of, "full", selector=parse_selector("centroid"))).rows[0].metrics["em"] >= 0


@pytest.mark.parametrize("way", ["replay", "stream", "certify", "calibrate", "diagnose", "selectors"])
def test_a_partly_undefined_signal_is_a_share_in_the_notes(way, tmp_path):
    some = [[0.1, None, 0.9]] * 4
    made = EVERY[way](recording(own=some), "own > 0.5", tmp_path)
    if way == "certify":
        notes = made.measured.notes
    elif way == "calibrate":
        notes = made[1].notes
    else:
        notes = made.rows[0].notes if way in ("replay", "stream") else made.notes
    assert "own is undefined in 33 % of rounds (4 of 12)" in notes


def test_the_share_counts_rounds_in_which_the_signal_may_exist():
    """`answer_stable` exists from round 2 on: that it is undefined at round 1 is no lack."""
    assert not replayed(recording(), "answer_stable").rows[0].notes


def test_a_part_of_a_file_may_lack_what_another_part_has(tmp_path):
    own = [[None] * 3] * 3 + [[0.1, 0.9, 0.9]]
    of = recording(own=own)
    write_recording(tmp_path / "r.parquet", of.table, of.metadata)
    found = replay_in_blocks(tmp_path / "r.parquet", "own > 0.5", block_rows=3)
    assert found.rows[0].stop_rounds == {2: 0.25, 3: 0.75}
    assert "own is undefined in 75 % of rounds (9 of 12)" in found.rows[0].notes


def test_a_signal_undefined_in_all_rounds_of_a_rule_is_an_error():
    of = recording(start=0, p_known=[[0.9, None, None]] * 4)
    with pytest.raises(UnknownSignalError, match="start-round"):
        replayed(of, policy_for(of, "p_known > 0.5", start_round=1))
    assert replayed(of, "p_known > 0.5").rows[0].stop_rounds == {0: 1.0}
    one = recording(answers=[["a"], ["b"], ["a"], ["b"]])
    with pytest.raises(UnknownSignalError, match="from round 2"):
        replay(one, ["answer_stable"], baseline="fixed_k(1)")


@pytest.mark.parametrize("rule", ["calls >= 2", "tokens > 5", "seconds > 1"])
def test_a_rule_on_costs_is_an_error_where_none_were_recorded(rule):
    of = recording()
    bare = Recording(of.table.drop_columns(of.names("cost")), of.metadata)
    with pytest.raises(UnknownSignalError, match="recorded costs"):
        replay(bare, [rule], baseline="fixed_k(1)", metrics=("em",), resampling=Resampling(n_resamples=20))


def test_a_gate_without_a_single_score_is_an_error():
    of = recording(start=0, own_gate=NOTHING)
    with pytest.raises(SufficeError, match="own_gate"):
        GateEvaluation(of, metrics=("em",), resampling=Resampling(n_resamples=20)).run(
            parse_rule("(own_gate > 0.5) & (round < 1)")
        )
    prepared = GateEvaluation(of, metrics=("em",), resampling=Resampling(n_resamples=20))
    for tune in (None, prepared):
        with pytest.raises(SufficeError, match="round 0"):
            column_gate("own_gate", prepared, tune)
    nothing = np.full(4, math.nan)
    with pytest.raises(SufficeError, match="'mute'"):
        compare_gates(
            GateEvaluation(of, metrics=("em",), resampling=Resampling(n_resamples=20)),
            [ScoredGate(name="mute", tune=nothing, evaluation=nothing, beta=0.5)],
        )


# --- fitted state and models ----------------------------------------------------------------------------------------


MARGINS = [[0.1, 2.0, 3.0], [2.5, 1.0, 0.2], [0.3, 0.4, 2.0], [1.5, 0.6, 0.1]]


@pytest.mark.parametrize(
    ("fitted_on", "applied_to", "said"),
    [
        ({}, {}, "a model that is not named and is applied to a model that is not named"),
        ({"model": "a"}, {}, "the model 'a' and is applied to a model that is not named"),
        ({}, {"model": "b"}, "a model that is not named and is applied to the model 'b'"),
        ({"model": "a"}, {"model": "a"}, None),
    ],
)
def test_a_calibrator_of_an_unknown_model_is_marked_wherever_it_is_applied(fitted_on, applied_to, said, tmp_path):
    policy, summary = calibrate(recording(depends=fitted_on, answer_margin=MARGINS), rule="p_correct > 0.5")
    named = any("model" in note for note in summary.notes)
    assert named != ("model" in fitted_on)
    policy = Policy.from_dict({**policy.to_dict(), "provenance": {"tune_ids": ["elsewhere"]}})
    of = recording(depends=applied_to, answer_margin=MARGINS)
    write_recording(tmp_path / "r.parquet", of.table, of.metadata)
    replayed_notes = replayed(of, policy).rows[0].notes
    streamed_notes = replay_in_blocks(tmp_path / "r.parquet", policy).rows[0].notes
    certified = certify(of, listed([policy], policy), Claim(epsilon=0.5)).measured.notes
    told = make_report({"r": of}, [policy]).cells[0]
    reported = (*told.headlines[0].caveats, *told.result.rows[0].notes)
    for notes in (replayed_notes, streamed_notes, certified, reported):
        marks = [note for note in notes if "was fitted on" in note]
        assert len(marks) == (said is not None)
        assert said is None or said in marks[0]


# --- the command line -----------------------------------------------------------------------------------------------


def test_calibrate_writes_no_policy_on_a_misspelt_rule(tmp_path):
    of = recording()
    write_recording(tmp_path / "r.parquet", of.table, of.metadata)
    done = cli("calibrate", tmp_path / "r.parquet", "--rule", "answer_stabel >= 1", "-o", tmp_path / "p.json")
    assert "Did you mean 'answer_stable'?" in re.sub(r"\s+", " ", done.error)
    assert not (tmp_path / "p.json").exists()


def test_search_refuses_signals_that_the_searched_questions_lack(tmp_path):
    tune = recording(overlap=[[None, 0.5, 0.1]] * 4)
    of = recording(overlap=NOTHING)
    for name, item in (("tune", tune), ("eval", of)):
        ids = [f"{name}-{value}" for value in item.table.column("question_id").to_pylist()]
        place = item.table.column_names.index("question_id")
        write_recording(tmp_path / f"{name}.parquet", item.table.set_column(place, "question_id", [ids]), item.metadata)
    done = cli(
        "search",
        tmp_path / "eval.parquet",
        "--tune",
        tmp_path / "tune.parquet",
        "--space",
        "available",
        "--set=resamples=20",
    )
    assert "overlap" in done.error


def test_the_share_and_the_unknown_model_are_printed(tmp_path):
    of = recording(answer_margin=[[0.1, None, 3.0], *MARGINS[1:]])
    write_recording(tmp_path / "r.parquet", of.table, of.metadata)
    assert cli("calibrate", tmp_path / "r.parquet", "--rule", "p_correct > 0.5", "-o", tmp_path / "p.json").code == 0
    done = cli("replay", tmp_path / "r.parquet", "--policy", tmp_path / "p.json")
    said = re.sub(r"\s+", " ", done.out)
    assert "p_correct is undefined in 8.3 % of rounds (1 of 12)" in said
    assert "a model that is not named" in said
    data = cli("replay", tmp_path / "r.parquet", "--policy", tmp_path / "p.json", "--json").json
    assert any("undefined in 8.3 %" in note for note in data["rows"][0]["notes"])
    assert read_recording(tmp_path / "r.parquet").shape == (4, 3)
