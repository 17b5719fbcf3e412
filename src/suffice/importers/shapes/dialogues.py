"""Lists of messages: the assistant's messages are rounds, the user's first message is the question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.calls.payloads import text_of, tools_of
from suffice.importers.shapes.fields import flat
from suffice.importers.words.choices import of_columns
from suffice.importers.words.grades import is_grade
from suffice.importers.words.names import TOOL_FIELDS, is_person

_SAID = ("assistant", "ai", "model", "gpt", "bot", "chatbot", "llm", "ai_assistant")
_ROLES = ("role", "from", "author", "sender", "speaker")
_CONTENTS = ("content", "value", "body", "text", "message", "utterance")
_IS_USER = re.compile(r"user|human|customer|client", re.IGNORECASE)
_FEW, _SHOWN = 5, 40
REPLY_TYPE = "reply_type"
"""The field that tells answers and grades apart in graded conversations, and answers and messages that call tools."""

TOOL_CALLS = "called_tools"
"""The field with the tools that a message calls, if it calls any."""

_NEARLY_ALL = 0.95
_Messages = Sequence[Any]


def is_dialogue_list(conversations: Iterable[_Messages]) -> bool:
    """Return whether lists contain messages, each of which has a role."""
    first = next((message for messages in conversations for message in messages), None)
    return isinstance(first, dict) and ("role" in first or (_field(first, _ROLES) != "" != _field(first, _CONTENTS)))


def has_replies(conversations: Iterable[_Messages]) -> bool:
    """Return whether the role of any message is that of a model.

    Without such a role, the roles are those of agents in a loop, such as a writer and a critic.
    """
    return any(role in _SAID for messages in conversations for role, _, _ in _texts(messages))


def are_prompts(conversations: Iterable[_Messages]) -> bool:
    """Return whether lists contain messages of people and the system only, so that they are prompts."""
    said = [role for messages in conversations if is_dialogue_list([messages]) for role, _, _ in _texts(messages)]
    return bool(said) and all(is_person(role) or role in ("system", "developer") for role in said)


def without_examples(conversations: Sequence[_Messages], opening: Sequence[str]) -> list[_Messages]:
    """Remove the messages of an opening (see `shared_opening`) from the conversations that begin with it."""
    result: list[_Messages] = []
    for messages in conversations:
        own = [*_texts(messages)][: len(opening)]
        begins = bool(opening) and [text for _, text, _ in own] == [*opening]
        last = own[-1][2] if own else None
        cut = next(i for i, message in enumerate(messages) if message is last) + 1 if begins else 0
        result.append(messages[cut:])
    return result


def shared_opening(conversations: Sequence[_Messages]) -> list[str]:
    """Return the texts with which nearly all conversations begin before their question: instructions and example replies.

    The question is the user's next message.
    """
    spoken = [[(role, text) for role, text, _ in _texts(messages)] for messages in conversations if messages]
    if len(spoken) < _FEW or not is_dialogue_list(conversations):
        return []
    opening: list[tuple[str, str]] = []
    while True:
        (said, n), *_ = Counter(
            own[len(opening)] if len(own) > len(opening) else ("", "") for own in spoken
        ).most_common(1)
        if n < _NEARLY_ALL * len(spoken) or not said[1]:
            break
        opening.append(said)
    follows = Counter(own[len(opening)][0] for own in spoken if len(own) > len(opening))
    while opening and (not follows or not is_person(follows.most_common(1)[0][0])):
        follows = Counter([opening.pop()[0]])  # what the model answers is the question, not an example
    return [text for _, text in opening] if any(role != "system" for role, _ in opening) else []


def refuse_several_questions(conversations: Sequence[_Messages], name: str, option: str) -> None:
    """Raise if users mostly ask different questions after their first one.

    A later message is another question if it begins like the first question of some conversation.
    """
    if not is_dialogue_list(conversations):
        return
    asked = [
        own for messages in conversations if (own := [text for role, text, _ in _texts(messages) if is_person(role)])
    ]
    openings = {_opening(own[0], n) for own in asked for n in (1, 2)}
    later = [(own[0], text) for own in asked for text in own[1:]]
    anew = {text: first for first, text in later if text != first and _opening(text, 2 - (text[-1] == "?")) in openings}
    if len(asked) >= _FEW and 2 * len(anew) > len(later) > len(asked) / 2:
        text, first = next(iter(anew.items()))
        raise UnsettledError(
            f"each conversation in {name!r} asks several questions, such as {first[:_SHOWN]!r} and {text[:_SHOWN]!r}: their answers are "
            "no rounds of one question, and if each was answered once, there is nothing to stop",
            "columns",
            of_columns({option: name}, "they ask again about the first question: each reply is a round"),
        )


def _opening(text: str, n: int) -> str:
    return " ".join(text.lower().split()[:n])


def has_grades(conversations: Iterable[_Messages]) -> bool:
    """Return whether some conversation begins with an answer that later replies only grade."""
    said = ([is_grade(reply["answer"] or "") for reply in said_in(messages)[0]] for messages in conversations)
    return any(any(grades) and not grades[0] for grades in said)


def said_in(messages: Iterable[Any], *, are_graded: bool = False) -> tuple[list[dict[str, Any]], str]:
    """Return the assistant's messages, and the user's first message.

    In graded conversations, the field `reply_type` marks each message as an answer or a grade.  `called_tools` lists the tools
    that a message calls; the answer of a message without text is None.
    """
    replies, question = [], ""
    for role, text, message in _texts(messages, calling=True):
        if role in _SAID:
            further = {
                name: value
                for name, value in message.items()
                if name
                not in (
                    "role",
                    "from",
                    "content",
                    "value",
                    *TOOL_FIELDS,
                    _field(message, _ROLES),
                    _field(message, _CONTENTS),
                )
            }
            kind = {REPLY_TYPE: "grade" if is_grade(text) else "answer"} if are_graded else {}
            called = [{"name": call.name, "arguments": call.arguments} for call in tools_of(message)]
            calls = {TOOL_CALLS: called} if _tool_calls(message) else {}
            replies.append({"answer": text if text.strip() else None, **kind, **flat(further), **calls})
        elif is_person(role) and not question:
            question = text
    return replies, question


def _texts(messages: Iterable[Any], *, calling: bool = False) -> Iterable[tuple[str, str, dict[str, Any]]]:
    """Yield role, text and message for each message with text.

    If roles are written from the view of the first speaker (see `_asker`), this speaker is the user.  With `calling`, messages
    without text that call tools are yielded, too.
    """
    spoken = [
        (str(message.get(_field(message, _ROLES), "")).lower(), text, message)
        for message in messages
        if (text := text_of(message.get(_field(message, _CONTENTS)))).strip() or (calling and _tool_calls(message))
    ]
    speaks = [role in _SAID or is_person(role) for role, _, _ in spoken]
    asker = _asker(
        [
            (role, own.get("name"))
            for (role, text, own), is_one in zip(spoken, speaks, strict=True)
            if is_one and text.strip()
        ]
    )
    for (role, text, message), is_one in zip(spoken, speaks, strict=True):
        is_mirrored = asker is not None and is_one and "name" in message
        yield ("user" if message["name"] == asker else "assistant") if is_mirrored else role, text, message


def _tool_calls(message: dict[str, Any]) -> int:
    """Return the number of tools that a message calls, beside its text or as parts of its content."""
    calls = next((message[name] for name in TOOL_FIELDS if message.get(name)), ())
    parts = message.get(_field(message, _CONTENTS))
    inside = (
        [part for part in parts if isinstance(part, dict) and part.get("type") in TOOL_FIELDS]
        if isinstance(parts, list)
        else []
    )
    return (len(calls) if isinstance(calls, list) else bool(calls)) + len(inside)


def _field(message: dict[str, Any], usual: Sequence[str]) -> str:
    """Return the first of some usual field names that a message has; "" if it has none."""
    return next((name for name in usual if name in message), "")


def other_roles(conversations: Iterable[_Messages]) -> list[str]:
    """Return the speakers that are neither models, users, system nor tools, such as a human agent who takes over."""
    said = dict.fromkeys(role for messages in conversations for role, _, _ in _texts(messages))
    known = (*_SAID, "system", "developer", "tool", "function", "")
    return [role for role in said if role not in known and not is_person(role)]


def _asker(said: Sequence[tuple[str, Any]]) -> Any:
    """Return the name of the first speaker if roles are written from this speaker's view; else None.

    In this view, the first speaker has the role of the assistant, and all others are users.  AutoGen writes `chat_history` in this
    way.  Roles are as usual if names are missing, or if the first speaker is an agent who greets a speaker named like a user.
    """
    if not said or said[0][0] not in _SAID or not all(isinstance(name, str) and name for _, name in said):
        return None
    first = said[0][1]
    is_own_view = all((role in _SAID) == (name == first) for role, name in said)
    is_greeting = any(name != first and _IS_USER.search(name) for _, name in said)
    return first if is_own_view and not is_greeting and len({name for _, name in said}) > 1 else None
