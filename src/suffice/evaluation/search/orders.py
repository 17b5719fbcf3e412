"""Several random orders of each question's independent samples, as rows of one unit; orders follow from the question's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.evaluation.replay.blocks import RecordingBlock
from suffice.evaluation.statistics import keyed_numbers, keys_of
from suffice.recordings.opened import run_starts
from suffice.recordings.recording import Recording

_ORDERS_STREAM = 0x0DE5 << 40


def keyed_orders(recording: Recording, n: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Return `n` orders as the new position of each round, shape ``(n_questions, n_rounds)``, for `Recording.reordered`.

    The order of a question's rounds follows from its name, the seed and the number of the order, so it does not depend
    on the other questions.  A closed-book round 0 keeps its place.
    """
    keys = keys_of(recording.question_ids)
    orders = []
    for number in range(n):
        numbers = keyed_numbers(keys, recording.shape[1], seed=seed + _ORDERS_STREAM + (number << 20))
        places = (numbers >> np.uint64(12)).astype(np.float64)  # 52 bits, which a double holds
        places[~recording.seen] = np.inf
        if int(recording.index[0]) == 0:
            places[:, 0] = -1.0
        orders.append(np.argsort(np.argsort(places, axis=1, kind="stable"), axis=1))
    return orders


def ordered_metadata(metadata: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return the metadata of a recording whose questions come in `n` orders."""
    kept = {name: value for name, value in metadata.items() if name != "exchangeable"}
    return {**kept, "independent": True, "orders": n}


def in_orders(recording: Recording, n: int, seed: int) -> RecordingBlock:
    """Return each question in `n` orders of its samples, as rows of one cluster, so that resampling draws whole questions."""
    units = np.array([str(unit) for unit in recording.clusters.tolist()], dtype=object)[recording.row_question]
    whole = Recording(recording.table, recording.metadata) if isinstance(recording, RecordingBlock) else recording
    tables = []
    for number, places in enumerate(keyed_orders(recording, n, seed), 1):
        table = whole.reordered(places).table
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
