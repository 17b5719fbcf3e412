"""The parts of a round: passages, tokens with log-probabilities, and costs."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.json_text import number_from_json, number_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of evidence.

    Attributes:
        passage_id: Identity within the corpus or the question's pool.
        title: Title; a loop reveals no title twice if the retriever identifies passages by title
            (`Retriever.identity`).
        text: The text that the model reads.
        score: The retriever's score, in its own unit; NaN if unranked.
    """

    passage_id: str
    title: str
    text: str
    score: float = math.nan


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token with its log-probabilities.

    Attributes:
        text: The token as the endpoint spells it; a part of a character may appear as a replacement character.
        logprob: Log-probability of the token that was generated, nats; NaN if not given.
        alternatives: The most likely tokens at this position, as `(text, log-probability in nats)`. The generated token is
            usually among them.
        raw: The token's bytes; None if the endpoint does not give them.
    """

    text: str
    logprob: float = math.nan
    alternatives: tuple[tuple[str, float], ...] = ()
    raw: bytes | None = None

    def to_list(self) -> list[Any]:
        """Return JSON-ready values, in the order of the fields."""
        alternatives = [[text, number_to_json(value)] for text, value in self.alternatives]
        raw = None if self.raw is None else base64.b64encode(self.raw).decode()
        return [self.text, number_to_json(self.logprob), alternatives, raw]

    @classmethod
    def from_list(cls, data: Sequence[Any]) -> Token:
        """Return the token that `to_list` wrote."""
        text, logprob, alternatives, raw = data
        return cls(
            text,
            number_from_json(logprob),
            tuple((other, number_from_json(value)) for other, value in alternatives),
            None if raw is None else base64.b64decode(raw),
        )


COST_KINDS = ("calls", "uncached_tokens", "cached_tokens", "output_tokens", "seconds")
"""The kinds of cost, in the order in which they are stored and printed."""

WRITTEN_KINDS = ("written_tokens", "written_1h_tokens")
"""Parts of the uncached tokens that some providers charge more for; stored only where there are some."""

PRICED_KINDS = ("uncached_tokens", "cached_tokens", "output_tokens", *WRITTEN_KINDS)
"""The kinds of tokens in the order in which a price takes them."""

ABSENT_COSTS = {**dict.fromkeys(COST_KINDS, math.nan), **dict.fromkeys(WRITTEN_KINDS, 0.0)}
"""What is known of each kind of cost that a log does not have: nothing, but that nothing is written to a cache unless it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The measured costs of one component; NaN where the endpoint does not report them.

    Attributes:
        calls: Number of requests.
        uncached_tokens: Number of input tokens that were processed rather than read from a cache.
        cached_tokens: Input tokens read from a prefix cache, count.
        output_tokens: Generated tokens, count.
        seconds: Wall-clock time, seconds.
        written_tokens: Number of uncached tokens that were written to a cache; at Anthropic, to a cache that lasts five
            minutes.
        written_1h_tokens: Number of uncached tokens that were written to a cache that lasts an hour.
    """

    calls: float = 0.0
    uncached_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0
    seconds: float = 0.0
    written_tokens: float = 0.0
    written_1h_tokens: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{kind: getattr(self, kind) + getattr(other, kind) for kind in (*COST_KINDS, *WRITTEN_KINDS)})

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of cost that are stored: all kinds, except for cache writes if there were none."""
        return (*COST_KINDS, *(kind for kind in WRITTEN_KINDS if getattr(self, kind)))

    @property
    def tokens(self) -> float:
        """Input and output tokens together, count."""
        return self.uncached_tokens + self.cached_tokens + self.output_tokens

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; unknown values become None."""
        return {kind: number_to_json(getattr(self, kind)) for kind in self.kinds}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cost:
        """Return the cost that `to_dict` wrote."""
        return cls(**{kind: number_from_json(value) for kind, value in data.items()})


def added_costs(*each: Mapping[str, Cost]) -> dict[str, Cost]:
    """Add costs by component.

    >>> added_costs({"retrieval": Cost(calls=1)}, {"retrieval": Cost(calls=1)})["retrieval"].calls
    2.0
    """
    total: dict[str, Cost] = {}
    for costs in each:
        total |= {name: total.get(name, Cost()) + cost for name, cost in costs.items()}
    return total


def total_cost(costs: Mapping[str, Cost]) -> Cost:
    """Return the sum over components."""
    return sum(costs.values(), start=Cost())
