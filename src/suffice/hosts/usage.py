"""Read the token usage of a model's call from the reports of providers and frameworks."""

from __future__ import annotations

import math
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from suffice.policy.rounds import Cost


def usage_cost(usage: Any) -> Cost:
    """Return the cost of one call from its usage; unknown numbers are NaN.

    In the cost, cached input is counted separately, and thoughts count as output.  Differences between providers are
    removed: OpenAI's prompt tokens include cache reads, Anthropic's do not, and Gemini's output tokens lack thoughts.

    >>> usage_cost({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}})
    Cost(calls=1.0, uncached_tokens=4.0, cached_tokens=8.0, output_tokens=3.0, seconds=nan, written_tokens=0.0, written_1h_tokens=0.0)

    Args:
        usage: The usage of a response of OpenAI, Anthropic, Gemini or a framework, as an object or a dict; None = unknown.
    """
    from suffice.importers.calls.payloads import usage_in

    used = usage_in(_fields(usage))
    given, output, cached = (None if math.isnan(n) else n for n in (used.uncached, used.output, used.cached))
    return replace(call_cost(given, output, cached, used.written), written_1h_tokens=float(used.written_1h))


def call_cost(
    uncached: float | None, output: float | None, cached: float | None = None, written: float | None = None
) -> Cost:
    """Return the cost of one call; unknown numbers are NaN.

    An input of 0 tokens also counts as unknown, since no real call has one.

    >>> call_cost(120, 8)
    Cost(calls=1.0, uncached_tokens=120.0, cached_tokens=0.0, output_tokens=8.0, seconds=nan, written_tokens=0.0, written_1h_tokens=0.0)

    Args:
        uncached: Input tokens that were processed; None = unknown.
        output: Generated tokens; None = unknown.
        cached: Input tokens from a prefix cache; None = not reported, so all input counts as uncached.
        written: The uncached tokens that were written to a cache; None = no tokens.
    """
    if uncached is not None and not uncached + (cached or 0):
        uncached, output = None, output or None
    return Cost(
        calls=1.0,
        uncached_tokens=math.nan if uncached is None else float(uncached),
        cached_tokens=math.nan if uncached is None else float(cached or 0),
        output_tokens=math.nan if output is None else float(output),
        seconds=math.nan,
        written_tokens=float(written or 0),
    )


def _fields(usage: Any) -> dict[str, Any]:
    if hasattr(usage, "model_dump"):
        return dict(usage.model_dump())
    if is_dataclass(usage) and not isinstance(usage, type):
        return asdict(usage)
    return dict(usage) if isinstance(usage, dict) else dict(getattr(usage, "__dict__", {}))
