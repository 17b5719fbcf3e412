"""TASR's recorded rounds: parquet files with one row for each question and round, or a folder of predictions by budget.

The parquet files contain metrics but no gold answers or passages, and one call of the model per round.  Two flaws of
the published pipeline are corrected here.  First, a missing margin had the calibrated value 0.5, which passes the
published threshold of 0.25; here the value becomes undefined.  Second, files without `answer_token_margin` fall back on
`first_token_margin`.  A note states this, because the first token of a reply is its answer only under certain prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SchemaError
from suffice.importers import Head, ImportedRun, ImportedTrajectory, one_call, recognised_by
from suffice.importers.columns.grid import Grid
from suffice.importers.files.recognise import head_of
from suffice.importers.files.records import Record, parquet_rows
from suffice.importers.rounds.round_columns import trajectories_of
from suffice.importers.tables.table_rounds import read_rows
from suffice.policy.rounds import Round
from suffice.policy.signals import SIGNALS
from suffice_papers.importing import existing
from suffice_papers.tasr.budgets import is_budget, read_budgets

TASR_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "question_id": ("qid",),
    "cluster": ("cluster",),
    "round": ("round",),
    "answer": ("current_answer",),
    "em": ("current_em",),
    "f1": ("current_f1",),
    "top_score": ("top_bm25_score",),
    "score_gap": ("gap_1_2", "gap"),
    "overlap": ("jaccard_overlap", "overlap_signal", "overlap_signal_idf"),
    "overlap_idf": ("overlap_signal_idf",),
    "verbal_confidence": ("llm_confidence",),
    "calibrated_confidence": ("calibrated_conf",),
    "answer_margin": ("answer_token_margin", "first_token_margin"),
    "p_correct": ("calibrated_logit_margin",),
    "top_score_z": ("top_score_z_global",),
    "top_score_z_pool": ("top_score_z_intra",),
    "top_score_z_robust": ("top_score_z_robust",),
    "answer_in_evidence": ("answer_in_evidence",),
    "rerank_score": ("ce_top_score", "rerank_score"),
    "judge_entailment": ("judge_entailment",),
}
"""Columns of the files by the names of this library; the first one that a file has is used, the others are kept unchanged.

The published rules use the plain overlap, although the text calls it IDF-weighted.  If a file has both, the weighted one
becomes the separate signal `overlap_idf`.
"""

_PER_QUESTION = ("question_type", "prompt_id")


def _is_tasr(head: Head) -> bool:
    return is_budget(head) or (head.form == "parquet" and head.has("qid", "round", "current_answer"))


@recognised_by(_is_tasr)
def read_tasr(path: str | Path, *, first_round: int | None = None) -> ImportedRun:
    """Read a parquet file of TASR's rounds, or a folder with one JSON file of predictions for each budget.

    If the column `prompt_id` contains several prompts, each question has one trajectory for each prompt.  These
    trajectories get the ids ``qid@prompt``, and the question is their common cluster.

    Args:
        path: The file or folder; see `suffice_papers.tasr.budgets` for predictions.
        first_round: For a parquet file, the number that the lowest round gets: 0 (closed book) or 1 (one passage); None
            to keep the numbers in the file, which is right for the published files.

    Raises:
        SchemaError: The file is not parquet, or lacks `qid`, `round` or `current_answer`.
        DataError: A value is invalid, or rounds of a question are missing or repeated; the message names the row.
    """
    if Path(path).is_dir() or (Path(path).is_file() and is_budget(head_of(Path(path)))):
        if first_round is not None:
            raise DataError(f"{path}: the budgets number the rounds: leave out first-round")
        return read_budgets(Path(path))
    path = existing(path, "a parquet file of TASR's rounds")
    rows = _by_prompt([dict(row) for _, row in parquet_rows(path)])
    names = list(rows[0]) if rows else []
    columns = {
        ours: next(theirs for theirs in candidates if theirs in names)
        for ours, candidates in TASR_COLUMNS.items()
        if any(theirs in names for theirs in candidates)
    }
    if columns.get("overlap") == columns.get("overlap_idf"):
        columns.pop("overlap_idf", None)
    missing = [TASR_COLUMNS[ours][0] for ours in ("question_id", "round", "answer") if ours not in columns]
    if missing:
        raise SchemaError(
            f"{path}: the column {missing[0]!r} of TASR's rounds is missing; the file has: {', '.join(names) or 'no rows'}."
            " Use the tabular importer with a column map"
        )
    grid = Grid(columns=columns, first_round=first_round, ended="exhausted")
    grid.check(path, names)
    records = [Record(f"{path}, row {number}", path.stem, number, row) for number, row in enumerate(rows, start=1)]
    notes = ["each round is one call; the files contain no tokens, gold answers or passages"]
    if columns.get("answer_margin") == "first_token_margin":
        notes.append("answer_margin is first_token_margin: the files have no answer_token_margin")
    if "overlap_idf" in columns:
        notes.append(
            f"overlap is {columns['overlap']}, the plain token Jaccard of the published rules; overlap_idf is "
            f"{columns['overlap_idf']}"
        )
    runs = [*map(_finished, trajectories_of(read_rows(records, grid, str(path))))]
    n_invented = sum(_invented(item) for trajectory in runs for item in trajectory.rounds)
    if n_invented:
        notes.append(f"p_correct is undefined in {n_invented} rounds without a margin, where the files have a constant")
        runs = [replace(item, rounds=tuple(map(_without_invented, item.rounds))) for item in runs]
    shorter = sum(trajectory.end == "exhausted" for trajectory in runs)
    if shorter:
        notes.append(f"{shorter} questions have fewer rounds than the longest: treated as out of passages")
    return ImportedRun(source="tasr", trajectories=runs, notes=notes)


def _by_prompt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len({row.get("prompt_id") for row in rows}) < 2:  # noqa: PLR2004
        return rows
    return [{**row, "qid": f"{row.get('qid')}@{row['prompt_id']}", "cluster": row.get("qid")} for row in rows]


def _finished(trajectory: ImportedTrajectory) -> ImportedTrajectory:
    """Charge one call of unknown cost per round, and turn columns that are constant within a question into labels."""
    first = next(iter(trajectory.extras), {})
    labels = {name: first[name] for name in _PER_QUESTION if first.get(name) is not None}
    return replace(
        trajectory,
        rounds=tuple(
            replace(item, signals=_without_first_overlap(item), costs={"generator": one_call()})
            for item in trajectory.rounds
        ),
        extras=tuple({k: v for k, v in extra.items() if k not in _PER_QUESTION} for extra in trajectory.extras),
        labels=labels,
    )


def _without_first_overlap(item: Round) -> Mapping[str, float]:
    """Return a round's signals; before the second passage `overlap_idf` is undefined, although the files contain 0."""
    first = "overlap_idf" in item.signals and item.index < SIGNALS["overlap"].first_round
    return {**item.signals, "overlap_idf": math.nan} if first else item.signals


def _invented(item: Round) -> bool:
    signals = item.signals
    if "answer_margin" not in signals or math.isnan(signals.get("p_correct", math.nan)):
        return False
    return math.isnan(signals["answer_margin"])


def _without_invented(item: Round) -> Round:
    return replace(item, signals={**item.signals, "p_correct": math.nan}) if _invented(item) else item
