"""Uncertainty of a model about its answer: entropies and log-probabilities of the tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from suffice.policy.rounds import Round, Token
from suffice.policy.signals.definitions import declare, register_signal
from suffice.policy.signals.margins import HIGHEST_LOGPROB, LOWEST_LOGPROB, known_logprobs

_REST = 1e-6
_MAX_ENTROPY = 20.0
_LOWEST_SEQUENCE = -1e6
_FEWEST = 2  # tokens with a known probability


def token_entropy(token: Token) -> float:
    """Return the entropy of the next-token distribution at a token, nats; NaN with fewer than two known values.

    Only the most likely tokens are listed, and the remaining probability counts as one further outcome.  The true entropy
    is at least that high, and higher by at most ``rest * log(number of tokens not listed)``.

    >>> round(token_entropy(Token("a", math.log(0.5), (("a", math.log(0.5)), ("b", math.log(0.25))))), 4)
    1.0397

    Args:
        token: A generated token with its alternatives.
    """
    logprobs = dict(token.alternatives)
    if token.logprob <= HIGHEST_LOGPROB:
        logprobs.setdefault(token.text, token.logprob)
    known = [logprob for logprob in logprobs.values() if LOWEST_LOGPROB < logprob <= HIGHEST_LOGPROB]
    if len(known) < _FEWEST or any(math.isnan(value) or value > HIGHEST_LOGPROB for value in logprobs.values()):
        return math.nan
    shares = [math.exp(min(logprob, 0.0)) for logprob in known]
    rest = 1.0 - math.fsum(shares)
    if rest > _REST:
        shares.append(rest)
    return max(0.0, -math.fsum(p * math.log(p) for p in shares))


def _entropy_of(aggregate: Callable[[Sequence[float]], float]) -> Callable[[Sequence[Round]], float]:
    def compute(rounds: Sequence[Round]) -> float:
        entropies = [token_entropy(token) for token in rounds[-1].answer_tokens or ()]
        return aggregate(entropies) if entropies and not any(map(math.isnan, entropies)) else math.nan

    return compute


def sequence_logprob(tokens: Sequence[Token] | None) -> float:
    """Return the joint log-probability of generated tokens, nats; NaN without tokens, or if any is unknown.

    >>> sequence_logprob([Token("a", -0.5), Token("b", -0.25)])
    -0.75
    """
    logprobs = known_logprobs(tokens or ())
    return min(math.fsum(logprobs), 0.0) if logprobs else math.nan


_ENTROPY_SOURCE = "after Malinin and Gales (2021)"
for _name, _aggregate, _words in (
    ("mean", lambda entropies: math.fsum(entropies) / len(entropies), "Mean"),
    ("max", max, "Highest"),
):
    declare(
        f"answer_entropy_{_name}",
        f"{_words} entropy over the tokens of the answer; tokens that are not listed count as one.",
        "nats",
        (0.0, _MAX_ENTROPY),
        "token_logprobs",
        compute=_entropy_of(_aggregate),
        reads={"answer_tokens"},
        source=_ENTROPY_SOURCE,
    )


@register_signal("nats", (_LOWEST_SEQUENCE, 0.0), "token_logprobs", source=_ENTROPY_SOURCE, reads={"answer_tokens"})
def answer_logprob_sum(rounds: Sequence[Round]) -> float:
    """Log-probability of the answer's tokens together."""
    return sequence_logprob(rounds[-1].answer_tokens)
