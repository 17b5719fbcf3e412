"""Tables as values, printed as text, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from suffice.errors import DataError

CAUTION = "caution: "
"""The beginning of notes that are printed before a result: the data may not be what they were taken for."""

_TIES_UP = 1 + 1e-12
_NAME_CHARACTERS = 60
_LISTED_CHARACTERS = 160
"""The most characters of names that `cut_list` shows."""

_LATEX_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "Δ": r"$\Delta$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        spec: Format specification for numbers, such as ``.2f`` or ``+.1f``; empty for text.
        scale: Factor by which numbers are multiplied before printing: 100 for shares shown in points.
        interval: True if the column's values are triples ``(value, low, high)``. They are printed as ``value [low, high]``, or
            as ``value [n/a]`` if low and high are undefined.  In any column, with `interval` or without, a pair
            ``(low, high)`` is the range of an unknown value, and printed as ``low .. high``.
    """

    name: str
    spec: str = ""
    scale: float = 1.0
    interval: bool = False

    def text(self, value: Any) -> str:
        """Format a value for printing; a dash if it is undefined.

        >>> Column("dF1", "+.1f", scale=100, interval=True).text((0.017, -0.01, 0.047))
        '+1.7 [-1.0, +4.7]'
        >>> Column("calls", ".2f").text(float("nan")), Column("rule").text(None)
        ('-', '-')
        >>> Column("F1", ".1f", scale=100).text((0.42, 0.587)), Column("calls", ".2f").text((3.1, math.inf))
        ('42.0 .. 58.7', '≥ 3.10')
        >>> Column("dF1", "+.1f", scale=100, interval=True).text((0.017, math.nan, math.nan))
        '+1.7 [n/a]'
        """
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "-"
        if isinstance(value, tuple):
            *middle, low, high = (self._number(part) for part in value)
            if not middle:
                return f"≥ {low}" if math.isinf(value[1]) else f"{low} .. {high}"
            return f"{middle[0]} [n/a]" if low == high == "-" else f"{middle[0]} [{low}, {high}]"
        return self._number(value)

    def _number(self, value: Any) -> str:
        if not self.spec or isinstance(value, str | bool):
            return str(value)
        if isinstance(value, int):
            return format(value if self.scale == 1 else value * self.scale, self.spec)
        # Equal means may differ in the last bit; if that bit decides the rounding, they must still print as one number.
        return "-" if math.isnan(value) else format(value * self.scale * _TIES_UP, self.spec)

    @property
    def numeric(self) -> bool:
        """True if the column is aligned to the right."""
        return bool(self.spec)


def figure(value: float | tuple[float, ...], spec: str, scale: float = 1.0) -> str:
    """Format a figure for a sentence as in tables, so that a mean is rounded the same way everywhere.

    >>> figure(4.435, ".2f"), f"{4.435:.2f}", figure((0.017, -0.01, 0.047), "+.1f", 100)
    ('4.44', '4.43', '+1.7 [-1.0, +4.7]')

    Args:
        value: A number, an interval ``(value, low, high)``, or a range ``(low, high)``.
        spec: Format specification as in `Column`.
        scale: Factor as in `Column`.
    """
    return Column("", spec, scale, interval=True).text(value)


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the singular or plural.

    >>> counted(1, "question"), counted(1200, "question"), counted(2, "trajectory", "trajectories")
    ('1 question', '1,200 questions', '2 trajectories')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def cut_list(names: Iterable[str]) -> str:
    """Join names for a message; cut a long list, and say how many names are left out.

    >>> cut_list(["a", "b"]), cut_list(f"column_{n}" for n in range(500))[-33:], len(cut_list(["x" * 1000]))
    ('a, b', 'column_16, column_17 and 482 more', 60)
    """
    left = [*names]
    shown: list[str] = []
    while left and (not shown or sum(map(len, shown)) + len(left[0]) <= _LISTED_CHARACTERS):
        name = left.pop(0)
        shown.append(name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 3]}...")
    return ", ".join(shown) + (f" and {len(left):,} more" if left else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its raw values.

    Attributes:
        rows: The rows, with one value for each column: text, a number (NaN or None = undefined), a triple for an interval,
            or a pair for the range of an unknown value.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise DataError(f"the table {self.title!r} has {len(self.columns)} columns and a row of {len(row)}")

    @classmethod
    def of(
        cls,
        title: str,
        items: Iterable[Any],
        columns: Mapping[Column, str | Callable[[Any], Any]],
        notes: Sequence[str] = (),
    ) -> Table:
        """Build a table with one row for each item.

        Each column is given the name of an attribute of the items, or a function that is called with an item.

        >>> Table.of("T", [1 + 2j], {Column("real", ".0f"): "real", Column("size", ".2f"): abs}).texts()
        [['1', '2.24']]
        """
        getters = [attrgetter(value) if isinstance(value, str) else value for value in columns.values()]
        rows = tuple(tuple(value(item) for value in getters) for item in items)
        return cls(title=title, columns=tuple(columns), rows=rows, notes=tuple(notes))

    def with_columns(self, places: Sequence[int]) -> Table:
        """Return the table with only the columns at these places, in the order of the places."""
        columns = tuple(self.columns[place] for place in places)
        return replace(self, columns=columns, rows=tuple(tuple(row[place] for place in places) for row in self.rows))

    def texts(self) -> list[list[str]]:
        """Return every cell as printed."""
        return [[column.text(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def flat(self) -> tuple[list[str], list[list[Any]]]:
        """Return column names and rows of raw values; NaN becomes None, an interval or range becomes three columns."""
        wide = [
            column.interval or any(isinstance(row[place], tuple) for row in self.rows)
            for place, column in enumerate(self.columns)
        ]
        names: list[str] = []
        for column, ends in zip(self.columns, wide, strict=True):
            names += [column.name, f"{column.name} low", f"{column.name} high"] if ends else [column.name]
        rows: list[list[Any]] = [[] for _ in self.rows]
        for flat, row in zip(rows, self.rows, strict=True):
            for ends, value in zip(wide, row, strict=True):
                parts = value if isinstance(value, tuple) else (value, None, None) if ends else (value,)
                flat += [_plain_value(part) for part in (parts if len(parts) != 2 else (None, *parts))]  # noqa: PLR2004
        return names, rows

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready raw values, unscaled.

        NaN becomes None.  An interval or a range becomes an object with `value`, `low` and `high`.
        """
        names = [column.name for column in self.columns]
        rows = [dict(zip(names, map(_plain_value, row), strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": list(self.notes)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return dict(zip(("value", "low", "high")[-len(value) :], map(_plain_value, value), strict=True))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_HTML = re.compile("<(?=[A-Za-z/!?])")


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(_HTML.sub("&lt;", cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    rule = line(["---:" if column.numeric else "---" for column in table.columns])
    body = [line([column.name for column in table.columns]), rule, *map(line, table.texts())]
    notes = [f"\n{note}" for note in table.notes]
    return "\n".join([f"**{table.title}**\n", *body, *notes]) + "\n"


def _latex(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cell.translate(_LATEX_ESCAPES) for cell in cells) + r" \\"

    align = "".join("r" if column.numeric else "l" for column in table.columns)
    head = [
        r"\begin{table}",
        rf"\caption{{{table.title.translate(_LATEX_ESCAPES)}}}",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
    ]
    body = [line([column.name for column in table.columns]), r"\midrule", *map(line, table.texts())]
    notes = [rf"\par\footnotesize {note.translate(_LATEX_ESCAPES)}" for note in table.notes]
    return "\n".join([*head, *body, r"\bottomrule", r"\end{tabular}", *notes, r"\end{table}"]) + "\n"


def _inert(value: Any) -> Any:
    """Escape a cell that a spreadsheet would interpret as a formula."""
    formula = isinstance(value, str) and len(value) > 1 and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


def _csv(table: Table) -> str:
    """Return a table as CSV of raw values; intervals and ranges become three columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names, rows = table.flat()
    writer.writerow(names)
    writer.writerows([_inert(cell) for cell in row] for row in rows)
    return out.getvalue()


FORMATS = {"md": _markdown, "latex": _latex, "csv": _csv}
"""The text formats of `render`."""


def render(tables: Sequence[Table], form: str) -> str:
    r"""Format tables as text in one of `FORMATS`, a blank line between them.

    >>> print(render([Table(title="T", columns=(Column("rule"), Column("calls", ".1f")), rows=(("tasr", 3.13),))], "csv"))
    rule,calls
    tasr,3.13
    <BLANKLINE>
    """
    if form not in FORMATS:
        raise DataError(f"{form!r} is not a table format; choose one of {', '.join(FORMATS)}")
    return "\n".join(FORMATS[form](table) for table in tables)


def facts_table(title: str, facts: Mapping[str, Any]) -> Table:
    """Return a table of two columns, name and value, without empty facts."""
    rows = tuple((name, str(value)) for name, value in facts.items() if value not in (None, "", (), {}, []))
    return Table(title=title, columns=(Column("what"), Column("value")), rows=rows)
