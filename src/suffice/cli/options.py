"""Options that several commands share, in groups, and functions that build objects from them.

Modules for these objects are imported only when needed, so that a command that reads a recording loads neither models nor retrieval.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from typer import Argument, BadParameter, Option

from suffice.cli.groups import RecordingPath
from suffice.cli.parameters import Setting, from_file
from suffice.common.files import quoted
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay import Price
from suffice.evaluation.replay.outcomes import needed_metric
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording
from suffice.recordings.runs import loop_labels

if TYPE_CHECKING:
    from suffice.evaluation.statistics import Resampling


POLICY = Path("policy.json")
"""Where a policy is written by default."""


Limit = Annotated[int | None, Option("--limit", min=1, help="Only the first questions.")]
Markdown = Annotated[Path | None, Setting("papers", "markdown", help="Also write the tables there, as Markdown.")]
Quality = Annotated[
    str | None, Option("--metric", help="f1 (default; em for multiple choice), em, agreement, or a column in [0, 1].")
]
MaxRounds = Annotated[int, Option("--max-rounds", min=1, help="The highest round R.")]
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
        if self.model is None:
            return None
        from suffice.evaluation.replay import list_price

        return list_price(self.model).price

    def of(self, recording: Recording) -> Price | dict[str, Price] | None:
        """Return the prices of the recorded components; None if the options give no prices."""
        if self.prices is None and self.model is None:
            return None
        from suffice.evaluation.replay import prices_of

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


def allowed(value: str, choices: Collection[str], option: str) -> Any:
    """Return the value if it is one of the choices, else raise."""
    if value not in choices:
        raise BadParameter(f"{value!r}; allowed: {', '.join(choices)}", param_hint=option)
    return value


def split_names(text: str) -> list[str]:
    """Return comma-separated names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def start_of(start_round: int | None, rules: Sequence[str] | None) -> dict[str, Any]:
    """Return the setting `start-round` as an argument of the policies built from `rules`; no argument if it is not given."""
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
    """Return the value of `--baseline`: if the value names a file, the policy in this file, else the text."""
    return load_policy(text) if text is not None and Path(text).suffix == ".json" else text


def load_policy(path: str | Path) -> Policy:
    """Return the policy of a file that the command line names."""
    if not Path(path).exists():
        raise NotFoundError(
            f"the policy file {str(path)!r} does not exist: `suffice deploy`, `suffice calibrate` and `suffice search --policy FILE` write one"
        )
    return Policy.load(path)


Where = Annotated[
    list[str] | None,
    Option("--where", metavar="COLUMN=VALUE", help="Only the questions of this model, prompt or system; repeatable."),
]


ASK = " --ask golds.jsonl"
"""What a printed `suffice decide` has where nothing says which answers are right."""


def where_pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Parse `--where COLUMN=VALUE` to values by column."""
    pairs = [item.partition("=") for item in given or ()]
    if any(not column or not sign for column, sign, _ in pairs):
        raise BadParameter("it is given as COLUMN=VALUE, for instance model=gpt-4o", param_hint="--where")
    return {column: value for column, _, value in pairs}


def where_words(given: Sequence[str] | None) -> str:
    """Return the `--where` options for a printed command, each preceded by a space; empty if none are given."""
    return "".join(f" --where {quoted(item)}" for item in given or ())


def chosen_loop(recording: Recording, given: Sequence[str] | None) -> Recording:
    """Return the questions of a recording that `--where` chooses."""
    wanted = where_pairs(given)
    return recording.where(**wanted) if wanted else recording


def chosen_questions(path: Path, given: Sequence[str] | None) -> Recording | Path:
    """Return the questions of a stored recording that `--where` chooses; without `--where`, return the recording's path."""
    return chosen_loop(read_recording(path), given) if given else path


def tune_of_loop(tune: Recording | None, given: Sequence[str] | None) -> Recording | None:
    """Return the tune questions that `--where` chooses; filters on columns that the tune recording lacks are ignored."""
    if tune is None:
        return None
    wanted = {column: value for column, value in where_pairs(given).items() if column in loop_labels(tune.table.schema)}
    return tune.where(**wanted) if wanted else tune
