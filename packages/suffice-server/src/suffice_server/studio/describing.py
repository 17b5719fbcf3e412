"""Describe a file in one line, and suggest the next command for it."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suffice.common.files import quoted
from suffice.common.tables import counted, figure
from suffice.errors import SufficeError
from suffice.evaluation.replay.costs import NOT_LANGUAGE_MODELS
from suffice.evaluation.replay.outcomes import default_metrics, has_outcome, outcome
from suffice.importers import kind_of
from suffice.importers.files.recognise import Head, head_of, json_document
from suffice.importers.words.names import ANSWERS, IDS, QUESTIONS, ROUND_WORDS, WEAK_REPLIES, is_round_name, plain_name
from suffice.loops.retrieval import load_questions
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.policy.session.policy import POLICY_FORMAT
from suffice.recordings import Recording, read_recording
from suffice.recordings.parts import part_paths
from suffice.recordings.round_journal import RoundJournal
from suffice.recordings.schema import META_KEY
from suffice.verdicts.certificates import Certificate, metric_of
from suffice.verdicts.decisions import Advice, Labels
from suffice.verdicts.decisions.advice import FORMAT as DECISION_FORMAT
from suffice.verdicts.decisions.labels import is_labelled

ITEM_KINDS = {
    "log": ("Logs of deployed policies", "log", "logs"),
    "recording": ("Recordings", "recording", "recordings"),
    "policy": ("Policies", "policy", "policies"),
    "decision": ("Decisions", "decision", "decisions"),
    "labels": ("Labelling sheets", "labelling sheet", "labelling sheets"),
    "questions": ("Questions to record", "set of questions", "sets of questions"),
    "import": ("Rounds to import", "file to import", "files to import"),
    "report": ("Reports", "report", "reports"),
    "unfinished": ("Unfinished recordings", "unfinished recording", "unfinished recordings"),
    "other": ("Other files of Suffice", "other file of Suffice", "other files of Suffice"),
}
"""Kinds of things in a folder: the heading of their list, the singular and the plural of their name."""

DECIDER = "POLICY.json"
"""Placeholder in a command for the policy that decided a log."""

_JOURNAL_ENDS = (".rounds", ".rounds-wal", ".rounds-shm", ".journal-wal", ".journal-shm", ".lock", ".tmp")
_TEXTS = (
    ".md",
    ".rst",
    ".txt",
    ".py",
    ".sh",
    ".toml",
    ".yaml",
    ".yml",
    ".ipynb",
    ".png",
    ".pdf",
    ".svg",
    ".css",
    ".js",
)
_DATA = (".parquet", ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".json.gz", ".jsonl.gz", ".csv.gz")
_ASKED = frozenset(map(plain_name, (*QUESTIONS, *IDS)))
_REPLIED = frozenset(map(plain_name, (*ANSWERS, *WEAK_REPLIES, *ROUND_WORDS, "rounds", "messages")))
_PAGE_START = 2_000
_LARGEST_JSON = 100_000_000
"""Largest JSON document, in bytes, that is read to describe it; in memory it takes several times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a file.

    Attributes:
        kind: One of `ITEM_KINDS`.
        line: The contents of the file, in one line.
        state: State of a policy's certificate: valid, void or suspended; else empty.
        error: Reason why the file cannot be read; else empty.
        next: The command to type next; empty if no command is suggested.
        page: The kind of page that shows the file; empty if no page shows it.
        digest: Digest of a policy; else empty.
        deciders: Digests of the policies that decided a log, the latest first; else empty.
    """

    kind: str
    line: str = ""
    state: str = ""
    error: str = ""
    next: str = ""
    page: str = ""
    digest: str = ""
    deciders: tuple[str, ...] = ()


def is_part(name: str) -> bool:
    """Return whether a file is, by its name (`part-*.parquet*`), a part of a recording or the journal of a part."""
    return name.startswith("part-") and ".parquet" in name


def beside(path: Path) -> bool:
    """Return whether a file belongs to a recording beside it, so that it needs no separate line."""
    return path.name.endswith(_JOURNAL_ENDS)


def describe(path: Path) -> Description | None:
    """Describe a file or a folder of parts; None if Suffice neither wrote it nor can import it."""
    kind = "recording" if path.is_dir() or ".parquet" in path.suffixes else "other"
    try:
        if path.suffix == ".json":
            size = path.stat().st_size
            if size > _LARGEST_JSON:
                return _to_import(path, f"a JSON document of {size / 1e6:,.0f} MB, too large to be read here")
            own = _own_json(path)
            kind = own if own in ITEM_KINDS else kind
            return _own_file(path, own) if own else _data_file(path)
        return _reader_of(path)(path)
    except SufficeError as error:
        return Description(kind=kind, error=str(error))
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return Description(kind=kind, error=f"it cannot be read: {error}")


def _reader_of(path: Path) -> Callable[[Path], Description | None]:
    """Return the function that describes folders, or else the one for files with the ending of `path`."""
    if path.is_dir() or not path.exists():  # a recording that has just begun consists of a journal only
        return _recording
    readers = {
        ".journal": _unfinished,
        ".html": _report_page,
        ".htm": _report_page,
        **dict.fromkeys(_TEXTS, _no_description),
    }
    return readers.get(path.suffix, _data_file)


def _no_description(path: Path) -> None:
    del path


def _data_file(path: Path) -> Description | None:
    is_data = path.name.endswith(_DATA)
    try:
        head = head_of(path)
        if META_KEY.decode() in head.metadata:
            return _recording(path)
        form = kind_of(path)
    except SufficeError:
        if is_data and path.stat().st_size and path.suffix == ".parquet":
            raise
        return _damaged_text(path) if is_data else None
    if form != "tabular":
        return _to_import(path, f"rounds in the format {form}")
    names = set(_column_names(head)) if is_data else set()
    if {"id", "question"} <= names and ({"right", "gold"} <= names or "better" in names):
        return _labelling_sheet(path)
    columns = {plain_name(name) for name in names}
    if "question" in columns and not any(map(is_round_name, columns)):
        with suppress(SufficeError):
            n = len(load_questions(str(path)))
            then = (
                f"suffice record {quoted(path)} -o {quoted(path.with_suffix('.parquet'))} --model MODEL --base-url URL"
            )
            return Description(kind="questions", line=counted(n, "question"), next=then)
    is_log = columns & _ASKED and columns & _REPLIED
    return _to_import(path, "rounds as a table") if is_log else None


def _labelling_sheet(path: Path) -> Description:
    rows = Labels.read(path).sheet
    done = sum(map(is_labelled, rows))
    pairs = " --metric preference" if any("better" in row for row in rows) else ""
    then = f"suffice decide RECORDING.parquet{pairs} --ask {quoted(path)}"
    return Description(
        kind="labels", line=f"{done:,} of {counted(len(rows), 'row')} labelled", next=then, page="labels"
    )


def _damaged_text(path: Path) -> Description | None:
    """Return None, since a text file needs no description; raise if the file ends in `.json` and does not parse."""
    if path.suffix == ".json":
        json_document(path)  # raises
    return None


def _to_import(path: Path, line: str) -> Description:
    return Description(kind="import", line=line, next=f"suffice import {quoted(path)}")


def _column_names(head: Head) -> Sequence[str]:
    """Return the names of a table's columns, or the names of the fields in the first object of a JSON file."""
    first = head.text.lstrip("\ufeff").partition("\n")[0]
    return re.split(r"[,;\t]", first) if head.form == "text" else head.names


def _recording(path: Path) -> Description:
    """Describe a recording, or a log, which is a recording with the decisions of a deployed policy."""
    recording = read_recording(path)
    is_log = "policy_digest" in recording.table.column_names
    unit = "request" if is_log else "question"
    line = (
        f"{counted(recording.shape[0], unit)}, {_rounds_text(recording)}{_headline_figures(recording, is_log=is_log)}"
    )
    failed = int((recording.ends == "failed").sum())
    line += f", {failed:,} failed" if failed else ""
    contents = [RoundJournal(part).content() for part in (part_paths(path) if path.is_dir() else [path])]
    going_on = sum(question.ending is None for content in contents if content for question in content.questions)
    line += f", {going_on:,} in progress" if going_on else ""
    if is_log:
        deciders = tuple(dict.fromkeys(filter(None, reversed(recording.per_question("policy_digest", []).tolist()))))
        then = f"suffice watch {quoted(path)} --policy {DECIDER}"
        return Description(kind="log", line=line, next=then, page="log", deciders=deciders)
    return Description(kind="recording", line=line, next=f"suffice decide {quoted(path)}", page="recording")


def _rounds_text(recording: Recording) -> str:
    first, last = int(recording.index[0]), int(recording.index[-1])
    word = "samples" if recording.exchangeable else "rounds"
    return f"{word} {first} to {last}" if last > first else f"round {first} alone"


def headline_metric(recording: Recording) -> str:
    """Return the name of the metric that lists show.

    The first choice is a metric that compares answers with gold answers, the second a recorded metric in [0, 1], the third
    `agreement` with the full run.  The name is empty if the recording allows none of the three.
    """
    names = [name for name in default_metrics(recording) if _is_known(recording, name)]
    names += [name for name in recording.names("metric") if _is_share(recording.column(name))]
    return names[0] if names else "agreement" if has_outcome(recording, "agreement") else ""


def _is_known(recording: Recording, name: str) -> bool:
    """Return whether a metric by gold answers has any value; for example, a log without gold answers has none."""
    if name in recording.table.column_names:
        return not bool(np.isnan(recording.column(name)).all())
    return has_outcome(recording, name) and any(map(bool, recording.per_question("golds", []).tolist()))


def _is_share(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return bool(len(known)) and known.min() >= 0 and known.max() <= 1


def _headline_figures(recording: Recording, *, is_log: bool) -> str:
    """Format the mean metric, and the mean number of calls for a question, to be appended to a line.

    In a log, the metric is that of the returned answers; in other recordings, it is that of the last recorded rounds.
    """
    metric, text = headline_metric(recording), ""
    last = recording.seen.sum(axis=1) - 1
    where = " at the last recorded round" if recording.cut.any() else " at full width"
    if is_log and "answer_round" in recording.table.column_names:
        rounds = recording.column("answer_round")[:, 0]
        last = np.where(np.isnan(rounds), last, rounds - recording.index[0]).astype(np.int64).clip(0, last)
        where = " of returned answers"
    fine = recording.ends != "failed"
    if metric and metric != "agreement" and fine.any():
        scores = outcome(recording, metric)
        if recording.independent:  # the order of samples means nothing, so the last one stands for any
            values, where = scores[fine], " for one sample"
        else:
            values = scores[np.arange(len(last)), last][fine]
        if not np.isnan(values).all():
            text += f", {metric} {figure(float(np.nanmean(values)), '.1f', 100)}{where}"
    columns = [
        name
        for name in recording.names("cost")
        if name.endswith(".calls") and name.split(".")[1] not in NOT_LANGUAGE_MODELS
    ]
    calls = sum((np.nansum(recording.column(name)[fine]) for name in columns), 0.0) / max(int(fine.sum()), 1)
    return text + (f", {figure(float(calls), '.2f')} calls each" if calls and math.isfinite(calls) else "")


def _unfinished(path: Path) -> Description:
    target = path.with_name(path.name.removesuffix(".journal"))
    line = f"replies for {target.name}, which is not finished: the command that began it goes on from there"
    return Description(kind="unfinished", line=line)


def _report_page(path: Path) -> Description | None:
    with path.open("rb") as file:
        start = file.read(_PAGE_START)
    if b'name="generator" content="suffice' not in start:
        return None
    return Description(kind="report", line=f"{path.stat().st_size / 1e6:.1f} MB; it needs no network", page="report")


def _own_json(path: Path) -> str:
    """Return the kind of a JSON file that Suffice wrote; empty for any other file."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        return ""
    form = str(data.get("format", "")) if isinstance(data, dict) else ""
    known = {POLICY_FORMAT: "policy", DECISION_FORMAT: "decision"}
    return known.get(form, form if form.startswith("suffice") else "")


def _own_file(path: Path, kind: str) -> Description:
    reader: dict[str, Callable[[Path], Description]] = {"policy": _policy, "decision": _decision}
    if kind in reader:
        return reader[kind](path)
    return Description(kind="other", line=f"a file of the format {kind}")


def loaded_policy(path: Path) -> Policy:
    """Load a policy without the warning about a suspended certificate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Policy.load(path)


def certificate_state(policy: Policy) -> str:
    """Return the state of a policy's certificate, valid, suspended or void; empty if it has none."""
    certificate = Certificate.of(policy)
    if certificate is None:
        return ""
    return "void" if not certificate.holds_for(policy) else "suspended" if policy.suspended else "valid"


def _policy(path: Path) -> Description:
    policy = loaded_policy(path)
    state = certificate_state(policy)
    line = f"{policy.rule}, rounds {policy.start_round} to {policy.max_rounds}, {policy.selector}"
    metric = metric_of(policy)
    words = "" if metric is None else f" --metric {quoted(metric)}"
    then = f"suffice certify FRESH.parquet --policy {quoted(path)} --max-loss 0.02{words}"
    if state == "valid":
        then = f"suffice deploy {quoted(path)}"
    return Description(kind="policy", line=line, state=state, next=then, page="policy", digest=policy.digest)


def _decision(path: Path) -> Description:
    advice = Advice.load(path)
    then = f"suffice deploy {quoted(path)}" if advice.policy is not None else ""
    return Description(kind="decision", line=advice.sentence, next=then)
