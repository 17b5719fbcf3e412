"""A signal and a rule of your own.

A signal is a pure function of the rounds so far: no labels, no later round, NaN where it is undefined.  Once registered,
rules may read it, recordings store it, and the same function serves live and recorded rounds.
"""

from collections.abc import Sequence

from suffice import Passage, Policy, Round, Session, parse_rule, register_signal


@register_signal("ratio", (0.0, 1.0), component="")  # no component: it costs nothing
def shared_words(rounds: Sequence[Round]) -> float:
    """Share of the answer's words in the newest passage."""
    last = rounds[-1]
    words = set((last.answer or "").lower().split())
    if not words or not last.passages:
        return float("nan")
    return len(words & set(last.passages[-1].text.lower().split())) / len(words)


def main() -> None:
    rule = parse_rule("(answer_stable >= 1) & (shared_words > 0.5)")
    print(rule, "reads", ", ".join(sorted(rule.signals)))
    session = Session(Policy(rule=rule))
    found: tuple[Passage, ...] = ()
    for text, answer in (
        ("the fjord lies in the south", "Bergen"),
        ("trams run in many towns", "Oslo"),
        ("rain is common", "Oslo"),
        ("oslo has a fjord", "Oslo"),
    ):
        found = (*found, Passage(passage_id=str(len(found)), title=str(len(found)), text=text))
        decision = session.observe(Round(index=session.next_round, answer=answer, passages=found))
        print(f"{answer:8} {dict(decision.signals)} {'stop' if decision.stop else 'go on'}")


if __name__ == "__main__":
    main()
