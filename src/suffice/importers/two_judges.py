"""Ask for the measure of quality if gold answers are sentences and the log has scores of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from suffice.common.tables import cut_list
from suffice.errors import UnsettledError
from suffice.importers.checks.judging import may_judge, metric_of, metric_option, scale_of
from suffice.importers.columns.grid import says_missing
from suffice.importers.rounds.facts import SCORES
from suffice.importers.rounds.own_columns import OwnColumn
from suffice.importers.tables.parted_run import PartedRun
from suffice.importers.words.choices import Choices
from suffice.importers.words.names import in_log, last_name, words_in
from suffice.importers.words.number_forms import written_number
from suffice.importers.words.score_names import is_judgement, is_overlap, is_score_name, says_other
from suffice.policy.normalizers import DEFAULT_NORMALIZER, is_structured
from suffice.recordings.runs import tells_loops_apart
from suffice.recordings.schema import column_kind

_SENTENCE = 6
"""The fewest words of a gold answer that is a sentence."""

_WORD = re.compile(r"[\u2e80-\u9fff]{2}|[^\s\u2e80-\u9fff]+")
"""A word, or two characters of a script without spaces."""

_MOST = 3
"""The most scores that are offered."""

_RATES, _PERCENT = ("ter", "wer", "cer"), 100
"""The last words of the names of rates of errors, which may be more than 100 %."""

_HALF = 1 / 2
"""A column of any name may judge if it varies in so many questions, and no larger share of the answers equals a gold answer."""


def refuse_two_judges(run: PartedRun, options: Mapping[str, Any]) -> None:
    """Raise if gold answers are sentences, and a column of the log may contain a score of each answer.

    For sentences, the words shared with the gold answer are a weak measure of quality.
    """
    if run.source != "tabular" or not {"normalizer", "golds"}.isdisjoint(options):
        return
    golds = run.texts("golds")
    lengths = [len(_WORD.findall(gold)) for gold in golds if not is_structured(gold)]
    if 2 * sum(length >= _SENTENCE for length in lengths) <= len(golds):
        return
    names = {item.ours: item.named for item in run.readings}
    scales = {item.name: _scale(run, item) for item in run.schema if item.name not in SCORES}
    known = {name: scale for name, scale in scales.items() if scale is not None}
    metrics = [name for name in known if column_kind(name, run.schema.field(name)) == "metric"]
    choices: Choices = {}
    if metrics:
        choices["--column golds="] = {"columns": {"golds": ""}}, f"the log's own {_listed(metrics, names)}"
    for name in [name for name in known if name not in metrics][:_MOST]:
        theirs = names.get(name, in_log(name))
        option = f"{metric_option(theirs, known[name] or '')} --column golds="
        value = {"columns": {"golds": ""}, "metrics": {metric_of(theirs): f"{theirs}{known[name]}"}}
        choices[option] = value, f"the log's own {theirs!r}"
    if choices:
        choices[f"--set normalizer={DEFAULT_NORMALIZER}"] = (
            {"normalizer": DEFAULT_NORMALIZER},
            "the words that an answer has in common with the gold answer (F1)",
        )
        raise UnsettledError(
            f"gold answers are sentences, such as {next(iter(golds))!r:.60}, and the log scores each answer itself "
            f"({_listed([*known][:_MOST], names)}): what says how good an answer is?",
            "options",
            choices,
        )


def _listed(found: Sequence[str], names: Mapping[str, str]) -> str:
    return cut_list(repr(names.get(name, in_log(name))) for name in found)


def _scale(run: PartedRun, item: pa.Field) -> str | None:
    """Return the scale of a column that may judge answers, as the end of an option such as `:0..100`; None if it cannot judge.

    A column not named like a score must have values in [0, 1] that vary between rounds.  In addition, answers must seldom equal
    gold answers.
    """
    kind, theirs = column_kind(item.name, item), in_log(item.name)
    if "self" in words_in(theirs):
        return None
    is_called = kind == "metric" or may_judge(theirs) or is_score_name(theirs) or is_judgement(theirs)
    if kind not in ("metric", "signal", "label") or not (is_called or kind == "label") or tells_loops_apart(item.name):
        return None
    questions: dict[str, set[float]] = {}
    for part in run.tables(["question_id", item.name]):
        for name, value in zip(*(column.to_pylist() for column in part.columns), strict=True):
            number = value if isinstance(value, int | float) else written_number(str(value))
            if number is not None and not math.isnan(number):
                questions.setdefault(name, set()).add(number)
            elif number is None and not says_missing(value):
                return None
    numbers = {value for own in questions.values() for value in own}
    if len(numbers) <= 1 or (kind != "metric" and not any(len(own) > 1 for own in questions.values())):
        return None
    low, high = min(numbers), max(numbers)
    if is_called:
        return "" if kind != "label" and low >= 0 and high <= 1 else _usual_scale(theirs, low, high)
    varying = sum(len(own) > 1 for own in questions.values())
    is_score = low >= 0 and high <= 1 and not numbers <= {0, 1} and not says_other(theirs)
    return "" if is_score and varying >= _HALF * len(questions) and _equal(run) <= _HALF else None


def _usual_scale(theirs: str, low: float, high: float) -> str | None:
    """Return the scale of a column that is named like a score; None if its values suggest no scale.

    If the highest value of the scale is not known, it is 100 for measures of overlap, else the column's maximum.
    """
    scale = scale_of(theirs, OwnColumn(values={str(low), str(high)}, low=low, high=high))
    if last_name(theirs).rpartition("_")[2] in _RATES and low >= 0 and high > 1:
        return f":{max(_PERCENT, math.ceil(high))}..0"
    if is_overlap(theirs) and -1 <= low < 0 and high <= 1:
        return ":-1..1"
    if scale is not None and scale.endswith("HIGHEST"):
        return f":0..{_PERCENT if is_overlap(theirs) else math.ceil(high)}"
    return scale


def _equal(run: PartedRun) -> float:
    """Return the share of answers that equal a gold answer."""
    values = [value for part in run.tables(["em"]) for value in part.column(0).to_pylist() if value is not None]
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else 0.0
