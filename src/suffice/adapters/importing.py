"""Import rounds that were recorded elsewhere as a recording, with a summary of what happened to their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from suffice._version import __version__
from suffice.adapters.base import ImportedRun, with_embeddings
from suffice.adapters.importers import importer, kind_of
from suffice.adapters.summary import ColumnCount, RoundMeans, column_counts, round_means
from suffice.display import facts_table
from suffice.embedding import Embedder
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.results import Result
from suffice.store import read_recording, write_recording
from suffice.store.recording import open_recording
from suffice.tables import Column, Table

__all__ = ["ImportSummary", "import_recording"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary(Result):
    """What an import wrote.

    Attributes:
        path: The recording.
        trajectories: How many it has.
        clusters: How many questions they belong to.
        rounds: The most rounds of one trajectory.
        censored: Trajectories that a rule ended while they were recorded.
        columns: What happened to the values, by column.
        by_round: Means over the trajectories that have a round, by round.
        notes: Caveats for results: what was cut, left out, repaired, or is unknown.
    """

    path: Path
    trajectories: int
    clusters: int
    rounds: int
    censored: int
    columns: tuple[ColumnCount, ...]
    by_round: tuple[RoundMeans, ...]
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return what was imported, and what happened to the values of each column."""
        facts = {name: getattr(self, name) for name in ("trajectories", "clusters", "rounds", "censored")}
        columns = tuple(
            Column(name, "" if name == "column" else ",.0f") for name in ("column", "defined", "nulled", "clipped")
        )
        rows = tuple((item.name, item.defined, item.nulled, item.clipped) for item in self.columns)
        return [
            replace(facts_table(f"Imported to {self.path}", facts), notes=self.notes),
            Table(title="Columns", columns=columns, rows=rows),
        ]


def import_recording(
    path: str | Path,
    kind: str | None = None,
    *,
    out: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    golds: bool | None = None,
    first_round: Literal[0, 1] | None = None,
    ended_early: Literal["rule", "exhausted"] | None = None,
    key: str | None = None,
    embedder: Embedder | None = None,
    settle: Callable[[UnsettledError], Any] | None = None,
) -> ImportSummary:
    r"""Turn a run recorded elsewhere into a recording.

    >>> import tempfile
    >>> from suffice import import_recording, read_recording
    >>> lines = "question_id,round,answer,golds\nq1,1,Rome,Oslo\nq1,2,Oslo,Oslo\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Path(folder, "run.csv")
    ...     _ = run.write_text(lines)
    ...     summary = import_recording(run, out=run.with_suffix(".parquet"), golds=True)
    ...     read_recording(summary.path).column("em")
    array([[0., 1.]])

    Args:
        path: The file of the run, or a folder of such files.
        kind: Its format, one of `suffice.adapters.importer_names`; None = recognised from its content.
        out: The recording, a parquet file; None = in the current folder, under the name of `path`.
        columns: For tabular files: our name of a column to theirs.
        metrics: For tabular files: metrics in [0, 1] of your own, by name, to their columns.
        labels: For tabular files: texts of your own, by name, to their columns; policies depend on a `model`.
        golds: For tabular files: whether gold answers that equal the last answers are right; None = not said.
        first_round: What the file's lowest round is: 0 (the model alone) or 1; None = as the file counts.
        ended_early: For tabular files: why some have fewer rounds; `rule` means censored.  None = not said.
        key: For traces: the attribute that names the question; `trace_id` = each trace is one.  None = the conversation, else
            the trace.
        embedder: Embeds the answers, for `semantic_distance`.
        settle: Chooses where the file can be read in several ways: is given the error, returns the value of its
            `parameter`.  None = raise the error.

    Raises:
        DataError: There is no such format, it does not take one of the arguments, or a value cannot be used.
        UnsettledError: The file can be read in several ways; the message names the argument that says which.
    """
    settings = {
        "columns": columns,
        "metrics": metrics,
        "labels": labels,
        "golds": golds,
        "first_round": first_round,
        "ended_early": ended_early,
        "key": key,
    }
    options = {name: value for name, value in settings.items() if value is not None}
    path = Path(path)
    out = default_out(path) if out is None else Path(out)
    run = _read_run(path, kind_of(path) if kind is None else kind, options, embedder, settle)
    rows = run.rows()
    metadata = {"source": run.source, "notes": run.notes, "depends": dict(run.depends), "suffice": __version__}
    write_recording(out, rows, metadata, run.kinds())
    recording = read_recording(out)
    n, width = recording.shape
    return ImportSummary(
        path=out,
        trajectories=n,
        clusters=len(set(recording.clusters.tolist())),
        rounds=width,
        censored=sum(end == "rule" for end in recording.ends.tolist()),
        columns=tuple(column_counts(run, rows)),
        by_round=tuple(round_means(rows)),
        notes=tuple(run.notes),
    )


def default_out(path: Path) -> Path:
    """Return the recording that an import writes unless it is named: in the current folder, under the name of the source.

    Raises:
        DataError: A file of that name exists that no import wrote; it might have cost calls.
    """
    stem = path.resolve().name.removesuffix(".gz")
    out = Path(stem if path.is_dir() else Path(stem).stem).with_suffix(".parquet")
    if out.exists() and not _was_imported(out):
        raise DataError(f"{str(out)!r} exists and was not imported: name the recording to write with -o FILE")
    return out


def _was_imported(path: Path) -> bool:
    try:
        return "source" in open_recording(path).metadata
    except SchemaError:
        return False


def _read_run(
    path: Path,
    kind: str,
    options: dict[str, Any],
    embedder: Embedder | None,
    settle: Callable[[UnsettledError], Any] | None,
) -> ImportedRun:
    read = importer(kind)
    takes = inspect.signature(read).parameters
    wrong = [name for name in options if name not in takes]
    if wrong:
        raise DataError(f"files of the format {kind!r} do not take {wrong[0]!r}; leave it out")
    if "embedder" in takes:
        return read(path, embedder, **options)
    while True:
        try:
            run = read(path, **options)
        except UnsettledError as error:
            if settle is None:
                raise
            options[error.parameter] = settle(error)
        else:
            return run if embedder is None else with_embeddings(run, embedder)
