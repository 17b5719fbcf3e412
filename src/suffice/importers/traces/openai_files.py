"""Read OpenAI's files: output and input of the Batch API, and stored completions and responses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.errors import SchemaError
from suffice.importers.calls.objects import documents, nanoseconds, short_ids
from suffice.importers.calls.payloads import first, logged_reply, messages_of
from suffice.importers.calls.spans import CHAT, Log, LoggedMessage, TraceSpan
from suffice.importers.files.recognise import Head
from suffice.importers.traces.runs import trace_importer
from suffice.importers.words.numbered_ids import number_at_end, numbered_ids

_OK = 300
_ID = "custom_id"
_OBJECTS = ("chat.completion", "response", "text_completion")


def openai_log(path: str | Path) -> Log:
    """Return the replies to each question as spans, sorted by time.

    The replies to a question have the same `custom_id` in several batches, or belong to one conversation.  Batch input files in the
    same folder provide the question's text.

    The option `key` names the field or metadata that identifies the question, such as `metadata.question_id`.  The key
    `custom_id.question` stands for the `custom_id` without the number at its end.  Without `key`, the conversation, the `custom_id`,
    or the first response of a chain identifies the question.
    """
    log, prompts, requests = Log(), dict[str, tuple[LoggedMessage, ...]](), 0
    for where, document in documents(path):
        for item in document["data"] if isinstance(document.get("data"), list) else [document]:
            if isinstance(item, dict) and isinstance(item.get("body"), dict) and "custom_id" in item:
                messages, name = _request_messages(item["body"]), str(item["custom_id"])
                if name not in prompts or len(messages) < len(prompts[name]):
                    prompts[name] = messages  # the first round's request contains the question
                requests += 1
            else:
                log.spans.append(_reply_span(item, where))
    if not log.spans and requests:
        raise SchemaError(f"{path}: the input of a batch has no answers; give its output file, or a folder with both")
    for span in log.spans:
        if not span.messages:
            span.messages = prompts.get(span.trace, ())
    _read_numbers(log)
    chain = {span.span: span.parent for span in log.spans}
    for span in log.spans:
        span.trace = _start_of_chain(span.trace, chain)
        span.parent = ""  # a response continues an earlier one, and is not inside it
    return log


def _is_openai(head: Head) -> bool:
    kind = head.item.get("object")
    is_reply = isinstance(kind, str) and kind in _OBJECTS
    return is_reply or head.has("custom_id", "response") or head.has("custom_id", "body")


read_openai = trace_importer("openai", openai_log, _is_openai)


def _read_numbers(log: Log) -> None:
    """Split the ids of requests into questions and rounds.

    Failed requests are ignored when the form of ids is detected, since they may have been sent again.
    """
    calls = [span for span in log.spans if not span.failed]
    numbers = numbered_ids(
        [span.ids.get(_ID, "") for span in calls], [span.reply and span.reply.text for span in calls]
    )
    if numbers is None:
        return
    for span in log.spans:
        span.trace, number = numbers.parts(span.ids.get(_ID, ""))
        span.start, span.end = number, None  # batches are answered in any order
    log.number = numbers.word
    log.notes.append(numbers.note(_ID, f"--key {_ID}"))


def _start_of_chain(name: str, chain: Mapping[str, str]) -> str:
    names = {name}
    while chain.get(name) and chain[name] not in names:
        name = chain[name]
        names.add(name)
    return name


def _request_messages(body: Mapping[str, Any]) -> tuple[LoggedMessage, ...]:
    return messages_of(first(body, ("messages", "input", "prompt")))


def _reply_span(item: Any, where: str) -> TraceSpan:
    item = item if isinstance(item, dict) else {}
    line = "custom_id" in item
    response = item.get("response") if isinstance(item.get("response"), dict) else {}
    body = response.get("body") if line else item
    body = body if isinstance(body, dict) else {}
    if not line and body.get("object") not in _OBJECTS:
        raise SchemaError(
            f"{where}: not a file of OpenAI's: expected lines with 'custom_id' and 'response', or objects of the kinds "
            f"{', '.join(_OBJECTS)}; name the format with --kind"
        )
    status = response.get("status_code")
    failed = bool(item.get("error") or body.get("error")) or (isinstance(status, int) and status >= _OK)
    reply = logged_reply(body)
    own = str(first(body, ("id",)) or first(item, ("id",)) or "")
    conversation = body.get("conversation")
    ids = short_ids({name: body[name] for name in ("metadata", "prompt_cache_key") if body.get(name)})
    if isinstance(conversation, dict) and conversation.get("id"):
        ids["conversation.id"] = str(conversation["id"])
    if line:
        ids[_ID] = str(item[_ID])
    start = nanoseconds(first(body, ("created", "created_at")), where)
    if line and (parts := number_at_end(ids[_ID])) is not None:
        ids[f"{_ID}.question"], number = parts
        start = None if start is None else start + number  # to order calls in the same second
    return TraceSpan(
        trace=str(item["custom_id"]) if line else own,
        span=own,
        parent=str(body.get("previous_response_id") or ""),
        name=str(body.get("object") or "request"),
        kind=CHAT,
        where=where,
        start=start,
        end=nanoseconds(body.get("completed_at"), where),
        messages=messages_of(body.get("input")) if isinstance(body.get("input"), list) else (),
        reply=reply,
        failed=failed,
        ids=ids,
    )
