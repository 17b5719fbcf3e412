"""`suffice merge`: join recordings of one configuration."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, BadParameter, Option

from suffice.cli import options
from suffice.cli.groups import RecordingPath
from suffice.cli.output import Output, Screen
from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.recordings import compact_recording, merge_recordings, read_recording


def merge_command(
    paths: Annotated[
        list[RecordingPath],
        Argument(
            metavar="[OUT] RECORDING...", help="The new recording, unless -o names it, then two or more; or one folder."
        ),
    ],
    output: Output,
    out: Annotated[RecordingPath | None, Option("--out", "-o", help="The new recording, a parquet file.")] = None,
    compact: Annotated[
        bool, Option("--compact", help="Join the ended parts of one folder in place, while others append to it.")
    ] = False,
) -> None:
    """Recordings must be of one configuration: shards, prompts, or parts of a folder. They stay as they are, except with --compact.

    Example: suffice merge all.parquet first.parquet second.parquet
    """
    if compact:
        _compact(paths, out, output)
        return
    if out is None and len(paths) == 1:
        raise BadParameter("give -o FILE.parquet, or --compact to join its parts in place", param_hint="RECORDING")
    out, recordings = (paths[0], paths[1:]) if out is None else (out, paths)
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
    then = f"suffice search {quoted(out)} --space tasr-381"
    if not summary.prompts:
        then = options.replay_step(out, read_recording(out))
    output.show(summary.to_dict(), Screen(sentences=[sentence], notes=notes, then=then))


def _compact(paths: list[RecordingPath], out: RecordingPath | None, output: Output) -> None:
    if out is not None or len(paths) != 1:
        raise BadParameter("it joins the parts of one folder in place: give the folder alone", param_hint="--compact")
    summary = compact_recording(paths[0])
    sentence = f"{summary.path}: {counted(summary.before, 'part')} before, {counted(summary.after, 'part')} now"
    notes = []
    if summary.open:
        notes.append(
            f"{counted(summary.open, 'part')} with a journal: a process writes to it, or left questions that had not ended"
        )
    output.show(summary.to_dict(), Screen(sentences=[sentence], notes=notes, then=f"suffice replay {quoted(paths[0])}"))
