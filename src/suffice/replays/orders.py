"""Replays of independent samples: one stored order is one draw, so figures are means over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.replays.baselines import Run
from suffice.replays.prepared import PreparedRecording
from suffice.rounds import Floats
from suffice.session import Policy
from suffice.signals import SIGNALS
from suffice.store.recording import Recording

__all__ = ["DEFAULT_ORDERS", "drawn_orders", "mean_runs", "n_orders", "order_note"]

DEFAULT_ORDERS = 100
"""Orders of the samples of each question."""

_SALT = 0x0DE5

Runs = Callable[[PreparedRecording], Sequence[Run]]


def n_orders(recording: Recording, orders: int | None, policies: Sequence[Policy]) -> int:
    """Return over how many orders to average: `orders`, by default `DEFAULT_ORDERS` for samples and 1 for other rounds.

    Raises:
        DataError: The rounds have an order, a policy reads one, a rule ended them in the stored one, or not at least 1.
    """
    if orders is not None and (isinstance(orders, bool) or not isinstance(orders, int) or orders < 1):
        raise DataError(f"orders is {orders!r}; allowed: a whole number of at least 1")
    if not recording.exchangeable:
        if orders not in (None, 1):
            raise DataError(
                f"orders={orders}: the rounds of this recording follow one another, so they have one order. If they are "
                "independent samples, import them with --samples"
            )
        return 1
    looking_back = sorted(
        {name for policy in policies for name in policy.raw_signals if name in SIGNALS and SIGNALS[name].lookback}
    )
    if looking_back and orders != 1:
        raise DataError(
            f"{', '.join(looking_back)} compares a round with the one before, and independent samples have no order: count "
            "votes (vote_lead, vote_share, posterior_majority), or replay the stored order alone (orders=1)"
        )
    if recording.cut.any() and orders != 1:
        raise DataError(
            f"a rule ended {int(recording.cut.sum())} of {len(recording.cut)} questions, and where depends on the order in "
            "which their samples came: orders=1 replays that order, and nothing else can be said"
        )
    return DEFAULT_ORDERS if orders is None else orders


def drawn_orders(recording: Recording, n: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield `n` orders: where each round goes, shape ``(n_questions, n_rounds)``, for `Recording.reordered`.

    Drawn independently for each question, each a permutation of its rounds; a closed-book round 0 stays where it is.
    The stream of an order depends on `seed` and its number alone: more orders go on where fewer ended.
    """
    for number in range(n):
        keys = np.random.default_rng([seed, _SALT, number]).random(recording.shape)
        keys[~recording.seen] = np.inf
        if int(recording.index[0]) == 0:
            keys[:, 0] = -1.0
        yield np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1)


def mean_runs(prepared: PreparedRecording, n: int, seed: int, runs_of: Runs) -> list[Run]:
    """Return what `runs_of` gives for each order, averaged run by run; the unit stays the question.

    Args:
        prepared: The recording.
        n: Orders.
        seed: Of the orders.
        runs_of: Returns the same runs, in the same order, of any order of the rounds.
    """
    listed = [runs_of(prepared.reordered(places)) for places in drawn_orders(prepared.recording, n, seed)]
    return [_mean(runs) for runs in zip(*listed, strict=True)]


def order_note(n: int, seed: int) -> str:
    """Return what a reader must know of averaged figures."""
    return (
        f"means over {n} random orders of each question's samples (seed {seed}), drawn without replacement and for each question "
        "by itself; intervals are over questions"
    )


def _mean(runs: Sequence[Run]) -> Run:
    first, share = runs[0], 1 / len(runs)
    ledger = reduce(lambda total, run: total.plus(run.ledger), runs[1:], first.ledger).scaled(share)
    support = np.concatenate([run.calls[0] for run in runs])
    weights = np.concatenate([run.calls[1] for run in runs]) * share
    stop_rounds, reasons = dict[int, float](), Counter[str]()
    for run in runs:
        for r, part in run.stop_rounds.items():
            stop_rounds[r] = stop_rounds.get(r, 0.0) + share * part
        reasons.update(run.reasons)
    return replace(
        first,
        worst={name: _over([run.worst[name] for run in runs]) for name in first.worst},
        best={name: _over([run.best[name] for run in runs]) for name in first.best},
        ledger=ledger,
        calls=(support, weights),
        stop_rounds=dict(sorted(stop_rounds.items())),
        reasons={reason: round(count * share) for reason, count in reasons.items()},
        oracle_seen=None
        if first.oracle_seen is None
        else {name: float(np.mean([(run.oracle_seen or {})[name] for run in runs])) for name in first.oracle_seen},
        rounds=None if first.rounds is None else _over([np.asarray(run.rounds, dtype=np.float64) for run in runs]),
    )


def _over(values: Sequence[Floats]) -> Floats:
    return np.asarray(sum(values) / len(values), dtype=np.float64)
