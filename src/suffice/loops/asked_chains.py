"""Ask for trial answers along chains of thought that were recorded before, with one request for each checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from os.path import commonprefix
from typing import Any

from suffice.common.blocking import finished
from suffice.errors import ModelError
from suffice.loops.course import Call, RoundResult, Steps, drive
from suffice.loops.models._wire import CHARACTERS_PER_TOKEN
from suffice.loops.models.prompted import reply_of
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import GENERATOR, ThinkingCourse, ThinkingLoop
from suffice.policy.rounds import Cost, Passage, Reply, Round
from suffice.policy.signals import TRIAL
from suffice.recordings.schema import ASKED, TRIALS

_CHAIN, _REPLY = "chain", "reply"
_START = f"{TRIAL}:start"
"""The part of the call that counts the tokens of the text around the chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedChain:
    """A finished chain of thought.

    Attributes:
        chain_id: The name of the chain, unique in a log.
        cluster: The id of the question; chains of the same question share it.
        golds: Gold answers; empty if unknown.
        thinking: The text of the chain.
        reply: The model's reply after thinking; None if the chain was cut before its end.
    """

    chain_id: str
    cluster: str
    question: str
    golds: tuple[str, ...]
    thinking: str = ""
    reply: str | None = None


def chain_questions(chains: Iterable[FinishedChain]) -> list[Question]:
    """Convert finished chains to questions for `RecordedChainLoop`; chain and reply become the question's passages."""
    questions = []
    for chain in chains:
        texts = {_CHAIN: chain.thinking} | ({} if chain.reply is None else {_REPLY: chain.reply})
        passages = tuple(Passage(passage_id=name, title=name, text=text) for name, text in texts.items())
        own = Question(
            question_id=chain.chain_id,
            question=chain.question.strip(),
            answers=chain.golds,
            passages=passages,
            cluster=chain.cluster,
        )
        questions.append(own)
    return questions


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingPrice:
    """The estimated requests and tokens for trial answers along recorded chains, at four characters per token.

    Attributes:
        requests: Number of requests: one for each trial, and one more for each chain, which counts the tokens of the
            prompt without the chain.
        prompt_tokens: Prompt tokens of all requests.  A server without a prefix cache reads all of them, and most
            providers bill all of them.
        new_tokens: Prompt tokens that a server with a prefix cache reads.  The start that a prompt shares with the
            previous request is not counted.
    """

    chains: int = 0
    trials: int = 0
    requests: int = 0
    prompt_tokens: float = 0.0
    new_tokens: float = 0.0
    output_tokens: float = 0.0

    def plus(self, other: AskingPrice) -> AskingPrice:
        """Return the sum of two estimates."""
        return AskingPrice(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})


@dataclass(frozen=True, kw_only=True)
class RecordedChainLoop(ThinkingLoop):
    """Asks for trial answers along finished chains, as a `ThinkingLoop` would have done while the model was thinking.

    The tokens of the log are unknown. Checkpoints are therefore placed at white space, and a token is taken to be four
    characters. The number of thinking tokens is then computed from the prompt tokens that the server reports. One more
    request for each chain counts the tokens of the prompt without the chain. The tokens of the recorded reply are
    estimated from its characters.

    The component `generator` has the tokens of the chain, as if the chain had been one request. The component `trial`
    has the cost of the trials. The cost differs from that of a live loop, which asks for fewer trials and whose server
    has the chain in its cache.

    Attributes:
        model: See `ThinkingLoop`; should be the model that generated the chains.
    """

    @property
    def by_ids(self) -> bool:
        """False, since the token ids of the log are unknown."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """No notes; the metadata contain the origin of the trials."""
        return ()

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata on the origin of the trials."""
        return {TRIALS: ASKED}

    def configuration(self) -> Mapping[str, Any]:
        """Return the settings that affect trials."""
        return {**super().configuration(), "chains": "recorded"}

    def course(self, question: str, passages: Sequence[Passage]) -> ThinkingCourse:
        """Return the checkpoints of a recorded chain; `passages` contains the chain, see `chain_questions`."""
        texts = {passage.passage_id: passage.text for passage in passages}
        return _RecordedCourse(self, question, texts.get(_CHAIN, ""), texts.get(_REPLY))

    def price(self, questions: Iterable[Question]) -> AskingPrice:
        """Estimate the requests and tokens for these chains, without sending a request."""
        total = AskingPrice()
        for question in questions:
            total = total.plus(self._price_of(question))
        return total

    def _price_of(self, question: Question) -> AskingPrice:
        """Estimate the price of one chain by running its course with placeholder replies."""
        asked: list[tuple[str, str]] = []

        async def estimate(call: Call) -> Reply:
            if not call.part.startswith(TRIAL):
                return await call.send(True)
            text = str(call.asked[0])
            asked.append((call.part, text))
            return Reply(costs={TRIAL: Cost(calls=1, uncached_tokens=len(text) / CHARACTERS_PER_TOKEN)})

        course = self.course(question.question, question.passages)
        rounds: list[Round] = []
        while course.has(len(rounds) + 1):
            steps = course.calls(len(rounds) + 1, rounds)
            rounds.append(finished(drive(steps, estimate)).observed)
        texts = [text for _, text in asked]
        shared = [commonprefix(pair) for pair in pairwise(texts)]  # noqa: RUF071 - of characters, not of paths
        trials = sum(part == TRIAL for part, _ in asked)
        characters = sum(map(len, texts))
        return AskingPrice(
            chains=1,
            trials=trials,
            requests=len(asked),
            prompt_tokens=characters / CHARACTERS_PER_TOKEN,
            new_tokens=(characters - sum(map(len, shared))) / CHARACTERS_PER_TOKEN,
            output_tokens=trials * self.trial_tokens + len(asked) - trials,
        )


class _RecordedCourse(ThinkingCourse):
    """The rounds of a recorded chain; its thoughts and its reply come from the log, and only trials are requested."""

    def __init__(self, loop: ThinkingLoop, question: str, chain: str, reply: str | None) -> None:
        super().__init__(loop, question)
        self.chain, self.reply = chain, reply
        self.around, self.asked = math.nan, 0

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        """Yield the calls of a live checkpoint.

        In round 1, they are preceded by a call that counts the tokens of the prompt without the chain.
        """
        if r == 1:
            prompt = self.loop.prompt
            counted = yield self._call(_START, [self.start + prompt.end + prompt.cue], 1, temperature=0.0)
            self.around = self._prompt_tokens(counted.costs[TRIAL])
        result = yield from super().calls(r, before)
        if result.error is not None:
            return result
        observed = result.observed
        thought = before[-1].signals["thinking_tokens"] if before else 0.0
        own = Cost(calls=float(r == 1), uncached_tokens=self.around if r == 1 else 0.0, seconds=math.nan)
        if TRIAL not in observed.costs:
            answer = len(self.reply or "") * thought / len(self.chain)
            return RoundResult(observed=replace(observed, costs={GENERATOR: replace(own, output_tokens=answer)}))
        seen = sum(len(item.thinking or "") for item in (*before, observed))
        if self.reply is None and seen == len(self.chain):
            self.last = r
        # A trial at a boundary reads only the thoughts before it, so scale its tokens up to all thoughts so far.
        measured = (self._prompt_tokens(observed.costs[TRIAL]) - self.around) * seen / max(self.asked, 1)
        tokens = max(measured, thought)
        costs = {**observed.costs, GENERATOR: replace(own, output_tokens=tokens - thought)}
        signals = {**observed.signals, "thinking_tokens": tokens}
        return RoundResult(observed=replace(observed, signals=signals, costs=costs))

    def _prompt_tokens(self, cost: Cost) -> float:
        """Return the prompt tokens of a request; raise if the server does not report them."""
        tokens = cost.uncached_tokens + cost.cached_tokens
        if math.isnan(tokens):
            raise ModelError(
                f"{self.loop.model.name!r} reports no prompt tokens, by which the length of a recorded chain is measured: ask a server "
                "that returns usage, such as llama.cpp, vLLM or SGLang"
            )
        return tokens

    def _call(self, part: str, asked: Sequence[Any], max_tokens: int, **settings: Any) -> Call:
        """Return a call: a trial is requested from the model, all other parts of a round are read from the log."""
        text = str(asked[0])
        if part.startswith(TRIAL):
            prompt = self.loop.prompt
            self.asked = len(text) - len(self.start) - len(prompt.end + prompt.cue)
            return super()._call(part, asked, max_tokens, **settings)
        reply = self._logged(len(text) - len(self.start), max_tokens)

        async def send(blocking: bool) -> Reply:
            del blocking  # nothing is asked
            return reply

        return Call(part=part, asked=[text], send=send)

    def _logged(self, seen: int, max_tokens: int) -> Reply:
        """Return the stretch of the chain that follows the first `seen` characters.

        If `seen` goes beyond the chain, the request has ended the thinking; return the recorded reply instead.
        """
        unpaid = {GENERATOR: Cost()}
        if seen > len(self.chain):  # the end of thinking follows the chain
            own = reply_of(self.reply or "", None, Cost(), self.loop.policy.answer_position)
            return replace(own, costs=unpaid)
        rest = self.chain[seen:]
        stretch = _up_to_white_space(rest, int(max_tokens * CHARACTERS_PER_TOKEN))
        ended = len(stretch) == len(rest) and self.reply is not None
        return Reply(text=stretch, finish_reason="stop" if ended else "length", costs=unpaid)


def _up_to_white_space(text: str, most: int) -> str:
    """Cut a text to at most `most` characters, at white space if there is any.

    >>> _up_to_white_space("six times seven", 11), _up_to_white_space("sixtimesseven", 11), _up_to_white_space("six", 11)
    ('six times', 'sixtimessev', 'six')
    """
    if len(text) <= most:
        return text
    words = text[: most + 1].rsplit(None, 1)[0] if not text[most].isspace() else text[:most]
    return words if 0 < len(words) <= most else text[:most]
