"""Streaming replay: the figures of `replay`, in blocks that straddle nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from suffice.cli.main import run
from suffice.errors import CensoredError, ConfigMismatchError, DataError, SchemaError, UnknownSignalError
from suffice.evaluation.replay import Price, policy_for, replay
from suffice.evaluation.replay.streaming import replay_stream
from suffice.evaluation.replay.tables import replay_notes
from suffice.policy.rules import parse_selector
from suffice.recordings.recording import Recording, read_recording, write_recording
from tests.support import strategies as drawn
from tests.support.cli_tools import cli

PRICE = Price(uncached=1.0, cached=0.5, output=2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("streams")


@settings(max_examples=40, deadline=None)
@given(
    drawn.recorded(start=1, ends=("max_rounds", "exhausted", "rule", "failed"), max_questions=6),
    st.data(),
    st.integers(1, 12),
    st.integers(1, 7),
)
def test_streamed_figures_are_those_of_replay_whatever_the_blocks(folder, data, more, block_rows, group_rows):
    policy = more.draw(drawn.policies(data.recording))
    path = folder / "r.parquet"
    table = data.recording.table
    write_recording(path, table)
    grouped = pq.read_table(path)
    pq.write_table(grouped, path, row_group_size=group_rows)
    if (data.recording.ends == "failed").all():
        with pytest.raises(DataError, match="failed"):
            replay_stream(path, policy, block_rows=block_rows)
        return
    try:
        expected = replay(data.recording, [policy], metrics=("f1", "em"), baseline="fixed_k(1)", prices=PRICE)
    except (ConfigMismatchError, CensoredError, UnknownSignalError) as error:
        # A stream sees a cut question before it can know that a signal is undefined in all the others.
        with pytest.raises((type(error), CensoredError)):
            replay_stream(path, policy, metrics=("f1", "em"), baseline="fixed_k(1)", block_rows=block_rows)
        return
    if expected.rows[0].censored:
        with pytest.raises(CensoredError, match="`suffice replay` gives bounds"):
            replay_stream(path, policy, metrics=(), baseline="fixed_k(1)", block_rows=block_rows)
        return
    found = replay_stream(
        path, policy, metrics=("f1", "em"), baseline="fixed_k(1)", prices=PRICE, block_rows=block_rows
    )
    assert found.baseline.label == expected.baseline
    for mine, label in ((found.policy, policy.label), (found.baseline, expected.baseline)):
        row = expected.row(label)
        assert mine.metrics == pytest.approx(row.metrics)
        for kind in ("calls", "tokens", "seconds", "money"):
            assert mine.costs[kind] == pytest.approx(row.costs[kind], nan_ok=True)
        assert mine.stop_rounds == pytest.approx(row.stop_rounds)
    assert found.policy.reasons == expected.row(policy.label).reasons
    assert (found.n, found.n_failed, found.n_rows) == (expected.n, expected.n_failed, table.num_rows)
    for name, delta in expected.row(policy.label).deltas.items():
        assert found.deltas[name][0] == pytest.approx(delta.delta, abs=1e-12)


def rows(n: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            "question_id": f"q{q}",
            "round": r,
            "end": "max_rounds",
            "answer": f"a{rng.integers(3)}",
            "score_gap": rng.random(),
            "cost.generator.calls": 1.0,
            "f1": rng.random(),
        }
        for q in range(n)
        for r in range(1, 5)
    ]


def written(folder, data, name="s.parquet"):
    path = folder / name
    write_recording(path, data, kinds={"score_gap": "signal"})
    return path


def test_intervals_are_normal_ones_of_the_paired_differences(folder):
    path = written(folder, rows(50))
    result = replay_stream(path, "score_gap > 0.7", block_rows=16, level=0.9)
    recording = read_recording(path)
    f1, score_gap = recording.column("f1"), recording.column("score_gap")
    stop = np.where((score_gap > 0.7).any(axis=1), np.argmax(score_gap > 0.7, axis=1), 3)
    difference = f1[np.arange(50), stop] - f1[:, 2]
    half = norm.ppf(0.95) * difference.std(ddof=1) / math.sqrt(50)
    assert result.deltas["f1"] == pytest.approx((difference.mean(), difference.mean() - half, difference.mean() + half))
    assert result.table().rows[0][3] == result.deltas["f1"]
    assert result.to_dict()["deltas"]["money"] == [None, None, None]


@pytest.mark.parametrize("selector", ["majority", "max_score_gap", "ranked(votes=(1, 0), score_gap=(0.5, 0))"])
def test_any_selector_streams(folder, selector):
    path = written(folder, rows(20))
    policy = policy_for(read_recording(path), "fixed_k(4)", selector=parse_selector(selector), name="p")
    assert replay_stream(path, policy, block_rows=9).policy.metrics == pytest.approx(
        replay(read_recording(path), [policy], metrics=("f1",)).row("p").metrics
    )


def test_one_question_and_costs_alone_are_enough(folder):
    result = replay_stream(written(folder, rows(1)), "full")
    assert result.n == 1
    assert math.isnan(result.deltas["f1"][1])
    assert replay_stream(written(folder, rows(2)), "full", metrics=()).policy.costs["calls"] == 4


def test_agreement_needs_no_gold_answers(folder):
    path = written(folder, [{k: v for k, v in row.items() if k != "f1"} for row in rows(9)])
    expected = replay(read_recording(path), ["fixed_k(2)"], metrics=("agreement",)).row("fixed_k(2)").metrics
    assert replay_stream(path, "fixed_k(2)", metrics=("agreement",), block_rows=7).policy.metrics == expected


def test_questions_whose_rows_lie_apart_are_refused(folder):
    data = rows(9)
    shuffled = written(folder, [*data[:2], *data[4:], *data[2:4]])
    with pytest.raises(DataError, match=r"do not follow each other|lacks a round"):
        replay_stream(shuffled, "full", block_rows=8)
    twice = [{**row, "question_id": "q0"} if row["question_id"] == "q8" else row for row in data]
    with pytest.raises(DataError, match="do not follow each other: sort"):
        replay_stream(written(folder, twice), "full", block_rows=8)


def test_a_missing_or_doubled_round_is_told_with_its_question(folder):
    for broken in (
        [row for row in rows(5) if (row["question_id"], row["round"]) != ("q3", 2)],
        [*rows(4), rows(4)[-1]],
    ):
        with pytest.raises(DataError, match="'q3' lacks a round or has one twice"):
            replay_stream(written(folder, broken), "full", block_rows=8)


def test_rows_of_a_question_in_any_order_are_the_same_rows(folder):
    data = rows(8)
    turned = [data[4 * q + r] for q in range(8) for r in (2, 0, 3, 1)]
    one, other = (replay_stream(written(folder, d), "score_gap > 0.5", block_rows=5) for d in (data, turned))
    assert (one.policy.metrics, one.policy.stop_rounds) == (other.policy.metrics, other.policy.stop_rounds)


def test_repeated_questions_have_intervals_over_their_clusters(folder):
    n_runs = 3
    data = rows(30 * n_runs)
    for row in data:
        row["cluster"] = f"c{int(row['question_id'][1:]) % 30}"  # the runs of a question lie apart
    path = written(folder, data)
    result = replay_stream(path, "score_gap > 0.7", block_rows=16)
    recording = read_recording(path)
    f1, score_gap = recording.column("f1"), recording.column("score_gap")
    stop = np.where((score_gap > 0.7).any(axis=1), np.argmax(score_gap > 0.7, axis=1), 3)
    difference = f1[np.arange(90), stop] - f1[:, 2]
    means = difference.reshape(n_runs, 30).mean(
        axis=0
    )  # of clusters of one size, the mean has the error of their means
    half = norm.ppf(0.975) * means.std(ddof=1) / math.sqrt(30)
    assert result.deltas["f1"] == pytest.approx((means.mean(), means.mean() - half, means.mean() + half))
    assert "intervals are over 30 clusters: questions are repeated" in result.notes
    assert result.n == 90
    same = [{**row, "cluster": row["question_id"]} for row in data]
    late = [*same[:-4], *({**row, "cluster": "q0"} for row in same[-4:])]  # which the first block does not show
    assert (
        "intervals are over 89 clusters: questions are repeated"
        in replay_stream(written(folder, late), "full", block_rows=8).notes
    )
    assert not any("cluster" in note for note in replay_stream(written(folder, same), "full").notes)


def test_bad_files_and_arguments_are_refused(folder):
    path = written(folder, rows(3))
    with pytest.raises(DataError, match="does not exist"):
        replay_stream(folder / "none.parquet", "full")
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(SchemaError, match="cannot be read as parquet"):
        replay_stream(folder / "broken.parquet", "full")
    pq.write_table(pa.table({"question_id": ["a"], "round": [1]}), folder / "foreign.parquet")
    with pytest.raises(SchemaError, match="not a recording of Suffice"):
        replay_stream(folder / "foreign.parquet", "full")
    with pytest.raises(DataError, match="level"):
        replay_stream(path, "full", level=1.0)
    with pytest.raises(DataError, match="at least one row"):
        replay_stream(path, "full", block_rows=0)
    with pytest.raises(UnknownSignalError, match="nothing_here"):
        replay_stream(path, "nothing_here > 1")
    with pytest.raises(DataError, match="no metric 'truth'"):
        replay_stream(path, "full", metrics=("truth",))
    empty = Recording(read_recording(path).table).table.slice(0, 0)
    write_recording(folder / "empty.parquet", empty)
    with pytest.raises(DataError, match="no rounds"):
        replay_stream(folder / "empty.parquet", "full")


def test_an_unmeasured_stop_is_refused(folder):
    data = [{**row, "f1": row["f1"] if row["round"] == 4 else None} for row in rows(3)]
    with pytest.raises(CensoredError, match="not measured"):
        replay_stream(written(folder, data), "fixed_k(2)", baseline="fixed_k(4)")


def test_multiple_choice_streams_by_exact_match_unless_told_otherwise_and_says_so(folder):
    golds = [{**row, "golds": ["a"], "answer": "a", "em": 1.0, "f1": 0.0} for row in rows(9)]
    path = written(folder, golds, "choice.parquet")
    found = replay_stream(path, "fixed_k(2)", block_rows=8)
    assert found.policy.metrics == {"em": 1.0}
    for metrics in (None, ("f1",), ("em",)):
        assert any("single letters" in note for note in replay_stream(path, "full", metrics=metrics).notes)
    assert replay_stream(path, "full", metrics=()).policy.metrics == {}
    # Without gold answers, what the scores themselves tell.
    path = written(folder, [{k: v for k, v in row.items() if k != "golds"} for row in golds], "scores.parquet")
    assert any("judge multiple choice by em" in note for note in replay_stream(path, "full").notes)


def test_whether_questions_are_multiple_choice_does_not_depend_on_the_parts(tmp_path):
    data = [
        {**row, "golds": ["a" if row["question_id"] == "q0" else "Oslo"], "answer": "Rome", "em": 0.0, "f1": 0.0}
        for row in rows(4)
    ]
    write_recording(tmp_path / "one.parquet", data, kinds={"score_gap": "signal"})
    for q in range(4):
        part = data[4 * q : 4 * q + 4]
        write_recording(tmp_path / "parts" / f"part-{q:04}.parquet", part, kinds={"score_gap": "signal"})
    for name in ("one.parquet", "parts"):
        assert set(replay_stream(tmp_path / name, "full").policy.metrics) == {"f1"}, name


def same_costs(streamed, replayed):
    """Compare what a streamed policy and its baseline cost with the figures of `replay`."""
    for mine, theirs in ((streamed.policy, replayed.rows[0]), (streamed.baseline, replayed.row(replayed.baseline))):
        assert dict(mine.costs) == pytest.approx({name: theirs.costs[name] for name in mine.costs}, nan_ok=True)


def test_a_policy_of_more_rounds_streams_where_the_evidence_ran_out_and_is_refused_where_it_did_not(folder):
    path = written(folder, rows(9))
    policy = replace(policy_for(read_recording(path), "score_gap > 0.7", name="p"), max_rounds=9)
    with pytest.raises(ConfigMismatchError, match="runs to round 9, the recording only to round 4"):
        replay_stream(path, policy, block_rows=7)
    path = written(folder, [{**row, "end": "exhausted"} for row in rows(9)])
    memory = replay(read_recording(path), [policy], metrics=("f1",))
    streamed = replay_stream(path, policy, block_rows=7)
    same_costs(streamed, memory)
    assert streamed.policy.metrics == pytest.approx(memory.row("p").metrics)


def test_a_gate_that_no_rule_reads_is_charged_as_in_memory(folder):
    data = [{**row, "round": row["round"] - 1, "p_known": 0.3 if row["round"] == 1 else None} for row in rows(20)]
    path = written(folder, data, "gated.parquet")
    policy = policy_for(read_recording(path), "score_gap > 0.7", start_round=0, name="p")
    memory = replay(read_recording(path), [policy], metrics=("f1",), baseline="fixed_k(2)")
    streamed = replay_stream(path, policy, baseline="fixed_k(2)", block_rows=9)
    same_costs(streamed, memory)
    assert "the gate's own cost was not recorded, and counts as nothing" in streamed.notes


def test_the_models_of_a_panel_have_prices_of_their_own(folder):
    tokens = {f"cost.generator.{kind}_tokens": 10.0 for kind in ("uncached", "cached", "output")}
    data = [{**row, **tokens, "model": f"m{row['round']}"} for row in rows(9)]
    path = folder / "panel.parquet"
    write_recording(path, data, {"independent": True}, kinds={"score_gap": "signal"})
    prices = {f"m{i}": Price(uncached=i, cached=i, output=i) for i in range(1, 5)}
    memory = replay(read_recording(path), ["fixed_k(2)"], metrics=("f1",), prices=prices)
    streamed = replay_stream(path, "fixed_k(2)", prices=prices, block_rows=9)
    same_costs(streamed, memory)
    assert streamed.policy.costs["money"] == pytest.approx(90e-6)


def test_a_stream_says_what_is_left_out_and_what_is_unknown(folder):
    data = [{**row, "passage_ids": ["p"], "cost.generator.seconds": 0.1} for row in rows(9)]
    data = [row for row in data if row["question_id"] != "q2" or row["round"] < 3]
    for row in data:
        row["end"] = {"q1": "failed", "q2": "rule"}.get(row["question_id"], row["end"])
    path = written(folder, data, "notes.parquet")
    notes = replay_stream(path, "fixed_k(1)", baseline="fixed_k(2)", block_rows=7).notes
    memory = replay_notes(replay(read_recording(path), ["fixed_k(1)"], metrics=("f1",), baseline="fixed_k(2)"))
    retrieval = "retrieval: calls, seconds not recorded; the seconds are without them"
    censored = "censored: a rule ended 1 of 8 recorded questions early; what a policy would have answered in rounds that never ran is unknown"
    assert {retrieval, censored} <= {*notes} & {*memory}
    assert "1 question failed while recording: left out of both alike" in notes
    assert any("no other fixed budget or random stop" in note for note in notes)
    assert any(note.startswith("one question") for note in replay_stream(written(folder, rows(1)), "full").notes)
    texts = [{**row, "question": f"What is {row['question_id'][:2]}?"} for row in rows(12)]
    by_id = "each question counts by itself"
    assert any(by_id in note for note in replay_stream(written(folder, texts), "full").notes)
    own = [{**row, "cluster": row["question_id"]} for row in texts]
    assert not any(by_id in note for note in replay_stream(written(folder, own), "full").notes)


def test_a_stream_says_which_questions_ended_before_the_first_round(folder):
    rows = [
        {"question_id": f"q{q}", "round": r, "end": "max_rounds", "answer": "a", "em": 1.0, "f1": 1.0}
        for q in range(3)
        for r in range(1 if q == 0 else 3)
    ]
    path = folder / "short.parquet"
    write_recording(path, rows)
    [note] = [
        note
        for note in replay_stream(path, "round >= 2", metrics=("em",), baseline="fixed_k(1)", block_rows=4).notes
        if "ended" in note
    ]
    assert note.startswith("1 recorded question ended before round 1 and not by a rule: no answer here")
    assert f"round >= 2: {note}" in replay_notes(replay(read_recording(path), ["round >= 2"], metrics=("em",)))


def test_the_command_prices_components_by_the_models_that_the_recording_names(folder):
    tokens = {f"cost.generator.{kind}_tokens": 100.0 for kind in ("uncached", "cached", "output")}
    path, prices = folder / "priced.parquet", folder / "prices.json"
    write_recording(path, [row | tokens for row in rows(5)], {"config": {"model": {"model": "m"}}})
    prices.write_text(json.dumps({"m": {"uncached": 1.0, "cached": 0.5, "output": 2.0}}))
    result = cli("replay", path, "--stream", "--rule", "round >= 2", "--prices", prices, "--json").json
    assert result["policy"]["costs"]["money"] == pytest.approx(2 * 100 * 3.5e-6)
    prices.write_text(json.dumps({"other": {"uncached": 1.0, "cached": 0.5, "output": 2.0}}))
    assert "prices neither" in cli("replay", path, "--stream", "--rule", "round >= 2", "--prices", prices).error


def test_the_command_streams_a_rule_or_a_policy(folder, capsys):
    path = written(folder, rows(20))
    policy = policy_for(read_recording(path), "score_gap > 0.5", name="mine")
    policy.save(folder / "p.json")
    told = []
    for chosen in (("--rule", "score_gap > 0.5"), ("--policy", str(folder / "p.json"))):
        with pytest.raises(SystemExit) as left:
            run(["replay", "--stream", str(path), *chosen, "--json"])
        assert left.value.code == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["deltas"] == told[1]["deltas"]
    assert told[1]["policy"]["label"] == "mine"
    with pytest.raises(SystemExit) as left:
        run(["replay", "--stream", str(path), "--rule", "full"])
    assert "mean per question" in capsys.readouterr().out
    for wrong, says in (
        ([], "one --rule or one --policy"),
        (["--rule", "full", "--rule", "fixed_k(1)"], "one --rule or one --policy"),
        (["--rule", "full", "--prices", "list", "--model", "gpt-4o"], "give one of them"),
        (["--rule", "full", "--selector", "majority"], "--stream does without it"),
    ):
        with pytest.raises(SystemExit) as left:
            run(["replay", "--stream", str(path), *wrong])
        assert left.value.code == 2
        assert says in capsys.readouterr().err
