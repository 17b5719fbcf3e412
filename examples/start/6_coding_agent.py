"""A coding agent: what its transcripts say about its money, and whether a rule should end its runs earlier.

The transcripts are real: two of mini-swe-agent as files, then 500 on SWE-bench Verified as a recording.  A folder of Claude Code, Codex,
OpenHands, SWE-agent or Inspect is read by the same line.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

from suffice import decide, import_recording, read_recording
from suffice.recordings import bundled_recording

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "tests" / "data" / "transcripts"

with tempfile.TemporaryDirectory() as folder:
    # No transcript says whether its run succeeded.  Your tests know, or a
    # person; here it is written as SWE-bench reports it.
    outcomes = Path(folder, "outcomes.json")
    graded = {"resolved_ids": ["django__django-16255"], "unresolved_ids": ["django__django-11163"]}
    outcomes.write_text(json.dumps(graded))
    imported = import_recording(TRANSCRIPTS, outcomes=outcomes, out=f"{folder}/runs.parquet")
    runs = read_recording(imported.path)

# A step is a round, and its answer stands for the files that the run has
# changed so far: so money after the last change shows.
for name, states, spend in zip(runs.question_ids, runs.answers, runs.column("spend"), strict=True):
    steps = int(np.isfinite(spend).sum())
    changed = next(step for step in range(steps, 1, -1) if states[step - 1] != states[step - 2])
    late = spend[steps - 1] - spend[changed - 1]
    print(f"{name}: {steps} steps, the last change at step {changed}, ${late:.3f} of ${spend[steps - 1]:.3f} after it")

# Two runs decide nothing.  Of 500 runs of one agent the answer is to leave
# it alone, and that is worth knowing, too: most of what is spent after the
# last change cannot be saved, because nobody knows at that moment that it
# was the last.
advice = decide(bundled_recording("agents_swebench"))
print(f"\n{advice.sentence}\n")
spending = advice.spending
print(f"of ${spending.total:.2f}: {100 * spending.after_change:.0f} % after the last change,")
print(f"  {100 * spending.failed:.0f} % in runs that failed, {100 * spending.repeated:.0f} % on repeated commands")
