"""Compare two drafts in both orders, because judges tend to prefer one position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from suffice.errors import DataError
from suffice.loops.judges.endpoint import JudgeModel, read_object
from suffice.loops.judges.prompts import BETTER_OF_TWO, PairPrompt, read_winner, schema_of
from suffice.policy.rounds import Cost, Passage

PairVerdict = Literal["first", "second", "tie", "order_dependent", "undefined"]
"""`first` and `second`: in both orders; `tie`: in both orders; `order_dependent`: the orders disagree; `undefined`: a
reply could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verdict on two drafts, combined from both orders.

    Attributes:
        verdict: The combined verdict.
        cost: Cost of both calls.
        note: The reason why the verdict is undefined; empty otherwise.
    """

    verdict: PairVerdict
    cost: Cost = field(default_factory=Cost)
    note: str = ""


class PairwiseJudge:
    """Asks a judge twice which of two drafts is better; each draft is draft A in one of the requests.

    Args:
        model: Sends requests and stores the replies.
        prompt: The comparing prompt.
    """

    def __init__(self, model: JudgeModel, *, prompt: PairPrompt = BETTER_OF_TWO) -> None:
        self.model, self.prompt = model, prompt

    def __repr__(self) -> str:
        return f"PairwiseJudge({self.model!r}, {self.prompt.prompt_id!r})"

    async def compare(self, question: str, first: str, second: str, contexts: Sequence[Passage] = ()) -> Comparison:
        """Return the verdict on two drafts; equal drafts are a tie without a call.

        Raises:
            DataError: A draft is empty.
            ModelError: The endpoint failed in at least one of the two requests; a reply that arrived is stored.
        """
        first, second = first.strip(), second.strip()
        if not first or not second:
            raise DataError("cannot compare drafts: one of them is empty")
        if first == second:
            return Comparison(verdict="tie")
        cost, winners, notes = Cost(), [], []
        for a, b in ((first, second), (second, first)):
            inputs = {
                **self.prompt.pin,
                "question": question.strip(),
                "contexts": [[passage.title.strip(), passage.text.strip()] for passage in contexts],
                "drafts": [a, b],
            }
            messages = self.prompt.messages(question, contexts, a, b)
            outcome = await self.model.ask(
                inputs, messages, self.prompt.name, schema_of("winner"), lambda reply: read_winner(read_object(reply))
            )
            cost = cost + outcome.cost
            if outcome.value is None:
                notes.append(outcome.note)
            else:
                winners.append({"A": a, "B": b, "tie": None}[outcome.value])
        if notes:
            return Comparison(verdict="undefined", cost=cost, note=notes[0])
        if winners[0] != winners[1]:
            return Comparison(verdict="order_dependent", cost=cost)
        verdict: PairVerdict = "tie" if winners[0] is None else "first" if winners[0] == first else "second"
        return Comparison(verdict=verdict, cost=cost)
