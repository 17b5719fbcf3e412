"""Ask whose texts are the rounds, if the items of a list are what a user and several agents say in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from suffice.errors import UnsettledError
from suffice.importers.names import ANSWERS, plain_name
from suffice.importers.reply_alarms import of_each
from suffice.importers.shape import Shape

_SPEAKERS = frozenset({"source", "speaker", "sender", "author", "name", "agent", "agent_name"})
_CRITICS = frozenset({"critic", "reviewer", "evaluator", "verifier", "judge"})
_USERS = frozenset({"user", "human", "user_proxy"}) | _CRITICS
"""Those who speak, but never answer."""

_SHOWN = 5


def refuse_several_speakers(shape: Shape, where: Mapping[str, str], runs: Collection[str]) -> None:
    """Raise if rows are said by a user or critic and others, and `where` does not choose whose texts are the rounds.

    A column in `runs` tells runs apart, as the user says.
    """
    for name in sorted(_speakers(shape) - where.keys() - {*runs}):
        said = Counter(value for row in shape.rows if isinstance(value := row.values.get(name), str))
        others = [value for value, _ in said.most_common() if value.lower() not in _USERS]
        if others and len(others) < len(said):
            listed = ", ".join(map(repr, [*said][:_SHOWN]))
            raise UnsettledError(
                f"{'the items of a list' if shape.how else 'the rows'} are what {listed} say in turn (column {name!r}; --column run={name} if "
                "each answers in rounds of its own): whose texts are the rounds?",
                "options",
                of_each(name, others[:_SHOWN], "those of {!r}"),
            )


def numbered_again(shape: Shape, where: Mapping[str, str]) -> Shape:
    """Number the rounds of each record anew, if `where` has chosen some of a list's items: those of one speaker or kind of step."""
    if not shape.how or where.keys() <= shape.outer:
        return shape
    places: Counter[tuple[str, int]] = Counter()
    rows = []
    for row in shape.rows:
        places[row.file, row.number] += 1
        rows.append(replace(row, values={**row.values, "round": places[row.file, row.number]}))
    return replace(shape, rows=rows)


def _speakers(shape: Shape) -> set[str]:
    """Return the columns that may name speakers: those of items without an answer of their own, or with a critic who has one, too."""
    names = {name for row in shape.rows for name in row.values} - shape.outer
    if shape.how and not any(plain_name(name) in ANSWERS for name in names):
        return names & _SPEAKERS
    return {name for name in names & _SPEAKERS if _critics_answer(shape, name)}


def _critics_answer(shape: Shape, name: str) -> bool:
    """Return whether a column names critics and others, and the former fill all columns that the latter do."""
    filled: dict[bool, set[str]] = {}
    for row in shape.rows:
        is_critic = str(row.values.get(name)).lower() in _CRITICS
        filled.setdefault(is_critic, set()).update(
            other for other, value in row.values.items() if value not in (None, "")
        )
    return len(filled) > 1 and filled[True] >= filled[False]
