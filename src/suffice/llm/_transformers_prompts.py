"""From messages to the tokens that a local model reads: its chat template, or the raw text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.errors import DataError
from suffice.llm._wire import as_prompt
from suffice.llm.prompts import Message

__all__ = ["PromptEncoder"]


class PromptEncoder:
    """Turns chat messages into tokens, as the model was trained to see them.

    With a chat template the messages go through it, up to where the assistant's turn begins (or through the prefilled
    start of that turn).  Templates that know no system role get the instructions at the start of the user's message.
    Without a template the contents are joined by blank lines, and the tokenizer adds its own first token.

    Args:
        tokenizer: A transformers tokenizer.
        options: Further variables of the chat template, such as `enable_thinking`.

    Raises:
        DataError: The chat template does not read one of `options`, or there is no template.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        template = str(tokenizer.chat_template) if self.has_template else ""
        unread = [name for name in self._options if not re.search(rf"\b{re.escape(name)}\b", template)]
        if unread:
            raise DataError(
                f"the model's chat template does not read {unread[0]!r}: see its chat_template for the names that it reads"
                if template
                else f"the model has no chat template to read {unread[0]!r}: leave it out"
            )
        self.takes_system = self.has_template and self._takes_system()

    def describe(self) -> dict[str, Any]:
        """Return how messages become text, JSON-ready."""
        template = self._tokenizer.chat_template if self.has_template else None
        described = {"template": template, "system_role": self.takes_system}
        return {**described, "options": self._options} if self._options else described

    def text(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the text that the model reads."""
        given = [dict(message) for message in messages if message["content"]]
        if not self.has_template:
            return as_prompt(given)
        chat = given if self.takes_system else _without_system(given)
        is_prefilled = bool(chat) and chat[-1]["role"] == "assistant"
        made = self._tokenizer.apply_chat_template(
            chat,
            tokenize=False,
            add_generation_prompt=not is_prefilled,
            continue_final_message=is_prefilled,
            **self._options,
        )
        return str(made)

    def ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of the prompt; lone surrogates, which no tokenizer takes, become question marks."""
        text = self.text(messages).encode("utf-8", "replace").decode("utf-8")
        # A chat template writes the first token itself.
        found = self._tokenizer(text, add_special_tokens=not self.has_template, verbose=False)["input_ids"]
        return [int(token) for token in found]

    def _takes_system(self) -> bool:
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        try:
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self._options)
        except Exception:  # noqa: BLE001 - templates raise what they like
            return False
        return True


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Return messages whose instructions stand at the start of the first user message."""
    told = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    rest = [dict(message) for message in messages if message["role"] != "system"]
    if told and rest and rest[0]["role"] == "user":
        rest[0]["content"] = f"{told}\n\n{rest[0]['content']}"
    return rest
