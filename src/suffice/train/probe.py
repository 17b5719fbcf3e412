"""Training a probe: the MLP of CBDR (section 3.1, Appendix H) and a logistic regression, calibrated afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from suffice.calibration.maps import Sigmoid, fit_isotonic, fit_platt
from suffice.errors import DataError, MissingExtraError
from suffice.probes import Calibration, Probe, ProbeCard, measure_probe
from suffice.probes.probe import Layer
from suffice.rounds import Floats
from suffice.train.examples import Examples, States

__all__ = [
    "CALIBRATIONS",
    "HIDDEN",
    "ProbeSettings",
    "Trained",
    "calibrate_probe",
    "fit_calibration",
    "logistic_probe",
    "train_probe",
]

HIDDEN = (448, 224, 112, 56)
"""Widths between five layers: 1.97 M parameters over states of 4,096 numbers (CBDR: five layers, about 2 M)."""

_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse strengths of the logistic regression's penalty, the best on dev is taken."""

_HOTTEST = 5.0
"""Bound of the logarithm of the temperature."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """How a probe is trained.

    The paper contradicts itself on what is not fixed here: the layer (middle, or last: a property of the states), 30 or
    100 epochs, and sizes of dev and test.  All are parameters.

    Attributes:
        hidden: Widths between the layers; none = one layer, a logistic regression.
        dropout: Share of each hidden layer that a step leaves out, in [0, 1).
        lr: Learning rate (Adam).
        epochs: Most passes over the training set.
        batch_size: Questions of a step.
        patience: Epochs without a better dev loss before it stops; None = all epochs, and the last weights count.
        weight_decay: Decoupled weight decay.
        standardize: Take the training set's mean from every state and divide by its deviation; stored with the probe.
        balanced: Draw as many known as unknown questions for each epoch.
        device: As torch names it.
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
class Trained:
    """A probe and how it came about.

    Attributes:
        probe: Uncalibrated.
        seed: Of weights, batches and dropout.
        losses: The class-balanced dev loss after each epoch, nats; that of the chosen penalty alone for the logistic regression.
        best_epoch: The epoch whose weights these are, from 1; 0 for the logistic regression.
        dev_auroc: Area under the ROC curve on dev: what layers and seeds are chosen by.
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
) -> Trained:
    """Train the network; the same data, settings and seed give the same weights on one machine.

    Args:
        train: What the weights are fitted on, questions of both kinds.
        dev: What stops the training; no question of `train`.
        card: What the probe belongs to.
        settings: How; None = as the paper, with 100 epochs and early stopping.
        seed: Of weights, batches and dropout; no other random state is read or changed.
        on_epoch: Told each epoch, from 1, and its dev loss.

    Raises:
        DataError: A set holds one kind of questions only, or the training diverged.
        MissingExtraError: torch is not installed.
    """
    settings = settings or ProbeSettings()
    _both_kinds(train, dev)
    torch = _torch()
    mean, scale = _standard(train.states) if settings.standardize else (None, None)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        losses, best_epoch, layers = _optimised(
            torch, (_scaled(train, mean, scale), _scaled(dev, mean, scale)), settings, rng, on_epoch
        )
    probe = Probe(layers, card, mean=mean, scale=scale)
    return Trained(probe=probe, seed=seed, losses=tuple(losses), best_epoch=best_epoch, dev_auroc=_auroc(probe, dev))


def _optimised(
    torch: Any,
    sets: tuple[Examples, Examples],
    settings: ProbeSettings,
    rng: np.random.Generator,
    on_epoch: Callable[[int, float], None] | None,
) -> tuple[list[float], int, list[Layer]]:
    """Return the dev losses, the best epoch and its weights."""
    train, dev = sets
    device = torch.device(settings.device)
    network = _network(torch, train.states.shape[1], settings).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    states, labels = (
        torch.as_tensor(array, dtype=torch.float32, device=device) for array in (train.states, train.labels)
    )
    dev_states = torch.as_tensor(dev.states, device=device)
    loss_of = torch.nn.BCEWithLogitsLoss()
    losses: list[float] = []
    best, best_epoch, best_layers = np.inf, 0, _layers(torch, network)
    for epoch in range(1, settings.epochs + 1):
        network.train()
        for rows in _batches(train.labels, settings, rng):
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
            best, best_epoch, best_layers = loss, epoch, _layers(torch, network)
        elif epoch - best_epoch >= settings.patience:
            break
    return losses, best_epoch, best_layers


def _network(torch: Any, width: int, settings: ProbeSettings) -> Any:
    parts: list[Any] = []
    for wide in settings.hidden:
        parts += [torch.nn.Linear(width, wide), torch.nn.ReLU(), torch.nn.Dropout(settings.dropout)]
        width = wide
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, 1))


def _layers(torch: Any, network: Any) -> list[Layer]:
    """Return a copy of the weights."""
    linear = [part for part in network if isinstance(part, torch.nn.Linear)]
    return [(part.weight.detach().cpu().numpy().copy(), part.bias.detach().cpu().numpy().copy()) for part in linear]


def _batches(labels: Floats, settings: ProbeSettings, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Return the rows of each step of an epoch."""
    rows = np.arange(len(labels))
    if settings.balanced:
        kinds = [rng.permutation(np.flatnonzero(labels == kind)) for kind in (1.0, 0.0)]
        rows = np.concatenate([kind[: min(map(len, kinds))] for kind in kinds])
    rows = rng.permutation(rows)
    return [rows[start : start + settings.batch_size] for start in range(0, len(rows), settings.batch_size)]


def _balanced_loss(logits: Floats, labels: Floats) -> float:
    """Return the mean over both kinds of the mean negative log-likelihood, nats: what balanced training lowers."""
    if not np.isfinite(logits).all():
        return float("nan")
    loss = np.logaddexp(0.0, np.where(labels == 1, -logits, logits))
    return float((loss[labels == 1].mean() + loss[labels == 0].mean()) / 2)


def logistic_probe(
    train: Examples, dev: Examples, card: ProbeCard, *, balanced: bool = True, strengths: tuple[float, ...] = _STRENGTHS
) -> Trained:
    """Fit the baseline: a logistic regression on standardised states, its penalty chosen by its loss on dev; no torch.

    Args:
        train: What the weights are fitted on, questions of both kinds.
        dev: What the penalty is chosen on.
        card: What the probe belongs to.
        balanced: Weigh both kinds alike.
        strengths: Inverse strengths of the penalty to try.

    Raises:
        DataError: A set holds one kind of questions only.
    """
    from sklearn.linear_model import LogisticRegression

    _both_kinds(train, dev)
    mean, scale = _standard(train.states)
    states = _scaled(train, mean, scale).states.astype(np.float64)
    best, least = None, np.inf
    for strength in strengths:
        fitted = LogisticRegression(C=strength, max_iter=2000, class_weight="balanced" if balanced else None)
        fitted.fit(states, train.labels)
        layer = (fitted.coef_.astype(np.float32), fitted.intercept_.astype(np.float32))
        probe = Probe([layer], card, mean=mean, scale=scale)
        loss = _balanced_loss(probe.logits(dev.states), dev.labels)
        if best is None or loss < least:
            best, least = probe, loss
    if best is None:
        raise DataError("there is no penalty to try: give at least one inverse strength")
    return Trained(probe=best, seed=0, losses=(least,), best_epoch=0, dev_auroc=_auroc(best, dev))


def fit_calibration(logits: Floats, labels: Floats, method: str) -> Calibration:
    """Return how log-odds become probabilities on these questions.

    `temperature` divides the log-odds by one number and keeps 0.5 where it is: after balanced sampling it cannot learn
    how many questions are known.  `platt` adds an intercept, `isotonic` is any increasing curve.

    Args:
        logits: Log-odds, shape ``(n,)``, of questions that the weights were not fitted on.
        labels: 0 or 1, same shape.
        method: `none`, `temperature`, `platt` or `isotonic`.

    Raises:
        DataError: There is no such method, or no question has both.
    """
    if method not in CALIBRATIONS:
        raise DataError(f"there is no calibration {method!r}; allowed: {', '.join(CALIBRATIONS)}")
    usable = np.isfinite(logits) & np.isfinite(labels)
    z, y = logits[usable], labels[usable]
    if not len(z):
        raise DataError("nothing to calibrate on: no question has both log-odds and a label")
    return Calibration(method=method, map=CALIBRATIONS[method](z, y))


def _none(logits: Floats, labels: Floats) -> Any:
    del logits, labels
    return Sigmoid(1.0, 0.0)


def _temperature(logits: Floats, labels: Floats) -> Any:
    from scipy.optimize import minimize_scalar

    signed = np.where(labels == 1, -logits, logits)

    def loss(heat: float) -> float:
        return float(np.logaddexp(0.0, signed * np.exp(-heat)).mean())

    found = minimize_scalar(loss, bounds=(-_HOTTEST, _HOTTEST), method="bounded", options={"xatol": 1e-6})
    return Sigmoid(float(np.exp(-found.x)), 0.0)


def _platt(logits: Floats, labels: Floats) -> Any:
    return fit_platt(logits, labels, np.ones_like(logits))


def _isotonic(logits: Floats, labels: Floats) -> Any:
    return fit_isotonic(logits, labels, np.ones_like(logits))


CALIBRATIONS = {"none": _none, "temperature": _temperature, "platt": _platt, "isotonic": _isotonic}
"""How a probe may be calibrated."""


def calibrate_probe(probe: Probe, examples: Examples, method: str) -> Probe:
    """Return the probe calibrated on some questions, which must not be those that its weights were fitted on."""
    return probe.calibrated(fit_calibration(probe.logits(examples.states), examples.labels, method))


def _both_kinds(*sets: Examples) -> None:
    for examples in sets:
        if len(np.unique(examples.labels)) < 2:  # noqa: PLR2004
            raise DataError(
                f"all {len(examples)} labels are {'known' if examples.labels[:1].any() else 'unknown'}: a probe learns "
                "from both kinds. Use a model that knows some of the questions, or another label rule"
            )


def _standard(states: States) -> tuple[States, States]:
    """Return mean and deviation of each number of a state; one that never moves is divided by 1."""
    wide = states.astype(np.float64)
    deviation = wide.std(axis=0)
    return wide.mean(axis=0).astype(np.float32), np.where(deviation > 0, deviation, 1.0).astype(np.float32)


def _scaled(examples: Examples, mean: States | None, scale: States | None) -> Examples:
    """Return the examples as the first layer sees them, computed as the probe does."""
    states = examples.states if mean is None or scale is None else (examples.states - mean) / scale
    return replace(examples, states=np.ascontiguousarray(states))


def _auroc(probe: Probe, examples: Examples) -> float:
    return measure_probe(probe.predict(examples.states), examples.labels, n_resamples=1)["auroc"].value


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("training a probe (a logistic regression does without)", "torch") from None
    return torch
