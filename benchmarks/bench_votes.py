"""How long does it take to replay 200 rules on samples, in 100 random orders, with intervals?

1,319 questions x 40 samples, 40 leads and 160 shares of the leading answer, 1,000 paired draws.  Ours is timed from the
recording to the intervals of the score and the calls of every rule, with its ledger, reasons and stops; beside it the bare
vote count in numpy, which does the same sums and nothing else: orders, votes by stop, the first stop of each rule, the
score there, the bootstrap.  A whole `replay`, which adds 40 fixed budgets, the random twins of all rules, oracles, tests and
margins, and the bare count without rules are timed once.  Asserted first: both score every rule alike.
"""

from __future__ import annotations

import json
import platform
import time
from typing import Any

import numpy as np

from benchmarks.bench_replay import interleaved
from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.replay.orders import drawn_orders, run_all
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Intervals, paired_bootstrap
from suffice.policy.rounds import Floats
from suffice.recordings import Recording
from suffice.recordings.schema import build_table
from suffice_papers.multinomial import bootstrap_weights

QUESTIONS, SAMPLES, ORDERS, DRAWS, SEED, ANSWERS = 1319, 40, 100, 1000, 42, 12
LEADS = range(1, SAMPLES + 1)
SHARES = np.round(np.linspace(0.2, 0.995, 160), 4)
RULES = [*(f"lead({k})" for k in LEADS), *(f"vote_share >= {share}" for share in SHARES)]
TARGET_RATIO = 4.0


def recorded(questions: int = QUESTIONS) -> Recording:
    """Return samples of questions that differ in how likely the right answer is; one in twenty cannot be read."""
    rng = np.random.default_rng(SEED)
    right = rng.beta(2, 1, questions)[:, None]
    ids = np.where(rng.random((questions, SAMPLES)) < right, 0, rng.integers(1, ANSWERS, (questions, SAMPLES)))
    unread = rng.random(ids.shape) < 0.05
    rows = [
        {
            "question_id": f"q{q}",
            "round": r + 1,
            "answer": None if unread[q, r] else str(ids[q, r]),
            "match": float(ids[q, r] == 0 and not unread[q, r]),
            "cost.generator.calls": 1.0,
        }
        for q in range(questions)
        for r in range(SAMPLES)
    ]
    return Recording(build_table(rows, {"match": "metric"}), {"exchangeable": True, "normalizer": "exact"})


def ours(recording: Recording, orders: int) -> dict[str, tuple[Floats, Intervals]]:
    """Return means and intervals of the score and the calls of every rule."""
    prepared = PreparedRecording.of(recording, ["match"], samples=True)
    runs, _ = run_all(prepared, [policy_for(recording, rule) for rule in RULES], orders, SEED)
    weights = bootstrap_weights(prepared.n, DRAWS, rng=SEED)
    columns = {"match": [run.values["match"] for run in runs], "calls": [run.ledger.calls for run in runs]}
    return {
        name: (np.stack(rows), paired_bootstrap(np.stack(rows), weights, method="percentile"))
        for name, rows in columns.items()
    }


class Bare:
    """The same in plain numpy, for these rules and nothing else."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ids = np.array([[-1 if text is None else int(text) for text in row] for row in recording.answers.tolist()])
        self.n, self.width = self.ids.shape

    def votes(self, places: Any) -> tuple[Floats, Floats, Floats]:
        """Return lead, share and expected score after each sample in one order."""
        ids = np.empty_like(self.ids)
        np.put_along_axis(ids, places, self.ids, axis=1)
        rows, counts = np.arange(self.n), np.zeros((self.n, ANSWERS))
        lead, share, score = (np.full(ids.shape, np.nan) for _ in range(3))
        for r in range(self.width):
            given = ids[:, r]
            counts[rows[given >= 0], given[given >= 0]] += 1
            top = np.partition(counts, ANSWERS - 2, axis=1)
            lead[:, r] = top[:, -1] - top[:, -2]
            share[:, r] = top[:, -1] / np.maximum(counts.sum(axis=1), 1)
            tied = counts == top[:, -1:]
            score[:, r] = tied[:, 0] / tied.sum(axis=1) * (top[:, -1] > 0)
        return lead, share, score

    def run(self, orders: int, *, with_rules: bool = True) -> dict[str, tuple[Floats, Intervals]]:
        """Return what `ours` returns."""
        rows = np.arange(self.n)
        scores, calls = np.zeros((len(RULES), self.n)), np.zeros((len(RULES), self.n))
        for places in drawn_orders(self.recording, orders, SEED):
            lead, share, score = self.votes(places)
            cases = [*((lead, k) for k in LEADS), *((share, s) for s in SHARES)] if with_rules else []
            for number, (signal, least) in enumerate(cases):
                fires = signal >= least
                fires[:, -1] = True
                stop = fires.argmax(axis=1)
                scores[number] += score[rows, stop]
                calls[number] += stop + 1
        if not with_rules:
            return {}
        weights = bootstrap_weights(self.n, DRAWS, rng=SEED)
        return {
            name: (means, paired_bootstrap(means, weights, method="percentile"))
            for name, means in (("match", scores / orders), ("calls", calls / orders))
        }


def check() -> None:
    """Compare every rule on fewer questions."""
    small = recorded(60)
    mine, plain = ours(small, 7), Bare(small).run(7)
    for name, (means, intervals) in mine.items():
        np.testing.assert_allclose(means, plain[name][0], atol=1e-9)
        np.testing.assert_allclose(intervals.low, plain[name][1].low, atol=1e-9)


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    check()
    recording = recorded()
    bare = Bare(recording)
    times = interleaved(
        [lambda: ours(recording, ORDERS), lambda: bare.run(ORDERS), lambda: bare.run(ORDERS, with_rules=False)], 3
    )
    (mine, mine_cpu), (plain, plain_cpu), (votes, _) = times
    began, used = time.perf_counter(), time.process_time()
    replay(recording, RULES, metrics=["match"], baseline="full")
    whole, whole_cpu = time.perf_counter() - began, time.process_time() - used
    print(f"{len(RULES)} rules x {QUESTIONS} questions x {SAMPLES} samples x {ORDERS} orders x {DRAWS} draws")
    print(f"  ours                         {mine:8.2f} s")
    print(f"  bare vote count with rules   {plain:8.2f} s   ratio {mine / plain:.2f}")
    print(f"  bare vote count alone        {votes:8.2f} s   ratio {mine / votes:.2f}")
    print(
        f"  processor time               {mine_cpu:8.2f} s   against {plain_cpu:.2f} s, ratio {mine_cpu / plain_cpu:.2f}"
    )
    print(
        f"  a whole replay               {whole:8.2f} s   processor time {whole_cpu:.2f} s, ratio {whole_cpu / plain_cpu:.2f}"
    )
    return {
        "name": "votes",
        "ours": mine,
        "peer": plain,
        "votes_alone": votes,
        "ratio": mine / plain,
        "ratio_to_votes_alone": mine / votes,
        "processor": {"ours": mine_cpu, "peer": plain_cpu, "ratio": mine_cpu / plain_cpu},
        "whole_replay": {"wall": whole, "processor": whole_cpu, "ratio": whole_cpu / plain_cpu},
        "target": {"ratio": TARGET_RATIO},
        "met": mine_cpu / plain_cpu < TARGET_RATIO,
        "sizes": {
            "rules": len(RULES),
            "questions": QUESTIONS,
            "samples": SAMPLES,
            "orders": ORDERS,
            "draws": DRAWS,
        },
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
