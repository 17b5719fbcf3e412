"""Texts about a question that contain its last answer among other words, as solutions do: they may have the gold answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.tables import counted
from suffice.importers.answers.answer_or_gold import is_of_passages
from suffice.importers.checks.alarm import Doubt, Read
from suffice.importers.checks.gold_alarms import has_own_score
from suffice.importers.rounds.facts import Facts
from suffice.policy.metrics import normalize_answer

_ENOUGH, _OFTEN, _MORE = 20, 0.3, 0.2
"""The fewest trajectories whose text contains the last answer, their least share, and by how much it is above that of other texts."""

_LONGEST = 4_000
"""The most characters of a solution: a longer text contains short answers by chance."""


def count_contained(facts: Facts, table: pa.Table, names: Iterable[str], starts: npt.NDArray[np.int64]) -> None:
    """Count the trajectories whose own text in each of some columns, and that of the one before, contains their last answer among other words."""
    if "answer" not in table.column_names:
        return
    ends = np.append(starts[1:], len(table)) - 1
    last = [_words(text or "") for text in table.column("answer").take(pa.array(ends)).to_pylist()]
    for name in names:
        if is_of_passages(name.removeprefix("imported_")):
            continue
        column = table.column(name)
        firsts, lasts = (column.take(pa.array(rows)).to_pylist() for rows in (starts, ends))
        texts = [
            _words(one) if one and one == other and len(one) <= _LONGEST else ""
            for one, other in zip(firsts, lasts, strict=True)
        ]
        for is_own, others in ((True, texts), (False, [*texts[-1:], *texts[:-1]])):
            pairs = zip(last, others, strict=True)
            facts.containing[name, is_own] += sum(bool(said) and said != text and said in text for said, text in pairs)


def _words(text: str) -> str:
    """Return the words of a text with blanks around them, so that a text contains another only as whole words."""
    words = normalize_answer(text)
    return f" {words} " if words else ""


def golds_in_texts(read: Read) -> Iterator[Doubt]:
    """Nothing judges answers, and texts about a question often contain its last answer, and seldom that of another question."""
    facts, n = read.facts, read.facts.trajectories
    is_said = read.options.get("log_golds") or read.options.get("golds") or not read.was_guessed("golds")
    if is_said or facts.without_golds < n or has_own_score(facts):
        return
    varying = {name for name, own in facts.own.columns.items() if own.varying}
    for name in [name for name, is_own in facts.containing if is_own and name not in varying]:
        own, other = facts.containing[name, True], facts.containing[name, False]
        if own >= max(_ENOUGH, _OFTEN * n) and own - other >= _MORE * n:
            theirs = name.removeprefix("imported_")
            sentence = (
                f"no column is read as the gold answer, but {theirs!r}, which no round changes, contains the last answer of {own:,} of "
                f"{counted(n, 'trajectory', 'trajectories')}: if it has the gold answers, write them alone into a file with the questions' ids (--golds FILE)"
            )
            yield sentence, {}
            return
