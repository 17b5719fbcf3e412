"""Published question sets that a file names by their ids: converted once, and again only where their settings change."""

from __future__ import annotations

import json
from pathlib import Path

from suffice.cli.converting import split_sizes
from suffice.common.tables import counted
from suffice.errors import DataError, UnsettledError
from suffice.importers.converting import convert_questions
from suffice_papers.experiments.building import stated_options
from suffice_papers.experiments.choices import DataChoice
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.stages import StageOutcome, run_stage

__all__ = ["convert_sources", "source_notes"]


def convert_sources(experiment: Experiment) -> list[StageOutcome]:
    """Write the questions of every published set that the file names, unless they are up to date.

    Raises:
        DataError: A set cannot be read, or can be read in several ways.
        MissingExtraError: A set is on the hub, and the library `datasets` is not installed.
    """
    return [_converted(item, f"{experiment.path}: data {item.name!r}") for item in experiment.data if item.origin]


def _converted(item: DataChoice, where: str) -> StageOutcome:
    path, origin = Path(item.eval), item.origin
    assert origin is not None

    def convert() -> None:
        path.parent.mkdir(exist_ok=True)
        try:
            convert_questions(
                origin.source,
                path,
                form=origin.form,
                sample=origin.sample,
                splits=None if origin.splits is None else split_sizes(origin.splits),
                seed=origin.seed,
                split=origin.split,
                config=origin.config,
                revision=origin.revision,
            )
        except UnsettledError as error:
            values = ", ".join(repr(value) for value, _ in error.choices.values())
            raise DataError(
                f"{where}: {error.question}: write the key {error.parameter!r} with one of {values}"
            ) from None

    done = run_stage(path.with_suffix(".stamp"), stated_options(origin), [path, _card(item)], convert)
    return StageOutcome(cell="", stage=f"convert {item.name}", done=done)


def _card(item: DataChoice) -> Path:
    return Path(item.eval).with_suffix(".card.json")


def source_notes(experiment: Experiment) -> list[str]:
    """Return where the questions of each published set come from, and how many rows were left out."""
    notes = []
    for item in experiment.data:
        if item.origin is None:
            continue
        card = json.loads(_card(item).read_text("utf-8"))
        left_out = sum(entry["n"] for entry in card.get("unread", ()))
        title = f" of {card['title']}" if card.get("title") else ""
        notes.append(
            f"data {item.name!r}: {counted(card['n_questions'], 'question')}{title} from {item.origin.source}, "
            f"{counted(card['n_rows'], 'row')}, of which {left_out:,} cannot be read; {_card(item)} says more"
        )
    return notes
