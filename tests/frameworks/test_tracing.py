"""Decisions in spans of OpenTelemetry."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from suffice import Policy
from suffice.hosts import QuestionRun
from tests.frameworks.acceptance import QUESTION, RULE, SCRIPT, measured


def test_the_span_around_a_stop_says_why():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    policy = Policy(rule=RULE, selector="max_quality")
    run = QuestionRun(policy, QUESTION, measure=lambda question, text: {"quality": measured(text)})
    tracer = provider.get_tracer("test")
    for answer in SCRIPT[:4]:
        with tracer.start_as_current_span("chat"):
            run.observe(answer)
    *before, last = exporter.get_finished_spans()
    assert [dict(span.attributes) for span in before] == [{}, {}, {}]
    said = {name.removeprefix("suffice.decision."): value for name, value in last.attributes.items()}
    assert said == {
        "rounds": 4,
        "stop": True,
        "stop_round": 4,
        "answer_round": 2,
        "answer": "The Tempest",
        "reason": "rule",
        "fired": RULE,
        "signals.quality": 0.2,
    }
    assert [(event.name, dict(event.attributes)) for event in last.events] == [
        ("suffice.decision", dict(last.attributes))
    ]
