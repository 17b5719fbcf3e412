"""Tables as HTML and as data frames."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib import import_module
from importlib.resources import files
from typing import Any, Literal

from suffice.common.tables import Column, Table
from suffice.errors import DataError

Library = Literal["pandas", "polars", "pyarrow"]
LIBRARIES: tuple[Library, ...] = ("pandas", "polars", "pyarrow")
"""Libraries whose data frames `to_frame` makes."""

# In a notebook the colours derive from the page's own, light or dark.  The class is named three times so that these rules
# outweigh JupyterLab's rules for all tables, which align right and make columns equally wide.
_IN_A_NOTEBOOK = """.suffice.suffice.suffice { font: 14px/1.5 system-ui, sans-serif; --muted: color-mix(in srgb, currentColor 65%, transparent);
--line: color-mix(in srgb, currentColor 16%, transparent); --raised: color-mix(in srgb, currentColor 5%, transparent);
table { margin: 0; table-layout: auto; } summary { cursor: pointer; margin: .5rem 0 0; } """


@cache
def style(name: str) -> str:
    """Return a style sheet of this package: `colours` or `tables`."""
    return files("suffice.common.display").joinpath(f"{name}.css").read_text("utf-8")


def html_table(table: Table, *, caption: bool = True) -> str:
    """Return a table as HTML; all text is escaped.

    >>> print(html_table(Table(title="T", columns=(Column("rule"), Column("F1", ".1f", 100)), rows=(("a & b", 0.5),))))
    <div class="scroll" role="region" aria-label="T" tabindex="0">
    <table>
    <caption>T</caption>
    <thead><tr><th scope="col">rule</th><th scope="col" class="num">F1</th></tr></thead>
    <tbody>
    <tr><th scope="row">a &amp; b</th><td class="num" data-value="0.5">50.0</td></tr>
    </tbody>
    </table>
    </div>

    Args:
        table: The table.
        caption: Whether to show the table's title; otherwise only screen readers read the title.
    """
    title = escape(table.title)
    heads = "".join(f'<th scope="col"{_numeric(column)}>{escape(column.name)}</th>' for column in table.columns)
    return "\n".join(
        [
            f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">',
            "<table>",
            f"<caption>{title}</caption>" if caption else f'<caption class="quiet">{title}</caption>',
            f"<thead><tr>{heads}</tr></thead>",
            "<tbody>",
            *(
                f"<tr>{''.join(_cells(table, row, texts))}</tr>"
                for row, texts in zip(table.rows, table.texts(), strict=True)
            ),
            "</tbody>",
            "</table>",
            "</div>",
            *(f'<p class="note">{escape(note)}</p>' for note in table.notes),
        ]
    )


def _cells(table: Table, row: Sequence[Any], texts: Sequence[str]) -> Iterator[str]:
    for position, (column, value, text) in enumerate(zip(table.columns, row, texts, strict=True)):
        if position == 0:
            yield f'<th scope="row">{escape(text)}</th>'
            continue
        parts = value if isinstance(value, tuple) else (value,)
        known = " ".join(repr(part) for part in parts if isinstance(part, int | float) and math.isfinite(part))
        raw = f' data-value="{known}"' if known else ""
        yield f"<td{_numeric(column)}{raw}>{escape(text)}</td>"


def _numeric(column: Column) -> str:
    return ' class="num"' if column.numeric else ""


def arrow_table(table: Table) -> Any:
    """Return raw, unscaled values as a `pyarrow.Table`; an interval is three columns, ``X``, ``X low`` and ``X high``."""
    import pyarrow as pa

    names, rows = table.flat()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table([pa.array(_of_one_type(values)) for values in columns], names=names)


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if str in kinds and len(kinds) > 1:
        return [None if value is None else str(value) for value in values]
    return [float(value) if float in kinds and value is not None else value for value in values]


def frame_of(arrow: Any, library: Library | None) -> Any:
    """Return a `pyarrow.Table` as a data frame.

    Raises:
        DataError: The library is unknown or not installed.
    """
    if library is not None and library not in LIBRARIES:
        raise DataError(f"unknown library of data frames {library!r}; choose one of {', '.join(LIBRARIES)}")
    if library != "pyarrow":
        try:
            frames = import_module(library or "pandas")
        except ImportError as error:
            if library is not None:
                raise DataError(f"{library} is not installed: pip install {library}, or ask for 'pyarrow'") from error
        else:
            return frames.from_arrow(arrow) if library == "polars" else arrow.to_pandas()
    return arrow


def notebook_html(lead: str, tables: Sequence[Table]) -> str:
    """Return a result for a notebook: the leading sentence, the first table, and further tables to unfold."""
    first, *others = tables
    leading = f"<p><strong>{escape(lead)}</strong></p>" if lead else ""
    more = (
        f"<details><summary>{escape(table.title)}</summary>{html_table(table, caption=False)}</details>"
        for table in others
    )
    css = f"{_IN_A_NOTEBOOK}{style('tables')}}}"
    return f'<div class="suffice"><style>{css}</style>{leading}{html_table(first)}{"".join(more)}</div>'
