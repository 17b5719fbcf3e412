"""Decide whether a text being written needs evidence, and make the query: FLARE, and DRAGIN's RIND and QFS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, groupby

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.loops.models.sentences import sentence_end
from suffice.policy.rounds import Token
from suffice.policy.signals.alignment import token_bytes

_NO_CONTENT_WORDS = """
a an the of in on at to for from by with as and or but not no is are was were be been being it its this that these those
he she they his her their them him i you we my your our who whom which what when where how there here do does did has
have had will would can could may might shall should also then than so such
"""
NO_CONTENT_WORDS = frozenset(_NO_CONTENT_WORDS.split())
"""Words without content: like punctuation, their tokens never trigger retrieval."""


def first_sentence(tokens: Sequence[Token]) -> int:
    """Return the number of tokens in the first sentence, see `sentence_end`; all of them if no other sentence follows.

    >>> first_sentence([Token("It"), Token("Ġrained"), Token("."), Token("ĠThen")])
    3
    """
    pieces = [text_of([token]) for token in tokens]
    end = sentence_end("".join(pieces))
    return next((number for number, length in enumerate(accumulate(map(len, pieces)), 1) if length >= end), len(tokens))


def text_of(tokens: Sequence[Token]) -> str:
    """Join tokens to their text, decoding a vocabulary's spelling if they have one."""
    try:
        return b"".join(map(token_bytes, tokens)).decode()
    except UnicodeDecodeError:
        return "".join(token.text.replace("\u2581", " ") for token in tokens)


# FLARE.


def _probability(token: Token) -> float:
    if math.isnan(token.logprob):
        raise DataError("FLARE needs the probability of every token, but one is missing: request log-probabilities")
    return math.exp(token.logprob)


def flare_trigger(tokens: Sequence[Token], theta: float) -> int | None:
    """Return the start of the first sentence with a token of probability below theta, at which FLARE retrieves.

    Generation starts again from there, with the retrieved passages; None = keep the whole reply.  Source: FLARE (Jiang et al.,
    2023, section 3.2, equation 3).

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
    """Return a sentence without its tokens of probability below beta: FLARE's implicit query.

    Source: FLARE (Jiang et al., 2023, section 3.2, equation 4).

    >>> tokens = [Token("He", -0.01), Token(" left", -0.01), Token(" Oslo", -5.0), Token(".", -0.01)]
    >>> masked_text(tokens, 0.4)
    'He left.'

    Args:
        tokens: The tokens of the sentence.
        beta: Threshold in [0, 1]; 0 masks nothing.

    Raises:
        DataError: A log-probability is missing.
    """
    return " ".join(text_of([token for token in tokens if _probability(token) >= beta]).split())


def uncertain_spans(tokens: Sequence[Token], beta: float) -> list[str]:
    """Return the texts of the runs of tokens with probabilities below beta: FLARE asks a question for each.

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


# DRAGIN.


def rind(
    entropies: npt.NDArray[np.floating], attention: npt.NDArray[np.floating], is_content: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Return the need for retrieval at each generated token: ``entropy * strongest later attention * content``.

    Retrieval is triggered at the first token whose value is above a threshold.  Source: DRAGIN (Su et al., 2024,
    section 3.1, equations 1 to 4: RIND).

    Args:
        entropies: Entropies of the tokens' distributions, nats, shape ``(n,)``.
        attention: Attention of token j (row) to token i (column), averaged over heads; shape ``(m, n)`` with ``m >= n``,
            since tokens at the end of a reply attend, too.
        is_content: False for stop words and punctuation, shape ``(n,)``.

    Returns:
        Shape ``(n,)``; 0 for the last token.
    """
    n = len(entropies)
    # Below the diagonal: only later tokens count, not a token's attention to itself.
    later = np.tril(np.asarray(attention, dtype=np.float64), k=-1)[:, :n]
    strongest = later.max(axis=0) if len(later) else np.zeros(n)
    scores: npt.NDArray[np.float64] = np.asarray(entropies, dtype=np.float64) * strongest * np.asarray(is_content)
    return scores


def attended(attention: npt.NDArray[np.floating], words: npt.NDArray[np.integer], n: int) -> list[int]:
    """Return the words of the n tokens with most attention, each once, in the order of the text.

    Source: DRAGIN (Su et al., 2024, section 3.2: QFS).

    >>> attended(np.array([0.1, 0.5, 0.3, 0.1]), np.array([0, 2, 1, -1]), 2)
    [1, 2]

    Args:
        attention: Attention of the token that needs evidence to each earlier one, shape ``(m,)``.
        words: The word that each token belongs to, shape ``(m,)``; -1 for tokens that a query leaves out.
        n: Number of tokens to take; of equal ones the earlier.
    """
    order = [place for place in np.argsort(-np.asarray(attention), kind="stable") if words[place] >= 0]
    return sorted({int(words[place]) for place in order[:n]})
