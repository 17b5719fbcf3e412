"""The sampling loop, which draws independent answers to a question until a vote is decided."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from suffice.errors import DataError, ModelError
from suffice.loops.course import Call, ContextCourse, RoundResult, Steps, check_first_round
from suffice.loops.live import LiveLoop, check_position
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.prompts import Prompt
from suffice.policy.rounds import Cost, Passage, Reply, Round
from suffice.policy.rules import MajorityOfSamples
from suffice.policy.rules.selectors import Last
from suffice.policy.session import Policy
from suffice.policy.signals import RELEVANCE, member_component, shared_words
from suffice.policy.signals.votes import VOTES

_CHOICES_LOG = logging.getLogger(__name__)
_PART = "generator"
_SET_BY_THE_LOOP = ("temperature", "seed")


def sample_seed(seed: int, question: str, sample: int) -> int:
    """Return the seed of one sample, a stable hash of the arguments, so that each sample is drawn independently.

    >>> sample_seed(0, "Where is the tower?", 1) == sample_seed(0, "Where is the tower?", 1)
    True
    >>> sample_seed(0, "Where is the tower?", 1) == sample_seed(0, "Where is the tower?", 2)
    False
    """
    digest = hashlib.sha256(json.dumps([seed, question, sample]).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1  # some endpoints take no more than 31 bits


@dataclass(frozen=True, kw_only=True)
class SamplingLoop(LiveLoop):
    """Asks the same question repeatedly and independently until the policy has enough answers.

    Round i is the i-th answer, from round 1 to the policy's `max_rounds`.  A rule that counts votes (`lead(3)`,
    `adaptive_consistency`, ...) stops the loop, and a selector of samples returns the majority.  An unreadable answer
    costs a call and casts no vote.  `run` and `stream` take contexts, which every sample sees.

    Several models (a panel or a cascade) answer in turn, the cheapest first.  The order of the models is part of the loop; a
    model that is listed twice answers twice in each turn.  Several prompts also take turns: after all models have answered
    with one prompt, they answer with the next one.

    With `wave=w`, w samples are requested at once.  The policy decides in the order of the requests, because the order of
    arrival would favour short answers.  When the policy stops, the requests in flight are cancelled.  Their cost is the
    component `surplus` of the outcome: their calls are counted, and the tokens of a cancelled call are unknown.  A
    sample's seconds are the time by which it prolonged its wave.

    With `use_n`, a wave is one request for several choices (the field `n`).  Each choice is charged an equal share of the
    call and of its tokens.  If the endpoint returns too few choices, the missing ones are requested separately, with a
    warning.

    Attributes:
        model: The model that answers, or several models in the order in which they are asked.
        policy: Decides when to stop and which answer to return; its `max_rounds` is the largest number of samples.
        temperature: Sampling temperature of every model; None = the models' own.
        seed: The seed from which each sample's seed is derived, see `sample_seed`; None = send no seed.
        prompts: Variants of the prompt, used in turn; empty = the prompt of each model.
        wave: Number of samples requested at once.
        use_n: True to make each wave one request.
        enrichers: Components that measure signals by extra calls if the policy reads them, such as a verifier.

    Raises:
        DataError: A field has the wrong type or contradicts another field.
    """

    independent_rounds: ClassVar[bool] = True

    model: ChatModel | Sequence[ChatModel]
    policy: Policy = field(default_factory=lambda: Policy(selector=MajorityOfSamples(), max_rounds=10))
    temperature: float | None = 0.7
    seed: int | None = 0
    prompts: Sequence[Prompt] = ()
    wave: int = 1
    use_n: bool = False

    def __post_init__(self) -> None:
        wrong = [model for model in self.models if not isinstance(model, ChatModel)]
        if wrong or not self.models:
            raise DataError(f"a sampling loop asks one ChatModel or more, not {wrong[0] if wrong else self.model!r}")
        for name, value, least in (("wave", self.wave, 1), ("seed", self.seed, 0)):
            if value is None and name == "seed":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise DataError(f"{name} must be a whole number of at least {least}, got {value!r}")
        number = self.temperature
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0):
            raise DataError(f"temperature must be a number >= 0, or None for that of the models, not {number!r}")
        if not all(isinstance(prompt, Prompt) for prompt in self.prompts):
            raise DataError(f"prompts are Prompt, such as ANSWER_FIRST, not {self.prompts!r}")
        if self.use_n and self.wave == 1:
            raise DataError("use_n requests a wave in one request: give wave=N, the samples of one request")
        if self.use_n and len(self._sources) > 1:
            raise DataError(
                "one request has one model and one prompt: leave out use_n, or ask one model with one prompt"
            )

    @property
    def models(self) -> tuple[ChatModel, ...]:
        """The models, in the order in which they are asked."""
        return (self.model,) if isinstance(self.model, ChatModel) else tuple(self.model)

    @cached_property
    def _sources(self) -> tuple[ChatModel, ...]:
        if not self.prompts:
            return self.models
        return tuple(_with_variant(model, prompt) for prompt in self.prompts for model in self.models)

    @cached_property
    def _settings(self) -> tuple[dict[str, Any], ...]:
        """The settings that affect the samples of each source; a source is a model with its prompt."""
        ours = {} if self.temperature is None else {"temperature": float(self.temperature)}
        return tuple({**source.fingerprint(), **ours, "seed": self.seed} for source in self._sources)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(model.name for model in self.models)

    @cached_property
    def choices(self) -> _Choices:
        """The endpoint's behaviour so far for requests with several choices."""
        return _Choices()

    def source(self, r: int) -> ChatModel:
        """Return the model, with its prompt, that gives sample `r`."""
        return self._sources[(r - 1) % len(self._sources)]

    def without_reply(self, r: int) -> Reply | None:
        """Return the reply that replaces sample `r` if its live call fails; None if the loop ends instead."""
        del r
        return None

    @property
    def exchangeable(self) -> bool:
        """True if the order of the samples is arbitrary: one model, one prompt."""
        return all(settings == self._settings[0] for settings in self._settings)

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that all models have, and those of the loop: contexts, costs, relevance to the question."""
        own = frozenset.intersection(*(source.capabilities for source in self._sources))
        return own | {"passages", "costs", RELEVANCE}

    @property
    def depends(self) -> Mapping[str, Any]:
        """The models and prompts in the order of their turns, and the temperature."""
        temperature = {} if self.temperature is None else {"temperature": float(self.temperature)}
        return {
            "model": _in_turn(model.model for model in self.models),
            "prompt_id": _in_turn(source.prompt.prompt_id for source in self._sources),
            **temperature,
        }

    @property
    def labels(self) -> Mapping[str, str]:
        """The text columns of a recording: all models and prompts; `cells` has those of a single sample."""
        return {
            "model": _in_turn(model.name for model in self.models),
            "prompt_id": _in_turn(source.prompt.prompt_id for source in self._sources),
        }

    def cells(self, r: int) -> Mapping[str, str]:
        """Return model and prompt of sample `r`."""
        source = self.source(r)
        return {"model": source.name, "prompt_id": source.prompt.prompt_id}

    def billed(self, r: int, costs: Mapping[str, Cost]) -> Mapping[str, Cost]:
        """Return the costs of sample `r`; in a panel, they are listed under the name of the sample's model."""
        if len(self._names) == 1:
            return costs
        return {member_component(self.source(r).name) if name == _PART else name: cost for name, cost in costs.items()}

    @property
    def is_async(self) -> bool:
        """True if an enricher can only be awaited, or if several samples are requested at once."""
        return super().is_async or self.at_once > 1

    @property
    def at_once(self) -> int:
        """Number of samples requested at once."""
        return self.wave

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata for a recording: the normalizer, and whether samples are `exchangeable` or only `independent`.

        Exchangeable samples are in arbitrary order.
        """
        kind = "exchangeable" if self.exchangeable else "independent"
        return {kind: True, "normalizer": self.policy.normalizer}

    def configuration(self) -> Mapping[str, Any]:
        """Return the models with their settings, the normalizer, and the number of choices in one request."""
        first, *others = self._settings
        models: dict[str, Any] = {"model": first}
        if others:
            named = zip(self._sources, self._settings, strict=True)
            models = {"models": [{"name": source.name, **settings} for source, settings in named]}
        return {**models, "normalizer": self.policy.normalizer, **({"n": self.wave} if self.use_n else {})}

    def verify(self) -> None:
        """Check that policy, models and prompts fit together, and that samples can differ.

        Raises:
            DataError: Samples would all be equal, the policy does not start with round 1, only some prompts are prefilled
                (so that answers are at different positions), or the rule counts votes and the selector returns the last
                sample.
        """
        policy = self.policy
        check_first_round(policy, "samples")
        votes = sorted(VOTES.intersection(map(policy.raw_of, policy.rule.signals)))
        if votes and isinstance(policy.selector, Last):
            raise DataError(
                f"the rule counts votes ({', '.join(votes)}), and the selector returns the last sample: set "
                'selector="majority_of_samples"'
            )
        self._check_differ()
        for model in self.models:
            check_position(policy, model)
            if any(bool(prompt.prefill) != bool(model.prompt.prefill) for prompt in self.prompts):
                raise DataError(
                    "some prompts are prefilled and some are not, which hold the answer at other places: give one kind"
                )
        for source in self._sources:
            source.verify(policy.needs)

    def course(self, question: str, passages: Sequence[Passage]) -> _SamplingCourse:
        """Return the samples of a question.

        Raises:
            DataError: A context is not a `Passage`.
        """
        return _SamplingCourse(self, question, passages)

    def _check_differ(self) -> None:
        """Raise if samples would be equal: at temperature 0, or with a temperature or seed in `extra_body`."""
        for settings in self._settings:
            fixed = [name for name in _SET_BY_THE_LOOP if name in settings["extra_body"]]
            if fixed:
                raise DataError(f"extra_body sets {fixed[0]!r} for all samples: leave it out, the loop has it")
        texts = [json.dumps(settings, sort_keys=True) for settings in self._settings]
        asked = Counter(texts[r % len(texts)] for r in range(self.policy.max_rounds))
        for settings, text in zip(self._settings, texts, strict=True):
            if settings["temperature"] == 0 and asked[text] > 1:
                once = f"max_rounds={len(texts)} to ask each model and prompt once"
                raise DataError(
                    f"{settings['model']!r} would give {asked[text]} samples at temperature 0, which are all equal: set a "
                    f"temperature (0.7), or {once if texts.count(text) == 1 else 'list each once'}"
                )


@dataclass(slots=True)
class _Choices:
    """A record of whether the endpoint returns as many choices as requested."""

    complete: bool = True

    def count(self, endpoint: str, returned: int, requested: int) -> None:
        """Record the number of choices that a request returned, and warn if some are missing."""
        if returned < requested:
            self.complete = False
            _CHOICES_LOG.warning(
                "%s returned %d of the %d choices of one request (n): the others are requested by themselves",
                endpoint,
                returned,
                requested,
            )


class _SamplingCourse(ContextCourse):
    """The samples of one question, one for each round: the reply to a request, or one of its several choices."""

    def __init__(self, loop: SamplingLoop, question: str, passages: Sequence[Passage]) -> None:
        super().__init__(question, passages, loop.policy.max_rounds)
        self.loop = loop
        self._brought: dict[int, Reply] = {}
        self._requests: dict[int, tuple[int, asyncio.Task[list[Reply]]]] = {}

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        del before  # samples are independent
        reply = yield Call(
            part=_PART,
            asked=self.loop.source(r).prompt.messages(self.question, self.passages),
            send=lambda blocking: self._reply(r, blocking=blocking),
            brought=lambda: dict(self._brought),
            instead=self.loop.without_reply(r),
        )
        relevance = {RELEVANCE: shared_words(self.question, reply.text)} if reply.text else {}
        reply = replace(reply, signals={**reply.signals, **relevance})
        return RoundResult(observed=Round.of(r, reply, passages=self.passages))

    async def _reply(self, r: int, *, blocking: bool) -> Reply:
        """Return sample `r`; if `blocking`, never suspend."""
        if not self.loop.use_n:
            return (await self._request(r, 1, blocking=blocking))[0]
        if r not in self._requests:
            wanted = min(self.loop.wave, self.loop.policy.max_rounds - r + 1) if self.loop.choices.complete else 1
            task = asyncio.create_task(self._request(r, wanted))
            self._requests |= dict.fromkeys(range(r, r + wanted), (r, task))
        first, task = self._requests[r]
        replies = await task
        self._brought |= dict(enumerate(replies, first))
        if r not in self._brought:  # fewer choices came than were requested
            self._brought[r] = (await self._request(r, 1))[0]
        return self._brought[r]

    async def _request(self, r: int, n: int, *, blocking: bool = False) -> list[Reply]:
        """Send one request for `n` samples from `r` on, and return those that arrived."""
        model, loop = self.loop.source(r), self.loop
        send = partial(model.complete_several if blocking else model.complete_several_async, sample=r - 1, seed=None)
        if loop.seed is not None:
            send = partial(send, seed=sample_seed(loop.seed, self.question, r))
        if loop.temperature is not None:
            send = partial(send, temperature=loop.temperature)
        result = send(model.prompt.messages(self.question, self.passages), n)
        try:
            completions = await result if isinstance(result, Awaitable) else result
        except ModelError as error:
            raise _with_advice(error) if n > 1 else error from None
        loop.choices.count(model.endpoint, len(completions), n)
        return [model.read(completion) for completion in completions[:n]]


def _with_variant(model: ChatModel, prompt: Prompt) -> ChatModel:
    """Return a model with another prompt; connection, cache and statistics are shared."""
    other = copy(model)
    other.prompt = prompt
    return other


def _with_advice(error: ModelError) -> ModelError:
    """Add advice to the error of a request for several choices, in case the endpoint does not support them."""
    if type(error) is not ModelError or error.retryable:
        return error
    return ModelError(f"{error}. If it refuses several choices (n), leave out use_n (--set use-n=true)")


def _in_turn(names: Any) -> str:
    """Join distinct names, in order, into one text."""
    return " + ".join(dict.fromkeys(names))
