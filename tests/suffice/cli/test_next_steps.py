"""The printed next step runs as printed, on a recording whose rounds have a score and no gold answers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from suffice.policy.session import Policy
from suffice.recordings import read_recording, write_recording
from tests.support.cli_tools import cli

LOGS = Path(__file__).parents[3] / "examples" / "logs.jsonl"
QUICK = ("--set", "resamples=50")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("scores")
    assert cli("import", LOGS, "-o", base / "L.parquet").code == 0
    whole = read_recording(base / "L.parquet")
    even = np.arange(len(whole.question_ids)) % 2 == 0
    for name, chosen in (("a", even), ("FRESH", ~even)):
        half = whole.select(chosen)
        write_recording(base / f"{name}.parquet", half.table, half.metadata)
    searched = cli(
        "search", base / "a.parquet", "--metric", "score", "--budget", "5", "--policy", base / "sp.json", *QUICK
    )
    assert searched.code == 0, searched.err
    return base


@pytest.fixture
def work(folder, monkeypatch):
    monkeypatch.chdir(folder)


def next_step(printed):
    """Return the words of the command that is printed as the next."""
    step = printed.out.rpartition("next: suffice ")[2].partition("\n\n")[0]
    assert step, printed
    return shlex.split(step)


@pytest.mark.parametrize(
    "line",
    [
        f"search a.parquet --metric score --budget 5 --policy again.json {' '.join(QUICK)}",
        "report a.parquet --metric score --policy sp.json -o page.html",
        "report a.parquet --metric score -o page.html",
        "replay a.parquet --metric score --set resamples=50",
        "replay a.parquet --metric score --metric agreement --set resamples=50",
        "certify FRESH.parquet --metric score --max-loss 0.001 --policy sp.json",
        "diagnose a.parquet --metric score",
        "diagnose a.parquet --metric score --rule answer_stable",
        "diagnose a.parquet --rule answer_stable",
        "data show sp.json",
        "deploy sp.json",
        "data costs a.parquet",
        "merge joined.parquet a.parquet FRESH.parquet",
        "calibrate a.parquet --rule answer_stable --target score -o calibrated.json",
    ],
)
def test_the_printed_next_step_runs_as_printed(work, line):
    first = cli(*shlex.split(line))
    assert first.code == int(line.startswith("certify")), first
    step = [word.replace("OTHER.parquet", "FRESH.parquet") for word in next_step(first)]
    second = cli(*step, code=0)
    assert "no number of questions" not in second.words
    assert "--metric" in step or step == ["diagnose", "a.parquet", "--rule", "answer_stable"]


def test_the_next_step_after_a_search_certifies_the_policy(work):
    step = next_step(cli("data", "show", "sp.json"))
    assert step[-2:] == ["--metric", "score"]
    assert cli(*step).words.startswith("certified")


@pytest.mark.parametrize("call", ["replay a.parquet", "search a.parquet --set resamples=50"])
def test_an_unmeasured_default_metric_names_the_recorded_ones(work, call):
    error = cli(*shlex.split(call)).error
    assert "score (recorded)" in " ".join(error.split())
    assert "Drop those" not in error


def test_certify_refuses_a_metric_that_no_round_has(work):
    error = " ".join(cli("certify", "FRESH.parquet", "--max-loss", "0.02", "--policy", "sp.json").error.split())
    assert "'f1' was not measured in any round" in error
    assert "score (recorded)" in error


def test_a_search_without_a_choice_prints_no_next_step(work):
    searched = cli("search", "a.parquet", "--metric", "score", "--budget", "0.5", *QUICK, code=0)
    assert "next:" not in searched.out


def test_a_doctor_without_an_endpoint_says_so_first():
    examined = cli("doctor", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", code=1)
    assert "unreachable" in examined.out.splitlines()[0]


def test_a_policy_of_no_metric_prints_none(work):
    Policy(rule="answer_stable >= 1").save("plain.json")
    assert "--metric" not in next_step(cli("data", "show", "plain.json"))


def test_a_missing_decision_or_policy_names_the_commands_that_write_one(work):
    assert "suffice decide RECORDING -o missing.json" in cli("deploy", "missing.json").error
    error = cli("replay", "a.parquet", "--policy", "missing.json").error
    assert "suffice deploy" in error
    assert "suffice calibrate" in error


def test_a_decision_that_needs_more_questions_names_its_loop(work):
    rows = [
        {"id": f"q{q}", "round": r, "answer": "x" if r > 1 or q % 9 else "y", "gold": "x", "model": model}
        for model in ("m1", "m2")
        for q in range(60)
        for r in (1, 2)
    ]
    Path("models.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    imported = cli("import", "models.jsonl", "-o", "models.parquet", "--yes")
    step = next_step(imported)
    assert step[:2] == ["decide", "models.parquet"]
    assert step[2] == "--where"
    decided = cli(*step, "-o", "models.json")
    assert "Not enough data" in decided.out, decided
    assert next_step(decided)[-2:] == step[-2:]


def test_a_deployed_decision_names_the_loop_of_later_questions(work):
    rows = [
        {
            "id": f"q{q}",
            "question": f"Tower {q}?",
            "round": r,
            "answer": "xyz"[q % 3],
            "gold": "xyz"[q % 3],
            "model": model,
        }
        for model in ("m1", "m2")
        for q in range(400)
        for r in (1, 2, 3)
    ]
    Path("loops.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cli("import", "loops.jsonl", "-o", "loops.parquet", "--yes", "--log-golds", "keep").code == 0
    decided = cli("decide", "loops.parquet", "--where", "model=m1", "-o", "loop.json")
    assert next_step(decided)[:2] == ["deploy", "loop.json"], decided
    step = next_step(cli("deploy", "loop.json", "-o", "of_loop.json"))
    assert step == ["decide", "FRESH.parquet", "--continue", "loop.json", "--where", "model=m1"]
    again = cli("decide", "loops.parquet", "--where", "model=m1", "--continue", "loop.json")
    assert next_step(again)[:2] == ["deploy", "loop.json"]


def test_a_log_without_golds_is_led_to_commands_that_say_something(tmp_path, monkeypatch):
    """Signals are separated by agreement, and not by a metric that no round has; unknown ends are explained first."""
    monkeypatch.chdir(tmp_path)
    for name, cap in (("kept", lambda q: 4), ("short", lambda q: 2 + q % 3)):
        rows = [
            {
                "id": q,
                "question": f"Where is tower {q}?",
                "round": r,
                "answer": f"{'abc'[q % 3]}{(r + 1) // 2 if r < 4 else q}",
            }
            for q in range(300)
            for r in range(1, cap(q) + 1)
        ]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert cli("import", f"{name}.jsonl", "--yes").code == 0
    decided = cli("decide", "kept.parquet", "-o", "kept.json")
    assert "Keep what you have" in decided.out
    step = next_step(decided)
    assert step == ["diagnose", "kept.parquet", "--metric", "agreement"]
    assert cli(*step).code == 0
    unknown = cli("decide", "short.parquet", "-o", "short.json")
    assert "fewer than 4 rounds" in unknown.words
    assert "is unknown" in unknown.words or "cannot be judged" in unknown.words
    assert unknown.out.count("next:") == ("cannot be judged" not in unknown.words)


def test_ways_to_read_single_rounds_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": q, "model": model, "answer": f"{q + (q % 3 < 1 - r)}", "expected": f"{q}"}
        for q in range(30)
        for r, model in enumerate(("small", "large"))
    ]
    Path("calls.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = cli("import", "calls.jsonl", "-o", "r.parquet").words
    printed = re.findall(r": (suffice import calls.jsonl [^;]*?(?:--samples|small,large))", said)
    assert len(printed) == 2
    for command in printed:
        assert cli(*shlex.split(command)[1:]).code == 0
        Path("r.import.json").unlink()
        assert read_recording("r.parquet").index[-1] == 2
