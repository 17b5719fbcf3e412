"""Logs that misled the importer when a thirteenth person tried it: drafts beside a critic's comments, codes, and columns of votes."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, shape


@shape("commits.json", metric="right")
def messages_beside_a_comment(draw: Draw) -> Log:
    """Each draft has a message, and what a critic said of it in an object of the critic's."""
    questions = draw.asked(40, rounds=3)
    made = [
        {
            "commit": f"c{a.number:07}",
            "drafts": [
                {"message": text, "critic": {"comment": draw.prose(3)}, "right": int(right)}
                for text, right in zip(a.answers, a.right, strict=True)
            ],
        }
        for a in questions
    ]
    return Log({"commits": made}, [own.loop(golds=()) for own in questions])
