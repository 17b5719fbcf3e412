"""Find questions that are identified only by several columns together, such as a document, a segment and a language."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, islice, pairwise, permutations

from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.shapes.shape import Shape, changed_by
from suffice.importers.words.choices import Choices, of_options
from suffice.importers.words.id_names import is_id_name, is_run_name
from suffice.importers.words.names import ends_with_round, is_pass_name, is_round_name, last_name

_PAIR = 2
_MOST_PARTS, _CANDIDATES, _TRIED, _OFFERED = 4, 8, 400, 2
"""The most columns of an id, the most columns of which it is made, the most combinations that are tried, and the most ids offered."""

_MOST_ROUNDS, _QUESTIONS, _ROWS_OF_ONE = 20, 5, 1.5
"""The most rounds, the fewest questions, and the fewest rows of a question on average, if a column counts its rounds."""

_LONGEST = 40
"""The most characters of a part of an id."""


def with_compound_ids(shape: Shape, columns: dict[str, str]) -> Shape:
    """Add a column of ids made of several columns, if the user names several, as in ``question_id=doc_id,segment``."""
    theirs = columns.get("question_id", "")
    names, parts = {*column_names(shape.rows)}, [part.strip() for part in theirs.split(",")]
    if theirs in names or len(parts) == 1 or not names.issuperset(parts):
        return shape
    columns["question_id"] = own = ",".join(parts)
    outer = shape.outer | ({own} if shape.outer.issuperset(parts) else set())
    joined = partial(_joined, parts=parts)
    return replace(changed_by(shape, lambda rows: with_column(rows, own, map(joined, rows))), outer=outer)


def _joined(row: Record, parts: Sequence[str]) -> str | None:
    values = [row.values.get(part) for part in parts]
    return None if None in values else "/".join(map(str, values))


def compound_choices(
    table: TableColumns, used: Collection[str], key: str = "", counter: str = "", *, names_counter: bool = False
) -> Choices:
    """Return the options that read several columns together as the question id, if another column numbers the rows of each id.

    Args:
        table: The rows.
        used: Columns whose meaning is known.
        key: A column that is a part of the id; "" if none is known.
        counter: The column of round numbers; "" if none is known.
        names_counter: Whether the options also set the column of round numbers to `counter`.  Without `counter`, they always set it.
    """
    free = [name for name in table.names if name not in {*used, key, *_own_parts(table, key)}]
    counters = [counter] if counter else [name for name in free if _may_count(table, name)]
    found = [(name, ids) for name in counters if (ids := _parts(table, free, key, name))]
    found.sort(key=lambda item: _rank(table, *item))
    result: Choices = {}
    for name, ids in found[:_OFFERED]:
        columns = {"question_id": ",".join(ids)} | ({"round": name} if names_counter or not counter else {})
        result |= of_runs(ids, name)
        listed = f"{', '.join(map(repr, ids[:-1]))} and {ids[-1]!r}"
        meaning = f"{listed} name a question together, whose rounds {name!r} counts"
        result |= of_options(meaning, columns=columns)
    return result


def of_runs(ids: Sequence[str], counter: str) -> Choices:
    """Return the options that read one of two columns in `ids` as the question's id, and a second column as the run.

    The second column is the other one in `ids`, or `counter`, whichever is named like runs; without such a name, there are no options.
    """
    result: Choices = {}
    for question, part in permutations(ids) if len(ids) == _PAIR else ():
        if is_run_name(question) or is_round_name(last_name(question)) or is_pass_name(question):
            continue
        if is_run_name(part):
            meaning = f"{question!r} names the question, and {part!r} its runs, whose rounds {counter!r} counts"
            result |= of_options(meaning, columns={"question_id": question, "run": part, "round": counter})
        elif is_run_name(counter) and (is_round_name(last_name(part)) or is_pass_name(part)):
            meaning = f"{question!r} names the question, and {counter!r} its runs, whose rounds {part!r} counts"
            result |= of_options(meaning, columns={"question_id": question, "run": counter, "round": part})
    return result


def counts_once(table: TableColumns, ids: Sequence[str], counter: str) -> bool:
    """Return whether a column numbers the rows of each id without gaps or copies; an id may consist of several columns.

    The numbers of all ids start at 0, or all start at 1.
    """
    groups = _groups(table, ids, counter)
    lowest = min(map(min, groups.values()), default=2)
    return lowest <= 1 and all(sorted(own) == [*range(lowest, lowest + len(own))] for own in groups.values())


def _groups(table: TableColumns, ids: Sequence[str], counter: str) -> dict[tuple[str, ...], list[int]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    keys = zip(*(map(str, table.column(name)) for name in ids), strict=True)
    for key, number in zip(keys, table.column(counter), strict=True):
        groups.setdefault(key, []).append(int(float(number)))
    return groups


def _own_parts(table: TableColumns, key: str) -> list[str]:
    """Return the columns of which the id `key` consists: several, one, or none if `key` is ""."""
    parts = [part.strip() for part in key.split(",")] if key else []
    return parts if len(parts) > 1 and {*parts} <= {*table.names} else [key] * bool(key)


def _may_count(table: TableColumns, name: str) -> bool:
    return table.counts(name) and 1 < len({*map(str, table.column(name))}) <= _MOST_ROUNDS


def _parts(table: TableColumns, free: Sequence[str], key: str, counter: str) -> list[str]:
    """Return the fewest columns that together identify questions, so that `counter` numbers the rows of each question.

    Return an empty list if no columns identify questions, or if a single column does.
    """
    if not table.counts(counter):
        return []
    names = [name for name in free if name != counter and _may_be_part(table, name)]
    names = sorted(names, key=lambda name: not is_id_name(name))[:_CANDIDATES]
    names.sort(key=table.names.index)
    if any(counts_once(table, [name], counter) for name in names):
        return []
    first = _own_parts(table, key)
    for ids in islice(_combinations(first, names), _TRIED):
        if counts_once(table, ids, counter):
            groups = _groups(table, ids, counter)
            is_usable = len(groups) >= _QUESTIONS and len(table.rows) >= _ROWS_OF_ONE * len(groups)
            return sorted(ids, key=table.names.index) if is_usable else []
    return []


def _combinations(first: Sequence[str], names: Sequence[str]) -> Iterator[list[str]]:
    for n in range(max(1, 2 - len(first)), _MOST_PARTS + 1 - len(first)):
        for own in combinations(names, n):
            yield [*first, *own]


def _may_be_part(table: TableColumns, name: str) -> bool:
    """Return whether a column may be a part of an id: it has short texts or whole numbers that repeat."""
    values = table.column(name)
    texts = {*map(str, values)}
    is_word = all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
    return (
        is_word and not has_decimals(texts) and 1 < len(texts) <= len(values) / 2 and max(map(len, texts)) <= _LONGEST
    )


def has_decimals(texts: Iterable[str]) -> bool:
    """Return whether some text is a number with a decimal point or comma, as a score may be and a name is not.

    >>> has_decimals(["0.61", "1"]), has_decimals(["v1.2", "2"])
    (True, False)
    """
    points = (text.replace(",", ".") for text in texts)
    return any(text.count(".") == 1 and text.replace(".", "").isdigit() for text in points)


def _rank(table: TableColumns, counter: str, ids: Sequence[str]) -> tuple[bool, bool, int]:
    """Return a sort key for counters: counters named like rounds come first, then those whose ids have their rows together."""
    keys = [*zip(*(map(str, table.column(name)) for name in ids), strict=True)]
    blocks = 1 + sum(one != other for one, other in pairwise(keys))
    is_named = is_round_name(last_name(counter)) or ends_with_round(counter)
    return not is_named, blocks > len({*keys}), table.names.index(counter)
