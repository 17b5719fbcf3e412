"""Prompts as data; the text of round r extends the text of round r - 1, so that prefix caches can be used.

Everything that changes between rounds comes last: first the constant instructions, then the question, then the passages
in the order in which they were revealed, and nothing after them.  Round 0 (closed book) is the same text without
passages, so even the first passage extends a prompt that the endpoint has already read.

Writer and critic share instructions, question and passages; the draft follows, then the critique, then the task.  The
passages are therefore paid for once, and the revision of a draft extends the text that its critic has read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar

from suffice.errors import DataError, NotFoundError
from suffice.policy.rounds import Passage

Message = dict[str, str]
"""One chat message: `role` and `content`."""

_TASK = (
    "Answer the question with a short phrase: a name, a date, a number, yes or no. "
    "Use the numbered passages if there are any; without passages, answer from what you know."
)
_KINDS: Mapping[str, type] = {"str": str, "int": int, "bool": bool}
_CONFIDENCE_SCALE = "The confidence is a whole number from 1 (a guess) to 5 (certain)."


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedPrompt:
    """Base class of prompts: instructions with a name and a version.

    Attributes:
        version: Increased with every change of the text.
    """

    name: str
    version: int
    system: str

    @property
    def prompt_id(self) -> str:
        """Name and version, as recordings store them.

        >>> ANSWER_FIRST.prompt_id
        'answer_first@1'
        """
        return f"{self.name}@{self.version}"

    @property
    def pin(self) -> dict[str, str]:
        """The id and the hash, for fingerprints and keys of caches."""
        return {"prompt_id": self.prompt_id, "prompt_sha256": self.sha256}

    @property
    def sha256(self) -> str:
        """Hash of the prompt's texts, 64 hexadecimal digits; it reveals a change of text under an unchanged id."""
        text = json.dumps(self._hashed(), sort_keys=True, ensure_ascii=self._escaped)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    _escaped: ClassVar[bool] = True

    def _hashed(self) -> Any:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePrompt(VersionedPrompt):
    """Templates that turn a question and its passages into text.

    Attributes:
        question: Template of the first part of the user message; `{question}` is replaced.
        passage: Template of each further part; `{number}`, `{title}` and `{text}` are replaced.
    """

    _escaped: ClassVar[bool] = False
    question: str = "Question: {question}"
    passage: str = "\n\nPassage {number}: {title}\n{text}"

    def user(self, question: str, passages: Sequence[Passage] = ()) -> str:
        """Return the user message; the message with k passages is a prefix of the message with k + 1.

        >>> print(ANSWER_FIRST.user("Who wrote it?", [Passage(passage_id="1", title="It", text="King wrote it.")]))
        Question: Who wrote it?
        <BLANKLINE>
        Passage 1: It
        King wrote it.
        """
        # Not one str.replace for each field, which would also expand a "{text}" inside a title.
        parts = [filled(self.question, {"question": question.strip()})]
        for number, passage in enumerate(passages, 1):
            values = {"number": str(number), "title": passage.title.strip(), "text": passage.text.strip()}
            parts.append(filled(self.passage, values))
        return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(EvidencePrompt):
    """Prompt that turns a question and its passages into messages; the instructions (`system`) are the same at every round.

    Attributes:
        name: Name in reports; see `VersionedPrompt`, also for `version` and `system`.
        question: Template of the first part of the user message; `{question}` is replaced.
        passage: Template of each further part; `{number}`, `{title}` and `{text}` are replaced.
        asks_confidence: Whether the reply contains a confidence from 1 to 5.
        prefill: A given start of the reply, such as `Answer:`; empty = the model begins the reply.  The start follows the
            passages as the beginning of the assistant's turn.  It requires an endpoint that continues the last message,
            and an answer position at the start of the generated text.
    """

    asks_confidence: bool = False
    prefill: str = ""

    def messages(self, question: str, passages: Sequence[Passage] = ()) -> tuple[Message, ...]:
        """Return the chat messages: instructions, then the user message, then the prefilled start of the reply, if any.

        Args:
            question: The question.
            passages: Passages in the order in which they were revealed; empty for closed book.
        """
        chat = chat_of(self.system, self.user(question, passages))
        return (*chat, {"role": "assistant", "content": self.prefill}) if self.prefill else chat

    def to_dict(self) -> dict[str, Any]:
        """Return the prompt as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Prompt:
        """Build the prompt from the values of `to_dict`.

        Raises:
            DataError: A field is unknown or missing, or has the wrong type.
        """
        known = {field.name: field for field in fields(Prompt)}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise DataError(f"a prompt has no field {unknown[0]!r}; allowed: {', '.join(known)}")
        for name, field in known.items():
            value = values.get(name, None if field.default is MISSING else field.default)
            if type(value) is not _KINDS[str(field.type)]:
                raise DataError(f"a prompt's {name!r} must be of type {field.type}, got {value!r}")
        return cls(**values)


def chat_of(system: str, user: str) -> tuple[Message, ...]:
    """Return the messages of instructions and one user message."""
    return {"role": "system", "content": system}, {"role": "user", "content": user}


def reminded(messages: Sequence[Message], reminder: str) -> tuple[Message, ...]:
    """Append a reminder to messages, at the end so that a prefix cache serves the rest.

    Without a reminder, the same messages would give the same reply at temperature 0.
    """
    *before, last = messages
    return *before, {**last, "content": f"{last['content']}\n\n{reminder}"}


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return `template` with each `{name}` replaced once; braces in the values and other braces stay as they are."""
    pieces = template.split("{")
    parts = [pieces[0]]
    for piece in pieces[1:]:
        name, brace, rest = piece.partition("}")
        parts.append(values[name] + rest if brace and name in values else "{" + piece)
    return "".join(parts)


ANSWER_FIRST = Prompt(
    name="answer_first",
    version=1,
    system=f"{_TASK} Reply with exactly two lines:\nAnswer: <short phrase>\nConfidence: <1-5>\n{_CONFIDENCE_SCALE}",
    asks_confidence=True,
)
"""The answer on the first line, then the confidence."""

CONFIDENCE_FIRST = Prompt(
    name="confidence_first",
    version=1,
    system=f"{_TASK} Reply with exactly two lines:\nConfidence: <1-5>\nAnswer: <short phrase>\n{_CONFIDENCE_SCALE}",
    asks_confidence=True,
)
"""The confidence before the answer, which makes a 5 less frequent."""

NO_CONFIDENCE = Prompt(
    name="no_confidence",
    version=1,
    system=f"{_TASK} Reply with exactly one line:\nAnswer: <short phrase>",
)
"""The answer alone."""

PREFILLED = Prompt(
    name="prefilled",
    version=1,
    system=f"{_TASK} Reply with exactly one line:\nAnswer: <short phrase>",
    prefill="Answer:",
)
"""The answer alone, after a given marker, so that the last token of the prompt comes right before the answer.

For local models, whose hidden state at that token is that of a model about to answer, and for endpoints that continue
the last message.
"""


STEP_BY_STEP = Prompt(
    name="step_by_step",
    version=1,
    system=(
        f"{_TASK} First reason step by step, in a few sentences. Then end with exactly one line:\nAnswer: <short phrase>"
    ),
)
"""The answer after some reasoning, for samples that vote: they differ in how they reason (self-consistency)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftingPrompt(EvidencePrompt):
    """The tasks of writer and critic, which do not mention the number of rounds; see `Prompt` for the other fields.

    Attributes:
        write: The writer's first task, after the passages.
        draft: Template of the draft, after the passages; `{draft}` is replaced.
        criticise: The critic's task, after the draft.
        critique: Template of the critique, after the draft; `{critique}` is replaced.
        revise: The writer's task, after the critique.
    """

    write: str
    draft: str = "\n\nDraft:\n{draft}"
    criticise: str
    critique: str = "\n\nReview of the draft:\n{critique}"
    revise: str

    def writing(self, question: str, passages: Sequence[Passage] = ()) -> tuple[Message, ...]:
        """Return the messages that ask for the first draft.

        Args:
            question: The question.
            passages: The contexts in a constant order; empty to write from the model's own knowledge.
        """
        return chat_of(self.system, self.user(question, passages) + self.write)

    def criticising(self, question: str, passages: Sequence[Passage], draft: str) -> tuple[Message, ...]:
        """Return the messages that ask for a critique of a draft."""
        return chat_of(self.system, self._drafted(question, passages, draft) + self.criticise)

    def revising(self, question: str, passages: Sequence[Passage], draft: str, critique: str) -> tuple[Message, ...]:
        """Return the messages that ask for the next draft.

        >>> messages = DRAFTING.revising("Who wrote it?", [], "King.", "Give the full name.")
        >>> messages[1]["content"].startswith(DRAFTING.criticising("Who wrote it?", [], "King.")[1]["content"][:35])
        True
        """
        critic_text = self._drafted(question, passages, draft)
        return chat_of(self.system, critic_text + filled(self.critique, {"critique": critique.strip()}) + self.revise)

    def _drafted(self, question: str, passages: Sequence[Passage], draft: str) -> str:
        return self.user(question, passages) + filled(self.draft, {"draft": draft.strip()})


DRAFTING = DraftingPrompt(
    name="drafting",
    version=1,
    system=(
        "You work on the answer to a question. It must be right, complete, and supported by the numbered passages if "
        "there are any."
    ),
    write="\n\nTask: write the answer in a few sentences. Reply with the answer and nothing else.",
    criticise=(
        "\n\nTask: review the draft. If it needs no change, reply with the single word APPROVED. Otherwise reply with "
        "a short list of what is wrong, missing or not supported."
    ),
    revise="\n\nTask: rewrite the draft as the review asks. Reply with the new draft and nothing else.",
)
"""Writer and critic of the drafting loop (after Semantic Early-Stopping, in our words)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextsFirstPrompt(Prompt):
    """A prompt that places the passages before the question; questions without passages have another template.

    The text of a round does not extend that of the previous round, so prefix caches cannot be used.  The whole reply is the
    answer.

    Attributes:
        with_passages: Template of the user message with passages; `{contexts}` and `{question}` are replaced.
    """

    with_passages: str

    def messages(self, question: str, passages: Sequence[Passage] = ()) -> tuple[Message, ...]:
        """Return only the user message if there are no instructions; see `Prompt.messages`."""
        return tuple(message for message in Prompt.messages(self, question, passages) if message["content"])

    def user(self, question: str, passages: Sequence[Passage] = ()) -> str:
        """Return the user message.

        >>> print(CBDR.user("Who wrote it?", [Passage(passage_id="1", title="It", text="King wrote it.")])[-51:])
        Contexts: It
        King wrote it.
        Question: Who wrote it?
        """
        if not passages:
            return filled(self.question, {"question": question.strip()})
        contexts = "\n\n".join(f"{passage.title.strip()}\n{passage.text.strip()}".strip() for passage in passages)
        return filled(self.with_passages, {"contexts": contexts, "question": question.strip()})


CBDR = ContextsFirstPrompt(
    name="cbdr",
    version=1,
    system="",
    question="You need to read the question carefully and answer it based on your own knowledge.\nQuestion: {question}",
    with_passages=(
        "You are a rigorous language model. Please answer the question based on the provided context. If the context does not "
        "support reasoning about the answer, please answer the question based on your own knowledge.\n"
        "Contexts: {contexts}\nQuestion: {question}"
    ),
)
"""The two prompts of CBDR (figure 5): for a question alone, and for one with contexts. The layout of contexts is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunPrompt(Prompt):
    """A prompt whose passages follow the given start of the reply, for models that were trained to read them there."""

    def messages(self, question: str, passages: Sequence[Passage] = ()) -> tuple[Message, ...]:
        r"""Return the question as the user's message, and the start of the reply with the passages.

        >>> SELF_RAG.messages("Who wrote it?", [Passage(passage_id="1", title="It", text="King wrote it.")])[1]["content"]
        '### Response:\n[Retrieval]<paragraph>It\nKing wrote it.</paragraph>'
        """
        asked = self.user(question)
        begun = self.prefill + self.user(question, passages)[len(asked) :]
        return {"role": "user", "content": asked}, {"role": "assistant", "content": begun}


SELF_RAG = BegunPrompt(
    name="self_rag",
    version=1,
    system="",
    question="### Instruction:\n{question}",
    passage="[Retrieval]<paragraph>{title}\n{text}</paragraph>",
    prefill="### Response:\n",
)
"""The format in which Self-RAG's models were trained (Asai et al., 2024), for models without a chat template."""

PROMPTS: Mapping[str, Prompt] = {
    item.name: item for item in (ANSWER_FIRST, CONFIDENCE_FIRST, NO_CONFIDENCE, PREFILLED, STEP_BY_STEP)
}
"""The built-in prompts by name, whose text extends that of the previous round."""

PAPER_PROMPTS: Mapping[str, Prompt] = {item.name: item for item in (CBDR, SELF_RAG)}
"""Prompts of papers by name that have another form."""


def prompt(name: str) -> Prompt:
    """Return a built-in prompt by its name or its `prompt_id`.

    >>> prompt("no_confidence").asks_confidence
    False
    """
    known = {**PROMPTS, **PAPER_PROMPTS}
    for item in known.values():
        if name in (item.name, item.prompt_id):
            return item
    raise NotFoundError(f"unknown prompt {name!r}; choose one of {', '.join(known)}")
