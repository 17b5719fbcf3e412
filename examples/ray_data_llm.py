"""Answer a file of requests by vLLM on the GPUs of a Ray cluster, without an endpoint.

pip install "ray[data,llm]"
suffice record questions.jsonl -o r.parquet --base-url http://gpu/v1 --model MODEL --batch-file requests.jsonl
python ray_data_llm.py requests.jsonl MODEL 8      # eight replicas, a GPU each
suffice record ...                                 # the same command again reads requests.output.jsonl
"""

import json
import sys
from pathlib import Path
from typing import Any


def sampling(row: dict[str, Any]) -> dict[str, Any]:
    """Return a request's messages and settings as Ray Data LLM takes them."""
    body = row["body"]
    settings = {
        name: body[name] for name in ("temperature", "max_tokens", "seed", "stop") if body.get(name) is not None
    }
    if body.get("logprobs"):
        settings["logprobs"] = body.get("top_logprobs", 1)
    return {"custom_id": row["custom_id"], "messages": body["messages"], "sampling_params": settings}


def output_line(row: dict[str, Any]) -> str:
    """Return a reply as a line of a batch's output file, with its log-probabilities if there are any."""
    content = []
    for token_id, known in zip(row["generated_tokens"], row.get("logprobs") or (), strict=False):
        by_id = {int(number): item for number, item in known.items() if item is not None}
        tops = sorted(by_id.values(), key=lambda item: item["rank"])
        tops = [{"token": item["decoded_token"], "logprob": item["logprob"]} for item in tops]
        own = by_id[int(token_id)]
        content.append({"token": own["decoded_token"], "logprob": own["logprob"], "top_logprobs": tops})
    message = {"role": "assistant", "content": row["generated_text"]}
    logprobs = {"content": content} if content else None
    usage = {"prompt_tokens": row["num_input_tokens"], "completion_tokens": row["num_generated_tokens"]}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": logprobs}
    body = {"object": "chat.completion", "choices": [choice], "usage": usage}
    return json.dumps({"custom_id": row["custom_id"], "response": {"status_code": 200, "body": body}, "error": None})


def main(requests: str, model: str, replicas: int) -> None:
    """Read requests.jsonl, write requests.output.jsonl."""
    import ray
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    config = vLLMEngineProcessorConfig(
        model_source=model,
        concurrency=replicas,  # replicas of the engine, each with tensor_parallel_size GPUs
        batch_size=64,
        engine_kwargs={"tensor_parallel_size": 1, "enable_prefix_caching": True, "max_logprobs": 20},
    )
    process = build_processor(config, preprocess=sampling, postprocess=lambda row: {"line": output_line(row)})
    asked = [json.loads(line) for line in Path(requests).read_text("utf-8").splitlines()]
    with Path(requests).with_suffix(".output.jsonl").open("w", encoding="utf-8") as output:
        output.writelines(row["line"] + "\n" for row in process(ray.data.from_items(asked)).iter_rows())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
