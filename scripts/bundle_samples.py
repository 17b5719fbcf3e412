"""Make the bundled recordings of samples and panels, as `suffice import --samples` reads the published files.

    python scripts/bundle_samples.py --source FOLDER

FOLDER holds the answers as lines of JSON: `verify_cot_date_chatgpt_10` (lz1oceani/verify_cot, CC BY 4.0),
`zeroeval_gsm_panel44` and `zeroeval_crux_panel51` (WildEval/ZeroEval, Apache-2.0).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from suffice import import_recording, read_recording
from suffice.store import write_recording

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "recorded"
SOURCES = {
    "samples_date": "verify_cot_date_chatgpt_10.jsonl.gz",
    "panel_gsm8k": "zeroeval_gsm_panel44.jsonl.gz",
    "panel_cruxeval": "zeroeval_crux_panel51.jsonl.gz",
}
COLUMNS = ("question_id", "round", "end", "answer", "golds", "match", "member")
"""Everything that ships: of questions their ids, no texts."""
NO_ANSWERS = frozenset({"No answer!"})
"""What the source of the dates writes where it could not read an answer."""


def main() -> None:
    """Write the recordings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    source = parser.parse_args().source
    for name, file in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            imported = Path(folder, "imported.parquet")
            import_recording(source / file, out=imported, samples=True)
            recording = read_recording(imported)
        rows = [
            {key: row[key] for key in COLUMNS if key in row}
            | {"answer": None if row["answer"] in NO_ANSWERS else row["answer"]}
            for row in recording.table.to_pylist()
        ]
        metadata = {key: recording.metadata[key] for key in ("exchangeable", "normalizer", "source")}
        kinds = {"match": "metric"} | ({"member": "label"} if "member" in rows[0] else {})
        write_recording(OUT / f"{name}.parquet", rows, metadata, kinds)
        print(f"{name}: {recording.shape[0]} questions, {recording.shape[1]} samples")


if __name__ == "__main__":
    main()
