"""Replays of independent samples: the stored order is only one of many, so figures are means over random orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS
from suffice.recordings.recording import Recording

DEFAULT_ORDERS = 100
"""Number of random orders of each question's samples."""

_ORDERS_STREAM = 0x0DE5

Runs = Callable[[PreparedRecording], Sequence[Run]]


def n_orders(recording: Recording, orders: int | None, policies: Sequence[Policy]) -> int:
    """Return the number of orders to average over: `orders`, by default `DEFAULT_ORDERS` for samples and 1 for other rounds.

    Raises:
        DataError: `orders` is below 1, or above 1 although the rounds follow one another, a policy compares
            neighbouring rounds, or a rule ended questions in the stored order.
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
    """Yield `n` orders as the new position of each round, shape ``(n_questions, n_rounds)``, for `Recording.reordered`.

    Each order permutes the rounds of each question independently; a closed-book round 0 keeps its place.  An order
    depends only on `seed` and its own number, so the first orders are the same whatever `n` is.  Questions are drawn in
    the order of their names, so the order of rows in the file does not matter.
    """
    by_name = np.argsort(np.argsort(np.array(recording.question_ids), kind="stable"))
    for number in range(n):
        keys = np.random.default_rng([seed, _ORDERS_STREAM, number]).random(recording.shape)[by_name]
        keys[~recording.seen] = np.inf
        if int(recording.index[0]) == 0:
            keys[:, 0] = -1.0
        yield np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1)


def mean_runs(prepared: PreparedRecording, n: int, seed: int, runs_of: Runs) -> list[Run]:
    """Return the runs of `runs_of` averaged over orders; the question remains the unit.

    Args:
        prepared: The recording.
        n: Orders.
        seed: Of the orders.
        runs_of: Returns the runs for one order of the rounds, always in the same sequence.
    """
    if n == 1:
        return [*runs_of(prepared)]
    totals: list[Run] = []
    for places in drawn_orders(prepared.recording, n, seed):
        runs = runs_of(prepared.reordered(places))
        totals = [_with_run(total, run) for total, run in zip(totals or runs, runs, strict=True)] if totals else [*runs]
    return [_times(run, 1 / n) for run in totals]


def seed_of_names(recording: Recording) -> int:
    """Return a seed computed from the names of the questions, so that nobody can choose it."""
    return int.from_bytes(blake2b("\n".join(sorted(recording.question_ids)).encode(), digest_size=8).digest(), "big")


def order_note(n: int, seed: int | None = None) -> str:
    """Return the note on figures averaged over orders; without a seed it says that the orders follow from the questions' names."""
    said = "the seed follows from the questions' names" if seed is None else f"seed {seed}"
    return (
        f"means over {n} random orders of each question's samples ({said}), drawn without replacement and for each question "
        "by itself; intervals are over questions"
    )


def _with_run(total: Run, run: Run) -> Run:
    """Return the sum of two runs of the same policy, question by question."""
    support, place = np.unique(np.concatenate([total.calls[0], run.calls[0]]), return_inverse=True)
    weights = np.zeros(len(support))
    np.add.at(weights, place.reshape(-1), np.concatenate([total.calls[1], run.calls[1]]))
    return replace(
        total,
        worst=_sums(total.worst, run.worst),
        best=_sums(total.best, run.best),
        ledger=total.ledger.plus(run.ledger),
        calls=(support, weights),
        stop_rounds=_sums(total.stop_rounds, run.stop_rounds),
        reasons=_sums(total.reasons, run.reasons),
        oracle_seen=_sums(total.oracle_seen, run.oracle_seen),
        answer_rounds=None,
        rounds=None
        if total.rounds is None or run.rounds is None
        else np.asarray(total.rounds, dtype=np.float64) + run.rounds,
    )


def _times(run: Run, share: float) -> Run:
    """Return a run with every figure multiplied by `share`; counts of reasons are rounded."""
    return replace(
        run,
        worst={name: share * values for name, values in run.worst.items()},
        best={name: share * values for name, values in run.best.items()},
        ledger=run.ledger.scaled(share),
        calls=(run.calls[0], share * run.calls[1]),
        stop_rounds={r: share * part for r, part in sorted(run.stop_rounds.items())},
        reasons={reason: round(share * count) for reason, count in run.reasons.items()},
        oracle_seen=run.oracle_seen and {name: share * value for name, value in run.oracle_seen.items()},
        rounds=None if run.rounds is None else share * np.asarray(run.rounds, dtype=np.float64),
    )


def _sums(total: Any, other: Any) -> Any:
    """Return the sums by name of two mappings, either of which may lack a name; None if both are None."""
    if total is None or other is None:
        return None
    shared = {name: value + other[name] if name in other else value for name, value in total.items()}
    return {**other, **shared}
