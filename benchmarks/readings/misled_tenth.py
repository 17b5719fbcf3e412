"""Logs that misled the importer when a tenth person tried it: closed-book columns, prefixes, outcomes of tasks, models in turn, folders."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, lines, shape
from benchmarks.readings.plain import loops


@shape("gate.csv")
def closed_book_beside_retrieval(draw: Draw) -> Log:
    """One column has the model's own answer, another that after retrieval, which failed in some rows."""
    made, read = [], []
    for a in draw.asked(80, 2):
        failed = a.number % 20 == 3
        row: dict[str, Any] = {"request_id": f"req_{a.number}", "question": a.question, "ground_truth": a.gold}
        row |= {"parametric_answer": a.answers[0], "verbal_conf": draw.random.choice((60, 80, 90, 95))}
        row |= {"rag_answer": None if failed else a.answers[1], "rag_status": "timeout" if failed else "ok"}
        made.append({**row, "tokens_parametric": draw.tokens(), "tokens_rag": draw.tokens()})
        last = (None, False) if failed else (a.answers[1], a.right[1])
        read.append(a.loop(answers=(a.answers[0], last[0]), scores=(a.right[0], last[1])))
    return Log(made, read)


@shape("both.jsonl")
def answers_with_and_without_context(draw: Draw) -> Log:
    """Objects with what was said without passages and with them."""
    questions = draw.asked(60, 2)
    made = [
        {
            "id": a.number,
            "query": a.question,
            "with_context": {"answer": a.answers[1], "latency_ms": draw.tokens()},
            "without_context": {"answer": a.answers[0], "latency_ms": draw.tokens()},
            "reference": a.gold,
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("prefixes.jsonl")
def prefixes_under_other_names(draw: Draw) -> Log:
    """Checkpoints of chains with the tokens so far, those of each trial, and the answer that was forced."""
    made, read = [], []
    for a in draw.asked(60, 5):
        n = 3 + a.number % 3
        step = draw.random.randint(90, 400)
        rows = [{"problem_id": f"p{a.number}", "checkpoint": r, "prefix_tokens": step * (r + 1)} for r in range(n)]
        made += [
            {
                **row,
                "total_thinking_tokens": step * n,
                "forced_answer": a.answers[r],
                "gold": a.gold,
                "is_correct": a.right[r],
                "mean_logprob": -draw.random.random(),
                "trial_tokens": draw.random.randint(8, 14),
            }
            for r, row in enumerate(rows)
        ]
        read.append(a.loop(answers=a.answers[:n], scores=a.right[:n]))
    return Log(made, read)


@shape("steps.csv")
def outcome_of_a_task_in_every_step(draw: Draw) -> Log:
    """A row for each call of a tool, with the exit code of the call, and in all rows whether the task succeeded: nothing can be judged."""
    made = [
        {
            "task_id": f"T-{a.number}",
            "step": r,
            "tool": draw.random.choice(("read_file", "run_tests", "edit")),
            "tool_args": f'{{"cmd": "sed -n {draw.tokens()}p app.py"}}',
            "exit_code": draw.random.randint(0, 1),
            "tokens_in": draw.tokens(),
            "tokens_out": draw.tokens(),
            "task_success": a.right[3],
        }
        for a in draw.asked(60)
        for r in range(1, 3 + a.number % 4)
    ]
    return Log(made)


@shape("cascade.jsonl")
def a_dear_model_after_a_cheap_one(draw: Draw) -> Log:
    """Each trace asks two models in turn, numbered by their tier; some calls failed."""
    made, read = [], []
    for a in draw.asked(60, 2):
        failed = a.number % 20 == 7
        for tier, (model, text) in enumerate(zip(("mini", "large"), a.answers, strict=True), start=1):
            lost = failed and tier == 1
            row = {"trace": f"tr-{a.number}", "tier": tier, "model": model, "question": a.question, "expected": a.gold}
            made.append({**row, "answer": None if lost else text, "error": "timeout" if lost else None})
        first = (None, False) if failed else (a.answers[0], a.right[0])
        read.append(a.loop(answers=(first[0], a.answers[1]), scores=(first[1], a.right[1])))
    return Log(made, read)


@shape("preds")
def failed_calls_in_files_of_rounds(draw: Draw) -> Log:
    """A file for each round, in which some predictions are missing, as their calls failed."""
    files: dict[str, list[dict[str, Any]]] = {f"iter_{r}.jsonl": [] for r in range(1, 5)}
    read = []
    for a in draw.asked(60):
        said, right = [*a.answers], [*a.right]
        if a.number % 15 == 2:
            said[2], right[2] = None, False
        for own, text in zip(files.values(), said, strict=True):
            row = {"idx": a.number, "question": a.question, "prediction": text, "reference": [a.gold, f"the {a.gold}"]}
            own.append({**row, "error": None if text else "server overloaded"})
        read.append(a.loop(answers=tuple(said), golds=(a.gold, f"the {a.gold}"), scores=tuple(right)))
    return Log({name: lines(rows) for name, rows in files.items()}, read)


@shape("sql.json", options=["--column", "answer=sql"], metric="exec_match")
def queries_that_a_database_ran(draw: Draw) -> Log:
    """Attempts at a query with the time that the database took, and the reason why the loop finished."""
    made, read = [], []
    for a in draw.asked(60):
        n = 1 + a.number % 4
        said = tuple(f"SELECT {text} FROM t{r}" for r, text in enumerate(a.answers[:n]))
        attempts = [
            {
                "sql": text,
                "execution": {"ok": True, "elapsed_ms": draw.random.random()},
                "usage": {"input_tokens": draw.tokens(), "output_tokens": draw.tokens()},
                "exec_match": right,
            }
            for text, right in zip(said, a.right, strict=False)
        ]
        end = "max_attempts" if n == 4 else "accepted"
        made.append({"question_id": a.number, "question": a.question, "finished_reason": end, "attempts": attempts})
        read.append(a.loop(answers=said, golds=(), scores=a.right[:n]))
    return Log(made, read)


@shape("calls.csv")
def labels_and_their_critique(draw: Draw) -> Log:
    """Calls of a classifier and, between its attempts, of a critic; both have the number of the attempt."""
    questions = draw.asked(60)
    made = []
    for a in questions:
        for r, text in enumerate(a.answers, start=1):
            row = {"qid": f"T{a.number}", "attempt": r, "prompt": a.question, "gold": a.gold}
            used = {"in_tok": draw.tokens(), "out_tok": draw.tokens()}
            made.append({**row, "step": "classify", "response": text, **used})
            if r < len(a.answers):
                made.append({**row, "step": "critique", "response": f"is it {draw.prose(3)}?", **used})
    return Log(made, loops(questions))


@shape("sc.jsonl", samples=True)
def answers_of_samples_in_a_list(draw: Draw) -> Log:
    """Independent answers to a question under the name of what was parsed, which says nothing of their order."""
    questions = draw.asked(60, 6, kind="letter", right=(0.5, 0.5))
    made = [
        {"qid": a.number, "question": a.question, "answer_key": a.gold, "extracted_answers": list(a.answers)}
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("agent.jsonl")
def messages_with_tool_calls(draw: Draw) -> Log:
    """A conversation of an agent whose first messages only call a tool; the model revises what it said then."""
    questions = draw.asked(60, 3, kind="whole")
    call = {"id": "c1", "type": "function", "function": {"name": "run_sql", "arguments": "{}"}}
    made = []
    for a in questions:
        calling: list[dict[str, Any]] = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "[[4]]"},
        ]
        said: list[dict[str, Any]] = [{"role": "assistant", "content": text} for text in a.answers]
        review = {"role": "user", "content": "Please check that once more."}
        spoken = [said[0], *(item for reply in said[1:] for item in (review, reply))]
        messages = [{"role": "user", "content": a.question}, *calling * (1 + a.number % 3), *spoken]
        made.append({"id": a.number, "messages": messages, "expected_answer": a.gold})
    return Log(made, loops(questions))


@shape("agent.jsonl")
def answers_beside_tool_calls(draw: Draw) -> Log:
    """A conversation of an agent that says its answer so far in messages that call a tool, too."""
    questions = draw.asked(60, 3, kind="whole")
    call = {"id": "c1", "type": "function", "function": {"name": "run_sql", "arguments": "{}"}}
    made = []
    for a in questions:
        messages: list[dict[str, Any]] = [{"role": "user", "content": a.question}]
        for text in a.answers[:-1]:
            messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": "c1", "content": "[[4]]"})
        messages.append({"role": "assistant", "content": a.answers[-1]})
        made.append({"id": a.number, "messages": messages, "expected_answer": a.gold})
    return Log(made, loops(questions))


@shape("drafts.csv")
def rounds_that_count_from_zero(draw: Draw) -> Log:
    """A writer that revises, whose rounds count from 0: nothing says whether 0 is the model alone."""
    questions = draw.asked(60)
    rows = [
        {"id": a.number, "round": r, "question": a.question, "answer": text, "gold": a.gold}
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(rows, loops(questions))
