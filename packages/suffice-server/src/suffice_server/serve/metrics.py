"""Metrics of a server for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from suffice.policy.rounds import Decision
from suffice_server.serve.policies import NamedPolicy

METRICS_TYPE = CONTENT_TYPE_LATEST
"""The media type of `Metrics.text`."""

_BUCKET_ENDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters and gauges of one server since its start.

    Args:
        policies: Returns the number of loaded policies.
        broken: Returns the number of policy files that do not load.
        sessions: Returns the number of open sessions.
    """

    def __init__(
        self, *, policies: Callable[[], float], broken: Callable[[], float], sessions: Callable[[], float]
    ) -> None:
        self.registry = CollectorRegistry()
        self._stops = Counter("suffice_stops", "Questions that stopped.", ["policy", "reason"], registry=self.registry)
        self._saved = Counter(
            "suffice_rounds_saved", "Rounds that a stop left out, up to the cap.", ["policy"], registry=self.registry
        )
        self._audits = Counter("suffice_audits", "Questions drawn for the audit.", ["policy"], registry=self.registry)
        self._refusals = Counter(
            "suffice_refusals", "Requests sent away before they were read.", ["status"], registry=self.registry
        )
        self._requests = Histogram(
            "suffice_request_seconds",
            "Duration of requests, seconds.",
            ["operation", "status"],
            buckets=_BUCKET_ENDS,
            registry=self.registry,
        )
        for name, about, value in (
            ("suffice_policies", "Policies that are loaded.", policies),
            ("suffice_policies_broken", "Policy files that do not load.", broken),
            ("suffice_sessions", "Sessions that are open.", sessions),
        ):
            Gauge(name, about, registry=self.registry).set_function(value)

    def stopped(self, named: NamedPolicy, decision: Decision, *, audited: bool) -> None:
        """Count a question that stopped."""
        self._stops.labels(named.name, decision.reason).inc()
        if decision.reason == "rule" and decision.stop_round is not None:
            self._saved.labels(named.name).inc(named.policy.max_rounds - decision.stop_round)
        if audited:
            self._audits.labels(named.name).inc()

    def requested(self, operation: str, status: int, seconds: float) -> None:
        """Count a request by its operation, status and duration."""
        self._requests.labels(operation, str(status)).observe(seconds)

    def turned_away(self, status: int) -> None:
        """Count a request that was rejected for its token, host or origin, or for lack of capacity."""
        self._refusals.labels(str(status)).inc()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
