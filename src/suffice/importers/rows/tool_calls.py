"""Assistant messages that call tools: they are no rounds, and the loop's next answer is charged for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.shapes.dialogues import REPLY_TYPE, TOOL_CALLS
from suffice.importers.shapes.shape import ANY, Shape
from suffice.importers.words.choices import Choices, of_rows
from suffice.policy.metrics import normalize_answer

_ANSWER, _BESIDE = "answer", "with tool calls"
_OFTEN, _SHOWN = 0.2, 60


def with_reply_types(shape: Shape) -> Shape:
    """Mark each message as an answer, as a text beside a tool call, or as a tool call alone (None).

    The shape is unchanged if no message calls a tool.
    """
    if not any(TOOL_CALLS in row.values for row in shape.rows):
        return shape
    rows = []
    for row in shape.rows:
        values = {name: value for name, value in row.values.items() if name != TOOL_CALLS}
        beside = _BESIDE if values.get("answer") else None
        own = beside if TOOL_CALLS in row.values else values.get(REPLY_TYPE, _ANSWER)
        rows.append(replace(row, values={**values, REPLY_TYPE: own}))
    said = any(row.values[REPLY_TYPE] for row in rows)
    return replace(shape, rows=rows if said else [])


def answers_alone(
    shape: Shape, where: Mapping[str, str], by_tools: Callable[[], Choices]
) -> tuple[dict[str, str], list[str]]:
    """Return the filter that leaves out messages with tool calls, and a note.

    Both are empty if there are no such messages, or if `where` selects messages by their type.

    Raises:
        UnsettledError: Texts beside tool calls may be answers: many contain the word "answer", or equal a conversation's last
            reply.  `by_tools` returns further options for this.
    """
    kinds = [row.values.get(REPLY_TYPE, _ANSWER) for row in shape.rows]
    beside = kinds.count(_BESIDE)
    calling = beside + kinds.count(None)
    if not calling or REPLY_TYPE in where:
        return {}, []
    if beside:
        _refuse_answers(shape, by_tools, has_others=_ANSWER in kinds)
    option = next(iter(of_rows(REPLY_TYPE, ANY, "")))
    says = f"; {beside:,} of them say something beside it, which {option} reads as rounds" if beside else ""
    note = f"{counted(calling, 'message')} of the assistant call tools and are no rounds: calls that the next answer is charged{says}"
    return {REPLY_TYPE: _ANSWER}, [note]


def _refuse_answers(shape: Shape, by_tools: Callable[[], Choices], *, has_others: bool) -> None:
    conversations: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in shape.rows:
        if row.values.get(REPLY_TYPE):
            conversations.setdefault((row.file, row.number), []).append(row.values)
    speaking = {own: said for own, said in conversations.items() if any(row[REPLY_TYPE] == _BESIDE for row in said)}
    finals = {normalize_answer(str(said[-1]["answer"])) for said in conversations.values()} - {""}
    answering = [text for said in speaking.values() if (text := _answer_beside(said, finals))]
    if has_others and len(answering) < _OFTEN * len(speaking):
        return
    example = next(iter(answering), "") or next(row["answer"] for said in speaking.values() for row in said)
    raise UnsettledError(
        f"in {counted(len(speaking), 'conversation')}, the assistant says something in a message that also calls a tool, such as "
        f"{example!r:.{_SHOWN}}: are these answers?",
        "options",
        {
            **of_rows(REPLY_TYPE, ANY, "yes: each is a round"),
            **(of_rows(REPLY_TYPE, _ANSWER, "no: answers are messages without a tool call") if has_others else {}),
            **by_tools(),
        },
    )


def _answer_beside(said: list[Mapping[str, Any]], finals: Collection[str]) -> str:
    """Return a text beside a tool call that may be an answer; "" if there is none.

    It contains the word "answer", or equals the last reply of some conversation.
    """
    for row in said[:-1] if said[-1][REPLY_TYPE] == _ANSWER else said:
        own = normalize_answer(str(row["answer"]))
        if row[REPLY_TYPE] == _BESIDE and (_ANSWER in own.split() or own in finals):
            return str(row["answer"])
    return ""
