"""Record conversations: write each reply to a journal at once, and each ended conversation to the recording."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from suffice.common.files import PRIVATE, make_folder
from suffice.common.json_text import number_from_json, number_or_none
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay.price_lists import price_in
from suffice.evaluation.replay.prices import Price, check_priced
from suffice.importers.answers.outcomes import RESOLVED
from suffice.importers.transcripts import VisibleFiles
from suffice.importers.transcripts.runs import StepRounds, step_grades
from suffice.importers.transcripts.steps import Step
from suffice.loops import Recorder
from suffice.policy.rounds import Cost, Decision, Round
from suffice.policy.session import Policy, Session, read_reply
from suffice.policy.signals import SIGNALS
from suffice.recordings import read_recording
from suffice.recordings.amending import stored_runs
from suffice.recordings.file_locks import try_lock
from suffice.recordings.parts import part_paths
from suffice.recordings.round_journal import RoundJournal
from suffice_server.proxy.anthropic import Messages
from suffice_server.proxy.asked import Asked
from suffice_server.proxy.conversations import Branch, Conversation, Conversations, Replied
from suffice_server.proxy.openai import Chat, Responses
from suffice_server.proxy.protocol import Called

PROTOCOLS = (Chat(), Responses(), Messages())
"""The interfaces whose replies are recorded; requests to other paths are only forwarded."""

_LOG = logging.getLogger(__name__)
_BLIND = (
    "the policy reads %s, which is unknown in round %d of a conversation, and cannot end it by %s: spend needs a price for the model"
    " (--prices FILE), and of streams of chat completions stream_options={'include_usage': true}; /suffice/status counts such requests"
)
_LABEL = "conversation"
_UNPRICED = "tokens written to a cache and charged as uncached, for lack of a price"
_SHORTENED = 100
"""Number of recorded conversations after which the journal is rewritten without them."""
_RECORDED = {"end": "recorded"}
_OF_STEPS = ("command_repeated", "tool_failed", "check_passed")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits for open conversations.

    Attributes:
        idle: Seconds without a reply after which a conversation is recorded.
        conversations: Largest number of open conversations.  Beyond this number, the conversations that have been idle for
            longest are recorded.
        size: Largest size of a conversation's rounds, bytes; later replies are forwarded but not recorded.
    """

    idle: float = 3600.0
    conversations: int = 10_000
    size: int = 16 << 20


class _Live:
    """The rounds of an open conversation so far, and the session that decides on them."""

    def __init__(self, policy: Policy | None) -> None:
        self.rounds: list[Round] = []
        self.unknown = list[str]()
        self.session = None if policy is None else Session(policy, missing="ignore")
        self._position = None if policy is None else policy.answer_position
        self._steps, self._taken, self._calls_tools = StepRounds(VisibleFiles(stays=True)), set[int](), False

    def take(self, conversation: Conversation) -> None:
        """Add the conversation's new rounds; call this only after the tools of these rounds have run.

        A round also gets the costs of its side calls (such as a subagent's), and of replies that were lost and requested again.
        """
        groups: dict[int, list[Replied]] = {}
        for replied in conversation.replies:
            groups.setdefault(replied.number, []).append(replied)
        for number, replies in groups.items():
            own = [replied for replied in replies if replied.branch == "main"]
            if own and number not in self._taken:
                self._taken.add(number)
                self._add(own[-1], [replied for replied in replies if replied is not own[-1]], conversation.results)

    def _add(self, own: Replied, others: list[Replied], results: Mapping[str, bool | None]) -> None:
        called = own.called
        said = read_reply(called.body, self._position, self.rounds, index=len(self.rounds) + 1)
        answered = zip(called.uses, called.ids, strict=False)
        uses = [replace(use, failed=results.get(name), answered=name in results) for use, name in answered]
        answer = None if called.ids else said.answer
        step = Step(uses=uses, usage=called.usage, dollars=own.dollars, seconds=own.seconds, answer=answer)
        for other in others:
            step.charge(Step(usage=other.called.usage, dollars=other.dollars, seconds=other.seconds))
        self._calls_tools = self._calls_tools or bool(uses)
        measured = self._steps.add(step)
        signals = {name: v for name, v in measured.signals.items() if self._calls_tools or name not in _OF_STEPS}
        self.rounds.append(replace(said, answer=measured.answer, costs=measured.costs, signals=signals))
        if self.session is not None and self.session.decision is None:
            values = self.session.observe(self.rounds[-1]).signals
            known = {name: SIGNALS.get(self.session.policy.raw_of(name)) for name in values}
            may = {name for name, signal in known.items() if signal is None or signal.may_exist(len(self.rounds))}
            self.unknown = sorted(name for name in may if math.isnan(values[name]))


class ProxyRecorder:
    """Records the conversations of a proxy into a folder, which is a recording.

    Args:
        folder: The folder; one proxy at a time records to it.
        prices: Prices by model.
        policy: Decides when conversations end; None = only record.
        bounds: Limits.

    Raises:
        DataError: Another proxy records to the folder, the folder cannot be written, or the policy begins with round 0.
        ConfigMismatchError: The policy compares `spend` in another currency than the prices have.
        ConfigMismatchError: The folder was recorded with other settings.

    Attributes:
        counts: Counts since the start: replies, faults by status, tokens, conversations.
        dollars: Total cost of the replies whose models have prices, USD.
    """

    def __init__(
        self,
        folder: Path,
        prices: Mapping[str, Price],
        *,
        policy: Policy | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        if policy is not None and policy.start_round != 1:
            raise DataError(
                f"the policy's first round is {policy.start_round}, and a conversation's first reply is round 1: give a policy whose start_round is 1"
            )
        if policy is not None and prices:
            check_priced(policy)
        self.policy, self.bounds = policy, bounds or Bounds()
        self.counts, self.dollars = Counter[str](), 0.0
        self._known = lru_cache(maxsize=1000)(partial(_known_price, prices))  # clients name models freely
        make_folder(folder)
        self._guard = io.FileIO(folder / "proxy.lock", "a", opener=_private)
        if not try_lock(self._guard):
            self._guard.close()
            raise DataError(f"another proxy records to {str(folder)!r}: end it, or give another folder")
        self._recorder = Recorder(folder, policy=policy, missing="ignore")
        self._journal = RoundJournal(folder / "open")
        self._lock, self._amending = threading.Lock(), threading.Lock()
        self.conversations = Conversations()
        self._resume(folder)

    def _resume(self, folder: Path) -> None:
        """Load the conversations that were open when the proxy ended, except those that are already in the recording."""
        content = self._journal.content()
        questions = [question for question in content.questions if question.ending is None] if content else []
        known = _recorded(folder) if questions else set[str]()
        for question in questions:
            if question.run in known:
                self._journal.end(question.run, _RECORDED)
                continue
            conversation = self.conversations.add(Conversation(id=question.run, **question.fields))
            for row in question.rows:
                conversation.results |= row["results"]
                conversation.why = conversation.why or row["why"]
                conversation.tools = row["tools"] or conversation.tools
                conversation.ways.add((row["model"], row["tools"], row.get("system", "")))
                conversation.repeats |= row.get("repeats", False)
                conversation.begun = max(conversation.begun, row["number"])
                conversation.stopped = row["body"] is None
                conversation.size += len(json.dumps(row))
                if row["body"] is not None:
                    self.conversations.note(conversation, _replied(row))
            conversation.stored = len(question.rows)
            conversation.last = question.rows[-1]["time"]
        self._journal.move(lambda _: None)

    def decide(self, conversation: Conversation, asked: Asked) -> Decision | None:
        """Return the policy's decision to end a conversation before its next call; None while it continues.

        Before the decision is returned, the stop is stored with the tool results on which it is based.  If the next call
        demands more than plain text, the conversation continues and no stop is stored.

        Raises:
            DataError: The journal cannot be written.
        """
        if not conversation.replies:
            return None
        live = self._taken(conversation)
        decision = None if live.session is None else live.session.decision
        for name in live.unknown if decision is None else ():
            self.counts[f"requests decided without {name}"] += 1
            if self.counts[f"requests decided without {name}"] == 1:
                _LOG.warning(_BLIND, name, live.rounds[-1].index, name)
        if decision is not None and asked.form:
            conversation.doubt("form")
            self.counts["requests passed on after the stop"] += 1
        elif decision is not None and not conversation.stopped:
            self._commit(conversation, self._row(conversation, "main", asked, None))
            conversation.stopped = True
        return decision

    def unknown(self, conversation: Conversation) -> Sequence[str]:
        """Return the signals that the policy reads and that the last round does not have."""
        return [] if conversation.live is None else conversation.live.unknown

    def text_of(self, conversation: Conversation, decision: Decision) -> str:
        """Return the text of the round that the decision returns; if the text is blank, explain why the loop ends."""
        said = [observed for observed in self._taken(conversation).rounds if observed.index == decision.answer_round]
        if said and said[0].text.strip():
            return said[0].text
        return f"The loop was ended by its policy ({decision.fired or decision.reason}); its results so far are final."

    def store(
        self,
        conversation: Conversation,
        *,
        branch: Branch,
        number: int,
        asked: Asked,
        called: Called,
        seconds: float,
    ) -> Replied | None:
        """Store a reply, so that it survives a kill of the proxy; return None if the conversation has become too large.

        Raises:
            DataError: The journal cannot be written.
        """
        dollars = self._price(called, asked)
        kept = asked.protocol.kept(called.body)
        body = asked.redact.clean(kept)
        facts = {"number": number, "dollars": number_or_none(dollars), "seconds": seconds}
        row = {**self._row(conversation, branch, asked, body), **facts}
        with self._lock:
            self._count(called, dollars)
            conversation.size += len(json.dumps(row))
            conversation.full = conversation.full or conversation.size > self.bounds.size
            if conversation.full:
                conversation.doubt("size")
                self.counts["replies beyond the size of a conversation"] += 1
                return None
        self._commit(conversation, row)
        return _replied(row, called if body is kept else None)

    def _row(
        self, conversation: Conversation, branch: Branch, asked: Asked, body: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {
            "branch": branch,
            "number": conversation.begun,
            "protocol": asked.protocol.name,
            "chain": asked.chain[-1] if asked.chain else "",
            "digest": asked.digest,
            "tools": asked.tools,
            "model": asked.way[0],
            "system": asked.way[2],
            "repeats": conversation.repeats,
            "results": {name: failed for name, failed in asked.results.items() if name in conversation.waiting},
            "why": conversation.why,
            "time": time.time(),
            "body": body,
        }

    def _commit(self, conversation: Conversation, row: Mapping[str, Any]) -> None:
        fields = {name: getattr(conversation, name) for name in ("task", "name", "key")}
        with self._journal.together() as changes:
            if not conversation.stored:
                changes.begin(conversation.id, fields)
            changes.put(conversation.id, conversation.stored, row)
        conversation.stored += 1

    def record(self, conversation: Conversation, grade: float | None = None) -> int:
        """Write an ended conversation to the recording, and return the number of its rounds.

        Args:
            conversation: The conversation, which must not be used any more.
            grade: The success of the conversation, in [0, 1]; None = unknown.

        Raises:
            DataError: The recording cannot be written.
        """
        if conversation.replies and conversation.replies[-1].branch == "side":
            conversation.doubt("beside")  # what looked like a side call may have been the conversation itself
        live = self._taken(conversation)
        if live.rounds:
            waits = conversation.waiting - conversation.results.keys()
            labels = {
                _LABEL: conversation.id,
                "key": conversation.why or ("header" if conversation.key else "messages"),
            }
            model = conversation.tip.called.model if conversation.tip else None
            labels |= {"model": model} if model else {}
            grades = step_grades(live.rounds, math.nan if grade is None else grade)
            with self._recorder.at_once(conversation.task, question_id=conversation.name, labels=labels) as run:
                for observed, value in zip(live.rounds, grades, strict=True):
                    if not run.done:
                        run.observe(observed, metrics={} if grade is None else {RESOLVED: value})
                if not run.done:
                    run.end("failed" if waits and grade is None else "exhausted")
        if conversation.stored:
            self._journal.end(conversation.id, _RECORDED)
        with self._lock:
            self.counts["recorded conversations"] += 1
            is_due = self.counts["recorded conversations"] % _SHORTENED == 0
        if is_due:
            self._journal.move(lambda _: None)
        return len(live.rounds)

    def amend(self, name: str, grade: float) -> tuple[str, int, float]:
        """Add an outcome to a conversation that was recorded without one.

        Args:
            name: The conversation's id, or the client's key.
            grade: The success of the conversation, in [0, 1].

        Returns:
            The conversation's id, its number of rounds, and its outcome.  If an outcome was recorded earlier, this earlier
            outcome is kept and returned.

        Raises:
            NotFoundError: No recorded conversation has this name, or several have it.
            DataError: The recording cannot be written.
        """
        with self._amending:
            runs = stored_runs(self._recorder.path, _LABEL, name) or stored_runs(self._recorder.path, "cluster", name)
            if len(runs) != 1:
                many = (
                    f"{len(runs)} conversations have this name: give the id of one"
                    if runs
                    else "there is no conversation of this id"
                )
                raise NotFoundError(
                    f"{many} (the header x-suffice-conversation, or the column {_LABEL} of the recording)"
                )
            rows = runs[0].rows
            known = rows[-1].get(RESOLVED)
            if known is None:
                rounds = [Round(index=row["round"], answer=row.get("answer")) for row in rows]
                metrics = [{RESOLVED: value} for value in step_grades(rounds, grade)]
                self._recorder.amend(runs[0], metrics, end="exhausted" if rows[0]["end"] == "failed" else None)
            return rows[0][_LABEL], len(rows), grade if known is None else known

    def close(self) -> None:
        """Compact the recording; open conversations stay in the journal."""
        self._journal.move(lambda _: None)
        self._recorder.close()
        self._guard.close()

    def _taken(self, conversation: Conversation) -> _Live:
        live = conversation.live = conversation.live or _Live(self.policy)
        live.take(conversation)
        return live

    def _price(self, called: Called, asked: Asked) -> float:
        """Return the cost of a reply, USD; NaN if its model has no price."""
        names = [str(name) for name in (called.model, asked.body.get("model")) if name]
        price = next((price for price in map(self._known, names) if price), None)
        if price is None:
            return math.nan
        if price.taken:
            self.counts[f"replies at the price of {price.taken}"] += 1
        cost = Cost(**called.usage.costs)
        unpriced = price.unpriced(cost)
        if unpriced:
            self.counts[_UNPRICED] += int(unpriced)
        return price.of_cost(cost)

    def _count(self, called: Called, dollars: float) -> None:
        self.counts["replies"] += 1
        if math.isnan(dollars):
            self.counts["replies without tokens" if math.isnan(called.usage.output) else "replies without a price"] += 1
        else:
            self.dollars += dollars
        tokens = {**asdict(called.usage), "reasoning": called.reasoning}
        self.counts.update({f"{name} tokens": int(n) for name, n in tokens.items() if not math.isnan(n)})


def _replied(row: Mapping[str, Any], called: Called | None = None) -> Replied:
    """Return the reply in a row of the journal; the row's body is parsed again unless `called` is given."""
    protocol = next(protocol for protocol in PROTOCOLS if protocol.name == row["protocol"])
    called = replace(called, body=row["body"]) if called else protocol.reply(row["body"]) or Called(body=row["body"])
    shared = {name: row[name] for name in ("branch", "number", "chain", "digest", "seconds")}
    return Replied(**shared, called=called, dollars=number_from_json(row["dollars"]))


def _known_price(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the price of a model; None without a price.  If prices of the model differ, log a warning and return None."""
    try:
        return price_in(prices, model)
    except DataError as error:
        _LOG.warning("%s", error)
        return None


def _recorded(folder: Path) -> set[str]:
    """Return the ids of the conversations in a recording."""
    if not part_paths(folder):
        return set()
    table = read_recording(folder).table
    return set(table.column(_LABEL).to_pylist()) if _LABEL in table.column_names else set()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)
