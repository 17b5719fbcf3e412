"""`suffice gate train`: from stored states and recorded answers to a gate's probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from suffice.cli import options
from suffice.cli.console import errors, print_json, print_table, say
from suffice.errors import DataError
from suffice.files import json_lines
from suffice.probes import closed_book_labels
from suffice.store import read_recording
from suffice.store.states import read_states
from suffice.train.examples import split_by_hash
from suffice.train.probe import CALIBRATIONS, HIDDEN, ProbeSettings
from suffice.train.probe_run import LabelledStates, ProbeRun, run_training

__all__ = ["train_probe_command"]


def train_probe_command(
    states: Annotated[
        Path, typer.Argument(metavar="STATES", help="States of questions, as `suffice gate states` writes them.")
    ],
    labels: Annotated[
        Path,
        typer.Option("--labels", help="A recording with round 0, or JSON lines with question_id and label (0 or 1)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the probe.")],
    rule: Annotated[
        str, typer.Option("--label-rule", help="When an answer is right: em, contains, f1>=T, or COLUMN>=T (a judge).")
    ] = "em",
    least: Annotated[
        float,
        typer.Option("--least", help="Least share of a question's several answers that must be right, in (0, 1]."),
    ] = 0.5,
    kind: Annotated[Literal["mlp", "logistic"], typer.Option("--kind", help="The network, or a linear one.")] = "mlp",
    layer: Annotated[int | None, typer.Option("--layer", help="Only this layer.")] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Comma-separated: which layers to try; default: all that are stored.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Comma-separated; the best on dev is kept.")] = "0",
    calibration: Annotated[
        str, typer.Option("--calibration", help=f"Fitted on dev: {', '.join(CALIBRATIONS)}.")
    ] = "none",
    hidden: Annotated[
        str, typer.Option("--hidden", help="Comma-separated widths between the layers; empty = one layer.")
    ] = ",".join(map(str, HIDDEN)),
    dropout: Annotated[float, typer.Option("--dropout", help="Share left out of each hidden layer, in [0, 1).")] = 0.5,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate.")] = 5e-5,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Most epochs (the paper: 30, and 100).")] = 100,
    patience: Annotated[
        int, typer.Option("--patience", min=0, help="Epochs without a better dev loss before it stops; 0 = never stop.")
    ] = 10,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Questions of a step.")] = 32,
    weight_decay: Annotated[float, typer.Option("--weight-decay", min=0, help="Decoupled weight decay.")] = 0.0,
    standardize: Annotated[
        bool, typer.Option("--standardize/--no-standardize", help="Scale states by mean and deviation; stored.")
    ] = True,
    balanced: Annotated[
        bool, typer.Option("--balanced/--unbalanced", help="As many known as unknown questions in each epoch.")
    ] = True,
    train_size: Annotated[
        int | None, typer.Option("--train-size", min=2, help="Questions to fit on (the paper: 2000); default: all.")
    ] = None,
    curve: Annotated[
        str | None, typer.Option("--curve", help="Comma-separated sizes of the training set to measure besides.")
    ] = None,
    dev_share: Annotated[float, typer.Option("--dev-share", help="Share of dev questions, by id hash.")] = 0.2,
    test_share: Annotated[float, typer.Option("--test-share", help="Share of test questions, by id hash.")] = 0.2,
    salt: Annotated[str, typer.Option("--split-salt", help="Another text gives another split.")] = "",
    rag_states: Annotated[
        Path | None, typer.Option("--rag-states", help="States of the prompt with passages: measured apart.")
    ] = None,
    rag_round: Annotated[
        int, typer.Option("--rag-round", min=1, help="The round of --labels whose answers had those passages.")
    ] = 3,
    train_on_rag: Annotated[
        bool, typer.Option("--train-on-rag", help="Fit on both prompts; the probe is then valid for both.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="Where to train, as torch names it.")] = "cpu",
    as_json: options.AsJson = False,
) -> None:
    """The probe is selected on dev, measured once on test, and stored without code.

    Example: suffice gate train tune.states --labels tune.parquet -o probe
    """
    settings = ProbeSettings(
        hidden=_numbers("--hidden", hidden),
        dropout=dropout,
        lr=lr,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience or None,
        weight_decay=weight_decay,
        standardize=standardize,
        balanced=balanced,
        device=device,
    )
    stored = read_states(states)
    told, about = _labels(labels, rule, least, 0)
    texts = _texts(labels)
    other = None
    if rag_states is not None:
        other = LabelledStates(states=read_states(rag_states), labels=_labels(labels, rule, least, rag_round)[0])
    split = split_by_hash([q for q in stored.ids if q in told], dev=dev_share, test=test_share, salt=salt, texts=texts)
    with _steps(quiet=as_json) as tell:
        run = run_training(
            LabelledStates(states=stored, labels=told, texts=texts),
            split,
            kind=kind,
            layers=_layers(layer, layers),
            seeds=_numbers("--seeds", seeds),
            calibration=calibration,
            settings=settings,
            train_size=train_size,
            curve=_numbers("--curve", curve or ""),
            other=other,
            train_on_both=train_on_rag,
            on_step=tell,
        )
    run.probe.save(out)
    _report(run, out, about, as_json=as_json)


def _labels(path: Path, rule: str, least: float, at: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Return labels by question, and where they come from."""
    if path.suffix == ".parquet":
        found = closed_book_labels(read_recording(path), rule, least=least, at=at)
        about = {"rule": found.rule, "least": least, "failed": found.n_failed, "unlabelled": found.n_unlabelled}
        return found.known, {"questions": len(found.shares), "known": sum(found.known.values()), **about}
    if at:
        raise DataError(f"{str(path)!r} holds labels of one prompt: for --rag-states give a recording as --labels")
    labels = dict(_label(row, where) for where, row in json_lines(path, _LABEL))
    return labels, {"questions": len(labels), "known": sum(labels.values()), "rule": path.name}


def _texts(path: Path) -> dict[str, str]:
    """Return the questions that a recording of labels holds, by id; other labels have ids alone."""
    recording = read_recording(path) if path.suffix == ".parquet" else None
    if recording is None or "question" not in recording.table.column_names:
        return {}
    texts = zip(recording.question_ids, recording.per_question("question", []).tolist(), strict=True)
    return {q: text for q, text in texts if text}


_LABEL = '{"question_id": "...", "label": 0 or 1}'


def _label(row: dict[str, Any], where: str) -> tuple[str, float]:
    if not isinstance(row.get("question_id"), str) or row.get("label") not in (0, 1):
        raise DataError(f"{where}: expected {_LABEL}, got {row!r:.80}")
    return row["question_id"], float(row["label"])


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of whole numbers", param_hint=option) from None


def _layers(layer: int | None, layers: str | None) -> tuple[int, ...] | None:
    if layer is not None and layers is not None:
        raise typer.BadParameter("give one of --layer and --layers", param_hint="--layers")
    if layer is not None:
        return (layer,)
    return None if layers is None else _numbers("--layers", layers)


@contextmanager
def _steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Say on standard error, if it is a terminal, what is being trained."""
    if quiet or not errors.is_terminal:
        yield lambda _: None
        return
    with errors.status("training") as status:
        yield lambda step: status.update(f"training: {step}")


def _report(run: ProbeRun, out: Path, about: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(out), "labels": about, **run.to_dict()})
        return
    say(f"labels: {about['known']:.0f} of {about['questions']} questions known, by {about['rule']}")
    for table in run.tables():
        print_table(table)
    card = run.probe.card
    where = f"layer {card.layer} of {card.model}" if card.layer is not None else card.model
    say(
        f"{out}: {run.probe.n_parameters:,} parameters on {where}, prompts {', '.join(card.prompts)}, calibration "
        f"{card.calibration.method}, weights {run.probe.weights_sha256[:16]}"
    )
