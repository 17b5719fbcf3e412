"""Training of a probe on stored states: layer and seed are chosen on dev, and all figures are measured once on test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from suffice.common.identities import aligned
from suffice.common.results import Result, jsonable
from suffice.common.tables import Column, Table
from suffice.errors import ConfigMismatchError, DataError
from suffice.policy.seen import Seen
from suffice_gates.models.state_files import StoredStates
from suffice_gates.models.states import QA, RAG
from suffice_gates.probes import MEASURES, Probe, ProbeCard, ProbeMeasures, measure_probe
from suffice_gates.probes.card import pinned_of
from suffice_gates.training.examples import Examples, Split
from suffice_gates.training.probe import (
    ProbeSettings,
    TrainedProbe,
    calibrate_probe,
    logistic_probe,
    probe_auroc,
    train_probe,
)

Kind = Literal["mlp", "logistic"]


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledStates:
    """States of one prompt, with labels of the model's answers to that prompt.

    Attributes:
        states: The stored states.
        labels: 0 or 1, by question.
        texts: Question texts by id, where known; the probe's card keeps hashes of the texts that it was fitted on.
        questions: The question id of each state, if a question has several states, for example at checkpoints of its
            chain.
        clusters: The resampling unit of each question, where this is not the question itself, for example because
            several chains answer one question.
    """

    states: StoredStates
    labels: Mapping[str, float]
    texts: Mapping[str, str] = field(default_factory=dict)
    questions: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)

    @property
    def units(self) -> dict[str, str]:
        """The resampling unit of each labelled state."""
        names = {state: self.questions.get(state, state) for state in self.states.ids if state in self.labels}
        return {state: self.clusters.get(name, name) for state, name in names.items()}

    @property
    def layers(self) -> tuple[int | None, ...]:
        """The stored layers; a single None for a source without layers."""
        return tuple(self.states.header.get("layers") or (None,))

    @property
    def prompt(self) -> str:
        """`qa`, `rag` or `thoughts`."""
        return str(self.states.header.get("prompt", QA))


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One probe that was tried.

    Attributes:
        kind: `mlp` or `logistic`.
        layer: Layer of the states.
        seed: Seed of the training.
        best_epoch: The epoch of its weights; 0 for the logistic regression.
        dev_auroc: Area under the ROC curve on dev, the criterion of the choice.
        test_auroc: Area under the ROC curve on test; None unless the layer is the chosen layer.
    """

    kind: str
    layer: int | None
    seed: int
    best_epoch: int
    dev_auroc: float
    test_auroc: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProbeFigures:
    """Figures of a probe on the test questions.

    Attributes:
        what: Description of the probe and the states.
        size: Number of questions that the probe was fitted on.
        measures: Its figures with intervals.
    """

    what: str
    size: int
    measures: ProbeMeasures


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ProbeRun(Result):
    """The outcome of a training run.

    Attributes:
        probe: The chosen probe, calibrated, with its card.
        candidates: All probes that were tried.
        test_figures: Figures on the test questions: of the chosen probe (uncalibrated and calibrated), of the logistic
            baseline, and of the probe under other prompts.
        curve: The figures by size of the training set.
        notes: Caveats about calibration and about questions left out.
    """

    probe: Probe
    candidates: tuple[Candidate, ...]
    test_figures: tuple[ProbeFigures, ...]
    curve: tuple[ProbeFigures, ...] = ()
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Return the tables of the run: candidates, test figures and learning curve."""
        columns = (Column("probe"), Column("layer"), Column("seed"), Column("epoch", "d"), *_AREAS)
        rows = tuple(
            (c.kind, "-" if c.layer is None else str(c.layer), str(c.seed), c.best_epoch, c.dev_auroc, c.test_auroc)
            for c in self.candidates
        )
        candidates = Table(title="Probes that were tried; the best on dev is kept", columns=columns, rows=rows)
        tables = [candidates, _figures_table("Test questions, asked once", self.test_figures, self.notes)]
        return tables + (
            [_figures_table("Test questions, by size of the training set", self.curve)] if self.curve else []
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        data: dict[str, Any] = jsonable(
            {
                "layer": self.probe.card.layer,
                "weights_sha256": self.probe.weights_sha256,
                "parameters": self.probe.n_parameters,
                "candidates": [vars(candidate) for candidate in self.candidates],
                "measured": [_measures_dict(item) for item in self.test_figures],
                "curve": [_measures_dict(item) for item in self.curve],
                "notes": self.notes,
            }
        )
        return data


_AREAS = (Column("AUROC dev", ".3f"), Column("AUROC test", ".3f"))
_FIGURE_NAMES = {"auroc": "AUROC", "auprc": "AUPRC", "brier": "Brier", "ece": "ECE", "accuracy": "accuracy"}


def _measures_dict(item: ProbeFigures) -> dict[str, Any]:
    return {"what": item.what, "size": item.size, **item.measures.to_dict()}


def _figures_table(title: str, figures: Sequence[ProbeFigures], notes: tuple[str, ...] = ()) -> Table:
    columns = (
        Column("probe"),
        Column("fitted on", "d"),
        Column("n", "d"),
        Column("known", ".1f", scale=100),
        *(Column(_FIGURE_NAMES[name], ".3f", interval=True) for name in MEASURES),
    )
    rows = tuple(
        (
            item.what,
            item.size,
            item.measures.n,
            item.measures.n_known / item.measures.n,
            *((f.value, f.low, f.high) for f in (item.measures[name] for name in MEASURES)),
        )
        for item in figures
    )
    return Table(title=title, columns=columns, rows=rows, notes=(*notes, "95 % percentile bootstrap over questions"))


def run_training(
    data: LabelledStates,
    split: Split,
    *,
    kind: Kind = "mlp",
    layers: Sequence[int | None] | None = None,
    seeds: Sequence[int] = (0,),
    calibration: str = "none",
    settings: ProbeSettings | None = None,
    train_size: int | None = None,
    curve: Sequence[int] = (),
    other: LabelledStates | None = None,
    train_on_both: bool = False,
    on_step: Callable[[str], None] | None = None,
) -> ProbeRun:
    """Train probes, choose layer and seed on dev, calibrate on dev, and measure once on test.

    Args:
        data: States and labels of the prompt that the gate reads.
        split: Train, dev and test questions.
        kind: The network, or a logistic regression.
        layers: Layers to try; None for all stored layers.
        seeds: Seeds of the network; each is tried at each layer.
        calibration: `none`, `temperature`, `platt` or `isotonic`, fitted on dev.
        settings: Settings of the network.
        train_size: Number of questions to fit on, half of them known (the paper: 2,000); None for the whole train set.
        curve: Further sizes of the training set to measure.
        other: States and labels of another prompt, measured separately.
        train_on_both: Fit on the states of both prompts; the probe is then valid for both.
        on_step: Called with a description of each training.

    Raises:
        DataError: There are no layers or seeds, all labels of a set are equal, or a layer was not stored.
        ConfigMismatchError: `data` and `other` contain states of different models.
    """
    settings = settings or ProbeSettings()
    layers = data.layers if layers is None else layers
    if not seeds or not layers:
        raise DataError("layers or seeds is empty: give at least one layer and one seed")
    if other is not None:
        _check_same(data, other)
    elif train_on_both:
        raise DataError("train_on_both needs a second prompt: give its states and labels as other")
    fit = _Fit(data, split, other if train_on_both else None, settings, train_size)
    report = on_step or (lambda _step: None)
    attempts: list[TrainedProbe] = []
    for layer, seed in product(layers, seeds if kind == "mlp" else (0,)):
        report(f"{kind}, layer {layer}, seed {seed}")
        attempts.append(fit.fit(kind, layer, seed))
    best = max(attempts, key=lambda trained: trained.dev_auroc)
    layer = best.probe.card.layer
    dev, test = fit.part("dev", layer), fit.part("test", layer)
    calibrated = calibrate_probe(best.probe, dev, calibration)
    measure = partial(_on, units=data.units)
    figures = [measure(calibrated, test, f"{kind}, {calibration}", fit.size)]
    if calibration != "none":
        figures.append(measure(best.probe, test, f"{kind}, uncalibrated", fit.size))
    if kind == "mlp":
        baseline = calibrate_probe(fit.fit("logistic", layer, 0).probe, dev, calibration)
        figures.append(measure(baseline, test, f"logistic baseline, {calibration}", fit.size))
    if other is not None:
        other_test = split.of(Examples.of(other.states, other.labels, layer), "test")
        figures.append(measure(calibrated, other_test, f"{kind}, {calibration}, prompt {other.prompt}", fit.size))
    points = []
    for size in curve:
        report(f"{kind}, layer {layer}, {size} questions")
        smaller = replace(fit, train_size=size).fit(kind, layer, best.seed)
        points.append(measure(calibrate_probe(smaller.probe, dev, calibration), test, kind, size))
    notes = _training_notes(test, Examples.of(data.states, data.labels, layer), calibration, settings)
    provenance = {
        "kind": kind,
        "seed": best.seed,
        "settings": settings.to_dict() if kind == "mlp" else None,
        "fitted_on": fit.size,
        "test": [_measures_dict(item) for item in figures],
        **_seen(data, split),
    }
    probe = calibrated.described(provenance=jsonable(provenance))
    tried = tuple(_candidate(kind, trained, test, layer) for trained in attempts)
    return ProbeRun(probe=probe, candidates=tried, test_figures=tuple(figures), curve=tuple(points), notes=tuple(notes))


def _seen(data: LabelledStates, split: Split) -> dict[str, Any]:
    """Return the hashes of the train and dev questions, on which the probe is fitted and chosen."""
    ids = {data.questions.get(name, name) for name in split.train | split.dev}
    return Seen.of(ids, map(data.texts.get, ids)).to_dict()


@dataclass(slots=True)
class _Fit:
    """Fits probes on one split."""

    data: LabelledStates
    split: Split
    other: LabelledStates | None
    settings: ProbeSettings
    train_size: int | None
    size: int = field(default=0, init=False)

    def part(self, name: str, layer: int | None) -> Examples:
        """Return the examples of one set, under the prompt that the gate reads."""
        return self.split.of(Examples.of(self.data.states, self.data.labels, layer), name)

    def fit(self, kind: str, layer: int | None, seed: int) -> TrainedProbe:
        train, dev = self.part("train", layer), self.part("dev", layer)
        if self.train_size is not None:
            train = train.balanced(
                self.train_size, rng=np.random.default_rng(0)
            )  # the same questions for every candidate
        if self.other is not None:
            examples = Examples.of(self.other.states, self.other.labels, layer)
            train_ids = set(train.ids)
            additional = examples.take(np.array([q in train_ids for q in examples.ids], dtype=np.bool_))
            train = Examples(
                ids=train.ids + additional.ids,
                states=np.concatenate([train.states, additional.states]),
                labels=np.concatenate([train.labels, additional.labels]),
            )
        self.size = len(train)
        card = self._card(layer)
        if kind == "logistic":
            return logistic_probe(train, dev, card, balanced=self.settings.balanced)
        return train_probe(train, dev, card, settings=self.settings, seed=seed)

    def _card(self, layer: int | None) -> ProbeCard:
        header = self.data.states.header
        prompts = [self.data.prompt] + ([self.other.prompt] if self.other is not None else [])
        return ProbeCard(
            model=str(header["model"]),
            revision=str(header["revision"]),
            layer=layer,
            prompts=tuple(prompts),
            pinned=pinned_of(header.get("source") or {}),
        )


def _check_same(data: LabelledStates, other: LabelledStates) -> None:
    theirs = other.states.header
    ours = aligned(data.states.header, theirs)
    for key in ("model", "revision", "layers"):
        if ours.get(key) != theirs.get(key):
            raise ConfigMismatchError(
                f"the states of the two prompts differ in {key}: {ours.get(key)!r} and {theirs.get(key)!r}"
            )
    if pinned_of(ours.get("source") or {}) != pinned_of(theirs.get("source") or {}):
        raise ConfigMismatchError("the states of the two prompts were read with other prompts or another precision")
    if data.prompt == other.prompt:
        raise DataError(f"both sets of states have the prompt {data.prompt!r}: give states of {RAG!r} as the second")


def _on(probe: Probe, examples: Examples, what: str, size: int, *, units: Mapping[str, str]) -> ProbeFigures:
    names = [units.get(name, name) for name in examples.ids]  # the states of a question are drawn together
    measured = measure_probe(probe.predict(examples.states), examples.labels, names=names)
    return ProbeFigures(what=what, size=size, measures=measured)


def _candidate(kind: str, trained: TrainedProbe, test: Examples, layer: int | None) -> Candidate:
    """Return the figures of one trained probe, with its test AUROC only if it reads `layer`, the chosen layer."""
    area = probe_auroc(trained.probe, test) if trained.probe.card.layer == layer else None
    return Candidate(
        kind=kind,
        layer=trained.probe.card.layer,
        seed=trained.seed,
        best_epoch=trained.best_epoch,
        dev_auroc=trained.dev_auroc,
        test_auroc=area,
    )


def _training_notes(test: Examples, examples: Examples, calibration: str, settings: ProbeSettings) -> list[str]:
    notes = []
    if settings.balanced and calibration in ("none", "temperature"):
        notes.append(
            f"trained on as many known as unknown questions, and {calibration} does not learn the share of known ones "
            f"({100 * test.labels.mean():.1f} % of test): probabilities are relative to one half; platt and isotonic learn it"
        )
    if examples.n_undefined:
        notes.append(f"{examples.n_undefined} questions are left out: their state is undefined (NaN)")
    if examples.n_unlabelled:
        notes.append(f"{examples.n_unlabelled} questions are left out: they have a state but no label")
    return notes
