"""Detect the speakers of rows.

They may be a user and agents in turn, agents of one loop such as a writer and a critic, or agents with separate loops.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from suffice.common.tables import cut_list
from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, places_of, with_column
from suffice.importers.rows.failed_calls import ALL_ROWS
from suffice.importers.rows.left_out import questions_of
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.choices import Choices, of_each
from suffice.importers.words.names import (
    ANSWERS,
    IDS,
    MOST_SPEAKERS,
    PEOPLE,
    SPEAKERS,
    WEAK_REPLIES,
    is_person,
    last_name,
    plain_name,
)
from suffice.importers.words.score_names import is_critic

_SPEAKERS = frozenset(
    {"source", "speaker", "sender", "author", "name", "agent", "agent_name", "from", "who", "actor", "role"}
)
_OF_ANYTHING = frozenset({"source", "name", "type", "kind"})
"""Names that say anything else as often as who speaks."""

_SHOWN, _OFFERED = 5, 3
_SOME = 0.05
"""The share of questions in which people speak from which on they are asked about."""


def refuse_several_speakers(shape: Shape, where: Mapping[str, str], runs: Collection[str]) -> None:
    """Raise if rows come from several speakers, such as a user or critic and an agent.

    Does not raise if `where` chooses the speaker whose rows are rounds.  Columns in `runs` distinguish runs according to the user.
    """
    chosen = [row for row in shape.rows if all(str(row.values.get(name)) == own for name, own in where.items())]
    for name in sorted(_speakers(shape) - where.keys() - {*runs}):
        said = Counter(value for row in chosen or shape.rows if isinstance(value := row.values.get(name), str))
        others = [own for own, _ in said.most_common() if not (is_critic(own) or is_person(own))]
        if others and len(others) < len(said):
            listed = ", ".join(map(repr, [*said][:_SHOWN]))
            raise UnsettledError(
                f"{'the items of a list' if shape.how else 'the rows'} are what {listed} say in turn (column {name!r}; --column run={name} if "
                "each answers in rounds of its own): whose texts are the rounds?",
                "options",
                of_each(name, others[:_SHOWN], "those of {!r}"),
            )


def speaker_choices(table: TableColumns, names: Collection[str]) -> Choices:
    """Return the options that keep the rows of one speaker, for columns that name agents by their role in a loop."""
    result: Choices = {}
    for name in [name for name in names if last_name(name) in SPEAKERS]:
        said = Counter(value for value in table.column(name) if isinstance(value, str))
        if len(said) <= MOST_SPEAKERS and any(_WORKING.search(own.lower()) for own in said):
            others = [own for own, _ in said.most_common() if not is_critic(own)]
            result |= of_each(name, others[:_SHOWN], f"rounds are rows whose {name!r} is {{!r}}")
    return result


def refuse_first_speakers(table: TableColumns, ids: Sequence[str], used: Collection[str]) -> None:
    """Raise if the speakers of first rows (or of last rows) differ from the speakers of most other rows.

    This is so in a chat of people and a bot, for example.

    Args:
        table: The rows; nothing but their order numbers them.
        ids: The question of each row.
        used: Columns whose meaning is known.
    """
    firsts = {*{own: place for place, own in reversed([*enumerate(ids)])}.values()}
    lasts = {*{own: place for place, own in enumerate(ids)}.values()}
    for name in [name for name in table.names if last_name(name) in PEOPLE and name not in used]:
        values = [None if value in (None, "") else str(value) for value in table.column(name)]
        for ends, word in ((firsts, "first"), (lasts, "last")):
            asking = {values[place] for place in ends}
            rest = [value for place, value in enumerate(values) if place not in ends]
            said = Counter(value for value in rest if value not in asking and value is not None)
            if 2 * said.total() > len(rest):
                others = [own for own, _ in said.most_common(_OFFERED)]
                asked = cut_list(sorted("nothing" if own is None else repr(own) for own in asking))
                raise UnsettledError(
                    f"{name!r} is {asked} in the {word} row of each question, and {cut_list(map(repr, said))} in most others: what a person asks "
                    "is no round",
                    "options",
                    {**of_each(name, others, f"rounds are rows whose {name!r} is {{!r}}"), **ALL_ROWS},
                )


def numbered_again(shape: Shape, where: Mapping[str, str]) -> Shape:
    """Renumber the rounds of each record if `where` selects some items of its list, such as one speaker's."""
    if not shape.how or where.keys() <= shape.outer:
        return shape
    places: Counter[tuple[str, int]] = Counter()
    numbers = []
    for row in shape.rows:
        places[row.file, row.number] += 1
        numbers.append(places[row.file, row.number])
    return replace(shape, rows=with_column(shape.rows, "round", numbers))


def _speakers(shape: Shape) -> set[str]:
    """Return the columns that may name speakers.

    If rows are list items without a field of answers, all columns named like speakers are returned.  Otherwise, only the columns
    are returned in which critics have answers, too, or in which people speak.
    """
    names = {*column_names(shape.rows)} - shape.outer
    if shape.how and not any(plain_name(name) in ANSWERS for name in names):
        return {name for name in names if last_name(name) in _SPEAKERS}
    people = [] if shape.how else [name for name in names if last_name(name) in {*SPEAKERS} - _OF_ANYTHING]
    return {name for name in names & _SPEAKERS if _critics_answer(shape, name)} | {*_with_people(shape, people)}


def _with_people(shape: Shape, names: Collection[str]) -> Iterator[str]:
    """Yield the columns that name a person in some rows of a question but not in others; this must be so in many questions."""
    table = TableColumns(shape.rows)
    ids = [name for name in table.names if last_name(name).endswith("_id") and last_name(name) not in PEOPLE]
    usual = next((name for name in ids if names and table.repeats(name)), "")
    questions = questions_of(table, shape, {"question_id": usual} if not table.by_name(IDS) else {}) if names else ()
    several = sum(n > 1 for n in Counter(questions).values())
    for name in names:
        kinds: dict[Hashable, set[bool]] = {}
        for own, value in zip(questions, table.column(name), strict=True):
            kinds.setdefault(own, set()).add(is_person(str(value)))
        if sum(len(own) > 1 for own in kinds.values()) > _SOME * several:
            yield name


def _critics_answer(shape: Shape, name: str) -> bool:
    """Return whether a column names critics and others, and the critics' rows fill the same columns of answers as the others' rows.

    If no column has a usual name of answers, all columns that the others fill are compared.
    """
    filled: dict[bool, set[str]] = {}
    for row in shape.rows:
        filled.setdefault(is_critic(str(row.values.get(name))), set()).update(
            other for other, value in row.values.items() if value not in (None, "")
        )
    texts = {other for other in filled.get(False, ()) if last_name(other) in (*ANSWERS, *WEAK_REPLIES)}
    return len(filled) > 1 and filled[True] >= (texts or filled[False])


_AGENTS = frozenset({"agent", "agent_id", "agent_name", "member"})
"""Names of columns of agents: each has a loop of its own, or all are calls of one loop."""

_CHECKING = re.compile(r"critic|review|evaluat|verif|judge|grader|checker|validator|tester|feedback|reflect|supervis")
"""Words of those who speak about an answer and give none."""

_WORKING = re.compile(
    r"writer|author|drafter|editor|refiner|reviser|planner|solver|executor|generator|actor|researcher|coder|programmer|"
    r"assistant|retriever|searcher|router|orchestrator|manager|summari[sz]er|responder|answerer|translator|proposer|worker"
)
"""Words of those who do a part of a loop's work."""

_MOSTLY = 0.5


def are_turns(rows: Sequence[Record], name: str, questions: Sequence[Hashable]) -> bool:
    """Return whether a column names agents that take turns in one loop, instead of agents with loops of their own.

    People and checkers of answers always take turns.  Other agents take turns if their rows alternate within a question and, in
    addition, some agent's name describes a kind of work, or some column is filled in most rows of one agent and in none of another.

    Args:
        rows: The rows, in the order of the file.
        name: The column.
        questions: The question of each row.
    """
    values = [row.values.get(name) for row in rows]
    names = {str(value).lower() for value in values if value not in (None, "")}
    if last_name(name) not in _AGENTS or not 1 < len(names) <= MOST_SPEAKERS or not _within(values, questions):
        return False
    if any(is_person(own) or _CHECKING.search(own) for own in names):
        return True
    if len({re.sub(r"\d+", "", own) for own in names}) == 1 or not _alternate(values, questions):
        return False
    return any(_WORKING.search(own) for own in names) or _fill_others(rows, name)


def _within(values: Sequence[object], questions: Sequence[Hashable]) -> bool:
    """Return whether some question has rows of several agents."""
    first: dict[Hashable, object] = {}
    pairs = zip(values, questions, strict=True)
    return any(value is not None and first.setdefault(own, value) != value for value, own in pairs)


def _alternate(values: Sequence[object], questions: Sequence[Hashable]) -> bool:
    """Return whether agents alternate (A, B, A) in at least half of the questions with three or more rows of several agents."""
    said: dict[Hashable, list[object]] = {}
    for value, own in zip(values, questions, strict=True):
        turns = said.setdefault(own, [])
        if not turns or turns[-1] != value:
            turns.append(value)
    again = [len(turns) > len({*turns}) for turns in said.values() if len(turns) > 1]
    return sum(again) >= _MOSTLY * len(again) > 0


def _fill_others(rows: Sequence[Record], name: str) -> bool:
    """Return whether any column is filled in most rows of one agent, and in no row of another agent."""
    agents = places_of(str(row.values.get(name)) for row in rows).values()
    for other in column_names(rows):
        shares = [sum(rows[place].values.get(other) not in (None, "") for place in own) / len(own) for own in agents]
        if min(shares) == 0 and max(shares) > _MOSTLY:
            return True
    return False
