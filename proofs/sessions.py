"""Claims about what decides: the live session, and the replay of a recording."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import z3
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.support import strategies

from proofs.claims import Claim, demand
from proofs.rules import anything
from proofs.solver import Refuted, fresh, refute
from proofs.symbols import Column, Scalar, paths
from suffice.errors import DataError
from suffice.policy.rounds import COST_KINDS, Cost, Decision, Reason, Round, Rounds
from suffice.policy.rules import Threshold, WeightedSum
from suffice.policy.session import Policy, Session, stops

__all__ = ["CLAIMS"]

ROUNDS, PATTERNS = 40, 8
"""The bounds: highest max_rounds of a whole session, and the most rounds of which every outcome is tried."""
EXAMPLES = settings(
    max_examples=200,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
FIRE = Threshold("fire", ">=", 1)
"""Fires where the drawn outcome says so: what a session learns of any rule is whether it fires at the last round."""


class _OneStep(Session):
    """A session in any state that is not stopped: `observe` is the real one, what it measures is nothing."""

    def __init__(self, policy: Policy, state: z3.ArithRef) -> None:
        self.policy = policy
        self.rounds = []
        self._decision = None
        self._unproven = set()  # a symbol brings whatever the rule reads
        self._ranged = {}
        self._state = state

    @property
    def next_round(self) -> Any:
        return Scalar(self._state)

    def _written(self, observed: Round) -> Rounds:
        self._accept(observed)
        member: Any = Column(z3.Function("rule_0", z3.IntSort(), z3.BoolSort()), z3.Int("n"))
        columns: dict[str, Any] = {"rule_0": member}
        return _Undrawn(columns, None, member)  # type: ignore[arg-type]

    def _stop(self, reason: Reason, view: Rounds, signals: dict[str, float], fired: str | None = None) -> Decision:
        del view, fired
        return Decision(stop=True, reason=reason, signals=signals)


class _Undrawn(Rounds):
    """Rounds of which nothing is reported, since symbols are no floats."""

    __slots__ = ("_hidden",)

    def __init__(self, columns: Any, index: Any, seen: Any) -> None:
        super().__init__({}, index, seen)
        self._hidden = columns

    def __getitem__(self, name: str) -> Any:
        return self._hidden[name]


def step_ends_the_loop_in_time() -> None:
    """See that `observe`, whatever its rule says, stops or leaves strictly fewer rounds, and none past the last."""
    state, last, index = (fresh(z3.IntSort(), name) for name in ("next_round", "max_rounds", "index"))
    policy = Policy(rule=anything(1)[0])
    object.__setattr__(policy, "max_rounds", Scalar(last))
    invariant = state <= last
    observed = Round(index=Scalar(index))  # type: ignore[arg-type]
    stopped = 0
    for path in paths(lambda: _OneStep(policy, state).observe(observed), invariant):
        facts = (invariant, path.condition)
        if path.error is not None:
            demand(isinstance(path.error, DataError), f"observe raises {path.error!r}")
            refute(index != state, *facts, what="the expected round is refused")
            continue
        refute(index == state, *facts, what="a round out of turn is taken in")
        if path.result.stop:
            stopped += 1
            demand(path.result.reason in ("rule", "max_rounds"), f"a stop for the reason {path.result.reason!r}")
        else:
            refute(index + 1 <= last, *facts, what="the loop goes on past max_rounds")
    demand(stopped > 0, "the loop never stops")


def play(policy: Policy, outcomes: list[float], answers: list[str | None] | None = None) -> tuple[Decision | None, int]:
    """Run a whole session, asking for rounds as long as it goes on; return its decision and how many rounds it took."""
    session, decision = Session(policy), None
    for position, fire in enumerate(outcomes):
        answer = answers[position] if answers else "a"
        decision = session.observe(Round(index=session.next_round, answer=answer, signals={"fire": fire}))
        if decision.stop:
            return decision, position + 1
    return decision, len(outcomes)


def whole_sessions_end_in_time() -> None:
    """See that a session stops by max_rounds at the latest, wherever its rule fires first."""
    for start, last in itertools.product((0, 1), range(1, ROUNDS + 1)):
        policy = Policy(rule=FIRE, start_round=start, max_rounds=last)
        for first in (*range(start, last + 1), None):
            outcomes = [float(r == first) for r in range(start, last + 3)]
            decision, taken = play(policy, outcomes)
            expected = last if first is None else first
            demand(
                decision is not None and decision.stop_round == expected and taken == expected - start + 1,
                f"a session of rounds {start}..{last}, whose rule fires first at {first}, took {taken} rounds",
            )


def replays_end_in_time() -> None:
    """See that every outcome of every round, defined or not, replays to a stop by max_rounds, and as a session stops."""
    for width, start in itertools.product(range(1, PATTERNS + 1), (0, 1)):
        outcomes = np.array(list(itertools.product((0.0, 1.0, math.nan), repeat=width)))
        recorded = Rounds.from_columns({"fire": outcomes}, start=start, answers=np.full(outcomes.shape, "a"))
        for length, last in itertools.product(range(1, width + 1), range(1, width + start + 1)):
            seen = np.broadcast_to(np.arange(width) < length, outcomes.shape)
            policy = Policy(rule=FIRE, start_round=start, max_rounds=last)
            found = stops(policy, Rounds(recorded.columns, recorded.index, seen, recorded.answers))
            run = min(length, last - start + 1)
            fires = outcomes[:, :run] >= 1
            expected = np.where(fires.any(axis=1), fires.argmax(axis=1), run - 1)
            where = f"{width} rounds from {start}, {length} of them recorded, max_rounds {last}"
            demand((found.rounds <= last).all(), f"a replay past max_rounds: {where}")
            demand(np.array_equal(found.position, expected), f"a stop that is not the first: {where}")
            demand(np.array_equal(found.fired, fires.any(axis=1)), f"a stop that the rule did not make: {where}")


def run_examples(run: Callable[[], None]) -> None:
    """Run a hypothesis test with warnings as errors.

    Raises:
        Refuted: It failed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run()
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        raise Refuted(" ".join(f"{type(error).__name__}: {error} {notes}".split())[:600]) from error


EXTREMES = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0, 1.0)
NUMBERS = st.floats() | st.sampled_from(EXTREMES)
ANSWERS = st.none() | st.text(max_size=4) | st.sampled_from(strategies.ANSWERS)


@st.composite
def _any_rounds(draw: st.DrawFn, policy: Policy) -> list[Round]:
    costs = st.builds(Cost, **dict.fromkeys(COST_KINDS, NUMBERS))
    return [
        Round(
            index=index,
            answer=draw(ANSWERS),
            signals={name: draw(NUMBERS) for name in strategies.MEASURED},
            costs={"generator": draw(costs), "critic": draw(costs)},
        )
        for index in range(policy.start_round, policy.max_rounds + 1)
    ]


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    return Policy(
        rule=draw(strategies.rules()),
        selector=draw(strategies.selectors()),
        start_round=draw(st.integers(0, 1)),
        max_rounds=draw(st.integers(1, 5)),
        calibrators=(strategies.CALIBRATOR,),
    )


def nothing_raises() -> None:
    """See that sessions and replays take any doubles as signals and costs, and any answers, without a word."""

    def extremes() -> None:
        for a, b in itertools.product(EXTREMES, repeat=2):
            costs = {"generator": Cost(calls=a, output_tokens=b)}
            for comparison in (">", "<="):
                rule = WeightedSum(((2.0, "x"), (-2.0, "y"), (1.0, "tokens"), (1.0, "calls")), comparison, 1)
                session = Session(Policy(rule=rule, max_rounds=2))
                session.observe_all(Round(index=r, signals={"x": a, "y": b}, costs=costs) for r in (1, 2))
                names = ("x", "y", *session.policy.raw_columns)
                raw = Rounds.from_columns(
                    {name: [[b if name == "y" else a] * 2] for name in names}, answers=[["a"] * 2]
                )
                shown = stops(session.policy, raw).view.columns.values()
                assert not any(np.isinf(column).any() for column in shown), (a, b)

    @EXAMPLES
    @given(st.data())
    def any_values(data: st.DataObject) -> None:
        policy = data.draw(_policies())
        rounds = data.draw(_any_rounds(policy))
        decision = Session(policy, missing="ignore").observe_all(rounds)
        assert decision is not None
        assert decision.stop
        assert decision.stop_round is not None
        assert decision.stop_round <= policy.max_rounds
        assert not any(map(math.isinf, decision.signals.values())), decision.signals
        raw = Rounds.from_columns(
            {name: [data.draw(st.lists(NUMBERS, min_size=5, max_size=5))] for name in policy.raw_columns}
            or {"a": [[0.0]]},
            answers=[data.draw(st.lists(ANSWERS, min_size=5, max_size=5))] if policy.raw_columns else [["a"]],
        )
        stopped = stops(policy, raw)
        assert (stopped.rounds <= policy.max_rounds).all()
        assert not any(np.isinf(column).any() for column in stopped.view.columns.values())

    run_examples(extremes)
    run_examples(any_values)


def one_reason() -> None:
    """See that live and replayed, each question ends for one and the same reason."""

    @EXAMPLES
    @given(st.data())
    def live_and_replayed(data: st.DataObject) -> None:
        drawn = data.draw(strategies.recorded())
        policy = data.draw(strategies.policies(drawn.recording))
        stopped = stops(policy, drawn.recording.rounds(policy.raw_columns))
        reasons = stopped.reasons(drawn.recording.ends, policy.max_rounds)
        for q, item in enumerate(drawn.trajectories):
            session = Session(policy)
            run = [r for r in item.rounds if policy.start_round <= r.index <= policy.max_rounds]
            seen = [session.observe(observed) for observed in run[: int(stopped.position[q]) + 1]]
            assert not any(decision.stop or decision.reason for decision in seen[:-1]), "a reason before the stop"
            decision = seen[-1] if seen and seen[-1].stop else session.end("exhausted")
            assert decision.reason == reasons[q], (decision.reason, reasons[q])
            assert (decision.fired is not None) == (decision.reason == "rule"), decision
            assert decision.stop_round == (int(stopped.rounds[q]) if run else None)

    run_examples(live_and_replayed)


CLAIMS = (
    Claim(
        "a session ends by max_rounds: each `observe` stops or leaves fewer rounds",
        "proved for all",
        "any rule, any signals, any max_rounds; by induction over rounds",
        step_ends_the_loop_in_time,
    ),
    Claim(
        "a whole session ends by max_rounds, at the round where its rule fires first",
        "up to a bound",
        f"any rule; every first stop, max_rounds up to {ROUNDS}",
        whole_sessions_end_in_time,
    ),
    Claim(
        "a replay ends by max_rounds, at the round where its rule fires first",
        "up to a bound",
        f"any rule; every outcome of up to {PATTERNS} rounds, at every length",
        replays_end_in_time,
    ),
    Claim(
        "no signal, cost or answer makes a session or a replay raise, warn or show an infinity",
        "tested",
        f"{EXAMPLES.max_examples} random questions of any doubles and texts; every two extremes",
        nothing_raises,
    ),
    Claim(
        "each question ends for one reason, the same live and replayed",
        "tested",
        f"{EXAMPLES.max_examples} random recordings and policies",
        one_reason,
    ),
)
"""The claims about sessions and replays."""
