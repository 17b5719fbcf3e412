"""The whole chain on a few bundled HotpotQA questions, offline: record, calibrate, replay, deploy.

So few questions prove nothing: `suffice demo` does the same on 300.
"""

import tempfile
from pathlib import Path

from suffice import Policy, PoolBM25, RetrievalLoop, calibrate, load_questions, read_recording, record, replay
from suffice_reader.model import SpanReaderModel

QUESTIONS = 10


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))


def run(folder: Path) -> None:
    loop = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25())
    for split in ("tune", "eval"):
        record(load_questions(f"hotpotqa_{split}", limit=QUESTIONS), loop, folder / f"{split}.parquet")

    policy, summary = calibrate(read_recording(folder / "tune.parquet"), rule="tasr")
    print(f"calibrated on {summary.n} tune questions")

    result = replay(read_recording(folder / "eval.parquet"), [policy, "answer_stable_guarded"])
    for row in result.rows:
        print(f"{row.label:30} F1 {100 * row.metrics['f1']:5.1f}  calls {row.calls.mean:.2f}")
    print(result.headline("tasr"))

    policy.save(folder / "policy.json")
    live = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25(), policy=Policy.load(folder / "policy.json"))
    question = load_questions("hotpotqa_eval", limit=1)[0]
    outcome = live.run(question.question, question.passages)
    print(
        f"live: {question.question}\n  {outcome.answer!r} after round {outcome.decision.stop_round} "
        f"({outcome.decision.reason})"
    )


if __name__ == "__main__":
    main()
