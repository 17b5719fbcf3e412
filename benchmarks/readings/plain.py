"""Shapes of our own: logs with the traps that misled the importer once, and plain logs that it must not refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.readings.cases import CITIES, Asked, Draw, Log, Loop, lines, shape

MODELS = ("gpt-4o", "haiku")


def rows(questions: Sequence[Asked], make: Callable[[Asked, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each question and round, rounds counted from 1."""
    return [make(asked, r) for asked in questions for r in range(1, len(asked.answers) + 1)]


def plain(asked: Asked, r: int) -> dict[str, Any]:
    """Return a row under usual names."""
    said = {"id": asked.number, "round": r, "question": asked.question, "gold": asked.gold}
    return {**said, "answer": asked.answers[r - 1]}


def nested(questions: Sequence[Asked]) -> list[dict[str, Any]]:
    """Return a record for each question, with a list of its steps."""
    return [
        {
            "id": asked.number,
            "question": asked.question,
            "gold": asked.gold,
            "steps": [{"answer": answer} for answer in asked.answers],
        }
        for asked in questions
    ]


def loops(questions: Sequence[Asked]) -> list[Loop]:
    """Return the readings of logs that hold everything."""
    return [asked.loop() for asked in questions]


# ---------------------------------------------------------------------------------------------- which column is the answer


@shape("log.jsonl")
def gold_in_answer(draw: Draw) -> Log:
    """`answer` is the gold, `response` what the model said."""
    questions = draw.asked(100, 5)
    make = lambda asked, r: {**plain(asked, r), "answer": asked.gold, "response": asked.answers[r - 1]}  # noqa: E731
    return Log([{k: v for k, v in row.items() if k != "gold"} for row in rows(questions, make)], loops(questions))


def _without_rounds(theirs: str) -> Callable[[Draw], Log]:
    def make(draw: Draw) -> Log:
        """Rows of a question in the order of the file; `answer` is the gold."""
        questions = draw.asked(100, 5)
        records = rows(
            questions,
            lambda asked, r: {
                "id": asked.number,
                "question": asked.question,
                "answer": asked.gold,
                theirs: asked.answers[r - 1],
            },
        )
        return Log(records, loops(questions))

    make.__name__ = f"gold_beside_{theirs}"
    return make


for _theirs in ("generated_text", "llm_answer", "model_output", "response"):
    shape(f"hf_{_theirs}.jsonl")(_without_rounds(_theirs))


@shape("log.jsonl")
def prediction_beside_answer(draw: Draw) -> Log:
    """`answer` is the gold but for a few slips, `pred` what the model said."""
    questions = draw.asked(400, 3)
    records = rows(
        questions, lambda asked, r: {"id": asked.number, "round": r, "answer": asked.gold, "pred": asked.answers[r - 1]}
    )
    return Log(records, loops(questions))


@shape("log.jsonl")
def gold_equals_last(draw: Draw) -> Log:
    """The last answer is always right: the gold may be what the model said."""
    questions = draw.asked(60, 3, right=(0.3, 1.0))
    return Log(rows(questions, plain), loops(questions))


@shape("log.jsonl")
def correct_is_a_metric(draw: Draw) -> Log:
    """No gold answers, but whether each answer was right."""
    questions = draw.asked()
    make = lambda asked, r: {"id": asked.number, "round": r, "answer": asked.answers[r - 1]}  # noqa: E731
    records = rows(questions, lambda asked, r: {**make(asked, r), "em": int(asked.right[r - 1])})
    return Log(records, [asked.loop(golds=()) for asked in questions])


@shape("log.jsonl")
def whole_replies(draw: Draw) -> Log:
    """Replies of a few sentences that contain the answer behind a marker."""
    questions = draw.asked(80, 4, "whole")
    make = lambda asked, r: {"id": asked.number, "round": r, "gold": asked.gold}  # noqa: E731
    records = rows(
        questions,
        lambda asked, r: {**make(asked, r), "response": f"{draw.prose()}.\nFinal answer: {asked.answers[r - 1]}"},
    )
    return Log(records, loops(questions))


@shape("log.jsonl")
def boxed_replies(draw: Draw) -> Log:
    """Replies with the answer in a box."""
    questions = draw.asked(80, 4, "whole")
    records = [
        {
            "id": asked.number,
            "problem": asked.question,
            "gold": asked.gold,
            "attempts": [{"response": f"{draw.prose(20)} $\\boxed{{{answer}}}$."} for answer in asked.answers],
        }
        for asked in questions
    ]
    return Log(records, loops(questions))


# ---------------------------------------------------------------------------------------------- which answers are the same


def _of_kind(kind: str, n: int) -> Callable[[Draw], Log]:
    def make(draw: Draw) -> Log:
        """Answers of one kind, in a list of steps."""
        questions = draw.asked(n, 4, kind)
        return Log(nested(questions), loops(questions))

    make.__name__ = f"{kind}_answers"
    return make


for _kind, _n in (
    ("name", 60),
    ("number", 200),
    ("whole", 60),
    ("letter", 120),
    ("truth", 60),
    ("day", 60),
    ("code", 60),
):
    shape(f"{_kind}.jsonl")(_of_kind(_kind, _n))


@shape("floats.jsonl")
def floats_beside_integers(draw: Draw) -> Log:
    """Golds are integers, answers floats or missing."""
    questions = []
    for asked in draw.asked(60, 4):
        gold = asked.number + 2
        answers = tuple(None if draw.random.random() < 0.2 else float(gold + (not good)) for good in asked.right)
        right = tuple(answer == gold for answer in answers)
        questions.append(Asked(asked.number, asked.question, gold, answers, right))
    return Log(nested(questions), loops(questions))


@shape("lists.jsonl")
def lists_as_sets(draw: Draw) -> Log:
    """Lists of names, whose order does not count."""
    questions = []
    for asked in draw.asked(60, 4):
        gold = sorted(draw.random.sample(CITIES, 3))
        answers = tuple(draw.random.sample(gold, 3) if good else [*gold[:2], "Turin"] for good in asked.right)
        questions.append(Asked(asked.number, asked.question, gold, answers, asked.right))
    return Log(nested(questions), [asked.loop(golds=(asked.gold,)) for asked in questions])


def _one_in_brackets(name: str, odd: str) -> Callable[[Draw], Log]:
    def make(draw: Draw) -> Log:
        """One bracketed answer among plain ones."""
        questions = draw.asked(60, 3, "whole")
        first = questions[0]
        questions[0] = Asked(0, first.question, first.gold, (odd, *first.answers[1:]), (False, *first.right[1:]))
        return Log(rows(questions, plain), loops(questions))

    make.__name__ = f"one_{name}"
    return make


for _name, _odd in (("list", "[2, 5]"), ("dictionary", '{"a": 1}'), ("tuple", "(1, 2)"), ("interval", "[0, 1)")):
    shape(f"one_{_name}.jsonl")(_one_in_brackets(_name, _odd))


@shape("log.jsonl")
def units_and_thousands(draw: Draw) -> Log:
    """Amounts with a currency and separators of thousands."""
    questions = []
    for asked in draw.asked(80, 4, "name"):
        gold = 1000 + 37 * asked.number
        answers = tuple(f"${gold:,}" if good else f"${gold + 10:,}" for good in asked.right)
        questions.append(Asked(asked.number, asked.question, f"{gold:,}", answers, asked.right))
    return Log(rows(questions, plain), loops(questions))


@shape("log.jsonl")
def several_golds(draw: Draw) -> Log:
    """Aliases of the gold answer in a list."""
    questions = draw.asked()
    records = rows(questions, lambda asked, r: {**plain(asked, r), "gold": [asked.gold, f"City of {asked.gold}"]})
    return Log(records, [asked.loop(golds=(asked.gold, f"City of {asked.gold}")) for asked in questions])


# --------------------------------------------------------------------------------------------------- rounds, runs and models


@shape("models.jsonl")
def two_models_with_rounds(draw: Draw) -> Log:
    """Two models, each with rounds of its own: two runs of a question."""
    return _of_models(draw, numbered=True)


@shape("models.jsonl")
def two_models_in_file_order(draw: Draw) -> Log:
    """The same without a column of rounds."""
    return _of_models(draw, numbered=False)


def _of_models(draw: Draw, *, numbered: bool) -> Log:
    records, read = [], []
    for first, again in zip(draw.asked(60), draw.asked(60), strict=True):
        for model, asked in zip(MODELS, (first, again), strict=True):
            right = tuple(answer == first.gold for answer in asked.answers)
            said = Asked(first.number, first.question, first.gold, asked.answers, right)
            read.append(said.loop())
            kept = [{k: v for k, v in row.items() if numbered or k != "round"} for row in rows([said], plain)]
            records += [{"model": model, **row} for row in kept]
    return Log(records, read)


@shape("systems")
def files_of_systems(draw: Draw) -> Log:
    """A file for each model, one answer a question: three runs of one round, in which nothing can be stopped."""
    questions = draw.asked(60, 3)
    files = {}
    for place, model in enumerate((*MODELS, "llama")):
        files[f"{model}.jsonl"] = [
            {"id": a.number, "question": a.question, "gold": a.gold, "answer": a.answers[place]} for a in questions
        ]
    return Log(files)


@shape("depth")
def files_of_rounds(draw: Draw) -> Log:
    """Files `round_1` to `round_12`: rounds in the order of their numbers."""
    questions = draw.asked(40, 12)
    files = {
        f"round_{r}.jsonl": [{k: v for k, v in plain(asked, r).items() if k != "round"} for asked in questions]
        for r in range(1, 13)
    }
    return Log(files, loops(questions))


@shape("parts")
def files_of_parts(draw: Draw) -> Log:
    """Pieces of one log."""
    questions = draw.asked(60)
    return Log(
        {f"part-{i}.csv": rows(questions[20 * i : 20 * i + 20], plain) for i in range(3)},
        loops(questions),
    )


@shape("shuffled.jsonl")
def rounds_in_any_order(draw: Draw) -> Log:
    """Rows in any order, with the numbers of their rounds."""
    questions = draw.asked(60)
    records = rows(questions, plain)
    draw.random.shuffle(records)
    return Log(records, loops(questions))


@shape("times.csv")
def rounds_in_order_of_time(draw: Draw) -> Log:
    """Rows in any order, without numbers but with times."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        for row in rows([asked], plain):
            r = row.pop("round")
            records.append({**row, "timestamp": f"2024-05-01T10:{asked.number:02}:{r:02}Z"})
    draw.random.shuffle(records)
    return Log(records, loops(questions))


@shape("log.jsonl")
def own_stops(draw: Draw) -> Log:
    """Loops that stop by themselves after one to four rounds."""
    questions = []
    for asked in draw.asked(80):
        n = draw.random.randint(1, 4)
        questions.append(Asked(asked.number, asked.question, asked.gold, asked.answers[:n], asked.right[:n]))
    return Log(nested(questions), loops(questions))


@shape("log.jsonl")
def ids_with_gaps(draw: Draw) -> Log:
    """Every question lacks round 3: rows were lost."""
    return Log([row for row in rows(draw.asked(60, 5), plain) if row["round"] != 3])


@shape("log.jsonl")
def ids_used_twice(draw: Draw) -> Log:
    """Ids that begin anew: the text tells the questions apart."""
    questions = draw.asked(60)
    return Log([{**row, "id": row["id"] % 30} for row in rows(questions, plain)], loops(questions))


@shape("log.jsonl")
def the_same_rows_twice(draw: Draw) -> Log:
    """Questions of the same id and text, with other answers in the same rounds."""
    questions = [*draw.asked(30), *draw.asked(30)]
    return Log(rows(questions, plain))


# -------------------------------------------------------------------------------------------------------- layouts and files


@shape("wide.csv")
def numbered_columns(draw: Draw) -> Log:
    """`answer_1` to `answer_4`."""
    return _wide(draw, "answer_{}")


@shape("wide.csv")
def columns_numbered_in_front(draw: Draw) -> Log:
    """`round_1_answer` to `round_4_answer`."""
    return _wide(draw, "round_{}_answer")


def _wide(draw: Draw, name: str) -> Log:
    questions = draw.asked(60)
    records = [
        {
            "id": asked.number,
            "question": asked.question,
            "gold": asked.gold,
            **{name.format(r): answer for r, answer in enumerate(asked.answers, 1)},
        }
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("log.csv")
def pandas_index(draw: Draw) -> Log:
    """A CSV file with the index of a data frame, which has no name."""
    questions = draw.asked(60)
    return Log([{"": i, **row} for i, row in enumerate(rows(questions, plain))], loops(questions))


@shape("log.tsv")
def tabs(draw: Draw) -> Log:
    """Tabs between the columns."""
    questions = draw.asked(60)
    return Log(rows(questions, plain), loops(questions))


@shape("log.csv")
def byte_order_mark(draw: Draw) -> Log:
    """A file with a byte order mark and semicolons, as a spreadsheet writes it."""
    questions = draw.asked(60)
    records = rows(questions, plain)
    text = "\r\n".join(";".join(map(str, row)) for row in [list(records[0]), *(list(row.values()) for row in records)])
    return Log(b"\xef\xbb\xbf" + text.encode() + b"\r\n", loops(questions))


@shape("log.jsonl.gz")
def gzipped(draw: Draw) -> Log:
    """JSON lines, gzipped."""
    questions = draw.asked(60)
    return Log(rows(questions, plain), loops(questions))


@shape("log.parquet")
def parquet(draw: Draw) -> Log:
    """Parquet with a list of structures."""
    questions = draw.asked(60)
    return Log(nested(questions), loops(questions))


@shape("log.json")
def columns_of_a_data_frame(draw: Draw) -> Log:
    """A data frame by columns and index, as `DataFrame.to_json` writes it."""
    questions = draw.asked(60)
    records = rows(questions, plain)
    return Log({name: {str(i): row[name] for i, row in enumerate(records)} for name in records[0]}, loops(questions))


@shape("log.json")
def texts_in_a_list(draw: Draw) -> Log:
    """The answers of a question as a list of texts."""
    questions = draw.asked(60)
    records = [
        {"qid": asked.number, "query": asked.question, "target": asked.gold, "drafts": list(asked.answers)}
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("samples.jsonl", options=["--samples"], samples=True)
def samples_in_a_list(draw: Draw) -> Log:
    """Independent samples in a list that is called so."""
    questions = draw.asked(60, 8, "whole", (0.5, 0.5))
    records = [{"id": a.number, "gold": a.gold, "samples": [{"answer": text} for text in a.answers]} for a in questions]
    return Log(records, loops(questions))


@shape("calls.jsonl")
def calls_of_an_interface(draw: Draw) -> Log:
    """Raw calls: `trace` names the question, `created` orders."""
    questions = draw.asked(60, 2)
    records = rows(
        questions,
        lambda asked, r: {
            "trace": asked.number,
            "created": 1700000000 + 10 * asked.number + r,
            "request": {"model": "gpt-4o", "messages": [{"role": "user", "content": asked.question}]},
            "response": {
                "choices": [{"index": 0, "message": {"role": "assistant", "content": asked.answers[r - 1]}}],
                "usage": {"prompt_tokens": draw.tokens(), "completion_tokens": 3},
            },
        },
    )
    return Log(records, [Loop(asked.number, asked.answers) for asked in questions])


@shape("messages.jsonl")
def turns_of_a_dialogue(draw: Draw) -> Log:
    """What the assistant said are the rounds."""
    questions = draw.asked(60)
    records = []
    for asked in questions:
        messages = [{"role": "system", "content": "You are good"}, {"role": "user", "content": asked.question}]
        for answer in asked.answers:
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": "Are you sure?"})
        records.append({"id": asked.number, "expected": asked.gold, "messages": messages})
    return Log(records, loops(questions))


@shape("messages.jsonl")
def one_reply_a_record(draw: Draw) -> Log:
    """One reply of an interface a question."""
    return Log(
        [
            {
                "id": asked.number,
                "expected": asked.gold,
                "request": {"messages": [{"role": "user", "content": [{"type": "text", "text": asked.question}]}]},
                "response": {"choices": [{"message": {"role": "assistant", "content": asked.answers[0]}}]},
            }
            for asked in draw.asked(60, 1)
        ]
    )


@shape("cumulative.jsonl")
def growing_tokens(draw: Draw) -> Log:
    """`total_tokens` grows within a question."""
    questions = draw.asked(60)
    records = nested(questions)
    for record in records:
        for r, step in enumerate(record["steps"], 1):
            step["total_tokens"] = 100 * r
    return Log(records, loops(questions))


@shape("agent.jsonl", metric="success")
def outcome_at_the_last_step(draw: Draw) -> Log:
    """Actions of an agent without answers; the outcome is known at the end alone."""
    records, read = [], []
    for number in range(60):
        n, success = draw.random.randint(3, 8), int(draw.random.random() < 0.5)
        for step in range(n):
            done = success if step == n - 1 else None
            records.append({"task_id": number, "step": step, "action": f"click {step}", "success": done})
        read.append(Loop(number, (None,) * n, scores=(*(None,) * (n - 1), success)))
    return Log(records, read)


@shape("agent.jsonl")
def outcome_of_a_run(draw: Draw) -> Log:
    """Steps without answers in a list, and one outcome for the run."""
    return Log(
        [
            {
                "task_id": number,
                "task": f"book {number}",
                "success": draw.random.random() < 0.5,
                "steps": [{"thought": draw.prose(3), "action": f"click {i}"} for i in range(draw.random.randint(3, 8))],
            }
            for number in range(60)
        ]
    )


@shape("reasoning.jsonl")
def one_chain_of_thought(draw: Draw) -> Log:
    """One text with intermediate answers."""
    return Log(
        [
            {
                "id": asked.number,
                "problem": asked.question,
                "gold": asked.gold,
                "reasoning": f"{draw.prose()} So the answer is {asked.answers[0]}. Wait. Final: \\boxed{{{asked.answers[1]}}}",
            }
            for asked in draw.asked(60, 2, "whole")
        ]
    )


@shape("final.jsonl")
def final_answers_only(draw: Draw) -> Log:
    """One answer a question."""
    return Log([{k: v for k, v in row.items() if k != "round"} for row in rows(draw.asked(60, 1), plain)])


@shape("log.txt")
def lines_without_a_suffix(draw: Draw) -> Log:
    """JSON lines in a file called `.txt`."""
    questions = draw.asked(60)
    return Log(lines(rows(questions, plain)), loops(questions))


@shape("newest_first.jsonl")
def newest_attempt_first(draw: Draw) -> Log:
    """The items of a list are numbered, and the last attempt is the first item."""
    questions = draw.asked(100, 4)
    records = [
        {
            "id": asked.number,
            "question": asked.question,
            "gold": asked.gold,
            "attempts": [{"attempt": r, "answer": asked.answers[r - 1]} for r in range(len(asked.answers), 0, -1)],
        }
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("steps.jsonl", options=("--where", "type=generate"))
def retrievals_between_answers(draw: Draw) -> Log:
    """Every other item of a list is a retrieval, which has no answer."""
    questions = draw.asked(100, 3)
    records = [
        {
            "id": asked.number,
            "question": asked.question,
            "gold": asked.gold,
            "steps": [
                step
                for answer in asked.answers
                for step in ({"type": "retrieve", "answer": None}, {"type": "generate", "answer": answer})
            ],
        }
        for asked in questions
    ]
    return Log(records, loops(questions))


@shape("agents.jsonl", options=("--column", "run=persona"))
def agents_without_rounds(draw: Draw) -> Log:
    """Two agents answer every question twice, and nothing counts the rows."""
    questions = draw.asked(100, 2)
    others = [asked.loop(answers=asked.answers[::-1], scores=asked.right[::-1]) for asked in questions]
    records = [
        {"id": asked.number, "question": asked.question, "gold": asked.gold, "persona": persona, "answer": answer}
        for asked, other in zip(questions, others, strict=True)
        for persona, answers in (("planner", asked.answers), ("baseline", other.answers))
        for answer in answers
    ]
    return Log(records, [*loops(questions), *others])


@shape("backwards.jsonl")
def rows_counted_backwards(draw: Draw) -> Log:
    """A column of an unknown name counts the rows, the newest first."""
    questions = draw.asked(100, 3)
    make = lambda asked, r: {"id": asked.number, "gold": asked.gold, "nth": r, "answer": asked.answers[r - 1]}  # noqa: E731
    return Log([row for asked in questions for row in rows([asked], make)[::-1]], loops(questions))
