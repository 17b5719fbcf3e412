"""Measurements and critiques of a live round, asked for only where the policy, or the next draft, reads them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from suffice.errors import ModelError
from suffice.loop.course import Made, drive
from suffice.rounds import Cost, Passage, Reply, Round
from suffice.session import Session
from suffice.signals import CRITIC, CUMULATED, SIGNALS, Enricher, Measurement

__all__ = ["components_of", "measure", "measure_lazily", "needs_critique", "unmeasured"]


def components_of(enrichers: Iterable[Enricher]) -> dict[str, str]:
    """Return whose call produces the signals that enrichers name in their `columns`, where they have that attribute."""
    return {signal: enricher.name for enricher in enrichers for signal in getattr(enricher, "columns", ())}


async def measure(enricher: Enricher, question: str, passages: Sequence[Passage], reply: Reply) -> Measurement:
    """Return what an enricher measures of a round; whatever it raises is a failure of the question, not of the run.

    Args:
        enricher: What measures.
        question: The question.
        passages: The round's passages.
        reply: The reply.

    Raises:
        ModelError: It failed.
    """
    try:
        return await enricher.measure(question, passages, reply)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{enricher.name!r} failed on a round: {type(error).__name__}: {error}") from error


def needs_critique(session: Session, observed: Round) -> bool:
    """Return whether somebody reads the critic's reply to a draft: the decision at its round, or the next draft.

    Args:
        session: The question's state before this round.
        observed: The round with everything that is measured of it, the critic's reply apart.
    """
    return not session.would_stop(observed) or CRITIC in map(_component_of_signal, session.reads(observed))


async def measure_lazily(
    enrichers: Sequence[Enricher], session: Session, question: str, made: Made
) -> tuple[Round, ModelError | None]:
    """Return a round with what the policy reads of the enrichers and the critic, and why one of them failed.

    The rule's members are evaluated in order, and each is asked for only once the members before it have left the
    outcome open: what replay charges to a policy is what the policy spends live (SEMANTICS, Costs).  A critic that the
    rule did not come to is asked last, if the loop goes on: the next draft reads its reply.

    Args:
        enrichers: What can be asked.
        session: The question's state before this round.
        question: The question.
        made: The round as the model gave it, perhaps without its critic's reply.
    """
    by_name, told = {enricher.name: enricher for enricher in enrichers}, components_of(enrichers)
    waiting = {*by_name, *([CRITIC] if made.rest else [])}
    reply = made.reply
    observed = _with_undefined(made.observed, (s for s in _own(session) if _component_of_signal(s, told) in by_name))
    try:
        for name in [name for name in by_name if _is_unclaimed(name, session, told)]:
            waiting.discard(name)
            observed = _added(observed, name, await measure(by_name[name], question, observed.passages, reply))
        while (wanted := _next(waiting, by_name, told, session, observed)) is not None:
            name, back = wanted
            if name == CRITIC:
                waiting.discard(name)
                assert made.rest is not None
                made = await drive(made.rest.steps, first=made.rest.call)
                said = made.observed
                observed = replace(observed, feedback=said.feedback, costs={**said.costs, **observed.costs})
                if made.error is not None:
                    return unmeasured(session, observed), made.error
            elif back:
                earlier = session.rounds[-back]
                before = Reply(answer=earlier.answer, text=earlier.text, answer_tokens=earlier.answer_tokens)
                found = await measure(by_name[name], question, earlier.passages, before)
                session.rounds[-back] = _added(earlier, name, found)
            else:
                waiting.discard(name)
                observed = _added(observed, name, await measure(by_name[name], question, observed.passages, reply))
    except ModelError as error:
        return unmeasured(session, observed), error
    return observed, None


def unmeasured(session: Session, observed: Round) -> Round:
    """Return a round for which nothing more is asked: a user's own signal that it lacks is undefined, not unknown."""
    return _with_undefined(observed, _own(session))


def _own(session: Session) -> list[str]:
    """Return the signals that the policy reads and nobody registered."""
    return [signal for signal in session.policy.raw_signals if signal not in SIGNALS]


def _with_undefined(observed: Round, names: Iterable[str]) -> Round:
    return _with_signals(observed, dict.fromkeys(names, math.nan) | dict(observed.signals))


def _with_signals(
    observed: Round, signals: Mapping[str, float], costs: Mapping[str, Cost] = MappingProxyType({})
) -> Round:
    return replace(observed, signals=signals, costs={**observed.costs, **costs})


def _added(observed: Round, name: str, found: Measurement) -> Round:
    """Return a round with a measurement; its costs tell from then on that it was taken."""
    measured = _with_signals(observed, {**observed.signals, **found.signals}, {name: Cost(), **found.costs})
    return measured if found.embedding is None else replace(measured, embedding=found.embedding)


def _component_of_signal(signal: str, told: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return whose call produces a raw signal, as replay books it; what a round costs, its critic decides last."""
    if signal in CUMULATED:
        return CRITIC
    return told.get(signal) or (SIGNALS[signal].component if signal in SIGNALS else f"judge:{signal}")


def _next(
    waiting: Collection[str],
    by_name: Mapping[str, Enricher],
    told: Mapping[str, str],
    session: Session,
    observed: Round,
) -> tuple[str, int] | None:
    """Return who is to be asked now, the first that the policy needs, and of how many rounds ago: 0 is this one.

    A signal that looks back is read from earlier rounds too, and they are measured only then.
    """
    for signal in session.reads(observed):
        name = _component_of_signal(signal, told)
        if name == CRITIC and name in waiting:
            return name, 0
        if name not in by_name:
            continue
        back = SIGNALS[signal].lookback if signal in SIGNALS else 0
        for step in range(min(back, len(session.rounds)), 0, -1):
            if name not in session.rounds[-step].costs:
                return name, step
        if name in waiting:
            return name, 0
    return (CRITIC, 0) if CRITIC in waiting and not session.would_stop(observed) else None


def _is_unclaimed(name: str, session: Session, told: Mapping[str, str]) -> bool:
    """Whether an enricher must measure every round, since nobody knows what it measures."""
    raw = session.policy.raw_signals
    known = {*told.values(), *(s.component for s in SIGNALS.values()), *(_component_of_signal(s, told) for s in raw)}
    return any(signal not in SIGNALS for signal in raw) and name not in known
