"""Tables of rounds in any shape, with names of columns guessed, or mapped from this library's names to the table's.

One row for each question and round, in any order; or one record for each question, with its rounds in a list or in numbered
columns::

    read_tabular("runs.csv", {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "p_correct": "conf"})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from suffice.adapters.base import ImportedRun, ImportedTrajectory
from suffice.adapters.grid import Grid, group_trajectories
from suffice.adapters.guesses import ColumnMap, guess_columns, is_long
from suffice.adapters.names import RUNS, TIMES, is_round_name, plain_name
from suffice.adapters.records import Record, records_of
from suffice.adapters.shapes import ROUNDS, unfold
from suffice.adapters.tally import Tally
from suffice.adapters.traces.files import nanoseconds
from suffice.errors import DataError
from suffice.rounds import End
from suffice.seen import one_name_per_text
from suffice.tables import counted

__all__ = ["grid_of", "in_order", "read_tabular"]


def read_tabular(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log_golds: Literal["keep", "drop"] | None = None,
    first_round: int | None = None,
    ended: End | None = None,
) -> ImportedRun:
    """Read rounds from a CSV, TSV, JSON, JSON lines or parquet file, gzipped or not, or from a folder of such files.

    A table may be long (a row for each question and round), wide (``answer_1``, ``answer_2``, ...), or nested (the rounds of a
    question in a list: `steps`, `attempts`, `messages`, ...).

    This library's names: `question_id` and `round`, `answer`, `golds` (a text, or a JSON list of texts),
    `question`, `cluster`, `end`, `text`, `feedback`, `finish_reason`; metrics (`em`, `f1`, `contains`), computed from answer
    and golds where the table lacks them; every signal (`suffice data signals`); costs as ``cost.<component>.<kind>``; `rounds`
    for the field that contains the list of rounds.  Any other mapped name becomes a new signal.  What is not mapped is guessed
    by usual names (`readings` says how); other columns are kept unchanged.

    Args:
        path: The table, or the folder.
        columns: This library's name to the table's column, besides columns that have these names already; empty to ignore
            one of those.
        metrics: Further metrics, in [0, 1], by name.
        labels: Texts that are the same in all rounds of a question, by name.  A `model` or `prompt_id` that is the same
            everywhere becomes what policies fitted on the run depend on.
        log_golds: What to do with the table's gold answers: `keep` them although they equal the last answers, or `drop` them.
            None = keep them unless they equal the last answers, which is an error.
        first_round: The number of the table's lowest round, 0 (closed book) or 1 (the first evidence or draft); None to
            keep the table's numbers.
        ended: Why trajectories are shorter than the longest one, where the table has no `end`: `rule` marks
            them censored, `exhausted` says that there was no more evidence, `max_rounds` that each had a cap of its own.  None =
            `rule`: the loop's own stops, beyond which nothing is known.

    Raises:
        UnsettledError: The table can be read in several ways: several columns may be the answer or the rounds, rounds count from
            0, or gold answers equal the last answers.
        DataError: A value cannot be used, or is out of its signal's range; the message names file and row.
        SchemaError: The file is of another kind, or lacks a column.
    """
    path = Path(path)
    column_map = dict(columns or {})
    shape = unfold(
        _table_records(path), column_map.pop(ROUNDS, None), is_long=lambda rows: "round" in column_map or is_long(rows)
    )
    plan = guess_columns(column_map, metrics or {}, labels or {}, shape=shape)
    if log_golds == "drop":
        plan.drop("golds")
    rows, notes = in_order(shape.rows, plan)
    grid = grid_of(path, rows, plan, first_round=first_round, ended=ended)
    rows, clusters, run_notes = _told_apart(rows, plan)
    trajectories = group_trajectories([(row.where, row.values) for row in rows], grid, str(path))
    trajectories = _clustered(trajectories, clusters, has_clusters="cluster" in plan.columns)
    notes += [shape.how] if shape.how else []
    if shape.skipped:
        notes.append(f"{counted(shape.skipped, 'record')} without a round left out")
    notes += run_notes
    tally = Tally()
    tally.add(trajectories)
    if log_golds is None:
        tally.refuse_copied_golds(plan.columns.get("golds", ""))
    return ImportedRun(
        source="tabular",
        trajectories=trajectories,
        notes=[*notes, *tally.notes(plan, grid)],
        depends=tally.depends(),
        readings=plan.readings,
    )


def _table_records(path: Path) -> list[Record]:
    records = list(records_of(path))
    if not records:
        raise DataError(f"{path}: no rows; expected one for each question and round, or one for each question")
    return records


def grid_of(path: Path, rows: Sequence[Record], plan: ColumnMap, *, first_round: int | None, ended: End | None) -> Grid:
    """Return how the rows of a table are read.

    Raises:
        DataError: A name cannot be used.
        SchemaError: The table has no id of a question, no number of a round, or not a column that is mapped.
    """
    grid = Grid(
        columns=plan.columns,
        metrics=plan.metrics,
        labels=plan.labels,
        first_round=_first_round(rows, plan, first_round),
        ended=ended,
        strict=True,
        listed_golds=not _says_lists(rows, plan.columns.get("answer")),
    )
    grid.check(path, _names(rows))
    return grid


def _says_lists(rows: Sequence[Record], answer: str | None) -> bool:
    """Return whether answers are lists themselves, so that a gold answer in brackets is one text."""
    return answer is not None and any(str(row.values.get(answer))[:1] == "[" for row in rows)


def in_order(rows: Sequence[Record], plan: ColumnMap) -> tuple[list[Record], list[str]]:
    """Return the rows with the columns that are made from others, and notes; rows without numbers count in their order."""
    columns, notes = plan.columns, []
    counted_rows = [
        replace(row, values={**row.values, **{name: make(row) for name, make in plan.formulas.items()}}) for row in rows
    ]
    if "round" not in columns and "question_id" in columns:
        ids = [str(row.values.get(columns["question_id"])) for row in counted_rows]
        if len(set(ids)) < len(ids):
            name, order = _order_by_time(counted_rows, ids)
            seen: Counter[str] = Counter()
            for place in order:
                row = counted_rows[place]
                seen[ids[place]] += 1
                counted_rows[place] = replace(row, values={**row.values, "round": seen[ids[place]]})
            how = f"order of {name!r}" if name else "order of the rows"
            plan.read("round", "round", "no column counts rounds", how)
            by = f"by {name!r}" if name else "in their order"
            notes.append(f"no column counts rounds: the rows of a question are its rounds, {by}")
    return counted_rows, notes


def _order_by_time(rows: Sequence[Record], ids: Sequence[str]) -> tuple[str, Sequence[int]]:
    """Return the column of times that orders the rows of each question, and that order; no name and that of the file without one."""
    for name in [name for name in _names(rows) if plain_name(name).rpartition(".")[2] in TIMES]:
        try:
            times = [nanoseconds(row.values.get(name), row.where) for row in rows]
        except DataError:
            continue
        known = [time for time in times if time is not None]
        if len(known) == len(rows) == len(set(zip(ids, known, strict=True))):
            return name, sorted(range(len(rows)), key=known.__getitem__)
    return "", range(len(rows))


def _first_round(rows: Sequence[Record], plan: ColumnMap, first_round: int | None) -> int | None:
    """Return the number of the lowest round: drafts, steps or attempts that count from 0 are never the model alone."""
    name = plan.columns.get("round", "round")
    plain = plain_name(name).rpartition(".")[2]
    if (
        first_round is not None
        or not is_round_name(plain)
        or plain.startswith(("round", "depth"))
        or "p_known" in plan.columns
    ):
        return first_round
    return 1 if any(str(row.values.get(name)).strip() in ("0", "0.0") for row in rows) else None


def _told_apart(rows: Sequence[Record], plan: ColumnMap) -> tuple[list[Record], dict[str, str], list[str]]:
    """Return rows of which none has the question and round of another, the question of each id, and notes.

    A question that several files, models or runs answered has a trajectory for each, clustered by the question.
    """
    key, number = plan.columns["question_id"], plan.columns["round"]

    def clash(names: Sequence[str]) -> bool:
        pairs = {
            (str(row.values.get(key)), str(row.values.get(number)), *(str(row.values.get(n)) for n in names))
            for row in rows
        }
        return len(pairs) < len(rows)

    if not clash(()):
        return list(rows), {}, []
    if len({row.file for row in rows}) > 1:
        first: dict[str, str] = {}
        for row in rows:
            first.setdefault(str(row.values.get(key)), row.file)
        with_file = [row.file if first[str(row.values.get(key))] != row.file else "" for row in rows]
        return _renamed(rows, key, with_file, "file")
    names = [name for name in _names(rows) if plain_name(name).rpartition(".")[2] in RUNS and name not in (key, number)]
    run = next((name for name in names if not clash((name,))), None)
    if run is not None:
        return _renamed(rows, key, [str(row.values.get(run)) for row in rows], run)
    if "question_id" not in plan.formulas and len({row.number for row in rows}) < len(rows):
        occurs: dict[str, dict[int, int]] = {}
        for row in rows:
            own = occurs.setdefault(str(row.values.get(key)), {})
            own.setdefault(row.number, len(own) + 1)
        numbers = [occurs[str(row.values.get(key))][row.number] for row in rows]
        return _renamed(rows, key, [str(n) if n > 1 else "" for n in numbers], "number")
    return list(rows), {}, []


def _names(rows: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.values))


def _renamed(
    rows: Sequence[Record], key: str, runs: Sequence[str], what: str
) -> tuple[list[Record], dict[str, str], list[str]]:
    clusters, result = {}, []
    for row, run in zip(rows, runs, strict=True):
        question = str(row.values.get(key))
        own = f"{question}@{run}" if run else question
        clusters[own] = question
        result.append(replace(row, values={**row.values, key: own}))
    several = sum(n > 1 for n in Counter(clusters.values()).values())
    note = f"{counted(several, 'question')} with several runs: each run has the id {key}@{what}, and a question is one cluster"
    return result, clusters, [note]


def _clustered(
    trajectories: Sequence[ImportedTrajectory], clusters: Mapping[str, str], *, has_clusters: bool
) -> list[ImportedTrajectory]:
    if has_clusters:
        return list(trajectories)
    own = [clusters.get(item.question_id, item.question_id) for item in trajectories]
    names = one_name_per_text(own, [item.question for item in trajectories])
    return [replace(item, cluster=name) for item, name in zip(trajectories, names, strict=True)]
