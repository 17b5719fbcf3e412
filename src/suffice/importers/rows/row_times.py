"""Order the rows of a question by a column of times.

The user is asked if day and month may be swapped, or if times cannot be read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from suffice.common.tables import counted
from suffice.errors import DataError, UnsettledError
from suffice.importers.calls.objects import nanoseconds
from suffice.importers.files.records import Record, column_names
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.names import TIMES, last_name

DAY_FIRST, MONTH_FIRST, ASCENDING, NEWEST_FIRST = "day-first", "month-first", "ascending", "newest-first"
BY_TIME = "by-time"
"""How a column of times such as 1/9/2025 22:09, or of seconds since any moment, or one with equal times in a file whose last row is the
oldest, is read: as in ``round=COLUMN:day-first``."""

_SLASHED = re.compile(
    r"\s*(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})[,T\s]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?(?:\s?([ap])\.?m\.?)?\s*",
    re.IGNORECASE,
)
_TIME_OF_A_DAY = re.compile(r"(?=.*\d{1,2}:\d{2})(?=.*\d{4}).{8,40}")
_EPOCHS = (10**9, 10**12, 10**15, 10**18)
"""Seconds, milliseconds, microseconds and nanoseconds since 1970, of the year 2001; three times as many are in 2065."""

_START = 10**9
_FALLS = 5
"""With fewer, times fall along a file by chance as often."""

_NEARLY_ALL = 0.9

_MONTHS, _HALF_DAY, _CENTURY = 12, 12, 100

_AS_IN_FILE = of_columns({"round": ""}, "the rows of a question are in the order of the file")
_Ids = Sequence[tuple[str, ...]]


def order_by_time(rows: Sequence[Record], ids: _Ids, *, asks: bool = True) -> tuple[str, Sequence[int]]:
    """Return the column of times that orders the rows of each run, and the order; without such a column, "" and the file order.

    Rows of a run with equal times stay in file order; their order is reversed if the newest rows come first in the file.

    Args:
        rows: The rows.
        ids: The run of each row.
        asks: True to raise if the order is in doubt; otherwise columns in doubt or with equal times are skipped.

    Raises:
        UnsettledError: Day and month may be swapped; times have an unknown form; or all rows of each run have the same time,
            and the file may have the newest row first.
    """
    unread = ""
    for name in sorted(column_names(rows), key=lambda name: last_name(name) not in TIMES):
        values = [row.values.get(name) for row in rows]
        is_distinct = None not in values and len({*zip(ids, map(str, values), strict=True)}) == len(rows)
        may_tie = asks and not is_distinct and None not in values and last_name(name) in TIMES
        try:
            readings = _readings(rows, name, values) if is_distinct or may_tie else {}
        except (DataError, ValueError):
            are_times = all(isinstance(value, str) and _TIME_OF_A_DAY.fullmatch(value) for value in values)
            unread = unread or (name if are_times else "")
            continue
        if may_tie and ASCENDING in readings:
            continue  # how long a row took, in all likelihood
        if may_tie and any(_falls_but_ties(known, ids) for known in readings.values()):
            raise _doubt_of_ties(name)
        orders = {
            how: _in_order_of(known, ids)
            for how, known in readings.items()
            if len(pairs := {*zip(ids, known, strict=True)}) == len(rows) or (may_tie and len(pairs) > len({*ids}))
        }
        seen = {str(_by_run(order, ids)) for order in orders.values()}
        if len(seen) > 1 or (ASCENDING in orders and seen != {str(_by_run(range(len(rows)), ids))}):
            if asks:
                raise _doubt(name, values, orders)
        elif orders:
            return name, next(iter(orders.values()))
    if unread and asks and len({*ids}) < len(rows):
        value = next(row.values[unread] for row in rows)
        raise UnsettledError(
            f"{unread!r} may order the rows of a question, but {value!r:.40} is in no known form of a time (2025-01-31T22:09:00 is one)",
            "columns",
            _AS_IN_FILE,
        )
    return "", range(len(rows))


def refuse_other_order(name: str, order: Sequence[int], ids: _Ids) -> None:
    """Raise if times and file order disagree in some questions.

    Does not raise unless the rows of every question are together in the file.

    Raises:
        UnsettledError: They disagree, as if the clocks of two machines differ.
    """
    if n := falling_back(order, ids):
        raise UnsettledError(
            f"{name!r} goes back between the rows of {counted(n, 'question')}, which are together in the file, and rises in others: do times "
            "or the rows' places say which round comes first?",
            "columns",
            _AS_IN_FILE | of_columns({"round": f"{name}:{BY_TIME}"}, f"they are in the order of {name!r}"),
        )


def falling_back(order: Sequence[int], ids: _Ids) -> int:
    """Return the number of runs whose order by time differs from the order in the file.

    It is 0 if few or most runs differ, or if the rows of some run are not together.
    """
    runs = [places for places in _by_run(order, ids).values() if len(places) > 1]
    falls = sum(places != sorted(places) for places in runs)
    together = sum(max(places) - min(places) == len(places) - 1 for places in runs)
    return falls if _FALLS <= falls < len(runs) / 2 and together == len(runs) else 0


def _in_order_of(times: Sequence[float], ids: _Ids) -> list[int]:
    """Return the places of rows by time.

    Rows of a run with equal times stay in file order; their order is reversed if the newest rows come first in the file.
    """
    steps = [
        later - earlier
        for rows in _by_run(range(len(ids)), ids).values()
        for earlier, later in pairwise(map(times.__getitem__, rows))
    ]
    sign = -1 if max(steps, default=0.0) <= 0 > min(steps, default=0.0) else 1
    return sorted(range(len(times)), key=lambda place: (times[place], sign * place))


def _falls_but_ties(times: Sequence[float], ids: _Ids) -> bool:
    """Return whether times fall along the file, but all rows of a run have the same time, so that times do not order them."""
    steps = [later < earlier for earlier, later in pairwise(times) if later != earlier]
    is_falling = sum(steps) >= max(_FALLS, _NEARLY_ALL * len(steps))
    return is_falling and len({*zip(ids, times, strict=True)}) == len({*ids}) < len(times)


def _doubt_of_ties(name: str) -> UnsettledError:
    return UnsettledError(
        f"{name!r} is equal in the rows of a question, and falls along the file: the newest row may be the first, of a question as well",
        "columns",
        of_columns({"round": f"{name}:{NEWEST_FIRST}"}, "the last row of a question is its first round") | _AS_IN_FILE,
    )


def tied_note(rows: Sequence[Record], ids: _Ids, name: str) -> list[str]:
    """Return a note if rows of a run have the same time, so that their order is a guess."""
    counts = Counter((*own, str(row.values.get(name))) for own, row in zip(ids, rows, strict=True))
    tied = dict.fromkeys(own[:-1] for own, n in counts.items() if n > 1)
    if not tied:
        return []
    n = counted(len({*ids}), "trajectory", "trajectories")
    return [
        f"{name!r} is equal in rows of {len(tied):,} of {n} (such as {next(iter(tied))[0]!r:.20}): their order is guessed from the file"
    ]


def _by_run(order: Iterable[int], ids: _Ids) -> dict[tuple[str, ...], list[int]]:
    result: dict[tuple[str, ...], list[int]] = {}
    for place in order:
        result.setdefault(ids[place], []).append(place)
    return dict(sorted(result.items()))


def _doubt(name: str, values: Sequence[Any], orders: Iterable[str]) -> UnsettledError:
    if ASCENDING in orders:
        return UnsettledError(
            f"{name!r} may be how long a row took, or when it was written: the rows of a question are not in the order of its numbers, such as "
            f"{values[0]!r:.20}",
            "columns",
            _AS_IN_FILE | of_columns({"round": f"{name}:{ASCENDING}"}, "rows with lower numbers come first"),
        )
    choices: Choices = {}
    for how in orders:
        choices |= of_columns({"round": f"{name}:{how}"}, f"the {how.partition('-')[0]} comes first")
    return UnsettledError(
        f"{name!r} orders the rows of a question, and day and month may be exchanged in its times, such as {values[0]!r:.40}",
        "columns",
        choices,
    )


def _readings(rows: Sequence[Record], name: str, values: Sequence[Any]) -> dict[str, list[float]]:
    """Return the times of a column for each way to read them, such as with the day or the month first.

    Raises:
        ValueError: A value is not a time.  A number that may be something else is a time only if the column's name says so.
        DataError: A value looks like a time, but cannot be parsed.
    """
    matches = [_SLASHED.fullmatch(value) if isinstance(value, str) else None for value in values]
    if None not in matches:
        return {
            how: [_moment(str(value), how).timestamp() * 1e9 for value in values]
            for how in _ways([*filter(None, matches)])
        }
    is_named = last_name(name) in TIMES
    known = [_time(value, row.where, is_named=is_named) for value, row in zip(values, rows, strict=True)]
    may_be_spans = last_name(name) == "time" and not all(isinstance(value, str) or _is_epoch(value) for value in values)
    return {ASCENDING if may_be_spans else "": known}


def _ways(matches: Sequence[re.Match[str]]) -> list[str]:
    """Return the possible orders of day and month.

    Dots, as in `1.9.2025`, imply that the day is first; AM and PM imply that the month is.
    """
    ways = [
        how for how, group in ((DAY_FIRST, 3), (MONTH_FIRST, 1)) if all(int(own[group]) <= _MONTHS for own in matches)
    ]
    if len(ways) > 1 and all(own[2] == "." for own in matches):
        return [DAY_FIRST]
    if len(ways) > 1 and any(own[8] for own in matches):
        return [MONTH_FIRST]
    return ways


def _moment(text: str, how: str) -> datetime:
    match = _SLASHED.fullmatch(text)
    if match is None:
        raise ValueError(text)
    day, month = (match[1], match[3]) if how == DAY_FIRST else (match[3], match[1])
    year, hour = int(match[4]), int(match[5])
    if match[8]:
        hour = hour % _HALF_DAY + (_HALF_DAY if match[8].lower() == "p" else 0)
    year += 2000 if year < _CENTURY else 0
    return datetime(year, int(month), int(day), hour, int(match[6]), int(match[7] or 0), tzinfo=UTC)


def times_as_said(rows: Sequence[Record], name: str, how: str) -> list[str]:
    """Return the times of a column in ISO 8601, read in the way that the user gives, such as `day-first`.

    >>> times_as_said([Record("", "", 1, {"at": "1/9/2025 10:09 PM"})], "at", "day-first")
    ['2025-09-01T22:09:00']
    """
    if how in (NEWEST_FIRST, BY_TIME):
        return _oldest_last(rows, name, step=how == NEWEST_FIRST)
    result = []
    for row in rows:
        value = row.values.get(name)
        try:
            moment = (
                datetime.fromtimestamp(_START + float(str(value)), UTC)
                if how == ASCENDING
                else _moment(str(value), how)
            )
            result.append(moment.replace(tzinfo=None).isoformat())
        except (ValueError, OverflowError, OSError) as error:
            raise DataError(f"{row.where}: {name} is {row.values.get(name)!r:.40}; expected a time ({how})") from error
    return result


def _oldest_last(rows: Sequence[Record], name: str, *, step: bool) -> list[str]:
    """Return a column's times in ISO 8601.

    With `step`, for logs with the newest row first, each row is made a microsecond older than the previous one.
    """
    try:
        times, *_ = _readings(rows, name, [row.values.get(name) for row in rows]).values()
    except ValueError as error:
        raise DataError(f"{name!r} is not a column of times, such as 2025-01-31T22:09:00: {error}") from error
    moments = [datetime.fromtimestamp(time // 1e9 if step else time / 1e9, UTC).replace(tzinfo=None) for time in times]
    earlier = [timedelta(microseconds=row.number if step else 0) for row in rows]
    return [(moment - less).isoformat() for moment, less in zip(moments, earlier, strict=True)]


def _time(value: Any, where: str, *, is_named: bool) -> float:
    """Return a time as a sortable number of nanoseconds.

    Raises:
        ValueError: The value is not a time.  A number that may be something else is a time only if `is_named`.
    """
    is_time = is_named or (":" in value if isinstance(value, str) else _is_epoch(value))
    time = nanoseconds(_in_iso(value), where) if is_time else None
    if time is None:
        raise ValueError(value)
    return time


def _in_iso(value: Any) -> Any:
    """Convert a time as written by BigQuery or Kibana to ISO 8601; return other values unchanged.

    >>> _in_iso("2026-03-02 08:05:00.25 UTC"), _in_iso("Mar 2, 2026 @ 17:50:21.000")
    ('2026-03-02 08:05:00.25+00:00', '2026-03-02T17:50:21')
    """
    if isinstance(value, str) and "@" in value:
        with suppress(ValueError):
            return datetime.strptime(value, "%b %d, %Y @ %H:%M:%S.%f").isoformat()  # noqa: DTZ007 - UTC, as other times
    return re.sub(r"(?<=\d)\s+(?:UTC|GMT)$", "+00:00", value) if isinstance(value, str) else value


def _is_epoch(value: Any) -> bool:
    return isinstance(value, int | float) and any(low <= value < 3 * low for low in _EPOCHS)
