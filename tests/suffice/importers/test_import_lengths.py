"""No message about a wide table, a long value or many files is longer than people read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import SufficeError
from suffice.importers import import_recording
from suffice.recordings import read_recording
from tests.support.logs import written

LONGEST = 600
"""The most characters of an error or a note."""

MANY, FILES = 60, 40
WIDE = {f"column_with_a_name_{n:03d}": f"value {n}" for n in range(MANY)}
ROUNDS = [{"question_id": f"q{q}", "round": r, "answer": f"a{q}"} for q in range(3) for r in (1, 2)]
LONG = "very " * 300


def each(**own: Any) -> list[dict[str, Any]]:
    return [{"id": f"q{q}", **own} for q in range(3)]


LOGS: Mapping[str, Sequence[Any] | Callable[[int], Sequence[Any]]] = {
    "no id": [WIDE] * 3,
    "no rounds": each(**WIDE),
    "wide rounds": [{**row, **WIDE} for row in ROUNDS],
    "wide objects": [{**row, "more": WIDE} for row in ROUNDS],
    "many lists": each(**{key: ["a", "b"] for key in WIDE}),
    "many object lists": each(**{key: [{"answer": "a"}, {"answer": "b"}] for key in WIDE}),
    "lists of records": [{key: [{"question_id": "q"}] for key in WIDE}],
    "many answers": [{"id": f"q{q}", **{f"answer_{n}": f"{n} {q}" for n in range(1, MANY)}} for q in range(3)],
    "many models": [{**row, "model": f"model-{m:03d}", "answer": f"a{m}"} for m in range(MANY) for row in ROUNDS],
    "long end": [{**row, "end": LONG} for row in ROUNDS],
    "long id": [{**row, "question_id": LONG, "round": 3} for row in ROUNDS],
    "long round": [{**row, "round": LONG} for row in ROUNDS],
    "long score": [{**row, "f1": LONG} for row in ROUNDS],
    "one file per system": lambda n: [{"question_id": f"q{q}", "answer": f"a{n % 3}"} for q in range(3)],
    "wide files": lambda n: [WIDE] * 3,
}
"""Logs whose names and values are many or long, by what they have; those of many files as a function of the file's number."""


def log(name: str, folder: Path) -> Path:
    records = LOGS[name]
    if not callable(records):
        return written(folder / ("t.json" if name == "lists of records" else "t.jsonl"), records)
    for n in range(FILES):
        written(folder / "systems" / f"system_with_a_name_{n:03d}.jsonl", records(n))
    return folder / "systems"


OPTIONS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "other answer": {"columns": {"answer": "nope"}},
    "other rounds": {"columns": {"rounds": "nope"}},
    "other rows": {"where": {"nope": "1"}},
    "golds": {"golds": True},
}


@pytest.mark.parametrize("made", LOGS)
@pytest.mark.parametrize("options", OPTIONS)
def test_no_message_of_an_import_is_long(made: str, options: str, tmp_path: Path) -> None:
    given = dict(OPTIONS[options])
    if given.pop("golds", False):
        given["golds"] = written(tmp_path / "golds.jsonl", [WIDE])
    try:
        summary = import_recording(log(made, tmp_path), out=tmp_path / "run.parquet", **given)
    except SufficeError as error:
        said = [str(error)]
    else:
        said = [*summary.notes, *(note for table in summary.tables() for note in table.notes)]
    assert said == [text for text in said if len(text) <= LONGEST]


def test_a_cut_list_says_how_many_names_are_left_out(tmp_path: Path) -> None:
    with pytest.raises(SufficeError, match="and 5. more"):
        import_recording(log("no id", tmp_path), out=tmp_path / "run.parquet")


def test_no_refusal_of_a_wide_recording_is_long(tmp_path: Path) -> None:
    import_recording(log("wide rounds", tmp_path), out=tmp_path / "run.parquet")
    with pytest.raises(SufficeError) as of_recording:
        read_recording(tmp_path / "run.parquet").column("nope")
    assert len(str(of_recording.value)) <= LONGEST
