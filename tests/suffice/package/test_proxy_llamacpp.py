"""The recording proxy in front of llama.cpp's server, whose model needs PyTorch, asked by both official clients."""

import httpx
import openai
import pytest

from suffice.policy.session import Policy
from suffice.recordings import read_recording
from tests.support.llamacpp import start_server
from tests.support.serving import proxy


@pytest.mark.whole
def test_both_clients_talk_to_llamacpp_through_the_proxy(taught_model, tmp_path):
    policy = tmp_path / "policy.json"
    Policy(rule="round >= 2", max_rounds=4).save(policy)
    with (
        start_server(taught_model) as server,
        proxy(tmp_path / "runs", server.url, "--enforce", str(policy)) as (_, url),
    ):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        history = [{"role": "user", "content": "Where is the old tower?"}]
        for turn in range(3):
            given = {"model": "tiny", "messages": history, "max_tokens": 16, "temperature": 0}
            chunks = client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True})
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            direct = httpx.post(f"{server.url}/chat/completions", json=given, timeout=60).json()
            assert turn == 2 or text == direct["choices"][0]["message"]["content"]
            history += [{"role": "assistant", "content": text}, {"role": "user", "content": "Sure?"}]
        import anthropic  # a second, which only this test takes

        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0).messages.stream(
            model="tiny", max_tokens=16, messages=[{"role": "user", "content": "Where is the new bridge?"}]
        ) as events:
            assert events.get_final_text()
    rows = read_recording(tmp_path / "runs").table.to_pylist()
    assert sorted((row["question"], row["round"], row["end"]) for row in rows) == [
        ("Where is the new bridge?", 1, "exhausted"),
        ("Where is the old tower?", 1, "rule"),
        ("Where is the old tower?", 2, "rule"),
    ]
    assert all(row["cost.generator.output_tokens"] > 0 for row in rows)
