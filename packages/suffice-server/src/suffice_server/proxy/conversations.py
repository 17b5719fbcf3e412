"""Find the conversation that a request belongs to: by a header, by ids of tool calls, or by the messages that it repeats.

A client sends all messages so far with each request, unless it names the reply that it goes on from.  So a request goes on with the
conversation whose last request and reply it begins with, or whose tool calls it answers if it has the same task.  Ids of calls alone
decide nothing unless they were drawn at random, since many servers count them from 0.  What these do not decide, such as a
history that the proxy has not seen, begins a conversation that is marked as unsure.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from suffice.importers.traces.payloads import logged_reply, text_of
from suffice_server.proxy.protocol import Called, Protocol, demanded
from suffice_server.proxy.redacting import Secrets

Branch = Literal["main", "side"]
"""Whether a reply is a round of its conversation, or a call beside it, such as a subagent's."""

_TASK_CHARACTERS = 4000
_QUOTED = 60
"""Length of a line that no two conversations share by chance."""
_DRAWN = re.compile(r"(?=[a-zA-Z]*\d)(?=\d*[a-zA-Z])[a-zA-Z\d]{9}")
"""Matches in an id of a tool call that was drawn at random; `call_0` or `functions.bash:0` are ids in other conversations, too."""
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
        messages: Its messages.
        chain: A hash of its messages up to each of them.
        digest: A hash of the whole request.
        task: The first text of a user, which stands for the question, without secrets.
        texts: The texts of its messages.
        spoken: The places of the assistant's messages.
        results: The tool calls that it answers, by id, and whether they failed.
        tools: A hash of the names of the tools that it offers; "" without tools.
        key: The client's name of the conversation, from a header or its interface; "" without one.
        is_retry: Whether the client says that it sends the request again.
        redact: Removes the secrets of its headers.
    """

    protocol: Protocol
    body: Mapping[str, Any]
    messages: Sequence[dict[str, Any]]
    chain: Sequence[str]
    digest: str
    task: str
    texts: Sequence[str]
    spoken: Sequence[int]
    results: Mapping[str, bool | None]
    tools: str
    key: str
    is_retry: bool
    redact: Secrets

    @property
    def form(self) -> str:
        """The field that demands a form which the reply that ends a loop lacks; "" if none does."""
        return demanded(self.body)

    @classmethod
    def of(cls, protocol: Protocol, body: Mapping[str, Any], *, key: str, is_retry: bool, redact: Secrets) -> Asked:
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
            messages=messages,
            chain=chain,
            digest=_hash(before, _canonical({name: value for name, value in body.items() if name not in _BESIDE})),
            task=redact(next((text for text in texts if text.strip()), "").strip())[:_TASK_CHARACTERS],
            texts=texts,
            spoken=[place for place, message in enumerate(messages) if _is_spoken(message)],
            results=protocol.results(body),
            tools=_hash(*sorted(names)) if names else "",
            key=redact(key or protocol.key(body)),
            is_retry=is_retry,
            redact=redact,
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
        tip: Its last round.
        asking: The hash of the last request for a round, which may be in flight.
        tools: A hash of the tools that it offers.
        busy: Requests in flight: of the conversation itself, and beside it.
        calm: Set when a request is over.
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
    tip: Seen | None = None
    asking: str = ""
    tools: str = ""
    busy: dict[Branch, int] = field(default_factory=lambda: {"main": 0, "side": 0})
    calm: asyncio.Event = field(default_factory=asyncio.Event)
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

    @property
    def is_busy(self) -> bool:
        """True if a request of it, or beside it, is in flight."""
        return any(self.busy.values())

    def doubt(self, why: str) -> None:
        """Note a reason why the conversation may lack rounds, or hold those of another one."""
        self.why = self.why or why

    def unanswered(self) -> None:
        """Note that the last request for a round brought no reply, so that the next one asks for the same round."""
        self.begun -= 1
        self.asking = self.tip.digest if self.tip else ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that was answered.

    Attributes:
        conversation: Its conversation.
        branch: Whether the reply was a round.
        digest: The hash of the request.
        called: The reply.
    """

    conversation: Conversation
    branch: Branch
    digest: str
    called: Called

    @property
    def is_last(self) -> bool:
        """True if no later request asked for a round."""
        return self.branch == "side" or self.digest == self.conversation.asking


class Conversations:
    """The open conversations, by id and by what requests may show of them."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Conversation] = OrderedDict()
        self._keys: dict[str, Conversation] = {}
        self._named: dict[str, Seen] = {}
        self._chains: dict[str, list[Seen]] = {}

    def find(self, asked: Asked) -> tuple[Conversation, Branch]:
        """Return the conversation of a request, perhaps a new one, and whether the reply will be a round of it."""
        known = self._keys.get(asked.key) if asked.key else None
        some, doubt = self._seen(asked, known)
        for one in some if doubt == "several" else ():
            one.conversation.doubt(doubt)
        seen = some[-1] if some else None
        if seen is not None and seen.branch == "main" and self._is_fork(asked, seen):
            seen, doubt = None, "fork"
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
            found.asking = asked.digest
        self.open.move_to_end(found.id)
        return found, branch

    def _seen(self, asked: Asked, known: Conversation | None) -> tuple[Sequence[Seen], str]:
        """Return the answered requests that this one may go on from, or repeats, and what is doubtful about that."""
        before = asked.protocol.before(asked.body)
        if before:
            named = self._named.get(before)
            return ([named], "") if named and (not asked.key or named.conversation is known) else ([], "history")
        some, right = list[Seen](), list[Seen]()
        for place in range(len(asked.chain) - 1, -1, -1):
            some = [s for s in self._chains.get(asked.chain[place], ()) if not asked.key or s.conversation is known]
            if some and place == len(asked.chain) - 1:
                same = [seen for seen in some if seen.digest == asked.digest]
                if same and (asked.is_retry or known is not None):
                    return same[-1:], ""
                return [], "repeated" if same else ""
            if some:
                right = _followed(asked, place, some)
                break
        last = [seen for seen in right if seen.is_last]
        last = last or [one.tip for one in self.open.values() if one.tip and self._answers(asked, one, known)]
        if last:
            return last, "several" if len({seen.conversation.id for seen in last}) > 1 else ""
        said = asked.texts[asked.spoken[-1]].strip() if asked.spoken else ""
        kept = [tip for seen in right if said and (tip := seen.conversation.tip) and tip.called.text.strip() == said]
        if right and not kept:
            return right, ""
        return kept or (some if len(some) == 1 and asked.spoken else []), "edited" if some else ""

    @staticmethod
    def _answers(asked: Asked, one: Conversation, known: Conversation | None) -> bool:
        """Return whether a request answers the last tool calls of a conversation, and not those of another one with equal ids."""
        ids = one.waiting & asked.results.keys()
        is_own = one is known if asked.key else one.task == asked.task or any(map(_DRAWN.search, ids))
        return bool(ids) and is_own

    @staticmethod
    def _is_fork(asked: Asked, seen: Seen) -> bool:
        """Return whether a request leaves the last tool calls unanswered, or goes on from an earlier round, which a key permits."""
        waiting = seen.conversation.waiting
        if asked.digest == seen.digest or (asked.is_retry and asked.digest == seen.conversation.asking):
            return False
        return bool(waiting and not waiting & asked.results.keys()) or not (asked.key or seen.is_last)

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
            said = conversation.tip.called.text if conversation.tip else ""
            lines = [line.strip() for line in said.split("\n") if len(line.strip()) >= _QUOTED]
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
        seen = Seen(conversation, replied.branch, replied.digest, called)
        if replied.branch == "main":
            if conversation.tip and conversation.tip.called.model != called.model:
                conversation.doubt("model")
            conversation.waiting, conversation.tip, conversation.asking = set(called.ids), seen, replied.digest
        if replied.chain:
            self._chains.setdefault(replied.chain, []).append(seen)
        if called.body.get("id"):
            self._named[str(called.body["id"])] = seen

    def remove(self, conversation: Conversation) -> None:
        """Forget a conversation."""
        self.open.pop(conversation.id, None)
        if self._keys.get(conversation.key) is conversation:
            del self._keys[conversation.key]
        for replied in conversation.replies:
            left = [seen for seen in self._chains.pop(replied.chain, ()) if seen.conversation is not conversation]
            if left:
                self._chains[replied.chain] = left
            name = str(replied.called.body.get("id"))
            if name in self._named and self._named[name].conversation is conversation:
                del self._named[name]

    def idle(self, before: float) -> Iterator[Conversation]:
        """Yield the conversations without a reply since a time and without a request in flight."""
        for conversation in [*self.open.values()]:
            if conversation.last < before and not conversation.is_busy:
                yield conversation


def _followed(asked: Asked, place: int, some: Sequence[Seen]) -> list[Seen]:
    """Return those whose reply a request repeats after a place: by ids of calls or by text, and by all of it where it tells more apart."""
    after = asked.messages[place + 1 :]
    own = [*itertools.takewhile(_is_spoken, after)]
    if not own:
        return []
    body = asked.redact.clean(asked.protocol.repeated(own))
    text, uses, ids = logged_reply(body).text.strip(), asked.protocol.uses(body), {*asked.protocol.call_ids(body)}
    right = [s for s in some if (ids & {*s.called.ids} if s.called.ids else not ids and s.called.text.strip() == text)]
    return [s for s in right if s.called.text.strip() == text and s.called.uses == uses] or right


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
