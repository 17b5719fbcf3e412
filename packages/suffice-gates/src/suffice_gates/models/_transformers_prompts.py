"""Encode messages as tokens for a local model, with its chat template or as raw text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.errors import DataError
from suffice.loops.models._wire import as_prompt
from suffice.loops.models.prompts import Message


class PromptEncoder:
    """Turns chat messages into tokens in the form that the model was trained on.

    A chat template formats the messages up to the start of the assistant's turn. If the start of the reply is
    prefilled, the prompt ends after the prefilled text. If the template has no system role, the instructions go to the
    start of the user's message. Without a template the contents are joined by blank lines, and the tokenizer adds its
    own first token.

    Args:
        tokenizer: A transformers tokenizer.
        options: Further variables of the chat template, such as `enable_thinking`.

    Raises:
        DataError: `options` contains a variable that the chat template does not use, or `options` is not empty although
            there is no template.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        template = str(tokenizer.chat_template) if self.has_template else ""
        unused = [name for name in self._options if not re.search(rf"\b{re.escape(name)}\b", template)]
        if unused:
            raise DataError(
                f"the model's chat template does not use {unused[0]!r}: see its chat_template for the names it uses"
                if template
                else f"the model has no chat template, so {unused[0]!r} has no effect: leave it out"
            )
        self.takes_system = self.has_template and self._takes_system()

    def describe(self) -> dict[str, Any]:
        """Return the template and its settings as JSON-ready values."""
        template = self._tokenizer.chat_template if self.has_template else None
        description = {"template": template, "system_role": self.takes_system}
        return {**description, "options": self._options} if self._options else description

    def text(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the messages as the text that the model reads."""
        nonempty = [dict(message) for message in messages if message["content"]]
        if not self.has_template:
            return as_prompt(nonempty)
        chat = nonempty if self.takes_system else _without_system(nonempty)
        is_prefilled = bool(chat) and chat[-1]["role"] == "assistant"
        text = self._tokenizer.apply_chat_template(
            chat,
            tokenize=False,
            add_generation_prompt=not is_prefilled,
            continue_final_message=is_prefilled,
            **self._options,
        )
        return str(text)

    def ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of the prompt; lone surrogates, which tokenizers do not accept, become question marks."""
        text = self.text(messages).encode("utf-8", "replace").decode("utf-8")
        # A chat template writes the first token itself.
        ids = self._tokenizer(text, add_special_tokens=not self.has_template, verbose=False)["input_ids"]
        return [int(token) for token in ids]

    def _takes_system(self) -> bool:
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        try:
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self._options)
        except Exception:  # noqa: BLE001 - templates raise what they like
            return False
        return True


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Move the instructions to the start of the first user message."""
    instructions = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    rest = [dict(message) for message in messages if message["role"] != "system"]
    if instructions and rest and rest[0]["role"] == "user":
        rest[0]["content"] = f"{instructions}\n\n{rest[0]['content']}"
    return rest
