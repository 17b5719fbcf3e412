"""Readers of runs that others recorded."""

from __future__ import annotations

import gzip
import json
import math
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError, SchemaError
from suffice.evaluation.replay import replay
from suffice.importers import ImportedRun, ImportedTrajectory, read_tabular
from suffice.policy.rounds import Round
from suffice.recordings import read_recording, write_recording
from suffice_papers.semantic import read_debate, read_ircot, read_reflexion
from suffice_papers.semantic.debate import numeric_answer
from suffice_papers.tasr import read_tasr

IMPORTS = Path(__file__).resolve().parents[2] / "data" / "imports"
IRCOT = IMPORTS / "ircot_qa_codex_hotpotqa_prompt_set_2.zip"
REFLEXION = IMPORTS / "reflexion_trials.jsonl"
NAN = math.nan


def by_id(run):
    return {trajectory.question_id: trajectory for trajectory in run.trajectories}


def json_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def isnan(*values):
    return all(math.isnan(value) for value in values)


# TASR


def tasr_row(qid, r, **changes):
    row = {
        "qid": qid,
        "question_type": "bridge",
        "round": r,
        "top_bm25_score": 9.5 - r,
        "rank2_bm25_score": 8.0,
        "gap_1_2": 0.5,
        "jaccard_overlap": 0.1 * r,
        "llm_confidence": 5,
        "calibrated_conf": 0.4,
        "current_answer": f"answer {min(r, 2)}",
        "current_em": int(r >= 2),
        "current_f1": 0.5,
        "first_token_margin": 1.0,
        "answer_token_margin": 2.5,
        "calibrated_logit_margin": 0.7,
        "answer_token_str": " answer",
        "n_tokens": 12,
        "top_score_z_global": 0.3,
        "top_score_z_intra": 1.1,
        "judge_entailment": 4,
    }
    row.update(changes)
    return row


def tasr_file(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_tasr_columns_get_our_names(tmp_path):
    rows = [tasr_row("q1", r) for r in (3, 1, 2)] + [tasr_row("q2", r) for r in (1, 2, 3)]
    run = read_tasr(tasr_file(tmp_path / "rounds.parquet", rows))
    first = run.trajectories[0]
    assert [trajectory.question_id for trajectory in run.trajectories] == ["q1", "q2"]
    assert [item.index for item in first.rounds] == [1, 2, 3]
    assert [item.answer for item in first.rounds] == ["answer 1", "answer 2", "answer 2"]
    assert first.rounds[1].signals == {
        "top_score": 7.5,
        "score_gap": 0.5,
        "overlap": 0.2,
        "verbal_confidence": 5.0,
        "calibrated_confidence": 0.4,
        "answer_margin": 2.5,
        "p_correct": 0.7,
        "top_score_z": 0.3,
        "top_score_z_pool": 1.1,
        "judge_entailment": 4.0,
    }
    assert [given["em"] for given in first.metrics] == [0.0, 1.0, 1.0]
    assert [given["f1"] for given in first.metrics] == [0.5] * 3
    assert isnan(first.metrics[0]["contains"])
    assert first.end == "max_rounds"
    assert first.labels == {"question_type": "bridge"}
    assert first.rounds[0].costs["generator"].calls == 1
    assert isnan(first.rounds[0].costs["generator"].tokens)


def test_tasr_columns_without_a_name_of_ours_are_kept(tmp_path):
    run = read_tasr(tasr_file(tmp_path / "rounds.parquet", [tasr_row("q", 1, novelty=7)]))
    assert run.trajectories[0].extras[0] == {
        "rank2_bm25_score": 8.0,
        "first_token_margin": 1.0,
        "answer_token_str": " answer",
        "n_tokens": 12,
        "novelty": 7,
    }


def test_older_tasr_column_names_are_read_too(tmp_path):
    row = tasr_row("q", 1)
    for old, new in (("gap_1_2", "gap"), ("jaccard_overlap", "overlap_signal")):
        row[new] = row.pop(old)
    del row["answer_token_margin"]
    run = read_tasr(tasr_file(tmp_path / "rounds.parquet", [row]))
    signals = run.trajectories[0].rounds[0].signals
    assert (signals["score_gap"], signals["overlap"], signals["answer_margin"]) == (0.5, 0.1, 1.0)
    assert any("first_token_margin" in note for note in run.notes)


def test_tasr_files_with_two_overlaps_keep_both_and_say_which_is_which(tmp_path):
    rows = [tasr_row("q", r, overlap_signal_idf=0.3 * (r - 1), top_score_z_robust=2.5) for r in (1, 2)]
    run = read_tasr(tasr_file(tmp_path / "both.parquet", rows))
    first, second = (item.signals for item in run.trajectories[0].rounds)
    assert (second["overlap"], second["overlap_idf"], second["top_score_z_robust"]) == (0.2, 0.3, 2.5)
    assert isnan(first["overlap_idf"]), "there is nothing before the first passage"
    assert [note for note in run.notes if "overlap" in note] == [
        "overlap is jaccard_overlap, the plain token Jaccard of the published rules; overlap_idf is overlap_signal_idf"
    ]
    for row in rows:
        del row["jaccard_overlap"]
    run = read_tasr(tasr_file(tmp_path / "idf.parquet", rows))
    assert run.trajectories[0].rounds[1].signals["overlap"] == 0.3
    assert not any("overlap" in note for note in run.notes)


def test_the_calibrated_value_that_tasr_invents_for_a_missing_margin_is_undefined(tmp_path):
    missing = {"answer_token_margin": None, "calibrated_logit_margin": 0.5}
    rows = [tasr_row("q", 1, **missing), tasr_row("q", 2)]
    run = read_tasr(tasr_file(tmp_path / "rounds.parquet", rows))
    first, second = run.trajectories[0].rounds
    assert isnan(first.signals["answer_margin"], first.signals["p_correct"])
    assert second.signals["p_correct"] == 0.7
    assert any("1 rounds without a margin" in note for note in run.notes)


def test_tasr_nulls_and_nan_are_undefined_and_a_missing_answer_is_none(tmp_path):
    rows = [tasr_row("q", 1, llm_confidence=None, current_em=None, current_answer=None, jaccard_overlap=NAN)]
    trajectory = read_tasr(tasr_file(tmp_path / "rounds.parquet", rows)).trajectories[0]
    assert trajectory.rounds[0].answer is None
    assert isnan(trajectory.rounds[0].signals["verbal_confidence"], trajectory.rounds[0].signals["overlap"])
    assert isnan(trajectory.metrics[0]["em"])
    assert trajectory.metrics_known == (True,), "f1 is still known"


def test_a_tasr_file_can_count_from_zero(tmp_path):
    path = tasr_file(tmp_path / "rounds.parquet", [tasr_row("q", r) for r in (0, 1)])
    assert [item.index for item in read_tasr(path).trajectories[0].rounds] == [0, 1]
    assert [item.index for item in read_tasr(path, first_round=1).trajectories[0].rounds] == [1, 2]


def test_a_shorter_tasr_trajectory_ran_out_of_passages(tmp_path):
    rows = [tasr_row("long", r) for r in (1, 2, 3)] + [tasr_row("short", 1)]
    run = read_tasr(tasr_file(tmp_path / "rounds.parquet", rows))
    assert [trajectory.end for trajectory in run.trajectories] == ["max_rounds", "exhausted"]
    assert any("1 questions have fewer rounds" in note for note in run.notes)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([tasr_row("q", 1), tasr_row("q", 1)], "'q'"),
        ([tasr_row("q", 1), tasr_row("q", 3)], "gaps"),
        ([tasr_row("q", 2)], r"numbered \[2\]"),
        ([tasr_row("q", 1, current_em=7)], "7.0"),
        ([tasr_row(None, 1)], "empty"),
        ([tasr_row("q", 1, round=None)], "round"),
        ([tasr_row("q", 1.5)], "1.5"),
        ([tasr_row("q", 1, llm_confidence="high")], "'high'"),
    ],
)
def test_bad_tasr_rows_are_named(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_tasr(tasr_file(tmp_path / "rounds.parquet", rows))


def test_what_is_not_a_tasr_file_is_refused(tmp_path):
    whole = tasr_file(tmp_path / "rounds.parquet", [tasr_row("q", 1)])
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-100])
    (tmp_path / "text.parquet").write_text("hello")
    for name in ("cut.parquet", "text.parquet"):
        with pytest.raises(SchemaError, match="parquet"):
            read_tasr(tmp_path / name)
    with pytest.raises(SchemaError, match="'qid'"):
        read_tasr(tasr_file(tmp_path / "other.parquet", [{"a": 1}]))
    with pytest.raises(DataError, match="exist"):
        read_tasr(tmp_path / "nowhere.parquet")


# Tables


MAP = {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "p_correct": "conf", "novelty": "new"}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        "qid,step,ans,gold,conf,new,seed\n"
        "a,1,The Tempest,tempest,0.5,1,7\n"
        'a,2,Jubilee,"[""tempest"", ""the tempest""]",,nan,7\n'
        "b,1,,x,0.25,0,7\n"
        'b,2,"x, y",x,true,2,7\n'
    )
    return path


def test_a_csv_is_read_by_its_column_map(table):
    run = read_tabular(table, MAP)
    first, second = run.trajectories
    assert [item.answer for item in first.rounds] == ["The Tempest", "Jubilee"]
    assert [item.signals["p_correct"] for item in second.rounds] == [0.25, 1.0]
    assert first.rounds[0].signals["novelty"] == 1.0
    assert isnan(first.rounds[1].signals["p_correct"], first.rounds[1].signals["novelty"])
    assert [given["em"] for given in first.metrics] == [1.0, 0.0]
    assert second.rounds[0].answer is None
    assert second.metrics[1]["f1"] == pytest.approx(2 / 3)
    assert first.extras[0] == {"seed": "7"}
    assert [trajectory.end for trajectory in run.trajectories] == ["max_rounds", "max_rounds"]
    assert run.kinds() == {"novelty": "signal"}


def test_json_lines_with_our_own_names_need_no_map(tmp_path):
    record = {"question_id": 7, "answer": 3.5, "golds": ["3.5"], "cluster": "c", "end": "rule", "p_correct": None}
    record |= {"cost.generator.calls": 1, "cost.generator.output_tokens": 9, "cost.judge:a.calls": 2, "extra": [1]}
    path = json_lines(tmp_path / "runs.jsonl", record | {"round": 0}, record | {"round": 1})
    (trajectory,) = read_tabular(path, first_round=0).trajectories
    assert (trajectory.question_id, trajectory.cluster, trajectory.end) == ("7", "c", "rule")
    assert [item.index for item in trajectory.rounds] == [0, 1]
    assert trajectory.rounds[0].answer == "3.5"
    assert trajectory.rounds[0].costs["generator"].output_tokens == 9
    assert trajectory.rounds[0].costs["judge:a"].calls == 2
    assert isnan(trajectory.rounds[0].costs["generator"].seconds)
    assert trajectory.extras[1] == {"extra": [1]}
    assert trajectory.metrics[0]["em"] == 1.0


def test_given_metrics_win_over_computed_ones_and_without_answers_nothing_is_computed(tmp_path):
    path = json_lines(tmp_path / "runs.jsonl", {"question_id": "q", "round": 1, "golds": "x", "f1": 0.25})
    (trajectory,) = read_tabular(path).trajectories
    assert trajectory.metrics[0]["f1"] == 0.25
    assert isnan(trajectory.metrics[0]["em"])


def test_questions_of_different_lengths_ended_by_rule_unless_stated_otherwise(tmp_path):
    rows = [{"question_id": q, "round": r, "answer": "x"} for q, r in (("a", 1), ("a", 2), ("b", 1))]
    path = json_lines(tmp_path / "runs.jsonl", *rows)
    run = read_tabular(path)
    assert [trajectory.end for trajectory in run.trajectories] == ["max_rounds", "rule"]
    (note,) = [note for note in run.notes if "fewer than 2 rounds" in note]
    for part in ("1 of 2", "own stops", "unknown", "--ended exhausted"):
        assert part in note
    for said in ("rule", "exhausted", "max_rounds"):
        run = read_tabular(path, ended=said)
        assert [trajectory.end for trajectory in run.trajectories] == ["max_rounds", said]
        assert not any("fewer than" in note for note in run.notes)


def test_a_megabyte_in_one_field_and_a_byte_order_mark_are_fine(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(b"\xef\xbb\xbfquestion_id,round,text\nq,1," + b"x" * 1_000_000 + b"\n")
    assert len(read_tabular(path).trajectories[0].rounds[0].text) == 1_000_000


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", DataError, "is empty"),
        ("question_id,round\n", DataError, "no rows"),
        ("question_id,answer\nq,x\n", SchemaError, "'question_id'"),
        ("question_id,round\nq,1,2\n", DataError, "2 fields"),
        ("question_id,round\nq\n", DataError, "2 fields"),
        ('question_id,round\n"q,1\n', DataError, "not CSV"),
        ("question_id,round\n,1\n", DataError, "question_id is empty"),
        ("question_id,round\nq,first\n", DataError, "round is 'first'"),
        ("question_id,round\nq,-1\n", DataError, "round is '-1'"),
        ("question_id,round,em\nq,1,2\n", DataError, "em is 2.0"),
        ("question_id,round,end\nq,1,rule\nr,1,bored\n", DataError, "end is 'bored'"),
        ("question_id,round,p_correct\nq,1,0.5\nr,1,high\n", DataError, "p_correct is 'high'"),
        ("question_id,round\nq,1\nq,1\n", DataError, "round 1 already"),
    ],
)
def test_a_bad_table_is_named_with_its_line(tmp_path, text, error, message):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(error, match=message) as raised:
        read_tabular(path)
    assert "runs.csv" in str(raised.value)


def test_bytes_that_are_not_utf8_broken_lines_and_foreign_files_are_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"question_id,round\nq,1\ncaf\xe9,1\n")
    with pytest.raises(DataError, match="line 3: .*UTF-8"):
        read_tabular(tmp_path / "a.csv")
    for content, message in (
        (b"{", "JSON .*line 1"),
        (b"3", "no rows"),
        (b"[3]", "record 1"),
        (b'{"\xe9": 1}', "line 1: byte"),
    ):
        (tmp_path / "b.jsonl").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_tabular(tmp_path / "b.jsonl")
    with zipfile.ZipFile(tmp_path / "c.xlsx", "w") as archive:
        archive.writestr("sheet.xml", "<x/>")
    with pytest.raises(SchemaError, match="zip"):
        read_tabular(tmp_path / "c.xlsx")
    with pytest.raises(DataError, match="file or folder"):
        read_tabular(tmp_path / "d.csv")


def test_a_map_that_the_table_cannot_serve_is_refused(table):
    cases = [
        ({**MAP, "f1": "score"}, SchemaError, "'score'"),
        ({**MAP, "cost.generator.hours": "seed"}, DataError, "not the name"),
        ({**MAP, "question_id": ""}, SchemaError, "'question_id'"),
    ]
    for columns, error, message in cases:
        with pytest.raises(error, match=message):
            read_tabular(table, columns)
    with pytest.raises(DataError, match="first_round is 2"):
        read_tabular(table, MAP, first_round=2)
    with pytest.raises(DataError, match="'tired'"):
        read_tabular(table, MAP, ended="tired")


# IRCoT


def test_an_ircot_run_has_an_answer_at_the_last_round_only():
    run = read_ircot(IRCOT)
    assert len(run.trajectories) == 8
    for trajectory in run.trajectories:
        *earlier, last = trajectory.rounds
        assert earlier, "these runs have at least two rounds"
        assert all(item.answer is None for item in earlier)
        assert last.answer
        assert trajectory.metrics_known == (False,) * len(earlier) + (True,)
        assert trajectory.end == "rule"
        assert trajectory.golds
    assert any("last round only" in note for note in run.notes)


def test_an_ircot_chain_is_read_round_by_round():
    trajectory = by_id(read_ircot(IRCOT))["5ae28c0a554299495565daaa"]
    assert trajectory.question.startswith("What is the length of the river")
    assert [len(item.passages) for item in trajectory.rounds] == [6, 9, 15]
    titles = [[passage.title for passage in item.passages] for item in trajectory.rounds]
    assert titles[1][:6] == titles[0]
    assert titles[2][:9] == titles[1]
    assert trajectory.rounds[1].text.endswith("approximately 1,450 miles.")
    assert trajectory.rounds[-1].answer == "Approximately 1,450 miles (2,330 km)"
    assert trajectory.metrics[-1]["f1"] == pytest.approx(2 * (1 / 5) * (1 / 2) / (1 / 5 + 1 / 2))
    assert isnan(trajectory.rounds[-1].signals["answer_in_evidence"]), "titles are not the evidence"
    assert [item.costs["reader"].calls for item in trajectory.rounds] == [0, 0, 1]
    assert trajectory.labels == {
        "system": "ircot_qa",
        "model": "codex",
        "dataset": "hotpotqa",
        "prompts": "prompt_set_2",
        "ended_by": "nothing new",
    }


def test_escapes_in_ircot_answers_are_decoded_and_counted():
    run = read_ircot(IRCOT)
    assert by_id(run)["5abd38285542993062266c19"].rounds[-1].answer == "Max Oph\u00fcls"
    assert by_id(run)["5abd38285542993062266c19"].metrics[-1]["em"] == 1.0
    assert any(note.startswith("1 answers contained escapes") for note in run.notes)


def ircot_copy(path, drop=(), **changes):
    with zipfile.ZipFile(IRCOT) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            if name not in drop:
                edit = changes.get(name.split(".")[0], lambda text: text)
                target.writestr(name, edit(source.read(name).decode()))
    return path


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"drop": ["prediction.json"]}, SchemaError, "IRCoT"),
        ({"prediction": lambda _: "{"}, DataError, "not JSON"),
        ({"prediction": lambda _: "[]"}, SchemaError, "id -> answer"),
        ({"ground_truth": lambda _: "{}"}, DataError, r"ground_truth\.json"),
        ({"prediction_chains": lambda _: "\n\n"}, DataError, "no question"),
        ({"prediction_chains": lambda text: text[:60]}, DataError, "line 2"),
        ({"prediction_chains": lambda text: text.replace("A: [", "A: {", 1)}, DataError, "line 4"),
        ({"prediction_chains": lambda text: text.split("A: Exit? No.")[0] + "A: Exit? No.\n"}, DataError, "breaks off"),
    ],
)
def test_a_broken_ircot_zip_is_named(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        read_ircot(ircot_copy(tmp_path / "run.zip", **changes))


def test_a_file_that_is_not_a_zip_is_refused(tmp_path):
    (tmp_path / "cut.zip").write_bytes(IRCOT.read_bytes()[:-50])
    with pytest.raises(SchemaError, match="zip"):
        read_ircot(tmp_path / "cut.zip")
    with pytest.raises(DataError, match="exist"):
        read_ircot(tmp_path / "nowhere.zip")
    run = read_ircot(ircot_copy(tmp_path / "mine.zip"))
    assert run.trajectories[0].labels["run"] == "mine"


# Reflexion


def test_reflexion_is_cut_at_the_first_logged_success():
    run = read_reflexion(REFLEXION)
    for trajectory in run.trajectories:
        logged = [extra["logged_correct"] for extra in trajectory.extras]
        assert 1.0 not in logged[:-1]
        assert trajectory.end == ("rule" if logged[-1] == 1.0 else "max_rounds")
    lengths = sorted(len(trajectory.rounds) for trajectory in run.trajectories if trajectory.end == "rule")
    assert lengths == [1, 2, 2, 2, 3]
    assert any("by the gold label: censored" in note for note in run.notes)
    assert any("em differs from logged_correct" in note for note in run.notes)


def test_reflexion_is_clustered_by_question_without_the_appended_instruction():
    run = read_reflexion(REFLEXION, incomplete="keep")
    viva = [trajectory for trajectory in run.trajectories if trajectory.question.startswith("VIVA")]
    assert len({trajectory.cluster for trajectory in viva}) == 1
    assert len(viva) == 3, "three logs"
    assert len({trajectory.labels["log"] for trajectory in viva}) == 3
    assert all("attempted" not in trajectory.question for trajectory in run.trajectories)


def test_lines_of_one_question_and_log_are_put_together():
    run = read_reflexion(REFLEXION, incomplete="keep")
    (merged,) = (
        item for item in run.trajectories if item.question.startswith("VIVA") and item.labels["agent"] == "ReAct"
    )
    assert [item.index for item in merged.rounds] == [1, 2, 3, 4, 5, 6, 7]
    assert merged.rounds[0].answer is None
    assert merged.metrics_known == (False, *(True,) * 6)
    assert merged.extras[0] == {"logged_correct": None}


def test_incomplete_reflexion_trajectories_are_left_out_by_default_and_counted():
    dropped, kept = read_reflexion(REFLEXION), read_reflexion(REFLEXION, incomplete="keep")
    assert len(dropped.trajectories) == 7
    assert len(kept.trajectories) == 10
    assert all(all(trajectory.metrics_known) for trajectory in dropped.trajectories)
    assert any(note.startswith("3 of 10 trajectories lack trials") for note in dropped.notes)


def trial(number, answer="x", correct=False):
    return {"trial": number, "answer": answer, "logged_correct": correct}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "an object"),
        ({"log": "l", "question": "q"}, "an object"),
        ({"trials": []}, "trials is"),
        ({"trials": [3]}, "trial 3"),
        ({"trials": [trial(2), trial(1)]}, "rising number"),
        ({"trials": [trial(0)]}, "rising number"),
        ({"trials": [{**trial(1), "logged_correct": "yes"}]}, "logged_correct"),
        ({"trials": [trial(1)], "question": " "}, "question"),
    ],
)
def test_a_bad_reflexion_line_is_named(tmp_path, record, message):
    fine = {"log": "a/b.txt", "question": "q0", "gold": "x", "trials": [trial(1)]}
    bad = {**fine, "question": "q1", **record} if isinstance(record, dict) and "trials" in record else record
    path = json_lines(tmp_path / "trials.jsonl", fine, bad)
    with pytest.raises(DataError, match=message) as raised:
        read_reflexion(path)
    assert "trials.jsonl, line 2" in str(raised.value)


def test_the_same_trial_twice_broken_lines_and_nothing_to_keep_are_errors(tmp_path):
    fine = {"log": "a/b.txt", "question": "q0", "gold": "x", "trials": [trial(1)]}
    with pytest.raises(DataError, match="line 2: trial"):
        read_reflexion(json_lines(tmp_path / "a.jsonl", fine, fine))
    (tmp_path / "b.jsonl").write_text("{")
    with pytest.raises(DataError, match="line 1"):
        read_reflexion(tmp_path / "b.jsonl")
    with pytest.raises(DataError, match="trajectory"):
        read_reflexion(json_lines(tmp_path / "c.jsonl", {**fine, "trials": [trial(2)]}))
    with pytest.raises(DataError, match="'drop'"):
        read_reflexion(REFLEXION, incomplete="mend")
    with pytest.raises(DataError, match="exist"):
        read_reflexion(tmp_path / "nowhere.jsonl")


# Debates


def debate_file(path, *replies, gold="5 - 1 = 4\n#### 4", question="What is 5 - 1?"):
    """One question; `replies` holds one list of replies for each agent."""
    agents = [
        [item for reply in own for item in ({"role": "user", "content": "?"}, {"role": "assistant", "content": reply})]
        for own in replies
    ]
    path.write_bytes(gzip.compress(json.dumps({question: [agents, gold]}).encode()))
    return path


NAME = "gsm_Tiny-1B_persona_zen-drone_agents3_rounds3.json.gz"


def test_a_debate_gives_each_agent_a_trajectory_with_every_answer(tmp_path):
    path = debate_file(
        tmp_path / NAME,
        [r"I say \boxed{3}", r"Now \boxed{4}", "So 4 apples."],
        [r"\boxed{4.0}", r"\boxed{4 apples}", r"\boxed{\$4}"],
        ["No idea.", r"\boxed{none}", "#### 4"],
    )
    run = read_debate(path)
    assert [len(trajectory.rounds) for trajectory in run.trajectories] == [3, 3, 3]
    assert [[item.answer for item in trajectory.rounds] for trajectory in run.trajectories] == [
        ["3", "4", "4"],
        ["4", "4", "4"],
        [None, "none", "4"],
    ]
    assert [[given["em"] for given in trajectory.metrics] for trajectory in run.trajectories] == [
        [0.0, 1.0, 1.0],
        [1.0, 1.0, 1.0],
        [0.0, 0.0, 1.0],
    ]
    assert len({trajectory.cluster for trajectory in run.trajectories}) == 1
    assert len(by_id(run)) == 3
    assert {trajectory.end for trajectory in run.trajectories} == {"max_rounds"}
    assert run.trajectories[1].labels == {"dataset": "gsm", "model": "Tiny-1B", "personas": "zen-drone", "agent": "2"}
    assert "3 of 9 replies have no \\boxed answer: their last number was taken" in run.notes
    assert "1 replies have no answer at all" in run.notes


def test_a_debate_replays_with_answers_at_every_round_and_resamples_the_question(tmp_path):
    run = read_debate(
        debate_file(
            tmp_path / NAME, [r"\boxed{3}", r"\boxed{4}", r"\boxed{4}"], [r"\boxed{4}", r"\boxed{4}", r"\boxed{5}"]
        )
    )
    write_recording(tmp_path / "r.parquet", run.rows(), {}, run.kinds())
    result = replay(read_recording(tmp_path / "r.parquet"), ["answer_stable"], metrics=("em",), baseline="full")
    assert (result.n, result.n_clusters) == (2, 1)
    stable = result.row("answer_stable")
    assert stable.metrics == {"em": 1.0}  # the first agent stops at round 3, the second at round 2, both with 4
    assert stable.stop_rounds == {2: 0.5, 3: 0.5}
    assert [result.row(f"fixed_k({k})").metrics["em"] for k in (1, 2, 3)] == [0.5, 1.0, 0.5]
    assert not stable.censored


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"\boxed{52}", "52"),
        (r"\boxed{52 WPM}", "52"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{30 * 3 = \boxed{90}}", "90"),
        (r"\boxed{30 * 3 = 90 boxes of 4}", "90"),
        (r"\boxed{1,234,567.50}", "1234567.5"),
        (r"\boxed{\$45,000}", "45000"),
        (r"\boxed{\text{14 bags}}", "14"),
        (r"\boxed{\frac{3}{4}}", "0.75"),
        (r"\boxed{-7}", "-7"),
        (r"\boxed{.5}", "0.5"),
        (r"\boxed{12", "12"),
        (r"\boxed 12 is it", "12"),
        (r"\boxed{}", None),
        (r"\boxed{Cannot be determined}", "Cannot be determined"),
        ("The total is 1,200 now.", "1200"),
        ("From 3 to 10.", "10"),
        ("work\n#### 18", "18"),
        ("nothing here", None),
        ("", None),
        ("\\boxed{" + "9" * 400 + "}", None),
    ],
)
def test_the_answer_of_a_reply_is_its_boxed_number_or_its_last(reply, answer):
    assert numeric_answer(reply) == answer


def test_decimals_do_not_equal_whole_numbers_that_are_spelled_alike(tmp_path):
    path = debate_file(tmp_path / NAME, [r"\boxed{15}"], gold="#### 1.5")
    assert read_debate(path).trajectories[0].metrics[0]["em"] == 0.0


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("[]", SchemaError, "not list"),
        ("{", SchemaError, "not JSON"),
        ("{}", DataError, "no question"),
        ('{"q": [[]]}', DataError, "question 1"),
        ('{"q": [[[]], "4"]}', DataError, "'#### <number>'"),
        ('{"q": [[[]], "#### four"]}', DataError, "'#### <number>'"),
        ('{"q": [[[]], "#### 4"]}', DataError, "one reply"),
        ('{"q": [[{}], "#### 4"]}', DataError, "agent 1"),
        ('{"q": [[[{"role": "assistant"}]], "#### 4"]}', DataError, "a text"),
    ],
)
def test_a_broken_debate_file_is_named(tmp_path, content, error, message):
    path = tmp_path / "debate.json"
    path.write_text(content)
    with pytest.raises(error, match=message):
        read_debate(path)


def test_truncated_and_uneven_debates_are_errors(tmp_path):
    whole = debate_file(tmp_path / NAME, ["4", "4"], ["4"])
    with pytest.raises(DataError, match="agent 2"):
        read_debate(whole)
    (tmp_path / "cut.json.gz").write_bytes(whole.read_bytes()[:-20])
    (tmp_path / "text.json.gz").write_text("hello")
    for name in ("cut.json.gz", "text.json.gz"):
        with pytest.raises(DataError, match="gzip"):
            read_debate(tmp_path / name)
    with pytest.raises(DataError, match="exist"):
        read_debate(tmp_path / "nowhere.json.gz")


# What all have in common


@pytest.fixture(params=["tasr", "tabular", "ircot", "reflexion", "debate"])
def run(request, tmp_path, table):
    if request.param == "tasr":
        return read_tasr(tasr_file(tmp_path / "r.parquet", [tasr_row(q, r) for q in "ab" for r in (1, 2)]))
    if request.param == "tabular":
        return read_tabular(table, MAP)
    if request.param == "ircot":
        return read_ircot(IRCOT)
    if request.param == "reflexion":
        return read_reflexion(REFLEXION, incomplete="keep")
    return read_debate(debate_file(tmp_path / NAME, [r"\boxed{3}", "4"], ["4", "4"]))


def test_every_run_becomes_a_recording_that_reads_back_equal(run, tmp_path):
    write_recording(tmp_path / "recording.parquet", run.rows(), {"source": run.source}, run.kinds())
    recording = read_recording(tmp_path / "recording.parquet")
    assert recording.question_ids == [trajectory.question_id for trajectory in run.trajectories]
    assert recording.ends.tolist() == [trajectory.end for trajectory in run.trajectories]
    assert recording.clusters.tolist() == [trajectory.cluster for trajectory in run.trajectories]
    em = recording.column("em")
    for i, trajectory in enumerate(run.trajectories):
        for j, item in enumerate(trajectory.rounds):
            assert recording.answers[i, j] == item.answer
            assert em[i, j] == pytest.approx(trajectory.metrics[j]["em"], nan_ok=True)
    calls = recording.column("cost.generator.calls") if run.source != "tabular" else recording.seen
    assert (calls[recording.seen] == 1).all()


def test_signals_of_answers_are_computed_and_given_ones_win(tmp_path):
    rows = [tasr_row("q", r) for r in (1, 2, 3)]
    run = read_tasr(tasr_file(tmp_path / "r.parquet", rows))
    first, second, third = run.rows()
    assert first["answer_stable"] is None
    assert (second["answer_stable"], third["answer_stable"]) == (0.0, 1.0)
    assert third["answer_margin"] == 2.5
    assert third["p_correct"] == 0.7


def test_a_foreign_column_cannot_pass_for_one_of_ours(tmp_path):
    path = json_lines(tmp_path / "r.jsonl", {"qid": "q", "round": 1, "answer": "x", "em": 1, "recorded_at": "now"})
    (row,) = read_tabular(path, {"question_id": "qid", "answer": "", "em": ""}).rows()
    assert row["answer"] is None
    assert row.get("em") is None
    assert (row["imported_answer"], row["imported_em"], row["imported_recorded_at"]) == ("x", 1, "now")


def test_a_column_named_like_a_mapped_signal_is_kept(tmp_path):
    path = json_lines(tmp_path / "r.jsonl", {"question_id": "q", "round": 1, "new": 0.5, "novelty": "high"})
    columns = {"question_id": "question_id", "round": "round", "novelty": "new"}
    (row,) = read_tabular(path, columns).rows()
    assert (row["novelty"], row["imported_novelty"]) == (0.5, "high")


def test_a_trajectory_without_rounds_with_a_gap_or_uneven_columns_is_refused():
    def trajectory(*indices, metrics=None, extras=()):
        rounds = tuple(Round(index=index) for index in indices)
        given = ({},) * len(rounds) if metrics is None else metrics
        return ImportedTrajectory(
            question_id="q", cluster="q", rounds=rounds, end="max_rounds", metrics=given, extras=extras
        )

    for indices in ((), (2,), (1, 3), (1, 1)):
        with pytest.raises(DataError, match="the rounds"):
            trajectory(*indices)
    for changes in ({"metrics": ({}, {})}, {"extras": ({}, {})}):
        with pytest.raises(DataError, match="each round"):
            trajectory(1, **changes)
    one = trajectory(1)
    with pytest.raises(DataError, match="occurs twice"):
        ImportedRun(source="tests", trajectories=[one, one])
