"""Scores of a log's own: which of several say how good an answer is, and who chooses between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from suffice.common.tables import cut_list
from suffice.errors import UnsettledError
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import MATCH

_PART = re.compile(r"_(?:precision|prec|p|recall|rec|r)(?=_)")
_WHOLE = re.compile(r"_f_?1?_?(?:score|measure)?(?=_)")
_SHOWN = 6
"""The most scores that a question offers."""


def without_parts(names: Iterable[str]) -> list[str]:
    """Return metrics without the precision and the recall of which another one is the F1: neither says alone how good an answer is.

    >>> without_parts(["bertscore_precision", "bertscore_recall", "bertscore_f1", "rouge1"])
    ['bertscore_f1', 'rouge1']
    >>> without_parts(["rougeL_p", "rougeL_fmeasure", "precision"])
    ['rougeL_fmeasure', 'precision']
    """
    kept = [*names]
    wholes = {_stem(_WHOLE, name) for name in kept} - {""}
    return [name for name in kept if (_stem(_PART, name) or None) not in wholes]


def _stem(word: re.Pattern[str], name: str) -> str:
    """Return a name without a word; "" if it does not have it."""
    plain = f"_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', name).lower()}_"
    return word.sub("", plain, count=1) if word.search(plain) else ""


def own_judges(metrics: Iterable[str]) -> list[str]:
    """Return the metrics of the log's own that may each judge answers: those that compare with gold answers, and parts of others, are left out."""
    return without_parts(name for name in metrics if name not in (*METRICS, MATCH))


def refuse_several_judges(names: Sequence[str]) -> None:
    """Raise an `UnsettledError` if several metrics may judge: each may prefer other rounds, and only their owner knows which one counts."""
    if len(names) > 1:
        raise UnsettledError(
            f"the log has several scores of its own ({cut_list(names)}), and what loses nothing by one may lose much by another: which of them "
            "judges?",
            "metric",
            {f"--metric {name}": (name, f"{name!r} judges") for name in names[:_SHOWN]},
        )
