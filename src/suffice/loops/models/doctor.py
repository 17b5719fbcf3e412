"""Test what an endpoint can do by sending requests."""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from suffice.common.results import jsonable
from suffice.common.tables import counted
from suffice.errors import AuthenticationFailedError, DataError, LogprobsUnavailableError, ModelError
from suffice.loops.models._wire import Completion, as_prompt, is_processed
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.prompted import MIN_ALTERNATIVES
from suffice.policy.rounds import Passage, Reply
from suffice.policy.signals import THINKING
from suffice.policy.signals.margins import LOGPROB_NEEDS, token_margin

LogprobsKind = Literal["raw", "processed", "none", "unknown"]
"""`processed`: taken after sampling, 0 for the chosen token and minus infinity for the others, without a margin."""

_SAMPLES = 2
_UNREAD_NOTE = (
    "no answer could be read from the replies: choose another --prompt or answer-position, raise max-tokens if they "
    "are cut off or still thinking, or switch thinking off with --set extra-body="
    '\'{"chat_template_kwargs": {"enable_thinking": false}}\''
)
_HIDDEN_NOTE = (
    "it thinks ({:.0f} tokens of a short reply) and does not show what: no rule can stop inside such a chain. What is possible is a budget of "
    "thought, where it takes one: run each budget on the same questions, and compare what they get right and cost; an uncut chain does not tell "
    "what a shorter one would have answered"
)
_ALTERNATIVES = (20, 5, MIN_ALTERNATIVES)
_PREFIX_NUMBERS = (1100, 250)
_REUSED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reply with the answer read from it.

    Attributes:
        question: The question, which was sent together with a passage that contains the answer.
        reply: The generated text, unchanged.
        answer: The answer; None if none could be read.
        confidence: The stated confidence, 1 to 5; None if none could be read.
    """

    question: str
    reply: str
    finish_reason: str | None
    answer: str | None
    confidence: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReport:
    """The capabilities of an endpoint; unknown values are NaN, None or `unknown`, with a note.

    Attributes:
        endpoint: The address of the endpoint, without secrets.
        model: The model's name.
        api: `chat` or `completions`.
        reachable: Whether the endpoint answered any request.
        capabilities: Capabilities that rules may rely on, as named in `Signal.needs`.
        logprobs: The kind of the log-probabilities.
        alternatives: Largest number of alternatives returned for a token; 20 were requested.
        cached_tokens_reported: Whether the number of input tokens from the prefix cache is reported; None if unknown.
        prefix_reuse: Whether the cache serves the start of an extended prompt; None if not reported.
        prefix_share: Share of the tokens of this start that came from the cache, 0 to 1; NaN if not reported.
        prefix_latency_ratio: Time for an extended prompt divided by the time for a new prompt of the same length; below 1
            suggests that the cache is used. NaN if unknown.
        continues: Whether the endpoint continues raw text, so that a chain of thought can be stopped; None if only chat
            messages were sent.
        token_ids: Whether the endpoint takes and returns token ids; None if this was not tested.
        workers: Number of requests sent at once.
        speedup: `workers` times the median time of a single request, divided by the time of `workers` concurrent requests;
            NaN if unknown, for instance because the endpoint's rate limit delayed requests.
        latency_s: Median time of a short request alone, seconds; NaN if unknown.
        repeats: Number of prompts that were sent twice: first one after the other, then all at once in another order.
        changed_answers: Share of the repeated prompts whose answer changed, 0 to 1; NaN if unknown.
        margin_drift: Largest change of the answer's margin, nats; NaN if there are no margins.
        refused: Number of requests, retries included, that were refused with status 429 (rate limit).
        answered: Share of the replies to the repeated prompts that contain an answer, 0 to 1; NaN if unknown.
        samples: The first two replies to the repeated prompts.
        notes: Failures and missing features, one line each.
    """

    endpoint: str
    model: str
    api: str
    reachable: bool = False
    capabilities: tuple[str, ...] = ()
    logprobs: LogprobsKind = "unknown"
    alternatives: int = 0
    cached_tokens_reported: bool | None = None
    prefix_reuse: bool | None = None
    prefix_share: float = math.nan
    prefix_latency_ratio: float = math.nan
    continues: bool | None = None
    token_ids: bool | None = None
    workers: int = 0
    speedup: float = math.nan
    latency_s: float = math.nan
    repeats: int = 0
    changed_answers: float = math.nan
    margin_drift: float = math.nan
    refused: int = 0
    answered: float = math.nan
    samples: tuple[Sample, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; NaN becomes None."""
        result: dict[str, Any] = jsonable(asdict(self))
        return result


def probe(model: ChatModel, *, repeats: int = 20, workers: int = 4) -> EndpointReport:
    """Test an endpoint with about `2 * (repeats + workers)` short requests and a few long ones.

    A failed probe becomes a note and does not stop the others.  The response cache is not used.

    Args:
        model: The model to test, with the prompt, answer position and parameters that you will use later.
        repeats: Number of prompts for the determinism probe.
        workers: Number of requests sent at once.

    Raises:
        DataError: `repeats` or `workers` is below 1.
    """
    if repeats < 1 or workers < 1:
        raise DataError(f"repeats and workers must be at least 1, got {repeats!r} and {workers!r}")
    report = EndpointReport(endpoint=model.endpoint, model=model.model, api=model.api)
    report = _logprobs(model, report)
    if not report.reachable:
        return report
    alternatives = None if report.logprobs == "none" else min(report.alternatives, _ALTERNATIVES[1]) or None
    steps: tuple[tuple[str, Callable[[], EndpointReport]], ...] = (
        ("prefix reuse", lambda: _prefix(model, report)),
        ("continued text", lambda: _continuation(model, report)),
        ("concurrency", lambda: _concurrency(model, report, workers)),
        ("determinism", lambda: _determinism(model, report, repeats, workers, alternatives)),
    )
    for name, step in steps:
        try:
            report = step()
        except ModelError as error:
            report = _with_note(report, f"{name}: {error}")
    if model.refused:
        refused = counted(model.refused, "request")
        note = f"its rate limit refused {refused} (429): record with --set requests-per-minute=N, below what it allows"
        return _with_note(replace(report, refused=model.refused), note)
    return report


def _with_note(report: EndpointReport, note: str) -> EndpointReport:
    return replace(report, notes=(*report.notes, note))


def _logprobs(model: ChatModel, report: EndpointReport) -> EndpointReport:
    """Test whether the endpoint answers, and which log-probabilities it returns."""
    reply: Completion | None = None
    for requested in (*_ALTERNATIVES, None):
        try:
            reply = _ask(model, "Name a colour.", max_tokens=8, top_logprobs=requested)
        except AuthenticationFailedError as error:
            return _with_note(report, f"authentication: {error}")
        except ModelError as error:
            # Only a refusal can depend on the number of alternatives.
            if error.retryable or requested is None:
                return _with_note(report, f"first request: {error}")
            what = "log-probabilities" if isinstance(error, LogprobsUnavailableError) else "the request"
            report = _with_note(report, f"refuses {what} with {requested} alternatives: {error}")
        else:
            break
    tokens = (reply.tokens if reply is not None else None) or ()
    most = max((len(token.alternatives) for token in tokens), default=0)
    kind: LogprobsKind = "none"
    if reply is not None and most:
        kind = "processed" if is_processed(reply) else "raw"
    if reply is not None and reply.reasoning_tokens > 0 and reply.reasoning is None and "<think" not in reply.text:
        report = _with_note(report, _HIDDEN_NOTE.format(reply.reasoning_tokens))
    usable = kind == "raw" and most >= MIN_ALTERNATIVES
    capabilities = set(LOGPROB_NEEDS) if usable else set()
    if model.prompt.asks_confidence:
        capabilities.add("verbal_confidence")
    return replace(report, reachable=True, capabilities=tuple(sorted(capabilities)), logprobs=kind, alternatives=most)


def _ask(model: ChatModel, messages: Any, **overrides: Any) -> Completion:
    return model.complete(messages, use_cache=False, **overrides)


def _prefix(model: ChatModel, report: EndpointReport) -> EndpointReport:
    """Test prefix reuse: send a long new text, then its extension, then a new text as long as the extension."""
    start = extended = fresh = None
    for count in _PREFIX_NUMBERS:
        text = _random_numbers(count)
        try:
            start = _ask(model, text, max_tokens=1, top_logprobs=None)
            extended = _ask(model, f"{text} {_random_numbers(8)}", max_tokens=1, top_logprobs=None)
            fresh = _ask(model, f"{_random_numbers(count)} {_random_numbers(8)}", max_tokens=1, top_logprobs=None)
            break
        except ModelError as error:
            if error.retryable or count == _PREFIX_NUMBERS[-1]:
                raise
            report = _with_note(report, f"prefix reuse, {count} numbers: {error}")
    if start is None or extended is None or fresh is None:
        return report
    reported = extended.cached_tokens_reported
    length = start.cost.uncached_tokens + start.cost.cached_tokens
    share = min(extended.cost.cached_tokens / length, 1.0) if reported and length > 0 else math.nan
    return replace(
        report,
        cached_tokens_reported=reported,
        prefix_share=share,
        prefix_reuse=None if math.isnan(share) else share >= _REUSED,
        prefix_latency_ratio=extended.cost.seconds / fresh.cost.seconds if fresh.cost.seconds > 0 else math.nan,
    )


def _continuation(model: ChatModel, report: EndpointReport) -> EndpointReport:
    """Test continuation: append the first half of a reply to its prompt, and compare the new text with the second half."""
    if model.api != "completions":
        return report
    question, passage = _question_and_passage(0)
    start = as_prompt(model.prompt.messages(question, [passage]))
    settings = {"max_tokens": 16, "temperature": 0.0, "top_logprobs": None}
    whole = _ask(model, start, **settings).text
    half = len(whole) // 2
    if not half:
        return _with_note(report, "it says nothing after raw text, so whether it continues one is unknown")
    rest = _ask(model, start + whole[:half], **settings).text
    # A server that puts the text into a chat template begins anew.  Later characters may differ by rounding.
    if rest.startswith(whole[half : half + max(1, half // 2)]):
        given = tuple(sorted({*report.capabilities, THINKING}))
        report = replace(report, continues=True, capabilities=given)
        try:
            return replace(report, token_ids=model.takes_token_ids)
        except ModelError as error:
            return _with_note(report, f"token ids: {error}")
    note = "it does not continue raw text where it was cut, so no chain of thought can be stopped there"
    return _with_note(replace(report, continues=False), note)


def _random_numbers(count: int) -> str:
    """Return a random text that is in no cache."""
    rng = random.Random(secrets.randbits(64))  # noqa: S311 - it must be new, not secret
    return " ".join(str(rng.randrange(100)) for _ in range(count))


def _concurrency(model: ChatModel, report: EndpointReport, workers: int) -> EndpointReport:
    """Send requests one after the other, then the same number at once."""

    def ask(number: str) -> float:
        return _ask(
            model, f"Write one sentence about the number {number}.", max_tokens=16, top_logprobs=None
        ).cost.seconds

    refused = model.refused
    alone = sorted(ask(_random_numbers(3)) for _ in range(workers))
    with ThreadPoolExecutor(workers) as pool:
        started = time.perf_counter()
        list(pool.map(ask, [_random_numbers(3) for _ in range(workers)]))
        parallel_s = time.perf_counter() - started
    median = alone[len(alone) // 2]
    speedup = workers * median / parallel_s if model.refused == refused else math.nan
    return replace(report, workers=workers, speedup=speedup, latency_s=median)


def _determinism(
    model: ChatModel, report: EndpointReport, repeats: int, workers: int, alternatives: int | None
) -> EndpointReport:
    """Send each prompt twice, alone and among others, because batching can change results."""
    checks = [_question_and_passage(number) for number in range(repeats)]
    prompts = [model.prompt.messages(question, [passage]) for question, passage in checks]

    def read(messages: Any) -> Reply:
        return model.read(_ask(model, messages, top_logprobs=alternatives))

    first = [read(messages) for messages in prompts]
    with ThreadPoolExecutor(workers) as pool:
        second = list(pool.map(read, reversed(prompts)))[::-1]
    pairs = list(zip(first, second, strict=True))
    drifts = [abs(_margin(a) - _margin(b)) for a, b in pairs if a.answer == b.answer]
    known = [drift for drift in drifts if not math.isnan(drift)]
    replies = [*first, *second]
    answered = sum(reply.answer is not None for reply in replies) / len(replies)
    stated = any(_confidence(reply) is not None for reply in replies)
    if answered == 0:
        report = _with_note(report, _UNREAD_NOTE)
    if model.prompt.asks_confidence and not stated:
        remaining = tuple(name for name in report.capabilities if name != "verbal_confidence")
        report = _with_note(replace(report, capabilities=remaining), "no reply states a confidence from 1 to 5")
    return replace(
        report,
        repeats=repeats,
        changed_answers=sum(a.answer != b.answer for a, b in pairs) / repeats,
        margin_drift=max(known, default=math.nan),
        answered=answered,
        samples=tuple(_sample_reply(number, reply) for number, reply in enumerate(first[:_SAMPLES])),
    )


def _margin(reply: Reply) -> float:
    return token_margin(reply.answer_tokens[0]) if reply.answer_tokens else math.nan


def _confidence(reply: Reply) -> float | None:
    stated = reply.signals.get("verbal_confidence", math.nan)
    return None if math.isnan(stated) else stated


def _sample_reply(number: int, reply: Reply) -> Sample:
    return Sample(
        question=_question_and_passage(number)[0],
        reply=reply.text,
        finish_reason=reply.finish_reason,
        answer=reply.answer,
        confidence=_confidence(reply),
    )


_PLACES = ("Oslo", "Lima", "Cairo", "Kyoto", "Quito")
_THINGS = ("tower", "bridge", "museum", "library", "harbour", "garden", "castle")


def _question_and_passage(number: int) -> tuple[str, Passage]:
    thing, place = _THINGS[number % len(_THINGS)], _PLACES[number % len(_PLACES)]
    passage = Passage(passage_id="1", title=f"The {thing}", text=f"The {thing} number {number} stands in {place}.")
    return f"Where does the {thing} number {number} stand?", passage
