"""Counts over all trajectories of a run, from which alarms are derived."""

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
    """Three signs whose mean is 0 if the order of a question's answers is arbitrary.

    They are the agreement of neighbours minus that of all pairs, the agreement of the last two answers minus that of the first
    two, and the score of the last answer minus that of the first.

    Attributes:
        sums: For each sign, the number of questions, the sum and the sum of squares.
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
        """True if at least one sign is too far from 0 for an arbitrary order."""
        return any(is_clear(*own) for own in self.sums)


def is_clear(n: float, total: float, squares: float) -> bool:
    """Return whether the mean of `n` differences is at least three standard errors from 0, given their sum and sum of squares."""
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
    """Counts over all trajectories of a run, from which alarms are derived.

    Attributes:
        normalizer: Decides which answers are the same.
        trajectories: Number of trajectories.
        clusters: Number of questions to which they belong.
        rounds: Number of rounds.
        answers: Rounds with an answer.
        characters: The length of all answers.
        sentences: Answers that are sentences, as they are long and end with a full stop or the like.
        errors: Answers that are the error message of a failed call.
        error: An example of such an answer.
        unanswered: Trajectories without any answer.
        silent_ends: Trajectories with answers whose last round has none.
        without_golds: Trajectories without gold answers.
        golds: Different gold answers, at most five.
        several: Trajectories with several answers.
        equal: Of these, those whose answers are all equal.
        beside: Of these in turn, those in which a reply or a retrieved text varies, by column.
        cased: Trajectories without gold answers in which two answers count as the same but differ in case.
        case: An example of two such answers.
        repeating: Trajectories with at least three answers.
        unrepeated: Of these, those whose answers are all different.
        right_once: Of these in turn, those with exactly one right answer.
        systems: Trajectories in which the model, system or file changes between rounds, by column.
        speakers: Trajectories with rounds of several speakers or kinds after the first round, by column.
        said_by: The number of rounds of each speaker or kind, by column.
        stopped: Trajectories by metric, length, and whether its first 1 is in the last round (None: in an earlier one).
        scored: Scored answers.
        lasts: Trajectories with gold answers and an answer in the last round.
        golden: Of these, those whose last answer is literally a gold answer.
        rows: Number of trajectories that have a round, by its index.
        answered: Of these, those with an answer in that round.
        kinds: For each label of the log, its values in rounds with an answer, and in rounds without one.
        graded: Trajectories whose first answer cannot be a grade, while a later one may be a grade or a low number.
        in_words: Of these in turn, those with a grade in words.
        grade: An example of such a grade.
        grade_kinds: For each label of the log, its values in rounds with a grade, and in other rounds.
        equalling: Trajectories in which a column equals some answer; for constant columns (the same in all rounds), by name.
        equalling_last: Of these, those in which the column equals the last answer.
        equalling_rows: Rounds in which a constant column equals the answer.
        listed: The constant columns that hold lists, such as alternatives.
        equalling_alone: For constant columns with few values: trajectories in which either their own value or that of another
        trajectory equals an answer, but not both; by name, and whether it is their own.
        voted: For constant columns: trajectories of at least three answers with one most frequent answer, by name, and whether the
        column equals that answer.
        several_values: Examples of a constant column's values, to see if there are several.
        containing: For constant columns: trajectories whose last answer is contained in the column's text, by name (True), or in the
        text of another trajectory (False).
        contained: The reverse: trajectories whose last answer contains the column's text.
        framed: Of these, those in which the same few words surround that text as in others.
        agreeing: Rounds in which a metric is 1 if and only if a constant column equals the answer, by column and metric.
        changing: For each label, its values in rounds whose answer differs from the one before, and in other rounds.
        last_kinds: For each label or flag of the log, its values in last rounds, and in other rounds.
        last_changes: Trajectories with answers in the last two rounds, by whether these differ.
        continued: Rounds whose text begins with the whole text of the round before and is longer.
        following: Rounds with a text whose previous round has a text, too.
        longest: By "answer" and "text": the greatest length, the number of trajectories that have one of this length, and the
        letters with which these end.
        orders: Trajectories with several different answers (""), and those whose answers rise or fall, as texts or as numbers.
        firsts: Hashes of the first answers of these trajectories.
        finals: Hashes of their last answers.
        changes: Trajectories with an answer in a round and in the one before, by round, and by whether the two differ.
        ends: For each metric: the number of trajectories of several rounds that have it in the first and last round, the sums of its
        values there, and the sum of squares of the difference.
        known: Rounds in which a metric is known, by its name.
        apart: Rounds in which a metric of the log is 1 although the answer equals no gold answer, by its name.
        confirmed: Rounds in which it is 1 and the answer equals a gold answer.
        contrary: Rounds in which it is below 1 although the answer equals a gold answer.
        spans: The lowest and highest value of a metric, by its name.
        graded_by: Metrics of the log with values strictly between 0 and 1.
        scales: For each confidence of the log: the rounds with a value between 0 and 1, those above 1, and its highest value.
        order: Signs that answers depend on the previous ones.
        growing: Trajectories whose prompts never get shorter, and are longer in the last round than in the first.
        stops: Trajectories that the loop ended itself, according to the log or the user.
        own: Counts of the log's columns that are kept unchanged.
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
    confirmed: Counter[str] = field(default_factory=Counter)
    contrary: Counter[str] = field(default_factory=Counter)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    graded_by: set[str] = field(default_factory=set)
    scales: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    order: OrderSigns = field(default_factory=OrderSigns)
    growing: int = 0
    stops: int = 0
    own: OwnColumns = field(default_factory=OwnColumns)

    def is_beyond_chance(self, name: str) -> bool:
        """Return whether a column with few values equals its own trajectory's answers more often than those of others."""
        own, other = (self.equalling_alone[name, is_own] for is_own in (True, False))
        return own - other >= _LIKELY * math.sqrt(own + other) > 0

    def is_last(self, name: str) -> bool:
        """Return whether a constant column may be the returned, last answer; a column of lists may be if it contains nearly all answers."""
        if name in self.listed:
            return self.equalling_rows[name] >= (1 - _HARDLY_ANY) * self.answers
        return self.equalling_last[name] >= (1 - _HARDLY_ANY) * self.trajectories

    def is_vote(self, name: str) -> bool:
        """Return whether a constant column nearly always equals an answer, and the most frequent one where answers differ."""
        is_always = self.equalling[name] >= (1 - _HARDLY_ANY) * self.trajectories
        return (
            name not in self.listed
            and is_always
            and _MANY <= self.voted[name, True] >= self.voted[name, False] / _HARDLY_ANY
        )
