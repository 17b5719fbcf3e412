"""Word a report's result in sentences, followed by its caveats."""

from __future__ import annotations

import math
from dataclasses import dataclass

from suffice.common.tables import Column, figure
from suffice.evaluation.replay import ReplayResult, Row
from suffice.evaluation.replay.outcomes import is_agreement
from suffice.policy.session import Policy
from suffice.verdicts.certificates import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The sentences of a report about one policy.

    Attributes:
        sentence: The result in one sentence: quality, calls, and difference with interval.  If a baseline is at least as
            good with no more calls, the sentence names it.
        caveats: The caveats, one sentence each.
        certificate: The statement of the policy's certificate, or a note that it is void or suspended; empty without a
            certificate.
    """

    sentence: str
    caveats: tuple[str, ...]
    certificate: str = ""


def headline(result: ReplayResult, label: str, policy: Policy | None = None) -> Headline:
    """Return the sentences about one policy's row of a replay, and about the policy's certificate."""
    row = result.row(label)
    metric = result.metrics[0]
    name = metric.upper()
    if is_agreement(metric):
        cut = any(other.kind == "recorded" for other in result.rows)
        name = f"agreement with the {'recorded run' if cut else 'full budget'}"
    who = label + "†" * row.censored + " (selected here: fitted or chosen on these questions)" * row.selected_here
    reached = f"On {result.n:,} questions, {who} reaches {name} {_quality_text(row, metric)} with {_calls_text(row)} model calls each"
    parts = [reached, *_difference_text(result, row, metric)]
    return Headline(
        sentence="; ".join([*parts, _rival_text(result, row, name)]) + ".",
        caveats=caveats(result, row),
        certificate="" if policy is None else _certificate_sentence(policy, label),
    )


def _certificate_sentence(policy: Policy, label: str) -> str:
    certificate = Certificate.of(policy)
    if certificate is None:
        return ""
    if not certificate.holds_for(policy):
        return f"The certificate of {label} is void: the policy was changed after it was certified."
    if policy.suspended:
        return f"The certificate of {label} is suspended: {policy.suspended}."
    how = f"{certificate.n:,} questions, {certificate.procedure} over {certificate.family_size} policies"
    return f"{label} is certified: {certificate.statement[0].lower()}{certificate.statement[1:]} ({how})."


def _difference_text(result: ReplayResult, row: Row, metric: str) -> list[str]:
    delta = row.deltas.get(metric)
    if row.label == row.baseline or (delta is None and metric not in row.delta_bounds):
        return []
    base = result.row(row.baseline)
    reached = f"{row.baseline} reaches {_quality_text(base, metric)} with {_calls_text(base)}"
    if delta is None:
        low, high = row.delta_bounds[metric]
        return [f"{reached}, a difference of {figure(low, '+.1f', 100)} to {figure(high, '+.1f', 100)} points"]
    change = f"{reached}, a difference of {figure(delta.delta, '+.1f', 100)} points"
    if math.isnan(delta.low):
        return [f"{change} (no interval)"]
    sided = "so no difference is shown" if delta.low <= 0 <= delta.high else "which excludes zero"
    bounds = f"{figure(delta.low, '+.1f', 100)} to {figure(delta.high, '+.1f', 100)}"
    return [f"{change} ({100 * result.resampling.level:g} % interval {bounds}, {sided})"]


def _rival_text(result: ReplayResult, row: Row, name: str) -> str:
    if (mixture := row.dominating_mixture) is not None:
        quality = figure(mixture.quality, ".1f", 100)
        return f"it is dominated by {row.dominated_by}, which reaches {quality} for as much ({result.cost})"
    if row.dominated_by is not None:
        other = result.row(row.dominated_by)
        quality = _quality_text(other, result.metrics[0])
        return f"it is dominated by {row.dominated_by}, which reaches {quality} with {_calls_text(other)} calls"
    if row.undecided:
        what = "dominates it" if "dominated_by" in row.undecided else f"reaches this {name} for less"
        return f"whether a fixed budget or random stopping {what} is unknown, because some rounds never ran"
    if row.cheapest_match is None:
        return f"no fixed budget and no random stopping reaches as much {name} on these questions"
    other = result.row(row.cheapest_match)
    return f"the cheapest fixed budget or random stopping of at least this {name} here is {row.cheapest_match} with {_calls_text(other)} calls"


def caveats(result: ReplayResult, row: Row) -> tuple[str, ...]:
    """Return the caveats about the figures of a row."""
    sentences = []
    if row.selected_here:
        sentences.append(
            f"Selected here: {row.label} was fitted or chosen on {row.n_selected:,} of these questions, so its figures flatter it."
        )
    if row.censored:
        sentences.append(
            f"Censored (†): for {row.n_censored:,} of {row.n:,} questions it wanted rounds that never ran, because a rule ended "
            "the recording there. Quality is given from all of those answers wrong to all of them right, costs are the least "
            "that is possible."
        )
    if row.n_failed:
        sentences.append(f"{row.n_failed:,} questions failed while recording and are left out of every figure.")
    if is_agreement(result.metrics[0]):
        sentences += [f"A{note[1:]}." for note in result.notes if note.startswith("agreement measures")]
    delta = row.deltas.get(result.metrics[0])
    if delta is not None and delta.warning and row.label != row.baseline:
        exact = "" if math.isnan(delta.p_exact) else f" Exact sign-flip test: p = {delta.p_exact:.3f}."
        sentences.append(f"{delta.warning[0].upper()}{delta.warning[1:]}.{exact}")
    return tuple(sentences)


_POINTS, _CALLS = Column("points", ",.1f", scale=100), Column("calls", ",.2f")


def _quality_text(row: Row, metric: str) -> str:
    if metric not in row.bounds:
        return _POINTS.text(row.metrics[metric])
    low, high = map(_POINTS.text, row.bounds[metric])
    return f"between {low} and {high}"


def _calls_text(row: Row) -> str:
    return f"{'at least ' * row.censored}{_CALLS.text(row.calls.mean)}"
