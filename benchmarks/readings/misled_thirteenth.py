"""Logs that misled the importer when a thirteenth person tried it: drafts beside a critic's comments, codes, and columns of votes."""

from __future__ import annotations

from benchmarks.readings.cases import CITIES, Draw, Log, shape


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
