"""Measurements of a live round, taken only where the policy reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from suffice.errors import ModelError
from suffice.rounds import Cost, Reply, Round
from suffice.session import Session
from suffice.signals import SIGNALS, Enricher

__all__ = ["measure_lazily", "unmeasured"]

_NAN = float("nan")


async def measure_lazily(
    enrichers: Sequence[Enricher], session: Session, question: str, observed: Round, reply: Reply
) -> tuple[Round, ModelError | None]:
    """Return a round with what the policy reads of the enrichers, and why one of them failed.

    The rule's members are evaluated in order, and each is asked for only once the members before it have left the
    outcome open: what replay charges to a policy is what the policy spends live (SEMANTICS, Costs).

    Args:
        enrichers: What can be asked.
        session: The question's state before this round.
        question: The question.
        observed: The round as the model gave it.
        reply: The model's reply.
    """
    waiting = {enricher.name: enricher for enricher in enrichers}
    observed = _undefined(observed, (s for s in _own(session) if _component(s) in waiting))
    order = [name for name in waiting if _is_eager(name, session)]
    try:
        while waiting:
            name = order.pop(0) if order else _next(waiting, session, observed)
            if name is None:
                break
            found = await waiting.pop(name).measure(question, observed.passages, reply)
            observed = _with(observed, {**observed.signals, **found.signals}, found.costs)
    except ModelError as error:
        return unmeasured(session, observed), error
    return observed, None


def unmeasured(session: Session, observed: Round) -> Round:
    """Return a round for which nothing more is asked: a user's own signal that it lacks is undefined, not unknown."""
    return _undefined(observed, _own(session))


def _own(session: Session) -> list[str]:
    """Return the signals that the policy reads and nobody registered."""
    return [signal for signal in session.policy.raw_signals if signal not in SIGNALS]


def _undefined(observed: Round, names: Iterable[str]) -> Round:
    return _with(observed, dict.fromkeys(names, _NAN) | dict(observed.signals))


def _with(observed: Round, signals: Mapping[str, float], costs: Mapping[str, Cost] = MappingProxyType({})) -> Round:
    return replace(observed, signals=signals, costs={**observed.costs, **costs})


def _component(signal: str) -> str:
    """Return whose call produces a raw signal, as replay books it."""
    return SIGNALS[signal].component if signal in SIGNALS else f"judge:{signal}"


def _next(waiting: dict[str, Enricher], session: Session, observed: Round) -> str | None:
    """Return the first enricher that the policy needs now."""
    return next((name for name in map(_component, session.reads(observed)) if name in waiting), None)


def _is_eager(name: str, session: Session) -> bool:
    """Whether an enricher must measure every round: later ones look back, or nobody knows what it measures."""
    policy = session.policy
    raw = policy.raw_signals
    if any(signal in SIGNALS and SIGNALS[signal].lookback and _component(signal) == name for signal in raw):
        return True
    unclaimed = any(signal not in SIGNALS for signal in raw)
    known = {signal.component for signal in SIGNALS.values()} | {_component(signal) for signal in raw}
    return unclaimed and name not in known
