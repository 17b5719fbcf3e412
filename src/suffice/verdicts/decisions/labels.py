"""Labels by hand, asked only where they can matter: where a candidate's answer differs from that of the full run.

Equal answers lose nothing under any metric that is a function of question and answer, so that most questions of a log
need no gold answer.  The questions are asked, and bet on, in an order that follows from their texts and is fixed before
the first label; bets stop at the first question that still needs one.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.files import json_lines, write_file
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay.outcomes import has_outcome, outcome
from suffice.evaluation.statistics import hash_order
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH, normalizer_of
from suffice.policy.rounds import Floats, Mask
from suffice.policy.signals import answer_ids
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.losses import Measured, measure_candidates
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.losses import Questions

CANNOT_TELL = "?"
"""The label of a question whose answers cannot be judged; it counts at its worst."""
NONE_RIGHT = "none"
_SHOWN_SALT = "decide, shown answers:"
_SELECTORS = ("last", "majority_of_samples")
_BASELINES = ("recorded", "full")
_AGREEMENT = "agreement"
_HEADS = ("id", "question", "right", "gold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Labels of questions by their ids.

    Attributes:
        right: The answers that are right, as texts: those that were marked, and golds; None where somebody could not tell.
            An empty tuple says that no answer is right.
        sheet: The rows of the file that they came from, in their order, so that it can be written again.
    """

    right: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    sheet: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> Labels:
        """Read a labelling sheet; a file that does not exist yet has no labels.

        Args:
            path: A JSON lines or CSV file that `write_sheet` wrote.  In each row, `right` has the letters of the right answers
                (``A``, ``A C``), ``none``, or ``?`` if one cannot tell; or `gold` has the right answer itself.  A row without both
                has no label yet.

        Raises:
            DataError: The file cannot be read, a row has no id, or a label is none of the above; the message names the row.
        """
        if not Path(path).exists():
            return cls()
        right: dict[str, tuple[str, ...] | None] = {}
        rows = []
        for where, row in _rows_of(Path(path)):
            name = row.get("id")
            if not isinstance(name, str) or not name:
                raise DataError(f"{where}: the row has no 'id', the id of its question in the log")
            if name in right:
                raise DataError(f"{where}: question {name!r:.80} has a row already: remove one of them")
            rows.append(row)
            if row.get("right") or row.get("gold"):
                right[name] = _label_of(where, row)
        return cls(right=right, sheet=tuple(rows))

    def of(self, recording: Recording) -> Recording:
        """Return a recording whose metric `match` says which answers are right, NaN for questions without a label or gold.

        Raises:
            ConfigMismatchError: A labelled row shows other answers than the recording has: the sheet is of another log.
        """
        self._refuse_other_answers(recording)
        name = MATCH if has_outcome(recording, MATCH) else "em"
        values = outcome(recording, name) if has_outcome(recording, name) else np.full(recording.shape, np.nan)
        normalizer = normalizer_of(_normalizer(recording))
        for q, question in enumerate(recording.question_ids):
            if question not in self.right:
                continue
            right = self.right[question]
            if right is None:
                values[q] = np.nan
                continue
            texts = np.array([[*recording.answers[q].tolist(), *right]], dtype=object)
            ids = answer_ids(texts, normalizer)[0]
            n = recording.shape[1]
            values[q] = np.where(recording.seen[q], np.isin(ids[:n], ids[n:][~np.isnan(ids[n:])]), np.nan)
        rounds = recording.table.column("round").to_numpy().astype(np.int64)
        column = pa.array(values[recording.row_question, rounds - recording.index[0]], from_pandas=True)
        head = pa.field(MATCH, pa.float64(), metadata={"kind": "metric", "unit": "score"})
        table, at = recording.table, recording.table.schema.get_field_index(MATCH)
        table = table.append_column(head, column) if at < 0 else table.set_column(at, head, column)
        return Recording(table, recording.metadata)

    def _refuse_other_answers(self, recording: Recording) -> None:
        shown = {
            row["id"]: [*row["answers"].values()]
            for row in self.sheet
            if row["id"] in self.right and isinstance(row.get("answers"), dict)
        }
        for q, question in enumerate(recording.question_ids):
            own = set(map(str, recording.answers[q].tolist()))
            others = [text for text in shown.get(question, []) if text not in own]
            if others:
                raise ConfigMismatchError(
                    f"the labels of question {question!r:.80} show the answer {others[0]!r:.120}, which the log does not have: the sheet "
                    "belongs to another log. Give another file (--ask OTHER.jsonl)"
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelling:
    """The questions of a recording, the labels that they have, and those that they need.

    Attributes:
        recording: The recording, with `match` where it is known.
        questions: Its questions; copies are one.
        differing: See `differing_answers`.
        losses: The losses of the candidates; what has no label counts at its worst.
        lacking: Mask of the rows with different answers that have neither label nor gold, shape ``(n_rows,)``.
    """

    recording: Recording
    questions: Questions
    differing: Floats
    losses: Measured
    lacking: Mask

    @classmethod
    def of(cls, recording: Recording, trial: Trial, labels: Labels) -> Labelling:
        """Compare the answers of all candidates with the baseline's.

        Args:
            recording: Recorded rounds.
            trial: The declared trial.
            labels: The labels that were given.
        """
        labelled, differing = labels.of(recording), differing_answers(recording, trial)
        given = np.array([name in labels.right for name in recording.question_ids], dtype=np.bool_)
        known: Mask = np.isfinite(outcome(labelled, MATCH)).any(axis=1) | given
        # A label cannot help where rounds are missing or failed: what is unknown there counts at its worst.
        lacking = ~known & ~recording.failed & ~recording.unexplained & _various(recording)
        losses = measured(labelled, trial, MATCH).within(differing)
        return cls(
            recording=labelled,
            questions=Questions.of(recording),
            differing=differing,
            losses=losses,
            lacking=lacking,
        )

    def needed(self, place: int) -> npt.NDArray[np.int64]:
        """Return the questions that need a label for a candidate, as places in the order of bets."""
        lacking = self.questions.units.sums(self.lacking.astype(np.float64)) > 0
        return np.flatnonzero((lacking & (self.differing[place] > 0))[self.losses.order])

    def settled(self, trial: Trial) -> tuple[Mask, int | None]:
        """Return the rows to bet on, shape ``(n_rows,)``, and the candidate that needs further labels; None if none does.

        Candidates are tested in order, and so are labels asked: for one at a time, until it is proved or refuted.  The bets
        on it end at the first question that lacks a label.  What lacks one for a later candidate counts there at its worst,
        which can only delay its proof.
        """
        order, n_bet, asking = self.losses.order, 0, None
        worst, best = self.losses.worst[:, order], self.losses.best[:, order]
        for place in trial.sequence:
            needed = self.needed(place)
            n_bet = max(n_bet, int(needed[0]) if len(needed) else len(order))
            bets = ((trial.below, worst), (trial.above, best))
            below, above = (wealth.begun_anew().of(place).bet(losses[[place], :n_bet]) for wealth, losses in bets)
            if not (below.shown(trial.alpha) | above.shown(trial.alpha)).any() and len(needed):
                asking = place
                break
        settled = np.zeros(len(order), dtype=np.bool_)
        settled[order[:n_bet]] = True
        return settled[_unit_of_row(self.questions)], asking

    def ids(self, place: int) -> tuple[str, ...]:
        """Return the ids of the rows to label for a candidate, in the order of bets."""
        index, names = _unit_of_row(self.questions), self.recording.question_ids
        rows: dict[int, list[str]] = {}
        for row in np.flatnonzero(self.lacking).tolist():
            rows.setdefault(int(index[row]), []).append(names[row])
        return tuple(name for unit in self.losses.order[self.needed(place)].tolist() for name in sorted(rows[unit]))


def _unit_of_row(questions: Questions) -> npt.NDArray[np.int64]:
    codes = questions.units.codes
    return np.arange(len(questions.names)) if codes is None else codes


def differing_answers(recording: Recording, trial: Trial) -> Floats:
    """Return how far the answers of candidates differ from the baseline's, shape ``(n_candidates, n_questions)``.

    It is the largest possible loss under any metric of answers: 0 where they are equal, 1 where they are not or a round is
    missing; between them for means over orders of samples.
    """
    units = measured(recording, trial, _AGREEMENT)
    # Of tied samples the baseline may return any: which of them is right makes a difference even where votes agree.
    tied = Questions.of(recording).units.sums(_tied(recording).astype(np.float64)) > 0
    differing: Floats = np.where(tied, 1.0, units.worst)
    return differing


def measured(recording: Recording, trial: Trial, metric: str) -> Measured:
    """Measure the candidates of a trial by a metric, without prices."""
    orders, start_round = trial.orders, trial.loop.start_round
    return measure_candidates(
        recording, trial.candidates, trial.baseline, metric, orders=orders, start_round=start_round
    )


def check_asking(selector: str, baseline: str) -> None:
    """Raise a `DataError` if equal answers cannot be told from agreement, which compares with the full run's last answer or vote."""
    if selector not in _SELECTORS or baseline not in _BASELINES:
        raise DataError(
            f"labels are asked where answers differ from the full run's, and that needs the selector {' or '.join(_SELECTORS)} and the "
            f"baseline {' or '.join(_BASELINES)}, not {selector!r} and {baseline!r}: leave the option out, or import gold answers (--golds FILE)"
        )


def write_sheet(path: str | Path, recording: Recording, ids: Sequence[str], labels: Labels) -> None:
    """Write the rows that have a label, then those that need one, in the order of asking.

    The answers of a question are shown once each, in an order that does not tell which round gave them.

    Args:
        path: A file that ends in ``.csv``, or else JSON lines.
        recording: Recorded rounds.
        ids: The questions that need a label.
        labels: The labels so far.
    """
    places = {name: q for q, name in enumerate(recording.question_ids)}
    texts = recording.texts
    rows: list[dict[str, Any]] = [dict(row) for row in labels.sheet if row["id"] in labels.right]
    for name in ids:
        shown = _shown(recording, places[name])
        question = None if texts is None else texts[places[name]]
        rows.append({"id": name, "question": question, "answers": shown, "right": None, "gold": None})
    if Path(path).suffix == ".csv":
        write_file(path, _csv_of(rows))
        return
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _shown(recording: Recording, q: int) -> dict[str, str]:
    """Return a question's different answers by letter."""
    ids = recording.answer_ids(_normalizer(recording))[q]
    first = {own: str(text) for own, text in reversed([*zip(ids.tolist(), recording.answers[q].tolist(), strict=True)])}
    texts = [text for own, text in first.items() if not np.isnan(own)]
    question = recording.question_ids[q]
    order = hash_order([f"{question}: {text}" for text in texts], salt=_SHOWN_SALT)
    return {_letters(place): texts[at] for place, at in enumerate(order.tolist())}


def _letters(place: int) -> str:
    """Return the letters of a column, as in a spreadsheet.

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    first, last = divmod(place, len(ascii_uppercase))
    return (_letters(first - 1) if first else "") + ascii_uppercase[last]


def _normalizer(recording: Recording) -> str:
    return str(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)


def _various(recording: Recording) -> Mask:
    """Return a mask of the questions with two different answers, one without an answer included, shape ``(n_questions,)``."""
    ids = np.where(recording.seen, np.nan_to_num(recording.answer_ids(_normalizer(recording)), nan=-1.0), np.nan)
    various: Mask = np.nanmin(ids, axis=1) < np.nanmax(ids, axis=1)
    return various


def _tied(recording: Recording) -> Mask:
    """Return a mask of the questions whose samples have several most frequent answers; all False if rounds are no samples."""
    if not recording.independent:
        return np.zeros(recording.shape[0], dtype=np.bool_)
    ids = recording.answer_ids(_normalizer(recording))
    counts = np.stack([(ids == own).sum(axis=1) for own in range(int(np.nanmax(ids, initial=0.0)) + 1)], axis=1)
    most = counts.max(axis=1, keepdims=True)
    tied: Mask = ((counts == most) & (most > 0)).sum(axis=1) > 1
    return tied


def _rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.suffix != ".csv":
        yield from json_lines(path, "a row of the labelling sheet")
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the labels {str(path)!r} cannot be read: {error}") from None
    for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), start=2):
        answers = {head: own for head, own in row.items() if head and head.isupper() and own}
        yield f"{path}, row {number}", {**{head: row.get(head) or None for head in _HEADS}, "answers": answers}


def _csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, a column for each letter."""
    letters = sorted({letter for row in rows for letter in row["answers"]}, key=lambda letter: (len(letter), letter))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["id", "question", *letters, "right", "gold"])
    for row in rows:
        answers = [row["answers"].get(letter, "") for letter in letters]
        writer.writerow(
            [row["id"], row.get("question") or "", *answers, _text(row.get("right")), _text(row.get("gold"))]
        )
    return out.getvalue()


def _text(label: Any) -> str:
    return " ".join(map(str, label)) if isinstance(label, list) else "" if label is None else str(label)


def _label_of(where: str, row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the right answers of a labelled row, None if one cannot tell."""
    right, gold, answers = row.get("right"), row.get("gold"), row.get("answers")
    if isinstance(right, str):
        right = right.replace(",", " ").split()
    golds = [gold] if isinstance(gold, str) else gold or []
    letters = right or []
    if (
        not isinstance(letters, list)
        or not isinstance(golds, list)
        or not all(isinstance(one, str) for one in [*letters, *golds])
    ):
        raise DataError(
            f"{where}: 'right' must be letters of answers, {NONE_RIGHT!r} or {CANNOT_TELL!r}, and 'gold' a text or a list of texts"
        )
    if letters == [CANNOT_TELL]:
        return None
    if [letter.casefold() for letter in letters] == [NONE_RIGHT]:
        return tuple(golds)
    known = answers if isinstance(answers, dict) else {}
    unknown = [letter for letter in letters if letter.upper() not in known]
    if unknown:
        raise DataError(
            f"{where}: 'right' is {' '.join(letters)!r:.60}, and the answers are {', '.join(known) or 'missing'}. Write the letters of "
            f"the right answers, {NONE_RIGHT!r}, or {CANNOT_TELL!r} if you cannot tell; or write the right answer into 'gold'"
        )
    return (*(str(known[letter.upper()]) for letter in letters), *golds)
