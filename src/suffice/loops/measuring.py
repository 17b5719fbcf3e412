"""Measure and criticise a live round, but only if the policy or the next draft reads the result."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from suffice.errors import ModelError
from suffice.loops.course import Call, RoundResult, drive, send
from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.session import Session
from suffice.policy.signals import CRITIC, CUMULATED, OF_ANSWERS, SIGNALS, TRIAL, ChainEnricher, Enricher


def components_of(enrichers: Iterable[Enricher]) -> dict[str, str]:
    """Map each signal in an enricher's attribute `columns` to the name of that enricher."""
    return {signal: enricher.name for enricher in enrichers for signal in getattr(enricher, "columns", ())}


async def measured(enricher: Enricher, question: str, rounds: Sequence[Round]) -> Reply:
    """Measure the last round with an enricher; any exception becomes a `ModelError`, which fails only the question."""
    try:
        if isinstance(enricher, ChainEnricher):
            return await enricher.measure_chain(question, rounds)
        return await enricher.measure(question, rounds[-1])
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{enricher.name!r} failed on a round: {type(error).__name__}: {error}") from error


def needs_critique(session: Session, observed: Round) -> bool:
    """Return whether the decision at a draft's round, or the next draft, needs the critic's reply."""
    return not session.would_stop(observed) or CRITIC in map(_component_of_signal, session.reads(observed))


async def measure_lazily(
    enrichers: Sequence[Enricher],
    session: Session,
    question: str,
    result: RoundResult,
    ask: Callable[[Call], Awaitable[Reply]] = send,
) -> tuple[Round, ModelError | None]:
    """Return a round with the measurements that the policy reads, and the error if a measurement failed.

    The members of the rule are evaluated in order, and signals of a member are measured only if earlier members leave
    the outcome open, so that a live policy spends exactly what replay charges.  If the rule did not read the critic and
    the loop continues, the critic is called last, because the next draft reads its reply.  At a checkpoint of a chain of
    thought, the trial answer is requested when the rule first needs it; earlier measurements are not repeated.
    """
    by_name, components = {enricher.name: enricher for enricher in enrichers}, components_of(enrichers)
    pending = {name for name in by_name if name not in result.observed.costs}
    if result.rest is not None:
        pending.add(TRIAL if result.rest.call.part == TRIAL else CRITIC)
    observed = _with_undefined(
        result.observed, (s for s in _own(session) if _component_of_signal(s, components) in by_name)
    )
    try:
        for name in [name for name in by_name if name in pending and _is_unclaimed(name, session, components)]:
            pending.discard(name)
            reply = await measured(by_name[name], question, [*session.rounds, observed])
            observed = _added(observed, name, reply)
        while (request := _next(pending, by_name, components, session, observed)) is not None:
            name, back = request
            if name == CRITIC:
                pending.discard(name)
                assert result.rest is not None
                result = await drive(result.rest.steps, first=result.rest.call)
                criticised = result.observed
                observed = replace(observed, feedback=criticised.feedback, costs={**criticised.costs, **observed.costs})
                if result.error is not None:
                    return unmeasured(session, observed), result.error
            elif name == TRIAL:
                pending.discard(name)
                assert result.rest is not None
                call = replace(result.rest.call, without=RoundResult(observed=observed))
                asked = await drive(result.rest.steps, ask, first=call)
                if asked.error is not None:
                    observed = replace(observed, costs={**observed.costs, TRIAL: Cost()})  # it is not asked again
                    raise asked.error
                observed = with_trial(observed, asked.observed)
            elif back:
                reply = await measured(by_name[name], question, session.rounds[: len(session.rounds) - back + 1])
                session.rounds[-back] = _added(session.rounds[-back], name, reply)
            else:
                pending.discard(name)
                reply = await measured(by_name[name], question, [*session.rounds, observed])
                observed = _added(observed, name, reply)
    except ModelError as error:
        return unmeasured(session, observed), error
    return observed, None


def unmeasured(session: Session, observed: Round) -> Round:
    """Set the user's own signals to undefined (NaN) where they were not measured, since the round is final."""
    return _with_undefined(observed, _own(session))


def _own(session: Session) -> list[str]:
    """Return the signals that the policy reads and that are not in `SIGNALS`."""
    return [signal for signal in session.policy.raw_signals if signal not in SIGNALS]


def _with_undefined(observed: Round, names: Iterable[str]) -> Round:
    return replace(observed, signals=dict.fromkeys(names, math.nan) | dict(observed.signals))


def with_reply(observed: Round, reply: Reply) -> Round:
    """Add an enricher's reply to a round."""
    return _joined(observed, observed, reply)


def with_trial(observed: Round, asked: Round) -> Round:
    """Add the earlier measurements of `observed` to `asked`, which is the same checkpoint with its trial answer."""
    return _joined(asked, observed, asked)


def _joined(answered: Round, before: Round, more: Reply | Round) -> Round:
    """Return `answered` with the signals, costs and embedding of `before`, overwritten by those of `more`."""
    return replace(
        answered,
        signals={**before.signals, **more.signals},
        costs={**before.costs, **more.costs},
        embedding=before.embedding if more.embedding is None else more.embedding,
    )


def _added(observed: Round, name: str, reply: Reply) -> Round:
    """Add an enricher's reply to a round.

    A reply without a cost gets a cost of 0, so that the round shows that the enricher was called.
    """
    return with_reply(observed, replace(reply, costs={name: Cost(), **reply.costs}))


def _component_of_signal(signal: str, components: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the component that produces a raw signal.

    For cumulative costs this is the critic: it is called last, so the costs are complete after its call.
    """
    if signal in CUMULATED:
        return CRITIC
    return components.get(signal) or (SIGNALS[signal].component if signal in SIGNALS else f"judge:{signal}")


def _next(
    pending: Collection[str],
    by_name: Mapping[str, Enricher],
    components: Mapping[str, str],
    session: Session,
    observed: Round,
) -> tuple[str, int] | None:
    """Return the next component to measure, and the distance to the round to measure (0 = this round, 1 = the previous one).

    Return None if the policy needs no further measurement.  If the rule reads a signal that looks back at earlier rounds,
    these rounds are measured first.  A trial answer is needed if the policy stops here or compares answers, or if the
    rule reads a signal of the answer.
    """
    if TRIAL in pending and (session.policy.compares_answers or session.would_stop(observed)):
        return TRIAL, 0
    for signal in session.reads(observed):
        name = _component_of_signal(signal, components)
        if name == CRITIC and name in pending:
            return name, 0
        back = SIGNALS[signal].lookback if signal in SIGNALS else 0
        is_of_answers = signal in SIGNALS and name in OF_ANSWERS
        if is_of_answers and (TRIAL in pending or _lacks_trials(session.rounds, back)):
            return (TRIAL, 0) if TRIAL in pending else None  # earlier trials are asked first, and may decide the rest
        if name not in by_name:
            continue
        for step in range(min(back, len(session.rounds)), 0, -1):
            if name not in session.rounds[-step].costs:
                return name, step
        if name in pending:
            return name, 0
    return (CRITIC, 0) if CRITIC in pending and not session.would_stop(observed) else None


def _lacks_trials(rounds: Sequence[Round], back: int) -> bool:
    """Return whether one of the last `back` rounds is a checkpoint whose trial answer was not requested."""
    return any(r.thinking and TRIAL not in r.costs for r in rounds[max(len(rounds) - back, 0) :])


def _is_unclaimed(name: str, session: Session, components: Mapping[str, str]) -> bool:
    """Return whether an enricher must measure every round, because any signal may come from it.

    This is so if the policy reads a signal of the user's own, and nothing declares the signals of this enricher.
    """
    raw = session.policy.raw_signals
    known = {
        *components.values(),
        *(s.component for s in SIGNALS.values()),
        *(_component_of_signal(s, components) for s in raw),
    }
    return any(signal not in SIGNALS for signal in raw) and name not in known
