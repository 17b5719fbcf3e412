"""Read a run again, part by part, before it is written: means by round, a question to preview, and counts for alarms."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.evaluation.replay.outcomes import MultipleChoice
from suffice.importers.answers.answer_or_gold import is_model_text, is_of_passages
from suffice.importers.answers.golds import items_of, listed_texts
from suffice.importers.checks.contained import count_contained
from suffice.importers.checks.dates import pairs_of_dates
from suffice.importers.checks.order_alarms import orders_of
from suffice.importers.rounds.facts import SCORES, SEVERAL, Facts
from suffice.importers.rounds.own_columns import Part
from suffice.importers.rounds.partial_credit import PartialCredit
from suffice.importers.rounds.preview import Preview, preview_of
from suffice.importers.rounds.summary import RoundMeans
from suffice.importers.words.answer_places import is_continued
from suffice.importers.words.grades import is_error, is_grade, may_be_grade
from suffice.importers.words.names import SPEAKERS, in_log, last_name
from suffice.policy.normalizers import MATCH, normalizer_of
from suffice.policy.rounds import Floats, Mask
from suffice.policy.signals import SIGNALS
from suffice.recordings.opened import run_starts
from suffice.recordings.runs import loop_labels, value_text
from suffice.recordings.schema import ASSUMED_END, column_kind

_GOLDS = 5
_REPEATING = 3
"""Answers of a question that could have repeated."""


_CONFIDENCE = re.compile("confiden|probab|certain|likelihood")
"""What is in the names of confidences."""

_SENTENCE = 30
"""Characters that a sentence has at least."""

_KINDS = 8
"""With more values a label does not tell kinds of rounds apart."""


_PROMPT_TOKENS = ("cost.generator.uncached_tokens", "cost.generator.cached_tokens")


class Reading:
    """The figures of a run, summed over its parts; each part is a recording table of whole questions."""

    def __init__(self, normalizer: str, why: str = "", whole: str = "") -> None:
        self.facts = Facts(normalizer)
        self._why, self._key_of = why, normalizer_of(normalizer)
        self._distinct = Counter[int]()
        self._sums: dict[tuple[str, int], float] = defaultdict(float)
        self._known = Counter[tuple[str, int]]()
        self._own: dict[str, None] = {}
        self._shown: Preview | None = None
        self._changes = False
        self._choice = MultipleChoice(whole=whole)
        self._partial = PartialCredit()

    @property
    def preview(self) -> Preview:
        """The question for the preview."""
        if self._shown is None:
            raise RuntimeError("a run has at least one question")
        return replace(self._shown, judge=self.judge)

    @property
    def judge(self) -> str:
        """The metric on which decisions are based by default, computed from gold answers; "" without gold answers."""
        known = {name for (name, _), n in self._known.items() if n}
        usual = ("em",) if self._choice.note else ("f1", "em")
        return next((name for name in (MATCH, *usual) if name in known), "")

    @property
    def partial_note(self) -> str:
        """The note on answers that F1 counts as partly right; "" if there are few such answers, or if F1 does not judge."""
        return self._partial.note if self.judge == "f1" else ""

    def add(self, table: pa.Table) -> None:
        """Add the counts of a part."""
        answers = [text if text and text.strip() else None for text in _texts(table, "answer")]
        names = [item.name for item in table.schema if column_kind(item.name, item) == "metric"]
        part = Part(
            table=table,
            starts=run_starts(table.column("question_id")),
            answers=answers,
            keys=self._keys(answers),
            metrics={name: table.column(name).to_numpy() for name in names},
        )
        self._own.update(dict.fromkeys(name for name in names if name not in SCORES))
        golds = _texts(table.take(pa.array(part.starts)), "golds")
        beside = {name: _texts(table, name) for name in _texts_beside(table)}
        systems = {name: [*map(value_text, _texts(table, name))] for name in loop_labels(table.schema)}
        others = {
            item.name: _texts(table, item.name)
            for item in table.schema
            if _is_other_text(item) and _is_speaker(item.name)
        }
        facts, distinct, rounds = self.facts, np.zeros(len(answers)), table.column("round").to_numpy()
        scores = part.metrics.get(MATCH, part.metrics.get("em"))
        shown = next((part.metrics[name] for name in self._own if name in part.metrics), scores)
        for said, own in zip(part.trajectories, golds, strict=True):
            seen: dict[Any, None] = {}
            for i in range(said.start, said.stop):
                if answers[i] is not None:
                    seen[part.keys[i]] = None
                distinct[i] = len(seen)
                if i > said.start and answers[i] is not None and answers[i - 1] is not None:
                    facts.changes[int(rounds[i]), answers[i] != answers[i - 1]] += 1
            length = said.stop - said.start
            self._count(answers[said], own or (), len(seen))
            facts.order.add(part.keys[said], None if shown is None else shown[said])
            if scores is not None and length == len(seen) >= _REPEATING:
                facts.right_once += float(scores[said].sum()) == 1
            if len(seen) == 1:
                facts.beside.update(name for name, values in beside.items() if len({*values[said]} - {None}) > 1)
            facts.systems.update(name for name, values in systems.items() if len({*values[said]} - {None}) > 1)
            facts.stopped.update((name, length, _stopped_at_one(part.metrics[name][said])) for name in names)
            self._count_speakers({name: values[said] for name, values in others.items()})
            if self._shown is None or (len(seen) > 1 and not self._changes):
                rows = table.slice(said.start, length).to_pylist()
                self._shown, self._changes = preview_of(rows, names, facts.normalizer, self._why), len(seen) > 1
        if scores is not None:
            self._add_scored(part, scores, golds)
        self._add_means(part, rounds, distinct)
        self._add_ends(part)
        self._add_equalling(part)
        self._add_scales(table)
        self._add_texts(part)
        self._add_prompts(part)
        self._add_stops(part)
        facts.own.add(part, [item.name for item in _own_columns(table)], shown)
        is_last = np.isin(np.arange(len(answers)), part.ends - 1)
        is_first = np.isin(np.arange(len(answers)), part.starts)
        is_new = part.has_answer & np.array(
            [first or answers[i] != answers[i - 1] for i, first in enumerate(is_first.tolist())]
        )
        sides = [(facts.kinds, part.has_answer), (facts.last_kinds, is_last), (facts.changing, is_new)]
        self._add_kinds(table, [*sides, (facts.grade_kinds, self._add_grades(part))])

    def _add_grades(self, part: Part) -> Mask:
        """Count trajectories whose later answers may be grades of the first; return a mask of all answers that may be grades."""
        answers, starts = part.answers, part.starts
        may_be = np.array([text is not None and may_be_grade(text) for text in answers])
        is_later = may_be & ~np.repeat(may_be[starts], part.lengths)
        in_words = np.array([later and is_grade(answers[i] or "") for i, later in enumerate(is_later.tolist())])
        facts = self.facts
        facts.graded += int(np.logical_or.reduceat(is_later, starts).sum())
        facts.in_words += int(np.logical_or.reduceat(in_words, starts).sum())
        facts.grade = facts.grade or next((answers[i] or "" for i in np.flatnonzero(is_later).tolist()), "")
        return may_be

    def _add_scored(self, part: Part, scores: Floats, golds: Sequence[Sequence[str] | None]) -> None:
        """Count the answers that are compared with gold answers, and how often each metric of the log agrees with the comparison.

        Disagreements are counted, too.
        """
        if "em" in part.metrics:
            every = [gold for own in golds for gold in own or ()]
            self._choice += MultipleChoice.counted(every, part.metrics["em"], part.metrics.get("f1"))
        if "f1" in part.metrics:
            self._partial.add(part, golds)
        known = part.has_answer & ~np.isnan(scores)
        self.facts.scored += int(known.sum())
        for name in part.metrics.keys() - SCORES:
            own = part.metrics[name]
            self.facts.apart[name] += int((known & (scores == 0) & (own == 1)).sum())
            self.facts.confirmed[name] += int((known & (scores == 1) & (own == 1)).sum())
            self.facts.contrary[name] += int((known & (scores == 1) & (own < 1)).sum())

    def _keys(self, answers: Sequence[str | None]) -> list[Any]:
        """Return the key by which the normalizer compares each answer; the answer's text itself if the normalizer cannot read it."""
        keys = {text: self._key_of(text) for text in {*answers} if text is not None}
        return [None if text is None else keys[text] or ("", text.strip()) for text in answers]

    def _count(self, answers: Sequence[str | None], golds: Sequence[str], n_distinct: int) -> None:
        facts = self.facts
        said = [text for text in answers if text is not None]
        facts.trajectories += 1
        facts.rounds += len(answers)
        facts.answers += len(said)
        facts.characters += sum(map(len, said))
        facts.sentences += sum(len(text) > _SENTENCE and text.rstrip()[-1:] in ".!?" for text in said)
        errors = [text for text in said if is_error(text)]
        facts.errors += len(errors)
        facts.error = facts.error or next(iter(errors), "")
        facts.unanswered += not said
        facts.silent_ends += bool(said) and answers[-1] is None
        if not golds:
            self._count_case(said, n_distinct)
        facts.without_golds += not golds
        facts.golds.update(golds[: _GOLDS - len(facts.golds)] if len(facts.golds) < _GOLDS else ())
        if len(said) > 1:
            facts.several += 1
            facts.equal += n_distinct == 1
        if len(answers) > 1 and None not in answers[-2:]:
            facts.last_changes[answers[-2] != answers[-1]] += 1
        if len(said) >= _REPEATING:
            facts.repeating += 1
            facts.unrepeated += n_distinct == len(said)
        if golds and answers[-1] is not None:
            facts.lasts += 1
            facts.golden += answers[-1].strip() in {gold.strip() for gold in golds}

    def _count_case(self, answers: Sequence[str], n_distinct: int) -> None:
        """Count a trajectory if two of its answers count as equal but differ in case."""
        texts = [*dict.fromkeys(text.strip() for text in answers)]
        if len(texts) > n_distinct:
            first: dict[str, str] = {}
            pairs = ((first.setdefault(text.lower(), text), text) for text in texts)
            pair = next(
                (pair for pair in pairs if pair[0] != pair[1] and self._key_of(pair[0]) == self._key_of(pair[1])), None
            )
            self.facts.cased += pair is not None
            self.facts.case = self.facts.case or pair

    def _count_speakers(self, others: Mapping[str, Sequence[str | None]]) -> None:
        """Record the speakers or kinds of rounds; count a question if several of them occur after its first round."""
        for name, values in others.items():
            self.facts.said_by[name].update(filter(None, values))
            self.facts.speakers[name] += len({*values[1:]} - {None}) > 1

    def _add_texts(self, part: Part) -> None:
        """Count texts that begin with the text before, texts of the greatest length, and sorted answers."""
        facts = self.facts
        columns: dict[str, Sequence[str | None]] = {"answer": part.answers, "text": _texts(part.table, "text")}
        for rows in part.trajectories:
            for name, texts in columns.items():
                text = max(filter(None, texts[rows]), key=len, default="")
                most, n, ends_in = facts.longest.get(name, (0, 0, ""))
                if len(text) >= most:
                    before = (n, ends_in) if len(text) == most else (0, "")
                    facts.longest[name] = len(text), before[0] + 1, "".join({*before[1], *_end_of(text)})
            pairs = [pair for pair in pairwise(columns["text"][rows]) if all(pair)]
            facts.following += len(pairs)
            facts.continued += sum(is_continued(later or "", earlier or "") for earlier, later in pairs)
            said = [text.strip() for text in columns["answer"][rows] if text]
            if len({*said}) > 1 and not all(later.startswith(earlier) for earlier, later in pairwise(said)):
                facts.orders.update(["", *orders_of(said)])
                facts.firsts[hash(said[0])] += 1
                facts.finals[hash(said[-1])] += 1

    def _add_prompts(self, part: Part) -> None:
        """Count trajectories whose prompts grow from round to round."""
        tokens = np.zeros(len(part.answers))
        for name in _PROMPT_TOKENS:
            if name in part.table.column_names:
                tokens = tokens + part.table.column(name).to_numpy()
        never_fall = np.array([bool((np.diff(tokens[rows]) >= 0).all()) for rows in part.trajectories])
        self.facts.growing += int((never_fall & (tokens[part.ends - 1] > tokens[part.starts])).sum())

    def _add_stops(self, part: Part) -> None:
        """Count trajectories that the loop itself ended, if the log or the user says so."""
        firsts = part.table.take(pa.array(part.starts))
        assumed = _texts(firsts, ASSUMED_END)
        self.facts.stops += sum(
            end == "rule" and not own for end, own in zip(_texts(firsts, "end"), assumed, strict=True)
        )

    def _add_scales(self, table: pa.Table) -> None:
        """Count the values between 0 and 1 and those above 1 in the log's columns of confidence."""
        for item in _own_columns(table):
            if _CONFIDENCE.search(item.name) and pa.types.is_floating(item.type):
                values = table.column(item.name).to_numpy()
                low, high, most = self.facts.scales.get(item.name, (0, 0, 0.0))
                inside = int(((values > 0) & (values < 1)).sum())
                most = float(np.fmax.reduce(values, initial=most))
                self.facts.scales[item.name] = low + inside, high + int((values > 1).sum()), most

    def _add_means(self, part: Part, rounds: npt.NDArray[np.int16], distinct: Floats) -> None:
        for r in np.unique(rounds).tolist():
            here = rounds == r
            self.facts.rows[r] += int(here.sum())
            self.facts.answered[r] += int(part.has_answer[here].sum())
            self._distinct[r] += int(distinct[here].sum())
            for name, values in part.metrics.items():
                known = values[here]
                known = known[~np.isnan(known)]
                self._sums[name, r] += float(known.sum())
                self._known[name, r] += len(known)
        for name, values in part.metrics.items():
            known = values[~np.isnan(values)]
            self.facts.known[name] += len(known)
            if len(known):
                low, high = self.facts.spans.get(name, (math.inf, -math.inf))
                self.facts.spans[name] = min(low, float(known.min())), max(high, float(known.max()))
            if name not in SCORES and ((known > 0) & (known < 1)).any():
                self.facts.graded_by.add(name)

    def _add_ends(self, part: Part) -> None:
        """Sum each metric over first and last rounds, if both have a value (and, for metrics by gold answers, an answer)."""
        firsts, lasts = part.starts[part.lengths > 1], part.ends[part.lengths > 1] - 1
        for name, values in part.metrics.items():
            told = ~np.isnan(values) & (part.has_answer | (name not in SCORES))
            known = told[firsts] & told[lasts]
            n, first, last, squares = self.facts.ends.get(name, (0, 0.0, 0.0, 0.0))
            before, after = values[firsts][known], values[lasts][known]
            squares += float(((before - after) ** 2).sum())
            n, first, last = n + int(known.sum()), first + float(before.sum()), last + float(after.sum())
            self.facts.ends[name] = n, first, last, squares

    def _add_equalling(self, part: Part) -> None:
        """Count, for each column of the log, the trajectories in which it is constant and equals an answer."""
        facts, starts, lengths, places, of_row = self.facts, part.starts, part.lengths, part.places, part.codes
        counts = [Counter(key for key in part.keys[rows] if key is not None) for rows in part.trajectories]
        most = np.array([max(own.values(), default=0) for own in counts])
        is_led = np.array([_has_leader(own) for own in counts])
        for item in _own_columns(part.table):
            encoded = part.table.column(item.name).combine_chunks().dictionary_encode()
            codes = encoded.indices.fill_null(-1).to_numpy()
            same = part.are_same(codes) & (codes[starts] >= 0)
            if not same.any():
                continue
            texts = [*map(value_text, encoded.dictionary.to_pylist())]
            if len(several := facts.several_values.setdefault(item.name, set())) < SEVERAL:
                several.update(islice(filter(None, texts), SEVERAL))
            values = {code: texts[code] or "" for code in np.unique(codes[starts[same]]).tolist()}
            pairs = [
                code * len(places) + places[key]
                for code, text in values.items()
                for key in {*self._keys(items_of(text))} - {None}
                if key in places
            ]
            if not pairs and facts.without_golds == facts.trajectories:
                pairs = pairs_of_dates(values, part)
            is_same = np.repeat(same, lengths)
            equal = is_same & np.isin(codes * len(places) + of_row, pairs)
            facts.equalling_rows[item.name] += int(equal.sum())
            n_listed = sum(len(listed_texts(text)) > 1 for text in values.values())
            facts.listed |= {item.name} if 2 * n_listed > len(values) else set()
            facts.equalling[item.name] += int(np.logical_or.reduceat(equal, starts).sum())
            facts.equalling_last[item.name] += int(equal[part.ends - 1].sum())
            is_most = np.add.reduceat(equal, starts, dtype=np.int64) == most
            for is_vote in (True, False):
                facts.voted[item.name, is_vote] += int((same & is_led & (is_most == is_vote)).sum())
            if len(several) < SEVERAL:
                other = np.repeat(np.roll(codes[starts], 1), lengths)
                own, others = (
                    np.logical_or.reduceat(one, starts) for one in (equal, np.isin(other * len(places) + of_row, pairs))
                )
                for is_own, alone in ((True, own & ~others), (False, others & ~own)):
                    facts.equalling_alone[item.name, is_own] += int(alone.sum())
            for metric, marks in part.metrics.items():
                facts.agreeing[item.name, metric] += int((((marks == 1) == equal) & is_same).sum())
        if facts.without_golds == facts.trajectories:
            names = [item.name for item in _own_columns(part.table) if _is_other_text(item)]
            count_contained(facts, part.table, names, part.starts)

    def _add_kinds(self, table: pa.Table, sides: Sequence[tuple[dict[str, tuple[set[str], set[str]]], Mask]]) -> None:
        """Record the labels and flags of the chosen rounds, and separately those of all other rounds."""
        for item in _own_columns(table):
            values = table.column(item.name)
            if not pa.types.is_string(item.type) and not _is_flag(values):
                continue
            for kinds, chosen in sides:
                for kind, mask in zip(kinds.setdefault(item.name, (set(), set())), (chosen, ~chosen), strict=True):
                    if len(kind) <= _KINDS:
                        unique = values.filter(pa.array(mask)).drop_null().unique()
                        kind.update(filter(None, map(value_text, unique[: _KINDS + 1].to_pylist())))

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
                answered=self.facts.answered[r] / n,
                distinct=self._distinct[r] / n,
                scores={name: self._mean(name, r) for name in self._own},
                known={name: self._known[name, r] for name in self._own},
            )
            for r, n in sorted(self.facts.rows.items())
        )


def _texts(table: pa.Table, name: str) -> list[Any]:
    return table.column(name).to_pylist() if name in table.column_names else [None] * len(table)


def _own_columns(table: pa.Table) -> Iterator[pa.Field]:
    """Yield the log's own columns of labels and numbers."""
    for item in table.schema:
        is_own = column_kind(item.name, item) in ("label", "signal") and item.name and item.name not in SIGNALS
        if is_own and not pa.types.is_nested(item.type):
            yield item


def _is_flag(values: pa.ChunkedArray) -> bool:
    """Return whether all values of a column are 0 or 1."""
    if not pa.types.is_floating(values.type):
        return False
    numbers = values.to_numpy()
    return bool(np.isin(numbers[~np.isnan(numbers)], (0, 1)).all())


def _texts_beside(table: pa.Table) -> Iterator[str]:
    """Yield the columns, other than the answer, that contain retrieved texts or texts that the model may have written."""
    for item in table.schema:
        name = in_log(item.name)
        is_id = last_name(name).endswith(("_id", "rank")) and column_kind(item.name, item) == "label"
        is_text = _is_other_text(item) and (is_model_text(name) or is_of_passages(name))
        if item.name == "text" or is_text or (is_id and is_of_passages(name)):
            yield item.name


def _is_speaker(name: str) -> bool:
    """Return whether a column may name the speaker or kind of a round."""
    return last_name(in_log(name)) in (*SPEAKERS, "action")


def _is_other_text(item: pa.Field) -> bool:
    return pa.types.is_string(item.type) and column_kind(item.name, item) == "label"


def _end_of(text: str) -> str:
    """Return the last letter of a text; "" for a single word: DNA sequences, for example, have equal lengths without being cut."""
    return "" if text.isascii() and text.isalnum() else text[-1:]


def _has_leader(counts: Counter[Any]) -> bool:
    """Return whether there are at least three answers, not all equal, and one of them is more frequent than any other."""
    (_, most), (_, second) = [*counts.most_common(2), (None, 0), (None, 0)][:2]
    return counts.total() >= _REPEATING and most > second > 0


def _stopped_at_one(marks: Floats) -> bool | None:
    """Return whether the last mark is 1; None if an earlier mark is 1."""
    return None if (marks[:-1] == 1).any() else bool(marks[-1] == 1)
