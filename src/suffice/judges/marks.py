"""Judges that mark one draft, alone and as a panel whose marks add up to the information score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.errors import DataError, NotFoundError
from suffice.judges.endpoint import JudgeModel, Said, read_object
from suffice.judges.prompts import MARKS, MarkPrompt, read_mark, schema_of
from suffice.judges.weights import checked_weights, equal_weights
from suffice.metrics import information_score
from suffice.rounds import Cost, Passage, Reply
from suffice.signals import Measurement
from suffice.signals.semantic import JUDGE

__all__ = ["SCORE", "Draft", "Judgement", "MarkJudge", "Panel"]

SCORE = "information_score"
"""The column and signal of a panel's weighted mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a judge may see of one round.

    Attributes:
        question: The question.
        text: The draft; None or white space is no draft.
        contexts: The passages in their order; empty if there are none, or if they are not known.
        reference: The gold answer; None if unknown.
    """

    question: str
    text: str | None
    contexts: tuple[Passage, ...] = ()
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One mark of one draft.

    Attributes:
        mark: In [0, 1]; NaN where undefined.
        note: Why it is undefined; empty otherwise.
        cost: What it cost, with every attempt; from the cache: what it cost originally; nothing where nothing was asked.
        attempts: Replies until one could be read, or none was asked for any more, count.
        from_cache: Whether the cache answered.
    """

    mark: float
    note: str = ""
    cost: Cost = field(default_factory=Cost)
    attempts: int = 0
    from_cache: bool = False


class MarkJudge:
    """Asks a model for one mark of a draft.

    The mark is undefined, with a note, where what it is judged from is missing (nothing is asked then), and where the
    no reply is what was asked for (each call is paid for and kept).

    Args:
        model: Asks, and keeps what was paid for.
        prompt: Which mark, and how it is asked for.
    """

    def __init__(self, model: JudgeModel, prompt: MarkPrompt) -> None:
        self.model, self.prompt = model, prompt

    def __repr__(self) -> str:
        return f"MarkJudge({self.model!r}, {self.prompt.prompt_id!r})"

    def given(self, draft: Draft, *, repeat: int = 0) -> dict[str, Any] | str:
        """Return what the judge sees, which is the key of the cache; or a note on what is missing.

        What is not shown to the judge is not in it: an answer relevancy is asked once for all contexts, a context
        recall once for all drafts.
        """
        text = draft.text if self.prompt.subject == "draft" else draft.reference
        if not (text or "").strip():
            return f"no {self.prompt.subject}"
        if self.prompt.with_contexts and not draft.contexts:
            return "no contexts"
        contexts = draft.contexts if self.prompt.with_contexts else ()
        return {
            "prompt_id": self.prompt.prompt_id,
            "prompt_sha256": self.prompt.sha256,
            "question": draft.question.strip(),
            "contexts": [[passage.title.strip(), passage.text.strip()] for passage in contexts],
            "text": (text or "").strip(),
            "repeat": repeat,
        }

    async def judge(self, draft: Draft, *, repeat: int = 0) -> Judgement:
        """Return the mark.

        Args:
            draft: What is judged.
            repeat: 0 for the mark itself; each higher number asks anew, once, to measure noise.

        Raises:
            ModelError: The endpoint failed.
        """
        given = self.given(draft, repeat=repeat)
        if isinstance(given, str):
            return Judgement(mark=math.nan, note=given)
        contexts = draft.contexts if self.prompt.with_contexts else ()
        messages = self.prompt.messages(draft.question, contexts, given["text"])

        def read(said: Said) -> float:
            return read_mark(self.prompt, read_object(said), len(contexts))

        heard = await self.model.ask(given, messages, self.prompt.name, schema_of(self.prompt.shape), read)
        return Judgement(
            mark=math.nan if heard.value is None else heard.value,
            note=heard.note,
            cost=heard.cost,
            attempts=heard.attempts,
            from_cache=heard.from_cache,
        )


class Panel:
    """Several marks of one draft, and their weighted mean: an `Enricher` for live loops, and what recordings use.

    All calls are booked under one component, because a rule that reads the information score pays for all its marks:
    `judge:information_score`, or `judge:MARK` for a panel of one mark, which has no score.

    Args:
        model: Asks, and keeps what was paid for.
        marks: Which marks: names in `MARKS`, or prompts of one's own.
        weights: On the simplex, by mark; default: equal.
        references: Gold answers by question, for the marks that need one.  A live policy that reads such a mark
            decides with gold answers: for evaluation only.

    Raises:
        DataError: No mark, an unknown one, one twice, or weights that do not fit.
    """

    def __init__(
        self,
        model: JudgeModel,
        marks: Sequence[str | MarkPrompt] = tuple(MARKS),
        *,
        weights: Mapping[str, float] | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        unknown = [mark for mark in marks if isinstance(mark, str) and mark not in MARKS]
        if unknown:
            raise NotFoundError(f"there is no mark {unknown[0]!r}; there are: {', '.join(MARKS)}")
        prompts = [MARKS[mark] if isinstance(mark, str) else mark for mark in marks]
        self.marks = tuple(prompt.name for prompt in prompts)
        if not prompts or len(set(self.marks)) != len(prompts) or SCORE in self.marks:
            raise DataError(f"a panel needs at least one mark, each once, none called {SCORE!r}; got {self.marks!r}")
        self.model = model
        self.judges = {prompt.name: MarkJudge(model, prompt) for prompt in prompts}
        self.weights = checked_weights(equal_weights(self.marks) if weights is None else weights, self.marks)
        self.references = dict(references or {})

    def __repr__(self) -> str:
        return f"Panel({self.model!r}, {self.marks!r})"

    @property
    def has_score(self) -> bool:
        """Whether there is an information score: of more than one mark."""
        return len(self.marks) > 1

    @property
    def name(self) -> str:
        """The component that its costs are booked under."""
        return JUDGE if self.has_score else f"judge:{self.marks[0]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """What it measures: the marks, and the score if there is one."""
        return (*self.marks, SCORE) if self.has_score else self.marks

    @property
    def capabilities(self) -> frozenset[str]:
        """`judge`, and `information_score` where there is one."""
        return frozenset({"judge", SCORE} if self.has_score else {"judge"})

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes the marks, JSON-ready and without secrets."""
        prompts = {
            name: {"prompt_id": judge.prompt.prompt_id, "prompt_sha256": judge.prompt.sha256}
            for name, judge in self.judges.items()
        }
        return {**self.model.fingerprint(), "prompts": prompts, "weights": dict(self.weights)}

    def scored(self, marks: Mapping[str, float]) -> dict[str, float]:
        """Return the marks with the information score beside them, if there is one."""
        return {**marks, SCORE: information_score(marks, self.weights)} if self.has_score else dict(marks)

    async def measure(self, question: str, passages: Sequence[Passage], reply: Reply) -> Measurement:
        """Return the marks of one round, and what they cost; answers from the cache carry their original cost.

        Raises:
            ModelError: The endpoint failed.
        """
        draft = Draft(
            question=question, text=reply.answer, contexts=tuple(passages), reference=self.references.get(question)
        )
        cost, marks = Cost(), {}
        for name, judge in self.judges.items():
            found = await judge.judge(draft)
            marks[name] = found.mark
            cost = cost + found.cost
        return Measurement(signals=self.scored(marks), costs={self.name: cost})
