"""`suffice gate train`: trains a gate's probe on stored states and recorded answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from suffice.cli.console import status
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, from_file
from suffice.common.files import json_lines, quoted
from suffice.errors import DataError
from suffice.recordings import is_recording, read_recording
from suffice_gates.models.chain_states import THOUGHTS
from suffice_gates.models.state_files import StoredStates, read_states
from suffice_gates.probes import checkpoint_labels, closed_book_labels
from suffice_gates.probes.chains import check_chains
from suffice_gates.training.examples import split_by_hash
from suffice_gates.training.probe import CALIBRATIONS, HIDDEN, ProbeSettings
from suffice_gates.training.probe_run import LabelledStates, ProbeRun, run_training

_LEAST = 0.5
"""Default of the smallest share of right answers at which a question counts as known."""


@dataclass(frozen=True, kw_only=True)
class _ProbeTraining:
    """The fields of `ProbeSettings` as options."""

    panel: ClassVar[str] = "Training"

    hidden: Annotated[
        str, Setting("gate", "hidden", help="Comma-separated widths between the layers; empty = one layer.")
    ] = ",".join(map(str, HIDDEN))
    dropout: Annotated[
        float, Setting("gate", "dropout", help="Share of each hidden layer dropped in a step, in [0, 1).")
    ] = 0.5
    lr: Annotated[float, Setting("gate", "lr", help="Learning rate.")] = 5e-5
    epochs: Annotated[int, Setting("gate", "epochs", min=1, help="Most epochs (the paper: 30, and 100).")] = 100
    patience: Annotated[
        int,
        Setting("gate", "patience", min=0, help="Epochs without a better dev loss before it stops; 0 = never stop."),
    ] = 10
    batch_size: Annotated[int, Setting("local", "batch-size", min=1, help="Questions per step.")] = 32
    weight_decay: Annotated[float, Setting("gate", "weight-decay", min=0, help="Decoupled weight decay.")] = 0.0
    standardize: Annotated[
        bool,
        Setting("gate", "standardize", help="Scale states by mean and deviation, stored with the probe."),
    ] = True
    balanced: Annotated[
        bool, Setting("gate", "balanced", off="unbalanced", help="As many known as unknown questions in each epoch.")
    ] = True
    device: Annotated[str, Setting("local", "device", help="Where to train, as torch names it.")] = "cpu"

    def settings(self) -> ProbeSettings:
        """Return the options as `ProbeSettings`."""
        parsed = {"hidden": _whole_numbers("hidden", self.hidden), "patience": self.patience or None}
        return ProbeSettings(**{**asdict(self), **parsed})


def train_probe_command(
    states: Annotated[
        Path, typer.Argument(metavar="STATES", help="States of questions, as `suffice gate states` writes them.")
    ],
    labels: Annotated[
        Path,
        typer.Option("--labels", help="A recording with round 0, or JSON lines with question_id and label (0 or 1)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the probe.")],
    training: _ProbeTraining,
    output: Output,
    rule: Annotated[
        str, Setting("gate", "label-rule", help="When an answer is right: em, contains, f1>=T, or COLUMN>=T (a judge).")
    ] = "em",
    least: Annotated[
        float,
        Setting("gate", "least", help="Least share of a question's several answers that must be right, in (0, 1]."),
    ] = _LEAST,
    kind: Annotated[Literal["mlp", "logistic"], typer.Option("--kind", help="The network, or a linear one.")] = "mlp",
    layer: Annotated[int | None, typer.Option("--layer", help="Only this layer.")] = None,
    layers: Annotated[
        str | None,
        Setting("gate", "layers", help="Comma-separated layers to try; default: all stored ones."),
    ] = None,
    seeds: Annotated[str, Setting("gate", "seeds", help="Comma-separated seeds; the best on dev is kept.")] = "0",
    calibration: Annotated[
        str, Setting("gate", "calibration", help=f"Fitted on dev: {', '.join(CALIBRATIONS)}.")
    ] = "none",
    train_size: Annotated[
        int | None, Setting("gate", "train-size", min=2, help="Questions to fit on (the paper: 2000); default: all.")
    ] = None,
    curve: Annotated[
        str | None, Setting("gate", "curve", help="Comma-separated sizes of the training set to measure besides.")
    ] = None,
    dev_share: Annotated[float, Setting("gate", "dev-share", help="Share of dev questions, by id hash.")] = 0.2,
    test_share: Annotated[float, Setting("gate", "test-share", help="Share of test questions, by id hash.")] = 0.2,
    salt: Annotated[str, Setting("gate", "split-salt", help="Salt of the split; another text gives another one.")] = "",
    rag_states: Annotated[
        Path | None, Setting("gate", "rag-states", help="States of the prompt with passages, measured separately.")
    ] = None,
    rag_round: Annotated[
        int, Setting("gate", "rag-round", min=1, help="The round of --labels whose answers had those passages.")
    ] = 3,
    train_on_rag: Annotated[
        bool, Setting("gate", "train-on-rag", help="Fit on both prompts; the probe is then valid for both.")
    ] = False,
) -> None:
    """Train a probe: select it on dev, measure it once on test, and store it without code.

    Example: suffice gate train tune.states --labels tune.parquet -o probe
    """
    settings = training.settings()
    states_read = read_states(states)
    thinks = states_read.header.get("prompt") == THOUGHTS
    known, about, questions = (
        _checkpoints_of(states_read, labels, rule) if thinks else (*_labels_of(labels, rule, least, 0), {})
    )
    texts, clusters = _texts_and_clusters(labels)
    other = None if rag_states is None else _with_passages(rag_states, labels, rule, least, rag_round)
    if thinks and (least != _LEAST or other is not None):
        raise DataError("states of chains have one label each and one prompt: leave out least and rag-states")
    data = LabelledStates(states=states_read, labels=known, texts=texts, questions=questions, clusters=clusters)
    split = split_by_hash([*dict.fromkeys(data.units.values())], dev=dev_share, test=test_share, salt=salt, texts=texts)
    with status("training", quiet=output.as_json) as report:
        run = run_training(
            data,
            split.expanded(data.units),
            kind=kind,
            layers=_layers(layer, layers),
            seeds=_whole_numbers("seeds", seeds),
            calibration=calibration,
            settings=settings,
            train_size=train_size,
            curve=_whole_numbers("curve", curve or ""),
            other=other,
            train_on_both=train_on_rag,
            on_step=report,
        )
    run.probe.save(out)
    output.show({"path": str(out), "labels": about, **run.to_dict()}, _probe_screen(run, out, about))


def _labels_of(path: Path, rule: str, least: float, at: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the label of each question, and facts for the card about the labels' source."""
    if is_recording(path):
        result = closed_book_labels(read_recording(path), rule, least=least, at=at)
        about = {"rule": result.rule, "least": least, "failed": result.n_failed, "unlabelled": result.n_unlabelled}
        return result.known, {"questions": len(result.shares), "known": sum(result.known.values()), **about}
    if at:
        raise DataError(f"{str(path)!r} contains labels of one prompt: for rag-states give a recording as --labels")
    labels = dict(_label_of_line(row, where) for where, row in json_lines(path, _LABEL_LINE))
    return labels, {"questions": len(labels), "known": sum(labels.values()), "rule": path.name}


def _with_passages(states: Path, labels: Path, rule: str, least: float, at: int) -> LabelledStates:
    """Read the states of prompts with passages, and the labels of the model's answers to these prompts."""
    return LabelledStates(states=read_states(states), labels=_labels_of(labels, rule, least, at)[0])


def _checkpoints_of(
    states: StoredStates, path: Path, rule: str
) -> tuple[dict[str, float], dict[str, Any], dict[str, str]]:
    """Return each checkpoint's label, facts for the card about the labels' source, and each checkpoint's question."""
    if not is_recording(path):
        raise DataError(f"these are states of chains of thought: give their recording as --labels, not {str(path)!r}")
    recording = read_recording(path)
    check_chains(states, recording)
    result, questions = checkpoint_labels(recording, rule)
    about = {"rule": result.rule, "failed": result.n_failed, "unlabelled": result.n_unlabelled}
    return result.known, {"questions": len(result.shares), "known": sum(result.known.values()), **about}, questions


def _texts_and_clusters(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the text and the resampling unit of each question of a recording, by id.

    Both are empty if the labels come from another kind of file.
    """
    if not is_recording(path):
        return {}, {}
    recording = read_recording(path)
    clusters = dict(zip(recording.question_ids, map(str, recording.clusters), strict=True))
    if "question" not in recording.table.column_names:
        return {}, clusters
    texts = zip(recording.question_ids, recording.per_question("question", []).tolist(), strict=True)
    return {q: text for q, text in texts if text}, clusters


_LABEL_LINE = '{"question_id": "...", "label": 0 or 1}'


def _label_of_line(row: dict[str, Any], where: str) -> tuple[str, float]:
    if not isinstance(row.get("question_id"), str) or row.get("label") not in (0, 1):
        raise DataError(f"{where}: expected {_LABEL_LINE}, got {row!r:.80}")
    return row["question_id"], float(row["label"])


def _whole_numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers", param_hint=option) from None


def _layers(layer: int | None, layers: str | None) -> tuple[int, ...] | None:
    if layer is not None and layers is not None and not from_file("layers"):
        raise typer.BadParameter("give --layer or the setting layers, not both", param_hint="--layer")
    if layer is not None:
        return (layer,)
    return None if layers is None else _whole_numbers("layers", layers)


def _probe_screen(run: ProbeRun, out: Path, about: dict[str, Any]) -> Screen:
    card = run.probe.card
    where = f"layer {card.layer} of {card.model}" if card.layer is not None else card.model
    then = f"suffice record DATASET -o gated.parquet --round-zero --gate {quoted(out)}"
    if THOUGHTS in card.prompts:
        then = f"suffice think record DATASET -o t.parquet --model M --base-url URL --probe {quoted(out)}"
    elif card.layer is not None:
        then = f"suffice record DATASET -o gated.parquet --round-zero --gate {quoted(out)} --local --model {card.model}"
    what = "trial answers right" if THOUGHTS in card.prompts else "questions known"
    return Screen(
        sentences=[
            (
                f"{out}: {run.probe.n_parameters:,} parameters on {where}, prompts {', '.join(card.prompts)}, calibration "
                f"{card.calibration.method}, weights {run.probe.weights_sha256[:16]}"
            )
        ],
        tables=run.tables(),
        notes=[f"labels: {about['known']:.0f} of {about['questions']} {what}, by {about['rule']}"],
        then=then,
    )
