"""No message about a wide table, a long value or many files is longer than people read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import SufficeError
from suffice.importers import import_recording
from suffice.recordings import read_recording
from tests.support.logs import written

LONGEST = 600
"""The most characters of an error or a note."""

WIDE = {f"column_with_a_name_{n:03d}": f"value {n}" for n in range(500)}
ROUNDS = [{"question_id": f"q{q}", "round": r, "answer": f"a{q}"} for q in range(3) for r in (1, 2)]


def _many_files(folder: Path, *, ids: bool) -> Path:
    folder.mkdir()
    for n in range(60):
        rows = [{"question_id": f"q{q}", "answer": f"a{n % 3}"} if ids else dict(WIDE) for q in range(3)]
        written(folder / f"system_{n:03d}.jsonl", rows)
    return folder


MADE: Mapping[str, Callable[[Path], Path]] = {
    "no id": lambda at: written(at / "t.jsonl", [WIDE] * 3),
    "no rounds": lambda at: written(at / "t.jsonl", [{"id": f"q{q}", **WIDE} for q in range(3)]),
    "wide rounds": lambda at: written(at / "t.jsonl", [{**row, **WIDE} for row in ROUNDS]),
    "wide objects": lambda at: written(at / "t.jsonl", [{**row, "more": WIDE} for row in ROUNDS]),
    "many lists": lambda at: written(
        at / "t.jsonl", [{"id": f"q{q}", **{key: ["a", "b"] for key in WIDE}} for q in range(3)]
    ),
    "many object lists": lambda at: written(
        at / "t.jsonl", [{"id": f"q{q}", **{key: [{"answer": "a"}, {"answer": "b"}] for key in WIDE}} for q in range(3)]
    ),
    "lists of records": lambda at: written(at / "t.json", [{key: [{"question_id": "q"}] for key in WIDE}]),
    "many answers": lambda at: written(
        at / "t.jsonl", [{"id": f"q{q}", **{f"answer_{n}": f"{n} {q}" for n in range(1, 500)}} for q in range(3)]
    ),
    "many models": lambda at: written(
        at / "t.jsonl", [{**row, "model": f"model-{m:03d}", "answer": f"a{m}"} for m in range(300) for row in ROUNDS]
    ),
    "long end": lambda at: written(at / "t.jsonl", [{**row, "end": "very " * 300} for row in ROUNDS]),
    "long id": lambda at: written(
        at / "t.jsonl", [{**row, "question_id": "very " * 300, "round": 3} for row in ROUNDS]
    ),
    "long round": lambda at: written(at / "t.jsonl", [{**row, "round": "very " * 300} for row in ROUNDS]),
    "long score": lambda at: written(at / "t.jsonl", [{**row, "f1": "very " * 300} for row in ROUNDS]),
    "one file per system": lambda at: _many_files(at / "systems", ids=True),
    "wide files": lambda at: _many_files(at / "files", ids=False),
}
"""Logs whose names and values are many or long, by what they have."""

OPTIONS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "other answer": {"columns": {"answer": "nope"}},
    "other rounds": {"columns": {"rounds": "nope"}},
    "other rows": {"where": {"nope": "1"}},
    "golds": {"golds": True},
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("options", OPTIONS)
def test_no_message_of_an_import_is_long(made: str, options: str, tmp_path: Path) -> None:
    given = dict(OPTIONS[options])
    if given.pop("golds", False):
        given["golds"] = written(tmp_path / "golds.jsonl", [WIDE])
    try:
        summary = import_recording(MADE[made](tmp_path), out=tmp_path / "run.parquet", **given)
    except SufficeError as error:
        said = [str(error)]
    else:
        said = [*summary.notes, *(note for table in summary.tables() for note in table.notes)]
    assert said == [text for text in said if len(text) <= LONGEST]


def test_a_cut_list_says_how_many_names_are_left_out(tmp_path: Path) -> None:
    with pytest.raises(SufficeError, match="and 49. more"):
        import_recording(MADE["no id"](tmp_path), out=tmp_path / "run.parquet")


def test_no_refusal_of_a_wide_recording_is_long(tmp_path: Path) -> None:
    import_recording(MADE["wide rounds"](tmp_path), out=tmp_path / "run.parquet")
    with pytest.raises(SufficeError) as of_recording:
        read_recording(tmp_path / "run.parquet").column("nope")
    assert len(str(of_recording.value)) <= LONGEST
