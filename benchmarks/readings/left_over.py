"""Logs of classifiers, sheets with amounts, records of TruLens, padded ids, outcomes of runs, and tables of averages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, Loop, shape
from benchmarks.readings.plain import loops, plain, rows

_TRULENS = "truera/trulens: trulens_eval/trulens_eval/database/sqlalchemy_db.py"
_MLFLOW = "mlflow/mlflow: mlflow/store/tracking/file_store.py"


def _classified(draw: Draw, asked: Asked, r: int, **more: Any) -> dict[str, Any]:
    said = asked.answers[r - 1]
    why = f"{draw.prose(6)} {said} {draw.prose(3)}"
    return {"id": asked.number, "round": r, "text": asked.question, "label": said, "rationale": why, **more}


@shape("labels.jsonl")
def label_beside_a_rationale(draw: Draw) -> Log:
    """A classifier's answer is its label; the gold one is `expected`, and `text` is what is classified."""
    questions = draw.asked(60, 3)
    return Log(rows(questions, lambda a, r: _classified(draw, a, r, expected=a.gold)), loops(questions))


@shape("labels.csv")
def numbers_of_classes(draw: Draw) -> Log:
    """Classes are numbers, the gold one under `target`, beside an explanation."""
    questions = draw.asked(60, 3, "letter")
    number = "ABCDE".index
    made = [
        {"id": a.number, "round": r, "explanation": draw.prose(8), "label": number(text), "target": number(a.gold)}
        for a in questions
        for r, text in enumerate(a.answers, 1)
    ]
    found = [
        a.loop(answers=tuple(str(number(text)) for text in a.answers), golds=(str(number(a.gold)),)) for a in questions
    ]
    return Log(made, found)


@shape("unlabelled.jsonl")
def label_without_a_gold_one(draw: Draw) -> Log:
    """A label that changes within questions is no gold answer."""
    questions = draw.asked(60, 3)
    found = [a.loop(golds=(), scores=None) for a in questions]
    return Log(rows(questions, lambda a, r: _classified(draw, a, r)), found)


@shape("replies.jsonl")
def label_of_a_reply(draw: Draw) -> Log:
    """Either the reply or its label may be the answer."""
    questions = draw.asked(60, 3)
    make = lambda a, r: {  # noqa: E731
        "id": a.number,
        "round": r,
        "response": f"{draw.prose(5)}: {a.answers[r - 1]}, {draw.prose(3)}.",
        "label": a.answers[r - 1],
        "gold_label": a.gold,
    }
    return Log(rows(questions, make), loops(questions))


@shape("sheet.csv")
def amounts_with_separators(draw: Draw) -> Log:
    """A sheet writes 1,234 tokens and $0.0123."""
    questions = draw.asked(60, 3)
    make = lambda a, r: {  # noqa: E731
        **plain(a, r),
        "input_tokens": f"{draw.random.randint(900, 4000):,}",
        "output_tokens": f"{draw.random.randint(10, 2000):,}",
        "cost_usd": f"${draw.random.random():.4f}",
    }
    return Log(rows(questions, make), loops(questions))


def _record(draw: Draw, asked: Asked, r: int, *, app: str, said: str) -> dict[str, Any]:
    """Return a record of TruLens, joined with its feedback results."""
    cost = {"n_requests": 1, "n_successful_requests": 1, "n_classes": 0, "n_tokens": 300, "n_stream_chunks": 0}
    began, ended = (f"2026-03-02T08:{asked.number:02}:{9 * r + second:02}" for second in (0, 5))
    name = f"record_hash_{draw.random.getrandbits(64):016x}"
    record = {"record_id": name, "app_id": app, "main_input": asked.question, "main_output": said, "calls": []}
    return {
        "app_id": app,
        "app_json": json.dumps({"app_id": app}),
        "type": "langchain.chains.LLMChain",
        "record_id": name,
        "input": json.dumps(asked.question),
        "output": json.dumps(said),
        "tags": "-",
        "record_json": json.dumps(record),
        "cost_json": json.dumps({**cost, "n_prompt_tokens": 280, "n_completion_tokens": 20, "cost": 0.001}),
        "perf_json": json.dumps({"start_time": began, "end_time": ended}),
        "ts": ended,
        "Answer Relevance": round(draw.random.random(), 2),
        "Answer Relevance_calls": json.dumps([{"args": {"prompt": asked.question}, "ret": 0.5}]),
        "Ground Truth": float(said == asked.gold),
        "Ground Truth_calls": json.dumps([]),
        "latency": 5,
        "total_tokens": 300,
        "total_cost": 0.001,
    }


def _scored(questions: Sequence[Asked]) -> list[Loop]:
    return [a.loop(golds=()) for a in questions]


@shape("trulens.csv", _TRULENS, metric="ground_truth_correctness")
def records_of_one_app(draw: Draw) -> Log:
    """Several records of one input, each with an id of its own, are rounds in the order of their times."""
    questions = draw.asked(60, 3)
    made = [_record(draw, a, r, app="rag", said=text) for a in questions for r, text in enumerate(a.answers)]
    return Log(made[::-1], _scored(questions))


@shape("versions.csv", _TRULENS)
def records_of_several_apps(draw: Draw) -> Log:
    """Each version of the app answered once: there are no rounds."""
    questions = draw.asked(60, 3)
    return Log([_record(draw, a, r, app=f"rag_{r}", said=text) for a in questions for r, text in enumerate(a.answers)])


@shape("single.csv", _TRULENS)
def one_record_of_each_input(draw: Draw) -> Log:
    """One record of each input has nothing to stop."""
    return Log([_record(draw, a, 0, app="rag", said=a.answers[0]) for a in draw.asked(60, 3)])


@shape("padded.jsonl")
def padded_ids_in_later_rows(draw: Draw) -> Log:
    """One program wrote 7, the other 007."""
    questions = draw.asked(60, 3)
    make = lambda a, r: {**plain(a, r), "id": str(a.number) if r == 1 else f"{a.number:03}"}  # noqa: E731
    return Log(rows(questions, make), loops(questions))


@shape("padded")
def padded_ids_in_other_files(draw: Draw) -> Log:
    """A file for each round, one with spaces around ids."""
    questions = draw.asked(60, 3)
    files = {
        f"round_{r}.csv": [
            {"id": f"q{a.number}" if r != 2 else f" q{a.number} ", "answer": a.answers[r - 1], "gold": a.gold}
            for a in questions
        ]
        for r in (1, 2, 3)
    }
    return Log(files, loops(questions))


@shape("both.jsonl")
def ids_that_only_look_padded(draw: Draw) -> Log:
    """7 and 007 name two questions, as their texts show."""
    questions = draw.asked(60, 3)
    made = rows(questions, lambda a, r: {**plain(a, r), "id": f"{a.number // 2:0{1 + 2 * (a.number % 2)}}"})
    return Log(made, loops(questions))


@shape("runs.jsonl", metric="success")
def success_of_a_run(draw: Draw) -> Log:
    """Each row says whether the whole run succeeded."""
    questions = draw.asked(80, 3)
    make = lambda a, r: {  # noqa: E731
        "task_id": a.number,
        "step": r,
        "answer": a.answers[r - 1],
        "success": a.right[-1],
    }
    return Log(rows(questions, make), [a.loop(golds=(), scores=(None, None, a.right[-1])) for a in questions])


@shape("averages.csv")
def averages_of_systems(draw: Draw) -> Log:
    """A row for each system and number of rounds has means over questions."""
    return Log(
        [
            {"id": f"system {s}", "round": r, "accuracy_mean": draw.random.random(), "accuracy_std": 0.02, "count": 500}
            for s in range(25)
            for r in (1, 2, 3)
        ]
    )


@shape("board.csv")
def a_table_of_results(draw: Draw) -> Log:
    """A row for each system."""
    return Log([{"system": f"s{s}", "accuracy": draw.random.random(), "tokens": draw.tokens()} for s in range(30)])


@shape("judged.jsonl", metric="score")
def scores_of_models_without_answers(draw: Draw) -> Log:
    """Fractions of a judge, by model and ticket, are no averages over questions."""
    made, found = [], []
    for q in range(60):
        scores = tuple(round(draw.random.random(), 2) for _ in range(3))
        made += [{"id": q, "model": "gpt", "round": r, "score": s, "n": 5} for r, s in enumerate(scores, 1)]
        found.append(Loop(question=q, answers=(None, None, None), scores=scores))
    return Log(made, found)


@shape("cases.jsonl")
def answers_in_any_case(draw: Draw) -> Log:
    """Without a gold answer, nothing tells whether paris is Paris."""
    questions = [
        a.loop(answers=tuple(draw.random.choice((t, t.lower())) for t in a.answers), golds=(), scores=None)
        for a in draw.asked(60, 3)
    ]
    made = [
        {"id": loop.question, "round": r, "answer": text}
        for loop in questions
        for r, text in enumerate(loop.answers, 1)
    ]
    return Log(made, questions)


@shape("filled.jsonl")
def cells_filled_forward(draw: Draw) -> Log:
    """Cells after the end of a loop repeat its last answer, beside gold answers, and cost nothing."""
    made, found = [], []
    for a in draw.asked(80, 5):
        n = draw.random.randint(2, 5)
        said = [*a.answers[:n], *[a.answers[n - 1]] * (5 - n)]
        made += [
            {**plain(a, r), "answer": said[r - 1], "prompt_tokens": 300 * (r <= n), "completion_tokens": 9 * (r <= n)}
            for r in range(1, 6)
        ]
        found.append(a.loop(answers=a.answers[:n], scores=a.right[:n]))
    return Log(made, found)


@shape("mlruns", _MLFLOW)
def parameters_without_a_value(draw: Draw) -> Log:
    """A parameter that was logged as an empty text is missing."""
    questions = draw.asked(20, 3)
    files: dict[str, str] = {}
    for a in questions:
        for r, text in enumerate(a.answers, 1):
            folder = f"0/{a.number:03}{r}"
            files |= {f"{folder}/meta.yaml": "run_id: x\n", f"{folder}/params/note.txt": ""}
            files |= {f"{folder}/params/round": str(r), f"{folder}/params/qid": f"q{a.number}"}
            files[f"{folder}/artifacts/out.json"] = json.dumps([{"answer": text, "gold": a.gold}])
    return Log(files, loops(questions))


@shape("rebookings.jsonl", options=("--expected", "empty-rounds"), metric="resolved")
def an_outcome_beside_calls_of_tools(draw: Draw) -> Log:
    """Rows of an agent say nothing but the last, and each has what became of the task: it is known at the end."""
    made, read = [], []
    for number in range(60):
        n, resolved = draw.random.randint(2, 5), draw.random.random() < 0.7
        answers = (*[None] * (n - 1), f"Rebooked on flight {number}." if resolved else "Call our desk.")
        made += [
            {
                "conversation_id": f"c{number}",
                "step": r,
                "question": f"Please rebook me, case {number}.",
                "tool": None if text else draw.random.choice(("search", "fare_rules")),
                "answer": text,
                "resolved": int(resolved),
            }
            for r, text in enumerate(answers, start=1)
        ]
        read.append(Loop(number, answers, scores=(*[None] * (n - 1), resolved)))
    return Log(made, read)
