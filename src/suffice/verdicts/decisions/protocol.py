"""Decide whether to change a loop, on questions that were not used to choose the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.common.tables import counted
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import check_policy, seen_from, seen_in, selected_on
from suffice.evaluation.replay.costs import CostTable
from suffice.evaluation.replay.orders import n_orders
from suffice.evaluation.replay.outcomes import (
    AGREEMENT,
    has_outcome,
    is_agreement,
    outcome,
    unanswered,
)
from suffice.evaluation.replay.prices import Price, Prices, currency_of, with_priced_spend
from suffice.evaluation.statistics import hash_places
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Mask
from suffice.policy.rules import Selector, parse_selector
from suffice.policy.seen import Seen, id_hash
from suffice.recordings.audits import uncut
from suffice.recordings.recording import Recording
from suffice.recordings.runs import attempts_of, begins_closed_book, is_of_steps
from suffice.verdicts.copies import asked_names, near_known, unit_names, with_copies, wordings_of
from suffice.verdicts.decisions.advice import Advice
from suffice.verdicts.decisions.answer_counts import AnswerCounts
from suffice.verdicts.decisions.candidates import candidates, declared_defaults, only_quality, refuse_cheaper_last
from suffice.verdicts.decisions.gates import gate_notes
from suffice.verdicts.decisions.losses import SAVABLE, measure_candidates, prices_text
from suffice.verdicts.decisions.notes import metric_notes, name_notes, unit_notes
from suffice.verdicts.decisions.same_loop import (
    LoopStops,
    fingerprints,
    one_loop,
    refuse_other_outcomes,
    refuse_single_rounds,
    rounds_text,
    same_prices,
)
from suffice.verdicts.decisions.steps import Spending, refuse_states, worth_of
from suffice.verdicts.decisions.trial import Trial

if TYPE_CHECKING:
    from suffice.verdicts.decisions.labels import Labels

_SALT = "decide:"


def decide(
    recording: Recording,
    *,
    metric: str | None = None,
    max_loss: float | None = None,
    alpha: float | None = None,
    cost: str | None = None,
    baseline: str | None = None,
    selector: str | Selector | None = None,
    tune: Recording | None = None,
    tune_share: float | None = None,
    prices: Price | Mapping[str, Price] | None = None,
    leave_out_failed: bool = False,
    previous: Advice | None = None,
    orders: int | None = None,
    signals: Sequence[str] = (),
    labels: Labels | None = None,
    label_noise: float | None = None,
    min_saving: float | None = None,
    success_price: float | None = None,
) -> Advice:
    """Advise whether to keep a loop, lower its cap, or stop by a rule.

    Tune questions determine the candidates and their order.  The other questions judge the candidates, by bets that are valid after
    every question, so you may add questions as often as you like: the risk of advice that loses more than `max_loss` stays `alpha`.

    >>> from suffice import decide
    >>> from suffice.recordings import bundled_recording
    >>> advice = decide(bundled_recording("self_refine_gpt4"), metric="target_sentiment", leave_out_failed=True)
    >>> advice.verdict, advice.policy.label
    ('do it', 'fixed_k(2)')

    Args:
        recording: Recorded rounds.
        metric: The metric to keep: a column in [0, 1], `agreement` or ``abandon(solved)``; None = F1 (EM for choices), else the log's only score, else `agreement`.
        max_loss: The largest mean loss that you would accept, in (0, 1), in the unit of the metric; None = 0.02.
        alpha: The risk of false advice, in (0, 1); None = 0.05.
        cost: The cost to save, one of `SAVABLE`; None = the default of `declared_defaults`.
        baseline: The baseline of differences: `recorded` for the logged loop itself, ``MODEL alone``, or a rule such as `fixed_k(5)`; None = the default of `declared_defaults`.
        selector: The selector of candidates and baseline; None = `last` (for samples the majority, for checked drafts `min_check_error`).
        tune: Tune questions, recorded from the same loop; None = choose a share `tune_share` of the recording's questions by the hash of their texts, else of their names.
        tune_share: Share of the tune questions, in (0, 1); None = 0.3.
        prices: Prices, to compute money: one for all language models, or by component.
        leave_out_failed: Whether to leave out questions whose recording failed; else they count as lost.
        previous: An earlier advice on the same loop.  Its declaration stays valid, and new questions add to its evidence.
        orders: Number of random orders of samples to average over; None = 100, or only the recorded order if a rule stopped some questions.
        signals: Columns that hold a confidence in an answer, or in a run that may be given up. Columns whose names mark them as a confidence are used anyway.
        labels: Labels by hand, see `Labels.read`; `Labels()` = none yet. The metric is then `match` or `preference`, and `Advice.to_label` lists the next questions.
        label_noise: The largest share of labels that are wrong at random, in [0, 0.5), declared before the first label; None = 0.
        min_saving: The smallest saving that is worth a change, as a share of the cost, in [0, 1); None = 0 (any saving), or 0.05 for steps of agents.
        success_price: The value of a success, in the currency of the costs; ``abandon(solved)`` then shows what giving up saves and loses. None = that of `previous`.

    Raises:
        DataError: There is nothing to decide, a metric or cost is unknown, or an option is outside its range.
        CensoredError: The baseline needs rounds that were not recorded.
        ConfigMismatchError: The recording belongs to another loop than the earlier advice.
        UnsettledError: The log has several loops (choose one by `recording.where(model=...)`) or several scores (choose one by `metric`).
        UnknownSignalError: A candidate reads a signal that the questions of the verdict part lack.
    """
    said: dict[str, Any] = {"metric": metric, "max_loss": max_loss, "alpha": alpha, "cost": cost, "baseline": baseline}
    said |= {"leave_out_failed": leave_out_failed or None, "orders": orders, "selector": selector and str(selector)}
    said |= {"min_saving": min_saving, "label_noise": label_noise}
    given = {name: value for name, value in said.items() if value is not None}
    notes: list[str] = [*recording.reading_notes]
    recording, tune = one_loop(recording, tune, baseline if previous is None else previous.trial.baseline)
    if prices is not None:
        recording, tune = with_priced_spend(recording, prices), tune and with_priced_spend(tune, prices)
    previous = previous and _same_parts(previous, labels, of_tune=tune is not None or tune_share is not None)
    if labels is not None:
        given["metric"] = labels.metric(metric or (previous.trial.metric if previous else None))
        notes += labels.note(recording)
    if previous is None:
        parts: Any = {"prices": prices, "signals": signals, "notes": notes, "of_labels": labels is not None}
        trial, fresh = _begun(recording, given, tune, tune_share, **parts)
    else:
        trial, (fresh, prices) = previous.trial, _continued(recording, previous.trial, given, prices, notes)
    about = _about(recording, trial.metric, prices)
    del recording  # large for a million rounds, and from here on only questions of the verdict part are measured
    judged: Any = {"labels": labels, "previous": previous, "success_price": success_price, "about": about}
    return _advised(fresh, trial, prices, notes, **judged)


def _advised(
    fresh: Recording | None,
    trial: Trial,
    prices: Prices,
    notes: list[str],
    *,
    labels: Labels | None,
    previous: Advice | None,
    success_price: float | None,
    about: Mapping[str, Any],
) -> Advice:
    """Judge a trial by the new questions of the verdict part; if there are none, only add notes to the earlier advice."""
    if fresh is None:
        assert previous is not None
        advice = replace(previous, notes=tuple(dict.fromkeys([*previous.notes, *notes])))
    else:
        asking: dict[str, Any] = {}
        if labels is None:
            trial = _judged(fresh, trial, prices, notes)
        else:
            trial, asking = _judged_by_labels(fresh, trial, prices, notes, labels)
            asking["n_left"] = len(set(unit_names(fresh))) - trial.totals.n
        notes = [*trial.notes, *notes, *unit_notes(fresh, trial)]
        advice = Advice(trial=trial, notes=tuple(dict.fromkeys(notes)), **asking, **about)
    if success_price is None and previous is not None and previous.worth is not None:
        success_price = previous.worth.price
    return advice if success_price is None else replace(advice, worth=worth_of(advice.trial, success_price))


def _about(recording: Recording, metric: str, prices: Prices) -> dict[str, Any]:
    """Return the fields of `Advice` on the logged loop: on its rounds and, for an agent, on its spending."""
    spending = None
    if is_of_steps(recording):
        spending = Spending.of(recording.select(~recording.failed), metric, prices)
    return {"rounds_text": rounds_text(recording), "spending": spending}


def _begun(
    recording: Recording,
    given: Mapping[str, Any],
    tune: Recording | None,
    tune_share: float | None,
    *,
    prices: Prices,
    signals: Sequence[str],
    notes: list[str],
    of_labels: bool,
) -> tuple[Trial, Recording | None]:
    """Declare a trial by the tune questions; also return the questions of the verdict part, or raise if there are none."""
    if "label_noise" in given:
        from suffice.verdicts.decisions.labelling import check_noise

        check_noise(given["label_noise"], of_labels=of_labels)
    declared = {**declared_defaults(recording, given.get("metric"), priced=bool(prices)), **given}
    declared["orders"] = n_orders(recording, given.get("orders") or (1 if recording.cut.any() else None), [])
    share = 0.3 if tune_share is None else tune_share
    _check_options(declared, share)
    baseline, loop = declared["baseline"], LoopStops.of(recording)
    logged = _logged(recording, baseline, declared["leave_out_failed"], notes)
    stated = declared.pop("metric", None)
    metric = stated or only_quality(logged)
    if of_labels:
        refuse_states(logged)
    if of_labels or _is_of_answers(metric, logged):
        _require_answers(logged)
    refuse_single_rounds(logged)
    if "baseline" not in given and attempts_of(logged):
        refuse_cheaper_last(logged, prices)
    first, others = _divided(logged, share if tune is None else tune, baseline, notes)
    if tune is not None:
        loop.refuse_other_cap(LoopStops.of(tune))
    selector = parse_selector(declared.pop("selector"))
    if of_labels:
        from suffice.verdicts.decisions.labelling import check_asking

        check_asking(str(selector), baseline, metric, samples=loop.samples)
    highest = int(max(first.index[-1], logged.index[-1]))
    # Tune questions need no labels: candidates ordered by how often their answers differ are nearly as well ordered.
    by = AGREEMENT[0] if of_labels else metric
    policies, untried = candidates(first, by, selector, highest=highest, start_round=loop.start_round, signals=signals)
    policies = tuple(policy for policy in policies if policy.name != baseline)  # in an escalation, one model alone
    units = measure_candidates(
        first, policies, baseline, by, prices=prices, orders=declared["orders"], start_round=loop.start_round
    )
    units.require_cost(declared["cost"])
    trial = Trial.declare(
        policies,
        units,
        metric=metric,
        loop=loop,
        prices="" if prices is None else prices_text(prices),
        currency=currency_of(logged, prices),
        tune=seen_from(first),
        wordings=wordings_of(first.texts),
        marks=fingerprints(first, by),
        labels=0 if of_labels else None,
        notes=(
            *untried,
            *(gate_notes(logged, signals) if attempts_of(logged) or begins_closed_book(logged) else ()),
            *metric_notes(logged, metric, selector, stated=stated is not None),
            *name_notes(logged),
            *(() if prices is None else CostTable(logged, prices).price_notes),
        ),
        **declared,
    )
    fresh = _unseen(logged, others, trial, notes)
    if fresh is None:
        raise DataError(
            "no question is left for the verdict, because all chose or fitted something: record others, which neither "
            "a tune recording nor a gate has seen"
        )
    return trial, fresh


def _continued(
    recording: Recording, trial: Trial, given: Mapping[str, Any], prices: Prices, notes: list[str]
) -> tuple[Recording | None, Prices]:
    """Check that later questions belong to a trial; return the new questions, or None, and the prices to use."""
    _refuse_other_declaration(trial, given)
    trial.loop.refuse_others(recording, own_is_baseline=trial.baseline == "recorded")
    logged = _logged(recording, trial.baseline, trial.leave_out_failed, notes)
    if trial.labels is None and not is_agreement(trial.metric) and not has_outcome(logged, trial.metric):
        raise ConfigMismatchError(
            f"the earlier decision is about {trial.metric}, which this log lacks: decide anew, without the earlier decision "
            "(-o OTHER.json)"
        )
    refuse_other_outcomes(trial.marks, logged, trial.metric if trial.labels is None else AGREEMENT[0])
    prices = same_prices(prices, logged, trial, notes)
    return _unseen(logged, _new_questions(logged, trial, notes), trial, notes), prices


def _judged(fresh: Recording, trial: Trial, prices: Prices, notes: list[str]) -> Trial:
    """Add the evidence of the verdict part's questions to a trial."""
    notes += _candidate_notes(fresh, trial)
    units = measure_candidates(
        fresh,
        trial.candidates,
        trial.baseline,
        trial.metric,
        prices=prices,
        with_twins=trial.twinned,
        orders=trial.orders,
        start_round=trial.loop.start_round,
    )
    units.require_cost(trial.cost)
    by = trial.metric
    trial = replace(trial, wordings=trial.wordings | wordings_of(fresh.texts))
    return trial.extended(units, seen_from(fresh), fingerprints(fresh, by), AnswerCounts.of(fresh, by))


def _judged_by_labels(
    fresh: Recording, trial: Trial, prices: Prices, notes: list[str], labels: Labels
) -> tuple[Trial, dict[str, Any]]:
    """Bet on the questions before the first one that needs a label; also return the fields of `Advice` on the next labels."""
    from suffice.verdicts.decisions.labelling import Labelling, of_units

    given, asked = {id_hash(name) for name in fresh.question_ids}, trial.marks.keys() - trial.tune.ids
    if asked and asked != given:
        raise ConfigMismatchError(
            f"labels judge the questions that the decision began with: {len(given - asked):,} here are new, and {len(asked - given):,} are "
            "missing. Put other questions to a decision of their own (--ask OTHER.jsonl -o OTHER.json)"
        )
    trial = replace(trial, marks={**trial.marks, **fingerprints(fresh, AGREEMENT[0])})
    labelling = Labelling.of(fresh, trial, labels, prices)
    notes += labelling.doubles.notes(trial.label_noise)
    chosen, asking = labelling.settled(trial)
    if not chosen.any():
        return trial, labelling.asked(asking)
    settled, by = labelling.rows(chosen), AGREEMENT[0]
    notes += _candidate_notes(settled, trial)
    units = of_units(labelling.losses, chosen)
    units.require_cost(trial.cost)
    judged = trial.extended(units, seen_from(settled), fingerprints(settled, by), AnswerCounts.of(settled, by))
    n_used = len(labels.names.intersection(settled.question_ids))
    return replace(judged, labels=n_used), labelling.asked(asking)


def _same_parts(previous: Advice, labels: Labels | None, *, of_tune: bool) -> Advice:
    """Return the earlier advice, but without its evidence if labels are used: the sheet contains the earlier labels, too."""
    if of_tune:
        raise ConfigMismatchError("the earlier decision has its tune questions: give none, or decide anew")
    if previous.trial.labels is None and labels is not None:
        raise ConfigMismatchError(
            "the earlier decision was not judged by labels: decide anew, in another file (-o OTHER.json)"
        )
    if previous.trial.labels is not None and labels is None:
        raise ConfigMismatchError("the earlier decision was judged by labels: give their file again (--ask FILE)")
    return previous if labels is None else replace(previous, trial=previous.trial.begun_anew())


def _logged(recording: Recording, baseline: str, leave_out_failed: bool, notes: list[str]) -> Recording:
    """Return the questions that count; if the loop itself is the baseline, leave out rounds that it did not run."""
    of_loop = baseline == "recorded" and (recording.ends == "rule").any()
    logged = uncut(recording) if of_loop else recording
    failed = logged.failed
    if not leave_out_failed or not failed.any():
        return logged
    if failed.all():
        raise DataError(f"all {len(failed)} recorded questions failed: run `suffice record` again to complete them")
    notes.append(f"{int(failed.sum())} questions failed while recording and are left out: the advice is silent on such")
    return logged.select(~failed)


def _unseen(logged: Recording, fresh: Mask, trial: Trial, notes: list[str]) -> Recording | None:
    """Return the new questions on which no gate, retriever or other part was fitted; None if no question is left."""
    if not fresh.any():
        return None
    recording = logged.select(fresh)
    selected = selected_on(trial.candidates, recording)
    if selected.n:
        notes.append(
            f"{selected.n} questions do not count for the verdict, because they are not fresh: {selected.parts}"
        )
    if selected.unknown or selected.ids_only:
        notes += replace(selected, by_part={}).notes
    if not selected.n:
        return recording
    return None if selected.mask.all() else recording.select(~selected.mask)


def _is_of_answers(metric: str, recording: Recording) -> bool:
    """Return True if missing answers would distort a metric: agreement, or a score of answers that is 0 everywhere."""
    return is_agreement(metric) or (metric in METRICS and not np.nansum(outcome(recording, metric)))


def _require_answers(recording: Recording) -> None:
    """Raise if no round has an answer, because missing answers would all agree with each other and all score 0."""
    if unanswered(recording) == len(recording.question_ids):
        raise DataError(
            "there is nothing to judge by: no round has an answer, so that nothing could be lost by any change, and there is no "
            "other metric in [0, 1]. Log the answers of the rounds, or a score of each (--metric NAME)"
        )


def _candidate_notes(recording: Recording, trial: Trial) -> list[str]:
    """Raise if a candidate cannot decide on the questions; return notes on the tested candidates."""
    if _is_of_answers(trial.metric, recording):
        _require_answers(recording)
    highest = int(recording.index[-1])  # if a loop stops by itself, a few questions may all be short
    noted = [
        check_policy(replace(policy, max_rounds=min(policy.max_rounds, highest)), recording)
        for policy in trial.candidates
    ]
    places: list[int] = [*trial.sequence]
    if trial.loop.samples:  # smaller caps would repeat the same note for fewer samples
        widest = max(policy.max_rounds for policy in trial.candidates)
        every = [place for place, policy in enumerate(trial.candidates) if policy.max_rounds == widest]
        places = [place for place in places if place in every] or every[:1]
    return [note for place in places for note in noted[place]]


def _refuse_other_declaration(trial: Trial, given: Mapping[str, Any]) -> None:
    """Raise a `ConfigMismatchError` where an option contradicts what an earlier decision declared."""
    for name, value in given.items():
        before = getattr(trial, name)
        if value != before:
            raise ConfigMismatchError(
                f"the earlier decision declared {name} {before!r}, not {value!r}: what is declared once holds for all "
                "questions that come later. Leave the option out, or begin another decision in another file"
            )


def _check_options(declared: Mapping[str, Any], tune_share: float) -> None:
    for name, value in (*((name, declared[name]) for name in ("max_loss", "alpha")), ("tune_share", tune_share)):
        if not 0 < value < 1:
            raise DataError(f"{name} must lie between 0 and 1, both excluded, not {value!r}")
    if not 0 <= declared["min_saving"] < 1:
        raise DataError(f"min_saving must be at least 0 and below 1, not {declared['min_saving']!r}")
    if declared["cost"] not in SAVABLE:
        raise DataError(f"{declared['cost']!r} cannot be saved here; allowed: {', '.join(SAVABLE)}")


def _divided(recording: Recording, tune: Recording | float, baseline: str, notes: list[str]) -> tuple[Recording, Mask]:
    """Choose the tune questions; return them and a mask of all other questions, shape ``(n_questions,)``."""
    if isinstance(tune, Recording):
        shared = _known_in(recording, seen_from(tune), wordings_of(tune.texts))
        if shared.any():
            notes.append(
                f"{int(shared.sum())} questions are among the tune questions, and do not count for the verdict"
            )
        return uncut(tune) if baseline == "recorded" else tune, ~shared
    names = asked_names(recording, unit_names(recording))  # ids can be renamed until a division is lucky; texts cannot
    first = hash_places(names, salt=_SALT) < tune
    if first.all() or not first.any():
        n = counted(len(set(names)), "different question")
        raise DataError(f"too few to divide into tune questions and a verdict: {n}. Record at least 20")
    return recording.select(first), ~first


def _new_questions(recording: Recording, trial: Trial, notes: list[str]) -> Mask:
    """Return a mask of the questions that an earlier trial has not seen, shape ``(n_questions,)``."""
    known = _known_in(recording, trial.tune | trial.counted, trial.wordings)
    if known.any() and trial.labels is None:  # if labels are used, each run judges all questions
        said = f"{counted(int(known.sum()), 'question')} counted before, or used to choose the candidates, by id, nearly equal text or cluster"
        notes.append(f"{said}: {'none is new' if known.all() else 'the others are added'}")
    return ~known


def _known_in(recording: Recording, seen: Seen, wordings: frozenset[str]) -> Mask:
    """Return a mask of the questions that were seen before or are copies of such questions, shape ``(n_questions,)``."""
    known = seen_in(recording, seen)
    if recording.texts is not None:
        known = known | near_known(recording.texts, wordings)
    return with_copies(recording, known)
