"""Find texts about a question that contain its last answer, as solutions do, or that are contained in the answer.

Such texts may be the gold answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.tables import counted
from suffice.importers.answers.answer_or_gold import is_of_passages
from suffice.importers.checks.alarm import Doubt, Read
from suffice.importers.checks.gold_alarms import has_own_score
from suffice.importers.rounds.facts import Facts
from suffice.importers.words.choices import of_options
from suffice.importers.words.gold_names import may_be_golds
from suffice.importers.words.names import in_log
from suffice.policy.metrics import normalize_answer

_ENOUGH, _OFTEN, _MORE = 20, 0.3, 0.2
"""The fewest trajectories whose text contains the last answer, their least share, and by how much it is above that of other texts."""

_FAR = 0.382
"""How far another trajectory is, as a share of all: no half or third, at which runs of a question that were written in turn have it again."""

_FRAME = 60
"""The most characters of the same words around a gold answer."""

_LONGEST = 4_000
"""The most characters of a solution: a longer text contains short answers by chance."""


def count_contained(facts: Facts, table: pa.Table, names: Iterable[str], starts: npt.NDArray[np.int64]) -> None:
    """Count, for each column of texts, how many last answers are contained in the text, and how many contain it.

    Both are also counted with the text of another trajectory, for comparison.
    """
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
        for is_own, others in ((True, texts), (False, _others(texts))):
            pairs = [(said, text) for said, text in zip(last, others, strict=True) if said and text and said != text]
            facts.containing[name, is_own] += sum(said in text for said, text in pairs)
            facts.contained[name, is_own] += sum(text in said for said, text in pairs)
            if is_own:
                frames = Counter(said.replace(text, " ", 1) for said, text in pairs if text in said)
                facts.framed[name] += sum(n for frame, n in frames.items() if n > 1 and len(frame) <= _FRAME)


def _others(texts: Sequence[str]) -> list[str]:
    """Return, for each trajectory, the text of a distant trajectory, which seldom belongs to the same question.

    Runs of one question may be neighbouring rows or parts of a file.
    """
    far = int(_FAR * len(texts))
    return [*texts[far:], *texts[:far]]


def _words(text: str) -> str:
    """Return the words of a text with a blank at both ends, so that a search for it finds only whole words."""
    words = normalize_answer(text)
    return f" {words} " if words else ""


def _own_texts(read: Read, counted_in: Mapping[tuple[str, bool], int]) -> Iterator[str]:
    """Yield the columns whose texts match last answers of their own trajectory much more often than those of another trajectory.

    `counted_in` has the matches by column, under True for the own trajectory and under False for another one.  The columns must be
    constant within trajectories.  Nothing is yielded if answers are judged.
    """
    n, varying = read.facts.trajectories, {name for name, own in read.facts.own.columns.items() if own.varying}
    for name in [name for name, is_own in counted_in if is_own and name not in varying and not _is_judged(read)]:
        own, other = counted_in[name, True], counted_in[name, False]
        if own >= max(_ENOUGH, _OFTEN * n) and own - other >= _MORE * n:
            yield name


def golds_in_texts(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a text often contains the last answer of its own question, but seldom that of another question.

    There is no doubt if answers are judged.
    """
    for name in [*_own_texts(read, read.facts.containing)][:1]:
        trajectories = counted(read.facts.trajectories, "trajectory", "trajectories")
        sentence = (
            f"no column is read as the gold answer, but {name.removeprefix('imported_')!r}, which no round changes, contains the last answer of "
            f"{read.facts.containing[name, True]:,} of {trajectories}: if it has the gold answers, write them alone into a file with the "
            "questions' ids (--golds FILE)"
        )
        yield sentence, {}


def golds_in_answers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if answers often contain the text of a column that may be the gold answer.

    The column must be named like gold answers, or the same words must surround its text in many answers.  There is no doubt if
    answers are judged.
    """
    facts = read.facts
    trajectories = counted(facts.trajectories, "trajectory", "trajectories")
    for name in [name for name in _own_texts(read, facts.contained) if not facts.equalling[name]]:
        theirs, n = in_log(name), facts.contained[name, True]
        if may_be_golds(theirs) or 2 * facts.framed[name] > n:
            sentence = (
                f"no column is read as the gold answer, but the last answer of {n:,} of {trajectories} holds what {theirs!r} says: without "
                "gold answers, only agreement is judged"
            )
            yield sentence, of_options(f"{theirs!r} is the gold answer", columns={"golds": theirs})
            return


def _is_judged(read: Read) -> bool:
    """Return whether gold answers or a score of the log judge answers, or the user declared that the log has no gold answers."""
    is_said = read.options.get("log_golds") or read.options.get("golds") or not read.was_guessed("golds")
    return bool(is_said) or read.facts.without_golds < read.facts.trajectories or has_own_score(read.facts)
