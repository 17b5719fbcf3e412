"""Self-consistency: ask for samples one by one, and stop when the vote is decided.

The samples are real: ten answers of ChatGPT to each question about dates, of 60 questions as a log and of 369 as a recording.
"""

import tempfile
from pathlib import Path

from suffice import Session, decide, import_recording, read_recording
from suffice.recordings import bundled_recording

LOG = Path(__file__).resolve().parents[1] / "samples.jsonl"

with tempfile.TemporaryDirectory() as folder:
    # `samples=True`: the rounds of a question are independent draws.
    # Answers then vote, and figures are means over random orders.
    imported = import_recording(LOG, samples=True, out=f"{folder}/samples.parquet")
    # Look how answers are compared: here as dates, so 05/01/2021 and May 1,
    # 2021 are one vote.
    print(f"{imported.clusters} questions; {imported.notes[-1]}")
    few = decide(read_recording(imported.path))
    print(f"{few.sentence}\n")

# Sixty questions are too few to rule out a loss of two points.  The same
# with 369; the rival of every rule is a smaller number of samples for all
# questions, and it was tried, too.
advice = decide(bundled_recording("samples_date"))
print(f"{advice.sentence}\n")

# Live: one sample after the other, until the policy says stop.  Your calls
# of the model stand in the place of this list.
session = Session(advice.policy)
for answer in ["05/01/2021", "06/01/2021", "May 1, 2021", "05/01/2021", "05/01/2021", "05/01/2021"]:
    if session.observe(draft=answer).stop:
        break
decision = session.decision
print(f"live: {decision.answer} after {decision.stop_round} samples, because {decision.fired}")
