"""FLARE: decide whether a text in progress needs evidence, and build the query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from suffice.errors import DataError
from suffice.loops.models.sentences import first_sentence, text_of
from suffice.policy.rounds import Token

LONGEST_QUERY = 64
"""The tokens of an implicit query, at most."""


def _probability(token: Token) -> float:
    if math.isnan(token.logprob):
        raise DataError("FLARE needs the probability of every token, but one is missing: request log-probabilities")
    return math.exp(token.logprob)


def flare_trigger(tokens: Sequence[Token], theta: float) -> int | None:
    """Return the index of the first token of the first sentence for which FLARE retrieves.

    That sentence contains a token of probability below theta.  Generation starts again at the sentence, with the
    retrieved passages.  None means that the whole reply is kept.  Source: FLARE (Jiang et al., 2023, section 3.2,
    equation 3).

    >>> sure, unsure = Token(" It", math.log(0.9)), Token(" snowed", math.log(0.2))
    >>> flare_trigger([sure, Token(".", -0.01), sure, unsure], 0.5)
    2

    Args:
        tokens: The tokens of a reply.
        theta: Threshold in [0, 1]; 0 never retrieves, 1 nearly always.

    Raises:
        DataError: Theta is not a probability, or a log-probability is missing.
    """
    if not 0.0 <= theta <= 1.0:
        raise DataError(f"FLARE's theta must be in [0, 1], got {theta!r}")
    probabilities = [_probability(token) for token in tokens]
    start = 0
    while start < len(tokens):
        end = start + first_sentence(tokens[start:])
        if min(probabilities[start:end]) < theta:
            return start
        start = end
    return None


def masked_text(tokens: Sequence[Token], beta: float) -> str:
    """Return FLARE's implicit query: a sentence without its tokens of probability below beta; "" if no token is left.

    At most the last 64 tokens are used, as in the authors' configuration.  Source: FLARE (Jiang et al., 2023, section 3.2, equation 4).

    >>> tokens = [Token("He", -0.01), Token(" left", -0.01), Token(" Oslo", -5.0), Token(".", -0.01)]
    >>> masked_text(tokens, 0.4)
    'He left.'

    Args:
        tokens: The tokens of the sentence.
        beta: Threshold in [0, 1]; 0 masks nothing.

    Raises:
        DataError: A log-probability is missing.
    """
    kept = [token for token in tokens if _probability(token) >= beta]
    return " ".join(text_of(kept[-LONGEST_QUERY:]).split())


def uncertain_spans(tokens: Sequence[Token], beta: float) -> list[str]:
    """Return the text of each run of tokens with probabilities below beta; FLARE asks a question for each run.

    Source: FLARE (Jiang et al., 2023, section 3.2, explicit queries).

    >>> uncertain_spans([Token("In", -0.1), Token(" New", -3.0), Token(" York", -2.0), Token(".", -0.1)], 0.4)
    ['New York']

    Args:
        tokens: The tokens of the sentence.
        beta: Threshold in [0, 1].

    Raises:
        DataError: A log-probability is missing.
    """
    runs = groupby(tokens, key=lambda token: _probability(token) < beta)
    texts = [text_of(list(run)).strip() for is_uncertain, run in runs if is_uncertain]
    return [text for text in texts if any(map(str.isalnum, text))]
