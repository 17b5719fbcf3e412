"""Prompts with which a model writes a chain of reasoning, for methods that retrieve evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suffice.loops.models.prompts import EvidencePrompt, Message, chat_of, filled
from suffice.policy.rounds import Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPrompt(EvidencePrompt):
    """The prompt with which a model continues a chain of reasoning; other fields as in `Prompt`.

    Attributes:
        chain: Template of the text written so far, after the passages; `{chain}` is replaced.
        asking: Template of FLARE's request for a question, after the chain; `{span}` is replaced.
    """

    chain: str = "\n\nReasoning so far: {chain}"
    asking: str = (
        '\n\nAsk one question about this text whose answer is "{span}". Reply with the question and nothing else.'
    )

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
        return chat_of(self.system, (self.user(question, passages) + filled(self.chain, {"chain": chain})).rstrip())

    def questioning(self, question: str, chain: str, span: str) -> tuple[Message, ...]:
        """Return the messages that ask for a question whose answer is a span of the chain."""
        written = self.user(question) + filled(self.chain, {"chain": chain})
        return chat_of("", written + filled(self.asking, {"span": span}))


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
