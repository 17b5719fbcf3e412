"""Scales of a chart that is drawn without a browser: places, ticks and labels as Vega makes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LinearScale", "NamedScale", "formatted_number", "linear_scale", "nice_ticks"]

_STEPS = ((math.sqrt(50), 10), (math.sqrt(10), 5), (math.sqrt(2), 2))
_NICE_TICKS = 10
_MOST_ROUNDS = 10


def _tick_step(low: float, high: float, count: int) -> float:
    """Return the distance of about so many round ticks."""
    raw = (high - low) / max(1, count)
    power = math.floor(math.log10(raw))
    error = raw / 10**power
    return float(next((factor for bound, factor in _STEPS if error >= bound), 1) * 10.0**power)


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about so many round numbers of an interval.

    >>> nice_ticks(1.2, 4.9, 6)
    [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]
    >>> nice_ticks(0.31, 0.39, 4)
    [0.32, 0.34, 0.36, 0.38]
    """
    if not high > low:
        return [low]
    step = _tick_step(low, high, count)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, digits) for number in range(first, last + 1)]


def formatted_number(value: Any, spec: str = "") -> str:
    """Return a value in a format of d3, of which `~` drops the zeros at the end; texts are unchanged.

    >>> formatted_number(0.25, ".0%"), formatted_number(2.5, ",.3~f"), formatted_number(-1.234, "+.1f"), formatted_number("x")
    ('25%', '2.5', '-1.2', 'x')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if math.isnan(value):
        return ""
    text = format(value, spec.replace("~", "")) if spec else f"{value:,.10g}"
    if "~" in spec and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Numbers as pixels.

    Attributes:
        low: The value at `start`.
        high: The value at `end`.
        start: A pixel.
        end: A pixel.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: Any) -> float:
        """Return the place of a value."""
        share = (float(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """Return about so many round numbers."""
        return nice_ticks(self.low, self.high, count)


@dataclass(frozen=True, slots=True)
class NamedScale:
    """Names as pixels, in bands or at points.

    Attributes:
        names: In their order.
        start: The first pixel.
        end: The last one.
        bands: Whether a name has a band, of which a tenth is a gap, or a point.
    """

    names: Sequence[Any]
    start: float
    end: float
    bands: bool

    @property
    def step(self) -> float:
        """Pixels from a name to the next."""
        inner, outer = (0.1, 0.05) if self.bands else (1.0, 0.5)
        return (self.end - self.start) / max(1.0, len(self.names) - inner + 2 * outer)

    @property
    def width(self) -> float:
        """Pixels of a band; 0 of a point."""
        return 0.9 * self.step if self.bands else 0.0

    def __call__(self, name: Any) -> float:
        """Return the middle of a name's place."""
        inner = 0.1 if self.bands else 1.0
        free = (self.end - self.start) - self.step * (len(self.names) - inner)
        return self.start + free / 2 + self.names.index(name) * self.step + self.width / 2


def linear_scale(
    values: Sequence[float],
    span: tuple[float, float],
    *,
    domain: Sequence[float] | None,
    zero: bool,
    padding: float,
    nice: bool,
) -> LinearScale:
    """Return the scale of some values, in the order in which Vega widens the domain.

    Args:
        values: All that are drawn.
        span: The pixels of the lowest and the highest value.
        domain: The values at the ends; None = those of `values`.
        zero: Whether 0 is among them.
        padding: Pixels between the values and the ends.
        nice: Whether the ends are round numbers.
    """
    low, high = (min(domain), max(domain)) if domain else (min(values, default=0.0), max(values, default=1.0))
    pixels = abs(span[1] - span[0])
    if padding and high > low:
        middle, factor = (low + high) / 2, pixels / (pixels - 2 * padding)
        low, high = middle + (low - middle) * factor, middle + (high - middle) * factor
    if zero and not domain:
        low, high = min(low, 0.0), max(high, 0.0)
    if nice and high > low:
        low, high = _nice_ends(low, high)
    if not high > low:
        low, high = low - 0.5, low + 0.5
    return LinearScale(low, high, *span)


def _nice_ends(low: float, high: float) -> tuple[float, float]:
    """Return round ends of an interval."""
    before = math.nan
    for _ in range(_MOST_ROUNDS):
        step = _tick_step(low, high, _NICE_TICKS)
        if step == before:
            break
        low, high, before = math.floor(low / step) * step, math.ceil(high / step) * step, step
    return low, high
