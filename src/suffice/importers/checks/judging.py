"""List columns that may judge answers, with the options that read them, if nothing else judges the answers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import cut_list
from suffice.importers.checks.alarm import Read, used_columns
from suffice.importers.checks.gold_alarms import possible_golds
from suffice.importers.columns.grid import OWN_COLUMNS, says_missing
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.rounds.own_columns import MANY_VALUES, OwnColumn
from suffice.importers.words.names import (
    OWN_SIGNALS,
    in_log,
    is_error_count,
    is_round_name,
    last_name,
    plain_name,
    words,
    words_in,
)
from suffice.importers.words.number_forms import written_number
from suffice.importers.words.score_names import OVERLAPS, is_judgement, is_measure_of, is_score_name, says_other
from suffice.importers.words.word_scales import EQUAL, TEMPLATE, order_of_words
from suffice.policy.metrics import METRICS, without_parts
from suffice.policy.normalizers import title
from suffice.policy.signals import SIGNALS
from suffice.recordings.runs import tells_loops_apart

_JUDGING = frozenset(OVERLAPS) | {
    *words(
        "score scores judge judgement judgment rating ratings grade mark marks correct correctness quality "
        "eval evaluation annotation verdict reward thumb thumbs feedback accuracy passed stars critic "
        "hallucination faithfulness factuality note bewertung verifier adequacy fluency vote votes upvote upvoted "
        "helpful helpfulness"
    )
}
"""Words of columns that may say how good an answer is."""

_SCALES = ((0, 1), (1, 5), (0, 5), (1, 6), (0, 10), (0, 100))
_SHORT_SCALES = ((0, 2), (0, 3), (0, 4), (1, 3), (1, 4))
"""Scales of few grades, which are read only where the lowest and the highest one occur: a wider one would make losses look smaller."""

_HALF = 50
"""Scores of up to 100 that never reach it are probably on another scale."""

_SECOND, _PERCENT = (
    ("", ":1..5", ":0..5", ":1..6", ":0..10", *(f":{low}..{high}" for low, high in _SHORT_SCALES)),
    ":0..100",
)
"""The scales of a score beside another judge; what lies between 0 and 100 is as often a count, unless its name has one of `_GRADING`."""

_SPAN = re.compile(r":(\d+)\.\.(\d+)")
_GRADE, _GRADES, _FEWEST = re.compile(r"\d+(?:\.[05]0*)?"), 10, 3
"""Grades are whole or half numbers up to the highest one, of which at least so many occur."""

_GRADING = frozenset(words("judge judgement judgment rating grade quality correctness verifier critic"))

ONCE = "is known once of a question, not of each round"
"""What is said of an outcome of whole questions."""

_METRIC = " (metric)"
_WORDS = 6
_LETTERS = 24
"""The most characters of a word that a note shows."""

_SHOWN = 4
"""The most options that a note names."""

_UNTIL = " Until then `suffice decide` counts every answer that another would replace as lost, unless labels say more (--ask)"


def judging_note(read: Read) -> str:
    """Return a note on columns that may judge answers; "" if there are none.  The note is used if no column that is read judges answers."""
    if not read.is_table:
        return ""
    columns = read.facts.own.columns
    known = {name: own for name, own in columns.items() if name not in (read.options.get("metrics") or {})}
    known = {name: own for name, own in known.items() if "self" not in _words(name)}
    known = {name: own for name, own in known.items() if "answer" in read.columns or not is_error_count(name)}
    may = [name for name, own in known.items() if own.varying and may_judge(name)]
    # a signal of the log's own is called after the last part of its column's name
    scores = scores_of(known)
    scores |= {
        in_log(name): scale for name, scale in _alike(known, scores.values()).items() if in_log(name) not in scores
    }
    options = {read.named(theirs): scale for theirs, scale in scores.items()}
    unordered = _unordered(read, known)
    golds = [
        in_log(name)
        for name, own in known.items()
        if len(own.values) > 1
        and name not in may
        and not _JUDGING.isdisjoint(_words(name))
        and 2 * own.known > read.facts.trajectories
    ]
    if not options and not unordered and not golds and (theirs := next(map(in_log, possible_golds(read)), "")):
        option = f"--column {quoted(f'golds={theirs}')}"
        return (
            f"no column that is read says which answers are right: {theirs!r}, which is the same in all rounds of a question, may have the "
            f"gold answers ({option} reads them).{_UNTIL}"
        )
    if not options and not unordered and golds:
        theirs = golds[0].removeprefix("imported_")
        option = f"--column {quoted(f'golds={theirs}')}"
        if math.isfinite(known[golds[0]].low):
            return f"{theirs!r} {ONCE}: as a score it cannot judge an earlier stop; if it is the gold answer, {option} reads it.{_UNTIL}"
        return (
            f"no column that is read says which answers are right: if {theirs!r}, which is the same in all rounds of a question, is the gold "
            f"answer, {option} reads it.{_UNTIL}"
        )
    none = "no column that is read says which answers are right"
    if not options:
        return f"{none}, but {unordered}.{_UNTIL}" if unordered else ""
    shown = [metric_option(theirs, scale) for theirs, scale in [*options.items()][:_SHOWN]]
    more = (
        f" ({len(options) - _SHOWN} more: {cut_list(map(repr, [*options][_SHOWN:]))})" if len(options) > _SHOWN else ""
    )
    turned = next((text for theirs, scale in options.items() if (text := _turned(theirs, scale))), "")
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
    named = cut_list(map(repr, options))
    also = f". And {unordered}" if unordered else ""
    return f"{none}, but {named} may: {listed} judges by it{turned}{more}{also}.{_UNTIL}"


def judge_notes(read: Read, judge: str, judged_by: Sequence[str]) -> list[str]:
    """Return a note on the metric that judges answers, and on other metrics that are kept.

    The list is empty if the log has no score of its own, or if it has a single score and no gold answers.

    Args:
        read: The run as it was read.
        judge: The metric by gold answers on which decisions are based; "" without gold answers.
        judged_by: The metrics that each measure the quality of answers.
    """
    names = [ours.removesuffix(_METRIC) for ours in read.columns if ours in METRICS or ours.endswith(_METRIC)]
    names = [*dict.fromkeys([*names, *(read.options.get("metrics") or {})])]
    others = [name for name in names if name != judge]
    if not judge and len(judged_by) > 1:
        options = " or ".join(f"`suffice decide --metric {name}`" for name in judged_by[:2])
        return [f"any of the log's own {cut_list(map(repr, judged_by))} may judge, so name it: {options}"]
    if not judge and judged_by and (parts := [name for name in names if name not in without_parts(names)]):
        return [
            f"the log's own {judged_by[0]!r} judges, and not its parts {cut_list(map(repr, parts))}: `suffice decide --metric {parts[0]}` does so"
        ]
    if not judge or not names:
        return []
    judges = f"the log's own {judge!r} judges" if judge in names else f"the gold answers judge ({title(judge)})"
    if not others:
        return [judges]
    are = "are" if others[1:] else "is"
    kept = f"the log's own {cut_list(map(repr, others))} {are} kept: `suffice decide --metric {others[0]}` judges by it"
    return [f"{judges}; {kept}"]


def second_judge_note(read: Read, judges: Sequence[str] = ()) -> list[str]:
    """Return a note on an unused column of scores: it could replace the current judge, which is the gold answers or another score.

    If the user named the current score, the column must have the same scale.

    Args:
        read: The run as it was read.
        judges: The log's scores that judge or may judge; empty if gold answers judge.
    """
    columns = read.facts.own.columns
    said = {*(read.options.get("metrics") or {}).values(), *(read.options.get("columns") or {}).values()}
    used = {name for name in used_columns(read) if last_name(name) not in OWN_SIGNALS} | said
    known = {name: own for name, own in columns.items() if name not in used and own.varying and may_judge(name)}
    scales = {name: scale_of(name, own) for name, own in known.items() if "self" not in _words(name)}
    usable = {
        name: scale
        for name, scale in scales.items()
        if scale is not None and (scale in _SECOND or (scale == _PERCENT and not _GRADING.isdisjoint(_words(name))))
    }
    named = read.options.get("metrics") or {}
    scales_of_judges = [
        f":{how}" if ".." in how else "" for _, _, how in (named.get(name, "").rpartition(":") for name in judges)
    ]
    alike = _alike({name: own for name, own in columns.items() if name not in used}, scales_of_judges)
    usable = alike if judges and named else alike | usable
    if not usable or not read.is_table:
        return []
    name, scale = next(iter(usable.items()))
    theirs, span = read.named(in_log(name)), (scale.removeprefix(":") or "0..1").replace("..", " to ")
    option = metric_option(theirs, scale)
    which = " or ".join(map(repr, judges))
    who = f"the log's own {which} judges, and not its" if which else "the gold answers judge, and not the log's own"
    return [
        f"{who} {theirs!r}, from {span}: to judge by it, {option}, then `suffice decide --metric {metric_of(theirs)}`"
    ]


def flag_notes(table: TableColumns, columns: Mapping[str, str], unused: Collection[str]) -> Iterator[str]:
    """Yield a note on a column with two values, such as 0 and 1 or Y and N, that varies between rounds.

    The note is used if answers are not judged otherwise.
    """
    ids = table.column(columns.get("question_id", ""))
    may = [name for name in unused if "answer" in columns or not is_error_count(name)]
    in_words = {
        name: order for name in may if (order := _order_of_two(table, name)) and not table.constant_in(name, ids)
    }
    for name in [name for name in may if table.judges_rounds(name, ids)][:1]:
        is_bad = is_error_count(name)
        yield (
            f"nothing says which answers are right: if {name!r} does, which is 0 or 1 in each round{' (0 is best)' * is_bad}, judge by it with "
            f"{metric_option(name, ':1..0' * is_bad)}"
        )
        return
    for name, order in [*in_words.items()][:1]:
        worst, best = order.split(",")
        yield (
            f"nothing says which answers are right: if {name!r} does, which is {best!r:.24} or {worst!r:.24} in each round, judge by it with "
            f"{metric_option(name, f':{order}')}"
        )


def other_judge_note(table: TableColumns, ids: Sequence[Any], guessed: str, unread: Collection[str]) -> Iterator[str]:
    """Yield a note on a 0/1 column that is named like a judgement, if another column was guessed as the score."""
    for name in unread:
        is_called = (is_judgement(name) or is_score_name(name) or may_judge(name)) and not is_error_count(name)
        if is_called and table.judges_rounds(name, ids) and table.column(name) != table.column(guessed):
            yield (
                f"{guessed!r} judges by a word in its name, and not {name!r}, which is 0 or 1 in each round: to judge by this, "
                f"{metric_option(name, '')}"
            )
            return


def _order_of_two(table: TableColumns, name: str) -> str:
    """Return the two words of a column as `N,Y`, the worse word first.

    Return "" if the column does not have exactly two words, or if their order is unknown.
    """
    said = {*islice(dict.fromkeys(str(value) for value in table.column(name) if value not in (None, "")), 3)}
    order = order_of_words(name, said) if len(said) == len(("worst", "best")) and not may_judge(name) else ""
    return "" if EQUAL in order else order


def scores_of(columns: Mapping[str, OwnColumn]) -> dict[str, str]:
    """Return the columns whose name and values suggest that they judge answers.

    Each comes with the end of the option that reads it, such as `:1..5`.  Columns of numbers come first; columns with words of
    unknown order are left out.
    """
    may = [name for name, own in columns.items() if own.varying and may_judge(name)]
    scales = {in_log(name): scale for name in may if (scale := scale_of(name, columns[name])) not in (None, TEMPLATE)}
    known = {name: str(scale) for name, scale in scales.items()} | _shares(
        {in_log(name): own for name, own in columns.items()}
    )
    return dict(sorted(known.items(), key=lambda pair: _lists_words(pair[1])))


def _alike(columns: Mapping[str, OwnColumn], scores: Collection[str]) -> dict[str, str]:
    """Return the columns whose numbers lie on the scale of a known score, each with the end of the option that reads it.

    The columns' names need not suggest a score, but must not mean anything else.  The numbers are shares or grades.  They vary in many
    questions and start at different values, so they are not counts.
    """
    found: dict[str, str] = {}
    for scale in dict.fromkeys(scores):
        match = _SPAN.fullmatch(scale or ":0..1")
        low, high = sorted(map(float, match.groups())) if match else (0.0, 0.0)
        for name, own in columns.items():
            theirs = in_log(name)
            is_grade = high <= _GRADES and all(map(_GRADE.fullmatch, own.values))
            is_other = says_other(theirs, but_for_signals=high > 1 and is_grade) or is_round_name(last_name(theirs))
            is_varied = 4 * own.varying >= own.known and len(own.first) > 1 and len(own.values) >= _FEWEST
            within = low <= own.low <= own.high <= high and 2 * own.high > low + high
            if within and is_varied and (is_grade or high == 1) and not is_other and not tells_loops_apart(theirs):
                found.setdefault(name, scale)
    return found


def _unordered(read: Read, columns: Mapping[str, OwnColumn]) -> str:
    """Describe the first column that may judge answers but has words in an unknown order; "" if there is none."""
    for name, own in columns.items():
        if own.varying and may_judge(name) and scale_of(name, own) == TEMPLATE:
            theirs = read.named(in_log(name))
            said = cut_list(
                [value if len(value) <= _LETTERS else f"{value[:_LETTERS]}..." for value in sorted(own.values)]
            )
            option = metric_option(theirs, TEMPLATE)
            return f"{theirs!r} may: {option} judges by its words in your order ({said}; {EQUAL} between equals)"
    return ""


def _lists_words(scale: str) -> bool:
    return "," in scale


def metric_option(theirs: str, scale: str) -> str:
    """Return the option that reads a column as a metric, with the column's own spelling.

    >>> metric_option("rougeL", ""), metric_option("2nd judge", ":1..5"), metric_option("tests.passed", "/tests.total")
    ('--metric-column rougeL=rougeL', "--metric-column 'score_2nd_judge=2nd judge:1..5'", '--metric-column tests_passed=tests.passed/tests.total')
    """
    return f"--metric-column {quoted(f'{metric_of(theirs)}={theirs}{scale}')}"


def metric_of(theirs: str) -> str:
    """Return the name of the metric that an option reads from a column.

    >>> metric_of("2nd judge")
    'score_2nd_judge'
    """
    own = re.sub(r"\W", "_", theirs if theirs.isidentifier() else plain_name(theirs))
    return metric_name(own if own.isidentifier() else f"score_{own}")


def metric_name(own: str) -> str:
    """Return the name of the metric that is read from a column: the column's name, or `NAME_score` if NAME already means something here.

    >>> metric_name("passed"), metric_name("tests_passed")
    ('passed_score', 'tests_passed')
    """
    return f"{own}_score" if own in SIGNALS or own in OWN_COLUMNS else own


def scale_of(name: str, own: OwnColumn) -> str | None:
    """Return the scale of a column's values, as the end of an option, such as `:1..5`.

    The scale from 0 to 1 is "".  For words of unknown order, return `TEMPLATE`.  Return None for values that are neither numbers
    nor a few words.
    """
    if len(own.values) <= 1:
        return None
    low, high = _span(own)
    if low <= high and is_error_count(name):
        return ":1..0" if 0 <= low <= high <= 1 else _failures_of(name, own)
    if low <= high:
        scale = next(iter(scales_with(low, high)), None)
        if scale == _SCALES[-1] and high <= _HALF:
            return ":0..HIGHEST"  # the log does not tell if 12 points or 20 are the highest
        return None if scale is None else "" if scale == (0, 1) else f":{scale[0]}..{scale[1]}"
    return None if is_error_count(name) else _scale_of_words(in_log(name), own)


def _failures_of(name: str, own: OwnColumn) -> str | None:
    """Return the scale of a column of exit codes or errors, in which 0 is best and all other values are equally bad.

    Exit codes, such as 0 and 101, may have a few values; counts of errors must have two.  Return None for any other column.
    """
    is_code = len(own.values) == len(("worst", "best")) or last_name(name).endswith(("code", "status"))
    if not is_code or "0" not in own.values or len(own.values) > _WORDS:
        return None
    return f":{EQUAL.join(sorted(own.values - {'0'}, key=float))},0"


def scales_with(low: float, high: float) -> list[tuple[int, int]]:
    """Return the usual scales that contain the numbers `low` to `high`, the narrowest scale first.

    >>> scales_with(2, 5)
    [(1, 5), (0, 5), (1, 6), (0, 10), (0, 100)]
    >>> scales_with(0, 2)[:2]
    [(0, 2), (0, 5)]
    """
    short = [scale for scale in _SHORT_SCALES if scale == (low, high)]
    return short + [scale for scale in _SCALES if scale[0] <= low and high <= scale[1]]


def _span(own: OwnColumn) -> tuple[float, float]:
    """Return the lowest and the highest number of a column; NaN if some values are not numbers.  Numbers may have decimal commas."""
    if own.low <= own.high:
        return own.low, own.high
    numbers = [written_number(value) for value in own.values if not says_missing(value)]
    known = [number for number in numbers if number is not None]
    return (min(known), max(known)) if 0 < len(known) == len(numbers) else (math.nan, math.nan)


def _scale_of_words(theirs: str, own: OwnColumn) -> str | None:
    if len(own.values) < MANY_VALUES and all(re.fullmatch(r"\d+(?:\.\d+)?\s*%", value) for value in own.values):
        return ""
    if len(own.values) > _WORDS or any("," in value or EQUAL in value for value in own.values):
        return None
    order = order_of_words(theirs, own.values)
    if order.lower() == "false,true":
        return ""  # truth values are 0 and 1, even as texts
    return f":{order}" if order else TEMPLATE


def _turned(theirs: str, scale: str) -> str:
    """Return a hint that offers the scale in reverse, if lower may be better; "" if the direction is known."""
    worst, dots, best = (scale.removeprefix(":") or "0..1").partition("..")
    if scale.startswith("/") or is_error_count(theirs) or not dots:
        return ""
    return f", or {theirs}:{best}..{worst} if lower is better"


_COUNT = re.compile(r"(?:n_|num_)?(?:passed|correct|solved|passing|successes)")
_TOTALS = ("total", "n_total", "num_total", "count")


def total_beside(name: str, names: Collection[str]) -> str:
    """Return the column with the total of a count, such as `tests.total` for `tests.passed`; "" if there is none.

    >>> total_beside("tests.passed", ["tests.passed", "tests.total"]), total_beside("passed", ["passed", "prompt_tokens"])
    ('tests.total', '')
    """
    match = re.search(_COUNT, name)
    totals = [f"{name[: match.start()]}{word}{name[match.end() :]}" for word in _TOTALS] if match else []
    return next((total for total in totals if total in names and total != name), "")


def _shares(columns: Mapping[str, OwnColumn]) -> dict[str, str]:
    """Return the counts that vary and have a total, each with the end of the option that reads the share.

    For example, `tests.passed` has the total `tests.total`, and the end is `/tests.total`.
    """
    totals = {name: total_beside(name, columns) for name, own in columns.items() if own.varying and own.high > 1}
    return {
        name: f"/{total}" for name, total in totals.items() if total and 0 <= columns[name].low <= columns[total].high
    }


def may_judge(name: str) -> bool:
    """Return whether a column's name suggests that it judges answers.

    >>> may_judge("judge_score"), may_judge("n_errors"), may_judge("judge_cost_usd")
    (True, True, False)
    """
    words = _words(name)
    return (not _JUDGING.isdisjoint(words) and not is_measure_of(name)) or is_error_count(name)


def _words(name: str) -> list[str]:
    """Return the words of a column's name, without numbers at their ends: `rouge` of `rouge1`."""
    return [word.rstrip("0123456789") or word for word in words_in(name)]
