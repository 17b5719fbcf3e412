"""Find the conversation that a request belongs to: by a header, by ids of tool calls, or by the messages that it repeats.

A client sends all messages so far with each request, unless it names the reply that it goes on from.  So a request goes on with the
conversation whose tool calls it answers, or whose last request is a prefix of it.  What these do not decide, such as a
history that the proxy has not seen, begins a conversation that is marked as unsure.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from suffice.common.redaction import Redactor
from suffice.importers.traces.payloads import text_of
from suffice_server.proxy.protocol import Called, Protocol

Branch = Literal["main", "side"]
"""Whether a reply is a round of its conversation, or a call beside it, such as a subagent's."""

_TASK_CHARACTERS = 4000
_QUOTED = 60
"""Length of a line that no two conversations share by chance."""
_VOLATILE = frozenset({"cache_control", "reasoning_content", "reasoning"})
"""Fields of a message that clients add or leave out when they repeat it."""
_BESIDE = frozenset({"messages", "input", "stream", "stream_options"})
"""Fields of a request that its chain covers, or that say how the reply comes, which clients change when they send it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to a model, as far as it says which conversation it belongs to.

    Attributes:
        protocol: Its interface.
        body: Its JSON.
        chain: A hash of its messages up to each of them.
        digest: A hash of the whole request.
        task: The first text of a user, which stands for the question, without secrets.
        texts: The texts of its messages.
        spoken: The places of the assistant's messages.
        results: The tool calls that it answers, by id, and whether they failed.
        tools: A hash of the names of the tools that it offers; "" without tools.
        key: The value of the header that names the conversation; "" without it.
        is_retry: Whether the client says that it sends the request again.
    """

    protocol: Protocol
    body: Mapping[str, Any]
    chain: Sequence[str]
    digest: str
    task: str
    texts: Sequence[str]
    spoken: Sequence[int]
    results: Mapping[str, bool | None]
    tools: str
    key: str
    is_retry: bool

    @classmethod
    def of(cls, protocol: Protocol, body: Mapping[str, Any], *, key: str, is_retry: bool, redact: Redactor) -> Asked:
        """Read a request."""
        messages = protocol.messages(body)
        chain, before = [], ""
        for message in messages:
            before = _hash(before, _canonical(message))
            chain.append(before)
        texts = [text_of(message.get("content")) for message in messages]
        offered = body.get("tools")
        names = [str(_name(tool)) for tool in offered if isinstance(tool, dict)] if isinstance(offered, list) else []
        return cls(
            protocol=protocol,
            body=body,
            chain=chain,
            digest=_hash(before, _canonical({name: value for name, value in body.items() if name not in _BESIDE})),
            task=redact(next((text for text in texts if text.strip()), "").strip())[:_TASK_CHARACTERS],
            texts=texts,
            spoken=[place for place, message in enumerate(messages) if _is_spoken(message)],
            results=protocol.results(body),
            tools=_hash(*sorted(names)) if names else "",
            key=redact(key),
            is_retry=is_retry,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A reply in its conversation.

    Attributes:
        branch: Whether it is a round, or a call beside the round.
        number: The number of the request for its round; a round that was asked for again has several replies.
        chain: The hash of all messages of the request.
        digest: The hash of the request.
        called: The reply.
        dollars: Its price, USD; NaN if unknown.
        seconds: Duration of the call, seconds.
    """

    branch: Branch
    number: int
    chain: str
    digest: str
    called: Called
    dollars: float
    seconds: float


@dataclass(slots=True, kw_only=True, eq=False)
class Conversation:
    """A conversation that goes on.

    Attributes:
        id: Its id, by which outcomes come.
        task: Its question.
        name: The question's id: the client's key, or a hash of the task.
        key: The client's key; "" without one.
        why: Why it may lack rounds, or hold those of another one; "" if it is sure.
        replies: Its replies, and those of calls beside it, in their order.
        results: Whether the tools that its calls answered failed, by call; None = unknown.
        last: The time of its last reply, seconds since 1970.
        waiting: The tool calls of its last round.
        tools: A hash of the tools that it offers.
        said: The text of its last round.
        busy: Requests in flight: of the conversation itself, and beside it.
        size: The size of its stored replies, bytes.
        begun: Number of requests that asked for a round.
        stored: Number of its rows in the journal.
        stopped: Whether its policy has ended it.
        full: Whether it is too large for further replies.
        storing: Held while a reply is stored.
        live: The live state of the recorder, which decides; None until it is needed.
    """

    id: str
    task: str
    name: str
    key: str = ""
    why: str = ""
    replies: list[Replied] = field(default_factory=list)
    results: dict[str, bool | None] = field(default_factory=dict)
    last: float = field(default_factory=time.time)
    waiting: set[str] = field(default_factory=set)
    tools: str = ""
    said: str = ""
    busy: dict[Branch, int] = field(default_factory=lambda: {"main": 0, "side": 0})
    size: int = 0
    begun: int = 0
    stored: int = 0
    stopped: bool = False
    full: bool = False
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    live: Any = None

    @property
    def is_over(self) -> bool:
        """True if no reply of the endpoint is expected to go on with it: it called no tool, was ended, or is full."""
        return bool(self.replies) and (not self.waiting or self.stopped or self.full)

    def doubt(self, why: str) -> None:
        """Note a reason why the conversation may lack rounds, or hold those of another one."""
        self.why = self.why or why


@dataclass(frozen=True, slots=True)
class _Seen:
    """A request that was answered, and the beginning of its answer."""

    conversation: Conversation
    branch: Branch
    digest: str
    text: str
    ids: tuple[str, ...]


class Conversations:
    """The open conversations, by id and by what requests may show of them."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Conversation] = OrderedDict()
        self._keys: dict[str, Conversation] = {}
        self._calls: dict[str, _Seen] = {}
        self._chains: dict[str, list[_Seen]] = {}

    def find(self, asked: Asked) -> tuple[Conversation, Branch]:
        """Return the conversation of a request, perhaps a new one, and whether the reply will be a round of it."""
        known = self._keys.get(asked.key) if asked.key else None
        seen, doubt = self._seen(asked, known)
        if seen is not None and seen.branch == "main" and self._is_fork(asked, seen):
            known, seen, doubt = known and seen.conversation, None, "fork"
        if seen is not None:
            found, branch = seen.conversation, seen.branch
        elif known is not None:
            found, branch = known, self._branch(asked, known)
        else:
            quoted = None if asked.key else self._quoted(asked)
            found, branch = quoted or self._new(asked), "main"
            doubt = doubt if quoted is None else ""
            if quoted is None and not doubt and any(place < len(asked.chain) - 1 for place in asked.spoken):
                doubt = "history"
        if doubt:
            found.doubt(doubt)
        if branch == "main":
            if found.tools and found.tools != asked.tools:
                found.doubt("tools")
            found.tools = asked.tools or found.tools
            found.results |= {name: failed for name, failed in asked.results.items() if name in found.waiting}
            found.begun += not (asked.is_retry and found.replies and found.replies[-1].digest == asked.digest)
        self.open.move_to_end(found.id)
        return found, branch

    def _seen(self, asked: Asked, known: Conversation | None) -> tuple[_Seen | None, str]:
        """Return the answered request that this one goes on from, or repeats, and what is doubtful about that."""
        before = asked.protocol.before(asked.body)
        ids = [*reversed([*asked.results]), *([before] if before else [])]
        for seen in (self._calls[name] for name in ids if name in self._calls):
            if known is None or seen.conversation is known:
                return seen, ""
        for place in range(len(asked.chain) - 1, -1, -1):
            some = [s for s in self._chains.get(asked.chain[place], ()) if known is None or s.conversation is known]
            if not some:
                continue
            if place == len(asked.chain) - 1:
                same = [seen for seen in some if seen.digest == asked.digest]
                if same and (asked.is_retry or known is not None):
                    return same[-1], ""
                return None, "repeated" if same else ""
            said = asked.texts[place + 1].strip()
            right = [seen for seen in some if seen.text.strip() == said and (said or not seen.ids)]
            if right:
                return right[-1], "" if len({seen.conversation.id for seen in right}) == 1 else "several"
            return (some[-1], "edited") if len(some) == 1 and asked.spoken else (None, "edited")
        return None, ""

    @staticmethod
    def _is_fork(asked: Asked, seen: _Seen) -> bool:
        """Return whether a request leaves the last tool calls of its conversation unanswered, and does not repeat the request before."""
        waiting = seen.conversation.waiting
        return bool(waiting) and not waiting & set(asked.results) and asked.digest != seen.digest

    @staticmethod
    def _branch(asked: Asked, known: Conversation) -> Branch:
        """Return what a request is whose key is known and which repeats nothing: a call beside, or a new beginning."""
        beside = known.busy["main"] or (known.waiting and not known.waiting & set(asked.results))
        return "side" if beside or (known.tools and asked.tools != known.tools) else "main"

    def _quoted(self, asked: Asked) -> Conversation | None:
        """Return the conversation whose last reply a new first message quotes, as after a compaction."""
        if len(asked.task) < _QUOTED:
            return None
        text = asked.texts[0] if asked.texts else ""
        for conversation in reversed(self.open.values()):
            lines = [line.strip() for line in conversation.said.split("\n") if len(line.strip()) >= _QUOTED]
            if lines and not conversation.waiting and any(line in text for line in lines):
                return conversation
        return None

    def _new(self, asked: Asked) -> Conversation:
        task = asked.task or asked.key or "(no text)"
        name = asked.key or _hash(task)[:12]
        return self.add(Conversation(id=secrets.token_hex(8), task=task, name=name, key=asked.key))

    def add(self, conversation: Conversation) -> Conversation:
        """Add a conversation, under the client's key if it has one."""
        self.open[conversation.id] = conversation
        if conversation.key:
            self._keys[conversation.key] = conversation
        return conversation

    def keyed(self, key: str) -> Conversation | None:
        """Return the conversation with a client's key; None if none is open."""
        return self._keys.get(key)

    def note(self, conversation: Conversation, replied: Replied) -> None:
        """Add a reply to its conversation, so that later requests are known by it."""
        conversation.replies.append(replied)
        conversation.last = time.time()
        called = replied.called
        if replied.branch == "main":
            conversation.waiting, conversation.said = set(called.ids), called.text
        seen = _Seen(conversation, replied.branch, replied.digest, called.text, called.ids)
        if replied.chain:
            self._chains.setdefault(replied.chain, []).append(seen)
        self._calls |= dict.fromkeys(_names(called), seen)

    def remove(self, conversation: Conversation) -> None:
        """Forget a conversation."""
        self.open.pop(conversation.id, None)
        if self._keys.get(conversation.key) is conversation:
            del self._keys[conversation.key]
        for replied in conversation.replies:
            left = [seen for seen in self._chains.pop(replied.chain, ()) if seen.conversation is not conversation]
            if left:
                self._chains[replied.chain] = left
            for name in _names(replied.called):
                if name in self._calls and self._calls[name].conversation is conversation:
                    del self._calls[name]

    def idle(self, before: float) -> Iterator[Conversation]:
        """Yield the conversations without a reply since a time and without a request in flight."""
        for conversation in [*self.open.values()]:
            if conversation.last < before and not any(conversation.busy.values()):
                yield conversation


def _names(called: Called) -> list[str]:
    """Return the ids by which a later request may name a reply."""
    return [*called.ids, str(called.body.get("id") or f"no id {id(called)}")]


def _is_spoken(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" or str(message.get("type", "")).endswith("_call")


def _name(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function")
    return (function if isinstance(function, dict) else tool).get("name") or tool.get("type")


def _canonical(message: Any) -> str:
    return json.dumps(_stable(message), sort_keys=True, default=str)


def _stable(value: Any) -> Any:
    """Return a message without the fields that change when it is repeated; a text is the same as its one part."""
    if isinstance(value, dict):
        kept = {name: _stable(item) for name, item in value.items() if name not in _VOLATILE and item is not None}
        content = value.get("content")
        part = content[0] if isinstance(content, list) and len(content) == 1 else None
        if isinstance(part, dict) and set(_stable(part)) <= {"type", "text"}:
            kept["content"] = part.get("text")
        return kept
    return [_stable(item) for item in value] if isinstance(value, list) else value


def _hash(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
