"""Logs in the shapes that platforms for evaluations export."""

from __future__ import annotations

import json

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


@shape("events.jsonl", "braintrustdata/braintrust-sdk: js/src/logger.ts", metric="em")
def events_with_an_id_each(draw: Draw) -> Log:
    """Each event has an id of its own, and counts attempts in its metadata; the input tells questions apart."""
    questions = draw.asked(60, 3)
    made = [
        {
            "id": f"event-{a.number}-{r}",
            "root_span_id": f"root-{a.number}-{r}",
            "input": a.question,
            "output": text,
            "expected": a.gold,
            "scores": {"ExactMatch": float(a.right[r - 1])},
            "metadata": {"attempt": r},
            "metrics": {"prompt_tokens": draw.tokens(), "completion_tokens": draw.tokens()},
        }
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("compare.csv", "langchain-ai/langsmith-sdk: python/langsmith/evaluation/_runner.py")
def references_in_an_object(draw: Draw) -> Log:
    """A table of runs with dotted names; the gold answer is the only field of `reference`."""
    questions = draw.asked(60, 3)
    made = [
        {
            "inputs.question": a.question,
            "outputs.answer": text,
            "reference.answer": a.gold,
            "feedback.correct": int(a.right[r]),
            "example_id": f"example-{a.number}",
            "id": f"run-{a.number}-{r}",
            "start_time": f"2025-01-01T10:{a.number:02d}:{r:02d}",
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("results.json", "promptfoo/promptfoo: src/types/index.ts")
def results_by_test(draw: Draw) -> Log:
    """Each result has an id; tests and prompts have numbers, and the prompts may be rounds."""
    questions = draw.asked(60, 3)
    made = [
        {
            "id": f"{a.number}-{r}",
            "testIdx": a.number,
            "promptIdx": r,
            "provider": {"id": "openai:gpt-4o"},
            "vars": {"question": a.question, "expected": a.gold},
            "response": {"output": text, "tokenUsage": {"prompt": draw.tokens(), "completion": draw.tokens()}},
            "success": a.right[r],
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(
        {"evalId": "eval-1", "results": {"version": 3, "results": made, "stats": {"successes": 90}}}, loops(questions)
    )


@shape("samples.jsonl", "UKGovernmentBEIS/inspect_ai: src/inspect_ai/log/_log.py", samples=True)
def epochs_of_samples(draw: Draw) -> Log:
    """Each sample is answered in several epochs, which are independent of each other."""
    questions = draw.asked(60, 8, right=(0.6, 0.6))
    made = [
        {"id": a.number, "epoch": r, "input": a.question, "target": a.gold, "output": {"completion": text}}
        for a in questions
        for r, text in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("table.json", "mlflow/mlflow: mlflow/models/evaluation/default_evaluator.py")
def table_of_inputs_and_outputs(draw: Draw) -> Log:
    """A data frame whose columns are called inputs and outputs."""
    questions = draw.asked(60, 3)
    names = ["inputs", "ground_truth", "outputs", "attempt"]
    cells = [[a.question, a.gold, text, r] for a in questions for r, text in enumerate(a.answers, start=1)]
    return Log({"columns": names, "data": cells}, loops(questions))


@shape("predictions.json", "AkariAsai/self-rag: retrieval_lm/run_short_form.py")
def lists_of_last_answers(draw: Draw) -> Log:
    """Columns with one last answer for each question: nothing can be stopped."""
    questions = draw.asked(60, 1)
    return Log(
        {
            "preds": [a.answers[0] for a in questions],
            "prompts": [a.question for a in questions],
            "golds": [[a.gold] for a in questions],
        }
    )


@shape("outputs.jsonl", "vllm-project/vllm: vllm/outputs.py", samples=True)
def completions_of_a_request(draw: Draw) -> Log:
    """Each request has eight completions, whose `index` is their number, and names no question."""
    questions = draw.asked(60, 8, right=(0.6, 0.6))
    made = [
        {
            "request_id": f"request-{a.number}",
            "prompt": a.question,
            "outputs": [
                {
                    "index": r,
                    "text": text,
                    "token_ids": [draw.tokens()],
                    "cumulative_logprob": -1.5,
                    "finish_reason": "stop",
                }
                for r, text in enumerate(a.answers)
            ],
            "finished": True,
            "gold": a.gold,
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("sampling.jsonl", "openai/evals: evals/record.py", options=["--column", "answer=data.sampled"])
def lists_of_one_sampled_text(draw: Draw) -> Log:
    """Each event of a sample has a list with one text."""
    questions = draw.asked(60, 3)
    made = [
        {
            "sample_id": f"dev.{a.number}",
            "type": "sampling",
            "data": {"prompt": a.question, "sampled": [text], "expected": a.gold},
            "created_at": f"2025-01-01T10:{a.number:02d}:{r:02d}",
        }
        for a in questions
        for r, text in enumerate(a.answers)
    ]
    return Log(made, loops(questions))


@shape("repeats.json", "promptfoo/promptfoo: src/evaluator.ts", samples=True)
def repeats_of_each_test(draw: Draw) -> Log:
    """Each test is repeated under a number of its own; the export lists its prompts beside the results."""
    questions = draw.asked(60, 4, right=(0.6, 0.6))
    made = [
        {
            "id": f"result-{r}-{a.number}",
            "testIdx": 60 * r + a.number,
            "promptIdx": 0,
            "provider": {"id": "openai:gpt-4o"},
            "vars": {"question": a.question, "expected": a.gold},
            "response": {"output": a.answers[r], "tokenUsage": {"prompt": draw.tokens(), "completion": draw.tokens()}},
        }
        for r in range(4)
        for a in questions
    ]
    return Log(
        {"evalId": "eval-1", "results": {"prompts": [{"raw": "{{question}}"}], "results": made}}, loops(questions)
    )


@shape("responses.csv", "openai/openai-openapi: openapi.yaml")
def replies_of_an_interface_as_text(draw: Draw) -> Log:
    """A table with what the model's interface returned, as JSON in one column."""
    questions = draw.asked(60, 3)
    made = []
    for a in questions:
        for r, text in enumerate(a.answers, start=1):
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": draw.tokens(), "completion_tokens": draw.tokens()}
            reply = {"id": f"chatcmpl-{r}", "object": "chat.completion", "choices": [choice], "usage": usage}
            made.append({"question_id": a.number, "round": r, "expected": a.gold, "response": json.dumps(reply)})
    return Log(made, loops(questions))
