"""Logs that misled the importer when somebody who had not seen its code tried it, each as a shape of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.readings.cases import CITIES, Asked, Draw, Log, Loop, shape
from benchmarks.readings.plain import loops, nested, plain, rows


@shape("debate.jsonl")
def agents_in_debate_rounds(draw: Draw) -> Log:
    """Three agents answer in each of three debate rounds, which `debate_round` counts."""
    agents = [draw.asked(50, 3, "letter") for _ in range(3)]
    for several in zip(*agents, strict=True):
        for own in several[1:]:
            object.__setattr__(own, "gold", several[0].gold)
    records = [
        {
            "question_id": own.number,
            "debate_round": r,
            "agent": f"agent_{n}",
            "response": f"({own.answers[r - 1]})",
            "correct_option": own.gold,
        }
        for several in zip(*agents, strict=True)
        for r in (1, 2, 3)
        for n, own in enumerate(several)
    ]
    read = []
    for several in zip(*agents, strict=True):
        gold = several[0].gold
        for own in several:
            answers = tuple(f"({answer})" for answer in own.answers)
            read.append(own.loop(golds=(gold,), answers=answers, scores=tuple(a == gold for a in own.answers)))
    return Log(records, read)


@shape("newest_first.jsonl")
def newest_rows_first(draw: Draw) -> Log:
    """The last row comes first, and a column of seconds since 1970 has a name of its own."""
    questions = draw.asked(60)
    records = rows(questions, plain)
    for second, row in enumerate(records):
        row["logged"] = 1_740_000_000 + 7 * second
        del row["round"]
    return Log(records[::-1], loops(questions))


@shape("trace.jsonl")
def rounds_as_keys_in_any_order(draw: Draw) -> Log:
    """The rounds are objects under their numbers, the last one first."""
    questions = draw.asked(60)
    records: list[dict[str, Any]] = []
    for asked in questions:
        keyed = {f"iteration_{r}": {"answer": answer} for r, answer in enumerate(asked.answers, 1)}
        records.append({"id": asked.number, "gold": asked.gold, "trace": dict(reversed(keyed.items()))})
    return Log(records, loops(questions))


@shape("run")
def settings_beside_files_of_rounds(draw: Draw) -> Log:
    """A file for each iteration, beside one with the gold answers and one with settings."""
    questions = draw.asked(60)
    files: dict[str, Any] = {
        f"iter-{r:02}.json": {f"q{asked.number}": asked.answers[r] for asked in questions} for r in range(4)
    }
    files["gold.json"] = {f"q{asked.number}": [asked.gold] for asked in questions}
    files["config.json"] = {"temperature": 0.2, "models": 2}
    return Log(files, [asked.loop(golds=(), scores=None) for asked in questions])


@shape("messages.jsonl")
def words_beside_tool_calls(draw: Draw) -> Log:
    """An assistant says what it does beside each tool call, and answers once."""
    return Log(
        [
            {
                "id": asked.number,
                "ground_truth": asked.gold,
                "messages": [
                    {"role": "user", "content": asked.question},
                    {"role": "assistant", "content": "Let me search.", "tool_calls": [{"name": "search"}]},
                    {"role": "tool", "content": draw.prose()},
                    {"role": "assistant", "content": asked.answers[0]},
                ],
            }
            for asked in draw.asked(60, 1)
        ]
    )


@shape("choices.jsonl")
def options_in_numbered_columns(draw: Draw) -> Log:
    """`answer_1` to `answer_4` are the options shown, not answers."""
    records = []
    for asked in draw.asked(60, 1):
        others = draw.random.sample([city for city in CITIES if city != asked.gold], 3)
        options = draw.random.sample([asked.gold, *others], 4)
        shown = {f"answer_{r}": option for r, option in enumerate(options, 1)}
        records.append({"id": asked.number, **shown, "correct_answer": asked.gold})
    return Log(records)


@shape("log.jsonl")
def several_golds_in_one_text(draw: Draw) -> Log:
    """A gold answer and its other name in one text, which no answer equals."""
    questions = draw.asked(60)
    records = nested(questions)
    for record in records:
        record["gold"] = f"{record['gold']} | {record['gold']} (old town)"
    return Log(records, [asked.loop(golds=(asked.gold, f"{asked.gold} (old town)")) for asked in questions])


@shape("log.jsonl")
def gold_behind_a_mark(draw: Draw) -> Log:
    """The gold answer follows its reasoning and a mark, as in GSM8K."""
    questions = draw.asked(60, 4, "whole")
    records = rows(questions, plain)
    for row in records:
        row["gold"] = f"{draw.prose()} = {row['gold']}\n#### {row['gold']}"
    return Log(records, loops(questions))


@shape("log.jsonl")
def lists_in_words(draw: Draw) -> Log:
    """A list of gold answers, all of which an answer has to name."""
    questions = draw.asked(60)
    records = rows(questions, plain)
    for row in records:
        row["gold"] = [row["gold"], "Bern"]
        row["answer"] = f"Bern, {row['answer']}"
    read = [
        asked.loop(golds=([asked.gold, "Bern"],), answers=tuple(f"Bern, {answer}" for answer in asked.answers))
        for asked in questions
    ]
    return Log(records, read)


@shape("log.jsonl")
def one_instruction_for_all(draw: Draw) -> Log:
    """`instruction` is the same everywhere; `input` is the question."""
    questions = draw.asked(60)
    records = rows(questions, plain)
    for row in records:
        row["input"] = row.pop("question")
        row["instruction"] = "Answer in one word."
    return Log(records, loops(questions))


@shape("log.jsonl")
def ids_under_another_name(draw: Draw) -> Log:
    """No usual name for the ids, and `label` is what the model said."""
    questions = draw.asked(60)
    make = lambda asked, r: {"sid": asked.number, "step": r, "label": asked.answers[r - 1], "target": asked.gold}  # noqa: E731
    return Log(rows(questions, make), loops(questions))


@shape("sweep.jsonl")
def settings_of_a_sweep(draw: Draw) -> Log:
    """A row for each number of passages: four loops of one round, and no attempts in an order."""
    questions = draw.asked(60)
    return Log(rows(questions, _swept), _one_round_each(questions))


@shape("sweep.json")
def settings_in_a_list(draw: Draw) -> Log:
    """The same as the items of a list."""
    questions = draw.asked(60)
    records = [
        {"id": asked.number, "gold": asked.gold, "results": [_swept(asked, r) for r in range(1, 5)]}
        for asked in questions
    ]
    for record in records:
        for item in record["results"]:
            del item["id"], item["gold"]
    return Log(records, _one_round_each(questions))


def _swept(asked: Asked, r: int) -> dict[str, Any]:
    return {"id": asked.number, "gold": asked.gold, "top_k": (1, 3, 5, 10)[r - 1], "answer": asked.answers[r - 1]}


def _one_round_each(questions: Sequence[Asked]) -> list[Loop]:
    return [
        asked.loop(answers=(answer,), scores=(good,))
        for asked in questions
        for answer, good in zip(asked.answers, asked.right, strict=True)
    ]


@shape("log.jsonl")
def a_loop_that_ran_again(draw: Draw) -> Log:
    """The same questions a second time in the same file, and nothing counts rounds or runs."""
    questions = draw.asked(60)
    again = [asked.loop(answers=asked.answers[1:], scores=asked.right[1:]) for asked in questions]
    records = [*rows(questions, _uncounted), *rows([replace(a, answers=a.answers[1:]) for a in questions], _uncounted)]
    return Log(records, [*loops(questions), *again])


@shape("log.jsonl")
def two_sets_in_one_log(draw: Draw) -> Log:
    """Lists of two data sets under the same ids."""
    sets = draw.asked(40), [replace(asked, number=asked.number + 40) for asked in draw.asked(40, 4, "whole")]
    records = nested([replace(asked, question=f"{asked.question} ({asked.number})") for own in sets for asked in own])
    return Log([{**record, "id": record["id"] % 40} for record in records], [*loops(sets[0]), *loops(sets[1])])


def _uncounted(asked: Asked, r: int) -> dict[str, Any]:
    return {name: value for name, value in plain(asked, r).items() if name != "round"}


@shape("log.jsonl")
def letters_of_several_options(draw: Draw) -> Log:
    """Wrong answers name two letters, of which the first is right."""
    questions = draw.asked(60, 4, "letter")
    several = [
        replace(a, answers=tuple(x if x == a.gold else f"({a.gold}), ({x})" for x in a.answers)) for a in questions
    ]
    return Log(rows(several, plain), loops(several))


@shape("sweep.csv")
def depths_of_a_search(draw: Draw) -> Log:
    """A column that is called like a round has the settings 1, 2, 5 and 10."""
    questions = draw.asked(60)
    records = rows(questions, lambda asked, r: {"depth": (1, 2, 5, 10)[r - 1], **_uncounted(asked, r)})
    return Log(records, _one_round_each(questions))


def _said(answer: str) -> str:
    return f"[[ ## reasoning ## ]]\nSo {answer}.\n\n[[ ## answer ## ]]\n{answer}\n\n[[ ## completed ## ]]"


@shape("history.jsonl")
def calls_with_one_output_each(draw: Draw) -> Log:
    """DSPy's history: each call has a list of outputs, and an output has fields under heads."""
    questions = draw.asked(60)
    records = [
        {
            "example": {"question": asked.question, "answer": asked.gold},
            "history": [{"outputs": [f"{draw.prose()}\n{_said(answer)}"]} for answer in asked.answers],
        }
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("letters.jsonl")
def agents_of_whom_one_is_a_critic(draw: Draw) -> Log:
    """A writer and a critic say something in each round."""
    questions = draw.asked(60)
    records = [
        {
            "id": asked.number,
            "gold": asked.gold,
            "conversation": [
                {"agent": agent, "round": r, "content": text}
                for r, answer in enumerate(asked.answers, 1)
                for agent, text in (("writer", answer), ("critic", draw.prose()))
            ],
        }
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("rows.jsonl")
def a_critic_in_rows_of_its_own(draw: Draw) -> Log:
    """A row for each solution, and one for each critique, in the same round and column."""
    questions = draw.asked(60)
    records = [
        {**plain(asked, r), "answer": text, "agent": agent}
        for asked in questions
        for r, answer in enumerate(asked.answers, 1)
        for agent, text in (("solver", answer), ("critic", draw.prose()))
    ]
    return Log(records, loops(questions))


@shape("dialogues.jsonl")
def turns_that_a_user_asks(draw: Draw) -> Log:
    """MT-bench: `turns` has what a user asks, `choices` the answers to each."""
    return Log(
        [
            {"question_id": n, "turns": [f"Where is {n}?", draw.prose()], "choices": [{"turns": [draw.prose()] * 2}]}
            for n in range(60)
        ]
    )


@shape("samples.jsonl", samples=True)
def samples_by_completion_ids(draw: Draw) -> Log:
    """A row for each sample, which `completion_id` counts from 0."""
    questions = draw.asked(60)
    make = lambda asked, r: {  # noqa: E731
        "task_id": asked.number,
        "completion_id": r - 1,
        "completion": asked.answers[r - 1],
        "gold": asked.gold,
    }
    return Log(rows(questions, make), loops(questions))


@shape("results.json")
def runs_under_ids_beside_a_setting(draw: Draw) -> Log:
    """An object of questions by id, beside a setting, with rounds under their numbers."""
    questions = draw.asked(60)
    runs = {
        f"q-{asked.number}": {
            "gold": asked.gold,
            "log": {str(r): {"answer": answer} for r, answer in enumerate(asked.answers)},
        }
        for asked in questions
    }
    return Log({"experiment": "x", "runs": runs}, loops(questions))


@shape("log.jsonl")
def a_consensus_in_numbers(draw: Draw) -> Log:
    """The answer of a round has a name of its own, and its values are numbers."""
    questions = draw.asked(60, 4, "whole")
    records = [
        {"gold": asked.gold, "rounds": [{"consensus": answer, "votes": [answer, "7"]} for answer in asked.answers]}
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("log.jsonl")
def attempts_that_failed(draw: Draw) -> Log:
    """Requests of one attempt or several; those that failed have an error and no output."""
    questions = [
        replace(asked, answers=(*[None] * (n - 1), asked.answers[0]), right=(*[False] * (n - 1), asked.right[0]))
        for asked in draw.asked(60, 1)
        for n in [1 + asked.number % 3]
    ]
    records = [
        {
            "request_id": asked.number,
            "attempt": r,
            "output": answer,
            "error_type": None if answer else draw.prose(),
            "expected": asked.gold,
        }
        for asked in questions
        for r, answer in enumerate(asked.answers, 1)
    ]
    return Log(records, loops(questions))


@shape("log.jsonl")
def replies_of_which_some_are_bare(draw: Draw) -> Log:
    """Most replies end with a label and the answer; every eighth is the answer alone."""
    questions = draw.asked(80)
    records = rows(questions, plain)
    for n, row in enumerate(records):
        row["answer"] = f"{draw.prose()}\nAnswer: {row['answer']}" if n % 8 else row["answer"]
    return Log(records, loops(questions))


@shape("answers.sqlite")
def questions_in_a_table_of_their_own(draw: Draw) -> Log:
    """A table of answers names the questions of another table by their ids."""
    questions = draw.asked(60)
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE questions (id, question, gold)")
        database.execute("CREATE TABLE answers (question_id, round, answer)")
        database.executemany(
            "INSERT INTO questions VALUES (?, ?, ?)", [(a.number, a.question, a.gold) for a in questions]
        )
        rounds = [(a.number, r, answer) for a in questions for r, answer in enumerate(a.answers, 1)]
        database.executemany("INSERT INTO answers VALUES (?, ?, ?)", rounds)
    return Log(database.serialize(), loops(questions))


@shape("events.jsonl", metric="correct")
def events_of_samplings_and_matches(draw: Draw) -> Log:
    """A first line with settings, then an event for each reply and one for its comparison, prompts as lists of messages."""
    questions = draw.asked(60, 3)
    events: list[dict[str, Any]] = [{"spec": {"eval_name": "caravans"}}]
    for asked in questions:
        for r, answer in enumerate(asked.answers):
            said = {"sampled": [answer], "prompt": [{"role": "user", "content": asked.question}]}
            match = {"correct": asked.right[r], "expected": asked.gold, "picked": answer}
            for kind, data in (("sampling", said), ("match", match)):
                events.append({"sample_id": f"caravans.{asked.number}", "type": kind, "data": data})
    return Log(events, loops(questions))


@shape("samples.jsonl", samples=True)
def several_replies_to_each_document(draw: Draw) -> Log:
    """A harness that asks eight times, with the replies in one list and what its filter took from them in another."""
    questions = draw.asked(60, 8, "whole")
    return Log(
        [
            {
                "doc_id": asked.number,
                "target": f"{draw.prose()} #### {asked.gold}",
                "resps": [[f"{draw.prose()} The answer is {answer}." for answer in asked.answers]],
                "filtered_resps": [*asked.answers],
            }
            for asked in questions
        ],
        loops(questions),
    )


@shape("run")
def lists_of_one_answer_by_id(draw: Draw) -> Log:
    """A file for each iteration, in which each id has a list of one answer."""
    questions = draw.asked(60)
    files = {f"iter{r}.json": {f"q{own.number}": [own.answers[r]] for own in questions} for r in range(4)}
    return Log(files, [asked.loop(golds=(), scores=None) for asked in questions])


@shape("figures.jsonl", metric="match")
def blanks_between_thousands(draw: Draw) -> Log:
    """Numbers with a decimal comma, and one blank or another, or none, between thousands."""
    questions = draw.asked(60, kind="whole")
    made, read = [], []
    for asked in questions:
        texts = [f"{12 + int(answer) % 7}{{}}{abs(int(answer)) % 1000:03},5" for answer in (asked.gold, *asked.answers)]
        gold, *answers = [text.format(draw.random.choice(("", " ", "\u00a0", "\u202f"))) for text in texts]
        right = tuple(text == texts[0] for text in texts[1:])
        made += [{"id": asked.number, "round": r, "gold": gold, "answer": text} for r, text in enumerate(answers, 1)]
        read.append(asked.loop(golds=(gold,), answers=tuple(answers), scores=right))
    return Log(made, read)


@shape("submissions.jsonl", metric="verdict")
def submissions_with_verdicts(draw: Draw) -> Log:
    """Programs of which a judge says whether they are accepted, or why not."""
    questions = draw.asked(60, kind="code")
    records = [
        {
            "problem": {"id": f"{asked.number}A", "name": asked.question},
            "submissions": [
                {"code": code, "verdict": "ACCEPTED" if good else draw.random.choice(("WRONG_ANSWER", "RUNTIME_ERROR"))}
                for code, good in zip(asked.answers, asked.right, strict=True)
            ],
        }
        for asked in questions
    ]
    return Log(records, [asked.loop(golds=()) for asked in questions])


@shape("entities.csv", metric="match")
def lists_beside_their_golds(draw: Draw) -> Log:
    """Lists as Python prints them, in any order, beside `gold_` and the same name; `text` is what they were found in."""
    made, read = [], []
    for asked in draw.asked(60):
        gold = [asked.gold, f"Port {asked.number}"]
        lists = [draw.random.sample([answer, gold[1]], 2) for answer in asked.answers]
        made += [
            {"id": asked.number, "pass": r, "text": f"A ship, {asked.number}.", "entities": own, "gold_entities": gold}
            for r, own in enumerate(lists, 1)
        ]
        read.append(asked.loop(answers=tuple(map(str, lists)), golds=(str(gold),)))
    return Log(made, read)


@shape("sessions.csv")
def what_users_say_in_turn(draw: Draw) -> Log:
    """A conversation's rows: each has what the user said, and the reply to it."""
    asked = iter(draw.asked(180, 1))
    turns = [(session, turn, next(asked)) for session in range(60) for turn in (1, 2, 3)]
    return Log(
        [{"session_id": s, "turn": t, "user_message": a.question, "response": a.answers[0]} for s, t, a in turns]
    )
