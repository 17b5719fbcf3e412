"""Read a source as a run, by the importer of its format."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from suffice.errors import DataError, SufficeError
from suffice.importers.columnar import score_rounds
from suffice.importers.imported import ImportedRun
from suffice.importers.importers import NOT_OF_A_FORMAT, importer, is_archive_of_data, kind_of, reader_arguments
from suffice.importers.parted_run import PartedRun, run_of_table, run_of_trajectories
from suffice.importers.reply_answers import COLUMNS, refuse_whole_replies
from suffice.importers.round_columns import trajectories_of
from suffice.importers.sources import name_source, plain_source, single_rounds
from suffice.importers.table_parts import announce_size
from suffice.importers.table_source import TableOptions, WholeTable
from suffice.policy.embedding import Embedder
from suffice.policy.rounds import End
from suffice.policy.signals.position import AnswerPosition
from suffice.recordings.schema import column_kind


def read_run(
    path: Path, options: Mapping[str, Any], embedder: Embedder | None, folder: Callable[[], Path]
) -> PartedRun:
    """Read a source as a run.

    Args:
        path: A file or a folder; an archive, a database or prose is first converted to plain files.
        options: The options of the import that were given, by name.
        embedder: Embeds the answers, where the format needs it or the user asked.
        folder: Makes an empty folder for parts and plain files.

    Raises:
        UnsettledError: The source can be read in several ways.
        DataError: The format does not take an option, or nothing can be stopped earlier.
    """
    place = path
    try:
        place = plain_source(
            path, folder, query=options.get("query"), pattern=options.get("pattern"), is_archive=is_archive_of_data
        )
        run = _read_plain(place, options, embedder, folder)
    except SufficeError as error:
        name_source(error, place, path)
        raise
    if place.is_dir() and run.source == "tabular" and run.longest == 1 and run.n_clusters == run.ends.total():
        raise single_rounds(path, run.n_clusters)
    return run


def graded_scores(run: PartedRun) -> Iterator[str]:
    """Yield the names of the log's own scores of answers that are neither right nor wrong alone, such as a judge's from 0 to 1."""
    for item in run.schema:
        is_own = column_kind(item.name, item) == "metric" and item.name not in ("em", "f1")
        if is_own and any({*table.column(0).drop_null().to_pylist()} - {0.0, 1.0} for table in run.tables([item.name])):
            yield item.name


def _read_plain(
    path: Path, options: Mapping[str, Any], embedder: Embedder | None, folder: Callable[[], Path]
) -> PartedRun:
    """Read plain files; raise if their format does not take an option."""
    kind = options.get("kind") or kind_of(path)
    read = importer(kind)
    takes = inspect.signature(read).parameters
    wrong = [name for name in options if name not in {*takes, *NOT_OF_A_FORMAT}]
    if wrong:
        raise DataError(f"files of the format {kind!r} do not take {wrong[0]!r}; leave it out")
    golds, arguments = options.get("golds"), reader_arguments(options, takes)
    if read is read_tabular:
        result = run_of_table(
            path,
            TableOptions(**arguments),
            folder=folder,
            golds=golds,
            embedder=embedder,
            announce=lambda: announce_size(path, kind),
        )
        refuse_whole_replies(result.tables(COLUMNS), options, graded_scores(result))
        return result
    announce_size(path, kind)
    run = read(path, embedder, **arguments) if "embedder" in takes else read(path, **arguments)
    if not isinstance(run, ImportedRun):
        raise DataError(
            f"the importer of {kind!r} returned {type(run).__name__}; expected an ImportedRun with the trajectories of {path}"
        )
    result = run_of_trajectories(run, golds, None if "embedder" in takes else embedder)
    if "answer_position" in takes:
        refuse_whole_replies(result.tables(COLUMNS), options)
    return result


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
) -> ImportedRun:
    """Read rounds from a CSV, TSV, JSON, JSON lines or parquet file, gzipped or not, or from a folder of such files.

    A table may be long (a row for each question and round), wide (``answer_1``, ``answer_2``, ...), or nested (the rounds of a
    question in a list: `steps`, `attempts`, `messages`, ...).

    This library's names: `question_id` and `round`, `answer`, `golds` (a text, or a JSON list of texts),
    `question`, `cluster`, `end`, `text`, `feedback`, `finish_reason`; metrics (`em`, `f1`, `contains`), computed from answer
    and golds where the table lacks them; every signal (`suffice data signals`); costs as ``cost.<component>.<kind>``; `rounds`
    for the field that contains the list of rounds.  Any other mapped name becomes a new signal.  Unmapped columns are guessed
    by usual names (see `readings`); all others are kept unchanged.

    Args:
        path: The table, or the folder.
        columns: The table's column for each of this library's names; not needed for columns that have these names already.  An
            empty column ignores such a name.
        metrics: Further metrics, in [0, 1], by name.
        labels: Texts that are the same in all rounds of a question, by name.  A `model` or `prompt_id` that is the same
            everywhere becomes what policies fitted on the run depend on.
        log_golds: `keep` the table's gold answers although they equal the last answers, or `drop` them.
            None = keep them unless they equal the last answers, which is an error.
        first_round: The number of the table's lowest round, 0 (closed book) or 1 (the first evidence or draft); None to
            keep the table's numbers.
        ended: The reason why trajectories are shorter than the longest one, if the table has no `end`: `rule` (the loop
            stopped, so that they are censored), `exhausted` (there was no more evidence) or `max_rounds` (each had a cap of its
            own).  None = `rule`.
        samples: Whether rows of a question are samples or answers of a panel, which need no order.  Another model, system or file
            is then another sample; otherwise it is another run of the question, unless the table counts rounds.
        where: Only rows with these values, by the table's column; `file` is the name of the file without its ending.
        file_is: For a folder: what the name of a file is, a `round`, a `model`, a `run` or a `question`; None = by the names.
        answer_position: The position of the answer in a reply: in the column `text` if there is one, else in that of the answers.
        normalizer: The comparison of answers, where it is known: under `unordered`, a list of gold answers is one answer.
        trial_cost: For prefixes of chains of thought: the tokens that a trial answer costs; None = unknown.

    Raises:
        NotFoundError: No row has a value of `where`.
        UnsettledError: The table can be read in several ways: several columns may be the answer or the rounds, rounds count from
            0, or gold answers equal the last answers.
        DataError: A value cannot be used, or is out of its signal's range; the message names file and row.
        SchemaError: The file is of another kind, or lacks a column.
    """
    options = TableOptions(
        columns=columns or {},
        metrics=metrics or {},
        labels=labels or {},
        log_golds=log_golds,
        first_round=first_round,
        ended=ended,
        samples=samples,
        where=where or {},
        file_is=file_is,
        answer_position=answer_position,
        normalizer=normalizer,
        trial_cost=trial_cost,
    )
    source = WholeTable(Path(path), options)
    (rounds,) = source.rounds()
    score_rounds(rounds)
    return ImportedRun(
        source="tabular",
        trajectories=trajectories_of(rounds),
        notes=source.notes(),
        depends={**source.tally.depends(), **source.prefixes.depends},
        readings=source.plan.readings,
    )
