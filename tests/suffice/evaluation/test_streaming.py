"""Streaming replay: rows and figures of `replay`, whatever the blocks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from suffice.cli.main import run
from suffice.errors import CensoredError, ConfigMismatchError, DataError, SchemaError, SufficeError, UnknownSignalError
from suffice.evaluation.replay import Price, ReplayResult, policy_for, replay
from suffice.evaluation.replay.parts import FileParts
from suffice.evaluation.replay.replay_tables import replay_notes
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import parse_selector
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording, read_recording, write_recording
from tests.support import strategies as drawn
from tests.support.cli_tools import cli
from tests.support.replayed import assert_same_replay, replay_in_blocks

over = FileParts.over
PRICE = Price(uncached=1.0, cached=0.5, output=2.0)
PRICE_OF_ALL = Price(uncached=100.0, cached=50.0, output=200.0)
FEW = Resampling(n_resamples=50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("streams")


@st.composite
def varied(draw, table: pa.Table) -> tuple[list[dict], dict]:
    """Rows of a table as other hosts record them, with their metadata: panels, fitted models, golds alone, bad ends."""
    data, metadata = table.to_pylist(), {}
    names = sorted({row["question_id"] for row in data})
    if draw(st.booleans()):
        metadata["independent"] = True
        models = draw(st.sampled_from([("A",), ("A", "B"), ("A", "B", "C", None)]))
        data = [row | {"model": draw(st.sampled_from(models))} for row in data]
    if draw(st.booleans()):
        data = [row | {"question": f"Who is {row['question_id']}?"} for row in data]
        seen = Seen.of(["elsewhere"], [f"who is {name}" for name in draw(st.sets(st.sampled_from(names), min_size=1))])
        metadata["fitted"] = {draw(st.sampled_from(["retriever", "judge:entailment"])): seen.to_dict()}
    scored = draw(st.sampled_from(["as recorded", "golds alone", "multiple choice"]))
    if scored == "golds alone":
        left_out = draw(st.sampled_from([("em",), ("em", "f1")]))
        data = [{**row, "golds": drawn.GOLDS} for row in data]
        data = [{name: value for name, value in row.items() if name not in left_out} for row in data]
    if scored == "multiple choice":
        data = [row | {"em": 1.0, "f1": 0.0} for row in data]
    if draw(st.sampled_from([*[False] * 9, True])):
        bad, end = draw(st.sampled_from(names)), draw(st.sampled_from(["Failed", None]))
        data = [row | {"end": end} if row["question_id"] == bad else row for row in data]
    return data, metadata


@settings(max_examples=15, deadline=None)
@given(
    drawn.recorded(start=1, ends=("max_rounds", "exhausted", "rule", "failed"), max_questions=6),
    st.data(),
    st.integers(1, 12),
    st.integers(1, 7),
)
def test_streamed_figures_are_those_of_replay_whatever_the_blocks(folder, data, more, block_rows, group_rows):
    policy = more.draw(drawn.policies(data.recording, replayable=more.draw(st.booleans())))
    # A rule becomes a policy that knows what the recording was fitted on; a policy alone does not.
    asked = more.draw(st.sampled_from([[policy], [policy, "round >= 2"]]))
    baseline = more.draw(st.sampled_from([None, "fixed_k(1)", "full", "recorded", "oracle_best"]))
    metrics = more.draw(st.sampled_from([("f1", "em"), ("f1",), ("em",), (), None]))
    path = folder / "r.parquet"
    write_recording(path, *more.draw(varied(data.recording.table)), kinds={"own_judge": "signal"})
    grouped = pq.read_table(path)
    pq.write_table(grouped, path, row_group_size=group_rows)
    prices = more.draw(st.sampled_from([PRICE, {"A": PRICE, "B": PRICE_OF_ALL, "generator": PRICE_OF_ALL}]))
    how = {"metrics": metrics, "baseline": baseline, "prices": prices, "resampling": FEW}
    try:
        expected = replay(read_recording(path), asked, **how)
    except SufficeError as error:
        # Which question a message names depends on where the parts begin.
        with pytest.raises(type(error)):
            replay_in_blocks(path, asked, **how, block_rows=block_rows)
        return
    found = replay_in_blocks(path, asked, **how, block_rows=block_rows)
    assert_same_replay(found, expected)


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


def assert_same_in_blocks(path, rule: str | Policy, **how) -> ReplayResult:
    expected = replay(read_recording(path), rule, resampling=FEW, **how)
    assert_same_replay(replay_in_blocks(path, rule, resampling=FEW, block_rows=7, **how), expected)
    return expected


@pytest.mark.parametrize("component", ["judge:own", "retriever"])
def test_questions_that_a_model_was_fitted_on_are_marked_in_blocks(folder, component):
    data = [row | {"question": f"Who is {row['question_id']}?"} for row in rows(9)]
    seen = Seen.of(["elsewhere"], ["who is q1", "who is q8"])
    metadata = {"fitted": {component: seen.to_dict()}, "signal_components": {"score_gap": "judge:own"}}
    write_recording(folder / "fitted.parquet", data, metadata, kinds={"score_gap": "signal"})
    policy = Policy(rule="score_gap > 0.5", max_rounds=4)
    found = assert_same_in_blocks(folder / "fitted.parquet", policy, metrics=["f1"])
    assert found.rows[0].n_selected == 2


def test_a_block_with_one_model_of_a_panel_has_its_costs(folder):
    tokens = {f"cost.generator.{kind}_tokens": 10.0 for kind in ("uncached", "cached", "output")}
    data = [{**row, **tokens, "model": "ABCD"[row["round"] - 1]} for row in rows(9)]
    data = [*data[:-4], {**data[-4], "end": "exhausted"}]
    write_recording(folder / "one.parquet", data, {"independent": True}, kinds={"score_gap": "signal"})
    prices = {"A": PRICE, "B": PRICE, "generator": PRICE_OF_ALL}
    found = assert_same_in_blocks(folder / "one.parquet", "fixed_k(2)", metrics=["f1"], prices=prices)
    assert found.rows[0].costs["money"] == pytest.approx(35e-6 * 17 / 9)


@pytest.mark.parametrize("metrics", [("f1",), ()])
def test_golds_alone_give_the_earliest_oracle_in_blocks(folder, metrics):
    path = written(folder, [row | {"golds": ["a1"]} for row in rows(9)])
    assert "oracle_earliest" in [row.label for row in assert_same_in_blocks(path, "full", metrics=metrics).rows]


@pytest.mark.parametrize(
    ("changed", "error", "word"),
    [
        ({"end": "Failed"}, DataError, "unknown end"),
        ({"end": None}, DataError, "unknown end"),
        ({"question_id": None}, SchemaError, "1 missing"),
        ({"round": None}, SchemaError, "whole number"),
    ],
)
def test_blocks_refuse_rows_that_memory_refuses(folder, changed, error, word):
    path = written(folder, rows(5))
    table = pa.Table.from_pylist([*rows(4), rows(5)[16] | changed, *rows(5)[17:]], read_recording(path).table.schema)
    write_recording(path, table)
    for read in (read_recording, lambda path: replay_in_blocks(path, "full", metrics=["f1"], block_rows=7)):
        with pytest.raises(error, match=word):
            read(path)


def test_ids_that_are_no_text_are_refused(folder):
    table = read_recording(written(folder, rows(3))).table
    write_recording(folder / "numbers.parquet", table.set_column(0, "question_id", pa.array([*range(12)])))
    with pytest.raises(SchemaError, match="int64"):
        replay_in_blocks(folder / "numbers.parquet", "full")


def test_multiple_choice_is_noted_in_blocks_where_only_em_is_asked(folder):
    path = written(folder, [row | {"em": 1.0, "f1": 0.0} for row in rows(9)])
    assert any("em is the quality" in note for note in assert_same_in_blocks(path, "full", metrics=["em"]).notes)


def test_intervals_are_those_of_the_draws_by_name(folder):
    path = written(folder, rows(50))
    how = Resampling(level=0.9, seed=3)
    result = replay_in_blocks(path, "score_gap > 0.7", metrics=["f1"], block_rows=16, resampling=how)
    recording = read_recording(path)
    f1, score_gap = recording.column("f1"), recording.column("score_gap")
    stop = np.where((score_gap > 0.7).any(axis=1), np.argmax(score_gap > 0.7, axis=1), 3)
    difference = f1[np.arange(50), stop] - f1[:, 2]
    expected = how.draws(recording.question_ids).paired(difference)
    assert result.rows[0].deltas["f1"].triple == pytest.approx(expected.triple, abs=1e-12)


@pytest.mark.parametrize("selector", ["majority", "max_score_gap", "ranked(votes=(1, 0), score_gap=(0.5, 0))"])
def test_any_selector_streams(folder, selector):
    path = written(folder, rows(20))
    policy = policy_for(read_recording(path), "fixed_k(4)", selector=parse_selector(selector), name="p")
    how = {"metrics": ("f1",), "resampling": FEW}
    assert_same_replay(
        replay_in_blocks(path, policy, **how, block_rows=9), replay(read_recording(path), [policy], **how)
    )


def test_one_question_and_costs_alone_are_enough(folder):
    result = replay_in_blocks(written(folder, rows(1)), "full", metrics=["f1"])
    assert result.n == 1
    assert math.isnan(result.rows[0].deltas["f1"].low)
    assert replay_in_blocks(written(folder, rows(2)), "full", metrics=()).rows[0].costs["calls"] == 4


def test_agreement_needs_no_gold_answers(folder):
    path = written(folder, [{k: v for k, v in row.items() if k != "f1"} for row in rows(9)])
    how = {"metrics": ("agreement",), "resampling": FEW}
    assert_same_replay(
        replay_in_blocks(path, "fixed_k(2)", **how, block_rows=7), replay(read_recording(path), "fixed_k(2)", **how)
    )


def test_questions_whose_rows_lie_apart_are_refused(folder):
    data = rows(9)
    shuffled = written(folder, [*data[:2], *data[4:], *data[2:4]])
    with pytest.raises(DataError, match="follow|lacks"):
        replay_in_blocks(shuffled, "full", block_rows=8)
    twice = [{**row, "question_id": "q0"} if row["question_id"] == "q8" else row for row in data]
    with pytest.raises(DataError, match="sort"):
        replay_in_blocks(written(folder, twice), "full", block_rows=8)


def test_a_missing_or_doubled_round_is_told_with_its_question(folder):
    for broken in (
        [row for row in rows(5) if (row["question_id"], row["round"]) != ("q3", 2)],
        [*rows(4), rows(4)[-1]],
    ):
        with pytest.raises(DataError, match="'q3'"):
            replay_in_blocks(written(folder, broken), "full", block_rows=8)


def test_rows_of_a_question_in_any_order_are_the_same_rows(folder):
    data = rows(8)
    turned = [data[4 * q + r] for q in range(8) for r in (2, 0, 3, 1)]
    one, other = (
        replay_in_blocks(written(folder, d), "score_gap > 0.5", metrics=["f1"], block_rows=5) for d in (data, turned)
    )
    assert_same_replay(one, other, apart=("data_hash",))


@pytest.mark.parametrize("by", ["cluster", "question"])
def test_repeated_questions_are_drawn_as_in_memory(folder, by):
    data = rows(45)
    for row in data:
        number = int(row["question_id"][1:]) % 15  # the runs of a question lie apart
        row[by] = f"c{number}" if by == "cluster" else f"Where is tower {number}?"
    path = written(folder, data)
    how = {"metrics": ["f1"], "resampling": FEW}
    result = replay_in_blocks(path, "score_gap > 0.7", **how, block_rows=16)
    assert (result.n, result.n_clusters) == (45, 15)
    assert_same_replay(result, replay(read_recording(path), "score_gap > 0.7", **how))


def test_two_clusters_of_one_text_are_noted_as_in_memory(folder):
    data = [
        {**row, "cluster": row["question_id"], "question": f"What is {row['question_id'][:2]}?"} for row in rows(12)
    ]
    path = written(folder, data)
    how = {"metrics": ["f1"], "resampling": FEW}
    result = replay_in_blocks(path, "full", **how, block_rows=8)
    assert any("12 questions have 10 texts" in note for note in result.notes)
    assert_same_replay(result, replay(read_recording(path), "full", **how))


@pytest.mark.parametrize("by", ["", "cluster", "question"])
def test_samples_stream_as_in_memory(folder, by):
    data = [row | {"answer": f"a{(3 * number + row['round'] ** 2) % 4}"} for number, row in enumerate(rows(18))]
    for row in data if by else ():
        row[by] = f"c{int(row['question_id'][1:]) % 7}"
    path = folder / "samples.parquet"
    write_recording(path, data, {"exchangeable": True}, kinds={"score_gap": "signal"})
    how = {"metrics": ("f1",), "resampling": FEW, "orders": 3, "prices": PRICE}
    asked = ["lead(2)", "score_gap > 0.7", "lead(1) & score_gap > 0.4"]
    assert_same_replay(replay_in_blocks(path, asked, **how, block_rows=9), replay(read_recording(path), asked, **how))


def test_several_prompts_stream_as_in_memory(folder):
    data = [row | {"prompt": "short" if row["question_id"] < "q3" else "long"} for row in rows(30)]
    path = written(folder, data)
    how = {"metrics": ("f1",), "resampling": FEW}
    found = replay_in_blocks(path, "score_gap > 0.5", **how, block_rows=9)
    assert_same_replay(found, replay(read_recording(path), "score_gap > 0.5", **how))


def test_a_large_file_streams_by_itself(folder, monkeypatch):
    path, seen = written(folder, rows(20)), []
    monkeypatch.setattr(FileParts, "over", lambda *asked, **more: (seen.append(asked), over(*asked, **more))[1])
    whole = replay(path, "full", metrics=["f1"], resampling=FEW)
    assert not seen
    monkeypatch.setattr("suffice.evaluation.replay.parts.MEMORY_ROWS", 50)
    assert_same_replay(replay(path, "full", metrics=["f1"], resampling=FEW, block_rows=8), whole)
    assert seen


@pytest.mark.parametrize(
    ("rule", "options", "error", "word"),
    [
        ("full", {"block_rows": 0}, DataError, "one row"),
        ("nothing_here > 1", {}, UnknownSignalError, "nothing_here"),
        ("full", {"metrics": ("truth",)}, DataError, "'truth'"),
    ],
)
def test_bad_arguments_are_refused(folder, rule, options, error, word):
    with pytest.raises(error, match=word):
        replay_in_blocks(written(folder, rows(3)), rule, **options)


def test_bad_files_are_refused(folder):
    path = written(folder, rows(3))
    with pytest.raises(DataError, match="exist"):
        replay_in_blocks(folder / "none.parquet", "full")
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(SchemaError, match="parquet"):
        replay_in_blocks(folder / "broken.parquet", "full")
    pq.write_table(pa.table({"question_id": ["a"], "round": [1]}), folder / "foreign.parquet")
    with pytest.raises(SchemaError, match="not a recording"):
        replay_in_blocks(folder / "foreign.parquet", "full")
    empty = Recording(read_recording(path).table).table.slice(0, 0)
    write_recording(folder / "empty.parquet", empty)
    with pytest.raises(DataError, match="no rounds"):
        replay_in_blocks(folder / "empty.parquet", "full")


def test_an_unmeasured_stop_is_refused(folder):
    data = [{**row, "f1": row["f1"] if row["round"] == 4 else None} for row in rows(3)]
    with pytest.raises(CensoredError, match="not measured"):
        replay_in_blocks(written(folder, data), "fixed_k(2)", metrics=["f1"], baseline="fixed_k(4)")


def test_multiple_choice_streams_by_exact_match_unless_told_otherwise_and_says_so(folder):
    golds = [{**row, "golds": ["a"], "answer": "a", "em": 1.0, "f1": 0.0} for row in rows(9)]
    path = written(folder, golds, "choice.parquet")
    found = replay_in_blocks(path, "fixed_k(2)", block_rows=8)
    assert found.rows[0].metrics == {"em": 1.0}
    assert_same_replay(found, replay(read_recording(path), "fixed_k(2)"))
    for metrics in (None, ("f1",), ("em",)):
        assert any("single letters" in note for note in replay_in_blocks(path, "full", metrics=metrics).notes)
    assert replay_in_blocks(path, "full", metrics=()).rows[0].metrics == {}
    # Without gold answers, what the scores themselves tell.
    path = written(folder, [{k: v for k, v in row.items() if k != "golds"} for row in golds], "scores.parquet")
    assert any("em is the quality" in note for note in replay_in_blocks(path, "full").notes)


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
        assert replay_in_blocks(tmp_path / name, "full").metrics == ("f1", "em"), name


def test_a_longer_policy_streams_only_where_the_evidence_ran_out(folder):
    path = written(folder, rows(9))
    policy = replace(policy_for(read_recording(path), "score_gap > 0.7", name="p"), max_rounds=9)
    with pytest.raises(ConfigMismatchError, match="round 9"):
        replay_in_blocks(path, policy, block_rows=7)
    path = written(folder, [{**row, "end": "exhausted"} for row in rows(9)])
    how = {"metrics": ("f1",), "resampling": FEW}
    assert_same_replay(
        replay_in_blocks(path, policy, **how, block_rows=7), replay(read_recording(path), [policy], **how)
    )


def test_a_gate_that_no_rule_reads_is_charged_as_in_memory(folder):
    data = [{**row, "round": row["round"] - 1, "p_known": 0.3 if row["round"] == 1 else None} for row in rows(20)]
    path = written(folder, data, "gated.parquet")
    policy = policy_for(read_recording(path), "score_gap > 0.7", start_round=0, name="p")
    how = {"metrics": ("f1",), "baseline": "fixed_k(2)", "resampling": FEW}
    streamed = replay_in_blocks(path, policy, **how, block_rows=9)
    assert_same_replay(streamed, replay(read_recording(path), [policy], **how))
    assert "the gate's own cost was not recorded, and counts as nothing" in streamed.notes


def test_the_models_of_a_panel_have_prices_of_their_own(folder):
    tokens = {f"cost.generator.{kind}_tokens": 10.0 for kind in ("uncached", "cached", "output")}
    data = [{**row, **tokens, "model": f"m{row['round']}"} for row in rows(9)]
    path = folder / "panel.parquet"
    write_recording(path, data, {"independent": True}, kinds={"score_gap": "signal"})
    prices = {f"m{i}": Price(uncached=i, cached=i, output=i) for i in range(1, 5)}
    how = {"metrics": ("f1",), "prices": prices, "resampling": FEW}
    streamed = replay_in_blocks(path, "fixed_k(2)", **how, block_rows=9)
    assert_same_replay(streamed, replay(read_recording(path), ["fixed_k(2)"], **how))
    assert any("the best single model" in note for note in streamed.notes)
    assert streamed.rows[0].costs["money"] == pytest.approx(90e-6)


def test_a_stream_says_what_is_left_out_and_what_is_unknown(folder):
    data = [{**row, "passage_ids": ["p"], "cost.generator.seconds": 0.1} for row in rows(9)]
    data = [row for row in data if row["question_id"] != "q2" or row["round"] < 3]
    for row in data:
        row["end"] = {"q1": "failed", "q2": "rule"}.get(row["question_id"], row["end"])
    path = written(folder, data, "notes.parquet")
    how = {"metrics": ("f1",), "baseline": "fixed_k(2)", "resampling": FEW}
    found = replay_in_blocks(path, "fixed_k(1)", **how, block_rows=7)
    assert_same_replay(found, replay(read_recording(path), ["fixed_k(1)"], **how))
    retrieval = "retrieval: calls, seconds not recorded; the seconds are without them"
    censored = "censored: a rule ended 1 of 8 recorded questions early; what a policy would have answered in rounds that never ran is unknown"
    assert {retrieval, censored, "1 question failed while recording: left out of every row alike"} <= {*found.notes}
    assert any(
        note.startswith("one question")
        for note in replay_in_blocks(written(folder, rows(1)), "full", metrics=["f1"]).notes
    )


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
        for note in replay_in_blocks(path, "round >= 2", metrics=("em",), baseline="fixed_k(1)", block_rows=4)
        .rows[0]
        .notes
        if "ended" in note
    ]
    assert note.startswith("1 recorded question ended before round 1 and not by a rule: no answer here")
    assert f"round >= 2: {note}" in replay_notes(replay(read_recording(path), ["round >= 2"], metrics=("em",)))


def test_the_command_prices_components_by_the_models_that_the_recording_names(folder):
    tokens = {f"cost.generator.{kind}_tokens": 100.0 for kind in ("uncached", "cached", "output")}
    path, prices = folder / "priced.parquet", folder / "prices.json"
    write_recording(path, [row | tokens for row in rows(5)], {"config": {"model": {"model": "m"}}})
    prices.write_text(json.dumps({"m": {"uncached": 1.0, "cached": 0.5, "output": 2.0}}))
    result = cli("replay", path, "--rule", "round >= 2", "--metric", "f1", "--prices", prices, "--json").json
    assert result["rows"][0]["costs"]["money"] == pytest.approx(2 * 100 * 3.5e-6)
    prices.write_text(json.dumps({"other": {"uncached": 1.0, "cached": 0.5, "output": 2.0}}))
    assert "prices neither" in cli("replay", path, "--rule", "round >= 2", "--prices", prices).error


def test_the_command_streams_a_rule_or_a_policy(folder, capsys, monkeypatch):
    path = written(folder, rows(20))
    policy = policy_for(read_recording(path), "score_gap > 0.5", name="mine")
    policy.save(folder / "p.json")
    told = []
    for chosen in (("--rule", "score_gap > 0.5"), ("--policy", str(folder / "p.json"))):
        with pytest.raises(SystemExit) as left:
            run(["replay", str(path), "--metric", "f1", *chosen, "--json"])
        assert left.value.code == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["rows"][0]["deltas"] == told[1]["rows"][0]["deltas"]
    assert told[1]["rows"][0]["label"] == "mine"
    several = (
        "replay",
        path,
        "--rule",
        "full",
        "--rule",
        "round >= 2",
        "--metric",
        "f1",
        "--selector",
        "majority",
        "--set=interval=bca",
    )
    shown = [cli(*several, "--json").json]
    monkeypatch.setattr("suffice.evaluation.replay.parts.MEMORY_ROWS", 8)
    shown.append(cli(*several, "--json").json)
    assert shown[0]["rows"] == shown[1]["rows"]
    assert "give one of them" in cli("replay", path, "--rule", "full", "--prices", "list", "--model", "gpt-4o").error
