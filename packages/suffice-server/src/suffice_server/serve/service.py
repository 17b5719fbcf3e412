"""The service without HTTP: decisions on given rounds, and sessions that survive a restart of the process."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from suffice.errors import ConfigMismatchError, NotFoundError, SufficeError
from suffice.loops import OpenQuestion
from suffice.policy.rounds import Decision, Reason, Round
from suffice.policy.session import Policy, Session
from suffice.verdicts.watches import WatchCollector
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.log import DecisionLog, question_names
from suffice_server.serve.metrics import Metrics
from suffice_server.serve.policies import NamedPolicy, PolicyFolder
from suffice_server.serve.rounds_in import round_of
from suffice_server.serve.sessions import SessionStore
from suffice_server.serve.watching import LogWatch
from suffice_server.serve.work import WorkLimit

_LOG = logging.getLogger(__name__)
_LIVE = 2000
"""Most sessions that are cached in memory, in addition to their stored state."""

_WATCH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """A session in memory, equal to one version in the store.

    Attributes:
        expires: Time at which the session is removed, seconds since 1970.
        names: The question, its id and the name of the policy, for the log.
        logged: State of the logged question, from which an audit resumes; None until the stop is logged.
        run: The open question in the log; None before the stop, and when it must be restored from `logged`.
    """

    version: int
    expires: float
    named: NamedPolicy
    session: Session
    names: Mapping[str, str]
    logged: Mapping[str, Any] | None = None
    run: OpenQuestion | None = None

    @property
    def state(self) -> dict[str, Any]:
        """The values to store, without the policy, which is stored only once for all sessions."""
        session = {name: value for name, value in self.session.to_state().items() if name != "policy"}
        return {"session": session, "names": dict(self.names), "logged": self.logged}


class Service:
    """Answers the operations of the service.  Every method may be called from any thread.

    A refused request changes nothing.  The state of a session is stored before its decision is returned, so a decision
    that a client has seen is never revoked; a round that is sent again, with its index, counts once.

    Args:
        policies: The policies.
        store: The sessions.
        log: Records every stop before its decision is returned; None for no log.
        watch_s: Seconds between evaluations of the log, see `watch_again`; 0 = only on request.
        prices: A file of prices by model, for policies that read `spend`; it is read again when it changes.
    """

    def __init__(
        self,
        policies: PolicyFolder,
        store: SessionStore,
        log: DecisionLog | None = None,
        *,
        watch_s: float = _WATCH_S,
        prices: Path | None = None,
    ) -> None:
        self.policies, self.store, self.log = policies, store, log
        self.watch_s, self._prices = watch_s, prices
        self._watch = None if log is None else LogWatch(log, watch_s or _WATCH_S, deadline=store.limits.ttl)
        self.metrics = Metrics(
            policies=lambda: len(policies.policies), broken=lambda: len(policies.broken), sessions=store.count
        )
        if self._watch is not None:
            self.metrics.registry.register(WatchCollector(self._watch.results))
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._live_lock = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._limit = WorkLimit(store.limits.work)

    def decide(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Decide on all rounds of a question so far; a question drawn for the audit continues in a session."""
        named, names = self.policies.named(body["policy"]), question_names(body)
        session = self._session(named, body, names)
        with self._limit.work(named.policy, len(body["rounds"])) as check:
            for given in body["rounds"]:
                check()
                decision = session.observe(round_of(given, session, self._prices))
                if decision.stop and not session.auditing:
                    break
        if session.decision is None:
            going_on = Decision(stop=False) if not session.rounds else decision
            return _decided(going_on, named, None, audit=False)
        name = None
        if session.auditing:
            name, _ = self._added(named, session, names)
            try:
                with self._lock(name):
                    self._logged(name, self._get(name))
            except RefusedError:  # a client that retries opens another session; this one would count as a lost audit
                self._forget(name)
                raise
        elif self.log is not None:
            self._write(self.log, named, session, names)
        self._count(named, session)
        return _decided(session.decision, named, name, audit=session.auditing)

    def open_session(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start a question."""
        named, names = self.policies.named(body["policy"]), question_names(body)
        name, live = self._added(named, self._session(named, body, names), names)
        return self._described(name, live)

    def observe(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Decide after the next round of a session; if a round is sent again, return its earlier decision."""
        with self._lock(name):
            live = self._logged(name, self._get(name))
            observed = round_of(body, live.session, self._prices)
            if "index" in body and observed.index < live.session.next_round:
                return self._repeated(name, live, observed)
            if len(live.session.rounds) >= self.store.limits.rounds:
                raise RefusedError(
                    413,
                    f"the session has {len(live.session.rounds):,} rounds, and at most {self.store.limits.rounds:,} are kept: end it, or "
                    "raise the setting max-rounds",
                )
            if live.session.decision is None:
                return self._changed(name, live, lambda session: session.observe(observed))
            if not live.session.auditing or self.log is None:
                raise ConfigMismatchError(
                    f"round {observed.index} came after the stop at round {live.session.decision.stop_round}: open a new "
                    "session for another question"
                )
            return self._audited(name, live, lambda run: run.observe(observed), lambda s: s.observe(observed))

    def end(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """End a question or its audit at the client's request."""
        with self._lock(name):
            return self._ended(name, self._logged(name, self._get(name)), body["reason"])

    def session(self, name: str) -> dict[str, Any]:
        """Return the state of a session: its decision, next round, audit and time to live."""
        with self._lock(name):
            return self._described(name, self._get(name))

    def close_session(self, name: str) -> None:
        """Remove a session; if it has not stopped, it is logged as cancelled."""
        with self._lock(name):
            self._ended(name, self._logged(name, self._get(name)), "cancelled")
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._live.pop(name, None)
        self.store.remove(name)

    def listed(self) -> dict[str, Any]:
        """List the policies."""
        policies = [_policy_facts(named) for named in self.policies.policies.values()]
        return {"policies": policies, "broken": dict(self.policies.broken)}

    def watched(self, text: str) -> dict[str, Any]:
        """Return the latest result of watching the log of a policy."""
        if self._watch is None:
            raise NotFoundError("this server keeps no log: start it with --log FOLDER")
        return self._watch.described(self.policies.named(text))

    def watch_again(self) -> None:
        """Watch the logs of all policies again, for the metrics."""
        if self._watch is not None:
            self._watch.refresh([*self.policies.policies.values()])

    def stop_watching(self) -> None:
        """Kill the process that watches a log, so that the server ends without waiting for it."""
        if self._watch is not None:
            self._watch.close()

    def ready(self) -> dict[str, Any]:
        """Return whether a policy is loaded and the log can be written; also list the policy files that do not load."""
        n, fault = len(self.policies.policies), None if self.log is None else self.log.fault
        return {"ready": n > 0 and fault is None, "policies": n, "broken": sorted(self.policies.broken), "fault": fault}

    def check_log(self) -> None:
        """Check that the log can be written, for `ready`."""
        if self.log is not None:
            self.log.check()

    def log_pending(self) -> None:
        """Log the stops that an earlier process stored but did not log before it ended."""
        for name in self.store.pending():
            try:
                with self._lock(name):
                    self._logged(name, self._get(name))
            except (RefusedError, SufficeError) as error:
                _LOG.warning("session %s is not logged yet: %s", name, error)

    def close(self) -> None:
        """Close the log and the sessions."""
        if self.log is not None:
            self.log.close()
        self.store.close()

    def _session(self, named: NamedPolicy, body: Mapping[str, Any], names: Mapping[str, str]) -> Session:
        audit = None if self.log is None else self.log.audit
        return Session(
            named.policy,
            missing=body.get("missing", "error"),
            depends=body.get("depends"),
            audit=audit,
            question_id=names["question_id"],
        )

    def _added(self, named: NamedPolicy, session: Session, names: Mapping[str, str]) -> tuple[str, _Live]:
        """Store a new session; return its name and the session."""
        name, names = secrets.token_urlsafe(18), {**names, "policy": named.name}
        live = _Live(version=0, expires=0.0, named=named, session=session, names=names)
        policy = (named.name, named.policy.to_dict())
        pending = self._is_pending(live)
        expires = self.store.add(name, live.state, digest=named.digest, policy=policy, pending=pending)
        live = replace(live, expires=expires)
        self._keep(name, live)
        return name, live

    def _is_pending(self, live: _Live) -> bool:
        """Return whether the session has stopped but is not yet in the log."""
        return self.log is not None and live.session.decision is not None and live.logged is None

    def _put(self, name: str, live: _Live) -> _Live:
        """Store the next version of a session and return it."""
        pending = self._is_pending(live)
        over = live.session.decision is not None and not live.session.auditing and not pending
        expires = self.store.put(name, live.version, live.state, pending=pending, over=over)
        live = replace(live, version=live.version + 1, expires=expires)
        self._keep(name, live)
        return live

    def _logged(self, name: str, live: _Live) -> _Live:
        """Log the stop of a session, if it has stopped and the stop is not logged yet; return the session."""
        if self.log is None or not self._is_pending(live):
            return live
        run = self._write(self.log, live.named, live.session, live.names)
        state = {key: value for key, value in run.to_state().items() if key != "session"}
        return self._put(name, replace(live, logged=state, run=run))

    def _write(self, log: DecisionLog, named: NamedPolicy, session: Session, names: Mapping[str, str]) -> OpenQuestion:
        """Write a stopped question to the log; the work limit applies, because the log compares the answers again."""
        with self._limit.work(named.policy, len(session.rounds)):
            return log.write(named, session, names)

    def _ended(self, name: str, live: _Live, reason: Reason) -> dict[str, Any]:
        if live.session.decision is None:
            return self._changed(name, live, lambda session: session.end(reason))
        if live.session.auditing and self.log is not None:
            return self._audited(name, live, lambda run: run.end(reason), lambda session: session.end(reason))
        return _decided(live.session.decision, live.named, name, audit=False)

    def _audited(
        self, name: str, live: _Live, log: Callable[[OpenQuestion], Any], change: Callable[[Session], Decision]
    ) -> dict[str, Any]:
        """Apply a change to an audited session, first in the log, then in the store; return the decision."""
        assert self.log is not None
        assert live.logged is not None
        self._live.pop(name, None)
        with self._limit.work(live.named.policy, 1 if live.run else len(live.session.rounds)):
            run = live.run or self.log.resume(live.named, live.logged, live.session)
            if run is not None:
                self.log.change(run, log)
            decision = change(live.session)
        live = self._put(name, replace(live, run=run))
        return _decided(decision, live.named, name, audit=live.session.auditing)

    def _count(self, named: NamedPolicy, session: Session) -> None:
        assert session.decision is not None
        self.metrics.stopped(named, session.decision, audited=session.draw is not None and session.draw.audited)

    def _lock(self, name: str) -> threading.Lock:
        """Return the lock of a session; it is kept only while a request holds it or waits for it."""
        with self._live_lock:
            return self._locks.setdefault(name, threading.Lock())

    def _keep(self, name: str, live: _Live) -> None:
        with self._live_lock:
            self._live[name] = live
            self._live.move_to_end(name)
            while len(self._live) > _LIVE:
                self._live.popitem(last=False)

    def _get(self, name: str) -> _Live:
        """Return a session from memory, or from the store if another process has changed it."""
        stored = self.store.get(name)
        live = self._live.pop(
            name, None
        )  # removed from memory first, so that a change that fails half-way does not stay there
        if live is not None and live.version == stored.version:
            self._keep(name, live)
            return live
        named = replace(self._policy(stored.digest), name=stored.state["names"]["policy"])
        state = {**stored.state["session"], "policy": named.policy.to_dict()}
        with self._limit.work(named.policy, len(state["rounds"])):
            session = Session.from_state(state, named.policy)
        live = _Live(
            version=stored.version,
            expires=stored.expires,
            named=named,
            session=session,
            names=stored.state["names"],
            logged=stored.state["logged"],
        )
        self._keep(name, live)
        return live

    def _policy(self, digest: str) -> NamedPolicy:
        """Return the policy with a digest; a policy that the folder no longer has is loaded from the store of sessions."""
        try:
            return self.policies.named(digest)
        except NotFoundError:
            name, values = self.store.policy(digest)
            policy = Policy.from_dict(values)
            if policy.digest != digest:
                raise ConfigMismatchError(
                    f"the stored policy {digest!r} of this session was changed: open a new one"
                ) from None
            return NamedPolicy(name=name, policy=policy, digest=digest)

    def _changed(self, name: str, live: _Live, change: Callable[[Session], Decision]) -> dict[str, Any]:
        """Change a session, store it, then return the decision."""
        self._live.pop(
            name, None
        )  # if anything below fails, the next request reads the stored state, which is unchanged
        with self._limit.work(live.named.policy, 1):
            decision = change(live.session)
        live = self._put(name, live)
        if decision.stop:
            self._count(live.named, live.session)  # counted here, so once, even if logging fails and is repeated
            live = self._logged(name, live)
        return _decided(decision, live.named, name, audit=live.session.auditing)

    def _repeated(self, name: str, live: _Live, observed: Round) -> dict[str, Any]:
        """Return the decision on a repeated round; raise if the round differs from the recorded one."""
        position = observed.index - live.named.policy.start_round
        if position < 0 or live.session.rounds[position].to_dict() != observed.to_dict():
            raise ConfigMismatchError(
                f"this session has another round {observed.index}: it expects round {live.session.next_round}"
            )
        with self._limit.work(live.named.policy, position + 1):
            decision = live.named.policy.decide(live.session.rounds[: position + 1], missing="ignore")
        if not decision.stop and live.session.decision is not None and observed.index == live.session.next_round - 1:
            decision = live.session.decision  # the client ended it
        return _decided(decision, live.named, name, audit=live.session.auditing and self.log is not None)

    def _described(self, name: str, live: _Live) -> dict[str, Any]:
        decision = live.session.decision
        return {
            "id": name,
            "policy": live.named.digest,
            "question_id": live.names["question_id"],
            "next_round": live.session.next_round,
            "decision": None if decision is None else decision.to_dict(),
            "audit": live.session.auditing and self.log is not None,
            "expires_in": max(0.0, round(live.expires - time.time(), 3)),
        }


def _decided(decision: Decision, named: NamedPolicy, session: str | None, *, audit: bool) -> dict[str, Any]:
    return {**decision.to_dict(), "policy": named.digest, "audit": audit, "session": session}


def _policy_facts(named: NamedPolicy) -> dict[str, Any]:
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
