"""DSPy: the lines to paste."""

import dspy
from dspy import lm15

from tests.frameworks.acceptance import CAPPED, Script, check, check_cap, loaded


class Fake:
    def __init__(self, script):
        self.script = script

    def complete(self, request):
        text = f"[[ ## answer ## ]]\n{self.script.next()}\n\n[[ ## completed ## ]]"
        message = lm15.Message("assistant", (lm15.TextPart(text),))
        return lm15.Response(None, "m", message, "stop", lm15.Usage())


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    with dspy.context(lm=dspy.LM("fake/m", engine=Fake(script), cache=False)):
        check(script, loaded("dspy", folder)["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    with dspy.context(lm=dspy.LM("fake/m", engine=Fake(script), cache=False)):
        check_cap(script, loaded("dspy", folder)["ask"])
    assert script.calls == 10
