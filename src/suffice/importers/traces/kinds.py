"""Distinguish the kinds of calls in a log.

Calls may differ in their node, their span, their system prompt, or the beginning of their prompt.  Calls whose reply is a verdict
are a kind, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, pairwise

from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, UnsettledError
from suffice.importers.calls.spans import CHAT, TraceSpan
from suffice.importers.words.choices import Choices, of_rows
from suffice.importers.words.grades import is_grade
from suffice.importers.words.names import MOST_SPEAKERS

OTHER_CALLS = "other-calls"
"""The alarm that answers the question which calls are answers: all of them."""

_NODES = frozenset({"langgraph_node", "promptName", "prompt_name", "agent_name"})
_NODE_IDS = frozenset({"gen_ai.agent.name", "graph.node.id"})
_VERDICT = re.compile(
    r"(?:yes|no|true|false|pass|fail|correct|incorrect|right|wrong|relevant|irrelevant|grounded|useful|good|bad)\b"
    r"|\W*\"?(?:binary_)?(?:score|grade|verdict)\b",
    re.IGNORECASE,
)
_HEAD = re.compile(r"[^:\n]{3,120}(?=[:\n])")
_LENGTHS = (60, 120, 240)
"""Characters of a system prompt's beginning that an option repeats, the first that tells them apart."""

_HEADS = (60, 0)
"""Characters of the beginnings that system prompts with varying parts may share."""

_SHARE, _OFTEN, _SHOWN, _SEVERAL, _EXAMPLE = 0.05, 0.5, 4, 3, 40


def refuse_several_kinds(calls: Sequence[TraceSpan], rounds: Sequence[Sequence[TraceSpan]]) -> None:
    """Raise if the rounds of most conversations are calls of several recurring kinds."""
    long = [own for own in rounds if len(own) >= _SEVERAL]
    for name, labels in _columns(calls).items():
        told = [[labels[id(span)] for span in own] for own in long]
        again = sum(_alternates(own) if name == "reply" else _comes_again(own) for own in told)
        values = list(dict.fromkeys(label for own in told for label in own))
        if again and again >= _OFTEN * len(long) and len(values) <= MOST_SPEAKERS:
            shown = {value: _shown(value, values) for value in values[:_SHOWN]}
            said_by = _examples(labels, long)
            choices: Choices = {}
            for value, short in shown.items():
                choices |= of_rows(name, short, said_by[value])
            choices[f"--expected {OTHER_CALLS}"] = {"expected": [OTHER_CALLS]}, "all of them"
            said = cut_list([repr(short) if short else "others" for short in shown.values()])
            raise UnsettledError(
                f"the calls of {again:,} of {counted(len(long), 'conversation')} are of several kinds in turn ({name}: {said}): which "
                "are answers to the question?",
                "options",
                choices,
            )


def not_chosen(calls: Sequence[TraceSpan], where: Mapping[str, str]) -> set[int]:
    """Return the calls, by `id`, that do not have the values in `where`, with which the user chose one kind of calls."""
    known, left = _columns(calls), set[int]()
    for name, value in where.items():
        labels = known.get(name) or {id(span): span.ids.get(name, "") for span in calls}
        values = list(dict.fromkeys(labels.values()))
        own = {text for text in values if text == value} or {
            text for text in values if value and text.startswith(value)
        }
        if not own or values == [""]:
            there = cut_list([repr(text[: _LENGTHS[0]]) for text in values if text])
            raise DataError(
                f"--where: no call has the {name} {value!r:.60}; there are: {there}"
                if there
                else f"--where: no call has {name!r:.60}; calls differ in {cut_list([*known])}, or in an attribute of yours"
            )
        left |= {place for place, text in labels.items() if text not in own}
    return left


def _columns(calls: Sequence[TraceSpan]) -> dict[str, dict[int, str]]:
    """Return the kind of each call, by `id`, under each way to distinguish kinds; the most informative way comes first."""
    calls = [span for span in calls if span.kind == CHAT]
    nodes = dict.fromkeys(name for span in calls for name in span.ids if _is_node(name))
    result = {name: {id(span): span.ids.get(name, "") for span in calls} for name in nodes}
    result["span_name"] = {id(span): span.name for span in calls}
    result["system"] = _frequent(calls, _system, _HEADS)
    if not any(
        message.role == "assistant" for span in calls for message in span.messages
    ):  # else each continues a talk
        result["prompt"] = _frequent(calls, _head, (0,))
    result["reply"] = {id(span): "verdict" if _is_verdict(span.reply.text.strip()) else "" for span in calls}
    return result


def _is_verdict(text: str) -> bool:
    return _VERDICT.match(text) is not None or is_grade(text)


def _is_node(name: str) -> bool:
    return name in _NODE_IDS or name.rpartition(".")[2] in _NODES


def _system(span: TraceSpan) -> str:
    return " ".join(" ".join(message.text for message in span.messages if message.role == "system").split())


def _head(span: TraceSpan) -> str:
    """Return the beginning of a prompt, up to a colon or the end of its first line; "" if there is neither."""
    said = next((message.text.strip() for message in reversed(span.messages) if message.role == "user"), "")
    found = _HEAD.match(said)
    return " ".join(found[0].split()) if found else ""


def _frequent(calls: Sequence[TraceSpan], of: Callable[[TraceSpan], str], lengths: Sequence[int]) -> dict[int, str]:
    """Return, for each call by `id`, the text that `of` reads from the call, cut if too few calls have the same text.

    A rare text is cut to the first of `lengths`.  If the shorter text is rare, too, it is cut to the next of `lengths`, and so on.
    """
    result = {id(span): of(span) for span in calls}
    least = max(2, _SHARE * len(calls))
    for length in lengths:
        often: Collection[str] = {text for text, n in Counter(result.values()).items() if n >= least}
        result = {place: text if text in often else text[:length] for place, text in result.items()}
    return result


def _comes_again(labels: Sequence[str]) -> bool:
    return 1 + sum(one != other for one, other in pairwise(labels)) > len({*labels})


def _alternates(labels: Sequence[str]) -> bool:
    return all(one != other for one, other in pairwise(labels))


def _shown(value: str, values: Collection[str]) -> str:
    """Return the shortest beginning by which a text differs from the others."""
    return next(
        (
            value[:length]
            for length in _LENGTHS
            if not any(other != value and other.startswith(value[:length]) for other in values)
        ),
        value,
    )


def _examples(labels: Mapping[int, str], rounds: Sequence[Sequence[TraceSpan]]) -> dict[str, str]:
    """Return an example of a reply for each kind of call."""
    first: dict[str, str] = {}
    for span in chain.from_iterable(rounds):
        first.setdefault(labels[id(span)], " ".join(span.reply.text.split()))
    return {kind: f"those that reply {text[:_EXAMPLE]!r}, for instance" for kind, text in first.items()}
