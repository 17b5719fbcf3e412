"""Logs whose rounds are files of any name, or what one of several speakers says: each needs several answers of its owner."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, Loop, shape

LANGUAGES = ("en", "es")


@shape("poems")
def a_file_for_each_pass(draw: Draw) -> Log:
    """Each file is a pass over the same poems, with a row for each language; nothing in a row counts the passes."""
    texts = {(p, lang): tuple(draw.prose(6) for _ in range(3)) for p in range(30) for lang in LANGUAGES}
    files = {
        f"pass_{n}.tsv": [
            {"poem_id": f"p{p:02}", "target_lang": lang, "translation": own[n - 1]} for (p, lang), own in texts.items()
        ]
        for n in (1, 2, 3)
    }
    return Log(files, [Loop(asked, own) for asked, own in texts.items()])


@shape("tutoring.jsonl", metric="score")
def drafts_scored_in_the_rows_of_a_critic(draw: Draw) -> Log:
    """A critic's row follows each draft of a tutor, and has the score of that draft."""
    rows, read = [], []
    for asked in range(60):
        own = [(draw.prose(8), draw.random.randint(0, 20) / 20) for _ in range(3)]
        for turn, (text, score) in enumerate(own, start=1):
            row = {"thread": f"t{asked:03}", "turn": turn}
            rows += [
                {**row, "role": "tutor", "content": text, "score": None},
                {**row, "role": "critic", "content": draw.prose(4), "score": score},
            ]
        read.append(Loop(asked, tuple(text for text, _ in own), scores=tuple(score for _, score in own)))
    return Log(rows, read)


@shape("hops.jsonl")
def hops_from_0_without_passages_at_first(draw: Draw) -> Log:
    """Hops count from 0, and the first has no passages: it may be the model alone, or what the loop begins with."""
    asked = draw.asked()
    rows = [
        {"qid": a.number, "hop": hop, "passages": [f"p{a.number}-{hop}"] * bool(hop), "answer": answer, "gold": a.gold}
        for a in asked
        for hop, answer in enumerate(a.answers)
    ]
    return Log(rows, [a.loop() for a in asked])
