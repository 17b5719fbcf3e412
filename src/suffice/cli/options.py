"""Options that several commands share, in groups, and functions that build objects from them.

Modules for these objects are imported only when needed, so that a command that reads a recording loads neither models nor retrieval.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typer import Argument, BadParameter, Option

from suffice.cli.console import warn
from suffice.cli.groups import RecordingPath
from suffice.cli.parameters import Setting, from_file, given_fields
from suffice.common.files import quoted
from suffice.common.provided import provided
from suffice.data import BUNDLED_QUESTIONS
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay import Price, list_price, prices_of
from suffice.evaluation.replay.outcomes import needed_metric
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.policy.signals import FittedState, Idf
from suffice.recordings import Recording, read_recording
from suffice.recordings.shards import Shard

if TYPE_CHECKING:
    from suffice.evaluation.statistics import Resampling
    from suffice.loops.retrieval import AsyncRetriever, Question, Retriever

POLICY = Path("policy.json")
"""Where a policy is written by default."""

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
Limit = Annotated[int | None, Option("--limit", min=1, help="Only the first questions.")]
Markdown = Annotated[Path | None, Setting("papers", "markdown", help="Also write the tables there, as Markdown.")]
Quality = Annotated[
    str | None, Option("--metric", help="f1 (default; em for multiple choice), em, agreement, or a column in [0, 1].")
]
MaxRounds = Annotated[int, Option("--max-rounds", min=1, help="The highest round R.")]
Candidates = Annotated[
    int, Setting("retrieval", "candidates", min=1, help="How many of the retriever's best passages --reranker orders.")
]
AllowUnread = Annotated[
    bool, Setting("record", "allow-unread", help="Succeed even if no answer can be read from any reply.")
]
StartRound = Annotated[
    int | None,
    Setting(
        "calibration",
        "start-round",
        min=0,
        max=1,
        help="Where rules start: 0 = with the recorded closed-book round, which any of their signals may end; default: 1, "
        "and 0 for rules on p_known.",
    ),
]
Baseline = Annotated[
    str | None,
    Option(
        "--baseline",
        help="A row's label, 'full', a rule or a policy file to compare with. Default: fixed_k(3); 'recorded' where a rule "
        "ended some of the recording.",
    ),
]


Dataset = Annotated[str, Argument(help=f"Questions: {DATASET}.")]
LedgerName = Annotated[
    str,
    Setting(
        "statistics",
        "ledger",
        help="'live': judges are charged where the rule reads them; 'published': as Semantic Early-Stopping counted.",
    ),
]
Margins = Annotated[
    list[float] | None, Setting("statistics", "margin", help="For non-inferiority and equivalence; may be repeated.")
]
Prices = Annotated[
    Path | None,
    Option("--prices", help="USD per million tokens by model or component (TOML or JSON), or 'list'."),
]
Recorded = Annotated[RecordingPath, Argument(metavar="RECORDING", help="Recorded rounds.")]
SelectorText = Annotated[str, Option("--selector", help="Which seen round's answer to return.")]
MarkWeights = Annotated[
    str, Setting("drafts", "weights", help="Of the information score, as MARK=WEIGHT,...; default: equal.")
]


def metric_words(*metrics: str | None) -> str:
    """Return the `--metric` options for a printed command, each preceded by a space; empty without a metric."""
    return "".join(f" --metric {quoted(metric)}" for metric in metrics if metric is not None)


def replay_step(path: str | Path, recording: Recording, baseline: str = "") -> str:
    """Return the printed command that replays a recording, with the options that it needs."""
    named = f" --baseline {baseline or 'full'}" if baseline or recording.independent else ""
    return f"suffice replay {quoted(path)}{named}{metric_words(needed_metric(recording))}"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Options for the policies to compare, and for the metrics of the comparison."""

    panel: ClassVar[str] = "What is compared"

    rule: Annotated[list[str] | None, Option("--rule", help="A rule: a name or its text; may be repeated.")] = None
    policy: Annotated[list[Path] | None, Option("--policy", help="A policy file; may be repeated.")] = None
    start_round: StartRound = None
    metric: Annotated[
        list[str] | None,
        Option("--metric", help="f1, em, contains, agreement, or a column in [0, 1]; the first is the quality."),
    ] = None
    baseline: Baseline = None
    margin: Margins = None

    @property
    def margins(self) -> tuple[float, ...]:
        """The margins of the comparison; 2 points by default."""
        return tuple(self.margin or (0.02,))

    def files(self) -> list[Policy]:
        """Return the policies in the given files."""
        return [load_policy(file) for file in self.policy or ()]


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """Prices of tokens."""

    panel: ClassVar[str] = "Prices"

    prices: Prices = None
    model: Annotated[
        str | None, Option("--model", help="Price every language model as this one of the list prices.")
    ] = None

    def price(self) -> Price | None:
        """Return the price of `--model`."""
        if self.prices is not None and self.model is not None:
            raise BadParameter("--prices says what tokens cost, too: give one of them", param_hint="--model")
        return None if self.model is None else list_price(self.model).price

    def of(self, recording: Recording) -> Price | dict[str, Price] | None:
        """Return the prices of the recorded components; None if none are given."""
        if self.prices is None and self.model is None:
            return None
        return self.price() or prices_of(self.prices, recording)


@dataclass(frozen=True, kw_only=True)
class ResamplingOptions:
    """Options for intervals: draws, seed and level."""

    panel: ClassVar[str] = "Resampling"

    resamples: Annotated[int, Setting("statistics", "resamples", min=1, help="Bootstrap draws.")] = 1000
    seed: Annotated[int, Setting("statistics", "seed", min=0, help="Seed of everything that is drawn.")] = 42
    level: Annotated[float, Setting("statistics", "level", min=0.5, max=0.9999, help="Coverage of intervals.")] = 0.95

    @property
    def value(self) -> Resampling:
        """These options as a `Resampling` of the library."""
        from suffice.evaluation.statistics import Resampling

        return Resampling(n_resamples=self.resamples, seed=self.seed, level=self.level)


@dataclass(frozen=True, kw_only=True)
class TuneQuestions:
    """Options for the tune questions, which choose the candidates and so must not judge them."""

    panel: ClassVar[str] = "Tune questions"

    tune: Annotated[
        RecordingPath | None,
        Option("--tune", help="A recording of tune questions; else the questions are split by hash."),
    ] = None
    tune_share: Annotated[
        float | None,
        Setting("statistics", "tune-share", help="Share of tune questions in that split, between 0 and 1."),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the given options as arguments of the library's functions, with the tune questions read."""
        given = self.given_paths()
        return {**given, "tune": read_recording(self.tune)} if self.tune is not None else given

    def given_paths(self) -> dict[str, Any]:
        """Return the given options as arguments, with the path of the tune questions, to read them part by part."""
        share = self.tune_share
        if share is not None and not 0 < share < 1:
            raise BadParameter(f"{share!r}; allowed: between 0 and 1", param_hint="tune-share")
        if share is not None and self.tune is not None and not from_file("tune_share"):
            raise BadParameter("--tune says which questions are for tuning: give one of them", param_hint="tune-share")
        tune = {} if self.tune is None else {"tune": self.tune}
        return tune if share is None or tune else {"tune_share": share}


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
            cache: A file for storing rankings; it is used if a ranking costs more than a look-up.
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


def allowed(value: str, choices: Collection[str], option: str) -> Any:
    """Return the value if it is one of the choices, else raise."""
    if value not in choices:
        raise BadParameter(f"{value!r}; allowed: {', '.join(choices)}", param_hint=option)
    return value


def split_names(text: str) -> list[str]:
    """Return comma-separated names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def start_of(start_round: int | None, rules: Sequence[str] | None) -> dict[str, Any]:
    """Return the arguments that the setting `start-round` adds to the policies of rules."""
    if start_round is None:
        return {}
    if not rules:
        if from_file("start_round"):
            return {}
        raise DataError(
            f"start-round {start_round} is for rules, and there are none: a policy file says where it starts. "
            f"`suffice calibrate --set start-round={start_round}` writes one"
        )
    return {"start_round": start_round}


def read_baseline(text: str | None) -> str | Policy | None:
    """Return the value of `--baseline`: the policy in a file if the value names one, else the text."""
    return load_policy(text) if text is not None and Path(text).suffix == ".json" else text


def load_policy(path: str | Path) -> Policy:
    """Return the policy of a file that the command line names."""
    if not Path(path).exists():
        raise NotFoundError(
            f"the policy file {str(path)!r} does not exist: `suffice deploy`, `suffice calibrate` and `suffice search --policy FILE` write one"
        )
    return Policy.load(path)


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
