"""Answer one question round by round, and watch TASR's signals decide.

The walk-through of the TASR paper (section 3.4): the answer changes once, then repeats with a confident margin, and the
third round is the last.  No model runs here; the answers and their calibrated margins are the paper's.
"""

from suffice import Policy, Round, Session

ROUNDS = [("Titus Andronicus", 0.30), ("The Tempest", 0.81), ("The Tempest", 0.80), ("The Tempest", 0.84)]


def main() -> None:
    session = Session(Policy(rule="tasr", max_rounds=5))
    for r, (answer, p_correct) in enumerate(ROUNDS, start=1):
        decision = session.observe(Round(index=r, answer=answer, signals={"p_correct": p_correct}))
        seen = ", ".join(f"{name} {value:.2f}" for name, value in decision.signals.items())
        print(f"round {r}: {answer:17} {seen:40} {'stop' if decision.stop else 'go on'}")
        if decision.stop:
            break
    print(f"answer: {decision.answer} (round {decision.answer_round}), because {decision.fired}")


if __name__ == "__main__":
    main()
