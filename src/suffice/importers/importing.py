"""Import rounds that were recorded elsewhere as a recording, with a summary of what happened to their values."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from suffice._version import __version__
from suffice.common.display import facts_table
from suffice.common.files import check_file, quoted
from suffice.common.results import Result
from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError, UnsettledError
from suffice.importers.base import ImportedRun
from suffice.importers.importers import importer, kind_of, log_reader
from suffice.importers.mapping import Mapped, default_out, mapping_path, own_place, read_mapping, write_mapping
from suffice.importers.parted_run import PartedRun, run_of_table, run_of_trajectories
from suffice.importers.recognise import data_files, left_out
from suffice.importers.summary import ColumnCount, RoundMeans
from suffice.importers.table_parts import unpacked_size
from suffice.importers.table_source import TableOptions
from suffice.importers.tabular import read_tabular
from suffice.importers.trajectories import ColumnReading
from suffice.policy.embedding import Embedder
from suffice.policy.expressions import is_available, looks_mathematical
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH, guess_normalizer, normalizer_of
from suffice.recordings.recording import Recording, open_recording
from suffice.recordings.runs import loop_labels, loops_by_label

ENOUGH = 20
"""The least number of questions for which a decision can be asked."""

_OPTIONS = (
    *("kind", "columns", "metrics", "labels", "golds", "log_golds", "first_round", "ended", "key", "samples"),
    *("normalizer", "where"),
)
"""Parameters of `import_recording` that say how a source is read; they are kept for its next import."""

_NOT_OF_A_FORMAT = frozenset({"kind", "golds", "samples", "normalizer"})
"""Arguments that are not passed to the readers of formats."""

_OFTEN_SAMPLES = ("answers", "samples", "completions", "generations", "candidates", "responses", "predictions")
"""Names of lists whose items may be independent samples."""

_NAMED = 5
"""The most files that a note names."""

_log = logging.getLogger(__name__)
_LARGE, _TIMES = 1 << 26, 10
"""Warn above this size that a source is read in one piece, and the least factor between its memory and its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary(Result):
    """Summary of the recording that an import wrote.

    Attributes:
        path: The recording.
        trajectories: Number of trajectories.
        clusters: Number of questions to which they belong.
        rounds: The most rounds of one trajectory.
        censored: Trajectories that a rule ended while they were recorded.
        ends: Number of trajectories by the reason for their end.
        readings: The meaning of the files' columns, where it was guessed or given.
        mapping: The file with the options for the next import of the same source; None if there were none.
        samples: True if the rounds of a question are independent samples.
        loops: Filters that choose one loop, ``model=gpt-4o`` for instance, if the recording holds several; the loop with the most
            questions comes first.  Empty if it holds one.
        columns: Counts of defined, removed and clipped values, by column.
        by_round: Means over the trajectories that have a round, by round.
        notes: Caveats for results: what was cut, left out, repaired, or is unknown.
    """

    path: Path
    trajectories: int
    clusters: int
    rounds: int
    censored: int
    ends: Mapping[str, int]
    readings: tuple[ColumnReading, ...]
    mapping: Path | None
    samples: bool
    loops: tuple[str, ...]
    columns: tuple[ColumnCount, ...]
    by_round: tuple[RoundMeans, ...]
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return a summary of the recording, what was read, the counts of each column's values, and means by round."""
        facts = {name: getattr(self, name) for name in ("trajectories", "clusters", "rounds", "censored")}
        read = Table(
            title="What was read",
            columns=(Column("column"), Column("read from"), Column("by")),
            rows=tuple((item.ours, item.theirs, item.how) for item in self.readings),
        )
        columns = Table(
            title="Columns",
            columns=(Column("column"), Column(""), *(Column(name, "d") for name in ("defined", "nulled", "clipped"))),
            rows=tuple(
                (item.name, "computed" if item.computed else "", item.defined, item.nulled, item.clipped)
                for item in self.columns
            ),
        )
        facts_shown = replace(facts_table(f"Imported to {self.path}", facts), notes=self.notes)
        return [facts_shown, *([read] if self.readings else []), columns, self._means()]

    def _means(self) -> Table:
        names = ["em", "f1", *([] if all(math.isnan(item.match) for item in self.by_round) else ["match"])]
        titles = [name if name == "match" else name.upper() for name in names]
        return Table(
            title="Rounds: means over the trajectories that have them",
            columns=(
                *(Column(name, "d") for name in ("round", "n", "scored")),
                *(Column(title, ".1f", scale=100) for title in titles),
            ),
            rows=tuple(
                (item.round, item.n, item.scored, *(getattr(item, name) for name in names)) for item in self.by_round
            ),
        )


def import_recording(
    path: str | Path,
    kind: str | None = None,
    *,
    out: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    golds: str | Path | None = None,
    log_golds: Literal["keep", "drop"] | None = None,
    first_round: Literal[0, 1] | None = None,
    ended: Literal["rule", "exhausted", "max_rounds"] | None = None,
    key: str | None = None,
    samples: bool = False,
    normalizer: str | None = None,
    where: Mapping[str, str] | None = None,
    embedder: Embedder | None = None,
    settle: Callable[[UnsettledError], Any] | None = None,
    confirm: Callable[[PartedRun], bool] | None = None,
) -> ImportSummary:
    r"""Turn a run recorded elsewhere into a recording.

    >>> import tempfile
    >>> from suffice import import_recording, read_recording
    >>> lines = "question_id,round,answer,golds\nq1,1,Rome,Oslo\nq1,2,Oslo,Oslo\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Path(folder, "run.csv")
    ...     _ = run.write_text(lines)
    ...     summary = import_recording(run, out=run.with_suffix(".parquet"))
    ...     read_recording(summary.path).column("em")
    array([[0., 1.]])

    Args:
        path: The file of the run, or a folder of such files.
        kind: Its format, one of `suffice.importers.importer_names`; None = recognised from its content.
        out: The recording, a parquet file; None = in the current folder, under the name of `path`.
        columns: For tabular files: the file's column for each name of ours.
        metrics: For tabular files: the columns of metrics of your own, in [0, 1], by name.
        labels: For tabular files: the columns of texts of your own, by name; policies depend on a `model`.
        golds: A file of questions with gold answers, joined by id or by the question's text.
        log_golds: For tabular files: `keep` gold answers of the log that equal its last answers, or `drop` them; None = drop
            them if `golds` is given, else ask.
        first_round: The number of the file's lowest round: 0 (the model alone) or 1; None = as the file counts.
        ended: The reason why some have fewer rounds than others; None = `rule`, the loop's own stops, which means censored.
        key: For traces: the attribute that names the question; `trace_id` = one question a trace.  None = the conversation, else
            the trace.
        samples: Whether the rounds of a question are independent samples, without an order: votes then decide, and figures
            are means over random orders.
        normalizer: Decides which answers are the same, one of `suffice.policy.normalizers.NORMALIZERS`; None = the most specific
            one that reads all gold answers (without any, the answers), else that of question answering.
        where: For tabular files: only rows with these values, by the file's column: those of one model, for instance.
        embedder: Embeds the answers, for `semantic_distance`.
        settle: Called with the error if the file can be read in several ways; returns the value for its `parameter`.  None =
            raise the error.
        confirm: Called with the run if some of its columns were guessed; returns whether the guesses are right.  None =
            accept them.  Options and confirmed guesses are kept beside `out`, for the next import of the same source.

    Raises:
        DataError: There is no such format, it does not take one of the arguments, a value cannot be used, or `confirm`
            rejected the guesses.
        UnsettledError: The file can be read in several ways; the message names the argument that decides.
    """
    given = {name: value for name, value in locals().items() if name in _OPTIONS}
    if normalizer is not None:
        normalizer_of(normalizer)
    path = Path(path)
    out = default_out(path) if out is None else own_place(check_file(out))
    return _imported(path, out, given, embedder=embedder, settle=settle, confirm=confirm)


def _imported(
    path: Path,
    out: Path,
    given: Mapping[str, Any],
    *,
    embedder: Embedder | None,
    settle: Callable[[UnsettledError], Any] | None,
    confirm: Callable[[PartedRun], bool] | None,
) -> ImportSummary:
    """Import a run with the given options (None and False: not given), or with those of the last import of the same source."""
    options: dict[str, Any] = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None and value is not False
    }
    if "golds" in options:
        options["golds"] = str(Path(options["golds"]).resolve())
    stored = read_mapping(out, path)
    notes = []
    if stored is not None and not options:
        options = stored.options
        said = ", ".join(f"{name} {value}" for name, value in options.items()) or "your confirmation"
        notes.append(f"read as last time, by {mapping_path(out)}: {said}")
    with ExitStack() as stack:
        run = _read_run(path, options, embedder, settle, lambda: _part_folder(out, stack))
        confirmed, was_asked = _confirmed(path, run, stored, confirm)
        notes += [*run.notes, *_left_out_note(path)]
        metadata = _metadata(run, options, notes)
        columns, by_round = run.write(out, metadata, metadata.get("normalizer", DEFAULT_NORMALIZER))
    loops, noted = _loops_of(out)
    notes += noted
    n_clusters = run.n_clusters
    if 1 < n_clusters < ENOUGH or n_clusters == 1 < run.longest:
        notes.insert(0, f"{counted(n_clusters, 'question')}: a decision needs at least {ENOUGH}")
    is_kept = bool(options) or was_asked
    if is_kept:
        write_mapping(out, path, Mapped(options=options, confirmed=confirmed))
    return ImportSummary(
        path=out,
        trajectories=run.ends.total(),
        clusters=n_clusters,
        rounds=run.longest,
        censored=run.ends["rule"],
        ends=dict(run.ends),
        readings=tuple(run.readings),
        mapping=mapping_path(out) if is_kept else None,
        samples=bool(options.get("samples")),
        loops=loops,
        columns=columns,
        by_round=by_round,
        notes=tuple(notes),
    )


def _confirmed(
    path: Path, run: PartedRun, stored: Mapped | None, confirm: Callable[[PartedRun], bool] | None
) -> tuple[dict[str, str], bool]:
    """Ask whether guessed columns are right, unless the last import did; return those confirmed, and whether this asked."""
    guesses = {item.ours: item.theirs for item in run.readings if item.is_guess}
    if stored is not None and stored.confirmed == guesses:
        return guesses, False
    if not guesses or confirm is None:
        return {}, False
    if not confirm(run):
        remedy = "say what its columns are with --column OURS=THEIRS"
        if log_reader(run.source) is not None:
            remedy = "--explain shows how it is read, and --key names what makes a question"
        raise DataError(f"{path} was not imported: {remedy}")
    return guesses, True


def _metadata(run: PartedRun, options: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the metadata of the recording; add notes on how answers are compared, which are stored in it, too."""
    result = {
        "source": run.source,
        "notes": notes,
        "depends": dict(run.depends),
        "suffice": __version__,
        **_how_compared(run, options, notes),
    }
    if run.readings:
        result["read_from"] = {item.ours: item.theirs for item in run.readings}
    return result


def _how_compared(run: PartedRun, options: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the metadata on how answers are compared, and add a note on it."""
    samples = bool(options.get("samples"))
    if not samples:
        lead = next((item.theirs for item in run.readings if item.ours == "round" and item.how == "shape"), "")
        if any(word in lead.lower() for word in _OFTEN_SAMPLES):
            notes.insert(
                0,
                f"{lead.replace('order in', 'the items of')} are read as rounds that follow one another; if they are independent "
                "samples, import them with --samples",
            )
    normalizer, why = options.get("normalizer"), "as you said"
    if normalizer is None and not samples and run.source != "tabular" and log_reader(run.source) is None:
        return {}  # a published run keeps the comparison of its paper
    if normalizer is None:
        normalizer, why = _guessed_normalizer(run, notes)
    compared = f"answers are compared as {normalizer!r}, {why}"
    if samples:
        notes.append(f"the rounds of a question are independent samples; {compared}")
        return {"exchangeable": True, "normalizer": normalizer}
    if "normalizer" not in options and normalizer == DEFAULT_NORMALIZER:
        return {}
    if "normalizer" not in options:
        compared += f"; --set normalizer={DEFAULT_NORMALIZER} compares them as in question answering"
    if normalizer != DEFAULT_NORMALIZER:
        notes.append(compared)
        if MATCH in run.schema.names and any(True for _ in run.texts("golds")):
            notes.append(f"the log's own score {MATCH!r} is replaced by this comparison with the gold answers")
    return {"normalizer": normalizer}


def _guessed_normalizer(run: PartedRun, notes: list[str]) -> tuple[str, str]:
    """Guess the normalizer from the gold answers, or from the answers if there are none; also return the reason."""
    golds, answers = run.texts("golds"), run.texts("answer")
    normalizer = guess_normalizer(golds, answers)
    if not is_available() and any(map(looks_mathematical, golds)):
        notes.append(
            "the gold answers look like LaTeX: to compare expressions by their value, run  pip install '.[math]'  in a checkout, and "
            "import with --set normalizer=math"
        )
    if any(True for _ in golds):
        return normalizer, "which reads all gold answers"
    reads = "" if normalizer == DEFAULT_NORMALIZER else ", and it reads nearly all answers"
    return normalizer, f"since there are no golds{reads}"


def _loops_of(out: Path) -> tuple[tuple[str, ...], list[str]]:
    """If a recording holds several loops, return the filters that choose one of them, and a note."""
    import pyarrow as pa

    with open_recording(out) as opened:
        names = loop_labels(opened.schema)
        distinct: dict[str, set[Any]] = {name: set() for name in names}
        for table in opened.tables(columns=names) if names else ():
            for name in names:
                distinct[name].update(table.column(name).unique().to_pylist())
        if all(len(values - {None}) < 2 for values in distinct.values()):  # noqa: PLR2004
            return (), []
        columns = [name for name in ("question_id", "round", "cluster", *names) if name in opened.schema.names]
        table = pa.concat_tables(opened.tables(columns=columns))
        several = loops_by_label(Recording(table, opened.metadata))
    if not several:
        return (), []
    name, counts = next(iter(several.items()))
    loops = tuple(f"{name}={value}" for value in sorted(counts, key=lambda value: (-counts[value], value)))
    more = f" and {len(loops) - _NAMED:,} more" if len(loops) > _NAMED else ""
    listed = "; ".join(f"--where {quoted(loop)}" for loop in loops[:_NAMED])
    return loops, [
        f"{name!r} names {len(loops):,} loops; decide, certify and watch judge one at a time: {listed}{more}"
    ]


def _left_out_note(path: Path) -> list[str]:
    """Return a note on the files of a folder that are not read."""
    names = [str(file.relative_to(path)) for file in left_out(path)]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return [f"files left out of the folder: {', '.join(names[:_NAMED])}{more}"] if names else []


def _announce_size(path: Path, kind: str) -> None:
    """Warn before a large source is read in one piece."""
    size = sum(unpacked_size(file) for file in data_files(path))
    if size >= _LARGE:
        parts = "CSV, parquet, JSON lines and JSON arrays of one shape are read part by part"
        advice = parts if kind == "tabular" else "import a shorter period if that is too much"
        megabytes = f"{size / 1e6:,.0f} MB"
        _log.warning(
            "%s has %s and is read in one piece, which takes %s times as much memory or more: %s",
            path,
            megabytes,
            _TIMES,
            advice,
        )


def _part_folder(out: Path, stack: ExitStack) -> Path:
    """Create a folder beside the recording, which is removed when the stack is closed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return Path(stack.enter_context(TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)))


def _reader_arguments(options: Mapping[str, Any], takes: Collection[str]) -> dict[str, Any]:
    """Return the options that a reader takes, with those that follow from others."""
    arguments = {name: value for name, value in options.items() if name not in _NOT_OF_A_FORMAT}
    if options.get("samples") and "ended" in takes:  # fewer samples of a question do not mean that a loop stopped
        arguments.setdefault("ended", "exhausted")
    if options.get("samples") and "samples" in takes:
        arguments["samples"] = True
    if options.get("golds") is not None and "log_golds" in takes:
        arguments.setdefault("log_golds", "drop")
    return arguments


def _read_run(
    path: Path,
    options: dict[str, Any],
    embedder: Embedder | None,
    settle: Callable[[UnsettledError], Any] | None,
    folder: Callable[[], Path],
) -> PartedRun:
    """Read the run; add the choices of `settle` to the options."""
    kind = options.get("kind") or kind_of(path)
    read = importer(kind)
    takes = inspect.signature(read).parameters
    wrong = [name for name in options if name not in {*takes, *_NOT_OF_A_FORMAT}]
    if wrong:
        raise DataError(f"files of the format {kind!r} do not take {wrong[0]!r}; leave it out")
    golds = options.get("golds")
    while True:
        arguments = _reader_arguments(options, takes)
        try:
            if read is read_tabular:
                return run_of_table(
                    path,
                    TableOptions(**arguments),
                    folder=folder,
                    golds=golds,
                    embedder=embedder,
                    announce=lambda: _announce_size(path, kind),
                )
            _announce_size(path, kind)
            run = read(path, embedder, **arguments) if "embedder" in takes else read(path, **arguments)
        except UnsettledError as error:
            if settle is None:
                raise
            choice = settle(error)
            before = options.get(error.parameter)
            options[error.parameter] = {**before, **choice} if isinstance(before, dict) else choice
        else:
            break
    if not isinstance(run, ImportedRun):
        raise DataError(
            f"the importer of {kind!r} returned {type(run).__name__}; expected an ImportedRun with the trajectories of {path}"
        )
    return run_of_trajectories(run, golds, None if "embedder" in takes else embedder)
