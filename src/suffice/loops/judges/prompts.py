"""Prompts of judges as data: four marks of a draft, and the comparison of two drafts.

The definitions follow the ideas of RAGAS (Es et al., 2023) in this library's own words and formats.  Prompts begin with
question and passages and end with the text to judge, so that with a prefix cache only the drafts cost anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

from suffice.loops.judges.endpoint import UnreadableError
from suffice.loops.models import Prompt
from suffice.loops.models.prompts import Message, VersionedPrompt, chat_of
from suffice.policy.rounds import Passage

_TOP = 4


def _object_schema(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _list_of(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_YES_NO = {"type": "boolean"}
_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "statements": _object_schema(statements=_list_of(_object_schema(statement={"type": "string"}, supported=_YES_NO))),
    "passages": _object_schema(passages=_list_of(_object_schema(number={"type": "integer"}, useful=_YES_NO))),
    "scale": _object_schema(reason={"type": "string"}, mark={"type": "integer", "enum": list(range(_TOP + 1))}),
    "verdict": _object_schema(needed={"type": "string"}, found={"type": "string"}, sufficient=_YES_NO),
    "winner": _object_schema(reason={"type": "string"}, better={"type": "string", "enum": ["A", "B", "tie"]}),
}
_EXAMPLES: Mapping[str, str] = {
    "statements": '{"statements": [{"statement": "...", "supported": true or false}, ...]}',
    "passages": '{"passages": [{"number": 1, "useful": true or false}, ...]}',
    "scale": '{"reason": "...", "mark": 0, 1, 2, 3 or 4}',
    "verdict": '{"needed": "...", "found": "...", "sufficient": true or false}',
    "winner": '{"reason": "...", "better": "A", "B" or "tie"}',
}


def schema_of(shape: str) -> dict[str, Any]:
    """Return the JSON schema of one form of reply: `statements`, `passages`, `scale`, `verdict` or `winner`."""
    return _SCHEMAS[shape]


def _messages(system: str, shape: str, question: str, passages: Sequence[Passage], rest: str) -> tuple[Message, ...]:
    system = f"{system}\nReply with one JSON object and nothing else:\n{_EXAMPLES[shape]}"
    user = Prompt(name="judge", version=1, system=system).user(question, passages) + rest
    return chat_of(system, user)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPrompt(VersionedPrompt):
    """The prompt for one mark, and the form of the reply.

    Attributes:
        name: Name of the mark, which is a column of recordings and a signal of live loops.
        version: Increased with every change of text or shape.
        system: The instructions.
        shape: `statements` (the mark is the share of supported statements), `passages` (average precision over their
            order), `scale` (0 to 4, divided by 4) or `verdict` (1 for yes).
        subject: The text to judge: the `draft`, the `reference` (the gold answer, which does not depend on drafts), or the
            `contexts` alone.
        with_contexts: Whether the judge sees the passages.  If so, the mark of a draft without passages is undefined.
        rest: Template of the last part of the user message; `{text}` is replaced by the subject.
    """

    shape: Literal["statements", "passages", "scale", "verdict"]
    subject: Literal["draft", "reference", "contexts"] = "draft"
    with_contexts: bool = True
    rest: str = "\n\nDraft: {text}"

    def _hashed(self) -> Any:
        return [asdict(self), _SCHEMAS[self.shape], _EXAMPLES[self.shape]]

    def messages(self, question: str, passages: Sequence[Passage], text: str) -> tuple[Message, ...]:
        """Return the chat messages that ask for the mark of a text (a draft or a reference), given the passages."""
        rest = self.rest.replace("{text}", text.strip())
        return _messages(self.system, self.shape, question, passages, rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPrompt(VersionedPrompt):
    """The prompt that asks for the better of two drafts; see `MarkPrompt` for the fields."""

    def _hashed(self) -> Any:
        return [asdict(self), _SCHEMAS["winner"], _EXAMPLES["winner"]]

    def messages(self, question: str, passages: Sequence[Passage], a: str, b: str) -> tuple[Message, ...]:
        """Return the chat messages that show one draft as A, the other as B."""
        rest = f"\n\nDraft A: {a.strip()}\n\nDraft B: {b.strip()}"
        return _messages(self.system, "winner", question, passages, rest)


FAITHFULNESS = MarkPrompt(
    name="faithfulness",
    version=1,
    system=(
        "You check a draft answer against the numbered passages. Split the draft into short statements that can each "
        "be true or false by themselves. For each statement say whether the passages, taken together, support it. Do "
        "not use what you know besides."
    ),
    shape="statements",
)
"""The share of the draft's statements that the passages support."""

ANSWER_RELEVANCY = MarkPrompt(
    name="answer_relevancy",
    version=1,
    system=(
        "You judge whether a draft answers the question that was asked; whether it is true does not matter here.\n"
        "0 = it does not address the question, or evades it\n"
        "1 = it is about the subject and answers another question\n"
        "2 = it answers a part of the question\n"
        "3 = it answers the question, with much that was not asked for\n"
        "4 = it answers the question, completely and to the point"
    ),
    shape="scale",
    with_contexts=False,
)
"""Mark for how completely and closely the draft answers the question, from the question and the draft alone."""

CONTEXT_PRECISION = MarkPrompt(
    name="context_precision",
    version=1,
    system=(
        "You judge passages. For each numbered passage say whether it was useful for arriving at the draft answer to "
        "the question. Give one verdict for every passage, by its number."
    ),
    shape="passages",
)
"""Mark for useful passages that come before useless ones: average precision over the passages in order."""

CONTEXT_RECALL = MarkPrompt(
    name="context_recall",
    version=1,
    system=(
        "You check what passages cover. Split the reference answer to the question into short statements that can each "
        "be true or false by themselves. For each statement say whether the numbered passages support it. Do not use "
        "what you know besides."
    ),
    shape="statements",
    subject="reference",
    rest="\n\nReference answer: {text}",
)
"""The share of the gold answer's statements that the passages support; undefined without a gold answer."""

CONTEXT_SUFFICIENT = MarkPrompt(
    name="context_sufficient",
    version=1,
    system=(
        "You decide whether numbered passages are sufficient to answer a question. They are if everything that a "
        "definitive answer needs follows from them, taken together; they need not be true. They are not if something is "
        "missing, undecided or contradictory, even if you know the answer besides.\n"
        "First say what an answer needs: the parts of the question, each step of its reasoning, and what it assumes, such as "
        "a date. Then say, for each, what the passages give. Then decide.\n"
        "Example. Passages: [1] Ann: Ann is the mother of Ben. [2] Ben: Ben was born in Oslo. "
        "Question: In which country was Ann's child born?\n"
        '{"needed": "Ann\'s child; where the child was born; the country of that place", "found": "Ben is Ann\'s child; Ben '
        'was born in Oslo; that Oslo is in Norway is common knowledge", "sufficient": true}\n'
        'Had [2] been about another Ben: {"needed": "the same", "found": "Ben is Ann\'s child; nothing on his birth", '
        '"sufficient": false}'
    ),
    shape="verdict",
    subject="contexts",
    rest="",
)
"""An autorater's verdict whether the passages suffice to answer the question (Joren et al., 2025, section 3.2): 1 or 0.

It follows the published prompt's structure: what the question needs first, one worked example, reasons before the verdict.
"""

BETTER_OF_TWO = PairPrompt(
    name="better_of_two",
    version=1,
    system=(
        "You compare two drafts that answer one question, with the numbered passages as evidence, if there are any. "
        "The better draft is right according to the passages, answers what was asked, and says nothing unsupported. "
        "Length and order do not matter. If neither is better, say tie."
    ),
)
"""The prompt for the better of two drafts."""

MARKS: Mapping[str, MarkPrompt] = MappingProxyType(
    {item.name: item for item in (FAITHFULNESS, ANSWER_RELEVANCY, CONTEXT_PRECISION, CONTEXT_RECALL)}
)
"""The built-in marks of a draft by name."""

VERDICTS: Mapping[str, MarkPrompt] = MappingProxyType({CONTEXT_SUFFICIENT.name: CONTEXT_SUFFICIENT})
"""The built-in verdicts on the evidence by name, which are signals and no part of a draft's score."""


def read_mark(prompt: MarkPrompt, reply: Mapping[str, Any], n_passages: int) -> float:
    """Return the mark in a judge's reply, in [0, 1].

    >>> read_mark(ANSWER_RELEVANCY, {"mark": 3}, 0)
    0.75

    Raises:
        UnreadableError: A field is missing, has the wrong type, or is out of range.
    """
    if prompt.shape == "scale":
        mark: int = _typed_field(reply, "mark", int)
        if not 0 <= mark <= _TOP:
            raise UnreadableError(f"the judge's mark is not within 0 to {_TOP}: {mark}")
        return mark / _TOP
    if prompt.shape == "verdict":
        return float(_typed_field(reply, "sufficient", bool))
    if prompt.shape == "statements":
        verdicts: list[bool] = [_typed_field(item, "supported", bool) for item in _items(reply, "statements")]
        return sum(verdicts) / len(verdicts)
    by_number: dict[int, bool] = {}
    for item in _items(reply, "passages"):
        number = _typed_field(item, "number", int)
        if number in by_number or not 1 <= number <= n_passages:
            raise UnreadableError(f"the judge repeats a passage or names an unknown one: {number} of {n_passages}")
        by_number[number] = _typed_field(item, "useful", bool)
    if len(by_number) != n_passages:
        raise UnreadableError(f"the judge leaves passages out: {len(by_number)} of {n_passages} have a verdict")
    return _average_precision([by_number[number] for number in range(1, n_passages + 1)])


def _average_precision(useful: Sequence[bool]) -> float:
    """Return the mean precision at the ranks of useful passages; 0 if no passage is useful."""
    n_useful, total = 0, 0.0
    for rank, is_useful in enumerate(useful, 1):
        if is_useful:
            n_useful += 1
            total += n_useful / rank
    return total / n_useful if n_useful else 0.0


def read_winner(reply: Mapping[str, Any]) -> str:
    """Return the winner in a judge's reply: `A`, `B` or `tie`."""
    better = _typed_field(reply, "better", str)
    if better not in ("A", "B", "tie"):
        raise UnreadableError(f"the judge's choice is not A, B or tie: {better[:40]!r}")
    return str(better)


def _items(reply: Mapping[str, Any], name: str) -> list[Any]:
    items = _typed_field(reply, name, list)
    if not items:
        raise UnreadableError(f"the judge's list of {name} is empty")
    return list(items)


def _typed_field(value: Any, name: str, kind: type) -> Any:
    """Return a field of exactly this type; booleans and texts are not accepted as numbers."""
    item = value.get(name) if isinstance(value, Mapping) else None
    if type(item) is not kind:
        raise UnreadableError(
            f"the judge's reply lacks {name!r}, or it is not of type {kind.__name__}: {str(item)[:40]!r}"
        )
    return item
