"""Logs as tests of the importers write them, import them, and are asked about them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import Asked, Draw

from suffice.errors import UnsettledError
from suffice.importers import ImportSummary, import_recording
from suffice.recordings import Recording, read_recording
from tests.support.cli_tools import CITIES, Result, cli

__all__ = [
    "Brief",
    "answer",
    "asked",
    "by_command",
    "by_round",
    "first_choice",
    "imported",
    "offered",
    "paired",
    "recorded",
    "texts",
    "written",
]


class Brief(Draw):
    """Draws two fifths of the questions of a benchmark's log: still more than the 20 that a reading is sure of."""

    def asked(self, n: int = 60, *rest: Any, **more: Any) -> list[Asked]:
        return super().asked(2 * n // 5, *rest, **more)


def paired(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return parameters in which each value of every list occurs; a tuple is several parameters.

    That is enough where the values of one list are read by other code than those of the next.
    """
    columns = [[own if isinstance(own, tuple) else (own,) for own in values] for values in lists]
    return [sum((own[i % len(own)] for own in columns), ()) for i in range(max(map(len, columns)))]


def written(place: Path, records: Iterable[Any]) -> Path:
    """Write records into a file, as CSV or one JSON document where its name says so, else as JSON lines; return its path.

    In a folder the file is `log.jsonl`.
    """
    path = place / "log.jsonl" if place.is_dir() else place
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [*records]
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [*rows[0]])
            table.writeheader()
            table.writerows(rows)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(json.dumps(rows) if path.suffix == ".json" else lines, "utf-8")
    return path


def imported(source: Path, **options: Any) -> ImportSummary:
    """Import a log into a recording beside it, as if nothing had been said of it before."""
    source.with_suffix(".import.json").unlink(missing_ok=True)
    return import_recording(source, out=source.with_suffix(".parquet"), **options)


def recorded(place: Path, records: Iterable[Any], **options: Any) -> tuple[ImportSummary, Recording]:
    """Write a log and import it; return what the import says, and the recording."""
    summary = imported(written(place, records), **options)
    return summary, read_recording(summary.path)


def asked(source: Path, match: str | None = None, **options: Any) -> UnsettledError:
    """Return the question that an import asks."""
    with pytest.raises(UnsettledError, match=match) as error:
        imported(source, **options)
    return error.value


def offered(source: Path, match: str | None = None, **options: Any) -> list[str]:
    """Return the options that the question of an import offers."""
    return [*asked(source, match, **options).choices]


def first_choice(source: Path, **options: Any) -> Any:
    """Return what the first option of the question of an import stands for."""
    return next(iter(asked(source, **options).choices.values()))[0]


def by_command(
    folder: Path, records: Iterable[Any], *options: object, name: str = "log.jsonl", code: int | None = None
) -> Result:
    """Write a log and import it by the command line into `r.parquet` beside it, without being asked."""
    return cli("import", written(folder / name, records), "-o", folder / "r.parquet", "--yes", *options, code=code)


def texts(recording: Recording | Path) -> dict[str, list[str | None]]:
    """Return the answers of each question in a recording or its file, in the order of its rounds."""
    rows: dict[str, list[str | None]] = {}
    table = (read_recording(recording) if isinstance(recording, Path) else recording).table
    columns = (table.column(name).to_pylist() for name in ("question_id", "answer"))
    for name, text in zip(*columns, strict=True):
        rows.setdefault(name, []).append(text)
    return rows


def answer(q: int, r: int) -> str:
    """Return an answer to question `q` that is right in round 2, and before in every third question."""
    return CITIES[(q + (r < 2)) % 4] if q % 3 else CITIES[q % 4]


def by_round(source: Path, **options: Any) -> list[float]:
    """Import a log; return the mean of each round by its first score, else by its gold answers."""
    means = imported(source, **options).by_round
    return [next(iter(own.scores.values()), own.em if math.isnan(own.match) else own.match) for own in means]
