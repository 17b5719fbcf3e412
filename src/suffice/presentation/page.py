"""Create a report in one call: replay policies on recordings, and write the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from suffice.common.files import write_file
from suffice.evaluation.replay import Price, policy_for
from suffice.evaluation.replay.outcomes import default_metrics
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.presentation.data import Report, Settings, make_report
from suffice.presentation.html import render_html
from suffice.presentation.trajectories import Passages
from suffice.recordings.recording import Recording


def report(
    recordings: Recording | Mapping[str, Recording],
    policies: Sequence[Policy | Rule | str],
    out: str | Path | None = None,
    *,
    tune: Recording | None = None,
    settings: Settings | None = None,
    prices: Mapping[str, Price] | None = None,
    passages: Passages | None = None,
    everything: bool = False,
) -> Report:
    """Replay policies on recordings and build a report, written as one HTML page if `out` names a file.

    >>> import tempfile
    >>> from suffice import Resampling, report
    >>> from suffice.recordings import bundled_recording
    >>> quick = Settings(metrics=("target_sentiment",), resampling=Resampling(n_resamples=20))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "report.html")
    ...     result = report(bundled_recording("self_refine_dv3"), ["fixed_k(2)"], page, settings=quick)
    ...     page.read_text("utf-8")[:15], result.cells[0].result.rows[0].label
    ('<!doctype html>', 'fixed_k(2)')

    Args:
        recordings: One recording, or several by name.
        policies: Policies; a rule or its text becomes a policy with the first recording's own settings.
        out: The file for the page, which opens without a network; None = write no file.
        tune: The recording that policies were fitted on, for diagnostics such as drift; None if unknown.
        settings: Metrics, baseline, draws and so on; None = the defaults.
        prices: Prices of language models by component.  None = take money from the log (`spend`); NaN where the log has
            none.
        passages: Title and text of the evidence by question and passage id; recordings contain only the ids.
        everything: Whether to include every trajectory in the page, however large it becomes.

    Raises:
        DataError: No recording, no policy, two policies of one label, or the page cannot be written.
        ConfigMismatchError: A policy belongs to none of the recordings.
        RuleSyntaxError: Text is not a rule.
    """
    named = {"recording": recordings} if isinstance(recordings, Recording) else recordings
    first = next(iter(named.values()), None)
    if settings is None and named:
        settings = Settings(metrics=min((default_metrics(item) for item in named.values()), key=len))
    fitting = [item if isinstance(item, Policy) or first is None else policy_for(first, item) for item in policies]
    result = make_report(
        named,
        [item for item in fitting if isinstance(item, Policy)],
        tune=tune,
        settings=settings,
        prices=None if prices is None else dict.fromkeys(named, prices),
    )
    if out is not None:
        write_file(out, render_html(result, everything=everything, passages=passages))
    return result
