"""Input of the protocol: questions with known quality at every round, and the split of questions by id hash."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import dividing_names, outcome, seen_in
from suffice.evaluation.replay.checks import require_whole
from suffice.evaluation.replay.outcomes import answers_by_stop, values_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import hash_places
from suffice.loops.judges.recording import GAIN, gains, with_columns
from suffice.policy.rounds import Floats
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.schema import cost_column

DISTANCE, SCORE = "semantic_distance", "information_score"
_LARGE_SHARE = 0.05
"""If more than this share of questions is left out as unmeasured, a note warns that the others are a selection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """A recording's questions from round 1 to `highest`, with known quality at every round where a policy may stop.

    Attributes:
        prepared: The questions, prepared for replay.
        metric: The metric of quality.
        distance: The signal `semantic_distance`, shape ``(n_questions, n_rounds)``; NaN at the first draft and where
            undefined.
        last: The last round of each question, shape ``(n_questions,)``.
        notes: Sentences about questions that were left out.
    """

    prepared: PreparedRecording
    metric: str
    distance: Floats
    last: npt.NDArray[np.int64]
    notes: tuple[str, ...]

    @property
    def highest(self) -> int:
        """The highest round, which is the full width."""
        return self.prepared.highest

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """The rounds of the columns of `distance`."""
        return self.prepared.recording.index

    @property
    def n(self) -> int:
        """Number of questions."""
        return len(self.prepared.recording.question_ids)


def embedder_of(recording: Recording) -> Mapping[str, Any] | None:
    """Return the identity of the embedder of a recording's drafts; None if it was not recorded."""
    embedder = (recording.metadata.get("depends") or {}).get("embedder")
    return embedder if isinstance(embedder, Mapping) else None


def metric_of(recording: Recording, metric: str | None) -> str:
    """Return the metric of quality: the given one, else `information_score`.

    Raises:
        DataError: No metric is given, and the recording was not judged.
    """
    if metric is not None:
        return metric
    if SCORE in recording.table.column_names:
        return SCORE
    known = ", ".join(recording.names("metric")) or "none"
    raise DataError(
        f"the recording has no {SCORE!r}: run `suffice judge drafts`, or name another quality with --metric; it has: {known}, "
        "and 'agreement' needs no gold answers"
    )


def marked(recording: Recording, metric: str) -> Recording:
    """Add the signal `information_gain` for the full cascade: the rise of a judge's recorded mark since the previous draft.

    The recording is returned unchanged if it already contains the signal, or if the metric is not from a judge.  A
    policy that reads the signal pays for the judge.

    Args:
        recording: Recorded drafts.
        metric: The mark; its costs are those of the component ``judge:METRIC``.
    """
    component, table = f"judge:{metric}", recording.table
    if GAIN in table.column_names or cost_column(component, "calls") not in table.column_names:
        return recording
    columns = (table.column(name).to_pylist() for name in (metric, "question_id", "round"))
    scores, ids, rounds = columns
    rises = gains([math.nan if score is None else score for score in scores], ids, rounds)
    components = dict(recording.metadata.get("signal_components") or {}) | {GAIN: component}
    return Recording(
        with_columns(table, {GAIN: rises}, signals={GAIN}), {**recording.metadata, "signal_components": components}
    )


def read_drafts(recording: Recording, metric: str, *, ledger: str = "live") -> Drafts:
    """Prepare the questions on which every policy can be compared.

    Two kinds of questions are left out for every policy: failed questions, and questions where a stop could return a
    draft without a measured metric.

    Args:
        recording: Recorded rounds.
        metric: A column in [0, 1], or `agreement`, see `suffice.evaluation.replay.outcome`.
        ledger: See `suffice.evaluation.replay.replay`.

    Raises:
        DataError: The drafts were not embedded, all questions have a single round, the metric is missing or out of
            range, or no question has the metric at every round.
        CensoredError: A rule ended questions before the recording's highest round.
    """
    if DISTANCE not in recording.table.column_names or np.isnan(recording.column(DISTANCE)).all():
        single = int(recording.index[-1]) < 2  # noqa: PLR2004
        raise DataError(
            "no question has a second draft, so there is nothing to stop: record with --max-rounds 2 or more"
            if single
            else f"the recording has no {DISTANCE!r}: the drafts were not embedded. Record them with "
            "`suffice draft record --set embedder=minilm`, or import the distances as a column of this name"
        )
    if "answer" not in recording.table.column_names:
        raise DataError(
            "the recording has no column 'answer', which shows the rounds with a draft: where the texts may not be kept, "
            "record a hash of each"
        )
    prepared = PreparedRecording.of(recording, [metric], ledger=ledger)
    whole, n_failed = prepared.recording, prepared.n_failed
    require_whole(whole, "every budget and policy here is compared on the same drafts")
    notes = [f"questions that failed while recording, left out of every policy alike: {n_failed}"] * bool(n_failed)
    usable = _measured(whole, metric)
    if not usable.any():
        raise DataError(
            f"no question has {metric!r} at every round at which a policy may stop: judge the drafts (`suffice judge drafts`), "
            "or name another quality with --metric"
        )
    if not usable.all():
        n_unusable = int((~usable).sum())
        note = (
            f"{n_unusable} of {len(usable)} questions are left out of every policy alike: {metric} was not measured at every "
            "round at which one may stop"
        )
        remedy = "The others are a selection: measure these, too (`suffice judge drafts --set retry-unreadable=true`)"
        notes.append(f"WARNING: {note}. {remedy}" if n_unusable > _LARGE_SHARE * len(usable) else note)
        prepared = replace(prepared, recording=whole.select(usable))
    recording = prepared.recording
    last = recording.index[recording.seen.shape[1] - 1 - np.argmax(recording.seen[:, ::-1], axis=1)]
    short = int((last < 2).sum())  # noqa: PLR2004
    if short == len(last):
        raise DataError("every remaining question has one draft, so there is nothing to stop")
    if short:
        notes.append(f"questions with one draft: {short}; every policy returns it")
    distance = recording.column(DISTANCE)
    later = recording.seen & (recording.index >= 2)  # noqa: PLR2004
    undefined = int((np.isnan(distance) & later).sum())
    if undefined:
        notes.append(
            f"the distance is undefined in {undefined} of {int(later.sum())} revisions, where nothing converges"
        )
    return Drafts(prepared=prepared, metric=metric, distance=distance, last=last, notes=tuple(notes))


def _measured(recording: Recording, metric: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the questions that have a draft, and known quality at every round where a policy may stop."""
    values = outcome(recording, metric)
    policy = Policy(max_rounds=max(1, int(recording.index[-1])))
    view = policy.view(recording.rounds(()))
    offset = int(view.index[0] - recording.index[0])
    by_stop = values_by_stop(answers_by_stop(policy.selector, view), view.seen, values[:, offset:])
    return np.asarray(view.seen.any(axis=1) & ~np.isnan(by_stop).any(axis=1), dtype=np.bool_)


def split_drafts(recording: Recording, share: float) -> tuple[Recording, Recording]:
    """Split a recording into test and dev questions by a hash of their ids.

    Rows of one question stay together, because the id of their cluster is hashed.

    Args:
        recording: Recorded rounds.
        share: The expected share of dev questions, in (0, 1).

    Raises:
        DataError: The share is outside (0, 1), or a part has no questions.
    """
    if not 0 < share < 1:
        raise DataError(f"a share of dev questions lies strictly between 0 and 1, as 0.25, not {share!r}")
    dev = hash_places(dividing_names(recording)) < share
    if dev.all() or not dev.any():
        raise DataError(
            f"of {len(dev)} questions {int(dev.sum())} fall to dev by their id hash: record more, change dev-share "
            f"({share!r}), or record dev questions apart and give --dev"
        )
    return recording.select(~dev), recording.select(dev)


def check_apart(test: Recording, dev: Seen) -> None:
    """Raise if test and dev share questions.

    Hashes of ids and of texts are compared, both of rows and of clusters.

    Raises:
        ConfigMismatchError: A question is in both test and dev.
    """
    shared = seen_in(test, dev)
    if shared.any():
        first = str(test.clusters[int(np.argmax(shared))])
        raise ConfigMismatchError(
            f"{int(shared.sum())} questions are in dev and test, {first!r} for one: what is selected on a question must "
            "not be reported on it. Record other dev questions, or leave out --dev to split by id hash"
        )
