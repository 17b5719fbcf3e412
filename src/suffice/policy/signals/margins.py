"""Signals that read the log-probabilities of the answer's tokens.

A margin is the difference of the two highest log-probabilities at a token's position, whichever token was generated
(the paper's "top-1 minus top-2"). At temperature 0 the generated token has the highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from suffice.policy.rounds import Round, Token
from suffice.policy.signals.definitions import declare, register_signal

MAX_MARGIN = 30.0
"""Upper limit of margins in nats, above which bfloat16 models have no resolution."""

LOGPROB_NEEDS = frozenset({"logprobs", "token_logprobs"})
"""The names of log-probabilities in `Signal.needs`: `logprobs` for the margin of the answer, which a model may define
itself, and `token_logprobs` for every token of the answer."""

_RANGE = (0.0, MAX_MARGIN)
LOWEST_LOGPROB = -100.0
"""Values that servers use for "not given" are at or below this: -100, -9999, minus infinity."""

HIGHEST_LOGPROB = 1e-3
"""Larger values are not log-probabilities (9999, a logit); rounding makes some slightly positive."""

_BLANKS = " \t\r\n\u2581\u0120\u010a"


def token_margin(token: Token) -> float:
    """Return the difference of the two highest log-probabilities at a token, nats in [0, 30].

    The result is NaN with fewer than two known values. A second value of minus infinity, -9999 or -100 means "not
    given"; log-probabilities that were processed at temperature 0, for example, are 0 and minus infinity. A NaN or
    positive value also makes the result NaN, because the highest values are then unknown. The generated token counts
    even if it is not among the alternatives. A text that is listed twice with the same highest value counts as one
    token. A text that is listed with two different values counts as two tokens (parts of characters).

    >>> token_margin(Token("Titus", -0.2, (("Titus", -0.2), ("The", -2.2), ("T", -9.0))))
    2.0
    >>> token_margin(Token("Titus", 0.0, (("Titus", 0.0), ("The", -9999.0))))
    nan
    """
    first = second = LOWEST_LOGPROB
    first_text = None
    generated, own = token.text, token.logprob
    missing = LOWEST_LOGPROB < own <= HIGHEST_LOGPROB
    for text, logprob in token.alternatives:
        if not logprob <= HIGHEST_LOGPROB:
            return math.nan
        if missing and (text == generated or logprob == own):
            missing = False
        if logprob > first:
            first, second, first_text = logprob, first, text
        elif logprob > second and not (logprob == first and text == first_text):
            second = logprob
    if missing:
        first, second = (own, first) if own > first else (first, max(second, own))
    # A zero has no sign: 0.0 - -0.0 and -0.0 - 0.0 would differ.
    return min(first - second, MAX_MARGIN) + 0.0 if second > LOWEST_LOGPROB else math.nan


def _is_blank(token: Token) -> bool:
    return not token.text.strip(_BLANKS) or token.text.isspace() or token.text == "<0x0A>"


@register_signal("nats", _RANGE, "logprobs", clip=True, source="TASR, section 3.2", reads={"answer_tokens"})
def answer_margin(rounds: Sequence[Round]) -> float:
    """Top-1 minus top-2 log-probability at the first token of the answer.

    Tokens of white space are skipped. The value is in [0, 30], or NaN if unknown. The paper calls this signal
    `answer_token_margin`.
    """
    for token in rounds[-1].answer_tokens or ():
        if not _is_blank(token):
            return token_margin(token)
    return math.nan


def margin_aggregate(aggregate: Callable[[list[float]], float]) -> Callable[[Sequence[Round]], float]:
    """Return a signal that aggregates the margins of all tokens of the last answer, except for white space.

    The signal is NaN if any margin is unknown, because that margin may be the lowest. Source: TASR, section 5.4.

    Args:
        aggregate: A function that maps one or more margins, in nats and ascending order, to a margin in nats.
    """

    def compute(rounds: Sequence[Round]) -> float:
        margins = [token_margin(token) for token in rounds[-1].answer_tokens or () if not _is_blank(token)]
        if not margins or any(map(math.isnan, margins)):
            return math.nan
        return aggregate(sorted(margins))

    return compute


def _quantile(q: float) -> Callable[[list[float]], float]:
    def quantile(ascending: list[float]) -> float:
        position = q * (len(ascending) - 1)
        below = int(position)
        low, high = ascending[below], ascending[min(below + 1, len(ascending) - 1)]
        return low + (high - low) * (position - below)

    return quantile


def _mean_of(values: list[float]) -> float:
    return math.fsum(values) / len(values)


for _name, _aggregate, _words in (
    ("min", _quantile(0.0), "Lowest"),
    ("p10", _quantile(0.1), "10th percentile (linear) of the"),
    ("mean", _mean_of, "Mean"),
    ("median", _quantile(0.5), "Median"),
):
    declare(
        f"answer_margin_{_name}",
        f"{_words} margin over the tokens of the answer.",
        "nats",
        _RANGE,
        "token_logprobs",
        compute=margin_aggregate(_aggregate),
        reads={"answer_tokens"},
        source="TASR, section 5.4",
    )


def known_logprobs(tokens: Iterable[Token]) -> list[float]:
    """Return the log-probabilities of tokens, nats; empty if any of them is unknown."""
    logprobs = [token.logprob for token in tokens]
    return logprobs if all(LOWEST_LOGPROB < logprob <= HIGHEST_LOGPROB for logprob in logprobs) else []


@register_signal("nats", (LOWEST_LOGPROB, 0.0), "token_logprobs", reads={"answer_tokens"})
def answer_logprob_mean(rounds: Sequence[Round]) -> float:
    """Mean log-probability of the answer's generated tokens.

    NaN if any log-probability is unknown.
    """
    logprobs = known_logprobs(token for token in rounds[-1].answer_tokens or () if not _is_blank(token))
    return min(_mean_of(logprobs), 0.0) if logprobs else math.nan


_REST = 1e-6
_MAX_ENTROPY = 20.0
_LOWEST_SEQUENCE = -1e6
_FEWEST = 2  # the fewest tokens with a known probability


def token_entropy(token: Token) -> float:
    """Return the entropy of the next-token distribution at a token, nats; NaN with fewer than two known values.

    Endpoints list only the most likely tokens, so the remaining probability, the rest, counts as one further outcome.
    The true entropy is at least this value, and exceeds it by at most ``rest * log(number of tokens not listed)``.

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
