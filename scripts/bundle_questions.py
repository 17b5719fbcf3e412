"""Build the bundled question files from the source files, byte for byte the same each time.

    python scripts/bundle_questions.py --splits splits.json --source hotpotqa.jsonl.gz --source 2wiki.jsonl.gz

`splits.json` maps a role to a list of question ids; the sources are JSON lines with the fields that
`suffice.loops.retrieval.datasets` documents.  Any other field of a source (answers of language models, say) is dropped.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROLES = {
    "hotpotqa_tune": "hotpotqa_tune",
    "hotpotqa_eval": "hotpotqa_eval_bundled",
    "2wiki_tune": "2wiki_tune",
    "2wiki_eval": "2wiki_eval",
}
"""Bundled name -> role in the splits file."""

OUT = Path(__file__).resolve().parents[1] / "src" / "suffice" / "data" / "questions"


def read_sources(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return every question of the source files by id; the first occurrence wins."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                found.setdefault(record["id"], record)
    return found


def slim(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that ship, in a fixed order."""
    return {
        "id": record["id"],
        "question": record["question"],
        "answers": record["answers"],
        "type": record["type"],
        "level": record["level"],
        "paragraphs": [{key: item[key] for key in ("title", "text", "is_supporting")} for item in record["paragraphs"]],
    }


def write(path: Path, records: Sequence[dict[str, Any]]) -> str:
    """Write JSON lines, gzipped without name or time stamp, and return the sha256 of the file."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    path.write_bytes(packed)
    return hashlib.sha256(packed).hexdigest()


def main() -> int:
    """Build all four files; exit status 1 if a question is missing from the sources."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=Path, required=True, help="JSON: role -> list of question ids")
    parser.add_argument("--source", type=Path, action="append", required=True, help="gzipped JSON lines; repeat")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to")
    args = parser.parse_args()
    splits = json.loads(args.splits.read_text(encoding="utf-8"))
    found = read_sources(args.source)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, role in ROLES.items():
        missing = [question_id for question_id in splits[role] if question_id not in found]
        if missing:
            sys.stderr.write(f"{name}: {len(missing)} questions are in no source, the first is {missing[0]!r}\n")
            return 1
        digest = write(args.out / f"{name}.jsonl.gz", [slim(found[question_id]) for question_id in splits[role]])
        sys.stdout.write(f"{name}: {len(splits[role])} questions, sha256 {digest}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
