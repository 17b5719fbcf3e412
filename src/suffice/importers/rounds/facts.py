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

    The signs are:

    - the share of neighbouring answers that are equal, minus the share of all pairs that are equal
    - 1 if the last two answers are equal, minus 1 if the first two are
    - the score of the last answer, minus the score of the first one

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
        """True if at least one sign is further from 0 than chance explains."""
        return any(is_clear(*own) for own in self.sums)


def is_clear(n: float, total: float, squares: float) -> bool:
    """Return whether the mean of `n` differences is at least three standard errors from 0.

    Args:
        n: The number of differences.
        total: Their sum.
        squares: The sum of their squares.
    """
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
        beside: For each column of replies or retrieved texts: trajectories in which it varies although all answers are equal.
        cased: Trajectories without gold answers in which two answers count as the same but differ in case.
        case: An example of two such answers.
        repeating: Trajectories with at least three answers.
        unrepeated: Of these, those whose answers are all different.
        right_once: Of the unrepeated ones, those with exactly one right answer.
        systems: Trajectories in which the model, system or file changes between rounds, by column.
        speakers: For each column of speakers or kinds: trajectories in which it has several values after the first round.
        said_by: For each such column: the number of rounds of each speaker or kind.
        stopped: The number of trajectories by metric, length, and place of the metric's first 1: True for the last round, None for
        an earlier round, False if there is none.
        scored: Scored answers.
        lasts: Trajectories with gold answers and an answer in the last round.
        golden: Of these, those whose last answer is literally a gold answer.
        rows: For each round index: the number of trajectories that have this round.
        answered: Of these, those with an answer in that round.
        kinds: For each label of the log, its values in rounds with an answer, and in rounds without one.
        graded: Trajectories whose first answer cannot be a grade, while a later one may be a grade or a low number.
        in_words: Of the graded trajectories, those with a grade in words.
        grade: An example of such a grade.
        grade_kinds: For each label of the log, its values in rounds with a grade, and in other rounds.
        equalling: For each constant column (one with the same value in all rounds of a trajectory): trajectories in which the
        column equals some answer.
        equalling_last: Of these, those in which the column equals the last answer.
        equalling_rows: For each constant column: rounds in which it equals the answer.
        listed: The constant columns that hold lists, such as alternatives.
        equalling_alone: For constant columns with few values: trajectories in which the column's value equals an answer and its value
        in another trajectory does not (True), and trajectories with the reverse (False).
        voted: For constant columns: trajectories of at least three answers with one most frequent answer, by whether the column
        equals this answer.
        several_values: A few values of each constant column, to see if it has more than one.
        containing: For constant columns: trajectories whose last answer is contained in their own text of the column (True), and
        trajectories whose last answer is contained in another trajectory's text of the column (False).
        contained: The reverse of `containing`: trajectories whose last answer contains the column's text.
        framed: Trajectories counted in `contained` whose answer has the same few words around that text as another answer.
        agreeing: For each constant column and metric: rounds in which the metric is 1 if and only if the column equals the answer.
        changing: For each label, its values in rounds whose answer differs from the one before, and in other rounds.
        last_kinds: For each label or flag of the log, its values in last rounds, and in other rounds.
        last_changes: Trajectories with answers in the last two rounds, by whether these differ.
        continued: Rounds whose text begins with the whole text of the round before and is longer.
        following: Rounds with a text whose previous round has a text, too.
        longest: For "answer" and "text": the greatest length, the number of trajectories whose longest text has this length, and
        the last letters of these texts.
        orders: Under "", the number of trajectories with several different answers; under each sorted order, those whose answers
        rise or fall, as texts or as numbers.
        firsts: Hashes of the first answers of trajectories with several different answers.
        finals: Hashes of the last answers of these trajectories.
        changes: For each round: trajectories with an answer in this round and in the one before, by whether the two differ.
        ends: For each metric: the number of trajectories of several rounds whose first and last round have it, the sum of its first
        values, the sum of its last values, and the sum of the squared differences.
        known: For each metric: rounds in which it is known.
        apart: For each metric of the log: rounds in which it is 1 although the answer equals no gold answer.
        confirmed: For each metric of the log: rounds in which it is 1 and the answer equals a gold answer.
        contrary: For each metric of the log: rounds in which it is below 1 although the answer equals a gold answer.
        spans: For each metric: its lowest and highest value.
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
        """Return whether a column equals an answer of its own trajectory clearly more often than an answer of another trajectory.

        This is counted for columns with few values only.
        """
        own, other = (self.equalling_alone[name, is_own] for is_own in (True, False))
        return own - other >= _LIKELY * math.sqrt(own + other) > 0

    def is_last(self, name: str) -> bool:
        """Return whether a constant column may be the last answer, which the loop returned.

        It must equal the last answer in nearly every trajectory; if it has lists, their items must equal nearly all answers.
        """
        if name in self.listed:
            return self.equalling_rows[name] >= (1 - _HARDLY_ANY) * self.answers
        return self.equalling_last[name] >= (1 - _HARDLY_ANY) * self.trajectories

    def is_vote(self, name: str) -> bool:
        """Return whether a constant column may be a majority vote.

        The column must equal an answer in nearly every trajectory.  Where one answer is the most frequent, the column must nearly
        always equal this answer.
        """
        is_always = self.equalling[name] >= (1 - _HARDLY_ANY) * self.trajectories
        return (
            name not in self.listed
            and is_always
            and _MANY <= self.voted[name, True] >= self.voted[name, False] / _HARDLY_ANY
        )
