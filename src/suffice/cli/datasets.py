"""Options for the questions of a data set and for the passages that are retrieved for them.

Modules for these objects are imported only when needed, see `suffice.cli.options`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typer import Argument, BadParameter, Option

from suffice.cli.console import warn
from suffice.cli.parameters import Setting, given_fields
from suffice.common.provided import provided
from suffice.data import BUNDLED_QUESTIONS
from suffice.errors import DataError
from suffice.policy.seen import Seen
from suffice.policy.signals import FittedState, Idf
from suffice.recordings.shards import Shard

if TYPE_CHECKING:
    from suffice.loops.retrieval import AsyncRetriever, Question, Retriever


DATASET = f"a bundled set ({', '.join(BUNDLED_QUESTIONS)}), a .jsonl(.gz) file, or HotpotQA's .json"
"""What a data set may be, for help."""


def _parse_shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except DataError as error:
        raise BadParameter(str(error), param_hint="--shard") from None


ShardOption = Annotated[
    Shard | None,
    Option(
        "--shard",
        metavar="I/N",
        parser=_parse_shard,
        help="Only the I-th of N shares of the questions, as a part of the folder -o; of --limit questions, if that is given.",
    ),
]


Candidates = Annotated[
    int, Setting("retrieval", "candidates", min=1, help="How many of the retriever's best passages --reranker orders.")
]


AllowUnread = Annotated[
    bool, Setting("record", "allow-unread", help="Succeed even if no answer can be read from any reply.")
]


Dataset = Annotated[str, Argument(help=f"Questions: {DATASET}.")]


_OF_DENSE = (
    "question_encoder",
    "similarity",
    "question_prefix",
    "passage_prefix",
    "dense_batch",
    "dense_dtype",
    "dense_store",
    "approximate",
    "hybrid",
    "shard",
)
"""Options that only `--dense` uses."""


@dataclass(frozen=True, kw_only=True)
class PassageEncoder:
    """Options for the model that turns passages into vectors."""

    panel: ClassVar[str] = "Vectors"

    dense: Annotated[
        str | None,
        Option(
            "--dense",
            help="Rank with a sentence-transformers model (id or path) instead of BM25. It embeds the questions for a store, as "
            "do 'minilm' (packaged) and 'endpoint:MODEL' (OPENAI_BASE_URL).",
        ),
    ] = None
    similarity: Annotated[
        Literal["cosine", "dot"],
        Setting("retrieval", "similarity", help="With --dense: cosine, or the inner product (dot)."),
    ] = "cosine"
    passage_prefix: Annotated[
        str, Setting("retrieval", "passage-prefix", help="With --dense: text before a passage ('passage: ').")
    ] = ""
    dense_batch: Annotated[int, Setting("retrieval", "dense-batch", min=1, help="With --dense: texts of one pass.")] = (
        32
    )
    dense_dtype: Annotated[
        str, Setting("retrieval", "dense-dtype", help="With --dense: auto (as stored), float32, bfloat16 or float16.")
    ] = "auto"

    def settings(self, model: str, device: str | None) -> dict[str, Any]:
        """Return the arguments of `DenseRetriever`."""
        from suffice.cli.local import hub_name

        model, revision = hub_name(model)
        return {
            "model": model,
            "revision": revision,
            "similarity": self.similarity,
            "passage_prefix": self.passage_prefix,
            "batch_size": self.dense_batch,
            "dtype": self.dense_dtype,
            "device": device,
        }

    def of_dense(self) -> list[str]:
        """Return the given options that only `--dense` uses."""
        names = [option for field, option in given_fields(self).items() if field in _OF_DENSE]
        if self.dense is None and names:
            raise DataError(f"{names[0]} is for --dense, and there is none: give it, too")
        return names


@dataclass(frozen=True, kw_only=True)
class Search(PassageEncoder):
    """Options for the corpus, index or store that is searched."""

    panel: ClassVar[str] = "Retrieval"

    corpus: Annotated[
        str | None,
        Option(
            "--corpus",
            help="What to search: an index of `suffice index`; a folder of .txt/.md files or a .jsonl file, whose index is kept "
            "beside it; a store (postgres://HOST/DB?table=NAME, qdrant://, lancedb://, opensearch://, elasticsearch://); or "
            "MODULE:FUNCTION.",
        ),
    ] = None
    question_encoder: Annotated[
        str | None,
        Setting("retrieval", "question-encoder", help="With --dense: another model for questions, as DPR has."),
    ] = None
    question_prefix: Annotated[
        str, Setting("retrieval", "question-prefix", help="With --dense: text before a question ('query: ').")
    ] = ""

    hybrid: Annotated[
        str | None,
        Setting(
            "retrieval",
            "hybrid",
            help="With --dense: also rank by BM25, and fuse both rankings by reciprocal ranks. 'bm25' for the same passages, or an "
            "index of `suffice index` where --corpus has vectors alone.",
        ),
    ] = None

    def retriever(self, device: str | None = None) -> Retriever | AsyncRetriever:
        """Return the retriever; without a corpus it ranks each question's own passages."""
        from suffice.cli.ranking import ranked_by

        return ranked_by(self, device)

    def settings(self, model: str, device: str | None) -> dict[str, Any]:
        """Return the arguments of `DenseRetriever`."""
        from suffice.cli.local import hub_name

        asked, asked_revision = (None, None) if self.question_encoder is None else hub_name(self.question_encoder)
        return {
            **super().settings(model, device),
            "question_model": asked,
            "question_revision": asked_revision,
            "question_prefix": self.question_prefix,
        }

    @property
    def runs_models(self) -> bool:
        """True if retrieving runs a model on this machine."""
        return self.dense is not None


@dataclass(frozen=True, kw_only=True)
class Retrieval(Search):
    """Options for the corpus that is searched, and for the order in which passages are revealed."""

    reranker: Annotated[
        str | None, Option("--reranker", help="A cross-encoder (id or path) that orders the retriever's best passages.")
    ] = None
    candidates: Candidates = 20

    def retriever(self, device: str | None = None, cache: Path | None = None) -> Retriever | AsyncRetriever:
        """Return the retriever, reranked if a reranker is given; see `Search.retriever`.

        Args:
            device: The device of the retriever's models.
            cache: A file for storing rankings. The file is only used if computing a ranking costs more than a look-up.
        """
        from suffice.cli.models import cross_encoder
        from suffice.loops.retrieval.ranking import is_pinned

        ranked = super().retriever(device)
        if self.reranker is not None:
            ranked = provided("gates.Reranked")(
                ranked, cross_encoder(self.reranker, device), candidates=self.candidates
            )
        if cache is None or (self.corpus is None and not self.runs_models):
            return ranked
        if not is_pinned(ranked):
            warn(
                f"note: rankings of {ranked.name} are not cached, because nothing says when its passages or models change: name "
                "the revision of a model (ID@REVISION), or a version"
            )
            return ranked
        from suffice.recordings import ResponseCache

        return provided("retrieval.CachedRetriever")(ranked, ResponseCache(cache))

    @property
    def runs_models(self) -> bool:
        """True if retrieving runs a model on this machine."""
        return self.dense is not None or self.reranker is not None


def overlap_state(dataset: str | None) -> dict[str, FittedState]:
    """Return the fitted state of `overlap`: inverse document frequencies in the passages of a data set."""
    if dataset is None:
        return {}
    from suffice.loops.retrieval import load_questions

    return idf_state(load_questions(dataset))


def idf_state(questions: Sequence[Question]) -> dict[str, FittedState]:
    """Return the fitted state of `overlap`: inverse document frequencies in the passages of questions."""
    seen = Seen.of([item.question_id for item in questions], [item.question for item in questions])
    return {"overlap": Idf.fit((f"{p.title} {p.text}" for item in questions for p in item.passages), seen)}
