"""Find the columns of answers that a log parsed from replies, and logs that repeat each reply once for every parser."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from suffice.common.tables import cut_list
from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.words.choices import Choices, in_options, of_each, of_options
from suffice.importers.words.names import in_log, last_name, words, words_in
from suffice.policy.comparisons import guess_normalizer
from suffice.policy.normalizers import match
from suffice.recordings.schema import is_confidence_name, is_measure_name

_PARSED = re.compile(
    r"(?:parsed|extracted)(?:_\w+)?|\w+_(?:parsed|extracted)|pred_(?:letter|choice|option|label|class|text)|predicted_(?:letter|choice|option)"
)
_MAY_BE = frozenset(
    words(
        "answer ans extracted parsed final chosen choice picked selected predicted prediction pred guess verdict conclusion letter "
        "option value hypothesis candidate generated"
    )
)
"""Words of names of columns that may have what was parsed from a reply."""

_OTHER = frozenset(words("score scores rating grade reward loss correct f1 em rank step round k model tool"))
"""Words of names of other columns, such as `final_score`."""

_MOSTLY, _HALF = 0.8, 0.5
_SHOWN = 3


def is_parsed_name(name: str) -> bool:
    """Return whether a column's name implies that its values were parsed from a reply.

    >>> is_parsed_name("parsed"), is_parsed_name("extracted_answer"), is_parsed_name("choice")
    (True, True, False)
    """
    return _PARSED.fullmatch(last_name(name)) is not None


def may_be_parsed_name(name: str) -> bool:
    """Return whether a word in a column's name suggests a value parsed from a reply, and no word suggests anything else.

    >>> [may_be_parsed_name(name) for name in ("short_answer", "verdict_text", "final", "final_score", "answer_length")]
    [True, True, True, False, False]
    """
    own = {*words_in(last_name(name))}
    return is_parsed_name(name) or (
        not _MAY_BE.isdisjoint(own)
        and _OTHER.isdisjoint(own)
        and not (is_measure_name(name) or is_confidence_name(last_name(name)))
    )


def are_in_replies(values: Sequence[Any], replies: Sequence[Any]) -> bool:
    """Return whether at least half of the rows have a value, and nearly all values occur as words in the reply of the same row.

    >>> are_in_replies(["A", "B"], ["The answer is (A).", "b"]), are_in_replies([True, False], ["True", "False"])
    (True, False)
    """
    pairs = [
        (str(own).strip().lower(), str(reply).lower())
        for own, reply in zip(values, replies, strict=True)
        if own not in (None, "") and reply not in (None, "") and not isinstance(own, bool)
    ]
    found = sum(re.search(rf"(?<!\w){re.escape(own)}(?!\w)", reply) is not None for own, reply in pairs)
    return len({own for own, _ in pairs}) > 1 and len(pairs) >= _HALF * len(values) and found >= _MOSTLY * len(pairs)


def with_columns(
    guess: tuple[str, Choices, str],
    parsed: Mapping[str, Sequence[tuple[Any, str, Sequence[str]]]],
    normalizer: str | None,
) -> tuple[tuple[str, Choices, str], Choices]:
    """Add parsed columns to a question about the position of answers.

    A column is added if its values occur in the replies.  The columns that agree best with the gold answers come first.

    Args:
        guess: The question, its choices, and the sure choice or "".
        parsed: For each column: its value, the reply and the gold answers of each row.
        normalizer: Decides which answers are the same; None = guessed.

    Returns:
        The extended guess, and the choices including the columns.  Without such a column: the unchanged guess, and no choices.
    """
    shares: dict[str, float] = {}
    for name, rows in parsed.items():
        values, replies, golds = zip(*rows, strict=True)
        if not are_in_replies(values, replies):
            continue
        known = [(str(own), right) for own, right in zip(values, golds, strict=True) if own not in (None, "") and right]
        form = normalizer or guess_normalizer([text for _, right in known for text in right], [own for own, _ in known])
        shares[name] = sum(match(own, right, form) for own, right in known) / max(len(rows), 1)
    if not shares:
        return guess, {}
    ranked = sorted(shares, key=lambda name: -shares[name])
    says = any(golds for _, _, golds in parsed[ranked[0]])
    said = "; ".join(
        f"the column {in_log(name)!r} has words of them"
        + (f", and {shares[name]:.0%} equal a gold answer" if says else "")
        for name in ranked[:_SHOWN]
    )
    choices: Choices = {}
    for name in ranked[:_SHOWN]:
        choices |= of_options(f"{in_log(name)!r} is the answer", columns={"answer": in_log(name)})
    return (f"{guess[0]}; {said}", guess[1], guess[2]), choices | in_options(guess[1], "answer_position")


_NEARLY_ALL = 0.95
_MOST_PARSES = 8
"""With more values, a column does not say how answers were parsed."""


def refuse_other_parses(
    table: TableColumns, columns: Mapping[str, str], used: Collection[str], *, has_replies: bool
) -> None:
    """Raise if the log repeats each record with the same replies but another label, as lm-eval does for each of its filters.

    The labels may be names of parsers that read different answers in one reply.

    Args:
        table: The rows, each with the number of its record.
        columns: The table's columns by this library's names.
        used: Columns whose meaning is known.
        has_replies: Whether the column of answers holds whole replies, from which the answers are read.
    """
    reply = columns.get("text") or (columns.get("answer") if has_replies else None)
    if reply is None or not {"question", "answer"} <= columns.keys():
        return
    replies: dict[int, list[str]] = {}
    questions: dict[int, str] = {}
    texts = (table.column(name) for name in (columns["question"], reply))
    for row, question, text in zip(table.rows, *texts, strict=True):
        replies.setdefault(row.number, []).append(str(text))
        questions[row.number] = str(question)
    for name in [name for name in table.names if name not in used and not last_name(name).endswith("id")]:
        values = table.column(name)
        known = [*dict.fromkeys(value for value in values if isinstance(value, str))]
        if not 1 < len(known) <= _MOST_PARSES:
            continue
        labels: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        for row, value in zip(table.rows, values, strict=True):
            labels.setdefault((questions[row.number], tuple(replies[row.number])), set()).add(str(value))
        if sum(len(own) == len(known) for own in labels.values()) >= _NEARLY_ALL * len(labels):
            raise UnsettledError(
                f"each reply is in the log with {len(known)} values of {name!r} ({cut_list(known)}), which may be ways to parse an answer "
                "from it: which answers are meant?",
                "options",
                of_each(name, known, "those with {!r} alone"),
            )
