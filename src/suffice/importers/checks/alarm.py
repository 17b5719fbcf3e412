"""An alarm about a reading, and the facts from which checks raise alarms."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from suffice.common.results import UNLESS_EMPTY
from suffice.common.tables import CAUTION
from suffice.errors import UnsettledError
from suffice.importers.rounds.facts import Facts
from suffice.importers.words.choices import Choices
from suffice.importers.words.names import RUNS, in_log, last_name
from suffice.recordings.runs import RUN_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A doubt about a reading.

    Attributes:
        name: Its name, one of `suffice.importers.alarms.ALARMS`.
        level: `stop` = nothing is written until the user answers the alarm; `caution` = the alarm is stored as a note.
        sentence: A description of the doubt.
        choices: The command-line options that answer the alarm.  Each is mapped to the values that it sets, by parameter of
        `import_recording`, and to a description of the resulting reading.
        confirmed: The choice that the log itself confirms; "" if only the owner of the log can decide.
    """

    name: str
    level: Literal["stop", "caution"]
    sentence: str
    choices: Mapping[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    confirmed: str = field(default="", metadata=UNLESS_EMPTY)

    @property
    def note(self) -> str:
        """The alarm as a note, including the option that answers it."""
        return f"{CAUTION}{self.sentence} (--expected {self.name} if that is right)"

    def error(self, columns: Mapping[str, str] | None = None) -> UnsettledError:
        """Return the error that asks for an answer; `columns` maps this library's names to the log's columns."""
        names, own = {"answer": "answers", "golds": "gold answers", "round": "rounds"}, columns or {}
        read = ", ".join(f"{words} from {own[ours]:.60}" for ours, words in names.items() if ours in own)
        meaning = "the log was read right" + (f": {read}" if read else "")
        choices = {**self.choices}
        choices.setdefault(f"--expected {self.name}", ({"expected": [self.name]}, meaning))
        return UnsettledError(self.sentence, "options", choices, self.confirmed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A run as it was read.

    Attributes:
        columns: Maps this library's names of columns to the log's columns, or to a description of where the values come from.
        names: Maps this library's names of columns to the names that options need, where these differ from the names in `columns`.
        doubt: A question about the cost of rows that a filter leaves out; "" for none.
        sources: The log's columns from which other columns are computed.
    """

    facts: Facts
    source: str
    columns: Mapping[str, str]
    options: Mapping[str, Any]
    doubt: str = ""
    sources: Collection[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def was_guessed(self, ours: str) -> bool:
        """Return whether a table's column was guessed.

        Return False if the user named the column, or if the log is not a table: the fields of all other formats are known.
        """
        return self.is_table and ours not in self.said

    def named(self, ours: str) -> str:
        """Return the log's column that is read under one of this library's names, as it is spelled in options."""
        return self.names.get(ours) or self.columns.get(ours, ours)

    def named_metric(self, ours: str) -> str:
        """Return the log's column that is read as a metric, as it is spelled in options."""
        return self.named(f"{ours} (metric)").removesuffix(" (metric)")

    @property
    def is_table(self) -> bool:
        """True if rows of a table were read, with columns that were guessed or named by the user."""
        return self.source == "tabular"

    @property
    def said(self) -> Mapping[str, str]:
        """The columns that the user names, by this library's names."""
        return self.options.get("columns") or {}

    @property
    def samples(self) -> bool:
        """True if the answers of a question are independent samples."""
        return bool(self.options.get("samples"))


Doubt = tuple[str, Choices] | tuple[str, Choices, str]
"""The sentence of an alarm, the other readings that answer it, and the one of them that the log itself confirms, if any."""


def used_columns(read: Read) -> set[str]:
    """Return the names of the columns that are read or used in filters, both the log's names and this library's."""
    own = [(read.options.get(name) or {}) for name in ("columns", "metrics", "labels")]
    said = [
        part
        for pairs in own
        for pair in pairs.items()
        for name in pair
        for part in (name, name.rpartition(":")[0], *name.split(","))
    ]
    shown = [re.split(r" \(| as ", theirs)[0] for theirs in read.columns.values()]
    names = {*said, *(read.options.get("where") or {}), RUN_FILE, *shown, *read.sources, *read.columns.values()}
    names |= {ours.partition(" ")[0] for ours in read.columns}
    if read.facts.trajectories > read.facts.clusters:  # columns of these names distinguish the runs of a question
        names |= {name for name in read.facts.own.columns if last_name(in_log(name)) in RUNS}
    return names | {f"imported_{name}" for name in names}
