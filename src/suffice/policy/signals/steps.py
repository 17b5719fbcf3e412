"""Signals of an agent's steps and of loops with a check: changes of the result, outcomes of checks, and spending.

A round of such a loop is a step, and its `answer` identifies the state of the result after the step: a digest of the
changed files or of the patch.  Steps before the first such state have no answer.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from itertools import pairwise

from suffice.common.json_text import as_number
from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import EVERY_ROUND, declare, register_signal
from suffice.policy.signals.given import WRITERS

CHECKER = "checker"
"""The capability of a loop that checks each answer."""

STEPS = "steps"
"""The capability of a loop whose rounds are the steps of an agent."""

_PYTHON = r"(?:(?:\S*/)?(?:(?:python|pypy)[\d.]*|coverage\s+run)\s+(?:-[WX]\s+\S+\s+|-(?![mc]\b)\S+\s+)*(?:-m\s+)?)?"
_TOOLS = (
    r"(?:\S*/)?(?:pytest|py\.test|unittest|doctest|nose2?|nosetests|tox|nox|mypy|pyright|pyflakes|pylint|flake8|eslint|tsc|jest|vitest"
    r"|mocha|rspec|phpunit|ctest|gotestsum|runtests|shellcheck|py_compile)(?![\w.-])"
)
_TASKS = (
    r"(?:npm|yarn|pnpm|bun|cargo|go|mvn|gradle|\S*gradlew|dotnet|make|bazel|swift|mix|rake|composer|deno)\s+(?:-\S+\s+|run\s+)*"
    r"(?:test|check|lint|vet|clippy)\S*|ruff\s+check|setup\.py\s+test|\S*manage\.py\s+test|\S*bin/test\b"
)
_SCRIPTS = r"(?:(?:bash|sh|node|ts-node|ruby|php|perl)\s+)?(?:\S*/)?[\w.-]*(?:test|repro|verif|check|demo)[\w-]*\.(?:py|sh|[cm]?[jt]s|rb|php|pl)\b"
CHECKS = re.compile(rf"{_PYTHON}(?:{_TOOLS}|{_TASKS}|{_SCRIPTS})")
"""Commands that check a result, rather than change it or look at it; matched at the program that runs."""

_COUNT = (0.0, math.inf)


class StepSignals:
    """Measures the signals of an agent's steps, one step after another, both live and in an import.

    >>> steps = StepSignals()
    >>> steps.add("pytest -q", failed=True, dollars=0.25)
    {'command_repeated': 0.0, 'tool_failed': 1.0, 'check_passed': 0.0, 'spend': 0.25}
    >>> steps.add("pytest -q", failed=False, dollars=0.25)
    {'command_repeated': 1.0, 'tool_failed': 0.0, 'check_passed': 1.0, 'spend': 0.5}

    A check does not count if the outcome of the step is not that of the check: in ``pytest | tail``, the step's outcome
    is that of ``tail``.

    Args:
        checks: A regular expression that matches the beginning of each simple command that checks the result.
    """

    def __init__(self, checks: re.Pattern[str] = CHECKS) -> None:
        self._checks = checks
        self._known: set[str] = set()
        self._spent = 0.0

    def add(
        self,
        command: str | Sequence[str] | None,
        *,
        failed: bool | Sequence[bool | None] | None = None,
        dollars: float = math.nan,
        check: bool | None = None,
    ) -> dict[str, float]:
        """Return the signals of the next step, to be passed as `Round.signals`.

        Args:
            command: The tool's call as text, or the calls of several tools; None if the step called no tool.
            failed: Whether the tool failed, or one value for each of several tools; None if unknown.
            dollars: The price of the step's own calls of models, USD; NaN if unknown, and then `spend` is unknown from
                this step on.
            check: Whether the command checks the result; None = decide by the text of the command.
        """
        commands = [command] if isinstance(command, str) else list(command or ())
        outcomes = list(failed) if isinstance(failed, Sequence) else [failed] * max(1, len(commands))
        words = " ".join(" ".join(commands).split())
        own = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
        repeated = math.nan if not words else float(own in self._known)
        self._known.add(own)
        checked = [
            one
            for text, one in zip(commands, outcomes, strict=False)
            if (check if check is not None else self._is_check(text)) and one is not None
        ]
        known = [one for one in outcomes if one is not None]
        self._spent += dollars
        return {
            "command_repeated": repeated,
            "tool_failed": float(any(known)) if known else math.nan,
            "check_passed": 1.0 - any(checked) if checked else math.nan,
            "spend": self._spent,
        }

    def _is_check(self, text: str) -> bool:
        """Return True if a command line runs a check, and the outcome of this check is that of the whole command line."""
        from suffice.common.shell import shell_commands

        decides = True
        for command in reversed(shell_commands(text)):
            decides = decides and command.after in ("", "&&")
            if decides and self._checks.match(" ".join(command.words)):
                return True
        return False


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

    0 in the round of a change. Answers are compared as they are, because they identify states. A round without an
    answer, such as a reply that only calls tools, changes nothing. NaN before the first answer.

    >>> since_change([Round(index=i, answer=state) for i, state in enumerate([None, "a1", "b2", None, "b2", None], start=1)])
    3.0
    """
    same = _same_before(rounds)
    return math.nan if same is None else float(same)


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
    same = _same_before(rounds)
    if same is None:
        return math.nan
    green = 0
    for observed in reversed(rounds[len(rounds) - 1 - same :]):
        passed = observed.signals.get("check_passed", math.nan)
        if passed == 0:
            break
        green += passed == 1
    return float(green)


@register_signal("count", _COUNT, component="", on_demand=True, reads={"costs"})
def context_tokens(rounds: Sequence[Round]) -> float:
    """Input tokens of the round's call.

    NaN where the number is unknown.
    """
    costs = rounds[-1].costs
    return next(
        (costs[name].uncached_tokens + costs[name].cached_tokens for name in WRITERS if name in costs), math.nan
    )


def _same_before(rounds: Sequence[Round]) -> int | None:
    """Return the number of rounds since the newest answer first appeared; None without an answer."""
    last, same, without = None, -1, 0
    for observed in reversed(rounds):
        if observed.answer is None:
            without += 1
        elif last in (None, observed.answer):
            last, same, without = observed.answer, same + 1 + without, 0
        else:
            break
    return None if last is None else same


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

    Below 1 the loop converges, above 1 it diverges. NaN in the first round, and after a round whose error is unknown.

    >>> [error_gain([Round(index=i, signals={"check_error": e}) for i, e in enumerate(errors, 1)]) for errors in ([4, 1], [4, 1, 2])]
    [0.25, 1.125]
    """
    errors = [as_number(observed.signals.get("check_error")) for observed in rounds]
    smoothed = math.nan
    for before, now in pairwise(errors):
        ratio = now / before if before else (0.0 if now == 0 else _FROM_NOTHING)
        smoothed = ratio if math.isnan(smoothed) else _SMOOTHING * ratio + (1 - _SMOOTHING) * smoothed
        if math.isnan(now):
            smoothed = math.nan
    return smoothed
