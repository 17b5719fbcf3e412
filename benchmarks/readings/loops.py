"""What public loops write: drafts, iterations of retrieval, debates, agents with a check, and several samples of a question."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, Loop, shape


@shape("intermediate_data.json", "RUC-NLPIR/FlashRAG: flashrag/pipeline/active_pipeline.py (IterativePipeline)")
def flashrag_iterative(draw: Draw) -> Log:
    """Predictions of numbered iterations inside `output`, beside the last one again."""
    questions = draw.asked(80, 3)
    records = []
    for asked in questions:
        output = {}
        for r, answer in enumerate(asked.answers):
            output[f"retrieval_result_iter_{r}"] = [{"id": f"d{r}", "contents": draw.prose()}]
            output[f"prompt_iter_{r}"] = f"{draw.prose()} {asked.question}"
            output[f"pred_iter_{r}"] = answer
        score = {"em": float(asked.right[-1]), "f1": float(asked.right[-1])}
        output |= {"retrieval_result": [], "pred": asked.answers[-1], "metric_score": score}
        common = {"id": f"test_{asked.number}", "question": asked.question, "golden_answers": [asked.gold]}
        records.append({**common, "output": output})
    return Log(records, [asked.loop() for asked in questions])


@shape("validation_critic_500.jsonl", "microsoft/ProphetNet: CRITIC/src/qa/critic.py")
def critic_qa(draw: Draw) -> Log:
    """`pred` and `cot` are parallel lists, from the first answer to the last correction; `answer` is the gold."""
    questions = draw.asked(100, 4)
    records = [
        {
            "idx": asked.number,
            "question": asked.question,
            "answer": asked.gold,
            "cot": [f"{draw.prose(8)} So the answer is: {answer}." for answer in asked.answers],
            "pred": list(asked.answers),
        }
        for asked in questions
    ]
    return Log(records, [asked.loop() for asked in questions])


@shape("ic_sql_multiturn_10_turns.json", "princeton-nlp/intercode: experiments/eval_n_turn.py", metric="reward")
def intercode_turns(draw: Draw) -> Log:
    """A dictionary keyed by id; the turns are parallel lists inside `turn_history`, and end at a reward of 1."""
    records, loops = {}, []
    for asked in draw.asked(80, 5, right=(0.15, 0.5)):
        turns = min([r + 1 for r, good in enumerate(asked.right) if good] or [5])
        actions = tuple(f"SELECT {answer}_{r} FROM towers" for r, answer in enumerate(asked.answers[:turns]))
        rewards = [1.0 if good else draw.random.choice([0.0, 0.25, 0.5]) for good in asked.right[:turns]]
        history = {
            "actions": list(actions),
            "observations": [draw.prose(3) for _ in actions],
            "rewards": rewards,
            "valid_action": [True for _ in actions],
        }
        records[str(asked.number)] = {
            "environment": "ic_sql",
            "dataset": "./data/sql/dev.json",
            "task_id": asked.number,
            "query": asked.question,
            "turn_history": history,
            "summary": {"max_reward": max(rewards), "turns_taken": turns, "turns_max": 5},
            "hardness": "easy",
        }
        loops.append(Loop(asked.number, actions, scores=tuple(rewards)))
    return Log(records, loops)


@shape(
    "humaneval_py.jsonl",
    "noahshinn/reflexion: programming_runs/reflexion.py",
    options=["--column", "rounds=implementations"],
)
def reflexion_programs(draw: Draw) -> Log:
    """Programs of successive attempts, until the loop's own tests pass; whether the last one is right is said once."""
    records, loops = [], []
    for asked in draw.asked(60, 4, "code"):
        n = min([r + 1 for r, good in enumerate(asked.right) if good] or [4])
        programs = asked.answers[:n]
        records.append(
            {
                "name": f"HumanEval_{asked.number}",
                "prompt": f"def f(x):  # stop {asked.number}\n",
                "entry_point": "f",
                "test": "def check(candidate):\n    assert candidate(1)\n",
                "is_solved": asked.right[n - 1],
                "reflections": [draw.prose() for _ in programs[1:]],
                "implementations": list(programs),
                "test_feedback": [draw.prose(4) for _ in programs],
                "solution": programs[-1],
            }
        )
        loops.append(Loop(asked.number, programs))
    return Log(records, loops)


@shape("gsm_outputs.jsonl", "madaan/self-refine: src/gsm/run.py", options=["--column", "rounds=run_logs"])
def self_refine_gsm(draw: Draw) -> Log:
    """In `run_logs`, each attempt has the program before and after its feedback; `target` is the number that it must print."""
    records, loops = [], []
    for asked in draw.asked(60, 4, "code"):
        before, after = asked.answers[:-1], asked.answers[1:]
        records.append(
            {
                "input": asked.question,
                "target": 12 + asked.number,
                "run_logs": [
                    {"attempt": r, "solution_curr": old, "solution_fixed": new, "feedback": draw.prose()}
                    for r, (old, new) in enumerate(zip(before, after, strict=True))
                ],
                "generated_answer_ours": after[-1],
                "generated_answer_direct": before[0],
            }
        )
        loops.append(Loop(asked.number, after))
    return Log(records, loops)


@shape("gpt-4_0.7_propose1_value3_greedy5.json", "princeton-nlp/tree-of-thought-llm: src/tot/methods/bfs.py")
def tree_of_thoughts_steps(draw: Draw) -> Log:
    """Each step has a beam of partial solutions, none of them an answer."""
    return Log(
        [
            {
                "steps": [
                    {
                        "step": step,
                        "x": "1 2 3 4",
                        "ys": [draw.prose(2) for _ in range(5)],
                        "new_ys": [draw.prose(3) for _ in range(8)],
                        "values": [float(draw.random.randint(0, 20)) for _ in range(8)],
                        "select_new_ys": [draw.prose(3) for _ in range(5)],
                    }
                    for step in range(4)
                ],
                "idx": 900 + number,
                "ys": [draw.prose(4) for _ in range(5)],
                "infos": [{"r": int(draw.random.random() < 0.3)} for _ in range(5)],
                "usage_so_far": {"completion_tokens": 90 * number, "prompt_tokens": 400 * number, "cost": 0.1 * number},
            }
            for number in range(50)
        ]
    )


@shape(
    "test_qwen25-math-cot_-1_seed0_t0.6.jsonl",
    "QwenLM/Qwen2.5-Math: evaluation/math_eval.py",
    options=["--samples"],
    samples=True,
)
def qwen_math_samples(draw: Draw) -> Log:
    """`pred` and `score` of several samples in parallel lists, beside the whole replies in `code`; `gt` is the gold."""
    questions = draw.asked(60, 8, "whole", (0.6, 0.6))
    records = [
        {
            "idx": asked.number,
            "question": asked.question,
            "gt_cot": f"{draw.prose()} #### {asked.gold}",
            "gt": asked.gold,
            "answer": f"{draw.prose()} #### {asked.gold}",
            "code": [f"{draw.prose()} \\boxed{{{answer}}}" for answer in asked.answers],
            "pred": list(asked.answers),
            "report": [None for _ in asked.answers],
            "score": list(asked.right),
        }
        for asked in questions
    ]
    return Log(records, [asked.loop() for asked in questions])


@shape(
    "samples.jsonl_results.jsonl",
    "openai/human-eval: human_eval/evaluation.py",
    options=["--samples"],
    metric="passed_score",
    samples=True,
)
def human_eval_results(draw: Draw) -> Log:
    """Several completions of a task, one a line, each executed."""
    records, loops = [], []
    for asked in draw.asked(50, 5, "code", (0.5, 0.5)):
        for program, good in zip(asked.answers, asked.right, strict=True):
            said = {"completion": program, "result": "passed" if good else "failed: ", "passed": good}
            records.append({"task_id": f"HumanEval/{asked.number}", **said})
        loops.append(Loop(asked.number, asked.answers, scores=asked.right))
    return Log(records, loops)


@shape("samples.jsonl", "evalplus/evalplus: evalplus/evaluate.py", options=["--samples"], samples=True)
def evalplus_samples(draw: Draw) -> Log:
    """Several programs of a task, one a line, without any outcome."""
    questions = draw.asked(50, 5, "code", (0.5, 0.5))
    records = [
        {"task_id": f"HumanEval/{asked.number}", "solution": program}
        for asked in questions
        for program in asked.answers
    ]
    return Log(records, [Loop(asked.number, asked.answers) for asked in questions])


@shape(
    "generations.json",
    "bigcode-project/bigcode-evaluation-harness: bigcode_eval/evaluator.py",
    options=["--samples"],
    samples=True,
)
def bigcode_generations(draw: Draw) -> Log:
    """A list of lists: the programs for each task, which has no name."""
    questions = draw.asked(50, 5, "code", (0.5, 0.5))
    return Log([list(asked.answers) for asked in questions], [Loop(a.number, a.answers) for a in questions])


@shape("rounds.table.json", "wandb/wandb: wandb/sdk/data_types/table.py")
def wandb_table(draw: Draw) -> Log:
    """A table as its columns and its rows."""
    questions = draw.asked(60, 4)
    rows = [
        [asked.number, r, asked.question, answer, asked.gold]
        for asked in questions
        for r, answer in enumerate(asked.answers, 1)
    ]
    columns = ["example_id", "iteration", "question", "prediction", "target"]
    return Log({"columns": columns, "data": rows}, [asked.loop() for asked in questions])


@shape("gsm_3_2.json", "composable-models/llm_multiagent_debate: gsm/gen_gsm.py", metric="em")
def debate_contexts(draw: Draw) -> Log:
    """A dictionary from questions to the dialogues of three agents and the solution; an agent is a run of its question."""
    document, loops = {}, []
    for agents in zip(*(draw.asked(40, 2, "whole") for _ in range(3)), strict=True):
        gold, contexts = agents[0].gold, []
        question = f"{draw.prose(6)} {agents[0].number}?"
        for agent in agents:
            answers = tuple(gold if good else str(int(gold) + 3 + r) for r, good in enumerate(agent.right))
            context = []
            for answer in answers:
                context.append({"role": "user", "content": f"Can you solve the following math problem? {question}"})
                context.append({"role": "assistant", "content": f"{draw.prose()} \\boxed{{{answer}}}"})
            contexts.append(context)
            loops.append(Loop(question, answers, (gold,), agent.right))
        document[question] = [contexts, f"{draw.prose()}\n#### {gold}"]
    return Log(document, loops)


@shape("checkpoints.jsonl", "langchain-ai/langgraph: libs/checkpoint/langgraph/checkpoint/base/__init__.py")
def langgraph_checkpoints(draw: Draw) -> Log:
    """A checkpoint after each step of a thread; the state has the answer so far, and `source` `input` has none yet."""
    questions = draw.asked(60, 4)
    records = [
        {
            "thread_id": f"t{asked.number}",
            "checkpoint_id": f"1ef-{asked.number}-{r}",
            "metadata": {"source": "loop", "step": r},
            "values": {"question": asked.question, "answer": answer, "expected": asked.gold},
            "created_at": f"2024-08-01T10:00:{r:02}",
        }
        for asked in questions
        for r, answer in enumerate(asked.answers, 1)
    ]
    return Log(records, [asked.loop() for asked in questions])


@shape(
    "120.jsonl",
    "volcengine/verl: verl/trainer/ppo/ray_trainer.py (_dump_generations)",
    options=["--samples"],
    samples=True,
    metric="score",
)
def verl_rollouts(draw: Draw) -> Log:
    """Samples of the same inputs at one step of training: `step` counts updates of the weights, not rounds."""
    questions = draw.asked(40, 4, "whole", (0.5, 0.5))
    records = [
        {
            "input": f"user\n{asked.question}\nassistant\n",
            "output": answer,
            "gts": asked.gold,
            "score": float(good),
            "step": 120,
        }
        for asked in questions
        for answer, good in zip(asked.answers, asked.right, strict=True)
    ]
    return Log(records, [asked.loop() for asked in questions])


@shape("ultrafeedback.jsonl", "OpenBMB/UltraFeedback: README.md")
def ultrafeedback_completions(draw: Draw) -> Log:
    """Completions of four models: a panel, whose order means nothing."""
    models = ["vega-8b", "lyra-70b", "orion-7b", "corvus-13b"]
    return Log(
        [
            {
                "source": "evol_instruct",
                "instruction": f"Describe caravan {number}.",
                "models": models,
                "completions": [
                    {
                        "model": model,
                        "principle": "helpfulness",
                        "response": draw.prose(20),
                        "overall_score": draw.random.choice([2.0, 5.5, 7.0]),
                    }
                    for model in models
                ],
                "correct_answers": ["None"],
                "incorrect_answers": ["None"],
            }
            for number in range(60)
        ]
    )


@shape("mixinstruct.jsonl", "yuchenlin/LLM-Blender: README.md (MixInstruct)")
def llm_blender_candidates(draw: Draw) -> Log:
    """Candidates of several models beside the output that is right: a panel again."""
    return Log(
        [
            {
                "id": f"unified/{number}",
                "instruction": "",
                "input": f"Describe caravan {number}.",
                "output": draw.prose(15),
                "candidates": [
                    {
                        "decoding_method": "top_p_sampling",
                        "model": model,
                        "text": draw.prose(15),
                        "scores": {"bleu": round(10 * draw.random.random(), 2)},
                    }
                    for model in ("vega-8b", "lyra-70b", "orion-7b")
                ],
            }
            for number in range(60)
        ]
    )


@shape("team.jsonl", "microsoft/autogen: python/packages/autogen-agentchat/src/autogen_agentchat/messages.py")
def autogen_team(draw: Draw) -> Log:
    """Solver and critic in turn: what the critic says is no round."""
    questions = draw.asked(60, 3)
    records = []
    for asked in questions:
        messages = [{"source": "user", "type": "TextMessage", "content": asked.question, "models_usage": None}]
        for answer in asked.answers:
            usage = {"prompt_tokens": draw.tokens(), "completion_tokens": 4}
            messages.append({"source": "solver", "type": "TextMessage", "content": answer, "models_usage": usage})
            messages.append(
                {"source": "critic", "type": "TextMessage", "content": draw.prose(5), "models_usage": usage}
            )
        records.append({"task_id": asked.number, "expected_answer": asked.gold, "messages": messages})
    return Log(records, [asked.loop() for asked in questions])


@shape("output.jsonl", "jzbjyb/FLARE: src/openai_api.py (write_worker)")
def flare_traces(draw: Draw) -> Log:
    """`trace` has pairs of a prompt and the next piece of one text: pieces, not answers."""
    return Log(
        [
            {
                "qid": f"q{asked.number}",
                "question": asked.question,
                "answer": asked.gold,
                "output": f"{draw.prose()} So the answer is {asked.answers[0]}.",
                "output_prob": [0.5, 0.25],
                "retrieval": [["d1", "d2"]],
                "trace": [[f"{draw.prose()} {asked.question}", draw.prose(6)] for _ in range(3)],
            }
            for asked in draw.asked(60, 1)
        ]
    )


@shape("results.jsonl", "s-nlp/AdaRAGUE: README.md")
def no_and_one_retrieval(draw: Draw) -> Log:
    """The answers without and with one retrieval, in columns named after them: rounds 0 and 1."""
    questions = draw.asked(200, 2)
    records = [
        {
            "question_id": f"q{asked.number}",
            "question_text": asked.question,
            "reference": [asked.gold],
            "no_retrieval": asked.answers[0],
            "one_retrieval": asked.answers[1],
        }
        for asked in questions
    ]
    return Log(records, [asked.loop() for asked in questions])


@shape(
    "gpt-x-retail.json",
    "sierra-research/tau-bench: tau_bench/types.py (EnvRunResult)",
    options=["--samples"],
    metric="reward",
    samples=True,
)
def tau_bench_trials(draw: Draw) -> Log:
    """`trial` counts independent runs of a task; no answers, and a reward for each."""
    rewards = [tuple(float(draw.random.random() < 0.5) for _ in range(3)) for _ in range(60)]
    records = [
        {
            "task_id": number,
            "reward": rewards[number][trial],
            "info": {"task": {"user_id": f"user_{number}", "instruction": f"Move caravan {number}."}},
            "traj": [
                {"role": role, "content": draw.prose(4)}
                for _ in range(draw.random.randint(2, 5))
                for role in ("user", "assistant")
            ],
            "trial": trial,
        }
        for trial in range(3)
        for number in range(60)
    ]
    return Log(records, [Loop(number, (None,) * 3, scores=scores) for number, scores in enumerate(rewards)])
