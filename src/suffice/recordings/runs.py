"""Distinguish the loops in a recording, which differ in model, prompt, temperature or system.

An escalation from one model to the next counts as one loop.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.common.files import quoted
from suffice.common.tables import counted, cut_list
from suffice.errors import ConfigMismatchError, DataError, NotFoundError, UnsettledError, did_you_mean
from suffice.recordings.schema import column_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from suffice.policy.rounds import Mask
    from suffice.recordings.recorded_columns import RecordedColumns

MODEL_NAMES = frozenset(
    {"model", "model_name", "model_id", "llm", "llm_model", "engine", "deployment", "deployment_name", "deployment_id"}
)
"""Columns that name the model; their values are never texts of the question."""

LOOP_NAMES = MODEL_NAMES | {
    *("prompt_id", "prompt_name", "prompt_version", "prompt_template", "prompt_variant", "temperature", "retriever"),
    *("global_step", "training_step", "train_step"),
    *("system", "system_name", "system_id", "system_prompt", "system_message", "method", "experiment"),
    *("config", "config_id", "config_name", "configuration", "variant"),
}
"""Last parts of the names of columns whose values tell loops apart; one of `MODEL_NAMES` always does."""

_LOOP_WORD = re.compile(
    r"(?:\w+_)?(?:arm|variant|experiment|bucket|cohort|release|pipeline|deployment|provider)(?:_(?:name|id|version))?"
    r"|(?:agent|app|bot|code|model|pipeline|prompt|release|service|system)_version|version|git_(?:sha|commit|hash)|commit(?:_(?:sha|hash))?"
    r"|(?:ab|test|treatment|experiment|control)_group"
)
"""Names of systems, and of parts of a trial that compares some."""

_JUDGES = frozenset(
    {"judge", "grader", "evaluator", "evaluation", "scorer", "scoring"}
    | {"rater", "annotator", "reviewer", "assessor", "labeler", "labeller"}
)

MEMBERS = ("member", "model")
"""Columns that name the model of each answer of a panel, the first one first; nested ones (`request.model`) do, too."""

RUN_FILE = "run_file"
"""The column with the file that a run was imported from, used if nothing else tells the runs of a question apart."""

_LOOPS = b"loops"
"""The key in a column's metadata that says that its values tell loops apart, whatever its name."""

ATTEMPTS = "attempts"
"""The name in `depends`, of recordings and policies, of the list with the model of each round, from round 1 on."""

ALONE = " alone"
"""The end of the names of policies that ask one model, and none before it."""

_SURE = ("header", "messages")
"""How a proxy knows the runs of which it is sure."""

_SHOWN, _LENGTH, _CUT = 3, 40, "..."
_JOINTS = re.compile(r" \+ |, ")
"""The separator between the names of several models that one loop asks in turn."""


def loop_labels(schema: pa.Schema) -> list[str]:
    """Return the columns that may distinguish loops; columns of models come first."""
    names = [
        field.name
        for field in schema
        if (tells_loops_apart(field.name) or field.name == RUN_FILE or _LOOPS in (field.metadata or {}))
        and column_kind(field.name, field) in ("label", "identity")
    ]
    return sorted(names, key=lambda name: (_last_part(name) not in MODEL_NAMES, name == RUN_FILE))


def tells_loops_apart(name: str) -> bool:
    """Return True if a column's name suggests that its values identify systems or the arms of an experiment.

    >>> tells_loops_apart("experiment_arm"), tells_loops_apart("imported_model"), tells_loops_apart("category")
    (True, True, False)
    """
    plain = _last_part(name)
    return not is_of_judge(name) and (plain in LOOP_NAMES or _LOOP_WORD.fullmatch(plain) is not None)


def is_of_judge(name: str) -> bool:
    """Return True if a column is a field of a judge, whose model and prompt are not the loop's.

    >>> is_of_judge("judge.model"), is_of_judge("request.model"), is_of_judge("judge")
    (True, False, False)
    """
    return not _JUDGES.isdisjoint(re.split(r"[._]", name.removeprefix("imported_").lower())[:-1])


def member_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that may name the model of each answer of a panel; columns named by this library come first.

    >>> member_columns(["answer", "response.model", "judge.model", "model", "agent.member"])
    ['agent.member', 'model', 'response.model']
    """
    own = [name for name in names if _last_part(name) in MEMBERS and not is_of_judge(name)]
    return sorted(own, key=lambda name: (MEMBERS.index(_last_part(name)), name not in MEMBERS))


def with_loops(schema: pa.Schema, name: str) -> pa.Schema:
    """Return a schema in which a column is marked as distinguishing loops, whatever the name of the column."""
    field = schema.field(name)
    return schema.set(schema.get_field_index(name), field.with_metadata({**(field.metadata or {}), _LOOPS: b"1"}))


def _last_part(name: str) -> str:
    """Return the last part of a column's dotted name in snake case, without the prefix ``imported_``.

    The column ``provider.id`` of promptfoo's results names the model, so its last part is returned as ``model``.

    >>> _last_part("request.model"), _last_part("imported_prompt_id"), _last_part("modelName")
    ('model', 'prompt_id', 'model_name')
    """
    if name.removeprefix("imported_") == "provider.id":
        return "model"
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).replace("-", "_").replace(" ", "_").lower()
    return plain.removeprefix("imported_")


def value_text(value: Any) -> str | None:
    """Return a value of a label as text; None where it is missing.

    >>> value_text("gpt-4o"), value_text(0.70), value_text(1.0), value_text(float("nan"))
    ('gpt-4o', '0.7', '1', None)
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    return f"{value:g}" if isinstance(value, float) else str(value)


def label_values(recording: RecordedColumns, name: str) -> list[list[str | None]]:
    """Return the values of a label as texts: for each question, a list with one item per round."""
    return [[value_text(value) for value in row] for row in recording.objects(name).tolist()]


def _in_turn(values: Iterable[str | None]) -> str:
    """Join the distinct values of a question's rounds in order, as in ``small + large``."""
    return " + ".join(dict.fromkeys(value for value in values if value is not None))


def _is_begun_by(text: str, other: str) -> bool:
    """Return True if the list of names in `text` begins with all names in `other`.

    >>> _is_begun_by("small + large", "small"), _is_begun_by("small-2", "small")
    (True, False)
    """
    longer, shorter = _JOINTS.split(text), _JOINTS.split(other)
    return longer[: len(shorter)] == shorter


def labels_differ(*values: str) -> bool:
    """Return True if values name different loops.

    A value lists the names in a question's rounds, such as models. If one value begins with all names of a second value,
    both name the same loop, which went further on one question than on the other.

    >>> labels_differ("small", "small + large"), labels_differ("small", "large")
    (False, True)
    """
    distinct = [*dict.fromkeys(values)]
    longest = max(distinct, key=lambda value: len(_JOINTS.split(value)), default="")
    return any(not _is_begun_by(longest, value) for value in distinct)


def loops_by_label(recording: RecordedColumns) -> dict[str, Counter[str]]:
    """Return the labels that distinguish several loops, with the number of questions for each value of a label.

    The rounds of a question may have different values, as in a panel, or if an expensive model follows a cheap one. If
    every question has the same values in the same order, these values form one loop.
    """
    result = {}
    for name in loop_labels(recording.table.schema):
        if len(recording.table.column(name).unique().drop_null()) < 2:  # noqa: PLR2004
            continue
        values = label_values(recording, name)
        if _is_text_of_question(name, values) or (name == RUN_FILE and not _shares_questions(recording, values)):
            continue
        loops = Counter(filter(None, map(_in_turn, values)))
        if recording.independent:
            is_panel = any(len({*row} - {None}) > 1 for row in values)
            several = not is_panel and labels_differ(*loops)
        else:
            several = len(loops) > 1 and _places_differ(values)
        if several:
            result[name] = loops
    return result


def _places_differ(values: Iterable[list[str | None]]) -> bool:
    """Return True if questions have different values at the same round."""
    return any(labels_differ(*filter(None, column)) for column in zip(*values, strict=True))


def _is_text_of_question(name: str, values: list[list[str | None]]) -> bool:
    """Return True if almost every question has its own value, as with a system prompt that contains the question."""
    distinct = {value for row in values for value in row} - {None}
    return _last_part(name) not in MODEL_NAMES and len(distinct) > max(1, len(values) // 2)


def _shares_questions(recording: RecordedColumns, values: list[list[str | None]]) -> bool:
    """Return True if at least half of the questions occur in several log files, as in a log with one file per system."""
    files: dict[Any, set[str]] = {}
    for unit, row in zip(recording.clusters.tolist(), values, strict=True):
        files.setdefault(unit, set()).add(_in_turn(row))
    return 2 * sum(len(names) > 1 for names in files.values()) >= len(files)


def refuse_several_loops(
    recording: RecordedColumns, tune: RecordedColumns | None = None, *, apart: Collection[str] = ()
) -> None:
    """Raise if a recording mixes loops of several models, prompts or systems, which need separate verdicts.

    Args:
        recording: The questions of the verdict.
        tune: Tune questions, which must come from the same loop.
        apart: Labels whose values get separate verdicts, such as prompts that a search compares.
    """
    for part, what in ((recording, "the recording holds"), (tune, "the tune questions hold")):
        several = {} if part is None else {n: found for n, found in loops_by_label(part).items() if n not in apart}
        if several:
            raise _several_loops_error(what, several)
    if tune is None:
        return
    ours, theirs = single_labels(recording), single_labels(tune)
    for name in ours.keys() & theirs.keys():
        if labels_differ(ours[name], theirs[name]):
            raise ConfigMismatchError(
                f"the tune questions come from another loop: their {name} is {theirs[name]!r:.80}, and that of the others "
                f"{ours[name]!r:.80}. Give tune questions of the same {name}"
            )


def single_labels(recording: RecordedColumns) -> dict[str, str]:
    """Return the labels of a recording of one loop, with their values.

    The value of a local model is the hash of its files.
    """
    result = {}
    for name in loop_labels(recording.table.schema):
        values = label_values(recording, name)
        texts = [*filter(None, map(_in_turn, values))]
        if texts and name != RUN_FILE and not _is_text_of_question(name, values) and not labels_differ(*texts):
            result[name] = max(texts, key=lambda text: len(_JOINTS.split(text)))
    pinned = (recording.metadata.get("depends") or {}).get("model")
    if isinstance(pinned, Mapping) and pinned.get("content") and "model" in result:
        result["model"] = str(pinned["content"])
    return result


def _several_loops_error(what: str, several: Mapping[str, Counter[str]]) -> UnsettledError:
    """Return the error that names a label and its values, and explains how to choose one of them."""
    name, loops = next(iter(several.items()))
    ranked = sorted(loops, key=lambda value: (-loops[value], value))
    more = f" and {len(loops) - _SHOWN:,} more" if len(loops) > _SHOWN else ""
    also = f" (and of {' and '.join(map(repr, [*several][1:3]))})" if len(several) > 1 else ""
    call = f"{name}=..." if name.isidentifier() else f"**{{{name!r}: ...}}"
    alike = (
        f"; if one loop chooses it by itself, import the log with --column {name}=" if tells_loops_apart(name) else ""
    )
    alike = "; files that repeat one loop are named run_1, run_2, ..." if name == RUN_FILE else alike
    return UnsettledError(
        f"{what} loops of {len(loops):,} values of {name!r}{also}, and what one of them loses says nothing of another: judge one "
        f"at a time, in Python with recording.where({call}){alike}",
        "where",
        {
            f"--where {quoted(f'{name}={_short(value)}')}": (
                {name: value},
                f"{loops[value]:,} questions{more if value == ranked[:_SHOWN][-1] else ''}",
            )
            for value in ranked[:_SHOWN]
        },
    )


def _short(value: str) -> str:
    return value if len(value) <= _LENGTH else f"{value[:_LENGTH]}{_CUT}"


def keep_where(recording: RecordedColumns, wanted: Mapping[str, Any]) -> Mask:
    """Return a mask of the questions with these values, shape ``(n_questions,)``; see `Recording.where`."""
    keep: Mask = np.ones(len(recording.question_ids), dtype=np.bool_)
    for name, value in wanted.items():
        if name not in recording.table.column_names:
            known = loop_labels(recording.table.schema) or recording.names("label")
            raise NotFoundError(
                f"the recording has no column {name!r} to choose by.{did_you_mean(name, known)} Columns that tell loops apart: "
                f"{cut_list(known) or 'none'}"
            )
        text = value_text(_number(value) if _is_number(recording, name) else value) or ""
        values = label_values(recording, name)
        texts = [_in_turn(row) for row in values]
        whole = {one for one in texts if _short(one) == text}
        text = whole.pop() if len(whole) == 1 else text  # a long value may be given in its shortened form
        own = np.array([bool(one) and _is_begun_by(text, one) for one in texts], dtype=np.bool_)
        if text in texts and _places_differ(row for row, kept in zip(values, own.tolist(), strict=True) if kept):
            own = np.array(
                [one == text for one in texts], dtype=np.bool_
            )  # only exact matches; the others merely begin with this text
        if not (keep & own).any():
            there = Counter(one for one, kept in zip(texts, keep.tolist(), strict=True) if one and kept).most_common()
            more = f" and {len(there) - _SHOWN:,} more" if len(there) > _SHOWN else ""
            listed = ", ".join(f"{_short(one)!r} ({n:,})" for one, n in there[:_SHOWN]) or "none"
            raise NotFoundError(f"no question has the {name} {_short(str(value))!r}; there are: {listed}{more}")
        keep &= own
    return keep


def _is_number(recording: RecordedColumns, name: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(recording.table.schema.field(name).type))


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def unsure_runs(recording: RecordedColumns) -> list[str]:
    """Return a note if the proxy was not sure which rounds belong to a run, as the recording's column `key` shows.

    Such runs may lack rounds, or contain rounds of other runs.
    """
    why = Counter(map(_in_turn, label_values(recording, "key")))
    sure = {name: why.pop(name, 0) for name in _SURE}
    if not why.total():
        return []
    reasons = ", ".join(f"{name} {n:,}" for name, n in why.most_common())
    kept = " or ".join(f"--where key={name}" for name, n in sure.items() if n)
    remedy = (
        f"{kept} leaves these out"
        if kept
        else "a client is sure that names each run in the header x-suffice-conversation"
    )
    runs = counted(len(recording.question_ids), "run")
    return [f"the proxy is not sure which rounds belong to {why.total():,} of {runs} ({reasons}): {remedy}"]


def attempts_of(recording: RecordedColumns) -> tuple[str, ...]:
    """Return the model of each round of an escalation, from round 1 on; empty for other recordings."""
    return tuple(map(str, (recording.metadata.get("depends") or {}).get(ATTEMPTS) or ()))


def column_of_attempts(recording: RecordedColumns) -> str:
    """Return the log's column with the model of each round of an escalation."""
    return str((recording.metadata.get("read_from") or {}).get("round", "model")).removesuffix(" (number)")


def is_of_steps(recording: RecordedColumns) -> bool:
    """Return True if the rounds of a recording are the steps of an agent."""
    return not recording.independent and "command_repeated" in recording.names("signal")


def begins_closed_book(recording: RecordedColumns) -> bool:
    """Return True if a recording has a round 0, in which the model answers alone, before the rounds with evidence."""
    return not recording.independent and int(recording.index[0]) == 0 and int(recording.index[-1]) > 0


def refuse_untried(recording: RecordedColumns, failed: Mask) -> None:
    """Raise a `DataError` if a question of an escalation lacks the answer of a model.

    The result of that model alone is then unknown, because only the hard questions were passed on to it.

    Args:
        recording: Recorded attempts.
        failed: Mask of the questions whose recording failed; they do not count.
    """
    models, tried = attempts_of(recording), recording.seen[~failed]
    for model, asked in zip(models[::-1], tried.T[::-1], strict=False):
        if not asked.all():
            raise DataError(
                f"{model!r} was not asked {counted(int((~asked).sum()), 'question')} of {len(asked):,}, so what it alone would answer there is "
                "unknown, and an escalation cannot be compared with it. Record every model on the same questions "
                "(suffice sample record --set escalate=true), without a rule that stops"
            )
