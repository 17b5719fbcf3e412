"""Convert failed requests to this library's errors, without secrets that an endpoint may echo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from suffice.common.redaction import Redactor, shortened
from suffice.errors import AuthenticationFailedError, LogprobsUnavailableError, ModelError, ModelTimeoutError

_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|signature|password", re.IGNORECASE)
_MIN_UNMISTAKABLE = 12
_RETRYABLE = frozenset({408, 409, 425, 429})
_FOREVER = ("insufficient_quota", "billing_hard_limit_reached")


class CutError(Exception):
    """Raised when a streamed reply exceeds a limit, `size` or `time`."""


def secret_values(headers: Mapping[str, str], key: str | None) -> list[str]:
    """Return the key and the values of secret headers, with and without a scheme such as `Bearer`."""
    values = [value for name, value in headers.items() if _SECRET_HEADER.search(name)]
    return [*([key] if key else []), *values, *(value.split()[-1] for value in values if value.strip())]


def is_unmistakable(value: str) -> bool:
    """Return whether a value is too unusual to occur in a reply by chance.

    >>> is_unmistakable("sk-0123456789"), is_unmistakable("production"), is_unmistakable("EMPTY")
    (True, False, False)
    """
    return len(value) >= _MIN_UNMISTAKABLE and any(c.isdigit() for c in value)


def bad_body(where: str, what: str, text: str, *, retryable: bool) -> ModelError:
    """Return the error for a reply with status 200 that is not a completion; `text` must be redacted."""
    return ModelError(f"{where} answered with {what}: {shortened(text)!r}", retryable=retryable)


def status_failure(
    where: str, status: int, detail: str, *, wants_logprobs: bool, retry_after: str | None
) -> ModelError:
    """Return the error for an HTTP status (or an error code inside a body); `detail` must be redacted."""
    report = f"{where} answered {status}: {shortened(detail)!r}"
    if status in (401, 403):
        return AuthenticationFailedError(f"{report}. Check the API key and its permissions")
    if status == 408:  # noqa: PLR2004
        return ModelTimeoutError(report)
    if status == 429 and any(word in detail for word in _FOREVER):  # noqa: PLR2004
        return ModelError(f"{report}. The quota is used up")
    if status in _RETRYABLE or status >= 500:  # noqa: PLR2004
        wait = f" It sent Retry-After: {retry_after}." if retry_after else ""
        advice = f"{wait} Try again later, with less concurrency"
        if status == 429:  # noqa: PLR2004
            report = f"{where} answered 429, its rate limit: send fewer requests (--set requests-per-minute=N): {shortened(detail)!r}"
        return ModelError(f"{report}.{advice}", retryable=True)
    if wants_logprobs and "logprob" in detail.lower():
        return LogprobsUnavailableError(
            f"{report}. Set top_logprobs to a number that the endpoint allows, or turn it off (--set logprobs=false, top_logprobs=None)"
        )
    return ModelError(f"{report}. Check base_url, model and parameters")


def failure_of(error: Exception, where: str, redact: Redactor, *, timeout_s: float, wants_logprobs: bool) -> ModelError:
    """Convert an error that the `openai` client raised after its own retries."""
    import openai

    from suffice.loops.models._http import RedirectsError

    if isinstance(error, openai.APITimeoutError):
        return ModelTimeoutError(
            f"{where} did not answer within {timeout_s:g} s: raise timeout_s, or lower max_tokens or the concurrency"
        )
    if isinstance(error, openai.APIStatusError):
        return status_failure(
            where,
            error.status_code,
            redact(_detail(error)),
            wants_logprobs=wants_logprobs,
            retry_after=error.response.headers.get("retry-after"),
        )
    for reason in (error, error.__cause__):
        if isinstance(reason, RedirectsError):
            return ModelError(f"{where} does not answer, it redirects ({redact(str(reason))}): check base_url")
    if isinstance(error, openai.APIConnectionError):
        cause = f"{type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ else str(error)
        return ModelError(
            f"{where} cannot be reached, or dropped the connection ({shortened(redact(cause))}): "
            "check that it runs and that base_url is right",
            retryable=True,
        )
    report = shortened(redact(f"{type(error).__name__}: {error}"))
    return ModelError(f"{where} failed: {report}")


def _detail(error: Any) -> str:
    """Return the text of an endpoint's error, in any form."""
    try:
        text = str(error.response.text)
    except Exception:  # noqa: BLE001 - the body may be unread or undecodable; use the message then
        text = ""
    return text or str(error)
