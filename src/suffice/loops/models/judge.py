"""A language model as a judge of how well the evidence entails the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.errors import DataError
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.prompts import Message, Prompt, VersionedPrompt, chat_of, reminded
from suffice.policy.rounds import Cost, Passage, Reply, Round
from suffice.policy.signals import strip_thinking

_JUDGE_COMPONENT = "judge:entailment"
_JUDGE_SIGNAL = "judge_entailment"
_REMINDER = "Reply with the mark alone, one number from 1 to 5."
_LOWEST, _HIGHEST = 1.0, 5.0

_MARK_NUMBER = re.compile(r"(?<![\w.,-])[0-9]{1,4}(?:[.,][0-9]{1,4})?(?![0-9])")
_OUT_OF = re.compile(r"\s{0,3}(?:/|out\s{1,3}of|of)\s{0,3}(?P<top>[0-9]{1,4})(?!\w)", re.IGNORECASE)
_STATED_MARK = re.compile(
    r"(?<![\w-])(?:mark|score|rating|entailment)[*_`\"'\s]{0,4}(?:[:=]|\bis\b)[*_`\"'\s(<\[]{0,6}", re.IGNORECASE
)
_OTHER_SCALE = re.compile(r"\s?%|[-\u2013\u2014][0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePrompt(VersionedPrompt):
    """Prompt that turns a question, its passages and an answer into messages for a judge.

    The answer comes last, after the passages in the order in which they were revealed, so that with a prefix cache only
    the new passage is paid for.

    Attributes:
        name: Name in reports.
        version: Increased with every change of the text.
        system: The instructions; `{scale}` is replaced by the five marks.
        scale: The meaning of each mark, from 1 to 5.
        answer: Template of the last part of the user message; `{answer}` is replaced.
    """

    scale: tuple[str, str, str, str, str]
    answer: str = "\n\nProposed answer: {answer}"

    def messages(
        self, question: str, passages: Sequence[Passage], answer: str, *, descending: bool = False
    ) -> tuple[Message, ...]:
        """Return the chat messages.

        Args:
            question: The question.
            passages: Passages in the order in which they were revealed.
            answer: The answer to judge.
            descending: Explain the scale from 5 down to 1, because judges favour the first mark they read.
        """
        marks = [f"{mark} = {meaning}" for mark, meaning in enumerate(self.scale, 1)]
        system = self.system.replace("{scale}", "\n".join(reversed(marks) if descending else marks))
        evidence = Prompt(name=self.name, version=self.version, system=system).user(question, passages)
        user = evidence + self.answer.replace("{answer}", answer.strip())
        return chat_of(system, user)


ENTAILMENT = JudgePrompt(
    name="entailment",
    version=1,
    system=(
        "You check answers against evidence. Read the question, the numbered passages and the proposed answer. Judge "
        "only whether the passages, taken together, show that the proposed answer is right; do not use what you know "
        "besides.\n{scale}\nReply with exactly one line:\nMark: <1-5>"
    ),
    scale=(
        "the passages contradict the answer, or have nothing to do with it",
        "the passages are about the subject, but do not support the answer",
        "the passages support a part of the answer, or leave it open",
        "the passages make the answer very likely, with one step missing",
        "the passages state the answer, or it follows from them",
    ),
)
"""Prompt for a mark from 1 to 5 for how well the evidence entails the answer (TASR section 5.2, in our words)."""


def parse_mark(text: str) -> float:
    """Return the mark in a judge's reply, 1 to 5; NaN if the reply has no mark on that scale, or several.

    Thinking blocks are skipped.  The mark is the number after `Mark:`, `Score:` or similar, or else the only number.

    >>> parse_mark("**Mark:** 4/5"), parse_mark("I would say 4 out of 5."), parse_mark('{"score": 2}')
    (4.0, 4.0, 2.0)
    >>> parse_mark("Mark: <1-5>"), parse_mark("85%"), parse_mark("between 2 and 4"), parse_mark("8/10")
    (nan, nan, nan, nan)
    """
    visible = strip_thinking(text)[1]
    for label in _STATED_MARK.finditer(visible):
        number = _MARK_NUMBER.match(visible, label.end())
        if number is not None:
            return _on_scale(visible, number)
    values = set()
    position = 0
    while (number := _MARK_NUMBER.search(visible, position)) is not None:
        values.add(_on_scale(visible, number))
        top = _OUT_OF.match(visible, number.end())
        position = number.end() if top is None else top.end()
    return values.pop() if len(values) == 1 else math.nan


def _on_scale(text: str, number: re.Match[str]) -> float:
    """Return a number as a mark; NaN if it belongs to a percentage, a range, or a scale that does not end at 5."""
    top = _OUT_OF.match(text, number.end())
    if _OTHER_SCALE.match(text, number.end()) or (top is not None and float(top["top"]) != _HIGHEST):
        return math.nan
    value = float(number[0].replace(",", "."))
    return value if _LOWEST <= value <= _HIGHEST else math.nan


class EntailmentJudge:
    """Asks a model how well the revealed passages entail the answer: the signal `judge_entailment`, 1 to 5.

    Without an answer, or without passages, the mark is NaN and no request is made.  If a reply states no mark, the judge
    is asked again with a reminder.  Every attempt is paid for, and the mark is NaN if no attempt states one.

    With `passes=2`, the judge is asked twice, and the second prompt explains the scale in the opposite order.  The result
    is then the mean of both marks (NaN if one is missing), for twice the calls.

    Args:
        model: The judge; its own prompt, `max_tokens` and `top_logprobs` are not used.
        passes: 1, or 2 for both orders of the scale.
        prompt: The judging prompt.
        max_tokens: Longest reply in tokens; a judge that thinks aloud needs more.
        attempts: Largest number of requests until a reply states a mark.

    Raises:
        DataError: `passes` is neither 1 nor 2, or `attempts` is below 1.
    """

    name = _JUDGE_COMPONENT
    capabilities = frozenset({"judge"})

    def __init__(
        self,
        model: ChatModel,
        *,
        passes: int = 1,
        prompt: JudgePrompt = ENTAILMENT,
        max_tokens: int = 16,
        attempts: int = 3,
    ) -> None:
        if passes not in (1, 2):
            raise DataError(f"passes is {passes!r}; allowed: 1, or 2 for the scale in both orders")
        if attempts < 1:
            raise DataError(f"a judge is asked at least once; got attempts={attempts!r}")
        self.model, self.passes, self.prompt = model, passes, prompt
        self.max_tokens, self.attempts = max_tokens, attempts

    def __repr__(self) -> str:
        return f"EntailmentJudge({self.model!r}, passes={self.passes})"

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect the marks, JSON-ready and without secrets."""
        return {**self.model.pin(), **self.prompt.pin, "passes": self.passes, "max_tokens": self.max_tokens}

    async def measure(self, question: str, observed: Round) -> Reply:
        """Return the mark of one round with its cost.

        Raises:
            ModelError: The judge failed.
        """
        cost = Cost()
        if not (observed.answer or "").strip() or not observed.passages:
            return Reply(signals={_JUDGE_SIGNAL: math.nan}, costs={_JUDGE_COMPONENT: cost})
        marks, is_cached = [], True
        for descending in (False, True)[: self.passes]:
            messages = self.prompt.messages(question, observed.passages, observed.answer or "", descending=descending)
            mark = math.nan
            for attempt in range(self.attempts):
                request = reminded(messages, _REMINDER) if attempt else messages
                completion = await self.model.complete_async(
                    request,
                    max_tokens=self.max_tokens,
                    top_logprobs=None,
                    sample=max(
                        0, attempt - 1
                    ),  # another number, so that a repeated reminder is a new request for the cache and in batches
                )
                cost, mark = cost + completion.cost, parse_mark(completion.text)
                is_cached = is_cached and completion.from_cache
                if not math.isnan(mark):
                    break
            marks.append(mark)
        signals = {_JUDGE_SIGNAL: math.fsum(marks) / len(marks)}
        return Reply(signals=signals, costs={_JUDGE_COMPONENT: cost}, from_cache=is_cached)
