"""Write the trace files of the importers' tests with the real SDKs and a fake model on a local port.

    python -m venv venv
    venv/bin/pip install opentelemetry-sdk opentelemetry-exporter-otlp-json-file opentelemetry-instrumentation-openai-v2 \
        opentelemetry-instrumentation-openai openinference-instrumentation-openai pydantic-ai-slim langsmith \
        langchain-openai mlflow-tracing mlflow-skinny pandas inspect-ai openai 'wrapt<2'
    venv/bin/python scripts/make_trace_fixtures.py tests/data/traces

Each emitter runs in a process of its own: instrumentations of one library exclude each other.  The versions are written to
`versions.json` beside the files; names of the machine are removed.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

N_QUESTIONS, ROUNDS = 24, 4
QUESTIONS = [(f"What is {7 + 3 * i} plus {5 + 2 * i}?", str(12 + 5 * i)) for i in range(N_QUESTIONS)]
SYSTEM = "Reply with the number alone."
AGAIN = "Check your reply and repeat or correct it."
RECEIVED: list[tuple[str, str, Any]] = []
"""What was sent to the server besides completions: method, path and JSON body."""


def reply_of(question: str, round_index: int) -> str:
    """Return what the fake model says: wrong in the first round in a third of the questions, once wrong again at the end."""
    place = next(i for i, (text, _) in enumerate(QUESTIONS) if text == question)
    gold = int(QUESTIONS[place][1])
    wrong = (place % 3 == 0 and round_index == 1) or (place == 1 and round_index == ROUNDS)
    return str(gold + 1 if wrong else gold)


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion with log-probabilities and cached tokens."""
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    question, round_index = texts[0], len(texts)
    answer = reply_of(question, round_index)
    logprob = -0.05 if answer == dict(QUESTIONS)[question] else -0.9
    token = {"token": answer, "logprob": logprob, "bytes": list(answer.encode())}
    other = {"token": "7", "logprob": -3.0 - logprob, "bytes": [55]}
    given = 30 + 20 * round_index
    return {
        "id": f"chatcmpl-{question[8:]}-{round_index}".replace(" ", "-").strip("?"),
        "object": "chat.completion",
        "created": 1_760_000_000 + 10 * round_index,
        "model": "fake-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": answer},
                "logprobs": {"content": [{**token, "top_logprobs": [token, other]}]} if body.get("logprobs") else None,
            }
        ],
        "usage": {
            "prompt_tokens": given,
            "completion_tokens": 2,
            "total_tokens": given + 2,
            "prompt_tokens_details": {"cached_tokens": 20 * (round_index - 1)},
        },
    }


class Handler(BaseHTTPRequestHandler):
    """An endpoint of chat completions that keeps whatever else it is sent."""

    def do_POST(self) -> None:
        """Answer a completion, or keep a run."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.endswith("/chat/completions"):
            self._send(completion(body))
        else:
            RECEIVED.append((self.command, self.path, body))
            self._send({})

    do_PATCH = do_POST  # noqa: N815 - the name that http.server calls

    def do_GET(self) -> None:
        """Answer what clients ask first."""
        self._send({"version": "0.0.0", "batch_ingest_config": {"use_multipart_endpoint": False}})

    def _send(self, value: Any) -> None:
        raw = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: Any) -> None:
        """Stay silent."""


@contextmanager
def server() -> Iterator[str]:
    """Yield the address of the fake endpoint."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()


def client_of(url: str) -> Any:
    """Return OpenAI's client; its key must never reach a recording."""
    import openai

    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-secret-of-the-fixture")


def loop(client: Any, question: str, *, early: bool = False) -> list[str]:
    """Ask, and let the model check its reply; with `early`, until two replies agree."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    replies: list[str] = []
    for _ in range(ROUNDS):
        response = client.chat.completions.create(model="fake-1", messages=messages, logprobs=True, top_logprobs=2)
        replies.append(response.choices[0].message.content)
        if early and replies[-2:-1] == replies[-1:]:
            break
        messages += [{"role": "assistant", "content": replies[-1]}, {"role": "user", "content": AGAIN}]
    return replies


def traced(url: str, out: Path, instrument: Callable[[Any], None], *, logs: bool = False) -> None:
    """Run the loop under OpenTelemetry, and export OTLP JSON lines."""
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(FileSpanExporter(out), max_export_batch_size=64))
    if logs:
        keep_logs(out.with_name(out.name.replace("spans", "logs")))
    instrument(provider)
    client, tracer = client_of(url), provider.get_tracer("loop")
    for place, (question, _) in enumerate(QUESTIONS):
        with tracer.start_as_current_span(
            "answer", attributes={"session.id": f"q{place}", "authorization": "Bearer secret"}
        ):
            loop(client, question)
    provider.shutdown()


def keep_logs(out: Path) -> None:
    """Export log records as OTLP JSON lines, too."""
    from opentelemetry import _logs
    from opentelemetry.exporter.otlp.json.file._log_exporter import FileLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(FileLogExporter(out)))
    _logs.set_logger_provider(provider)


def genai(url: str, folder: Path) -> None:
    """Write spans of OpenTelemetry's own instrumentation, messages on the spans."""
    os.environ |= {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    }
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    traced(url, folder / "otlp_genai.jsonl", lambda provider: OpenAIInstrumentor().instrument(tracer_provider=provider))


def genai_events(url: str, folder: Path) -> None:
    """Write the same spans with the messages in one log record for each call."""
    os.environ |= {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "EVENT_ONLY",
        "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT": "true",
    }
    _with_logs(url, folder / "otlp_genai_events")


def genai_old_events(url: str, folder: Path) -> None:
    """Write spans of the older convention, a log record for each message: with the instrumentation's version 2.3b0."""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
    _with_logs(url, folder / "otlp_genai_old_events")


def _with_logs(url: str, folder: Path) -> None:
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    folder.mkdir(exist_ok=True)
    out = folder / "spans.jsonl"
    traced(url, out, lambda provider: OpenAIInstrumentor().instrument(tracer_provider=provider), logs=True)


def openllmetry(url: str, folder: Path) -> None:
    """Write spans of OpenLLMetry."""
    os.environ["TRACELOOP_TRACE_CONTENT"] = "true"
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    traced(
        url,
        folder / "otlp_openllmetry.jsonl",
        lambda provider: OpenAIInstrumentor().instrument(tracer_provider=provider),
    )


def openinference(url: str, folder: Path) -> None:
    """Write spans of OpenInference, as OTLP and as the SDK prints them."""
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    with (folder / "openinference_console.jsonl").open("w") as out:

        def instrument(provider: Any) -> None:
            console = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
            provider.add_span_processor(SimpleSpanProcessor(console))
            OpenAIInstrumentor().instrument(tracer_provider=provider)

        traced(url, folder / "otlp_openinference.jsonl", instrument)


def pydantic_ai(_url: str, folder: Path) -> None:
    """Write spans of pydantic-ai's agents, whose `invoke_agent` spans repeat the usage, with a tool and its fake model."""
    from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from pydantic_ai import Agent, InstrumentationSettings
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(folder / "otlp_pydantic_ai.jsonl")))

    def model(messages: list[Any], _info: Any) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        question = next(part.content for part in parts if part.part_kind == "user-prompt")
        if not any(isinstance(part, ToolReturnPart) for part in parts):
            return ModelResponse(parts=[ToolCallPart("look_up", {"query": question})])
        asked = sum(part.part_kind == "user-prompt" for part in parts)
        return ModelResponse(parts=[TextPart(reply_of(question, asked))])

    agent = Agent(FunctionModel(model), instructions=SYSTEM, name="adder")
    agent.instrument = InstrumentationSettings(tracer_provider=provider)

    @agent.tool_plain
    def look_up(query: str) -> str:
        return f"nothing about {query}"

    for question, _ in QUESTIONS[:3]:
        history = agent.run_sync(question).all_messages()
        agent.run_sync(AGAIN, message_history=history)
    provider.shutdown()


def langsmith(url: str, folder: Path) -> None:
    """Write the ingest batches of LangSmith's client; the loop stops once two replies agree."""
    os.environ["LANGSMITH_TRACING"] = "true"
    from langsmith import Client, traceable
    from langsmith.wrappers import wrap_openai

    tracer = Client(api_url=url, api_key="lsv2-secret-of-the-fixture", auto_batch_tracing=False)
    client = wrap_openai(client_of(url), tracing_extra={"client": tracer})

    @traceable(client=tracer, name="answer")
    def answer(question: str) -> str:
        return loop(client, question, early=True)[-1]

    for question, _ in QUESTIONS:
        answer(question)
    (folder / "langsmith_batch.json").write_text(json.dumps(_ingested()))


def _ingested() -> dict[str, list[Any]]:
    """Return what LangSmith's client sent to the server."""
    batches: dict[str, list[Any]] = {"post": [], "patch": []}
    for method, path, body in RECEIVED:
        body.get("extra", {}).get("runtime", {}).pop("platform", None)
        batches["post" if method == "POST" else "patch"].append({"id": path.rsplit("/", 1)[-1], **body})
    return batches


def langchain(url: str, folder: Path) -> None:
    """Write the runs of LangChain's tracer, three questions of a chat model with messages of its own classes."""
    from langchain_core.tracers.langchain import LangChainTracer
    from langchain_openai import ChatOpenAI
    from langsmith import Client

    tracer = LangChainTracer(client=Client(api_url=url, api_key="lsv2-secret-of-the-fixture", auto_batch_tracing=False))
    model = ChatOpenAI(
        model="fake-1", base_url=f"{url}/v1", api_key="sk-secret-of-the-fixture", logprobs=True, top_logprobs=2
    )
    for place, (question, _) in enumerate(QUESTIONS[:3]):
        messages: list[Any] = [("system", SYSTEM), ("user", question)]
        for _ in range(2):
            said = model.invoke(messages, config={"callbacks": [tracer], "metadata": {"thread_id": f"q{place}"}})
            messages += [said, ("user", AGAIN)]
    tracer.wait_for_futures()
    (folder / "langsmith_langchain.json").write_text(json.dumps(_ingested()))


def mlflow(url: str, folder: Path) -> None:
    """Write MLflow's traces of its OpenAI autologging."""
    import mlflow as library

    with tempfile.TemporaryDirectory() as store:
        os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false"}
        library.set_tracking_uri(Path(store).as_uri())
        library.set_experiment("loop")
        library.openai.autolog()
        client = client_of(url)
        lines = []
        for question, gold in QUESTIONS:
            with library.start_span("answer") as span:
                loop(client, question)
            library.flush_trace_async_logging()
            library.log_expectation(trace_id=span.trace_id, name="expected_response", value=gold)
            trace = library.get_trace(span.trace_id).to_dict()
            for name in ("mlflow.user", "mlflow.source.name", "mlflow.artifactLocation"):
                trace["info"]["trace_metadata"].pop(name, None)
                trace["info"]["tags"].pop(name, None)
            lines.append(json.dumps(trace) + "\n")
    (folder / "mlflow_traces.jsonl").write_text("".join(lines))


def inspect(url: str, folder: Path) -> None:
    """Write an `.eval` log of inspect-ai with log-probabilities."""
    os.environ |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-secret-of-the-fixture"}
    from inspect_ai import Task, eval  # noqa: A004
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, GenerateConfig
    from inspect_ai.scorer import match
    from inspect_ai.solver import solver, system_message

    @solver
    def check() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state = await generate(state)
            for _ in range(ROUNDS - 1):
                state.messages.append(ChatMessageUser(content=AGAIN))
                state = await generate(state)
            return state

        return solve

    samples = [Sample(id=f"q{i}", input=question, target=gold) for i, (question, gold) in enumerate(QUESTIONS)]
    task = Task(samples, solver=[system_message(SYSTEM), check()], scorer=match(numeric=True), name="adding")
    with tempfile.TemporaryDirectory() as logs:
        config = GenerateConfig(logprobs=True, top_logprobs=2, max_connections=1)
        [log] = eval(
            task,
            model="openai/fake-1",
            log_dir=logs,
            display="none",
            model_args={"responses_api": False},
            **config.model_dump(exclude_none=True),
        )
        (folder / "inspect_rounds.eval").write_bytes(Path(log.location.removeprefix("file://")).read_bytes())


def openai_batch(url: str, folder: Path) -> None:
    """Write the lines of the Batch API: one batch for each round, bodies as the client parses them."""
    client = client_of(url)
    out = folder / "openai_batch"
    out.mkdir(exist_ok=True)
    replies: dict[str, list[str]] = {}
    for round_index in range(1, ROUNDS + 1):
        given, returned = [], []
        for place, (question, _) in enumerate(QUESTIONS):
            name = f"q{place}"
            messages = [{"role": "user", "content": question}]
            for said in replies.get(name, []):
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": AGAIN}]
            body = {"model": "fake-1", "messages": messages, "logprobs": True, "top_logprobs": 2}
            given.append({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
            reply = client.chat.completions.create(**body)
            replies.setdefault(name, []).append(reply.choices[0].message.content)
            response = {"status_code": 200, "request_id": f"req_{name}", "body": reply.model_dump(mode="json")}
            returned.append(
                {"id": f"batch_req_{name}_{round_index}", "custom_id": name, "response": response, "error": None}
            )
        for name, lines in (("input", given), ("output", returned)):
            (out / f"round{round_index}_{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


EMITTERS = {
    function.__name__: function
    for function in (
        genai, genai_events, genai_old_events, openllmetry, openinference, pydantic_ai, langsmith, langchain, mlflow, inspect, openai_batch
    )
}  # fmt: skip
PACKAGES = (
    "opentelemetry-sdk", "opentelemetry-exporter-otlp-json-file", "opentelemetry-instrumentation-openai-v2",
    "opentelemetry-util-genai",
    "opentelemetry-instrumentation-openai", "openinference-instrumentation-openai", "pydantic-ai-slim", "langsmith", "langchain-openai",
    "mlflow-tracing", "inspect-ai", "openai",
)  # fmt: skip


def pack(folder: Path) -> None:
    """Compress what is text, without the time of the day."""
    for file in sorted(folder.rglob("*.json*")):
        if file.suffix != ".gz" and file.name != "versions.json" and file.stat().st_size > 2_000:  # noqa: PLR2004
            with (
                file.with_name(file.name + ".gz").open("wb") as raw,
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as out,
            ):
                out.write(file.read_bytes())
            file.unlink()


def main(arguments: list[str]) -> None:
    """Run every emitter, or one of them."""
    folder = Path(arguments[0])
    if len(arguments) > 1:
        with server() as url:
            EMITTERS[arguments[1]](url, folder)
        return
    with tempfile.TemporaryDirectory() as fresh:
        for name in EMITTERS.keys() - {"genai_old_events"}:
            subprocess.run([sys.executable, str(Path(__file__).resolve()), fresh, name], check=True, cwd=fresh)
        pack(Path(fresh))
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", f"{fresh}/.", str(folder)], check=True)
    golds = [{"id": f"q{i}", "question": question, "answers": [gold]} for i, (question, gold) in enumerate(QUESTIONS)]
    (folder / "golds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in golds))
    (folder / "versions.json").write_text(json.dumps({name: version(name) for name in PACKAGES}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
