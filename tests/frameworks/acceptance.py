"""What every framework must do: one script of answers, one policy, the same expectations."""

import asyncio
import inspect
import json
from dataclasses import dataclass, field

from suffice import Policy, register_signal
from suffice.hosts import snippet

QUESTION = "Which play has Prospero?"
SCRIPT = ("Titus Andronicus", "The Tempest", "Macbeth", "King Lear", "Othello")
QUALITY = {"Titus Andronicus": 0.6, "The Tempest": 0.9, "Macbeth": 0.3, "King Lear": 0.2, "Othello": 0.1, "Hamlet": 0.5}
RULE = "patience((quality < 0.5), 2)"


def measured(text):
    """Return the quality of an answer, which each fake model finds in its script."""
    return next(value for answer, value in QUALITY.items() if answer in text)


def policy_file(folder, rule=RULE, max_rounds=50):
    """Register what measures answers, and return a policy file that reads it."""

    @register_signal("score", (0, 1), component="")
    def quality(rounds):
        """How good an answer is, as its host measures it."""
        return measured(rounds[-1].text) if rounds[-1].text else float("nan")

    path = folder / "policy.json"
    Policy(rule=rule, selector="max_quality", max_rounds=max_rounds).save(path)
    return path


@dataclass
class Script:
    """A fake model's answers, its calls, whether each was offered tools, and the call at which it breaks down."""

    answers: tuple = SCRIPT
    calls: int = 0
    log: list = field(default_factory=list)
    offered: list = field(default_factory=list)
    fails_at: int | None = None

    def next(self):
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the model is down")
        return self.answers[min(self.calls, len(self.answers)) - 1]

    def rewind(self):
        self.calls = 0


CAPPED = ("Titus Andronicus", "The Tempest", *["Hamlet"] * 100)
"""Answers on which the rule never fires, so that only the framework's own limit ends the loop."""


def tokens_of(answer):
    """Return an answer as one token with log-probabilities, as OpenAI's interface gives it."""
    likely, other = (
        {"token": text, "logprob": value, "bytes": list(text.encode())}
        for text, value in ((answer, -0.25), ("No", -1.75))
    )
    return [{**likely, "top_logprobs": [likely, other]}]


def loaded(name, folder, change=("", ""), arguments="", **names):
    """Return what the lines to paste define, with a policy file for theirs.

    With `recorder` if it is among the names, with other `arguments` of the adapter, and with one `change` of their text:
    what is there, and what is instead.
    """
    namespace = {"__name__": f"pasted_{name}", **names}
    file = folder / f"{name}.py"
    lines = snippet(name, folder / "policy.json")
    if "recorder" in names:
        arguments = f"recorder=recorder, {arguments}".removesuffix(", ")
    if arguments:
        lines = lines.replace('policy.json"', f'policy.json", {arguments}')
    if change[0]:
        assert change[0] in lines
        lines = lines.replace(*change).replace("\ndef ask", "\nasync def ask")
    file.write_text(lines, "utf-8")  # CrewAI reads the source of a guardrail
    exec(compile(file.read_text("utf-8"), str(file), "exec"), namespace)
    return namespace


def check_stop(script, text, decision, *, calls=4):
    """Round 4 stops, and round 2 is handed back with the reason."""
    assert script.calls == calls
    assert text == "The Tempest"
    assert (decision["stop_round"], decision["answer_round"], decision["answer"]) == (4, 2, "The Tempest")
    assert (decision["reason"], decision["fired"], decision["rounds"]) == ("rule", RULE, 4)
    assert decision["signals"] == {"quality": 0.2}
    json.dumps(decision)


def asked_twice(script, ask):
    """Yield what two questions on the same objects, in one event loop, come to."""
    with asyncio.Runner() as runner:
        for question in (QUESTION, "Which play has Ariel?"):
            script.rewind()
            value = ask(question)
            yield runner.run(value) if inspect.isawaitable(value) else value


def check(script, ask):
    """It stops at round 4 and hands back round 2, twice."""
    for text, decision in asked_twice(script, ask):
        check_stop(script, text, decision)


def check_cap(script, ask):
    """The framework's own limit ends with the best answer so far, twice."""
    for text, decision in asked_twice(script, ask):
        assert text == decision["answer"] == "The Tempest"
        assert decision["reason"] == "cancelled"
        assert decision["answer_round"] == 2
        assert 3 <= script.calls < len(script.answers)
