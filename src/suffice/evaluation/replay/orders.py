"""Replays of independent samples, averaged over random orders, since the stored order has no meaning.

The orders of a question follow from its name.  Several orders are replayed at once, as if each were another question
(`PreparedOrders`), so rules, selectors and ledgers need no separate code.  This is slower than only summing outcomes
by stop: 200 rules of votes on 1,319 questions with 40 samples in 100 orders take 20 processor seconds instead of 2.4
(`python -m benchmarks votes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.costs import Ledger
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.normalizers import Grouping, normalizer_of
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy, Stops, stop_positions
from suffice.policy.signals import SIGNALS
from suffice.recordings.recording import Recording

if TYPE_CHECKING:
    from suffice.evaluation.replay.random_twins import Dealt

DEFAULT_ORDERS = 100
"""Number of random orders of each question's samples."""

_ORDERS_STREAM = 0x0DE5 << 40
_VALUES = 1 << 18
"""Number of values in each column of the orders that are replayed at once; memory is proportional to it."""
_MOST_CALLS = 1 << 12

Runs = Callable[[PreparedRecording], Sequence[Run]]

EachOrders = Callable[[Floats], None]
"""Receives every policy's first metric in some orders, ``(n_policies, n_orders, n_questions)``; NaN without a metric."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedOrders(PreparedRecording):
    """Some orders of each question's samples, prepared as if each order were another question.

    The first `base.n` questions are those in the first order, and so on.

    Attributes:
        places: The new position of each round, shape ``(n_orders * n_questions, n_rounds)``.
    """

    base: PreparedRecording
    places: npt.NDArray[np.int64]

    @classmethod
    def of_base(cls, base: PreparedRecording, orders: Sequence[npt.NDArray[np.int64]]) -> PreparedOrders:
        """Reorder a prepared recording into each of these orders."""
        places = np.concatenate(orders)
        shared = {
            name: getattr(base, name) for name in ("n_failed", "metric_names", "prices", "charging", "wave", "models")
        }
        return cls(recording=base.recording.reordered(places), base=base, places=places, **shared)

    @property
    def n_orders(self) -> int:
        """Number of orders that each question appears in."""
        return len(self.places) // self.base.n

    @cached_property
    def metrics(self) -> Mapping[str, Floats]:
        """The metrics at every round, by name, shape ``(n_orders * n_questions, n_rounds)``."""
        return {name: self._spread(metric) for name, metric in self.base.metrics.items()}

    def column(self, name: str) -> Floats:
        """Return a column for policies to read, shape ``(n_orders * n_questions, n_rounds)``; cached."""
        if name not in self._columns:
            self._columns[name] = self._spread(self.base.column(name))
        return self._columns[name]

    def gives(self, name: str) -> bool:
        """Return whether `column` can return a column of this name."""
        return name in self._columns or self.base.gives(name)

    def answer_ids(self, normalizer: str) -> Floats:
        """Return a number for each answer; equal answers to a question have the same number."""
        if isinstance(normalizer_of(normalizer), Grouping):  # the grouping of answers depends on their order
            return self.recording.answer_ids(normalizer)
        return self._spread(self.base.recording.answer_ids(normalizer))

    def _spread(self, column: Floats) -> Floats:
        out = np.empty(self.places.shape, dtype=column.dtype)
        out.ravel()[self._flat] = np.broadcast_to(column, (self.n_orders, *column.shape)).ravel()
        return out

    @cached_property
    def _flat(self) -> npt.NDArray[np.int64]:
        return np.asarray(self.places + self.places.shape[1] * np.arange(len(self.places))[:, None]).ravel()

    def stops(self, policy: Policy) -> Stops:
        """Return the stops of a policy.

        The position of the answer is set to the position of the stop, or to -1 if no round up to the stop has an
        answer.  The true position of the answer is needed only in recordings with a gate, where costs depend on the
        round of the answer.
        """
        if self.costs.gated:
            return super().stops(policy)
        view = self.view(policy)
        position, fired = stop_positions(policy, view)
        given = self.answered[:, np.maximum(view.index[0] - self.recording.index[0], 0) :]
        known = np.logical_or.accumulate(given, axis=1)[np.arange(len(position)), position]
        return Stops(view=view, position=position, answer_position=np.where(known, position, -1), fired=fired)

    @cached_property
    def answered(self) -> Mask:
        """Mask of the rounds with an answer, shape ``(n_orders * n_questions, n_rounds)``."""
        given = np.zeros(self.places.shape, dtype=np.bool_)
        if "answer" in self.recording.table.column_names:
            given.ravel()[self._flat] = np.tile(self.base.answered, (self.n_orders, 1)).ravel()
        return given


def n_orders(recording: Recording, orders: int | None, policies: Sequence[Policy], cut: Mask | None = None) -> int:
    """Return the number of orders to average over.

    By default this is `DEFAULT_ORDERS` for independent samples, and 1 for rounds that follow one another.

    Args:
        recording: The recording, or its header.
        orders: Number of orders; None = the default.
        policies: The policies.
        cut: Mask of the questions that a rule ended; None = those of `recording`.

    Raises:
        DataError: `orders` is below 1.  Or several orders are required where only the stored order is possible: if the
            rounds follow one another, if a policy compares neighbouring rounds, or if a rule ended questions.
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
    cut = recording.cut if cut is None else cut
    if cut.any() and orders != 1:
        raise DataError(
            f"a rule ended {int(cut.sum())} of {len(cut)} questions, and where depends on the order in "
            "which their samples came: orders=1 replays that order, and nothing else can be said"
        )
    return DEFAULT_ORDERS if orders is None else orders


def drawn_orders(recording: Recording, n: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield `n` orders as the new position of each round, shape ``(n_questions, n_rounds)``, for `Recording.reordered`.

    The order of a question's rounds follows from its name, the seed and the number of the order, so it does not depend
    on the other questions, and the first orders are the same whatever `n` is.  A closed-book round 0 keeps its place.
    """
    from suffice.evaluation.statistics import keyed_numbers, keys_of

    keys = keys_of(recording.question_ids)
    for number in range(n):
        numbers = keyed_numbers(keys, recording.shape[1], seed=seed + _ORDERS_STREAM + (number << 20))
        places = (numbers >> np.uint64(12)).astype(np.float64)  # 52 bits, which a double holds
        places[~recording.seen] = np.inf
        if int(recording.index[0]) == 0:
            places[:, 0] = -1.0
        yield np.argsort(np.argsort(places, axis=1, kind="stable"), axis=1)


def in_blocks(prepared: PreparedRecording, n: int, seed: int) -> Iterator[PreparedRecording]:
    """Yield all orders in blocks that fit into memory; with one order, the recording as it is stored."""
    if n == 1:
        yield prepared
        return
    orders = drawn_orders(prepared.recording, n, seed)
    while some := [*islice(orders, max(1, _VALUES // prepared.recording.seen.size))]:
        yield PreparedOrders.of_base(prepared, some)


def mean_runs(prepared: PreparedRecording, n: int, seed: int, runs_of: Runs) -> list[Run]:
    """Average the runs of `runs_of` over random orders; the question remains the unit of resampling.

    Args:
        prepared: The recording.
        n: Number of orders.
        seed: Seed of the orders.
        runs_of: A function that replays some orders and returns their runs, always for the same policies in the same
            sequence.
    """
    if n == 1:
        return [*runs_of(prepared)]
    totals: list[Run] = []
    for block in in_blocks(prepared, n, seed):
        runs = [_over_orders(run, block.n_orders) for run in runs_of(block)]
        totals = [_with_run(total, run) for total, run in zip(totals, runs, strict=True)] if totals else runs
    return [_times(run, 1 / n) for run in totals]


def run_all(
    prepared: PreparedRecording,
    policies: Sequence[Policy],
    n: int,
    seed: int,
    *,
    kinds: Sequence[str] = (),
    twinned: Collection[int] = (),
    dealt: Mapping[int, Dealt] | None = None,
    each: EachOrders | None = None,
) -> tuple[list[Run], dict[int, Run]]:
    """Return each policy's run as a mean over orders, and the random twins of the policies at the positions `twinned`.

    Args:
        prepared: The recording.
        policies: The policies to evaluate.
        n: Number of orders; 1 = only the stored order.
        seed: Seed of the orders.
        kinds: The kind of each run; by default `rule`.
        twinned: Positions of the policies that get a twin.
        dealt: Needed if `prepared` holds only some of the questions: for each twinned position, the policy's stops on
            all questions in every order.
        each: Called with the first metric in each order, for statistics that are not linear in the metric.
    """
    kinds, places, done = kinds or ["rule"] * len(policies), sorted(twinned), 0

    def runs_of(block: PreparedRecording) -> list[Run]:
        nonlocal done
        stopped = [run_policy(block, policy, kind=kind) for policy, kind in zip(policies, kinds, strict=True)]
        if each is not None:
            unknown = np.full(block.n, np.nan)
            firsts = np.stack([next(iter(run.values.values()), unknown) for run, _ in stopped])
            each(firsts.reshape(len(policies), block.n_orders, -1))
        found, orders = [run for run, _ in stopped], slice(done, done := done + block.n_orders)
        if places:
            from suffice.evaluation.replay.random_twins import random_stop

            every = [None if dealt is None else dealt[place].of_orders(orders) for place in places]
            found += [
                random_stop(block, policies[place], stopped[place][1], one)
                for place, one in zip(places, every, strict=True)
            ]
        return found

    runs = mean_runs(prepared, n, seed, runs_of)
    return runs[: len(policies)], dict(zip(places, runs[len(policies) :], strict=True))


def dealt_in_orders(prepared: PreparedRecording, policy: Policy, n: int, seed: int) -> Dealt:
    """Count the stops of a policy in every order."""
    from suffice.evaluation.replay.random_twins import Dealt

    blocks = in_blocks(prepared, n, seed)
    return Dealt.in_turn([Dealt.of(block, policy, block.stops(policy)) for block in blocks])


def seed_of_names(recording: Recording) -> int:
    """Return a seed computed from the names of the questions, so that nobody can choose it."""
    return int.from_bytes(blake2b("\n".join(sorted(recording.question_ids)).encode(), digest_size=8).digest(), "big")


def order_note(n: int, seed: int | None = None) -> str:
    """Return the note that figures are averaged over orders; without a seed, the orders follow from question names."""
    said = "the seed follows from the questions' names" if seed is None else f"seed {seed}"
    return (
        f"means over {n} random orders of each question's samples ({said}), drawn without replacement and for each question "
        "by itself; intervals are over questions"
    )


def _over_orders(run: Run, n_orders: int) -> Run:
    """Sum a run on `PreparedOrders`, where each order is a question of its own, over the orders of each question."""

    def total(values: Floats) -> Floats:
        return np.asarray(values.reshape(n_orders, -1).sum(axis=0))

    def totals(values: Mapping[str, Floats]) -> dict[str, Floats]:
        return {name: total(each) for name, each in values.items()}

    worst = totals(run.worst)
    return replace(
        run,
        worst=worst,
        best=worst if run.best is run.worst else totals(run.best),
        unrun=np.asarray(run.unrun.reshape(n_orders, -1).any(axis=0), dtype=np.bool_),
        ledger=Ledger(
            costs={component: totals(kinds) for component, kinds in run.ledger.costs.items()},
            calls=total(run.ledger.calls),
            money=total(run.ledger.money),
        ),
        calls=_distribution(*run.calls),
        stop_rounds={r: n_orders * share for r, share in run.stop_rounds.items()},
        oracle_seen=run.oracle_seen and {name: n_orders * value for name, value in run.oracle_seen.items()},
        answer_rounds=None,
        rounds=None if run.rounds is None else total(np.asarray(run.rounds, dtype=np.float64)),
    )


def _distribution(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the distinct values, mostly small whole numbers, with their weights."""
    if len(values) and 0 <= values.min() <= values.max() < _MOST_CALLS and (values == np.floor(values)).all():
        sums: Floats = np.bincount(values.astype(np.int64), weights=weights).astype(np.float64)
        called = np.flatnonzero(sums)
        return called.astype(np.float64), sums[called]
    support, place = np.unique(values, return_inverse=True)
    return support, np.bincount(place.reshape(-1), weights=weights, minlength=len(support)).astype(np.float64)


def _with_run(total: Run, run: Run) -> Run:
    """Add two runs of the same policy, question by question."""
    values, weights = (np.concatenate(both) for both in zip(total.calls, run.calls, strict=True))
    worst = _sums(total.worst, run.worst)
    return replace(
        total,
        worst=worst,
        best=worst if total.best is total.worst and run.best is run.worst else _sums(total.best, run.best),
        ledger=total.ledger.plus(run.ledger),
        calls=_distribution(values, weights),
        stop_rounds=_sums(total.stop_rounds, run.stop_rounds),
        estimated=None if total.estimated is None or run.estimated is None else total.estimated + run.estimated,
        reasons=_sums(total.reasons, run.reasons),
        oracle_seen=_sums(total.oracle_seen, run.oracle_seen),
        rounds=None
        if total.rounds is None or run.rounds is None
        else np.asarray(total.rounds, dtype=np.float64) + run.rounds,
    )


def _times(run: Run, share: float) -> Run:
    worst = {name: share * values for name, values in run.worst.items()}
    return replace(
        run,
        worst=worst,
        best=worst if run.best is run.worst else {name: share * values for name, values in run.best.items()},
        ledger=run.ledger.scaled(share),
        calls=(run.calls[0], share * run.calls[1]),
        stop_rounds={r: share * part for r, part in sorted(run.stop_rounds.items())},
        reasons={reason: share * count for reason, count in run.reasons.items()},
        oracle_seen=run.oracle_seen and {name: share * value for name, value in run.oracle_seen.items()},
        rounds=None if run.rounds is None else share * np.asarray(run.rounds, dtype=np.float64),
    )


def _sums(total: Any, other: Any) -> Any:
    """Add two mappings name by name; a name that only one of them has keeps its value.

    The result is None if one of the mappings is None.
    """
    if total is None or other is None:
        return None
    shared = {name: value + other[name] if name in other else value for name, value in total.items()}
    return {**other, **shared}
