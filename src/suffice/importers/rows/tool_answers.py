"""Answers that are arguments of a tool call, such as `submit_decision`: find the tool, and read the arguments."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import counted, cut_list
from suffice.errors import NotFoundError, UnsettledError
from suffice.importers.calls.payloads import text_of, tools_of
from suffice.importers.calls.spans import ToolCall
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.rows.left_out import questions_of
from suffice.importers.shapes.dialogues import REPLY_TYPE, TOOL_CALLS
from suffice.importers.shapes.shape import Shape, changed_by
from suffice.importers.words.choices import Choices, column_options, of_rows
from suffice.importers.words.gold_names import may_be_golds
from suffice.importers.words.names import ANSWERS, LABELS, last_name, words_in
from suffice.policy.metrics import normalize_answer
from suffice.policy.signals.position import AnswerPosition

CALLED = "tool_calls"
"""The column in ``answer=tool_calls:NAME``: answers are the arguments of the calls of the tool NAME."""

_HANDS_IN = re.compile(r"submit|final|answer|deci[ds]|finish|conclu|respon|report|done|complete|return|output|result")
"""In the names of tools that take an answer."""

_OF_ANSWERS = frozenset({*ANSWERS, *LABELS, "decision", "value", "result", "verdict"})
_SPOKEN, _ROLES = frozenset({"assistant", "ai", "model", "bot"}), frozenset({"role", "from", "author", "type"})
_HALF, _OFTEN, _FEW, _OFFERED = 0.5, 0.3, 0.1, 3


def with_tool_answers(shape: Shape, columns: dict[str, str], position: AnswerPosition | None) -> tuple[Shape, str]:
    """Copy the arguments of one tool's calls to a column of answers.

    The user names the tool as in ``answer=tool_calls:submit``, or by a field that only this tool's calls have, as in
    ``--answer-position tool:decision``.

    Returns:
        The rows and the name of the column of answers, "" if the user names no tool.

    Raises:
        NotFoundError: No message calls the tool.
        UnsettledError: The calls of several tools have this field.
    """
    theirs = columns.get("answer", "")
    called = [(call.name, _object(call)) for row in shape.rows for call in _calls(row)]
    if theirs in ("", CALLED) and position is not None and position.kind == "tool":
        names = [*dict.fromkeys(name for name, own in called if isinstance(own, dict) and position.text in own)]
        theirs = f"{CALLED}:{names[0]}" if names else ""
        if len(names) > 1:
            named = [(f"{CALLED}:{name}", f"answers are in calls of {name!r}") for name in names[:_OFFERED]]
            raise UnsettledError(
                f"the calls of {len(names)} tools have a field {position.text!r}: which of them hands in the answer?",
                "columns",
                {column_options({"answer": own}): ({"answer": own}, meaning) for own, meaning in named},
            )
    column, _, tool = theirs.partition(":")
    if column != CALLED or not (tool and called):
        return shape, ""
    if tool not in (tools := [*dict.fromkeys(name for name, _ in called)]):
        raise NotFoundError(f"no message calls a tool {tool!r:.60}; there are: {cut_list(tools)}")
    columns["answer"] = theirs
    cell = partial(_handed_in, tool=tool)

    def changed(rows: Sequence[Record]) -> list[Record]:
        return [
            replace(row, values={name: value for name, value in row.values.items() if name not in (CALLED, TOOL_CALLS)})
            for row in with_column(rows, theirs, map(cell, rows))
        ]

    return changed_by(shape, changed, {theirs: f"the calls of {tool!r}"}), theirs


def refuse_calls_alone(shape: Shape, columns: Mapping[str, str], where: Mapping[str, str]) -> None:
    """Raise if tool calls may be the answers.

    They may be if the model only calls tools in most questions, or if its texts hardly ever contain the gold answer.

    Raises:
        UnsettledError: Tool calls may be the answers, and the user names no column of answers.  If most questions have texts, it is
            enough to select rows by `where`.
    """
    is_any = columns.get("answer") == CALLED  # of any tool
    if ("answer" in columns and not is_any) or REPLY_TYPE in where or not any(map(_calls, shape.rows)):
        return
    made = _Made.of(shape, columns)
    is_silent = is_any or 2 * len(made.calls.keys() & made.said.keys()) < len(made.calls)
    if not is_silent and (where or made.said_golds() >= _FEW * len(made.golds)):
        return
    choices = made.choices(by_golds=not is_silent)
    if not choices:
        return
    if is_silent:
        n, conversations = sum(own not in made.said for own in made.calls), counted(len(made.calls), "conversation")
        question = f"in {n:,} of {conversations}, the model only calls tools, and says nothing"
        question = f"{CALLED!r} has the calls of all tools" if is_any else question
    else:
        question = "the model hands in gold answers by calling a tool, and hardly ever says one"
        choices |= _by_texts(shape)
    raise UnsettledError(f"{question}: the call of which tool is the answer?", "options", choices)


def tool_choices(shape: Shape, columns: Mapping[str, str]) -> Choices:
    """Return the options that read a tool's calls as answers.

    A tool is offered if its name suggests answers, or its arguments equal gold answers.
    """
    return _Made.of(shape, columns).choices(is_told=True)


def _by_texts(shape: Shape) -> Choices:
    """Return the option that reads the model's texts as answers, instead of its tool calls."""
    if any(TOOL_CALLS in row.values for row in shape.rows):
        return of_rows(REPLY_TYPE, "answer", "answers are messages without a tool call")
    names = [name for name in column_names(shape.rows) if last_name(name) in _ROLES]
    said = [(name, str(row.values.get(name))) for row in shape.rows for name in names]
    own = [pair for pair in said if pair[1].lower() in _SPOKEN]
    return of_rows(*own[0], "answers are what the model says") if own else {}


@dataclass(slots=True)
class _Made:
    """The tool calls, texts and gold answers of each question."""

    calls: dict[Hashable, list[tuple[str, Any]]] = field(default_factory=dict)
    said: dict[Hashable, list[str]] = field(default_factory=dict)
    golds: dict[Hashable, set[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, shape: Shape, columns: Mapping[str, str]) -> _Made:
        """Collect the tool calls, texts and gold answers of some rows."""
        made = cls()
        named = {name for name in shape.outer if may_be_golds(name)}
        for own, row in zip(questions_of(TableColumns(shape.rows), shape, columns), shape.rows, strict=True):
            if found := [(call.name, _object(call)) for call in _calls(row)]:
                made.calls.setdefault(own, []).extend(found)
                values = (row.values.get(name) for name in named)
                made.golds[own] = {normalize_answer(str(value)) for value in values if value not in (None, "")} - {""}
            if text := _said(row):
                made.said.setdefault(own, []).append(text)
        return made

    def said_golds(self) -> int:
        """Return the number of questions in which a text contains a gold answer."""
        return sum(
            any(f" {gold} " in f" {normalize_answer(text)} " for text in self.said.get(own, ()) for gold in golds)
            for own, golds in self.golds.items()
        )

    def choices(self, *, by_golds: bool = False, is_told: bool = False) -> Choices:
        """Return the options that read a tool's calls as the answers, the likeliest first.

        Likely tools have arguments that equal gold answers, a name that suggests answers, or the last call in most
        questions.

        Args:
            by_golds: True to offer only tools whose arguments equal gold answers.
            is_told: True to leave out tools whose only sign is that they have the last call.
        """
        ranked = []
        for tool in dict.fromkeys(name for made in self.calls.values() for name, _ in made):
            own = {key: args for key, made in self.calls.items() for name, args in made if name == tool}
            part, agreed = _field_of(own, self.golds)
            ended = sum(made[-1][0] == tool for made in self.calls.values()) / len(self.calls)
            is_gold = agreed >= _OFTEN
            is_named = _HANDS_IN.search(tool.lower()) is not None and len(own) >= _HALF * len(self.calls)
            if is_gold or (not by_golds and (is_named or (ended >= _HALF and not is_told))):
                ranked.append((not is_gold, not is_named, -ended, tool, part, next(iter(own.values()))))
        ranked.sort(key=lambda item: item[:3])
        likely = [item for item in ranked if not (item[0] and item[1])] or ranked
        result: Choices = {}
        for *_, tool, part, example in likely[:_OFFERED]:
            theirs = f"{CALLED}:{tool}"
            shown = example.get(part) if part else example
            meaning = f"the calls of {tool!r} are the answers, such as {shown!r:.60}"
            given: dict[str, Any] = {
                "columns": {"answer": theirs},
                **({"answer_position": f"tool:{part}"} if part else {}),
            }
            option = column_options({"answer": theirs}) + (
                f" --answer-position {quoted(f'tool:{part}')}" if part else ""
            )
            result[option] = given, meaning
        return result


def _field_of(arguments: Mapping[Any, Any], golds: Mapping[Any, set[str]]) -> tuple[str, float]:
    """Return the argument that has the answer, and the share of questions in which it equals a gold answer.

    The argument is "" if all arguments together are the answer.
    """
    fields = Counter(name for own in arguments.values() if isinstance(own, dict) for name in own)
    if not fields:
        return "", 0.0
    agreed = {
        name: sum(
            normalize_answer(str(own.get(name))) in golds[key]
            for key, own in arguments.items()
            if isinstance(own, dict)
        )
        / len(arguments)
        for name in fields
    }
    best = max(fields, key=lambda name: agreed[name])
    if agreed[best] >= _OFTEN:
        return best, agreed[best]
    called = [name for name in fields if last_name(name) in _OF_ANSWERS or not _OF_ANSWERS.isdisjoint(words_in(name))]
    return (next(iter(fields)) if len(fields) == 1 else called[0] if len(called) == 1 else ""), agreed[best]


def _calls(row: Record) -> Sequence[ToolCall]:
    return tools_of({"tool_calls": row.values[TOOL_CALLS]} if TOOL_CALLS in row.values else row.values)


def _handed_in(row: Record, tool: str) -> str | None:
    """Return the arguments of a row's last call of a tool; None if the row does not call it.

    Arguments with names are returned as JSON.
    """
    own = [_object(call) for call in _calls(row) if call.name == tool]
    if not own or own[-1] in (None, "", {}):
        return None
    return own[-1] if isinstance(own[-1], str) else json.dumps(own[-1], ensure_ascii=False)


def _object(call: ToolCall) -> Any:
    """Return a call's arguments, parsed if they are the text of a JSON object."""
    if not isinstance(call.arguments, str):
        return call.arguments
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


def _said(row: Record) -> str:
    """Return the model's text in a row; "" if there is none."""
    roles = {str(value).lower() for name, value in row.values.items() if last_name(name) in _ROLES}
    texts = (value for name, value in row.values.items() if last_name(name) in ("content", *ANSWERS))
    return (
        "" if roles and roles.isdisjoint(_SPOKEN) else " ".join(filter(None, (text_of(text).strip() for text in texts)))
    )
