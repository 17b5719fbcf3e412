"""A writer and a critic on your own endpoint: stop when the critic approves or a draft repeats the one before.

Set SUFFICE_URL (say http://localhost:8000/v1) and SUFFICE_MODEL; the key, if it needs one, goes into OPENAI_API_KEY.
"""

import os
import sys

from suffice import ChatModel, DraftingLoop, Policy, load_questions
from suffice.errors import SufficeError


def main() -> int:
    url, name = os.environ.get("SUFFICE_URL"), os.environ.get("SUFFICE_MODEL", "default")
    if not url:
        print("set SUFFICE_URL to an OpenAI-compatible endpoint, for instance http://localhost:8000/v1")
        return 2
    model = ChatModel(name, base_url=url)
    rule = "first_of((critic_approved >= 1), (answer_stable >= 1))"
    loop = DraftingLoop(writer=model, policy=Policy(rule=rule, max_rounds=6))  # critic=ChatModel(...) for another one
    for question in load_questions("hotpotqa_eval", limit=2):
        for observed, decision in loop.stream(question.question, question.passages):
            if observed is not None:
                print(f"draft {observed.index}: {observed.answer}\n  critic: {observed.feedback}")
                if decision.stop:
                    print(f"stopped: {decision.reason}, {decision.fired}; draft {decision.answer_round} is the answer")
            elif decision.error is not None:  # the drafts before the failure are still there
                print(f"failed after {len(decision.rounds)} rounds: {decision.error}", file=sys.stderr)
    model.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SufficeError as error:
        sys.exit(f"error: {error}")
