"""Figures of a watch as gauges of OpenTelemetry."""

import math

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from suffice.verdicts.watches import export_metrics, watch
from suffice.verdicts.watches.metrics import watch_figures
from tests.support.production import certified, production_log


def test_the_figures_of_a_watch_are_gauges():
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    result = watch(production_log(400), certified())
    export_metrics(result)
    scopes = [scope for resource in reader.get_metrics_data().resource_metrics for scope in resource.scope_metrics]
    (scope,) = [scope for scope in scopes if scope.scope.name == "suffice"]
    exported = {
        (metric.name, tuple(sorted(point.attributes.items()))): point.value
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    expected = {
        (item.name.replace("_", ".", 1), tuple(sorted(item.labels.items()))): item.value
        for item in watch_figures(result)
        if not math.isnan(item.value)
    }
    assert exported == expected
    assert {"suffice.audited_loss", "suffice.e_value", "suffice.log_stops"} <= {name for name, _ in exported}
