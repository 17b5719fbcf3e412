"""The figures of a watch for Prometheus and OpenTelemetry, with the same names in both."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from suffice.errors import MissingExtraError
from suffice.verdicts.watches.result import WatchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFigure:
    """One exported figure of a watch.

    Attributes:
        name: The figure's name for Prometheus; for OpenTelemetry the first underscore becomes a dot.
        value: The number; NaN where it is unknown.
        labels: Its labels, such as the policy.
        is_total: Whether the number can only grow.
    """

    name: str
    about: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)
    is_total: bool = False


def watch_figures(result: WatchResult) -> list[WatchFigure]:
    """Return the figures of a watch, beginning with the counts of its log."""
    of = {"policy": result.policy}
    figures = [
        WatchFigure(
            name="suffice_log_stops",
            about="Requests of the log that stopped.",
            value=n,
            labels={**of, "reason": reason},
            is_total=True,
        )
        for reason, n in result.stops.items()
    ]
    counts = (
        ("suffice_log_rounds_saved", "Rounds of the log that a stop left out, up to the cap.", result.rounds_saved),
        ("suffice_log_audits", "Requests of the log drawn for the audit.", result.n_drawn),
        ("suffice_log_audits_lost", "Audits of the log that got lost.", result.n_lost),
    )
    figures += [WatchFigure(name=name, about=about, value=n, labels=of, is_total=True) for name, about, n in counts]
    loss = {**of, "metric": result.question.metric}
    figures += [
        WatchFigure(
            name="suffice_audited_loss",
            about="Mean loss of audited requests, with the ends of an interval that holds at every look.",
            value=value,
            labels={**loss, "bound": bound},
        )
        for bound, value in zip(("mean", "low", "high"), result.whole.interval, strict=True)
    ]
    alarm = result.alarm
    figures += [
        WatchFigure(
            name="suffice_loss_bound",
            about="The largest accepted mean loss.",
            value=math.nan if result.question.bound is None else result.question.bound,
            labels=loss,
        ),
        WatchFigure(
            name="suffice_e_value",
            about="Evidence that the loss has passed its bound.",
            value=math.nan if alarm is None else alarm.e_value,
            labels=loss,
        ),
        WatchFigure(
            name="suffice_alarm", about="1 once the alarm has rung, 0 before.", value=float(result.rang), labels=loss
        ),
        WatchFigure(
            name="suffice_signals_moved",
            about="Signals that the rule reads and that have moved.",
            value=len(result.drifts.of_rule),
            labels=of,
        ),
    ]
    return figures


class WatchCollector:
    """Collector of watch figures for a registry of `prometheus_client`: `registry.register(WatchCollector(...))`.

    Args:
        results: A function that returns the latest watch results, one for each policy.
    """

    def __init__(self, results: Callable[[], Iterable[WatchResult]]) -> None:
        self._results = results

    def collect(self) -> Iterator[Any]:
        """Yield the metric families, as `prometheus_client` expects them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for result in self._results():
            for item in watch_figures(result):
                kind = CounterMetricFamily if item.is_total else GaugeMetricFamily
                if item.name not in families:
                    families[item.name] = kind(item.name, item.about, labels=[*item.labels])
                families[item.name].add_metric([*item.labels.values()], item.value)
        yield from families.values()


def prometheus_text(*results: WatchResult) -> str:
    """Return the figures of watches in Prometheus's text format, for the folder of its node exporter or for a web page.

    Raises:
        MissingExtraError: `prometheus_client` is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise MissingExtraError("the text format of Prometheus", distribution="suffice-server")
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(WatchCollector(lambda: results))
    return generate_latest(registry).decode("utf-8")


def export_metrics(result: WatchResult) -> None:
    """Set the figures of a watch as gauges of OpenTelemetry, `suffice.audited_loss` and so on.

    Nothing happens if the program has not imported OpenTelemetry's metrics.  Unknown figures are left out.
    """
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return
    meter = metrics.get_meter("suffice")
    gauges: dict[str, Any] = {}
    for item in watch_figures(result):
        if math.isnan(item.value):
            continue
        name = item.name.replace("_", ".", 1)
        if name not in gauges:
            gauges[name] = meter.create_gauge(name, description=item.about)
        gauges[name].set(item.value, item.labels)
