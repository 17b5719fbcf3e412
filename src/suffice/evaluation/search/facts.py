"""Facts about all questions that a search needs before it fits anything, and the choice of tune questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from suffice.errors import DataError
from suffice.evaluation.replay import dividing_names
from suffice.evaluation.replay.blocks import RecordingBlock
from suffice.evaluation.replay.checks import require_whole
from suffice.evaluation.replay.outcomes import MultipleChoice
from suffice.evaluation.search.data import prompt_names
from suffice.evaluation.search.sources import complete, unit_names
from suffice.evaluation.statistics import Keys, hash_places, keys_of
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import Mask
from suffice.policy.seen import id_hash, one_name_per_text
from suffice.recordings.recording import Recording

HASHED = ("question_id", "round", "answer")
"""Columns that the hash of the data covers, besides metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneShare:
    """The choice of tune questions: by the hash of the unit's name and a seed.

    Attributes:
        share: Share of the tune questions, in (0, 1).
        seed: Another seed gives another division.
        linked: For units that share a text with another unit, the common name that is hashed instead of the unit's
            name.
    """

    share: float
    seed: int
    linked: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise DataError(f"the tune share lies strictly between 0 and 1, as 0.5, not {self.share!r}")

    def of(self, block: Recording) -> Mask:
        """Return a mask of the tune questions of a block."""
        return self._of_names([self.linked.get(name, name) for name in unit_names(block)])

    def _of_names(self, names: Sequence[str]) -> Mask:
        places: Mask = hash_places(names, salt=f"{self.seed}:") < self.share
        return places

    def divided(self, recording: Recording) -> Mask:
        """Return a mask of the tune questions of a whole recording; questions with the same text are on the same side."""
        return self._of_names(dividing_names(recording))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """Facts about questions that a search needs before fitting; the facts of several parts can be added.

    Questions that failed while recording are included, unless stated otherwise.

    Attributes:
        units: Keys of the names of the questions' units, see `unit_names`.
        texts: Keys of the questions' normalised texts, 0 for a question without a text.
        choice: Counts that show whether the questions are multiple choice.
        digest: Hash of identities, answers and metrics; independent of the order of the questions.
        failed: Keys of the questions that failed while recording; prompts, choice and digest leave them out.
    """

    keys: Keys
    units: Keys
    texts: Keys
    failed: Mask
    prompts: frozenset[str]
    choice: MultipleChoice
    digest: int

    @classmethod
    def none(cls) -> Facts:
        """Return facts about no questions, to which the facts of parts can be added."""
        no = np.empty(0, dtype=np.uint64)
        failed, choice = np.empty(0, dtype=np.bool_), MultipleChoice()
        return cls(keys=no, units=no, texts=no, failed=failed, prompts=frozenset(), choice=choice, digest=0)

    def __add__(self, other: Facts) -> Facts:
        return Facts(
            keys=np.concatenate([self.keys, other.keys]),
            units=np.concatenate([self.units, other.units]),
            texts=np.concatenate([self.texts, other.texts]),
            failed=np.concatenate([self.failed, other.failed]),
            prompts=self.prompts | other.prompts,
            choice=self.choice + other.choice,
            digest=(self.digest + other.digest) % 2**64,
        )

    @property
    def n_failed(self) -> int:
        """Number of questions that failed while recording."""
        return int(self.failed.sum())

    @property
    def complete(self) -> Facts:
        """The facts without the questions that failed."""
        keep = ~self.failed
        kept = {name: getattr(self, name)[keep] for name in ("keys", "units", "texts", "failed")}
        return replace(self, **kept)

    @property
    def several_prompts(self) -> bool:
        """True if the rounds have more than one prompt."""
        return len(self.prompts) > 1

    @property
    def repeated_texts(self) -> Keys:
        """The texts that several questions share."""
        return _repeated(self.texts[self.texts != 0])

    def together(self, *, is_clustered: bool) -> Keys:
        """Return the sorted keys of the questions that share their unit with others and must be read together.

        Questions that failed while recording are left out.

        Args:
            is_clustered: Whether a column names the units; otherwise questions with the same text form one unit.
        """
        own = self.complete
        several = np.isin(own.units, _repeated(own.units))
        if not is_clustered:
            several |= np.isin(own.texts, own.repeated_texts)
        return np.sort(own.keys[several])

    def seen_in(self, other: Facts) -> Mask:
        """Return a mask of the questions that are also in `other`, by name, unit or text."""
        names = np.concatenate([other.keys, other.units])
        same_text: Mask = (self.texts != 0) & np.isin(self.texts, other.texts)
        same: Mask = np.isin(self.keys, names) | np.isin(self.units, names) | same_text
        return same

    def refuse_repeated(self) -> None:
        """Raise a `DataError` if a question occurs twice; only facts of all parts can show this."""
        if len(np.unique(self.keys)) < len(self.keys):
            raise DataError(
                "the rows of some questions do not follow each other: sort the parts by question_id and round"
            )


def _repeated(keys: Keys) -> Keys:
    values, counts = np.unique(keys, return_counts=True)
    return np.asarray(values[counts > 1])


def facts_of(stored: RecordingBlock) -> Facts:
    """Return the facts of a block.

    Raises:
        CensoredError: A rule ended questions before the recording's highest round.
    """
    require_whole(stored, "a search tries rules that stop later")
    texts = stored.texts or [None] * stored.shape[0]
    keys, names = keys_of(stored.question_ids), unit_names(stored)
    every = replace(
        Facts.none(),
        keys=keys,
        units=keys if names == stored.question_ids else keys_of(names),
        texts=np.array([_text_key(text) for text in texts], dtype=np.uint64),
        failed=stored.failed,
    )
    block = complete(stored)
    if block is None:
        return every
    return replace(
        every,
        prompts=frozenset(prompt_names(block).tolist()),
        choice=MultipleChoice.of(block),
        digest=_content_digest(block, block.names("metric")),
    )


def _text_key(text: str | None) -> int:
    words = normalize_answer(text or "")
    return int(id_hash(words), 16) if words else 0


def _content_digest(block: RecordingBlock, metrics: Sequence[str]) -> int:
    names = [name for name in (*HASHED, *metrics) if name in block.table.column_names]
    rounds = block.table.column("round").to_numpy()
    rows = pa.array(np.lexsort((rounds, block.row_question)))  # the order of rounds in the file must not matter
    columns = [block.table.column(name).take(rows).to_pylist() for name in names]
    ends = [*np.flatnonzero(np.diff(block.row_question)) + 1, block.table.num_rows]
    total, start = 0, 0
    for end in ends:
        text = json.dumps([column[start:end] for column in columns])
        total += int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        start = end
    return total % 2**64


def questions_with_texts(block: RecordingBlock, texts: Keys) -> list[tuple[str, str]]:
    """Return unit and text of the questions whose text is in `texts`."""
    wanted = {*texts.tolist()}
    return [
        (name, text)
        for name, text in zip(unit_names(block), block.texts or (), strict=False)
        if text is not None and _text_key(text) in wanted
    ]


def linked_names(questions: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Map units that share a text to a common name, whose hash assigns all of them to the same side."""
    pairs = [*questions]
    names = [name for name, _ in pairs]
    return dict(zip(names, one_name_per_text(names, [text for _, text in pairs]), strict=True))
