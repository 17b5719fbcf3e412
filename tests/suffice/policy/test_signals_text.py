"""What a reply says outside of its answer."""

import math

import pytest
from hypothesis import given, settings, strategies as st

from suffice.policy.signals import parse_confidence, strip_thinking
from suffice.policy.signals.text import split_thinking
from tests.support.linear import takes_linear_time


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("Answer: Paris\nConfidence: 4", 4),
        ("Confidence: 3\nAnswer: Paris", 3),
        ("CONFIDENCE:5", 5),
        ("**Confidence:** 4/5", 4),
        ("**Confidence**: 4 / 5", 4),
        ("**Confidence: 4**", 4),
        ("Confidence - 4", 4),
        ("Confidence \u2013 4", 4),
        ("Confidence = 4.", 4),
        ("Confidence 4", 4),
        ("Confidence:\n4", 4),
        ("Confidence level: 4 out of 5", 4),
        ("Confidence (1-5): 2", 2),
        ("Confidence: <4>", 4),
        ("Confidence: (4), since the passage says so", 4),
        ("My confidence is 2.", 2),
        ("My confidence is high. Confidence: 5", 5),
        ('{"answer": "Paris", "confidence": 4}', 4),
        ('{"confidence": "4", "answer": "Paris"}', 4),
        ("<think>Confidence: 1</think>Confidence: 5", 5),
        ("Confidence: 4\n\nQuestion: next\nConfidence: 1", 4),
    ],
)
def test_a_stated_confidence_is_read(text, confidence):
    assert parse_confidence(text) == confidence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Answer: Paris",
        "Confidence: high",
        "Confidence:",
        "Confidence: 0",
        "Confidence: 6",
        "Confidence: 45",
        "Confidence: -3",
        "Confidence: 4.5",
        "Confidence: 4,5",
        "Confidence: 1.0",
        "Confidence: 0.9",
        "Confidence: 5%",
        "Confidence: 4/10",
        "Confidence: 4 out of 10",
        "Confidence: <1-5>",
        "Confidence: 1\u20135",
        "Overconfidence: 4",
        "self-confidence: 4",
        "Confidence in 3 passages",
        "<think>Confidence: 4",
        "Confidence: " + "9" * 5000,
    ],
)
def test_what_is_no_confidence_on_the_scale_is_undefined(text):
    assert math.isnan(parse_confidence(text))


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("Paris", "Paris"),
        ("<think>a</think> Paris", " Paris"),
        ("<THINKING>a</THINKING>Paris", "Paris"),
        ("<thought>a</thought>Paris", "Paris"),
        ("[THINK]a[/THINK]Paris", "Paris"),
        ("<|channel>thought\na<channel|>Paris", "Paris"),
        ("a</think>Paris", "Paris"),
        ("<think>a</think>b<think>c</think>Paris", "Paris"),
        ("<think>a", ""),
        ("Paris<think>a", ""),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Paris", "Paris"),
        ("<|channel|>final<|constrain|>json<|message|>{}", "{}"),
        ("<|channel|>analysis<|message|>a", ""),
        ("<|channel|>final", ""),
    ],
)
def test_thinking_is_no_part_of_the_visible_text(text, visible):
    assert strip_thinking(text) == (len(text) - len(visible), visible)


FRAGMENTS = st.sampled_from(
    ["Confidence", ":", " ", "4", "/", "5", "<think>", "</think>", "<|channel|>", "final", "(", "-"]
)


@settings(deadline=None)
@given(st.lists(FRAGMENTS | st.text(max_size=3), max_size=15).map("".join))
def test_any_text_has_a_confidence_on_the_scale_or_none(text):
    confidence = parse_confidence(text)
    assert math.isnan(confidence) or confidence in {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    "fragment", [" ", "confidence", "confidence ", "confidence (", "<think>", "</think>", "confidence:*"]
)
def test_a_long_reply_takes_linear_time(fragment):
    def text(size):
        return "Confidence" + fragment * (size // len(fragment))

    assert math.isnan(parse_confidence(text(300_000)))
    assert takes_linear_time(parse_confidence, text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>6 times 7</think>42", ("6 times 7", "42")),
        ("6 times 7</think>42", ("6 times 7", "42")),
        ("<think>6 times", ("6 times", None)),
        ("42", ("", "42")),
        ("", ("", "")),
    ],
)
def test_a_reply_is_split_into_its_thoughts_and_the_rest(text, parts):
    assert split_thinking(text) == parts
