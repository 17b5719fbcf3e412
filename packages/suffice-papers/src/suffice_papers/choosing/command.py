"""`suffice data selectors`: compare selectors, which choose the round whose answer is returned, with the oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from suffice.cli import options
from suffice.cli.groups import RecordingPath
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.errors import DataError
from suffice.evaluation.replay import calibrate, policy_for
from suffice.evaluation.replay.outcomes import default_metrics
from suffice.policy.calibration import CALIBRATED
from suffice.policy.rules import Selector, parse_rule, parse_selector
from suffice.policy.rules.ranker import Ranked, Term
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording
from suffice.verdicts.diagnostics.selection import compare_selectors
from suffice_papers.choosing.judged import JudgedComparison, compare_judged, select_variants
from suffice_papers.choosing.judging import draft_families, usable_selectors
from suffice_papers.choosing.ranking import RANKER_FEATURES, RankerFit, fit_ranker

_TEXT_SELECTORS = ("last", "first", "majority")
_USUAL_RULES = ("tasr", "answer_stable", "fixed_k(3)", "full")
_CALIBRATED_SELECTORS = ("max_p_correct", "weighted_majority")
_SELECTOR_DETAILS = {"gap closed, full %", "oracle full"}


def selectors_command(
    path: Annotated[
        RecordingPath, typer.Argument(metavar="RECORDING", help="Recorded rounds of questions to judge on.")
    ],
    tune: Annotated[RecordingPath, typer.Option("--tune", help="A recording of other questions, to fit on.")],
    resampling: options.ResamplingOptions,
    output: Output,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="A stopping rule, or 'full'; may be repeated.")
    ] = None,
    selector: Annotated[
        list[str] | None, typer.Option("--selector", help="A selector; may be repeated. Default: all, and a ranker.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        Setting(
            "search", "feature", help=f"A feature of the ranker; repeatable. Default: {' '.join(RANKER_FEATURES)}."
        ),
    ] = None,
    metric: options.Quality = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge", help="A column of marks in [0, 1]: also compare ways to choose with few calls of that judge."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the first rule with the fitted ranker as a policy.")
    ] = None,
) -> None:
    """A ranker fitted on tune questions is among them.

    Example: suffice data selectors eval.parquet --tune tune.parquet
    """
    tune_recording = read_recording(tune)
    words = options.metric_words(metric)
    metric = metric or default_metrics(tune_recording)[0]
    base = _with_calibrators(tune_recording)
    policies = [_stopping_policy(tune_recording, base, text) for text in rule or _USUAL_RULES]
    if not rule:  # the usual rules that the recordings can replay
        fitted = {calibrator.output for calibrator in base.calibrators}
        policies = [
            p for p in policies if set(p.signals) <= fitted | {"round"} | set(tune_recording.table.column_names)
        ]
    selectors: list[Selector] = [parse_selector(text) for text in selector or _usual(tune_recording, base)]
    fit = (
        None
        if selector
        else _ranker_fit(tune_recording, base, tuple(feature or RANKER_FEATURES), metric, resampling.seed)
    )
    if fit is not None:
        selectors.append(fit.policy.selector)
        policies = [replace(policy, provenance=fit.policy.provenance) for policy in policies]
    recording = read_recording(path)
    result = compare_selectors(recording, policies, selectors, metric=metric, resampling=resampling.value)
    judged: list[JudgedComparison] = []
    for policy in policies if judge is not None else ():
        families = select_variants(tune_recording, policy, draft_families(tune_recording), metric=metric, marks=judge)
        judged.append(
            compare_judged(recording, policy, families, metric=metric, marks=judge, resampling=resampling.value)
        )
    if out is not None:
        if fit is None:
            raise DataError("there is no fitted ranker to write: leave out --selector")
        replace(policies[0], selector=fit.policy.selector).save(out)
    data = {"fit": fit, **result.to_dict(), "judged": judged}
    tables = [item.table() for item in (result, *judged, *([] if fit is None else [fit]))]
    then = f"suffice data selectors {quoted(path)} --tune {quoted(tune)} -o policy.json{words}"
    if out is not None:
        then = f"suffice replay {quoted(path)} --policy {quoted(out)}{words}"
    output.show(data, Screen(tables=tables, aside=_SELECTOR_DETAILS, files={"policy": out}, then=then))


def _usual(tune: Recording, base: Policy) -> tuple[str, ...]:
    """Return the default selectors, including those for drafts if distances between drafts were recorded."""
    usable = usable_selectors(tune)
    drafts = [name for name in usable if name not in _TEXT_SELECTORS] if "centroid" in usable else []
    return (*_TEXT_SELECTORS, *drafts, *(_CALIBRATED_SELECTORS if base.calibrators else ()))


def _with_calibrators(tune: Recording) -> Policy:
    """Return a policy with a calibrator for each calibrated signal whose raw signal was recorded."""
    recorded = [name for name, raw in CALIBRATED.items() if raw in tune.table.column_names]
    outputs = [name for name in recorded if np.isfinite(tune.column(CALIBRATED[name])).any()]
    target = "em" if "em" in tune.names("metric") else "agreement"
    return calibrate(tune, rule="never()", signals=outputs, target=target)[0]


def _stopping_policy(tune: Recording, base: Policy, text: str) -> Policy:
    policy = policy_for(tune, text)
    return replace(base, rule=policy.rule if text == "full" else parse_rule(text), name=text)


def _ranker_fit(tune: Recording, base: Policy, features: tuple[str, ...], metric: str, seed: int) -> RankerFit | None:
    """Fit the ranker; None if no default feature was recorded."""
    reads = Ranked(tuple(Term(name, 0.0) for name in features)).signals
    if features == RANKER_FEATURES and not reads <= {calibrator.output for calibrator in base.calibrators}:
        features = ("votes", "is_last", "is_first")
    return fit_ranker(tune, base, metric=metric, features=features, seed=seed)
