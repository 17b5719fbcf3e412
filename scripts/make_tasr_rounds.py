"""Write synthetic rounds in the columns of TASR's files: `tests/data/imports/tasr_{tune,eval}.parquet`.

    python scripts/make_tasr_rounds.py

No row is anybody's recording: answers, scores and margins are drawn from one seed.  The files have what tests of the
importer and of the published searches need: an overlap of 0 in round 1, a retriever's scores that are the same in every
round of a question, and two z-scores of the best one, over all questions and within the question's own pool.
"""
# ruff: noqa: PLR2004, S311 - scripts are run, not imported; the numbers are made up, the draws no secret

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "imports"
SPLITS = {"tune": 100, "eval": 150}
ROUNDS = 5
GLOBAL = (17.0, 5.0)  # mean and deviation of the best score over the questions


def rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of one file; always the same."""
    rng = random.Random(f"tasr {split}")
    made = []
    for q in range(SPLITS[split]):
        top = rng.gauss(*GLOBAL)
        pool = sorted((top, *(top - rng.expovariate(0.15) for _ in range(9))), reverse=True)
        z_pool = (pool[0] - statistics.fmean(pool)) / statistics.pstdev(pool)
        easy, gold_round, answer = rng.random(), rng.randint(1, ROUNDS + 2), ""
        for r in range(1, ROUNDS + 1):
            if rng.random() < (0.8 if r >= gold_round else 0.25 * easy):
                answer = rng.choice(("Gold", "gold", "the gold."))
            elif not answer or rng.random() < 0.45:
                answer = rng.choice(("silver", "tin", "lead", "zinc"))
            right = "gold" in answer.lower()
            margin = round(rng.expovariate(1 / (3.5 if right else 1.8)), 4)
            made.append(
                {
                    "qid": f"{split}-{q:03d}",
                    "question_type": "bridge" if q % 4 else "comparison",
                    "round": r,
                    "top_bm25_score": round(pool[0], 4),
                    "rank2_bm25_score": round(pool[1], 4),
                    "gap": round(pool[0] - pool[1], 4),
                    # By 0, 1/4, ..., 1 sums over questions are exact: what is equal here is equal in any order.
                    "current_f1": 1.0 if right else rng.choice((0.0, 0.0, 0.25, 0.5)),
                    "current_em": int(right),
                    "current_answer": answer,
                    "overlap_signal": 0.0 if r == 1 else round(rng.betavariate(2, 8 if right else 12), 4),
                    "llm_confidence": 5 if rng.random() < 0.8 else rng.randint(2, 4),
                    "calibrated_conf": round(min(1.0, 0.3 + 0.06 * r + 0.2 * rng.random() + 0.1 * right), 4),
                    "first_token_margin": margin,
                    "answer_token_margin": margin,
                    "calibrated_logit_margin": round(margin / (margin + 2.5) * (0.7 + 0.06 * r), 4),
                    "answer_token_str": answer[:4],
                    "n_tokens": 12,
                    "top_score_z_global": round((pool[0] - GLOBAL[0]) / GLOBAL[1], 4),
                    "top_score_z_intra": round(z_pool, 4),
                    "judge_entailment": rng.randint(3, 5) if right else rng.randint(1, 4),
                }
            )
    return made


if __name__ == "__main__":
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in SPLITS:
        pq.write_table(pa.Table.from_pylist(rows(name)), OUT / f"tasr_{name}.parquet", compression="zstd")
