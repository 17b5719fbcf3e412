"""Recordings that come with the package (see data/DATA.md).

Some are derived from published runs, without the texts; others are chains of thought of our own model.
"""

from __future__ import annotations

from importlib.resources import as_file, files

from suffice.errors import DataError
from suffice.recordings.recording import Recording, read_recording

BUNDLED_RECORDINGS = ("self_refine_gpt4", "self_refine_dv3")
"""Drafts of two models for self-refine's sentiment reversal; `target_sentiment` is the metric."""

BUNDLED_SAMPLES = (
    "samples_date",
    "samples_aqua",
    "samples_cruxeval",
    "samples_game24",
    "panel_gsm8k",
    "panel_cruxeval",
)
"""Samples of one model and panels of many; `match` is the metric, and in `samples_game24` the signal `passed` is a check."""

BUNDLED_THOUGHTS = ("thoughts_tune", "thoughts_test")
"""Chains of thought of a tiny model about invented puzzles, with a trial answer at every checkpoint; `em` is the metric."""


BUNDLED_STEPS = ("agents_swebench",)
"""Runs of agents by step; `resolved` is the metric, and an answer stands for the state of the changed files."""

BUNDLED_VERIFIED = ("agents_hotpotqa",)
"""Runs of agents by step, with a judge's probability of success; `solved` is the metric, to be lost by giving up."""

BUNDLED_ESCALATIONS = ("escalation_router", "escalation_gpt", "escalation_llama", "escalation_yi")
"""Models in the order of price on the same questions; `right` is the metric, and `spend` the price of the attempts so far.

All but the first have the signal `answer_probability`, the model's own probability of its letter.
"""

BUNDLED_CHECKED = ("checked_loops", "checked_loops_loopgain")
"""Loops whose drafts a check reads, under a cap of 20 rounds and as LoopGain ended them; `error_free` is the metric."""

ALL_BUNDLED = (
    *BUNDLED_RECORDINGS,
    *BUNDLED_SAMPLES,
    *BUNDLED_THOUGHTS,
    *BUNDLED_STEPS,
    *BUNDLED_CHECKED,
    *BUNDLED_VERIFIED,
    *BUNDLED_ESCALATIONS,
)
"""All of them."""


def bundled_recording(name: str) -> Recording:
    """Return a recording that comes with the package.

    If the answers are drafts, the column `answer` contains hashes instead of texts; equal drafts have equal hashes.

    >>> bundled_recording("self_refine_gpt4").shape
    (480, 5)

    Raises:
        DataError: The name is unknown.
    """
    if name not in ALL_BUNDLED:
        raise DataError(f"unknown bundled recording {name!r}; allowed: {', '.join(ALL_BUNDLED)}")
    with as_file(files("suffice") / "data" / "recorded" / f"{name}.parquet") as path:
        return read_recording(path)
