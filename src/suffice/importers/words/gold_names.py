"""Names of columns that may have gold answers, in addition to the usual ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suffice.importers.words.names import GOLDS, last_name, plain_name, words, words_in

_SAYS_SO = frozenset(
    words(
        "truth true actual actuals observed verified gold golden golds gt ideal target targets expected reference solution "
        "human expert annotator annotated adjudicated consensus oracle y label labels"
    )
)
_SURELY = frozenset(words("truth true gold golden golds gt reference expected ground groundtruth"))
_MAY_BE_SAID = frozenset(words("target targets label labels ref refs reference references ideal expected"))
"""Usual names of gold answers that a loop may give to what it says, too."""

_RIGHT, _ANSWER = frozenset({"correct", "right"}), frozenset({"answer", "value", "option", "choice", "number"})
_SAYS_OTHER = frozenset(
    words(
        "id ids time times at ms tokens cost score scores rating ratings preference feedback turns source name email by "
        "review flag escalation needed intervention length model predicted pred prediction"
    )
)
"""Words of names of columns that may have gold answers, and those of others that begin in the same way."""


def may_be_golds(name: str) -> bool:
    """Return whether a column's name suggests gold answers, such as an expert's label or a later observation.

    >>> [may_be_golds(name) for name in ("observed", "y", "solution_value", "human.label", "human_id", "customer")]
    [True, True, True, True, False, False]
    """
    own = {*words_in(name)}
    is_said = not _SAYS_SO.isdisjoint(own) or not (_RIGHT.isdisjoint(own) or _ANSWER.isdisjoint(own))
    return is_said and _SAYS_OTHER.isdisjoint(own)


def golds_among(names: Sequence[str]) -> list[str]:
    """Return the columns named like gold answers, among columns that may all have answers.

    A name that surely means gold answers is enough.  A name that may mean them counts if the names of all other columns differ
    only in a number.

    >>> golds_among(["ipc_gold", "pass1_ipc", "pass2_ipc"]), golds_among(["human_label", "run1_label", "run2_label"])
    (['ipc_gold'], ['human_label'])
    >>> golds_among(["draft_solution", "checked", "final"]), golds_among(["expert_1", "expert_2"])
    ([], [])
    """
    named = [name for name in names if may_be_golds(name) and re.search(r"\d", name) is None]
    others = {re.sub(r"\d+", "", name) for name in names if name not in named}
    golds = [name for name in named if len(others) == 1 or not _SURELY.isdisjoint(words_in(name))]
    return golds if len(names) - len(golds) > 1 else []


def is_surely_gold(name: str) -> bool:
    """Return whether a column's name means gold answers and hardly anything else.

    >>> [is_surely_gold(name) for name in ("ipc_gold", "gold", "expected_output", "target_label", "answer", "human_id")]
    [True, True, True, False, False, False]
    """
    is_usual = last_name(name) in GOLDS and last_name(name) not in _MAY_BE_SAID
    return is_usual or (may_be_golds(name) and not _SURELY.isdisjoint(words_in(name)))


def is_in_golds(name: str) -> bool:
    """Return whether a nested column is a field of an object named like gold answers.

    Names that may also mean a document or a tag, such as `reference`, do not count.

    >>> is_in_golds("gold.answer"), is_in_golds("reference.text"), is_in_golds("gold")
    (True, False, False)
    """
    above = plain_name(name).rpartition(".")[0].rpartition(".")[2]
    return above in GOLDS and not above.startswith(("ref", "label", "target"))
