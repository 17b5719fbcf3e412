"""Ask what says how good an answer is, where gold answers are sentences and the log has a score of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from suffice.errors import UnsettledError
from suffice.importers.checks.judging import may_judge, metric_name, metric_option
from suffice.importers.rounds.facts import SCORES
from suffice.importers.tables.parted_run import PartedRun
from suffice.importers.words.names import in_log
from suffice.policy.normalizers import DEFAULT_NORMALIZER, is_structured
from suffice.recordings.schema import column_kind

_SENTENCE = 6
"""The fewest words of a gold answer that is a sentence."""


def refuse_two_judges(run: PartedRun, options: Mapping[str, Any]) -> None:
    """Raise if gold answers are sentences, of which words in common say little, and the log scores each answer itself."""
    if run.source != "tabular" or not {"normalizer", "golds"}.isdisjoint(options):
        return
    golds = run.texts("golds")
    lengths = [len(gold.split()) for gold in golds if not is_structured(gold)]
    if 2 * sum(length >= _SENTENCE for length in lengths) <= len(golds):
        return
    names = {item.ours: item.named for item in run.readings}
    for item in run.schema:
        kind = column_kind(item.name, item)
        if item.name in SCORES or kind not in ("metric", "signal") or (kind == "signal" and not may_judge(item.name)):
            continue
        numbers = [number for part in run.tables([item.name]) for number in _numbers(part.column(0))]
        if len({*numbers}) > 1 and all(0 <= number <= 1 for number in numbers):
            theirs = names.get(item.name, in_log(item.name))
            own = {} if kind == "metric" else {metric_name(theirs): theirs}
            option = "--column golds=" if kind == "metric" else f"{metric_option(theirs, '')} --column golds="
            raise UnsettledError(
                f"gold answers are sentences, such as {next(iter(golds))!r:.60}, and the log scores each answer itself ({theirs!r}): what "
                "says how good an answer is?",
                "options",
                {
                    option: (
                        {"columns": {"golds": ""}, **({"metrics": own} if own else {})},
                        f"the log's own {theirs!r}",
                    ),
                    f"--set normalizer={DEFAULT_NORMALIZER}": (
                        {"normalizer": DEFAULT_NORMALIZER},
                        "the words that an answer has in common with the gold answer (F1)",
                    ),
                },
            )


def _numbers(column: pa.ChunkedArray) -> list[float]:
    """Return the known numbers of a column; none if it has texts."""
    is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    return [value for value in column.to_pylist() if value is not None and not math.isnan(value)] if is_number else []
