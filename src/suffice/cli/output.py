"""Output of commands: one screen, every detail, or JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar

from rich.text import Text
from typer import Option

from suffice.cli.console import console, fits, print_json, print_table, say, table_view
from suffice.common.results import jsonable
from suffice.common.tables import CAUTION, Table, counted
from suffice.errors import DataError

COLUMNS = 100
LONGEST_NOTE, _SHORT_NOTE = (lines * COLUMNS - 20 for lines in (4, 2))
"""The most characters of a note on a first screen, and of one without an option behind them."""

_LINES = 40
_OTHER_NOTES = 6
"""The most notes on a screen in addition to the necessary ones."""

_NEEDED = re.compile(
    r"selected here|censored|missing|undefined|unknown|failed|left out|dropped|no answer|got lost|known once|nothing to decide|column that is read says|read as (?:round 1|the model alone)|^not read:|^problem:|WARNING",
    re.IGNORECASE,
)
"""Notes without which a figure would mislead; they are shown with their advice."""

_OPTION = r"--[a-z][a-z-]*(?: (?:'[^']*'|[^\s-]\S*))?"
_COMMAND = re.compile(rf"`[^`]*`|(?:\bsuffice(?: [\w./-]+)+ )?{_OPTION}(?: {_OPTION})*")
"""Commands, and options with their values, one after another: what a reader copies."""

_NO_BREAK = "\ue000"
"""Stands for a space at which a line must not end; a private character, which no text has."""

_CLAUSE_END = re.compile(r"[,;:.] (?!\d)")

_FIGURES = re.compile(r"[\d.,%]+")


@dataclass(frozen=True, kw_only=True)
class Screen:
    """The text output of a command; without `--details`, it shows the first sentence, the first tables and the notes.

    Cautions are printed before everything else.  They are notes on data that may not be what it seems.

    Attributes:
        sentences: The result in words, the most important first.
        tables: The tables, the most important first.
        notes: Caveats, in addition to the notes of the tables.
        shown: Number of tables that are shown without `--details`.
        aside: Names of columns that are shown only with `--details`.
        quiet: A pattern; notes whose beginning matches it are shown only with `--details`.
        files: The written files, by description.
    """

    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    shown: int = 1
    aside: Collection[str] = ()
    quiet: re.Pattern[str] = re.compile(r"\Z.")
    files: Mapping[str, Path | str | None] = field(default_factory=dict)
    then: str = ""

    def print(self, *, details: bool = False, lines: int = _LINES) -> None:
        """Print the output.

        Args:
            details: Print every table, sentence and note, in full.
            lines: The largest number of lines without `details`.
        """
        after = [f"{what} written to {path}" for what, path in self.files.items() if path is not None]
        if self.then:
            after.append(f"next: {self.then}")
        width = min(COLUMNS, console.width)
        every = dict.fromkeys([*(note for table in self.tables for note in table.notes), *self.notes])
        first = [note for note in every if note.startswith(CAUTION)]
        first = first if details else _wrapped(first, width)
        for text in first:
            say(text)
        if details:
            for table in self.tables:
                print_table(replace(table, notes=_without_cautions(table.notes)))
            for text in (*self.sentences, *(f"note: {note}" for note in _without_cautions(self.notes))):
                say(text)
        else:
            # Notes of hidden tables are legends, which nobody needs here, except notes that the shown figures depend
            # on.
            of_hidden = [note for table in self.tables[self.shown :] for note in table.notes if _NEEDED.search(note)]
            of_shown = [note for table in self.tables[: self.shown] for note in table.notes]
            self._brief(
                lines - len(after) - len(first), _without_cautions(dict.fromkeys([*of_shown, *of_hidden, *self.notes]))
            )
        for text in after:
            say(text)

    def _brief(self, lines: int, every_note: Sequence[str]) -> None:
        """Print the parts that fit into a number of lines; if a part is left out, also print a hint at `--details`."""
        width = min(COLUMNS, console.width)
        head = _wrapped([line for text in self.sentences[:1] for line in text.splitlines()], width)
        for line in head:
            say(line)
        notes = _brief_notes(note for note in every_note if not self.quiet.match(note))
        needed = sum(_NEEDED.search(note) is not None for note in notes)
        texts = [_wrapped([f"note: {note}"], width) for note in notes[: needed + _OTHER_NOTES]]
        room = lines - len(head) - 1  # one line is for the hint that something is left out
        least = sum(map(len, texts[: max(needed, 2)]))
        is_cut = len(self.tables) > self.shown or len(self.sentences) > 1
        for place, whole in enumerate(self.tables[: self.shown], start=1):
            most = max(room - least, room // 2) // (min(self.shown, len(self.tables)) - place + 1)
            table, height = _fitted(whole, self.aside, width, most)
            _print(table, width, n_left=len(whole.rows) - len(table.rows))
            room -= height
            is_cut = is_cut or table != whole
        while texts and sum(map(len, texts)) > room:
            texts.pop()
        for line in chain.from_iterable(texts):
            say(line)
        if is_cut or {*notes[: len(texts)]} != {*every_note}:
            say("more: --details")


def _without_cautions(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(note for note in notes if not note.startswith(CAUTION))


def _wrapped(texts: Iterable[str], width: int) -> list[str]:
    r"""Wrap texts into lines; no line breaks within a short command, or between an option and its value.

    >>> _wrapped(["it is read; --column answer=reply reads it otherwise"], 20)
    ['it is read; --column', 'answer=reply reads', 'it otherwise']
    >>> _wrapped(["it is read; --column answer=reply reads it otherwise"], 30)
    ['it is read;', '--column answer=reply reads it', 'otherwise']
    """
    parts = re.compile(rf"`[^`]*`|{_OPTION}")

    def joined(match: re.Match[str]) -> str:
        return match[0] if len(match[0]) > width else match[0].replace(" ", _NO_BREAK)

    wrapped = partial(textwrap.wrap, width=width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for text in texts for line in wrapped(parts.sub(joined, text))]


def _fitted(whole: Table, aside: Collection[str], width: int, lines: int) -> tuple[Table, int]:
    """Shorten a table to a width and a number of lines; return it with its height.

    The columns `aside` are dropped, then the last columns until the width fits, then the last rows until the lines fit.  The height
    is returned since computing it takes as long as printing.
    """
    places = [place for place, column in enumerate(whole.columns) if column.name not in aside]
    table = whole.with_columns(places)
    while len(places) > 1 and not fits(table, width):
        places.pop()
        table = whole.with_columns(places)
    table = replace(table, rows=table.rows[:lines])
    while (over := (height := _height(table, width)) - lines) > 0 and len(table.rows) > 1:
        table = replace(table, rows=table.rows[: -max(1, over // 4)])
    return table, height


def _height(table: Table, width: int) -> int:
    """Return the number of lines of a table with its title and the empty line below it."""
    lines = console.render_lines(table_view(table, width), console.options.update(width=width))
    return len(_wrapped([table.title], width)) + len(lines) + 1


def _print(table: Table, width: int, *, n_left: int = 0) -> None:
    """Print a table and an empty line; if rows are left out, print their number instead of the empty line."""
    for line in _wrapped([table.title], width):
        console.print(Text(line, style="italic"), soft_wrap=True)
    console.print(table_view(table, width), width=width)
    more = f"... {counted(n_left, 'more round' if table.columns[0].name == 'round' else 'more row')}"
    say(more if n_left else "")


def _brief_notes(notes: Iterable[str]) -> list[str]:
    """Return the first sentence of every note, necessary notes first.

    Long sentences are cut, but not before an option that they advise.  Notes that differ only in numbers appear once.

    >>> _brief_notes(["tasr: only 1 pair differs. Read the exact test.", "full: only 2 pairs differ.", "f1 is unknown in 3 rounds"])
    ['f1 is unknown in 3 rounds', 'tasr: only 1 pair differs.', 'full: only 2 pairs differ.']
    >>> _brief_notes(["a: 3 rounds are empty", "b: 4 rounds are empty", "c: 5 rounds are empty"])
    ['a: 3 rounds are empty (2 more notes like it)']
    >>> _brief_notes(["f1 is 0.57 for 'Roe v. Wade, 410 U.S. 113 (1973)': --metric em gives none. It may be true."])
    ["f1 is 0.57 for 'Roe v. Wade, 410 U.S. 113 (1973)': --metric em gives none."]
    >>> _brief_notes(["--metric-column score=score:LOW..HIGH scales it. It is up to you."])
    ['--metric-column score=score:LOW..HIGH scales it.']
    """
    from suffice.common.sentences import sentence_end

    kinds: dict[str, list[str]] = {}
    for note in notes:
        whole = "--" in note and _NEEDED.search(note)  # a necessary note that advises an option is kept whole
        sentence = note if whole else note[: sentence_end(_COMMAND.sub(_masked, note))].rstrip()
        advice = next((own.end() for own in _COMMAND.finditer(sentence) if "--" in own[0]), 0)
        sentence = _shortened(sentence, LONGEST_NOTE if whole or advice > _SHORT_NOTE else _SHORT_NOTE)
        head, colon, tail = sentence.partition(": ")
        kinds.setdefault(_FIGURES.sub("", tail if colon else head), []).append(sentence)
    lines = [
        f"{first} ({counted(len(more), 'more note')} like it)" if more else first for first, *more in kinds.values()
    ]
    return sorted(lines, key=lambda line: _NEEDED.search(line) is None)


def _masked(command: re.Match[str]) -> str:
    """Replace the characters of a command by letters, except punctuation at its end, so that no sentence seems to end inside it."""
    own = command[0].rstrip(".,;:")
    return "x" * len(own) + command[0][len(own) :]


def _shortened(sentence: str, most: int) -> str:
    """Cut a sentence to at most `most` characters at the end of a clause, or else between words, but never within an option.

    >>> _shortened("it is read; --column 'a=b c' reads it otherwise", 26)
    'it is read ...'
    >>> _shortened("it is read; --column 'a=b c' reads it otherwise", 36)
    "it is read; --column 'a=b c' ..."
    >>> _shortened("it holds several: `suffice decide --where model=x` judges one", 40)
    'it holds several ...'
    >>> _shortened("prices say what is paid (suffice decide --prices), else nothing", 50)
    'prices say what is paid ...'
    >>> _shortened("none is counted; --column a=b counts all of them, or what each adds if they never fall", 70)
    'none is counted; --column a=b counts all of them ...'
    """
    plain = " ".join(sentence.split())
    short = textwrap.shorten(plain, most, placeholder=" ...")
    if short == plain:
        return plain
    kept = len(short.removesuffix(" ..."))
    kept = next((own.start() for own in _COMMAND.finditer(plain) if own.start() <= kept < own.end()), kept)
    clauses = _CLAUSE_END.finditer(_COMMAND.sub(_masked, plain), 0, kept - 1)  # ignore a clause end just before the cut
    clause = max((own.start() for own in clauses), default=0)
    kept = clause if 2 * clause > kept else kept
    if plain.count("(", 0, kept) > plain.count(")", 0, kept):
        kept = plain.rindex("(", 0, kept)
    return plain[:kept].rstrip(" ;:,.(") + " ..."


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options for printing a result."""

    panel: ClassVar[str] = "Output"

    details: Annotated[bool, Option("--details", help="Print every table, column and note.")] = False
    as_json: Annotated[
        bool, Option("--json", help="Print JSON for programs, and nothing else, to standard output.")
    ] = False

    def show(self, data: Any, screen: Screen) -> None:
        """Print a result."""
        if self.as_json:
            print_json(jsonable(data))
        else:
            screen.print(details=self.details)


def check_markdown(markdown: Path | None) -> None:
    """Raise a `DataError` if the folder of a page is missing, before the command does work that it could not save."""
    if markdown is not None and not markdown.parent.is_dir():
        raise DataError(
            f"the folder {str(markdown.parent)!r} does not exist, so {markdown.name!r} cannot be written: create it first"
        )
