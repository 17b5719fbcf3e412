"""Import traces of model calls from observability tools: one reader for each format, one conversion to rounds for all."""

from __future__ import annotations

from suffice.importers.traces.explain import explain_trace
from suffice.importers.traces.inspect_ai import read_inspect
from suffice.importers.traces.langfuse import read_langfuse
from suffice.importers.traces.langsmith import read_langsmith
from suffice.importers.traces.mlflow import read_mlflow
from suffice.importers.traces.openai_files import read_openai
from suffice.importers.traces.otel import read_openinference, read_otlp

__all__ = [
    "explain_trace",
    "read_inspect",
    "read_langfuse",
    "read_langsmith",
    "read_mlflow",
    "read_openai",
    "read_openinference",
    "read_otlp",
]
