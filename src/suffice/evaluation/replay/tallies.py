"""What a streamed replay adds up: figures of some questions, to which those of others are added."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffice.errors import CensoredError
from suffice.evaluation.replay.blocks import RecordingBlock
from suffice.evaluation.replay.checks import check_policy
from suffice.evaluation.replay.cost_gaps import CostGaps
from suffice.evaluation.replay.outcomes import AgreementBasis, is_agreement
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.recorded import Definedness
from suffice.evaluation.replay.selected import Selected, selected_on, tuned_on
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy, Stops
from suffice.recordings.text_keys import text_keys

__all__ = ["ClusterSums", "Moments", "PolicyTally", "Tally", "normal_interval", "tally_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Count, sum, and sum of squared deviations from the mean, of several quantities; those of other questions are added.

    Sums of whole numbers are exact whatever the parts; of other numbers all but for a rounding (Chan, Golub and LeVeque
    1979).

    >>> some, more = (Moments.of({"calls": np.array(values)}) for values in ([1.0, 3.0], [5.0]))
    >>> (some + more).mean("calls"), (some + more).squares["calls"]
    (3.0, 8.0)
    """

    n: int = 0
    sums: Mapping[str, float] = field(default_factory=dict)
    squares: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Floats]) -> Moments:
        """Return the moments of these values, each of shape ``(n_questions,)``."""
        n = len(next(iter(values.values())))
        sums = {name: float(column.sum()) for name, column in values.items()}
        squares = {name: float(((column - sums[name] / n) ** 2).sum()) for name, column in values.items()}
        return cls(n=n, sums=sums, squares=squares)

    def __add__(self, other: Moments) -> Moments:
        if not (self.n and other.n):
            return self if self.n else other
        weight = self.n * other.n / (self.n + other.n)
        squares = {
            name: square + other.squares[name] + (self.mean(name) - other.mean(name)) ** 2 * weight
            for name, square in self.squares.items()
        }
        sums = {name: value + other.sums[name] for name, value in self.sums.items()}
        return Moments(n=self.n + other.n, sums=sums, squares=squares)

    def mean(self, name: str) -> float:
        """Return the mean of a quantity."""
        return self.sums[name] / self.n

    def interval(self, name: str, level: float) -> tuple[float, float, float]:
        """Return the mean with its normal interval; NaN at n = 1."""
        if self.n < 2:  # noqa: PLR2004
            return self.mean(name), math.nan, math.nan
        return normal_interval(self.mean(name), math.sqrt(self.squares[name] / (self.n - 1) / self.n), level)


def normal_interval(mean: float, error: float, level: float) -> tuple[float, float, float]:
    """Return a mean with its normal interval."""
    from scipy.special import ndtri

    half = float(ndtri((1 + level) / 2)) * error
    return mean, mean - half, mean + half


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSums:
    """Sums of several quantities over the questions of each cluster; those of other questions are added.

    Attributes:
        tables: By cluster its key, its questions, and its sums, shape ``(n_clusters,)`` and ``(n_clusters, n_names)``; a
            cluster may be in several.
        names: The quantities.
    """

    names: tuple[str, ...] = ()
    tables: tuple[tuple[npt.NDArray[np.uint64], Floats, Floats], ...] = ()

    @classmethod
    def of(cls, keys: npt.NDArray[np.uint64], values: Mapping[str, Floats]) -> ClusterSums:
        """Return the sums of values of questions, each of shape ``(n_questions,)``, with the keys of their clusters."""
        table = (keys, np.ones(len(keys)), np.stack(list(values.values()), axis=1))
        return cls(names=tuple(values), tables=(_by_cluster([table]),))

    def __add__(self, other: ClusterSums) -> ClusterSums:
        return ClusterSums(names=self.names or other.names, tables=(*self.tables, *other.tables))

    def errors(self) -> tuple[int, dict[str, float]]:
        """Return the number of clusters, and the standard error of the mean over questions, by quantity.

        The mean is a ratio of two sums over clusters; its error is that of the linearised ratio, with C / (C - 1).
        """
        _, sizes, sums = _by_cluster(self.tables)
        n, n_clusters = float(sizes.sum()), len(sizes)
        residuals = sums - sums.sum(axis=0) / n * sizes[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = np.sqrt((residuals**2).sum(axis=0) * np.divide(n_clusters, n_clusters - 1)) / n
        return n_clusters, dict(zip(self.names, errors.tolist(), strict=True))


def _by_cluster(
    tables: Sequence[tuple[npt.NDArray[np.uint64], Floats, Floats]],
) -> tuple[npt.NDArray[np.uint64], Floats, Floats]:
    keys, sizes, sums = (np.concatenate(columns) for columns in zip(*tables, strict=True))
    unique, place = np.unique(keys, return_inverse=True)
    added: list[Floats] = [
        np.bincount(place, weights=column, minlength=len(unique)).astype(np.float64) for column in (sizes, *sums.T)
    ]
    return unique, added[0], np.stack(added[1:], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTally:
    """The figures of one policy over some questions.

    Attributes:
        moments: Of metrics and costs.
        definedness: In how many rounds its signals are defined.
        stops: Questions by the round of their stop, -1 where there was none.
        reasons: Questions by reason.
        selected: Questions that it was fitted or selected on.
    """

    definedness: Definedness
    moments: Moments = field(default_factory=Moments)
    stops: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    selected: int = 0

    @classmethod
    def of(cls, policy: Policy, prepared: PreparedRecording) -> tuple[PolicyTally, dict[str, Floats]]:
        """Replay a policy; also return each question's metrics and costs."""
        stopped, ends = prepared.stops(policy), prepared.recording.ends
        definedness = Definedness(policy)
        definedness.add(stopped.view)
        values = _exact_values(prepared, policy, stopped)
        counts = np.bincount(stopped.rounds + 1).tolist()  # -1 = there was no round
        own = cls(
            definedness=definedness,
            moments=Moments.of(values),
            stops=Counter({r - 1: count for r, count in enumerate(counts) if count}),
            reasons=stopped.counted_reasons(ends, policy.max_rounds),
            selected=tuned_on(policy, prepared.recording),
        )
        return own, values

    def __add__(self, other: PolicyTally) -> PolicyTally:
        return PolicyTally(
            definedness=self.definedness + other.definedness,
            moments=self.moments + other.moments,
            stops=self.stops + other.stops,
            reasons=self.reasons + other.reasons,
            selected=self.selected + other.selected,
        )


def _exact_values(prepared: PreparedRecording, policy: Policy, stopped: Stops) -> dict[str, Floats]:
    unrun = int(np.count_nonzero(stopped.unrun(prepared.recording.ends, policy.max_rounds)))
    if unrun:
        raise CensoredError(
            f"{policy.label!r} goes on past what was recorded in {unrun} questions of one block, because a "
            "rule ended their recording: what it would have answered there is unknown. `suffice replay` gives bounds; "
            "a stream needs questions recorded at full width, or a policy and a baseline that stop no later"
        )
    metrics = prepared.expected_values(stopped, policy.selector)
    for name, values in metrics.items():
        unmeasured = int(np.count_nonzero(np.isnan(values)))
        if unmeasured:
            raise CensoredError(
                f"{policy.label!r} stops at rounds whose {name!r} was not measured in {unmeasured} "
                "questions of one block: record answers at every round, or replay costs alone with metrics=()"
            )
    masks = prepared.charging.policy_masks(prepared.costs, policy, stopped)
    return {**metrics, **prepared.costs.totals(masks, policy.max_rounds)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The figures of a policy and its baseline over some questions: those of other questions are added.

    The order of the additions changes nothing but roundings, and the order of notes.

    Attributes:
        policies: The policy's and the baseline's.
        deltas: Of the paired differences.
        clusters: The same by cluster; empty unless questions are repeated.
        n_rows: Rounds read.
        n_failed: Questions left out because their recording failed.
        n_cut: Questions that a rule ended.
        gaps: Costs that are unknown.
        agreement: With which answers agreement compares; None where it is not measured.
        selected: Which questions anything was fitted on, of each block.
        keys: The keys of the questions, of each block.
        repeats: Whether a question belongs to a cluster of another name.
    """

    policies: tuple[PolicyTally, PolicyTally]
    deltas: Moments = field(default_factory=Moments)
    clusters: ClusterSums = field(default_factory=ClusterSums)
    n_rows: int = 0
    n_failed: int = 0
    n_cut: int = 0
    gaps: CostGaps = field(default_factory=CostGaps)
    agreement: AgreementBasis | None = None
    selected: tuple[Selected, ...] = ()
    keys: tuple[npt.NDArray[np.uint64], ...] = ()
    repeats: bool = False

    @classmethod
    def of_nothing(cls, policies: tuple[Policy, Policy]) -> Tally:
        """Return the tally of no questions."""
        mine, other = (PolicyTally(definedness=Definedness(policy)) for policy in policies)
        return cls(policies=(mine, other))

    def __add__(self, other: Tally) -> Tally:
        mine, baseline = (one + more for one, more in zip(self.policies, other.policies, strict=True))
        bases = [basis for basis in (self.agreement, other.agreement) if basis is not None]
        return Tally(
            policies=(mine, baseline),
            deltas=self.deltas + other.deltas,
            clusters=self.clusters + other.clusters,
            n_rows=self.n_rows + other.n_rows,
            n_failed=self.n_failed + other.n_failed,
            n_cut=self.n_cut + other.n_cut,
            gaps=self.gaps + other.gaps,
            agreement=bases[0] + bases[1] if len(bases) > 1 else next(iter(bases), None),
            selected=(*self.selected, *other.selected),
            keys=(*self.keys, *other.keys),
            repeats=self.repeats or other.repeats,
        )


def tally_of(
    block: RecordingBlock,
    policies: tuple[Policy, Policy],
    metrics: Sequence[str],
    prices: Price | Mapping[str, Price] | None,
    *,
    by_cluster: bool = False,
) -> Tally:
    """Return the tally of a block of whole questions.

    Args:
        block: The block.
        policies: The policy and its baseline.
        metrics: See `outcome`.
        prices: As for `replay`.
        by_cluster: Whether to add up by cluster, too: questions are repeated.

    Raises:
        CensoredError: A policy stops where a metric was not measured, or goes on past what was recorded.
        ConfigMismatchError: A policy goes on past the highest round.
    """
    for policy in policies:
        if policy.max_rounds > block.index[-1]:  # the rest does not depend on the rows
            check_policy(policy, block, part=True)
    nothing = Tally.of_nothing(policies)
    keys = block.keys
    failed = int(block.failed.sum())
    own = Tally(
        policies=nothing.policies,
        n_rows=block.table.num_rows,
        n_failed=failed,
        keys=(keys,),
        repeats=block.repeats,
    )
    if failed == len(keys):
        return own
    prepared = PreparedRecording.of(block, metrics, prices=prices)
    (mine, values), (baseline, others) = (PolicyTally.of(policy, prepared) for policy in policies)
    deltas = {name: column - others[name] for name, column in values.items()}
    clusters = ClusterSums()
    if by_cluster:
        rest = prepared.recording
        assert isinstance(rest, RecordingBlock)
        clusters = ClusterSums.of(text_keys(rest.names_of_clusters), deltas)
    return own + Tally(
        policies=(mine, baseline),
        deltas=Moments.of(deltas),
        clusters=clusters,
        n_cut=int(prepared.cut.sum()),
        gaps=prepared.costs.gaps,
        agreement=AgreementBasis.of(prepared.recording) if any(map(is_agreement, metrics)) else None,
        selected=(selected_on(policies, prepared.recording),),
    )
