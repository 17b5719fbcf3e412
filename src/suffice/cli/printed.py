"""Commands in messages: the command that the user typed, with the option added that settles a question."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from suffice.common.files import quoted
from suffice.errors import UnsettledError

_BY_NAME = ("--column", "--metric-column", "--label", "--where", "--set")
"""Options that are given once for each name before their `=`."""

_REPEATABLE = ("--expected",)

_GOLDS = "--golds"

_Given = tuple[str, str | None]
"""An option with its value, None for one that takes none."""


def with_commands(error: UnsettledError, words: Sequence[str]) -> str:
    """Return the message of an unsettled question, with the complete command for each choice."""
    if not all(option.startswith("--") for option in error.choices):
        return str(error)
    lines = []
    for option, (_, meaning) in error.choices.items():
        kept, replaced = without_replaced(words, option)
        instead = f" (instead of {' '.join(replaced)})" if replaced else ""
        lines.append(f"  {meaning}{instead}:\n    {' '.join(['suffice', *map(quoted, kept)])} {option}")
    lines = [f"{_asked(error)} Say which:", *lines]
    if error.then:
        lines.append(f"The next question can be answered in the same command. {_asked(error.then)} Add one of:")
        lines += [f"  {meaning}:\n    {option}" for option, (_, meaning) in error.then.choices.items()]
    file, options = error.earlier
    kept, replaced = without_replaced(words, options) if file else ([], [])
    is_new = sorted([*kept, *shlex.split(options)]) != sorted(words)  # else it is the very command that was refused
    if kept and not replaced and is_new:
        lines.append(f"The same log was imported before with the choices in {file}. The whole command for these:")
        lines.append(f"    {' '.join(['suffice', *map(quoted, kept)])} {options}")
    return "\n".join(lines)


def _asked(error: UnsettledError) -> str:
    return f"{error.question.rstrip('.')}{'' if error.question.endswith('?') else '.'}"


def without_replaced(words: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """Return the words of a command line without the options that `option` replaces, and the list of replaced options.

    An option that `option` merely extends, for instance by the order of a column, is removed but not listed.

    >>> without_replaced(["import", "a.csv", "--column", "round=attempt", "--column", "golds=g"], "--column round=turn")
    (['import', 'a.csv', '--column', 'golds=g'], ['--column round=attempt'])
    >>> without_replaced(["import", "a.csv", "--column=round=attempt"], "--column round=attempt:newest-first")
    (['import', 'a.csv'], [])
    """
    added = _given(shlex.split(option))
    kept: list[str] = []
    replaced: list[str] = []
    at = 0
    while at < len(words):
        flag, sign, value = words[at].partition("=")
        whole = not sign and (flag == _GOLDS or dict(added).get(flag) is not None)
        own = (flag, words[at + 1] if whole and at + 1 < len(words) else value if sign else None)
        after = next((new for new in added if _replaces(new, own)), None)
        if after is None:
            kept += words[at : at + 1 + whole]
        elif not _says_all_of(after, own):
            replaced.append(f"{flag} {quoted(own[1] or '')}".rstrip())
        at += 1 + whole
    return kept, replaced


def _given(words: Sequence[str]) -> list[_Given]:
    """Return the options in a command line, each with its value; the value is None for an option without one."""
    values = [*words[1:], "--"]
    return [
        (word, None if value.startswith("--") else value)
        for word, value in zip(words, values, strict=True)
        if word.startswith("--")
    ]


def _replaces(new: _Given, old: _Given) -> bool:
    if new[0] == "--outcomes" and old[0] == _GOLDS:  # a file is joined by only one of these options
        return Path(new[1] or "").name == Path(old[1] or "").name
    if new[0] != old[0] or new[0] in _REPEATABLE:
        return new == old
    return new[0] not in _BY_NAME or (new[1] or "").partition("=")[0] == (old[1] or "").partition("=")[0]


def _says_all_of(new: _Given, old: _Given) -> bool:
    """Return True if `new` has the value of `old`, or extends it by a form after a colon or by further columns."""
    ours, theirs = (new[1] or "").partition("=")[2] or new[1], (old[1] or "").partition("=")[2] or old[1]
    if not (ours and theirs):
        return new == old
    return ours == theirs or ours.startswith(f"{theirs}:") or {*theirs.split(",")} <= {*ours.split(",")}
