"""Columns that the user names as rounds or answers although they contain gold answers, questions or ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from suffice.common.files import quoted
from suffice.errors import DataError
from suffice.importers.checks.alarm import Doubt, Read
from suffice.importers.checks.unanswered import texts_of_rounds
from suffice.importers.words.choices import Choices, of_options
from suffice.importers.words.gold_names import is_surely_gold
from suffice.importers.words.names import IDS, QUESTIONS, last_name

_FEW = 5
"""The fewest questions of which a column that never changes says something."""

_ASKED = {"golds": "the gold answer", "question": "the question", "question_id": "the id of the question"}


def rounds_named(columns: Mapping[str, str]) -> list[str]:
    """Return the columns that the user names as single rounds; empty if the user names one field that contains a list of rounds.

    >>> rounds_named({"rounds": "draft,final"}), rounds_named({"rounds": "steps"})
    (['draft', 'final'], [])
    """
    names = [name.strip() for name in columns.get("rounds", "").split(",")]
    return names if len(names) > 1 else []


def refuse_two_roles(columns: Mapping[str, str], *, joins_golds: bool) -> None:
    """Raise if the user names one column twice: as the answers or a round, and also as the gold answer, the question or its id.

    Args:
        columns: The columns that the user names.
        joins_golds: Whether gold answers come from another file, whose column may have the same name.
    """
    rounds = rounds_named(columns)
    if len({*rounds}) < len(rounds):
        twice = next(name for name in rounds if rounds.count(name) > 1)
        raise DataError(
            f"{twice!r} is named as two rounds (--column rounds={','.join(rounds)}): each round has a column of its own"
        )
    said = {name: f"--column {quoted(f'answer={name}')}" for name in [columns.get("answer", "")]}
    said |= {name: f"--column rounds={','.join(rounds)}" for name in rounds}
    for ours, what in _ASKED.items():
        theirs = columns.get(ours, "")
        if theirs in said and theirs and not (ours == "golds" and joins_golds):
            raise DataError(
                f"{theirs!r} is named as what the model said ({said[theirs]}) and as {what} (--column {quoted(f'{ours}={theirs}')}): it "
                "is one of them; leave the other out, or name its own column"
            )


def named_golds(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the user names a column as a round or answer although its name suggests gold answers, a question or an id."""
    rounds, facts = rounds_named(read.said), read.facts
    golds = {} if "golds" in read.columns else {"golds": ""}
    called = [name for name in rounds if is_surely_gold(name) or last_name(name) in QUESTIONS]
    if called and len(called) < len(rounds):
        rest, name = [own for own in rounds if own not in called], called[0]
        choices: Choices = {}
        if len(rest) > 1:
            right = dict.fromkeys(golds, name) if is_surely_gold(name) else {}
            meaning = f"{' and '.join(map(repr, rest))} are the rounds" + (
                f", and {name!r} has the gold answers" if right else ""
            )
            choices = of_options(meaning, columns={"rounds": ",".join(rest), **right})
        hint = "" if choices else ". A round has what the loop said: --column rounds=FIRST,SECOND names its columns"
        yield f"{name!r} is named as a round, and called like {_what(name)}, which no loop said{hint}", choices
    answer = read.said.get("answer", "")
    is_same = facts.several >= _FEW and facts.several == facts.equal
    if is_same and (is_surely_gold(answer) or last_name(answer) in (*QUESTIONS, *IDS)):
        right = dict.fromkeys(golds, answer) if is_surely_gold(answer) else {}
        choices = {}
        for name in texts_of_rounds(read):
            choices |= of_options(f"{name!r} is what the model said", columns={"answer": name, **right})
        n = f"{facts.several:,} questions"
        sentence = (
            f"{answer!r} is named as the answer, is called like {_what(answer)}, and is the same in all rounds of {n}"
        )
        yield sentence, choices


def _what(name: str) -> str:
    return "gold answers" if is_surely_gold(name) else "a question" if last_name(name) in QUESTIONS else "an id"
