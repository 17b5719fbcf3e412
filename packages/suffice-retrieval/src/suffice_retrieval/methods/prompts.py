"""Prompts with which a model writes a chain of reasoning, for methods that retrieve evidence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.loops.models.prompts import EvidencePrompt, Message, chat_of, filled
from suffice.policy.rounds import Passage

_METADATA = re.compile(r"^# METADATA\b.*\n?", re.MULTILINE)
_EXAMPLES_FILE = "examples-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPrompt(EvidencePrompt):
    """The prompt with which a model continues a chain of reasoning; see `Prompt` for fields that are not listed here.

    Attributes:
        chain: Template for the text written so far, which follows the passages; `{chain}` is replaced by the text.
        asking: Template for FLARE's request for a question, which follows the chain; `{span}` is replaced by the
            uncertain text.
        examples: Solved questions at the start of the user message, few-shot; empty for none.
        source: Origin of the examples, for the recording.
        passages_first: True if the passages come before the question, as in many prompts for text completion.
        continues: True to send the chain as the start of the reply, for endpoints and models that continue the last message.
    """

    chain: str = "\n\nReasoning so far: {chain}"
    asking: str = (
        '\n\nAsk one question about this text whose answer is "{span}". Reply with the question and nothing else.'
    )
    examples: str = ""
    source: str = ""
    passages_first: bool = False
    continues: bool = False

    def _hashed(self) -> Any:
        later = {"examples": "", "source": "", "passages_first": False, "continues": False}
        return {name: value for name, value in asdict(self).items() if name not in later or value != later[name]}

    @property
    def pinned(self) -> dict[str, str]:
        """The id and the hash of the prompt, and the origin of its examples if there are any."""
        return {**self.pin, **({"prompt_source": self.source} if self.source else {})}

    def continuing(self, question: str, passages: Sequence[Passage], chain: str) -> tuple[Message, ...]:
        """Return the messages that ask for the next sentence or step of the chain.

        >>> print(CHAIN_OF_THOUGHT.continuing("Who wrote It?", (), "It is a novel.")[1]["content"])
        Question: Who wrote It?
        <BLANKLINE>
        Reasoning so far: It is a novel.

        Args:
            question: The question.
            passages: The evidence; empty to write from the model's own knowledge.
            chain: The text written so far; empty at the start.
        """
        written = filled(self.chain, {"chain": chain}).rstrip()
        shown = self._shown(question, passages)
        if not self.continues:
            chat = chat_of(self.system, (shown + written).rstrip())
            return chat if self.system or not self.examples else chat[1:]
        system, user = chat_of(self.system, shown)
        begun = {"role": "assistant", "content": written.lstrip()}
        return (system, user, begun) if self.system else (user, begun)

    def questioning(self, question: str, chain: str, span: str) -> tuple[Message, ...]:
        """Return the messages that ask for a question whose answer is a span of the chain."""
        written = self.user(question) + filled(self.chain, {"chain": chain})
        return chat_of("", written + filled(self.asking, {"span": span}))

    def _shown(self, question: str, passages: Sequence[Passage]) -> str:
        """Return the examples, the question and the passages."""
        asked = self.user(question)
        evidence = self.user(question, passages)[len(asked) :]
        return self.examples + (evidence + asked if self.passages_first else asked + evidence)


def read_chain_prompt(path: str | Path, default: ChainPrompt) -> ChainPrompt:
    """Read a prompt with the examples of a paper from a TOML file.

    The keys of the file are the fields of `ChainPrompt`; missing keys are taken from `default`. The key `examples-file`
    names a text file with examples; the text file is in the same folder as the TOML file. The examples are used
    unchanged, except that lines that begin with ``# METADATA`` are removed, since the prompts of IRCoT have such lines.
    Examples need a `source`.

    Args:
        path: The file.
        default: The prompt of the method.

    Raises:
        DataError: The file cannot be read, a key is unknown or of another type, or the examples have no source.
    """
    file = Path(path)
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        examples = data.pop(_EXAMPLES_FILE, None)
        if examples is not None:
            data["examples"] = (file.parent / str(examples)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(
            f"the prompt {str(file)!r} cannot be read: {error}. It is a file in TOML, see docs/how-to/rivals.md"
        ) from None
    kinds = {item.name: type(getattr(default, item.name)) for item in fields(ChainPrompt)}
    values = {str(name).replace("-", "_"): value for name, value in data.items()}
    for name, value in values.items():
        if name not in kinds:
            allowed = ", ".join((*kinds, _EXAMPLES_FILE))
            raise DataError(f"the prompt {str(file)!r} has an unknown key {name!r}; allowed: {allowed}")
        if type(value) is not kinds[name]:
            raise DataError(
                f"the prompt {str(file)!r}: {name} must be of type {kinds[name].__name__}, not {value!r:.80}"
            )
    if values.get("examples"):
        if not values.get("source", "").strip():
            raise DataError(
                f'the prompt {str(file)!r} has examples and does not say whose: add  source = "REPOSITORY, FILE, COMMIT", which '
                "the recording keeps"
            )
        values["examples"] = _separated(values["examples"])
    own = {"name": file.stem, "version": 1, **values}
    return ChainPrompt(**{**asdict(default), **own})


def _separated(examples: str) -> str:
    """Remove metadata lines from examples, and add at the end the blank lines that separate two examples."""
    text = _METADATA.sub("", examples).strip()
    return text + ("\n\n\n" if "\n\n\n" in text else "\n\n")


CHAIN_OF_THOUGHT = ChainPrompt(
    name="chain",
    version=1,
    system=(
        "Answer the question by reasoning in short sentences, each of which states one fact. Use the numbered passages if "
        "there are any; without passages, reason from what you know. Reply with what comes next in the reasoning and "
        "nothing else: the rest of its last sentence if that is unfinished, else one more sentence. When the facts "
        "suffice, reply: So the answer is: <short phrase>."
    ),
)
"""One sentence of a chain of thought at a time, for IRCoT, FLARE and DRAGIN."""

SELF_ASK = ChainPrompt(
    name="self_ask",
    version=1,
    system=(
        "Answer the question by asking simpler questions about it and answering them, one after the other. Use the numbered "
        "passages if there are any; without passages, answer from what you know. The text has this form:\n"
        "Are follow up questions needed here: Yes.\nFollow up: <simple question>\nIntermediate answer: <short answer>\n"
        "Follow up: <next question>\nIntermediate answer: <short answer>\nSo the final answer is: <short phrase>\n"
        "Reply with what comes next, up to and including the next line of 'Follow up:' or 'So the final answer is:'."
    ),
    chain="\n\nAre follow up questions needed here: {chain}",
)
"""Self-Ask's follow-up questions and intermediate answers."""
