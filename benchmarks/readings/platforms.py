"""Logs in the shapes that platforms for evaluations export."""

from __future__ import annotations

import json
from collections.abc import Sequence

from benchmarks.readings.cases import CITIES, Draw, Log, shape
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


@shape("runs.jsonl", "langchain-ai/langsmith-sdk: python/langsmith/schemas.py")
def graded_answers(draw: Draw) -> Log:
    """Runs of a graph whose nodes answer and grade in turn; a grade is no answer."""
    questions = draw.asked(40, 3)
    made = []
    for a in questions:
        for i, text in enumerate(said for answer in a.answers for said in (answer, draw.random.choice(["yes", "no"]))):
            system, prompt = (("Answer in few words.", a.question), ("Grade it: yes or no.", "Is it grounded?"))[i % 2]
            made.append(
                {
                    "id": f"run-{a.number}-{i}",
                    "trace_id": f"trace-{a.number}",
                    "run_type": "llm",
                    "name": "ChatOpenAI",
                    "start_time": f"2025-01-01T10:{a.number:02d}:{i:02d}",
                    "end_time": f"2025-01-01T10:{a.number:02d}:{i:02d}.5",
                    "inputs": {
                        "messages": [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
                    },
                    "outputs": {"messages": [{"role": "assistant", "content": text}]},
                    "extra": {"metadata": {"langgraph_node": ("generate", "grade")[i % 2]}},
                }
            )
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape("spans.jsonl", "Arize-ai/phoenix: packages/phoenix-client/src/phoenix/client/resources/spans")
def rewritten_queries(draw: Draw) -> Log:
    """Spans of a loop that rewrites its query before each answer; a query is no answer."""
    questions = draw.asked(40, 3)
    made = []
    for a in questions:
        for i, text in enumerate(said for answer in a.answers for said in (draw.prose(4), answer)):
            prompt = (f"Rewrite as a query: {a.question}", f"Context: {draw.prose()}\nQuestion: {a.question}")[i % 2]
            made.append(
                {
                    "context.trace_id": f"{a.number:032x}",
                    "context.span_id": f"{a.number * 10 + i:016x}",
                    "name": "ChatCompletion",
                    "span_kind": "LLM",
                    "start_time": f"2025-01-01T10:{a.number:02d}:{i:02d}Z",
                    "end_time": f"2025-01-01T10:{a.number:02d}:{i:02d}.5Z",
                    "attributes.llm.input_messages": [{"message.role": "user", "message.content": prompt}],
                    "attributes.output.value": text,
                }
            )
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])


@shape("results.json", "microsoft/autogen 0.2: autogen/agentchat/chat.py")
def chats_from_the_initiators_view(draw: Draw) -> Log:
    """What the agent that began sent has the role `assistant`, what it got `user`; `name` tells who speaks."""
    questions = draw.asked(60, 3)
    made = []
    for a in questions:
        said = [("user_proxy", a.question)]
        for text in a.answers:
            said += [("assistant", text), ("user_proxy", f"Please verify {draw.prose(2)}.")]
        history = [
            {"content": text, "role": "assistant" if name == "user_proxy" else "user", "name": name}
            for name, text in said
        ]
        made.append({"task_id": f"t{a.number}", "expected_answer": a.gold, "chat_result": {"chat_history": history}})
    return Log(made, loops(questions))


@shape("groupchat.json", "microsoft/autogen 0.2: autogen/agentchat/groupchat.py")
def group_chats_from_the_initiators_view(draw: Draw) -> Log:
    """The same of several agents, one of which criticises."""
    questions = draw.asked(60, 3)
    made = []
    for a in questions:
        said = [("Admin", a.question)]
        for text in a.answers:
            said += [("researcher", text), ("critic", f"Please verify {draw.prose(2)}.")]
        history = [
            {"content": text, "role": "assistant" if name == "Admin" else "user", "name": name} for name, text in said
        ]
        made.append({"task_id": f"t{a.number}", "expected_answer": a.gold, "chat_result": {"chat_history": history}})
    return Log(made, loops(questions))


@shape("runs.jsonl", "microsoft/autogen 0.4: autogen_agentchat/messages.py")
def messages_with_ids_of_their_own(draw: Draw) -> Log:
    """A task with its id, and what a user, a solver and a critic said, each text with an id, too."""
    questions = draw.asked(60, 3)
    made = []
    for a in questions:
        said = [("user", a.question)]
        for text in a.answers:
            said += [("web_surfer", text), ("critic", f"Verify {draw.prose(2)}.")]
        messages = [
            {"id": f"m{a.number}-{i}", "source": source, "content": text} for i, (source, text) in enumerate(said)
        ]
        task = {"id": a.number, "question": a.question, "ground_truth": a.gold}
        made.append({"task": task, "result": {"messages": messages, "stop_reason": "max"}})
    return Log(made, loops(questions))


def _references(texts: Sequence[object], right: object) -> list[dict[str, object]]:
    """Return references as HELM writes them: the right one is tagged."""
    return [{"output": {"text": text}, "tags": ["correct"] if text == right else []} for text in texts]


@shape("scenario_state.json", "stanford-crfm/helm: src/helm/benchmark/adaptation/request_state.py", samples=True)
def completions_of_helm(draw: Draw) -> Log:
    """Several completions of each request; gold answers are references with tags."""
    questions = draw.asked(60, 5, right=(0.6, 0.6))
    states = [
        {
            "instance": {
                "input": {"text": a.question},
                "references": _references([a.gold], a.gold),
                "split": "test",
                "id": f"id{a.number}",
            },
            "train_trial_index": 0,
            "request": {"model": "m", "prompt": a.question, "num_completions": 5},
            "result": {"success": True, "completions": [{"text": f" {x}", "logprob": -1.5} for x in a.answers]},
        }
        for a in questions
    ]
    return Log({"adapter_spec": {"num_outputs": 5}, "request_states": states}, loops(questions))


@shape("log.jsonl")
def letters_beside_tagged_references(draw: Draw) -> Log:
    """Answers are letters of the references, of which one is tagged."""
    questions = draw.asked(60, 3, "letter")
    texts = dict(zip("ABCDE", draw.random.sample(CITIES, 5), strict=True))
    made = [
        {
            "id": a.number,
            "round": r,
            "question": a.question,
            "references": _references([*texts.values()], texts[a.gold]),
            "completion": answer,
        }
        for a in questions
        for r, answer in enumerate(a.answers, start=1)
    ]
    return Log(made, loops(questions))


@shape("spans.csv", "Arize-ai/phoenix: src/phoenix/trace/trace_dataset.py")
def spans_in_a_table(draw: Draw) -> Log:
    """Spans as a data frame wrote them: messages are lists as Python prints them."""
    questions = draw.asked(60, 3)
    made = []
    for a in questions:
        for r, text in enumerate(a.answers):
            made.append(
                {
                    "context.trace_id": f"{a.number:032x}",
                    "context.span_id": f"{10 * a.number + r:016x}",
                    "parent_id": "",
                    "name": "ChatCompletion",
                    "span_kind": "LLM",
                    "start_time": f"2026-11-05T12:{a.number:02d}:{2 * r:02d}+00:00",
                    "end_time": f"2026-11-05T12:{a.number:02d}:{2 * r + 1:02d}+00:00",
                    "status_code": "OK",
                    "attributes.llm.input_messages": str([{"message.role": "user", "message.content": a.question}]),
                    "attributes.llm.output_messages": str([{"message.role": "assistant", "message.content": text}]),
                    "attributes.llm.token_count.prompt": draw.tokens(),
                    "attributes.llm.token_count.completion": draw.tokens(),
                }
            )
    return Log(made, [a.loop(golds=(), scores=None) for a in questions])
