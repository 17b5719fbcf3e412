"""Logs that misled the importer when a ninth person tried it: spellings that count, passes, sessions of tasks, and failed calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks.readings.cases import CITIES, Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


def spelled(draw: Draw, forms: Callable[[], tuple[str, list[str], list[str]]]) -> Log:
    """Return a log of a gold answer, other spellings of it, and wrong answers that are spelled nearly alike."""
    questions = []
    for a in draw.asked(80):
        gold, same, wrong = forms()
        answers = tuple(draw.random.choice(same if right else wrong) for right in a.right)
        questions.append(Asked(a.number, a.question, gold, answers, a.right))
    made = [
        {"qid": f"q{a.number}", "question": a.question, "round": r, "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("moves.csv")
def moves_that_differ_in_case(draw: Draw) -> Log:
    """In chess, bxc3 is a pawn's move and Bxc3 a bishop's."""

    def forms() -> tuple[str, list[str], list[str]]:
        square = f"x{draw.random.choice('ac')}{draw.random.randint(3, 6)}"
        own, other = draw.random.sample(["b", "B"], 2)
        return own + square, [own + square], [other + square]

    return spelled(draw, forms)


@shape("versions.csv")
def versions_that_end_in_zero(draw: Draw) -> Log:
    """Version 3.10 came after 3.9, and is not 3.1."""

    def forms() -> tuple[str, list[str], list[str]]:
        gold = f"{draw.random.randint(1, 4)}.{draw.random.randint(1, 3)}0"
        return gold, [gold], [gold[:-1], f"{gold}0"]

    return spelled(draw, forms)


@shape("prices.csv")
def prices_with_and_without_zeros(draw: Draw) -> Log:
    """A price of 3.50 is 3.5."""

    def forms() -> tuple[str, list[str], list[str]]:
        cents = 5 * draw.random.randint(21, 900)
        gold = f"{cents / 100:.2f}"
        return gold, [gold, f"{cents / 100:g}"], [f"{cents / 100 + 1:.2f}"]

    return spelled(draw, forms)


@shape("powers.csv")
def units_that_differ_in_case(draw: Draw) -> Log:
    """An answer of 8 mW is 8mW and 0.008 W, and not 8 MW."""

    def forms() -> tuple[str, list[str], list[str]]:
        value = draw.random.choice([2, 5, 8, 10, 40])
        own, other = draw.random.sample(["mW", "MW"], 2)
        return f"{value} {own}", [f"{value} {own}", f"{value}{own}"], [f"{value} {other}"]

    return spelled(draw, forms)


@shape("sessions.csv")
def tasks_within_sessions(draw: Draw) -> Log:
    """A session has several tasks, and the question of each is in its first row alone."""
    questions = draw.asked(120, 3)
    made = [
        {
            "timestamp": f"2026-03-02T{8 + a.number // 60:02}:{a.number % 60:02}:{r:02}",
            "session": f"S{a.number % 20}",
            "user_question": f"{draw.prose(6)} {a.number}?" if r == 0 else "",
            "answer": text,
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    texts = [row["user_question"] for row in made if row["user_question"]]
    return Log(made, [a.loop(question=text, golds=(), scores=None) for a, text in zip(questions, texts, strict=True)])


def passes(draw: Draw, again: Callable[[Asked], bool], *, timed: bool) -> Log:
    """Return a log without ids, whose loop ran again on some questions; `pass` counts rounds."""
    first = draw.asked(60)
    later = [a for a in draw.asked(60) if again(a)]
    later = [Asked(a.number, a.question, first[a.number].gold, a.answers, a.right) for a in later]
    second = [
        Asked(a.number, a.question, a.gold, tuple(a.gold if right else "Nowhere" for right in a.right), a.right)
        for a in later
    ]
    made = [
        {"time": f"2026-03-0{2 + night}T08:{a.number:02}:{r:02}"} | {"question": a.question, "pass": r, "response": text, "gold": a.gold}
        for night, questions in enumerate((first, second))
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]  # fmt: skip
    if not timed:
        made = [{name: value for name, value in row.items() if name != "time"} for row in made]
    return Log(made, [a.loop(question=a.question) for a in (*first, *second)])


@shape("partly.csv")
def some_questions_asked_again(draw: Draw) -> Log:
    """Some questions were asked again hours later, and `pass` counts from 1 again."""
    return passes(draw, lambda a: a.number % 6 == 0, timed=True)


@shape("nightly.csv")
def all_questions_asked_again(draw: Draw) -> Log:
    """The loop ran again on all questions, and no column says when."""
    return passes(draw, lambda _: True, timed=False)


@shape("timeouts.jsonl")
def failed_attempts_with_partial_text(draw: Draw) -> Log:
    """Some calls timed out after the first letters of the answer, and were attempted again; `task` is an id."""
    questions = draw.asked(60)
    made: list[dict[str, object]] = []
    for a in questions:
        for r, text in enumerate(a.answers, start=1):
            own = {"task": f"q{a.number}", "prompt": a.question, "turn": r, "expected": a.gold}
            failed = draw.random.random() < 0.12
            made += [{**own, "attempt": 1, "http_status": 504, "output": text[:2]}] * failed
            made.append({**own, "attempt": 1 + failed, "http_status": 200, "output": text})
    return Log(made, [a.loop(question=f"q{a.number}") for a in questions])


@shape("consistency.jsonl", samples=True)
def the_vote_beside_the_gold_answer(draw: Draw) -> Log:
    """Samples with the vote in a column of its own, and the gold answer in one called `solution`."""
    questions = draw.asked(80, 6, kind="whole", right=(0.6, 0.6))
    made = [
        {
            "uid": f"s{a.number}",
            "problem": a.question,
            "solution": a.gold,
            "samples": list(a.answers),
            "majority": max(dict.fromkeys(a.answers), key=a.answers.count),
        }
        for a in questions
    ]
    return Log(made, [a.loop(question=f"s{a.number}") for a in questions])


@shape("decisions.csv")
def decisions_of_three_values(draw: Draw) -> Log:
    """The gold answer is yes, no or maybe, in a column that is called otherwise than gold answers are."""
    questions = []
    for a in draw.asked(100, right=(0.3, 0.5)):
        gold = draw.random.choice(["yes", "yes", "no", "maybe"])
        wrong = draw.random.choice([own for own in ("yes", "no", "maybe") if own != gold])
        questions.append(
            Asked(a.number, a.question, gold, tuple(gold if right else wrong for right in a.right), a.right)
        )
    made = [
        {"pubid": 21000000 + a.number, "question": a.question, "final_decision": a.gold}
        | {f"pred_{r}": text for r, text in enumerate(a.answers, start=1)}
        for a in questions
    ]
    return Log(made, [a.loop(question=21000000 + a.number) for a in questions])


@shape("docker.jsonl", "moby/moby: daemon/logger/jsonfilelog/jsonlog")
def objects_in_lines_of_a_container(draw: Draw) -> Log:
    """The log of a container has the program's JSON lines as text, and other lines between them."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        for r, text in enumerate(a.answers, start=1):
            own = {"qid": f"q{a.number}", "question": a.question, "round": r, "answer": text, "gold": a.gold}
            at = f"2026-03-02T{8 + a.number // 60:02}:{a.number % 60:02}:{r:02}Z"
            made.append({"log": f"{own['qid']} INFO {json.dumps(own)}\n", "stream": "stdout", "time": at})
        made.append({"log": "GET /healthz 200\n", "stream": "stderr", "time": at})
    return Log(made, [a.loop(question=f"q{a.number}") for a in questions])


@shape("medical.jsonl")
def options_named_in_several_forms(draw: Draw) -> Log:
    """Answers name an option by its letter, its text, or both; the right one's letter and text are columns."""
    questions, made = [], []
    for a in draw.asked(80, kind="letter"):
        options = dict(zip("ABCDE", draw.random.sample(CITIES, 5), strict=True))
        said = [draw.random.choice([own, options[own], f"{own}. {options[own]}"]) for own in a.answers]
        questions.append(a)
        made.append(
            {"question": a.question, "options": options, "answer": options[a.gold], "answer_idx": a.gold}
            | {f"model_round_{r}": text for r, text in enumerate(said, start=1)}
        )
    return Log(made, [a.loop(question=a.number + 1) for a in questions])


@shape("mlruns", "mlflow/mlflow: mlflow/store/tracking/file_store.py")
def runs_of_mlflow_with_a_round_each(draw: Draw) -> Log:
    """Each round is a run of MLflow, whose number is a parameter, in a folder with a random name."""
    questions = draw.asked(60)
    files: dict[str, object] = {}
    for r, name in enumerate(("d1f0", "7ac2", "e95b", "0b3d")):
        rows = [[a.question, a.gold, a.answers[r]] for a in questions]
        files[f"{name}/artifacts/eval_results_table.json"] = {
            "columns": ["inputs", "ground_truth", "outputs"],
            "data": rows,
        }
        files[f"{name}/meta.yaml"] = f"run_id: {name}\nstatus: 3\n"
        files[f"{name}/params/round"] = str(r + 1)
        files[f"{name}/metrics/exact_match"] = "1772000000000 0.5 0\n"
    return Log(files, [a.loop(question=a.question) for a in questions])


@shape("codes.csv")
def codes_in_small_letters(draw: Draw) -> Log:
    """Codes of countries, which a model writes in small letters at times."""

    def forms() -> tuple[str, list[str], list[str]]:
        gold, wrong = draw.random.sample(["DE", "FR", "SE", "DK", "NL", "BE"], 2)
        return gold, [gold, gold.lower()], [wrong]

    return spelled(draw, forms)


@shape("measured.csv")
def decimals_without_zeros_at_the_end(draw: Draw) -> Log:
    """Gold answers have no zeros at their ends, while answers may."""

    def forms() -> tuple[str, list[str], list[str]]:
        value = draw.random.randint(11, 99) / 10
        return f"{value:g}", [f"{value:g}", f"{value:.2f}"], [f"{value + 1:g}"]

    return spelled(draw, forms)


def with_columns(draw: Draw, more: Callable[[Asked, int], dict[str, Any]], **changed: Any) -> Log:
    """Return a long log with further columns; `changed` is what it says less."""
    questions = draw.asked(60)
    made = [
        {"id": f"q{a.number}", "question": a.question, "answer": text, "gold": a.gold} | more(a, r)
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, [a.loop(question=f"q{a.number}", **changed) for a in questions])


@shape("single.jsonl")
def a_status_of_calls_that_all_worked(draw: Draw) -> Log:
    """Each row has the status of its call, and the number of its attempt."""
    return with_columns(draw, lambda _, r: {"round": r, "http_status": 200, "attempt": 1})


@shape("category.jsonl")
def a_category_of_two_words_beside_yes_and_no(draw: Draw) -> Log:
    """A column of yes and no says whether a question is of a kind, and does not judge the answers, which are yes and no, too."""
    questions = []
    for a in draw.asked(60):
        gold, wrong = draw.random.sample(["yes", "no"], 2)
        questions.append(
            Asked(a.number, a.question, gold, tuple(gold if right else wrong for right in a.right), a.right)
        )
    made = [
        {"id": f"q{a.number}", "question": a.question, "round": r, "answer": text, "gold": a.gold, "is_hard": "yes" if a.number * 7 % 3 else "no"}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]  # fmt: skip
    return Log(made, loops(questions))


@shape("onetask.csv")
def sessions_of_one_question(draw: Draw) -> Log:
    """Each session has one question, which is in its first row alone."""
    questions = draw.asked(60)
    made = [
        {"time": f"2026-03-02T08:{a.number:02}:{r:02}", "session_id": f"S{a.number}", "user_question": a.question if r == 0 else "", "answer": text}
        for a in questions
        for r, text in enumerate(a.answers)
    ]  # fmt: skip
    return Log(made, [a.loop(question=f"S{a.number}", golds=(), scores=None) for a in questions])


@shape("passes.csv")
def one_pass_of_each_question(draw: Draw) -> Log:
    """`nth` counts the rows of each question once, in their order."""
    return with_columns(draw, lambda _, r: {"nth": r})


@shape("requests.jsonl")
def objects_in_a_column_beside_others(draw: Draw) -> Log:
    """A column has JSON objects with settings, and others name the question and the round."""
    return with_columns(draw, lambda _, r: {"step": r, "settings": json.dumps({"top_k": 5, "round_up": True})})


@shape("tasks.jsonl")
def tasks_with_an_id_beside_their_text(draw: Draw) -> Log:
    """`task` has the id of a question, and `prompt` its text."""
    questions = draw.asked(60)
    made = [
        {"task": f"q{a.number}", "prompt": a.question, "turn": r, "output": text, "expected": a.gold}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, [a.loop(question=f"q{a.number}") for a in questions])
