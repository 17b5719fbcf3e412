"""Transcripts of agents in each format: steps, states, tokens, dollars and grades are those that a person reads in them."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from pathlib import Path

import pytest
from benchmarks.readings import transcripts as made

from suffice.errors import DataError
from suffice.importers import import_recording, importer, kind_of
from suffice.policy.signals import StepSignals
from suffice.recordings import read_recording
from tests.support.cli_tools import cli

FIXTURES = Path(__file__).resolve().parents[2] / "data" / "transcripts"
DATA = FIXTURES.parent
WRITTEN = {
    "claude_code": lambda turns: made.lines(made.claude_code(turns)),
    "codex": lambda turns: made.lines(made.codex(turns)),
    "codex_before": lambda turns: made.lines(made.codex(turns, first=True)),
    "openhands": lambda turns: made.lines([made.openhands(turns)]),
    "openhands_events": lambda turns: json.dumps(made.openhands_events(turns)),
    "swe_agent": lambda turns: json.dumps(made.swe_agent(turns)),
    "inspect": lambda turns: json.dumps(made.inspect_log(turns)),
}
"""The text of a file with an invented run, by format."""

KINDS = {name: name.removesuffix("_before").removesuffix("_events") for name in WRITTEN}
NO_EXIT_CODES = {"swe_agent", "inspect"}


def write(name, folder, turns=made.TURNS):
    path = folder / (
        "run.traj" if name == "swe_agent" else "run.jsonl" if name in ("claude_code", "codex") else "run.json"
    )
    path.write_text(WRITTEN[name](turns))
    return path


def read(name, folder, turns=made.TURNS):
    (run,) = [importer(KINDS[name])(write(name, folder, turns))]
    (trajectory,) = run.trajectories
    return run, trajectory


def column(trajectory, name):
    return [step.signals[name] for step in trajectory.rounds]


def same(values, expected):
    return values == pytest.approx(list(expected), nan_ok=True)


@pytest.mark.parametrize("name", WRITTEN)
def test_each_format_is_recognised_and_its_steps_are_the_rounds(name, tmp_path):
    assert kind_of(write(name, tmp_path)) == KINDS[name]
    run, trajectory = read(name, tmp_path)
    assert made.states([step.answer for step in trajectory.rounds]) == list(made.STATES)
    assert same(column(trajectory, "since_change"), made.SINCE_CHANGE)
    assert trajectory.question == made.TASK
    assert trajectory.end == "exhausted"
    assert run.source == KINDS[name]
    if name not in NO_EXIT_CODES:
        assert same(column(trajectory, "check_passed"), made.CHECKS)
        assert same(column(trajectory, "tool_failed"), made.FAILED)
        assert same(column(trajectory, "checks_green_since_change"), made.GREEN)


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in ("openhands_events", "swe_agent")])
def test_tokens_are_counted_once_with_their_cached_share(name, tmp_path):
    _, trajectory = read(name, tmp_path)
    costs = [step.costs["generator"] for step in trajectory.rounds]
    assert [(own.uncached_tokens, own.cached_tokens, own.output_tokens) for own in costs] == [
        turn.tokens for turn in made.TURNS
    ]
    assert {own.calls for own in costs} == {1}
    assert same(column(trajectory, "context_tokens"), [turn.tokens[0] + turn.tokens[1] for turn in made.TURNS])


def test_dollars_are_those_of_the_log(tmp_path):
    _, trajectory = read("openhands", tmp_path)
    assert same(column(trajectory, "spend"), [0.01, 0.03, 0.06, 0.10, 0.15, 0.21, 0.28])
    run, trajectory = read("swe_agent", tmp_path)
    assert all(map(math.isnan, column(trajectory, "spend")))
    assert any("0.28 USD" in note for note in run.notes)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_cut_after_any_step_has_the_same_earlier_rounds(name, tmp_path):
    _, whole = read(name, tmp_path)
    for n in range(1, len(made.TURNS)):
        _, part = read(name, tmp_path, made.TURNS[:n])
        assert [repr(step) for step in part.rounds] == [repr(step) for step in whole.rounds[:n]]


@pytest.mark.parametrize("name", WRITTEN)
def test_signals_measured_live_equal_those_of_the_import(name, tmp_path):
    _, trajectory = read(name, tmp_path)
    live = StepSignals()
    for step in trajectory.rounds:
        failed = {0.0: False, 1.0: True}.get(step.signals["tool_failed"])
        spent = step.signals["spend"] - (trajectory.rounds[step.index - 2].signals["spend"] if step.index > 1 else 0)
        turn = made.TURNS[step.index - 1]
        own = live.add(turn.arguments.get("command") if turn.tool == "bash" else None, failed=failed, dollars=spent)
        for signal in ("check_passed", "spend"):
            assert own[signal] == pytest.approx(step.signals[signal], nan_ok=True)


def test_a_run_without_edits_says_so(tmp_path):
    for name in WRITTEN:
        run, trajectory = read(name, tmp_path, (made.TURNS[0], made.TURNS[-1]))
        assert {step.answer for step in trajectory.rounds} == {None}
        assert any("show no change of a file" in note for note in run.notes)


DJANGO = {
    # a script (3), the change (5), a second script (9), both removed (12)
    "django__django-11163": ([None] * 2 + ["A"] * 2 + ["B"] * 4 + ["C"] * 3 + ["D"] * 2, [4, 6, 10, 11], 0.10663920),
    # a script (3), the change (5), two more scripts (8, 10), all removed (16); `ls tests/runtests.py` (14) is no check
    "django__django-16255": (
        [None] * 2 + ["A"] * 2 + ["B"] * 3 + ["C"] * 2 + ["D"] * 6 + ["E"] * 2,
        [4, 7, 9, 11, 15],
        0.08934840,
    ),
}


@pytest.mark.parametrize("name", DJANGO)
def test_runs_of_mini_swe_agent_are_read_as_a_person_reads_them(name):
    states, checks, dollars = DJANGO[name]
    path = FIXTURES / f"mini_swe_agent_{name}.traj.json.gz"
    assert kind_of(path) == "mini_swe_agent"
    (trajectory,) = importer("mini_swe_agent")(path).trajectories
    assert (trajectory.question_id, trajectory.end) == (name, "exhausted")
    assert made.states([step.answer for step in trajectory.rounds]) == states
    assert [step.index for step in trajectory.rounds if step.signals["check_passed"] == 1] == checks
    assert trajectory.rounds[-1].signals["spend"] == pytest.approx(dollars, abs=1e-9)
    assert trajectory.labels == {"model": "google/gemini-3-pro-preview"}


def test_tokens_of_mini_swe_agent_are_those_of_its_calls():
    (trajectory,) = importer("mini_swe_agent")(
        FIXTURES / "mini_swe_agent_django__django-11163.traj.json.gz"
    ).trajectories
    costs = trajectory.rounds[4].costs[
        "generator"
    ]  # 5,179 of the prompt, of which 4,037 were cached, and 149 generated
    assert (costs.uncached_tokens, costs.cached_tokens, costs.output_tokens) == (1142, 4037, 149)
    assert sum(step.costs["generator"].output_tokens for step in trajectory.rounds) == 2773


def test_later_versions_of_mini_swe_agent_call_tools(tmp_path):
    def call(*commands, cost):
        return {
            "role": "assistant",
            "content": None,
            "extra": {"actions": [{"command": c} for c in commands], "cost": cost},
        }

    def result(code):
        return {"role": "tool", "content": "x", "extra": {"returncode": code}}

    messages = [
        {"role": "user", "content": "Mend it."},
        call("ls", "pytest", cost=0.1),
        result(0),
        result(1),
        call("echo x > a", cost=0.2),
    ]
    run = {"info": {"exit_status": "LimitsExceeded"}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}
    (tmp_path / "task-1.traj.json").write_text(json.dumps(run))
    (trajectory,) = importer("mini_swe_agent")(tmp_path / "task-1.traj.json").trajectories
    assert (trajectory.question_id, trajectory.end) == ("task-1", "max_rounds")
    assert same(column(trajectory, "check_passed"), [0, math.nan])
    assert same(column(trajectory, "spend"), [0.1, 0.3])


def test_no_other_log_is_taken_for_a_transcript():
    kinds = {*KINDS.values(), "mini_swe_agent"} - {"inspect"}
    for path in sorted(DATA.glob("*/*")):
        if path.parent not in (FIXTURES, DATA / "tiny_model", DATA / "taught_model") and path.suffix != ".md":
            for kind in kinds:
                assert not _recognises(kind, path), (path, kind)


def _recognises(kind, path):
    try:
        return kind_of(path) == kind
    except DataError:
        return False


@pytest.mark.parametrize("name", WRITTEN)
def test_the_command_reads_each_format_without_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(name, tmp_path)
    assert cli("import", str(path), "-o", "out.parquet").code == 0
    recording = read_recording(tmp_path / "out.parquet")
    assert recording.metadata["source"] == KINDS[name]
    assert recording.table.num_rows == len(made.TURNS)


def test_a_packed_file_and_a_folder_are_read(tmp_path):
    for i in range(3):
        (tmp_path / f"s{i}.jsonl.gz").write_bytes(gzip.compress(made.lines(made.claude_code(session=f"s{i}")).encode()))
    shutil.copy(FIXTURES / "DATA.md", tmp_path)
    summary = import_recording(tmp_path, out=tmp_path / "out.parquet")
    assert (summary.trajectories, summary.rounds) == (3, len(made.TURNS))


@pytest.mark.parametrize("name", ["swe_agent", "openhands_events", "codex_before"])
def test_a_cut_transcript_does_not_block_those_beside_it(name, tmp_path):
    path = write(name, tmp_path)
    whole = path.read_bytes()
    for place, share in enumerate((0.01, 0.9)):
        path.with_name(f"z{place}{path.suffix}").write_bytes(whole[: int(len(whole) * share)])
    kind = kind_of(tmp_path)
    run = importer(kind)(tmp_path)
    assert kind == KINDS[name]
    assert len(run.trajectories) == 2
    assert any(note.startswith("1 file cut before the first step") and f"z0{path.suffix}" in note for note in run.notes)
    assert any(note.startswith("1 of 2 transcripts lack their end") for note in run.notes)


def test_steps_are_read_of_a_transcript_cut_before_its_format(tmp_path):
    (whole,) = FIXTURES.glob("*11163*")
    text = gzip.decompress(whole.read_bytes())
    (tmp_path / "a.traj.json").write_bytes(text)
    (tmp_path / "b.traj.json").write_bytes(text[: len(text) // 2])
    assert kind_of(tmp_path) == "mini_swe_agent"
    every, begun = importer("mini_swe_agent")(tmp_path).trajectories
    assert begun.rounds == every.rounds[: len(begun.rounds)]
    assert (begun.end, 0 < len(begun.rounds) < len(every.rounds)) == ("failed", True)


def test_a_folder_of_damaged_files_alone_is_still_an_error(tmp_path):
    (tmp_path / "a.traj").write_text('{"trajectory": "')
    with pytest.raises(DataError, match="not JSON"):
        kind_of(tmp_path)
