"""Compute a slider over one threshold of a policy: exact stops and outcomes of each question at every value, packed for a page."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.sweep import Held, region_of, regions
from suffice.policy.rounds import Floats
from suffice.policy.rules import Threshold, thresholds
from suffice.policy.rules.algebra import substitute
from suffice.policy.session import Policy
from suffice.verdicts.diagnostics.sweep import stack_outcomes

_BREAKS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""JSON escapes of the characters that could end a script element or a line of script."""


def json_in_html(data: Any) -> str:
    r"""Return strict JSON that is safe inside a script element.

    >>> json_in_html("</script>")
    '"\\u003c/script\\u003e"'
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_BREAKS)


def pack_bytes(data: bytes) -> str:
    """Compress bytes and encode them in base64; equal bytes give equal text."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


class Pool:
    """The arrays of a page, each of them stored once.

    An array is stored in byte planes: the first bytes of all its little-endian numbers, then the second bytes, and so
    on.  Neighbouring bytes in a plane are similar, so it compresses well.
    """

    def __init__(self) -> None:
        self.arrays: list[dict[str, Any]] = []
        self._known: dict[bytes, int] = {}

    def add(self, array: npt.NDArray[Any]) -> int:
        """Store an array (float64 or int8) unless it is stored already; return its position in `arrays`."""
        data = np.ascontiguousarray(array, dtype="<f8" if array.dtype.kind == "f" else "int8")
        key = hashlib.sha256(f"{data.dtype}{data.shape}".encode() + data.tobytes()).digest()
        if key not in self._known:
            planes = data.view(np.uint8).reshape(data.size, data.itemsize).T
            self._known[key] = len(self.arrays)
            self.arrays.append(
                {"bytes": data.itemsize, "shape": list(data.shape), "data": pack_bytes(planes.tobytes())}
            )
        return self._known[key]

    @property
    def size(self) -> int:
        """Number of characters of the arrays in the page."""
        return sum(len(array["data"]) + 60 for array in self.arrays)

    def forget(self, n: int) -> None:
        """Drop all arrays after the first `n`."""
        del self.arrays[n:]
        self._known = {key: place for key, place in self._known.items() if place < n}


_MARK = "THRESHOLD_"
_SLIDER_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """The outcome of each question at each value of one threshold; see `suffice.evaluation.replay.sweep.Regions`.

    Attributes:
        literal: The comparison whose threshold varies.
        values: The signal of each question's rounds, ascending, NaN last, shape ``(n_questions, n_rounds)``.
        rounds: The rounds of the stop positions, shape ``(n_rounds,)``.
        stops: The position of the stop in each region, -1 where there is no round, shape
            ``(n_questions, n_rounds + 1)``.
        outcomes: Metrics, `calls`, `tokens`, `seconds` and `money` of each question in each region, shape of
            `stops`; `money` only where it is known.
        by_stop: Outcomes that a stop at each position would have if the policy read no signal, shape
            ``(n_questions, n_rounds)``.
    """

    policy: Policy
    literal: Threshold
    values: Floats
    rounds: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int8]
    outcomes: Mapping[str, Floats]
    by_stop: Mapping[str, Floats]

    @property
    def closed(self) -> bool:
        """True if a value equal to the threshold counts as below it: for ``>`` and ``<=``."""
        return self.literal.comparison in (">", "<=")

    def region(self, threshold: float) -> npt.NDArray[np.int64]:
        """Return the region of each question, shape ``(n_questions,)``."""
        return region_of(self.values, threshold, closed=self.closed)

    def at(self, threshold: float) -> dict[str, float]:
        """Return the mean of every outcome at a threshold; `replay` gives the same means for this threshold."""
        rows, region = np.arange(len(self.stops)), self.region(threshold)
        return {name: float(values[rows, region].mean()) for name, values in self.outcomes.items()}

    def scale(self) -> tuple[float, float, float]:
        """Return the lowest and the highest position of the slider and its step, as round numbers.

        The ends lie one step beyond the signal's finite values, so that the comparison never fires at one end and
        always at the other.
        """
        known = self.values[np.isfinite(self.values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        low, high = min(low, self.literal.value), max(high, self.literal.value)
        width = (high - low) or max(abs(high), 1.0)
        exponent = np.floor(np.log10(width / _SLIDER_STEPS))
        step = next(s * 10.0**exponent for s in (1, 2, 5, 10) if width / (s * 10.0**exponent) <= _SLIDER_STEPS)
        return _tidy(np.floor(low / step) * step - step), _tidy(np.ceil(high / step) * step + step), _tidy(step)

    def path(self, n: int = 81) -> list[dict[str, float]]:
        """Return thresholds over the whole scale with their outcomes, leaving out thresholds that change no outcome."""
        low, high, _ = self.scale()
        known = np.unique(self.values[np.isfinite(self.values)])
        places = np.linspace(low, high, n) if len(known) >= n else np.array([low, *known.tolist(), high])
        points: list[dict[str, float]] = []
        for threshold in map(_tidy, places):
            outcome = self.at(threshold)
            if not points or any(points[-1][name] != value for name, value in outcome.items()):
                points.append({"threshold": threshold, **outcome})
        return points

    def to_dict(self, pool: Pool) -> dict[str, Any]:
        """Return JSON-ready values for the page; arrays are put into the pool.

        An outcome that depends only on the stop is stored once for all comparisons of a policy; any other outcome is stored
        for each region.
        """
        low, high, step = self.scale()
        text = str(
            substitute(self.policy.rule, self.literal, Held(self.literal.name, np.zeros(1, dtype=np.bool_), _MARK))
        )
        outcomes = {}
        for name, values in self.outcomes.items():
            table = self.by_stop[name]
            gathered = np.take_along_axis(table, np.maximum(self.stops, 0).astype(np.int64), axis=1)
            shared = np.array_equal(gathered, values, equal_nan=True) and bool((self.stops >= 0).all())
            outcomes[name] = {"array": pool.add(table if shared else values), "by": "stop" if shared else "region"}
        return {
            "policy": self.policy.label,
            "literal": str(self.literal),
            "signal": self.literal.name,
            "comparison": self.literal.comparison,
            "value": self.literal.value,
            "rule": text.split(f"({_MARK})") if f"({_MARK})" in text else text.split(_MARK),
            "parenthesised": f"({_MARK})" in text,
            "closed": self.closed,
            "low": low,
            "high": high,
            "step": step,
            "rounds": self.rounds.tolist(),
            "values": pool.add(self.values),
            "stops": pool.add(self.stops),
            "outcomes": outcomes,
        }


def _tidy(value: float) -> float:
    """Round off floating-point error, to a number that people would type."""
    return float(f"{value:.9g}")


def slidable(policy: Policy) -> list[Threshold]:
    """Return the comparisons in a policy's rule whose thresholds can vary, those on continuous signals first."""
    return sorted(thresholds(policy.rule), key=lambda literal: literal.value in (0, 1) or literal.name == "round")


def make_slider(prepared: PreparedRecording, policy: Policy, literal: Threshold) -> Slider:
    """Return the slider of one comparison in a policy's rule."""
    moved = regions(prepared, policy, literal)
    view = prepared.view(policy)
    after = np.arange(len(view)) >= np.arange(len(view))[:, None]  # row k: the rounds from position k on
    fixed = [
        run_policy(prepared, replace(policy, rule=Held("round", np.broadcast_to(mask, view.shape))))[0]
        for mask in after
    ]
    return Slider(
        policy=policy,
        literal=literal,
        values=moved.values,
        rounds=view.index,
        stops=np.stack([stopped.position for _, stopped in moved.runs], axis=1).astype(np.int8),
        outcomes=_known_outcomes([run for run, _ in moved.runs]),
        by_stop=_known_outcomes(fixed),
    )


def _known_outcomes(runs: Sequence[Run]) -> dict[str, Floats]:
    return {name: values for name, values in stack_outcomes(runs).items() if not np.isnan(values).all()}
