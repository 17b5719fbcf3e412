"""Looks at a log that grows: each reads only what is new, and says what a reading of the whole log says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from suffice import Audit, Policy, Recorder, Round, read_recording
from suffice.recordings import compact_recording, write_recording
from suffice.recordings.merging import LEFT_OUT
from suffice.recordings.recording import Recording
from suffice.verdicts.watches import read_log, watch
from suffice.verdicts.watches.drift import KEPT
from tests.support.cli_tools import cli

POLICY = Policy(rule="answer_margin >= 1", max_rounds=3)
NOW = 4e9


def logged(folder: Path, numbers: range, *, questions: int = 1000, seed: int = 0, policy: Policy = POLICY) -> None:
    """Record requests as a deployed loop does, some of which repeat a question."""
    rng = np.random.default_rng([seed, numbers.start])
    with Recorder(folder, policy=policy, audit=Audit(rate=0.3, seed=1), part_questions=12) as recorder:
        for number in numbers:
            name = f"q{rng.integers(questions)}"
            with recorder.question(f"Question {name}?", question_id=name, request_id=f"{number}") as run:
                for r in range(1, 4):
                    answer = str(rng.choice(["Oslo", "Lima", "unknown", ""]))
                    signals = {"answer_margin": float(rng.normal()), "mine": float(rng.random())}
                    run.observe(Round(index=r, answer=answer, text=f"Answer: {answer}" * r, signals=signals))
                    if run.done and not run.auditing:
                        break
                if number % 17 == 0 and not run.done:
                    run.end("failed")


def says(recording: Recording, policy: Policy = POLICY, **options: object) -> str:
    return json.dumps(watch(recording, policy, now=NOW, max_loss=0.2, window=30, **options).to_dict(), default=str)


def looked(folder: Path, policy: Policy = POLICY) -> tuple[Recording, list[str]]:
    """Look at a log, and assert that this says what the whole log says."""
    recording, notes = read_log(folder, policy, fewest=10)
    assert says(recording, policy) == says(read_recording(folder), policy)
    return recording, notes


def state_of(folder: Path, policy: Policy = POLICY) -> Path:
    return folder / f".watched-{policy.digest}"


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> tuple[Path, Path]:
    """A log of five parts, and the same after a look; tests write into copies."""
    fresh, seen = (tmp_path_factory.mktemp("bases") / name for name in ("fresh", "seen"))
    logged(fresh, range(60))
    shutil.copytree(fresh, seen)
    assert looked(seen)[1] == []
    return fresh, seen


@pytest.fixture
def log(tmp_path, bases) -> Path:
    """A log of sixty requests."""
    return shutil.copytree(bases[0], tmp_path / "log")


@pytest.fixture
def seen_log(tmp_path, bases) -> Path:
    """The same log after a look; a copy keeps the times of its files, which the state of the look names."""
    return shutil.copytree(bases[1], tmp_path / "log")


def test_looks_at_a_growing_log_say_what_the_whole_log_says(tmp_path):
    # Here most requests repeat a question; in the other tests hardly any does.
    for step in range(4):
        logged(tmp_path / "log", range(30 * step, 30 * step + 30), questions=20, seed=step)
        if step == 2:
            compact_recording(tmp_path / "log")
        recording, notes = looked(tmp_path / "log")
        assert notes == []
    assert recording.table.num_rows < read_recording(tmp_path / "log").table.num_rows, "rounds are left out"
    assert state_of(tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_look_while_a_process_writes_says_what_the_whole_log_says(log):
    with Recorder(log, policy=POLICY, audit=Audit(rate=0.3, seed=1)) as recorder:
        open_one = recorder.question("Open?", question_id="open")
        open_one.observe(Round(index=1, answer="Oslo", signals={"answer_margin": -1.0, "mine": 0.0}))
        for _ in range(2):
            assert looked(log)[1] == []
        open_one.end("exhausted")
        assert looked(log)[1] == []


def test_a_part_that_has_a_file_and_a_journal_is_read_again(log):
    with Recorder(log, policy=POLICY, audit=Audit(rate=0.3, seed=1)) as recorder:
        for number in range(3):
            with recorder.question(f"Late {number}?") as run:
                run.observe(Round(index=1, answer="Oslo", signals={"answer_margin": -1.0, "mine": 0.0}))
                run.end("exhausted")
            open_one = recorder.question(f"Open {number}?")
            open_one.observe(Round(index=1, answer="Oslo", signals={"answer_margin": -1.0, "mine": 0.0}))
            recorder.save()
            assert looked(log)[1] == []
    assert looked(log)[1] == []


def test_a_look_opens_only_parts_that_are_new(seen_log, monkeypatch):
    from suffice.verdicts.watches import looks

    logged(seen_log, range(60, 65))
    opened = []
    original = looks.opened_parts
    monkeypatch.setattr(
        looks, "opened_parts", lambda *given, **options: opened.extend(original(*given)) or original(*given, **options)
    )
    looked(seen_log)
    assert len(opened) == 1
    assert len([*seen_log.glob("part-*")]) > 5


def test_parts_compacted_with_new_ones_count_once(seen_log):
    logged(seen_log, range(60, 80))
    compact_recording(seen_log)
    assert looked(seen_log)[1] == []
    logged(seen_log, range(80, 82))
    assert looked(seen_log)[1] == []


def test_parts_compacted_several_times_since_a_look_are_known(seen_log):
    for begin in (60, 63):
        logged(seen_log, range(begin, begin + 3))
        compact_recording(seen_log)
    assert looked(seen_log)[1] == []


def test_a_shorter_copy_of_a_run_that_lost_rounds_does_not_count(log):
    kept, _ = looked(log)
    longest = pc.max(kept.table[LEFT_OUT]).as_py()
    name = kept.table.filter(pc.equal(kept.table[LEFT_OUT], longest))["question_id"][0].as_py()
    whole = read_recording(log)
    rows = whole.table.filter(pc.equal(whole.table["question_id"], name))
    assert rows.num_rows == longest == 3
    write_recording(log / "part-9-copy.parquet", rows.slice(0, 2), whole.metadata)
    assert looked(log)[1] == []


def changed(part: Path) -> None:
    recording = read_recording(part)
    place = recording.table.column_names.index("answer")
    answers = pa.array(["Rome"] * recording.table.num_rows)
    write_recording(part, recording.table.set_column(place, "answer", answers), recording.metadata)


@pytest.mark.parametrize("change", [changed, Path.unlink])
def test_a_changed_or_shortened_log_is_read_anew_and_named(seen_log, change):
    part = sorted(seen_log.glob("part-*.parquet"))[1]
    change(part)
    (note,) = looked(seen_log)[1]
    assert (
        note
        == f"the whole log was read, and not only what is new: {part.name!r} was changed or removed since an earlier look"
    )
    assert looked(seen_log)[1] == []


def test_a_damaged_state_is_named_and_written_again(seen_log):
    state = state_of(seen_log)
    content = bytearray(state.read_bytes())
    content[200] ^= 1
    state.write_bytes(content)
    (note,) = looked(seen_log)[1]
    assert note.startswith("the whole log was read")
    assert looked(seen_log)[1] == []


def test_new_columns_are_read_of_the_whole_log(seen_log):
    signals = {"answer_margin": 2.0, "mine": 0.0, "other": 1.0}
    with (
        Recorder(seen_log, policy=POLICY, audit=Audit(rate=0.3, seed=1)) as recorder,
        recorder.at_once("New?", question_id="new") as run,
    ):
        run.observe(Round(index=1, answer="Oslo", signals=signals))
        while run.auditing:
            run.observe(Round(index=run.next_round, answer="Oslo", signals=signals))
    (note,) = looked(seen_log)[1]
    assert "columns" in note
    assert looked(seen_log)[1] == []


def test_each_policy_of_a_log_has_its_own_state(seen_log):
    other = Policy(rule="answer_margin >= 0.5", max_rounds=3)
    logged(seen_log, range(60, 100), policy=other)
    looked(seen_log)
    looked(seen_log, other)
    assert state_of(seen_log).exists()
    assert state_of(seen_log, other).exists()


def test_a_state_that_cannot_be_written_is_named(log):
    state_of(log).mkdir()
    (note,) = looked(log)[1]
    assert note.startswith("the next look reads the whole log again")


def test_replies_of_requests_that_lost_rounds_keep_their_models(log):
    for number, part in enumerate(sorted(log.glob("part-*.parquet"))):
        table = read_recording(part).table
        models = pc.if_else(pc.equal(table["round"], 1), None, f"model-{number // 3}")
        write_recording(part, table.append_column("reply_model", models), read_recording(part).metadata)
    recording, _ = looked(log)
    assert len(watch(recording, POLICY, now=NOW).changes) == 1


def test_the_command_reads_what_is_new_and_names_a_changed_part(tmp_path, seen_log):
    policy = POLICY.save(tmp_path / "policy.json") or tmp_path / "policy.json"
    command = ("watch", seen_log, "--policy", policy, "--json")
    assert not any("the whole log" in note for note in cli(*command).json["notes"])
    cli(*command, "--audited", tmp_path / "audited.parquet", code=0)
    assert not any(name.startswith(KEPT) for name in read_recording(tmp_path / "audited.parquet").table.column_names)
    changed(sorted(seen_log.glob("part-*.parquet"))[1])
    assert any("the whole log was read" in note for note in cli(*command).json["notes"])
