"""Tables with a row for each prefix of a chain of thought, and the answer that was forced there."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape


def _prefixes(draw: Draw, rounds: int) -> list[tuple[Asked, int, int]]:
    """Return a row for each question and prefix, with its number of tokens."""
    result = []
    for asked in draw.asked(60, rounds, "letter"):
        step = draw.random.randint(90, 400)
        result += [(asked, r, step * r + draw.random.randint(0, 9)) for r in range(1, rounds + 1)]
    return result


def _log(draw: Draw, rounds: int, row: Any) -> Log:
    rows = _prefixes(draw, rounds)
    questions = list({asked.number: asked for asked, _, _ in rows}.values())
    return Log([row(*each) for each in rows], [asked.loop() for asked in questions])


@shape("prefixes.csv")
def prefixes_with_tokens(draw: Draw) -> Log:
    """A row for each prefix, with its tokens, the forced answer and whether it is right; nothing counts the rounds."""

    def row(asked: Asked, r: int, tokens: int) -> dict[str, Any]:
        said = {"question_id": f"q{asked.number}", "thinking_tokens": tokens, "prediction": asked.answers[r - 1]}
        return {**said, "gold": asked.gold, "correct": int(asked.right[r - 1])}

    return _log(draw, 4, row)


@shape("prefixes.jsonl", options=["--column", "thinking_tokens=n_tokens", "--trial-cost", "12"])
def prefixes_with_option_probabilities(draw: Draw) -> Log:
    """The probability of each option at each checkpoint, and the most probable one."""

    def row(asked: Asked, r: int, tokens: int) -> dict[str, Any]:
        answer = asked.answers[r - 1]
        options = {f"prob_{name}": 0.8 if name == answer else 0.05 for name in "ABCDE"}
        said = {"id": asked.number, "checkpoint": r, "n_tokens": tokens, **options, "pred": answer}
        return {**said, "gold": asked.gold, "is_correct": asked.right[r - 1]}

    return _log(draw, 4, row)


@shape("deciles.jsonl")
def deciles_of_chains(draw: Draw) -> Log:
    """Answers at each tenth of the finished chain."""

    def row(asked: Asked, r: int, tokens: int) -> dict[str, Any]:
        said = {"id": asked.number, "decile": r, "thinking_tokens": tokens, "prediction": asked.answers[r - 1]}
        return {**said, "gold": asked.gold, "correct": int(asked.right[r - 1])}

    return _log(draw, 10, row)
