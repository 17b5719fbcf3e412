"""Unfold the fields of a record: nested objects, API replies, lists written as text, and lists of lists."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from suffice.importers.calls.payloads import logged_reply
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.literals import tagged_texts
from suffice.importers.files.records import ROUND_LISTS, Record, column_names
from suffice.importers.shapes.calls import call_fields, history_fields
from suffice.importers.shapes.trulens import record_fields
from suffice.importers.words.names import (
    ANSWERS,
    GOLDS,
    IDS,
    OUTCOME_NAMES,
    QUESTIONS,
    WEAK_REPLIES,
    last_name,
    plain_name,
    rounds_in_order,
    single_name,
    words,
)
from suffice.importers.words.sample_names import without_each
from suffice.loops.models._wire import is_cut
from suffice.loops.retrieval.fields import literal

_RUN_LISTS = frozenset({"agents", "runs", "seeds", "chains", "trajectories"})
_DEPTH = 8
_PAIR = {"key", "value"}
_PARTS = frozenset(
    words(
        "choices object created created_at completed_at output content type role status stop_reason "
        "stop_sequence incomplete_details error system_fingerprint service_tier"
    )
)
"""Fields of a reply that are replaced by its answer and finish reason, or that do not describe a round."""

_SAID = frozenset((*ANSWERS, *WEAK_REPLIES, *QUESTIONS, *GOLDS))
_OPTIONS = "choices"
_HEAD = 500
"""Records that show whether a column has lines of a log."""

_OWN_ID = re.compile(r"(chatcmpl|cmpl|resp|msg|gen)[-_]")


def flat(values: Mapping[str, Any], depth: int = _DEPTH) -> Mapping[str, Any]:
    """Flatten an object: fields of nested objects get dotted names.

    >>> flat({"id": 1, "usage": {"input": {"cached": 3}}})
    {'id': 1, 'usage.input.cached': 3}
    """
    values = call_fields(_reply_fields(history_fields(record_fields(values))))
    if list in map(type, values.values()):
        values = {name: _by_key(value) for name, value in values.items()}
    if dict not in map(type, values.values()):
        return values
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and depth:
            result.update({f"{name}.{inner}": item for inner, item in flat(value, depth - 1).items()})
        else:
            result[name] = value
    return result


def _by_key(value: Any) -> Any:
    """Convert a list of keys with values, such as BigQuery event parameters, to one object; return anything else unchanged.

    >>> _by_key([{"key": "answer", "value": {"string_value": "Oslo", "int_value": None}}, {"key": "round", "value": 2}])
    {'answer': 'Oslo', 'round': 2}
    """
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(item, dict) and item.keys() == _PAIR for item in value)
    ):
        return value
    if len({str(item["key"]) for item in value}) < len(value):
        return value
    return {str(item["key"]): _typed(item["value"]) for item in value}


def _typed(value: Any) -> Any:
    """Return the value inside an object if all of its fields are named after types, such as `string_value`.

    Return any other value unchanged.
    """
    if isinstance(value, dict) and value and all(name.lower().endswith("value") for name in value):
        return next((own for own in value.values() if own is not None), None)
    return value


def one_run_each(records: Iterable[Record], first: int = 1, lists: Collection[str] | None = None) -> list[Record]:
    """Split records with lists of lists (several runs, agents or seeds) into one record for each run.

    Args:
        records: The file's records, or a part of them; lists may be text, as in CSV files.
        first: The number of the first record.
        lists: Fields with lists written as text; None = those that `lists_as_text` returns for these records.
    """
    records = list(records)
    names = lists_as_text(records) if lists is None else lists
    result = []
    for read in records:
        values = _straight(_with_lists(history_fields(record_fields(read.values)), names))
        item = read if values is read.values else replace(read, values=values)
        name = next((name for name in _run_lists(tuple(values)) if _are_lists(values[name])), None)
        if name is None:
            result.append(item)
            continue
        outer = {key: value for key, value in item.values.items() if key != name}
        for number, answers in enumerate(item.values[name], start=1):
            run = {plain_name(name)[:-1]: number, "trajectory": answers}
            result.append(replace(item, where=f"{item.where}, {name} {number}", values={**outer, **run}))
    return [
        item if item.number == number else replace(item, number=number) for number, item in enumerate(result, first)
    ]


def _straight(values: Mapping[str, Any], depth: int = _DEPTH) -> Mapping[str, Any]:
    """Convert an object's rounds to plain lists, from objects keyed by round numbers and from lists of single-item lists.

    >>> _straight({"rounds": {"round_1": {"answer": "Lima"}, "round_2": {"answer": "Oslo"}}, "drafts": [["a"], ["b"]]})
    {'rounds': [{'answer': 'Lima'}, {'answer': 'Oslo'}], 'drafts': ['a', 'b']}
    """
    if {dict, list}.isdisjoint(map(type, values.values())):
        return values
    changed = {name: _straight_value(name, value, depth) for name, value in values.items()}
    for name, value in values.items():
        if value and (tagged := tagged_texts(value)) is not None:
            changed[name] = tagged[1]
            if len(tagged[0]) > 1:
                changed.setdefault(_OPTIONS, tagged[0])
    is_same = all(changed[name] is value for name, value in values.items())
    return values if is_same else changed


def _straight_value(name: str, value: Any, depth: int) -> Any:
    if nodes := tree_nodes(value):
        return nodes
    if isinstance(value, dict) and depth:
        is_keyed = all(isinstance(v, dict) for v in value.values()) and (
            not any(key.isdecimal() for key in value)
            or (
                plain_name(name) not in _RUN_LISTS
                and all(any(plain_name(n) in ANSWERS for n in v) for v in value.values())
            )
        )
        if names_rounds(name) or is_keyed:
            may_be_texts = plain_name(name) in ROUND_LISTS
            rounds = (
                rounds_in_order(value) if may_be_texts or all(isinstance(v, dict) for v in value.values()) else None
            )
            if rounds is not None:
                return rounds
        return _straight(value, depth - 1)
    if isinstance(value, list) and _are_lists(value) and names_rounds(name) and plain_name(name) not in _RUN_LISTS:
        if all(len(part) == 1 for part in value):
            return [part[0] for part in value]
        return value[0] if len(value) == 1 else value
    return value


def _are_lists(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, list) for part in value)


def lists_as_text(records: Sequence[Record]) -> frozenset[str]:
    """Return the fields that may contain rounds and whose values are all lists written as text, in JSON or Python syntax.

    A field in which only some values are in brackets is plain text.  If ids repeat, each row is a round, and answers in brackets
    are plain text, too.
    """
    listed: set[str] = set()
    others: set[str] = set()
    for item in records:
        for name in _round_fields(tuple(item.values)):
            value = item.values[name]
            if name in others or value is None or value == "" or isinstance(value, list):
                continue
            is_list = isinstance(value, str) and _is_bracketed(value) and isinstance(literal(value), list)
            (listed if is_list else others).add(name)
    listed -= others
    if listed:
        table = TableColumns(records)
        if any(table.repeats(name) for name in table.by_name(IDS)):
            listed = {name for name in listed if plain_name(name) not in ANSWERS}
    return frozenset(listed | _objects_as_text(records))


def _objects_as_text(records: Sequence[Record]) -> set[str]:
    """Return the fields whose values are all JSON objects written as text.

    A field named like questions or replies is returned only if its objects are replies of an API.  A field of log lines is returned
    if most lines end with an object that has the question and the reply.  Objects with the same fields as a gold answer are answers,
    and are left as text.
    """
    lines = {
        name
        for name in column_names(records)
        if last_name(name) not in _SAID - {"message"} and _are_log_lines(records, name)
    }
    names = dict.fromkeys(name for name in column_names(records) if name not in lines)
    for item in records:
        for name in [name for name in names if item.values.get(name) not in (None, "")]:
            value = item.values[name]
            is_object = isinstance(value, str) and value[:1] == "{" and value[-1:] == "}"
            parsed = literal(value) if is_object else value
            if not isinstance(parsed, dict) or (last_name(name) in _SAID and not _is_whole_reply(parsed)):
                del names[name]
    golds = {_fields_of(records, name) for name in column_names(records) if last_name(name) in GOLDS} - {None}
    objects = {name for name in names if any(item.values.get(name) for item in records)}
    return lines | {name for name in objects if not golds or _fields_of(records, name) not in golds}


def _fields_of(records: Sequence[Record], name: str) -> frozenset[str] | None:
    """Return the field names of the objects in a column, from its first records; None if it has values that are not objects."""
    said = [value for item in records[:_HEAD] if (value := item.values.get(name)) not in (None, "")]
    read = [literal(value) if isinstance(value, str) and value[:1] == "{" else value for value in said]
    objects = [value for value in read if isinstance(value, dict)]
    return frozenset(field for own in objects for field in own) if objects and len(objects) == len(said) else None


def _are_log_lines(records: Sequence[Record], name: str) -> bool:
    head = records[:_HEAD]
    texts = [text for item in head if isinstance(text := item.values.get(name), str)]
    found = [own for text in texts if (own := _object_at_end(text)) is not None]
    names = [{*map(last_name, own)} for own in found]
    asked = sum(not own.isdisjoint((*IDS, *QUESTIONS)) and any(map(_is_said, own)) for own in names)
    return 2 * asked > len(texts) >= len(head) / 2


def _is_said(name: str) -> bool:
    return name in ANSWERS or name.endswith("_answer")


def _object_at_end(text: str) -> dict[str, Any] | None:
    """Return the JSON object at the end of a text, such as a log line that begins with a time; None without one.

    >>> _object_at_end('08:00 INFO {"id": 1}'), _object_at_end("08:00 healthy")
    ({'id': 1}, None)
    """
    own = text[text.find("{") :].strip() if text.rstrip()[-1:] == "}" else ""
    value = literal(own)
    return value if isinstance(value, dict) else None


def _is_bracketed(text: str) -> bool:
    return text[:1] == "[" and text[-1:] == "]"


def _with_lists(values: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Parse the lists that are written as text in the fields `names`."""
    texts = {name: values[name] for name in names if isinstance(values.get(name), str)}
    read = {name: literal(text) if text[:1] in ("[", "{") else text for name, text in texts.items()}
    read = {name: _object_at_end(value) or value if isinstance(value, str) else value for name, value in read.items()}
    return {**values, **{name: _with_gold_text(value) for name, value in read.items()}} if texts else values


def _with_gold_text(value: Any) -> Any:
    """Convert the gold answers in a parsed object to JSON text if they are objects."""
    if not isinstance(value, dict):
        return value
    return {
        name: json.dumps(own, sort_keys=True, ensure_ascii=False)
        if isinstance(own, dict) and plain_name(name) in GOLDS
        else own
        for name, own in value.items()
    }


@lru_cache(maxsize=64)
def _round_fields(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if names_rounds(name)]


@lru_cache(maxsize=64)
def _run_lists(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if plain_name(name) in _RUN_LISTS]


def names_rounds(name: str) -> bool:
    """Return whether a list's name means that its items are rounds, or that each item is the value of one round."""
    plain = last_name(without_each(name))
    return plain in ROUND_LISTS or single_name(plain) in (*ANSWERS, *OUTCOME_NAMES) or plain in OUTCOME_NAMES


def _reply_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the fields of a model API's reply by the answer and its finish reason; keep all other fields.

    In any other object, replace a list with a single choice by the text of the choice.

    >>> _reply_fields({"object": "chat.completion", "choices": [{"message": {"content": "Oslo"}, "finish_reason": "stop"}]})
    {'answer': 'Oslo', 'finish_reason': 'stop'}
    >>> _reply_fields({"qid": "q1", "object": "chat.completion", "choices": [{"message": {"content": "Oslo"}}]})
    {'qid': 'q1', 'answer': 'Oslo', 'finish_reason': None}
    >>> _reply_fields({"object": "chat.completion", "choices": [{"message": {"content": "Os"}, "finish_reason": "length"}]})
    {'answer': None, 'finish_reason': 'length'}
    >>> _reply_fields({"output": [{"index": 0, "message": {"role": "assistant", "content": "Oslo"}, "finish_reason": "stop"}]})
    {'output': 'Oslo'}
    """
    if not _is_whole_reply(values):
        alone = {name: value[0] for name, value in values.items() if _is_choice_alone(value)}
        texts = {name: logged_reply({"choices": [choice]}).text for name, choice in alone.items()}
        return {**values, **texts} if texts else values
    reply = logged_reply(dict(values))
    others = {name: value for name, value in values.items() if name not in _PARTS}
    if _OWN_ID.match(str(others.get("id"))):
        del others["id"]
    text = "" if is_cut(reply.finish_reason) or values.get("error") else reply.text.strip()
    return {**others, "answer": text or None, "finish_reason": reply.finish_reason}


def _is_choice_alone(value: Any) -> bool:
    """Return whether a value is a list with the only choice of a chat completion."""
    only = value[0] if isinstance(value, list) and len(value) == 1 else None
    return isinstance(only, dict) and {"message", "finish_reason"} <= only.keys() and isinstance(only["message"], dict)


def _is_whole_reply(values: Mapping[str, Any]) -> bool:
    """Return whether an object is a whole reply of a model API, and not a list of rounds or a message of a dialogue."""
    choices = values.get("choices")
    if isinstance(choices, list):
        only = choices[0] if len(choices) == 1 else None
        has_text = isinstance(only, dict) and bool({"message", "text"} & only.keys())
        return has_text and bool({"usage", "object", "created"} & values.keys())
    if values.get("object") == "response":
        return isinstance(values.get("output"), list)
    return values.get("type") == "message" and isinstance(values.get("content"), list) and "usage" in values


_PLACE = re.compile(r"\d+(?:\.\d+)*")
_CHILDREN = "children"
_MOST_DEPTH = 100


def tree_nodes(value: Any) -> list[dict[str, Any]]:
    """Return the nodes of a search tree as a list, each with its id and its parent's id; empty if the value is no tree.

    A tree is an object whose keys are paths, such as 0.1.2, or has its nodes in nested lists called `children`.

    >>> tree_nodes({"0": {"text": ""}, "0.1": {"text": "x"}})
    [{'text': '', 'node_id': '0', 'parent_id': None}, {'text': 'x', 'node_id': '0.1', 'parent_id': '0'}]
    >>> tree_nodes({"state": "", "children": [{"state": "x", "children": []}]})
    [{'state': '', 'node_id': '0', 'parent_id': None}, {'state': 'x', 'node_id': '0.1', 'parent_id': '0'}]
    """
    if not isinstance(value, dict):
        return []
    if isinstance(value.get(_CHILDREN), list) and all(isinstance(child, dict) for child in value[_CHILDREN]):
        return [*_nested(value, "0", None, _MOST_DEPTH)] if value[_CHILDREN] else []
    are_places = all(isinstance(node, dict) and _PLACE.fullmatch(key) for key, node in value.items())
    if not are_places or not any("." in key for key in value):
        return []
    return [_node(node, key, key.rpartition(".")[0] or None) for key, node in value.items()]


def _node(fields: Mapping[str, Any], place: str, parent: str | None) -> dict[str, Any]:
    own = {name: value for name, value in fields.items() if name not in (_CHILDREN, "node_id", "parent_id")}
    return {**own, "node_id": place, "parent_id": parent}


def _nested(fields: Mapping[str, Any], place: str, parent: str | None, depth: int) -> Iterator[dict[str, Any]]:
    """Yield a node and the nodes below it, each parent before its children."""
    yield _node(fields, place, parent)
    below = fields.get(_CHILDREN)
    for number, child in enumerate(below if isinstance(below, list) and depth else (), start=1):
        if isinstance(child, dict):
            yield from _nested(child, f"{place}.{number}", place, depth - 1)
