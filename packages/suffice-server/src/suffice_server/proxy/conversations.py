"""Find the conversation that a request belongs to: by a header, by ids of tool calls, or by the messages that it repeats.

A client sends all messages so far with each request, unless it names the reply that it goes on from.  So a request goes on with the
conversation whose last request and reply it begins with, or whose tool calls it answers if it has the same task.  Ids of calls alone
decide nothing unless they were drawn at random, since many servers count them from 0.  What these do not decide, such as a
history that the proxy has not seen, begins a conversation that is marked as unsure.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from suffice.importers.calls.payloads import logged_reply
from suffice_server.proxy.asked import Asked, Way, digest_of, is_spoken
from suffice_server.proxy.protocol import Called

Branch = Literal["main", "side"]
"""Whether a reply is a round of its conversation, or a call beside it, such as a subagent's."""

_QUOTED = 60
"""Length of a line that no two conversations share by chance."""
_RELATED = 0.5
"""Share of the words of a task that a further prompt of the same run repeats."""
_DRAWN = re.compile(r"(?=[a-zA-Z]*\d)(?=\d*[a-zA-Z])[a-zA-Z\d]{9}")
"""Matches in an id of a tool call that was drawn at random; `call_0` or `functions.bash:0` are ids in other conversations, too."""


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
        ways: The model, tools and system's prompt of its requests.
        repeats: Whether its requests repeat the messages before them.
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
    ways: set[Way] = field(default_factory=set)
    repeats: bool = False
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
            found.repeats |= branch == "main" and seen.digest != asked.digest
        elif known is not None:
            found, branch = known, self._branch(asked, known)
            if branch == "main" and not doubt and not _is_related(asked, known):
                doubt = "tasks"
        else:
            quoted, unclear = (None, "") if asked.key else self._quoted(asked)
            found, branch = quoted or self._new(asked), "main"
            doubt = (doubt or unclear) if quoted is None else ""
            if quoted is None and not doubt and any(place < len(asked.chain) - 1 for place in asked.spoken):
                doubt = "history"
        if doubt:
            found.doubt(doubt)
        if branch == "main":
            if found.tools and found.tools != asked.tools:
                found.doubt("tools")
            found.tools = asked.tools or found.tools
            found.ways.add(asked.way)
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

    def _quoted(self, asked: Asked) -> tuple[Conversation | None, str]:
        """Return the conversation that a request goes on with after a compaction, and why it may be one of its own where there is none.

        Its first message then quotes the last reply, as does that of a critic, or of the next step of a pipeline.  A compaction keeps the
        model, the tools and the system's prompt, and follows several rounds.  Without tools, or with another prompt of the system, it may be either.
        """
        unclear = None
        for conversation in reversed(self.open.values()):
            alike = {way for way in conversation.ways if way[:2] == asked.way[:2]}
            if alike and conversation.begun > 1 and not conversation.waiting and _quotes(asked, conversation):
                if asked.tools and asked.way in alike:
                    return conversation, ""
                unclear = unclear or conversation
        if unclear is None:
            return None, ""
        unclear.doubt("quoted")
        return None, "quoted"

    def _new(self, asked: Asked) -> Conversation:
        task = asked.task or asked.key or "(no text)"
        name = asked.key or digest_of(task)[:12]
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
    own = [*itertools.takewhile(is_spoken, after)]
    if not own:
        return []
    body = asked.redact.clean(asked.protocol.repeated(own))
    text, uses, ids = logged_reply(body).text.strip(), asked.protocol.uses(body), {*asked.protocol.call_ids(body)}
    right = [s for s in some if (ids & {*s.called.ids} if s.called.ids else not ids and s.called.text.strip() == text)]
    return [s for s in right if s.called.text.strip() == text and s.called.uses == uses] or right


def _quotes(asked: Asked, conversation: Conversation) -> bool:
    """Return whether the first message of a request has a line of a conversation's last reply that no two share by chance."""
    text = asked.texts[0] if asked.texts else ""
    said = conversation.tip.called.text if conversation.tip and len(text) >= _QUOTED else ""
    return any(len(line) >= _QUOTED and line in text for line in map(str.strip, said.split("\n")))


def _is_related(asked: Asked, known: Conversation) -> bool:
    """Return whether a request that goes on from no reply may be a round of the run under its key, rather than another task.

    It is one if its first message is that of the run, or quotes the last reply, or if the endpoint keeps the messages before.  Where no request so far repeated the messages before it, it also
    is one if it has half of the words of the task, as the prompts of a loop have.
    """
    words = set(known.task.split())
    has_words = len(words & set(asked.task.split())) >= _RELATED * len(words)
    is_kept = bool(asked.protocol.key(asked.body))
    return is_kept or asked.task == known.task or _quotes(asked, known) or (has_words and not known.repeats)
