"""Replay: what any set of policies would have done on recorded rounds, beside every baseline, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.charging import LIVE
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.replayer import Replayer
from suffice.evaluation.replay.result import ReplayResult
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording


def replay(
    recording: Recording,
    policies: Policy | Rule | str | Sequence[Policy | Rule | str],
    *,
    metrics: str | Sequence[str] | None = None,
    baseline: str | Policy | None = None,
    resampling: Resampling = Resampling(),
    prices: Price | Mapping[str, Price] | None = None,
    margins: Sequence[float] = (0.02,),
    cost: str = "calls",
    ledger: str = LIVE.name,
    orders: int | None = None,
    wave: int | None = None,
) -> ReplayResult:
    """Evaluate policies on recorded rounds, without a call.

    Exact for the recorded run where every question was recorded to its end: stopping takes a prefix.  Where a rule ended
    the recording of a question and a policy goes on, what it would have answered is unknown: its row has bounds instead
    of means.  Beside the policies are the whole fixed_k frontier, each policy's random twin, the closed book where
    round 0 was recorded, what was recorded itself where a rule ended some of it, and two oracles.

    >>> from suffice import replay
    >>> from suffice.recordings import bundled_recording
    >>> result = replay(bundled_recording("self_refine_dv3"), ["semantic(0.03)"], metrics=["target_sentiment"])
    >>> print(result.headline("semantic(0.03)"))
    semantic(0.03): target_sentiment 97.1 (-0.7 [-2.8, +1.4] vs fixed_k(3)); 7.37 calls; dominated by fixed_k(2)

    Args:
        recording: Recorded rounds.
        policies: What to evaluate, one or several; a rule or its text stands for a policy with the recording's own settings.
        metrics: Columns in [0, 1], or `agreement`, see `outcome`; the first is what quality means.  None = `f1` and
            `em`, for multiple choice `em` alone; empty for costs and stops alone.
        baseline: What differences are taken against: the label of a row (`fixed_k(3)`, `closed_book`,
            `oracle_best`, `recorded`), `full`, a rule or a policy.  None is `fixed_k(3)`, and `recorded` for a recording
            that a rule ended in some questions.
        resampling: How intervals are made.
        prices: For all language models, or by component; None = money is NaN.
        margins: Margins of the first metric for non-inferiority and equivalence.
        cost: What "cheapest" and "dominated" compare: one of `suffice.evaluation.replay.result.COSTS`.
        ledger: Which calls a policy is charged for: `live`, what it would have paid, or `published`, as Semantic
            Early-Stopping counted; see `suffice.evaluation.replay.charging`.
        orders: For independent samples, over how many random orders of each question's samples figures are averaged;
            None = 100, and 1 for rounds that follow one another.
        wave: How many samples are requested at once, for what they cost and how long they take, see `SamplingLoop`; the last
            wave ends with the recording, also where a policy has a lower cap.  None = as they were recorded.

    Raises:
        DataError: A metric is missing, there is nothing to compare, or an unknown method of intervals, cost or ledger.
        CensoredError: A policy stops where no answer was recorded, or the baseline goes on past what was recorded.
        ConfigMismatchError: A policy was made for something else.
        UnknownSignalError: A policy reads a signal that was not recorded.
        NotFittedError: A policy lacks fitted state.
        RuleSyntaxError: Text is not a rule.
    """
    replayer = Replayer(
        recording,
        metrics=metrics,
        resampling=resampling,
        prices=prices,
        margins=margins,
        cost=cost,
        ledger=ledger,
        orders=orders,
        wave=wave,
    )
    return replayer.compare(policies, baseline).result()


def replay_matrix(view: Rounds, rules: Sequence[Rule], by_stop: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return outcomes of many rules that share a view, each of shape ``(n_rules, n_questions)``.

    The fast path under a search: one decision per rule and question, then one look-up per outcome.

    Args:
        view: What the rules read, shape ``(n_questions, n_rounds)``.
        rules: The rules.
        by_stop: Outcomes of a stop at each position (`values_by_stop`, cumulated calls), shape of `view`.
    """
    n, width = view.shape
    fires: npt.NDArray[np.bool_] = np.empty((len(rules), n, width), dtype=np.bool_)
    for position, rule in enumerate(rules):
        fires[position] = rule.fires(view)
    ended: Mask = np.arange(width) >= view.seen.sum(axis=-1)[:, None] - 1  # the last seen round stops, as all later
    np.logical_or(fires & view.seen, ended, out=fires)
    # The first True of each row, as an index into flat tables: one look-up for each outcome.
    flat = np.argmax(fires, axis=-1)
    flat += np.arange(n) * width
    return {name: np.ascontiguousarray(table).ravel()[flat] for name, table in by_stop.items()}
