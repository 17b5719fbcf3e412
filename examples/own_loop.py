"""A loop of your own: a writer that drafts until the policy says stop.

`Session` neither calls models nor knows of retrieval.  It takes what your loop produced and decides; when your loop must
end for another reason, it returns the best answer so far.
"""

from suffice import Cost, Passage, Policy, ScriptedModel, Session

QUESTION = "Which river crosses Vienna?"
WRITER = ScriptedModel({QUESTION: ["I do not know", "the Danube", "The Inn", "the Danube.", "The Danube"]})


def main() -> None:
    policy = Policy(
        rule="((answer_stable >= 1) & (abstained < 1)) | (tokens > 2000)",
        selector="majority",
        max_rounds=6,
    )
    session = Session(policy)
    drafts: list[Passage] = []
    while session.decision is None:
        reply = WRITER.answer(QUESTION, drafts)
        cost = Cost(calls=1, uncached_tokens=80, output_tokens=12)
        decision = session.observe(draft=reply.text, costs={"writer": cost})
        drafts.append(Passage(passage_id=str(len(drafts)), title="draft", text=reply.text))
        print(f"draft {len(drafts)}: {reply.answer}")
    print(f"answer {decision.answer!r} of draft {decision.answer_round}; {decision.reason}: {decision.fired}")

    cut = Session(policy)
    cut.observe(draft="the Danube", costs={"writer": Cost(calls=1, uncached_tokens=80, output_tokens=12)})
    print("the user went away:", cut.end("cancelled").answer)


if __name__ == "__main__":
    main()
