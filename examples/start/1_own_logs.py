"""From your own logs to a policy: read the log, ask what to change, and stop by the answer.

The log is real: GPT-4 revised each of 424 drafts five times, and a judge scored every draft.  Replace `LOG` by the path of yours.
"""

import tempfile
from pathlib import Path

from suffice import Session, decide, import_recording, read_recording

LOG = Path(__file__).resolve().parents[1] / "logs.jsonl"

with tempfile.TemporaryDirectory() as folder:
    # Your application wrote JSON lines, a table or traces; what each field
    # means is recognised and reported, so check it here.
    imported = import_recording(LOG, out=f"{folder}/logs.parquet")
    print(f"{imported.clusters} questions, {imported.rounds} rounds each, judged by {', '.join(imported.judged_by)}")
    for note in imported.notes:
        print(f"- {note}")

    # One sentence: lower the cap, stop by a rule, or keep the loop.  Nothing
    # is advised that may lose more than two points (`max_loss=0.02`), so too
    # few questions end in "not enough data", with about how many more would
    # do.
    advice = decide(read_recording(imported.path))
    print(f"\n{advice.sentence}\n")

    # The policy is a small JSON file.  It is all that production needs:
    # commit it beside your prompts.
    advice.policy.save(f"{folder}/policy.json")

    # Your loop gives each draft to a session, which says when to stop; the
    # list stands for your calls of the model.
    session = Session(f"{folder}/policy.json")
    for draft in ["The food was cold.", "The food was warm and lovely.", "The food was hot.", "The food was nice."]:
        if session.observe(draft=draft).stop:
            break
    decision = session.decision
    print(f"live: {decision.answer!r} is draft {decision.stop_round}; stopped because {decision.fired}")
