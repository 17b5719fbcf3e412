"""Recordings of TASR's columns for made-up models, as somebody would import them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.cli_tools import cli

ROUNDS = 5
MODELS = {"qwen": (0.15, 1.0, 0.96), "gemma": (0.05, 2.0, 0.9)}
"""By model: how likely it is right without evidence, how large its margins are, how often it says 5."""


def rows(model: str, corpus: str, split: str, n: int, *, says_five: float | None = None) -> list[dict]:
    """Return rounds as TASR's parquet files hold them; the same for the same arguments."""
    rng = random.Random(f"{model} {corpus} {split} {says_five}")
    base, scale, five = MODELS[model]
    made = []
    for q in range(n):
        evidence = rng.randint(1, ROUNDS + 2)  # the round at which the gold passage comes, perhaps never
        answer, kind = "", rng.choice(["bridge", "comparison"])
        for r in range(1, ROUNDS + 1):
            right = rng.random() < base + (0.7 if r >= evidence else 0.0)
            if right:
                answer = rng.choice(["The gold", "gold", "Gold!"])
            elif not answer or rng.random() < 0.4:
                answer = rng.choice(["silver", "tin", "lead"])
            em = int(answer.lower().strip("!").removeprefix("the ") == "gold")
            margin = None if rng.random() < 0.03 else scale * rng.uniform(0.1, 3.0 + 2.0 * em)
            made.append(
                {
                    "qid": f"{corpus}-{split}-{q}",
                    "question_type": kind,
                    "round": r,
                    "top_bm25_score": rng.uniform(5, 30),
                    "rank2_bm25_score": 5.0,
                    "gap_1_2": rng.uniform(0, 5),
                    "jaccard_overlap": None if r == 1 else rng.uniform(0, 0.6),
                    "llm_confidence": 5
                    if rng.random() < (five if says_five is None else says_five)
                    else rng.randint(2, 4),
                    "calibrated_conf": rng.uniform(0.2, 0.8),
                    "current_answer": answer,
                    "current_em": em,
                    "current_f1": 1.0 if em else rng.choice([0.0, 0.0, 0.5]),
                    "first_token_margin": margin,
                    "answer_token_margin": margin,
                    "calibrated_logit_margin": rng.uniform(0.1, 0.9),
                    "answer_token_str": answer[:3],
                    "n_tokens": 7,
                    "top_score_z_global": rng.gauss(0, 1),
                    "top_score_z_intra": rng.gauss(1, 1),
                    "judge_entailment": rng.randint(1, 5),
                    "answer_in_evidence": float(em or rng.random() < 0.3),
                    "rerank_score": rng.gauss(0, 2),
                }
            )
    return made


def imported(folder: Path, name: str, listed: list[dict]) -> Path:
    """Write TASR's file, import it by the command line, and return the recording."""
    foreign = folder / f"{name}.foreign.parquet"
    pq.write_table(pa.Table.from_pylist(listed), foreign)
    result = cli("import", foreign, "-o", folder / f"{name}.parquet")
    assert result.code == 0, result
    return folder / f"{name}.parquet"


CELLS = (
    # name, model, corpus, setting, prompt, tune, eval questions, published
    ("ours_qwen_hp", "qwen", "hotpotqa", "distractor", "answer_first", "qwen_hp_tune", 60, "qwen_hp"),
    ("ours_gemma_hp", "gemma", "hotpotqa", "distractor", "answer_first", "gemma_hp_tune", 60, "gemma_hp"),
    ("ours_qwen_nq", "qwen", "nq", "open", "answer_first", "qwen_hp_tune", 40, "qwen_nq"),
    ("confidence", "qwen", "hotpotqa", "distractor", "confidence_first", "qwen_hp_tune", 60, "qwen_hp"),
    ("of_my_own", "gemma", "own", "distractor", "answer_first", "gemma_hp_tune", 30, ""),
)


def cell_list(folder: Path) -> Path:
    """Write and import the recordings of `CELLS`, and the list that names them."""
    for model in MODELS:
        imported(folder, f"{model}_hp_tune", rows(model, "hotpotqa", "tune", 40))
    lines = []
    for name, model, corpus, setting, prompt, tune, n, published in CELLS:
        says = 0.6 if prompt == "confidence_first" else None
        imported(folder, name, rows(model, corpus, "eval", n, says_five=says))
        lines.append(
            f'[[cell]]\nname = "{name}"\nmodel = "{model}"\nretriever = "BM25"\ncorpus = "{corpus}"\n'
            f'setting = "{setting}"\nprompt = "{prompt}"\ntune = "{tune}.parquet"\neval = "{name}.parquet"\n'
            + (f'published = "{published}"\n' if published else "")
        )
    path = folder / "cells.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
