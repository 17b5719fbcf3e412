"""Thinking: stop a chain of thought when the answer that it would give now is sure.

The 700 chains are those of a tiny model on invented puzzles, with the answer that it would give at every checkpoint.  Record yours
with `suffice think record`, or ask for the answers of finished chains with `suffice think ask`.
"""

from suffice import Round, Session, decide, replay
from suffice.recordings import bundled_recording

chains = bundled_recording("thoughts_test")

# A round is a checkpoint, here every 16 tokens.  Asking for an answer there
# costs tokens, which are in these figures.  A budget of tokens asks nothing
# and is the rival: a rule that is no better is not worth its questions.
result = replay(chains, ["deer(0.95)", "dynasor(3)", "token_budget(112)", "full"], cost="tokens")
for row in result.rows[:4]:
    print(f"{row.label:18} right {100 * row.metrics['em']:5.1f} %   tokens {row.costs['tokens']:5.0f}")

advice = decide(chains, cost="tokens")
print(f"\n{advice.sentence}\n")

# Live, `ThinkingLoop(model=ChatModel(...),
# policy=advice.policy).run(question)` does this with any server that
# continues raw text, such as vLLM.  Here the checkpoints of one recorded
# chain take the place of the model.
session = Session(advice.policy)
answers, logprobs = chains.answers[0], chains.column("answer_logprob_mean")[0]
for checkpoint, answer in enumerate(answers, start=1):
    signals = {"answer_logprob_mean": float(logprobs[checkpoint - 1])}
    decision = session.observe(Round(index=checkpoint, answer=answer, signals=signals))
    print(f"after {16 * checkpoint:3} tokens: {answer!r}, {'stop' if decision.stop else 'think on'}")
    if decision.stop:
        break
