"""Read logs of Inspect (inspect-ai), as `.eval` archives or `.json`; Inspect need not be installed."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.common.files import decoded, unpacked
from suffice.common.json_text import load_json
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.calls.objects import fields_of, nanoseconds, objects_in
from suffice.importers.calls.payloads import logged_reply, messages_of, usage_in
from suffice.importers.calls.spans import CHAT, About, Log, TraceSpan
from suffice.importers.files.recognise import Head, data_files
from suffice.importers.importers import reads_traces, recognised_by
from suffice.importers.traces.core import ANSWER_TOOLS
from suffice.importers.traces.kinds import OTHER_CALLS
from suffice.importers.traces.runs import run_of
from suffice.importers.transcripts.inspect_steps import has_steps_alone, run_of_sample
from suffice.importers.transcripts.runs import run_of_agents
from suffice.policy.rounds import End
from suffice.policy.signals.position import AnswerPosition

_HEADERS = ("header.json", "_journal/start.json")
"""Members of an archive with the facts about all samples."""

_ZSTANDARD = 93
_ZIP_HEADER_BYTES = 30  # bytes of a member's header before its name
_ATTACHMENT = "attachment://"
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_CAPS = ("message", "token", "time", "working", "turn", "cost")


def inspect_log(path: str | Path) -> Log:
    """Return the model calls of an Inspect log as spans, one trace for each sample and epoch."""
    log = Log()
    for where, name, header, sample in _samples(path, log.notes):
        several = fields_of(fields_of(header.get("eval")).get("config")).get("epochs") not in (None, 1)
        _add_sample(log, sample, where, name, f"#{sample.get('epoch', 1)}" if several else "")
    return log


def _samples(path: str | Path, notes: list[str]) -> Iterator[tuple[str, str, Mapping[str, Any], dict[str, Any]]]:
    """Yield the samples of a log or a folder of logs, each with its place, its name and the log's header."""
    files = data_files(path)
    for file in files:
        samples = 0
        for where, header, sample in _archive(file) if zipfile.is_zipfile(file) else _document(file):
            samples += 1
            task = fields_of(header.get("eval")).get("task") or file.stem
            yield where, f"{task}:{sample.get('id')}" if len(files) > 1 else str(sample.get("id")), header, sample
            if samples == 1 and header.get("status") not in (None, "success"):
                notes.append(f"{file.name}: the log's status is {header['status']!r}, so samples may be missing")
        if not samples:
            raise DataError(f"{file}: the log has no samples; were they left out of the log (log_samples)?")


def _is_inspect(head: Head) -> bool:
    return any(map(head.has, _HEADERS)) or head.has("eval", "status")


@recognised_by(_is_inspect)
@reads_traces(inspect_log)
def read_inspect(
    path: str | Path,
    *,
    ended: End | None = None,
    answer_position: AnswerPosition | None = None,
    where: Mapping[str, str] | None = None,
    samples: bool = False,
    expected: Collection[str] = (),
) -> ImportedRun:
    """Read an Inspect log: each model call with an answer is a round, and the sample's target is the gold answer.

    If the model answers by the tool `submit`, the submitted answers are the rounds.  Each epoch of a sample is a trajectory of
    the same question.  With `samples`, the epochs are independent samples of one trajectory; this is required if epochs have one call.

    If samples use tools (`bash`, `python`, `text_editor`, ...) and none gives several answers, they are read as runs of
    agents: each model call is a step, and a round's answer is the state of the files.

    Args:
        path: An `.eval` or `.json` log, or a folder of them.
        ended: The reason why some trajectories are shorter than the longest, if the log gives no reason; None = the loop's own rule.
        answer_position: The position of the answer in a reply; None = the whole reply.
        where: The calls that are answers, as for other traces; None = all.
        samples: Whether the answers to a question are independent samples.
        expected: Alarms to accept; `other-calls` = calls of several kinds are answers.

    Raises:
        DataError: The log cannot be read, or has no answers.
        UnsettledError: Each epoch is one call, and `samples` is missing.
    """
    log = inspect_log(path)
    if not (samples or where or answer_position or OTHER_CALLS in expected) and has_steps_alone(log, ANSWER_TOOLS):
        return _run_of_steps(path)
    are_calls = max(Counter(span.trace for span in log.spans).values(), default=1) == 1
    has_epochs = max(Counter(about.cluster for about in log.about.values()).values(), default=1) > 1
    if are_calls and has_epochs and not samples:
        doubt = "each epoch of a question is one call of the model, so none has rounds in an order"
        raise UnsettledError(doubt, "samples", {"--samples": (True, "epochs are independent samples")}, "--samples")
    if are_calls and samples:
        _join_epochs(log)
    return run_of(log, "inspect", ended=ended, answer_position=answer_position, where=where, expected=expected)


def _run_of_steps(path: str | Path) -> ImportedRun:
    notes: list[str] = []
    runs = []
    for _, name, _, sample in _samples(path, notes):
        end = _sample_end(sample.get("error"), sample.get("limit"))
        sample = _resolved(sample, fields_of(sample.get("attachments")))  # noqa: PLW2901
        runs.append(run_of_sample(sample, name, end, _grades(sample.get("scores"))))
    run = run_of_agents("inspect", runs, {})
    chosen = "the samples work with tools, and none gives several answers: every call of the model is a step"
    run.notes = [
        f"{chosen}; --expected {OTHER_CALLS} reads every call with text as an answer instead",
        *notes,
        *run.notes,
    ]
    return run


def _join_epochs(log: Log) -> None:
    """Join the epochs of each question into one trace; copy the score of each epoch to the calls of this epoch."""
    for place, span in enumerate(log.spans):
        about = log.about[span.trace]
        span.trace, span.scores = about.cluster, {**span.scores, **about.scores}
        if span.start is None:  # samples may be in any order
            span.start, span.end = place, None
    log.about = {about.cluster: replace(about, scores={}, end=None) for about in log.about.values()}


def _archive(file: Path) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if not any(name in names for name in _HEADERS):
            raise SchemaError(f"{file}: a zip, but not an Inspect log: it has no header.json")
        head = next(name for name in _HEADERS if name in names)
        header = _member(archive, file, head)
        for name in names:
            if name.startswith("samples/") and name.endswith(".json"):
                yield f"{file}, {name}", header, _member(archive, file, name)


def _member(archive: zipfile.ZipFile, file: Path, name: str) -> dict[str, Any]:
    info = archive.getinfo(name)
    where = f"{file}, {name}"
    try:
        raw = _zstandard(file, info) if info.compress_type == _ZSTANDARD else archive.read(info)
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, EOFError) as error:
        raise DataError(
            f"{where}: cannot be unpacked ({error}); the log may have been cut off: copy it again"
        ) from error
    return _json_object(raw, where)


def _zstandard(file: Path, info: zipfile.ZipInfo) -> bytes:
    """Decompress an archive member in Zstandard, which Python's `zipfile` reads only from 3.14 on."""
    import pyarrow as pa

    with file.open("rb") as raw:
        raw.seek(info.header_offset)
        name, extra = struct.unpack("<HH", raw.read(_ZIP_HEADER_BYTES)[26:30])
        raw.seek(info.header_offset + _ZIP_HEADER_BYTES + name + extra)
        packed = pa.BufferReader(raw.read(info.compress_size))
    with pa.CompressedInputStream(packed, "zstd") as stream:
        content = bytes(stream.read())
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")
    return content


def _document(file: Path) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    if file.suffix == ".eval":
        size = file.stat().st_size
        raise DataError(
            f"{file}: not a complete zip archive ({size} bytes); the log may have been cut off: copy it again"
        )
    log = _json_object(b"".join(unpacked(file)), str(file))
    if not isinstance(log.get("eval"), dict) or not isinstance(log.get("samples"), list):
        raise SchemaError(f"{file}: not an Inspect log: expected 'eval' and 'samples'; name the format with --kind")
    for place, sample in enumerate(log["samples"], start=1):
        if not isinstance(sample, dict):
            raise SchemaError(f"{file}, sample {place}: found {type(sample).__name__}; expected an object")
        yield f"{file}, sample {place}", log, sample


def _json_object(raw: bytes, where: str) -> dict[str, Any]:
    text = decoded(raw, where)
    if not text.strip():
        raise DataError(f"{where}: the file is empty; copy the log again")
    try:
        value = load_json(text)
    except ValueError as error:
        raise DataError(
            f"{where}: not complete JSON ({error}); the log may have been cut off: copy it again"
        ) from error
    if not isinstance(value, dict):
        raise SchemaError(f"{where}: found {type(value).__name__}; expected an object of an Inspect log")
    return value


def _add_sample(log: Log, sample: Mapping[str, Any], where: str, name: str, suffix: str) -> None:
    trace = name + suffix
    attachments = fields_of(sample.get("attachments"))
    pool = _resolved(objects_in(fields_of(sample.get("events_data")).get("messages")), attachments)
    spans: list[TraceSpan] = []
    tools: set[str] = set()
    for place, event in enumerate(objects_in(sample.get("events"))):
        kind = event.get("event")
        if kind == "model":
            tools |= {str(tool.get("name")) for tool in objects_in(event.get("tools"))}
            spans.append(_call_span(_resolved(event, attachments), pool, trace, where, place))
        elif kind == "score" and event.get("intermediate") and spans:
            spans[-1].scores |= _grades({"score": event.get("score")})
    if not spans:
        spans = _outcome(sample, trace, where)
    limit = sample.get("limit")
    golds = sample.get("target")
    question = sample.get("input")
    if isinstance(question, list):
        question = next((m.text for m in messages_of(_resolved(question, attachments)) if m.role == "user"), "")
    log.about[trace] = About(
        question=str(_resolved(question, attachments) or "").strip(),
        golds=tuple(
            str(gold).strip() for gold in (golds if isinstance(golds, list) else [golds]) if gold not in (None, "")
        ),
        scores=_grades(sample.get("scores")),
        end=_sample_end(sample.get("error"), limit),
        cluster=name,
        answer_tool="submit" in tools,
    )
    log.spans.extend(spans)


def _sample_end(error: Any, limit: Any) -> End | None:
    if error:
        return "failed"
    kind = limit.get("type") if isinstance(limit, dict) else None
    return "max_rounds" if kind in _CAPS else None


def _call_span(event: Mapping[str, Any], pool: list[Any], trace: str, where: str, place: int) -> TraceSpan:
    output = fields_of(event.get("output"))
    messages = objects_in(event.get("input"))
    for pair in event.get("input_refs") or ():
        start, end = pair
        messages = [*messages, *pool[start:end]]
    reply = logged_reply({**output, "model": output.get("model") or event.get("model")})
    start_time = nanoseconds(event.get("timestamp"), where)
    seconds = output.get("time") if isinstance(output.get("time"), int | float) else None
    end = nanoseconds(event.get("completed"), where)
    if end is None and start_time is not None and seconds is not None:
        end = start_time + round(seconds * 1e9)
    return TraceSpan(
        trace=trace,
        span=f"{trace}/{place}",
        name="model",
        kind=CHAT,
        where=where,
        start=start_time,
        end=end,
        messages=messages_of(messages),
        reply=replace(reply, usage=usage_in(output.get("usage"), apart=True)),
        failed=bool(event.get("error") or output.get("error")),
    )


def _outcome(sample: Mapping[str, Any], trace: str, where: str) -> list[TraceSpan]:
    """Return the sample's output as a single call, for a log without events."""
    output = sample.get("output")
    if not isinstance(output, dict) or not output.get("choices"):
        return []
    return [_call_span({"output": output, "input": sample.get("messages") or []}, [], trace, where, 0)]


def _resolved(value: Any, attachments: Mapping[str, Any]) -> Any:
    """Replace references to attachments in a value by their content."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix(_ATTACHMENT), value) if value.startswith(_ATTACHMENT) else value
    if isinstance(value, dict):
        return {name: _resolved(item, attachments) for name, item in value.items() if name != "call"}
    return [_resolved(item, attachments) for item in value] if isinstance(value, list) else value


def _grades(scores: Any) -> dict[str, Any]:
    """Return the scorers' marks: letters become numbers, and marks with several parts are split."""
    grades: dict[str, Any] = {}
    for name, item in fields_of(scores).items():
        value = item.get("value") if isinstance(item, dict) else item
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, mark in parts:
            grades[f"{name}_{part}" if part else str(name)] = _GRADES.get(mark, mark) if isinstance(mark, str) else mark
    return grades
