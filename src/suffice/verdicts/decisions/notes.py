"""Notes on an advice: on the metric, unused columns, the identity of questions, and proofs that later questions contradict."""

from __future__ import annotations

import numpy as np

from suffice.common.tables import CAUTION, counted
from suffice.evaluation.replay import seen_from
from suffice.evaluation.replay.cost_gaps import ASKED_NOTE
from suffice.evaluation.replay.outcomes import SECOND, agreement_note, choice_notes, is_agreement, measured_metrics
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import MATCH
from suffice.policy.rules import Selector
from suffice.policy.signals import TRIAL
from suffice.recordings.recording import Recording
from suffice.recordings.schema import ASKED, CHECKPOINTS, TRIALS, cost_column
from suffice.verdicts.copies import copies_note, unit_names
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.losses import IF_INDEPENDENT, PREFERENCE, base_name, range_text, unknown_text

_FAR = 10_000
"""More questions than this are out of reach of most logs."""

_UNEQUAL = 10
"""Percentage points by which the calls and the money saved differ at least if calls are not equal."""


def metric_notes(recording: Recording, metric: str, selector: Selector, *, stated: bool) -> list[str]:
    """Return notes on a metric that comes from the log.

    If the user has not `stated` a metric, other metrics of the log are mentioned, too.
    """
    name = base_name(metric)
    notes = []
    if name in selector.signals:
        notes.append(f"the selector reads {name}, which also judges: a live loop must measure it in every round")
    if name in METRICS or name in (MATCH, PREFERENCE) or is_agreement(name):
        by_golds = (*METRICS, MATCH)
        own = [other for other in measured_metrics(recording) if other not in by_golds]
        if name in by_golds and own and not stated:
            listed = ", ".join(map(repr, own))
            judges = (
                "gold answers judge" if "golds" in recording.table.column_names else f"the log's own {name!r} judges"
            )
            notes.append(f"{judges}, and not the log's own {listed}: --metric {own[0]} judges by it")
        elif name in by_golds and not stated:
            notes += recording.metadata.get(SECOND, ())
        return notes
    notes.append(f"a higher {name} counts as better")
    others = [other for other in recording.names("metric") if other != name]
    if not stated and others:
        notes.append(f"judged by {name}; the log also has {', '.join(others)}: --metric {others[0]} judges by it")
    elif not stated:
        notes += recording.metadata.get(SECOND, ())
    return notes


def name_notes(recording: Recording) -> list[str]:
    """Return notes if questions cannot be told apart by their texts, or if rows repeat a question."""
    notes = []
    are_texts = all(" " in name for name in recording.question_ids)
    if not (are_texts or seen_from(recording).texts):
        notes.append(
            "the recording has no texts of questions: if one is asked again under another id, it counts twice (import the log with --column "
            "question=COLUMN)"
        )
    rows, units = len(recording.question_ids), len(set(unit_names(recording)))
    if units < rows:
        what = (
            "questions repeat another" if recording.exchangeable else "rows repeat a question"
        )  # samples have no runs
        notes.append(f"{rows - units} of {rows} {what}: each question counts once, with its mean")
    return notes + copies_note(recording)


def _contradiction_notes(trial: Trial) -> list[str]:
    """Return notes on earlier proofs that later questions contradict."""
    once = trial.proved_once
    alarmed = once & trial.rung & ~trial.lost_more
    no_longer = trial.above.shown(trial.alpha) & ~trial.hopeless
    notes = []
    for places, start, before, now in (
        (once & trial.lost_more, "not advised any more: ", "less", "which lost more on all questions so far"),
        (alarmed, "not advised any more: ", "less", "until the alarm on later questions rang"),
        (no_longer, "", "more", "which lost less on all questions so far"),
    ):
        labels = [trial.candidates[place].label for place in np.flatnonzero(places).tolist()]
        if labels:
            notes.append(
                f"{start}{', '.join(labels)}, shown earlier to lose {before} than {100 * trial.max_loss:g} points, {now}. "
                "The loop, or what it is asked, may have changed"
            )
    lacking = once & ~trial.proved & ~trial.contradicted
    if labels := [trial.candidates[place].label for place in np.flatnonzero(lacking).tolist()]:
        notes.append(
            f"not advised any more: {', '.join(labels)}, proved earlier with the share of the risk of a candidate whose own proof is taken back"
        )
    return notes


def taken_back_text(trial: Trial) -> str:
    """Return sentences on the cheapest candidate whose proof is contradicted by later questions; empty if there is none.

    If the alarm rang, the sentences name the question from which on the candidate seems to lose more. Questions are
    counted in the order of bets: by call of `decide`, and within a call by hash.
    """
    if not trial.taken_back:
        return ""
    place = min(trial.taken_back, key=lambda place: float(trial.totals.costs[trial.cost][place]))
    n, drift, where = trial.totals.n, trial.drift, trial.sequence.index(place)
    text = f"{trial.candidates[place].label}, proved earlier to lose less than {100 * trial.max_loss:g} points of {trial.metric}, "
    rang = 0 if drift is None else int(drift.alarm.rang_at[where])
    if drift is not None and rang:
        first = n - drift.n  # questions before the alarm was set up
        last = int(drift.n - drift.began[where])
        text += f"seems to lose {100 * drift.since[where]:.1f} since about question {n - last + 1:,} of {n:,}; "
        text += f"the alarm rang at question {first + rang:,} (risk {100 * trial.alpha:g} % {IF_INDEPENDENT})"
    else:
        lost, unknown = trial.totals.losses[place], trial.totals.open[place]
        if trial.labels is not None:  # questions without a label contradict nothing
            lost, unknown = lost - unknown, 0.0
        lost, unknown = (100 * part / (n * trial.by_labels) for part in (lost, unknown))
        text += f"lost {lost:.1f} on all {counted(n, 'question')} together"
        text += f", of which {unknown:.1f} are unknown outcomes that count at their worst" if unknown > 0 else ""
    then = "put the questions from now on to a new decision (-o OTHER.json)"
    if trial.verdict == "do it":
        then = "where it is deployed, put what is advised in its place"
    return f"{text}. The loop, or what it is asked, may have changed: {then}"


def _thought_notes(recording: Recording) -> list[str]:
    """Return notes on chains of thought: on the cost of trial answers, and on checkpoints unknown to a running loop."""
    notes = [ASKED_NOTE] if recording.metadata.get(TRIALS) == ASKED else []
    depends = recording.metadata.get("depends") or {}
    if CHECKPOINTS in depends:
        notes.append(
            f"{CAUTION}what is advised cannot be deployed: the checkpoints are {depends[CHECKPOINTS]}, known only when it has ended"
        )
    asked, cost = cost_column(TRIAL, "calls"), cost_column(TRIAL, "output_tokens")
    if {asked, cost} <= {*recording.names("cost")} and np.isnan(
        recording.column(cost)[recording.column(asked) > 0]
    ).any():
        notes.append(
            f"{CAUTION}what a trial answer costs is unknown, so that calls are compared, which say nothing of chains of thought, since each chain is "
            "one call: import the table with --trial-cost N, and tokens are compared"
        )
    return notes


def _unequal_calls_notes(recording: Recording, trial: Trial) -> list[str]:
    """Return a note if rounds used different models whose calls do not cost the same.

    The sign of this is a candidate that saves clearly more or less money (or tokens) than calls, in per cent.
    """
    if all(len({*models} - {None}) <= 1 for models in recording.objects("model").tolist()):
        return []
    saved = {name: 1 - costs[:-1] / costs[-1] for name, costs in trial.totals.costs.items() if costs[-1] > 0}
    for name in ("money", "tokens"):
        if "calls" not in saved or not np.isfinite(saved.get(name, np.array([]))).any():
            continue
        place = int(np.nanargmax(np.abs(saved[name] - saved["calls"])))
        calls, other = (100 * float(saved[kind][place]) for kind in ("calls", name))
        if abs(other - calls) >= _UNEQUAL:
            text = (
                f"rounds have different models, whose calls are not equal: {trial.candidates[place].label} saves {calls:.0f} % of calls, but "
                f"{other:.0f} % of {name}; to count {name}, --cost {name} (with -o OTHER.json)"
            )
            return [text]
    return []


def unit_notes(recording: Recording, trial: Trial) -> list[str]:
    """Return notes on the questions of the verdict part: on their measurement, unknown outcomes, and contradicted proofs."""
    notes = _thought_notes(recording)
    if trial.loop.samples:
        notes.append(
            f"losses are means over {trial.orders} random orders of each question's samples; the unit is the question"
            if trial.orders > 1
            else "samples count in the order in which they came, those of a panel in its order"
        )
    if is_agreement(trial.metric):
        # This holds only if the baseline returns the answer that agreement compares with, and if agreement is 0 or 1.
        bounds = trial.metric != "agreement_f1" and trial.selector == "last" and trial.baseline in ("recorded", "full")
        bound = "A policy can lose at most the share of answers that differ, on any metric; for"
        notes.append(
            f"{agreement_note(recording)}. {bound if bounds else 'For'} rules on stability the comparison is circular"
        )
    notes += choice_notes(recording, [trial.metric])
    if trial.cost == "calls" and "model" in recording.names("label"):
        notes += _unequal_calls_notes(recording, trial)
    if recording.independent:
        from suffice.evaluation.replay.panels import best_single_note

        notes += best_single_note(recording, trial.metric)
    notes += _contradiction_notes(trial)
    totals = trial.totals
    if totals.failed:
        count = "counts" if totals.failed == 1 else "count"
        notes.append(f"{counted(totals.failed, 'question')} failed while recording, and {count} as lost")
    if totals.unknown:
        notes.append(unknown_text(totals.unknown, totals.n))
    equal = trial.answers is not None and trial.answers.all_equal
    if totals.constant is not None and equal and not is_agreement(trial.metric):
        notes.append(
            f"{trial.metric} is {totals.constant:g} for every answer here, so it could not show a loss. That nothing is lost follows from the "
            "answers: they are equal in all rounds"
        )
    return notes


def needed_text(needed: tuple[int, int] | None) -> str:
    """Return a sentence on the number of further questions that a proof needs.

    >>> needed_text((300, 510))
    'Record about 300 to 510 more questions.'
    >>> needed_text((230_000, 350_000))
    'It takes about 230,000 to 350,000 more questions to know: keep what you have unless you have as many.'

    Args:
        needed: The smallest and the largest estimate of that number; None if it cannot be estimated.
    """
    if needed is None:
        return "Record more questions; how many more cannot be said yet."
    if needed[0] <= _FAR:
        return f"Record about {range_text(needed)} more questions."
    return f"It takes about {range_text(needed)} more questions to know: keep what you have unless you have as many."
