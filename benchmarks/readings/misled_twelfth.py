"""Logs that misled the importer when a twelfth person tried it: arguments of tools called like gold answers."""

from __future__ import annotations

from benchmarks.readings.cases import Draw, Log, shape
from benchmarks.readings.plain import loops


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
