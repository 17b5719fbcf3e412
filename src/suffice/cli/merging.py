"""`suffice merge`: recordings of one configuration as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from suffice.cli.output import Output, Screen
from suffice.files import quoted
from suffice.store import merge_recordings
from suffice.tables import counted

__all__ = ["merge_command"]


def merge_command(
    out: Annotated[Path, Argument(metavar="OUT", help="The new recording, a parquet file.")],
    recordings: Annotated[list[Path], Argument(metavar="RECORDING...", help="Two or more; they stay as they are.")],
    output: Output,
) -> None:
    """They must be of one configuration: shards of the questions, or the same questions with other prompts.

    Example: suffice merge all.parquet first.parquet second.parquet
    """
    summary = merge_recordings(out, recordings)
    prompts = (
        f" with {counted(len(summary.prompts), 'prompt')} ({', '.join(summary.prompts)})" if summary.prompts else ""
    )
    sentence = (
        f"{summary.path}: {counted(summary.questions, 'question')}{prompts}, {counted(summary.rounds, 'round')}, from "
        f"{counted(len(summary.sources), 'recording')}"
    )
    notes = list(summary.notes)
    if summary.failed:
        notes.append(f"{counted(summary.failed, 'question')} failed while recording")
    then = f"suffice search {quoted(out)} --space tasr-381" if summary.prompts else f"suffice replay {quoted(out)}"
    output.show(summary.to_dict(), Screen(sentences=[sentence], notes=notes, then=then))
