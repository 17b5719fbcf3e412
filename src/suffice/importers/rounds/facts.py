"""Counts over all trajectories of a run, from which alarms follow."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from suffice.importers.rounds.own_columns import OwnColumns
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import MATCH
from suffice.policy.rounds import Floats

_LEAST = 3
_SURE = 3.0
"""Standard errors of a sign from which on it is one; of samples, one log in a hundred has that."""


@dataclass(slots=True)
class OrderSigns:
    """Three signs that would be 0 on average if the answers of a question were exchangeable.

    They are the agreement of neighbours less that of all pairs, the agreement of the last two answers less that of the first two,
    and the score of the last answer less that of the first.

    Attributes:
        sums: The number, the sum and the sum of squares of each sign over questions.
    """

    sums: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0, 0.0] for _ in range(3)])

    def add(self, keys: Sequence[Hashable], scores: Floats | None) -> None:
        """Count the answers of a question, and their scores."""
        if len(keys) >= _LEAST:
            same = [keys[i] == keys[i - 1] for i in range(1, len(keys))]
            pairs = sum(n * (n - 1) for n in map(keys.count, {*keys})) / (len(keys) * (len(keys) - 1))
            self._count(0, sum(same) / len(same) - pairs)
            self._count(1, float(same[-1]) - float(same[0]))
        if scores is not None and len(scores) > 1:
            self._count(2, float(scores[-1] - scores[0]))

    def _count(self, sign: int, value: float) -> None:
        if not math.isnan(value):
            for power in range(3):
                self.sums[sign][power] += value**power

    @property
    def are_clear(self) -> bool:
        """True if at least one sign is too far from 0 for exchangeable answers."""
        return any(is_clear(*own) for own in self.sums)


def is_clear(n: float, total: float, squares: float) -> bool:
    """Return whether the sum of differences, and that of their squares, put their mean at least three standard errors from 0."""
    spread = n * squares - total**2
    return n > 1 and total**2 * (n - 1) > _SURE**2 * spread


SCORES = frozenset({*METRICS, MATCH})
"""Metrics that compare answers with gold answers."""

SEVERAL = 4
"""Values that a column of gold answers has at least: with fewer, it often equals an answer by chance."""


_MANY, _HARDLY_ANY = 20, 0.02
_LIKELY = 2.33
"""Standard errors of a difference that one column in a hundred has by chance."""


@dataclass(slots=True)
class Facts:
    """Counts over all trajectories of a run, from which alarms follow.

    Attributes:
        normalizer: Decides which answers are the same.
        trajectories: Number of trajectories.
        clusters: Number of questions to which they belong.
        rounds: Number of rounds.
        answers: Rounds with an answer.
        characters: The length of all answers.
        sentences: Answers that are sentences.
        errors: Answers that are the message of a call that failed.
        error: Such an answer.
        unanswered: Trajectories without any answer.
        silent_ends: Trajectories with answers whose last round has none.
        without_golds: Trajectories without gold answers.
        golds: Different gold answers, at most five.
        several: Trajectories with several answers.
        equal: Of these, those whose answers are all equal.
        beside: Of these in turn, those in which a text varies that the model may have said, or that was retrieved, by column.
        cased: Trajectories without gold answers, two answers of which count as the same and differ in case alone.
        case: Two such answers.
        repeating: Trajectories with at least three answers.
        unrepeated: Of these, those whose answers are all different.
        right_once: Of these in turn, those of which exactly one answer is right.
        systems: Trajectories with another model, system or file in some round, by column.
        speakers: Trajectories whose rounds come from several speakers, or are of several kinds, after the first, by column.
        said_by: The speakers or kinds, by column.
        stopped: Trajectories by a metric, their length, and whether its first 1 is in their last round (None: in an earlier one).
        scored: Scored answers.
        lasts: Last answers of trajectories with gold answers.
        golden: Of these, those that are a gold answer, literally.
        rows: Trajectories that have a round, by its index.
        answered: Of these, those with an answer in it.
        kinds: Labels of the log by column: the values of rounds with an answer, and those of rounds without one.
        graded: Trajectories whose first answer cannot be a grade, and a later one is a grade or a low number.
        in_words: Of these in turn, those with a grade in words.
        grade: Such a grade.
        grade_kinds: Labels of the log by column: the values of rounds with a grade, and those of other rounds.
        equalling: Trajectories in which a column that is the same in all rounds equals an answer, by column.
        equalling_last: Of these, those in which it equals the last answer.
        equalling_rows: Answers that it equals.
        listed: Those of these columns with lists, such as alternatives.
        equalling_alone: Trajectories of which, of two values of such a column with few values, their own and that of another one, one
            alone equals an answer, by name, and whether that is their own.
        voted: Trajectories of at least three answers, of which one is more frequent than any other, by the name of such a column, and
            whether it equals that answer.
        several_values: Some values of such a column, to see whether it has several.
        containing: Trajectories whose text in a column that is the same in all rounds contains the last answer among other words, by name
            (True), and those of which the text of another one does (False).
        contained: The same the other way round: the last answer contains that text.
        framed: Of these, those with the same few words around it as others have.
        agreeing: Rounds in which a metric is 1 if and only if the answer is that of such a column, by column and metric.
        changing: The same of rounds with another answer than the one before, and of other rounds.
        last_kinds: Labels and flags of the log by column: the values of last rounds, and those of others.
        last_changes: Trajectories with an answer in the last round and in the one before, by whether the two differ.
        continued: Rounds whose text begins with the whole text of the round before and says more.
        following: Rounds with a text and one in the round before.
        longest: The length of the longest answer and of the longest text, the number of trajectories that have one of this length, and
            the letters in which these end.
        orders: Trajectories of several different answers (""), and those whose answers rise or fall, as texts or as numbers.
        firsts: Hashes of the first answers of these trajectories.
        finals: Hashes of their last answers.
        changes: Trajectories with an answer in a round and in the one before, by round, and whether the two differ.
        ends: Trajectories of several rounds with a metric in the first and in the last, its sums there, and that of the squares of its
            falls, by its name.
        known: Rounds in which a metric is known, by its name.
        apart: Rounds in which a metric of the log is 1 although the answer equals no gold answer, by its name.
        spans: The lowest and highest value of a metric, by its name.
        graded_by: Metrics of the log with values between 0 and 1.
        scales: Rounds in which a confidence of the log is between 0 and 1, those in which it is above 1, and its highest value, by name.
        order: Signs that answers follow one another.
        growing: Trajectories of several rounds whose prompts never get shorter, and are longer in the last round than in the first.
        stops: Trajectories that the loop ended itself, as the log or the user says.
        own: Counts of the log's columns that are kept as they are.
    """

    normalizer: str
    trajectories: int = 0
    clusters: int = 0
    rounds: int = 0
    answers: int = 0
    characters: int = 0
    sentences: int = 0
    errors: int = 0
    error: str = ""
    unanswered: int = 0
    silent_ends: int = 0
    without_golds: int = 0
    golds: set[str] = field(default_factory=set)
    several: int = 0
    equal: int = 0
    beside: Counter[str] = field(default_factory=Counter)
    cased: int = 0
    case: tuple[str, str] | None = None
    repeating: int = 0
    unrepeated: int = 0
    right_once: int = 0
    systems: Counter[str] = field(default_factory=Counter)
    speakers: Counter[str] = field(default_factory=Counter)
    said_by: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    stopped: Counter[tuple[str, int, bool | None]] = field(default_factory=Counter)
    scored: int = 0
    lasts: int = 0
    golden: int = 0
    rows: Counter[int] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    kinds: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    graded: int = 0
    in_words: int = 0
    grade: str = ""
    grade_kinds: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    equalling: Counter[str] = field(default_factory=Counter)
    equalling_last: Counter[str] = field(default_factory=Counter)
    equalling_rows: Counter[str] = field(default_factory=Counter)
    listed: set[str] = field(default_factory=set)
    equalling_alone: Counter[tuple[str, bool]] = field(default_factory=Counter)
    voted: Counter[tuple[str, bool]] = field(default_factory=Counter)
    several_values: dict[str, set[str]] = field(default_factory=dict)
    containing: Counter[tuple[str, bool]] = field(default_factory=Counter)
    contained: Counter[tuple[str, bool]] = field(default_factory=Counter)
    framed: Counter[str] = field(default_factory=Counter)
    agreeing: Counter[tuple[str, str]] = field(default_factory=Counter)
    changing: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    last_kinds: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)
    last_changes: Counter[bool] = field(default_factory=Counter)
    continued: int = 0
    following: int = 0
    longest: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    orders: Counter[str] = field(default_factory=Counter)
    firsts: Counter[int] = field(default_factory=Counter)
    finals: Counter[int] = field(default_factory=Counter)
    changes: Counter[tuple[int, bool]] = field(default_factory=Counter)
    ends: dict[str, tuple[int, float, float, float]] = field(default_factory=dict)
    known: Counter[str] = field(default_factory=Counter)
    apart: Counter[str] = field(default_factory=Counter)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    graded_by: set[str] = field(default_factory=set)
    scales: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    order: OrderSigns = field(default_factory=OrderSigns)
    growing: int = 0
    stops: int = 0
    own: OwnColumns = field(default_factory=OwnColumns)

    def is_beyond_chance(self, name: str) -> bool:
        """Return whether a column of few values equals answers of its own trajectories more often than those of others do."""
        own, other = (self.equalling_alone[name, is_own] for is_own in (True, False))
        return own - other >= _LIKELY * math.sqrt(own + other) > 0

    def is_last(self, name: str) -> bool:
        """Return whether a column that is the same in all rounds may be what was returned, the last answer; a list may, if it has all answers."""
        if name in self.listed:
            return self.equalling_rows[name] >= (1 - _HARDLY_ANY) * self.answers
        return self.equalling_last[name] >= (1 - _HARDLY_ANY) * self.trajectories

    def is_vote(self, name: str) -> bool:
        """Return whether a column that is the same in all rounds always equals an answer, and the most frequent one where answers differ."""
        is_always = self.equalling[name] >= (1 - _HARDLY_ANY) * self.trajectories
        return (
            name not in self.listed
            and is_always
            and _MANY <= self.voted[name, True] >= self.voted[name, False] / _HARDLY_ANY
        )
