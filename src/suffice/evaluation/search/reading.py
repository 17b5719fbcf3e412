"""The parts of a recording for a search: opened in any process, block by block, each question on its side of the split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay.blocks import BlockReader, RecordingBlock, Source
from suffice.evaluation.replay.checks import require_whole
from suffice.evaluation.replay.outcomes import MultipleChoice
from suffice.evaluation.replay.streaming import BLOCK_ROWS
from suffice.evaluation.search.data import by_prompt
from suffice.evaluation.statistics import Keys, hash_places, keys_of
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import Mask
from suffice.policy.seen import id_hash, one_name_per_text
from suffice.recordings.computed import source_columns
from suffice.recordings.pieces import Piece
from suffice.recordings.schema import column_kind

__all__ = [
    "HASHED",
    "Facts",
    "SearchSource",
    "TuneShare",
    "complete",
    "facts_of",
    "linked_names",
    "questions_with_texts",
]

HASHED = ("question_id", "round", "answer")
"""Columns that the hash of the data reads, beside metrics."""


class SearchSource(Source):
    """A recording that is searched piece by piece, in whatever process.

    Raises:
        DataError: There is no such recording, it has no rows, or it holds independent samples.
        SchemaError: It is not a recording, or is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if self.empty().independent:
            raise DataError(
                f"{str(path)!r} holds independent answers that vote, and over parts only rounds that follow one another are "
                "searched: search without jobs, with all parts in memory"
            )

    def columns_of(self, metric: str) -> set[str]:
        """Return the columns from which a metric is read or computed."""
        name = metric.split(">", maxsplit=1)[0].strip()
        return {name} if name in self.schema.names else {"golds", "answer"}

    @property
    def cost_columns(self) -> set[str]:
        """The columns of costs."""
        return {name for name in self.schema.names if column_kind(name) == "cost"}

    def reader(self, piece: Piece, columns: Iterable[str]) -> BlockReader:
        """Return the questions that begin in a piece, in blocks.

        Args:
            piece: The piece.
            columns: Those that are read; the name of the question, its rounds and end always are.
        """
        wanted = {"question_id", "round", "end", "cluster", *source_columns({*columns}, self.schema)}
        return self.blocks(piece, [name for name in self.schema.names if name in wanted], BLOCK_ROWS)

    def block(self, table: pa.Table, starts: npt.NDArray[np.int64]) -> RecordingBlock:
        """Return rows of whole questions as a block.

        Raises:
            DataError: They repeat questions.
        """
        block = super().block(table, starts)
        if block.repeats:
            raise DataError(
                "the rows of this recording repeat questions (column 'cluster'), and a search over parts takes every question "
                "for itself: search without jobs, with all parts in memory, or drop the column"
            )
        return block


def complete(block: RecordingBlock) -> RecordingBlock | None:
    """Return the questions of a block that did not fail while recording; None if all did."""
    failed = block.failed
    if failed.all():
        return None
    return block.select(~failed) if failed.any() else block


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneShare:
    """Which questions of one recording are for tuning: by the hash of their names and a seed, as `split` divides them.

    Attributes:
        share: In (0, 1).
        seed: Another seed gives another division.
        linked: The name by which a question is divided that shares its text with another, by its own.
    """

    share: float
    seed: int
    linked: Mapping[str, str] = field(default_factory=dict)

    def of(self, block: RecordingBlock) -> Mask:
        """Return which questions are for tuning."""
        names = [self.linked.get(name, name) for name in block.question_ids]
        places: Mask = hash_places(names, salt=f"{self.seed}:") < self.share
        return places


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """What a search must know of all questions before it fits anything, also of those that failed; parts are added.

    Attributes:
        keys: Of the names of the questions.
        texts: Of their normalised texts, 0 where one is missing.
        prompts: Their prompts.
        choice: Whether they are multiple choice.
        digest: Of identities, answers and metrics, whatever the order of the questions.
        failed: Which of them failed while recording; prompts, choice and digest are without these.
    """

    keys: Keys
    texts: Keys
    failed: Mask
    prompts: frozenset[str]
    choice: MultipleChoice
    digest: int

    @classmethod
    def none(cls) -> Facts:
        """Return the facts of no questions."""
        empty = np.empty(0, dtype=np.uint64)
        failed = np.empty(0, dtype=np.bool_)
        return cls(keys=empty, texts=empty, failed=failed, prompts=frozenset(), choice=MultipleChoice(), digest=0)

    def __add__(self, other: Facts) -> Facts:
        return Facts(
            keys=np.concatenate([self.keys, other.keys]),
            texts=np.concatenate([self.texts, other.texts]),
            failed=np.concatenate([self.failed, other.failed]),
            prompts=self.prompts | other.prompts,
            choice=self.choice + other.choice,
            digest=(self.digest + other.digest) % 2**64,
        )

    @property
    def n_failed(self) -> int:
        """How many questions failed while recording."""
        return int(self.failed.sum())

    @property
    def complete(self) -> Facts:
        """The same without the questions that failed."""
        keep = ~self.failed
        return replace(self, keys=self.keys[keep], texts=self.texts[keep], failed=self.failed[keep])

    @property
    def prompt(self) -> str:
        """The prompt of all questions, see `by_prompt`.

        Raises:
            ConfigMismatchError: There are several.
        """
        if len(self.prompts) > 1:
            raise ConfigMismatchError(
                f"over parts the rounds of one prompt are searched, and these are of several ({', '.join(sorted(self.prompts))}): "
                "search without jobs, with all parts in memory, which pairs the prompts of a question"
            )
        return next(iter(self.prompts), "")

    @property
    def repeated_texts(self) -> Keys:
        """The texts that several questions share."""
        values, counts = np.unique(self.texts[self.texts != 0], return_counts=True)
        return np.asarray(values[counts > 1])

    def refuse_repeated(self) -> None:
        """Raise a `DataError` if a question is there twice, which no part shows."""
        if len(np.unique(self.keys)) < len(self.keys):
            raise DataError(
                "the rows of some questions do not follow each other: sort the parts by question_id and round"
            )


def facts_of(stored: RecordingBlock) -> Facts:
    """Return the facts of a block.

    Raises:
        CensoredError: A rule ended questions before the recording's highest round.
    """
    require_whole(stored, "a search tries rules that stop later")
    texts = stored.texts or [None] * stored.shape[0]
    every = replace(
        Facts.none(),
        keys=keys_of(stored.question_ids),
        texts=np.array([_text_key(text) for text in texts], dtype=np.uint64),
        failed=stored.failed,
    )
    block = complete(stored)
    if block is None:
        return every
    return replace(
        every,
        prompts=frozenset(by_prompt(block)),
        choice=MultipleChoice.of(block),
        digest=_content_digest(block, block.names("metric")),
    )


def _text_key(text: str | None) -> int:
    words = normalize_answer(text or "")
    return int(id_hash(words), 16) if words else 0


def _content_digest(block: RecordingBlock, metrics: Sequence[str]) -> int:
    names = [name for name in (*HASHED, *metrics) if name in block.table.column_names]
    columns = [block.table.column(name).to_pylist() for name in names]
    ends = [*np.flatnonzero(np.diff(block.row_question)) + 1, block.table.num_rows]
    total, start = 0, 0
    for end in ends:
        text = json.dumps([column[start:end] for column in columns])
        total += int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        start = end
    return total % 2**64


def questions_with_texts(block: RecordingBlock, texts: Keys) -> list[tuple[str, str]]:
    """Return name and text of the questions that have one of some texts."""
    wanted = {*texts.tolist()}
    return [
        (name, text)
        for name, text in zip(block.question_ids, block.texts or (), strict=False)
        if text is not None and _text_key(text) in wanted
    ]


def linked_names(questions: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the names by which questions of one text are divided, by their own."""
    pairs = [*questions]
    names = [name for name, _ in pairs]
    return dict(zip(names, one_name_per_text(names, [text for _, text in pairs]), strict=True))
