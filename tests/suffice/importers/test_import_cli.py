"""`suffice import`: what it took, what it asks, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from suffice import Policy
from suffice.cli.main import run
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import written

GOLDS = ("Oslo", "Lima", "Rome", "Cairo", "Quito", "Kyoto")


def log(path, n=6, rounds=3, *, start=1, step="step", **columns):
    """Write the log of a loop: from its second round on it is right, but for the first question."""
    lines = []
    for q in range(n):
        for r in range(start, start + rounds):
            right = r > start and q > 0
            line = {"qid": f"q{q}", step: r, "said": GOLDS[q % 6] if right else "Bern", "gold": GOLDS[q % 6]}
            lines.append(line | {name: value(q, r) for name, value in columns.items()})
    return written(path, lines)


def load(source, *more, step="step", golds="gold", out=None):
    names = {"question_id": "qid", "round": step, "answer": "said", "golds": golds}
    columns = [part for ours, theirs in names.items() for part in ("--column", f"{ours}={theirs}")]
    return cli("import", source, "-o", out or source.with_suffix(".parquet"), *columns, *more)


def test_import_tells_of_each_column_what_became_of_its_values(tmp_path):
    source = log(
        tmp_path / "log.jsonl",
        margin=lambda q, r: 99.0 if r == 2 else None if r == 3 else 1.0,
        known=lambda q, r: 0.5,
        odd=lambda q, r: float("inf") if q == 0 else 2.5,
        extra=lambda q, r: "x",
    )
    columns = ("--column", "answer_margin=margin", "--column", "p_known=known", "--column", "oddity=odd")
    found = load(source, *columns, "--json").json
    told = {item["name"]: item for item in found["columns"]}
    assert told["answer_margin"] == {
        "name": "answer_margin",
        "defined": 12,
        "nulled": 0,
        "clipped": 6,
        "computed": False,
    }
    # p_known is a signal of round 0: elsewhere it is undefined, and no longer in silence.
    assert told["p_known"] == {"name": "p_known", "defined": 0, "nulled": 18, "clipped": 0, "computed": False}
    assert told["oddity"] == {"name": "oddity", "defined": 15, "nulled": 3, "clipped": 0, "computed": False}
    assert (told["answer"]["defined"], told["golds"]["defined"], told["em"]["defined"]) == (18, 18, 18)
    assert told["answer_stable"] == {
        "name": "answer_stable",
        "defined": 12,
        "nulled": 0,
        "clipped": 0,
        "computed": True,
    }
    assert [(item["round"], item["n"], item["scored"], item["em"]) for item in found["by_round"]] == [
        (1, 6, 6, 0.0),
        (2, 6, 6, pytest.approx(5 / 6)),
        (3, 6, 6, pytest.approx(5 / 6)),
    ]
    shown = load(source, *columns, "--details")
    assert shown.code == 0
    for word in ("defined", "nulled", "clipped", "answer_margin", "83.3", "kept as they are: extra"):
        assert word in shown.out
    assert "p_known: 18 of 18 values are undefined" in shown.out


def test_values_out_of_a_signals_range_are_refused_with_the_remedy(tmp_path):
    source = log(tmp_path / "log.jsonl", sure=lambda q, r: 0.9, prob=lambda q, r: 7)
    for ours, theirs, said in (("verbal_confidence", "sure", "0.9"), ("p_correct", "prob", "7.0")):
        told = load(source, "--column", f"{ours}={theirs}").error
        for part in (f"{ours} is {said}", "line 1", "scale", f"--column my_{ours}={theirs}"):
            assert part in told
        assert load(source, "--column", f"my_{ours}={theirs}").code == 0


@pytest.mark.parametrize("step", ["depth", "round"])
@pytest.mark.parametrize(
    ("first", "rounds", "word"), [("1", [1, 2, 3, 4], "first draft"), ("0", [0, 1, 2, 3], "closed book")]
)
def test_rounds_from_zero_are_asked_about(first, rounds, word, step, tmp_path):
    source = log(tmp_path / "log.jsonl", rounds=4, start=0, step=step)
    told = load(source, step=step).error
    assert f"'{step}' counts from 0" in told
    assert "--first-round 0" in told
    assert "--first-round 1" in told
    assert not source.with_suffix(".parquet").exists()
    done = load(source, "--first-round", first, step=step)
    assert done.code == 0
    assert word in done.out
    assert read_recording(source.with_suffix(".parquet")).index.tolist() == rounds


def test_samples_that_count_from_zero_are_not_asked_about(tmp_path):
    source = log(tmp_path / "log.jsonl", start=0, step="round")
    done = load(source, "--samples", step="round")
    assert (done.code, "first draft" in done.out) == (0, False)
    assert read_recording(source.with_suffix(".parquet")).index.tolist() == [1, 2, 3]


def test_a_probability_of_knowing_tells_that_round_0_is_closed_book(tmp_path):
    both = log(tmp_path / "known.jsonl", start=0, step="depth", p=lambda q, r: 0.5 if r == 0 else None)
    assert load(both, "--column", "p_known=p", step="depth").code == 0


def test_a_log_cut_by_its_own_rule_can_be_marked_so(tmp_path):
    source = log(tmp_path / "log.jsonl")
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:-1]))
    shown = load(source).words
    for part in ("5 have all of them, 1 ended earlier", "1 of 6", "--ended exhausted", "--ended max_rounds"):
        assert part in shown
    for end in ("rule", "exhausted", "max_rounds"):
        summary = load(source, "--ended", end, "--json").json
        assert summary["censored"] == (end == "rule")
        assert summary["ends"] == ({"max_rounds": 6} if end == "max_rounds" else {"max_rounds": 5, end: 1})
    assert "ended is 'bored'" in load(source, "--ended", "bored").error


def test_own_labels_and_metrics_are_options_and_a_model_is_pinned(tmp_path):
    source = log(
        tmp_path / "log.jsonl",
        llm=lambda q, r: "small-8b",
        topic=lambda q, r: f"t{q % 2}",
        good=lambda q, r: r / 4,
        turn=lambda q, r: f"turn {r}",
    )
    named = ("--label", "model=llm", "--label", "topic=topic", "--metric-column", "helpful=good")
    done = load(source, *named, "--details")
    assert done.code == 0
    recording = read_recording(source.with_suffix(".parquet"))
    assert recording.metadata["depends"] == {"model": "small-8b"}
    assert "depend on model 'small-8b'" in done.out
    assert recording.per_question("topic", recording.question_ids).tolist() == [f"t{q % 2}" for q in range(6)]
    assert recording.column("helpful")[0].tolist() == [0.25, 0.5, 0.75]
    assert "helpful" in recording.names("metric")
    out = source.with_suffix(".parquet")
    cli("calibrate", out, "--rule", "answer_stable >= 1", "--target", "helpful", "-o", tmp_path / "p.json", code=0)
    assert Policy.load(tmp_path / "p.json").depends["model"] == "small-8b"
    assert "'turn 1' and 'turn 2'" in load(source, "--label", "turn=turn").error
    assert (
        "helpful is 3.0"
        in load(log(tmp_path / "x.jsonl", good=lambda q, r: 3), "--metric-column", "helpful=good").error
    )
    assert "no column 'nowhere'" in load(source, "--metric-column", "helpful=nowhere").error


def test_several_models_pin_none_and_a_note_says_so(tmp_path):
    source = log(tmp_path / "log.jsonl", llm=lambda q, r: f"m{q % 2}")
    done = load(source, "--label", "model=llm")
    assert "2 different values of 'model'" in done.out
    assert read_recording(source.with_suffix(".parquet")).metadata["depends"] == {}


def test_imported_answers_can_be_embedded(tmp_path):
    source = log(tmp_path / "log.jsonl")
    assert load(source, "--embed").code == 0
    recording = read_recording(source.with_suffix(".parquet"))
    assert recording.column("semantic_distance")[1:, 2] == pytest.approx(0, abs=1e-5)
    assert (recording.column("semantic_distance")[1:, 1] > 0.01).all()
    assert recording.metadata["depends"]["embedder"]["id"]
    assert "--embed" in load(source, "--embed", "--set=embedder=none").error


def copied(path, n=8, **golds):
    lines = [
        {"question_id": f"q{q}", "round": r, "answer": f"answer {q} {min(r, 2)}", "target": f"answer {q} 2"}
        for q in range(n)
        for r in (1, 2, 3)
    ]
    path.write_text("".join(json.dumps(line | golds) + "\n" for line in lines), encoding="utf-8")
    return path


def test_gold_answers_that_equal_the_last_answers_are_asked_about(tmp_path):
    source, out = copied(tmp_path / "log.jsonl"), tmp_path / "r.parquet"
    told = cli("import", source, "-o", out).error
    for part in ("8 of 8", "last answer", "--log-golds keep", "--log-golds drop"):
        assert part in told
    assert not out.exists()
    cli("import", source, "-o", out, "--log-golds", "keep", code=0)
    assert read_recording(out).column("em")[:, 2].tolist() == [1.0] * 8
    assert cli("import", source, "-o", out, "--log-golds", "drop").code == 0
    assert "em" not in read_recording(out).names("metric")


def test_gold_answers_that_change_from_round_to_round_are_refused(tmp_path):
    told = load(log(tmp_path / "log.jsonl", critique=lambda q, r: f"better than {r}"), golds="critique").error
    for part in ("other gold answers", "'q0'", "'critique'", "--log-golds drop"):
        assert part in told


def test_gold_answers_that_stand_in_one_row_are_those_of_all_rounds(tmp_path):
    lines = [{"question_id": "a", "round": r, "answer": "Oslo", "gold": "Oslo" if r == 1 else None} for r in (1, 2, 3)]
    source, out = tmp_path / "log.jsonl", tmp_path / "r.parquet"
    written(source, lines)
    assert cli("import", source, "-o", out).code == 0
    assert read_recording(out).column("em").tolist() == [[1.0, 1.0, 1.0]]


def on_terminal(*words, replies):
    """Run the command line on a terminal with replies typed ahead; return the exit code and what was shown."""
    ours, theirs = pty.openpty()
    os.write(ours, b"".join(reply for _, reply in replies) + b"\x04")
    with os.fdopen(theirs) as typed, os.fdopen(os.dup(theirs), "w") as screen, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", typed)
        patch.setattr(sys, "stderr", screen)
        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as ended:
            sys.exit(run([*map(str, words)]))
    shown = b""
    with contextlib.suppress(OSError):  # the end; one read may return less than there is
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    place = 0
    for prompt, _ in replies:
        place = shown.lower().index(prompt, place) + 1
    return ended.value.code or 0, shown.decode()


@pytest.mark.whole
def test_on_a_terminal_what_is_unsettled_is_a_question(tmp_path):
    source, out = copied(tmp_path / "log.jsonl"), tmp_path / "r.parquet"
    code, shown = on_terminal("import", source, "-o", out, replies=[(b"choose", b"2\n")])
    assert code == 0
    assert "1. --log-golds keep" in shown
    assert "2. --log-golds drop" in shown
    assert read_recording(out).objects("golds")[0, 0] in (None, [])
    _, shown = on_terminal("import", source, "-o", tmp_path / "s.parquet", replies=[(b"choose", b"1\n")])
    assert "with the choices in r.import.json; these options answer all questions: --log-golds drop" in shown


@pytest.mark.whole
def test_on_a_terminal_guesses_are_confirmed_once(tmp_path):
    source, out = tmp_path / "log.csv", tmp_path / "r.parquet"
    source.write_text("qid,attempt,prediction,target,tokens\na,1,Rome,Oslo,9\na,2,Oslo,Oslo,7\n")
    code, shown = on_terminal("import", source, "-o", out, replies=[(b"like this?", b"n\n")])
    assert code == 1
    assert "--column OURS=THEIRS" in shown
    assert not out.exists()
    code, shown = on_terminal("import", source, "-o", out, replies=[(b"like this?", b"y\n")])
    assert code == 0
    read = "qid as id of the question, attempt as round, prediction as answer, target as right answer"
    assert shown.count("Columns read: ") == shown.count("Right answer: ") == 1, "what was confirmed is not repeated"
    assert shown.count("does not say which are input") == 1
    assert {*read.split(", ")} <= {*shown.partition("Columns read: ")[2].splitlines()[0].split(", ")}
    assert on_terminal("import", source, "-o", out, replies=[])[0] == 0
    source.write_text("qid,attempt,output,target\na,1,Rome,Oslo\na,2,Oslo,Oslo\n")
    assert on_terminal("import", source, "-o", out, replies=[(b"like this?", b"y\n")])[0] == 0
    assert on_terminal("import", source, "-o", tmp_path / "s.parquet", "--yes", replies=[])[0] == 0


def test_answers_given_once_are_reused_for_the_same_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = log(tmp_path / "log.jsonl", odd=lambda q, r: r / 10)
    source.write_text("".join(source.read_text().splitlines(keepends=True)[:-1]))
    options = ("--column", "answer=said", "--column", "oddity=odd", "--ended", "exhausted")
    first = cli("import", source, *options)
    assert "log.import.json" in first.words
    before = read_recording("log.parquet")
    again = cli("import", source)
    assert "read as last time" in again.words
    after = read_recording("log.parquet")
    assert after.names("signal") == before.names("signal")
    assert after.ends.tolist() == before.ends.tolist()
    assert "oddity" in after.names("signal")
    # What is said now wins over all that was said then.
    assert cli("import", source, "--column", "answer=said", "--json").json["censored"] == 1
    # Another source is read afresh.
    other = log(tmp_path / "other.jsonl")
    assert "last time" not in cli("import", other, "-o", "log.parquet").words
    (tmp_path / "log.import.json").write_text("{")
    assert "log.import.json" in cli("import", source).error


def test_few_or_other_golds_are_not_asked_about(tmp_path):
    assert cli("import", copied(tmp_path / "few.jsonl", n=4), "-o", tmp_path / "r.parquet").code == 0
    other = copied(tmp_path / "other.jsonl", target="answer 3 2")
    assert cli("import", other, "-o", tmp_path / "r.parquet").code == 0


def test_in_a_log_answer_and_output_are_the_models(tmp_path):
    lines = [
        {"question_id": f"q{q}", "round": 1, "output": "Bern", "target": "Oslo" if q else "Bern"} for q in range(6)
    ]
    source = written(tmp_path, lines)
    found = cli("import", source, "-o", tmp_path / "r.parquet", "--json").json
    assert found["by_round"][0]["em"] == pytest.approx(1 / 6)
    readings = {item["ours"]: item["theirs"] for item in found["readings"]}
    assert (readings["answer"], readings["golds"]) == ("output", "target")


def test_options_of_other_formats_are_refused(tmp_path):
    for option in (("--label", "a=b"), ("--ended", "rule"), ("--metric-column", "a=b"), ("--log-golds", "keep")):
        done = cli("import", tmp_path / "x.json", "--kind", "debate", "-o", tmp_path / "r.parquet", *option)
        assert (done.code, "tabular" in done.error) == (2, True)
    assert "NAME=COLUMN" in cli("import", tmp_path / "x", "-o", "y", "--label", "a").error


def test_mapping_a_column_leaves_other_standard_columns_as_they_are(tmp_path):
    rows = [
        {"question_id": "q", "step": r, "answer": "Oslo", "golds": "Oslo", "overlap": 0.5, "mine": 3.0} for r in (1, 2)
    ]
    source = written(tmp_path, rows)
    columns = ("--column", "round=step", "--column", "own=mine", "--log-golds", "keep")
    assert cli("import", source, "-o", tmp_path / "r.parquet", *columns).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.column("overlap")[0, 1] == 0.5
    assert recording.column("em").tolist() == [[1.0, 1.0]]
    assert recording.column("own").tolist() == [[3.0, 3.0]]
    assert cli("import", source, "-o", tmp_path / "s.parquet", *columns, "--column", "overlap=").code == 0
    assert "overlap" not in read_recording(tmp_path / "s.parquet").names("signal")


@pytest.mark.parametrize("clusters", [{}, {"cluster": "c"}])
def test_questions_of_one_text_are_one_cluster_unless_the_table_names_clusters(tmp_path, clusters):
    rows = [
        {"question_id": f"q{q}", "round": r, "question": f"Who is {q // 2}?", "answer": "a", **clusters}
        for q in range(4)
        for r in (1, 2)
    ]
    source = written(tmp_path, rows)
    told = cli("import", source, "-o", tmp_path / "r.parquet")
    assert f"r.parquet: {'1 question' if clusters else '2 questions'} in 4 runs, 2 rounds each" in told.words
    named = read_recording(tmp_path / "r.parquet").clusters.tolist()
    assert named == (["c"] * 4 if clusters else ["q0", "q0", "q2", "q2"])


def test_a_folder_in_the_place_of_the_file_to_write_is_named(tmp_path):
    source = log(tmp_path / "log.jsonl")
    assert load(source).code == 0
    rule = ("--rule", "answer_stable", "--metric", "em")
    recorded = source.with_suffix(".parquet")
    for told in (
        load(source, out=tmp_path),
        cli("report", recorded, *rule, "-o", tmp_path),
        cli("calibrate", recorded, "--rule", "answer_stable", "-o", tmp_path),
        cli("record", "hotpotqa_eval", "--limit", "1", "-o", tmp_path),
    ):
        assert told.code == 1
        assert "is a folder" in told.error


def test_samples_are_counted_in_words_and_decided_next(tmp_path):
    rows = [
        {"id": f"q{q}", "question": f"{q}?", "gold": "2", "samples": ["2", "3", "2"][: 2 if q < 4 else 3]}
        for q in range(30)
    ]
    source = written(tmp_path, rows)
    shown = cli("import", source, "-o", tmp_path / "s.parquet", "--samples", "--yes")
    assert "30 questions, up to 3 samples: 26 have 3, 4 fewer" in shown.words
    assert f"next: suffice decide {tmp_path}/s.parquet" in shown.out


def test_the_rounds_show_the_metric_that_compares_answers(tmp_path):
    source = tmp_path / "log.jsonl"
    rows = ({"id": q, "gold": f"{q}.5", "steps": [{"answer": f"-{q}.5"}, {"answer": f"{q}.50"}]} for q in range(30))
    written(source, rows)
    shown = cli("import", source, "-o", tmp_path / "s.parquet", "--yes").out
    header, first, last = shown.partition("\nround ")[2].splitlines()[:3]
    assert re.split(r"  +", header.strip()) == ["answer", "right", "right answers, %"]
    assert (first.split()[2:], last.split()[2:]) == (["0", "0.0"], ["1", "100.0"]), "-1.5 is not 1.5"
    assert "(answers are compared as 'number')" in shown


def test_the_rounds_show_only_columns_that_tell_something(tmp_path):
    def header(answer):
        rows = [{"id": q, "round": r, "gold": "Old Oslo", "answer": answer(q, r)} for q in range(30) for r in (1, 2)]
        source = written(tmp_path, rows)
        shown = cli("import", source, "-o", tmp_path / "s.parquet", "--yes").out
        return next(re.split(r"  +", line.strip()) for line in shown.splitlines() if line.startswith("round  "))

    plain = ["round", "answer", "score", "mean score, %"]
    assert header(lambda q, r: "Old Oslo" if r == 2 else "Rome") == plain
    assert header(lambda q, r: "Oslo" if q + r > 1 else None) == [*plain, "answered %"]


def test_a_log_without_golds_is_led_to_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "log.jsonl", n=60)
    columns = ("--column", "question_id=qid", "--column", "answer=said", "--column", "golds=")
    printed = cli("import", "log.jsonl", *columns, "--yes")
    then = "decide log.parquet --ask golds.jsonl"
    assert f"next: suffice {then}\n" in printed.out
    assert f"next: suffice {then}\n" in cli("decide", "log.parquet").out
    assert "--ask" not in cli("decide", "log.parquet", "--metric", "agreement", "-o", "other.json").out
    assert cli(*then.split()).code == 0
    assert (tmp_path / "golds.jsonl").exists()


def test_what_needs_no_look_is_in_the_details(tmp_path):
    source = log(tmp_path / "log.jsonl", n=24, extra=lambda q, r: "x", model=lambda q, r: "m")
    shown, every = load(source, "--yes").words, load(source, "--yes", "--details").words
    assert "24 questions, 3 rounds each" in shown
    assert "more: --details" in shown
    for part in ("kept as they are: extra", "read as the loop's cap", "policies fitted on", "usual name"):
        assert part not in shown
        assert part in every
    single = log(tmp_path / "single.jsonl", n=24, rounds=1)
    assert "nothing to stop earlier" in load(single, "--yes").words


def test_an_import_that_nothing_judges_says_so(tmp_path):
    path, out = tmp_path / "log.jsonl", tmp_path / "log.parquet"
    for further, judged in (({}, []), ({"gold": "Rome"}, ["em"]), ({"correct": 1}, ["correct"])):
        rows = [{"id": q, "round": r, "answer": CITIES[(q + r) % 4], **further} for q in range(30) for r in (1, 2)]
        written(path, rows)
        result = cli("import", path, "-o", out, "--yes", "--json", "--expected", "same-score")
        assert (result.code, json.loads(result.out)["judged_by"]) == (0, judged)
        assert any("which answers are right" in note for note in json.loads(result.out)["notes"]) is not bool(judged)


def test_the_columns_are_shown_in_words(tmp_path):
    rows = [
        {"qid": q, "round": r, "answer": CITIES[(q + r) % 4], "correct": r - 1, "output_tokens": 7 * r % 3}
        for q in range(30)
        for r in (1, 2)
    ]
    written(tmp_path, rows)
    command = ["import", tmp_path / "log.jsonl", "-o", tmp_path / "log.parquet"]
    shown, whole = cli(*command, "--yes").out, cli(*command, "--details").out
    for words, name in {"id of the question": "question_id", "output_tokens": "cost.generator.output_tokens"}.items():
        assert words in shown
        assert name not in shown
        assert name in whole
    assert "correct (score)" in shown


def test_import_and_decide_show_one_metric(tmp_path, monkeypatch):
    """Golds of letters are judged by EM, others by F1, on both screens, and the log's own score is said to be kept."""
    monkeypatch.chdir(tmp_path)
    for golds, metric, other in (("ABCD", "score (EM)", "F1"), (CITIES, "score (F1)", "EM")):
        rows = [
            {"id": q, "round": r, "question": f"Where is tower {q}?", "gold": golds[q % 4]}
            | {"answer": golds[(q + (r == 1) * (q % 3)) % 4], "score": (q % 3 + r) / 4}
            for q in range(60)
            for r in (1, 2)
        ]
        Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        shown = cli(
            "import",
            "log.jsonl",
            "--yes",
            "--log-golds",
            "keep",
            "--expected",
            "last-is-gold",
            "--set",
            "normalizer=qa",
        ).words
        decided = cli("decide", "log.parquet", "-o", f"{other}.json").words
        assert metric in shown
        assert (
            f"the gold answers judge ({metric}); the log's own 'score' is kept: `suffice decide --metric score` judges by it"
            in shown
        )
        assert f"{metric}: change" in decided
        assert other not in shown + decided.replace(f"{other}.json", "")


def test_the_outcome_of_an_agents_messages_is_on_the_first_screen(tmp_path):
    """Long runs leave room for few notes; labels of messages that never repeat would say nothing."""
    rows = []
    for q in range(30):
        steps = [f"Step {r} of {q}: look at file {q * r}" for r in range(9 + q % 3)]
        messages = [
            part
            for step in steps
            for part in ({"role": "assistant", "content": step}, {"role": "user", "content": f"{step}: done"})
        ]
        rows.append(
            {"id": q, "messages": [{"role": "user", "content": f"Mend issue {q}"}, *messages], "success": q % 2 == 0}
        )
    source = tmp_path / "runs.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    shown = cli("import", source, "--yes", "-o", tmp_path / "runs.parquet").words
    assert "'success' is known once of a question, not of each round" in shown
    assert "next:" not in shown
    assert "20 ended earlier" in shown, "nobody knows whether they stopped by themselves"
