"""Options of `suffice draft` for a panel of marks by a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from suffice.cli import models, options
from suffice.cli.judge import parse_weights
from suffice.cli.local import json_object
from suffice.cli.parameters import Setting
from suffice.errors import DataError
from suffice.loops.judges import MARKS, JudgeModel, Panel
from suffice.loops.judges.marks import SCORE

LIVE_MARKS = tuple(name for name, prompt in MARKS.items() if prompt.subject == "draft")
"""The marks that a live loop may read; the others need the gold answer."""

_MAX_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class PanelOptions(models.Judge):
    """Options of a judge that marks drafts."""

    judge_model: Annotated[
        str | None,
        Option("--judge-model", help="A model that marks drafts, for rules as semantic_full: information_score."),
    ] = None
    marks: Annotated[
        str, Setting("drafts", "marks", help=f"Marks that the judge gives, comma-separated: {', '.join(LIVE_MARKS)}.")
    ] = ",".join(LIVE_MARKS)
    weights: options.MarkWeights = ""

    def panels(self, endpoint: models.Endpoint) -> tuple[Panel, ...]:
        """Return the judge's panel; empty without a judge."""
        if self.judge_model is None:
            return ()
        wanted = options.split_names(self.marks)
        with_gold = [mark for mark in wanted if mark in MARKS and mark not in LIVE_MARKS]
        if with_gold:
            raise DataError(
                f"{with_gold[0]!r} is marked by the gold answer, which no live loop has: leave it out of marks, and mark "
                "the recording with `suffice judge drafts`"
            )
        if len(wanted) < 2:  # noqa: PLR2004
            raise DataError(
                f"{SCORE} is the mean of two marks or more, not of {self.marks!r}: name them with --set marks=..., and give one of "
                "them all the weight with --set weights=MARK=1 if only that counts"
            )
        chat = self.chat(endpoint, extra_body=json_object(endpoint.extra_body))
        asks = JudgeModel(chat, cache=chat.cache, max_tokens=_MAX_TOKENS)
        return (Panel(asks, wanted, weights=parse_weights(self.weights)),)


def require_contexts(panels: tuple[Panel, ...], where: str) -> None:
    """Raise if marks need contexts but drafts have none, since the marks would be undefined."""
    for panel in panels:
        wanting = [mark for mark, weight in panel.weights.items() if weight and MARKS[mark].with_contexts]
        if wanting:
            raise DataError(
                f"the judge marks {', '.join(wanting)} by contexts, and there are none: {where}, or give what needs none "
                "all the weight (--set weights=answer_relevancy=1)"
            )
