"""Random orders of each question's independent samples, as rows of one unit; the question's name determines them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.evaluation.replay.blocks import RecordingBlock
from suffice.evaluation.replay.orders import drawn_orders
from suffice.recordings.opened import run_starts
from suffice.recordings.recording import Recording


def ordered_metadata(metadata: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return the metadata of a recording whose questions appear in `n` orders."""
    kept = {name: value for name, value in metadata.items() if name != "exchangeable"}
    return {**kept, "independent": True, "orders": n}


def in_orders(recording: Recording, n: int, seed: int) -> RecordingBlock:
    """Return each question in `n` orders of its samples, as rows of one cluster, so that it is drawn as a whole."""
    units = np.array([str(unit) for unit in recording.clusters.tolist()], dtype=object)[recording.row_question]
    tables = []
    for number, places in enumerate(drawn_orders(recording, n, seed), 1):
        table = recording.reordered(places).table
        ids = [f"{name} (order {number})" for name in table.column("question_id").to_pylist()]
        for name, values in (("question_id", ids), ("cluster", units.tolist())):
            column = pa.array(values, type=pa.string())
            if name in table.column_names:
                place = table.column_names.index(name)
                table = table.set_column(place, table.schema.field(place), column)
            else:
                table = table.append_column(pa.field(name, pa.string(), metadata={"kind": "identity"}), column)
        tables.append(table)
    table = pa.concat_tables(tables).combine_chunks()
    starts = run_starts(table.column("question_id"))
    return RecordingBlock(table, ordered_metadata(recording.metadata, n), recording.index, starts)
