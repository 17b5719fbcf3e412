"""Training of probes: the MLP of CBDR (section 3.1, Appendix H) or a logistic regression, calibrated afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from suffice.errors import DataError, MissingExtraError, NotFoundError
from suffice.evaluation.statistics import area_under_roc
from suffice.policy.calibration.calibrator import CalibrationMap, Sigmoid, fit_isotonic, fit_platt
from suffice.policy.calibration.logistic import fit_logistic
from suffice.policy.rounds import Floats
from suffice_gates.models.states import States
from suffice_gates.probes import Calibration, Probe, ProbeCard
from suffice_gates.probes.probe import Layer
from suffice_gates.training.examples import Examples

HIDDEN = (448, 224, 112, 56)
"""Widths between five layers: 1.97 M parameters over states of 4,096 numbers (CBDR: five layers, about 2 M)."""

_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse strengths of the logistic regression's penalty; the best on dev is used."""

_HOTTEST = 5.0
"""Largest absolute logarithm of the temperature."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Settings of a probe's training.

    The paper contradicts itself about the layer (middle or last), the epochs (30 or 100) and the sizes of dev and test,
    so none of them is fixed here.  The layer is chosen with the states.

    Attributes:
        hidden: Widths between the layers; empty for a single layer, a logistic regression.
        dropout: Share of each hidden layer's units that are dropped in a step, in [0, 1).
        lr: Learning rate (Adam).
        epochs: Largest number of passes over the training set.
        batch_size: Questions per step.
        patience: Epochs without a better dev loss before training stops; None = train all epochs and keep the last
            weights.
        weight_decay: Decoupled weight decay.
        standardize: Subtract the training set's mean from every state and divide by its deviation; stored with the probe.
        balanced: Draw as many known as unknown questions for each epoch.
        device: A torch device.
    """

    hidden: tuple[int, ...] = HIDDEN
    dropout: float = 0.5
    lr: float = 5e-5
    epochs: int = 100
    batch_size: int = 32
    patience: int | None = 10
    weight_decay: float = 0.0
    standardize: bool = True
    balanced: bool = True
    device: str = "cpu"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {**asdict(self), "hidden": list(self.hidden)}

    def __post_init__(self) -> None:
        wrong = [
            (name, value, allowed)
            for name, value, allowed, is_right in (
                ("hidden", self.hidden, "widths >= 1", all(width >= 1 for width in self.hidden)),
                ("dropout", self.dropout, "[0, 1)", 0 <= self.dropout < 1),
                ("lr", self.lr, "> 0", self.lr > 0),
                ("epochs", self.epochs, ">= 1", self.epochs >= 1),
                ("batch_size", self.batch_size, ">= 1", self.batch_size >= 1),
                ("patience", self.patience, ">= 1, or None", self.patience is None or self.patience >= 1),
                ("weight_decay", self.weight_decay, ">= 0", self.weight_decay >= 0),
            )
            if not is_right
        ]
        if wrong:
            name, value, allowed = wrong[0]
            raise DataError(f"{name} is {value!r}; allowed: {allowed}")


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedProbe:
    """An uncalibrated probe with the figures of its training.

    Attributes:
        probe: Not yet calibrated.
        seed: Seed of weights, batches and dropout.
        losses: Class-balanced dev loss after each epoch, in nats; for the logistic regression, only the loss of the
            chosen penalty.
        best_epoch: The epoch that the weights come from, counted from 1; 0 for the logistic regression.
        dev_auroc: Area under the ROC curve on dev, by which layers and seeds are chosen.
    """

    probe: Probe
    seed: int
    losses: tuple[float, ...]
    best_epoch: int
    dev_auroc: float


def train_probe(
    train: Examples,
    dev: Examples,
    card: ProbeCard,
    *,
    settings: ProbeSettings | None = None,
    seed: int = 0,
    on_epoch: Callable[[int, float], None] | None = None,
) -> TrainedProbe:
    """Train the network; the same data, settings and seed give the same weights on one machine.

    Args:
        train: Questions for fitting the weights, with both labels: known and unknown.
        dev: Questions for early stopping, none of them in `train`.
        card: Identity of the model, layer and prompt.
        settings: Settings of the training; None for those of the paper, with 100 epochs and early stopping.
        seed: Seed of weights, batches and dropout; no other random state is read or changed.
        on_epoch: Called after each epoch with its number, from 1, and its dev loss.

    Raises:
        DataError: All labels of `train`, or of `dev`, are equal, or the training diverged.
        MissingExtraError: torch is not installed.
    """
    settings = settings or ProbeSettings()
    _both_kinds(train, dev)
    torch = _torch()
    mean, scale = _mean_and_deviation(train.states) if settings.standardize else (None, None)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        losses, best_epoch, layers = _optimised(
            torch,
            (_as_first_layer_sees(train, mean, scale), _as_first_layer_sees(dev, mean, scale)),
            settings,
            rng,
            on_epoch,
        )
    probe = Probe(layers, card, mean=mean, scale=scale)
    return TrainedProbe(
        probe=probe, seed=seed, losses=tuple(losses), best_epoch=best_epoch, dev_auroc=probe_auroc(probe, dev)
    )


def _optimised(
    torch: Any,
    sets: tuple[Examples, Examples],
    settings: ProbeSettings,
    rng: np.random.Generator,
    on_epoch: Callable[[int, float], None] | None,
) -> tuple[list[float], int, list[Layer]]:
    """Train; return the dev losses, the best epoch and its weights."""
    train, dev = sets
    device = torch.device(settings.device)
    network = _new_network(torch, train.states.shape[1], settings).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    states, labels = (
        torch.as_tensor(array, dtype=torch.float32, device=device) for array in (train.states, train.labels)
    )
    dev_states = torch.as_tensor(dev.states, device=device)
    loss_of = torch.nn.BCEWithLogitsLoss()
    losses: list[float] = []
    best, best_epoch, best_layers = np.inf, 0, _copied_layers(torch, network)
    for epoch in range(1, settings.epochs + 1):
        network.train()
        for rows in _epoch_batches(train.labels, settings, rng):
            chosen = torch.as_tensor(rows, device=device)
            optimiser.zero_grad(set_to_none=True)
            loss_of(network(states[chosen])[:, 0], labels[chosen]).backward()  # (batch,) log-odds
            optimiser.step()
        network.eval()
        with torch.no_grad():
            loss = _balanced_loss(network(dev_states)[:, 0].double().cpu().numpy(), dev.labels)
        if not np.isfinite(loss):
            raise DataError(f"the training diverged in epoch {epoch}: lower the learning rate ({settings.lr!r})")
        losses.append(loss)
        if on_epoch is not None:
            on_epoch(epoch, loss)
        if loss < best or settings.patience is None:
            best, best_epoch, best_layers = loss, epoch, _copied_layers(torch, network)
        elif epoch - best_epoch >= settings.patience:
            break
    return losses, best_epoch, best_layers


def _new_network(torch: Any, width: int, settings: ProbeSettings) -> Any:
    modules: list[Any] = []
    for next_width in settings.hidden:
        modules += [torch.nn.Linear(width, next_width), torch.nn.ReLU(), torch.nn.Dropout(settings.dropout)]
        width = next_width
    return torch.nn.Sequential(*modules, torch.nn.Linear(width, 1))


def _copied_layers(torch: Any, network: Any) -> list[Layer]:
    linear = [module for module in network if isinstance(module, torch.nn.Linear)]
    return [
        (module.weight.detach().cpu().numpy().copy(), module.bias.detach().cpu().numpy().copy()) for module in linear
    ]


def _epoch_batches(labels: Floats, settings: ProbeSettings, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Return the rows of the training set in each step of an epoch."""
    rows = np.arange(len(labels))
    if settings.balanced:
        # Cut both kinds to the smaller one; the larger is drawn anew in each epoch, so all of it is used in time.
        kinds = [rng.permutation(np.flatnonzero(labels == kind)) for kind in (1.0, 0.0)]
        rows = np.concatenate([kind[: min(map(len, kinds))] for kind in kinds])
    rows = rng.permutation(rows)
    return [rows[start : start + settings.batch_size] for start in range(0, len(rows), settings.batch_size)]


def _balanced_loss(logits: Floats, labels: Floats) -> float:
    """Return the negative log-likelihood in nats, where known and unknown questions have equal total weight."""
    if not np.isfinite(logits).all():
        return float("nan")
    # -log sigmoid(x) = log(1 + exp(-x)), computed without overflow.
    loss = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
    return float((loss[labels == 1].mean() + loss[labels == 0].mean()) / 2)


def logistic_probe(
    train: Examples, dev: Examples, card: ProbeCard, *, balanced: bool = True, strengths: tuple[float, ...] = _PENALTIES
) -> TrainedProbe:
    """Fit the baseline, a logistic regression on standardised states; the loss on dev chooses the penalty.

    This needs no torch.

    Args:
        train: Questions for fitting the weights, with both labels: known and unknown.
        dev: Questions for choosing the penalty.
        card: Identity of the model, layer and prompt.
        balanced: Give known and unknown questions the same total weight.
        strengths: Inverse strengths of the penalty to try.

    Raises:
        DataError: All labels of `train`, or of `dev`, are equal.
    """
    _both_kinds(train, dev)
    mean, scale = _mean_and_deviation(train.states)
    states = _as_first_layer_sees(train, mean, scale).states.astype(np.float64)
    best, least = None, np.inf
    for strength in strengths:
        model = fit_logistic(states, train.labels, strength=strength, balanced=balanced)
        layer = (model.weights.astype(np.float32), model.intercepts.astype(np.float32))
        probe = Probe([layer], card, mean=mean, scale=scale)
        loss = _balanced_loss(probe.logits(dev.states), dev.labels)
        if best is None or loss < least:
            best, least = probe, loss
    if best is None:
        raise DataError("strengths is empty: give at least one inverse strength")
    return TrainedProbe(probe=best, seed=0, losses=(least,), best_epoch=0, dev_auroc=probe_auroc(best, dev))


def fit_calibration(logits: Floats, labels: Floats, method: str) -> Calibration:
    """Fit the map from log-odds to probabilities.

    `temperature` divides the log-odds by one number.  It leaves a probability of 0.5 unchanged, so after balanced
    sampling it cannot learn the share of known questions.  `platt` adds an intercept, and `isotonic` fits any
    increasing curve.

    Args:
        logits: Log-odds of questions outside the training set, shape ``(n,)``.
        labels: 0 or 1, same shape.
        method: `none`, `temperature`, `platt` or `isotonic`.

    Raises:
        DataError: The method is unknown, or no question has both log-odds and a label.
    """
    if method not in CALIBRATIONS:
        raise NotFoundError(f"unknown calibration {method!r}; allowed: {', '.join(CALIBRATIONS)}")
    usable = np.isfinite(logits) & np.isfinite(labels)
    z, y = logits[usable], labels[usable]
    if not len(z):
        raise DataError("cannot calibrate: no question has both log-odds and a label")
    return Calibration(method=method, map=CALIBRATIONS[method](z, y))


def _temperature(logits: Floats, labels: Floats) -> Sigmoid:
    from scipy.optimize import minimize_scalar

    signed = np.where(labels == 1, -logits, logits)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0.0, signed * np.exp(-log_temperature)).mean())

    optimum = minimize_scalar(loss, bounds=(-_HOTTEST, _HOTTEST), method="bounded", options={"xatol": 1e-6})
    return Sigmoid(float(np.exp(-optimum.x)), 0.0)


CALIBRATIONS: Mapping[str, Callable[[Floats, Floats], CalibrationMap]] = {
    "none": lambda _logits, _labels: Sigmoid(1.0, 0.0),
    "temperature": _temperature,
    "platt": lambda logits, labels: fit_platt(logits, labels, np.ones_like(logits)),
    "isotonic": lambda logits, labels: fit_isotonic(logits, labels, np.ones_like(logits)),
}
"""The calibration methods by name."""


def calibrate_probe(probe: Probe, examples: Examples, method: str) -> Probe:
    """Return the probe calibrated on `examples`, which must be outside its training set."""
    return probe.calibrated(fit_calibration(probe.logits(examples.states), examples.labels, method))


def _both_kinds(*sets: Examples) -> None:
    for examples in sets:
        if len(np.unique(examples.labels)) < 2:  # noqa: PLR2004
            raise DataError(
                f"all {len(examples)} labels are {'known' if examples.labels[:1].any() else 'unknown'}, but a probe learns "
                "from both kinds: use a model that knows some of the questions, or another label rule"
            )


def _mean_and_deviation(states: States) -> tuple[States, States]:
    """Return the mean and the standard deviation of each component of the states.

    The deviation of a constant component is set to 1.
    """
    wide = states.astype(np.float64)
    deviation = wide.std(axis=0)
    return wide.mean(axis=0).astype(np.float32), np.where(deviation > 0, deviation, 1.0).astype(np.float32)


def _as_first_layer_sees(examples: Examples, mean: States | None, scale: States | None) -> Examples:
    """Return the examples with standardised states, as the probe's first layer sees them."""
    states = examples.states if mean is None or scale is None else (examples.states - mean) / scale
    return replace(examples, states=np.ascontiguousarray(states))


def probe_auroc(probe: Probe, examples: Examples) -> float:
    """Return the area under the ROC curve of a probe's probabilities; NaN if all labels are equal."""
    return area_under_roc(probe.predict(examples.states), examples.labels).value


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("training a probe other than a logistic regression", "torch", "suffice-gates") from None
    return torch
