"""Judges that mark one draft, alone or as a panel with the weighted mean of its marks, the information score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.errors import DataError, NotFoundError
from suffice.loops.judges.endpoint import JudgeModel, JudgeReply, read_object
from suffice.loops.judges.prompts import MARKS, VERDICTS, MarkPrompt, read_mark, schema_of
from suffice.loops.judges.weights import checked_weights, equal_weights
from suffice.policy.metrics import information_score
from suffice.policy.rounds import Cost, Passage, Reply, Round
from suffice.policy.signals.semantic import JUDGE

SCORE = "information_score"
"""The column and signal of a panel's weighted mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The content of one round, as a judge sees it.

    Attributes:
        question: The question.
        text: The draft; None or white space if there is none.
        contexts: The passages in order; empty if there are none or they are unknown.
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
        mark: Mark in [0, 1]; NaN if undefined.
        note: The reason why it is undefined; empty otherwise.
        cost: Cost of all attempts; from the cache: the original cost; zero if no request was made.
        attempts: Number of replies until one could be read or the attempts were used up.
        from_cache: Whether all replies came from the cache.
    """

    mark: float
    note: str = ""
    cost: Cost = field(default_factory=Cost)
    attempts: int = 0
    from_cache: bool = False


class MarkJudge:
    """Asks a model for one mark of a draft.

    The mark is undefined, with a note, if its inputs are missing (no request is made) or if no reply can be read (each
    call is paid for and stored).

    Args:
        model: Sends requests and stores the replies.
        prompt: The mark and its prompt.
    """

    def __init__(self, model: JudgeModel, prompt: MarkPrompt) -> None:
        self.model, self.prompt = model, prompt

    def __repr__(self) -> str:
        return f"MarkJudge({self.model!r}, {self.prompt.prompt_id!r})"

    def inputs(self, draft: Draft, *, repeat: int = 0) -> dict[str, Any] | str:
        """Return the judge's inputs, which are the key of the cache, or a note on missing ones.

        They contain only what the judge is shown, so that answer relevancy is judged once for all contexts, and context recall
        once for all drafts.
        """
        text = {"draft": draft.text, "reference": draft.reference, "contexts": ""}[self.prompt.subject]
        if self.prompt.subject != "contexts" and not (text or "").strip():
            return f"no {self.prompt.subject}"
        if self.prompt.with_contexts and not draft.contexts:
            return "no contexts"
        contexts = draft.contexts if self.prompt.with_contexts else ()
        return {
            **self.prompt.pin,
            "question": draft.question.strip(),
            "contexts": [[passage.title.strip(), passage.text.strip()] for passage in contexts],
            "text": (text or "").strip(),
            "repeat": repeat,
        }

    async def judge(self, draft: Draft, *, repeat: int = 0) -> Judgement:
        """Return the mark of a draft.

        Args:
            draft: The draft to judge.
            repeat: 0 for the mark itself; each higher number is another judgement for measuring noise.

        Raises:
            ModelError: The endpoint failed.
        """
        inputs = self.inputs(draft, repeat=repeat)
        if isinstance(inputs, str):
            return Judgement(mark=math.nan, note=inputs)
        contexts = draft.contexts if self.prompt.with_contexts else ()
        messages = self.prompt.messages(draft.question, contexts, inputs["text"])

        def read(reply: JudgeReply) -> float:
            return read_mark(self.prompt, read_object(reply), len(contexts))

        outcome = await self.model.ask(inputs, messages, self.prompt.name, schema_of(self.prompt.shape), read)
        return Judgement(
            mark=math.nan if outcome.value is None else outcome.value,
            note=outcome.note,
            cost=outcome.cost,
            attempts=outcome.attempts,
            from_cache=outcome.from_cache,
        )


class Panel:
    """Several marks of one draft and their weighted mean, for recordings and, as an `Enricher`, for live loops.

    All calls are charged to one component, because a rule that reads the information score pays for all its marks:
    `judge:information_score`, or `judge:MARK` for a panel of one mark, which has no score.

    Args:
        model: Sends requests and stores the replies.
        marks: Names in `MARKS`, or your own prompts; or one name in `VERDICTS` alone.
        weights: Weights by mark, with sum 1; default: equal.
        references: Gold answers by question, for marks that need one.  A live policy that reads such a mark decides
            with gold answers: use it for evaluation only.

    Raises:
        DataError: Marks are missing, unknown or repeated, or the weights do not match them.
    """

    def __init__(
        self,
        model: JudgeModel,
        marks: Sequence[str | MarkPrompt] = tuple(MARKS),
        *,
        weights: Mapping[str, float] | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        known = {**MARKS, **VERDICTS}
        unknown = [mark for mark in marks if isinstance(mark, str) and mark not in known]
        if unknown:
            raise NotFoundError(f"unknown mark {unknown[0]!r}; allowed: {', '.join(known)}")
        prompts = [known[mark] if isinstance(mark, str) else mark for mark in marks]
        verdicts = [prompt.name for prompt in prompts if prompt.subject == "contexts"]
        if verdicts and len(prompts) > 1:
            raise DataError(
                f"{verdicts[0]} is a verdict on the evidence and no mark of a draft, so it has no part in a score: judge it alone "
                f"(--set marks={verdicts[0]}), and the other marks in another run"
            )
        self.marks = tuple(prompt.name for prompt in prompts)
        if not prompts or len(set(self.marks)) != len(prompts) or SCORE in self.marks:
            raise DataError(
                f"a panel needs at least one mark, without repeats or the name {SCORE!r}; got {self.marks!r}"
            )
        self.model = model
        self.judges = {prompt.name: MarkJudge(model, prompt) for prompt in prompts}
        self.weights = checked_weights(equal_weights(self.marks) if weights is None else weights, self.marks)
        self.references = dict(references or {})

    def __repr__(self) -> str:
        return f"Panel({self.model!r}, {self.marks!r})"

    @property
    def has_score(self) -> bool:
        """True if there is an information score, i.e. more than one mark."""
        return len(self.marks) > 1

    @property
    def name(self) -> str:
        """The component to which its costs are charged."""
        return JUDGE if self.has_score else f"judge:{self.marks[0]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns: the marks, and the score if there is one."""
        return (*self.marks, SCORE) if self.has_score else self.marks

    @property
    def capabilities(self) -> frozenset[str]:
        """`judge`, and `information_score` if there is one; of a verdict on the evidence `sufficiency`."""
        if self.marks[0] in VERDICTS:
            return frozenset({"sufficiency"})
        return frozenset({"judge", SCORE} if self.has_score else {"judge"})

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect the marks, JSON-ready and without secrets."""
        prompts = {name: judge.prompt.pin for name, judge in self.judges.items()}
        return {**self.model.fingerprint(), "prompts": prompts, "weights": dict(self.weights)}

    def scored(self, marks: Mapping[str, float]) -> dict[str, float]:
        """Return the marks with the information score, if there is one."""
        return {**marks, SCORE: information_score(marks, self.weights)} if self.has_score else dict(marks)

    async def measure(self, question: str, observed: Round) -> Reply:
        """Return the marks of one round with their cost; answers from the cache have their original cost.

        Raises:
            ModelError: The endpoint failed.
        """
        draft = Draft(
            question=question, text=observed.answer, contexts=observed.passages, reference=self.references.get(question)
        )
        cost, marks = Cost(), {}
        for name, judge in self.judges.items():
            judgement = await judge.judge(draft)
            marks[name] = judgement.mark
            cost = cost + judgement.cost
        return Reply(signals=self.scored(marks), costs={self.name: cost})
