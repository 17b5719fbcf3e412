"""What does one live decision cost, and what does `import suffice` cost?

`Session.observe` with TASR and its calibrators, over whole questions of five rounds that never fire (the longest way),
once with the margin measured by the model and once read out of top-5 log-probabilities.  Beside it the per-turn check
of tokencircuit (`InterventionEngine.process` on the same five answers), which looks for loops by text alone.
Asserted first: the session stops exactly where the rule is written to.  Import times in fresh processes, in turns.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from suffice import Calibrator, Policy, Round, Session, Token, tasr

ROUNDS, QUESTIONS = 5, 400
TARGET_RATIO, TARGET_IMPORT_RATIO = 1.25, 0.75
ANSWERS = ("Titus Andronicus", "The Tempest", "Julius Caesar", "King Lear", "Macbeth")

LOADED = "import json, sys; import suffice; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
TIMED = "import time; t = time.perf_counter(); import numpy; n = time.perf_counter(); import suffice; \
print(n - t, time.perf_counter() - n)"


def policy() -> Policy:
    """Return TASR with per-round isotonic calibrators."""
    rng = np.random.default_rng(0)
    margins = rng.exponential(size=(100, ROUNDS))
    correct = (rng.random((100, ROUNDS)) < margins / 3).astype(float)
    calibrator = Calibrator().fit(margins, correct, index=range(1, ROUNDS + 1))
    return Policy(rule=tasr(), calibrators=(calibrator,), max_rounds=ROUNDS)


def measured_rounds(answers: tuple[str, ...] = ANSWERS) -> list[Round]:
    """Return rounds whose margin the model measured itself, as the span reader does."""
    return [Round(index=r, answer=a, signals={"answer_margin": 1.0 + r}) for r, a in enumerate(answers, start=1)]


def token_rounds() -> list[Round]:
    """Return rounds with the answer's tokens and their five alternatives, as an endpoint gives them."""
    rounds = []
    for r, answer in enumerate(ANSWERS, start=1):
        first, *rest = answer.split(" ")
        others = tuple((f"w{i}", -2.0 - i) for i in range(4))
        tokens = (
            Token(first, -0.1, ((first, -0.1), *others)),
            *(Token(f" {w}", -0.2, ((f" {w}", -0.2), *others)) for w in rest),
        )
        rounds.append(Round(index=r, answer=answer, text=f"Answer: {answer}", answer_tokens=tokens))
    return rounds


def per_observe(decider: Policy, rounds: list[Round]) -> list[float]:
    """Return the seconds of each `observe`."""
    seconds = []
    for _ in range(QUESTIONS):
        session = Session(decider)
        for item in rounds:
            begin = time.perf_counter()
            session.observe(item)
            seconds.append(time.perf_counter() - begin)
    return seconds


def per_turn() -> list[float]:
    """Return the seconds of each check of tokencircuit on the same answers as assistant messages."""
    from tokencircuit import InterventionEngine, default_intervention_state

    seconds = []
    for question in range(QUESTIONS):
        engine, state = InterventionEngine(), default_intervention_state()
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Which play is it?"}]
        for answer in ANSWERS:
            messages.append({"role": "assistant", "content": answer})
            begin = time.perf_counter()
            decision = engine.process(messages, {"_tc_intervention": state}, thread_id=str(question), node_name="agent")
            seconds.append(time.perf_counter() - begin)
            state.update(decision.state_patch)
    return seconds


def import_seconds(times: int) -> tuple[float, float]:
    """Return the least seconds for numpy, and for suffice after it, in fresh processes from compiled files."""
    found = []
    with tempfile.TemporaryDirectory() as compiled:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled
        for _ in range(times + 1):  # the first writes the compiled files
            done = subprocess.run(
                [sys.executable, "-c", TIMED], capture_output=True, text=True, check=True, env=environment
            )
            found.append([float(seconds) for seconds in done.stdout.split()])
    numpy_s, ours_s = (min(column) for column in zip(*found[1:], strict=True))
    return numpy_s, ours_s


def foreign_modules() -> list[str]:
    """Return the third-party packages that `import suffice` loads."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    known = set(sys.stdlib_module_names) | {"suffice", "__main__", "sitecustomize", "usercustomize"}
    return [name for name in json.loads(done.stdout) if name not in known and not name.startswith("_")]


def check(decider: Policy) -> None:
    """See that the session stops where TASR does, and that both kinds of rounds decide."""
    assert Session(decider).observe_all(measured_rounds()).reason == "max_rounds"
    stopped = Session(decider).observe_all(measured_rounds(("a", "b", "The Tempest", "tempest", "c")))
    assert (stopped.stop_round, stopped.reason, stopped.answer) == (4, "rule", "tempest")
    last = Session(decider).observe_all(token_rounds())
    assert last.reason == "max_rounds"
    assert 0 <= last.signals["p_correct"] <= 1


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures; times in microseconds and milliseconds."""
    decider = policy()
    check(decider)
    kinds: dict[str, Callable[[], list[float]]] = {
        "measured": lambda: per_observe(decider, measured_rounds()),
        "tokens": lambda: per_observe(decider, token_rounds()),
        "tokencircuit": per_turn,
    }
    for call in kinds.values():
        call()
    medians = {name: 1e6 * float(np.median(call())) for name, call in kinds.items()}
    numpy_s, ours_s = import_seconds(12)
    foreign = foreign_modules()
    extra_ms = 1e3 * ours_s
    print("one live decision (TASR, isotonic calibrator), median over rounds 1-5")
    print(f"  suffice, margin measured     {medians['measured']:8.1f} us")
    print(f"  suffice, margin from tokens  {medians['tokens']:8.1f} us")
    print(
        f"  tokencircuit, per turn       {medians['tokencircuit']:8.1f} us   (target: ours at most {TARGET_RATIO} of it)"
    )
    print(
        f"import numpy {1e3 * numpy_s:.0f} ms, then suffice {extra_ms:.0f} ms more (target {TARGET_IMPORT_RATIO} of numpy's)"
    )
    print(f"  third-party packages loaded: {', '.join(foreign)}")
    return {
        "name": "decision",
        "ours": medians["tokens"],
        "peer": medians["tokencircuit"],
        "ratio": medians["tokens"] / medians["tokencircuit"],
        "unit": "microseconds, median",
        "measured": medians["measured"],
        "import_ms": {"numpy": 1e3 * numpy_s, "suffice_more": extra_ms},
        "third_party": foreign,
        "target": {"ratio": TARGET_RATIO, "import_ratio": TARGET_IMPORT_RATIO},
        "import_ratio": ours_s / numpy_s,
        "met": medians["tokens"] <= TARGET_RATIO * medians["tokencircuit"]
        and ours_s <= TARGET_IMPORT_RATIO * numpy_s
        and foreign == ["numpy"],
        "sizes": {"questions": QUESTIONS, "rounds": ROUNDS},
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "tokencircuit": version("tokencircuit"),
        },
    }


if __name__ == "__main__":
    print(json.dumps(run()))
