"""Facts about all trajectories of a table, counted part by part for an import's notes and metadata."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, UnsettledError
from suffice.importers.answers.answer_or_gold import FEW
from suffice.importers.columns.cost_names import without_form
from suffice.importers.columns.grid import Grid, differing_golds, is_cost
from suffice.importers.columns.table_columns import WITHIN, ColumnMap
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.rounds.trajectories import unsaid_ends
from suffice.importers.words.choices import Choices, column_options, of_columns
from suffice.importers.words.names import plain_name
from suffice.importers.words.number_forms import currencies, currency_codes
from suffice.policy.metrics import normalize_answer
from suffice.recordings.schema import DOLLAR, PINNED_LABELS

_FEW = 5
_MOST_SHARED = 0.5
"""From this share of ids with the text of another one, a note says that they count as one question."""

_COPIED_LAST, _COPIED = 0.98, 0.95
"""Gold answers are suspected to be the model's own above these shares of equal last answers, and of all answers."""

_SAYS_GOLD = re.compile(r"gold|accepted|acceptable|valid_|alias|truth|reference|correct|expected")
_MISSING_WORDS = frozenset({"nan", "null", "none", "na", "n/a", "#n/a", "<na>"})
"""Texts that programs write for a missing value; as answers, they are read as text."""


class Tally:
    """Counts of values and ends over trajectories.

    Attributes:
        known: For each metric and cost: the number of rounds in which it is known.
    """

    def __init__(self) -> None:
        self.lengths: Counter[int] = Counter()
        self.ends: Counter[str] = Counter()
        self._reasons = Counter[str]()
        self._first: int | None = None
        self._unmapped: dict[str, None] = {}
        self._labels: dict[str, set[Any]] = {name: set() for name in PINNED_LABELS}
        self._scored = self._equal = self._scored_rounds = self._equal_rounds = 0
        self._example: tuple[str, str] | None = None
        self._differing = 0
        self._first_differing = ""
        self._named = self._mixed = 0
        self._first_mixed: tuple[str, list[str]] | None = None
        self._by_text: dict[int, tuple[int, frozenset[str]]] = {}
        self._shared = self._apart = 0
        self._rounds = self._silent = self._without_golds = 0
        self.known = Counter[str]()
        self._money = ""
        self._signs: dict[str, None] = {}
        self._negative = Counter[str]()
        self._texts: dict[str, Counter[str]] = {"answer": Counter(), "gold answer": Counter()}

    def add(self, columns: RoundColumns) -> None:
        """Count further trajectories, and make their negative costs unknown.

        Gold answers from other files must not be joined yet.
        """
        for name, costs in columns.costs.items():
            if (negative := costs < 0).any():
                self._negative[name] += int(negative.sum())
                columns.costs[name] = np.where(negative, np.nan, costs)
        self._unmapped.update(dict.fromkeys(columns.extras))
        known = {**columns.metrics, **columns.costs}
        self.known.update({name: int((~np.isnan(values)).sum()) for name, values in known.items()})
        answers, reasons = columns.texts["answer"], columns.texts["finish_reason"]
        self._rounds += len(answers)
        self._silent += sum(not (answer or "").strip() for answer in answers)
        self._count_missing("answer", answers)
        for name, values in self._labels.items():
            values.update(columns.labels.get(name, [None]))
        for q, own in columns.by_question():
            self._first = int(columns.index[own.start]) if self._first is None else self._first
            self.ends[columns.ends[q]] += 1
            self._count(answers[own], columns.golds[q])
            self._reasons.update(() if any(reasons[own][:-1]) else filter(None, reasons[own][-1:]))

    def _count_missing(self, what: str, texts: Iterable[str | None]) -> None:
        self._texts[what].update(text for text in texts if text and text.strip().lower() in _MISSING_WORDS)

    def _count(self, answers: Sequence[str | None], golds: Collection[str]) -> None:
        self.lengths[len(answers)] += 1
        self._without_golds += not golds
        self._count_missing("gold answer", golds)
        if not golds:
            return
        texts = {gold.strip() for gold in golds}
        said = [answer.strip() for answer in answers if answer]
        self._scored_rounds += len(said)
        self._equal_rounds += sum(answer in texts for answer in said)
        if answers[-1]:
            self._scored += 1
            self._equal += answers[-1].strip() in texts
            self._example = self._example or (next(iter(golds)), answers[-1])

    def add_money(self, amounts: Sequence[Any], name: str) -> None:
        """Note the currencies of a column's amounts of money."""
        self._money = name
        self._signs.update(dict.fromkeys(currencies(amounts)))

    @property
    def currency(self) -> str:
        """The currency of all amounts.

        It is taken from the amounts, otherwise from the name of their column, otherwise it is the dollar.

        Raises:
            DataError: There are several currencies.
        """
        codes = currency_codes(self._signs) or currency_codes(currencies((), self._money))
        if len(codes) > 1:
            raise DataError(
                f"{without_form(self._money)!r} has amounts in {cut_list(codes)}, which cannot be added: convert them in the log, or leave the column out "
                "(--column spend=)"
            )
        return codes[0] if codes else DOLLAR

    def add_differing(self, message: str) -> None:
        """Count a question whose gold answers differ between its rows."""
        self._differing += 1
        self._first_differing = self._first_differing or message

    def add_names(self, names: Sequence[str], columns: RoundColumns, within: Mapping[str, Collection[str]]) -> None:
        """Count the ids that have several question texts, and the ids whose runs have different gold answers.

        Gold answers that differ from those of an id's first run are removed.

        Args:
            names: The id of each question.
            columns: The rounds of these questions.
            within: The texts of each run that has several texts.
        """
        texts: dict[str, dict[str, str]] = {}
        golds: dict[str, tuple[str, ...]] = {}
        for q, (name, own_id) in enumerate(zip(names, columns.question_ids, strict=True)):
            own = texts.setdefault(name, {})
            own.update(
                (normalize_answer(text), text)
                for text in within.get(own_id, filter(None, columns.questions[q : q + 1]))
            )
            before = golds.setdefault(name, columns.golds[q])
            if before and columns.golds[q] and {*before}.isdisjoint(columns.golds[q]):
                self.add_differing(
                    f"question {name!r:.80} has the gold answers {before[0]!r:.80} and {columns.golds[q][0]!r:.80}"
                )
                columns.golds[q] = ()
        self._add_texts(texts, golds)
        mixed = [(name, [*own.values()][:2]) for name, own in texts.items() if len(own) > 1]
        self._named += len(texts)
        self._mixed += len(mixed)
        self._first_mixed = self._first_mixed or next(iter(mixed), None)

    def _add_texts(self, texts: Mapping[str, Mapping[str, str]], golds: Mapping[str, tuple[str, ...]]) -> None:
        """Count the questions whose text an earlier id has, too, and those of them whose gold answers all differ from that id's."""
        for name, own in texts.items():
            key = hash(next(iter(own), name))
            first, right = self._by_text.setdefault(key, (hash(name), frozenset(golds[name])))
            if own and first != hash(name):
                self._shared += 1
                self._apart += bool(right) and right.isdisjoint(golds[name]) and bool(golds[name])

    def refuse_several_questions(self, columns: Mapping[str, str]) -> None:
        """Raise if many ids have several question texts, as where a log contains two data sets."""
        if self._first_mixed is not None and self._mixed > max(1, FEW * self._named):
            key, text, (name, (first, second)) = columns["question_id"], columns["question"], self._first_mixed
            by_text = of_columns({"question_id": text}, f"{text!r} tells the questions apart")
            raise UnsettledError(
                f"{self._mixed:,} of {self._named:,} values of {key!r} have several texts, such as {name!r:.40}: {first!r:.60} and "
                f"{second!r:.60}",
                "columns",
                by_text | of_columns({"question": ""}, f"{key!r} does: they are wordings of one question"),
                # wordings of one question have the same gold answers
                next(iter(by_text)) if 2 * self._differing > self._mixed else "",
            )

    def refuse_differing_golds(self, where: str, grid: Grid, ways: Callable[[], Choices]) -> None:
        """Raise if the rows of many questions have different gold answers.

        The column may then hold something other than gold answers, or an id may belong to several questions.  `ways` returns the
        options that combine several columns into an id.
        """
        if self._differing > FEW * self.lengths.total():
            message = f"{where}: {differing_golds(self._first_differing, grid)}"
            raise UnsettledError(message, "options", own) if (own := ways()) else DataError(message)

    def refuse_copied_golds(self, columns: Mapping[str, str]) -> None:
        """Raise if the gold answers are probably the model's own answers, as in a log with `answer` and `output`.

        If a log has only loops that succeeded in the end, all last answers equal the gold answers.  So a column that is named as
        the gold answer is in doubt only if it equals earlier answers as well.
        """
        gold, answer = columns.get("golds", "golds"), columns.get("answer", "answer")
        last = self._equal >= _COPIED_LAST * self._scored and not _SAYS_GOLD.search(plain_name(gold))
        every = self._equal_rounds >= _COPIED * self._scored_rounds
        if self._scored < _FEW or not (last or every) or self._example is None:
            return
        counts = f"{self._equal} of {self._scored} trajectories", "the last answer"
        if not last:
            counts = f"{self._equal_rounds} of {self._scored_rounds} rounds", "the answer"
        raise UnsettledError(
            f"in {counts[0]} the gold answer (column {gold!r}) is exactly {counts[1]}, {gold}={self._example[0]!r:.40} and "
            f"{answer}={self._example[1]!r:.40} for instance: is {gold!r} what the model said?",
            "log_golds",
            {
                "--log-golds keep": ("keep", f"{gold!r} has gold answers, and the model was right"),
                "--log-golds drop": ("drop", f"{gold!r} is what the model said: there are no gold answers"),
            },
        )

    def notes(self, plan: ColumnMap, grid: Grid, hint: str = "") -> list[str]:
        """Return the notes on rounds, ends, columns and labels; `hint` is the advice for runs of one round each."""
        notes = []
        if self._first == 0:
            notes.append(
                "round 0 is read as the model alone (closed book), whose call is none of the loop's; with --first-round 1, the loop begins "
                "with it"
            )
        elif grid.first_round is not None:
            notes.append(
                f"the lowest {plan.columns['round']!r} is read as round 1, the first draft or evidence, which the loop pays; with --first-round 0, "
                "as the model alone, asked beside the loop"
            )
        if "answer" not in plan.columns:
            notes.append(
                "no column is read as the answer: rules and metrics that need answers are undefined; name it with --column "
                "answer=COLUMN if there is one"
            )
        if self._shared >= _MOST_SHARED * self._named or self._apart > FEW * self._named:
            other = f", {self._apart:,} with other gold answers" if self._apart else ""
            alone = (
                " (--column question= counts each id, if texts leave something out)"
                if "question" in plan.columns
                else ""
            )
            notes.append(
                f"{self._shared:,} of {self._named:,} ids have the text of another{other}: one text counts as one question{alone}"
            )
        notes += [*self._missing_notes(plan), *plan.notes]
        if self._unmapped:
            notes.append(f"columns that are kept as they are: {cut_list(self._unmapped)}")
        if grid.ended is None and "end" not in plan.columns:
            notes.append(self._end_note(plan.columns.get("finish_reason", ""), plan.may_end, hint))
        for name, values in self._labels.items():
            if len(values) > 1:
                notes.append(
                    f"{len(values)} different values of {name!r}: `suffice decide --where {name}=VALUE` judges one of them alone"
                )
        notes += [
            f"policies fitted on this recording depend on {name} {value!r}" for name, value in self.depends().items()
        ]
        return notes

    def _missing_notes(self, plan: ColumnMap) -> list[str]:
        """Return notes on missing answers and gold answers, and on placeholders for them."""
        notes = []
        if "answer" in plan.columns and self._silent:
            notes.append(
                f"{self._silent:,} of {counted(self._rounds, 'round')} have no answer: a loop that stops there returns the last answer "
                "before"
            )
        if "golds" in plan.columns and self._without_golds:
            notes.append(
                f"{self._without_golds:,} of {counted(self.lengths.total(), 'trajectory', 'trajectories')} have no gold answer, so "
                "that their EM and F1 are unknown"
            )
        if self._differing:
            notes.append(
                f"the gold answers of {counted(self._differing, 'question')} differ between rows, so that they count as unknown "
                f"({self._first_differing})"
            )
        notes += [
            f"{name} is below 0 in {n:,} of {counted(self._rounds, 'round')}, and no cost can be: it is unknown there"
            for name, n in self._negative.items()
        ]
        contained = {item.ours for item in plan.readings if item.how == WITHIN}
        notes += [
            f"{name} is known in {self.known[name]:,} of {counted(self._rounds, 'round')}, so that the sum is unknown"
            for name in filter(is_cost, plan.columns)
            if self.known[name] < self._rounds and name not in contained
        ]
        notes += [
            f"{name!r} is known in {self.known[name]:,} of {counted(self._rounds, 'round')}: a stop at another one cannot be judged"
            for name in plan.metrics
            if self.known[name] < self._rounds and name not in plan.of_runs
        ]
        for what, texts in self._texts.items():
            notes += [
                f"{text!r} is read as the text of {counted(n, what)}: leave it empty if it means that there is none"
                for text, n in texts.items()
            ]
        return notes

    def _end_note(self, reason: str, said: str, hint: str) -> str:
        """Return a note on trajectories whose end reason is assumed, since the log gives none."""
        longest, n = max(self.lengths), self.lengths.total()
        if longest == 1:
            usual = "if several rows are the rounds of one question, --column question_id=COLUMN names it. Else log the answer of every round"
            return f"every question has one round, so there is nothing to stop earlier and nothing to decide; {hint or usual}"
        if len(self.lengths) == 1:
            return f"every question has {counted(longest, 'round')}: read as the loop's cap"
        says = f"{reason!r} of the last rounds ({cut_list(self._reasons)}) may say why"
        is_said = self._reasons.total() > n - self.lengths[longest]
        option = column_options({"end": said})
        unsaid = f"{said!r} may say why, but is not read ({option})" if said else "The log does not say so"
        what = "runs" if n > self._named > 0 else "questions"
        return unsaid_ends(n - self.lengths[longest], n, what, longest, says if is_said else unsaid)

    def depends(self) -> dict[str, Any]:
        """Return the labels on which policies fitted on the run depend, with their values."""
        return {
            name: next(iter(values)) for name, values in self._labels.items() if len(values) == 1 and None not in values
        }
