"""`suffice import`: convert rounds that were recorded elsewhere to a recording, and report on their values."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from suffice.cli import models, options
from suffice.cli.choosing import Choices
from suffice.cli.console import errors, print_table, warn
from suffice.cli.groups import RecordingPath, command_line
from suffice.cli.local import DeviceName
from suffice.cli.options import ASK, where_pairs, where_words
from suffice.cli.output import LONGEST_NOTE, Output, Screen
from suffice.cli.parameters import Setting
from suffice.cli.printed import without_replaced
from suffice.common.files import quoted
from suffice.common.tables import CAUTION, counted
from suffice.errors import DataError
from suffice.importers import ImportSummary, import_recording, importer, importer_names, kind_of
from suffice.importers.checks.judging import ONCE
from suffice.importers.columns.table_columns import RECORD_NUMBER, WITHIN
from suffice.importers.importers import OF_PAPERS
from suffice.importers.importing import ENOUGH
from suffice.importers.rounds.preview import cut, rounds_table
from suffice.importers.rounds.summary import plain_words
from suffice.importers.rounds.trajectories import UNSAID, ColumnReading
from suffice.importers.tables.parted_run import PartedRun
from suffice.importers.traces import explain_trace
from suffice.policy.embedding import Embedder
from suffice.policy.normalizers import NORMALIZERS
from suffice.recordings import read_recording

_ENDS = {
    "max_rounds": "ran to the cap",
    "rule": "stopped by themselves",
    "exhausted": "came to their end",
    "failed": "failed",
}

_NO_NEXT = "nothing to stop earlier and nothing to decide; "

_QUIET = re.compile(
    r"columns that are kept|answers are compared as|the rounds of a question are independent samples|no column has .* tokens: |every question has \d+ rounds|policies fitted on|"
    r"each record is a question, and an item in"
)
"""Notes that nobody needs before a first decision."""

_ENDED = re.compile(
    r"read as the loop's own stops, with what comes later unknown\. (.+?), and lost rows would look the same: --ended rule confirms it, "
    r"--ended exhausted or --ended max_rounds gives another reason; until then `suffice decide` assumes the worst of their missing rounds"
)
"""The end of the note on trajectories that end early for a reason that is not known."""

_MOST_READINGS = 30
"""The most columns that the first screen names."""

_OPTIONS = {"columns": "--column", "metrics": "--metric-column", "labels": "--label"}


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Options that decide how to read a file that can be read in several ways."""

    panel: ClassVar[str] = "How the file is read"

    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", help="For tabular files: OURS=THEIRS, as round=step; THEIRS:thousands reads 1,234 as 1234."
        ),
    ] = None
    metric_column: Annotated[
        list[str] | None,
        typer.Option(
            "--metric-column",
            help="For tabular files: NAME=COLUMN, a metric of your own in [0, 1]; COLUMN/TOTAL, a part of a total.",
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="For tabular files: NAME=COLUMN, a text; policies depend on a 'model'."),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="COLUMN=VALUE",
            help="Only rows, or calls of traces, with this value; event!=report leaves rows of a table out; repeatable.",
        ),
    ] = None
    log_golds: Annotated[
        str | None,
        typer.Option("--log-golds", help="For tabular files: keep gold answers equal to the last ones, or drop them."),
    ] = None
    first_round: Annotated[
        int | None,
        typer.Option(
            "--first-round",
            help="The number of the lowest round: 0 (the model alone, beside the loop) or 1 (the loop's first call).",
        ),
    ] = None
    ended: Annotated[
        str | None,
        typer.Option(
            "--ended", help="The reason why some are shorter: rule (the loop's own stops), exhausted or max_rounds."
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="For traces: the attribute that names the question; trace_id makes each trace a question."
        ),
    ] = None
    expected: Annotated[
        list[str] | None,
        typer.Option("--expected", metavar="ALARM", help="The log is right although this alarm doubts it; repeatable."),
    ] = None

    file_is: Annotated[
        str | None,
        typer.Option("--file-is", help="For a folder or zip: what a file is, a round, model, run or question."),
    ] = None
    query: Annotated[
        str | None, typer.Option("--query", help="For SQLite and DuckDB: the SELECT whose rows are the table.")
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="For prose: a regular expression with named groups, such as (?P<answer>.+)."),
    ] = None

    answer_position: Annotated[
        str | None,
        typer.Option(
            "--answer-position",
            help=f"The place of the answer in a reply, if whole replies were logged: {models.PLACES}.",
        ),
    ] = None

    outcomes: Annotated[
        Path | None,
        typer.Option("--outcomes", help="Which runs succeeded: a table with ids and grades, or a report of SWE-bench."),
    ] = None

    trial_cost: Annotated[
        float | None,
        typer.Option("--trial-cost", min=0, help="For prefixes of chains of thought: the tokens of a trial answer."),
    ] = None

    repeated: Annotated[
        str | None,
        typer.Option(
            "--repeated", help="If a question has a round several times: first or last, the answer that counts."
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the given options as arguments of importers."""
        read: dict[str, Any] = {
            "columns": _column_pairs(self.column, "--column", "OURS=THEIRS", may_be_empty=True),
            "metrics": _column_pairs(self.metric_column, "--metric-column", "NAME=COLUMN"),
            "labels": _column_pairs(self.label, "--label", "NAME=COLUMN"),
            "log_golds": self.log_golds,
            "first_round": self.first_round,
            "ended": self.ended,
            "key": self.key,
            "where": where_pairs(self.where) or None,
            "file_is": self.file_is,
            "outcomes": self.outcomes,
            "trial_cost": self.trial_cost,
            "repeated": None
            if self.repeated is None
            else options.allowed(self.repeated, ["first", "last"], "--repeated"),
            "answer_position": models.answer_position(self.answer_position),
        }
        return {name: value for name, value in read.items() if value is not None}


def import_command(
    context: typer.Context,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="A file of recorded rounds, or a folder of them.")
    ],
    reading: _Reading,
    output: Output,
    out: Annotated[
        RecordingPath | None,
        typer.Option("--out", "-o", help="The recording; by default PATH's name with .parquet, here."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help=f"Instead of recognising the format: {', '.join(importer_names())}."),
    ] = None,
    golds: Annotated[
        Path | None,
        typer.Option("--golds", help="Questions with gold answers, joined by id or by the question's text."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept the guesses without asking.")] = False,
    samples: Annotated[
        bool,
        typer.Option("--samples", help="The rounds of a question are independent samples: their order means nothing."),
    ] = False,
    normalizer: Annotated[
        str | None,
        Setting(
            "sampling", "normalizer", help=f"How answers are compared: {', '.join(NORMALIZERS)}; default: by the golds."
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="For traces: show how the longest conversation is read, and write nothing."),
    ] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Embed the answers, for semantic_distance.")] = False,
    embedder: models.EmbedderName = "minilm",
    device: DeviceName = None,
) -> None:
    """It also reports, for each column, values that were removed or changed.

    Exit code 0: the recording is written, also if nothing in the log says which answers are right (with --json, judged_by
    is then empty). Exit code 2: the log can be read in several ways, or was probably misread, and nothing is written.

    Example: suffice import run.csv
    """
    path = _one_path(paths)
    if kind is not None and kind not in (*importer_names(), *OF_PAPERS):
        known = ", ".join(importer_names())
        raise typer.BadParameter(f"{kind!r} is not a known format; there are: {known}", param_hint="--kind")
    if explain:
        _explain(path, kind or kind_of(path), reading, output)
        return
    arguments = reading.arguments()
    used = _embedder(path, kind, embedder, device, arguments, embed=embed)
    interactive = sys.stdin.isatty() and sys.stderr.isatty()
    confirmed: list[PartedRun] = []

    def confirm(run: PartedRun) -> bool:
        confirmed.append(run)
        return _confirm(run)

    summary = import_recording(
        path,
        kind,
        out=out,
        golds=golds,
        embedder=used,
        settle=Choices() if interactive else None,
        confirm=(lambda _: True) if yes else confirm if interactive else None,
        samples=samples,
        normalizer=normalizer,
        query=reading.query,
        pattern=reading.pattern,
        expected=reading.expected,
        **arguments,
    )
    command = command_line(context, "details", "as_json", "yes", folders=True)
    seen = confirmed[-1].notes if confirmed and sys.stdout.isatty() else None
    output.show(summary.to_dict(), _import_screen(summary, command, details=output.details, seen=seen))


def _embedder(
    path: Path, kind: str | None, name: str, device: str | None, arguments: Mapping[str, Any], *, embed: bool
) -> Embedder | None:
    """Return the embedder of answers; None if answers are not embedded. Raise if an option does not fit the format."""
    format_ = kind_of(path) if kind is None else kind
    takes = inspect.signature(importer(format_)).parameters
    wrong = [option for option in arguments if option not in {*takes, "outcomes"}]
    if wrong:
        do = [
            said
            for name, said in (("tabular", "tabular files"), ("openai", "traces"))
            if wrong[0] in inspect.signature(importer(name)).parameters
        ]
        raise typer.BadParameter(
            f"{format_} files do not take it; {f'{do[0]} do' if do else 'leave it out'}",
            param_hint=_OPTIONS.get(wrong[0], f"--{wrong[0].replace('_', '-')}"),
        )
    used = models.build_embedder(name, device) if embed or "embedder" in takes else None
    if embed and used is None:
        raise DataError("--embed needs an embedder, but the setting embedder is none: leave one of them out")
    return used


def _confirm(run: PartedRun) -> bool:
    """Show how the columns and one question were read; return True if the user agrees."""
    warn(_columns_read(run.readings))
    for table in run.shown:
        print_table(table, errors)
    for note in run.notes:
        if not _QUIET.match(note):
            warn(f"{'' if note.startswith(CAUTION) else 'note: '}{_plain_note(note)}")
    return typer.confirm("Import it like this?", default=True, err=True)


def _explain(path: Path, kind: str, reading: _Reading, output: Output) -> None:
    position = models.answer_position(reading.answer_position)
    where = where_pairs(reading.where)
    table = explain_trace(path, kind, key=reading.key, answer_position=position, where=where)
    given = {"key": reading.key, "answer-position": reading.answer_position}
    then = f"suffice import {quoted(path)}" + "".join(f" --{name} {quoted(v)}" for name, v in given.items() if v)
    then += where_words(reading.where)
    values = [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
    output.show({"spans": values, "notes": list(table.notes)}, Screen(tables=[table], then=then))


def _one_path(paths: Sequence[Path]) -> Path:
    """Return the only path; raise if there are several, with advice if the first one is a format's name, as in old releases."""
    first, *more = paths
    if not more:
        return first
    if str(first) in importer_names() and not first.exists():
        raise typer.BadParameter(
            f"the format is an option now, and mostly recognised: suffice import {more[0]}, or suffice import {more[0]} "
            f"--kind {first}",
            param_hint="PATH",
        )
    raise typer.BadParameter(
        f"expected one path, got {len(paths)}: put the files of a run into one folder and import the folder",
        param_hint="PATH",
    )


def _column_pairs(
    given: Sequence[str] | None, option: str, form: str, *, may_be_empty: bool = False
) -> dict[str, str] | None:
    pairs = [item.partition("=") for item in given or ()]
    if any(not ours or not (theirs or (may_be_empty and sign)) for ours, sign, theirs in pairs):
        raise typer.BadParameter(f"it is given as {form}", param_hint=option)
    return {ours: theirs for ours, _, theirs in pairs} or None


def _import_screen(
    summary: ImportSummary, command: str, *, details: bool, seen: Collection[str] | None = None
) -> Screen:
    """Return the screen of an import.

    `seen` has the notes that the user saw when confirming the reading; these notes and the reading are left out of the
    screen.  None = the user was not asked.
    """
    is_seen = seen is not None
    noted = [note for note in summary.notes if details or note not in (seen or ())]
    nulled = [
        f"{item.name}: {item.nulled} of {item.nulled + item.defined} values are undefined in the recording: infinite, or in "
        "rounds in which the signal does not exist"
        for item in summary.columns
        if item.nulled
    ]
    runs = f" in {summary.trajectories:,} runs" if summary.trajectories != summary.clusters else ""
    are_whole = len(summary.ends) > 1 and [own.n for own in summary.by_round[-1:]] == [summary.ends.get("max_rounds")]
    said = {**_ENDS, **({"max_rounds": "have all of them"} if are_whole else {})}  # the cap may be unknown
    if any(UNSAID in note for note in summary.notes):
        said["rule"] = "ended earlier"
    ends = ", ".join(f"{n:,} {said[end]}" for end, n in summary.ends.items())
    what = "round"
    if summary.samples:
        what, whole = "sample", summary.ends.get("max_rounds", 0)
        fewer = sum(summary.ends.values()) - whole
        ends = f"{whole:,} have {summary.rounds:,}" + (f", {fewer:,} fewer" if fewer else "")
    questions = f"{summary.path}: {counted(summary.clusters, 'question')}{runs}"
    is_even = len({means.n for means in summary.by_round}) == 1 and {*summary.ends} == {"max_rounds"}
    each = f"{counted(summary.rounds, what)} each" if is_even else f"up to {counted(summary.rounds, what)}: {ends}"
    sentences, tables = [f"{questions}, {each}"], summary.tables()[1:]
    if not (details or is_seen):
        sentences += [_columns_read(summary.readings)] if summary.readings else []
        tables = [rounds_table(summary.preview, summary.by_round), *tables]
    return Screen(
        sentences=["\n".join(sentences)],
        tables=tables,
        shown=0 if is_seen else 1,
        notes=[*(_with_commands(note, command) for note in (noted if details else map(_plain_note, noted))), *nulled],
        quiet=_QUIET,
        files={"choices": summary.mapping},
        then=_next_step(summary),
    )


def _with_commands(note: str, command: str) -> str:
    """If a note says that nothing is left to decide, write its options as commands, unless the note gets too long."""
    if _NO_NEXT not in note:
        return note

    def whole(found: re.Match[str]) -> str:
        kept, _ = without_replaced(shlex.split(command), found[1])
        return f": {shlex.join(kept)} {found[1]}"

    written = re.sub(r": (--[^;]+)", whole, note)
    return written if len(written) <= LONGEST_NOTE else note


def _columns_read(readings: Sequence[ColumnReading]) -> str:
    """Return a sentence on the meaning of each column; a column that holds both the question and its id is named once.

    >>> _columns_read([ColumnReading(ours="round", theirs="order in 'steps'", how="shape")])
    "Columns read: order in 'steps' as round"
    """
    texts: list[str] = []
    question = next((item.theirs for item in readings if item.ours == "question"), None)
    tokens: list[str] = []
    for item in readings:
        theirs, words = cut(item.theirs), plain_words(item.ours)
        if item.how == WITHIN or (item.ours == "question_id" and item.theirs in (question, RECORD_NUMBER)):
            continue
        if words.endswith(" tokens"):
            tokens.append(theirs)
        elif theirs.replace("_", " ") in (words, item.ours.replace("_", " ")):
            texts.append(theirs)
        else:
            texts.append(words if words == f"{theirs} (score)" else f"{theirs} as {words}")
    texts += [f"{' and '.join(tokens)} as tokens"] if tokens else []
    more = f" and {len(texts) - _MOST_READINGS} more" if len(texts) > _MOST_READINGS else ""
    return f"Columns read: {', '.join(texts[:_MOST_READINGS])}{more}"


def _plain_note(text: str) -> str:
    """Shorten a note of an import if it is one that newcomers often see; return other notes unchanged.

    >>> _plain_note("'cost' is not counted: if each row has its own dollars, --column spend=cost:each; else prices of tokens say what is paid")
    "'cost' is not counted: if each row has its own dollars, --column spend=cost:each"
    """
    if (match := _ENDED.search(text)) is not None:
        why = f". {match[1]}." if "may say why" in match[1] else ", for a reason that the log does not give."
        return (
            f"{text[: match.start()].rstrip(': ')}{why} If the loop stopped there by itself, --ended rule says so "
            "(--ended exhausted or --ended max_rounds: other reasons); until then `suffice decide` assumes the worst of what is missing"
        )
    return re.sub(r"(is not counted.*: .+); else prices of tokens say what is paid.*", r"\1", text)


def _next_step(summary: ImportSummary) -> str:
    """Return the next command; "" if no round can be saved (a note explains why), or if no answer can be judged."""
    if summary.rounds <= 1 or not (summary.judged_by or any(means.answered for means in summary.by_round)):
        return ""
    are_drafts = any(alarm.name == "drafts" for alarm in summary.alarms)
    if not summary.judged_by and are_drafts and any(ONCE in note for note in summary.notes):
        return ""  # these are an agent's messages: neither their agreement nor their labels show whether a run succeeds
    by = "" if summary.judged_by or summary.of_steps else ASK
    is_of_runs = len(summary.judged_by) == 1 and {*summary.judged_by} <= {*summary.of_runs}
    n_answers = sum(means.answered * means.n for means in summary.by_round if means.answered > 0)
    if is_of_runs and n_answers < summary.trajectories + 0.5:  # at most one at the end of each run
        by = options.metric_words(f"abandon({summary.judged_by[0]})")  # giving up can be judged, a lower cap cannot
    if summary.clusters >= ENOUGH:
        return f"suffice decide {quoted(summary.path)}{by}{where_words(summary.loops[:1])}"
    return options.replay_step(summary.path, read_recording(summary.path))
