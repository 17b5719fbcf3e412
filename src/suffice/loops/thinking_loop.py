"""The thinking loop: a model thinks, and at checkpoints of its chain it is asked what it would answer now."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from suffice.errors import DataError, ModelError
from suffice.loops.boundaries import TOKENS, boundary_pattern, last_boundary
from suffice.loops.course import Call, Course, RoundResult, Steps, check_first_round
from suffice.loops.live import LiveLoop
from suffice.loops.models._wire import Asked, Completion, is_cut
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.prompted import reply_of
from suffice.loops.models.prompts import VersionedPrompt, filled
from suffice.loops.models.streaming import StreamedCompletion
from suffice.loops.models.token_ids import ids_of_text, with_ids
from suffice.loops.waves import Surplus
from suffice.policy.rounds import Passage, Reply, Round, added_costs
from suffice.policy.signals import EMBEDDER, THINKING, TRIAL, ChainEnricher
from suffice.policy.signals.position import AnswerPosition

GENERATOR = "generator"
"""The component that thinks, and that answers after its own end of thinking."""

AS_TEXT = (
    "the endpoint does not both take and return token ids (llama.cpp does with log-probabilities, vLLM since 0.10.2), so chains are "
    "continued as text, which it may divide into other tokens than the model generated"
)
"""The note on recordings of such chains."""

_MOST_LOOKS = 8
"""Most requests for one checkpoint; after so many without a boundary, it is where the chain has come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPrompt(VersionedPrompt):
    """The raw text around a chain of thought, as a model's template writes it.

    Attributes:
        name: Name in reports; see `VersionedPrompt`, also for `version` and `system`.
        start: Template of the text up to where the model begins to think; `{system}` and `{question}` are replaced.
        end: Text that ends the thinking.  The same text without white space around it also shows that the model itself
            has ended its thinking.
        cue: Text after `end` that makes the model answer at once, for trial answers. If empty, a trial answer is the
            model's own reply after `end`, read at the answer position and charged in full; give it enough `trial_tokens`.
    """

    start: str
    end: str = "\n</think>\n\n"
    cue: str = "Answer:"

    def text(self, question: str) -> str:
        r"""Return the text up to where the model begins to think.

        >>> CHATML.text("What is 6 times 7?").endswith("<|im_start|>assistant\n<think>\n")
        True
        """
        return filled(self.start, {"system": self.system, "question": question.strip()})


_TASK = "End with a line of the form Answer: followed by a short phrase, a number or a letter."

CHATML = ThinkingPrompt(
    name="chatml_thinking",
    version=1,
    system=_TASK,
    start=(
        "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    ),
)
"""The template of Qwen3, QwQ and other models whose turns are marked by ``<|im_start|>``."""

DEEPSEEK_R1 = ThinkingPrompt(
    name="deepseek_r1_thinking",
    version=1,
    system=_TASK,
    start="<\uff5cUser\uff5c>{question}\n\n{system}<\uff5cAssistant\uff5c><think>\n",
)
"""The template of DeepSeek-R1 and its distillates; the server adds the mark of a text's beginning."""

_TEMPLATES = {"chatml": CHATML, "deepseek_r1": DEEPSEEK_R1}
THINKING_PROMPTS: Mapping[str, ThinkingPrompt] = _TEMPLATES | {
    f"{name}_continued": replace(prompt, name=f"{prompt.name}_continued", cue="") for name, prompt in _TEMPLATES.items()
}
"""Templates by the names of the setting `template`; in those that end in ``_continued`` trial answers have no cue."""


@dataclass(frozen=True, kw_only=True)
class ThinkingLoop(LiveLoop):
    """Answers questions by a chain of thought that stops early when the policy says so.

    Round r is the r-th checkpoint: the chain after r times `every` tokens (or at another `boundary`), or at the chain's own end. At a
    checkpoint the loop may ask for a trial answer. The prompt then consists of the chain, the end of thinking and a cue. The
    chain afterwards continues as if there had been no trial. A live run asks for the trial only if the policy reads or returns
    the answer. A recording contains the trial of every checkpoint, because any policy may read it.

    When the model itself ends the chain, the last round is the model's own answer, without a cue. The difference between this
    answer and the last trial shows the loss due to the cue. Differences between trials show the loss due to a cut.

    Each request continues the chain by `every` tokens. The server should therefore cache prefixes; otherwise it reads the whole
    chain at each checkpoint, as the recorded costs show. If the endpoint takes and returns token ids, the chain is continued from
    the ids that the model generated. Otherwise it is continued from the text, which a server may divide into other tokens.

    The components of the costs are `generator` (the chain and the model's own answer) and `trial`.

    Attributes:
        model: An endpoint that continues raw text (``api="completions"``); the prompt, answer position and `max_tokens` of the model
            are not used. The chain is sampled at the model's temperature, trial answers at 0.
        prompt: The raw text around the chain.
        every: Tokens between two checkpoints; with a `boundary` other than `tokens`, between two looks for a boundary.
        boundary: The places where a checkpoint may be: at any token (`tokens`), at a blank line (`paragraph`), before one of the words
            "wait", "hmm" and "alternatively" (`words`), or before one of your own words (such as `wait,but`). The checkpoint is at the
            last boundary since the previous look. Without a boundary, the chain goes on to the next look, eight times at most. Thoughts
            beyond the boundary are charged.
        trial_tokens: Longest trial answer in tokens; a trial answer that is cut is undefined.
        answer_tokens: Longest answer after the model's own end of thinking, in tokens.
        token_ids: True to continue from token ids where possible; False = always from text.
        overlap: True to continue a live chain while its trial answer is generated, unless the loop stops whatever the answer is.
            The final answer then arrives sooner, but thoughts beyond the stop are paid (`Outcome.surplus`). The server should handle
            two requests at once. Decisions and answers are the same.
        policy: Decides when to stop; its `max_rounds` bounds the checkpoints, and its `answer_position` reads the
            model's own answer.
        enrichers: Components that measure the chain itself: an embedder of its stretches (`DraftEmbedder`), or a probe on the model's
            states (`ChainEnricher`; only with the boundary `tokens`). A live run measures the signals that
            the policy reads, before or after the trial, in the order of the rule's members.
    """

    independent_rounds: ClassVar[bool] = False
    unread_remedy: ClassVar[str] = (
        "Raise trial-tokens or max-tokens (--set trial-tokens=64, trial_tokens, answer_tokens) if answers are cut, or choose the template of "
        "your model (--set template=deepseek_r1, prompt). `suffice show` shows replies."
    )

    model: ChatModel
    prompt: ThinkingPrompt = CHATML
    every: int = 256
    boundary: str = TOKENS
    trial_tokens: int = 32
    answer_tokens: int = 256
    token_ids: bool = True
    overlap: bool = False

    def __post_init__(self) -> None:
        for name in ("every", "trial_tokens", "answer_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DataError(f"{name} must be a whole number of tokens, at least 1, got {value!r}")
        boundary_pattern(self.boundary)

    @property
    def by_ids(self) -> bool:
        """True if chains are continued from token ids; the endpoint is asked once whether that is possible."""
        return self.token_ids and self.model.takes_token_ids

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on these chains for a recording."""
        return (AS_TEXT,) if self.token_ids and not self.by_ids else ()

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of the loop: thoughts, costs, and the model's log-probabilities."""
        return self.model.capabilities - {"verbal_confidence"} | {THINKING, "costs"}

    @property
    def depends(self) -> Mapping[str, Any]:
        """The configuration that fitted state depends on: model, template, checkpoints and trials."""
        checkpoints = {"every": self.every, "trial_tokens": self.trial_tokens, "boundary": self.boundary}
        temperature = self.model.pin()["temperature"]
        return {
            "model": self.model.model,
            "temperature": temperature,
            "prompt_id": self.prompt.prompt_id,
            **checkpoints,
        }

    @property
    def labels(self) -> Mapping[str, str]:
        """The text columns of a recording: model and template."""
        return {"model": self.model.name, "prompt_id": self.prompt.prompt_id}

    @property
    def pinned(self) -> dict[str, Any]:
        """The settings that must not change for a policy fitted on these recordings: `depends`, embedder and probe."""
        probes = {e.name: dict(e.fingerprint()) for e in self.enrichers if isinstance(e, ChainEnricher)}
        return {**super().pinned, **probes}

    def configuration(self) -> Mapping[str, Any]:
        """Return the settings that affect chains and answers.

        Raises:
            DataError: `overlap` is set, but only live runs can overlap.
        """
        if self.overlap:
            raise DataError(
                "overlap=True is of live runs: a recording asks all trials, and knows what no policy would have thought beyond its stop; "
                "leave it out"
            )
        return {
            "model": self.model.pin(),
            "prompt_id": self.prompt.prompt_id,
            "prompt_sha256": self.prompt.sha256,
            "every": self.every,
            "trial_tokens": self.trial_tokens,
            "answer_tokens": self.answer_tokens,
            # Only where it differs, so that recordings of older releases can be resumed.
            **({} if self.boundary == TOKENS else {"boundary": self.boundary}),
            **({"token_ids": True} if self.by_ids else {}),
        }

    @property
    def is_async(self) -> bool:
        """True if a component can only be awaited, or if the chain continues during its trials."""
        return super().is_async or self.overlap

    async def left_over(self, course: Course) -> Surplus:
        """Cancel the thinking beyond the stop, and return its cost."""
        return await course.end() if isinstance(course, ThinkingCourse) else Surplus()

    def verify(self) -> None:
        """Check that the model continues raw text, and that the policy's rounds are checkpoints.

        Raises:
            DataError: The policy's `start_round` is not 1, an enricher measures answers, or an enricher reads the thoughts
                beyond a `boundary`, which the trial answer does not see.
            ModelError: The model only takes chat messages.
            LogprobsUnavailableError: The policy needs log-probabilities that the model does not provide.
        """
        check_first_round(self.policy, "checkpoints")
        others = [e.name for e in self.enrichers if not (e.name == EMBEDDER or isinstance(e, ChainEnricher))]
        if others:
            raise DataError(
                f"a thinking loop is measured by its chain, and these enrichers measure answers: {others}; allowed are an embedder "
                "(DraftEmbedder) and those that read the chain (ChainEnricher): leave the others out"
            )
        if self.boundary != TOKENS and any(isinstance(enricher, ChainEnricher) for enricher in self.enrichers):
            raise DataError(
                f"checkpoints are by boundary={self.boundary!r}, and a probe reads the chain beyond it, which the trial answer does not: "
                "leave out the probe (--probe), or the boundary"
            )
        if self.model.api != "completions":
            raise ModelError(
                f"{self.model.name!r} is asked by chat messages, which few servers continue in the middle of a thought: use the "
                'interface for raw text (--set api=completions, ChatModel(api="completions"))'
            )
        self.model.verify(self.policy.needs)
        _ = self.by_ids  # tested before the first question, since later nothing may block an event loop

    def course(self, question: str, passages: Sequence[Passage]) -> ThinkingCourse:
        """Return the checkpoints of one chain.

        Raises:
            DataError: There are passages, but the template has no place for them.
        """
        if passages:
            raise DataError("a thinking loop has no place for passages: put them into the question")
        return ThinkingCourse(self, question)


@dataclass(frozen=True, slots=True)
class _Chain:
    """A chain so far: the text before it, and the thoughts as text and, where possible, as token ids."""

    start: str
    thought: str
    ids: tuple[int, ...] | None

    @classmethod
    def of(cls, start: str, before: Sequence[Round], *, by_ids: bool) -> _Chain:
        """Return the chain after some checkpoints."""
        ids = tuple(number for earlier in before for number in earlier.thinking_ids or ()) if by_ids else None
        return cls(start, "".join(earlier.thinking or "" for earlier in before), ids)

    def plus(self, more: Reply) -> _Chain:
        """Return the chain continued by a reply."""
        ids = None if self.ids is None or more.token_ids is None else self.ids + more.token_ids
        return _Chain(self.start, self.thought + more.text, ids)

    def asked(self, rest: str = "") -> list[Any]:
        """Return the content of a request as a list.

        It has one text or, with token ids, the text before the chain, the chain's token ids, and the text after the chain.
        """
        return [self.start + self.thought + rest] if self.ids is None else [self.start, list(self.ids), rest]


class ThinkingCourse:
    """The rounds of one question; each continues the chain of the earlier rounds."""

    def __init__(self, loop: ThinkingLoop, question: str) -> None:
        self.loop, self.start, self.last = loop, loop.prompt.text(question), loop.policy.max_rounds
        self._ends = (loop.prompt.end.strip(),)
        self._ahead: StreamedCompletion | None = None

    async def prepare(self, r: int) -> None:
        """Do nothing, since no checkpoint exists before the chain reaches it."""
        del r

    def has(self, r: int) -> bool:
        """Return whether the chain may have this checkpoint."""
        return r <= self.last

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        """Yield the calls that continue the chain, then the trial.

        If the model ended the chain in the round before, yield only the call for the model's own answer.
        """
        prompt, loop = self.loop.prompt, self.loop
        chain = _Chain.of(self.start, before, by_ids=loop.by_ids)
        known = before[-1].signals if before else {"thinking_tokens": 0.0, "thinking_ended": 0.0}
        if known["thinking_ended"]:
            self.last = r
            answer = yield self._call(GENERATOR, chain.asked(prompt.end), loop.answer_tokens)
            return RoundResult(observed=Round.of(r, answer, thinking="", signals=known))
        stretch, at = yield from self._think(chain, begins=not before)
        checkpoint = Round(
            index=r,
            thinking=stretch.text,
            thinking_ids=stretch.token_ids,
            signals={
                "thinking_tokens": known["thinking_tokens"] + stretch.costs[GENERATOR].output_tokens,
                "thinking_ended": float(not is_cut(stretch.finish_reason)),
            },
            costs=stretch.costs,
            reply_model=stretch.reply_model,
            system_fingerprint=stretch.system_fingerprint,
        )
        cue = prompt.end + prompt.cue
        # A boundary may lie within a token, so the stretch up to it is sent as text.
        is_whole = at == len(stretch.text)
        asked = chain.plus(stretch).asked(cue) if is_whole else chain.asked(stretch.text[:at] + cue)
        call = self._call(TRIAL, asked, loop.trial_tokens, temperature=0.0, without=RoundResult(observed=checkpoint))
        if loop.overlap and r < self.last and not checkpoint.signals["thinking_ended"]:
            call = replace(call, beside=partial(self._go_on, chain.plus(stretch).asked()))
        try:
            trial = yield call
        except ModelError as error:  # the thoughts are paid, so the round counts without an answer
            return RoundResult(observed=checkpoint, error=error)
        answered = replace(
            checkpoint,
            answer=trial.answer,
            answer_tokens=trial.answer_tokens,
            text=trial.text,
            finish_reason=trial.finish_reason,
            costs={**checkpoint.costs, **trial.costs},
        )
        return RoundResult(observed=answered)

    def _think(self, chain: _Chain, *, begins: bool) -> Generator[Call, Reply, tuple[Reply, int]]:
        """Yield calls that continue the chain up to the next boundary; return the new thoughts and the boundary's index in them."""
        loop = self.loop
        whole = Reply(token_ids=() if loop.by_ids else None)
        for look in range(1, _MOST_LOOKS + 1):
            part = GENERATOR if look == 1 else f"{GENERATOR}:{look}"
            more = yield self._call(part, chain.plus(whole).asked(), loop.every, stop=self._ends)
            text, has_ended = whole.text + more.text, not (is_cut(more.finish_reason) and more.text)
            ids = (
                (*whole.token_ids, *more.token_ids)
                if whole.token_ids is not None and more.token_ids is not None
                else None
            )
            whole = replace(more, text=text, token_ids=ids, costs=added_costs(whole.costs, more.costs))
            at = None if has_ended else last_boundary(text, loop.boundary, begins=begins)
            if has_ended or at is not None:
                break
        return whole, len(whole.text) if at is None else at

    def _call(
        self,
        part: str,
        asked: Sequence[Any],
        max_tokens: int,
        *,
        stop: Sequence[str] = (),
        without: RoundResult | None = None,
        **settings: Any,
    ) -> Call:
        model, settings = self.loop.model, settings | self._settings(asked, max_tokens, stop)

        async def send(blocking: bool) -> Reply:
            ahead, self._ahead = self._ahead, None
            if ahead is not None and part == GENERATOR:
                completion = await ahead.result()
            else:
                self._ahead = ahead
                prompt = await self._prompt(asked, blocking=blocking)
                completion = (
                    model.complete(prompt, **settings) if blocking else await model.complete_async(prompt, **settings)
                )
            return await self._read(part, completion, by_ids=len(asked) > 1, blocking=blocking)

        return Call(part=part, asked=asked, send=send, without=without)

    def _settings(self, asked: Sequence[Any], max_tokens: int, stop: Sequence[str]) -> dict[str, Any]:
        """Return the parameters of a request."""
        model, by_ids = self.loop.model, len(asked) > 1
        settings: dict[str, Any] = {"max_tokens": max_tokens}
        if stop or by_ids:
            extra = {"stop": list(stop)} if stop else {}
            settings["extra_body"] = {**(with_ids(model) if by_ids else model.fingerprint()["extra_body"]), **extra}
        return settings

    def _go_on(self, asked: Sequence[Any]) -> None:
        """Start to generate the next stretch of the chain during a trial."""
        settings = self._settings(asked, self.loop.every, self._ends)
        self._ahead = StreamedCompletion(self.loop.model, partial(self._prompt, asked, blocking=False), settings)

    async def end(self) -> Surplus:
        """Cancel the stretch that was started during the last trial, and return its cost."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return Surplus()
        cost, cancelled = await ahead.cancel()
        if not ahead.is_sent:
            return Surplus()
        return Surplus(cost, 1, int(cancelled), ("stretch of thought", "stretches of thought"))

    async def _prompt(self, asked: Sequence[Any], *, blocking: bool) -> Asked:
        """Return the prompt of a call: one text, or the token ids of the text before the chain, the chain and the text after it."""
        if len(asked) == 1:
            return str(asked[0])
        start, ids, rest = asked
        tokenizer = self.loop.model.tokenizer
        begins = await tokenizer.ids(start, begins=True, blocking=blocking)
        return (*begins, *ids, *await tokenizer.ids(rest, begins=False, blocking=blocking))

    async def _read(self, part: str, completion: Completion, *, by_ids: bool, blocking: bool) -> Reply:
        """Convert a completion to the reply of a component; after a cue, the answer is at the start of the text."""
        own = self.loop.policy.answer_position
        cue = self.loop.prompt.cue.strip()
        position = AnswerPosition("start", cue, form=own.form) if part == TRIAL and cue else own
        reply = reply_of(completion.text, completion.tokens, completion.cost, position, **completion.origin)
        ids = None
        if by_ids and part != TRIAL:
            ids = ids_of_text(completion)
            if ids is None:
                ids = await self.loop.model.tokenizer.ids(completion.text, begins=False, blocking=blocking)
        return replace(reply, token_ids=ids, costs={part.partition(":")[0]: completion.cost})
