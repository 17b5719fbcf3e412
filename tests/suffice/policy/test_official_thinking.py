"""Rules that stop a chain of thought, beside the decisions of their authors' programs, written down anew from reading them.

The programs: Dynasor's `cot.py` and `core/entropy.py`, DEER's `vllm-deer.py` and `vllm-deer-qwen3.py`, thought calibration's
notebook 3, LYNX's `utils.py` and evaluation.  What the rules do otherwise is in docs/explanation/thinking-rules.md, and
tested here, too.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings, strategies as st

from suffice import Policy, Round, Session
from suffice.policy.rounds import Token

CERTAIN = ("42", "7", "Oslo", "x + 1", "forty two", "-3")
CLEAR_DOUBT = ("42, but", "7 hmm", "Wait, Oslo", "hold on: 7", "okay 42")
WITHIN_WORDS = ("Norway", "Minnesota", "button", "household", "no", "I know")
answers = st.sampled_from(["42", "7", "Oslo", ""])


def stop_of(rule: str, rounds: list[Round]) -> int | None:
    """Return the checkpoint at which a session stops by a rule."""
    session = Session(Policy(rule=rule, max_rounds=len(rounds) + 1))
    for observed in rounds:
        if session.observe(observed).stop:
            return observed.index
    return None


def dynasor_program(answers: list[str], replies: list[str], k: int) -> int | None:
    """The probe at which Dynasor exits: the last k answers are there and one, and no reply has an uncertain word in it."""
    doubts = ["wait", "hold", "but", "okay", "no", "hmm"]
    for last in range(k, len(answers) + 1):
        window = range(last - k, last)
        is_one = len({answers[i] for i in window}) == 1
        are_there = all(answers[i] for i in window)
        are_sure = not any(doubt in replies[i].lower() for i in window for doubt in doubts)
        if is_one and are_there and are_sure:
            return last
    return None


def checkpoints(answers: list[str], replies: list[str]) -> list[Round]:
    return [
        Round(index=i, answer=answer or None, text=reply, thinking="so")
        for i, (answer, reply) in enumerate(zip(answers, replies, strict=True), start=1)
    ]


@settings(max_examples=100)
@given(st.lists(st.tuples(answers, st.sampled_from(CERTAIN + CLEAR_DOUBT)), max_size=12), st.integers(2, 8))
def test_dynasor_stops_where_its_program_does(probes, k):
    given_answers, replies = [answer for answer, _ in probes], [reply for _, reply in probes]
    program = dynasor_program(given_answers, replies, k)
    assert stop_of(f"dynasor({k})", checkpoints(given_answers, replies)) == program


@settings(max_examples=100)
@given(
    st.lists(st.tuples(answers, st.sampled_from(CERTAIN + CLEAR_DOUBT + WITHIN_WORDS)), max_size=12), st.integers(2, 4)
)
def test_dynasor_ignores_no_and_words_within_words(probes, k):
    given_answers, replies = [answer for answer, _ in probes], [reply for _, reply in probes]
    ours = stop_of(f"dynasor({k})", checkpoints(given_answers, replies))
    program = dynasor_program(given_answers, replies, k)
    assert program is None or (ours is not None and ours <= program)
    plain = [reply if reply in CERTAIN + CLEAR_DOUBT else "7" for reply in replies]
    assert ours == dynasor_program(given_answers, plain, k)


def deer_program(trials: list[list[float]], threshold: float, most: int) -> int | None:
    """The trial after which DEER exits: the mean probability of its tokens but the first, `{`, is above the threshold."""
    for number, logprobs in enumerate(trials[:most], start=1):
        rest = [max(math.exp(logprob), 1e-10) for logprob in logprobs[1:]]
        if math.exp(sum(map(math.log, rest)) / len(rest)) > threshold:
            return number
    return None


logprobs = st.lists(st.floats(-0.3, 0.0), min_size=2, max_size=6)


@settings(max_examples=100)
@given(st.lists(logprobs, max_size=14), st.sampled_from([0.8, 0.9, 0.95]))
def test_deer_stops_where_its_program_does(trials, threshold):
    rounds = []
    for i, trial in enumerate(trials, start=1):
        mean = sum(trial[1:]) / len(trial[1:])
        assume(abs(mean - math.log(threshold)) > 1e-9)
        tokens = tuple(Token(f"t{n}", logprob) for n, logprob in enumerate(trial[1:]))  # our cue ends before the answer
        rounds.append(Round(index=i, answer="x", answer_tokens=tokens, thinking="Wait"))
    assert stop_of(f"(round <= 10) & deer({threshold})", rounds) == deer_program(trials, threshold, 10)
    assert stop_of(f"deer({threshold})", rounds) == deer_program(trials, threshold, len(trials))


def test_deer_leaves_blank_tokens_out_and_its_program_does_not():
    trial = [0.0, -0.01, -2.0]
    tokens = (Token("4", -0.01), Token(" ", -2.0))
    assert stop_of("deer(0.95)", [Round(index=1, answer="4", answer_tokens=tokens, thinking="Wait")]) == 1
    assert deer_program([trial], 0.95, 10) is None


def test_the_first_program_of_deer_has_another_mean():
    logprobs = [math.log(0.999)] * 5 + [math.log(0.72)]
    arithmetic = sum(map(math.exp, logprobs)) / len(logprobs)
    geometric = math.exp(sum(logprobs) / len(logprobs))
    assert arithmetic > 0.95 > geometric
    tokens = tuple(Token(f"t{n}", logprob) for n, logprob in enumerate(logprobs))
    assert stop_of("deer(0.95)", [Round(index=1, answer="x", answer_tokens=tokens, thinking="Wait")]) is None


def calibration_program(probabilities: list[float], threshold: float, window: int = 1) -> int:
    """The step at which thought calibration exits: the mean of the last `window` probabilities reaches the threshold; else the last."""
    for last in range(1, len(probabilities) + 1):
        recent = probabilities[max(0, last - window) : last]
        if sum(recent) / len(recent) >= threshold:
            return last
    return len(probabilities)


probabilities = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


@settings(max_examples=100)
@given(probabilities, st.floats(0.01, 1.0))
def test_thought_calibration_stops_where_its_program_does(drawn, threshold):
    rounds = [Round(index=i, answer="x", thinking="so", signals={"p_correct": p}) for i, p in enumerate(drawn, start=1)]
    ours = stop_of(f"thought_calibrated({threshold!r})", rounds)
    assert (len(drawn) if ours is None else ours) == calibration_program(drawn, threshold)


def test_thought_calibration_is_smoothed_in_its_program():
    drawn = [0.2, 0.95, 0.6, 0.9, 0.9]
    rounds = [Round(index=i, answer="x", thinking="so", signals={"p_correct": p}) for i, p in enumerate(drawn, start=1)]
    assert stop_of("thought_calibrated(0.8)", rounds) == calibration_program(drawn, 0.8) == 2
    assert calibration_program(drawn, 0.8, window=3) == 4


def lynx_program(probabilities: list[float], q_right: float, q_wrong: float) -> int | None:
    """The cue at which LYNX exits: its conformal set holds that the answer is right, and not that it is wrong."""
    for number, p in enumerate(probabilities, start=1):
        holds = {name for name, share, q in (("right", p, q_right), ("wrong", 1 - p, q_wrong)) if 1 - share <= q}
        if holds == {"right"}:
            return number
    return None


@settings(max_examples=100)
@given(probabilities, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_lynx_stops_where_its_program_does(drawn, q_right, q_wrong):
    assume(all(min(abs(1 - p - q_right), abs(1 - (1 - p) - q_wrong)) > 1e-9 for p in drawn))
    rounds = [
        Round(index=i, answer="x", thinking="wait", signals={"p_settled": p}) for i, p in enumerate(drawn, start=1)
    ]
    program = lynx_program(drawn, q_right, q_wrong)
    assert stop_of(f"(p_settled >= {1 - q_right!r}) & (p_settled > {q_wrong!r})", rounds) == program
    if q_wrong > 1 - q_right and 0 < q_wrong < 1:
        assert stop_of(f"lynx({q_wrong!r})", rounds) == program


@pytest.mark.parametrize(("answer", "text"), [("42", "?!"), ("42", "42")])
def test_a_trial_without_words_does_not_hesitate(answer, text):
    twice = checkpoints([answer] * 2, [text] * 2)
    assert stop_of("dynasor(2)", twice) == 2
