"""Components of other distributions, found by name through entry points: nothing of the main package imports them.

A distribution provides a component by an entry point of the group `suffice.provides`; the command line and loops ask for it
when an option needs it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from suffice.errors import MissingExtraError

__all__ = ["DISTRIBUTIONS", "PROVIDERS", "PROVIDES", "is_provided", "provided"]

PROVIDES = "suffice.provides"
"""The group of entry points."""

PROVIDERS = {
    "suffice-gates": (
        "ComplexityGate",
        "ConfidenceMonitor",
        "CrossEncoderScorer",
        "EncoderStates",
        "EndpointStates",
        "Probe",
        "ProbeGate",
        "ReflectionGate",
        "Reranked",
        "SampleSpread",
        "SelfCritique",
        "TransformersModel",
        "dragin_query",
        "fit_directions",
        "gate_part",
        "is_complexity_gate",
        "read_complexity_card",
    ),
    "suffice-reader": ("MiniLM", "SpanReaderModel"),
    "suffice-retrieval": (
        "CHAIN_METHODS",
        "CachedRetriever",
        "DenseRetriever",
        "QueryLoop",
        "convert_corpus",
        "is_dense_index",
        "is_engine",
        "is_store_address",
        "open_corpus",
        "open_dense",
        "open_engine",
        "open_store",
        "parse_method",
        "read_corpus",
        "shown_corpus",
        "store_variables",
    ),
}
"""The components of each distribution of this project; any other distribution may provide more."""


DISTRIBUTIONS = ("suffice-gates", "suffice-papers", "suffice-reader", "suffice-retrieval", "suffice-server")
"""The packages beside the main one, by the names that pip has for them."""


@cache
def _provided() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=PROVIDES)}


def is_provided(name: str) -> bool:
    """Return whether an installed distribution provides a component."""
    return name in _provided()


def provided(name: str) -> Any:
    """Load what another distribution provides.

    Args:
        name: Its entry point in the group `suffice.provides`.

    Raises:
        MissingExtraError: The distribution that provides it is not installed.
    """
    entry = _provided().get(name)
    if entry is not None:
        return entry.load()
    distribution = next((one for one, names in PROVIDERS.items() if name in names), "another distribution")
    raise MissingExtraError(name, distribution=distribution)
