"""Read tables of rounds in any shape.

The meaning of columns is guessed, unless the user names the table's columns for this library's names.

A table has one row for each question and round, in any order; or one record for each question, with its rounds in a list or
in numbered columns::

    read_tabular("runs.csv", {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "p_correct": "conf"})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from suffice.importers.answers.columnar import score_rounds
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.guesses.table_settings import TableOptions
from suffice.importers.rounds.round_columns import trajectories_of
from suffice.importers.tables.table_source import WholeTable
from suffice.policy.rounds import End
from suffice.policy.signals.position import AnswerPosition


def read_tabular(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log_golds: Literal["keep", "drop"] | None = None,
    first_round: int | None = None,
    ended: End | None = None,
    samples: bool = False,
    where: Mapping[str, str] | None = None,
    file_is: Literal["round", "model", "run", "question"] | None = None,
    answer_position: AnswerPosition | None = None,
    normalizer: str | None = None,
    trial_cost: float | None = None,
    repeated: Literal["first", "last"] | None = None,
) -> ImportedRun:
    """Read rounds from a CSV, TSV, JSON, JSON lines or parquet file, gzipped or not, or from a folder of such files.

    A table may be long (a row for each question and round), wide (``answer_1``, ``answer_2``, ...), or nested (the rounds of a
    question in a list: `steps`, `attempts`, `messages`, ...).

    This library's names are:

    - `question_id`, `round`, `answer`, `golds` (a text, or a JSON list of texts), `question`, `cluster`, `end`, `text`, `feedback`
      and `finish_reason`
    - the metrics `em`, `f1` and `contains`; where the table lacks them, they are computed from answers and gold answers
    - every signal (`suffice data signals`)
    - ``cost.<component>.<kind>`` for costs
    - `rounds` for the field that contains the list of rounds

    Any other name in `columns` becomes a new signal.  If a column is not in `columns`, its meaning is guessed from usual names (see
    `readings`); columns without a usual name are kept unchanged.

    Args:
        path: The table, or the folder.
        columns: The table's column for each of this library's names, where the two differ.  "" means that the table has no such
            column.
        metrics: Further metrics, in [0, 1], by name.
        labels: Texts that are the same in all rounds of a question, by name.  Policies fitted on the run depend on a `model` or
        `prompt_id` that is the same in all rows.
        log_golds: `keep` or `drop` the log's gold answers, even if they equal the last answers; None = keep them, but raise if they
            equal the last answers.
        first_round: The number of the lowest round, 0 (closed book) or 1 (the first evidence or draft); None = as in the table.
        ended: The reason why trajectories are shorter than the longest one, if the table has no `end`: `rule` (the loop
            stopped, so that they are censored), `exhausted` (there was no more evidence) or `max_rounds` (each had a cap of its
            own).  None = `rule`.
        samples: Whether rows of a question are samples or answers of a panel, which need no order.  Rows of another model, system or
            file are then further samples.  Without `samples`, they are further runs of the question, unless the table counts rounds.
        where: Only rows with these values, by the table's column; `file` is the name of the file without its ending.
        file_is: For a folder: the meaning of file names, a `round`, a `model`, a `run` or a `question`; None = guessed from the names.
        answer_position: The position of the answer in a reply.  Replies are in the column `text` if there is one, else in the
            column of answers.
        normalizer: The comparison of answers, if known.  With `unordered`, a list of gold answers is read as one answer.
        trial_cost: For prefixes of chains of thought: the tokens that a trial answer costs; None = unknown.
        repeated: The row that counts if a question has a round several times: the `first` or the `last` row with an answer.  None =
            ask.

    Raises:
        NotFoundError: No row has a value of `where`.
        UnsettledError: The table can be read in several ways: several columns may be the answer or the rounds, rounds are numbered
        from 0, or gold answers equal the last answers.
        DataError: A value is invalid, or outside its signal's range; the message names file and row.
        SchemaError: The file is of another kind, or lacks a column.
    """
    given = {name: value for name, value in locals().items() if name != "path" and value is not None}
    source = WholeTable(Path(path), TableOptions(**given))
    (rounds,) = source.rounds()
    score_rounds(rounds)
    return ImportedRun(
        source="tabular",
        trajectories=trajectories_of(rounds),
        notes=source.notes(),
        depends={**source.tally.depends(), **source.prefixes.depends},
        readings=source.plan.readings,
    )
