"""The user's options for a table, and the settings for reading its rows once the meaning of its columns is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from suffice.common.tables import cut_list
from suffice.errors import SchemaError
from suffice.importers.answers.golds import are_lists, are_single_texts, ask_about_gold_lists, gold_form, says_lists
from suffice.importers.columns.grid import AFTER_MARK, IN_BOX, Grid, are_texts, gold_texts
from suffice.importers.columns.table_columns import ColumnMap
from suffice.importers.files.records import Record, column_names
from suffice.importers.guesses.last_choices import refuse_what_no_name_says
from suffice.importers.guesses.unread import refuse_one_id, refuse_unique_ids, refuse_unread_rounds
from suffice.importers.questions.block_ids import refuse_ids_of_rows
from suffice.importers.rows.numbering import lowest_round
from suffice.policy.rounds import End
from suffice.policy.signals.position import AnswerPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The user's options for reading a table; see `read_tabular`.

    Attributes:
        joined: The columns of the joined file of gold answers; empty without such a file.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    log_golds: Literal["keep", "drop"] | None = None
    first_round: int | None = None
    ended: End | None = None
    samples: bool = False
    where: Mapping[str, str] = field(default_factory=dict)
    file_is: Literal["round", "model", "run", "question"] | None = None
    answer_position: AnswerPosition | None = None
    normalizer: str | None = None
    trial_cost: float | None = None
    repeated: Literal["first", "last"] | None = None
    keeps_copies: bool = False
    joined: frozenset[str] = frozenset()


def grid_of(path: Path, rows: Sequence[Record], plan: ColumnMap, options: TableOptions) -> Grid:
    """Return the settings for reading the rows of a table; raise if they leave the ids of questions or the rounds open.

    A note on the form of the gold answers is added to `plan`.
    """
    if not {"round", "question_id"} <= plan.columns.keys():
        refuse_unread_rounds(rows, plan.columns)
    if "round" not in plan.columns and "question_id" in plan.columns:
        if any(item.ours == "question_id" and item.how == "usual name" for item in plan.readings):
            refuse_unique_ids(rows, plan.columns)
        refuse_what_no_name_says(rows, plan.columns)
        there = f"there are: {cut_list(column_names(rows))}" if rows else "no record has a round there"
        raise SchemaError(
            f"{path}: there is one row for each {plan.columns['question_id']!r:.60}, and no list or numbered columns with several "
            f"rounds; {there}. If rows are rounds of one question, --column question_id=COLUMN "
            f"names it; for a field that lists them, --column rounds=FIELD; for a column each, --column "
            "rounds=FIRST,SECOND. Last answers alone have nothing to stop: log every round"
        )
    if "question_id" not in plan.columns:
        refuse_what_no_name_says(rows, plan.columns)
    if {"round", "question_id"} <= plan.columns.keys() and "question_id" not in options.columns:
        refuse_ids_of_rows(rows, plan.columns)
    if "question_id" in plan.columns and "question_id" not in options.columns:
        refuse_one_id(rows, plan.columns, plan.formulas)
    answers, golds = ([row.values.get(plan.columns.get(ours, "")) for row in rows] for ours in ("answer", "golds"))
    are_items = options.normalizer == "unordered"
    listed = not (are_items or says_lists(answers, golds))
    are_single = not are_items and are_single_texts(answers, golds)
    grid = Grid(
        columns=plan.columns,
        metrics=plan.metrics,
        labels=plan.labels,
        first_round=lowest_round(rows, plan, options.first_round),
        ended=options.ended,
        strict=True,
        listed_golds=listed,
        list_answers=not are_single and (are_items or are_lists(answers, golds)),
        single_answers=are_single,
        gold_form=gold_form(golds, answers),
    )
    if grid.gold_form:
        forms = {AFTER_MARK: f"what follows {AFTER_MARK!r}", IN_BOX: r"what '\boxed{}' contains"}
        what = forms.get(grid.gold_form, f"alternatives, separated by {grid.gold_form!r}")
        plan.notes.append(f"the gold answers are {what} in {plan.columns['golds']!r}")
    if options.normalizer is None and not grid.list_answers and options.answer_position is None:
        pairs = [
            pair for pair in zip(golds, answers, strict=True) if isinstance(pair[0], str | list) and are_texts(pair[0])
        ]
        ask_about_gold_lists((gold_texts(gold, "", listed=listed, form=grid.gold_form), own) for gold, own in pairs)
    grid.check(path, [*column_names(rows), *plan.formulas])
    return grid
