"""Read a run once more before it is written, part by part: means by round, one question to show, and counts for alarms."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.importers.answer_or_gold import is_model_text
from suffice.importers.names import SPEAKERS, plain_name
from suffice.importers.preview import Preview, preview_of
from suffice.importers.summary import RoundMeans
from suffice.policy.metrics import normalize_answer
from suffice.policy.normalizers import MATCH, normalizer_of
from suffice.recordings.opened import run_starts
from suffice.recordings.runs import loop_labels, value_text
from suffice.recordings.schema import column_kind

_SEARCHED = 20_000
"""Wrong answers in which gold answers are searched."""

_REPEATING = 3
"""Answers of a question that could have repeated."""


@dataclass(slots=True)
class Facts:
    """Counts over all trajectories of a run, from which alarms follow.

    Attributes:
        normalizer: Decides which answers are the same.
        trajectories: Number of trajectories.
        rounds: Number of rounds.
        answers: Rounds with an answer.
        characters: The length of all answers.
        unanswered: Trajectories without any answer.
        without_golds: Trajectories without gold answers.
        several: Trajectories with several answers.
        equal: Of these, those whose answers are all equal.
        beside: Of these in turn, those in which a text varies that the model may have said, by column.
        repeating: Trajectories with at least three answers.
        unrepeated: Of these, those whose answers are all different.
        systems: Trajectories with another model, system or file in some round, by column.
        speakers: Trajectories whose rounds come from several speakers, or are of several kinds, after the first, by column.
        said_by: The speakers or kinds, by column.
        stopped: Trajectories by a metric, their length, and whether its first 1 is in their last round (None: in an earlier one).
        echoed: Trajectories in which one of the answers is a text of the whole question, by its column.
        ending: Of these in turn, those whose last answer it is.
        varied: Columns with different texts in the rounds of a question.
        agreeing: Rounds in which a metric is 1 if and only if the answer is that text, by column and metric.
        wrong: Wrong answers in which gold answers were searched.
        containing: Of these, those that contain a gold answer.
        correct: The sum of exact matches over scored answers.
        scored: Scored answers.
        lasts: Last answers of trajectories with gold answers.
        golden: Of these, those that are a gold answer, literally.
        known: Rounds in which a metric is known, by its name.
        spans: The lowest and highest value of a metric, by its name.
    """

    normalizer: str
    trajectories: int = 0
    rounds: int = 0
    answers: int = 0
    characters: int = 0
    unanswered: int = 0
    without_golds: int = 0
    several: int = 0
    equal: int = 0
    beside: Counter[str] = field(default_factory=Counter)
    repeating: int = 0
    unrepeated: int = 0
    systems: Counter[str] = field(default_factory=Counter)
    speakers: Counter[str] = field(default_factory=Counter)
    said_by: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    stopped: Counter[tuple[str, int, bool | None]] = field(default_factory=Counter)
    echoed: Counter[str] = field(default_factory=Counter)
    ending: Counter[str] = field(default_factory=Counter)
    varied: set[str] = field(default_factory=set)
    agreeing: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: int = 0
    containing: int = 0
    correct: float = 0.0
    scored: int = 0
    lasts: int = 0
    golden: int = 0
    known: Counter[str] = field(default_factory=Counter)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)


class Reading:
    """Figures of a run's parts, each a recording's table of whole questions.

    Args:
        normalizer: Decides which answers are the same.
        why: The reason for this normalizer.

    Attributes:
        facts: Counts for alarms.
    """

    def __init__(self, normalizer: str, why: str = "") -> None:
        self.facts = Facts(normalizer)
        self._why, self._key_of = why, normalizer_of(normalizer)
        self._rows, self._answered, self._distinct = Counter[int](), Counter[int](), Counter[int]()
        self._sums: dict[tuple[str, int], float] = defaultdict(float)
        self._known = Counter[tuple[str, int]]()
        self._own: dict[str, None] = {}
        self._shown: Preview | None = None
        self._changes = False

    @property
    def preview(self) -> Preview:
        """The question to show."""
        if self._shown is None:
            raise RuntimeError("a run has at least one question")
        return self._shown

    def add(self, table: pa.Table) -> None:
        """Count a part."""
        rounds = table.column("round").to_numpy()
        metrics = {
            item.name: table.column(item.name).to_numpy()
            for item in table.schema
            if column_kind(item.name, item) == "metric"
        }
        self._own.update(dict.fromkeys(name for name in metrics if name not in ("em", "f1", "contains", MATCH)))
        answers = [text if text and text.strip() else None for text in _texts(table, "answer")]
        starts = run_starts(table.column("question_id"))
        ends = np.append(starts[1:], len(answers))
        golds = _texts(table.take(pa.array(starts)), "golds")
        beside = {name: _texts(table, name) for name in _texts_beside(table)}
        systems = {name: [*map(value_text, _texts(table, name))] for name in loop_labels(table.schema)}
        others = {item.name: _texts(table, item.name) for item in table.schema if _is_other_text(item)}
        facts, keys, distinct = self.facts, self._keys(answers), np.zeros(len(answers))
        scores = metrics.get(MATCH, metrics.get("em"))
        for start, end, own in zip(starts.tolist(), ends.tolist(), golds, strict=True):
            seen: dict[Any, None] = {}
            for i in range(start, end):
                if answers[i] is not None:
                    seen[keys[i]] = None
                distinct[i] = len(seen)
            said = slice(start, end)
            self._count(answers[said], own or (), len(seen))
            if facts.wrong < _SEARCHED and scores is not None and own:
                self._search(answers[said], own, scores[said])
            if len(seen) == 1:
                facts.beside.update(name for name, values in beside.items() if len({*values[said]} - {None}) > 1)
            facts.systems.update(name for name, values in systems.items() if len({*values[said]} - {None}) > 1)
            marks = {name: values[said] for name, values in metrics.items()}
            facts.stopped.update((name, end - start, _stopped_at_one(own_marks)) for name, own_marks in marks.items())
            self._count_others({name: values[said] for name, values in others.items()}, answers[said], own, marks)
            if self._shown is None or (len(seen) > 1 and not self._changes):
                rows = table.slice(start, end - start).to_pylist()
                self._shown, self._changes = preview_of(rows, [*metrics], facts.normalizer, self._why), len(seen) > 1
        has_answer = np.array([text is not None for text in answers])
        if scores is not None:
            known = has_answer & ~np.isnan(scores)
            facts.scored += int(known.sum())
            facts.correct += float(scores[known].sum())
        self._add_means(rounds, metrics, has_answer, distinct)

    def _keys(self, answers: Sequence[str | None]) -> list[Any]:
        """Return the key by which each answer is compared; the text itself if the normalizer cannot read it."""
        keys = {text: self._key_of(text) for text in {*answers} if text is not None}
        return [None if text is None else keys[text] or ("", text.strip()) for text in answers]

    def _count(self, answers: Sequence[str | None], golds: Sequence[str], n_distinct: int) -> None:
        facts = self.facts
        said = [text for text in answers if text is not None]
        facts.trajectories += 1
        facts.rounds += len(answers)
        facts.answers += len(said)
        facts.characters += sum(map(len, said))
        facts.unanswered += not said
        facts.without_golds += not golds
        if len(said) > 1:
            facts.several += 1
            facts.equal += n_distinct == 1
        if len(said) >= _REPEATING:
            facts.repeating += 1
            facts.unrepeated += n_distinct == len(said)
        if golds and answers[-1] is not None:
            facts.lasts += 1
            facts.golden += answers[-1].strip() in {gold.strip() for gold in golds}

    def _count_others(
        self,
        others: Mapping[str, Sequence[str | None]],
        answers: Sequence[str | None],
        golds: Sequence[str] | None,
        metrics: Mapping[str, npt.NDArray[np.float64]],
    ) -> None:
        """Count who speaks in a question's rounds, and whether a text of the whole question is one of its answers."""
        facts = self.facts
        for name, values in others.items():
            if _is_speaker(name):
                facts.said_by[name].update(filter(None, values))
                facts.speakers[name] += len({*values[1:]} - {None}) > 1
            if len({*values}) > 1:
                facts.varied.add(name)
            elif not golds and name not in facts.varied and values[0]:
                text = values[0].strip()
                equal = np.array([answer is not None and answer.strip() == text for answer in answers])
                facts.echoed[name] += bool(equal.any())
                facts.ending[name] += bool(equal[-1])
                agreed = {(name, metric): int(((marks == 1) == equal).sum()) for metric, marks in metrics.items()}
                facts.agreeing.update(agreed)

    def _search(self, answers: Sequence[str | None], golds: Sequence[str], scores: npt.NDArray[np.float64]) -> None:
        """Search the gold answers in the wrong answers of a question."""
        wanted = [*filter(None, map(_words, golds))]
        for text, score in zip(answers, scores.tolist(), strict=True):
            if text is not None and score == 0:
                said = _words(text)
                self.facts.wrong += 1
                self.facts.containing += any(gold in said for gold in wanted)

    def _add_means(
        self,
        rounds: npt.NDArray[np.int16],
        metrics: Mapping[str, npt.NDArray[np.float64]],
        has_answer: npt.NDArray[np.bool_],
        distinct: npt.NDArray[np.float64],
    ) -> None:
        for r in np.unique(rounds).tolist():
            here = rounds == r
            self._rows[r] += int(here.sum())
            self._answered[r] += int(has_answer[here].sum())
            self._distinct[r] += int(distinct[here].sum())
            for name, values in metrics.items():
                known = values[here]
                known = known[~np.isnan(known)]
                self._sums[name, r] += float(known.sum())
                self._known[name, r] += len(known)
        for name, values in metrics.items():
            known = values[~np.isnan(values)]
            self.facts.known[name] += len(known)
            if len(known):
                low, high = self.facts.spans.get(name, (math.inf, -math.inf))
                self.facts.spans[name] = min(low, float(known.min())), max(high, float(known.max()))

    def _mean(self, name: str, r: int) -> float:
        n = self._known[name, r]
        return self._sums[name, r] / n if n else math.nan

    def by_round(self) -> tuple[RoundMeans, ...]:
        """Return the means of each round."""
        return tuple(
            RoundMeans(
                round=r,
                n=n,
                scored=self._known["em", r],
                em=self._mean("em", r),
                f1=self._mean("f1", r),
                match=self._mean(MATCH, r),
                answered=self._answered[r] / n,
                distinct=self._distinct[r] / n,
                scores={name: self._mean(name, r) for name in self._own},
            )
            for r, n in sorted(self._rows.items())
        )


def _texts(table: pa.Table, name: str) -> list[Any]:
    return table.column(name).to_pylist() if name in table.column_names else [None] * len(table)


def _texts_beside(table: pa.Table) -> Iterator[str]:
    """Yield the columns of texts that the model may have said, beside the answer."""
    for item in table.schema:
        name = item.name.removeprefix("imported_")
        if item.name == "text" or (_is_other_text(item) and is_model_text(name)):
            yield item.name


def _is_speaker(name: str) -> bool:
    """Return whether a column may say who speaks in a round, or of what kind it is."""
    return plain_name(name.removeprefix("imported_")).rpartition(".")[2] in SPEAKERS


def _is_other_text(item: pa.Field) -> bool:
    return pa.types.is_string(item.type) and column_kind(item.name, item) == "label"


def _stopped_at_one(marks: npt.NDArray[np.float64]) -> bool | None:
    """Return whether the last mark is 1; None if an earlier one is."""
    return None if (marks[:-1] == 1).any() else bool(marks[-1] == 1)


def _words(text: str) -> str:
    """Return the words of a text with blanks around them, so that a text contains another only as whole words."""
    words = normalize_answer(text) or text.strip().lower()
    return f" {words} " if words else ""
