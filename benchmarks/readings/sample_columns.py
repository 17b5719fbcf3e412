"""Logs with a column for each sample, or for each answer of which only the name or other columns say whether they follow one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops

SAMPLES = 6


def columns(draw: Draw, name: str, more: Callable[[Asked, int], dict[str, Any]] | None = None) -> Log:
    """Return a log with a column for each answer, none of which is better than others, and further ones beside them."""
    questions = draw.asked(100, SAMPLES, right=(0.6, 0.6))
    made = [
        {
            "id": a.number,
            "question": a.question,
            "gold": a.gold,
            **{
                key: value
                for r, text in enumerate(a.answers, 1)
                for key, value in {name.format(r): text, **(more(a, r) if more else {})}.items()
            },
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("samples.csv", samples=True)
def columns_of_samples(draw: Draw) -> Log:
    """`sample_1` to `sample_6`."""
    return columns(draw, "sample_{}")


@shape("votes.csv", samples=True)
def columns_of_votes(draw: Draw) -> Log:
    """`vote_1` to `vote_6`."""
    return columns(draw, "vote_{}")


@shape("samples.csv", samples=True)
def columns_of_completions_and_their_tokens(draw: Draw) -> Log:
    """Completions of one prompt, each with its tokens."""
    return columns(draw, "completion_{}", lambda _, r: {f"completion_{r}_tokens": draw.tokens()})


@shape("samples.csv", samples=True)
def samples_with_empty_cells(draw: Draw) -> Log:
    """Some samples have no answer, also the last ones."""
    log = columns(draw, "sample_{}")
    read = []
    for row, own in zip(log.content, log.loops, strict=True):
        empty = {draw.random.randint(1, SAMPLES)} if draw.random.random() < 0.3 else set()
        row |= {f"sample_{r}": "" for r in empty}
        texts = tuple(None if r in empty else text for r, text in enumerate(own.answers, 1))
        right = tuple(text == own.golds[0] for text in texts)
        read.append(type(own)(own.question, texts, own.golds, right))
    return Log(log.content, read)


@shape("answers.csv", options=("--samples",), samples=True)
def columns_of_answers_in_no_order(draw: Draw) -> Log:
    """`answer_1` to `answer_6`, which are samples."""
    return columns(draw, "answer_{}")


@shape("answers.csv", options=("--expected", "sample-list"))
def columns_of_answers_that_do_not_improve(draw: Draw) -> Log:
    """`response_1` to `response_6`, which are rounds, though nothing but their owner says so."""
    return columns(draw, "response_{}")


@shape("answers.csv")
def answers_to_growing_prompts(draw: Draw) -> Log:
    """The prompts of later answers are longer, as those of a loop are."""
    return columns(draw, "answer_{}", lambda a, r: {f"prompt_tokens_{r}": 200 * r + a.number})


@shape("attempts.csv")
def columns_of_attempts_in_no_order(draw: Draw) -> Log:
    """`attempt_1` to `attempt_6`: attempts follow one another."""
    return columns(draw, "attempt_{}")
