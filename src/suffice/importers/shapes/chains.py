"""Read finished chains of thought from logs: the question, the chain and the answer after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.importers.answers.golds import GoldAnswers
from suffice.importers.calls.payloads import logged_reply, messages_of, reasoning_of
from suffice.importers.calls.spans import CHAT, LoggedMessage, LoggedReply
from suffice.importers.columns.grid import gold_texts
from suffice.importers.files.records import Record, records_of
from suffice.importers.importers import kind_of, log_reader
from suffice.importers.shapes.calls import REQUESTS, call_fields
from suffice.importers.traces.core import conversations_of
from suffice.importers.words.names import GOLDS, IDS, PARSED_ANSWERS, QUESTIONS, REPLIES, plain_name
from suffice.loops.asked_chains import FinishedChain
from suffice.loops.retrieval.datasets import text_id
from suffice.policy.signals.text import split_thinking

_REPLIES = ("messages", "choices", *REPLIES, "message", "content", "text")
"""Names of fields with the whole reply, the clearest first."""

_EMPTY: tuple[Any, ...] = (None, "", [])


def read_chains(path: str | Path, golds: str | Path | None = None) -> tuple[list[FinishedChain], list[str]]:
    """Return the chains of a log, and notes on what was left out.

    A chain is in `<think>` tags before the reply, in a field such as `reasoning_content`, or in parts of a message.  The log is
    a table or JSON lines with a reply in each row, or traces as `import_recording` reads them (OpenAI, Inspect, ...).

    Args:
        path: The log.
        golds: A file with gold answers, by id or by the question's text; None = those in the log.

    Raises:
        DataError: No row has a question with a chain, or the file cannot be read.
    """
    path = Path(path)
    kind = kind_of(path)
    read = log_reader(kind)
    lacks = Counter[str]()
    chains = [*(_of_rows(path, lacks) if read is None else _of_traces(read(path), lacks))]
    if not chains:
        why = ", ".join(f"{name} ({n})" for name, n in lacks.items()) or "it has no rows"
        raise DataError(
            f"{path}: no row is a question with a chain of thought that can be asked again: {why}. A chain is text between <think> and "
            "</think> in a reply, or a field called reasoning_content, reasoning or thinking; the question is a field called "
            "question or prompt, or the message of a user"
        )
    notes = [f"left out: {counted(n, 'row')} {why}" for why, n in lacks.items()]
    if golds is not None:
        given = GoldAnswers(golds)
        given.find([name for own in chains for name in (own.chain_id, own.cluster)], [own.question for own in chains])
        joined = [(chain, given.of(chain.chain_id, chain.cluster, chain.question)) for chain in chains]
        chains = [replace(chain, golds=own or chain.golds) for chain, own in joined]
        notes.append(given.note())
    return _with_unique_ids(chains), notes


def _with_unique_ids(chains: list[FinishedChain]) -> list[FinishedChain]:
    """Add a number to the ids of chains whose question has several chains."""
    several = {name for name, n in Counter(chain.chain_id for chain in chains).items() if n > 1}
    seen = Counter[str]()
    result = []
    for chain in chains:
        seen[chain.chain_id] += 1
        number = f"#{seen[chain.chain_id]}" if chain.chain_id in several else ""
        result.append(replace(chain, chain_id=chain.chain_id + number))
    return result


def _of_traces(log: Any, lacks: Counter[str]) -> Iterator[FinishedChain]:
    for item in conversations_of(log, None):
        calls = [step.span for step in item.steps if step.span.kind == CHAT and not step.span.failed]
        if len(calls) != 1 or _goes_on(calls[0].messages):
            lacks["of several calls"] += 1
            continue
        yield from _chains(
            FinishedChain(
                chain_id=item.key,
                cluster=item.about.cluster or item.key,
                question=item.question,
                golds=item.about.golds,
            ),
            calls[0].reply,
            lacks,
        )


def _of_rows(path: Path, lacks: Counter[str]) -> Iterator[FinishedChain]:
    for record in records_of(path):
        values = {plain_name(name): value for name, value in call_fields(record.values).items()}
        messages = messages_of(values["messages"]) if "messages" in values else ()
        if _goes_on(messages[:-1]) or any(_goes_on(messages_of(record.values.get(name))) for name in REQUESTS):
            lacks["of several calls"] += 1
            continue
        said = next((message.text for message in messages if message.role == "user"), "")
        question = next((values[name] for name in QUESTIONS if isinstance(values.get(name), str)), said)
        reply, name = _reply_of(values)
        chain_id = next((str(values[own]) for own in IDS if values.get(own) is not None), "") or text_id(question)
        asked = FinishedChain(
            chain_id=chain_id, cluster=chain_id, question=question, golds=_golds_of(record, values, name)
        )
        yield from _chains(asked, reply, lacks)


def _goes_on(messages: Sequence[LoggedMessage]) -> bool:
    """Return whether the model had replied before, so that its chain is not only about one question."""
    return any(message.role == "assistant" for message in messages)


def _reply_of(values: Mapping[str, Any]) -> tuple[LoggedReply, str]:
    """Return the reply of a row, including its chain of thought, and the name of the field with the reply.

    The chain may be in the reply's field or in a field of its own.
    """
    name = next((name for name in (*_REPLIES, *PARSED_ANSWERS) if values.get(name) not in _EMPTY), "")
    reply = logged_reply(values if name == "choices" else values.get(name))
    return (reply if reply.reasoning else replace(reply, reasoning=reasoning_of(values))), name


def _golds_of(record: Record, values: Mapping[str, Any], reply: str) -> tuple[str, ...]:
    """Return the gold answers of a row.

    The field `answer` is read as gold answers only if the reply is in another field.
    """
    named = next(
        (name for name in (*GOLDS, "answers", "answer") if name != reply and values.get(name) not in _EMPTY), None
    )
    value = None if named is None else values[named]
    value = str(value) if isinstance(value, int | float) else value
    return gold_texts(value, record.where, form="####" if isinstance(value, str) and "####" in value else "")


def _chains(asked: FinishedChain, reply: LoggedReply, lacks: Counter[str]) -> Iterator[FinishedChain]:
    """Add the chain of a reply to the question `asked`, and yield the result.

    Without a question or a chain, yield nothing, and count in `lacks` which of them is missing.
    """
    thinking, rest = (reply.reasoning, reply.text or None) if reply.reasoning else split_thinking(reply.text)
    if not asked.question.strip() or not thinking.strip():
        lacks["without a chain" if asked.question.strip() else "without a question"] += 1
    else:
        yield replace(asked, thinking=thinking.strip(), reply=rest)
