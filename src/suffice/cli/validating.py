"""`suffice data validate`: check that policies, decisions, session states, recordings and indexes can be read and were not changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli.output import Output, Screen
from suffice.common.json_text import FIELD, refuse_constant, unsealed, was_edited
from suffice.common.provided import provided
from suffice.common.tables import Column, Table, counted
from suffice.errors import NotFoundError, SchemaError, SufficeError
from suffice.policy.rounds import Decision
from suffice.policy.session import Policy, Session
from suffice.policy.session.policy import POLICY_FORMAT
from suffice.policy.session.state import STATE_FORMAT
from suffice.recordings import read_recording
from suffice.verdicts.decisions.advice import FORMAT as VERDICT_FORMAT, Advice

_MANIFEST = "suffice-index.json"
_READERS: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    POLICY_FORMAT: ("policy", Policy.from_dict),
    STATE_FORMAT: ("session state", Session.from_state),
    VERDICT_FORMAT: ("verdict", lambda data: Advice.from_dict(unsealed(data))),
}
"""The kinds of JSON files, and what reads each, by the field `format`; a session's decision has none."""

_DECISION: tuple[str, Callable[[Any], object]] = ("decision of a session", Decision.from_dict)
_UNSEALED = frozenset({"session state", _DECISION[0]})
"""The kinds of JSON that have no hash, since they are values between two programs."""

_COLUMNS = ("path", "kind", "file", "state")
_SOUND = frozenset({"unchanged", "pieces unchanged", "readable", "without a hash"})
_NOTES = {
    "pieces unchanged": "pieces unchanged: an earlier release built this index without the hashes of whole files; a changed byte between the pieces "
    "is not seen",
    "readable": "readable: every value was read, and compared with the checksums that the file has",
    "without a hash": "without a hash: an earlier release wrote the file, or another program",
}


def validate_command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Policies, decisions, session states, recordings, folders, indexes."),
    ],
    output: Output,
) -> None:
    """Exit code 1 if anything is damaged, edited or missing. An index of many gigabytes takes as long as reading it.

    Example: suffice data validate corpus.index policy.json
    """
    kinds = {path: _states(path) for path in paths}
    found = [(str(path), kind, name, state) for path, (kind, states) in kinds.items() for name, state in states.items()]
    wrong = [f"{path}: {name or kind} is {state}" for path, kind, name, state in found if state not in _SOUND]
    columns = tuple(map(Column, _COLUMNS))
    screen = Screen(
        sentences=[f"{counted(len(found), 'file')} read: {'; '.join(wrong) if wrong else 'all are sound'}."],
        tables=[Table(title="Files", columns=columns, rows=tuple(found))],
        notes=[_NOTES[state] for state in dict.fromkeys(state for *_, state in found) if state in _NOTES],
    )
    listed = [dict(zip(_COLUMNS, row, strict=True)) for row in found]
    output.show({"files": listed, "sound": not wrong}, screen)
    if wrong:
        raise typer.Exit(1)


def _states(path: Path) -> tuple[str, dict[str, str]]:
    """Return the kind of a path, and the state of each of its files by name; a single file has the name "".

    Raises:
        NotFoundError: There is nothing at the path.
    """
    if not path.exists():
        raise NotFoundError(f"there is no file or folder {str(path)!r}")
    if (path / _MANIFEST).is_file():
        try:
            return "index", dict(provided("retrieval.validate_index")(path))
        except SchemaError:
            return "index", {_MANIFEST: "changed"}
    if path.suffix == ".json":
        kind, state = _json_state(path)
        return kind, {"": state}
    try:
        recording = read_recording(path)
        recording.table.validate(full=True)
    except (SufficeError, OSError, ValueError) as error:
        return "recording", {"": f"damaged ({error})"}
    return "recording", {"": "readable"}


def _json_state(path: Path) -> tuple[str, str]:
    """Return the kind of a JSON file and its state: not valid, edited, unchanged, readable, or without a hash."""
    try:
        data = json.loads(path.read_text("utf-8"), parse_constant=refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        return "JSON", f"not JSON ({error})"
    fields = data if isinstance(data, dict) else {}
    unknown = (
        f"of no known kind: its field 'format' is none of {', '.join(_READERS)}, and it is not a session's decision"
    )
    if "stop" in fields and "format" not in fields:
        kind, read = _DECISION
    elif isinstance(fields.get("format"), str) and fields["format"] in _READERS:
        kind, read = _READERS[fields["format"]]
    else:
        return "JSON", unknown
    try:
        read(data)
    except SufficeError as error:
        return kind, f"not valid ({error})"
    if was_edited(data):
        return kind, "edited"
    return kind, "unchanged" if FIELD in data else "readable" if kind in _UNSEALED else "without a hash"
