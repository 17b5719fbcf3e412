"""Choose the default of the rule `similar` on tune drafts, and judge it on the others.

    python scripts/similar_drafts.py --source gpt4.jsonl.gz --source dv3.jsonl.gz > docs/results/similar-drafts.md

The sources are madaan/self-refine's outputs of sentiment reversal, as in `scripts/bundle_self_refine.py`.  Questions are
divided by the hash of their ids: half for tuning, half for judging.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from suffice.evaluation.replay import replay
from suffice.policy.rules.named import SIMILAR_THRESHOLD, similar
from suffice.policy.session import Policy, stops
from suffice.recordings import Recording
from suffice.recordings.schema import build_table
from suffice_papers.semantic import read_self_refine, split_drafts

GRID = [round(0.05 * step, 2) for step in range(6, 21)]
METRIC = "target_sentiment"
MOST = 0.5
SHOWN = ("similar", "random(similar)", "fixed_k(2)", "fixed_k(3)", "fixed_k(5)")


def read(path: Path) -> tuple[Recording, Recording]:
    """Return the test and the tune half of the trajectories that are complete."""
    run = read_self_refine(path)
    recording = Recording(build_table(run.rows(), run.kinds()))
    return split_drafts(recording.select(recording.ends != "failed"), MOST)


def stopped_early(tune: Recording, threshold: float) -> tuple[float, float, float]:
    """Return the share of trajectories that the rule ends before the last draft, mean drafts, and mean quality."""
    view = tune.rounds(["answer_f1_previous"])
    stopped = stops(Policy(rule=similar(threshold), max_rounds=int(tune.index[-1])), view)
    quality = tune.column(METRIC)[np.arange(len(stopped.position)), stopped.answer_position]
    return float(stopped.fired.mean()), float(stopped.rounds.mean()), float(np.nanmean(quality))


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, action="append", required=True)
    paths = parser.parse_args().source
    names = [path.name.partition(".")[0] for path in paths]
    halves = [read(path) for path in paths]
    chosen = max(t for t in GRID if all(stopped_early(tune, t)[0] > MOST for _, tune in halves))
    assert chosen == SIMILAR_THRESHOLD, f"the default is {SIMILAR_THRESHOLD}, and these drafts choose {chosen}"
    print("# The rule `similar`: where its threshold comes from, and what it is worth\n")
    print(
        "`similar` stops when the token F1 of a draft with the one before is at least 0.8. The only successive drafts at hand are"
    )
    print(
        "those of self-refine (see [there](self-refine.md) for what they are and how their quality was marked). Half of the questions, by"
    )
    print("the hash of their ids, chose the threshold; the other half judge it:")
    print("`python scripts/similar_drafts.py --source gpt4.jsonl.gz --source dv3.jsonl.gz`.\n")
    print("## Tune: the strictest threshold that still ends most loops early\n")
    sizes = " and ".join(f"{len(tune.question_ids)} ({name})" for name, (_, tune) in zip(names, halves, strict=True))
    print(
        f"Of .30, .35, ... 1, the highest with which more than half of the trajectories of each model end before the last draft: {chosen}."
    )
    print(f"Trajectories: {sizes}. Columns: share that ends early, drafts, target reached.\n")
    print(f"| threshold | {' | '.join(f'{name}: early | drafts | %' for name in names)} |")
    print(f"| ---: |{' ---: |' * 3 * len(names)}")
    for threshold in GRID:
        cells = [stopped_early(tune, threshold) for _, tune in halves]
        print(f"| {threshold:.2f} | " + " | ".join(f"{e:.0%} | {d:.2f} | {100 * q:.1f}" for e, d, q in cells) + " |")
    print("\n## Judged on the other half\n")
    print(
        "Beside two drafts, which dominate it for both models: at least the quality for fewer calls of the writer and its critic.\n"
    )
    for name, (test, _) in zip(names, halves, strict=True):
        table = replay(test, ["similar"], metrics=[METRIC], baseline="fixed_k(2)").table()
        rows = [row for row in table.texts() if row[0] in SHOWN]
        assert rows[0][-1] == "dominated by fixed_k(2)", rows[0]
        print(f"**{name}**, {len(test.question_ids)} trajectories, data hash `{test.data_hash}`\n")
        print(f"| {' | '.join(column.name for column in table.columns)} |\n|{' --- |' * len(table.columns)}")
        print("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")


if __name__ == "__main__":
    main()
