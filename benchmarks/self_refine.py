"""Which draft to return, on self-refine's drafts and on recorded debates (docs/results/self-refine.md, which-round.md).

`python -m benchmarks.self_refine` prints as Markdown, from the bundled recordings: every way to choose among drafts, cross-
fitted over all trajectories; how noisy the recorded verdict is; and how drafts that leave the others fare.  With
`--debates FOLDER`, the .json.gz files of lferreiraMD/slm_multiagent_debate, which may not be shipped: the same choices
among an agent's three answers.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from suffice.common.tables import Column, Table, render
from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Resampling
from suffice.importers.answers.imported import ImportedRun, ImportedTrajectory
from suffice.policy.embedding import Embedder
from suffice.policy.rules import parse_selector
from suffice.policy.rules.registered_selectors import DISTANCES, pairwise_distances
from suffice.recordings import BUNDLED_RECORDINGS, Recording, bundled_recording
from suffice.recordings.schema import build_table
from suffice_papers.choosing.judged import compare_judged
from suffice_papers.choosing.judging import Unjudged, draft_families
from suffice_papers.semantic import read_debate
from suffice_reader.minilm import MiniLM

METRIC, SEED, RESAMPLES = "target_sentiment", 42, 2000
FAR = 0.5
"""A draft whose mean distance to the others is larger has left them: half of the way to "unrelated"."""


def chosen(recording: Recording, rule: str, metric: str, title: str, *, extra: dict[str, str] | None = None) -> Table:
    """Return every way to choose among the drafts seen under a rule."""
    families = draft_families(recording)
    families |= {name: (Unjudged(parse_selector(text)),) for name, text in (extra or {}).items()}
    found = compare_judged(
        recording,
        policy_for(recording, rule),
        families,
        metric=metric,
        resampling=Resampling(n_resamples=RESAMPLES, seed=SEED),
    )
    table = found.table()
    thresholds = [
        f"{row.name}: {', '.join(row.variants)}" for row in found.rows if row.name in ("longest_run", "judge_distinct")
    ]
    notes = (*table.notes, f"data {found.data_hash}", *thresholds)
    return replace(table, title=f"{title}. {table.title}", notes=notes)


def against_fixed(recording: Recording, title: str) -> Table:
    """Return the centroid of the first k drafts, and the last of them, against two drafts."""
    fixed = [
        policy_for(recording, f"fixed_k({k})", name=f"fixed_k({k})")
        for k in range(1, policy_for(recording, "full").max_rounds + 1)
    ]
    centroids = [
        replace(policy, selector=parse_selector("centroid"), name=f"centroid of {k}")
        for k, policy in enumerate(fixed[1:], start=2)
    ]
    result = replay(
        recording,
        [*centroids, *fixed],
        metrics=(METRIC,),
        baseline=fixed[1],
        resampling=Resampling(n_resamples=RESAMPLES, seed=SEED),
        margins=(),
    )
    rows = []
    for label in (policy.label for policy in (*centroids, *fixed)):
        row = result.row(label)
        delta = row.deltas.get(METRIC)
        rows.append((label, row.metrics[METRIC], None if delta is None else (delta.delta, delta.low, delta.high)))
    columns = (
        Column("policy"),
        Column(METRIC, ".1f", scale=100),
        Column("vs fixed_k(2)", "+.1f", scale=100, interval=True),
    )
    return Table(title=f"{title}: the centroid's draft against two drafts", columns=columns, rows=tuple(rows))


def noise(recording: Recording) -> Table:
    """Return how often two equal drafts of one trajectory got different verdicts, and what became of drafts far away."""
    kept = PreparedRecording.of(recording).recording
    marks, answers = kept.column(METRIC), kept.answers
    pairs = [
        (marks[q, i], marks[q, j])
        for q in range(kept.shape[0])
        for i in range(kept.shape[1])
        for j in range(i + 1, kept.shape[1])
        if answers[q, i] == answers[q, j]
    ]
    distances = pairwise_distances(kept.rounds(DISTANCES))
    n = kept.shape[1]
    away = distances.sum(axis=-1) / (n - 1)  # the diagonal is 0
    far = away > FAR
    rows: list[tuple[str, object, object, object]] = [
        ("pairs of equal drafts", len(pairs), None, None),
        ("of these with different verdicts", sum(a != b for a, b in pairs), None, None),
    ]
    rows += [
        (
            f"draft {r + 1}: far from the others",
            int(far[:, r].sum()),
            float(marks[far[:, r], r].mean()) if far[:, r].any() else None,
            float(marks[~far[:, r], r].mean()),
        )
        for r in range(n)
    ]
    columns = (
        Column("what"),
        Column("n", ",.0f"),
        Column("reach the target, %", ".1f", scale=100),
        Column("the others, %", ".1f", scale=100),
    )
    return Table(
        title=f"Noise of the verdict, and drafts that left the others (mean distance above {FAR:g}); {kept.shape[0]} trajectories",
        columns=columns,
        rows=tuple(rows),
    )


def embedded(item: ImportedTrajectory, model: str, embedder: Embedder) -> ImportedTrajectory:
    """Return a trajectory of a debate with its replies' embeddings, named by its model."""
    vectors = embedder.embed([observed.text for observed in item.rounds])
    rounds = tuple(replace(observed, embedding=v) for observed, v in zip(item.rounds, vectors, strict=True))
    return replace(item, question_id=f"{model}/{item.question_id}", rounds=rounds)


def debates(folder: Path) -> Recording:
    """Return the trajectories of all agents of all runs, clustered by question."""
    embedder, trajectories = MiniLM(), []
    for path in sorted(folder.glob("*.json.gz")):
        run = read_debate(path)
        trajectories += [embedded(item, str(item.labels["model"]), embedder) for item in run.trajectories]
    run = ImportedRun(source="debate", trajectories=trajectories)
    return Recording(build_table(run.rows(), run.kinds()))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debates", type=Path, help="a folder of recorded debates; without it only the bundled drafts")
    asked = parser.parse_args()
    tables = []
    for name in BUNDLED_RECORDINGS:
        recording = bundled_recording(name)
        told = (
            {"max_log_probability": "max_log_probability"} if "log_probability" in recording.table.column_names else {}
        )
        tables += [chosen(recording, rule, METRIC, name, extra=told) for rule in ("full", "fixed_k(3)")]
        tables += [against_fixed(recording, name), noise(recording)]
    if asked.debates is not None:
        recording = debates(asked.debates)
        runs = {"longest_run(answer_stable)": "longest_run(answer_stable >= 1)"}
        tables.append(chosen(recording, "full", "em", "debates", extra=runs))
        for model in sorted({name.split("/")[0] for name in recording.question_ids}):
            here = recording.select(np.array([name.startswith(f"{model}/") for name in recording.question_ids]))
            tables.append(chosen(here, "full", "em", f"debates, {model}", extra=runs))
    print(render(tables, "md"))


if __name__ == "__main__":
    main()
