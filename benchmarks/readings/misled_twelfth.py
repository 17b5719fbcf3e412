"""Logs that misled the importer when a twelfth person tried it: arguments called like gold answers, and parsed ones of any name."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops, rows


@shape("incidents.jsonl")
def arguments_called_targets(draw: Draw) -> Log:
    """Each step has the argument of its tool, called `target`, and an analyst has said what is right."""
    questions = draw.asked(80)
    made = [
        {
            "incident_id": f"INC-{a.number}",
            "analyst_label": a.gold,
            "steps": [
                {"step": r, "tool": "whois", "tool_input": {"target": f"10.0.{a.number}.{r}"}, "assessment": text}
                for r, text in enumerate(a.answers, start=1)
            ],
        }
        for a in questions
    ]
    return Log(made, loops(questions))


@shape("support.csv")
def articles_in_replies_and_what_solved_tickets(draw: Draw) -> Log:
    """Each reply names an article, which has a column of its own, as has the article that solved the ticket: which is what is asked."""
    questions = draw.asked(80, kind="whole", rounds=3)
    made = rows(
        questions,
        lambda own, r: {
            "ticket_id": f"T{own.number}",
            "draft": r,
            "reply": f"Hello! Please see article {own.answers[r - 1]} about your trouble. {draw.prose(4)}",
            "article": own.answers[r - 1],
            "solved_by": own.gold,
        },
    )
    return Log(made, loops(questions))


@shape("news.jsonl")
def summaries_with_a_number(draw: Draw) -> Log:
    """Summaries and reference summaries hold one number each: it does not make them the same."""
    questions = draw.asked(80, kind="whole", rounds=3)
    gold = "The council of Ashby backs the plan for {} homes near the school."
    made = [
        {
            "article_id": own.number,
            "round": r,
            "summary": gold.format(own.gold) if right else f"{own.gold} homes in Ashby.",
            "reference_summary": gold.format(own.gold),
        }
        for own in questions
        for r, right in enumerate(own.right, start=1)
    ]
    texts = [row["summary"] for row in made]
    read = [
        own.loop(answers=tuple(texts[3 * i : 3 * i + 3]), golds=(gold.format(own.gold),))
        for i, own in enumerate(questions)
    ]
    return Log(made, read)
