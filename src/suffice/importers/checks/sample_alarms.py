"""Alarms about answers that were read as rounds, but may be independent samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from suffice.common.files import quoted
from suffice.importers.checks.alarm import Doubt, Read
from suffice.importers.columns.closed_book import is_of_evidence
from suffice.importers.rounds.facts import Facts
from suffice.importers.words.names import FEEDBACK, in_log, last_name
from suffice.importers.words.sample_names import Said, said_by_columns, said_by_counter, said_by_list

_ROUNDS = "rounds"
_ENOUGH, _MOSTLY, _HALF, _SOME = 20, 0.9, 0.5, 0.1
_LIST = re.compile("order in '(?P<name>.+)'")
_COLUMNS = re.compile("number in '(?P<name>.+)' to '.+'")


def sample_list(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if rounds may be samples, according to the name of the list, columns or counter from which they are read.

    The name means samples, or it leaves open whether the rounds are samples.
    """
    column, facts = read.columns.get("round", ""), read.facts
    what, lead, says = _said_of(column)
    is_table_of_rows = lead == column
    is_called, is_loop = says == "samples", _is_of_loop(read)
    is_unclear = facts.trajectories >= _ENOUGH and not facts.order.are_clear and not is_loop
    # naming a list with samples as the list of rounds does not imply an order
    said = read.options.get("columns") or {}
    is_said = read.samples or "round" in said or (_ROUNDS in said and not is_called)
    may_be = says == "either" and is_unclear
    if (is_called or may_be) and not is_said and (facts.several or not facts.answers):
        in_order: dict[str, tuple[dict[str, Any], str]] = {
            f"--column {quoted(f'round={lead}')}": ({"columns": {"round": lead}}, "each follows the one before")
        }
        why = "" if is_called else ", and neither their name nor their order shows which"
        yield (
            f"{what} may be rounds that follow one another, or independent samples that vote{why}",
            {
                "--samples": ({"samples": True}, "they are independent samples"),
                **(in_order if read.source == "tabular" and is_table_of_rows else {}),
            },
            # if their order shows nothing, results for samples hold for rounds as well
            # questions have equal numbers of samples, while loops stop early
            "--samples" if is_called and _ROUNDS not in said and is_unclear and _are_as_many(facts) else "",
        )


def _are_as_many(facts: Facts) -> bool:
    """Return whether every round has an answer in at least half of the trajectories, as with a fixed number of samples."""
    return min(facts.answered.values(), default=0) >= _HALF * facts.trajectories


def _said_of(column: str) -> tuple[str, str, Said]:
    """Describe the list, columns or counter from which rounds are read; also return its name, and what the name implies.

    The name implies samples, rounds or either.
    """
    if found := _LIST.fullmatch(column):
        return f"the items of {found['name']!r}", found["name"], said_by_list(found["name"])
    if found := _COLUMNS.fullmatch(column):
        return f"the columns {column.removeprefix('number in ')}", found["name"], said_by_columns(found["name"])
    return f"the rows that are counted by {column!r}", column, said_by_counter(column)


def _is_of_loop(read: Read) -> bool:
    """Return whether rounds show signs of a loop: changing passages, growing prompts, critiques or stops."""
    facts = read.facts
    differs = [
        own.varying
        for name, own in facts.own.columns.items()
        if last_name(in_log(name)) in FEEDBACK or is_of_evidence(in_log(name))
    ]
    has_stops = facts.stops >= _SOME * facts.trajectories > 0
    return has_stops or "feedback" in read.columns or max([facts.growing, *differs]) >= _MOSTLY * facts.trajectories
