"""Tell agents that take turns within one loop, such as a writer and a critic, from agents that each have a loop of their own."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

from suffice.importers.names import MOST_SPEAKERS, is_person, last_name
from suffice.importers.records import Record, column_names, places_of

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
    """Return whether a column of agents names those who take turns in one loop, and not loops of their own.

    People and those who check answers always do.  Others do if their rows alternate within a question, and their names are
    those of a kind of work, or a column is filled by some of them alone.

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
    """Return whether an agent speaks again after another one in at least half of the questions with three rows or more of several."""
    said: dict[Hashable, list[object]] = {}
    for value, own in zip(values, questions, strict=True):
        turns = said.setdefault(own, [])
        if not turns or turns[-1] != value:
            turns.append(value)
    again = [len(turns) > len({*turns}) for turns in said.values() if len(turns) > 1]
    return sum(again) >= _MOSTLY * len(again) > 0


def _fill_others(rows: Sequence[Record], name: str) -> bool:
    """Return whether a column has a value in most rows of one agent and in none of another's."""
    agents = places_of(str(row.values.get(name)) for row in rows).values()
    for other in column_names(rows):
        shares = [sum(rows[place].values.get(other) not in (None, "") for place in own) / len(own) for own in agents]
        if min(shares) == 0 and max(shares) > _MOSTLY:
            return True
    return False
