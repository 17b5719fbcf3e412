"""Check that later questions come from the same loop as an earlier decision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.common.tables import counted
from suffice.errors import ConfigMismatchError, DataError, UnsettledError
from suffice.evaluation.replay.outcomes import abandoned
from suffice.evaluation.replay.prices import Price, currency_of
from suffice.policy.seen import id_hash
from suffice.recordings.audits import without_audits
from suffice.recordings.recording import Recording
from suffice.recordings.runs import begins_closed_book, labels_differ, refuse_several_loops, single_labels
from suffice.verdicts.decisions.losses import prices_text

if TYPE_CHECKING:
    from suffice.verdicts.decisions.trial import Trial

_AFTER_SINGLE = re.compile(r"nothing to decide; (if .+)")
"""The way out that an import names where each question has one round."""

_BLOCK = 65_536  # rows processed at once; bounds memory


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStops:
    """The rounds at which a loop stops by itself, and the names of its model, prompt and system.

    Attributes:
        lowest_cap: The lowest round at which a question ended because no more rounds were allowed; 0 if none did.
        own: Whether a rule of the loop stopped some questions.
        start_round: 0 if the loop stopped some questions at round 0, as a gate does; else 1, because round 0 is then
            only a closed-book answer for comparison.
        samples: Whether its rounds are independent answers that vote.
        labels: Names of the loop's model, prompt, system and so on, if the recording contains them.
    """

    highest: int
    lowest_cap: int
    own: bool
    start_round: int = 1
    samples: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, recording: Recording) -> LoopStops:
        """Return the stops of a recording's loop."""
        last, ends = np.where(recording.seen, recording.index, -1).max(axis=1), recording.ends
        capped = last[ends == "max_rounds"]
        lowest_cap = int(capped.min()) if len(capped) else 0
        by_rule = ends == "rule"
        return cls(
            highest=int(recording.index[-1]),
            lowest_cap=lowest_cap,
            own=bool(by_rule.any()),
            start_round=0 if (by_rule & (last == 0)).any() else 1,
            samples=recording.independent,
            labels=single_labels(recording),
        )

    def refuse_others(self, recording: Recording, *, own_is_baseline: bool) -> None:
        """Raise a `ConfigMismatchError` if a recording comes from another loop, or if this loop has changed.

        The loop has changed if it now goes further or stops earlier than before.

        A loop that already follows the advice gives no evidence: it would be compared with itself, so it would never
        lose anything.
        """
        other = LoopStops.of(recording)
        for name in self.labels.keys() & other.labels.keys():
            if labels_differ(self.labels[name], other.labels[name]):
                raise ConfigMismatchError(
                    f"the earlier decision was about the {name} {self.labels[name]!r:.80}, and this log is of "
                    f"{other.labels[name]!r:.80}: another loop. Decide anew, in another file (-o OTHER.json)"
                )
        if other.samples != self.samples:
            raise ConfigMismatchError(
                f"the earlier decision was about {'independent samples' if self.samples else 'rounds that follow one another'}, and "
                f"this log holds {'samples' if other.samples else 'rounds that do'}: decide anew, without the earlier decision"
            )
        if other.highest > self.highest:
            raise ConfigMismatchError(
                f"the earlier decision was about a cap of {self.highest}, and this log goes to round {other.highest}: decide "
                "anew, without the earlier decision"
            )
        if other.start_round < self.start_round:
            raise ConfigMismatchError(
                "some of these questions end at round 0, and none of those of the earlier decision: another loop, with a gate. "
                "Decide anew, without the earlier decision"
            )
        if self.own:
            return  # a few questions may all stop early
        if other.own and own_is_baseline:
            n = int((recording.ends == "rule").sum())
            raise ConfigMismatchError(
                f"a rule ended {n} of these {len(recording.ends)} questions, and none of those of the earlier decision: "
                "their later rounds are missing, so there is nothing to compare with. Record later questions without the rule, or "
                "decide anew"
            )
        if 0 < other.lowest_cap < self.lowest_cap:
            raise ConfigMismatchError(
                f"the earlier decision was about a cap of {self.lowest_cap}, and this log has one of {other.lowest_cap}: what "
                "the rounds after it would have given is unknown. Record later questions with the old cap, or decide anew"
            )

    def refuse_other_cap(self, tune: LoopStops) -> None:
        """Raise a `ConfigMismatchError` if the loop of the tune questions has another cap than this loop."""
        if self.lowest_cap and tune.lowest_cap and self.highest != tune.highest:
            raise ConfigMismatchError(
                f"the tune questions have a cap of {tune.highest}, and the others one of {self.highest}: tune questions must be "
                "recorded alike"
            )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LoopStops:
        """Read the stops of a decision file."""
        numbers = {name: int(data[name]) for name in ("highest", "lowest_cap", "start_round")}
        labels = {str(name): str(value) for name, value in (data.get("labels") or {}).items()}
        return cls(**numbers, own=bool(data["own"]), samples=bool(data.get("samples", False)), labels=labels)


def one_loop(recording: Recording, tune: Recording | None, baseline: str | None) -> tuple[Recording, Recording | None]:
    """Raise if a recording contains several loops; otherwise return both recordings.

    If the logged loop itself is the baseline, the rounds of audits are removed.
    """
    try:
        refuse_several_loops(recording, tune)
    except UnsettledError:
        refuse_single_rounds(recording)  # to filter by model or prompt would not help then
        raise
    if baseline not in (None, "recorded"):
        return recording, tune
    if "stop_round" in recording.table.column_names:
        recording = without_audits(recording)
    if tune is not None and "stop_round" in tune.table.column_names:
        tune = without_audits(tune)
    return recording, tune


def refuse_single_rounds(recording: Recording) -> None:
    """Raise a `DataError` if no question has a second round, because then there is nothing to stop."""
    if len(recording.index) and int(recording.index[-1]) <= 1 and not begins_closed_book(recording):
        noted = next(filter(None, map(_AFTER_SINGLE.search, recording.metadata.get("notes", ()))), None)
        remedy = f"Import the log in another way: {noted[1]}" if noted else "Log every round"
        raise DataError(f"every question has a single round: there is nothing to stop earlier. {remedy}")


def fingerprints(recording: Recording, metric: str) -> dict[str, str]:
    """Map the hash of each question's id to a hash of its answers and scores.

    Args:
        recording: Recorded rounds.
        metric: The metric to keep; its scores are hashed, too, unless they are computed from the answers.
    """
    name, table = abandoned(metric) or metric.split(">", maxsplit=1)[0].strip(), recording.table
    rounds = table.column("round").to_numpy().astype(np.int64)
    scores = np.zeros(len(rounds))
    if name in table.column_names:
        # Files of the same scores may differ in the last digit, and in the sign of zero.
        scores = np.round(recording.column(name), 9)[recording.row_question, rounds - recording.index[0]] + 0.0
    digests = np.empty(len(rounds), dtype=np.uint64)
    for first in range(0, len(rounds), _BLOCK):
        part = slice(first, first + _BLOCK)
        texts: list[Any] = [None] * len(rounds[part])
        if "answer" in table.column_names:
            texts = table.column("answer").slice(first, _BLOCK).to_pylist()
        rows = zip(rounds[part].tolist(), texts, scores[part].tolist(), strict=True)
        digests[part] = [int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest(), "big") for row in rows]
    marks = np.zeros(len(recording.question_ids), dtype=np.uint64)
    np.add.at(marks, recording.row_question, digests)  # whatever the order of the rows
    return {id_hash(name): f"{mark:016x}" for name, mark in zip(recording.question_ids, marks.tolist(), strict=True)}


def refuse_other_outcomes(known: Mapping[str, str], recording: Recording, metric: str) -> None:
    """Raise a `ConfigMismatchError` if the answers or scores of a question have changed since the question was used."""
    now = fingerprints(recording, metric)
    others = [
        name
        for name, (key, mark) in zip(recording.question_ids, now.items(), strict=True)
        if known.get(key, mark) != mark
    ]
    if others:
        raise ConfigMismatchError(
            f"{len(others)} of {len(now)} questions have names that the earlier decision knows, with other answers or scores "
            f"(question {others[0]!r}): another loop's rounds are not evidence about this one. Decide anew, in another file "
            "(-o OTHER.json); if these are other questions, give them other names"
        )


def same_prices(
    prices: Price | Mapping[str, Price] | None, logged: Recording, trial: Trial, notes: list[str]
) -> Price | Mapping[str, Price] | None:
    """Return the prices if the earlier decision used the same prices, else None.

    Sums at different prices cannot be added.

    Raises:
        ConfigMismatchError: The earlier decision is about saving money and used prices that differ from `prices`, or it
            counts money in another currency.
    """
    if prices is not None and trial.prices and prices_text(prices) != trial.prices:
        if trial.cost == "money":
            raise ConfigMismatchError("the earlier decision was about other prices: give the same, or decide anew")
        notes.append("the prices are not those of the earlier decision, so savings in money are left out from now on")
        prices = None
    if (currency := currency_of(logged, prices)) != trial.currency:
        raise ConfigMismatchError(
            f"the earlier decision counts money in {trial.currency}, and this log in {currency}: convert one of them, or decide anew "
            "(-o OTHER.json)"
        )
    return prices


def rounds_text(recording: Recording) -> str:
    """Return the behaviour of the logged loop, in words."""
    lengths = recording.seen[:, recording.index >= 1].sum(axis=1)
    low, high = int(lengths.min()), int(lengths.max())
    if recording.independent:
        return counted(high, "sample") if low == high else f"{low} to {high} samples"
    if low == high:
        return f"cap {high}"
    if ((recording.ends == "rule") & ~recording.unexplained).any():
        return f"your own stops, {low} to {high} rounds"
    return f"{low} to {high} rounds"
