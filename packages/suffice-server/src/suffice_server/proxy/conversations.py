"""Find the conversation that a request belongs to: by a header, by ids of tool calls, or by the repeated messages.

A client sends all messages so far with each request, unless it names the reply that it continues from.  A request that
begins with the last request and reply of a conversation therefore continues this conversation.  A request that has the
task of a conversation and answers its tool calls continues it too.  A request with another task must answer tool calls whose
ids were drawn at random, since many servers number tool calls from 0.  If no rule applies, for example because the proxy has
not seen the earlier messages, a new conversation begins and is marked as unsure.
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
"""The kind of a reply: a round of its conversation (`main`), or a side call, such as a subagent's (`side`)."""

_QUOTED = 60
"""Number of characters from which on a line is too long to be shared by two conversations by chance."""
_RELATED = 0.5
"""Least share of the task's words that a further prompt of the same run repeats."""
_DRAWN = re.compile(r"(?=[a-zA-Z]*\d)(?=\d*[a-zA-Z])[a-zA-Z\d]{9}")
"""Matches ids of tool calls that were drawn at random, unlike `call_0` or `functions.bash:0`, which several conversations may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """A reply and its place in a conversation.

    Attributes:
        branch: The kind of the reply: a round, or a side call, such as a subagent's.
        number: The number of the round; a round that was requested again has several replies.
        chain: The hash of all messages of the request.
        digest: The hash of the request.
        called: The reply.
        dollars: The cost of the reply, USD; NaN if unknown.
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
    """An open conversation.

    Attributes:
        id: The id of the conversation, by which clients report the outcome.
        task: The question.
        name: The question's id: the client's key, or a hash of the task.
        key: The client's key; "" without one.
        why: The reason why rounds may be missing or belong to another conversation; "" if there is no doubt.
        replies: The replies of rounds and side calls, in order.
        results: The answered tool calls, by id: True if the tool failed, False if not, None if unknown.
        last: The time of the last reply, seconds since 1970.
        waiting: The ids of the tool calls of the last round.
        tip: The request and reply of the last round.
        asking: The hash of the last request for a round; this request may be in flight.
        tools: A hash of the tools that the requests offer.
        ways: The model, tools and system prompt of each kind of request.
        repeats: True if requests repeat the earlier messages.
        busy: Number of requests in flight, for rounds and for side calls.
        calm: Event that is set when a request ends.
        size: The size of the stored replies, bytes.
        begun: Number of requests that asked for a round.
        stored: Number of rows in the journal.
        stopped: True if the policy has ended the conversation.
        full: True if the conversation is too large to store further replies.
        storing: Lock that is held while a reply is stored.
        live: The recorder's rounds and session for decisions; None until needed.
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
        """True if no further reply is expected.

        This is so if the last round called no tool, if the policy has ended the conversation, or if it is full.
        """
        return bool(self.replies) and (not self.waiting or self.stopped or self.full)

    @property
    def is_busy(self) -> bool:
        """True if a request for a round or a side call is in flight."""
        return any(self.busy.values())

    def doubt(self, why: str) -> None:
        """Note a reason for doubt, see `why`; only the first reason is kept."""
        self.why = self.why or why

    def unanswered(self) -> None:
        """Note that the last request for a round got no reply, so that the next request is for the same round."""
        self.begun -= 1
        self.asking = self.tip.digest if self.tip else ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that was answered.

    Attributes:
        conversation: The conversation that the request belongs to.
        branch: The kind of the reply: a round, or a side call, such as a subagent's.
        digest: The hash of the request.
        called: The reply.
    """

    conversation: Conversation
    branch: Branch
    digest: str
    called: Called

    @property
    def is_last(self) -> bool:
        """True for the conversation's latest request for a round, and for every side call (such as a subagent's)."""
        return self.branch == "side" or self.digest == self.conversation.asking


class Conversations:
    """The open conversations, found by id, by the client's key, by a reply's id, or by repeated messages."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Conversation] = OrderedDict()
        self._keys: dict[str, Conversation] = {}
        self._named: dict[str, Seen] = {}
        self._chains: dict[str, list[Seen]] = {}

    def find(self, asked: Asked) -> tuple[Conversation, Branch]:
        """Return the conversation of a request, perhaps a new one, and whether the reply is a round or a side call."""
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
        """Return the answered requests that a request may continue or repeat, and a reason for doubt; "" without doubt."""
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
        """Return whether a request answers the last tool calls of a conversation.

        Equal ids are not enough, since another conversation may use the same ids.
        """
        ids = one.waiting & asked.results.keys()
        is_own = one is known if asked.key else one.task == asked.task or any(map(_DRAWN.search, ids))
        return bool(ids) and is_own

    @staticmethod
    def _is_fork(asked: Asked, seen: Seen) -> bool:
        """Return whether a new request branches off instead of continuing the conversation.

        It does if it leaves the last tool calls unanswered or, without a key, continues from an earlier round.
        """
        waiting = seen.conversation.waiting
        if asked.digest == seen.digest or (asked.is_retry and asked.digest == seen.conversation.asking):
            return False
        return bool(waiting and not waiting & asked.results.keys()) or not (asked.key or seen.is_last)

    @staticmethod
    def _branch(asked: Asked, known: Conversation) -> Branch:
        """Decide whether a request is for a new round or a side call; it has a known key, and repeats no messages."""
        beside = known.busy["main"] or (known.waiting and not known.waiting & set(asked.results))
        return "side" if beside or (known.tools and asked.tools != known.tools) else "main"

    def _quoted(self, asked: Asked) -> tuple[Conversation | None, str]:
        """Return the conversation that a request continues after a compaction, or None; also return a reason for doubt, or "".

        After a compaction of the history, the first message quotes the last reply.  A request to a critic or to the next step
        of a pipeline quotes it too.  But a compaction keeps model, tools and system prompt, and follows several rounds.  The
        case is unclear for a request without tools or with another system prompt.
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
        """Add a conversation; a conversation with a client's key can also be found by this key."""
        self.open[conversation.id] = conversation
        if conversation.key:
            self._keys[conversation.key] = conversation
        return conversation

    def keyed(self, key: str) -> Conversation | None:
        """Return the open conversation with a client's key; None if no open conversation has this key."""
        return self._keys.get(key)

    def note(self, conversation: Conversation, replied: Replied) -> None:
        """Add a reply to a conversation, and index the reply, so that later requests can be matched to it."""
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
        """Yield the conversations whose last reply came before a time and that have no request in flight."""
        for conversation in [*self.open.values()]:
            if conversation.last < before and not conversation.is_busy:
                yield conversation


def _followed(asked: Asked, place: int, some: Sequence[Seen]) -> list[Seen]:
    """Return the answered requests in `some` whose reply is repeated in the messages after a place.

    If a reply is repeated exactly, only exact repetitions count.  Otherwise a call id of the reply is enough; if neither the
    reply nor the messages call a tool, the same text is enough.
    """
    after = asked.messages[place + 1 :]
    own = [*itertools.takewhile(is_spoken, after)]
    if not own:
        return []
    body = asked.redact.clean(asked.protocol.repeated(own))
    text, uses, ids = logged_reply(body).text.strip(), asked.protocol.uses(body), {*asked.protocol.call_ids(body)}
    right = [s for s in some if (ids & {*s.called.ids} if s.called.ids else not ids and s.called.text.strip() == text)]
    return [s for s in right if s.called.text.strip() == text and s.called.uses == uses] or right


def _quotes(asked: Asked, conversation: Conversation) -> bool:
    """Return whether the first message of a request contains a long line of a conversation's last reply; see `_QUOTED`."""
    text = asked.texts[0] if asked.texts else ""
    said = conversation.tip.called.text if conversation.tip and len(text) >= _QUOTED else ""
    return any(len(line) >= _QUOTED and line in text for line in map(str.strip, said.split("\n")))


def _is_related(asked: Asked, known: Conversation) -> bool:
    """Return whether a request may be a round of the conversation with the same key, although it continues no reply.

    It may if its first text is the task of the conversation or quotes the last reply, or if the endpoint stores earlier
    messages.  In a conversation whose requests do not repeat earlier messages, half of the task's words are enough, because
    the prompts of a loop are alike.
    """
    words = set(known.task.split())
    has_words = len(words & set(asked.task.split())) >= _RELATED * len(words)
    is_kept = bool(asked.protocol.key(asked.body))
    return is_kept or asked.task == known.task or _quotes(asked, known) or (has_words and not known.repeats)
