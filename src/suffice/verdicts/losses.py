"""The loss of each question under a policy compared with a baseline, with bounds if an outcome is unknown.

`decide`, `certify` and `watch` all use these losses. Verdicts and certificates take the largest possible loss, alarms
the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.errors import CensoredError
from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.orders import mean_runs, run_all, seed_of_names
from suffice.evaluation.replay.outcomes import is_agreement
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Units, hash_order
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import MATCH
from suffice.policy.rounds import Floats, Mask, Positions
from suffice.policy.rules import Selector
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.copies import asked_names, unit_names

IF_INDEPENDENT = "if the questions are independent"
"""The assumption that no log can show: copies and shared sources that nobody declared, and that texts do not tell."""

PREFERENCE = "preference"
"""The metric of judgements of pairs: 1 where the baseline's answer is better, -1 where the candidate's is; only labels give it."""

Baseline = Policy | Callable[[PreparedRecording], Run]
"""A policy, or a function that replays another kind of baseline on any order of the rounds."""


def loss_bounds(mine: Floats, base: Floats, *, lowest: float = -1.0) -> tuple[Floats, Floats]:
    """Return the smallest and the largest possible loss, given metrics that may be unknown.

    >>> low, high = loss_bounds(np.array([0.5, 0.5, np.nan]), np.array([1.0, np.nan, 0.25]))
    >>> low.tolist(), high.tolist()
    ([0.5, -0.5, -0.75], [0.5, 0.5, 0.25])

    Args:
        mine: The metric under a policy, in [0, 1], any shape; NaN where unknown, so that any value in [0, 1] is
            possible.
        base: The metric under the baseline, in [0, 1] or NaN, in a shape that can be broadcast to the shape of `mine`.
        lowest: The smallest loss that counts; 0 if gains cannot occur, or must not offset losses.

    Returns:
        Both bounds, in [-1, 1], without NaN.
    """
    open_mine, open_base = np.isnan(mine), np.isnan(base)
    low = np.where(open_base, 0.0, base) - np.where(open_mine, 1.0, mine)
    high = np.where(open_base, 1.0, base) - np.where(open_mine, 0.0, mine)
    return np.maximum(low, lowest), np.maximum(high, lowest)


def base_name(metric: str) -> str:
    """Return the metric in a comparison with a threshold: ``f1`` for ``f1 > 0.5``."""
    return metric.split(">", maxsplit=1)[0].strip()


def is_computed(metric: str) -> bool:
    """Return True if a metric is computed from answers, by this library or by a registered function.

    Equal answers to one question then have the same score, even if this score is unknown.
    """
    return is_agreement(metric) or base_name(metric) in METRICS or base_name(metric) == MATCH


def at_rounds(
    recording: Recording, values: npt.NDArray[Any], rounds: npt.NDArray[np.int64], missing: Any = np.nan
) -> npt.NDArray[Any]:
    """Return each question's value at one round, shape ``(n_questions,)``; `missing` if that round was not recorded."""
    places = rounds - int(recording.index[0])
    inside = (places >= 0) & (places < values.shape[1])
    return np.where(inside, values[np.arange(len(places)), np.where(inside, places, 0)], missing)


def same_texts(recording: Recording, metric: str, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> Mask:
    """Return a mask of the questions with the same answer text in two rounds, so that any metric of answers scores both alike.

    Args:
        recording: Recorded rounds.
        metric: The metric; the mask is all False if it is not computed from answers.
        one: A round of each question, shape ``(n_questions,)``; a round that was not recorded has no answer.
        other: Another round of each question, same shape.
    """
    if not is_computed(metric) or "answer" not in recording.table.column_names:
        return np.zeros(len(one), dtype=np.bool_)
    texts = (at_rounds(recording, recording.answers, rounds, None) for rounds in (one, other))
    return np.array([isinstance(a, str) and a == b for a, b in zip(*texts, strict=True)], dtype=np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The questions that count, each once.

    Rows of the same question form one unit, and so do copies of a question, see `unit_names`.

    Attributes:
        names: The identity of the question in each row that counts.
        ids: The id of each of these rows.
        recorded: Mask of the rows that did not fail, shape ``(n_rows,)``.
        units: The questions of the rows.
        n_failed: Number of questions with a failed row, including questions that are left out.
        asked: A map from the name of each question to the hash of its text, or to the name itself if no text was
            recorded.
    """

    names: Sequence[str]
    ids: Sequence[str]
    recorded: Mask
    units: Units
    n_failed: int
    asked: Mapping[str, str]

    @classmethod
    def of(cls, recording: Recording, *, leave_out_failed: bool = False) -> Questions:
        """Return the questions of a recording."""
        recorded, names, ids = ~recording.failed, unit_names(recording), recording.question_ids
        asked = dict(zip(names, asked_names(recording, names), strict=True))
        n_failed = len({name for name, known in zip(names, recorded, strict=True) if not known})
        if leave_out_failed and n_failed:
            names, ids = (
                [text for text, known in zip(texts, recorded, strict=True) if known] for texts in (names, ids)
            )
            recorded = np.ones(len(names), dtype=np.bool_)
        return cls(
            names=names, ids=ids, recorded=recorded, units=Units.of(len(names), names), n_failed=n_failed, asked=asked
        )

    def means(self, rows: Floats | Mask, *, failed: float) -> Floats:
        """Return the mean over the rows of each question, shape ``(..., n_questions)``, in the order of the questions' first rows.

        Args:
            rows: Values of the rows that did not fail, shape ``(..., n_recorded)``.
            failed: The value of the rows that failed.
        """
        everywhere = np.full((*rows.shape[:-1], len(self.recorded)), failed)
        everywhere[..., self.recorded] = rows
        means: Floats = self.units.sums(everywhere) / self.units.sizes
        return means

    def of_recorded(self) -> Questions:
        """Return the questions with only the rows that did not fail.

        Questions without such a row are dropped, since they have no quality or costs.
        """
        if self.recorded.all():
            return self
        names, ids = (
            [text for text, known in zip(texts, self.recorded, strict=True) if known]
            for texts in (self.names, self.ids)
        )
        recorded = np.ones(len(names), dtype=np.bool_)
        units = Units.of(len(names), names)
        return replace(self, names=names, ids=ids, recorded=recorded, units=units, n_failed=0)

    def order(self, salt: str) -> npt.NDArray[np.int64]:
        """Return the order in which the test bets on the questions: by the hash of their texts or, without text, of their names.

        Shape ``(n_questions,)``.

        The order must not depend on the file, which may be sorted by score: with harmless questions first, the bets
        would be won before the losses occur, because the highest wealth at any time counts. Nor does it depend on ids
        if there are texts: ids could be renamed until the order is lucky.

        Args:
            salt: The salt of the hash, a constant of each command.
        """
        return hash_order([self.asked[name] for name in self.names], salt=salt)

    @property
    def first_ids(self) -> list[str]:
        """The id of each question's first row."""
        return [*dict(zip(reversed(self.names), reversed(self.ids), strict=True)).values()][::-1]


def failed_text(n_failed: int, *, left_out: bool) -> str:
    """Return how failed questions are treated, in words; empty if none failed.

    >>> failed_text(7, left_out=False), failed_text(1, left_out=True), failed_text(0, left_out=True)
    ('7 questions failed while recording and count as lost', '1 question failed while recording and is left out', '')
    """
    if not n_failed:
        return ""
    many = n_failed > 1
    what = ("are left out" if many else "is left out") if left_out else ("count as lost" if many else "counts as lost")
    return f"{counted(n_failed, 'question')} failed while recording and {what}"


def unknown_text(n_unknown: int, n: int) -> str:
    """Return the number of questions with an unknown outcome, in words; empty if there are none.

    >>> unknown_text(3, 200)
    'in 1.5 % of the questions an outcome is unknown, and counts at its worst'
    """
    share = 100 * n_unknown / max(n, 1)
    return f"in {share:.1f} % of the questions an outcome is unknown, and counts at its worst" if n_unknown else ""


def open_text(share: float) -> str:
    """Return the share of a mean loss that is unknown, in words; empty if nothing is unknown.

    >>> open_text(0.0125), open_text(0.0)
    ('1.2 points of that loss are outcomes that are unknown, which count at their worst', '')
    """
    points = f"{100 * share:.1f} points of that loss are outcomes that are unknown, which count at their worst"
    return points if share > 0 else ""


def two_digits(n: int) -> int:
    """Round a number up to two digits; a number below 200 stays unchanged.

    >>> two_digits(149), two_digits(1234)
    (149, 1300)
    """
    if n < 200:  # noqa: PLR2004 - three digits of which the first is a 1
        return n
    unit = int(10 ** (math.floor(math.log10(n)) - 1))
    return math.ceil(n / unit) * unit


def range_text(numbers: tuple[int, int]) -> str:
    """Return two numbers as a range, or one if they are equal.

    >>> range_text((900, 1900)), range_text((40, 40))
    ('900 to 1,900', '40')
    """
    first, last = (f"{number:,}" for number in numbers)
    return first if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """Losses of one policy on the rows that did not fail; arrays have shape ``(n_recorded,)`` and values in [-1, 1].

    Attributes:
        twin: The policy's random twin, which stops at random and in each round as often as the policy; None if not
            requested.
        low: The smallest possible loss given the known outcomes, a mean over orders.
        high: The largest possible loss; equal to `low` where everything is known.
    """

    run: Run
    twin: Run | None
    low: Floats
    high: Floats

    @property
    def open(self) -> Floats:
        """The part of the largest losses that is due to unknown outcomes; 0 where everything is known."""
        return np.where(self.low < self.high, self.high, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class LossAccount:
    """Losses of policies against a baseline, computed in each order of independent samples.

    Losses are computed before they are averaged over orders, so with `harm` a gain in one order does not offset a loss
    in another.

    Attributes:
        prepared: The recording.
        metric: The first metric of `prepared`, the one to keep.
        baseline: The run of the baseline on the recording.
        values: The baseline's metric in each order, shape ``(n_orders, n_recorded)``; NaN where it is unknown.
        seed: Seed of the random orders.
        lowest: The smallest loss that counts, 0 or -1.
        open_ends: Mask of the rows in which the baseline may have continued, so that its answer is unknown, shape
            ``(n_recorded,)``.
    """

    prepared: PreparedRecording
    metric: str
    baseline: Run
    values: Floats
    seed: int
    lowest: float
    open_ends: Mask

    @classmethod
    def of(
        cls,
        prepared: PreparedRecording,
        baseline: Baseline,
        *,
        orders: int = 1,
        harm: bool = False,
        open_ends: bool = False,
        censored: bool = False,
        remedy: str = "",
    ) -> LossAccount:
        """Replay the baseline with which policies will be compared.

        Args:
            prepared: The recording, with the metric.
            baseline: The baseline of losses.
            orders: Number of random orders of independent samples over which a loss is averaged; 1 is the stored order.
            harm: Whether gains are ignored, so that they offset no loss.
            open_ends: Whether the baseline is the logged loop itself. Its answer then counts as unknown if no reason
                was recorded for the end of a question.
            censored: Whether an answer beyond the recorded rounds counts as unknown instead of raising an error.
            remedy: Advice that the error message gives.

        Raises:
            CensoredError: The baseline needs rounds that were not recorded.
        """
        metric, values = prepared.metric_names[0], []
        seed = seed_of_names(prepared.recording) if orders > 1 else 0

        def replayed(one: PreparedRecording) -> list[Run]:
            run = run_policy(one, baseline)[0] if isinstance(baseline, Policy) else baseline(one)
            values.append(run.values[metric].reshape(one.n_orders, -1))
            return [run]

        run = mean_runs(prepared, orders, seed, replayed)[0]
        unsure = prepared.recording.unexplained & open_ends
        if censored:
            unsure = unsure | run.unrun
        elif not run.exact:
            _refuse_unrun(run, prepared, remedy)
        return cls(
            prepared=prepared,
            metric=metric,
            baseline=run,
            values=np.concatenate(values),
            seed=seed,
            lowest=0.0 if harm else -1.0,
            open_ends=unsure,
        )

    @property
    def orders(self) -> int:
        """The number of orders of independent samples."""
        return len(self.values)

    def losses(
        self, policies: Sequence[Policy], *, kinds: Sequence[str] = (), twinned: Collection[int] = ()
    ) -> Iterator[PolicyLoss]:
        """Yield the losses of each policy.

        Policies are replayed one at a time, because a run over a million rounds is large. If there are many orders of
        samples, the policies are replayed together instead, because they share the answers, votes and costs of each
        order.
        """
        if self.orders == 1 and len(policies) > 1:
            for place, policy in enumerate(policies):
                one = {0} if place in twinned else set()
                yield from self.losses([policy], kinds=kinds[place : place + 1], twinned=one)
            return
        sums, n_before = np.zeros((2, len(policies), self.prepared.n)), 0

        def add(mine: Floats) -> None:
            """Add the metric in some orders, shape ``(n_policies, n_orders, n_recorded)``."""
            nonlocal sums, n_before
            base = self.values[n_before : n_before + mine.shape[1]]
            n_before += mine.shape[1]
            sums = sums + np.stack([end.sum(axis=1) for end in self._bounds(mine, base)])

        runs, twins = run_all(self.prepared, policies, self.orders, self.seed, kinds=kinds, twinned=twinned, each=add)
        # Means over orders are floating-point sums, so a mean of 1 may come out a little larger.
        low, high = np.clip(sums / self.orders, -1.0, 1.0)
        for at, run in enumerate(runs):
            # Two means over orders can be equal although the stops differ, so `same` stays False then.
            same = np.zeros(self.prepared.n, dtype=np.bool_)
            possible = (low[at] < high[at]) & ~run.unrun
            if self.orders == 1 and possible.any() and run.policy is not None and run.answer_rounds is not None:
                same = self._same(run.policy, np.asarray(run.rounds), run.answer_rounds) & possible
            ends = [np.where(same, 0.0, end[at]) for end in (low, high)]
            yield PolicyLoss(run=run, twin=twins.get(at), low=ends[0], high=ends[1])

    def of_answers(self, policy: Policy, stops: Positions, answers: Positions) -> tuple[Floats, Floats, Mask]:
        """Return bounds on the losses of a live policy's answers, and a mask of the answers that equal the baseline's.

        Args:
            policy: The policy that decided.
            stops: The round of each stop, shape ``(n_recorded,)``.
            answers: The round of each returned answer, same shape; -1 if no answer was returned, so that the metric at
                the stop counts.
        """
        recording, metric = self.prepared.recording, self.prepared.metrics[self.metric]
        mine = at_rounds(recording, metric, np.where(answers >= 0, answers, stops))
        low, high = self._bounds(mine, self.values[0])
        same = self._same(policy, stops, answers)
        settled = same & (low < high)
        return np.where(settled, 0.0, low), np.where(settled, 0.0, high), same

    def _bounds(self, mine: Floats, base: Floats) -> tuple[Floats, Floats]:
        """Return `loss_bounds`, treating the baseline's answer as unknown at open ends; any shape ``(..., n_recorded)``."""
        if is_agreement(self.metric):  # the baseline always agrees with itself, even if its answer is unknown
            mine = np.where(self.open_ends, np.nan, mine)
        else:
            base = np.where(self.open_ends, np.nan, base)
        return loss_bounds(mine, base, lowest=self.lowest)

    def _same(self, policy: Policy, stops: Positions, answers: Positions) -> Mask:
        """Return a mask of the rows where a policy certainly returns the baseline's answer, even if the score is unknown."""
        base = self.baseline
        same = np.zeros(len(stops), dtype=np.bool_)
        if base.policy is None or base.answer_rounds is None:
            return same
        if str(policy.selector) == str(base.policy.selector):
            same = (stops == base.rounds) & (answers == base.answer_rounds)
        # Selectors that override `shares` draw among several answers.
        if all(type(one.selector).shares is Selector.shares for one in (policy, base.policy)):
            same = same | same_texts(self.prepared.recording, self.metric, answers, base.answer_rounds)
        return np.asarray(same & ~self.open_ends, dtype=np.bool_)


def _refuse_unrun(run: Run, prepared: PreparedRecording, remedy: str) -> None:
    """Raise if a baseline needs rounds that were not recorded."""
    why, said = "a rule ended their recording", ""
    if prepared.recording.unexplained.any():
        why = "nothing says why they ended"
        said = ", or say how they ended when you import them (--ended exhausted, max_rounds)"
    raise CensoredError(
        f"the baseline {run.label!r} goes on past what was recorded in {int(run.unrun.sum())} of {prepared.n} questions, because "
        f"{why}: what it would have answered there is unknown, and leaving those questions out would choose the easy ones. "
        f"{remedy}{said}"
    )
