"""One round of an answer loop, and many rounds as arrays.

`Round` is what a loop observes; `Rounds` is the array view that rules read: shape ``(n_rounds,)`` for one live
question, ``(n_questions, n_rounds)`` for a recording.  The same code decides in both cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pkgutil import resolve_name
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from suffice.common.json_text import check_types, number_from_json, number_to_json
from suffice.common.results import Result
from suffice.common.tables import Table, facts_table
from suffice.errors import SchemaError, UnknownSignalError, did_you_mean
from suffice.policy.round_parts import (
    ABSENT_COSTS,
    COST_KINDS,
    PRICED_KINDS,
    WRITTEN_KINDS,
    Cost,
    Passage,
    Token,
    added_costs,
    total_cost,
)

__all__ = [
    "ABSENT_COSTS",
    "COST_KINDS",
    "PRICED_KINDS",
    "WRITTEN_KINDS",
    "Cost",
    "Decision",
    "End",
    "Floats",
    "Mask",
    "Passage",
    "Positions",
    "Provider",
    "Reason",
    "Reply",
    "Round",
    "Rounds",
    "Token",
    "added_costs",
    "read_responses_by",
    "total_cost",
]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

Reason = Literal["rule", "max_rounds", "exhausted", "failed", "cancelled"]
"""Why a live question stopped."""

End = Literal["max_rounds", "exhausted", "rule", "failed"]
"""Why a recorded trajectory has no further round; only `rule` is censored."""

Provider = Literal["openai", "anthropic"]
"""Whose interface a response has."""

_readers: list[str] = []


def read_responses_by(reader: str) -> None:
    """Register the function with which `Round.from_response` reads responses; the last registered one is used.

    Registration is needed because the modules of model interfaces import this module, so this module cannot import them.

    Args:
        reader: A function of a response and of the keywords `position`, `seconds` and `provider`, which returns a `Reply`;
            written as ``module:function``, and imported when a response is read.
    """
    _readers.append(reader)


_WHERE_KNOWN = ("thinking", "reply_model", "system_fingerprint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A component's reply in one round; the component is a model, a gate, a critic, a judge or an embedder.

    Attributes:
        answer: The answer extracted from the text; None if the text has no answer.
        text: The generated text, unchanged.
        tokens: Generated tokens with log-probabilities; None if the endpoint gives none.
        answer_tokens: The run of `tokens` that spells the answer, from its first token that is not white space; None if
            it cannot be located or there are no tokens.
        signals: Signals that the model measured itself (such as the span reader's margin), by name.
        costs: Costs by component.
        finish_reason: The reason for the end of the reply, in the endpoint's words.
        reply_model: The model named in the endpoint's reply; None if it names none.
        system_fingerprint: The endpoint's fingerprint of its configuration; None if it gives none.
        from_cache: Whether a response cache answered; the costs are then those of the original call.
        token_ids: The ids of the generated tokens, if a chain of thought is continued from them.
        embedding: The answer's embedding, shape ``(width,)``; None if it was not embedded. Not compared by ``==``.
    """

    answer: str | None = None
    text: str = ""
    tokens: tuple[Token, ...] | None = None
    answer_tokens: tuple[Token, ...] | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    finish_reason: str | None = None
    reply_model: str | None = None
    system_fingerprint: str | None = None
    from_cache: bool = False
    token_ids: tuple[int, ...] | None = None
    embedding: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a loop: round 0 is the model alone, round r >= 1 follows the r-th piece of evidence or draft.

    Attributes:
        index: The round, 0..R.
        answer: The answer or draft; None if the round produced none.
        text: The generated text.
        answer_tokens: Tokens of the answer with log-probabilities; None if unavailable.
        passages: All evidence up to this round in the order in which it was revealed; the newest passage is last.
        pool_scores: The retriever's scores of all candidates of the question, best first.
        signals: Signals measured by the host or the model, by name. A measured signal takes precedence over a computed one.
        costs: Costs of the round by component (`generator`, `retrieval`, `judge:NAME`, ...).
        finish_reason: The reason for the end of the reply, in the endpoint's words.
        feedback: A critic's reply to the draft.
        thinking: The model's thinking since the previous round, if rounds are checkpoints of a chain of thought.
        thinking_ids: The token ids of `thinking`; None if the chain is continued as text.
        reply_model: The model named in the endpoint's reply; None if it names none.
        system_fingerprint: The endpoint's fingerprint of its configuration; None if it gives none.
        embedding: The answer's embedding, shape ``(width,)``; None if it was not embedded. Not compared by ``==``.
    """

    index: int
    answer: str | None = None
    text: str = ""
    answer_tokens: tuple[Token, ...] | None = None
    passages: tuple[Passage, ...] = ()
    pool_scores: tuple[float, ...] = ()
    signals: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    finish_reason: str | None = None
    feedback: str | None = None
    thinking: str | None = None
    thinking_ids: tuple[int, ...] | None = None
    reply_model: str | None = None
    system_fingerprint: str | None = None
    embedding: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, index: int, reply: Reply, **others: Any) -> Round:
        """Build a round from a reply; the fields in `others` replace those of the reply.

        >>> Round.of(1, Reply(answer="Oslo"), feedback="Say where.").answer
        'Oslo'
        """
        shared = {item.name: getattr(reply, item.name) for item in fields(cls) if hasattr(reply, item.name)}
        return cls(index=index, **{**shared, **others})

    @classmethod
    def from_response(
        cls,
        response: Any,
        *,
        index: int = 1,
        position: Any = None,
        seconds: float = math.nan,
        provider: Provider | None = None,
        **others: Any,
    ) -> Round:
        """Build a round from a response: its answer, tokens with log-probabilities, usage, and finish reason.

        >>> Round.from_response({"choices": [{"message": {"content": "Oslo"}}]}, index=2).answer
        'Oslo'

        Args:
            response: A chat completion, completion or response of OpenAI's client, a message of Anthropic's client, or
                a reply of LiteLLM, each as an object or as a dict of its JSON. Or an assistant's message with `role`
                and `content`, or plain text.  A response that only calls tools has no answer. Nor has a response that was
                cut off by `length`, a filter or an error.
            index: The round.
            position: The position of the answer in the text, an `AnswerPosition`; None = the whole text after any
                thinking block.
            seconds: Duration of the call, seconds; NaN if unknown.
            provider: The provider whose interface the response must have; None = any of these.
            **others: Other fields, which replace those of the response.

        Raises:
            DataError: The response has none of these forms, reports a failure, or has several choices.
        """
        reply = resolve_name(_readers[-1])(response, position=position, seconds=seconds, provider=provider)
        return cls.of(index, reply, **others)

    @classmethod
    def from_openai(cls, response: Any, **arguments: Any) -> Round:
        """Build a round from a chat completion, completion or response of OpenAI's interface; see `from_response`."""
        return cls.from_response(response, provider="openai", **arguments)

    @classmethod
    def from_anthropic(cls, response: Any, **arguments: Any) -> Round:
        """Build a round from a message of Anthropic's interface; see `from_response`."""
        return cls.from_response(response, provider="anthropic", **arguments)

    def to_dict(self) -> dict[str, Any]:
        """Return the round as JSON-ready values, which `from_dict` reads.

        An undefined number becomes None. An embedding from which no distance can be computed is left out.
        """
        vector = None if self.embedding is None else np.asarray(self.embedding, dtype=np.float64)
        return {
            "index": int(self.index),
            "answer": self.answer,
            "text": self.text,
            "answer_tokens": None if self.answer_tokens is None else [token.to_list() for token in self.answer_tokens],
            "passages": [
                [item.passage_id, item.title, item.text, number_to_json(item.score)] for item in self.passages
            ],
            "pool_scores": [number_to_json(score) for score in self.pool_scores],
            "signals": {name: number_to_json(value) for name, value in self.signals.items()},
            "costs": {component: cost.to_dict() for component, cost in self.costs.items()},
            "finish_reason": self.finish_reason,
            "feedback": self.feedback,
            **{name: text for name in _WHERE_KNOWN if (text := getattr(self, name)) is not None},
            **({} if self.thinking_ids is None else {"thinking_ids": list(self.thinking_ids)}),
            "embedding": vector.tolist()
            if vector is not None and vector.ndim == 1 and np.isfinite(vector).all()
            else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Round:
        """Return the round that `to_dict` wrote.

        >>> Round.from_dict(Round(index=2, answer="Oslo").to_dict()).answer
        'Oslo'

        Raises:
            SchemaError: The values are not those of a round.
        """
        try:
            check_types(cls, data)
            tokens, vector, ids = data["answer_tokens"], data["embedding"], data.get("thinking_ids")
            return cls(
                index=data["index"],
                answer=data["answer"],
                text=data["text"],
                answer_tokens=None if tokens is None else tuple(map(Token.from_list, tokens)),
                passages=tuple(
                    Passage(passage_id=name, title=title, text=text, score=number_from_json(score))
                    for name, title, text, score in data["passages"]
                ),
                pool_scores=tuple(map(number_from_json, data["pool_scores"])),
                signals={name: number_from_json(value) for name, value in data["signals"].items()},
                costs={component: Cost.from_dict(cost) for component, cost in data["costs"].items()},
                finish_reason=data["finish_reason"],
                feedback=data["feedback"],
                **{name: data.get(name) for name in _WHERE_KNOWN},
                thinking_ids=None if ids is None else tuple(map(int, ids)),
                embedding=None if vector is None else _as_vector(vector),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SchemaError(f"this is not a round as `Round.to_dict` writes it: {error!r}") from None


def _as_vector(values: Any) -> npt.NDArray[np.float32]:
    """Return an embedding in its original precision."""
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise TypeError(f"embedding is {values!r:.80}; allowed: null, a list of numbers")
    wide = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    return narrow if (narrow == wide).all() else wide  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Result):
    """The decision after one observed round.

    Attributes:
        stop: Whether the loop ends here.
        stop_round: The round at which the loop ends; None while it continues.
        answer_round: The round whose answer is returned; None while the loop continues, or if no round has an answer.
        answer: The returned answer; None if `answer_round` is None.
        reason: The reason for the stop; None while the loop continues.
        fired: The text of the rule that fired; for ``|`` and cascades, the text of the member that fired. None unless
            `reason` is `rule`.
        signals: The signals that the policy read at this round; NaN where undefined.
    """

    stop: bool
    stop_round: int | None = None
    answer_round: int | None = None
    answer: str | None = None
    reason: Reason | None = None
    fired: str | None = None
    signals: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Return the decision that `to_dict` wrote.

        Raises:
            SchemaError: The values are not those of a decision.
        """
        try:
            check_types(cls, data)
            return cls(**{**data, "signals": {k: number_from_json(v) for k, v in data["signals"].items()}})
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SchemaError(f"this is not a decision as `Decision.to_dict` writes it: {error!r}") from None

    def tables(self) -> list[Table]:
        """Return the decision as one table."""
        read = ", ".join(f"{name} = {value:.4g}" for name, value in self.signals.items())
        facts = {name: getattr(self, name) for name in ("stop_round", "answer", "answer_round", "reason", "fired")}
        return [facts_table("Decision", {"stop": "yes" if self.stop else "no", **facts, "signals": read})]


class Rounds:
    """Rounds as columns, which rules and selectors read.

    Args:
        columns: Columns by signal name, each of shape ``(..., n_rounds)``; NaN = undefined.
        index: The round of each entry of the last axis, shape ``(n_rounds,)``, consecutive integers.
        seen: Mask of the rounds that exist, shape ``(..., n_rounds)``: False for rounds after the end of a question's
            trajectory.
        answers: The answers, shape ``(..., n_rounds)``, None where missing; only selectors need them. Or a function
            that returns the answers and is called when they are first read.
        normalizer: The normalizer that compares answers; None = `suffice.policy.metrics.answer_key`.
        answered: Mask of the rounds with an answer, shape of `seen`; None = computed when first needed.
    """

    __slots__ = ("_answers", "answered", "columns", "index", "normalizer", "seen")

    def __init__(
        self,
        columns: Mapping[str, Floats],
        index: npt.NDArray[np.int64],
        seen: Mask,
        answers: npt.NDArray[np.object_] | Callable[[], npt.NDArray[np.object_]] | None = None,
        normalizer: Callable[[str], str | None] | None = None,
        *,
        answered: Mask | None = None,
    ) -> None:
        self.columns = columns
        self.index = index
        self.seen = seen
        self._answers = answers
        self.normalizer = normalizer
        self.answered = answered  # also set by `suffice.policy.rules.selectors.answered`, which reads every text

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of every column."""
        return self.seen.shape

    @property
    def answers(self) -> npt.NDArray[np.object_] | None:
        """The answers, in the shape of every column, with None where an answer is missing; None without answers."""
        if callable(self._answers):
            self._answers = self._answers()
        return self._answers

    def taken(self, take: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], index: npt.NDArray[np.int64]) -> Rounds:
        """Return the rounds that `take` selects.

        Args:
            take: A function that takes an array with the shape of these rounds and returns the selected part.
            index: The round of each selected entry of the last axis.
        """
        return Rounds(
            {name: take(column) for name, column in self.columns.items()},
            index,
            take(self.seen),
            None if self._answers is None else lambda: take(self.answers),  # type: ignore[arg-type]
            self.normalizer,
            answered=None if self.answered is None else take(self.answered),
        )

    def derived(self, columns: Mapping[str, Floats], normalizer: Callable[[str], str | None] | None = None) -> Rounds:
        """Return these rounds with `columns` in place of their own columns.

        In the result, `normalizer` compares answers; None = `suffice.policy.metrics.answer_key`.
        """
        return Rounds(columns, self.index, self.seen, self._answers, normalizer, answered=self.answered)

    def __getitem__(self, name: str) -> Floats:
        """Return the column of a signal, shape ``(..., n_rounds)``, NaN where undefined.

        Raises:
            UnknownSignalError: There is no such column.
        """
        try:
            return self.columns[name]
        except KeyError:
            raise UnknownSignalError(
                f"signal {name!r} is not among the columns of these rounds.{did_you_mean(name, self.columns)} There are: "
                f"{', '.join(sorted(self.columns)) or 'none'}. Record or import it, or use another rule."
            ) from None

    def __len__(self) -> int:
        return int(self.seen.shape[-1])

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Sequence[Any] | Floats], *, start: int = 1, answers: Sequence[Any] | None = None
    ) -> Rounds:
        """Build `Rounds` from plain sequences, to call `Rule.fires` directly.

        >>> rounds = Rounds.from_columns({"p_correct": [0.3, 0.81, 0.8]})
        >>> rounds.shape, rounds["round"].tolist()
        ((3,), [1.0, 2.0, 3.0])

        Args:
            columns: At least one column; all of one shape ``(..., n_rounds)``.
            start: The round of the first column entry.
            answers: The answers, in the shape of a column.
        """
        arrays = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        shape = next(iter(arrays.values())).shape
        index = np.arange(start, start + shape[-1], dtype=np.int64)
        arrays.setdefault("round", np.broadcast_to(index.astype(np.float64), shape))
        packed = None
        if answers is not None:
            packed = np.empty(shape, dtype=object)
            packed[...] = answers
        return cls(arrays, index, np.ones(shape, dtype=np.bool_), packed)
