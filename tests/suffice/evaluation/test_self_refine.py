"""Self-refine's drafts: the importer, what is bundled of them, and the demonstration on it."""

from __future__ import annotations

import functools
import gzip
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from suffice.errors import DataError
from suffice.evaluation.replay import policy_for, replay
from suffice.policy.rounds import Round
from suffice.policy.session import Session, stops
from suffice.recordings import BUNDLED_RECORDINGS, bundled_recording, read_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice_papers.semantic import demo, read_self_refine
from suffice_papers.semantic.self_refine import sentiment_reached, sentiment_stated
from suffice_reader.minilm import MiniLM
from tests.support.cli_tools import cli

PUBLISHED = {"gpt4": [57, 93, 81, 85, 76]}


def draft(record_id=1, attempt=0, **changes) -> dict:
    return {
        "record_id": record_id,
        "attempt": attempt,
        "review": "The soup was cold.",
        "sentiment": "Very negative",
        "target_sentiment": "Very positive",
        "transferred_review": f"The soup was warm, {attempt} times.",
        "transferred_review_sentiment": "The review sounds glowing. The sentiment is Very positive",
        "feedback": "Good. Try again to make it Very positive!",
        "log_probability": 0.0,
        "probability": 1.0,
    } | changes


def written(path: Path, records) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def imported(path: Path, records, embedder=None) -> Recording:
    run = read_self_refine(written(path, records), embedder)
    return Recording(build_table(run.rows(), run.kinds()))


# The importer


def test_a_round_is_an_attempt_with_verdict_words_and_costs(tmp_path):
    made = imported(tmp_path / "x.jsonl.gz", [draft(attempt=a) for a in (0, 1)], MiniLM())
    assert made.shape == (1, 2)
    assert made.ends.tolist() == ["max_rounds"]
    assert made.column("target_sentiment").tolist() == [[1.0, 1.0]]
    assert made.column("draft_tokens").tolist() == [[8.0, 8.0]]
    assert 0 < made.column("semantic_distance")[0, 1] < 0.5
    assert made.column("critic_praise")[0, 0] == 1
    assert made.column("lexical_support")[0, 0] == pytest.approx(1 / 4)
    assert made.objects("feedback")[0, 0].startswith("Good.")
    assert made.column("cost.writer.calls").tolist() == [[1.0, 1.0]]
    assert np.isnan(made.column("cost.writer.uncached_tokens")).all()
    assert made.objects("embedding")[0, 0] is not None


@pytest.mark.parametrize(
    ("attempts", "rounds", "end"),
    [([0, 1, 2], 3, "max_rounds"), ([0, 2], 1, "failed"), ([0, 1], 2, "failed"), ([0], 1, "failed")],
)
def test_a_trajectory_is_cut_before_its_gap_and_no_replay_counts_it(tmp_path, attempts, rounds, end):
    whole = [draft("whole", a) for a in (0, 1, 2)]
    made = imported(tmp_path / "x.jsonl", [*whole, *(draft("cut", a) for a in attempts), draft("late", 1)])
    assert made.question_ids == ["whole", "cut"]
    assert (int(made.seen[1].sum()), made.ends[1]) == (rounds, end)
    result = replay(made, ["full"], metrics=("target_sentiment",), baseline="full")
    assert result.n == (2 if end == "max_rounds" else 1)


def test_what_was_cut_and_left_out_is_counted(tmp_path):
    records = [draft(0, a) for a in (0, 1, 2)] + [draft(1, a) for a in (0, 2)] + [draft(2, 1), draft(3, 0)]
    notes = read_self_refine(written(tmp_path / "x.jsonl", records)).notes
    assert notes[0] == "1 of 4 records have all 3 attempts"
    assert notes[1].startswith("2 records miss attempts in between and were cut there; 1 of them lack the first")
    assert notes[2].startswith("2 trajectories are shorter than 3 rounds")


def test_numbers_and_texts_name_the_same_record(tmp_path):
    made = imported(tmp_path / "x.jsonl", [draft(7, 0), draft("7", 1), draft("b", 0), draft("b", 1)])
    assert made.question_ids == ["7", "b"]


def test_a_constant_log_probability_says_nothing(tmp_path):
    same = [draft(0, 0, log_probability=0.0), draft(0, 1, log_probability=0.0)]
    assert "log_probability" not in imported(tmp_path / "a.jsonl", same).table.column_names
    other = [draft(0, 0, log_probability=-0.5), draft(0, 1, log_probability=None)]
    values = imported(tmp_path / "b.jsonl", other).column("log_probability")
    assert values[0, 0] == -0.5
    assert np.isnan(values[0, 1])


@pytest.mark.parametrize(
    ("verdict", "reached", "stated"),
    [
        ("The review sounds glowing. The sentiment is Very positive.", 1, 1),
        ("\nThe review sounds favorable. The sentiment is very Positive", 1, 1),
        ("The review sounds very positive. The sentiment is Positive", 1, 0),
        ("It is cut off. From the text, the sentiment appears to be Very positive.", 1, 1),
        ("The review is already Very positive.", 1, 0),
        ("The review sounds neutral. The sentiment is Neutral", 0, 0),
        ("The sentiment is Positive", 0, 0),
        ("", 0, 0),
    ],
)
def test_a_verdict_is_read_in_both_ways(verdict, reached, stated):
    assert (sentiment_reached(verdict, "Very positive"), sentiment_stated(verdict, "Very positive")) == (
        reached,
        stated,
    )


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "no record"),
        ([draft(attempt=1)], "attempt 0"),
        ([draft(), draft()], "read before"),
        ([draft(), draft(attempt=1, review="Another.")], "another review"),
        ([draft(feedback=None)], "feedback"),
        ([draft(target_sentiment=" ")], "target_sentiment"),
        ([draft(record_id=None)], "record_id is None"),
        ([draft(record_id=True)], "record_id is True"),
        ([draft(attempt="0")], "attempt is '0'"),
        ([draft(attempt=-1)], "attempt is -1"),
    ],
)
def test_what_is_no_such_file_is_refused_by_line(tmp_path, records, words):
    with pytest.raises(DataError, match=words):
        read_self_refine(written(tmp_path / "x.jsonl", records))


def test_a_missing_and_a_broken_file_are_refused(tmp_path):
    with pytest.raises(DataError, match="exist"):
        read_self_refine(tmp_path / "none.jsonl")
    whole = written(tmp_path / "x.jsonl.gz", [draft(a) for a in range(50)]).read_bytes()
    for broken in (whole[:-20], b"no gzip", whole[:40] + b"\0" * 20 + whole[60:]):
        (tmp_path / "y.jsonl.gz").write_bytes(broken)
        with pytest.raises(DataError):
            read_self_refine(tmp_path / "y.jsonl.gz")


def test_an_empty_draft_is_no_answer_and_never_near(tmp_path):
    made = imported(tmp_path / "x.jsonl", [draft(attempt=0), draft(attempt=1, transferred_review=" ")], MiniLM())
    assert made.answers[0, 1] is None
    assert np.isnan(made.column("semantic_distance")[0, 1])


def test_the_command_embeds_unless_told_not_to(tmp_path):
    path = written(tmp_path / "x.jsonl", [draft(attempt=a) for a in (0, 1)])
    for embedder, known in (("minilm", True), ("none", False)):
        cli("import", path, "-o", tmp_path / "x.parquet", f"--set=embedder={embedder}", "--json", code=0)
        made = read_recording(tmp_path / "x.parquet")
        assert np.isfinite(made.column("semantic_distance")[0, 1]) == known
        assert ("embedder" in made.metadata["depends"]) == known


# What is bundled


@pytest.mark.parametrize(("name", "n", "whole"), [("self_refine_gpt4", 480, 424), ("self_refine_dv3", 431, 273)])
def test_the_bundled_recordings_hold_the_published_shares(name, n, whole):
    made = bundled_recording(name)
    complete = made.ends == "max_rounds"
    assert (made.shape, int(complete.sum())) == ((n, 5), whole)
    shares = (100 * made.column("target_sentiment")[complete].mean(axis=0)).round().astype(int).tolist()
    assert shares == PUBLISHED.get(name.removeprefix("self_refine_"), [83, 98, 98, 95, 97])
    assert (made.column("target_sentiment_stated") <= made.column("target_sentiment"))[made.seen].all()


@pytest.mark.parametrize("name", BUNDLED_RECORDINGS)
def test_no_text_of_a_review_or_a_draft_is_bundled(name):
    table = bundled_recording(name).table
    texts = {field.name for field in table.schema if not pa.types.is_floating(field.type)}
    assert texts == {"question_id", "round", "cluster", "end", "answer"}
    for column, allowed in (("question_id", r"\d{1,3}"), ("cluster", r"\d{1,3}"), ("answer", "[0-9a-f]{12}")):
        assert all(re.fullmatch(allowed, value) for value in table.column(column).to_pylist())
    assert set(table.column("end").to_pylist()) == {"max_rounds", "failed"}


def test_what_is_bundled_is_small_and_named():
    with pytest.raises(DataError, match="self_refine_gpt4"):
        bundled_recording("self_refine")
    folder = Path(importlib.util.find_spec("suffice").origin).parent / "data"
    assert sum(path.stat().st_size for path in (folder / "recorded").glob("self_refine*")) < 300_000
    data = (folder / "DATA.md").read_text(encoding="utf-8")
    assert all(f"recorded/{name}.parquet" in data for name in BUNDLED_RECORDINGS)
    assert "madaan/self-refine" in data


def test_the_script_keeps_numbers_alone(tmp_path):
    spec = importlib.util.spec_from_file_location("bundle", Path("scripts/bundle_self_refine.py").resolve())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = written(tmp_path / "x.jsonl.gz", [draft("a", 0), draft("a", 1), draft("b", 0, transferred_review="warm")])
    module.bundle(source, tmp_path / "x.parquet")
    raw = (tmp_path / "x.parquet").read_bytes()
    table = read_recording(tmp_path / "x.parquet").table
    said = json.dumps(table.to_pylist()) + json.dumps(read_recording(tmp_path / "x.parquet").metadata)
    for word in (b"soup", b"warm", b"Good", b"glowing"):
        assert word not in raw
        assert word.decode() not in said
    assert len({row["answer"] for row in table.to_pylist()}) == 3


def test_a_policy_on_bundled_drafts_decides_live_as_replayed():
    made = bundled_recording("self_refine_gpt4")
    policy = policy_for(made, "patience((semantic_distance < 0.05), 2)")
    found = stops(policy, made.rounds())
    for q in range(0, made.shape[0], 40):
        session = Session(policy)
        for r in range(int(made.seen[q].sum())):
            told = {"semantic_distance": float(made.column("semantic_distance")[q, r])}
            decision = session.observe(Round(index=r + 1, answer=made.answers[q, r], signals=told))
            if decision.stop:
                break
        assert len(session.rounds) == found.rounds[q]


# The demonstration


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of a demonstration that is computed once and shown in three ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_run_model", functools.cache(demo._run_model))
        yield tmp_path_factory.mktemp("demonstration")


def test_the_demonstration_says_that_two_drafts_win(out):
    done = cli("demo", "semantic", "--out", out, "--details", code=0)
    assert "fixed_k(1) to fixed_k(5): 55.8, 93.1, 81.8, 84.2, 74.9 % reach the target" in done.words
    assert "fixed_k(2), the best of them on dev, saves 60 % of the drafts" in done.words
    assert "DOMINATED by fixed_k(2)" in done.words
    assert "Distances rise on average" in done.words
    assert "the judge is the measure itself here" in done.words
    for name in BUNDLED_RECORDINGS:
        page = (out / f"{name}.html").read_text(encoding="utf-8")
        assert "In short" in page
        assert "Which draft to return" in page
        test, dev = (read_recording(out / f"{name}_{part}.parquet") for part in ("test", "dev"))
        assert not set(test.question_ids) & set(dev.question_ids)
        assert test.metadata["depends"] == dev.metadata["depends"] != {}


def test_the_demonstration_fits_one_screen(out):
    lines = cli("demo", "semantic", "--out", out).out.splitlines()
    assert lines[0].startswith("self_refine_gpt4: fixed_k(2), the best of them on dev, saves 60 % of the drafts")
    assert len(lines) <= 45
    assert max(len(line.rstrip()) for line in lines if line.startswith(("gpt4 ", "dv3 "))) <= 100
    assert sum("dominated by fixed_k(2)" in line for line in lines) >= 2
    assert lines[-1].startswith("next: ")


def test_the_demonstration_speaks_json(out):
    done = cli("demo", "semantic", "--out", out, "--json")
    data = json.loads(done.out)
    for name in BUNDLED_RECORDINGS:
        assert data[name]["protocol"]["dominated"]["judge_free"] == "fixed_k(2)"
        assert {row["name"] for row in data[name]["which_draft"]["rows"]} >= {"centroid", "judge_all", "halving(last)"}
        assert data[name]["which_draft"]["data_hash"] == read_recording(out / f"{name}_test.parquet").data_hash
    assert data["seconds"] > 0
