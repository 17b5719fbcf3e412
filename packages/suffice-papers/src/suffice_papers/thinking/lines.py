"""Ways to stop chains of thought, measured on one recording: right answers, tokens, and mixtures of two budgets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from suffice.evaluation.replay import Replayer, policy_for
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.front import Mixture, best_mixture, upper_hull
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.statistics import PairedResult, Resampling
from suffice.policy.rounds import Floats
from suffice.policy.signals import TRIAL
from suffice.recordings import Recording

METRIC = "em"
NEVER = "never stop"
Asking = Literal["free", "cached", "reread"]
ASKING: tuple[Asking, ...] = ("free", "cached", "reread")
"""Prices of a trial answer: nothing; its own tokens, on a server that caches prefixes; or the whole chain read again."""

MOST_PRICE = 20.0
"""The highest price of a trial answer that is tried, as a multiple of its recorded price."""

_COMPUTED = Price(uncached=1e6, cached=0.0, output=1e6)
"""Prices of 1 per computed token and 0 per cached token, by which money equals the number of computed tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The results of one way to stop.

    Attributes:
        label: Name of the way to stop.
        right: 1 for each right answer, else 0, shape ``(n_questions,)``.
        tokens: Mean tokens that the model computes, for each price of a trial answer in `ASKING`.
        trials: Mean number of trial answers.
        against: Difference in the share of right answers to chains without a stop.
        at_random: For a rule, the expected share of right answers if its stops are assigned to questions at random.
        dominated: A fixed budget, mixture or random twin with no fewer right answers and no more tokens; None if
            nothing dominates this line.
        coins: For a rule, and for each price of a trial answer, the mixture of two fixed budgets with the most right
            answers for no more tokens.  In a mixture, a coin decides for each question between the budgets.  None if
            every budget costs more.
        above: For a rule, the difference in the share of right answers to the mixture in `coins`, for each price.
    """

    label: str
    right: Floats
    tokens: Mapping[Asking, float]
    trials: float
    against: PairedResult
    at_random: float | None
    dominated: str | None
    coins: Mapping[Asking, Mixture | None]
    above: Mapping[Asking, PairedResult]

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.right.mean())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = asdict(self)
        del values["right"]
        return {**values, "accuracy": self.accuracy}


class Lines:
    """Rules, fixed budgets and the whole chains of one recording.

    Args:
        recording: Chains with their trial answers.
        rules: The rules by name.
        resampling: The draws of the intervals.

    Attributes:
        every: Tokens between two checkpoints.
        compared: The replayed rules and baselines.
        rules: The rules, judged.
    """

    def __init__(self, recording: Recording, rules: Mapping[str, str], resampling: Resampling = Resampling()) -> None:
        policies = [policy_for(recording, rule, name=name) for name, rule in rules.items()]
        prices = {"generator": _COMPUTED, TRIAL: _COMPUTED}
        replayer = Replayer(recording, metrics=METRIC, resampling=resampling, prices=prices, cost="money")
        self.compared = replayer.compare([*policies, policy_for(recording, "full", name=NEVER)])
        self._draws, self.every = replayer.draws, int(recording.metadata["depends"]["every"])
        runs = self.compared.runs
        self._fixed = [run for run in runs if run.kind == "fixed"]
        self._whole = next(run for run in runs if run.label == NEVER)
        self._rivals = {run.label: rival for run, rival in zip(runs, self.compared.rivals, strict=True)}
        self.rules = [self._line(run) for run in runs if run.kind == "rule" and run.label != NEVER]

    @cached_property
    def whole(self) -> Line:
        """The chains without a stop."""
        return self._line(self._whole)

    @cached_property
    def budgets(self) -> list[Line]:
        """The fixed budgets that no other budget and no random mixture of two dominates, from cheap to expensive."""
        quality, cost = (np.array([value(run) for run in self._fixed]) for value in (_right, _cached))
        return [self._line(self._fixed[place]) for place in upper_hull(quality, cost)]

    def tokens_of_coin(self, accuracy: float) -> float | None:
        """Return the fewest tokens of a mixture of fixed budgets with this accuracy; None if no mixture reaches it."""
        right = [line.accuracy for line in self.budgets]
        if accuracy > right[-1]:
            return None
        return float(np.interp(accuracy, right, [line.tokens["cached"] for line in self.budgets]))

    def points(self) -> list[tuple[str, str, float, float]]:
        """Return label, kind, tokens and share of right answers of every fixed budget, rule and random twin."""
        return [
            (run.label, run.kind, _cached(run), _right(run))
            for run in self.compared.runs
            if run.kind in ("rule", "fixed") or run.label in {f"random({line.label})" for line in self.rules}
        ]

    def pays_up_to(self, line: Line) -> float:
        """Return the highest price of a trial answer at which a rule beats every mixture of budgets that costs no more.

        The price is a multiple of the recorded price, at most `MOST_PRICE`.  It is 0 if the rule is not better even
        with free trial answers.
        """
        run = next(run for run in self.compared.runs if run.label == line.label)
        low, high = 0.0, MOST_PRICE
        if not self._above(run, low):
            return 0.0
        if self._above(run, high):
            return high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self._above(run, middle) else (low, middle)
        return low

    # The runs are compared at some 40 prices of a trial answer for each rule.
    @cached_property
    def _means(self) -> tuple[dict[str, float], dict[str, float]]:
        runs = self.compared.runs
        return {run.label: _mean(_chain(run)) for run in runs}, {run.label: _mean(_trials(run)) for run in runs}

    def _in_tokens(self, label: str) -> str:
        """Return a label in which numbers of checkpoints are replaced by numbers of tokens."""
        text = re.sub(r"fixed_k\((\d+)\)", lambda found: f"{int(found[1]) * self.every:,} tokens", label)
        return text.replace("a mixture of ", "").replace(" and ", " or ") if text != label else label

    def _above(self, run: Run, price: float) -> bool:
        chain, trials = self._means
        coin = self._coin(run, lambda other: chain[other.label] + price * trials[other.label])
        return coin is None or _right(run) > coin.quality

    def _coin(self, run: Run, spent: Callable[[Run], float]) -> Mixture | None:
        quality, cost = (np.array([value(other) for other in self._fixed]) for value in (_right, spent))
        return best_mixture([other.label for other in self._fixed], quality, cost, spent(run))

    def _line(self, run: Run) -> Line:
        right, rule = run.values[METRIC], run.kind == "rule" and run.label != NEVER
        twin = next((other for other in self.compared.runs if other.label == f"random({run.label})"), None)
        coins = {asking: self._coin(run, spent) for asking, spent in _SPENT.items()} if rule else {}
        fixed = {other.label: other.values[METRIC] for other in self._fixed}
        differences = {
            asking: right - (1 - coin.share) * fixed[coin.cheap] - coin.share * fixed[coin.dear]
            for asking, coin in coins.items()
            if coin is not None
        }
        compared = self._draws.compare({NEVER: right - self._whole.values[METRIC], **differences})
        rival = self._rivals[run.label].dominating
        return Line(
            label=self._in_tokens(run.label),
            right=right,
            tokens={asking: spent(run) for asking, spent in _SPENT.items()},
            trials=_mean(run.ledger.costs[TRIAL]["calls"]),
            against=compared.pop(NEVER),
            at_random=None if twin is None or not rule else _right(twin),
            dominated=None if rival is None else self._in_tokens(rival),
            coins=coins,
            above=compared,
        )


def _chain(run: Run) -> Floats:
    """Return the tokens that a model computes for a chain and for the answer at its end, shape ``(n_questions,)``."""
    return _computed(run, "generator")


def _trials(run: Run) -> Floats:
    """Return the tokens that a model computes for trial answers if prefixes are cached, shape ``(n_questions,)``."""
    return _computed(run, TRIAL)


def _computed(run: Run, component: str) -> Floats:
    costs = run.ledger.costs[component]
    return costs["uncached_tokens"] + costs["output_tokens"]


def _mean(values: Floats) -> float:
    return float(values.mean())


def _right(run: Run) -> float:
    return _mean(run.values[METRIC])


def _cached(run: Run) -> float:
    return _mean(_chain(run) + _trials(run))


def _reread(run: Run) -> float:
    """Return the mean tokens if each trial answer reads its chain again.

    With a fixed budget nothing is read again, because the server ends the chain.
    """
    again = 0.0 if run.kind == "fixed" else _mean(run.ledger.costs[TRIAL]["cached_tokens"])
    return _cached(run) + again


_SPENT: Mapping[Asking, Callable[[Run], float]] = {
    "free": lambda run: _mean(_chain(run)),
    "cached": _cached,
    "reread": _reread,
}
