"""Questions that a model answered both without and with retrieval, as needed to judge a gate offline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.files import json_lines
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Floats
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table

BUNDLED_ANSWERS = ("hotpotqa_llama31_tune", "hotpotqa_llama31_eval", "2wiki_llama31_tune")
"""Names of the sets that ship with the package; DATA.md lists their sources and licences."""

ANSWERED_FIELDS = ("id", "question", "answers", "no_retrieval", "one_retrieval")
"""Fields of a line: `answers` are gold answers; the last two fields are the model's answers without and with retrieval."""

_CALLS_BY_ROUND = {"generator": (1.0, 1.0), "gate": (0.0, 0.0), "retrieval": (0.0, 1.0)}
"""Calls by component at rounds 0 and 1.  The gate has a column, even of zeros, because replay then charges round 0's answer
only to questions for which the gate returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One question with a model's two answers.

    Attributes:
        question_id: Id of the question, by which results are paired.
        question: Its text.
        golds: Gold answers, at least one.
        closed_book: The answer without retrieval; None if missing, which scores 0.
        retrieved: The answer with retrieval; None if missing, which scores 0.
        type: The data set's own type of question; None if not given.
    """

    question_id: str
    question: str
    golds: tuple[str, ...]
    closed_book: str | None
    retrieved: str | None
    type: str | None = None


def load_answered(source: str | Path) -> list[Answered]:
    """Read a bundled set by its name, or JSON lines with `id, question, answers, no_retrieval, one_retrieval`.

    >>> first = load_answered("hotpotqa_llama31_tune")[0]
    >>> first.closed_book, first.golds
    ('Kap', ('an American football quarterback',))

    Raises:
        DataError: The set or file does not exist, or a question has no gold answers or occurs twice.
        SchemaError: A line does not have these fields.
    """
    path = Path(source)
    if str(source) in BUNDLED_ANSWERS:
        path = Path(str(files("suffice_gates") / "data" / "answers" / f"{source}.jsonl.gz"))
    if not path.is_file():
        raise NotFoundError(f"there are no answers at {str(source)!r}; bundled are: {', '.join(BUNDLED_ANSWERS)}")
    questions = [_answered(row, where) for where, row in json_lines(path, "a question answered twice")]
    _check_answered(questions)
    return questions


def _answered(row: dict[str, Any], where: str) -> Answered:
    try:
        golds = row["answers"]
        texts = [row["id"], row["question"], *golds]
        both = [row["no_retrieval"], row["one_retrieval"]]
    except (KeyError, TypeError) as error:
        raise SchemaError(
            f"{where}: not a question answered twice ({error!r}): a line has {', '.join(ANSWERED_FIELDS)}, where answers lists the "
            "gold answers and the last two are the model's own"
        ) from None
    if isinstance(golds, str) or not all(isinstance(text, str) for text in texts):
        raise SchemaError(f"{where}: id and question must be text, answers a list of texts")
    if not all(answer is None or isinstance(answer, str) for answer in both):
        raise SchemaError(f"{where}: no_retrieval and one_retrieval must be text, or null where there is no answer")
    return Answered(
        question_id=row["id"],
        question=row["question"],
        golds=tuple(golds),
        closed_book=both[0],
        retrieved=both[1],
        type=row.get("type"),
    )


def _check_answered(questions: Sequence[Answered]) -> None:
    if not questions:
        raise DataError("no questions: a gate is judged on questions that were answered without and with retrieval")
    bare = [item.question_id for item in questions if not item.golds]
    if bare:
        raise DataError(
            f"{len(bare)} questions have no gold answers, the first is {bare[0]!r}: whether their answers are right is "
            "unknown. Leave them out"
        )
    if len({item.question_id for item in questions}) < len(questions):
        raise DataError("a question id occurs twice: it must name one question")


def answered_recording(
    questions: Sequence[Answered],
    scores: Mapping[str, npt.ArrayLike] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Recording:
    """Build a recording of answers: round 0 without retrieval, round 1 with it, one call each.

    The recording can be replayed, certified and reported on like any other.  Tokens and seconds are unknown.

    Args:
        questions: Questions answered both ways.
        scores: Signals of round 0 by name, shape ``(n_questions,)``; NaN where undefined. Every comparison of NaN with
            a threshold is false.
        metadata: Metadata of the recording.

    Raises:
        DataError: There are no questions, one has no gold answers or occurs twice, or scores and questions differ in number.
    """
    _check_answered(questions)
    rows: list[dict[str, Any]] = []
    for item in questions:
        for r, answer in enumerate((item.closed_book, item.retrieved)):
            row: dict[str, Any] = {
                "question_id": item.question_id,
                "round": r,
                "end": "max_rounds",
                "question": item.question,
                "question_type": item.type,
                "golds": list(item.golds),
                "answer": answer,
            }
            row |= {f"cost.{component}.calls": calls[r] for component, calls in _CALLS_BY_ROUND.items()}
            row |= {name: metric(answer, item.golds) for name, metric in METRICS.items()}
            rows.append(row)
    recording = Recording(build_table(rows), metadata)
    return with_scores(recording, scores or {})


def with_scores(recording: Recording, scores: Mapping[str, npt.ArrayLike], *, component: str = "gate") -> Recording:
    """Add signals of a gate at round 0; at later rounds they are undefined.

    A gate decides before the closed-book answer exists.  Replay therefore charges that answer only for questions that
    the gate answers directly.

    Args:
        recording: A recording with round 0.
        scores: Signals by name, shape ``(n_questions,)``, in the order of `recording.question_ids`.
        component: The component whose call produces the signals; `generator` for signals of the closed-book answer
            itself.

    Raises:
        DataError: Round 0 is missing, a column of that name exists, or scores and questions differ in number.
    """
    require_round_0(recording)
    table = recording.table
    place = {question_id: q for q, question_id in enumerate(recording.question_ids)}
    rows = [place[question_id] for question_id in table.column("question_id").to_pylist()]
    first = np.array(table.column("round").to_pylist()) == 0
    for name, score in scores.items():
        values: Floats = np.asarray(score, dtype=np.float64)
        if values.shape != (len(place),):
            raise DataError(
                f"{name!r} has the shape {values.shape} for {len(place)} questions: give one score for each"
            )
        if name in table.column_names:
            raise DataError(f"the recording has a column {name!r} already: name the score otherwise")
        column = np.where(first, values[rows], np.nan)
        field = pa.field(name, pa.float64(), metadata={"kind": "signal", "unit": "score"})
        table = table.append_column(field, pa.array([None if np.isnan(v) else float(v) for v in column], pa.float64()))
    components = {**recording.signal_components, **dict.fromkeys(scores, component)}
    return Recording(table, {**recording.metadata, "signal_components": components})


def without_gate(recording: Recording) -> Recording:
    """Remove the costs of the recorded gate, so that another gate can be judged on the recording.

    If the closed-book answer continued the gate's pass, the answer has no recorded call of its own; the cost of the
    pass is then moved to the answer. In all other rows the cost of the gate's pass is dropped. The gate's cost columns
    stay, with zeros, so that replay still charges the answer of round 0 only where it is returned.
    """
    table = recording.table
    kinds = [name.rsplit(".", 1)[-1] for name in recording.names("cost") if name.startswith("cost.gate.")]
    if not kinds:
        return recording
    calls = _floats(table, "cost.generator.calls")
    resumed = (np.array(table.column("round").to_pylist()) == 0) & (calls == 0)
    for kind in kinds:
        gate, generator = f"cost.gate.{kind}", f"cost.generator.{kind}"
        if generator in table.column_names:
            spent = _floats(table, generator)
            table = _replaced(table, generator, np.where(resumed, spent + _floats(table, gate), spent))
        table = _replaced(table, gate, np.zeros(table.num_rows))
    return Recording(table, recording.metadata)


def _floats(table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    values: Floats = table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _replaced(table: pa.Table, name: str, values: Floats) -> pa.Table:
    place = table.column_names.index(name)
    cells = pa.array([None if np.isnan(value) else float(value) for value in values], pa.float64())
    return table.set_column(place, pa.field(name, pa.float64(), metadata=table.schema.field(name).metadata), cells)


def require_round_0(recording: Recording) -> None:
    """Raise a `DataError` if a recording has no round 0 (closed-book answers), or no round after round 0."""
    if int(recording.index[0]) != 0 or len(recording.index) == 1:
        raise DataError(
            f"a gate chooses between the closed-book answer and retrieval, and this recording has rounds "
            f"{int(recording.index[0])} to {int(recording.index[-1])}: record with start_round 0 and at least one round"
        )


def questions_of(recording: Recording) -> list[str]:
    """Return the text of each question, in the order of `recording.question_ids`.

    Raises:
        DataError: The recording does not contain texts.
    """
    texts: Iterable[Any] = recording.per_question("question", [None] * len(recording.question_ids)).tolist()
    listed = [text if isinstance(text, str) else "" for text in texts]
    if not all(text.strip() for text in listed):
        raise DataError(
            f"{listed.count('')} questions have no text in the column 'question': a gate on questions reads it"
        )
    return listed
