"""Judge answers by labels: several labels of a question are combined, and a share of the labels may be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.tables import counted
from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.normalizers import MATCH, normalizer_of
from suffice.policy.rounds import Floats
from suffice.policy.seen import text_hash
from suffice.policy.signals import answer_ids
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.labels import NONE_RIGHT, Labels, Right, answers_in, normalizer_in

_RISK = 0.05
"""The risk that the largest share of wrong labels by double labelling is too small."""
_NO_TEXT = text_hash("")

Given = tuple[int, tuple[str, ...]]
"""The row of a labelled question, and the texts that are right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleLabels:
    """Comparison of labels, for questions with several labels.

    Attributes:
        n: Number of questions whose first two labels judge a common answer.
        n_differ: Number of these `n` questions whose first two labels disagree about an answer.
        contradicting: One entry for each question whose labels have no majority: the id of its first row, and the texts
            of its first two labels.
    """

    n: int = 0
    n_differ: int = 0
    contradicting: tuple[tuple[str, str, str], ...] = ()

    def notes(self, noise: float) -> list[str]:
        """Return notes on labels that contradict each other, and on the share of wrong labels estimated from contradictions."""
        notes = []
        if self.contradicting:
            (name, first, second), more = self.contradicting[0], len(self.contradicting) - 1
            others = f", and so do those of {counted(more, 'further question')}" if more else ""
            notes.append(
                f"the labels of question {name!r:.80} contradict each other ({first:.80}; {second:.80}){others}. Such a question counts at its "
                "worst until most of its labels agree: give it a further label, in a row of its own with the same id"
            )
        if self.n:
            seen, most = wrong_share(self.n_differ / self.n), wrong_share(_most_differing(self.n_differ, self.n))
            advice = (
                "" if most <= noise else ". A larger one takes a new decision (--set label-noise=SHARE -o OTHER.json)"
            )
            notes.append(
                f"{counted(self.n, 'question')} {'has' if self.n == 1 else 'have'} two labels, which differ in {self.n_differ:,}: if labels are "
                f"wrong independently, that is a label noise of about {100 * seen:.1f} %, and at most {100 * most:.1f} % (risk {100 * _RISK:g} %); "
                f"{100 * noise:g} % is declared{advice}"
            )
        return notes


def wrong_share(differing: float) -> float:
    """Return the share of wrong labels, given the share of questions whose two labels differ.

    If each label is wrong with probability p, two of them differ with probability 2 p (1 - p).

    >>> round(wrong_share(0.18), 9), wrong_share(0.6)
    (0.1, 0.5)
    """
    return float((1 - np.sqrt(max(1 - 2 * differing, 0.0))) / 2)


def _most_differing(n_differ: int, n: int) -> float:
    """Return the upper end of the exact one-sided confidence interval of the share `n_differ` / `n` (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    return 1.0 if n_differ == n else float(beta.ppf(1 - _RISK, n_differ + 1, n - n_differ))


def judged_by(labels: Labels, recording: Recording, noise: float = 0.0) -> tuple[Recording, DoubleLabels]:
    """Return a recording with the metric `match`, and the comparison of labels that belong to one question.

    `match` is 1 for a right answer and 0 for a wrong one. It is NaN for a question that has neither a label nor a gold
    answer.

    The metric is computed from labels and gold answers alone. Scores of the log are not read, because equal answers
    must score alike. Labels of the same question, recognised by its text or else its id, are combined: an answer is
    right if more than half of the labels that judge it say so.  If exactly half say so, the whole question is NaN.

    If labels are wrong at random, the loss that they show is on average ``1 - 2 * noise`` times the true loss.
    Questions that are judged by gold answers are scaled by the same factor, so that the factor applies to every
    question.

    Args:
        labels: The labels.
        recording: Recorded rounds.
        noise: The share of labels that are wrong, in [0, 0.5).

    Raises:
        DataError: A gold answer in a label cannot be read by the recording's normalizer.
        ConfigMismatchError: A labelled row shows answers that the recording does not have, so the sheet belongs to another log.
    """
    values = np.full(recording.shape, np.nan)
    golds = recording.per_question("golds", [None] * len(recording.question_ids)).tolist()
    for q, name in enumerate(recording.question_ids):
        if name not in labels.right and golds[q]:
            values[q] = _matches_of_golds(recording, q, golds[q])
    values = noise + (1 - 2 * noise) * values
    _refuse_other_answers(recording, labels)
    n, n_differ, contradicting = 0, 0, []
    for given in _by_question(recording, labels):
        ids, verdicts = _verdicts(recording, given)
        if len(verdicts) > 1 and (common := verdicts[0].keys() & verdicts[1].keys()):
            n, n_differ = n + 1, n_differ + any(verdicts[0][own] != verdicts[1][own] for own in common)
        majority = _majority(verdicts)
        if majority is None:
            texts = [", ".join(map(repr, right)) or NONE_RIGHT for _, right in given[:2]]
            contradicting.append((recording.question_ids[given[0][0]], texts[0], texts[1]))
            continue
        for q, own in ids.items():
            # An answer that is missing or unreadable is wrong without a label.
            matches = [noise if np.isnan(one) else float(majority[one]) for one in own.tolist()]
            values[q] = np.where(recording.seen[q], matches, np.nan)
    doubles = DoubleLabels(n=n, n_differ=n_differ, contradicting=tuple(contradicting))
    return _with_match(recording, values), doubles


def _by_question(recording: Recording, labels: Labels) -> Iterator[list[Given]]:
    """Yield the labels of each question in the order of the file; labels that say "cannot tell" are left out."""
    rows, texts = {name: q for q, name in enumerate(recording.question_ids)}, recording.texts
    of_question: dict[str, list[Given]] = {}
    for name, first in labels.right.items():
        if name not in rows:
            continue
        q = rows[name]
        text = text_hash(texts[q] or "") if texts is not None else _NO_TEXT
        own: Sequence[Right] = (first, *labels.further.get(name, ()))
        given = [(q, right) for right in own if right is not None]
        of_question.setdefault(f"id {name}" if text == _NO_TEXT else f"text {text}", []).extend(given)
    yield from filter(None, of_question.values())


def _verdicts(recording: Recording, given: Sequence[Given]) -> tuple[Mapping[int, Floats], list[dict[float, bool]]]:
    """Return the ids of a question's answers by row, and for each label a map from these ids to right or wrong.

    Equal answers have the same id.
    """
    rows = [*dict.fromkeys(q for q, _ in given)]
    texts = [*(recording.answers[q].tolist() for q in rows), *(list(right) for _, right in given)]
    every = np.array([[text for part in texts for text in part]], dtype=object)
    numbers: Floats = answer_ids(every, normalizer_of(normalizer_in(recording)))[0]
    parts = np.split(numbers, np.cumsum([len(part) for part in texts])[:-1])
    ids = dict(zip(rows, parts, strict=False))
    verdicts = []
    for (q, right), own in zip(given, parts[len(rows) :], strict=True):
        if np.isnan(own).any():
            raise DataError(
                f"the gold answer {right[int(np.argmax(np.isnan(own)))]!r:.80} of question {recording.question_ids[q]!r:.80} cannot be compared: the "
                f"log's answers are read as {normalizer_in(recording)!r}. Write it as the answers are, or mark their letters in 'right'"
            )
        judged = ids[q][~np.isnan(ids[q])].tolist()
        verdicts.append({**dict.fromkeys(judged, False), **dict.fromkeys(own.tolist(), True)})
    return ids, verdicts


def _majority(verdicts: Sequence[Mapping[float, bool]]) -> dict[float, bool] | None:
    """Map each answer to True if more than half of the labels that judge it call it right, else to False.

    Return None if exactly half of the labels that judge some answer call it right.
    """
    votes: dict[float, list[bool]] = {}
    for verdict in verdicts:
        for answer, right in verdict.items():
            votes.setdefault(answer, []).append(right)
    if any(2 * sum(own) == len(own) for own in votes.values()):
        return None
    return {answer: 2 * sum(own) > len(own) for answer, own in votes.items()}


def _matches_of_golds(recording: Recording, q: int, golds: Sequence[str]) -> Floats:
    """Return 1 for each answer of a question that equals a gold answer of the log, else 0.

    All values are NaN if no gold answer can be read.
    """
    ids, n = _ids_of(recording, q, golds), recording.shape[1]
    read = ids[n:][~np.isnan(ids[n:])]
    return np.where(recording.seen[q] & bool(len(read)), np.isin(ids[:n], read), np.nan)


def _ids_of(recording: Recording, q: int, texts: Sequence[str]) -> Floats:
    """Return ids of a question's answers and of further texts.

    Texts that are equal after normalization have the same id; an unreadable text has NaN.
    """
    every = np.array([[*recording.answers[q].tolist(), *texts]], dtype=object)
    ids: Floats = answer_ids(every, normalizer_of(normalizer_in(recording)))[0]
    return ids


def _refuse_other_answers(recording: Recording, labels: Labels) -> None:
    """Raise if a labelled row shows an answer that the log does not have."""
    rows, n = {name: q for q, name in enumerate(recording.question_ids)}, recording.shape[1]
    for row in labels.sheet:
        if (q := rows.get(row["id"])) is None or row["id"] not in labels.right:
            continue
        shown = [*answers_in(row).values()]
        ids = _ids_of(recording, q, shown)
        for text, own in zip(shown, ids[n:].tolist(), strict=True):
            if own not in ids[:n].tolist():  # also where it cannot be read
                raise ConfigMismatchError(
                    f"the labels of question {row['id']!r:.80} show the answer {text!r:.120}, which the log does not have: the sheet "
                    "belongs to another log, or somebody changed the answer. Give another file (--ask OTHER.jsonl)"
                )


def _with_match(recording: Recording, values: npt.NDArray[np.float64]) -> Recording:
    """Return the recording with `values`, shape ``(n_questions, n_rounds)``, as its metric `match`."""
    rounds = recording.table.column("round").to_numpy().astype(np.int64)
    column = pa.array(values[recording.row_question, rounds - recording.index[0]], from_pandas=True)
    head = pa.field(MATCH, pa.float64(), metadata={"kind": "metric", "unit": "score"})
    table, at = recording.table, recording.table.schema.get_field_index(MATCH)
    table = table.append_column(head, column) if at < 0 else table.set_column(at, head, column)
    return Recording(table, recording.metadata)
