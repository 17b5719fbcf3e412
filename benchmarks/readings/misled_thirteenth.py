"""Logs that misled the importer when a thirteenth person tried it: drafts beside a critic's comments, codes, and columns of votes."""

from __future__ import annotations

from benchmarks.readings.cases import CITIES, Draw, Log, shape
from benchmarks.readings.plain import loops


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


@shape("patents.jsonl", options=("--set", "normalizer=exact"))
def codes_with_numbers(draw: Draw) -> Log:
    """Classes of patents have one number beside letters, which tell them apart."""
    questions = draw.asked(80, rounds=3)
    codes = {city: f"{'GH'[i % 2]}{i:02}{'LMF'[i % 3]} 9/{30 + i // 4}" for i, city in enumerate(CITIES)}
    made = [
        {"patent_no": f"EP{a.number}", "attempt": r, "prediction": codes[said], "gold": codes[a.gold]}
        for a in questions
        for r, said in enumerate(a.answers, start=1)
    ]
    read = [a.loop(answers=tuple(codes[said] for said in a.answers), golds=(codes[a.gold],)) for a in questions]
    return Log(made, read)


@shape("rounds.jsonl")
def lists_by_round(draw: Draw) -> Log:
    """A record has a list of answers by round, and one of tokens."""
    questions = draw.asked(60)
    made = [
        {
            "qid": a.number,
            "gold": a.gold,
            "answers_by_round": [*a.answers],
            "tokens_by_round": [draw.tokens() for _ in a.answers],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("votes.csv", samples=True)
def votes_in_rows(draw: Draw) -> Log:
    """Each row has an answer that is put to a vote, and the number of the vote."""
    questions = draw.asked(60, rounds=5, right=(0.6, 0.6))
    made = [
        {"qid": a.number, "vote": place, "answer": said, "gold": a.gold}
        for a in questions
        for place, said in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))
