"""Samples from a file to a certificate: `suffice import --samples`, what follows from it, and the bundled sets."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

from suffice import Policy, import_recording, read_recording, replay
from suffice.errors import NotFoundError
from suffice.recordings.bundled import BUNDLED_SAMPLES, bundled_recording
from tests.support.cli_tools import cli


def file_of(path, answers, golds, **columns):
    lines = [
        json.dumps(
            {"id": f"q{q}", "gold": gold, "answers": row} | {name: values[q] for name, values in columns.items()}
        )
        for q, (row, gold) in enumerate(zip(answers, golds, strict=True))
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_samples_are_compared_and_scored_by_the_normalizer_of_their_golds(tmp_path):
    source = file_of(tmp_path / "s.jsonl", [["-5", "5", "-5.0"], ["1,200", "no idea"]], ["-5", "1200"])
    summary = import_recording(source, out=tmp_path / "s.parquet", samples=True)
    recording = read_recording(summary.path)
    assert recording.exchangeable
    assert recording.metadata["normalizer"] == "number"
    np.testing.assert_array_equal(recording.column("match"), [[1, 0, 1], [1, 0, np.nan]])
    assert recording.column("em")[0, 1] == 1  # what question answering makes of a minus
    assert recording.ends.tolist() == ["max_rounds", "exhausted"]  # no loop stopped the second
    assert any("'number', which reads all gold answers" in note for note in summary.notes)
    result = replay(recording, "settled(3)", baseline="full")
    assert result.metrics == ("match",)
    assert result.rows[0].selector == "majority_of_samples"
    assert result.rows[0].metrics["match"] == 1.0


def test_a_normalizer_that_is_named_wins_and_an_unknown_one_is_refused(tmp_path):
    source = file_of(tmp_path / "s.jsonl", [["5", "5.0"]] * 2, ["5", "6"])
    out = tmp_path / "s.parquet"
    summary = import_recording(source, out=out, samples=True, normalizer="exact")
    assert read_recording(out).column("match")[0].tolist() == [1, 0]
    assert any("'exact', as chosen for this log" in note for note in summary.notes)
    with pytest.raises(NotFoundError, match="'nubmer'"):
        import_recording(source, out=out, normalizer="nubmer")
    import_recording(source, out=tmp_path / "rounds.parquet", normalizer="number")
    follow = read_recording(tmp_path / "rounds.parquet")
    assert not follow.exchangeable
    assert follow.metadata["normalizer"] == "number"
    assert follow.column("match")[0].tolist() == [1, 1]


def test_without_golds_nothing_is_scored_and_the_note_says_so(tmp_path):
    source = tmp_path / "s.jsonl"
    source.write_text("".join(json.dumps({"id": f"q{q}", "answers": ["a", "b"]}) + "\n" for q in range(3)), "utf-8")
    summary = import_recording(source, out=tmp_path / "s.parquet", samples=True)
    assert any("since there are no golds" in note for note in summary.notes)
    assert read_recording(summary.path).metadata["normalizer"] == "qa"


def test_the_next_command_is_one_that_takes_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers = [["1", "1", "1", "2"]] * 25
    source = file_of(tmp_path / "s.jsonl", answers, ["1"] * 25)
    told = cli("import", source, "--samples", "-o", "s.parquet", "-y")
    assert "next: suffice decide s.parquet" in told.out
    replayed = cli("replay", "s.parquet", "--baseline", "full", "--set=orders=3", code=0)
    assert "lead(3)" in replayed.out
    assert "next: suffice certify s.parquet" in replayed.out
    again = cli("import", source, "-o", "s.parquet", "-y")  # the mapping beside it says that they are samples
    assert "independent samples" in again.out
    assert "next: suffice decide" in again.out
    (tmp_path / "rules.txt").write_text("settled(4)\n", "utf-8")
    assert cli("certify", "s.parquet", "--rules", "rules.txt", "--max-loss", 0.2, "--set=orders=3").code == 0
    cli("replay", "s.parquet", "--set=orders=0", code=2)
    assert "independent samples" in cli("diagnose", "s.parquet").err
    assert "votes" in cli("search", "s.parquet", "--set=orders=2", "--set=resamples=20").out


def test_lists_of_answers_that_may_be_samples_are_pointed_out(tmp_path):
    source = file_of(tmp_path / "s.jsonl", [["1", "2"]] * 3, ["1"] * 3)
    notes = import_recording(source, out=tmp_path / "s.parquet").notes
    assert any("the items of 'answers' are read as rounds that follow one another" in note for note in notes)
    notes = import_recording(source, out=tmp_path / "t.parquet", samples=True).notes
    assert not any("follow one another" in note for note in notes)


def test_a_policy_that_compares_answers_otherwise_is_pointed_out(tmp_path):
    source = file_of(tmp_path / "s.jsonl", [["-5", "5"]] * 3, ["5"] * 3)
    recording = read_recording(import_recording(source, out=tmp_path / "s.parquet", samples=True).path)
    policy = Policy(rule="lead(1)", selector="majority_of_samples", max_rounds=2)
    notes = replay(recording, policy, metrics="match", orders=2).rows[0].notes
    assert any(
        "compares answers as 'qa', and the recording was imported to compare them as 'number'" in n for n in notes
    )


@pytest.mark.parametrize(
    ("name", "shape", "full"),
    [("samples_date", (369, 10), 0.725), ("panel_gsm8k", (1319, 44), 0.9685), ("samples_aqua", (253, 30), 0.561)],
)
def test_the_bundled_votes_score_what_others_counted(name, shape, full):
    recording = bundled_recording(name)
    assert recording.shape == shape
    assert recording.exchangeable
    # A program's result that fits no option of AQuA casts no vote.
    votes = [
        [answer for answer in row if answer is not None and not answer.startswith("val:")]
        for row in recording.answers.tolist()
    ]
    golds = recording.per_question("golds", [])
    scores = []
    for row, gold in zip(votes, golds.tolist(), strict=True):
        counts = {answer: row.count(answer) for answer in row}
        best = [answer for answer, count in counts.items() if count == max(counts.values())]
        scores.append(sum(answer in gold for answer in best) / max(len(best), 1))
    # By the texts alone, without any normalizer: the sources have normalised them.
    assert np.mean(scores) == pytest.approx(full, abs=0.001)


def test_a_vote_of_code_llama_gains_nothing():
    recording = bundled_recording("samples_cruxeval")
    match = recording.column("match")
    assert match.mean() == pytest.approx(0.3421, abs=1e-4)
    full = replay(recording, "settled(10)", metrics="match", orders=2).rows[0]
    assert full.metrics["match"] == pytest.approx(0.3429, abs=1e-3)


def test_votes_lose_and_a_check_wins_the_game_of_24():
    recording = bundled_recording("samples_game24")
    assert recording.shape == (100, 100)
    assert "passed" in recording.names("signal")
    passed = recording.column("passed")
    np.testing.assert_array_equal(passed, recording.column("match"))
    assert passed.max(axis=1).mean() == 0.49
    for text, value in zip(recording.answers[:, :5].ravel(), passed[:, :5].ravel(), strict=True):
        if value:  # the source's check is that of arithmetic
            assert re.fullmatch(r"[\d+\-*/() ]+= 24", text)
            assert eval(text.removesuffix("= 24")) == pytest.approx(24)
    checked = Policy(rule="passed >= 1", selector="max_passed", max_rounds=100, normalizer="exact")
    rows = replay(recording, checked, metrics="match", orders=2).rows
    assert rows[0].metrics["match"] == 0.49
    voted = replay(recording, "settled(100)", metrics="match", orders=2).rows[0]
    assert voted.metrics["match"] == pytest.approx(0.0883, abs=1e-4)


def test_what_is_bundled_of_samples_is_small_and_its_source_named():
    folder = Path(importlib.util.find_spec("suffice").origin).parent / "data"
    files = [folder / "recorded" / f"{name}.parquet" for name in BUNDLED_SAMPLES]
    assert max(file.stat().st_size for file in files) < 200_000
    assert sum(file.stat().st_size for file in files) < 300_000
    data = (folder / "DATA.md").read_text("utf-8")
    assert all(f"recorded/{file.name}" in data for file in files)


@pytest.mark.whole
def test_the_demo_certifies_what_loses_nothing_and_refuses_the_control(tmp_path):
    told = cli("demo", "samples", "--set=orders=2", "--json", f"--set=markdown={tmp_path / 'samples.md'}", code=0)
    outcomes = json.loads(told.out)
    certified = {
        name: {member["rule"]: member["certified"] for member in item["certificate"]["sequence"]}
        for name, item in outcomes.items()
    }
    assert certified["samples_date"]["vote_lead + round > 10"]
    assert certified["panel_gsm8k"]["vote_lead >= 3"]
    assert not certified["panel_cruxeval"]["vote_lead >= 3"]
    assert outcomes["panel_gsm8k"]["best_single_model"]["match"] == pytest.approx(0.961, abs=0.002)
    assert outcomes["samples_date"]["best_single_model"] is None
    assert certified["samples_game24"]["passed >= 1"]
    assert not certified["samples_game24"]["vote_lead >= 3"]
    assert "a verifier is needed" in outcomes["samples_game24"]["headline"]
    assert "the vote gains nothing" in outcomes["samples_cruxeval"]["headline"]
    assert outcomes["samples_aqua"]["one_alone"] == pytest.approx(0.31, abs=0.01)
    assert "| ChatGPT, dates | lead(3) |" in (tmp_path / "samples.md").read_text("utf-8")
    assert cli("demo", "samples", f"--set=markdown={tmp_path / 'missing' / 'x.md'}").code == 1
