"""Logs that misled the importer when a fifth person tried it: messages delivered twice, shuffled totals, two lines of names, sentences."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("topic.jsonl")
def messages_delivered_twice(draw: Draw) -> Log:
    """A consumer that restarts gets a few messages again, later and under other offsets."""
    questions = draw.asked(60)
    sent = [
        {"conversation": f"c{a.number}", "seq": r, "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, 1)
    ]
    delivered: list[dict[str, Any]] = []
    for place, payload in enumerate(sent):
        again = [sent[place - 1]] if place % 29 == 3 else []
        delivered += [payload, *again]
    made = [
        {"offset": 900 + i, "ts": 1772438400000 + 4000 * i, "key": own["conversation"], "payload": json.dumps(own)}
        for i, own in enumerate(delivered)
    ]
    return Log(made, loops(questions))


@shape("probe.csv")
def shuffled_prefixes(draw: Draw) -> Log:
    """Trial answers after 512, 1024, ... tokens of thought, written in any order by many workers."""
    questions = draw.asked(60)
    made = [
        {"problem_id": a.number, "think_tokens": 512 * r, "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, 1)
    ]
    draw.random.shuffle(made)
    return Log(made, loops(questions))


@shape("progress.csv")
def shuffled_seconds_so_far(draw: Draw) -> Log:
    """The seconds since a question was asked, in rows in any order."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        elapsed = 0.0
        for text in a.answers:
            elapsed += 3 + 4 * draw.random.random()
            made.append({"question_id": a.number, "elapsed_s": round(elapsed, 2), "answer": text, "gold": a.gold})
    draw.random.shuffle(made)
    return Log(made, loops(questions))


@shape("timed.csv")
def seconds_of_each_row(draw: Draw) -> Log:
    """The seconds that each round took, which say nothing about the order of rows."""
    questions = draw.asked(60)
    made = [
        {"question_id": a.number, "elapsed_s": round(3 + 4 * draw.random.random(), 2), "answer": text, "gold": a.gold}
        for a in questions
        for text in a.answers
    ]
    return Log(made, loops(questions))


@shape("sheet.csv")
def two_lines_of_names(draw: Draw) -> Log:
    """The cells above the names are merged, so that most columns have no name in the first line; nothing can be read by name."""
    lines = ["item,,,round 1,,round 2,,round 3,,round 4,", "no,text,right,answer" + ",mark,answer" * 3 + ",mark"]
    for a in draw.asked(60):
        marked = [f"{text},{int(right)}" for text, right in zip(a.answers, a.right, strict=True)]
        lines.append(",".join([str(a.number), a.question, a.gold, *marked]))
    return Log("\n".join(lines) + "\n")


@shape("hits.json")
def newest_hits_of_a_search(draw: Draw) -> Log:
    """Elasticsearch writes all documents into one list, the newest first, in an object that holds nothing else."""
    questions = draw.asked(60, 3)
    made = [
        {
            "_index": "bot",
            "_id": f"{a.number}-{r}",
            "_source": {
                "@timestamp": f"2026-03-02T{a.number // 60 + 8:02}:{a.number % 60:02}:{r * 9:02}Z",
                "trace": {"id": f"t{a.number}"},
                "bot": {"draft": text},
                "qa": {"reference": a.gold},
            },
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log({"hits": {"hits": made[::-1]}}, loops(questions))


@shape("captions.jsonl")
def sentences_with_one_number_each(draw: Draw) -> Log:
    """Gold answers and answers are sentences with a number, which often have the number of another one."""
    forms = (
        "The bridge was closed for {} days in winter.",
        "A council approved {} new trees along our park.",
        "Only {} guests came to hear this concert.",
    )
    made: list[dict[str, Any]] = []
    found = []
    for a in draw.asked(60):
        texts = {city: draw.random.choice(forms).format(20 + draw.random.randrange(3)) for city in (a.gold, *a.answers)}
        answers = tuple(texts[city] for city in a.answers)
        made += [{"id": a.number, "round": r, "answer": t, "gold": texts[a.gold]} for r, t in enumerate(answers, 1)]
        right = tuple(text == texts[a.gold] for text in answers)
        found.append(a.loop(answers=answers, golds=(texts[a.gold],), scores=right))
    return Log(made, found)
