"""Definition and registry of signals, and their values in rounds and columns."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.json_text import as_number
from suffice.errors import DataError, NotFittedError, UnknownSignalError, did_you_mean
from suffice.policy.rounds import Floats, Round
from suffice.policy.signals.state import FittedState

_LARGEST_FLOAT = sys.float_info.max
_ROUND_FIELDS = frozenset(item.name for item in fields(Round)) - {"index"}
EVERY_ROUND = 1_000_000_000
"""The `lookback` of a signal that reads all earlier rounds."""

Compute = Callable[[Sequence[Round]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A scalar that is known at the end of a round without labels; NaN = undefined.

    Attributes:
        name: The name in rules and the column in recordings.
        compute: A function that computes the signal at the last of the given rounds; it returns NaN instead of raising.
            None if a model, a host, fitted state or the policy's view provides the value.
        range: Lowest and highest value. Values outside the range count as undefined, or are clipped if `clip` is set.
        unit: `nats`, `probability`, `bool`, `score`, `count`, `seconds`, `ratio` or `z`.
        needs: Capabilities that the model or the host must provide, as named in `Answerer.capabilities`.
        source: Paper and section.
        component: The component whose call produces the signal; "" if the signal is free.
        first_round: The first round at which the signal may be defined; reading the signal in an earlier round costs nothing.
        last_round: The last round at which the signal may be defined; None = no limit.
        lookback: Number of earlier rounds that the signal reads; `EVERY_ROUND` = all of them.
        fitted: Whether the signal needs state fitted on tune questions.
        clip: Whether values out of range, even infinite ones, are clipped to the range instead of being undefined.
        on_demand: Whether the signal is computed only where a policy reads it, so that a recording does not contain it
            unasked.
        reads: Fields of `Round` that `compute` reads, or ``signals.<name>`` for a single measured signal. If two series
            of `lookback` + 1 rounds are equal in these fields, their signals are equal, and an import computes the signal
            only once. Empty = `compute` may read anything.
        doc: The meaning of the signal, in one line.
    """

    name: str
    compute: Compute | None = None
    range: tuple[float, float]
    unit: str
    needs: frozenset[str] = frozenset()
    source: str = ""
    component: str = "generator"
    first_round: int = 0
    last_round: int | None = None
    lookback: int = 0
    fitted: bool = False
    clip: bool = False
    on_demand: bool = False
    reads: AbstractSet[str] = frozenset()
    doc: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DataError(f"a signal's name must be an identifier, because rules contain it; got {self.name!r}")
        if not self.range[0] <= self.range[1]:
            raise DataError(f"signal {self.name!r}: the range must go from low to high, got {self.range!r}")
        object.__setattr__(self, "reads", frozenset(self.reads))
        unknown = sorted(name for name in self.reads if name not in _ROUND_FIELDS and not name.startswith("signals."))
        if unknown:
            raise DataError(
                f"signal {self.name!r} reads {unknown[0]!r}, which no round has; its fields are: "
                f"{', '.join(sorted(_ROUND_FIELDS))}"
            )

    def may_exist(self, r: int) -> bool:
        """Return True if the signal may be defined at round `r`.

        >>> SIGNALS["p_known"].may_exist(0), SIGNALS["p_known"].may_exist(1), SIGNALS["overlap"].may_exist(1)
        (True, False, False)
        """
        return r >= self.first_round and (self.last_round is None or r <= self.last_round)

    def clean(self, value: object) -> float:
        """Return `value` if it is a number in range, else NaN.

        A number out of range is clipped if `clip` is set, or if only rounding put it out of range.

        >>> SIGNALS["answer_margin"].clean(float("inf")), SIGNALS["p_correct"].clean(1.5), SIGNALS["p_correct"].clean(1 + 1e-7)
        (30.0, nan, 1.0)
        """
        numeric = as_number(value)
        low, high = self.range
        if low <= numeric <= high and -math.inf < numeric < math.inf:
            return numeric
        clipped = min(max(numeric, low), high)
        return clipped if self.allows(numeric) or (self.clip and not math.isnan(numeric)) else math.nan

    def allows(self, number: float) -> bool:
        """Return True if a finite number is in range, apart from rounding errors.

        For example, one minus a cosine in single precision can be -4e-7.
        """
        return math.isfinite(number) and self.range[0] - ROUNDING <= number <= self.range[1] + ROUNDING


ROUNDING = 1e-6
"""A value that is out of a signal's range by no more is at its end."""

_REGISTRY: dict[str, Signal] = {}

SIGNALS: Mapping[str, Signal] = MappingProxyType(_REGISTRY)
"""All signals by name, built in and registered."""


def add_signal(signal: Signal) -> Signal:
    """Add a signal to `SIGNALS` and return it.

    Raises:
        DataError: The name is already registered.
    """
    if signal.name in _REGISTRY:
        raise DataError(
            f"the signal {signal.name!r} is already registered: {_REGISTRY[signal.name].doc} Choose another name"
        )
    _REGISTRY[signal.name] = signal
    return signal


def declare(name: str, doc: str, unit: str, range: tuple[float, float], *needs: str, **fields: Any) -> Signal:  # noqa: A002
    """Register a signal by its fields; without `compute`, its value comes from a model, a host, fitted state or the policy.

    Args:
        name: Name of the signal, see `Signal`.
        doc: Its meaning, in one line.
        unit: Unit of its values.
        range: Lowest and highest value.
        needs: Capabilities that the model or the host must provide.
        fields: Further fields.

    Raises:
        DataError: The name is already registered.
    """
    return add_signal(Signal(name=name, doc=doc, unit=unit, range=range, needs=frozenset(needs), **fields))


def register_signal(
    unit: str,
    range: tuple[float, float],  # noqa: A002
    *needs: str,
    name: str = "",
    **fields: Any,
) -> Callable[[Compute], Compute]:
    """Register the decorated function as a signal; the first line of the function's docstring becomes `Signal.doc`.

    Args:
        unit: Unit of its values.
        range: Lowest and highest value.
        needs: Capabilities that the model or the host must provide.
        name: The signal's name; default: the name of the function.
        fields: Further fields of `Signal`.

    Raises:
        DataError: The name is already registered.
    """

    def decorate(compute: Compute) -> Compute:
        doc = (compute.__doc__ or "").partition("\n")[0]
        declare(name or getattr(compute, "__name__", ""), doc, unit, range, *needs, compute=compute, **fields)
        return compute

    return decorate


def compute_signals(
    rounds: Sequence[Round], names: Iterable[str] | None = None, *, state: Mapping[str, FittedState]
) -> dict[str, float]:
    """Return the signals of the last of `rounds`, by name; NaN where undefined.

    A value in `Round.signals` takes precedence over a computed value.  Before the signal's `first_round` and after its
    `last_round` the signal is NaN in any case.

    >>> rounds = [Round(index=1, answer="the Tempest"), Round(index=2, answer="Tempest")]
    >>> compute_signals(rounds, ["answer_stable", "answer_margin"], state={})
    {'answer_stable': 1.0, 'answer_margin': nan}

    Args:
        rounds: The rounds so far, in order, at least one.
        names: The signals; None = all available signals, which are measured, computed, or have fitted state in `state`.
        state: Fitted state by signal.

    Raises:
        NotFittedError: A signal in `names` needs fitted state, but neither `state` nor the round contains it.
        UnknownSignalError: A signal in `names` is not registered and not in any round.
        DataError: There are no rounds.
    """
    if not rounds:
        raise DataError("rounds is empty: give at least one")
    if names is None:
        names = _available(rounds[-1], state)
    return {name: _signal_value(name, rounds, state) for name in names}


def _available(last: Round, state: Mapping[str, FittedState]) -> list[str]:
    known = [
        name
        for name, signal in _REGISTRY.items()
        if name in last.signals
        or (not signal.on_demand and (name in state or (signal.compute is not None and not signal.fitted)))
        if last.thinking is not None
        or "thinking" not in signal.needs  # of a loop that does not think there is nothing to say
    ]
    return known + [name for name in last.signals if name not in _REGISTRY]


def _signal_value(name: str, rounds: Sequence[Round], state: Mapping[str, FittedState]) -> float:
    last = rounds[-1]
    signal = _REGISTRY.get(name)
    if signal is None:
        return _unregistered_value(name, rounds)
    if not signal.may_exist(last.index):
        return math.nan
    if name in last.signals:
        return signal.clean(last.signals[name])
    if signal.fitted:
        fitted = state.get(name)
        if fitted is None:
            raise NotFittedError(
                f"signal {name!r} needs state fitted on tune questions, but it is missing (available: "
                f"{', '.join(sorted(state)) or 'nothing'}). Run `suffice calibrate` on a recording of tune questions and "
                "use the resulting policy, or put the value into Round.signals"
            )
        return signal.clean(fitted.compute(rounds))
    return math.nan if signal.compute is None else signal.clean(signal.compute(rounds))


def _unregistered_value(name: str, rounds: Sequence[Round]) -> float:
    """Return the value of a host's signal that is not registered."""
    if name in rounds[-1].signals:
        value = as_number(rounds[-1].signals[name])
        return value if math.isfinite(value) else math.nan
    if any(name in earlier.signals for earlier in rounds):
        return math.nan
    raise UnknownSignalError(
        f"signal {name!r} is not registered, and no round contains it.{did_you_mean(name, _REGISTRY)} Registered: "
        f"{', '.join(sorted(_REGISTRY))}. "
        "Register it, or put its value (NaN where undefined) into Round.signals"
    )


def clean_column(name: str, column: Floats, *, index: npt.NDArray[np.int64] | None = None) -> Floats:
    """Apply `Signal.clean` to a recorded column.

    Infinite values and values out of the signal's range become NaN, or are clipped (`answer_margin`).

    >>> clean_column("answer_margin", np.array([float("inf"), -1.0, float("nan")]))
    array([30.,  0., nan])

    Args:
        name: The signal. If it is not registered, only infinite values become NaN.
        column: Shape ``(..., n_rounds)``, NaN where undefined.
        index: The round of each entry of the last axis, in any order, shape ``(n_rounds,)``. If it is given, values
            before the signal's `first_round` and after its `last_round` become NaN, as in a live session.
    """
    signal = _REGISTRY.get(name)
    if signal is None:
        finite = np.isfinite(column)
        return column if finite.all() else np.where(finite, column, np.nan)
    low, high = signal.range
    if signal.clip:
        cleaned = np.minimum(np.maximum(column, low), high)  # np.clip takes three times as long on short columns
    else:
        low, high = (
            max(low, -_LARGEST_FLOAT),
            min(high, _LARGEST_FLOAT),
        )  # so that infinite values are out of range as well
        outside = (column < low) | (column > high)
        cleaned = column
        if outside.any():
            by_rounding = (column >= low - ROUNDING) & (column <= high + ROUNDING)
            cleaned = np.where(outside, np.where(by_rounding, np.clip(column, low, high), np.nan), column)
    if index is None:
        return cleaned
    if signal.last_round is not None:
        cleaned = np.where(index <= signal.last_round, cleaned, np.nan)
    return np.where(index >= signal.first_round, cleaned, np.nan) if (index < signal.first_round).any() else cleaned


FREE = frozenset({"", "generator", "retrieval"})
"""The components whose signals come with every round, without a call of their own."""

_FIELDS_OF_NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "costs": "costs",
        "embedding": "embedding",
        "feedback": "feedback",
        "logprobs": "answer_tokens",
        "passages": "passages",
        "pool_scores": "pool_scores",
        "thinking": "thinking",
        "token_logprobs": "answer_tokens",
        "verbal_confidence": "text",
    }
)


def lacking(name: str, observed: Round, value: float) -> str | None:
    """Return the reason why a signal is undefined at a round; None if it is defined, or if it may be undefined there.

    The reason names the fields that the round lacks, or a value that the host gave. A host may give NaN as a value. A
    value out of the signal's range is reported, because it indicates an error of the host.

    >>> lacking("answer_margin", Round(index=1, answer="Oslo"), float("nan"))
    'answer_tokens'

    Args:
        name: A measured signal.
        observed: The round.
        value: The signal as computed for this round; NaN if undefined.
    """
    if not math.isnan(value):
        return None
    known = SIGNALS.get(name)
    if name in observed.signals:
        numeric = as_number(observed.signals[name])
        if known is None or not math.isfinite(numeric) or not known.may_exist(observed.index):
            return None
        return f"value in [{known.range[0]:g}, {known.range[1]:g}], but {numeric!r}"
    fields = (
        sorted({_FIELDS_OF_NEEDS[need] for need in known.needs if need in _FIELDS_OF_NEEDS})
        if known is not None
        else []
    )
    if known is not None and known.reads == {"text"}:
        fields = ["text"]
    if not fields:
        computed = known is not None and known.compute is not None and not known.needs  # from the answers alone
        return None if computed else "value"
    # Costs that lack the summed kind count as missing.
    has_field = any(_is_there(getattr(observed, field)) for field in fields if field != "costs")
    return None if has_field else " or ".join(fields)


def _is_there(value: object) -> bool:
    return value is not None and not (isinstance(value, tuple | str) and not value)
