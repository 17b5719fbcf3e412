"""Result files of evaluation harnesses and agent benchmarks: most hold one answer a question, so that nothing can be stopped."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Draw, Log, shape

MODELS = ("vega-8b", "lyra-70b")


def _choices(right: str) -> list[str]:
    return [f"({letter}) option {letter}" + "*" * (letter == right) for letter in "ABCDE"]


@shape("samples_gsm8k_2024-05-01.jsonl", "EleutherAI/lm-evaluation-harness: lm_eval/loggers/evaluation_tracker.py")
def lm_eval_samples(draw: Draw) -> Log:
    """One record a document, with the whole reply in a list of lists, and what the filter took from it."""
    return Log(
        [
            {
                "doc_id": asked.number,
                "doc": {"question": asked.question, "answer": f"{draw.prose()} #### {asked.gold}"},
                "target": f"{draw.prose()} #### {asked.gold}",
                "arguments": [[f"Question: {asked.question}\nAnswer:", {"until": ["Question:"]}]],
                "resps": [[f"{draw.prose()} The answer is {asked.answers[0]}."]],
                "filtered_resps": [asked.answers[0]],
                "filter": "strict-match",
                "exact_match": float(asked.right[0]),
            }
            for asked in draw.asked(120, 1, "whole")
        ]
    )


@shape("scenario_state.json", "stanford-crfm/helm: src/helm/benchmark/adaptation/request_state.py")
def helm_scenario_state(draw: Draw) -> Log:
    """All requests in one document, each with the references of its instance and the completions of the model."""
    states = [
        {
            "instance": {
                "input": {"text": asked.question},
                "references": [
                    {"output": {"text": city}, "tags": ["correct"] * (city == asked.gold)}
                    for city in dict.fromkeys((asked.gold, *asked.answers, "Turin"))
                ],
                "split": "test",
                "id": f"id{asked.number}",
            },
            "train_trial_index": 0,
            "request": {"model": "openai/davinci", "prompt": asked.question, "temperature": 0.0, "num_completions": 1},
            "result": {"success": True, "cached": True, "completions": [{"text": asked.answers[0], "logprob": -1.5}]},
        }
        for asked in draw.asked(80, 1)
    ]
    return Log({"adapter_spec": {"method": "generation", "max_train_trials": 1}, "request_states": states})


@shape("events.jsonl", "openai/evals: evals/record.py (LocalRecorder)")
def openai_evals_events(draw: Draw) -> Log:
    """Two events a sample: what was sampled, and whether it matched.  They are not two rounds."""
    records: list[dict[str, Any]] = [{"spec": {"completion_fns": ["gpt-x"], "eval_name": "towers.dev.v0"}}]
    for asked in draw.asked(60, 1):
        common = {"run_id": "230101ABC", "sample_id": f"towers.dev.{asked.number}", "created_by": ""}
        sampling = {"prompt": [{"role": "user", "content": asked.question}], "sampled": [asked.answers[0]]}
        match = {"correct": asked.right[0], "expected": asked.gold, "picked": asked.answers[0]}
        for kind, data in (("sampling", sampling), ("match", match)):
            place = len(records) - 1
            when = f"2023-01-01 00:{place // 60:02}:{place % 60:02}+00:00"
            records.append({**common, "event_id": place, "type": kind, "data": data, "created_at": when})
    return Log([*records, {"final_report": {"accuracy": 0.5}}])


@shape("ragas.csv", "explodinggradients/ragas: src/ragas/dataset_schema.py (EvaluationResult.to_pandas)")
def ragas_result(draw: Draw) -> Log:
    """A row for each question, with a response, a reference and scores."""
    return Log(
        [
            {
                "user_input": asked.question,
                "retrieved_contexts": str([draw.prose(), draw.prose()]),
                "response": f"The caravan stops in {asked.answers[0]}.",
                "reference": asked.gold,
                "faithfulness": round(draw.random.random(), 3),
                "answer_relevancy": round(draw.random.random(), 3),
            }
            for asked in draw.asked(100, 1)
        ]
    )


@shape("evaluation.csv", "stanfordnlp/dspy: dspy/evaluate/evaluate.py (_prepare_results_output)")
def dspy_evaluate(draw: Draw) -> Log:
    """The fields of an example and of a prediction side by side, renamed where both have them."""
    return Log(
        [
            {
                "question": asked.question,
                "example_answer": asked.gold,
                "reasoning": draw.prose(),
                "pred_answer": asked.answers[0],
                "answer_exact_match": "✔️ [True]" if asked.right[0] else "",
            }
            for asked in draw.asked(100, 1)
        ]
    )


@shape("output.json", "promptfoo/promptfoo: src/types/index.ts (OutputFile)")
def promptfoo_output(draw: Draw) -> Log:
    """Every test with every provider, once: other models are not later rounds."""
    results = [
        {
            "promptIdx": 0,
            "testIdx": asked.number,
            "provider": {"id": f"openai:{model}", "label": ""},
            "prompt": {"raw": asked.question, "label": "{{question}}"},
            "vars": {"question": asked.question},
            "response": {"output": asked.answers[place], "tokenUsage": {"total": draw.tokens()}},
            "success": asked.right[place],
            "score": int(asked.right[place]),
            "latencyMs": draw.tokens(),
        }
        for asked in draw.asked(60, 2)
        for place, model in enumerate(MODELS)
    ]
    return Log({"evalId": "eval-abc", "results": {"version": 3, "results": results, "stats": {"successes": 70}}})


@shape("test_run.json", "confident-ai/deepeval: deepeval/test_run/test_run.py")
def deepeval_test_run(draw: Draw) -> Log:
    """The test cases of a run, each with an actual and an expected output."""
    cases = [
        {
            "name": f"test_case_{asked.number}",
            "input": asked.question,
            "actualOutput": asked.answers[0],
            "expectedOutput": asked.gold,
            "retrievalContext": [draw.prose()],
            "success": asked.right[0],
            "metricsData": [{"name": "Correctness", "threshold": 0.5, "score": float(asked.right[0])}],
            "runDuration": draw.tokens() / 100,
            "order": asked.number,
        }
        for asked in draw.asked(60, 1)
    ]
    return Log({"testFile": None, "testCases": cases, "conversationalTestCases": [], "metricsScores": []})


@shape("predictions.jsonl", "princeton-nlp/SWE-bench: README.md (predictions)")
def swe_bench_predictions(draw: Draw) -> Log:
    """One patch for each instance."""
    return Log(
        [
            {
                "instance_id": f"astro__orbit-{asked.number}",
                "model_name_or_path": "vega-8b",
                "model_patch": f"diff --git a/f.py b/f.py\n--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-x\n+{asked.answers[0]}\n",
            }
            for asked in draw.asked(80, 1)
        ]
    )


@shape("annotations.json", "tatsu-lab/alpaca_eval: src/alpaca_eval/annotators/pairwise_evaluator.py")
def alpaca_eval_annotations(draw: Draw) -> Log:
    """Outputs of two systems, numbered: not two rounds of one."""
    return Log(
        [
            {
                "instruction": f"Describe caravan {number}.",
                "output_1": draw.prose(20),
                "generator_1": "reference-003",
                "dataset": "helpful_base",
                "output_2": draw.prose(20),
                "generator_2": "vega-8b",
                "annotator": "alpaca_eval_gpt4",
                "preference": draw.random.choice([1.0, 2.0]),
            }
            for number in range(100)
        ]
    )


@shape("vega-8b.jsonl", "lm-sys/FastChat: fastchat/llm_judge/gen_model_answer.py")
def mt_bench_answers(draw: Draw) -> Log:
    """The turns of a choice answer the turns of a question: another question each."""
    return Log(
        [
            {
                "question_id": 81 + number,
                "answer_id": f"a{number:04}",
                "model_id": "vega-8b",
                "choices": [{"index": 0, "turns": [draw.prose(), draw.prose()]}],
                "tstamp": 1700000000.5 + number,
            }
            for number in range(80)
        ]
    )


@shape("battles.json", "lm-sys/FastChat: fastchat/serve/monitor/clean_battle_data.py")
def arena_battles(draw: Draw) -> Log:
    """Two models answer the same prompt, and somebody chooses."""
    battles = []
    for number in range(100):
        user = {"role": "user", "content": f"Describe caravan {number}."}
        sides = {side: [user, {"role": "assistant", "content": draw.prose()}] for side in "ab"}
        battles.append(
            {
                "question_id": f"q{number:04}",
                "model_a": MODELS[0],
                "model_b": MODELS[1],
                "winner": draw.random.choice(["model_a", "model_b", "tie"]),
                **{f"conversation_{side}": said for side, said in sides.items()},
                "turn": 1,
                "tstamp": 1700000000.5 + number,
            }
        )
    return Log(battles)


@shape("math.json", "sunnynexus/Search-o1: README.md")
def search_o1_output(draw: Draw) -> Log:
    """The whole reasoning with its searches in one text, and the answer taken from it."""
    return Log(
        [
            {
                "id": asked.number,
                "Question": asked.question,
                "answer": asked.gold,
                "Output": f"{draw.prose()} <|begin_search_query|>{draw.prose(3)}<|end_search_query|> \\boxed{{{asked.answers[0]}}}",
                "Pred_Answer": asked.answers[0],
                "Metrics": {"em": int(asked.right[0]), "acc": int(asked.right[0]), "f1": float(asked.right[0])},
            }
            for asked in draw.asked(60, 1, "whole")
        ]
    )


@shape("history_result.json", "TIGER-AI-Lab/MMLU-Pro: evaluate_from_api.py")
def mmlu_pro_result(draw: Draw) -> Log:
    """`answer` is the gold letter, `pred` the model's, and `model_outputs` one whole reply."""
    return Log(
        [
            {
                "question_id": 4000 + asked.number,
                "question": asked.question,
                "options": _choices(asked.gold),
                "answer": asked.gold,
                "answer_index": "ABCDE".index(asked.gold),
                "cot_content": "",
                "category": "history",
                "src": "ori_mmlu-history",
                "pred": asked.answers[0],
                "model_outputs": f"{draw.prose()} The answer is ({asked.answers[0]}).",
            }
            for asked in draw.asked(120, 1, "letter")
        ]
    )


@shape("towers.json", "open-compass/opencompass: opencompass/openicl/icl_inferencer/icl_base_inferencer.py")
def opencompass_predictions(draw: Draw) -> Log:
    """A dictionary of predictions, keyed by the place of the question."""
    return Log(
        {
            str(asked.number): {
                "origin_prompt": [{"role": "HUMAN", "prompt": asked.question}],
                "prediction": asked.answers[0],
                "gold": asked.gold,
            }
            for asked in draw.asked(80, 1)
        }
    )


@shape("output.json", "AkariAsai/self-rag: retrieval_lm/run_short_form.py")
def self_rag_output(draw: Draw) -> Log:
    """One document of parallel lists, one item a question: not one question of many rounds."""
    questions = draw.asked(60, 1)
    return Log(
        {
            "preds": [asked.answers[0] for asked in questions],
            "prompts": [f"### Instruction:\n{asked.question}\n\n### Response:\n" for asked in questions],
            "metric_results": [int(asked.right[0]) for asked in questions],
            "all_results": [{"no_retrieval": asked.answers[0]} for asked in questions],
            "golds": [[asked.gold] for asked in questions],
            "metric": "match",
            "metric_mean": 0.5,
        }
    )


@shape("gaia.jsonl", "huggingface/smolagents: examples/open_deep_research/run_gaia.py")
def smolagents_gaia(draw: Draw) -> Log:
    """Steps of an agent without answers, and one answer at the end."""
    return Log(
        [
            {
                "agent_name": "vega-8b",
                "question": asked.question,
                "augmented_question": f"{draw.prose()} {asked.question}",
                "prediction": asked.answers[0],
                "intermediate_steps": [
                    {"step_number": step, "model_output": draw.prose(), "observations": draw.prose(4), "error": None}
                    for step in range(1, draw.random.randint(3, 6))
                ],
                "parsing_error": False,
                "iteration_limit_exceeded": False,
                "start_time": "2025-01-01 10:00:00",
                "task": "1",
                "task_id": f"task-{asked.number}",
                "true_answer": asked.gold,
            }
            for asked in draw.asked(60, 1)
        ]
    )


@shape("checking_inputs.json", "amazon-science/RAGChecker: ragchecker/container.py")
def ragchecker_inputs(draw: Draw) -> Log:
    """A list of results in one document, each with a response and the passages that were retrieved."""
    results = [
        {
            "query_id": str(asked.number),
            "query": asked.question,
            "gt_answer": asked.gold,
            "response": asked.answers[0],
            "retrieved_context": [{"doc_id": f"d{i}", "text": draw.prose()} for i in range(3)],
        }
        for asked in draw.asked(60, 1)
    ]
    return Log({"results": results})


@shape("infos.json", "ysymyth/ReAct: hotpotqa.ipynb")
def react_infos(draw: Draw) -> Log:
    """`steps` is a number, and the trajectory one text."""
    return Log(
        [
            {
                "steps": draw.random.randint(2, 7),
                "answer": asked.answers[0],
                "gt_answer": asked.gold,
                "question_idx": 3687 + asked.number,
                "reward": asked.right[0],
                "em": asked.right[0],
                "f1": float(asked.right[0]),
                "traj": f"Question: {asked.question}\nThought 1: {draw.prose()}\nAction 1: Finish[{asked.answers[0]}]",
            }
            for asked in draw.asked(100, 1)
        ]
    )


@shape("runs.jsonl", "THUDM/AgentBench: src/typings/output.py")
def agent_bench_runs(draw: Draw) -> Log:
    """Actions of an agent as a dialogue, and one result for each run: no answer can be taken earlier."""
    return Log(
        [
            {
                "index": number,
                "error": None,
                "info": None,
                "output": {
                    "index": number,
                    "status": "completed",
                    "result": {"is_correct": draw.random.random() < 0.5},
                    "history": [
                        {"role": role, "content": draw.prose(5)}
                        for _ in range(draw.random.randint(2, 5))
                        for role in ("user", "agent")
                    ],
                },
                "time": {"timestamp": 1700000000000 + number, "str": "2023-11-14 22:13:20"},
            }
            for number in range(60)
        ]
    )


@shape("BFCL_v3_multi_turn_base_result.jsonl", "ShishirPatil/gorilla: berkeley-function-call-leaderboard/README.md")
def bfcl_multi_turn(draw: Draw) -> Log:
    """Calls by turn of the user: each turn asks for something else."""
    return Log(
        [
            {
                "id": f"multi_turn_base_{number}",
                "result": [[[f"cd(folder='{draw.prose(1)}')"], ["ls()"]] for _ in range(3)],
                "input_token_count": [[draw.tokens(), draw.tokens()] for _ in range(3)],
                "output_token_count": [[draw.tokens(), draw.tokens()] for _ in range(3)],
                "latency": [[0.5, 0.25] for _ in range(3)],
            }
            for number in range(60)
        ]
    )


@shape("details.parquet", "huggingface/lighteval: src/lighteval/logging/evaluation_tracker.py")
def lighteval_details(draw: Draw) -> Log:
    """Parquet with structures: a document, a response in a list, and metrics."""
    return Log(
        [
            {
                "doc": {"query": asked.question, "choices": [f" {asked.gold}"], "gold_index": 0, "task_name": "towers"},
                "model_response": {"text": [asked.answers[0]], "input_tokens": [draw.tokens()]},
                "metric": {"em": float(asked.right[0])},
            }
            for asked in draw.asked(60, 1)
        ]
    )


@shape("prediction_dev.json", "StonyBrookNLP/ircot: evaluate.py")
def predictions_by_id(draw: Draw) -> Log:
    """A dictionary from ids to answers."""
    return Log({f"2hop__{asked.number}": asked.answers[0] for asked in draw.asked(60, 1)})


@shape("coqa_predictions.json", "stanfordnlp/coqa-baselines: README.md")
def coqa_predictions(draw: Draw) -> Log:
    """The turns of a conversation are questions of their own."""
    return Log(
        [
            {
                "id": f"story{asked.number}",
                "turn_id": turn,
                "question": f"{draw.prose(3)} {turn}?",
                "answer": answer,
                "gold": draw.name()[0],
            }
            for asked in draw.asked(40, 5)
            for turn, answer in enumerate(asked.answers, 1)
        ]
    )
