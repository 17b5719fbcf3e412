"""Measure the duration of a reranker's training step, without training the reranker to the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from suffice.errors import ModelError
from suffice_gates.models._transformers_batches import is_out_of_memory, release_memory
from suffice_gates.training.preference_file import Preference
from suffice_gates.training.reranker_trainer import (
    RerankerSettings,
    in_parts,
    load_base,
    make_trainer,
    more_parts,
    planned_memory,
    quiet,
)

_STEPS = 3
"""Steps of a measurement; the first one, which also warms up, is not counted."""


def time_steps(
    model: str,
    preferences: Sequence[Preference],
    settings: RerankerSettings,
    *,
    revision: str | None = None,
    device: str | None = None,
    seed: int = 0,
) -> tuple[int, float]:
    """Time a few training steps on repeated preferences; the trained model is discarded.

    Args:
        model: Id or folder of the cross-encoder.
        preferences: Questions with positives and negatives, at least one.
        settings: Training settings; a batch is cut into more parts where memory runs out, as in training.
        revision: Revision of the model at the hub.
        device: `cpu` to train on the CPU although there is an accelerator; None for torch's default.
        seed: Seed of the row order and of dropout.

    Returns:
        The number of steps that were measured, and their seconds.

    Raises:
        MissingExtraError: The extra `torch` is not fully installed.
        ModelError: The model cannot be loaded, or memory does not suffice for one row.
    """
    from transformers.trainer_utils import SaveStrategy

    one_each = [replace(item, pos=item.pos[:1]) for item in preferences]
    repeated = [*islice(cycle(one_each), _STEPS * settings.batch)]
    plan = replace(settings, epochs=1.0, evaluations=1, warmup=0.0)
    chosen: RerankerSettings | None = None
    while True:
        with quiet(), TemporaryDirectory() as folder:
            encoder = load_base(model, plan, revision=revision, device=device, seed=seed)
            if chosen is None:
                chosen, _ = in_parts(plan, planned_memory(encoder, plan, device))
            trainer = make_trainer(encoder, repeated, (), chosen, Path(folder), device=device, seed=seed)
            trainer.args.save_strategy = SaveStrategy.NO
            clock = _clock()
            trainer.add_callback(clock)
            try:
                trainer.train()
                return len(clock.seconds) - 1, sum(clock.seconds[1:])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                lack = f"{type(error).__name__}: {error!s:.120}"
        del trainer, encoder
        release_memory()
        parts = more_parts(chosen)
        if parts is None:
            raise ModelError(f"memory does not suffice to train {model!r} with one row at a time ({lack})")
        chosen = replace(chosen, accumulate=parts)


def _clock() -> Any:
    """Return a callback of the trainer that records the seconds of each step, without the time for saving."""
    import torch
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]  # Any to mypy here
        def __init__(self) -> None:
            self.seconds: list[float] = []
            self._began = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._began = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds.append(time.perf_counter() - self._began)

    return Clock()
