"""Further logs that misled the importer when somebody tried it with shapes of their own: scores, stages, units, times and failures."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops

STAGES = ("final", "initial", "revised")


@shape("queries.csv", metric="exec_acc")
def scores_beside_numbered_queries(draw: Draw) -> Log:
    """Queries and their scores in numbered columns; a right query is seldom the gold one word for word."""
    made, read = [], []
    for asked in draw.asked(60, 3, right=(0.5, 0.7)):
        gold = f"SELECT count(*) FROM caravans WHERE stop = {asked.number % 9}"
        forms = {True: (gold, gold.replace("count(*)", "COUNT(id)"), f"{gold};"), False: ("SELECT sum(id) FROM stops",)}
        said = tuple(draw.random.choice(forms[good]) for good in asked.right)
        row: dict[str, Any] = {"": asked.number, "question": asked.question, "gold_sql": gold}
        row |= {f"pred_sql_{r}": text for r, text in enumerate(said)}
        row |= {f"exec_acc_{r}": int(good) for r, good in enumerate(asked.right)}
        made.append({**row, "ex_final": int(asked.right[-1])})
        read.append(asked.loop(answers=said, golds=()))
    return Log(made, read)


@shape("stages.csv")
def stages_in_the_order_of_the_alphabet(draw: Draw) -> Log:
    """Rows are told apart by the words of their stage, and sorted by them: the final answer comes first."""
    questions = draw.asked(60, 3)
    order = (2, 0, 1)
    made = [
        {"qid": a.number, "stage": STAGES[n], "answer": a.answers[r], "gold": a.gold}
        for a in questions
        for n, r in enumerate(order)
    ]
    return Log(made, loops(questions))


@shape("contexts.csv")
def with_and_without_retrieval(draw: Draw) -> Log:
    """One row with retrieval and one without, in any order."""
    questions = draw.asked(60, 2)
    made = []
    for a in questions:
        two = [
            {"id": a.number, "use_retrieval": bool(r), "response": a.answers[r], "reference": a.gold} for r in (0, 1)
        ]
        made += draw.random.sample(two, 2)
    return Log(made, loops(questions))


@shape("shares.csv", metric="match")
def percentages_of_fractions(draw: Draw) -> Log:
    """Gold answers are fractions, answers percentages as often."""
    made, read = [], []
    for asked in draw.asked(60, 3, "whole"):
        shares = [abs(int(value)) % 97 for value in (asked.gold, *asked.answers)]
        texts = [draw.random.choice((f"{n}%", f"{n} %", f"{n / 100:.2f}")) for n in shares[1:]]
        gold = f"{shares[0] / 100:.2f}"
        made += [
            {"id": asked.number, "attempt": r, "prediction": t, "ground_truth": gold} for r, t in enumerate(texts, 1)
        ]
        right = tuple(n == shares[0] for n in shares[1:])
        read.append(asked.loop(golds=(gold,), answers=tuple(texts), scores=right))
    return Log(made, read)


@shape("variants.jsonl")
def variants_of_a_prompt(draw: Draw) -> Log:
    """Each question is asked with two prompts, whose rounds are counted."""
    both = {name: draw.asked(60, 3) for name in ("control", "concise")}
    made, read = [], []
    for one, other in zip(*both.values(), strict=True):
        for name, asked in zip(both, (one, other), strict=True):
            right = tuple(answer == one.gold for answer in asked.answers)
            row = {"query": asked.question, "prompt_variant": name, "expected": one.gold}
            made += [{**row, "iteration": r, "completion": answer} for r, answer in enumerate(asked.answers, 1)]
            read.append(asked.loop(golds=(one.gold,), scores=right))
    return Log(made, read)


@shape("options.jsonl", samples=True)
def letters_before_distractors(draw: Draw) -> Log:
    """Each of several replies begins with its letter, and names another one in brackets."""
    questions = draw.asked(60, 8, "letter")
    made = []
    for asked in questions:
        replies = [
            {"text": f"{a}. That fits best, whereas option {draw.random.choice('ABCDE')} ({draw.prose(2)}) does not."}
            for a in asked.answers
        ]
        made.append({"doc_id": asked.number, "question": asked.question, "target": asked.gold, "generations": replies})
    return Log(made, loops(questions))
