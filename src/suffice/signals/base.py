"""What a signal is, which ones there are, and how their values are read from rounds and columns."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, NotFittedError, UnknownSignalError, did_you_mean
from suffice.rounds import Floats, Round
from suffice.signals.state import FittedState, number

__all__ = ["SIGNALS", "Signal", "add_signal", "clean_column", "compute_signals", "declare", "register_signal"]

_LARGEST_FLOAT = sys.float_info.max
Compute = Callable[[Sequence[Round]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A scalar that is known when a round ends, without labels.  NaN = undefined.

    Attributes:
        name: The name in rules and the column in recordings.
        compute: Its value at the last of the given rounds: causal, and NaN, never an exception, whatever the data.
            None if a model, a host, fitted state or the policy's view provides the value.
        range: Lowest and highest value; what lies outside is undefined, or clipped where `clip` is set.
        unit: `nats`, `probability`, `bool`, `score`, `count`, `seconds`, `ratio` or `z`.
        needs: What the model or the host must give, in the words of `Answerer.capabilities`.
        source: Paper and section.
        component: Whose call produces it; "" if it costs nothing.
        first_round: Undefined before this round whatever the data, so reading it there costs nothing.
        last_round: Undefined after this round whatever the data; None = it may be defined at any later one.
        lookback: How many earlier rounds it reads besides its own.
        fitted: Whether it needs state fitted on tune questions.
        clip: Whether values out of range, infinite ones too, are moved to the nearest end instead of undefined.
        doc: What it means, in a line.
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
    doc: str

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DataError(f"a signal's name must be an identifier, since rules spell it; not {self.name!r}")
        if not self.range[0] <= self.range[1]:
            raise DataError(f"signal {self.name!r}: the range must run from low to high, not {self.range!r}")

    def may_exist(self, r: int) -> bool:
        """Return whether it may be defined at round `r`.

        >>> SIGNALS["p_known"].may_exist(0), SIGNALS["p_known"].may_exist(1), SIGNALS["overlap"].may_exist(1)
        (True, False, False)
        """
        return r >= self.first_round and (self.last_round is None or r <= self.last_round)

    def clean(self, value: object) -> float:
        """Return `value` as this signal may show it: in range, or NaN; what is no number is NaN too.

        >>> SIGNALS["answer_margin"].clean(float("inf")), SIGNALS["p_correct"].clean(1.5)
        (30.0, nan)
        """
        given = number(value)
        low, high = self.range
        if low <= given <= high and -math.inf < given < math.inf:
            return given
        if self.clip and not math.isnan(given):
            return min(max(given, low), high)
        return math.nan


_REGISTRY: dict[str, Signal] = {}

SIGNALS: Mapping[str, Signal] = MappingProxyType(_REGISTRY)
"""Every signal, by name: built in and registered."""


def add_signal(signal: Signal) -> Signal:
    """Add a signal to `SIGNALS` and return it.

    Raises:
        DataError: There is one of that name.
    """
    if signal.name in _REGISTRY:
        raise DataError(f"there is a signal {signal.name!r} already: {_REGISTRY[signal.name].doc} Choose another name.")
    _REGISTRY[signal.name] = signal
    return signal


def declare(name: str, doc: str, unit: str, range: tuple[float, float], *needs: str, **fields: Any) -> Signal:  # noqa: A002
    """Register a signal by its fields; without `compute` a model, a host, fitted state or the policy provides its value.

    Args:
        name: As for `Signal`; so are the others.
        doc: What it means, in a line.
        unit: Of its values.
        range: Lowest and highest value.
        needs: What the model or the host must give.
        fields: Further fields.

    Raises:
        DataError: There is one of that name.
    """
    return add_signal(Signal(name=name, doc=doc, unit=unit, range=range, needs=frozenset(needs), **fields))


def register_signal(
    unit: str,
    range: tuple[float, float],  # noqa: A002
    *needs: str,
    name: str = "",
    **fields: Any,
) -> Callable[[Compute], Compute]:
    """Register the decorated function as a signal; the first line of its docstring says what the signal means.

    Args:
        unit: Of its values.
        range: Lowest and highest value.
        needs: What the model or the host must give.
        name: The signal's name; by default the function's.
        fields: Further fields of `Signal`.

    Raises:
        DataError: There is a signal of that name.
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

    A value in `Round.signals` wins over a computed one.  Neither counts before the signal's `first_round`, nor after
    its `last_round`.

    >>> rounds = [Round(index=1, answer="the Tempest"), Round(index=2, answer="Tempest")]
    >>> compute_signals(rounds, ["answer_stable", "answer_margin"], state={})
    {'answer_stable': 1.0, 'answer_margin': nan}

    Args:
        rounds: The rounds so far, in order, at least one.
        names: Which signals; None = all that can be had: measured, computed, and fitted as far as `state` goes.
        state: Fitted state by signal.

    Raises:
        NotFittedError: A signal in `names` needs fitted state that is not there, and the round does not bring it.
        UnknownSignalError: A signal in `names` is not registered, and no round brings it.
        DataError: There are no rounds.
    """
    if not rounds:
        raise DataError("signals are those of the last round, and there are no rounds")
    if names is None:
        names = _available(rounds[-1], state)
    return {name: _signal_value(name, rounds, state) for name in names}


def _available(last: Round, state: Mapping[str, FittedState]) -> list[str]:
    known = [
        name
        for name, signal in _REGISTRY.items()
        if name in last.signals or name in state or (signal.compute is not None and not signal.fitted)
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
                f"signal {name!r} needs state fitted on tune questions, and there is none (there is: "
                f"{', '.join(sorted(state)) or 'nothing'}). Run `suffice calibrate` on a recording of tune questions and "
                "use the policy that it writes, or put the value into Round.signals"
            )
        return signal.clean(fitted.compute(rounds))
    return math.nan if signal.compute is None else signal.clean(signal.compute(rounds))


def _unregistered_value(name: str, rounds: Sequence[Round]) -> float:
    """Return a host's own, unregistered signal."""
    if name in rounds[-1].signals:
        given = number(rounds[-1].signals[name])
        return given if math.isfinite(given) else math.nan
    if any(name in earlier.signals for earlier in rounds):
        return math.nan
    raise UnknownSignalError(
        f"signal {name!r} is not registered, and no round brings it.{did_you_mean(name, _REGISTRY)} Known are: "
        f"{', '.join(sorted(_REGISTRY))}. "
        "Register it, or put its value (NaN where undefined) into Round.signals"
    )


def clean_column(name: str, column: Floats, *, index: npt.NDArray[np.int64] | None = None) -> Floats:
    """Return a recorded column as rules may read it, shape unchanged: what `Signal.clean` does, for arrays.

    Infinite values and values out of the signal's range become NaN, or are clipped (`answer_margin`).

    >>> clean_column("answer_margin", np.array([float("inf"), -1.0, float("nan")]))
    array([30.,  0., nan])

    Args:
        name: The signal; of an unregistered one only infinite values become NaN.
        column: Shape ``(..., n_rounds)``, NaN where undefined.
        index: The rounds of the last axis, shape ``(n_rounds,)``; with it, rounds before the signal's `first_round` and
            after its `last_round` become NaN, as they are live.
    """
    signal = _REGISTRY.get(name)
    if signal is None:
        return np.where(np.isfinite(column), column, np.nan)
    low, high = signal.range
    if signal.clip:
        cleaned = np.minimum(np.maximum(column, low), high)  # np.clip takes three times as long on short columns
    else:
        low, high = max(low, -_LARGEST_FLOAT), min(high, _LARGEST_FLOAT)  # which leaves infinities out, too
        cleaned = np.where((column >= low) & (column <= high), column, np.nan)
    if index is None:
        return cleaned
    if signal.last_round is not None:
        cleaned = np.where(index <= signal.last_round, cleaned, np.nan)
    return np.where(index >= signal.first_round, cleaned, np.nan)
