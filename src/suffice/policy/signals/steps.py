"""Signals of an agent's steps, and of loops with a check: what changed, what checks say, and what was spent.

A round of such a loop is a step, and its `answer` stands for the state of the result after it: a digest of the changed
files or of the patch.  A step that nothing has come before has no answer.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from itertools import pairwise

from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import EVERY_ROUND, declare, register_signal
from suffice.policy.signals.from_policy import WRITERS

CHECKER = "checker"
"""The capability of a loop that checks each answer."""

STEPS = "steps"
"""The capability of a loop whose rounds are the steps of an agent."""

CHECKS = re.compile(
    r"\b(?:pytest|py\.test|unittest|nosetests|tox|nox|runtests(?:\.py)?|manage\.py\s+test|bin/test|ctest|jest|vitest|mocha|rspec"
    r"|phpunit|mypy|pyright|flake8|ruff\s+check|eslint|tsc"
    r"|(?:npm|yarn|pnpm|cargo|go|mvn|gradle|dotnet|make|bazel|swift|mix|rake)\s+(?:run\s+)?(?:test|check|lint|vet|clippy)\w*)\b"
)
"""Commands that check a result, rather than change it or look at it."""

_COUNT = (0.0, math.inf)


class StepSignals:
    """Measures the signals of an agent's steps, one step after another, live as in an import.

    >>> steps = StepSignals()
    >>> steps.add("pytest -q", failed=True, dollars=0.25)
    {'command_repeated': 0.0, 'tool_failed': 1.0, 'check_passed': 0.0, 'spend': 0.25}
    >>> steps.add("pytest -q", failed=False, dollars=0.25)
    {'command_repeated': 1.0, 'tool_failed': 0.0, 'check_passed': 1.0, 'spend': 0.5}

    Args:
        checks: A regular expression that is found in commands which check the result.
    """

    def __init__(self, checks: re.Pattern[str] = CHECKS) -> None:
        self._checks = checks
        self._known: set[str] = set()
        self._spent = 0.0

    def add(
        self, command: str | None, *, failed: bool | None = None, dollars: float = math.nan, check: bool | None = None
    ) -> dict[str, float]:
        """Return the signals of the next step, for `Round.signals`.

        Args:
            command: The tool's call as text; None if the step called no tool.
            failed: Whether the tool failed; None if unknown.
            dollars: The price of the step's own calls of models, USD; NaN if unknown, and then what is spent is unknown
                from there on.
            check: Whether the command checks the result; None = by its text.
        """
        words = " ".join((command or "").split())
        own = hashlib.sha256(words.encode()).hexdigest()
        repeated = math.nan if not words else float(own in self._known)
        self._known.add(own)
        is_check = check if check is not None else bool(self._checks.search(words))
        self._spent += dollars
        outcome = math.nan if failed is None else float(failed)
        return {
            "command_repeated": repeated,
            "tool_failed": outcome,
            "check_passed": 1.0 - outcome if is_check else math.nan,
            "spend": self._spent,
        }


declare(
    "command_repeated",
    "1 if the step's command was run before in this run, else 0.",
    "bool",
    (0.0, 1.0),
    STEPS,
    component="",
)
declare("tool_failed", "1 if the step's tool failed, else 0.", "bool", (0.0, 1.0), STEPS, component="")
declare(
    "check_passed",
    "1 if the step ran a check that passed, 0 if it failed; undefined where the step ran none.",
    "bool",
    (0.0, 1.0),
    STEPS,
    component="",
)
declare("spend", "Dollars of the loop's own calls so far.", "dollars", _COUNT, STEPS, component="")


@register_signal("count", _COUNT, lookback=EVERY_ROUND, on_demand=True, reads={"answer"})
def since_change(rounds: Sequence[Round]) -> float:
    """Steps since the answer last changed.

    0 where it changed.  Answers are compared as they are, since they stand for states.  NaN before the first answer.

    >>> since_change([Round(index=i, answer=state) for i, state in enumerate([None, "a1", "b2", "b2"], start=1)])
    1.0
    """
    last = rounds[-1].answer
    if last is None:
        return math.nan
    return float(_same_before(rounds, last))


@register_signal("count", _COUNT, lookback=EVERY_ROUND, on_demand=True, reads={"answer", "signals.check_passed"})
def checks_green_since_change(rounds: Sequence[Round]) -> float:
    """Checks that passed since the answer last changed, after the last one that failed.

    NaN before the first answer.

    >>> steps = [("a1", None), ("a1", 0.0), ("a1", 1.0)]
    >>> checks_green_since_change(
    ...     [Round(index=i, answer=s, signals={} if c is None else {"check_passed": c}) for i, (s, c) in enumerate(steps, 1)]
    ... )
    1.0
    """
    last = rounds[-1].answer
    if last is None:
        return math.nan
    green = 0
    for observed in reversed(rounds[len(rounds) - 1 - _same_before(rounds, last) :]):
        passed = observed.signals.get("check_passed", math.nan)
        if passed == 0:
            break
        green += passed == 1
    return float(green)


@register_signal("count", _COUNT, component="", on_demand=True, reads={"costs"})
def context_tokens(rounds: Sequence[Round]) -> float:
    """Input tokens of the round's call.

    NaN where they are unknown.
    """
    costs = rounds[-1].costs
    return next(
        (costs[name].uncached_tokens + costs[name].cached_tokens for name in WRITERS if name in costs), math.nan
    )


def _same_before(rounds: Sequence[Round], last: str) -> int:
    """Return how many rounds before the last have its answer without a change in between."""
    same = 0
    for observed in reversed(rounds[:-1]):
        if observed.answer != last:
            break
        same += 1
    return same


_SMOOTHING = 0.5
"""The weight of the latest ratio: an exponential mean over a window of 3."""
_FROM_NOTHING = 2.05
"""The ratio of an error to none before it."""

declare(
    "check_error",
    "What a check still finds, such as failing tests; 0 = nothing is left to mend.",
    "count",
    _COUNT,
    CHECKER,
    component="",
)


@register_signal(
    "ratio",
    _COUNT,
    component="",
    source="LoopGain 0.1 (2026)",
    lookback=EVERY_ROUND,
    on_demand=True,
    reads={"signals.check_error"},
)
def error_gain(rounds: Sequence[Round]) -> float:
    """Smoothed ratio of check_error to that of the round before.

    Below 1 a loop converges, above 1 it diverges.  NaN in the first round, and after a round whose error is unknown.

    >>> [error_gain([Round(index=i, signals={"check_error": e}) for i, e in enumerate(errors, 1)]) for errors in ([4, 1], [4, 1, 2])]
    [0.25, 1.125]
    """
    errors = [observed.signals.get("check_error", math.nan) for observed in rounds]
    smoothed = math.nan
    for before, now in pairwise(errors):
        ratio = now / before if before else (0.0 if now == 0 else _FROM_NOTHING)
        smoothed = ratio if math.isnan(smoothed) else _SMOOTHING * ratio + (1 - _SMOOTHING) * smoothed
        if math.isnan(now):
            smoothed = math.nan
    return smoothed
