"""`suffice paper cbdr`: the paper's pipeline on a model and a question set, compared with published figures."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from suffice.cli import options
from suffice.cli.local import LocalModel
from suffice.cli.output import Output
from suffice.cli.parameters import Setting
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import load_questions
from suffice_gates.models.states import QA
from suffice_gates.training.probe import HIDDEN, ProbeSettings
from suffice_gates.training.reranker_trainer import RerankerSettings
from suffice_papers.cbdr.cbdr_tables import paper_cbdr
from suffice_papers.cbdr.plan import CbdrSettings
from suffice_papers.cbdr.run import run_cbdr
from suffice_papers.printing import FiguresOption, FormatOption, OutOption, checked_form, print_paper, stage_bar

_CBDR_DEFAULTS = CbdrSettings()


def _spelled(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


def _number_list(text: str, option: str) -> tuple[float, ...]:
    """Parse the comma-separated numbers of an option."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"{option} is {text!r}; allowed are numbers with commas between them") from None


def _integer_list(text: str, option: str) -> tuple[int, ...]:
    numbers = _number_list(text, option)
    if any(number != int(number) for number in numbers):
        raise DataError(f"{option} is {text!r}; allowed are whole numbers with commas between them")
    return tuple(int(number) for number in numbers)


@dataclass(frozen=True, kw_only=True)
class _Probe:
    """Settings of the probe."""

    panel: ClassVar[str] = "The probe"

    layers: Annotated[str, Setting("papers", "layers", help="Layers to probe: middle, last, or numbers.")] = (
        "middle,last"
    )
    epochs: Annotated[str, Setting("papers", "epochs", help="Epochs of the probes; each is tried.")] = _spelled(
        _CBDR_DEFAULTS.epochs
    )
    hidden: Annotated[str, Setting("papers", "hidden", help="Widths between the probe's layers.")] = _spelled(HIDDEN)
    dropout: Annotated[float, Setting("papers", "dropout", help="Of the probe.")] = _CBDR_DEFAULTS.probe.dropout
    lr: Annotated[float, Setting("papers", "lr", help="The probe's learning rate.")] = _CBDR_DEFAULTS.probe.lr
    train_size: Annotated[int, Setting("papers", "train-size", min=2, help="Questions to fit a probe on.")] = (
        _CBDR_DEFAULTS.train_size
    )
    label: Annotated[str, Setting("papers", "label", help="When an answer is right: em, contains or f1>=T.")] = (
        _CBDR_DEFAULTS.label
    )

    def value(self) -> ProbeSettings:
        """Return the options as `ProbeSettings`."""
        return ProbeSettings(
            hidden=_integer_list(self.hidden, "hidden"), dropout=self.dropout, lr=self.lr, patience=None
        )


@dataclass(frozen=True, kw_only=True)
class _Reranker:
    """Settings of the reranker's training."""

    panel: ClassVar[str] = "The reranker"

    reranker_lr: Annotated[float, Setting("papers", "reranker-lr", help="Of the reranker.")] = (
        _CBDR_DEFAULTS.reranker.learning_rate
    )
    reranker_epochs: Annotated[float, Setting("papers", "reranker-epochs", help="Of the reranker.")] = (
        _CBDR_DEFAULTS.reranker.epochs
    )
    batch: Annotated[int, Setting("papers", "reranker-batch", min=1, help="Positives a step.")] = (
        _CBDR_DEFAULTS.reranker.batch
    )
    accumulate: Annotated[
        int | None,
        Setting("papers", "accumulate", help="Parts of a reranker batch; default: as many as memory demands."),
    ] = _CBDR_DEFAULTS.reranker.accumulate
    memory: Annotated[float, Setting("papers", "memory", help="GiB that training the reranker may take.")] = (
        _CBDR_DEFAULTS.reranker.memory
    )
    checkpointing: Annotated[
        bool, Setting("papers", "checkpointing", help="Compute the reranker's layers again: less memory, slower.")
    ] = _CBDR_DEFAULTS.reranker.checkpointing
    precision: Annotated[str, Setting("papers", "precision", help="Reranker precision: auto, fp32, bf16 or fp16.")] = (
        _CBDR_DEFAULTS.reranker.precision
    )

    def value(self) -> RerankerSettings:
        """Return the options as `RerankerSettings`."""
        return RerankerSettings(
            learning_rate=self.reranker_lr,
            epochs=self.reranker_epochs,
            batch=self.batch,
            accumulate=self.accumulate,
            memory=self.memory,
            checkpointing=self.checkpointing,
            precision=self.precision,
        )


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """Options for the division of the questions and for the measurements."""

    panel: ClassVar[str] = "What is measured"

    candidates: Annotated[int, Setting("papers", "candidates", min=2, help="Contexts a question.")] = (
        _CBDR_DEFAULTS.candidates
    )
    top: Annotated[str, Setting("papers", "top", help="Numbers of passages for an answer; each is tried.")] = _spelled(
        _CBDR_DEFAULTS.depths
    )
    betas: Annotated[str, Setting("papers", "betas", help="Thresholds of the gate.")] = _spelled(_CBDR_DEFAULTS.betas)
    test_share: Annotated[
        float, Setting("papers", "test-share", help="Share of test questions, on which all figures are measured.")
    ] = _CBDR_DEFAULTS.test
    prefer_share: Annotated[
        float,
        Setting(
            "papers", "prefer-share", help="Share of the other questions for the reranker; the probe gets the rest."
        ),
    ] = _CBDR_DEFAULTS.prefer
    shift: Annotated[
        int,
        Setting("papers", "shift", min=1, help="Most test questions to measure the probe on under both prompts."),
    ] = _CBDR_DEFAULTS.shift
    seed: Annotated[int, Setting("statistics", "seed", min=0, help="Seed of training and draws.")] = _CBDR_DEFAULTS.seed
    resamples: Annotated[int, Setting("statistics", "resamples", min=1, help="Bootstrap draws.")] = (
        _CBDR_DEFAULTS.resampling.n_resamples
    )

    def value(self, probe: _Probe, reranker: _Reranker) -> CbdrSettings:
        """Return the settings of the whole pipeline."""
        return replace(
            _CBDR_DEFAULTS,
            epochs=_integer_list(probe.epochs, "epochs"),
            probe=probe.value(),
            train_size=probe.train_size,
            label=probe.label,
            candidates=self.candidates,
            depths=_integer_list(self.top, "top"),
            betas=_number_list(self.betas, "betas"),
            test=self.test_share,
            prefer=self.prefer_share,
            shift=self.shift,
            reranker=reranker.value(),
            seed=self.seed,
            resampling=Resampling(n_resamples=self.resamples, seed=self.seed),
        )


def cbdr_command(
    model: Annotated[str, typer.Option("--model", help="The target model: a folder or hub id.")],
    data: Annotated[
        list[str], typer.Option("--data", help="Questions with gold answers and paragraphs; may be given again.")
    ],
    probe: _Probe,
    training: _Reranker,
    measured: _Measured,
    local: LocalModel,
    output: Output,
    folder: Annotated[Path, typer.Option("--work", help="The folder of states, probes, data and the reranker.")],
    reranker: Annotated[
        str, Setting("papers", "reranker", help="The cross-encoder to align: a folder or hub id.")
    ] = "BAAI/bge-reranker-v2-m3",
    other: Annotated[
        list[str] | None, Setting("papers", "other", help="Another cross-encoder to compare; may be given again.")
    ] = None,
    limit: Annotated[
        int | None, Setting("papers", "limit", min=1, help="Only the first questions of each file.")
    ] = None,
    max_tokens: Annotated[int, Setting("endpoint", "max-tokens", min=1, help="Most tokens per reply.")] = 64,
    form: FormatOption = "table",
    out: OutOption = None,
    figures: FiguresOption = None,
) -> None:
    """Run CBDR from labels to gate on a model.

    Table 3 is printed, with --details all of them, beside the published figures. Run the same command again to resume.

    Example: suffice paper cbdr --model M --data questions.jsonl --work cbdr
    """
    form = checked_form("json" if output.as_json else form, out)
    questions = [question for spec in data for question in load_questions(spec, limit=limit)]
    target = local.load(model, options.split_names(probe.layers), max_tokens=max_tokens)
    with stage_bar() as report:
        run = run_cbdr(
            questions,
            target,
            reranker,
            folder,
            others=other or (),
            settings=measured.value(probe, training),
            device=local.device,
            on_progress=report,
        )
    paper = paper_cbdr(
        run,
        model=target.id,
        reranker=reranker,
        data=", ".join(Path(spec).name for spec in data),
        command=shlex.join(["suffice", "paper", "cbdr", "--model", model, "--set", f"reranker={reranker}", "..."]),
    )
    then = f"suffice gate train {folder}/{QA} --labels RECORDING -o probe"
    print_paper(paper, form, out, details=output.details, then=then, figures=figures)
