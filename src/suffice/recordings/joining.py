"""Join recordings of one configuration.

The recordings are shards, or have different questions, or have the same questions and different prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suffice._version import __version__
from suffice.common.files import check_file, is_url, place
from suffice.common.identities import aligned
from suffice.common.results import Result
from suffice.common.tables import Table, counted, facts_table
from suffice.errors import ConfigMismatchError, DataError, NotFoundError
from suffice.recordings.journal import Journal, differences
from suffice.recordings.merging import MERGED, OF_ONE_FILE, common_facts, together
from suffice.recordings.recording import Recording, open_recording, read_recording, write_recording
from suffice.recordings.recording_files import JOURNAL_SUFFIX, journal_of
from suffice.recordings.shards import SHARD, Shard, listed_shards

_PROMPTS = "prompts"
"""The entry of a configuration with the settings that differ between prompts, by prompt."""

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSummary(Result):
    """Summary of a merge.

    Attributes:
        path: The recording that was written.
        sources: Number of questions by file.
        questions: Number of recorded questions; a question with several prompts counts once for each prompt.
        rounds: Number of rounds of these questions.
        prompts: The prompts, if there are several.
        failed: Questions that failed while recording.
        notes: Caveats for the reader.
    """

    path: Path
    sources: Mapping[str, int]
    questions: int
    rounds: int
    prompts: tuple[str, ...] = ()
    failed: int = 0
    notes: tuple[str, ...] = ()

    def table(self) -> Table:
        """Return the summary as a table."""
        facts = {**{f"questions of {name}": f"{n:,}" for name, n in self.sources.items()}, "rounds": f"{self.rounds:,}"}
        return facts_table("Merged recording", facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The rows and configuration of one file.

    Entries that all files must share are stored apart from the entries of each prompt.
    """

    path: Path
    recording: Recording
    shared: Mapping[str, Any]
    prompts: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, path: Path) -> _Part:
        if not path.is_file() and journal_of(path).is_file():
            raise DataError(
                f"{str(path)!r} is unfinished, its replies are in {journal_of(path).name!r}: run the command that recorded it "
                "again, then merge"
            )
        recording = read_recording(path)
        metadata = {key: value for key, value in recording.metadata.items() if key not in OF_ONE_FILE}
        config = dict(metadata.get("config") or {})
        prompts = dict(config.pop(_PROMPTS, {}))
        model = config.get("model")
        if isinstance(model, Mapping) and "prompt_id" in model:
            own = {key: value for key, value in model.items() if "prompt_" in key}
            config["model"] = {key: value for key, value in model.items() if key not in own}
            prompts = {str(model["prompt_id"]): own}
        elif not prompts and "prompt_id" in recording.table.column_names:  # imported
            column = recording.per_question("prompt_id", ())
            prompts = {str(prompt): {} for prompt in dict.fromkeys(column.tolist()) if prompt}
        depends = {k: v for k, v in (metadata.get("depends") or {}).items() if k != "prompt_id" or not prompts}
        return cls(
            path=path, recording=recording, shared={**metadata, "config": config, "depends": depends}, prompts=prompts
        )


def merge_recordings(out: str | Path, paths: Sequence[str | Path]) -> MergeSummary:
    """Join recordings of one configuration and write them as one; the files themselves stay unchanged.

    Files of one prompt must have different questions. If the same questions were recorded with several prompts, each
    run of a question gets its own id, ``ID@PROMPT``, and the question's id as the common `cluster`. Replies of failed
    questions go into the journal of the new file, so that `record` can complete the file without requesting these
    replies again. Costs stay in their rows.

    Args:
        out: The new recording. An existing file is only replaced if it also came from a merge.
        paths: The recordings, at least two, or one folder of parts.

    Raises:
        ConfigMismatchError: The files were recorded with different models, retrievers, rounds or settings. Only the
            prompts may differ.
        DataError: A question is in two files of one prompt, a recording is unfinished, or `out` exists and did not come from
            a merge.
        SchemaError: A file is damaged, or is not a recording.
    """
    out, sources = check_file(out), [place(path) for path in paths]
    _check_places(out, sources)
    parts = [_Part.of(path) for path in sources]
    _check_shared(parts)
    prompts = {name: own for part in parts for name, own in part.prompts.items()}
    named = [_named_apart(part) if len(prompts) > 1 else part.recording.table for part in parts]
    _check_questions(parts, named)
    table = together(named)
    merged = Recording(table, _metadata(parts, prompts))  # raises if a round is repeated or missing
    complete = {name for name, end in zip(merged.question_ids, merged.ends.tolist(), strict=True) if end != "failed"}
    merged.metadata["failed"] = {q: why for q, why in merged.metadata["failed"].items() if q not in complete}
    notes = [*_shard_notes(parts), *_cut_notes(parts), *_column_notes(parts), *_journals(out, parts, merged)]
    write_recording(out, table, merged.metadata)
    return MergeSummary(
        path=out,
        sources={str(part.path): part.recording.shape[0] for part in parts},
        questions=merged.shape[0],
        rounds=table.num_rows,
        prompts=tuple(prompts) if len(prompts) > 1 else (),
        failed=len(merged.metadata["failed"]),
        notes=tuple(notes),
    )


def _shard_notes(parts: Sequence[_Part]) -> list[str]:
    """Return a note if shards are missing among the given parts."""
    given: dict[tuple[str, int], set[int]] = {}
    for part in parts:
        if (shard := part.recording.metadata.get(SHARD)) is not None:
            given.setdefault((shard["dataset"]["hash"], shard["of"]), set()).add(shard["index"])
    missing = [[Shard(i, n) for i in range(1, n + 1) if i not in some] for (_, n), some in given.items()]
    return [
        f"without shard{'s' * (len(shards) > 1)} {listed_shards(shards)} of the same recording: only parts of the others were given"
        for shards in missing
        if shards
    ]


def _journaled(path: Path) -> list[Path]:
    """Return the files of a recording that have a journal: the file itself, or parts of shards."""
    journals = sorted(path.glob(f"part-*.parquet{JOURNAL_SUFFIX}")) if path.is_dir() else [journal_of(path)]
    return [journal.with_name(journal.name.removesuffix(JOURNAL_SUFFIX)) for journal in journals if journal.is_file()]


def _check_places(out: Path, sources: Sequence[Path]) -> None:
    if len(sources) == 1 and not sources[0].exists():
        raise NotFoundError(f"the recording {str(sources[0])!r} does not exist")
    places = [path.resolve() for path in sources]
    repeated = [str(path) for path, place in zip(sources, places, strict=True) if places.count(place) > 1]
    alone = len(sources) == 1 and sources[0].is_dir()
    if (len(sources) < 2 and not alone) or repeated:  # noqa: PLR2004 - two are the fewest
        said = (
            f"{repeated[0]!r} is given twice" if repeated else f"{counted(len(sources), 'recording')} cannot be merged"
        )
        raise DataError(f"{said}: give two or more, each once")
    if out.resolve() in places:
        raise DataError(f"{str(out)!r} is one of the recordings to merge: write to another file")
    if out.exists() and MERGED not in _metadata_of(out):
        raise DataError(f"{str(out)!r} exists and was not merged from others: move it away, or write to another file")


def _metadata_of(path: Path) -> Mapping[str, Any]:
    with open_recording(path) as opened:
        return opened.metadata


def _check_shared(parts: Sequence[_Part]) -> None:
    """Raise if the files differ in anything but their questions and prompts."""
    first = parts[0]
    for part in parts[1:]:
        if bool(first.prompts) != bool(part.prompts):
            raise ConfigMismatchError(
                f"{str((part if part.prompts else first).path)!r} has a prompt and the other has none: they are of different models"
            )
        changed = differences(first.shared, part.shared)
        if changed:
            more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            raise ConfigMismatchError(
                f"{str(first.path)!r} and {str(part.path)!r} were recorded with different configurations "
                f"({'; '.join(changed[:_SHOWN])}{more}): only recordings of one configuration are merged, and prompts with the "
                "answer at the same position"
            )
        for name in first.prompts.keys() & part.prompts.keys():
            if first.prompts[name] != part.prompts[name]:
                raise ConfigMismatchError(
                    f"{str(first.path)!r} and {str(part.path)!r} have other texts under the name of the prompt {name!r}"
                )


def _named_apart(part: _Part) -> pa.Table:
    """Return the rows with the prompt added to each question's id; the original id becomes the cluster."""
    table = part.recording.table
    if len(part.prompts) > 1:
        return table  # a merged file already has such ids
    (prompt,) = part.prompts
    ids = table.column("question_id").to_pylist()
    own = np.asarray([f"{name}@{prompt.split('@')[0]}" for name in ids], dtype=object)
    clusters = table.column("cluster").to_pylist() if "cluster" in table.column_names else [None] * len(ids)
    units = [name if cluster is None else cluster for name, cluster in zip(ids, clusters, strict=True)]
    columns = {"question_id": own.tolist(), "cluster": units, "prompt_id": [prompt] * len(ids)}
    for name, values in columns.items():
        field = pa.field(name, pa.string(), metadata={"kind": "identity"})
        if name in table.column_names:
            place = table.column_names.index(name)
            table = table.set_column(
                place, table.schema.field(name).with_type(pa.string()), pa.array(values, pa.string())
            )
        else:
            table = table.append_column(field, pa.array(values, pa.string()))
    return table


def _check_questions(parts: Sequence[_Part], tables: Sequence[pa.Table]) -> None:
    """Raise if a question is in two files, or has two texts."""
    places: dict[str, Path] = {}
    texts: dict[str, tuple[str, Path]] = {}
    for part, table in zip(parts, tables, strict=True):
        recording = Recording(table, part.recording.metadata)
        asked = recording.per_question("question", [None] * len(recording.question_ids)).tolist()
        for name, unit, text in zip(recording.question_ids, recording.clusters.tolist(), asked, strict=True):
            if places.setdefault(name, part.path) != part.path:
                raise DataError(
                    f"question {name!r} is in {str(places[name])!r} and in {str(part.path)!r}: leave it out of one of them, since "
                    "two runs of one question under one prompt are no more questions"
                )
            if text is None or "cluster" not in table.column_names:
                continue
            known, place = texts.setdefault(str(unit), (str(text), part.path))
            if known != text and place != part.path:
                raise DataError(
                    f"question {unit!r} reads {known!r} in {str(place)!r} and {text!r} in {str(part.path)!r}: they are not the "
                    "same questions"
                )


def _metadata(parts: Sequence[_Part], prompts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata of the merged file: the shared entries, and the entries of each single file."""
    shared = parts[0].shared
    config, depends = dict(shared["config"]), dict(shared["depends"])
    if len(prompts) > 1:
        config[_PROMPTS] = {name: dict(own) for name, own in prompts.items()}
    elif prompts:
        ((prompt, own),) = prompts.items()
        config["model"] = {**config["model"], **own}
        if "prompt_id" in (parts[0].recording.metadata.get("depends") or {}):
            depends["prompt_id"] = prompt
    failed: dict[str, str] = {}
    for part in parts:  # a question that failed in one file may be complete in another
        suffix = f"@{next(iter(part.prompts)).split('@')[0]}" if len(prompts) > 1 == len(part.prompts) else ""
        failed |= {f"{name}{suffix}": why for name, why in (part.recording.metadata.get("failed") or {}).items()}
    described = [
        {
            "file": part.path.name,
            "questions": part.recording.shape[0],
            "data_hash": part.recording.data_hash,
            **{
                key: value
                for key, value in part.recording.metadata.items()
                if key in ("dataset", "suffice", "read_from", MERGED)
            },
        }
        for part in parts
    ]
    result = {**shared, "failed": failed, "suffice": __version__, MERGED: described}
    kept = {"config": config, "depends": depends}
    result |= {key: value for key, value in kept.items() if value or key in parts[0].recording.metadata}
    return result | common_facts([part.recording.metadata for part in parts])


def _cut_notes(parts: Sequence[_Part]) -> list[str]:
    """Return a note if a rule ended questions in some of the files, but no question in the remaining files."""
    cut = {part.path.name: int((part.recording.ends == "rule").sum()) for part in parts}
    if all(cut.values()) or not any(cut.values()):
        return []
    listed = ", ".join(f"{n} of {name}" for name, n in cut.items() if n)
    return [f"a rule ended the recording of some questions ({listed}): what they would have given later is unknown"]


def _column_notes(parts: Sequence[_Part]) -> list[str]:
    """Return a note for each column that is not in every file."""
    notes = []
    for name in dict.fromkeys(name for part in parts for name in part.recording.table.column_names):
        lacking = [part.path.name for part in parts if name not in part.recording.table.column_names]
        if lacking and not name.startswith("cost."):
            notes.append(f"{', '.join(lacking)}: no column {name!r}; its values are missing there")
    return notes


def _journals(out: Path, parts: Sequence[_Part], merged: Recording) -> list[str]:
    """Copy the replies of failed questions into the new file's journal; return notes on those that cannot be copied."""
    notes: list[str] = []
    for part, path in [(one, path) for one in parts for path in _journaled(one.path)]:
        if is_url(path) or is_url(out):
            notes.append(
                f"{path.name}: replies of failed questions stay in its journal, since the journal of a URL is not merged"
            )
            continue
        recorded = part.recording.metadata.get("config") or {}
        with closing(Journal(journal_of(path), recorded)) as journal:
            unwritten = [name for name, _ in journal.finished() if name not in part.recording.question_ids]
            if unwritten:
                raise DataError(
                    f"{str(path)!r} is unfinished: {counted(len(unwritten), 'question')} of its journal are not in it yet. Run "
                    "the command that recorded it again, then merge"
                )
            failed = (part.recording.metadata.get("failed") or {}).keys()
            if _PROMPTS not in recorded and _PROMPTS not in merged.metadata["config"]:
                failed = failed & merged.metadata["failed"].keys()
            names = sorted(journal.questions() & failed)
            if names and _PROMPTS in merged.metadata["config"]:
                notes.append(
                    f"{path.name}: {counted(len(names), 'question')} failed; their replies stay in its journal, since a file of "
                    "several prompts cannot be recorded further"
                )
            elif names:
                with closing(Journal(journal_of(out), aligned(merged.metadata["config"], recorded))) as new:
                    for name in names:
                        new.put(name, journal.replies(name))
    return notes
