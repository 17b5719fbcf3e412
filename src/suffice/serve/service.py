"""The service without HTTP: decisions on given rounds, and sessions that survive the process."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from suffice.errors import ConfigMismatchError, NotFoundError
from suffice.rounds import Decision, Round
from suffice.serve.metrics import Metrics
from suffice.serve.policies import NamedPolicy, PolicyFolder
from suffice.serve.rounds_in import round_of
from suffice.serve.sessions import SessionStore
from suffice.session import Policy, Session

__all__ = ["Service"]

_LIVE = 2000
"""How many sessions are kept as they are, beside their stored state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """A session as of one stored version.

    Attributes:
        version: The version.
        named: Its policy.
        session: The session.
        names: The question and its id, for the log.
        expires: When it is forgotten, seconds since 1970.
    """

    version: int
    expires: float
    named: NamedPolicy
    session: Session
    names: Mapping[str, str | None]


class Service:
    """Answers the operations of the service.  Every method may be called from any thread.

    A refused request changes nothing.  The state of a session is stored before its decision is returned, so a decision
    that a client has seen is never taken back; a round that is sent again, with its index, counts once.

    Args:
        policies: The policies.
        store: The sessions.
    """

    def __init__(self, policies: PolicyFolder, store: SessionStore) -> None:
        self.policies, self.store = policies, store
        self.metrics = Metrics(
            policies=lambda: len(policies.policies), broken=lambda: len(policies.broken), sessions=store.count
        )
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._locks = [threading.Lock() for _ in range(64)]

    def decide(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision on the rounds of a question so far."""
        named = self.policies.named(body["policy"])
        session = self._session(named, body)
        decision = Decision(stop=False)
        for given in body["rounds"]:
            decision = session.observe(round_of(given, session.next_round, named.policy))
            if decision.stop:
                break
        if decision.stop and len(session.rounds) == len(body["rounds"]):
            self.metrics.stopped(named, decision, audited=False)
        return _decided(decision, named, None, audit=False)

    def open_session(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a question."""
        named = self.policies.named(body["policy"])
        names = {name: body.get(name) for name in ("question", "question_id")}
        name, session = secrets.token_urlsafe(18), self._session(named, body)
        policy = (named.name, named.policy.to_dict())
        expires = self.store.add(name, _state_of(session, names), digest=named.digest, policy=policy)
        live = _Live(version=0, expires=expires, named=named, session=session, names=names)
        self._keep(name, live)
        return self._described(name, live)

    def observe(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take in the next round of a session, or one that it has already seen."""
        with self._lock(name):
            live = self._get(name)
            observed = round_of(body, live.session.next_round, live.named.policy)
            if "index" in body and observed.index < live.session.next_round:
                return self._repeated(name, live, observed)
            if live.session.decision is not None:
                raise ConfigMismatchError(
                    f"round {observed.index} came after the stop at round {live.session.decision.stop_round}: open a new "
                    "session for another question"
                )
            return self._changed(name, live, lambda session: session.observe(observed))

    def end(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """End a question from outside."""
        with self._lock(name):
            live = self._get(name)
            if live.session.decision is not None:
                return _decided(live.session.decision, live.named, name, audit=False)
            return self._changed(name, live, lambda session: session.end(body["reason"]))

    def session(self, name: str) -> dict[str, Any]:
        """Show where a session is."""
        with self._lock(name):
            return self._described(name, self._get(name))

    def close_session(self, name: str) -> None:
        """Forget a session, which is cancelled if it has not stopped."""
        with self._lock(name):
            live = self._get(name)
            if live.session.decision is None:
                self._changed(name, live, lambda session: session.end("cancelled"))
            self._live.pop(name, None)
            self.store.remove(name)

    def listed(self) -> dict[str, Any]:
        """List the policies."""
        policies = [_listed(named) for named in self.policies.policies.values()]
        return {"policies": policies, "broken": dict(self.policies.broken)}

    def ready(self) -> dict[str, Any]:
        """Say whether there is a policy to decide by."""
        n = len(self.policies.policies)
        return {"ready": n > 0, "policies": n, "broken": sorted(self.policies.broken)}

    def _session(self, named: NamedPolicy, body: Mapping[str, Any]) -> Session:
        return Session(named.policy, missing=body.get("missing", "error"))

    def _lock(self, name: str) -> threading.Lock:
        """Return the lock of a session, which it shares with some others."""
        return self._locks[hash(name) % len(self._locks)]

    def _keep(self, name: str, live: _Live) -> None:
        self._live[name] = live
        self._live.move_to_end(name)
        while len(self._live) > _LIVE:
            self._live.popitem(last=False)

    def _get(self, name: str) -> _Live:
        """Return a session: as it is here, unless another process wrote it since."""
        stored = self.store.get(name)
        live = self._live.pop(name, None)  # whoever fails from here on has changed it
        if live is not None and live.version == stored.version:
            self._keep(name, live)
            return live
        named = self._policy(stored.digest)
        state = {**stored.state["session"], "policy": named.policy.to_dict()}
        session = Session.from_state(state, named.policy)
        live = _Live(
            version=stored.version,
            expires=stored.expires,
            named=named,
            session=session,
            names=stored.state["names"],
        )
        self._keep(name, live)
        return live

    def _policy(self, digest: str) -> NamedPolicy:
        """Return the policy of a session, also one whose file is gone."""
        try:
            return self.policies.named(digest)
        except NotFoundError:
            name, values = self.store.policy(digest)
            return NamedPolicy(name=name, policy=Policy.from_dict(values), digest=digest)

    def _changed(self, name: str, live: _Live, change: Callable[[Session], Decision]) -> dict[str, Any]:
        """Return the decision after a change of a session, which is stored before."""
        self._live.pop(name, None)  # what fails below leaves the stored state alone
        decision = change(live.session)
        expires = self.store.put(name, live.version, _state_of(live.session, live.names))
        self._keep(name, replace(live, version=live.version + 1, expires=expires))
        if decision.stop:
            self.metrics.stopped(live.named, decision, audited=False)
        return _decided(decision, live.named, name, audit=False)

    def _repeated(self, name: str, live: _Live, observed: Round) -> dict[str, Any]:
        """Return the decision of a round that was observed before, if it is that round."""
        position = observed.index - live.named.policy.start_round
        if position < 0 or live.session.rounds[position].to_dict() != observed.to_dict():
            raise ConfigMismatchError(
                f"this session has another round {observed.index}: it expects round {live.session.next_round}"
            )
        decision = live.named.policy.decide(live.session.rounds[: position + 1], missing="ignore")
        return _decided(decision, live.named, name, audit=False)

    def _described(self, name: str, live: _Live) -> dict[str, Any]:
        decision = live.session.decision
        return {
            "id": name,
            "policy": live.named.digest,
            "question_id": live.names["question_id"],
            "next_round": live.session.next_round,
            "decision": None if decision is None else decision.to_dict(),
            "audit": False,
            "expires_in": max(0.0, round(live.expires - time.time(), 3)),
        }


def _state_of(session: Session, names: Mapping[str, str | None]) -> dict[str, Any]:
    """Return what is stored of a session; its policy is stored once for all."""
    state = {name: value for name, value in session.to_state().items() if name != "policy"}
    return {"session": state, "names": dict(names)}


def _decided(decision: Decision, named: NamedPolicy, session: str | None, *, audit: bool) -> dict[str, Any]:
    return {**decision.to_dict(), "policy": named.digest, "audit": audit, "session": session}


def _listed(named: NamedPolicy) -> dict[str, Any]:
    policy = named.policy
    certificate = next(row[1] for row in policy.tables()[0].rows if row[0] == "certificate")
    return {
        "name": named.name,
        "digest": named.digest,
        "rule": str(policy.rule),
        "selector": str(policy.selector),
        "start_round": policy.start_round,
        "max_rounds": policy.max_rounds,
        "certificate": str(certificate),
        "note": named.note,
    }
