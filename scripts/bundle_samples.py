"""Make the bundled recordings of samples and panels, as `suffice import --samples` reads the published files.

    python scripts/bundle_samples.py --source FOLDER

FOLDER holds the answers as lines of JSON: `verify_cot_date_chatgpt_10` (lz1oceani/verify_cot, CC BY 4.0),
`zeroeval_gsm_panel44` and `zeroeval_crux_panel51` (WildEval/ZeroEval, Apache-2.0), `tot_game24_gpt4_100`
(princeton-nlp/tree-of-thought-llm, MIT), `pot_aqua_codex_30` (wenhuchen/Program-of-Thoughts, MIT) and
`cruxeval_output_codellama7b_10` (facebookresearch/cruxeval, MIT).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from suffice import import_recording, read_recording
from suffice.recordings import write_recording

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "recorded"
SOURCES = {
    "samples_date": "verify_cot_date_chatgpt_10.jsonl.gz",
    "panel_gsm8k": "zeroeval_gsm_panel44.jsonl.gz",
    "panel_cruxeval": "zeroeval_crux_panel51.jsonl.gz",
    "samples_game24": "tot_game24_gpt4_100.jsonl.gz",
    "samples_aqua": "pot_aqua_codex_30.jsonl.gz",
    "samples_cruxeval": "cruxeval_output_codellama7b_10.jsonl.gz",
}
COLUMNS = ("question_id", "round", "end", "answer", "golds", "match", "member", "passed")
"""Everything that ships: of questions their ids, no texts."""
NO_ANSWERS = frozenset({"No answer!"})
"""What the source of the dates writes where it could not read an answer."""
NO_OPTION = "val:"
"""What the source of AQuA writes before a number that is none of the options: such a program has no vote."""


def shipped(row: dict[str, Any]) -> dict[str, Any]:
    """Return what ships of a row: a missing answer is a wrong one, and what a checker found can be read by rules."""
    answer = row["answer"]
    if answer in NO_ANSWERS or (answer or "").startswith(NO_OPTION):
        answer = None
    if "reward" in row:  # the Game of 24 needs no gold answers: arithmetic checks an answer
        row = row | {"match": row["reward"], "passed": row["reward"], "golds": None}
    right = 0.0 if answer is None else row.get("correct", row["match"])  # where the source says itself what is right
    return {key: row[key] for key in COLUMNS if key in row} | {"answer": answer, "match": right}


def main() -> None:
    """Write the recordings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    source = parser.parse_args().source
    for name, file in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            imported = Path(folder, "imported.parquet")
            normalizer = "exact" if name == "samples_game24" else None
            import_recording(source / file, out=imported, samples=True, normalizer=normalizer)
            recording = read_recording(imported)
        rows = [shipped(row) for row in recording.table.to_pylist()]
        metadata = {key: recording.metadata[key] for key in ("exchangeable", "normalizer", "source")}
        kinds = {"match": "metric"} | ({"member": "label"} if "member" in rows[0] else {})
        write_recording(OUT / f"{name}.parquet", rows, metadata, kinds)
        print(f"{name}: {recording.shape[0]} questions, {recording.shape[1]} samples")


if __name__ == "__main__":
    main()
