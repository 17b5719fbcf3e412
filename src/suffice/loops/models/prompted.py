"""The base class of endpoints and local models, which has a prompt and reads the answer at a position of the reply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from suffice.loops.models._wire import is_cut
from suffice.loops.models.prompts import ContextsFirstPrompt, Prompt
from suffice.policy.rounds import Cost, Reply, Token
from suffice.policy.signals.margins import LOGPROB_NEEDS
from suffice.policy.signals.position import AnswerPosition, Located
from suffice.policy.signals.text import parse_confidence

MIN_ALTERNATIVES = 2
"""The number of alternatives for each token that a margin needs."""


def reply_of(text: str, tokens: Sequence[Token] | None, cost: Cost, position: AnswerPosition, **others: Any) -> Reply:
    """Read a generated text as a reply, with the answer at `position` and its tokens; a cut text has no answer."""
    located = unless_cut(position.locate(text, tokens), text, position, others.get("finish_reason"))
    return Reply(
        answer=located.answer,
        text=text,
        tokens=None if tokens is None else tuple(tokens),
        answer_tokens=located.answer_tokens,
        costs={"generator": cost},
        **others,
    )


def unless_cut(located: Located, text: str, position: AnswerPosition, finish_reason: str | None) -> Located:
    """Return the located answer, unless the reply was cut.

    After a prefilled prompt (position `start`) many models never end by themselves, so that the limit of tokens cuts every
    reply; the answer is then complete if more text follows it.
    """
    if not is_cut(finish_reason):
        return located
    goes_on = located.answer is not None and text[located.end :].strip(" \t") != ""
    return located if goes_on and position.kind == "start" and finish_reason == "length" else Located()


def _default_position(prompt: Prompt) -> AnswerPosition:
    if isinstance(prompt, ContextsFirstPrompt):
        return AnswerPosition("whole")
    return AnswerPosition("start" if prompt.prefill else "marker")


class PromptedModel:
    """A model with a prompt.

    Args:
        prompt: Turns question and passages into messages.
        position: The position of the answer in a reply; default: after the marker `Answer:`, at the start if the prompt is
            prefilled, and the whole reply if the prompt asks for no particular form.
        top_logprobs: Number of alternatives per token; None for no log-probabilities.
    """

    def __init__(self, prompt: Prompt, position: AnswerPosition | None, top_logprobs: int | None) -> None:
        self.prompt, self.top_logprobs = prompt, top_logprobs
        self.position = position or _default_position(prompt)

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities: `logprobs` and `token_logprobs`, and `verbal_confidence` if the prompt asks for it.

        An endpoint is only expected to provide them; `verify` checks that it does.
        """
        confidence = frozenset({"verbal_confidence"} if self.prompt.asks_confidence else ())
        return LOGPROB_NEEDS | confidence if (self.top_logprobs or 0) >= MIN_ALTERNATIVES else confidence

    def _reading_pin(self) -> dict[str, Any]:
        """Return the settings that affect prompts or how answers are read."""
        is_code = self.position.kind == "callable"
        return {**self.prompt.pin, "position": {"kind": "callable"} if is_code else self.position.to_dict()}

    def _read(self, text: str, tokens: Sequence[Token] | None, cost: Cost, **fields: Any) -> Reply:
        """Return a reply with the answer, its tokens and the stated confidence."""
        confidence = math.nan if is_cut(fields.get("finish_reason")) else parse_confidence(text)
        stated = {"verbal_confidence": confidence} if self.prompt.asks_confidence else {}
        return reply_of(text, tokens, cost, self.position, signals=stated, **fields)
