"""Read a source as a run, by the importer of its format."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SufficeError
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.answers.parsed_columns import may_be_parsed_name
from suffice.importers.answers.reply_answers import COLUMNS, refuse_whole_replies
from suffice.importers.files.sources import name_source, plain_source, single_rounds
from suffice.importers.guesses import other_forms
from suffice.importers.guesses.table_settings import TableOptions
from suffice.importers.importers import NOT_OF_A_FORMAT, importer, is_archive_of_data, kind_of, reader_arguments
from suffice.importers.rows.repeated_rounds import COPIED_ROUNDS
from suffice.importers.tables.parted_run import PartedRun, run_of_table, run_of_trajectories
from suffice.importers.tables.table_parts import announce_size
from suffice.importers.tables.tabular import read_tabular
from suffice.importers.words.names import in_log
from suffice.policy.embedding import Embedder
from suffice.recordings.schema import column_kind


def read_run(
    path: Path,
    options: Mapping[str, Any],
    embedder: Embedder | None,
    folder: Callable[[], Path],
    *,
    computes: bool = True,
) -> PartedRun:
    """Read a source as a run.

    Args:
        path: A file or a folder; an archive, a database or prose is first converted to plain files.
        options: The given options of the import, by name.
        embedder: Embeds the answers, if the format requires it or the user asked for it.
        folder: Makes an empty folder for parts and plain files.
        computes: Whether to compute signals; a trial, whose rounds are only compared, needs none.

    Raises:
        UnsettledError: The source can be read in several ways.
        DataError: The format does not take an option, or no question has several rounds.
    """
    place = path
    try:
        place = plain_source(
            path, folder, query=options.get("query"), pattern=options.get("pattern"), is_archive=is_archive_of_data
        )
        run = _read_plain(place, options, embedder, folder, computes=computes)
    except SufficeError as error:
        name_source(error, place, path)
        raise
    if place.is_dir() and run.source == "tabular" and run.longest == 1 and run.n_clusters == run.ends.total():
        raise single_rounds(path, run.n_clusters)
    return run


def graded_scores(run: PartedRun) -> Iterator[str]:
    """Yield the names of the log's own scores with values other than right and wrong, such as a judge's score from 0 to 1."""
    for item in run.schema:
        is_own = column_kind(item.name, item) == "metric" and item.name not in ("em", "f1")
        if is_own and any({*table.column(0).drop_null().to_pylist()} - {0.0, 1.0} for table in run.tables([item.name])):
            yield item.name


def _read_plain(
    path: Path, options: Mapping[str, Any], embedder: Embedder | None, folder: Callable[[], Path], *, computes: bool
) -> PartedRun:
    """Read plain files; raise if their format does not take an option."""
    kind = options.get("kind") or kind_of(path)
    read = importer(kind)
    takes = inspect.signature(read).parameters
    wrong = [name for name in options if name not in {*takes, *NOT_OF_A_FORMAT}]
    if wrong:
        raise DataError(f"files of the format {kind!r} do not take {wrong[0]!r}; leave it out")
    golds, arguments = options.get("golds"), reader_arguments(options, takes)
    outcomes = None if "outcomes" in takes else options.get("outcomes")
    if outcomes and options.get("samples"):
        raise DataError("an outcome is that of a whole run, and samples are no run: leave --outcomes or --samples out")
    if read is read_tabular:
        result = run_of_table(
            path,
            TableOptions(**arguments, keeps_copies=COPIED_ROUNDS in options.get("expected", ())),
            folder=folder,
            golds=golds,
            outcomes=outcomes,
            embedder=embedder,
            announce=lambda: announce_size(path, kind),
            computes=computes,
        )
        other_forms.refuse_other_forms(result.tables(other_forms.COLUMNS), options, result.columns)
        names = [item.name for item in result.schema if item.name not in COLUMNS]
        parsed = [name for name in names if may_be_parsed_name(in_log(name))]
        refuse_whole_replies(result.tables([*COLUMNS, *parsed]), options, graded_scores(result), parsed)
        return result
    announce_size(path, kind)
    run = read(path, embedder, **arguments) if "embedder" in takes else read(path, **arguments)
    if not isinstance(run, ImportedRun):
        raise DataError(
            f"the importer of {kind!r} returned {type(run).__name__}; expected an ImportedRun with the trajectories of {path}"
        )
    result = run_of_trajectories(run, golds, outcomes, None if "embedder" in takes else embedder, computes=computes)
    if "answer_position" in takes:
        refuse_whole_replies(result.tables(COLUMNS), options)
    return result
