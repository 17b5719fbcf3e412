"""Combine a recording with the rounds that processes are still adding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from suffice._version import __version__
from suffice.errors import DataError, SchemaError
from suffice.policy.signals import LOOP_COMPONENTS
from suffice.recordings.round_journal import JournalContent
from suffice.recordings.schema import build_table, cost_column, cost_names, fill_costs
from suffice.recordings.shards import SHARD

RUN = "run"
"""The column that names a question's run, unique among all that were ever recorded."""

INFERRED = "end_inferred"
"""The column that says whether a question's end was inferred from its length, 1 or 0."""

AMENDED = "amended"
"""The column with the time at which a run was recorded again, with outcomes that came later; see `suffice.recordings.amending`."""

LEFT_OUT = "rounds_left_out"
"""The column with the number of a question's rounds if only its first row is left, see `suffice.verdicts.watches.looks`."""

MERGED = "merged"
"""The entry of metadata that lists what a file was merged from."""

_REASONS = ("whole_answers", "partial_credit")
"""Entries with a sentence on how answers are compared, with examples from the file."""

OF_ONE_FILE = frozenset(
    {"dataset", "failed", "suffice", "format", "version", "notes", "read_from", "score_kind", MERGED, SHARD, "reading"}
    | {"second_judge", *_REASONS}
)
"""Entries of metadata that may differ between files, since they describe the file and not its settings."""

UNFINISHED = "unfinished: it goes on, or its process was killed"
"""The reason given for a question that counts as failed because it has not ended."""

_UNKNOWN: Mapping[str, Any] = {"end": "failed", "inferred": False, "why": UNFINISHED}
_UNAUDITED: Mapping[str, Any] = {
    "end": "rule",
    "inferred": False,
    "why": "",
}  # the answer was returned, but the rounds of the audit have not run


def merged(
    stored: pa.Table | None, metadata: Mapping[str, Any], content: JournalContent
) -> tuple[pa.Table, dict[str, Any]]:
    """Combine the rows of a recording and its journal; also return their common metadata.

    A question that has not ended counts as failed. A question whose audit has not ended counts as stopped by the rule.
    A missing reason for an end is inferred from the lengths of all questions: `max_rounds` (the cap) for the longest
    questions, and `rule` (the loop's own rule) for all shorter questions.

    Args:
        stored: The rows of the recording's file; None if there is only a journal.
        metadata: The metadata of the recording.
        content: The journal. Questions without rounds are only counted. Questions that are already stored are left out,
            unless the journal amends them.

    Raises:
        DataError: There are no rows.
        SchemaError: The recording was not made by a `Recorder`.
    """
    if stored is not None and not {RUN, INFERRED} <= set(stored.column_names):
        raise SchemaError(
            "rounds wait to be added to a recording that no Recorder made: move the file FILE.rounds away"
        )
    failed = dict(metadata.get("failed") or {})
    runs = set() if stored is None else set(stored.column(RUN).to_pylist())
    names = RunNames({*failed} if stored is None else {*failed, *stored.column("question_id").to_pylist()})
    stored, replaced = _without_amended(stored, runs, content)
    failed = {name: why for name, why in failed.items() if name not in replaced.values()}
    rows: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    for question in content.questions:
        if question.run in runs and question.run not in replaced:
            continue
        question_id = replaced.get(question.run) or names.new(question.fields["cluster"])
        decision = question.fields.get("decision", {})
        ending = question.ending or (_UNAUDITED if decision else _UNKNOWN)
        if ending.get("why"):
            failed[question_id] = ending["why"]
        for row in question.rows:
            kinds |= row["kinds"]
            own = {RUN: question.run, "end": ending["end"], INFERRED: float(ending["inferred"])}
            rows.append({**row["columns"], **decision, "question_id": question_id, **own})
    if stored is None and not rows:
        raise DataError("no round was observed yet: the recording has no rows")
    tables = [] if stored is None else [stored]
    if rows:
        known = set() if stored is None else {name for name in stored.column_names if name.startswith("cost.")}
        fill_costs(rows, cost_names(rows) | known)
        tables.append(build_table(rows, kinds))
    table = _with_ends(together(tables))
    return table, {**metadata, **content.metadata, "failed": failed, "suffice": __version__}


def _without_amended(
    stored: pa.Table | None, runs: AbstractSet[str], content: JournalContent
) -> tuple[pa.Table | None, dict[str, str]]:
    """Leave out stored runs that the journal amends; also return a map from these runs to their names."""
    again = [q.run for q in content.questions if q.run in runs and AMENDED in q.fields]
    if stored is None or not again:
        return stored, {}
    is_again = pc.is_in(stored.column(RUN), pa.array(again))
    rows = stored.filter(is_again)
    names = dict(zip(rows.column(RUN).to_pylist(), rows.column("question_id").to_pylist(), strict=True))
    return stored.filter(pc.invert(is_again)), names


def common_facts(metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata that hold for the questions of several files."""
    sets = _whole_sets(metadata) or [item.get("dataset") or {} for item in metadata]
    hashes = dict.fromkeys(item["hash"] for item in sets if "hash" in item)
    dataset = {"hash": "+".join(hashes), "questions": sum(int(item.get("questions", 0)) for item in sets)}
    notes = dict.fromkeys(note for item in metadata for note in item.get("notes") or ())
    kinds = {item["score_kind"] for item in metadata if "score_kind" in item}  # missing in files of older releases
    scores = {"score_kind": kinds.pop()} if len(kinds) == 1 else {}
    return (
        ({"dataset": dataset} if hashes else {})
        | ({"notes": list(notes)} if notes else {})
        | scores
        | _doubts(metadata)
    )


def _doubts(metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the doubts that were noted when the logs of several files were imported, each text once."""

    def joined(texts: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(texts))

    readings = [item["reading"] for item in metadata if item.get("reading")]
    kinds = dict.fromkeys(kind for reading in readings for kind in reading)
    said = {kind: [own.get(kind, {}) for own in readings] for kind in kinds}
    reading = {
        kind: {
            name: joined(own[name] for own in each if name in own)
            for name in dict.fromkeys(n for own in each for n in own)
        }
        for kind, each in said.items()
    }
    reasons = {key: joined(item[key] for item in metadata if key in item) for key in _REASONS}
    second = dict.fromkeys(note for item in metadata for note in item.get("second_judge") or ())
    found = {"reading": reading, **reasons, "second_judge": [*second]}
    return {name: own for name, own in found.items() if own}


def _whole_sets(metadata: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a list with the entry of the data set, if the files are together all shards of it; else an empty list."""
    shards = [item.get(SHARD) or {} for item in metadata]
    indexes = {shard.get("index") for shard in shards}
    sets = {shard["dataset"]["hash"]: shard["dataset"] for shard in shards if shard}
    return [*sets.values()] if len(sets) == 1 and len(indexes) == len(shards) == shards[0].get("of") else []


class RunNames:
    """Unique names for the runs of a question: the name of the cluster, then ``NAME#2``, ``NAME#3`` and so on.

    `taken` contains the names that are already used.
    """

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._seen: Counter[str] = Counter()

    def new(self, cluster: str) -> str:
        """Return the next free name of a cluster."""
        while True:
            self._seen[cluster] += 1
            number = self._seen[cluster]
            name = cluster if number == 1 else f"{cluster}#{number}"
            if name not in self._taken:
                self._taken.add(name)
                return name


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables whose columns may differ."""

    def is_blank(i: int, name: str) -> bool:
        column = tables[i].column(name)
        return bool(column.null_count == len(column))

    schema = joint_schema([table.schema for table in tables], is_blank)
    return pa.concat_tables([conformed(table, schema) for table in tables])


def joint_schema(schemas: Sequence[pa.Schema], is_blank: Callable[[int, str], bool]) -> pa.Schema:
    """Return one schema for tables whose columns may differ.

    A column of several types gets the type that can hold all values, or the type text if no type can.

    Args:
        schemas: The columns of each table.
        is_blank: A function of a table's position and a column's name; True means that the column has no value there,
            so that its type is only a guess.
    """
    if all(schema is schemas[0] or schema.equals(schemas[0]) for schema in schemas):
        return schemas[0].remove_metadata()
    fields: dict[str, list[tuple[int, pa.Field]]] = {}
    for i, schema in enumerate(schemas):
        for field in schema:
            fields.setdefault(field.name, []).append((i, field))
    return pa.schema([_joint_field(occurrences, is_blank) for occurrences in fields.values()])


def _joint_field(occurrences: Sequence[tuple[int, pa.Field]], is_blank: Callable[[int, str], bool]) -> pa.Field:
    first = occurrences[0][1]
    if all(field.type == first.type for _, field in occurrences):
        return first
    filled = [field for i, field in occurrences if not is_blank(i, field.name)] or [first]
    try:
        joint = pa.unify_schemas([pa.schema([field]) for field in filled], promote_options="permissive").field(0)
    except pa.ArrowException:  # a label may be a number in one table and text in another
        joint = pa.field(first.name, pa.string())
    return joint.with_metadata(filled[0].metadata)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of `schema`; columns that the table lacks are empty.

    In rows with recorded calls, missing costs are 0, because a component without a column was not called.
    """
    if table.schema.equals(schema):
        return pa.Table.from_arrays(table.columns, schema=schema)
    given = dict(zip(table.column_names, table.columns, strict=True))  # arrow builds its names anew on each access
    called = [name for name in (cost_column(item, "calls") for item in LOOP_COMPONENTS) if name in given]
    free = None
    if called and any(field.name.startswith("cost.") and field.name not in given for field in schema):
        known = pc.coalesce(*(given[item] for item in called))
        free = pc.if_else(pc.is_valid(known), pa.scalar(0.0), pa.scalar(None, pa.float64()))
    columns = []
    for field in schema:
        if field.name in given:
            column = given[field.name]
            if column.type != field.type:
                blank = column.null_count == len(column)
                column = pa.nulls(len(column), field.type) if blank else column.cast(field.type)
        elif free is not None and field.name.startswith("cost."):
            column = free
        else:
            column = pa.nulls(table.num_rows, field.type)
        columns.append(column)
    return pa.table(columns, schema=schema)


def _with_ends(table: pa.Table) -> pa.Table:
    """Infer missing reasons for ends from the lengths of all questions that did not fail, and fill them in."""
    ids, ends = table.column("question_id").to_pylist(), table.column("end").to_pylist()
    inferred = table.column(INFERRED).to_pylist()
    lengths = Counter(name for name, end in zip(ids, ends, strict=True) if end != "failed")
    longest = max(lengths.values(), default=0)
    for i, (name, guess) in enumerate(zip(ids, inferred, strict=True)):
        if guess:
            ends[i] = "max_rounds" if lengths[name] == longest else "rule"
    position = table.column_names.index("end")
    return table.set_column(position, table.schema.field("end"), pa.array(ends, pa.string()))
