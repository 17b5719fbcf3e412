"""Write tables as JSON and read them back, so that a finished pipeline need not load its models again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suffice.common.files import write_file
from suffice.common.json_text import load_json
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table
from suffice.errors import SchemaError
from suffice_papers.paper import Paper, PaperFigure


def write_paper(path: Path, paper: Paper) -> None:
    """Write a paper's tables as JSON, with the columns as printed and with raw values."""
    data = {
        "title": paper.title,
        "headline": paper.headline,
        "summary": _written(paper.summary),
        "tables": [_written(table) for table in paper.parts],
        "not_made": dict(paper.not_made),
        "figures": [{"name": f.name, "spec": jsonable(dict(f.spec)), "caption": f.caption} for f in paper.figures],
    }
    write_file(path, json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _written(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": [asdict(column) for column in table.columns],
        "rows": jsonable([list(row) for row in table.rows]),
        "notes": list(table.notes),
    }


def read_paper(path: Path) -> Paper:
    """Read a paper; undefined values are None.

    Raises:
        SchemaError: The file was not written by `write_paper`.
    """
    try:
        data = load_json(path.read_text("utf-8"))
        return Paper(
            title=data["title"],
            headline=data["headline"],
            summary=_read_table(data["summary"]),
            parts=tuple(map(_read_table, data["tables"])),
            not_made=data["not_made"],
            figures=tuple(PaperFigure(**figure) for figure in data["figures"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SchemaError(
            f"{str(path)!r} does not contain the tables of an experiment ({error}): remove it and run again"
        ) from error


def _read_table(data: dict[str, Any]) -> Table:
    rows = tuple(tuple(stored_value(value) for value in row) for row in data["rows"])
    return Table(
        title=data["title"],
        columns=tuple(Column(**column) for column in data["columns"]),
        rows=rows,
        notes=tuple(data["notes"]),
    )


def stored_value(value: Any) -> Any:
    """Convert a JSON value from a row of a table: a list becomes an interval, with NaN for null."""
    return tuple(float("nan") if part is None else part for part in value) if isinstance(value, list) else value
