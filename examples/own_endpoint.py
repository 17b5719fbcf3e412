"""The same loop on your own endpoint: any server that speaks OpenAI's chat interface (vLLM, SGLang, llama.cpp, hosted).

Set SUFFICE_URL (say http://localhost:8000/v1) and SUFFICE_MODEL; the key, if it needs one, goes into OPENAI_API_KEY.
"""

import os
import sys

from suffice import ChatModel, Policy, PoolBM25, RetrievalLoop, load_questions
from suffice.errors import SufficeError


def main() -> int:
    url, name = os.environ.get("SUFFICE_URL"), os.environ.get("SUFFICE_MODEL", "default")
    if not url:
        print("set SUFFICE_URL to an OpenAI-compatible endpoint, for instance http://localhost:8000/v1")
        return 2
    model = ChatModel(name, base_url=url)
    # A rule that reads no margin: TASR needs a calibrated policy first (suffice record, suffice calibrate).
    policy = Policy(rule="answer_stable_guarded", max_rounds=5)
    loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=policy)
    for question in load_questions("hotpotqa_eval", limit=3):
        outcome = loop.run(question.question, question.passages)
        if outcome.error is not None:  # the answer of the rounds before the failure is still there
            print(f"failed after {len(outcome.rounds)} rounds: {outcome.error}", file=sys.stderr)
        print(
            f"{outcome.answer!r} (gold {question.answers[0]!r}): {outcome.decision.reason} at round "
            f"{outcome.decision.stop_round}, {outcome.cost.tokens:.0f} tokens"
        )
    model.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SufficeError as error:
        sys.exit(f"error: {error}")
