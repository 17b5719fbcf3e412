"""Import rounds that were recorded elsewhere, with a summary of removed, clipped and computed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from suffice.common.files import check_file
from suffice.common.results import Result
from suffice.common.tables import CAUTION, Column, Table, counted, facts_table
from suffice.errors import DataError, UnsettledError
from suffice.evaluation.replay.outcomes import SECOND
from suffice.importers.alarms import check_expected
from suffice.importers.checks.alarm import Alarm, Read
from suffice.importers.checks.judging import judge_notes, judging_note, second_judge_note
from suffice.importers.checks.other_fields import other_fields_note
from suffice.importers.checks.own_alarms import NOT_READ, unread_note
from suffice.importers.files.recognise import left_out
from suffice.importers.importers import log_reader
from suffice.importers.mapping import (
    Mapped,
    as_typed,
    default_out,
    earlier_import,
    mapping_path,
    own_place,
    read_mapping,
    write_mapping,
)
from suffice.importers.rounds.preview import Preview, rounds_table
from suffice.importers.rounds.summary import NAMED, ColumnCount, RoundMeans, loops_of, plain_words
from suffice.importers.rounds.trajectories import ColumnReading
from suffice.importers.rows.scores import LAST_ROUND
from suffice.importers.settling import Source, is_small, read_of
from suffice.importers.tables.parted_run import PartedRun
from suffice.policy.embedding import Embedder
from suffice.policy.metrics import without_parts
from suffice.policy.normalizers import MATCH, normalizer_of
from suffice.policy.signals.position import AnswerPosition

ENOUGH = 20
"""The least number of questions for which a decision can be asked."""

UNJUDGED = "nothing in the log says which answers are right: `suffice decide` counts every answer that another would replace as lost"
"""The note on a log without gold answers and scores."""

_OPTIONS = (
    *("kind", "columns", "metrics", "labels", "golds", "log_golds", "first_round", "ended", "key", "samples"),
    *("normalizer", "where", "file_is", "query", "pattern", "answer_position", "expected", "outcomes"),
    *("trial_cost", "repeated"),
)
"""Parameters of `import_recording` that say how a source is read; they are kept for its next import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary(Result):
    """Summary of the recording that an import wrote.

    Attributes:
        path: The recording.
        trajectories: Number of trajectories.
        clusters: Number of questions to which the trajectories belong.
        rounds: The largest number of rounds of a trajectory.
        censored: Number of trajectories that a rule ended while they were recorded.
        ends: Number of trajectories by end reason.
        readings: The meaning of the files' columns, guessed or given.
        mapping: The file that stores the options for the next import of the same source; None if nothing had to be stored.
        samples: True if the rounds of a question are independent samples.
        loops: One filter for each loop, such as ``model=gpt-4o``, starting with the loop that has the most questions.  Empty if the
        recording has only one loop.
        columns: For each column, the numbers of defined, removed and clipped values.
        by_round: For each round, the means over the trajectories that have this round.
        notes: Caveats for results: data that were truncated, left out, repaired, or are unknown.
        judged_by: The metrics that judge answers; empty if the log has none.
        preview: One question as it was read.
        alarms: Unusual properties of the log as it was read.
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
    judged_by: tuple[str, ...]
    preview: Preview
    alarms: tuple[Alarm, ...] = ()

    @property
    def of_steps(self) -> bool:
        """True if the rounds are steps of an agent, whose answers are states of files, which nobody can label."""
        return _are_steps(self.columns)

    @property
    def of_runs(self) -> tuple[str, ...]:
        """The metrics of whole runs, which are known only in last rounds."""
        whole = [item.ours for item in self.readings if item.theirs.endswith(LAST_ROUND)]
        return tuple(name.removesuffix(" (metric)") for name in whole)

    def tables(self) -> list[Table]:
        """Return the tables of the summary: the columns as read, one question with the means by round, and counts of values by column."""
        facts = {name: getattr(self, name) for name in ("trajectories", "clusters", "rounds", "censored")}
        read = Table(
            title="What was read",
            columns=(Column("what"), Column("read from"), Column("by"), Column("name")),
            rows=tuple((plain_words(item.ours), item.theirs, item.how, item.ours) for item in self.readings),
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
        rounds = rounds_table(self.preview, self.by_round, details=True)
        return [facts_shown, *([read] if self.readings else []), rounds, columns]


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
    file_is: Literal["round", "model", "run", "question"] | None = None,
    query: str | None = None,
    pattern: str | None = None,
    answer_position: AnswerPosition | str | None = None,
    expected: Collection[str] | None = None,
    outcomes: str | Path | None = None,
    trial_cost: float | None = None,
    repeated: Literal["first", "last"] | None = None,
    embedder: Embedder | None = None,
    settle: Callable[[UnsettledError], Any] | None = None,
    confirm: Callable[[PartedRun], bool] | None = None,
) -> ImportSummary:
    r"""Convert a run that was recorded elsewhere to a recording.

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
        kind: Its format, one of `suffice.importers.importer_names`; None = recognised by its content.
        out: The recording, a parquet file; None = in the current folder, under the name of `path`.
        columns: For tabular files: the file's column for each of this library's names.
        metrics: For tabular files: the columns of your own metrics, in [0, 1], by name.
        labels: For tabular files: the columns of your own texts, by name.  A label `model` is stored with policies, which depend on it.
        golds: A file of questions with gold answers, joined by id or by the question's text.  For tabular files, `columns` may name
            the columns of this file, too.
        log_golds: `keep` or `drop` the gold answers of a table that equal its last answers; None = drop if `golds` is given, else ask.
        first_round: The number of the file's lowest round: 0 (the model alone) or 1; None = as the file counts.
        ended: The reason why some questions have fewer rounds than others; None = `rule`: the loop itself stopped, so they are censored.
        key: For traces: the attribute that identifies the question, or `trace_id`; None = the conversation, otherwise the trace.
        samples: Whether the rounds of a question are independent samples.  Samples vote, and figures are means over random orders.
        normalizer: Decides which answers are the same, one of `NORMALIZERS`; None = as docs/explanation/same-answer.md says.
        where: Keeps only rows with these values, by the file's column, such as those of one model; for traces, only calls that are answers.
        ``{"event!": "report"}`` leaves out rows of a table.
        file_is: For a folder or archive: the meaning of file names, a `round`, a `model`, a `run` or a `question`; None = guessed.
        query: For a SQLite or DuckDB database: the query whose rows are the table; None = its only table.
        pattern: For prose: a regular expression with the named group `answer`, and others (`question`, `round`, `gold`).
        answer_position: The position of the answer in a reply, also as text (`json:city`).  Policies use it, too.  None = as logged.
        expected: Names of alarms (`suffice.importers.alarms.ALARMS`) to accept because the log was read correctly.
        outcomes: A file with the outcomes of runs: a table with ids and grades, or a SWE-bench report.
        trial_cost: For a table of prefixes of chains of thought: the tokens that a trial answer costs; None = unknown.
        repeated: For tables: the row that counts if a question has the same round several times, `first` or `last`; None = ask.
        embedder: Embeds the answers, for `semantic_distance`.
        settle: Called with the error if a file can be read in several ways.  Returns a value for the parameter that the error's
            `parameter` names or, if this is `options`, the values of several parameters by name.
        confirm: Called with the run if some of its columns were guessed; returns whether the guesses are right.  None =
        accept them.  Options and confirmed guesses are stored beside `out`, for the next import of the same source.

    Raises:
        DataError: The format does not exist or does not take one of the arguments, a value is invalid, or
        `confirm` rejected the guesses.
        UnsettledError: The file can be read in several ways, or was probably misread; the message names the argument that decides.
    """
    given = _checked({name: value for name, value in locals().items() if name in _OPTIONS})
    path = Path(path)
    out = own_place(default_out(path) if out is None else check_file(out))
    return _imported(path, out, given, embedder=embedder, settle=settle, confirm=confirm)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options, with the position of the answer as text; raise if a value is invalid."""
    if given["normalizer"] is not None:
        normalizer_of(given["normalizer"])
    if given["repeated"] not in (None, "first", "last"):
        raise DataError(f"repeated is {given['repeated']!r}; allowed are first, last and None")
    if (position := given["answer_position"]) is not None:
        position = AnswerPosition.parse(position) if isinstance(position, str) else position
        given["answer_position"] = str(AnswerPosition.from_dict(position.to_dict()))  # not of the kind `callable`
    return given


def _imported(
    path: Path,
    out: Path,
    given: Mapping[str, Any],
    *,
    embedder: Embedder | None,
    settle: Callable[[UnsettledError], Any] | None,
    confirm: Callable[[PartedRun], bool] | None,
) -> ImportSummary:
    """Import a run with the given options or, if none is given, with those of the last import of the same source.

    None and False mean that an option was not given.
    """
    options: dict[str, Any] = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
        if value is not None and value is not False
    }
    for name in ("golds", "outcomes"):
        if name in options:
            options[name] = str(Path(options[name]).resolve())
    if "expected" in options:
        options["expected"] = check_expected(options["expected"])
    stored = read_mapping(out, path)
    notes, earlier = [], partial(earlier_import, out, path)
    if stored is not None and not options:
        options = stored.options
        said = as_typed(options) or "your confirmation"
        notes.append(f"read as last time, by {mapping_path(out)}: {said}; delete this file to be asked again")
    with ExitStack() as stack:
        source = Source(path, embedder, lambda: _part_folder(out, stack), settle, is_small(path), earlier=earlier)
        run, metadata, reading, alarms, settled = source.read(options)
        confirmed, was_asked = _confirmed(path, run, stored, confirm)
        notes += [*settled, *run.notes, *_left_out_note(path)]
        by_round = reading.by_round()
        judged_by = _judged_by(by_round)
        read = read_of(run, reading, options)
        second = _second_judge(read, judged_by)
        columns = run.write(out, {**metadata, "notes": notes, **({SECOND: second} if second else {})})
    loops, noted = loops_of(out)
    judging = [] if judged_by or run.longest == 1 else [judging_note(read) or _unjudged(columns)]
    judges = [*judge_notes(read, reading.judge, judged_by), *other_fields_note(read)]
    notes = _with_unread(read, [*notes, *judging, *second, *judges, *noted])
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
        judged_by=judged_by,
        notes=tuple(notes),
        preview=reading.preview,
        alarms=tuple(alarms),
    )


def _second_judge(read: Read, judged_by: Sequence[str]) -> list[str]:
    """Return the note on a score that could judge answers but is not used.

    There is no note if answers are judged both by gold answers and by scores of the log.
    """
    own = [name for name in judged_by if name not in ("em", "f1", MATCH)]
    return second_judge_note(read, own) if judged_by and own in ([], [*judged_by]) else []


def _unjudged(columns: Sequence[ColumnCount]) -> str:
    """Return the note on a log in which nothing judges answers.

    The note suggests labels, except for the states of an agent, which nobody can label.
    """
    return UNJUDGED if _are_steps(columns) else f"{UNJUDGED}, unless labels say more (--ask)"


def _are_steps(columns: Iterable[ColumnCount]) -> bool:
    return any(item.name == "command_repeated" for item in columns)


def _judged_by(by_round: Sequence[RoundMeans]) -> tuple[str, ...]:
    """Return the metrics that are known in some round, without those that are parts of another metric.

    Of the comparisons with gold answers, F1 is included only if no exact match is known.
    """
    own = dict.fromkeys(name for means in by_round for name, mean in means.scores.items() if not math.isnan(mean))
    compared = [MATCH if not math.isnan(means.match) else "em" for means in by_round if means.scored]
    compared = compared or ["f1" for means in by_round if not math.isnan(means.f1)]
    return (*dict.fromkeys(compared), *without_parts(own))


def _with_unread(read: Read, notes: Sequence[str]) -> list[str]:
    """Move the note on unread columns to the end, and drop the columns that another note already offers to read."""
    others = [note for note in notes if not note.startswith(NOT_READ)]
    # a caution names a column without offering to read it
    return [*others, *unread_note(read, [note for note in others if not note.startswith(CAUTION)])]


def _confirmed(
    path: Path, run: PartedRun, stored: Mapped | None, confirm: Callable[[PartedRun], bool] | None
) -> tuple[dict[str, str], bool]:
    """Ask if guessed columns are right, unless they were confirmed in the last import.

    Return the confirmed columns, and whether the user was asked.
    """
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


def _left_out_note(path: Path) -> list[str]:
    """Return a note on the files of a folder that were not read; an empty list if all files were read."""
    names = [str(file.relative_to(path)) for file in left_out(path)]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    if not names:
        return []
    joined = "; gold answers in one of them are joined by --golds FILE"
    return [
        f"files left out of the folder: {', '.join(names[:NAMED])}{more}{joined if any('gold' in n for n in names) else ''}"
    ]


def _part_folder(out: Path, stack: ExitStack) -> Path:
    """Create a temporary folder beside the recording; it is removed when the stack closes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return Path(stack.enter_context(TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent)))
