"""The published spaces, and spaces of the same form for a recording's own signals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from suffice.errors import DataError, NotFoundError
from suffice.evaluation.search.space import Block, Literal, Space
from suffice.policy.signals import SIGNALS

CONFIDENCE_PROMPT = "confidence_first"
"""The prompt of the second block of `tasr-381`: the confidence is asked for before the answer."""

_WITHOUT_MARGIN = (
    *("answer_stable", "calibrated_confidence", "overlap", "top_score_z_pool", "score_gap"),
    *("answer_in_evidence", "rerank_score", "judge_entailment"),
)
_WITH_MARGIN = ("p_correct", "answer_stable", "calibrated_confidence", "overlap", "top_score_z_pool", "score_gap")
_AVAILABLE = tuple(dict.fromkeys((*_WITH_MARGIN[:4], "top_score_z", "score_gap", *_WITHOUT_MARGIN)))
_LOWEST = {"overlap": 0.0}
"""Lower end of the published grids: 0, because the authors' column is 0 in round 1, where the signal is undefined here."""


def _literals(names: Iterable[str], low: Mapping[str, float] = _LOWEST) -> tuple[Literal, ...]:
    """Return one literal for each signal: a boolean must hold; other thresholds are chosen on tune questions."""
    return tuple(
        Literal(signal=name, comparison=">=", thresholds=(1.0,))
        if SIGNALS[name].unit == "bool"
        else Literal(signal=name, low=low.get(name))
        for name in names
    )


PRESETS: Mapping[str, Space] = {
    "tasr-381": Space(
        name="tasr-381",
        blocks=(
            Block(form="or", literals=_literals(_WITHOUT_MARGIN)),
            # The paper says "six of these signals" without naming them: the six that cost no other model's call.
            Block(form="or", literals=_literals(_WITHOUT_MARGIN[:6]), prompt=CONFIDENCE_PROMPT),
            Block(form="or", literals=_literals(_WITH_MARGIN)),
        ),
    ),
    "tasr-dnf-876": Space(name="tasr-dnf-876", blocks=(Block(form="dnf", literals=_literals(_WITH_MARGIN)),)),
}
"""TASR section 5.3 (381 OR subsets of three signal sets) and the sweep of its repository (876 normal forms)."""


def available(columns: Collection[str]) -> Space:
    """Return a space of the form of `tasr-dnf-876` on the available signals of TASR, including the global z-score.

    >>> available(["answer_stable", "overlap", "answer_margin"]).count
    4

    Args:
        columns: The signals that a recording has, or that can be fitted on it.

    Raises:
        DataError: None of these signals is available.
    """
    names = [name for name in _AVAILABLE if name in columns]
    if not names:
        raise DataError(
            f"the recording has none of the signals that are searched ({', '.join(_AVAILABLE)}): record or import "
            "them, or describe a space of its own signals in a TOML file"
        )
    return Space(name="available", blocks=(Block(form="dnf", literals=_literals(names, low={})),))


def votes() -> Space:
    """Return the space for independent samples: leads, posteriors, shares and windows, alone and combined.

    >>> votes().count
    143
    """
    literals = (
        Literal(signal="vote_lead", comparison=">=", thresholds=(2.0, 3.0, 4.0, 5.0, 6.0)),
        Literal(signal="posterior_majority", comparison=">=", thresholds=(0.9, 0.95, 0.99)),
        Literal(signal="vote_share", comparison=">=", thresholds=(0.6, 0.8)),
        Literal(signal="window_agreement_3", comparison=">=", thresholds=(1.0,)),
    )
    return Space(name="votes", blocks=(Block(form="and", literals=literals),))


def preset(name: str) -> Space:
    """Return a published space by name.

    Raises:
        DataError: There is no space of that name.
    """
    if name not in PRESETS:
        raise NotFoundError(
            f"there is no space {name!r}; there are: {', '.join(PRESETS)}, available, or a TOML file that describes one"
        )
    return PRESETS[name]
