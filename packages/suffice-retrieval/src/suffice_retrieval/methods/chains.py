"""Methods that retrieve evidence while they write a chain of reasoning, with steps as in their papers.

A step is a generator.  It yields requests (for generated text, for passages, or for a second reading of a reply),
receives the replies, and returns the extended chain.  `QueryLoop` makes the calls.
"""

from __future__ import annotations

import ast
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest
from typing import Any, ClassVar

from suffice.common.sentences import sentence_end, sentences
from suffice.common.syntax import parse_expression
from suffice.errors import DataError, ModelError, NotFoundError, did_you_mean
from suffice.loops.models.prompts import Message
from suffice.policy.rounds import Passage, Reply
from suffice.policy.signals.text import strip_thinking, tokens_of_span
from suffice_retrieval.methods.flare import flare_trigger, masked_text, uncertain_spans
from suffice_retrieval.methods.prompts import CHAIN_OF_THOUGHT, SELF_ASK, ChainPrompt, read_chain_prompt

_FOLLOW_UP = re.compile(r"follow[ -]?up\s*:(.*)", re.IGNORECASE)
_INTERMEDIATE = re.compile(r"\A\s*intermediate answer\s*:", re.IGNORECASE)
_ANSWER = re.compile(r"answer is\b\s*:?[ \t]*(?P<answer>[^\n]*?)[.\s]*(?:\n|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """The state of a chain at the start of a round, as a method sees it.

    Attributes:
        question: The question's text.
        chain: The text written so far; empty at the first round.
        passages: The evidence of the previous round.
    """

    question: str
    chain: str = ""
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the model to generate text.

    Attributes:
        messages: The messages to send.
        part: The component to charge: `generator`, or `query` if the text only serves as a query.
    """

    messages: tuple[Message, ...]
    part: str = "generator"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A request for passages for one or more queries.

    Attributes:
        queries: The queries; a blank one is replaced by the question.
    """

    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reread:
    """A request to read a reply a second time for DRAGIN, see `suffice_gates.models.attention.dragin_query`.

    Attributes:
        messages: The messages that the model replied to.
        reply: The text of the reply.
        texts: The parts of the messages whose words a query may use.
        theta: Threshold of RIND.
        n: Number of words in a query.
    """

    messages: tuple[Message, ...]
    reply: Reply
    texts: tuple[str, ...]
    theta: float
    n: int


Action = Ask | Lookup | Reread


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one round of a method.

    Attributes:
        chain: The text written so far.
        passages: The evidence of this round.
        ended: True if the method has ended its chain.
        queries: Number of queries to the retriever.
        signals: Signals that the method measured.
    """

    chain: str
    passages: tuple[Passage, ...]
    ended: bool
    queries: int = 0
    signals: Mapping[str, float] = field(default_factory=dict)


StepSteps = Generator[Action, Any, Step]
"""The requests of a step: a `Reply` is sent for an `Ask` or a `Reread`, and a tuple of passages for a `Lookup`."""


@dataclass(frozen=True, kw_only=True)
class ChainMethod(ABC):
    """Base class of methods that retrieve evidence.

    Subclasses are frozen dataclasses whose fields are the settings.

    Attributes:
        k: Number of passages for each query.
        prompt: The prompt with which the model continues the chain.
    """

    name: ClassVar[str]
    """Name in `parse_method` and in recordings."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Capabilities that the model needs, in the terms of `Signal.needs`, or `attentions`."""

    measures: ClassVar[frozenset[str]] = frozenset()
    """The names of signals that its steps measure."""

    reads_chain: ClassVar[bool] = True
    """True if the reader, which answers before the chain's end, sees the chain; False if it only sees the passages."""

    k: int = 3
    prompt: ChainPrompt = CHAIN_OF_THOUGHT

    def __post_init__(self) -> None:
        if self.k < 1:
            raise DataError(f"{self.name}: k must be at least 1, got {self.k!r}")

    def __str__(self) -> str:
        default = next(item.default for item in fields(self) if item.name == "prompt")
        own = {} if self.prompt == default else {"prompt": self.prompt.prompt_id}
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in (self.settings() | own).items())})"

    def settings(self) -> dict[str, Any]:
        """Return the settings without the prompt, by the names that `parse_method` reads."""
        return {name: value for name, value in asdict(self).items() if name != "prompt"}

    @abstractmethod
    def step(self, state: ChainState) -> StepSteps:
        """Write the next step of the chain, for one round."""

    def _sentence(self, state: ChainState, chain: str, passages: Sequence[Passage]) -> Generator[Action, Any, str]:
        """Ask the model for the next sentence of a chain."""
        reply: Reply = yield Ask(self.prompt.continuing(state.question, passages, chain))
        return _first_sentence(reply.text)


@dataclass(frozen=True, kw_only=True)
class SelfAsk(ChainMethod):
    """Self-Ask with retrieval: each follow-up question is a query (Press et al., 2023, section 3).

    A round retrieves passages for one follow-up question.  From the passages the model writes the intermediate answer,
    and then the next follow-up question or the final answer.  The first follow-up question takes an extra call.  The
    chain ends when the model writes no further follow-up question.  Text after a follow-up question is dropped, since
    the model has not yet seen the evidence for it.
    """

    name: ClassVar[str] = "self_ask"
    prompt: ChainPrompt = SELF_ASK

    def step(self, state: ChainState) -> StepSteps:
        """Ask a follow-up question, retrieve for it, and answer it."""
        chain, query = state.chain, _pending(state.chain)
        if query is None:
            reply: Reply = yield Ask(self.prompt.continuing(state.question, (), chain))
            chain = _extended(chain, _up_to_follow_up(reply.text), "\n")
            query = _pending(chain)
            if query is None:
                return Step(chain=chain, passages=state.passages, ended=True)
        passages = yield Lookup((query,))
        prefix = _extended(chain, "Intermediate answer:", "\n")
        reply = yield Ask(self.prompt.continuing(state.question, passages, prefix))
        text = _up_to_follow_up(_INTERMEDIATE.sub("", _without_thinking(reply.text), count=1))
        chain = _extended(prefix, text, " ")
        return Step(chain=chain, passages=passages, ended=_pending(chain) is None, queries=1)


@dataclass(frozen=True, kw_only=True)
class IRCoT(ChainMethod):
    """Interleaved retrieval and chain of thought (Trivedi et al., 2023, section 3).

    The first query is the question; each later query is the last sentence of the chain.  Up to `most` passages are
    collected, and from all of them the model writes one more sentence.  The chain ends with a sentence that contains
    "answer is".  Answers come from a separate reader, which sees question and passages but not the chain.

    Attributes:
        most: Largest number of collected passages.
    """

    name: ClassVar[str] = "ircot"
    reads_chain: ClassVar[bool] = False
    k: int = 6
    most: int = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most < self.k:
            raise DataError(f"ircot: most must be at least k={self.k!r}, got {self.most!r}")

    def step(self, state: ChainState) -> StepSteps:
        """Retrieve with the chain's last sentence, and write the next one."""
        passages = yield Lookup((_last_sentence(state.chain) or state.question,))
        known = {passage.passage_id for passage in state.passages}
        new = [passage for passage in passages if passage.passage_id not in known]
        evidence = (*state.passages, *new)[: self.most]
        sentence = yield from self._sentence(state, state.chain, evidence)
        return Step(chain=_extended(state.chain, sentence), passages=evidence, ended=_is_last(sentence), queries=1)


@dataclass(frozen=True, kw_only=True)
class Flare(ChainMethod):
    """FLARE-direct: retrieve if the next sentence would be uncertain (Jiang et al., 2023, section 3.2).

    The first sentence is written from passages for the question.  Each later sentence is first written without
    passages, and stays if all its tokens have probabilities of at least theta.  Otherwise passages are retrieved and
    the sentence is written again from them.  With `ask=False`, the query is the sentence without its tokens of
    probability below beta.  With `ask=True`, the model writes a question for each run of such tokens, and the passages
    for these questions are interleaved. If all tokens are below beta, there is no query, and the sentence is written
    from the earlier passages.

    Attributes:
        theta: Retrieve if a token of the sentence has a probability below theta.
        beta: Tokens with a probability below beta are masked, or questions are asked for them.
        ask: True to generate questions instead of masking tokens.
    """

    name: ClassVar[str] = "flare"
    needs: ClassVar[frozenset[str]] = frozenset({"token_logprobs"})
    measures: ClassVar[frozenset[str]] = frozenset({"lowest_probability"})
    k: int = 2
    theta: float = 0.8
    beta: float = 0.4
    ask: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("theta", self.theta), ("beta", self.beta)):
            if not 0.0 <= value <= 1.0:
                raise DataError(f"flare: {name} is a probability, got {value!r}")

    def step(self, state: ChainState) -> StepSteps:
        """Write the next sentence without passages; if it is uncertain, retrieve and write it again."""
        queries: tuple[str, ...] = (state.question,)
        lowest = math.nan
        if state.chain:
            reply: Reply = yield Ask(self.prompt.continuing(state.question, (), state.chain))
            sentence = _first_sentence(reply.text)
            tokens = _tokens_of(reply, sentence)
            lowest = min((math.exp(token.logprob) for token in tokens), default=1.0)
            if flare_trigger(tokens, self.theta) is None:
                chain, signals = _extended(state.chain, sentence), {"lowest_probability": lowest}
                return Step(chain=chain, passages=state.passages, ended=_is_last(sentence), signals=signals)
            queries = tuple(filter(None, (masked_text(tokens, self.beta),)))
            if self.ask:
                spans = uncertain_spans(tokens, self.beta)
                questions = []
                for span in spans:
                    messages = self.prompt.questioning(state.question, _extended(state.chain, sentence), span)
                    written: Reply = yield Ask(messages, "query")
                    questions.append(_without_thinking(written.text).strip())
                queries = tuple(filter(None, questions)) or (sentence,)
        passages = (yield Lookup(queries)) if queries else state.passages
        sentence = yield from self._sentence(state, state.chain, passages)
        return Step(
            chain=_extended(state.chain, sentence),
            passages=passages,
            ended=_is_last(sentence),
            queries=len(queries),
            signals={"lowest_probability": lowest},
        )


@dataclass(frozen=True, kw_only=True)
class Dragin(ChainMethod):
    """DRAGIN: retrieve for the first sentence with a word that is uncertain and matters (Su et al., 2024, section 3).

    The model continues the chain without passages.  If a sentence contains words whose RIND is above theta, the first
    such sentence and the text after it are dropped.  The query consists of the `n` words of question, chain and
    sentence to which the words with high RIND attend most, in the order of the text.  The model then writes one new
    sentence from the retrieved passages.  Without such a sentence the whole reply stays.

    Attributes:
        theta: Threshold of RIND.  The authors use 0.9 to 1.4, by model and data; see docs/how-to/rivals.md.
        n: Number of words in a query; 25 to 40 in the authors' configurations.
    """

    name: ClassVar[str] = "dragin"
    needs: ClassVar[frozenset[str]] = frozenset({"attentions"})
    measures: ClassVar[frozenset[str]] = frozenset({"rind"})
    theta: float = 1.2
    n: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 1 or not self.theta >= 0:
            raise DataError(f"dragin: n must be at least 1 and theta at least 0, got {self.n!r} and {self.theta!r}")

    def step(self, state: ChainState) -> StepSteps:
        """Continue without passages; at a sentence that needs evidence, cut the text, retrieve, and write a new one."""
        messages = self.prompt.continuing(state.question, (), state.chain)
        reply: Reply = yield Ask(messages)
        reading: Reply = yield Reread(messages, reply, (state.question, state.chain), self.theta, self.n)
        if reading.answer is None or "answer is" in reading.text.lower():
            text = _without_thinking(reply.text)
            chain = _extended(state.chain, text)
            return Step(chain=chain, passages=state.passages, ended=_is_last(text), signals=reading.signals)
        passages = yield Lookup((reading.answer,))
        kept = _extended(state.chain, _without_thinking(reading.text))
        sentence = yield from self._sentence(state, kept, passages)
        chain = _extended(kept, sentence)
        return Step(
            chain=chain,
            passages=passages,
            ended=_is_last(sentence),
            queries=1,
            signals=reading.signals,
        )


CHAIN_METHODS: Mapping[str, type[ChainMethod]] = {kind.name: kind for kind in (SelfAsk, IRCoT, Flare, Dragin)}
"""The methods by name."""


def parse_method(text: str) -> ChainMethod:
    """Parse a method from its name and, in parentheses, its settings.

    A file in ``prompt='FILE'`` is read by `read_chain_prompt`.

    >>> parse_method("flare(theta=0.6)").theta, str(parse_method("ircot"))
    (0.6, 'ircot(k=6, most=15)')

    Raises:
        NotFoundError: There is no such method.
        DataError: The text does not have this form, a setting is unknown or out of range, or the prompt cannot be read.
    """
    name, parenthesis, rest = text.strip().partition("(")
    kind = CHAIN_METHODS.get(name.strip().replace("-", "_").lower())
    if kind is None:
        raise NotFoundError(
            f"unknown method {name!r}.{did_you_mean(name, CHAIN_METHODS)} Choose one of {', '.join(CHAIN_METHODS)}"
        )
    defaults: dict[str, Any] = {item.name: item.default for item in fields(kind)}
    allowed = {key: str if key == "prompt" else type(default) for key, default in defaults.items()}
    try:
        call = parse_expression(f"f({rest}" if parenthesis else "f()")
        assert isinstance(call, ast.Call)
        assert not call.args
        settings = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise DataError(f"{text!r} is not a method: write its settings as in 'flare(theta=0.8, ask=True)'") from None
    for key, value in settings.items():
        if key not in allowed:
            raise DataError(f"{name} has no setting {key!r}; allowed: {', '.join(allowed)}")
        expected = (int, float) if allowed[key] is float else (allowed[key],)
        if type(value) not in expected:
            raise DataError(f"{name}: {key} must be of type {allowed[key].__name__}, got {value!r}")
    if "prompt" in settings:
        settings["prompt"] = read_chain_prompt(settings["prompt"], defaults["prompt"])
    return kind(**settings)


# Texts.


def answer_of_chain(chain: str) -> str | None:
    """Return the final answer that a chain states; None if the chain states no answer.

    >>> answer_of_chain("It was written by King. So the answer is: Stephen King.")
    'Stephen King'
    """
    matches = list(_ANSWER.finditer(chain))
    return (matches[-1]["answer"].strip().strip("*").strip() or None) if matches else None


def interleaved(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Merge several rankings by taking one passage from each ranking in turn, best first."""
    return [passage for level in zip_longest(*rankings) for passage in level if passage is not None]


def _without_thinking(text: str) -> str:
    """Remove the thinking block of a reply."""
    return strip_thinking(text)[1].strip()


def _first_sentence(text: str) -> str:
    said = _without_thinking(text)
    return said[: sentence_end(said)].strip()


def _last_sentence(chain: str) -> str:
    return next(reversed(sentences(chain)), "")


def _is_last(text: str) -> bool:
    """Return whether a text ends its chain, because it states the answer or is empty."""
    return not text or "answer is" in text.lower()


def _extended(chain: str, text: str, by: str = " ") -> str:
    return by.join(filter(None, (chain.strip(), text.strip())))


def _up_to_follow_up(text: str) -> str:
    """Cut a text after the line with its first follow-up question."""
    said = _without_thinking(text)
    match = _FOLLOW_UP.search(said)
    return said if match is None else said[: match.end()]


def _pending(chain: str) -> str | None:
    """Return the follow-up question at the end of a chain; None if the chain does not end with an unanswered question."""
    *_, last = ("", *chain.strip().splitlines())
    match = _FOLLOW_UP.search(last)
    return (match[1].strip() or None) if match else None


def _tokens_of(reply: Reply, sentence: str) -> tuple[Any, ...]:
    if not sentence:
        return ()
    start = reply.text.find(sentence)
    tokens = None if reply.tokens is None else tokens_of_span(reply.text, reply.tokens, start, start + len(sentence))
    if tokens is None:
        raise ModelError(
            f"the tokens of {sentence[:80]!r} cannot be read from the reply's log-probabilities, so FLARE cannot decide; "
            "use another endpoint"
        )
    return tokens
