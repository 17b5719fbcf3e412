"""Watch in production: let some requests run on after their answer, and hear when stopping loses more than was agreed.

The loop is invented.  After 120 requests a new version of its model comes, which repeats wrong answers.
"""

import random
import tempfile

from suffice import Audit, Policy, Recorder, read_recording, watch

POLICY = Policy(rule="answer_stable", max_rounds=4)  # in production "policy.json", from `suffice decide`
draw = random.Random(7)


def answers(number: int) -> list[str]:
    """Return four rounds of a request, in the place of your retrieval, your critic or your tools."""
    hasty = draw.random() < (0.02 if number < 120 else 0.6)
    return ["Bergen", "Bergen", "Oslo", "Oslo"] if hasty else ["Oslo"] * 4


with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/log.parquet"
    # A log of early stops does not know what they missed.  So one request in
    # two, drawn by a keyed hash of its id, runs on to round 4 after its user
    # has the answer.  One in twenty is usual; this log is short.
    log = Recorder(path, policy=POLICY, audit=Audit(rate=0.5, seed="a secret of yours"))
    calls = 0
    for number in range(200):
        rounds = answers(number)
        with log.question(f"Where is tower {number}?") as run:
            while not run.done:
                run.observe(rounds[run.next_round - 1])
        calls += run.decision.stop_round  # `run.decision.answer` goes to the user, here
        while run.auditing:
            run.observe(rounds[run.next_round - 1])

        # A job of every night, or `suffice watch` in cron.  Each look is
        # valid, so look as often as you like.  Without gold answers the loss
        # is the share of answers that differ from those of the full run; ten
        # points were agreed.
        if number + 1 in (120, 200):
            log.save()
            result = watch(read_recording(path), POLICY, metric="agreement", max_loss=0.1)
            whole = result.whole
            print(f"after {result.n} requests, {result.n_audited} of them audited: {result.status}")
            print(f"  loss {100 * whole.mean:.1f} [{100 * whole.low:.1f}, {100 * whole.high:.1f}] points")
    log.close()
    print(f"{calls} calls instead of {4 * 200}, beside those of the audits")
