"""Which round's answer to return: what a learned ranker adds on the bundled questions (docs/results/which-round.md).

`python -m benchmarks.which_round` records the bundled tune and eval questions with the span reader, and the tune
questions six times more with their evidence in other orders (BM25 scores with noise of one standard deviation), fits
rankers on tune alone, and prints as Markdown: every variant that was tried, on held-out tune questions; then the chosen
one and the simple selectors on the eval questions, which nothing was chosen by.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from suffice import Policy, RetrievalLoop, record
from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import calibrate, policy_for
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice.policy.rounds import Passage
from suffice.policy.rules import parse_rule
from suffice.policy.signals import Idf
from suffice.recordings import Recording, read_recording
from suffice.verdicts.diagnostics.selection import compare_selectors
from suffice_papers.choosing.ranking import fit_ranker
from suffice_reader.model import SpanReaderModel

SETS, ORDERS, SEED = ("hotpotqa", "2wiki"), 6, 42
FEATURES: dict[str, tuple[str, ...]] = {
    "p": ("p_correct",),
    "p, its sum and best": ("p_correct", "sum_p_correct", "best_p_correct"),
    "p and votes": ("p_correct", "votes"),
    "margin": ("answer_margin",),
    "margin and votes": ("answer_margin", "votes"),
    "set features alone": ("votes", "is_last", "is_first"),
    "p and evidence": ("p_correct", "answer_in_evidence", "answer_length", "top_score", "overlap", "votes"),
    "everything": (
        *("p_correct", "sum_p_correct", "best_p_correct", "answer_margin", "answer_probability", "answer_in_evidence"),
        *("answer_length", "abstained", "overlap", "top_score", "score_gap", "votes", "is_last", "is_first", "round"),
    ),
}
JUDGED = (("own", "p, its sum and best"), (f"both, {ORDERS + 1} orders", "everything"))
"""What is judged on eval, chosen on tune: the default on a set's own tune questions, and the best of the most data."""

SIMPLE = ("first", "majority", "weighted_majority", "max_p_correct", "max_answer_margin")
RULES = ("tasr", "answer_stable", "fixed_k(3)", "full")


class Reordered(PoolBM25):
    """BM25 over the pool with noise on the scores, the same for the same seed and question."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    @property
    def name(self) -> str:
        """Short name."""
        return f"bm25-reordered-{self._seed}"

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return passages, best noisy score first."""
        ranked = super().rank(question, pool=pool)
        rng = random.Random(f"{self._seed}|{question}")
        spread = float(np.std([passage.score for passage in ranked]))
        noisy = [replace(passage, score=passage.score + rng.gauss(0, spread)) for passage in ranked]
        return sorted(noisy, key=lambda passage: -passage.score)[:k]


def recorded(folder: Path, name: str, retriever: PoolBM25, reader: SpanReaderModel) -> Recording:
    """Return the recording of a bundled question set."""
    tune = load_questions(f"{name.split('_', maxsplit=1)[0]}_tune")
    state = {"overlap": Idf.fit(f"{p.title} {p.text}" for question in tune for p in question.passages)}
    path = folder / f"{name}_{retriever.name}.parquet"
    loop = RetrievalLoop(model=reader, retriever=retriever, policy=Policy(state=state))
    record(load_questions(name), loop, path)
    return read_recording(path)


def together(recordings: Sequence[Recording]) -> Recording:
    """Return recordings as one; rows of the same question form a cluster."""
    tables = []
    for number, recording in enumerate(recordings):
        ids = recording.table.column("question_id")
        named = pa.chunked_array([[f"{name}#{number}" for name in ids.to_pylist()]])
        table = recording.table.drop_columns(["cluster"]).append_column("cluster", ids)
        tables.append(table.set_column(table.column_names.index("question_id"), "question_id", named))
    return Recording(pa.concat_tables(tables, promote_options="permissive"))


def tried(trainings: dict[str, Recording]) -> Table:
    """Return every variant on held-out tune questions."""
    rows = []
    for name, tune in trainings.items():
        base = calibrate(tune, rule="never()", signals=["p_correct"])[0]
        for label, features in FEATURES.items():
            fit = fit_ranker(tune, base, features=features, seed=SEED)
            simple = {k: v for k, v in fit.cross_fitted.items() if not k.startswith("ranked")}
            best = max(v for k, v in fit.cross_fitted.items() if k.startswith("ranked"))
            rows.append((name, label, best, simple["last"], simple.get("max_p_correct"), simple["majority"]))
    numbers = [Column(n, ".1f", scale=100) for n in ("ranker", "last", "max_p_correct", "majority")]
    columns = (Column("fitted on"), Column("features"), *numbers)
    return Table(
        title="F1 on held-out tune questions, mean over stops at every round", columns=columns, rows=tuple(rows)
    )


def judged(tune: Recording, evaluation: Recording, features: tuple[str, ...], title: str) -> Table:
    """Return a fitted ranker and the simple selectors on eval questions."""
    base = calibrate(tune, rule="never()", signals=["p_correct"])[0]
    fit = fit_ranker(tune, base, features=features, seed=SEED)
    rules = {text: policy_for(evaluation, text).rule if text == "full" else parse_rule(text) for text in RULES}
    policies = [replace(fit.policy, rule=rule, name=text) for text, rule in rules.items()]
    result = compare_selectors(
        evaluation, policies, [*SIMPLE, fit.policy.selector], resampling=Resampling(n_resamples=2000, seed=SEED)
    )
    table = result.table()
    return replace(table, title=f"{title}. {table.title}", notes=(f"ranked = {fit.policy.selector}", *table.notes))


def main() -> None:
    """Record, fit, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where recordings are kept; default: nowhere")
    parser.add_argument("--tune-only", action="store_true", help="leave the eval questions alone")
    asked = parser.parse_args()
    reader = SpanReaderModel()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        plain = {name: recorded(folder, f"{name}_tune", PoolBM25(), reader) for name in SETS}
        more = {
            name: together(
                [plain[name], *(recorded(folder, f"{name}_tune", Reordered(s), reader) for s in range(ORDERS))]
            )
            for name in SETS
        }
        trainings = {
            **plain,
            **{f"{name}, {ORDERS + 1} orders": recording for name, recording in more.items()},
            f"both, {ORDERS + 1} orders": together(list(more.values())),
        }
        print(render([tried(trainings)], "md"))
        if asked.tune_only:
            return
        for name in SETS:
            evaluation = recorded(folder, f"{name}_eval", PoolBM25(), reader)
            for source, label in JUDGED:
                tune = trainings[name if source == "own" else source]
                title = f"{name}, ranker of {label} fitted on {source}"
                print(render([judged(tune, evaluation, FEATURES[label], title)], "md"))


if __name__ == "__main__":
    main()
