"""Populations of losses: those of rules on the bundled recordings, and made ones of known distribution."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from suffice.evaluation.replay import policy_for
from suffice.policy.rounds import Floats
from suffice.recordings import Recording, bundled_recording, read_recording
from suffice.verdicts.certificates import Claim
from suffice.verdicts.certificates.losses import measure_losses

LEVEL = 0.05
_LARGEST = 0.99  # of the stake that one loss of 1 would ruin, as in the product
_ORDERS = 30  # of independent samples
_MOST = 4000
"""The most questions that the best constant stake may need; a made population that needs more is drawn anew."""

_DRAWN = 12
HOTPOT = "hotpotqa"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on a recording: its name, the metric, and the bound on the loss."""

    recording: str
    rule: str
    metric: str
    bound: float


CHOSEN_ON = (
    Rule("panel_gsm8k", "lead(2)", "match", 0.02),
    Rule("panel_gsm8k", "lead(3)", "match", 0.01),
    Rule("samples_aqua", "lead(2)", "match", 0.02),
    Rule("panel_cruxeval", "lead(4)", "match", 0.02),
    Rule(HOTPOT, "stable_twice", "f1", 0.05),
    Rule(HOTPOT, "fixed_k(4)", "f1", 0.05),
    Rule(HOTPOT, "fixed_k(4)", "em", 0.05),
    Rule("self_refine_gpt4", "fixed_k(3)", "target_sentiment", 0.02),
)
"""Rules whose losses were looked at when the shares of the stakes were chosen."""

HELD_OUT = (
    Rule("self_refine_gpt4", "fixed_k(2)", "target_sentiment", 0.02),
    Rule("self_refine_gpt4", "fixed_k(4)", "target_sentiment", 0.02),
    Rule("self_refine_dv3", "fixed_k(2)", "target_sentiment", 0.02),
    Rule("samples_date", "lead(2)", "match", 0.02),
    Rule("panel_cruxeval", "lead(3)", "match", 0.03),
    Rule("samples_game24", "lead(3)", "match", 0.02),
    Rule(HOTPOT, "stable_twice", "em", 0.05),
)
"""Rules that had no part in the choice."""


@dataclass(frozen=True, kw_only=True)
class Population:
    """A distribution of losses below a bound.

    Attributes:
        name: Its name.
        bound: The bound that is to be proved.
        losses: Equally likely losses in [-1, 1].
        chosen_on: Whether the shares of the stakes were chosen on it.
        binary: Whether a loss can only be 0 or 1.
    """

    name: str
    bound: float
    losses: Floats
    chosen_on: bool
    binary: bool = False

    @cached_property
    def best_stake(self) -> tuple[float, float]:
        """The constant stake whose capital grows fastest, and the mean growth of its logarithm."""
        stakes = np.linspace(0.005, _LARGEST, 198) / (1 - self.bound)
        growth = np.log1p(stakes[:, None] * (self.bound - self.losses)).mean(axis=-1)
        best = int(growth.argmax())
        return float(stakes[best]), float(growth[best])

    @property
    def expected(self) -> float:
        """About the number of questions that this stake needs."""
        return float(-np.log(LEVEL) / self.best_stake[1]) if self.best_stake[1] > 0 else np.inf


def made(name: str, bound: float, lost: float, gained: float, *, chosen_on: bool) -> Population:
    """Return a population in which shares of the questions turn from right to wrong and from wrong to right."""
    size = 10_000
    n_lost, n_gained = round(size * lost), round(size * gained)
    losses = np.concatenate([np.ones(n_lost), -np.ones(n_gained), np.zeros(size - n_lost - n_gained)])
    return Population(name=name, bound=bound, losses=losses, chosen_on=chosen_on, binary=gained == 0)


MADE = (
    made("nothing lost", 0.02, 0.0, 0.0, chosen_on=True),
    made("0.3 % lost", 0.02, 0.003, 0.0, chosen_on=True),
    made("1 % lost, 1 % gained", 0.02, 0.01, 0.01, chosen_on=True),
    made("2.5 % lost, 2.5 % gained", 0.02, 0.025, 0.025, chosen_on=True),
)


def drawn(seed: int, number: int, *, chosen_on: bool) -> list[Population]:
    """Draw populations in which questions turn right and wrong, as far as at most some thousand questions are needed."""
    rng, populations = np.random.default_rng([seed, 1 if chosen_on else 2]), []
    while len(populations) < number:
        bound = float(rng.choice([0.01, 0.02, 0.05, 0.1]))
        gained = float(np.exp(rng.uniform(np.log(0.001), np.log(0.3))))
        lost = gained * float(rng.random()) if rng.random() < 0.5 else gained + bound * float(rng.uniform(0, 0.6))
        name = f"drawn: {100 * lost:.1f} % lost, {100 * gained:.1f} % gained"
        one = made(name, bound, lost, gained, chosen_on=chosen_on)
        if one.expected <= _MOST:
            populations.append(one)
    return populations


@cache
def _recording(name: str) -> Recording:
    if name != HOTPOT:
        return bundled_recording(name)
    from suffice_reader.demo.bundled import record_bundled

    with tempfile.TemporaryDirectory() as folder:
        record_bundled(HOTPOT, "eval", Path(folder), quiet=True)
        return read_recording(Path(folder) / f"{HOTPOT}_eval.parquet")


def real(rules: tuple[Rule, ...], *, chosen_on: bool) -> Iterator[Population]:
    """Yield the losses of rules against the full width; questions that failed while recording are left out."""
    for one in rules:
        recording = _recording(one.recording)
        orders = _ORDERS if recording.exchangeable else None
        claim = Claim(epsilon=one.bound, metric=one.metric, orders=orders, leave_out_failed=True)
        losses = measure_losses(recording, [policy_for(recording, one.rule)], claim).losses[0]
        metric = " (EM)" if one.metric == "em" else ""
        name = f"{one.recording} {one.rule}{metric}"
        yield Population(name=name, bound=one.bound, losses=losses, chosen_on=chosen_on)


def every(seed: int, *, quick: bool = False) -> list[Population]:
    """Return all populations, or a few that are made quickly."""
    if quick:
        few = tuple(one for one in CHOSEN_ON if one.recording == "self_refine_gpt4")
        return [*real(few, chosen_on=True), *MADE[:3], *drawn(seed, 2, chosen_on=False)]
    chosen_on = [*real(CHOSEN_ON, chosen_on=True), *MADE, *drawn(seed, _DRAWN, chosen_on=True)]
    return [*chosen_on, *real(HELD_OUT, chosen_on=False), *drawn(seed, _DRAWN, chosen_on=False)]
