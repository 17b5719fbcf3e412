"""`suffice data validate`: whether indexes, policies, decisions and recordings are as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.output import Output, Screen
from suffice.common.json_text import FIELD, load_json, was_edited
from suffice.common.provided import provided
from suffice.common.tables import Column, Table, counted
from suffice.errors import NotFoundError, SchemaError, SufficeError
from suffice.recordings import read_recording

_MANIFEST = "suffice-index.json"
_SOUND = frozenset({"unchanged", "pieces unchanged", "readable", "without a hash"})
_NOTES = {
    "pieces unchanged": "pieces unchanged: an earlier release built this index without the hashes of whole files; a changed byte between the pieces "
    "is not seen",
    "readable": "readable: a recording has no hash of its content; all of its rows were read",
    "without a hash": "without a hash: an earlier release wrote the file, or another program",
}


def validate_command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Index folders, policies, decisions, recordings.")
    ],
    output: Output,
) -> None:
    """Exit code 1 if anything is damaged, edited or missing. An index of many gigabytes takes as long as reading it.

    Example: suffice data validate corpus.index policy.json
    """
    found = [(str(path), name, state) for path in paths for name, state in _states(path).items()]
    wrong = [f"{path}: {name or 'the file'} is {state}" for path, name, state in found if state not in _SOUND]
    columns = (Column("path"), Column("file"), Column("state"))
    screen = Screen(
        sentences=[f"{counted(len(found), 'file')} read: {'; '.join(wrong) if wrong else 'all are sound'}."],
        tables=[Table(title="Files", columns=columns, rows=tuple(found))],
        notes=[_NOTES[state] for state in dict.fromkeys(state for *_, state in found) if state in _NOTES],
    )
    listed = [{"path": path, "file": name, "state": state} for path, name, state in found]
    output.show({"files": listed, "sound": not wrong}, screen)
    if wrong:
        raise typer.Exit(1)


def _states(path: Path) -> dict[str, str]:
    """Return the state of each file of a path; the name of a single file is empty."""
    if not path.exists():
        raise NotFoundError(f"there is no file or folder {str(path)!r}")
    if (path / _MANIFEST).is_file():
        try:
            return dict(provided("retrieval.validate_index")(path))
        except SchemaError:
            return {_MANIFEST: "changed"}
    if path.suffix == ".json":
        try:
            data = load_json(path.read_text("utf-8"))
        except (OSError, ValueError):
            return {"": "not JSON"}
        has_hash = isinstance(data, dict) and FIELD in data
        return {"": "edited" if was_edited(data) else "unchanged" if has_hash else "without a hash"}
    try:
        recording = read_recording(path)
        recording.table.validate(full=True)
    except (SufficeError, OSError, ValueError) as error:
        return {"": f"damaged ({error})"}
    return {"": "readable"}
