"""Find ids of records with unusual names, such as `ticket` with HD-1000, HD-1001, ..., if each record is a question."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.questions.counted_ids import means_no_question
from suffice.importers.words.names import ANSWERS, GOLDS, last_name, plain_name

_CODE = re.compile(r"(?=\D*\d)(?=.*[^\W\d_])(?!\d{4}-\d\d-\d\d)[\w.:#/-]{1,64}")
"""A word with a letter and a digit, which is no date."""

_LETTERS = re.compile(r"[^\W\d_][^\d\s]*\d[^\s]*")
"""A word that ends with a number or more after letters, so that it is no amount."""


def ids_of_records(table: TableColumns, names: Sequence[str], outer: Collection[str]) -> list[str]:
    """Return the column with the record's own id, as a list of one name; empty if there is none.

    Its values are unique.  In addition, its name ends with `_id`, as `ticket_id` does, or its values look like ids.  Values look like
    ids if they differ only in their numbers, as HD-1 and HD-2 do.  In the first column, codes with digits or rising whole numbers
    are enough.

    Args:
        table: Rows of rounds; each record has one question.
        names: The columns that may be ids.
        outer: The columns about the whole record.
    """
    records = [row.number for row in table.rows]
    n = len({*records})
    own = [name for name in table.names if name in outer and "." not in name]
    unique = [
        name
        for name in own
        if name in names and table.constant_in(name, records) and len({*map(str, table.column(name))}) == n
    ]
    called = [name for name in unique if plain_name(name).endswith("_id")]
    others = [name for name in unique if not means_no_question(name) and last_name(name) not in (*GOLDS, *ANSWERS)]
    alike = [name for name in others if n > 1 and _look_like_ids(table, name, is_first=name == own[0])]
    return (called or alike)[:1]


def _look_like_ids(table: TableColumns, name: str, *, is_first: bool) -> bool:
    values = [*dict.fromkeys(map(str, table.column(name)))]
    if all(map(_LETTERS.fullmatch, values)) and len({re.sub(r"\d+", "0", value) for value in values}) == 1:
        return True
    if not is_first:
        return False
    is_rising = all(map(str.isdecimal, values)) and all(int(one) < int(other) for one, other in pairwise(values))
    return is_rising or all(map(_CODE.fullmatch, values))
