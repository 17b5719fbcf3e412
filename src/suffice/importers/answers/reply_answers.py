"""Read answers inside replies as live loops do, and ask for the position of the answers if a log has whole replies.

A position is chosen on half of the questions and tested on the other half.  No answer is extracted until the user confirms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from suffice.common.files import quoted
from suffice.errors import DataError, UnsettledError
from suffice.evaluation.statistics.units import hash_places
from suffice.importers.answers.parsed_columns import with_columns
from suffice.importers.columns.grid import only_text
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.words.answer_places import candidates, is_answer_field, is_mark, marks_in
from suffice.importers.words.choices import Choices, in_options
from suffice.importers.words.names import GOLDS, IDS
from suffice.policy.comparisons import guess_normalizer
from suffice.policy.metrics import normalize_answer
from suffice.policy.normalizers import DEFAULT_NORMALIZER, match, normalizer_of
from suffice.policy.session.replies import located_in
from suffice.policy.signals.position import AnswerPosition
from suffice.policy.signals.text import strip_thinking

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("question_id", "cluster", "answer", "text", "golds")
"""The columns of a recording by which a position is guessed."""

WHOLE = AnswerPosition("whole")

SAMPLE = 400
"""Number of questions, the first ones, from which a position is guessed."""

_LONGER, _LONG = 4, 16
"""By how many characters replies must be longer than gold answers on average; their least length without gold answers."""

_ENOUGH = 8
"""The least number of questions in each half."""

_GAIN, _HELD = 0.1, 0.05
"""By how much a position must agree better with gold answers than whole replies do, in the half that chose it and in the other."""

_PROSE = 40
"""By how many characters replies are longer than gold answers if they are sentences, so that a gold answer which a normalizer reads in
them is in a reply, and not a number with its unit."""

HARDLY_EVER, OFTEN = 0.05, 0.3
"""The most replies that are a gold answer, and the fewest that contain one, if their answers are at no usual position."""

_READ, _STEADY, _CHANGING = 0.9, 0.3, 0.3
"""Without gold answers: the least share of replies with an answer, the least gain in agreement between rounds, and the most that
whole replies may agree."""

_MISSING = 0.03
"""The most replies without a mark of answers that is read without a question."""

_SHOWN = 3
_LONG_NAME = 60
_OPTIONS = 10
"""With more gold answers, none is right by chance."""


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies to one question in order, and its gold answers."""

    cluster: str
    texts: list[str]
    golds: Sequence[str]


def read_at(columns: RoundColumns, position: AnswerPosition) -> Counter[str]:
    """Read the answers of rounds at a position of their replies; return the numbers of replies and of answers.

    In a round without text, the answer column holds the reply; it is stored as the round's text.
    """
    from suffice.loops.models.prompted import unless_cut

    texts, answers, reasons = (columns.texts[name] for name in ("text", "answer", "finish_reason"))
    replies = [text or answer for text, answer in zip(texts, answers, strict=True)]
    located = [
        item for _, own in columns.by_question() for item in located_in([text or "" for text in replies[own]], position)
    ]
    columns.texts["text"] = replies
    columns.texts["answer"] = [
        unless_cut(item, text or "", position, reason).answer
        for item, text, reason in zip(located, replies, reasons, strict=True)
    ]
    columns.has_answers = True
    whole = position.is_default and [
        text
        for text, own in zip(replies, columns.texts["answer"], strict=True)
        if text and own == position.whole.locate(text).answer
    ]
    n_whole = sum(position.locate(text).answer is None for text in whole or ())
    return counts_of(replies, columns.texts["answer"]) + Counter(whole=n_whole)


def counts_of(replies: Iterable[str | None], answers: Iterable[str | None]) -> Counter[str]:
    """Count the texts in `replies` and in `answers` that are not empty."""
    return Counter(replies=sum(map(bool, replies)), answers=sum(map(bool, answers)))


def position_note(position: AnswerPosition, counts: Mapping[str, int]) -> str:
    """Return a note on how many replies have no answer at a position; raise if all replies have none."""
    if not counts["answers"]:
        raise DataError(f"no reply has an answer at {position}: name another answer position, or 'whole'")
    missing = counts["replies"] - counts["answers"]
    if not missing + counts["whole"]:
        return f"answers are read at '{position}' in all {counts['replies']:,} replies"
    whole = f", and {counts['whole']:,} before the first that has one are read whole" if counts["whole"] else ""
    return (
        f"answers are read at '{position}': {missing + counts['whole']:,} of {counts['replies']:,} replies "
        f"({(missing + counts['whole']) / counts['replies']:.1%}) have none there: {missing:,} are rounds without an answer{whole}"
    )


def refuse_whole_replies(
    parts: Iterable[pa.Table], options: Mapping[str, Any], scores: Iterable[str] = (), columns: Collection[str] = ()
) -> None:
    """Raise if the column of answers seems to hold whole replies; ask for the answers' position in them, or for another column.

    Texts are whole replies if their parts at some position equal gold answers clearly more often than the whole texts do.
    Without gold answers, consecutive rounds are compared.  Texts are also whole replies if they often contain, but
    hardly ever equal, a gold answer.  Nothing is raised if the user names a position.

    Args:
        parts: The recording's tables, with at least the columns in `COLUMNS` and `columns`.
        options: The user's options for the import.
        scores: The log's own graded scores; the first one is offered as the judge of whole replies in place of gold answers.
        columns: Columns that the log may have parsed from its replies.

    Raises:
        UnsettledError: Answers are whole replies.  A position is offered only if it is better in both halves of the questions.
    """
    if "answer_position" in options:
        return
    questions: dict[str, Replies] = {}
    parsed: dict[str, list[tuple[Any, str, Sequence[str]]]] = {}
    n_parsed = n = 0
    for part in parts:
        others = {name: part.column(name).to_pylist() for name in columns if name in part.column_names}
        for place, (name, cluster, answer, text, golds) in enumerate(
            zip(*(part.column(name).to_pylist() for name in COLUMNS), strict=True)
        ):
            if name not in questions and len(questions) == SAMPLE:
                break
            own = questions.setdefault(name, Replies(cluster, [], golds or ()))
            own.texts.extend([answer] if answer else [])
            for other, values in others.items():
                parsed.setdefault(other, []).append((values[place], answer or "", golds or ()))
            n += 1
            n_parsed += bool(text) and answer not in (text, strip_thinking(text)[1].strip())
        if len(questions) == SAMPLE:
            break
    guess = None if 2 * n_parsed > n else _guess_of([*questions.values()], options.get("normalizer"))
    if guess is None:
        return
    guess, by_column = with_columns(guess, parsed, options.get("normalizer"))
    if by_column:
        raise UnsettledError(guess[0], "options", by_column)
    has_golds = any(item.golds for item in questions.values()) and "golds" not in options
    score = next(iter(scores), "") if has_golds else ""
    if score:
        judged = {"answer_position": str(WHOLE), "columns": {"golds": ""}}
        judged_by = f"the whole reply is the answer, and the log's own {score!r} judges it, not the gold answer"
        raise UnsettledError(
            guess[0],
            "options",
            {
                **in_options(guess[1], "answer_position"),
                f"--answer-position {WHOLE} --column golds=": (judged, judged_by),
            },
            guess[2],
        )
    raise UnsettledError(guess[0], "answer_position", guess[1], guess[2])


def with_position(error: UnsettledError, rows: Sequence[Record]) -> UnsettledError:
    """Add the position of the answers to each option that names a column of whole replies as the answers."""
    table = TableColumns(rows)
    ids = [str(value) for name in table.by_name(IDS)[:1] for value in table.column(name)]
    choices = {}
    for option, (value, meaning) in error.choices.items():
        words = ""
        if isinstance(value, Mapping) and "answer" in value and ids:
            golds = value.get("golds") or next(iter(table.by_name(GOLDS)), "")
            guess = _guess_of(_replies_of(table, ids, value["answer"], golds), None)
            words = f" {next(iter(guess[1]))}" if guess else ""
        choices[option + words] = (value, meaning)
    value, _ = choices.get(error.confirmed, ({}, ""))
    is_answer = isinstance(value, Mapping) and "answer" in value  # a whole answer: no position was added above
    return UnsettledError(error.question, error.parameter, choices, error.confirmed if is_answer else "")


def _replies_of(table: TableColumns, ids: Sequence[str], answer: str, golds: str) -> list[Replies]:
    questions: dict[str, tuple[list[str], list[str]]] = {}
    for name, reply, gold in zip(ids, table.column(answer), table.column(golds), strict=True):
        texts, known = questions.setdefault(name, ([], []))
        texts += [str(only_text(reply))] if reply is not None else []
        known += [str(gold)] if gold is not None and not known else []
    return [Replies(name, texts, known) for name, (texts, known) in [*questions.items()][:SAMPLE]]


def _guess_of(questions: list[Replies], normalizer: str | None) -> tuple[str, Choices, str] | None:
    """Return a question about the answers' position in replies, its choices, and the sure choice or ""; None if replies are answers."""
    unknown = [item.texts for item in questions if not item.golds and len(item.texts) > 1]
    return _compared(questions, normalizer) or _marked([text for own in unknown for text in own])


def _marked(texts: Sequence[str]) -> tuple[str, Choices, str] | None:
    """Return a question about a mark (such as a tag) in nearly all texts, its choices, and "" (no choice is sure); None without a mark."""
    for position in marks_in(texts) if len(texts) >= _ENOUGH else []:
        answers = [found.answer for found in located_in(texts, position)]
        said = {answer for answer in answers if answer}
        if len(answers) - answers.count(None) >= _READ * len(answers) and len(said) > 1:
            question = (
                f"the answers may be inside replies: {1 - answers.count(None) / len(answers):.0%} of them have one at '{position}', such as "
                f"{next(filter(None, answers))!r:.40}"
            )
            return question, _choices([position]), ""
    return None


def _choices(positions: Sequence[AnswerPosition]) -> Choices:
    return {
        **{f"--answer-position {quoted(str(own))}": (str(own), _meaning(own)) for own in positions},
        f"--answer-position {WHOLE}": (str(WHOLE), "the whole reply is the answer"),
    }


def _compared(questions: list[Replies], normalizer: str | None) -> tuple[str, Choices, str] | None:
    """Return a question about a position where answers agree clearly better than whole replies, its choices, and the sure choice or "".

    Return None without such a position.  Answers agree with gold answers or, without these, with the answer of the round before.
    """
    has_golds = sum(bool(item.golds) for item in questions) >= 2 * _ENOUGH
    questions = [item for item in questions if (item.golds if has_golds else len(item.texts) > 1)]
    places = hash_places([item.cluster for item in questions], salt="answer position:")
    is_first = [*(places < 1 / 2)]
    halves = [[item for item, own in zip(questions, is_first, strict=True) if own == side] for side in (True, False)]
    if min(map(len, halves)) < _ENOUGH:
        return None
    golds = [text for item in questions for text in item.golds]
    texts = [text for item in questions for text in item.texts]
    known = [(text, item.golds) for item in halves[0] for text in item.texts]
    framed = framed_position([pair for item in halves[0] for pair in _known_answers(item, has_golds=has_golds)])
    is_short = _length(texts) <= (_length(golds) + _LONGER if has_golds else _LONG)
    if is_short and framed is None:
        return None
    normalizer = normalizer or guess_normalizer(golds, texts)
    is_prose = has_golds and _length(texts) > _length(golds) + _PROSE
    compare = _Comparison(DEFAULT_NORMALIZER if normalizer == "math" else normalizer, has_golds, is_prose)
    before = [compare.whole(half) for half in halves]
    if not has_golds and before[0] > _CHANGING and framed is None:
        return None
    chance = max(Counter(golds).values(), default=0) / max(len(golds), 1) if len({*golds}) <= _OPTIONS else 0.0
    ranked = []
    positions = [*([] if is_short else candidates(known, has_golds=has_golds)), *([framed] if framed else [])]
    for place, position in enumerate(positions):
        read, agreed = compare.at(position, halves[0])
        if agreed - before[0] >= (_GAIN if has_golds else _STEADY) and agreed > chance and (has_golds or read >= _READ):
            ranked.append((-agreed if has_golds else 0, -compare.written(position, halves[0]), place, position))
    best = [position for *_, position in sorted(ranked)]
    position = best[0] if best else WHOLE
    read, agreed = compare.at(position, halves[1])
    if not best or agreed - before[1] < (_HELD if has_golds else _STEADY):
        return _without_position(questions, compare) if has_golds and not is_short else None
    what = "equal a gold answer" if has_golds else "equal the answer of the round before"
    example = next(item.answer for own in halves[1] for item in located_in(own.texts, position) if item.answer)
    question = (
        f"the answers may be inside replies: read whole, {before[1]:.0%} of them {what}. At '{position}', chosen on half of the questions, "
        f"{read:.0%} of the replies to the others have an answer, such as {example!r:.40}, and {agreed:.0%} {what}"
    )
    shown = (
        best[:1] if has_golds else [*dict.fromkeys([position, *(own for own in best if own.kind == "json")])][:_SHOWN]
    )
    choices = _choices(shown)
    is_sure = max(before) <= HARDLY_EVER and agreed >= OFTEN
    # without gold answers, only a field named like an answer is beyond doubt
    is_sure = is_sure and (compare.is_sure(best, halves[1]) if has_golds else read == 1 and is_answer_field(position))
    return question, choices, next(iter(choices)) if is_sure else ""


def _known_answers(item: Replies, *, has_golds: bool) -> list[tuple[str, Sequence[str]]]:
    """Pair each reply with its gold answers or, without `has_golds`, with the shorter replies to its question, which may be answers."""
    if has_golds:
        return [(text, item.golds) for text in item.texts]
    pairs = [(text, [own for own in item.texts if len(own) < len(text)]) for text in item.texts]
    return [pair for pair in pairs if pair[1]]


def _meaning(position: AnswerPosition) -> str:
    return f"the answer is at {position} of a reply" if len(str(position)) <= _LONG_NAME else "the answer is there"


def _without_position(questions: Sequence[Replies], compare: _Comparison) -> tuple[str, Choices, str] | None:
    """Return a question if no position fits, and replies often contain a gold answer but hardly ever equal one; else None."""
    right = compare.whole(questions)
    pairs = [(_words(text), [*map(_words, item.golds)]) for item in questions for text in item.texts]
    containing = sum(any(gold and gold in text for gold in golds) for text, golds in pairs) / max(len(pairs), 1)
    if right > HARDLY_EVER or containing < OFTEN:
        return None
    question = (
        f"{right:.0%} of the answers equal a gold answer, but {containing:.0%} contain one: they are whole replies, and the answers are at "
        "no usual position in them (--answer-position regex:EXPRESSION reads an unusual one)"
    )
    return question, _choices(()), ""


def _words(text: str) -> str:
    """Return the words of a text with a blank at both ends, so that a search for it finds only whole words."""
    words = normalize_answer(text) or text.strip().lower()
    return f" {words} " if words else ""


def _length(texts: Sequence[str]) -> float:
    return sum(map(len, texts)) / max(len(texts), 1)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison of answers with gold answers or, without them, with the answers of the round before.

    Attributes:
        normalizer: Decides which answers are the same.
        has_golds: Whether to compare with gold answers.
        is_prose: Whether replies are sentences.  A whole sentence is not an answer, even if a normalizer reads a number in it.
    """

    normalizer: str
    has_golds: bool
    is_prose: bool

    def whole(self, questions: Sequence[Replies]) -> float:
        own = replace(self, normalizer=DEFAULT_NORMALIZER) if self.is_prose else self
        return sum(own._share(item, item.texts) for item in questions) / len(questions)  # noqa: SLF001 - its own

    def at(self, position: AnswerPosition, questions: Sequence[Replies]) -> tuple[float, float]:
        """Return the share of replies with an answer at a position, and the share of these answers that agree (see the class).

        Without gold answers, both shares are 0 if the same answer is read from every reply.
        """
        answers = [[found.answer for found in located_in(item.texts, position)] for item in questions]
        if self.is_prose:
            pairs = [zip(own, item.texts, strict=True) for own, item in zip(answers, questions, strict=True)]
            answers = [[None if answer == text.strip() else answer for answer, text in own] for own in pairs]
        n = sum(map(len, answers))
        if not self.has_golds and len({answer for own in answers for answer in own}) == 1:
            return 0.0, 0.0
        read = sum(answer is not None for own in answers for answer in own) / max(n, 1)
        agreed = sum(self._share(item, own) for item, own in zip(questions, answers, strict=True)) / len(questions)
        return read, agreed

    def is_sure(self, positions: Sequence[AnswerPosition], questions: Sequence[Replies]) -> bool:
        """Return whether the first of some positions is beyond doubt.

        It must be a usual mark in nearly all replies, followed only by a short answer.  Other positions that agree as often
        must yield the same answers as the first.
        """
        first, *others = positions
        texts, key_of = [text for item in questions for text in item.texts], normalizer_of(self.normalizer)
        answers = [found.answer or "" for found in located_in(texts, first)]
        golds = [text for item in questions for text in item.golds]
        if (
            not is_mark(first)
            or answers.count("") > _MISSING * len(answers)
            or _length(answers) > _length(golds) + _LONGER
        ):
            return False
        least = self.at(first, questions)[1] - _HELD
        for other in others:
            if self.at(other, questions)[1] >= least:
                pairs = zip(answers, located_in(texts, other), strict=True)
                differ = sum(key_of(own) != key_of(found.answer or "") for own, found in pairs)
                if differ > _HELD * len(texts):
                    return False
        return True

    def written(self, position: AnswerPosition, questions: Sequence[Replies]) -> int:
        """Return the number of answers at a position that equal a gold answer character by character."""
        pairs = [(found.answer, item.golds) for item in questions for found in located_in(item.texts, position)]
        return sum(answer in golds for answer, golds in pairs)

    def _share(self, item: Replies, answers: Sequence[str | None]) -> float:
        if self.has_golds:
            hits = [match(answer, item.golds, self.normalizer) for answer in answers]
        else:
            key_of = normalizer_of(self.normalizer)
            keys = [None if answer is None else key_of(answer) for answer in answers]
            hits = [float(one is not None and one == other) for one, other in pairwise(keys)]
        return sum(hits) / max(len(hits), 1)


_SHARE, _LEAST = 0.03, 3
"""The least share and number of replies with the same words before or after a gold answer."""

_MOST, _LONGEST = 4, 60
"""The most such words that an expression has, and their most characters."""

_BEFORE = re.compile(r"\S+ .*\S[ :]+|.*: *")
_INSIDE = re.compile(r"[A-Za-z]{2}|\d{2}")
"""Two letters or digits between which no answer begins or ends: 5 is no part of 51."""

_AFTER = re.compile(r"[.!,;*\"')]+|.*\w+ \w+ \w+.*")
"""What makes a sentence of an answer; a unit or a country after one does not."""


def framed_position(pairs: Sequence[tuple[str, Sequence[str]]]) -> AnswerPosition | None:
    r"""Return a regular expression for answers inside a usual frame of words, such as "It is ..."; None if no reply has such a frame.

    >>> pairs = [("Oslo", ["Oslo"]), ("It is Rome.", ["Rome"])] * 3
    >>> str(framed_position(pairs))
    'regex:^(?:It is )?((?s:.+?))(?:\\.)?$'
    """
    before, after = Counter[str](), Counter[str]()
    for text, golds in pairs:
        place, gold = max((text.rfind(gold), gold) for gold in golds)
        head, tail = text[:place], text[place + len(gold) :]
        is_part = _INSIDE.fullmatch(f"{head[-1:]}{gold[:1]}") or _INSIDE.fullmatch(f"{gold[-1:]}{tail[:1]}")
        if place >= 0 and "\n" not in text and not is_part:
            before[head] += 1
            after[tail] += 1
    least = max(_LEAST, _SHARE * len(pairs))
    heads, tails = (
        [text for text, n in own.most_common() if n >= least and len(text) <= _LONGEST and form.fullmatch(text)]
        for own, form in ((before, _BEFORE), (after, _AFTER))
    )
    if not (heads or tails):
        return None
    return AnswerPosition("regex", f"^{_optional(heads[:_MOST])}((?s:.+?)){_optional(tails[:_MOST])}$")


def _optional(texts: Iterable[str]) -> str:
    alternatives = "|".join(re.escape(text).replace("\\ ", " ") for text in sorted(texts, key=len, reverse=True))
    return f"(?:{alternatives})?" if alternatives else ""
