"""Decide on one question in a framework's loop: observe each reply, and end with the best reply and the reason."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from suffice.errors import DataError, SchemaError, UnansweredError, UnknownSignalError, did_you_mean
from suffice.hosts.tracing import trace_decision
from suffice.policy.rounds import Cost, Decision, Round
from suffice.policy.session import Policy, Session, read_reply
from suffice.policy.session.sources import PolicySource, capped_policy, is_rule
from suffice.policy.signals import LOGPROB_NEEDS, SIGNALS

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import OpenQuestion, Recorder
    from suffice.loops.open_question import Ending

_log = logging.getLogger(__name__)

METADATA = "suffice"
"""The key of the decision in a framework's final message."""

REPLY_NEEDS = frozenset({"costs", "logprobs", "token_logprobs", "verbal_confidence"})
"""Capabilities of models' replies, in the terms of `Signal.needs`."""

NO_LOGPROBS = REPLY_NEEDS - LOGPROB_NEEDS
"""The capabilities of replies without log-probabilities."""

Measure = Callable[[str, str], Mapping[str, float]]
"""A function from a question and a reply to signals by name; NaN where undefined."""

FINAL_REQUEST = "Give your final answer now, from what you know so far. No tool can be called any more."
"""The message of a last call without tools, unless `final_call=` is a text of your own."""

_UNPRICED = "%d tokens of round %d were written to a cache, and the price has none for that (written, written_1h): they are charged as uncached input"
_DUE, _ANSWERED, _FAILED = "due", "answered", "failed"


class QuestionRun:
    """The run of one question, in which every reply of the model is a round.

    A run ends with the best reply and the reason for stopping.

    A reply without text, such as one that only calls tools, is a round without an answer.  Rules and selectors read the
    answer at the policy's answer position, see `reply_round`.

    >>> run = QuestionRun("answer_stable | (round >= 5)")
    >>> [run.observe(reply).stop for reply in ("The Tempest", "the Tempest.")]
    [False, True]
    >>> run.text, run.metadata()["reason"]
    ('the Tempest.', 'rule')

    Args:
        policy: Decides when to stop: a policy, a policy file (a path, or text that ends in ``.json``), or a rule or its text;
            None = the policy in `state`.  A rule must contain its own cap, such as ``| (round >= 20)``; a policy has `max_rounds`.
        question: The question, for `measure`.
        measure: Measures, for each reply, the signals that the policy reads and that are not computed from the rounds.
        recorder: Records each round when it is observed.  Create it with the same policy, or with neither policy nor cap.
            An end for the reason `cancelled` is recorded as `max_rounds`, an end at the loop's cap.
        state: The values of `to_state`, to continue that run; None begins a new one.
        price: The price of the model's tokens, such as `list_price("gpt-4o").price`, for the signal `spend`: the dollars of
            the run's calls so far.  `spend` is undefined from the first call whose tokens are not reported.  A
            `PriceFile` is read again when the file changes; each call is paid at the price of its time.
        final_call: Whether the framework makes one last call without tools if the run would end without an answer: True, or
            the text of the message to send.  The last call stays within the policy's budget: it is made after a reply that
            only calls tools, if one more round like this one would end the run.  See `final_call_due`.

    Raises:
        DataError: The policy file cannot be read, a rule has no cap on the rounds, there is neither a policy nor a state, or a
            recorder lacks the question or has another policy.
        UnknownSignalError: The policy reads a signal that replies do not contain and nothing measures.
        NotFittedError: The policy reads a calibrated signal, has no calibrator for it, and nothing measures it.
        SchemaError: `state` is not a stored run.
        ConfigMismatchError: `state` belongs to another policy, or the policy compares `spend` in another currency than that of `price`.
    """

    def __init__(
        self,
        policy: PolicySource | None = None,
        question: str = "",
        *,
        measure: Measure | None = None,
        recorder: Recorder | None = None,
        state: Mapping[str, Any] | None = None,
        price: Price | PriceFile | None = None,
        final_call: bool | str = False,
    ) -> None:
        policy = None if policy is None else _checked_policy(policy, measure, recorder, price=price)
        if not isinstance(state, Mapping | None):
            raise SchemaError(f"the state of a run is what to_state returned, not {str(state)[:80]!r}")
        if state is not None:
            self.question = str(state.get("question", ""))
            self.session = Session.from_state(state.get("session", {}), policy)
        elif policy is not None:
            self.question, self.session = question, Session(policy)
        else:
            raise DataError("a run needs a policy, or a state that contains one")
        _check_price(self.session.policy, price)
        self._measure, self._price = measure, price
        self.final_request = FINAL_REQUEST if final_call is True else final_call or ""
        self._final, held = (state or {}).get("final_call", ("", None))
        self._held = None if held is None else Round.from_dict(held)
        self._recorded: OpenQuestion | None = None
        if recorder is not None:
            if not self.question.strip():
                raise DataError("a recording needs the text of each question, and this run has none: give question=")
            if state is None:
                self._recorded = recorder.question(self.question)
            elif self.decision is None:
                self._recorded = recorder.resume({"run": "", **state})

    @property
    def decision(self) -> Decision | None:
        """The final decision; None while the loop continues."""
        return self.session.decision

    @property
    def text(self) -> str:
        """The reply of the round whose answer is returned; empty while the loop continues, or if no reply has an answer."""
        decision = self.decision
        if decision is None or decision.answer_round is None:
            return ""
        return next(item.text for item in self.session.rounds if item.index == decision.answer_round)

    @property
    def is_last(self) -> bool:
        """True if the returned answer comes from the newest round."""
        decision = self.decision
        return decision is not None and decision.answer_round == self.session.rounds[-1].index

    @property
    def final_call_due(self) -> bool:
        """True if the framework is to make its last call now, without tools, and `observe` the reply."""
        return self._final == _DUE and self.decision is None

    def observe(self, reply: Any, *, cost: Cost | None = None) -> Decision:
        """Observe one reply and decide; the reply of a last call ends the run.

        Args:
            reply: The text of the reply, empty if it only calls tools; or a client's response, see `Round.from_response`.
            cost: The cost of the call; None = as reported by the reply (for a text, tokens are unknown).

        Raises:
            DataError: The run has ended, `reply` is neither text nor a response, or `measure` did not return numbers by
                name.
            UnknownSignalError: The policy reads a signal that nothing measures.
        """
        observed = self._measured(reply, cost)
        if self.final_call_due:
            self._final, self._held = _ANSWERED if observed.answer is not None else _FAILED, None
            decision = self._decide(observed)
            return decision if decision.stop else self.end("cancelled")
        only_tools = bool(self.final_request) and self.decision is None and observed.answer is None
        if only_tools and not self._has_answer and self.session.would_stop(observed):
            self._final, self._held = _DUE, observed
            return Decision(stop=False)
        decision = self._decide(observed)
        if only_tools and not decision.stop and self.session.would_stop(self._one_more(observed)):
            self._final = _DUE
        return decision

    @contextmanager
    def last_call(self) -> Iterator[Callable[..., Decision]]:
        """Yield the function that observes the reply of the last call, and end the run after the `with` block.

        An exception in the block is logged and not raised; the run then ends with the best earlier answer, or without an
        answer.

        >>> run = QuestionRun("round >= 2", final_call=True)
        >>> run.observe("").stop, run.final_call_due
        (False, True)
        >>> with run.last_call() as observe:
        ...     decision = observe("Oslo")
        >>> run.text, run.metadata()["final_call"]
        ('Oslo', 'answered')
        """
        _log.info("round %d: one last call without tools", self.session.next_round)
        try:
            yield self.observe
        except Exception as error:  # noqa: BLE001 - the earlier rounds must not be lost
            _log.warning("the last call failed: %s: %.200s", type(error).__name__, error)
        if self.decision is None:
            self.end("cancelled")

    def at_limit(self) -> None:
        """End the run at the framework's own limit; if no reply has an answer and `final_call` is set, a last call is due first."""
        if self.final_request and self.decision is None and not self._has_answer:
            self._final = _DUE
        if not self.final_call_due:
            self.end("cancelled")

    @property
    def _has_answer(self) -> bool:
        return any(item.answer is not None for item in self.session.rounds)

    def _measured(self, reply: Any, cost: Cost | None) -> Round:
        """Return the round of a reply with its costs and all signals.

        If a last call replaces the round before it, the costs of both calls are added.
        """
        observed = reply_round(self.session, reply)
        if self._measure is not None and observed.answer is not None:
            measured = self._measure(self.question, observed.text)
            if not isinstance(measured, Mapping) or any(isinstance(value, str) for value in measured.values()):
                raise DataError(f"measure returns numbers by the name of their signal, not {measured!r}")
            observed = replace(observed, signals={**observed.signals, **measured})
        if cost is not None:
            observed = replace(observed, costs={"generator": cost})
        if self._held is not None and self._held.costs and observed.costs:
            both = self._held.costs["generator"] + observed.costs["generator"]
            observed = replace(observed, costs={**observed.costs, "generator": both})
        return observed if self._price is None else with_spend(self.session.rounds, observed, self._price)

    def _one_more(self, observed: Round) -> Round:
        """Return a hypothetical next round that costs as much as the newest one."""
        more = replace(observed, index=observed.index + 1)
        return more if self._price is None else with_spend(self.session.rounds, more, self._price)

    def _decide(self, observed: Round) -> Decision:
        if self._recorded is not None and self.decision is None:
            self._recorded.observe(observed)
        decision = self.session.observe(observed)
        if decision.stop:
            is_cut = decision.reason == "rule" or observed.index != self.session.policy.max_rounds
            self._report(decision, "rule" if is_cut else "max_rounds")
        return decision

    def end(self, reason: Literal["exhausted", "cancelled", "failed"] = "cancelled") -> Decision:
        """End the run with the best answer so far; if it has already ended, return its decision.

        Args:
            reason: `exhausted` if the loop ended by itself, `cancelled` if the framework's own limit ended it, or `failed`.
        """
        if self.decision is not None:
            return self.decision
        self._final = _FAILED if self._final == _DUE else self._final
        if self._held is not None:  # the round whose last call failed
            held, self._held = self._held, None
            return self._decide(held)
        decision = self.session.end(reason)
        self._report(decision, "max_rounds" if reason == "cancelled" else reason)
        return decision

    def _report(self, decision: Decision, ending: Ending) -> None:
        """Trace the decision if it ends the run, and record the end."""
        trace_decision(decision, rounds=len(self.session.rounds))
        if self._recorded is not None and not self._recorded.done:
            self._recorded.end(ending)

    def metadata(self) -> dict[str, Any]:
        """Return the decision as JSON-ready metadata for a framework's final message.

        It has the fields of `Decision`, the number of `rounds`, the `policy` that decided, and, if a last call was made,
        `final_call`: `answered` or `failed`.
        """
        decision = self.decision or Decision(stop=False)
        facts = {**decision.to_dict(), "rounds": len(self.session.rounds), "policy": self.session.policy.label}
        return facts if self._final in ("", _DUE) else {**facts, "final_call": self._final}

    def unanswered(self, kind: Any) -> UnansweredError:
        """Return the error to raise if a run has ended and no reply fits the output type.

        Args:
            kind: The type of the output.
        """
        name, n = getattr(kind, "__name__", kind), len(self.session.rounds)
        return UnansweredError(
            f"the run ended ({self.metadata()['reason']}), and none of its {n} replies could be returned as an output of the type {name}: .rounds of this error has "
            "the replies, .decision the reason; final_call=True asks once more before the end",
            self.metadata(),
            self.session.rounds,
        )

    def to_state(self) -> dict[str, Any]:
        """Return the run as JSON-ready values, for frameworks that store their state between two rounds."""
        state: dict[str, Any] = {"question": self.question, "session": self.session.to_state()}
        if self._final:
            state["final_call"] = [self._final, None if self._held is None else self._held.to_dict()]
        return state if self._recorded is None else {**state, "run": self._recorded.run}


OpenRun = Callable[..., QuestionRun]
"""A function that opens the run of a question, or of a stored state (`state=`); made by `opener`."""


def continued(open_run: OpenRun, stored: Mapping[str, Any] | None, question: str) -> QuestionRun:
    """Continue a stored run; if no run is stored, or if the stored run has ended, begin a run for the question."""
    if stored and not stored["session"]["decision"]:
        return open_run(state=stored)
    return open_run(question)


def with_spend(seen: Sequence[Round], observed: Round, price: Price | PriceFile) -> Round:
    """Return a round with the signal `spend`, the dollars of all calls so far; an unknown `spend` is NaN, with a warning.

    Args:
        seen: The earlier rounds, with their `spend`.
        observed: The round, with the costs of its calls.
        price: The price of the model's tokens.
    """
    own = sum(map(price.of_cost, observed.costs.values())) if observed.costs else math.nan
    unpriced = [sum(map(price.unpriced, one.costs.values())) for one in (*seen, observed)]
    if unpriced[-1] and not any(unpriced[:-1]):
        _log.warning(_UNPRICED, unpriced[-1], observed.index)
    if math.isnan(own):
        _log.warning("the reply of round %d reports no usage: what is spent is unknown from here on", observed.index)
    before = seen[-1].signals.get("spend", math.nan) if seen else 0.0
    return replace(observed, signals={**observed.signals, "spend": before + own})


def reply_round(session: Session, reply: Any, *, price: Price | PriceFile | None = None, **others: Any) -> Round:
    """Return the next round of a session, with the answer found at the policy's answer position in the reply.

    A reply without an answer at that position becomes a round without an answer, and a warning is logged.  The default
    position, after the marker `Answer:`, is an exception, since users may not have chosen it.  Until a reply to the
    question contains this marker, the whole reply after any thinking block is the answer.

    >>> from suffice import AnswerPosition
    >>> session = Session(Policy(rule="answer_stable", answer_position=AnswerPosition("json", "city")))
    >>> [reply_round(session, reply).answer for reply in ('{"city": "Oslo", "why": "capital"}', "Let me see.")]
    ['Oslo', None]

    Args:
        session: The session that will observe the round.
        reply: The text of the reply, or a client's response, see `Round.from_response`.
        price: The price of the model's tokens, for rules on `spend`, see `QuestionRun`.
        **others: Other fields of the round, such as `signals`, `costs` and `feedback`.

    Raises:
        DataError: The reply is neither text nor a response.
        ConfigMismatchError: The policy compares `spend` in another currency than that of `price`.
    """
    _check_price(session.policy, price)
    index, position = session.next_round, session.policy.answer_position
    observed = read_reply(reply, position, session.rounds, index=index, **others)
    if observed.answer is None and observed.text.strip():
        _log.warning("the reply of round %d has no answer at %s: the round counts as unanswered", index, position)
    return observed if price is None else with_spend(session.rounds, observed, price)


def opener(
    policy: PolicySource,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    *,
    price: Price | PriceFile | None = None,
    final_call: bool | str = False,
    gives: frozenset[str] = REPLY_NEEDS,
) -> OpenRun:
    """Return a function that starts the run of each question; the policy is checked here, before any call.

    Args:
        policy: Decides when to stop, see `QuestionRun`.
        measure: Measures signals of each reply, see `QuestionRun`.
        recorder: Records the rounds, see `QuestionRun`.
        price: The price of the model's tokens, see `QuestionRun`.
        final_call: Whether a last call without tools is made, see `QuestionRun`.
        gives: Capabilities of the framework's replies, as named in `Signal.needs`.

    Raises:
        DataError: The policy file cannot be read, a rule has no cap on the rounds, or the recorder has another policy.
        RuleSyntaxError: The text is neither a rule nor the name of a policy file.
        UnknownSignalError: The policy reads a signal that replies do not contain and nothing measures.
        NotFittedError: The policy reads a calibrated signal, has no calibrator for it, and nothing measures it.
        ConfigMismatchError: The policy compares `spend` in another currency than that of `price`.
    """
    checked = _checked_policy(policy, measure, recorder, gives, price=price)
    _check_price(checked, price)
    return partial(QuestionRun, checked, measure=measure, recorder=recorder, price=price, final_call=final_call)


def _check_price(policy: Policy, price: Price | PriceFile | None) -> None:
    """Raise if the policy compares `spend` in another currency than that of the price."""
    if price is not None:
        from suffice.evaluation.replay.prices import check_priced  # loads pyarrow

        check_priced(policy)


def _checked_policy(
    policy: PolicySource,
    measure: Measure | None,
    recorder: Recorder | None,
    gives: frozenset[str] = REPLY_NEEDS,
    *,
    price: Price | PriceFile | None = None,
) -> Policy:
    """Return the policy; raise if replies lack signals that the policy reads, or if the recorder has another policy."""
    checked = capped_policy(policy)
    if measure is None:
        checked.check()
        own = set() if price is None else {"spend"}
        absent = [name for name in checked.raw_signals if name not in SIGNALS or SIGNALS[name].needs - gives]
        absent = [name for name in absent if name not in own]
        if absent:
            hints = "".join(did_you_mean(name, SIGNALS) for name in absent if name not in SIGNALS)
            raise UnknownSignalError(
                f"the policy {checked.label!r} reads {', '.join(map(repr, absent))}, which no reply here brings and nothing "
                f"measures.{hints} Give measure=, a function of the question and the reply that returns "
                f"{{{absent[0]!r}: ...}}; or use a rule on the answers (answer_stable)"
            )
    if not callable(measure or str):
        raise DataError(f"measure is a function of the question and the reply, not {measure!r}")
    if recorder is not None:
        from suffice.loops import Recorder

        if not isinstance(recorder, Recorder):
            raise DataError(f"recorder is a Recorder, such as Recorder(path, policy=...), not {recorder!r}")
        if is_rule(policy):
            checked = replace(checked, answer_position=recorder.answer_position)  # a rule has no position of its own
        other = recorder.policy or replace(
            checked, answer_position=recorder.answer_position, start_round=recorder.start_round
        )
        if other.digest != checked.digest:
            raise DataError(
                f"the recorder has another policy, cap, first round or answer position than the policy {checked.label!r}: "
                "give both the same policy: a file, or one Policy(rule=..., max_rounds=20)"
            )
        if recorder.audit is not None:
            raise DataError(
                "the recorder has an audit, and the framework ends its loop at the stop, so every audit would be lost: "
                "record without one here, and audit in a loop of your own"
            )
    return checked


def chat_reply(text: str, *, logprobs: Any = None, finish_reason: Any = None) -> dict[str, Any]:
    """Convert a framework's reply to the form of a chat completion, for `QuestionRun.observe`.

    Args:
        text: The text of the reply.
        logprobs: The log-probabilities of a chat completion, or the list of its tokens; None if there are none.
        finish_reason: The endpoint's value; None if the framework does not pass it on.
    """
    if hasattr(logprobs, "model_dump"):
        logprobs = logprobs.model_dump()
    logprobs = {"content": logprobs} if isinstance(logprobs, list) else logprobs
    reason = None if finish_reason is None else str(finish_reason)
    return {"choices": [{"message": {"content": text}, "logprobs": logprobs, "finish_reason": reason}]}
