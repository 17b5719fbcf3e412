"""Replay of policies on recorded rounds, with every baseline and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.blocks import Source
from suffice.evaluation.replay.charging import LIVE
from suffice.evaluation.replay.parts import BLOCK_ROWS, Progress
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.replayer import Replayer
from suffice.evaluation.replay.result import ReplayResult
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.stored_loops import refuse_loops_of


def replay(
    recording: Recording | Source | str | Path,
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
    block_rows: int = BLOCK_ROWS,
    jobs: int | None = None,
    on_progress: Progress | None = None,
) -> ReplayResult:
    """Evaluate policies on recorded rounds, without calling a model.

    Figures are exact if every question was recorded to its end, since a policy that stops early uses the first of the
    recorded rounds.  If a rule ended the recording of a question before the policy stops, the policy's answer is
    unknown, and its row has bounds instead of means.  The baselines are every fixed_k, each policy's random twin, the
    closed book if round 0 was recorded, the recorded run if a rule ended some questions, and two oracles.

    >>> from suffice import replay
    >>> from suffice.recordings import bundled_recording
    >>> result = replay(bundled_recording("self_refine_dv3"), ["semantic(0.03)"], metrics=["target_sentiment"])
    >>> print(result.headline("semantic(0.03)"))
    semantic(0.03): target_sentiment 97.1 (-0.7 [-2.8, +1.4] vs fixed_k(3)); 7.37 calls; dominated by fixed_k(2)

    Args:
        recording: Recorded rounds, or their path.  A large file is read in blocks of whole questions, with the same
            figures; the rows of a question must be adjacent.  A few kilobytes stay in memory for each question.
        policies: One or several policies; a rule or its text stands for a policy with the recording's own settings.
        metrics: Columns in [0, 1], or `agreement`, see `outcome`; the first is the quality.  None = `f1` and `em`, or
            only `em` for multiple choice.  With an empty list, only costs and stops are computed.
        baseline: The baseline of differences: the label of a row (`closed_book`, `oracle_best`, `recorded`), `full`, a rule or
            a policy.  None = `fixed_k(3)`, or `recorded` if a rule ended some questions.
        resampling: Settings of the intervals.
        prices: One price for all language models, or prices by component; None = the money in the log (`spend`), or NaN.
        margins: Margins of the first metric for non-inferiority and equivalence.
        cost: The cost that "cheapest" and "dominated" compare: one of `suffice.evaluation.replay.result.COSTS`.
        ledger: The convention of charging: `live` charges the calls that a live policy would pay for, `published` those
            that the paper on Semantic Early-Stopping counted.  See `suffice.evaluation.replay.charging`.
        orders: Number of random orders of independent samples to average over; None = 100.  Rounds that follow one
            another have only the recorded order.
        wave: Number of samples requested at once, which decides costs and seconds, see `SamplingLoop`.  The last wave
            ends with the recording, even if a policy has a lower cap.  None = as recorded.
        block_rows: For a file, the number of rows that are replayed at once.
        jobs: For a file, the number of processes that read it; if given, even a small file is read in blocks.
            None = one process for every `PIECE_ROWS` rows, at most one for each processor.
        on_progress: Called with the number of pieces of a file that were read, and their total over all passes.

    Raises:
        DataError: A metric is missing, a setting is unknown, or the rows of a question are apart in a large file.
        CensoredError: A policy stops where no answer was recorded, or the baseline needs rounds that were not recorded.
        ConfigMismatchError: A policy was made for a model, retriever or prompt that is not the recording's.
        UnknownSignalError: A policy reads a signal that was not recorded.
        NotFittedError: A policy lacks fitted state.
        RuleSyntaxError: A text is not a rule.
        SchemaError: The file is not a recording.
        UnsettledError: The recording holds loops of several models, prompts or systems.
        WorkerDiedError: A process was killed.
    """
    refuse_loops_of(recording.path if isinstance(recording, Source) else recording)
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
        block_rows=block_rows,
        jobs=jobs,
        on_progress=on_progress,
    )
    return replayer.compare(policies, baseline).result()


def replay_matrix(view: Rounds, rules: Sequence[Rule], by_stop: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return outcomes of many rules that share a view, each of shape ``(n_rules, n_questions)``.

    Searches use this function because it is fast: it makes one decision for each rule and question, and then needs only
    one look-up for each outcome.

    Args:
        view: The columns that the rules read, shape ``(n_questions, n_rounds)``.
        rules: The rules.
        by_stop: Outcomes of a stop at each position (`values_by_stop`, cumulated calls), shape of `view`.
    """
    n, width = view.shape
    fires: npt.NDArray[np.bool_] = np.empty((len(rules), n, width), dtype=np.bool_)
    for position, rule in enumerate(rules):
        fires[position] = rule.fires(view)
    # A question stops at its last seen round at the latest.
    ended: Mask = np.arange(width) >= view.seen.sum(axis=-1)[:, None] - 1
    np.logical_or(fires & view.seen, ended, out=fires)
    # The first True of each row, as an index into flattened tables, so that each outcome takes one look-up.
    flat = np.argmax(fires, axis=-1)
    flat += np.arange(n) * width
    return {name: np.ascontiguousarray(table).ravel()[flat] for name, table in by_stop.items()}
