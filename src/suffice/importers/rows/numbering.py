"""Put the rows of a table in order, with computed question ids, and with round numbers if no column has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from suffice.importers.columns.closed_book import counts_from_0, is_of_evidence, only_later_have_evidence
from suffice.importers.columns.grid import whole_number
from suffice.importers.columns.table_columns import ColumnMap
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.rows.row_times import tied_note
from suffice.importers.rows.runs import RowOrder, row_order, run_id
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.names import is_round_name, last_name


def in_order(
    shape: Shape,
    plan: ColumnMap,
    *,
    ignored: Collection[str] = (),
    samples: bool = False,
    runs: Sequence[str] = (),
    trusted: str = "",
) -> tuple[list[Record], RowOrder | None]:
    """Add computed ids and round numbers to rows.

    Also return the order of the rows; None if a column of the table already numbers the rounds.
    """
    key = plan.columns.get("question_id")
    if key is not None and key in {theirs for ours, theirs in plan.columns.items() if ours != "question_id"}:
        # The ids of runs must not change the text of the question.
        plan.columns["question_id"] = "question_id"
        plan.formulas["question_id"] = lambda row: row.values.get(key)
    rows = with_ids(shape.rows, plan)
    order = row_order(
        rows, plan, is_ordered=shape.is_ordered, ignored=ignored, samples=samples, declared=runs, trusted=trusted
    )
    if order is None:
        return rows, None
    rows, time = order.numbered(rows)
    order = replace(order, time=time)
    if time:
        plan.notes += tied_note(rows, [run_id(row, (order.key, *order.runs)) for row in rows], time)
    if "round" not in plan.columns:
        how = f"order of {time!r}" if time else "order of the rows"
        plan.read(
            "round", order.column, "no column counts rounds", "number in the name of the file" if order.head else how
        )
    return rows, order


def with_ids(rows: Sequence[Record], plan: ColumnMap) -> list[Record]:
    """Add a column of question ids to rows if the ids are computed."""
    key = plan.columns.get("question_id", "")
    make = plan.formulas.get(key)
    return [*rows] if make is None else with_column(rows, key, map(make, rows))


def lowest_round(rows: Sequence[Record], plan: ColumnMap, first_round: int | None) -> int | None:
    """Return the index of the lowest round; None to ask the user.

    If `first_round` is given, it is returned.  Otherwise, the index is 1 if drafts, steps or attempts are numbered from 0: the first is
    a call like the others.  This does not hold if all but the first have retrieved evidence.
    """
    name = plan.columns.get("round", "round")
    plain = last_name(name)
    if (
        first_round is not None
        or not is_round_name(plain)
        or plain.startswith(("round", "depth"))
        or "p_known" in plan.columns
    ):
        return first_round
    are_first = [whole_number(str(row.values.get(name))) == 0 for row in rows]
    return 1 if any(are_first) and not only_later_have_evidence(rows, are_first) else None


def refuse_items_from_0(rows: Sequence[Record], plan: ColumnMap, used: Collection[str]) -> None:
    """Raise if an unused field may be the round number, since it numbers the items of lists from 0.

    This is in doubt if only items after the first have evidence.
    """
    reading = next((item for item in plan.readings if item.ours == "round"), None)
    if (
        reading is None
        or reading.how != "shape"
        or not reading.theirs.startswith("order in ")
        or "p_known" in plan.columns
    ):
        return
    places = [whole_number(str(row.values.get(plan.columns["round"]))) for row in rows]
    if not any(place != 1 for place in places) or not only_later_have_evidence(rows, [place == 1 for place in places]):
        return
    known = {*used, *plan.columns.values(), *plan.metrics.values(), *plan.sources}
    for name in [name for name in column_names(rows) if name not in known and not is_of_evidence(name)]:
        numbers = (whole_number(str(row.values.get(name))) for row in rows)
        if all(place is not None and number == place - 1 for place, number in zip(places, numbers, strict=True)):
            raise counts_from_0(name)
