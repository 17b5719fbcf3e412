"""Logs with answers under names that no table of usual names has, beside replies or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops, plain, rows


def _log(draw: Draw, theirs: str, more: Callable[[Any], dict[str, Any]], *, golds: bool = True, **kind: Any) -> Log:
    """Return a log of rounds with answers under a name, passages, tokens, and what `more` makes of an answer."""
    questions = draw.asked(60, 3, **kind)
    made = rows(
        questions,
        lambda own, r: {
            "qid": f"q{own.number}",
            "round": r,
            "question": own.question,
            "passages": draw.prose(30),
            "tokens": draw.tokens(),
            **more(own.answers[r - 1]),
            theirs: own.answers[r - 1],
            **({"gold": own.gold} if golds else {}),
        },
    )
    return Log(made, loops(questions) if golds else [own.loop(golds=(), scores=None) for own in questions])


@shape("buses.jsonl")
def short_answers_beside_replies_and_golds(draw: Draw) -> Log:
    """A reply in prose, and under `short_answer` what was read in it, which often is the gold answer."""
    return _log(draw, "short_answer", lambda own: {"reply": f"{draw.prose(9)}. So the answer is {own}."})


@shape("ferries.csv")
def verdicts_beside_replies(draw: Draw) -> Log:
    """Nothing says what is right: whether the reply or `verdict_text` is the answer is asked."""
    return _log(draw, "verdict_text", lambda own: {"reply": f"{draw.prose(9)}. I settle on {own}."}, golds=False)


@shape("meters.jsonl")
def numbers_under_an_unusual_name(draw: Draw) -> Log:
    """Answers are JSON numbers under `extracted`, beside numbers of tokens."""
    return _log(draw, "extracted", lambda _: {"n_docs": draw.random.randint(1, 9)}, kind="number")


@shape("gauges.csv")
def numbers_beside_a_score_of_each_round(draw: Draw) -> Log:
    """Each round has its own score, and numbers under `final` are the answers."""
    log = _log(draw, "final", lambda _: {}, kind="whole")
    for row in log.content:
        row["correct"] = int(row["final"] == row["gold"])
    return log


@shape("stops.jsonl")
def statuses_tools_and_documents_beside_answers(draw: Draw) -> Log:
    """`chosen` is the answer; a status, a tool and a document vary, too."""
    words = ("ok", "retry"), ("search", "lookup")
    return _log(
        draw,
        "chosen",
        lambda _: {
            "status": draw.random.choice(words[0]),
            "tool": draw.random.choice(words[1]),
            "doc": f"doc-{draw.random.randint(1, 99)}",
        },
    )


@shape("trams.csv", metric="f1")
def own_f1_in_percent(draw: Draw) -> Log:
    """The log's own F1 is from 0 to 100, and there are no gold answers: its scale is asked."""
    log = _log(draw, "answer", lambda _: {})
    questions = {}
    for row in log.content:
        row["f1"] = 100 * (row["answer"] == row.pop("gold"))
        questions.setdefault(row["qid"], []).append(row["f1"] / 100)
    return Log(log.content, [replace(own, golds=(), scores=tuple(questions[f"q{own.question}"])) for own in log.loops])


@shape("gates.csv")
def loops_that_gave_up_at_their_cap_and_before(draw: Draw) -> Log:
    """A flag says which loops stopped by themselves; some that did not are shorter than others."""
    questions = draw.asked(60)
    kept = {own.number: draw.random.choice((1, 2, 3, 4, 4)) for own in questions}
    stopped = {number: n == 1 or (n == 4 and number % 3 == 0) for number, n in kept.items()}
    made = [
        {**plain(own, r), "stop": stopped[own.number] and r == kept[own.number]}
        for own in questions
        for r in range(1, kept[own.number] + 1)
    ]
    return Log(
        made, [own.loop(answers=own.answers[: (n := kept[own.number])], scores=own.right[:n]) for own in questions]
    )
